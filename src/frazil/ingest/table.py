"""One table of a running pipeline: what is known of it, where it stands, and what `status` will say about it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import prod

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, StringType

from frazil.catalog.layout import Layout
from frazil.catalog.port import Catalog, TableSize, TableState
from frazil.decode.envelope import Envelope
from frazil.decode.settings import Framing, Reading, WriterSchema
from frazil.decode.wire_format import KEY_HEADER
from frazil.errors import UnavailableError
from frazil.ingest.job import OVERSIZED_BYTES
from frazil.ingest.no_op_changes import NoOpChange
from frazil.ingest.plan import ASSUMED_RECORD_BYTES, MAX_BATCH_RECORDS, TableClock
from frazil.ingest.record_sizes import buffered_row_bytes, learn_row_bytes, stored_row_bytes
from frazil.ingest.transactions.runs import Cut, Held
from frazil.kafka.port import Partition, TopicDescription
from frazil.rows.record_keys import HEADER_SCHEMA, KEY_SCHEMA
from frazil.schema.name_case import Spellings
from frazil.schema.name_mapping import PROPERTY, Aliases, aliases_of
from frazil.schema.projection import Shaping, counted_in
from frazil.spec import TableSpec
from frazil.spec.models import ValueSpec
from frazil.types import RESCUED_COLUMN, BadRecord, Offsets, Progress, Resolved, TaskReport
from frazil.upsert.incomplete_key_updates import PendingUpdate
from frazil.write.plain_target import plain_target
from frazil.write.target import ChangeReading, TableTarget, metadata_columns

FEWEST_TO_JUDGE = 100
"""So many records it takes to say that too many of them are bad."""
_GOOD_BATCHES = 20
_MANY_FILES = 500
_FEW_ROWS = 2_000
_KEY_COLUMNS = "key-columns"
_QUICK_S = 5.0


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

    @property
    def share(self) -> float:
        """The share of bad records; 0 while there are too few to tell."""
        return self.bad_count / self.record_count if self.record_count >= FEWEST_TO_JUDGE else 0.0

    def share_with(self, report: TaskReport) -> float:
        """The same, those of `report` included."""
        return Tally(self.record_count + report.record_count, self.bad_count + report.bad_count).share

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

    state: as last loaded, None while there is no table. interval_s: between its last commit and the next, which table care
    may make longer than the file says; None before the first. topics: what feeds it, as Kafka last described it. first:
    where partitions without progress begin; first_ids: the ids that their topics had then. read_to: the ends at which there
    was nothing left to read. needs_check: whether the committed offsets must be compared
    with what Kafka still has before the next read. loaded_at_s: when `state` was last known to be the table's; asked_at_s:
    when the catalog was last asked for it. record_bytes: average size of the last batch's records; largest_bytes: of one
    record in any batch of this process; row_bytes: what one takes in a file, None before this process has written a
    telling one. dead_letters: its dead-letter table, as last loaded; None while it is not needed.
    schemas: of the registry, by id, those that its records have named; schemas_at_s: when the newest one was asked for;
    has_new_schemas: whether some came that no commit has been read with yet.
    refusals: changes of the table that records asked for and its policy forbids. conflicts: so many in a
    row without progress. skipped: offsets that are gone and that no commit has passed over yet; skipped_offsets: how many
    this process has passed over.
    tally: records of the last batches, and bad ones among them. dead_letter_count: rows of its dead-letter table, as last
    seen. is_scattered: whether rows of the last batch went to very many partitions; None before the first. resolved: what
    its last batch of changes did. ignored_records: records of this process's batches that are no change of a row, by what
    they are. is_single_task, unpaired, unfilled, abandoned: as tasks are told (TableTarget), the latter three for the batch
    that is planned again. company: tables that its last batch was read for too, as long as they may be waited for;
    batch_done_at_s: when that batch was over. at_start: the partitions that `start` speaks of, None before a topic was
    seen. empty_to: how far its records have been read without finding a column; empty_batches: as planning is told
    (TableClock). cut, held: where the next batch ends so that it divides nothing that belongs together, a transaction or
    the halves of a change of the key, or that there is none yet. pending_updates: records that tell of a change of the key
    and lack its other half, or the row, with the time that was seen. crashing: as tasks are told; searches: how often such
    records were searched for in vain since the last commit; most_records: of a batch, since more of them together took more
    memory or time than a task may. applied_early: by topic and position in the source's log, changes of the key whose
    insert alone is in the table, with the time of that commit. rejected: as tasks are told (Reading). no_op_change: what
    the last batch asked for, where that left the table as it was.
    """

    spec: TableSpec
    state: TableState | None = None
    topics: dict[str, TopicDescription] = field(default_factory=dict)
    first: dict[str, dict[int, int]] = field(default_factory=dict)
    first_ids: dict[str, str] = field(default_factory=dict)
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
    conflicts: int = 0
    skipped_offsets: int = 0
    next_due_s: float = 0.0
    interval_s: float | None = None
    loaded_at_s: float = 0.0
    asked_at_s: float = float("-inf")
    record_bytes: float = ASSUMED_RECORD_BYTES
    largest_bytes: int | None = None
    row_bytes: float | None = None
    read_to: Mapping[Partition, int | None] | None = None
    lag_records: int = 0
    records_per_s: float = 0.0
    last_batch_at_s: float = 0.0
    batch_done_at_s: float = 0.0
    company: frozenset[str] = frozenset()
    freshness_ms: int | None = None
    size: TableSize | None = None
    dropped: frozenset[str] = frozenset()
    dead_letters: TableState | None = None
    good_batches: int = 0
    schemas: dict[str, WriterSchema] = field(default_factory=dict)
    schemas_at_s: float = float("-inf")
    has_new_schemas: bool = False
    refusals: frozenset[str] = frozenset()
    tally: Tally = field(default_factory=Tally)
    dead_letter_count: int = 0
    is_scattered: bool | None = None
    resolved: Resolved | None = None
    ignored_records: Counter[str] = field(default_factory=Counter)
    is_single_task: bool = False
    unpaired: frozenset[tuple[str, int, int]] = frozenset()
    at_start: frozenset[Partition] | None = None
    empty_to: Offsets = field(default_factory=dict)
    empty_batches: int = 0
    cut: Cut | None = None
    held: Held | None = None
    missing_required: frozenset[tuple[str, int, int]] = frozenset()
    crashing: frozenset[BadRecord] = frozenset()
    searches: int = 0
    most_records: int | None = None
    rejected: dict[tuple[str, ...], str] = field(default_factory=dict)
    abandoned: frozenset[tuple[str, int, int]] = frozenset()
    pending_updates: dict[tuple[str, int, int], PendingUpdate] = field(default_factory=dict)
    applied_early: dict[tuple[str, str], int] = field(default_factory=dict)
    no_op_change: NoOpChange | None = None

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
        vector = self._begun()
        for topic, lost in self.skipped.items():
            for partition, (_, to) in lost.items():
                vector[topic][partition] = max(to, vector[topic][partition])
        return vector

    def _begun(self) -> dict[str, dict[int, int]]:
        """The same as if nothing were to be passed over."""
        vector = {topic: dict(partitions) for topic, partitions in self.progress.offsets.items()}
        for topic, partitions in self.first.items():
            mine = vector.setdefault(topic, {})
            for partition, offset in partitions.items():
                mine.setdefault(partition, offset)
        return vector

    def end_batch(self) -> None:
        """Forgets what was noted for a batch that is in the table."""
        self.held, self.no_op_change = None, None
        self.unpaired = self.missing_required = self.abandoned = frozenset()
        self.crashing, self.searches = frozenset(), 0

    def read_less(self, records: int) -> bool:
        """After a task failed of so many records, and of none of them alone: batches of a quarter. False where one record
        was all there was.
        """
        if records <= 1:
            return False
        self.most_records = max(1, records // 4)
        return True

    def read_more(self, took_s: float) -> None:
        """After a commit: twice as much again, while a batch takes seconds only."""
        if self.most_records is not None and took_s < _QUICK_S:
            self.most_records *= 2
            if self.most_records >= MAX_BATCH_RECORDS:
                self.most_records = None

    def forget_batches(self) -> None:
        """What was learnt for batches of a table that is another one now."""
        self.end_batch()
        self.first, self.first_ids, self.rejected, self.applied_early, self.pending_updates = {}, {}, {}, {}, {}
        self.cut, self.is_single_task, self.tally = None, False, Tally()

    def forget_skipped(self) -> None:
        """After a load: what begins elsewhere than the table now does is in a commit that has landed, or was rolled back."""
        begun = self._begun()
        kept: dict[str, dict[int, tuple[int, int]]] = {}
        for topic, partitions in self.skipped.items():
            for partition, lost in partitions.items():
                if begun.get(topic, {}).get(partition) == lost[0]:
                    kept.setdefault(topic, {})[partition] = lost
        self.needs_check |= kept != self.skipped
        self.skipped = kept

    def partitions(self) -> list[Partition]:
        """Every partition of the topics that are there."""
        return [(t.name, p) for t in self.topics.values() for p in range(t.partition_count)]

    def unplaced(self) -> list[Partition]:
        """Partitions of which it is not known where they begin."""
        vector = self.position()
        return [(t, p) for t, p in self.partitions() if p not in vector.get(t, {})]

    def pass_over(self, topic: str, partition: int, start: int, end: int) -> None:
        """Reads on from `end`, as the records before it are gone. What was passed over before and is not committed stays."""
        lost = self.skipped.setdefault(topic, {})
        lost[partition] = (lost[partition][0] if partition in lost else start, end)
        self.skipped_offsets += end - start

    def clock(self, tasks: int = 1) -> TableClock:
        """What planning needs to know. tasks: that a large batch is split into."""
        target, least = self._target_file_size(), self.spec.commit.min_file_size_bytes
        columns = len(self.state.schema.field_ids) if self.state else 0
        return TableClock(
            table=self.name,
            next_due_s=self.next_due_s,
            target_bytes=target,
            record_bytes=self.record_bytes,
            is_small=self.largest_bytes is not None and self.largest_bytes <= OVERSIZED_BYTES,
            is_first=self.is_first,
            row_bytes=self.row_bytes or stored_row_bytes(self.size),
            min_bytes=min(least, target) if least else None,
            records_per_s=self.records_per_s,
            tasks=tasks,
            empty_batches=self.empty_batches,
            buffered_bytes=buffered_row_bytes(columns) if self.spec.mode == "upsert" else None,
            most_records=self.most_records,
        )

    @property
    def dead_letter_table_name(self) -> str:
        """The name of its dead-letter table."""
        return self.spec.dead_letters.table or f"{self.name}__dead_letters"

    def note_bad(self, report: TaskReport) -> None:
        """Counts a committed batch; after enough of them without a bad record batches no longer carry what letters need."""
        self.tally.add(report)
        self.good_batches = 0 if report.bad_count else self.good_batches + 1
        if self.good_batches >= _GOOD_BATCHES:
            self.dead_letters, self.is_single_task = None, False

    def note_sizes(self, report: TaskReport) -> None:
        """Remembers how large records are."""
        if report.has_oversized:
            self.largest_bytes = OVERSIZED_BYTES + 1
        elif report.record_count:
            self.record_bytes = report.value_bytes / report.record_count
            self.largest_bytes = max(self.largest_bytes or 0, report.largest_bytes)
            self.row_bytes = learn_row_bytes(self.row_bytes, report)
            self.is_scattered = len(report.files) >= _MANY_FILES and report.record_count < _FEW_ROWS * len(report.files)

    @property
    def needs_one_task(self) -> bool:
        """Whether more tasks would write each their own small file for very many partitions, or must not share changes."""
        if self.is_single_task or self.is_scattered is not None:
            return self.is_single_task or bool(self.is_scattered)
        buckets = (term.transform for term in self.spec.partition_by or () if term.transform.startswith("bucket"))
        return prod(int(transform[7:-1]) for transform in buckets) >= _MANY_FILES

    def topic_ids(self) -> Mapping[str, str]:
        """The ids of every topic in the vector."""
        return {**self.progress.topic_ids, **{t.name: t.id for t in self.topics.values()}}

    def target(self, schema: Schema | None = None) -> TableTarget:
        """What tasks get to know of it; `schema` in place of its own."""
        state, key_column = self.state, key_column_of(self.spec)
        known = schema or (state.schema if state else None)
        changes = self._change_reading() if self.spec.mode == "upsert" else None
        return TableTarget(
            name=self.name,
            schema_json=known.model_dump_json() if known else "",
            location=state.location if state else "",
            properties=tuple(sorted(state.properties.items())) if state else (),
            io_properties=tuple(sorted(state.io_properties.items())) if state else (),
            spec_id=state.spec_id if state else 0,
            metadata=tuple((name, column) for name, column in self.spec.metadata.items() if column != key_column),
            target_file_size_bytes=self._target_file_size(),
            reading=replace(self._reading(), aliases=self._aliases(known)),
            dead_letters=plain_target(self.dead_letters) if self.dead_letters else None,
            shaping=shaping_of(self.spec),
            key=self._key_reading() if key_column else None,
            headers=self._header_readings(),
            partition_spec=state.partition_spec if state else "",
            sort_order=state.sort_order if state else "",
            older_specs=state.older_specs if state else (),
            most_partitions=self.spec.limits.partitions,
            changes=changes,
            envelope=envelope_of(self.spec, changes.paths if changes else ()),
            is_single_task=self.is_single_task,
            unpaired=tuple(sorted(self.unpaired)),
            missing_required=tuple(sorted(self.missing_required)),
            crashing=tuple(sorted(self.crashing, key=lambda one: (one.topic, one.partition, one.offset))),
            abandoned=tuple(sorted(self.abandoned)),
            applied_early=tuple(sorted(self.applied_early)),
            last_deletes=self.progress.last_deletes,
            told_by=self._told_by() if self.spec.envelope is not None else None,
            tombstones=self.spec.tombstones if self.spec.tombstones != "delete" else "",
        )

    def _aliases(self, schema: Schema | None) -> Aliases:
        """The other names of the table's columns, where names of new columns are those of fields, and of columns that the
        pipeline file gives no field.
        """
        mapping = self.state.properties.get(PROPERTY, "") if self.state is not None else ""
        shaping = shaping_of(self.spec)
        if not mapping or schema is None or (shaping is not None and shaping.makes_names):
            return ()
        given = {column for column, _ in shaping.fields} if shaping is not None else set()
        given.update(own_columns(self.spec))
        return tuple((path, names) for path, names in aliases_of(mapping, schema) if path[0] not in given)

    def _change_reading(self) -> ChangeReading:
        spec = self.spec
        columns, is_key_of_record = spec.key_columns, not spec.key_columns
        reading = self._told_by() if spec.envelope is not None else self._key_reading()
        is_single_task = spec.key.format == "text" or (spec.key.format == "raw" and spec.envelope is None)
        if is_key_of_record and is_single_task:
            # The column that the key is kept in as a whole: it is there already, without another look at the key.
            columns, is_key_of_record = (spec.metadata["key"],), False
        if is_key_of_record and self.state is not None:
            columns = tuple(json.loads(self.state.marks.get(_KEY_COLUMNS, "[]")))
        return ChangeReading(
            reading,
            columns,
            is_key_of_record,
            order_by=spec.order_by or "",
            marks_deletes=spec.deletes == "soft",
            has_source_order=spec.order_by is not None and spec.metadata.get("source_order") == spec.order_by,
            is_one_partition=len(self.partitions()) <= 1,
            is_one_topic=len(spec.topics) == 1 and spec.topics[0].literal is not None,
        )

    def _told_by(self) -> Reading:
        """How keys of envelopes are read: as their values are, where the file does not say."""
        spec = self.spec
        return self._key_reading(spec.value.model_copy(update={"message": None}) if spec.key.format == "raw" else None)

    def _reading(self) -> Reading:
        spec = self.spec
        unknown_fields: str = spec.unknown_fields
        if spec.schema_evolution == "freeze" and unknown_fields == "add":
            unknown_fields = "rescue" if spec.rescue else "refuse"
        value = spec.value
        return Reading(
            format=value.format,
            framing=_framing(value),
            is_by_header=value.framing == "header" and value.source != "latest",
            message=value.message or "",
            schemas=tuple(sorted(self.value_schemas)),
            unknown_fields=unknown_fields,
            is_rescuing=spec.rescue,
            may_widen=spec.schema_evolution == "evolve",
            on_bad=spec.on_bad_record,
            max_record_bytes=spec.limits.record_bytes,
            rejected=tuple(sorted(self.rejected.items())),
            room=max(0, spec.limits.columns - (len(self.state.schema.field_ids) if self.state else 0)),
            numbers=spec.numbers,
            infers_times=spec.infers_timestamps,
        )

    def _key_reading(self, written: ValueSpec | None = None) -> Reading:
        """How keys are read. written: as what, where that is not what the file says of keys."""
        spec = self.spec
        key = written or spec.key
        return Reading(
            format=key.format,
            framing=_framing(key),
            is_by_header=key.framing == "header" and key.source != "latest",
            header=KEY_HEADER,
            message=key.message or "",
            schemas=self._schemas_of(KEY_SCHEMA),
            unknown_fields="refuse" if spec.schema_evolution == "freeze" else "add",
            may_widen=spec.schema_evolution == "evolve",
            on_bad=spec.on_bad_record,
            numbers=spec.numbers,
        )

    def _header_readings(self) -> tuple[tuple[str, Reading], ...]:
        """By column how its header is read: as its declared type, and no more of it. Text and bytes need no reading."""
        decoded = ((one.name, one.value) for one in self.spec.columns if one.value is not None)
        return tuple(
            (column, self._header_reading(column, value))
            for column, value in decoded
            if value.format not in ("text", "raw")
        )

    def _header_reading(self, column: str, value: ValueSpec) -> Reading:
        return Reading(
            format=value.format,
            framing=_framing(value),
            message=value.message or "",
            schemas=self._schemas_of(f"{HEADER_SCHEMA}{column}:"),
            unknown_fields="drop",
            may_widen=False,
            on_bad=self.spec.on_bad_record,
        )

    def _schemas_of(self, prefix: str) -> tuple[tuple[str, WriterSchema], ...]:
        """Those known under ids that begin so, without that."""
        found = sorted(item for item in self.schemas.items() if item[0].startswith(prefix))
        return tuple((name.removeprefix(prefix), schema) for name, schema in found)

    def note_schemas(self, schemas: Mapping[str, WriterSchema], *, is_committed: bool) -> None:
        """Those that a batch has asked for, which the next one is read with."""
        self.schemas |= schemas
        self.has_new_schemas = not is_committed and (self.has_new_schemas or bool(schemas))

    @property
    def value_schemas(self) -> list[tuple[str, WriterSchema]]:
        """The schemas of the records' values, by id."""
        return [(name, schema) for name, schema in self.schemas.items() if ":" not in name]

    def _target_file_size(self) -> int:
        declared = self.state.properties.get("write.target-file-size-bytes") if self.state else None
        return int(declared) if declared else self.spec.commit.target_file_size_bytes


def _framing(value: ValueSpec) -> Framing:
    """Where the bytes name their schema, if they do."""
    return "none" if value.framing == "header" or value.source == "latest" else value.framing


def layout_of(spec: TableSpec) -> Layout:
    """How the pipeline file wants the table's files arranged."""
    return Layout(spec.partition_by, spec.sort_by)


def own_columns(spec: TableSpec) -> dict[str, IcebergType]:
    """The columns that do not come from the record's value."""
    columns = metadata_columns(spec.metadata, spec.key.format)
    columns |= {column.name: column.type for column in spec.columns if column.is_own}
    if spec.rescue or spec.unknown_fields == "rescue":
        columns[RESCUED_COLUMN] = StringType()
    return columns


def note_key_columns(catalog: Catalog, state: TableState, names: Sequence[str]) -> TableState:
    """The table with these fields of its records' keys noted as what identifies its rows."""
    if not names:
        return state
    spellings = Spellings(field.name for field in state.schema.fields)  # A key may write them in other capitals.
    parts = [name.split(".") for name in names]
    columns = [".".join([spellings.find(first) or first, *rest]) for first, *rest in parts]
    catalog.mark(state.name, _KEY_COLUMNS, json.dumps(columns))
    loaded = catalog.load(state.name)
    if loaded is None:
        raise UnavailableError("the table no longer exists", remedy="find out who dropped the table", where=state.name)
    return loaded


def envelope_of(spec: TableSpec, keys: tuple[tuple[str, ...], ...]) -> Envelope | None:
    """How a table's records wrap changes; None where they are rows. keys: paths of the key columns, as far as known."""
    said = spec.envelope
    if said is None:
        return None
    words = (said.insert, said.update, said.delete) if said.kind == "operation" else ((), (), ())
    return Envelope(
        said.kind,
        said.operation,
        *words,
        placeholder=said.placeholder,
        keys=keys,
        is_log=spec.changelog,
        marks_deletes=spec.deletes == "soft",
        is_upsert=spec.mode == "upsert",
    )


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
        counted=tuple(
            (one.name, *inner) for one in spec.columns if not one.is_own for inner in counted_in(one.type, one.unit)
        ),
        coerced=tuple(column.name for column in spec.columns if column.coerce),
        zones=tuple((column.name, column.zone) for column in spec.columns if column.zone),
        constants=tuple((one.name, one.constant) for one in spec.columns if one.constant is not None),
        headers=tuple((column.name, column.header) for column in spec.columns if column.header is not None),
        key=key_column_of(spec),
    )
    if shaping.include and not shaping.makes_names:  # A declared column is wanted, whatever the list says.
        others = tuple((column.name,) for column in spec.columns if not column.field and not column.is_own)
        shaping = replace(shaping, include=shaping.include + others)
    return shaping if shaping != Shaping() else None
