"""Times to the microsecond, the precision of Iceberg's types: smaller parts are truncated towards the past.

The inputs are texts, numbers that count time since 1970-01-01T00:00:00Z in a declared unit, and local times of a zone.
Arrow knows the changes of clocks that a zone's file lists, and not the rule by which they continue: from 2037 on it takes
the last change for ever. Python knows the rule, and is slower.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, TimestampType, TimestamptzType

DIGITS = {"s": 6, "ms": 3, "us": 0, "ns": -3}
"""The number of digits between a unit and the microsecond."""
# Microseconds of 0001-01-01 and 10000-01-01: numbers beyond were written in another unit.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_800_000_000
_DAY_US = 86_400_000_000
FIRST_DAY, LAST_DAY = FIRST_US // _DAY_US, LAST_US // _DAY_US
"""The days 0001-01-01 and 10000-01-01, counted from 1970-01-01."""
FAR_YEAR = r"^(?:-[0-9]{4,9}|[+]?0{4,9}|[+]?0*[1-9][0-9]{4,8})-(?:0[1-9]|1[0-2])-[0-9]{2}"
"""The beginning of date texts whose year is not 1 to 9999. Arrow parses no year with a sign or with five digits."""
_FINER = re.compile(r"(\.[0-9]{6})[0-9]+")


@dataclass(frozen=True)
class Moments:
    """Times in microseconds."""

    #: int64, null where there is no such time.
    micros: pa.Array
    #: Which times are before the year 1 or after 9999: bool of shape (n_values,).
    is_outside: NDArray[np.bool_]


def outside_years(array: pa.Array) -> NDArray[np.bool_]:
    """Returns which dates or timestamps (in microseconds) are outside the years 1 to 9999: bool of shape (n_values,);
    null is inside. The rule is the same for all formats: Spark and Iceberg hold such times, Python and most readers do
    not.
    """
    is_day = pa.types.is_date32(array.type)
    numbers = array.view(pa.int32() if is_day else pa.int64())
    least, most = (FIRST_DAY, LAST_DAY) if is_day else (FIRST_US, LAST_US)
    ends = pc.min_max(numbers)
    first, last = ends["min"].as_py(), ends["max"].as_py()
    if first is None or (first >= least and last < most):
        return np.zeros(len(array), np.bool_)
    outside = pc.or_(pc.less(numbers, least), pc.greater_equal(numbers, most))
    return np.asarray(pc.fill_null(outside, False))


def inside_years(array: pa.Array) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Returns the dates or timestamps, null where they are outside the years 1 to 9999; and which these are, bool of
    shape (n_values,).
    """
    outside = outside_years(array)
    return (pc.if_else(pa.array(outside), pa.scalar(None, array.type), array) if outside.any() else array), outside


def find_far_years(texts: pa.StringArray) -> NDArray[np.bool_]:
    """Returns which texts begin as dates whose year is not 1 to 9999: bool of shape (n_texts,)."""
    return np.asarray(pc.fill_null(pc.match_substring_regex(texts, FAR_YEAR), False))


def from_numbers(array: pa.Array, unit: str) -> Moments:
    """Returns the times from numbers of any Arrow type that count `unit` since 1970."""
    if not pa.types.is_signed_integer(array.type):
        times = [None if number is None else _micros(number, unit) for number in array.to_pylist()]
        is_outside = np.array([micros is not None and not FIRST_US <= micros < LAST_US for micros in times], np.bool_)
        return Moments(
            pa.array([None if bad else micros for micros, bad in zip(times, is_outside, strict=True)], pa.int64()),
            is_outside,
        )
    numbers = np.asarray(array.fill_null(0)).astype(np.int64)
    is_present = np.asarray(array.is_valid())
    if unit == "ns":
        micros = np.floor_divide(numbers, 1000)
        is_outside = np.zeros(numbers.size, np.bool_)  # 64 bits of nanoseconds end in the year 2262.
    else:
        factor = 10 ** DIGITS[unit]
        is_outside = ((numbers < FIRST_US // factor) | (numbers >= LAST_US // factor)) & is_present
        micros = np.where(is_outside, 0, numbers) * factor
    return Moments(pa.array(micros, pa.int64(), mask=~is_present | is_outside), is_outside)


def _micros(number: float | Decimal, unit: str) -> int:
    if not math.isfinite(number):
        return LAST_US
    text = (
        number if isinstance(number, Decimal) else Decimal(repr(number))
    )  # The decimal as written, not the binary fraction.
    return math.floor(Fraction(text) * Fraction(10) ** DIGITS[unit])


def from_texts(texts: pa.StringArray, target: pa.TimestampType) -> pa.Array | None:
    """Returns the times from ISO 8601 texts; None where one text is invalid, or must be parsed by itself."""
    is_finer = len(texts) > 0 and _FINER.search(texts[int(np.asarray(texts.is_valid()).argmax())].as_py() or "")
    for unit in ("ns", "us") if is_finer else ("us", "ns"):
        with suppress(pa.ArrowInvalid):  # The exception is as slow as everything else where many batches are refused.
            times = texts.cast(pa.timestamp(unit, target.tz))
            return times if unit == "us" else from_numbers(times.cast(pa.int64()), unit).micros.cast(target)
    return None


def read_texts(texts: pa.StringArray, target: pa.TimestampType) -> pa.Array:
    """Returns the times from ISO 8601 texts, to the microsecond; null where a text is no time, or has a zone that the
    target lacks, or lacks one.
    """
    times = from_texts(texts, target)
    if times is not None:
        return times
    for written, plain in _PLAIN_FORMS:
        texts = pc.replace_substring_regex(texts, written, plain)
    seconds = _seconds_of_offsets(texts) if target.tz is not None else None
    if seconds is not None:
        texts = pc.replace_substring_regex(texts, _OFFSET_SECONDS, r"\1\2")
    times = strict_cast(texts, target)
    if seconds is None:
        return times
    return pc.subtract(times.cast(pa.int64()), seconds).cast(target)


_PLAIN_FORMS = (
    # RFC 3339 allows small letters, ISO 8601 a comma before the fraction, and times without separators.
    (r"^([0-9]{4})-?([0-9]{2})-?([0-9]{2})[Tt]([0-9]{2})([0-9]{2})([0-9]{2})", r"\1-\2-\3T\4:\5:\6"),
    (r"^([0-9]{4})-?([0-9]{2})-?([0-9]{2})[Tt]([0-9]{2})([0-9]{2})(Z|z|[+-]|$)", r"\1-\2-\3T\4:\5\6"),
    (r"^([0-9]{4}-[0-9]{2}-[0-9]{2})t", r"\1T"),
    (r"([0-9])z$", r"\1Z"),
    (r"(:[0-9]{2}),([0-9])", r"\1.\2"),
    (_FINER.pattern, r"\1"),
)
"""Patterns of ISO 8601 that Arrow does not parse, with the form that it does. The digits below a microsecond are cut."""
_OFFSET_SECONDS = r"(?P<time>:[0-9]{2}(?:\.[0-9]+)?)(?P<offset>[+-][0-9]{2}:?[0-9]{2}):?(?P<seconds>[0-5][0-9])$"
"""The end of a time with the seconds of its offset, as local mean times have them: PostgreSQL and Java write them."""


def _seconds_of_offsets(texts: pa.StringArray) -> pa.Array | None:
    """Returns the seconds of the offsets in microseconds, 0 for texts without; None where no text has any."""
    if not pc.any(pc.match_substring_regex(texts, _OFFSET_SECONDS)).as_py():
        return None
    groups = pc.extract_regex(texts, _OFFSET_SECONDS)
    seconds = pc.multiply(pc.fill_null(pc.struct_field(groups, "seconds"), "0").cast(pa.int64()), 1_000_000)
    is_behind = pc.fill_null(pc.starts_with(pc.struct_field(groups, "offset"), "-"), False)
    return pc.if_else(is_behind, pc.negate(seconds), seconds)


_FEW = 256
"""So many texts are parsed one by one where some are invalid; more are parsed in pieces of so many."""


def strict_cast(texts: pa.Array, target: pa.DataType) -> pa.Array:
    """Returns the values parsed from texts; null where a text is invalid."""
    try:
        return texts.cast(target)
    except pa.ArrowInvalid:  # Arrow refuses all of them for some invalid ones.
        if len(texts) > _FEW:
            pieces = [texts[begin : begin + _FEW] for begin in range(0, len(texts), _FEW)]
            return pa.concat_arrays([strict_cast(piece, target) for piece in pieces])
        fits = pa.array([_can_cast(text, target) for text in texts], pa.bool_())
        return pc.if_else(fits, texts, None).cast(target)


def _can_cast(text: pa.Scalar, target: pa.DataType) -> bool:
    try:
        text.cast(target)
    except pa.ArrowInvalid:
        return False
    return True


_HAS_ZONE = r"(?::|[Tt ][0-9]{2}).*[0-9](?:Z|z|[+-][0-9]{2}(?::?[0-9]{2}(?::?[0-9]{2})?)?)$"
"""The end of a time text with a zone; a day alone, such as 2026-01-31, has none."""
_INSTANT, _LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")


def to_local(instants: pa.Array, zone: str) -> pa.Array:
    """Returns the local times of instants in a zone; null outside the years 1 to 9999."""
    local = local_of(instants, zone)
    micros = local.cast(pa.int64())
    is_inside = pc.and_(pc.greater_equal(micros, FIRST_US), pc.less(micros, LAST_US))
    return pc.if_else(is_inside, local, pa.scalar(None, _LOCAL))


def to_instants(local: pa.Array, zone: str) -> pa.Array:
    """Returns the instants of local times in a zone; of the two that a time has when clocks go back, the first. Null
    for times that are skipped when clocks go forward, and outside the years 1 to 9999.
    """
    instants = instants_of(local, zone)
    micros = instants.cast(pa.int64())
    is_inside = pc.and_(pc.greater_equal(micros, FIRST_US), pc.less(micros, LAST_US))
    is_good = pc.and_(pc.equal(local_of(instants, zone), local), is_inside)
    return pc.if_else(is_good, instants, pa.scalar(None, _INSTANT))


SKIPPED = "{value} does not exist in {zone}, where clocks were set forward past it"
"""What is wrong with a local time that is skipped."""


def are_skipped(local: pa.Array, zone: str) -> NDArray[np.bool_]:
    """Returns which local times are skipped when clocks go forward in a zone: bool of shape (n_times,)."""
    local = local.cast(_LOCAL)
    again = local_of(instants_of(local, zone), zone)
    return np.asarray(pc.fill_null(pc.not_equal(again, local), False))


def convert_zone(array: pa.Array, wanted: IcebergType, zone: str) -> pa.Array | None:
    """Returns times in the other of Iceberg's two timestamp types; None where they are no times, or need no change."""
    if not pa.types.is_timestamp(array.type):
        return None
    if isinstance(wanted, TimestampType) and array.type.tz is not None:
        return to_local(array.cast(_INSTANT), zone)
    if isinstance(wanted, TimestamptzType) and array.type.tz is None:
        return to_instants(array.cast(_LOCAL), zone)
    return None


def have_zones(texts: pa.StringArray) -> NDArray[np.bool_]:
    """Returns which texts are times with a zone, if they are times: bool of shape (n_texts,)."""
    return np.asarray(pc.fill_null(pc.match_substring_regex(texts, _HAS_ZONE), False))


def differ_in_zone(written: IcebergType, wanted: IcebergType) -> bool:
    """Whether one of the types has a zone and the other has none."""
    return {type(written), type(wanted)} == {TimestampType, TimestamptzType}


def zone_settings(path: tuple[str, ...], wanted: IcebergType) -> str:
    """Returns the setting by which a time column accepts times with a zone, or without. path: of the field, in the row."""
    does = "converts them" if isinstance(wanted, TimestampType) else "reads them as of that zone"
    if not path or "element" in path or "value" in path:
        return "declare the column as the other of timestamp and timestamptz in a new table"
    if len(path) == 1:
        return f"`columns: {{{path[0]}: {{type: {wanted}, zone: UTC}}}}` {does}"
    return f"`columns: {{NAME: {{type: {wanted}, zone: UTC, field: {'.'.join(path)}}}}}` {does}"


def unit_settings(path: tuple[str, ...], wanted: IcebergType) -> str:
    """Returns the setting by which a time column accepts fractions of a millisecond. path: of the field, in the row."""
    if not path or "element" in path or "value" in path:
        return "produce whole milliseconds"
    if len(path) == 1:
        return f"`columns: {{{path[0]}: {wanted}(ms)}}` takes fractions of a millisecond"
    declared = f"{{type: {wanted}(ms), field: {'.'.join(path)}}}"
    return f"`columns: {{NAME: {declared}}}` takes fractions of a millisecond"


LAST_LISTED_US = 2_114_380_800_000_000
"""2037-01-01: the files of zones list no changes after that year."""
_LAST_US = 253_402_300_800_000_000  # 10000-01-01, where Python's times end.
_US = timedelta(microseconds=1)
_EPOCH, _DAY_US = datetime.fromtimestamp(0, UTC).replace(tzinfo=None), 86_400_000_000
_LOCAL = pa.timestamp("us")


def local_of(instants: pa.Array, zone: str) -> pa.Array:
    """Returns the local times of instants, timestamp("us")."""
    local = pc.local_timestamp(instants.cast(pa.timestamp("us", tz=zone)))
    micros, is_far = _far(instants)
    if not is_far.any():
        return local
    local_us = np.asarray(local.cast(pa.int64()).fill_null(0)).copy()
    local_us[is_far] = micros[is_far] + _offsets_us(micros[is_far], zone, is_local=False)
    return pa.array(local_us, mask=np.asarray(local.is_null())).cast(_LOCAL)


def instants_of(local: pa.Array, zone: str) -> pa.Array:
    """Returns the instants of local times, timestamp("us", UTC): the first of two where clocks are set back; where they are
    set forward past a time, an instant with another local time.
    """
    zoned = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="earliest")
    micros, is_far = _far(local)
    instants_us = zoned.cast(pa.int64())
    if is_far.any():
        far = np.asarray(instants_us.fill_null(0)).copy()
        far[is_far] = micros[is_far] - _offsets_us(micros[is_far], zone, is_local=True)
        instants_us = pa.array(far, mask=np.asarray(zoned.is_null()))
    return instants_us.cast(pa.timestamp("us", tz="UTC"))


def _far(times: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns the times in microseconds, and which of them Arrow has no rule for."""
    micros = np.asarray(times.cast(pa.int64()).fill_null(0))
    return micros, (micros >= LAST_LISTED_US) & (micros < _LAST_US - _DAY_US)


def _offsets_us(micros: NDArray[np.int64], zone: str, is_local: bool) -> NDArray[np.int64]:
    """Returns how far the zone is ahead of UTC at some times."""
    time_zone = _zone(zone)
    different, places = np.unique(micros, return_inverse=True)
    offsets = np.empty(different.size, np.int64)
    for place, instant in enumerate(different.tolist()):
        time = _EPOCH + timedelta(microseconds=instant)
        zoned = time.replace(tzinfo=time_zone) if is_local else time.replace(tzinfo=UTC).astimezone(time_zone)
        offset = zoned.utcoffset()
        assert offset is not None
        offsets[place] = offset // _US
    return offsets[places]


@cache
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
