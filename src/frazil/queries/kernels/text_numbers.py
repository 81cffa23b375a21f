"""Numbers in texts, by Spark's grammars: the usual forms in compiled loops, odd ones one by one.

Spark removes white space and control characters at both ends: bytes 0x00 to 0x20, and 0x7F for integers and booleans.
"""

from __future__ import annotations

import re
import unicodedata
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from frazil.decode.columns import offsets_of
from frazil.decode.decimals import FITS, MAX_DECIMAL_DIGITS, read_decimals
from frazil.queries.kernels.values import (
    CAST_INVALID_INPUT,
    NUMERIC_OUT_OF_SUPPORTED_RANGE,
    NUMERIC_VALUE_OUT_OF_RANGE,
    Result,
    by_value,
    failing,
)
from frazil.raw_memory import COMPILED, I32, U8, is_on_disk, load8

SPACES = "".join(map(chr, range(0x21))) + "\x7f"
"""What Spark removes at the ends of texts of integers, booleans and times."""
_JAVA_SPACES = "".join(map(chr, range(0x21)))
_PLAIN, _ODD = 0, 1
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[dDfF]?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[dDfF]?")
_ENDLESS = re.compile(r"[+-]?Infinity|[+-]?NaN")
_SPECIAL = {
    "inf": "inf", "+inf": "inf", "infinity": "inf", "+infinity": "inf", "-inf": "-inf", "-infinity": "-inf", "nan": "nan",
}  # fmt: skip
_BOOLEANS = dict.fromkeys(("t", "true", "y", "yes", "1"), True) | dict.fromkeys(("f", "false", "n", "no", "0"), False)


def _address(texts: pa.StringArray) -> tuple[int, I32]:
    raw = texts.buffers()[2]
    return (0 if raw is None else raw.address), offsets_of(texts)


def read_integers(texts: pa.StringArray, target: pa.DataType) -> Result:
    """Returns the integers in texts: an optional sign and digits."""
    has_value = np.asarray(texts.is_valid()).astype(np.uint8)
    out, bad = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.uint8)
    base, offsets = _address(texts)
    bits = np.int64(target.bit_width - 1)
    _read_integers(base, offsets, bits, has_value, out, bad)
    values = pa.array(out.astype(np.int32 if bits == 31 else np.int64), target, mask=(has_value == 0) | (bad != 0))
    return Result(values, bad * np.uint8(CAST_INVALID_INPUT)) if bad.any() else Result(values)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _is_space(c: int) -> bool:
    return c <= 0x20 or c == 0x7F


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _trimmed(i: int, end: int) -> tuple[int, int]:
    while i < end and _is_space(load8(i)):
        i += 1
    while end > i and _is_space(load8(end - 1)):
        end -= 1
    return i, end


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _read_integers(base: int, offsets: I32, bits: int, has_value: U8, out: NDArray[np.int64], bad: U8) -> None:
    most = np.uint64(1) << np.uint64(bits)  # The magnitude of the least integer.
    for row in range(offsets.size - 1):
        if has_value[row] == 0:
            continue
        i, end = _trimmed(base + offsets[row], base + offsets[row + 1])
        is_negative = i < end and load8(i) == 0x2D
        if i < end and (load8(i) == 0x2B or load8(i) == 0x2D):
            i += 1
        total = np.uint64(0)
        is_bad = i == end
        while i < end:
            digit = load8(i) - 48
            if digit < 0 or digit > 9 or total > np.uint64(922337203685477580):
                is_bad = True
                break
            total = total * np.uint64(10) + np.uint64(digit)
            i += 1
        if is_bad or total > most or (total == most and not is_negative):
            bad[row] = 1
        else:
            out[row] = -np.int64(total) if is_negative else np.int64(total)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _find_odd(base: int, offsets: I32, has_value: U8, odd: U8) -> None:
    """Marks the texts that are not a sign, digits and a point with at most 300 characters that begin and end with one."""
    for row in range(offsets.size - 1):
        if has_value[row] == 0:
            continue
        i, end = base + offsets[row], base + offsets[row + 1]
        if i < end and load8(i) == 0x2D:
            i += 1
        points = 0
        is_odd = i == end or end - i > 300 or load8(i) == 0x2E or load8(end - 1) == 0x2E
        while i < end and not is_odd:
            c = load8(i)
            if c == 0x2E:
                points += 1
                is_odd = points > 1
            elif c < 48 or c > 57:
                is_odd = True
            i += 1
        if is_odd:
            odd[row] = 1


def read_doubles(texts: pa.StringArray) -> Result:
    """Returns the doubles nearest to the numbers in texts."""
    flags = np.zeros(len(texts), np.uint8)
    base, offsets = _address(texts)
    _find_odd(base, offsets, np.asarray(texts.is_valid()).astype(np.uint8), flags)
    odd = np.asarray(flags != 0)
    plain = pc.if_else(pa.array(~odd), texts, pa.scalar(None, pa.string())) if odd.any() else texts
    fast = plain.cast(pa.float64())
    if not odd.any():
        return Result(fast)
    rows = pa.array(odd)
    results = by_value(texts.filter(rows), fast.type, _double)
    bad = np.zeros(len(texts), np.bool_)
    bad[np.flatnonzero(odd)[np.asarray(results.is_null())]] = True
    return failing(pc.replace_with_mask(fast, rows, results), bad, CAST_INVALID_INPUT)


def _double(text: str) -> float | None:
    """Returns a text as Java's Double.parseDouble reads it, or one of Spark's other words for the endless."""
    short = text.strip(_JAVA_SPACES)
    if _FLOAT.fullmatch(short):
        return float(short.rstrip("dDfF"))
    if _ENDLESS.fullmatch(short):
        return float(short.replace("-NaN", "NaN").replace("+NaN", "NaN"))
    if _HEXADECIMAL.fullmatch(short):
        try:
            return float.fromhex(short.rstrip("dDfF") if "p" in short.lower() else short)
        except OverflowError:
            return float("-inf") if short.startswith("-") else float("inf")
    special = _SPECIAL.get(short.lower())
    return None if special is None else float(special)


def read_booleans(texts: pa.StringArray) -> Result:
    """Returns the booleans in texts: t, true, y, yes, 1, or f, false, n, no, 0, in any case."""
    results = by_value(texts, pa.bool_(), lambda text: _BOOLEANS.get(text.strip(SPACES).lower()))
    return failing(results, np.asarray(results.is_null()) & np.asarray(texts.is_valid()), CAST_INVALID_INPUT)


def read_rounded_decimals(texts: pa.StringArray, target: pa.Decimal128Type) -> Result:
    """Returns the decimals in texts, rounded half up."""
    fast = read_decimals(texts, target.precision, target.scale)
    odd = fast.state != FITS
    if not odd.any() and not _has_exponent(texts):
        return Result(fast.array)
    odd |= np.asarray(pc.match_substring_regex(texts, "[eE]").fill_null(False))
    results = {}
    for text in texts.filter(pa.array(odd)).unique().to_pylist():
        results[text] = _decimal(text, target)
    listed = texts.filter(pa.array(odd)).to_pylist()
    values = pa.array(
        [None if isinstance(results[listed_text], int) else results[listed_text] for listed_text in listed], target
    )
    errors = np.zeros(len(texts), np.uint8)
    errors[odd] = [result if isinstance(result := results[text], int) else 0 for text in listed]
    return Result(pc.replace_with_mask(fast.array, pa.array(odd), values), errors if errors.any() else None)


def _has_exponent(texts: pa.StringArray) -> bool:
    base = texts.buffers()[2]
    if base is None:
        return False
    characters = np.frombuffer(base, np.uint8)
    return bool(((characters | 0x20) == 0x65).any())


def _decimal(text: str, target: pa.Decimal128Type) -> Decimal | int:
    """Returns a text as Java's BigDecimal reads it, rounded half up; or an error code."""
    short = "".join(_ascii_digit(sign) for sign in text.strip(_JAVA_SPACES))
    match = re.fullmatch(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?", short)
    if match is None or len((match[1] or "").lstrip("+-").lstrip("0")) > 10:
        return CAST_INVALID_INPUT
    if abs(int(match[1] or 0)) > 2**31 - 1:
        return CAST_INVALID_INPUT
    number = Decimal(short)
    if number.is_zero():
        return Decimal((0, (0,), -target.scale))
    if number.adjusted() + 1 > MAX_DECIMAL_DIGITS:
        return NUMERIC_OUT_OF_SUPPORTED_RANGE
    try:
        rounded = number.quantize(Decimal((0, (1,), -target.scale)), ROUND_HALF_UP, Context(prec=2000))
    except InvalidOperation:
        return NUMERIC_VALUE_OUT_OF_RANGE
    return (
        NUMERIC_VALUE_OUT_OF_RANGE if rounded.adjusted() + 1 > target.precision - target.scale and rounded else rounded
    )


def _ascii_digit(sign: str) -> str:
    if sign < "\x80":
        return sign
    digit = unicodedata.decimal(sign, None)
    return sign if digit is None or ord(sign) > 0xFFFF else str(digit)


def warm_up(compiles_all: bool) -> None:
    """Loads the compiled loops, for a process that others are forked from; compiles them only with `compiles_all`."""
    if compiles_all or is_on_disk(_read_integers):
        read_integers(pa.array(["1"]), pa.int64())
    if compiles_all or is_on_disk(_find_odd):
        read_doubles(pa.array(["1"]))
