"""MongoDB Extended JSON: scalars that JSON lacks are objects of one member, as `{"$numberLong": "7"}` for a number.

Such an object is read as the scalar inside, where the column's type, or a field without a column, accepts that. A
struct column for them stays a struct. Doubles that are not finite are `{"$numberDouble": "NaN"}` in the relaxed and the
canonical mode; the older strict mode, and JavaScript's shell, write the bare words NaN, Infinity and -Infinity. Source:
MongoDB Extended JSON (v2) specification.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray
from pyiceberg import types as t

from frazil.decode.json.grammar import (
    ABSENT,
    ARRAY,
    DOUBLE,
    INT,
    OBJECT,
    STRING,
    scan_scalar,
    scan_string,
    skip_key,
    skip_space,
)
from frazil.decode.json.slices import Slices, Texts
from frazil.raw_memory import COMPILED, I32, U8, load8
from frazil.schema.parts import Path

MOMENT = ARRAY + 1
"""The kind of a `$date` whose column is not known yet: none of JSON's kinds."""
NON_FINITE = MOMENT + 1
"""The kind of a double that is not finite; its slice is the text NaN, Infinity or -Infinity with its quotes."""
_NAMES = (b"oid", b"date", b"numberInt", b"numberLong", b"numberDouble", b"numberDecimal")
_OID, _DATE, _INT32, _LONG, _DOUBLE, _DECIMAL = range(6)
_SPELT = np.frombuffer(b"".join(_NAMES), np.uint8)
_ENDS = np.cumsum([len(name) for name in _NAMES])
_NESTED = (t.StructType, t.ListType, t.MapType)
_TIMES = (t.TimestampType, t.TimestamptzType)
_NUMBERS = (t.FloatType, t.DoubleType, t.IntegerType, t.LongType)
"""The types for which a double that is not finite is a number. No integer is equal to one."""
_WORDS = (b"NaN", b"Infinity", b"-Infinity")
_WORD_TEXTS = np.frombuffer(b"".join(_WORDS), np.uint8)
_WORD_ENDS = np.cumsum([len(word) for word in _WORDS])
_BARE_WORD = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\bInfinity\b|\bNaN\b', re.DOTALL)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _which_of(words: U8, ends: NDArray[np.int64], i: int, end: int) -> int:
    """Returns the index of the word from `i` up to `end`; -1: none. words: the words one after another; ends: the end
    of each.
    """
    first = 0
    for n in range(ends.size):
        last = ends[n]
        if last - first == end - i:
            k = 0
            while k < end - i and load8(i + k) == words[first + k]:
                k += 1
            if k == end - i:
                return n
        first = last
    return -1


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _member(i: int, end: int) -> tuple[int, int, int]:
    """Returns the index of the first member's name in the object from `i` up to `end`, and the range of what follows it."""
    i = skip_space(i + 1, end)
    if i + 1 >= end or load8(i) != 0x22 or load8(i + 1) != 0x24:
        return -1, 0, 0
    close, _ = scan_string(i + 1, end)
    name = _which_of(_SPELT, _ENDS, i + 2, close)
    if name < 0:
        return -1, 0, 0
    last = end - 1
    while load8(last - 1) <= 0x20:
        last -= 1
    i = skip_key(i, end)
    return (name if i > 0 else -1), i, last


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _scalar(i: int, end: int) -> int:
    """Returns the kind of the scalar from `i` up to `end`; ABSENT where it is none, or only a part of the range."""
    if i < 0 or i >= end:
        return ABSENT
    stop, kind = scan_scalar(i, end)
    return kind if stop == end else ABSENT


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _scalar_at(i: int, end: int) -> tuple[int, int, int, int]:
    """Returns the index of the name in the object from `i` up to `end`, and the scalar inside; -1: another object."""
    name, i, last = _member(i, end)
    form = name
    if name == _DATE and load8(i) == 0x7B:
        name, i, last = _member(i, last)
        if name != _LONG:
            return -1, 0, 0, 0
    kind = _scalar(i, last) if name >= 0 else ABSENT
    if name == _DOUBLE and kind == STRING and _which_of(_WORD_TEXTS, _WORD_ENDS, i + 1, last - 1) >= 0:
        return form, i, last, NON_FINITE
    if name == _INT32 or name == _LONG or name == _DOUBLE:  # noqa: SIM109
        i += 1
        last -= 1
        kind = _scalar(i, last) if kind == STRING else ABSENT
        is_good = kind == INT or (kind == DOUBLE and name == _DOUBLE)
    else:
        is_good = kind == STRING or (kind == INT and name == _DATE)
    return (form, i, last, kind) if is_good else (-1, 0, 0, 0)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def find_scalars(base: int, starts: I32, ends: I32, kinds: U8, scalars: I32) -> None:
    """Writes, for each object that is such a scalar, to a row of `scalars` its name's index, and the slice and kind of the
    scalar inside.
    """
    for row in range(starts.size):
        scalars[row, 0] = -1
        if kinds[row] == OBJECT:
            form, start, end, kind = _scalar_at(base + starts[row], base + ends[row])
            scalars[row, 0], scalars[row, 1], scalars[row, 2], scalars[row, 3] = form, start - base, end - base, kind


def unwrap_scalars(texts: Texts, slices: Slices, wanted: t.IcebergType, path: Path) -> Slices:
    """Returns the values of a column of this type, with the scalars inside such objects in their place, where the type
    accepts them.
    """
    if isinstance(wanted, _NESTED) or not (slices.kind == OBJECT).any():
        return slices
    forms = [_INT32, _LONG, _DOUBLE]
    if isinstance(wanted, t.DecimalType | t.StringType):
        forms.append(_DECIMAL)
    if isinstance(wanted, t.StringType):
        forms.append(_OID)
    if isinstance(wanted, _TIMES) and texts.reading.unit_at.get(path, "ms") == "ms":
        forms.append(_DATE)
    scalars = _scalars(texts, slices)
    taken = np.isin(scalars[:, 0], forms)
    if not isinstance(wanted, _NUMBERS):
        taken &= scalars[:, 3] != NON_FINITE
    return slices.with_others(taken, *scalars.T[1:]) if taken.any() else slices


def unwrap_new_scalars(texts: Texts, slices: Slices) -> Slices:
    """Returns the values of a field without a column, with the scalars inside such objects in their place; times are
    MOMENT.
    """
    if not (slices.kind == OBJECT).any():
        return slices
    scalars = _scalars(texts, slices)
    scalars[scalars[:, 0] == _DATE, 3] = MOMENT
    # The value of a `$numberDouble` may be integral; its type is double all the same.
    scalars[(scalars[:, 0] == _DOUBLE) & (scalars[:, 3] == INT), 3] = DOUBLE
    taken = scalars[:, 0] >= 0
    return slices.with_others(taken, *scalars.T[1:]) if taken.any() else slices


def non_finite_of(slices: Slices) -> Slices:
    """Returns the doubles that are not finite, as texts; other values are absent."""
    kind = np.where(slices.kind == NON_FINITE, np.uint8(STRING), np.uint8(ABSENT))
    return Slices(slices.start, slices.end, kind, slices.owner)


def quote_bare_words(values: pa.Array) -> pa.Array | None:
    """Returns the documents with `{"$numberDouble": "NaN"}` for the bare word NaN, and likewise for the infinities;
    None where no document has such a word. values: binary.
    """
    quoted = [None if value is None else _BARE_WORD.sub(_quote_word, value) for value in values.to_pylist()]
    documents = pa.array(quoted, pa.binary())
    return None if documents.equals(values) else documents


def _quote_word(match: re.Match[bytes]) -> bytes:
    word = match.group()
    return word if word.startswith(b'"') else b'{"$numberDouble":"' + word + b'"}'


def _scalars(texts: Texts, slices: Slices) -> I32:
    scalars = np.empty((len(slices), 4), np.int32)
    find_scalars(texts.base, slices.start, slices.end, slices.kind, scalars)
    return scalars
