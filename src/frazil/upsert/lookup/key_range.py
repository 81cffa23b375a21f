"""Many keys that lie close together, as numbers of a sequence do: a table with a place for each number between the least and
the greatest says which rows can have one, in a fifth of the time of a hash table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.upsert.lookup.live_rows import as_numbers

_PLACES_FOR_A_KEY = 16
_ROWS_AT_ONCE = 65_536  # What is made on the way stays in the processor's cache.
Ints = NDArray[np.int64]


class KeyRange:
    """Keys, which are distinct. is_of_use: they are of one column of whole numbers, dates or times, and close enough."""

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
        """The rows of the column that have one of the keys; perhaps also those that have none."""
        numbers = numbers_of(column)
        found = [
            start + self._find(numbers[start : start + _ROWS_AT_ONCE])
            for start in range(0, numbers.size, _ROWS_AT_ONCE)
        ]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def _find(self, numbers: Ints) -> Ints:
        # What is below the least wraps, and is beyond the greatest.
        places = (numbers - self._least).view(np.uint64)
        is_inside = places < self._is_key.size
        if is_inside.all():
            return np.flatnonzero(self._is_key[places])
        rows = np.flatnonzero(is_inside)
        return rows[self._is_key[places[rows]]]


def is_integral(kind: pa.DataType) -> bool:
    """Whether values of this type are whole numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))


def numbers_of(column: pa.Array) -> Ints:
    """A column of such a type; zeros for nulls."""
    return np.asarray(as_numbers(column).fill_null(0)).astype(np.int64, copy=False)
