"""What Avro becomes: the table in the reference, and a value or two of each row."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from tests.unit.decode.avro_bodies import (
    Node,
    faults,
    kinds,
    number,
    read,
    reader_of,
    record_of,
    rows,
    spell,
    text,
    write,
)
from tests.unit.decode.avro_reference import AVRO_FAULTS, AVRO_TYPES, PAGE, column_type, page

_UUID = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
_UUID_BYTES = bytes.fromhex(_UUID.replace("-", ""))
_NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "id", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
}


def _values(node: Node, *bodies: bytes) -> list[Any]:
    """What a field of this type has in each body; no body is refused."""
    found = rows(record_of(v=node), bodies)
    return [row["v"] for row in found if row is not None]


def test_the_reference_page_reports_what_the_reader_does() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


@pytest.mark.parametrize(("words", "node", "kind"), AVRO_TYPES, ids=[row[0] for row in AVRO_TYPES])
def test_each_construct_becomes_the_type_in_the_table(words: str, node: Node, kind: str) -> None:
    assert column_type(node) == kind, words


def test_the_arrow_types_are_those_of_the_iceberg_types() -> None:
    fields = {
        f"f{n}": node for n, (_, node, kind) in enumerate(AVRO_TYPES) if kind[0] != "(" and "name" not in str(node)
    }
    columns = read(record_of(**fields), [])
    spelt = {
        spell(field.field_type): str(a.type)
        for field, a in zip(reader_of(record_of(**fields)).struct.fields, columns.arrays, strict=True)
    }
    assert spelt["date"] == "date32[day]"
    assert spelt["time"] == "time64[us]"
    assert spelt["timestamptz"] == "timestamp[us, tz=UTC]"
    assert spelt["timestamp"] == "timestamp[us]"
    assert spelt["decimal(9,2)"] == "decimal128(9, 2)"
    assert spelt["uuid"] == "fixed_size_binary[16]"
    assert spelt["list<long>"] == "list<element: int64>"
    assert spelt["map<string,double>"] == "map<string, double>"


def test_every_field_is_optional_at_every_depth() -> None:
    words = reader_of(
        record_of(v={"type": "array", "items": {"type": "map", "values": _NODE}})
    ).struct.model_dump_json()
    assert words.count('required":false') == 5
    assert 'required":true' not in words


def test_numbers_are_exact_to_their_ends() -> None:
    assert _values("int", number(-(2**31)), number(2**31 - 1), b"\x00") == [-(2**31), 2**31 - 1, 0]
    assert _values("long", number(-(2**63)), number(2**63 - 1), b"\x80\x00") == [-(2**63), 2**63 - 1, 0]
    assert _values("boolean", b"\x00", b"\x01") == [False, True]


def test_floats_are_kept_bit_for_bit() -> None:
    doubles = [0.0, -0.0, 5e-324, math.inf, -math.inf, 0.1]
    found = _values("double", *(struct.pack("<d", value) for value in doubles))
    assert [struct.pack("<d", value) for value in found] == [struct.pack("<d", value) for value in doubles]
    floats = _values("float", struct.pack("<f", -math.inf), struct.pack("<f", 1e-45), struct.pack("<f", math.nan))
    assert floats[:2] == [-math.inf, 1.401298464324817e-45]
    assert math.isnan(floats[2])


def test_strings_and_bytes_of_every_length_are_copied_whole() -> None:
    texts = ["", "é", "😀", "\x00", *("0123456789" * 30)[:0], *[("0123456789abcdef" * 9)[:n] for n in range(140)]]
    assert _values("string", *map(text, texts)) == texts
    assert _values("bytes", b"\x04\xc3\x28", b"\x00") == [b"\xc3\x28", b""]
    assert _values({"type": "fixed", "name": "f", "size": 3}, b"abc", b"\xff\x00\xff") == [b"abc", b"\xff\x00\xff"]


def test_enums_are_their_symbols() -> None:
    enum = {"type": "enum", "name": "e", "symbols": ["A", "B", "C"]}
    assert _values(enum, number(2), number(0)) == ["C", "A"]
    assert _values(["null", enum], b"\x00", b"\x02\x02") == [None, "B"]


def test_decimals_are_read_from_as_many_bytes_as_there_are() -> None:
    node = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    found = _values(
        node, b"\x02\x00", b"\x02\xff", b"\x04\x27\x0f", b"\x28" + b"\xff" * 18 + b"\xd8\xf1", b"\x04\x00\x80"
    )
    assert found == [Decimal(n).scaleb(-2) for n in (0, -1, 9999, -9999, 128)]
    wide = {"type": "fixed", "name": "f", "size": 17, "logicalType": "decimal", "precision": 38}
    most = 10**38 - 1
    assert _values(wide, *(n.to_bytes(17, "big", signed=True) for n in (most, -most, 0, 2**64))) == [
        most,
        -most,
        0,
        2**64,
    ]


def test_a_decimal_beyond_its_precision_is_refused_by_whatever_margin() -> None:
    node = {"type": "bytes", "logicalType": "decimal", "precision": 38}
    wide = [10**38, -(10**38), 2**127 - 1, -(2**127), 2**127, 2**128, 2**128 + 1, -(2**128), 2**200]
    bodies = [number(30) + n.to_bytes(30, "big", signed=True) for n in wide]
    assert kinds(read(record_of(v=node), bodies)) == [(row, "out_of_range", "v") for row in range(len(wide))]


def test_uuids_are_read_from_text_and_from_fixed() -> None:
    assert _values({"type": "string", "logicalType": "uuid"}, text(_UUID), text(_UUID.upper())) == [_UUID_BYTES] * 2
    node = {"type": "fixed", "name": "f", "size": 16, "logicalType": "uuid"}
    assert _values(["null", node], b"\x02" + _UUID_BYTES, b"\x00") == [_UUID_BYTES, None]


@pytest.mark.parametrize(
    "wrong",
    ["", _UUID[:-1], _UUID + "0", _UUID.replace("-", "_"), _UUID.replace("f", "g"), "{" + _UUID[2:] + "}", "é" * 18],
)
def test_what_is_no_uuid_is_refused(wrong: str) -> None:
    columns = read(record_of(v={"type": "string", "logicalType": "uuid"}), [text(wrong), text(_UUID)])
    assert kinds(columns) == [(0, "type_mismatch", "v")]
    assert columns.arrays[0].to_pylist() == [None, _UUID_BYTES]


def _logical(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "logicalType": name}


def test_dates_and_times_are_microseconds() -> None:
    assert _values(_logical("int", "date"), number(-1), number(20_484)) == [date(1969, 12, 31), date(2026, 1, 31)]
    assert _values(_logical("int", "time-millis"), number(0), number(86_399_999)) == [
        time(0),
        time(23, 59, 59, 999_000),
    ]
    assert _values(_logical("long", "time-micros"), number(86_399_999_999)) == [time(23, 59, 59, 999_999)]
    assert _values(_logical("long", "timestamp-millis"), number(-1)) == [
        datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)
    ]
    assert _values(_logical("long", "timestamp-micros"), number(1)) == [datetime(1970, 1, 1, 0, 0, 0, 1, UTC)]
    naive = datetime.fromisoformat("1970-01-01T00:00:00.001")
    assert _values(_logical("long", "local-timestamp-millis"), number(1)) == [naive]
    assert _values(_logical("long", "local-timestamp-micros"), number(1000)) == [naive]


@pytest.mark.parametrize("zone", ["", "local-"])
def test_moments_that_64_bits_of_microseconds_do_not_hold_are_out_of_range(zone: str) -> None:
    most = (2**63 - 1) // 1000
    written = [most, -most, most + 1, -most - 1, 2**63 - 1, -(2**63)]
    found = read(record_of(v=_logical("long", f"{zone}timestamp-millis")), [number(n) for n in written])
    assert found.arrays[0].cast("int64").to_pylist()[:2] == [most * 1000, -most * 1000]
    assert faults(found) == [
        (row, "out_of_range", "v", f"{written[row]} is a time outside the years 1 to 9999") for row in range(2, 6)
    ]


def test_an_int_that_is_no_int_is_malformed_whatever_it_stands_for() -> None:
    columns = read(record_of(v=_logical("int", "time-millis")), [number(2**31), number(-(2**31))])
    assert kinds(columns) == [(0, "malformed", "v"), (1, "out_of_range", "v")]


def test_a_union_sets_the_field_of_its_branch() -> None:
    union = ["null", "int", "string", {"type": "array", "items": "int"}]
    bodies = [b"\x00", b"\x02\x08", b"\x04" + text("x"), b"\x06\x02\x0a\x00"]
    nothing = {"int": None, "string": None, "array": None}
    assert _values(union, *bodies) == [
        None,
        {**nothing, "int": 4},
        {**nothing, "string": "x"},
        {**nothing, "array": [5]},
    ]


def test_types_with_one_short_name_get_their_full_names_in_a_union() -> None:
    def key(name: str) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [{"name": "x", "type": "int"}]}

    union = ["int", key("a.b.Key"), key("c.Key"), key("string"[:3])]
    assert column_type(union) == "struct<int: int, a_b_Key: struct<x: int>, c_Key: struct<x: int>, str: struct<x: int>>"


def test_structs_lists_and_maps_nest() -> None:
    point = {
        "type": "record",
        "name": "p",
        "fields": [{"name": "x", "type": ["null", "int"]}, {"name": "s", "type": "string"}],
    }
    node = {"type": "map", "values": ["null", {"type": "array", "items": ["null", point]}]}
    values: list[dict[str, Any]] = [
        {"v": {}},
        {"v": {"a": None, "b": [], "c": [{"x": 1, "s": "é"}, None, {"x": None, "s": ""}]}},
        {"v": {"": [None]}},
    ]
    assert rows(record_of(v=node), write(record_of(v=node), *values)) == [
        {"v": list(row["v"].items())} for row in values
    ]


def test_an_absent_struct_leaves_no_items_behind() -> None:
    inner = {"type": "record", "name": "i", "fields": [{"name": "l", "type": {"type": "array", "items": "int"}}]}
    bodies = [b"\x02\x04\x02\x04\x00", b"\x00", b"\x02\x00", b"\x02\x02\x06\x00"]
    assert _values(["null", inner], *bodies) == [{"l": [1, 2]}, None, {"l": []}, {"l": [3]}]


def test_what_has_nothing_to_tell_is_told_where_it_can_be_absent() -> None:
    empty = {"type": "record", "name": "Empty", "fields": [{"name": "n", "type": "null"}]}
    assert _values({"type": "array", "items": "null"}, b"\x06\x00", b"\x00") == [[None] * 3, []]
    assert _values({"type": "array", "items": empty}, b"\x04\x00") == [[True, True]]
    assert _values({"type": "array", "items": ["null"]}, b"\x04\x00\x00\x00") == [[None, None]]
    assert _values({"type": "map", "values": "null"}, b"\x02" + text("k") + b"\x00") == [[("k", None)]]
    assert _values(["null", empty], b"\x00", b"\x02") == [None, True]
    assert _values(["int", empty], b"\x02", b"\x00\x02") == [{"int": None, "Empty": True}, {"int": 1, "Empty": None}]


def test_a_schema_without_columns_still_checks_its_bodies() -> None:
    columns = read("null", [b"", b"\x00"])
    assert columns.arrays == []
    assert kinds(columns) == [(1, "malformed", "")]


def test_a_value_that_is_no_record_is_a_column() -> None:
    assert rows("string", [text("x")]) == [{"value": "x"}]
    assert rows(["null", "long"], [b"\x00", b"\x02\x04"]) == [{"value": None}, {"value": 2}]
    assert rows({"type": "array", "items": "int"}, [b"\x02\x04\x00"]) == [{"value": [2]}]


@pytest.mark.parametrize("is_first", [False, True])
def test_a_union_of_null_and_a_record_at_the_top_is_the_record(is_first: bool) -> None:
    """As Kafka Connect's converters write a row that Debezium has unwrapped, as its struct is optional."""
    union = [record_of(a="int", b="string"), "null"] if is_first else ["null", record_of(a="int", b="string")]
    mine, null = (b"\x00", b"\x02") if is_first else (b"\x02", b"\x00")
    bodies = [
        mine + b"\x02" + text("x"),
        null,
        b"",
        b"\x04\x02",
        b"\x01\x02",
        mine + b"\x02",
        mine + b"\x04" + text(""),
    ]
    columns = read(union, bodies)
    assert [field.name for field in reader_of(union).struct.fields] == ["a", "b"]
    assert rows(union, bodies) == [{"a": 1, "b": "x"}, *[None] * 5, {"a": 2, "b": ""}]
    assert kinds(columns) == [
        (1, "tombstone", ""), (2, "malformed", "a"), (3, "malformed", ""), (4, "malformed", ""), (5, "malformed", "b"),
    ]  # fmt: skip


def test_a_union_at_the_top_is_a_column_with_a_member_for_each_branch() -> None:
    assert rows(["int", "string"], [b"\x00\x02", b"\x02" + text("x")]) == [
        {"value": {"int": 1, "string": None}},
        {"value": {"int": None, "string": "x"}},
    ]
    one, other = record_of(a="int") | {"name": "shop.A"}, record_of(b="string") | {"name": "shop.B"}
    assert rows([one, other], [b"\x00\x02", b"\x02" + text("x"), b"\x04"]) == [
        {"value": {"A": {"a": 1}, "B": None}},
        {"value": {"A": None, "B": {"b": "x"}}},
        None,
    ]


def test_a_record_inside_itself_is_json() -> None:
    found = rows(_NODE, [b"\x02\x00", b"\x02\x02\x04\x00", b"\x02\x02\x04\x02\x06\x00"])
    assert found == [
        {"id": 1, "next": None},
        {"id": 1, "next": '{"id":2,"next":null}'},
        {"id": 1, "next": '{"id":2,"next":{"id":3,"next":null}}'},
    ]


def test_json_has_every_type() -> None:
    fields: dict[str, Node] = {
        "n": "null", "b": "boolean", "i": "int", "l": "long", "f": "float", "d": "double", "y": "bytes", "s": "string",
        "x": {"type": "fixed", "name": "fx", "size": 2},
        "e": {"type": "enum", "name": "en", "symbols": ["A", "B"]},
        "a": {"type": "array", "items": "int"},
        "m": {"type": "map", "values": "string"},
        "o": ["null", "int"],
        "u": ["null", "int", "string"],
        "t": {"type": "long", "logicalType": "timestamp-millis"},
        "c": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        "r": ["null", "r"],
    }  # fmt: skip
    leaf = {
        "n": None, "b": True, "i": -5, "l": -(2**63), "f": math.inf, "d": math.nan, "y": b"\xff", "s": 'é"', "x": b"ab",
        "e": "B", "a": [1, 2], "m": {"k": "v"}, "o": 3, "u": "x", "t": 5, "c": b"\x01", "r": None,
    }  # fmt: skip
    (body,) = write(record_of(**fields), {**leaf, "r": leaf})
    (row,) = rows(record_of(**fields), [body])
    assert row is not None
    assert row["r"] == (
        '{"n":null,"b":true,"i":-5,"l":-9223372036854775808,"f":"Infinity","d":"NaN","y":"/w==","s":"é\\"","x":"YWI=",'
        '"e":"B","a":[1,2],"m":{"k":"v"},"o":3,"u":{"string":"x"},"t":5,"c":"AQ==","r":null}'
    )


def test_records_that_contain_each_other_begin_again_where_the_first_comes_back() -> None:
    b = {"type": "record", "name": "B", "fields": [{"name": "a", "type": ["null", "A"]}, {"name": "n", "type": "int"}]}
    a = {"type": "record", "name": "A", "fields": [{"name": "b", "type": {"type": "array", "items": b}}]}
    assert [spell(field.field_type) for field in reader_of(a).struct.fields] == ["list<struct<a: string, n: int>>"]
    body = b"\x02" + b"\x02" + (b"\x02" + b"\x00" + b"\x06" + b"\x00") + b"\x04" + b"\x00"
    assert rows(a, [body]) == [{"b": [{"a": '{"b":[{"a":null,"n":3}]}', "n": 2}]}]


def test_aliases_are_told_by_path() -> None:
    inner = {"type": "record", "name": "i", "fields": [{"name": "x", "type": "int", "aliases": ["y", "z"]}]}
    fields = [
        {"name": "a", "type": "int", "aliases": ["old"]},
        {"name": "b", "type": {"type": "array", "items": ["null", inner]}},
        {"name": "c", "type": {"type": "map", "values": "i"}, "aliases": []},
        {"name": "d", "type": "null", "aliases": ["gone"]},
    ]
    assert reader_of({"type": "record", "name": "r", "fields": fields}).aliases == {
        ("a",): ("old",),
        ("b", "element", "x"): ("y", "z"),
        ("c", "value", "x"): ("y", "z"),
    }


def test_the_faults_of_the_reference_leave_their_neighbours_alone() -> None:
    for words, node, bad in AVRO_FAULTS:
        fields: list[dict[str, Any]] = [{"name": "k", "type": "long"}, {"name": "w", "type": "string"}]
        schema = {"type": "record", "name": "q", "fields": [*fields, {"name": "v", "type": node}]}
        head = number(7) + text("head")
        good = head + _good(node)
        (alone,) = rows(schema, [good])
        assert alone is not None, words
        columns = read(schema, [good, head + bad, good, head + bad, good])
        assert [row for row, _, _ in kinds(columns)] == [1, 3], words
        expected = [[alone[name], None, alone[name], None, alone[name]] for name in alone]
        assert [array.to_pylist() for array in columns.arrays] == expected, words


def _good(node: Any) -> bytes:
    """A body of a type that AVRO_FAULTS has."""
    if isinstance(node, list):
        return b"\x02\x0a"
    kind = node["type"] if isinstance(node, dict) else node
    if isinstance(node, dict) and node.get("logicalType") == "uuid":
        return text(_UUID)
    if kind == "array":
        return b"\x02\x00" if node["items"] == "null" else b"\x02\x08\x00"
    bodies = {
        "double": bytes(8), "string": text("x"), "map": number(2) + text("a") + b"\x02" + text("b") + b"\x02\x00",
        "record": b"\x02\x00", "bytes": b"\x02\x05",
    }  # fmt: skip
    return bodies.get(kind, b"\x00")
