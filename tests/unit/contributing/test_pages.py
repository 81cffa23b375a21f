"""docs/contributing/pages.md: pages of a package are served beside the API, to those who may read."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from frazil.spec.connections import HttpSpec, HttpTokensSpec
from packages.http.tests.unit.running_scene import RunningScene
from tests.unit.contributing.conftest import Install

BROWSER = {"Accept": "text/html"}


def test_pages_of_a_package_are_served_beside_the_api(example: Install, tmp_path: Path) -> None:
    scene = RunningScene(tmp_path, "a")
    assert scene.client().get("/wall").status_code == 404
    example("pages.md")
    with scene.running():
        client = scene.client()
        assert client.get("/wall").text == "<h1>0 of 1 tables are stopped</h1>"
        assert client.get("/api/v1/tables").status_code == 200
        assert client.post("/wall").status_code == 405


def test_a_page_needs_the_token_of_a_reader(example: Install, tmp_path: Path) -> None:
    example("pages.md")
    token = "r" * 32
    scene = RunningScene(tmp_path, "a")
    with scene.running():
        client = scene.client(HttpSpec(tokens=HttpTokensSpec(read=(token,))))
        assert client.get("/wall").status_code == 401
        assert client.get("/wall", headers={"Authorization": f"Bearer {token}"}).status_code == 200


def test_a_package_without_usable_pages_is_logged_and_the_api_answers(package: Install, tmp_path: Path) -> None:
    package("broken", "raise ImportError('gone')", "frazil.pages", "broken = broken:PAGES")
    with capture_logs() as logs:
        assert RunningScene(tmp_path, "a").client().get("/healthz").status_code == 200
    assert [(entry["event"], entry["pages"]) for entry in logs] == [("pages_unavailable", "broken")]
