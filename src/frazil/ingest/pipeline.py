"""The steps of a batch: read and write in tasks, look at the reports, evolve or commit. The only place with their
order.

Every failure before the commit has one answer: forget the batch and plan again from the table's progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType

from frazil.catalog.port import Catalog, TableState
from frazil.clock import new_id
from frazil.errors import ConflictError, FrazilError, RecordError, SpecError
from frazil.failpoints import hit
from frazil.ingest.evolve import (
    NamesClash,
    TypesDiffer,
    Wanted,
    extend_schema,
    first_wanted,
    load_wanted,
    merge_wanted,
    new_schema,
)
from frazil.ingest.job import JobRunner
from frazil.ingest.table import Table
from frazil.ingest.target import metadata_columns
from frazil.ingest.task import Job
from frazil.ingest.watermark import advance_watermark
from frazil.kafka.port import Partition, Source
from frazil.spec import TableSpec
from frazil.types import Batch, Commit, Progress, TaskReport, advance, merge_reports

# Iceberg keeps every old metadata file unless told otherwise: at one commit a second that fills a disk.
_NEW_TABLE_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.parquet.compression-codec": "zstd",
    "write.parquet.compression-level": "1",
}


@dataclass(frozen=True)
class Identity:
    """Who writes: the pipeline's cluster, and this run of it. A later run has a greater epoch."""

    cluster_id: str
    epoch: int
    run_id: str


@dataclass(frozen=True)
class Planned:
    """A batch with what was known when it was planned: the table, its vector and the ends."""

    table: Table
    batch: Batch
    position: Mapping[str, Mapping[int, int]]
    ends: Mapping[Partition, int]
    planned_at_s: float


@dataclass(frozen=True)
class Outcome:
    """How a batch ended. state: the table afterwards. is_committed: False when its schema changed and it must be
    planned again, or when nothing could be done with it yet (`is_empty`).
    """

    state: TableState | None
    report: TaskReport
    is_committed: bool = False
    is_empty: bool = False


class Pipeline:
    """Runs planned batches; thread-safe, as long as no table is in two batches at a time."""

    def __init__(self, catalog: Catalog, source: Source, jobs: JobRunner, identity: Identity) -> None:
        self._catalog = catalog
        self._source = source
        self._jobs = jobs
        self._identity = identity

    def run_tasks(self, planned: Sequence[Planned], pool: str) -> dict[str, TaskReport]:
        """Reads and writes all batches in one job; the merged report of each table."""
        hit("job.before")
        reports = self._jobs.run([p.batch for p in planned], _job(planned), with_offsets=False, pool=pool)
        hit("job.after")
        self._check_topic_ids(planned)
        return {p.table.name: merge_reports(p.table.name, reports) for p in planned}

    def finish(self, planned: Planned, report: TaskReport) -> Outcome:
        """What follows from the report: the error of a bad record, a new schema, or the commit."""
        table = planned.table
        if report.has_heavy:
            self._catalog.delete_files(table.name, [file.path for file in report.files])
            return Outcome(table.state, report)
        if report.bad_count:
            self._catalog.delete_files(table.name, [file.path for file in report.files])
            raise self._bad_record(planned)
        if report.wanted or table.state is None:
            # Files of tasks that met no new field were written with the old schema: the batch is run again as one.
            self._catalog.delete_files(table.name, [file.path for file in report.files])
            return self._evolve(planned, report)
        return self._commit(planned, report)

    def create(self, table: Table, columns: Mapping[str, IcebergType]) -> TableState:
        """Makes the table with its declared columns, `columns` and the metadata columns it asks for."""
        spec = table.spec
        fields = {column.name: column.type for column in spec.columns}
        fields |= {name: kind for name, kind in columns.items() if name not in fields}
        fields |= metadata_columns(spec.metadata)
        properties = {**_NEW_TABLE_PROPERTIES, **spec.properties}
        return self._catalog.create(table.name, new_schema(fields.items()), properties, spec.format_version)

    def _check_topic_ids(self, planned: Sequence[Planned]) -> None:
        """A topic made anew while we read would give other records under the same offsets: the ids before and after the
        read must be the same.
        """
        expected = {name: topic.id for p in planned for name, topic in p.table.topics.items() if name in p.batch.topics}
        found = self._source.topics(expected.__contains__)
        changed = [name for name, topic_id in expected.items() if name not in found or found[name].id != topic_id]
        if changed:
            raise ConflictError(f"topic {changed[0]} was deleted or created again while it was read", where=changed[0])

    def _bad_record(self, planned: Planned, schema: Schema | None = None, remedy: str = "") -> FrazilError:
        """Reads the batch again with coordinates, which good batches need not ship, and names its first bad record.

        schema: in place of the table's, to find the record that does not fit it.
        """
        job = _job([planned], is_trial=True, schema=schema)
        merged = merge_reports(
            planned.table.name, self._jobs.run([planned.batch], job, with_offsets=True, pool="small")
        )
        if not merged.bad:
            return ConflictError("a bad record was gone when it was looked for", where=planned.table.name)
        first = merged.bad[0]
        field = f"field {first.path}: " if first.path else ""
        more = f" (and {merged.bad_count - 1} more in this batch)" if merged.bad_count > 1 else ""
        return RecordError(
            f"{field}{first.reason}{more}",
            topic=first.topic,
            partition=first.partition,
            offset=first.offset,
            remedy=remedy,
        )

    def _evolve(self, planned: Planned, report: TaskReport) -> Outcome:
        table = planned.table
        try:
            wanted = merge_wanted(load_wanted(text) for text in report.wanted)
            check_metadata_names(wanted, table.spec.metadata.values())
            if table.state is not None:
                hit("evolve.before")
                state = self._catalog.evolve(table.name, lambda schema: extend_schema(schema, wanted))
                return Outcome(state, report)
            top = wanted.get((), {})
            if not top and not table.spec.columns and not table.spec.metadata:
                return Outcome(None, report, is_empty=True)
            hit("create.before")
            return Outcome(self.create(table, top), report)
        except TypesDiffer as error:
            # Read against the types that were seen first, the record that contradicts them is a bad one with a place.
            first = first_wanted(load_wanted(text) for text in report.wanted)
            schema = extend_schema(table.state.schema if table.state else Schema(), first)
            remedy = f"declare the column {error.path[0]} with a type that holds the values, or fix the producer"
            raise self._bad_record(planned, schema, remedy) from None
        except NamesClash as error:
            remedy = "rename the field at the producer, or set `undeclared: drop`"
            raise SpecError(str(error), remedy=remedy, where=table.name) from None

    def _commit(self, planned: Planned, report: TaskReport) -> Outcome:
        table, state = planned.table, planned.table.state
        assert state is not None
        before = state.progress
        ranges, offsets = planned.batch.ranges, advance(planned.position, planned.batch.ranges)
        progress = Progress(
            offsets=offsets,
            topic_ids=table.topic_ids(),
            cluster_id=self._identity.cluster_id,
            commit_id=new_id(),
            epoch=self._identity.epoch,
            run_id=self._identity.run_id,
            watermark=advance_watermark(before.watermark, report.latest_ms, ranges, offsets, planned.ends),
            skipped=table.skipped,
        )
        try:
            committed = self._catalog.commit(Commit(table.name, report.files, progress, before))
        except ConflictError:
            self._catalog.delete_files(table.name, [file.path for file in report.files])
            raise
        hit("commit.after")
        return Outcome(replace(state, progress=committed), report, is_committed=True)


def declared_adder(spec: TableSpec) -> Callable[[Schema], Schema]:
    """The change that gives an existing table the declared and metadata columns that it lacks."""
    declared = {column.name: column.type for column in spec.columns}
    return lambda schema: extend_schema(schema, {(): {**declared, **metadata_columns(spec.metadata)}})


def check_metadata_names(wanted: Wanted, columns: Iterable[str]) -> None:
    """Raises NamesClash when records bring a field with the name of a metadata column: one of the two would be lost."""
    for column in columns:
        if column in wanted.get((), {}):
            raise NamesClash(f"field {column}: the table has a metadata column of this name")


def _job(planned: Sequence[Planned], is_trial: bool = False, schema: Schema | None = None) -> Job:
    trials = frozenset(p.table.name for p in planned if is_trial or p.table.state is None)
    return Job({topic: p.table.target(schema) for p in planned for topic in p.batch.topics}, trials)
