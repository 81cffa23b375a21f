"""JSON with Kafka Connect's schema (docs/reference/connect.md): messages of a schema and a payload."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from frazil_verify.model import connect_types, json_values
from frazil_verify.model.faults import Fault, Unreadable
from frazil_verify.model.json_nodes import JsonNode
from frazil_verify.model.json_text import Json, plain, read_object
from frazil_verify.model.json_values import How
from frazil_verify.model.rows import Outcome, Walk
from frazil_verify.model.settings import Path, Settings, Table
from frazil_verify.model.types import MapOf, Plain
from frazil_verify.model.written import BINARY, INT, LONG, STRING, Written, rescued_of, value_of

_BASES = {
    "int8": INT,
    "int16": INT,
    "int32": INT,
    "int64": LONG,
    "string": STRING,
    "bytes": BINARY,
    "float32": Plain("float"),
    "float64": Plain("double"),
}


@dataclass(frozen=True, slots=True)
class ConnectNode:
    """A value of a payload with its part of the schema."""

    schema: Any
    json: Json

    @property
    def is_null(self) -> bool:
        """See Node."""
        return self.json.kind == "null"

    @property
    def has_type(self) -> bool:
        """See Node."""
        return not self.is_null

    @property
    def levels(self) -> int:
        """See Node."""
        return 0

    def members(self) -> Sequence[tuple[str, ConnectNode]] | None:
        """See Node."""
        if self.schema["type"] != "struct" or self.json.kind != "object":
            return None
        known = {part["field"]: part for part in self.schema["fields"]}
        return [(name, ConnectNode(known[name], value)) for name, value in self.json.value if name in known]

    def member(self, name: str) -> ConnectNode | None:
        """Returns one of a struct; None where it is null or absent."""
        return next((value for key, value in self.members() or () if key == name and not value.is_null), None)

    def elements(self) -> Sequence[ConnectNode] | None:
        """See Node."""
        if self.schema["type"] != "array" or self.json.kind != "array":
            return None
        return [ConnectNode(self.schema["items"], value) for value in self.json.value]

    def entries(self, kind: MapOf) -> Sequence[tuple[JsonNode, ConnectNode]] | None:  # noqa: ARG002  (keys are text)
        """See Node."""
        if self.schema["type"] != "map" or self.json.kind != "object":
            return None
        inner = self.schema["values"]
        return [(JsonNode(Json("string", "", key)), ConnectNode(inner, value)) for key, value in self.json.value]

    def plain(self, kind: Plain, how: How) -> Any:
        """See Node."""
        if self.schema["type"] in ("struct", "array", "map"):
            raise Fault("type_mismatch")
        return value_of(self._written(), kind, how)

    def _written(self) -> Written:
        kind, name = self.schema["type"], self.schema.get("name")
        base = _BASES.get(kind, Plain(kind))
        if base == BINARY:
            if self.json.kind != "string":
                raise Fault("type_mismatch")
            value = base64.b64decode(self.json.value)
        else:
            value = json_values.value_of(self.json, base, How(is_connect=True))
        if name is not None:
            named = connect_types.written_of(name, base, value, self.schema.get("parameters", {}))
            if named is not None:
                return named
        return Written.of(base, value)

    def own_faults(self) -> Sequence[str]:
        """See Node."""
        return ()

    def inner_faults(self) -> Sequence[str]:
        """See Node."""
        return ()

    def unfit(self, _: str, /) -> tuple[Sequence[tuple[Path, ConnectNode, tuple[str, ...]]], bool]:
        """See Node."""
        return (), True

    def rescued(self) -> Any:
        """See Node."""
        if self.schema["type"] in ("struct", "array", "map"):
            return plain(self.json)
        return rescued_of(self._written())


def as_python(node: Json) -> Any:
    """Returns a schema's text as Python's values."""
    if node.kind == "object":
        return {key: as_python(value) for key, value in node.value}
    if node.kind == "array":
        return [as_python(value) for value in node.value]
    return int(node.value) if node.kind == "number" else node.value


def payload_of(message: Json) -> ConnectNode | None:
    """Returns the payload of a message; None where the object is none."""
    if message.kind != "object" or sorted(message.keys) != ["payload", "schema"]:
        return None
    parts = dict(message.value)
    return ConnectNode(as_python(parts["schema"]), parts["payload"])


def outcome_of(settings: Settings, table: Table, value: bytes | None) -> Outcome:
    """Returns what becomes of a message's value."""
    try:
        message = read_object(value)
        payload = payload_of(message)
        if payload is None:
            return Walk(settings, table).run(JsonNode(message))
        if payload.is_null:
            raise Unreadable("tombstone")
    except Unreadable as fault:
        return Outcome.dead(fault)
    return Walk(settings, table).run(payload)
