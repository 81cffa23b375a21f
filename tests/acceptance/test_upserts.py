"""Tables that mirror a topic of changes, on real parts: SIGKILL at every step, two drivers, a foreign compaction between the
look at the table and the commit. What a dictionary says is what DuckDB, PyIceberg and Spark read.
"""

from __future__ import annotations

import signal

import pytest

from tests.acceptance.mirrors import Mirror
from tests.acceptance.operator import Operator
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.points import Points, wait_until_gone
from tests.acceptance.running import Run

pytestmark = pytest.mark.timeout(900)

STEPS = (
    "task.batch",
    "task.close",
    "job.after",
    "upsert.deletes",
    "upsert.resolved",
    "commit.before",
    "commit.validating",
    "commit.landed",
    "commit.after",
)
LANDED = ("commit.landed", "commit.after")
OF_FORMAT = "upsert.deletes"
"""Where what is written differs by the table's format. When there is little time, each format is struck there and at every
second one of the other steps.
"""
CASES = [
    pytest.param(step, version, marks=[] if step == OF_FORMAT or (number + version) % 2 else [pytest.mark.soak])
    for number, step in enumerate(STEPS)
    for version in (3, 2)
]
FENCED = 3


class Struck:
    """A pipeline with a mirror in each format, started again after every blow."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.points = Points(pipeline.folder / "points", *((step, "hold") for step in STEPS))
        self.mirrors = {2: Mirror(pipeline, "two", format_version=2), 3: Mirror(pipeline, "three")}
        self._run: Run | None = None

    def run(self) -> Run:
        """The running pipeline, all that was there committed."""
        for mirror in self.mirrors.values():
            mirror.change()
        if self._run is None or not self._run.is_running:
            self._run = self.pipeline.run(failpoints=self.points.declaration)
        for mirror in self.mirrors.values():
            mirror.wait(self._run)
            self.pipeline.wait_until_settled(mirror.table, self._run)
        return self._run


@pytest.fixture(scope="module")
def struck(shared_pipeline: Pipeline) -> Struck:
    """Nothing runs yet."""
    return Struck(shared_pipeline)


@pytest.mark.parametrize(("step", "version"), CASES)
def test_a_driver_killed_at_any_step_loses_and_doubles_nothing(struck: Struck, step: str, version: int) -> None:
    run, mirror = struck.run(), struck.mirrors[version]
    point = struck.points[step, "hold"]
    before = struck.pipeline.progress(mirror.table)
    with point.armed():
        mirror.change()
        point.wait(run)
        run.kill(run.pid, run.jvm_pid)
        wait_until_gone(run)
    assert run.wait() == -signal.SIGKILL
    mirror.check()
    is_landed = struck.pipeline.progress(mirror.table) != before
    assert is_landed == (step in LANDED)
    mirror.wait(struck.run())
    mirror.check_all()


def test_a_compaction_between_the_look_and_the_commit_makes_the_rows_be_looked_up_again(
    struck: Struck, operator: Operator
) -> None:
    run, mirror = struck.run(), struck.mirrors[3]
    point = struck.points["upsert.resolved", "hold"]
    keys = range(100_000, 100_200)  # Told for the first time: no row of theirs is in a file with deletes.
    mirror.put(keys)
    mirror.wait(run)
    struck.pipeline.wait_until_settled(mirror.table, run)
    with point.armed():
        mirror.put(keys)
        point.wait(run)
        assert operator.open(struck.pipeline.folder, mirror.table).rewrite_untouched_files() > 0
    mirror.wait(run)
    struck.pipeline.wait_until_settled(mirror.table, run)
    mirror.check_all()
    assert run.seen("rows_looked_up_again", table=mirror.table)
    assert not run.seen("conflict", table=mirror.table)


def test_two_drivers_of_one_mirror_make_one(pipeline: Pipeline) -> None:
    mirror = Mirror(pipeline, "contested")
    points = Points(pipeline.folder / "points", ("upsert.resolved", "hold"))
    point = points["upsert.resolved", "hold"]
    mirror.change()
    first = pipeline.run(failpoints=points.declaration)
    mirror.wait(first)
    with point.armed():
        mirror.change()
        point.wait(first)
        with first.frozen():
            point.disarm()
            second = pipeline.run()
            mirror.change()
            mirror.wait(second)
        assert first.wait() == FENCED, first.tail()
    mirror.change()
    mirror.wait(second)
    assert second.stop() == 0, second.tail()
    mirror.check_all()
