"""Metrics are valid, complete, and count what happens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from frazil.runtime.jvm import HeapUsage
from frazil.spec.settings import DeadLettersSpec
from frazil_http.metrics import MEDIA_TYPE, PROCESS, TABLE
from packages.http.tests.unit.running_scene import RunningScene, wait_for


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Values by name and labels, without the pipeline's."""
    found = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            labels = [f"{name}={value}" for name, value in sorted(one.labels.items()) if name != "pipeline"]
            assert family.name.startswith("process_") or one.labels["pipeline"] == "p"
            found[(one.name, *labels)] = one.value
    return found


def scrape(scene: RunningScene) -> dict[tuple[str, ...], float]:
    """What Prometheus gets."""
    answer = scene.client().get("/metrics")
    assert answer.headers["Content-Type"] == MEDIA_TYPE
    return samples(answer.text)


def test_metrics_count_what_happens(tmp_path: Path) -> None:
    scene = RunningScene(tmp_path, "a", "b", dead_letters=DeadLettersSpec(stop_above=1.0))
    scene.feed("a", {"id": 1}, b"no JSON", {"id": 2}, {"id": 3})
    with scene.running():
        table = "table=n.a"
        wait_for(lambda: scrape(scene).get(("frazil_records_read_total", table)) == 4)
        wait_for(lambda: scrape(scene)["frazil_table_state", "state=waiting", table] == 1)
        found = scrape(scene)
        expected: dict[tuple[str, ...], Any] = {
            ("frazil_rows_written_total", table): 3,
            ("frazil_files_written_total", table): 1,
            ("frazil_dead_letters_total", "code=not_an_object", table): 1,
            ("frazil_dead_letters", table): 1,
            ("frazil_table_rows", table): 3,
            ("frazil_table_lag_records", table): 0,
            ("frazil_table_lag_seconds", table): 0,
            ("frazil_batches_total", "outcome=committed", table): 1,
            ("frazil_batches_total", "outcome=conflict", table): 0,
            ("frazil_schema_changes_total", "outcome=applied", table): 1,
            ("frazil_table_state", "state=stopped", table): 0,
            ("frazil_commit_seconds_count",): 1,
            ("frazil_freshness_seconds_bucket", "le=+Inf"): 1,
            ("frazil_tables",): 2,
        }
        assert {key: found.get(key) for key in expected} == expected
        assert found["frazil_table_size_bytes", table] > 0
        assert found["process_resident_memory_bytes",] > 0
        scene.client().post("/api/v1/tables/n.b/pause")
        assert scrape(scene)["frazil_table_state", "state=paused", "table=n.b"] == 1


def test_a_table_of_another_process_has_its_state_alone(tmp_path: Path) -> None:
    scene = RunningScene(tmp_path, "a", "b")
    scene.feed("a", {"id": 1})
    with scene.running() as service:
        wait_for(lambda: scrape(scene).get(("frazil_records_read_total", "table=n.a")) == 1)
        service.tables[0].schedule.is_owned = False
        found = scrape(scene)
    assert {key[0] for key in found if "table=n.a" in key} == {"frazil_table_state"}
    assert ("frazil_table_lag_records", "table=n.b") in found


def test_stops_and_skipped_records_are_counted(tmp_path: Path) -> None:
    scene = RunningScene(tmp_path, "a", on_bad_record="skip", dead_letters=DeadLettersSpec(stop_above=1.0))
    scene.feed("a", {"id": 1}, b"no JSON")
    with scene.running() as service:
        wait_for(lambda: scrape(scene).get(("frazil_records_skipped_total", "table=n.a")) == 1)
        service.tables[0].spec = service.tables[0].spec.model_copy(update={"on_bad_record": "stop"})
        scene.feed("a", b"no JSON")
        wait_for(lambda: scrape(scene).get(("frazil_table_stops_total", "code=RecordError", "table=n.a")) == 1)


def test_the_heap_is_absent_where_there_is_no_jvm(tmp_path: Path) -> None:
    scene = RunningScene(tmp_path, "a")
    with scene.running():
        assert ("frazil_jvm_heap_used_bytes",) not in scrape(scene)
        assert scene.pipeline.parts is not None
        scene.pipeline.parts = replace(scene.pipeline.parts, heap=lambda: HeapUsage(5, 7))
        found = scrape(scene)
        assert (found["frazil_jvm_heap_used_bytes",], found["frazil_jvm_heap_max_bytes",]) == (5, 7)


def test_names_follow_the_conventions() -> None:
    for metric in (*PROCESS, *TABLE):
        assert metric.name.startswith("frazil_")
        assert metric.help.endswith(".")
        assert metric.name.endswith("_total") is (metric.kind == "counter")
        assert "table" not in metric.labels.split()
    names = [metric.name for metric in (*PROCESS, *TABLE)]
    assert len(names) == len(set(names))


def test_labels_are_escaped(tmp_path: Path) -> None:
    scene = RunningScene(tmp_path, "a")
    scene.settings["name"] = 'n."a\\b"'
    with scene.running():
        wait_for(lambda: scene.client().get("/readyz").status_code == 200)
        assert ("frazil_table_lag_records", 'table=n."a\\b"') in scrape(scene)
