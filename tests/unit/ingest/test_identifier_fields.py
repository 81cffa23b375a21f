"""Identifier fields: those of an existing upsert table identify its rows where the pipeline file names no `key_columns`,
a difference is reported, and a new upsert table has them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from frazil.ingest.tables.preflight import identified_otherwise
from frazil.ingest.tables.settings import identifier_names
from frazil.ingest.tables.table import Table
from frazil.spec.settings import ColumnSpec, KeySpec
from tests.unit.ingest.service_scene import Scene

_COLUMNS = Schema(
    NestedField(1, "tenant", StringType(), required=True),
    NestedField(2, "v", LongType(), required=False),
    NestedField(3, "id", LongType(), required=True),
    identifier_field_ids=[3, 1],
)


def test_rows_are_identified_by_the_identifier_fields_of_an_existing_table(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", mode="upsert", key=KeySpec(format="json"))
    scene.catalog.create("n.a", _COLUMNS, {}, 3)
    for key, v in ((b'{"id": 1, "tenant": "x"}', 1), (b'{"id": 2}', 2), (b'{"tenant": "x", "id": 1}', 3)):
        scene.source.produce("a", 0, json.dumps({"v": v}).encode(), scene.clock.now_ms(), key=key)
    scene.catch_up(turns=60)
    assert scene.rows("n.a") == [{"tenant": "x", "v": 3, "id": 1}]
    assert scene.dead_letters("n.a") == [("a", 0, 1)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"key_columns": ("id", "tenant")}, ""),
        ({"key": KeySpec(format="json")}, ""),
        ({"key_columns": ("id",)}, "rows are identified by id, and the table's identifier fields are tenant, id"),
        (
            {"metadata": {"key": "_key"}},
            "rows are identified by _key, and the table's identifier fields are tenant, id",
        ),
    ],
)
def test_other_key_columns_than_the_identifier_fields_are_reported(
    tmp_path: Path, settings: dict[str, Any], expected: str
) -> None:
    scene = Scene(tmp_path, "a", mode="upsert", **settings)
    table = Table(scene.spec("a").tables[0])
    table.state = scene.catalog.create("n.a", _COLUMNS, {}, 3)
    found = identified_otherwise(table)
    assert found.startswith(expected)
    assert ("`key_columns: [tenant, id]`" in found) == bool(expected)


@pytest.mark.parametrize(
    ("settings", "identifiers"),
    [
        ({"key": KeySpec(format="json")}, ["id"]),
        ({"key_columns": ("o.id", "id")}, ["id", "o.id"]),
        ({"metadata": {"key": "_key"}}, ["_key"]),
        ({"key_columns": ("x",)}, []),
        ({"key_columns": ("id",), "columns": (ColumnSpec(name="v", type=LongType()),)}, ["id"]),
        ({"key_columns": ("ID",), "columns": (ColumnSpec(name="v", type=LongType()),)}, ["id"]),
        ({"key_columns": ("o.id", "id"), "columns": (ColumnSpec(name="id", type=LongType()),)}, ["id", "o.id"]),
    ],
)
def test_key_columns_of_a_new_table_are_its_identifier_fields(
    tmp_path: Path, settings: dict[str, Any], identifiers: list[str]
) -> None:
    scene = Scene(tmp_path, "a", mode="upsert", **settings)
    for value in ({"id": 1, "o": {"id": 7}, "x": 0.5}, {"id": 1, "o": {"id": 7}, "x": 0.5}, {"v": 3}):
        key = json.dumps({"id": value["id"]}).encode() if "id" in value else None
        scene.source.produce("a", 0, json.dumps(value).encode(), scene.clock.now_ms(), key=key)
    scene.catch_up(turns=60)
    assert len(scene.rows("n.a")) == 1
    assert scene.dead_letters("n.a") == [("a", 0, 2)]
    state = scene.catalog.load("n.a")
    assert state is not None
    assert sorted(identifier_names(state.schema)) == identifiers
    required = {
        str(state.schema.find_column_name(n)) for n in state.schema.field_ids if state.schema.find_field(n).required
    }
    assert required == {*identifiers, *({"o"} if "o.id" in identifiers else ())}
