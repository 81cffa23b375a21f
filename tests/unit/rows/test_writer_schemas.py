"""Records of the schema registry to the columns of a table: several schemas in one batch, what the table lacks, what does
not fit.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.types import DoubleType, IcebergType, LongType, NestedField, StringType

from frazil.decode.columns import Decoded
from frazil.decode.epochs import FIRST_US, LAST_US
from frazil.decode.settings import NO_EVOLUTION, Evolution, Reading, WireFormat, WriterSchema
from frazil.rows.decoder import decode_values
from frazil.spec.syntax.types import parse_type
from tests.needs import has_package, needs

if has_package("protobuf"):
    from frazil_protobuf.protoc import compile_proto


def _record(*fields: Mapping[str, Any], name: str = "R") -> WriterSchema:
    return WriterSchema("avro", json.dumps({"type": "record", "name": name, "fields": list(fields)}))


def _field(name: str, kind: Any, **other: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **other}


V1 = _record(_field("id", "int"), _field("name", "string"))
V2 = _record(_field("name", "string"), _field("id", "long"), _field("price", ["null", "float"], default=None))
NESTED = _record(
    _field("id", "int"),
    _field(
        "at",
        {
            "type": "record",
            "name": "At",
            "fields": [_field("zip", "int"), _field("tags", {"type": "array", "items": "int"})],
        },
    ),
    _field("more", {"type": "map", "values": "int"}),
)


def framed(schema_id: int, schema: WriterSchema, *records: Any) -> list[bytes]:
    """Records behind Confluent's frame."""
    parsed = fastavro.parse_schema(json.loads(schema.text))
    out = []
    for record in records:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, parsed, record)
        out.append(b"\x00" + struct.pack(">i", schema_id) + body.getvalue())
    return out


def fields_of(**columns: str) -> tuple[NestedField, ...]:
    """Optional columns; a type that ends with ! is required."""
    return tuple(
        NestedField(n, name, parse_type(word.rstrip("!")), required=word.endswith("!"))
        for n, (name, word) in enumerate(columns.items(), 1)
    )


def decode(
    values: Iterable[bytes | None],
    fields: tuple[NestedField, ...],
    schemas: Mapping[Any, WriterSchema],
    **reading: Any,
) -> Decoded:
    """Through the same door as a task."""
    given: dict[str, Any] = {"format": "avro", "schemas": tuple((str(n), one) for n, one in schemas.items()), **reading}
    decoded = decode_values(Reading(**given), fields, {"value": pa.array(list(values), pa.binary())})
    for array in decoded.columns:
        array.validate(full=True)
    return decoded


def rows(decoded: Decoded, fields: tuple[NestedField, ...]) -> list[dict[str, Any]]:
    """The rows, those of refused records left out."""
    names = [field.name for field in fields]
    table = pa.Table.from_arrays(decoded.columns, names=names)
    return [row for row, bad in zip(table.to_pylist(), decoded.refused.tolist(), strict=True) if not bad]


def faults(decoded: Decoded) -> list[tuple[int, str, str]]:
    return [(mismatch.row, mismatch.kind, mismatch.path) for mismatch in decoded.mismatches]


def test_records_of_several_schemas_keep_their_order_and_match_by_name() -> None:
    fields = fields_of(id="long", name="string", price="double")
    one, two = framed(1, V1, {"id": 1, "name": "a"}, {"id": 3, "name": "c"})
    three, four = framed(7, V2, {"id": 2**40, "name": "b", "price": 1.5}, {"id": 4, "name": "d", "price": None})
    decoded = decode([one, three, two, four], fields, {1: V1, 7: V2})
    assert rows(decoded, fields) == [
        {"id": 1, "name": "a", "price": None},
        {"id": 2**40, "name": "b", "price": 1.5},
        {"id": 3, "name": "c", "price": None},
        {"id": 4, "name": "d", "price": None},
    ]
    assert (decoded.requested_fields, decoded.mismatches, decoded.refusals) == ({}, [], set())


def test_fields_that_the_table_lacks_or_has_too_narrow_are_wanted_as_the_schema_reports() -> None:
    values = [*framed(1, V1, {"id": 1, "name": "a"}), *framed(7, V2, {"id": 2, "name": "b", "price": None})]
    assert decode(values, (), {1: V1, 7: V2}).requested_fields == {
        (): {"id": LongType(), "name": StringType(), "price": parse_type("float")}
    }
    decoded = decode(values, fields_of(id="int", name="string"), {1: V1, 7: V2})
    assert decoded.requested_fields == {(): {"id": LongType(), "price": parse_type("float")}}


def test_nested_changes_are_wanted_with_the_path_of_their_struct() -> None:
    values = framed(1, NESTED, {"id": 1, "at": {"zip": 5, "tags": [1]}, "more": {"a": 1}})
    wide = {
        "type": "record",
        "name": "At",
        "fields": [_field("zip", "long"), _field("tags", {"type": "array", "items": "long"}), _field("city", "string")],
    }
    newer = _record(_field("id", "int"), _field("at", wide), _field("more", {"type": "map", "values": "long"}))
    values += framed(2, newer, {"id": 2, "at": {"zip": 6, "tags": [2**40], "city": "B"}, "more": {"a": 2**40}})
    fields = fields_of(id="int", at="struct<zip: int, tags: list<int>>", more="map<string,int>")
    wanted = decode(values, fields, {1: NESTED, 2: newer}).requested_fields
    assert {
        path: {name: str(kind).split("<")[0] for name, kind in members.items()} for path, members in wanted.items()
    } == {
        ("at",): {"zip": "long", "tags": "list", "city": "string"},
        (): {"more": "map"},
    }


def test_a_schema_that_is_not_there_is_missing_and_what_the_registry_lacks_is_refused() -> None:
    fields = fields_of(id="long", name="string")
    values = [
        *framed(1, V1, {"id": 1, "name": "a"}),
        *framed(8, V1, {"id": 2, "name": "b"}),
        *framed(9, V1, {"id": 3, "name": "c"}),
    ]
    decoded = decode(values, fields, {1: V1, 9: WriterSchema("unknown")})
    assert decoded.missing == {"8"}
    decoded = decode(values, fields, {1: V1, 8: WriterSchema("unusable", "no"), 9: WriterSchema("unknown")})
    assert (rows(decoded, fields), faults(decoded)) == (
        [{"id": 1, "name": "a"}],
        [(1, "unusable_schema", ""), (2, "unknown_schema_id", "")],
    )


def test_damaged_records_are_refused_alone() -> None:
    fields = fields_of(id="long", name="string")
    good = framed(1, V1, *({"id": n, "name": f"n{n}"} for n in range(4)))
    bad = [None, b"", b"\x00\x00", b'{"id": 1}', good[0][:-1], good[0] + b"x", b"\x01" + good[0][1:]]
    decoded = decode([good[0], *bad[:3], good[1], *bad[3:], good[2], good[3]], fields, {1: V1})
    assert [row["id"] for row in rows(decoded, fields)] == [0, 1, 2, 3]
    assert [kind for _, kind, _ in faults(decoded)] == [
        "tombstone", "malformed", "malformed", "no_wire_format", "malformed", "malformed", "no_wire_format",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "wanted", "good", "bad"),
    [
        ("long", "int", [0, 2**31 - 1], [2**31, -(2**40)]),
        ("int", "double", [1, 2**31 - 1], []),
        ("long", "double", [2**53], [2**53 + 1, 2**63 - 1]),
        ("double", "float", [1.5, 2.0**-10], [0.1, 1e300]),
        ("int", "decimal(5,2)", [7, 999], [1000]),
        ("int", "string", [], [1]),
        ("string", "long", [], ["1"]),
        ("boolean", "int", [], [True]),
    ],
)
def test_values_go_over_exactly_or_not_at_all(written: str, wanted: str, good: list[Any], bad: list[Any]) -> None:
    schema = _record(_field("v", written))
    decoded = decode(
        framed(1, schema, *({"v": v} for v in [*good, *bad])), fields_of(v=wanted), {1: schema}, evolution=NO_EVOLUTION
    )
    assert [float(row["v"]) for row in rows(decoded, fields_of(v=wanted))] == good
    assert [row for row, _, _ in faults(decoded)] == list(range(len(good), len(good) + len(bad)))


def test_not_a_number_and_infinity_stay_what_they_are() -> None:
    schema = _record(_field("v", "float"))
    decoded = decode(framed(1, schema, {"v": float("nan")}, {"v": float("inf")}), fields_of(v="double"), {1: schema})
    assert [str(row["v"]) for row in rows(decoded, fields_of(v="double"))] == ["nan", "inf"]


def test_a_table_that_may_only_grow_keeps_its_types_and_reports_which_change_it_refused() -> None:
    fields = fields_of(id="int", name="string", price="float")
    values = framed(7, V2, {"id": 5, "name": "a", "price": 1.0}, {"id": 2**40, "name": "b", "price": 2.0})
    decoded = decode(values, fields, {7: V2}, evolution=NO_EVOLUTION)
    assert ([row["id"] for row in rows(decoded, fields)], faults(decoded)) == ([5], [(1, "out_of_range", "id")])
    assert (decoded.requested_fields, decoded.refusals) == ({}, {"schema 7: column id: int is not widened to long"})


def test_a_frozen_table_refuses_records_with_a_value_in_a_field_it_lacks() -> None:
    fields = fields_of(id="long", name="string")
    values = framed(7, V2, {"id": 5, "name": "a", "price": None}, {"id": 6, "name": "b", "price": 2.0})
    decoded = decode(values, fields, {7: V2}, unknown_fields="refuse", evolution=NO_EVOLUTION)
    assert ([row["id"] for row in rows(decoded, fields)], faults(decoded)) == ([5], [(1, "unknown_field", "price")])
    assert decoded.refusals == {"schema 7: column price: float is not added: `schema_evolution` is `freeze`"}


def test_what_does_not_fit_is_rescued_with_the_rest_of_the_row_there() -> None:
    fields = fields_of(id="int", name="long")
    values = framed(7, V2, {"id": 5, "name": "a", "price": 1.5}, {"id": 2**40, "name": "b", "price": None})
    decoded = decode(values, fields, {7: V2}, unknown_fields="rescue", is_rescuing=True, evolution=NO_EVOLUTION)
    assert rows(decoded, fields) == [{"id": 5, "name": None}, {"id": None, "name": None}]
    assert decoded.rescued is not None
    assert [json.loads(text) for text in decoded.rescued.to_pylist()] == [
        {
            "name": {"value": "a", "reason": '"a" (string) does not fit long'},
            "price": {"value": 1.5, "reason": "unknown_field"},
        },
        {
            "id": {"value": 2**40, "reason": "1099511627776 (long) is out of the range of int"},
            "name": {"value": "b", "reason": '"b" (string) does not fit long'},
        },
    ]


def test_required_columns_become_optional_where_a_record_has_no_value_unless_the_table_may_not_change() -> None:
    fields = fields_of(id="long", name="string", price="float!")
    values = framed(1, V1, {"id": 1, "name": "a"})
    assert decode(values, fields, {1: V1}).made_optional == {("price",)}
    decoded = decode(values, fields, {1: V1}, evolution=NO_EVOLUTION)
    assert (decoded.made_optional, faults(decoded)) == (set(), [(0, "missing_value", "price")])


def test_a_renamed_field_continues_in_the_column_of_its_alias() -> None:
    renamed = _record(_field("id", "int"), _field("label", "string", aliases=["name"]))
    fields = fields_of(id="int", name="string")
    values = [*framed(1, V1, {"id": 1, "name": "a"}), *framed(2, renamed, {"id": 2, "label": "b"})]
    decoded = decode(values, fields, {1: V1, 2: renamed})
    assert [row["name"] for row in rows(decoded, fields)] == ["a", "b"]
    assert decoded.requested_fields == {}


def test_dropped_fields_are_named() -> None:
    values = framed(7, V2, {"id": 5, "name": "a", "price": 1.5})
    decoded = decode(values, fields_of(id="long"), {7: V2}, unknown_fields="drop")
    assert (decoded.dropped, decoded.requested_fields) == ({"name", "price"}, {})


@needs("jsonschema")
def test_json_schema_gives_new_columns_their_types_and_reads_as_json_does() -> None:
    text = json.dumps(
        {
            "type": "object",
            "properties": {
                "id": {"type": "integer"},
                "x": {"type": "number"},
                "at": {"type": "string", "format": "date-time"},
            },
        }
    )
    schema = WriterSchema("json_schema", text)
    frame = b"\x00\x00\x00\x00\x03"
    values = [frame + b'{"id": 1, "x": 2, "new": true}', frame + b'{"id": "a"}', frame + b"{"]
    wanted = decode(values[:1], (), {3: schema}, format="json_schema").requested_fields[()]
    assert {name: str(kind) for name, kind in wanted.items()} == {
        "id": "long", "x": "double", "at": "timestamptz", "new": "boolean",
    }  # fmt: skip
    fields = fields_of(id="long", x="double", at="timestamptz", new="boolean")
    decoded = decode(values, fields, {3: schema}, format="json_schema")
    assert rows(decoded, fields) == [{"id": 1, "x": 2.0, "at": None, "new": True}]
    assert faults(decoded) == [(1, "type_mismatch", "id"), (2, "malformed", "")]


_JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "x": {"type": "string"},
        "day": {"type": "string", "format": "date"},
        "o": {"type": "object", "properties": {"n": {"type": "integer"}, "more": {"type": "boolean"}}},
        "l": {"type": "array", "items": {"type": "integer"}},
    },
}
_NARROW = {"id": "int", "x": "long", "day": "timestamp", "o": "struct<n: int>", "l": "list<int>"}


def _refusals(unknown_fields: str, may_widen: bool, body: bytes = b"{}") -> set[str]:
    schema = WriterSchema("json_schema", json.dumps(_JSON_SCHEMA))
    reading = {"format": "json_schema", "unknown_fields": unknown_fields, "evolution": Evolution(may_widen)}
    return decode([b"\x00\x00\x00\x00\x03" + body], fields_of(**_NARROW), {3: schema}, **reading).refusals


@needs("jsonschema")
def test_the_changes_that_a_json_schema_asks_for_in_vain_are_reported() -> None:
    mismatch = "schema 3: column x: string does not fit long"
    assert _refusals("add", True) == {mismatch}
    narrow = {f"schema 3: column {path}: int is not widened to long" for path in ("id", "o.n", "l.element")}
    assert _refusals("add", False) == {mismatch, *narrow}
    frozen = "not added: `schema_evolution` is `freeze`"
    assert _refusals("refuse", False) == {mismatch, *narrow, f"schema 3: column o.more: boolean is {frozen}"}
    assert _refusals("refuse", False, b'{"o": {"more": true}, "unsaid": 1}') == {
        mismatch,
        *narrow,
        f"schema 3: column o.more: boolean is {frozen}",
        f"schema 3: column unsaid: the field is {frozen}",
    }


@needs("jsonschema")
def test_a_policy_that_only_adds_does_not_widen_what_is_nested() -> None:
    schema = WriterSchema("json_schema", json.dumps(_JSON_SCHEMA))
    reading = {"format": "json_schema", "evolution": NO_EVOLUTION}
    wide = {"o": "struct<n: int>", "of": "list<struct<n: int>>"}
    assert decode([b"\x00\x00\x00\x00\x03{}"], fields_of(**_NARROW), {3: schema}, **reading).requested_fields == {
        ("o",): {"more": parse_type("boolean")}
    }
    members = {"type": "object", "properties": {"n": {"type": "integer"}, "more": {"type": "boolean"}}}
    listed = json.dumps({"type": "object", "properties": {"of": {"type": "array", "items": members}}})
    decoded = decode(
        [b"\x00\x00\x00\x00\x03{}"], fields_of(**wide), {3: WriterSchema("json_schema", listed)}, **reading
    )
    assert decoded.requested_fields == {("of", "element"): {"more": parse_type("boolean")}}


def test_a_schema_of_which_no_record_can_be_read_brings_no_column() -> None:
    (good,) = framed(1, V1, {"id": 1, "name": "a"})
    (read,) = framed(7, V2, {"id": 2, "name": "b", "price": None})
    broken, fields = b"\x00\x00\x00\x00\x07\xff", fields_of(id="int", name="string")
    assert decode([good, broken], fields, {1: V1, 7: V2}).requested_fields == {}
    assert decode([good, broken, read], fields, {1: V1, 7: V2}).requested_fields == {
        (): {"id": parse_type("long"), "price": parse_type("float")}
    }


@pytest.mark.parametrize(("body", "is_read"), [(b"{", False), (b"[]", False), (b'{"id": 1099511627776}', True)])
@needs("jsonschema")
def test_nor_does_a_json_schema_unless_what_it_brings_would_let_a_record_fit(body: bytes, is_read: bool) -> None:
    schema = WriterSchema("json_schema", json.dumps(_JSON_SCHEMA))
    decoded = decode([b"\x00\x00\x00\x00\x03" + body], fields_of(**_NARROW), {3: schema}, format="json_schema")
    assert decoded.refused.tolist() == [True]
    assert (decoded.requested_fields.get((), {}).get("id") == parse_type("long")) is is_read
    assert bool(decoded.requested_fields) is is_read


@needs("protobuf")
def test_protobuf_records_say_which_message_they_are() -> None:
    text = 'syntax = "proto3"; message A { int64 id = 1; message In { string s = 2; } } message B { double x = 3; }'
    schema = WriterSchema("protobuf", text, (), compile_proto(text))
    frame = b"\x00\x00\x00\x00\x05"
    values = [
        frame + b"\x00" + b"\x08\x07",
        frame + b"\x04\x00\x00" + b"\x12\x01s",
        frame + b"\x02\x02" + b"\x19" + struct.pack("<d", 1.5),
    ]
    fields = fields_of(id="long", s="string", x="double")
    decoded = decode([*values, frame + b"\x02\x12", frame + b"\x00\x08"], fields, {5: schema}, format="protobuf")
    assert rows(decoded, fields) == [
        {"id": 7, "s": None, "x": None},
        {"id": None, "s": "s", "x": None},
        {"id": None, "s": None, "x": 1.5},
    ]
    assert [kind for _, kind, _ in faults(decoded)] == ["unusable_schema", "malformed"]


@needs("protobuf")
def test_a_schema_of_another_format_is_not_guessed_at() -> None:
    decoded = decode(framed(1, V1, {"id": 1, "name": "a"}), fields_of(id="long"), {1: V1}, format="protobuf")
    assert faults(decoded) == [(0, "wrong_schema", "")]


def test_headers_may_name_the_schema() -> None:
    guid = "01020304-0506-0708-090a-0b0c0d0e0f10"
    (value,) = framed(1, V1, {"id": 1, "name": "a"})
    named = {"key": "__value_schema_id", "value": b"\x01" + bytes(range(1, 17))}
    headers = [[named], [{"key": "other", "value": b"x"}], None]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    records = {
        "value": pa.array([value[5:]] * 3, pa.binary()),
        "headers": pa.array(headers, kind),
    }
    reading = Reading(format="avro", wire=WireFormat("none", is_by_header=True), schemas=((guid, V1),))
    fields = fields_of(id="int", name="string")
    decoded = decode_values(reading, fields, records)
    assert rows(decoded, fields) == [{"id": 1, "name": "a"}]
    assert [kind for _, kind, _ in faults(decoded)] == ["no_schema_id", "no_schema_id"]


def test_the_latest_schema_reads_values_without_a_frame() -> None:
    (value,) = framed(1, V1, {"id": 1, "name": "a"})
    fields = fields_of(id="int", name="string")
    decoded = decode([value[5:]], fields, {"latest": V1}, wire=WireFormat("none"))
    assert rows(decoded, fields) == [{"id": 1, "name": "a"}]
    assert decode([value[5:]], fields, {}, wire=WireFormat("none")).missing == {"latest"}


def test_text_and_bytes_are_one_column() -> None:
    fields = fields_of(value="string")
    decoded = decode(["é".encode(), None, b"\xff"], fields, {}, format="text")
    assert (rows(decoded, fields), faults(decoded)) == ([{"value": "é"}, {"value": None}], [(2, "invalid_text", "")])
    fields = fields_of(value="binary")
    assert rows(decode([b"\xff", None], fields, {}, format="raw"), fields) == [
        {"value": b"\xff"},
        {"value": None},
    ]
    kinds: dict[str, IcebergType] = {"value": StringType()}
    assert decode([b"a"], (), {}, format="text").requested_fields == {(): kinds}


def test_types_are_united_over_the_schemas_of_a_batch() -> None:
    wide = _record(_field("id", "double"))
    narrow = _record(_field("id", "float"))
    values = [*framed(1, narrow, {"id": 1.0}), *framed(2, wide, {"id": 2.0})]
    assert decode(values, (), {1: narrow, 2: wide}).requested_fields == {(): {"id": DoubleType()}}


@pytest.mark.parametrize(
    ("written", "factor"),
    [
        ({"type": "int", "logicalType": "date"}, 86_400_000_000),
        *(
            ({"type": "long", "logicalType": f"{zone}timestamp-{unit}"}, factor)
            for zone in ("", "local-")
            for unit, factor in (("millis", 1000), ("micros", 1))
        ),
    ],
)
def test_days_and_times_are_exact_from_the_year_1_to_9999_and_out_of_range_beyond(
    written: dict[str, str], factor: int
) -> None:
    first, end = FIRST_US // factor, LAST_US // factor
    schema = _record(_field("v", written), _field("list", {"type": "array", "items": written}))
    inside = framed(1, schema, *({"v": n, "list": [n]} for n in (first, end - 1)))
    fields = tuple(
        NestedField(n, name, kind, required=False)
        for n, (name, kind) in enumerate(decode(inside, (), {1: schema}).requested_fields[()].items(), 1)
    )
    found = decode(inside, fields, {1: schema})
    of_day = found.columns[0].type == "date32[day]"
    assert found.columns[0].cast("int32" if of_day else "int64").to_pylist() == (
        [first, end - 1] if of_day else [first * factor, (end - 1) * factor]
    )
    far = [{"v": first - 1, "list": []}, {"v": 0, "list": [0, end]}]
    refused = decode(framed(1, schema, *far), fields, {1: schema})
    assert [fault[:3] for fault in faults(refused)] == [(0, "out_of_range", "v"), (1, "out_of_range", "list.element")]
    assert all(one.reason.endswith("is a time outside the years 1 to 9999") for one in refused.mismatches)


def test_days_and_times_outside_of_the_years_are_refused_or_rescued_like_others() -> None:
    inner = {"type": "record", "name": "In", "fields": [_field("day", "int")]}
    written = _record(_field("day", "int"), _field("at", "long"), _field("more", inner))
    days, times = {"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-micros"}
    meant = _record(
        _field("day", days), _field("at", times), _field("more", {**inner, "fields": [_field("day", days)]})
    )
    values = framed(1, written, *({"day": n, "at": n, "more": {"day": n}} for n in (0, 2**31 - 1, -(2**31))))
    values += framed(1, written, {"day": 1, "at": 2**63 - 1, "more": {"day": 1}})
    fields = fields_of(day="string", at="string")
    refused = decode(values, fields, {1: meant}, unknown_fields="drop")
    found = [fault for fault in faults(refused) if fault[1] == "out_of_range"]
    assert {fault[2] for fault in found} == {"day", "at"}
    assert {fault[1:] for fault in faults(refused)} - {fault[1:] for fault in found} == {
        ("type_mismatch", "day"),
        ("type_mismatch", "at"),
    }
    assert refused.refused.tolist() == [True] * 4
    stored = decode(values, fields, {1: meant}, unknown_fields="rescue", is_rescuing=True)
    assert stored.rescued is not None
    assert stored.refused.tolist() == [False] * 4
    aside = [json.loads(text) for text in stored.rescued.to_pylist()]
    assert [one["day"]["value"] for one in aside] == ["1970-01-01", "+5881580-07-11", "-5877641-06-23", "1970-01-02"]
    assert [one["at"]["value"][:11] for one in aside] == ["1970-01-01T", "1970-01-01T", "1969-12-31T", "+294247-01-"]
    assert aside[1]["more"] == {"value": {"day": "+5881580-07-11"}, "reason": "unknown_field"}
