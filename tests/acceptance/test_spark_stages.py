"""SIGKILL between the two passes of a task whose query Spark computes in part: nothing is lost, and no file stays."""

from __future__ import annotations

import os

import pytest

from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.points import Points

pytestmark = pytest.mark.timeout(900)
SELECT = "select id, try_validate_utf8(text) as text, amount, even, `where`, tags from records"


def test_a_first_pass_that_is_killed_costs_time_and_leaves_its_files_to_the_next_one(pipeline: Pipeline) -> None:
    point = Points(pipeline.folder / "points", ("pass.write", "hold"))["pass.write", "hold"]
    table, topic = pipeline.add_fed_table("staged", 1, select=SELECT)
    pipeline.feed.produce(topic, events(60))

    def left() -> list[str]:
        return [str(folder) for folder in (pipeline.folder / "tmp").glob("frazil-records-*")]

    with pipeline.running(failpoints=point.declaration) as run:
        pipeline.wait_for_commit_of(table, run)
        assert left() == []
        with point.armed():
            pipeline.feed.produce(topic, events(60, 60))
            run.kill(point.wait(run))
        pipeline.wait_for_commit_of(table, run)
        assert run.seen("table_backing_off", table=table)
        (folder,) = left()
        os.utime(folder, (1, 1))
        pipeline.feed.produce(topic, events(60, 120))
        pipeline.wait_for_commit_of(table, run)
        assert left() == []
        assert run.stop() == 0, run.tail()
    pipeline.check(table)
