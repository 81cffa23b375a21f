"""One table of a running pipeline: its settings, its state in the catalog, and the records of `ingest.state`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from pyiceberg.schema import Schema

from frazil.catalog.port import Catalog, TableState
from frazil.errors import UnavailableError
from frazil.ingest.job import OVERSIZED_BYTES
from frazil.ingest.plan import TableClock, buffered_row_bytes, stored_row_bytes
from frazil.ingest.state import (
    MANY_FILES,
    BadRecordState,
    CatalogState,
    KeyUpdateState,
    OffsetState,
    Schedule,
    SchemaState,
    Sizes,
    Status,
    Tally,
)
from frazil.ingest.table_target import KEY_COLUMNS, target_file_size, target_of
from frazil.kafka.port import Partition
from frazil.report import TaskReport
from frazil.schema.names import Spellings
from frazil.spec import TableSpec
from frazil.types import Offsets, Progress
from frazil.write.target import TableTarget


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
    #: Primary-key updates.
    key_updates: KeyUpdateState = field(default_factory=KeyUpdateState)

    @property
    def name(self) -> str:
        """`namespace.table`."""
        return self.spec.name

    @property
    def progress(self) -> Progress:
        """The newest known progress."""
        return self.state.progress if self.state else Progress()

    @property
    def is_first(self) -> bool:
        """Whether the next batch decides the columns."""
        return self.state is None

    def position(self) -> Offsets:
        """Returns the committed offsets, with the first offsets of partitions without progress."""
        return self.offsets.position(self.progress.offsets)

    def partitions(self) -> list[Partition]:
        """Returns every partition of the topics that exist."""
        return self.offsets.partitions()

    def unplaced(self) -> list[Partition]:
        """Returns the partitions whose first offset is not known."""
        vector = self.position()
        return [(t, p) for t, p in self.partitions() if p not in vector.get(t, {})]

    def forget_skipped(self) -> None:
        """Drops skipped offsets after a load, where another run's commit has skipped them already."""
        self.offsets.forget_skipped(self.progress.offsets)

    def end_batch(self) -> None:
        """Forgets the findings about a batch that is committed now."""
        self.offsets.waiting, self.schema.no_op_change = None, None
        self.bad_records.crashing, self.bad_records.searches = frozenset(), 0
        self.key_updates.end_batch()

    def forget_batches(self) -> None:
        """Forgets what was learned from batches of a table that was deleted and recreated."""
        self.end_batch()
        self.offsets.first, self.offsets.first_ids, self.offsets.cut = {}, {}, None
        self.schema.rejected, self.bad_records.tally = {}, Tally()
        self.key_updates.applied_early, self.key_updates.pending, self.key_updates.is_single_task = {}, {}, False

    def note_committed(self, report: TaskReport) -> None:
        """Counts the bad records of a committed batch; after many batches without one, batches read fewer columns
        again.
        """
        if self.bad_records.note_committed(report):
            self.key_updates.is_single_task = False

    def clock(self, tasks: int = 1) -> TableClock:
        """Returns the facts that planning needs. tasks: the number of tasks that a large batch is split into."""
        target, least = target_file_size(self), self.spec.commit.min_file_size_bytes
        columns = len(self.state.schema.field_ids) if self.state else 0
        return TableClock(
            table=self.name,
            next_due_s=self.schedule.next_due_s,
            target_bytes=target,
            record_bytes=self.sizes.record_bytes,
            is_small=self.sizes.largest_bytes is not None and self.sizes.largest_bytes <= OVERSIZED_BYTES,
            is_first=self.is_first,
            row_bytes=self.sizes.row_bytes or stored_row_bytes(self.catalog.size),
            min_bytes=min(least, target) if least else None,
            records_per_s=self.sizes.records_per_s,
            tasks=tasks,
            empty_batches=self.offsets.empty_batches,
            buffered_bytes=buffered_row_bytes(columns) if self.spec.mode == "upsert" else None,
            most_records=self.schedule.most_records,
        )

    @property
    def dead_letter_table_name(self) -> str:
        """The name of the table's dead-letter table."""
        return self.spec.dead_letters.table or f"{self.name}__dead_letters"

    @property
    def needs_one_task(self) -> bool:
        """Whether one task must read a batch: several would write small files of very many partitions, or must not
        share changes.
        """
        if self.key_updates.is_single_task or self.sizes.is_scattered is not None:
            return self.key_updates.is_single_task or bool(self.sizes.is_scattered)
        buckets = (term.transform for term in self.spec.partition_by or () if term.transform.startswith("bucket"))
        return prod(int(transform[7:-1]) for transform in buckets) >= MANY_FILES

    def topic_ids(self) -> Mapping[str, str]:
        """Returns the ids of all topics in the position."""
        return {**self.progress.topic_ids, **{t.name: t.id for t in self.offsets.topics.values()}}

    def target(self, schema: Schema | None = None) -> TableTarget:
        """Returns the settings and state that tasks need of the table. schema: replaces its schema."""
        return target_of(self, schema)


def set_key_columns(catalog: Catalog, state: TableState, names: Sequence[str]) -> TableState:
    """Stores the fields of the records' keys as the table's key columns; returns the table.

    Raises: UnavailableError when the table no longer exists.
    """
    if not names:
        return state
    spellings = Spellings(field.name for field in state.schema.fields)  # Names in keys may differ in case.
    parts = [name.split(".") for name in names]
    columns = [".".join([spellings.find(first) or first, *rest]) for first, *rest in parts]
    catalog.mark(state.name, KEY_COLUMNS, json.dumps(columns))
    loaded = catalog.load(state.name)
    if loaded is None:
        raise UnavailableError("the table no longer exists", remedy="find out who dropped the table", where=state.name)
    return loaded
