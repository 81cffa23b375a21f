"""Columns from headers in every format: one task, start to end, and a service that asks the registry for their schemas."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from frazil.decode.settings import NO_EVOLUTION, Reading, WireFormat, WriterSchema
from frazil.ingest.tables.table import Table
from frazil.ingest.tables.target import target_of as table_target
from frazil.ingest.tasks.task_job import Job, source_columns
from frazil.report import TaskReport
from frazil.schema.projection import Shaping
from frazil.spec import ColumnSpec, TableSpec
from frazil.spec.settings import ValueSpec
from frazil.spec.syntax.types import parse_type
from frazil.write.target import TableTarget
from tests.needs import has_package, needs
from tests.unit.ingest.tables.test_schemas import Scenario, avro
from tests.unit.ingest.targets import records_of, run, target_of
from tests.unit.rows.test_shaped_tasks import rows_of
from tests.unit.rows.test_writer_schemas import framed

if has_package("protobuf"):
    from frazil_protobuf.protoc import compile_proto

SHAPING = Shaping(headers=(("h", "event"),))
RECORD = "struct<id: long, name: string>"
AVRO = WriterSchema("avro", avro(id="int", more="string", name="string"))
PLAIN = WriterSchema("avro", '"long"')
TEXT = 'syntax = "proto3"; message A { int32 x = 1; } message B { int32 id = 1; string name = 2; }'
PROTOBUF = WriterSchema("protobuf", TEXT, (), compile_proto(TEXT) if has_package("protobuf") else b"")
JSON_SCHEMA = WriterSchema("json_schema", json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}}))
ROW = {"id": 1, "name": "a"}


def target(folder: Path, kind: str, of_header: Reading, is_rescuing: bool = False) -> TableTarget:
    columns = {"id": "long", "h": kind, **({"_rescued": "string"} if is_rescuing else {})}
    reading = Reading(on_bad="skip", is_rescuing=is_rescuing)
    return target_of(folder, columns, shaping=SHAPING, headers=(("h", of_header),), reading=reading)


def read(table: TableTarget, *headers: bytes | None) -> TaskReport:
    rows = [
        {"value": b'{"id": %d}' % n, "headers": None if held is None else [{"key": "event", "value": held}]}
        for n, held in enumerate(headers)
    ]
    return run(Job({"a": table}), records_of(rows))["lake.t"]


def held(report: TaskReport) -> list[Any]:
    return [row["h"] for row in rows_of(report)]


def known(schema: WriterSchema, **other: Any) -> Reading:
    return Reading(format=schema.kind, schemas=(("5", schema),), unknown_fields="drop", evolution=NO_EVOLUTION, **other)


@pytest.mark.parametrize(
    ("kind", "reading", "good", "value", "bad", "why"),
    [
        (
            RECORD,
            Reading(unknown_fields="drop"),
            b'{"id": 1, "name": "a", "more": 2}',
            ROW,
            b'{"id": "x"}',
            "type_mismatch",
        ),
        ("list<double>", Reading(unknown_fields="drop"), b"[1, 2.5]", [1.0, 2.5], b"[", "malformed"),
        ("boolean", Reading(unknown_fields="drop"), b"true", True, b"\xff", "invalid_text"),
        (RECORD, known(AVRO), framed(5, AVRO, {**ROW, "more": "x"})[0], ROW, b"\0\0\0\0\5", "malformed"),
        ("double", known(WriterSchema("avro", '"double"')), b"\0\0\0\0\5" + bytes(8), 0.0, b"\1", "no_wire_format"),
        ("long", known(PLAIN), framed(5, PLAIN, 7)[0], 7, b"\0\0\0\0\5", "malformed"),
        ("int", known(PLAIN), framed(5, PLAIN, 7)[0], 7, framed(5, PLAIN, 2**40)[0], "out_of_range"),
        (
            RECORD,
            known(AVRO, wire=WireFormat("apicurio")),
            b"\0" + struct.pack(">q", 5) + framed(5, AVRO, {**ROW, "more": "x"})[0][5:],
            ROW,
            b"\0\0\0\0\5",
            "malformed",
        ),
        pytest.param(
            RECORD,
            known(PROTOBUF),
            b"\0\0\0\0\5\2\2\x08\1\x12\1a",
            ROW,
            b"\0\0\0\0\5\2\2\x08",
            "malformed",
            marks=needs("protobuf"),
        ),
        pytest.param(
            RECORD,
            Reading(
                format="protobuf",
                wire=WireFormat("none", message="B"),
                schemas=(("latest", PROTOBUF),),
                unknown_fields="drop",
                evolution=NO_EVOLUTION,
            ),
            b"\x08\1\x12\1a",
            ROW,
            b"\x12\1\xff",
            "invalid_text",
            marks=needs("protobuf"),
        ),
        pytest.param(
            RECORD,
            known(JSON_SCHEMA),
            b'\0\0\0\0\5{"id": 1, "name": "a"}',
            ROW,
            b"\0\0\0\0\5[1]",
            "not_an_object",
            marks=needs("jsonschema"),
        ),
    ],
)
def test_a_header_is_read_as_its_format_reports(
    tmp_path: Path, kind: str, reading: Reading, good: bytes, value: Any, bad: bytes, why: str
) -> None:
    table = target(tmp_path, kind, reading)
    assert "headers" in source_columns(Job({"a": table}))
    report = read(table, good, None, bad, good)
    assert (held(report), report.schema.requested_fields, report.schema.missing) == (
        [value, None, value],
        (),
        frozenset(),
    )
    assert [(one.kind, one.path.split(".")[:2]) for one in report.bad_records.first] == [(why, ["_headers", "event"])]
    rescuing = target(tmp_path, kind, reading, is_rescuing=True)
    report = read(rescuing, good, bad)
    assert (held(report), report.bad_records.first) == ([value, None], ())
    [saved] = [json.loads(row["_rescued"]) for row in rows_of(report) if row["_rescued"]]
    assert [path.split(".")[:2] for path in saved] == [["_headers", "event"]]


def test_the_id_of_a_schema_that_is_not_known_comes_back_with_its_column(tmp_path: Path) -> None:
    report = read(target(tmp_path, RECORD, Reading(format="avro")), framed(5, AVRO, {**ROW, "more": "x"})[0])
    assert (report.schema.missing, report.written.data) == (frozenset(["header:h:5"]), ())


def test_a_running_pipeline_asks_for_the_schemas_of_headers_keys_and_values(tmp_path: Path) -> None:
    values = {
        "a:b": ColumnSpec(
            name="a:b", type=parse_type("struct<id: long>"), header="event", value=ValueSpec(format="avro")
        ),
        "n": ColumnSpec(
            name="n",
            type=parse_type("long"),
            header="number",
            value=ValueSpec(format="avro", source="latest", subject="numbers"),
        ),
        "t": ColumnSpec(name="t", type=parse_type("int"), header="digits", value=ValueSpec(format="text")),
    }
    scenario = Scenario(tmp_path, columns=tuple(values.values()), key=ValueSpec(format="avro"), metadata={"key": "k"})
    text = avro(id="int")
    schema_id = scenario.register(text)
    scenario.register('"long"', "numbers")
    value = framed(schema_id, WriterSchema("avro", text), {"id": 1})[0]
    headers = (("event", value), ("number", b"\x0e"), ("digits", b"12"))
    scenario.source.produce("a", 0, value, key=value, headers=headers)
    scenario.settle()
    assert scenario.rows() == [{"a:b": {"id": 1}, "n": 7, "t": 12, "k": {"id": 1}, "id": 1}]
    table = Table(scenario.table)
    assert [column for column, _ in table_target(table).record.headers] == ["a:b", "n"]
    state = scenario.catalog.load("n.t")
    assert state is not None
    assert state.progress.batch.schemas == (str(schema_id),), "progress names schemas of values alone"


def test_a_table_without_such_columns_reads_no_headers() -> None:
    column = ColumnSpec(name="t", type=parse_type("string"), header="trace")
    assert table_target(Table(TableSpec(name="n.t", topics=(), columns=(column,)))).record.headers == ()
