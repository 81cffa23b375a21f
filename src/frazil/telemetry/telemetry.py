"""The senders of one process, from their start to its end."""

from __future__ import annotations

import importlib
import os
from functools import partial
from typing import Any

import structlog

from frazil.clock import Clock
from frazil.ingest.ended_batch import EndedBatch
from frazil.ops.running import RunningPipeline, TelemetryCounts
from frazil.telemetry.destinations import OPENLINEAGE, OTLP, Destination, destinations, pause_s
from frazil.telemetry.sender import Outlet, Sender

log = structlog.get_logger("frazil")

STOP_S = 2.0
"""How long the end of the process waits for what is still to be sent."""
_EVERY_S = 5.0
_OUTLETS = {OTLP: "frazil.telemetry.otlp:OtlpOutlet", OPENLINEAGE: "frazil.telemetry.lineage:LineageOutlet"}


class Telemetry:
    """Sends what ends in the loop to the destinations of the pipeline file and of the environment."""

    def __init__(self, pipeline: RunningPipeline, clock: Clock, every_s: float | None = None) -> None:
        """Makes the senders, none of them started. every_s: the pause between two turns of a sender; by default that of
        OTEL_BSP_SCHEDULE_DELAY, else five seconds.

        Raises: SpecError where the pipeline file has a destination whose libraries are not installed.
        """
        every_s = every_s or pause_s("OTEL_BSP_SCHEDULE_DELAY", _EVERY_S)
        self._senders = list[Sender]()
        for destination in destinations(pipeline.spec.telemetry, os.environ):
            missing = destination.missing_extra()
            if missing is None:
                outlet = partial(_open, destination, pipeline, clock)
                self._senders.append(Sender(destination.name, outlet, every_s))
            elif destination.url is not None:
                raise missing
            else:
                log.warning(
                    "telemetry_unavailable", variable=destination.where, reason=missing.message, remedy=missing.remedy
                )

    def start(self) -> None:
        """Starts a thread for each destination."""
        for sender in self._senders:
            sender.start()

    def take(self, batch: EndedBatch) -> None:
        """Takes a batch that has ended; takes no time and raises nothing."""
        for sender in self._senders:
            sender.take(batch)

    def stop(self) -> None:
        """Sends what is left, for two seconds at most."""
        for sender in self._senders:
            sender.stop(STOP_S)

    def counts(self) -> TelemetryCounts:
        """Returns the numbers of the metrics of telemetry."""
        requests = [
            ({"destination": one.name, "outcome": outcome}, number)
            for one in self._senders
            for outcome, number in (("ok", one.sent), ("failed", one.failed))
        ]
        dropped = [({"destination": one.name}, one.dropped) for one in self._senders]
        return {"frazil_telemetry_requests_total": requests, "frazil_telemetry_dropped_batches_total": dropped}


def _open(destination: Destination, pipeline: RunningPipeline, clock: Clock) -> Outlet:
    """Loads the libraries of a destination, which take a good while, and opens it."""
    module, _, name = _OUTLETS[destination.name].partition(":")
    opened: Any = getattr(importlib.import_module(module), name)(destination.url, pipeline, clock)
    outlet: Outlet = opened
    return outlet
