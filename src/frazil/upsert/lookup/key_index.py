"""Sorted keys of large files: a few keys are found among millions of rows by binary search.

Sorting the keys of a file takes as long as a few batches that scan them, and the file remains in the table for many
batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.catalog.scans import LiveFile
from frazil.schema.arrow import Ints
from frazil.schema.selection import Path
from frazil.upsert.lookup.live_rows import ColumnCache, as_numbers, read_columns
from frazil.write.target import TableTarget

_PLACES_FOR_A_KEY = 16
_ROWS_AT_ONCE = 65_536  # Intermediate arrays stay in the processor's cache.
_CACHE_BYTES = 768 * 1024 * 1024
_FEWEST_ROWS = 100_000
_ROWS_FOR_A_KEY = 50
_indexes = ColumnCache(_CACHE_BYTES)


class KeyRange:
    """Distinct keys. is_of_use: the key is one column of integers, dates or times, and the range is narrow enough."""

    def __init__(self, keys: Sequence[pa.Array]) -> None:
        self.is_of_use = False
        if len(keys) > 1 or not is_integral(keys[0].type) or keys[0].null_count or not len(keys[0]):
            return
        numbers = numbers_of(keys[0])
        self._least = int(numbers.min())
        width = int(numbers.max()) - self._least + 1
        if width <= _PLACES_FOR_A_KEY * numbers.size:
            self._is_key = np.zeros(width, np.bool_)
            self._is_key[numbers - self._least] = True
            self.is_of_use = True

    def rows_of(self, column: pa.Array) -> Ints:
        """Returns the positions of the column's rows that have one of the keys, int64. Rows with null may be among
        them.
        """
        numbers = numbers_of(column)
        found = [
            start + self._find(numbers[start : start + _ROWS_AT_ONCE])
            for start in range(0, numbers.size, _ROWS_AT_ONCE)
        ]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def _find(self, numbers: Ints) -> Ints:
        # Numbers below the smallest wrap around and exceed the greatest.
        places = (numbers - self._least).view(np.uint64)
        is_inside = places < self._is_key.size
        if is_inside.all():
            return np.flatnonzero(self._is_key[places])
        rows = np.flatnonzero(is_inside)
        return rows[self._is_key[places[rows]]]


def is_integral(kind: pa.DataType) -> bool:
    """Returns whether values of this type are integers, dates or times."""
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))


def numbers_of(column: pa.Array) -> Ints:
    """Returns the column of such a type as int64 `(n_rows,)`; zero for null."""
    return np.asarray(as_numbers(column).fill_null(0)).astype(np.int64, copy=False)


class KeyIndex:
    """Finds distinct keys in large files. Usable where the key is one column of integers, dates or times, and there are
    few keys for the number of rows.
    """

    def __init__(self, keys: Sequence[pa.Array]) -> None:
        self._key = keys[0]
        self._is_of_use = len(keys) == 1 and is_integral(keys[0].type) and not keys[0].null_count

    def is_for(self, file: LiveFile) -> bool:
        """Returns whether a binary search in this file is faster than a scan of its rows."""
        return self._is_of_use and file.record_count >= max(_FEWEST_ROWS, _ROWS_FOR_A_KEY * len(self._key))

    @cached_property
    def _in_order(self) -> tuple[Ints, Ints]:
        """The sorted keys, and the index of each in the order given."""
        numbers = numbers_of(self._key)
        order = np.argsort(numbers, kind="stable")
        return numbers[order], order

    def find(self, target: TableTarget, file: LiveFile, path: Path) -> tuple[Ints, Ints]:
        """Returns the positions of the file's rows with one of the keys, in ascending order, and the index of the key
        of each.

        Raises: OSError where the store fails.
        """
        values, order = _index(target, file, path)
        wanted, own = self._in_order
        first = np.searchsorted(values, wanted, "left")
        counts = _run_lengths(values, wanted, first)
        starts = np.repeat(first - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        places = starts + np.arange(int(counts.sum()))
        rows = places if order is None else order[places].astype(np.int64)
        keys = np.repeat(own, counts)
        by_row = np.argsort(rows, kind="stable")
        return rows[by_row], keys[by_row]


def _run_lengths(values: Ints, wanted: Ints, first: Ints) -> Ints:
    """Returns how often each wanted value occurs in the sorted values, where `first` is its place. Hardly any key
    occurs twice: a second binary search per key would double the time.
    """
    counts = np.zeros(len(wanted), np.int64)
    for _ in range(2 if len(values) else 0):
        at = first + counts
        counts += (at < len(values)) & (values[np.minimum(at, len(values) - 1)] == wanted)
    twice = counts == 2
    counts[twice] = np.searchsorted(values, wanted[twice], "right") - first[twice]
    return counts


def _index(target: TableTarget, file: LiveFile, path: Path) -> tuple[Ints, NDArray[np.int32] | None]:
    """Returns the sorted keys of a file and their row positions; None for the positions where the file is sorted by
    key. Rows without a key are left out.
    """
    column = target.schema.find_field(".".join(path))
    name = (file.path, column.field_id, str(column.field_type))
    buffered = _indexes.get(name)
    if buffered is None:
        buffered = _build_index(read_columns(target, file, [path])[0])
        _indexes.put(name, buffered)
    return np.asarray(buffered[0]), np.asarray(buffered[1]) if len(buffered) > 1 else None


def _build_index(column: pa.Array) -> tuple[pa.Array, ...]:
    rows = np.flatnonzero(np.asarray(column.is_valid())).astype(np.int32)
    values = numbers_of(column.drop_null())
    if not column.null_count and not bool((values[1:] < values[:-1]).any()):
        return (pa.array(values),)
    order = np.argsort(values, kind="stable")
    return pa.array(values[order]), pa.array(rows[order])
