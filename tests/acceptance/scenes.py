"""Pipelines in trouble: killed at a step, run by two drivers, unsure of a commit. The tests on a local lake and those on a
remote one play the same scenes.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.points import Points, wait_until_gone
from tests.acceptance.proxy import Fault, Proxy
from tests.acceptance.running import Run
from tests.acceptance.verifier import document_of, newest_snapshot
from tests.fixtures.waiting import PATIENCE_S, wait_until

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
LOST_AT = ("commit.before", "commit.landed")
"""Steps at which the connection to the catalog can break."""
FENCED = 3

Victims = Callable[[Run], list[int]]
VICTIMS: dict[str, Victims] = {
    "python": lambda run: [run.pid],
    "jvm": lambda run: [run.jvm_pid],
    "both": lambda run: [run.pid, run.jvm_pid],
}


class Struck:
    """A pipeline that is started again after every blow."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Records wait, nothing runs yet."""
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
        self.produce(self.topic)

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

    def kill_driver(self, step: str, who: str) -> None:
        """SIGKILL at a step: what is left is whole, and the next run completes it."""
        run = self.run()
        point = self.points[step, "hold"]
        table, topic = self._concerned(step, who)
        before = self.pipeline.progress(table)
        with point.armed():
            self._provoke(step, topic)
            point.wait(run)
            run.kill(*VICTIMS[who](run))
            if who != "jvm":
                # Nobody lets the step go on: what is left of the driver has to notice by itself.
                wait_until_gone(run)
        assert run.wait() == (1 if who == "jvm" else -signal.SIGKILL)
        if who == "jvm":
            assert "the JVM has ended" in run.result()["error"]["message"]
        wait_until_gone(run)
        if self.pipeline.current(table) is not None:
            assert self.pipeline.verify(table).problems == []
        is_landed = self.pipeline.progress(table) != before
        assert is_landed == (step in LANDED)
        assert step in BATCH_STEPS or self._is_cut_short_at(step, table)
        self.pipeline.wait_for_commit_of(table, self.run())
        self.pipeline.check(table)

    def _concerned(self, step: str, who: str) -> tuple[str, str]:
        """The table that the step is about, and its topic."""
        return self.unborn[step, who] if step in BIRTHS else (self.table, self.topic)

    def _provoke(self, step: str, topic: str) -> None:
        """Makes the running pipeline come to the step."""
        self.fields += step in GROWTHS
        self.produce(topic)

    def _is_cut_short_at(self, step: str, table: str) -> bool:
        """Whether a table that was to be made is missing, or empty, and one that was to grow lacks its new column, or has it
        already.
        """
        metadata = self.pipeline.current(table)
        if metadata is None:
            return step == "create.before"
        document = document_of(metadata)
        if step in BIRTHS:
            return step == "create.landed" and newest_snapshot(document) is None
        (schema,) = (one for one in document["schemas"] if one["schema-id"] == document["current-schema-id"])
        has_column = f"field{self.fields - 1}" in {field["name"] for field in schema["fields"]}
        return has_column == (step == "evolve.landed")


class Contested:
    """A pipeline that is run by more than one."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Records wait, nothing runs yet."""
        self.pipeline = pipeline
        self.table, self.topic = pipeline.add_fed_table("contested")
        self.records = 0
        self.produce()

    def produce(self, count: int = 200) -> None:
        """Some more records."""
        self.pipeline.feed.produce(self.topic, events(count, self.records))
        self.records += count

    def freeze_beside_another(self, step: str, for_s: float = 0.0) -> None:
        """A run is frozen at a step, for so long at least, and another goes on: the first is refused when it wakes."""
        with self._frozen_at(step, for_s) as first:
            second = self.pipeline.run()
            self.produce()
            self.pipeline.wait_for_commit_of(self.table, second)
        assert first.wait() == FENCED, first.tail()
        self.end(second)
        error = first.result()["error"]
        assert "a later run" in error["message"]
        assert error["remedy"]

    def freeze_alone(self, step: str, for_s: float = 0.0) -> None:
        """A run is frozen at a step, for so long at least, and nobody else goes on: it does itself when it wakes."""
        with self._frozen_at(step, for_s) as run:
            self.produce()
        self.end(run)

    def end(self, run: Run) -> None:
        """More records arrive in this run, which then stops; all is there once."""
        self.produce()
        self.pipeline.wait_for_commit_of(self.table, run)
        assert run.stop() == 0, run.tail()
        self.pipeline.check(self.table)

    @contextmanager
    def _frozen_at(self, step: str, for_s: float) -> Iterator[Run]:
        """SIGSTOP for a run with a batch at this step. It goes on in the middle of that, sure that nothing has happened."""
        points = Points(self.pipeline.folder / "points", (step, "hold"))
        point = points[step, "hold"]
        run = self.pipeline.run(failpoints=points.declaration)
        self.pipeline.wait_for_commit_of(self.table, run)
        with point.armed():
            self.produce()
            point.wait(run)
            with run.frozen(for_s):
                point.disarm()
                yield run

    def feed_until_ended(self, *runs: Run) -> None:
        """Batch after batch for whoever is there, until a run has ended."""
        wait_until(lambda: self._has_ended(*runs), "one of the runs has ended")

    def _has_ended(self, *runs: Run) -> bool:
        if any(not run.is_running for run in runs):
            return True
        self.produce(20)
        self.pipeline.wait_for_commit_of(self.table)
        return False


class Unsure:
    """A running pipeline whose commits can lose their answers."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Nothing runs yet."""
        self.pipeline = pipeline
        self.points = Points(pipeline.folder / "points", *((step, "reset") for step in LOST_AT))
        self.table, self.topic = pipeline.add_fed_table("unsure")
        self.records = 0
        self._run: Run | None = None

    def produce(self, count: int = 200) -> None:
        """Some more records."""
        self.pipeline.feed.produce(self.topic, events(count, self.records))
        self.records += count

    def run(self) -> Run:
        """The running pipeline, all that was there committed."""
        if self._run is None or not self._run.is_running:
            self.produce()
            self._run = self.pipeline.run(failpoints=self.points.declaration)
        self.pipeline.wait_for_commit_of(self.table, self._run)
        return self._run

    def lose_answer(self, proxy: Proxy, fault: Fault, times: int = 1) -> None:
        """Commits to a catalog behind the proxy get no answer, so many in turn; then all is cleared up."""
        self.run()
        with proxy.faulty(fault, times):
            self.produce()
            proxy.wait_until_struck(PATIENCE_S)
            self.pipeline.wait_for_commit_of(self.table, self.run())
        self.check()

    def check(self) -> None:
        """More records arrive, and all is there once."""
        self.produce()
        self.pipeline.wait_for_commit_of(self.table, self.run())
        self.pipeline.check(self.table)
        assert not self.run().seen("table_stopped")
