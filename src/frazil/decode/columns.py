"""What readers of binary formats take and give: where the records lie, and the columns they make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from frazil.schema.selection import list_with, map_with


class UnionStruct(StructType):
    """The struct that a union becomes: a member for each branch, of which a value has one."""


class EmptyStruct(StructType):
    """The struct of a message or record without fields. PyIceberg takes a struct without fields for none."""

    def __bool__(self) -> bool:
        return True


def without_empty(kind: IcebergType) -> IcebergType | None:
    """The type without structs that have no fields, which no file can hold; None where nothing is left."""
    if isinstance(kind, StructType):
        found = [(member, without_empty(member.field_type)) for member in kind.fields]
        if all(of is member.field_type for member, of in found):
            return kind if kind.fields else None
        fields = [member.model_copy(update={"field_type": of}) for member, of in found if of is not None]
        return type(kind)(*fields) if fields else None
    if isinstance(kind, ListType):
        element = without_empty(kind.element_type)
        if element is kind.element_type:
            return kind
        return None if element is None else list_with(kind, element, kind.element_required)
    if isinstance(kind, MapType):
        value = without_empty(kind.value_type)
        if value is kind.value_type:
            return kind
        return None if value is None else map_with(kind, value, kind.value_required)
    return kind


@dataclass(frozen=True)
class Bodies:
    """Records side by side in one buffer: the body of the n-th, without its frame, is `buffer[start[n]:end[n]]`."""

    buffer: NDArray[np.uint8]
    start: NDArray[np.int32]
    end: NDArray[np.int32]

    def __len__(self) -> int:
        return int(self.start.size)

    @property
    def base(self) -> int:
        """Address of the buffer's first byte; the buffer must be kept alive while it is used."""
        return int(self.buffer.ctypes.data)


@dataclass(frozen=True)
class Fault:
    """Why a record cannot be read. kind: its class, one of docs/reference/dead-letters.md. message: lower case, no dot."""

    kind: str
    message: str


@dataclass(frozen=True)
class Columns:
    """One array per field of the reader's struct, as long as there were records.

    fault: per record 0, or the 1-based place of its Fault in `faults`. A record with a fault is null in every array and
    changes nothing of its neighbours. paths: of faulty records the field where it went wrong, where that is known. values:
    what is in that field, as JSON, which stands for `{value}` in the message.
    """

    arrays: list[pa.Array]
    fault: NDArray[np.uint8]
    faults: Sequence[Fault]
    paths: Mapping[int, str] = field(default_factory=dict)
    values: Mapping[int, str] = field(default_factory=dict)

    def explain(self, row: int) -> Fault:
        """Why a record with a fault cannot be read, with the value that it is about."""
        fault = self.faults[int(self.fault[row]) - 1]
        return Fault(fault.kind, fault.message.replace("{value}", shortened(self.values.get(row, "a value"))))


@dataclass(frozen=True)
class Mismatch:
    """One value that cannot become a value of its column. `row` counts from 0 in the decoded array; kind: the class of
    error. text: of a rescued value, as it is written.
    """

    row: int
    path: str
    kind: str
    reason: str
    text: str = ""


@dataclass(frozen=True)
class Decoded:
    """What became of an array of record values.

    columns: one Arrow array per field asked for, as long as the input. refused: per record, whether it cannot become a
    row. mismatches: what is wrong with the first of them, in row order. requested_fields: fields with their types that the
    struct lacks, or has in a narrower type, by path. made_optional: paths of required columns that records have no value
    for. dropped: paths of fields left out. rescued: per record a JSON object of what was put aside; None when nothing was.
    missing: ids of schemas that were not there to decode with. refusals: changes of the table that its policy does not
    allow.
    """

    columns: list[pa.Array]
    refused: NDArray[np.bool_]
    mismatches: list[Mismatch] = field(default_factory=list)
    requested_fields: dict[tuple[str, ...], dict[str, IcebergType]] = field(default_factory=dict)
    made_optional: set[tuple[str, ...]] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    rescued: pa.Array | None = None
    missing: set[str] = field(default_factory=set)
    refusals: set[str] = field(default_factory=set)

    @property
    def mismatch_count(self) -> int:
        """The records that cannot become rows."""
        return int(np.count_nonzero(self.refused))


class Reader(Protocol):
    """Reads records that were written with one schema. Made once per schema, kept, and used by one thread at a time."""

    @property
    def struct(self) -> StructType:
        """The Iceberg type of a record (field ids are placeholders); of a value that is no record one field `value`."""

    def read(self, records: Bodies) -> Columns:
        """The records' columns. Raises nothing for bad records; deterministic, bounded in time and memory by the bytes."""


def bitmap(valid: NDArray[Any]) -> pa.Buffer:
    """Arrow's validity bitmap of a row of flags."""
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def shortened(text: str) -> str:
    """A value as messages quote it."""
    return text if len(text) <= 60 else f"{text[:60]}…"


def as_text(words: str) -> str:
    """Words that quote a record as a column holds them: half of a surrogate pair, which is no text, is an escape."""
    return words.encode("utf-8", "backslashreplace").decode()
