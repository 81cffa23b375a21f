"""Distinct keys that are found by a hash of their bytes: built once for a reference table, asked for each batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from frazil.decode.columns import offsets_of
from frazil.raw_memory import COMPILED, I32, U8, is_on_disk, load8, load64

Ints = NDArray[np.int64]
_DIGITS = 38
"""The digits of the widest decimal."""


class RowKeys:
    """The keys of rows, of one or several columns. Keys with a null are found by nobody."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        """columns: in `comparable` types, with equal lengths."""
        self._levels: list[tuple[_Distinct, _Distinct | None]] = []
        codes = np.zeros(0, np.int64)
        for n, column in enumerate(columns):
            encoded = column.dictionary_encode(null_encoding="encode")
            place, pairs = np.asarray(encoded.indices).astype(np.int64), None
            if n:
                both = pa.array(codes * len(encoded.dictionary) + place).dictionary_encode()
                place, pairs = np.asarray(both.indices).astype(np.int64), _Distinct(both.dictionary)
            self._levels.append((_Distinct(encoded.dictionary), pairs))
            codes = place
        #: The last row of each key.
        self._rows = np.full(int(codes.max(initial=-1)) + 1, -1, np.int64)
        self._rows[codes] = np.arange(codes.size)
        is_last = self._rows[codes] == np.arange(codes.size)
        for column in columns:
            is_last |= np.asarray(column.is_null())
        #: A row whose key another row has too; None where keys are distinct.
        self.repeated = None if is_last.all() else int(np.flatnonzero(~is_last)[0])

    def find(self, columns: Sequence[pa.Array]) -> Ints:
        """Returns the row of each key: int64 of shape (n_keys,), -1 for a key that no row has, or with a null."""
        codes = np.zeros(0, np.int64)
        for (distinct, pairs), column in zip(self._levels, columns, strict=True):
            own_codes = distinct.find(column)
            if pairs is not None:
                is_there = (codes >= 0) & (own_codes >= 0)
                own_codes = pairs.find(pa.array(codes * len(distinct) + own_codes, mask=~is_there))
            codes = own_codes
        return np.where(codes >= 0, self._rows[codes], -1) if self._rows.size else codes


class _Distinct:
    """Distinct values of one column."""

    def __init__(self, values: pa.Array) -> None:
        self._count = len(values)
        self._starts, self._bytes = _bytes_of(values)
        # At most half of the places are taken.
        self._places = np.full(1 << max(1, (2 * self._count - 1).bit_length()), -1, np.int32)
        self._run(self._starts, self._bytes, values, np.zeros(0, np.int64))

    def __len__(self) -> int:
        return self._count

    def find(self, values: pa.Array) -> Ints:
        """Returns the index of each value: int64 of shape (n_values,), -1 for null and for values that are not here."""
        indexes = np.full(len(values), -1, np.int64)
        if len(values):
            self._run(*_bytes_of(values), values, indexes)
        return indexes

    def _run(self, starts: I32, raw: U8, values: pa.Array, indexes: Ints) -> None:
        has_value = np.asarray(values.is_valid()).astype(np.uint8)
        _find_all(raw.ctypes.data, starts, has_value, self._bytes.ctypes.data, self._starts, self._places, indexes)


def comparable(kind: pa.DataType) -> pa.DataType | None:
    """Returns the type in which keys of a type are compared, the same for int and long, and for decimals of one scale;
    None for types that are not keys: floating-point numbers and nested types.
    """
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_decimal(kind):
        return pa.decimal128(_DIGITS, kind.scale)
    return None if pa.types.is_floating(kind) or pa.types.is_nested(kind) or pa.types.is_null(kind) else kind


def _bytes_of(values: pa.Array) -> tuple[I32, U8]:
    """Returns the bytes of all values, and where each begins: int32 of shape (n_values + 1,)."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        raw = values.buffers()[2]
        return offsets_of(values), np.frombuffer(raw, np.uint8) if raw else np.zeros(1, np.uint8)
    if pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        width = kind.byte_width
        raw = values.buffers()[1]
        start, end = width * values.offset, width * (values.offset + len(values))
        raw_bytes = np.frombuffer(raw, np.uint8)[start:end] if len(values) else np.zeros(0, np.uint8)
    else:
        width = 8
        number = values.cast(pa.int32()) if pa.types.is_date32(kind) else values
        raw_bytes = np.asarray(pc.fill_null(number.cast(pa.int64()), 0)).view(np.uint8)
    return np.arange(len(values) + 1, dtype=np.int32) * np.int32(width), raw_bytes


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _hash(i: int, end: int) -> np.uint64:
    """Returns a hash of the bytes from one address to another, eight at a time."""
    mixed = np.uint64(end - i)
    while i + 8 <= end:
        mixed = (mixed ^ np.uint64(load64(i))) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        i += 8
    while i < end:
        mixed = (mixed ^ np.uint64(load8(i))) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        i += 1
    return mixed ^ (mixed >> np.uint64(32))


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _are_equal(i: int, end: int, j: int) -> bool:
    while i < end and load8(i) == load8(j):
        i += 1
        j += 1
    return i == end


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _find_all(raw: int, offsets: I32, has_value: U8, known_bytes: int, starts: I32, places: I32, indexes: Ints) -> None:
    """Writes the index of each value, of those that are in `places`; with `indexes` empty it adds the values to `places`."""
    last = np.uint64(places.size - 1)
    for row in range(offsets.size - 1):
        if has_value[row] == 0:
            continue
        i, end = raw + offsets[row], raw + offsets[row + 1]
        place = _hash(i, end) & last
        while places[place] >= 0:
            first = starts[places[place]]
            if starts[places[place] + 1] - first == end - i and _are_equal(i, end, known_bytes + first):
                break
            place = (place + np.uint64(1)) & last
        if indexes.size == 0:
            places[place] = row
        else:
            indexes[row] = places[place]


def warm_up(compiles_all: bool) -> None:
    """Loads the compiled loops, for a process that others are forked from; compiles them only with `compiles_all`."""
    if compiles_all or is_on_disk(_find_all):
        RowKeys([pa.array(["a"])]).find([pa.array(["a"])])
