"""A running pipeline on the ports in memory that sends telemetry to receivers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from frazil.clock import SystemClock
from frazil.ingest.loop.service import Service
from frazil.spec import PipelineSpec
from frazil.spec.connections import TelemetrySpec
from frazil_telemetry.telemetry import Telemetry
from packages.http.tests.unit.running_scene import RunningScene

TURN_S = 0.05


class TelemetryScene(RunningScene):
    """Topics with tables `n.<topic>` of a pipeline `p` that sends to these addresses."""

    def __init__(
        self, root: Path, *topics: str, otlp: str | None = None, openlineage: str | None = None, **settings: Any
    ):
        self._addresses = TelemetrySpec(otlp=otlp, openlineage=openlineage)
        super().__init__(root, *topics, **settings)
        self.telemetry = Telemetry(self.pipeline, SystemClock(), TURN_S)
        self.on_batch_end = self.telemetry.take_batch

    def spec(self, *topics: str) -> PipelineSpec:
        """The pipeline file."""
        kafka = {"bootstrap.servers": "broker-1:9092,broker-2:9092"}
        return super().spec(*topics).model_copy(update={"telemetry": self._addresses, "kafka": kafka})

    @contextmanager
    def sending(self) -> Iterator[Service]:
        """Runs the loop and the senders; at the end they send what is left, as at the end of a process."""
        with self.running() as service:
            assert self.pipeline.parts is not None
            self.pipeline.parts = replace(self.pipeline.parts, telemetry_counts=self.telemetry.counts)
            self.telemetry.start()
            yield service
        self.pipeline.state_file.write(service.tables, ended=True)
        self.telemetry.flush()
