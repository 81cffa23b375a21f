"""Which value decides the type of a field without a column: the first that has a type, however records are cut."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import NestedField

from frazil.decode.json.records import decode_json
from frazil.decode.settings import Evolution, Reading
from frazil.spec.syntax.types import parse_type

_A = (NestedField(1, "a", parse_type("double"), required=False),)


def _decode(*records: dict[str, Any]) -> tuple[dict[str, str], list[bool]]:
    """Returns the requested fields, and which records are refused."""
    return _decode_texts(*map(json.dumps, records))


def _decode_texts(*texts: str) -> tuple[dict[str, str], list[bool]]:
    found = decode_json(pa.array([text.encode() for text in texts], pa.binary()), _A)
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


@pytest.mark.parametrize("key", ["a", r"\u0061"])
def test_a_list_that_contradicts_itself_decides_no_type(key: str) -> None:
    """key: of another record, with an escape or without."""
    found = _decode_texts('{"v": [1, "x"]}', '{"v": 5}', f'{{"{key}": 1}}')
    assert found == ({"v": "long"}, [True, False, False])


@pytest.mark.parametrize("value", ["1e400", "-1e400", "99999999999999999999", r'"\ud800"', '{"k": [1e400]}'])
def test_a_value_that_its_own_new_column_could_not_hold_brings_no_column(value: str) -> None:
    assert _decode_texts(f'{{"v": {value}, "more": 1}}', '{"a": 1}') == ({}, [True, False])
    assert _decode_texts(f'{{"v": {value}}}', '{"v": true}') == ({"v": "boolean"}, [True, False])


def test_an_empty_object_is_not_contradicted_by_a_later_record_that_is_bad() -> None:
    first, second = {"v": {}, "w": ["x"]}, {"v": "text", "w": 1}
    assert _decode(first, second) == ({"w": "list<string>"}, [False, True])


@pytest.mark.parametrize("is_rescuing", [False, True])
def test_no_value_is_lost_of_a_field_that_gets_no_column(is_rescuing: bool) -> None:
    options = Reading(
        is_rescuing=is_rescuing, evolution=Evolution(rejected=((("v", ""), "no column can have this name"),))
    )
    records = pa.array([b'{"v": [{}, null]}', b'{"v": {"": 1}}'], pa.binary())
    found = decode_json(records, _A, options)
    assert found.requested_fields == {}
    if is_rescuing:
        assert found.rescued is not None
        assert not found.refused.any()
        assert json.loads(found.rescued[1].as_py())["v."]["value"] == 1
    else:
        assert found.refused.tolist() == [False, True]
        assert [(one.row, one.path, one.kind) for one in found.mismatches] == [(1, "v.", "name_conflict")]
