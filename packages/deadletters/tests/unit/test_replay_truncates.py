"""Dead letters that are retried while that of a truncate waits, as it always does: none brings a row back that it takes
away.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frazil.dead_letters.files import ReplayResult, Selection
from frazil.spec.settings import EnvelopeSpec
from frazil_testing.twins import live_rows
from packages.deadletters.tests.unit.scene import TABLE
from packages.deadletters.tests.unit.test_replay_envelopes import Source
from packages.deadletters.tests.unit.upsert_scene import ALL, PLACES, Upserted

_IN_ORDER: dict[str, Any] = {"metadata": {"source_order": "_source_order"}, "order_by": "_source_order"}
_FIRST, _NEXT = Selection(offset=0), Selection(offset=1)
_TRUNCATE = ("t", None)
_MARKED = {**PLACES, "deleted": "_deleted", "deleted_at": "_deleted_at"}


class _Unwrapped(Source):
    """Records in envelopes are dead letters until the file has `envelope`."""

    def __init__(self, root: Path, **settings: Any) -> None:
        super().__init__(root, **settings)
        self.declare({"id": "long", "v": "int", "at": "long"}, envelope=None)

    def told(self, *changes: tuple[str, int | None], **settings: Any) -> Upserted:
        """Operations and keys: each with its number as value and place in the source's log."""
        for n, (op, key) in enumerate(changes, 1):
            self.row(op, key, n, n)
        return self.understand(**settings)

    def understand(self, **settings: Any) -> Upserted:
        """Gives the file the envelope."""
        self.catch_up()
        return self.cure(envelope=EnvelopeSpec(kind="debezium"), **settings)


@pytest.mark.parametrize("knows", ["topic", "both"])
@pytest.mark.parametrize("partitions", [1, 2])
def test_a_row_from_before_a_truncate_that_stays_does_not_come_back(
    tmp_path: Path, knows: str, partitions: int
) -> None:
    scene = _Unwrapped(tmp_path, knows=knows, partitions=partitions).told(("c", 1), _TRUNCATE)
    for selection in (ALL, _FIRST, _NEXT, ALL):
        assert scene.replay(selection) == ReplayResult(0, 2 if selection == ALL else 1)
        assert scene.upsert_table() == {}
    assert scene.reasons() == ["newer_dead_letter", "order_unknown"]
    scene.check_files()


def test_a_truncate_whose_dead_letter_was_dropped_is_newer_still(tmp_path: Path) -> None:
    scene = _Unwrapped(tmp_path).told(("c", 1), _TRUNCATE)
    assert scene.replay() == ReplayResult(0, 2)
    assert scene.replayer.drop(scene.table, Selection(error_class="order_unknown")) == 1
    assert (scene.replay(), scene.upsert_table(), scene.reasons()) == (ReplayResult(0, 1), {}, ["superseded"])


def test_rows_from_behind_the_last_truncate_come(tmp_path: Path) -> None:
    scene = _Unwrapped(tmp_path).told(("c", 1), _TRUNCATE, ("c", 2), ("c", 1), _TRUNCATE, ("c", 3), ("c", 1))
    assert (scene.replay(), scene.upsert_table()) == (ReplayResult(4, 3), {3: 6, 1: 7})
    assert scene.reasons() == ["newer_dead_letter", "order_unknown", "order_unknown"]


def test_an_update_from_before_a_truncate_waits_for_it_as_a_row_does(tmp_path: Path) -> None:
    scene = _Unwrapped(tmp_path)
    scene.tell((5, 50))
    scene.told(("u", 5), ("c", 1), _TRUNCATE)
    assert (scene.replay(), scene.upsert_table()) == (ReplayResult(0, 3), {5: 50})
    assert scene.reasons() == ["newer_dead_letter", "newer_dead_letter", "order_unknown"]


@pytest.mark.parametrize("knows", ["topic", "both"])
def test_a_row_that_is_marked_as_deleted_does_not_come_back_either(tmp_path: Path, knows: str) -> None:
    scene = _Unwrapped(tmp_path, knows=knows)
    scene.declare({"id": "long", "v": "int"}, deletes="soft", metadata=_MARKED)
    scene.tell((1, 5), (2, 5), (1, None), (2, None))
    scene.told(("c", 1), _TRUNCATE, ("c", 2))
    assert scene.replay() == ReplayResult(1, 2)
    assert {row["id"]: row["_deleted"] for row in live_rows(scene.catalog, TABLE)} == {1: True, 2: False}


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("selection", [ALL, Selection(partition=0)])
def test_nobody_knows_which_rows_a_truncate_of_another_partition_takes_away(
    tmp_path: Path, is_first: bool, selection: Selection
) -> None:
    scene = _Unwrapped(tmp_path)
    for op, partition in [("t", 1), ("c", 0)] if is_first else [("c", 1), ("t", 0), ("c", 0)]:
        image = {"id": partition, "v": 1} if op == "c" else None
        scene.send(None, {"op": op, "before": None, "after": image, "source": {}}, partition)
    scene.understand()
    scene.replay(selection)
    assert scene.upsert_table() == ({} if is_first else {0: 1})
    scene.replay(Selection(partition=1))
    assert scene.upsert_table() == ({} if is_first else {0: 1})
    assert scene.reasons() == ["newer_dead_letter", "order_unknown"]


@pytest.mark.parametrize("selection", [ALL, Selection(partition=0)])
def test_the_place_of_a_truncate_tells_it_where_the_source_has_given_one(tmp_path: Path, selection: Selection) -> None:
    scene = _Unwrapped(tmp_path)
    truncate = {"op": "t", "before": None, "after": None, "source": {"connector": "postgresql", "lsn": 3}}
    scene.send(None, truncate, partition=1)
    for key, lsn in ((1, 2), (2, 4), (3, 2), (3, 5)):
        scene.row("c", key, lsn, lsn)
    scene.understand(**_IN_ORDER)
    scene.replay(selection)
    assert scene.upsert_table() == {2: 4, 3: 5}
    scene.replay()
    assert (scene.upsert_table(), scene.reasons()) == ({2: 4, 3: 5}, ["newer_dead_letter", "order_unknown"])


def test_what_is_newer_by_a_column_and_from_before_the_truncate_is_no_row(tmp_path: Path) -> None:
    scene = _Unwrapped(tmp_path)
    scene.row("c", 1, 1, at=9)
    scene.row("t", None)
    scene.row("c", 1, 3, at=5)
    scene.understand(order_by="at")
    assert (scene.replay(), scene.replay(_FIRST), scene.upsert_table()) == (ReplayResult(0, 3), ReplayResult(0, 1), {})
    assert scene.replayer.drop(scene.table, _FIRST) == 1
    assert (scene.replay(), scene.upsert_table()) == (ReplayResult(1, 1), {1: 3})
