"""What `frazil run` would create or change: decided as a run decides, from a sample of the records, and not executed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyiceberg.schema import Schema

from frazil.catalog.port import Catalog
from frazil.decode.columns import Decoded
from frazil.decode.lossless import format_type
from frazil.error_classes import ErrorClass
from frazil.errors import FrazilError, SpecError, UnavailableError, UnusableType, unforeseen
from frazil.ingest.batches.bad_records import SET_ASIDE, remedy_for, remedy_for_many
from frazil.ingest.batches.outcome import WITHOUT_ROWS_REMEDY, without_rows
from frazil.ingest.failures import TableStopped, describe_error
from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.loop.topics import missing_topics, refuse_empty_patterns
from frazil.ingest.plan import lag_records, limit_ranges, open_transactions
from frazil.ingest.tables.first_values import refused_kinds
from frazil.ingest.tables.preflight import (
    refuse_columns,
    refuse_foreseen,
    warnings_of,
)
from frazil.ingest.tables.queries import Queries, QueryTables
from frazil.ingest.tables.schema_changes import CLASH_REMEDY, accept_names, adder, query_adder, within_limit
from frazil.ingest.tables.schemas import Schemas, ignored_in, ignored_phrases
from frazil.ingest.tables.settings import declared_columns, key_column_of, own_columns, query_columns, shaping_of
from frazil.ingest.tables.table import Table
from frazil.kafka.port import Partition, ReadRecord, Source
from frazil.ops.layouts import PlannedLayout, plan_layout
from frazil.ops.lineage import notes_document
from frazil.ops.reports import Problem, held_back, problem_document, to_json
from frazil.ops.sampling import (
    absent_columns,
    decode_sample,
    keys_beside,
    kinds_without_rows,
    own_sample,
    propose_times,
    sampled_keys,
    unopened_envelopes,
    unselected_fields,
    unused_fields,
    updates_without_document,
)
from frazil.ops.status import MissingTopics, no_such_table, problem_of
from frazil.queries.catalyst import TypeRefused
from frazil.rows.record_keys import KEY_SCHEMA
from frazil.schema.evolve import NameConflict, RequestedFields, compare_schemas, extend_schema
from frazil.spec import ColumnSpec, PipelineSpec, TableSpec
from frazil.spec.catalog_properties import unknown_properties
from frazil.spec.changes import describe_history
from frazil.spec.publishing import describe_publishing
from frazil.spec.state import describe_state
from frazil.spec.steps import describe_waits
from frazil.stages.notes import StageNote
from frazil.stages.table import table_stages
from frazil.stages.watch import Tally
from frazil.types import OffsetRange

SAMPLE_RECORDS = 10_000
_MOST_ROUNDS = 5
_REMEDIES = {
    "stop": (
        "fix the producer, or give the field a column for any value,"
        " `columns: {NAME: {type: string, coerce: true, field: PATH}}`"
    ),
    "dead_letter": "a run writes such records to the dead-letter table; `on_bad_record: stop` would stop instead",
    "skip": "a run skips such records and counts them; `on_bad_record: dead_letter` would keep them",
}
ReadSample = Callable[[list[OffsetRange]], list[ReadRecord]]


@dataclass(frozen=True)
class PlannedColumn:
    """A column to be added or widened."""

    #: Its path.
    name: str
    #: In the notation of a pipeline file.
    type: str
    #: `declared`, `constant`, `count` (of records, by `merge`), `header`, `inferred`, `registry` (from a schema),
    #: `metadata`; `widened` for an existing column.
    source: str


@dataclass(frozen=True)
class FirstOffset:
    """The offset at which reading begins."""

    topic: str
    partition: int
    offset: int
    #: `progress` where it is committed, else `start`.
    source: str


INNER = ("problem", "layout", "is_idle", "notes", "sample", "query")
"""Fields of a planned table that are not keys of its JSON."""


@dataclass
class SampleFindings:
    """What the records of the sample show, for `frazil check`."""

    #: Whether so many of them are bad that a run would stop with any `on_bad_record`.
    is_too_bad: bool = False
    #: Warnings about columns that every record needs and no record has.
    absent_columns: tuple[str, ...] = ()
    #: The other warnings that only records show.
    warnings: tuple[str, ...] = ()
    #: The kinds of the records, if all of them change no row.
    ignored_kinds: tuple[str, ...] = ()


@dataclass
class PlannedQuery:
    """The result of the table's query for the records of the sample."""

    #: The columns with their types; empty while no field of the records is known.
    columns: tuple[tuple[str, str], ...] = ()
    #: Why it cannot make the table's rows.
    problem: Problem | None = None


@dataclass
class PlannedTable:
    """What a run would do with one table."""

    #: The name of the table.
    name: str
    #: `create`, `change` (of columns or layout), `start` (to read more partitions), `wait`, `stop` or `none`.
    action: str = "none"
    #: The topics that the table reads.
    topics: tuple[str, ...] = ()
    #: Columns that the table would get: `name`, `type`, and `source`, such as `inferred` or `declared`.
    columns: tuple[PlannedColumn, ...] = ()
    #: Where reading begins: `topic`, `partition`, `offset`, and `source`: `progress` or `start`.
    first_offsets: tuple[FirstOffset, ...] = ()
    #: Records in the sample.
    sampled: int = 0
    #: Unread records, those that wait for an open transaction included.
    unread: int = 0
    #: The unread records that wait for an [open transaction](../troubleshoot/open-transaction.md), as in `frazil status`.
    open_transactions: tuple[OffsetRange, ...] = ()
    #: Bad records in the sample.
    bad: int = 0
    #: Schema changes that `schema_evolution` forbids.
    refused: tuple[str, ...] = ()
    #: Why a run would wait or stop, or the first bad record.
    problem: Problem | None = None
    layout: PlannedLayout = field(default_factory=PlannedLayout)
    #: Warnings: rows of another program or pipeline whose records would be read again, an `order_by` column that is text,
    #: several topics or partitions without an order, a key column that no record has, a field of keys that rows lack,
    #: changes without their `envelope`, old metadata files that are kept.
    warnings: tuple[str, ...] = ()
    #: The first expression of the query that Spark computes before the tasks, and why; empty where tasks compute the whole
    #: query.
    in_spark: str = ""
    #: What each stage of an installed package does with the rows, in their order.
    stages: tuple[str, ...] = ()
    #: What `merge`, `dedupe` and `mode: history` do, a line for each.
    state: tuple[str, ...] = ()
    #: Where commits are made and what readers see of them, with a `branch` or `tags`.
    publishing: tuple[str, ...] = ()
    #: Whether a run would only continue to read, or wait for a first record.
    is_idle: bool = False
    #: What stages do to the fields of the records before the query.
    notes: tuple[StageNote, ...] = ()
    #: What the records of the sample show.
    sample: SampleFindings = field(default_factory=SampleFindings)
    #: The result of the query.
    query: PlannedQuery = field(default_factory=PlannedQuery)

    def document(self) -> dict[str, Any]:
        """Returns the JSON of the planned table."""
        added = to_json(self.layout) | problem_document(self.problem) | notes_document(self.notes)
        return to_json(self, *INNER) | added


@dataclass(frozen=True)
class _SampleReader:
    """Access to sample records and their schemas."""

    #: Reads records of offset ranges.
    read_sample: ReadSample
    #: Schemas of the registry; None without a registry.
    schemas: Schemas | None
    file: Path
    catalog: Catalog
    #: Analyses queries.
    queries: QueryTables


def plan_document(spec: PipelineSpec, tables: Sequence[PlannedTable]) -> dict[str, Any]:
    """Returns the JSON of a plan."""
    return {
        "pipeline": spec.pipeline,
        "changes": not all(table.is_idle for table in tables),
        "warnings": warnings_of_file(spec),
        "tables": {table.name: table.document() for table in tables},
    }


def warnings_of_file(spec: PipelineSpec) -> list[str]:
    """Returns warnings about the pipeline file itself: properties of its catalog that have no effect."""
    return unknown_properties(spec.catalog.properties, spec.catalog.impl)


def plan_tables(
    spec: PipelineSpec,
    source: Source,
    catalog: Catalog,
    read_sample: ReadSample,
    schemas: Schemas | None = None,
    queries: Queries | None = None,
    only: str | None = None,
) -> list[PlannedTable]:
    """Returns the plan of every table, by name, or of the one named `only`.

    Raises: SpecError for a pattern that matches no topic, and where no table has the name; UnavailableError where a service
    does not answer.
    """
    discovery = Discovery(spec, source, catalog)
    cluster_id = source.cluster_id()
    discovery.refresh_topics()
    discovery.load_derived()
    tables = discovery.tables
    refuse_empty_patterns(spec, source)
    missing: dict[str, str] = {table.name: topic for table, topic in missing_topics(tables.values())}
    for selector in spec.selected.topics:
        name = f"{spec.selected.namespace}.{selector.literal}"
        if selector.literal is not None and name not in tables:
            tables[name] = Table(spec.table_for(selector.literal))
            missing[name] = selector.literal
    partitions = {partition for table in tables.values() for partition in table.partitions()}
    log_ends, ends = source.log_ends(partitions), source.ends(partitions)
    planned = []
    sample_reader = _SampleReader(read_sample, schemas, spec.file.path, catalog, QueryTables(catalog, queries))
    advice = MissingTopics(source)
    # Tables that are derived from values are known once records have been read.
    is_declared = only in tables and tables[only].spec.source.share is None
    left = [only] if only is not None and is_declared else sorted(tables)
    while left:
        for name in left:
            spec_of_table = tables[name].spec
            plan = PlannedTable(
                name,
                stages=tuple(describe_stages(spec_of_table)),
                state=(
                    *describe_state(spec_of_table),
                    *describe_history(spec_of_table),
                    *describe_waits(spec_of_table),
                ),
                publishing=tuple(describe_publishing(spec_of_table.publishing)),
            )
            if name in missing:
                plan.problem = advice.problem(missing[name])
            _plan_table(discovery, tables[name], plan, ends, cluster_id, sample_reader)
            _add_open_transactions(tables[name], plan, ends, log_ends)
            planned.append(plan)
        # Those that are derived from the sample.
        left = [] if is_declared else sorted(tables.keys() - {plan.name for plan in planned})
    if only is not None and only not in tables:
        raise no_such_table(only, tables)
    return sorted((plan for plan in planned if only in (None, plan.name)), key=lambda plan: plan.name)


def _plan_table(
    discovery: Discovery,
    table: Table,
    plan: PlannedTable,
    ends: Mapping[Partition, int],
    cluster_id: str,
    sample_reader: _SampleReader,
) -> None:
    committed: set[Partition] = set()
    try:
        discovery.load(table, cluster_id)
        committed = {(t, p) for t, partitions in table.progress.offsets.items() for p in partitions}
        discovery.check_start(table)
        refuse_foreseen(table, sample_reader.catalog)
        discovery.add_first_offsets(table)
        discovery.check_offsets(table, dict(ends))
        records = sample_reader.read_sample(limit_ranges(_unread(table, ends), SAMPLE_RECORDS))
        if table.spec.source.share is not None:
            records = own_sample(table, records, sample_reader.schemas)
            discovery.add_derived(table)
        add = _add_query_columns if table.spec.has_query else _add_columns
        add(table, plan, records, sample_reader)
        plan.action = action_of(table, plan, ends, committed)
    except TableStopped as error:
        plan.action, plan.problem = "stop", problem_of(error)
    except FrazilError:
        raise
    except Exception as error:  # noqa: BLE001  (whatever is wrong with one table, the others are planned)
        plan.action, plan.problem = "stop", problem_of(unforeseen(error, table.name))
    _add_offsets(table, plan, ends, committed)


def describe_stages(spec: TableSpec) -> Iterator[str]:
    """Yields what each stage that other lines do not show does with the rows of a table."""
    yield from filter(None, (stage.describe() for stage in table_stages(spec)))


def action_of(table: Table, plan: PlannedTable, ends: Mapping[Partition, int], committed: set[Partition]) -> str:
    """Returns `create` for a new table, `change` for new columns or a new layout, `start` for unread partitions without
    progress, `wait` for a missing topic or first record, `stop` at a bad record or at too many, `none` to continue
    reading.
    """
    if plan.bad and table.spec.bad_records.on_bad_record == "stop":
        return "stop"
    if table.state is None and not plan.columns:
        return "wait"
    if plan.sample.is_too_bad:
        return "stop"
    if table.state is None:
        return "create"
    if plan.columns or plan.layout.is_changed:
        return "change"
    if plan.problem is not None and not plan.bad:
        return "wait"
    return "start" if any((r.topic, r.partition) not in committed for r in _unread(table, ends)) else "none"


def _unread(table: Table, ends: Mapping[Partition, int]) -> list[OffsetRange]:
    position = table.position()
    placed = {*table.partitions()} - {*table.unplaced()}  # A partition may have lost its leader between two requests.
    return [
        OffsetRange(topic, partition, position[topic][partition], end)
        for (topic, partition), end in sorted(ends.items())
        if (topic, partition) in placed and end > position[topic][partition]
    ]


def _add_columns(table: Table, plan: PlannedTable, records: list[ReadRecord], sample_reader: _SampleReader) -> None:
    """Adds the columns that the records and the pipeline file ask for and the table lacks."""
    spec, state = table.spec, table.state
    declared = {column.name: column for column in spec.shape.columns}
    existing = {field.name for field in state.schema.fields} if state is not None else set()
    # A run adds these before it reads.
    own = {name: kind for name, kind in own_columns(spec).items() if name not in existing and name not in declared}
    new = {name: column for name, column in declared.items() if name not in existing}
    wanted = {name: column.type for name, column in declared.items()} | own
    before = extend_schema(state.schema if state is not None else Schema(), {(): wanted})
    checking = sample_reader.queries.checking(table)
    schema, decoded = _read(table, before, records, sample_reader.schemas, checking)
    first = decode_sample(table, records, before, sample_reader.schemas)
    proposed = tuple(propose_times(table, before, records, first, sample_reader.schemas))
    plan.sampled, plan.bad = len(records), decoded.mismatch_count
    plan.sample.ignored_kinds = kinds_without_rows(table, records)
    plan.sample.is_too_bad = Tally(plan.sampled, plan.bad).share > spec.bad_records.dead_letters.stop_above
    plan.refused = tuple(sorted(decoded.refusals))
    if decoded.mismatches:
        plan.problem = _mismatch(decoded, records, spec, plan.sample.is_too_bad)
    columns = [PlannedColumn(name, format_type(column.type), _source_of(spec, column)) for name, column in new.items()]
    for change in compare_schemas(state.schema, before) if state is not None else ():
        if change.path not in wanted or change.path in existing:
            word = "declared" if change.is_new else "widened"
            columns.append(PlannedColumn(change.path, format_type(change.kind), word))
    source, key_column = "registry" if spec.source.value.needs_registry else "inferred", key_column_of(spec)
    for change in compare_schemas(before, schema):
        word = "metadata" if change.path.split(".")[0] == key_column else source if change.is_new else "widened"
        columns.append(PlannedColumn(change.path, format_type(change.kind), word))
    is_planned = bool(columns or state is not None or (records and spec.metadata))
    if is_planned:
        columns += [PlannedColumn(name, format_type(kind), "metadata") for name, kind in own.items()]
    plan.columns = tuple(columns)
    if is_planned:
        try:
            refuse_columns(table, schema)
            plan.layout = plan_layout(table, schema, sample_reader.file)
        except UnusableType as error:
            _refuse_first_values(table, decoded, error)
            _add_columns(table, plan, records, sample_reader)
            return
        except SpecError as error:
            raise TableStopped(*describe_error(error)) from None
    fitting = plan.sampled - plan.bad
    plan.sample.absent_columns = tuple(absent_columns(spec, schema, fitting))
    plan.sample.warnings = (
        *unopened_envelopes(spec, schema),
        *unselected_fields(table, records, sample_reader.schemas, fitting),
        *proposed,
        *_ignored(table),
        *updates_without_document(table),
        *keys_beside(table, records, schema, sample_reader.schemas),
    )
    plan.warnings = (*warnings_of(table, schema), *plan.sample.absent_columns, *plan.sample.warnings)


def _add_query_columns(
    table: Table, plan: PlannedTable, records: list[ReadRecord], sample_reader: _SampleReader
) -> None:
    """Adds the columns that the table's query makes of the records of the sample, and the table lacks."""
    view = table.records
    before = extend_schema(view.state.schema if view.state else Schema(), {(): declared_columns(view.spec)})
    checking = sample_reader.queries.checking(table)
    schema, decoded = _read(view, before, records, sample_reader.schemas, checking)
    plan.sampled, plan.bad = len(records), decoded.mismatch_count
    plan.sample.ignored_kinds = kinds_without_rows(table, records)
    plan.sample.warnings = tuple(updates_without_document(table))
    plan.refused = tuple(sorted(decoded.refusals))
    if decoded.mismatches:
        plan.problem = _mismatch(decoded, records, table.spec, is_too_bad=False)
    if not schema.fields:
        plan.query.problem = _problem_of_any(table, sample_reader.queries)
        return
    try:
        first_schema = sample_reader.queries.first_schema(table, schema, sampled_keys(view, records, schema))
        query = table.schema.query
        plan.notes = query.notes if query is not None else ()
        after = query_adder(table.spec, query)(table.state.schema) if table.state and query else first_schema
    except UnavailableError as error:
        plan.problem = plan.query.problem = problem_of(error)
        return
    except (TypeRefused, UnusableType) as error:
        plan.query.problem = problem_of(error)
        _refuse_first_values(table, decoded, error)
        plan.query.problem = None
        _add_query_columns(table, plan, records, sample_reader)
        return
    except SpecError as error:
        plan.query.problem = problem_of(error)
        raise TableStopped(*describe_error(error)) from None
    plan.query.columns = (
        tuple((name, format_type(kind)) for name, kind in query_columns(query).items()) if query else ()
    )
    fitting = plan.sampled - plan.bad
    plan.warnings = (
        *warnings_of(table, after),
        *unselected_fields(view, records, sample_reader.schemas, fitting),
        *unused_fields(table, schema, records, fitting),
        *plan.sample.warnings,
    )
    part = query.program.spark_part if query is not None and query.program is not None else None
    plan.in_spark = part.reason if part is not None else ""
    own = own_columns(table.spec)
    plan.columns = tuple(
        PlannedColumn(
            change.path,
            format_type(change.kind),
            "metadata" if change.path in own else "query" if change.is_new else "widened",
        )
        for change in compare_schemas(table.state.schema if table.state else Schema(), after)
    )
    plan.layout = plan_layout(table, after, sample_reader.file)


def _refuse_first_values(table: Table, decoded: Decoded, error: TypeRefused | UnusableType) -> None:
    """Notes the first values of fields without which a run reads the records again.

    Raises: TableStopped where that would not help.
    """
    mismatched = [mismatch.path for mismatch in decoded.mismatches if mismatch.kind == ErrorClass.TYPE_MISMATCH]
    try:
        table.schema.refused_kinds |= refused_kinds(table, error, decoded.requested_fields, mismatched)
    except SpecError as refusal:
        raise TableStopped(*describe_error(refusal)) from None


def _problem_of_any(table: Table, queries: QueryTables) -> Problem | None:
    """Returns what of a table's query is wrong whatever fields the records have."""
    try:
        queries.check(table)
    except SpecError as error:
        return problem_of(error)
    return None


def _ignored(table: Table) -> Iterator[str]:
    """Yields warnings for schema settings of the records that have no effect."""
    for key, value in (("value", table.spec.source.value), ("key", table.spec.source.key)):
        mine = (
            schema for name, schema in table.schema.schemas.items() if name.startswith(KEY_SCHEMA) == (key == "key")
        )
        yield from filter(None, dict.fromkeys(ignored_phrases(ignored_in(schema, value), key) for schema in mine))


def _read(
    table: Table,
    schema: Schema,
    records: list[ReadRecord],
    schemas: Schemas | None,
    check: Callable[[Schema], object],
) -> tuple[Schema, Decoded]:
    """Returns the schema that the records ask for, and the records as a task reads them. check: as for `accept_columns`.

    Raises: TableStopped where no such schema exists, or where it has more columns than the table may have.
    """
    before = schema
    for _ in range(_MOST_ROUNDS):
        decoded = decode_sample(table, records, schema, schemas)
        try:
            after = adder(table.spec, decoded.requested_fields)(schema)
            check(after)
        except NameConflict as error:
            if table.spec.stops_at_mismatch:
                raise TableStopped(str(error), CLASH_REMEDY, table.name) from None
            after, decoded = _without_clashes(table, schema, decoded, check)
        if after == schema or shaping_of(table.spec) is None:
            break
        schema = after  # A declared column may have found its field: other fields become visible when it is read.
    try:
        return within_limit(table, lambda _: after)(before), decoded
    except SpecError as error:
        raise TableStopped(*describe_error(error)) from None


def _without_clashes(
    table: Table, schema: Schema, decoded: Decoded, check: Callable[[Schema], object]
) -> tuple[Schema, Decoded]:
    """Returns the schema with the fields that the table can have together; the others are refused."""

    def add(some: RequestedFields) -> Schema:
        return adder(table.spec, some)(schema)

    accepted, rejected = accept_names(decoded.requested_fields, add, check)
    rejections = {f"column {'.'.join(path)}: {reason}" for path, reason in rejected.items()}
    return add(accepted), replace(decoded, refusals=decoded.refusals | rejections)


def _mismatch(decoded: Decoded, records: list[ReadRecord], spec: TableSpec, is_too_bad: bool) -> Problem:
    first, more = decoded.mismatches[0], decoded.mismatch_count - 1
    record = records[first.row]
    where = f"topic {record.topic}, partition {record.partition}, offset {record.offset}"
    reason = f"{f'field {first.path}: ' if first.path else ''}{first.reason}"
    reason += f" (and {more} more in the sample)" if more else ""
    if spec.bad_records.on_bad_record == "stop":
        return Problem(reason, remedy_for(first.kind, spec, _REMEDIES["stop"] if first.path else SET_ASIDE), where)
    if not is_too_bad:
        return Problem(reason, _REMEDIES[spec.bad_records.on_bad_record], where)
    remedy = remedy_for(first.kind, spec, remedy_for_many(reason))
    share = f"{decoded.mismatch_count} of {len(records)} records of the sample are bad"
    reason = f"{share}, more than {100 * spec.bad_records.dead_letters.stop_above:g}%: {reason}"
    return Problem(reason, remedy, where)


def _source_of(spec: TableSpec, column: ColumnSpec) -> str:
    if column.name in spec.changes.counted_columns:
        return "count"
    if column.constant is not None:
        return "constant"
    return "header" if column.header is not None else "declared"


def _add_offsets(table: Table, plan: PlannedTable, ends: Mapping[Partition, int], committed: set[Partition]) -> None:
    """Adds where reading begins, and how much there is to read."""
    position = table.position()
    plan.topics, plan.unread = tuple(sorted(table.offsets.topics)), lag_records(position, ends)
    plan.first_offsets = tuple(
        FirstOffset(topic, partition, offset, "progress" if (topic, partition) in committed else "start")
        for topic in sorted(position)
        for partition, offset in sorted(position[topic].items())
    )
    plan.is_idle = plan.action == "none"
    if plan.action == "wait" and plan.problem is None and plan.sample.ignored_kinds:
        plan.is_idle = True
        plan.problem = Problem(without_rows(plan.sample.ignored_kinds), WITHOUT_ROWS_REMEDY, table.name)
    elif plan.action == "wait" and plan.problem is None:
        plan.is_idle = not plan.unread
        remedy = "produce records with fields, or declare `columns`"
        plan.problem = Problem("there is no record with a field to infer columns from", remedy, table.name)


def _add_open_transactions(
    table: Table, plan: PlannedTable, ends: Mapping[Partition, int], log_ends: Mapping[Partition, int]
) -> None:
    """Adds what waits for open transactions: a table without other records waits for them, and not for a field."""
    waiting = plan.open_transactions = open_transactions(table.position(), ends, log_ends)
    if plan.action == "wait" and waiting and not plan.unread:
        plan.problem, plan.is_idle = held_back(waiting), False
    plan.unread += sum(offsets.span for offsets in waiting)
