"""What a running process answers about its own pipeline, and does on request. Any thread may ask.

The state comes from what the loop published last, without asking Kafka or the catalog. Commands on single tables go to the
loop; what commands such as `frazil maintain` do beside a running process is done here with a catalog of its own, as these
commands have one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from frazil.catalog.maintenance_port import TableMaintenance
from frazil.catalog.port import Catalog
from frazil.catalog.table_metadata import TableMetadata
from frazil.clock import Clock
from frazil.errors import UnavailableError
from frazil.ingest.loop.load import Restart
from frazil.ingest.loop.requests import Requests
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.queries import Queries
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.kafka.port import ReadRecord, TopicReaders
from frazil.maintenance.plan import Plan
from frazil.maintenance.run import MaintenanceRunner
from frazil.ops.maintenance import (
    chosen_tables,
    document_of_rounds,
    load_upsert_tables,
    maintenance_report,
    plan_rounds,
    run_rounds,
)
from frazil.ops.pipeline_status import PipelineReport
from frazil.ops.plan import ReadSample, plan_document, plan_tables
from frazil.ops.state_file import StateFile
from frazil.ops.status import find_process, report_running
from frazil.runtime.jvm import HeapUsage
from frazil.spec import PipelineSpec
from frazil.stages.table import table_stages
from frazil.types import OffsetRange

TelemetryCounts = Mapping[str, Sequence[tuple[Mapping[str, str], int]]]
ANSWER_S = 60.0
"""How long the loop's answer is waited for."""
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class OwnServices:
    """The services of commands beside the loop."""

    catalog: Catalog
    table_maintenance: TableMaintenance
    topics: TopicReaders
    read_sample: ReadSample
    schemas: Schemas | None = None
    queries: Queries | None = None


@dataclass(frozen=True)
class Parts:
    """What exists once the JVM and the catalog have answered."""

    #: The loop.
    service: Service
    #: Opens the services of commands beside the loop.
    open_services: Callable[[], OwnServices]
    #: Returns the health and the due maintenance of tables, as last measured.
    plans: Callable[[], Mapping[str, Plan]] = dict
    #: Takes the plan of a table after a round of maintenance that somebody has requested.
    note_round: Callable[[str, Plan | None], None] = lambda _name, _plan: None
    #: Returns the heap of the JVM; None where there is no JVM.
    heap: Callable[[], HeapUsage | None] = lambda: None
    #: Returns the numbers of metrics about what was sent elsewhere, by name of the metric, each with its labels.
    telemetry_counts: Callable[[], TelemetryCounts] = dict


@dataclass
class RunningPipeline:
    """The pipeline of this process."""

    spec: PipelineSpec
    #: What the loop published last.
    state_file: StateFile
    clock: Clock
    #: Masks secrets in every text of a JSON document.
    redact: Callable[[Any], Any]
    #: None until the JVM and the catalog have answered.
    parts: Parts | None = None
    _services: OwnServices | None = None
    _opening: threading.Lock = field(default_factory=threading.Lock)

    # ---- reading

    def report(self, name: str | None = None) -> PipelineReport:
        """Returns the state of the pipeline and its tables, or of one of them.

        Raises: UnavailableError until the loop has published for the first time; UnknownTable.
        """
        state, tables = self.state_file.state, self.tables if name is None else [self.find(name)]
        if state is None:
            raise _starting()
        plans = self._known.plans()
        maintenance = {
            name: maintenance_report(plans[name], table.spec.changes.mode, state.table(name).recorded.maintenance)
            for table in tables
            if (name := table.name) in plans
        }
        return report_running(self.spec.pipeline, tables, state, maintenance, self.clock.now_ms())

    @property
    def is_alive(self) -> bool:
        """Whether the loop turns, or has yet to start: it publishes every few seconds."""
        state = self.state_file.state
        return state is None or not find_process(state, self.clock.now_ms()).is_silent

    @property
    def is_ready(self) -> bool:
        """Whether the pipeline can commit, or could if this process took over: the loop knows the tables and turns, and not
        every table waits for a service.
        """
        if self.parts is None or self.state_file.state is None or not self.is_alive:
            return False
        tables = self.tables
        if tables and not any(table.schedule.is_owned for table in tables):
            return self._known.service.ownership.is_warm(tables)
        return not tables or any(table.status.run_state is not RunState.BACKING_OFF for table in tables)

    @property
    def tables(self) -> list[Table]:
        """The tables, by name; another thread changes them.

        Raises: UnavailableError until they are known.
        """
        return self._known.service.tables

    def find(self, name: str) -> Table:
        """Returns the table of this name. Raises: UnknownTable; UnavailableError until the tables are known."""
        return self._requests.find(name)

    def plan(self) -> dict[str, Any]:
        """Returns the JSON of `frazil plan`.

        Raises: UnavailableError where a service does not answer.
        """
        own = self.services
        tables = plan_tables(self.spec, own.topics.source, own.catalog, own.read_sample, own.schemas, own.queries)
        return plan_document(self.spec, tables)

    def record_at(self, name: str, topic: str, partition: int, offset: int) -> ReadRecord | None:
        """Returns the record at a place, fresh from Kafka; None where it is gone, and for a table that hides values.

        Raises: UnknownTable; UnavailableError where Kafka does not answer.
        """
        if any(stage.record_key is not None for stage in table_stages(self.find(name).spec)):
            return None
        records = self.services.read_sample([OffsetRange(topic, partition, offset, offset + 1)])
        return next((record for record in records if record.offset == offset), None)

    def ends(self, name: str) -> Mapping[tuple[str, int], int]:
        """Returns the offset behind the last record of each partition that a table reads, fresh from Kafka.

        Raises: UnknownTable; UnavailableError where Kafka does not answer.
        """
        return self.services.topics.source.ends(set(self.find(name).offsets.partitions()))

    def metadata(self, name: str) -> TableMetadata | None:
        """Returns the metadata of a table with its files, fresh from the catalog; None where it does not exist.

        Raises: UnknownTable; UnavailableError where the catalog does not answer.
        """
        return self.services.table_maintenance.metadata(self.find(name).name, with_files=True)

    # ---- acting

    def pause(self, name: str) -> None:
        """Lets no further batch of a table begin.

        Raises: UnknownTable; UnavailableError where the loop does not answer.
        """
        _answer_of(self._requests.pause(name))

    def resume(self, name: str) -> None:
        """Continues a paused or stopped table.

        Raises: UnknownTable; UnavailableError where the loop does not answer.
        """
        _answer_of(self._requests.resume(name))

    def reload(self, name: str) -> None:
        """Brings up to date what is shown of a table that something other than its batches has changed. Returns at once."""
        self._requests.reload(name)

    def stand_down(self) -> None:
        """Lets another process take over all tables; returns once this one has released them.

        Raises: as Requests.stand_down; UnavailableError where the loop does not answer.
        """
        _answer_of(self._requests.stand_down())

    def reset(self, name: str, dry_run: bool) -> Restart:
        """Makes a paused or stopped table begin again at `start`, unless `dry_run`; returns what that means.

        Raises: as Requests.restart; UnavailableError where the loop does not answer.
        """
        return _answer_of(self._requests.restart(name, dry_run))

    def maintain(self, name: str, dry_run: bool) -> dict[str, Any]:
        """Returns the JSON of `frazil maintain --table`: runs one round, unless `dry_run`.

        Raises: UnavailableError where the catalog does not answer.
        """
        runner = MaintenanceRunner(self.services.table_maintenance, self.spec.pipeline, self.clock)
        table = self.copy_of(name)
        load_upsert_tables([table], self.services.catalog)
        chosen = chosen_tables([table], name)
        if dry_run:
            return document_of_rounds(list(plan_rounds(runner, chosen)), dry_run)
        rounds = list(run_rounds(runner, chosen))
        self.reload(name)
        with suppress(UnavailableError):  # The round is done; how the table is now is shown after the next check.
            for maintained in chosen:
                self._known.note_round(maintained.name, runner.plan(maintained, is_scheduled=True))
        return document_of_rounds(rounds, dry_run)

    @property
    def heap(self) -> HeapUsage | None:
        """The heap of the JVM; None while there is no JVM."""
        return None if self.parts is None else self.parts.heap()

    @property
    def telemetry_counts(self) -> TelemetryCounts:
        """The numbers of metrics about what was sent elsewhere."""
        return {} if self.parts is None else self.parts.telemetry_counts()

    # ---- parts

    @property
    def _known(self) -> Parts:
        if self.parts is None:
            raise _starting()
        return self.parts

    @property
    def _requests(self) -> Requests:
        return self._known.service.requests

    @property
    def services(self) -> OwnServices:
        """The services of commands beside the loop, opened at the first use.

        Raises: UnavailableError until the pipeline has started.
        """
        parts = self._known
        with self._opening:
            if self._services is None:
                self._services = parts.open_services()
            return self._services

    def copy_of(self, name: str) -> Table:
        """Returns a table of this name as a command has it, without anything that the loop knows.

        Raises: UnknownTable.
        """
        return Table(self.find(name).spec)


def _starting() -> UnavailableError:
    return UnavailableError("the pipeline is starting", remedy="ask again in a few seconds")


def _answer_of(request: Future[_Result]) -> _Result:
    try:
        return request.result(ANSWER_S)
    except TimeoutError:
        raise UnavailableError(
            f"the pipeline has not done it within {ANSWER_S:.0f} s",
            remedy="look at the state of the table, and ask again",
        ) from None
