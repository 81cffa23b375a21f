"""How far a table has been read and may be read, beside the progress that its snapshots hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from frazil.ingest.transactions.runs import Cut, Held
from frazil.kafka.port import Partition, TopicDescription
from frazil.types import Offsets


@dataclass
class OffsetState:
    """A table's topics and offsets."""

    #: The topics that feed the table, as Kafka last described them, by name.
    topics: dict[str, TopicDescription] = field(default_factory=dict)
    #: The offsets at which partitions without progress begin, and the ids that their topics had then.
    first: dict[str, dict[int, int]] = field(default_factory=dict)
    first_ids: dict[str, str] = field(default_factory=dict)
    #: The partitions that the setting `start` applies to; None before a topic was seen.
    at_start: frozenset[Partition] | None = None
    #: Offsets (from, to) that Kafka no longer has and that no commit has recorded yet; how many this process has skipped.
    skipped: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    skipped_offsets: int = 0
    #: Whether the committed offsets must be compared with what Kafka still has before the next read.
    needs_check: bool = True
    #: The ends at which there was nothing left to read; None where that is not known.
    read_to: Mapping[Partition, int | None] | None = None
    lag_records: int = 0
    #: How far records have been read without finding a column, and in how many batches.
    empty_to: Offsets = field(default_factory=dict)
    empty_batches: int = 0
    #: Where the next batch ends so that it divides no transaction and no primary-key update.
    cut: Cut | None = None
    #: That there is no such end yet, and until when the table waits for one.
    held: Held | None = None

    def begun(self, committed: Offsets) -> dict[str, dict[int, int]]:
        """The committed offsets, and the first offsets of partitions that have none."""
        vector = {topic: dict(partitions) for topic, partitions in committed.items()}
        for topic, partitions in self.first.items():
            mine = vector.setdefault(topic, {})
            for partition, offset in partitions.items():
                mine.setdefault(partition, offset)
        return vector

    def position(self, committed: Offsets) -> Offsets:
        """The offsets to read from: those of `begun`, behind what is skipped. Topics that do not exist now keep theirs."""
        vector = self.begun(committed)
        for topic, lost in self.skipped.items():
            for partition, (_, to) in lost.items():
                vector[topic][partition] = max(to, vector[topic][partition])
        return vector

    def partitions(self) -> list[Partition]:
        """Every partition of the topics that exist."""
        return [(t.name, p) for t in self.topics.values() for p in range(t.partition_count)]

    def skip(self, topic: str, partition: int, start: int, end: int) -> None:
        """Reads on from `end`, as the records before it are gone. What was skipped before and is not committed stays so."""
        lost = self.skipped.setdefault(topic, {})
        lost[partition] = (lost[partition][0] if partition in lost else start, end)
        self.skipped_offsets += end - start

    def forget_skipped(self, committed: Offsets) -> None:
        """After a load: a partition that begins elsewhere now was committed meanwhile, or rolled back."""
        begun = self.begun(committed)
        kept: dict[str, dict[int, tuple[int, int]]] = {}
        for topic, partitions in self.skipped.items():
            for partition, lost in partitions.items():
                if begun.get(topic, {}).get(partition) == lost[0]:
                    kept.setdefault(topic, {})[partition] = lost
        self.needs_check |= kept != self.skipped
        self.skipped = kept
