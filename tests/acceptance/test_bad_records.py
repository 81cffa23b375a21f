"""Values that nobody should have produced. Each becomes a row, or stops its table with topic, partition and offset, as its
table asks for; the process goes on, and no row next to it changes. Every value comes to a table of its own in one running
pipeline.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.running import Run
from tests.fixtures.readers import DIGESTS

pytestmark = pytest.mark.timeout(900)

STOPPED_TABLES = 4
SIXTEEN_MIB = 16 * 1024 * 1024
GOOD = 30

BAD: dict[str, tuple[bytes | None, str]] = {
    "empty": (b"", "JSON"),
    "blank": (b"  \n ", "JSON"),
    "null": (None, "tombstone"),
    "word_null": (b"null", "not a JSON object"),
    "list": (b"[1, 2]", "not a JSON object"),
    "number": (b"5", "not a JSON object"),
    "text": (b'"text"', "not a JSON object"),
    "cut": (b'{"id": 1, "text": "tex', "not well-formed JSON"),
    "two_values": (b'{"id": 1} {"id": 2}', "not well-formed JSON"),
    "deep": (b'{"id": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested more than"),
    "deep_unknown": (b'{"new": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}", "nested more than"),
    "duplicate_key": (b'{"id": 1, "text": "a", "id": 2}', "same key twice"),
    "not_utf8": (b'{"id": 1, "text": "\xff\xfe"}', "not UTF-8"),
    "nan": (b'{"id": 1, "amount": NaN}', "not well-formed JSON"),
    "infinity": (b'{"id": 1, "amount": -Infinity}', "not well-formed JSON"),
    "too_large": (b'{"id": 18446744073709551616}', "field id"),
    "fraction": (b'{"id": 1.5}', "field id"),
    "other_kind": (b'{"id": "one"}', "field id"),
    "other_kind_inside": (b'{"id": 1, "where": {"zip": {"code": 1}}}', "field where.zip"),
    "raw_newline": (b'{"id": 1, "text": "two\nlines"}', "not well-formed JSON"),
    "zero_byte": (b'{"id": 1}\x00', "not well-formed JSON"),
}
ODD: dict[str, bytes] = {
    "spread_over_lines": b'\r\n{\n  "id":\t1,\n "text": "a\\nb"\n}\n',
    "huge": json.dumps({"id": 1, "text": "x" * (SIXTEEN_MIB - 100)}).encode(),
    "escaped": b'{"\\u0069d": 1, "text": "\\ud83d\\ude00 \\u0000"}',
    "large_in_a_fraction": b'{"id": 1, "amount": 18446744073709551616}',
    "all_null": b'{"id": null, "text": null, "where": null, "tags": null}',
    "nothing": b"{}",
    "byte_order_mark": b'\xef\xbb\xbf{"id": 1}',
    "nested": b'{"id": 1, "deep": ' + b'{"a":' * 30 + b"1" + b"}" * 30 + b"}",
}


class Zoo:
    """A table for every value, and one that has nothing to do with them; all values come at once."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.tables = {
            name: pipeline.add_fed_table(name, 1, on_bad_record="stop") for name in (*BAD, *ODD, "first", "neighbour")
        }
        self.run = self._start()
        for name, value in [*((name, value) for name, (value, _) in BAD.items()), *ODD.items()]:
            _, topic = self.tables[name]
            pipeline.feed.send(topic, [*events(10, GOOD), value, *events(10, GOOD + 10)])
        pipeline.feed.produce(self.tables["first"][1], [b"<xml/>", *events(10)])

    def _start(self) -> Run:
        """The running pipeline; every table but `first` has its columns."""
        known = [self.tables[name] for name in self.tables if name != "first"]
        for _, topic in known:
            self.pipeline.feed.send(topic, events(GOOD))
        self.pipeline.feed.flush()
        run = self.pipeline.run()
        for table, _ in known:
            self.pipeline.wait_for_commit_of(table, run)
        return run

    def neighbour_goes_on(self) -> None:
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
    made.neighbour_goes_on()


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


def test_a_bad_first_record_stops_a_table_that_has_no_columns_yet(zoo: Zoo) -> None:
    table, topic = zoo.tables["first"]
    state = zoo.pipeline.wait_for_state(zoo.run, table, "stopped")
    assert state["where"] == f"topic {topic}, partition 0, offset 0"
    assert zoo.pipeline.metadata(table) is None


def test_the_process_lives_on_with_stopped_tables_and_says_so_at_its_end(pipeline: Pipeline) -> None:
    stopped, topic = pipeline.add_fed_table("stopped", 1, on_bad_record="stop")
    going, other = pipeline.add_fed_table("going", 1)
    pipeline.feed.produce(topic, [*events(10), b"not JSON"])
    pipeline.feed.produce(other, events(10))
    run = pipeline.run()
    pipeline.wait_for_state(run, stopped, "stopped")
    pipeline.feed.produce(other, events(10, 10))
    pipeline.wait_for_commit_of(going, run)
    assert run.stop() == STOPPED_TABLES, run.tail()
    said = run.result()["tables"][stopped]
    assert (said["state"], said["where"]) == ("stopped", f"topic {topic}, partition 0, offset 10")
    # A run that only catches up ends with the same answer, and the neighbour is complete.
    pipeline.feed.produce(other, events(10, 20))
    assert pipeline.catch_up(expected=STOPPED_TABLES)["tables"][stopped]["reason"] == said["reason"]
    pipeline.check(going)


def test_records_that_suddenly_are_large_are_read_in_smaller_pieces(pipeline: Pipeline) -> None:
    table, topic = pipeline.add_fed_table("flood", 1)
    # Arrow's buffers live in direct memory: what twenty thousand small records need fits, of these large ones it does not.
    conf = pipeline.document.setdefault("spark", {}).setdefault("conf", {})
    conf["spark.driver.extraJavaOptions"] += " -XX:MaxDirectMemorySize=320m"
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
        pipeline.check_readers(table, DIGESTS)  # All at once would be too much for the memory of some.
        assert len(run.seen("large_records", table=table)) == 1
        assert not run.seen("table_backs_off", table=table)
        assert run.stop() == 0, run.tail()
