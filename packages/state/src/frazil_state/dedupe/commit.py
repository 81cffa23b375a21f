"""Commits a batch of an append table without its duplicates.

The rows of the batch are in files already. Those that the table has, or that an earlier row of the batch has, are deleted by
deletion vectors (position deletes in format 2) in the commit that adds their files; a file without another row is left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyiceberg.types import PrimitiveType

from frazil.catalog.port import Catalog, TableState
from frazil.catalog.scans import LiveFile, Scan
from frazil.errors import InvariantError, SpecError
from frazil.report import Counts, TaskReport
from frazil.schema.arrow import Bools, Ints
from frazil.types import Commit, DataFile, Progress, RowDelta, add_counts
from frazil.upsert.commit import Attempt, abandoning, commit_attempts
from frazil.upsert.deduplicate import KeySet, key_codes, load_table
from frazil.upsert.lookup.delete_files import bits_of, write_deletes
from frazil.upsert.lookup.live_rows import in_threads, read_columns, retain_live_files
from frazil.upsert.lookup.pruning import BOUNDED, KeyBounds, KeyFilters, KeyPartitions, bounds_of, null_count_of
from frazil.upsert.lookup.search import Found, Hits, live_hits
from frazil.upsert.records.read_changes import key_of
from frazil.write.target import Dedupe, TableTarget
from frazil.write.write import FileWriter
from frazil_state.dedupe.decide import UNKNOWN_TIME, find_duplicates
from frazil_state.dedupe.id_rows import Ids, Runs, are_known, load_ids
from frazil_state.dedupe.seen import Hashes
from frazil_state.dedupe.stored import HashNumbers, files_with, hashes_in_order, hashes_of, keep_hashes, rows_with

DUPLICATE = "duplicate"
"""What a dropped record is counted as."""
_US_PER_MS = 1000
_MOST_PRUNED = 10_000
"""Of so many rows at most the ids are read before files are looked at: filters exclude hardly a file for more."""


@dataclass(frozen=True)
class Duplicates:
    """What a commit has dropped."""

    #: The number of records without a row left.
    records: int = 0
    #: The number of rows.
    rows: int = 0


@dataclass(frozen=True)
class _Task:
    """What one task has reported."""

    ids: Ids
    #: The files with its rows.
    files: Sequence[LiveFile]
    #: The rows that are in no file; None without such rows.
    sent: pa.Table | None


@dataclass(frozen=True)
class _Batch:
    """The rows of a batch that have an id, task after task. Arrays have the shape `(n_rows,)`."""

    tasks: Sequence[_Task]
    #: The first row of each task, and the number of all rows.
    begins: Sequence[int]
    #: The hashes of the ids, uint64.
    values: Hashes
    #: The same, with their rows.
    hashes: HashNumbers
    #: Which rows are in no file.
    are_sent: Bools
    #: The records of the rows.
    runs: Runs

    def in_order(self, rows: Ints) -> Ints:
        """Returns rows in the order of their records."""
        of = self.runs.of_rows(rows)
        return rows[np.lexsort([of.offset, of.partition, of.source])]

    def of_task(self, number: int) -> slice:
        """Returns which rows are those of a task."""
        return slice(self.begins[number], self.begins[number + 1])

    def bounds_of_times(self) -> tuple[int, int]:
        """Returns the bounds of the rows' timestamps in microseconds; UNKNOWN_TIME where a row has none."""
        return min(task.ids.earliest for task in self.tasks), max(task.ids.latest for task in self.tasks)


@dataclass(frozen=True)
class _Suspects:
    """Rows of a batch whose id another row of it, or of the table, may have."""

    #: In the order of their records.
    rows: Ints
    #: The columns that identify an event.
    keys: list[pa.Array]
    #: The timestamps in microseconds, UNKNOWN_TIME without one; of tables without `within` 0.
    times: Ints
    #: The file of each row, and its position there; -1 for a row that is in no file.
    files: Ints
    positions: Ints
    #: The files that these are the numbers of.
    read: Sequence[LiveFile]


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
    _check_table(target, state, dedupe, report)
    if not report.changes.touched:
        return catalog.commit(commit), Duplicates(), commit.files
    batch, dropped = _load(target, dedupe, report), Duplicates()

    def attempt_at(latest: TableState) -> Attempt:
        nonlocal dropped
        attempt = Attempt(progress=commit.progress)
        with abandoning(catalog, latest.name, attempt):
            dropped = _resolve(attempt, target, dedupe, latest, catalog.scan(latest.name), batch)
        return attempt

    progress, _, files = commit_attempts(catalog, state, commit, attempt_at)
    _keep_hashes(target, dedupe, batch)
    batch.hashes.end()
    return progress, dropped, files


def _keep_hashes(target: TableTarget, dedupe: Dedupe, batch: _Batch) -> None:
    """Keeps the hashes of the batch's files for the next batch, of tasks with one file that was not read."""
    for number, task in enumerate(batch.tasks):
        if len(task.files) == 1 and task.ids.hashes is not None:
            rows = batch.of_task(number)
            keep_hashes(target, task.files[0].path, batch.values[rows][~batch.are_sent[rows]], dedupe.paths)


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


def _check_table(target: TableTarget, state: TableState, dedupe: Dedupe, report: TaskReport) -> None:
    if state.format_version < 2:
        raise SpecError(
            "the table has format version 1, and `dedupe` deletes rows of files, which needs version 2 or 3",
            remedy="upgrade the table to format version 2 or 3",
            where=state.name,
        )
    if not are_known(target, dedupe, report.schema.empty_ids):
        columns = ", ".join(dedupe.by)
        raise SpecError(
            f"`dedupe.by` has {columns}, and neither the table nor its records have every one of them",
            remedy="correct the name, or declare the column under `columns`",
            where=state.name,
        )


def _load(target: TableTarget, dedupe: Dedupe, report: TaskReport) -> _Batch:
    by_path = {file.path: LiveFile(file.path, file.record_count, file.content) for file in report.written.data}
    tasks = [
        _Task(
            load_ids(touched.keys),
            [by_path[path] for path in touched.files],
            load_table(touched.buffered) if touched.buffered else None,
        )
        for touched in report.changes.touched
    ]
    begins = [0, *itertools.accumulate(task.ids.count for task in tasks)]
    values, are_sent = np.empty(begins[-1], np.uint64), np.zeros(begins[-1], np.bool_)
    for begin, task in zip(begins, tasks, strict=False):
        are_sent[begin + task.ids.sent] = True
        values[begin : begin + task.ids.count] = _hashes_of_task(target, dedupe, task)
    runs = Runs.joined([task.ids.runs for task in tasks], begins[:-1])
    return _Batch(tasks, begins, values, HashNumbers(values), are_sent, runs)


def _hashes_of_task(target: TableTarget, dedupe: Dedupe, task: _Task) -> Hashes:
    """Returns the hash of each row of a task that has an id, in the order of its report.

    Raises: OSError where the store fails.
    """
    if task.ids.hashes is not None:
        return task.ids.hashes
    pieces = [hashes_in_order(target, file, dedupe.paths) for file in task.files]
    in_files = np.concatenate([np.zeros(0, np.uint64), *pieces])
    in_files = in_files[in_files != 0]  # All but those of rows without an id.
    if in_files.size + task.ids.sent.size != task.ids.count:
        message = f"the rows in the files differ from the reported rows: rows={task.ids.count} read={in_files.size}"
        raise InvariantError(message, where=target.name)
    hashes = np.empty(task.ids.count, np.uint64)
    is_sent = np.zeros(task.ids.count, np.bool_)
    is_sent[task.ids.sent] = True
    hashes[~is_sent] = in_files
    if task.sent is not None:
        hashes[is_sent] = hashes_of([key_of(task.sent, path) for path in dedupe.paths])
    return hashes


def _resolve(
    attempt: Attempt, target: TableTarget, dedupe: Dedupe, state: TableState, scan: Scan, batch: _Batch
) -> Duplicates:
    """Finds the duplicates; writes their deletes, and the rows that are in no file yet, into `attempt`."""
    retain_live_files(state.name, scan.files)
    files = _candidates(target, dedupe, batch, _near(target, dedupe, scan.files, batch.bounds_of_times()))
    stored, having = files_with(target, files, batch.hashes, dedupe.paths)
    is_suspect = batch.hashes.are_repeated
    is_suspect[stored] = True  # Later rows with the same hash are suspects already.
    suspects = _read(target, dedupe, batch, batch.in_order(np.flatnonzero(is_suspect)))
    is_dropped = np.zeros(batch.values.size, np.bool_)
    are_duplicates = _find(target, dedupe, batch, suspects, having)
    is_dropped[suspects.rows[are_duplicates]] = True
    deletes = _own_rows(suspects, are_duplicates)
    complete = [file for file, rows in deletes if rows.size == file.record_count]
    parts = {file: bits_of(rows) for file, rows in deletes if rows.size < file.record_count}
    attempt.unused = [file.path for file in complete]
    attempt.deletes = write_deletes(target, parts, state.format_version)
    attempt.rows = _write_sent(target, batch, batch.are_sent & ~is_dropped)
    # Also without deletes: another writer may have added an event since the ids were looked up.
    attempt.delta = RowDelta(scan.read_at, tuple(attempt.deletes))
    dropped = _count(batch, batch.in_order(np.flatnonzero(is_dropped)))
    assert attempt.progress is not None
    attempt.progress = _counted(attempt.progress, dropped)
    return dropped


def _candidates(target: TableTarget, dedupe: Dedupe, batch: _Batch, files: Sequence[LiveFile]) -> Sequence[LiveFile]:
    """Returns the files that may have an id of the batch by their partition, bounds and Bloom filters. The ids of a large
    batch are not read for this: its own files have bounds too.
    """
    if not files:
        return []
    if batch.values.size > _MOST_PRUNED:
        # The bounds of the batch's files do not include the ids of rows that are in no file.
        sent = np.flatnonzero(batch.are_sent)
        bounds = KeyBounds(target, _read(target, dedupe, batch, sent).keys, dedupe.paths) if sent.size else None
        return [
            file
            for file in files
            if _may_overlap(target, dedupe, batch, file) or (bounds is not None and bounds.may_have(file))
        ]
    keys = _read(target, dedupe, batch, np.arange(batch.values.size)).keys
    _, firsts = np.unique(key_codes(keys), return_index=True)
    distinct = [key.take(pa.array(firsts)) for key in keys]
    kinds = (KeyPartitions, KeyBounds, KeyFilters)
    pruners = [kind(target, distinct, dedupe.paths) for kind in kinds]
    return [file for file in files if all(pruner.may_have(file) for pruner in pruners)]


def _may_overlap(target: TableTarget, dedupe: Dedupe, batch: _Batch, file: LiveFile) -> bool:
    """Whether the bounds of a file overlap those of the batch's own files, as far as they are known."""
    own_files = [own for task in batch.tasks for own in task.files]
    for path in dedupe.paths:
        field = target.schema.find_field(".".join(path))
        if not own_files or not isinstance(field.field_type, BOUNDED):
            continue
        lower, upper = bounds_of(file, field.field_id, field.field_type)
        bounds = [bounds_of(own, field.field_id, field.field_type) for own in own_files]
        lowers, uppers = [bound for bound, _ in bounds], [bound for _, bound in bounds]
        if None not in (lower, *uppers) and lower > max(uppers):
            return False
        if None not in (upper, *lowers) and upper < min(lowers):
            return False
    return True


def _read(target: TableTarget, dedupe: Dedupe, batch: _Batch, rows: Ints) -> _Suspects:
    """Returns rows with what identifies them, from the batch's own files and from the rows that are in none.

    Raises: OSError where the store fails.
    """
    files, positions = np.full(rows.size, -1), np.full(rows.size, -1)
    pieces, places, read = list[list[pa.Array]](), list[Ints](), list[LiveFile]()
    timed = [] if dedupe.within_ms is None else [(dedupe.time,)]
    owners = np.searchsorted(batch.begins, rows, "right") - 1
    for number in np.unique(owners).tolist():
        task, begin, is_mine = batch.tasks[number], batch.begins[number], owners == number
        sent = np.flatnonzero(is_mine & batch.are_sent[rows])
        if sent.size:
            assert task.sent is not None
            sent_rows = task.sent.take(pa.array(np.searchsorted(task.ids.sent, rows[sent] - begin)))
            pieces.append([key_of(sent_rows, path) for path in (*dedupe.paths, *timed)])
            places.append(sent)
        stored = np.flatnonzero(is_mine & ~batch.are_sent[rows])
        wanted = HashNumbers(batch.values[rows[stored]])
        for file in task.files if stored.size else ():
            at, numbers, columns = rows_with(target, file, wanted, dedupe.paths)
            pieces.append([*columns, *(read_columns(target, file, timed, at) if timed else ())])
            places.append(stored[numbers])
            files[stored[numbers]], positions[stored[numbers]] = len(read), at
            read.append(file)
    order = np.concatenate(places) if places else np.zeros(0, np.int64)
    if order.size != rows.size:
        message = f"rows of the batch are not in its files: rows={rows.size} read={order.size}"
        raise InvariantError(message, where=target.name)
    back = np.empty(rows.size, np.int64)
    back[order] = np.arange(rows.size)
    columns = [pa.concat_arrays(parts).take(pa.array(back)) for parts in zip(*pieces, strict=True)]
    times = _microseconds(columns.pop()) if timed and columns else np.zeros(rows.size, np.int64)
    return _Suspects(rows, columns, times, files, positions, read)


def _microseconds(times: pa.Array) -> Ints:
    """Returns timestamps as numbers; UNKNOWN_TIME where there is none."""
    return np.asarray(times.cast(pa.int64()).fill_null(int(UNKNOWN_TIME)))


def _near(target: TableTarget, dedupe: Dedupe, files: Sequence[LiveFile], times: tuple[int, int]) -> list[LiveFile]:
    """Returns the files that may have rows near a row of the batch, by the bounds of timestamps. times: of the batch."""
    earliest, latest = times
    if dedupe.within_ms is None or earliest == UNKNOWN_TIME:
        return list(files)
    field = target.schema.find_field(dedupe.time)
    assert isinstance(field.field_type, PrimitiveType)
    reach = dedupe.within_ms * _US_PER_MS
    near = []
    for file in files:
        lower, upper = bounds_of(file, field.field_id, field.field_type)
        is_known = lower is not None and upper is not None and null_count_of(file, field.field_id) == 0
        if not is_known or (upper >= earliest - reach and lower <= latest + reach):
            near.append(file)
    return near


def _find(target: TableTarget, dedupe: Dedupe, batch: _Batch, suspects: _Suspects, having: Sequence[LiveFile]) -> Bools:
    """Returns which suspects are duplicates, bool `(n_suspects,)`. having: the files that have some of their hashes.

    Raises: OSError where the store fails.
    """
    if not suspects.rows.size:
        return np.zeros(0, np.bool_)
    codes = key_codes(suspects.keys)
    _, firsts = np.unique(codes, return_index=True)
    distinct = [key.take(pa.array(firsts)) for key in suspects.keys]
    stored = _stored(target, dedupe, batch.values[suspects.rows], distinct, having)
    stored_codes = codes[firsts][stored.keys()]
    if dedupe.within_ms is None:
        stored_times = np.zeros(stored_codes.size, np.int64)
    else:
        columns = [read_columns(target, hit.file, [(dedupe.time,)], hit.rows)[0] for hit in stored.hits]
        pieces = [_microseconds(column) for column in columns]
        stored_times = np.concatenate(pieces) if pieces else np.zeros(0, np.int64)
    are_stored = np.r_[np.ones(stored_codes.size, np.bool_), np.zeros(codes.size, np.bool_)]
    within = None if dedupe.within_ms is None else dedupe.within_ms * _US_PER_MS
    times = np.r_[stored_times, suspects.times]
    are_duplicates = find_duplicates(np.r_[stored_codes, codes], times, are_stored, within)
    return are_duplicates[stored_codes.size :]


def _stored(
    target: TableTarget, dedupe: Dedupe, hashes: Hashes, distinct: Sequence[pa.Array], files: Sequence[LiveFile]
) -> Found:
    """Returns the live rows of the files that have one of the ids. hashes: of the ids, with repeats. distinct: the ids."""
    wanted, ids = HashNumbers(hashes), KeySet(distinct)

    def search(file: LiveFile) -> list[Hits]:
        positions, _, columns = rows_with(target, file, wanted, dedupe.paths)
        keys = ids.find([pa.chunked_array([column]) for column in columns])
        is_id = keys >= 0
        return list(live_hits(target, file, positions[is_id], keys[is_id]))

    return Found([hit for hits in in_threads(search, files) for hit in hits])


def _own_rows(suspects: _Suspects, is_wanted: Bools) -> list[tuple[LiveFile, Ints]]:
    """Returns the batch's own files with the positions of these suspects, ascending."""
    own = []
    for number, file in enumerate(suspects.read):
        positions = np.sort(suspects.positions[is_wanted & (suspects.files == number)])
        if positions.size:
            own.append((file, positions))
    return own


def _write_sent(target: TableTarget, batch: _Batch, is_kept: Bools) -> list[DataFile]:
    """Writes the rows of the batch that are in no file and are kept."""
    if not is_kept.any():
        return []
    writer = FileWriter(target)
    try:
        for number, task in enumerate(batch.tasks):
            places = np.flatnonzero(is_kept[batch.of_task(number)][task.ids.sent])
            if task.sent is not None and places.size:
                writer.write(task.sent.take(pa.array(places)).cast(target.arrow_schema))
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


def _count(batch: _Batch, rows: Ints) -> Duplicates:
    """Returns the number of dropped rows, and of records all of whose rows are. rows: in the order of the records."""
    if not rows.size:
        return Duplicates()
    of = batch.runs.of_rows(rows)
    counts = of.rows
    if (counts == 1).all():
        return Duplicates(rows.size, rows.size)
    # Rows of one record are neighbours.
    is_new = np.r_[
        True, np.logical_or.reduce([np.diff(values) != 0 for values in (of.source, of.partition, of.offset)])
    ]
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
