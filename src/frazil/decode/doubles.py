"""The shortest decimal that reads back as a double, compiled: the digits that Python's `repr` gives.

Source: Raffaello Giulietti, "The Schubfach way to render doubles" (2021). Of the decimals between the halfway points to
a double's two neighbours the shortest is taken, of those the nearest. A product with a power of ten of 128 bits is
exact enough to decide on which side of a halfway point a decimal is.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from frazil.decode.memory import COMPILED, high64

_LEAST_POWER, _MAX_POWER = -292, 324


def _power(exponent: int) -> int:
    """Returns 10**exponent as 128 bits, the highest of them set, rounded up."""
    if exponent >= 0:
        shift = (10**exponent).bit_length() - 128
        return -(-(10**exponent) // 2**shift) if shift > 0 else 10**exponent << -shift
    whole = 10**-exponent
    return -(-(2 ** (127 + whole.bit_length())) // whole)


def _powers() -> NDArray[np.uint64]:
    found = [_power(exponent) for exponent in range(_LEAST_POWER, _MAX_POWER + 1)]
    return np.array([[power >> 64, power & (2**64 - 1)] for power in found], np.uint64)


_POWERS = _powers()
_FRACTION = np.uint64(2**52 - 1)
_WIDTH = np.uint64(52)  # Of the fraction, in bits.
_NONE, _ONE, _TWO, _FOUR = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(4)
_TEN, _FORTY = np.uint64(10), np.uint64(40)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _scaled(power: int, factor: np.uint64) -> np.uint64:
    """Returns factor * 10**power * 2**n for the n that gives an integer of 64 bits; its last bit is set when it is not
    exact.
    """
    high = _POWERS[power - _LEAST_POWER, 0]
    low = high64(_POWERS[power - _LEAST_POWER, 1], factor)
    middle = high * factor
    whole = high64(high, factor)
    total = middle + low
    if total < middle:
        whole += _ONE
    return whole | _ONE if total > _ONE else whole


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def shortest_digits(bits: np.uint64) -> tuple[np.uint64, int]:
    """Returns digits and exponent of ten of a finite double other than 0, without its sign; the last digit is not 0."""
    exponent: int = np.int64(bits >> _WIDTH) & 0x7FF  # type: ignore[assignment]
    fraction = bits & _FRACTION
    is_narrow = fraction == _NONE and exponent > 1  # Below a power of two the neighbour is only half as far.
    if exponent == 0:
        exponent = 1
    else:
        fraction |= _ONE << _WIDTH
    exponent -= 1075
    if -52 <= exponent <= 0 and fraction & ((_ONE << np.uint64(-exponent)) - _ONE) == _NONE:
        return _without_zeros(fraction >> np.uint64(-exponent), 0)
    ten = (exponent * 1262611 - (524031 if is_narrow else 0)) >> 22
    shift = np.uint64(exponent + ((-ten * 1741647) >> 19) + 1)
    middle = fraction * _FOUR
    low = _scaled(-ten, (middle - (_ONE if is_narrow else _TWO)) << shift)
    value = _scaled(-ten, middle << shift)
    high = _scaled(-ten, (middle + _TWO) << shift)
    if fraction & _ONE != _NONE:  # Halfway between two doubles counts as the even one.
        low += _ONE
        high -= _ONE
    whole = value // _FOUR
    if whole >= _TEN:
        tens = whole // _TEN
        is_below = low <= _FORTY * tens
        is_above = _FORTY * tens + _FORTY <= high
        if is_below != is_above:
            return _without_zeros(tens + _ONE if is_above else tens, ten + 1)
    is_below = low <= _FOUR * whole
    is_above = _FOUR * whole + _FOUR <= high
    if is_below == is_above:
        half = _FOUR * whole + _TWO
        is_above = value > half or (value == half and whole & _ONE != _NONE)
    return _without_zeros(whole + _ONE if is_above else whole, ten)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _without_zeros(digits: np.uint64, exponent: int) -> tuple[np.uint64, int]:
    while digits % _TEN == _NONE:
        digits //= _TEN
        exponent += 1
    return digits, exponent
