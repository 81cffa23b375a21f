"""Configurations of the kinds that the documentation of each tool shows, imported: the pipeline document, and what is
reported. The texts are our own; the kinds are those of the pages that each file of the fixtures names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from frazil.spec import load_spec
from packages.migrate.tests.unit.imports.test_imports import IMPORTS, imported

_FOLDER = Path(__file__).parents[2] / "fixtures" / "imports"


class Example(NamedTuple):
    """One kind of configuration."""

    tool: str
    kind: str
    configuration: str
    #: The pipeline document, without its name and its brokers.
    makes: dict[str, Any]
    #: The settings that are not carried over as they are.
    reports: list[str]


def read(tool: str) -> list[Example]:
    """Returns the examples of a tool, with the parts that several share."""
    file = yaml.safe_load((_FOLDER / f"{tool}.yaml").read_text(encoding="utf-8"))
    found = []
    for one in file["examples"]:
        text = one["configuration"]
        for name, part in file.get("parts", {}).items():
            text = text.replace(f"<<{name}>>\n", part)
        found.append(Example(tool, one["kind"], text, one["makes"], one["reports"]))
    return found


EXAMPLES = [example for tool in IMPORTS for example in read(tool)]


class AnyVariable(dict[str, str]):
    """An environment in which every variable is set."""

    def get(self, _key: str, _default: object = None) -> str:
        return f"https://{'x' * 32}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: f"{one.tool}: {one.kind}")
def test_a_documented_example_makes_the_pipeline_that_it_means(example: Example, tmp_path: Path) -> None:
    found = imported(example.tool, example.configuration)
    document = yaml.safe_load(found.text)
    path = tmp_path / "frazil.yaml"
    path.write_text(found.text)
    del document["pipeline"], document["kafka"]
    assert document == example.makes
    assert [loss.key for loss in found.losses] == example.reports
    assert "hushhush" not in found.text
    spec = load_spec(path, AnyVariable())
    assert spec.tables or spec.routes


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: f"{one.tool}: {one.kind}")
def test_every_setting_of_a_documented_example_has_an_answer(example: Example) -> None:
    found = imported(example.tool, example.configuration)
    unknown = {loss.key for loss in found.losses if loss.reason == "the setting is unknown"}
    assert unknown <= {"sink.fenodes", "sink.username", "sink.password"}  # Of a sink that is none of Iceberg's.
    assert all(loss.remedy for loss in found.losses)
