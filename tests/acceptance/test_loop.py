"""What a pipeline does all day: new partitions and topics, transactions, compaction, a drain, and how it ends."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from frazil.clock import SystemClock
from tests.acceptance.ledger import Place, events, read_partition
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.points import Points, wait_until_gone
from tests.acceptance.running import A_FEW_SECONDS, Run
from tests.acceptance.verifier import verify
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.timeout(900)

KEYS = 25
SEGMENT_MS = 100
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": str(SEGMENT_MS),
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
}


class Loop:
    """A running pipeline; each test brings a topic of its own."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        pipeline.document["maintenance"] = False  # Of tables that wait for their test; it writes files, which are held.
        self.points = Points(pipeline.folder / "points", ("job.before", "hold"), ("task.write", "hold"))
        self.growing = pipeline.add_fed_table("growing", 1)
        self.transactions = pipeline.add_fed_table("transactions", 2)
        self.compacted = pipeline.new_topic("compacted", 1, COMPACTED)
        self.compacted_table = pipeline.add_table("compacted", self.compacted)
        self.drained = pipeline.add_fed_table("drained")
        self.neighbour = pipeline.add_fed_table("neighbour")
        self.begun = pipeline.new_topic("begun")
        self.made_ms = SystemClock().now_ms() - 3_600_000
        starts = {"at_latest": "latest", "at_time": self.made_ms + 20_000, "at_offset": {0: 30}}
        self.begun_tables = {name: pipeline.add_table(name, self.begun, start=at) for name, at in starts.items()}
        self.feed_begun(0)
        self.family = f"family-{pipeline.name}-"
        self.first = pipeline.topics.create(f"{self.family}1")
        self.family_table = pipeline.add_table("family", f"/^{self.family}/")
        pipeline.document["namespace"] = "own"
        pipeline.document["topics"] = [f"/^{self.family}/"]
        pipeline.expect_in(self.family_table, self.first)
        self._run: Run | None = None

    def feed_begun(self, start: int) -> None:
        """Fifty records more in each partition, one for each second, in the second one half a minute later."""
        for number in range(start, start + 50):
            for partition, delay_s in enumerate((0, 30)):
                at_ms = self.made_ms + 1000 * (number + delay_s)
                self.pipeline.feed.send(self.begun, events(1, number), partition, at_ms=at_ms)
        self.pipeline.feed.flush()

    def run(self) -> Run:
        """The running pipeline."""
        if self._run is None or not self._run.is_running:
            self._run = self.pipeline.run(failpoints=self.points.declaration)
            # What waited from before would otherwise be the batch that a test holds.
            self.pipeline.wait_for_commit_of(self.family_table, self._run)
            own = f"own.{self.first}"
            self.pipeline.wait_for_offsets(own, self.pipeline.ledger.ends([self.first]), self._run)
        return self._run


@pytest.fixture(scope="module")
def loop(shared_pipeline: Pipeline) -> Iterator[Loop]:
    """A few records are there already."""
    made = Loop(shared_pipeline)
    shared_pipeline.feed.produce(made.first, events(50))
    yield made
    shared_pipeline.check(made.family_table)


def test_new_partitions_are_read_from_their_beginning(loop: Loop) -> None:
    table, topic = loop.growing
    loop.pipeline.feed.produce(topic, events(100), partition=0)
    loop.pipeline.wait_for_commit_of(table, loop.run())
    loop.pipeline.topics.add_partitions(topic, 3)
    wait_until(lambda: loop.pipeline.feed.knows(topic, 2), "the producer knows the new partitions")
    for partition in (1, 2):
        loop.pipeline.feed.produce(topic, events(100, partition * 100), partition=partition)
    loop.pipeline.wait_for_commit_of(table, loop.run())
    loop.pipeline.check(table)
    assert set(loop.pipeline.progress(table)[topic]) == {0, 1, 2}


def test_a_topic_that_appears_later_joins_its_table_and_gets_one(loop: Loop) -> None:
    loop.pipeline.wait_for_commit_of(loop.family_table, loop.run())
    second = loop.pipeline.topics.create(f"{loop.family}2")
    loop.pipeline.expect_in(loop.family_table, second)
    loop.pipeline.feed.produce(second, events(100, 1000))
    loop.pipeline.wait_for_commit_of(loop.family_table, loop.run())
    loop.pipeline.check(loop.family_table)
    for topic in (loop.first, second):
        loop.pipeline.wait_for_offsets(f"own.{topic}", loop.pipeline.ledger.ends([topic]), loop.run())
        assert loop.pipeline.holds_values_of(f"own.{topic}", topic)


def test_each_table_begins_at_its_start_and_knows_up_to_when_it_is_complete(loop: Loop) -> None:
    pipeline, begun = loop.pipeline, loop.begun_tables
    for name in ("at_time", "at_offset"):
        pipeline.wait_for_commit_of(begun[name], loop.run())
        ends_ms = [loop.made_ms + 1000 * (49 + delay_s) for delay_s in (0, 30)]
        assert pipeline.summary(begun[name], "watermarks") == {loop.begun: {"0": ends_ms[0], "1": ends_ms[1]}}
        assert pipeline.summary(begun[name], "watermark") == ends_ms[0]
    assert pipeline.progress(begun["at_latest"]) == {}
    loop.feed_begun(50)
    firsts = {"at_latest": (50, 50), "at_time": (20, 0), "at_offset": (30, 0)}
    for name, first in firsts.items():
        pipeline.wait_for_commit_of(begun[name], loop.run())
        ledger = pipeline.ledger.of(loop.begun)
        expected = {place: value for place, value in ledger.items() if place[2] >= first[place[1]]}
        metadata = pipeline.current(begun[name])
        assert metadata is not None
        verdict = verify(metadata, pipeline.name, expected)
        assert (verdict.problems, verdict.row_count) == ([], len(expected))


def test_only_committed_transactions_are_read(loop: Loop) -> None:
    table, topic = loop.transactions
    feed = loop.pipeline.transactional_feed()
    for number in range(6):
        feed.begin()
        feed.send(topic, events(40, number * 40))
        if number % 2:
            feed.abort()
        else:
            feed.commit()
    loop.pipeline.wait_for_commit_of(table, loop.run())
    before = loop.pipeline.check(table)
    assert before.row_count == 120
    feed.begin()
    feed.send(topic, events(40, 1000))
    feed.flush()
    # A neighbour's later records arrive, so the open transaction was skipped, not waited for.
    other, other_topic = loop.neighbour
    loop.pipeline.feed.produce(other_topic, events(10))
    loop.pipeline.wait_for_commit_of(other, loop.run())
    assert loop.pipeline.verify(table).row_count == before.row_count
    feed.commit()
    loop.pipeline.wait_for_commit_of(table, loop.run())
    assert loop.pipeline.check(table).row_count == 160
    feed.begin()
    feed.send(topic, events(40, 2000))
    feed.abort()
    # The markers at the end are not records, but they are read past: a lag that stays would look like a stall.
    loop.run().wait_while_running(lambda: loop.pipeline.state(table).get("lag_records") == 0, "nothing is left to read")
    assert loop.pipeline.check(table).row_count == 160


def test_gaps_that_compaction_left_are_read_over(loop: Loop) -> None:
    run, topic = loop.run(), loop.compacted
    point = loop.points["job.before", "hold"]
    with point.armed():
        for number in range(4):
            for key in range(KEYS):
                loop.pipeline.feed.send(topic, events(1, number * KEYS + key), key=f"k{key}".encode())
            loop.pipeline.feed.flush()
            point.wait(run)
        closed_s = time.monotonic() + 2 * SEGMENT_MS / 1000
        wait_until(lambda: time.monotonic() > closed_s, "the newest segment is old enough to be closed")
        # The segment that is written to is never compacted: this record begins another.
        loop.pipeline.feed.send(topic, events(1, 1000), key=b"last")
        loop.pipeline.feed.flush()
        survivors = wait_until(lambda: _one_per_key(loop, topic), "the log is compacted")
        loop.pipeline.ledger.forget([place for place in loop.pipeline.ledger.of(topic) if place not in survivors])
    assert loop.pipeline.ledger.of(topic) == survivors
    loop.pipeline.wait_for_commit_of(loop.compacted_table, run)
    loop.pipeline.check(loop.compacted_table)


def _one_per_key(loop: Loop, topic: str) -> dict[Place, bytes | None] | None:
    left = read_partition(loop.pipeline.servers, topic, 0)
    return left if len(left) == KEYS + 1 else None


@pytest.mark.last
def test_a_second_interrupt_waits_for_no_batch_and_a_drain_commits_what_is_in_hand(loop: Loop) -> None:
    """What was in hand at the interrupt is read by the next run, exactly."""
    (table, topic), pipeline, run, point = loop.drained, loop.pipeline, loop.run(), loop.points["task.write", "hold"]
    pipeline.feed.produce(topic, events(200))
    pipeline.wait_for_commit_of(table, run)
    before = pipeline.progress(table)
    with point.armed():
        pipeline.feed.produce(topic, events(200, 200))
        point.wait(run)
        run.interrupt()
        run.wait_for("stopping", tables_in_flight=[table])
        run.interrupt()
        assert run.wait(A_FEW_SECONDS) == 130, run.tail()
        wait_until_gone(run)
    assert not run.seen("unexpected_error"), run.tail()
    assert pipeline.progress(table) == before
    left_behind = list((pipeline.folder / "tmp").iterdir())
    for left in left_behind:
        os.utime(left, (1, 1))  # A folder that is new may belong to a process that starts.
    run = loop.run()
    pipeline.wait_until_settled(table, run)
    pipeline.check(table)
    assert [left for left in left_behind if left.exists()] == []
    before = pipeline.progress(table)
    with point.armed():
        pipeline.feed.produce(topic, events(200, 400))
        point.wait(run)
        run.terminate()
        pipeline.feed.produce(topic, events(200, 600))
        assert run.is_running
    assert run.wait() == 0, run.tail()
    in_hand = sum(pipeline.progress(table)[topic].values()) - sum(before[topic].values())
    assert 0 < in_hand <= 200
    pipeline.check(table, is_complete=False)


@pytest.mark.slow  # In time: unit/ingest/test_goal.py.
def test_catching_up_reads_to_the_ends_of_its_start_and_exits_0(pipeline: Pipeline) -> None:
    table, topic = pipeline.add_fed_table("caught_up")
    pipeline.feed.produce(topic, events(100))
    ends = pipeline.ledger.ends([topic])
    points = Points(pipeline.folder / "points", ("job.before", "hold"))
    point = points["job.before", "hold"]
    with point.armed():
        run = pipeline.run("--until-caught-up", failpoints=points.declaration)
        point.wait(run)
        pipeline.feed.produce(topic, events(100, 100))
    assert run.wait() == 0, run.tail()
    assert {p: end for p, end in pipeline.progress(table)[topic].items() if end} == ends[topic]
    pipeline.check(table, is_complete=False)
    assert run.result()["tables"][table]["size"]["row_count"] == 100
    assert pipeline.catch_up()["tables"][table]["lag_records"] == 0
    pipeline.check(table)
