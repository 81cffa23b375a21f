"""Which ids a task may have seen before: a set of hashes of 64 bits.

Equal ids have equal hashes. Two different ids with one hash are rare and harmless: a row whose id may have been seen is sent
to the driver, which compares the ids themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from frazil.raw_memory import COMPILED, load8, load64
from frazil.schema.arrow import Bools
from frazil.upsert.deduplicate import comparable
from frazil.upsert.lookup.live_rows import as_numbers

Hashes = NDArray[np.uint64]
_FEWEST = 1 << 12
_FULL = 2
_LEAST_SPARED, _MOST_SPARED = 1 << 17, 1 << 23
"""The places of a table that is kept for the next batch, of 8 bytes each: 1 to 64 MiB."""
_spared: list[Hashes] = []
_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_MIX, _OTHER_MIX = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def free_places(size: int = 0) -> Hashes:
    """Returns a table of free places, `(size,)`: the one that the last batch has left, as memory that is touched first costs
    more than the look-up of what is put there. size: 0 for any.
    """
    try:
        spared = _spared.pop()  # Of several threads one has it.
    except IndexError:
        return np.zeros(size or _FEWEST, np.uint64)
    if size not in (0, spared.size):
        _spared.append(spared)
        return np.zeros(size, np.uint64)
    spared.fill(0)
    return spared


def spare_places(places: Hashes, count: int) -> None:
    """Keeps a table for the next batch, which will have as many hashes. count: of the places that are taken."""
    if _LEAST_SPARED <= places.size <= _MOST_SPARED and count * 32 > places.size and not _spared:
        _spared.append(places)


class SeenIds:
    """A set of hashes that grows; 0 marks a free place."""

    def __init__(self) -> None:
        self._places = free_places()
        self._count = 0

    def add(self, hashes: Hashes) -> Bools:
        """Adds hashes; returns which were there already, before or among these, bool `(n_hashes,)`."""
        wanted = _FULL * (self._count + hashes.size)
        if wanted > self._places.size:
            size = 1 << int(wanted - 1).bit_length()
            larger = np.zeros(size, np.uint64)
            _put(self._places[self._places != 0], larger)
            self._places = larger
        were_there: Bools = _put(hashes, self._places)
        self._count += int(hashes.size - np.count_nonzero(were_there))
        return were_there

    def end(self) -> None:
        """Leaves its memory to the next set."""
        spare_places(self._places, self._count)
        self._places, self._count = np.zeros(_FEWEST, np.uint64), 0


def hash_ids(columns: Sequence[pa.Array]) -> Hashes:
    """Returns a hash per row of the columns, uint64 `(n_rows,)`; never 0."""
    hashes = np.full(len(columns[0]), _OFFSET)
    for column in columns:
        hashes = _mixed(hashes * _PRIME ^ _hash_column(column))
    return np.where(hashes == 0, np.uint64(1), hashes)


def _hash_column(column: pa.Array) -> Hashes:
    column = as_numbers(comparable(column))
    if pa.types.is_integer(column.type):
        return _mixed(np.asarray(column.fill_null(0)).astype(np.int64).view(np.uint64))
    if pa.types.is_floating(column.type):
        return _mixed(np.asarray(column.cast(pa.float64()).fill_null(0.0)).view(np.uint64))
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        column = (
            column.cast(pa.string()) if not pa.types.is_fixed_size_binary(column.type) else column.cast(pa.binary())
        )
    column = pa.concat_arrays([column])
    buffers, count = column.buffers(), len(column)
    offsets = np.frombuffer(buffers[1], np.int32, count + 1)
    hashes: Hashes = _hash_bytes(offsets, buffers[2].address if buffers[2] is not None else 0)
    return hashes


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _hash_bytes(offsets: NDArray[np.int32], start: int) -> Hashes:
    """Returns a hash of the bytes of each text, eight at a time. start: the address of the bytes."""
    hashes = np.empty(offsets.size - 1, np.uint64)
    for n in range(hashes.size):
        i, end = start + offsets[n], start + offsets[n + 1]
        value = np.uint64(0xCBF29CE484222325) ^ np.uint64(end - i)
        while i + 8 <= end:
            value = (value ^ load64(i)) * np.uint64(0x9E3779B97F4A7C15)
            value ^= value >> np.uint64(29)
            i += 8
        while i < end:
            value = (value ^ np.uint64(load8(i))) * np.uint64(0x9E3779B97F4A7C15)
            value ^= value >> np.uint64(29)
            i += 1
        hashes[n] = value
    return hashes


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _put(hashes: Hashes, places: Hashes) -> Bools:
    """Puts hashes into a table whose size is a power of two; returns which were there."""
    were_there = np.zeros(hashes.size, np.bool_)
    last = np.uint64(places.size - 1)
    for n in range(hashes.size):
        place = hashes[n] & last
        while places[place] != 0 and places[place] != hashes[n]:
            place = (place + np.uint64(1)) & last
        were_there[n] = places[place] == hashes[n]
        places[place] = hashes[n]
    return were_there


def _mixed(values: Hashes) -> Hashes:
    """Returns the values with their bits spread (the finalizer of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * _MIX
    values = (values ^ (values >> np.uint64(27))) * _OTHER_MIX
    return values ^ (values >> np.uint64(31))
