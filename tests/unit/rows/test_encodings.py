"""Changes of a schema that leave the bytes as they are: a logical type that comes or goes, a number that becomes an enum, a
message or record that gets its first field or loses its last.
"""

from __future__ import annotations

import io
import json
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from frazil.cdc.changes import read_envelope
from frazil.decode.columns import Decoded
from frazil.decode.settings import NO_EVOLUTION, WriterSchema
from frazil.schema.selection import DeclaredValues
from tests.needs import has_package, needs
from tests.unit.cdc.envelope_messages import UPSERT_ENVELOPE, avro
from tests.unit.cdc.envelope_reference import target_for
from tests.unit.rows.test_writer_schemas import decode, fields_of, rows

if has_package("protobuf"):
    from frazil_protobuf.protoc import compile_proto

_UUID = "12345678-ABCD-4234-9234-567812345678"
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
_FIXED = {"type": "fixed", "name": "F", "size": 16}
_FIXED_DECIMAL = {**_FIXED, "logicalType": "decimal", "precision": 10, "scale": 2}
LOGICAL: list[tuple[Any, Any, str, Any]] = [
    ("string", {"type": "string", "logicalType": "uuid"}, "string", _UUID),
    ("long", {"type": "long", "logicalType": "timestamp-millis"}, "long", 1_700_000_000_123),
    ("long", {"type": "long", "logicalType": "timestamp-micros"}, "long", -1),
    ("long", {"type": "long", "logicalType": "local-timestamp-millis"}, "long", 1_700_000_000_123),
    ("long", {"type": "long", "logicalType": "local-timestamp-micros"}, "long", 2**62),
    ("long", {"type": "long", "logicalType": "time-micros"}, "long", 86_399_999_999),
    ("int", {"type": "int", "logicalType": "date"}, "int", 20_000),
    ("int", {"type": "int", "logicalType": "date"}, "long", 2**31 - 1),
    ("int", {"type": "int", "logicalType": "time-millis"}, "int", 1234),
    ("int", {"type": "int", "logicalType": "time-millis"}, "long", 86_400_000),
    ("bytes", _DECIMAL, "binary", b"\x01\x02"),
    ("bytes", _DECIMAL, "binary", b"\xff" * 40),
    (_FIXED, _FIXED_DECIMAL, "fixed[16]", b"\0" * 15 + b"\x07"),
    (_FIXED, {**_FIXED, "logicalType": "uuid"}, "fixed[16]", uuid.UUID(_UUID).bytes),
    (_FIXED, {**_FIXED, "logicalType": "uuid"}, "binary", uuid.UUID(_UUID).bytes),
    ("bytes", "string", "binary", b"a text"),
    ("string", "bytes", "string", "a text \u20ac"),
]
"""A type as it is written, the type that its schema gives the same bytes, the column, and a value."""
Shape = tuple[Callable[[Any], Any], str, Callable[[Any], Any]]
SHAPES: dict[str, Shape] = {
    "top": (lambda kind: kind, "{}", lambda value: value),
    "optional": (lambda kind: ["null", kind], "{}", lambda value: value),
    "struct": (
        lambda kind: {"type": "record", "name": "S", "fields": [{"name": "m", "type": kind}]},
        "struct<m: {}>",
        lambda value: {"m": value},
    ),
    "list": (lambda kind: {"type": "array", "items": ["null", kind]}, "list<{}>", lambda value: [value, None]),
    "map": (lambda kind: {"type": "map", "values": kind}, "map<string,{}>", lambda value: {"k": value}),
    "union": (lambda kind: ["null", "boolean", kind], "{}", lambda value: value),
}


def schema_of(kind: Any, shape: str) -> WriterSchema:
    """Of a record with one field of a type, alone or in something."""
    fields = [{"name": "v", "type": SHAPES[shape][0](kind)}]
    return WriterSchema("avro", json.dumps({"type": "record", "name": "R", "fields": fields}))


def written(number: int, schema: WriterSchema, *values: Any) -> list[bytes]:
    """Records of the schema, framed."""
    out, parsed = [], fastavro.parse_schema(json.loads(schema.text))
    for value in values:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, parsed, {"v": value})
        out.append(b"\0" + struct.pack(">i", number) + body.getvalue())
    return out


def found(decoded: Decoded) -> list[Any]:
    """The values; of a map as a mapping."""
    assert [(one.reason, one.path) for one in decoded.mismatches] == []
    others = {refusal for refusal in decoded.refusals if "column v: boolean does not fit" not in refusal}  # Of a union.
    assert (decoded.requested_fields, others) == ({}, set())
    values: list[Any] = decoded.columns[0].to_pylist(maps_as_pydicts="strict")
    return values


@pytest.mark.parametrize("shape", SHAPES)
def test_a_column_of_the_type_underneath_has_values_as_they_are_written(shape: str) -> None:
    for plain, logical, column, value in LOGICAL:
        fields = fields_of(v=SHAPES[shape][1].format(column))
        one, other = schema_of(plain, shape), schema_of(logical, shape)
        whole = SHAPES[shape][2](value)
        (first,), (second,) = written(1, one, whole), written(1, one, whole)
        second = b"\0" + struct.pack(">i", 2) + second[5:]
        values = found(decode([first, second, first], fields, {1: one, 2: other}))
        assert values == [whole] * 3, (logical, column)


@pytest.mark.parametrize("shape", [name for name in SHAPES if name != "union"])
def test_uuids_and_their_texts_go_both_ways(shape: str) -> None:
    make, column, put = SHAPES[shape]
    del make
    text, fixed = schema_of("string", shape), schema_of({**_FIXED, "logicalType": "uuid"}, shape)
    plain = schema_of(_FIXED, shape)
    records = [*written(1, text, put(_UUID)), b"\0\0\0\0\2" + written(3, plain, put(uuid.UUID(_UUID).bytes))[0][5:]]
    schemas = {1: text, 2: fixed}
    as_uuid = decode(records, fields_of(v=column.format("uuid")), schemas)
    assert found(as_uuid) == [put(uuid.UUID(_UUID).bytes)] * 2
    as_text = decode(records, fields_of(v=column.format("string")), schemas)
    assert found(as_text) == [put(_UUID), put(_UUID.lower())]


def test_a_text_that_is_no_uuid_is_a_bad_record_of_a_uuid_column() -> None:
    schema = schema_of("string", "top")
    decoded = decode(written(1, schema, _UUID, "no uuid", _UUID), fields_of(v="uuid"), {1: schema})
    assert decoded.refused.tolist() == [False, True, False]
    assert [one.reason for one in decoded.mismatches] == ['"no uuid" (string) does not fit uuid']


@pytest.mark.parametrize(("shape", "shown"), [("top", "{}"), ("list", "[{},null]"), ("struct", '{{"m":{}}}')])
def test_messages_and_rescued_values_have_a_uuid_as_a_uuid(shape: str, shown: str) -> None:
    schema = schema_of({"type": "string", "logicalType": "uuid"}, shape)
    record = written(1, schema_of("string", shape), SHAPES[shape][2](_UUID))
    text = shown.format(f'"{_UUID.lower()}"')
    decoded = decode(record, fields_of(v="long"), {1: schema})
    cut = text if len(text) <= 60 else f"{text[:60]}…"
    assert decoded.mismatches[0].reason.startswith(f"{cut} (")
    for fields in (fields_of(v="long"), fields_of(w="long")):
        rescued = decode(record, fields, {1: schema}, unknown_fields="rescue", is_rescuing=True).rescued
        assert rescued is not None
        assert json.loads(rescued[0].as_py())["v"]["value"] == json.loads(text)


def test_a_value_of_a_logical_type_that_does_not_fit_is_a_bad_record_as_its_number_would_be() -> None:
    schema = schema_of({"type": "long", "logicalType": "timestamp-micros"}, "top")
    record = b"\0" + struct.pack(">i", 1) + written(1, schema_of("long", "top"), 2**40)[0][5:]
    decoded = decode([record], fields_of(v="int"), {1: schema}, evolution=NO_EVOLUTION)
    assert [one.reason for one in decoded.mismatches] == [f"{2**40} (long) is out of the range of int"]


@pytest.mark.parametrize(
    ("plain", "column", "value", "remedy"),
    [
        ("long", "timestamptz", 5, "`columns: {v: timestamptz(ms)}`"),
        ("long", "timestamp", 5, "`columns: {v: timestamp(ms)}`"),
        ("int", "date", 5, "`columns: {v: date}`"),
        ("int", "time", 5, "`columns: {v: time(ms)}`"),
        ("int", "string", 5, "`columns: {v: {type: string, coerce: true}}`"),
        ("boolean", "string", True, "`columns: {v: {type: string, coerce: true}}`"),
    ],
)
def test_a_number_without_a_meaning_names_the_declaration_that_gives_it_one(
    plain: str, column: str, value: Any, remedy: str
) -> None:
    schema = schema_of(plain, "top")
    decoded = decode(written(1, schema, value), fields_of(v=column), {1: schema})
    assert decoded.mismatches[0].reason.endswith(remedy)


@pytest.mark.parametrize("op", ["c", "d"])
@pytest.mark.parametrize(("is_flat"), [False, True])
def test_in_an_envelope_too_the_type_underneath_has_values_as_written(op: str, is_flat: bool) -> None:
    def row(kind: Any, uuids: Any) -> dict[str, Any]:
        fields = [{"name": "id", "type": kind}, {"name": "u", "type": ["null", uuids]}]
        return {"type": "record", "name": "Row", "fields": fields}

    def envelope(image: dict[str, Any]) -> dict[str, Any]:
        if is_flat:
            fields = [*image["fields"], {"name": "__op", "type": "string"}]
            return {**image, "fields": fields}
        fields = [{"name": "before", "type": ["null", image]}, {"name": "after", "type": ["null", "Row"]}]
        return {"type": "record", "name": "E", "fields": [*fields, {"name": "op", "type": "string"}]}

    image = {"id": 1_700_000_000_123, "u": _UUID}
    change = {"before": image if op == "d" else None, "after": None if op == "d" else image, "op": op}
    reading, records = avro({**image, "__op": op} if is_flat else change, schema=envelope(row("long", "string")))
    logical = row({"type": "long", "logicalType": "timestamp-millis"}, {"type": "string", "logicalType": "uuid"})
    ((number, _),) = reading.schemas
    reading = type(reading)(
        **{**reading.__dict__, "schemas": ((number, WriterSchema("avro", json.dumps(envelope(logical)))),)}
    )
    changes = read_envelope(target_for(UPSERT_ENVELOPE, {"id": "long", "u": "string"}, reading=reading), records)
    assert changes.decoded.mismatches == []
    assert changes.columns[0].to_pylist() == [1_700_000_000_123]
    if op == "c":
        assert changes.columns[1].to_pylist() == [_UUID]


# ---- messages and records without fields


def proto(text: str) -> WriterSchema:
    """A schema of Protobuf; without the package it has no descriptors."""
    return WriterSchema("protobuf", text, (), compile_proto(text) if has_package("protobuf") else b"")


def message(schema: WriterSchema, number: int, text: dict[str, Any]) -> bytes:
    """A record of the schema's first message, framed. text: in Protobuf's JSON."""
    files = descriptor_pb2.FileDescriptorSet.FromString(schema.descriptors)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(files.file[-1].message_type[0].name))
    made = json_format.ParseDict(text, kind())
    return b"\0" + struct.pack(">i", number) + b"\0" + made.SerializeToString()


_EVENT = """
syntax = "proto3";
message Ev {{
  int32 id = 1;
  oneof st {{ Placed placed = 2; int32 other = 3; }}
  repeated Placed list = 4; map<string, Placed> map = 5; In in = 6;
}}
message In {{ Placed deep = 1; }}
message Placed {{ {} }}
"""
_WITHOUT, _WITH = proto(_EVENT.format("")), proto(_EVENT.format("string by = 1; In2 far = 2; } message In2 {"))
_COLUMNS = {
    "placed": "struct<by: string>",
    "list": "list<struct<by: string>>",
    "map": "map<string,struct<by: string>>",
    "in": "struct<deep: struct<by: string>>",
}


def _full(content: dict[str, Any]) -> dict[str, Any]:
    return {"id": 1, "placed": content, "list": [content, content], "map": {"k": content}, "in": {"deep": content}}


@needs("protobuf")
def test_a_message_without_fields_is_a_struct_of_nulls_where_the_column_is_a_struct() -> None:
    fields = fields_of(**_COLUMNS)
    records = [
        message(_WITHOUT, 1, _full({})),
        message(_WITHOUT, 1, {"id": 2}),
        message(_WITH, 2, _full({"by": "x"})),
        message(_WITHOUT, 1, {"id": 3, "other": 5}),
    ]
    schemas = {1: _WITHOUT, 2: _WITH}
    decoded = decode(records, fields, schemas, format="protobuf", unknown_fields="drop")
    none: dict[str, Any] = {"by": None}
    table = pa.Table.from_arrays(decoded.columns, names=[field.name for field in fields])
    absent: dict[str, Any] = {"placed": None, "list": [], "map": {}, "in": None}
    assert (decoded.mismatches, decoded.refusals) == ([], set())
    assert table.to_pylist(maps_as_pydicts="strict") == [
        {"placed": none, "list": [none, none], "map": {"k": none}, "in": {"deep": none}},
        absent,
        {"placed": {"by": "x"}, "list": [{"by": "x"}] * 2, "map": {"k": {"by": "x"}}, "in": {"deep": {"by": "x"}}},
        absent,
    ]


@needs("protobuf")
def test_a_message_without_fields_alone_makes_a_boolean() -> None:
    decoded = decode([message(_WITHOUT, 1, _full({}))], (), {1: _WITHOUT}, format="protobuf")
    assert str(decoded.requested_fields[()]["placed"]) == "boolean"


@needs("protobuf")
def test_the_message_of_a_boolean_column_names_a_column_for_the_fields_that_came() -> None:
    fields = fields_of(placed="boolean")
    record = message(_WITH, 1, {"placed": {"by": "x"}})
    decoded = decode([record], fields, {1: _WITH}, format="protobuf", unknown_fields="drop")
    assert decoded.mismatches[0].reason == (
        '{"by":"x","far":null} (struct) does not fit boolean; the column was made of a message or record without fields:'
        " give the field a column of its own, such as"
        ' `columns: {placed_fields: {type: "struct<by: string, far: boolean>", field: placed}}`'
    )


@pytest.mark.parametrize(
    ("column", "kind", "value"),
    [("list", "list<%s>", [{"by": "x"}]), ("map", "map<string, %s>", {"k": {"by": "x"}})],
)
@needs("protobuf")
def test_the_message_of_a_list_or_map_of_booleans_names_a_column_that_takes_the_fields(
    column: str, kind: str, value: Any
) -> None:
    record = message(_WITH, 1, {column: value})
    old = fields_of(**{column: kind % "boolean"})
    decoded = decode([record], old, {1: _WITH}, format="protobuf", unknown_fields="drop")
    full = kind % "struct<by: string, far: boolean>"
    (mismatch,) = decoded.mismatches
    assert mismatch.reason.endswith(f'such as `columns: {{{column}_fields: {{type: "{full}", field: {column}}}}}`')
    decoded = decode([record], fields_of(**{column: full}), {1: _WITH}, format="protobuf", unknown_fields="drop")
    assert (decoded.mismatches, decoded.columns[0].null_count) == ([], 0)


def _hollow(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Placed", "fields": list(fields)}


@pytest.mark.parametrize("shape", [name for name in SHAPES if name != "union"])
def test_a_record_without_fields_is_a_struct_of_nulls_where_the_column_is_a_struct(shape: str) -> None:
    make, column, put = SHAPES[shape]
    del make
    without, having = schema_of(_hollow(), shape), schema_of(_hollow({"name": "by", "type": "string"}), shape)
    records = [*written(1, without, put({})), *written(2, having, put({"by": "x"})), *written(1, without, put({}))]
    decoded = decode(records, fields_of(v=column.format("struct<by: string>")), {1: without, 2: having})
    assert found(decoded) == [put({"by": None}), put({"by": "x"}), put({"by": None})]


def test_a_branch_without_fields_is_a_struct_in_the_struct_of_a_union() -> None:
    without = schema_of(_hollow(), "union")
    having = schema_of(_hollow({"name": "by", "type": "string"}), "union")
    records = [*written(1, without, {}, True, None), *written(2, having, {"by": "x"})]
    column = fields_of(v="struct<boolean: boolean, Placed: struct<by: string>>")
    assert found(decode(records, column, {1: without, 2: having})) == [
        {"boolean": None, "Placed": {"by": None}},
        {"boolean": True, "Placed": None},
        None,
        {"boolean": None, "Placed": {"by": "x"}},
    ]


def test_a_record_without_fields_in_another_one_is_there_too() -> None:
    inner = {"type": "record", "name": "Inner", "fields": []}
    schema = schema_of(_hollow({"name": "i", "type": inner}), "top")
    decoded = decode(written(1, schema, {"i": {}}), fields_of(v="struct<i: struct<a: long>, b: long>"), {1: schema})
    assert found(decoded) == [{"i": {"a": None}, "b": None}]


# ---- types of one kind on the wire of Protobuf

_WIRE = """
syntax = "proto3";
message R {{ {0} v = 1; repeated {0} l = 2; map<string, {0}> m = 3; S s = 4; }}
message S {{ optional {0} v = 1; }}
enum E {{ NONE = 0; ONE = 1; LOST = -3; }}
"""


@pytest.mark.parametrize(
    ("kind", "column", "given", "value"),
    [
        ("E", "int", "ONE", 1),
        ("E", "long", "LOST", -3),
        ("E", "int", 7, 7),
        ("E", "decimal(20,0)", "ONE", Decimal(1)),
        ("int32", "int", 1, 1),
        ("bool", "int", True, 1),
        ("bool", "long", True, 1),
        ("int64", "int", 5, 5),
        ("uint64", "long", 5, 5),
        ("uint32", "int", 5, 5),
        ("E", "string", "ONE", "ONE"),
        ("E", "string", 7, "7"),
        ("bytes", "string", "YQ==", "a"),
        ("string", "binary", "a", b"a"),
    ],
)
@needs("protobuf")
def test_a_change_that_the_wire_allows_is_one_that_the_column_takes(
    kind: str, column: str, given: Any, value: Any
) -> None:
    schema = proto(_WIRE.format(kind))
    record = message(schema, 1, {"v": given, "l": [given, given], "m": {"k": given}, "s": {"v": given}})
    fields = fields_of(v=column, l=f"list<{column}>", m=f"map<string,{column}>", s=f"struct<v: {column}>")
    decoded = decode([record], fields, {1: schema}, format="protobuf", evolution=NO_EVOLUTION)
    assert decoded.mismatches == []
    (row,) = rows(decoded, fields)
    assert row == {"v": value, "l": [value, value], "m": [("k", value)], "s": {"v": value}}


@needs("protobuf")
def test_bytes_that_are_no_text_are_a_bad_record_of_a_text_column() -> None:
    schema = proto(_WIRE.format("bytes"))
    record = message(schema, 1, {"v": "/w=="})
    decoded = decode([record], fields_of(v="string"), {1: schema}, format="protobuf", unknown_fields="drop")
    assert [(one.kind, one.path) for one in decoded.mismatches] == [("invalid_text", "v")]


@needs("protobuf")
def test_a_number_in_a_column_of_names_is_text_only_where_the_column_is_declared_so() -> None:
    schema = proto(_WIRE.format("int32"))
    record, fields = message(schema, 1, {"v": 5}), fields_of(v="string")
    given = {"format": "protobuf", "unknown_fields": "drop"}
    assert [one.kind for one in decode([record], fields, {1: schema}, **given).mismatches] == ["type_mismatch"]
    assert found(decode([record], fields, {1: schema}, **given, declared=DeclaredValues(coerced=(("v",),)))) == ["5"]
