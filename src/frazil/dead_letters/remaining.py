"""Dead letters that remain while others are replayed, and that would delete the replayed rows: the delete of a row may
itself be a dead letter, which neither the table nor the topic reports. Truncates always remain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.dead_letters.files import records_of
from frazil.dead_letters.newer_changes import Fetch, read_with
from frazil.dead_letters.superseded import APPLY, BLOCKED, UNKNOWN, Verdicts
from frazil.schema.arrow import pick
from frazil.upsert.change_rows import rank
from frazil.upsert.changes import DELETE, TRUNCATE, UPSERT, Changes
from frazil.upsert.deduplicate import KeySet, LatestChanges, Ranked, concat_ranked, deduplicate, key_codes
from frazil.upsert.records.read_changes import rows_of
from frazil.upsert.truncates import have_place, is_truncated
from frazil.write.target import TableTarget


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
        fetch: Fetch,
    ) -> None:
        self._dead_letters = dead_letters
        self._truncates = truncates
        self._topics = topics
        self._target = target
        self._fetch = fetch
        self._found: list[Ranked] | None = None

    def verdicts(self, changes: Ranked, latest: LatestChanges) -> Verdicts:
        """Returns per key that replayed dead letters decide whether a remaining dead letter would delete its row, int8
        `(n_keys,)`. UNKNOWN where that is unknown: a truncate of another partition may be older. changes, latest: of
        the replayed dead letters, the same in each call.
        """
        keys = changes.take(latest.last)
        if self._found is None:
            self._found = [*self._truncates, *self._read(KeySet(keys.keys))]
        combined = concat_ranked([changes, *self._found])
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
            for topic in pc.unique(dead_letters["topic"]).to_pylist():
                for batch in dead_letters.filter(pc.equal(dead_letters["topic"], topic)).combine_chunks().to_batches():
                    found = self._changes(topic, batch)
                    if found is not None:
                        is_meant = keys.find([pa.chunked_array([key]) for key in found.keys]) >= 0
                        yield found.take(np.flatnonzero(is_meant | (found.ops == TRUNCATE)))

    def _changes(self, topic: str, dead_letters: pa.RecordBatch) -> Ranked | None:
        records = records_of(dead_letters)
        changes, self._target = read_with(self._fetch, self._target, topic, records)
        kept = changes.without_refused()
        if not kept.ops.size:
            return None
        of_change = pick(records, kept.records)
        number = self._topics.index(topic) if topic in self._topics else len(self._topics)
        ranked = rank(self._target, number, rows_of(self._target, kept, of_change), kept, of_change)
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
