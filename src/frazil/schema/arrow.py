"""Arrow types of Iceberg types, and Arrow arrays made of parts, relabelled and selected from. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg import types as t

from frazil.schema.parts import parts_of

_ID = b"PARQUET:field_id"
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
I32 = NDArray[np.int32]
Records = Mapping[str, pa.Array]
"""Columns of one length by name, as records read from Kafka."""
Rows = NDArray[np.integer[Any]]
"""Row numbers: any integer dtype, shape (n_rows,)."""
_PRIMITIVES: dict[type[t.IcebergType], pa.DataType] = {
    t.BooleanType: pa.bool_(),
    t.IntegerType: pa.int32(),
    t.LongType: pa.int64(),
    t.FloatType: pa.float32(),
    t.DoubleType: pa.float64(),
    t.StringType: pa.string(),
    t.BinaryType: pa.binary(),
    t.DateType: pa.date32(),
    t.TimeType: pa.time64("us"),
    t.TimestampType: pa.timestamp("us"),
    t.TimestamptzType: pa.timestamp("us", tz="UTC"),
    t.UUIDType: pa.binary(16),
}


def arrow_field(field: t.NestedField) -> pa.Field:
    """Returns the Parquet field for a column: its Arrow type with Iceberg field ids at every level."""
    metadata = {_ID: str(field.field_id).encode()}
    return pa.field(field.name, arrow_type(field.field_type), not field.required, metadata=metadata)


def field_id_of(field: pa.Field) -> int:
    """Returns the Iceberg field id of a Parquet field; -1 where it has none."""
    return int((field.metadata or {}).get(_ID, b"-1"))


def arrow_type(kind: t.IcebergType) -> pa.DataType:
    """Returns the Arrow type that is written for an Iceberg type, with the ids of its nested fields."""
    fields = [arrow_field(part) for part in parts_of(kind)]
    if isinstance(kind, t.StructType):
        return pa.struct(fields)
    if isinstance(kind, t.ListType):
        return pa.list_(fields[0])
    if isinstance(kind, t.MapType):
        return pa.map_(arrow_field(kind.key_field), fields[0])
    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, t.FixedType):
        return pa.binary(len(kind))
    if isinstance(kind, t.BinaryType):  # Or a reader's own type of bytes.
        return pa.binary()
    return _PRIMITIVES[type(kind)]


def iceberg_type(kind: pa.DataType, ids: Iterator[int]) -> t.IcebergType:
    """Returns the Iceberg type of values of an Arrow type, the inverse of `arrow_type`; every part is optional. ids: of
    nested fields.
    """
    if pa.types.is_struct(kind):
        parts = [(part.name, next(ids), iceberg_type(part.type, ids)) for part in kind]
        return t.StructType(*(t.NestedField(number, name, of, required=False) for name, number, of in parts))
    if pa.types.is_map(kind):
        key_id, value_id = next(ids), next(ids)
        key, value = iceberg_type(kind.key_type, ids), iceberg_type(kind.item_type, ids)
        return t.MapType(key_id, key, value_id, value, value_required=False)
    if pa.types.is_list(kind):
        return t.ListType(next(ids), iceberg_type(kind.value_type, ids), element_required=False)
    if pa.types.is_decimal128(kind):
        return t.DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return t.FixedType(kind.byte_width)
    return next(of() for of, written in _PRIMITIVES.items() if written == kind and of is not t.UUIDType)


def as_written(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Returns the same values in a type that differs only in field ids, names of nested fields, or width."""
    if array.type.equals(wanted, check_metadata=True):
        return array
    if pa.types.is_nested(wanted) and array.type.num_fields == wanted.num_fields:
        array = unsliced(array)
        children = children_of(array)
        if pa.types.is_map(wanted):
            children.insert(0, array.keys)
            kinds = [wanted.key_type, wanted.item_type]
        else:
            kinds = [wanted.field(n).type for n in range(wanted.num_fields)]
        return with_children(
            array, wanted, [as_written(child, kind) for child, kind in zip(children, kinds, strict=True)]
        )
    return array.cast(wanted)


def rows_as_written(rows: pa.RecordBatch, wanted: pa.Schema) -> pa.Table:
    """Returns the same rows in a schema whose types differ only as those of `as_written`."""
    columns = [as_written(column, field.type) for column, field in zip(rows.columns, wanted, strict=True)]
    return pa.Table.from_arrays(columns, schema=wanted)


def unsliced(array: pa.Array) -> pa.Array:
    """Returns the same values in buffers that begin at the first of them."""
    return pa.concat_arrays([array]) if array.offset else array


def with_children(array: pa.Array, wanted: pa.DataType, children: Sequence[pa.Array]) -> pa.Array:
    """Returns a nested array with the same nulls and lengths and other children: members of a struct, keys and values
    of a map, or elements of a list. The array is not a slice.
    """
    buffers = array.buffers()[: 1 if pa.types.is_struct(wanted) else 2]
    return _nested(wanted, len(array), children, buffers, array.null_count)


def _nested(
    wanted: pa.DataType, rows: int, children: Sequence[pa.Array], buffers: list[pa.Buffer | None], nulls: int
) -> pa.Array:
    if pa.types.is_map(wanted):
        entries = pa.struct([wanted.key_field, wanted.item_field])
        children = [pa.Array.from_buffers(entries, len(children[0]), [None], 0, children=list(children))]
    return pa.Array.from_buffers(wanted, rows, buffers, nulls, children=list(children))


def children_of(array: pa.Array) -> list[pa.Array]:
    """Returns the arrays of the parts of a nested array, as in `parts_of`. The array is not a slice."""
    if pa.types.is_struct(array.type):
        return [array.field(n) for n in range(array.type.num_fields)]
    return [array.items if pa.types.is_map(array.type) else array.values]


def replace_children(
    array: pa.Array, names: Iterable[str], children: Sequence[pa.Array], keys: pa.Array | None = None
) -> pa.Array:
    """Returns a nested array with the same nulls and lengths and other parts, for a map also with other keys. The array
    is not a slice. names: of a struct's members.
    """
    if pa.types.is_struct(array.type):
        kind = pa.struct([pa.field(name, child.type) for name, child in zip(names, children, strict=True)])
        return with_children(array, kind, children)
    if not pa.types.is_map(array.type):
        return with_children(array, _list_of(children[0]), children)
    keys = array.keys if keys is None else keys
    return with_children(array, _map_of(keys, children[0]), [keys, *children])


def _list_of(items: pa.Array) -> pa.DataType:
    return pa.list_(pa.field("element", items.type))


def _map_of(keys: pa.Array, items: pa.Array) -> pa.DataType:
    return pa.map_(keys.type, pa.field("value", items.type))


def struct_array(
    rows: int, names: Iterable[str], members: Sequence[pa.Array], validity: pa.Buffer | None, nulls: int = -1
) -> pa.Array:
    """Returns structs of these members. validity: Arrow's bitmap, None: none is null."""
    kind = pa.struct([pa.field(name, member.type) for name, member in zip(names, members, strict=True)])
    return _nested(kind, rows, members, [validity], nulls)


def list_array(offsets: I32, items: pa.Array, validity: pa.Buffer | None, nulls: int = -1) -> pa.Array:
    """Returns lists of these items. offsets: where the items of each list begin, `(n_lists + 1,)`."""
    return _nested(_list_of(items), offsets.size - 1, [items], [validity, pa.py_buffer(offsets)], nulls)


def map_array(offsets: I32, keys: pa.Array, items: pa.Array, validity: pa.Buffer | None, nulls: int = -1) -> pa.Array:
    """Returns maps of these entries, none of whose keys is null. offsets: where the entries of each map begin,
    `(n_maps + 1,)`.
    """
    return _nested(_map_of(keys, items), offsets.size - 1, [keys, items], [validity, pa.py_buffer(offsets)], nulls)


def first_present(values: pa.Array, fallback: pa.Array) -> pa.Array:
    """Returns the values of one array, and those of the other where it has none."""
    count = len(values)
    places = np.where(np.asarray(values.is_null()), np.arange(count, 2 * count), np.arange(count))
    return pa.concat_arrays([values, as_written(fallback, values.type)]).take(pa.array(places))


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Returns the column as a single array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def structs_where(
    names: Iterable[str], children: Sequence[pa.Array], count: int, is_present: Bools | None = None
) -> pa.Array:
    """Returns `count` structs of these members, of which there may be none. is_present: which are not null; None for all."""
    mask = None if is_present is None or is_present.all() else pa.py_buffer(np.packbits(is_present, bitorder="little"))
    return struct_array(count, names, children, mask)


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


def spread_mask(mask: Bools, rows: Rows, count: int) -> Bools:
    """Returns which of all `count` rows have one of these numbers where the mask is true, bool of shape (count,)."""
    spread = np.zeros(count, np.bool_)
    spread[rows[mask]] = True
    return spread


def pick(columns: Mapping[str, pa.Array], rows: Rows) -> dict[str, pa.Array]:
    """Returns the rows with these numbers from columns of one length, by name."""
    if all(is_every(rows, count) for count in {len(column) for column in columns.values()}):
        return dict(columns)
    places = pa.array(rows)
    return {name: column.take(places) for name, column in columns.items()}
