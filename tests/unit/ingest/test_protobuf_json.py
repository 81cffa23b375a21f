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

from frazil.ingest.decode.columns import Columns
from frazil.ingest.decode.protobuf import scalars
from tests.unit.ingest.protobuf_chance import Chance, damage, spoil, write_oddly
from tests.unit.ingest.protobuf_schemas import fault_of, read, reader_of

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


def compare(schema: str, records: Sequence[bytes], monkeypatch: pytest.MonkeyPatch) -> tuple[Columns, int]:
    """The columns of records, which must be those of writing value by value; and how often that was needed."""
    asked = 0
    write_json = scalars.to_json

    def count(message: Any) -> Any:
        nonlocal asked
        asked += 1
        return write_json(message)

    with monkeypatch.context() as patch:
        patch.setattr(scalars, "to_json", count)
        found = read(reader_of(schema), records)
    with monkeypatch.context() as patch:
        patch.setattr(scalars, "write_values", _decline_all)
        expected = read(reader_of(schema), records)
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
