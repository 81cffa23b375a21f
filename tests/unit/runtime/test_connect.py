"""What the catalog is opened with."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.runtime.connect import catalog_properties
from frazil.spec import load_spec


@pytest.mark.parametrize(
    ("properties", "waits_ms"), [("{}", "60000"), ('{rest.client.socket-timeout-ms: "5000"}', "5000")]
)
def test_a_rest_catalog_that_says_nothing_is_given_up_after_a_minute_unless_the_file_says_when(
    tmp_path: Path, properties: str, waits_ms: str
) -> None:
    file = tmp_path / "frazil.yaml"
    file.write_text(
        'pipeline: p\nkafka: {bootstrap.servers: "x:1"}\ntables: {s.a: {topic: a}}\n'
        f"catalog: {{type: rest, uri: http://catalog, properties: {properties}}}\n"
    )
    assert catalog_properties(load_spec(file))["rest.client.socket-timeout-ms"] == waits_ms
