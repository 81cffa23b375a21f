"""Dead letters of records that have ended a task: who retries them continues, and they stay until they can be read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frazil.dead_letters.files import ReplayResult, Selection
from frazil.error_classes import ErrorClass
from frazil.ingest.batches import job
from frazil.ingest.tables.target import target_of
from frazil.ingest.tasks import task
from frazil.types import BadRecord
from frazil_deadletters import replay, replay_upserts
from packages.deadletters.tests.unit.scene import Scene
from packages.deadletters.tests.unit.upsert_scene import Upserted
from tests.unit.ingest.targets import changed

ALL = Selection()
HARM = "harm"


def _plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads a record with the word ends at once, in whichever way it is read."""

    def harmed(read: Callable[..., Any]) -> Callable[..., Any]:
        def reading(*args: Any, **more: Any) -> Any:
            columns = next(one for one in args if isinstance(one, dict))
            if any(HARM.encode() in (value or b"") for value in columns["value"].to_pylist()):
                os.abort()
            return read(*args, **more)

        return reading

    reading = harmed(task.__dict__["read_records"])
    for module in (task, replay, replay_upserts):
        monkeypatch.setattr(module, "read_records", reading)


def _make_dead_letters(scene: Scene, *offsets: int) -> None:
    """Lets the pipeline catch up as if a search had found these records of partition 0."""
    found = tuple(BadRecord("a", 0, offset, ErrorClass.CRASHES_DECODER, "", "ended") for offset in offsets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "target_of", lambda *args: changed(target_of(*args), crashing=found))
        scene.catch_up()
    assert [dead_letter["error_class"] for dead_letter in scene.dead_letters()].count("crashes_decoder") == len(offsets)


def _scene(root: Path) -> Scene:
    """Rows 0 and 3; dead letters of two such records, one of which harms, and of one that was too large."""
    scene = Scene(root, {"id": "int"})
    for value in (b'{"id": 0}', b'{"id": 1, "t": "harm"}', b'{"id": 2}', b'{"id": 3}', b'{"id": 3000000000}'):
        scene.source.produce("a", 0, value, 1000)
    _make_dead_letters(scene, 1, 2)
    scene.declare({"id": "long"})
    return scene


def test_a_dead_letter_that_ends_its_reader_stays_and_the_others_become_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = _scene(tmp_path)
    with monkeypatch.context() as patch:
        _plant(patch)
        assert scene.replayer.replay(scene.table, ALL) == ReplayResult(2, 1)
        [left] = scene.dead_letters()
        assert (left["offset"], left["error_class"], left["message"], left["retries"]) == (
            1,
            "crashes_decoder",
            "the reader was ended by SIGABRT",
            1,
        )
    assert sorted(row["id"] for row in scene.rows()) == [0, 2, 3, 3_000_000_000]
    assert scene.replayer.replay(scene.table, ALL) == ReplayResult(1, 0)  # With a reader that can.
    assert sorted(row["id"] for row in scene.rows()) == [0, 1, 2, 3, 3_000_000_000]


def test_dead_letters_that_are_not_meant_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = _scene(tmp_path)
    _plant(monkeypatch)
    assert scene.replayer.replay(scene.table, Selection(offset=4)) == ReplayResult(1, 0)
    assert [(one["offset"], one["retries"]) for one in scene.dead_letters()] == [(1, 0), (2, 0)]


def test_dead_letters_that_end_their_reader_only_together_all_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = _scene(tmp_path)
    read = task.__dict__["read_records"]

    def harmed(target: Any, columns: Any, *args: Any) -> Any:
        if len(columns["value"]) > 1:
            os.abort()
        return read(target, columns, *args)

    monkeypatch.setattr(task, "read_records", harmed)
    assert scene.replayer.replay(scene.table, ALL) == ReplayResult(1, 2)


@pytest.mark.parametrize("offset", [None, 3])
def test_where_dead_letters_replace_rows_nobody_reads_such_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int | None
) -> None:
    """Neither as a dead letter that is meant, nor as one beside it, nor in the topic."""
    scene = Upserted(tmp_path)
    scene.send("1", {"id": 1, "v": 1})
    scene.send("2", {"id": 2, "v": 2, "t": "harm"})
    scene.send("2", None)
    scene.send("3", {"id": 3, "v": 3_000_000_000})
    scene.send("4", {"id": 4, "v": 4, "t": "harm"})
    _make_dead_letters(scene, 1, 4)
    scene.cure()
    with monkeypatch.context() as patch:
        _plant(patch)
        assert scene.replay(Selection(offset=offset)) == (ReplayResult(1, 2) if offset is None else ReplayResult(1, 0))
        assert scene.upsert_table() == {1: 1, 3: 3_000_000_000}
    scene.replay()
    assert (scene.upsert_table(), scene.reasons()) == ({1: 1, 3: 3_000_000_000, 4: 4}, ["superseded"])


@pytest.mark.parametrize("tombstones", ["ignore", "row"])
def test_a_dead_letter_with_a_value_too_large_to_read_stays_and_is_not_a_tombstone(
    tmp_path: Path, tombstones: str
) -> None:
    scene = Scene(tmp_path, {"id": "int"})
    for value in (b'{"id": 0}', None, b'{"id": 2}'):  # As a task gets the second one: without its value.
        scene.source.produce("a", 0, value, 1000)
    unread = BadRecord("a", 0, 1, ErrorClass.TOO_LARGE, "", "the value has 419430400 bytes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "target_of", lambda *args: changed(target_of(*args), crashing=(unread,)))
        scene.catch_up()
    scene.table.spec = scene.table.spec.model_copy(update={"tombstones": tombstones})
    assert scene.replayer.replay(scene.table, ALL) == ReplayResult(0, 1)
    [left] = scene.dead_letters()
    assert (left["offset"], left["error_class"], left["message"], left["value"]) == (
        1,
        "too_large",
        "the value has 419430400 bytes",
        None,
    )
    assert [row["id"] for row in scene.rows()] == [0, 2]
