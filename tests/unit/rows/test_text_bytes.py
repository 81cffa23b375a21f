"""Bytes of a writer in a column of text: the text of those that are UTF-8; others do not fit, and are rescued or refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from frazil.cdc.changes import read_envelope
from frazil.decode.columns import Decoded
from frazil.decode.settings import Envelope, WriterSchema
from tests.needs import needs
from tests.unit.cdc.envelope_messages import UPSERT_ENVELOPE, avro, bad_records
from tests.unit.cdc.envelope_reference import target_for
from tests.unit.rows.test_encodings import SHAPES, message, proto, schema_of, written
from tests.unit.rows.test_writer_schemas import decode, faults, fields_of

_BAD = b"\xff\x00\xca"
_SHOWN = base64.b64encode(_BAD).decode()
_REASON = f'"{_SHOWN}" (binary) is not UTF-8 and does not fit string'
_REMEDY = "; give the field a column of bytes instead: `columns: {%s_bytes: {type: binary, field: %s}}`"
RESCUE = {"is_rescuing": True, "unknown_fields": "add"}
_PATHS = {"top": "v", "optional": "v", "struct": "v.m", "list": "v.element", "map": "v.value", "union": "v"}
_WIRE = proto("""
syntax = "proto3";
message R { bytes v = 1; repeated bytes l = 2; map<int32, bytes> m = 3; S s = 4; repeated S t = 5;
            oneof o { bytes p = 6; string q = 7; } }
message S { optional bytes v = 1; map<string, bytes> m = 2; }
""")
_COLUMNS = {
    "v": "string",
    "l": "list<string>",
    "m": "map<int,string>",
    "s": "struct<v: string, m: map<string,string>>",
    "t": "list<struct<v: string>>",
    "p": "string",
    "q": "string",
}


def _values(decoded: Decoded) -> list[Any]:
    values: list[Any] = decoded.columns[0].to_pylist(maps_as_pydicts="strict")
    return values


def _rescued(decoded: Decoded) -> list[Any]:
    texts = decoded.rescued if decoded.rescued is not None else pa.nulls(len(decoded.refused), pa.string())
    return [text and json.loads(text) for text in texts.to_pylist()]


@pytest.mark.parametrize("shape", SHAPES)
def test_bytes_of_avro_that_are_no_text_are_rescued_at_every_depth(shape: str) -> None:
    schema, put, path = schema_of("bytes", shape), SHAPES[shape][2], _PATHS[shape]
    records = written(1, schema, put(b"a"), put(_BAD), put("é".encode()), put(b""))
    fields = fields_of(v=SHAPES[shape][1].format("string"))
    decoded = decode(records, fields, {1: schema}, **RESCUE)
    assert (decoded.refused.tolist(), decoded.mismatches) == ([False] * 4, [])
    assert _values(decoded) == [put("a"), put(None), put("é"), put("")]
    reason = _REASON if shape in ("list", "map") else _REASON + _REMEDY % (path[-1], path)
    assert _rescued(decoded) == [None, {path: {"value": _SHOWN, "reason": reason}}, None, None]


@pytest.mark.parametrize("shape", SHAPES)
def test_without_rescue_they_make_their_record_alone_a_bad_one(shape: str) -> None:
    schema, put = schema_of("bytes", shape), SHAPES[shape][2]
    fields = fields_of(v=SHAPES[shape][1].format("string"))
    decoded = decode(written(1, schema, put(b"a"), put(_BAD), put(b"b")), fields, {1: schema})
    assert faults(decoded) == [(1, "invalid_text", _PATHS[shape])]
    assert (decoded.refused.tolist(), decoded.rescued) == ([False, True, False], None)
    assert [value for value, bad in zip(_values(decoded), decoded.refused, strict=True) if not bad] == [
        put("a"),
        put("b"),
    ]


def test_each_value_of_a_list_that_is_no_text_is_rescued_by_itself() -> None:
    schema = schema_of("bytes", "list")
    decoded = decode(
        written(1, schema, [b"a", _BAD, None, b"\x80"]), fields_of(v="list<string>"), {1: schema}, **RESCUE
    )
    assert _values(decoded) == [["a", None, None, None]]
    (found,) = _rescued(decoded)
    raw = {path: base64.b64decode(one["value"]) for path, one in found.items()}
    assert raw == {"v.element": _BAD, "v.element#2": b"\x80"}


def test_a_union_of_text_and_bytes_keeps_the_text() -> None:
    schema = schema_of(["null", "string", "bytes", "long"], "top")
    records = written(1, schema, "text", b"bytes", _BAD, None)
    decoded = decode(records, fields_of(v="string"), {1: schema}, **RESCUE)
    assert _values(decoded) == ["text", "bytes", None, None]
    assert [one and one["v"]["value"] for one in _rescued(decoded)] == [None, None, _SHOWN, None]


def test_a_string_that_is_no_text_is_a_damaged_record_and_not_rescued() -> None:
    schema = schema_of("string", "top")
    (good,) = written(1, schema, "abc")
    decoded = decode([good, good.replace(b"abc", b"a\xffc"), good], fields_of(v="string"), {1: schema}, **RESCUE)
    assert faults(decoded) == [(1, "invalid_text", "v")]
    assert (decoded.refused.tolist(), decoded.rescued) == ([False, True, False], None)


def test_fixed_bytes_are_rescued_from_a_column_of_text_as_ever() -> None:
    schema = schema_of({"type": "fixed", "name": "F", "size": 3}, "top")
    decoded = decode(written(1, schema, _BAD, b"abc"), fields_of(v="string"), {1: schema}, **RESCUE)
    assert (decoded.refused.tolist(), _values(decoded)) == ([False, False], [None, None])
    assert [one["v"]["value"] for one in _rescued(decoded)] == [_SHOWN, "YWJj"]


@pytest.mark.parametrize(("parameters", "digits"), [({}, "1234"), ({"scale": "2"}, "12.34")])
def test_of_a_decimal_of_kafka_connect_a_column_of_text_has_the_digits(parameters: Any, digits: str) -> None:
    kind = {"type": "bytes", "connect.name": "org.apache.kafka.connect.data.Decimal", "connect.parameters": parameters}
    schema = schema_of(kind, "top")
    decoded = decode(written(1, schema, b"\x04\xd2"), fields_of(v="string"), {1: schema}, **RESCUE)
    assert (_values(decoded), decoded.rescued) == ([digits], None)


# ---- Protobuf


def _decode(values: list[Mapping[str, Any]], **reading: Any) -> tuple[Decoded, list[dict[str, Any]]]:
    fields = fields_of(**_COLUMNS)
    decoded = decode([message(_WIRE, 1, dict(one)) for one in values], fields, {1: _WIRE}, format="protobuf", **reading)
    table = pa.Table.from_arrays(decoded.columns, names=[field.name for field in fields])
    return decoded, table.to_pylist(maps_as_pydicts="strict")


def _full(good: str | None, value: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A record that has a value everywhere, and its row. good: the text of the value."""
    s = {"v": value, "m": {"k": value, "j": "YQ=="}}
    record = {"v": value, "l": ["YQ==", value], "m": {"7": value}, "s": s, "t": [{"v": value}, {}], "p": value}
    row = {
        "v": good, "l": ["a", good], "m": {7: good}, "s": {"v": good, "m": {"k": good, "j": "a"}},
        "t": [{"v": good}, {"v": None}], "p": good, "q": None,
    }  # fmt: skip
    return record, row


@needs("protobuf")
def test_bytes_of_protobuf_that_are_no_text_are_rescued_at_every_depth() -> None:
    (good, good_row), (bad, bad_row) = _full("é", base64.b64encode("é".encode()).decode()), _full(None, _SHOWN)
    decoded, found = _decode([good, bad, good], **RESCUE)
    assert (decoded.refused.tolist(), decoded.mismatches) == ([False] * 3, [])
    assert found == [good_row, bad_row, good_row]
    first, rescued, last = _rescued(decoded)
    assert (first, last) == (None, None)
    assert {path: one["value"] for path, one in rescued.items()} == dict.fromkeys(
        ["v", "l.element", "m.value", "s.v", "s.m.value", "t.element.v", "p"], _SHOWN
    )


@needs("protobuf")
def test_without_rescue_a_record_of_protobuf_is_bad_and_its_neighbours_are_rows() -> None:
    (good, good_row), (bad, _) = _full("a", "YQ=="), _full(None, _SHOWN)
    decoded, found = _decode([good, bad, good], unknown_fields="drop")
    assert decoded.refused.tolist() == [False, True, False]
    assert {(one.row, one.kind) for one in decoded.mismatches} == {(1, "invalid_text")}
    assert [found[0], found[2]] == [good_row, good_row]


@needs("protobuf")
def test_bytes_that_a_later_value_replaces_are_in_no_place() -> None:
    (head,) = (message(_WIRE, 1, {}),)
    replaced = b"\x0a\x01\xff\x0a\x01a"
    in_map = b"\x1a\x05\x08\x07\x12\x01\xff\x1a\x05\x08\x07\x12\x01b"
    in_oneof = b"\x32\x01\xff\x3a\x01c"
    fields = fields_of(v="string", m="map<int,string>", p="string", q="string")
    for reading in (RESCUE, {"unknown_fields": "drop"}):
        decoded = decode([head + replaced + in_map + in_oneof], fields, {1: _WIRE}, format="protobuf", **reading)
        assert (decoded.refused.tolist(), decoded.rescued) == ([False], None)
        assert [column.to_pylist() for column in decoded.columns] == [["a"], [[(7, "b")]], [None], ["c"]]


# ---- envelopes


def _envelope(is_flat: bool) -> dict[str, Any]:
    row = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}, {"name": "v", "type": "bytes"}]}
    if is_flat:
        return {**row, "fields": [*row["fields"], {"name": "__op", "type": "string"}]}
    images = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Row"]}]
    return {"type": "record", "name": "E", "fields": [*images, {"name": "op", "type": "string"}]}


@pytest.mark.parametrize("is_flat", [False, True])
@pytest.mark.parametrize("is_rescuing", [False, True])
@pytest.mark.parametrize("envelope", [UPSERT_ENVELOPE, Envelope("debezium", is_log=True)], ids=["upsert", "log"])
def test_in_the_images_of_a_change_too(envelope: Envelope, is_rescuing: bool, is_flat: bool) -> None:
    images = [{"id": 1, "v": b"a"}, {"id": 2, "v": _BAD}, {"id": 3, "v": b"c"}]
    changes = [{**one, "__op": "c"} if is_flat else {"before": None, "after": one, "op": "c"} for one in images]
    reading, records = avro(*changes, schema=_envelope(is_flat))
    reading = type(reading)(**{**reading.__dict__, "is_rescuing": is_rescuing})
    found = read_envelope(target_for(envelope, {"id": "long", "v": "string"}, reading=reading), records)
    table = dict(zip(found.columns[0].to_pylist(), found.columns[1].to_pylist(), strict=True))
    if not is_rescuing:
        assert (table, bad_records(found)) == ({1: "a", 3: "c"}, [(1, "invalid_text", "after.v")])
        return
    assert (table, bad_records(found)) == ({1: "a", 2: None, 3: "c"}, [])
    assert found.rescued is not None
    (text,) = found.rescued.drop_null().to_pylist()
    assert json.loads(text)["after.v"]["value"] == _SHOWN


# ---- JSON with the schema of Kafka Connect, whose bytes are text already


@pytest.mark.parametrize("raw", [_BAD, b"text"])
def test_bytes_of_kafka_connect_are_rescued_from_a_column_of_text_as_they_are_written(raw: bytes) -> None:
    written_value = base64.b64encode(raw).decode()
    schema = {"type": "struct", "fields": [{"field": "v", "type": "bytes"}]}
    record = json.dumps({"schema": schema, "payload": {"v": written_value}}).encode()
    decoded = decode([record], fields_of(v="string"), {}, format="json", **RESCUE)
    assert (decoded.refused.tolist(), _values(decoded)) == ([False], [None])
    assert _rescued(decoded)[0]["v"]["value"] == written_value
    plain = decode([json.dumps({"v": written_value}).encode()], fields_of(v="string"), {}, format="json", **RESCUE)
    assert (_values(plain), plain.rescued) == ([written_value], None)


@needs("jsonschema")
def test_the_text_of_a_json_schema_with_encoded_content_stays_text() -> None:
    node = {"type": "object", "properties": {"v": {"type": "string", "contentEncoding": "base64"}}}
    schema, value = WriterSchema("json_schema", json.dumps(node)), base64.b64encode(_BAD).decode()
    record = b"\0\0\0\0\1" + json.dumps({"v": value}).encode()
    decoded = decode([record], fields_of(v="string"), {1: schema}, format="json_schema", **RESCUE)
    assert (_values(decoded), decoded.rescued, decoded.mismatches) == ([value], None, [])
