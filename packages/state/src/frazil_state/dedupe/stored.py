"""Which hashes of a batch the files of a table may have: their ids as hashes of 64 bits, which stay in memory.

A hash takes 8 bytes where an id takes 40, and comparing it takes a tenth of the time. Few ids of a batch are found so, and
only these are compared with the ids themselves. Upper bits of a hash choose its place: hashes of a file that are sorted are
looked up from place to place, in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from frazil.catalog.scans import LiveFile
from frazil.raw_memory import COMPILED
from frazil.schema.arrow import Bools, Ints
from frazil.schema.selection import Path
from frazil.upsert.lookup.live_rows import ColumnCache, Name, column_pieces, in_threads, read_columns
from frazil.write.target import TableTarget
from frazil_state.dedupe.seen import Hashes, free_places, hash_ids, spare_places

_CACHE_BYTES = 512 * 1024 * 1024
_BITS_FOR_A_HASH = 16
"""Of the filter: of ids that no row has, one in sixteen passes it."""
_hashes = ColumnCache(_CACHE_BYTES)


Numbers = NDArray[np.int32]


class HashNumbers:
    """The hashes of rows, each with the number of the first row that has it."""

    def __init__(self, hashes: Hashes) -> None:
        size = 1 << int(2 * hashes.size + 1).bit_length()
        self._hashes = hashes
        # The number of a row and one at each place, 0 at a free one: half of the memory that the hashes would take there.
        self._places: Numbers = free_places(size // 2).view(np.int32)
        # Most hashes of files are those of no row: the filter stays in the processor's cache.
        self._filter = np.zeros(max(2, size * _BITS_FOR_A_HASH // 128), np.uint64)
        is_later: Bools = np.zeros(hashes.size, np.bool_)
        _place(hashes, self._places, self._filter, is_later)
        self._later = np.flatnonzero(is_later)

    def end(self) -> None:
        """Leaves its memory to the next batch; nothing is looked up any more."""
        spare_places(self._places.view(np.uint64), self._hashes.size)
        self._hashes, self._places = np.zeros(0, np.uint64), np.zeros(2, np.int32)

    @property
    def are_repeated(self) -> Bools:
        """Which rows have a hash that another row has too, bool `(n_rows,)`."""
        are_repeated: Bools = np.zeros(self._hashes.size, np.bool_)
        are_repeated[self._later] = True
        are_repeated[self.find(self._hashes[self._later])[1]] = True
        return are_repeated

    def are_in(self, hashes: Hashes) -> Bools:
        """Returns which of the rows are the first with one of these hashes, bool `(n_rows,)`."""
        is_here: Bools = np.zeros(self._hashes.size, np.bool_)
        _mark(hashes, self._hashes, self._places, self._filter, is_here)
        return is_here

    def find(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """Returns the positions of these hashes that a row has, ascending, and the number of the first such row."""
        numbers = _find(hashes, self._hashes, self._places, self._filter)
        positions = np.flatnonzero(numbers >= 0)
        return positions, numbers[positions]


def files_with(
    target: TableTarget, files: Sequence[LiveFile], wanted: HashNumbers, paths: Sequence[Path]
) -> tuple[Ints, list[LiveFile]]:
    """Returns the first rows with a hash that a row of the files has, int64, and the files with one. paths: of the columns
    that identify an event.

    Raises: OSError where the store fails.
    """
    own_rows = list(in_threads(lambda file: np.flatnonzero(wanted.are_in(_hashes_of(target, file, paths))), files))
    all_rows = np.concatenate([np.zeros(0, np.int64), *own_rows])
    return all_rows, [file for file, rows in zip(files, own_rows, strict=True) if rows.size]


def rows_with(
    target: TableTarget, file: LiveFile, wanted: HashNumbers, paths: Sequence[Path]
) -> tuple[Ints, Ints, Sequence[pa.Array]]:
    """Returns the positions of a file's rows that have one of the hashes, ascending, the number of the first row of the
    batch with it, and the columns at these paths, of these rows.

    Raises: OSError where the store fails.
    """
    stored = _in_order(target, file.path, paths)
    if stored is not None:
        positions, numbers = wanted.find(stored)
        return positions, numbers, read_columns(target, file, paths, positions)
    columns = read_columns(target, file, paths)
    stored = keep_hashes(target, file.path, hashes_of(columns), paths, are_in_order=True)
    positions, numbers = wanted.find(stored)
    return positions, numbers, [column.take(pa.array(positions)) for column in columns]


def hashes_in_order(target: TableTarget, file: LiveFile, paths: Sequence[Path]) -> Hashes:
    """Returns the hash of each row of a file, from the cache or the file; 0 for a row without an id.

    Raises: OSError where the store fails.
    """
    stored = _in_order(target, file.path, paths)
    if stored is not None:
        return stored
    if len(paths) == 1:  # In pieces, which the processor's caches have room for: ids are memory that is touched first.
        pieces = [hashes_of([piece]) for piece in column_pieces(target, file, paths[0])]
        hashes = np.concatenate([np.zeros(0, np.uint64), *pieces])
    else:
        hashes = hashes_of(read_columns(target, file, paths))
    return keep_hashes(target, file.path, hashes, paths, are_in_order=True)


def _in_order(target: TableTarget, path: str, paths: Sequence[Path]) -> Hashes | None:
    stored = _hashes.get(_name(target, path, paths))
    return np.asarray(stored[0]) if stored is not None and stored[1][0].as_py() else None


def hashes_of(columns: Sequence[pa.Array]) -> Hashes:
    """Returns a hash per row of columns that identify an event; 0 for a row without an id."""
    has_id = np.logical_and.reduce([np.asarray(column.is_valid()) for column in columns])
    hashes: Hashes = np.where(has_id, hash_ids(columns), np.uint64(0))
    return hashes


def keep_hashes(
    target: TableTarget, path: str, hashes: Hashes, paths: Sequence[Path], *, are_in_order: bool = False
) -> Hashes:
    """Keeps the hashes of a file, which need not be read from it then, unless they are there; returns them. hashes: of its
    ids. are_in_order: whether they are in the order of its rows, and are kept so; others are sorted.
    """
    name = _name(target, path, paths)
    if are_in_order or _hashes.get(name) is None:
        _hashes.put(name, (pa.array(hashes if are_in_order else np.sort(hashes)), pa.array([are_in_order])))
    return hashes


def _name(target: TableTarget, path: str, paths: Sequence[Path]) -> Name:
    fields = tuple(target.schema.find_field(".".join(place)) for place in paths)
    return (path, "hashes", *(part for field in fields for part in (field.field_id, str(field.field_type))))


def _hashes_of(target: TableTarget, file: LiveFile, paths: Sequence[Path]) -> Hashes:
    """Returns the hashes of a file's rows in any order."""
    stored = _hashes.get(_name(target, file.path, paths))
    return np.asarray(stored[0]) if stored is not None else hashes_in_order(target, file, paths)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _shift_for(places: NDArray[Any]) -> np.uint64:
    """Returns by how many bits a hash is shifted to its place among so many, a power of two above 1."""
    shift = np.uint64(64)
    size = places.size
    while size > 1:
        size >>= 1
        shift -= np.uint64(1)
    return shift


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _may_have(hash_: np.uint64, bits: Hashes, shift: np.uint64) -> bool:
    """Whether the filter has the bit of a hash. Its upper bits choose the word, its lowest ones the bit."""
    return bool(bits[hash_ >> shift] >> (hash_ & np.uint64(63)) & np.uint64(1))


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _place(hashes: Hashes, places: Numbers, bits: Hashes, is_later: Bools) -> None:
    """Puts the numbers of rows, and one, into a table whose size is a power of two, and the bits of their hashes into a
    filter whose size is one. Marks the rows whose hash a row before them has.
    """
    last, shift, word_shift = np.uint64(places.size - 1), _shift_for(places), _shift_for(bits)
    for n in range(hashes.size):
        place = hashes[n] >> shift
        while places[place] != 0 and hashes[places[place] - 1] != hashes[n]:
            place = (place + np.uint64(1)) & last
        if places[place] == 0:
            places[place] = n + 1
            bits[hashes[n] >> word_shift] |= np.uint64(1) << (hashes[n] & np.uint64(63))
        else:
            is_later[n] = True


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _number_of(hash_: np.uint64, hashes: Hashes, places: Numbers, shift: np.uint64) -> int:
    """Returns the number of the first row with a hash; -1 without one."""
    last = np.uint64(places.size - 1)
    place = hash_ >> shift
    while places[place] != 0:
        number = places[place] - 1
        if hashes[number] == hash_:
            return int(number)
        place = (place + np.uint64(1)) & last
    return -1


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _mark(wanted: Hashes, hashes: Hashes, places: Numbers, bits: Hashes, is_here: Bools) -> None:
    """Marks the first rows with one of these hashes."""
    shift, word_shift = _shift_for(places), _shift_for(bits)
    for hash_ in wanted:
        if _may_have(hash_, bits, word_shift):
            number = _number_of(hash_, hashes, places, shift)
            if number >= 0:
                is_here[number] = True


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _find(wanted: Hashes, hashes: Hashes, places: Numbers, bits: Hashes) -> Ints:
    """Returns per hash the number of the first row that has it; -1 without one."""
    shift, word_shift = _shift_for(places), _shift_for(bits)
    numbers = np.full(wanted.size, -1, np.int64)
    for n in range(wanted.size):
        if _may_have(wanted[n], bits, word_shift):
            numbers[n] = _number_of(wanted[n], hashes, places, shift)
    return numbers
