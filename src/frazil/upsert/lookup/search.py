"""The live rows of keys: data files and row positions at one snapshot, without deleted rows.

Files are excluded by their partition and by the bounds and Bloom filters of their key columns. Of the remaining files
only the key columns are read. The keys of large files are kept sorted, and a few keys are found among millions of rows by
binary search: sorting the keys of a file takes as long as a few batches that scan them, and the file remains in the table
for many batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from frazil.catalog.scans import LiveFile
from frazil.cdc.positions import split_snapshot_marks
from frazil.schema.arrow import Bools, Ints, spread_places
from frazil.schema.selection import Path
from frazil.upsert.deduplicate import KeySet
from frazil.upsert.lookup.delete_files import are_deleted, are_in, read_deletes
from frazil.upsert.lookup.live_rows import ColumnCache, as_numbers, in_threads, key_columns, read_columns
from frazil.upsert.lookup.pruning import KeyBounds, KeyFilters, KeyPartitions
from frazil.write.target import TableTarget

_PLACES_FOR_A_KEY = 16
_NUMBERS_AT_ONCE = 65_536  # Intermediate arrays stay in the processor's cache.
_CACHE_BYTES = 768 * 1024 * 1024
_FEWEST_ROWS = 100_000
_INDEXED_ROWS_FOR_A_KEY = 50
_indexes = ColumnCache(_CACHE_BYTES)
_ROWS_AT_ONCE, _ROWS_FOR_A_KEY = 4_000_000, 2


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
        positions = [
            start + self._find(numbers[start : start + _NUMBERS_AT_ONCE])
            for start in range(0, numbers.size, _NUMBERS_AT_ONCE)
        ]
        return np.concatenate(positions) if positions else np.zeros(0, np.int64)

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
        return self._is_of_use and file.record_count >= max(_FEWEST_ROWS, _INDEXED_ROWS_FOR_A_KEY * len(self._key))

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


@dataclass(frozen=True)
class Hits:
    """Live rows of one file that have one of the keys."""

    #: The data file.
    file: LiveFile
    #: The positions of the rows in the file, int64 `(n_hits,)`.
    rows: Ints
    #: The index of each row's key, int64 `(n_hits,)`.
    keys: Ints
    #: The positions of rows of the file that are already deleted.
    deleted: BitMap64

    def only(self, mask: Bools) -> Hits:
        """Returns the rows that the mask marks, bool `(n_hits,)`."""
        return Hits(self.file, self.rows[mask], self.keys[mask], self.deleted)


@dataclass
class Found:
    """The live rows of all keys."""

    #: The rows by file.
    hits: list[Hits] = field(default_factory=list)
    #: The number of files whose keys were read.
    inspected: int = 0
    #: The newest live row per key, once `newest_order` has read it.
    newest: Newest | None = field(default=None, init=False)

    def keys(self) -> Ints:
        """Returns the indexes of the keys of all hits, int64."""
        return np.concatenate([hit.keys for hit in self.hits]) if self.hits else np.zeros(0, np.int64)


def find_rows(target: TableTarget, files: Sequence[LiveFile], keys: Sequence[pa.Array], paths: Sequence[Path]) -> Found:
    """Returns the live rows of `keys` in `files`. The keys are distinct; `paths` are the paths of the key columns.

    Raises: OSError where the store fails.
    """
    live_rows = Found()
    if not keys or not len(keys[0]) or not files:
        return live_rows
    pruners = (KeyPartitions(target, keys, paths), KeyBounds(target, keys, paths), KeyFilters(target, keys, paths))
    candidates = [file for file in files if all(pruner.may_have(file) for pruner in pruners)]
    live_rows.inspected = len(candidates)
    key_set, index, near = KeySet(keys), KeyIndex(keys), KeyRange(keys)
    large, others = ([file for file in candidates if index.is_for(file) is is_large] for is_large in (True, False))

    def search_group(group: list[LiveFile]) -> list[Hits]:
        return _search_files(target, group, key_set, near, paths)

    def search_index(file: LiveFile) -> list[Hits]:
        return list(live_hits(target, file, *index.find(target, file, paths[0])))

    results = (*in_threads(search_index, large), *in_threads(search_group, list(_groups(others, len(keys[0])))))
    live_rows.hits = [hit for hits in results for hit in hits]
    return live_rows


def _groups(files: Sequence[LiveFile], key_count: int) -> Iterator[list[LiveFile]]:
    """Yields groups of files to be searched together: preparing the keys for a group takes as long as scanning as many
    rows.
    """
    group: list[LiveFile] = []
    rows, most = 0, max(_ROWS_AT_ONCE, _ROWS_FOR_A_KEY * key_count)
    for file in files:
        if group and rows + file.record_count > most:
            yield group
            group, rows = [], 0
        group.append(file)
        rows += file.record_count
    if group:
        yield group


def _search_files(
    target: TableTarget, files: list[LiveFile], key_set: KeySet, near: KeyRange, paths: Sequence[Path]
) -> list[Hits]:
    columns = [key_columns(target, file, paths) for file in files]
    chosen: list[Ints] | None = None
    if near.is_of_use:
        chosen = [near.rows_of(key_column[0]) for key_column in columns]
        columns = [(key_column[0].take(pa.array(rows)),) for key_column, rows in zip(columns, chosen, strict=True)]
    ends = np.cumsum([len(key_column[0]) for key_column in columns])
    if not ends[-1]:
        return []
    places = key_set.find([pa.chunked_array([key_column[n] for key_column in columns]) for n in range(len(paths))])
    rows = np.flatnonzero(places >= 0)
    cuts = np.searchsorted(rows, ends)
    hits: list[Hits] = []
    begin = 0
    for number, (file, cut) in enumerate(zip(files, cuts.tolist(), strict=True)):
        mine, begin = rows[begin:cut], cut
        if mine.size:
            at = mine - (int(ends[number]) - len(columns[number][0]))
            hits += live_hits(target, file, at if chosen is None else chosen[number][at], places[mine])
    return hits


def live_hits(target: TableTarget, file: LiveFile, rows: Ints, keys: Ints) -> Iterator[Hits]:
    """Yields the rows at these positions that are not deleted."""
    deleted = read_deletes(target, file.path, file.deletes)
    if deleted:
        gone = are_in(rows, deleted)
        rows, keys = rows[~gone], keys[~gone]
    gone = are_deleted(target, file, rows)
    if gone.any():
        rows, keys = rows[~gone], keys[~gone]
    if rows.size:
        yield Hits(file, rows, keys, deleted)


@dataclass(frozen=True)
class Newest:
    """The newest live row per key by the ordering column."""

    #: Its ordering value; null where the key has no live row.
    order: pa.Array
    #: The Kafka partition of a snapshot row; -1 for any other row, and where several topics feed the table.
    read_in: Ints

    def were_read_in(self, partitions: Ints) -> Bools:
        """Returns whether the row is a snapshot row of this partition, bool `(n_keys,)`: changes behind it there are
        newer.
        """
        return np.asarray((self.read_in >= 0) & (self.read_in == partitions), np.bool_)


def newest_order(target: TableTarget, live_rows: Found, key_count: int) -> Newest:
    """Returns the newest live row per key; the ordering column is read once."""
    if live_rows.newest is None:
        assert target.changes is not None
        order = _read_newest(target, live_rows, target.changes.order_by, key_count)
        order, read_in = (
            split_snapshot_marks(order) if target.changes.has_source_order else (order, np.full(key_count, -1))
        )
        live_rows.newest = Newest(order, read_in if target.changes.is_one_topic else np.full(key_count, -1))
    return live_rows.newest


def _read_newest(target: TableTarget, live_rows: Found, column: str, key_count: int) -> pa.Array:
    kind = target.arrow_schema.field(column).type
    values = [read_columns(target, hit.file, [(column,)], hit.rows)[0] for hit in live_rows.hits]
    if not values:
        return pa.nulls(key_count, kind)
    table = pa.table({"key": live_rows.keys(), "value": pa.concat_arrays(values)})
    most = table.group_by("key").aggregate([("value", "max")])
    return most["value_max"].combine_chunks().take(spread_places(np.asarray(most["key"]), key_count))
