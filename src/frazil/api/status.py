"""The status of a pipeline, from the services that its file names. It works whether or not the pipeline runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType

from frazil.api.wiring import (
    catalog_for_reading,
    has_catalog,
    known_state,
    refuse_lost_catalog,
    topics_for_reading,
)
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.maintenance import IcebergMaintenance
from frazil.catalog.port import Catalog
from frazil.clock import SystemClock
from frazil.errors import SpecError, UnavailableError
from frazil.ingest.tables.table import Table
from frazil.maintenance.due import RoundsStatus
from frazil.ops.maintenance import report_maintenance
from frazil.ops.pipeline_status import MaintenanceReport, PipelineReport
from frazil.ops.status import Shown, report_pipeline
from frazil.spec import PipelineSpec


class StatusReader(AbstractContextManager["StatusReader"]):
    """Reads the status of a pipeline any number of times, with one JVM, which starts at the first table and ends with the
    block.
    """

    def __init__(self, spec: PipelineSpec) -> None:
        self._spec = spec
        self._clock = SystemClock()
        self._stack = ExitStack()
        self._opened: list[Catalog] = []

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def read(self, table: str | None = None, note: Callable[[str], None] = lambda _: None) -> PipelineReport:
        """Returns the status of every table, or of one. note: receives which table is loaded.

        Raises: SpecError for a name that no table has.
        """
        spec = self._spec
        return report_pipeline(
            spec,
            topics_for_reading(spec),
            kept_open(spec, self._stack, self._opened),
            known_state(spec),
            self._clock.now_ms(),
            self._maintenance_status,
            Shown(table, note),
        )

    def _maintenance_status(self, catalog: Catalog, table: Table, rounds: RoundsStatus) -> MaintenanceReport | None:
        if not isinstance(catalog, IcebergCatalog):
            return None
        return report_maintenance(IcebergMaintenance(catalog), self._spec.pipeline, table, rounds, self._clock)


@contextmanager
def kept_open(spec: PipelineSpec, stack: ExitStack, opened: list[Catalog]) -> Iterator[Catalog]:
    """Yields the catalog, which stays open until the stack ends: to open it starts a JVM. opened: it, once it exists."""
    if not opened and has_catalog(spec):
        opened.append(stack.enter_context(catalog_for_reading(spec)))
    if opened:
        yield opened[0]
    else:
        try:
            refuse_lost_catalog(spec)
        except SpecError as error:  # What the state file has is shown beside it.
            raise UnavailableError(error.message, remedy=error.remedy, where=error.where) from None
        with catalog_for_reading(spec) as empty:
            yield empty
