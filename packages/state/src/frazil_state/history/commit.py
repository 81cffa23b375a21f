"""Commits a batch of a table that keeps history.

The versions of its keys are looked up, the changes are applied to them, and the versions that differ are written in place of
those that the table has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import PrimitiveType, TimestamptzType

from frazil.catalog.port import Catalog, TableState
from frazil.catalog.scans import LiveFile, Scan
from frazil.errors import SpecError
from frazil.report import TaskReport
from frazil.schema.arrow import Bools, Ints, as_written, one_array
from frazil.types import Commit, DataFile, Progress, Resolved, RowDelta
from frazil.upsert.commit import Attempt, Judge, Prepared, abandoning, commit_attempts, row_ids
from frazil.upsert.deduplicate import LatestChanges
from frazil.upsert.lookup.delete_files import bits_of, write_deletes
from frazil.upsert.lookup.live_rows import read_columns, retain_live_files
from frazil.upsert.lookup.pruning import bounds_of, null_count_of
from frazil.upsert.lookup.search import Found, Hits, find_rows
from frazil.write.target import NO_ID, TableTarget, has_lineage, lineage_schema, with_row_ids
from frazil.write.write import FileWriter
from frazil_state.history.apply import OPEN, KeyChanges, Rules, StoredVersions, Versions, apply_changes
from frazil_state.history.columns import are_untracked, check_versions, tracked_codes, tracked_columns
from frazil_state.history.event_rows import Events, load_events
from frazil_state.history.times import TIME, as_times, micros


def commit_versions(
    catalog: Catalog, target: TableTarget, state: TableState, report: TaskReport, commit: Commit
) -> tuple[Progress, Resolved, tuple[DataFile, ...]]:
    """Commits the changes of `report` as versions of their rows. Returns and raises as `upsert.commit.commit_changes`."""
    check_versions(target, state.format_version)
    if not report.changes.touched:
        return catalog.commit(commit), Resolved(), commit.files
    events = load_events(target, report)
    return commit_attempts(catalog, state, commit, lambda latest: _attempt(catalog, target, latest, events, None))


def prepare_versions(
    catalog: Catalog, target: TableTarget, state: TableState, report: TaskReport, judge: Judge
) -> Prepared:
    """Makes versions of changes that are replayed, each at its time. Takes, returns and raises as
    `upsert.commit.prepare_changes`.
    """
    check_versions(target, state.format_version)
    events = load_events(target, report, is_placed=True)
    attempt = _attempt(catalog, target, state, events, judge)
    assert attempt.delta is not None
    return Prepared(attempt.files(()), attempt.delta, tuple(attempt.paths))


def _attempt(catalog: Catalog, target: TableTarget, state: TableState, events: Events, judge: Judge | None) -> Attempt:
    """judge: decides which keys stay as they are; None where none does."""
    attempt = Attempt()
    with abandoning(catalog, state.name, attempt):
        _resolve(attempt, target, state, catalog.scan(state.name), events, judge)
    return attempt


def _resolve(
    attempt: Attempt, target: TableTarget, state: TableState, scan: Scan, events: Events, judge: Judge | None
) -> None:
    """Finds the versions that are replaced, and writes their deletes and the new versions into `attempt`."""
    assert target.changes is not None
    retain_live_files(state.name, scan.files)
    files = _may_be_affected(target, scan.files, events)
    live_rows = find_rows(target, files, events.keys.keys, target.changes.paths)
    if judge is not None:
        every = np.arange(len(events.keys))
        latest = LatestChanges(every, np.zeros(every.size, np.bool_), every, every)
        events = events.only(~judge(events.keys, latest, live_rows))
    stored = _read_stored(target, live_rows, events)
    versions, late_count = _applied(target, stored, events)
    is_left = np.zeros(stored.keys.size, np.bool_)
    is_left[versions.homes[versions.are_kept]] = True
    gone = [(hits.file, hits.deleted, hits.rows[~is_left[at]]) for hits, at in stored.hits]
    deleted = {file: bits | bits_of(rows) for file, bits, rows in gone if rows.size}
    attempt.deletes = write_deletes(target, deleted, state.format_version)
    attempt.rows = _write(target, state.format_version, stored, events, versions)
    replaced = tuple(delete for file in deleted for delete in file.deletes if delete.is_of_one_file)
    touched = tuple(file.path for file in deleted)
    attempt.delta = RowDelta(scan.read_at, tuple(attempt.deletes), replaced, (), touched)
    attempt.resolved = Resolved(
        events.times.size,
        len(events.keys),
        int(np.count_nonzero(~is_left)),
        late_count,
        0,
        len(scan.files),
        live_rows.inspected,
    )


@dataclass(frozen=True)
class _Stored:
    """The versions of keys that the table has, sorted by key and start. Arrays have the shape `(n_versions,)`."""

    #: The number of the key.
    keys: Ints
    #: When the version begins, ends (OPEN for a current version), and the time of its last record.
    starts: Ints
    ends: Ints
    lasts: Ints
    #: The tracked columns.
    tracked: Sequence[pa.Array]
    #: Per file the rows, and the number of each among the versions.
    hits: Sequence[tuple[Hits, Ints]]


def _read_stored(target: TableTarget, live_rows: Found, events: Events) -> _Stored:
    """Returns the versions of keys in the table that the changes may affect: those that have not ended before the first
    change of their key.

    Raises: OSError where the store fails; SpecError where a row is not a version.
    """
    changes = target.changes
    assert changes is not None
    assert changes.history is not None
    firsts = np.full(len(events.keys), OPEN)
    np.minimum.at(firsts, events.codes, events.times)
    starts, ends, hits = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], []
    for in_file in live_rows.hits:
        began, ended = _times_of(target, in_file)
        is_affected = ended >= firsts[in_file.keys]
        if is_affected.any():
            hits.append(in_file.only(is_affected))
            starts.append(began[is_affected])
            ends.append(ended[is_affected])
    names = [*tracked_columns(target), *([changes.order_by] if changes.order_by else [])]
    pieces = [read_columns(target, hit.file, [(name,) for name in names], hit.rows) for hit in hits]
    kinds = [target.arrow_schema.field(name).type for name in names]
    columns = [pa.concat_arrays([pa.nulls(0, kind), *(piece[n] for piece in pieces)]) for n, kind in enumerate(kinds)]
    keys, start, end = Found(hits).keys(), np.concatenate(starts), np.concatenate(ends)
    order = np.lexsort((start, keys))
    at, numbers = pa.array(order), np.empty(order.size, np.int64)
    numbers[order] = np.arange(order.size)
    start, end = start[order], end[order]
    last = start
    if changes.order_by:
        ordered = as_times(columns.pop())
        assert ordered is not None
        last = micros(ordered, int(np.iinfo(np.int64).min))[order]
        last = np.where((last > start) & (last < end), last, start)
    cuts = np.cumsum([hit.rows.size for hit in hits])[:-1]
    tracked = [column.take(at) for column in columns]
    return _Stored(keys[order], start, end, last, tracked, list(zip(hits, np.split(numbers, cuts), strict=False)))


def _times_of(target: TableTarget, hits: Hits) -> tuple[Ints, Ints]:
    """Returns when versions begin and end, in microseconds."""
    assert target.changes is not None
    history = target.changes.history
    assert history is not None
    columns = read_columns(target, hits.file, [(history.valid_from,), (history.valid_to,)], hits.rows)
    times, until = (as_times(column) for column in columns)
    if times is None or until is None or times.null_count:
        raise SpecError(
            f"the table has rows without a time in `{history.valid_from}`: they are not versions",
            remedy="give the history a table of its own, or drop the table, so that it is created again from the topic",
            where=target.name,
        )
    return micros(times, 0), micros(until, int(OPEN))


def _may_be_affected(target: TableTarget, files: Sequence[LiveFile], events: Events) -> list[LiveFile]:
    """Returns the files that may have a version which has not ended before the first change, by their bounds."""
    assert target.changes is not None
    history = target.changes.history
    assert history is not None
    field = next((field for field in target.schema.fields if field.name == history.valid_to), None)
    if field is None or not events.times.size or not isinstance(field.field_type, TimestamptzType):
        return list(files)
    first, field_id, kind = int(events.times.min()), field.field_id, field.field_type
    return [file for file in files if null_count_of(file, field_id) != 0 or _ends_from(file, field_id, kind, first)]


def _ends_from(file: LiveFile, field_id: int, kind: PrimitiveType, first: int) -> bool:
    _, upper = bounds_of(file, field_id, kind)
    return upper is None or upper >= first


def _applied(target: TableTarget, stored: _Stored, events: Events) -> tuple[Versions, int]:
    """Returns the versions of the keys after the changes, and the number of late changes. The values of a version are a
    stored version, or behind these a change in the order of `events`.
    """
    order, count, stored_count = np.argsort(events.codes, kind="stable"), len(events.keys), stored.keys.size
    every = np.arange(count + 1)
    codes = tracked_codes(target, stored.tracked, events.rows)
    in_order = np.r_[codes[:stored_count], codes[stored_count:][order]]
    versions, late_count = apply_changes(
        StoredVersions(np.searchsorted(stored.keys, every), stored.starts, stored.ends, stored.lasts),
        KeyChanges(
            np.searchsorted(events.codes[order], every),
            events.times[order],
            events.are_deletes[order],
            events.are_placed[order],
        ),
        in_order,
        Rules(bool(target.changes and target.changes.order_by), are_untracked(target)),
    )
    values = np.r_[np.arange(stored_count), stored_count + order][versions.values]
    versions.values[:] = values
    return versions, late_count


def _write(
    target: TableTarget, format_version: int, stored: _Stored, events: Events, versions: Versions
) -> list[DataFile]:
    """Writes the versions that the table does not have as they are; returns the files.

    Raises: OSError where the store fails.
    """
    places = np.flatnonzero(~versions.are_kept)
    if not places.size:
        return []
    homes = versions.homes[places]
    has_ids = has_lineage(target, format_version) and bool((homes >= 0).any())
    rows = _rows_of(target, stored, events, versions, places)
    writer = FileWriter(target, lineage_schema(target) if has_ids else None)
    try:
        writer.write(with_row_ids(target, rows, _ids_of(target, stored, homes)) if has_ids else rows)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


def _ids_of(target: TableTarget, stored: _Stored, homes: Ints) -> Ints:
    """Returns the row ids of stored versions, int64 `(n_versions,)`; NO_ID for a version that is not stored."""
    ids = np.full(stored.keys.size + 1, NO_ID)
    wanted = np.zeros(ids.size, np.bool_)
    wanted[homes] = True
    for hits, numbers in stored.hits:
        mine = wanted[numbers]
        if mine.any():
            ids[numbers[mine]] = row_ids(target, hits.file, hits.rows[mine])
    return ids[homes]


def _rows_of(target: TableTarget, stored: _Stored, events: Events, versions: Versions, places: Ints) -> pa.Table:
    """Returns versions as rows in the schema of the files. places: of the versions."""
    assert target.changes is not None
    history, order_by = target.changes.history, target.changes.order_by
    assert history is not None
    starts, ends, values = versions.starts[places], versions.ends[places], versions.values[places]
    own = {
        history.valid_from: _times(starts),
        history.valid_to: _times(ends, ends == OPEN),
        history.is_current: pa.array(ends == OPEN),
    }
    names = [name for name in target.arrow_schema.names if name not in own]
    columns = _values_of(target, names, stored, events, values)
    is_reset = versions.are_reset[places]
    if order_by in columns and is_reset.any():
        # Where a row has another time than its last record, its ordering column has the record's.
        column = columns[order_by]
        moments = _times(versions.lasts[places])
        if pa.types.is_date(column.type):
            times = moments.cast(column.type, safe=False)
        else:
            local = moments.cast(pa.int64()).cast(pa.timestamp("us", tz=column.type.tz))
            times = local.cast(column.type)
        columns[order_by] = pc.if_else(pa.array(is_reset), times, column)
    arrays = [as_written({**columns, **own}[field.name], field.type) for field in target.arrow_schema]
    return pa.Table.from_arrays(arrays, schema=target.arrow_schema)


def _values_of(
    target: TableTarget, names: Sequence[str], stored: _Stored, events: Events, values: Ints
) -> dict[str, pa.Array]:
    """Returns columns with the values of stored versions and of changes. values: their numbers, as in Versions."""
    stored_count = stored.keys.size
    wanted = np.zeros(stored_count, np.bool_)
    wanted[values[values < stored_count]] = True
    row_places = np.full(stored_count + events.times.size, -1)
    pieces: list[list[pa.Array]] = []
    count = 0
    for hits, numbers in stored.hits:
        mine = wanted[numbers]
        if mine.any():
            pieces.append(read_columns(target, hits.file, [(name,) for name in names], hits.rows[mine]))
            row_places[numbers[mine]] = count + np.arange(np.count_nonzero(mine))
            count += int(np.count_nonzero(mine))
    row_places[stored_count:] = count + np.arange(events.times.size)
    at = pa.array(row_places[values])
    return {
        name: pa.concat_arrays([*(piece[n] for piece in pieces), one_array(events.rows[name])]).take(at)
        for n, name in enumerate(names)
    }


def _times(numbers: Ints, are_null: Bools | None = None) -> pa.Array:
    return pa.array(numbers, mask=are_null).cast(TIME)
