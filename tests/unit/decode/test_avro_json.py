"""Avro values that contain their own type: the JSON text of their columns against another reading of the same bodies.

FRAZIL_EXAMPLES: how many times as many examples to try.
"""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.fixtures.chance import Chance, damage
from tests.unit.decode.avro_bodies import kinds, number, plain_rows, read, record_of, text
from tests.unit.decode.avro_strict import Refused, Strict

_TIMES = int(os.environ.get("FRAZIL_EXAMPLES", "1"))
_SCALARS = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_DEAD_LETTERS = ("a", '"', "\\", "\n", "\x01", "\x7f", "é", "日", "😀", " plain text of some length ")
_NAMES = ("n", "name", "a_rather_long_name_of_a_field")


class _Maker:
    """Schemas whose records contain themselves, and bodies of them, by chance."""

    def __init__(self, seed: int) -> None:
        self.chance = Chance(seed)
        self.named: dict[str, Any] = {}

    def record(self, depth: int, around: tuple[str, ...] = ()) -> dict[str, Any]:
        name = f"R{len(self.named)}"
        found = self.named[name] = {"type": "record", "name": name, "fields": []}
        inside = (*around, name)
        for n in range(self.chance.below(5)):
            node = self.node(depth + 1, inside)
            found["fields"].append({"name": f"{self.chance.one_of(_NAMES)}{n}", "type": node})
        again = self.chance.one_of(inside)
        shapes = (["null", again], {"type": "array", "items": again}, {"type": "map", "values": again})
        found["fields"].append({"name": "again", "type": self.chance.one_of(shapes)})
        return found

    def node(self, depth: int, around: tuple[str, ...]) -> Any:
        kind = self.chance.one_of(("scalar", "scalar", "enum", "fixed", "array", "map", "union", "record"))
        if kind == "scalar" or depth > 4:
            return self.chance.one_of(_SCALARS)
        if kind in ("array", "map"):
            inner = self.chance.one_of(around) if self.chance.happens(0.3) else self.node(depth + 1, around)
            return {"type": kind, "items" if kind == "array" else "values": inner}
        if kind == "union":
            branches = [branch for branch in _SCALARS if self.chance.happens(0.4)]
            branches += [self.chance.one_of(around)] if self.chance.happens(0.4) else []
            return branches or ["null"]
        return self.record(depth, around) if kind == "record" else self.word(kind)

    def word(self, kind: str) -> dict[str, Any]:
        """A named type without others inside."""
        name = f"W{len(self.named)}"
        more = {"symbols": ["A", "B", "a_long_symbol"]} if kind == "enum" else {"size": 1 + self.chance.below(9)}
        found = self.named[name] = {"type": kind, "name": name, **more}
        return found

    def value(self, node: Any, depth: int = 0) -> bytes:
        """Bytes of a value."""
        if isinstance(node, list):
            ends = [n for n, branch in enumerate(node) if branch in _SCALARS]
            choice = self.chance.one_of(ends) if depth > 8 and ends else self.chance.below(len(node))
            return number(choice) + self.value(node[choice], depth + 1)
        node = self.named.get(node, node) if isinstance(node, str) else node
        kind = node["type"] if isinstance(node, dict) else node
        if kind == "record":
            return b"".join(self.value(member["type"], depth + 1) for member in node["fields"])
        if kind in ("array", "map"):
            return self.blocks(node, depth)
        if kind == "fixed":
            return bytes(self.chance.below(256) for _ in range(node["size"]))
        return self.scalar(kind)

    def blocks(self, node: dict[str, Any], depth: int) -> bytes:
        out = b""
        for block in range(self.chance.below(3) if depth < 9 else 0):
            count = 1 + self.chance.below(3)
            is_map = node["type"] == "map"
            keys = [text(f"{self.chance.one_of(_DEAD_LETTERS)}{block}{n}") if is_map else b"" for n in range(count)]
            items = b"".join(key + self.value(node["values" if is_map else "items"], depth + 1) for key in keys)
            out += number(-count) + number(len(items)) + items if self.chance.happens(0.5) else number(count) + items
        return out + b"\x00"

    def scalar(self, kind: str) -> bytes:
        chance = self.chance
        some = "".join(chance.one_of(_DEAD_LETTERS) for _ in range(chance.below(6)))
        makers: dict[str, Callable[[], bytes]] = {
            "null": lambda: b"",
            "boolean": lambda: bytes([chance.below(2)]),
            "int": lambda: number(chance.whole(-(2**31), 2**31 - 1)),
            "long": lambda: number(chance.whole(-(2**63), 2**63 - 1)),
            "float": lambda: struct.pack(
                "<I", chance.one_of((0x3DCCCCCD, 0x7FC00000, 0xFF800000, chance.below(2**32)))
            ),
            "double": lambda: struct.pack("<d", chance.one_of((0.1, -0.0, 1e16, float("inf"), chance.rng.normal()))),
            "bytes": lambda: number(len(some.encode())) + some.encode(),
            "string": lambda: text(some),
            "enum": lambda: number(chance.below(3)),
        }
        return makers[kind]()


def _compare(schema: Any, bodies: list[bytes]) -> int:
    """How many bodies are refused: exactly those that the other reading refuses. The texts of the others are the same."""
    rows = plain_rows(schema, bodies)
    for row, body in zip(rows, bodies, strict=True):
        try:
            expected = Strict(schema, body).row()
        except Refused:
            assert row is None
        else:
            assert row is not None
            assert row["again"] == expected["again"]
    return rows.count(None)


@pytest.mark.parametrize("seed", range(5 * _TIMES))
def test_values_are_written_as_another_reading_has_them(seed: int) -> None:
    maker = _Maker(seed)
    schema = maker.record(0)
    bodies = [maker.value(schema) for _ in range(15)]
    assert _compare(schema, bodies) == 0
    _compare(schema, [damage(body, maker.chance) for body in bodies])


def test_every_kind_of_value_has_its_json() -> None:
    other = {"type": "fixed", "name": "b.Twin", "size": 1}
    scalars: dict[str, Any] = {
        "a": "null", "b": "boolean", "i": "int", "l": "long", "f": "float", "d": "double", "y": "bytes", "s": "string",
        "x": {"type": "fixed", "name": "a.Twin", "size": 2}, "e": {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        "m": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        "t": {"type": "long", "logicalType": "timestamp-millis"}, "u": ["null", "int", "a.Twin", other],
        "n": {"type": "map", "values": ["int", "null"]},
    }  # fmt: skip
    schema = record_of(r=["null", "r"], **scalars)
    values = [
        b"", b"\1", number(-(2**31)), number(2**63 - 1), struct.pack("<f", 0.1), struct.pack("<d", -0.0),
        number(2) + b"\xff\0", text('"\\\n\x01é/'), b"ab", b"\2", number(1) + b"\7", number(-1), number(3) + b"c",
        number(2) + text("b") + b"\0\2" + text("") + b"\2\0",
    ]  # fmt: skip
    row, end = b"".join(values), b"\0"
    found = read(schema, [b"\2" + end + row + row])
    (json_text,) = found.arrays[0].to_pylist()
    assert json_text == (
        '{"r":null,"a":null,"b":true,"i":-2147483648,"l":9223372036854775807,"f":0.10000000149011612,"d":-0.0,'
        '"y":"/wA=","s":"\\"\\\\\\n\\u0001é/","x":"YWI=","e":"B","m":"Bw==","t":-1,"u":{"b_Twin":"Yw=="},'
        '"n":{"b":1,"":null}}'
    )


def test_what_has_no_json_is_refused_and_its_neighbours_are_rows() -> None:
    schema = record_of(s="string", m={"type": "map", "values": "int"}, next=["null", "r"])
    many = b"".join(text(f"key {n}") + b"\x02" for n in range(100))
    good = text("x") + number(100) + many + b"\x00\x00"
    twice = text("x") + number(101) + many + text("key 50") + b"\x02\x00\x00"
    bad = b"\x02\xff\x00\x00"
    head = text("head") + b"\x00\x02"
    found = read(schema, [head + good, head + twice, head + good, head + bad])
    assert kinds(found) == [(1, "duplicate_key", "next"), (3, "invalid_text", "next")]
    assert found.arrays[2][0].as_py() == found.arrays[2][2].as_py()


def test_names_that_no_bytes_pay_for_are_limited() -> None:
    nulls = {f"n{n}_{'x' * 1000}": "null" for n in range(1000)}
    schema = record_of(c={"type": "array", "items": "r"}, **nulls)
    items = [number(n) + bytes(n) + b"\0" if n else b"\0" for n in (5, 0, 40)]
    found = read(schema, [number(1) + body + b"\0" for body in items])
    assert kinds(found) == [(2, "too_large", "c.element")]


def test_a_long_text_in_json_is_there_whole() -> None:
    schema = record_of(s="string", y="bytes", next=["null", "r"])
    texts = ["\x00" * 100_000, "plain" * 100_000, '"' * 100_000, "é" * 100_000]
    bodies = [text("") + b"\x00\x02" + text(each) + text(each) + b"\x00" for each in texts]
    found = [json.loads(each) for each in read(schema, bodies).arrays[2].to_pylist()]
    assert found == [{"s": each, "y": base64.b64encode(each.encode()).decode(), "next": None} for each in texts]


def test_values_of_two_types_that_contain_themselves_are_in_two_columns() -> None:
    other = {
        "type": "record",
        "name": "o",
        "fields": [{"name": "o", "type": ["null", "o"]}, {"name": "i", "type": "int"}],
    }
    schema = record_of(a=["null", "r"], b=["null", other], c={"type": "array", "items": ["null", "r", "o"]})
    leaf, small = b"\x00\x00\x00", b"\x00\x0e"
    body = (
        b"\x02"
        + leaf
        + b"\x02"
        + b"\x02"
        + small
        + b"\x10"
        + number(3)
        + b"\x02"
        + leaf
        + b"\x04"
        + small
        + b"\x00\x00"
    )
    found = read(schema, [leaf, body, leaf])
    assert [array[1].as_py() for array in found.arrays] == [
        '{"a":null,"b":null,"c":[]}',
        {"o": '{"o":null,"i":7}', "i": 8},
        [
            {"r": '{"a":null,"b":null,"c":[]}', "o": None},
            {"r": None, "o": {"o": None, "i": 7}},
            None,
        ],
    ]
    assert np.asarray(found.arrays[0].is_null()).tolist() == [True, False, True]
