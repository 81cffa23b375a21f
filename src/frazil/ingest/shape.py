"""Decoded columns and record metadata to the table's own columns, in its order and types."""

from __future__ import annotations

from collections.abc import Mapping

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
    if array.offset:
        array = pa.concat_arrays([array])  # The buffers below are taken whole: a slice must begin where they do.
    if pa.types.is_struct(wanted):
        children = [as_written(array.field(n), wanted.field(n).type) for n in range(wanted.num_fields)]
        return pa.Array.from_buffers(wanted, len(array), array.buffers()[:1], array.null_count, children=children)
    if pa.types.is_map(wanted):
        keys = as_written(array.keys, wanted.key_type)
        entries_type = pa.struct([wanted.key_field, wanted.item_field])
        entries = pa.Array.from_buffers(
            entries_type, len(keys), [None], 0, children=[keys, as_written(array.items, wanted.item_type)]
        )
        return pa.Array.from_buffers(wanted, len(array), array.buffers()[:2], array.null_count, children=[entries])
    values = as_written(array.values, wanted.value_type)
    return pa.Array.from_buffers(wanted, len(array), array.buffers()[:2], array.null_count, children=[values])
