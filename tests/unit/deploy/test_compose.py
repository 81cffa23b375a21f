"""The Compose file, whose containers are not started here: its schema, its services, the commands that they run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
import typer
import yaml

from docs.generate import typer_command
from docs.scan import ROOT
from frazil.cli.commands import every_command
from frazil.cli.main import main
from frazil_demo.samples import app
from tests.fixtures.compose import compose_schema

FOLDER = ROOT / "deploy" / "compose"
COMPOSE: Mapping[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: Mapping[str, Mapping[str, Any]] = COMPOSE["services"]


def test_it_follows_the_schema_of_compose_files() -> None:
    schema = compose_schema()
    if schema is None:
        pytest.skip("the schema comes as a Go module, and there is no Go")
    jsonschema.Draft7Validator(json.loads(schema.read_text())).validate(COMPOSE)


def test_every_image_has_a_version_and_every_port_is_on_loopback() -> None:
    images = [service["image"] for service in SERVICES.values()]
    assert [image for image in images if not re.search(r":v?\d+\.?\d*", image)] == []
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert (len(ports) > 5, [port for port in ports if not port.startswith("127.0.0.1:")]) == (True, [])


def test_services_wait_for_what_there_is() -> None:
    for name, service in SERVICES.items():
        needed = service.get("depends_on", {})
        conditions = (
            needed if isinstance(needed, dict) else {other: {"condition": "service_started"} for other in needed}
        )
        assert conditions.keys() <= SERVICES.keys(), name
        for other, condition in conditions.items():
            assert condition["condition"] != "service_healthy" or "healthcheck" in SERVICES[other], (name, other)


def test_every_volume_is_a_file_of_the_folder_or_declared() -> None:
    sources = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ())]
    files = [source for source in sources if source.startswith("./")]
    assert [file for file in files if not (FOLDER / file).is_file()] == []
    assert {source for source in sources if source not in files} == set(COMPOSE["volumes"])


def test_the_commands_of_frazil_exist_with_their_options() -> None:
    commands = {command.name: command for command in every_command()}
    name, *words = SERVICES["pipeline"]["command"]
    options = {option for parameter in typer_command(commands[name]).params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options
    sample, *words = SERVICES["events"]["command"]
    samples: Any = typer.main.get_command(app)
    options = {option for parameter in samples.commands[sample].params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options
    assert SERVICES["events"]["entrypoint"] == ["python", "-m", "frazil_demo.samples"]


def test_the_pipeline_file_is_valid_with_the_variables_of_its_service(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in SERVICES["pipeline"]["environment"].items():
        monkeypatch.setenv(variable, value)
    assert main(["check", "--offline", "--file", str(FOLDER / "frazil.yaml")]) == 0


def test_the_pipeline_and_the_query_reach_the_services_by_their_names() -> None:
    texts = (FOLDER / "frazil.yaml").read_text() + (FOLDER / "query.py").read_text()
    assert {*re.findall(r"\b([a-z]+):\d{4,5}", texts)} == {"broker", "registry", "store", "catalog"}
    compile((FOLDER / "query.py").read_text(), "query.py", "exec")


def test_the_page_names_services_that_exist() -> None:
    page = (ROOT / "docs/start/compose.md").read_text()
    assert set(re.findall(r"^\| `([a-z]+)`(?:, `([a-z]+)`)? \|", page, re.MULTILINE)) == {
        ("postgres", "connect"),
        *((name, "") for name in SERVICES.keys() - {"postgres", "connect", "bucket"}),
    }
