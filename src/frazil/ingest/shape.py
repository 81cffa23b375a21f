"""Decoded columns and record metadata to the table's own columns, in its order and types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from frazil.ingest.decode.columns import Decoded
from frazil.ingest.target import TableTarget
from frazil.types import RESCUED_COLUMN


def shape_rows(target: TableTarget, decoded: Decoded, records: Mapping[str, pa.Array]) -> pa.Table:
    """Rows in the files' schema.

    decoded: with one array per field of `target.fields`. records: the source's columns by name (topic, partition, offset,
    timestamp, headers, key), of which the table has those it asked for.
    """
    by_name = {field.name: array for field, array in zip(target.fields, decoded.columns, strict=True)}
    by_name |= {column: records[field] for field, column in target.metadata}
    if target.reading.has_rescued_column:
        rescued = decoded.rescued
        by_name[RESCUED_COLUMN] = rescued if rescued is not None else pa.nulls(len(decoded.refused), pa.string())
    columns = [as_written(by_name[field.name], field.type) for field in target.arrow_schema]
    return pa.Table.from_arrays(columns, schema=target.arrow_schema)


def as_written(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The same values in a type that differs in field ids and names of nested fields at most, or in width."""
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
    """The same values in buffers that begin with the first of them."""
    return pa.concat_arrays([array]) if array.offset else array


def with_children(array: pa.Array, wanted: pa.DataType, children: Sequence[pa.Array]) -> pa.Array:
    """The nulls and lengths of a nested array, which is no slice, with other values below: of the members of a struct, of
    keys and values of a map, or of elements of a list.
    """
    buffers = array.buffers()[: 1 if pa.types.is_struct(wanted) else 2]
    if pa.types.is_map(wanted):
        entries = pa.struct([wanted.key_field, wanted.item_field])
        children = [pa.Array.from_buffers(entries, len(children[0]), [None], 0, children=list(children))]
    return pa.Array.from_buffers(wanted, len(array), buffers, array.null_count, children=list(children))
