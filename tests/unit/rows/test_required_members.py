"""Tables made by others, with required fields inside of structs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, IntegerType, ListType, MapType, NestedField, StringType, StructType

from frazil.ingest.tables.state import RunState
from frazil.spec.settings import DeadLettersSpec
from frazil.write.parquet import hides_nulls, without_hidden_nulls
from tests.unit.ingest.service_scene import Scene, only

_STRUCT = StructType(
    NestedField(3, "s", StringType(), required=True), NestedField(4, "q", IntegerType(), required=False)
)
_AROUND = StructType(NestedField(5, "in", _STRUCT, required=True), NestedField(6, "r", IntegerType(), required=True))
_LIST, _MAP = ListType(7, _STRUCT, False), MapType(8, StringType(), 9, _STRUCT, False)
_ROW = {"s": "x", "q": 1}
_CASES: list[tuple[IcebergType, list[Any]]] = [
    (_STRUCT, [_ROW, None, _ROW]),
    (_STRUCT, [None]),
    (_AROUND, [{"in": _ROW, "r": 2}, None]),
    (_LIST, [[_ROW, None], None, []]),
    (_MAP, [{"a": _ROW, "b": None}, None]),
]


def _scene(root: Path, kind: IcebergType, **settings: Any) -> Scene:
    scene = Scene(root, "a", dead_letters=DeadLettersSpec(stop_above=1.0), **settings)
    columns = NestedField(1, "id", IntegerType(), required=False), NestedField(2, "v", kind, required=False)
    scene.catalog.create("n.a", Schema(*columns), {}, 3)
    return scene


def _fed(scene: Scene, *values: Any) -> list[Any]:
    scene.feed("a", *({"id": n, "v": value} for n, value in enumerate(values)))
    table = only(scene.catch_up())
    assert (table.status.run_state, table.status.reason) == (RunState.WAITING, "")
    return [row["v"] for row in scene.rows("n.a")]


@pytest.mark.parametrize(("kind", "values"), _CASES, ids=[f"{kind}-{len(values)}" for kind, values in _CASES])
def test_a_struct_with_a_required_field_may_be_null(tmp_path: Path, kind: IcebergType, values: list[Any]) -> None:
    found = _fed(_scene(tmp_path, kind), *values)
    assert [dict(one) if kind is _MAP and one else one for one in found] == values


@pytest.mark.parametrize(
    ("kind", "out", "value", "after"),
    [
        (_STRUCT, ("v", "s"), _ROW, {"s": None, "q": 1}),
        (_LIST, ("v", "element", "s"), [_ROW], [{"s": None, "q": 1}]),
        (_MAP, ("v", "value", "s"), {"a": _ROW}, [("a", {"s": None, "q": 1})]),
    ],
)
def test_one_that_is_left_out_becomes_optional_as_a_column_does(
    tmp_path: Path, kind: IcebergType, out: tuple[str, ...], value: Any, after: Any
) -> None:
    assert _fed(_scene(tmp_path, kind, exclude=(out,)), value, None) == [after, None]


def test_where_the_table_may_not_change_its_records_are_bad_ones(tmp_path: Path) -> None:
    scene = _scene(tmp_path, _STRUCT, exclude=(("v", "s"),), schema_evolution="freeze")
    assert (_fed(scene, _ROW, None), scene.dead_letters("n.a")) == ([None], [("a", 0, 0)])


def test_a_value_that_is_missing_is_never_written_as_another() -> None:
    kind = pa.struct([pa.field("s", pa.int32(), nullable=False)])
    assert hides_nulls(kind)
    wrong = pa.Array.from_buffers(kind, 2, [None], children=[pa.array([None, 1], pa.int32())])
    assert without_hidden_nulls(pa.chunked_array([wrong])).chunk(0).field(0).null_count == 1
