"""Table care of tables that mirror a topic of changes, beside the ingestion that takes rows from the very files that care
rewrites. Both are killed; what a dictionary says is what the tables hold, at every snapshot.
"""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest

from tests.acceptance.pipelines import Pipeline
from tests.acceptance.running import Run
from tests.acceptance.upsert_tables import Mirror
from tests.acceptance.verifier import unnamed

pytestmark = pytest.mark.timeout(900)

EAGER = {"min_input_files": 4, "snapshots": {"count": 10}}


def load(run: Run, mirrors: list[Mirror], times: int) -> None:
    """Changes, a batch after the other, while the run lives."""
    for _ in range(times):
        with suppress(AssertionError):  # It may die meanwhile.
            for mirror in mirrors:
                mirror.change(count=40)
            for mirror in mirrors:
                mirror.wait(run)
        if not run.is_running:
            return


def test_mirrors_are_cared_for_under_load_whatever_is_killed(pipeline: Pipeline) -> None:
    pipeline.document["maintenance"] = EAGER
    mirrors = [
        Mirror(pipeline, "two", format_version=2, partition_by=["bucket(id, 2)"]),
        Mirror(pipeline, "three", partition_by=["truncate(id, 100)"]),
    ]
    with pipeline.running(failpoints="care.compact.written=kill") as run:
        load(run, mirrors, times=500)
        assert run.wait() == -signal.SIGKILL, "in care"
    with pipeline.running(failpoints="upsert.resolved=kill@7") as run:
        load(run, mirrors, times=500)
        assert run.wait() == -signal.SIGKILL, "in ingestion"
    for mirror in mirrors:
        mirror.check()
    with pipeline.running() as run:
        load(run, mirrors, times=6)
        for mirror in mirrors:
            run.wait_for("care_done", action="compact", table=mirror.table, lost=0)
        load(run, mirrors, times=3)
        assert run.stop() == 0, run.tail()
        assert not run.seen("table_stopped")
        assert not run.seen("unexpected")
    pipeline.document["maintenance"] = {**EAGER, "orphans": {"age": "1ms"}}
    pipeline.command("maintain")
    for mirror in mirrors:
        mirror.check_all()
        assert unnamed(pipeline.metadata(mirror.table)) == frozenset()
