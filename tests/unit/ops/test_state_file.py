"""What a running process leaves for `frazil status`, whatever its secrets and whoever asks."""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from frazil.api.redaction import Redaction
from frazil.ingest.loop.leadership import Alone
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.ops.pipeline_status import ProcessState
from frazil.ops.state_file import StateFile, is_process_alive
from frazil.spec import TableSpec, TopicSelector
from frazil_testing.twins import FakeClock


@pytest.mark.parametrize("secret", ["2", "false", '"', "table", "stopped", "pid", 'a"b\\c'])
def test_no_secret_breaks_the_file_and_none_is_in_it(tmp_path: Path, secret: str) -> None:
    redaction = Redaction()
    redaction.hide([secret])
    table = Table(TableSpec(name="s.t2", topics=(TopicSelector(literal="t2"),)))
    table.status.run_state, table.status.reason, table.schema.dropped = (
        RunState.STOPPED,
        f"refused: <{secret}>",
        frozenset({"user.name"}),
    )
    file = StateFile(tmp_path, "p", FakeClock(), redaction.text)
    file.write([table])
    document = file.read()
    assert (document.pid, document.host, is_process_alive(document)) == (os.getpid(), socket.gethostname(), True)
    reported = document.tables["s.t2"]
    assert (reported.condition.state, reported.progress.bad_skipped) == ("stopped", 0)
    assert reported.condition.reason.endswith("<***>")
    assert f"<{secret}>" not in reported.condition.reason


def test_the_time_of_an_idle_pipeline_follows_a_clock_that_is_set_back(tmp_path: Path) -> None:
    clock = FakeClock()
    file = StateFile(tmp_path, "p", clock, str)
    file.write([])
    first_ms = file.read().updated_ms
    clock.sleep(-3600)
    file.write([])
    assert first_ms is not None
    assert file.read().updated_ms == first_ms - 3_600_000


def test_a_process_of_another_user_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, signal: int) -> None:
        raise PermissionError(pid, signal)

    monkeypatch.setattr("frazil.ops.state_file.os.kill", refuse)
    assert is_process_alive(ProcessState(1, socket.gethostname()))


def test_a_process_that_is_gone_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, signal: int) -> None:
        raise ProcessLookupError(pid, signal)

    monkeypatch.setattr("frazil.ops.state_file.os.kill", refuse)
    assert is_process_alive(ProcessState(1, socket.gethostname())) is False


def test_a_process_that_got_the_id_of_the_one_that_wrote_the_file_is_not_that_one(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state", "p", FakeClock(), str)
    file.write([])
    document = file.read()
    assert is_process_alive(document) is True
    assert is_process_alive(replace(document, started="12345")) is False
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file.path.parent, file.path)] == [0o700, 0o600]


def test_the_file_and_the_document_have_every_table_whichever_of_them_has_changed(tmp_path: Path) -> None:
    tables = [Table(TableSpec(name=name, topics=(TopicSelector(literal="t"),))) for name in ("s.t1", "s.t2")]
    file, lone = StateFile(tmp_path / "one", "p", FakeClock(), str), tables[0]
    file.write(tables)
    lone.offsets.lag_records = 7
    file.write(tables)
    whole = StateFile(tmp_path / "other", "p", FakeClock(), str)
    whole.write(tables)
    assert file.state == file.read() == whole.state
    assert {name: table.lag.lag_records for name, table in file.read().tables.items()} == {"s.t1": 7, "s.t2": None}
    file.write(tables[1:])
    assert set(file.read().tables) == {"s.t2"}


def test_a_standby_leaves_the_file_of_the_process_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = TableSpec(name="n.a", topics=(TopicSelector(literal="a"),))
    leader, standby = StateFile(tmp_path, "p", FakeClock(), str), StateFile(tmp_path, "p", FakeClock(), str)
    leader.write([Table(spec)])
    waiting = Table(spec)
    waiting.schedule.is_owned = False
    own = os.getpid()
    monkeypatch.setattr("frazil.ops.state_file.os.getpid", lambda: own + 1)
    monkeypatch.setattr("frazil.ops.state_file._is_the_same", lambda *_: True)
    standby.write([waiting], leadership=Alone("b", "1", 0).state)
    shown = standby.state
    assert shown is not None
    assert shown.leadership is not None
    assert (shown.table("n.a").condition.state, shown.leadership.leader) == ("standby", "b")
    assert leader.read().table("n.a").condition.state == "waiting"
    monkeypatch.setattr("frazil.ops.state_file.is_process_alive", lambda _: False)
    waiting.offsets.lag_records = 1
    standby.write([waiting])
    assert leader.read().tables["n.a"].condition.state == "standby", "the other process has ended"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '"x"', '{"a":' * 100_000, '{"host": "\\ud800"}', f'{{"pid": 1{"0" * 9999}}}']
)
def test_a_damaged_file_is_none(tmp_path: Path, text: str) -> None:
    file = StateFile(tmp_path, "p", FakeClock(), str)
    file.path.write_text(text)
    assert file.read() == ProcessState()


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    file = StateFile(tmp_path / "file", "p", FakeClock(), str)  # As on a disk that is read-only by now.
    file.write([])
    assert (file.state and file.state.pid, file.read()) == (os.getpid(), ProcessState())
