"""Values of one JSON column that is no object, list or map, read as a declared Iceberg type.

The result is an Arrow array, and a mismatch for each value that is not of the type.

Nothing is rounded or converted between kinds, and nothing truncated but parts of a microsecond: a string is no number,
1.5 is no integer. docs/reference/json.md has the table; tests/unit/decode/test_json_types.py verifies it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg import types as t

from frazil.decode.columns import Fault, bitmap
from frazil.decode.decimals import MAX_DECIMAL_DIGITS, are_numbers
from frazil.decode.epochs import SKIPPED, unit_settings, zone_settings
from frazil.decode.json import values
from frazil.decode.json.as_sent import as_sent
from frazil.decode.json.extended import NON_FINITE, non_finite_of
from frazil.decode.json.grammar import ARRAY, DOUBLE, FALSE, INT, NULL, OBJECT, STRING, TRUE
from frazil.decode.json.slices import Slices, Texts
from frazil.decode.json.text import (
    TEXT_READERS,
    TextColumn,
    integral_value,
    read_counted,
    read_epochs,
    read_zoned,
    with_unscaled,
    without_wrapping,
)
from frazil.error_classes import ErrorClass
from frazil.raw_memory import U8
from frazil.schema.names import cast_settings, fraction_settings, wide_settings
from frazil.schema.parts import Path, type_word

_HAS_ZONE, _HAS_NONE = values.SKIPPED + 1, values.SKIPPED + 2
_NUMBER_AS_TEXT = values.SKIPPED + 5
_NUMBERS = (t.IntegerType, t.LongType, t.FloatType, t.DoubleType)
_DIGITS = {values.SKIPPED + 3: 20, values.SKIPPED + 4: MAX_DECIMAL_DIGITS}
"""By the code of an integer beyond 64 bits, the digits of a decimal that holds it."""
FAULTS = {
    values.WRONG_KIND: Fault(ErrorClass.TYPE_MISMATCH, "{value} does not fit {type}"),
    values.OUT_OF_RANGE: Fault(ErrorClass.OUT_OF_RANGE, "{value} is out of the range of {type}"),
    values.NOT_INTEGRAL: Fault(ErrorClass.TYPE_MISMATCH, "{value} is not a whole number, as {type} needs"),
    values.LONE_SURROGATE: Fault(ErrorClass.INVALID_TEXT, "{value} has half of a surrogate pair, which is not text"),
    values.UNREADABLE: Fault(ErrorClass.TYPE_MISMATCH, "{value} cannot be read as {type}"),
    values.TWICE: Fault(ErrorClass.DUPLICATE_KEY, "the object has the same key twice"),
    values.SKIPPED: Fault(ErrorClass.OUT_OF_RANGE, SKIPPED),
    _HAS_ZONE: Fault(ErrorClass.TYPE_MISMATCH, "{value} has a zone, and {type} has none"),
    _HAS_NONE: Fault(ErrorClass.TYPE_MISMATCH, "{value} has no zone, and {type} has one"),
    _NUMBER_AS_TEXT: Fault(ErrorClass.TYPE_MISMATCH, "{value} does not fit {type}"),
    **dict.fromkeys(_DIGITS, Fault(ErrorClass.OUT_OF_RANGE, "{value} is out of the range of {type}")),
}
"""What is wrong with a value, by the code that a reader answers with."""

_ENDLESS = ("NaN", "Infinity", "-Infinity")
# The bits of a double that are 0 when it equals a float, or is half way between two.
_BELOW_HALF = 2**28 - 1
_BOUNDS: dict[type[t.IcebergType], tuple[int, int]] = {
    t.IntegerType: (-(2**31), 2**31 - 1),
    t.LongType: (-(2**63), 2**63 - 1),
}


def read_scalar(texts: Texts, slices: Slices, kind: t.IcebergType, path: Path) -> pa.Array:
    """Returns one column with a value per slice: null where it is absent, null or refused."""
    return _READERS.get(type(kind), _read_text)(texts, slices, kind, path)


def refuse_values(texts: Texts, slices: Slices, bad: U8, kind: t.IcebergType, path: Path) -> None:
    """Refuses the records with values that are not of the type. bad: the code of each value's fault; 0 without one."""
    if not bad.any():
        return
    name = type_word(kind)
    faults = {code: Fault(fault.kind, fault.message.replace("{type}", name)) for code, fault in FAULTS.items()}
    zone = texts.reading.zone_at.get(path) or ""
    faults[values.SKIPPED] = replace(faults[values.SKIPPED], message=SKIPPED.replace("{zone}", zone))
    if texts.reading.is_in_row(path):
        remedies = _remedies(texts, kind, path)
        if _NUMBER_AS_TEXT in remedies:
            bad = np.where(_are_numbers(texts, slices, bad), np.uint8(_NUMBER_AS_TEXT), bad)
        for code, remedy in remedies.items():
            faults[code] = replace(faults[code], message=f"{faults[code].message}: {remedy}")
    texts.refuse(slices, bad, ".".join(path), faults)


def _remedies(texts: Texts, kind: t.IcebergType, path: Path) -> dict[int, str]:
    """Returns the settings that take values of a field of the row, by the code of what is wrong with them."""
    is_time = isinstance(kind, t.TimestampType | t.TimestamptzType)
    row = () if texts.reading.is_key_column else texts.reading.in_row(path)
    remedies = {code: wide_settings(row, digits) for code, digits in _DIGITS.items()}
    remedies[values.NOT_INTEGRAL] = unit_settings(row, kind) if is_time else fraction_settings(row)
    if is_time:
        remedies |= dict.fromkeys((_HAS_ZONE, _HAS_NONE), zone_settings(row, kind))
    if isinstance(kind, _NUMBERS) and (cast := cast_settings(row, type_word(kind))):
        remedies[_NUMBER_AS_TEXT] = cast
    return remedies


def _are_numbers(texts: Texts, slices: Slices, bad: U8) -> NDArray[np.bool_]:
    """Returns which refused values are texts that are numbers: bool of shape (n_values,)."""
    are_texts: NDArray[np.bool_] = (bad == values.WRONG_KIND) & (slices.kind == STRING)
    rows = np.flatnonzero(are_texts).astype(np.int32)
    if rows.size:
        are_texts[rows] = are_numbers(texts.raw_texts(slices, rows, quotes=1))
    return are_texts


def _flags(slices: Slices) -> tuple[U8, U8]:
    return np.zeros(len(slices), np.uint8), np.zeros(len(slices), np.uint8)


def _read_boolean(texts: Texts, slices: Slices, kind: t.IcebergType, path: Path) -> pa.Array:
    valid, bad = _flags(slices)
    out = np.zeros(len(slices), np.uint8)
    values.parse_bools(slices.start, slices.kind, out, valid, bad)
    refuse_values(texts, slices, bad, kind, path)
    return _primitive(pa.bool_(), valid, bitmap(out))


def _primitive(kind: pa.DataType, valid: NDArray[Any], values: pa.Buffer) -> pa.Array:
    """Returns an array of numbers, flags or times; one without nulls has no bitmap."""
    nulls = valid.size - int(np.count_nonzero(valid))
    return pa.Array.from_buffers(kind, valid.size, [bitmap(valid) if nulls else None, values], null_count=nulls)


def _read_integer(texts: Texts, slices: Slices, kind: t.IcebergType, path: Path) -> pa.Array:
    numbers = slices.integers()
    is_plain = not ((slices.kind > NULL) & (slices.kind != INT)).any() and path not in texts.reading.declared.unsigned
    if numbers is not None and is_plain:
        if isinstance(kind, t.LongType):
            return _primitive(pa.int64(), slices.kind == INT, pa.py_buffer(numbers))
        narrow = numbers.astype(np.int32)
        if (narrow == numbers).all():
            return _primitive(pa.int32(), slices.kind == INT, pa.py_buffer(narrow))
    return _read_any_integer(texts, slices, kind, path)


def _read_any_integer(texts: Texts, slices: Slices, kind: t.IcebergType, path: Path) -> pa.Array:
    valid, bad = _flags(slices)
    out = np.zeros(len(slices), np.int64)
    least, most = _BOUNDS[type(kind)]
    least = 0 if path in texts.reading.declared.unsigned else least
    slow = np.empty(len(slices), np.int32)
    count = values.parse_integers(texts.base, slices.start, slices.end, slices.kind, least, most, out, valid, bad, slow)
    for row in slow[:count].tolist():
        integral = integral_value(texts.text(slices, row))
        if integral is None:
            bad[row] = values.NOT_INTEGRAL
        elif not least <= integral <= most:
            bad[row] = values.OUT_OF_RANGE
        else:
            out[row], valid[row] = integral, 1
    bad[slices.kind == NON_FINITE] = values.NOT_INTEGRAL
    for row in np.flatnonzero(bad == values.OUT_OF_RANGE).tolist() if isinstance(kind, t.LongType) else ():
        digits = len(str(abs(integral_value(texts.text(slices, row)) or 0)))
        bad[row] = next((code for code, most_digits in _DIGITS.items() if digits <= most_digits), values.OUT_OF_RANGE)
    refuse_values(texts, slices, bad, kind, path)
    if isinstance(kind, t.IntegerType):
        return _primitive(pa.int32(), valid, pa.py_buffer(out.astype(np.int32)))
    return _primitive(pa.int64(), valid, pa.py_buffer(out))


def _read_double(texts: Texts, slices: Slices, kind: t.IcebergType, path: Path) -> pa.Array:
    valid, bad = _flags(slices)
    numbers = slices.doubles()
    is_number = (slices.kind == INT) | (slices.kind == DOUBLE)
    out: NDArray[np.floating[Any]]
    if numbers is not None and not ((slices.kind > NULL) & ~is_number).any():
        out, valid = numbers, is_number.view(np.uint8)
    else:
        out = _read_any_double(texts, slices, valid, bad)
    arrow = pa.float64()
    if isinstance(kind, t.FloatType):
        arrow = pa.float32()
        out = _as_floats(texts, slices, out)
    endless = np.isinf(out)
    if endless.any():
        bad[endless], valid[endless] = values.OUT_OF_RANGE, 0
    if (texts.is_connect or texts.reading.json.is_extended) and bad.any():
        words = slices.only(STRING) if texts.is_connect else non_finite_of(slices)
        _read_non_finite(texts, words, out, valid, bad)
    refuse_values(texts, slices, bad, kind, path)
    return _primitive(arrow, valid, pa.py_buffer(out))


def _as_floats(texts: Texts, slices: Slices, doubles: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Returns the nearest float of each number. A double that lies between two floats was rounded already: its text
    decides.
    """
    with np.errstate(over="ignore"):
        out = doubles.astype(np.float32)
    between = np.flatnonzero(((doubles.view(np.int64) & _BELOW_HALF) == 0) & (out != doubles)).astype(np.int32)
    if between.size:
        out[between] = np.asarray(texts.raw_texts(slices, between).cast(pa.float32()))
    return out


def _read_non_finite(texts: Texts, slices: Slices, out: NDArray[Any], valid: U8, bad: U8) -> None:
    """Reads NaN and infinities, which JSON lacks, where they are written as texts."""
    words = text_column(texts, slices, numbers=False).array
    codes = pc.index_in(words, pa.array(_ENDLESS))
    is_non_finite = np.asarray(codes.is_valid())
    out[is_non_finite] = np.array([float(word) for word in _ENDLESS])[np.asarray(codes.drop_null())]
    valid[is_non_finite], bad[is_non_finite] = 1, values.FITS


def _read_any_double(texts: Texts, slices: Slices, valid: U8, bad: U8) -> values.F64:
    out = np.zeros(len(slices), np.float64)
    slow = np.empty(len(slices), np.int32)
    count = values.parse_doubles(texts.base, slices.start, slices.end, slices.kind, out, valid, bad, slow)
    if count:
        rows = slow[:count]
        # They have more digits than one rounding can take: Arrow's own parser is exact.
        out[rows] = np.asarray(texts.raw_texts(slices, rows).cast(pa.float64()))
    return out


def text_column(texts: Texts, slices: Slices, numbers: bool) -> TextColumn:
    """Returns strings with their escapes replaced (and numbers as written, if requested) as one Arrow array, and which
    values are no such text.
    """
    valid, bad = _flags(slices)
    offsets = np.empty(len(slices) + 1, np.int32)
    values.measure_strings(texts.base, slices.start, slices.end, slices.kind, numbers, offsets, valid, bad)
    out = np.empty(int(offsets[-1]) + values.SPARE, np.uint8)
    limit = texts.base + texts.buffer.size
    values.copy_strings(texts.base, slices.start, slices.end, slices.kind, valid, offsets, out.ctypes.data, limit)
    nulls = valid.size - int(np.count_nonzero(valid))
    buffers = [bitmap(valid) if nulls else None, pa.py_buffer(offsets), pa.py_buffer(out)]
    return TextColumn(pa.Array.from_buffers(pa.string(), len(slices), buffers, null_count=nulls), valid, bad)


def _read_string(texts: Texts, slices: Slices, kind: t.IcebergType, path: Path) -> pa.Array:
    coerces = texts.reading.coerces(path)
    column = text_column(texts, _as_written(slices) if coerces else slices, numbers=coerces)
    refuse_values(texts, slices, column.bad, kind, path)
    return as_sent(texts, slices, column.array) if coerces else column.array


def _as_written(slices: Slices) -> Slices:
    """Returns the values with the kind of a text that is copied as written, where they are no text."""
    is_other = np.isin(slices.kind, (TRUE, FALSE, OBJECT, ARRAY))
    return replace(slices, kind=np.where(is_other, np.uint8(INT), slices.kind)) if is_other.any() else slices


def _read_text(texts: Texts, slices: Slices, kind: t.IcebergType, path: Path) -> pa.Array:
    """Returns a column of a type that JSON writes as text: decimals, dates, times, UUIDs, bytes."""
    reader = TEXT_READERS[type(kind)]
    unit = texts.reading.unit_at.get(path)
    zone = texts.reading.zone_at.get(path)
    is_counted = unit is not None and isinstance(kind, t.DateType | t.TimeType)
    scale = texts.scales.get(path) if isinstance(kind, t.BinaryType) else None
    column = text_column(texts, slices, numbers=reader.numbers or is_counted or scale is not None)
    if scale is not None:
        column = with_unscaled(column, slices.kind, scale)
    if path in texts.reading.declared.unsigned:
        column = without_wrapping(column, slices.kind)
    if zone is not None:
        array = read_zoned(column, kind, slices.kind, unit, zone, path in texts.reading.declared.local_times)
    elif unit is not None and is_counted:
        array = read_counted(column, kind, slices.kind, unit, reader)
    elif unit is None or not isinstance(kind, t.TimestampType | t.TimestamptzType):
        array = reader.read(column, kind, slices.kind)
    else:
        array = read_epochs(column, kind, slices.kind, unit)
    if isinstance(kind, t.TimestampType | t.TimestamptzType):
        _mark_zones(column, kind)
    refuse_values(texts, slices, column.bad, kind, path)
    return array


def _mark_zones(column: TextColumn, kind: t.IcebergType) -> None:
    """Marks which of the unreadable texts have a zone too many, or none."""
    rows = np.flatnonzero(column.bad == values.UNREADABLE)
    if not rows.size:
        return
    texts = column.array.take(pa.array(rows))
    other, code = (
        (t.TimestamptzType(), _HAS_ZONE) if isinstance(kind, t.TimestampType) else (t.TimestampType(), _HAS_NONE)
    )
    valid, bad = np.ones(rows.size, np.uint8), np.zeros(rows.size, np.uint8)
    TEXT_READERS[type(other)].read(TextColumn(texts, valid, bad), other, np.full(rows.size, STRING, np.uint8))
    column.bad[rows[(bad == 0) & np.asarray(texts.is_valid())]] = code


_Reader = Callable[[Texts, Slices, t.IcebergType, tuple[str, ...]], pa.Array]
_READERS: dict[type[t.IcebergType], _Reader] = {
    t.BooleanType: _read_boolean,
    t.IntegerType: _read_integer,
    t.LongType: _read_integer,
    t.FloatType: _read_double,
    t.DoubleType: _read_double,
    t.StringType: _read_string,
}
