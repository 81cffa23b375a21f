"""SIGKILL at every step of a batch: of the driver's Python, of its JVM, of both, and of a Python worker.

Each test strikes a running pipeline while a step is held, checks what is left in the table, starts the pipeline again
and checks that all arrived. The pipeline that was started again is the one that the next test strikes.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from pyiceberg.table import StaticTable

from docs.meanings import FAILPOINTS
from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.points import Points, wait_until_gone
from tests.acceptance.running import Run, ancestor

pytestmark = pytest.mark.timeout(900)

BATCH_STEPS = (
    "job.before",
    "task.batch",
    "task.write",
    "task.close",
    "job.after",
    "commit.before",
    "commit.validating",
    "commit.landed",
    "commit.after",
)
GROWTHS = ("evolve.before", "evolve.landed")
BIRTHS = ("create.before", "create.landed")
STEPS = BATCH_STEPS + GROWTHS + BIRTHS
LANDED = ("commit.landed", "commit.after")
"""Steps at which the batch is in the table already."""
IN_TIME = (("task.write", "jvm"), ("commit.validating", "jvm"), ("commit.validating", "python"))
"""Where the two halves of a driver are killed one without the other, also when there is little time. Both at a time are
killed at every step."""

Victims = Callable[[Run], list[int]]
VICTIMS: dict[str, Victims] = {
    "python": lambda run: [run.pid],
    "jvm": lambda run: [run.jvm_pid],
    "both": lambda run: [run.pid, run.jvm_pid],
}
CASES = [
    pytest.param(
        step, who, marks=[] if who == "both" or (step, who) in IN_TIME else [pytest.mark.soak], id=f"{step}-{who}"
    )
    for step in STEPS
    for who in VICTIMS
]


class Struck:
    """A pipeline that is started again after every blow."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.points = Points(pipeline.folder / "points", *((step, "hold") for step in STEPS))
        self.table, self.topic = pipeline.add_fed_table("struck")
        self.unborn = {
            (step, who): pipeline.add_fed_table(f"{step.replace('.', '_')}_{who}", 1)
            for step in BIRTHS
            for who in VICTIMS
        }
        self.records = 0
        self.fields = 0
        self._run: Run | None = None

    def produce(self, topic: str) -> None:
        """Some more records."""
        more = {f"field{number}": number for number in range(self.fields)}
        self.pipeline.feed.produce(topic, events(300, self.records, **more))
        self.records += 300

    def run(self) -> Run:
        """The running pipeline, all that was there committed and no batch at any step."""
        if self._run is None or not self._run.is_running:
            self._run = self.pipeline.run(failpoints=self.points.declaration)
        self.pipeline.wait_until_settled(self.table, self._run)
        return self._run

    def concerned(self, step: str, who: str) -> tuple[str, str]:
        """The table that the step is about, and its topic."""
        return self.unborn[step, who] if step in BIRTHS else (self.table, self.topic)

    def provoke(self, step: str, topic: str) -> None:
        """Makes the running pipeline come to the step."""
        self.fields += step in GROWTHS
        self.produce(topic)

    def is_cut_short_at(self, step: str, table: str) -> bool:
        """Whether a table that was to be made is missing, or empty, and one that was to grow lacks its new column, or has it
        without a value.
        """
        metadata = self.pipeline.metadata(table)
        if metadata is None:
            return step == "create.before"
        rows = StaticTable.from_metadata(f"file://{metadata}").scan().to_arrow()
        if step in BIRTHS:
            return step == "create.landed" and len(rows) == 0
        name = f"field{self.fields - 1}"
        if name not in rows.column_names:
            return step == "evolve.before"
        return step == "evolve.landed" and rows[name].null_count == len(rows) > 0


@pytest.fixture(scope="module")
def struck(shared_pipeline: Pipeline) -> Struck:
    """Records wait, nothing runs yet."""
    made = Struck(shared_pipeline)
    made.produce(made.topic)
    return made


@pytest.mark.parametrize(("step", "who"), CASES)
def test_a_driver_killed_at_any_step_loses_and_doubles_nothing(struck: Struck, step: str, who: str) -> None:
    run = struck.run()
    point = struck.points[step, "hold"]
    table, topic = struck.concerned(step, who)
    before = struck.pipeline.progress(table)
    with point.armed():
        struck.provoke(step, topic)
        point.wait(run)
        run.kill(*VICTIMS[who](run))
        if who != "jvm":
            # Nobody lets the step go on: what is left of the driver has to notice by itself.
            wait_until_gone(run)
    assert run.wait() == (1 if who == "jvm" else -signal.SIGKILL)
    if who == "jvm":
        assert "the JVM has ended" in run.result()["error"]["message"]
    wait_until_gone(run)
    if struck.pipeline.metadata(table) is not None:
        assert struck.pipeline.verify(table).problems == []
    is_landed = struck.pipeline.progress(table) != before
    assert is_landed == (step in LANDED)
    assert step in BATCH_STEPS or struck.is_cut_short_at(step, table)
    run = struck.run()
    struck.pipeline.wait_for_commit_of(table, run)
    struck.pipeline.check(table)


def test_no_step_of_a_batch_is_left_out() -> None:
    kinds = {step.partition(".")[0] for step in STEPS}
    assert sorted(STEPS) == sorted(step for step in FAILPOINTS if step.partition(".")[0] in kinds)


@pytest.mark.parametrize("step", ["task.batch", "task.write", "task.close"])
def test_a_python_worker_killed_in_a_task_costs_nothing_but_time(struck: Struck, step: str) -> None:
    run = struck.run()
    point = struck.points[step, "hold"]
    with point.armed():
        struck.produce(struck.topic)
        worker = point.wait(run)
        assert worker != run.pid
        run.kill(worker)
    struck.pipeline.wait_for_commit_of(struck.table, run)
    struck.pipeline.check(struck.table)
    assert run.seen("table_backs_off", table=struck.table)


def test_a_killed_worker_daemon_costs_nothing_but_time(struck: Struck) -> None:
    run = struck.run()
    point = struck.points["task.write", "hold"]
    with point.armed():
        struck.produce(struck.topic)
        daemon = ancestor(point.wait(run), 1)
        assert daemon is not None
        run.kill(daemon)
    struck.pipeline.wait_for_commit_of(struck.table, run)
    struck.pipeline.check(struck.table)
