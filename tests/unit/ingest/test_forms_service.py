"""Schemas whose bytes stay as they are while their types change, over restarts; and remedies of messages, followed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from frazil.spec import ColumnSpec
from frazil.spec.load import load_spec
from frazil.spec.types import parse_type
from tests.unit.ingest.test_forms import message, proto
from tests.unit.ingest.test_schemas import World, avro
from tests.unit.spec.pipeline_file import with_table

_UUID = "12345678-abcd-4234-9234-567812345678"
_OPEN = {"dead_letters": {"stop_above": 1.0}}


def columns_of(words: str, path: Path) -> tuple[ColumnSpec, ...]:
    """What a message says to write under `columns`, as the pipeline file reads it."""
    found = re.search(r"`(columns: \{.*\})`", words)
    assert found is not None, words
    path.write_text(with_table(found[1]))
    return load_spec(path).tables[0].columns


def columns(world: World) -> dict[str, str]:
    state = world.catalog.load("n.t")
    assert state is not None
    return {field.name: re.sub(r"\d+: ", "", str(field.field_type)) for field in state.schema.fields}


def letters(world: World) -> list[str]:
    """Why records are dead letters."""
    return (
        [row["message"] for row in world.rows("n.t__dead_letters")] if world.catalog.load("n.t__dead_letters") else []
    )


def put(world: World, text: str, *records: dict[str, Any]) -> None:
    """Records of a schema of Avro, read by a process of its own."""
    world.produce(world.register(text), text, *records)
    world.settle(world.start())


@pytest.mark.parametrize(
    ("first", "later", "column"),
    [
        ("string", {"type": "string", "logicalType": "uuid"}, "string"),
        ("long", {"type": "long", "logicalType": "timestamp-millis"}, "long"),
        ("int", {"type": "int", "logicalType": "date"}, "int"),
        ({"type": "array", "items": "long"}, {"type": "array", "items": {"type": "long", "logicalType": "time-micros"}},
         "list<long>"),
    ],
)  # fmt: skip
def test_a_logical_type_comes_to_a_field_and_goes_again(tmp_path: Path, first: Any, later: Any, column: str) -> None:
    world = World(tmp_path)
    value: Any = {"string": _UUID, "list<long>": [5]}.get(column, 5)
    plain, logical = avro(id="int", v=first), avro(id="int", v=later)
    for number, schema in enumerate((plain, logical, plain, logical), 1):
        put(world, schema, {"id": number, "v": value})
    assert columns(world) == {"id": "int", "v": column}
    assert [(row["id"], row["v"]) for row in world.rows()] == [(number, value) for number in range(1, 5)]
    assert world.catalog.load("n.t__dead_letters") is None


def test_a_uuid_that_becomes_text_again_stays_in_its_column(tmp_path: Path) -> None:
    world = World(tmp_path)
    plain, logical = avro(v="string"), avro(v={"type": "string", "logicalType": "uuid"})
    put(world, logical, {"v": _UUID})
    put(world, plain, {"v": _UUID})
    assert columns(world) == {"v": "uuid"}
    assert [row["v"] for row in world.rows()] == [bytes.fromhex(_UUID.replace("-", ""))] * 2


@pytest.mark.parametrize(
    ("logical", "plain", "value", "column"),
    [
        ("timestamp-millis", "long", 1_700_000_000_123, "timestamptz"),
        ("local-timestamp-millis", "long", 1_700_000_000_123, "timestamp"),
        ("date", "int", 20_000, "date"),
        ("time-millis", "int", 1234, "time"),
    ],
)
def test_where_a_logical_type_goes_the_remedy_gives_the_numbers_their_meaning(
    tmp_path: Path, logical: str, plain: str, value: int, column: str
) -> None:
    world = World(tmp_path, **_OPEN)
    with_type, without = avro(v={"type": plain, "logicalType": logical}), avro(v=plain)
    put(world, with_type, {"v": value})
    put(world, without, {"v": value})
    (reason,) = letters(world)
    world.table = world.table.model_copy(update={"columns": columns_of(reason, tmp_path / "remedy.yaml")})
    put(world, without, {"v": value})
    one, other = (row["v"] for row in world.rows())
    assert one == other
    assert columns(world) == {"v": column}
    assert len(letters(world)) == 1


def test_a_number_that_came_to_a_text_column_is_kept_as_text_by_the_remedy(tmp_path: Path) -> None:
    world = World(tmp_path, **_OPEN)
    put(world, avro(v="string"), {"v": "a"})
    put(world, avro(v="int"), {"v": 7})
    (reason,) = letters(world)
    world.table = world.table.model_copy(update={"columns": columns_of(reason, tmp_path / "remedy.yaml")})
    put(world, avro(v="int"), {"v": 8})
    assert [row["v"] for row in world.rows()] == ["a", "8"]


_EVENT = """
syntax = "proto3";
message Ev {{ int32 id = 1; oneof st {{ Placed placed = 2; }} }}
message Placed {{ {} }}
"""


def tell(world: World, text: str, content: dict[str, Any]) -> None:
    """A record of Protobuf, read by a process of its own."""
    schema_id = world.registry.register("protobuf", text, subject="a-value")
    world.source.produce("a", 0, message(proto(text), schema_id, content))
    world.settle(world.start())


@pytest.mark.parametrize("kind", ["", "struct<by: string>"])
def test_a_message_gets_its_first_field(tmp_path: Path, kind: str) -> None:
    without, having = _EVENT.format(""), _EVENT.format("string by = 1;")
    world = World(tmp_path, value={"format": "protobuf"}, **_OPEN)
    if kind:
        told = ColumnSpec(name="placed", type=parse_type(kind))
        world.table = world.table.model_copy(update={"columns": (told,)})
    for number, (text, placed) in enumerate([(without, {}), (having, {"by": "x"}), (without, {})], 1):
        tell(world, text, {"id": number, "placed": placed})
    rows = [(row["id"], row["placed"]) for row in world.rows()]
    if kind:
        assert (rows, letters(world)) == ([(1, {"by": None}), (2, {"by": "x"}), (3, {"by": None})], [])
        return
    assert rows == [(1, True), (3, True)]
    (reason,) = letters(world)
    world.table = world.table.model_copy(update={"columns": columns_of(reason, tmp_path / "remedy.yaml")})
    tell(world, having, {"id": 4, "placed": {"by": "y"}})
    tell(world, without, {"id": 5, "placed": {}})
    later = [(row["id"], row["placed"], row["placed_fields"]) for row in world.rows() if row["id"] > 3]
    assert later == [(4, None, {"by": "y"}), (5, None, {"by": None})]
    assert len(letters(world)) == 1


def test_a_message_loses_its_last_field(tmp_path: Path) -> None:
    world = World(tmp_path, value={"format": "protobuf"})
    tell(world, _EVENT.format("string by = 1;"), {"id": 1, "placed": {"by": "x"}})
    tell(world, _EVENT.format(""), {"id": 2, "placed": {}})
    tell(world, _EVENT.format(""), {"id": 3})
    assert [row["placed"] for row in world.rows()] == [{"by": "x"}, {"by": None}, None]
