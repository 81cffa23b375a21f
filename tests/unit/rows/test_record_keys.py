"""Record keys as a column of their own: one task, start to end, and the schema that follows from its report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import StringType

from frazil.decode.lossless import format_type
from frazil.decode.settings import Reading, WireFormat, WriterSchema
from frazil.ingest.tasks.task_job import Job, source_columns
from frazil.report import TaskReport
from frazil.schema.evolve import NameConflict, load_requested_fields, merge_requested_fields, new_schema
from frazil.schema.projection import KEY_ROOT, Shaping, extend_shaped
from frazil.spec.syntax.types import parse_type
from frazil.write.target import TableTarget
from tests.unit.ingest.targets import records_of, run, target_of
from tests.unit.rows.test_shaped_tasks import rows_of
from tests.unit.rows.test_writer_schemas import framed

SHAPING = Shaping(key="_key")


def table(folder: Path, key: Reading, kind: str | None = None, **other: Any) -> TableTarget:
    columns = {"id": "long"} | ({"_key": kind} if kind else {})
    return target_of(folder, columns, **{"shaping": SHAPING, "key": key, "reading": Reading(on_bad="skip"), **other})


def read(target: TableTarget, *keys: bytes | None, headers: list[Any] | None = None) -> TaskReport:
    rows = [{"key": key, "value": b'{"id": %d}' % n} for n, key in enumerate(keys)]
    if headers is not None:
        rows = [{**row, "headers": held} for row, held in zip(rows, headers, strict=True)]
    return run(Job({"a": target}), records_of(rows))["lake.t"]


def grown(target: TableTarget, report: TaskReport) -> dict[str, str]:
    """The table's columns when it has what the report wants."""
    requested_fields = merge_requested_fields(load_requested_fields(text) for text in report.schema.requested_fields)
    schema = extend_shaped(target.schema, SHAPING, (), requested_fields)
    return {field.name: format_type(field.field_type) for field in schema.fields}


def test_only_a_table_with_keys_asks_for_them(tmp_path: Path) -> None:
    assert "key" in source_columns(Job({"a": table(tmp_path, Reading(format="text"))}))
    assert "key" not in source_columns(Job({"a": target_of(tmp_path, {"id": "long"})}))


def test_keys_as_text(tmp_path: Path) -> None:
    report = read(table(tmp_path, Reading(format="text"), "string"), "kü".encode(), None, b"", b"\xff")
    assert [row["_key"] for row in rows_of(report)] == ["kü", None, ""]
    assert [(bad.kind, bad.path) for bad in report.bad_records.first] == [("invalid_text", "_key")]


@pytest.mark.parametrize(("kind", "bad"), [("binary", 0), ("long", 2)])
def test_a_column_that_was_made_for_other_keys_keeps_its_type(tmp_path: Path, kind: str, bad: int) -> None:
    report = read(table(tmp_path, Reading(format="text"), kind), b"a", None, b"b")
    assert (report.bad_records.count, len(rows_of(report))) == (bad, 3 - bad)


@pytest.mark.parametrize(
    ("kind", "keys", "values"),
    [
        ("long", [b"7", b" -1 ", None], [7, -1, None]),
        ("string", [b'"a"', b'"\\u00fc\\n"', b"null"], ["a", "ü\n", None]),
        ("boolean", [b"true", None], [True, None]),
        ("double", [b"1.5", b"2"], [1.5, 2.0]),
        ("list<long>", [b"[1, null]", None, b"[]"], [[1, None], None, []]),
        (
            "struct<id: long, at: struct<zip: string>>",
            [b'{"id": 1, "at": {"zip": "x"}}', None, b'{"\\u0069d": 2}'],
            [{"id": 1, "at": {"zip": "x"}}, None, {"id": 2, "at": None}],
        ),
    ],
)
def test_keys_of_json_become_what_they_are(tmp_path: Path, kind: str, keys: list[bytes | None], values: Any) -> None:
    first = table(tmp_path, Reading(format="json"))
    assert grown(first, read(first, *keys)) == {"id": "long", "_key": kind}
    report = read(table(tmp_path, Reading(format="json"), kind), *keys)
    assert ([row["_key"] for row in rows_of(report)], report.schema.requested_fields, report.bad_records.first) == (
        values,
        (),
        (),
    )


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (b"", "malformed"),
        (b"{", "malformed"),
        (b"1 2", "malformed"),
        (b'1, "x": 2', "malformed"),
        (b'{"id": 1}}', "malformed"),
        (b"\xff", "invalid_text"),
        (b'{"id": 1, "id": 2}', "duplicate_key"),
        (b'{"id": "x"}', "type_mismatch"),
        (b'"text"', "type_mismatch"),
        (b"[" * 2000, "too_deep"),
        (b'{"\\ud800": 1}', "invalid_text"),
    ],
)
def test_a_bad_key_is_a_bad_record_and_changes_no_other(tmp_path: Path, key: bytes, kind: str) -> None:
    target = table(tmp_path, Reading(format="json", unknown_fields="refuse"), "struct<id: long>")
    report = read(target, b'{"id": 1}', key, b'{"id": 3}')
    assert [row["_key"] for row in rows_of(report)] == [{"id": 1}, {"id": 3}]
    assert [(bad.kind, bad.path.split(".")[0]) for bad in report.bad_records.first] == [(kind, "_key")]


def test_a_new_field_of_a_key_is_wanted_and_never_taken_for_one_of_the_value(tmp_path: Path) -> None:
    target = table(tmp_path, Reading(format="json"), "struct<id: long>")
    report = read(target, b'{"id": 1, "more": {"x": [1]}}')
    assert [list(load_requested_fields(text)) for text in report.schema.requested_fields] == [[(KEY_ROOT,)]]
    assert grown(target, report) == {"id": "long", "_key": "struct<id: long, more: struct<x: list<long>>>"}
    with pytest.raises(NameConflict, match="field _key: the table has a column _key that is not for fields of records"):
        extend_shaped(target.schema, SHAPING, (), {(): {"_key": parse_type("long")}})


KEY = WriterSchema("avro", json.dumps({"type": "record", "name": "K", "fields": [{"name": "id", "type": "int"}]}))
WIDE = WriterSchema(
    "avro",
    json.dumps({"type": "record", "name": "K", "fields": [{"name": n, "type": "long"} for n in ("id", "part")]}),
)
PLAIN = WriterSchema("avro", '"string"')


def avro(*schemas: WriterSchema, **other: Any) -> Reading:
    return Reading(format="avro", schemas=tuple((str(n), one) for n, one in enumerate(schemas, 5)), **other)


def test_keys_with_a_schema_become_structs(tmp_path: Path) -> None:
    keys = [*framed(5, KEY, {"id": 1}), None, *framed(6, WIDE, {"id": 2, "part": 3})]
    first = table(tmp_path, avro(KEY, WIDE))
    assert grown(first, read(first, *keys))["_key"] == "struct<id: long, part: long>"
    narrow = table(tmp_path, avro(KEY, WIDE), "struct<id: int>")
    assert grown(narrow, read(narrow, *keys))["_key"] == "struct<id: long, part: long>"
    report = read(table(tmp_path, avro(KEY, WIDE), "struct<id: long, part: long>"), *keys, b"x")
    assert [row["_key"] for row in rows_of(report)] == [{"id": 1, "part": None}, None, {"id": 2, "part": 3}]
    assert [(bad.kind, bad.path) for bad in report.bad_records.first] == [("no_wire_format", "_key")]


def test_a_key_that_is_no_record_is_a_plain_value(tmp_path: Path) -> None:
    keys = framed(5, PLAIN, "a", "b")
    first = table(tmp_path, avro(PLAIN))
    assert grown(first, read(first, *keys))["_key"] == "string"
    report = read(table(tmp_path, avro(PLAIN, KEY), "string"), *keys, None, *framed(6, KEY, {"id": 1}))
    assert [row["_key"] for row in rows_of(report)] == ["a", "b", None]
    assert [(bad.kind, bad.path) for bad in report.bad_records.first] == [("unusable_schema", "_key")]
    report = read(table(tmp_path, avro(PLAIN, KEY), "struct<id: int>"), *keys, *framed(6, KEY, {"id": 1}))
    assert ([row["_key"] for row in rows_of(report)], report.bad_records.count) == ([{"id": 1}], 2)


NAMED = '{"type":"record","name":"Key","namespace":"shop","fields":[{"name":"id","type":"int"}]}'


@pytest.mark.parametrize(
    "schema",
    [
        WriterSchema("avro", '"shop.Key"', (("shop.Key", NAMED),)),
        WriterSchema("avro", '{"type":"shop.Key"}', (("shop.Key", NAMED),)),
        WriterSchema("avro", f'{{"type":{NAMED}}}'),
    ],
    ids=["by name", "by type", "wrapped"],
)
def test_keys_whose_schema_refers_to_a_record_are_records(tmp_path: Path, schema: WriterSchema) -> None:
    key = b"\0\0\0\0\5\2"
    first = table(tmp_path, avro(schema))
    assert grown(first, read(first, key))["_key"] == "struct<id: int>"
    report = read(table(tmp_path, avro(schema), "struct<id: int>"), key)
    assert ([row["_key"] for row in rows_of(report)], report.bad_records.first) == ([{"id": 1}], ())


def test_ids_of_unknown_key_schemas_come_back_apart_from_those_of_values(tmp_path: Path) -> None:
    report = read(table(tmp_path, avro(), "string"), *framed(5, PLAIN, "a"))
    assert (report.schema.missing, report.written.data) == (frozenset(["key:5"]), ())


def test_a_key_may_name_its_schema_in_its_own_header(tmp_path: Path) -> None:
    guid = "0102030405060708090a0b0c0d0e0f10"
    spelt = "01020304-0506-0708-090a-0b0c0d0e0f10"
    reading = Reading(format="avro", wire=WireFormat("none", True, "__key_schema_id"), schemas=((spelt, PLAIN),))
    named = [{"key": "__key_schema_id", "value": b"\x01" + bytes.fromhex(guid)}]
    report = read(table(tmp_path, reading, "string"), b"\x02a", None, b"\x02b", headers=[named, None, None])
    assert [row["_key"] for row in rows_of(report)] == ["a", None]
    assert [(bad.kind, bad.path) for bad in report.bad_records.first] == [("no_schema_id", "_key")]


def test_keys_go_beside_a_flattened_value(tmp_path: Path) -> None:
    shaping = Shaping(depth=100, key="_key")
    schema = extend_shaped(
        new_schema([("_key", StringType())]), shaping, (), {(): {"u": parse_type("struct<id: long>")}}
    )
    target = target_of(tmp_path, {}, shaping=shaping, key=Reading(format="text"), schema_json=schema.model_dump_json())
    batch = records_of([{"key": b"k", "value": b'{"u": {"id": 1}}'}])
    assert rows_of(run(Job({"a": target}), batch)["lake.t"]) == [{"_key": "k", "u_id": 1}]


def test_a_time_of_a_key_with_a_zone_more_or_less_than_its_column_is_kept_as_text(tmp_path: Path) -> None:
    kind = {"type": "long", "logicalType": "local-timestamp-millis"}
    fields = [{"name": "at", "type": kind}]
    schema = WriterSchema("avro", json.dumps({"type": "record", "name": "K", "fields": fields}))
    target = table(tmp_path, Reading(format="avro", schemas=(("1", schema),)), "struct<at: timestamptz>")
    [bad] = read(target, *framed(1, schema, {"at": 1})).bad_records.first
    assert (bad.kind, bad.path) == ("type_mismatch", "_key.at")
    assert bad.reason.endswith(
        "does not fit timestamptz; correct the schema; a new table with `key: {format: text}` keeps both as text"
    )
