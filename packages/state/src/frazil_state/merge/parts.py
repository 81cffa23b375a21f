"""Merges parts of rows: each part has the values of some records of one key that follow one another.

A part is a row of an Arrow table: the columns of the table as far as they are merged, sums as limbs (`sums`), and the
columns below that begin with a null byte. Parts of one key never overlap in the order of records, so that merged parts are
a part again. The row in the table is the first part of its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.schema.arrow import Bools, Ints, one_array
from frazil.upsert.deduplicate import comparable, key_codes, order_ranks
from frazil.upsert.lookup.live_rows import as_numbers
from frazil_state.merge.functions import ADDING, COLLECTING, MergedColumn
from frazil_state.merge.sketch_kinds import SKETCHES
from frazil_state.merge.sums import add, limb_count

KEY = "\x00key"
"""Prefix of the key columns, numbered."""
PLACES = ("\x00source", "\x00partition", "\x00offset", "\x00step")
"""Columns with the place of the part's first record: the number of the topic, -1 for the row in the table; partition,
offset, and the index of the change among those of its record. int64.
"""
FRESH = "\x00fresh"
"""Whether a delete precedes the part: earlier parts of the key no longer count. bool."""
FILLED = "\x00filled"
"""Whether the part has a record, and not a delete alone. bool."""
PUT = "\x00put"
"""Whether the part has values that were added, and not only values that were subtracted. bool."""
_LIMB = "\x00limb"
_SMALLEST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def limb_names(column: MergedColumn) -> list[str]:
    """Returns the names of the columns with the limbs of a sum."""
    return [f"{_LIMB}{n}:{column.name}" for n in range(limb_count(column.type))]


def sketch_names(column: MergedColumn) -> list[str]:
    """Returns the names of the columns that sketches have in parts."""
    return [f"{name}:{column.name}" for name in SKETCHES[column.function].names]


@dataclass(frozen=True)
class Merging:
    """How the parts of a table are merged."""

    #: The columns of the table.
    columns: tuple[MergedColumn, ...]
    #: The column that orders the records of a key; empty: their places do.
    order_by: str = ""

    def combine(self, parts: pa.Table, codes: Ints, count: int) -> pa.Table:
        """Returns one part for each of `count` groups. codes: the group of each part, int64 `(n_parts,)`; a group has at
        least one.
        """
        places = [np.asarray(one_array(parts[name])) for name in PLACES]
        if not _are_in_order(places, codes):
            order = np.lexsort(places[::-1])
            parts, codes = parts.take(pa.array(order)), codes[order]
        groups = _Groups(parts, codes, count)
        ranks = order_ranks(one_array(parts[self.order_by]), len(parts)) if self.order_by else None
        latest, first = groups.last(groups.put, ranks), groups.first(groups.counted)
        arrays: dict[str, pa.Array] = {name: one_array(parts[name]).take(pa.array(first)) for name in _of_key(parts)}
        arrays |= {name: one_array(parts[name]).take(pa.array(first)) for name in PLACES}
        arrays |= {FRESH: pa.array(groups.fresh), FILLED: pa.array(groups.any(FILLED)), PUT: pa.array(latest >= 0)}
        for column in self.columns:
            arrays |= _merged(column, parts, groups, latest)
        return pa.table({name: arrays[name] for name in parts.column_names})


def group_parts(parts: pa.Table, by_partition: bool) -> tuple[Ints, int]:
    """Returns the group of each part, int64 `(n_parts,)`, and the number of groups: the parts of one key, or those of one
    partition and key.
    """
    keys = [one_array(parts[name]) for name in _of_key(parts)]
    if by_partition:
        keys += [one_array(parts[name]) for name in PLACES[:2] if pc.count_distinct(parts[name]).as_py() > 1]
    codes = key_codes(keys)
    return codes, int(codes.max(initial=-1)) + 1


def keys_in(parts: pa.Table) -> tuple[pa.Array, ...]:
    """Returns the key columns of parts."""
    return tuple(one_array(parts[name]) for name in _of_key(parts))


class _Groups:
    """Parts in the order of their records, by group. Arrays of parts have the shape `(n_parts,)`."""

    def __init__(self, parts: pa.Table, codes: Ints, count: int) -> None:
        self._parts = parts
        self.codes = codes
        self.count = count
        begins = np.full(count, -1)
        fresh = np.flatnonzero(_flags(parts, FRESH))
        begins[codes[fresh]] = fresh  # Of equal indexes the last assignment is kept.
        #: Per group whether a delete precedes what is left of it, `(count,)`.
        self.fresh: Bools = begins >= 0
        #: Which parts count: not those before the last delete of their group.
        self.counted: Bools = np.arange(codes.size) >= begins[codes]
        #: Which of these have values that were added.
        self.put: Bools = self.counted & _flags(parts, PUT)

    def any(self, name: str) -> Bools:
        """Returns per group whether a part that counts has this flag, bool `(count,)`."""
        has = np.zeros(self.count, np.bool_)
        has[self.codes[self.counted & _flags(self._parts, name)]] = True
        return has

    def last(self, chosen: Bools, ranks: Ints | None = None) -> Ints:
        """Returns per group the last part among those chosen, by these ranks and then by place, int64 `(count,)`; -1
        without one.
        """
        if ranks is not None:
            best = np.full(self.count, -1)
            np.maximum.at(best, self.codes[chosen], ranks[chosen])
            chosen = chosen & (ranks == best[self.codes])
        rows = np.flatnonzero(chosen)
        places = np.full(self.count, -1)
        places[self.codes[rows]] = rows
        return places

    def first(self, chosen: Bools) -> Ints:
        """Returns per group the first part among those chosen, int64 `(count,)`; -1 without one."""
        rows = np.flatnonzero(chosen)[::-1]
        places = np.full(self.count, -1)
        places[self.codes[rows]] = rows
        return places


def _merged(column: MergedColumn, parts: pa.Table, groups: _Groups, latest: Ints) -> Mapping[str, pa.Array]:
    """Returns the merged values of one column, by the names of the parts' columns. latest: see Merging."""
    function = column.function
    if function in ADDING:
        names = limb_names(column)
        limbs = [one_array(parts[name]) for name in names]
        return dict(zip(names, add(limbs, groups.codes, groups.counted, groups.count), strict=True))
    if function in SKETCHES:
        names = sketch_names(column)
        arrays = (one_array(parts[name]) for name in names)
        united = SKETCHES[function].united(*arrays, groups.codes, groups.counted, groups.count)
        return dict(zip(names, united, strict=True))
    values = one_array(parts[column.name])
    if function in COLLECTING:
        return {column.name: _collected(values, groups, is_set=function == "collect_set")}
    if function in ("min", "max", "bool_and", "bool_or"):
        return {column.name: _extreme(values, groups, is_greatest=function in ("max", "bool_or"))}
    chosen = groups.put & np.asarray(values.is_valid()) if function.endswith("non_null") else groups.put
    places = latest
    if function.startswith("first"):
        places = groups.first(chosen)
    elif function == "latest_non_null":
        places = groups.last(chosen)
    elif column.order_by:
        places = _last_by(column.order_by, parts, groups)
    elif column.is_of_key:
        # A row of which values were only taken off has its key all the same.
        places = np.where(latest >= 0, latest, groups.last(groups.counted))
    return {column.name: values.take(pa.array(places, mask=places < 0))}


def _last_by(order_by: str, parts: pa.Table, groups: _Groups) -> Ints:
    """Returns per group the last part with the greatest value in a column, int64 `(count,)`; -1 without such a value."""
    if order_by not in parts.column_names:  # No record has had the field yet.
        return np.full(groups.count, -1)
    ranks = order_ranks(one_array(parts[order_by]), len(parts))
    return groups.last(groups.put & (ranks > 0), ranks)


def _extreme(values: pa.Array, groups: _Groups, *, is_greatest: bool) -> pa.Array:
    """Returns the greatest or the smallest value of each group; null for a group without one. The greatest of booleans is
    true where one is, the smallest where all are.
    """
    rows = np.flatnonzero(groups.put & np.asarray(values.is_valid()))
    if pa.types.is_integer(values.type) or pa.types.is_temporal(values.type):
        numbers = np.asarray(as_numbers(values).fill_null(0)).astype(np.int64, copy=False)
        best = np.full(groups.count, _SMALLEST if is_greatest else _GREATEST)
        (np.maximum if is_greatest else np.minimum).at(best, groups.codes[rows], numbers[rows])
        has_value = np.zeros(groups.count, np.bool_)
        has_value[groups.codes[rows]] = True
        best = np.where(has_value, best, 0)
        kind = as_numbers(values[:0]).type
        return pa.array(best, mask=~has_value).cast(kind).cast(values.type)
    ranks = order_ranks(values, len(values))
    chosen = np.zeros(len(values), np.bool_)
    chosen[rows] = True
    # Ranks of values are positive, and those turned around too.
    places = groups.last(chosen, ranks if is_greatest else int(ranks.max(initial=0)) + 1 - ranks)
    return values.take(pa.array(places, mask=places < 0))


def _collected(lists: pa.Array, groups: _Groups, *, is_set: bool) -> pa.Array:
    """Returns the elements of all lists of each group in the order of their records, without nulls, and of a set each
    once; null for a group without a list.
    """
    rows = np.flatnonzero(groups.put & np.asarray(lists.is_valid()))
    taken = lists.take(pa.array(rows))
    owners = groups.codes[rows][np.asarray(pc.list_parent_indices(taken)).astype(np.int64)]
    elements = pc.list_flatten(taken)
    kept = np.asarray(elements.is_valid())
    if is_set and kept.any():
        elements = comparable(elements)
        codes = key_codes([elements])
        _, firsts = np.unique(owners * (int(codes.max()) + 1) + codes, return_index=True)
        is_first = np.zeros(kept.size, np.bool_)
        # A null among the elements has a code of its own.
        is_first[firsts] = True
        kept &= is_first
    places = np.flatnonzero(kept)
    places = places[np.argsort(owners[places], kind="stable")]
    sizes = np.bincount(owners[places], minlength=groups.count)
    has_list = np.zeros(groups.count, np.bool_)
    has_list[groups.codes[rows]] = True
    offsets = np.r_[0, np.cumsum(sizes)].astype(np.int32)
    mask = None if has_list.all() else pa.array(~has_list)
    return pa.ListArray.from_arrays(pa.array(offsets), elements.take(pa.array(places)), lists.type, mask=mask)


def _of_key(parts: pa.Table) -> list[str]:
    return [name for name in parts.column_names if name.startswith(KEY)]


def _flags(parts: pa.Table, name: str) -> Bools:
    return np.asarray(one_array(parts[name]))


def _are_in_order(places: Sequence[Ints], codes: Ints) -> bool:
    """Returns whether the places of no group descend. A task has the records of several partitions in turns: each group of
    one partition is in order, though all of them are not.
    """
    return _ascend(places) or _ascend([codes, *places], order=np.argsort(codes, kind="stable"))


def _ascend(columns: Sequence[Ints], order: Ints | None = None) -> bool:
    """Returns whether rows of numbers do not descend, in this order of them."""
    is_after = np.ones(max(0, columns[0].size - 1), np.bool_)
    for numbers in reversed(columns):
        step = np.diff(numbers if order is None else numbers[order])
        is_after = (step > 0) | ((step == 0) & is_after)
    return bool(is_after.all())
