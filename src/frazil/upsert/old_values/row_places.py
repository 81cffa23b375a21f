"""Where rows are, as numbers: a catch-up asks for millions, and an object for each would take as much as the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
NONE = -1


@dataclass(frozen=True)
class RowPlaces:
    """One for each row that was asked for. sources: numbers of what has them, NONE: nothing has; rows: the place in that."""

    sources: NDArray[np.int32]
    rows: Ints

    @classmethod
    def nowhere(cls, count: int) -> RowPlaces:
        """So many rows that are not there."""
        return cls(np.full(count, NONE, np.int32), np.full(count, NONE))

    def copy(self) -> RowPlaces:
        """The same, to be changed apart."""
        return RowPlaces(self.sources.copy(), self.rows.copy())

    @property
    def are_there(self) -> Bools:
        """Which have been found."""
        return np.asarray(self.sources != NONE, np.bool_)

    def take(self, at: Ints) -> RowPlaces:
        """These alone."""
        return RowPlaces(self.sources[at], self.rows[at])

    def put(self, at: Ints, source: int | NDArray[np.int32], rows: Ints) -> None:
        """Those at `at` are there; of one that is named twice the last place stays."""
        self.sources[at] = source
        self.rows[at] = rows

    def drop(self, at: Ints) -> None:
        """Those at `at` are nowhere."""
        self.sources[at] = NONE

    def by_source(self) -> list[Ints]:
        """Those that are there, together where the same has them."""
        order = np.argsort(self.sources, kind="stable")
        order = order[np.searchsorted(self.sources[order], 0) :]
        cuts = np.flatnonzero(np.diff(self.sources[order])) + 1
        return [part for part in np.split(order, cuts) if part.size]


def ends_of_chains(before: Ints, continues: Bools) -> Ints:
    """Per place the one that is reached from it by going back to the one before, as long as `continues`; NONE where there is
    none before.
    """
    end = before.size
    following = np.r_[np.where(continues, np.where(before == NONE, end, before), np.arange(end)), end]
    while not np.array_equal(further := following[following], following):
        following = further
    return np.where(following == end, NONE, following)[:end]


def are_less(ones: Sequence[Ints], others: Sequence[Ints]) -> Bools:
    """Which of the ones come before the others, by the first of their numbers that differs."""
    is_less, is_same = np.zeros(ones[0].size, np.bool_), np.ones(ones[0].size, np.bool_)
    for one, other in zip(ones, others, strict=True):
        is_less |= is_same & (one < other)
        is_same &= one == other
    return is_less
