"""A service that meets records which are too large to be read: dead letters at their places, and rows around them."""

from __future__ import annotations

from pathlib import Path

from frazil.ingest.tables.state import RunState
from frazil.ingest.tasks.task_job import FLOOR_BYTES
from tests.unit.ingest.service_scene import Scene

HUGE = b'{"id": 2, "text": "' + b"x" * FLOOR_BYTES + b'"}'


def test_a_record_that_is_not_read_is_a_dead_letter_and_its_neighbours_are_rows(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", "b")
    scene.feed("a", {"id": 1}, HUGE, {"id": 3})
    scene.feed("b", {"id": 4})
    tables = scene.catch_up()
    assert [row["id"] for row in scene.rows("n.a")] == [1, 3]
    assert [row["id"] for row in scene.rows("n.b")] == [4]
    assert [(row["offset"], row["error_class"], row["value"]) for row in scene.rows("n.a__dead_letters")] == [
        (1, "too_large", None)
    ]
    assert all(table.status.run_state is not RunState.STOPPED for table in tables)


def test_where_bad_records_stop_its_table_the_place_is_named(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", on_bad_record="stop")
    scene.feed("a", {"id": 1}, HUGE)
    service = scene.unconnected()
    service.run(until_caught_up=True)
    stopped = service.tables[0].status
    assert (stopped.run_state, stopped.where) == (RunState.STOPPED, "topic a, partition 0, offset 1")
    assert f"the value has {len(HUGE)} bytes, and `limits.record_size` allows" in stopped.reason
