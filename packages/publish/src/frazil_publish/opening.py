"""Opens what publishes tables: beside a run, whose catalog it shares with batches, or for a command."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from frazil.api.wiring import open_catalog, open_schemas
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.maintenance import IcebergMaintenance
from frazil.clock import SystemClock
from frazil.kafka.reader import KafkaReader
from frazil.maintenance.merge_task import merge_of
from frazil.ops.observers import Observed
from frazil.runtime.jvm import Jvm
from frazil.spec import PipelineSpec
from frazil_publish.closed_windows import ClosedWindows
from frazil_publish.iceberg_branches import IcebergBranches
from frazil_publish.iceberg_copies import IcebergCopies
from frazil_publish.publisher import Publisher
from frazil_publish.schedule import PublishSchedule
from frazil_publish.spark_audits import SparkAudits
from frazil_publish.transactions import TransactionCuts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_schedule(observed: Observed) -> PublishSchedule:
    """Returns what publishes the tables of a run."""
    spec, has_thread = observed.pipeline.spec, not observed.until_caught_up

    def open_beside() -> Publisher:
        return _open(spec, observed.open_catalog(), observed.session, observed.ingesting())

    def open_transactions() -> TransactionCuts:
        return TransactionCuts(observed.open_source(), KafkaReader(spec.kafka), open_schemas(spec), SystemClock())

    reload = observed.pipeline.reload
    return PublishSchedule(open_beside, SystemClock(), reload, has_thread, observed.cuts, open_transactions)


def open_publisher(jvm: Jvm, spec: PipelineSpec) -> Publisher:
    """Returns what publishes tables as if it were a process of its own."""
    catalog = open_catalog(jvm, spec)
    return _open(spec, catalog, jvm.session, catalog)


def _open(
    spec: PipelineSpec, catalog: IcebergCatalog, session: Callable[[], SparkSession], ingesting: IcebergCatalog
) -> Publisher:
    """ingesting: the catalog of batches, whose locks keep them from files that are being replaced."""
    maintenance = IcebergMaintenance(ingesting, session, spec.maintenance.cores, merge_of)
    audits = SparkAudits(catalog, session, spec.maintenance.cores)
    copies = IcebergCopies(ingesting, maintenance, merge_of)
    clock = SystemClock()
    return Publisher(IcebergBranches(catalog), audits, spec.pipeline, clock, copies, ClosedWindows(catalog, clock))
