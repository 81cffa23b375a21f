"""Truncates that have a place among the changes of all partitions: which changes and which rows they take away.

A source writes a truncate to one partition, whichever it is, and the changes of the others may come long before it and long
after. So it is no change of a batch, but a place in the source's order, which the table's progress keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import PrimitiveType
from pyroaring import BitMap64

from frazil.catalog.scans import LiveFile
from frazil.errors import RecordError, SpecError
from frazil.upsert.bounds import bounds_of, null_count_of
from frazil.upsert.changes import TRUNCATE, Changes
from frazil.upsert.deduplicate import Ranked
from frazil.upsert.delete_files import are_in, bits_of, read_deletes, rows_of
from frazil.upsert.equality_deletes import are_deleted
from frazil.upsert.live_rows import column_pieces
from frazil.upsert.lookup import Found, Hits
from frazil.write.target import TableTarget

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Parted:
    """Changes of a batch, apart from truncates that are none. kept: which they are. emptied: the place of the newest
    truncate; empty: there was none. unplaced: which are truncates without a place.
    """

    kept: Bools
    emptied: str
    unplaced: Bools


def part_truncates(target: TableTarget, changes: Changes) -> Parted:
    """Takes the truncates out, unless they have their place by arrival: in the only partition those that have no other."""
    assert target.changes is not None
    is_placed = have_place(target, changes)
    is_unplaced = (changes.ops == TRUNCATE) & ~is_placed & (not target.changes.is_one_partition)
    newest = ""
    if changes.order is not None and is_placed.any():
        newest = pc.max(changes.order.filter(pa.array(is_placed))).as_py()
    return Parted(~(is_placed | is_unplaced), newest, is_unplaced)


def have_place(target: TableTarget, changes: Changes | Ranked) -> Bools:
    """The truncates that have a place among the changes of all partitions."""
    assert target.changes is not None
    if not target.changes.has_source_order or changes.order is None:
        return np.zeros(changes.ops.size, np.bool_)
    return np.asarray((changes.ops == TRUNCATE) & np.asarray(changes.order.is_valid()), np.bool_)


def unplaced(place: tuple[str, int, int]) -> RecordError:
    """What stops a table at such a truncate: taken where it arrives, it would take newer rows and leave older ones."""
    topic, partition, offset = place
    return RecordError(
        "the order of a truncate among the changes of other partitions is unknown",
        topic=topic,
        partition=partition,
        offset=offset,
        remedy="create the table again, with `metadata: [source_order]` and `order_by: _source_order`, or from a"
        " topic of one partition",
    )


def is_truncated(target: TableTarget, keys: Ranked, emptied: str) -> Bools:
    """Which changes are from before the truncate at the place `emptied`; none where that is empty."""
    assert target.changes is not None
    if not emptied or keys.order is None or not target.changes.has_source_order:
        return np.zeros(len(keys), np.bool_)
    return np.asarray(pc.fill_null(pc.less(keys.order, emptied), False), np.bool_)


@dataclass
class Truncated:
    """The live rows from before a truncate. whole: files in which there are no others. gone: by path the other files that
    have some, and all of their rows that are then gone: a bit each, however many there are.
    """

    whole: list[LiveFile] = field(default_factory=list)
    gone: dict[str, tuple[LiveFile, BitMap64]] = field(default_factory=dict)
    row_count: int = 0

    def left(self, files: Sequence[LiveFile]) -> list[LiveFile]:
        """The files that have other rows."""
        whole = {file.path for file in self.whole}
        return [file for file in files if file.path not in whole]

    def without_rows(self, found: Found) -> Found:
        """What was found in these, but for the rows that go."""
        hits = [self._left_of(one) if one.file.path in self.gone else one for one in found.hits]
        return replace(found, hits=[one for one in hits if one.rows.size])

    def _left_of(self, hits: Hits) -> Hits:
        _, gone = self.gone[hits.file.path]
        stays = ~are_in(hits.rows, gone)
        return replace(hits, rows=hits.rows[stays], keys=hits.keys[stays])


def find_truncated(target: TableTarget, files: Sequence[LiveFile], emptied: str) -> Truncated:
    """The live rows from before the truncate at the place `emptied`, whatever their keys are. OSError as the store,
    SpecError where rows do not tell; in the only partition such a row is one that was there before all changes.

    No file is opened whose bounds tell of all its rows.
    """
    assert target.changes is not None
    order, found = _Order(target, emptied), Truncated()
    for file in files:
        older, untold = order.look(file)
        if not older:
            continue
        known = read_deletes(target, file.path, file.deletes)
        alive = _without_equal(target, file, older - known)
        if untold & alive and not target.changes.is_one_partition:
            column = target.changes.order_by
            raise SpecError(
                f"rows have no value in the column {column}, and a truncate deletes the older rows",
                remedy="create the table again",
                where=target.name,
            )
        if not alive:
            continue
        found.row_count += len(alive)
        if len(older) == file.record_count:
            found.whole.append(file)
        else:
            found.gone[file.path] = (file, known | alive)
    return found


class _Order:
    """Tells which rows are from before a place."""

    def __init__(self, target: TableTarget, place: str) -> None:
        assert target.changes is not None
        self._target, self._place = target, place
        self._path = (target.changes.order_by,)
        self._field = target.schema.find_field(target.changes.order_by)

    def look(self, file: LiveFile) -> tuple[BitMap64, BitMap64]:
        """The rows of a file that are older, or do not tell; and those that do not tell."""
        assert isinstance(self._field.field_type, PrimitiveType)
        lower, upper = bounds_of(file, self._field.field_id, self._field.field_type)
        if null_count_of(file, self._field.field_id) == 0:
            if lower is not None and lower >= self._place:
                return BitMap64(), BitMap64()
            if upper is not None and upper < self._place:
                return BitMap64(range(file.record_count)), BitMap64()
        return self._read(file)

    def _read(self, file: LiveFile) -> tuple[BitMap64, BitMap64]:
        older, untold, begin = BitMap64(), BitMap64(), 0
        for piece in column_pieces(self._target, file, self._path):
            stays = np.asarray(pc.fill_null(pc.greater_equal(piece, self._place), False))
            older |= bits_of(begin + np.flatnonzero(~stays))
            untold |= bits_of(begin + np.flatnonzero(np.asarray(piece.is_null())))
            begin += len(piece)
        return older, untold


def _without_equal(target: TableTarget, file: LiveFile, rows: BitMap64) -> BitMap64:
    """Without the rows that equality deletes of other writers have taken away."""
    if not rows or all(delete.kind != "equality" for delete in file.deletes):
        return rows
    places = rows_of(rows)
    return bits_of(places[~are_deleted(target, file, places)])
