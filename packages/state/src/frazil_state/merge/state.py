"""The parts of all tasks in the driver, merged with the rows in the table: the table is the state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.catalog.scans import LiveFile
from frazil.decode.values_as_json import key_text
from frazil.errors import SpecError
from frazil.report import TaskReport
from frazil.schema.arrow import Bools, Ints, one_array
from frazil.stages.changes import DELETE, UPSERT
from frazil.upsert.deduplicate import LatestChanges, Ranked, load_table
from frazil.upsert.lookup.live_rows import ColumnCache, read_columns
from frazil.upsert.lookup.search import Found, Hits
from frazil.upsert.merged_changes import Completed, MadeRows, MergedChanges
from frazil.write.target import TableTarget
from frazil_state.merge.functions import ADDING, COLLECTING, MergedColumn
from frazil_state.merge.part_rows import CUT, merging_of, part_table
from frazil_state.merge.parts import (
    FILLED,
    FRESH,
    PLACES,
    PUT,
    Merging,
    group_parts,
    keys_in,
    limb_names,
    sketch_names,
)
from frazil_state.merge.sessions import in_sessions, join_sessions, may_touch
from frazil_state.merge.sketch_kinds import SKETCHES
from frazil_state.merge.sketches import ESTIMATE, SUFFIX, estimates_of
from frazil_state.merge.sums import AVERAGE, COUNT, SUM, average, join

_IN_TABLE = -1
_CACHE_BYTES = 256 * 1024 * 1024
_columns = ColumnCache(_CACHE_BYTES)
_MOST_ELEMENTS, _MOST_DIGITS = 100_000, 38
_OVERFLOW = (
    'declare the column with a larger type, such as `columns: {{{0}: "{1}"}}`, and create the table again from the topic,'
    " or group by more columns"
)
_OVERFLOW_OF_QUERY = (
    "give the value a larger type in the query, such as `cast(VALUE as {1})`, and create the table again from"
    " the topic, or group by more columns"
)
_LARGE_AVERAGE = (
    "write the average of doubles, such as `avg(cast(VALUE as double))`, and create the table again from the topic"
)
_TOO_MANY = "merge the column with another function, or group by more columns, such as the day"


def merge_parts(target: TableTarget, report: TaskReport, _: Callable[[Ranked], Ints]) -> MergedChanges:
    """Returns the parts of the tasks of `report`, of which at least one has some, as one change for each key: an upsert of
    its row, or a delete where a delete is all that the batch has of the key.
    """
    texts = [touched.keys for touched in report.changes.touched]
    parts, is_cut = _behind_cut(pa.concat_tables([load_table(text) for text in texts]).combine_chunks())
    if len(parts):
        groups = in_sessions(target, parts, *group_parts(parts, by_partition=False))
        parts = merging_of(target).combine(parts, *groups)
    change_count = sum(touched.change_count for touched in report.changes.touched)
    batch = _batch_of(target, parts, change_count, is_cut=is_cut)
    return batch if target.changes is None or target.changes.session is None else _by_key(batch, parts)


def _by_key(batch: MergedChanges, parts: pa.Table) -> MergedChanges:
    """Returns a batch with one change for each key, in the order of `group_parts`, and all parts of the key's sessions."""
    codes, count = group_parts(parts, by_partition=False)
    _, firsts = np.unique(codes, return_index=True)
    every = np.arange(count)
    latest = LatestChanges(every, batch.latest.is_sure[firsts], every, every, batch.latest.cut)
    return replace(
        batch, ranked=batch.ranked.take(firsts), owner=np.zeros(count, np.int64), begins=[0, count], latest=latest
    )


def _batch_of(target: TableTarget, combined: pa.Table, change_count: int, *, is_cut: bool) -> MergedChanges:
    """Returns parts, of which each key or session has one, as one change for each. change_count: of the batch."""
    count = len(combined)
    places = [np.asarray(one_array(combined[name])) for name in PLACES]
    ops = np.where(np.asarray(one_array(combined[FILLED])), UPSERT, DELETE).astype(np.int8)
    every = np.arange(count)
    is_fresh = np.asarray(one_array(combined[FRESH]))
    return MergedChanges(
        target,
        Ranked(keys_in(combined), ops, places[0], places[1], places[2], places[3], np.zeros(count, np.bool_)),
        np.zeros(count, np.int64),
        [0, count],
        LatestChanges(every, is_fresh, every, every, 0 if is_cut else -1),
        [[]],
        [None],
        change_count,
        _Parts(combined),
    )


def _behind_cut(parts: pa.Table) -> tuple[pa.Table, bool]:
    """Returns the parts behind the last delete of all rows, and whether there is one."""
    cuts = np.flatnonzero(np.asarray(one_array(parts[CUT])))
    plain = parts.drop_columns([CUT])
    if not cuts.size:
        return plain, False
    places = np.stack([np.asarray(one_array(parts[name])) for name in PLACES])
    order = np.lexsort(places[::-1])
    sequence = np.empty(order.size, np.int64)
    sequence[order] = np.arange(order.size)
    return plain.filter(pa.array(sequence > sequence[cuts].max())), True


@dataclass(frozen=True)
class _Parts(MadeRows):
    """The parts of a batch, of which each key or session has one; of a table with sessions a key may have several before
    these are joined.
    """

    #: In the order of the changes.
    table: pa.Table

    def near(self, batch: MergedChanges, files: Sequence[LiveFile]) -> Sequence[LiveFile]:
        """See MadeRows."""
        return may_touch(batch.target, self.table, files)

    def joined(self, batch: MergedChanges, live_rows: Found, late: Bools) -> tuple[MergedChanges, Found, Bools]:
        """See MadeRows."""
        target = batch.target
        if target.changes is None or target.changes.session is None or not len(self.table):
            return batch, live_rows, late
        joined = join_sessions(target, self.table, live_rows)
        combined = merging_of(target).combine(self.table, joined.parts, joined.keys.size)
        of_sessions = _batch_of(target, combined, batch.change_count, is_cut=False)
        return replace(of_sessions, keeps_latest=batch.keeps_latest), joined.live_rows, late[joined.keys]

    def complete(self, batch: MergedChanges, live_rows: Found, late: Bools, _: Sequence[LiveFile]) -> Completed:
        """See MadeRows."""
        return _merged_rows(batch, self.table, live_rows, late)


@dataclass(frozen=True)
class _State:
    """The live rows of keys as parts."""

    #: One part per live row.
    parts: pa.Table
    #: The index of the key of each, int64 `(n_rows,)`.
    keys: Ints


def _merged_rows(batch: MergedChanges, parts: pa.Table, live_rows: Found, late: Bools) -> Completed:
    """Yields the merged rows of a batch. live_rows: of the keys. late: the keys whose row stays as it is.

    Raises: OSError where the store fails; SpecError where a value does not fit its column.
    """
    count = len(batch.ranked)
    if not count:
        return
    merging = merging_of(batch.target)
    state = _read_state(batch, parts, merging, live_rows)
    if state is not None:
        codes = np.concatenate([state.keys, np.arange(count)])
        parts = merging.combine(pa.concat_tables([state.parts, parts]).combine_chunks(), codes, count)
        if batch.keeps_latest and not merging.order_by:
            parts = _keeping_latest(merging, state, parts)
    rows, is_left = _rows_of(batch, merging, parts)
    is_row = (batch.ranked.ops == UPSERT) & is_left & ~late
    places = np.flatnonzero(is_row)
    if places.size:
        yield rows if is_row.all() else rows.take(pa.array(places)), places, 0


def _read_state(batch: MergedChanges, parts: pa.Table, merging: Merging, live_rows: Found) -> _State | None:
    """Returns the live rows that are merged with the batch; None where there are none."""
    needs_row = (batch.ranked.ops == UPSERT) & ~batch.latest.is_sure
    hits = [mine for hit in live_rows.hits if (mine := hit.only(needs_row[hit.keys])).rows.size]
    if not hits:
        return None
    has_values = np.asarray(one_array(parts[PUT]))
    if merging.order_by or batch.keeps_latest or not has_values.all():
        needed = [column.name for column in merging.columns]
    else:
        needed = [column.name for column in merging.columns if column.function != "latest" or column.order_by]
    tables = [_live_parts(batch.target, merging, hit, needed) for hit in hits]
    return _State(pa.concat_tables(tables), np.concatenate([hit.keys for hit in hits]))


def _stored(target: TableTarget, hit: Hits, name: str) -> pa.Array:
    """Returns a column of live rows. Numbers and times are kept in memory: rows of a batch are all over a file, whose column
    is decoded whole for them.

    Raises: OSError where the store fails.
    """
    kind = target.arrow_schema.field(name).type
    if not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind)):
        return read_columns(target, hit.file, [(name,)], hit.rows)[0]
    field = target.schema.find_field(name)
    key = (hit.file.path, "values", field.field_id, str(field.field_type))
    kept = _columns.get(key)
    if kept is None:
        kept = tuple(read_columns(target, hit.file, [(name,)]))
        _columns.put(key, kept)
    return kept[0].take(pa.array(hit.rows))


def _live_parts(target: TableTarget, merging: Merging, hit: Hits, needed: Sequence[str]) -> pa.Table:
    values = {name: _stored(target, hit, name) for name in needed}
    count, schema = hit.rows.size, target.arrow_schema
    arrays = [values[field.name] if field.name in values else pa.nulls(count, field.type) for field in schema]
    parts = part_table(target, merging, pa.Table.from_arrays(arrays, names=schema.names), None, is_stored=True)
    numbers = [np.full(count, _IN_TABLE), np.zeros(count, np.int64), np.zeros(count, np.int64), hit.rows]
    flags = {FRESH: np.zeros(count, np.bool_), FILLED: np.ones(count, np.bool_), PUT: np.ones(count, np.bool_)}
    for name, array in {**dict(zip(PLACES, numbers, strict=True)), **flags}.items():
        parts = parts.append_column(name, pa.array(array))
    return parts


def _keeping_latest(merging: Merging, state: _State, parts: pa.Table) -> pa.Table:
    """Returns the parts with the latest values of the live rows: records that are replayed are older than these."""
    rows = np.full(len(parts), -1)
    rows[state.keys] = np.arange(state.keys.size)
    for column in merging.columns:
        if column.function not in ("latest", "latest_non_null") or column.order_by:
            continue
        live = one_array(state.parts[column.name])
        is_kept = rows >= 0
        if column.function == "latest_non_null":
            is_kept[is_kept] = np.asarray(live.is_valid())[rows[is_kept]]
        places = np.where(is_kept, rows, len(live) + np.arange(len(parts)))
        values = pa.concat_arrays([live, one_array(parts[column.name])]).take(pa.array(places))
        parts = parts.set_column(parts.schema.get_field_index(column.name), column.name, values)
    return parts


def _rows_of(batch: MergedChanges, merging: Merging, parts: pa.Table) -> tuple[pa.Table, Bools]:
    """Returns parts as rows in the schema of the files, and which of them have records left, bool `(n_rows,)`.

    Raises: SpecError where a sum or an average does not fit its column, or a list has too many elements.
    """
    arrays, is_left, target = [], np.ones(len(parts), np.bool_), batch.target
    assert target.changes is not None
    for column in merging.columns:
        if column.function in ADDING:
            values, is_over = join([one_array(parts[name]) for name in limb_names(column)], column.type)
            remedy = _OVERFLOW if target.query is None else _OVERFLOW_OF_QUERY
            _refuse(batch, column, is_over, "the sum is larger than the type {} of the column", remedy)
        elif column.function in SKETCHES:
            sketches = (one_array(parts[name]) for name in sketch_names(column))
            values = SKETCHES[column.function].images(*sketches)
        else:
            values = one_array(parts[column.name])
        if column.function in COLLECTING:
            sizes = np.asarray(pc.fill_null(pc.list_value_length(values), 0))
            reason = f"the list has more than {_MOST_ELEMENTS} elements"
            _refuse(batch, column, sizes > _MOST_ELEMENTS, reason, _TOO_MANY)
        if column.function == "count" and target.changes.retracts:
            is_left &= np.asarray(pc.fill_null(pc.not_equal(values, 0), False))
        arrays.append(values)
    values_of = {column.name: n for n, column in enumerate(merging.columns)}
    for column in merging.columns:
        if column.function == ESTIMATE:
            of_sketches = merging.columns[values_of[column.name + SUFFIX]]
            estimates = estimates_of(*(one_array(parts[name]) for name in sketch_names(of_sketches)))
            arrays[values_of[column.name]] = estimates.cast(column.type)
        if column.function == AVERAGE:
            sums, counts = (arrays[values_of[column.name + suffix]] for suffix in (SUM, COUNT))
            averages, is_over = average(sums, counts, column.type)
            _refuse(batch, column, is_over, "the average is larger than the type {} of the column", _LARGE_AVERAGE)
            arrays[values_of[column.name]] = averages
    return pa.Table.from_arrays(arrays, schema=target.arrow_schema), is_left


def _refuse(batch: MergedChanges, column: MergedColumn, is_bad: Bools, reason: str, remedy: str) -> None:
    """Raises SpecError for the first row of those that are bad."""
    if not is_bad.any():
        return
    row, target = int(np.argmax(is_bad)), batch.target
    assert target.changes is not None
    names = target.changes.key_columns
    key = ", ".join(f"{name}={key_text(values[row])}" for name, values in zip(names, batch.ranked.keys, strict=True))
    what = reason.format(target.schema.find_field(column.name).field_type)
    key = "a key that the table protects" if target.record_key is not None else key
    # Larger sums with these fractions: of the largest decimals only a double has any.
    is_decimal = pa.types.is_decimal(column.type)
    larger = f"decimal({_MOST_DIGITS},{column.type.scale if is_decimal else 0})"
    if is_decimal and column.type.precision == _MOST_DIGITS:
        larger = "double"
    remedy = remedy.format(column.name, larger)
    raise SpecError(f"`merge.{column.name}`: {what}, for {key}", remedy=remedy, where=target.name)
