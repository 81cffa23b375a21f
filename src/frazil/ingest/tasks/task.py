"""The work of one Spark task on its ranges: Arrow batches of records in, one report per table out.

A task reads records and writes files; it calls no catalog. It raises only for causes outside of records (the store, the
broker): a record that cannot become a row is reported, and the task then writes no files for its table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from frazil.cdc.changes import read_envelope
from frazil.clock import SystemClock
from frazil.dead_letters.record import DeadLetterFiles
from frazil.decode.columns import Decoded
from frazil.decode.json.slices import MAX_MISMATCHES
from frazil.decode.limits import plain_columns, read_bounded
from frazil.failpoints import hit
from frazil.files import release_memory
from frazil.ingest.tasks.left_out import refusals_of, split_left_out
from frazil.ingest.tasks.tally import Tally, latest_of
from frazil.ingest.tasks.task_job import Job, by_topic, quoting_no_record
from frazil.ingest.tasks.task_limits import each_in_time, limited_memory
from frazil.kafka.source import current_ranges
from frazil.process.references import receive
from frazil.report import ShareReport, TaskReport, TaskTime, WrittenFiles, dump_report
from frazil.rows.decoder import fields_requested_by_rows
from frazil.rows.dropped_unread import drop_unread
from frazil.rows.project import decode_rows, shape_rows
from frazil.rows.query import run_query
from frazil.rows.storable import refuse_unstorable
from frazil.rows.tombstones import read_appended, read_others
from frazil.schema.arrow import Records, pick
from frazil.schema.evolve import hints_of
from frazil.shares.divide import TableRecords, TopicShares, take_kept
from frazil.stages.changes import Changes, ReadRecords, appended
from frazil.stages.stage import RAW_VALUE, Assembled, Assembler
from frazil.types import BadRecord, DataFile, OffsetRange
from frazil.upsert.records.read_changes import check_keys, read_upserts
from frazil.upsert.task_changes import TaskChanges
from frazil.upsert.task_kinds import refuse_unfit
from frazil.write.target import TableTarget
from frazil.write.transforms import TooManyPartitions
from frazil.write.write import FileWriter
from frazil.zones import regions

_EVERY_MISMATCH = 2**31
_MANY_BYTES = 32 * 1024 * 1024  # Buffered rows of so many bytes of values take a hundred megabytes and more.
Portion: TypeAlias = pa.RecordBatch | Callable[["TableRun"], None]
"""Records, or what the run of a job's only table does with records that an earlier stage has decoded (`spark_inputs`)."""


def task_of(job: Job) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Returns the function for `mapInArrow`; its output has one column, `report`, with one JSON text per table. It limits
    memory and processor time of its process, which must run no other task at the same time.
    """
    return partial(run_guarded, job)


def run_guarded(job: Job, batches: Iterable[Portion]) -> Iterator[pa.RecordBatch]:
    """Runs a task as `task_of` does."""
    regions()
    with limited_memory(), quoting_no_record(job):
        yield from run_task(job, each_in_time(batches))


def run_task(job: Job, batches: Iterable[Portion]) -> Iterator[pa.RecordBatch]:
    """Reads the batches and yields one row per table with its report as JSON."""
    clock = SystemClock()
    began_ms = clock.now_ms()
    reports = read_all(job, batches, current_ranges)
    ended_ms = clock.now_ms()
    reports = [replace(report, times=(TaskTime(began_ms, ended_ms, report.counts.record_count),)) for report in reports]
    if any(report.changes.touched and report.counts.value_bytes >= _MANY_BYTES for report in reports):
        release_memory()
    yield pa.RecordBatch.from_pydict({"report": pa.array([dump_report(report) for report in reports], pa.string())})


def read_all(
    job: Job, batches: Iterable[Portion], ranges: Callable[[], Iterable[OffsetRange]] = tuple
) -> list[TaskReport]:
    """Reads all records, writes all files and returns the reports; no rows remain in memory afterwards. ranges: returns, at
    the end, the ranges that were read as a whole.
    """
    receive(job.references)
    runs: dict[str, TableRun] = {}
    topics = {topic: TopicShares(job.targets_of(topic), topic, job.starts, read_records) for topic in job.targets}
    try:
        for batch in batches:
            hit("task.batch")
            if isinstance(batch, pa.RecordBatch):
                take_batch(job, batch, runs, topics)
            else:
                batch(_run_of(job.all_targets[0], job, runs))
        _take_kept(job, runs, topics, is_end=True)
        for offset_range in ranges():
            for target in job.targets_of(offset_range.topic):
                if assembler_of(target, offset_range.topic) is not None:
                    _run_of(target, job, runs).end(job.own_range(target.name, offset_range))
        return [run.report() for run in runs.values()]
    except BaseException:
        for run in runs.values():
            run.abandon()
        raise


def take_batch(job: Job, batch: pa.RecordBatch, runs: dict[str, TableRun], topics: Mapping[str, TopicShares]) -> None:
    """Hands each table its records, and holds no more of them than there is memory for."""
    for topic, all_records in by_topic(job, batch):
        targets = job.targets_of(topic)
        records, left_out = split_left_out(all_records)
        for target, own, reasons in refusals_of(targets, topic, left_out, job.starts):
            _run_of(target, job, runs).take_left_out(topic, own, reasons)
        if records.num_rows:
            shares = topics[topic]
            latest = {topic: latest_of(plain_columns(all_records))} if shares.groups else {}
            for share in shares.divide(records):
                _run_of(share.target, job, runs).take_share(topic, share, latest)
    _take_kept(job, runs, topics)


def _run_of(target: TableTarget, job: Job, runs: dict[str, TableRun]) -> TableRun:
    if target.name not in runs:
        runs[target.name] = TableRun(target, target.name in job.trials, job.topics_of(target.name))
    return runs[target.name]


def _take_kept(job: Job, runs: dict[str, TableRun], topics: Mapping[str, TopicShares], is_end: bool = False) -> None:
    """Hands each table what was kept until there is more of it."""
    for topic, share in take_kept(topics, is_end):
        _run_of(share.target, job, runs).take_share(topic, share, {})


Stage = Callable[[TableTarget, ReadRecords, Changes], Changes]
"""Makes other changes of those of some records; refuses records, and counts those that it drops by a name."""


def stages_of(target: TableTarget) -> tuple[Stage, ...]:
    """Returns the stages that the changes of a table pass, in order.

    Before them, whole records are removed: those that were not read (`left_out`), those before the table's start and those
    of other tables (`TopicShares`), those that crash their reader (`TableRun.take`). `_read_values` makes changes of the
    others. A query's stages follow those of its `source`, the table that the records alone would make. After all of
    them come the tally, the dead letters, and the rows (`shape_rows`), which are written as they are, or the latest of each
    key (`ChangeRows`), by partition and order (`FileWriter`).
    """
    of_rows: tuple[Stage, ...] = (check_keys,) if target.source is None else (run_query, drop_unread)
    of_table = (stage.run for stage in target.stages)
    return *of_rows, refuse_unfit, *of_table, refuse_unstorable, *(stage.finish for stage in target.stages)


def read_records(
    target: TableTarget,
    topic: str,
    records: Records,
    limit: int = MAX_MISMATCHES,
    of_source: Changes | None = None,
    *,
    requests_columns: bool = True,
) -> Changes:
    """Returns the changes that records of a topic make in a table. topic: empty where records are read once more. limit: the
    number of mismatches that are kept. of_source: the changes of the table's `source`, where they are known.
    requests_columns: whether the records may request changes of the schema. Stages do nothing to records that do, because
    these are read again.
    """
    read = ReadRecords(topic, with_topic(target, topic, records), limit)
    if target.source is None:
        changes = _read_values(target, read)
    else:
        changes = of_source or read_records(
            target.source, topic, read.columns, limit, requests_columns=requests_columns
        )
    if not requests_columns:
        changes = replace(changes, decoded=replace(changes.decoded, requested_fields={}, made_optional=set()))
    for stage in stages_of(target):
        changes = stage(target, read, changes)
    return changes


def _read_values(target: TableTarget, read: ReadRecords) -> Changes:
    """Returns the changes that the records' values and keys are, in the columns of the table."""
    if target.changes is not None:
        return read_upserts(target, read.columns, read.limit)
    if target.envelope is not None:
        return read_others(read_envelope, target, read.columns, read.limit)
    if target.record.tombstones:
        return read_appended(target, read.columns, read.limit)
    return appended(decode_rows(target, read.columns, read.limit))


def assembler_of(target: TableTarget, topic: str) -> Assembler | None:
    """Returns what makes whole records of a topic's parts for a table; None where each record is whole."""
    assemblers = (stage.assembler(target, topic) for stage in target.stages)
    return next((assembler for assembler in assemblers if assembler is not None), None)


def requests_of_rows(target: TableTarget, topic: str, records: Records, decoded: Decoded) -> Decoded:
    """Returns what becomes of records with the requests for the schema of those alone that become rows."""

    def read(other: TableTarget, some: Records) -> Decoded:
        return read_records(other, topic, some, limit=0).decoded

    return fields_requested_by_rows(target, records, decoded, read)


def with_topic(target: TableTarget, topic: str, records: Records) -> Records:
    """Returns the records' columns with the name of the topic, where rows need it and the source did not send it."""
    if "topic" in records or "topic" not in target.metadata_fields:
        return records
    return {**records, "topic": pa.repeat(pa.scalar(topic), len(records["value"]))}


def _columns(target: TableTarget, topic: str, records: pa.RecordBatch) -> dict[str, pa.Array]:
    """Returns the records' columns, with the name of the topic also where dead letters need it."""
    columns = plain_columns(records)
    if target.dead_letters is not None and "topic" not in columns:
        columns["topic"] = pa.repeat(pa.scalar(topic), records.num_rows)
    return dict(with_topic(target, topic, columns))


@dataclass
class TableRun:
    """The results of the task for one table."""

    #: The table.
    target: TableTarget
    #: Whether nothing is written, and only columns are found.
    is_trial: bool
    #: The topics that feed the table.
    topics: tuple[str, ...]
    #: Writes the data files; None before the first row.
    writer: FileWriter | None = None
    #: Names of two partitions, where rows have more partitions than one batch may write.
    scattered: tuple[str, ...] = ()
    #: The number of rows that are summed and in no file.
    summed: int = 0
    #: What the report has of the records so far.
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self.source = self.target.source or self.target
        #: The columns of records that their rows need.
        self.row_fields = self.target.metadata_fields | {"partition", "offset"}
        self.changes = TaskChanges(self.target, self.topics)
        self.dead_letters = DeadLetterFiles(self.target.dead_letters)
        #: By topic, what makes whole records of parts.
        self.assemblers: dict[str, Assembler | None] = {}

    @property
    def is_writing(self) -> bool:
        """Whether rows are written: not once something must change before the batch can be committed."""
        is_refused = self.is_trial or self.changes.is_refused or self.tally.must_read_again
        is_lost = self.tally.bad.count > 0 and not self._has_place_for_bad
        return not (is_refused or is_lost or self.scattered)

    @property
    def _has_place_for_bad(self) -> bool:
        on_bad = self.target.reading.on_bad
        return on_bad == "skip" or (on_bad == "dead_letter" and self.target.dead_letters is not None)

    def take_share(self, topic: str, share: TableRecords, latest: Mapping[str, Mapping[int, int]]) -> None:
        """Takes the table's records of those that were read. latest: how far all of them go, where tables divide them."""
        if share.report is not None:
            self.tally.note_share(share.report, share.missing)
            self.tally.count_rows(share.row_value_bytes, latest, self.is_writing, share.fates, share.record_digest)
        if share.rows is not None and self.is_writing:
            self._digest(share.rows)
            with self._noting_partitions():
                self._own_writer().write(share.rows)
        if share.records.num_rows:
            self.take(topic, share.records)

    def _own_writer(self) -> FileWriter:
        if self.writer is None:
            self.writer = FileWriter(self.target)
        return self.writer

    def take(self, topic: str, records: pa.RecordBatch, of_source: Changes | None = None) -> None:
        """Decodes, shapes and writes the records of one topic. of_source: see `read_records`."""
        if self.target.known.crashing:
            records = self._take_crashing(topic, records)
            if not records.num_rows:
                return
        for whole in self._whole(topic, records):
            self._take_whole(topic, whole, of_source)

    def _take_whole(self, topic: str, records: pa.RecordBatch, of_source: Changes | None) -> None:
        decoded = [of_source]

        def read(columns: dict[str, pa.Array]) -> Changes:
            # Where a read for more columns than the decoded ones exceeds a limit, parts of the records are decoded again.
            return self._read(topic, columns, decoded.pop() if decoded else None)

        columns_of = partial(_columns, self.target, topic)
        for _, columns, changes in read_bounded(records, read, self.target.reading.evolution.columns_left, columns_of):
            self._take_read(topic, columns, changes)

    def _take_read(self, topic: str, columns: dict[str, pa.Array], changes: Changes) -> None:
        changes, dropped, late = self.changes.late.split(topic, columns, changes)
        decoded = changes.decoded
        self.tally.count(
            topic, {**columns, "value": columns.get(RAW_VALUE, columns["value"])}, changes.ignored_records | dropped
        )
        self._note_late(topic, columns, late)
        self.tally.note_decoded(topic, columns, decoded)
        self.tally.note_findings(topic, columns, changes.findings)
        self.tally.note_requests(decoded, self.source.fixed, self.source.empty_ids(decoded.untyped))
        if decoded.requested_fields:
            self._note_hints(decoded)
        if self.is_writing and decoded.refused.size:
            with self._noting_partitions():
                self._write(topic, columns, changes)

    def _note_late(self, topic: str, columns: Records, late: Mapping[int, BadRecord]) -> None:
        """Makes dead letters of late records. late: why each is one, by its index."""
        if late:
            self.tally.note_unread(list(late.values()))
            if self.is_writing:
                bad = pick(columns, np.array(list(late)))
                self.dead_letters.write_unread(topic, bad, list(late.values()))

    def _whole(self, topic: str, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yields the records whose values are whole, after taking those that are parts of others."""
        assembler = self._assembler(topic)
        assembled = assembler.take(records) if assembler is not None else None
        if assembled is None and records.num_rows:
            yield records
        for some in assembled or ():
            if some.parts or some.refused.num_rows:
                self.take_parts(topic, some)
            if some.records.num_rows:
                yield some.records

    def end(self, offset_range: OffsetRange) -> None:
        """Takes earlier parts of which it is known, at the end of a range, that no whole record comes."""
        assembler = self._assembler(offset_range.topic)
        if assembler is not None:
            for some in assembler.end(offset_range):
                self.take_parts(offset_range.topic, some)

    def _assembler(self, topic: str) -> Assembler | None:
        if topic not in self.assemblers:
            self.assemblers[topic] = assembler_of(self.target, topic)
        return self.assemblers[topic]

    def take_parts(self, topic: str, some: Assembled) -> None:
        """Counts records that are parts of others, and makes dead letters of those that cannot be."""
        for name, records in some.parts.items():
            self.tally.count(topic, plain_columns(records), {name: records.num_rows})
        refused = some.refused
        if refused.num_rows:
            places = zip(refused["partition"].to_pylist(), refused["offset"].to_pylist(), strict=True)
            bad = [
                BadRecord(topic, *place, kind, "", reason)
                for place, (kind, reason) in zip(places, some.reasons, strict=True)
            ]
            self._note_unread(topic, plain_columns(refused), bad)
        if some.are_read_again:
            self.tally.count_again(refused.num_rows)

    def take_left_out(self, topic: str, records: pa.RecordBatch, reasons: list[BadRecord]) -> None:
        """Takes records without their values: bad ones, or those that another table takes."""
        if reasons:
            self._note_unread(topic, plain_columns(records), reasons)
        elif records.num_rows:
            self.tally.note_share(ShareReport(others=records.num_rows), frozenset())

    def _take_crashing(self, topic: str, records: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the records without those that crash the task which reads them; these become dead letters unread."""
        by_place = {
            (record.partition, record.offset): record for record in self.target.known.crashing if record.topic == topic
        }
        places = zip(records.column("partition").to_pylist(), records.column("offset").to_pylist(), strict=True)
        crashing = [by_place.get(place) for place in places]
        is_bad = np.array([record is not None for record in crashing], np.bool_)
        if is_bad.any():
            columns = plain_columns(records.filter(pa.array(is_bad)))
            named = [record for record in crashing if record is not None]
            self._note_unread(topic, columns, named)
        return records.filter(pa.array(~is_bad))

    def _note_unread(self, topic: str, columns: dict[str, pa.Array], named: list[BadRecord]) -> None:
        self.tally.count(topic, columns, {})
        self.tally.note_unread(named)
        if self.is_writing:
            self.dead_letters.write_unread(topic, columns, named)

    def _note_hints(self, decoded: Decoded) -> None:
        """Uses the types in these records as hints for later ones, while the columns of a table are being found."""
        if self.is_trial:
            hints = dict(hints_of(decoded.requested_fields)) | dict(self.source.reading.json.hints)
            self.source = replace(self.source, reading=self.source.reading.with_hints(hints.items()))
            query = self.target.query
            self.target = replace(self.target, query=replace(query, source=self.source)) if query else self.source

    @contextmanager
    def _noting_partitions(self) -> Iterator[None]:
        try:
            yield
        except TooManyPartitions as error:
            self.scattered = error.some

    def _read(self, topic: str, columns: Records, of_source: Changes | None) -> Changes:
        marked = self.changes.mark(topic, columns)
        changes = read_records(self.target, topic, marked, of_source=of_source)
        of_rows = replace(changes, decoded=requests_of_rows(self.source, topic, columns, changes.decoded))
        if changes.must_read_again and not of_rows.must_read_again:
            # Bad records alone request columns, so that the others become rows now: no stage has seen them yet.
            of_rows = read_records(self.target, topic, marked, requests_columns=False)
        changes = of_rows
        self.tally.note_key_columns(changes.key_columns)
        self.changes.note(topic, changes, columns)
        return changes

    def _write(self, topic: str, columns: dict[str, pa.Array], changes: Changes) -> None:
        self.dead_letters.write_refused(
            columns,
            changes.decoded,
            self.target.reading,
            lambda bad: read_records(self.target, "", bad, _EVERY_MISMATCH).decoded,
        )
        writer, kept = self._own_writer(), changes.without_refused()
        records = pick({name: columns[name] for name in columns.keys() & self.row_fields}, kept.records)
        rows = self.changes.without_repeated(topic, shape_rows(self.target, kept, records), records)
        self.tally.count_written(changes.written_count, kept.ops.size if self.target.changes else rows.num_rows)
        if self.target.changes is not None:
            # Before rows wait for the latest of their key: values that are kept aside need no memory then.
            self.changes.take(topic, columns, writer.keep_aside(rows), kept, records)
        elif rows.num_rows:
            self._digest(rows)
            if self.target.files.is_summed:
                self.summed += rows.num_rows
            else:
                writer.write(rows)

    def _digest(self, rows: pa.Table) -> None:
        """Adds rows to the digest of those that are appended, where the ledger has one (`next_ledger`)."""
        if not self.target.looks_up_rows and not any(stage.keeps_aside for stage in self.target.stages):
            self.tally.digest_rows(rows)

    def report(self) -> TaskReport:
        """Ends the files, or deletes them when they cannot be committed; returns the report."""
        self.changes.close()
        data: tuple[DataFile, ...] = ()
        dead_letters: tuple[DataFile, ...] = ()
        if self.is_writing:
            with self._noting_partitions():
                data = tuple(self.changes.write(self.writer))
                dead_letters = self.dead_letters.finish()
        if not self.is_writing:
            self.abandon()
            data, dead_letters = (), ()
        return TaskReport(
            table=self.target.name,
            written=WrittenFiles(data, dead_letters, self.scattered, self.summed),
            counts=self.tally.counts,
            schema=self.tally.requests,
            bad_records=self.tally.bad,
            changes=self.changes.report(),
            share=self.tally.share,
            findings=self.tally.findings,
        )

    def abandon(self) -> None:
        """Deletes the files of this attempt."""
        if self.writer is not None:
            self.writer.abandon()
        self.dead_letters.abandon()
