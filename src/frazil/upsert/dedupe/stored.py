"""Which ids of a batch the table may have: the ids of its files as hashes of 64 bits, which stay in memory.

A hash takes 8 bytes where an id takes 40, and comparing it takes a tenth of the time. Few ids of a batch are found so, and
only these are compared with the ids themselves (`upsert.lookup`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numba import njit

from frazil.catalog.scans import LiveFile
from frazil.raw_memory import COMPILED
from frazil.schema.arrow import Bools, Ints
from frazil.schema.selection import Path
from frazil.upsert.dedupe.seen import Hashes, hash_ids
from frazil.upsert.lookup.live_rows import ColumnCache, Name, in_threads, read_columns
from frazil.upsert.lookup.pruning import KeyBounds, KeyFilters, KeyPartitions
from frazil.write.target import TableTarget

_CACHE_BYTES = 512 * 1024 * 1024
_hashes = ColumnCache(_CACHE_BYTES)


def may_be_stored(
    target: TableTarget, files: Sequence[LiveFile], keys: Sequence[pa.Array], wanted: Hashes, paths: Sequence[Path]
) -> Bools:
    """Returns which of the distinct keys some row of the files may have, bool `(n_keys,)`. wanted: the hash of each key.
    paths: of the columns.

    Raises: OSError where the store fails.
    """
    is_found = np.zeros(len(keys[0]), np.bool_)
    if not is_found.size or not files:
        return is_found
    pruners = (KeyPartitions(target, keys, paths), KeyBounds(target, keys, paths), KeyFilters(target, keys, paths))
    candidates = [file for file in files if all(pruner.may_have(file) for pruner in pruners)]
    size = 1 << int(2 * wanted.size).bit_length()
    places, numbers = np.zeros(size, np.uint64), np.zeros(size, np.int64)
    _place(wanted, places, numbers)

    def search(file: LiveFile) -> Bools:
        is_here = np.zeros(wanted.size, np.bool_)
        _find(_hashes_of(target, file, paths), places, numbers, is_here)
        return is_here

    for is_here in in_threads(search, candidates):
        is_found |= is_here
    firsts: Ints = _first_alike(wanted, places, numbers)  # Keys with one hash have one place.
    return np.asarray(is_found[firsts], np.bool_)


def keep_hashes(target: TableTarget, path: str, hashes: Hashes, paths: Sequence[Path]) -> None:
    """Keeps the hashes of a file that was written, which need not be read from it then. hashes: of its ids, in any order."""
    _hashes.put(_name(target, path, paths), (pa.array(hashes),))


def _name(target: TableTarget, path: str, paths: Sequence[Path]) -> Name:
    fields = tuple(target.schema.find_field(".".join(place)) for place in paths)
    return (path, "hashes", *(part for field in fields for part in (field.field_id, str(field.field_type))))


def _hashes_of(target: TableTarget, file: LiveFile, paths: Sequence[Path]) -> Hashes:
    """Returns the hashes of a file's ids, from the cache or the file; 0 for a row without an id."""
    name = _name(target, file.path, paths)
    stored = _hashes.get(name)
    if stored is None:
        columns = read_columns(target, file, paths)
        has_id = np.logical_and.reduce([np.asarray(column.is_valid()) for column in columns])
        stored = (pa.array(np.where(has_id, hash_ids(columns), np.uint64(0))),)
        _hashes.put(name, stored)
    return np.asarray(stored[0])


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _place(hashes: Hashes, places: Hashes, numbers: Ints) -> None:
    """Puts hashes with the number of the first key that has them into a table whose size is a power of two."""
    last = np.uint64(places.size - 1)
    for n in range(hashes.size):
        place = hashes[n] & last
        while places[place] != 0 and places[place] != hashes[n]:
            place = (place + np.uint64(1)) & last
        if places[place] == 0:
            places[place] = hashes[n]
            numbers[place] = n


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _find(hashes: Hashes, places: Hashes, numbers: Ints, is_here: Bools) -> None:
    """Marks the keys whose hash is among these."""
    last = np.uint64(places.size - 1)
    for n in range(hashes.size):
        place = hashes[n] & last
        while places[place] != 0:
            if places[place] == hashes[n]:
                is_here[numbers[place]] = True
                break
            place = (place + np.uint64(1)) & last


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _first_alike(hashes: Hashes, places: Hashes, numbers: Ints) -> Ints:
    """Returns per hash the number of the first key that has it."""
    last = np.uint64(places.size - 1)
    firsts = np.empty(hashes.size, np.int64)
    for n in range(hashes.size):
        place = hashes[n] & last
        while places[place] != hashes[n]:
            place = (place + np.uint64(1)) & last
        firsts[n] = numbers[place]
    return firsts
