"""Metrics and traces that a collector gets from a running pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.spec.settings import DeadLettersSpec
from frazil_http.metrics import PROCESS, TABLE
from frazil_telemetry.metrics import otel_name
from packages.http.tests.unit.running_scene import wait_for
from packages.http.tests.unit.test_metrics import scrape
from packages.telemetry.tests.unit.telemetry_scene import TelemetryScene
from tests.fixtures.receivers import receiver


def test_a_collector_gets_the_numbers_that_prometheus_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    with receiver() as collector:
        scene = TelemetryScene(tmp_path, "a", "b", otlp=collector.url, dead_letters=DeadLettersSpec(stop_above=1.0))
        scene.feed("a", {"id": 1}, b"no JSON", {"id": 2}, {"id": 3})
        with scene.sending():
            wait_for(lambda: collector.values("frazil.records_read").get(("n.a",)) == 4, 60)
            wait_for(lambda: collector.values("frazil.table.state").get(("waiting", "n.a")) == 1, 60)
            scraped = scrape(scene)
        expected = {
            "frazil.rows_written": {("n.a",): 3, ("n.b",): 0},
            "frazil.dead_letters": {("n.a",): 1, ("n.b",): 0},
            "frazil.dead_letters_total": {("not_an_object", "n.a"): 1, ("other", "n.a"): 0, ("other", "n.b"): 0},
            "frazil.table.lag_records": {("n.a",): 0, ("n.b",): 0},
            "frazil.tables": {(): 2},
            "messaging.client.consumed.messages": {
                ("process", "process", "kafka", "n.a"): 4,
                ("process", "process", "kafka", "n.b"): 0,
            },
        }
        assert {name: collector.values(name) for name in expected} == expected
        assert collector.values("process.memory.usage")[()] > 0
        assert {metric["histogram"]["dataPoints"][0]["count"] for metric in _histograms(collector.metrics)} == {"1"}
        # Every series of a table that Prometheus has, with the same value where nothing goes on.
        for (name, *labels), value in scraped.items():
            own = {label.partition("=")[0]: label.partition("=")[2] for label in labels}
            if "table" in own and "timestamp" not in name:
                key = tuple(own[label] for label in sorted(own))
                assert collector.values(_NAMES[name])[key] == value, name


def _histograms(metrics: dict[str, dict[str, object]]) -> list[dict[str, dict[str, list[dict[str, str]]]]]:
    return [metric for metric in metrics.values() if "histogram" in metric]  # type: ignore[misc]


_NAMES = {metric.name: otel_name(metric)[0] for metric in (*PROCESS, *TABLE)}
_SUFFIXES = {"s": "_seconds", "By": "_bytes", "1": "_ratio", "": ""}


def test_prometheus_makes_its_own_names_of_them_again() -> None:
    for metric in (*PROCESS, *TABLE):
        name, unit = otel_name(metric)
        words = name.replace(".", "_")
        translated = words.removesuffix("_total") + _SUFFIXES[unit] + ("_total" if metric.kind == "counter" else "")
        assert translated == metric.name
    assert len(set(_NAMES.values())) == len(_NAMES)


def test_a_batch_is_a_trace(tmp_path: Path) -> None:
    with receiver() as collector:
        scene = TelemetryScene(tmp_path, "a", otlp=collector.url)
        scene.feed("a", {"id": 1}, {"id": 2})
        with scene.sending() as service:
            wait_for(lambda: service.tables[0].counts.records == 2, 60)
        roots = [span for span in collector.spans if "parentSpanId" not in span]
        # A first batch finds the columns, the next one has the rows.
        assert [span["attributes"]["frazil.outcome"] for span in roots][-1] == "committed"
        trace = [span for span in collector.spans if span["traceId"] == roots[-1]["traceId"]]
        by_id = {span["spanId"]: span for span in trace}
        tree = sorted((span["name"], by_id.get(span.get("parentSpanId", ""), {}).get("name")) for span in trace)
        assert tree == [("commit", "process a"), ("process a", None), ("read", "process a"), ("task", "read")]
        assert roots[-1]["kind"] == "SPAN_KIND_CONSUMER"
        assert roots[-1]["attributes"] == {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": "a",
            "messaging.batch.message_count": "2",
            "frazil.pipeline": "p",
            "frazil.table": "n.a",
            "frazil.outcome": "committed",
            "frazil.rows": "2",
            "frazil.files": "1",
            "frazil.bad_records": "0",
        }
        commit = next(span for span in trace if span["name"] == "commit")
        state = service.tables[0].state
        assert state is not None
        assert commit["attributes"] == {"frazil.commit_id": state.progress.commit_id}
        assert roots[-1]["resource"]["service.name"] == "frazil"


def test_a_failed_batch_is_a_failed_trace_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop-loader")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    with receiver() as collector:
        scene = TelemetryScene(tmp_path, "a", otlp=collector.url, on_bad_record="stop")
        scene.redaction.hide(("hunter2-of-the-broker",))
        scene.feed("a", {"id": 1}, b"bad hunter2-of-the-broker")
        with scene.sending():
            wait_for(lambda: [span for span in collector.spans if span.get("status")], 60)
        failed = next(span for span in collector.spans if span.get("status"))
        assert failed["status"]["code"] == "STATUS_CODE_ERROR"
        assert failed["status"]["message"]
        assert failed["attributes"]["error.type"] == "RecordError"
        assert failed["resource"]["service.name"] == "shop-loader"
        assert not [body for _, headers, body in collector.requests if b"hunter2" in body + str(headers).encode()]
        assert collector.metrics == {}
