"""The rows of a batch that lack values, of all tasks, and the changes that they follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.schema.arrow import Bools, Ints, one_array
from frazil.stages.changes import DELETE
from frazil.upsert.change_rows import GIVEN, KEY_PLACE, WAITING
from frazil.upsert.deduplicate import order_ranks, previous_places
from frazil.upsert.lookup.live_rows import as_numbers
from frazil.upsert.merged_changes import MergedChanges
from frazil.upsert.old_values.row_places import NONE, RowPlaces, are_less, ends_of_chains

_Columns = tuple[Ints, ...]
"""Places of changes in the order of a column: the rank of the ordering value, 0 without one, then topic, partition,
offset and step.
"""


@dataclass(frozen=True)
class ValueProviders:
    """The changes that provided buffered rows with their values of one column."""

    #: Per buffered row the number of the change; NONE where the value is its own. int64 `(n_rows,)`.
    numbers: Ints
    #: The same, also where a delete has since removed the value.
    all_numbers: Ints
    #: The places of the changes in the order.
    columns: _Columns
    #: The ordering values of the changes.
    orders: pa.Array

    def of(self, rows: Ints) -> Ints:
        """Returns these rows where a change provided their value; NONE in place of the others."""
        return np.where((rows != NONE) & (self.numbers[rows] != NONE), rows, NONE)

    def places(self, rows: Ints) -> _Columns:
        """Returns the places in the order of the changes that provided these rows with their value."""
        return tuple(column[self.numbers[rows]] for column in self.columns)


class BufferedRows:
    """The buffered rows of a batch, numbered task after task. Arrays have the shape `(n_rows,)`."""

    def __init__(self, batch: MergedChanges) -> None:
        buffered = [
            (table, begin) for table, begin in zip(batch.buffered, batch.begins, strict=False) if table is not None
        ]
        self._ranked = batch.ranked
        #: The buffered rows of each task that has some.
        self.tables = [table for table, _ in buffered]
        #: The number of the first row of each table.
        self.begins = np.cumsum([0, *map(len, self.tables)])
        #: The place of each row's change.
        self.places = np.concatenate([np.asarray(table[KEY_PLACE]) + begin for table, begin in buffered])
        self._numbers = np.full(len(batch.ranked), NONE)
        self._numbers[self.places] = np.arange(len(self))
        before = previous_places(batch.ranked)
        #: The place of the preceding change of the row; NONE without one.
        self.follows = before[self.places]
        #: The number of the buffered row of that change; NONE where it is not buffered.
        self.previous = np.where(self.follows != NONE, self._numbers[self.follows], NONE)
        self._is_blind = (batch.ranked.ops == DELETE) & batch.ranked.blind
        self._barriers = self._last_blind(before)
        self._ranks = np.zeros(len(self), np.int64)
        self._given: dict[str, ValueProviders] = {}
        self._waiting: dict[str, Bools] = {}
        #: The rank of the live row's ordering value; 0 without one.
        self.newest = np.zeros(len(self), np.int64)

    def __len__(self) -> int:
        return int(self.places.size)

    def of(self, places: Ints) -> Ints:
        """Returns the numbers of the buffered rows of these changes; NONE for other changes."""
        return self._numbers[places]

    def here(self, rows: Ints) -> RowPlaces:
        """Returns the places of these buffered rows; sources are indexes into `tables`."""
        numbers = np.searchsorted(self.begins, rows, "right") - 1
        return RowPlaces(numbers.astype(np.int32), rows - self.begins[numbers])

    def wait_for(self, column: str) -> Bools:
        """Returns which rows lack their value of a column, bool `(n_rows,)`."""
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
        """Ranks all ordering values together. live: the ordering values of the live rows of the buffered rows `rows`."""
        order = self._ranked.order
        if order is None:
            return
        follows = as_numbers(order.take(pa.array(self.follows, mask=self.follows == NONE)))
        newest = pa.nulls(rows.size, follows.type) if live is None else as_numbers(live).cast(follows.type)
        given = {name: self._providers(name) for name in self._columns_given()}
        pieces = [follows, newest, *(changes[0] for _, changes in given.values())]
        codes = order_ranks(pa.chunked_array(pieces), sum(map(len, pieces)))
        self._ranks, self.newest[rows], *others = np.split(codes, np.cumsum([len(piece) for piece in pieces])[:-1])
        for (name, (numbers, changes)), ranks in zip(given.items(), others, strict=True):
            columns = (ranks, *(np.asarray(values).astype(np.int64) for values in changes[1:]))
            self._given[name] = ValueProviders(self._behind_barriers(numbers, columns), numbers, columns, changes[0])

    def providers(self, column: str) -> ValueProviders | None:
        """Returns the changes that provided values of a column; None where no change did."""
        return self._given.get(column)

    def arrivals(self, places: Ints) -> _Columns:
        """Returns the places of changes by arrival: topic, partition, offset and step."""
        of = self._ranked
        return of.source[places], of.partition[places], of.offset[places], of.step[places]

    def places_followed(self, rows: Ints) -> _Columns:
        """Returns the places in the order of the changes that these rows follow."""
        return self._ranks[rows], *self.arrivals(self.follows[rows])

    def are_given_later(self, providers: ValueProviders, by: Ints, rows: Ints) -> Bools:
        """Returns per row whether the value provided to the buffered row `by` counts, and not the change that the
        buffered row `rows` follows: it is later in the order, nothing precedes it, or it is behind a snapshot row in
        its partition.
        """
        at = self.follows[rows]
        are_later = (at == NONE) | self._is_blind[at]
        given, followed = providers.places(by), self.places_followed(rows)
        are_later |= ~are_less(given, followed)
        if self._ranked.read is not None:
            is_same_partition = (given[1] == followed[1]) & (given[2] == followed[2])
            are_later |= self._ranked.read[at] & is_same_partition & are_less(followed[1:], given[1:])
        return np.asarray(are_later, np.bool_)

    def _last_blind(self, before: Ints) -> Ints | None:
        """Returns per row the last delete without an ordering value among the changes it follows; NONE without one."""
        if self._ranked.order is None or not self._is_blind.any():
            return None
        ends = ends_of_chains(before, ~self._is_blind)
        return np.where(self.follows == NONE, NONE, ends[self.follows])

    def _behind_barriers(self, numbers: Ints, columns: _Columns) -> Ints:
        """Returns `numbers` without the changes that a delete without an ordering value has removed."""
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
        """Returns per buffered row the number of the change that provided its value, and the columns of these changes."""
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
