"""Pipelines in trouble: killed at a step, run by two drivers, unsure of a commit. The tests on a local lake and those on a
remote one play the same scenes.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.points import Points, wait_until_gone
from tests.acceptance.proxy import Fault, Proxy
from tests.acceptance.running import Run
from tests.acceptance.standbys import warm_count
from tests.acceptance.verifier import document_of, newest_snapshot
from tests.fixtures.waiting import PATIENCE_S, wait_until
from tests.integration.servers import free_port

BLOWS = (
    ("evolve.landed", "commit.landed", "create.landed", "commit.validating", "task.write"),
    ("commit.before", "create.before", "task.batch"),
    ("commit.after", "task.close"),
    ("evolve.before", "job.before"),
    ("job.after",),
)
"""Steps that one blow strikes, each in a table of its own, in the order in which the tables are brought to them. The last is
one of the job: no other job begins while it is held. Of the others there are no more than hands for commits.
"""
STEPS = tuple(step for blow in BLOWS for step in blow)
GROWTHS = ("evolve.before", "evolve.landed")
BIRTHS = ("create.before", "create.landed")
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
    """A pipeline with a table for each step, started again after every blow."""

    def __init__(
        self, pipeline: Pipeline, victims: Iterable[str] = tuple(VICTIMS), steps: Collection[str] = STEPS
    ) -> None:
        """Records wait, nothing runs yet. victims: who is going to be killed; steps: where."""
        self.pipeline = pipeline
        pipeline.document["maintenance"] = False  # A compaction of an idle table writes files too: it would be struck.
        self.points = Points(pipeline.folder / "points", *((step, "hold") for step in steps))
        self._living = {step: pipeline.add_fed_table(_word(step)) for step in steps if step not in BIRTHS}
        self._unborn = {
            (step, who): pipeline.add_fed_table(f"{_word(step)}_{who}", 1)
            for step in BIRTHS
            for who in victims
            if step in steps
        }
        self.table, self.topic = next(iter(self._living.values()))
        self._records = 0
        self._fields = Counter[str]()
        self._run: Run | None = None
        for _, topic in self._living.values():
            self.produce(topic)

    def produce(self, topic: str) -> None:
        """Some more records."""
        more = {f"field{number}": number for number in range(self._fields[topic])}
        self.pipeline.feed.produce(topic, events(60, self._records, **more))
        self._records += 60

    def run(self) -> Run:
        """The running pipeline, all that was there committed and no batch at any step."""
        if self._run is None or not self._run.is_running:
            self._run = self._start()
        for table, _ in self._living.values():
            self.pipeline.wait_until_settled(table, self._run)
        return self._run

    def _start(self) -> Run:
        return self.pipeline.run(failpoints=self.points.declaration)

    def kill_driver(self, blow: Sequence[str], who: str) -> None:
        """SIGKILL while each of these steps is held: what is left of every table is whole, and the next run completes it."""
        run = self.run()
        struck = self._struck(blow, who)
        before = {step: self.pipeline.progress(table) for step, (table, _) in struck.items()}
        with ExitStack() as armed:
            self._bring_to_steps(run, struck, armed)
            run.kill(*VICTIMS[who](run))
            if who != "jvm":
                # Nobody lets the steps continue: what is left of the driver has to notice by itself.
                wait_until_gone(run)
        assert run.wait() == (1 if who == "jvm" else -signal.SIGKILL)
        if who == "jvm":
            assert "the JVM has ended" in run.result()["error"]["message"]
        wait_until_gone(run)
        for step, (table, topic) in struck.items():
            if self.pipeline.current(table) is not None:
                assert self.pipeline.verify(table).problems == [], step
            is_landed = self.pipeline.progress(table) != before[step]
            assert is_landed == (step in LANDED), step
            assert step not in BIRTHS + GROWTHS or self._is_cut_short_at(step, table, topic), step
        for table, _ in struck.values():
            self.pipeline.wait_for_commit_of(table, self.run())
            self.pipeline.check(table)

    def _struck(self, blow: Sequence[str], who: str) -> dict[str, tuple[str, str]]:
        return {step: self._unborn[step, who] if step in BIRTHS else self._living[step] for step in blow}

    def _bring_to_steps(self, run: Run, struck: Mapping[str, tuple[str, str]], armed: ExitStack) -> None:
        """Lets the run hold a batch of each table at its step, for as long as `armed` lasts."""
        for step, (_, topic) in struck.items():
            armed.enter_context(self.points[step, "hold"].armed())
            self._fields[topic] += step in GROWTHS
            self.produce(topic)
            self.points[step, "hold"].wait(run, is_own=True)

    def _is_cut_short_at(self, step: str, table: str, topic: str) -> bool:
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
        has_column = f"field{self._fields[topic] - 1}" in {field["name"] for field in schema["fields"]}
        return has_column == (step == "evolve.landed")


class StruckLeader(Struck):
    """A leader with a table for each step, and a standby; a killed leader is replaced by another standby."""

    def __init__(self, pipeline: Pipeline, victims: Iterable[str] = tuple(VICTIMS)) -> None:
        super().__init__(pipeline, victims)
        pipeline.document["ha"] = {}
        self._standby: Run | None = None

    def kill_driver(self, blow: Sequence[str], who: str) -> None:
        """SIGKILL for the leader while each of these steps is held: the standby completes what is left of every table."""
        leader = self.run()
        standby = self._standby = self._standby or self._start()
        leader.wait_while_running(lambda: warm_count(self.pipeline) == 2, "the other process is warm")
        struck = self._struck(blow, who)
        with ExitStack() as armed:
            self._bring_to_steps(leader, struck, armed)
            leader.kill(*VICTIMS[who](leader))
        assert leader.wait() == (1 if who == "jvm" else -signal.SIGKILL)
        for table, _ in struck.values():
            self.pipeline.wait_for_commit_of(table, standby)
            self.pipeline.check(table)
        wait_until_gone(leader)
        assert standby.seen("tables_taken")
        self._run, self._standby = standby, None

    def _start(self) -> Run:
        self.pipeline.document["http"] = {"listen": f"127.0.0.1:{free_port()}"}
        return super()._start()


def _word(step: str) -> str:
    return step.replace(".", "_")


class OneTable:
    """A running pipeline with one table, run again where it has ended. failures: what can go wrong where."""

    def __init__(self, pipeline: Pipeline, name: str, *failures: tuple[str, str]) -> None:
        """Nothing runs yet."""
        self.pipeline = pipeline
        self.points = Points(pipeline.folder / "points", *failures)
        self.table, self.topic = pipeline.add_fed_table(name)
        self.records = 0
        self._run: Run | None = None

    def produce(self, count: int = 50) -> None:
        """Some more records."""
        self.pipeline.feed.produce(self.topic, events(count, self.records))
        self.records += count

    def run(self) -> Run:
        """The running pipeline, all that was there committed."""
        if self._run is None or not self._run.is_running:
            self.produce()
            self._run = self.start()
        self.pipeline.wait_for_commit_of(self.table, self._run)
        return self._run

    def start(self) -> Run:
        """Another run."""
        return self.pipeline.run(failpoints=self.points.declaration)


def assert_refused(run: Run) -> None:
    """The run has ended because the table has a later one, and says so."""
    assert run.wait() == FENCED, run.tail()
    error = run.result()["error"]
    assert "a later run" in error["message"]
    assert error["remedy"]


class Contested(OneTable):
    """A pipeline that is run by more than one. failures: what else can go wrong where."""

    def __init__(self, pipeline: Pipeline, *failures: tuple[str, str]) -> None:
        """Records wait, nothing runs yet."""
        pipeline.document["maintenance"] = False  # A compaction of the idle table would be at a step first.
        super().__init__(pipeline, "contested", *((step, "hold") for step in STEPS), *failures)
        self._beaten: Run | None = None
        self.produce()

    def start_two(self) -> None:
        """Two runs together, which find no table, until one of them has ended; the other continues."""
        runs = [self.start(), self.start()]
        self.feed_until_ended(*runs)
        self._beaten, going = sorted(runs, key=lambda run: run.is_running)
        self.resume(going)

    def check_refused(self) -> None:
        """Of the two that were started together the one that has ended was refused."""
        assert self._beaten is not None
        assert_refused(self._beaten)

    def freeze_while_another_runs(self, step: str, for_s: float = 0.0) -> None:
        """A run is frozen at a step, for so long at least, and another continues: the first is refused when it wakes."""
        with self._frozen_at(step, for_s) as first:
            second = self.start()
            self.produce()
            self.pipeline.wait_for_commit_of(self.table, second)
        assert_refused(first)
        self.resume(second)

    def freeze_alone(self, step: str, for_s: float = 0.0) -> None:
        """A run is frozen at a step, for so long at least, and nobody else continues: it does itself when it wakes."""
        with self._frozen_at(step, for_s) as run:
            self.produce()
        self.resume(run)

    def resume(self, run: Run) -> None:
        """More records arrive in the run that is left; all is there once."""
        self._run = run
        self.produce()
        self.pipeline.wait_for_commit_of(self.table, run)
        self.pipeline.check(self.table)

    def end(self) -> None:
        """The run that is left stops."""
        run = self.run()
        assert run.stop() == 0, run.tail()

    @contextmanager
    def _frozen_at(self, step: str, for_s: float) -> Iterator[Run]:
        """SIGSTOP for a run with a batch at this step. It continues in the middle of that, sure that nothing has
        happened.
        """
        point = self.points[step, "hold"]
        run = self.run()
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


class Unsure(Contested):
    """Its commits can lose their answers."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline, *((step, "reset") for step in LOST_AT))

    def lose_response(self, proxy: Proxy, fault: Fault, times: int = 1) -> None:
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
