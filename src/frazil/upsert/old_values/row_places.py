"""Places of rows as arrays.

A catch-up needs millions of them, and an object per row would take as much memory as the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frazil.schema.arrow import Bools, Ints

NONE = -1


@dataclass(frozen=True)
class RowPlaces:
    """A place per row."""

    #: The number of the table or file that has the row, int32 `(n_rows,)`; NONE where no source has it.
    sources: NDArray[np.int32]
    #: The position of the row in that source, int64 `(n_rows,)`.
    rows: Ints

    @classmethod
    def nowhere(cls, count: int) -> RowPlaces:
        """Returns places of `count` rows that no source has."""
        return cls(np.full(count, NONE, np.int32), np.full(count, NONE))

    def copy(self) -> RowPlaces:
        """Returns an independent copy."""
        return RowPlaces(self.sources.copy(), self.rows.copy())

    @property
    def are_there(self) -> Bools:
        """Which rows have a source, bool `(n_rows,)`."""
        return np.asarray(self.sources != NONE, np.bool_)

    def take(self, at: Ints) -> RowPlaces:
        """Returns the places at these indexes."""
        return RowPlaces(self.sources[at], self.rows[at])

    def put(self, at: Ints, source: int | NDArray[np.int32], rows: Ints) -> None:
        """Sets the places at the indexes `at`; of an index given twice the last place is kept."""
        self.sources[at] = source
        self.rows[at] = rows

    def drop(self, at: Ints) -> None:
        """Marks the rows at the indexes `at` as being nowhere."""
        self.sources[at] = NONE

    def by_source(self) -> list[Ints]:
        """Returns the indexes of rows with a source, grouped by source."""
        order = np.argsort(self.sources, kind="stable")
        order = order[np.searchsorted(self.sources[order], 0) :]
        cuts = np.flatnonzero(np.diff(self.sources[order])) + 1
        return [part for part in np.split(order, cuts) if part.size]


def ends_of_chains(before: Ints, continues: Bools) -> Ints:
    """Returns per place the end of its chain, int64 `(n_places,)`: `before` is followed for as long as `continues` is
    true; NONE where the chain has no predecessor.
    """
    end = before.size
    following = np.r_[np.where(continues, np.where(before == NONE, end, before), np.arange(end)), end]
    while not np.array_equal(further := following[following], following):
        following = further
    return np.where(following == end, NONE, following)[:end]


def are_less(ones: Sequence[Ints], others: Sequence[Ints]) -> Bools:
    """Returns which rows of `ones` sort before those of `others`, by the first column that differs, bool `(n_rows,)`."""
    is_less, is_same = np.zeros(ones[0].size, np.bool_), np.ones(ones[0].size, np.bool_)
    for left, other in zip(ones, others, strict=True):
        is_less |= is_same & (left < other)
        is_same &= left == other
    return is_less
