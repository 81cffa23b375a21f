"""How long the driver waits for records that it reads itself; what it reads is in the contract of RecordReader."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from frazil.kafka.reader import AssignedRanges, Silence
from frazil.testing import FakeClock
from frazil.types import OffsetRange


class ScriptedConsumer:
    """A consumer with so many records of offsets from 0 on for each time that it is asked, which takes `wait_s`."""

    def __init__(self, clock: FakeClock, counts: list[int], wait_s: float) -> None:
        self._clock = clock
        self._counts = counts
        self._wait_s = wait_s
        self._next = 0

    def assign(self, _partitions: list[TopicPartition]) -> None:
        """It has one partition alone."""

    def consume(self, _most: int, timeout: float) -> list[Message]:
        self._clock.sleep(max(timeout, self._wait_s))
        count = self._counts.pop(0) if self._counts else 0
        offsets, self._next = range(self._next, self._next + count), self._next + count
        return [Message("t", 0, offset, value=b"v", timestamp=(1, 1000)) for offset in offsets]


def _read(counts: list[int], wait_s: float = 0.0, caller_s: float = 0.0, **how: Any) -> list[int]:
    """Offsets of the records of [0, 4) with a timeout of 30 s, where the caller takes so long for each lot."""
    clock = FakeClock()
    consumer = cast("Consumer", ScriptedConsumer(clock, counts, wait_s))
    found: list[int] = []
    for batch in AssignedRanges([OffsetRange("t", 0, 0, 4)]).batches(consumer, clock, 30.0, 1000, **how):
        found += [record.offset for record in batch]
        clock.sleep(caller_s)
    return found


def test_what_comes_in_time_is_read_however_long_all_of_it_takes() -> None:
    assert _read([1, 1, 1, 1], wait_s=29.0) == [0, 1, 2, 3]


def test_where_nothing_comes_for_too_long_it_is_reported() -> None:
    with pytest.raises(Silence):
        _read([3])


def test_the_time_that_the_caller_takes_is_not_silence() -> None:
    assert _read([2, 0, 2], caller_s=60.0) == [0, 1, 2, 3]


def test_all_records_may_have_to_come_in_time() -> None:
    assert _read([2, 2], wait_s=29.0, is_for_all=True) == [0, 1, 2, 3]
    with pytest.raises(Silence):
        _read([1, 1, 2], wait_s=29.0, is_for_all=True)


def test_what_is_not_asked_for_is_left_out_and_how_far_is_read_is_known() -> None:
    clock, asked = FakeClock(), AssignedRanges([OffsetRange("t", 0, 0, 4), OffsetRange("t", 1, 7, 7)])
    batches = asked.batches(cast("Consumer", ScriptedConsumer(clock, [3, 3], 0.0)), clock, 30.0, 1000)
    assert [record.offset for record in next(batches)] == [0, 1, 2]
    assert (asked.is_read, asked.reached) == (False, {("t", 0): 3, ("t", 1): 7})
    assert [record.offset for batch in batches for record in batch] == [3]
    assert (asked.is_read, asked.reached) == (True, {("t", 0): 4, ("t", 1): 7})


class Electing(ScriptedConsumer):
    """A consumer of a partition whose new leader knows of three records at first: it reports that the partition ends
    there.
    """

    def consume(self, most: int, timeout: float) -> list[Message]:
        if self._next == 3 and not self._has_reported:
            self._has_reported = True
            return [Message("t", 0, 3, error=KafkaError(KafkaError._PARTITION_EOF))]
        return super().consume(most, timeout)

    _has_reported = False


def test_what_a_new_leader_does_not_know_of_yet_is_waited_for() -> None:
    clock, asked = FakeClock(), AssignedRanges([OffsetRange("t", 0, 0, 4)], is_strict=True)
    batches = asked.batches(cast("Consumer", Electing(clock, [3, 0, 1], 0.0)), clock, 30.0, 1000)
    assert [record.offset for batch in batches for record in batch] == [0, 1, 2, 3]
    assert asked.is_read


def test_what_nobody_has_any_more_is_no_part_that_was_read() -> None:
    clock, asked = FakeClock(), AssignedRanges([OffsetRange("t", 0, 0, 4)], is_strict=True)
    with pytest.raises(Silence):
        list(asked.batches(cast("Consumer", Electing(clock, [3], 0.0)), clock, 30.0, 1000))
    assert asked.reached == {("t", 0): 3}


def test_a_partition_that_ends_where_its_range_does_is_read_without_its_last_record() -> None:
    clock, asked = FakeClock(), AssignedRanges([OffsetRange("t", 0, 0, 3)], is_strict=True)
    batches = asked.batches(cast("Consumer", Electing(clock, [1, 2], 0.0)), clock, 30.0, 1000)
    assert [record.offset for batch in batches for record in batch] == [0, 1, 2]
    assert (asked.is_read, asked.reached) == (True, {("t", 0): 3})


def test_records_before_the_range_are_none_of_it() -> None:
    """Where the offset is gone the consumer begins at the first record that there is."""
    clock, asked = FakeClock(), AssignedRanges([OffsetRange("t", 0, 2, 4)])
    batches = asked.batches(cast("Consumer", ScriptedConsumer(clock, [4], 0.0)), clock, 30.0, 1000)
    assert [record.offset for batch in batches for record in batch] == [2, 3]


def test_where_holes_do_no_harm_a_partition_is_read_to_its_end() -> None:
    clock, asked = FakeClock(), AssignedRanges([OffsetRange("t", 0, 0, 4)])
    batches = asked.batches(cast("Consumer", Electing(clock, [3], 0.0)), clock, 30.0, 1000)
    assert [record.offset for batch in batches for record in batch] == [0, 1, 2]
    assert asked.is_read


class Confused(ScriptedConsumer):
    """A consumer whose broker says once that offset 2 is out of range. low: the first offset that the partition has."""

    def __init__(self, clock: FakeClock, counts: list[int], low: int) -> None:
        super().__init__(clock, counts, 0.0)
        self._low = low
        self._has_refused = False

    def assign(self, partitions: list[TopicPartition]) -> None:
        (self._next,) = (one.offset for one in partitions)

    def get_watermark_offsets(self, _partition: TopicPartition, _timeout: float) -> tuple[int, int]:
        return self._low, 4

    def consume(self, most: int, timeout: float) -> list[Message]:
        if self._next == 2 and not self._has_refused:
            self._has_refused, self._next = True, 99
            return [Message("t", 0, 2, error=KafkaError(KafkaError._AUTO_OFFSET_RESET))]
        return super().consume(most, timeout)


def test_an_offset_that_a_broker_takes_for_out_of_range_is_read_where_its_record_is_there() -> None:
    clock, asked = FakeClock(), AssignedRanges([OffsetRange("t", 0, 0, 4)], is_strict=True)
    batches = asked.batches(cast("Consumer", Confused(clock, [2, 2], low=0)), clock, 30.0, 1000)
    assert [record.offset for batch in batches for record in batch] == [0, 1, 2, 3]
    assert asked.is_read


def test_an_offset_that_is_gone_is_an_error() -> None:
    clock, asked = FakeClock(), AssignedRanges([OffsetRange("t", 0, 0, 4)], is_strict=True)
    with pytest.raises(KafkaException):
        list(asked.batches(cast("Consumer", Confused(clock, [2, 2], low=3)), clock, 30.0, 1000))
