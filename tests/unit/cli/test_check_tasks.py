"""`frazil check` connects as tasks do, too."""

from __future__ import annotations

from pathlib import Path

from frazil.api.check import check_tasks
from frazil.spec.load import load_spec


def test_a_broker_that_tasks_cannot_connect_to_is_named(tmp_path: Path) -> None:
    file = tmp_path / "frazil.yaml"
    file.write_text('pipeline: p\nkafka: {bootstrap.servers: "127.0.0.1:1"}\ntables: {n.t: {topic: t}}\n')
    (found,) = check_tasks(load_spec(file))
    assert not found.is_ok
    assert found.tried == "connected and logged in as tasks do"
    assert found.found.startswith("the broker cannot be connected to: 127.0.0.1: Connection refused")
    assert found.where == "broker 127.0.0.1:1"
