"""Two processes of one pipeline: one continues, the other is refused by the table and leaves with exit code 3."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.pipelines import Pipeline
from tests.acceptance.running import Run
from tests.acceptance.scenes import FENCED, Contested

pytestmark = pytest.mark.timeout(900)

STEPS = ("job.before", "task.write", "job.after", "commit.before", "commit.validating")
IN_TIME = ("commit.validating",)
"""When there is little time."""


@pytest.fixture(scope="module")
def pair(shared_pipeline: Pipeline) -> tuple[Contested, dict[bool, Run]]:
    """Two drivers that were started together and found no table, by whether they run when one of them has ended."""
    made = Contested(shared_pipeline)
    runs = [made.start(), made.start()]
    made.feed_until_ended(*runs)
    return made, {run.is_running: run for run in runs}


@pytest.fixture(scope="module")
def contested(pair: tuple[Contested, dict[bool, Run]]) -> Iterator[Contested]:
    """The one that continues is the one that the next test strikes."""
    made, runs = pair
    made.resume(runs[True])
    yield made
    made.end()


@pytest.mark.parametrize("step", [pytest.param(s, marks=[] if s in IN_TIME else [pytest.mark.soak]) for s in STEPS])
def test_a_driver_that_was_frozen_is_refused_when_another_has_continued(contested: Contested, step: str) -> None:
    contested.freeze_while_another_runs(step)


@pytest.mark.slow  # In time: asleep in the middle of a commit, above.
def test_a_driver_that_slept_between_batches_is_refused_at_its_next_one(contested: Contested) -> None:
    first = contested.run()
    with first.frozen():
        second = contested.start()
        contested.produce()
        contested.pipeline.wait_for_commit_of(contested.table, second)
    contested.feed_until_ended(first, second)
    assert first.wait() == FENCED, first.tail()
    contested.resume(second)


def test_of_two_drivers_started_together_one_continues(
    pair: tuple[Contested, dict[bool, Run]],
    contested: Contested,  # noqa: ARG001  (the other has continued)
) -> None:
    loser = pair[1][False]
    assert loser.wait() == FENCED, loser.tail()
