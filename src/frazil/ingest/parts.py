"""What the service is made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from frazil.catalog.port import Catalog
from frazil.clock import Clock
from frazil.ingest.job import JobRunner
from frazil.ingest.lanes import Lanes, ThreadLanes
from frazil.ingest.schemas import Schemas
from frazil.kafka.port import Outbox, Source


@dataclass(frozen=True)
class Parts:
    """The ports that the service works with; each has a twin in memory (`frazil.testing`). schemas: None where no
    registry is named.
    """

    source: Source
    catalog: Catalog
    jobs: JobRunner
    clock: Clock
    lanes: Lanes = field(default_factory=ThreadLanes)
    schemas: Schemas | None = None
    outbox: Outbox | None = None
