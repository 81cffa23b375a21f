"""Every way from text, JSON numbers and bytes to a decimal, and what Python's own decimals say of each pair."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, localcontext
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyiceberg.types import DecimalType, NestedField, StringType

from frazil.decode.connect.values import VARIABLE_SCALE, LogicalType, read_logical_type
from frazil.decode.conversion import Conversion
from frazil.decode.decimals import read_decimals
from frazil.decode.json.any import decode_any
from frazil.decode.json.records import decode_json
from frazil.decode.settings import Reading
from frazil.errors import SpecError
from frazil.literals import parse_constant
from tests.needs import has_package

if has_package("cdc"):
    from frazil_cdc.canal.rows import SourceType, read_texts

_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_LONGEST = 1000
T = TypeVar("T")


class Chance:
    """What is drawn, the same for a seed."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def between(self, least: int, most: int) -> int:
        """A whole number; both ends may come."""
        return int(self._rng.integers(least, most + 1))

    def one_of(self, *choices: T) -> T:
        """One of them."""
        return choices[self.between(0, len(choices) - 1)]

    def digits(self, count: int) -> str:
        """So many digits."""
        return (self._rng.integers(0, 10, count).astype(np.uint8) + 48).tobytes().decode()

    def is_so(self, share: float) -> bool:
        """Whether it is one of such a share."""
        return bool(self._rng.random() < share)


@dataclass(frozen=True)
class Pair:
    """A number as a text, and as whole digits with an exponent, which the text is of."""

    text: str
    digits: int
    exponent: int


def expected(pair: Pair, kind: DecimalType) -> Decimal | None:
    """The number in the type, None where it is none of it, by Python's own decimals."""
    with localcontext(_EXACT):
        number = Decimal(pair.text)
        if not number:
            return Decimal(0)
        last = number.normalize().as_tuple().exponent
        assert isinstance(last, int)
        return number if last >= -kind.scale and number.adjusted() < kind.precision - kind.scale else None


def draw_pairs(chance: Chance, count: int) -> list[Pair]:
    """Numbers of 1 to 400 digits with exponents from -10^9 to 10^9; half of them near the bounds of decimals."""
    return [_draw(chance) for _ in range(count)]


def draw_type(chance: Chance) -> DecimalType:
    """A decimal of any precision and scale, often one of the largest."""
    precision = chance.one_of(38, 38, chance.between(1, 38))
    return DecimalType(precision, chance.one_of(0, min(2, precision), precision, chance.between(0, precision)))


def _draw(chance: Chance) -> Pair:
    digits = chance.digits(chance.one_of(chance.between(1, 20), chance.between(15, 42), chance.between(1, 400)))
    if chance.is_so(0.3):
        digits = digits[: chance.between(0, 40)] + "0" * chance.between(1, 60)
    if chance.is_so(0.1):
        digits = "9" * len(digits)
    most = len(digits) - 1
    point = chance.one_of(0, 0, chance.between(0, most), chance.between(0, min(60, most)))
    exponents = (0, chance.between(-45, 45), chance.between(-450, 450), chance.between(-(10**9), 10**9))
    exponent, sign = chance.one_of(*exponents), chance.one_of("", "-")
    whole, fraction = (digits[:-point], digits[-point:]) if point else (digits, "")
    whole = whole.lstrip("0") or "0"  # As JSON writes numbers.
    text = f"{sign}{whole}{'.' if fraction else ''}{fraction}"
    if exponent or chance.is_so(0.1):
        text += f"{chance.one_of('e', 'E')}{chance.one_of('', '+') if exponent >= 0 else ''}{exponent}"
    return Pair(text, int(f"{sign}{whole}{fraction}"), exponent - point)


Found = list[Decimal | None]


def _of_values(values: Sequence[str], kind: DecimalType) -> Found:
    raw = pa.array([f'{{"v":{value}}}'.encode() for value in values], pa.binary())
    decoded = decode_json(raw, (NestedField(1, "v", kind, required=False),), limit=len(values))
    assert {one.kind for one in decoded.mismatches} <= {"out_of_range"}
    assert np.flatnonzero(decoded.refused).tolist() == [one.row for one in decoded.mismatches]
    return _checked(decoded.columns[0], decoded.refused)


def _checked(array: pa.Array, refused: Any) -> Found:
    found: Found = array.to_pylist()
    assert [one is None for one in found] == np.asarray(refused).tolist()
    return found


def json_numbers(pairs: Sequence[Pair], kind: DecimalType) -> Found:
    """Numbers of JSON, as Maxwell writes them too."""
    return _of_values([pair.text for pair in pairs], kind)


def json_texts(pairs: Sequence[Pair], kind: DecimalType) -> Found:
    """Texts of JSON, as Debezium's `decimal.handling.mode: string` writes numbers."""
    return _of_values([json.dumps(pair.text) for pair in pairs], kind)


def json_keys(pairs: Sequence[Pair], kind: DecimalType) -> Found:
    """Record keys that are numbers."""
    keys = pa.array([pair.text.encode() for pair in pairs], pa.binary())
    decoded = decode_any(
        keys, "key", kind, Conversion(Reading(unknown_fields="drop"), "", len(keys), len(pairs)), "the key"
    )
    assert {one.kind for one in decoded.mismatches} <= {"out_of_range"}
    return _checked(decoded.columns[0], decoded.refused)


def mysql_texts(pairs: Sequence[Pair], kind: DecimalType) -> Found:
    """Canal's texts of MySQL's values."""
    read = read_texts(pa.array([pair.text for pair in pairs]), SourceType("decimal", kind), kind)
    assert (read.bad == read.far).all()
    return _checked(read.array, read.bad)


def plain(pairs: Sequence[Pair], kind: DecimalType) -> Found:
    """Texts, with rows of another array before them."""
    texts = pa.array([None, "x", *(pair.text for pair in pairs)])[2:]
    found = read_decimals(texts, kind.precision, kind.scale)
    return _checked(found.array, found.state != 0)


def variable_scales(pairs: Sequence[Pair], kind: DecimalType) -> Found:
    """Debezium's VariableScaleDecimal into a column that is declared as a decimal."""
    meant = read_logical_type(_structs(pairs), VARIABLE_SCALE, kind)
    assert meant is not None
    assert meant.far is not None
    assert (meant.bad == meant.far).all()
    return _checked(meant.array, meant.bad)


def _structs(pairs: Sequence[Pair]) -> pa.Array:
    rows = [{"scale": -pair.exponent, "value": to_bytes(pair.digits)} for pair in pairs]
    return pa.array(rows, pa.struct([("scale", pa.int32()), ("value", pa.binary())]))


def to_bytes(number: int) -> bytes:
    """Two's complement, the highest byte first."""
    return number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)


def constants(pairs: Sequence[Pair], kind: DecimalType) -> Found:
    """Constants of the pipeline file."""
    found: Found = []
    for pair in pairs:
        try:
            found.append(parse_constant(pair.text, kind).as_py())
        except SpecError:
            found.append(None)
    return found


WAYS: tuple[Callable[[Sequence[Pair], DecimalType], Found], ...] = (
    json_numbers, json_texts, json_keys, plain, variable_scales, constants, *((mysql_texts,) if has_package("cdc") else ()),
)  # fmt: skip


def unscaled(pairs: Sequence[Pair], kind: DecimalType) -> list[tuple[Decimal | None, Decimal | None]]:
    """What Connect's Decimal holds of the digits alone, and what it should."""
    raw = pa.array([to_bytes(pair.digits) for pair in pairs], pa.binary())
    meant = read_logical_type(
        raw, LogicalType("org.apache.kafka.connect.data.Decimal", kind.scale, kind.precision), None
    )
    assert meant is not None
    right = [expected(Pair(f"{pair.digits:d}e{-kind.scale}", 0, 0), kind) for pair in pairs]
    return list(zip(_checked(meant.array, meant.bad), right, strict=True))


def spelt(pairs: Sequence[Pair], is_key: bool) -> list[tuple[str | None, str | None]]:
    """What a number with a scale of its own is as a text, and what it should be."""
    meant = read_logical_type(_structs(pairs), LogicalType(VARIABLE_SCALE.name, is_key=is_key), StringType())
    assert meant is not None
    return list(zip(meant.array.to_pylist(), [_spell(pair, is_key) for pair in pairs], strict=True))


def _spell(pair: Pair, is_key: bool) -> str | None:
    with localcontext(_EXACT):
        number = Decimal(pair.digits) * Decimal((0, (1,), pair.exponent))
        if max(pair.exponent, -pair.exponent - len(str(abs(pair.digits)))) > _LONGEST:
            return "0" if not number else None
        number = number.normalize() if is_key else number
        return format(number if number else abs(number), "f") if pair.exponent < 0 or number else "0"
