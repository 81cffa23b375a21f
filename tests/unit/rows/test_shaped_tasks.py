"""Tables whose columns are not simply the fields of the record: one task, start to end.

FRAZIL_EXAMPLES: how many times as many examples to try.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema

from frazil.dead_letters.record import DEAD_LETTER_TYPES
from frazil.decode.lossless import format_type
from frazil.decode.settings import NO_EVOLUTION, Reading, WriterSchema
from frazil.ingest.tasks.task_job import Job
from frazil.report import TaskReport
from frazil.schema.evolve import RequestedFields, load_requested_fields, merge_requested_fields, new_schema
from frazil.schema.projection import Shaping, extend_shaped
from frazil.spec.syntax.types import parse_type
from frazil.write.target import TableTarget
from tests.needs import has_package, needs
from tests.unit.ingest.targets import records_of, run, target_of
from tests.unit.rows.test_writer_schemas import framed

if has_package("protobuf"):
    from frazil_protobuf.protoc import compile_proto

FLAT = Shaping(depth=100)
USER = {"id": "long", "user": "struct<name: string, at: struct<zip: int, tags: list<string>>>"}


def rows_of(report: TaskReport) -> list[dict[str, Any]]:
    return [row for file in report.written.data for row in pq.read_table(file.path).to_pylist()]


def value(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def shaped(
    folder: Path, shaping: Shaping, found: Mapping[str, str], declared: Mapping[str, str] | None = None, **other: Any
) -> TableTarget:
    """A table as it is after records with the fields `found`."""
    columns = {name: parse_type(word) for name, word in (declared or {}).items()}
    requested_fields: RequestedFields = {(): {name: parse_type(word) for name, word in found.items()}}
    schema = extend_shaped(new_schema(columns.items()), shaping, (), requested_fields)
    return target_of(folder, {}, shaping=shaping, **{"schema_json": schema.model_dump_json(), **other})


def test_nested_records_become_columns_and_a_null_parent_gives_nulls(tmp_path: Path) -> None:
    records = [
        value(id=1, user={"name": "ann", "at": {"zip": 7, "tags": ["x", None]}}),
        value(id=2, user=None),
        value(id=3),
        value(id=4, user={"at": None, "name": "bob"}),
    ]
    report = run(Job({"a": shaped(tmp_path, FLAT, USER)}), records_of([{"value": v} for v in records]))["lake.t"]
    assert (rows_of(report), report.schema.requested_fields, report.bad_records.count) == (
        [
            {"id": 1, "user_name": "ann", "user_at_zip": 7, "user_at_tags": ["x", None]},
            {"id": 2, "user_name": None, "user_at_zip": None, "user_at_tags": None},
            {"id": 3, "user_name": None, "user_at_zip": None, "user_at_tags": None},
            {"id": 4, "user_name": "bob", "user_at_zip": None, "user_at_tags": None},
        ],
        (),
        0,
    )


def test_a_new_nested_field_is_wanted_by_its_path(tmp_path: Path) -> None:
    batch = records_of([{"value": value(user={"at": {"country": "de"}})}])
    report = run(Job({"a": shaped(tmp_path, FLAT, USER)}), batch)["lake.t"]
    assert report.written.data == ()
    assert [load_requested_fields(text) for text in report.schema.requested_fields] == [
        {("user", "at"): {"country": parse_type("string")}}
    ]


def test_rescue_and_dead_letters_of_a_flattened_table_speak_of_the_records_paths(tmp_path: Path) -> None:
    schema_json = new_schema(DEAD_LETTER_TYPES.items()).model_dump_json()
    dead_letters = target_of(tmp_path, {}, name="lake.dead_letters", schema_json=schema_json)
    target = shaped(
        tmp_path,
        FLAT,
        USER,
        {"_rescued": "string"},
        reading=Reading(is_rescuing=True, unknown_fields="rescue", on_bad="dead_letter"),
        dead_letters=dead_letters,
    )
    batch = records_of(
        [
            {"key": None, "offset": n, "headers": None, "value": v}
            for n, v in enumerate(
                (
                    value(id=1, user={"at": {"zip": "x", "tags": []}, "more": {"a": 1}}),
                    b"{",
                    value(id=3, user="bob"),
                    value(id=4, user={"at": {"zip": 5}}),
                )
            )
        ]
    )
    report = run(Job({"a": target}), batch)["lake.t"]
    rows = rows_of(report)
    assert [(row["id"], row["user_at_zip"], row["user_at_tags"]) for row in rows] == [
        (1, None, []), (3, None, None), (4, 5, None)
    ]  # fmt: skip
    rescued = [json.loads(row["_rescued"]) if row["_rescued"] else {} for row in rows]
    assert [{path: held["value"] for path, held in one.items()} for one in rescued] == [
        {"user.at.zip": "x", "user.more": {"a": 1}}, {"user": "bob"}, {}
    ]  # fmt: skip
    (dead_letter,) = [row for file in report.written.dead_letters for row in pq.read_table(file.path).to_pylist()]
    assert (dead_letter["offset"], dead_letter["error_class"]) == (1, "malformed")


@pytest.mark.parametrize("unknown_fields", ["add", "drop", "rescue", "refuse"])
def test_what_is_left_out_is_nowhere_and_no_reason_to_refuse_a_record(tmp_path: Path, unknown_fields: str) -> None:
    shaping = Shaping(exclude=(("secret",), ("user", "ssn"), ("items", "element", "ssn"), ("user", "bad")))
    found = {"id": "long", "user": "struct<name: string>", "items": "list<struct<n: long>>"}
    columns = {"_rescued": "string"} if unknown_fields == "rescue" else {}
    target = shaped(tmp_path, shaping, found, columns, reading=Reading(unknown_fields=unknown_fields))
    records = [
        value(id=1, secret={"a": 1}, user={"name": "x", "ssn": 5, "bad": 1}, items=[{"n": 1, "ssn": 2}]),
        value(id=2, secret="s", user={"ssn": "6", "bad": []}, items=[{"ssn": {}}]),
    ]
    report = run(Job({"a": target}), records_of([{"value": v} for v in records]))["lake.t"]
    rescued = {"_rescued": None} if columns else {}
    assert (rows_of(report), report.schema.requested_fields, report.schema.dropped, report.bad_records.first) == (
        [
            {**rescued, "id": 1, "user": {"name": "x"}, "items": [{"n": 1}]},
            {**rescued, "id": 2, "user": {"name": None}, "items": [{"n": None}]},
        ],
        (),
        frozenset(),
        (),
    )


def test_only_what_is_included_is_wanted_and_a_mixed_field_beside_it_is_no_fault(tmp_path: Path) -> None:
    shaping = Shaping(include=(("id",), ("user", "name"), ("tags",), ("items", "element", "n")))
    target = target_of(tmp_path, {}, shaping=shaping)
    records = [
        value(id=1, noise=1, user={"name": "x", "ssn": 5}, items=[{"n": 1, "ssn": 2}]),
        value(id=2, noise="n", user={"ssn": "6"}, items=None, tags=["t"]),
        value(id=3, user="not a record", items="nor a list"),
    ]
    job = Job({"a": target}, trials=frozenset(["lake.t"]))
    report = run(job, records_of([{"value": v} for v in records]))["lake.t"]
    assert report.bad_records.first == ()
    (found,) = (load_requested_fields(text) for text in report.schema.requested_fields)
    schema = extend_shaped(Schema(), shaping, (), found)
    assert {field.name: format_type(field.field_type) for field in schema.fields} == {
        "id": "long", "user": "struct<name: string>", "tags": "list<string>", "items": "list<struct<n: long>>"
    }  # fmt: skip
    full = target_of(tmp_path, {}, shaping=shaping, schema_json=schema.model_dump_json())
    report = run(Job({"a": full}), records_of([{"value": v} for v in records[:2]]))["lake.t"]
    assert (rows_of(report), report.schema.requested_fields, report.schema.dropped) == (
        [
            {"id": 1, "items": [{"n": 1}], "tags": None, "user": {"name": "x"}},
            {"id": 2, "items": None, "tags": ["t"], "user": {"name": None}},
        ],
        (),
        frozenset(),
    )


def test_of_an_unknown_field_only_what_counts_is_rescued(tmp_path: Path) -> None:
    shaping = Shaping(exclude=(("u", "ssn"), ("l", "element", "ssn")))
    target = shaped(tmp_path, shaping, {"id": "long"}, {"_rescued": "string"}, reading=Reading(unknown_fields="rescue"))
    records = [value(id=1, u={"ssn": 1, "n": 2}, l=[{"ssn": 1, "n": 3}]), value(u="plain", l=[4])]
    report = run(Job({"a": target}), records_of([{"value": v} for v in records]))["lake.t"]
    rescued = [json.loads(row["_rescued"]) for row in rows_of(report)]
    assert [{path: held["value"] for path, held in one.items()} for one in rescued] == [
        {"u.n": 2, "l.element.n": 3}, {"u": "plain", "l.element": 4}
    ]  # fmt: skip


def test_a_declared_column_waits_for_its_field_under_every_policy(tmp_path: Path) -> None:
    shaping = Shaping(depth=100, case="snake")
    declared = {"user_id": "string", "total": "long"}
    batch = records_of([{"value": v} for v in (value(user={"Id": 5}, x=1), value(user={"Id": "six"}), value(user=7))])
    for unknown_fields in ("add", "drop", "refuse"):
        target = shaped(tmp_path, shaping, {}, declared, reading=Reading(unknown_fields=unknown_fields, on_bad="skip"))
        report = run(Job({"a": target}), batch)["lake.t"]
        assert report.written.data == ()
        assert (report.bad_records.count, [load_requested_fields(text) for text in report.schema.requested_fields]) == (
            0, [{("user",): {"Id": parse_type("string")}}]
        )  # fmt: skip
        bound = shaped(tmp_path, shaping, {"user": "struct<Id: long>"}, declared, reading=target.reading)
        report = run(Job({"a": bound}), batch)["lake.t"]
        if unknown_fields == "drop":
            assert rows_of(report) == [{"user_id": "six", "total": None}]
            assert [(bad.path, bad.kind) for bad in report.bad_records.first] == [
                ("user.Id", "type_mismatch"), ("user", "type_mismatch")
            ]  # fmt: skip


def test_a_column_fed_by_a_field_of_another_name(tmp_path: Path) -> None:
    shaping = Shaping(fields=(("total", ("order", "total")),))
    target = shaped(tmp_path, shaping, {"order": "struct<id: long>"}, {"total": "decimal(12,2)"})
    batch = records_of([{"value": b'{"order": {"id": 1, "total": 12.50}}'}, {"value": b'{"order": null}'}])
    rows = rows_of(run(Job({"a": target}), batch)["lake.t"])
    assert [(str(row["total"]), row["order"]) for row in rows] == [("12.50", {"id": 1}), ("None", None)]


ADDRESS = {
    "type": "record",
    "name": "At",
    "fields": [{"name": "zip", "type": "int"}, {"name": "ssn", "type": "string"}],
}
FIELDS = [
    {"name": "userId", "type": "int"},
    {"name": "at", "type": ["null", ADDRESS], "default": None},
    {"name": "tags", "type": {"type": "array", "items": ADDRESS | {"name": "At2"}}},
]
AVRO = WriterSchema("avro", json.dumps({"type": "record", "name": "R", "fields": FIELDS}))


def test_records_of_the_registry_are_shaped_the_same_way(tmp_path: Path) -> None:
    shaping = Shaping(depth=100, case="snake", exclude=(("at", "ssn"), ("tags", "element", "ssn")))
    reading = Reading(format="avro", schemas=(("5", AVRO),))
    records = [
        {"userId": 1, "at": {"zip": 7, "ssn": "s"}, "tags": [{"zip": 1, "ssn": "s"}]},
        {"userId": 2, "at": None, "tags": []},
    ]
    batch = records_of([{"value": v} for v in framed(5, AVRO, *records)])
    empty = target_of(tmp_path, {}, shaping=shaping, reading=reading)
    report = run(Job({"a": empty}, trials=frozenset(["lake.t"])), batch)["lake.t"]
    (found,) = (load_requested_fields(text) for text in report.schema.requested_fields)
    schema = extend_shaped(Schema(), shaping, (), found)
    assert [field.name for field in schema.fields] == ["user_id", "at_zip", "tags"]
    full = target_of(tmp_path, {}, shaping=shaping, reading=reading, schema_json=schema.model_dump_json())
    report = run(Job({"a": full}), batch)["lake.t"]
    assert (rows_of(report), report.schema.requested_fields, report.bad_records.first) == (
        [{"user_id": 1, "at_zip": 7, "tags": [{"zip": 1}]}, {"user_id": 2, "at_zip": None, "tags": []}], (), ()
    )  # fmt: skip


@pytest.mark.parametrize("name", ["l", "m"])
def test_what_is_left_out_of_lists_and_maps_stays_out_in_every_batch(tmp_path: Path, name: str) -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": n, "type": "string"} for n in ("secret", "open")]}
    kinds = {"l": {"type": "array", "items": inner}, "m": {"type": "map", "values": inner}}
    text = json.dumps({"type": "record", "name": "Held", "fields": [{"name": name, "type": kinds[name]}]})
    schema = WriterSchema("avro", text)
    shaping = Shaping(exclude=((name, "element" if name == "l" else "value", "secret"),))
    words = {"l": "list<struct<open: string>>", "m": "map<string, struct<open: string>>"}
    reading = Reading(format="avro", schemas=(("5", schema),))
    target = shaped(tmp_path, shaping, {name: words[name]}, reading=reading)
    held = {"secret": "s", "open": "o"}
    batch = records_of([{"value": v} for v in framed(5, schema, {name: [held] if name == "l" else {"k": held}})])
    expected = {"l": [{"open": "o"}], "m": [("k", {"open": "o"})]}[name]
    for _ in range(3):  # Readers are kept from batch to batch.
        assert rows_of(run(Job({"a": target}), batch)["lake.t"]) == [{name: expected}]


def test_a_declared_column_of_a_registry_format_waits_for_its_field_too(tmp_path: Path) -> None:
    shaping = Shaping(depth=100, case="snake")
    reading = Reading(format="avro", schemas=(("5", AVRO),), unknown_fields="drop")
    batch = records_of([{"value": v} for v in framed(5, AVRO, {"userId": 1, "at": None, "tags": []})])
    target = shaped(tmp_path, shaping, {}, {"user_id": "long", "at_zip": "long"}, reading=reading)
    report = run(Job({"a": target}), batch)["lake.t"]
    (found,) = (load_requested_fields(text) for text in report.schema.requested_fields)
    assert found == {(): {"userId": parse_type("long")}, ("at",): {"zip": parse_type("long")}}
    bound = extend_shaped(target.schema, shaping, (), found)
    full = target_of(tmp_path, {}, shaping=shaping, reading=reading, schema_json=bound.model_dump_json())
    assert rows_of(run(Job({"a": full}), batch)["lake.t"]) == [{"user_id": 1, "at_zip": None}]


def test_a_required_column_of_a_nested_field_refuses_the_records_without_it(tmp_path: Path) -> None:
    schema = shaped(tmp_path, FLAT, {"u": "struct<id: long>"}).schema
    required = Schema(*(field.model_copy(update={"required": True}) for field in schema.fields)).model_dump_json()
    reading = Reading(evolution=NO_EVOLUTION, on_bad="skip")
    target = target_of(tmp_path, {}, shaping=FLAT, reading=reading, schema_json=required)
    batch = records_of([{"value": v} for v in (value(u={"id": 1}), value(u=None), value())])
    report = run(Job({"a": target}), batch)["lake.t"]
    assert (rows_of(report), [(bad.kind, bad.path) for bad in report.bad_records.first]) == (
        [{"u_id": 1}],
        [("missing_value", "u_id")] * 2,
    )


PROTO = """
syntax = "proto3";
message Order { int64 id = 1; Customer customer = 2; }
message Customer { string fullName = 1; string ssn = 2; }
"""


@needs("protobuf")
def test_messages_of_protobuf_are_shaped_the_same_way(tmp_path: Path) -> None:
    shaping = Shaping(depth=100, case="snake", exclude=(("customer", "ssn"),))
    schema = WriterSchema("protobuf", PROTO, descriptors=compile_proto(PROTO, ()))
    reading = Reading(format="protobuf", schemas=(("5", schema),))
    head = b"\x00\x00\x00\x00\x05\x00"
    bodies = [b"\x08\x07\x12\x08\x0a\x03ann\x12\x01s", b"\x08\x08"]
    batch = records_of([{"value": head + body} for body in bodies])
    full = shaped(tmp_path, shaping, {"id": "long", "customer": "struct<fullName: string>"}, reading=reading)
    report = run(Job({"a": full}), batch)["lake.t"]
    assert (rows_of(report), report.schema.requested_fields, report.bad_records.first) == (
        [{"id": 7, "customer_full_name": "ann"}, {"id": 8, "customer_full_name": None}], (), ()
    )  # fmt: skip


@needs("jsonschema")
def test_a_json_schema_tells_the_types_of_flattened_columns(tmp_path: Path) -> None:
    shaping = Shaping(depth=100, exclude=(("user", "ssn"),))
    user = {"type": "object", "properties": {"born": {"type": "string", "format": "date"}, "ssn": {"type": "integer"}}}
    text = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}, "user": user}})
    reading = Reading(format="json_schema", schemas=(("5", WriterSchema("json_schema", text)),))
    batch = records_of([{"value": b"\x00\x00\x00\x00\x05" + value(user={"born": "2000-01-31", "ssn": "?"}, id=1)}])
    first = run(Job({"a": target_of(tmp_path, {}, shaping=shaping, reading=reading)}), batch)["lake.t"]
    schema = extend_shaped(
        Schema(),
        shaping,
        (),
        merge_requested_fields(load_requested_fields(text) for text in first.schema.requested_fields),
    )
    assert {field.name: str(field.field_type) for field in schema.fields} == {"id": "long", "user_born": "date"}
    full = target_of(tmp_path, {}, shaping=shaping, reading=reading, schema_json=schema.model_dump_json())
    report = run(Job({"a": full}), batch)["lake.t"]
    assert (rows_of(report), report.schema.requested_fields) == ([{"id": 1, "user_born": date(2000, 1, 31)}], ())


_TIMES = int(os.environ.get("FRAZIL_EXAMPLES", "1"))
NAMES = st.sampled_from(["a", "b", "c", " "])
RECORDS = st.recursive(
    st.integers(-5, 5) | st.none(),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=25 * _TIMES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(NAMES, RECORDS, max_size=3), min_size=1, max_size=5), st.integers(1, 3))
def test_every_value_of_a_record_ends_in_the_column_of_its_path(tmp_path: Path, records: list[Any], depth: int) -> None:
    shaping = Shaping(depth=depth)
    batch = records_of([{"value": value(**record)} for record in records])
    target = target_of(tmp_path, {}, shaping=shaping, reading=Reading(on_bad="skip"))
    report = run(Job({"a": target}, trials=frozenset(["lake.t"])), batch)["lake.t"]
    schema = extend_shaped(
        Schema(),
        shaping,
        (),
        merge_requested_fields(load_requested_fields(text) for text in report.schema.requested_fields),
    )
    assume(schema.fields)
    for _ in range(len(records)):  # A record that is a bad one now makes room for what others have.
        full = target_of(tmp_path, {}, shaping=shaping, reading=target.reading, schema_json=schema.model_dump_json())
        report = run(Job({"a": full}), batch)["lake.t"]
        schema = extend_shaped(
            schema,
            shaping,
            (),
            merge_requested_fields(load_requested_fields(text) for text in report.schema.requested_fields),
        )
    assert report.schema.requested_fields == ()
    if not report.bad_records.count:  # Where one record has a number and another a record, one of them is bad.
        assert [_there(row) for row in rows_of(report)] == [_there(_flat(record, depth)) for record in records]


def _flat(record: Any, depth: int, path: tuple[str, ...] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, held in record.items():
        if isinstance(held, dict) and len(path) < depth:
            found |= _flat(held, depth, (*path, name))
        else:
            found["_".join((*path, name))] = held
    return found


def _there(held: Any) -> Any:
    """Without nulls and empty records, which a flattened table does not tell apart."""
    if not isinstance(held, dict):
        return held
    inner = {name: _there(one) for name, one in held.items()}
    return {name: one for name, one in inner.items() if one is not None and one != {}}
