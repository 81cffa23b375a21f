"""JSON of Kafka Connect's converter with `schemas.enable=true`, without an envelope, and the same types in Avro."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType

from frazil.decode.settings import Reading, WriterSchema
from frazil.rows.decoder import decode_values, has_value
from frazil.rows.record_keys import decode_keys
from frazil.schema.evolve import new_schema
from frazil.spec.settings import ColumnSpec, EnvelopeSpec
from frazil.spec.syntax.types import parse_type
from tests.needs import needs
from tests.unit.rows.test_encodings import message, proto
from tests.unit.rows.test_shaped_service import Scenario
from tests.unit.upsert.test_upsert_service import JSON_KEYS, UpsertScenario

Row = dict[str, Any]
_CONNECT, _DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium."


def _after(micros: int) -> Any:
    """So many microseconds after 1970 began, without a zone."""
    return pa.scalar(micros, pa.timestamp("us")).as_py()


def _field(kind: str, field: str, **more: Any) -> Row:
    return {"type": kind, "optional": True, "field": field, **more}


_MAP = _field("map", "m", keys={"type": "int32"}, values={"type": "int32"})


def _struct(*fields: Row, **more: Any) -> Row:
    return {"type": "struct", "fields": list(fields), "optional": False, **more}


def _message(schema: Row | None, payload: Any, **how: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}, **{"separators": (",", ":"), **how}).encode()


def _read(
    *values: bytes | None, fields: Row | None = None, **reading: Any
) -> tuple[Row, list[Row], list[tuple[int, str]]]:
    """The types of the columns, the rows, and class and place of bad records."""
    records, of = {"value": pa.array(values, pa.binary())}, Reading(**reading)
    kinds = {**(fields or {}), **decode_values(of, (), records).requested_fields.get((), {})}
    schema = new_schema(kinds.items())
    found = decode_values(of, schema.fields, records)
    columns = {field.name: column.to_pylist() for field, column in zip(schema.fields, found.columns, strict=True)}
    rows = [{name: column[n] for name, column in columns.items()} for n in range(len(values)) if not found.refused[n]]
    bad: list[tuple[int, str]] = [(one.row, one.kind) for one in found.mismatches]
    return {name: str(kind) for name, kind in kinds.items()}, rows, bad


def _bytes(number: int) -> str:
    return base64.b64encode(number.to_bytes(2, "big", signed=True)).decode()


NAMED = [
    ("int8", None, 1, "int", 1),
    ("int16", None, 300, "int", 300),
    ("int32", None, 5, "int", 5),
    ("int64", None, 5, "long", 5),
    ("float", None, 1.5, "float", 1.5),
    ("double", None, 0.1, "double", 0.1),
    ("double", None, "-Infinity", "double", float("-inf")),
    ("boolean", None, True, "boolean", True),
    ("string", None, "é", "string", "é"),
    ("bytes", None, "AAE=", "binary", b"\0\1"),
    ("int32", f"{_CONNECT}Date", 1, "date", dt.date(1970, 1, 2)),
    ("int32", f"{_CONNECT}Time", 1000, "time", dt.time(0, 0, 1)),
    ("int64", f"{_CONNECT}Timestamp", 1, "timestamp", _after(1000)),
    ("int64", f"{_DEBEZIUM}time.MicroTimestamp", 1, "timestamp", _after(1)),
    ("int64", f"{_DEBEZIUM}time.NanoTime", 1000, "time", dt.time(0, 0, 0, 1)),
    ("string", f"{_DEBEZIUM}time.ZonedTimestamp", "2024-01-02T03:04:05Z", "timestamptz",
     dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)),
    ("string", f"{_DEBEZIUM}data.Json", '{"a":1}', "string", '{"a":1}'),
    ("bytes", f"{_CONNECT}Decimal", _bytes(1234), "decimal(6, 2)", Decimal("12.34")),
]  # fmt: skip
_PARAMETERS = {"scale": "2", "connect.decimal.precision": "6"}


@pytest.mark.parametrize(("kind", "name", "written", "column", "value"), NAMED)
@pytest.mark.parametrize("place", ["top", "struct", "list", "map", "map of lists of structs"])
def test_a_payload_has_the_types_of_its_schema_at_every_depth(
    kind: str, name: str | None, written: Any, column: str, value: Any, place: str
) -> None:
    one = {"type": kind, "optional": True, "name": name, "parameters": _PARAMETERS}
    inner = _struct({**one, "field": "v"})
    schema, payload, wanted, stored = {
        "top": (one, written, column, value),
        "struct": (inner, {"v": written}, f"struct<0: v: optional {column}>", {"v": value}),
        "list": ({"type": "array", "items": one}, [written, None], f"list<{column}>", [value, None]),
        "map": ({"type": "map", "keys": {"type": "string"}, "values": one}, {"k": written},
                f"map<string, {column}>", [("k", value)]),
        "map of lists of structs": (
            {"type": "map", "keys": {"type": "int32"}, "values": {"type": "array", "items": inner}},
            [[1, [{"v": written}]]], f"map<int, list<struct<0: v: optional {column}>>>", [(1, [{"v": value}])],
        ),
    }[place]  # fmt: skip
    kinds, rows, bad = _read(_message(_struct({**schema, "field": "x"}), {"x": payload}))
    assert (kinds, rows, bad) == ({"x": wanted}, [{"x": stored}], [])


@pytest.mark.parametrize(
    "how", [{}, {"separators": (", ", ": ")}, {"indent": 2}, {"prefix": b" \n"}, {"turned": True}], ids=str
)
def test_a_message_is_recognised_however_it_is_spaced(how: Row) -> None:
    prefix, is_turned = how.pop("prefix", b""), how.pop("turned", False)
    members = {"schema": _struct(_field("int32", "id")), "payload": {"id": 7}}
    if is_turned:
        members = dict(reversed(members.items()))
    kinds, rows, bad = _read(prefix + json.dumps(members, **how).encode())
    assert (kinds, rows, bad) == ({"id": "int"}, [{"id": 7}], [])


def test_escaped_names_in_a_payload_are_read_as_their_characters_in_a_value_and_in_a_key() -> None:
    inner = _struct(_field("int32", "id"), field="s")
    schema = json.dumps(_struct(_field("int32", "name"), inner))
    payloads = ['{"name":1,"s":{"id":2}}', '{"na\\u006de":1,"s":{"\\u0069d":2}}']
    values = [f'{{"schema":{schema},"payload":{payload}}}'.encode() for payload in payloads]
    _, rows, bad = _read(*values)
    assert (rows, bad) == ([{"name": 1, "s": {"id": 2}}] * 2, [])
    keys = {"key": pa.array(values, pa.binary())}
    (kind,) = decode_keys(Reading(), "k", None, keys, 10).requested_fields[()].values()
    assert decode_keys(Reading(), "k", kind, keys, 10).columns[0].to_pylist() == rows


def test_messages_of_several_schemas_and_plain_records_become_rows_of_one_table() -> None:
    first, second = _struct(_field("int32", "id")), _struct(_field("int32", "id"), _field("string", "name"))
    kinds, rows, bad = _read(
        _message(first, {"id": 1}), b'{"id":2,"name":"b"}', _message(second, {"id": 3, "name": "c"}),
        _message(None, {"id": 4}), _message(first, {"id": 5}),
    )  # fmt: skip
    assert (kinds, bad) == ({"id": "long", "name": "string"}, [])
    assert [(row["id"], row["name"]) for row in rows] == [(1, None), (2, "b"), (3, "c"), (4, None), (5, None)]


@pytest.mark.parametrize(
    "value",
    [
        {"schema": "v1", "payload": {"a": 1}},
        {"schema": {"type": "object"}, "payload": {"a": 1}},
        {"schema": {"type": 5}, "payload": {"a": 1}},
        {"schema": None, "payload": {"a": 1}, "id": 1},
        {"payload": {"a": 1}},
        {"schema": {"type": "struct"}},
    ],
    ids=json.dumps,
)
def test_a_record_that_only_looks_like_a_message_stays_a_record(value: Row) -> None:
    kinds, _, bad = _read(json.dumps(value).encode())
    assert (sorted(kinds), bad) == (sorted(name for name, held in value.items() if held is not None), [])


def test_a_table_with_columns_of_the_members_names_keeps_records_with_a_schema_that_is_null() -> None:
    _, rows, _ = _read(_message(None, "text"), fields={"schema": StringType(), "payload": StringType()})
    assert rows == [{"schema": None, "payload": "text"}]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (_message(_struct(_field("int32", "id")), None), "tombstone"),
        (_message(_struct(_field("int32", "id")), 5), "not_an_object"),
        (_message(_struct(_field("int32", "id")), {"id": "x"}), "type_mismatch"),
        (_message(_struct(_MAP), {"m": [[1]]}), "type_mismatch"),
        (_message(_struct(_MAP), {"m": [[None, 1]]}), "type_mismatch"),
        (_message(_struct(_MAP), {"m": {"1": 1}}), "type_mismatch"),
        (_message(_struct(_MAP), {"m": [[1, 1], [1, 2]]}), "duplicate_key"),
        (_message(_struct(_field("string", "t", name=f"{_DEBEZIUM}time.ZonedTimestamp")), {"t": "later"}), "type_mismatch"),
        (_message(_struct({"field": "id"}), {"id": 1}), "unusable_schema"),
        (_message(_struct(_field("strange", "id")), {"id": 1}), "unusable_schema"),
        (_message(_struct(_field("int64", "id"), _field("string", "id")), {"id": 1}), "unusable_schema"),
        (b'{"schema":{"type":"struct","fields":[]},"payload":{"id":1}', "malformed"),
    ],
)  # fmt: skip
def test_what_is_no_row_is_a_bad_record_and_its_neighbours_are_rows(value: bytes, kind: str) -> None:
    good = _message(_struct(_field("int64", "n")), {"n": 1})
    _, rows, bad = _read(good, value, good)
    assert ([row["n"] for row in rows], bad) == ([1, 1], [(1, kind)])


def test_a_message_whose_payload_is_null_has_no_value() -> None:
    schema = _struct(_field("string", "payload"))
    values = [
        _message(schema, None), _message(schema, None, indent=1), b'{"payload":null,"schema":null}',
        _message(schema, {"payload": None}), b'{"id":{"payload":null}}', b"null", b"{}", None,
    ]  # fmt: skip
    found = has_value(Reading(), pa.array(values, pa.binary()))
    assert found.tolist() == [False, False, False, True, True, False, True, False]


@pytest.mark.parametrize(
    "text",
    [
        b'{"payload":null,"id":1}', b'{"payload":null,"schema":null,"id":1}', b'{"schema":"s","id":1,"payload":null}',
        b'{"schema":"s","payload":null}', b'{"payload":null,"schema":{"type":"customer"}}', b'{"payload":null,',
    ],
)  # fmt: skip
def test_a_record_with_a_null_field_called_payload_has_a_value(text: bytes) -> None:
    """Only what a converter writes is no value, for which an upsert table would delete the row."""
    message = _message(_struct(_field("int32", "id")), None)
    assert has_value(Reading(), pa.array([message, text, message], pa.binary())).tolist() == [False, True, False]


@pytest.mark.parametrize(("kind", "name", "written", "column", "value"), NAMED)
@pytest.mark.parametrize("is_struct", [True, False])
def test_a_key_has_the_types_of_its_schema(
    kind: str, name: str | None, written: Any, column: str, value: Any, is_struct: bool
) -> None:
    one = {"type": kind, "name": name, "parameters": _PARAMETERS}
    schema, payload = (_struct({**one, "field": "id"}), {"id": written}) if is_struct else (one, written)
    records = {"key": pa.array([_message(schema, payload), None], pa.binary())}
    wanted = decode_keys(Reading(), "_key", None, records, 20).requested_fields[()]
    (found,) = wanted.values()
    assert str(found) == (f"struct<0: id: optional {column}>" if is_struct else column)
    decoded = decode_keys(Reading(), "_key", found, records, 20)
    assert (decoded.columns[0].to_pylist(), decoded.mismatches) == ([{"id": value} if is_struct else value, None], [])


def test_an_upsert_table_finds_its_rows_by_keys_with_a_schema_and_takes_their_tombstones(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS)
    key = _struct({"type": "int32", "field": "day", "name": f"{_CONNECT}Date", "optional": False})
    value = _struct(key["fields"][0], _field("string", "v"))

    def told(day: int, v: str | None, has_tombstone: bool = True) -> tuple[str, Any]:
        row = None if v is None else {"day": day, "v": v}
        whole = None if v is None and not has_tombstone else {"schema": value, "payload": row}
        return _message(key, {"day": day}).decode(), whole

    scenario.tell(told(1, "a"), told(2, "b"), told(3, "c"))
    scenario.tell(told(1, "a2"), told(2, None), told(3, None, has_tombstone=False))
    assert scenario.upsert_table() == [{"day": dt.date(1970, 1, 2), "v": "a2"}]


AVRO = [
    ("long", f"{_DEBEZIUM}time.MicroTimestamp", 1, "timestamp", _after(1)),
    ("int", f"{_DEBEZIUM}time.Date", 1, "date", dt.date(1970, 1, 2)),
    ("string", f"{_DEBEZIUM}time.ZonedTimestamp", "2024-01-02T03:04:05Z", "timestamptz",
     dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)),
    ("int", f"{_CONNECT}Time", 1000, "time", dt.time(0, 0, 1)),
    ("string", f"{_DEBEZIUM}data.Uuid", "6b1f2d3c-0000-4000-8000-000000000001", "uuid",
     bytes.fromhex("6b1f2d3c000040008000000000000001")),
    ("bytes", f"{_CONNECT}Decimal", b"\x04\xd2", "decimal(6, 2)", Decimal("12.34")),
    ("long", "com.example.Own", 7, "long", 7),
]  # fmt: skip


def _avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\0\0\0\0\1" + out.getvalue()


@pytest.mark.parametrize(("kind", "name", "written", "column", "value"), AVRO)
@pytest.mark.parametrize("place", ["top", "optional", "named", "list", "map", "union"])
def test_avro_without_an_envelope_is_read_by_connects_names_at_every_depth(
    kind: str, name: str, written: Any, column: str, value: Any, place: str
) -> None:
    one = {"type": kind, "connect.name": name, "connect.parameters": _PARAMETERS, "connect.version": 1}
    inner = {"type": "record", "name": "other.Inner", "fields": [{"name": "v", "type": one}]}
    again = {
        "type": "record",
        "name": "Twice",
        "fields": [{"name": "a", "type": inner}, {"name": "b", "type": "other.Inner"}],
    }
    struct = f"struct<0: v: optional {column}>"
    of, held, wanted, stored = {
        "top": (one, written, column, value),
        "optional": (["null", one], written, column, value),
        "named": (again, {"a": {"v": written}, "b": {"v": written}},
                  f"struct<0: a: optional {struct}, 0: b: optional {struct}>", {"a": {"v": value}, "b": {"v": value}}),
        "list": ({"type": "array", "items": one}, [written], f"list<{column}>", [value]),
        "map": ({"type": "map", "values": ["null", one]}, {"k": written}, f"map<string, {column}>", [("k", value)]),
        "union": (["null", "boolean", inner], {"v": written},
                  f"struct<0: boolean: optional boolean, 0: Inner: optional {struct}>",
                  {"boolean": None, "Inner": {"v": value}}),
    }[place]  # fmt: skip
    schema = {"type": "record", "name": "Row", "namespace": "n", "fields": [{"name": "x", "type": of}]}
    schemas = (("1", WriterSchema("avro", json.dumps(schema))),)
    kinds, rows, bad = _read(_avro(schema, {"x": held}), format="avro", schemas=schemas)
    assert (kinds, rows, bad) == ({"x": wanted}, [{"x": stored}], [])


@pytest.mark.parametrize(("kind", "name", "written", "column", "value"), AVRO)
def test_an_avro_key_that_is_no_record_is_read_by_connects_name(
    kind: str, name: str, written: Any, column: str, value: Any
) -> None:
    schema = {"type": kind, "connect.name": name, "connect.parameters": _PARAMETERS}
    reading = Reading("avro", schemas=(("1", WriterSchema("avro", json.dumps(schema))),))
    records = {"key": pa.array([_avro(schema, written)], pa.binary())}
    (found,) = decode_keys(reading, "_key", None, records, 20).requested_fields[()].values()
    decoded = decode_keys(reading, "_key", found, records, 20)
    assert (str(found), decoded.columns[0].to_pylist(), decoded.mismatches) == (column, [value], [])


def test_names_of_two_namespaces_are_not_taken_for_each_other() -> None:
    def row(namespace: str, name: str) -> Row:
        inner = [{"name": "v", "type": {"type": "long", "connect.name": name}}]
        return {"type": "record", "name": "Value", "namespace": namespace, "fields": inner}

    fields = [
        {"name": "a", "type": row("one", f"{_DEBEZIUM}time.MicroTimestamp")},
        {"name": "b", "type": row("two", f"{_DEBEZIUM}time.Timestamp")},
        {"name": "c", "type": "one.Value"},
    ]
    schema = {"type": "record", "name": "Row", "namespace": "n", "fields": fields}
    schemas = (("1", WriterSchema("avro", json.dumps(schema))),)
    _, rows, _ = _read(_avro(schema, {name: {"v": 1} for name in "abc"}), format="avro", schemas=schemas)
    micro, milli = _after(1), _after(1000)
    assert rows == [{"a": {"v": micro}, "b": {"v": milli}, "c": {"v": micro}}]


def test_parameters_that_are_no_numbers_leave_a_decimal_as_it_is_written() -> None:
    one = {"type": "bytes", "connect.name": f"{_CONNECT}Decimal", "connect.parameters": {"scale": "two"}}
    schema = {"type": "record", "name": "Row", "fields": [{"name": "x", "type": one}]}
    schemas = (("1", WriterSchema("avro", json.dumps(schema))),)
    assert _read(_avro(schema, {"x": b"\1"}), format="avro", schemas=schemas)[1] == [{"x": b"\1"}]


def test_a_column_of_the_written_type_keeps_what_is_written() -> None:
    one = {"type": "long", "connect.name": f"{_DEBEZIUM}time.MicroTimestamp"}
    schema = {"type": "record", "name": "Row", "fields": [{"name": "x", "type": one}]}
    reading = Reading("avro", schemas=(("1", WriterSchema("avro", json.dumps(schema))),))
    records = {"value": pa.array([_avro(schema, {"x": 5})], pa.binary())}
    found = decode_values(reading, new_schema({"x": LongType()}.items()).fields, records)
    assert (found.columns[0].to_pylist(), found.requested_fields) == ([5], {})


def test_rows_that_name_their_operation_are_read_from_messages_with_a_schema(tmp_path: Path) -> None:
    envelope = EnvelopeSpec(kind="operation", operation="ops", insert=("I",), update=("U",), delete=("D",))
    scenario = UpsertScenario(
        tmp_path, key=JSON_KEYS, key_columns=("id",), envelope=envelope, dead_letters={"stop_above": 1.0}
    )
    fields = [_field("int32", "id"), _field("int32", "day", name=f"{_CONNECT}Date"), _field("string", "ops")]
    for ops, number, day in (("I", 1, 5), ("I", 2, 6), ("U", 1, 7), ("D", 2, None), ("?", 3, 8)):
        value = {"id": number, "day": day, "ops": ops}
        scenario.put(json.dumps({"id": number}), {"schema": _struct(*fields), "payload": value})
    scenario.put('{"id": 4}', {"schema": None, "payload": {"id": 4, "ops": "I"}})
    scenario.put('{"id": 5}', {"id": 5, "ops": "I"})
    scenario.catch_up()
    days = [(row["id"], row["day"]) for row in scenario.upsert_table("id", "day")]
    assert days == [(1, dt.date(1970, 1, 8)), (4, None), (5, None)]
    assert [kind for kind, _ in scenario.dead_letters()] == ["unknown_operation"]


def test_a_unit_that_the_file_gives_a_column_counts(tmp_path: Path) -> None:
    columns = (ColumnSpec(name="ts", type=parse_type("timestamptz"), unit="us"),)
    scenario = Scenario(tmp_path, columns=columns)
    schema = _struct(_field("int64", "ts", name=f"{_DEBEZIUM}time.MicroTimestamp"))
    scenario.source.produce("a", 0, _message(schema, {"ts": 1}))
    scenario.catch_up()
    assert scenario.rows() == [{"ts": dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)}]


_ONE_SECOND = [("Time", "int32", 10**3), ("MicroTime", "int64", 10**6), ("NanoTime", "int64", 10**9)]


@pytest.mark.parametrize(("name", "kind", "value"), _ONE_SECOND)
@pytest.mark.parametrize("is_avro", [False, True])
def test_a_declared_time_has_the_unit_of_connects_type(
    tmp_path: Path, name: str, kind: str, value: int, is_avro: bool
) -> None:
    # A declared `time` takes numbers without a meaning as milliseconds, and a `date` as days.
    kinds = {"t": "time", "l": "list<time>", "s": "struct<t: time, d: date>", "d": "date", "n": "time"}
    columns = tuple(ColumnSpec(name=column, type=parse_type(of)) for column, of in kinds.items())
    scenario = Scenario(tmp_path, columns=columns, value={"format": "avro" if is_avro else "json"})
    row = {"t": value, "l": [value], "s": {"t": value, "d": 1}, "d": 1, "n": 1000}
    if is_avro:
        of_avro = "int" if kind == "int32" else "long"
        time, date = ({"type": of, "connect.name": f"{_DEBEZIUM}time.{of_connect}"}
                      for of, of_connect in ((of_avro, name), ("int", "Date")))  # fmt: skip
        inner = [{"name": "t", "type": time}, {"name": "d", "type": date}]
        types = {"t": time, "l": {"type": "array", "items": time}, "d": date, "n": "long",
                 "s": {"type": "record", "name": "S", "fields": inner}}  # fmt: skip
        fields = [{"name": field, "type": of} for field, of in types.items()]
        schema = json.dumps({"type": "record", "name": "R", "fields": fields})
        assert scenario.registry.register("avro", schema, subject="a-value") == 1
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), row)
        raw = b"\0\0\0\0\1" + out.getvalue()
    else:
        time, date = (
            {"type": kind, "name": f"{_DEBEZIUM}time.{name}"},
            {"type": "int32", "name": f"{_DEBEZIUM}time.Date"},
        )
        inner = [{**time, "field": "t"}, {**date, "field": "d"}]
        raw = _message(_struct(
            {**time, "field": "t"}, _field("array", "l", items=time), _field("struct", "s", fields=inner),
            {**date, "field": "d"}, _field("int64", "n"),
        ), row)  # fmt: skip
    scenario.source.produce("a", 0, raw)
    assert scenario.catch_up().status.reason == ""
    second, day = dt.time(0, 0, 1), dt.date(1970, 1, 2)
    assert scenario.rows() == [{"t": second, "l": [second], "s": {"t": second, "d": day}, "d": day, "n": second}]


@needs("protobuf")
def test_a_declared_date_has_the_day_of_a_google_date(tmp_path: Path) -> None:
    text = 'syntax = "proto3"; import "google/type/date.proto"; message M { google.type.Date day = 1; }'
    columns = (ColumnSpec(name="Day", type=parse_type("date")),)
    scenario = Scenario(tmp_path, columns=columns, value={"format": "protobuf"})
    number = scenario.registry.register("protobuf", text, subject="a-value")
    scenario.source.produce("a", 0, message(proto(text), number, {"day": {"year": 2026, "month": 1, "day": 2}}))
    assert scenario.catch_up().status.reason == ""
    assert scenario.rows() == [{"Day": dt.date(2026, 1, 2)}]


_DECIMAL = {"type": "bytes", "name": f"{_CONNECT}Decimal", "parameters": {"scale": "2"}, "optional": True}


@pytest.mark.parametrize(
    ("text", "value"),
    [("-123.45", "-123.45"), ("12", "12.00"), ("0", "0.00"), ("1.5E1", "15.00"), ("128", "128.00"), ("-1.28", "-1.28"),
     ('"z8c="', "-123.45"), ("9" * 36 + ".99", "9" * 36 + ".99")],
)  # fmt: skip
def test_a_decimal_may_be_a_number(text: str, value: str) -> None:
    """As the converter writes it with `decimal.format=NUMERIC`."""
    inner = {"type": "map", "keys": {"type": "string"}, "values": {"type": "array", "items": _DECIMAL}, "field": "m"}
    schema = _struct({**_DECIMAL, "field": "d"}, inner)
    payload = f'{{"d":{text},"m":{{"k":[{text},null]}}}}'
    message = f'{{"schema":{json.dumps(schema)},"payload":{payload}}}'.encode()
    wanted = Decimal(value)
    assert _read(message) == (
        {"d": "decimal(38, 2)", "m": "map<string, list<decimal(38, 2)>>"},
        [{"d": wanted, "m": [("k", [wanted, None])]}],
        [],
    )
    key = f'{{"schema":{json.dumps(_DECIMAL)},"payload":{text}}}'.encode()
    found = decode_keys(Reading(), "k", parse_type("decimal(38,2)"), {"key": pa.array([key], pa.binary())}, 1)
    assert found.columns[0].to_pylist() == [wanted]


@pytest.mark.parametrize("text", ["1.234", "1e999999999", "9" * 39, "true", "[1]"])
def test_a_number_that_its_decimal_cannot_hold_is_a_bad_record(text: str) -> None:
    message = f'{{"schema":{json.dumps(_struct({**_DECIMAL, "field": "d"}))},"payload":{{"d":{text}}}}}'.encode()
    _, rows, bad = _read(message, _message(_struct({**_DECIMAL, "field": "d"}), {"d": "AA=="}))
    assert (rows, [row for row, _ in bad]) == ([{"d": Decimal("0.00")}], [0])


def test_a_map_whose_keys_are_structs_is_a_list_of_its_entries() -> None:
    of_key = _struct({"type": "int32", "field": "k"})
    schema = _struct(_field("map", "m", keys=of_key, values={**_DECIMAL}))
    good = [_message(schema, {"m": m}) for m in ([[{"k": 4}, "AA=="], [{"k": 5}, 1.5]], [], None)]
    bad = [_message(schema, {"m": m}) for m in ([[{"k": 4}]], [[4, 1]], [{"key": 1}, []], {"k": 1})]
    kinds, rows, mismatches = _read(*good, *bad)
    assert kinds == {
        "m": "list<struct<0: key: optional struct<0: k: optional int>, 0: value: optional decimal(38, 2)>>"
    }
    entries = [{"key": {"k": 4}, "value": Decimal("0.00")}, {"key": {"k": 5}, "value": Decimal("1.50")}]
    assert rows == [{"m": entries}, {"m": []}, {"m": None}]
    assert {row for row, _ in mismatches} == {3, 4, 5, 6}


def test_a_value_that_its_schema_does_not_have_leaves_its_required_column_required() -> None:
    required = (NestedField(1, "n", IntegerType(), required=True),)
    records = pa.array([_message(_struct(_field("int32", "n")), {"n": "x"})], pa.binary())
    decoded = decode_values(Reading(), required, {"value": records})
    assert [(one.path, one.kind) for one in decoded.mismatches] == [("n", "type_mismatch")]
    assert decoded.made_optional == set()


def test_two_rescued_fields_of_one_path_keep_both_values() -> None:
    nested = _field("struct", "a", fields=[_field("int32", "x"), _field("string", "b")])
    column = (NestedField(1, "a", StructType(NestedField(2, "x", IntegerType(), required=False)), required=False),)
    value = _message(_struct(nested, _field("string", "a.b")), {"a": {"x": 1, "b": "inside"}, "a.b": "beside"})
    reading = Reading(unknown_fields="rescue", is_rescuing=True)
    decoded = decode_values(reading, column, {"value": pa.array([value], pa.binary())})
    assert decoded.rescued is not None
    rescued = json.loads(decoded.rescued[0].as_py())
    assert {path: member["value"] for path, member in rescued.items()} == {"a.b": "inside", "a.b#2": "beside"}
