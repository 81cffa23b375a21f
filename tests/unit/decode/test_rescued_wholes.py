"""What is rescued of JSON as a whole is in `_rescued` and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import IntegerType, LongType, MapType, NestedField, StringType, StructType

from frazil.decode.json.records import decode_json
from frazil.decode.settings import Evolution, Reading

_TEXTS = MapType(1, StringType(), 2, LongType(), value_required=False)
_NUMBERS = MapType(1, IntegerType(), 2, StringType(), value_required=False)
_STRUCT = StructType(NestedField(1, "a", LongType(), required=False), NestedField(2, "b", LongType(), required=False))


def _decode(kind: Any, *texts: str) -> tuple[list[Any], list[Any], list[bool]]:
    """Returns the values of the column `v`, what is rescued, and which records are refused."""
    values = pa.array([f'{{"v": {text}}}'.encode() for text in texts], pa.binary())
    found = decode_json(values, (NestedField(9, "v", kind, required=False),), Reading(is_rescuing=True))
    rescued = [None] * len(texts) if found.rescued is None else found.rescued.to_pylist()
    return found.columns[0].to_pylist(), rescued, found.refused.tolist()


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (_TEXTS, '{"x": 1}', '{"x": 1, "x": 2}'),
        (_TEXTS, '{"x": 1}', r'{"x": 1, "\ud800": 2}'),
        (_NUMBERS, '[[1, "a"]]', '[[1, "a"], [1, "b"]]'),
        (_NUMBERS, '[[1, "a"]]', '[[1, "a"], ["x", "b"]]'),
        (_STRUCT, '{"a": 1}', '{"a": 1, "a": 2}'),
        (_STRUCT, '{"a": 1}', '{"a": "x", "a": 2}'),
    ],
)
def test_a_map_or_a_struct_with_a_bad_key_is_rescued_whole_and_null_in_its_column(
    kind: Any, good: str, bad: str
) -> None:
    values, rescued, refused = _decode(kind, good, bad, good)
    assert refused == [False] * 3
    assert values[1] is None
    assert values[0] == values[2]
    assert values[0] is not None
    assert rescued[0] is rescued[2] is None
    assert rescued[1].startswith('{"v":{"value":' + bad)
    assert list(json.loads(rescued[1])) == ["v"]


def test_a_field_with_an_empty_or_a_long_name_is_rescued_under_its_name() -> None:
    long = "n" * 300
    values = pa.array([json.dumps({"v": 1, "": 2, long: 3}).encode()], pa.binary())
    options = Reading(is_rescuing=True, evolution=Evolution(rejected=((("",), "the name is empty"),)))
    found = decode_json(values, (NestedField(9, "v", LongType(), required=False),), options)
    assert found.refused.tolist() == [False]
    assert found.rescued is not None
    rescued = json.loads(found.rescued.to_pylist()[0])
    assert {name: one["value"] for name, one in rescued.items()} == {"": 2, long: 3}
