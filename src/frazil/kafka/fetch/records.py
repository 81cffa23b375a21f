"""The records in brokers' answers, as columns.

Batches are found, checked, decompressed, and left out where they are of aborted transactions.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from itertools import chain

import google_crc32c
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.errors import UnavailableError
from frazil.kafka.fetch import codecs
from frazil.kafka.fetch.batches import (
    ATTRIBUTES,
    BASE,
    BEGIN,
    CHECKSUMS,
    CODEC,
    CONTROL,
    COUNT,
    CRC,
    CRC_START,
    END,
    FIELDS,
    FORMAT,
    HEADER_BYTES,
    I64,
    LAST,
    PRODUCER,
    RAW,
    RAW_END,
    STATES,
    TRANSACTIONAL,
    find_batches,
    wrong_checksum,
)
from frazil.kafka.fetch.columns import Columns, DamagedRecord, Wanted, batch_of
from frazil.kafka.fetch.connection import mapped
from frazil.kafka.fetch.legacy import DamagedMessage, Message, messages_of
from frazil.kafka.port import Partition

_SCRATCH_BYTES = 8 * 1024 * 1024
_MOST_SCRATCH_BYTES = 4 * 1024 * 1024 * 1024
_MAPPED_BYTES = 64 * 1024 * 1024
_MOST_BATCHES = 4096
_CRC_PIECE = 16 * 1024 * 1024
_SHORT = 1024
"""Bytes of a batch from which on a call is worth its time, as the processor knows the checksum."""
_LEGACY_BYTES = 8 * 1024 * 1024
_ABORT = 0
_FORMAT = 2


def batches_in(answer: memoryview, start: int, end: int, position: int, place: Partition) -> I64:
    """Returns the table of the whole batches among the bytes from `start` up to `end` of an answer, which may end with a
    part of one. position: the offset that was asked for.

    Raises: UnavailableError for bytes that are not batches.
    """
    base, tables, is_damaged = _address_of(answer), [], False
    while True:
        table = np.zeros((max(1, min(_MOST_BATCHES, (end - start) // HEADER_BYTES)), FIELDS), np.int64)
        count, start, is_damaged = find_batches(base, start, end, table)
        tables.append(table[:count])
        if count < len(table) or is_damaged:
            break
    batches = np.concatenate(tables) if len(tables) > 1 else tables[0]
    lasts = batches[:, LAST]
    is_disordered = bool(len(batches)) and bool(
        (lasts < batches[:, BASE]).any() or (batches[1:, BASE] <= lasts[:-1]).any() or lasts[-1] < position
    )
    if is_disordered:
        _check(place, batches, answer)  # Knows better which one it is.
        raise damaged(place, position, "its offsets are in no order")
    if is_damaged:
        raise damaged(place, int(lasts[-1]) + 1 if len(batches) else position, "its length is none")
    return batches


class TooLargeBatch(Exception):
    """A batch has more bytes than are wanted, when it is decompressed."""


def warm_up() -> None:
    """Loads the compiled loops, for a process that others are forked from; compiles those that are not on disk."""
    nothing = np.zeros((0, FIELDS), np.int64)
    find_batches(0, 0, 0, nothing)
    wrong_checksum(0, nothing, CHECKSUMS, _SHORT)
    Columns(Wanted(("value",))).take(0, nothing, np.zeros(STATES, np.int64), 0, 0)


class FetchedRecords:
    """Records of answers, in the order in which they are added, until they are handed over."""

    def __init__(self, wanted: Wanted, reached: MutableMapping[Partition, int] | None = None) -> None:
        """reached: gets, before records are handed over, the offset up to which those of each partition go by then."""
        self._wanted = wanted
        self._reached = {} if reached is None else reached
        self._columns = Columns(wanted)
        self._scratch: NDArray[np.uint8] = np.empty(0, np.uint8)
        #: How many bytes one compressed byte became in the last batch.
        self._growth = 1.0

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yields what is not handed over yet."""
        if self._columns.count:
            yield self._columns.take_all()

    def add(
        self,
        place: Partition,
        offsets: tuple[int, int],
        table: I64,
        answer: memoryview,
        aborted: tuple[tuple[int, int], ...],
    ) -> Iterator[pa.RecordBatch]:
        """Adds the records of batches that have offsets from `offsets[0]` up to `offsets[1]`, and yields them whenever there
        is no room for more. aborted: transactions, as a broker lists them; none where they are wanted.

        Raises: UnavailableError for a damaged batch, with its first offset; OSError where there is no room for a large one;
        TooLargeBatch for one that is larger than is wanted.
        """
        after = min(offsets[1], int(table[-1, LAST]) + 1)
        if self._columns.topic != place[0]:
            yield from self.flush()
            self._columns.topic = place[0]
        _check(place, table, answer)
        table = table[(table[:, BASE] < offsets[1]) | (table[:, FORMAT] < _FORMAT)]
        table = table[~_unreadable(table, aborted, answer)]
        row = 0
        while row < len(table):
            if table[row, FORMAT] == _FORMAT:
                row, group = self._decompressed(place, table, row, answer)
                yield from self._append(place, offsets, group)
                self._reached[place] = min(offsets[1], int(group[-1, LAST]) + 1)
            else:
                end = row + _run(table[row:, FORMAT] != _FORMAT)
                yield from self.flush()
                yield from self._older(place, offsets, table[row:end], answer)
                row = end
        self._reached[place] = after

    def _append(self, place: Partition, offsets: tuple[int, int], group: I64) -> Iterator[pa.RecordBatch]:
        state = np.zeros(STATES, np.int64)
        try:
            while not self._columns.take(place[1], group, state, *offsets):
                last = self._columns.last_of(place[1])
                if last is not None:
                    self._reached[place] = last + 1
                yield self._columns.take_all()
        except DamagedRecord as error:
            raise damaged(place, int(group[error.row, BASE]), "a record cannot be read") from None

    def _older(
        self, place: Partition, offsets: tuple[int, int], table: I64, answer: memoryview
    ) -> Iterator[pa.RecordBatch]:
        """Yields messages of formats before 0.11."""
        some: list[Message] = []
        n_bytes = 0
        for message in chain.from_iterable(_messages(place, batch, answer) for batch in table):
            if message.offset >= offsets[1]:
                break
            if message.offset >= offsets[0]:
                some.append(message)
                n_bytes += len(message.value or b"") + len(message.key or b"")
            if len(some) >= self._wanted.most_records or n_bytes >= _LEGACY_BYTES:
                self._reached[place] = some[-1].offset + 1
                yield batch_of(*place, some, self._wanted)
                some, n_bytes = [], 0
        if some:
            self._reached[place] = some[-1].offset + 1
            yield batch_of(*place, some, self._wanted)

    def _decompressed(self, place: Partition, table: I64, first: int, answer: memoryview) -> tuple[int, I64]:
        """Decompresses batches, as many as there is room for, and returns the next row and the group."""
        base, used = _address_of(answer), 0
        group = table[first : first + _run(table[first:, FORMAT] == _FORMAT)]
        group[:, RAW], group[:, RAW_END] = base + group[:, BEGIN] + HEADER_BYTES, base + group[:, END]
        is_packed = ((group[:, ATTRIBUTES] & CODEC) != 0) & (group[:, RAW] < group[:, RAW_END])
        packed = np.flatnonzero(is_packed)
        fields = (group[packed, field].tolist() for field in (BEGIN, END, ATTRIBUTES, BASE))
        sizes: list[int] = []
        for row, begin, end, attributes, offset in zip(packed.tolist(), *fields, strict=True):
            size = None
            if not used or self._growth * (end - begin) <= self._scratch.size - used:
                data = answer[begin + HEADER_BYTES : end]
                try:
                    size = self._into_scratch(place, offset, attributes & CODEC, data, used)
                except TooLargeBatch:
                    if row == 0:
                        raise
                    size = None  # What is before it comes first.
            if size is None:
                group = group[:row]
                break
            sizes.append(size)
            used += size
            self._growth = size / (end - begin)
        rows = packed[: len(sizes)]
        ends = self._scratch.ctypes.data + np.cumsum(sizes, dtype=np.int64)
        group[rows, RAW], group[rows, RAW_END] = ends - np.array(sizes, np.int64), ends
        return first + len(group), group

    def _into_scratch(self, place: Partition, offset: int, codec: int, data: memoryview, used: int) -> int | None:
        """Decompresses a batch behind `used` bytes, and returns its size; None where it needs the room of those."""
        if not self._scratch.size:
            self._scratch = np.empty(_SCRATCH_BYTES, np.uint8)
        while True:
            try:
                return codecs.decompress(codec, data, self._scratch[used:])
            except codecs.Damaged as error:
                raise damaged(place, offset, f"{codecs.NAMES.get(codec, 'its codec')}: {error}") from None
            except codecs.NoRoom:
                if used:
                    return None
                if self._scratch.size >= self._wanted.most_batch_bytes:
                    raise TooLargeBatch from None
                size = 4 * self._scratch.size
                if size > _MOST_SCRATCH_BYTES:
                    words = f"it has more than {_MOST_SCRATCH_BYTES} bytes when it is decompressed"
                    raise damaged(place, offset, words) from None
                self._scratch = np.empty(0, np.uint8)  # Before there is more of it.
                self._scratch = (
                    np.empty(size, np.uint8) if size <= _MAPPED_BYTES else np.frombuffer(mapped(size), np.uint8)
                )


def damaged(place: Partition, offset: int, words: str) -> UnavailableError:
    """Returns what is raised for a batch that cannot be read. offset: its first one."""
    return UnavailableError(
        f"a batch of records is damaged: {words}",
        remedy="replace the broker's copy by another replica's; where all are damaged, delete the records up to the batch"
        " with `kafka-delete-records`, and write `on_data_loss: skip`",
        where=f"topic {place[0]}, partition {place[1]}, offset {offset}",
    )


def _address_of(answer: memoryview) -> int:
    return int(np.frombuffer(answer, np.uint8).ctypes.data)


def _check(place: Partition, table: I64, answer: memoryview) -> None:
    """Raises UnavailableError for a batch whose checksum is another one, or of a format that is not known."""
    is_unknown = table[:, FORMAT] > _FORMAT
    if is_unknown.any():
        row = int(is_unknown.argmax())
        raise damaged(place, int(table[row, BASE]), f"its format {int(table[row, FORMAT])} is not known")
    row = wrong_checksum(_address_of(answer), table, CHECKSUMS, _SHORT)
    if row < 0:
        is_long = (table[:, FORMAT] == _FORMAT) & (table[:, END] - table[:, BEGIN] >= _SHORT)
        row = next(
            (row for row in np.flatnonzero(is_long).tolist() if _checksum(table[row], answer) != table[row, CRC]), -1
        )
    if row >= 0:
        raise damaged(place, int(table[row, BASE]), "its checksum is another one")


def _checksum(batch: I64, answer: memoryview) -> int:
    crc, end = 0, int(batch[END])
    for start in range(int(batch[BEGIN]) + CRC_START, end, _CRC_PIECE):
        crc = google_crc32c.extend(crc, bytes(answer[start : min(end, start + _CRC_PIECE)]))
    return crc


def _run(is_so: NDArray[np.bool_]) -> int:
    """Returns for how many in turn it is so, from the first one on."""
    return len(is_so) if is_so.all() else int(is_so.argmin())


def _messages(place: Partition, batch: I64, answer: memoryview) -> Iterator[Message]:
    try:
        yield from messages_of(answer[batch[BEGIN] : batch[END]])
    except DamagedMessage as error:
        raise damaged(place, int(batch[BASE]), str(error)) from None


def _unreadable(table: I64, aborted: tuple[tuple[int, int], ...], answer: memoryview) -> NDArray[np.bool_]:
    """Returns which batches have no records for a reader: control batches, and those of aborted transactions."""
    is_control: NDArray[np.bool_] = (table[:, ATTRIBUTES] & CONTROL) != 0
    if not aborted:
        return is_control
    left_out = is_control.copy()
    coming = sorted(aborted, key=lambda pair: -pair[1])
    now: set[int] = set()
    for row, (last, producer, attributes) in enumerate(table[:, (LAST, PRODUCER, ATTRIBUTES)].tolist()):
        while coming and coming[-1][1] <= last:
            now.add(coming.pop()[0])
        if producer not in now:
            continue
        if attributes & CONTROL:
            if _is_abort(table[row], answer):
                now.discard(producer)
        elif attributes & TRANSACTIONAL:
            left_out[row] = True
    return left_out


def _is_abort(batch: I64, answer: memoryview) -> bool:
    """Whether a control batch ends a transaction for nothing: its record's key is a version and a type, int16 each."""
    position = int(batch[BEGIN]) + HEADER_BYTES
    # Length, attributes, differences of time and offset, and the key's length are a byte each, as there is one record.
    key = bytes(answer[position + 5 : position + 9])
    return bool(batch[COUNT] == 1) and int.from_bytes(key[2:4], "big") == _ABORT
