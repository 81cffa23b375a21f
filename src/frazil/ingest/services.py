"""What the service is made of."""

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
    """What table care asks of the commits of changes, each of which may undo what it is about to do."""

    def slowed_by(self, table: str) -> float:
        """How many times as far apart as usual they should be; 1.0: as usual. Takes no time."""


class UsualPace:
    """Of a process without table care."""

    def slowed_by(self, table: str) -> float:  # noqa: ARG002  (every table is alike)
        """See Pace."""
        return 1.0


@dataclass(frozen=True)
class Services:
    """The ports that the service works with; each has a twin in memory (`frazil.testing`). schemas: None where no
    registry is named. reader: for tables that show transactions whole.
    """

    source: Source
    catalog: Catalog
    jobs: JobRunner
    clock: Clock
    workers: Workers = field(default_factory=ThreadWorkers)
    schemas: Schemas | None = None
    outbox: Outbox | None = None
    reader: RecordReader | None = None
    pace: Pace = field(default_factory=UsualPace)
