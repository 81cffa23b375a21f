"""Commits a batch of an append table without its duplicates.

The rows of the batch are in files already. Those that the table has, or that an earlier row of the batch has, are deleted by
deletion vectors (position deletes in format 2) in the commit that adds their files; a file without another row is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyiceberg.types import PrimitiveType

from frazil.catalog.port import Catalog, TableState
from frazil.catalog.scans import LiveFile, Scan
from frazil.errors import SpecError
from frazil.report import Counts, TaskReport
from frazil.schema.arrow import Bools, Ints, is_every, one_array
from frazil.types import Commit, DataFile, Progress, RowDelta, add_counts
from frazil.upsert.commit import Attempt, abandoning, commit_attempts
from frazil.upsert.dedupe.decide import UNKNOWN_TIME, find_duplicates
from frazil.upsert.dedupe.id_rows import KEY, OFFSET, PARTITION, PLACE, ROWS, SOURCE, TIME, are_known, load_ids
from frazil.upsert.dedupe.seen import Hashes, hash_ids
from frazil.upsert.dedupe.stored import keep_hashes, may_be_stored
from frazil.upsert.deduplicate import key_codes, load_table
from frazil.upsert.lookup.delete_files import bits_of, write_deletes
from frazil.upsert.lookup.live_rows import read_columns, retain_live_files
from frazil.upsert.lookup.pruning import bounds_of, null_count_of
from frazil.upsert.lookup.search import Found, find_rows
from frazil.write.target import Dedupe, TableTarget
from frazil.write.write import FileWriter

DUPLICATE = "duplicate"
"""What a dropped record is counted as."""
_US_PER_MS = 1000


@dataclass(frozen=True)
class Duplicates:
    """What a commit has dropped."""

    #: The number of records without a row left.
    records: int = 0
    #: The number of rows.
    rows: int = 0


@dataclass(frozen=True)
class _Batch:
    """The rows of a batch that have an id, in the order of their records. Arrays have the shape `(n_rows,)`."""

    #: The columns of the reported ids.
    ids: pa.Table
    #: The task of each row.
    owner: Ints
    #: The hash of each id.
    hashes: Hashes
    #: A number per distinct id, from 0 on.
    codes: Ints
    #: Per id the index of its first row.
    firsts: Ints
    #: Per task the files with its rows.
    files: Sequence[Sequence[LiveFile]]
    #: Per task the rows that are in no file; None without such rows.
    repeated: Sequence[pa.Table | None]

    @property
    def times(self) -> Ints:
        """The timestamps in microseconds."""
        return np.asarray(one_array(self.ids[TIME]))

    @property
    def keys(self) -> list[pa.Array]:
        """The columns that identify an event."""
        return [one_array(self.ids[name]) for name in self.ids.column_names if name.startswith(KEY)]

    @property
    def places(self) -> Ints:
        """The index of each row among the rows of its task that are in no file; negative for a row in a file."""
        return np.asarray(one_array(self.ids[PLACE]))


def commit_deduplicated(
    catalog: Catalog, target: TableTarget, state: TableState, report: TaskReport, commit: Commit
) -> tuple[Progress, Duplicates, tuple[DataFile, ...]]:
    """Commits the rows of `report` that are not duplicates; returns the progress as committed, what was dropped and the
    data files that the commit added. Files of failed attempts are deleted; the files of `report` stay with the caller.

    Raises: as Catalog.commit; NotSent also where ids cannot be looked up; SpecError where the table cannot have deletes or
    lacks a column.
    """
    dedupe = target.dedupe
    assert dedupe is not None
    _check_table(target, state, dedupe)
    if not report.changes.touched:
        return catalog.commit(commit), Duplicates(), commit.files
    batch, dropped = _load(report), Duplicates()

    def attempt_at(latest: TableState) -> Attempt:
        nonlocal dropped
        attempt = Attempt(progress=commit.progress)
        with abandoning(catalog, latest.name, attempt):
            dropped = _resolve(attempt, target, dedupe, latest, catalog.scan(latest.name), batch)
        return attempt

    progress, _, files = commit_attempts(catalog, state, commit, attempt_at)
    _keep_hashes(target, dedupe, batch)
    return progress, dropped, files


def _keep_hashes(target: TableTarget, dedupe: Dedupe, batch: _Batch) -> None:
    """Keeps the hashes of the batch's files for the next batch, of tasks with one file."""
    for task, files in enumerate(batch.files):
        if len(files) == 1:
            hashes = batch.hashes[(batch.owner == task) & (batch.places < 0)]
            keep_hashes(target, files[0].path, hashes, dedupe.paths)


def without_duplicates(report: TaskReport, dropped: Duplicates) -> TaskReport:
    """Returns the report with dropped records counted as such."""
    if not dropped.rows:
        return report
    counts = replace(
        report.counts,
        written_count=report.counts.written_count - dropped.records,
        row_count=report.counts.row_count - dropped.rows,
    )
    return replace(report, counts=Counts.merge([counts, Counts(ignored_records=_named(dropped))]))


def _named(dropped: Duplicates) -> dict[str, int]:
    return {DUPLICATE: dropped.records} if dropped.records else {}


def _check_table(target: TableTarget, state: TableState, dedupe: Dedupe) -> None:
    if state.format_version < 2:
        raise SpecError(
            "the table has format version 1, and `dedupe` deletes rows of files, which needs version 2 or 3",
            remedy="upgrade the table to format version 2 or 3",
            where=state.name,
        )
    if not are_known(target, dedupe):
        columns = ", ".join(dedupe.by)
        raise SpecError(
            f"`dedupe.by` has {columns}, and neither the table nor its records have every one of them",
            remedy="correct the name, or declare the column under `columns`",
            where=state.name,
        )


def _load(report: TaskReport) -> _Batch:
    tables = [load_ids(touched.keys) for touched in report.changes.touched]
    owner = np.repeat(np.arange(len(tables)), list(map(len, tables)))
    ids = pa.concat_tables(tables).combine_chunks()
    columns = [np.asarray(one_array(ids[name])) for name in (SOURCE, PARTITION, OFFSET)]
    order = np.lexsort(columns[::-1])
    if not is_every(order, order.size):
        ids, owner = ids.take(pa.array(order)), owner[order]
    keys = [one_array(ids[name]) for name in ids.column_names if name.startswith(KEY)]
    hashes = hash_ids(keys)
    codes = _codes(keys, hashes)
    firsts = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    firsts[codes[::-1]] = np.arange(codes.size)[::-1]  # Of equal indexes the last assignment is kept.
    by_path = {file.path: LiveFile(file.path, file.record_count, file.content) for file in report.written.data}
    return _Batch(
        ids,
        owner,
        hashes,
        codes,
        firsts,
        [[by_path[path] for path in touched.files] for touched in report.changes.touched],
        [load_table(touched.buffered) if touched.buffered else None for touched in report.changes.touched],
    )


def _codes(keys: Sequence[pa.Array], hashes: Hashes) -> Ints:
    """Returns a number per row, int64 `(n_rows,)`, from 0 on, equal exactly where the ids are equal. Only ids with equal
    hashes are compared: comparing all of them takes four times as long.
    """
    order = np.argsort(hashes)
    is_same = hashes[order][1:] == hashes[order][:-1]
    are_repeated = np.zeros(hashes.size, np.bool_)
    are_repeated[order[1:][is_same]] = are_repeated[order[:-1][is_same]] = True
    singles, repeated = np.flatnonzero(~are_repeated), np.flatnonzero(are_repeated)
    codes = np.empty(hashes.size, np.int64)
    codes[singles] = np.arange(singles.size)
    if repeated.size:
        codes[repeated] = singles.size + key_codes([key.take(pa.array(repeated)) for key in keys])
    return codes


def _resolve(
    attempt: Attempt, target: TableTarget, dedupe: Dedupe, state: TableState, scan: Scan, batch: _Batch
) -> Duplicates:
    """Finds the duplicates; writes their deletes, and the rows that are in no file yet, into `attempt`."""
    retain_live_files(state.name, scan.files)
    files = _near(target, dedupe, scan.files, batch.times)
    distinct = [key.take(pa.array(batch.firsts)) for key in batch.keys]
    codes = np.flatnonzero(may_be_stored(target, files, distinct, batch.hashes[batch.firsts], dedupe.paths))
    stored = find_rows(target, files, [key.take(pa.array(codes)) for key in distinct], dedupe.paths)
    is_dropped = _find(target, dedupe, batch, stored, codes)
    deletes = _own_rows(target, dedupe, batch, is_dropped & (batch.places < 0))
    complete = [file for file, rows in deletes if rows.size == file.record_count]
    parts = {file: bits_of(rows) for file, rows in deletes if rows.size < file.record_count}
    attempt.unused = [file.path for file in complete]
    attempt.deletes = write_deletes(target, parts, state.format_version)
    attempt.rows = _write_repeated(target, batch, ~is_dropped & (batch.places >= 0))
    # Also without deletes: another writer may have added an event since the ids were looked up.
    attempt.delta = RowDelta(scan.read_at, tuple(attempt.deletes))
    dropped = _count(batch, is_dropped)
    assert attempt.progress is not None
    attempt.progress = _counted(attempt.progress, dropped)
    return dropped


def _near(target: TableTarget, dedupe: Dedupe, files: Sequence[LiveFile], times: Ints) -> list[LiveFile]:
    """Returns the files that may have rows near a row of the batch, by the bounds of their timestamps."""
    if dedupe.within_ms is None or not times.size or times.min() == UNKNOWN_TIME:
        return list(files)
    field = target.schema.find_field(dedupe.time)
    assert isinstance(field.field_type, PrimitiveType)
    reach = dedupe.within_ms * _US_PER_MS
    near = []
    for file in files:
        lower, upper = bounds_of(file, field.field_id, field.field_type)
        is_known = lower is not None and upper is not None and null_count_of(file, field.field_id) == 0
        if not is_known or (upper >= times.min() - reach and lower <= times.max() + reach):
            near.append(file)
    return near


def _find(target: TableTarget, dedupe: Dedupe, batch: _Batch, stored: Found, codes: Ints) -> Bools:
    """Returns which rows of the batch are duplicates, bool `(n_rows,)`. codes: the ids that `stored` has rows of."""
    stored_codes = codes[stored.keys()]
    if dedupe.within_ms is None:
        stored_times = np.zeros(stored_codes.size, np.int64)
    else:
        columns = [read_columns(target, hit.file, [(dedupe.time,)], hit.rows)[0] for hit in stored.hits]
        pieces = [np.asarray(column.cast(pa.int64()).fill_null(int(UNKNOWN_TIME))) for column in columns]
        stored_times = np.concatenate(pieces) if pieces else np.zeros(0, np.int64)
    are_stored = np.r_[np.ones(stored_codes.size, np.bool_), np.zeros(batch.codes.size, np.bool_)]
    within = None if dedupe.within_ms is None else dedupe.within_ms * _US_PER_MS
    are_duplicates = find_duplicates(
        np.r_[stored_codes, batch.codes], np.r_[stored_times, batch.times], are_stored, within
    )
    return are_duplicates[stored_codes.size :]


def _own_rows(target: TableTarget, dedupe: Dedupe, batch: _Batch, is_wanted: Bools) -> list[tuple[LiveFile, Ints]]:
    """Returns the batch's own files with the positions of these rows."""
    own = []
    for task, files in enumerate(batch.files):
        places = np.flatnonzero(is_wanted & (batch.owner == task))
        if places.size:
            keys = [key.take(pa.array(places)) for key in batch.keys]
            own += [(hit.file, hit.rows) for hit in find_rows(target, files, keys, dedupe.paths).hits]
    return own


def _write_repeated(target: TableTarget, batch: _Batch, is_kept: Bools) -> list[DataFile]:
    """Writes the rows of the batch that are in no file and are kept."""
    if not is_kept.any():
        return []
    writer = FileWriter(target)
    try:
        for task, rows in enumerate(batch.repeated):
            places = batch.places[is_kept & (batch.owner == task)]
            if rows is not None and places.size:
                writer.write(rows.take(pa.array(places)).cast(target.arrow_schema))
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


def _count(batch: _Batch, is_dropped: Bools) -> Duplicates:
    """Returns the number of dropped rows, and of records all of whose rows are dropped."""
    rows = np.flatnonzero(is_dropped)
    if not rows.size:
        return Duplicates()
    counts = np.asarray(one_array(batch.ids[ROWS]))[rows]
    if (counts == 1).all():
        return Duplicates(rows.size, rows.size)
    # Rows of one record are neighbours.
    columns = [np.asarray(one_array(batch.ids[name]))[rows] for name in (SOURCE, PARTITION, OFFSET)]
    is_new = np.r_[True, np.logical_or.reduce([np.diff(column) != 0 for column in columns])]
    starts = np.flatnonzero(is_new)
    sizes = np.diff(np.r_[starts, rows.size])
    return Duplicates(int(np.count_nonzero(sizes == counts[starts])), rows.size)


def _counted(progress: Progress, dropped: Duplicates) -> Progress:
    """Returns the progress with the dropped records in its balance."""
    balance, totals = progress.batch.balance, progress.totals
    if not dropped.records or balance is None:
        return progress
    named, ledger = _named(dropped), progress.ledger
    if ledger is not None:
        count = dropped.records
        ledger = replace(ledger, written=ledger.written - count, dropped=ledger.dropped + count)
    balance = replace(balance, written=balance.written - dropped.records, dropped=add_counts(balance.dropped, named))
    return replace(
        progress,
        ledger=ledger,
        totals=replace(totals, ignored_records=add_counts(totals.ignored_records, named)),
        batch=replace(progress.batch, balance=balance),
    )
