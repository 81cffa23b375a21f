"""Whether replayed dead letters may still change their rows. Pure, except for the columns of live rows that it reads.

The last change of a key decides its row. A dead letter that is replayed late applies where no newer change is known to
exist, and never replaces anything newer (docs/decisions/0010).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.dead_letters.changes import (
    NEWER_EXISTS,
    NOTHING_NEWER,
    ChangeReader,
    numbers_of_keys,
    of_keys,
    ranked_changes,
)
from frazil.dead_letters.files import Place, by_topic, records_of
from frazil.decode.columns import Mismatch
from frazil.error_classes import ErrorClass
from frazil.schema.arrow import Bools, Ints
from frazil.stages.changes import DELETE, TRUNCATE, UPSERT, Changes
from frazil.types import Offsets
from frazil.upsert.deduplicate import KeySet, LatestChanges, Ranked, concat_ranked, deduplicate, key_codes
from frazil.upsert.lookup.live_rows import read_columns
from frazil.upsert.lookup.search import Found, newest_order
from frazil.upsert.truncates import have_place, is_truncated
from frazil.write.target import TableTarget

Verdicts = NDArray[np.int8]
APPLY, SUPERSEDED, UNKNOWN, BLOCKED, ASK, ASK_OR_APPLY = range(6)
"""Verdicts: it applies; a newer change is in the table; unknown; a newer dead letter that remains deletes the row; the
topic may know, else unknown; the topic may know better, else it applies.
"""
_SUPERSEDED = Mismatch(
    0, "", ErrorClass.SUPERSEDED, "a newer change of the row is in the table, or follows this one in its partition"
)
_UNKNOWN = Mismatch(
    0,
    "",
    ErrorClass.ORDER_UNKNOWN,
    "it is unknown whether a newer change of the row exists: neither the row in the table nor the topic shows it",
)
_BLOCKED = Mismatch(
    0,
    "",
    ErrorClass.NEWER_DEAD_LETTER,
    "a newer change deletes the row, and is a dead letter itself: replay them together, or drop both if it is a"
    " truncate",
)


def by_table(target: TableTarget, topics: Sequence[str], only_topic: str, keys: Ranked, live_rows: Found) -> Verdicts:
    """Returns per key the verdict of its live rows on the change that decides it, int8 `(n_keys,)`. topics: by their
    numbers in `keys`. only_topic: the only topic of the table; empty where there may be several.

    Raises: OSError where the store fails.
    """
    verdicts = _without_row(target, keys)
    if not live_rows.hits:
        return verdicts
    has_row = np.zeros(len(keys), np.bool_)
    has_row[live_rows.keys()] = True
    verdicts[has_row] = _by_arrival(target, topics, only_topic, keys, live_rows)[has_row]
    if keys.order is not None:
        live = newest_order(target, live_rows, len(keys))
        is_older = _true(pc.less(keys.order, live.order))
        # Behind a snapshot row an older position means nothing: order of arrival decides, as between equal positions.
        by_arrival = _true(pc.equal(keys.order, live.order)) | (is_older & live.were_read_in(keys.partition))
        is_ordered = has_row & np.asarray(keys.order.is_valid()) & ~by_arrival
        verdicts[is_ordered] = ASK_OR_APPLY
        verdicts[is_ordered & is_older] = SUPERSEDED
    return verdicts


def are_marked(target: TableTarget, live_rows: Found, key_count: int) -> Bools:
    """Returns per key whether its row is in the table and marked as deleted, bool `(n_keys,)`.

    Raises: OSError where the store fails.
    """
    marked, column = np.zeros(key_count, np.bool_), dict(target.metadata).get("deleted", "")
    for hit in live_rows.hits if column else ():
        (flags,) = read_columns(target, hit.file, [(column,)], hit.rows)
        marked[hit.keys[_true(flags)]] = True
    return marked


def _without_row(target: TableTarget, keys: Ranked) -> Verdicts:
    """Returns the verdicts for keys without a row, which may have been deleted since."""
    verdicts = np.full(len(keys), ASK, np.int8)
    if keys.order is not None:
        verdicts[np.asarray(keys.order.is_valid())] = ASK_OR_APPLY  # As for any late change.
    assert target.changes is not None
    if target.changes.marks_deletes and target.envelope is None:
        verdicts[:] = APPLY  # A deleted row would still be in the table, marked.
    verdicts[keys.ops == DELETE] = APPLY
    return verdicts


def _by_arrival(
    target: TableTarget, topics: Sequence[str], only_topic: str, keys: Ranked, live_rows: Found
) -> Verdicts:
    """Returns the verdicts for keys with rows, by the columns that record where a row comes from."""
    columns = dict(target.metadata)
    rows = live_rows.keys()
    if not columns.keys() >= {"partition", "offset"} or not (only_topic or "topic" in columns):
        return np.full(len(keys), ASK, np.int8)
    wanted = [(columns[name],) for name in ("partition", "offset", "topic") if name in columns]
    parts = [read_columns(target, hit.file, wanted, hit.rows) for hit in live_rows.hits]
    partition, offset, *topic = (pa.concat_arrays(arrays) for arrays in zip(*parts, strict=True))
    own_topic = pa.array([topics[source] for source in keys.source[rows].tolist()], pa.string())
    of_topic = topic[0] if topic else pa.repeat(pa.scalar(only_topic), len(rows))
    is_known = np.asarray(pc.and_(pc.and_(partition.is_valid(), offset.is_valid()), of_topic.is_valid()))
    is_same = _true(pc.equal(partition, pa.array(keys.partition[rows]))) & _true(pc.equal(of_topic, own_topic))
    is_newer = is_known & is_same & _true(pc.greater(offset, pa.array(keys.offset[rows])))
    verdicts = np.full(len(keys), APPLY, np.int8)
    verdicts[rows[~is_known]] = ASK
    verdicts[rows[is_known & ~is_same]] = UNKNOWN
    verdicts[rows[is_newer]] = SUPERSEDED
    return verdicts


def not_reached(verdicts: Verdicts, topics: Sequence[str], keys: Ranked, live: Bools, offsets: Offsets) -> Verdicts:
    """Returns the verdicts with UNKNOWN for dead letters beyond the table's progress: the table was rolled back and
    will read them again, or their topic was recreated and offsets are meaningless. live: which keys have rows. offsets:
    the table's progress.
    """
    places = zip(keys.source.tolist(), keys.partition.tolist(), strict=True)
    ends = [offsets.get(topics[source], {}).get(partition, 0) for source, partition in places]
    is_beyond = keys.offset >= np.array(ends, np.int64)
    asks_nothing = (keys.ops == DELETE) & ~live
    is_by_offset = (verdicts == APPLY) | (verdicts == ASK)
    return np.where(is_beyond & is_by_offset & ~asks_nothing, UNKNOWN, verdicts).astype(np.int8)


def with_log(verdicts: Verdicts, from_topics: Verdicts) -> Verdicts:
    """Returns the verdicts after the topics were read. from_topics: their result per key, of `newer_changes`."""
    after_log = np.where(verdicts == ASK_OR_APPLY, APPLY, np.where(verdicts == ASK, UNKNOWN, verdicts))
    is_asked = (verdicts == ASK) | (verdicts == ASK_OR_APPLY)
    after_log = np.where(is_asked & (from_topics == NOTHING_NEWER), APPLY, after_log)
    return np.where(is_asked & (from_topics == NEWER_EXISTS), SUPERSEDED, after_log).astype(np.int8)


def staying(
    changes: Ranked, topics: Sequence[str], keys: Sequence[pa.Array], verdicts: Verdicts, live: Bools
) -> tuple[Mapping[Place, Mismatch], Verdicts]:
    """Returns the dead letters that remain, with the reason, and the resulting verdicts by key. A dead letter is
    replayed as a whole: where one of its changes must wait, all of them wait.

    changes: of all dead letters. keys: the keys of `verdicts` and of `live` (whether there is a row).
    """
    key_numbers = numbers_of_keys(KeySet(keys), changes)
    places = np.stack([changes.source, changes.partition, changes.offset], axis=1)
    distinct, dead_letter = np.unique(places, axis=0, return_inverse=True)
    dead_letter, verdicts = dead_letter.reshape(-1), verdicts.copy()
    waits = {verdict: _spread(verdicts, key_numbers, dead_letter, verdict) for verdict in (UNKNOWN, BLOCKED)}
    counts, late = np.zeros(len(distinct), np.bool_), np.zeros(len(distinct), np.bool_)
    counts[dead_letter[(verdicts[key_numbers] == APPLY) & ((changes.ops == UPSERT) | live[key_numbers])]] = True
    late[dead_letter[verdicts[key_numbers] == SUPERSEDED]] = True
    remaining: dict[Place, Mismatch] = {}
    for n, (source, partition, offset) in enumerate(distinct.tolist()):
        waiting = _UNKNOWN if waits[UNKNOWN][n] else _BLOCKED if waits[BLOCKED][n] else None
        if waiting is not None or (late[n] and not counts[n]):
            remaining[topics[source], partition, offset] = waiting or _SUPERSEDED
    return remaining, verdicts


def _spread(verdicts: Verdicts, key_numbers: Ints, dead_letter: Ints, verdict: int) -> Bools:
    """Returns which dead letters wait for this reason; sets the verdicts of all their changes. key_numbers: the key of each
    change. dead_letter: its number.
    """
    waits = np.zeros(int(dead_letter.max(initial=-1)) + 1, np.bool_)
    while True:
        waits[dead_letter[verdicts[key_numbers] == verdict]] = True
        more = key_numbers[waits[dead_letter] & ~np.isin(verdicts[key_numbers], (UNKNOWN, BLOCKED))]
        if not more.size:
            return waits
        verdicts[more] = verdict


def _true(flags: pa.Array) -> Bools:
    return np.asarray(pc.fill_null(flags, False), np.bool_)


class RemainingDeadLetters:
    """The dead letters that are not replayed, read when they are first needed.

    dead_letters: yields them in pieces. truncates: truncates among the replayed dead letters, which remain too. topics:
    the topics of the replayed dead letters, by number. target, fetch: see NewerChanges. A dead letter that cannot be
    read at present blocks nothing.
    """

    def __init__(
        self,
        dead_letters: Callable[[], Iterable[pa.Table]],
        truncates: Sequence[Ranked],
        topics: Sequence[str],
        target: TableTarget,
        reader: ChangeReader,
    ) -> None:
        self._dead_letters = dead_letters
        self._truncates = truncates
        self._topics = topics
        self._target = target
        self._reader = reader
        self._changes_read: list[Ranked] | None = None

    def verdicts(self, changes: Ranked, latest: LatestChanges) -> Verdicts:
        """Returns per key that replayed dead letters decide whether a remaining dead letter would delete its row, int8
        `(n_keys,)`. UNKNOWN where that is unknown: a truncate of another partition may be older. changes, latest: of
        the replayed dead letters, the same in each call.
        """
        keys = changes.take(latest.last)
        if self._changes_read is None:
            self._changes_read = [*self._truncates, *self._read(KeySet(keys.keys))]
        combined = concat_ranked([changes, *self._changes_read])
        are_placed = have_place(self._target, combined)
        is_gone = is_truncated(self._target, keys, _newest(combined, are_placed))
        combined = combined.take(np.flatnonzero(~are_placed))
        codes, last = key_codes(combined.keys), deduplicate(combined).last
        stays = np.zeros(int(codes.max()) + 1, np.bool_)
        stays[codes[last[combined.ops[last] == UPSERT]]] = True
        is_gone |= ~stays[codes[latest.last]]
        is_unknown = np.zeros(len(keys), np.bool_)
        for source, partition, offset in _last_truncates(combined):
            is_same = (keys.source == source) & (keys.partition == partition)
            is_gone |= is_same & (keys.offset < offset)
            is_unknown |= ~is_same
        return np.where(is_unknown, UNKNOWN, np.where(is_gone, BLOCKED, APPLY)).astype(np.int8)

    def _read(self, keys: KeySet) -> Iterator[Ranked]:
        """Yields the changes of these keys, and truncates."""
        for dead_letters in self._dead_letters():
            for topic, batch in by_topic(dead_letters):
                changes = self._changes(topic, batch)
                if changes is not None:
                    yield of_keys(keys, changes)

    def _changes(self, topic: str, dead_letters: pa.RecordBatch) -> Ranked | None:
        records = records_of(self._target, dead_letters)
        changes, self._target = self._reader.read(self._target, topic, records)
        kept = changes.without_refused()
        if not kept.ops.size:
            return None
        number = self._topics.index(topic) if topic in self._topics else len(self._topics)
        ranked = ranked_changes(self._target, number, kept, records)
        return replace(ranked, ops=np.where(_are_marks(kept), DELETE, ranked.ops).astype(np.int8))


def _newest(changes: Ranked, are_placed: NDArray[np.bool_]) -> str:
    """Returns the position of the newest of these truncates; empty without one."""
    if changes.order is None or not are_placed.any():
        return ""
    return str(pc.max(changes.order.filter(pa.array(are_placed))))


def _last_truncates(changes: Ranked) -> Iterator[tuple[int, int, int]]:
    """Yields topic, partition and offset of the last truncate of each partition."""
    are_truncates = changes.ops == TRUNCATE
    numbers = (column[are_truncates].tolist() for column in (changes.source, changes.partition, changes.offset))
    last = {(source, partition): offset for source, partition, offset in sorted(zip(*numbers, strict=True))}
    yield from ((*place, offset) for place, offset in last.items())


def _are_marks(changes: Changes) -> NDArray[np.bool_]:
    """Returns which changes mark their row as deleted, bool `(n_changes,)`."""
    if "deleted" not in changes.own:
        return np.zeros(changes.ops.size, np.bool_)
    return np.asarray(changes.own["deleted"].fill_null(False), np.bool_)
