"""Values that are larger than a record may be: several records of one partition have a part each, named by headers.

| header | value |
|---|---|
| `frazil-chunk-id` | the same bytes for all parts of a value, and no other value near it |
| `frazil-chunk-index` | the number of the part, from 0 on, in decimal digits |
| `frazil-chunk-count` | the number of parts |
| `frazil-chunk-checksum` | optional: `CRC32C:` and eight hexadecimal digits, of the whole value |

The last part becomes the record, with the whole value. A task whose range begins in the middle of a value reads the parts
before it once more, so that progress needs no memory of open values: what becomes of a record depends on the `within`
offsets before it, and on nothing else. Hence a part 0 always begins its value again: whether it was sent before is known
only to a task that has read back, which would cost a read for each value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.decode.limits import plain_columns
from frazil.kafka.fetch.columns import LEFT_OUT, Wanted
from frazil.kafka.source import read_before
from frazil.stages.stage import RAW_VALUE, Assembled
from frazil.types import OffsetRange
from frazil_blobs.settings import BlobSettings
from frazil_blobs.values import is_intact

_PREFIX = "frazil-chunk-"
_ID, _INDEX, _COUNT, _CHECKSUM = (f"{_PREFIX}{name}" for name in ("id", "index", "count", "checksum"))
_LONGEST_ID = 256
_MOST_DIGITS = 9
_WANTED = Wanted(("partition", "offset", "headers", "value"), (_ID, _INDEX, _COUNT, _CHECKSUM))
ReadBefore = Callable[[OffsetRange, Wanted], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class _Part:
    """What the headers of a record say."""

    id: bytes
    index: int
    count: int
    checksum: str | None


@dataclass
class _Value:
    """A value whose parts are being read."""

    #: The offset of its first part.
    first: int
    count: int
    pieces: list[bytes] = field(default_factory=list)
    size: int = 0
    #: The number of its parts so far.
    reached: int = 0
    #: Why it never becomes whole.
    reason: str = ""


@dataclass
class _Partition:
    """The values of one partition."""

    #: The first offset that this task reads.
    begin: int
    #: In the order of their first parts.
    values: dict[bytes, _Value] = field(default_factory=dict)
    has_read_back: bool = False


class Chunks:
    """Implements `stages.stage.Assembler`."""

    def __init__(self, topic: str, within: int, most_bytes: int, read_back: ReadBefore = read_before) -> None:
        """within: the most offsets from the first part of a value to its last. most_bytes: of a value."""
        self._topic = topic
        self._within = within
        self._most_bytes = most_bytes
        self._read_back = read_back
        self._partitions: dict[int, _Partition] = {}

    def take(self, records: pa.RecordBatch) -> Assembled | None:
        """See Assembler."""
        columns = plain_columns(records)
        partitions, offsets = (np.asarray(columns[name]) for name in ("partition", "offset"))
        for place in np.flatnonzero(np.r_[True, partitions[1:] != partitions[:-1]]) if records.num_rows else ():
            self._partitions.setdefault(int(partitions[place]), _Partition(int(offsets[place])))
        rows = _rows_with_parts(columns["headers"])
        if not rows.size:
            return None
        wholes: dict[int, bytes] = {}
        reasons: dict[int, str] = {}
        is_part = np.zeros(records.num_rows, np.bool_)
        for row in rows.tolist():
            part = _part_of(columns["headers"][row].as_py())
            value = columns["value"][row].as_py()
            outcome = self._judged(int(partitions[row]), int(offsets[row]), part, value)
            if isinstance(outcome, bytes):
                wholes[row] = outcome
            elif outcome:
                reasons[row] = outcome
            else:
                is_part[row] = True
        is_refused = np.zeros(records.num_rows, np.bool_)
        is_refused[list(reasons)] = True
        is_left = pa.array(~is_part & ~is_refused)
        whole = _with_values(records, wholes).filter(is_left)
        return Assembled(
            whole, records.filter(pa.array(is_part)), records.filter(pa.array(is_refused)), [*reasons.values()]
        )

    def _judged(self, number: int, offset: int, part: _Part | str, value: bytes | None) -> bytes | str:
        """Returns the whole value that a record completes, why it is refused, or nothing where more parts are to come."""
        if isinstance(part, str):
            return part
        partition = self._partitions[number]
        if part.index > 0 and part.id not in partition.values and not partition.has_read_back:
            partition.has_read_back = True
            self._take_earlier(number, partition, offset)
        return self._added(partition, offset, part, value)

    def _take_earlier(self, number: int, partition: _Partition, offset: int) -> None:
        """Takes the parts before those that this task reads."""
        start = max(0, offset - self._within)
        later, partition.values = partition.values, {}
        if start < partition.begin:
            wanted = replace(_WANTED, most_value_bytes=self._most_bytes)
            for batch in self._read_back(OffsetRange(self._topic, number, start, partition.begin), wanted):
                left_out = batch[LEFT_OUT].to_pylist() if LEFT_OUT in batch.schema.names else [0] * batch.num_rows
                for row in _rows_with_parts(batch["headers"]).tolist():
                    part = _part_of(batch["headers"][row].as_py())
                    if not isinstance(part, str) and not left_out[row]:  # A task is not given these either.
                        self._added(partition, batch["offset"][row].as_py(), part, batch["value"][row].as_py())
        for name in later:  # These began later, and again where they are the same.
            partition.values.pop(name, None)
        partition.values.update(later)

    def _added(self, partition: _Partition, offset: int, part: _Part, piece: bytes | None) -> bytes | str:
        for past in list(
            itertools.takewhile(lambda name: partition.values[name].first < offset - self._within, partition.values)
        ):
            del partition.values[past]
        words = f"part {part.index} of {part.count}"
        if part.index == 0:
            partition.values.pop(part.id, None)  # The values are in the order of their first parts.
            partition.values[part.id] = _Value(offset, part.count)
        value = partition.values.get(part.id)
        if value is None:
            return f"{words}: part 0 is not among the {self._within:,} offsets before it"
        if part.index < value.reached:
            return f"{words}: it is there already"
        if part.count != value.count:
            value.reason = value.reason or f"the parts before it say that there are {value.count}"
        elif part.index > value.reached:
            value.reason = value.reason or f"part {value.reached} is missing, or follows it"
        elif value.size + len(piece or b"") > self._most_bytes:
            value.reason = (
                value.reason or f"the value has more bytes than `limits.record_size` allows, {self._most_bytes:,}"
            )
        if value.reason:
            value.pieces.clear()
            return f"{words}: {value.reason}"
        value.pieces.append(piece or b"")
        value.size += len(piece or b"")
        value.reached += 1
        if value.reached < value.count:
            return ""
        whole = b"".join(value.pieces)
        value.pieces.clear()
        return whole if is_intact(whole, part.checksum) else f"{words}: the whole value has another checksum"


def _rows_with_parts(headers: pa.ListArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Returns the records that are parts."""
    names, parents = pc.struct_field(pc.list_flatten(headers), "key"), pc.list_parent_indices(headers)
    return np.unique(np.asarray(parents)[np.asarray(pc.equal(names, _ID))]).astype(np.int64)


def _part_of(headers: list[dict[str, str | bytes | None]]) -> _Part | str:
    """Returns what the headers of a record say; in words, why that is nothing."""
    texts: dict[str, bytes] = {}
    for header in headers:
        name, value = header["key"], header["value"]
        if isinstance(name, str) and name.startswith(_PREFIX) and isinstance(value, bytes):
            texts[name] = value
    numbers = [texts.get(name, b"") for name in (_INDEX, _COUNT)]
    if not all(number.isdigit() and len(number) <= _MOST_DIGITS for number in numbers):
        return f"`{_INDEX}` and `{_COUNT}` are not both whole numbers"
    index, count = map(int, numbers)
    if index >= count or not 0 < len(texts.get(_ID, b"")) <= _LONGEST_ID:
        return f"`{_INDEX}` is not below `{_COUNT}`, or `{_ID}` does not have 1 to {_LONGEST_ID} bytes"
    return _Part(texts[_ID], index, count, texts[_CHECKSUM].decode("ascii", "replace") if _CHECKSUM in texts else None)


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


def assemble(settings: BlobSettings, topic: str, most_bytes: int) -> Chunks | None:
    """Returns what puts the parts of values together; None where the table has none."""
    return Chunks(topic, settings.chunks.within, most_bytes) if settings.chunks is not None else None
