"""The steps of a batch: read and write in tasks, check the report, and commit or return what must happen first.

Their order is defined only here.

Every failure before the commit has one answer: forget the batch and plan again from the table's progress.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

from frazil.catalog.port import NotSent, TableState
from frazil.clock import new_id
from frazil.dead_letters.tables import DeadLetterTables
from frazil.decode.settings import WriterSchema
from frazil.errors import ConflictError, FrazilError, SpecError
from frazil.failpoints import hit
from frazil.files import release_memory
from frazil.ingest.batches.bad_records import first_bad_record, may_commit_some, too_many_bad
from frazil.ingest.batches.balance import checked_balance, first_ledger, next_ledger
from frazil.ingest.batches.change_findings import change_findings_in, change_findings_of
from frazil.ingest.batches.group_limit import error_of_groups
from frazil.ingest.batches.job import job_of
from frazil.ingest.batches.outcome import (
    BadStart,
    Committed,
    FirstBadRecord,
    MissingRequired,
    NewSchemas,
    NewTables,
    Outcome,
    Replan,
)
from frazil.ingest.batches.schema_updates import SchemaUpdates
from frazil.ingest.batches.services import Services
from frazil.ingest.plan import advance_watermark, open_transactions
from frazil.ingest.tables.schemas import UNKNOWN
from frazil.ingest.tables.table import Planned, Table
from frazil.ingest.tables.target import target_of
from frazil.ingest.tasks.isolate import Found
from frazil.report import TaskReport, merge_reports
from frazil.types import (
    Commit,
    CommittedBatch,
    Offsets,
    PendingDeadLetters,
    Progress,
    RestProgress,
    Totals,
    Writer,
    add_counts,
    advance,
    by_topic,
)
from frazil.upsert.change_notes import error_in, progress_after
from frazil.upsert.commit import IncompleteChanges
from frazil.upsert.kinds import commit_rows
from frazil.upsert.late_records import greatest_times, order_in_time
from frazil.upsert.records.first_tombstones import without_redundant_tombstones
from frazil.write.transforms import TooManyPartitions, exceeds

_MOST_SCHEMAS = 200
_MANY_CHANGES = 1_000_000  # Their keys take hundreds of megabytes while they are merged.


@dataclass(frozen=True)
class Identity:
    """The writer of a commit: the pipeline, its cluster, and this run of it."""

    #: The pipeline's name.
    pipeline: str
    #: The id of the Kafka cluster.
    cluster_id: str
    #: This run.
    writer: Writer


class Pipeline:
    """Runs planned batches; thread-safe, as long as no table is in two batches at a time."""

    def __init__(self, services: Services, identity: Identity) -> None:
        self._catalog = services.catalog
        self._source = services.source
        self._jobs = services.jobs
        self._schemas = services.schemas
        self._clock = services.clock
        self._rehearse = services.rehearse
        self._release_memory = services.release_memory
        self._identity = identity
        self.schema_updates = SchemaUpdates(services.catalog, services.jobs, services.queries, services.referenced)
        self._dead_letters = DeadLetterTables(services.catalog, services.outbox, identity.pipeline)

    def run_tasks(self, planned: Sequence[Planned], pool: str) -> dict[str, TaskReport]:
        """Reads and writes all batches in one job; returns the merged report of each table."""
        self.schema_updates.queries.refresh(p.table for p in planned)
        hit("job.before")
        reports = self._jobs.run([p.batch for p in planned], job_of(planned), pool=pool)
        hit("job.after")
        # The offsets of a topic that was recreated during the read would refer to other records.
        # Of tables that share a topic, one may have the id of the recreated topic already.
        expected = {
            (name, topic.id)
            for p in planned
            for name, topic in p.table.offsets.topics.items()
            if name in p.batch.topics
        }
        described = self._source.described({name for name, _ in expected})
        changed = sorted(name for name, topic_id in expected if name not in described or described[name].id != topic_id)
        if changed:
            raise ConflictError(f"topic {changed[0]} was deleted or created again while it was read", where=changed[0])
        return {p.table.name: without_redundant_tombstones(merge_reports(p.table.name, reports)) for p in planned}

    def try_tasks(self, planned: Planned) -> None:
        """Reads what Kafka still has of a batch, in a job as `run_tasks` does, writes nothing, rehearses a commit, and
        frees the memory that this took.
        """
        first = self._source.beginnings([(offsets.topic, offsets.partition) for offsets in planned.batch.ranges])
        ranges = (replace(r, start=max(r.start, first.get((r.topic, r.partition), 0))) for r in planned.batch.ranges)
        batch = replace(planned.batch, ranges=tuple(r for r in ranges if r.start < r.end))
        if batch.ranges:
            self._jobs.run([batch], job_of([planned], is_trial=True), pool="small")
        self._rehearse()
        self._release_memory()

    def isolate(self, planned: Planned) -> Found:
        """Returns the records of a batch that crash the task which reads them."""
        return self._jobs.isolate(planned.batch, job_of([planned]))

    def finish(self, planned: Planned, report: TaskReport) -> Outcome:
        """Commits the batch, unless its report requires another step first; its files are deleted then."""
        step = self._read_again(planned, report) or self._check_rows(planned, report)
        if step is None:
            return self._commit(planned, _with_findings(planned.table, report))
        self._delete_files(planned.table, report)
        return step()

    def _read_again(self, planned: Planned, report: TaskReport) -> Callable[[], Outcome] | None:
        """Returns the step that must precede another read of the batch; None where it need not be read again."""
        table = planned.table
        if report.schema.missing:
            return partial(self._fetch_schemas, planned, report)
        if report.share.new_values and not table.is_first:
            return partial(self._name_tables, planned, report)
        refusals = (watch.refuse_read(table.spec, report) for watch in table.watches)
        if (error := next(filter(None, refusals), None)) is not None:
            return partial(_stop_with, error)
        if report.bad_records.count and table.spec.bad_records.on_bad_record == "stop":
            return partial(self._stop, planned)
        if report.schema.requested_fields or report.schema.made_optional or report.schema.key_columns or table.is_trial:
            # Files of tasks that met no new field were written with the old schema: the batch is run again as one.
            return partial(self._update_schema, planned, report)
        return None

    def _check_rows(self, planned: Planned, report: TaskReport) -> Callable[[], Outcome] | None:
        """Returns the step that must precede the commit of rows which were read; None where they may be committed."""
        table = planned.table
        if (
            error_in(report.changes)
            or report.written.scattered
            or exceeds(table.spec.bad_records.limits.partitions, report.written.data)
        ):
            return partial(self._stop_at_rows, planned, report)
        if (
            report.bad_records.count
            and table.bad_records.tally.share_with(report) > table.spec.bad_records.dead_letters.stop_above
        ):
            return partial(self._stop_at_many, planned, report)
        findings = change_findings_in(report)
        lacks_dead_letters = (
            table.spec.bad_records.on_bad_record == "dead_letter"
            and report.bad_records.count > report.written.dead_letter_count
        )
        # A batch that must be planned again writes no rows and no dead letters, although batches read their columns.
        if lacks_dead_letters and not (table.bad_records.dead_letters is not None and findings):
            return partial(self._open_dead_letters, planned, report)
        if findings:
            return partial(Replan, table.state, report, findings)
        refusals = (watch.refuse_commit(table.spec, _with_findings(table, report)) for watch in table.watches)
        error = error_of_groups(table) or next(filter(None, refusals), None)
        return partial(_stop_with, error) if error is not None else None

    def _fetch_schemas(self, planned: Planned, report: TaskReport) -> Outcome:
        schemas = self.schemas_of(planned.table, report.schema.missing)
        return Replan(planned.table.state, report, (NewSchemas(schemas),))

    def _update_schema(self, planned: Planned, report: TaskReport) -> Outcome:
        """Changes the schema as the report requests, of a table without commits also as a sample of later records does."""
        sampled = self.schema_updates.sampled(planned, report)
        return (
            self._fetch_schemas(planned, sampled)
            if sampled.schema.missing
            else self.schema_updates.update(planned, sampled)
        )

    def _name_tables(self, planned: Planned, report: TaskReport) -> Outcome:
        """Names the tables of new values in a commit of the table of the rest, before any of them is made."""
        table = planned.table
        new_tables = table.derive(report.share.new_values, planned.position)
        self._dead_letters.deliver(table.name, table.progress)
        named = self._commit_progress(
            table,
            offsets=planned.position,
            topic_ids=table.topic_ids(),
            cluster_id=self._identity.cluster_id,
            rest=replace(table.progress.rest, derived=(*table.derived, *new_tables)),
            ledger=first_ledger(table.progress, planned.position),
        )
        return Replan(named, report, (NewTables(new_tables),))

    def _open_dead_letters(self, planned: Planned, report: TaskReport) -> Outcome:
        dead_letters = self._dead_letters.open(planned.table)
        return Replan(planned.table.state, report, (FirstBadRecord(dead_letters),))

    def _stop(self, planned: Planned) -> Outcome:
        """Raises the error of the first bad record."""
        raise first_bad_record(self._jobs, planned)

    def _stop_at_rows(self, planned: Planned, report: TaskReport) -> Outcome:
        """Raises the error of rows that cannot be committed."""
        limit = planned.table.spec.bad_records.limits.partitions
        too_many = TooManyPartitions(planned.table.name, limit, report.written.scattered)
        raise error_in(report.changes) or too_many

    def _stop_at_many(self, planned: Planned, report: TaskReport) -> Outcome:
        """Raises the error of too many bad records, unless some dead letters are to be committed first."""
        if may_commit_some(planned):
            return Replan(planned.table.state, report, (BadStart(),))
        raise too_many_bad(self._jobs, planned, report)

    def claim(self, table: Table) -> TableState:
        """Commits the table's own progress again, under this run's id and without a row, so that the next commit of an
        earlier run is refused and that run ends.
        """
        return self._commit_progress(table)

    def restart(self, table: Table, offsets: Offsets) -> TableState:
        """Commits the table's progress with other offsets, and without a row."""
        order = table.progress.order.of_source()
        return self._commit_progress(table, offsets=offsets, order=order, ledger=None)

    def _commit_progress(self, table: Table, **changes: Any) -> TableState:
        state = table.state
        assert state is not None
        mine = replace(
            state.progress,
            commit_id=new_id(),
            writer=self._identity.writer,
            batch=replace(state.progress.batch, skipped={}, balance=None),
            dead_letters=None,
            **changes,
        )
        commit = Commit(table.name, (), mine, state.progress, shape=state.shape)
        return replace(state, progress=self._catalog.commit(commit))

    def schemas_of(self, table: Table, ids: Iterable[str]) -> dict[str, WriterSchema]:
        """Returns the registry schemas of the ids in the table's records; ids of keys begin with KEY_SCHEMA."""
        if self._schemas is None:
            raise SpecError("the records need a schema registry, and the pipeline file names none", where=table.name)
        return self._schemas.fetch_for(table.spec, ids, min(table.offsets.topics, default=""))

    def settle(self, table: Table) -> None:
        """Commits what is pending: dead letters of the table's newest commit, and rows of replayed dead letters."""
        self._dead_letters.settle(table)

    def _delete_files(self, table: Table, report: TaskReport) -> None:
        """Deletes the files of a batch that is not committed."""
        self._catalog.delete_files(table.name, [file.path for file in report.written.data])
        if report.written.dead_letters:
            self._catalog.delete_files(
                table.dead_letter_table_name, [file.path for file in report.written.dead_letters]
            )

    def _commit(self, planned: Planned, report: TaskReport) -> Outcome:
        """Commits the files with the progress after the batch, between what is pending before it and after it."""
        table, state = planned.table, planned.table.state
        assert state is not None
        before, resolved, files = state.progress, None, report.written.data
        progress = self._progress_after(planned, report, before)
        began_s = self._clock.monotonic_s()
        commit = Commit(table.name, report.written.data, progress, before, shape=state.shape)
        try:
            # The state may be newer than the load that committed pending dead letters, as a schema change returns it, and
            # another process may have committed in between.
            self._dead_letters.deliver(table.name, before)
            if table.keeps_keys:
                rows = commit_rows(self._catalog, target_of(table), state, report, commit)
                committed, report, resolved, files = rows.progress, rows.report, rows.resolved, rows.files
            else:
                committed = self._catalog.commit(commit)
        except IncompleteChanges as gone:
            self._delete_files(table, report)
            findings = change_findings_of(gone, planned)
            return Replan(state, report, findings) if findings else self._without_values(planned, report, gone)
        except (ConflictError, NotSent, SpecError):
            self._delete_files(table, report)
            raise
        took_s = self._clock.monotonic_s() - began_s
        hit("commit.after")
        delivered = self._dead_letters.deliver(table.name, committed)
        if resolved is not None and resolved.changes >= _MANY_CHANGES:
            release_memory()
        return Committed(replace(state, progress=delivered), report, files, resolved, took_s)

    def _progress_after(self, planned: Planned, report: TaskReport, before: Progress) -> Progress:
        """Returns the progress that the commit of a batch records.

        Raises: InvariantError as `checked_balance`.
        """
        table, ranges = planned.table, planned.batch.ranges
        offsets = advance(planned.position, ranges)
        held = open_transactions(offsets, planned.ends, planned.log_ends)
        skipped = report.bad_records.count if table.spec.bad_records.on_bad_record == "skip" else 0
        findings = add_counts(before.totals.findings, report.findings.counts)
        counted = (name for stage in table.spec.stage_settings.values() for name in stage.counted)
        silent = planned.silent | {(r.topic, r.partition) for r in held}
        times = advance_watermark(
            before.order.event_times, greatest_times(report.changes), ranges, offsets, planned.ends, silent
        )
        balance = checked_balance(planned, report)
        progress = Progress(
            offsets=offsets,
            topic_ids=table.topic_ids(),
            cluster_id=self._identity.cluster_id,
            commit_id=new_id(),
            writer=self._identity.writer,
            watermark=advance_watermark(
                before.watermark,
                report.counts.latest_ms,
                ranges,
                offsets,
                planned.ends,
                silent,
            ),
            batch=CommittedBatch(table.offsets.skipped, _read_with(table), table.schema.reference_versions, balance),
            dead_letters=_pending_dead_letters(planned, report),
            totals=Totals(
                bad_skipped=before.totals.bad_skipped + skipped,
                ignored_records=add_counts(before.totals.ignored_records, report.counts.ignored_records),
                findings={name: findings.get(name, 0) for name in counted},
            ),
            order=replace(order_in_time(target_of(table), times, before.order), places=planned.places or {}),
            rest=RestProgress(table.derived, add_counts(before.rest.records, report.share.rest_records)),
            ledger=next_ledger(planned, report, before, balance),
        )
        return progress_after(progress, before, report)

    def _without_values(self, planned: Planned, report: TaskReport, gone: IncompleteChanges) -> Outcome:
        """Returns the outcome where a row has no value for a required column: the one of a record without the value."""
        is_fixed = any((name,) in target_of(planned.table).fixed for name in gone.columns)
        if planned.table.spec.shape.schema_evolution == "evolve" and not is_fixed:
            paths = frozenset(json.dumps([name]) for name in gone.columns)
            requests = replace(report.schema, made_optional=paths)
            return self.schema_updates.update(planned, replace(report, schema=requests))
        places = gone.places(sorted(planned.batch.topics))
        return Replan(planned.table.state, report, (MissingRequired(places),))


def _with_findings(table: Table, report: TaskReport) -> TaskReport:
    """Returns the report of a batch with what stages find in it as a whole."""
    return reduce(lambda added, watch: watch.add_findings(table.spec, added), table.watches, report)


def _stop_with(error: FrazilError) -> Outcome:
    raise error


def _read_with(table: Table) -> tuple[str, ...]:
    """Returns the ids of the schemas that the next run needs first; the format for a table without schemas."""
    schema_ids = [name for name, schema in table.schema.of_values if schema != UNKNOWN]
    return tuple(schema_ids[-_MOST_SCHEMAS:]) or (table.spec.source.value.format,)


def _pending_dead_letters(planned: Planned, report: TaskReport) -> PendingDeadLetters | None:
    if not report.written.dead_letters:
        return None
    since = by_topic({(r.topic, r.partition): r.start for r in planned.batch.ranges})
    topic = planned.table.spec.bad_records.dead_letters.topic or ""
    return PendingDeadLetters(planned.table.dead_letter_table_name, report.written.dead_letters, since, topic)
