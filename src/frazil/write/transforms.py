"""Partition values of whole columns, equal to those of Iceberg's Java library for every type.

Times and numbers are computed here; only the hashes come from pyiceberg-core.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg_core import transform as core

_MICROS = {"hour": 3_600_000_000, "day": 86_400_000_000}
_UNITS = {"year": "Y", "month": "M"}


def transformed(transform: str, column: pa.Array) -> pa.Array:
    """Returns the partition values of a column for one of Iceberg's transforms other than void; null for null.

    Years, months, days and hours are int32 since 1970 and buckets int32; other transforms keep the column's type.
    Source: Iceberg spec, "Partition Transforms".
    """
    name, _, number = transform.rstrip("]").partition("[")
    if name == "identity":
        return column
    if name == "bucket":
        return _bucket(column, int(number))
    if name == "truncate":
        return _truncate(column, int(number))
    return _time(name, column)


def _time(name: str, column: pa.Array) -> pa.Array:
    is_date = pa.types.is_date32(column.type)
    raw = _numbers(column, pa.int32() if is_date else pa.int64())
    if name in _UNITS:
        times = raw.astype("datetime64[D]" if is_date else "datetime64[us]")
        values = times.astype(f"datetime64[{_UNITS[name]}]").astype(np.int64)
    else:
        values = raw if is_date else raw // _MICROS[name]
    return pa.array(values.astype(np.int32), pa.int32(), mask=_nulls(column))


def _bucket(column: pa.Array, count: int) -> pa.Array:
    kind = column.type
    if pa.types.is_fixed_size_binary(kind):
        column = column.cast(pa.binary())
    elif pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        # All of these types are hashed as longs.
        numbers = _numbers(column, pa.int32() if kind.bit_width == 32 else pa.int64()).astype(np.int64)
        column = pa.array(numbers, pa.int64(), mask=_nulls(column))
    return core.bucket(column, count)


def _truncate(column: pa.Array, width: int) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind):
        return pc.utf8_slice_codeunits(column, 0, width)  # This function counts code points, despite its name.
    if pa.types.is_binary(kind):
        return pc.binary_slice(column, 0, width)
    if pa.types.is_decimal(kind):
        return _truncate_decimal(column, width)
    number = np.int32(width) if kind.bit_width == 32 else np.int64(width)
    values = _numbers(column, kind)
    # As in Java, with overflow.
    rest = np.fmod(np.fmod(values, number) + number, number)
    return pa.array(values - rest, kind, mask=_nulls(column))


def _truncate_decimal(column: pa.Array, width: int) -> pa.Array:
    """Returns decimals truncated by their unscaled numbers; those of more than 64 bits one by one, as Arrow has no
    arithmetic for them.
    """
    kind = column.type
    buffers = column.buffers()
    halves = np.frombuffer(buffers[1], np.int64, (len(column) + column.offset) * 2)[column.offset * 2 :]
    low, high = halves[0::2], halves[1::2]
    nulls = _nulls(column)
    is_small = (high == low >> 63) | nulls
    if is_small.all() and width < 2**31:
        numbers = np.where(nulls, 0, low)
        if numbers.size == 0 or int(numbers.min()) >= -(2**62):
            cut = numbers - np.mod(numbers, np.int64(width))
            pairs = np.stack([cut, cut >> 63], axis=1)
            return pa.Array.from_buffers(kind, len(column), [_bitmap(nulls), pa.py_buffer(pairs.tobytes())])
    wide = [(int(upper) << 64) | (int(lower) & (2**64 - 1)) for upper, lower in zip(high, low, strict=True)]
    cut_wide = [0 if null else value - value % width for value, null in zip(wide, nulls, strict=True)]
    raw = b"".join(value.to_bytes(16, "little", signed=True) for value in cut_wide)
    return pa.Array.from_buffers(kind, len(column), [_bitmap(nulls), pa.py_buffer(raw)])


def _bitmap(nulls: np.ndarray) -> pa.Buffer | None:
    return pa.py_buffer(np.packbits(~nulls, bitorder="little").tobytes()) if nulls.any() else None


def _numbers(column: pa.Array, kind: pa.DataType) -> np.ndarray:
    """Returns the raw numbers; an arbitrary number in place of null."""
    raw = column if column.type == kind else column.view(kind)
    found: np.ndarray = raw.fill_null(0).to_numpy(zero_copy_only=False)
    return found


def _nulls(column: pa.Array) -> np.ndarray:
    if not column.null_count:
        return np.zeros(len(column), bool)
    nulls: np.ndarray = column.is_null().to_numpy(zero_copy_only=False)
    return nulls
