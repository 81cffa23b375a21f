"""Lossless conversions between Arrow types: numbers, bytes, and days as times."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Decimals of up to this many digits are recovered from the nearest float (IEEE 754; FLT_DIG and DBL_DIG of C).
_RECOVERABLE_DIGITS = {pa.float32(): 6, pa.float64(): 15}
_ROOMY = 60
_WIDEST = 76


def may_convert(written: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type may be equal in the other: numbers to numbers, bytes to bytes and days to times
    without a zone.
    """
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    is_number = [any(is_kind(kind) for is_kind in kinds) for kind in (written, wanted)]
    if pa.types.is_floating(written) and not pa.types.is_floating(wanted):
        return False
    is_bytes = [pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind) for kind in (written, wanted)]
    is_day = pa.types.is_date(written) and pa.types.is_timestamp(wanted)
    return all(is_number) or all(is_bytes) or (is_day and wanted.tz is None)


def cast_losslessly(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Returns the values that are equal in the target type; null for the others."""
    if not may_convert(array.type, target):
        return pa.nulls(len(array), target)
    if pa.types.is_decimal(array.type) and pa.types.is_floating(target):
        return _nearest_floats(array, target)
    if pa.types.is_decimal(array.type) or pa.types.is_decimal(target) or not pa.types.is_primitive(target):
        return _cast_by_value(array, target)
    converted = array.cast(target, safe=False)
    again = converted.cast(array.type, safe=False)
    same = pc.equal(array, again)
    if pa.types.is_floating(array.type):
        same = pc.or_(same, pc.is_nan(array))
    elif pa.types.is_floating(target):  # A value rounded up to 2**63 does not convert back the same on every machine.
        same = pc.and_(same, pc.and_(pc.less(converted, 2.0**63), pc.greater_equal(converted, -(2.0**63))))
    return pc.if_else(pc.fill_null(same, False), converted, pa.scalar(None, target))


def _nearest_floats(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Returns the nearest float or double of each decimal that can be recovered from it; null for the others. Arrow's
    own cast misses the nearest one for many: 99.99 becomes 99.99000000000001.
    """
    found = array.cast(pa.string()).cast(target)
    unit, digits = Decimal((0, (1,), -array.type.scale)), _RECOVERABLE_DIGITS[target]
    same = np.ones(len(array), np.bool_)
    if array.type.precision > digits:
        most = pa.scalar(Decimal((0, (9,) * digits, -array.type.scale)), array.type)
        same = np.array(pc.fill_null(pc.less_equal(pc.abs(array), most), False))
    with localcontext(Context(prec=_WIDEST, traps=[])):
        for row in np.flatnonzero(~same & np.asarray(array.is_valid())).tolist():
            same[row] = Decimal(found[row].as_py()).quantize(unit) == array[row].as_py()
    return pc.if_else(pa.array(same), found, pa.scalar(None, target))


def _cast_by_value(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_integer(array.type):
        # Arrow checks the precision for the largest integer of the type.
        array = array.cast(pa.decimal256(_ROOMY, target.scale))
    array = pc.if_else(_is_in_range(array, target), array, pa.scalar(None, array.type))
    back = _way_back(array.type, target)
    try:
        converted = array.cast(target, safe=not pa.types.is_decimal(array.type))
        same = pc.equal(converted.cast(back), array.cast(back))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # Arrow refuses all of them for some.
        return _cast_one_by_one(array, target)
    return pc.if_else(pc.fill_null(same, False), converted, pa.scalar(None, target))


def _is_in_range(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Returns the values that are not too large, or too long, for the target type, as far as a quick check can decide."""
    if pa.types.is_fixed_size_binary(target) and not pa.types.is_decimal(target):
        return pc.equal(pc.binary_length(array), target.byte_width)
    if not pa.types.is_decimal(array.type) or pa.types.is_floating(target):
        return pa.repeat(True, len(array))
    if pa.types.is_integer(target):
        most = 2 ** (target.bit_width - 1) - 1
        least = -most - 1
    else:
        digits = target.precision - target.scale
        if digits >= array.type.precision - array.type.scale:
            return pa.repeat(True, len(array))
        most = 10**digits
        least = -most
    wide = pa.decimal256(_WIDEST, array.type.scale)
    values = array.cast(wide)
    inside = pc.and_(
        pc.less_equal(values, pa.scalar(Decimal(most), wide)), pc.greater_equal(values, pa.scalar(Decimal(least), wide))
    )
    if pa.types.is_integer(target):
        return inside
    return pc.and_(inside, pc.not_equal(pc.abs(values), pa.scalar(Decimal(most), wide)))


def _way_back(written: pa.DataType, target: pa.DataType) -> pa.DataType:
    """Returns the type in which values and converted values are compared: Arrow checks the precision for the largest
    integer of a type.
    """
    if pa.types.is_decimal(written) and pa.types.is_integer(target):
        return pa.decimal256(_WIDEST, written.scale)
    return written


def _cast_one_by_one(array: pa.Array, target: pa.DataType) -> pa.Array:
    out: list[Any] = []
    back = _way_back(array.type, target)
    for value in array:
        try:
            one = value.cast(target)
            out.append(one.as_py() if one.cast(back).equals(value.cast(back)) else None)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            out.append(None)
    return pa.array(out, target)
