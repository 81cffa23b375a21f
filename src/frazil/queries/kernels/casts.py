"""Casts between numbers, texts, booleans, days and times; the session's time zone is UTC.

Days and times in texts follow Spark's grammar. The usual forms are read by Arrow at once; others, of distinct texts, one by
one.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.decode.epochs import FIRST_US, LAST_US, outside_years
from frazil.queries.kernels.arithmetic import (
    decimal_of_integers,
    decimal_texts,
    nearest_doubles,
    rescale,
)
from frazil.queries.kernels.text_numbers import (
    SPACES,
    read_booleans,
    read_doubles,
    read_integers,
    read_rounded_decimals,
)
from frazil.queries.kernels.values import (
    ARITHMETIC_OVERFLOW,
    CAST_INVALID_INPUT,
    CAST_OVERFLOW,
    INVALID_UTF8_STRING,
    Kernel,
    Result,
    by_row,
    by_value,
    failing,
    from_numbers,
    kind_of,
    numbers,
)
from frazil.queries.program import Call
from frazil.zones import regions

_MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAY_US = 86_400_000_000
_SECOND_US = 1_000_000
_USUAL = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z?\z"
_DATE = r"(?P<year>[+-]?[0-9]{4,7})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})%s)?)?"
_DAY_TEXT = re.compile(_DATE % r"(?:[ T](?s:.*))?")
_MOMENT_TEXT = re.compile(
    _DATE % r"(?:[ T](?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{1,2})"
    r"(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]*))?)?)?(?P<zone>.*))?"
)
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?:(?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{1,2}))?"
    r"|(?P<hour_2>[0-9]{2})(?P<minute_2>[0-9]{2})(?P<second_2>[0-9]{2})?"
    r"|(?P<hour_3>[0-9]{1,2}):(?P<minute_3>[0-9]{2}):(?P<second_3>[0-9]{2}))"
)
_MOST_S = 18 * 3600
# The short names of java.time.ZoneId.SHORT_IDS that are not the names of regions.
_SHORT_NAMES = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires", "ART": "Africa/Cairo",
    "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka", "CAT": "Africa/Harare",
    "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo",  # codespell:ignore
    "IET": "America/Indiana/Indianapolis",
    "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh", "EST": "-05:00", "MST": "-07:00", "HST": "-10:00",
}  # fmt: skip
Cast = Callable[[pa.Array, Any], Result | pa.Array]


def days_from_civil(year: int, month: int, day: int) -> int | None:
    """Returns the day counted from 1970-01-01 of a date in the Gregorian calendar, of any year; None for no date."""
    if not 1 <= month <= 12 or not 1 <= day <= _MONTH_DAYS[month - 1]:
        return None
    if month == 2 and day == 29 and not calendar.isleap(year):
        return None
    shifted = year - (month <= 2)
    era, of_era = divmod(shifted, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def read_days(texts: pa.StringArray, target: pa.DataType) -> Result:
    """Returns the days in texts: a year of four to seven digits, a month and a day, with anything behind a space or T."""
    lengths = pc.min_max(pc.binary_length(texts))
    if lengths["min"].as_py() == 10 == lengths["max"].as_py():
        try:
            return Result(texts.cast(target))
        except pa.ArrowInvalid:
            pass
    days = by_value(texts, pa.int32(), _day)
    return _failing(texts, days, target)


def _failing(texts: pa.Array, parsed: pa.Array, target: pa.DataType) -> Result:
    bad = np.asarray(parsed.is_null()) & np.asarray(texts.is_valid())
    return failing(parsed.view(target), bad, CAST_INVALID_INPUT)


def _day(text: str) -> int | None:
    match = _DAY_TEXT.fullmatch(text.strip(SPACES))
    if match is None:
        return None
    days = days_from_civil(int(match["year"]), int(match["month"] or 1), int(match["day"] or 1))
    return days if days is not None and -(2**31) <= days < 2**31 else None


def read_moments(texts: pa.StringArray, target: pa.DataType) -> Result:
    """Returns the times in texts: a day as in `read_days`, then hours, minutes, seconds, a fraction and a zone."""
    odd = np.asarray(pc.invert(pc.match_substring_regex(texts, _USUAL)).fill_null(False))
    usual = pc.if_else(pa.array(~odd), texts, pa.scalar(None, pa.string())) if odd.any() else texts
    try:
        fast = pc.utf8_rtrim(usual, "Z").cast(pa.timestamp("us")).view(pa.int64())
    except pa.ArrowInvalid:  # A day or time of day that does not exist.
        odd = np.asarray(texts.is_valid())
        fast = pa.nulls(len(texts), pa.int64())
    return _failing(texts, by_row(texts, fast, odd, _moment), target)


def _moment(text: str) -> int | None:
    match = _MOMENT_TEXT.fullmatch(text.strip(SPACES))
    if match is None:
        return None
    day = days_from_civil(int(match["year"]), int(match["month"] or 1), int(match["day"] or 1))
    hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))
    if day is None or hour > 23 or minute > 59 or second > 59:
        return None
    fraction = int((match["fraction"] or "")[:6].ljust(6, "0"))
    local = day * _DAY_US + ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction
    shift = _shift(local, (match["zone"] or "").strip())
    if shift is None or not -(2**63) <= local - shift < 2**63:
        return None
    return local - shift


def _shift(local: int, zone: str) -> int | None:
    """Returns the microseconds by which a local time of a zone is ahead of UTC; None for no zone. A time that is skipped
    when clocks go forward is taken as of the zone before, and of two when they go back the first.
    """
    if zone in ("", "Z", "UTC", "GMT", "UT"):
        return 0
    zone = _SHORT_NAMES.get(zone, zone)
    match = _OFFSET.fullmatch(zone)
    if match:
        hour, minute, second = (_number(match, name) for name in ("hour", "minute", "second"))
        seconds = (hour * 60 + minute) * 60 + second
        is_zone = minute <= 59 and second <= 59 and seconds <= _MOST_S
        return seconds * _SECOND_US * (-1 if match["sign"] == "-" else 1) if is_zone else None
    if zone not in regions() or not FIRST_US <= local < LAST_US:
        return None
    ahead = (datetime(1970, 1, 1) + timedelta(microseconds=local)).replace(tzinfo=ZoneInfo(zone)).utcoffset()  # noqa: DTZ001
    return None if ahead is None else ahead // timedelta(microseconds=1)


def _number(match: re.Match[str], name: str) -> int:
    groups = match.groupdict()
    return int(next((groups[group] for group in (name, f"{name}_2", f"{name}_3") if groups.get(group)), 0))


def texts_of_days(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Returns days as texts, such as 2026-01-31."""
    fast = array.cast(target)
    return by_row(array.view(pa.int32()), fast, outside_years(array), _text_of_day)


def texts_of_moments(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Returns times as texts, such as 2026-01-31 12:00:00.5."""
    micros = array.view(pa.int64())
    fast = pc.replace_substring_regex(micros.view(pa.timestamp("us")).cast(target), r"\.?0+$", "")
    return by_row(micros, fast, outside_years(array), _text_of_moment)


def _text_of_day(days: int) -> str:
    month = np.datetime64(days, "D").astype("M8[M]")
    day = days - int(month.astype("M8[D]").astype(np.int64)) + 1
    year, of_year = divmod(int(month.astype(np.int64)), 12)
    year += 1970
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{of_year + 1:02d}-{day:02d}"


def _text_of_moment(micros: int) -> str:
    days, of_day = divmod(micros, _DAY_US)
    seconds, fraction = divmod(of_day, 1_000_000)
    time = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{_text_of_day(days)} {time}" + (f".{fraction:06d}".rstrip("0") if fraction else "")


def _by_arrow(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array.cast(target, safe=False)


def _narrow(array: pa.Array, target: pa.DataType) -> Result:
    values = numbers(array)
    bad = (values < -(2**31)) | (values >= 2**31)
    return failing(array.cast(target, safe=False), bad, CAST_OVERFLOW)


def _truncate(array: pa.Array, target: pa.DataType) -> Result:
    """Doubles to integers. Spark compares with the greatest integer as a double, and 2**63 is equal to that."""
    doubles = numbers(array).astype(np.float64)
    edge = 2.0 ** (target.bit_width - 1)
    most = edge if target == pa.int64() else edge - 1
    with np.errstate(invalid="ignore"):
        bad = ~((np.floor(doubles) <= most) & (np.ceil(doubles) >= -edge))
        inside = np.where(bad, 0.0, np.trunc(doubles))
        whole = np.where(inside >= edge, np.iinfo(np.int64).max, inside.astype(np.int64))
    values = from_numbers(whole.astype(target.to_pandas_dtype()), target, array)
    return failing(values, bad & np.asarray(array.is_valid()), CAST_OVERFLOW)


def _moments_of_days(array: pa.Array, target: pa.DataType) -> Result:
    days = numbers(array).astype(np.int64)
    return failing(from_numbers(days * _DAY_US, target, array), np.abs(days) > 106_751_991, ARITHMETIC_OVERFLOW)


def _days_of_moments(array: pa.Array, target: pa.DataType) -> pa.Array:
    return from_numbers((numbers(array) // _DAY_US).astype(np.int32), target, array)


def _as_bits(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array.cast(pa.timestamp("us")).cast(target) if target.tz is None else array.view(target)


def _text_of_bytes(array: pa.Array, target: pa.DataType) -> Result:
    """Spark keeps bytes that are not UTF-8; no file and no column here can."""
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
    ("long", "int"): _narrow,
    ("long", "double"): _by_arrow,
    ("long", "decimal"): decimal_of_integers,
    ("long", "text"): _by_arrow,
    ("float", "double"): _by_arrow,
    ("double", "int"): _truncate,
    ("double", "long"): _truncate,
    ("decimal", "decimal"): rescale,
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
    ("timestamp", "ntz"): _as_bits,
    ("ntz", "timestamp"): _as_bits,
    ("ntz", "date"): _days_of_moments,
    ("ntz", "text"): texts_of_moments,
}
"""By the kinds of the value and of the result."""


def _cast(call: Call, value: pa.Array) -> Result | pa.Array:
    return _CASTS[kind_of(value.type), kind_of(call.type)](value, call.type)


def _objection(call: Call) -> str:
    kind, target = kind_of(call.arguments[0].type), kind_of(call.type)
    if (kind, target) not in _CASTS:
        return f"casts from {kind} to {target} are not proven"
    is_tried = kind == "binary" and dict(call.options).get("evalMode") == "TRY"
    return "bytes that are not UTF-8 are not null in Spark" if is_tried else ""


def _parse(call: Call, value: pa.Array) -> Result | pa.Array:
    """TO_DATE and TO_TIMESTAMP without a pattern; what they cannot read is null for TRY_TO_DATE and TRY_TO_TIMESTAMP."""
    result, options = _cast(call, value), dict(call.options)
    is_tried = False in (options.get("failOnError"), options.get("ansiEnabled"))
    return result.values if is_tried and isinstance(result, Result) else result


KERNELS = {
    "Cast": Kernel(("any",), _cast, objection=_objection),
    "ParseToDate": Kernel(("text", "timestamp"), _parse, objection=_objection),
    "ParseToTimestamp": Kernel(("text", "date"), _parse, objection=_objection),
}
