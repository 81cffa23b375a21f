"""Dead letters of tables whose records replace rows: what a topic has forgotten, or cannot tell, about what came after
them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from frazil.dead_letters.files import ReplayResult
from frazil.errors import UnavailableError
from packages.deadletters.tests.unit.scene import TABLE
from packages.deadletters.tests.unit.upsert_scene import KNOWERS, LARGE, Upserted


def test_a_record_that_retention_has_taken_tells_nothing(tmp_path: Path) -> None:
    scene = Upserted(tmp_path).tell((9, 90), (1, LARGE), (2, LARGE), (1, None), (9, 91)).cure()
    scene.source.trim("a", 0, 2)
    assert scene.replay() == ReplayResult(1, 1)
    assert (scene.upsert_table(), scene.reasons()) == ({9: 91, 2: LARGE}, ["superseded"])
    scene.source.trim("a", 0, 4)
    assert (scene.replay(), scene.reasons()) == (ReplayResult(0, 1), ["order_unknown"])


def test_a_record_that_compaction_has_taken_tells_nothing(tmp_path: Path) -> None:
    scene = Upserted(tmp_path).tell((9, 90), (1, LARGE), (1, None), (9, 91)).cure()
    log = scene.source.by_name["a"].partitions
    log[0] = [record for record in log[0] if record.offset == 3]
    assert (scene.replay(), scene.reasons(), scene.upsert_table()) == (ReplayResult(0, 1), ["order_unknown"], {9: 91})


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_topic_that_was_made_again_tells_nothing(tmp_path: Path, is_gone: bool) -> None:
    scene = Upserted(tmp_path).tell((9, 90), (1, LARGE)).cure()
    scene.source.create("a", 2)
    if is_gone:
        del scene.source.by_name["a"]
    assert (scene.replay(), scene.reasons()) == (ReplayResult(0, 1), ["order_unknown"])


@pytest.mark.parametrize(("key", "left"), [(b"1", [1]), (None, [1, 3]), (b"8", [])])
def test_a_later_record_that_cannot_be_read_any_more_may_have_been_newer(
    tmp_path: Path, key: bytes | None, left: list[int]
) -> None:
    scene = Upserted(tmp_path).tell((9, 90), (1, LARGE), (9, 91), (2, LARGE), (9, 92)).cure()
    partition = scene.source.by_name["a"].partitions[0]
    partition[4] = replace(partition[4], value=b"{", key=key)
    assert scene.replay() == ReplayResult(2 - len(left), len(left))
    assert sorted(dead_letter["offset"] for dead_letter in scene.dead_letters()) == left
    assert set(scene.reasons()) <= {"order_unknown"}


def test_kafka_that_does_not_answer_changes_nothing(tmp_path: Path) -> None:
    scene = Upserted(tmp_path).tell((1, 10), (1, LARGE)).cure()
    before = scene.dead_letters()
    scene.source.is_down = True
    with pytest.raises(UnavailableError):
        scene.replay()
    scene.source.is_down = False
    assert (scene.dead_letters(), scene.upsert_table()) == (before, {1: 10})
    scene.check_files()


def test_a_key_in_another_partition_is_nobodys_order(tmp_path: Path) -> None:
    scene = Upserted(tmp_path, "both").tell((1, 10), partition=1).tell((1, LARGE)).cure()
    assert (scene.replay(), scene.reasons(), scene.upsert_table()) == (ReplayResult(0, 1), ["order_unknown"], {1: 10})


@pytest.mark.parametrize("knows", KNOWERS)
def test_a_dead_letter_that_a_table_has_yet_to_reach_again_waits(tmp_path: Path, knows: str) -> None:
    scene = Upserted(tmp_path, knows).tell((1, 10))
    scene.tell((1, LARGE), (2, 20))
    scene.catalog.roll_back(TABLE, scene.catalog.ancestors(TABLE)[-1].id)
    scene.cure()
    assert (scene.replay(), scene.reasons(), scene.upsert_table()) == (ReplayResult(0, 1), ["order_unknown"], {1: 10})
    scene.catch_up()
    assert scene.upsert_table() == {1: LARGE, 2: 20}
    assert (scene.replay(), scene.upsert_table(), scene.dead_letters()) == (ReplayResult(1, 0), {1: LARGE, 2: 20}, [])


@pytest.mark.parametrize("knows", KNOWERS)
def test_another_record_at_the_place_of_a_dead_letter_tells_nothing(tmp_path: Path, knows: str) -> None:
    scene = Upserted(tmp_path, knows).tell((1, 10), (1, LARGE)).cure()
    partition = scene.source.by_name["a"].partitions[0]
    partition[1] = replace(partition[1], timestamp_ms=7)
    done = scene.replay()
    assert (done.replayed, scene.upsert_table()) == ((0, {1: 10}) if knows == "topic" else (1, {1: LARGE}))
