"""The live rows of keys: data files and row positions at one snapshot, without deleted rows.

Files are excluded by their partition and by the bounds and Bloom filters of their key columns. Of the remaining files
only the key columns are read; the keys of large files are kept sorted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from frazil.catalog.scans import LiveFile
from frazil.cdc.positions import split_snapshot_marks
from frazil.schema.arrow import Bools, Ints, spread_places
from frazil.schema.selection import Path
from frazil.upsert.deduplicate import KeySet
from frazil.upsert.lookup.delete_files import are_deleted, are_in, read_deletes
from frazil.upsert.lookup.key_index import KeyIndex, KeyRange
from frazil.upsert.lookup.live_rows import in_threads, key_columns, read_columns
from frazil.upsert.lookup.pruning import KeyBounds, KeyFilters, KeyPartitions
from frazil.write.target import TableTarget

_ROWS_AT_ONCE, _ROWS_FOR_A_KEY = 4_000_000, 2


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
    found = Found()
    if not keys or not len(keys[0]) or not files:
        return found
    pruners = (KeyPartitions(target, keys, paths), KeyBounds(target, keys, paths), KeyFilters(target, keys, paths))
    candidates = [file for file in files if all(pruner.may_have(file) for pruner in pruners)]
    found.inspected = len(candidates)
    known, index, near = KeySet(keys), KeyIndex(keys), KeyRange(keys)
    large, others = ([file for file in candidates if index.is_for(file) is is_large] for is_large in (True, False))

    def search_group(group: list[LiveFile]) -> list[Hits]:
        return _search_files(target, group, known, near, paths)

    def search_index(file: LiveFile) -> list[Hits]:
        return list(_live(target, file, *index.find(target, file, paths[0])))

    results = (*in_threads(search_index, large), *in_threads(search_group, list(_groups(others, len(keys[0])))))
    found.hits = [hit for hits in results for hit in hits]
    return found


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
    target: TableTarget, files: list[LiveFile], known: KeySet, near: KeyRange, paths: Sequence[Path]
) -> list[Hits]:
    columns = [key_columns(target, file, paths) for file in files]
    chosen: list[Ints] | None = None
    if near.is_of_use:
        chosen = [near.rows_of(one[0]) for one in columns]
        columns = [(one[0].take(pa.array(rows)),) for one, rows in zip(columns, chosen, strict=True)]
    ends = np.cumsum([len(one[0]) for one in columns])
    if not ends[-1]:
        return []
    places = known.find([pa.chunked_array([one[n] for one in columns]) for n in range(len(paths))])
    rows = np.flatnonzero(places >= 0)
    cuts = np.searchsorted(rows, ends)
    hits: list[Hits] = []
    begin = 0
    for number, (file, cut) in enumerate(zip(files, cuts.tolist(), strict=True)):
        mine, begin = rows[begin:cut], cut
        if mine.size:
            at = mine - (int(ends[number]) - len(columns[number][0]))
            hits += _live(target, file, at if chosen is None else chosen[number][at], places[mine])
    return hits


def _live(target: TableTarget, file: LiveFile, rows: Ints, keys: Ints) -> Iterator[Hits]:
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


def newest_order(target: TableTarget, found: Found, key_count: int) -> Newest:
    """Returns the newest live row per key; the ordering column is read once."""
    if found.newest is None:
        assert target.changes is not None
        order = _read_newest(target, found, target.changes.order_by, key_count)
        order, read_in = (
            split_snapshot_marks(order) if target.changes.has_source_order else (order, np.full(key_count, -1))
        )
        found.newest = Newest(order, read_in if target.changes.is_one_topic else np.full(key_count, -1))
    return found.newest


def _read_newest(target: TableTarget, found: Found, column: str, key_count: int) -> pa.Array:
    kind = target.arrow_schema.field(column).type
    values = [read_columns(target, hit.file, [(column,)], hit.rows)[0] for hit in found.hits]
    if not values:
        return pa.nulls(key_count, kind)
    table = pa.table({"key": found.keys(), "value": pa.concat_arrays(values)})
    most = table.group_by("key").aggregate([("value", "max")])
    return most["value_max"].combine_chunks().take(spread_places(np.asarray(most["key"]), key_count))
