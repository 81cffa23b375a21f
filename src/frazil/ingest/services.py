"""The ports and settings that the service is built from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from frazil.catalog.port import Catalog
from frazil.clock import Clock
from frazil.ingest.job import JobRunner
from frazil.ingest.schemas import Schemas
from frazil.ingest.workers import ThreadWorkers, Workers
from frazil.kafka.port import Outbox, RecordReader, Source


class Pace(Protocol):
    """The pace of commits that table maintenance requests, where a commit of changes may undo the work it is about to
    do.
    """

    def slowed_by(self, table: str) -> float:
        """Returns the factor by which the table's commit interval is lengthened; 1.0 for the usual interval. Takes no
        time.
        """


class UsualPace:
    """The usual pace, of a process without table maintenance."""

    def slowed_by(self, table: str) -> float:  # noqa: ARG002  (every table is alike)
        """See Pace."""
        return 1.0


@dataclass(frozen=True)
class Services:
    """The ports that the service works with; each has a twin in memory (`frazil.testing`)."""

    #: Topics and offsets.
    source: Source
    #: Tables.
    catalog: Catalog
    #: Runs Spark jobs.
    jobs: JobRunner
    #: The clock.
    clock: Clock
    #: The worker pools.
    workers: Workers = field(default_factory=ThreadWorkers)
    #: Registry schemas; None where the pipeline file names no registry.
    schemas: Schemas | None = None
    #: Produces dead letters to topics; None where no table has such a topic.
    outbox: Outbox | None = None
    #: Reads records in the driver, for tables with `atomic: transaction`.
    reader: RecordReader | None = None
    #: The pace of commits that table maintenance requests.
    pace: Pace = field(default_factory=UsualPace)
