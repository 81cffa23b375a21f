"""Everything that is shown of a table about which everything is known: `status_promises.json` has it key by key, as scripts,
dashboards and alerts rely on it.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from frazil.catalog.layout import Layout
from frazil.catalog.port import TableSize
from frazil.errors import UnavailableError
from frazil.ingest.loop.leadership import LeadershipState, Member
from frazil.ingest.loop.published_offsets import Published
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.kafka.port import TopicDescription
from frazil.maintenance.due import RoundsStatus
from frazil.ops.pipeline_status import (
    MaintenanceReport,
    Observations,
    PipelineReport,
    ProcessState,
    VerificationReport,
    as_document,
    ended_document,
    status_of,
)
from frazil.ops.seen_by_readers import FailedAudit, PublishReport
from frazil.ops.state_file import StateFile
from frazil.ops.status import report_running
from frazil.spec import TableSpec, TopicSelector
from frazil.spec.partitioning import parse_sort, parse_term
from frazil.stages.expect_settings import ExpectationSpec
from frazil.types import Commit, OffsetRange, OrderProgress, Resolved, RestProgress, Totals
from frazil_testing.twins import FakeClock
from tests.needs import has_package, needs
from tests.unit.ops.test_status import NOW_MS, Scene, text_of

if has_package("http"):
    from frazil_http.metrics import TABLE, value_of

if has_package("console"):
    from frazil_console.figures import LastHour, cells_of, figures_of

PROMISES = Path(__file__).with_name("status_promises.json")


def known_table(scene: Scene) -> Table:
    """A table of a running process, which knows everything that there is to know."""
    scene.catalog.arrange("s.a", Layout((parse_term("bucket(id, 4)"),), (parse_sort("id desc"),)))
    before = scene.catalog.load("s.a")
    assert before is not None
    progress = replace(
        before.progress,
        commit_id="d",
        totals=Totals(1, {"heartbeat": 1200, "delete": 2}, {"positive": 1200, "fresh": 0}),
        rest=RestProgress(records={"limit": 3}),
        order=OrderProgress(windows_complete_to_us=999990000000),
        committed_at_ms=NOW_MS - 4000,
    )
    scene.catalog.commit(Commit("s.a", (), progress, before.progress))
    expected = (ExpectationSpec(name="positive", that="n > 0"), ExpectationSpec(name="fresh", max_age_s=4))
    table = Table(TableSpec(name="s.a", topics=(TopicSelector(literal="a"),), expect=expected, branch="ingest"))
    table.state = scene.catalog.load("s.a")
    assert table.state is not None
    table.state = replace(table.state, progress=progress)
    table.status.set(RunState.BACKING_OFF, UnavailableError("the catalog: refused", remedy="wait", where="http://c"))
    table.offsets.topics = {"a": TopicDescription("a", "id", 1)}
    table.offsets.set_lag(0, 0)
    table.offsets.set_lag(30, NOW_MS - 4500, (OffsetRange("a", 0, 20, 40),))
    table.offsets.skipped_offsets = 50
    table.sizes.freshness_ms, table.sizes.records_per_s = 900, 12.34
    table.schema.dropped = frozenset({"user", "age"})
    table.schema.refusals = frozenset({"schema 9: column y: int is not widened to long", "column x: no"})
    table.catalog.size, table.catalog.dead_letter_count = TableSize(120, 7, 3000, 6, 20), 2
    table.catalog.waiting_count = 1
    table.changes.resolved = Resolved(9, 8, 7, 6, 5, 4, 3, 2)
    return table


@dataclass(frozen=True)
class Known:
    """The table, and what a running process reports of it."""

    table: Table
    file: StateFile
    state: ProcessState
    report: PipelineReport


@pytest.fixture
def known(tmp_path: Path) -> Known:
    table = known_table(Scene(tmp_path))
    file = StateFile(tmp_path, "p", FakeClock(NOW_MS), str, "jdbc:sqlite:x")
    members = (Member("one", "1", 5, is_warm=True), Member("two", "2", 6, is_warm=False))
    assert table.state is not None
    publishing = PublishReport(
        "ingest", "held", "`ids` does not hold", "correct it", (FailedAudit("ids", "the query returns false", ("{}",)),),
        table.state.main_id, NOW_MS - 9500, NOW_MS - 9700, 7, NOW_MS - 500,
    )  # fmt: skip
    file.write(
        [table],
        leadership=LeadershipState("kafka", "spread", "one", members, "one", 7, "first", {"s.a": "one"}),
        offsets=Published("frazil-p", NOW_MS - 700, "refused"),
        observed=Observations(
            {"s.a": RoundsStatus(NOW_MS - 9000, "no room", 4.0)},
            {
                "verification": {"s.a": VerificationReport(NOW_MS - 8000, 3, 30, 2, 1, False, "expired")},
                "publishing": {"s.a": publishing},
            },
        ),
    )
    assert file.state is not None
    health = MaintenanceReport(1, 0.25, 3, 4, 5, 6, NOW_MS - 9000, ("compact: x",), ("y",), ("z",), "no room", 4.0)
    return Known(table, file, file.state, report_running("p", [table], file.state, {"s.a": health}, NOW_MS))


def promised(*names: str) -> dict[str, Any]:
    """What is promised of these places."""
    promises = json.loads(PROMISES.read_text())
    return {name: promises[name] for name in names}


def test_what_is_known_of_a_table_is_shown_as_it_was_promised(known: Known) -> None:
    shown = {
        "frazil status": as_document(known.report),
        "frazil run": ended_document(status_of(known.table)),
        "state file": json.loads(known.file.path.read_text()),
        "text": text_of(known.report, 150).splitlines(),
    }
    assert json.loads(frozen(shown)) == promised(*shown)


@needs("http")
def test_metrics_of_a_table_are_as_they_were_promised(known: Known) -> None:
    shown = {"metrics": {one.name: value_of(one, known.report.tables[0], known.table) for one in TABLE}}
    assert json.loads(json.dumps(shown)) == promised("metrics")


@needs("console")
def test_the_console_shows_of_a_table_what_was_promised(known: Known) -> None:
    figures = figures_of(known.state.table("s.a"), LastHour(2.5, 7.0, Markup("")), NOW_MS)
    assert json.loads(json.dumps({"console": cells_of(figures, NOW_MS)})) == promised("console")


def frozen(shown: dict[str, Any]) -> str:
    """What is shown as JSON, without what differs from machine to machine, and without the order of keys."""
    for process in (shown["frazil status"]["process"], shown["state file"]):
        process |= {"pid": 1, "host": "h"}
    del shown["state file"]["started"]
    text = json.dumps(shown, indent=1, sort_keys=True, ensure_ascii=False)
    return text.replace(f"pid {os.getpid()} on {socket.gethostname()}", "pid 1 on h")
