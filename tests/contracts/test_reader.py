"""The RecordReader port, on memory and on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from frazil.clock import new_id
from frazil.errors import UnavailableError
from frazil.kafka.port import ReadRecord, RecordReader
from frazil.kafka.reader import KafkaReader
from frazil.runtime.broker import EmbeddedBroker
from frazil.types import OffsetRange
from frazil_testing.memory_kafka import MemorySource

PLENTY = 1_000_000
Headers = tuple[tuple[str, bytes | None], ...]


class Log(Protocol):
    """A topic of two partitions and the reader of it."""

    topic: str

    @property
    def reader(self) -> RecordReader:
        """The port."""

    def produce(self, partition: int, *values: bytes | None, is_kept: bool = True) -> None:
        """Appends records of one transaction; those that are not kept are aborted."""

    def write(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        """Appends a record of no transaction to partition 1; its timestamp is 1,000."""

    def trim(self, partition: int, offset: int) -> None:
        """Forgets the records before an offset."""


class MemoryLog:
    """The twin. A transaction leaves a mark behind it, and what is aborted a gap."""

    def __init__(self) -> None:
        self.topic = "t"
        self.reader = MemorySource()
        self.reader.create(self.topic, 2)
        self._gaps = {0: 0, 1: 0}

    def produce(self, partition: int, *values: bytes | None, is_kept: bool = True) -> None:
        if not is_kept:
            self._gaps[partition] += len(values) + 1
            return
        for value in values:
            headers = (("h", b"x"),)
            self.reader.produce(self.topic, partition, value, 1000, self._gaps[partition], headers=headers)
            self._gaps[partition] = 0
        self._gaps[partition] = 1

    def write(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        self.reader.produce(self.topic, 1, value, 1000, self._gaps[1], key=key, headers=headers)
        self._gaps[1] = 0

    def trim(self, partition: int, offset: int) -> None:
        self.reader.trim(self.topic, partition, offset)


class BrokerLog:
    """A real broker."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        servers: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers}
        self.topic = f"t-{new_id()}"
        self.reader = KafkaReader(servers)
        self._admin = AdminClient(dict(servers))
        for future in self._admin.create_topics([NewTopic(self.topic, 2, 1)]).values():
            future.result()
        self._producer = Producer({**servers, "transactional.id": self.topic})
        self._producer.init_transactions(30)
        self._plain = Producer({**servers, "enable.idempotence": True})

    def produce(self, partition: int, *values: bytes | None, is_kept: bool = True) -> None:
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(self.topic, value, partition=partition, timestamp=1000, headers=[("h", b"x")])
        if is_kept:
            self._producer.commit_transaction(30)
        else:
            self._producer.flush(30)
            self._producer.abort_transaction(30)

    def write(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        self._plain.produce(self.topic, value, key, partition=1, timestamp=1000, headers=list(headers))
        self._plain.flush()

    def trim(self, partition: int, offset: int) -> None:
        for future in self._admin.delete_records([TopicPartition(self.topic, partition, offset)]).values():
            future.result()


@pytest.fixture(params=["memory", pytest.param("broker", marks=pytest.mark.jvm)])
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    if request.param == "memory":
        yield MemoryLog()
        return
    log = BrokerLog(request.getfixturevalue("broker"))
    yield log
    log.reader.close()


def _read(log: Log, *ranges: tuple[int, int, int], enough: int = PLENTY) -> tuple[list[tuple[int, int]], list[int]]:
    """Places of the records, and how far each partition is read."""
    asked = [OffsetRange(log.topic, *r) for r in ranges]
    records, reached = log.reader.read(asked, enough)
    return sorted((r.partition, r.offset) for r in records), [reached[log.topic, r[0]] for r in ranges]


def _lots(log: Log, start: int, end: int, partition: int = 1) -> list[ReadRecord]:
    return [record for batch in log.reader.batches(OffsetRange(log.topic, partition, start, end)) for record in batch]


def test_exact_ranges_of_several_partitions_again_and_again(log: Log) -> None:
    log.produce(0, b"a", b"b", b"c")
    log.produce(1, b"d", None)
    assert _read(log, (0, 1, 3), (1, 0, 2)) == ([(0, 1), (0, 2), (1, 0), (1, 1)], [3, 2])
    assert _read(log, (0, 0, 1)) == ([(0, 0)], [1])
    assert _read(log, (0, 2, 2)) == ([], [2])
    assert log.reader.read([OffsetRange(log.topic, 1, 1, 2)], PLENTY)[0] == [
        ReadRecord(log.topic, 1, 1, None, 1000, (("h", b"x"),))
    ]


def test_what_was_aborted_is_skipped_also_at_the_end(log: Log) -> None:
    log.produce(0, b"a")
    log.produce(0, b"x", b"y", is_kept=False)
    log.produce(0, b"b")
    assert _read(log, (0, 0, 6)) == ([(0, 0), (0, 5)], [6])
    assert _read(log, (0, 0, 4)) == ([(0, 0)], [4])
    assert _read(log, (0, 1, 7)) == ([(0, 5)], [7])


def test_more_than_enough_is_read_in_pieces_without_a_gap(log: Log) -> None:
    values = [bytes(2000)] * 3000
    log.produce(0, *values)
    at, places = 0, []
    while at < 3000:
        found, [reached] = _read(log, (0, at, 3000), enough=100_000)
        assert at < reached <= 3000
        places += found
        at = reached
    assert places == [(0, offset) for offset in range(3000)]


def test_records_that_are_gone_are_an_outage_and_others_can_be_read_after_it(log: Log) -> None:
    log.produce(0, b"a", b"b", b"c")
    log.trim(0, 2)
    with pytest.raises(
        UnavailableError, match=r"^(offsets are gone|the records from offset 0 up to 2 no longer exist)"
    ):
        _read(log, (0, 0, 3))
    assert _read(log, (0, 2, 3)) == ([(0, 2)], [3])


def test_a_record_has_all_that_kafka_has_of_it(log: Log) -> None:
    headers = (("h", b"1"), ("none", None), ("h", b"2"))
    log.write(b"k", b"v", headers)
    log.write(None, None)
    log.write(b"", b"")
    there = [
        ReadRecord(log.topic, 1, 0, b"v", 1000, headers, b"k"),
        ReadRecord(log.topic, 1, 1, None, 1000),
        ReadRecord(log.topic, 1, 2, b"", 1000, key=b""),
    ]
    assert _lots(log, 0, 3) == there
    assert log.reader.read([OffsetRange(log.topic, 1, 0, 3)], PLENTY)[0] == there


def test_in_lots_only_the_range_is_read_in_its_order(log: Log) -> None:
    for number in range(20):
        log.write(b"k", str(number).encode())
    assert [record.value for record in _lots(log, 5, 17)] == [str(number).encode() for number in range(5, 17)]
    assert _lots(log, 7, 7) == []
    assert _lots(log, 0, 9, partition=0) == []
    assert [record.offset for record in _lots(log, 18, 40)] == [18, 19]


def test_in_lots_gaps_are_skipped_also_at_the_end(log: Log) -> None:
    log.write(b"k", b"a")
    log.produce(1, b"never", is_kept=False)
    log.write(b"k", b"b")
    log.produce(1, b"never", is_kept=False)
    found = _lots(log, 0, 100)
    assert [record.value for record in found] == [b"a", b"b"]
    last = found[-1].offset
    assert [record.value for record in _lots(log, 1, last + 1)] == [b"b"]
    assert [record.value for record in _lots(log, 0, last)] == [b"a"]


def test_in_lots_of_a_range_whose_beginning_is_gone_the_rest_is_read(log: Log) -> None:
    for number in range(6):
        log.write(b"k", str(number).encode())
    log.trim(1, 4)
    assert [record.offset for record in _lots(log, 1, 6)] == [4, 5]
    assert _lots(log, 0, 3) == []


def test_in_lots_of_a_range_that_begins_behind_the_log_nothing_is_read(log: Log) -> None:
    log.write(b"k", b"a")
    assert _lots(log, 500, 502) == []


def test_a_read_that_is_left_is_no_part_of_the_next_one(log: Log) -> None:
    for number in range(3000):
        log.write(b"k", str(number).encode())
    lots = log.reader.batches(OffsetRange(log.topic, 1, 0, 3000))
    first = next(iter(lots))
    assert [record.offset for record in first] == list(range(len(first)))
    places, [reached] = _read(log, (1, 0, 3000), enough=1)
    assert places == [(1, offset) for offset in range(reached)]
    assert reached
    assert [record.offset for record in _lots(log, 2998, 3000)] == [2998, 2999]
    assert [record.offset for lot in lots for record in lot] == list(range(len(first), 3000))


@pytest.mark.parametrize("way", ["read", "batches"])
@pytest.mark.parametrize("kind", ["memory", pytest.param("broker", marks=pytest.mark.jvm)])
def test_a_broker_that_is_gone_is_an_outage(kind: str, way: str) -> None:
    reader: RecordReader
    if kind == "memory":
        reader = source = MemorySource()
        source.create("t")
        source.is_down = True
    else:
        reader = KafkaReader({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=1.5)
    wanted = OffsetRange("t", 0, 0, 5)
    # The reader does not know what for: transactions, dead letters, comparisons.
    with pytest.raises(UnavailableError, match=r"^(?!.*transaction)"):
        reader.read([wanted], PLENTY) if way == "read" else list(reader.batches(wanted))
