"""Commits a batch of changes: finds the live rows that they replace, and deletes these in the same commit.

Where another writer changes the table before the commit, the rows are looked up again in the changed table. The batch
itself, which is deduplicated and written, is reused.

Most data files that the batch's tasks have written are committed unchanged. A row that a later change or a newer row in the
table makes obsolete is deleted in the commit that adds its file. In a table with row lineage, a file whose rows replace
others is rewritten with the ids of the replaced rows. Buffered rows, which lacked values, are written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from frazil.catalog.port import Catalog, NotSent, TableMoved, TableState
from frazil.catalog.scans import LiveFile, Scan
from frazil.errors import ConflictError, SpecError, UnavailableError
from frazil.failpoints import hit
from frazil.report import TaskReport
from frazil.schema.arrow import Bools, Ints, as_written, one_array
from frazil.stages.changes import UPSERT
from frazil.types import Commit, DataFile, DeleteFile, OrderProgress, Progress, Resolved, RowDelta
from frazil.upsert.change_rows import KEY_PLACE
from frazil.upsert.deduplicate import LatestChanges, Ranked, key_codes
from frazil.upsert.emptied import Emptied
from frazil.upsert.lookup.delete_files import bits_of, read_deletes, rows_of, write_deletes
from frazil.upsert.lookup.live_rows import (
    ColumnCache,
    forget_files,
    in_threads,
    key_columns,
    opened,
    reserved_column,
    retain_live_files,
)
from frazil.upsert.lookup.search import Found, find_rows, newest_order
from frazil.upsert.merged_changes import MergedChanges, merge_changes
from frazil.upsert.old_values.complete import IncompleteChanges, ValuesMissing, complete_buffered
from frazil.write.target import NO_ID, ROW_ID_FIELD, TableTarget, has_lineage, lineage_schema, with_row_ids
from frazil.write.write import FileWriter

_TRIES = 20
Judge = Callable[[Ranked, LatestChanges, Found], Bools]
"""Returns which keys keep their live row, given all changes, the latest changes and the live rows."""
ReadChanges = Callable[[TableTarget, TaskReport, Callable[[Ranked], Ints]], MergedChanges]
"""Returns the changes of all tasks together, as `merge_changes` does for tables with the latest row of a key."""


@dataclass(frozen=True)
class _RewrittenFile:
    """A file to be rewritten with row ids."""

    #: The file that a task wrote.
    file: LiveFile
    #: Which rows are kept, bool `(n_rows,)`.
    stays: Bools
    #: The row id of each row; NO_ID for a new row.
    ids: Ints


@dataclass
class OwnFiles:
    """What is done with the batch's own files."""

    #: Files that are committed unchanged, each with the positions of its obsolete rows.
    superseded: list[tuple[LiveFile, BitMap64]] = field(default_factory=list)
    #: Files that are replaced by rewritten ones.
    rewritten: list[_RewrittenFile] = field(default_factory=list)
    #: The row id per change; None where no row keeps an id.
    ids: Ints | None = None

    @property
    def unused(self) -> list[str]:
        """Paths of the files that are not committed."""
        return [rewritten.file.path for rewritten in self.rewritten]


def classify_own_files(batch: MergedChanges, late: Bools, ids: Ints | None) -> OwnFiles:
    """Returns what is done with each of the batch's files. late: the keys whose change is late. ids: the row id per
    change.

    Raises: OSError where the store fails.
    """
    # Changes with a buffered row, which is in no file yet.
    buffered = np.zeros(len(batch.ranked), np.bool_)
    for rows_of_task, begin in zip(batch.buffered, batch.begins, strict=False):
        if rows_of_task is not None:
            buffered[np.asarray(rows_of_task[KEY_PLACE]) + begin] = True
    # A later change of another task decides, or the table has a newer row.
    lost = batch.ranked.ops == UPSERT
    lost[batch.latest.last[~late]] = False
    lost = np.asarray(lost, np.bool_) & ~buffered
    if ids is None or not (ids != NO_ID).any():
        ids = np.full(len(batch.ranked), NO_ID)
        own = OwnFiles()
    else:
        own = OwnFiles(ids=ids)
    # Of a key with a row in a file and a buffered row, only the first is looked up: the keys of a file must be
    # distinct.
    for file, rows, places in _find_own_rows(batch, (lost | (ids != NO_ID)) & ~buffered):
        gone = rows[lost[places]]
        if (ids[places] == NO_ID).all():
            own.superseded.append((file, bits_of(gone)))
            continue
        rewritten = _RewrittenFile(file, np.ones(file.record_count, np.bool_), np.full(file.record_count, NO_ID))
        rewritten.stays[gone], rewritten.ids[rows] = False, ids[places]
        own.rewritten.append(rewritten)
    return own


def _find_own_rows(batch: MergedChanges, is_wanted: Bools) -> Iterator[tuple[LiveFile, Ints, Ints]]:
    """Yields each file with rows of these changes, the positions of the rows, and the places of their changes."""
    assert batch.target.changes is not None
    for number, files in enumerate(batch.files):
        places = np.flatnonzero(is_wanted & (batch.owner == number))
        if places.size and files:
            keys = batch.ranked.take(places).keys
            for hits in find_rows(batch.target, files, keys, batch.target.changes.paths).hits:
                yield hits.file, hits.rows, places[hits.keys]


def write_rows(
    batch: MergedChanges, live_rows: Found, late: Bools, files: Sequence[LiveFile], own: OwnFiles
) -> tuple[list[DataFile], int]:
    """Writes the buffered rows and the rewritten files; returns the data files and the number of values that no row
    had.

    Raises: as `MadeRows.complete` or, without these, `complete_buffered`.
    """
    writer = FileWriter(batch.target, lineage_schema(batch.target) if own.ids is not None else None)
    missing_required = 0
    try:
        complete = complete_buffered if batch.made is None else batch.made.complete
        for rows, places, lacking in complete(batch, live_rows, late, files):
            writer.write(rows if own.ids is None else with_row_ids(batch.target, rows, own.ids[places]))
            missing_required += lacking
        for rewritten in own.rewritten:
            for rows in _read_rewritten(batch.target, rewritten):
                writer.write(rows)
        return writer.finish(), missing_required
    except BaseException:
        writer.abandon()
        raise


def _read_rewritten(target: TableTarget, rewritten: _RewrittenFile) -> Iterator[pa.Table]:
    begin = 0
    with opened(target, rewritten.file) as parquet:
        for number in range(parquet.num_row_groups):
            read = parquet.read_row_group(number).combine_chunks()
            part = slice(begin, begin := begin + read.num_rows)
            columns = [as_written(one_array(read[field.name]), field.type) for field in target.arrow_schema]
            rows = pa.Table.from_arrays(columns, schema=target.arrow_schema)
            rows = with_row_ids(target, rows, rewritten.ids[part])
            yield rows if rewritten.stays[part].all() else rows.filter(pa.array(rewritten.stays[part]))


_CACHE_BYTES = 256 * 1024 * 1024
_ids = ColumnCache(_CACHE_BYTES)
_NONE_YET = np.iinfo(np.int64).max


def kept_ids(batch: MergedChanges, live_rows: Found, late: Bools) -> Ints:
    """Returns per change the row id of the live row that it replaces, int64 `(n_changes,)`; NO_ID without one. Where a
    key has several live rows, the smallest id is kept. late: the keys whose change is late.

    Raises: OSError where the store fails.
    """
    last = batch.latest.last
    is_row = (batch.ranked.ops[last] == UPSERT) & ~late
    hits = [replacing for in_file in live_rows.hits if (replacing := in_file.only(is_row[in_file.keys])).rows.size]
    ids = np.full(len(batch.ranked), _NONE_YET)
    for replaced, values in zip(
        hits, in_threads(lambda hit: row_ids(batch.target, hit.file, hit.rows), hits), strict=True
    ):
        has_id = values != NO_ID
        np.minimum.at(ids, last[replaced.keys[has_id]], values[has_id])
    return np.where(ids == _NONE_YET, NO_ID, ids)


def row_ids(target: TableTarget, file: LiveFile, rows: Ints) -> Ints:
    """Returns the ids of the rows at these positions of a file, int64 `(n_rows,)`; NO_ID for a row without an id.

    Raises: OSError where the store fails.
    """
    first = file.first_row_id
    inherited = np.full(rows.size, NO_ID) if first is None else first + rows
    buffered = _ids.get((file.path,))
    if buffered is None:
        buffered = _packed(reserved_column(target, file, ROW_ID_FIELD))
        _ids.put((file.path,), buffered)
    least, *column = buffered
    if not column:
        return inherited
    own = column[0].take(pa.array(rows))
    ids = np.asarray(own.cast(pa.int64()).fill_null(0)) + np.asarray(least)[0]
    return np.where(np.asarray(own.is_valid()), ids, inherited)


def _packed(column: pa.Array | None) -> tuple[pa.Array, ...]:
    """Returns the smallest id of a file and the offsets of the other ids from it, in 32 bits where they fit, to halve
    the memory of the cache.
    """
    if column is None:
        return (pa.array([0]),)
    bounds = pc.min_max(column)
    least, most = bounds["min"].as_py() or 0, bounds["max"].as_py() or 0
    above = pc.subtract(column, least)
    return pa.array([least]), above.cast(pa.uint32()) if most - least < 2**32 else above


@dataclass
class Attempt:
    """The files written for one version of the table."""

    #: Delete files for the replaced rows.
    deletes: list[DeleteFile] = field(default_factory=list)
    #: Data files that the driver wrote.
    rows: list[DataFile] = field(default_factory=list)
    #: Paths of the batch's own files that driver-written files replace.
    unused: list[str] = field(default_factory=list)
    #: The row delta to commit.
    delta: RowDelta | None = None
    #: Figures about the look-up.
    resolved: Resolved = field(default_factory=Resolved)
    #: The progress with the counts that only the look-up knows; None: as it was.
    progress: Progress | None = None

    @property
    def paths(self) -> list[str]:
        """Paths of the files to be deleted when there is no commit."""
        return list({file.path: None for file in self.deletes} | {file.path: None for file in self.rows})

    def files(self, own: Iterable[DataFile]) -> tuple[DataFile, ...]:
        """Returns all data files of the commit. own: the files that the batch's tasks have written."""
        unused = frozenset(self.unused)
        return (*(file for file in own if file.path not in unused), *self.rows)


def commit_changes(
    catalog: Catalog,
    target: TableTarget,
    state: TableState,
    report: TaskReport,
    commit: Commit,
    read: ReadChanges = merge_changes,
) -> tuple[Progress, Resolved, tuple[DataFile, ...]]:
    """Commits the changes of `report`; returns the progress as committed, figures about the look-up and the data files that
    the commit added. Files of failed attempts are deleted; the files of `report` stay with the caller. read: returns
    the changes of the tasks together.

    Raises: as Catalog.commit; NotSent also where the rows cannot be looked up; SpecError where rows of the table cannot
    be replaced; IncompleteChanges where values exist nowhere.
    """
    _check_format(state)
    if not report.changes.touched:
        return catalog.commit(commit), Resolved(), commit.files
    emptied = Emptied(target, report, commit.progress.order)
    batch, judge = read(target, report, emptied.counting), _by_order(target, emptied)

    def attempt_at(latest: TableState) -> Attempt:
        return _attempt(catalog, target, latest, batch, judge, emptied)

    return commit_attempts(catalog, state, commit, attempt_at)


def commit_attempts(
    catalog: Catalog, state: TableState, commit: Commit, attempt_at: Callable[[TableState], Attempt]
) -> tuple[Progress, Resolved, tuple[DataFile, ...]]:
    """Commits with what depends on the rows in the table, looked up again where another writer changes it. attempt_at: looks
    up and writes for one version of the table. Returns and raises as `commit_changes`.
    """
    for number in range(_TRIES):
        # Nothing more than this under the lock: maintenance waits for it, and maintenance makes the next batch wait.
        with catalog.lock(state.name):
            attempt = attempt_at(state)
            progress = attempt.progress or commit.progress
            full_commit = replace(commit, files=attempt.files(commit.files), delta=attempt.delta, progress=progress)
            hit("upsert.resolved")
            try:
                done = catalog.commit(full_commit)
            except TableMoved:
                catalog.delete_files(state.name, attempt.paths)
                again = _load_again(catalog, state.name)
                if again is None or again.progress.commit_id != commit.expected.commit_id:
                    raise
                state = again
            except ConflictError:
                catalog.delete_files(state.name, attempt.paths)
                raise
            else:
                catalog.delete_files(state.name, attempt.unused)
                forget_files(frozenset(attempt.unused))
                return done, replace(attempt.resolved, tries=number + 1), full_commit.files
    raise ConflictError("other writers change the table faster than rows can be looked up in it", where=state.name)


def _load_again(catalog: Catalog, table: str) -> TableState | None:
    """Returns the table, loaded after a commit was found not to be in it."""
    try:
        return catalog.load(table)
    except UnavailableError as error:
        raise NotSent(error.message, remedy=error.remedy, where=error.where) from None


@dataclass(frozen=True)
class Prepared:
    """Changes that are ready to be committed."""

    #: All data files to be added.
    files: tuple[DataFile, ...]
    #: The rows and files to be deleted.
    delta: RowDelta
    #: Files, besides the report's own, to be deleted when there is no commit.
    paths: tuple[str, ...] = ()
    #: Files to be deleted when there is a commit.
    unused: tuple[str, ...] = ()


def _by_order(target: TableTarget, emptied: Emptied) -> Judge:
    """Returns the judge of a batch: a change is late where its ordering value is older than the live row, or than the last
    truncate.
    """

    def judge(changes: Ranked, latest: LatestChanges, rows: Found) -> Bools:
        return _late(target, changes, latest, rows) | emptied.are_older(changes.take(latest.last))

    return judge


def prepare_changes(
    catalog: Catalog,
    target: TableTarget,
    state: TableState,
    report: TaskReport,
    judge: Judge,
    read: ReadChanges = merge_changes,
) -> Prepared:
    """Looks up the rows that the changes of `report` replace in the table as last loaded, and writes the deletes.
    judge: decides in place of the ordering column which changes are late. read: as for `commit_changes`.

    Raises: UnavailableError where the catalog or the store fails; SpecError where rows of the table cannot be replaced;
    IncompleteChanges where values exist nowhere.
    """
    _check_format(state)
    emptied = Emptied(target, report, OrderProgress())
    batch = replace(read(target, report, emptied.counting), keeps_latest=True)
    attempt = _attempt(catalog, target, state, batch, judge, emptied)
    assert attempt.delta is not None
    return Prepared(attempt.files(report.written.data), attempt.delta, tuple(attempt.paths), tuple(attempt.unused))


def _check_format(state: TableState) -> None:
    if state.format_version < 2:
        raise SpecError(
            "the table has format version 1, and upsert tables need version 2 or 3",
            remedy="upgrade the table to format version 2 or 3",
            where=state.name,
        )


def _attempt(
    catalog: Catalog, target: TableTarget, state: TableState, batch: MergedChanges, judge: Judge, emptied: Emptied
) -> Attempt:
    attempt = Attempt()
    with abandoning(catalog, state.name, attempt):
        _resolve(attempt, target, state, catalog.scan(state.name), batch, judge, emptied)
    return attempt


@contextmanager
def abandoning(catalog: Catalog, table: str, attempt: Attempt) -> Iterator[None]:
    """Deletes the files of an attempt that fails inside of the block.

    Raises: NotSent where the catalog or the store does not answer.
    """
    try:
        yield
    except OSError as error:
        catalog.delete_files(table, attempt.paths)
        raise NotSent(f"the store does not read or write a file: {error}", where=table) from None
    except UnavailableError as error:
        catalog.delete_files(table, attempt.paths)
        raise NotSent(error.message, remedy=error.remedy, where=error.where) from None
    except BaseException:
        catalog.delete_files(table, attempt.paths)
        raise


def _resolve(
    attempt: Attempt,
    target: TableTarget,
    state: TableState,
    scan: Scan,
    batch: MergedChanges,
    judge: Judge,
    emptied: Emptied,
) -> None:
    """Finds the rows to be deleted, and writes delete files and completed rows into `attempt`."""
    assert target.changes is not None
    retain_live_files(state.name, scan.files)
    keys, is_cut = batch.keys, batch.latest.cut >= 0
    files: Sequence[LiveFile] = () if is_cut else scan.files
    if batch.made is not None:
        files = batch.made.near(batch, files)
    older = emptied.rows(files)
    live_rows = older.without_rows(find_rows(target, older.left(files), keys.keys, target.changes.paths))
    late = judge(batch.ranked, batch.latest, live_rows)
    if batch.made is not None:
        batch, live_rows, late = batch.made.joined(batch, live_rows, late)
    gone, deleted = dict(older.gone), older.row_count
    for hits in (in_file.only(~late[in_file.keys]) for in_file in live_rows.hits):
        if hits.rows.size:
            _, earlier_rows = gone.get(hits.file.path, (hits.file, hits.deleted))
            gone[hits.file.path] = (hits.file, earlier_rows | bits_of(hits.rows))
            deleted += hits.rows.size
    complete_files = emptied.take_complete(gone)
    removed_files = scan.files if is_cut else (*older.complete_files, *complete_files)
    removed = tuple(DataFile(file.path, file.record_count, 0, file.content) for file in removed_files)
    touched = tuple(gone)
    replaced = tuple(delete for file, _ in gone.values() for delete in file.deletes if delete.is_of_one_file)
    ids = kept_ids(batch, live_rows, late) if has_lineage(target, state.format_version) else None
    own = classify_own_files(batch, late, ids)
    for file, bits in own.superseded:
        gone[file.path] = (file, bits)
    attempt.deletes = write_deletes(target, dict(gone.values()), state.format_version)
    attempt.rows, missing_required = write_rows(batch, live_rows, late, scan.files, own)
    attempt.unused = own.unused
    attempt.delta = RowDelta(scan.read_at, tuple(attempt.deletes), replaced, removed, touched)
    attempt.resolved = Resolved(
        batch.change_count,
        len(keys),
        sum(file.record_count for file in removed) if is_cut else deleted,
        int(late.sum()),
        missing_required,
        len(scan.files),
        live_rows.inspected,
    )


def _late(target: TableTarget, changes: Ranked, latest: LatestChanges, live_rows: Found) -> Bools:
    """Returns which keys have a live row that is newer than their change, bool `(n_keys,)`."""
    if changes.order is None or not live_rows.hits:
        return np.zeros(latest.last.size, np.bool_)
    live = newest_order(target, live_rows, latest.last.size)
    highest = changes.order.take(pa.array(latest.highest))
    is_older = np.asarray(pc.fill_null(pc.less(highest, live.order), False), np.bool_)
    return is_older & ~live.were_read_in(changes.partition[latest.last]) & ~latest.is_sure


__all__ = ["IncompleteChanges", "Judge", "Prepared", "ValuesMissing", "commit_changes", "prepare_changes"]


def transfer_deletes(
    target: TableTarget,
    format_version: int,
    before: Sequence[LiveFile],
    now: Sequence[LiveFile],
    new: Sequence[LiveFile],
) -> list[DeleteFile] | None:
    """Returns delete files for the new files, for rows that were deleted from the old files meanwhile; None where these
    rows cannot be identified. See Transfer.

    Raises: UnavailableError where the store does not read or write a file.
    """
    try:
        keys = _keys_gone(target, before, now)
        if keys is None:
            return []
        assert target.changes is not None
        count = len(keys[0])
        if any(key.null_count for key in keys) or np.unique(key_codes(keys)).size != count:
            return None
        moved_rows = find_rows(target, new, keys, target.changes.row_paths)
        if sum(hits.rows.size for hits in moved_rows.hits) != count:
            return None
        gone = {hits.file: bits_of(hits.rows) for hits in moved_rows.hits}
        return write_deletes(target, gone, format_version)
    except OSError as error:
        raise UnavailableError(f"the store does not read or write a file: {error}", where=target.name) from None


def _keys_gone(target: TableTarget, before: Sequence[LiveFile], now: Sequence[LiveFile]) -> tuple[pa.Array, ...] | None:
    """Returns the key columns of rows that the files have lost since `before`; None where no row was deleted."""
    assert target.changes is not None
    then = {file.path: file.deletes for file in before}
    parts = []
    for file in now:
        gone = read_deletes(target, file.path, file.deletes) - read_deletes(target, file.path, then[file.path])
        if gone:
            rows = pa.array(rows_of(gone))
            parts.append([key.take(rows) for key in key_columns(target, file, target.changes.row_paths)])
    return tuple(pa.concat_arrays(column) for column in zip(*parts, strict=True)) if parts else None
