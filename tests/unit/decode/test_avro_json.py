"""Avro values that contain their own type: the compiled writer of their JSON against the one that goes value by value.

FRAZIL_EXAMPLES: how many times as many examples to try.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from frazil.decode.avro import columns as avro_columns
from frazil.decode.avro.json import write_json
from frazil.decode.columns import Columns
from tests.unit.decode.avro_bodies import kinds, number, read, record_of, text
from tests.unit.decode.protobuf_chance import Chance, damage

_TIMES = int(os.environ.get("FRAZIL_EXAMPLES", "1"))
_SCALARS = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_LETTERS = ("a", '"', "\\", "\n", "\x01", "\x7f", "é", "日", "😀", " plain text of some length ")
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
            keys = [text(f"{self.chance.one_of(_LETTERS)}{block}{n}") if is_map else b"" for n in range(count)]
            items = b"".join(key + self.value(node["values" if is_map else "items"], depth + 1) for key in keys)
            out += number(-count) + number(len(items)) + items if self.chance.happens(0.5) else number(count) + items
        return out + b"\x00"

    def scalar(self, kind: str) -> bytes:
        chance = self.chance
        some = "".join(chance.one_of(_LETTERS) for _ in range(chance.below(6)))
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


def _compare(
    schema: Any, bodies: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> tuple[Columns, list[tuple[int, str]]]:
    """The columns of the bodies, which must be those of reading value by value; and what that was told to write."""
    asked: list[tuple[int, str]] = []

    def note(avro: Any, body: bytes) -> str:
        asked.append((len(asked), body.hex()))
        return write_json(avro, body)

    with monkeypatch.context() as patch:
        patch.setattr(avro_columns, "write_json", note)
        found = read(schema, bodies)
    with monkeypatch.context() as patch:
        patch.setattr(avro_columns, "write_values", _decline_all)
        expected = read(schema, bodies)
    assert found.fault.tolist() == expected.fault.tolist()
    assert found.paths == expected.paths
    both = zip(found.arrays, expected.arrays, strict=True)
    assert all(repr(one.to_pylist()) == repr(other.to_pylist()) for one, other in both)  # NaN is not equal to NaN.
    return found, asked


def _decline_all(*arguments: Any) -> int:
    words, ends, declined = arguments[1], arguments[-2], arguments[-1]
    ends[:] = 0
    declined[:] = words != 0
    return int(words.size)


@pytest.mark.parametrize("seed", range(10 * _TIMES))
def test_what_is_written_at_once_is_what_is_written_value_by_value(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = _Maker(seed)
    schema = maker.record(0)
    bodies = [maker.value(schema) for _ in range(15)]
    found, asked = _compare(schema, bodies, monkeypatch)
    assert not found.fault.any()
    assert asked == []
    torn = [damage(body, maker.chance) if maker.chance.happens(0.5) else body for body in bodies]
    _compare(schema, torn, monkeypatch)


def test_only_what_is_damaged_is_written_value_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = record_of(s="string", m={"type": "map", "values": "int"}, next=["null", "r"])
    many = b"".join(text(f"key {n}") + b"\x02" for n in range(100))
    good = text("x") + number(100) + many + b"\x00\x00"
    twice = text("x") + number(101) + many + text("key 50") + b"\x02\x00\x00"
    bad = b"\x02\xff\x00\x00"
    head = text("head") + b"\x00\x02"
    found, asked = _compare(schema, [head + good, head + twice, head + good, head + bad], monkeypatch)
    assert kinds(found) == [(1, "duplicate_key", "next"), (3, "invalid_text", "next")]
    assert [body for _, body in asked] == [twice.hex(), bad.hex()]
    assert found.arrays[2][0].as_py() == found.arrays[2][2].as_py()


def test_a_long_text_in_json_is_there_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = record_of(s="string", y="bytes", next=["null", "r"])
    texts = ["\x00" * 100_000, "plain" * 100_000, '"' * 100_000, "é" * 100_000]
    bodies = [text("") + b"\x00\x02" + text(each) + text(each) + b"\x00" for each in texts]
    found, asked = _compare(schema, bodies, monkeypatch)
    assert asked == []
    assert all(len(each) > 100_000 for each in found.arrays[2].to_pylist())


def test_values_of_two_types_that_contain_themselves_are_in_two_columns(monkeypatch: pytest.MonkeyPatch) -> None:
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
    found, asked = _compare(schema, [leaf, body, leaf], monkeypatch)
    assert asked == []
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
