"""Primary-key updates whose delete part and insert part are separate records: a batch must contain both parts or
neither, because large values that the insert part does not carry are in the row that the delete part deletes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from frazil.kafka.port import Partition
from frazil.report.changes import KeyUpdatePart

Place = tuple[str, int, int]


@dataclass
class PendingUpdate:
    """The state of a primary-key update of which only one part has been read."""

    #: When the table first met the record, by the clock of the process.
    since_ms: int
    #: The ends of the partitions one minute later: the source writes both parts at once, so the other part is before
    #: these.
    ends: Mapping[Partition, int] | None = None


@dataclass
class _Pair:
    """The parts of one primary-key update: a source that repeats changes sends each part more than once."""

    deletes: list[KeyUpdatePart] = field(default_factory=list)
    inserts: list[KeyUpdatePart] = field(default_factory=list)


class IncompleteUpdates:
    """The parts of primary-key updates among the records of one task.

    abandoned: places of parts whose other part is no longer waited for. applied_early: topic and position of updates
    whose insert part is already in the table, because it arrived first and had all of its values.
    """

    def __init__(self, abandoned: Collection[Place] = (), applied_early: Collection[tuple[str, str]] = ()) -> None:
        self._abandoned = frozenset(abandoned)
        self._applied_early = frozenset(applied_early)
        self._pairs: dict[tuple[str, str], _Pair] = defaultdict(_Pair)

    def take(self, topic: str, found: Sequence[tuple[int, str, bool]], records: Mapping[str, pa.Array]) -> None:
        """Adds parts. found: see Changes.key_update_parts, for these records."""
        for row, position, is_delete in found:
            if is_delete and (topic, position) in self._applied_early:
                continue
            partition, offset = records["partition"][row].as_py(), records["offset"][row].as_py()
            at_ms = records["timestamp"].cast(pa.int64())[row].as_py() // 1000
            part = KeyUpdatePart(topic, partition, offset, at_ms, position, is_delete)
            if part.place not in self._abandoned:
                pair = self._pairs[topic, position]
                (pair.deletes if is_delete else pair.inserts).append(part)

    @property
    def has_lone_deletes(self) -> bool:
        """Whether there is a delete part without its insert part."""
        return any(pair.deletes and not pair.inserts for pair in self._pairs.values())

    def alone(self) -> tuple[KeyUpdatePart, ...]:
        """Returns the parts without their other part."""
        lone = (pair for pair in self._pairs.values() if not (pair.deletes and pair.inserts))
        return tuple(part for pair in lone for part in (*pair.deletes, *pair.inserts))

    def ends(self) -> dict[str, dict[int, int]]:
        """Returns per topic and partition the offset at which the batch must end so that it contains both parts or
        neither; empty where it need not end earlier. An insert part without its delete part does not count: it may have
        all of its values.
        """
        pairs = [pair for pair in self._pairs.values() if pair.deletes]
        ends: dict[Partition, int] = {}
        while divided := [part for pair in pairs for part in _divided(pair, ends)]:
            for part in divided:
                place = part.topic, part.partition
                ends[place] = min(part.offset, ends.get(place, part.offset))
        found: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in ends.items():
            found.setdefault(topic, {})[partition] = offset
        return found


def _divided(pair: _Pair, ends: Mapping[Partition, int]) -> list[KeyUpdatePart]:
    """Returns the parts before these ends of an update whose other parts all lie behind them."""
    deletes, inserts = _before(pair.deletes, ends), _before(pair.inserts, ends)
    return [] if deletes and inserts else [*deletes, *inserts]


def _before(key_update_parts: Iterable[KeyUpdatePart], ends: Mapping[Partition, int]) -> list[KeyUpdatePart]:
    return [part for part in key_update_parts if part.offset < ends.get((part.topic, part.partition), math.inf)]
