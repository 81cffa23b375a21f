"""What becomes of what: the reference page is what the reader does, and each row of the table is held."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from frazil.registry.port import UnusableSchema
from frazil_protobuf.schema import MAX_FIELDS, load_message
from packages.protobuf.tests.unit.protobuf_reference import PAGE, SECTIONS, page, read_row, reader_of_row
from packages.protobuf.tests.unit.protobuf_schemas import (
    EDITION,
    LEGACY,
    PLAIN,
    SHOP,
    bodies_of,
    class_of,
    descriptors_of,
    fault_of,
    read,
    reader_of,
    rows_of,
)

_POINT = "struct<0: x: optional int, 0: label: optional string>"
TYPES = {
    "int32 v = 1;": "int", "sint32 v = 1;": "int", "sfixed32 v = 1;": "int",
    "uint32 v = 1;": "long", "fixed32 v = 1;": "long",
    "int64 v = 1;": "long", "sint64 v = 1;": "long", "sfixed64 v = 1;": "long",
    "uint64 v = 1;": "decimal(20, 0)", "fixed64 v = 1;": "decimal(20, 0)",
    "float v = 1;": "float", "double v = 1;": "double", "bool v = 1;": "boolean", "string v = 1;": "string",
    "bytes v = 1;": "binary", "Color v = 1;": "string", "Size v = 1;": "string",
    "optional int32 v = 1;": "int", "repeated int32 v = 1;": "list<int>",
    "map<string, int64> v = 1;": "map<string, long>", "map<bool, Color> v = 1;": "map<boolean, string>",
    "Void v = 1;": "boolean", "Tree v = 1;": "struct<0: name: optional string, 0: branches: optional list<string>>",
    "Point v = 1;": _POINT, "repeated Point v = 1;": f"list<{_POINT}>",
    "map<uint64, Point> v = 1;": f"map<decimal(20, 0), {_POINT}>",
    "google.protobuf.Timestamp v = 1;": "timestamptz", "google.protobuf.Duration v = 1;": "long",
    "google.protobuf.DoubleValue v = 1;": "double", "google.protobuf.FloatValue v = 1;": "float",
    "google.protobuf.Int64Value v = 1;": "long", "google.protobuf.UInt64Value v = 1;": "decimal(20, 0)",
    "google.protobuf.Int32Value v = 1;": "int", "google.protobuf.UInt32Value v = 1;": "long",
    "google.protobuf.BoolValue v = 1;": "boolean", "google.protobuf.StringValue v = 1;": "string",
    "google.protobuf.BytesValue v = 1;": "binary", "google.protobuf.Struct v = 1;": "string",
    "google.protobuf.Value v = 1;": "string", "google.protobuf.ListValue v = 1;": "string",
    "google.protobuf.Any v = 1;": "struct<0: type_url: optional string, 0: value: optional binary>",
    "google.protobuf.FieldMask v = 1;": "list<string>", "google.protobuf.Empty v = 1;": "boolean",
}  # fmt: skip


def test_the_reference_page_reports_what_the_reader_does() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_construct_of_proto3_has_its_type() -> None:
    found = {
        declaration: str(reader_of_row(section, row).struct.fields[0].field_type)
        for section in range(3)
        for row, (_, declaration, _) in enumerate(SECTIONS[section][3])
        if not declaration.startswith("oneof")
    }
    assert found == TYPES


def test_all_columns_are_optional() -> None:
    for field in (*reader_of(LEGACY, "old.Node").struct.fields, *reader_of(SHOP).struct.fields):
        assert not field.required
        assert "required" not in str(field.field_type)


@pytest.mark.parametrize(
    ("section", "declaration", "text", "expected"),
    [
        (0, "uint32 v = 1;", "v: 4294967295", "`v` 4294967295"),
        (0, "uint64 v = 1;", "v: 18446744073709551615", "`v` 18446744073709551615"),
        (0, "sint32 v = 1;", "v: -2147483648", "`v` -2147483648"),
        (0, "Size v = 1;", "v: TINY", '`v` `"SMALL"`'),
        (0, "Color v = 1;", "v: 7", '`v` `"7"`'),
        (1, "optional int32 v = 1;", "", "`v` null"),
        (1, "oneof v { int32 a = 1; string b = 2; }", "a: 0", "`a` 0, `b` null"),
        (2, "google.protobuf.Timestamp v = 1;", "v { seconds: -1 nanos: 999999999 }",
         "`v` 1969-12-31T23:59:59.999999+00:00"),
        (2, "google.protobuf.Duration v = 1;", "v { seconds: -1 nanos: -1999 }", "`v` -1000001"),
        (3, "optional int32 v = 1 [default = 5];", "", "`v` null"),
        (3, "required int32 v = 1;", "", "rejected: required field v is missing (`v`)"),
        (3, "optional Part v = 1;", "v {}", "rejected: required field id is missing (`v.id`)"),
        (4, "int32 v = 1 [features.field_presence = IMPLICIT];", "", "`v` 0"),
    ],
)  # fmt: skip
def test_values_that_are_easily_got_wrong(section: int, declaration: str, text: str, expected: str) -> None:
    (row,) = [n for n, (_, each, _) in enumerate(SECTIONS[section][3]) if each == declaration]
    assert read_row(section, row, text) == expected


def test_parts_of_a_map_s_entry_that_are_left_out_have_their_default() -> None:
    (row,) = rows_of(reader_of(LEGACY, "old.Node"), read(reader_of(LEGACY, "old.Node"), [b"\x08\x01\x42\x00\x4a\x00"]))
    assert row["by_name"] == [("", "GOOD")]
    assert row["leaves"] == [(0, {"value": None, "more": [], "f": None})]


def test_an_enum_number_without_a_name_is_kept_where_protobuf_hides_it() -> None:
    reader = reader_of(LEGACY, "old.Node")
    rows = rows_of(reader, read(reader, [b"\x08\x01\x18\x63\x20\x07\x20\x63\x20\x03", b"\x08\x01\x52\x00\x68\x63"]))
    assert (rows[0]["level"], rows[0]["levels"]) == ("99", ["HIGH", "99", "MIDDLE"])
    assert (rows[1]["leaf"], rows[1]["rank"]) == (None, "99")


def test_a_map_keeps_the_last_entry_of_a_key_however_many_there_are() -> None:
    reader = reader_of('syntax = "proto3"; message M { map<int32, string> m = 1; map<string, int32> s = 2; }')
    entry = b"\x0a\x05\x08\x01\x12\x01"
    many = b"".join(b"\x12\x06\x0a\x02%02d\x10\x01" % n for n in range(40)) + b"\x12\x06\x0a\x0207\x10\x05"
    records = [entry + b"a" + b"\x0a\x05\x08\x02\x12\x01b" + entry + b"c", many, b"", entry + b"d", many]
    rows = rows_of(reader, read(reader, records))
    assert [row["m"] for row in rows] == [[(2, "b"), (1, "c")], [], [], [(1, "d")], []]
    assert [len(row["s"]) for row in rows] == [0, 40, 0, 0, 40]
    assert rows[4]["s"][-1] == ("07", 5)


def test_a_oneof_s_message_that_lost_its_place_is_forgotten() -> None:
    schema = """
        syntax = "proto3";
        message M { oneof o { N n = 1; string s = 2; } }
        message N { int32 a = 1; int32 b = 2; repeated int32 c = 3; }
    """
    first, text, second = b"\x0a\x04\x08\x01\x18\x07", b"\x12\x01x", b"\x0a\x02\x10\x02"
    reader = reader_of(schema)
    rows = rows_of(reader, read(reader, [first + second, first + text, first + text + second, text + first]))
    assert rows == [
        {"n": {"a": 1, "b": 2, "c": [7]}, "s": None},
        {"n": None, "s": "x"},
        {"n": {"a": 0, "b": 2, "c": []}, "s": None},
        {"n": {"a": 1, "b": 0, "c": [7]}, "s": None},
    ]


def test_a_message_is_found_by_its_path_of_indexes_or_by_name() -> None:
    schema = """
        syntax = "proto3";
        package deep.inside;
        message A { int32 a = 1; }
        message B {
          map<string, int32> m = 1;
          message C { string c = 1; message D { bool d = 1; } }
          enum E { ZERO = 0; }
          message F { bytes f = 1; }
        }
    """
    paths: list[tuple[int, ...] | str] = [(0,), (1,), (1, 0), (1, 0, 0), (1, 1), "deep.inside.B.F"]
    names = {path: [field.name for field in reader_of(schema, path).struct.fields] for path in paths}
    assert names == {
        (0,): ["a"], (1,): ["m"], (1, 0): ["c"], (1, 0, 0): ["d"], (1, 1): ["f"], "deep.inside.B.F": ["f"],
    }  # fmt: skip


@pytest.mark.parametrize("message", [(), (1,), (0, 0), (-1,), (10**12,), "N", "", "M.x"])
def test_a_message_that_is_not_there_is_named(message: tuple[int, ...] | str) -> None:
    with pytest.raises(UnusableSchema, match=r"has no message|at least one index"):
        reader_of(PLAIN, message)


def test_what_is_no_descriptor_is_refused() -> None:
    unknown = descriptor_pb2.FileDescriptorSet.FromString(descriptors_of(SHOP))
    del unknown.file[:-1]
    for raw in (b"\xff", b"", unknown.SerializeToString()):
        with pytest.raises(UnusableSchema, match=r"not Protobuf descriptors|have no file"):
            load_message(raw, (0,))


def test_a_timestamp_that_is_none_is_not_read_as_one() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    files.file[0].message_type[0].field[0].name = "minutes"
    with pytest.raises(UnusableSchema, match="not Protobuf's own"):
        load_message(files.SerializeToString(), (0,))


def test_schemas_too_large_for_a_table_are_refused() -> None:
    wide = " ".join(f"int32 f{n} = {n};" for n in range(1, MAX_FIELDS + 2))
    with pytest.raises(UnusableSchema, match="more than 2000 fields"):
        reader_of(f'syntax = "proto3"; message M {{ {wide} }}')
    chain = " ".join(f"message M{n} {{ M{n + 1} a = 1; M{n + 1} b = 2; }}" for n in range(40))
    with pytest.raises(UnusableSchema, match="more than 2000 fields"):
        reader_of(f'syntax = "proto3"; {chain} message M40 {{ int32 x = 1; }}')
    chain = " ".join(f"message M{n} {{ M{n + 1} a = 1; }}" for n in range(70))
    with pytest.raises(UnusableSchema, match="nested more than 64 levels"):
        reader_of(f'syntax = "proto3"; {chain} message M70 {{ int32 x = 1; }}')


def test_a_schema_as_deep_as_it_may_be_is_read() -> None:
    chain = " ".join(f"message M{n} {{ M{n + 1} a = 1; }}" for n in range(63))
    reader = reader_of(f'syntax = "proto3"; {chain} message M63 {{ int32 x = 1; }}')
    raw = b"\x08\x05"
    for _ in range(63):
        raw = b"\x0a" + (bytes([len(raw)]) if len(raw) < 128 else bytes([len(raw) & 0x7F | 0x80, 1])) + raw
    columns = read(reader, [raw])
    value = columns.arrays[0].to_pylist()[0]
    for _ in range(62):
        value = value["a"]
    assert (fault_of(columns, 0), value) == (None, {"x": 5})


def test_groups_are_read_and_also_those_inside_of_themselves() -> None:
    reader = reader_of(EDITION)
    inner = b"\x1a\x01n"
    raw = b"\x1a\x01n\x3b\x08\x05\x3c\x43" + inner + b"\x08\x07\x44\x5b" + inner + b"\x5c"
    columns = read(reader, [raw])
    (row,) = rows_of(reader, columns)
    assert (row["by_tags"], row["again"]) == ({"x": 5, "y": None}, '{"needed":"n","tracked":7}')
    assert row["all"] == ['{"needed":"n"}']


def test_a_message_without_fields_has_no_columns() -> None:
    reader = reader_of('syntax = "proto3"; message M {}')
    columns = read(reader, [b"", b"\x08\x01", b"\x08"])
    assert (columns.arrays, columns.fault.tolist()) == ([], [0, 0, 1])


def test_field_numbers_far_apart_are_told_apart() -> None:
    numbers = [1, 17, 33, 1025, 2**28, 2**29 - 1]
    fields = " ".join(f"int32 f{n} = {n};" for n in numbers)
    reader = reader_of(f'syntax = "proto3"; message M {{ {fields} }}')
    message = class_of(f'syntax = "proto3"; message M {{ {fields} }}', "M")(**{f"f{n}": n for n in numbers})
    raw = message.SerializeToString() + b"\x88\x02\x05"  # 33 again, after the last
    assert rows_of(reader, read(reader, [raw])) == [{f"f{n}": n if n != 33 else 5 for n in numbers}]


def test_any_inside_of_json_is_told_by_the_schema_s_own_messages() -> None:
    schema = """
        syntax = "proto2";
        import "google/protobuf/any.proto";
        message M { optional M m = 1; optional google.protobuf.Any any = 2; }
        message N { optional string s = 1; }
    """
    reader = reader_of(schema)
    make = class_of(schema, "M")

    def nested(type_name: str, value: bytes) -> bytes:
        message = make()
        message.m.any.type_url, message.m.any.value = f"example.com/{type_name}", value
        return bytes(message.SerializeToString())

    many = b""
    for _ in range(300):
        message = class_of(schema, "google.protobuf.Any")(type_url="a/google.protobuf.Any", value=many)
        many = message.SerializeToString()
    records = [
        nested("N", b"\x0a\x01x"), nested("O", b""), nested("N", b"\x0a\x01\xff"), nested("N", b"\x0a"),
        nested("google.protobuf.Any", many), nested("N", b""),
    ]  # fmt: skip
    columns = read(reader, records)
    assert [row["m"] for row in rows_of(reader, columns)] == [
        '{"any":{"@type":"example.com/N","s":"x"}}', None, None, None, None, '{"any":{"@type":"example.com/N"}}',
    ]  # fmt: skip
    kinds = [fault and fault.kind for fault in (fault_of(columns, row) for row in range(len(records)))]
    assert kinds == [None, "out_of_range", "invalid_text", "malformed", "too_deep", None]


def test_strings_of_proto2_inside_of_json_must_be_text_too() -> None:
    schema = """
        syntax = "proto2";
        message M {
          optional M m = 1; optional string a = 2; repeated string b = 3; map<string, string> c = 4; map<int32, M> d = 5;
        }
    """
    reader = reader_of(schema)
    good = [b"\x12\x01x", b"\x1a\x01x", b"\x22\x06\x0a\x01k\x12\x01v", b"\x2a\x05\x12\x03\x12\x01x"]
    bad = [b"\x12\x01\xff", b"\x1a\x01\xff", b"\x22\x06\x0a\x01\xff\x12\x01v", b"\x22\x06\x0a\x01k\x12\x01\xff",
           b"\x2a\x05\x12\x03\x12\x01\xff"]  # fmt: skip
    columns = read(reader, [b"\x0a" + bytes([len(raw)]) + raw for raw in good + bad])
    kinds = [fault and fault.kind for fault in (fault_of(columns, row) for row in range(9))]
    assert kinds == [None] * 4 + ["invalid_text"] * 5
    assert [row["m"] for row in rows_of(reader, columns)][:4] == [
        '{"a":"x"}', '{"b":["x"]}', '{"c":{"k":"v"}}', '{"d":{"0":{"a":"x"}}}',
    ]  # fmt: skip


def test_positions_may_be_read_only() -> None:
    bodies = bodies_of([b"\x08\x01", b"\x08\x02"])
    bodies.start.flags.writeable = bodies.end.flags.writeable = False
    assert read(reader_of(PLAIN), bodies).arrays[0].to_pylist() == [1, 2]


def test_a_map_s_entry_with_a_field_that_nobody_knows_is_an_entry() -> None:
    reader = reader_of('syntax = "proto3"; message M { map<int32, string> m = 1; }')
    rows = rows_of(reader, read(reader, [b"\x0a\x07\x08\x01\x12\x01a\x18\x05"]))
    assert rows == [{"m": [(1, "a")]}]
