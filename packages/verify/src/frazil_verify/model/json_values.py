"""JSON values to values of plain columns: the tables of docs/reference/json.md."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any
from uuid import UUID

from frazil_verify.model import times
from frazil_verify.model.faults import Fault
from frazil_verify.model.json_text import Json, has_half
from frazil_verify.model.types import Plain

_DECIMAL_TEXT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_UUID_TEXT = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PARTS = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)(?:[eE]([+-]?[0-9]+))?")
_NON_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_FAR = 5000
"""An exponent that no type can have."""


@dataclass(frozen=True)
class How:
    """What a column's declaration has besides its type. is_connect: the message has Kafka Connect's schema."""

    coerce: bool = False
    zone: str = ""
    is_connect: bool = False


def value_of(node: Json, kind: Plain, how: How) -> Any:
    """Returns the column's value.

    Raises: Fault where it has none.
    """
    if how.coerce and kind.name == "string" and node.kind != "string":
        return node.sent
    return _READERS[kind.name](node, kind, how)


def exact(text: str) -> Decimal:
    """Returns a number of JSON exactly; one with an exponent that is far away only as far."""
    result = _PARTS.fullmatch(text)
    assert result is not None, text
    digits, exponent = Decimal(result[1]), int(result[2] or 0)
    if not digits:
        return digits
    with localcontext(prec=max(40, len(text) + 5)):
        return digits.scaleb(max(-_FAR, min(_FAR, exponent)))


def is_whole(number: Decimal) -> bool:
    """Whether it has no fraction."""
    return number == 0 or number.adjusted() > 400 or number == number.to_integral_value()


def nearest_float(text: str, number: Decimal) -> float:
    """Returns the float that is nearest to a number; the even one of two."""
    near = float(text)
    bits = struct.unpack("<q", struct.pack("<d", near))[0]
    if bits & 0x1FFFFFFF == 0x10000000 and abs(near) >= 2.0**-126:
        # A double in the middle of two floats: the number itself decides.
        with localcontext(prec=1100):
            off = abs(number) - Decimal(abs(near))
        if off:
            (near,) = struct.unpack("<d", struct.pack("<q", bits + (1 if off > 0 else -1)))
    try:
        (result,) = struct.unpack("<f", struct.pack("<f", near))
    except OverflowError:
        raise Fault("out_of_range") from None
    if result in (float("inf"), float("-inf")):
        raise Fault("out_of_range")
    return float(result)


def as_decimal(number: Decimal, kind: Plain) -> Decimal:
    """Returns a number with the scale of its column."""
    precision, scale = kind.args
    if number and number.adjusted() > precision:
        raise Fault("out_of_range")
    with localcontext(prec=max(80, len(number.as_tuple().digits) + 80), Emin=-9_999_999):
        if number and number.adjusted() < -scale - 1:
            raise Fault("out_of_range")
        result = number.quantize(Decimal(1).scaleb(-scale))
        if result != number or abs(result) >= Decimal(10) ** (precision - scale):
            raise Fault("out_of_range")
        return abs(result) if result == 0 else result


def _boolean(node: Json, kind: Plain, how: How) -> bool:
    if node.kind != "boolean":
        raise Fault("type_mismatch")
    return bool(node.value)


def _whole(node: Json) -> int:
    if node.kind != "number":
        raise Fault("type_mismatch")
    number = exact(node.value)
    if not is_whole(number):
        raise Fault("type_mismatch", because="fraction")
    return int(number) if number.adjusted() < 60 else 10**60


def _integer(bits: int) -> Callable[[Json, Plain, How], int]:
    def read(node: Json, kind: Plain, how: How) -> int:
        number = _whole(node)
        if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
            raise Fault("out_of_range")
        return number

    return read


def _float(node: Json, kind: Plain, how: How) -> float:
    if how.is_connect and node.kind == "string" and node.value in _NON_FINITE:
        return _NON_FINITE[node.value]
    if node.kind != "number":
        raise Fault("type_mismatch")
    return nearest_float(node.value, exact(node.value))


def _double(node: Json, kind: Plain, how: How) -> float:
    if how.is_connect and node.kind == "string" and node.value in _NON_FINITE:
        return _NON_FINITE[node.value]
    if node.kind != "number":
        raise Fault("type_mismatch")
    result = float(node.value)
    if result in (float("inf"), float("-inf")):
        raise Fault("out_of_range")
    return result


def _decimal(node: Json, kind: Plain, how: How) -> Decimal:
    if node.kind == "string":
        if not _DECIMAL_TEXT.fullmatch(_text(node)):
            raise Fault("type_mismatch")
        return as_decimal(Decimal(node.value), kind)
    if node.kind != "number":
        raise Fault("type_mismatch")
    return as_decimal(exact(node.value), kind)


def _text(node: Json) -> str:
    if node.kind != "string":
        raise Fault("type_mismatch")
    if has_half(node.value):
        raise Fault("invalid_text", "type_mismatch")
    return str(node.value)


def _string(node: Json, kind: Plain, how: How) -> str:
    if node.kind == "string" and has_half(node.value):
        raise Fault("invalid_text")
    return _text(node)


def _date(node: Json, kind: Plain, how: How) -> Any:
    if node.kind == "number" and kind.is_declared:
        number = _whole(node)
        return times.day_of(number) if abs(number) < 10**9 else times.day_of(10**9)
    return times.date_of(_text(node))


def _time(node: Json, kind: Plain, how: How) -> Any:
    if node.kind == "number" and kind.is_declared:
        _whole(node)
        return times.time_since_midnight(exact(node.value), kind.unit or "ms")
    return times.time_of(_text(node))


def _moment(node: Json, kind: Plain, how: How) -> Any:
    has_zone = kind.name == "timestamptz"
    if node.kind == "number":
        if not kind.unit:
            _whole(node)
        return times.instant(exact(node.value), kind.unit or "ms", has_zone, how.zone)
    return times.moment_of(_text(node), has_zone, how.zone)


def _uuid(node: Json, kind: Plain, how: How) -> bytes:
    text = _text(node)
    if not _UUID_TEXT.fullmatch(text):
        raise Fault("type_mismatch")
    return UUID(text).bytes


def _binary(node: Json, kind: Plain, how: How) -> bytes:
    try:
        return base64.b64decode(_text(node).encode(), validate=True)
    except (binascii.Error, ValueError):
        raise Fault("type_mismatch") from None


def _fixed(node: Json, kind: Plain, how: How) -> bytes:
    result = _binary(node, kind, how)
    if len(result) != kind.args[0]:
        raise Fault("type_mismatch", "out_of_range")
    return result


_READERS: dict[str, Callable[[Json, Plain, How], Any]] = {
    "boolean": _boolean,
    "int": _integer(32),
    "long": _integer(64),
    "float": _float,
    "double": _double,
    "decimal": _decimal,
    "string": _string,
    "date": _date,
    "time": _time,
    "timestamp": _moment,
    "timestamptz": _moment,
    "uuid": _uuid,
    "binary": _binary,
    "fixed": _fixed,
}
