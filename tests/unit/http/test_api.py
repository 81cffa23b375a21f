"""The API, over a service on the ports in memory."""

from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient

from frazil.http.app import make_app
from frazil.ops.running import RunningPipeline
from frazil.ops.state_file import StateFile
from frazil.spec.models import HttpSpec
from tests.unit.ingest.service_scene import Scene


def test_a_pipeline_that_starts_answers_soon(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    state_file = StateFile(tmp_path, "p", scene.clock, str)
    running = RunningPipeline(scene.spec("a"), state_file, scene.clock)
    client = TestClient(make_app(running, HttpSpec()), base_url="http://localhost:8787")
    assert client.get("/api/v1/tables").status_code == 503
    running.service = scene.start("a")
    state_file.write(running.service.tables)
    answer = client.get("/api/v1/tables")
    assert (answer.status_code, answer.json()["n.a"]["state"]) == (200, "waiting")
