"""Decimals: exact in 256 bits, then rounded half up once, as Spark does; too many digits are an error."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.process.kernels.values import (
    NUMERIC_VALUE_OUT_OF_RANGE,
    Bools,
    Result,
    failing,
)

WIDEST = 76
_DIGITS_OF_WORD = 9
_LONG_DIGITS = 19


def rescale(array: pa.Array, target: pa.Decimal128Type) -> Result:
    """Returns decimals of 128 or 256 bits in another precision and scale, rounded half up."""
    kind = array.type
    if kind.scale <= target.scale and kind.precision - kind.scale <= target.precision - target.scale:
        return Result(array.cast(target))
    return narrow(array, target)


def narrow(array: pa.Array, target: pa.Decimal128Type) -> Result:
    """Returns decimals in another precision and scale, rounded half up; an error where the result has too many digits."""
    wide = _wide(array)
    if wide.type.scale > target.scale:
        half = Decimal((0, (5,), -target.scale - 1))
        is_negative = pc.less(wide, pa.scalar(Decimal(0), wide.type))
        away = pc.if_else(is_negative, pa.scalar(-half, wide.type), pa.scalar(half, wide.type))
        wide = truncate(_wide(pc.add(_narrower(wide), _narrower(away))), target.scale)
    bad = _is_beyond(wide, target)
    if bad.any():
        wide = pc.if_else(pa.array(~bad), wide, pa.scalar(None, wide.type))
    return failing(wide.cast(target), bad, NUMERIC_VALUE_OUT_OF_RANGE)


def _wide(array: pa.Array) -> pa.Array:
    return array.cast(pa.decimal256(WIDEST, array.type.scale))


def _narrower(wide: pa.Array) -> pa.Array:
    """Returns decimals with a digit less, so that a sum fits; no value has that many."""
    return wide.cast(pa.decimal256(WIDEST - 1, wide.type.scale))


def truncate(wide: pa.Array, scale: int) -> pa.Array:
    """Returns decimals without the digits behind a scale. Arrow 26 divides wrongly by more than 32 bits (the quotient of
    9223372036854775807.5 lacks 2**32), so at most nine digits are removed at a time.
    """
    while wide.type.scale > scale:
        wide = wide.cast(pa.decimal256(WIDEST, max(scale, wide.type.scale - _DIGITS_OF_WORD)), safe=False)
    return wide


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


def nearest_doubles(array: pa.Array, _: pa.DataType) -> pa.Array:
    """Returns the double nearest to each decimal; Arrow's own cast misses it for many."""
    return array.cast(pa.string()).cast(pa.float64())


def decimal_texts(array: pa.Array, _: pa.DataType) -> pa.Array:
    """Returns decimals as texts without an exponent."""
    texts = array.cast(pa.string())
    has_exponent = pc.match_substring(texts, "E")
    if not pc.any(has_exponent).as_py():
        return texts
    with_exponent = has_exponent.fill_null(False)
    plain = pa.array([format(decimal, "f") for decimal in array.filter(with_exponent).to_pylist()], pa.string())
    return pc.replace_with_mask(texts, with_exponent, plain)
