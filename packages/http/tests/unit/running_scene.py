"""A running pipeline on the ports in memory, its loop turning in a thread, and a client of its HTTP service."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from starlette.testclient import TestClient

from frazil.api.redaction import Redaction
from frazil.catalog.maintenance_port import TableMaintenance
from frazil.clock import SystemClock
from frazil.ingest.batches.ended_batch import EndedBatch
from frazil.ingest.batches.services import Services
from frazil.ingest.loop.service import Service
from frazil.kafka.port import TopicReaders
from frazil.ops.pipeline_status import ProcessState, TableStatus
from frazil.ops.running import OwnServices, Parts, RunningPipeline
from frazil.ops.state_file import StateFile
from frazil.spec.connections import HttpSpec
from frazil_http.app import make_app
from frazil_testing.twins import StepWorkers
from tests.unit.ingest.service_scene import Scene
from tests.unit.maintenance.scheduler_scene import MemoryMaintenance
from tests.unit.maintenance.tables import line
from tests.unit.maintenance.tables import table as metadata_of

BASE = "http://localhost:8787"
SECOND = 10.0


class RunningScene(Scene):
    """Topics with tables `n.<topic>`, as in Scene, of a pipeline that runs."""

    def __init__(self, root: Path, *topics: str, **settings: Any) -> None:
        super().__init__(root, *topics, **settings)
        self.redaction = Redaction()
        self.on_batch_end: Callable[[EndedBatch], None] = lambda _: None
        state_file = StateFile(root, "p", SystemClock(), self.redaction.text)
        self.pipeline = RunningPipeline(self.spec(*topics), state_file, SystemClock(), self.redaction.document)
        self.maintenance = MemoryMaintenance(replace(metadata_of(line(3)), name=f"n.{topics[0]}"), self.clock)

    def client(self, http: HttpSpec | None = None, base: str = BASE) -> TestClient:
        """A client, which sees errors as answers."""
        return TestClient(
            make_app(self.pipeline, http or HttpSpec()), base, raise_server_exceptions=False, follow_redirects=False
        )

    def published(self, name: str) -> TableStatus:
        """What the loop published last of a table."""
        return (self.pipeline.state_file.state or ProcessState()).table(name)

    @contextmanager
    def running(self) -> Iterator[Service]:
        """Runs the loop in a thread, as a process does."""
        services = Services(
            self.source, self.catalog, self.jobs, self.clock, workers=StepWorkers(self.clock), outbox=self.outbox
        )
        services = replace(services, on_batch_end=self.on_batch_end)
        service = Service(self.spec(*self.topics), services, "run-0001", self.pipeline.state_file.write)
        self.pipeline.parts = Parts(service, self._open_services)
        service.connect()
        is_over = threading.Event()
        thread = threading.Thread(target=_turn, args=(service, is_over), daemon=True)
        thread.start()
        wait_for(lambda: self.pipeline.is_ready)
        try:
            yield service
        finally:
            is_over.set()
            thread.join(SECOND)

    def _open_services(self) -> OwnServices:
        topics = TopicReaders(self.source, self.source)
        maintenance = cast(TableMaintenance, self.maintenance)
        return OwnServices(self.catalog, maintenance, topics, lambda ranges: self.source.read(ranges, 1 << 20)[0])


def _turn(service: Service, is_over: threading.Event) -> None:
    while not is_over.is_set():
        service.turn()
        time.sleep(0.001)


def wait_for(question: Callable[[], Any], within_s: float = SECOND) -> Any:
    """The first answer that is true."""
    until_s = time.monotonic() + within_s
    while not (found := question()):
        assert time.monotonic() < until_s
        time.sleep(0.01)
    return found
