"""Change data through a whole pipeline in memory: columns that come along, dead letters, and their retry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from frazil.dead_letters.files import Selection
from frazil.spec.settings import EnvelopeSpec
from packages.deadletters.tests.unit.scene import Scene

LOG: dict[str, Any] = {"changelog": True, "metadata": {"op": "_op", "image": "_image"}}


def _rows(scene: Scene) -> list[tuple[Any, ...]]:
    found = [(row["id"], row.get("v"), row["_op"], row["_image"]) for row in scene.rows()]
    return sorted(found, key=str)


def test_columns_of_the_row_come_along_and_what_is_no_change_is_told(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {}, envelope=EnvelopeSpec(kind="debezium"), **LOG)
    scene.feed({"op": "c", "before": None, "after": {"id": 1}}, {"ts_ms": 1})
    scene.feed({"op": "u", "before": {"id": 1}, "after": {"id": 1, "v": "x"}}, None, {"ts_ms": 2})
    assert _rows(scene) == [
        (1, "x", "u", "after"), (1, None, "c", "after"), (1, None, "u", "before"),
    ]  # fmt: skip
    state = scene.catalog.load("lake.a")
    assert state is not None
    assert [field.name for field in state.schema.fields] == ["id", "_op", "_image", "v"]


def test_a_dead_letter_becomes_a_row_once_the_file_knows_its_operation(tmp_path: Path) -> None:
    words = EnvelopeSpec(kind="operation", operation="ops", insert=("I",), update=("U",), delete=("D",))
    scene = Scene(tmp_path, {"id": "long"}, envelope=words, **LOG)
    scene.feed({"id": 1, "ops": "I"}, {"id": 2, "ops": "NEW"}, {"id": 3, "ops": "D"})
    assert [(dead_letter["error_class"], dead_letter["message"]) for dead_letter in scene.dead_letters()] == [
        ("unknown_operation", 'the envelope has no such operation: "NEW"')
    ]
    scene.declare({"id": "long"}, envelope=words.model_copy(update={"insert": ("I", "NEW")}))
    retried = scene.replayer.replay(scene.table, Selection())
    assert (retried.replayed, scene.dead_letters()) == (1, [])
    assert _rows(scene) == [(1, None, "c", "after"), (2, None, "c", "after"), (3, None, "d", "before")]
