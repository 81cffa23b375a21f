"""Mirrors of a database's tables: a whole service on the ports in memory, from Debezium's envelopes to rows by key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from frazil.ingest.table import Table
from frazil.spec.models import EnvelopeSpec
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
