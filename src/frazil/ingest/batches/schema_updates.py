"""Creates tables, and gives them the columns that records need.

A new table has the columns that the pipeline file declares and those that its first records have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog
from pyiceberg.schema import Schema

from frazil.catalog.port import Catalog, TableState
from frazil.dead_letters.tables import create_table
from frazil.error_classes import ErrorClass
from frazil.errors import ConflictError, SpecError, UnavailableError, UnusableType
from frazil.failpoints import hit
from frazil.ingest.batches.bad_records import first_bad_record
from frazil.ingest.batches.change_findings import change_findings_in
from frazil.ingest.batches.job import JobRunner, job_of, with_hints
from frazil.ingest.batches.outcome import (
    FirstValuesRefused,
    NoColumns,
    Outcome,
    RejectedFields,
    Replan,
    SchemaChanged,
)
from frazil.ingest.failures import TaskFailedError, is_heap_full, is_jvm_gone
from frazil.ingest.plan import FIRST_BATCH_RECORDS, limit_ranges
from frazil.ingest.tables.first_values import refused_kinds
from frazil.ingest.tables.preflight import check_measured_columns, refuse_columns
from frazil.ingest.tables.queries import Queries, QueryTables
from frazil.ingest.tables.schema_changes import (
    CLASH_REMEDY,
    accept_columns,
    adder,
    as_declared,
    checked_change,
    declared_adder,
    unknown_column,
)
from frazil.ingest.tables.settings import declared_columns, layout_of, own_columns, row_columns
from frazil.ingest.tables.state import find_no_op_change
from frazil.ingest.tables.table import Planned, Table, set_key_columns
from frazil.ingest.tables.target import target_of
from frazil.kafka.port import Partition
from frazil.queries.catalyst import TypeRefused
from frazil.report import TaskReport, merge_reports
from frazil.schema.evolve import (
    NameConflict,
    RequestedFields,
    TypesDiffer,
    agree_on_times,
    compare_schemas,
    dump_requested_fields,
    hints_of,
    load_requested_fields,
    merge_requested_fields,
    new_schema,
    with_identifiers,
)
from frazil.schema.projection import KEY_ROOT, document, shown_path
from frazil.types import Batch, OffsetRange, Offsets, by_partition

log = structlog.get_logger("frazil")
SAMPLE_BYTES = 64 * 1024 * 1024
"""The largest size of the values in one read of the sample, estimated from the average size in the batch."""


class TableCreator:
    """Creates tables in a catalog."""

    def __init__(self, catalog: Catalog, queries: QueryTables) -> None:
        self._catalog = catalog
        self._queries = queries

    def create(self, table: Table, record_schema: Schema | None = None, key_columns: Sequence[str] = ()) -> TableState:
        """Creates the table with its declared columns, those of `record_schema`, and its metadata columns.
        key_columns: the fields of the records' keys, where these identify the rows.
        """
        spec = table.spec
        if spec.has_query:
            return self._create_with_query(table, record_schema or Schema(), key_columns)
        record_fields = record_schema.fields if record_schema is not None else ()
        columns = {column.name: column.type for column in spec.shape.columns}
        columns |= {field.name: field.field_type for field in record_fields if field.name not in columns}
        columns |= own_columns(spec)
        docs = {field.name: field.doc for field in record_fields if field.doc}
        schema = document(new_schema(columns.items()), docs)
        refuse_columns(table, schema)
        changes = target_of(table, schema).changes
        keys = (changes.key_columns or key_columns) if changes is not None else ()
        return self._made(table, with_identifiers(schema, row_columns(spec, keys)) if keys else schema)

    def _create_with_query(self, table: Table, records: Schema, key_columns: Sequence[str]) -> TableState:
        """Creates a table with the columns that its query makes of the fields of its records."""
        declared = declared_columns(table.records.spec)
        records = Schema(*(field for field in records.fields if field.name not in declared))
        schema = self._queries.first_schema(table, records, key_columns)
        self._made(table, schema)
        return self._queries.remember(table, records)

    def _made(self, table: Table, schema: Schema) -> TableState:
        spec = table.spec
        check_measured_columns(spec, schema)
        version, layout = spec.layout.format_version, layout_of(spec)
        state = create_table(
            self._catalog, table.name, schema, spec.layout.properties, version, layout, spec.layout.location
        )
        if state.format_version != version:
            log.warning("other_format_version", table=table.name, asked=version, found=state.format_version)
        return self.with_declared(table, state)

    def with_declared(self, table: Table, state: TableState) -> TableState:
        """Adds columns that the pipeline file has, as another one may have created the table; returns the table."""
        if not compare_schemas(state.schema, declared_adder(table.spec)(state.schema)):
            return state
        return self._catalog.evolve(table.name, declared_adder(table.spec))


def sample_reads(
    position: Offsets, read: Sequence[OffsetRange], reach: Mapping[Partition, int], record_bytes: float
) -> list[list[OffsetRange]]:
    """Returns the ranges to read behind the first batch (`read`): all records where two reads suffice, else one read in
    the middle and one at the end, with an equal share of every partition. reach: how far records may be read.
    """
    ends = {(r.topic, r.partition): r.end for r in read}
    rest = [
        OffsetRange(*place, start, reach[place])
        for place, offset in sorted(by_partition(position).items())
        if (start := ends.get(place, offset)) < reach.get(place, 0)
    ]
    most = max(1, min(FIRST_BATCH_RECORDS, int(SAMPLE_BYTES / max(1.0, record_bytes))))
    total = sum(r.span for r in rest)
    if total <= most:
        return [rest] if rest else []
    first = {(r.topic, r.partition): r.span for r in limit_ranges(rest, most)}
    spans = [(r, first.get((r.topic, r.partition), 0)) for r in rest]
    if total <= 2 * most:
        parts = ([_part(r, 0, span) for r, span in spans], [_part(r, span, r.span) for r, span in spans])
    else:
        middles = [_part(r, (r.span - span) // 2, (r.span + span) // 2) for r, span in spans]
        parts = (middles, [_part(r, r.span - span, r.span) for r, span in spans])
    return [[r for r in part if r.span] for part in parts]


def _part(whole: OffsetRange, start: int, end: int) -> OffsetRange:
    return OffsetRange(whole.topic, whole.partition, whole.start + start, whole.start + end)


class SchemaUpdates:
    """Changes schemas through the catalog; a batch is planned again after each change."""

    def __init__(
        self, catalog: Catalog, jobs: JobRunner, queries: Queries | None = None, referenced: Catalog | None = None
    ) -> None:
        self._catalog = catalog
        self._jobs = jobs
        self.queries = QueryTables(catalog, queries, referenced)
        self.new_tables = TableCreator(catalog, self.queries)

    def update(self, planned: Planned, report: TaskReport) -> Outcome:
        """Creates the table, or changes its schema as the report requests; returns the outcome of the batch.

        Raises:
            RecordError: two records have different types for a field, and one of them does not fit the other.
            SpecError: two columns have one name, or the table would have too many columns.
            ConflictError: the table was recreated.
        """
        table = planned.table
        try:
            records = table.records
            requested_fields, rejected = accept_columns(
                records, as_declared(records, _wanted(planned, report)), self.queries.checking(table)
            )
            if rejected.keys() - table.schema.rejected.keys():
                if table.spec.stops_at_mismatch:
                    raise NameConflict(next(iter(rejected.values())))
                # Other fields of these records may be in no good record, so that they are not added.
                refusals = {f"column {'.'.join(shown_path(path))}: {reason}" for path, reason in rejected.items()}
                refused = replace(report, schema=replace(report.schema, refusals=report.schema.refusals | refusals))
                return Replan(table.state, refused, (RejectedFields(rejected), *change_findings_in(report)))
            if table.state is not None:
                hit("evolve.before")
                made_optional = [tuple(json.loads(path)) for path in sorted(report.schema.made_optional)]
                add = adder(records.spec, requested_fields, made_optional)
                change = checked_change(table, add, report.schema.key_columns)
                evolved = self.queries.evolve(table, change)
                state = set_key_columns(self._catalog, evolved, report.schema.key_columns)
                no_op_change = find_no_op_change(
                    table.state, state, requested_fields, made_optional, table.schema.no_op_change
                )
                is_visible = (table.state.uuid, table.state.shape) != (state.uuid, state.shape)
                changed = SchemaChanged(len(state.schema.fields), is_visible, no_op_change)
                return Replan(state, report, (changed, *change_findings_in(report)))
            add = adder(records.spec, requested_fields)
            declared = new_schema(
                (column.name, column.type) for column in records.spec.shape.columns if not column.is_own
            )
            schema = checked_change(table, add, report.schema.key_columns)(declared)
            if not schema.fields and not table.spec.shape.columns and not table.spec.metadata:
                return Replan(None, report, (NoColumns(),))
            hit("create.before")
            try:
                created = self.new_tables.create(table, schema, report.schema.key_columns)
            except UnavailableError as error:
                if unknown_column(error) and report.bad_records.first and not requested_fields:
                    return Replan(None, report, (NoColumns(),))  # Why no record could bring the column.
                return _without_first_values(table, report, error)
            keyed = set_key_columns(self._catalog, created, report.schema.key_columns)
            return Replan(keyed, report, (SchemaChanged(len(keyed.schema.fields)), *change_findings_in(report)))
        except TypesDiffer as error:
            # Read with the first types, the record that contradicts them is a bad record with an offset.
            first = merge_requested_fields(map(load_requested_fields, report.schema.requested_fields), keeps_first=True)
            view = table.records
            schema = adder(view.spec, first)(view.state.schema if view.state else Schema())
            remedy = f"declare the column {error.path[0]} with a type that holds the values, or fix the producer"
            if error.path[0] == KEY_ROOT:
                remedy = "write `key: {format: text}` and name another column for the key, or fix the producer"
            contradiction = first_bad_record(self._jobs, planned, schema, remedy)
            if not isinstance(contradiction, ConflictError):
                raise contradiction from None
            # The first types hold every value of the batch, such as decimals of another scale.
            return self.update(planned, _requesting(report, first))
        except NameConflict as error:
            raise SpecError(str(error), remedy=CLASH_REMEDY, where=table.name) from None
        except (TypeRefused, UnusableType) as error:
            return _without_first_values(table, report, error)

    def sampled(self, planned: Planned, report: TaskReport) -> TaskReport:
        """Returns the report of a table's first batch with the fields and missing schemas of a sample of the records
        behind it. Types of the batch itself take precedence.
        """
        table = planned.table
        if not report.schema.requested_fields or table.progress.snapshot_id is not None:
            return report
        record_bytes = report.counts.value_bytes / max(1, report.counts.record_count)
        try:
            requested_fields, missing = [_wanted(planned, report)], report.schema.missing
        except TypesDiffer:  # `update` stops the table at a record of the batch.
            return report
        for ranges in sample_reads(planned.position, planned.batch.ranges, planned.reach, record_bytes):
            batch = Batch(table.name, tuple(ranges))
            job = with_hints(
                job_of([replace(planned, batch=batch)], is_trial=True),
                hints_of(merge_requested_fields(requested_fields, True)),
            )
            try:
                sample_report = merge_reports(table.name, self._jobs.run([batch], job, pool="small"))
            except TaskFailedError as error:  # The crashing record is searched for when its batch is read.
                if is_jvm_gone(error) or is_heap_full(error):
                    raise
                log.warning("sample_failed", table=batch.table, where=batch.place, reason=error.message)
                continue
            requested_fields += map(load_requested_fields, sample_report.schema.requested_fields)
            missing |= sample_report.schema.missing
        if len(requested_fields) == 1 and not missing:
            return report
        if table.spec.source.infer.timestamps:
            requested_fields = agree_on_times(requested_fields)
        merged = dump_requested_fields(merge_requested_fields(requested_fields, keeps_first=True))
        return replace(report, schema=replace(report.schema, requested_fields=(merged,), missing=missing))


def _without_first_values(
    table: Table, report: TaskReport, error: TypeRefused | UnusableType | UnavailableError
) -> Outcome:
    """Returns the outcome of a batch whose first values make columns that the table cannot have.

    Raises: as `refused_kinds`.
    """
    first = merge_requested_fields(map(load_requested_fields, report.schema.requested_fields), keeps_first=True)
    mismatched = [bad.path for bad in report.bad_records.first if bad.kind == ErrorClass.TYPE_MISMATCH]
    kinds = refused_kinds(table, error, first, mismatched)
    return Replan(table.state, report, (FirstValuesRefused(kinds), *change_findings_in(report)))


def _requesting(report: TaskReport, requested_fields: RequestedFields) -> TaskReport:
    """Returns the report with these fields in place of those that tasks request."""
    return replace(report, schema=replace(report.schema, requested_fields=(dump_requested_fields(requested_fields),)))


def _wanted(planned: Planned, report: TaskReport) -> RequestedFields:
    """Returns the fields that all tasks request. Where their types differ, the first type is used if other records may
    have values that do not fit.

    Raises: TypesDiffer where types differ otherwise.
    """
    spec = planned.table.spec
    requested_fields: list[RequestedFields] = list(map(load_requested_fields, report.schema.requested_fields))
    return merge_requested_fields(
        agree_on_times(requested_fields) if spec.source.infer.timestamps else requested_fields,
        not spec.stops_at_mismatch,
    )
