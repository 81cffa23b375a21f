"""`frazil topic set` and `unset`: each change is in the audit log before it is in the control topic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from frazil.cli.main import main
from frazil_migrate import topic_commands

_ENABLE, _NAMESPACE = "automq.table.topic.enable", "automq.table.topic.namespace"


class ControlTopicInMemory:
    """The keys of topics; each write notes how many changes the audit log had by then."""

    def __init__(self, audit: Path) -> None:
        self.keys: dict[str, dict[str, str]] = {}
        self.recorded_before: list[int] = []
        self._audit = audit

    def read(self, *, is_there: bool) -> dict[str, dict[str, str]]:
        assert not is_there
        return self.keys

    def write(self, topic: str, keys: Mapping[str, str]) -> None:
        self.recorded_before.append(len(self._audit.read_text().splitlines()))
        self.keys[topic] = dict(keys)


def test_keys_that_are_set_and_unset_are_recorded_before_they_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("frazil.yaml").write_text(
        "pipeline: shop\nkafka: {bootstrap.servers: 'x:1', topics_from: topic_configuration}\n"
    )
    audit = Path("frazil-data/state/shop.audit.jsonl")
    control = ControlTopicInMemory(audit)
    monkeypatch.setattr(topic_commands, "_control_topic", lambda _spec: control)
    assert main(["topic", "set", "orders", f"{_ENABLE}=true", f"{_NAMESPACE}=lake"]) == 0
    assert main(["topic", "unset", "orders", _NAMESPACE]) == 0
    assert main(["topic", "unset", "orders", "no.such.key"]) == 2
    changes: list[dict[str, Any]] = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(change["operation"], change["arguments"]) for change in changes] == [
        ("topic set", {"topic": "orders", "keys": {_ENABLE: "true", _NAMESPACE: "lake"}}),
        ("topic unset", {"topic": "orders", "keys": [_NAMESPACE]}),
    ]
    assert (control.keys, control.recorded_before) == ({"orders": {_ENABLE: "true"}}, [1, 2])
