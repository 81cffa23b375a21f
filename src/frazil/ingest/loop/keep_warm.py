"""Jobs that write nothing, by which a process can take tables of other processes over at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

import structlog

from frazil.ingest.batches.workers import Workers
from frazil.ingest.failures import is_jvm_gone, jvm_has_ended
from frazil.ingest.loop.ending import Ending
from frazil.ingest.loop.load import Loader
from frazil.ingest.loop.ownership import Ownership
from frazil.ingest.loop.planner import Planner
from frazil.ingest.tables.table import Planned, Table

log = structlog.get_logger("frazil")


class KeepWarm:
    """Begins these jobs when they are due. Only the loop's thread calls it."""

    def __init__(
        self, ownership: Ownership, loader: Loader, planner: Planner, workers: Workers, ending: Ending
    ) -> None:
        self._ownership = ownership
        self._loader = loader
        self._planner = planner
        self._workers = workers
        self._ending = ending

    def begin_due(self, tables: Sequence[Table]) -> None:
        """Lets Spark run a job of the real shape while this process owns no table: its workers stay connected to Kafka. It
        has a pool of its own, so that the first batch after a takeover does not wait for it.
        """
        pipeline, ends = self._loader.pipeline, self._planner.ends
        if any(table.schedule.is_owned for table in tables):
            self._ownership.note_warm()
        elif planned := self._ownership.warm_up_batch(tables, ends):
            self._workers.submit("warm-up", partial(self._after_job, planned), partial(pipeline.try_tasks, planned))

    def _after_job(self, planned: Planned, future: Future[None]) -> None:
        error = future.exception()
        self._ownership.end_warm_up(error is None)
        if error is not None and is_jvm_gone(error):
            self._ending.end(jvm_has_ended())
        elif error is not None:
            log.warning("warm_up_failed", table=planned.table.name, reason=str(error))
