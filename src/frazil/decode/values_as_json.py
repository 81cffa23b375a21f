"""Values as JSON texts, for people, for extra columns and for replays.

Bytes are base64, times ISO 8601, decimals plain digits as text, and numbers that JSON lacks the texts NaN, Infinity and
-Infinity, which Kafka Connect writes and reads.

A column of scalars becomes texts at once; bytes and nested values, which Arrow does not format, one by one.
"""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.decode.columns import as_text
from frazil.decode.epochs import FIRST_US, LAST_US
from frazil.literals import format_day, format_moment

_DAY_US = 86_400_000_000
_DIGITS = {"ms": 3, "us": 6, "ns": 9}
"""The number of digits of a fraction of a second, by the unit of a type."""


def as_json(value: Any) -> str:
    """Returns one value as JSON text."""
    return json.dumps(_as_plain_json(value), ensure_ascii=False, separators=(",", ":"))


def json_text(value: pa.Scalar) -> str:
    """Returns one value of an array as JSON text."""
    return as_json(_python(value))


def key_text(value: pa.Scalar) -> str:
    """Returns the value of a key as messages quote it: text between single quotes, anything else as JSON has it."""
    return repr(value.as_py()) if pa.types.is_string(value.type) else json_text(value)


def json_texts(array: pa.Array) -> pa.Array:
    """Returns every value of an array without nulls as JSON text."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return json_texts(array.dictionary_decode())
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return array.cast(pa.string())
    if pa.types.is_floating(kind):
        return _of_floats(array.cast(pa.float64()))
    if pa.types.is_string(kind):
        texts = pc.replace_substring(pc.replace_substring(array, "\\", "\\\\"), '"', '\\"')
        texts = _quoted(texts)
        is_control = pc.match_substring_regex(array, r"[\x00-\x1f]")
        if not pc.any(is_control).as_py():
            return texts
        return pc.replace_with_mask(texts, is_control, _one_by_one(array.filter(is_control)))
    if _is_far(array):
        return _one_by_one(array)
    if pa.types.is_date(kind) or pa.types.is_decimal(kind):
        return _quoted(_without_exponents(array))
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return _quoted(_of_times(array))
    return _one_by_one(array)


def _one_by_one(array: pa.Array) -> pa.Array:
    try:
        values = array.to_pylist()
    except (OverflowError, ValueError):  # Python has no times before the year 1 or after 9999.
        values = [_python(value) for value in array]
    return pa.array([as_text(as_json(value)) for value in values], pa.string())


def _is_far(array: pa.Array) -> bool:
    """Whether some day or time is before the year 1 or after 9999, which Arrow formats differently from Python."""
    kind, least, most = array.type, FIRST_US, LAST_US
    if pa.types.is_date32(kind):
        numbers, least, most = array.view(pa.int32()), least // _DAY_US, most // _DAY_US
    elif pa.types.is_timestamp(kind):
        numbers = array.view(pa.int64())
    else:
        return False
    ends = pc.min_max(numbers).as_py()
    return bool(len(array)) and not (least <= ends["min"] and ends["max"] < most)


def _python(value: pa.Scalar) -> Any:
    """Returns the value as Python's own; days and times that Python does not have as texts."""
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        # Days and timestamps that Python does not have are text. It has every time of day: readers refuse those beyond
        # 24 hours.
        kind = value.type
        if pa.types.is_struct(kind):
            return {name: _python(member) for name, member in value.items()}
        if pa.types.is_map(kind):
            return [(_python(entry[0]), _python(entry[1])) for entry in value.values]
        if pa.types.is_list(kind):
            return [_python(member) for member in value.values]
        if pa.types.is_date(kind):
            return format_day(value.value)
        return format_moment(value.value) + ("+00:00" if kind.tz else "")


def _of_floats(array: pa.Array) -> pa.Array:
    texts = pc.replace_substring_regex(array.cast(pa.string()), r"^(-?[0-9]+)$", r"\1.0")
    endless = pc.replace_substring(pc.replace_substring(texts, "nan", "NaN"), "inf", "Infinity")
    return pc.if_else(pc.is_finite(array), texts, _quoted(endless))


def _without_exponents(array: pa.Array) -> pa.Array:
    """Returns days, or decimals in plain digits: Arrow writes 0E-10."""
    texts = array.cast(pa.string())
    has_exponent = pc.match_substring(texts, "E")
    if pc.any(has_exponent).as_py():
        plain = pa.array([format(value, "f") for value in array.filter(has_exponent).to_pylist()], pa.string())
        return pc.replace_with_mask(texts, has_exponent, plain)
    return texts


def _of_times(array: pa.Array) -> pa.Array:
    """Returns times as Python formats them: with a fraction only where there is one."""
    kind, zone = array.type, ""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # The same moment without a zone: with one, Arrow looks each moment up in the database of time zones.
        array, zone = array.cast(pa.timestamp(kind.unit, "UTC")).view(pa.timestamp(kind.unit)), "+00:00"
    texts = pc.replace_substring(array.cast(pa.string()), " ", "T")
    if kind.unit in _DIGITS:
        texts = pc.replace_substring(texts, "." + "0" * _DIGITS[kind.unit], "")
    return pc.binary_join_element_wise(texts, zone, "") if zone else texts


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _as_plain_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _as_plain_json(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_plain_json(member) for member in value]
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):  # Of a query; no column has any.
        return str(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
