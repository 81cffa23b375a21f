"""Values that are larger than a record may be: several records of one partition have a part each, named by headers.

| header | value |
|---|---|
| `frazil-chunk-id` | the same bytes for all parts of a value, and no other value near it |
| `frazil-chunk-index` | the number of the part, from 0 on, in decimal digits |
| `frazil-chunk-count` | the number of parts |
| `frazil-chunk-checksum` | optional: `CRC32C:` and eight hexadecimal digits, of the whole value |

The last part becomes the record, with the whole value. What becomes of a part depends on records before it alone: on those
from REPEATED_WITHIN offsets before the value's first part on, which is at most `within` offsets away. A task whose range
begins later reads these once more, so that progress needs no memory of open values. Bytes of open values are a cache of
the topic's: where they are too many, they are forgotten, and read again when the last part has come.

A value that is open `within` offsets after its first part is abandoned: the first part, which an earlier task may have
counted, becomes a dead letter of the task whose range has the next offset. Each offset is in one range, so that this
happens once, wherever ranges begin.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.decode.columns import Mismatch
from frazil.decode.limits import plain_columns
from frazil.error_classes import ErrorClass
from frazil.kafka.fetch.columns import LEFT_OUT, Wanted
from frazil.kafka.source import read_before
from frazil.stages.changes import Changes, ReadRecords
from frazil.stages.stage import RAW_VALUE, Assembled
from frazil.types import OffsetRange
from frazil_blobs.settings import BlobSettings, MiB
from frazil_blobs.values import Ints, is_intact

PART, REPEATED = "chunk", "repeated_chunk"
"""What records are counted as that have a part of a later record's value, and the same part once more."""
REPEATED_WITHIN = 100
"""So many offsets before a part 0 are searched for the same one: a producer that tries again does it soon."""
MOST_HELD_BYTES = 128 * MiB
"""The bytes of open values, and of whole ones that are handed over at a time, unless one value has more."""
MISSING, OUT_OF_ORDER, CONFLICT, MALFORMED, DAMAGED = (
    ErrorClass(name)
    for name in ("chunk_missing", "chunk_out_of_order", "chunk_conflict", "chunk_malformed", "chunk_damaged")
)
_PREFIX = "frazil-chunk-"
_ID, _INDEX, _COUNT, _CHECKSUM = (f"{_PREFIX}{name}" for name in ("id", "index", "count", "checksum"))
_LONGEST_ID = 256
_MOST_DIGITS = 9
_WANTED = Wanted(("partition", "offset", "headers", "value"), (_ID, _INDEX, _COUNT, _CHECKSUM))
_WHOLE = Wanted(("partition", "offset", "timestamp", "key", "headers", "value"))
ReadBefore = Callable[[OffsetRange, Wanted], Iterator[pa.RecordBatch]]
_Place = tuple[int, int]
"""A partition and an offset of it."""


class _Refusal(NamedTuple):
    """Why a part is a dead letter."""

    kind: ErrorClass
    reason: str


@dataclass(frozen=True)
class _Headers:
    """What the headers of a part say."""

    id: bytes
    index: int
    count: int
    checksum: str | None


@dataclass(frozen=True)
class _Part:
    """A part that was read, without its bytes."""

    offset: int
    headers: _Headers
    size: int
    #: SHA-256.
    digest: bytes

    def is_repeat_of(self, earlier: _Part) -> bool:
        """Whether a producer has sent the earlier part again."""
        return (self.headers, self.digest) == (earlier.headers, earlier.digest)


@dataclass
class _Value:
    """A value whose parts are being read."""

    #: The offset of its part 0.
    first: int
    #: The number of its parts.
    count: int
    #: Those with the numbers 0, 1 and so on, as far as they have come.
    parts: list[_Part] = field(default_factory=list)
    size: int = 0
    #: The number of the part that came in place of another; 0 where all came in order.
    ahead: int = 0
    #: Why the value never becomes whole.
    refusal: _Refusal | None = None

    @property
    def is_open(self) -> bool:
        """Whether parts are missing, and no part is a dead letter for it."""
        return len(self.parts) < self.count and self.refusal is None


@dataclass
class _Partition:
    """The values of one partition."""

    number: int
    #: The first offset from which on all parts are known.
    begin: int
    #: The offset of the first record that was taken.
    taken_from: int = 0
    #: The parts that another part may depend on.
    parts: deque[_Part] = field(default_factory=deque)
    #: By id, in the order of their first parts.
    values: dict[bytes, _Value] = field(default_factory=dict)
    #: By id, the last part 0.
    firsts: dict[bytes, _Part] = field(default_factory=dict)
    #: The values that were forgotten while they were open, by their first offsets.
    abandoned: dict[int, _Value] = field(default_factory=dict)


@dataclass
class _Judged:
    """What has become of some records, by their rows."""

    wholes: dict[int, bytes] = field(default_factory=dict)
    refusals: dict[int, _Refusal] = field(default_factory=dict)
    counted: dict[str, list[int]] = field(default_factory=dict)
    whole_bytes: int = 0

    def note(self, row: int, outcome: bytes | _Refusal | str) -> None:
        """Notes a whole value, a refusal, or what the record is counted as."""
        if isinstance(outcome, bytes):
            self.wholes[row] = outcome
            self.whole_bytes += len(outcome)
        elif isinstance(outcome, _Refusal):
            self.refusals[row] = outcome
        else:
            self.counted.setdefault(outcome, []).append(row)

    def assembled(self, records: pa.RecordBatch) -> Assembled:
        """Returns what becomes of the records."""
        refused = sorted(self.refusals)
        is_left = np.ones(records.num_rows, np.bool_)
        is_left[refused] = False
        for rows in self.counted.values():
            is_left[rows] = False
        parts = {name: records.take(pa.array(rows)) for name, rows in self.counted.items()}
        whole = _with_values(records, self.wholes).filter(pa.array(is_left))
        reasons = [(self.refusals[row].kind, self.refusals[row].reason) for row in refused]
        return Assembled(whole, parts, records.take(pa.array(refused, pa.int64())), reasons)


class Chunks:
    """Implements `stages.stage.Assembler`."""

    def __init__(
        self,
        topic: str,
        within: int,
        most_bytes: int,
        read_back: ReadBefore = read_before,
        most_held_bytes: int = MOST_HELD_BYTES,
    ) -> None:
        """within: the most offsets from the first part of a value to its last. most_bytes: of a value."""
        self._topic = topic
        self._within = within
        self._most_bytes = most_bytes
        self._read_back = read_back
        self._most_held_bytes = max(most_held_bytes, most_bytes)
        self._partitions: dict[int, _Partition] = {}
        #: The bytes of parts of open values, the oldest first: some, or all.
        self._pieces: dict[_Place, bytes] = {}
        self._held_bytes = 0

    def take(self, records: pa.RecordBatch) -> Iterator[Assembled] | None:
        """See Assembler."""
        columns = plain_columns(records)
        partitions, offsets = (np.asarray(columns[name]) for name in ("partition", "offset"))
        for place in np.flatnonzero(np.r_[True, partitions[1:] != partitions[:-1]]) if records.num_rows else ():
            number = int(partitions[place])
            self._partitions.setdefault(number, _Partition(number, int(offsets[place]), int(offsets[place])))
        return self._assembled(records, rows) if (rows := _rows_with_parts(columns["headers"])).size else None

    def end(self, offset_range: OffsetRange) -> Iterator[Assembled]:
        """See Assembler."""
        number = offset_range.partition
        begin, end = (max(0, offset - self._within - 1) for offset in (offset_range.start, offset_range.end))
        partition = self._partitions.get(number, _Partition(number, offset_range.end, offset_range.end))
        # From here on the task has judged the values itself.
        judged_from = partition.taken_from + REPEATED_WITHIN
        open_values = partition.abandoned | {value.first: value for value in partition.values.values() if value.is_open}
        values = self._open_values(number, begin, min(end, judged_from))
        values += [open_values[first] for first in sorted(open_values) if judged_from <= first < end]
        for value in values:
            missing = f"part {len(value.parts)} is not among the {self._within:,} offsets after it"
            reason = (MISSING, f"part 0 of {value.count}: {missing}")
            for record in self._read_back(OffsetRange(self._topic, number, value.first, value.first + 1), _WHOLE):
                if record.num_rows:
                    yield Assembled(record.slice(0, 0), {}, record, [reason], are_read_again=True)

    def _open_values(self, number: int, begin: int, end: int) -> list[_Value]:
        """Returns the values that begin from one offset up to another in a partition, and are open `within` offsets later.

        The topic is read for them, as far as some are open.
        """
        judge, partition = Chunks(self._topic, self._within, self._most_bytes), _Partition(number, 0)
        values: list[_Value] = []
        if begin >= end:
            return []
        for part, _ in self._read(number, max(0, begin - REPEATED_WITHIN), end):
            judge._add(partition, part, None)
            value = partition.values.get(part.headers.id)
            if value is not None and begin <= value.first == part.offset:
                values.append(value)
        values = [value for value in values if value.is_open]
        if not values:
            return []
        for part, _ in self._read(number, end, values[-1].first + self._within + 1):
            judge._add(partition, part, None)
            if not any(value.is_open for value in values):
                break
        return [value for value in values if value.is_open]

    def _assembled(self, records: pa.RecordBatch, rows: Ints) -> Iterator[Assembled]:
        begin, judged = 0, _Judged()
        for row in rows.tolist():
            partition = self._partitions[records["partition"][row].as_py()]
            headers, piece = _headers_of(records["headers"][row].as_py()), records["value"][row].as_py() or b""
            offset = records["offset"][row].as_py()
            judged.note(row - begin, self._judge(partition, offset, headers, piece))
            if judged.whole_bytes > self._most_held_bytes:
                yield judged.assembled(records.slice(begin, row + 1 - begin))
                begin, judged = row + 1, _Judged()
        if begin < records.num_rows:
            yield judged.assembled(records.slice(begin))

    def _judge(
        self, partition: _Partition, offset: int, headers: _Headers | _Refusal, piece: bytes
    ) -> bytes | _Refusal | str:
        """Returns the whole value that a record completes, why the record is refused, or what it is counted as."""
        if isinstance(headers, _Refusal):
            return headers
        part = _Part(offset, headers, len(piece), hashlib.sha256(piece).digest())
        # The outcome may depend on earlier records: more and more of them are read, until the value begins.
        step = REPEATED_WITHIN
        while partition.begin > (earliest := self._earliest(partition, part)):
            self._take_earlier(partition, max(earliest, partition.begin - step))
            step *= 2
        added = self._add(partition, part, piece)
        outcome = self._whole(partition, added, piece) if isinstance(added, _Value) else added
        if isinstance(outcome, _Refusal):
            outcome = outcome._replace(reason=f"part {headers.index} of {headers.count}: {outcome.reason}")
        return outcome

    def _earliest(self, partition: _Partition, part: _Part) -> int:
        """Returns from where on records must be known for the outcome of a part."""
        first, value = part.offset, partition.values.get(part.headers.id)
        if part.headers.index:
            first -= self._within
            first = value.first if value is not None and value.first >= first else first
        return max(0, first - REPEATED_WITHIN)

    def _take_earlier(self, partition: _Partition, begin: int) -> None:
        """Takes the parts from an earlier offset on, and those that are known once more."""
        later, end = partition.parts, partition.begin
        partition.parts, partition.values, partition.firsts = deque(), {}, {}
        for part, piece in self._read(partition.number, begin, end):
            self._take_known(partition, part, piece)
        partition.begin = begin
        for part in later:
            self._take_known(partition, part, None)
        open_parts = {part.offset for value in partition.values.values() for part in value.parts}
        for number, offset in list(self._pieces):
            if number == partition.number and offset not in open_parts:
                self._drop((number, offset))

    def _take_known(self, partition: _Partition, part: _Part, piece: bytes | None) -> None:
        """Adds a part whose outcome is another task's, or was returned already."""
        if isinstance(value := self._add(partition, part, piece), _Value):
            self._release(partition, value)

    def _read(self, number: int, begin: int, end: int) -> Iterator[tuple[_Part, bytes]]:
        """Yields parts from the topic. Raises: UnavailableError."""
        wanted = replace(_WANTED, most_value_bytes=self._most_bytes)
        for batch in self._read_back(OffsetRange(self._topic, number, begin, end), wanted):
            left_out = batch[LEFT_OUT].to_pylist() if LEFT_OUT in batch.schema.names else [0] * batch.num_rows
            for row in _rows_with_parts(batch["headers"]).tolist():
                headers, piece = _headers_of(batch["headers"][row].as_py()), batch["value"][row].as_py() or b""
                if isinstance(headers, _Headers) and not left_out[row]:  # A task is not given these either.
                    yield (
                        _Part(batch["offset"][row].as_py(), headers, len(piece), hashlib.sha256(piece).digest()),
                        piece,
                    )

    def _add(self, partition: _Partition, part: _Part, piece: bytes | None) -> _Value | _Refusal | str:
        """Adds a part to its value; returns the value where it is whole, why the part is refused, or what it is counted as.
        piece: its bytes; None where they are held, if they are wanted.
        """
        self._forget_past(partition, part.offset)
        partition.parts.append(part)
        value = partition.values.get(part.headers.id)
        earlier = None
        if value is not None and part.headers.index < len(value.parts):
            earlier = value.parts[part.headers.index]
        if part.headers.index == 0:
            earlier, partition.firsts[part.headers.id] = partition.firsts.get(part.headers.id), part
            if earlier is None or earlier.offset < part.offset - REPEATED_WITHIN:
                earlier, value = None, self._begin(partition, part)
        if earlier is not None and part.is_repeat_of(earlier):
            return REPEATED
        refusal = self._refusal(value, part, earlier)
        if refusal is not None:
            if value is not None:
                value.refusal = value.refusal or refusal
                self._release(partition, value)
            return refusal
        assert value is not None
        value.parts.append(part)
        value.size += part.size
        if len(value.parts) == value.count:
            return value
        if piece is not None:
            # The oldest bytes are forgotten where they are too many.
            self._pieces[(partition.number, part.offset)] = piece
            self._held_bytes += len(piece)
            while self._held_bytes > self._most_held_bytes:
                self._drop(next(iter(self._pieces)))
        return PART

    def _refusal(self, value: _Value | None, part: _Part, earlier: _Part | None) -> _Refusal | None:
        """Returns why a part does not continue its value; None where it does. earlier: another one with its number."""
        index, count = part.headers.index, part.headers.count
        if earlier is not None:
            return _Refusal(CONFLICT, "another part of the same id has this number")
        if value is None:
            return _Refusal(MISSING, f"part 0 is not among the {self._within:,} offsets before it")
        if value.refusal is not None and index < value.ahead:
            return _Refusal(OUT_OF_ORDER, f"part {value.ahead} was before it")
        if value.refusal is not None:
            return value.refusal
        if count != value.count:
            return _Refusal(CONFLICT, f"the parts before it say that there are {value.count}")
        if index > len(value.parts):
            value.ahead = index
            return _Refusal(MISSING, f"part {len(value.parts)} is missing, or follows it")
        if value.size + part.size > self._most_bytes:
            message = f"the value has more bytes than `limits.record_size` allows, {self._most_bytes:,}"
            return _Refusal(ErrorClass.TOO_LARGE, message)
        return None

    def _begin(self, partition: _Partition, part: _Part) -> _Value:
        """Begins a value, in place of an earlier one with the same id."""
        if (earlier := partition.values.pop(part.headers.id, None)) is not None:
            self._forget(partition, earlier)
        partition.values[part.headers.id] = value = _Value(part.offset, part.headers.count)
        return value

    def _forget_past(self, partition: _Partition, offset: int) -> None:
        """Forgets what no part from this offset on depends on."""
        oldest = offset - self._within
        past = takewhile(lambda name: partition.values[name].first < oldest, partition.values)
        for name in list(past):  # The values are in the order of their first parts.
            self._forget(partition, partition.values.pop(name))
        while partition.parts and partition.parts[0].offset < oldest - REPEATED_WITHIN:
            part = partition.parts.popleft()
            if partition.firsts.get(part.headers.id) is part:
                del partition.firsts[part.headers.id]

    def _forget(self, partition: _Partition, value: _Value) -> None:
        """Forgets a value that no later part belongs to."""
        self._release(partition, value)
        if value.is_open:
            partition.abandoned[value.first] = value

    def _whole(self, partition: _Partition, value: _Value, last: bytes) -> bytes | _Refusal:
        """Returns the bytes of a value; why there are none. last: the bytes of its last part. Raises: UnavailableError."""
        pieces = {part.offset: self._pieces.get((partition.number, part.offset)) for part in value.parts[:-1]}
        self._release(partition, value)
        if forgotten := [offset for offset, piece in pieces.items() if piece is None]:
            for part, piece in self._read(partition.number, forgotten[0], forgotten[-1] + 1):
                if part.offset in pieces:
                    pieces[part.offset] = piece
        held = [piece for piece in pieces.values() if piece is not None]
        if len(held) < len(pieces):
            return _Refusal(MISSING, "the topic no longer has all parts before it")
        whole = b"".join((*held, last))
        is_whole = is_intact(whole, value.parts[-1].headers.checksum)
        return whole if is_whole else _Refusal(DAMAGED, "the whole value has another checksum")

    def _release(self, partition: _Partition, value: _Value) -> None:
        """Forgets the bytes of a value."""
        for part in value.parts:
            self._drop((partition.number, part.offset))

    def _drop(self, place: _Place) -> None:
        self._held_bytes -= len(self._pieces.pop(place, b""))


def _rows_with_parts(headers: pa.ListArray) -> Ints:
    """Returns the records that are parts."""
    names, parents = pc.struct_field(pc.list_flatten(headers), "key"), pc.list_parent_indices(headers)
    return np.unique(np.asarray(parents)[np.asarray(pc.equal(names, _ID))]).astype(np.int64)


def _headers_of(headers: list[dict[str, str | bytes | None]]) -> _Headers | _Refusal:
    """Returns what the headers of a record say; why that is nothing."""
    texts: dict[str, bytes] = {}
    for header in headers:
        name, value = header["key"], header["value"]
        if isinstance(name, str) and name.startswith(_PREFIX) and isinstance(value, bytes):
            texts[name] = value
    numbers = [texts.get(name, b"") for name in (_INDEX, _COUNT)]
    if not all(number.isdigit() and len(number) <= _MOST_DIGITS for number in numbers):
        return _Refusal(MALFORMED, f"`{_INDEX}` and `{_COUNT}` are not both whole numbers")
    index, count = map(int, numbers)
    if index >= count or not 0 < len(texts.get(_ID, b"")) <= _LONGEST_ID:
        return _Refusal(
            MALFORMED, f"`{_INDEX}` is not below `{_COUNT}`, or `{_ID}` does not have 1 to {_LONGEST_ID} bytes"
        )
    return _Headers(
        texts[_ID], index, count, texts[_CHECKSUM].decode("ascii", "replace") if _CHECKSUM in texts else None
    )


def _with_values(records: pa.RecordBatch, wholes: dict[int, bytes]) -> pa.RecordBatch:
    """Returns records with other values of some of them, and without the headers that name parts: as dead letters they are
    whole. The values that they had are another column.
    """
    mask = np.zeros(records.num_rows, np.bool_)
    mask[list(wholes)] = True
    raw = records["value"]
    values = pc.replace_with_mask(raw, pa.array(mask), pa.array([*wholes.values()], pa.binary())) if wholes else raw
    headers = records["headers"]
    is_other = np.asarray(pc.invert(pc.starts_with(pc.struct_field(pc.list_flatten(headers), "key"), _PREFIX)))
    counts = np.bincount(np.asarray(pc.list_parent_indices(headers))[is_other], minlength=records.num_rows)
    ends = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    pairs = pc.list_flatten(headers).filter(pa.array(is_other))
    others = pa.ListArray.from_arrays(ends, pairs, mask=pa.array(counts == 0))
    records = records.set_column(records.schema.get_field_index("headers"), "headers", others)
    records = records.set_column(records.schema.get_field_index("value"), "value", values)
    return records.append_column(RAW_VALUE, raw)


def refuse_parts(read: ReadRecords, changes: Changes) -> Changes:
    """Returns the changes without those of records that are parts: of dead letters, which are replayed one by one. An
    assembled record does not have the headers of its parts.
    """
    headers = read.columns.get("headers")
    rows = _rows_with_parts(headers).tolist() if headers is not None else []
    if changes.must_read_again or not rows:
        return changes
    refused = np.zeros(changes.decoded.refused.size, np.bool_)
    refused[rows] = True
    reason = "the record is a part of a value, which has to be sent again as a whole"
    mismatches = [Mismatch(row, "", MISSING, reason) for row in rows]
    return replace(changes, decoded=changes.decoded.refusing(refused, mismatches, read.limit))


def assemble(settings: BlobSettings, topic: str, most_bytes: int) -> Chunks | None:
    """Returns what puts the parts of values together; None where the table has none."""
    return Chunks(topic, settings.chunks.within, most_bytes) if settings.chunks is not None else None
