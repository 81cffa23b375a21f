"""Arrow types of Iceberg types, and Arrow arrays relabelled, sliced and selected from. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

_ID = b"PARQUET:field_id"
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Records = Mapping[str, pa.Array]
"""Columns of one length by name, as records read from Kafka."""
Rows = NDArray[np.integer[Any]]
"""Row numbers: any integer dtype, shape (n_rows,)."""
_PRIMITIVES: dict[type[IcebergType], pa.DataType] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", tz="UTC"),
    UUIDType: pa.binary(16),
}


def arrow_field(field: NestedField) -> pa.Field:
    """Returns the Parquet field for a column: its Arrow type with Iceberg field ids at every level."""
    return _with_id(field.name, arrow_type(field.field_type), field.field_id, not field.required)


def field_id_of(field: pa.Field) -> int:
    """Returns the Iceberg field id of a Parquet field; -1 where it has none."""
    return int((field.metadata or {}).get(_ID, b"-1"))


def _with_id(name: str, kind: pa.DataType, field_id: int, nullable: bool) -> pa.Field:
    return pa.field(name, kind, nullable, metadata={_ID: str(field_id).encode()})


def arrow_type(kind: IcebergType) -> pa.DataType:
    """Returns the Arrow type that is written for an Iceberg type, with the ids of its nested fields."""
    if isinstance(kind, StructType):
        return pa.struct([arrow_field(field) for field in kind.fields])
    if isinstance(kind, ListType):
        element = _with_id("element", arrow_type(kind.element_type), kind.element_id, not kind.element_required)
        return pa.list_(element)
    if isinstance(kind, MapType):
        key = _with_id("key", arrow_type(kind.key_type), kind.key_id, nullable=False)
        return pa.map_(key, _with_id("value", arrow_type(kind.value_type), kind.value_id, not kind.value_required))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, FixedType):
        return pa.binary(len(kind))
    return _PRIMITIVES[type(kind)]


def as_written(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Returns the same values in a type that differs only in field ids, names of nested fields, or width."""
    if array.type.equals(wanted, check_metadata=True):
        return array
    if pa.types.is_nested(wanted) and array.type.num_fields == wanted.num_fields:
        return _relabel(array, wanted)
    return array.cast(wanted)


def _relabel(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    array = unsliced(array)
    if pa.types.is_struct(wanted):
        children = [as_written(array.field(n), wanted.field(n).type) for n in range(wanted.num_fields)]
    elif pa.types.is_map(wanted):
        children = [as_written(array.keys, wanted.key_type), as_written(array.items, wanted.item_type)]
    else:
        children = [as_written(array.values, wanted.value_type)]
    return with_children(array, wanted, children)


def unsliced(array: pa.Array) -> pa.Array:
    """Returns the same values in buffers that begin at the first of them."""
    return pa.concat_arrays([array]) if array.offset else array


def with_children(array: pa.Array, wanted: pa.DataType, children: Sequence[pa.Array]) -> pa.Array:
    """Returns a nested array with the same nulls and lengths and other children: members of a struct, keys and values
    of a map, or elements of a list. The array is no slice.
    """
    buffers = array.buffers()[: 1 if pa.types.is_struct(wanted) else 2]
    if pa.types.is_map(wanted):
        entries = pa.struct([wanted.key_field, wanted.item_field])
        children = [pa.Array.from_buffers(entries, len(children[0]), [None], 0, children=list(children))]
    return pa.Array.from_buffers(wanted, len(array), buffers, array.null_count, children=list(children))


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Returns the column as a single array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def struct_array(
    names: Iterable[str], children: Sequence[pa.Array], count: int, there: Bools | None = None
) -> pa.Array:
    """Returns `count` structs of these members, of which there may be none. there: which are not null; None for all."""
    kind = pa.struct([pa.field(name, child.type) for name, child in zip(names, children, strict=True)])
    mask = None if there is None or there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(kind, count, [mask], children=list(children))


def is_every(rows: Rows, count: int) -> bool:
    """Whether the row numbers are all of `count` rows, in order."""
    return rows.size == count and bool((rows == np.arange(count)).all())


def spread_places(rows: Rows, count: int) -> pa.Array:
    """Returns the places to `take` from values of the rows with these numbers, for values of all `count` rows: null
    where a row is none of them.
    """
    places = np.full(count, -1, np.int64)
    places[rows] = np.arange(rows.size)
    return pa.array(places, mask=places < 0)


def pick(columns: Mapping[str, pa.Array], rows: Rows) -> dict[str, pa.Array]:
    """Returns the rows with these numbers from columns of one length, by name."""
    if all(is_every(rows, count) for count in {len(column) for column in columns.values()}):
        return dict(columns)
    places = pa.array(rows)
    return {name: column.take(places) for name, column in columns.items()}
