"""The topic of transactions, read on for one table."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from frazil.errors import UnavailableError
from frazil.kafka.port import ReadRecord
from frazil_testing.memory_kafka import MemorySource
from frazil_transactions import markers
from frazil_transactions.markers import Event, TransactionEnds

HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS


class Topic:
    """Its records are transactions that have ended, after a change each; with `+` those that have begun, with `-` that have
    ended without a change of the table. seen: those that were read, in their order.
    """

    def __init__(self, partitions: int = 2) -> None:
        self.source = MemorySource()
        self.source.create("e", partitions)
        self.seen: list[str] = []
        self.ends = TransactionEnds("e", self.source, self.source, self._read)

    def write(self, *words: str, at_ms: int = NOW_MS, partition: int = 0) -> None:
        """A millisecond apart."""
        for later, word in enumerate(words):
            self.source.produce("e", partition, word.encode(), at_ms + later)

    def _read(self, records: Sequence[ReadRecord]) -> list[Event]:
        found = []
        for record in records:
            word = (record.value or b"").decode()
            self.seen.append(word)
            count = 1 if word[0] not in "+-" else None
            found.append(Event(word.strip("+-"), record.timestamp_ms or 0, word[0] != "+", count))
        return found


def test_the_topic_is_read_no_further_than_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "_ENOUGH_BYTES", 1)
    topic = Topic(1)
    topic.write("a", "b", "c", "d")
    topic.ends.read_on({"b"}, NOW_MS)
    assert topic.seen == ["a", "b", "c"]
    topic.ends.read_on({"a"}, NOW_MS)
    assert topic.seen == ["a", "b", "c"]
    topic.ends.read_on({"d", "never"}, NOW_MS)
    assert topic.ends.counts == {"a": 1, "b": 1, "c": 1, "d": 1}
    topic.ends.forget({"a", "b", "never"})
    assert topic.ends.counts == {"c": 1, "d": 1}


def test_what_has_begun_twice_is_not_counted_whichever_partition_tells_it_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(markers, "_ENOUGH_BYTES", 1)
    topic = Topic(2)
    topic.write("b", "c", at_ms=NOW_MS + 5)
    topic.write("+a", "+b", "+b", "-a", "+c", partition=1)
    topic.ends.read_on({"b", "c"}, NOW_MS)
    assert topic.ends.counts == {"c": 1}
    topic.write("+c", "c", partition=1, at_ms=NOW_MS + 9)
    topic.ends.read_on({"b"}, NOW_MS)
    assert topic.ends.counts == {}


def test_the_read_begins_a_little_before_the_first_change() -> None:
    topic = Topic()
    topic.write("old", at_ms=NOW_MS - HOUR_MS)
    topic.write("before", at_ms=NOW_MS - 30_000)
    topic.write("other", at_ms=NOW_MS, partition=1)
    topic.ends.read_on({"x"}, NOW_MS)
    assert sorted(topic.seen) == ["before", "other"]


@pytest.mark.parametrize(
    ("since_ms", "seen"), [(0, ["old", "new"]), (NOW_MS - HOUR_MS, ["old", "new"]), (NOW_MS, ["new"])]
)
def test_what_is_not_known_of_the_time_is_read_from_the_beginning(since_ms: int, seen: list[str]) -> None:
    topic = Topic(1)
    topic.write("old", at_ms=NOW_MS - HOUR_MS)
    topic.write("new")
    topic.ends.read_on({"x"}, since_ms)
    assert topic.seen == seen


def test_who_goes_back_finds_what_is_before(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(1)
    topic.write("old", at_ms=NOW_MS - HOUR_MS)
    topic.write("new")
    topic.ends.read_on({"new"}, NOW_MS)
    topic.ends.read_on({"old"}, NOW_MS - HOUR_MS)
    assert topic.ends.counts.keys() == {"old", "new"}
    monkeypatch.setattr(markers, "_FAR_BEHIND", 3)
    topic.write(*"abcdefgh", at_ms=NOW_MS + HOUR_MS)
    topic.write("last", at_ms=NOW_MS + 2 * HOUR_MS)
    topic.ends.read_on({"last"}, NOW_MS + 2 * HOUR_MS)
    assert topic.seen[-1] == "last"
    assert "a" not in topic.seen


def test_records_that_have_expired_and_partitions_that_are_new() -> None:
    topic = Topic(1)
    topic.write("a", "b", "c")
    topic.ends.read_on({"a"}, NOW_MS)
    topic.write("d")
    topic.source.trim("e", 0, 3)
    topic.ends.read_on({"d"}, NOW_MS)
    assert topic.ends.counts["d"] == 1
    topic.source.by_name["e"].partitions.append([])
    topic.write("e", partition=1)
    topic.ends.read_on({"e"}, NOW_MS)
    topic.ends.read_on({"e"}, NOW_MS)
    assert topic.ends.counts["e"] == 1


def test_a_topic_that_is_made_again_is_read_from_its_beginning() -> None:
    topic = Topic(1)
    topic.write("a", "b", "c")
    topic.ends.read_on({"c"}, NOW_MS)
    topic.source.create("e")
    topic.ends.read_on({"x"}, NOW_MS)
    topic.write("x")
    topic.ends.read_on({"x"}, NOW_MS)
    assert topic.ends.counts["x"] == 1


def test_a_topic_that_is_not_there_is_waited_for() -> None:
    topic = Topic()
    topic.source.by_name.clear()
    with pytest.raises(UnavailableError, match="topic e does not exist"):
        topic.ends.read_on({"x"}, NOW_MS)
