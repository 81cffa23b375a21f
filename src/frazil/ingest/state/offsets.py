"""The offsets that a table was read to and may be read to, besides the progress in its snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from frazil.ingest.transactions.runs import Cut, Waiting
from frazil.kafka.port import Partition, TopicDescription
from frazil.types import Offsets


@dataclass
class OffsetState:
    """A table's topics and offsets."""

    #: The topics that feed the table, as Kafka last described them, by name.
    topics: dict[str, TopicDescription] = field(default_factory=dict)
    #: The offsets at which partitions without progress begin.
    first: dict[str, dict[int, int]] = field(default_factory=dict)
    #: The ids that the topics of `first` had when these offsets were read.
    first_ids: dict[str, str] = field(default_factory=dict)
    #: The partitions that the setting `start` applies to; None before a topic was seen.
    at_start: frozenset[Partition] | None = None
    #: Offsets (from, to) that Kafka no longer has and that no commit has recorded yet.
    skipped: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    #: The number of offsets that this process has skipped.
    skipped_offsets: int = 0
    #: Whether the committed offsets must be compared with what Kafka still has before the next read.
    needs_check: bool = True
    #: The ends at which there was nothing left to read; None where that is not known.
    read_to: Mapping[Partition, int | None] | None = None
    #: Offsets between the table's position and the ends.
    lag_records: int = 0
    #: The offsets up to which records have been read without finding a column.
    empty_to: Offsets = field(default_factory=dict)
    #: The number of batches that were read without finding a column.
    empty_batches: int = 0
    #: The end of the next batch at which it divides no transaction and no primary-key update.
    cut: Cut | None = None
    #: The wait for such an end, while there is none.
    waiting: Waiting | None = None

    def begun(self, committed: Offsets) -> dict[str, dict[int, int]]:
        """Returns the committed offsets, with the first offsets of partitions that have none."""
        vector = {topic: dict(partitions) for topic, partitions in committed.items()}
        for topic, partitions in self.first.items():
            mine = vector.setdefault(topic, {})
            for partition, offset in partitions.items():
                mine.setdefault(partition, offset)
        return vector

    def position(self, committed: Offsets) -> Offsets:
        """Returns the offsets to read from: those of `begun`, moved behind skipped offsets. Topics that do not exist
        keep theirs.
        """
        vector = self.begun(committed)
        for topic, lost in self.skipped.items():
            for partition, (_, to) in lost.items():
                vector[topic][partition] = max(to, vector[topic][partition])
        return vector

    def partitions(self) -> list[Partition]:
        """Returns every partition of the topics that exist."""
        return [(t.name, p) for t in self.topics.values() for p in range(t.partition_count)]

    def skip(self, topic: str, partition: int, start: int, end: int) -> None:
        """Moves the position of a partition to `end`, as the records before it are gone. Earlier skipped offsets that
        are not committed are kept.
        """
        lost = self.skipped.setdefault(topic, {})
        lost[partition] = (lost[partition][0] if partition in lost else start, end)
        self.skipped_offsets += end - start

    def forget_skipped(self, committed: Offsets) -> None:
        """Drops the skipped offsets of partitions whose first offset differs after a load: they were committed
        meanwhile, or rolled back.
        """
        begun = self.begun(committed)
        kept: dict[str, dict[int, tuple[int, int]]] = {}
        for topic, partitions in self.skipped.items():
            for partition, lost in partitions.items():
                if begun.get(topic, {}).get(partition) == lost[0]:
                    kept.setdefault(topic, {})[partition] = lost
        self.needs_check |= kept != self.skipped
        self.skipped = kept
