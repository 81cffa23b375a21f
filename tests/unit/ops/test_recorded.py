"""The state file of an older or newer version, or one that somebody has edited: `status` shows what it still tells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from functools import reduce
from pathlib import Path
from typing import Any

from frazil.ingest.failures import TableStopped
from frazil.ingest.loop.leadership import Alone, Member
from frazil.ingest.loop.published_offsets import Published
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.maintenance.due import RoundsStatus
from frazil.ops.pipeline_status import Observations, PipelineReport, ProcessState, VerificationReport, as_document
from frazil.ops.state_file import StateFile, read_state
from frazil.ops.status import report_pipeline
from frazil.spec import TableSpec, TopicSelector
from frazil.types import OffsetRange, Resolved
from frazil_testing.twins import FakeClock
from tests.unit.ops.test_status import NOW_MS, Broken, Scene, text_of

MAINTENANCE = RoundsStatus(1, "full", 1.0)
OTHERS = (None, "x", 2**64, [3], {"x": "y"})
NOT_THERE = object()


class Recorded:
    """The state file of a running process whose table is stopped, and what `status` makes of it without other services."""

    def __init__(self, directory: Path) -> None:
        self._scene = Scene(directory)
        self._scene.source.is_down = True
        self._file = StateFile(directory, "p", FakeClock(), str)
        table = Table(TableSpec(name="s.a", topics=(TopicSelector(literal="a"),)))
        table.status.set(RunState.STOPPED, TableStopped("why", "do", "there"))
        table.changes.resolved = Resolved(files=7)
        table.schema.dropped = frozenset({"user"})
        observed = Observations({"s.a": MAINTENANCE}, {"s.a": VerificationReport(5)})
        self._file.write([table], False, Alone("b", "1", 0).state, Published("g"), observed)
        self.state = self._file.state
        self.written = json.loads(self._file.path.read_text())

    def read(self, document: Any) -> ProcessState:
        self._file.path.write_text(json.dumps(document))
        return self._file.read()

    def report(self, document: Any) -> PipelineReport:
        return report_pipeline(self._scene.spec, self._scene.source, Broken(), self.read(document), NOW_MS)


def keys_of(value: Any, *outer: str) -> Iterator[tuple[str, ...]]:
    for key, held in value.items() if isinstance(value, dict) else ():
        yield (*outer, key)
        yield from keys_of(held, *outer, key)


def changed(document: Any, key: tuple[str, ...], value: Any) -> Any:
    found = deepcopy(document)
    held = reduce(lambda inner, name: inner[name], key[:-1], found)
    if value is NOT_THERE:
        del held[key[-1]]
    else:
        held[key[-1]] = value
    return found


def test_what_is_written_is_read_with_every_key(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    assert recorded.read(recorded.written) == recorded.state


def test_whatever_a_key_holds_status_shows_the_table_and_the_other_keys(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    keys = list(keys_of(recorded.written))
    assert {("pid",), ("tables", "s.a", "last_upsert", "files"), ("leadership", "members")} <= {*keys}
    for key in keys:
        for value in (NOT_THERE, *OTHERS):
            report = recorded.report(changed(recorded.written, key, value))
            json.dumps(as_document(report))
            if value is NOT_THERE:
                assert "pipeline p" in text_of(report)
            if not {"pid", "host", "started", "ended", "tables", "s.a", "reason"} & {*key}:
                assert [table.condition.reason for table in report.tables] == ["why"], (key, value)


def test_of_lists_and_counts_only_the_wrong_members_are_left_out() -> None:
    waiting, member = {"topic": "t", "partition": 0, "start": 1, "end": 2}, {"name": "m", "version": "1"}
    lags = {"open_transactions": [{}, waiting, 3, {**waiting, "end": "x"}], "ignored_records": {"x": -1, "y": 2}}
    known = {"elect": "kafka", "mode": "lead", "name": "m", "leader": None}
    members = [member, {**member, "started_at_ms": 5, "warm": True}]
    state = read_state({"tables": {"s.a": lags}, "leadership": {**known, "members": members}})
    table = state.table("s.a")
    assert (table.lag.open_transactions, table.progress.ignored_records) == ((OffsetRange("t", 0, 1, 2),), {"y": 2})
    assert state.leadership is not None
    assert state.leadership.members == (Member("m", "1", 5, is_warm=True),)
    assert read_state({"leadership": {"members": members}}).leadership is None
