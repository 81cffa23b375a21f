"""What a run does once its JVM has started: connects services, runs the loop, and reports how tables end."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from py4j.protocol import Py4JError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from frazil.api.redaction import Redaction
from frazil.api.results import RunResult
from frazil.api.run import Limits, NothingInHand, Stopping
from frazil.api.wiring import (
    catalog_address,
    committed_in,
    open_catalog,
    open_leadership,
    open_schemas,
    open_topics,
    topics_for_reading,
)
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.maintenance import IcebergMaintenance
from frazil.clock import Clock, SystemClock, jitter, new_id
from frazil.errors import UnavailableError, without_retry
from frazil.ingest.batches.ended_batch import EndedBatch
from frazil.ingest.batches.job import SparkJobs
from frazil.ingest.batches.services import RunTimeouts, Services
from frazil.ingest.failures import named_jvm_death
from frazil.ingest.loop.leadership import Leadership, LeadershipState
from frazil.ingest.loop.published_offsets import OffsetPublisher, group_of
from frazil.ingest.loop.service import Service
from frazil.ingest.loop.topics import tolerate_empty_patterns
from frazil.ingest.tables.cuts import Cuts
from frazil.ingest.tables.lookups import Waits
from frazil.ingest.tables.queries import SparkQueries
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.kafka.group import KafkaGroup
from frazil.kafka.outbox import KafkaOutbox
from frazil.kafka.port import TopicReaders
from frazil.kafka.reader import KafkaReader, read_sample
from frazil.maintenance.merge_task import merge_of
from frazil.maintenance.run import MaintenanceRunner
from frazil.maintenance.scheduler import MaintenanceScheduler
from frazil.ops.maintenance import Activities
from frazil.ops.observers import Observed, Observers, open_observers
from frazil.ops.pipeline_status import status_of
from frazil.ops.reports import behind, held_back
from frazil.ops.running import OwnServices, Parts, RunningPipeline
from frazil.ops.state_file import StateFile
from frazil.plugins.driver import TABLE_KEYS
from frazil.printable import plural
from frazil.runtime.jvm import Garbage, Heap, Jvm, core_count, is_local
from frazil.spec import PipelineSpec, SparkSpec
from frazil.types import Commit, DataFile, Progress, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.kafka.topics import KafkaTopics

log = structlog.get_logger("frazil")

_MAINTENANCE_TIMEOUT_S = 5.0
_WAITS_TIMEOUT_S = 2.0
_OFFSETS_TIMEOUT_S = 5.0
_STOP_WITHIN_S = 1.0
"""How long a run that waits for its catalog takes to notice that it is stopped."""


def run(
    spec: PipelineSpec,
    redaction: Redaction,
    jvm: Jvm,
    stopping: Stopping,
    limits: Limits,
    note: Callable[[str], None] = lambda _: None,
) -> Sequence[Table]:
    """Runs the pipeline; returns the tables as they are at the end. note: receives how far the run is.

    Raises: NothingInHand where it is stopped before any table is known, or does not wait for what is in hand.
    """
    clock, until_caught_up = SystemClock(), limits.until_caught_up
    timeouts = RunTimeouts(clock, limits.wait_s, awaits_topics=limits.awaits_topics)
    warn_of_other_catalog(spec)
    state_file = StateFile(spec.file.state_dir, spec.pipeline, clock, redaction.text, catalog_address(spec))
    source = open_topics(spec)
    with suppress(UnavailableError):  # Without a broker the service waits for one, and checks then.
        tolerate_empty_patterns(spec, topics_for_reading(spec))
    running = RunningPipeline(spec, state_file, clock, redaction.document)
    run_id = new_id()
    cuts, opening = Cuts(clock), (partial(open_topics, spec), partial(open_catalog, jvm, spec))
    observed = Observed(running, run_id, until_caught_up, *opening, lambda: catalog, jvm.session, cuts)
    observers = open_observers(observed)
    with closing(observers), named_jvm_death():
        # The session is the slow part of a start: it is created while the tables are loaded from the catalog.
        warming = threading.Thread(target=_make_session, args=(jvm,), name="session", daemon=True)
        warming.start()
        catalog = wait_for_catalog(jvm, spec, clock, timeouts, lambda: stopping.is_set)
        maintenance = IcebergMaintenance(catalog, jvm.session, spec.maintenance.cores, merge_of)
        runner = MaintenanceRunner(maintenance, spec.pipeline, clock, observers.kept_snapshots)
        maintenance_scheduler = MaintenanceScheduler(runner, clock, running.reload)
        lookup = TABLE_KEYS.get("lookup") if "lookup" in TABLE_KEYS else None
        waits: Waits | None = None if lookup is None else lookup.wait_opener(running, until_caught_up)
        services = replace(
            _services(spec, jvm, source, catalog, maintenance_scheduler.slowed_by),
            cuts=cuts,
            on_batch_end=partial(_end_batch, observers, Garbage(clock)),
        )
        leadership = open_leadership(spec, run_id, clock)
        group = KafkaGroup(spec.kafka, group_of(spec.pipeline))
        offsets = OffsetPublisher(group, run_id, clock) if spec.process.publish_offsets else None
        shown = state_file, maintenance_scheduler, Activities(), offsets
        publisher = _Publisher(*shown, leadership, observers, waits, note)
        service = Service(spec, services, run_id, publisher.publish, leadership)
        running.parts = Parts(
            service,
            partial(_own_services, spec, jvm, services),
            maintenance_scheduler.plans,
            maintenance_scheduler.note_round,
            Heap(lambda: jvm.gateway, clock).usage,
            observers.counts,
        )
        stopping.then(service.stop, lambda: service.tables)
        if not until_caught_up:
            maintenance_scheduler.start()
        publisher.begin()
        observers.start()
        try:
            service.run(until_caught_up, timeouts)
            if waits is not None:
                waits.run_last()
            if until_caught_up:
                observers.finish(lambda: stopping.is_set, limits.wait_s or 0.0)
        finally:
            publisher.end(service.tables)
            if not stopping.is_urgent:
                observers.flush()
                publisher.end_offsets(service.tables)
                warming.join()
            _stop_maintenance(maintenance_scheduler, jvm, stopping.is_urgent)
    return service.tables


def _end_batch(observers: Observers, garbage: Garbage, batch: EndedBatch) -> None:
    observers.take_batch(batch)
    garbage.collect()


def _services(
    spec: PipelineSpec, jvm: Jvm, source: KafkaTopics, catalog: IcebergCatalog, slowed_by: Callable[[str], float]
) -> Services:
    """Opens what the loop works with."""
    clock = SystemClock()
    expected = core_count() if is_local(spec.spark.master) else 1
    return Services(
        source,
        catalog,
        SparkJobs(jvm.session, spec.kafka, _parallelism(spec.spark), expected, source.answering, jvm.outage),
        clock,
        schemas=open_schemas(spec),
        outbox=KafkaOutbox(spec.kafka),
        reader=KafkaReader(spec.kafka),
        queries=SparkQueries(lambda: jvm.gateway.jvm),
        slowed_by=slowed_by,
        rehearse=lambda: rehearse_commits(jvm.gateway),
        release_memory=Heap(lambda: jvm.gateway, clock).keep_small,
        has_jvm_ended=jvm.has_ended,
    )


def _own_services(spec: PipelineSpec, jvm: Jvm, services: Services) -> OwnServices:
    """Opens what commands beside the loop need, as if each were a process of its own."""
    catalog, clock = open_catalog(jvm, spec), SystemClock()
    return OwnServices(
        catalog,
        IcebergMaintenance(catalog, jvm.session, spec.maintenance.cores, merge_of),
        TopicReaders(topics_for_reading(spec), KafkaReader(spec.kafka)),
        lambda ranges: read_sample(spec.kafka, ranges, clock),
        services.schemas,
        services.queries,
    )


@dataclass(frozen=True)
class _Publisher:
    """Takes the state of the tables from the loop, for everything that shows it or works beside the loop."""

    state_file: StateFile
    maintenance_scheduler: MaintenanceScheduler
    activities: Activities
    #: None with `publish_offsets: false`.
    offsets: OffsetPublisher | None
    leadership: Leadership
    observers: Observers
    #: None where no package looks up.
    waits: Waits | None
    #: Receives how far the run is.
    note: Callable[[str], None]

    def begin(self) -> None:
        """Starts what works beside the loop from the beginning on."""
        if self.offsets is not None:
            self.offsets.start()

    def publish(self, tables: Sequence[Table]) -> None:
        """Takes the tables as they are now."""
        self.maintenance_scheduler.note(self.activities.of(tables))
        if self.offsets is not None:
            self.offsets.note(tables)
        self.observers.take_tables(tables)
        if self.waits is not None:
            self.waits.note(tables)
        self._write(tables, leadership=self.leadership.state)
        lags = [table.offsets.lag_records for table in tables]
        lag = None if None in lags else sum(lag for lag in lags if lag is not None)
        self.note(f"{plural(sum(table.counts.records for table in tables), 'record')} read, {behind(lag)}")
        report_alive()

    def end(self, tables: Sequence[Table]) -> None:
        """Writes the state of the tables at the end of the run."""
        if self.waits is not None:
            self.waits.stop(_WAITS_TIMEOUT_S)
            self.waits.note(tables)
        self.observers.stop()
        self._write(tables, ended=True)

    def end_offsets(self, tables: Sequence[Table]) -> None:
        """Publishes the last offsets."""
        if self.offsets is not None:
            self.offsets.stop(tables, _OFFSETS_TIMEOUT_S)

    def _write(self, tables: Sequence[Table], ended: bool = False, leadership: LeadershipState | None = None) -> None:
        self.state_file.write(
            tables,
            ended,
            leadership=leadership,
            offsets=None if self.offsets is None else self.offsets.status,
            observed=self.observers.observations(tables, self.maintenance_scheduler.status()),
        )


def _stop_maintenance(maintenance_scheduler: MaintenanceScheduler, jvm: Jvm, is_urgent: bool) -> None:
    """Lets maintenance finish for a few seconds; a longer rewrite is cancelled, which deletes its files. is_urgent: the
    JVM ends together with whatever runs in it, which is not an error then.
    """
    if is_urgent:
        maintenance_scheduler.stop(0)
        return
    if not maintenance_scheduler.stop(_MAINTENANCE_TIMEOUT_S):
        with suppress(UnavailableError, Py4JError, ConnectionError):
            jvm.session().sparkContext.cancelAllJobs()
        maintenance_scheduler.stop(_MAINTENANCE_TIMEOUT_S)


def warn_of_other_catalog(spec: PipelineSpec) -> None:
    """Logs that the last run has committed to tables in another catalog: in this one they begin at their start."""
    last, now = committed_in(spec), catalog_address(spec)
    if last and last != now:
        remedy = "if that is not meant, write the former address of the catalog again"
        log.warning("catalog_changed", before=last, now=now, remedy=remedy)


def wait_for_catalog(
    jvm: Jvm,
    spec: PipelineSpec,
    clock: Clock,
    timeouts: RunTimeouts | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> IcebergCatalog:
    """Returns the catalog, retrying with back-off: an outage at the start is like any other. is_stopped: whether nobody
    waits for it any more.

    Raises: UnavailableError when `timeouts` has expired; NothingInHand where nobody waits.
    """
    delay_s = 0.5
    timeouts = timeouts or RunTimeouts(clock)
    timeouts.reset()
    while True:
        try:
            return open_catalog(jvm, spec)
        except UnavailableError as error:
            reported = {"reason": error.message, "where": error.where, "remedy": error.remedy}
            log.warning("service_unavailable", **reported, retry_in_s=delay_s)
            timeouts.record_outage(error)
            _sleep(clock, min(jitter(delay_s), timeouts.left_s), is_stopped)
            delay_s = min(30.0, delay_s * 2)


def _sleep(clock: Clock, seconds: float, is_stopped: Callable[[], bool]) -> None:
    until_s = clock.monotonic_s() + seconds
    while (left_s := until_s - clock.monotonic_s()) > 0:
        if is_stopped():
            raise NothingInHand
        clock.sleep(min(left_s, _STOP_WITHIN_S))


def _make_session(jvm: Jvm) -> None:
    with suppress(UnavailableError, Py4JError, OSError):  # The first batch creates it again, and reports the failure.
        jvm.session()


def _parallelism(spec: SparkSpec) -> Callable[[SparkSession], int]:
    """Returns the number of tasks of one job: the number of cores here; on a cluster the cores of its executors, those
    that may be started on demand included: an application that asks for no more than it has gets no more.
    """
    if is_local(spec.master):
        return lambda _: core_count()
    conf = spec.conf
    executors = conf.get("spark.dynamicAllocation.maxExecutors") or conf.get("spark.executor.instances", "0")
    declared = int(executors) * int(conf.get("spark.executor.cores", "1"))
    return lambda session: max(declared, session.sparkContext.defaultParallelism)


def result_of(tables: Sequence[Table], until_caught_up: bool) -> RunResult:
    """Returns how the tables are at the end of a run."""
    # A run that has caught up with all but a table whose topic is missing has not done everything it was asked for.
    failing = {RunState.STOPPED, RunState.BACKING_OFF} if until_caught_up else {RunState.STOPPED}
    return RunResult(
        tuple(status_of(table) for table in tables),
        {table.name: _words(table) for table in tables},
        tuple(table.name for table in tables if table.status.run_state in failing),
    )


def _words(table: Table) -> str:
    if table.status.run_state in {RunState.STOPPED, RunState.BACKING_OFF}:
        place = f" ({table.status.where})" if table.status.where else ""
        return f"{table.status.run_state}: {table.status.reason}{place}; {without_retry(table.status.remedy)}"
    if table.catalog.size is None and not table.catalog.loaded_at_s:
        return "not loaded yet"
    rows = table.catalog.size.live_row_count if table.catalog.size else 0
    held = held_back(table.offsets.open_transactions)
    waiting = f"; {held.message} ({held.where})" if held is not None else ""
    reason = f"; {table.status.reason}" if table.offsets.search.is_without_rows and table.is_first else ""
    return f"{plural(rows, 'row')}, {behind(table.offsets.lag_records)}{waiting}{reason}"


def report_alive() -> None:
    """Reports that the process is ready, and that its loop still turns. Does nothing without a service manager."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        name = "\0" + address[1:] if address.startswith("@") else address  # Linux's sockets without a file.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, suppress(OSError):
            sender.setblocking(False)  # A service manager that reads nothing must not stop the loop.
            sender.sendto(b"READY=1\nWATCHDOG=1", name)


_REHEARSAL = "rehearsal"
_REHEARSED = f"{_REHEARSAL}.t"
_REHEARSED_SCHEMA = Schema(NestedField(1, "a", LongType(), required=False))
_IN_MEMORY = {"catalog-impl": "org.apache.iceberg.inmemory.InMemoryCatalog"}
_REHEARSED_FILE = (
    '{"spec-id":0,"content":"data","file-path":"rehearsal","file-format":"parquet","partition":{},'
    '"file-size-in-bytes":1,"record-count":1}'
)


def rehearse_commits(gateway: Any, count: int = 2) -> None:
    """Commits so often to a table in the memory of the JVM behind `gateway`, which nobody else sees and which is gone
    afterwards: Java loads the classes of a commit with the first one, which takes as long as ten later ones.
    """
    catalog = IcebergCatalog(gateway, _REHEARSAL, _IN_MEMORY, {})
    state = catalog.create(_REHEARSED, _REHEARSED_SCHEMA, {}, 2)
    file = DataFile("rehearsal", 1, 1, _REHEARSED_FILE)
    for number in range(count):
        progress = Progress(offsets={_REHEARSAL: {0: number}}, commit_id=new_id(), writer=Writer(1, _REHEARSAL))
        commit = Commit(_REHEARSED, (file,), progress, state.progress, shape=state.shape)
        state = replace(state, progress=catalog.commit(commit))
        state = catalog.load(_REHEARSED) or state
