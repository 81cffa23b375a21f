"""Unscaled integers in two's complement and big-endian order, as decimals and as digits.

Their scale is that of the column or their own. Java's `BigDecimal` is written so, by Kafka Connect's Decimal and by
Debezium's VariableScaleDecimal.
"""

from __future__ import annotations

from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, Inexact, localcontext
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.decode.columns import bytes_of, offsets_of
from frazil.decode.decimals import MAX_DECIMAL_DIGITS, Decimals, read_decimals

Bools = NDArray[np.bool_]
_WORD = 16
_MAX_BYTES = 1 << 16
"""The longest number that becomes text, in bytes: PostgreSQL's largest numeric has 61,233."""
_MAX_ZEROS = 1000
"""The number of zeros that a scale may add to the digits of a number: a few bytes must not become megabytes of text."""
_FAR_SCALE = 1 << 40
_SHORT_BITS = 200


def unscaled_numbers(array: pa.Array) -> tuple[pa.Array, Bools]:
    """Returns the integers as decimal128(38, 0), and which have more than 16 bytes, no bytes, or more than 38 digits:
    bool of shape (n_values,).
    """
    array = pa.concat_arrays([array.cast(pa.binary())])
    rows = len(array)
    is_present = np.asarray(array.is_valid())
    offsets, raw = offsets_of(array).astype(np.int64), bytes_of(array)
    starts, ends = offsets[:-1], offsets[1:]
    bad = is_present & ((ends - starts < 1) | (ends - starts > _WORD))
    good = is_present & ~bad
    words = np.zeros((rows, _WORD), np.uint8)
    rows_left = np.flatnonzero(good)
    words[rows_left] = np.where(raw[starts[rows_left]] >= 128, 255, 0)[:, None]
    for place in range(_WORD):
        rows_left = rows_left[ends[rows_left] - starts[rows_left] > place]
        words[rows_left, place] = raw[ends[rows_left] - 1 - place]
    kind = pa.decimal128(MAX_DECIMAL_DIGITS, 0)
    most = pa.scalar(Decimal(10**MAX_DECIMAL_DIGITS - 1), kind)
    numbers = pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(words)])
    large = np.asarray(pc.or_(pc.greater(numbers, most), pc.less(numbers, pc.negate(most))))
    bad |= good & large
    mask = pa.py_buffer(np.packbits(is_present & ~bad, bitorder="little"))
    return pa.Array.from_buffers(kind, rows, [mask, pa.py_buffer(words)]), bad


def without_padding(array: pa.Array) -> pa.Array:
    """Returns the same numbers; those of more than 16 bytes without the bytes that only repeat the sign."""
    long = np.flatnonzero(np.asarray(pc.fill_null(pc.greater(pc.binary_length(array), _WORD), False)))
    if not long.size:
        return array
    shorter = pa.array([_trimmed(array[row].as_py()) for row in long.tolist()], array.type)
    return pc.replace_with_mask(array, pa.array(np.isin(np.arange(len(array)), long)), shorter)


def _trimmed(raw: bytes) -> bytes:
    sign = b"\xff" if raw[0] >= 0x80 else b"\0"
    rest = raw.lstrip(sign)
    keeps_one = not rest or (rest[0] >= 0x80) != (raw[0] >= 0x80)
    return sign + rest if keeps_one else rest


def with_scale(numbers: pa.Array, scale: int) -> pa.Array:
    """Returns decimal128 integers as decimals with the same digits and `scale` of them after the point."""
    return pa.Array.from_buffers(pa.decimal128(MAX_DECIMAL_DIGITS, scale), len(numbers), numbers.buffers())


def scaled_decimals(values: pa.Array, scales: pa.Array, precision: int, scale: int) -> Decimals:
    """Returns numbers that each have a scale as decimals of one scale."""
    exponents = np.negative(_scales(scales)).astype(np.str_)
    texts_with_exponent = pc.binary_join_element_wise(_digits(values), pa.array(exponents, pa.string()), "e")
    return read_decimals(texts_with_exponent, precision, scale)


def digit_texts(values: pa.Array, scales: pa.Array, by_value: bool) -> pa.Array:
    """Returns numbers that each have a scale as digits without an exponent; null where there is no number, or where the
    text would be too long. by_value: without trailing zeros of a fraction, so that equal numbers have equal texts.
    """
    numbers, is_long = unscaled_numbers(without_padding(values))
    each = _scales(scales)
    is_long |= (each < 0) | (each > MAX_DECIMAL_DIGITS)
    digit_column = pa.nulls(len(values), pa.string())
    for scale in np.unique(each[~is_long]).tolist():
        texts = with_scale(numbers, scale).cast(pa.string())
        digit_column = pc.if_else(pa.array((each == scale) & ~is_long), texts, digit_column)
    # Arrow writes small fractions with an exponent.
    is_long |= np.asarray(pc.fill_null(pc.match_substring(digit_column, "E"), False))
    rows = np.flatnonzero(is_long & np.asarray(values.is_valid()))
    if rows.size:
        digits = _digits(values.take(pa.array(rows))).to_pylist()
        texts = pa.array(
            [_with_point(text, int(each[n])) for text, n in zip(digits, rows.tolist(), strict=True)], pa.string()
        )
        digit_column = pc.replace_with_mask(digit_column, pa.array(np.isin(np.arange(len(values)), rows)), texts)
    digit_column = pc.if_else(pc.and_(pc.is_valid(scales), pc.is_valid(values)), digit_column, None)
    if by_value:
        return pc.replace_substring_regex(digit_column, r"^(-?[0-9]+)(?:\.0*|(\.[0-9]*[1-9])0*)$", r"\1\2")
    return digit_column


def _scales(scales: pa.Array) -> NDArray[np.int64]:
    return np.clip(np.asarray(scales.fill_null(0)).astype(np.int64), -_FAR_SCALE, _FAR_SCALE)


def _digits(values: pa.Array) -> pa.Array:
    """Returns the digits of integers of any length; null where there are no bytes, or more than a number may have."""
    numbers, is_long = unscaled_numbers(without_padding(values))
    digits = numbers.cast(pa.string())
    rows = np.flatnonzero(is_long)
    if not rows.size:
        return digits
    texts = pa.array([_spell(values[row].as_py()) for row in rows.tolist()], pa.string())
    return pc.replace_with_mask(digits, pa.array(is_long), texts)


def _spell(raw: bytes) -> str | None:
    if not 0 < len(raw) <= _MAX_BYTES:
        return None
    return format_integer(int.from_bytes(raw, "big", signed=True))


def format_integer(number: int) -> str:
    """Returns the digits of a number of any length: `str` refuses more than 4,300, and takes quadratic time."""
    with localcontext(Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact])):
        digits = str(_to_decimal(abs(number), number.bit_length()))
    return f"-{digits}" if number < 0 else digits


def _to_decimal(number: int, bits: int) -> Decimal:
    if bits <= _SHORT_BITS:
        return Decimal(number)
    low_bits = bits // 2
    high = number >> low_bits
    low = number - (high << low_bits)
    return _to_decimal(low, low_bits) + _to_decimal(high, bits - low_bits) * _power(low_bits)


@lru_cache(maxsize=64)
def _power(bits: int) -> Decimal:
    return Decimal(2) ** bits


def _with_point(digits: str | None, scale: int) -> str | None:
    """Returns the digits with the point where the scale puts it."""
    if digits is None:
        return None
    sign, digits = ("-", digits[1:]) if digits.startswith("-") else ("", digits)
    if max(-scale, scale - len(digits)) > _MAX_ZEROS:
        return "0" if digits == "0" else None
    if scale <= 0:
        return "0" if digits == "0" else f"{sign}{digits}{'0' * -scale}"
    digits = digits.zfill(scale + 1)
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}"
