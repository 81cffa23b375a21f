"""No way to a decimal gives another number than the one that is written: seeded pairs of text and type against Python's own
decimals. FRAZIL_SEED chooses others; `make soak-decimals` tries a million.
"""

from __future__ import annotations

import os
import time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.types import DecimalType

from frazil.decode.connect.unscaled import format_integer
from frazil.decode.decimals import FITS, NO_NUMBER, TOO_WIDE, read_decimals
from tests.unit.decode.decimal_ways import WAYS, Chance, Pair, draw_pairs, draw_type, expected, spelt, unscaled

_SEED = int(os.environ.get("FRAZIL_SEED", "1"))
_BATCH = 500


def _compare(count: int) -> int:
    """How many pairs were tried, in every way."""
    chance, tried = Chance(_SEED), 0
    while tried < count:
        pairs, kind = draw_pairs(chance, _BATCH), draw_type(chance)
        right = [expected(pair, kind) for pair in pairs]
        for way in WAYS:
            differing = [
                (way.__name__, pair.text, str(kind), one, of)
                for pair, one, of in zip(pairs, way(pairs, kind), right, strict=True)
                if one != of
            ]
            assert differing == []
        assert [(one, of) for one, of in unscaled(pairs, kind) if one != of] == []
        for is_key in (False, True):
            assert [(one, of) for one, of in spelt(pairs, is_key) if one != of] == []
        tried += _BATCH
    return tried


def test_every_way_to_a_decimal_is_exact_or_refuses() -> None:
    assert _compare(10_000) == 10_000


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_million_pairs_of_text_and_type_are_exact_or_refused() -> None:
    assert _compare(1_000_000) == 1_000_000


@pytest.mark.parametrize(
    "text", ["", "-", ".", "+.", "e5", "1e", "1e+", " 1", "1 ", "1_0", "1,5", "NaN", "0x1", "١", "--1"]
)
def test_a_text_that_is_no_number_is_told_from_one_that_does_not_fit(text: str) -> None:
    found = read_decimals(pa.array([text, "1", "1e9", None]), 4, 2)
    assert found.state.tolist() == [NO_NUMBER, FITS, TOO_WIDE, FITS]
    assert found.array.to_pylist() == [None, Decimal("1.00"), None, None]


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        ("-7e36", DecimalType(38, 2), None),
        ("3.14159e37", DecimalType(38, 2), None),
        ("9" * 38 + "e1", DecimalType(38, 0), None),
        ("9" * 56, DecimalType(38, 0), None),
        ("1e-95", DecimalType(38, 38), None),
        ("1e-231", DecimalType(10, 2), None),
        ("1e-999999999", DecimalType(10, 2), None),
        ("1e999999999999999999999999", DecimalType(10, 2), None),
        ("0e-99999999999999999999", DecimalType(10, 2), Decimal(0)),
        ("1" + "0" * 400 + "e-400", DecimalType(10, 2), Decimal(1)),
        ("0." + "0" * 400 + "1e401", DecimalType(1, 0), Decimal(1)),
        ("-" + "9" * 38, DecimalType(38, 0), Decimal("-" + "9" * 38)),
    ],
)
def test_numbers_at_the_bounds_are_exact_or_refused_in_every_way(
    text: str, kind: DecimalType, found: Decimal | None
) -> None:
    pair = Pair(text, 0, 0)
    for way in WAYS:
        if way.__name__ not in ("variable_scales", "constants"):
            assert way([pair], kind) == [found], way.__name__


def test_absurd_exponents_and_long_numbers_take_no_time() -> None:
    texts = pa.array(["1e-999999999", "1e999999999", "9" * 100_000, "0." + "0" * 100_000] * 100)
    started = time.process_time()
    found = read_decimals(texts, 38, 10)
    assert found.state.tolist() == [TOO_WIDE, TOO_WIDE, TOO_WIDE, FITS] * 100
    assert time.process_time() - started < 5


@pytest.mark.parametrize("bits", [0, 1, 200, 201, 4_000, 14_288, 100_003])
def test_whole_numbers_of_any_length_are_spelt(bits: int) -> None:
    number = int.from_bytes(np.random.default_rng(bits).bytes(bits // 8 + 1), "big") >> (8 - bits % 8)
    for one in (number, -number):
        text = format_integer(one)
        assert _digits_to_int(text) == one


def _digits_to_int(text: str) -> int:
    sign, digits, found = (-1 if text.startswith("-") else 1), text.lstrip("-"), 0
    for start in range(0, len(digits), 4000):
        part = digits[start : start + 4000]
        found = found * 10 ** len(part) + int(part)
    return sign * found
