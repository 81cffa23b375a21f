"""The trace of a batch: one span for the whole, and under it the reading, each task, and the commit.

Tasks export nothing: their reports have the times.

Names follow OpenTelemetry's semantic conventions for messaging; what they have no name for begins with `frazil.`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context

import frazil
from frazil.ingest.batches.ended_batch import EndedBatch, Interval, words_of

MESSAGING: Mapping[str, str] = {
    "messaging.system": "kafka",
    "messaging.operation.name": "process",
    "messaging.operation.type": "process",
}
_NANOSECONDS = 1_000_000


class _Ended(SpanProcessor):
    """Collects the spans that have ended."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


class Spans:
    """Makes spans of batches, as many as the sampler of the environment (OTEL_TRACES_SAMPLER) keeps."""

    def __init__(self, pipeline: str, resource: Resource, redact: Callable[[Any], Any]) -> None:
        """Makes the tracer. redact: masks secrets in a text."""
        self._pipeline = pipeline
        self._redact = redact
        self._ended = _Ended()
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(self._ended)
        self._tracer = provider.get_tracer("frazil", frazil.__version__)

    def of(self, batches: Sequence[EndedBatch]) -> Sequence[ReadableSpan]:
        """Returns the spans of the batches."""
        for batch in batches:
            self._trace(batch)
        spans, self._ended.spans = self._ended.spans, []
        return spans

    def _trace(self, batch: EndedBatch) -> None:
        topic = batch.topics[0] if len(batch.topics) == 1 else ""
        name, attributes = f"process {topic}".strip(), self._attributes(batch, topic)
        root = self._begin(name, batch.whole, None, attributes, SpanKind.CONSUMER)
        if batch.error is not None:
            root.set_status(StatusCode.ERROR, str(self._redact(words_of(batch.error))))
        inside = set_span_in_context(root, Context())
        if batch.reading is not None:
            reading = self._begin("read", batch.reading, inside, {"frazil.tasks": len(batch.tasks)})
            below = set_span_in_context(reading, Context())
            for task in batch.tasks:
                time = Interval(task.began_ms, task.ended_ms)
                _end(self._begin("task", time, below, {"messaging.batch.message_count": task.record_count}), time)
            _end(reading, batch.reading)
        if batch.commit is not None:
            _end(self._begin("commit", batch.commit, inside, {"frazil.commit_id": batch.commit_id}), batch.commit)
        _end(root, batch.whole)

    def _attributes(self, batch: EndedBatch, topic: str) -> dict[str, Any]:
        attributes: dict[str, Any] = {
            **MESSAGING,
            "frazil.pipeline": self._pipeline,
            "frazil.table": batch.table.name,
            "frazil.outcome": batch.outcome.lower(),
        }
        if topic:
            attributes["messaging.destination.name"] = topic
        if batch.numbers is not None:
            attributes |= {
                "messaging.batch.message_count": batch.numbers.records,
                "frazil.rows": batch.numbers.rows,
                "frazil.files": batch.numbers.files,
                "frazil.bad_records": batch.numbers.bad_records,
            }
        if batch.error is not None:
            attributes["error.type"] = type(batch.error).__name__
        return attributes

    def _begin(
        self,
        name: str,
        time: Interval,
        above: Context | None,
        attributes: Mapping[str, Any],
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:
        began = round(time.began_ms * _NANOSECONDS)
        return self._tracer.start_span(name, above or Context(), kind, attributes, start_time=began)


def _end(span: Span, time: Interval) -> None:
    span.end(round(time.ended_ms * _NANOSECONDS))
