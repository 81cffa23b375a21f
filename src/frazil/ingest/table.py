"""One table of a running pipeline: its settings, its state in the catalog, the records of `ingest.state`, and the
description of it that tasks receive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, StringType

from frazil.catalog.layout import Layout
from frazil.catalog.port import Catalog, TableState
from frazil.decode.settings import Envelope, Framing, Reading
from frazil.decode.wire_format import KEY_HEADER
from frazil.errors import SpecError, UnavailableError
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
from frazil.ingest.task import OVERSIZED_BYTES
from frazil.ingest.transactions.runs import Cut
from frazil.kafka.port import Partition
from frazil.process.analysis import Query
from frazil.process.origins import origins_of
from frazil.process.program import Program
from frazil.process.protect import Protection, Rule
from frazil.process.protect_key import ProtectKey
from frazil.report import TaskReport
from frazil.rows.record_keys import HEADER_SCHEMA, KEY_SCHEMA
from frazil.schema.evolve import extend_schema
from frazil.schema.names import PROPERTY, Aliases, Spellings, aliases_of
from frazil.schema.projection import Shaping, counted_in
from frazil.schema.routes import Router
from frazil.spec import TableSpec
from frazil.spec.models import METADATA_COLUMNS, MetadataField, ValueSpec
from frazil.types import RESCUED_COLUMN, Batch, Offsets, Progress, RoutedTable
from frazil.write.plain_target import plain_target
from frazil.write.target import ChangeReading, TableTarget, metadata_columns

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
    #: Primary-key updates.
    key_updates: KeyUpdateState = field(default_factory=KeyUpdateState)
    #: Tables that the next commit of the table of the rest is to name, and the commit behind which they were found.
    found_tables: tuple[RoutedTable, ...] = ()
    found_after: str = ""

    @property
    def name(self) -> str:
        """`namespace.table`."""
        return self.spec.name

    @property
    def progress(self) -> Progress:
        """The newest known progress."""
        return self.state.progress if self.state else Progress()

    @property
    def routed(self) -> tuple[RoutedTable, ...]:
        """The tables that the route has made, of the table of the rest, without those that the pipeline file has now."""
        route = self.spec.route
        if route is None or self.spec.route_values:
            return ()
        return tuple(one for one in (*self.progress.routed, *self._found_now) if one.name not in route.taken)

    @property
    def _found_now(self) -> tuple[RoutedTable, ...]:
        """The tables found behind the newest commit; those of an older one may have got other names or places in it."""
        return self.found_tables if self.found_after == self.progress.commit_id else ()

    def find_tables(self, values: Iterable[tuple[str, ...]], start: Offsets) -> tuple[RoutedTable, ...]:
        """Gives some values tables, which the next commit of the table of the rest names; returns those that got one.
        start: where the records of the tables begin.
        """
        assert self.spec.route is not None
        router = Router(self.spec.route, self.routed)
        known = len(router.tables)
        for one in values:
            if router.refuse(one) is None:
                router.add(one, start)
        found = router.tables[known:]
        self.found_tables = (*self._found_now, *found)
        self.found_after = self.progress.commit_id
        return found

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
        return replace(self, spec=spec, state=None if self.state is None else _records_state(spec, self.state))

    def position(self) -> Offsets:
        """Returns the committed offsets, with the first offsets of partitions without progress."""
        return self.offsets.position(self.progress.offsets)

    def partitions(self) -> list[Partition]:
        """Returns every partition of the topics that exist."""
        return self.offsets.partitions()

    def unplaced(self) -> list[Partition]:
        """Returns the partitions whose first offset is not known."""
        committed, first = self.progress.offsets, self.offsets.first
        return [(t, p) for t, p in self.partitions() if p not in committed.get(t, ()) and p not in first.get(t, ())]

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
        """Counts the bad records of a committed batch; after many without one, batches read fewer columns again."""
        if self.bad_records.note_committed(report):
            self.key_updates.is_single_task = False

    def credentials_left_s(self, now_ms: int) -> float:
        """Returns for how many seconds the store's credentials are still valid; infinity for those that do not expire."""
        ends_ms = self.state.credentials_end_ms if self.state else None
        return float("inf") if ends_ms is None else (ends_ms - now_ms) / 1000

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
        """Whether one task must read a batch: several would write small files, or must not share changes."""
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
    known = state.marks.get(RECORDS_SCHEMA)
    schema = Schema.model_validate_json(known) if known else state.schema
    spellings = Spellings(field.name for field in schema.fields)  # Names in keys may differ in case.
    parts = [name.split(".") for name in names]
    columns = [".".join([spellings.find(first) or first, *rest]) for first, *rest in parts]
    catalog.mark(state.name, KEY_COLUMNS, json.dumps(columns))
    return loaded(catalog, state.name)


def loaded(catalog: Catalog, name: str) -> TableState:
    """Returns a table that exists, as the catalog has it now.

    Raises: UnavailableError when the table no longer exists.
    """
    found = catalog.load(name)
    if found is None:
        raise UnavailableError("the table no longer exists", remedy="find out who dropped the table", where=name)
    return found


def identifier_names(schema: Schema) -> tuple[str, ...]:
    """Returns the columns that identify a row according to the table (Iceberg specification, "Identifier Field IDs"), in
    the order of the schema; none where the table does not name them.
    """
    return tuple(str(schema.find_column_name(number)) for number in sorted(schema.identifier_field_ids))


def layout_of(spec: TableSpec) -> Layout:
    """Returns the layout of the table's files in the pipeline file."""
    return Layout(spec.partition_by, spec.sort_by)


def metadata_in_query(spec: TableSpec) -> dict[MetadataField, str]:
    """Returns the metadata of records that the table's query names, with the columns it is named by."""
    text = " ".join((spec.where, spec.filter, spec.select, *(str(value) for _, value in spec.add_fields)))
    return {field: column for field, column in METADATA_COLUMNS.items() if re.search(rf"\b{column}\b", text)}


def records_spec(spec: TableSpec, query: Query | None) -> TableSpec:
    """Returns the settings of the table that the records would make without the query. query: None while their fields
    are not known.
    """
    named = metadata_in_query(spec)
    origins = origins_of(program_of(query)).columns if query is not None else {}

    def field_of(column: str) -> str:
        return next(iter(origins.get(column, (column,))), column)

    return spec.without_query().model_copy(
        update={
            "protect": (),
            "partition_by": None,
            "sort_by": None,
            "metadata": spec.metadata | named,
            "key_columns": tuple(map(field_of, spec.key_columns)),
            "order_by": spec.order_by and field_of(spec.order_by),
        }
    )


def _records_state(spec: TableSpec, state: TableState) -> TableState:
    """Returns the state of a table with a query as that of the table which the records would make. spec: of the latter."""
    known = state.marks.get(RECORDS_SCHEMA)
    schema = Schema.model_validate_json(known) if known else Schema()
    schema = extend_schema(schema, {(): declared_columns(spec)})
    return replace(state, schema=schema, partition_spec="", sort_order="", older_specs=())


def program_of(query: Query) -> Program:
    """Returns the program of a query that tasks can evaluate, which every query of a running table is."""
    assert query.program is not None
    return query.program


def query_columns(query: Query) -> dict[str, IcebergType]:
    """Returns the columns that a query makes."""
    return {column.name: column.type for column in query.columns}


def own_columns(spec: TableSpec) -> dict[str, IcebergType]:
    """Returns the columns that come neither from the record's value nor from the table's query."""
    columns = metadata_columns(spec.metadata, spec.key.format)
    if not spec.has_query:
        columns |= {column.name: column.type for column in spec.columns if column.is_own}
    if spec.rescue or spec.unknown_fields == "rescue":
        columns[RESCUED_COLUMN] = StringType()
    return columns


def envelope_of(spec: TableSpec, keys: tuple[tuple[str, ...], ...]) -> Envelope | None:
    """Returns how records contain changes; None where they are rows. keys: paths of known key columns."""
    envelope = spec.envelope
    if envelope is None:
        return None
    values = (envelope.insert, envelope.update, envelope.delete) if envelope.kind == "operation" else ((), (), ())
    return Envelope(
        envelope.kind,
        envelope.operation,
        *values,
        placeholder=envelope.placeholder,
        keys=keys,
        is_log=spec.changelog,
        marks_deletes=spec.deletes == "soft",
        is_upsert=spec.mode == "upsert",
    )


def declared_columns(spec: TableSpec) -> dict[str, IcebergType]:
    """Returns the columns of the pipeline file, and those that do not come from the record's value. What a table with a
    query declares are fields of its records.
    """
    declared = {} if spec.has_query else {column.name: column.type for column in spec.columns}
    return declared | own_columns(spec)


def key_column_of(spec: TableSpec) -> str:
    """Returns the column of decoded record keys; empty where there is none, or where keys are kept as bytes."""
    return spec.metadata.get("key", "") if spec.key.format != "raw" else ""


def shaping_of(spec: TableSpec) -> Shaping | None:
    """Returns how the table's columns are derived from its records; None where they are the records' fields."""
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
    if shaping.include and not shaping.makes_names:  # A declared column is always included.
        others = tuple((column.name,) for column in spec.columns if not column.field and not column.is_own)
        shaping = replace(shaping, include=shaping.include + others)
    return shaping if shaping != Shaping() else None


def target_of(table: Table, schema: Schema | None = None) -> TableTarget:
    """Returns the description of the table for tasks. schema: replaces the table's schema; of a table with a query, that
    of its records.
    """
    if not table.spec.has_query:
        return _target_of(table, schema)
    query = table.schema.query
    return replace(
        _target_of(table, None),
        shaping=None,
        key=None,
        headers=(),
        source=replace(_target_of(table.records, schema), protection=None),
        program=program_of(query) if query is not None and schema is None else None,
        fails_to_null=table.spec.on_error == "null",
    )


def _target_of(table: Table, schema: Schema | None) -> TableTarget:
    state, key_column = table.state, key_column_of(table.spec)
    known = schema or (state.schema if state else None)
    changes = _change_reading(table) if table.spec.mode == "upsert" else None
    return TableTarget(
        name=table.name,
        schema_json=known.model_dump_json() if known else "",
        location=state.location if state else "",
        properties=tuple(sorted(state.properties.items())) if state else (),
        io_properties=tuple(sorted(state.io_properties.items())) if state else (),
        spec_id=state.spec_id if state else 0,
        metadata=tuple((name, column) for name, column in table.spec.metadata.items() if column != key_column),
        target_file_size_bytes=target_file_size(table),
        reading=replace(_reading(table), aliases=_aliases(table, known)),
        dead_letters=_dead_letters_target(table),
        shaping=shaping_of(table.spec),
        key=_key_reading(table) if key_column else None,
        headers=_header_readings(table),
        partition_spec=state.partition_spec if state else "",
        sort_order=state.sort_order if state else "",
        older_specs=state.older_specs if state else (),
        max_partitions=table.spec.limits.partitions,
        changes=changes,
        route=table.spec.route,
        route_values=table.spec.route_values,
        routed=table.routed,
        envelope=envelope_of(table.spec, changes.paths if changes else ()),
        is_single_task=table.key_updates.is_single_task,
        unpaired=tuple(sorted(table.key_updates.unpaired)),
        missing_required=tuple(sorted(table.key_updates.missing_required)),
        crashing=tuple(sorted(table.bad_records.crashing, key=lambda one: (one.topic, one.partition, one.offset))),
        abandoned=tuple(sorted(table.key_updates.abandoned)),
        applied_early=tuple(sorted(table.key_updates.applied_early)),
        last_deletes=table.progress.last_deletes,
        before_key=_envelope_key_reading(table) if table.spec.envelope is not None else None,
        tombstones=table.spec.tombstones if table.spec.tombstones != "delete" else "",
        protection=protection_of(table.spec),
    )


def protection_of(spec: TableSpec) -> Protection | None:
    """Returns what protects the table's records; None without a key."""
    if spec.protect_key is None:
        return None
    rules = tuple(Rule(**rule.model_dump()) for rule in spec.protect)
    return Protection(rules, ProtectKey(spec.protect_key.encode()))


def _dead_letters_target(table: Table) -> TableTarget | None:
    state = table.bad_records.dead_letters
    return replace(plain_target(state), protection=protection_of(table.spec)) if state else None


def _aliases(table: Table, schema: Schema | None) -> Aliases:
    """Returns the other names of the table's columns, except for columns that the pipeline file assigns a field; none
    where names of new columns differ from those of fields.
    """
    mapping = table.state.properties.get(PROPERTY, "") if table.state is not None else ""
    shaping = shaping_of(table.spec)
    if not mapping or schema is None or (shaping is not None and shaping.makes_names):
        return ()
    given = {column for column, _ in shaping.fields} if shaping is not None else set()
    given.update(own_columns(table.spec))
    return tuple((path, names) for path, names in aliases_of(mapping, schema) if path[0] not in given)


def _change_reading(table: Table) -> ChangeReading:
    spec = table.spec
    columns, is_key_of_record = spec.key_columns, not spec.key_columns
    reading = _envelope_key_reading(table) if spec.envelope is not None else _key_reading(table)
    is_plain_key = spec.key.format == "text" or (spec.key.format == "raw" and spec.envelope is None)
    if is_key_of_record and is_plain_key:
        # The column with the whole key is already decoded.
        columns, is_key_of_record = (spec.metadata["key"],), False
    if is_key_of_record and table.state is not None:
        marked = table.state.marks.get(KEY_COLUMNS)
        columns = tuple(json.loads(marked)) if marked else identifier_names(table.state.schema)
        if marked and spec.has_query and table.schema.query is not None:
            columns = columns_of_keys(table.schema.query, columns)
    return ChangeReading(
        reading,
        columns,
        is_key_of_record,
        order_by=spec.order_by or "",
        marks_deletes=spec.deletes == "soft",
        has_source_order=spec.order_by is not None and spec.metadata.get("source_order") == spec.order_by,
        is_one_partition=len(table.partitions()) <= 1,
        is_one_topic=len(spec.topics) == 1 and spec.topics[0].literal is not None,
    )


def columns_of_keys(query: Query, fields: Iterable[str]) -> tuple[str, ...]:
    """Returns the columns that a query makes of fields of the records' keys, each of one field alone.

    Raises: SpecError where it leaves out one of them.
    """
    made: dict[str, str] = {}
    for column, names in origins_of(program_of(query)).columns.items():
        if len(names) == 1:
            made.setdefault(next(iter(names)), column)
    for name in fields:
        if name not in made:
            raise SpecError(f"the query leaves out {name}, which identifies rows", remedy=f"add `{name}` to `select`")
    return tuple(made[name] for name in fields)


def _envelope_key_reading(table: Table) -> Reading:
    """Returns how keys of envelopes are read: with the format of the values, where the pipeline file has none for keys."""
    spec = table.spec
    return _key_reading(table, spec.value.model_copy(update={"message": None}) if spec.key.format == "raw" else None)


def _reading(table: Table) -> Reading:
    spec = table.spec
    unknown_fields: str = spec.unknown_fields
    if spec.schema_evolution == "freeze" and unknown_fields == "add":
        unknown_fields = "rescue" if spec.rescue else "refuse"
    value = spec.value
    return Reading(
        format=value.format,
        framing=_framing(value),
        is_by_header=value.framing == "header" and value.source != "latest",
        message=value.message or "",
        schemas=tuple(sorted(table.schema.of_values)),
        unknown_fields=unknown_fields,
        is_rescuing=spec.rescue,
        may_widen=spec.schema_evolution == "evolve",
        on_bad=spec.on_bad_record,
        max_record_bytes=spec.limits.record_bytes,
        rejected=tuple(sorted(table.schema.rejected.items())),
        columns_left=max(0, spec.limits.columns - (len(table.state.schema.field_ids) if table.state else 0)),
        numbers=spec.numbers,
        infers_times=spec.infers_timestamps,
    )


def _key_reading(table: Table, written: ValueSpec | None = None) -> Reading:
    """Returns how keys are read. written: the format to use in place of the pipeline file's format of keys."""
    spec = table.spec
    key = written or spec.key
    return Reading(
        format=key.format,
        framing=_framing(key),
        is_by_header=key.framing == "header" and key.source != "latest",
        header=KEY_HEADER,
        message=key.message or "",
        schemas=table.schema.under(KEY_SCHEMA),
        unknown_fields="refuse" if spec.schema_evolution == "freeze" else "add",
        may_widen=spec.schema_evolution == "evolve",
        on_bad=spec.on_bad_record,
        numbers=spec.numbers,
    )


def _header_readings(table: Table) -> tuple[tuple[str, Reading], ...]:
    """Returns how the header of each column is read: with its declared type only. Text and bytes need no decoding."""
    decoded = ((one.name, one.value) for one in table.spec.columns if one.value is not None)
    return tuple(
        (column, _header_reading(table, column, value))
        for column, value in decoded
        if value.format not in ("text", "raw")
    )


def _header_reading(table: Table, column: str, value: ValueSpec) -> Reading:
    return Reading(
        format=value.format,
        framing=_framing(value),
        message=value.message or "",
        schemas=table.schema.under(f"{HEADER_SCHEMA}{column}:"),
        unknown_fields="drop",
        may_widen=False,
        on_bad=table.spec.on_bad_record,
    )


def target_file_size(table: Table) -> int:
    """Returns the target size of the table's files, in bytes."""
    declared = table.state.properties.get("write.target-file-size-bytes") if table.state else None
    return int(declared) if declared else table.spec.commit.target_file_size_bytes


def _framing(value: ValueSpec) -> Framing:
    """Returns the framing of the bytes: where they contain the id of their schema."""
    return "none" if value.framing == "header" or value.source == "latest" else value.framing
