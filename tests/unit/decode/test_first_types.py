"""Which value decides the type of a field without a column: the first that has a type, however records are cut."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import NestedField

from frazil.decode.json.records import decode_json
from frazil.spec.syntax.types import parse_type

_A = (NestedField(1, "a", parse_type("double"), required=False),)


def _decode(*records: dict[str, Any]) -> tuple[dict[str, str], list[bool]]:
    """Returns the requested fields, and which records are refused."""
    found = decode_json(pa.array([json.dumps(record).encode() for record in records], pa.binary()), _A)
    return {name: str(kind) for name, kind in found.requested_fields.get((), {}).items()}, found.refused.tolist()


@pytest.mark.parametrize("empty", [[], {}, [None], {"k": None}, [[]], {"k": {"l": []}}])
def test_a_list_or_an_object_without_contents_decides_no_type(empty: Any) -> None:
    assert _decode({"v": empty}, {"v": "text"}) == ({"v": "string"}, [True, False])
    assert _decode({"v": "text"}, {"v": empty}) == ({"v": "string"}, [False, True])


def test_a_bad_record_with_an_empty_object_makes_no_other_record_bad() -> None:
    assert _decode({"a": "x", "v": {"k": None}}, {"a": 2, "v": "text"}) == ({"v": "string"}, [True, False])


def test_lists_and_objects_without_contents_do_not_contradict_each_other() -> None:
    assert _decode({"v": []}, {"v": {}}) == ({}, [False, False])


def test_the_first_value_with_a_type_decides_though_an_empty_one_of_another_kind_is_before_it() -> None:
    assert _decode({"v": []}, {"v": "text"}, {"v": [1]}) == ({"v": "string"}, [True, False, True])
    assert _decode({"v": []}, {"v": [1]}, {"v": "text"}) == ({"v": "list<long>"}, [False, False, True])
    assert _decode({"v": [{}]}, {"v": [[]]}, {"v": [5]}) == ({"v": "list<long>"}, [True, True, False])
