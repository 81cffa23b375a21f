"""A second reading of Avro bodies, written to be read: no columns, no speed, the same values and faults."""

from __future__ import annotations

import base64
import decimal
import json
import math
import struct
import uuid
from typing import Any

_EXACT = decimal.Context(prec=60)


class Refused(Exception):
    """The body is refused for a reason of this kind."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Strict:
    """Reads one body of a schema, given as Python's json module has it.

    The schema reports each named type once, but for records that contain themselves.
    """

    def __init__(self, schema: Any, body: bytes) -> None:
        self.schema = schema
        self.body = body
        self.at = 0
        self.open: dict[str, Any] = {}
        self.as_json = 0
        self.level = 0

    def row(self) -> Any:
        """The value, as `plain` gives it; raises Refused."""
        value = self.value(self.schema)
        if self.at != len(self.body):
            raise Refused("malformed")
        return value

    def take(self, length: int) -> bytes:
        if not 0 <= length <= len(self.body) - self.at:
            raise Refused("malformed")
        self.at += length
        return self.body[self.at - length : self.at]

    def number(self, bits: int = 64) -> int:
        total = 0
        for place in range(10):
            byte = self.take(1)[0]
            total |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                break
        else:
            raise Refused("malformed")
        value = (total >> 1) ^ -(total & 1)
        if total >= 2**64 or not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise Refused("malformed")
        return value

    def value(self, node: Any) -> Any:
        if isinstance(node, list):
            return self.union(node)
        kind = node["type"] if isinstance(node, dict) else node
        if kind in self.open:
            return self.inner(self.open[kind])
        logical = node.get("logicalType", "") if isinstance(node, dict) and not self.as_json else ""
        read = getattr(self, f"read_{kind}")
        return self.shaped(logical, node, read(node if isinstance(node, dict) else {}))

    def inner(self, node: Any) -> Any:
        self.as_json += 1
        value = self.read_record(node)
        self.as_json -= 1
        return value if self.as_json else json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def shaped(self, logical: str, node: Any, value: Any) -> Any:
        if logical == "decimal":
            return self.decimal(value, node["precision"], node.get("scale", 0))
        if logical == "uuid":
            return self.uuid(value)
        if logical.endswith(("-millis", "-micros")):
            micros = value * (1000 if logical.endswith("millis") else 1)
            # Which times a column takes is not the reader's to say, as long as it has words for them.
            least, end = (0, 86_400_000_000) if logical.startswith("time-") else (-(2**63), 2**63)
            if not least <= micros < end:
                raise Refused("out_of_range")
            return micros
        return value

    def decimal(self, raw: bytes, precision: int, scale: int) -> decimal.Decimal:
        if not raw:
            raise Refused("malformed")
        unscaled = int.from_bytes(raw, "big", signed=True)
        if abs(unscaled) >= 10**precision:
            raise Refused("out_of_range")
        return decimal.Decimal(unscaled).scaleb(-scale, _EXACT)

    def uuid(self, value: str | bytes) -> bytes:
        if isinstance(value, bytes):
            return value
        try:
            found = uuid.UUID(value)
        except ValueError:
            raise Refused("type_mismatch") from None
        if str(found) != value.lower():
            raise Refused("type_mismatch")
        return found.bytes

    def union(self, node: list[Any]) -> Any:
        number = self.number()
        if not 0 <= number < len(node):
            raise Refused("malformed")
        value = self.value(node[number])
        others = [branch for branch in node if branch != "null"]
        if node[number] == "null" or len(others) == 1:
            return value
        chosen = {self.name(node[number]): value}
        return chosen if self.as_json else dict.fromkeys(map(self.name, others)) | chosen

    def name(self, node: Any) -> str:
        return str(node.get("name", node["type"]) if isinstance(node, dict) else node)

    def read_null(self, _: Any) -> None:
        return None

    def read_boolean(self, _: Any) -> bool:
        byte = self.take(1)[0]
        if byte > 1:
            raise Refused("malformed")
        return byte == 1

    def read_int(self, _: Any) -> int:
        return self.number(32)

    def read_long(self, _: Any) -> int:
        return self.number()

    def read_float(self, _: Any) -> float | str:
        return self.real("<f", 4)

    def read_double(self, _: Any) -> float | str:
        return self.real("<d", 8)

    def real(self, form: str, size: int) -> float | str:
        value: float = struct.unpack(form, self.take(size))[0]
        if not self.as_json or math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"

    def read_bytes(self, _: Any) -> bytes | str:
        raw = self.take(self.number())
        return base64.b64encode(raw).decode() if self.as_json else raw

    def read_fixed(self, node: Any) -> bytes | str:
        raw = self.take(node["size"])
        return base64.b64encode(raw).decode() if self.as_json else raw

    def read_string(self, _: Any) -> str:
        try:
            return self.take(self.number()).decode()
        except UnicodeDecodeError:
            raise Refused("invalid_text") from None

    def read_enum(self, node: Any) -> str:
        number = self.number()
        if not 0 <= number < len(node["symbols"]):
            raise Refused("malformed")
        return str(node["symbols"][number])

    def read_record(self, node: Any) -> dict[str, Any]:
        before = self.open
        self.open = {**self.open, node["name"]: node}
        self.deepen(1)
        found = {member["name"]: self.value(member["type"]) for member in node["fields"]}
        self.deepen(-1)
        self.open = before
        return found

    def deepen(self, levels: int) -> None:
        self.level += levels
        if self.level > 64:
            raise Refused("too_deep")

    def items(self, read: Any) -> list[Any]:
        found: list[Any] = []
        self.deepen(1)
        while count := self.number():
            end = None
            if count < 0:
                count, size = -count, self.number()
                end = self.at + size
                if not 0 <= size <= len(self.body) - self.at:
                    raise Refused("malformed")
            if count > len(self.body) - self.at:
                raise Refused("malformed")
            found += [read() for _ in range(count)]
            if end is not None and end != self.at:
                raise Refused("malformed")
        self.deepen(-1)
        return found

    def read_array(self, node: Any) -> list[Any]:
        return self.items(lambda: self.value(node["items"]))

    def read_map(self, node: Any) -> list[tuple[str, Any]] | dict[str, Any]:
        found = self.items(lambda: (self.read_string(node), self.value(node["values"])))
        if len({key for key, _ in found}) < len(found):
            raise Refused("duplicate_key")
        return dict(found) if self.as_json else found
