"""Commits a batch of changes: finds the rows that they replace, and takes them away in the commit that brings the new ones.

What another writer does in between makes the rows be looked up again in the table as it then is; the batch itself, which
is folded and written, stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.catalog.port import Catalog, NotSent, TableMoved, TableState
from frazil.catalog.scans import Scan
from frazil.errors import ConflictError, SpecError, UnavailableError
from frazil.failpoints import hit
from frazil.types import Commit, DataFile, DeleteFile, Progress, Resolved, RowDelta, TaskReport
from frazil.upsert.column_cache import forget_files, note_live
from frazil.upsert.deduplicate import LatestChanges, Ranked
from frazil.upsert.delete_files import bits_of, write_deletes
from frazil.upsert.lineage import kept_ids
from frazil.upsert.lookup import Found, find_rows, newest_order
from frazil.upsert.merged_changes import MergedChanges, merge_changes
from frazil.upsert.old_values import OldRowsGone, ValuesGone
from frazil.upsert.primary_key_updates import Bools
from frazil.upsert.rewritten_files import sort_out, write_rows
from frazil.upsert.truncates import Truncated, find_truncated, is_truncated
from frazil.write.lineage import has_lineage
from frazil.write.target import TableTarget

_TRIES = 20
Judge = Callable[[Ranked, LatestChanges, Found], Bools]
"""Says which keys are to stay as they are, in view of all changes, what is left of them and the live rows."""


@dataclass
class _Attempt:
    """What one look at the table found, and the files written for it. unused: paths of the batch's own files that these
    take the place of.
    """

    deletes: list[DeleteFile] = field(default_factory=list)
    rows: list[DataFile] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    delta: RowDelta | None = None
    resolved: Resolved = field(default_factory=Resolved)

    @property
    def paths(self) -> list[str]:
        """What to remove when there is no commit."""
        return list({file.path: None for file in self.deletes} | {file.path: None for file in self.rows})

    def files(self, own: Iterable[DataFile]) -> tuple[DataFile, ...]:
        """All data files of the commit. own: those that the batch's tasks have written."""
        unused = frozenset(self.unused)
        return (*(file for file in own if file.path not in unused), *self.rows)


def commit_changes(
    catalog: Catalog, target: TableTarget, state: TableState, report: TaskReport, commit: Commit
) -> tuple[Progress, Resolved]:
    """Commits the changes of `report`; the progress as committed.

    Raises as Catalog.commit does, NotSent too where the rows cannot be looked up, SpecError where rows of the table cannot
    be replaced, OldRowsGone, ValuesGone. Files of the attempts that came to nothing are removed; those of `report` are the
    caller's.
    """
    _check_format(state)
    if not report.touched:
        return catalog.commit(commit), Resolved()
    batch = merge_changes(target, report, commit.progress.emptied)
    judge = _by_order(target, commit.progress.emptied)
    for number in range(_TRIES):
        # No more than this: table care waits for it, and the next batch for table care.
        with catalog.turn(state.name):
            attempt = _attempt(catalog, target, state, batch, judge)
            whole = replace(commit, files=attempt.files(commit.files), delta=attempt.delta)
            hit("upsert.resolved")
            try:
                done = catalog.commit(whole)
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
    """The table, after it was found that a commit is not in it."""
    try:
        return catalog.load(table)
    except UnavailableError as error:
        raise NotSent(error.message, remedy=error.remedy, where=error.where) from None


@dataclass(frozen=True)
class Prepared:
    """Changes that are ready for their commit. files: all data files that come. paths: of the files that are to be removed
    when there is no commit, besides the report's own; unused: of those to be removed when there is one.
    """

    files: tuple[DataFile, ...]
    delta: RowDelta
    paths: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


def _by_order(target: TableTarget, emptied: str) -> Judge:
    """The verdict of the ordering column: what is older than the live row, or than the truncate at the place `emptied`."""

    def judge(changes: Ranked, latest: LatestChanges, found: Found) -> Bools:
        return _late(target, changes, latest, found) | is_truncated(target, changes.take(latest.last), emptied)

    return judge


def prepare_changes(
    catalog: Catalog, target: TableTarget, state: TableState, report: TaskReport, judge: Judge
) -> Prepared:
    """Looks up the rows that the changes of `report` replace in the table as it was last loaded, and writes what goes.

    judge: in place of the ordering column's verdict on what comes too late. Raises UnavailableError, SpecError where rows of
    the table cannot be replaced, OldRowsGone.
    """
    _check_format(state)
    attempt = _attempt(catalog, target, state, merge_changes(target, report), judge)
    assert attempt.delta is not None
    return Prepared(attempt.files(report.files), attempt.delta, tuple(attempt.paths), tuple(attempt.unused))


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
    """Finds the rows that go, writes which they are, and the rows that had to wait for them."""
    assert target.changes is not None
    note_live(state.name, scan.files)
    keys, is_emptied = batch.keys, batch.latest.cut >= 0
    files = () if is_emptied else scan.files
    truncated = find_truncated(target, files, batch.emptied) if batch.emptied and files else Truncated()
    found = truncated.without_rows(find_rows(target, truncated.left(files), keys.keys, target.changes.paths))
    late = judge(batch.ranked, batch.latest, found)
    gone, deleted = dict(truncated.gone), truncated.row_count
    for hits in (replace(one, rows=one.rows[~late[one.keys]]) for one in found.hits):
        if hits.rows.size:
            _, known = gone.get(hits.file.path, (hits.file, hits.deleted))
            gone[hits.file.path] = (hits.file, known | bits_of(hits.rows))
            deleted += hits.rows.size
    emptied = [file for file, bits in gone.values() if batch.emptied and len(bits) == file.record_count]
    for file in emptied:
        del gone[file.path]
    whole = scan.files if is_emptied else (*truncated.whole, *emptied)
    removed = tuple(DataFile(file.path, file.record_count, 0, file.content) for file in whole)
    touched = tuple(gone)
    replaced = tuple(delete for file, _ in gone.values() for delete in file.deletes if delete.is_of_one_file)
    ids = kept_ids(batch, found, late) if has_lineage(target, state.format_version) else None
    own = sort_out(batch, late, ids)
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
    """Which keys have a live row that is newer than their change."""
    if changes.order is None or not found.hits:
        return np.zeros(latest.last.size, np.bool_)
    live = newest_order(target, found, latest.last.size)
    highest = changes.order.take(pa.array(latest.highest))
    is_older = np.asarray(pc.fill_null(pc.less(highest, live.order), False), np.bool_)
    return is_older & ~live.were_read_in(changes.partition[latest.last]) & ~latest.is_sure


__all__ = ["Judge", "OldRowsGone", "Prepared", "ValuesGone", "commit_changes", "prepare_changes"]
