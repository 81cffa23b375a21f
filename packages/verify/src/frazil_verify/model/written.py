"""Values that have a type from their writer's schema, to values of a table's columns.

See docs/reference/conversions.md, and docs/guides/shape.md, "Types".
"""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from frazil_verify.model import times
from frazil_verify.model.faults import Fault
from frazil_verify.model.json_values import How, as_decimal
from frazil_verify.model.types import Plain

_UUID_TEXT = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_BITS = {"int": 32, "long": 64}
INT, LONG, STRING, BINARY = Plain("int"), Plain("long"), Plain("string"), Plain("binary")


@dataclass(frozen=True)
class Written:
    """A plain value. kind: of a new column. base: the type that it is encoded as, with the `encoded` value."""

    kind: Plain
    value: Any
    base: Plain
    encoded: Any
    #: Whether a local time is the moment that it is in UTC, where its column has moments and no zone.
    is_moment: bool = False

    @classmethod
    def of(cls, kind: Plain, value: Any) -> Written:
        """Returns a value whose type is no other one underneath."""
        return cls(kind, value, kind, value)


def value_of(written: Written, kind: Plain, how: How) -> Any:
    """Returns the column's value.

    Raises: Fault where it has none.
    """
    if kind.unit and written.base.name in _BITS and kind.name in ("timestamp", "timestamptz", "time"):
        return _from_number(written.encoded, kind, how)  # A declared unit comes before the writer's type.
    if (kind.name, kind.args) == (written.kind.name, written.kind.args):
        return written.value
    if (kind.name, kind.args) == (written.base.name, written.base.args):
        return written.encoded
    if written.kind != written.base and written.base.name in _BITS and kind.name in _BITS:
        return _convert(Written.of(written.base, written.encoded), kind, how)
    return _convert(written, kind, how)


def _convert(written: Written, kind: Plain, how: How) -> Any:
    result = _CONVERSIONS.get((written.kind.name, kind.name))
    if written.is_moment and kind.name == "timestamptz" and not how.zone:
        return written.value.replace(tzinfo=UTC)
    if result is not None:
        return result(written.value, kind, how)
    if kind.name == "string" and how.coerce and written.kind.name in ("int", "long", "boolean"):
        return str(written.value).lower()
    raise Fault("type_mismatch")


def _from_number(number: int, kind: Plain, how: How) -> Any:
    if kind.name == "time":
        return times.time_since_midnight(Decimal(number), kind.unit or "ms")
    return times.instant(Decimal(number), kind.unit, kind.name == "timestamptz", how.zone)


def _inexact() -> Fault:
    return Fault("out_of_range", "type_mismatch")


def _integer(value: int, kind: Plain, how: How) -> int:
    if not -(2 ** (_BITS[kind.name] - 1)) <= value < 2 ** (_BITS[kind.name] - 1):
        raise _inexact()
    return value


def _integer_to_float(value: int, kind: Plain, how: How) -> float:
    result = float(value)
    if int(result) != value or (kind.name == "float" and _single(result) != result):
        raise _inexact()
    return result


def _single(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.inf


def _double_to_float(value: float, kind: Plain, how: How) -> float:
    if math.isfinite(value) and _single(value) != value:
        raise _inexact()
    return value


def _to_decimal(value: int | Decimal, kind: Plain, how: How) -> Decimal:
    return as_decimal(Decimal(value), kind)


def _decimal_to_double(value: Decimal, kind: Plain, how: How) -> float:
    result = float(value)
    if kind.name == "float" and _single(result) != result:
        raise _inexact()
    if Decimal(repr(result)) != value:
        raise _inexact()
    return result


def _decimal_to_integer(value: Decimal, kind: Plain, how: How) -> int:
    if value != value.to_integral_value():
        raise _inexact()
    return _integer(int(value), kind, how)


def _day_to_moment(value: date, kind: Plain, how: How) -> datetime:
    return datetime.combine(value, time())


def _between_zones(value: datetime, kind: Plain, how: How) -> datetime:
    """A moment to a local time, or the reverse: with the zone of the column alone."""
    if not how.zone:
        raise Fault("type_mismatch")
    return times.in_zone(value, how.zone) if kind.name == "timestamptz" else times.local_of(value, how.zone)


def _to_fixed(value: bytes, kind: Plain, how: How) -> bytes:
    if len(value) != kind.args[0]:
        raise _inexact()
    return value


def _to_uuid(value: bytes, kind: Plain, how: How) -> bytes:
    if len(value) != 16:
        raise _inexact()
    return value


def _text_to_uuid(value: str, kind: Plain, how: How) -> bytes:
    if not _UUID_TEXT.fullmatch(value):
        raise Fault("type_mismatch")
    return UUID(value).bytes


def _to_text(value: bytes, kind: Plain, how: How) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Fault("type_mismatch", "invalid_text") from None


def _number_to_day(value: int, kind: Plain, how: How) -> date:
    if not kind.is_declared:
        raise Fault("type_mismatch")
    return times.day_of(value)


def _number_to_time(value: int, kind: Plain, how: How) -> time:
    if not kind.is_declared:
        raise Fault("type_mismatch")
    result = _from_number(value, kind, how)
    assert isinstance(result, time)
    return result


_CONVERSIONS: dict[tuple[str, str], Callable[[Any, Plain, How], Any]] = {
    ("int", "long"): _integer,
    ("long", "int"): _integer,
    ("int", "float"): _integer_to_float,
    ("int", "double"): _integer_to_float,
    ("long", "float"): _integer_to_float,
    ("long", "double"): _integer_to_float,
    ("int", "decimal"): _to_decimal,
    ("long", "decimal"): _to_decimal,
    ("float", "double"): lambda value, kind, how: value,
    ("double", "float"): _double_to_float,
    ("decimal", "decimal"): _to_decimal,
    ("decimal", "double"): _decimal_to_double,
    ("decimal", "int"): _decimal_to_integer,
    ("decimal", "long"): _decimal_to_integer,
    ("date", "timestamp"): _day_to_moment,
    ("timestamp", "timestamptz"): _between_zones,
    ("timestamptz", "timestamp"): _between_zones,
    ("binary", "fixed"): _to_fixed,
    ("fixed", "fixed"): _to_fixed,
    ("fixed", "binary"): lambda value, kind, how: value,
    ("uuid", "binary"): lambda value, kind, how: value,
    ("binary", "uuid"): _to_uuid,
    ("uuid", "string"): lambda value, kind, how: str(UUID(bytes=value)),
    ("string", "uuid"): _text_to_uuid,
    ("binary", "string"): _to_text,
    ("string", "binary"): lambda value, kind, how: value.encode(),
    ("int", "date"): _number_to_day,
    ("long", "date"): _number_to_day,
    ("int", "time"): _number_to_time,
    ("long", "time"): _number_to_time,
}


class AsText:
    """A value as `_rescued` has it: times in ISO 8601, bytes as base64, decimals as text. Equals what is read from it."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        value = self._value
        if not isinstance(other, tuple):
            return False
        kind, there = other
        if isinstance(value, bool) or kind == "boolean":
            return bool(there == value)
        if isinstance(value, int | float) and kind == "number":
            return float(there) == float(value) and (not isinstance(value, int) or int(Decimal(there)) == value)
        return kind == "string" and self._is_text(there)

    def _is_text(self, text: str) -> bool:
        value = self._value
        try:
            if isinstance(value, date | time):
                return bool(type(value).fromisoformat(text) == value)
            if isinstance(value, bytes):
                return base64.b64decode(text) == value
            if isinstance(value, Decimal):
                return Decimal(text) == value
        except (ValueError, ArithmeticError):
            return False
        return isinstance(value, float) or text == value

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return repr(self._value)


class Anything:
    """Equals every value: a nested one, whose text is not compared."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "…"


def rescued_of(written: Written) -> Any:
    """Returns how `_rescued` has a value."""
    return Anything() if written.kind.name == "uuid" else AsText(written.value)


def timestamp(micros: int, has_zone: bool) -> datetime:
    """Returns the time of microseconds since 1970."""
    result = times.local_instant(Decimal(micros), "us")
    return result.replace(tzinfo=UTC) if has_zone else result
