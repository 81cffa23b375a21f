"""Somebody changes the table or the topic by hand, while the pipeline runs or while it is stopped; or produces what cannot
become a row.

Every test has a table of its own in one pipeline, so that each also shows that its neighbours are left alone. What
happens while the pipeline is stopped happens to all of its tables in one pause.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from frazil.runtime.jvm import Jvm
from tests.acceptance.ledger import Ledger, events
from tests.acceptance.operator import Operator
from tests.acceptance.operator import Table as JavaTable
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.points import Points
from tests.acceptance.running import Run
from tests.acceptance.verifier import Verdict
from tests.fixtures.slices import sliced

pytestmark = pytest.mark.timeout(900)

ASLEEP = (
    "asleep_topic", "asleep_retention", "asleep_skip", "asleep_rollback", "asleep_expired", "asleep_foreign",
    "asleep_adopted",
)  # fmt: skip
AWAKE = (
    "bad", "topic", "deleted", "retention", "skip", "rollback", "expired", "foreign", "again", "neighbour", "dropped",
    "renamed",
)  # fmt: skip
"""Tables that are changed while the pipeline is stopped, and those that the tests change, which fill them too."""
STOPPED_TABLES = 4
GONE = 150
MADE_BY_HAND = {
    "id": "long",
    "text": "string",
    "amount": "double",
    "even": "boolean",
    "where": {"city": "string", "zip": "long"},
    "tags": ["string"],
}
"""The columns of a table that was there before Frazil."""
STRANGE = {"variant": "variant", "nanoseconds": "timestamp_ns"}
"""Types that Iceberg has and Frazil cannot write."""


@dataclass
class Owned:
    """A table with its topic (one partition), in the hands of one test."""

    pipeline: Pipeline
    operator: Operator
    table: str
    topic: str
    records: int = 0

    def produce(self, count: int = 200) -> None:
        self.pipeline.feed.produce(self.topic, events(count, self.records))
        self.records += count

    @property
    def java(self) -> JavaTable:
        return self.operator.open(self.pipeline.folder, self.table)

    def check(self, is_complete: bool = True) -> Verdict:
        """Every snapshot against the ledger; all readers read each table once, at the end."""
        verdict = self.pipeline.verify(self.table)
        assert verdict.problems == []
        assert verdict.snapshot_count > 0
        assert verdict.row_count == len(self.pipeline.ledger.of(self.topic)) or not is_complete
        return verdict

    def lose(self, before: int) -> None:
        """Retention: Kafka forgets the records before an offset, which nobody has read."""
        self.pipeline.topics.delete_records(self.topic, {0: before})


class ByHand:
    """A pipeline of many tables: first caught up and stopped, then running."""

    def __init__(self, pipeline: Pipeline, operator: Operator) -> None:
        self.pipeline = pipeline
        self.points = Points(pipeline.folder / "points", ("job.before", "hold"), ("commit.before", "hold"))
        self.operator = operator
        self.tables = {name: self.own(name) for name in ASLEEP}
        operator.create(pipeline.folder, self.tables["asleep_adopted"].table, MADE_BY_HAND)
        self._run: Run | None = None
        self._stopped: dict[str, str] = {}

    def own(self, name: str) -> Owned:
        """Declares a table, in time for the next start."""
        settings = {"on_data_loss": "skip"} if "skip" in name else {"on_bad_record": "stop"} if name == "bad" else {}
        table, topic = self.pipeline.add_fed_table(name, 1, **settings)
        return Owned(self.pipeline, self.operator, table, topic)

    def run(self) -> Run:
        """The running pipeline."""
        if self._run is None:
            self._run = self.pipeline.run(failpoints=self.points.declaration)
        return self._run

    def stop_reason(self, name: str) -> dict[str, str]:
        """Waits until the table has stopped; what is reported about it."""
        owned = self.tables[name]
        state = self.pipeline.wait_for_state(self.run(), owned.table, "stopped")
        assert state["reason"]
        assert state["remedy"]
        logged = self.run().wait_for("table_stopped", table=owned.table)
        assert (logged["reason"], logged["remedy"]) == (state["reason"], state["remedy"])
        self._stopped[owned.table] = state["where"]
        return {name: str(state[name]) for name in ("reason", "remedy", "where")}

    def end(self) -> None:
        """The process has lived on with its stopped tables, and reports them at its end."""
        run = self.run()
        assert run.stop() == STOPPED_TABLES, run.tail()
        reported = run.result()["tables"]
        assert {table: reported[table]["where"] for table in self._stopped} == self._stopped
        assert {reported[table]["state"] for table in self._stopped} <= {"stopped"}

    def continues(self, name: str) -> None:
        """New records of the table's topic still arrive."""
        owned = self.tables[name]
        owned.produce()
        self.pipeline.wait_for_commit_of(owned.table, self.run())
        owned.check()

    def commit_twice(self, name: str, run: Run) -> None:
        """Two snapshots more."""
        owned = self.tables[name]
        for _ in range(2):
            owned.produce()
            self.pipeline.wait_for_commit_of(owned.table, run)


@pytest.fixture(scope="module")
def by_hand(shared_pipeline: Pipeline, operator: Operator, jvm: Jvm) -> Iterator[ByHand]:
    """Caught up, then changed by hand while it was stopped, then started again."""
    made = ByHand(shared_pipeline, operator)
    for names in (ASLEEP, ("asleep_rollback", "asleep_expired")):  # The last two have an older snapshot then.
        for name in names:
            made.tables[name].produce()
        shared_pipeline.command_on(jvm, "run", "--until-caught-up")
    while_asleep(made)
    made.tables |= {name: made.own(name) for name in AWAKE}
    yield made
    made.continues("neighbour")
    made.end()


def while_asleep(made: ByHand) -> None:
    """What is done by hand while nothing runs."""
    tables = made.tables
    tables["asleep_topic"].pipeline.topics.recreate(tables["asleep_topic"].topic, 1)
    for name in ("asleep_retention", "asleep_skip"):
        start = tables[name].records
        tables[name].produce()
        tables[name].lose(start + GONE)
    forget(made.pipeline.ledger, tables["asleep_skip"], GONE)
    for name, kind in STRANGE.items():
        tables[name] = made.own(name)
        columns = {"id": "long", "where": {"strange": kind}}
        made.operator.create(made.pipeline.folder, tables[name].table, columns, format_version=3)
        tables[name].produce()
    java = tables["asleep_rollback"].java
    java.roll_back(java.snapshot_ids[0])
    tables["asleep_expired"].java.expire_all_but_newest()
    for name in ("asleep_foreign", "asleep_adopted"):
        java = tables[name].java
        java.append_nothing()
        java.expire_all_but_newest()


def forget(ledger: Ledger, owned: Owned, count: int) -> None:
    """The last batch of a topic has lost its first records: no reader can have them."""
    newest = sorted(place for place in ledger.records if place[0] == owned.topic)[-200:]
    ledger.forget(newest[:count])


def test_a_record_that_cannot_become_a_row_stops_its_table_where_that_is_declared(by_hand: ByHand) -> None:
    by_hand.continues("bad")
    owned = by_hand.tables["bad"]
    by_hand.pipeline.feed.produce(owned.topic, [*events(10, owned.records), b"not JSON"])
    reported = by_hand.stop_reason("bad")
    assert reported["where"] == f"topic {owned.topic}, partition 0, offset {owned.records + 10}"
    owned.check(is_complete=False)
    by_hand.continues("neighbour")


def test_a_topic_made_again_while_stopped_stops_its_table(by_hand: ByHand) -> None:
    reported = by_hand.stop_reason("asleep_topic")
    assert "deleted and recreated" in reported["reason"]
    assert by_hand.tables["asleep_topic"].topic in reported["where"]
    by_hand.tables["asleep_topic"].check()


def test_a_topic_made_again_while_running_stops_its_table(by_hand: ByHand) -> None:
    by_hand.continues("topic")
    owned = by_hand.tables["topic"]
    by_hand.pipeline.topics.recreate(owned.topic, 1)
    by_hand.pipeline.feed_elsewhere(owned.topic, events(500))
    assert "deleted and recreated" in by_hand.stop_reason("topic")["reason"]
    assert len(by_hand.run().seen("commit_conflict", table=owned.table)) <= 2, "it was noticed at once"
    owned.check()


def test_a_deleted_topic_is_missed_aloud(by_hand: ByHand) -> None:
    by_hand.continues("deleted")
    owned = by_hand.tables["deleted"]
    by_hand.pipeline.topics.delete(owned.topic)
    run, missed = by_hand.run(), f"topic {owned.topic} does not exist"
    run.wait_while_running(lambda: missed in by_hand.pipeline.state(owned.table).get("reason", ""), missed)
    state = by_hand.pipeline.state(owned.table)
    assert (state["state"], bool(state["remedy"])) == ("backing off", True)
    owned.check()


def test_records_gone_while_stopped_stop_the_table(by_hand: ByHand) -> None:
    owned = by_hand.tables["asleep_retention"]
    reported = by_hand.stop_reason("asleep_retention")
    assert "records 200 to 349 were deleted from Kafka before they were read" in reported["reason"]
    assert "on_data_loss: skip" in reported["remedy"]
    assert reported["where"] == f"topic {owned.topic}, partition 0, offset 200"
    owned.check(is_complete=False)


def test_records_gone_while_stopped_are_skipped_when_that_is_declared(by_hand: ByHand) -> None:
    owned = by_hand.tables["asleep_skip"]
    by_hand.pipeline.wait_for_commit_of(owned.table, by_hand.run())
    owned.check()
    assert by_hand.pipeline.summary(owned.table, "skipped") == {owned.topic: {"0": [200, 350]}}
    by_hand.continues("asleep_skip")


@pytest.mark.parametrize("name", ["retention", "skip"])
def test_records_gone_under_a_running_batch(by_hand: ByHand, name: str) -> None:
    by_hand.continues(name)
    owned, run = by_hand.tables[name], by_hand.run()
    start = owned.records
    point = by_hand.points["job.before", "hold"]
    with point.armed():
        owned.produce()
        point.wait(run)
        owned.lose(start + GONE)
    if name == "retention":
        reported = by_hand.stop_reason(name)
        assert f"records {start} to {start + GONE - 1} were deleted from Kafka" in reported["reason"]
        owned.check(is_complete=False)
    else:
        forget(by_hand.pipeline.ledger, owned, GONE)
        by_hand.pipeline.wait_for_commit_of(owned.table, run)
        owned.check()
        by_hand.continues(name)


@pytest.mark.parametrize("name", STRANGE)
def test_a_table_with_a_column_that_cannot_be_written_stops_with_its_name_and_type(by_hand: ByHand, name: str) -> None:
    reported = by_hand.stop_reason(name)
    reason = f"the column where.strange has the type {STRANGE[name]}, which this version cannot write"
    assert (reported["reason"], reported["where"]) == (reason, by_hand.tables[name].table)


def test_a_table_dropped_and_made_again_while_running_is_read_into_from_start(by_hand: ByHand) -> None:
    by_hand.continues("again")
    owned = by_hand.tables["again"]
    by_hand.operator.drop(by_hand.pipeline.folder, owned.table)
    by_hand.operator.create(by_hand.pipeline.folder, owned.table, MADE_BY_HAND)
    by_hand.continues("again")


# In time: a table that is dropped. The others: contracts/test_vanished_tables.py, where a table goes in each way between any
# two calls, and within a commit.
_IN_TIME = [("dropped", "commit.before")]
_OTHERS = [("renamed", "job.before"), ("dropped", "job.before"), ("renamed", "commit.before")]


@pytest.mark.parametrize(("name", "point"), sliced([*_IN_TIME, *_OTHERS], len(_IN_TIME)))
def test_a_table_that_goes_under_a_batch_is_created_again_and_filled_from_start(
    by_hand: ByHand, name: str, point: str
) -> None:
    by_hand.continues(name)
    owned, held = by_hand.tables[name], by_hand.points[point, "hold"]
    with held.armed():
        owned.produce()
        held.wait(by_hand.run())
        if name == "dropped":
            by_hand.operator.drop(by_hand.pipeline.folder, owned.table)
        else:
            by_hand.operator.rename(by_hand.pipeline.folder, owned.table, f"{owned.table}_{point[:3]}")
    by_hand.pipeline.wait_for_commit_of(owned.table, by_hand.run())
    by_hand.continues(name)


def test_a_table_rolled_back_while_stopped_resumes_from_the_restored_progress(by_hand: ByHand) -> None:
    owned = by_hand.tables["asleep_rollback"]
    by_hand.pipeline.wait_for_commit_of(owned.table, by_hand.run())
    owned.check()
    by_hand.continues("asleep_rollback")


def test_a_table_rolled_back_while_running_resumes_from_the_restored_progress(by_hand: ByHand) -> None:
    by_hand.commit_twice("rollback", by_hand.run())
    java = by_hand.tables["rollback"].java
    java.roll_back(java.snapshot_ids[0])
    by_hand.continues("rollback")


def test_a_table_whose_older_snapshots_were_expired_continues(by_hand: ByHand) -> None:
    by_hand.continues("asleep_expired")
    by_hand.commit_twice("expired", by_hand.run())
    by_hand.tables["expired"].java.expire_all_but_newest()
    by_hand.continues("expired")


@pytest.mark.parametrize("name", ["asleep_foreign", "asleep_adopted"])
def test_a_table_whose_progress_was_expired_while_stopped_stops(by_hand: ByHand, name: str) -> None:
    reported = by_hand.stop_reason(name)
    assert "progress was expired" in reported["reason"]
    assert f"frazil.{by_hand.pipeline.name}.offsets" in reported["remedy"]


def test_a_table_whose_progress_was_expired_while_running_stops(by_hand: ByHand) -> None:
    by_hand.continues("foreign")
    owned = by_hand.tables["foreign"]
    owned.java.append_nothing()
    owned.java.expire_all_but_newest()
    owned.produce()
    assert "progress was expired" in by_hand.stop_reason("foreign")["reason"]
    assert owned.pipeline.verify(owned.table).row_count == owned.records - 200


def test_an_empty_commit_of_another_writer_changes_nothing(by_hand: ByHand) -> None:
    by_hand.continues("neighbour")
    by_hand.tables["neighbour"].java.append_nothing()
    by_hand.continues("neighbour")
