"""Mirrors of a database's tables: a whole service on the ports in memory, from Debezium's envelopes to rows by key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.catalog.memory import MemoryCatalog
from frazil.ingest.envelope import PLACEHOLDER
from frazil.ingest.table import Table
from frazil.spec.models import EnvelopeSpec
from frazil.types import Commit, Progress
from tests.unit.ingest.test_upsert_service import JSON_KEYS, UpsertWorld

Row = dict[str, Any]
Told = tuple[Any, Row | None]
"""The key and the value of a record."""


class MirrorWorld(UpsertWorld):
    """A table that mirrors topic `a`, whose records are Debezium's."""

    def __init__(self, root: Path, tasks: int = 1, **settings: Any) -> None:
        given = {"key": JSON_KEYS, "dead_letters": {"stop_above": 1.0}, **settings}
        super().__init__(root, tasks, envelope=EnvelopeSpec(kind="debezium"), **given)

    def letters(self) -> list[tuple[str, str]]:
        return super().letters() if self.catalog.load("n.t__dead_letters") is not None else []

    def by_id(self) -> list[Row]:
        return sorted(self.mirror(), key=lambda row: int(row["id"]))

    def say(self, *records: Told, partition: int = 0) -> Table:
        for key, value in records:
            self.put(json.dumps(key), value, partition)
        return self.catch_up()


def made(row: Row) -> Told:
    return {"id": row["id"]}, {"op": "c", "before": None, "after": row}


def changed(row: Row) -> Told:
    return {"id": row["id"]}, {"op": "u", "before": None, "after": row}


def gone(key: int) -> Told:
    return {"id": key}, {"op": "d", "before": {"id": key, "v": None}, "after": None}


def tombstone(key: int) -> Told:
    return {"id": key}, None


def flat(row: Row, op: str = "c") -> Told:
    return {"id": row["id"]}, {**row, "__op": op}


class Killed(BaseException):
    """The process ends here."""


class Log:
    """A source's log: changes of rows, each at a place of its own, as Debezium tells them."""

    def __init__(self, world: MirrorWorld) -> None:
        self.world = world
        self.lsn = 0

    def write(self, row: Row, partition: int = 0, op: str = "c") -> None:
        self.lsn += 1
        self._tell(row["id"], op, row, partition)

    def keep(self, key: int, v: str, partition: int = 0) -> None:
        """An update that leaves the large value as it is."""
        self.write({"id": key, "v": v, "big": PLACEHOLDER}, partition, "u")

    def move(self, old: int, new: int, v: str, partitions: tuple[int | None, int | None] = (0, 0)) -> None:
        """An update of the key that leaves the large value as it is; None: that half is not told."""
        self.lsn += 1
        if partitions[0] is not None:
            self._tell(old, "d", {"id": old, "v": None, "big": None}, partitions[0])
            self.world.put(json.dumps({"id": old}), None, partitions[0])
        if partitions[1] is not None:
            headers = (("__debezium.oldkey", json.dumps({"id": old}).encode()),)
            self._tell(new, "c", {"id": new, "v": v, "big": PLACEHOLDER}, partitions[1], headers)

    def _tell(self, key: int, op: str, row: Row, partition: int, headers: Any = ()) -> None:
        images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        value = {"op": op, **images, "source": {"connector": "postgresql", "lsn": self.lsn}}
        name = json.dumps({"id": key}).encode()
        self.world.source.produce("a", partition, json.dumps(value).encode(), key=name, headers=headers)


def test_the_key_columns_are_those_of_the_records_keys(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path)
    world.say(made({"id": 1, "v": "a"}), made({"id": 2, "v": "b"}))
    world.say(changed({"id": 1, "v": "c"}), gone(2), tombstone(2))
    assert world.mirror() == [{"id": 1, "v": "c"}]


def test_keys_and_values_with_their_schemas(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path)
    field = {"type": "int64", "optional": False, "field": "id"}
    schema = {"type": "struct", "fields": [field], "optional": False, "name": "k"}
    wrapped = [
        ({"schema": schema, "payload": key}, {"schema": None, "payload": value})
        for key, value in (made({"id": 1, "v": "a"}), made({"id": 2, "v": "b"}), gone(1))
    ]
    world.say(*wrapped, ({"schema": schema, "payload": {"id": 1}}, None))
    assert world.mirror() == [{"id": 2, "v": "b"}]
    world.say(({"schema": schema, "payload": {"id": 2}}, {"schema": None, "payload": None}))
    assert world.mirror() == []


def test_a_tombstone_alone_deletes_the_row_of_its_key(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path)
    world.say(flat({"id": 1, "v": "a"}), flat({"id": 2, "v": "b"}), flat({"id": 3, "v": "c"}))
    table = world.say(tombstone(1), flat({"id": 2, "v": "d"}, "u"), tombstone(3), flat({"id": 3, "v": "e"}))
    assert world.mirror() == [{"id": 2, "v": "d"}, {"id": 3, "v": "e"}]
    assert table.passed_over == {}


def test_a_tombstone_after_its_delete_says_nothing_new(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path)
    world.say(made({"id": 1, "v": "a"}), made({"id": 2, "v": "b"}))
    table = world.say(gone(1), tombstone(1), gone(2))
    assert (world.mirror(), table.passed_over) == ([], {"tombstone": 1})
    table = world.say(tombstone(2), made({"id": 2, "v": "c"}), (None, None))
    assert (world.mirror(), world.letters()) == ([{"id": 2, "v": "c"}], [])
    assert table.passed_over == {"tombstone": 1}


def test_a_tombstone_whose_key_lacks_a_key_column_is_passed_over(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path, key_columns=("v",))
    world.say(made({"id": 1, "v": "a"}), made({"id": 2, "v": "b"}))
    table = world.say(tombstone(1))
    assert (len(world.mirror()), world.letters(), table.passed_over) == (2, [], {"tombstone": 1})


def test_rows_are_kept_and_marked_as_deleted(tmp_path: Path) -> None:
    marks: dict[str, Any] = {"deletes": "mark", "metadata": {"deleted": "_deleted", "deleted_at": "_deleted_at"}}
    world = MirrorWorld(tmp_path, **marks)
    world.say(made({"id": 1, "v": "a"}), made({"id": 2, "v": "b"}))
    world.say(gone(1), tombstone(1))
    assert world.mirror("id", "v", "_deleted") == [
        {"id": 2, "v": "b", "_deleted": False},
        {"id": 1, "v": "a", "_deleted": True},
    ]
    times = {row["id"]: row["_deleted_at"] for row in world.mirror()}
    assert (times[1] is None, times[2]) == (False, None)
    world.say(made({"id": 1, "v": "c"}))
    assert {"id": 1, "v": "c", "_deleted": False} in world.mirror("id", "v", "_deleted")


def test_a_truncate_of_a_table_that_marks_its_deletes(tmp_path: Path) -> None:
    marks: dict[str, Any] = {"deletes": "mark", "metadata": {"deleted": "_deleted", "deleted_at": "_deleted_at"}}
    world = MirrorWorld(tmp_path, **marks)
    world.say(made({"id": 1, "v": "a"}), made({"id": 2, "v": "b"}))
    world.say((None, {"op": "t", "before": None, "after": None}), made({"id": 3, "v": "c"}))
    assert world.mirror("id") == [{"id": 3}]


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("partitions", [(0, 0), (0, 1), (1, 0)])
def test_a_row_that_gets_another_key_keeps_what_was_not_sent(
    tmp_path: Path, partitions: tuple[int, int], tasks: int
) -> None:
    world = MirrorWorld(tmp_path, tasks)
    log, from_, to = Log(world), *partitions
    log.write({"id": 1, "v": "a", "big": "of 1"}, from_)
    log.write({"id": 2, "v": "a", "big": "of 2"}, to)
    world.catch_up()
    log.keep(1, "b", from_)
    log.move(1, 7, "c", partitions)
    log.write({"id": 1, "v": "d", "big": "anew"}, from_)
    log.keep(7, "e", to)
    world.catch_up()
    assert world.letters() == []
    assert world.by_id() == [
        {"id": 1, "v": "d", "big": "anew"}, {"id": 2, "v": "a", "big": "of 2"}, {"id": 7, "v": "e", "big": "of 1"},
    ]  # fmt: skip


def test_a_row_that_moves_more_than_once_in_a_batch(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path)
    log = Log(world)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    world.catch_up()
    log.move(1, 2, "b", (0, 1))
    log.move(2, 3, "c", (1, 0))
    log.write({"id": 4, "v": "a", "big": "of 4"})
    log.move(4, 1, "d", (0, 0))
    world.catch_up()
    assert (world.letters(), world.by_id()) == (
        [],
        [{"id": 1, "v": "d", "big": "of 4"}, {"id": 3, "v": "c", "big": "of 1"}],
    )


@pytest.mark.parametrize("is_done", [False, True])
def test_a_kill_at_the_commit_of_moved_rows_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    world, kept = MirrorWorld(tmp_path), MemoryCatalog.commit
    log = Log(world)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    world.catch_up()
    log.move(1, 2, "b", (0, 1))

    def killed(self: MemoryCatalog, commit: Commit) -> Progress:
        if is_done:
            kept(self, commit)
        raise Killed

    monkeypatch.setattr(MemoryCatalog, "commit", killed)
    with pytest.raises(Killed):
        world.catch_up()
    monkeypatch.undo()
    log.keep(2, "c", 1)
    world.catch_up()
    assert (world.by_id(), world.letters()) == ([{"id": 2, "v": "c", "big": "of 1"}], [])


def test_a_row_whose_old_row_is_gone_is_a_dead_letter(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path)
    log = Log(world)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    world.catch_up()
    log.move(1, 2, "b", (0, None))
    world.catch_up()
    log.lsn -= 1
    log.move(1, 2, "b", (None, 1))
    log.write({"id": 3, "v": "a", "big": "of 3"})
    world.catch_up()
    assert world.by_id() == [{"id": 3, "v": "a", "big": "of 3"}]
    assert [kind for kind, _ in world.letters()] == ["moved_in_part"]


@pytest.mark.parametrize("told", [b'{"id": "one"}', b'{"id": 1e400}', b"{}", b"7", b"\xff"])
def test_an_old_key_that_cannot_be_read_makes_a_dead_letter(tmp_path: Path, told: bytes) -> None:
    world = MirrorWorld(tmp_path)
    log = Log(world)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    world.catch_up()
    value = json.dumps(made({"id": 2, "v": "b", "big": PLACEHOLDER})[1]).encode()
    world.source.produce("a", 0, value, key=b'{"id": 2}', headers=(("__debezium.oldkey", told),))
    world.catch_up()
    assert world.by_id() == [{"id": 1, "v": "a", "big": "of 1"}]
    assert [kind for kind, _ in world.letters()] == ["unsent_value"]


def test_a_truncate_leaves_nothing_to_take_values_from(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path)
    log = Log(world)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    world.catch_up()
    world.put(None, {"op": "t", "before": None, "after": None})
    log.move(1, 2, "b")
    world.catch_up()
    assert (world.by_id(), [kind for kind, _ in world.letters()]) == ([], ["moved_in_part"])


def test_a_move_that_is_told_again_changes_nothing(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path)
    log = Log(world)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    world.catch_up()
    for _ in range(2):
        log.move(1, 2, "b", (0, 1))
        world.catch_up()
        log.lsn -= 1
    log.lsn += 1
    log.move(2, 3, "c", (1, 0))
    log.lsn -= 1
    log.move(2, 3, "c", (1, 0))
    world.catch_up()
    assert (world.by_id(), world.letters()) == ([{"id": 3, "v": "c", "big": "of 1"}], [])


def test_a_mirror_in_the_order_of_a_column(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path, key_columns=("id",), order_by="v")
    world.say(made({"id": 1, "v": "2"}), made({"id": 2, "v": "2"}))
    world.say(changed({"id": 1, "v": "1"}), changed({"id": 2, "v": "3"}), gone(2), tombstone(2))
    assert world.by_id() == [{"id": 1, "v": "2"}]
    log = Log(world)
    log.write({"id": 5, "v": "1", "big": "of 5"})
    world.catch_up()
    log.move(5, 6, "2")
    world.catch_up()
    assert [row["id"] for row in world.by_id()] == [1]
    assert [kind for kind, _ in world.letters()] == ["moved_in_part"]
