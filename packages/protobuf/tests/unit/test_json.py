"""Messages that become JSON: the texts of all kinds of fields, and the compiled writer of Struct against Protobuf's own.

FRAZIL_EXAMPLES: how many times as many examples to try.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format, struct_pb2, text_format

from frazil.decode.columns import Columns
from frazil_protobuf import columns
from frazil_protobuf import json as protobuf_json
from frazil_protobuf.json import to_json
from packages.protobuf.tests.unit.protobuf_chance import spoil, write_oddly
from packages.protobuf.tests.unit.protobuf_schemas import class_of, fault_of, read, reader_of
from tests.fixtures.chance import Chance, damage

_TIMES = int(os.environ.get("FRAZIL_EXAMPLES", "1"))
_SCHEMA = """
syntax = "proto3";
import "google/protobuf/struct.proto";
message M {
  google.protobuf.Struct s = 1;
  google.protobuf.Value v = 2;
  google.protobuf.ListValue l = 3;
  repeated google.protobuf.Value all = 4;
  oneof one { google.protobuf.Struct a = 5; google.protobuf.Value b = 6; }
}
"""
_TREE = """
syntax = "proto3";
package trees;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Tree {
  enum Size { option allow_alias = true; SMALL = 0; LARGE = 1; BIG = 1; LOST = -3; }
  message Leaf { string name = 1; map<string, Leaf> leaves = 2; Tree tree = 3; }
  Tree next = 1;
  repeated Tree all = 2;
  map<string, Tree> by_text = 3;
  int32 z_int = 4;
  int64 y_long = 5;
  uint32 x_unsigned = 6;
  uint64 w_big = 7;
  sint32 v_zigzag = 8;
  sint64 u_zigzag = 9;
  fixed32 t_fixed = 10;
  fixed64 s_fixed = 11;
  sfixed32 r_fixed = 12;
  sfixed64 q_fixed = 13;
  float p_float = 14;
  double o_double = 15;
  bool n_flag = 16;
  string m_text = 17;
  bytes l_bytes = 18;
  Size k_size = 19;
  optional int32 maybe_int = 20;
  optional string maybe_text = 21;
  optional Size maybe_size = 22;
  optional bytes maybe_bytes = 23;
  optional bool maybe_flag = 24;
  Leaf leaf = 25;
  repeated int64 longs = 26;
  repeated sint32 zigzags = 27 [packed = false];
  repeated fixed64 eights = 28;
  repeated float fours = 29;
  repeated bool flags = 30;
  repeated Size sizes = 31;
  repeated string texts = 32;
  repeated bytes blobs = 33;
  map<int32, string> by_int = 34;
  map<sint64, Leaf> by_zigzag = 35;
  map<uint64, double> by_big = 36;
  map<bool, Size> by_flag = 37;
  map<fixed32, bytes> by_fixed = 38;
  map<sfixed64, float> by_signed = 39;
  map<string, google.protobuf.Value> by_value = 40;
  oneof choice { int64 number = 41; string word = 42; Leaf twig = 43; Size mood = 44; google.protobuf.Timestamp at = 45; }
  google.protobuf.Timestamp made = 50;
  google.protobuf.Duration took = 51;
  repeated google.protobuf.Timestamp moments = 52;
  map<string, google.protobuf.Duration> spans = 53;
  google.protobuf.DoubleValue w_double = 60;
  google.protobuf.FloatValue w_float = 61;
  google.protobuf.Int64Value w_long = 62;
  google.protobuf.UInt64Value w_unsigned = 63;
  google.protobuf.Int32Value w_int = 64;
  google.protobuf.BoolValue w_flag = 65;
  repeated google.protobuf.StringValue w_texts = 66;
  google.protobuf.BytesValue w_bytes = 67;
  google.protobuf.Struct free = 70;
  google.protobuf.ListValue any_list = 71;
  google.protobuf.NullValue none = 72;
  optional google.protobuf.NullValue maybe_none = 73;
  google.protobuf.Empty nothing = 75;
  repeated google.protobuf.Empty nothings = 76;
  google.protobuf.FieldMask mask = 80;
  google.protobuf.Any any = 81;
  string far = 536870911;
}
"""
_DEAD_LETTERS = ("a", "b", "", '"', "\\", "\n", "\x01", "é", "日", "😀", " plain text of some length ")
_NUMBERS = (0.0, -0.0, 1.0, 0.1, 1e16, -1.5e-7, 5e-324, 1.7976931348623157e308, 123456.789)


def length_of(raw: bytes) -> bytes:
    """The length of some bytes as Protobuf writes it."""
    rest, out = len(raw), bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def part(number: int, *inside: bytes) -> bytes:
    """A field with a length."""
    raw = b"".join(inside)
    return bytes([number << 3 | 2]) + length_of(raw) + raw


def _json(chance: Chance, depth: int = 0) -> Any:
    kind = chance.one_of(("null", "number", "number", "text", "boolean", "list", "object", "object"))
    if kind in ("list", "object") and depth < 5:
        items = [_json(chance, depth + 1) for _ in range(chance.one_of((0, 1, 2, 5, 20)) if depth < 2 else 1)]
        return items if kind == "list" else {_text(chance): item for item in items}
    return {
        "null": None, "number": chance.one_of((*_NUMBERS, chance.rng.normal())), "text": _text(chance),
        "boolean": chance.happens(0.5),
    }.get(kind)  # fmt: skip


def _text(chance: Chance) -> str:
    return "".join(chance.one_of(_DEAD_LETTERS) for _ in range(chance.below(5)))


def _made(message: Any, value: Any) -> Any:
    return json_format.ParseDict(value, message)


def _record(chance: Chance) -> tuple[list[Any], bytes]:
    """Messages at random, and a record of them."""
    fields = {_text(chance): _json(chance) for _ in range(chance.below(6))}
    struct, value = _made(struct_pb2.Struct(), fields), _made(struct_pb2.Value(), _json(chance))
    items = _made(struct_pb2.ListValue(), [_json(chance) for _ in range(chance.below(4))])
    made = [struct, value, items]
    raw = b"".join(part(n, each.SerializeToString()) for n, each in enumerate(made, 1) if chance.happens(0.9))
    more = b"".join(part(4, _made(struct_pb2.Value(), _json(chance, 3)).SerializeToString()) for _ in range(3))
    return made, raw + more + part(chance.one_of((5, 6)))


def compare(schema: str, records: Sequence[bytes], monkeypatch: pytest.MonkeyPatch) -> tuple[Columns, int]:
    """The columns of records, which must be those that Protobuf's library writes; and how often that was asked."""
    asked = 0

    def count(message: Any, size: int) -> Any:
        nonlocal asked
        asked += 1
        return to_json(message, size)

    with monkeypatch.context() as patch:
        patch.setattr(columns, "to_json", count)
        found = read(reader_of(schema, "M"), records)
    with monkeypatch.context() as patch:
        patch.setattr(columns, "write_structs", _decline_all)
        expected = read(reader_of(schema, "M"), records)
    rows = range(len(records))
    assert [fault_of(found, row) for row in rows] == [fault_of(expected, row) for row in rows]
    assert found.paths == expected.paths
    both = zip(found.arrays, expected.arrays, strict=True)
    assert all(repr(one.to_pylist()) == repr(other.to_pylist()) for one, other in both)
    return found, asked


def _decline_all(*arguments: Any) -> int:
    places, valid, ends, declined = arguments[1], arguments[2], arguments[-2], arguments[-1]
    ends[:] = 0
    declined[:] = valid
    return int(places.size)


@pytest.mark.parametrize("seed", range(5 * _TIMES))
def test_what_is_written_at_once_is_what_is_written_value_by_value(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = Chance(seed)
    made, records = zip(*(_record(chance) for _ in range(15)), strict=True)
    found, asked = compare(_SCHEMA, records, monkeypatch)
    assert not found.fault.any()
    assert asked == 0
    odd = []
    for struct, value, items in made:
        again = chance.one_of(made)
        pairs = zip((struct, value, items), again, strict=True)
        raw = [
            write_oddly(one, other, chance) if chance.happens(0.7) else one.SerializeToString() for one, other in pairs
        ]
        odd.append(b"".join(part(n, each) for n, each in enumerate(raw, 1)))
    compare(_SCHEMA, odd, monkeypatch)
    compare(_SCHEMA, [chance.one_of((damage, spoil))(raw, chance) for raw in (*records, *odd)], monkeypatch)
    # Damage inside of a value, whose length is right.
    inner = [[chance.one_of((damage, spoil))(each.SerializeToString(), chance) for each in three] for three in made]
    torn = [b"".join(part(n, each) for n, each in enumerate(three, 1)) for three in inner]
    compare(_SCHEMA, torn, monkeypatch)


def _inside(field: int, raw: bytes) -> bytes:
    """A record that has this message in a field, where it becomes JSON."""
    return bytes([field << 3 | 2]) + length_of(raw) + raw


_ANY_TREE = "[type.googleapis.com/trees.Tree] { z_int: 1 next { } }"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("", "{}"),
        ("z_int: 0 y_long: 0 n_flag: false m_text: '' k_size: SMALL p_float: 0", "{}"),
        ("maybe_int: 0 maybe_text: '' maybe_size: SMALL maybe_bytes: '' maybe_flag: false",
         '{"maybe_bytes":"","maybe_flag":false,"maybe_int":0,"maybe_size":"SMALL","maybe_text":""}'),
        ("z_int: -2147483648 x_unsigned: 4294967295 v_zigzag: -1 t_fixed: 4294967295 r_fixed: -1",
         '{"r_fixed":-1,"t_fixed":4294967295,"v_zigzag":-1,"x_unsigned":4294967295,"z_int":-2147483648}'),
        ("y_long: -9223372036854775808 w_big: 18446744073709551615 u_zigzag: -1 s_fixed: 1 q_fixed: -1",
         '{"q_fixed":"-1","s_fixed":"1","u_zigzag":"-1","w_big":"18446744073709551615","y_long":"-9223372036854775808"}'),
        ("p_float: 0.1 o_double: 0.1 fours: [-0.0, 1e10, 1e20, 16777216, 3.4028235e38, 1e-45]",
         '{"fours":[-0.0,10000000000.0,1e+20,16777216.0,3.4028235e+38,1.4013e-45],"o_double":0.1,"p_float":0.1}'),
        ("p_float: -0.0 o_double: -0.0", '{"o_double":-0.0,"p_float":-0.0}'),
        ("o_double: nan fours: [inf, -inf, nan]", '{"fours":["Infinity","-Infinity","NaN"],"o_double":"NaN"}'),
        (r"""m_text: '"\\\n\x01é/' l_bytes: '\xff\xfe\xfb'""", r'{"l_bytes":"//77","m_text":"\"\\\n\u0001é/"}'),
        ("k_size: LOST sizes: [BIG, LARGE, SMALL]", '{"k_size":"LOST","sizes":["LARGE","LARGE","SMALL"]}'),
        ("k_size: 9 sizes: [-3, 9]", '{"k_size":9,"sizes":["LOST",9]}'),
        ("texts: ['b', 'a'] blobs: ['', 'x'] flags: [true, false] longs: [1]",
         '{"blobs":["","eA=="],"flags":[true,false],"longs":["1"],"texts":["b","a"]}'),
        ("by_int { key: 9 value: 'n' } by_int { key: 10 value: 't' } by_int { key: -1 value: 'm' }",
         '{"by_int":{"-1":"m","10":"t","9":"n"}}'),
        ("by_flag { key: true value: BIG } by_flag { key: false value: SMALL }",
         '{"by_flag":{"false":"SMALL","true":"LARGE"}}'),
        ("by_big { key: 18446744073709551615 value: 1 } by_text { key: 'é' value { } }",
         '{"by_big":{"18446744073709551615":1.0},"by_text":{"é":{}}}'),
        ("next { all { } all { z_int: 1 } }", '{"next":{"all":[{},{"z_int":1}]}}'),
        ("leaf { name: 'l' leaves { key: 'k' value { tree { } } } }",
         '{"leaf":{"leaves":{"k":{"tree":{}}},"name":"l"}}'),
        ("number: 0", '{"number":"0"}'),
        ("mood: LARGE", '{"mood":"LARGE"}'),
        ("made { } moments { seconds: -62135596800 } moments { seconds: 951782400 nanos: 1000 } at { nanos: 10000000 }",
         '{"at":"1970-01-01T00:00:00.010Z","made":"1970-01-01T00:00:00Z",'
         '"moments":["0001-01-01T00:00:00Z","2000-02-29T00:00:00.000001Z"]}'),
        ("took { seconds: -1 nanos: -500000000 } spans { key: '' value { seconds: 315576000000 } }",
         '{"spans":{"":"315576000000s"},"took":"-1.500s"}'),
        ("w_double { value: 1 } w_float { } w_long { value: 1 } w_unsigned { } w_int { } w_flag { } w_bytes { }",
         '{"w_bytes":"","w_double":1.0,"w_flag":false,"w_float":0.0,"w_int":0,"w_long":"1","w_unsigned":"0"}'),
        ("w_texts { } w_texts { value: 'x' }", '{"w_texts":["","x"]}'),
        ("free { fields { key: 'b' value { number_value: 1 } } fields { key: 'a' value { list_value { } } } }",
         '{"free":{"a":[],"b":1.0}}'),
        ("any_list { values { } values { string_value: 'x' } } by_value { key: 'k' value { bool_value: true } }",
         '{"any_list":[null,"x"],"by_value":{"k":true}}'),
        ("maybe_none: NULL_VALUE", '{"maybe_none":null}'),
        ("nothing { } nothings { }", '{"nothing":{},"nothings":[{}]}'),
        ("mask { paths: ['a.b', 'c_d'] }", '{"mask":"a.b,cD"}'),
        (f"any {{ {_ANY_TREE} }}", '{"any":{"@type":"type.googleapis.com/trees.Tree","next":{},"z_int":1}}'),
        ("any { [type.googleapis.com/google.protobuf.Int64Value] { value: 7 } }",
         '{"any":{"@type":"type.googleapis.com/google.protobuf.Int64Value","value":"7"}}'),
    ],
)  # fmt: skip
def test_a_message_in_itself_is_written_as_the_json_mapping_of_protobuf_has_it(message: str, text: str) -> None:
    make = class_of(_TREE, "trees.Tree")
    raw = text_format.Parse(message, make(), descriptor_pool=make.DESCRIPTOR.file.pool).SerializeToString()
    found = read(reader_of(_TREE, "trees.Tree"), [_inside(1, raw), b""])
    assert not found.fault.any()
    assert found.arrays[0].to_pylist() == [text, None]


def test_fields_of_proto2_are_written_as_protobuf_writes_them() -> None:
    schema = """
        syntax = "proto2";
        message M {
          extensions 100 to 110;
          optional M m = 1;
          optional int32 i = 2 [default = 7];
          optional Mood mood = 3;
          repeated group G = 4 { optional string s = 5; }
          enum Mood { GOOD = 1; }
        }
        extend M { optional int64 more = 100; }
    """
    message = b"\x10\x00" + b"\x18\x09" + b"\x23\x2a\x01x\x24" + b"\xa0\x06\x05"
    found = read(reader_of(schema, "M"), [part(1, b""), part(1, message)])
    assert found.arrays[0].to_pylist() == ["{}", '{"[more]":"5","g":[{"s":"x"}],"i":0}']


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"\x92\x03\x02\x10\xff", "malformed"),
        (b"\x92\x03\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "out_of_range"),
        (b"\x8a\x01\x02\xc3\x28", "invalid_text"),
    ],
)
def test_what_has_no_json_is_refused_and_its_neighbours_are_rows(raw: bytes, kind: str) -> None:
    good = b"\x20\x05"
    found = read(reader_of(_TREE, "trees.Tree"), [_inside(1, good), _inside(1, raw), _inside(1, good)])
    fault = fault_of(found, 1)
    assert fault is not None
    assert (fault.kind, found.paths[1]) == (kind, "next")
    assert [fault_of(found, 0), fault_of(found, 2)] == [None, None]
    assert found.arrays[0].to_pylist() == ['{"z_int":5}', None, '{"z_int":5}']


@pytest.mark.parametrize(
    ("message", "count"),
    [(b"\x12\x00" * 6, 6), (b"\xd2\x01\x06" + b"\x01" * 6, 6), (part(3, b"\x0a\x01a", b"\x12\x00"), 1)],
)
def test_messages_of_very_many_values_are_refused(message: bytes, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, is_refused in ((count + 1, False), (count, False), (count - 1, True)):
        monkeypatch.setattr(protobuf_json, "MAX_JSON_VALUES", limit)
        found = read(reader_of(_TREE, "trees.Tree"), [_inside(1, b""), _inside(1, message), _inside(1, b"")])
        kinds = [fault and fault.kind for fault in (fault_of(found, row) for row in range(3))]
        assert kinds == [None, "too_large" if is_refused else None, None]
        texts = found.arrays[0].to_pylist()
        assert [texts[0], texts[1] is None, texts[2]] == ["{}", is_refused, "{}"]


def test_a_struct_of_very_many_values_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf_json, "MAX_JSON_VALUES", 1)
    found = read(reader_of(_SCHEMA), [part(3, part(1, b"\x08\x00") * 3)])
    assert (fault_of(found, 0), found.arrays[2].to_pylist()) == (None, ["[null,null,null]"])


_ONE = part(1, part(1, b"k"), part(2, b"\x20\x01"))


@pytest.mark.parametrize(
    ("struct", "text"),
    [
        (b"", "{}"),
        (_ONE, '{"k":true}'),
        (part(1), '{"":null}'),
        (part(1, part(1, b"k")), '{"k":null}'),
        (part(1, part(2)), '{"":null}'),
        (part(1, part(2, b"\x08\x00")), '{"":null}'),
        (part(1, part(2, part(5))), '{"":{}}'),
        (part(1, part(2, part(6))), '{"":[]}'),
        (part(1, part(1, b"b")) + part(1, part(1, b"a")) + part(1, part(1, b"ab")), '{"a":null,"ab":null,"b":null}'),
    ],
)
def test_a_struct_is_written_at_once(struct: bytes, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = compare(_SCHEMA, [part(1, struct)], monkeypatch)
    assert found.arrays[0].to_pylist() == [text]
    assert asked == 0


@pytest.mark.parametrize(
    ("struct", "text"),
    [
        (part(1, part(1, b"k"), part(2, b"\x20\x00")) + _ONE, '{"k":true}'),
        (part(1, part(2, b"\x20\x01"), part(1, b"k")), '{"k":true}'),
        (part(1, part(1, b"x"), part(1, b"k"), part(2, b"\x20\x00"), part(2, b"\x20\x01")), '{"k":true}'),
        (part(1, part(1, b"k"), part(2, b"\x20\x01"), part(3, b"more")), "{}"),
        (part(2, b"more") + _ONE, '{"k":true}'),
        (b"\x08\x01" + _ONE, '{"k":true}'),
        (b"\x8a\x00" + _ONE[1:], '{"k":true}'),
        (b"\x0a\x87\x00" + _ONE[2:], '{"k":true}'),
        (part(1, part(1, b"k"), part(2, b"\x20\x00\x20\x01")), '{"k":true}'),
        (part(1, part(1, b"k"), part(2, b"\x20\x81\x00")), '{"k":true}'),
        (part(1, part(1, b"k"), part(2, part(3, b"x"), b"\x20\x01")), '{"k":true}'),
        (part(1, part(1, b"k"), part(2, part(5, _ONE), part(5, part(1, part(1, b"l"))))), '{"k":{"k":true,"l":null}}'),
    ],
)
def test_what_only_protobuf_puts_together_is_left_to_it(
    struct: bytes, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = compare(_SCHEMA, [part(1, struct)], monkeypatch)
    assert found.arrays[0].to_pylist() == [text]


@pytest.mark.parametrize("inside", [b"", part(6), part(6, part(1)), part(6, part(1, part(6)))])
def test_values_are_as_deep_as_protobuf_reads_them(inside: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [part(2, inside)]
    lists, structs = inside, inside
    for _ in range(60):
        lists, structs = part(6, part(1, lists)), part(5, part(1, part(2, structs)))
        records += [part(2, lists), part(2, structs)]
    found, asked = compare(_SCHEMA, records, monkeypatch)
    assert asked == 0
    assert 70 < np.count_nonzero(found.fault == 0) < 90


def test_a_struct_of_many_keys_is_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"key {n * 7919 % 5003}" for n in range(5003)]
    entries = [part(1, part(1, key.encode()), part(2, b"\x20\x01")) for key in keys]
    found, asked = compare(_SCHEMA, [part(1, *entries), part(1, *entries, entries[7])], monkeypatch)
    assert asked == 1
    text = "{" + ",".join(f'"{key}":true' for key in sorted(keys)) + "}"
    assert found.arrays[0].to_pylist() == [text, text]


def test_long_texts_are_there_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["\x00" * 100_000, "plain" * 100_000, '"' * 100_000, "é" * 100_000]
    records = [part(1, part(1, part(1, text.encode()), part(2, part(3, text.encode())))) for text in texts]
    found, asked = compare(_SCHEMA, records, monkeypatch)
    assert asked == 0
    assert not found.fault.any()
