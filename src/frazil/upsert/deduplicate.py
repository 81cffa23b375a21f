"""Keeps the latest change per key, on columns: the state of a row is decided by the latest change of its key alone.

Changes are ordered by (order_by, topic, partition, offset), except for changes behind snapshot rows (`arrival_order`).
A delete without an ordering value, or of all rows, removes every earlier change by topic, partition and offset, whatever
the ordering values are.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.schema.arrow import Bools, Ints, is_every, one_array
from frazil.stages.changes import DELETE, are_of_keys
from frazil.upsert.arrival_order import ArrivalOrder

_WIDE = 64
_NUMBERS = ("ops", "source", "partition", "offset", "step", "blind")


@dataclass(frozen=True)
class Ranked:
    """Changes of one table with their keys and their places in the order. All arrays have the shape `(n_changes,)`."""

    #: The key columns; null for a delete of all rows.
    keys: tuple[pa.Array, ...]
    #: The operations, as in `Changes`.
    ops: NDArray[np.int8]
    #: The number of the topic.
    source: Ints
    #: The Kafka partition of the record.
    partition: Ints
    #: The offset of the record.
    offset: Ints
    #: The index of the change among the changes of one record.
    step: Ints
    #: Whether the change has no ordering value of its own.
    blind: Bools
    #: The value of the ordering column; None where `order_by` is not declared.
    order: pa.Array | None = None
    #: Whether the change is a row of an initial snapshot; None where the order is not that of the source's log.
    read: Bools | None = None

    def __len__(self) -> int:
        return int(self.ops.size)

    @property
    def have_keys(self) -> Bools:
        """Which changes are of the row of a key, and not of all rows."""
        return are_of_keys(self.ops)

    def take(self, rows: Ints) -> Ranked:
        """Returns the changes at these places."""
        if is_every(rows, len(self)):
            return self
        places = pa.array(rows)
        return Ranked(
            tuple(key.take(places) for key in self.keys),
            self.ops[rows],
            self.source[rows],
            self.partition[rows],
            self.offset[rows],
            self.step[rows],
            self.blind[rows],
            self.order.take(places) if self.order is not None else None,
            self.read[rows] if self.read is not None else None,
        )


@dataclass(frozen=True)
class LatestChanges:
    """The result of deduplication, as places among the changes that were deduplicated."""

    #: Per key the change that decides its state.
    last: Ints
    #: Per key whether that change decides whatever the table contains: a delete without an ordering value, or of
    #: all rows, came before it.
    is_sure: Bools
    #: Every change that a later deduplication together with more changes needs.
    kept: Ints
    #: Per key the change with the greatest ordering value. Where it is not older than the table's row, the row is
    #: replaced.
    highest: Ints
    #: The place of the last delete of all rows; -1 without one.
    cut: int = -1


def concat_ranked(parts: Sequence[Ranked]) -> Ranked:
    """Returns all changes of `parts`, which has at least one member, one part after the other."""
    first = parts[0]
    if len(parts) == 1:
        return first
    return Ranked(
        tuple(pa.concat_arrays([part.keys[n] for part in parts]) for n in range(len(first.keys))),
        np.concatenate([part.ops for part in parts]),
        np.concatenate([part.source for part in parts]),
        np.concatenate([part.partition for part in parts]),
        np.concatenate([part.offset for part in parts]),
        np.concatenate([part.step for part in parts]),
        np.concatenate([part.blind for part in parts]),
        None if first.order is None else pa.concat_arrays([part.order for part in parts]),
        None if first.read is None else np.concatenate([part.read for part in parts]),
    )


def deduplicate(changes: Ranked, lacking: Bools | None = None) -> LatestChanges:
    """Returns the latest change of each key and the changes that this result depends on. lacking, bool `(n_changes,)`:
    changes that take some value from an earlier change.
    """
    if changes.order is None and changes.have_keys.all():
        return _deduplicate_by_arrival(changes)
    state = _State(changes)
    last, highest = state.last(state.order), state.last(state.by_place)
    is_kept = state.is_barrier.copy()
    is_kept[last] = is_kept[highest] = True
    if changes.order is not None:
        is_kept[_candidates(state)] = True
        if lacking is not None:
            is_kept |= _providers(state, _partition_codes(changes), is_kept & lacking)
    kept = np.flatnonzero(is_kept)
    if state.cut >= 0:
        kept = np.append(kept, state.cut)
    return LatestChanges(last, state.barrier[state.codes[last]] >= 0, kept, highest, state.cut)


def rebuild_latest(changes: Ranked) -> LatestChanges:
    """Returns the result of `deduplicate` for changes that are the kept changes of one earlier deduplication."""
    if changes.order is not None or not changes.have_keys.all():
        return deduplicate(changes)
    return _all_kept(changes)


def _all_kept(changes: Ranked) -> LatestChanges:
    every = np.arange(len(changes))
    return LatestChanges(every, np.zeros(every.size, np.bool_), every, every)


def _candidates(state: _State) -> Ints:
    """Returns the changes that may become the latest of their key through a barrier that is not among these changes:
    each change that no later change outranks.

    A delete in another partition can remove the greatest change and leave a smaller change that arrived after the
    delete.
    """
    order = state.order[::-1]
    codes, sequence = state.codes[order], state.sequence[order]
    heights = (codes.max(initial=0) - codes) * (state.sequence.size + 1) + sequence
    return order[heights == np.maximum.accumulate(heights)] if order.size else order


def _providers(state: _State, partition_codes: Ints, lacking: Bools) -> Bools:
    """Returns a mask of the changes that may provide values to the `lacking` changes, depending on a barrier that is
    not among these changes: all changes of a key whose changes came in several partitions, as the barrier may lie
    between any two of them.
    """
    codes, count = state.codes, state.barrier.size
    least, greatest, is_asked = (
        np.full(count, partition_codes.max(initial=0)),
        np.zeros(count, np.int64),
        np.zeros(count, np.bool_),
    )
    np.minimum.at(least, codes, partition_codes)
    np.maximum.at(greatest, codes, partition_codes)
    is_asked[codes[lacking]] = True
    is_asked &= least < greatest
    may_provide = np.zeros(codes.size, np.bool_)
    may_provide[state.order] = is_asked[codes[state.order]]
    return may_provide


def _deduplicate_by_arrival(changes: Ranked) -> LatestChanges:
    """Deduplicates by order of arrival alone, without sorting by value."""
    if _are_distinct(changes.keys):
        return _all_kept(changes)
    codes = key_codes(changes.keys)
    places = np.argsort(_sequence(changes)) if not _is_in_order(changes) else np.arange(len(changes))
    last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    last[codes[places]] = places  # Of equal indexes the last assignment is kept.
    last.sort()
    return LatestChanges(last, np.zeros(last.size, np.bool_), last, last)


def _are_distinct(keys: Sequence[pa.Array]) -> bool:
    """Returns whether no key occurs twice, where that can be found out cheaply: one column of integers or times.
    Sorting numbers takes a tenth of the time of dictionary encoding.
    """
    key = keys[0]
    if len(keys) > 1 or key.null_count or not (pa.types.is_integer(key.type) or pa.types.is_temporal(key.type)):
        return False
    ordered = np.sort(np.asarray(key.view(pa.int64() if key.type.bit_width == _WIDE else pa.int32())))
    return not (ordered[1:] == ordered[:-1]).any()


def previous_places(changes: Ranked) -> Ints:
    """Returns per change the place of the preceding change of its key, int64 `(n_changes,)`; -1 without one. A change
    after a delete without an ordering value, or of all rows, follows that delete and no earlier change.
    """
    codes = key_codes(changes.keys) if changes.keys else np.zeros(len(changes), np.int64)
    sequence = _sequence(changes)
    is_cut, is_blind = ~changes.have_keys, (changes.ops == DELETE) & changes.blind
    cuts = np.flatnonzero(is_cut)
    cuts = cuts[np.argsort(sequence[cuts])]
    epochs = np.searchsorted(sequence[cuts], sequence)
    by_key = np.lexsort((sequence, codes))
    lives = np.zeros(len(changes), np.int64)
    lives[by_key] = np.cumsum(is_blind[by_key]) - is_blind[by_key]
    places = order_ranks(changes.order, len(changes))
    by_arrival = _ranks_by_arrival(changes, codes, sequence, places)
    ranks = np.where(is_blind, np.iinfo(np.int64).max, places if by_arrival is None else by_arrival)
    order = np.lexsort((sequence, ranks, lives, epochs, codes))
    order = order[~is_cut[order]]
    preceding: Ints = np.r_[-1, cuts][epochs]
    preceding[cuts] = -1
    after, before = order[1:], order[:-1]
    is_next = (codes[after] == codes[before]) & (epochs[after] == epochs[before])
    preceding[after[is_next]] = before[is_next]
    return preceding


class _State:
    """Changes sorted by key and, within a key, by their order.

    A delete without an ordering value is a barrier for its key: no change before it counts, and every change after it
    counts whatever the table contains. A delete of all rows is a barrier for every key.
    """

    def __init__(self, changes: Ranked) -> None:
        # A delete of all rows needs no key columns, which the table may not know yet.
        #: A number per distinct key, int64 `(n_changes,)`.
        self.codes = key_codes(changes.keys) if changes.keys else np.zeros(len(changes), np.int64)
        self.sequence = sequence = _sequence(changes)
        is_cut = ~changes.have_keys
        cuts = np.flatnonzero(is_cut)
        #: The place of the last delete of all rows; -1 without one.
        self.cut = int(cuts[np.argmax(sequence[cuts])]) if cuts.size else -1
        start = int(sequence[self.cut]) if cuts.size else -1
        #: Per key the sequence number of its last barrier; -1 without one.
        self.barrier = np.full(int(self.codes.max(initial=0)) + 1, start, np.int64)
        blind = np.flatnonzero((changes.ops == DELETE) & changes.blind)
        np.maximum.at(self.barrier, self.codes[blind], sequence[blind])
        of_key = self.barrier[self.codes]
        #: Whether the change is the last barrier of its key.
        self.is_barrier = np.zeros(len(changes), np.bool_)
        self.is_barrier[blind] = (sequence[blind] == of_key[blind]) & (sequence[blind] > start)
        places = order_ranks(changes.order, len(changes))
        self._counts = ((sequence > of_key) | self.is_barrier) & ~is_cut
        #: The changes that count, sorted by key and position in the order.
        self.by_place = self._sorted(places)
        #: The same, by order of arrival behind snapshot rows.
        self.order = self.by_place
        by_arrival = _ranks_by_arrival(changes, self.codes, sequence, places)
        if by_arrival is not None:
            self.order = self._sorted(by_arrival)

    def _sorted(self, ranks: Ints) -> Ints:
        order = np.lexsort((self.sequence, np.where(self.is_barrier, -1, ranks), self.codes))
        counting: Ints = order[self._counts[order]]
        return counting

    def last(self, order: Ints) -> Ints:
        """Returns the last change of each key in this order."""
        codes = self.codes[order]
        last_changes: Ints = order[np.r_[codes[1:] != codes[:-1], True]] if order.size else order
        return last_changes


def _ranks_by_arrival(changes: Ranked, codes: Ints, sequence: Ints, ranks: Ints) -> Ints | None:
    """See ArrivalOrder."""
    if changes.read is None:
        return None
    is_delete = changes.ops == DELETE
    opens, clears = changes.read | (is_delete & ~changes.blind), is_delete & changes.blind
    return ArrivalOrder(
        codes, _partition_codes(changes), sequence, ranks, changes.read, opens, clears
    ).ranks_by_arrival()


def _partition_codes(changes: Ranked) -> Ints:
    """Returns a number for each partition of each topic, int64 `(n_changes,)`."""
    return changes.source * (int(changes.partition.max(initial=0)) + 1) + changes.partition


def order_ranks(order: pa.Array | pa.ChunkedArray | None, count: int) -> Ints:
    """Returns the dense ranks of ordering values, int64 `(count,)`: from 1 on, 0 for null; all zero without ordering
    values.
    """
    if order is None:
        return np.zeros(count, np.int64)
    values = pc.unique(order.drop_null())
    places = pc.index_in(order, value_set=values.take(pc.sort_indices(values)))
    return np.asarray(pc.fill_null(places, -1)).astype(np.int64) + 1


def _sequence(changes: Ranked) -> Ints:
    """Returns the rank of each change by topic, partition, offset and step."""
    if _is_in_order(changes):
        return np.arange(len(changes))
    order = np.lexsort((changes.step, changes.offset, changes.partition, changes.source))
    places = np.empty(len(changes), np.int64)
    places[order] = np.arange(len(changes))
    return places


def _is_in_order(changes: Ranked) -> bool:
    """Returns whether the changes are already sorted by topic, partition, offset and step."""
    is_after = np.ones(max(0, len(changes) - 1), np.bool_)
    for numbers in (changes.step, changes.offset, changes.partition, changes.source):
        step = np.diff(numbers)
        is_after = (step > 0) | ((step == 0) & is_after)
    return bool(is_after.all())


def comparable(key: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Returns the key column with one representation of NaN and of zero: as keys, -0.0 equals 0.0 and every NaN equals
    every other.
    """
    if not pa.types.is_floating(key.type):
        return key
    one_zero = pc.add(key, pa.scalar(0.0, key.type))
    return pc.if_else(pc.is_nan(one_zero), pa.scalar(float("nan"), key.type), one_zero)


def key_codes(keys: Sequence[pa.Array]) -> Ints:
    """Returns a number per row, int64 `(n_rows,)`, equal exactly where all key columns are equal; a null equals a null."""
    codes: Ints | None = None
    for key in keys:
        own = _codes(comparable(key))
        codes = own if codes is None else _codes(pa.array(codes * (int(own.max(initial=0)) + 1) + own))
    assert codes is not None
    return codes


def _codes(column: pa.Array) -> Ints:
    encoded = column.dictionary_encode(null_encoding="encode").indices
    return np.asarray(encoded).astype(np.int64)


class KeySet:
    """Distinct keys that can be looked up in other columns; a key with a null is never found."""

    def __init__(self, keys: Sequence[pa.Array]) -> None:
        self._levels: list[tuple[pa.Array, pa.Array | None]] = []
        codes: Ints | None = None
        for key in (comparable(key) for key in keys):
            if codes is None and len(keys) == 1:
                self._levels.append((key, None))
                return
            values = pc.unique(key)
            own = _places(key, values)
            if codes is None:
                self._levels.append((values, None))
                codes = own
                continue
            pairs = pa.array(codes * len(values) + own)
            is_last = len(self._levels) == len(keys) - 1
            distinct = pairs if is_last else pc.unique(pairs)
            self._levels.append((values, distinct))
            codes = _places(pairs, distinct)

    def find(self, columns: Sequence[pa.ChunkedArray]) -> Ints:
        """Returns per row of `columns` the index of its key, int64 `(n_rows,)`; -1 where the key is not in the set."""
        codes: Ints | None = None
        for column, (values, distinct) in zip(columns, self._levels, strict=True):
            own = _places(comparable(column), values)
            if codes is None:
                codes = own
                continue
            pairs = np.where((codes < 0) | (own < 0), -1, codes * len(values) + own)
            codes = _places(pa.array(pairs), distinct)
        assert codes is not None
        return codes


def _places(column: pa.Array | pa.ChunkedArray, values: pa.Array) -> Ints:
    places = pc.index_in(column, value_set=values, skip_nulls=True)
    return np.asarray(pc.fill_null(places, -1)).astype(np.int64)


def dump_ranked(changes: Ranked) -> str:
    """Returns the changes serialized as text, to be sent to the driver."""
    columns: dict[str, pa.Array] = {f"k{n}": key for n, key in enumerate(changes.keys)}
    columns |= {name: pa.array(getattr(changes, name)) for name in _NUMBERS}
    # Differences between consecutive offsets, mostly one: absolute offsets would be half of the text.
    columns["offset"] = pa.array(np.diff(changes.offset, prepend=0))
    if changes.order is not None:
        columns["order"] = changes.order
    if changes.read is not None:
        columns["read"] = pa.array(changes.read)
    return dump_table(pa.table(columns))


def load_ranked(text: str) -> Ranked:
    """Returns the changes that `dump_ranked` serialized."""
    table = load_table(text)
    arrays = {name: one_array(column) for name, column in zip(table.schema.names, table.columns, strict=True)}
    numbers = {name: arrays[name].to_numpy(zero_copy_only=False) for name in _NUMBERS}
    numbers["offset"] = np.cumsum(numbers["offset"])
    read = arrays["read"].to_numpy(zero_copy_only=False) if "read" in arrays else None
    keys = tuple(arrays[f"k{n}"] for n in range(len(arrays)) if f"k{n}" in arrays)
    return Ranked(keys=keys, order=arrays.get("order"), read=read, **numbers)


def dump_table(table: pa.Table) -> str:
    """Returns an Arrow table serialized as text: an IPC stream, LZ4-compressed, in base64."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue()).decode()


def load_table(text: str) -> pa.Table:
    """Returns the Arrow table that `dump_table` serialized."""
    return pa.ipc.open_stream(base64.b64decode(text)).read_all()
