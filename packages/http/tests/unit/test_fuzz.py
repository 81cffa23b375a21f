"""The API as its own OpenAPI document describes it, called by chance: every answer is one that the document names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from frazil_http.openapi import openapi_document
from packages.http.tests.unit.running_scene import RunningScene

DOCUMENT = openapi_document()
OPERATIONS = [(path, method) for path, known in DOCUMENT["paths"].items() for method in known]
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_NAMES = st.sampled_from(["n.a", "n.a__dead_letters", "n.b", "", "x", "..", "%00", "n.a/pause"]) | _TEXT


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of a pipeline with a table that has a dead letter."""
    scene = RunningScene(Path(tmp_path_factory.mktemp("fuzz")), "a", "b")
    scene.feed("a", {"id": 1}, b"no JSON", {"id": 2})
    with scene.running():
        yield scene.client()


def values(schema: dict[str, Any]) -> st.SearchStrategy[str]:
    """Values of a parameter: mostly those that its schema allows."""
    kind = schema.get("type")
    if kind == "boolean":
        return st.sampled_from(["true", "false"]) | _TEXT
    if kind == "integer":
        return st.integers(schema.get("minimum", 0), min(schema.get("maximum", 5), 2**63 - 1)).map(str) | _TEXT
    return _TEXT


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, str, str]:
    """A method and an address, with the path that the document has for it."""
    path, method = draw(st.sampled_from(OPERATIONS))
    operation, address, query = DOCUMENT["paths"][path][method], path, {}
    for parameter in operation["parameters"]:
        if parameter["in"] == "path":
            address = address.replace(f"{{{parameter['name']}}}", quote(draw(_NAMES), safe=""))
        elif draw(st.booleans()):
            query[parameter["name"]] = draw(values(parameter["schema"]))
    query |= draw(st.dictionaries(_TEXT, _TEXT, max_size=1)) if draw(st.integers(0, 5)) == 0 else {}
    pairs = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query.items())
    return path, method, f"{address}?{pairs}"


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(calls())
def test_every_answer_is_one_that_the_document_names(client: TestClient, call: tuple[str, str, str]) -> None:
    path, method, address = call
    answer = client.request(method, address)
    assert answer.status_code != 500, answer.text
    named = DOCUMENT["paths"][path][method]["responses"]
    # An empty name is another path.
    assert str(answer.status_code) in named or answer.status_code == 405, (answer.status_code, address)
    schema = next(iter(resolve(named.get(str(answer.status_code), named["404"]))["content"].values()))["schema"]
    validator = Draft202012Validator({**schema, "components": DOCUMENT["components"]})
    if answer.status_code in (200, 202) and "$ref" not in str(schema):
        validator.validate(answer.json())
    elif answer.status_code >= 400:
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.json()["message"]
        assert answer.json()["remedy"]


def resolve(response: dict[str, Any]) -> dict[str, Any]:
    """The response that a reference names."""
    if "$ref" not in response:
        return response
    found: dict[str, Any] = DOCUMENT["components"]["responses"][response["$ref"].rpartition("/")[2]]
    return found
