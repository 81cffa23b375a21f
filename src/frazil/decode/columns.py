"""The inputs and outputs of readers of binary formats: bodies of records, and columns made of them.

Also the buffers that Arrow arrays are made of, and structs regrouped without a copy of their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import BinaryType, IcebergType, NestedField, StructType

from frazil.error_classes import ErrorClass
from frazil.raw_memory import I32, U8
from frazil.schema.arrow import Rows, arrow_type, as_written, children_of, replace_children, spread_places, unsliced
from frazil.schema.evolve import merge_requested_fields
from frazil.schema.parts import Path, common_part, is_empty_type, parts_of, retyped, with_parts
from frazil.schema.selection import Selection
from frazil.types import RESCUED_COLUMN


class UnionStruct(StructType):
    """The struct that a union becomes: a member for each branch, of which a value has one."""


class TextBytes(BinaryType):
    """Bytes in a column of text, which has their text. Bytes that are not UTF-8 do not fit it."""


class EmptyStruct(StructType):
    """The struct of a message or record without fields. PyIceberg treats a struct without fields as false."""

    def __bool__(self) -> bool:
        return True


def without_empty(kind: IcebergType) -> IcebergType | None:
    """Returns the type without structs that have no fields, which no file can have; None where nothing is left."""
    parts = [(part, without_empty(part.field_type)) for part in parts_of(kind)]
    left = [retyped(part, of) for part, of in parts if of is not None]
    if not left and (parts or isinstance(kind, StructType)):
        return None
    return kind if all(of is part.field_type for part, of in parts) else with_parts(kind, left)


def read_utf8(array: pa.BinaryArray) -> pa.StringArray:
    """Returns the bytes as text; null where they are not UTF-8."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:  # Arrow refuses all of them for some.
        return pa.array([_text_of(value) for value in array.to_pylist()], pa.string())


def _text_of(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


@dataclass(frozen=True)
class Bodies:
    """Records in one buffer: the body of the n-th, without its wire-format header, is `buffer[start[n]:end[n]]`."""

    #: The bytes of all records.
    buffer: NDArray[np.uint8]
    #: The first byte of each body.
    start: NDArray[np.int32]
    #: The byte after each body.
    end: NDArray[np.int32]

    def __len__(self) -> int:
        return int(self.start.size)

    @property
    def base(self) -> int:
        """The address of the buffer's first byte; the buffer must be kept alive while it is used."""
        return int(self.buffer.ctypes.data)


@dataclass(frozen=True)
class Fault:
    """The reason why a record cannot be read."""

    #: The class of error.
    kind: ErrorClass
    #: The message: lower case, no full stop.
    message: str


@dataclass(frozen=True)
class Columns:
    """One array per field of the reader's struct, each with a value per record."""

    arrays: list[pa.Array]
    #: 0 for each record without a fault, else the 1-based index of its Fault in `faults`. A faulty record is null in
    #: every array and does not affect its neighbours.
    fault: NDArray[np.uint8]
    #: The faults that `fault` refers to.
    faults: Sequence[Fault]
    #: The field at fault by record, where it is known.
    paths: Mapping[int, str] = field(default_factory=dict)
    #: The value of that field as JSON, by record: `{value}` in the message.
    values: Mapping[int, str] = field(default_factory=dict)

    def explain(self, row: int) -> Fault:
        """Returns the fault of a record, with its value in the message."""
        fault = self.faults[int(self.fault[row]) - 1]
        return Fault(fault.kind, fault.message.replace("{value}", shortened(self.values.get(row, "a value"))))


@dataclass(frozen=True)
class Mismatch:
    """One value that cannot become a value of its column."""

    #: The row in the decoded array, from 0.
    row: int
    #: The path of the field; empty for the entire record.
    path: str
    #: The class of error.
    kind: ErrorClass
    #: The message.
    reason: str
    #: The value as it is written, of a rescued value.
    text: str = ""


class FieldValues(Protocol):
    """The values of one field of some records, in the form in which their format has them."""

    @property
    def owner(self) -> NDArray[np.int32]:
        """The record that each value belongs to."""

    @property
    def there(self) -> NDArray[Any]:
        """Which of them are values of the field, and not null."""

    def text(self, n: int) -> str:
        """Returns the n-th value as JSON text."""

    def excerpt(self, n: int) -> str:
        """Returns the n-th value as messages quote it."""

    def texts(self) -> pa.Array:
        """Returns the values of the field as JSON texts."""


class Fate(IntEnum):
    """What becomes of a field with a value of a record that becomes a row."""

    #: The fields, whatever becomes of them.
    READ = 0
    #: A column has the value, or it was rescued because the column cannot hold it.
    COLUMN = 1
    #: The field has no column, and its value is rescued.
    RESCUED = 2
    #: The table's settings leave the field out.
    LEFT_OUT = 3
    #: The field gets no column yet: an empty object or list has no type.
    NO_COLUMN = 4


@dataclass(frozen=True)
class Decoded:
    """The result of decoding an array of record values."""

    #: One Arrow array per requested column, as long as the input.
    columns: list[pa.Array]
    #: Which records cannot become a row: bool of shape (n_records,).
    refused: NDArray[np.bool_]
    #: The first mismatches, in row order.
    mismatches: list[Mismatch] = field(default_factory=list)
    #: Fields that the table lacks, or has in a narrower type, by path of their struct.
    requested_fields: dict[tuple[str, ...], dict[str, IcebergType]] = field(default_factory=dict)
    #: Paths of required columns for which records have no value.
    made_optional: set[tuple[str, ...]] = field(default_factory=set)
    #: Paths of fields that were left out.
    dropped: set[str] = field(default_factory=set)
    #: By extra column of the table (`types.EXTRA_COLUMNS`), its text for each record; nothing of one that no record has.
    own: Mapping[str, pa.Array] = field(default_factory=dict)
    #: Ids of schemas that are needed and missing.
    missing: set[str] = field(default_factory=set)
    #: Schema changes that the table's settings do not allow.
    refusals: set[str] = field(default_factory=set)
    #: The numbers of fields of each record by `Fate`, int32 of shape (n_fates, n_records); None where they are not counted.
    fates: NDArray[np.int32] | None = None
    #: Paths of fields without a column and without a type: records have them, and only as null, [] or {}.
    untyped: set[Path] = field(default_factory=set)

    @property
    def rescued(self) -> pa.Array | None:
        """A JSON object of the rescued values for each record; None without any."""
        return self.own.get(RESCUED_COLUMN)

    @property
    def mismatch_count(self) -> int:
        """The number of records that cannot become rows."""
        return int(np.count_nonzero(self.refused))

    def refusing(self, refused: NDArray[np.bool_], mismatches: Iterable[Mismatch], limit: int) -> Decoded:
        """Returns the result with these records refused too. limit: the number of mismatches that are kept."""
        both = first_mismatches([*self.mismatches, *mismatches], limit)
        return replace(self, refused=self.refused | refused, mismatches=both)

    def spread(self, rows: Rows, count: int) -> Decoded:
        """Returns the result for the records `rows` as a result for all `count` records, with nulls for the others."""
        places = spread_places(rows, count)
        refused = np.zeros(count, np.bool_)
        refused[rows] = self.refused
        fates = None
        if self.fates is not None:
            fates = np.zeros((len(Fate), count), np.int32)
            fates[:, rows] = self.fates
        return replace(
            self,
            columns=[column.take(places) for column in self.columns],
            refused=refused,
            mismatches=[replace(mismatch, row=int(rows[mismatch.row])) for mismatch in self.mismatches],
            own={name: texts.take(places) for name, texts in self.own.items()},
            fates=fates,
        )


_OF_THE_TABLE = (ErrorClass.UNKNOWN_FIELD, ErrorClass.OUT_OF_RANGE)
"""Classes of errors that another table, with more or wider columns, would not have."""


def first_mismatches(mismatches: Iterable[Mismatch], limit: int) -> list[Mismatch]:
    """Returns the mismatches to keep, in the order of the records. Of a record with several, those come last that a change
    of the table would end: the others would make it a bad record all the same.
    """
    return sorted(mismatches, key=lambda mismatch: (mismatch.row, mismatch.kind in _OF_THE_TABLE))[:limit]


class Reader(Protocol):
    """Reads records that were written with one schema. A reader is made once per schema, cached, and used by one thread
    at a time.
    """

    @property
    def struct(self) -> StructType:
        """The Iceberg type of a record (field ids are placeholders); a value that is no record is a field `value`."""

    def read(self, records: Bodies) -> Columns:
        """Returns the records' columns. Bad records raise nothing; the result is deterministic, and time and memory are
        bounded by the number of bytes.
        """


def bytes_of(values: pa.BinaryArray | pa.StringArray) -> U8:
    """Returns the bytes that the offsets of an array point into: uint8; one zero byte where there are none."""
    buffer = values.buffers()[2]
    return np.frombuffer(buffer, np.uint8) if buffer is not None and buffer.size else np.zeros(1, np.uint8)


def offsets_of(array: pa.Array) -> I32:
    """Returns the offsets of an array of bytes, texts or lists: int32 of shape (n_values + 1,)."""
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)


def value_sizes(values: pa.Array) -> NDArray[np.int64]:
    """Returns the bytes of each value, 0 for none: int of shape (n_values,)."""
    return np.diff(offsets_of(values)).astype(np.int64)


def repeats_keys(offsets: NDArray[Any], keys: pa.Array) -> NDArray[np.bool_]:
    """Returns which maps have one key twice: bool of shape (n_maps,). keys: of all maps, one after another."""
    rows = np.repeat(np.arange(offsets.size - 1, dtype=np.int64), np.diff(offsets))
    codes = np.asarray(keys.dictionary_encode().indices.fill_null(-1), dtype=np.int64)
    pairs = rows * (codes.max(initial=0) + 2) + codes
    _, first = np.unique(pairs, return_index=True)
    again = np.ones(pairs.size, np.bool_)
    again[first] = False
    has_repeats = np.zeros(offsets.size - 1, np.bool_)
    has_repeats[rows[again]] = True
    return has_repeats


def offsets_from(lengths: NDArray[Any]) -> I32:
    """Returns the offsets of values of these lengths: int32 of shape (n_values + 1,)."""
    offsets = np.zeros(lengths.size + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def bitmap(valid: NDArray[Any]) -> pa.Buffer:
    """Returns Arrow's validity bitmap for an array of flags."""
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def validity(valid: NDArray[np.bool_] | None) -> pa.Buffer | None:
    """Returns Arrow's validity bitmap for which values are there; None, as Arrow has it, when all are (None)."""
    return None if valid is None else bitmap(valid)


def text_array(texts: Sequence[str | None]) -> pa.Array:
    """A column of texts, of large strings where they are more than 2 GiB."""
    array = pa.array(texts, pa.string())
    return array if isinstance(array, pa.Array) else pa.array(texts, pa.large_string())


def shortened(text: str) -> str:
    """Returns a value as messages quote it."""
    return text if len(text) <= 60 else f"{text[:60]}…"


def as_text(words: str) -> str:
    """Returns a message that quotes a record as valid text: single surrogates are escaped."""
    return words.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True)
class Group:
    """Some records of a batch."""

    #: The place of each record in the batch, ascending or not, `(n_records,)`.
    rows: Rows
    #: What became of these records, in the order of `rows`.
    decoded: Decoded


def in_order(groups: Sequence[Group], fields: Sequence[NestedField], count: int, limit: int) -> Decoded:
    """Returns the columns `fields` of a batch of `count` records, each of which is in one of the groups.

    limit: the number of mismatches that are kept.
    """
    if len(groups) == 1 and groups[0].rows.size == count and (np.diff(groups[0].rows) > 0).all():
        return groups[0].decoded
    place = np.empty(count, np.int64)
    place[np.concatenate([group.rows for group in groups])] = np.arange(count)
    places = pa.array(place)
    columns = [
        pa.concat_arrays([as_written(group.decoded.columns[n], arrow_type(column.field_type)) for group in groups])
        for n, column in enumerate(fields)
    ]
    refused = np.zeros(count, np.bool_)
    mismatches = []
    for group in groups:
        refused[group.rows] = group.decoded.refused
        mismatches += [replace(mismatch, row=int(group.rows[mismatch.row])) for mismatch in group.decoded.mismatches]
    decoded = [group.decoded for group in groups]
    return Decoded(
        columns=[column.take(places) for column in columns],
        refused=refused,
        mismatches=first_mismatches(mismatches, limit),
        requested_fields=merge_requested_fields([result.requested_fields for result in decoded], keeps_first=True),
        made_optional=set().union(*(result.made_optional for result in decoded)),
        dropped=set().union(*(result.dropped for result in decoded)),
        own=_own(groups, places),
        missing=set().union(*(result.missing for result in decoded)),
        refusals=set().union(*(result.refusals for result in decoded)),
        untyped=set().union(*(result.untyped for result in decoded)),
    )


def _own(groups: Sequence[Group], places: pa.Array) -> dict[str, pa.Array]:
    def texts_of(name: str) -> pa.Array:
        parts = (group.decoded.own.get(name, pa.nulls(group.rows.size, pa.string())) for group in groups)
        return pa.concat_arrays(list(parts)).take(places)

    return {name: texts_of(name) for name in {name for group in groups for name in group.decoded.own}}


def filled(keys: pa.Array) -> pa.Array:
    """Returns the keys with an arbitrary value in place of each null. A record with such a key is a bad record and
    becomes no row.
    """
    if not keys.null_count:
        return keys
    present_keys = keys.drop_null()
    return keys.fill_null(present_keys[0] if len(present_keys) else _any_of(keys.type))


def _any_of(kind: pa.DataType) -> pa.Scalar:
    """Returns an arbitrary value of a type."""
    if pa.types.is_fixed_size_binary(kind):
        return pa.scalar(bytes(kind.byte_width), kind)
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return pa.scalar("", pa.string()).cast(kind)
    if pa.types.is_boolean(kind):
        return pa.scalar(False)
    width = pa.int64() if kind.bit_width == 64 else pa.int32()
    return pa.scalar(0, width).cast(kind)


def select_columns(selection: Selection, struct: StructType, columns: Columns) -> tuple[StructType, Columns]:
    """Returns a reader's columns as if its schema had only the fields that the table takes."""
    pruned = selection.prune_struct(struct) or StructType()
    places = {member.name: n for n, member in enumerate(struct.fields)}
    arrays = []
    for member in pruned.fields:
        n = places[member.name]
        arrays.append(regroup(columns.arrays[n], struct.fields[n].field_type, member.field_type))
    return pruned, replace(columns, arrays=arrays)


def regroup(
    array: pa.Array, had: IcebergType, wanted: IcebergType, path: Path = (), moved: frozenset[Path] = frozenset()
) -> pa.Array:
    """Returns the array of type `had` with the members of `wanted`, at every level. Absent members are null, as are
    those that `moved` to columns of their own, and those of which nothing is taken.
    """
    if had == wanted and not any(other[: len(path)] == path for other in moved):
        return array
    if is_empty_type(had):
        return pa.nulls(len(array), arrow_type(wanted))
    is_struct = isinstance(had, StructType) and isinstance(wanted, StructType)
    if not is_struct and common_part(had, wanted) is None:
        return array if had == wanted else pa.nulls(len(array), arrow_type(wanted))
    array, children = unsliced(array), []
    index_by_name = {part.name: n for n, part in enumerate(parts_of(had))}
    inside = children_of(array)
    for part in parts_of(wanted):
        inner, n = (*path, part.name), index_by_name.get(part.name)
        if n is None or (is_struct and inner in moved):
            children.append(pa.nulls(len(array), arrow_type(part.field_type)))
        else:
            children.append(regroup(inside[n], parts_of(had)[n].field_type, part.field_type, inner, moved))
    return replace_children(array, [part.name for part in parts_of(wanted)], children)


def member_at(
    fields: Sequence[NestedField], arrays: Sequence[pa.Array], path: Path
) -> tuple[pa.Array, IcebergType] | None:
    """Returns the values of the field at `path`, null where a struct around it is, and their type; None where there is
    no such field.
    """
    column: tuple[pa.Array, IcebergType] | None = None
    for name in path:
        places = {member.name: n for n, member in enumerate(fields)}
        if name not in places:
            return None
        n = places[name]
        kind = fields[n].field_type
        column = (pc.struct_field(column[0], [n]) if column else arrays[n]), kind
        fields = kind.fields if isinstance(kind, StructType) else ()
    return column
