"""A column is never nested deeper than readers of Parquet can open: its records are bad ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import IcebergType, IntegerType, ListType, MapType, NestedField, StringType, StructType

from frazil.ingest.tables.state import RunState
from frazil.schema.arrow import arrow_type
from frazil.schema.evolve import NameConflict, new_schema
from frazil.schema.parts import MAX_LEVELS
from frazil.spec.settings import DeadLettersSpec, EnvelopeSpec, KeySpec
from tests.unit.ingest.service_scene import Scene, only
from tests.unit.schema.test_name_case import dead_letters_of


def lists(depth: int) -> Any:
    """A number in a list in a list and so on."""
    value: Any = 7
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "settings",
    [{}, {"mode": "upsert", "key_columns": ("id",)}, {"envelope": EnvelopeSpec(kind="debezium"), "changelog": True}],
    ids=["append", "upsert", "changelog"],
)
def test_lists_too_deep_for_readers_of_parquet_are_bad_records_alone(tmp_path: Path, settings: dict[str, Any]) -> None:
    scene = Scene(tmp_path, "a", dead_letters=DeadLettersSpec(stop_above=1.0), key=KeySpec(format="json"), **settings)
    deepest = MAX_LEVELS // 2
    for n, depth in enumerate((deepest, deepest + 1, 1, deepest + 1)):
        row = {"id": n, f"v{depth}": lists(depth), "s": [{f"w{depth}": lists(depth - 2)}]}
        value = {"op": "c", "before": None, "after": row} if "envelope" in settings else row
        scene.source.produce("a", 0, json.dumps(value).encode(), scene.clock.now_ms(), key=b'{"id": %d}' % n)
        assert only(scene.catch_up()).status.run_state is RunState.WAITING
    found = {row["id"]: (row[f"v{deepest}"], row["v1"]) for row in scene.rows("n.a")}
    assert found == {0: (lists(deepest), None), 2: (None, lists(1))}
    assert [(offset, kind) for offset, kind, _, _ in dead_letters_of(scene)] == [(1, "too_deep"), (3, "too_deep")]


def _nested(around: Callable[[IcebergType], IcebergType], depth: int) -> IcebergType:
    kind: IcebergType = IntegerType()
    for _ in range(depth):
        kind = around(kind)
    return kind


@pytest.mark.parametrize(
    ("around", "most"),
    [
        (lambda kind: ListType(0, kind, False), 49),
        (lambda kind: MapType(0, StringType(), 0, kind, False), 49),
        (lambda kind: StructType(NestedField(0, "a", kind, required=False)), 98),
        (lambda kind: ListType(0, StructType(NestedField(0, "a", kind, required=False)), False), 32),
    ],
    ids=["lists", "maps", "structs", "lists of structs"],
)
def test_the_limit_is_that_of_arrow(tmp_path: Path, around: Callable[[IcebergType], IcebergType], most: int) -> None:
    path, kind = tmp_path / "f.parquet", _nested(around, most)
    pq.write_table(pa.table({"v": pa.nulls(1, arrow_type(kind))}), path)
    assert (pq.ParquetFile(path).read().num_rows, len(new_schema([("v", kind)]).fields)) == (1, 1)
    pq.write_table(pa.table({"v": pa.nulls(1, arrow_type(around(kind)))}), path)
    with pytest.raises(OSError, match="too deeply nested"):
        pq.ParquetFile(path)
    with pytest.raises(NameConflict, match="levels deep in Parquet"):
        new_schema([("v", around(kind))])
