"""Values in the form of a column that has the field's name in another case, as Hive spells names, or an older name of it."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from frazil.cdc.changes import read_envelope
from frazil.decode.renames import FedColumns, find_renames
from frazil.decode.settings import Envelope, WriterSchema
from frazil.spec import ColumnSpec
from frazil.spec.load import load_spec
from frazil.spec.syntax.types import parse_type
from tests.needs import needs
from tests.unit.cdc.envelope_messages import UPSERT_ENVELOPE, avro
from tests.unit.cdc.envelope_reference import target_for
from tests.unit.ingest.service_scene import Scene
from tests.unit.rows.test_encodings import LOGICAL, SHAPES, found, message, proto, written
from tests.unit.rows.test_writer_schemas import decode, fields_of
from tests.unit.spec.pipeline_file import setting, with_table

_MICROS = {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}
_NAMES = {"a column in lower case": ("V", ()), "a renamed field": ("w", ["v"]), "both": ("w", ["V"])}


def schema_of(name: str, aliases: Any, kind: Any, shape: str) -> WriterSchema:
    field = {"name": name, "type": SHAPES[shape][0](kind), "aliases": list(aliases)}
    return WriterSchema("avro", json.dumps({"type": "record", "name": "R", "fields": [field]}))


@pytest.mark.parametrize("names", _NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_column_of_the_type_underneath_has_values_as_they_are_written(shape: str, names: str) -> None:
    for plain, logical, column, value in LOGICAL:
        schema, whole = schema_of(*_NAMES[names], logical, shape), SHAPES[shape][2](value)
        records = written(1, schema_of("v", (), plain, shape), whole)
        values = found(decode(records, fields_of(v=SHAPES[shape][1].format(column)), {1: schema}))
        assert values == [whole], (logical, column)


@pytest.mark.parametrize("names", _NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_column_has_values_of_connects_types(shape: str, names: str) -> None:
    schema, whole = schema_of(*_NAMES[names], _MICROS, shape), SHAPES[shape][2](1_700_000_000_123_456)
    records = written(1, schema_of("v", (), "long", shape), whole)
    fields = fields_of(v=SHAPES[shape][1].format("long"))
    assert found(decode(records, fields, {1: schema})) == [whole]


def test_members_are_matched_in_the_same_way() -> None:
    inner = {"type": "record", "name": "In", "fields": [
        {"name": "Placed", "type": _MICROS}, {"name": "put", "type": _MICROS, "aliases": ["sent"]},
    ]}  # fmt: skip
    fields = [{"name": "order", "type": {"type": "array", "items": inner}, "aliases": ["o"]}]
    schema = WriterSchema("avro", json.dumps({"type": "record", "name": "R", "fields": fields}))
    record = b"\0\0\0\0\1" + b"\2\x0a\x0c\0"
    decoded = decode([record], fields_of(o="list<struct<placed: long, sent: long>>"), {1: schema})
    assert (decoded.mismatches, decoded.requested_fields) == ([], {})
    assert decoded.columns[0].to_pylist() == [[{"placed": 5, "sent": 6}]]


@needs("protobuf")
def test_a_protobuf_field_is_read_as_the_type_of_a_column_in_lower_case() -> None:
    schema = proto(
        'syntax = "proto3"; message M { E userType = 1; bytes rawText = 2; bool isOk = 3; Void theVoid = 4;'
        " N nested = 5; repeated E allTypes = 6; enum E { A = 0; B = 1; } message Void {} message N { E ofKind = 1; } }"
    )
    content = {"userType": "B", "rawText": "YWJj", "isOk": True, "theVoid": {}, "nested": {"ofKind": "B"}}
    fields = fields_of(
        usertype="int", rawtext="string", isok="long", thevoid="struct<x: int>", nested="struct<ofkind: int>",
        alltypes="list<int>",
    )  # fmt: skip
    record = message(schema, 1, {**content, "allTypes": ["A", "B"]})
    decoded = decode([record], fields, {1: schema}, format="protobuf")
    assert (decoded.mismatches, decoded.refusals, decoded.requested_fields) == ([], set(), {})
    assert [column.to_pylist()[0] for column in decoded.columns] == [1, "abc", 1, {"x": None}, {"ofkind": 1}, [0, 1]]


def test_a_message_of_connect_is_read_as_the_types_of_columns_in_lower_case(tmp_path: Path) -> None:
    def field(kind: str, name: str, logical: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, "field": name, "name": logical, "optional": True, **more}

    fields = [
        field("int64", "PlacedAt", "io.debezium.time.MicroTimestamp"),
        field("int64", "SentAt", "io.debezium.time.MicroTimestamp"),
        field("bytes", "Price", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "2"}),
        field("int32", "Day", "io.debezium.time.Date"),
    ]
    kinds = {"placedat": "long", "price": "binary", "day": "int"}
    columns = [ColumnSpec(name=name, type=parse_type(kind)) for name, kind in kinds.items()]
    # A declared unit takes precedence over Connect's type.
    columns.append(ColumnSpec(name="sentat", type=parse_type("timestamptz"), unit="s"))
    scene = Scene(tmp_path, "a", columns=tuple(columns), on_bad_record="stop")
    payload = {"PlacedAt": 5, "SentAt": 6, "Price": "JxE=", "Day": 20_000}
    scene.feed("a", {"schema": {"type": "struct", "fields": fields}, "payload": payload})
    scene.catch_up()
    sent = dt.datetime(1970, 1, 1, 0, 0, 6, tzinfo=dt.UTC)
    assert scene.rows("n.a") == [{"placedat": 5, "price": b"'\x11", "day": 20_000, "sentat": sent}]


@pytest.mark.parametrize(("name", "aliases"), [("At", ()), ("sent", ["at"])])
@pytest.mark.parametrize("is_flat", [False, True])
def test_in_an_envelope_too_a_column_has_the_values_as_written(name: str, aliases: Any, is_flat: bool) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": name, "type": ["null", _MICROS], "aliases": list(aliases)}]
    row = {"type": "record", "name": "Row", "fields": fields}
    schema: dict[str, Any] = {**row, "fields": [*fields, {"name": "__op", "type": "string"}]}
    change: dict[str, Any] = {"id": 1, name: 7, "__op": "u"}
    if not is_flat:
        images = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Row"]}]
        schema = {"type": "record", "name": "E", "fields": [*images, {"name": "op", "type": "string"}]}
        change = {"before": None, "after": {"id": 1, name: 7}, "op": "u"}
    reading, records = avro(change, schema=schema)
    changes = read_envelope(target_for(UPSERT_ENVELOPE, {"id": "long", "at": "long"}, reading=reading), records)
    assert (changes.decoded.mismatches, changes.decoded.requested_fields) == ([], {})
    assert [column.to_pylist() for column in changes.columns] == [[1], [7]]


def test_numbers_with_their_own_scale_are_one_key_in_a_column_in_lower_case() -> None:
    number = {"type": "record", "name": "VariableScaleDecimal", "connect.name": "io.debezium.data.VariableScaleDecimal",
              "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}]}  # fmt: skip
    row = {"type": "record", "name": "Row", "fields": [{"name": "ID", "type": number}]}
    images = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Row"]}]
    schema = {"type": "record", "name": "E", "fields": [*images, {"name": "op", "type": "string"}]}
    keys = [{"scale": 1, "value": b"\x0f"}, {"scale": 2, "value": b"\x00\x96"}]
    reading, records = avro(*({"before": None, "after": {"ID": key}, "op": "c"} for key in keys), schema=schema)
    envelope = Envelope("debezium", is_upsert=True, keys=(("id",),))
    changes = read_envelope(target_for(envelope, {"id": "string"}, reading=reading), records)
    assert changes.columns[0].to_pylist() == ["1.5", "1.5"]


def test_each_branch_of_a_union_feeds_a_column_of_one_type() -> None:
    union = ["null", _MICROS, "string"]
    schema = WriterSchema("avro", json.dumps({"type": "record", "name": "R", "fields": [{"name": "V", "type": union}]}))
    decoded = decode([b"\0\0\0\0\1\2\x0a", b"\0\0\0\0\1\0"], fields_of(v="long"), {1: schema})
    assert (decoded.mismatches, decoded.columns[0].to_pylist()) == ([], [5, None])


def test_a_name_that_differs_in_case_alone_comes_before_an_older_name() -> None:
    fields = [{"name": "Name", "type": "long", "aliases": ["title"]}]
    schema = WriterSchema("avro", json.dumps({"type": "record", "name": "R", "fields": fields}))
    decoded = decode([b"\0\0\0\0\1\x0a"], fields_of(name="long", title="long"), {1: schema})
    assert [column.to_pylist() for column in decoded.columns] == [[5], [None]]


_LATE: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("columns: {email: string}", {"Email": "a"}, {"email": "a"}),
    ("columns: {mail: {type: string, field: email}}", {"EMAIL": "a"}, {"mail": "a"}),
    ("columns: {at: timestamptz(s)}", {"AT": 5}, {"at": dt.datetime(1970, 1, 1, 0, 0, 5, tzinfo=dt.UTC)}),
    ("columns: {price: {type: int, field: order.total}}", {"Order": {"Total": 1, "x": 2}},
     {"price": 1, "order": {"x": 2}}),
    ("columns: {order: 'struct<total: int>'}", {"Order": {"Total": 1, "x": 2}}, {"order": {"total": 1, "x": 2}}),
    ("columns: {l: 'list<struct<a: int>>'}", {"L": [{"A": 1}]}, {"l": [{"a": 1}]}),
    ("columns: {o_a: int}, flatten: true", {"O": {"A": 1}}, {"o_a": 1}),
]  # fmt: skip


@pytest.mark.parametrize("is_protected", [False, True])
@pytest.mark.parametrize(("declared", "record", "row"), _LATE, ids=[declared for declared, *_ in _LATE])
def test_a_table_that_records_must_show_first_has_its_declared_columns_alone(
    tmp_path: Path, declared: str, record: dict[str, Any], row: dict[str, Any], is_protected: bool
) -> None:
    settings = f"{declared}, partition_by: [k]"  # A column that only records have.
    if is_protected:
        (tmp_path / "key").write_text("0123456789abcdef" * 2)
        settings += f", protect: {{other: hash}}, protect_key: '${{file:{tmp_path / 'key'}}}'"
    file = tmp_path / "pipeline.yaml"
    file.write_text(with_table(settings))
    (spec,) = load_spec(file).tables
    names = ("columns", "flatten", "partition_by", "protect", "protect_key")
    scene = Scene(tmp_path, "a", on_bad_record="stop", **{name: setting(spec, name) for name in names})
    scene.feed("a", {**record, "k": 7})
    scene.catch_up()
    assert scene.rows("n.a") == [{**row, "k": 7}]


def test_paths_lead_through_lists_maps_and_their_keys() -> None:
    struct: Any = parse_type("struct<A: map<int, list<struct<B: long, c: long>>>, x: long>")
    columns: Any = parse_type("struct<a: map<long, list<struct<b: int, old: int>>>>")
    renames = find_renames([(struct, {("A", "value", "element", "c"): ("old",)})])
    fed = FedColumns(struct, columns.fields, renames)
    assert fed.path_of(("A", "value", "element", "B")) == ("a", "value", "element", "b")
    assert fed.path_of(("A", "value", "element", "c")) == ("a", "value", "element", "old")
    assert (fed.path_of(("x",)), fed.type_at(("x",))) == (("x",), None)
    assert str(fed.type_at(("A", "key"))) == "long"
