"""Times in text and as numbers, as docs/reference/json.md and docs/guides/shape.md describe them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_FLOOR, Decimal, localcontext
from functools import cache
from zoneinfo import ZoneInfo

from frazil_verify.model.faults import Fault

_DATE = r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
_TIME = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?"
_ZONE = r"(Z|[+-][0-9]{2}:?[0-9]{2})?"
_DATE_TEXT, _TIME_TEXT = re.compile(_DATE), re.compile(_TIME)
_MOMENT_TEXT = re.compile(f"{_DATE}(?:[T ]{_TIME}{_ZONE})?")
_FAR_YEAR = re.compile(r"[+-][0-9]{4,}-|[0-9]{5,}-|0000-")
EPOCH = datetime.fromtimestamp(0, UTC).replace(tzinfo=None)
_FIRST, _LAST = datetime.combine(date.min, time.min) - EPOCH, datetime.combine(date.max, time.max) - EPOCH
UNITS = {"s": Decimal(10**6), "ms": Decimal(1000), "us": Decimal(1), "ns": Decimal("0.001")}
"""How many microseconds each is."""
_DAY_US = 86_400_000_000


def _unread(text: str) -> Fault:
    return Fault("out_of_range", "type_mismatch") if _FAR_YEAR.match(text) else Fault("type_mismatch")


def date_of(text: str) -> date:
    """Returns the day of a text."""
    result = _DATE_TEXT.fullmatch(text)
    if result is None:
        raise _unread(text)
    try:
        return date(*(int(part) for part in result.groups()))
    except ValueError:
        raise _unread(text) from None


def time_of(text: str) -> time:
    """Returns the time of day of a text, cut to microseconds."""
    result = _TIME_TEXT.fullmatch(text)
    if result is None:
        raise Fault("type_mismatch")
    return _time(*result.groups())


def _time(hour: str, minute: str, second: str | None, fraction: str | None) -> time:
    try:
        return time(int(hour), int(minute), int(second or 0), int((fraction or "")[:6].ljust(6, "0")))
    except ValueError:
        raise Fault("type_mismatch") from None


def moment_of(text: str, has_zone: bool, zone: str) -> datetime:
    """Returns the time of a text. has_zone: whether the column is one of moments. zone: of the column, empty without."""
    result = _MOMENT_TEXT.fullmatch(text)
    if result is None:
        raise _unread(text)
    year, month, day, hour, minute, second, fraction, offset = result.groups()
    try:
        there = date(int(year), int(month), int(day))
    except ValueError:
        raise _unread(text) from None
    local = datetime.combine(there, _time(hour, minute, second, fraction) if hour else time())
    if offset is None:
        return in_zone(local, zone) if has_zone else local
    if not has_zone and not zone:
        raise Fault("type_mismatch")
    away = timedelta(0) if offset == "Z" else _away(offset)
    try:
        moment = (local - away).replace(tzinfo=UTC)
    except OverflowError:
        raise Fault("out_of_range") from None
    return moment if has_zone else local_of(moment, zone)


def _away(offset: str) -> timedelta:
    digits = offset[1:].replace(":", "")
    away = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -away if offset[0] == "-" else away


def in_zone(local: datetime, zone: str) -> datetime:
    """Returns the moment of a local time: the first, where clocks are set back."""
    if not zone:
        raise Fault("type_mismatch")
    there = _zone(zone)
    try:
        moment = local.replace(tzinfo=there, fold=0).astimezone(UTC)
        back = moment.astimezone(there).replace(tzinfo=None, fold=0)
    except OverflowError:
        raise Fault("out_of_range") from None
    if back != local:
        raise Fault("out_of_range")
    return moment


def local_of(moment: datetime, zone: str) -> datetime:
    """Returns the local time of a moment; without a zone that of UTC."""
    try:
        return moment.astimezone(_zone(zone) if zone else UTC).replace(tzinfo=None, fold=0)
    except OverflowError:
        raise Fault("out_of_range") from None


def instant(amount: Decimal, unit: str, has_zone: bool, zone: str) -> datetime:
    """Returns the time of a number since 1970, cut to microseconds towards the past."""
    result = local_instant(amount, unit)
    if has_zone:
        return result.replace(tzinfo=UTC)
    return local_of(result.replace(tzinfo=UTC), zone) if zone else result


def local_instant(amount: Decimal, unit: str) -> datetime:
    """Returns the same without a zone."""
    micros = _micros(amount, unit)
    try:
        since = timedelta(microseconds=micros)
    except OverflowError:
        raise Fault("out_of_range") from None
    if not _FIRST <= since <= _LAST:
        raise Fault("out_of_range")
    return EPOCH + since


def day_of(days: int) -> date:
    """Returns the day of a number since 1970."""
    try:
        return date(1970, 1, 1) + timedelta(days=days)
    except OverflowError:
        raise Fault("out_of_range") from None


def time_since_midnight(amount: Decimal, unit: str) -> time:
    """Returns the time of day of a number since midnight."""
    if amount < 0:
        raise Fault("out_of_range")
    micros = _micros(amount, unit)
    if micros >= _DAY_US:
        raise Fault("out_of_range")
    return (EPOCH + timedelta(microseconds=micros)).time()


def _micros(amount: Decimal, unit: str) -> int:
    if amount.adjusted() > 30:
        raise Fault("out_of_range")
    with localcontext(prec=80):
        return int((amount * UNITS[unit]).to_integral_value(ROUND_FLOOR))


@cache
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
