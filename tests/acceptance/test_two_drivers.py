"""Two processes of one pipeline: one goes on, the other is refused by the table and leaves with exit code 3."""

from __future__ import annotations

import pytest

from tests.acceptance.pipelines import Pipeline
from tests.acceptance.scenes import FENCED, Contested

pytestmark = pytest.mark.timeout(900)

STEPS = ("job.before", "task.write", "job.after", "commit.before", "commit.validating")
IN_TIME = ("task.write", "commit.validating")


@pytest.fixture
def contested(pipeline: Pipeline) -> Contested:
    """Records wait, nothing runs yet."""
    return Contested(pipeline)


@pytest.mark.parametrize("step", [pytest.param(s, marks=[] if s in IN_TIME else [pytest.mark.soak]) for s in STEPS])
def test_a_driver_that_was_frozen_is_refused_when_another_has_gone_on(contested: Contested, step: str) -> None:
    contested.freeze_beside_another(step)


def test_a_driver_that_slept_between_batches_is_refused_at_its_next_one(contested: Contested) -> None:
    pipeline = contested.pipeline
    first = pipeline.run()
    pipeline.wait_for_commit_of(contested.table, first)
    with first.frozen():
        second = pipeline.run()
        contested.produce()
        pipeline.wait_for_commit_of(contested.table, second)
    contested.feed_until_ended(first, second)
    assert first.wait() == FENCED, first.tail()
    contested.end(second)


def test_of_two_drivers_started_together_one_goes_on(contested: Contested) -> None:
    runs = [contested.pipeline.run(), contested.pipeline.run()]
    contested.feed_until_ended(*runs)
    [loser] = [run for run in runs if not run.is_running]
    [winner] = [run for run in runs if run.is_running]
    assert loser.wait() == FENCED, loser.tail()
    contested.end(winner)
