"""Commits a batch of changes: finds the rows that they replace, and takes them away in the commit that brings the new ones.

What another writer does in between makes the rows be looked up again in the table as it then is; the batch itself, which
is folded and written, stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap64

from frazil.catalog.port import Catalog, TableMoved, TableState
from frazil.catalog.scans import LiveFile, Scan
from frazil.errors import ConflictError, SpecError, UnavailableError
from frazil.failpoints import hit
from frazil.ingest.files.write import FileWriter
from frazil.ingest.target import TableTarget
from frazil.ingest.upserts.change_rows import KEY_PLACE, WAITING
from frazil.ingest.upserts.changes import UPSERT
from frazil.ingest.upserts.delete_files import write_deletes
from frazil.ingest.upserts.fold import (
    Folded,
    Ints,
    Ranked,
    concat_ranked,
    fold,
    key_codes,
    load_ranked,
    load_table,
    previous_places,
    refold,
)
from frazil.ingest.upserts.live_rows import read_columns
from frazil.ingest.upserts.moves import MOVED, OLD_KEY
from frazil.ingest.upserts.resolve import Found, find_rows, newest_order
from frazil.types import Commit, DataFile, DeleteFile, Progress, Resolved, RowDelta, TaskReport

_TRIES = 20
Bools = NDArray[np.bool_]


@dataclass
class _Batch:
    """All tasks' changes, folded once more. owner: per change the number of its task; held: per task its held rows."""

    target: TableTarget
    ranked: Ranked
    owner: Ints
    begins: list[int]
    folded: Folded
    files: list[list[LiveFile]]
    held: list[pa.Table | None]
    change_count: int

    @property
    def keys(self) -> Ranked:
        """The changes that decide a key."""
        return self.ranked.take(self.folded.last)


class OldRowsGone(Exception):
    """Rows had another key, and the rows of those keys, which have the values that were not sent, are not in the table."""

    def __init__(self, changes: Ranked) -> None:
        super().__init__()
        self._changes = changes

    def places(self, topics: Sequence[str]) -> tuple[tuple[str, int, int], ...]:
        """Topic, partition and offset of their records. topics: of the batch, in order."""
        of = self._changes
        numbers = zip(of.source.tolist(), of.partition.tolist(), of.offset.tolist(), strict=True)
        return tuple((topics[source], partition, offset) for source, partition, offset in numbers)


@dataclass
class _Attempt:
    """What one look at the table found, and the files written for it."""

    deletes: list[DeleteFile] = field(default_factory=list)
    rows: list[DataFile] = field(default_factory=list)
    delta: RowDelta | None = None
    resolved: Resolved = field(default_factory=Resolved)

    @property
    def paths(self) -> list[str]:
        return list({file.path: None for file in self.deletes} | {file.path: None for file in self.rows})


def commit_changes(
    catalog: Catalog, target: TableTarget, state: TableState, report: TaskReport, commit: Commit
) -> tuple[Progress, Resolved]:
    """Commits the changes of `report`; the progress as committed.

    Raises as Catalog.commit does, SpecError where rows of the table cannot be replaced, OldRowsGone. Files of the attempts
    that came to nothing are removed; those of `report` are the caller's.
    """
    if state.format_version < 2:
        raise SpecError(
            "the table has format version 1, and rows can be replaced from 2 on",
            remedy="upgrade the table to format version 2 or 3",
            where=state.name,
        )
    if not report.touched:
        return catalog.commit(commit), Resolved()
    batch = _read_batch(target, report)
    for number in range(_TRIES):
        attempt = _attempt(catalog, target, state, batch)
        whole = replace(commit, files=(*commit.files, *attempt.rows), delta=attempt.delta)
        hit("upsert.resolved")
        try:
            return catalog.commit(whole), replace(attempt.resolved, tries=number + 1)
        except TableMoved:
            catalog.delete_files(state.name, attempt.paths)
            again = catalog.load(state.name)
            if again is None or again.progress.commit_id != commit.expected.commit_id:
                raise
            state = again
        except ConflictError:
            catalog.delete_files(state.name, attempt.paths)
            raise
    raise ConflictError("other writers change the table faster than rows can be looked up in it", where=state.name)


def _attempt(catalog: Catalog, target: TableTarget, state: TableState, batch: _Batch) -> _Attempt:
    attempt = _Attempt()
    try:
        _resolve(attempt, target, state, catalog.scan(state.name), batch)
    except OSError as error:
        catalog.delete_files(state.name, attempt.paths)
        raise UnavailableError(f"the store does not give or take a file: {error}", where=state.name) from None
    except BaseException:
        catalog.delete_files(state.name, attempt.paths)
        raise
    return attempt


def _read_batch(target: TableTarget, report: TaskReport) -> _Batch:
    parts = [load_ranked(touched.keys) for touched in report.touched]
    ranked = concat_ranked(parts)
    by_path = {file.path: LiveFile(file.path, file.record_count, file.content) for file in report.files}
    sizes = [len(part) for part in parts]
    return _Batch(
        target,
        ranked,
        np.repeat(np.arange(len(parts)), sizes),
        [0, *np.cumsum(sizes).tolist()],
        fold(ranked) if len(parts) > 1 else refold(ranked),
        [[by_path[path] for path in touched.files] for touched in report.touched],
        [load_table(touched.held) if touched.held else None for touched in report.touched],
        sum(touched.change_count for touched in report.touched),
    )


def _resolve(attempt: _Attempt, target: TableTarget, state: TableState, scan: Scan, batch: _Batch) -> None:
    """Finds the rows that go, writes which they are, and the rows that had to wait for them."""
    assert target.changes is not None
    keys, is_emptied = batch.keys, batch.folded.cut >= 0
    _check_equality(scan, target, batch)
    found = find_rows(target, () if is_emptied else scan.files, keys.keys, target.changes.paths)
    late = _late(target, batch, keys, found)
    gone: dict[str, tuple[LiveFile, BitMap64]] = {}
    deleted = 0
    for hits in found.hits:
        rows = hits.rows[~late[hits.keys]]
        if rows.size:
            gone[hits.file.path] = (hits.file, hits.deleted | BitMap64(rows.astype(np.uint64).tolist()))
            deleted += rows.size
    touched = tuple(gone)
    replaced = tuple(delete for file, _ in gone.values() for delete in file.deletes if _is_taken_over(delete))
    for file, bits in _superseded(batch, late):
        gone[file.path] = (file, bits)
    attempt.deletes = write_deletes(target, dict(gone.values()), state.format_version)
    attempt.rows, unfilled = _complete(target, batch, found, late, scan)
    removed = (
        tuple(DataFile(file.path, file.record_count, 0, file.content) for file in scan.files) if is_emptied else ()
    )
    attempt.delta = RowDelta(scan.read_at, tuple(attempt.deletes), replaced, removed, touched)
    attempt.resolved = Resolved(
        batch.change_count,
        len(keys),
        deleted + sum(file.record_count for file in removed),
        int(late.sum()),
        unfilled,
        len(scan.files),
        found.looked_at,
    )


def _is_taken_over(delete: DeleteFile) -> bool:
    """Whether new deletes of its data file hold all that it says."""
    return delete.kind == "vector" or (delete.kind == "positions" and bool(delete.data_file))


def _check_equality(scan: Scan, target: TableTarget, batch: _Batch) -> None:
    """Rows that equality deletes have taken away look alive here. To take them away again does no harm; to believe what
    they say would.
    """
    assert target.changes is not None
    is_asked = bool(target.changes.order_by) or any(held is not None for held in batch.held)
    if is_asked and any(delete.kind == "equality" for file in scan.files for delete in file.deletes):
        raise SpecError(
            "the table has equality deletes of another writer, and old rows must be read",
            remedy="rewrite the table's data files, which applies them",
            where=target.name,
        )


def _late(target: TableTarget, batch: _Batch, keys: Ranked, found: Found) -> Bools:
    """Which keys have a live row that is newer than their change."""
    late = np.zeros(len(keys), np.bool_)
    assert target.changes is not None
    if keys.order is None or not found.hits:
        return late
    live = newest_order(target, found, target.changes.order_by, len(keys))
    is_older = np.asarray(pc.fill_null(pc.less(keys.order, live), False))
    return np.asarray(is_older, np.bool_) & ~batch.folded.is_sure


def _superseded(batch: _Batch, late: Bools) -> list[tuple[LiveFile, BitMap64]]:
    """Rows in the batch's own files that are no longer wanted: a later change of another task decides, or the table has a
    newer row.
    """
    lost = batch.ranked.ops == UPSERT
    lost[batch.folded.last[~late]] = False
    for held, begin in zip(batch.held, batch.begins, strict=False):
        if held is not None:
            lost[np.asarray(held[KEY_PLACE]) + begin] = False  # These are in no file.
    found: list[tuple[LiveFile, BitMap64]] = []
    assert batch.target.changes is not None
    for number, files in enumerate(batch.files):
        places = np.flatnonzero(lost & (batch.owner == number))
        if places.size and files:
            keys = batch.ranked.take(places).keys
            hits = find_rows(batch.target, files, keys, batch.target.changes.paths).hits
            found += [(one.file, BitMap64(one.rows.astype(np.uint64).tolist())) for one in hits]
    return found


# ---- rows that wait for values of the row they replace


def _complete(target: TableTarget, batch: _Batch, found: Found, late: Bools, scan: Scan) -> tuple[list[DataFile], int]:
    """Writes the held rows of keys that they decide, with what the old rows had; and counts what no row had. OldRowsGone."""
    wanted = set(batch.folded.last[~late].tolist())
    if not any(held is not None for held in batch.held):
        return [], 0
    old = _OldRows(target, batch, found)
    old.ask_other_keys(scan.files)
    writer, unfilled, is_written = FileWriter(target), 0, False
    try:
        for number, held in enumerate(batch.held):
            if held is None:
                continue
            places = np.asarray(held[KEY_PLACE]) + batch.begins[number]
            chosen = np.flatnonzero([place in wanted for place in places.tolist()])
            if chosen.size:
                rows, lacking = old.complete(held.take(pa.array(chosen)), places[chosen])
                writer.write(rows)
                unfilled, is_written = unfilled + lacking, True
        return (writer.finish() if is_written else []), unfilled
    except BaseException:
        writer.abandon()
        raise


class _OldRows:
    """Values of the rows that changes replace: of a change before it in the batch, or of the live row."""

    def __init__(self, target: TableTarget, batch: _Batch, found: Found) -> None:
        self._target = target
        self._batch = batch
        self._before = previous_places(batch.ranked)
        self._live: dict[int, tuple[LiveFile, int]] = {}
        for hits in found.hits:
            for key, row in zip(hits.keys.tolist(), hits.rows.tolist(), strict=True):
                self._live[int(batch.folded.last[key])] = (hits.file, row)
        self._held: dict[int, tuple[pa.Table, int]] = {}
        for number, held in enumerate(batch.held):
            if held is not None:
                for row, place in enumerate(held[KEY_PLACE].to_pylist()):
                    self._held[place + batch.begins[number]] = (held, row)

    def ask_other_keys(self, files: Sequence[LiveFile]) -> None:
        """Looks for the rows of the keys that rows had before they got their own; OldRowsGone where neither key has one."""
        gone: list[int] = []
        for number, held in enumerate(self._batch.held):
            if held is None or MOVED not in held.schema.names:
                continue
            places = np.asarray(held[KEY_PLACE]) + self._batch.begins[number]
            names = [name for name in held.schema.names if name.startswith(OLD_KEY)]
            named = np.flatnonzero(np.asarray(held[names[0]].is_valid()))
            self._live |= self._of_other_keys(held.select(names).take(pa.array(named)), places[named], files)
            moved = np.flatnonzero(np.asarray(held[MOVED]))
            gone += [int(place) for place in places[moved].tolist() if place not in self._live]
        if gone:
            raise OldRowsGone(self._batch.ranked.take(np.array(gone)))

    def _of_other_keys(
        self, keys: pa.Table, places: Ints, files: Sequence[LiveFile]
    ) -> dict[int, tuple[LiveFile, int]]:
        if not places.size:
            return {}
        assert self._target.changes is not None
        columns = [pa.concat_arrays(column.chunks) for column in keys.columns]
        codes = key_codes(columns)
        firsts = np.unique(codes, return_index=True)[1]
        distinct = [column.take(pa.array(firsts)) for column in columns]
        rows: dict[int, tuple[LiveFile, int]] = {}
        for hits in find_rows(self._target, files, distinct, self._target.changes.paths).hits:
            for key, row in zip(hits.keys.tolist(), hits.rows.tolist(), strict=True):
                rows[int(codes[firsts[key]])] = (hits.file, row)
        return {int(place): rows[int(code)] for place, code in zip(places, codes, strict=True) if int(code) in rows}

    def complete(self, held: pa.Table, places: Ints) -> tuple[pa.Table, int]:
        """The held rows of the changes at `places` with all their values; and how many values nothing had."""
        rows, lacking = held.select(self._target.arrow_schema.names), 0
        for name in [name for name in held.schema.names if name.startswith(WAITING)]:
            column = name.removeprefix(WAITING)
            waits = np.asarray(held[name])
            own = pa.concat_arrays(rows[column].chunks)
            values, count = self._values(column, places, waits, own)
            lacking += count
            place = rows.schema.get_field_index(column)
            rows = rows.set_column(place, rows.schema.field(place), values)
        return rows.cast(self._target.arrow_schema), lacking

    def _values(self, column: str, places: Ints, waits: Bools, own: pa.Array) -> tuple[pa.Array, int]:
        pieces, lacking = [], 0
        for n, place in enumerate(places.tolist()):
            found = self._value(column, place) if waits[n] else own.slice(n, 1)
            lacking += found is None
            pieces.append(pa.nulls(1, own.type) if found is None else found)
        return pa.concat_arrays(pieces), lacking

    def _value(self, column: str, place: int) -> pa.Array | None:
        """The value that a change leaves as it was; None where there was no row."""
        at = int(self._before[place])
        while at >= 0:
            if self._batch.ranked.ops[at] != UPSERT:
                return None
            held = self._held.get(at)
            if held is None:
                return self._written(column, at)
            if not _waits(held, column):
                return held[0][column].combine_chunks().slice(held[1], 1)
            at = int(self._before[at])
        if self._batch.folded.cut >= 0:
            return None
        live = self._live.get(place)  # Looked for on behalf of the change that decides the key.
        return None if live is None else self._read(column, *live)

    def _written(self, column: str, at: int) -> pa.Array | None:
        files = self._batch.files[int(self._batch.owner[at])]
        keys = self._batch.ranked.take(np.array([at])).keys
        assert self._target.changes is not None
        for hits in find_rows(self._target, files, keys, self._target.changes.paths).hits:
            return self._read(column, hits.file, int(hits.rows[0]))
        return None

    def _read(self, column: str, file: LiveFile, row: int) -> pa.Array:
        (values,) = read_columns(self._target, file, [(column,)], np.array([row]))
        return values


def _waits(held: tuple[pa.Table, int], column: str) -> bool:
    rows, at = held
    return WAITING + column in rows.schema.names and bool(rows[WAITING + column][at].as_py())
