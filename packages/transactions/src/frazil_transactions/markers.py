"""Transactions in records: those of each change with its position, and the events of Debezium's transaction topic."""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType

from frazil.cdc.envelope import ROW, opened_fields
from frazil.cdc.positions import normalize_id, normalize_ids
from frazil.decode.json.slices import MAX_MISMATCHES
from frazil.decode.settings import Envelope, Reading
from frazil.errors import RecordError, UnavailableError
from frazil.kafka.port import Partition, ReadRecord, RecordReader, Source
from frazil.rows.decoder import decode_values
from frazil.schema.arrow import arrow_type
from frazil.schema.selection import NOTHING_DECLARED
from frazil.types import OffsetRange
from frazil.write.target import METADATA_TYPES
from frazil_transactions.runs import Mark

_MARGIN_MS = 60_000
_ENOUGH_BYTES = 4 * 1024 * 1024
# With more offsets than this to read, a request for the offset of a timestamp costs less.
_FAR_BEHIND = 200_000


@dataclass(frozen=True)
class Event:
    """The BEGIN or END event of a transaction."""

    #: The transaction's id.
    transaction: str
    #: When the event was written, in milliseconds since the epoch.
    at_ms: int
    #: Whether this is the END event.
    is_end: bool
    #: The number of changes of the table's topic in the transaction, of an END event; None where it has none.
    count: int | None = None


class TransactionEnds:
    """Reads the topic of transactions, and counts the changes of transactions with one BEGIN and an END."""

    def __init__(
        self,
        topic: str,
        source: Source,
        reader: RecordReader,
        read_events: Callable[[Sequence[ReadRecord]], list[Event]],
    ) -> None:
        """Reads `topic`; `read_events` returns the events of its records."""
        #: The number of changes of each transaction that has begun once and has ended, by id.
        self.counts: dict[str, int] = {}
        self._topic = topic
        self._source = source
        self._reader = reader
        self._read_events = read_events
        self._partitions: list[Partition] = []
        self._next: dict[Partition, int] = {}
        self._since_ms: int | None = None
        self._read_to_ms: dict[Partition, int] = {}
        self._begun: dict[str, int] = {}
        self._ended: list[tuple[int, str, int]] = []

    def read_on(self, unknown: set[str], since_ms: int) -> None:
        """Reads on until all of these transactions are known, or to the end of the topic. since_ms: the timestamp of
        the first of their changes in milliseconds since the epoch; 0 where it is not known.

        Raises: UnavailableError when the topic does not exist, or Kafka does not answer.
        """
        ends = self._begin(since_ms)
        while not unknown <= self.counts.keys():
            ranges = [OffsetRange(*p, self._next[p], ends[p]) for p in self._next if self._next[p] < ends.get(p, 0)]
            if not ranges:
                self._partitions = []  # The next read looks for new partitions.
                return
            records, reached = self._reader.read(ranges, _ENOUGH_BYTES)
            for record in records:
                self._read_to_ms[record.topic, record.partition] = record.timestamp_ms or 0
            for event in self._read_events(records):
                self._take(event)
            self._next |= reached
            behind = [self._read_to_ms.get(p, 0) for p, end in ends.items() if self._next[p] < end]
            # Every partition is read up to this time: each BEGIN of the transactions that ended before has been read.
            at_ms = min(behind, default=None)
            while self._ended and (at_ms is None or self._ended[0][0] < at_ms):
                _, name, count = heapq.heappop(self._ended)
                if self._begun.get(name, 1) == 1:
                    self.counts[name] = max(count, self.counts.get(name, 0))

    def forget(self, transactions: set[str]) -> None:
        """Forgets transactions that are committed to the table."""
        for transaction in transactions:
            self.counts.pop(transaction, None)
            self._begun.pop(transaction, None)

    def _take(self, event: Event) -> None:
        name = event.transaction
        if not event.is_end:
            self._begun[name] = self._begun.get(name, 0) + 1
            if self._begun[name] > 1:
                self.counts.pop(name, None)
        elif event.count is not None:
            heapq.heappush(self._ended, (event.at_ms, name, event.count))
        elif self._begun.get(name) == 1:
            del self._begun[name]

    def _begin(self, since_ms: int) -> dict[Partition, int]:
        """Returns the ends of the topic, and sets the offset at which each partition is read on."""
        if not self._partitions:
            topic = self._source.topics(lambda name: name == self._topic).get(self._topic)
            if topic is None:
                raise UnavailableError(
                    f"topic {self._topic} does not exist",
                    remedy="set `provide.transaction.metadata` to true at Debezium's connector, or correct the name",
                    where=f"topic {self._topic}",
                )
            self._partitions = [(self._topic, number) for number in range(topic.partition_count)]
        if self._since_ms is None or since_ms < self._since_ms - _MARGIN_MS // 2:
            self._since_ms, self._next = since_ms, {}
            self._begun, self._ended, self._read_to_ms = {}, [], {}
        ends, beginnings = self._source.ends(self._partitions), self._source.beginnings(self._partitions)
        behind = sum(end - self._next[p] for p, end in ends.items() if p in self._next)
        if since_ms and (behind > _FAR_BEHIND or ends.keys() - self._next.keys()):
            beginnings |= self._source.at_time(dict.fromkeys(ends, since_ms - _MARGIN_MS))
        for partition, end in ends.items():
            self._next[partition] = min(max(self._next.get(partition, 0), beginnings.get(partition, 0)), end)
        return ends


_FACTS = ("transaction_id", "total_order", "source_transaction", "commit_place")
_CHANGES = ("c", "u", "d", "t")
_NOT_OF_TOPICS = re.compile(r"[^A-Za-z0-9._-]")
_COUNT = StructType(
    NestedField(0, "data_collection", StringType(), required=False),
    NestedField(0, "event_count", LongType(), required=False),
)
_EVENT_FIELDS = (
    NestedField(0, "status", StringType(), required=False),
    NestedField(0, "id", StringType(), required=False),
    NestedField(0, "data_collections", ListType(0, _COUNT, element_required=False), required=False),
)


def reading_of_marks(reading: Reading, envelope: Envelope) -> Reading:
    """Returns the settings with which only the transaction fields of records are read."""
    bare = Envelope(envelope.kind, placeholder=envelope.placeholder)
    return replace(
        reading, envelope=bare, unknown_fields="drop", is_rescuing=False, selection=None, declared=NOTHING_DECLARED
    )


def read_marks(
    reading: Reading, records: Sequence[ReadRecord], has_events: bool, is_strict: bool = True
) -> tuple[Iterator[Mark], frozenset[str]]:
    """Returns the changes among the records, in their order, and the ids of schemas that were missing. Rows of
    snapshots, tombstones and bad records are left out. The records are read with the settings of `reading_of_marks`.

    has_events: whether a change must have the transaction id of Debezium's own events, so that changes can be counted.
    is_strict: whether iterating over the changes raises RecordError for one without its transaction or its position;
    otherwise such changes are left out.
    """
    assert reading.envelope is not None
    fields = opened_fields(reading.envelope, (), _FACTS)
    decoded = decode_values(reading, fields, _columns_of(records), MAX_MISMATCHES)
    by_name = dict(zip((field.name for field in fields), decoded.columns, strict=True))
    is_change = np.asarray(pc.is_in(by_name["op"], pa.array(_CHANGES))) & ~decoded.refused
    is_change &= np.asarray(pc.fill_null(pc.less_equal(by_name["record_kind"], ROW), False))
    ids = by_name["transaction_id"]
    if not has_events:
        ids = pc.coalesce(ids, by_name["source_transaction"])
    rows = np.flatnonzero(is_change)
    facts = (normalize_ids(ids), by_name["commit_place"], by_name["total_order"])
    columns = [column.take(pa.array(rows)).to_pylist() for column in facts]
    changes = ((records[row], *of_change) for row, *of_change in zip(rows.tolist(), *columns, strict=True))
    if not is_strict:
        changes = (change for change in changes if not _lacks(*change[1:], has_events=has_events))
    return (_mark(*change, has_events=has_events) for change in changes), frozenset(decoded.missing)


def _lacks(transaction: str | None, place: str | None, order: int | None, *, has_events: bool) -> bool:
    return transaction is None or place is None or (order is None and has_events)


def _mark(
    record: ReadRecord, transaction: str | None, place: str | None, order: int | None, *, has_events: bool
) -> Mark:
    if transaction is None or (order is None and has_events):
        raise _incomplete(
            record,
            "the change does not name its transaction",
            "set `provide.transaction.metadata` to true at Debezium's connector, or write `atomic: batch`",
        )
    if place is None:
        raise _incomplete(
            record,
            "the change does not have its position in the source's commit order",
            "write `atomic: batch`: `atomic: transaction` supports PostgreSQL, MySQL, MariaDB and SQL Server",
        )
    return Mark((record.topic, record.partition), record.offset, record.timestamp_ms or 0, transaction, place, order)


def _incomplete(record: ReadRecord, message: str, remedy: str) -> RecordError:
    return RecordError(message, topic=record.topic, partition=record.partition, offset=record.offset, remedy=remedy)


def read_events(reading: Reading, records: Sequence[ReadRecord], *topics: str) -> tuple[list[Event], frozenset[str]]:
    """Returns the events in records of Debezium's topic of transactions, with the numbers of changes in `topics`, and
    the ids of schemas that were missing. Records that are no such events are ignored.
    """
    if reading.format == "json":
        events = [(record.timestamp_ms or 0, _parsed(record.value)) for record in records if record.value is not None]
        return list(_events(events, topics)), frozenset()
    plain = replace(
        reading, envelope=None, unknown_fields="drop", is_rescuing=False, selection=None, declared=NOTHING_DECLARED
    )
    decoded = decode_values(plain, _EVENT_FIELDS, _columns_of(records), MAX_MISMATCHES)
    columns = [column.to_pylist() for column in decoded.columns]
    names = [field.name for field in _EVENT_FIELDS]
    rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
    times = (record.timestamp_ms or 0 for record in records)
    return list(_events(zip(times, rows, strict=True), topics)), frozenset(decoded.missing)


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if isinstance(event, dict) and isinstance(event.get("payload"), dict):
        event = event["payload"]
    return event if isinstance(event, dict) else {}


def _events(events: Iterable[tuple[int, dict[str, Any]]], topics: Sequence[str]) -> Iterator[Event]:
    for at_ms, event in events:
        name, status = event.get("id"), event.get("status")
        if not isinstance(name, str) or status not in ("BEGIN", "END"):
            continue
        try:
            mine = [
                int(collection["event_count"])
                for collection in event.get("data_collections") or ()
                if any(_is_of(topic, collection) for topic in topics)
            ]
        except (KeyError, TypeError, ValueError, OverflowError):
            continue  # Something else has an id and a status of these names.
        yield Event(normalize_id(name), at_ms, status == "END", sum(mine) if mine else None)


def _is_of(topic: str, counted: Mapping[str, Any]) -> bool:
    """Whether the counted changes are of this topic's source table: `<prefix>.<table>`, spelled as a topic."""
    name = _NOT_OF_TOPICS.sub("_", counted["data_collection"])
    return topic == name or topic.endswith(f".{name}")


def _columns_of(records: Sequence[ReadRecord]) -> dict[str, pa.Array]:
    headers = [[{"key": name, "value": held} for name, held in record.headers] for record in records]
    return {
        "value": pa.array([record.value for record in records], pa.binary()),
        "headers": pa.array(headers, arrow_type(METADATA_TYPES["headers"])),
    }
