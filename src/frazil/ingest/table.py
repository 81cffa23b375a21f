"""One table of a running pipeline: what is known of it, where it stands, and what `status` will say about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pyiceberg.schema import Schema

from frazil.catalog.port import TableSize, TableState
from frazil.ingest.job import HEAVY_BYTES
from frazil.ingest.plan import ASSUMED_RECORD_BYTES, TableClock
from frazil.ingest.target import TableTarget
from frazil.kafka.port import Partition, TopicDescription
from frazil.spec import TableSpec
from frazil.types import Offsets, Progress, TaskReport


class RunState(StrEnum):
    """What a table is doing."""

    WAITING = "waiting"
    RUNNING = "running"
    BACKING_OFF = "backing off"
    STOPPED = "stopped"


@dataclass
class Table:
    """A table while the pipeline runs; only the service's own thread changes it.

    state: as last loaded, None while there is no table. topics: what feeds it, as Kafka last described it. first: where
    partitions without progress begin. ends: as last asked for. read_to: the ends at which there was
    nothing left to read. needs_check: whether the committed offsets must be compared
    with what Kafka still has before the next read. loaded_at_s: when `state` was last known to be the table's; asked_at_s:
    when the catalog was last asked for it. record_bytes: average size of the last batch's records; largest_bytes: of one
    record in any batch of this process.
    """

    spec: TableSpec
    state: TableState | None = None
    topics: dict[str, TopicDescription] = field(default_factory=dict)
    first: dict[str, dict[int, int]] = field(default_factory=dict)
    skipped: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    run_state: RunState = RunState.WAITING
    reason: str = ""
    remedy: str = ""
    where: str = ""
    in_flight: bool = False
    needs_check: bool = True
    goes_alone: bool = False
    is_loaded: bool = False
    failures: int = 0
    next_due_s: float = 0.0
    loaded_at_s: float = 0.0
    asked_at_s: float = float("-inf")
    record_bytes: float = ASSUMED_RECORD_BYTES
    largest_bytes: int | None = None
    read_to: Mapping[Partition, int | None] | None = None
    lag_records: int = 0
    records_per_s: float = 0.0
    last_batch_at_s: float = 0.0
    freshness_ms: int | None = None
    size: TableSize | None = None
    dropped: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """`namespace.table`."""
        return self.spec.name

    @property
    def progress(self) -> Progress:
        """The newest progress that is known."""
        return self.state.progress if self.state else Progress()

    @property
    def is_first(self) -> bool:
        """Whether the next batch decides the columns."""
        return self.state is None

    def position(self) -> Offsets:
        """The full vector: committed offsets, and first offsets of partitions that nothing was read from yet.

        Topics that are not there now keep their place in the vector.
        """
        vector = {topic: dict(partitions) for topic, partitions in self.progress.offsets.items()}
        for topic, partitions in self.first.items():
            mine = vector.setdefault(topic, {})
            for partition, offset in partitions.items():
                mine.setdefault(partition, offset)
        for topic, lost in self.skipped.items():
            for partition, (_, to) in lost.items():
                vector[topic][partition] = max(to, vector[topic][partition])
        return vector

    def partitions(self) -> list[Partition]:
        """Every partition of the topics that are there."""
        return [(t.name, p) for t in self.topics.values() for p in range(t.partition_count)]

    def clock(self) -> TableClock:
        """What planning needs to know."""
        target = self.spec.commit.target_file_size_bytes
        # Compressed columns take about a sixth of the JSON they came from; enough for a file may wait no longer.
        is_light = self.largest_bytes is not None and self.largest_bytes <= HEAVY_BYTES
        return TableClock(self.name, self.next_due_s, target * 6, self.record_bytes, is_light, self.is_first)

    def note_sizes(self, report: TaskReport) -> None:
        """Remembers how large records are."""
        if report.has_heavy:
            self.largest_bytes = HEAVY_BYTES + 1
        elif report.record_count:
            self.record_bytes = report.value_bytes / report.record_count
            self.largest_bytes = max(self.largest_bytes or 0, report.largest_bytes)

    def topic_ids(self) -> Mapping[str, str]:
        """The ids of every topic in the vector."""
        return {**self.progress.topic_ids, **{t.name: t.id for t in self.topics.values()}}

    def target(self, schema: Schema | None = None) -> TableTarget:
        """What tasks get to know of it; `schema` in place of its own."""
        state = self.state
        known = schema or (state.schema if state else None)
        return TableTarget(
            name=self.name,
            schema_json=known.model_dump_json() if known else "",
            location=state.location if state else "",
            properties=tuple(sorted(state.properties.items())) if state else (),
            io_properties=tuple(sorted(state.io_properties.items())) if state else (),
            spec_id=state.spec_id if state else 0,
            metadata=tuple(self.spec.metadata.items()),
            undeclared=self.spec.undeclared,
            target_file_size_bytes=self._target_file_size(),
        )

    def _target_file_size(self) -> int:
        declared = self.state.properties.get("write.target-file-size-bytes") if self.state else None
        return int(declared) if declared else self.spec.commit.target_file_size_bytes
