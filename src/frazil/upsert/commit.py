"""Commits a batch of changes: finds the live rows that the changes replace, and deletes them in the commit that adds
the new rows.

Where another writer changes the table before the commit, the rows are looked up again in the changed table. The batch
itself, which is deduplicated and written, is reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.catalog.port import Catalog, NotSent, TableMoved, TableState
from frazil.catalog.scans import LiveFile, Scan
from frazil.errors import ConflictError, SpecError, UnavailableError
from frazil.failpoints import hit
from frazil.report import TaskReport
from frazil.schema.arrow import Bools
from frazil.types import Commit, DataFile, DeleteFile, Progress, Resolved, RowDelta
from frazil.upsert.deduplicate import LatestChanges, Ranked, key_codes
from frazil.upsert.lookup.delete_files import bits_of, read_deletes, rows_of, write_deletes
from frazil.upsert.lookup.live_rows import forget_files, key_columns, retain_live_files
from frazil.upsert.lookup.search import Found, find_rows, newest_order
from frazil.upsert.merged_changes import MergedChanges, merge_changes
from frazil.upsert.old_values.complete import OldRowsMissing, ValuesMissing
from frazil.upsert.rewritten_files import classify_own_files, kept_ids, write_rows
from frazil.upsert.truncates import Truncated, find_truncated, is_truncated
from frazil.write.target import TableTarget, has_lineage

_TRIES = 20
Judge = Callable[[Ranked, LatestChanges, Found], Bools]
"""Returns which keys keep their live row, given all changes, the latest changes and the live rows."""


@dataclass
class _Attempt:
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

    @property
    def paths(self) -> list[str]:
        """Paths of the files to be deleted when there is no commit."""
        return list({file.path: None for file in self.deletes} | {file.path: None for file in self.rows})

    def files(self, own: Iterable[DataFile]) -> tuple[DataFile, ...]:
        """Returns all data files of the commit. own: the files that the batch's tasks have written."""
        unused = frozenset(self.unused)
        return (*(file for file in own if file.path not in unused), *self.rows)


def commit_changes(
    catalog: Catalog, target: TableTarget, state: TableState, report: TaskReport, commit: Commit
) -> tuple[Progress, Resolved]:
    """Commits the changes of `report`; returns the progress as committed and figures about the look-up. Files of failed
    attempts are deleted; the files of `report` stay with the caller.

    Raises: as Catalog.commit; NotSent also where the rows cannot be looked up; SpecError where rows of the table cannot
    be replaced; OldRowsMissing and ValuesMissing where values exist nowhere.
    """
    _check_format(state)
    if not report.changes.touched:
        return catalog.commit(commit), Resolved()
    batch = merge_changes(target, report, commit.progress.emptied)
    judge = _by_order(target, commit.progress.emptied)
    for number in range(_TRIES):
        # Nothing more than this under the lock: maintenance waits for it, and maintenance makes the next batch wait.
        with catalog.lock(state.name):
            attempt = _attempt(catalog, target, state, batch, judge)
            full_commit = replace(commit, files=attempt.files(commit.files), delta=attempt.delta)
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
                return done, replace(attempt.resolved, tries=number + 1)
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


def _by_order(target: TableTarget, emptied: str) -> Judge:
    """Returns the judge of a batch: a change is late where its ordering value is older than the live row, or than the
    truncate at position `emptied`.
    """

    def judge(changes: Ranked, latest: LatestChanges, found: Found) -> Bools:
        return _late(target, changes, latest, found) | is_truncated(target, changes.take(latest.last), emptied)

    return judge


def prepare_changes(
    catalog: Catalog, target: TableTarget, state: TableState, report: TaskReport, judge: Judge
) -> Prepared:
    """Looks up the rows that the changes of `report` replace in the table as last loaded, and writes the deletes.
    judge: decides in place of the ordering column which changes are late.

    Raises: UnavailableError where the catalog or the store fails; SpecError where rows of the table cannot be replaced;
    OldRowsMissing where old rows do not exist.
    """
    _check_format(state)
    attempt = _attempt(catalog, target, state, merge_changes(target, report), judge)
    assert attempt.delta is not None
    return Prepared(attempt.files(report.written.data), attempt.delta, tuple(attempt.paths), tuple(attempt.unused))


def _check_format(state: TableState) -> None:
    if state.format_version < 2:
        raise SpecError(
            "the table has format version 1, and upsert tables need version 2 or 3",
            remedy="upgrade the table to format version 2 or 3",
            where=state.name,
        )


def _attempt(catalog: Catalog, target: TableTarget, state: TableState, batch: MergedChanges, judge: Judge) -> _Attempt:
    attempt = _Attempt()
    try:
        _resolve(attempt, target, state, catalog.scan(state.name), batch, judge)
    except OSError as error:
        catalog.delete_files(state.name, attempt.paths)
        raise NotSent(f"the store does not read or write a file: {error}", where=state.name) from None
    except UnavailableError as error:
        catalog.delete_files(state.name, attempt.paths)
        raise NotSent(error.message, remedy=error.remedy, where=error.where) from None
    except BaseException:
        catalog.delete_files(state.name, attempt.paths)
        raise
    return attempt


def _resolve(
    attempt: _Attempt, target: TableTarget, state: TableState, scan: Scan, batch: MergedChanges, judge: Judge
) -> None:
    """Finds the rows to be deleted, and writes delete files and completed rows into `attempt`."""
    assert target.changes is not None
    retain_live_files(state.name, scan.files)
    keys, is_emptied = batch.keys, batch.latest.cut >= 0
    files = () if is_emptied else scan.files
    truncated = find_truncated(target, files, batch.emptied) if batch.emptied and files else Truncated()
    found = truncated.without_rows(find_rows(target, truncated.left(files), keys.keys, target.changes.paths))
    late = judge(batch.ranked, batch.latest, found)
    gone, deleted = dict(truncated.gone), truncated.row_count
    for hits in (one.only(~late[one.keys]) for one in found.hits):
        if hits.rows.size:
            _, known = gone.get(hits.file.path, (hits.file, hits.deleted))
            gone[hits.file.path] = (hits.file, known | bits_of(hits.rows))
            deleted += hits.rows.size
    emptied = [file for file, bits in gone.values() if batch.emptied and len(bits) == file.record_count]
    for file in emptied:
        del gone[file.path]
    removed_files = scan.files if is_emptied else (*truncated.complete_files, *emptied)
    removed = tuple(DataFile(file.path, file.record_count, 0, file.content) for file in removed_files)
    touched = tuple(gone)
    replaced = tuple(delete for file, _ in gone.values() for delete in file.deletes if delete.is_of_one_file)
    ids = kept_ids(batch, found, late) if has_lineage(target, state.format_version) else None
    own = classify_own_files(batch, late, ids)
    for file, bits in own.superseded:
        gone[file.path] = (file, bits)
    attempt.deletes = write_deletes(target, dict(gone.values()), state.format_version)
    attempt.rows, missing_required = write_rows(batch, found, late, scan.files, own)
    attempt.unused = own.unused
    attempt.delta = RowDelta(scan.read_at, tuple(attempt.deletes), replaced, removed, touched)
    attempt.resolved = Resolved(
        batch.change_count,
        len(keys),
        sum(file.record_count for file in removed) if is_emptied else deleted,
        int(late.sum()),
        missing_required,
        len(scan.files),
        found.inspected,
    )


def _late(target: TableTarget, changes: Ranked, latest: LatestChanges, found: Found) -> Bools:
    """Returns which keys have a live row that is newer than their change, bool `(n_keys,)`."""
    if changes.order is None or not found.hits:
        return np.zeros(latest.last.size, np.bool_)
    live = newest_order(target, found, latest.last.size)
    highest = changes.order.take(pa.array(latest.highest))
    is_older = np.asarray(pc.fill_null(pc.less(highest, live.order), False), np.bool_)
    return is_older & ~live.were_read_in(changes.partition[latest.last]) & ~latest.is_sure


__all__ = ["Judge", "OldRowsMissing", "Prepared", "ValuesMissing", "commit_changes", "prepare_changes"]


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
        found = find_rows(target, new, keys, target.changes.paths)
        if sum(hits.rows.size for hits in found.hits) != count:
            return None
        gone = {hits.file: bits_of(hits.rows) for hits in found.hits}
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
            parts.append([key.take(rows) for key in key_columns(target, file, target.changes.paths)])
    return tuple(pa.concat_arrays(column) for column in zip(*parts, strict=True)) if parts else None
