"""Dead letters that are retried while others of their rows wait: none brings a row back that a newer one takes away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.dead_letters.files import ReplayResult, Selection
from frazil.spec.settings import EnvelopeSpec, MetadataField
from frazil_testing.twins import live_rows
from packages.deadletters.tests.unit.scene import TABLE
from packages.deadletters.tests.unit.test_replay_envelopes import Source
from packages.deadletters.tests.unit.upsert_scene import LARGE, PLACES, Upserted

_FIRST, _NEXT = Selection(offset=1), Selection(offset=2)
_WORDS = EnvelopeSpec(kind="operation", operation="op", insert=("I",), update=("U",), delete=("D",))
_MORE_WORDS = _WORDS.model_copy(update={"delete": ("D", "GONE")})


def _told(scene: Upserted, *told: tuple[int, str, int], **more: Any) -> Upserted:
    """Key, word and value."""
    for key, word, v in told:
        scene.send(str(key), {"id": key, "v": v, "op": word, **more})
    scene.catch_up()
    return scene


@pytest.mark.parametrize("knows", ["topic", "both"])
def test_a_row_that_the_dead_letter_of_a_delete_takes_away_does_not_come_back(tmp_path: Path, knows: str) -> None:
    scene = _told(Upserted(tmp_path, knows, envelope=_WORDS), (9, "I", 9), (1, "I", LARGE), (1, "GONE", 1))
    scene.cure(envelope=_MORE_WORDS)
    assert scene.replay(_FIRST) == ReplayResult(0, 1)
    assert (scene.upsert_table(), scene.reasons()) == ({9: 9}, ["newer_dead_letter", "unknown_operation"])
    scene.check_files()
    assert (scene.replay(), scene.upsert_table(), scene.dead_letters()) == (ReplayResult(2, 0), {9: 9}, [])


def test_when_the_delete_is_no_dead_letter_any_more_it_is_newer_still(tmp_path: Path) -> None:
    scene = _told(Upserted(tmp_path, envelope=_WORDS), (9, "I", 9), (1, "I", LARGE), (1, "GONE", 1))
    scene.cure(envelope=_MORE_WORDS)
    assert (scene.replay(_NEXT), scene.replay(_FIRST)) == (ReplayResult(1, 0), ReplayResult(0, 1))
    assert (scene.upsert_table(), scene.reasons()) == ({9: 9}, ["superseded"])


def test_an_unreadable_older_or_unrelated_dead_letter_blocks_no_replay(tmp_path: Path) -> None:
    scene = _told(Upserted(tmp_path / "a", envelope=_WORDS), (9, "I", 9), (1, "I", LARGE), (1, "GONE", 1)).cure()
    assert (scene.replay(_FIRST), scene.upsert_table()) == (ReplayResult(1, 0), {9: 9, 1: LARGE})
    for n, other in enumerate(((1, "GONE", 1), (2, "GONE", 1))):
        scene = _told(Upserted(tmp_path / f"b{n}", envelope=_WORDS), (9, "I", 9), other, (1, "I", LARGE)).cure(
            envelope=_MORE_WORDS
        )
        assert (scene.replay(_NEXT), scene.upsert_table()) == (ReplayResult(1, 0), {9: 9, 1: LARGE})


def test_a_dead_letter_waits_for_a_newer_one_of_its_row_and_goes_with_it(tmp_path: Path) -> None:
    scene = Upserted(tmp_path).tell((9, 9), (1, LARGE), (1, LARGE + 1)).cure()
    assert (scene.replay(_FIRST), scene.upsert_table()) == (ReplayResult(0, 1), {9: 9})
    assert scene.reasons() == ["newer_dead_letter", "out_of_range"]
    assert (scene.replay(), scene.upsert_table()) == (ReplayResult(2, 0), {9: 9, 1: LARGE + 1})
    with_delete = Upserted(tmp_path / "b", envelope=_WORDS)
    _told(with_delete, (9, "I", 9), (1, "I", LARGE), (1, "GONE", 1), (1, "I", LARGE)).cure(envelope=_MORE_WORDS)
    assert (with_delete.replay(_FIRST), with_delete.upsert_table()) == (ReplayResult(0, 1), {9: 9})
    assert (with_delete.replay(), with_delete.upsert_table()) == (ReplayResult(3, 0), {9: 9, 1: LARGE})


@pytest.mark.parametrize(("at", "stays"), [(4, False), (6, True)])
def test_dead_letters_replayed_together_are_in_the_order_of_the_column(tmp_path: Path, at: int, stays: bool) -> None:
    scene = Upserted(tmp_path, envelope=_WORDS, order_by="at")
    _told(scene, (9, "I", 9), (1, "I", LARGE), at=5)
    _told(scene, (1, "GONE", 1), at=at).cure(envelope=_MORE_WORDS)
    assert scene.replay(_FIRST) == ReplayResult(0, 1)
    assert scene.replay() == ReplayResult(2, 0)
    assert scene.upsert_table() == ({9: 9} if stays else {9: 9, 1: LARGE})


def test_a_marked_delete_that_waits_is_newer_too(tmp_path: Path) -> None:
    marks: dict[MetadataField, str] = {**PLACES, "deleted": "_deleted", "deleted_at": "_deleted_at"}
    scene = Upserted(tmp_path, "both", envelope=_WORDS, deletes="soft", metadata=marks)
    _told(scene, (9, "I", 9), (1, "I", LARGE), (1, "GONE", 1)).cure(envelope=_MORE_WORDS)
    assert (scene.replay(_FIRST), scene.upsert_table()) == (ReplayResult(0, 1), {9: 9})
    assert scene.replay() == ReplayResult(2, 0)
    assert [(row["v"], row["_deleted"]) for row in live_rows(scene.catalog, TABLE) if row["id"] == 1] == [(LARGE, True)]


def test_a_dead_letter_waits_for_a_change_of_two_rows_that_remains(tmp_path: Path) -> None:
    """Row 1 has a dead letter, and gets key 2 in another one, which no replay applies."""
    scene = Source(tmp_path)
    scene.row("c", 1, 10, 1)
    scene.row("u", 1, LARGE, 2)
    for lsn, (old, new) in enumerate([(1, 2)], 3):
        images = {"before": {"id": old, "v": 10}, "after": {"id": new, "v": LARGE}}
        scene.send(json.dumps({"id": new}), {"op": "u", **images, "source": {"connector": "mysql", "pos": lsn}})
    scene.catch_up()
    scene.cure()
    assert scene.replay(_FIRST) == ReplayResult(0, 1)
    assert (scene.upsert_table(), scene.reasons()) == ({1: 10}, ["newer_dead_letter", "out_of_range"])
    assert (scene.replay(), scene.upsert_table()) == (ReplayResult(0, 2), {1: 10})
    assert scene.reasons() == ["newer_dead_letter", "order_unknown"]


def test_the_tombstone_of_an_unreadable_delete_is_newer_than_the_dead_letter_before(tmp_path: Path) -> None:
    scene = Source(tmp_path)
    scene.row("c", 9, 9, 1)
    scene.row("c", 1, LARGE, 2)
    scene.send(json.dumps({"id": 1}), {"op": "d", "before": {"id": "x"}, "after": None, "source": {}})
    scene.send(json.dumps({"id": 1}), None)
    scene.catch_up()
    scene.cure()
    assert (scene.replay(_FIRST), scene.upsert_table()) == (ReplayResult(0, 1), {9: 9})
    assert scene.reasons() == ["superseded", "type_mismatch"]
