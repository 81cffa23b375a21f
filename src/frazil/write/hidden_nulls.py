"""Required fields inside structs that are null: Arrow's Parquet writer takes their nulls for missing values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def hides_nulls(kind: pa.DataType) -> bool:
    """Whether the type contains a struct with a required field of a primitive type."""
    fields = [kind.field(n) for n in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    has_own = pa.types.is_struct(kind) and any(_is_required(field) for field in fields)
    return has_own or any(hides_nulls(field.type) for field in fields)


def without_hidden_nulls(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns the column without nulls in required fields whose struct is null itself; the values put in their place
    are not written.
    """
    return pa.chunked_array([_shown(chunk) for chunk in column.chunks], column.type)


def _is_required(field: pa.Field) -> bool:
    return not field.nullable and not pa.types.is_nested(field.type)


def _shown(array: pa.Array) -> pa.Array:
    kind = array.type
    if not hides_nulls(kind):
        return array
    if array.offset:
        # The buffers below are used entirely: an array that is a slice must begin where they do.
        array = pa.concat_arrays([array])
    if pa.types.is_struct(kind):
        return _shown_struct(array)
    if pa.types.is_map(kind):
        parts = [array.keys, _shown(array.items)]
        children = [pa.StructArray.from_arrays(parts, fields=[kind.key_field, kind.item_field])]
    else:
        children = [_shown(array.values)]
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, children=children)


def _shown_struct(array: pa.StructArray) -> pa.StructArray:
    kind, is_gone = array.type, np.asarray(array.is_null())
    children = []
    for n in range(kind.num_fields):
        child = _shown(array.field(n))
        if _is_required(kind.field(n)) and child.null_count and not (np.asarray(child.is_null()) & ~is_gone).any():
            child = pa.Array.from_buffers(child.type, len(child), [None, *child.buffers()[1:]], 0, child.offset)
        children.append(child)
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:1], array.null_count, children=children)
