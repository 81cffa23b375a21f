"""How many calls a commit makes to the JVM: each costs a tenth of a millisecond of a core, and pipelines commit all day."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.clientserver import ClientServerConnection

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.rehearsal import rehearse_commits
from frazil.runtime.jvm import Jvm

pytestmark = pytest.mark.jvm


def test_a_commit_makes_few_calls_and_its_size_none(jvm: Jvm, monkeypatch: pytest.MonkeyPatch) -> None:
    rehearse_commits(jvm.gateway)
    sent: list[str] = []
    send, commit = ClientServerConnection.send_command, IcebergCatalog.commit

    def send_counted(connection: Any, command: str) -> Any:
        sent.append(command)
        return send(connection, command)

    def commit_counted(catalog: IcebergCatalog, *arguments: Any) -> Any:
        sent.clear()
        progress = commit(catalog, *arguments)
        calls.append(len(sent))
        size = catalog.size("rehearsal.t")
        assert (size.row_count, size.file_count, size.snapshot_count) == (len(calls),) * 3
        assert len(sent) == calls[-1]
        return progress

    calls: list[int] = []
    monkeypatch.setattr(ClientServerConnection, "send_command", send_counted)
    monkeypatch.setattr(IcebergCatalog, "commit", commit_counted)
    rehearse_commits(jvm.gateway, count=3)
    assert max(calls[1:]) <= 32, "the first one looks methods up"
