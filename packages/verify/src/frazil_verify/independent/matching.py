"""Two multisets of rows compared by hashes: those that records make, and those that a table has.

Nothing is kept in memory of a row: sums of the hashes, by their first bits, show that both sides have the same rows. Only
where sums differ are hashes paired, with 20 bytes for each row in these sums. Rows whose hash one side lacks are read again
by their places, and compared value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil_verify.independent.topic import Range

U64 = NDArray[np.uint64]
Ints = NDArray[np.int64]
NOWHERE = -1
"""The number of a partition, and the offset, of a row whose place is not known."""
_SPARSE = 8
_BITS = 16
_Rows = tuple[U64, Ints, Ints]
"""Hashes, numbers of partitions and offsets of rows. The arrays have the shape `(n_rows,)`."""


class Sums:
    """How many rows there are, and the sum of their hashes modulo 2**64, by the first bits of the hashes: a megabyte,
    however many rows there are. Sums of the same rows are equal, whatever their order. Other rows have equal sums as seldom
    as one sum of all hashes is equal, once in 2**64: all sums together are that one.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(2**_BITS, np.int64)
        self._sums: U64 = np.zeros(2**_BITS, np.uint64)

    def add(self, hashes: U64) -> None:
        """Adds rows."""
        numbers = _numbers_of(hashes)
        self._counts += np.bincount(numbers, minlength=self._counts.size)
        np.add.at(self._sums, numbers, hashes)

    @property
    def count(self) -> int:
        """The number of all rows."""
        return int(self._counts.sum())

    @property
    def digest(self) -> int:
        """The sum of the hashes of all rows, modulo 2**64."""
        return int(self._sums.sum())

    def differing(self, other: Sums) -> NDArray[np.bool_]:
        """Returns which sums are others there, bool `(n_sums,)`."""
        differing: NDArray[np.bool_] = (self._counts != other._counts) | (self._sums != other._sums)
        return differing


def _numbers_of(hashes: U64) -> Ints:
    """Returns the numbers of the sums that rows are in."""
    return (hashes >> np.uint64(64 - _BITS)).astype(np.int64)


@dataclass
class Side:
    """The rows of one side."""

    #: Returns the rows in parts, again each time.
    parts: Callable[[], Iterator[_Rows]]
    #: Topic and partition by number.
    partitions: list[tuple[str, int]]
    sums: Sums = field(default_factory=Sums)

    def rows_in(self, wanted: NDArray[np.bool_]) -> tuple[_Rows, Ints]:
        """Returns the rows in some sums, in their order, and the indexes that they have among all rows."""
        return self._picked(lambda hashes, *_: wanted[_numbers_of(hashes)])

    def rows_at(self, numbers: Ints, offsets: Ints) -> tuple[_Rows, Ints]:
        """Returns the rows at some places, as `rows_in` does."""

        def are_there(_: U64, own_numbers: Ints, own_offsets: Ints) -> NDArray[np.bool_]:
            there = np.zeros(own_offsets.size, np.bool_)
            for number in np.unique(numbers):
                there |= (own_numbers == number) & np.isin(own_offsets, offsets[numbers == number])
            return there

        return self._picked(are_there)

    def _picked(self, are_wanted: Callable[[U64, Ints, Ints], NDArray[np.bool_]]) -> tuple[_Rows, Ints]:
        places, indexes, before = Places(), [np.zeros(0, np.int64)], 0
        for hashes, numbers, offsets in self.parts():
            kept = np.flatnonzero(are_wanted(hashes, numbers, offsets))
            places.add(hashes[kept], numbers[kept], offsets[kept])
            indexes.append(kept + before)
            before += hashes.size
        return places.joined(), np.concatenate(indexes)


@dataclass
class Places:
    """Rows with their hashes and their places in Kafka, in parts. Arrays have the shape `(n_rows,)`."""

    hashes: list[U64] = field(default_factory=list)
    #: The number of each row's partition among `partitions`.
    numbers: list[Ints] = field(default_factory=list)
    offsets: list[Ints] = field(default_factory=list)
    #: Topic and partition by number.
    partitions: list[tuple[str, int]] = field(default_factory=list)

    def add(self, hashes: U64, numbers: Ints, offsets: Ints) -> None:
        """Adds rows."""
        self.hashes.append(hashes)
        self.numbers.append(numbers.astype(np.int32))
        self.offsets.append(offsets)

    def number_of(self, topic: str, partition: int) -> int:
        """Returns the number of a partition."""
        if (topic, partition) not in self.partitions:
            self.partitions.append((topic, partition))
        return self.partitions.index((topic, partition))

    def joined(self) -> _Rows:
        """Returns hashes, numbers of partitions and offsets of all rows."""
        if not self.hashes:
            return np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64)
        return np.concatenate(self.hashes), np.concatenate(self.numbers), np.concatenate(self.offsets)


@dataclass(frozen=True)
class Unmatched:
    """The rows of which one side has more than the other."""

    #: The indexes of rows that the table lacks, among the expected ones.
    missing: Ints
    #: The indexes of rows that no record makes, among the table's.
    surplus: Ints


def match(expected: U64, actual: U64) -> Unmatched:
    """Returns what is left when equal hashes have been paired."""
    return Unmatched(_beyond(expected, actual), _beyond(actual, expected))


def _beyond(hashes: U64, others: U64) -> Ints:
    """Returns the indexes of the hashes that are here more often than there: the last ones of equal hashes."""
    order = np.argsort(hashes, kind="stable")
    ordered, other = hashes[order], np.sort(others)
    first = np.searchsorted(ordered, ordered, "left")
    place = np.arange(ordered.size) - first
    count = np.searchsorted(other, ordered, "right") - np.searchsorted(other, ordered, "left")
    return np.sort(order[place >= count])


def doubled(numbers: Ints, offsets: Ints) -> Ints:
    """Returns the indexes of rows whose place a row before them has too."""
    if not any(
        _are_repeated(offsets[numbers == number]) for number in range(NOWHERE, int(numbers.max(initial=NOWHERE)) + 1)
    ):
        return np.zeros(0, np.int64)
    order = np.lexsort((offsets, numbers))
    same = (np.diff(offsets[order]) == 0) & (np.diff(numbers[order]) == 0)
    return np.sort(order[1:][same & (offsets[order][1:] != NOWHERE)])


def _are_repeated(offsets: Ints) -> bool:
    """Whether some offset occurs twice among those of one partition. Offsets are dense, so that no order is needed."""
    offsets = offsets[offsets != NOWHERE]
    if not offsets.size:
        return False
    first, last = int(offsets.min()), int(offsets.max())
    if last - first > _SPARSE * offsets.size:
        return np.unique(offsets).size < offsets.size
    is_here = np.zeros(last - first + 1, np.bool_)
    is_here[offsets - first] = True
    return int(np.count_nonzero(is_here)) < offsets.size


def are_inside(
    ranges: Iterable[Range], partitions: Sequence[tuple[str, int]], numbers: Ints, offsets: Ints
) -> NDArray[np.bool_]:
    """Returns which places are in one of some ranges that do not overlap. partitions: topic and partition by number."""
    by_partition: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for wanted in ranges:
        by_partition.setdefault((wanted.topic, wanted.partition), []).append((wanted.start, wanted.end))
    inside = np.zeros(offsets.size, np.bool_)
    for number, partition in enumerate(partitions):
        bounds = np.array(sorted(by_partition.get(partition, [(0, 0)])), np.int64)
        rows = np.flatnonzero(numbers == number)
        nearest = np.maximum(np.searchsorted(bounds[:, 0], offsets[rows], "right") - 1, 0)
        inside[rows] = (offsets[rows] >= bounds[nearest, 0]) & (offsets[rows] < bounds[nearest, 1])
    return inside


def distinct_of(words: Ints) -> tuple[list[int], Ints]:
    """Returns the distinct ones of words, and each word's index among these. NumPy would sort them."""
    encoded = pa.array(words).dictionary_encode()
    return encoded.dictionary.to_pylist(), np.asarray(encoded.indices).astype(np.int64)


def runs_of(offsets: Sequence[int] | Ints) -> list[tuple[int, int]]:
    """Returns ascending offsets as half-open ranges."""
    values = np.asarray(offsets, np.int64)
    if not values.size:
        return []
    breaks = np.flatnonzero(np.diff(values) > 1)
    starts, ends = np.r_[values[0], values[breaks + 1]], np.r_[values[breaks], values[-1]] + 1
    return list(zip(starts.tolist(), ends.tolist(), strict=True))
