"""The two halves of a change of the key, a delete and an insert that are told as records of their own: no batch may take one
without the other, as large values that the insert does not carry are in the row that the delete takes away.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from frazil.kafka.port import Partition
from frazil.types import KeyUpdatePart

Place = tuple[str, int, int]


@dataclass
class PendingUpdate:
    """What is known of a record whose change of the key is not complete yet."""

    #: When the table met the record first, by the clock of the process.
    since_ms: int
    #: How far the partitions reached a minute later: the source writes both halves at once, so the other one is before.
    ends: Mapping[Partition, int] | None = None


@dataclass
class _Pair:
    """What there is of one change: a source that repeats itself tells the halves more than once."""

    deletes: list[KeyUpdatePart] = field(default_factory=list)
    inserts: list[KeyUpdatePart] = field(default_factory=list)


class IncompleteUpdates:
    """The halves among the records of one task. abandoned: places of those whose other half is not waited for any longer.
    applied_early: topic and position of changes whose insert is in the table, as it came first and had all of its values.
    """

    def __init__(self, abandoned: Collection[Place] = (), applied_early: Collection[tuple[str, str]] = ()) -> None:
        self._abandoned = frozenset(abandoned)
        self._applied_early = frozenset(applied_early)
        self._pairs: dict[tuple[str, str], _Pair] = defaultdict(_Pair)

    def take(self, topic: str, found: Sequence[tuple[int, str, bool]], records: Mapping[str, pa.Array]) -> None:
        """More of them. found: as Changes has them, of these records."""
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
        """Whether there is a delete without its insert."""
        return any(pair.deletes and not pair.inserts for pair in self._pairs.values())

    def alone(self) -> tuple[KeyUpdatePart, ...]:
        """Those without their other half."""
        lone = (pair for pair in self._pairs.values() if not (pair.deletes and pair.inserts))
        return tuple(part for pair in lone for part in (*pair.deletes, *pair.inserts))

    def ends(self) -> dict[str, dict[int, int]]:
        """Per topic and partition where the batch must end so that it has both halves or none of them; empty where it need
        not end earlier. An insert without its delete does not count: the values may be there without it.
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
    """The halves before these ends of a change whose others are all behind them."""
    deletes, inserts = _before(pair.deletes, ends), _before(pair.inserts, ends)
    return [] if deletes and inserts else [*deletes, *inserts]


def _before(key_update_parts: Iterable[KeyUpdatePart], ends: Mapping[Partition, int]) -> list[KeyUpdatePart]:
    return [part for part in key_update_parts if part.offset < ends.get((part.topic, part.partition), math.inf)]
