"""Variables of the environment that ask for a package which is not installed are not ignored in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.ops.observers import check_observers
from frazil.plugins import extras
from frazil.plugins.extras import unread_variables
from frazil.spec import load_spec
from tests.needs import needs

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


def test_a_variable_without_its_package_is_a_warning_that_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "frazil.yaml"
    file.write_text('pipeline: p\nkafka: {bootstrap.servers: "h:9"}\ntables: {n.t: {topic: t}}\n')
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    monkeypatch.setenv(_ENDPOINT, "http://collector:4318")
    [finding] = [one for one in check_observers(load_spec(file)) if one.name == _ENDPOINT]
    assert finding.is_ok
    assert finding.found == (
        f"warning: what reads `{_ENDPOINT}` is in the package frazil-telemetry, which is not installed;"
        " install `frazil[telemetry]` with pip from where Frazil was installed"
    )


@needs("telemetry")
def test_a_variable_that_is_empty_or_switched_off_or_has_its_package_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {_ENDPOINT: "http://collector:4318", "OPENLINEAGE_URL": "http://m:5000"}
    assert list(unread_variables(environment)) == []
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    assert [variable for variable, _ in unread_variables(environment)] == [_ENDPOINT, "OPENLINEAGE_URL"]
    off = {"OTEL_SDK_DISABLED": "TRUE", "OPENLINEAGE_DISABLED": " true "}
    assert list(unread_variables({**environment, **off})) == []
    assert list(unread_variables({_ENDPOINT: "", "PATH": "/bin"})) == []
