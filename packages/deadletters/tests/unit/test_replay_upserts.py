"""Retries of dead letters in tables whose records replace rows, in memory: what counts, what stays and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from frazil.dead_letters.files import ReplayResult, Selection
from frazil.spec.settings import EnvelopeSpec, MetadataField
from frazil_testing.twins import live_rows
from packages.deadletters.tests.unit.scene import TABLE
from packages.deadletters.tests.unit.upsert_scene import KNOWERS, LARGE, Upserted

OPS = EnvelopeSpec(kind="operation", operation="op", insert=("I",), update=("U",), delete=("D",))


@pytest.mark.parametrize("knows", KNOWERS)
def test_a_dead_letter_takes_the_place_of_an_older_row(tmp_path: Path, knows: str) -> None:
    scene = Upserted(tmp_path, knows).tell((1, 10), (2, 20), (1, LARGE)).cure()
    assert scene.replay() == ReplayResult(1, 0)
    assert (scene.upsert_table(), scene.dead_letters()) == ({1: LARGE, 2: 20}, [])
    scene.check_files()


@pytest.mark.parametrize("knows", KNOWERS)
def test_a_dead_letter_never_takes_the_place_of_a_newer_row(tmp_path: Path, knows: str) -> None:
    scene = Upserted(tmp_path, knows).tell((1, 10), (1, LARGE)).tell((1, 11)).cure()
    assert scene.replay() == ReplayResult(0, 1)
    assert (scene.upsert_table(), scene.reasons()) == ({1: 11}, ["superseded"])
    assert [dead_letter["retries"] for dead_letter in scene.dead_letters()] == [1]
    scene.check_files()


@pytest.mark.parametrize("knows", ["topic", "both"])
def test_a_dead_letter_of_a_key_without_a_row_is_a_row_unless_deleted_since(tmp_path: Path, knows: str) -> None:
    scene = Upserted(tmp_path, knows).tell((9, 90), (1, LARGE), (2, LARGE), (2, None)).cure()
    assert scene.replay() == ReplayResult(1, 1)
    assert (scene.upsert_table(), scene.reasons()) == ({1: LARGE, 9: 90}, ["superseded"])


def test_a_row_that_was_deleted_and_made_again_is_newer(tmp_path: Path) -> None:
    scene = Upserted(tmp_path).tell((1, 10), (1, LARGE)).tell((1, None)).tell((1, 12)).cure()
    assert (scene.replay(), scene.upsert_table()) == (ReplayResult(0, 1), {1: 12})


@pytest.mark.parametrize("knows", ["columns", "none"])
def test_where_nobody_can_tell_a_dead_letter_without_a_row_stays(tmp_path: Path, knows: str) -> None:
    scene = Upserted(tmp_path, knows).tell((9, 90), (1, LARGE)).cure()
    assert (scene.replay(), scene.upsert_table(), scene.reasons()) == (ReplayResult(0, 1), {9: 90}, ["order_unknown"])
    scene.check_files()
    scene.knows = "topic"
    assert (scene.replay(), scene.upsert_table()) == (ReplayResult(1, 0), {9: 90, 1: LARGE})


def test_where_nobody_can_tell_a_row_stays_as_it_is(tmp_path: Path) -> None:
    scene = Upserted(tmp_path, "none").tell((1, 10), (1, LARGE)).cure()
    assert (scene.replay(), scene.upsert_table(), scene.reasons()) == (ReplayResult(0, 1), {1: 10}, ["order_unknown"])


def test_dead_letters_of_one_key_are_taken_in_their_order_and_go_together(tmp_path: Path) -> None:
    scene = Upserted(tmp_path).tell((1, 10), (1, LARGE), (2, LARGE), (1, LARGE + 1)).cure()
    assert scene.replay() == ReplayResult(3, 0)
    assert scene.upsert_table() == {1: LARGE + 1, 2: LARGE}


@pytest.mark.parametrize("first", [1, 2])
def test_of_dead_letters_of_one_key_the_newest_may_be_retried_alone(tmp_path: Path, first: int) -> None:
    scene = Upserted(tmp_path, "both").tell((1, 10), (1, LARGE), (1, LARGE + 1)).cure()
    assert scene.replay(Selection(offset=first)) == (ReplayResult(0, 1) if first == 1 else ReplayResult(1, 0))
    assert scene.replay() == (ReplayResult(2, 0) if first == 1 else ReplayResult(0, 1))
    assert (scene.upsert_table(), scene.reasons()) == ({1: LARGE + 1}, [] if first == 1 else ["superseded"])


def test_a_newer_dead_letter_that_cannot_be_read_yet_is_not_in_the_way(tmp_path: Path) -> None:
    scene = Upserted(tmp_path).tell((1, 10), (1, LARGE))
    scene.source.produce("a", 0, b"{", 1000, key=b"1")
    scene.catch_up()
    scene.cure()
    assert (scene.replay(), scene.upsert_table(), scene.reasons()) == (ReplayResult(1, 1), {1: LARGE}, ["malformed"])


def test_what_fails_again_stays_with_its_reason(tmp_path: Path) -> None:
    scene = Upserted(tmp_path).tell((1, 10), (2, LARGE))
    assert (scene.replay(), scene.reasons(), scene.upsert_table()) == (ReplayResult(0, 1), ["out_of_range"], {1: 10})
    assert [dead_letter["retries"] for dead_letter in scene.dead_letters()] == [1]
    scene.check_files()


def test_only_dead_letters_that_are_meant_are_tried_and_all_others_stay_as_they_were(tmp_path: Path) -> None:
    scene = Upserted(tmp_path).tell((1, 10), (1, LARGE), (2, LARGE), (3, LARGE), partition=1).cure()
    before = scene.dead_letters()
    assert scene.replay(Selection(offset=2)) == ReplayResult(1, 0)
    assert scene.dead_letters() == [dead_letter for dead_letter in before if dead_letter["offset"] != 2]
    assert scene.upsert_table() == {1: 10, 2: LARGE}


@pytest.mark.parametrize("knows", KNOWERS)
def test_the_dead_letter_of_a_delete_deletes_an_older_row_and_no_newer_one(tmp_path: Path, knows: str) -> None:
    scene = Upserted(tmp_path, knows, envelope=OPS)
    for key, op in ((1, "I"), (2, "I"), (1, "GONE"), (2, "GONE"), (2, "I"), (3, "GONE")):
        scene.send(str(key), {"id": key, "v": key, "op": op})
    scene.catch_up()
    scene.cure(envelope=OPS.model_copy(update={"delete": ("D", "GONE")}))
    assert scene.replay() == ReplayResult(2, 1)
    assert (scene.upsert_table(), scene.reasons()) == ({2: 2}, ["superseded"])
    assert [json.loads(dead_letter["key"]) for dead_letter in scene.dead_letters()] == [2]


def test_a_dead_letter_brings_new_columns_along(tmp_path: Path) -> None:
    scene = Upserted(tmp_path).tell((1, 10)).tell((2, LARGE), more="x").cure()
    assert scene.replay() == ReplayResult(1, 0)
    assert [row["more"] for row in live_rows(scene.catalog, TABLE) if row["id"] == 2] == ["x"]


def test_keys_of_records_that_nobody_could_read_before(tmp_path: Path) -> None:
    scene = Upserted(tmp_path, key_columns=())
    for key in (b'{"id": 1}', b"?"):
        scene.source.produce("a", 0, b'{"v": 1}', 1000, key=key)
    scene.catch_up()
    assert (scene.replay(), scene.reasons()) == (ReplayResult(0, 1), ["malformed"])


@pytest.mark.parametrize("knows", ["none", "columns", "topic"])
@pytest.mark.parametrize(("there", "is_put"), [(6, False), (4, True)])
def test_the_ordering_column_tells_which_of_two_is_newer(tmp_path: Path, knows: str, there: int, is_put: bool) -> None:
    scene = Upserted(tmp_path, knows, order_by="at").tell((1, LARGE), at=5).tell((1, 10), at=there).cure()
    assert scene.replay() == (ReplayResult(1, 0) if is_put else ReplayResult(0, 1))
    assert (scene.upsert_table(), scene.reasons()) == (
        {1: LARGE} if is_put else {1: 10},
        [] if is_put else ["superseded"],
    )


@pytest.mark.parametrize(
    ("knows", "reason"), [("none", "order_unknown"), ("columns", "superseded"), ("topic", "superseded")]
)
def test_of_equal_ordering_values_the_later_record_counts(tmp_path: Path, knows: str, reason: str) -> None:
    scene = Upserted(tmp_path, knows, order_by="at").tell((1, LARGE), (1, 10), at=5).cure()
    assert (scene.replay(), scene.upsert_table(), scene.reasons()) == (ReplayResult(0, 1), {1: 10}, [reason])
    other = Upserted(tmp_path / "other", knows, order_by="at").tell((1, 10), (1, LARGE), at=5).cure()
    assert other.replay() == (ReplayResult(0, 1) if knows == "none" else ReplayResult(1, 0))


@pytest.mark.parametrize(("at_ms", "is_put"), [(1000, True), (3000, False)])
def test_the_order_may_be_that_of_the_records_timestamps(tmp_path: Path, at_ms: int, is_put: bool) -> None:
    stamp: dict[MetadataField, str] = {"timestamp": "_timestamp"}
    scene = Upserted(tmp_path, "none", order_by="_timestamp", metadata=stamp)
    for value, moment in ((LARGE, 2000), (10, at_ms)):
        scene.source.produce("a", 0, json.dumps({"id": 1, "v": value}).encode(), moment, key=b"1")
    scene.catch_up()
    scene.cure()
    assert scene.replay().replayed == int(is_put)
    assert scene.upsert_table() == {1: LARGE if is_put else 10}


@pytest.mark.parametrize(("knows", "reason"), [("none", "order_unknown"), ("topic", "superseded")])
def test_after_a_delete_a_dead_letter_makes_no_row_whether_the_topic_knows_or_not(
    tmp_path: Path, knows: str, reason: str
) -> None:
    scene = Upserted(tmp_path, knows, order_by="at").tell((9, 90), (1, LARGE), (1, None), at=5).cure()
    assert (scene.replay(), scene.upsert_table(), scene.reasons()) == (ReplayResult(0, 1), {9: 90}, [reason])


def test_a_delete_between_a_dead_letter_and_the_row_makes_the_row_count(tmp_path: Path) -> None:
    scene = Upserted(tmp_path, order_by="at").tell((1, LARGE), at=5).tell((1, None)).tell((1, 10), at=3).cure()
    assert (scene.replay(), scene.upsert_table(), scene.reasons()) == (ReplayResult(0, 1), {1: 10}, ["superseded"])
