"""MongoDB's extended JSON, whose scalars that JSON lacks are objects of one member: `{"$numberLong": "7"}` is a number.

Such an object is a slice of what it holds, where the column's type, or a field that has none yet, takes that. A struct that
a table has of them stays what it is. Doubles that are not finite are `{"$numberDouble": "NaN"}` in the relaxed and the
canonical mode; the older strict mode, and JavaScript's shell, write the bare words NaN, Infinity and -Infinity.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

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
from frazil.decode.memory import COMPILED, I32, U8, load8

MOMENT = ARRAY + 1
"""The kind of a `$date` whose column is not known yet: none of JSON's."""
ENDLESS = MOMENT + 1
"""The kind of a double that is not finite; its slice is the text NaN, Infinity or -Infinity with its quotes."""
_NAMES = (b"oid", b"date", b"numberInt", b"numberLong", b"numberDouble", b"numberDecimal")
_OID, _DATE, _WHOLE, _LONG, _DOUBLE, _DECIMAL = range(6)
_SPELT = np.frombuffer(b"".join(_NAMES), np.uint8)
_ENDS = np.cumsum([len(name) for name in _NAMES])
_NESTED = (StructType, ListType, MapType)
_TIMES = (TimestampType, TimestamptzType)
_FLOATING = (FloatType, DoubleType)
_WORDS = (b"NaN", b"Infinity", b"-Infinity")
_SPELT_WORDS = np.frombuffer(b"".join(_WORDS), np.uint8)
_WORD_ENDS = np.cumsum([len(word) for word in _WORDS])
_BARE_WORD = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\bInfinity\b|\bNaN\b', re.DOTALL)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _which_of(spelt: U8, ends: NDArray[np.int64], i: int, end: int) -> int:
    """Which of some words is from `i` up to `end`; -1: none. spelt: the words one after another; ends: where each ends."""
    first = 0
    for n in range(ends.size):
        last = ends[n]
        if last - first == end - i:
            k = 0
            while k < end - i and load8(i + k) == spelt[first + k]:
                k += 1
            if k == end - i:
                return n
        first = last
    return -1


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _member(i: int, end: int) -> tuple[int, int, int]:
    """Of an object from `i` up to `end`, in JSON, which of the names its first member has, and where all behind that is."""
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
    """The kind of the scalar that is from `i` up to `end`; ABSENT where it is none, or not all of it."""
    if i < 0 or i >= end:
        return ABSENT
    stop, kind = scan_scalar(i, end)
    return kind if stop == end else ABSENT


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _held_at(i: int, end: int) -> tuple[int, int, int, int]:
    """Which of the names the object from `i` up to `end` has, and the scalar that it holds; -1: it is another object."""
    name, i, last = _member(i, end)
    form = name
    if name == _DATE and load8(i) == 0x7B:
        name, i, last = _member(i, last)
        if name != _LONG:
            return -1, 0, 0, 0
    kind = _scalar(i, last) if name >= 0 else ABSENT
    if name == _DOUBLE and kind == STRING and _which_of(_SPELT_WORDS, _WORD_ENDS, i + 1, last - 1) >= 0:
        return form, i, last, ENDLESS
    if name == _WHOLE or name == _LONG or name == _DOUBLE:  # noqa: SIM109
        i += 1
        last -= 1
        kind = _scalar(i, last) if kind == STRING else ABSENT
        is_good = kind == INT or (kind == DOUBLE and name == _DOUBLE)
    else:
        is_good = kind == STRING or (kind == INT and name == _DATE)
    return (form, i, last, kind) if is_good else (-1, 0, 0, 0)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def find_held(base: int, starts: I32, ends: I32, kinds: U8, held: I32) -> None:
    """Of each object that is such a scalar, in a row of `held`, which it is, and the slice and the kind of what it holds."""
    for row in range(starts.size):
        held[row, 0] = -1
        if kinds[row] == OBJECT:
            form, start, end, kind = _held_at(base + starts[row], base + ends[row])
            held[row, 0], held[row, 1], held[row, 2], held[row, 3] = form, start - base, end - base, kind


def as_held(texts: Texts, slices: Slices, wanted: IcebergType, path: tuple[str, ...]) -> Slices:
    """The values of a column of this type, with what such objects hold in their place, where it takes that."""
    if isinstance(wanted, _NESTED) or not (slices.kind == OBJECT).any():
        return slices
    forms = [_WHOLE, _LONG, _DOUBLE]
    if isinstance(wanted, DecimalType | StringType):
        forms.append(_DECIMAL)
    if isinstance(wanted, StringType):
        forms.append(_OID)
    if isinstance(wanted, _TIMES) and texts.units.get(path, "ms") == "ms":
        forms.append(_DATE)
    held = _held(texts, slices)
    taken = np.isin(held[:, 0], forms)
    return _either(slices, held, taken if isinstance(wanted, _FLOATING) else taken & (held[:, 3] != ENDLESS))


def as_new(texts: Texts, slices: Slices) -> Slices:
    """The values of a field that no column has, with what such objects hold in their place; times are MOMENT."""
    if not (slices.kind == OBJECT).any():
        return slices
    held = _held(texts, slices)
    held[held[:, 0] == _DATE, 3] = MOMENT
    held[(held[:, 0] == _DOUBLE) & (held[:, 3] == INT), 3] = DOUBLE  # What its value is says nothing of its type.
    return _either(slices, held, held[:, 0] >= 0)


def endless_of(slices: Slices) -> Slices:
    """The doubles that are not finite, as texts; all else is absent."""
    kind = np.where(slices.kind == ENDLESS, np.uint8(STRING), np.uint8(ABSENT))
    return Slices(slices.start, slices.end, kind, slices.owner)


def spell_bare_words(values: pa.Array) -> pa.Array | None:
    """The documents with `{"$numberDouble": "NaN"}` for the bare word NaN, and so for the other two; None where no document
    has such a word. values: binary.
    """
    spelt = [None if value is None else _BARE_WORD.sub(_spell_word, value) for value in values.to_pylist()]
    made = pa.array(spelt, pa.binary())
    return None if made.equals(values) else made


def _spell_word(found: re.Match[bytes]) -> bytes:
    word = found.group()
    return word if word.startswith(b'"') else b'{"$numberDouble":"' + word + b'"}'


def _held(texts: Texts, slices: Slices) -> I32:
    held = np.empty((len(slices), 4), np.int32)
    find_held(texts.base, slices.start, slices.end, slices.kind, held)
    return held


def _either(slices: Slices, held: I32, taken: NDArray[np.bool_]) -> Slices:
    if not taken.any():
        return slices
    return Slices(
        np.where(taken, held[:, 1], slices.start),
        np.where(taken, held[:, 2], slices.end),
        np.where(taken, held[:, 3], slices.kind).astype(np.uint8),
        slices.owner,
    )
