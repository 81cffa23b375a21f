"""Services that refuse, hang or are away: the loop does not notice, and nothing is lost silently."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog

from frazil.clock import SystemClock
from frazil.errors import SpecError
from frazil.ingest.loop.service import Service
from frazil.spec.connections import TelemetrySpec
from frazil_telemetry import telemetry as places
from frazil_telemetry import telemetry as senders
from frazil_telemetry.telemetry import STOP_S, Sender, Telemetry, destinations
from packages.http.tests.unit.running_scene import wait_for
from packages.http.tests.unit.test_metrics import scrape
from packages.telemetry.tests.unit.telemetry_scene import TelemetryScene
from tests.fixtures.receivers import receiver

NOBODY = "http://127.0.0.1:9"
DROPPED = "frazil_telemetry_dropped_batches_total"
REQUESTS = "frazil_telemetry_requests_total"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")


@pytest.mark.parametrize("name", ["otlp", "openlineage"])
def test_a_service_that_refuses_is_logged_once_and_its_batches_are_counted(tmp_path: Path, name: str) -> None:
    with receiver() as service, structlog.testing.capture_logs() as logs:
        service.status = 503
        scene = TelemetryScene(tmp_path, "a", **{name: service.url})
        scene.feed("a", {"id": 1})
        with scene.sending() as loop:
            failed = (REQUESTS, f"destination={name}", "outcome=failed")
            wait_for(lambda: scrape(scene).get(failed, 0) >= 2, 60)
            # A later event has what a refused one had.
            assert (scrape(scene)[DROPPED, f"destination={name}"] >= 1) is (name == "otlp")
            service.status = 200
            scene.feed("a", {"id": 2})
            wait_for(lambda: scrape(scene)[REQUESTS, f"destination={name}", "outcome=ok"] >= 1, 60)
            wait_for(lambda: "telemetry_sent_again" in [one["event"] for one in logs], 60)
            wait_for(partial(_has_rows, loop, 2), 60)
        events = [one["event"] for one in logs if one["event"].startswith("telemetry_")]
        assert events == ["telemetry_failed", "telemetry_sent_again"]
        assert scene.rows("n.a") == [{"id": 1}, {"id": 2}]


def test_hanging_services_delay_no_commit_and_the_end_by_seconds_at_most(tmp_path: Path) -> None:
    with receiver() as hanging:
        hanging.answers.clear()
        scene = TelemetryScene(tmp_path, "a", otlp=NOBODY, openlineage=hanging.url)
        with scene.sending() as service:
            for number in range(5):
                scene.feed("a", {"id": number})
                wait_for(partial(_has_rows, service, number + 1), 60)
            ending_s = time.monotonic()
        assert time.monotonic() - ending_s < 2 * STOP_S + 8  # Seconds on a busy machine.
    assert [row["id"] for row in scene.rows("n.a")] == list(range(5))


def test_a_full_queue_drops_batches_and_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "MOST_WAITING", 3)
    sender = Sender("otlp", _never, 60.0)
    batch: Any = object()
    for _ in range(5):
        sender.take(batch)
    assert sender.dropped == 2


def _has_rows(service: Service, number: int) -> bool:
    return service.tables[0].counts.rows == number


def _never() -> Any:
    raise AssertionError


def test_addresses_come_from_the_file_or_from_the_standard_variables() -> None:
    found = [(one.name, one.url, one.where) for one in destinations(TelemetrySpec(otlp="http://c:4318"), {})]
    assert found == [("otlp", "http://c:4318", "telemetry.otlp")]
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OPENLINEAGE_URL": "http://m:5000"}
    found = [(one.name, one.url, one.where) for one in destinations(TelemetrySpec(), environment)]
    assert found == [("otlp", None, "OTEL_EXPORTER_OTLP_ENDPOINT"), ("openlineage", None, "OPENLINEAGE_URL")]
    switched_off = {**environment, "OTEL_SDK_DISABLED": "true", "OPENLINEAGE_DISABLED": "true"}
    assert list(destinations(TelemetrySpec(otlp="http://c:4318"), switched_off)) == []


def test_a_collector_of_the_environment_gets_its_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
        monkeypatch.setenv("OPENLINEAGE_URL", collector.url)
        monkeypatch.setenv("OPENLINEAGE_API_KEY", "key")
        scene = TelemetryScene(tmp_path, "a")
        scene.feed("a", {"id": 1})
        with scene.sending():
            wait_for(lambda: collector.spans and collector.events and collector.metrics, 60)
        keys = {
            path: headers.get("Authorization") or headers["authorization"] for path, headers, _ in collector.requests
        }
        assert keys == {
            "/v1/traces": "Bearer abc",
            "/v1/metrics": "Bearer abc",
            "/api/v1/lineage": "Bearer key",
        }


def test_without_an_extra_a_declared_address_is_an_error_and_a_variable_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "find_spec", lambda _: None)
    with pytest.raises(SpecError, match=r"telemetry\.otlp") as raised:
        TelemetryScene(tmp_path, "a", otlp=NOBODY)
    assert "install `frazil[otel]` with pip" in raised.value.remedy
    monkeypatch.setenv("OPENLINEAGE_URL", NOBODY)
    with structlog.testing.capture_logs() as logs:
        telemetry = Telemetry(TelemetryScene(tmp_path, "a").pipeline, SystemClock())
    assert {one["event"] for one in logs} == {"telemetry_unavailable"}
    assert telemetry.counts() == {REQUESTS: [], DROPPED: []}
