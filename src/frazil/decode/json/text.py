"""Column types that JSON writes as text: one vectorised reading each, and an exact one of single values if it fails."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg import types as t

from frazil.decode.columns import bytes_of, offsets_from, offsets_of
from frazil.decode.decimals import NO_NUMBER, TOO_WIDE, read_decimals
from frazil.decode.epochs import (
    DIGITS,
    FIRST_US,
    LAST_US,
    are_skipped,
    find_far_years,
    from_numbers,
    have_zones,
    inside_years,
    read_texts,
    strict_cast,
    to_instants,
    to_local,
)
from frazil.decode.json.grammar import DOUBLE, INT, STRING
from frazil.decode.json.values import NOT_INTEGRAL, OUT_OF_RANGE, SKIPPED, UNREADABLE
from frazil.decode.lossless import days_of, read_uuids, times_of
from frazil.raw_memory import U8

_MOST_DIGITS = 100
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_WRONG, _PAD = 255, 64
_SIX_BITS = np.full(256, _WRONG, np.uint8)
_SIX_BITS[np.frombuffer(_ALPHABET, np.uint8)] = np.arange(64)
_SIX_BITS[ord("=")] = _PAD


def read_base64(texts: pa.StringArray) -> tuple[pa.BinaryArray, NDArray[np.bool_]]:
    """Returns the bytes, null where there is no text, and which texts are no base64 (null too): bool of shape
    (n_texts,).
    """
    rows = len(texts)
    texts = pa.concat_arrays([texts.cast(pa.string())])  # From the beginning of its buffer.
    is_present = np.asarray(texts.is_valid())
    offsets = offsets_of(texts)
    if not offsets[-1]:
        return texts.cast(pa.binary()), np.zeros(rows, np.bool_)
    codes = _SIX_BITS[bytes_of(texts)[: offsets[-1]]]
    starts, ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    bad = is_present & ((ends - starts) % 4 != 0)
    pad_sums = np.concatenate([[0], np.cumsum(codes >= _PAD, dtype=np.int64)])
    pads = pad_sums[ends] - pad_sums[starts]
    last = [(ends - starts > back) & (codes[np.maximum(ends - 1 - back, 0)] == _PAD) for back in (0, 1)]
    at_end = last[0].astype(np.int64) + (last[0] & last[1])
    bad |= is_present & (pads != at_end)  # A character of another alphabet, or padding in the middle.
    good = is_present & ~bad
    lengths = np.where(good, ends - starts, 0)
    kept = codes if good.all() else codes[np.repeat(good, ends - starts)]
    out, out_offsets = _join(kept, lengths, np.where(good, at_end, 0))
    mask = pa.py_buffer(np.packbits(good, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), rows, [mask, pa.py_buffer(out_offsets), pa.py_buffer(out)]), bad


def _join(
    codes: NDArray[np.uint8], lengths: NDArray[np.int64], pads: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Returns three bytes for each four characters; the padded ones are left out."""
    quads = np.where(codes == _PAD, 0, codes).astype(np.uint32).reshape(-1, 4)
    word = (quads[:, 0] << 18) | (quads[:, 1] << 12) | (quads[:, 2] << 6) | quads[:, 3]
    out = np.stack([word >> 16, word >> 8, word], axis=1).astype(np.uint8).reshape(-1)
    ends = np.cumsum(lengths // 4 * 3)
    surplus = np.zeros(out.size, np.bool_)
    for back in (1, 2):
        surplus[ends[pads >= back] - back] = True
    sizes = lengths // 4 * 3 - pads
    return out[~surplus], offsets_from(sizes)


# Milliseconds of 0001-01-01 and 10000-01-01: numbers beyond were written in another unit.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_800_000
_DAY = pa.scalar("1970-01-01T")
_EXPONENT_DIGITS = 9
_FAR: int = 10**40


@dataclass
class TextColumn:
    """Texts of one column."""

    #: The texts, null where there is none.
    array: pa.Array
    #: Which rows have a value.
    valid: U8
    #: The reason of each refused row, 0 for the others.
    bad: U8


@dataclass(frozen=True)
class TextReader:
    """How a type is read."""

    #: Whether bare numbers are accepted.
    numbers: bool
    #: The function that reads a column.
    read: Callable[[TextColumn, t.IcebergType, U8], pa.Array]


def integral_value(text: str) -> int | None:
    """Returns the integer that a JSON number is; None when it has a fraction. 10**40 represents all beyond."""
    number = _number(text, 0)
    return _floor(number) if number == number.to_integral_value() else None


def _number(text: str, shift: int) -> Decimal:
    """Returns the value of a JSON number, times 10**shift."""
    mantissa, _, exponent = text.lower().partition("e")
    if len(exponent.lstrip("+-0")) > _EXPONENT_DIGITS:
        exponent = ("-" if exponent.startswith("-") else "") + "9" * _EXPONENT_DIGITS
    return Decimal(f"{mantissa}e{int(exponent or 0) + shift}")


def with_unscaled(column: TextColumn, kinds: U8, scale: int) -> TextColumn:
    """Returns the column with numbers in the form that Kafka Connect's decimals have otherwise: their unscaled integers in
    base64. A number with more digits than the scale is unreadable.
    """
    rows = np.flatnonzero(np.isin(kinds, (INT, DOUBLE)) & (column.bad == 0))
    if not rows.size:
        return column
    texts = [_unscaled(text, scale) for text in column.array.take(pa.array(rows)).to_pylist()]
    column.bad[rows[[text is None for text in texts]]] = UNREADABLE
    is_number = np.isin(np.arange(len(column.array)), rows)
    return replace(column, array=pc.replace_with_mask(column.array, is_number, pa.array(texts, column.array.type)))


def _unscaled(text: str, scale: int) -> str | None:
    number = _number(text, scale)
    if (number and number.adjusted() > _MOST_DIGITS) or number != number.to_integral_value():
        return None
    whole = int(number)
    return base64.b64encode(whole.to_bytes(whole.bit_length() // 8 + 1, "big", signed=True)).decode()


def without_wrapping(column: TextColumn, kinds: U8) -> TextColumn:
    """Returns the column with the integers below 0 as the unsigned numbers of 64 bits that they stand for."""
    is_below = np.asarray(pc.fill_null(pc.starts_with(column.array, "-"), False)) & (kinds == INT)
    if not is_below.any():
        return column
    texts = [str(int(text) + 2**64) for text in column.array.filter(pa.array(is_below)).to_pylist()]
    return replace(column, array=pc.replace_with_mask(column.array, is_below, pa.array(texts, column.array.type)))


def _floor(number: Decimal) -> int:
    if number and number.adjusted() > 40:
        return -_FAR if number < 0 else _FAR
    return int(number.to_integral_value(ROUND_FLOOR))


def _cast(column: TextColumn, target: pa.DataType) -> pa.Array:
    """Returns the values parsed from texts; the invalid ones are marked."""
    return _marked(column, strict_cast(column.array, target))


def _marked(column: TextColumn, values: pa.Array) -> pa.Array:
    """Returns the values parsed from texts, and marks the texts that have none."""
    if values.null_count > column.array.null_count:
        bad = np.asarray(column.array.is_valid()) & np.asarray(values.is_null())
        column.bad[bad] = UNREADABLE
        column.bad[bad & find_far_years(column.array)] = OUT_OF_RANGE
    return values


def _cast_times(column: TextColumn, target: pa.TimestampType) -> pa.Array:
    """Returns the result as `_cast` does; parts of a microsecond are truncated."""
    return _within_years(column, _marked(column, read_texts(column.array, target)))


def _within_years(column: TextColumn, array: pa.Array) -> pa.Array:
    inside, outside = inside_years(array)
    column.bad[outside] = OUT_OF_RANGE
    return inside


def _read_decimal(column: TextColumn, kind: t.IcebergType, kinds: U8) -> pa.Array:
    assert isinstance(kind, t.DecimalType)
    decimals = read_decimals(column.array, kind.precision, kind.scale)
    column.bad[decimals.state == NO_NUMBER] = UNREADABLE
    column.bad[decimals.state == TOO_WIDE] = OUT_OF_RANGE
    return decimals.array


def _read_time(column: TextColumn, kind: t.IcebergType, kinds: U8) -> pa.Array:
    # Arrow parses no time of day alone, but one of the day 1970-01-01; of a day it also parses an hour alone.
    times = pc.if_else(pc.match_substring(column.array, ":"), column.array, "")
    moments = pc.binary_join_element_wise(_DAY, times, "")
    micros = _cast_times(TextColumn(moments, column.valid, column.bad), pa.timestamp("us"))
    return micros.cast(pa.int64()).cast(pa.time64("us"))


def _read_timestamp(column: TextColumn, kind: t.IcebergType, kinds: U8) -> pa.Array:
    """Returns times from ISO 8601 text (with a zone for timestamptz, without for timestamp), or from whole milliseconds
    since 1970.
    """
    zone = "UTC" if isinstance(kind, t.TimestamptzType) else None
    numeric = (kinds == INT) | (kinds == DOUBLE)
    if not numeric.any():
        return _cast_times(column, pa.timestamp("us", tz=zone))
    mask = pa.array(numeric)
    millis = _counts(column, kinds)
    outside = np.asarray(pc.fill_null(pc.or_(pc.less(millis, _FIRST_MS), pc.greater_equal(millis, _LAST_MS)), False))
    column.bad[outside] = OUT_OF_RANGE
    micros = pc.multiply(pc.if_else(pa.array(outside), pa.scalar(None, pa.int64()), millis), 1000).cast(
        pa.timestamp("us", tz=zone)
    )
    texts_only = TextColumn(pc.if_else(mask, None, column.array), column.valid, column.bad)
    return pc.coalesce(micros, _cast_times(texts_only, pa.timestamp("us", tz=zone)))


def read_epochs(column: TextColumn, kind: t.IcebergType, kinds: U8, unit: str) -> pa.Array:
    """Returns times as `_read_timestamp` does, but numbers count `unit` since 1970 and may have a fraction."""
    zone = "UTC" if isinstance(kind, t.TimestamptzType) else None
    target = pa.timestamp("us", tz=zone)
    is_number = (kinds == INT) | (kinds == DOUBLE)
    texts_only = TextColumn(pc.if_else(pa.array(is_number), None, column.array), column.valid, column.bad)
    texts = _cast_times(texts_only, target)
    moments = _integer_times(column, kinds == INT, unit)
    if moments is None:
        out: list[int | None] = [None] * len(is_number)
        for row in np.flatnonzero(is_number).tolist():
            micros = _floor(_number(column.array[row].as_py(), DIGITS[unit]))
            if not FIRST_US <= micros < LAST_US:
                column.bad[row] = OUT_OF_RANGE
            else:
                out[row] = micros
        moments = pa.array(out, pa.int64())
    return pc.coalesce(moments.cast(target), texts) if is_number.any() else texts


def _read_times(column: TextColumn, kind: t.IcebergType, kinds: U8, unit: str | None) -> pa.Array:
    return _read_timestamp(column, kind, kinds) if unit is None else read_epochs(column, kind, kinds, unit)


def read_counted(column: TextColumn, kind: t.IcebergType, kinds: U8, unit: str, reader: TextReader) -> pa.Array:
    """Returns dates and times of day from text, as `reader` reads them, or from integers that count a unit."""
    is_number = (kinds == INT) | (kinds == DOUBLE)
    if not is_number.any():
        return reader.read(column, kind, kinds)
    texts_only = TextColumn(pc.if_else(pa.array(is_number), None, column.array), column.valid, column.bad)
    texts = reader.read(texts_only, kind, kinds)
    numbers = _counts(column, kinds)
    converted = days_of(numbers) if isinstance(kind, t.DateType) else times_of(numbers, unit)
    column.bad[converted.is_outside & np.asarray(numbers.is_valid())] = OUT_OF_RANGE
    return pc.coalesce(converted.array, texts)


def _counts(column: TextColumn, kinds: U8) -> pa.Array:
    """Returns the whole numbers among the values; a number with a fraction, or beyond 64 bits, is marked."""
    numbers = None if (kinds == DOUBLE).any() else _integers(column, kinds == INT)
    return _slow_numbers(column, (kinds == INT) | (kinds == DOUBLE)) if numbers is None else numbers


def _slow_numbers(column: TextColumn, is_number: NDArray[np.bool_]) -> pa.Array:
    counts: list[int | None] = [None] * is_number.size
    for row in np.flatnonzero(is_number).tolist():
        integral = integral_value(column.array[row].as_py())
        if integral is None:
            column.bad[row] = NOT_INTEGRAL
        elif not -(2**63) <= integral < 2**63:
            column.bad[row] = OUT_OF_RANGE
        else:
            counts[row] = integral
    return pa.array(counts, pa.int64())


def _integers(column: TextColumn, is_integral: NDArray[np.bool_]) -> pa.Array | None:
    """Returns the integers; None where one of them is beyond 64 bits."""
    try:
        return pc.if_else(pa.array(is_integral), column.array, None).cast(pa.int64())
    except pa.ArrowInvalid:
        return None


def read_zoned(
    column: TextColumn, kind: t.IcebergType, kinds: U8, unit: str | None, zone: str, is_local: bool
) -> pa.Array:
    """Returns times from texts with and without a zone: converted to `kind` by the zone of local times. Numbers count
    from 1970, in milliseconds unless there is a unit. is_local: all are local times, numbers and texts with a Z too.
    """
    is_instant = have_zones(column.array) | (kinds == INT) | (kinds == DOUBLE)
    if is_local:
        column.array, is_instant = pc.replace_substring_regex(column.array, "[Zz]$", ""), np.zeros_like(is_instant)
    zoned = TextColumn(pc.if_else(pa.array(is_instant), column.array, None), column.valid, column.bad)
    local = TextColumn(pc.if_else(pa.array(is_instant), None, column.array), column.valid, column.bad)
    instants = _read_times(zoned, t.TimestamptzType(), np.where(is_instant, kinds, STRING), unit)
    times = _read_times(local, t.TimestampType(), np.where(is_instant, STRING, kinds), unit)
    is_present = np.asarray(instants.is_valid()) | np.asarray(times.is_valid())
    if isinstance(kind, t.TimestamptzType):
        converted = pc.coalesce(instants, to_instants(times, zone))
    else:
        converted = pc.coalesce(to_local(instants, zone), times)
    lost = is_present & np.asarray(converted.is_null())
    column.bad[lost] = OUT_OF_RANGE
    if lost.any() and isinstance(kind, t.TimestamptzType):
        column.bad[lost & are_skipped(times, zone)] = SKIPPED
    return converted


def _integer_times(column: TextColumn, is_integral: NDArray[np.bool_], unit: str) -> pa.Array | None:
    """Returns times from integers; None where one of them is beyond 64 bits, or there are other numbers."""
    if (~is_integral & (column.valid != 0)).any():
        return None
    numbers = _integers(column, is_integral)
    if numbers is None:
        return None
    moments = from_numbers(numbers, unit)
    column.bad[moments.is_outside] = OUT_OF_RANGE
    return moments.micros


def _read_uuid(column: TextColumn, kind: t.IcebergType, kinds: U8) -> pa.Array:
    array, bad = read_uuids(column.array)
    column.bad[bad] = UNREADABLE
    return array


def _read_binary(column: TextColumn, kind: t.IcebergType, kinds: U8) -> pa.Array:
    array, bad = read_base64(column.array)
    column.bad[bad] = UNREADABLE
    return array


def _read_fixed(column: TextColumn, kind: t.IcebergType, kinds: U8) -> pa.Array:
    size = len(kind)  # type: ignore[arg-type]
    array, bad = read_base64(column.array)
    fits = pc.fill_null(pc.equal(pc.binary_length(array), size), False)
    column.bad[bad | (np.asarray(array.is_valid()) & ~np.asarray(fits))] = UNREADABLE
    return pc.if_else(fits, array, None).cast(pa.binary(size))


TEXT_READERS: dict[type[t.IcebergType], TextReader] = {
    t.DecimalType: TextReader(True, _read_decimal),
    t.DateType: TextReader(False, lambda column, *_: _within_years(column, _cast(column, pa.date32()))),
    t.TimeType: TextReader(False, _read_time),
    t.TimestampType: TextReader(True, _read_timestamp),
    t.TimestamptzType: TextReader(True, _read_timestamp),
    t.UUIDType: TextReader(False, _read_uuid),
    t.BinaryType: TextReader(False, _read_binary),
    t.FixedType: TextReader(False, _read_fixed),
}
