"""One table of a running pipeline: its settings, its state in the catalog and the records of `ingest.tables.state`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from pyiceberg.schema import Schema

from frazil.catalog.port import Catalog, StoredLayout, TableState
from frazil.errors import UnavailableError
from frazil.ingest.plan import TableClock, buffered_row_bytes, stored_row_bytes
from frazil.ingest.tables.batch_ends import Cut
from frazil.ingest.tables.settings import declared_columns, records_spec
from frazil.ingest.tables.state import (
    MANY_FILES,
    BadRecordState,
    CatalogState,
    OffsetState,
    RunCounts,
    RunState,
    Schedule,
    SchemaState,
    Sizes,
    Status,
)
from frazil.kafka.port import Partition
from frazil.report import TaskReport
from frazil.schema.evolve import extend_schema
from frazil.schema.names import spelled
from frazil.shares.share import Owners
from frazil.spec import TableSpec
from frazil.stages.table import stage_watches
from frazil.stages.watch import StageWatch, Tally
from frazil.types import Batch, DerivedTable, NewValues, Offsets, Progress
from frazil.upsert.change_notes import ChangeState

KEY_COLUMNS = "key-columns"
RECORDS_SCHEMA = "records-schema"
"""The mark of a table with a query that has the schema of its records, as Iceberg's JSON."""


@dataclass
class Table:
    """A table while the pipeline runs; only the service's own thread changes it."""

    #: The table's settings in the pipeline file.
    spec: TableSpec
    #: The table as last loaded from the catalog; None while it does not exist.
    state: TableState | None = None
    #: What the table is doing, for `status`.
    status: Status = field(default_factory=Status)
    #: When the table is read.
    schedule: Schedule = field(default_factory=Schedule)
    #: Topics and offsets.
    offsets: OffsetState = field(default_factory=OffsetState)
    #: How recent the catalog's answers are.
    catalog: CatalogState = field(default_factory=CatalogState)
    #: Sizes of records and rows.
    sizes: Sizes = field(default_factory=Sizes)
    #: Registry schemas and schema changes.
    schema: SchemaState = field(default_factory=SchemaState)
    #: Bad records and dead letters.
    bad_records: BadRecordState = field(default_factory=BadRecordState)
    #: What is remembered for stages.
    watches: tuple[StageWatch, ...] = ()
    #: What is known of single changes.
    changes: ChangeState = field(default_factory=ChangeState)
    #: Figures of this process, for metrics.
    counts: RunCounts = field(default_factory=RunCounts)
    #: Of a table of the rest in a sample: tables that a run would make of its records.
    found_tables: tuple[DerivedTable, ...] = ()
    #: Why the keys of its topic make no table now, of a table of `kafka.topics_from`: reason, remedy and place.
    refusal: tuple[str, str, str] | None = None
    #: Whether the key columns of the spec are columns of this table; not of `records` before its query is analysed.
    is_key_known: bool = True

    def __post_init__(self) -> None:
        self.watches = self.watches or stage_watches(self.spec)

    @cached_property  # The loop reads it of a thousand tables in each turn.
    def name(self) -> str:
        """`namespace.table`."""
        return self.spec.name

    @property
    def shown_status(self) -> Status:
        """The status that operators see: a paused table is paused once its running batch has ended, and so is a table that
        another process works on a standby.
        """
        if not self.schedule.is_owned and self.status.run_state is RunState.WAITING:
            return Status(RunState.STANDBY)
        if not self.schedule.is_paused or self.schedule.in_flight or self.status.run_state is RunState.STOPPED:
            return self.status
        return Status(RunState.PAUSED, "an operator has paused the table", f"run `frazil resume {self.name}`")

    @property
    def progress(self) -> Progress:
        """The newest known progress."""
        return self.state.progress if self.state else Progress()

    @property
    def derived(self) -> tuple[DerivedTable, ...]:
        """The tables that were derived from values of its records, without those that the pipeline file has now."""
        share = self.spec.source.share
        return share.without_declared((*self.progress.rest.derived, *self.found_tables)) if share is not None else ()

    def derive(self, values: Iterable[NewValues], start: Offsets) -> tuple[DerivedTable, ...]:
        """Returns the tables that some values get, as far as they get one. start: where the records of the tables begin."""
        assert self.spec.source.share is not None
        return Owners(self.spec.source.share.division, self.derived).derive(values, start)

    @property
    def is_first(self) -> bool:
        """Whether the next batch decides the columns."""
        return self.state is None

    @property
    def is_trial(self) -> bool:
        """Whether the next batch writes nothing and only finds the fields of the records."""
        return self.state is None or (self.spec.has_query and self.schema.query is None)

    @property
    def records(self) -> Table:
        """The table that the records would make without the table's query: their fields are requested of it."""
        if not self.spec.has_query:
            return self
        spec = records_spec(self.spec, self.schema.query)
        state = None if self.state is None else _records_state(spec, self.state)
        return replace(self, spec=spec, state=state, is_key_known=self.schema.query is not None)

    @property
    def known_fields(self) -> Schema | None:
        """The columns that `columns` is about: those of the table or, where a query makes these, the fields that its records
        are known to have. None where none are known.
        """
        if self.state is None or not self.spec.has_query:
            return self.state.schema if self.state is not None else None
        text = self.state.marks.get(RECORDS_SCHEMA)
        return Schema.model_validate_json(text) if text else None

    def position(self) -> Offsets:
        """Returns the committed offsets, with the first offsets of partitions without progress."""
        return self.offsets.position(self.progress.offsets)

    def awaited_from(self) -> Offsets:
        """Returns the offsets from which records wait for the table: the position, or, for a table without columns, the
        offsets behind records that change no row.
        """
        return self.offsets.search.read_to if self.is_first and self.offsets.search.is_without_rows else self.position()

    def partitions(self) -> list[Partition]:
        """Returns every partition of the topics that exist."""
        return self.offsets.partitions()

    @property
    def has_its_topics(self) -> bool:
        """Whether the topics that exist are those that the committed offsets refer to: none was deleted, or recreated."""
        topics, ids = self.offsets.topics, self.progress.topic_ids.items()
        return all(topic in topics and topics[topic].id == topic_id for topic, topic_id in ids)

    def unplaced(self) -> list[Partition]:
        """Returns the partitions whose first offset is not known."""
        committed, first = self.progress.offsets, self.offsets.first
        return [(t, p) for t, p in self.partitions() if p not in committed.get(t, ()) and p not in first.get(t, ())]

    def end_batch(self) -> None:
        """Forgets the findings about a batch that is committed now."""
        self.offsets.waiting, self.schema.no_op_change = None, None
        self.bad_records.crashing, self.bad_records.searches = frozenset(), 0
        self.changes.end_batch()

    def forget_batches(self) -> None:
        """Forgets what was learned from batches of a table that was deleted and recreated."""
        self.end_batch()
        self.offsets.first, self.offsets.first_ids, self.offsets.cut = {}, {}, None
        self.schema.rejected, self.schema.refused_kinds, self.bad_records.tally = {}, {}, Tally()
        self.watches = stage_watches(self.spec)
        self.changes = ChangeState(resolved=self.changes.resolved)

    def note_committed(self, report: TaskReport) -> None:
        """Counts the bad records of a committed batch; after many without one, batches read fewer columns again."""
        if self.bad_records.note_committed(report):
            self.changes.is_single_task = False

    def begin_again(self, spec: TableSpec) -> None:
        """Takes other settings, and continues from the progress in the table, as after a restart."""
        schedule = Schedule(is_owned=self.schedule.is_owned, is_paused=self.schedule.is_paused)
        vars(self).update(vars(Table(spec, schedule=schedule, counts=self.counts)))

    def credentials_left_s(self, now_ms: int) -> float:
        """Returns for how many seconds the store's credentials are still valid; infinity for those that do not expire."""
        ends_ms = self.state.credentials_end_ms if self.state else None
        return float("inf") if ends_ms is None else (ends_ms - now_ms) / 1000

    def clock(self, now_ms: int, tasks: int) -> TableClock:
        """Returns the facts that planning needs. tasks: the number of tasks that a large batch is split into."""
        target, least = target_file_size(self), self.spec.commit.min_file_size_bytes
        return TableClock(
            table=self.name,
            next_due_s=self.schedule.next_due_s,
            target_bytes=target,
            record_bytes=self.sizes.record_bytes,
            is_first=self.is_first,
            row_bytes=self.sizes.row_bytes or stored_row_bytes(self.catalog.size),
            min_bytes=min(least, target) if least else None,
            records_per_s=self.sizes.records_per_s,
            tasks=tasks,
            empty_batches=self.offsets.search.batch_count,
            buffered_bytes=buffered_row_bytes(len(self.state.schema.field_ids) if self.state else 0)
            if self.keeps_keys
            else None,
            most_records=self.schedule.most_records,
            credentials_left_s=self.credentials_left_s(now_ms),
        )

    @property
    def keeps_keys(self) -> bool:
        """Whether rows of the table are looked up: what identifies those of a batch is in memory until the batch is over."""
        return self.spec.changes.looks_up_rows

    @property
    def dead_letter_table_name(self) -> str:
        """The name of the table's dead-letter table."""
        return self.spec.bad_records.dead_letters.table or f"{self.name}__dead_letters"

    @property
    def needs_one_task(self) -> bool:
        """Whether one task must read a batch: several would write small files, or must not share changes."""
        if self.changes.is_single_task or self.sizes.is_scattered is not None:
            return self.changes.is_single_task or bool(self.sizes.is_scattered)
        buckets = (
            term.transform for term in self.spec.layout.partition_by or () if term.transform.startswith("bucket")
        )
        return prod(int(transform[7:-1]) for transform in buckets) >= MANY_FILES

    @property
    def has_spark_part(self) -> bool:
        """Whether Spark evaluates a part of the table's query, for which a job reads this table alone."""
        program = self.schema.query.program if self.schema.query is not None else None
        return program is not None and program.spark_part is not None

    def topic_ids(self) -> Mapping[str, str]:
        """Returns the ids of all topics in the position."""
        return {**self.progress.topic_ids, **{t.name: t.id for t in self.offsets.topics.values()}}


@dataclass(frozen=True)
class Planned:
    """A batch with the facts that it was planned from."""

    #: The table that the batch is for.
    table: Table
    #: The offsets to read.
    batch: Batch
    #: The table's offsets, by topic and partition.
    position: Mapping[str, Mapping[int, int]]
    #: The ends of all partitions, as last requested.
    ends: Mapping[Partition, int]
    #: How far the batch may read: to the ends, or to the goal of a run with `--until-caught-up`.
    reach: Mapping[Partition, int]
    #: When the batch was planned, on the monotonic clock in seconds.
    planned_at_s: float
    #: Partitions without a leader.
    silent: frozenset[Partition] = frozenset()
    #: The places in the progress after the batch, of a batch that ends at the end of a transaction; None while that end
    #: is not known.
    places: Mapping[str, Mapping[int, str]] | None = None
    #: The ends of the logs, as last requested: of those with an open transaction behind `ends`.
    log_ends: Mapping[Partition, int] = field(default_factory=dict)

    def with_cut(self, cut: Cut | None) -> Planned:
        """Returns the batch with the ranges of `cut`, or the batch itself where the cut is for another position."""
        if cut is None or cut.position != self.position:
            return self
        return replace(self, batch=replace(self.batch, ranges=cut.ranges, is_apart=True), places=cut.places)


def set_key_columns(catalog: Catalog, state: TableState, names: Sequence[str]) -> TableState:
    """Stores the fields of the records' keys as the table's key columns; returns the table.

    Raises: UnavailableError when the table no longer exists.
    """
    if not names:
        return state
    text = state.marks.get(RECORDS_SCHEMA)
    schema = Schema.model_validate_json(text) if text else state.schema
    columns = [spelled(name, schema) for name in names]  # Names in keys may differ in case.
    catalog.mark(state.name, KEY_COLUMNS, json.dumps(columns))
    return loaded(catalog, state.name)


def loaded(catalog: Catalog, name: str) -> TableState:
    """Returns a table that exists, as the catalog has it now.

    Raises: UnavailableError when the table no longer exists.
    """
    state = catalog.load(name)
    if state is None:
        raise UnavailableError("the table no longer exists", remedy="find out who dropped the table", where=name)
    return state


def _records_state(spec: TableSpec, state: TableState) -> TableState:
    """Returns the state of a table with a query as that of the table which the records would make. spec: of the latter."""
    text = state.marks.get(RECORDS_SCHEMA)
    schema = Schema.model_validate_json(text) if text else Schema()
    schema = extend_schema(schema, {(): declared_columns(spec)})
    return replace(state, schema=schema, layout=StoredLayout(state.layout.spec_id))


def target_file_size(table: Table) -> int:
    """Returns the target size of the table's files, in bytes."""
    declared = table.state.properties.get("write.target-file-size-bytes") if table.state else None
    return int(declared) if declared else table.spec.commit.target_file_size_bytes
