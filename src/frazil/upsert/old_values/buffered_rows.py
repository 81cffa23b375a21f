"""The rows of a batch that wait for values, those of all tasks one after the other, and the changes that they follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.upsert.changes import DELETE
from frazil.upsert.deduplicate import order_ranks, previous_places
from frazil.upsert.lookup.live_rows import as_numbers, one_array
from frazil.upsert.merged_changes import MergedChanges
from frazil.upsert.old_values.row_places import NONE, Bools, Ints, RowPlaces, are_less, ends_of_chains
from frazil.upsert.change_rows import GIVEN, KEY_PLACE, WAITING

_Columns = tuple[Ints, ...]
"""Where changes are in the order of a column: the rank of the ordering value, 0 where there is none, and where they are by
arrival."""


@dataclass(frozen=True)
class ValueProviders:
    """The changes that have given held rows their values of a column. numbers: per held row which of them, NONE where the
    value is its own; all_numbers: also where a delete has taken such a value away since. orders: the ordering values.
    """

    numbers: Ints
    all_numbers: Ints
    columns: _Columns
    orders: pa.Array

    def of(self, rows: Ints) -> Ints:
        """Of these held rows those that such a value was given to, NONE in place of the others."""
        return np.where((rows != NONE) & (self.numbers[rows] != NONE), rows, NONE)

    def places(self, rows: Ints) -> _Columns:
        """Where in the order the changes are that have given these rows theirs."""
        return tuple(column[self.numbers[rows]] for column in self.columns)


class BufferedRows:
    """See the module.

    tables: of each task that has such rows; begins: the number of the first row of each. places: per row that of its change.
    follows: the place of the change before that one, NONE where there is none. previous: the number of the held row that is
    that one's, NONE where it is in no table. newest: the rank of the live row's ordering value, 0 where there is none.
    """

    def __init__(self, batch: MergedChanges) -> None:
        buffered = [
            (table, begin) for table, begin in zip(batch.buffered, batch.begins, strict=False) if table is not None
        ]
        self._ranked = batch.ranked
        self.tables = [table for table, _ in buffered]
        self.begins = np.cumsum([0, *map(len, self.tables)])
        self.places = np.concatenate([np.asarray(table[KEY_PLACE]) + begin for table, begin in buffered])
        self._numbers = np.full(len(batch.ranked), NONE)
        self._numbers[self.places] = np.arange(len(self))
        before = previous_places(batch.ranked)
        self.follows = before[self.places]
        self.previous = np.where(self.follows != NONE, self._numbers[self.follows], NONE)
        self._is_blind = (batch.ranked.ops == DELETE) & batch.ranked.blind
        self._barriers = self._last_blind(before)
        self._ranks = np.zeros(len(self), np.int64)
        self._given: dict[str, ValueProviders] = {}
        self._waiting: dict[str, Bools] = {}
        self.newest = np.zeros(len(self), np.int64)

    def __len__(self) -> int:
        return int(self.places.size)

    def of(self, places: Ints) -> Ints:
        """The numbers of the held rows that these changes are, NONE for others."""
        return self._numbers[places]

    def here(self, rows: Ints) -> RowPlaces:
        """Where these held rows are: tables are numbered as in `tables`."""
        numbers = np.searchsorted(self.begins, rows, "right") - 1
        return RowPlaces(numbers.astype(np.int32), rows - self.begins[numbers])

    def wait_for(self, column: str) -> Bools:
        """Which rows wait for their value of a column."""
        name = WAITING + column
        if column not in self._waiting:
            self._waiting[column] = np.concatenate(
                [
                    np.asarray(table[name]) if name in table.schema.names else np.zeros(len(table), np.bool_)
                    for table in self.tables
                ]
            )
        return self._waiting[column]

    def put_in_order(self, live: pa.Array | None, rows: Ints) -> None:
        """Ranks all ordering values there are. live: those of the live rows of these held rows, where they count."""
        order = self._ranked.order
        if order is None:
            return
        follows = as_numbers(order.take(pa.array(self.follows, mask=self.follows == NONE)))
        newest = pa.nulls(rows.size, follows.type) if live is None else as_numbers(live).cast(follows.type)
        given = {name: self._providers(name) for name in self._columns_given()}
        pieces = [follows, newest, *(changes[0] for _, changes in given.values())]
        codes = order_ranks(pa.chunked_array(pieces), sum(map(len, pieces)))
        self._ranks, self.newest[rows], *others = np.split(codes, np.cumsum([len(one) for one in pieces])[:-1])
        for (name, (numbers, changes)), ranks in zip(given.items(), others, strict=True):
            columns = (ranks, *(np.asarray(one).astype(np.int64) for one in changes[1:]))
            self._given[name] = ValueProviders(self._behind_barriers(numbers, columns), numbers, columns, changes[0])

    def providers(self, column: str) -> ValueProviders | None:
        """What has given values of a column; None where nothing has."""
        return self._given.get(column)

    def arrivals(self, places: Ints) -> _Columns:
        """Where changes are by arrival."""
        of = self._ranked
        return of.source[places], of.partition[places], of.offset[places], of.step[places]

    def places_followed(self, rows: Ints) -> _Columns:
        """Where in the order the changes are that these rows follow, which follow some."""
        return self._ranks[rows], *self.arrivals(self.follows[rows])

    def are_given_later(self, providers: ValueProviders, by: Ints, rows: Ints) -> Bools:
        """Whether what was given to the held rows `by` counts, and not the change that the held rows `rows` follow: it comes
        after that in the order, or nothing that counts is there; or behind a row of a snapshot, in its partition.
        """
        at = self.follows[rows]
        found = (at == NONE) | self._is_blind[at]
        given, followed = providers.places(by), self.places_followed(rows)
        found |= ~are_less(given, followed)
        if self._ranked.read is not None:
            is_same_partition = (given[1] == followed[1]) & (given[2] == followed[2])
            found |= self._ranked.read[at] & is_same_partition & are_less(followed[1:], given[1:])
        return np.asarray(found, np.bool_)

    def _last_blind(self, before: Ints) -> Ints | None:
        """Per row the delete without an ordering value that it follows, or that one before it does; NONE where there is
        none.
        """
        if self._ranked.order is None or not self._is_blind.any():
            return None
        ends = ends_of_chains(before, ~self._is_blind)
        return np.where(self.follows == NONE, NONE, ends[self.follows])

    def _behind_barriers(self, numbers: Ints, columns: _Columns) -> Ints:
        """Without the changes that a delete without an ordering value has taken away."""
        if self._barriers is None:
            return numbers
        rows = np.flatnonzero((numbers != NONE) & (self._barriers != NONE))
        given = tuple(column[numbers[rows]] for column in columns[1:])
        left = numbers.copy()
        left[rows[are_less(given, self.arrivals(self._barriers[rows]))]] = NONE
        return left

    def _columns_given(self) -> list[str]:
        names = {name for table in self.tables for name in table.schema.names if name.startswith(GIVEN)}
        return sorted(name.removeprefix(GIVEN) for name in names)

    def _providers(self, column: str) -> tuple[Ints, Sequence[pa.Array]]:
        """Per held row the number of the change that has given it its value, and the columns of these changes."""
        numbers, count = np.full(len(self), NONE), 0
        parts: list[pa.Array] = []
        for table, begin in zip(self.tables, self.begins.tolist(), strict=False):
            if GIVEN + column in table.schema.names:
                given = one_array(table[GIVEN + column])
                rows = np.flatnonzero(np.asarray(pc.struct_field(given, "order").is_valid()))
                numbers[begin + rows] = count + np.arange(rows.size)
                parts.append(given.take(pa.array(rows)))
                count += rows.size
        return numbers, pa.concat_arrays(parts).flatten()
