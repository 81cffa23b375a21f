"""Completes buffered rows with values of the rows they replace: a source may omit values that a change does not touch.

Such a value is in an earlier change of the batch, or in the live row, under the row's own key or under the key that it
had before. All work is done on arrays, with a few integers per row: a catch-up has millions of such rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.catalog.scans import LiveFile
from frazil.cdc.positions import split_snapshot_marks
from frazil.schema.arrow import Bools, Ints, one_array
from frazil.stages.changes import UPSERT
from frazil.upsert.change_rows import WAITING
from frazil.upsert.deduplicate import Ranked, key_codes
from frazil.upsert.key_updates.old_rows import (
    KEY_CHANGED,
    KEY_CHANGED_AT,
    KEY_CHANGED_IN,
    KEY_CHANGED_ORDER,
    LATER_KEYS,
    OLD_KEY,
)
from frazil.upsert.lookup.live_rows import as_numbers, read_columns
from frazil.upsert.lookup.search import Found, find_rows, newest_order
from frazil.upsert.merged_changes import MergedChanges
from frazil.upsert.old_values.buffered_rows import BufferedRows, ValueProviders
from frazil.upsert.old_values.row_places import NONE, RowPlaces, are_less

# Size of rows as stored: in memory they are several times as large.
_LOT_BYTES = 32 * 1024 * 1024


class IncompleteChanges(Exception):
    """Changes that cannot become rows, because values that were not sent exist nowhere."""

    def __init__(self, changes: Ranked, columns: Sequence[str] = ()) -> None:
        super().__init__()
        self._changes = changes
        #: The names of the required columns without a value, if that is why.
        self.columns = tuple(columns)

    def places(self, topics: Sequence[str]) -> tuple[tuple[str, int, int], ...]:
        """Returns topic, partition and offset of the changes' records. topics: the topics of the batch, in order."""
        of = self._changes
        numbers = zip(of.source.tolist(), of.partition.tolist(), of.offset.tolist(), strict=True)
        return tuple((topics[source], partition, offset) for source, partition, offset in numbers)


class OldRowsMissing(IncompleteChanges):
    """The row of the old key of a primary-key update, which has the values that were not sent, is not in the table."""


class ValuesMissing(IncompleteChanges):
    """Required columns have no value."""


def complete_buffered(
    batch: MergedChanges, live_rows: Found, late: Bools, files: Sequence[LiveFile]
) -> Iterator[tuple[pa.Table, Ints, int]]:
    """Yields completed buffered rows of keys that they decide, the places of their changes, and the number of values
    that no row had. live_rows: the live rows of the keys. late: the keys whose change is late. files: the files of the
    table.

    Raises: OldRowsMissing; ValuesMissing where a required column stays without a value.
    """
    if not any(buffered is not None for buffered in batch.buffered):
        return
    old = _OldRows(batch, live_rows)
    is_wanted = np.zeros(len(batch.ranked), np.bool_)
    is_wanted[batch.latest.last[~late]] = True
    old.ask_other_keys(files, is_wanted)
    yield from old.complete(is_wanted)


class _OldRows:
    """The values of replaced rows: from an earlier change of the batch, or from the live row. Sources are numbered:
    tables of buffered rows first, then files.
    """

    def __init__(self, batch: MergedChanges, live_rows: Found) -> None:
        self._target = batch.target
        self._batch = batch
        self._buffered = BufferedRows(batch)
        self._files: list[LiveFile] = []
        self._numbers: dict[str, int] = {}
        self._live = RowPlaces.nowhere(len(self._buffered))
        for hits in live_rows.hits:
            rows = self._buffered.of(batch.latest.last[hits.keys])
            mine = rows != NONE
            self._live.put(rows[mine], self._number(hits.file), hits.rows[mine])
        self._others = RowPlaces.nowhere(0)  # In other orders than that of the log: the rows of their own keys.
        self._have_other_key = np.zeros(len(self._buffered), np.bool_)
        self._are_behind = np.zeros(len(self._buffered), np.bool_)
        self._put_in_order(live_rows)
        self._written = self._find_written()

    def _number(self, file: LiveFile) -> int:
        """Returns the number of a file among the sources."""
        if file.path not in self._numbers:
            self._numbers[file.path] = len(self._buffered.tables) + len(self._files)
            self._files.append(file)
        return self._numbers[file.path]

    def _put_in_order(self, live_rows: Found) -> None:
        """Notes for the buffered rows that decide a key whether the live row may be newer, and whether it is a snapshot
        row that the change came behind.
        """
        latest, changes = self._batch.latest, self._batch.ranked
        if changes.order is None or not live_rows.hits:
            self._buffered.put_in_order(None, np.zeros(0, np.int64))
            return
        newest = newest_order(self._target, live_rows, latest.last.size)
        rows = self._buffered.of(latest.last)
        self._are_behind[rows[newest.were_read_in(changes.partition[latest.last]) & (rows != NONE)]] = True
        keys = np.flatnonzero(np.asarray(newest.order.is_valid()) & ~latest.is_sure & (rows != NONE))
        self._buffered.put_in_order(newest.order.take(pa.array(keys)), rows[keys])

    def _find_written(self) -> RowPlaces:
        """Returns where the changes that buffered rows follow are in the batch's own files."""
        follows, ranked = self._buffered.follows, self._batch.ranked
        rows = np.flatnonzero((follows != NONE) & (self._buffered.previous == NONE) & (ranked.ops[follows] == UPSERT))
        places, numbers = np.unique(follows[rows], return_inverse=True)
        written = RowPlaces.nowhere(places.size)
        assert self._target.changes is not None
        for task, files in enumerate(self._batch.files):
            mine = np.flatnonzero(self._batch.owner[places] == task)
            keys = ranked.take(places[mine]).keys
            for hits in find_rows(self._target, files, keys, self._target.changes.paths).hits:
                written.put(mine[hits.keys], self._number(hits.file), hits.rows)
        followed = RowPlaces.nowhere(follows.size)
        followed.put(rows, written.sources[numbers], written.rows[numbers])
        return followed

    def ask_other_keys(self, files: Sequence[LiveFile], is_wanted: Bools) -> None:
        """Looks up the rows of the keys that rows had before a primary-key update. is_wanted: the changes that decide a
        key.

        Raises: OldRowsMissing where neither key has a row.
        """
        gone: list[Ints] = []
        assert self._target.changes is not None
        if any(KEY_CHANGED in buffered.schema.names for buffered in self._buffered.tables):
            has_source_order = self._target.changes.has_source_order
            self._others = RowPlaces.nowhere(len(self._buffered)) if has_source_order else self._live.copy()
        for buffered, begin in zip(self._buffered.tables, self._buffered.begins.tolist(), strict=False):
            if KEY_CHANGED not in buffered.schema.names:
                continue
            every = np.arange(begin, begin + len(buffered))
            names = [name for name in buffered.schema.names if name.startswith(OLD_KEY)]
            named = np.flatnonzero(np.asarray(buffered[names[0]].is_valid()))
            old_rows, asked = RowPlaces.nowhere(len(buffered)), buffered.select(names).take(pa.array(named))
            live_rows = self._of_other_keys([one_array(column) for column in asked.columns], files)
            old_rows.put(named, live_rows.sources, live_rows.rows)
            self._keep_own_marks(buffered, every, old_rows)
            self._drop_newer(buffered, old_rows)
            self._use_later_keys(buffered, every, old_rows, files)
            others = np.flatnonzero(old_rows.are_there)
            self._live.put(every[others], old_rows.sources[others], old_rows.rows[others])
            if self._target.changes.has_source_order:
                self._others.put(every[others], old_rows.sources[others], old_rows.rows[others])
            updated = every[np.asarray(buffered[KEY_CHANGED])]
            self._have_other_key[updated] = True
            if LATER_KEYS in buffered.schema.names:
                self._have_other_key[every[np.asarray(pc.list_value_length(buffered[LATER_KEYS])) > 0]] = True
            places = self._buffered.places[updated]
            gone.append(places[is_wanted[places] & ~self._live.take(updated).are_there])
        if any(places.size for places in gone):
            raise OldRowsMissing(self._batch.ranked.take(np.concatenate(gone)))

    def _keep_own_marks(self, buffered: pa.Table, every: Ints, old_rows: RowPlaces) -> None:
        """Drops rows that another change has marked as deleted. With soft deletes, only a row that the primary-key
        update itself marked counts, and the row of the new key only while it is not marked.
        """
        times = one_array(buffered[KEY_CHANGED_AT])
        if times.null_count == len(times):
            return
        column = dict(self._target.metadata)["deleted_at"]
        old, own = (self._gather(column, rows, times.type) for rows in (old_rows, self._live.take(every)))
        is_same = np.asarray(pc.fill_null(pc.equal(old, times), False))
        others = np.asarray(times.is_valid()) & ~is_same
        old_rows.drop(np.flatnonzero(others))
        self._live.drop(every[others & np.asarray(own.is_valid())])

    def _drop_newer(self, buffered: pa.Table, old_rows: RowPlaces) -> None:
        """Drops rows that were written after the primary-key update, by the ordering column. A snapshot row existed
        before its delete arrived, whatever its position.
        """
        if KEY_CHANGED_ORDER not in buffered.schema.names:
            return
        assert self._target.changes is not None
        orders, partitions = (one_array(buffered[name]) for name in (KEY_CHANGED_ORDER, KEY_CHANGED_IN))
        old = self._gather(self._target.changes.order_by, old_rows, orders.type)
        if self._target.changes.has_source_order:
            old, read_in = split_snapshot_marks(old)
            is_behind = (read_in >= 0) & np.asarray(pc.fill_null(pc.equal(partitions, pa.array(read_in)), False))
            is_behind &= self._target.changes.is_one_topic
        else:
            is_behind = np.zeros(len(old), np.bool_)
        old_rows.drop(np.flatnonzero(np.asarray(pc.fill_null(pc.greater(old, orders), False)) & ~is_behind))

    def _use_later_keys(self, buffered: pa.Table, every: Ints, old_rows: RowPlaces, files: Sequence[LiveFile]) -> None:
        """Uses rows that already exist under a later key, which have the values. A connector that repeats changes may
        have restored the row of the old key in its last state, without values that were not sent. A row under the own
        key from before the update no longer counts, as behind a delete of all
        rows; a row that a key has received later is another row.
        """
        if LATER_KEYS not in buffered.schema.names:
            return
        reading, later_keys = self._target.changes, one_array(buffered[LATER_KEYS])
        assert reading is not None
        *keys, orders, partitions = later_keys.flatten().flatten()
        lengths = np.asarray(pc.list_value_length(later_keys))
        of = np.repeat(np.arange(len(buffered)), lengths)
        later_rows = self._of_other_keys(keys, files)
        newest, read_in = split_snapshot_marks(self._gather(reading.order_by, later_rows, orders.type))
        # A snapshot row may be from before the key update, which came behind it.
        is_before = (read_in >= 0) & ((read_in == np.asarray(partitions)) | (not reading.is_one_topic))
        have_values = np.asarray(pc.fill_null(pc.greater_equal(newest, orders), False)) & ~is_before
        are_older = np.asarray(pc.fill_null(pc.less(newest, orders), False))
        owns = (np.cumsum(lengths) - lengths)[lengths > 0]
        # The change that gave the next key ended the previous one.
        ends = np.arange(len(orders)) - 1
        ends[owns] = NONE
        left_at = orders.take(pa.array(ends, mask=ends == NONE))
        have_values &= ~np.asarray(pc.fill_null(pc.greater(newest, left_at), False))
        self._live.drop(every[of[owns[are_older[owns]]]])
        last_first = np.flatnonzero(have_values)
        rows, firsts = np.unique(of[last_first], return_index=True)
        values = later_rows.take(last_first[firsts])
        old_rows.put(rows, values.sources, values.rows)

    def _of_other_keys(self, keys: Sequence[pa.Array], files: Sequence[LiveFile]) -> RowPlaces:
        """Returns where the live rows of these keys are, one per key."""
        if not len(keys[0]):
            return RowPlaces.nowhere(0)
        assert self._target.changes is not None
        _, firsts, numbers = np.unique(key_codes(keys), return_index=True, return_inverse=True)
        distinct, live_rows = [key.take(pa.array(firsts)) for key in keys], RowPlaces.nowhere(firsts.size)
        for hits in find_rows(self._target, files, distinct, self._target.changes.paths).hits:
            live_rows.put(hits.keys, self._number(hits.file), hits.rows)
        return live_rows.take(numbers)

    def complete(self, is_wanted: Bools) -> Iterator[tuple[pa.Table, Ints, int]]:
        """As `complete_buffered`, in lots of rows that share a file: values may be large."""
        bad: list[Ints] = []
        columns: dict[str, None] = {}
        for lot in self._lots(np.flatnonzero(is_wanted[self._buffered.places])):
            rows, lacking = self._complete(lot)
            places = self._buffered.places[lot]
            names, are_bad = self._lack_required(rows)
            if names:
                bad.append(places[are_bad])
                columns |= dict.fromkeys(names)
            if not bad:
                yield rows.cast(self._target.arrow_schema), places, lacking
        if bad:
            raise ValuesMissing(self._batch.ranked.take(np.concatenate(bad)), list(columns))

    def _lots(self, rows: Ints) -> Iterator[Ints]:
        """Yields buffered rows of one table each, in the order of the live rows."""
        buffered, live = self._buffered, self._live
        stored = [file.description["file-size-in-bytes"] / max(1, file.record_count) for file in self._files]
        own = [table.nbytes / len(table) for table in buffered.tables]
        tables = buffered.here(rows).sources
        order = np.lexsort((live.rows[rows], live.sources[rows], tables))
        rows, tables = rows[order], tables[order]
        # Without a row the number is that of the last source: an estimate is enough.
        sizes = np.array([*([0.0] * len(own)), *stored])[live.sources[rows]] + np.array(own)[tables]
        lots = (np.cumsum(sizes) / _LOT_BYTES).astype(np.int64)
        cuts = np.flatnonzero(np.diff(lots) | np.diff(tables)) + 1
        yield from (lot for lot in np.split(rows, cuts) if lot.size)

    def _complete(self, lot: Ints) -> tuple[pa.Table, int]:
        """Returns buffered rows of one table with all their values, and the number of values that no row had."""
        here, names, lacking = self._buffered.here(lot), self._target.arrow_schema.names, 0
        buffered = self._buffered.tables[here.sources[0]]
        rows = buffered.select(names).take(pa.array(here.rows))
        for column in [name.removeprefix(WAITING) for name in buffered.schema.names if name.startswith(WAITING)]:
            waits = self._buffered.wait_for(column)[lot]
            values, count = self._values(column, lot, waits, one_array(rows[column]))
            lacking += count
            place = rows.schema.get_field_index(column)
            rows = rows.set_column(place, rows.schema.field(place), values)
        return rows, lacking

    def _lack_required(self, rows: pa.Table) -> tuple[list[str], Bools]:
        """Returns the required columns without a value in some row, and these rows."""
        required = [field.name for field in self._target.arrow_schema if not field.nullable]
        names = [name for name in required if rows[name].null_count]
        lacking = [np.asarray(rows[name].is_null()) for name in names]
        return names, np.logical_or.reduce([np.zeros(len(rows), np.bool_), *lacking])

    def _values(self, column: str, lot: Ints, waits: Bools, own: pa.Array) -> tuple[pa.Array, int]:
        """Returns the column with the missing values of these buffered rows, and the number of values that no row had."""
        waiting = np.flatnonzero(waits)
        sources = self._sources(column, lot[waiting])
        at = np.arange(len(own))
        at[waiting] = len(own) + np.arange(waiting.size)
        nowhere = waiting[~sources.are_there]
        assert self._target.changes is not None
        if column in {path[0] for path in self._target.changes.paths}:
            at[nowhere] = nowhere  # A struct that contains the key.
            nowhere = nowhere[:0]
        values = pa.concat_arrays([own, self._gather(column, sources, own.type)]).take(pa.array(at))
        return values, nowhere.size

    def _gather(self, column: str, places: RowPlaces, kind: pa.DataType) -> pa.Array:
        """Returns the column's values at these places; null where there is none. Each file is read once."""
        at, pieces, count = np.full(places.rows.size, NONE), [pa.nulls(0, kind)], 0
        for mine in places.by_source():
            pieces.append(self._read(column, int(places.sources[mine[0]]), places.rows[mine]))
            at[mine] = count + np.arange(mine.size)
            count += mine.size
        return pa.concat_arrays(pieces).take(pa.array(at, mask=at == NONE))

    def _read(self, column: str, source: int, rows: Ints) -> pa.Array:
        tables = self._buffered.tables
        if source < len(tables):
            return one_array(tables[source][column]).take(pa.array(rows))
        (values,) = read_columns(self._target, self._files[source - len(tables)], [(column,)], rows)
        return values

    def _sources(self, column: str, rows: Ints) -> RowPlaces:
        """Returns where the missing values of these buffered rows are."""
        # The look-up was made for the changes that decide their keys.
        sources = self._live.take(rows) if self._batch.latest.cut < 0 else RowPlaces.nowhere(rows.size)
        providers = self._buffered.providers(column)
        has_other_key = self._have_other_key[rows]
        if providers is not None and has_other_key.any():
            given = np.flatnonzero(has_other_key & (providers.all_numbers[rows] != NONE))
            is_newer = self._are_others_newer(providers, rows[given])
            newer, given = given[is_newer], given[~is_newer]
            newer_rows, here = self._others.take(rows[newer]), self._buffered.here(rows[given])
            sources.put(newer, newer_rows.sources, newer_rows.rows)
            sources.put(given, here.sources, here.rows)
        self._look_back(column, rows, np.flatnonzero(~has_other_key), sources)
        return sources

    def _are_others_newer(self, providers: ValueProviders, rows: Ints) -> Bools:
        """Returns whether the live row of a former or later key is newer than the change that provided the value, which
        is a repeated change then. As in `_settle`, a snapshot row is not newer than a change behind it.
        """
        reading, others, numbers = self._target.changes, self._others.take(rows), providers.all_numbers[rows]
        assert reading is not None
        order = self._gather(reading.order_by, others, self._target.arrow_schema.field(reading.order_by).type)
        read_in = np.full(rows.size, -1)
        if reading.has_source_order:
            order, read_in = split_snapshot_marks(order)
        orders = as_numbers(order).cast(providers.orders.type)
        is_newer = np.asarray(pc.fill_null(pc.greater(orders, providers.orders.take(pa.array(numbers))), False))
        given = tuple(column[numbers] for column in providers.columns[1:])
        mine = self._buffered.arrivals(self._buffered.places[rows])
        is_same_partition = (given[0] == mine[0]) & (given[1] == mine[1])
        is_before = (read_in >= 0) & (read_in == given[1]) & reading.is_one_topic
        return np.asarray(is_newer & ~(is_before & ~(is_same_partition & are_less(mine, given))), np.bool_)

    def _look_back(self, column: str, rows: Ints, left: Ints, sources: RowPlaces) -> None:
        """Follows the preceding changes of the rows `left`, one step at a time for all of them, and notes in `sources`
        which has the value.
        """
        buffered, providers, waits = self._buffered, self._buffered.providers(column), self._buffered.wait_for(column)
        here = rows.copy()
        by = providers.of(rows) if providers is not None else np.full(rows.size, NONE)
        while left.size:
            now, previous = here[left], buffered.previous[here[left]]
            is_given = by[left] != NONE
            if providers is not None and is_given.any():
                is_given[is_given] = buffered.are_given_later(providers, by[left][is_given], now[is_given])
                done = left[is_given]
                self._settle(rows, done, buffered.here(by[done]), providers.places(by[done]), sources)
            is_end = ~is_given & ((previous == NONE) | ~waits[previous])
            for is_buffered in (True, False):
                done = left[is_end & (buffered.follows[now] != NONE) & ((previous != NONE) == is_buffered)]
                step_sources = (
                    buffered.here(buffered.previous[here[done]]) if is_buffered else self._written.take(here[done])
                )
                self._settle(rows, done, step_sources, buffered.places_followed(here[done]), sources)
            continues = ~is_given & ~is_end
            left, previous = left[continues], previous[continues]
            here[left] = previous
            if providers is not None:
                by[left] = _later(by[left], providers.of(previous), providers)

    def _settle(
        self, rows: Ints, done: Ints, sources: RowPlaces, places: tuple[Ints, ...], sources_out: RowPlaces
    ) -> None:
        """Notes the places of values, for changes at these places of the order, except where the live row is newer. A
        snapshot row is not newer than a change that came behind it and before the deciding change; a later change is
        repeated.
        """
        newest = self._buffered.newest[rows[done]]
        is_newer = (newest > 0) & (places[0] > 0) & (newest > places[0])
        if is_newer.any():
            mine = self._buffered.arrivals(self._buffered.places[rows[done]])
            is_newer &= ~(self._are_behind[rows[done]] & are_less(places[1:], mine))
        counts = np.flatnonzero(~is_newer)
        sources_out.put(done[counts], sources.sources[counts], sources.rows[counts])


def _later(ones: Ints, others: Ints, providers: ValueProviders) -> Ints:
    """Returns, of two buffered rows each, the one whose value was provided later; the other where one is NONE."""
    is_other = (others != NONE) & (ones == NONE)
    both = np.flatnonzero((others != NONE) & (ones != NONE))
    is_other[both] = are_less(providers.places(ones[both]), providers.places(others[both]))
    return np.where(is_other, others, ones)
