"""Dead letters of a table whose rows are merged: a replay adds each of them once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from frazil.spec.settings import EnvelopeSpec
from frazil_testing.twins import live_rows
from packages.deadletters.tests.unit.scene import TABLE
from packages.deadletters.tests.unit.upsert_scene import LARGE, Upserted

_SUM = (("v", "sum"), ("at", "max"))
_OF_CHANGES = (("v", "sum"),)
_DEBEZIUM = EnvelopeSpec(kind="debezium")


def _rows(scene: Upserted) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["v"], row["at"]) for row in live_rows(scene.catalog, TABLE))


def test_replayed_dead_letters_are_added_once_and_the_latest_values_stay(tmp_path: Path) -> None:
    scene = Upserted(tmp_path, knows="none", merge=_SUM)
    scene.tell((1, 5), (1, LARGE), (1, 7), (2, LARGE), at=3).tell((1, 2), at=9)
    assert _rows(scene) == [(1, 14, 9)]
    scene.cure()
    result = scene.replay()
    assert (result.replayed, result.remaining) == (2, 0)
    assert _rows(scene) == [(1, 14 + LARGE, 9), (2, LARGE, 3)]
    assert scene.replay().replayed == 0
    scene.check_files()
    scene.tell((2, 1), at=1)
    assert _rows(scene) == [(1, 14 + LARGE, 9), (2, LARGE + 1, 3)]


def test_the_latest_value_is_not_that_of_a_replayed_record(tmp_path: Path) -> None:
    scene = Upserted(tmp_path, knows="none", merge=(("v", "max"),))
    scene.tell((1, 5), at=1).tell((1, LARGE), at=2).tell((1, 3), at=3)
    scene.cure().replay()
    assert _rows(scene) == [(1, LARGE, 3)]


def test_dead_letters_that_a_table_rolled_back_will_read_again_stay(tmp_path: Path) -> None:
    scene = Upserted(tmp_path, knows="none", merge=_SUM)
    scene.tell((1, 5), at=1)
    before = scene.catalog.ancestors(TABLE)[0].id
    scene.tell((1, LARGE), at=2)
    scene.catalog.roll_back(TABLE, before)
    scene.cure()
    assert scene.replay().replayed == 0
    assert _rows(scene) == [(1, 5, 1)]


def test_dead_letters_before_the_delete_of_their_row_stay(tmp_path: Path) -> None:
    scene = Upserted(tmp_path, knows="topic", merge=_SUM)
    scene.tell((1, 5), (1, LARGE), (2, LARGE), (3, LARGE), at=3).tell((1, None), (2, None))
    scene.tell((2, 4), (1, LARGE + 1), at=9)
    assert _rows(scene) == [(2, 4, 9)]
    scene.cure()
    result = scene.replay()
    assert (result.replayed, result.remaining) == (1, 3)
    assert _rows(scene) == [(2, 4, 9), (3, LARGE, 3)]
    assert scene.reasons() == ["superseded"] * 3
    scene.check_files()


def test_dead_letters_before_a_truncate_of_the_source_stay(tmp_path: Path) -> None:
    scene = Upserted(tmp_path, merge=_OF_CHANGES, envelope=_DEBEZIUM, key_columns=("at",), tombstones="ignore")
    del scene.source.by_name["a"].partitions[1:]
    for number, value in ((1, 5), (2, LARGE)):
        scene.send(str(number), {"op": "c", "before": None, "after": {"id": number, "v": value, "at": 1}})
    scene.send(None, {"op": "t"})
    scene.send("3", {"op": "c", "before": None, "after": {"id": 3, "v": LARGE, "at": 2}})
    scene.catch_up()
    assert live_rows(scene.catalog, TABLE) == []
    scene.cure()
    result = scene.replay()
    assert (result.replayed, result.remaining) == (1, 1)
    assert _rows(scene) == [(3, LARGE, 2)]
    assert scene.reasons() == ["superseded"]
