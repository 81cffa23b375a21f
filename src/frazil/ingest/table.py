"""One table of a running pipeline: what is known of it, where it stands, and what `status` will say about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pyiceberg.schema import Schema

from frazil.catalog.port import TableSize, TableState
from frazil.ingest.decode.frames import KEY_HEADER
from frazil.ingest.decode.keys import KEY_SCHEMA
from frazil.ingest.envelope import envelope_of
from frazil.ingest.job import HEAVY_BYTES
from frazil.ingest.naming import Shaping
from frazil.ingest.plan import ASSUMED_RECORD_BYTES, TableClock
from frazil.ingest.target import Reading, TableTarget, WriterSchema
from frazil.kafka.port import Partition, TopicDescription
from frazil.spec import TableSpec
from frazil.spec.models import CommitSpec
from frazil.types import Offsets, Progress, TaskReport

FEWEST_TO_JUDGE = 100
"""So many records it takes to say that too many of them are bad."""
_GOOD_BATCHES = 20


class RunState(StrEnum):
    """What a table is doing."""

    WAITING = "waiting"
    RUNNING = "running"
    BACKING_OFF = "backing off"
    STOPPED = "stopped"


@dataclass
class Tally:
    """How many of the last records were bad: halved now and then, so that what is long ago counts less and less."""

    record_count: int = 0
    bad_count: int = 0

    def share_with(self, report: TaskReport) -> float:
        """The share of bad records, those of `report` included; 0 while there are too few to tell."""
        records = self.record_count + report.record_count
        return (self.bad_count + report.bad_count) / records if records >= FEWEST_TO_JUDGE else 0.0

    def add(self, report: TaskReport) -> None:
        """Counts a batch that was committed."""
        self.record_count += report.record_count
        self.bad_count += report.bad_count
        while self.record_count >= 2 * FEWEST_TO_JUDGE:
            self.record_count //= 2
            self.bad_count //= 2


@dataclass
class Table:
    """A table while the pipeline runs; only the service's own thread changes it.

    state: as last loaded, None while there is no table. topics: what feeds it, as Kafka last described it. first: where
    partitions without progress begin. ends: as last asked for. read_to: the ends at which there was
    nothing left to read. needs_check: whether the committed offsets must be compared
    with what Kafka still has before the next read. loaded_at_s: when `state` was last known to be the table's; asked_at_s:
    when the catalog was last asked for it. record_bytes: average size of the last batch's records; largest_bytes: of one
    record in any batch of this process. letters: its dead-letter table, as last loaded; None while it is not needed.
    schemas: of the registry, by id, those that its records have named; schemas_at_s: when the newest one was asked for.
    refusals: changes of the table that records asked for and its policy forbids.
    tally: records of the last batches, and bad ones among them. letter_count: rows of its dead-letter table, as last seen.
    passed_over: records of this process's batches that are no change of a row, by what they are.
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
    letters: TableState | None = None
    good_batches: int = 0
    schemas: dict[str, WriterSchema] = field(default_factory=dict)
    schemas_at_s: float = float("-inf")
    refusals: frozenset[str] = frozenset()
    tally: Tally = field(default_factory=Tally)
    letter_count: int = 0
    passed_over: Counter[str] = field(default_factory=Counter)

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

    @property
    def letters_name(self) -> str:
        """The name of its dead-letter table."""
        return self.spec.dead_letters.table or f"{self.name}__dead_letters"

    def note_bad(self, report: TaskReport) -> None:
        """Counts a committed batch; after enough of them without a bad record batches no longer carry what letters need."""
        self.tally.add(report)
        self.good_batches = 0 if report.bad_count else self.good_batches + 1
        if self.good_batches >= _GOOD_BATCHES:
            self.letters = None

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
        key_column = key_column_of(self.spec)
        return TableTarget(
            name=self.name,
            schema_json=known.model_dump_json() if known else "",
            location=state.location if state else "",
            properties=tuple(sorted(state.properties.items())) if state else (),
            io_properties=tuple(sorted(state.io_properties.items())) if state else (),
            spec_id=state.spec_id if state else 0,
            metadata=tuple((name, column) for name, column in self.spec.metadata.items() if column != key_column),
            target_file_size_bytes=self._target_file_size(),
            reading=self._reading(),
            letters=letters_target(self.letters) if self.letters else None,
            shaping=shaping_of(self.spec),
            key=self._key_reading() if key_column else None,
            envelope=envelope_of(self.spec),
        )

    def _reading(self) -> Reading:
        spec = self.spec
        undeclared: str = spec.undeclared
        if spec.on_drift == "freeze" and undeclared == "add":
            undeclared = "rescue" if spec.rescue else "refuse"
        value = spec.value
        return Reading(
            format=value.format,
            framing="none" if value.framing == "header" or value.source == "latest" else value.framing,
            is_by_header=value.framing == "header" and value.source != "latest",
            message=value.message or "",
            schemas=tuple(sorted(self.value_schemas)),
            undeclared=undeclared,
            is_rescuing=spec.rescue,
            may_widen=spec.on_drift == "evolve",
            on_bad=spec.on_bad_record,
            max_record_bytes=spec.limits.record_bytes,
        )

    def _key_reading(self) -> Reading:
        spec = self.spec
        key, is_by_header = spec.key, spec.key.framing == "header"
        known = (
            (name.removeprefix(KEY_SCHEMA), schema)
            for name, schema in sorted(self.schemas.items())
            if name.startswith(KEY_SCHEMA)
        )
        return Reading(
            format=key.format,
            framing="none" if key.framing == "header" or key.source == "latest" else key.framing,
            is_by_header=is_by_header and key.source != "latest",
            header=KEY_HEADER,
            message=key.message or "",
            schemas=tuple(known),
            undeclared="refuse" if spec.on_drift == "freeze" else "add",
            may_widen=spec.on_drift == "evolve",
            on_bad=spec.on_bad_record,
        )

    @property
    def value_schemas(self) -> list[tuple[str, WriterSchema]]:
        """The schemas of the records' values, by id."""
        return [(name, schema) for name, schema in self.schemas.items() if not name.startswith(KEY_SCHEMA)]

    def _target_file_size(self) -> int:
        declared = self.state.properties.get("write.target-file-size-bytes") if self.state else None
        return int(declared) if declared else self.spec.commit.target_file_size_bytes


def key_column_of(spec: TableSpec) -> str:
    """The column of decoded record keys; empty where they are not asked for, or are kept as bytes."""
    return spec.metadata.get("key", "") if spec.key.format != "raw" else ""


def shaping_of(spec: TableSpec) -> Shaping | None:
    """How the table's columns come from its records; None where they simply are the fields."""
    fields = tuple((column.name, column.field) for column in spec.columns if column.field)
    shaping = Shaping(
        depth=spec.flatten.depth if spec.flatten else 0,
        separator=spec.flatten.separator if spec.flatten else "_",
        case=spec.column_case,
        include=spec.include,
        exclude=spec.exclude,
        fields=fields,
        units=tuple((column.name, column.unit) for column in spec.columns if column.unit),
        constants=tuple((one.name, one.constant) for one in spec.columns if one.constant is not None),
        headers=tuple((column.name, column.header) for column in spec.columns if column.header is not None),
        key=key_column_of(spec),
    )
    if shaping.include and not shaping.makes_names:  # A declared column is wanted, whatever the list says.
        others = tuple((column.name,) for column in spec.columns if not column.field and not column.is_own)
        shaping = replace(shaping, include=shaping.include + others)
    return shaping if shaping != Shaping() else None


def letters_target(letters: TableState) -> TableTarget:
    """What tasks get to know of a dead-letter table."""
    return TableTarget(
        name=letters.name,
        schema_json=letters.schema.model_dump_json(),
        location=letters.location,
        properties=tuple(sorted(letters.properties.items())),
        io_properties=tuple(sorted(letters.io_properties.items())),
        spec_id=letters.spec_id,
        metadata=(),
        target_file_size_bytes=CommitSpec().target_file_size_bytes,
    )
