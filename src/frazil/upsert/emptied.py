"""Truncates with a position in the source's log: which changes and which live rows they remove.

A source writes a truncate to one partition, and changes of other partitions may arrive long before or after it. A
truncate is therefore not a change of a batch but a position in the source's order, which the table's progress keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import PrimitiveType
from pyroaring import BitMap64

from frazil.catalog.scans import LiveFile
from frazil.errors import RecordError, SpecError
from frazil.report import ChangeReport, TaskReport
from frazil.schema.arrow import Bools, Ints, Records
from frazil.stages.changes import TRUNCATE, Changes
from frazil.types import OrderProgress, Place
from frazil.upsert.deduplicate import Ranked, key_codes
from frazil.upsert.lookup.delete_files import are_deleted, are_in, bits_of, read_deletes, rows_of
from frazil.upsert.lookup.live_rows import column_pieces
from frazil.upsert.lookup.pruning import bounds_of, null_count_of
from frazil.upsert.lookup.search import Found
from frazil.write.target import TableTarget

_NOTES = "truncates"


@dataclass
class Emptying:
    """The truncates of a task, or of all tasks of a batch, that have no place in the order of arrival."""

    #: The position of the newest truncate in the source's log; empty without one.
    emptied: str = ""
    #: Topic, partition and offset of truncates without a position among the changes of other partitions.
    unplaced: set[Place] = field(default_factory=set)

    def separate(self, target: TableTarget, topic: str, changes: Changes, records: Records) -> Bools:
        """Takes truncates; returns which changes remain, bool `(n_changes,)`. In a topic with one partition, a truncate
        without a position remains: order of arrival places it. records: one per change.
        """
        assert target.changes is not None
        is_placed = have_place(target, changes)
        is_unplaced = ~changes.have_keys & ~is_placed & (not target.changes.is_one_partition)
        if changes.order is not None and is_placed.any():
            self.emptied = max(self.emptied, pc.max(changes.order.filter(pa.array(is_placed))).as_py())
        for n in np.flatnonzero(is_unplaced).tolist():
            self.unplaced.add((topic, records["partition"][n].as_py(), records["offset"][n].as_py()))
        return np.asarray(~(is_placed | is_unplaced), np.bool_)

    @property
    def has_some(self) -> bool:
        """Whether there is one."""
        return bool(self.emptied or self.unplaced)

    def notes(self) -> dict[str, tuple[Any, ...]]:
        """Returns what the task reports, as `emptying_in` reads it."""
        return {_NOTES: ([self.emptied, sorted(self.unplaced)],)} if self.has_some else {}


def emptying_in(changes: ChangeReport) -> Emptying:
    """Returns the truncates of all tasks."""
    notes = changes.notes.get(_NOTES, ())
    places = {(topic, partition, offset) for _, unplaced in notes for topic, partition, offset in unplaced}
    return Emptying(max((emptied for emptied, _ in notes), default=""), places)


def have_place(target: TableTarget, changes: Changes | Ranked) -> Bools:
    """Returns which changes are truncates with a position in the source's log, bool `(n_changes,)`."""
    assert target.changes is not None
    if not target.changes.has_source_order or changes.order is None:
        return np.zeros(changes.ops.size, np.bool_)
    return np.asarray((changes.ops == TRUNCATE) & np.asarray(changes.order.is_valid()), np.bool_)


def error_of(emptying: Emptying) -> RecordError | None:
    """Returns the error that stops a table at a truncate without a position: applied where it arrives, it would delete
    newer rows and leave older ones.
    """
    if not emptying.unplaced:
        return None
    topic, partition, offset = min(emptying.unplaced)
    return RecordError(
        "the order of a truncate among the changes of other partitions is unknown",
        topic=topic,
        partition=partition,
        offset=offset,
        remedy="create the table again from a topic of one partition; or, unless `merge` subtracts rows, with `metadata:"
        " [source_order]` and `order_by: _source_order`",
    )


def are_emptied(target: TableTarget, keys: Ranked, emptied: str) -> Bools:
    """Returns which changes are older than the truncate at position `emptied`, bool `(n_changes,)`; none where that is
    empty.
    """
    assert target.changes is not None
    if not emptied or keys.order is None or not target.changes.has_source_order:
        return np.zeros(len(keys), np.bool_)
    return np.asarray(pc.fill_null(pc.less(keys.order, emptied), False), np.bool_)


@dataclass
class EmptiedRows:
    """The live rows that are older than a truncate."""

    #: Files all of whose live rows are older.
    complete_files: list[LiveFile] = field(default_factory=list)
    #: By path, other files with older rows: the file, and the positions of all its rows that are deleted afterwards.
    gone: dict[str, tuple[LiveFile, BitMap64]] = field(default_factory=dict)
    #: The number of live rows that the truncate deletes.
    row_count: int = 0

    def left(self, files: Sequence[LiveFile]) -> list[LiveFile]:
        """Returns the files that keep some rows."""
        complete_files = {file.path for file in self.complete_files}
        return [file for file in files if file.path not in complete_files]

    def without_rows(self, live_rows: Found) -> Found:
        """Returns `live_rows` without the rows that the truncate deletes."""
        gone = {path: bits for path, (_, bits) in self.gone.items()}
        hits = [
            in_file.only(~are_in(in_file.rows, gone[in_file.file.path])) if in_file.file.path in gone else in_file
            for in_file in live_rows.hits
        ]
        return replace(live_rows, hits=[in_file for in_file in hits if in_file.rows.size])


def find_emptied(target: TableTarget, files: Sequence[LiveFile], emptied: str) -> EmptiedRows:
    """Returns the live rows that are older than the truncate at position `emptied`, whatever their keys. A file whose
    column bounds decide for all of its rows is not opened. In a topic with one partition, a row without a position is
    older than all changes.

    Raises: OSError where the store fails; SpecError where rows have no position.
    """
    assert target.changes is not None
    order, rows = _Order(target, emptied), EmptiedRows()
    for file in files:
        older, unknown = order.older_rows(file)
        if not older:
            continue
        deleted = read_deletes(target, file.path, file.deletes)
        alive = _without_equal(target, file, older - deleted)
        if unknown & alive and not target.changes.is_one_partition:
            column = target.changes.order_by
            raise SpecError(
                f"rows have no value in the column {column}, and a truncate deletes the older rows",
                remedy="create the table again",
                where=target.name,
            )
        if not alive:
            continue
        rows.row_count += len(alive)
        if len(older) == file.record_count:
            rows.complete_files.append(file)
        else:
            rows.gone[file.path] = (file, deleted | alive)
    return rows


class Emptied:
    """What truncates remove of the changes of a batch and of its table. order: how far the table is after the batch."""

    def __init__(self, target: TableTarget, report: TaskReport, order: OrderProgress) -> None:
        self._target, self._position = target, order.emptied
        self._of_batch = emptying_in(report.changes).emptied

    def are_older(self, changes: Ranked) -> Bools:
        """Returns which changes are older than the last truncate, bool `(n_changes,)`."""
        return are_emptied(self._target, changes, self._position)

    def counting(self, ranked: Ranked) -> Ints:
        """Returns the places of the changes that count: all except changes that are older than the last truncate and whose
        key has others. A connector that repeats such changes may send them behind a snapshot row or a delete, where order of
        arrival would make them newer.
        """
        is_gone = self.are_older(ranked)
        if not is_gone.any():
            return np.arange(len(ranked))
        codes = key_codes(ranked.keys)
        has_others = np.zeros(int(codes.max()) + 1, np.bool_)
        has_others[codes[~is_gone]] = True
        counted: Ints = np.flatnonzero(~is_gone | ~has_others[codes])
        return counted

    def rows(self, files: Sequence[LiveFile]) -> EmptiedRows:
        """Returns the live rows that a truncate of the batch deletes. Raises: as `find_emptied`."""
        return find_emptied(self._target, files, self._of_batch) if self._of_batch and files else EmptiedRows()

    def take_complete(self, gone: dict[str, tuple[LiveFile, BitMap64]]) -> list[LiveFile]:
        """Takes the files all of whose rows are deleted out of `gone`, and returns them; none without a truncate."""
        files = [file for file, bits in gone.values() if self._of_batch and len(bits) == file.record_count]
        for file in files:
            del gone[file.path]
        return files


class _Order:
    """Finds the rows of files that are older than a position."""

    def __init__(self, target: TableTarget, place: str) -> None:
        assert target.changes is not None
        self._target, self._place = target, place
        self._path = (target.changes.order_by,)
        self._field = target.schema.find_field(target.changes.order_by)

    def older_rows(self, file: LiveFile) -> tuple[BitMap64, BitMap64]:
        """Returns the positions of a file's rows that are older or have no ordering value, and of those that have no
        ordering value.
        """
        assert isinstance(self._field.field_type, PrimitiveType)
        lower, upper = bounds_of(file, self._field.field_id, self._field.field_type)
        if null_count_of(file, self._field.field_id) == 0:
            if lower is not None and lower >= self._place:
                return BitMap64(), BitMap64()
            if upper is not None and upper < self._place:
                return BitMap64(range(file.record_count)), BitMap64()
        return self._read(file)

    def _read(self, file: LiveFile) -> tuple[BitMap64, BitMap64]:
        older, unknown, begin = BitMap64(), BitMap64(), 0
        for piece in column_pieces(self._target, file, self._path):
            stays = np.asarray(pc.fill_null(pc.greater_equal(piece, self._place), False))
            older |= bits_of(begin + np.flatnonzero(~stays))
            unknown |= bits_of(begin + np.flatnonzero(np.asarray(piece.is_null())))
            begin += len(piece)
        return older, unknown


def _without_equal(target: TableTarget, file: LiveFile, rows: BitMap64) -> BitMap64:
    """Returns `rows` without the rows that equality deletes of other writers have removed."""
    if not rows or all(delete.kind != "equality" for delete in file.deletes):
        return rows
    places = rows_of(rows)
    return bits_of(places[~are_deleted(target, file, places)])
