"""Upsert tables whose rows get other keys: what the source has not sent is in the row of the old key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.decode.settings import PLACEHOLDER
from frazil.types import Commit, Progress
from frazil_testing.memory_catalog import MemoryCatalog
from frazil_testing.twins import FakeClock
from tests.unit.upsert.upsert_source import MARKS, Log, UpsertSource, begun, made, tombstone

NOW_MS = FakeClock().now_ms()


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("partitions", [(0, 0), (0, 1), (1, 0)])
def test_a_row_that_gets_another_key_keeps_what_was_not_sent(
    tmp_path: Path, partitions: tuple[int, int], tasks: int
) -> None:
    scenario = UpsertSource(tmp_path, tasks)
    log, from_, to = Log(scenario), *partitions
    log.write({"id": 1, "v": "a", "big": "of 1"}, from_)
    log.write({"id": 2, "v": "a", "big": "of 2"}, to)
    scenario.catch_up()
    log.keep(1, "b", from_)
    log.move(1, 7, "c", partitions)
    log.write({"id": 1, "v": "d", "big": "again"}, from_)
    log.keep(7, "e", to)
    scenario.catch_up()
    assert scenario.dead_letters() == []
    assert scenario.by_id() == [
        {"id": 1, "v": "d", "big": "again"}, {"id": 2, "v": "a", "big": "of 2"}, {"id": 7, "v": "e", "big": "of 1"},
    ]  # fmt: skip


def test_a_row_that_moves_more_than_once_in_a_batch(tmp_path: Path) -> None:
    scenario, log = begun(tmp_path)
    log.move(1, 2, "b", (0, 1))
    log.move(2, 3, "c", (1, 0))
    log.write({"id": 4, "v": "a", "big": "of 4"})
    log.move(4, 1, "d", (0, 0))
    scenario.catch_up()
    assert (scenario.dead_letters(), scenario.by_id()) == (
        [],
        [{"id": 1, "v": "d", "big": "of 4"}, {"id": 3, "v": "c", "big": "of 1"}],
    )


def _marked(scenario: UpsertSource) -> list[tuple[Any, ...]]:
    return [(row["id"], row["v"], row["big"], row["_deleted"]) for row in scenario.by_id()]


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("partitions", [(0, 0), (0, 1), (1, 0)])
def test_a_row_that_gets_another_key_stays_marked_under_its_old_one(
    tmp_path: Path, partitions: tuple[int, int], batches: int
) -> None:
    scenario = UpsertSource(tmp_path, **MARKS)
    log, from_, to = Log(scenario), *partitions
    log.write({"id": 1, "v": "a", "big": "of 1"}, from_)
    log.write({"id": 7, "v": "a", "big": "of the first 7"}, to)
    log.remove(7, to)
    scenario.catch_up()
    if batches == 1:
        log.move(1, 7, "c", partitions)
    else:
        log.move(1, 7, "c", (from_, None))
        scenario.catch_up()
        log.lsn -= 1
        log.move(1, 7, "c", (None, to))
    log.keep(7, "d", to)
    scenario.catch_up()
    assert scenario.dead_letters() == []
    assert _marked(scenario) == [(1, "a", "of 1", True), (7, "d", "of 1", False)]


@pytest.mark.parametrize("batches", [1, 2])
def test_a_row_that_got_another_key_and_is_marked_has_the_values_that_came_with_its_key(
    tmp_path: Path, batches: int
) -> None:
    metadata = {**MARKS["metadata"], "source_order": "_source_order"}
    scenario, log = begun(tmp_path, **{**MARKS, "metadata": metadata, "order_by": "_source_order"})
    log.move(1, 7, "b")
    if batches > 1:
        scenario.catch_up()
    log.remove(7)
    scenario.catch_up()
    assert scenario.dead_letters() == []
    assert _marked(scenario) == [(1, "a", "of 1", True), (7, "b", "of 1", True)]


def test_a_row_that_gets_another_key_is_told_twice_where_deletes_are_marked(tmp_path: Path) -> None:
    scenario, log = begun(tmp_path, **MARKS)
    log.move(1, 7, "c", (0, 1))
    scenario.catch_up()
    log.write({"id": 1, "v": "b", "big": "again"})
    scenario.catch_up()
    log.lsn = 1
    log.move(1, 7, "c", (None, 1))
    scenario.catch_up()
    assert (scenario.dead_letters(), _marked(scenario)) == ([], [(1, "b", "again", False), (7, "c", "of 1", False)])


@pytest.mark.parametrize("is_in_batch", [False, True])
def test_a_marked_row_of_another_change_is_not_the_old_one(tmp_path: Path, is_in_batch: bool) -> None:
    scenario = UpsertSource(tmp_path, **MARKS)
    log = Log(scenario)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    log.write({"id": 7, "v": "a", "big": "of the first 7"}, 1)
    scenario.catch_up()
    log.move(1, 7, "c", (0, None))
    log.write({"id": 1, "v": "b", "big": "again"})
    log.remove(1)
    if not is_in_batch:
        log.remove(7, 1)
    scenario.catch_up()
    if is_in_batch:
        log.remove(7, 1)
    log.lsn = 2
    log.move(1, 7, "c", (None, 1))
    scenario.catch_up()
    assert [kind for kind, _ in scenario.dead_letters()] == ["incomplete_primary_key_update"]
    assert _marked(scenario) == [(1, "b", "again", True), (7, "a", "of the first 7", True)]


@pytest.mark.parametrize("is_done", [False, True])
def test_a_kill_at_the_commit_of_moved_rows_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    scenario, kept = UpsertSource(tmp_path), MemoryCatalog.commit
    log = Log(scenario)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    scenario.catch_up()
    log.move(1, 2, "b", (0, 1))

    def killed(self: MemoryCatalog, commit: Commit) -> Progress:
        if is_done:
            kept(self, commit)
        raise Killed

    monkeypatch.setattr(MemoryCatalog, "commit", killed)
    with pytest.raises(Killed):
        scenario.catch_up()
    monkeypatch.undo()
    log.keep(2, "c", 1)
    scenario.catch_up()
    assert (scenario.by_id(), scenario.dead_letters()) == ([{"id": 2, "v": "c", "big": "of 1"}], [])


def test_many_bad_halves_are_dead_letters(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path)
    scenario.exists(id="long", v="string", big="string")
    log = Log(scenario, NOW_MS)
    for number in range(30):
        log.lsn += 1
        source = {"connector": "postgresql", "lsn": log.lsn}
        headers = (("__debezium.newkey", json.dumps({"id": 100 + number}).encode()),)
        log.send(0, {"id": number}, {"op": "d", "before": "no row", "after": None, "source": source}, headers)
        row = {"id": 100 + number, "v": "b", "big": "sent"}
        headers = (("__debezium.oldkey", json.dumps({"id": number}).encode()),)
        log.send(0, {"id": 100 + number}, {"op": "c", "before": None, "after": row, "source": source}, headers)
    assert scenario.catch_up().status.reason == ""
    assert [row["id"] for row in scenario.by_id() if row["id"] >= 100] == list(range(100, 130))
    assert len(scenario.dead_letters()) == 30


def test_a_row_whose_old_row_is_gone_is_a_dead_letter(tmp_path: Path) -> None:
    scenario, log = begun(tmp_path)
    log.move(1, 2, "b", (0, None))
    scenario.catch_up()
    log.lsn -= 1
    log.move(1, 2, "b", (None, 1))
    log.write({"id": 3, "v": "a", "big": "of 3"})
    scenario.catch_up()
    assert scenario.by_id() == [{"id": 3, "v": "a", "big": "of 3"}]
    assert [kind for kind, _ in scenario.dead_letters()] == ["incomplete_primary_key_update"]


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_row_that_moves_beside_a_bad_record(tmp_path: Path, tasks: int) -> None:
    scenario = UpsertSource(tmp_path, tasks)
    log = Log(scenario)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    log.write({"id": 5, "v": "a", "big": "of 5"})
    scenario.catch_up()
    log.move(1, 2, "b")
    scenario.put("7", {"op": "?"})
    log.move(6, 7, "c", (None, 1))
    scenario.catch_up()
    assert scenario.by_id() == [{"id": 2, "v": "b", "big": "of 1"}, {"id": 5, "v": "a", "big": "of 5"}]
    assert [kind for kind, _ in scenario.dead_letters()] == ["incomplete_primary_key_update", "unknown_operation"]


def test_an_old_key_is_told_in_the_words_of_the_source(tmp_path: Path) -> None:
    """Whatever the table makes of the names of fields."""
    scenario = UpsertSource(tmp_path, column_case="snake")
    first, second = {"orderId": 1, "v": "a", "bigText": "of 1"}, {"orderId": 2, "v": "b", "bigText": PLACEHOLDER}
    old_key = json.dumps({"orderId": 1}).encode()
    for lsn, key, op, row, headers in (
        (1, 1, "c", first, ()),
        (2, 1, "d", first, ()),
        (2, 2, "c", second, (("__debezium.oldkey", old_key),)),
    ):
        images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        value = {"op": op, **images, "source": {"connector": "postgresql", "lsn": lsn, "ts_ms": lsn}}
        name = json.dumps({"orderId": key}).encode()
        scenario.source.produce("a", 0, json.dumps(value).encode(), key=name, headers=headers)
    scenario.catch_up()
    assert scenario.dead_letters() == []
    assert scenario.upsert_table() == [{"order_id": 2, "v": "b", "big_text": "of 1"}]


@pytest.mark.parametrize("told", [b'{"id": "one"}', b'{"id": 1e400}', b"{}", b"7", b"\xff"])
def test_an_old_key_that_cannot_be_read_makes_a_dead_letter(tmp_path: Path, told: bytes) -> None:
    scenario, _ = begun(tmp_path)
    value = json.dumps(made({"id": 2, "v": "b", "big": PLACEHOLDER})[1]).encode()
    scenario.source.produce("a", 0, value, key=b'{"id": 2}', headers=(("__debezium.oldkey", told),))
    scenario.catch_up()
    assert scenario.by_id() == [{"id": 1, "v": "a", "big": "of 1"}]
    assert [kind for kind, _ in scenario.dead_letters()] == ["unavailable_value"]


def test_a_truncate_leaves_nothing_to_take_values_from(tmp_path: Path) -> None:
    scenario, log = begun(tmp_path, partitions=1)
    scenario.put(None, {"op": "t", "before": None, "after": None})
    log.move(1, 2, "b")
    scenario.catch_up()
    assert (scenario.by_id(), [kind for kind, _ in scenario.dead_letters()]) == ([], ["incomplete_primary_key_update"])


def test_a_move_that_is_told_again_changes_nothing(tmp_path: Path) -> None:
    scenario, log = begun(tmp_path)
    for _ in range(2):
        log.move(1, 2, "b", (0, 1))
        scenario.catch_up()
        log.lsn -= 1
    log.lsn += 1
    log.move(2, 3, "c", (1, 0))
    log.lsn -= 1
    log.move(2, 3, "c", (1, 0))
    scenario.catch_up()
    assert (scenario.by_id(), scenario.dead_letters()) == ([{"id": 3, "v": "c", "big": "of 1"}], [])


_BY_SOURCE: dict[str, Any] = {"metadata": {"source_order": "_source_order"}, "order_by": "_source_order"}


@pytest.mark.parametrize("continues", [False, True])
def test_a_move_that_is_told_again_takes_nothing_of_a_row_that_came_back(tmp_path: Path, continues: bool) -> None:
    """What is repeated first brings the row of the old key again, without what that change did not send."""
    scenario = UpsertSource(tmp_path, **_BY_SOURCE)
    log = Log(scenario)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    log.keep(1, "b")
    log.move(1, 2, "c")
    log.keep(2, "d")
    scenario.catch_up()
    log.lsn = 1
    log.keep(1, "b")
    scenario.catch_up()
    assert [(row["id"], row["big"]) for row in scenario.by_id()] == [(1, None), (2, "of 1")]
    log.move(1, 2, "c")
    log.keep(2, "d")
    if continues:
        log.move(2, 3, "e")
    scenario.catch_up()
    assert [(row["id"], row["big"]) for row in scenario.by_id()] == [(3 if continues else 2, "of 1")]
    assert scenario.dead_letters() == []


def test_what_a_connector_repeats_gives_a_moved_row_nothing_that_is_newer_in_the_table(tmp_path: Path) -> None:
    """The connector died: behind the newest changes it tells older ones once more, and not yet all of them."""
    scenario = UpsertSource(tmp_path, **_BY_SOURCE)
    log = Log(scenario)
    log.write({"id": 3, "v": "a", "big": "of 3"})
    log.move(3, 1, "b")
    log.write({"id": 1, "v": "c", "big": "newer"}, op="u")
    scenario.catch_up()
    log.keep(1, "d")
    log.lsn = 0
    log.write({"id": 3, "v": "a", "big": "of 3"})
    log.move(3, 1, "b")
    scenario.catch_up()
    assert [(row["id"], row["v"], row["big"]) for row in scenario.by_id() if row["id"] == 1] == [(1, "d", "newer")]
    assert scenario.dead_letters() == []


@pytest.mark.parametrize("marks", [False, True])
def test_a_moved_row_has_what_its_old_row_has_in_the_table_where_older_changes_are_repeated(
    tmp_path: Path, *, marks: bool
) -> None:
    names = {**_BY_SOURCE["metadata"], **(MARKS["metadata"] if marks else {})}
    scenario = UpsertSource(tmp_path, **_BY_SOURCE | (MARKS if marks else {}) | {"metadata": names})
    log = Log(scenario)
    log.write({"id": 3, "v": "a", "big": "of 3"})
    log.write({"id": 3, "v": "b", "big": "newer"}, op="u")
    scenario.catch_up()
    log.move(3, 5, "c")
    log.lsn = 0
    log.write({"id": 3, "v": "a", "big": "of 3"})
    scenario.catch_up()
    assert [(row["v"], row["big"]) for row in scenario.by_id() if row["id"] == 5] == [("c", "newer")]
    assert scenario.dead_letters() == []


@pytest.mark.parametrize("order", ["source_order", "source_ts"])
def test_a_repeated_change_since_a_row_has_got_its_key_gives_nothing_that_is_newer_in_the_table(
    tmp_path: Path, order: str
) -> None:
    scenario = UpsertSource(tmp_path, metadata={order: "_order"}, order_by="_order")
    log = Log(scenario)

    def change(v: str, blob: str) -> None:
        log.write({"id": 2, "v": v, "big": PLACEHOLDER, "blob": blob}, op="u")

    log.write({"id": 1, "v": "a", "big": "of 1", "blob": "a"})
    log.move(1, 2, "b")
    change("c", "older")
    change("d", "newer")
    scenario.catch_up()
    change("e", PLACEHOLDER)
    log.lsn = 1
    log.move(1, 2, "b")
    change("c", "older")
    scenario.catch_up()
    assert [(row["v"], row["big"], row["blob"]) for row in scenario.by_id()] == [("e", "of 1", "newer")]


def test_a_row_of_a_snapshot_is_no_newer_than_the_change_behind_it_that_a_moved_row_has_its_value_of(
    tmp_path: Path,
) -> None:
    scenario = UpsertSource(tmp_path, **_BY_SOURCE)
    log = Log(scenario)
    log.lsn = 99
    log.write({"id": 1, "v": "a", "big": "read"}, op="r")
    scenario.catch_up()
    log.lsn = 50
    log.write({"id": 1, "v": "b", "big": "of 1"}, op="u")
    log.move(1, 2, "c")
    scenario.catch_up()
    assert [(row["id"], row["v"], row["big"]) for row in scenario.by_id()] == [(2, "c", "of 1")]


def test_a_row_that_the_key_had_before_has_nothing_for_the_one_that_gets_it(tmp_path: Path) -> None:
    """A snapshot has read both rows at a place beyond that of the transaction, which was open."""
    scenario = UpsertSource(tmp_path, **_BY_SOURCE)
    log = Log(scenario)
    log.lsn = 99
    log.write({"id": 1, "v": "a", "big": "of 1"}, op="r")
    log.write({"id": 2, "v": "a", "big": "of 2"}, op="r")
    scenario.catch_up()
    log.lsn = 50
    log.remove(2)
    log.move(1, 2, "b")
    scenario.catch_up()
    assert [(row["id"], row["v"], row["big"]) for row in scenario.by_id()] == [(2, "b", "of 1")]


@pytest.mark.parametrize("is_there", [False, True])
def test_a_row_that_a_truncate_has_taken_has_nothing_for_the_one_that_gets_its_key(
    tmp_path: Path, is_there: bool
) -> None:
    """The truncate is told in another partition, and the delete of the old key has not come yet."""
    scenario = UpsertSource(tmp_path, **_BY_SOURCE)
    log = Log(scenario, NOW_MS)
    log.write({"id": 1, "v": "a", "big": "gone"})
    if is_there:
        scenario.catch_up()
    log.lsn += 1
    truncate = {"op": "t", "before": None, "after": None, "source": {"connector": "postgresql", "lsn": log.lsn}}
    scenario.source.produce("a", 1, json.dumps(truncate).encode(), NOW_MS)
    log.write({"id": 5, "v": "a", "big": "of 5"}, partition=1)
    log.move(5, 1, "b", (None, 0))
    scenario.catch_up()
    assert "b" not in {row["v"] for row in scenario.by_id()}
    log.lsn -= 1
    log.move(5, 1, "b", (1, None))
    scenario.catch_up()
    assert [(row["id"], row["v"], row["big"]) for row in scenario.by_id()] == [(1, "b", "of 5")]
    assert scenario.dead_letters() == []


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_a_row_that_got_a_key_when_another_had_left_it_has_nothing_for_that_one(tmp_path: Path, cut: int) -> None:
    """The connector begins again with the tombstone of a delete that is older than the row of that key."""
    scenario = UpsertSource(tmp_path, **_BY_SOURCE)
    log = Log(scenario)

    def tell(cut: int = 0) -> None:
        log.write({"id": 1, "v": "a", "big": "of 1"})
        for number, (old, new, v) in enumerate(((1, 2, "b"), (2, 3, "c")), 1):
            if number == cut:
                scenario.catch_up()
            log.move(old, new, v)
        if cut == 3:
            scenario.catch_up()
        log.write({"id": 2, "v": "d", "big": "of another"})
        scenario.catch_up()

    log.write({"id": 3, "v": "z", "big": "of 3"})
    log.remove(3)
    begin = log.lsn
    tell()
    scenario.say(tombstone(3))
    log.lsn = begin
    tell(cut)
    # What was read up to there has taken the row of the old key, and brought none under the one that another has by now.
    is_nowhere = cut == 2
    found = [(row["id"], row["v"], row["big"]) for row in scenario.by_id()]
    assert found == [(2, "d", "of another"), *([] if is_nowhere else [(3, "c", "of 1")])]
    assert [kind for kind, _ in scenario.dead_letters()] == ["incomplete_primary_key_update"] * is_nowhere
