"""Metrics and traces for an OpenTelemetry collector, as Protobuf over HTTP, by OpenTelemetry's own exporters.

The standard variables hold: headers, certificates, compression and time-out (OTEL_EXPORTER_OTLP_…), the resource
(OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES), and which signals are sent (OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER:
`none` for not).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExportResult

import frazil
from frazil.clock import Clock, new_id
from frazil.errors import UnavailableError
from frazil.ingest.batches.ended_batch import EndedBatch
from frazil.ops.running import RunningPipeline
from frazil_telemetry.metrics import Times, otel_metrics
from frazil_telemetry.spans import Spans
from frazil_telemetry.telemetry import pause_s

_MOST_BATCHES = 128
_METRICS_EVERY_S = 60.0


class OtlpOutlet:
    """Sends metrics and traces."""

    def __init__(self, url: str | None, pipeline: RunningPipeline, clock: Clock) -> None:
        """Makes the exporters. url: the collector's; None for the environment's."""
        self.sent = self.dropped = 0
        self._pipeline, self._clock = pipeline, clock
        self._resource = _resource()
        self._spans = Spans(pipeline.spec.pipeline, self._resource, pipeline.redact)
        self._span_exporter = None if _is_off("TRACES") else OTLPSpanExporter(_signal_url(url, "traces"))
        self._metric_exporter = None if _is_off("METRICS") else OTLPMetricExporter(_signal_url(url, "metrics"))
        self._began_ms = clock.now_ms()
        self._every_s = pause_s("OTEL_METRIC_EXPORT_INTERVAL", _METRICS_EVERY_S)
        self._metrics_due_s = clock.monotonic_s()
        self._reason = _Reason()  # Last: where something else fails, all of this is tried again.

    def send(self, batches: Sequence[EndedBatch], is_last: bool) -> None:
        """See the protocol."""
        failure: OSError | None = None
        try:
            if self._metric_exporter is not None and (is_last or self._clock.monotonic_s() >= self._metrics_due_s):
                self._metrics_due_s = self._clock.monotonic_s() + self._every_s
                with suppress(UnavailableError):  # Nothing is known before the first turn.
                    times = Times(self._began_ms * 1_000_000, self._clock.now_ms() * 1_000_000)
                    metrics = otel_metrics(self._pipeline, self._resource, times)
                    self._count(self._metric_exporter.export(metrics) is MetricExportResult.SUCCESS)
        except OSError as error:  # Many services take one of the two.
            failure = error
        if self._span_exporter is not None:
            for start in range(0, len(batches), _MOST_BATCHES):
                spans = self._spans.of(batches[start : start + _MOST_BATCHES])
                is_sent = not spans or self._span_exporter.export(spans) is SpanExportResult.SUCCESS
                self.dropped += 0 if is_sent else len(batches) - start
                self._count(is_sent)
        if failure is not None:
            raise failure

    def interrupt(self) -> None:
        """See the protocol."""
        for exporter in (self._span_exporter, self._metric_exporter):
            if exporter is not None:
                exporter.shutdown()

    def _count(self, is_sent: bool) -> None:
        if not is_sent:
            raise OSError(self._reason.last)
        self.sent += 1


def _resource() -> Resource:
    """Returns what all that is sent belongs to, with the variables of the environment."""
    attributes = {"service.version": frazil.__version__, "service.instance.id": new_id()}
    if not os.environ.get("OTEL_SERVICE_NAME") and "service.name=" not in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    ):
        attributes["service.name"] = "frazil"
    return Resource.create(attributes)


class _Reason(logging.Handler):
    """Keeps the last message of the exporters, which return no reason, and shows none of them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = "the collector did not take it"
        logger = logging.getLogger("opentelemetry")
        logger.propagate = False
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


def _is_off(signal: str) -> bool:
    return os.environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() == "none"


def _signal_url(url: str | None, signal: str) -> str | None:
    return None if url is None else f"{url}/v1/{signal}"
