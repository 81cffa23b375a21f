"""Dead letters of a table that keeps history: each is a version at its own time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from frazil.spec.settings import HISTORY
from frazil_testing.twins import live_rows
from packages.deadletters.tests.unit.scene import TABLE
from packages.deadletters.tests.unit.upsert_scene import LARGE, Upserted


def _scene(root: Path) -> Upserted:
    return Upserted(root, knows="none", keeps_history=True, metadata={field: field for field in HISTORY})


def _tell(scene: Upserted, *changes: tuple[int, int | None]) -> None:
    """Sends records of one row: time in seconds and value, None for a delete; then the pipeline catches up."""
    for at_s, value in changes:
        raw = None if value is None else json.dumps({"id": 1, "v": value}).encode()
        scene.source.produce("a", 0, raw, at_s * 1000, key=b"1")
    scene.catch_up()


def _versions(scene: Upserted) -> list[tuple[Any, ...]]:
    rows = live_rows(scene.catalog, TABLE)
    times = [(row["valid_from"], row["valid_to"], row["v"]) for row in rows]
    return sorted((start.second, None if end is None else end.second, value) for start, end, value in times)


def test_a_replayed_record_is_put_between_the_versions_at_its_time(tmp_path: Path) -> None:
    scene = _scene(tmp_path)
    _tell(scene, (1, 10), (2, LARGE), (3, 30), (4, None), (5, LARGE))
    assert _versions(scene) == [(1, 3, 10), (3, 4, 30)]
    scene.cure()
    result = scene.replay()
    assert (result.replayed, result.remaining) == (2, 0)
    assert _versions(scene) == [(1, 2, 10), (2, 3, LARGE), (3, 4, 30), (5, None, LARGE)]
    assert scene.replay().replayed == 0
    scene.check_files()
    _tell(scene, (6, 60))
    assert _versions(scene) == [(1, 2, 10), (2, 3, LARGE), (3, 4, 30), (5, 6, LARGE), (6, None, 60)]


def test_a_record_that_a_table_rolled_back_will_read_again_stays_a_dead_letter(tmp_path: Path) -> None:
    scene = _scene(tmp_path)
    _tell(scene, (1, 10))
    before = scene.catalog.ancestors(TABLE)[0].id
    _tell(scene, (2, LARGE))
    scene.catalog.roll_back(TABLE, before)
    scene.cure()
    assert scene.replay().replayed == 0
    assert _versions(scene) == [(1, None, 10)]
