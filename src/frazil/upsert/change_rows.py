"""A task's changes of one table: kept until all are there, folded, and written as rows.

Rows that wait for values of the row they replace, or for the changes of other tasks, are not written: the driver writes
those that it takes (see `ingest.upsert`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.cdc.source.positions import split_snapshot_marks
from frazil.schema.arrow import pick
from frazil.upsert.changes import UPSERT, Changes
from frazil.upsert.deduplicate import (
    Ints,
    LatestChanges,
    Ranked,
    concat_ranked,
    deduplicate,
    dump_ranked,
    dump_table,
    previous_places,
)
from frazil.upsert.lookup.live_rows import as_numbers
from frazil.upsert.old_values.primary_key_updates import (
    KEY_CHANGED,
    KEY_CHANGED_AT,
    KEY_CHANGED_IN,
    KEY_CHANGED_ORDER,
    LATER_KEYS,
    OLD_KEY,
    KeyUpdates,
    Place,
    Walk,
    find_key_updates,
    record_of,
)
from frazil.upsert.old_values.row_places import ends_of_chains
from frazil.upsert.records.read_changes import keys_of
from frazil.upsert.truncates import SeparatedTruncates, separate_truncates
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter

_DEDUPLICATE_AT = 1_000_000
KEY_PLACE = "\x00key"
"""A column of held rows: the place of the row's key in the touched keys."""
WAITING = "\x00waits:"
"""How columns of held rows begin that say whether a column waits for the value of the old row."""
GIVEN = "\x00given:"
"""How columns of held rows begin that say which change has given a column its value, by its place in the order of a column.
Another task's change, or the row in the table, may be between the two; null where the value is the row's own.
"""


@dataclass(frozen=True)
class _Part:
    """Changes with their rows. waits: by column of the table the rows that have no value of their own for it. old_keys,
    positions, times: as in Changes. marks: which mark a row as deleted. hidden: columns of held rows that say where their
    values are, or are from.
    """

    ranked: Ranked
    rows: pa.Table
    waits: Mapping[str, NDArray[np.bool_]]
    count: int
    old_keys: tuple[pa.Array, ...] = ()
    positions: pa.Array | None = None
    hidden: Mapping[str, pa.Array] = field(default_factory=dict)
    times: pa.Array | None = None
    marks: NDArray[np.bool_] | None = None


class ChangeRows:
    """Takes changes in any order; `finish` writes what is left of them.

    lost: topic, partition and offset of records whose row had another key, and the row of that key is not known; unplaced:
    of truncates that have no place among the changes. emptied: the place of the newest truncate that has one.
    """

    def __init__(self, target: TableTarget, topics: Sequence[str]) -> None:
        self._target = target
        self._topics = topics
        self._parts: list[_Part] = []
        self._pending = 0
        self._is_kept = target.is_single_task
        self._departed: set[Place] = set()
        self.lost: set[tuple[str, int, int]] = set()
        self.unplaced: set[tuple[str, int, int]] = set()
        self.emptied = ""

    def take(self, topic: str, rows: pa.Table, changes: Changes, records: Mapping[str, pa.Array]) -> None:
        """Changes with a row of the files' schema each. records: their records' columns, as many as there are changes."""
        if not changes.ops.size:
            return
        separated = separate_truncates(self._target, changes)
        if not separated.kept.all():
            self._note_truncates(topic, separated, records)
            kept = np.flatnonzero(separated.kept)
            rows, changes, records = rows.take(pa.array(kept)), changes.only(separated.kept), pick(records, kept)
        ranked, count = rank(self._target, self._topics.index(topic), rows, changes, records), changes.ops.size
        is_departed = np.isin(changes.records, [row for row, _, is_delete in changes.key_update_parts if is_delete])
        self._departed.update(record_of(ranked, place) for place in np.flatnonzero(is_departed).tolist())
        names = [one.name for one in self._target.fields]
        waits = {names[n]: mask for n, mask in changes.unavailable.items()}
        part = _Part(ranked, rows, waits, count, tuple(changes.old_keys or ()), changes.positions, times=changes.times)
        if "deleted" in changes.own:
            part = replace(part, marks=np.asarray(changes.own["deleted"]))
        self._parts.append(part)
        self._pending += count
        self._is_kept |= ranked.order is not None and bool(waits)  # Which change gave a value is known for one fold.
        # What is left of a fold is in the next one again: where most keys are new, ever larger lots keep the sum small.
        if self._pending >= max(_DEDUPLICATE_AT, len(self._parts[0].ranked)) and not self._is_kept:
            self._deduplicate()

    def finish(self, writer: FileWriter) -> tuple[str, str, int]:
        """Writes a row of each key that has all its values; keys and held rows as text, and the count of changes."""
        if not self._parts:
            return "", "", 0
        if self._pending or len(self._parts) > 1:
            self._deduplicate()
        (part,) = self._parts
        waiting = np.zeros(len(part.ranked), np.bool_)
        for mask in part.waits.values():
            waiting |= mask
        if part.ranked.order is not None:
            # One row of a key is written; what may come to decide in its place is held as well.
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
        # The rows are written, and the text of the keys takes memory of its own.
        self._parts = []
        del part, complete
        return dump_ranked(ranked), buffered, count

    def _note_truncates(self, topic: str, separated: SeparatedTruncates, records: Mapping[str, pa.Array]) -> None:
        self.emptied = max(self.emptied, separated.emptied)
        for n in np.flatnonzero(separated.unplaced).tolist():
            self.unplaced.add((topic, records["partition"][n].as_py(), records["offset"][n].as_py()))

    def _deduplicate(self) -> None:
        merged = _concat(self._parts)
        latest = deduplicate(merged.ranked, np.logical_or.reduce(list(merged.waits.values())) if merged.waits else None)
        self._pending = 0
        if latest.kept.size == len(merged.ranked) and not merged.waits and latest.cut < 0:
            self._parts = [merged]  # No key was there twice.
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


def rank(target: TableTarget, source: int, rows: pa.Table, changes: Changes, records: Mapping[str, pa.Array]) -> Ranked:
    """The changes with their places in the order. source: the number of their topic; rows, records: as `take` has them."""
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
    """Changes that are kept: their rows, which values still wait for a row in the table, where that row is, and the places
    of those whose row is nowhere.
    """

    rows: pa.Table
    waits: dict[str, NDArray[np.bool_]]
    hidden: Mapping[str, pa.Array]
    lost: list[int]


def _fill(part: _Part, latest: LatestChanges, key_updates: KeyUpdates) -> _Filled:
    """Gives the changes that are kept values of the changes before them where they have none of their own."""
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
            # One that goes further passes all that the others do.
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
    # After a truncate there is no old row whose values could stay.
    places = np.array(sorted(lost), np.int64)
    deciding = places[np.isin(places, latest.last)].tolist()
    return _Filled(rows, waits if latest.cut < 0 else {}, {**_hidden(part, kept, asked, without), **given}, deciding)


@dataclass(frozen=True)
class _Walked:
    """Where the values are that kept changes have not got themselves. lack: which these are. at: per kept change which one
    has the value, or has taken it away; -1 where only the table can have it. updated: more of those whose row had another key.
    """

    lack: NDArray[np.bool_]
    at: Ints
    updated: dict[int, Walk]


def _walk(ranked: Ranked, before: Ints, mask: NDArray[np.bool_], kept: Ints, key_updates: KeyUpdates) -> _Walked:
    """See _Walked. Changes that had another key alone are gone through one by one."""
    lacks = mask & (ranked.ops == UPSERT)
    has_other_key = np.zeros(len(ranked), np.bool_)
    has_other_key[list(key_updates.deletes)] = True
    at = ends_of_chains(before, lacks & ~has_other_key)[kept]
    updated = {}
    for n in np.flatnonzero((at >= 0) & lacks[kept] & (lacks & has_other_key)[at]).tolist():
        updated[n] = key_updates.walk(ranked, before, mask, int(kept[n]))
        at[n] = updated[n].at
    return _Walked(lacks[kept], at, updated)


def _sources(ranked: Ranked, kept: Ints, walked: _Walked) -> tuple[Ints, NDArray[np.bool_]]:
    """Per kept change the place whose value it has, its own where none has one; and whether a row in the table has it. What
    was not sent is null, or, of a struct that has a key, that key.
    """
    has_value = walked.lack & (walked.at >= 0) & (ranked.ops[walked.at] == UPSERT)
    return np.where(has_value, walked.at, kept), walked.lack & (walked.at < 0)


def _providers(ranked: Ranked, walked: _Walked) -> Ints:
    """Per kept change which one in the order of a column has given it a value, or has left none; -1: none. Of a row with
    another key it may be one that the connector repeats, where the order is that of the source's log.
    """
    providers = np.where(walked.lack, walked.at, -1)
    providers[[n for n, walk in walked.updated.items() if ranked.read is None or walk.is_lost]] = -1
    return providers


def _places_of(ranked: Ranked, places: Ints) -> pa.Array:
    """Where these changes are in the order; null for -1."""
    at = pa.array(places, mask=places < 0)
    assert ranked.order is not None
    numbers = (ranked.source, ranked.partition, ranked.offset, ranked.step)
    columns = [as_numbers(ranked.order).take(at), *(pa.array(one).take(at) for one in numbers)]
    names = ["order", "source", "partition", "offset", "step"]
    return pa.StructArray.from_arrays(columns, names, mask=pa.array(places < 0))


def _hidden(part: _Part, kept: Ints, asked: Mapping[int, Walk], without: Collection[int]) -> dict[str, pa.Array]:
    """Columns that name the rows that kept changes wait for, where these had another key. without: those that have a value
    which the table alone can have.
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
    found = {
        KEY_CHANGED: pa.array(is_without),
        KEY_CHANGED_AT: times,
        **{f"{OLD_KEY}{n}": key for n, key in enumerate(keys)},
    }
    if part.ranked.order is not None:
        found[KEY_CHANGED_ORDER] = part.ranked.order.take(pa.array(key_changes, mask=key_changes < 0))
        here = pa.array(origins, mask=(origins == kept) | (alone >= 0))
        found[KEY_CHANGED_IN] = pa.array(part.ranked.partition).take(here)
    if part.ranked.read is not None:
        found[LATER_KEYS] = _later_keys(part.ranked, kept.size, asked)
    return found


def _later_keys(ranked: Ranked, count: int, asked: Mapping[int, Walk]) -> pa.ListArray:
    """See GOT."""
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
