"""Table maintenance on real parts: beside a running pipeline, alone from the command line, on a full disk, with other
writers in the same table. Whatever happens to it, no row is lost or doubled and no live file is removed. In time: each
action, and what others do meanwhile, in integration/test_maintenance.py; beside ingestion in test_upsert_maintenance.py.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from frazil.clock import SystemClock
from tests.acceptance.ledger import events
from tests.acceptance.operator import Operator
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.running import Run
from tests.acceptance.verifier import data_files

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]

EAGER = {"min_input_files": 5, "snapshots": {"count": 4}}
TOO_SMALL_BYTES = 4096


def commit_some(pipeline: Pipeline, table: str, topic: str, run: Run, count: int) -> None:
    """So many commits, of one file each."""
    for number in range(count):
        pipeline.feed.produce(topic, events(50, number * 50))
        pipeline.wait_for_commit_of(table, run)


def files_of(pipeline: Pipeline) -> set[Path]:
    """All that lies in the warehouse."""
    return {path for path in pipeline.folder.rglob("*") if "warehouse" in path.parts}


def test_a_running_pipeline_maintains_its_tables_beside_other_writers(pipeline: Pipeline, operator: Operator) -> None:
    pipeline.document["maintenance"] = EAGER
    table, topic = pipeline.add_fed_table("maintained")
    with pipeline.running() as run:
        commit_some(pipeline, table, topic, run, 6)
        run.wait_for("maintenance_done", action="compact", table=table)
        run.wait_for("maintenance_done", action="expire", table=table)
        other = operator.open(pipeline.folder, table)
        other.append_nothing()
        commit_some(pipeline, table, topic, run, 3)
        other.expire_all_but_newest()
        commit_some(pipeline, table, topic, run, 8)
        done = run.wait_for("maintenance_done", action="compact", table=table, count=2)
        done_ms = datetime.fromisoformat(done["timestamp"]).timestamp() * 1000
        run.wait_while_running(
            lambda: pipeline.state(table)["maintenance"]["last_ms"] >= done_ms,
            "that round has ended: the next one is far away",
        )
        with run.small_files_only(TOO_SMALL_BYTES):
            pipeline.feed.produce(topic, events(50, 0))
            run.wait_for("table_backing_off", table=table)
        pipeline.wait_for_commit_of(table, run)
        run.wait_while_running(
            lambda: pipeline.state(table)["maintenance"]["failure"] == "",
            "maintenance has nothing to complain of any more",
        )
        assert run.stop() == 0, run.tail()
        assert not run.seen("table_stopped")
        assert not run.seen("unexpected_error")
    pipeline.check(table)
    reported = pipeline.command("status")["tables"][table]["maintenance"]
    assert reported["last_ms"] is not None
    assert reported["failure"] == ""


def test_a_round_by_hand_does_what_its_plan_reports(pipeline: Pipeline, operator: Operator) -> None:
    table, topic = pipeline.add_fed_table("byhand", maintenance={**EAGER, "snapshots": {"count": 2}})
    with pipeline.running() as run:
        commit_some(pipeline, table, topic, run, 6)
        assert run.stop() == 0
    before, files = pipeline.current(table), files_of(pipeline)
    assert files
    planned = pipeline.command("maintain", "--dry-run")["tables"][table]
    assert (pipeline.current(table), files_of(pipeline)) == (before, files), "a dry run changes nothing"
    assert [action["action"] for action in planned["actions"]][:3] == ["compact", "carry", "expire"]
    assert all(action["reason"] and action["gain"] for action in planned["actions"])
    began_ms = SystemClock().now_ms()
    done = pipeline.command("maintain")["tables"][table]
    assert [action["failure"] for action in done["actions"]] == [""] * len(done["actions"])
    metadata = pipeline.metadata(table)
    assert metadata is not None
    assert len(data_files(metadata)) == 1
    operator.open(pipeline.folder, table).expire_all_but_newest()
    pipeline.feed.produce(topic, events(50, 0))
    pipeline.catch_up()
    pipeline.check(table)
    last_ms = pipeline.command("status")["tables"][table]["maintenance"]["last_ms"]
    assert last_ms >= began_ms, "also when the snapshots of that round are gone"
