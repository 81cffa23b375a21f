"""Keys within a narrow range of integers, such as sequence numbers: a table with an entry per integer finds the rows
that may have a key in a fifth of the time of a hash table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.upsert.lookup.live_rows import as_numbers

_PLACES_FOR_A_KEY = 16
_ROWS_AT_ONCE = 65_536  # Intermediate arrays stay in the processor's cache.
Ints = NDArray[np.int64]


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
