"""Chance from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")
_AT_ONCE = 4096


class Chance:
    """Draws from one seed; many at once, as each draw of NumPy's own has its price."""

    def __init__(self, seed: int) -> None:
        self._source = np.random.default_rng(seed)
        self._drawn: list[float] = []

    def share(self) -> float:
        """Returns a number from 0 to below 1."""
        if not self._drawn:
            self._drawn = self._source.random(_AT_ONCE).tolist()
        return self._drawn.pop()

    def maybe(self, probability: float) -> bool:
        """Returns whether something of this probability happens."""
        return self.share() < probability

    def upto(self, most: int) -> int:
        """Returns a number from 0 to `most`."""
        return int(self.share() * (most + 1))

    def between(self, least: int, most: int) -> int:
        """Returns a number from `least` to `most`."""
        return least + self.upto(most - least)

    def one(self, of: Sequence[T]) -> T:
        """Returns one of several."""
        return of[int(self.share() * len(of))]

    def some(self, of: Sequence[T], probability: float) -> list[T]:
        """Returns those that happen, each with this probability."""
        return [one for one in of if self.share() < probability]
