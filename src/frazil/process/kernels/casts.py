"""Casts between numbers, texts, booleans, days and times; the session's time zone is UTC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.process.kernels.decimals import (
    decimal_of_integers,
    decimal_texts,
    integers_of_decimals,
    nearest_doubles,
    rescale,
)
from frazil.process.kernels.moments import read_days, read_moments, texts_of_days, texts_of_moments
from frazil.process.kernels.text_numbers import read_booleans, read_doubles, read_integers, read_rounded_decimals
from frazil.process.kernels.values import (
    ARITHMETIC_OVERFLOW,
    CAST_OVERFLOW,
    INVALID_UTF8_STRING,
    Kernel,
    Result,
    failing,
    from_numbers,
    kind_of,
    numbers,
)
from frazil.process.program import Call

Cast = Callable[[pa.Array, Any], Result | pa.Array]
_DAY_US = 86_400_000_000
_SECOND_US = 1_000_000
_DIGITS_OF_DOUBLE = 15


def _by_arrow(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array.cast(target, safe=False)


def _narrow(array: pa.Array, target: pa.DataType) -> Result:
    found = numbers(array)
    bad = (found < -(2**31)) | (found >= 2**31)
    return failing(array.cast(target, safe=False), bad, CAST_OVERFLOW)


def _truncate(array: pa.Array, target: pa.DataType) -> Result:
    """Doubles to integers. Spark compares with the greatest integer as a double, and 2**63 is equal to that."""
    found = numbers(array).astype(np.float64)
    edge = 2.0 ** (target.bit_width - 1)
    most = edge if target == pa.int64() else edge - 1
    with np.errstate(invalid="ignore"):
        bad = ~((np.floor(found) <= most) & (np.ceil(found) >= -edge))
        inside = np.where(bad, 0.0, np.trunc(found))
        whole = np.where(inside >= edge, np.iinfo(np.int64).max, inside.astype(np.int64))
    values = from_numbers(whole.astype(target.to_pandas_dtype()), target, array)
    return failing(values, bad & np.asarray(array.is_valid()), CAST_OVERFLOW)


def _is_not_zero(array: pa.Array, _: pa.DataType) -> pa.Array:
    return pc.not_equal(array, pa.scalar(0, array.type))


def _moments_of_days(array: pa.Array, target: pa.DataType) -> Result:
    days = numbers(array).astype(np.int64)
    return failing(from_numbers(days * _DAY_US, target, array), np.abs(days) > 106_751_991, ARITHMETIC_OVERFLOW)


def _days_of_moments(array: pa.Array, target: pa.DataType) -> pa.Array:
    return from_numbers((numbers(array) // _DAY_US).astype(np.int32), target, array)


def _seconds_of_moments(array: pa.Array, target: pa.DataType) -> Result:
    seconds = numbers(array) // _SECOND_US
    if target == pa.int64():
        return Result(from_numbers(seconds, target, array))
    bad = (seconds < -(2**31)) | (seconds >= 2**31)
    return failing(from_numbers(seconds.astype(np.int32), target, array), bad, CAST_OVERFLOW)


def _moments_of_seconds(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Beyond 64 bits of microseconds, the first or the last of them (java.util.concurrent.TimeUnit)."""
    found = numbers(array).astype(np.int64)
    limits = np.iinfo(np.int64)
    most = limits.max // _SECOND_US
    micros = np.where(found > most, limits.max, np.where(found < -most, limits.min, found * _SECOND_US))
    return from_numbers(micros, target, array)


def _as_bits(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array.cast(pa.timestamp("us")).cast(target) if target.tz is None else array.view(target)


def _text_of_bytes(array: pa.Array, target: pa.DataType) -> Result:
    """Spark keeps bytes that are no UTF-8; no file and no column here can."""
    try:
        return Result(array.cast(target))
    except pa.ArrowInvalid:
        bad = np.array([value is not None and not _is_utf8(value) for value in array.to_pylist()], np.bool_)
        good = pc.if_else(pa.array(~bad), array, pa.scalar(None, array.type))
        return failing(good.cast(target), bad, INVALID_UTF8_STRING)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


_CASTS: dict[tuple[str, str], Cast] = {
    ("text", "int"): read_integers,
    ("text", "long"): read_integers,
    ("text", "double"): lambda array, _: read_doubles(array),
    ("text", "decimal"): read_rounded_decimals,
    ("text", "bool"): lambda array, _: read_booleans(array),
    ("text", "date"): read_days,
    ("text", "timestamp"): read_moments,
    ("text", "binary"): _by_arrow,
    ("binary", "text"): _text_of_bytes,
    ("int", "long"): _by_arrow,
    ("int", "double"): _by_arrow,
    ("int", "decimal"): decimal_of_integers,
    ("int", "text"): _by_arrow,
    ("int", "bool"): _is_not_zero,
    ("long", "int"): _narrow,
    ("long", "double"): _by_arrow,
    ("long", "decimal"): decimal_of_integers,
    ("long", "text"): _by_arrow,
    ("long", "bool"): _is_not_zero,
    ("long", "timestamp"): _moments_of_seconds,
    ("int", "timestamp"): _moments_of_seconds,
    ("float", "double"): _by_arrow,
    ("double", "int"): _truncate,
    ("double", "long"): _truncate,
    ("decimal", "decimal"): rescale,
    ("decimal", "int"): integers_of_decimals,
    ("decimal", "long"): integers_of_decimals,
    ("decimal", "double"): nearest_doubles,
    ("decimal", "text"): decimal_texts,
    ("bool", "int"): _by_arrow,
    ("bool", "long"): _by_arrow,
    ("bool", "text"): _by_arrow,
    ("date", "text"): texts_of_days,
    ("date", "timestamp"): _moments_of_days,
    ("date", "ntz"): _moments_of_days,
    ("timestamp", "date"): _days_of_moments,
    ("timestamp", "text"): texts_of_moments,
    ("timestamp", "long"): _seconds_of_moments,
    ("timestamp", "int"): _seconds_of_moments,
    ("timestamp", "ntz"): _as_bits,
    ("ntz", "timestamp"): _as_bits,
    ("ntz", "date"): _days_of_moments,
    ("ntz", "text"): texts_of_moments,
}
"""By the kinds of the value and of the result."""


def _cast(call: Call, value: pa.Array) -> Result | pa.Array:
    return _CASTS[kind_of(value.type), kind_of(call.type)](value, call.type)


def _objection(call: Call) -> str:
    kind = call.arguments[0].type
    if (kind_of(kind), kind_of(call.type)) not in _CASTS:
        return f"casts from {kind_of(kind)} to {kind_of(call.type)} are not proven"
    if kind == pa.binary() and dict(call.options).get("evalMode") == "TRY":
        return "bytes that are no UTF-8 are no null in Spark"
    # Spark casts some decimals to int by way of a double, depending on how it has them.
    is_by_double = pa.types.is_decimal(kind) and call.type == pa.int32() and kind.precision > _DIGITS_OF_DOUBLE
    return f"Spark may round numbers of more than {_DIGITS_OF_DOUBLE} digits" if is_by_double else ""


def _parse(call: Call, value: pa.Array) -> Result | pa.Array:
    """TO_DATE and TO_TIMESTAMP without a pattern; what they cannot read is null for TRY_TO_DATE and TRY_TO_TIMESTAMP."""
    made, options = _cast(call, value), dict(call.options)
    is_tried = False in (options.get("failOnError"), options.get("ansiEnabled"))
    return made.values if is_tried and isinstance(made, Result) else made


KERNELS = {
    "Cast": Kernel(("any",), _cast, objection=_objection),
    "ParseToDate": Kernel(("text", "timestamp"), _parse, objection=_objection),
    "ParseToTimestamp": Kernel(("text", "date"), _parse, objection=_objection),
}
