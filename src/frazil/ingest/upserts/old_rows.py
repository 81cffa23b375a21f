"""Completes rows that wait for values of the row they replace: a source may leave out what a change does not touch.

Such a value is in a change before it in the batch, or else in the live row: of the row's own key, or of the key that it had
before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.catalog.scans import LiveFile
from frazil.ingest.decode.envelopes.positions import split_read
from frazil.ingest.upserts.change_rows import GIVEN, KEY_PLACE, WAITING
from frazil.ingest.upserts.changes import DELETE, UPSERT
from frazil.ingest.upserts.fold import Ints, Ranked, key_codes, previous_places
from frazil.ingest.upserts.live_rows import as_numbers, read_columns
from frazil.ingest.upserts.merged import MergedChanges
from frazil.ingest.upserts.moves import GOT, MOVED, MOVED_AT, MOVED_IN, MOVED_ORDER, OLD_KEY, Bools
from frazil.ingest.upserts.resolve import Found, find_rows, newest_order


class RowsLost(Exception):
    """Changes cannot become rows, as values that were not sent are nowhere."""

    def __init__(self, changes: Ranked) -> None:
        super().__init__()
        self._changes = changes

    def places(self, topics: Sequence[str]) -> tuple[tuple[str, int, int], ...]:
        """Topic, partition and offset of their records. topics: of the batch, in order."""
        of = self._changes
        numbers = zip(of.source.tolist(), of.partition.tolist(), of.offset.tolist(), strict=True)
        return tuple((topics[source], partition, offset) for source, partition, offset in numbers)


class OldRowsGone(RowsLost):
    """Rows had another key, and the rows of those keys, which have the values that were not sent, are not in the table."""


class ValuesGone(RowsLost):
    """Required columns have no value. columns: their names."""

    def __init__(self, changes: Ranked, columns: Sequence[str]) -> None:
        super().__init__(changes)
        self.columns = tuple(columns)


def complete_held(
    batch: MergedChanges, found: Found, late: Bools, files: Sequence[LiveFile]
) -> Iterator[tuple[pa.Table, Ints, int]]:
    """The held rows of keys that they decide, with what the old rows had; the places of their changes, and the count of
    values that no row had.

    found: the live rows of the keys; late: the keys whose change comes too late; files: of the table. Raises
    OldRowsGone, and ValuesGone where that is no null.
    """
    if not any(held is not None for held in batch.held):
        return
    wanted = batch.folded.last[~late]
    old = _OldRows(batch, found)
    old.ask_other_keys(files, wanted)
    for number, held in enumerate(batch.held):
        if held is None:
            continue
        places = np.asarray(held[KEY_PLACE]) + batch.begins[number]
        chosen = np.flatnonzero(np.isin(places, wanted))
        if chosen.size:
            rows, lacking = old.complete(held.take(pa.array(chosen)), places[chosen])
            yield rows, places[chosen], lacking


_Source = tuple[LiveFile | pa.Table, int]
"""Where a value is: a file or held rows, and the row in it."""


class _OldRows:
    """Values of the rows that changes replace: of a change before it in the batch, or of the live row."""

    def __init__(self, batch: MergedChanges, found: Found) -> None:
        self._target = batch.target
        self._batch = batch
        self._before = previous_places(batch.ranked)
        # Python has no times before the year 1 or after 9999.
        self._order = as_numbers(batch.ranked.order) if batch.ranked.order is not None else None
        self._held: dict[int, tuple[pa.Table, int]] = {}
        for number, held in enumerate(batch.held):
            if held is not None:
                for row, place in enumerate(held[KEY_PLACE].to_pylist()):
                    self._held[place + batch.begins[number]] = (held, row)
        # Of a few rows that wait among millions no more is to be noted than of these.
        is_held = np.zeros(len(batch.ranked), np.bool_)
        is_held[list(self._held)] = True
        self._live: dict[int, tuple[LiveFile, int]] = {}
        for hits in found.hits:
            places = batch.folded.last[hits.keys]
            mine = is_held[places]
            for place, row in zip(places[mine].tolist(), hits.rows[mine].tolist(), strict=True):
                self._live[place] = (hits.file, row)
        self._moved: set[int] = set()
        self._behind: set[int] = set()
        self._newest = self._find_newest(found, is_held[batch.folded.last])
        self._written = self._find_written()

    def _find_newest(self, found: Found, is_held: Bools) -> dict[int, Any]:
        """The ordering values of the live rows that may be newer than held changes, by the change that decides. is_held: per
        key whether that is one.
        """
        folded, changes = self._batch.folded, self._batch.ranked
        if changes.order is None or not found.hits:
            return {}
        newest = newest_order(self._target, found, folded.last.size)
        self._behind.update(folded.last[newest.were_read_in(changes.partition[folded.last]) & is_held].tolist())
        orders = as_numbers(newest.order)
        alive = np.flatnonzero(np.asarray(orders.is_valid()) & ~folded.is_sure & is_held)
        return {int(folded.last[key]): orders[key].as_py() for key in alive.tolist()}

    def _find_written(self) -> dict[int, tuple[LiveFile, int]]:
        """Where the changes before held ones are that are in the batch's own files."""
        before, ops = self._before, self._batch.ranked.ops
        wanted: set[int] = set()
        for place in self._held:
            at = int(before[place])
            while at in self._held:
                at = int(before[at])
            if at >= 0 and ops[at] == UPSERT:
                wanted.add(at)
        places = np.array(sorted(wanted), np.int64)
        found: dict[int, tuple[LiveFile, int]] = {}
        assert self._target.changes is not None
        for number, files in enumerate(self._batch.files):
            mine = places[self._batch.owner[places] == number]
            keys = self._batch.ranked.take(mine).keys
            for hits in find_rows(self._target, files, keys, self._target.changes.paths).hits:
                for key, row in zip(hits.keys.tolist(), hits.rows.tolist(), strict=True):
                    found[int(mine[key])] = (hits.file, row)
        return found

    def ask_other_keys(self, files: Sequence[LiveFile], wanted: Ints) -> None:
        """Looks for the rows of the keys that rows had before they got their own; OldRowsGone where neither key has one.
        wanted: the changes that decide a key.
        """
        gone: list[int] = []
        for number, held in enumerate(self._batch.held):
            if held is None or MOVED not in held.schema.names:
                continue
            places = np.asarray(held[KEY_PLACE]) + self._batch.begins[number]
            names = [name for name in held.schema.names if name.startswith(OLD_KEY)]
            named = np.flatnonzero(np.asarray(held[names[0]].is_valid()))
            found = self._of_other_keys(held.select(names).take(pa.array(named)), places[named], files)
            self._keep_own_marks(held, places, found)
            self._drop_newer(held, places, found)
            self._take_got(held, places, found, files)
            self._live |= found
            moved = places[np.asarray(held[MOVED])]
            self._moved.update(moved.tolist())
            gone += [place for place in moved[np.isin(moved, wanted)].tolist() if place not in self._live]
        if gone:
            raise OldRowsGone(self._batch.ranked.take(np.array(gone)))

    def _keep_own_marks(self, held: pa.Table, places: Ints, found: dict[int, tuple[LiveFile, int]]) -> None:
        """Of the rows that stay when they are deleted those alone count that the very change has deleted which gave them
        another key; and the row of the new key while it is not deleted itself.
        """
        times = pa.concat_arrays(held[MOVED_AT].chunks)
        if times.null_count == len(times):
            return
        column = dict(self._target.metadata)["deleted_at"]
        old, own = (
            self._gather(column, [rows.get(place) for place in places.tolist()], times.type)
            for rows in (found, self._live)
        )
        is_same = np.asarray(pc.fill_null(pc.equal(old, times), False))
        for n in np.flatnonzero(np.asarray(times.is_valid()) & ~is_same).tolist():
            found.pop(int(places[n]), None)
            if own[n].is_valid:
                self._live.pop(int(places[n]), None)

    def _drop_newer(self, held: pa.Table, places: Ints, found: dict[int, tuple[LiveFile, int]]) -> None:
        """Of rows in the order of a column those do not count that were written after the row had got its key. One of a
        snapshot was there before its delete comes, whatever its place.
        """
        if MOVED_ORDER not in held.schema.names:
            return
        assert self._target.changes is not None
        orders, partitions = (pa.concat_arrays(held[name].chunks) for name in (MOVED_ORDER, MOVED_IN))
        old = self._gather(self._target.changes.order_by, [found.get(place) for place in places.tolist()], orders.type)
        if self._target.changes.has_source_order:
            old, read_in = split_read(old)
            is_behind = (read_in >= 0) & np.asarray(pc.fill_null(pc.equal(partitions, pa.array(read_in)), False))
            is_behind &= self._target.changes.is_one_topic
        else:
            is_behind = np.zeros(len(old), np.bool_)
        for n in np.flatnonzero(np.asarray(pc.fill_null(pc.greater(old, orders), False))).tolist():
            if not is_behind[n]:
                del found[int(places[n])]

    def _take_got(
        self, held: pa.Table, places: Ints, found: dict[int, tuple[LiveFile, int]], files: Sequence[LiveFile]
    ) -> None:
        """Rows that are there under a key which they have got already have the values. A connector that repeats itself may
        have brought the row of the old key again, as its last changes are, without what these did not send. A row that its
        own key had before has gone, as by a truncate that is told elsewhere.
        """
        if GOT not in held.schema.names:
            return
        reading, got = self._target.changes, pa.concat_arrays(held[GOT].chunks)
        assert reading is not None
        *keys, orders, partitions = got.flatten().flatten()
        lengths = np.asarray(pc.list_value_length(got))
        of, each = np.repeat(places, lengths), np.arange(len(orders))
        there = self._of_other_keys(pa.table(keys, [str(n) for n in range(len(keys))]), each, files)
        newest, read_in = split_read(self._gather(reading.order_by, [there.get(n) for n in each.tolist()], orders.type))
        # A row of a snapshot may be one that the key had before: what gave the key came behind it.
        is_before = (read_in >= 0) & ((read_in == np.asarray(partitions)) | (not reading.is_one_topic))
        has_values = np.asarray(pc.fill_null(pc.greater_equal(newest, orders), False)) & ~is_before
        is_older = np.asarray(pc.fill_null(pc.less(newest, orders), False))
        for n in (np.cumsum(lengths) - lengths)[lengths > 0].tolist():
            if is_older[n]:
                self._live.pop(int(of[n]), None)
        for n in np.flatnonzero(has_values)[::-1].tolist():
            found[int(of[n])] = there[n]

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
        self._check_required(rows, places)
        return rows.cast(self._target.arrow_schema), lacking

    def _check_required(self, rows: pa.Table, places: Ints) -> None:
        required = [field.name for field in self._target.arrow_schema if not field.nullable]
        lacking = {name: np.asarray(rows[name].is_null()) for name in required if rows[name].null_count}
        if lacking:
            bad = np.logical_or.reduce(list(lacking.values()))
            raise ValuesGone(self._batch.ranked.take(places[bad]), list(lacking))

    def _values(self, column: str, places: Ints, waits: Bools, own: pa.Array) -> tuple[pa.Array, int]:
        """The column with the values that these changes wait for; and how many nothing had."""
        waiting = np.flatnonzero(waits)
        sources = [self._source(column, int(place)) for place in places[waiting].tolist()]
        at = np.arange(len(own))
        at[waiting] = len(own) + np.arange(waiting.size)
        nowhere = waiting[[source is None for source in sources]]
        assert self._target.changes is not None
        if column in {path[0] for path in self._target.changes.paths}:
            at[nowhere] = nowhere  # A struct that has the key.
            nowhere = nowhere[:0]
        values = pa.concat_arrays([own, self._gather(column, sources, own.type)]).take(pa.array(at))
        return values, nowhere.size

    def _gather(
        self, column: str, sources: Sequence[tuple[LiveFile | pa.Table, int] | None], kind: pa.DataType
    ) -> pa.Array:
        """The column's values in these rows, null where there is none. Each file is read once."""
        rows_of: dict[int, tuple[LiveFile | pa.Table, list[int], list[int]]] = {}
        for n, source in enumerate(sources):
            if source is not None:
                _, places, rows = rows_of.setdefault(id(source[0]), (source[0], [], []))
                places.append(n)
                rows.append(source[1])
        at, pieces, count = np.full(len(sources), -1), [pa.nulls(0, kind)], 0
        for held, places, rows in rows_of.values():
            pieces.append(self._read(column, held, np.array(rows)))
            at[places] = count + np.arange(len(rows))
            count += len(rows)
        return pa.concat_arrays(pieces).take(pa.array(at, mask=at < 0))

    def _source(self, column: str, place: int) -> _Source | None:
        """Where the value is that a change leaves as it was; None where there was no row."""
        if place in self._moved and self._given(place, column, None) is not None:
            return self._held[place]  # Of a change that came after the row had got its key.
        ranked = self._batch.ranked
        at = -1 if place in self._moved else int(self._before[place])
        barrier = self._barrier(at)
        given, giver = self._given(place, column, barrier), place
        while at >= 0:
            if given is not None and (
                _is_blind(ranked, at) or given >= self._rank(at) or _is_behind(ranked, at, given)
            ):
                return self._unless_newer(place, given, self._held[giver])
            held = self._held.get(at) if ranked.ops[at] == UPSERT else None
            if held is None or not _waits(held, column):
                rank = self._rank(at) if self._order is not None else None
                return self._unless_newer(place, rank, held or self._written.get(at))
            other = self._given(at, column, barrier)
            if other is not None and (given is None or other > given):
                given, giver = other, at
            at = int(self._before[at])
        if given is not None:
            return self._unless_newer(place, given, self._held[giver])
        # Looked for on behalf of the change that decides the key.
        return None if self._batch.folded.cut >= 0 else self._live.get(place)

    def _barrier(self, at: int) -> tuple[int, ...] | None:
        """Where the delete without an ordering value is that this change, or one before it, follows."""
        while at >= 0 and not _is_blind(self._batch.ranked, at):
            at = int(self._before[at])
        return _arrival(self._batch.ranked, at) if at >= 0 else None

    def _given(self, place: int, column: str, barrier: tuple[int, ...] | None) -> tuple[Any, ...] | None:
        """Where in the order the change is that has given a held row its value; None where the value is its own, or went
        with a delete.
        """
        held, row = self._held[place]
        if GIVEN + column not in held.schema.names:
            return None
        found = held[GIVEN + column][row].as_py()
        if found is None or found["order"] is None or (barrier is not None and tuple(found.values())[1:] < barrier):
            return None
        return tuple(found.values())

    def _rank(self, place: int) -> tuple[Any, ...]:
        """Where in the order a change is."""
        assert self._order is not None
        return self._order[place].as_py(), *_arrival(self._batch.ranked, place)

    def _unless_newer(self, place: int, rank: tuple[Any, ...] | None, source: _Source | None) -> _Source | None:
        """What a change at this place of the order has, or the live row where that is newer: the change is none to it. A row
        of a snapshot is not newer than what came behind it, before the change that decides; what came later is repeated.
        """
        newest = self._newest.get(place)
        if newest is None or rank is None or rank[0] is None or newest <= rank[0]:
            return source
        is_behind = place in self._behind and rank[1:] < _arrival(self._batch.ranked, place)
        return source if is_behind else self._live.get(place)

    def _read(self, column: str, source: LiveFile | pa.Table, rows: Ints) -> pa.Array:
        if isinstance(source, LiveFile):
            (values,) = read_columns(self._target, source, [(column,)], rows)
            return values
        return pa.concat_arrays(source[column].chunks).take(pa.array(rows))


def _is_blind(changes: Ranked, place: int) -> bool:
    return bool(changes.ops[place] == DELETE and changes.blind[place])


def _is_behind(changes: Ranked, place: int, given: tuple[Any, ...]) -> bool:
    """Whether what has given a value, at this place of the order, came behind a row of a snapshot in its partition."""
    if changes.read is None or not changes.read[place]:
        return False
    mine, other = _arrival(changes, place), given[1:]
    return bool(mine[:2] == other[:2] and mine < other)


def _arrival(changes: Ranked, place: int) -> tuple[int, ...]:
    """Where a change is by arrival."""
    return tuple(int(one[place]) for one in (changes.source, changes.partition, changes.offset, changes.step))


def _waits(held: tuple[pa.Table, int], column: str) -> bool:
    rows, at = held
    return WAITING + column in rows.schema.names and bool(rows[WAITING + column][at].as_py())
