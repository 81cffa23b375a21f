"""Two processes of one pipeline: one continues, the other is refused by the table and leaves with exit code 3. In time: one
that is asleep in the middle of a commit in test_lost_answers.py; of two that found no table one continues in
unit/ingest/test_fenced_service.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.pipelines import Pipeline
from tests.acceptance.scenes import FENCED, Contested

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STEPS = ("job.before", "task.write", "job.after", "commit.before", "commit.validating")
NOT_ONLY_SOAKED = ("commit.validating",)


@pytest.fixture(scope="module")
def contested(shared_pipeline: Pipeline) -> Iterator[Contested]:
    """Of two the one that continues is the one that the next test strikes."""
    made = Contested(shared_pipeline)
    made.start_two()
    yield made
    made.end()


@pytest.mark.parametrize(
    "step", [pytest.param(s, marks=[] if s in NOT_ONLY_SOAKED else [pytest.mark.soak]) for s in STEPS]
)
def test_a_driver_that_was_frozen_is_refused_when_another_has_continued(contested: Contested, step: str) -> None:
    contested.freeze_while_another_runs(step)


def test_a_driver_that_slept_between_batches_is_refused_at_its_next_one(contested: Contested) -> None:
    first = contested.run()
    with first.frozen():
        second = contested.start()
        contested.produce()
        contested.pipeline.wait_for_commit_of(contested.table, second)
    contested.feed_until_ended(first, second)
    assert first.wait() == FENCED, first.tail()
    contested.resume(second)


def test_of_two_drivers_started_together_one_continues(contested: Contested) -> None:
    contested.check_refused()
