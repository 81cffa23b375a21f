"""Values that nobody should have produced. Each becomes a row, or stops its table with topic, partition and offset, as its
table asks for; the process continues, and no row next to it changes. Every value comes to a table of its own in one running
pipeline. In time: every value in unit/rows/test_odd_values.py, and a process with a table that it stops in test_by_hand.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.running import Run, ancestor
from tests.acceptance.verifier import canonical, place_of, read_newest, unnamed
from tests.fixtures.odd_values import BAD, DECLARED, ODD, VALUES
from tests.fixtures.readers import DIGESTS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

GOOD = 30
# Those that could be too much for a worker that knows no columns yet; tests/unit has all of them.
FIRST_BAD = ("deep", "deep_unknown", "not_utf8", "empty")
FIRST_ODD = ("huge", "nested", "byte_order_mark")


class Zoo:
    """A table for every value, one for each of some as its first record, one that takes all of them and drops fields that
    are not declared, and one that has nothing to do with them; all values come at once.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        known = (*VALUES, "neighbour")
        first = [f"first_{name}" for name in (*FIRST_BAD, *FIRST_ODD)]
        self.tables = {name: pipeline.add_fed_table(name, 1, on_bad_record="stop") for name in (*known, *first)}
        self.tables["scattered"] = pipeline.add_fed_table(
            "scattered", 1, partition_by=["id"], limits={"partitions": GOOD}
        )
        self.tables["dropping"] = pipeline.add_fed_table("dropping", 1, columns=DECLARED, unknown_fields="drop")
        self.run = self._start([self.tables[name] for name in (*known, "scattered")])
        self.daemons = self._daemons()
        for name, value in VALUES.items():
            pipeline.feed.send(self.tables[name][1], [*events(10, GOOD), value, *events(10, GOOD + 10)])
        for name in first:
            pipeline.feed.send(self.tables[name][1], [VALUES[name.removeprefix("first_")], *events(10)])
        pipeline.feed.send(self.tables["scattered"][1], events(20 * GOOD, GOOD))
        pipeline.feed.produce(self.tables["dropping"][1], [*VALUES.values(), *events(300)])

    def _start(self, known: list[tuple[str, str]]) -> Run:
        """The running pipeline; these tables have their columns."""
        for _, topic in known:
            self.pipeline.feed.send(topic, events(GOOD))
        self.pipeline.feed.flush()
        run = self.pipeline.run()
        for table, _ in known:
            self.pipeline.wait_for_commit_of(table, run)
        return run

    def _daemons(self) -> set[int]:
        """The processes that Spark's Python workers come from."""
        return {pid for pid in self.run.pids() if ancestor(pid, 1) == self.run.jvm_pid}

    def check_that_no_worker_died(self) -> None:
        """Spark would fail the job, and its tables would try again."""
        assert not self.run.seen("table_backing_off")
        assert self._daemons() == self.daemons != set()

    def metadata(self, table: str) -> Path:
        """The current metadata file of a table that is there."""
        found = self.pipeline.metadata(table)
        assert found is not None
        return found

    def neighbour_continues(self) -> None:
        """Records of the table that has nothing to do with it still arrive."""
        table, topic = self.tables["neighbour"]
        self.pipeline.feed.produce(topic, events(20, 10_000))
        self.pipeline.wait_for_commit_of(table, self.run)
        self.pipeline.check(table)


@pytest.fixture(scope="module")
def zoo(shared_pipeline: Pipeline) -> Iterator[Zoo]:
    """The running pipeline."""
    made = Zoo(shared_pipeline)
    yield made
    made.neighbour_continues()
    made.check_that_no_worker_died()


@pytest.mark.parametrize("name", BAD)
def test_a_bad_value_stops_its_table_and_is_named(zoo: Zoo, name: str) -> None:
    table, topic = zoo.tables[name]
    _, reason = BAD[name]
    state = zoo.pipeline.wait_for_state(zoo.run, table, "stopped")
    assert state["where"] == f"topic {topic}, partition 0, offset {GOOD + 10}"
    assert reason in state["reason"]
    assert state["remedy"]
    zoo.pipeline.check(table, is_complete=False)
    assert zoo.pipeline.progress(table)[topic][0] <= GOOD + 10


@pytest.mark.parametrize("name", ODD)
def test_an_odd_value_is_a_row_like_any_other(zoo: Zoo, name: str) -> None:
    table, _ = zoo.tables[name]
    zoo.pipeline.wait_for_commit_of(table, zoo.run)
    zoo.pipeline.check(table)


def test_rows_of_more_partitions_than_a_batch_may_write_stop_their_table(zoo: Zoo) -> None:
    table, _ = zoo.tables["scattered"]
    state = zoo.pipeline.wait_for_state(zoo.run, table, "stopped")
    assert f"more than {GOOD} partitions" in state["reason"]
    assert "limits.partitions" in state["remedy"]
    zoo.pipeline.check(table, is_complete=False)
    assert unnamed(zoo.metadata(table)) == frozenset(), "nothing of the batch is left"


@pytest.mark.parametrize("name", FIRST_BAD)
def test_a_bad_first_record_stops_a_table_that_has_no_columns_yet(zoo: Zoo, name: str) -> None:
    table, topic = zoo.tables[f"first_{name}"]
    state = zoo.pipeline.wait_for_state(zoo.run, table, "stopped")
    assert state["where"] == f"topic {topic}, partition 0, offset 0"
    assert BAD[name][1] in state["reason"]
    assert zoo.pipeline.metadata(table) is None


@pytest.mark.parametrize("name", FIRST_ODD)
def test_an_odd_first_record_is_a_row_like_any_other(zoo: Zoo, name: str) -> None:
    table, _ = zoo.tables[f"first_{name}"]
    zoo.pipeline.wait_for_commit_of(table, zoo.run)
    zoo.pipeline.check(table)


def test_where_fields_are_dropped_bad_values_are_dead_letters_and_odd_ones_rows(zoo: Zoo) -> None:
    table, topic = zoo.tables["dropping"]
    zoo.pipeline.wait_until_settled(table, zoo.run)  # Dead letters come behind the rows' commit, which promises them.
    records = zoo.pipeline.ledger.of(topic)
    bad = {(topic, 0, offset) for offset, name in enumerate(VALUES) if name in BAD}
    rows, dead_letters = (read_newest(zoo.metadata(name)) for name in (table, f"{table}__dead_letters"))
    assert {(row["topic"], row["partition"], row["offset"]): row["value"] for row in dead_letters} == {
        place: records[place] for place in bad
    }
    found = {place_of(row): canonical({name: row[name] for name in DECLARED}) for row in rows}
    expected = {place: json.loads(value or b"") for place, value in records.items() if place not in bad}
    assert found == {
        place: canonical({name: value.get(name) for name in DECLARED}) for place, value in expected.items()
    }
    assert (len(rows), len(dead_letters)) == (len(records) - len(bad), len(bad))


def test_records_that_suddenly_are_large_become_rows(pipeline: Pipeline) -> None:
    table, topic = pipeline.add_fed_table("flood", 1)
    pipeline.readers[table] = DIGESTS  # All at once would be too much for the memory of some.
    pipeline.feed.produce(topic, events(GOOD))
    with pipeline.running() as run:
        pipeline.wait_for_commit_of(table, run)
        with run.frozen():  # So that all of them are one batch.
            pipeline.feed.produce(topic, events(4000, GOOD, text="x" * 100_000))
        pipeline.wait_for_commit_of(table, run)
        pipeline.feed.produce(topic, events(10, 5000, text="x" * 100_000))
        pipeline.wait_for_commit_of(table, run)
        verdict = pipeline.verify(table)
        assert (verdict.problems, verdict.row_count) == ([], GOOD + 4010)
        assert not run.seen("table_backing_off", table=table)
        assert run.stop() == 0, run.tail()
    pipeline.check_readers(table)
