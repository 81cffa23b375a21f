"""A run that catches up reads to the ends that the topics had at its start."""

from __future__ import annotations

from pathlib import Path

from tests.unit.ingest.service_scene import Scene, turn_until


def test_records_that_arrive_after_the_start_are_left_to_the_next_run(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"x": 1})
    service = scene.start()
    service.turn(until_caught_up=True)
    scene.feed("a", {"x": 2})
    assert turn_until(service, lambda: service.is_over(until_caught_up=True), until_caught_up=True)
    assert scene.rows("n.a") == [{"x": 1}]
    scene.catch_up()
    assert scene.rows("n.a") == [{"x": 1}, {"x": 2}]
