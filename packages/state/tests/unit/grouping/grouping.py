"""A topic, and a table whose query groups its records; every catch-up is a process of its own."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from frazil.catalog.progress import from_summary
from frazil.ingest.batches.services import Services
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.queries import SparkQueries
from frazil.types import Progress
from frazil_testing.twins import FakeClock, MemoryJobs, StepWorkers
from packages.state.tests.unit.merge.merging import Merging

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
PER_MINUTE = (
    "select user, window.start as minute, count(*) as n, sum(amount) as total from records"
    " group by user, window(ts, '1 minute')"
)


def at(seconds: float) -> str:
    """A time of records: so many seconds after the beginning of 2026."""
    return (BEGIN + timedelta(seconds=seconds)).isoformat()


def moment(seconds: float) -> datetime:
    """The same in a table."""
    return BEGIN + timedelta(seconds=seconds)


class Grouped(Merging):
    """The topic `a` feeds `n.t`. select: the query. settings: of the table besides, as the file has them."""

    def __init__(
        self, root: Path, queries: SparkQueries, select: str = PER_MINUTE, settings: str = "", **options: Any
    ) -> None:
        super().__init__(root, f"select: {json.dumps(select)}{', ' if settings else ''}{settings}", **options)
        self.queries = queries
        tasks = options.get("tasks", 1)
        self.jobs = MemoryJobs(self.source, batch_size=1000 if tasks == 1 else 3, tasks=tasks, queries=queries)

    def process(self, clock: FakeClock) -> Service:
        """Another one, which has looked at all that is there."""
        self.runs += 1
        services = Services(
            self.source,
            self.catalog,
            self.jobs,
            clock,
            StepWorkers(clock),
            self.schemas,
            queries=self.queries,
            reader=self.source,
        )
        service = Service(self.spec, services, f"run-{self.runs}", lambda _: None)
        service.connect()
        return service

    def pay(self, user: str, seconds: float, amount: float | None = 1, *, partition: int = 0, **others: Any) -> None:
        """Produces a payment."""
        row = {"user": user, "ts": at(seconds), "amount": amount, **others}
        self.put(row, partition=partition, at_ms=round(BEGIN.timestamp() * 1000) + 10**11)

    def progress(self) -> Progress:
        """The newest progress in the table."""
        summaries = (from_summary("p", snapshot.summary) for snapshot in self.catalog.ancestors("n.t"))
        return next(progress for progress in summaries if progress is not None)
