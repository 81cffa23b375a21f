"""The changes of one table in one task: collected, deduplicated by key, and written as rows.

Rows that lack values of the row they replace, or that changes of other tasks may still affect, are not written by the
task: the driver completes and writes them (`upsert.commit`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.cdc.positions import split_snapshot_marks
from frazil.schema.arrow import Bools, Ints, Records, pick
from frazil.stages.changes import UPSERT, Changes
from frazil.upsert.deduplicate import (
    LatestChanges,
    Ranked,
    concat_ranked,
    deduplicate,
    dump_ranked,
    dump_table,
    previous_places,
)
from frazil.upsert.key_updates.old_rows import (
    KEY_CHANGED,
    KEY_CHANGED_AT,
    KEY_CHANGED_IN,
    KEY_CHANGED_ORDER,
    LATER_KEYS,
    OLD_KEY,
    KeyUpdates,
    RecordIndex,
    Walk,
    find_key_updates,
    record_of,
    updated_keys,
)
from frazil.upsert.lookup.live_rows import as_numbers
from frazil.upsert.old_values.row_places import ends_of_chains
from frazil.upsert.records.read_changes import keys_of
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter

_DEDUPLICATE_AT = 1_000_000
KEY_PLACE = "\x00key"
"""Column of buffered rows: the index of the row's change among the task's deduplicated changes."""
WAITING = "\x00waits:"
"""Name prefix of boolean columns of buffered rows: whether the column named behind the prefix lacks the value of the
replaced row.
"""
GIVEN = "\x00given:"
"""Name prefix of struct columns of buffered rows: which earlier change provided the value of the column named behind
the prefix, by its ordering value and place. Null where the value is the row's own. The driver needs it because a change
of another task, or the row in the table, may lie between the two.
"""


@dataclass(frozen=True)
class _Part:
    """Changes with their rows. Arrays have the shape `(n_changes,)`."""

    #: The changes with their places in the order.
    ranked: Ranked
    #: The row of each change, in the schema of the files.
    rows: pa.Table
    #: By column, a mask of the rows that lack their own value for it.
    waits: Mapping[str, Bools]
    #: The number of changes that these were deduplicated from.
    count: int
    #: See UpdatedKeys.old_keys.
    old_keys: tuple[pa.Array, ...] = ()
    #: See Changes.positions.
    positions: pa.Array | None = None
    #: Additional columns of buffered rows: where their values are, or come from.
    hidden: Mapping[str, pa.Array] = field(default_factory=dict)
    #: See Changes.times.
    times: pa.Array | None = None
    #: Which changes mark their row as deleted (soft deletes).
    marks: Bools | None = None


def only(mask: Bools, rows: pa.Table, changes: Changes, records: Records) -> tuple[pa.Table, Changes, Records]:
    """Returns the changes where `mask`, bool `(n_changes,)`, is true, with their rows and columns of records."""
    if mask.all():
        return rows, changes, records
    places = np.flatnonzero(mask)
    return rows.take(pa.array(places)), changes.only(mask), pick(records, places)


class ChangeRows:
    """Collects the changes of one table in any order; `finish` writes the rows of the latest changes."""

    def __init__(
        self, target: TableTarget, topics: Sequence[str], lost: set[tuple[str, int, int]] | None = None
    ) -> None:
        self._target = target
        self._topics = topics
        self._parts: list[_Part] = []
        self._pending = 0
        self._is_kept = target.known.is_single_task
        self._departed: set[RecordIndex] = set()
        #: Topic, partition and offset of primary-key updates without all of their values, where the row of the old key
        #: is unknown.
        self.lost: set[tuple[str, int, int]] = set() if lost is None else lost

    def take(self, topic: str, rows: pa.Table, changes: Changes, records: Records) -> None:
        """Adds changes of one topic.

        rows: one row per change, in the schema of the files. records: the columns of the changes' records, one value
        per change.
        """
        ranked, count = rank(self._target, self._topics.index(topic), rows, changes, records), changes.ops.size
        updated = updated_keys(changes)
        is_departed = np.isin(changes.records, [row for row, _, is_delete in updated.parts if is_delete])
        self._departed.update(record_of(ranked, place) for place in np.flatnonzero(is_departed).tolist())
        names = [column.name for column in self._target.fields]
        waits = {names[n]: mask for n, mask in changes.unavailable.items()}
        part = _Part(ranked, rows, waits, count, updated.old_keys, changes.positions, times=changes.times)
        if "deleted" in changes.own:
            marks = np.asarray(changes.own["deleted"])
            part = replace(part, marks=marks)
            if marks.any():
                waits |= dict.fromkeys(self._target.reading.extra_columns, marks)
        self._parts.append(part)
        self._pending += count
        # The provider of a value is known within one deduplication only.
        self._is_kept |= ranked.order is not None and bool(waits)
        # The result of a deduplication enters the next one: with mostly new keys, growing lots keep the total work
        # small.
        if self._pending >= max(_DEDUPLICATE_AT, len(self._parts[0].ranked)) and not self._is_kept:
            self._deduplicate()

    def finish(self, writer: FileWriter) -> tuple[str, str, int]:
        """Writes one row for each key whose row has all of its values; returns the deduplicated changes and the
        buffered rows, both serialized as text, and the number of changes taken.
        """
        if not self._parts:
            return "", "", 0
        if self._pending or len(self._parts) > 1:
            self._deduplicate()
        (part,) = self._parts
        waiting = np.zeros(len(part.ranked), np.bool_)
        for mask in part.waits.values():
            waiting |= mask
        if part.ranked.order is not None:
            # One row per key is written; other rows that may come to decide are buffered as well.
            is_last = np.zeros(waiting.size, np.bool_)
            is_last[deduplicate(part.ranked).last] = True
            waiting |= ~is_last
        is_row = part.ranked.ops == UPSERT
        waiting &= is_row
        is_complete = is_row & ~waiting
        complete = part.rows if is_complete.all() else part.rows.filter(pa.array(is_complete))
        if complete.num_rows:
            writer.write(complete)
        buffered = ""
        if waiting.any():
            buffered = dump_table(_buffered(part, np.flatnonzero(waiting)))
        ranked, count = part.ranked, part.count
        # The rows are written, and the serialized keys need memory of their own.
        self._parts = []
        del part, complete
        return dump_ranked(ranked), buffered, count

    def _deduplicate(self) -> None:
        merged = _concat(self._parts)
        latest = deduplicate(merged.ranked, np.logical_or.reduce(list(merged.waits.values())) if merged.waits else None)
        self._pending = 0
        if latest.kept.size == len(merged.ranked) and not merged.waits and latest.cut < 0:
            self._parts = [merged]  # No key occurred twice.
            return
        filled = _fill(merged, latest, self._key_updates(merged))
        self.lost |= {self._place(merged.ranked, place) for place in filled.lost}
        ranked = merged.ranked.take(latest.kept)
        self._parts = [_Part(ranked, filled.rows, filled.waits, merged.count, hidden=filled.hidden)]

    def _key_updates(self, part: _Part) -> KeyUpdates:
        if not part.old_keys:
            return KeyUpdates()
        assert part.marks is not None
        return find_key_updates(part.ranked, part.old_keys, part.positions, part.marks, self._departed)

    def _place(self, ranked: Ranked, place: int) -> tuple[str, int, int]:
        return self._topics[int(ranked.source[place])], int(ranked.partition[place]), int(ranked.offset[place])


def rank(target: TableTarget, source: int, rows: pa.Table, changes: Changes, records: Records) -> Ranked:
    """Returns the changes with their places in the order. source: the number of their topic. rows, records: one per
    change, as for `ChangeRows.take`.
    """
    count, order, read = changes.ops.size, changes.order, None
    if order is not None and target.changes is not None and target.changes.has_source_order:
        order, partitions = split_snapshot_marks(order)
        read = partitions >= 0
    return Ranked(
        keys_of(target, rows),
        changes.ops,
        np.full(count, source, np.int64),
        np.asarray(records["partition"]).astype(np.int64),
        np.asarray(records["offset"]).astype(np.int64),
        np.arange(count) - np.searchsorted(changes.records, changes.records),
        np.asarray(order.is_null()) if order is not None else np.zeros(count, np.bool_),
        order,
        read,
    )


def _concat(parts: Sequence[_Part]) -> _Part:
    names = {name for part in parts for name in part.waits}
    waits = {
        name: np.concatenate([part.waits.get(name, np.zeros(len(part.ranked), np.bool_)) for part in parts])
        for name in sorted(names)
    }
    ranked = concat_ranked([part.ranked for part in parts])
    rows, count = pa.concat_tables([part.rows for part in parts]), sum(part.count for part in parts)
    if not any(part.old_keys for part in parts):
        return _Part(ranked, rows, waits, count)
    old_keys = tuple(
        pa.concat_arrays(
            [part.old_keys[n] if part.old_keys else pa.nulls(len(part.ranked), key.type) for part in parts]
        )
        for n, key in enumerate(ranked.keys)
    )
    positions, times = (
        pa.concat_arrays(
            [pa.nulls(len(part.ranked), kind) if getattr(part, name) is None else getattr(part, name) for part in parts]
        )
        for name, kind in (("positions", pa.string()), ("times", pa.timestamp("us", tz="UTC")))
    )
    marks = [np.zeros(len(part.ranked), np.bool_) if part.marks is None else part.marks for part in parts]
    return _Part(ranked, rows, waits, count, old_keys, positions, times=times, marks=np.concatenate(marks))


@dataclass(frozen=True)
class _Filled:
    """The kept changes after values of earlier changes were filled in."""

    #: The rows of the kept changes.
    rows: pa.Table
    #: By column, a mask of the rows whose value is still missing, because only the table can have it.
    waits: dict[str, Bools]
    #: Columns that name the row that has the missing values.
    hidden: Mapping[str, pa.Array]
    #: Places of changes whose missing values exist nowhere.
    lost: list[int]


def _fill(part: _Part, latest: LatestChanges, key_updates: KeyUpdates) -> _Filled:
    """Returns the kept changes with missing values filled in from earlier changes of the same row."""
    kept, waits = latest.kept, {}
    rows = part.rows.take(pa.array(kept))
    masks = {name: mask for name, mask in part.waits.items() if mask[kept].any()}
    before = previous_places(part.ranked) if masks else kept
    asked: dict[int, Walk] = {}
    without: set[int] = set()
    given: dict[str, pa.Array] = {}
    lost: set[int] = set()
    for name, mask in masks.items():
        walked = _walk(part.ranked, before, mask, kept, key_updates)
        sources, waiting = _sources(part.ranked, kept, walked)
        providers = _providers(part.ranked, walked)
        if part.ranked.order is not None and (providers >= 0).any():
            waiting |= providers >= 0
            given[GIVEN + name] = _places_of(part.ranked, providers)
        updated = walked.updated.items()
        lost |= {int(kept[n]) for n, walk in updated if walk.is_lost or (walk.at < 0 and latest.cut >= 0)}
        for n, walk in updated:
            # The longer walk passes every row that the others pass.
            if (walk.at < 0 or providers[n] >= 0) and (
                n not in asked or len(walk.key_changes) > len(asked[n].key_changes)
            ):
                asked[n] = walk
        without |= {n for n, walk in updated if walk.at < 0}
        place = rows.schema.get_field_index(name)
        column = part.rows.column(place).take(pa.array(sources))
        rows = rows.set_column(place, rows.schema.field(place), column)
        if waiting.any():
            waits[name] = waiting
    # Behind a delete of all rows there is no old row whose values could stay.
    places = np.array(sorted(lost), np.int64)
    deciding = places[np.isin(places, latest.last)].tolist()
    return _Filled(rows, waits if latest.cut < 0 else {}, {**_hidden(part, kept, asked, without), **given}, deciding)


@dataclass(frozen=True)
class _Walked:
    """Where the missing values of kept changes are."""

    #: Which kept changes lack the value, bool `(n_kept,)`.
    lack: Bools
    #: The place of the change that has the value, or that removed it; -1 where only the table can have it.
    at: Ints
    #: Details for changes whose row had another key, by index among the kept changes.
    updated: dict[int, Walk]


def _walk(ranked: Ranked, before: Ints, mask: Bools, kept: Ints, key_updates: KeyUpdates) -> _Walked:
    """Finds the missing values of one column. Only primary-key updates are walked one by one; all other changes are
    resolved with array operations.
    """
    lacks = mask & (ranked.ops == UPSERT)
    has_other_key = np.zeros(len(ranked), np.bool_)
    has_other_key[list(key_updates.deletes)] = True
    at = ends_of_chains(before, lacks & ~has_other_key)[kept]
    updated = {}
    for n in np.flatnonzero((at >= 0) & lacks[kept] & (lacks & has_other_key)[at]).tolist():
        updated[n] = key_updates.walk(ranked, before, mask, int(kept[n]))
        at[n] = updated[n].at
    return _Walked(lacks[kept], at, updated)


def _sources(ranked: Ranked, kept: Ints, walked: _Walked) -> tuple[Ints, Bools]:
    """Returns per kept change the place of the change whose value it takes (its own place without one), and whether
    only a row in the table has the value. A value that was not sent is null; in a struct that contains key columns it
    is the key.
    """
    has_value = walked.lack & (walked.at >= 0) & (ranked.ops[walked.at] == UPSERT)
    return np.where(has_value, walked.at, kept), walked.lack & (walked.at < 0)


def _providers(ranked: Ranked, walked: _Walked) -> Ints:
    """Returns per kept change the place of the change that provided, or removed, its value in the order of a column; -1
    without one. For a row with another key the provider may be a change that the connector repeated, where the order is
    that of the source's log.
    """
    providers = np.where(walked.lack, walked.at, -1)
    providers[[n for n, walk in walked.updated.items() if ranked.read is None or walk.is_lost]] = -1
    return providers


def _places_of(ranked: Ranked, places: Ints) -> pa.Array:
    """Returns the places of changes in the order as structs; null for -1."""
    at = pa.array(places, mask=places < 0)
    assert ranked.order is not None
    numbers = (ranked.source, ranked.partition, ranked.offset, ranked.step)
    columns = [as_numbers(ranked.order).take(at), *(pa.array(column).take(at) for column in numbers)]
    names = ["order", "source", "partition", "offset", "step"]
    return pa.StructArray.from_arrays(columns, names, mask=pa.array(places < 0))


def _hidden(part: _Part, kept: Ints, asked: Mapping[int, Walk], without: Collection[int]) -> dict[str, pa.Array]:
    """Returns columns that name the row whose values the kept changes need, where that row had another key. without:
    indexes of changes that need a value which only the table can have.
    """
    if not asked:
        return {}
    origins, alone, key_changes = kept.copy(), np.full(kept.size, -1), np.full(kept.size, -1)
    for n, walk in asked.items():
        origins[n], alone[n], key_changes[n] = walk.origin, walk.alone, walk.key_changes[-1]
    places, others = pa.array(origins, mask=origins == kept), pa.array(alone, mask=alone < 0)
    keys = [key.take(places) for key in part.ranked.keys]
    assert part.times is not None
    times = part.times.take(others)
    if times.null_count < len(times):
        keys = [pc.coalesce(old.take(others), key) for old, key in zip(part.old_keys, keys, strict=True)]
    is_without = np.zeros(kept.size, np.bool_)
    is_without[list(without)] = True
    hidden = {
        KEY_CHANGED: pa.array(is_without),
        KEY_CHANGED_AT: times,
        **{f"{OLD_KEY}{n}": key for n, key in enumerate(keys)},
    }
    if part.ranked.order is not None:
        hidden[KEY_CHANGED_ORDER] = part.ranked.order.take(pa.array(key_changes, mask=key_changes < 0))
        here = pa.array(origins, mask=(origins == kept) | (alone >= 0))
        hidden[KEY_CHANGED_IN] = pa.array(part.ranked.partition).take(here)
    if part.ranked.read is not None:
        hidden[LATER_KEYS] = _later_keys(part.ranked, kept.size, asked)
    return hidden


def _later_keys(ranked: Ranked, count: int, asked: Mapping[int, Walk]) -> pa.ListArray:
    """See LATER_KEYS."""
    assert ranked.order is not None
    sizes = np.zeros(count + 1, np.int32)
    for n, walk in asked.items():
        sizes[n + 1] = len(walk.key_changes)
    at = pa.array([mover for n in sorted(asked) for mover in asked[n].key_changes], pa.int64())
    columns = [*ranked.keys, ranked.order, pa.array(ranked.partition)]
    names = [*(f"k{n}" for n in range(len(ranked.keys))), "order", "partition"]
    later_keys = pa.StructArray.from_arrays([column.take(at) for column in columns], names)
    return pa.ListArray.from_arrays(pa.array(np.cumsum(sizes, dtype=np.int32)), later_keys)


def _buffered(part: _Part, rows: Ints) -> pa.Table:
    buffered = part.rows.take(pa.array(rows)).append_column(KEY_PLACE, pa.array(rows))
    for name, mask in part.waits.items():
        buffered = buffered.append_column(WAITING + name, pa.array(mask[rows]))
    for name, values in part.hidden.items():
        buffered = buffered.append_column(name, values.take(pa.array(rows)))
    return buffered
