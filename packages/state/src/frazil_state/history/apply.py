"""Applies changes to the versions of their keys, one after another: versions are opened, closed, divided and joined.

The versions of a key are intervals that never overlap, each with a start, an end, and the time of its last record. A table
does not keep the times of the records between these two: where a late record divides a version, its later part begins
with that last record. What a change makes depends on the versions alone, so that it does not matter how changes are
divided into batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from frazil.raw_memory import COMPILED
from frazil.schema.arrow import Bools, Ints

OPEN = np.iinfo(np.int64).max
"""The end of a version that is current."""
_START, _END, _LAST, _VALUES, _HOME, _KEPT, _RESET = range(7)


@dataclass(frozen=True)
class Versions:
    """Versions, sorted by key and start. Arrays have the shape `(n_versions,)`; times are in microseconds."""

    #: The number of the key.
    keys: Ints
    #: When the version begins to be valid.
    starts: Ints
    #: When it ends; OPEN for a current version.
    ends: Ints
    #: The time of its last record, from its start on.
    lasts: Ints
    #: The row that has its values: the number of a stored version, or behind all of them that of a change.
    values: Ints
    #: The number of the stored version with its start; -1 without one.
    homes: Ints
    #: Whether it is that stored version, unchanged.
    are_kept: Bools
    #: Whether its row has another time of the last record in the ordering column.
    are_reset: Bools


@dataclass(frozen=True)
class Rules:
    """How changes are applied."""

    #: Whether rows have the time of the version's last record, in the ordering column.
    is_ordered: bool
    #: Whether rows have columns that are not tracked, and thus change without a new version.
    has_untracked: bool


@dataclass(frozen=True)
class StoredVersions:
    """Versions that the table has, sorted by key and start. Arrays have the shape `(n_versions,)`, as in Versions."""

    #: Per key the index of its first version, and the end: int64 `(n_keys + 1,)`.
    begins: Ints
    starts: Ints
    ends: Ints
    lasts: Ints


@dataclass(frozen=True)
class KeyChanges:
    """Changes, sorted by key and order. Arrays have the shape `(n_changes,)`; for what they show see Events."""

    #: Per key the index of its first change, and the end: int64 `(n_keys + 1,)`.
    begins: Ints
    times: Ints
    are_deletes: Bools
    are_placed: Bools


def apply_changes(stored: StoredVersions, changes: KeyChanges, tracked: Ints, rules: Rules) -> tuple[Versions, int]:
    """Returns the versions of all keys after the changes, and how many changes were late. tracked: per stored version, and
    behind them per change, a number that is equal where the tracked columns are.
    """
    stored_count, change_count = stored.starts.size, changes.times.size
    table = np.zeros((stored_count + 2 * change_count, 7), np.int64)
    counts = np.zeros(stored.begins.size - 1, np.int64)
    late_count = _apply_all(
        (stored.begins, stored.starts, stored.ends, stored.lasts),
        (changes.begins, changes.times),
        (changes.are_deletes, changes.are_placed),
        tracked,
        (rules.is_ordered, rules.has_untracked),
        table,
        counts,
    )
    bases = stored.begins[:-1] + 2 * changes.begins[:-1]
    places = np.repeat(bases - np.r_[0, np.cumsum(counts)[:-1]], counts) + np.arange(int(counts.sum()))
    left = table[places]
    return Versions(
        np.repeat(np.arange(counts.size), counts),
        left[:, _START],
        left[:, _END],
        left[:, _LAST],
        left[:, _VALUES],
        left[:, _HOME],
        left[:, _KEPT] == 1,
        left[:, _RESET] == 1,
    ), int(late_count)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _apply_all(
    stored: tuple[Ints, Ints, Ints, Ints],
    changes: tuple[Ints, Ints],
    flags: tuple[Bools, Bools],
    tracked: Ints,
    rules: tuple[bool, bool],
    table: NDArray[np.int64],
    counts: Ints,
) -> int:
    """Fills `table` from the place of each key on, and `counts`; returns the number of late changes."""
    stored_begins, starts, ends, lasts = stored
    begins, times = changes
    are_deletes, are_placed = flags
    late_count = 0
    for key in range(counts.size):
        first, count = stored_begins[key] + 2 * begins[key], 0
        for n in range(stored_begins[key], stored_begins[key + 1]):
            _put(table, first + count, starts[n], ends[n], lasts[n], n)
            table[first + count, _HOME], table[first + count, _KEPT] = n, 1
            count += 1
        for n in range(begins[key], begins[key + 1]):
            time, newest = times[n], np.iinfo(np.int64).min
            if count:
                last = table[first + count - 1]
                newest = last[_LAST] if last[_END] == OPEN else last[_END]
            if time < newest and are_placed[n]:
                late_count += 1
            elif time < newest:
                time = newest
            if are_deletes[n]:
                count = _delete(table, first, count, time)
            else:
                count = _write(table, (first, count), time, starts.size + n, tracked, rules)
        counts[key] = count
    return late_count


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _put(table: NDArray[np.int64], at: int, start: int, end: int, last: int, values: int) -> None:
    table[at, _START], table[at, _END], table[at, _LAST], table[at, _VALUES] = start, end, last, values
    table[at, _HOME], table[at, _KEPT], table[at, _RESET] = -1, 0, 0


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _insert(table: NDArray[np.int64], at: int, end: int) -> None:
    """Moves the versions from `at` to `end` by one place."""
    for n in range(end, at, -1):
        table[n] = table[n - 1]


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _remove(table: NDArray[np.int64], at: int, end: int) -> None:
    """Moves the versions behind `at` to its place."""
    for n in range(at, end - 1):
        table[n] = table[n + 1]


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _begun(table: NDArray[np.int64], first: int, count: int, time: int) -> int:
    """Returns how many versions of a key begin at this time or before it."""
    least, most = 0, count
    while least < most:
        middle = (least + most) // 2
        if table[first + middle, _START] <= time:
            least = middle + 1
        else:
            most = middle
    return least


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _cut(table: NDArray[np.int64], at: int, time: int) -> None:
    """Ends a version at a time behind its start. Where its last record is not before that, the row no longer shows its
    time.
    """
    table[at, _END], table[at, _KEPT] = time, 0
    if table[at, _LAST] >= time:
        table[at, _LAST], table[at, _RESET] = table[at, _START], 1


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _delete(table: NDArray[np.int64], first: int, count: int, time: int) -> int:
    """Ends the version that is valid at this time; returns the number of versions."""
    at = first + _begun(table, first, count, time) - 1
    if at < first or time >= table[at, _END]:
        return count
    start, end, last, values = table[at, _START], table[at, _END], table[at, _LAST], table[at, _VALUES]
    if last > time and start < time:
        _insert(table, at + 1, first + count)
        _put(table, at + 1, last, end, last, values)
        table[at + 1, _RESET] = table[at, _RESET]
        count += 1
    if start < time:
        _cut(table, at, time)
    elif last > time:
        table[at, _START], table[at, _HOME], table[at, _KEPT] = last, -1, 0
    else:
        _remove(table, at, first + count)
        count -= 1
    return count


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _write(
    table: NDArray[np.int64], of_key: tuple[int, int], time: int, values: int, tracked: Ints, rules: tuple[bool, bool]
) -> int:
    """Adds a record to the version that is valid at its time, or makes a version of it; returns the number of versions."""
    first, count = of_key
    is_ordered, has_untracked = rules
    at = first + _begun(table, first, count, time) - 1
    if at < first or time >= table[at, _END]:
        at += 1
        end = table[at, _START] if at < first + count else OPEN
        _insert(table, at, first + count)
        _put(table, at, time, end, time, values)
        return int(_join(table, at, first, count + 1, tracked, is_ordered))
    start, end, last = table[at, _START], table[at, _END], table[at, _LAST]
    if tracked[table[at, _VALUES]] == tracked[values]:
        if time >= last and has_untracked:
            table[at, _VALUES], table[at, _KEPT], table[at, _RESET] = values, 0, 0
            table[at, _LAST] = time if is_ordered else start
        return count
    if last > time:
        # The later part of the version, which begins with its last record.
        _insert(table, at + 1, first + count)
        _put(table, at + 1, last, end, last, table[at, _VALUES])
        table[at + 1, _RESET] = table[at, _RESET]
        count, end = count + 1, last
    if time == start:
        home = table[at, _HOME]
        _put(table, at, time, end, time, values)
        table[at, _HOME] = home
    else:
        _cut(table, at, time)
        at += 1
        _insert(table, at, first + count)
        _put(table, at, time, end, time, values)
        count += 1
    return int(_join(table, at, first, count, tracked, is_ordered))


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _join(table: NDArray[np.int64], at: int, first: int, count: int, tracked: Ints, is_ordered: bool) -> int:
    """Joins a version with equal ones that it touches; returns the number of versions."""
    for before in (at, at - 1):
        if before < first or before + 1 >= first + count:
            continue
        after = before + 1
        is_equal = tracked[table[before, _VALUES]] == tracked[table[after, _VALUES]]
        if table[before, _END] == table[after, _START] and is_equal:
            table[before, _END], table[before, _VALUES] = table[after, _END], table[after, _VALUES]
            table[before, _LAST] = table[after, _LAST] if is_ordered else table[before, _START]
            table[before, _RESET], table[before, _KEPT] = table[after, _RESET], 0
            _remove(table, after, first + count)
            count -= 1
    return count
