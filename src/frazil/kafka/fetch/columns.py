"""Arrow columns that records are appended to, as many as one read hands over at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.kafka.fetch.batches import DAMAGED, FULL, I64, NEEDS_BYTES, read_records
from frazil.kafka.fetch.legacy import Message
from frazil.kafka.port import FARTHEST_MS, NO_TIMESTAMP_MS

LEFT_OUT = "left_out"
"""The column with the sizes of values that were left out, int64, 0 for others; only where there is one."""
_BYTES = 8 * 1024 * 1024
_HEADERS = 65_536
_TIMESTAMP = pa.timestamp("us", "UTC")
_SIZE = 7  # Of what `read_records` knows of a byte column.
_USED, _ENTRIES = 1, 5


@dataclass(frozen=True)
class Wanted:
    """What is wanted of records."""

    #: Of `topic` (text), `partition` (int32), `offset` (int64), `timestamp` (microseconds, UTC; null without one), `key` and
    #: `value` (bytes), `headers` (list of structs of `key`, text, and `value`, bytes; null without any).
    columns: tuple[str, ...]
    #: The names of the headers that are kept; all are where it is empty.
    headers: tuple[str, ...] = ()
    #: A value with more bytes is left out.
    most_value_bytes: int = 2**31 - 1
    #: The largest number of records that are handed over at a time.
    most_records: int = 20_000
    #: A batch that takes more bytes than about so many, when it is decompressed, ends its range.
    most_batch_bytes: int = 2**63 - 1


class DamagedRecord(Exception):
    """A record that is none; the batch that it is in has this row of the table."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


class _ByteColumn:
    """Bytes or texts, some of them null."""

    def __init__(self, most_bytes: int, most_entries: int) -> None:
        self._data = np.empty(most_bytes, np.uint8)
        self._offsets = np.empty(most_entries + 1, np.int32)
        self._offsets[0] = 0
        self._is_null = np.empty(most_entries, np.uint8)
        #: What `read_records` knows of it.
        self.head: I64 = np.array(
            [
                self._data.ctypes.data,
                0,
                most_bytes,
                self._offsets.ctypes.data,
                self._is_null.ctypes.data,
                0,
                most_entries,
            ]
        )

    def array(self) -> pa.BinaryArray:
        count, used = int(self.head[_ENTRIES]), int(self.head[_USED])
        is_null = self._is_null[:count]
        validity = pa.py_buffer(np.packbits(is_null == 0, bitorder="little")) if is_null.any() else None
        buffers = [validity, pa.py_buffer(self._offsets[: count + 1]), pa.py_buffer(self._data[:used])]
        return pa.Array.from_buffers(pa.binary(), count, buffers)


_UNWANTED: I64 = np.zeros(_SIZE, np.int64)


class Columns:
    """The records of one topic, until they are handed over."""

    def __init__(self, topic: str, wanted: Wanted, least_bytes: int = 0) -> None:
        """least_bytes: the room that the first record needs."""
        rows, most_bytes = wanted.most_records, max(_BYTES, least_bytes)
        #: The topic.
        self.topic = topic
        self._wanted = wanted
        self._values = _ByteColumn(most_bytes, rows)
        self._keys = _ByteColumn(most_bytes, rows) if "key" in wanted.columns else None
        self._names = self._contents = None
        if "headers" in wanted.columns:
            self._names, self._contents = (_ByteColumn(most_bytes, max(_HEADERS, least_bytes)) for _ in range(2))
        self._lists = np.zeros(rows + 1, np.int32)
        self._offsets, self._times, self._left_out = (np.empty(rows, np.int64) for _ in range(3))
        encoded = [np.frombuffer(name.encode(), np.uint8) for name in wanted.headers]
        self._kept_names = encoded  # What the addresses are of.
        self._wanted_names: I64 = np.array([n for one in encoded for n in (one.ctypes.data, one.size)], np.int64)
        self._partitions: list[tuple[int, int]] = []
        #: The number of records.
        self.count = 0

    def take(self, partition: int, table: I64, state: I64, start: int, end: int) -> int:
        """Appends the records of batches of one partition with offsets from `start` up to `end`: see `read_records`, whose
        `state` is kept by the caller. Returns 0 when all are appended, or the bytes that there must be room for: this
        object is full then.

        Raises: DamagedRecord.
        """
        state[3] = self.count
        how = read_records(
            table,
            state,
            start,
            end,
            self._wanted.most_value_bytes,
            self._values.head,
            self._keys.head if self._keys is not None else _UNWANTED,
            self._names.head if self._names is not None else _UNWANTED,
            self._contents.head if self._contents is not None else _UNWANTED,
            self._wanted_names,
            self._lists,
            self._offsets,
            self._times,
            self._left_out,
        )
        if how == DAMAGED:
            raise DamagedRecord(int(state[0]))
        found = int(state[3])
        if found > self.count:
            self._partitions.append((partition, found - self.count))
            self.count = found
        return int(state[4]) if how == NEEDS_BYTES else 1 if how == FULL else 0

    def last_of(self, partition: int) -> int | None:
        """Returns the offset of the last record, where it is of this partition."""
        is_last = bool(self._partitions) and self._partitions[-1][0] == partition
        return int(self._offsets[self.count - 1]) if is_last else None

    def batch(self) -> pa.RecordBatch:
        """Returns the records with the wanted columns, in their order."""
        made = {name: self._column(name) for name in self._wanted.columns}
        if self._left_out[: self.count].any():
            made[LEFT_OUT] = pa.array(self._left_out[: self.count])
        return pa.RecordBatch.from_pydict(made)

    def _column(self, name: str) -> pa.Array:
        if name == "value":
            return self._values.array()
        if name == "key":
            assert self._keys is not None
            return self._keys.array()
        if name == "headers":
            return self._headers()
        if name == "topic":
            return pa.repeat(pa.scalar(self.topic), self.count)
        if name == "partition":
            numbers, counts = (np.array(some, np.int32) for some in zip(*self._partitions, strict=True))
            return pa.array(np.repeat(numbers, counts))
        if name == "offset":
            return pa.array(self._offsets[: self.count])
        return timestamps(self._times[: self.count])

    def _headers(self) -> pa.ListArray:
        assert self._names is not None
        assert self._contents is not None
        pairs = pa.StructArray.from_arrays([_texts(self._names.array()), self._contents.array()], ["key", "value"])
        ends = self._lists[: self.count + 1]
        is_none = ends[1:] == ends[:-1]
        mask = pa.array(is_none) if is_none.any() else None
        return pa.ListArray.from_arrays(pa.array(ends), pairs, mask=mask)


def batch_of(topic: str, partition: int, messages: Sequence[Message], wanted: Wanted) -> pa.RecordBatch:
    """Returns messages, which have no headers, with the wanted columns."""
    count = len(messages)
    times = np.array([one.timestamp_ms for one in messages], np.int64)
    made = {
        "topic": lambda: pa.repeat(pa.scalar(topic), count),
        "partition": lambda: pa.repeat(pa.scalar(partition, pa.int32()), count),
        "offset": lambda: pa.array([one.offset for one in messages], pa.int64()),
        "timestamp": lambda: timestamps(times),
        "key": lambda: pa.array([one.key for one in messages], pa.binary()),
        "headers": lambda: pa.nulls(count, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        "value": lambda: pa.array([one.value for one in messages], pa.binary()),
    }
    return pa.RecordBatch.from_pydict({name: made[name]() for name in wanted.columns})


def timestamps(times_ms: NDArray[np.int64]) -> pa.TimestampArray:
    """Returns Kafka's timestamps (ms) as microseconds, UTC: those that do not fit as the nearest that do (`timestamp_of`)."""
    micros = np.clip(times_ms, -FARTHEST_MS, FARTHEST_MS) * 1000
    return pa.array(micros.view("M8[us]"), _TIMESTAMP, mask=times_ms == NO_TIMESTAMP_MS)


def _texts(names: pa.BinaryArray) -> pa.StringArray:
    """Returns the names of headers: Kafka does not check that they are UTF-8."""
    try:
        return pc.cast(names, pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
