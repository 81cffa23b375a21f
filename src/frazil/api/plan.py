"""What a run would create or change, from the services that a pipeline file names."""

from __future__ import annotations

from collections.abc import Callable

from frazil.api.wiring import catalog_and_queries, open_schemas, refuse_lost_catalog, topics_for_reading
from frazil.catalog.port import Catalog
from frazil.clock import SystemClock
from frazil.ingest.tables.queries import Queries
from frazil.kafka.port import ReadRecord
from frazil.kafka.reader import read_sample
from frazil.kafka.topics import KafkaTopics
from frazil.ops.plan import PlannedTable, plan_tables
from frazil.ops.status import no_such_table
from frazil.spec import PipelineSpec
from frazil.types import OffsetRange


def plan(spec: PipelineSpec, only: str | None, note: Callable[[str], None]) -> list[PlannedTable]:
    """Returns what a run would do with each table, or with the one named `only`. note: receives what is read.

    Raises: SpecError for a name that no table has; UnavailableError where Kafka or the catalog does not answer.
    """
    names = [table.name for table in spec.tables]
    if only is not None and only not in names and not spec.makes_tables:  # Before a service is asked.
        raise no_such_table(only, names)
    refuse_lost_catalog(spec)
    with catalog_and_queries(spec) as (catalog, queries):
        return plan_of(spec, topics_for_reading(spec), catalog, queries, only, note)


def plan_of(
    spec: PipelineSpec,
    source: KafkaTopics,
    catalog: Catalog,
    queries: Queries | None,
    only: str | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> list[PlannedTable]:
    """Returns what a run would do with each table, or the one named `only`, from a sample of its unread records. note:
    receives whose records are read.
    """
    clock = SystemClock()

    def read(ranges: list[OffsetRange]) -> list[ReadRecord]:
        if ranges:
            note(f"reading a sample of {ranges[0].topic}")
        return read_sample(spec.kafka, ranges, clock)

    return plan_tables(spec, source, catalog, read, open_schemas(spec), queries, only)
