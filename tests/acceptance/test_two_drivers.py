"""Two processes of one pipeline: one goes on, the other is refused by the table and leaves with exit code 3."""

from __future__ import annotations

import pytest

from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.points import Points
from tests.acceptance.running import Run
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.timeout(900)

FENCED = 3
STEPS = ("job.before", "task.write", "job.after", "commit.before", "commit.validating")
IN_TIME = ("task.write", "commit.validating")


class Contested:
    """A pipeline that is run by more than one."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.table, self.topic = pipeline.add_fed_table("contested")
        self.records = 0

    def produce(self, count: int = 200) -> None:
        """Some more records."""
        self.pipeline.feed.produce(self.topic, events(count, self.records))
        self.records += count


@pytest.fixture
def contested(pipeline: Pipeline) -> Contested:
    """Records wait, nothing runs yet."""
    made = Contested(pipeline)
    made.produce()
    return made


@pytest.mark.parametrize("step", [pytest.param(s, marks=[] if s in IN_TIME else [pytest.mark.soak]) for s in STEPS])
def test_a_driver_that_was_frozen_is_refused_when_another_has_gone_on(contested: Contested, step: str) -> None:
    pipeline = contested.pipeline
    points = Points(pipeline.folder / "points", (step, "hold"))
    point = points[step, "hold"]
    first = pipeline.run(failpoints=points.declaration)
    pipeline.wait_for_commit_of(contested.table, first)
    with point.armed():
        contested.produce()
        point.wait(first)
        with first.frozen():
            point.disarm()
            second = pipeline.run()
            contested.produce()
            pipeline.wait_for_commit_of(contested.table, second)
        # It goes on in the middle of what it was doing, sure that nothing has happened.
        assert first.wait() == FENCED, first.tail()
    contested.produce()
    pipeline.wait_for_commit_of(contested.table, second)
    assert second.stop() == 0, second.tail()
    pipeline.check(contested.table)
    error = first.result()["error"]
    assert "a later run" in error["message"]
    assert error["remedy"]


def test_a_driver_that_slept_between_batches_is_refused_at_its_next_one(contested: Contested) -> None:
    pipeline = contested.pipeline
    first = pipeline.run()
    pipeline.wait_for_commit_of(contested.table, first)
    with first.frozen():
        second = pipeline.run()
        contested.produce()
        pipeline.wait_for_commit_of(contested.table, second)
    wait_until(lambda: _feed_until_ended(contested, first, second), "the first has ended")
    assert first.wait() == FENCED, first.tail()
    pipeline.wait_for_commit_of(contested.table, second)
    assert second.stop() == 0, second.tail()
    pipeline.check(contested.table)


def test_of_two_drivers_started_together_one_goes_on(contested: Contested) -> None:
    pipeline = contested.pipeline
    runs = [pipeline.run(), pipeline.run()]
    wait_until(lambda: _feed_until_ended(contested, *runs), "one of the two has ended")
    [loser] = [run for run in runs if not run.is_running]
    [winner] = [run for run in runs if run.is_running]
    assert loser.wait() == FENCED, loser.tail()
    contested.produce()
    pipeline.wait_for_commit_of(contested.table, winner)
    assert winner.stop() == 0, winner.tail()
    pipeline.check(contested.table)


def _feed_until_ended(contested: Contested, *runs: Run) -> bool:
    """One more batch for whoever is there; whether a run has ended."""
    if any(not run.is_running for run in runs):
        return True
    contested.produce(20)
    contested.pipeline.wait_for_commit_of(contested.table)
    return False
