"""Numbers of other types than their column's go over exactly or not at all, many at a time as one by one."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pyarrow as pa
import pytest

from frazil.decode import lossless

SHAPES = [(4, 0), (4, 2), (9, 2), (9, 4), (18, 4), (38, 0), (38, 10), (38, 38), (20, 20)]
INTEGERS = [0, 1, -1, 99, -99, 100, 9999, 10000, 2**31 - 1, -(2**31)]


def decimals(precision: int, scale: int) -> pa.Array:
    """Values of every size, with and without a fraction, and those beside the bounds of other types."""
    digits = [0, 1, -1, 10**precision - 1, 1 - 10**precision]
    digits += [sign * number for e in range(precision) for number in (10**e, 10**e - 1) for sign in (1, -1)]
    digits += [number * 10**scale for number in (2**31, 2**31 - 1, -(2**31), 2**63, 2**63 - 1, -(2**63))]
    with localcontext(prec=80):
        values = [Decimal(number).scaleb(-scale) for number in digits if abs(number) < 10**precision]
        return pa.array([None, *values], pa.decimal128(precision, scale))


@pytest.mark.parametrize("written", SHAPES)
def test_decimals_go_over_as_each_alone_does(written: tuple[int, int]) -> None:
    array = decimals(*written)
    for target in [*(pa.decimal128(*shape) for shape in SHAPES), pa.int32(), pa.int64()]:
        assert lossless.cast_losslessly(array, target).equals(lossless._cast_one_by_one(array, target)), target


@pytest.mark.parametrize("written", [pa.int32(), pa.int64()])
def test_integers_become_decimals_as_each_alone_does(written: pa.DataType) -> None:
    array = pa.array([None, *INTEGERS, *([2**63 - 1, -(2**63)] if written == pa.int64() else [])], written)
    for shape in SHAPES:
        target = pa.decimal128(*shape)
        alone = lossless._cast_one_by_one(array.cast(pa.decimal256(60, target.scale)), target)
        assert lossless.cast_losslessly(array, target).equals(alone), shape


def test_bytes_of_another_length_do_not_become_fixed() -> None:
    array = pa.array([b"12", b"1", None, b""], pa.binary())
    assert lossless.cast_losslessly(array, pa.binary(2)).to_pylist() == [b"12", None, None, None]


def test_one_value_that_does_not_fit_makes_nobody_look_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lossless, "_cast_one_by_one", None)
    array = pa.array([Decimal("1.00"), Decimal("1.25"), Decimal("12345.00")], pa.decimal128(9, 2))
    assert lossless.cast_losslessly(array, pa.decimal128(5, 1)).to_pylist() == [Decimal("1.0"), None, None]
    wide = array.cast(pa.decimal128(38, 2))
    assert lossless.cast_losslessly(wide, pa.int32()).to_pylist() == [1, None, 12345]
