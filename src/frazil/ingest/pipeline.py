"""The steps of a batch: read and write in tasks, look at the reports, evolve or commit. The only place with their
order.

Every failure before the commit has one answer: forget the batch and plan again from the table's progress.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.schema import Schema

from frazil.catalog.port import NotSent, TableState
from frazil.clock import new_id
from frazil.dead_letters.tables import DeadLetterTables, new_table_properties
from frazil.decode.settings import WriterSchema
from frazil.errors import ConflictError, FrazilError, RecordError, SpecError
from frazil.failpoints import hit
from frazil.ingest.failures import TaskFailedError
from frazil.ingest.isolate import Found
from frazil.ingest.no_op_changes import NoOpChange, find_no_op_change
from frazil.ingest.sample import note_unsampled, sample_reads
from frazil.ingest.schemas import UNKNOWN
from frazil.ingest.services import Services
from frazil.ingest.shared_reads import own_starts
from frazil.ingest.table import FEWEST_TO_JUDGE, Table, layout_of, note_key_columns, own_columns, shaping_of
from frazil.ingest.table_layout import check_measured_columns
from frazil.ingest.task import Job
from frazil.ingest.transactions.runs import Cut
from frazil.ingest.watermark import advance_watermark
from frazil.kafka.port import Partition
from frazil.runtime.release import release_memory
from frazil.schema.conflicts import MOST_REJECTED, accept
from frazil.schema.evolve import (
    NamesClash,
    Path,
    TypesDiffer,
    Wanted,
    compare_schemas,
    dump_wanted,
    extend_schema,
    load_wanted,
    merge_wanted,
    new_schema,
)
from frazil.schema.inference_hints import Hints, hints_of
from frazil.schema.inferred_times import agree_on_times
from frazil.schema.name_case import exits, fold
from frazil.schema.projection import KEY_ROOT, check_reserved, document, extend_shaped
from frazil.spec import TableSpec
from frazil.types import (
    Batch,
    Commit,
    PendingDeadLetters,
    Progress,
    Resolved,
    TaskReport,
    add_counts,
    advance,
    merge_reports,
)
from frazil.upsert.commit import OldRowsGone, ValuesGone, commit_changes
from frazil.upsert.first_tombstones import without_told
from frazil.upsert.last_deletes import still_last
from frazil.upsert.live_rows import check_columns
from frazil.upsert.truncates import unplaced
from frazil.write.partition_limit import TooManyPartitions, exceeds
from frazil.write.target import TableTarget

TOO_MANY_REMEDY = "fix the producer or the declared columns; `dead_letters: {stop_above: …}` tolerates more"
TOMBSTONE_REMEDY = (
    "write `tombstones: ignore` where records without a value are expected, `tombstones: row` to keep them as rows, or"
    " `mode: upsert` where they delete rows"
)
CLASH_REMEDY = (
    "leave one of the fields out with `exclude`, or give it a column: `columns: {NAME: {type: …, field: PATH}}`"
)
"""What to do about two fields that want one column."""
_KEYLESS_REMEDY = (
    "name the `key_columns`, or read the topic into a table with `mode: append`: rows of a source table without a"
    " primary key cannot be identified"
)
WIDE_REMEDY = (
    "declare a column whose objects have names that vary as map<string, …>, leave fields out with `exclude`, or raise"
    " `limits.columns`"
)
_REMEDIES: Mapping[str, str] = {
    "tombstone": TOMBSTONE_REMEDY,
    "too_many_fields": WIDE_REMEDY,
    "unknown_field": "write `schema_evolution: add_only`, or leave the field out with `exclude`",
}
"""What to do about bad records, by the class of their error."""
_MOST_SCHEMAS = 200
_MANY_CHANGES = 1_000_000  # Their keys take hundreds of megabytes while they are put together.


def remedy_for(kind: str, spec: TableSpec, usual: str) -> str:
    """What to do about bad records of a class of error."""
    if kind == "no_key" and spec.mode == "upsert" and not spec.key_columns:
        return _KEYLESS_REMEDY
    return _REMEDIES.get(kind, usual)


@dataclass(frozen=True)
class Identity:
    """Who writes: the pipeline, its cluster, and this run of it. A later run has a greater epoch."""

    pipeline: str
    cluster_id: str
    epoch: int
    run_id: str


@dataclass(frozen=True)
class Planned:
    """A batch with what was known when it was planned: the table, its vector, the ends, and partitions without a leader.
    places: of a batch that ends where transactions do, those in the progress after it; None while that is not looked for.
    reach: how far it may read: to the ends, or to the goal of a run that is to end.
    """

    table: Table
    batch: Batch
    position: Mapping[str, Mapping[int, int]]
    ends: Mapping[Partition, int]
    reach: Mapping[Partition, int]
    planned_at_s: float
    silent: frozenset[Partition] = frozenset()
    places: Mapping[str, Mapping[int, str]] | None = None

    def with_cut(self, cut: Cut | None) -> Planned:
        """The same up to where nothing is divided that belongs together, if that is known for this position."""
        if cut is None or cut.position != self.position:
            return self
        return replace(self, batch=replace(self.batch, ranges=cut.ranges, is_apart=True), places=cut.places)


@dataclass(frozen=True)
class Outcome:
    """How a batch ended. state: the table afterwards. is_committed: False when its schema changed and it must be
    planned again, or when nothing could be done with it yet (`is_empty`). dead_letters: the dead-letter table, where the
    batch is planned again to write to it. schemas: those that it is planned again to read with. resolved: what changes did
    to an upsert table. unpaired: as in TaskReport; missing_required: records that have no value for a required column,
    which no row had either; it is planned again without these records. rejected: fields that the table cannot have, with
    the reason; it is planned again, and records that have them are bad ones. no_op_change: a change of the table that it
    asked for in vain.
    """

    state: TableState | None
    report: TaskReport
    is_committed: bool = False
    is_empty: bool = False
    dead_letters: TableState | None = None
    schemas: Mapping[str, WriterSchema] = field(default_factory=dict)
    resolved: Resolved | None = None
    unpaired: tuple[tuple[str, int, int], ...] = ()
    missing_required: tuple[tuple[str, int, int], ...] = ()
    rejected: Mapping[Path, str] = field(default_factory=dict)
    no_op_change: NoOpChange | None = None
    #: Too many of a table's first records are bad: fewer are read, so that their dead letters can be looked at.
    is_too_bad: bool = False

    @property
    def is_lacking(self) -> bool:
        """Whether rows need values that are not in their records."""
        return bool(self.report.has_key_updates or self.unpaired or self.missing_required or self.report.ends)


class Pipeline:
    """Runs planned batches; thread-safe, as long as no table is in two batches at a time."""

    def __init__(self, services: Services, identity: Identity) -> None:
        self._catalog = services.catalog
        self._source = services.source
        self._jobs = services.jobs
        self._schemas = services.schemas
        self._identity = identity
        self._dead_letters = DeadLetterTables(services.catalog, services.outbox, identity.pipeline)

    def run_tasks(self, planned: Sequence[Planned], pool: str) -> dict[str, TaskReport]:
        """Reads and writes all batches in one job; the merged report of each table."""
        hit("job.before")
        reports = self._jobs.run([p.batch for p in planned], _job(planned), with_offsets=False, pool=pool)
        hit("job.after")
        self._check_topic_ids(planned)
        return {p.table.name: without_told(merge_reports(p.table.name, reports)) for p in planned}

    def isolate(self, planned: Planned) -> Found:
        """The records of a batch that end the task which reads them."""
        return self._jobs.isolate(planned.batch, _job([planned]))

    def finish(self, planned: Planned, report: TaskReport) -> Outcome:
        """What follows from the report: the error of a bad record, a new schema, a dead-letter table, or the commit."""
        table, on_bad = planned.table, planned.table.spec.on_bad_record
        if report.has_oversized:
            self._delete_files(table, report)
            return Outcome(table.state, report)
        if report.missing:
            self._delete_files(table, report)
            return Outcome(table.state, report, schemas=self.schemas_of(table, report.missing))
        if report.bad_count and on_bad == "stop":
            self._delete_files(table, report)
            raise self._bad_record(planned)
        if report.wanted or report.loosened or report.key_columns or table.state is None:
            # Files of tasks that met no new field were written with the old schema: the batch is run again as one.
            self._delete_files(table, report)
            return self._evolve_with_sample(planned, report)
        if report.unplaced or report.scattered or exceeds(table.spec.limits.partitions, report.files):
            self._delete_files(table, report)
            too_many = TooManyPartitions(table.name, table.spec.limits.partitions, report.scattered)
            raise unplaced(report.unplaced[0]) if report.unplaced else too_many
        if report.bad_count and table.tally.share_with(report) > table.spec.dead_letters.stop_above:
            self._delete_files(table, report)
            return self._some_first(planned, report)
        if (
            report.bad_count > report.dead_letter_count
            and on_bad == "dead_letter"
            and not _key_updates_first(table, report)
        ):
            self._delete_files(table, report)
            return Outcome(table.state, report, dead_letters=self._dead_letters.open(table))
        return self._commit(planned, report)

    def create(self, table: Table, found: Schema | None = None) -> TableState:
        """Makes the table with its declared columns, those of `found` and the columns of its own."""
        spec = table.spec
        found_fields = found.fields if found is not None else ()
        columns = {column.name: column.type for column in spec.columns}
        columns |= {field.name: field.field_type for field in found_fields if field.name not in columns}
        columns |= own_columns(spec)
        docs = {field.name: field.doc for field in found_fields if field.doc}
        schema = document(new_schema(columns.items()), docs)
        check_measured_columns(spec, schema)
        properties = new_table_properties(spec.properties)
        made = self._catalog.create(table.name, schema, properties, spec.format_version, layout_of(spec))
        return self.with_declared(table, made)

    def with_declared(self, table: Table, state: TableState) -> TableState:
        """The table with its declared columns and those of its own. Another run may have made it whose file has others."""
        if not compare_schemas(state.schema, declared_adder(table.spec)(state.schema)):
            return state
        return self._catalog.evolve(table.name, declared_adder(table.spec))

    def claim(self, table: Table) -> TableState:
        """Commits the table's own progress once more, in this run's name and without a row: an earlier run that still writes
        the table is refused at its next commit, and ends.
        """
        state = table.state
        assert state is not None
        mine = replace(
            state.progress,
            commit_id=new_id(),
            epoch=self._identity.epoch,
            run_id=self._identity.run_id,
            skipped={},
            dead_letters=None,
        )
        commit = Commit(table.name, (), mine, state.progress, shape=state.shape)
        return replace(state, progress=self._catalog.commit(commit))

    def _check_topic_ids(self, planned: Sequence[Planned]) -> None:
        """A topic made anew while we read would give other records under the same offsets: the ids before and after the
        read must be the same.
        """
        # Of tables that share a topic one may know the new one already.
        expected = {
            (name, topic.id) for p in planned for name, topic in p.table.topics.items() if name in p.batch.topics
        }
        found = self._source.topics({name for name, _ in expected}.__contains__)
        changed = sorted(name for name, topic_id in expected if name not in found or found[name].id != topic_id)
        if changed:
            raise ConflictError(f"topic {changed[0]} was deleted or created again while it was read", where=changed[0])

    def schemas_of(self, table: Table, ids: Iterable[str]) -> dict[str, WriterSchema]:
        """Schemas of the registry that the table's records name, those of keys under ids that begin with KEY_SCHEMA."""
        if self._schemas is None:
            raise SpecError("the records need a schema registry, and the pipeline file names none", where=table.name)
        return self._schemas.fetch_for(table.spec, ids, min(table.topics, default=""))

    def settle(self, table: Table) -> None:
        """Commits what was promised and is not where it belongs yet: dead letters of the table's newest commit, rows of
        retried letters.
        """
        self._dead_letters.settle(table)

    def _delete_files(self, table: Table, report: TaskReport) -> None:
        """Removes the files of a batch that is not committed."""
        self._catalog.delete_files(table.name, [file.path for file in report.files])
        if report.dead_letters:
            self._catalog.delete_files(table.dead_letter_table_name, [file.path for file in report.dead_letters])

    def _some_first(self, planned: Planned, report: TaskReport) -> Outcome:
        """Of a batch with too many bad records: raises the error that stops the table, unless some are to be committed."""
        if _may_show_some(planned):
            return Outcome(planned.table.state, report, is_too_bad=True)
        raise self._too_many(planned, report)

    def _too_many(self, planned: Planned, report: TaskReport) -> FrazilError:
        """Names the first bad record of a batch that has too many."""
        error = self._bad_record(planned, remedy=TOO_MANY_REMEDY)
        limit = planned.table.spec.dead_letters.stop_above
        if isinstance(error, RecordError):
            share = f"{report.bad_count} of {report.record_count} records are bad, more than {100 * limit:g}%"
            error.message = f"{share} of recent records: {error.message}"
        return error

    def _bad_record(self, planned: Planned, schema: Schema | None = None, remedy: str = "") -> FrazilError:
        """Reads the batch again with coordinates, which good batches need not ship, and names its first bad record.

        schema: in place of the table's, to find the record that does not fit it.
        """
        job = _job([planned], is_trial=True, schema=schema)
        merged = merge_reports(
            planned.table.name, self._jobs.run([planned.batch], job, with_offsets=True, pool="small")
        )
        if not merged.bad:
            return ConflictError("a bad record no longer existed when it was read again", where=planned.table.name)
        first = merged.bad[0]
        field = f"field {first.path}: " if first.path else ""
        more = f" (and {merged.bad_count - 1} more in this batch)" if merged.bad_count > 1 else ""
        return RecordError(
            f"{field}{first.reason}{more}",
            topic=first.topic,
            partition=first.partition,
            offset=first.offset,
            remedy=remedy_for(first.kind, planned.table.spec, remedy),
        )

    def _evolve(self, planned: Planned, report: TaskReport) -> Outcome:
        table = planned.table
        try:
            wanted, rejected = accept_columns(table, self._wanted(planned, report))
            if rejected.keys() - table.rejected.keys():
                if table.spec.on_bad_record == "stop" and not table.spec.rescue:
                    raise NamesClash(next(iter(rejected.values())))
                # What the records with these fields bring besides is not known to be wanted by any other.
                said = {f"column {'.'.join(path)}: {reason}" for path, reason in rejected.items()}
                return Outcome(table.state, replace(report, refusals=report.refusals | said), rejected=rejected)
            if table.state is not None:
                hit("evolve.before")
                loosened = [tuple(json.loads(path)) for path in sorted(report.loosened)]
                change = _checked(table, adder(table.spec, wanted, loosened), report.key_columns)
                evolved = _same(table.state, self._catalog.evolve(table.name, change))
                state = note_key_columns(self._catalog, evolved, report.key_columns)
                no_op_change = find_no_op_change(table.state, state, wanted, loosened, table.no_op_change)
                return Outcome(state, report, no_op_change=no_op_change)
            schema = _checked(table, adder(table.spec, wanted), report.key_columns)(Schema())
            if not schema.fields and not table.spec.columns and not table.spec.metadata:
                return Outcome(None, report, is_empty=True)
            hit("create.before")
            return Outcome(note_key_columns(self._catalog, self.create(table, schema), report.key_columns), report)
        except TypesDiffer as error:
            # Read against the types that were seen first, the record that contradicts them is a bad one with a place.
            first = merge_wanted(map(load_wanted, report.wanted), keeps_first=True)
            schema = adder(table.spec, first)(table.state.schema if table.state else Schema())
            remedy = f"declare the column {error.path[0]} with a type that holds the values, or fix the producer"
            if error.path[0] == KEY_ROOT:
                remedy = "write `key: {format: text}` and name another column for the key, or fix the producer"
            raise self._bad_record(planned, schema, remedy) from None
        except NamesClash as error:
            raise SpecError(str(error), remedy=CLASH_REMEDY, where=table.name) from None

    def _evolve_with_sample(self, planned: Planned, report: TaskReport) -> Outcome:
        """A new schema; of a table that nothing is committed to yet as a sample of the records behind the batch asks too."""
        sampled = self._with_sample(planned, report)
        if sampled.missing:
            return Outcome(planned.table.state, sampled, schemas=self.schemas_of(planned.table, sampled.missing))
        return self._evolve(planned, sampled)

    def _with_sample(self, planned: Planned, report: TaskReport) -> TaskReport:
        """The report of a table's first batch, and what a sample of the records behind it wants or has no schemas for. What
        the batch itself has seen comes first.
        """
        table = planned.table
        if not report.wanted or table.progress.snapshot_id is not None:
            return report
        record_bytes = report.value_bytes / max(1, report.record_count)
        try:
            wanted, missing = [self._wanted(planned, report)], report.missing
        except TypesDiffer:  # The table stops at a record of the batch.
            return report
        for ranges in sample_reads(planned.position, planned.batch.ranges, planned.reach, record_bytes):
            batch = Batch(table.name, tuple(ranges))
            job = with_hints(_job([replace(planned, batch=batch)], is_trial=True), hints_of(merge_wanted(wanted, True)))
            try:
                found = merge_reports(table.name, self._jobs.run([batch], job, with_offsets=False, pool="small"))
            except TaskFailedError as error:  # The record that it fails for is searched once its batch is read.
                note_unsampled(batch, error)
                continue
            wanted += map(load_wanted, found.wanted)
            missing |= found.missing
        if len(wanted) == 1 and not missing:
            return report
        if table.spec.infers_timestamps:
            wanted = agree_on_times(wanted)
        return replace(report, wanted=(dump_wanted(merge_wanted(wanted, keeps_first=True)),), missing=missing)

    def _wanted(self, planned: Planned, report: TaskReport) -> Wanted:
        """What the tasks want together. Where they contradict each other, TypesDiffer, or what was seen first if the rest
        may be bad records or can be rescued.
        """
        spec = planned.table.spec
        keeps_first = spec.on_bad_record != "stop" or spec.rescue
        wanted: list[Wanted] = list(map(load_wanted, report.wanted))
        return merge_wanted(agree_on_times(wanted) if spec.infers_timestamps else wanted, keeps_first)

    def _commit(self, planned: Planned, report: TaskReport) -> Outcome:
        table, state = planned.table, planned.table.state
        assert state is not None
        if report.has_key_updates or report.unpaired or report.ends:
            self._delete_files(table, report)
            return Outcome(state, report, unpaired=report.unpaired)
        before = state.progress
        is_skipping = table.spec.on_bad_record == "skip"
        ranges, offsets = planned.batch.ranges, advance(planned.position, planned.batch.ranges)
        progress = Progress(
            offsets=offsets,
            topic_ids=table.topic_ids(),
            cluster_id=self._identity.cluster_id,
            commit_id=new_id(),
            epoch=self._identity.epoch,
            run_id=self._identity.run_id,
            watermark=advance_watermark(
                before.watermark, report.latest_ms, ranges, offsets, planned.ends, planned.silent
            ),
            skipped=table.skipped,
            schemas=_read_with(table),
            bad_skipped=before.bad_skipped + (report.bad_count if is_skipping else 0),
            ignored_records=add_counts(before.ignored_records, report.ignored_records),
            dead_letters=_pending_dead_letters(planned, report),
            places=planned.places or {},
            emptied=max(before.emptied, report.emptied),
            last_deletes=still_last(before, report, offsets),
        )
        commit, resolved = Commit(table.name, report.files, progress, before, shape=state.shape), None
        try:
            # The state may have come with a change of columns, and another process may have committed between that and
            # the load that looked for promises.
            self._dead_letters.deliver(table.name, before)
            if table.spec.mode == "upsert":
                committed, resolved = commit_changes(self._catalog, table.target(), state, report, commit)
            else:
                committed = self._catalog.commit(commit)
        except OldRowsGone as gone:
            self._delete_files(table, report)
            return Outcome(state, report, unpaired=gone.places(sorted(planned.batch.topics)))
        except ValuesGone as gone:
            self._delete_files(table, report)
            return self._without_values(planned, report, gone)
        except (ConflictError, NotSent, SpecError):
            self._delete_files(table, report)
            raise
        hit("commit.after")
        delivered = self._dead_letters.deliver(table.name, committed)
        if resolved is not None and resolved.changes >= _MANY_CHANGES:
            release_memory()
        return Outcome(replace(state, progress=delivered), report, is_committed=True, resolved=resolved)

    def _without_values(self, planned: Planned, report: TaskReport, gone: ValuesGone) -> Outcome:
        """What follows where a row has no value for a required column: as for a record that lacks one."""
        is_fixed = any((name,) in planned.table.target().fixed for name in gone.columns)
        if planned.table.spec.schema_evolution == "evolve" and not is_fixed:
            return self._evolve(
                planned, replace(report, loosened=frozenset(json.dumps([name]) for name in gone.columns))
            )
        places = gone.places(sorted(planned.batch.topics))
        return Outcome(planned.table.state, report, missing_required=places)


def _key_updates_first(table: Table, report: TaskReport) -> bool:
    """Whether there are no letters because rows got another key, and not because batches do not carry what they need."""
    return table.dead_letters is not None and bool(report.has_key_updates or report.unpaired or report.ends)


def accept_columns(table: Table, wanted: Wanted) -> tuple[Wanted, dict[Path, str]]:
    """What of it the table can have, and the other fields with the reason. Raises NamesClash where these are too many, or
    where records with them should have been refused.
    """
    spec = table.spec
    declared = {column.name: column.type for column in spec.columns} | own_columns(spec)
    schema = table.state.schema if table.state is not None else new_schema(declared.items())
    accepted, rejected = accept(wanted, lambda some: adder(spec, some)(schema))
    is_known = not accepted and rejected.keys() <= table.rejected.keys()
    if rejected and (is_known or len(rejected.keys() | table.rejected.keys()) > MOST_REJECTED):
        raise NamesClash(next(iter(rejected.values())))
    return accepted, rejected


def _checked(table: Table, change: Callable[[Schema], Schema], keys: Sequence[str]) -> Callable[[Schema], Schema]:
    """The change, refused when the table would have too many columns, or key columns or an order that are no plain values.
    keys: those that it would get to know. The change raises SpecError.
    """

    def checked(schema: Schema) -> Schema:
        after = within_limit(table, change)(schema)
        if table.spec.mode == "upsert":
            check_columns(table.target(after), keys)
        return after

    return checked


def within_limit(table: Table, change: Callable[[Schema], Schema]) -> Callable[[Schema], Schema]:
    """The change, refused when the table would have more columns than it may. The change raises SpecError."""

    def limited(schema: Schema) -> Schema:
        after, most = change(schema), table.spec.limits.columns
        if len(after.field_ids) > max(most, len(schema.field_ids)):
            raise SpecError(
                f"records bring the table to {len(after.field_ids)} columns, nested ones counted, and its limit is"
                f" {most}",
                remedy=WIDE_REMEDY,
                where=table.name,
            )
        return after

    return limited


def _read_with(table: Table) -> tuple[str, ...]:
    """The ids of the schemas that the next run will need first, or the format where there are none."""
    known = [name for name, schema in table.value_schemas if schema != UNKNOWN]
    return tuple(known[-_MOST_SCHEMAS:]) or (table.spec.value.format,)


def _pending_dead_letters(planned: Planned, report: TaskReport) -> PendingDeadLetters | None:
    if not report.dead_letters:
        return None
    since: dict[str, dict[int, int]] = {}
    for r in planned.batch.ranges:
        since.setdefault(r.topic, {})[r.partition] = r.start
    topic = planned.table.spec.dead_letters.topic or ""
    return PendingDeadLetters(planned.table.dead_letter_table_name, report.dead_letters, since, topic)


def declared_adder(spec: TableSpec) -> Callable[[Schema], Schema]:
    """The change that gives an existing table the declared and metadata columns that it lacks."""
    declared = {column.name: column.type for column in spec.columns}
    return lambda schema: extend_schema(schema, {(): {**declared, **own_columns(spec)}})


def adder(spec: TableSpec, wanted: Wanted, loosened: Sequence[Path] = ()) -> Callable[[Schema], Schema]:
    """The change that gives a table the fields that records have and it lacks. The change raises NamesClash."""
    own, shaping, may_widen = own_columns(spec), shaping_of(spec), spec.schema_evolution == "evolve"
    if shaping is not None:
        return lambda schema: extend_shaped(schema, shaping, own, wanted, loosened, may_widen)
    check_metadata_names(wanted, own)

    def change(schema: Schema) -> Schema:
        there = {column.name for column in schema.fields}
        for name in wanted.get((), {}):
            if name not in there:
                check_reserved(name, (name,))
        return extend_schema(schema, wanted, loosened, may_widen)

    return change


def _may_show_some(planned: Planned) -> bool:
    """Whether fewer records than are judged can be committed before a table stops that has nothing in it: without its dead
    letters nobody could look at what is wrong.
    """
    table = planned.table
    is_cut = table.most_records is not None and table.most_records < FEWEST_TO_JUDGE
    is_new = table.progress.snapshot_id is None
    return table.spec.on_bad_record == "dead_letter" and is_new and not is_cut and planned.batch.span >= FEWEST_TO_JUDGE


def check_metadata_names(wanted: Wanted, columns: Iterable[str]) -> None:
    """Raises NamesClash when records bring a field with the name of a metadata column: one of the two would be lost."""
    fields = {fold(name): name for name in wanted.get((), {})}
    for column in columns:
        name = fields.get(fold(column))
        if name is not None:
            raise NamesClash(f"field {name}: the table has a column of its own with this name: {exits((name,))}")


def _job(planned: Sequence[Planned], is_trial: bool = False, schema: Schema | None = None) -> Job:
    trials = frozenset(p.table.name for p in planned if is_trial or p.table.state is None)
    fed: dict[str, list[TableTarget]] = {}
    for p in planned:
        for topic in p.batch.topics:
            fed.setdefault(topic, []).append(p.table.target(schema))
    return Job(
        targets={topic: targets[0] for topic, targets in fed.items()},
        trials=trials,
        # What the first records of a table tell is told in their order.
        is_scattered=bool(trials) or any(p.table.needs_one_task for p in planned),
        beside={topic: tuple(targets[1:]) for topic, targets in fed.items() if targets[1:]},
        starts=own_starts([p.batch for p in planned]),
    )


def with_hints(job: Job, hints: Hints) -> Job:
    """A look at one table's records with what those before them have told, all of them in one task."""
    targets = {
        topic: replace(target, reading=replace(target.reading, hints=hints)) for topic, target in job.targets.items()
    }
    return replace(job, targets=targets, is_scattered=True)


def _same(before: TableState, found: TableState) -> TableState:
    """The table as it is now. Another one of the name is to be loaded, with all that is asked of a table then."""
    if found.uuid != before.uuid:
        raise ConflictError("the table was dropped and recreated", where=found.name)
    return found
