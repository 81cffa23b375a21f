"""Decimals: exact in 256 bits, then rounded half up once, as Spark does; too many digits are an error."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.process.kernels.values import (
    CAST_OVERFLOW,
    NUMERIC_VALUE_OUT_OF_RANGE,
    Bools,
    Result,
    failing,
)

WIDEST = 76
_LONG_DIGITS = 19


def rescale(array: pa.Array, target: pa.Decimal128Type) -> Result:
    """Returns decimals of 128 or 256 bits in another precision and scale, rounded half up."""
    kind = array.type
    if kind.scale <= target.scale and kind.precision - kind.scale <= target.precision - target.scale:
        return Result(array.cast(target))
    return narrow(array, target, "half_towards_infinity")


def narrow(array: pa.Array, target: pa.Decimal128Type, mode: str) -> Result:
    """Returns decimals rounded in this mode of Arrow, with an error where the result has too many digits."""
    scale = max(array.type.scale, target.scale)
    wide = array.cast(pa.decimal256(WIDEST, scale))
    if scale > target.scale:
        wide = pc.round(wide, target.scale, mode)
    bad = _is_beyond(wide, target)
    if bad.any():
        wide = pc.if_else(pa.array(~bad), wide, pa.scalar(None, wide.type))
    return failing(wide.cast(target), bad, NUMERIC_VALUE_OUT_OF_RANGE)


def _is_beyond(wide: pa.Array, target: pa.Decimal128Type) -> Bools:
    limit = Decimal(10) ** (target.precision - target.scale)
    if target.precision - target.scale > wide.type.precision - wide.type.scale:
        return np.zeros(len(wide), np.bool_)
    ends = pc.min_max(wide)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is None or (most < limit and least > -limit):
        return np.zeros(len(wide), np.bool_)
    edge: Any = pa.scalar(limit, wide.type)
    return np.asarray(pc.greater_equal(pc.abs(wide), edge).fill_null(False))


def decimal_of_integers(array: pa.Array, target: pa.Decimal128Type) -> Result:
    """Returns integers as decimals."""
    return rescale(array.cast(pa.decimal128(_LONG_DIGITS, 0)), target)


def integers_of_decimals(array: pa.Array, target: pa.DataType) -> Result:
    """Returns decimals as integers, truncated towards zero."""
    whole = pc.round(array.cast(pa.decimal256(WIDEST, array.type.scale)), 0, "towards_zero")
    edge = Decimal(2 ** (target.bit_width - 1))
    bad = np.zeros(len(array), np.bool_)
    if array.type.precision - array.type.scale >= (10 if target == pa.int32() else _LONG_DIGITS):
        over = pc.greater_equal(whole, pa.scalar(edge, whole.type))
        under = pc.less(whole, pa.scalar(-edge, whole.type))
        bad = np.asarray(pc.or_(over, under).fill_null(False))
        whole = pc.if_else(pa.array(~bad), whole, pa.scalar(None, whole.type))
    return failing(whole.cast(pa.decimal256(WIDEST, 0)).cast(target), bad, CAST_OVERFLOW)


def nearest_doubles(array: pa.Array, _: pa.DataType) -> pa.Array:
    """Returns the double nearest to each decimal; Arrow's own cast misses it for many."""
    return array.cast(pa.string()).cast(pa.float64())


def decimal_texts(array: pa.Array, _: pa.DataType) -> pa.Array:
    """Returns decimals as texts without an exponent."""
    texts = array.cast(pa.string())
    has_exponent = pc.match_substring(texts, "E")
    if not pc.any(has_exponent).as_py():
        return texts
    there = has_exponent.fill_null(False)
    plain = pa.array([format(one, "f") for one in array.filter(there).to_pylist()], pa.string())
    return pc.replace_with_mask(texts, there, plain)
