"""Casts that a library does for a reader are as strict as the reader promises: seeded values over the whole range of each
pair of types, against references that use no Arrow. FRAZIL_SEED chooses others.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType

from frazil.decode.cast import convert_columns
from frazil.decode.columns import Columns
from frazil.decode.conversion import Conversion
from frazil.decode.epochs import DIGITS, FIRST_US, LAST_US, from_numbers
from frazil.decode.lossless import cast_losslessly
from frazil.decode.settings import NO_EVOLUTION, Reading
from frazil.write.transforms import transformed
from tests.unit.decode.columns import decode
from tests.unit.decode.decimal_ways import Chance, Pair, draw_pairs

_SEED = int(os.environ.get("FRAZIL_SEED", "1"))
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DECIMALS = [pa.decimal128(p, s) for p, s in ((1, 0), (4, 2), (9, 9), (18, 4), (19, 0), (38, 0), (38, 10), (38, 38))]
_INTEGERS = [pa.int32(), pa.int64()]
_FLOATS = [pa.float32(), pa.float64()]
_NUMBERS = [*_INTEGERS, *_FLOATS, *_DECIMALS]


def _integers(chance: Chance, bits: int) -> list[int]:
    edges = {s * (2**k + d) for k in range(bits) for d in (-1, 0, 1) for s in (1, -1)}
    edges |= {s * (10**k + d) for k in range(20) for d in (-1, 0, 1) for s in (1, -1)}
    edges |= {chance.between(-(2**k), 2**k) for k in range(min(bits, 63)) for _ in range(8)}
    return sorted(one for one in edges if -(2 ** (bits - 1)) <= one < 2 ** (bits - 1))


def _doubles(chance: Chance) -> list[float]:
    found = [float(one) for one in _integers(chance, 62)] + [
        0.5,
        -0.0,
        5e-324,
        1.7976931348623157e308,
        2.0**63,
        -(2.0**63),
    ]
    found += struct.unpack("<500d", bytes(chance.between(0, 255) for _ in range(4000)))
    return [*found, math.inf, -math.inf, math.nan]


def _values(chance: Chance, kind: pa.DataType) -> list[Any]:
    if pa.types.is_integer(kind):
        return _integers(chance, kind.bit_width)
    if pa.types.is_floating(kind):
        doubles = _doubles(chance)
        with np.errstate(over="ignore", invalid="ignore"):
            return doubles if kind == pa.float64() else np.array(doubles).astype(np.float32).astype(np.float64).tolist()
    digits = {s * (10**k + d) for k in range(kind.precision + 1) for d in (-1, 0, 1) for s in (1, -1)}
    digits |= {
        s * n * 10**kind.scale for n in (2**31, 2**31 - 1, 2**63, 2**63 - 1, 2**24 + 1, 2**53 + 1) for s in (1, -1)
    }
    digits |= {int(chance.digits(k + 1)) for k in range(kind.precision) for _ in range(4)}
    with localcontext(_EXACT):
        return [Decimal(n).scaleb(-kind.scale) for n in sorted(digits) if abs(n) < 10**kind.precision]


def _fits(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return bool(pa.types.is_floating(kind))
    number = Fraction(value)
    if pa.types.is_integer(kind):
        return bool(number.denominator == 1 and -(2 ** (kind.bit_width - 1)) <= number < 2 ** (kind.bit_width - 1))
    if pa.types.is_floating(kind):
        try:
            found = struct.unpack(
                "<f" if kind == pa.float32() else "<d", struct.pack("<f" if kind == pa.float32() else "<d", value)
            )[0]
        except OverflowError:
            return False
        return bool(Fraction(found) == number)
    unscaled = number * 10**kind.scale
    return bool(unscaled.denominator == 1 and abs(unscaled) < 10**kind.precision)


def _as(value: Any, kind: pa.DataType) -> Any:
    """The value in the type; of a decimal the nearest float, where the decimal can be told from it."""
    if not isinstance(value, Decimal) or not pa.types.is_floating(kind):
        return value if _fits(value, kind) else None
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    nearest = _nearest(Pair(str(value), 0, 0), *((53, -1074, 1024) if kind == pa.float64() else (24, -149, 128)))
    with localcontext(_EXACT) as context:
        context.prec = 200
        is_told = nearest is not None and Decimal(nearest).quantize(Decimal((0, (1,), exponent))) == value
    return nearest if is_told else None


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return bool(one == other) or (one != one and other != other)


@pytest.mark.parametrize("written", _NUMBERS, ids=str)
def test_numbers_go_over_where_the_other_type_has_the_same_number(written: pa.DataType) -> None:
    values = _values(Chance(_SEED), written)
    array = pa.array(values, written)
    for wanted in _NUMBERS:
        if wanted == written:
            continue
        is_never = pa.types.is_floating(written) and not pa.types.is_floating(wanted)
        found = cast_losslessly(array, wanted).to_pylist()
        right = [_as(value, wanted) if not is_never else None for value in values]
        assert [(v, f, r) for v, f, r in zip(values, found, right, strict=True) if not _same(f, r)] == []


def _read(kind: str, pairs: list[Pair]) -> list[Any]:
    found: list[Any] = []
    for start in range(0, len(pairs), 20):
        some = pairs[start : start + 20]
        found += decode([f'{{"v": {pair.text}}}' for pair in some], v=kind).columns[0].to_pylist()
    return found


def _exact(pair: Pair) -> Fraction | None:
    """The number, None where it is far beyond every double."""
    with localcontext(_EXACT):
        number = Decimal(pair.text)
    return Fraction(number) if not number or -2000 < number.adjusted() < 2000 else None


def _nearest(pair: Pair, mantissa: int, least: int, most: int) -> float | None:
    """The nearest binary fraction, ties to even, by whole numbers alone; None beyond the largest."""
    with localcontext(_EXACT):
        size = Decimal(pair.text)
        if not size:
            return 0.0
        if size.adjusted() > 400:
            return None
        if size.adjusted() < -400:
            return 0.0
        number = Fraction(abs(size))
    power = max(number.numerator.bit_length() - number.denominator.bit_length() - mantissa, least)
    while number / Fraction(2) ** power >= 2**mantissa:
        power += 1
    while power > least and number / Fraction(2) ** power < 2 ** (mantissa - 1):
        power -= 1
    found = round(number / Fraction(2) ** power) * Fraction(2) ** power
    if found >= Fraction(2) ** most:
        return None
    return math.copysign(float(found), size)


@pytest.mark.parametrize(
    ("kind", "mantissa", "least", "most"),
    [("double", 53, -1074, 1024), ("float", 24, -149, 128)],
    ids=["double", "float"],
)
def test_numbers_of_json_become_the_nearest_double_or_float(kind: str, mantissa: int, least: int, most: int) -> None:
    chance = Chance(_SEED)
    pairs = draw_pairs(chance, 1500) + [Pair(text, 0, 0) for text in _between(chance)]
    found = _read(kind, pairs)
    right = [_nearest(pair, mantissa, least, most) for pair in pairs]
    assert [(p.text, f, r) for p, f, r in zip(pairs, found, right, strict=True) if f != r] == []


def _between(chance: Chance) -> list[str]:
    """Numbers half way between two floats, and so little beside that as doubles they are the same."""
    found = []
    with localcontext(_EXACT):
        for _ in range(300):
            power = chance.between(-170, 105)
            middle = Decimal(2 * chance.between(0 if power < -148 else 2**23, 2**24 - 1) + 1) * Decimal(2) ** power
            found += [f"{middle + beside * middle * Decimal(10) ** -40:e}" for beside in (0, 1, -1)]
    return found


@pytest.mark.parametrize(("kind", "bits"), [("int", 32), ("long", 64)])
def test_numbers_of_json_become_integers_where_they_are_whole_and_in_range(kind: str, bits: int) -> None:
    chance = Chance(_SEED)
    pairs = draw_pairs(chance, 1500)
    pairs += [Pair(spell(n), 0, 0) for n in _integers(chance, 66)[::7] for spell in (str, "{}.0".format, "{}e0".format)]
    right = []
    for pair in pairs:
        number = _exact(pair)
        fits = number is not None and number.denominator == 1 and -(2 ** (bits - 1)) <= number < 2 ** (bits - 1)
        right.append(int(number) if fits and number is not None else None)
    found = _read(kind, pairs)
    assert [(p.text, f, r) for p, f, r in zip(pairs, found, right, strict=True) if f != r] == []


_DATE = r"(\d{4})-(\d\d)-(\d\d)"
_CLOCK = r"(\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d{1,30}))?)?)?"
_ZONE = r"(Z|[+-]\d\d(?::?\d\d)?)"
_FORMS = {
    "date": _DATE,
    "time": f"(?=.*:){_CLOCK}",
    "timestamp": f"{_DATE}(?:[ T]{_CLOCK})?",
    "timestamptz": f"{_DATE}[ T]{_CLOCK}{_ZONE}",
}


def _micros_of(kind: str, text: str) -> int | None:
    """Microseconds since 1970 (or days, or of the day) that a text spells in ISO 8601; None where it spells none."""
    match = re.fullmatch(_FORMS[kind], text, re.ASCII)
    if match is None:
        return None
    parts = list(match.groups())
    zone = parts.pop() if kind == "timestamptz" else "Z"
    year, month, day = (1970, 1, 1) if kind == "time" else (int(parts.pop(0)) for _ in range(3))
    hour, minute, second, fraction = [*parts, *[None] * 4][:4]
    try:
        at = datetime(year or 1, month, day, int(hour or 0), int(minute or 0), int(second or 0), tzinfo=UTC)
        offset = timedelta()
        if zone != "Z":
            minutes = int(zone[-2:]) if len(zone) > 3 else 0
            if int(zone[1:3]) > 23 or minutes > 59:
                return None
            offset = timedelta(hours=int(zone[1:3]), minutes=minutes) * (-1 if zone[0] == "-" else 1)
    except ValueError:
        return None
    micros = (at - _EPOCH - offset) // timedelta(microseconds=1) + int((fraction or "")[:6].ljust(6, "0"))
    if year == 0:
        micros -= 366 * 86_400_000_000
    if not FIRST_US <= micros < LAST_US:
        return None
    return micros // 86_400_000_000 if kind == "date" else micros


def _draw_text(chance: Chance, kind: str) -> str:
    year = chance.one_of(chance.between(0, 9999), chance.one_of(0, 1, 9999, 2024, 1970, 1677, 2262, 1900))
    day = f"{year:04d}-{chance.between(0, 13):02d}-{chance.between(0, 32):02d}"
    clock = f"{chance.between(0, 24):02d}" + (f":{chance.between(0, 60):02d}" if chance.is_so(0.95) else "")
    if chance.is_so(0.9):
        clock += f":{chance.between(0, 60):02d}"
    if chance.is_so(0.6):
        clock += "." + chance.digits(chance.between(1, 12))
    zone = chance.one_of(
        "Z", "+00:00",
        f"{chance.one_of('+', '-')}{chance.between(0, 25):02d}{chance.one_of(':', '')}{chance.between(0, 61):02d}",
        f"{chance.one_of('+', '-')}{chance.between(0, 25):02d}",
    )  # fmt: skip
    text = {"date": day, "time": clock, "timestamp": f"{day}{chance.one_of('T', ' ')}{clock}"}.get(
        kind, f"{day}T{clock}{zone}"
    )
    if chance.is_so(0.15):
        at = chance.between(0, len(text) - 1)
        text = (
            text[:at]
            + chance.one_of("", " ", "0", "-", ":", "T", "x", ".", "Z", "+")
            + text[at + chance.between(0, 1) :]
        )
    return text


@pytest.mark.parametrize("kind", list(_FORMS))
def test_texts_of_times_are_read_exactly_or_refused(kind: str) -> None:
    chance = Chance(_SEED)
    texts = [_draw_text(chance, kind) for _ in range(4000)]
    found: list[Any] = []
    for start in range(0, len(texts), 20):
        column = decode([f'{{"v": "{text}"}}' for text in texts[start : start + 20]], v=kind).columns[0]
        found += column.cast("int32" if kind == "date" else "int64").to_pylist()
    assert [
        (t, f, r) for t, f, r in ((t, f, _micros_of(kind, t)) for t, f in zip(texts, found, strict=True)) if f != r
    ] == []


@pytest.mark.parametrize("unit", list(DIGITS))
@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.float64(), pa.decimal128(38, 10)], ids=str)
def test_numbers_that_count_time_are_exact_or_outside(kind: pa.DataType, unit: str) -> None:
    chance = Chance(_SEED)
    values = [one for one in _values(chance, kind) if not isinstance(one, float) or math.isfinite(one)]
    if pa.types.is_integer(kind):
        ends = [end * Fraction(10) ** -DIGITS[unit] for end in (FIRST_US, LAST_US)]
        near = [int(end) + d for end in ends for d in (-1, 0, 1)]
        values += [one for one in near if -(2 ** (kind.bit_width - 1)) <= one < 2 ** (kind.bit_width - 1)]
    moments = from_numbers(pa.array(values, kind), unit)
    spelt = [Fraction(repr(one)) if isinstance(one, float) else Fraction(one) for one in values]
    right = [math.floor(one * Fraction(10) ** DIGITS[unit]) for one in spelt]
    inside = [FIRST_US <= one < LAST_US for one in right]
    assert moments.micros.to_pylist() == [one if is_in else None for one, is_in in zip(right, inside, strict=True)]
    assert moments.is_outside.tolist() == [not one for one in inside]


_PARTS: dict[str, Callable[[datetime], int]] = {
    "year": lambda at: at.year - 1970,
    "month": lambda at: (at.year - 1970) * 12 + at.month - 1,
    "day": lambda at: (at - _EPOCH) // timedelta(days=1),
    "hour": lambda at: (at - _EPOCH) // timedelta(hours=1),
}


@pytest.mark.parametrize("transform", list(_PARTS))
def test_partition_values_of_all_times_that_rows_have_fit_32_bits(transform: str) -> None:
    chance = Chance(_SEED)
    micros = [FIRST_US, LAST_US - 1, -1, 0, *(chance.between(FIRST_US, LAST_US - 1) for _ in range(2000))]
    for zone in (None, "UTC"):
        found = transformed(transform, pa.array(micros, pa.int64()).cast(pa.timestamp("us", zone))).to_pylist()
        assert found == [_PARTS[transform](_EPOCH + timedelta(microseconds=one)) for one in micros]


def test_the_class_of_a_bad_record_does_not_depend_on_how_many_are_bad() -> None:
    written = StructType(
        NestedField(0, "n", LongType(), required=False), NestedField(0, "s", StringType(), required=False)
    )
    fields = [NestedField(1, "n", IntegerType(), required=False), NestedField(2, "s", LongType(), required=False)]
    for count in (1, 30):
        columns = Columns([pa.array([2**40] * count), pa.array(["text"] * count)], np.zeros(count, np.uint8), ())
        decoded = convert_columns(
            Conversion(Reading(evolution=NO_EVOLUTION), "", count, count), written, columns, fields
        )
        classes = {one.row: one.kind for one in reversed(decoded.mismatches)}
        assert set(classes.values()) == {"type_mismatch"}
