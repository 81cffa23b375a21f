"""Columns of `metadata` in a table that another tool has made: their types hold the values, or the table stops."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.types import (
    BooleanType,
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from frazil.ingest.tables.state import RunState
from frazil.schema.evolve import new_schema
from tests.unit.ingest.service_scene import Scene, only


def made(root: Path, kind: IcebergType, **metadata: str) -> Scene:
    """A topic with a record, and its table with the column `m` of this type, made by another tool."""
    scene = Scene(root, "a", metadata=metadata)
    scene.catalog.create("n.a", new_schema([("id", LongType()), ("m", kind)]), {}, 2)
    scene.catalog.append_foreign("n.a", summary={})
    scene.feed("a", {"id": 1})
    return scene


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("timestamp", TimestamptzType()),
        ("timestamp", TimestampType()),
        ("timestamp", StringType()),
        ("partition", IntegerType()),
        ("partition", LongType()),
        ("offset", LongType()),
        ("topic", StringType()),
    ],
    ids=str,
)
def test_a_type_that_holds_the_metadata_is_written(field: str, kind: IcebergType, tmp_path: Path) -> None:
    scene = made(tmp_path, kind, **{field: "m"})
    scene.catch_up()
    [row] = scene.rows("n.a")
    assert row["m"] is not None


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("timestamp", LongType()),
        ("timestamp", DateType()),
        ("offset", IntegerType()),
        ("partition", BooleanType()),
        ("topic", LongType()),
    ],
    ids=str,
)
def test_another_type_stops_the_table_before_a_row_is_written(field: str, kind: IcebergType, tmp_path: Path) -> None:
    """Milliseconds of another tool would be followed by microseconds."""
    scene = made(tmp_path, kind, **{field: "m"})
    table = only(scene.catch_up())
    assert (table.status.run_state, scene.rows("n.a")) == (RunState.STOPPED, [])
    assert table.status.reason.startswith(f"`metadata` writes {field} to `m` as ")
    assert table.status.reason.endswith(f", and the table has it as {kind}")


def test_the_remedy_for_a_number_is_the_query_that_makes_it(tmp_path: Path) -> None:
    scene = made(tmp_path, LongType(), timestamp="m")
    assert only(scene.catch_up()).status.remedy == (
        "take `timestamp` out of `metadata`, and write `unix_millis(_timestamp) as m` in a query,"
        " `select: select *, … from records`"
    )
