"""The senders of one process, from their start to its end.

Telemetry goes to the addresses of the pipeline file, or of the standards' environment variables; without an address none
of the libraries is loaded, which are extras of the package.

Each destination has a bounded queue and a thread of its own: a service that is away, hangs or refuses costs the loop
nothing. What could not be sent is counted, and logged once until something can be sent again.
"""

from __future__ import annotations

import importlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from queue import Empty, Full, Queue
from typing import Any, Protocol

import structlog

from frazil.clock import Clock
from frazil.errors import SpecError
from frazil.ingest.batches.ended_batch import EndedBatch
from frazil.ops.check import Finding, failed
from frazil.ops.observers import Observed, Observer
from frazil.ops.running import RunningPipeline, TelemetryCounts
from frazil.spec import PipelineSpec
from frazil.spec.connections import TelemetrySpec

_LONGEST_PAUSE_S = 86_400.0
OTLP, OPENLINEAGE = "otlp", "openlineage"
_VARIABLES = {
    OTLP: (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    ),
    OPENLINEAGE: ("OPENLINEAGE_URL",),
}
_SWITCHES = {OTLP: "OTEL_SDK_DISABLED", OPENLINEAGE: "OPENLINEAGE_DISABLED"}
_EXTRAS = {
    OTLP: ("otel", ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")),
    OPENLINEAGE: ("openlineage", ("openlineage.client",)),
}
log = structlog.get_logger("frazil")
MOST_WAITING = 2048
"""The most batches that wait to be sent."""
LONGEST_DELAY_S = 10.0
"""How long a sender waits for the first batch before it loads its libraries, which would delay the first commit."""
_CREDENTIALS = re.compile(r"(?<=//)[^/\s@]+@")
"""Of an address that a variable has: HTTP clients quote it."""
STOP_S = 2.0
"""How long the end of the process waits for what is still to be sent."""
_EVERY_S = 5.0
_OUTLETS = {OTLP: "frazil_telemetry.otlp:OtlpOutlet", OPENLINEAGE: "frazil_telemetry.lineage:LineageOutlet"}


@dataclass(frozen=True)
class Destination:
    """One place that telemetry goes to."""

    #: `otlp` or `openlineage`.
    name: str
    #: The address that the pipeline file has; None where the environment has it.
    url: str | None
    #: The key, or the variable, that has the address.
    where: str

    def missing_extra(self) -> SpecError | None:
        """Returns the error where the libraries that it needs are not installed."""
        extra, modules = _EXTRAS[self.name]
        if all(map(_is_installed, modules)):
            return None
        return SpecError(
            f"`{self.where}` needs libraries that are not installed",
            remedy=f"install `frazil[{extra}]` with pip from where Frazil was installed, or remove the address",
            where=self.where,
        )


def destinations(spec: TelemetrySpec, environment: Mapping[str, str]) -> Iterator[Destination]:
    """Yields the places that telemetry goes to."""
    for name, variables in _VARIABLES.items():
        if environment.get(_SWITCHES[name], "").strip().lower() == "true":
            continue
        declared: str | None = getattr(spec, name)
        set_variables = [variable for variable in variables if environment.get(variable)]
        if declared:
            yield Destination(name, declared, f"telemetry.{name}")
        elif set_variables:
            yield Destination(name, None, set_variables[0])


def pause_s(variable: str, default_s: float) -> float:
    """Returns the seconds of a variable in milliseconds; the default for another text, and where there would be no pause."""
    try:
        seconds = float(os.environ.get(variable, "")) / 1000
    except ValueError:
        return default_s
    return seconds if 0 < seconds <= _LONGEST_PAUSE_S else default_s


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # Of a package in its path.
        return False


class Outlet(Protocol):
    """Turns batches into requests, and sends them."""

    #: Requests that succeeded.
    sent: int
    #: Batches of which nothing was sent, and no later request has them.
    dropped: int

    def send(self, batches: Sequence[EndedBatch], is_last: bool) -> None:
        """Sends what the batches give, and whatever else is due. is_last: the process ends after it.

        Raises: any error, with the reason as its text.
        """

    def interrupt(self) -> None:
        """Makes a request that hangs return soon; may be called by another thread."""


class Sender:
    """Sends batches to one destination."""

    def __init__(self, name: str, open_outlet: Callable[[], Outlet], every_s: float) -> None:
        """Stores the settings. open_outlet: loads the libraries, in the sender's thread. every_s: the pause between two
        turns.
        """
        self.name = name
        self._open_outlet = open_outlet
        self._every_s = every_s
        self._queue: Queue[EndedBatch] = Queue(MOST_WAITING)
        self._has_first = threading.Event()
        self._is_ended = threading.Event()
        self._outlet: Outlet | None = None
        self._is_failing = False
        #: Requests that failed.
        self.failed = 0
        self._refused = 0
        self._thread = threading.Thread(target=self._run, name=f"telemetry-{name}", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    @property
    def sent(self) -> int:
        """Requests that succeeded."""
        return self._outlet.sent if self._outlet is not None else 0

    @property
    def dropped(self) -> int:
        """Batches of which nothing was sent."""
        return self._refused + (self._outlet.dropped if self._outlet is not None else 0)

    def take(self, batch: EndedBatch) -> None:
        """Takes a batch at once; drops it where too many wait."""
        try:
            self._queue.put_nowait(batch)
        except Full:
            self._refused += 1
        self._has_first.set()

    def stop(self, timeout_s: float) -> None:
        """Sends what waits, for at most so many seconds."""
        self._is_ended.set()
        self._has_first.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            if self._outlet is not None:
                self._outlet.interrupt()
            log.warning("telemetry_unsent", destination=self.name, batches=self._queue.qsize(), waited_s=timeout_s)

    def _run(self) -> None:
        self._has_first.wait(LONGEST_DELAY_S)
        is_last = False
        while not is_last:
            is_last = self._is_ended.wait(self._every_s)
            batches = list[EndedBatch]()
            while len(batches) < MOST_WAITING:
                try:
                    batches.append(self._queue.get_nowait())
                except Empty:
                    break
            sent = self.sent
            try:
                self._outlet = self._outlet or self._open_outlet()
                self._outlet.send(batches, is_last)
            except Exception as error:  # noqa: BLE001  (whatever is wrong with telemetry, the pipeline runs)
                self.failed += 1
                if not self._is_failing:
                    remedy = "check that the service runs at its address; the pipeline is not affected"
                    log.warning(
                        "telemetry_failed",
                        destination=self.name,
                        reason=_CREDENTIALS.sub("", str(error)),
                        remedy=remedy,
                    )
                self._is_failing = True
            else:
                if self.sent > sent:
                    if self._is_failing:
                        log.info("telemetry_sent_again", destination=self.name, dropped_batches=self.dropped)
                    self._is_failing = False


class Telemetry(Observer):
    """Sends what ends in the loop to the destinations of the pipeline file and of the environment."""

    def __init__(self, pipeline: RunningPipeline, clock: Clock, every_s: float | None = None) -> None:
        """Makes the senders, none of them started. every_s: the pause between two turns of a sender; by default that of
        OTEL_BSP_SCHEDULE_DELAY, else five seconds.

        Raises: SpecError where the pipeline file has a destination whose libraries are not installed.
        """
        every_s = every_s or pause_s("OTEL_BSP_SCHEDULE_DELAY", _EVERY_S)
        self._senders = list[Sender]()
        for destination in destinations(pipeline.spec.process.telemetry, os.environ):
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

    def take_batch(self, batch: EndedBatch) -> None:
        """Takes a batch that has ended; takes no time and raises nothing."""
        for sender in self._senders:
            sender.take(batch)

    def flush(self) -> None:
        """Sends what is left, for two seconds at most."""
        for sender in self._senders:
            sender.stop(STOP_S)

    def counts(self) -> TelemetryCounts:
        """Returns the numbers of the metrics of telemetry."""
        requests = [
            ({"destination": sender.name, "outcome": outcome}, number)
            for sender in self._senders
            for outcome, number in (("ok", sender.sent), ("failed", sender.failed))
        ]
        dropped = [({"destination": sender.name}, sender.dropped) for sender in self._senders]
        return {"frazil_telemetry_requests_total": requests, "frazil_telemetry_dropped_batches_total": dropped}


def is_wanted(spec: PipelineSpec, environment: Mapping[str, str]) -> bool:
    """Returns whether anything is to be sent anywhere."""
    return any(destinations(spec.process.telemetry, environment))


def open_telemetry(observed: Observed) -> Telemetry:
    """Returns the senders of one run. Raises: as Telemetry."""
    return Telemetry(observed.pipeline, observed.pipeline.clock)


def check_telemetry(spec: PipelineSpec, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yields a declared address whose libraries are not installed."""
    for destination in destinations(spec.process.telemetry, environment):
        missing = destination.missing_extra()
        # Without an address in the file a run continues without it.
        if missing is not None and destination.url is not None:
            yield failed("telemetry", "looked for the libraries that it needs", missing)


def _open(destination: Destination, pipeline: RunningPipeline, clock: Clock) -> Outlet:
    """Loads the libraries of a destination, which take a good while, and opens it."""
    module, _, name = _OUTLETS[destination.name].partition(":")
    opened: Any = getattr(importlib.import_module(module), name)(destination.url, pipeline, clock)
    outlet: Outlet = opened
    return outlet
