"""What the observers of installed packages receive of a run: batches that have ended, and the tables as they are.

Observers never harm a run: one that raises is logged once, and what it has missed is not repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from frazil.errors import FrazilError, SpecError
from frazil.ingest.batches.ended_batch import EndedBatch
from frazil.ingest.tables.cuts import Cuts
from frazil.ingest.tables.table import Table
from frazil.kafka.port import Source
from frazil.maintenance.due import RoundsStatus
from frazil.ops.check import Finding
from frazil.ops.pipeline_status import Observations, VerificationReport
from frazil.ops.publishing import PublishReport, reports_of
from frazil.ops.running import RunningPipeline, TelemetryCounts
from frazil.plugins.driver import OBSERVERS, ObserverKind
from frazil.plugins.extras import unread_variables
from frazil.spec import PipelineSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.catalog.iceberg.catalog import IcebergCatalog

log = structlog.get_logger("frazil")


@dataclass(frozen=True)
class Observed:
    """One run, for its observers."""

    pipeline: RunningPipeline
    run_id: str
    #: Whether the run ends once it has caught up.
    until_caught_up: bool
    #: Opens a Kafka client of the observer's own.
    open_source: Callable[[], Source]
    #: Opens a catalog of the observer's own; the JVM must have started.
    open_catalog: Callable[[], IcebergCatalog]
    #: Returns the catalog of batches, whose locks exclude them; it must have answered.
    ingesting: Callable[[], IcebergCatalog]
    #: Returns the Spark session of the process.
    session: Callable[[], SparkSession]
    #: Ends batches of several tables at one moment.
    cuts: Cuts


class Observer:
    """What a package does beside a run. The loop's thread calls its methods, and all but `finish` return at once: what takes
    time is done in a thread of the observer's own. The methods here do nothing.
    """

    def start(self) -> None:
        """Begins, when the catalog has answered."""

    def take_batch(self, batch: EndedBatch) -> None:
        """Takes a batch that has ended, however it ended."""

    def take_tables(self, tables: Sequence[Table]) -> None:
        """Takes the tables as they are now, every turn of the loop that changes one."""

    def verification(self) -> Mapping[str, VerificationReport] | None:
        """Returns by table what a comparison with the topics has found, for the tables' status; None without one."""
        return None

    def publishing(self) -> Mapping[str, PublishReport]:
        """Returns by table what its readers see, for the tables' status."""
        return {}

    def kept_snapshots(self, table: str) -> tuple[int, ...]:  # noqa: ARG002
        """Returns the snapshots of a table that expiry must keep; called by the thread of table maintenance."""
        return ()

    def counts(self) -> TelemetryCounts:
        """Returns the numbers of metrics about what was sent elsewhere, by name of the metric."""
        return {}

    def finish(self, is_stopped: Callable[[], bool], wait_s: float) -> None:
        """Does what is left to do once a run has caught up that ends then. is_stopped: whether the run has to end. wait_s:
        how long to wait for services that do not answer.

        Raises: FrazilError, with which the run ends.
        """

    def stop(self) -> None:
        """Ends its work within two seconds: the run has ended, and the state of the tables is written after it."""

    def flush(self) -> None:
        """Sends what waits, for two seconds at most. Not called where the process must end at once."""

    def close(self) -> None:
        """Releases what it holds. Called last, also where the run has failed before `start`."""


class Observers:
    """The observers of one run."""

    def __init__(self, observers: Mapping[str, Observer]) -> None:
        """observers: by the name of the entry point."""
        self._observers = dict(observers)
        self._failed = set[str]()

    def start(self) -> None:
        """Starts all of them."""
        self._each(lambda observer: observer.start())

    def take_batch(self, batch: EndedBatch) -> None:
        """Gives them a batch that has ended."""
        self._each(lambda observer: observer.take_batch(batch))

    def take_tables(self, tables: Sequence[Table]) -> None:
        """Gives them the tables as they are now."""
        self._each(lambda observer: observer.take_tables(tables))

    def verification(self) -> dict[str, VerificationReport] | None:
        """Returns what they have found of tables; None where none of them compares tables."""
        reports: list[Mapping[str, VerificationReport] | None] = []
        self._each(lambda observer: reports.append(observer.verification()))
        known = [report for report in reports if report is not None]
        return {name: report for by_table in known for name, report in by_table.items()} if known else None

    def publishing(self) -> dict[str, PublishReport]:
        """Returns what they report of tables' readers."""
        reports: dict[str, PublishReport] = {}
        self._each(lambda observer: reports.update(observer.publishing()))
        return reports

    def observations(self, tables: Sequence[Table], maintenance: Mapping[str, RoundsStatus]) -> Observations:
        """Returns what the status of tables has from beside the loop. maintenance: what that of each came to."""
        return Observations(maintenance, self.verification() or {}, reports_of(tables, self.publishing()))

    def kept_snapshots(self, table: str) -> tuple[int, ...]:
        """Returns the snapshots of a table that one of them reads."""
        kept: list[int] = []
        self._each(lambda observer: kept.extend(observer.kept_snapshots(table)))
        return tuple(kept)

    def counts(self) -> TelemetryCounts:
        """Returns the numbers of all of them."""
        counts: dict[str, Sequence[tuple[Mapping[str, str], int]]] = {}
        self._each(lambda observer: counts.update(observer.counts()))
        return counts

    def finish(self, is_stopped: Callable[[], bool], wait_s: float) -> None:
        """Lets all of them do what is left. Raises: as Observer.finish."""
        for observer in self._observers.values():
            observer.finish(is_stopped, wait_s)

    def stop(self) -> None:
        """Stops all of them."""
        self._each(lambda observer: observer.stop())

    def flush(self) -> None:
        """Lets all of them send what waits."""
        self._each(lambda observer: observer.flush())

    def close(self) -> None:
        """Lets all of them release what they hold."""
        self._each(lambda observer: observer.close())

    def _each(self, act: Callable[[Observer], object]) -> None:
        for name, observer in self._observers.items():
            try:
                act(observer)
            except Exception as error:  # noqa: BLE001  (whatever is wrong with an observer, the pipeline runs)
                if name not in self._failed:
                    _note_failure(name, error)
                self._failed.add(name)


def _note_failure(name: str, error: Exception) -> None:
    log.error("observer_failed", observer=name, error=f"{type(error).__name__}: {error}", exc_info=error)


def open_observers(observed: Observed) -> Observers:
    """Returns the observers that the run wants, none of them started. A package that cannot be imported is logged.

    Raises: SpecError where the pipeline file wants of an observer what is not there.
    """
    for variable, missing in unread_variables(os.environ):
        log.warning("telemetry_unavailable", variable=variable, reason=missing.message, remedy=missing.remedy)
    opened: dict[str, Observer] = {}
    for name, kind in _wanted(observed.pipeline.spec):
        try:
            opened[name] = kind.opener(observed)
        except FrazilError:
            Observers(opened).close()
            raise
        except Exception as error:  # noqa: BLE001  (whatever is wrong with an observer, the pipeline runs)
            _note_failure(name, error)
    return Observers(opened)


def check_observers(spec: PipelineSpec) -> Iterator[Finding]:
    """Yields what the observers that a run would want miss, and variables for an observer that is not installed."""
    for variable, missing in unread_variables(os.environ):
        yield Finding(variable, True, "looked for what reads it", f"warning: {missing.message}; {missing.remedy}")
    for _, kind in _wanted(spec):
        yield from kind.checker(spec, os.environ)


def _wanted(spec: PipelineSpec) -> Iterator[tuple[str, ObserverKind]]:
    for name in OBSERVERS.added():
        try:
            kind = OBSERVERS.get(name)
        except SpecError as error:
            log.warning("observer_unavailable", observer=name, reason=error.message, remedy=error.remedy)
            continue
        if kind.decider(spec, os.environ):
            yield name, kind
