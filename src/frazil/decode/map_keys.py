"""Keys of maps, which must not be null: Arrow aborts the process over a null key."""

from __future__ import annotations

import pyarrow as pa


def filled(keys: pa.Array) -> pa.Array:
    """Returns the keys with an arbitrary value in place of each null. A record with such a key is a bad record and
    becomes no row.
    """
    if not keys.null_count:
        return keys
    there = keys.drop_null()
    return keys.fill_null(there[0] if len(there) else _any_of(keys.type))


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
