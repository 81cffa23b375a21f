"""Compares some of the newest commits of a running pipeline with the topics, every hour unless written.

One thread finds the commits, and a process of lower priority compares them. Ingestion never waits for either.

A window is one commit of this run with the ranges that it has read, and the snapshots of other writers since the commit
before it. Earlier runs may have had other settings, so their commits are not compared.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.java import java_errors, unavailable
from frazil.catalog.progress import from_summary, key
from frazil.clock import Clock, shuffled
from frazil.errors import FrazilError
from frazil.files import temporary_folder
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.ingest.tables.target import target_of
from frazil.kafka.port import Source
from frazil.ops.observers import Observed, Observer
from frazil.ops.pipeline_status import Reports, VerificationReport
from frazil.runtime.tether import tethered
from frazil.spec import PipelineSpec
from frazil.spec.settings import VerifySpec
from frazil.spec.state import other_commits
from frazil.types import OffsetRange, Offsets
from frazil_replay.snapshots import Snapshots
from frazil_verify.compare import PREFIX, Change, Compared, Piece

MOST_OFFSETS = 1_000_000
"""The most offsets of a table that are read again at a time."""
_OWN = "frazil."
log = structlog.get_logger("frazil")
FIRST_S = 60.0
"""The longest time from the start of the process to the first comparison."""
_STOP_S = 2.0
_RECORDS_GONE = "Kafka has deleted the records of some of the commits"
_OTHER_COLUMNS = "the columns have changed since"
_TOO_LARGE = f"some commits have more than the {MOST_OFFSETS:,} records that are compared at a time"


@dataclass(frozen=True)
class Snapshot:
    """One snapshot of the main branch."""

    snapshot_id: int
    #: None for the first one of the table.
    parent_id: int | None
    #: The id of the schema that the table had; None where the writer has not recorded it.
    schema_id: int | None
    #: `append`, `overwrite`, `delete` or `replace`.
    operation: str
    summary: Mapping[str, str]


@dataclass(frozen=True)
class Window:
    """Snapshots, and the records that became what they changed."""

    #: The snapshots whose changes count, the oldest first.
    snapshots: tuple[int, ...]
    ranges: tuple[OffsetRange, ...] = ()
    #: The schema id of the commit; None where the window has none.
    schema_id: int | None = None
    #: Whether another writer has changed something.
    is_disturbed: bool = False
    #: The number of records that the commit has read.
    record_count: int = 0

    @property
    def span(self) -> int:
        """The number of offsets."""
        return sum(offset_range.span for offset_range in self.ranges)


@dataclass(frozen=True)
class Past:
    """How far a table has been looked at."""

    #: The last snapshot.
    snapshot_id: int | None = None
    #: The progress there; None where it is unknown.
    offsets: Offsets | None = None


def find_windows(
    pipeline: str, run_id: str, snapshots: Sequence[Snapshot], past: Past, starts_at_zero: bool
) -> tuple[list[Window], Past]:
    """Returns the windows of the snapshots after `past`, the oldest first, and how far that is.

    snapshots: the oldest first. starts_at_zero: whether a partition without progress is read from its first offset.
    """
    before, others, windows = past.offsets, list[int](), list[Window]()
    if snapshots and snapshots[0].parent_id != past.snapshot_id:
        before = None  # Snapshots between have been expired, or the table was rolled back.
    elif past.snapshot_id is None:
        before = {}
    for snapshot in snapshots:
        progress = from_summary(pipeline, snapshot.summary)
        if progress is None:
            # Another writer's: neither maintenance nor replayed dead letters.
            is_of_pipeline = any(name.startswith(_OWN) for name in snapshot.summary)
            if snapshot.operation != "replace" and not is_of_pipeline and before is not None:
                others.append(snapshot.snapshot_id)
            continue
        ranges = None if before is None else _ranges(before, progress.offsets, starts_at_zero)
        if ranges is not None and progress.writer.run_id == run_id and (others or (ranges and progress.batch.balance)):
            ids = (*others, snapshot.snapshot_id)
            # Without a balance the commit moved the progress and read nothing; without ranges it repeats a balance.
            read = (ranges, progress.batch.balance.read) if ranges and progress.batch.balance is not None else ((), 0)
            windows.append(Window(ids, read[0], snapshot.schema_id, bool(others), read[1]))
        before, others = progress.offsets, []
    if others:
        windows.append(Window(tuple(others), is_disturbed=True))
    return windows, Past(snapshots[-1].snapshot_id if snapshots else past.snapshot_id, before)


def choose(
    windows: Iterable[Window], sample: float, shuffled: Callable[[list[Window]], list[Window]]
) -> tuple[Window, ...]:
    """Returns all windows that another writer has disturbed, and of the others a share of the offsets by chance, at least
    one window; no more than MOST_OFFSETS in all.
    """
    every = list(windows)
    wanted = sample * sum(window.span for window in every)
    chosen, span = list[Window](), 0
    for window in sorted(shuffled(every), key=lambda window: not window.is_disturbed):
        is_enough = bool(chosen) and span >= wanted
        if span + window.span <= MOST_OFFSETS and (window.is_disturbed or not is_enough):
            chosen.append(window)
            span += window.span
    return tuple(chosen)


def _ranges(before: Offsets, after: Offsets, starts_at_zero: bool) -> tuple[OffsetRange, ...] | None:
    """Returns the ranges that a commit has read; None where a partition began at an unknown offset, or went back."""
    ranges = []
    for topic, ends in sorted(after.items()):
        for partition, end in sorted(ends.items()):
            start = before.get(topic, {}).get(partition, 0 if starts_at_zero else None)
            if start is None or start > end:
                return None
            if start < end:
                ranges.append(OffsetRange(topic, partition, start, end))
    return tuple(ranges)


@dataclass
class _Progress:
    past: Past = field(default_factory=Past)
    report: VerificationReport = field(default_factory=VerificationReport)


class VerifySchedule(Observer):
    """Decides what is compared when. The first `take_tables` starts the thread, `stop` ends it and a comparison in progress.

    open_catalog: opens a catalog for the thread alone.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        settings: VerifySpec,
        run_id: str,
        source: Source,
        open_catalog: Callable[[], IcebergCatalog],
        clock: Clock,
    ) -> None:
        self._spec = spec
        self._settings = settings
        self._run_id = run_id
        self._source = source
        self._open_catalog = open_catalog
        self._clock = clock
        self._catalog: IcebergCatalog | None = None
        self._tables: Sequence[Table] = ()
        self._progress: dict[str, _Progress] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="verify", daemon=True)

    def stop(self) -> None:
        """Ends the thread within two seconds, and the comparison in progress."""
        self._stopping.set()
        child = self._child
        if child is not None:
            child.kill()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def take_tables(self, tables: Sequence[Table]) -> None:
        """Takes the tables of the process; returns at once."""
        self._tables = list(tables)
        if self._thread.ident is None:
            self._thread.start()

    def reports(self) -> Reports:
        """See Observer."""
        # From the start: the first row that differs is an increase of a counter then.
        owned_names = [table.name for table in self._tables if table.schedule.is_owned]
        return {"verification": {name: self._progress.get(name, _Progress()).report for name in owned_names}}

    def _loop(self) -> None:
        pause_s = min(self._settings.every_s, FIRST_S)
        while not self._stopping.wait(pause_s):
            began_s = self._clock.monotonic_s()
            try:
                self.run_round()
            except Exception as error:  # noqa: BLE001  (records are ingested, whatever is wrong here)
                if not self._stopping.is_set():
                    log.error("unexpected_error", error=f"{type(error).__name__}: {error}")
            pause_s = max(0.0, self._settings.every_s - (self._clock.monotonic_s() - began_s))

    def run_round(self) -> None:
        """Compares some commits of every table that this process works on."""
        if self._catalog is None:
            self._catalog = self._open_catalog()
        pieces: list[Piece] = []
        for table in self._tables:
            if table.schedule.is_owned and table.status.run_state is not RunState.STOPPED:
                pieces += self._pieces_of(table, self._catalog)
        while pieces and not self._stopping.is_set():
            left = {piece.target.name: piece for piece in pieces}
            for compared in self._compared(pieces):
                del left[compared.table]
                self._note_found(compared)
            pieces = [*left.values()]
            if pieces and not self._stopping.is_set():  # The rows of the first have ended the process.
                name = pieces.pop(0).target.name
                self._note_not_compared(name, "the process that compares its rows has ended")

    def _pieces_of(self, table: Table, catalog: IcebergCatalog) -> list[Piece]:
        progress = self._progress.setdefault(table.name, _Progress())
        reason = _why_not(table)
        if not reason:
            try:
                return self._chosen(table, catalog, progress)
            except FrazilError as error:
                reason = error.message
            except RuntimeError:  # The loop has changed the table meanwhile.
                reason = "the table is changing"
        self._note_not_compared(table.name, reason)
        return []

    def _chosen(self, table: Table, catalog: IcebergCatalog, progress: _Progress) -> list[Piece]:
        if catalog.load(table.name) is None:
            return []
        pipeline, target = self._spec.pipeline, target_of(table)
        snapshots = _snapshots(catalog, table.name, pipeline, self._run_id, progress.past)
        starts_at_zero = table.spec.source.start.kind == "earliest"
        every, past = find_windows(pipeline, self._run_id, snapshots, progress.past, starts_at_zero)
        readable = self._without_gone(every)
        kept = [window for window in readable if window.schema_id in (None, target.schema.schema_id)]
        files = Snapshots(catalog, table.name)
        chosen = choose(kept, self._settings.sample, shuffled)
        changes = tuple(_change(files, window) for window in chosen)
        progress.past = past
        progress.report = replace(progress.report, reason="")
        if len(readable) < len(every):
            self._note_not_compared(table.name, _RECORDS_GONE)
        elif len(kept) < len(readable):
            self._note_not_compared(table.name, _OTHER_COLUMNS)
        elif any(window.span > MOST_OFFSETS for window in kept):
            self._note_not_compared(table.name, _TOO_LARGE)
        may_drop_late = table.spec.changes.mode == "upsert" and table.spec.changes.order_by is not None
        return [Piece(target, changes, may_drop_late)] if changes else []

    def _without_gone(self, windows: Iterable[Window]) -> list[Window]:
        """Returns the windows whose records Kafka still has."""
        every = list(windows)
        first = self._source.beginnings(
            {(offset_range.topic, offset_range.partition) for window in every for offset_range in window.ranges}
        )
        return [
            window
            for window in every
            if all(
                first.get((offset_range.topic, offset_range.partition), offset_range.end) <= offset_range.start
                for offset_range in window.ranges
            )
        ]

    def _compared(self, pieces: Sequence[Piece]) -> Iterator[Compared]:
        """Yields what the process of its own has found, as far as it gets."""
        command = tethered([sys.executable, "-P", "-m", "frazil_verify.compare"])
        # Rows that the process leaves when it is killed go with this folder.
        with temporary_folder(PREFIX) as folder:
            # A session of its own: Ctrl-C in the terminal does not reach it.
            child = self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "TMPDIR": str(folder)},
            )
            try:
                if self._stopping.is_set():  # `stop` may have come before there was a process.
                    return
                output, _ = child.communicate(pickle.dumps((dict(self._spec.kafka), list(pieces))))
            finally:
                child.kill()
                child.wait()
                self._child = None
        for line in output.splitlines():
            fields = json.loads(line)
            yield Compared(**{**fields, "reasons": tuple(fields["reasons"])})

    def _note_found(self, compared: Compared) -> None:
        for reason in compared.reasons:
            self._note_not_compared(compared.table, reason)
        if not compared.commits:
            return
        progress, missing, surplus = self._progress[compared.table], compared.missing, compared.surplus
        progress.report = report = replace(
            progress.report,
            last_ms=self._clock.now_ms(),
            commits=progress.report.commits + compared.commits,
            records=progress.report.records + compared.records,
            missing=progress.report.missing + missing,
            surplus=progress.report.surplus + surplus,
            is_equal=not missing and not surplus,
        )
        words = {"table": compared.table, "commits": compared.commits, "records": compared.records}
        if report.is_equal:
            log.info("table_verified", **words)
        else:
            remedy = f"run `frazil verify {compared.table}`, which shows such rows, and look for another writer"
            log.error("table_differs", **words, missing=missing, surplus=surplus, remedy=remedy)

    def _note_not_compared(self, table: str, reason: str) -> None:
        progress = self._progress[table]
        if progress.report.reason != reason:
            log.info("table_not_verified", table=table, reason=reason)
        progress.report = replace(progress.report, reason=reason)


def open_schedule(observed: Observed) -> Observer:
    """Returns what compares commits of one run; a run that ends once it has caught up compares none."""
    spec = observed.pipeline.spec
    settings = spec.process.verify
    if settings is None or observed.until_caught_up:
        return Observer()
    clock = observed.pipeline.clock
    return VerifySchedule(spec, settings, observed.run_id, observed.open_source(), observed.open_catalog, clock)


def _why_not(table: Table) -> str:
    """Returns why the records alone do not show the rows of a table; an empty text where they do."""
    spec = table.spec
    if spec.source.share is not None:
        return "it belongs to a route"
    if spec.query.lookup:
        return "its rows are joined with reference tables"
    if spec.changes.atomic is not None:
        return "its commits leave out transactions that were read before"
    if table.has_spark_part:
        return "Spark computes a part of its query"
    return other_commits(spec)


def _change(files: Snapshots, window: Window) -> Change:
    *others, last = ([*files.changes_of(number)] for number in window.snapshots)
    if not window.ranges:
        others.append(last)
    committed = tuple(last) if window.ranges else ()
    return Change(window.ranges, committed, tuple(change for many in others for change in many), window.record_count)


def _snapshots(catalog: IcebergCatalog, table: str, pipeline: str, run_id: str, past: Past) -> list[Snapshot]:
    """Returns the snapshots after `past` of the main branch, the oldest first. They begin with the last commit of an
    earlier run where there is one: what is older is not compared.

    Raises: UnavailableError where the metadata cannot be read.
    """
    snapshots: list[Snapshot] = []
    try:
        for text in catalog.snapshot_texts(table):
            read: dict[str, Any] = json.loads(text)
            if read["snapshot-id"] == past.snapshot_id:
                break
            summary = read.get("summary", {})
            operation, own_run = summary.get("operation", ""), summary.get(key(pipeline, "run-id"))
            ids = read["snapshot-id"], read.get("parent-snapshot-id"), read.get("schema-id")
            snapshots.append(Snapshot(*ids, operation, summary))
            if own_run not in (None, run_id):
                break
    except java_errors() as error:
        raise unavailable("the snapshots cannot be read", error, table) from None
    return snapshots[::-1]
