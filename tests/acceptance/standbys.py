"""Processes of one pipeline that elect a leader, as their users start them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from frazil.clock import new_id
from tests.acceptance import troubled
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.running import Run
from tests.acceptance.verifier import document_of, newest_snapshot
from tests.fixtures.background import repeated
from tests.fixtures.processes import frozen
from tests.integration.servers import HOST, Relay, free_port

_TROUBLED = Path(troubled.__file__)
_LONGER_THAN_SILENCE_S = 3.0
_LONGER_THAN_DAMPED_S = 31.0


class Standbys:
    """A pipeline whose processes elect a leader, and its producer."""

    def __init__(self, pipeline: Pipeline, mode: Literal["lead", "spread"] = "lead", tables: int = 1) -> None:
        """Nothing runs yet."""
        self.pipeline = pipeline
        self.fed = [pipeline.add_fed_table(f"events{number}" if number else "events") for number in range(tables)]
        self.table, self.topic = self.fed[0]
        pipeline.document |= {"ha": {"mode": mode}, "maintenance": False}

    def start(self, *words: str, environment: Mapping[str, str] | None = None) -> Run:
        """Another process, with an HTTP service of its own."""
        self.pipeline.document["http"] = {"listen": f"{HOST}:{free_port()}"}
        run = self.pipeline.run(*words, environment=environment)
        run.wait_for("starting")  # It has read the file, which the next one changes.
        return run

    def produce(self, count: int = 20) -> None:
        """Some records for each table."""
        for _, topic in self.fed:
            self.pipeline.feed.produce(topic, [{"n": n} for n in range(count)])

    @contextmanager
    def load(self, pause_s: float = 0.05) -> Iterator[None]:
        """Records arrive all the time."""
        with repeated(lambda _: self.produce(), pause_s):
            yield

    def wait_until_warm(self, count: int, run: Run) -> None:
        """Waits until the run leads so many processes that could work."""

        def are_warm() -> bool:
            is_its_own = self.pipeline.state_file().get("pid") == run.pid
            return is_its_own and warm_count(self.pipeline) == count

        run.wait_while_running(are_warm, f"{count} processes are warm")

    def wait_for_commit(self, run: Run, before: int) -> None:
        """Waits until the run has committed more batches than before."""
        run.wait_for("batch_committed", count=before + 1, table=self.table)

    def check(self) -> None:
        """All that was produced is in the tables, once."""
        for table, _ in self.fed:
            self.pipeline.wait_for_commit_of(table)
            self.pipeline.check(table)


def warm_count(pipeline: Pipeline) -> int:
    """How many processes could work, as the leader has published."""
    members: list[dict[str, Any]] = (pipeline.state_file().get("leadership") or {}).get("members", [])
    return sum(member["warm"] for member in members)


def commits(run: Run) -> int:
    """How many batches it has committed."""
    return len(run.seen("batch_committed"))


class Peer:
    """A process that others reach by a way of its own, and whose clock is its own."""

    def __init__(self, standbys: Standbys) -> None:
        pipeline, port = standbys.pipeline, free_port()
        self.way = Relay(port)
        self.way.join()
        self._clocks = pipeline.folder / f"clocks-{new_id()[:8]}"
        self._ahead_s = 0.0
        self.move_clocks(0.0, 0.0)
        pipeline.document["ha"]["listen"] = f"{HOST}:{port}"
        pipeline.document["http"] = {"listen": f"{HOST}:{free_port()}"}
        environment = {troubled.WAY: str(self.way.port), troubled.MOVED: str(self._clocks)}
        self.run = pipeline.run(environment=environment, program=("-P", str(_TROUBLED)))

    def move_clocks(self, ahead_s: float, of_day_s: float) -> None:
        """Moves the clock that never goes back by so much, and sets that of the day so far ahead of the machine's."""
        self._ahead_s += ahead_s
        part = self._clocks.with_suffix(".part")
        part.write_text(f"{self._ahead_s} {of_day_s}")
        part.replace(self._clocks)

    def close(self) -> None:
        """Ends it, and the way."""
        self.way.cut()
        self.run.close()


class Doubles(Standbys):
    """Two processes each of which may take itself for the leader."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self.produce()
        self.leader = Peer(self)
        self.wait_for_commit(self.leader.run, 0)
        self.other = Peer(self)
        self.wait_until_warm(2, self.leader.run)
        self._takes = 1

    def force(self, kind: str, of_day_s: float = 0.0) -> None:
        """Lets the other process take over although the leader lives. of_day_s: what its clock of the day is ahead then."""
        leader, other, before = self.leader, self.other, commits(self.other.run)
        # Else the change that was forced before would put off this one; also breaks each link once.
        other.move_clocks(_LONGER_THAN_DAMPED_S, of_day_s)
        self.wait_until_warm(2, leader.run)
        with KINDS[kind](leader, other):
            self.wait_for_commit(other.run, before)
        for peer in (leader, other):
            peer.way.sever()  # What was swallowed is missed for good.
        self.wait_until_warm(2, other.run)
        assert leader.run.is_running, leader.run.tail()
        self.leader, self.other = other, leader

    def check_order(self) -> None:
        """No process commits after the other has, unless it took the table again: the two do not take turns."""
        peers = (self.leader, self.other)
        took = sum(len(peer.run.seen("tables_taken")) for peer in peers)
        metadata = self.pipeline.current(self.table)
        assert metadata is not None
        writers = list(_writers(document_of(metadata), self.pipeline.name))
        tenures = sum(one != before for one, before in zip(writers, ["", *writers[:-1]], strict=True))
        assert tenures <= took, (tenures, took)

    def close(self) -> None:
        """Ends both."""
        for peer in (self.leader, self.other):
            peer.close()


def _writers(document: dict[str, Any], pipeline: str) -> Iterable[str]:
    """The run that made each commit of the main branch, oldest first."""
    snapshots = {one["snapshot-id"]: one for one in document["snapshots"]}
    found, one = list[str](), newest_snapshot(document)
    while one is not None:
        found.append(one["summary"].get(f"frazil.{pipeline}.run-id", ""))
        one = snapshots.get(one.get("parent-snapshot-id"))
    return reversed([run_id for run_id in found if run_id])


@contextmanager
def _frozen(leader: Peer, _: Peer) -> Iterator[None]:
    with leader.run.frozen(_LONGER_THAN_SILENCE_S):
        yield


@contextmanager
def _driver_frozen(leader: Peer, _: Peer) -> Iterator[None]:
    """Its JVM and its tasks continue."""
    with frozen(leader.run.pid):
        yield


@contextmanager
def _silent(leader: Peer, other: Peer) -> Iterator[None]:
    """Both live, and both reach Kafka and the catalog."""
    with ExitStack() as both:
        for peer in (leader, other):
            both.enter_context(peer.way.silent())
        yield


@contextmanager
def _refused(leader: Peer, _: Peer) -> Iterator[None]:
    with leader.way.away():
        yield


KINDS: dict[str, Callable[[Peer, Peer], Any]] = {
    "frozen": _frozen,
    "driver frozen": _driver_frozen,
    "silent": _silent,
    "refused": _refused,
}
"""What makes the other process take over from a leader that lives."""
