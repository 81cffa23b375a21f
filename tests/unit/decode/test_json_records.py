"""Whole records: what is refused, which fields are requested, and that a bad record changes no other one's row."""

from __future__ import annotations

import json
import time
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import DoubleType, ListType, LongType, MapType, NestedField, StringType, StructType

from frazil.decode.json.records import decode_json
from frazil.decode.json.slices import MAX_MISMATCHES
from frazil.decode.limits import Bounds, TooMuch, bounded
from frazil.decode.settings import Reading
from tests.unit.decode.columns import decode, faults, fields_of, infer_json, values_of


def test_the_first_misfits_are_described_in_row_order_and_all_bad_records_counted_once() -> None:
    texts = [json.dumps({"a": "x" if row > 30 else 1, "b": "y" if row in (3, 40) else 1}) for row in range(100)]
    decoded = decode(texts, a="long", b="long")
    assert decoded.mismatch_count == 70
    assert [(m.row, m.path) for m in decoded.mismatches] == [(3, "b"), *((row, "a") for row in range(31, 40)), *(
        [(40, "a"), (40, "b")] + [(row, "a") for row in range(41, 49)]
    )]  # fmt: skip
    assert len(decoded.mismatches) == MAX_MISMATCHES


def test_a_malformed_record_has_no_values_and_wants_no_columns() -> None:
    decoded = decode(['{"a": 1, "b": "x", "c": nul}', '{"a": 2}', '{"a": 3, "b": 4}'], a="long")
    assert decoded.columns[0].to_pylist() == [None, 2, 3]
    assert decoded.requested_fields == {(): {"b": LongType()}}
    assert faults(decoded) == [(0, "", "the value is not well-formed JSON")]


def test_a_key_that_no_column_has_may_not_be_there_twice_either() -> None:
    decoded = decode(['{"a": 1, "x": 1, "x": 2}', '{"a": 2, "x": "text"}'], a="long")
    assert decoded.columns[0].to_pylist() == [None, 2]
    assert decoded.requested_fields == {(): {"x": StringType()}}
    assert faults(decoded) == [(0, "", "the object has the same key twice")]


def test_unknown_fields_are_dropped_by_name_when_the_table_reports_it() -> None:
    decoded = decode(['{"a": 1, "x": {"y": 1}}', '{"s": {"b": 1, "z": 2}}'], "drop", a="long", s="struct<b: long>")
    assert decoded.dropped == {"x", "s.z"}
    assert decoded.requested_fields == {}
    assert decoded.mismatches == []


def test_wanted_fields_are_found_at_any_depth() -> None:
    decoded = decode(
        ['{"l": [{"a": 1, "n": 1.5}], "m": {"k": {"b": "x"}}, "s": {"t": {"u": [1]}}}'],
        l="list<struct<a: long>>", m="map<string, struct<a: long>>", s="struct<t: struct<a: long>>",
    )  # fmt: skip
    assert decoded.requested_fields == {
        ("l", "element"): {"n": DoubleType()},
        ("m", "value"): {"b": StringType()},
        ("s", "t"): {"u": ListType(0, LongType(), False)},
    }


def test_keys_that_escapes_make_equal_are_one_key() -> None:
    decoded = decode(
        [r'{"\u0061": 1, "s": {"\u0062\/": 2}}', '{"a": 3, "s": {"b/": 4}}'], a="long", s="struct<b/: long>"
    )
    assert [column.to_pylist() for column in decoded.columns] == [[1, 3], [{"b/": 2}, {"b/": 4}]]
    assert decoded.mismatches == []


def test_a_key_that_is_no_text_refuses_its_record_and_no_other() -> None:
    texts = [r'{"a": 1, "\ud800": 1}', '{"a": 2}', r'{"a": 3, "s": {"\udfff": 1}}', r'{"a": 4, "\ud83d\ude00": 5}']
    decoded = decode(texts, a="long")
    assert decoded.columns[0].to_pylist() == [None, 2, 3, 4]
    assert decoded.requested_fields == {(): {"😀": LongType()}}
    reason = "a key has half of a surrogate pair, which is not text"
    assert faults(decoded) == [(0, "", reason), (2, "s", reason)]


def test_two_records_that_are_text_only_together_are_both_refused() -> None:
    decoded = decode([b'{"a": "\xc3', b'\xa9"}', '{"a": "é"}'], a="string")
    assert decoded.columns[0].to_pylist() == [None, None, "é"]
    assert [fault[2] for fault in faults(decoded)] == ["the value is not UTF-8"] * 2


def test_a_chunk_with_more_new_names_than_the_limit_is_cut_and_a_single_record_is_refused() -> None:
    texts = [json.dumps({f"k{row}_{n}": 1 for n in range(50)}) for row in range(60)]
    assert len(decode(texts).requested_fields[()]) == 3000
    with pytest.raises(TooMuch) as caught, bounded(Bounds(new_fields=2999)):
        decode(texts)
    assert caught.value.fault.kind == "too_many_fields"


def test_required_columns_elements_and_values_refuse_null() -> None:
    required = (
        NestedField(1, "a", LongType(), required=True),
        NestedField(2, "l", ListType(3, LongType(), True), required=False),
        NestedField(4, "m", MapType(5, StringType(), 6, LongType(), True), required=False),
    )
    texts = [
        '{"a": 1, "l": [1], "m": {"k": 1}}',
        '{"l": null}',
        '{"a": null}',
        '{"a": 1, "l": [null], "m": {"k": null}}',
    ]
    decoded = decode_json(values_of(texts), required)
    reason = "the column is required and the record has no value for it"
    assert faults(decoded) == [(1, "a", reason), (2, "a", reason), (3, "l.element", reason), (3, "m.value", reason)]


def test_a_required_field_of_an_absent_struct_is_not_missed() -> None:
    kind = StructType(NestedField(2, "x", LongType(), required=True))
    decoded = decode(["{}", '{"s": null}', '{"s": {}}', '{"s": {"x": 1}}'], s=kind)
    assert decoded.columns[0].to_pylist() == [None, None, {"x": None}, {"x": 1}]
    assert [fault[:2] for fault in faults(decoded)] == [(2, "s.x")]


def test_slices_and_null_values_are_read_from_where_they_lie() -> None:
    texts = [None, '{"a": 1}', "no", None, '{"a": 2, "l": ["x"]}', '{"a": 3}', "{}"]
    columns = {"a": "long", "l": "list<string>"}
    whole = decode(texts, **columns)
    for start in range(len(texts)):
        for end in range(start, len(texts) + 1):
            part = decode_json(values_of(texts).slice(start, end - start), fields_of(columns))
            assert [c.to_pylist() for c in part.columns] == [c.to_pylist()[start:end] for c in whole.columns]
            assert [m.row + start for m in part.mismatches] == [m.row for m in whole.mismatches if start <= m.row < end]


def test_no_records_give_empty_columns() -> None:
    decoded = decode([], a="long", s="struct<x: list<string>>", m="map<string,double>")
    assert [len(column) for column in decoded.columns] == [0, 0, 0]
    assert infer_json(values_of([])) == (None, [])


def test_a_value_of_another_kind_does_not_take_the_new_field_from_its_neighbours() -> None:
    texts = [
        '{"n": 1, "o": {"x": 1}}',
        '{"n": "one"}',
        '{"n": 3, "o": {"x": [3]}}',
        '{"n": 2.5, "l": [1]}',
        '{"l": ["x"]}',
    ]
    found, mismatches = infer_json(values_of(texts))
    assert found is not None
    kinds = {field.name: str(field.field_type) for field in found.fields}
    assert kinds == {"n": "double", "o": "struct<0: x: optional long>", "l": "list<long>"}
    assert [(mismatch.row, mismatch.path) for mismatch in mismatches] == [(1, "n"), (2, "o.x"), (4, "l.element")]


def test_a_record_that_is_refused_brings_no_column_along_and_has_no_say_in_its_type() -> None:
    texts = ['{"id": "bad", "new": "x", "only": 1}', '{"id": 1, "new": 2}', "{", '{"id": 3, "new": 4.5}']
    decoded = decode(texts, id="long")
    assert decoded.requested_fields == {(): {"new": DoubleType()}}
    assert [(mismatch.row, mismatch.path) for mismatch in decoded.mismatches] == [(0, "id"), (2, "")]
    assert decoded.refused.tolist() == [True, False, True, False]


def test_a_field_of_records_that_are_all_refused_is_not_wanted() -> None:
    decoded = decode(['{"id": "bad", "new": "x"}', '{"id": 1}'], id="long")
    assert (decoded.requested_fields, decoded.refused.tolist()) == ({}, [True, False])


def test_records_that_contradict_the_first_ones_bring_no_column_along() -> None:
    decoded = decode(['{"n": 1}', '{"n": "x", "only": 1}', '{"n": 2, "more": true}'])
    assert {name: str(kind) for name, kind in decoded.requested_fields[()].items()} == {"n": "long", "more": "boolean"}
    assert [(mismatch.row, mismatch.path) for mismatch in decoded.mismatches] == [(1, "n")]


def test_a_frozen_table_reports_which_fields_it_does_not_take() -> None:
    texts = ['{"id": 1, "new": "x", "o": {"x": 1, "y": 2}}', '{"id": 2, "other": null}', '{"new": "y"}']
    decoded = decode(texts, "refuse", id="long", o="struct<x: long>")
    reported = "the field is not added: `schema_evolution` is `freeze`"
    assert decoded.refusals == {f"column new: {reported}", f"column o.y: {reported}"}


def test_twenty_thousand_records_agree_with_python() -> None:
    texts = [json.dumps({"n": n, "x": n / 7, "s": f"é{n}", "l": list(range(n % 4))}) for n in range(20_000)]
    array = pa.concat_arrays([values_of(["{}"] * 3), values_of(texts)]).slice(3)
    decoded = decode_json(array, fields_of({"n": "long", "x": "double", "s": "string", "l": "list<long>"}))
    parsed = [json.loads(text) for text in texts]
    assert [c.to_pylist() for c in decoded.columns] == [
        [record[name] for record in parsed] for name in ("n", "x", "s", "l")
    ]
    assert decoded.mismatch_count == 0


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('{"o": {"x": 1, "b": 5}, "o.b": 6}', {"o.b": 6, "o.b#2": 5}),
        ('{"o": {"x": "bad"}, "o.x": 7}', {"o.x": "bad", "o.x#2": 7}),
        ('{"l": ["a", "b"], "l.element#2": 5}', {"l.element": "a", "l.element#2": "b", "l.element#2#2": 5}),
    ],
)
def test_rescued_values_whose_names_with_dots_give_the_same_path_are_all_kept(text: str, values: Any) -> None:
    options = Reading(unknown_fields="rescue", is_rescuing=True)
    decoded = decode_json(values_of(["{}", text]), fields_of({"o": "struct<x: long>", "l": "list<long>"}), options)
    assert decoded.rescued is not None
    rescued = json.loads(decoded.rescued[1].as_py())
    assert {path: one["value"] for path, one in rescued.items()} == values


def test_very_many_rescued_values_of_a_list_are_numbered_in_one_pass() -> None:
    options, texts = Reading(unknown_fields="rescue", is_rescuing=True), values_of([json.dumps({"l": ["x"] * 10_000})])
    started = time.process_time()
    decoded = decode_json(texts, fields_of({"l": "list<long>"}), options)
    assert decoded.rescued is not None
    numbered = ["l.element", *(f"l.element#{number}" for number in range(2, 10_001))]
    assert list(json.loads(decoded.rescued[0].as_py())) == numbered
    assert time.process_time() - started < 5  # Counting from one for each takes 10 s, and ten times as long for 30,000.


@pytest.mark.parametrize("text", ['{"a": 7, "A": 9}', '{"o": {"a": 7, "A": 9}}', '{"l": [{"a": 7, "A": 9}]}'])
def test_of_two_names_of_one_new_column_the_first_value_has_it_where_the_second_is_rescued(text: str) -> None:
    decoded = decode_json(values_of([text]), (), Reading(is_rescuing=True))
    assert decoded.rescued is not None
    assert [one["value"] for one in json.loads(decoded.rescued[0].as_py()).values()] == [9]
    fields = tuple(NestedField(0, name, kind, required=False) for name, kind in decoded.requested_fields[()].items())
    (stored,) = decode_json(values_of([text]), fields, Reading(is_rescuing=True)).columns[0].to_pylist()
    assert "7" in str(stored)
