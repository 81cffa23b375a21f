"""Messages that become JSON: the compiled writer against Protobuf's own JSON, value by value.

FRAZIL_EXAMPLES: how many times as many examples to try.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format, struct_pb2

from frazil.decode.columns import Columns
from frazil.decode.protobuf import scalars
from frazil.decode.protobuf.json import to_json
from tests.unit.decode.protobuf_chance import Chance, damage, fill, spoil, write_oddly
from tests.unit.decode.protobuf_schemas import (
    DELIMITED,
    EDITION,
    LEGACY,
    SHOP,
    WORDS,
    class_of,
    fault_of,
    read,
    reader_of,
)

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
  string far = 536870911;
}
"""
_LETTERS = ("a", "b", "", '"', "\\", "\n", "\x01", "é", "日", "😀", " plain text of some length ")
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
    return "".join(chance.one_of(_LETTERS) for _ in range(chance.below(5)))


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


def compare(
    schema: str, records: Sequence[bytes], monkeypatch: pytest.MonkeyPatch, name: str = "M"
) -> tuple[Columns, int]:
    """The columns of records, which must be those of writing value by value; and how often that was needed."""
    asked = 0

    def count(message: Any) -> Any:
        nonlocal asked
        asked += 1
        return to_json(message)

    with monkeypatch.context() as patch:
        patch.setattr(scalars, "to_json", count)
        found = read(reader_of(schema, name), records)
    with monkeypatch.context() as patch:
        patch.setattr(scalars, "write_messages", _decline_all)
        expected = read(reader_of(schema, name), records)
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


@pytest.mark.parametrize("seed", range(10 * _TIMES))
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


_SCHEMAS = [
    (_TREE, "trees.Tree"), (SHOP, "shop.Order"), (LEGACY, "old.Node"), (EDITION, "new.Top"), (DELIMITED, "lines.Top"),
    (WORDS, "words.Top"),
]  # fmt: skip


def _inside(field: int, messages: Sequence[bytes]) -> list[bytes]:
    """Records that have these messages in a field: there they become JSON."""
    tag = bytes([field << 3 | 2] if field < 16 else [(field << 3 | 2) & 0x7F | 0x80, field >> 4])
    return [tag + length_of(raw) + raw for raw in messages]


@pytest.mark.parametrize(("schema", "name"), _SCHEMAS)
@pytest.mark.parametrize("seed", range(2 * _TIMES))
def test_messages_in_themselves_are_written_as_protobuf_writes_them(
    schema: str, name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = Chance(seed)
    make, made = class_of(schema, name), []
    for _ in range(15):
        made.append(make())
        fill(made[-1], chance, chance.one_of((0.05, 0.2, 0.5, 0.9)))
    field = next(each.number for each in make.DESCRIPTOR.fields if each.message_type is make.DESCRIPTOR)
    plain = [message.SerializePartialToString() for message in made]
    _, asked = compare(schema, _inside(field, plain), monkeypatch, name)
    assert asked == 0 or schema != _TREE
    odd = [write_oddly(message, chance.one_of(made), chance) for message in made]
    compare(schema, _inside(field, odd), monkeypatch, name)
    torn = [chance.one_of((damage, spoil))(raw, chance) for raw in (*plain, *odd)]
    compare(schema, _inside(field, torn), monkeypatch, name)
    compare(schema, [chance.one_of((damage, spoil))(raw, chance) for raw in _inside(field, plain)], monkeypatch, name)


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


def test_floats_are_written_as_protobuf_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(3)
    powers = [np.uint32(exponent << 23) for exponent in range(256)]
    some = chance.integers(0, 2**32, 4000, np.uint32)
    money = np.round(chance.uniform(0, 1e4, 2000), 2).astype(np.float32).view(np.uint32)
    bits = np.concatenate([powers, [power + 1 for power in powers], [power - 1 for power in powers[1:]], some, money])
    schema = 'syntax = "proto3"; message M { M m = 1; float f = 2; }'
    _, asked = compare(schema, [part(1, b"\x15" + each.tobytes()) for each in bits.astype("<u4")], monkeypatch)
    assert asked < 200  # Those next to 0, and powers of two far from 1.


def test_moments_are_written_as_protobuf_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = """
        syntax = "proto3";
        import "google/protobuf/duration.proto";
        import "google/protobuf/timestamp.proto";
        message M { M m = 1; google.protobuf.Timestamp t = 2; google.protobuf.Duration d = 3; }
    """
    make, chance = class_of(schema, "M"), Chance(5)
    first, last, most = -62_135_596_800, 253_402_300_799, 315_576_000_000
    days = [day * 86_400 + second for day in range(-800, 20_000, 7) for second in (-1, 0)]
    years = [first + year * 31_556_952 for year in range(9999)]
    good = [*days, *years, first, last, 951_782_400, 951_868_799, 4_107_542_400]
    nanos = (0, 1, 1000, 1_000_000, 999_999_999, 500_000_000, 120_000, 10)
    records = [make(t={"seconds": each, "nanos": chance.one_of(nanos)}) for each in good]
    records += [make(d={"seconds": sign * chance.whole(0, most), "nanos": sign * n}) for n in nanos for sign in (1, -1)]
    records += [make(t={}), make(d={}), make(d={"nanos": -1}), make(d={"seconds": -most}), make(d={"seconds": most})]
    found, asked = compare(schema, [part(1, each.SerializeToString()) for each in records], monkeypatch, "M")
    assert asked == 0
    assert not found.fault.any()
    wrong = [
        make(t={"seconds": last + 1}),
        make(t={"seconds": first - 1}),
        make(t={"nanos": -1}),
        make(t={"nanos": 10**9}),
    ]
    wrong += [make(d={"seconds": each}) for each in (most + 1, -most - 1, -(2**63), 2**63 - 1)]
    wrong += [make(d={"nanos": 10**9}), make(d={"seconds": 1, "nanos": -1}), make(d={"seconds": -1, "nanos": 1})]
    found, _ = compare(schema, [part(1, each.SerializeToString()) for each in wrong], monkeypatch, "M")
    assert found.fault.all()


@pytest.mark.parametrize(
    "kind", ["int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed64"]
)
def test_keys_that_are_numbers_are_in_the_order_of_their_digits(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = f'syntax = "proto3"; message M {{ M m = 1; map<{kind}, bool> b = 2; }}'
    make, chance = class_of(schema, "M"), Chance(len(kind))
    least = 0 if kind[0] in "uf" else -(2**31) if "32" in kind else -(2**63)
    most = (2**32 if "32" in kind else 2**64) - 1 + least
    records = []
    for _ in range(20):
        message = make()
        for _ in range(60):
            message.b[min(chance.whole(least, most), most)] = chance.happens(0.5)
        for number in (9, 10, 99, 100, 1, 0, most, least):
            message.b[number] = True
        records.append(part(1, message.SerializeToString()))
    _, asked = compare(schema, records, monkeypatch)
    assert asked == 0


def test_fields_that_nobody_knows_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = part(15, b"text") + b"\xf8\x3f\x05" + b"\xa5\x06abcd" + b"\xa1\x06abcdefgh"
    schema = 'syntax = "proto3"; message M { M m = 1; int32 i = 2; }'
    record = part(1, unknown + part(1, unknown + b"\x10\x05" + unknown))
    found, asked = compare(schema, [record], monkeypatch)
    assert found.arrays[0].to_pylist() == ['{"m":{"i":5}}']
    assert asked == 0


@pytest.mark.parametrize(
    "wrong", [b"\x00\x01", b"\xfe\x3f", b"\xff\x3f\x01", b"\xf8\x3f\x80", b"\xfc\x3f", b"\xfb\x3f\xfc\x3f"]
)
def test_what_is_no_field_is_left_to_protobuf(wrong: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = 'syntax = "proto3"; message M { M m = 1; int32 i = 2; }'
    compare(schema, [part(1, b"\x10\x05"), part(1, wrong), part(1, b"\x10\x06" + wrong)], monkeypatch)


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
