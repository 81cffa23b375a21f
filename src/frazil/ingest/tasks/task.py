"""The work of one Spark task on its ranges: Arrow batches of records in, one report per table out.

A task reads records and writes files; it calls no catalog. It raises only for causes outside of records (the store, the
broker): a record that cannot become a row is reported, and the task then writes no files for its table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.cdc.changes import read_envelope
from frazil.clock import SystemClock
from frazil.dead_letters.record import DeadLetterFiles
from frazil.decode.columns import Decoded
from frazil.decode.json.slices import MAX_MISMATCHES
from frazil.decode.limits import plain_columns, read_bounded
from frazil.decode.settings import OWN_TYPES
from frazil.failpoints import hit
from frazil.ingest.tasks.left_out import refusals_of, split_left_out
from frazil.ingest.tasks.shares import Share, Together, hold_many, routes_of, shares_of
from frazil.ingest.tasks.tally import Tally, latest_of
from frazil.ingest.tasks.task_job import Job, by_topic, quoting_no_record
from frazil.ingest.tasks.task_limits import each_in_time, limited_memory
from frazil.process.evaluate import Unmet
from frazil.process.references import receive
from frazil.report import ChangeReport, RouteReport, TaskReport, TaskTime, Touched, WrittenFiles, dump_report
from frazil.rows.decoder import fields_requested_by_rows
from frazil.rows.dropped_unread import drop_unread
from frazil.rows.project import decode_rows, shape_rows
from frazil.rows.protected import without_values
from frazil.rows.query_rows import QueryRows, are_any, query_rows
from frazil.rows.storable import refuse_unstorable
from frazil.rows.tombstones import decode_others, find_tombstones, read_others
from frazil.runtime.private import release_memory
from frazil.schema.arrow import Records, pick
from frazil.schema.inference import hints_of
from frazil.types import BadRecord, DataFile
from frazil.upsert.change_rows import ChangeRows
from frazil.upsert.changes import Changes, count_good
from frazil.upsert.query_changes import query_changes, read_upserts
from frazil.upsert.records.first_tombstones import FirstTombstones
from frazil.upsert.records.read_changes import IncompleteUpdates, rows_of, with_topic
from frazil.upsert.records.tombstones import LastDeletes, secret_of
from frazil.write.target import TableTarget
from frazil.write.transforms import TooManyPartitions
from frazil.write.write import FileWriter
from frazil.zones import regions

_EVERY_MISMATCH = 2**31
_MANY_BYTES = 32 * 1024 * 1024  # Buffered rows of so many bytes of values take a hundred megabytes and more.
_MANY_RECORDS = 8192  # A read of so many costs little more for each than one of a whole Arrow batch.
_MOST_HELD_BYTES = 64 * 1024 * 1024
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
    reports = read_all(job, batches)
    ended_ms = clock.now_ms()
    reports = [replace(one, times=(TaskTime(began_ms, ended_ms, one.counts.record_count),)) for one in reports]
    if any(report.changes.touched and report.counts.value_bytes >= _MANY_BYTES for report in reports):
        release_memory()
    yield pa.RecordBatch.from_pydict({"report": pa.array([dump_report(report) for report in reports], pa.string())})


def read_all(job: Job, batches: Iterable[Portion]) -> list[TaskReport]:
    """Reads all records, writes all files and returns the reports; no rows remain in memory afterwards."""
    receive(job.references)
    runs: dict[str, TableRun] = {}
    together = {
        topic: {rest: Together(members, _read_rows) for rest, members in routes_of(job.targets_of(topic)).items()}
        for topic in job.targets
    }
    try:
        for batch in batches:
            hit("task.batch")
            if isinstance(batch, pa.RecordBatch):
                take_batch(job, batch, runs, together)
            else:
                batch(_run_of(job.all_targets[0], job, runs))
        for run in runs.values():
            run.take_held()
        _take_rows(runs, together)
        return [run.report() for run in runs.values()]
    except BaseException:
        for run in runs.values():
            run.abandon()
        raise


def take_batch(
    job: Job, batch: pa.RecordBatch, runs: dict[str, TableRun], together: Mapping[str, Mapping[str, Together]]
) -> None:
    """Hands each table its records, and holds no more of them than there is memory for."""
    for topic, all_records in by_topic(job, batch):
        targets = job.targets_of(topic)
        records, left_out = split_left_out(all_records)
        for target, own, reasons in refusals_of(targets, topic, left_out, job.starts):
            _run_of(target, job, runs).take_left_out(topic, own, reasons)
        if records.num_rows:
            is_routed = any(target.route is not None for target in targets)
            latest = {topic: latest_of(plain_columns(all_records))} if is_routed else {}
            for share in shares_of(targets, topic, records, job.starts, together[topic]):
                _run_of(share.target, job, runs).take_share(topic, share, latest)
    if sum(run.held_bytes for run in runs.values()) > _MOST_HELD_BYTES:
        for run in runs.values():
            run.take_held()
    if hold_many(one for routes in together.values() for one in routes.values()):
        _take_rows(runs, together)


def _run_of(target: TableTarget, job: Job, runs: dict[str, TableRun]) -> TableRun:
    if target.name not in runs:
        runs[target.name] = TableRun(target, target.name in job.trials, job.topics_of(target.name))
    return runs[target.name]


def _take_rows(runs: Mapping[str, TableRun], together: Mapping[str, Mapping[str, Together]]) -> None:
    """Hands each table its rows that were made together with those of other tables."""
    for one in (one for routes in together.values() for one in routes.values()):
        for name, rows in one.take_held():
            runs[name].take_rows(rows)


@dataclass(frozen=True)
class ReadRecords:
    """The results of reading some records."""

    #: The result per record; its columns are the rows where there are no `changes`.
    decoded: Decoded
    #: The changes of a table with an envelope.
    changes: Changes | None = None
    #: Which records are tombstones that make no row because the table's `tombstones` is `ignore`.
    ignored: NDArray[np.bool_] | None = None
    #: The rows that the table's query makes of records that are no changes.
    made: QueryRows | None = None

    @property
    def ignored_records(self) -> Mapping[str, int]:
        """The number of records that make no row and are no bad records, by kind of record or by what dropped them."""
        if self.changes is not None:
            return self.changes.ignored_records
        dropped = self.made.dropped if self.made is not None else {}
        masks = dropped if self.ignored is None else {**dropped, "tombstone": self.ignored}
        return count_good(masks, self.decoded.refused)

    @property
    def unmet(self) -> Sequence[Unmet]:
        """The expectations that records do not meet."""
        if self.changes is not None:
            return self.changes.unmet
        return self.made.unmet if self.made is not None else ()

    @property
    def written_count(self) -> int:
        """The number of records that make a row or a change, once all columns of the table are known."""
        refused = self.decoded.refused
        written, ignored = np.zeros(refused.size, np.bool_), refused
        if self.changes is not None:
            written[self.changes.records] = True
            ignored = are_any([refused, *self.changes.ignored.values()], refused.size)
        elif self.made is not None:
            written[self.made.records] = True
        else:
            written = ~refused if self.ignored is None else ~self.ignored
        return int(np.count_nonzero(written & ~ignored))

    def rows(self, target: TableTarget, records: Records) -> pa.Table:
        """Returns the rows of the good records in the schema of the table's files. records: the records that were read."""
        if self.changes is not None:
            return _change_rows(target, self.changes, records)
        if self.made is not None:
            return _query_rows(target, self.made, self.decoded, records)
        rows = shape_rows(target, self.decoded, records)
        out = self.decoded.refused if self.ignored is None else self.decoded.refused | self.ignored
        if out.any() and rows.num_columns:
            rows = rows.filter(pa.array(~out))
        return rows


def read_records(
    target: TableTarget, records: Records, limit: int = MAX_MISMATCHES, of_source: ReadRecords | None = None
) -> ReadRecords:
    """Decodes records, makes the rows of the table's query, and refuses records that no table could store.
    limit: mismatches to keep. of_source: the records as the table's `source` has them, where they are decoded already.
    """
    if target.source is None:
        found = _read_values(target, records, limit)
    else:
        found = _process(target, of_source or read_records(target.source, records, limit), records, limit)
    near = refuse_unstorable(target, records, found.decoded, found.changes or found.made, limit)
    if near is not found.decoded:
        changes = replace(found.changes, decoded=near).without_refused() if found.changes is not None else None
        made = found.made.without(near.refused) if found.made is not None else None
        found = replace(found, decoded=near, changes=changes, made=made)
    return replace(found, decoded=without_values(target, found.decoded)) if target.protection is not None else found


def _read_rows(target: TableTarget, records: Records) -> Decoded:
    """Returns the records of a table without changes and without a query; those that make no row count as refused."""
    read = read_records(target, records, limit=0)
    return read.decoded if read.ignored is None else read.decoded.refusing(read.ignored, (), 0)


def _process(target: TableTarget, found: ReadRecords, records: Records, limit: int) -> ReadRecords:
    """Returns the records of the table's `source` as rows or changes of the table."""
    if found.changes is not None:
        changes = query_changes(target, found.changes, records, limit)
        return replace(found, decoded=changes.decoded, changes=changes)
    rows = query_rows(target, found.decoded, records, found.ignored, limit)
    decoded, made = drop_unread(target, *rows, records, limit)
    return replace(found, decoded=decoded, made=made)


def _read_values(target: TableTarget, records: Records, limit: int) -> ReadRecords:
    tombstones = find_tombstones(target, records)
    if target.envelope is None:
        if tombstones is None:
            return ReadRecords(decode_rows(target, records, limit))
        decoded = decode_others(target, records, tombstones, limit)
        return ReadRecords(decoded, ignored=tombstones if target.tombstones == "ignore" else None)
    if tombstones is None:
        changes = read_envelope(target, records, limit)
    else:
        changes = read_others(read_envelope, target, records, tombstones, limit)
    return ReadRecords(changes.decoded, changes)


def _decode_only(topic: str, target: TableTarget, records: Records) -> Decoded:
    """Returns the decoded records, without adding to the results of the task."""
    if target.changes is None:
        return read_records(target, records, limit=0).decoded
    return read_upserts(target, topic, records, limit=0).decoded


def _query_rows(target: TableTarget, made: QueryRows, decoded: Decoded, records: Records) -> pa.Table:
    """Returns the rows that a query has made."""
    places = pa.array(made.records)
    own = {name: records[name].take(places) for name, _ in target.metadata}
    rescued = None if decoded.rescued is None else decoded.rescued.take(places)
    return shape_rows(target, Decoded(made.columns, np.zeros(len(places), np.bool_), rescued=rescued), own)


def _change_rows(target: TableTarget, changes: Changes, records: Records) -> pa.Table:
    """Returns a row for each change."""
    places = pa.array(changes.records)
    own = {name: records[name].take(places) for name, _ in target.metadata if name not in OWN_TYPES}
    decoded = Decoded(changes.columns, np.zeros(changes.records.size, np.bool_), rescued=changes.rescued_rows)
    return shape_rows(target, decoded, {**own, **changes.own})


@dataclass
class TableRun:
    """The results of the task for one table."""

    #: The table.
    target: TableTarget
    #: Whether nothing is written, and only columns are found.
    is_trial: bool
    #: The topics that feed the table.
    topics: tuple[str, ...]
    #: The buffered changes of an upsert table; None before the first.
    changes: ChangeRows | None = None
    #: Writes the data files; None before the first row.
    writer: FileWriter | None = None
    #: Names of two partitions, where rows have more partitions than one batch may write.
    scattered: tuple[str, ...] = ()
    #: Whether there are primary-key updates that one task must read.
    has_key_updates: bool = False
    #: Records that wait for more, by topic, of a table of a route.
    held: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    #: The memory that these take.
    held_bytes: int = 0
    #: What the report has of the records so far.
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self.source = self.target.source or self.target
        self.key_update_parts = IncompleteUpdates(self.target.abandoned, self.target.applied_early)
        self.last_deletes = LastDeletes(self.target.last_deletes, secret_of(self.target))
        self.first_tombstones = FirstTombstones(self.target, self.topics)
        self.dead_letters = DeadLetterFiles(self.target.dead_letters)

    @property
    def is_writing(self) -> bool:
        """Whether rows are written: not once something must change before the batch can be committed."""
        is_refused = self.is_trial or self.has_key_updates or self.tally.must_read_again
        is_lost = self.tally.bad.count > 0 and not self._has_place_for_bad
        return not (is_refused or is_lost or self.scattered or self.unplaced)

    @property
    def unplaced(self) -> tuple[tuple[str, int, int], ...]:
        """Places of truncates without a position among the changes of other partitions."""
        return tuple(sorted(self.changes.unplaced)) if self.changes is not None else ()

    @property
    def _has_place_for_bad(self) -> bool:
        on_bad = self.target.reading.on_bad
        return on_bad == "skip" or (on_bad == "dead_letter" and self.target.dead_letters is not None)

    def take_share(self, topic: str, share: Share, latest: Mapping[str, Mapping[int, int]]) -> None:
        """Takes the table's own records of those that were read. latest: of a route, how far all of them go."""
        if self.target.route is not None:
            self.tally.note_route(share.routed, share.missing)
            if share.records.num_rows:
                self._hold(topic, share.records)
            self.tally.count_rows(share.row_value_bytes, latest, self.is_writing, share.fates)
        elif share.records.num_rows:
            self.take(topic, share.records)

    def _hold(self, topic: str, records: pa.RecordBatch) -> None:
        held = self.held.setdefault(topic, [])
        held.append(records)
        self.held_bytes += records.nbytes
        if sum(some.num_rows for some in held) >= _MANY_RECORDS:
            self.take_held()

    def take_held(self) -> None:
        """Takes the records that wait for more: of a route with many tables, few records of a batch are one table's, and
        each read of some has a price of its own.
        """
        held, self.held, self.held_bytes = self.held, {}, 0
        for topic, many in held.items():
            for records in pa.Table.from_batches(many).combine_chunks().to_batches():
                self.take(topic, records)

    def take_rows(self, rows: pa.Table) -> None:
        """Writes rows that were made together with those of other tables."""
        if self.is_writing:
            with self._noting_partitions():
                self._own_writer().write(rows)

    def _own_writer(self) -> FileWriter:
        if self.writer is None:
            self.writer = FileWriter(self.target)
        return self.writer

    def take(self, topic: str, records: pa.RecordBatch, of_source: ReadRecords | None = None) -> None:
        """Decodes, shapes and writes the records of one topic. of_source: see `read_records`."""
        if self.target.crashing:
            records = self._take_crashing(topic, records)
            if not records.num_rows:
                return
        decoded = [of_source]

        def read_one(columns: dict[str, pa.Array]) -> ReadRecords:
            # Where a read for more columns than the decoded ones exceeds a limit, parts of the records are decoded again.
            return self._read(topic, columns, of_source=decoded.pop() if decoded else None)

        for piece, columns, read in read_bounded(records, read_one, self.target.reading.columns_left):
            self._take_read(topic, piece, columns, read)

    def _take_read(self, topic: str, records: pa.RecordBatch, columns: dict[str, pa.Array], read: ReadRecords) -> None:
        decoded = read.decoded
        self.tally.count(topic, columns, read.ignored_records)
        self.tally.note_decoded(topic, columns, decoded)
        self.tally.note_unmet(topic, columns, read.unmet)
        self.tally.note_requests(decoded, self.source.fixed)
        if decoded.requested_fields:
            self._note_hints(decoded)
        if self.is_writing and records.num_rows:
            if "topic" not in columns and ("topic" in self.target.metadata_fields or self.target.dead_letters):
                columns["topic"] = pa.repeat(pa.scalar(topic), records.num_rows)
            with self._noting_partitions():
                self._write(topic, columns, read)

    def take_left_out(self, topic: str, records: pa.RecordBatch, reasons: list[BadRecord]) -> None:
        """Takes records without their values: bad ones, or of a route those that another table takes."""
        if reasons:
            self._note_unread(topic, plain_columns(records), reasons)
        elif records.num_rows:
            self.tally.note_route(RouteReport(others=records.num_rows), frozenset())

    def _take_crashing(self, topic: str, records: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the records without those that crash the task which reads them; these become dead letters unread."""
        known = {(one.partition, one.offset): one for one in self.target.crashing if one.topic == topic}
        places = zip(records.column("partition").to_pylist(), records.column("offset").to_pylist(), strict=True)
        found = [known.get(place) for place in places]
        is_bad = np.array([one is not None for one in found], np.bool_)
        if is_bad.any():
            columns = plain_columns(records.filter(pa.array(is_bad)))
            named = [one for one in found if one is not None]
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
            known = dict(hints_of(decoded.requested_fields)) | dict(self.source.reading.hints)
            reading = replace(self.source.reading, hints=tuple(known.items()))
            self.source = replace(self.source, reading=reading)
            self.target = self.source if self.target.source is None else replace(self.target, source=self.source)

    @contextmanager
    def _noting_partitions(self) -> Iterator[None]:
        try:
            yield
        except TooManyPartitions as error:
            self.scattered = error.some

    def _read(
        self, topic: str, columns: Records, limit: int = MAX_MISMATCHES, of_source: ReadRecords | None = None
    ) -> ReadRecords:
        if self.target.source is not None and topic:  # A query may name the topic, which one source does not send.
            columns = with_topic(self.target, topic, columns)
        if self.target.changes is None:
            found = read_records(self.target, columns, limit, of_source)
            return replace(found, decoded=self._by_rows(topic, columns, found.decoded))
        marked = self.last_deletes.mark_following_deletes(topic, columns)
        changes = read_upserts(self.target, topic, marked, limit, of_source.changes if of_source is not None else None)
        decoded = self._by_rows(topic, columns, changes.decoded)
        self.tally.note_key_columns(changes.key_columns)
        self.has_key_updates |= changes.old_keys is not None and not self.target.is_single_task
        if topic:  # A second read of bad records finds no further changes.
            self.key_update_parts.take(topic, changes.key_update_parts, columns)
            self.last_deletes.take(topic, changes.last_deletes, columns)
        return ReadRecords(decoded, replace(changes, decoded=decoded))

    def _by_rows(self, topic: str, columns: Mapping[str, pa.Array], decoded: Decoded) -> Decoded:
        """Returns the records with the columns that only rows show; a second read of bad records requests none."""
        return (
            fields_requested_by_rows(self.source, columns, decoded, partial(_decode_only, topic)) if topic else decoded
        )

    def _write(self, topic: str, columns: dict[str, pa.Array], read: ReadRecords) -> None:
        self.dead_letters.write_refused(
            columns, read.decoded, self.target.reading, lambda bad: self._read("", bad, _EVERY_MISMATCH).decoded
        )
        writer = self._own_writer()
        if self.target.changes is not None and read.changes is not None:
            changes = read.changes.without_refused()
            self._take_changes(topic, columns, changes)
            self.tally.count_written(read.written_count, changes.ops.size)
            return
        rows = read.rows(self.target, columns)
        self.tally.count_written(read.written_count, rows.num_rows)
        if rows.num_rows:
            writer.write(rows)

    def _take_changes(self, topic: str, columns: dict[str, pa.Array], kept: Changes) -> None:
        if self.changes is None:
            self.changes = ChangeRows(self.target, self.topics)
        records = pick(columns, kept.records)
        rows = rows_of(self.target, kept, records)
        self.changes.take(topic, *self.first_tombstones.take_out(topic, columns, rows, kept, records))

    def report(self) -> TaskReport:
        """Ends the files, or deletes them when they cannot be committed; returns the report."""
        ends: dict[str, dict[int, int]] = {}  # The offsets at which the batch must end to divide no primary-key update.
        if self.target.is_single_task:
            ends = self.key_update_parts.ends()
        else:
            self.has_key_updates |= self.key_update_parts.has_lone_deletes
        data: tuple[DataFile, ...] = ()
        dead_letters: tuple[DataFile, ...] = ()
        touched: tuple[Touched, ...] = ()
        # Places of records whose row had another key, where the row of the old key was not found.
        unpaired: tuple[tuple[str, int, int], ...] = ()
        if self.is_writing and not ends:
            with self._noting_partitions():
                left = (
                    self.changes.finish(self.writer) if self.changes is not None and self.writer is not None else None
                )
                unpaired = tuple(sorted(self.changes.lost)) if self.changes is not None else ()
                data = tuple(self.writer.finish()) if self.writer is not None else ()
                if left is not None and left[0]:
                    touched = (Touched(left[0], left[1], tuple(file.path for file in data), left[2]),)
                touched += self.first_tombstones.kept()
                dead_letters = self.dead_letters.finish()
        if not self.is_writing or ends or unpaired:
            self.abandon()
            data, dead_letters = (), ()
        return TaskReport(
            table=self.target.name,
            written=WrittenFiles(data, dead_letters, self.scattered),
            counts=self.tally.counts,
            schema=self.tally.requests,
            bad_records=self.tally.bad,
            changes=ChangeReport(
                touched=touched,
                has_key_updates=self.has_key_updates,
                unpaired=unpaired,
                key_update_parts=self.key_update_parts.alone(),
                ends=ends,
                emptied=self.changes.emptied if self.changes is not None else "",
                unplaced=self.unplaced,
                last_deletes=self.last_deletes.found(),
            ),
            routed=self.tally.routed,
            unmet=self.tally.unmet,
        )

    def abandon(self) -> None:
        """Deletes the files of this attempt."""
        if self.writer is not None:
            self.writer.abandon()
        self.dead_letters.abandon()
