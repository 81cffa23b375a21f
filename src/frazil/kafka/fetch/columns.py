"""Arrow columns that records are appended to, as many as one read hands over at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.kafka.fetch.batches import (
    DAMAGED,
    DONE,
    FULL,
    HEADERS_NEED,
    I64,
    KEY_NEEDS,
    NAMES_NEED,
    ROW,
    ROWS,
    VALUE_NEEDS,
    read_records,
)
from frazil.kafka.fetch.legacy import Message
from frazil.kafka.port import FARTHEST_MS, NO_TIMESTAMP_MS

LEFT_OUT = "left_out"
"""The column with the sizes of values that were left out, int64, 0 for others; only where there is one."""
_BYTES = 8 * 1024 * 1024
_HEADERS = 65_536
_TIMESTAMP = pa.timestamp("us", "UTC")
_HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_SIZE = 7
_DATA, _USED, _MOST_USED, _OFFSETS, _FLAGS, _ENTRIES, _MOST_ENTRIES = range(_SIZE)
"""What `read_records` knows of a byte column."""
_SPARSE = 4
"""Memory of which less than one part of so many is used is not handed over, but copied from."""


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
    #: A batch that takes more bytes than about so many, when it is decompressed, ends its range.
    most_batch_bytes: int = 2**63 - 1
    #: The largest number of records that are handed over at a time.
    most_records: int = 20_000


class DamagedRecord(Exception):
    """A record that is none; the batch that it is in has this row of the table."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


class _ByteColumn:
    """Bytes or texts, some of them null."""

    def __init__(self, most_entries: int) -> None:
        self._least_entries = most_entries
        #: What `read_records` knows of it.
        self.head: I64 = np.zeros(_SIZE, np.int64)
        self._data, self._offsets, self._is_null = np.empty(0, np.uint8), np.empty(0, np.int32), np.empty(0, np.uint8)

    def make_room(self, n_bytes: int = 0, entries: int = 0) -> None:
        """Has room for so much at least. Only while it is empty."""
        n_bytes, entries = max(n_bytes, _BYTES), max(entries, self._least_entries)
        if self._data.size < n_bytes:
            self._data = np.empty(n_bytes, np.uint8)
            self.head[_DATA], self.head[_MOST_USED] = self._data.ctypes.data, self._data.size
        if self._is_null.size < entries:
            self._offsets, self._is_null = np.empty(entries + 1, np.int32), np.empty(entries, np.uint8)
            self._offsets[0] = 0
            self.head[_OFFSETS], self.head[_FLAGS] = self._offsets.ctypes.data, self._is_null.ctypes.data
            self.head[_MOST_ENTRIES] = self._is_null.size
        self.head[_USED] = self.head[_ENTRIES] = 0

    def take_all(self) -> pa.BinaryArray:
        """Returns what it has, and is empty."""
        count, used = int(self.head[_ENTRIES]), int(self.head[_USED])
        is_null, data = self._is_null[:count], self._data[:used]
        validity = pa.py_buffer(np.packbits(is_null == 0, bitorder="little")) if is_null.any() else None
        is_sparse = used * _SPARSE < self._data.size
        if is_sparse:
            data = data.copy()
        if not is_sparse or self._data.size > _BYTES:
            self._data = np.empty(0, np.uint8)
        buffers = [validity, pa.py_buffer(self._offsets[: count + 1].copy()), pa.py_buffer(data)]
        if self._is_null.size > self._least_entries:
            self._is_null = np.empty(0, np.uint8)
        self.make_room()
        return pa.Array.from_buffers(pa.binary(), count, buffers)


_UNWANTED: I64 = np.zeros(_SIZE, np.int64)


class Columns:
    """Records of one topic at a time, until they are handed over."""

    def __init__(self, wanted: Wanted) -> None:
        rows = wanted.most_records
        #: The topic of the records.
        self.topic = ""
        #: The number of records.
        self.count = 0
        self._wanted = wanted
        self._values, self._keys = (_ByteColumn(rows) if name in wanted.columns else None for name in ("value", "key"))
        has_headers = "headers" in wanted.columns
        self._names, self._contents = (_ByteColumn(_HEADERS) if has_headers else None for _ in range(2))
        self._heads = []
        for column in (self._values, self._keys, self._names, self._contents):
            if column is not None:
                column.make_room()
            self._heads.append(_UNWANTED if column is None else column.head)
        self._lists = np.zeros(rows + 1, np.int32)
        self._offsets, self._times = (np.empty(rows, np.int64) for _ in range(2))
        self._left_out = np.zeros(rows, np.int64)
        encoded = [np.frombuffer(name.encode(), np.uint8) for name in wanted.headers]
        self._kept_names = encoded  # What the addresses are of.
        self._wanted_names: I64 = np.array(
            [n for name_bytes in encoded for n in (name_bytes.ctypes.data, name_bytes.size)], np.int64
        )
        self._partitions: list[tuple[int, int]] = []

    def take(self, partition: int, table: I64, state: I64, start: int, end: int) -> bool:
        """Appends the records of batches of one partition with offsets from `start` up to `end`: see `read_records`, whose
        `state` is kept by the caller. Returns whether all are appended; this object is to be emptied otherwise.

        Raises: DamagedRecord.
        """
        while True:
            state[ROWS] = self.count
            how = read_records(
                table,
                state,
                start,
                end,
                self._wanted.most_value_bytes,
                *self._heads,
                self._wanted_names,
                self._lists,
                self._offsets,
                self._times,
                self._left_out,
            )
            if how == DAMAGED:
                raise DamagedRecord(int(state[ROW]))
            count = int(state[ROWS])
            if count > self.count:
                self._partitions.append((partition, count - self.count))
                self.count = count
            if how == DONE:
                return True
            if how == FULL or self.count:
                return False
            self._make_room(state)

    def _make_room(self, state: I64) -> None:
        """For the next record, which no others of usual size left room for."""
        value, key, headers, entries = (int(state[n]) for n in (VALUE_NEEDS, KEY_NEEDS, HEADERS_NEED, NAMES_NEED))
        needs = ((self._values, value, 0), (self._keys, key, 0))
        for column, n_bytes, count in (*needs, (self._names, headers, entries), (self._contents, headers, entries)):
            if column is not None:
                column.make_room(n_bytes, count)

    def last_of(self, partition: int) -> int | None:
        """Returns the offset of the last record, where it is of this partition."""
        is_last = bool(self._partitions) and self._partitions[-1][0] == partition
        return int(self._offsets[self.count - 1]) if is_last else None

    def take_all(self) -> pa.RecordBatch:
        """Returns the records with the wanted columns, in their order, and is empty."""
        columns = {name: self._column(name) for name in self._wanted.columns}
        left_out = self._left_out[: self.count]
        if self._values is not None and left_out.any():
            columns[LEFT_OUT] = pa.array(left_out.copy())
        self._partitions, self.count = [], 0
        return pa.RecordBatch.from_pydict(columns)

    def _column(self, name: str) -> pa.Array:
        if name == "value":
            assert self._values is not None
            return self._values.take_all()
        if name == "key":
            assert self._keys is not None
            return self._keys.take_all()
        if name == "headers":
            return self._headers()
        if name == "topic":
            return pa.repeat(pa.scalar(self.topic), self.count)
        if name == "partition":
            numbers, counts = (np.array(some, np.int32) for some in zip(*self._partitions, strict=True))
            return pa.array(np.repeat(numbers, counts))
        if name == "offset":
            return pa.array(self._offsets[: self.count].copy())
        return timestamps(self._times[: self.count])

    def _headers(self) -> pa.ListArray:
        assert self._names is not None
        assert self._contents is not None
        pairs = pa.StructArray.from_arrays(
            [_texts(self._names.take_all()), self._contents.take_all()], ["key", "value"]
        )
        ends = self._lists[: self.count + 1].copy()
        is_none = ends[1:] == ends[:-1]
        mask = pa.array(is_none) if is_none.any() else None
        return pa.ListArray.from_arrays(pa.array(ends), pairs, mask=mask)


def batch_of(topic: str, partition: int, messages: Sequence[Message], wanted: Wanted) -> pa.RecordBatch:
    """Returns messages, which have no headers, with the wanted columns."""
    count = len(messages)
    sizes = [len(message.value or b"") for message in messages]
    left_out = [size if size > wanted.most_value_bytes else 0 for size in sizes]
    columns: dict[str, Callable[[], pa.Array]] = {
        "topic": lambda: pa.repeat(pa.scalar(topic), count),
        "partition": lambda: pa.repeat(pa.scalar(partition, pa.int32()), count),
        "offset": lambda: pa.array([message.offset for message in messages], pa.int64()),
        "timestamp": lambda: timestamps(np.array([message.timestamp_ms for message in messages], np.int64)),
        "key": lambda: pa.array([message.key for message in messages], pa.binary()),
        "headers": lambda: pa.nulls(count, _HEADERS_TYPE),
        "value": lambda: pa.array(
            [None if out else message.value for message, out in zip(messages, left_out, strict=True)], pa.binary()
        ),
    }
    arrays = {name: columns[name]() for name in wanted.columns}
    if "value" in arrays and any(left_out):
        arrays[LEFT_OUT] = pa.array(left_out, pa.int64())
    return pa.RecordBatch.from_pydict(arrays)


def timestamps(times_ms: NDArray[np.int64]) -> pa.TimestampArray:
    """Returns Kafka's timestamps (ms) as microseconds, UTC, as `timestamp_of`: the nearest for those that do not fit."""
    micros = np.clip(times_ms, -FARTHEST_MS, FARTHEST_MS) * 1000
    return pa.array(micros.view("M8[us]"), _TIMESTAMP, mask=times_ms == NO_TIMESTAMP_MS)


def _texts(names: pa.BinaryArray) -> pa.StringArray:
    """Returns the names of headers: Kafka does not check that they are UTF-8."""
    try:
        return pc.cast(names, pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
