"""Dead letters of tables whose records replace rows, with marks for deletes and with envelopes of changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from frazil.dead_letters.files import ReplayResult
from frazil.decode.settings import PLACEHOLDER
from frazil.spec.settings import EnvelopeSpec, MetadataField
from frazil_testing.twins import live_rows
from packages.deadletters.tests.unit.scene import TABLE
from packages.deadletters.tests.unit.upsert_scene import LARGE, PLACES, Upserted


@pytest.mark.parametrize("knows", ["topic", "both"])
def test_where_deleted_rows_are_marked_the_table_knows_them(tmp_path: Path, knows: str) -> None:
    marks: dict[MetadataField, str] = {**PLACES, "deleted": "_deleted", "deleted_at": "_deleted_at"}
    scene = Upserted(tmp_path, knows, deletes="soft", metadata=marks)
    scene.tell((1, 10), (1, LARGE), (2, LARGE), (2, None), (3, LARGE)).cure()
    assert scene.replay() == ReplayResult(2, 1)
    told = sorted((row["id"], row["v"], row["_deleted"]) for row in live_rows(scene.catalog, TABLE) if row["id"] != 2)
    assert told == [(1, LARGE, False), (3, LARGE, False)]
    assert [row["_deleted"] for row in live_rows(scene.catalog, TABLE) if row["id"] == 2] == [True]
    assert scene.reasons() == ["superseded"]


class Source(Upserted):
    """A table of Debezium's envelopes."""

    def __init__(self, root: Path, **settings: Any) -> None:
        super().__init__(root, envelope=EnvelopeSpec(kind="debezium"), **settings)

    def row(self, op: str, key: int | None, v: int = 0, lsn: int = 0, headers: Any = (), **more: Any) -> None:
        """One change as Debezium tells it."""
        image = None if key is None else {"id": key, "v": v, **more}
        images = {"before": image, "after": None} if op == "d" else {"before": None, "after": image}
        value = {"op": op, **images, "source": {"connector": "postgresql", "lsn": lsn}}
        self.send(None if key is None else json.dumps({"id": key}), value, headers=headers)


def test_a_truncate_behind_a_dead_letter_is_newer_and_the_dead_letter_of_one_stays(tmp_path: Path) -> None:
    scene = Source(tmp_path, partitions=1)
    scene.row("c", 9, 90)
    scene.row("c", 1, LARGE)
    scene.row("t", None)
    scene.row("c", 2, 20)
    scene.row("c", 3, LARGE)
    scene.catch_up()
    scene.cure()
    assert scene.replay() == ReplayResult(1, 1)
    assert (scene.upsert_table(), scene.reasons()) == ({2: 20, 3: LARGE}, ["superseded"])


def test_a_truncate_from_before_the_declared_order_is_newer_than_the_dead_letter(tmp_path: Path) -> None:
    scene = Source(tmp_path, partitions=1, metadata={"source_order": "_source_order"})
    scene.row("c", 9, 90, lsn=1)
    scene.row("c", 1, LARGE, lsn=2)
    scene.row("t", None, lsn=3)
    scene.row("c", 2, 20, lsn=4)
    scene.catch_up()
    scene.cure(order_by="_source_order")
    assert scene.replay() == ReplayResult(0, 1)
    assert (scene.upsert_table(), scene.reasons()) == ({2: 20}, ["superseded"])


def test_the_dead_letter_of_a_truncate_stays(tmp_path: Path) -> None:
    words = EnvelopeSpec(kind="debezium")
    scene = Upserted(tmp_path)
    scene.tell((1, 10))
    scene.source.produce("a", 0, b'{"op": "t", "before": null, "after": null, "id": {}}', 1000, key=b"1")
    scene.catch_up()
    assert scene.reasons() == ["type_mismatch"]
    scene.cure(envelope=words)
    assert (scene.replay(), scene.reasons(), scene.upsert_table()) == (ReplayResult(0, 1), ["order_unknown"], {1: 10})


def test_a_part_of_a_primary_key_update_is_refused_with_a_remedy(tmp_path: Path) -> None:
    scene = Source(tmp_path)
    scene.row("c", 1, 10, 1, big="of 1")
    scene.catch_up()
    scene.row("d", 1, 10, 2)
    scene.catch_up()
    scene.row("c", 2, 10, 2, headers=(("__debezium.oldkey", b'{"id": 1}'),), big=PLACEHOLDER)
    scene.row("c", 3, LARGE, 3, big="of 3")
    scene.catch_up()
    assert scene.reasons() == ["incomplete_primary_key_update", "out_of_range"]
    scene.cure()
    left = ["order_unknown"]
    assert (scene.replay(), scene.reasons(), scene.upsert_table()) == (
        ReplayResult(1, 1),
        left,
        {3: LARGE},
    )
    (dead_letter,) = scene.dead_letters()
    assert "part of a primary-key update: produce the record to the topic again" in dead_letter["message"]
    scene.check_files()


def test_the_record_of_a_change_of_two_rows_is_refused_with_a_remedy(tmp_path: Path) -> None:
    scene = Source(tmp_path)
    scene.row("c", 1, 10, 1)
    images = {"before": {"id": 1, "v": 10}, "after": {"id": 2, "v": LARGE}}
    scene.send(json.dumps({"id": 2}), {"op": "u", **images, "source": {"connector": "mysql", "pos": 2}})
    scene.catch_up()
    scene.cure()
    assert (scene.replay(), scene.reasons(), scene.upsert_table()) == (ReplayResult(0, 1), ["order_unknown"], {1: 10})
    (dead_letter,) = scene.dead_letters()
    assert dead_letter["message"].startswith("the record changes several rows")
    scene.send(json.dumps({"id": 2}), {"op": "u", **images, "source": {"connector": "mysql", "pos": 2}})
    scene.catch_up()
    assert scene.upsert_table() == {2: LARGE}
    scene.check_files()


def test_a_value_that_was_not_sent_comes_from_the_row_that_is_there(tmp_path: Path) -> None:
    scene = Source(tmp_path)
    scene.row("c", 1, 10, 1, big="of 1")
    scene.row("u", 1, LARGE, 2, big=PLACEHOLDER)
    scene.catch_up()
    scene.cure()
    assert (scene.replay(), scene.upsert_table()) == (ReplayResult(1, 0), {1: LARGE})
    assert [row["big"] for row in live_rows(scene.catalog, TABLE)] == ["of 1"]


def test_a_dead_letter_from_before_a_truncate_of_another_partition_is_superseded(tmp_path: Path) -> None:
    order: dict[MetadataField, str] = {"source_order": "_source_order"}
    scene = Source(tmp_path, metadata=order, order_by="_source_order")
    scene.row("c", 1, LARGE, lsn=1)
    scene.row("c", 2, LARGE, lsn=5)
    truncate = {"op": "t", "before": None, "after": None, "source": {"connector": "postgresql", "lsn": 3}}
    scene.send(None, truncate, partition=1)
    scene.catch_up()
    scene.cure()
    assert scene.replay() == ReplayResult(1, 1)
    assert (scene.upsert_table(), scene.reasons()) == ({2: LARGE}, ["superseded"])


@pytest.mark.parametrize("knows", ["columns", "topic", "both"])
def test_a_dead_letter_behind_a_snapshot_row_counts_though_its_offset_is_before_it(tmp_path: Path, knows: str) -> None:
    order: dict[MetadataField, str] = {"source_order": "_source_order"}
    metadata = {**PLACES, **order} if knows != "topic" else order
    scene = Source(tmp_path, knows=knows, metadata=metadata, order_by="_source_order")
    scene.row("u", 3, LARGE, lsn=90)
    for key in (1, 2, 3):
        scene.row("r", key, 10, lsn=150)
    scene.row("u", 1, LARGE, lsn=100)
    scene.row("u", 2, LARGE, lsn=101)
    scene.row("u", 2, 20, lsn=102)
    scene.catch_up()
    assert scene.upsert_table() == {1: 10, 2: 20, 3: 10}
    scene.cure()
    assert scene.replay() == ReplayResult(1, 2)
    assert (scene.upsert_table(), scene.reasons()) == ({1: LARGE, 2: 20, 3: 10}, ["superseded"] * 2)


@pytest.mark.parametrize("knows", ["topic", "both"])
def test_the_tombstone_of_a_delete_is_no_change_behind_its_dead_letter(tmp_path: Path, knows: str) -> None:
    """Wherever the records behind dead letters are cut as they are read."""
    scene = Source(tmp_path, knows=knows, key_columns=())
    for key in range(1, 6):
        scene.row("c", key, key)
    for key in (1, 2, 4):  # By now the source's table has another primary key.
        name = json.dumps({"id": key, "v": key})
        scene.send(name, {"op": "d", "before": {"id": key, "v": key}, "after": None, "source": {}})
        scene.source.produce("a", 0, b"null" if key == 4 else None, 1000, key=name.encode())
        if key == 2:
            scene.send(name, {"op": "c", "before": None, "after": {"id": key, "v": key}, "source": {}})
    scene.catch_up()
    assert (sorted(scene.upsert_table()), scene.reasons()) == ([1, 2, 3, 4, 5], ["key_mismatch"] * 4)
    scene.cure(key_columns=("id", "v"))
    assert scene.replay() == ReplayResult(4, 0)
    assert sorted(scene.upsert_table()) == [2, 3, 5]
    scene.check_files()


def test_the_tombstone_of_a_late_delete_is_not_a_change_behind_a_dead_letter(tmp_path: Path) -> None:
    """Though the records behind dead letters are cut between the two."""
    order: dict[MetadataField, str] = {"source_order": "_source_order"}
    scene = Source(tmp_path, metadata=order, order_by="_source_order")
    scene.row("c", 1, LARGE, lsn=9)
    scene.row("c", 2, 20, lsn=10)
    scene.row("d", 1, lsn=5)
    scene.send(json.dumps({"id": 1}), None)
    scene.catch_up()
    scene.cure()
    assert (scene.replay(), scene.upsert_table()) == (ReplayResult(1, 0), {1: LARGE, 2: 20})


def test_a_dead_letter_without_a_required_value_that_no_row_has_stays(tmp_path: Path) -> None:
    scene = Source(tmp_path, schema_evolution="freeze")
    optional = {"id": LongType(), "v": IntegerType(), "at": LongType()}
    fields = [NestedField(n, name, kind, required=False) for n, (name, kind) in enumerate(optional.items(), 1)]
    scene.catalog.create(TABLE, Schema(*fields, NestedField(4, "big", StringType(), required=True)), {}, 3)
    scene.row("c", 1, 10, 1, big="of 1")
    scene.row("u", 1, LARGE, 2, big=PLACEHOLDER)
    scene.row("u", 2, LARGE, 3, big=PLACEHOLDER)
    scene.catch_up()
    scene.cure()
    assert (scene.replay(), scene.upsert_table(), scene.reasons()) == (
        ReplayResult(1, 1),
        {1: LARGE},
        ["missing_value"],
    )
    scene.check_files()
