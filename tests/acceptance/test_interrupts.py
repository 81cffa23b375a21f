"""Ctrl-C asks for a drain; a second one ends the process at once, whatever is in hand."""

from __future__ import annotations

import os

import pytest

from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.points import Points, wait_until_gone

pytestmark = pytest.mark.timeout(900)

A_FEW_SECONDS = 60.0
"""On a machine that does other things too; a batch that is held would take for ever."""


def test_neither_a_second_interrupt_nor_a_stop_beyond_its_grace_waits_for_a_batch(pipeline: Pipeline) -> None:
    """What was in hand is read by the next run, exactly. Two runs: the second reads what the first had in hand."""
    table, topic = pipeline.add_fed_table("interrupted")
    pipeline.feed.produce(topic, events(200))
    points = Points(pipeline.folder / "points", ("task.write", "hold"))
    point = points["task.write", "hold"]
    with point.armed():
        run = pipeline.run(failpoints=points.declaration)
        point.wait(run)
        run.interrupt()
        run.wait_for("stopping", tables_in_flight=[table])
        run.interrupt()
        assert run.wait(A_FEW_SECONDS) == 130, run.tail()
        wait_until_gone(run)
    assert not run.seen("unexpected_error"), run.tail()
    assert pipeline.progress(table) == {}
    pipeline.feed.produce(topic, events(200, 200))
    left_behind = list((pipeline.folder / "tmp").iterdir())
    for left in left_behind:
        os.utime(left, (1, 1))  # A folder that is new may belong to a process that starts.
    run = pipeline.run("--grace", "2s", failpoints=points.declaration)
    pipeline.wait_until_settled(table, run)
    pipeline.check(table)
    assert [left for left in left_behind if left.exists()] == []
    before = pipeline.progress(table)
    with point.armed():
        pipeline.feed.produce(topic, events(200, 400))
        point.wait(run)
        assert run.stop(A_FEW_SECONDS) == 0, run.tail()
        assert run.seen("stopping", tables_in_flight=[table])
        assert run.seen("grace_period_exceeded", grace_s=2.0)
        wait_until_gone(run)
    assert not run.seen("unexpected_error"), run.tail()
    assert pipeline.progress(table) == before


@pytest.mark.slow  # In time: unit/cli/test_run.py.
def test_a_run_that_is_stopped_before_the_catalog_answers_prints_its_result(pipeline: Pipeline) -> None:
    pipeline.add_fed_table("unreached")
    pipeline.document["catalog"] = {"type": "rest", "uri": "http://127.0.0.1:1/"}
    run = pipeline.run()
    run.wait_for("service_unavailable")
    assert run.stop() == 0, run.tail()
    assert run.result() == {"tables": {}}


@pytest.mark.slow  # In time: a drain in test_loop.py.
def test_a_stop_waits_for_the_batch_in_hand_as_long_as_its_grace(pipeline: Pipeline) -> None:
    table, topic = pipeline.add_fed_table("graceful")
    pipeline.feed.produce(topic, events(200))
    points = Points(pipeline.folder / "points", ("task.write", "hold"))
    point = points["task.write", "hold"]
    with point.armed():
        run = pipeline.run("--grace", "10m", failpoints=points.declaration)
        point.wait(run)
        run.terminate()
        run.wait_for("stopping", tables_in_flight=[table])
    assert run.wait(A_FEW_SECONDS) == 0, run.tail()
    assert (len(run.seen("batch_committed")), run.seen("grace_period_exceeded")) == (1, []), run.tail()
    pipeline.check(table)
