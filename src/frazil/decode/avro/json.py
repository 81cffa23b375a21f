"""Values of types that contain themselves, as JSON text, one by one in Python: what the compiled writer (`json_scan`)
must agree with, and what says why one that it declines has no JSON.

The compiled walk has been over their bytes, so numbers, lengths and depth are right; what it does not look at (text,
keys) is looked at here.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from typing import Any

from frazil.decode.avro.faults import BAD_TEXT, LONG_JSON, MAX_JSON_CHARACTERS, SAME_KEY
from frazil.decode.avro.schema import Avro, branch_names


class JsonFault(Exception):
    """The value has no JSON; `fault` is the number of what is wrong."""

    def __init__(self, fault: int) -> None:
        super().__init__(fault)
        self.fault = fault


def write_json(avro: Avro, body: bytes) -> str:
    """The value of type `avro` in `body`, as compact JSON.

    Logical types are written as their underlying types, bytes and fixed as base64, floats that JSON has no number for
    as "NaN", "Infinity" and "-Infinity". A union with null and one other branch is that branch's value or null, any
    other one an object with the name of its branch. Raises JsonFault.
    """
    value = _Body(body).value(avro)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class _Body:
    """Reads one value after another. `names_length` counts the characters of names, which bytes do not bound."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0
        self._names_length = 0

    def value(self, avro: Avro) -> Any:
        return _READERS[avro.kind](self, avro)

    def read_null(self, _: Avro) -> None:
        return None

    def number(self) -> int:
        total = shift = 0
        while True:
            byte = self._body[self._at]
            self._at += 1
            total |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (total >> 1) ^ -(total & 1)

    def take(self, length: int) -> bytes:
        self._at += length
        return self._body[self._at - length : self._at]

    def read_boolean(self, _: Avro) -> bool:
        return self.take(1) == b"\x01"

    def read_integer(self, _: Avro) -> int:
        return self.number()

    def read_float(self, avro: Avro) -> float | str:
        form = "<f" if avro.kind == "float" else "<d"
        found: float = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        if math.isnan(found):
            return "NaN"
        return found if math.isfinite(found) else "Infinity" if found > 0 else "-Infinity"

    def read_bytes(self, avro: Avro) -> str:
        return base64.b64encode(self.take(avro.size or self.number())).decode()

    def read_string(self, _: Avro) -> str:
        try:
            return self.take(self.number()).decode()
        except UnicodeDecodeError:
            raise JsonFault(BAD_TEXT) from None

    def read_enum(self, avro: Avro) -> str:
        symbol = avro.symbols[self.number()]
        self._count(symbol)
        return symbol

    def read_record(self, avro: Avro) -> dict[str, Any]:
        found = {}
        for member in avro.fields:
            self._count(member.name)
            found[member.name] = self.value(member.type)
        return found

    def blocks(self) -> int:
        """The items of the next block, 0 after the last."""
        count = self.number()
        if count < 0:
            self.number()
        return abs(count)

    def read_array(self, avro: Avro) -> list[Any]:
        found: list[Any] = []
        while count := self.blocks():
            found += [self.value(avro.items[0]) for _ in range(count)]
        return found

    def read_map(self, avro: Avro) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while count := self.blocks():
            for _ in range(count):
                key = self.read_string(avro)
                if key in found:
                    raise JsonFault(SAME_KEY)
                found[key] = self.value(avro.items[0])
        return found

    def read_union(self, avro: Avro) -> Any:
        number = self.number()
        value = self.value(avro.items[number])
        if avro.items[number].kind == "null" or sum(branch.kind != "null" for branch in avro.items) == 1:
            return value
        name = branch_names(avro)[number]
        self._count(name)
        return {name: value}

    def _count(self, name: str) -> None:
        self._names_length += len(name)
        if self._names_length > MAX_JSON_CHARACTERS:
            raise JsonFault(LONG_JSON)


_READERS: dict[str, Callable[[_Body, Avro], Any]] = {
    "null": _Body.read_null,
    "boolean": _Body.read_boolean,
    "int": _Body.read_integer,
    "long": _Body.read_integer,
    "float": _Body.read_float,
    "double": _Body.read_float,
    "bytes": _Body.read_bytes,
    "fixed": _Body.read_bytes,
    "string": _Body.read_string,
    "enum": _Body.read_enum,
    "record": _Body.read_record,
    "array": _Body.read_array,
    "map": _Body.read_map,
    "union": _Body.read_union,
}
