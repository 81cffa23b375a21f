"""Avro records, decoded by fastavro with their writer's schema, and what becomes of them (docs/reference/avro.md).

fastavro returns a value without the branch of the union that it belongs to, and a map without its repeated keys. So it is
given another schema of the same bytes: a record has no bytes of its own, hence each branch is a record with one field, and
a map is an array of records. Enums are read as numbers and booleans as bytes, whose ranges fastavro does not check.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from io import BytesIO
from typing import Any
from uuid import UUID

from fastavro import schemaless_reader

from frazil_verify.model import connect_types, times
from frazil_verify.model.faults import Fault, NotRead, Unreadable
from frazil_verify.model.json_values import How
from frazil_verify.model.rows import Outcome, Walk
from frazil_verify.model.settings import Path, Settings, Table
from frazil_verify.model.types import MapOf, Plain
from frazil_verify.model.written import (
    BINARY,
    INT,
    LONG,
    STRING,
    Anything,
    Written,
    rescued_of,
    timestamp,
    value_of,
)

Schema = Any
HEADER = 5
"""Bytes of Confluent's wire format."""
_ROOT = "record"
_MISSING: Any = object()
NO_RECORD = ""
"""The name of the record around the value of a schema that is not a record."""
_PRIMITIVE = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NAMED = ("record", "error", "enum", "fixed")
_NESTED = ("record", "array", "map", "union")
_MOST_ITEMS = 1_000_000
_NO_BRANCH = {"type": "record", "name": "none", "fields": [{"name": "", "type": "null"}]}
_NO_BRANCHES = 1000
"""So many follow the branches of a union: fastavro counts those with negative numbers from the end."""
_BEHIND = bytes(16)
"""Behind a body, so that a value that goes beyond the end is read there, which shows."""
_NOT_A_BODY = (ArithmeticError, EOFError, LookupError, MemoryError, StopIteration, TypeError, ValueError, struct.error)
_NUMBERS = {
    "date": Plain("date"),
    "time-millis": Plain("time"),
    "time-micros": Plain("time"),
    "timestamp-millis": Plain("timestamptz"),
    "timestamp-micros": Plain("timestamptz"),
    "local-timestamp-millis": Plain("timestamp"),
    "local-timestamp-micros": Plain("timestamp"),
}


@dataclass(frozen=True)
class Parsed:
    """A schema."""

    #: The record, with its names replaced by what they name.
    schema: Schema
    #: The schema that fastavro reads with.
    read_as: Schema


@dataclass(frozen=True, slots=True)
class AvroNode:
    """A value with its schema. The value of a record are its fields by name, of a union of several types the name of the
    branch and its value.
    """

    schema: Schema
    value: Any

    @property
    def is_null(self) -> bool:
        """See Node."""
        return self.value is None

    @property
    def has_type(self) -> bool:
        """See Node. A schema has the types of all columns, whatever the value is."""
        return self.value is not None

    @property
    def levels(self) -> int:
        """See Node."""
        return 0

    def members(self) -> Sequence[tuple[str, AvroNode]] | None:
        """See Node."""
        kind = _kind(self.schema)
        if kind == "union":
            return [self.value]
        return list(self.value.items()) if kind == "record" else None

    def elements(self) -> Sequence[AvroNode] | None:
        """See Node."""
        if _kind(self.schema) == "union":
            return self._branch.elements()
        return list(self.value) if _kind(self.schema) == "array" else None

    def entries(self, kind: MapOf) -> Sequence[tuple[AvroNode, AvroNode]] | None:
        """See Node."""
        if _kind(self.schema) == "union":
            return self._branch.entries(kind)
        if _kind(self.schema) != "map":
            return None
        return [(AvroNode("string", key), value) for key, value in self.value]

    def plain(self, kind: Plain, how: How) -> Any:
        """See Node."""
        if _kind(self.schema) == "union":
            return self._branch.plain(kind, how)
        if _kind(self.schema) == "record" and not self.value and kind.name == "boolean":
            return True
        if _kind(self.schema) in _NESTED:
            raise Fault("type_mismatch")
        return value_of(written_of(self.schema, self.value), kind, how)

    @property
    def _branch(self) -> AvroNode:
        branch: AvroNode = self.value[1]
        return branch

    def own_faults(self) -> Sequence[str]:
        """See Node."""
        return ()

    def inner_faults(self) -> Sequence[str]:
        """See Node."""
        return ()

    def unfit(self, _: str, /) -> tuple[Sequence[tuple[Path, AvroNode, tuple[str, ...]]], bool]:
        """See Node."""
        return (), True

    def rescued(self) -> Any:
        """See Node."""
        if _kind(self.schema) in _NESTED:
            return Anything()
        return rescued_of(written_of(self.schema, self.value))


def outcome_of(settings: Settings, table: Table, value: bytes | None, schemas: Mapping[int, str]) -> Outcome:
    """Returns what becomes of a record's value. schemas: texts by id."""
    try:
        root = read_value(value, schemas)
    except Unreadable as fault:
        return Outcome.dead(fault, "*")
    return Walk(settings, table).run(root)


def read_value(value: bytes | None, schemas: Mapping[int, str]) -> AvroNode:
    """Returns the record of a value in Confluent's wire format.

    Raises: Unreadable; NotRead for a schema that is not read.
    """
    if value is None:
        raise Unreadable("tombstone")
    if len(value) < HEADER or value[0] != 0:
        raise Unreadable("no_wire_format", "malformed")
    (number,) = struct.unpack(">I", value[1:HEADER])
    if number not in schemas:
        raise Unreadable("unknown_schema_id")
    return read_avro(parsed(schemas[number]), value[HEADER:])


# ---- schemas


def text_of(schema: str, references: Sequence[tuple[str, str]]) -> str:
    """Returns the text of a schema with those that it refers to. references: names and texts, each after those that it needs
    itself.
    """
    if not references:
        return schema
    return json.dumps({"references": [json.loads(text) for _, text in references], "schema": json.loads(schema)})


@cache
def parsed(text: str) -> Parsed:
    """Returns a schema.

    Raises: NotRead.
    """
    document, names = json.loads(text), dict[str, Schema]()
    if isinstance(document, dict) and "references" in document:
        for reference in document["references"]:
            _resolved(reference, names, "")
        document = document["schema"]
    schema = _resolved(document, names, "")
    branches = schema["branches"] if _kind(schema) == "union" else []
    if _kind(schema) != "record" and sorted(map(_kind, branches)) != ["null", "record"]:
        schema = {"type": "record", "name": NO_RECORD, "fields": [{"name": "value", "type": schema}]}
    read_as = {**_fields({_ROOT: schema}, itertools.count()), "__fastavro_parsed": True, "__named_schemas": {}}
    return Parsed(schema, read_as)


def _resolved(schema: Schema, names: dict[str, Schema], space: str) -> Schema:
    """Returns a schema in which names are replaced by what they name. names: by their full names. space: the namespace."""
    if isinstance(schema, str):
        if schema in _PRIMITIVE:
            return schema
        full_name = schema if "." in schema or not space else f"{space}.{schema}"
        named = names.get(full_name, names.get(schema, _MISSING))
        if named is _MISSING:
            raise NotRead(f"a schema of its records does not define the type {schema}")
        if named is None:
            raise NotRead(f"a record of its schemas contains itself: {schema}")
        return named
    if isinstance(schema, list):
        branches = [_resolved(branch, names, space) for branch in schema]
        return {"type": "union", "branches": branches, "names": _branch_names(branches)}
    kind = schema["type"]
    if not isinstance(kind, str) or kind not in (*_PRIMITIVE, *_NAMED, "array", "map"):
        return _resolved(kind, names, space)
    if kind in _NAMED:
        return _resolved_named(schema, names, space)
    if kind == "array":
        items = _resolved(schema["items"], names, space)
        if _has_no_bytes(items):
            raise NotRead("an array of its schemas has items without bytes")
        return {**schema, "items": items}
    return {**schema, "values": _resolved(schema["values"], names, space)} if kind == "map" else dict(schema)


def _resolved_named(schema: Schema, names: dict[str, Schema], space: str) -> Schema:
    name = str(schema["name"])
    space = name.rpartition(".")[0] if "." in name else str(schema.get("namespace", space) or "")
    full_name = name if "." in name or not space else f"{space}.{name}"
    names[full_name] = None
    named = {**schema, "name": full_name}
    if schema["type"] in ("record", "error"):
        named["type"] = "record"
        named["fields"] = [
            {"name": part["name"], "type": _resolved(part["type"], names, space)} for part in schema["fields"]
        ]
    names[full_name] = named
    return named


def _branch_names(branches: Sequence[Schema]) -> list[str]:
    """Returns the names of the members of a union's struct."""
    short = [_kind(branch) if not _is_named(branch) else branch["name"].rpartition(".")[2] for branch in branches]
    counts = Counter(short)
    return [
        branch["name"].replace(".", "_") if _is_named(branch) and counts[name] > 1 else name
        for name, branch in zip(short, branches, strict=True)
    ]


def _is_named(schema: Schema) -> bool:
    return _kind(schema) in _NAMED


def _kind(schema: Schema) -> str:
    return schema if isinstance(schema, str) else str(schema["type"])


def _has_no_bytes(schema: Schema) -> bool:
    kind = _kind(schema)
    if kind == "record":
        return all(_has_no_bytes(part["type"]) for part in schema["fields"])
    return kind == "null" or (kind == "fixed" and schema["size"] == 0)


def _has_no_column(schema: Schema) -> bool:
    kind = _kind(schema)
    if kind == "record":
        return all(_has_no_column(part["type"]) for part in schema["fields"])
    return kind == "null" or (kind == "union" and all(_kind(branch) == "null" for branch in schema["branches"]))


def _read_as(schema: Schema, numbers: Iterator[int]) -> Schema:
    """Returns the schema that fastavro reads with. numbers: of types, each of which has a name of its own."""
    kind = _kind(schema)
    if kind == "union":
        branches = [_fields({str(n): of}, numbers) for n, of in enumerate(schema["branches"])]
        return [*branches, *[_NO_BRANCH] * _NO_BRANCHES]
    if kind == "record":
        return _fields({str(n): part["type"] for n, part in enumerate(schema["fields"])}, numbers)
    if kind == "map":
        return {"type": "array", "items": _fields({"key": "string", "value": schema["values"]}, numbers)}
    if kind == "array":
        return {"type": "array", "items": _read_as(schema["items"], numbers)}
    if kind in ("boolean", "fixed"):
        return {"type": "fixed", "name": f"t{next(numbers)}", "size": 1 if kind == "boolean" else schema["size"]}
    return "int" if kind == "enum" else kind


def _fields(kinds: Mapping[str, Schema], numbers: Iterator[int]) -> Schema:
    """Returns a record that fastavro reads. kinds: the schemas of its fields, by name."""
    fields = [{"name": name, "type": _read_as(kind, numbers)} for name, kind in kinds.items()]
    return {"type": "record", "name": f"t{next(numbers)}", "fields": fields}


# ---- values


def read_avro(schema: Parsed, body: bytes) -> AvroNode:
    """Returns the record of a body.

    Raises: Unreadable where the body has none, or more.
    """
    source = BytesIO(body + _BEHIND)
    try:
        value: Any = schemaless_reader(source, schema.read_as)
    except UnicodeDecodeError:
        raise Unreadable("invalid_text", "malformed") from None
    except _NOT_A_BODY:
        raise Unreadable("malformed", "too_large", "invalid_text") from None
    if source.tell() != len(body):
        raise Unreadable("malformed", "too_large", "invalid_text")
    root = _node(schema.schema, value[_ROOT])
    if root.is_null:
        raise Unreadable("malformed", "tombstone")
    return root


def _node(schema: Schema, value: Any) -> AvroNode:
    """Returns a value, with the parts that it has. value: as fastavro returns it."""
    kind = _kind(schema)
    if kind == "union":
        return _branch_of(schema, value)
    if kind == "record":
        parts = {}
        for n, part in enumerate(schema["fields"]):
            node = _node(part["type"], value[str(n)])
            if not _has_no_column(part["type"]):
                parts[part["name"]] = node
        return AvroNode(schema, parts)
    if kind in ("array", "map") and len(value) > _MOST_ITEMS:
        raise Unreadable("too_large")
    if kind == "array":
        return AvroNode(schema, [_node(schema["items"], item) for item in value])
    if kind == "map":
        entries = [(entry["key"], _node(schema["values"], entry["value"])) for entry in value]
        if len({key for key, _ in entries}) < len(entries):
            raise Unreadable("duplicate_key")
        return AvroNode(schema, entries)
    return AvroNode(schema, _plain(kind, schema, value))


def _branch_of(schema: Schema, value: Any) -> AvroNode:
    """Returns the value of a branch. Of a union of several types, null left out, it is a member of a struct."""
    ((place, inner),) = value.items()
    if not place:
        raise Unreadable("malformed")
    branch = schema["branches"][int(place)]
    node = _node(branch, inner)
    is_struct = sum(_kind(of) != "null" for of in schema["branches"]) > 1
    return node if node.is_null or not is_struct else AvroNode(schema, (schema["names"][int(place)], node))


def _plain(kind: str, schema: Schema, value: Any) -> Any:
    if kind == "int" and not -(2**31) <= value < 2**31:
        raise Unreadable("malformed")
    if kind == "enum":
        if not 0 <= value < len(schema["symbols"]):
            raise Unreadable("malformed")
        return schema["symbols"][value]
    if kind == "boolean":
        if value > b"\1":
            raise Unreadable("malformed")
        return value == b"\1"
    return value


# ---- types


def written_of(schema: Schema, value: Any) -> Written:
    """Returns a plain value with the type of a new column, and the type that it is encoded as."""
    kind = _kind(schema)
    details = schema if isinstance(schema, dict) else {}
    if kind == "fixed":
        base = Plain("fixed", (details["size"],))
    else:
        base = {"bytes": BINARY, "string": STRING, "enum": STRING, "int": INT, "long": LONG}.get(kind, Plain(kind))
    name = details.get("connect.name")
    if name is not None:
        named = connect_types.written_of(name, base, value, details.get("connect.parameters", {}))
        if named is not None:
            return named
    logical = details.get("logicalType")
    if logical is None:
        return Written.of(base, value)
    if logical == "decimal":
        return _decimal(details, base, value)
    if logical == "uuid":
        return _uuid(base, value)
    if (kind, logical) in _LOGICAL:
        return Written(_NUMBERS[logical], _time_of(logical, value), base, value)
    return Written.of(base, value)


_LOGICAL = {
    ("int", "date"), ("int", "time-millis"), ("long", "time-micros"), ("long", "timestamp-millis"),
    ("long", "timestamp-micros"), ("long", "local-timestamp-millis"), ("long", "local-timestamp-micros"),
}  # fmt: skip


def _time_of(logical: str, value: int) -> Any:
    if logical == "date":
        return times.day_of(value)
    unit = "ms" if logical.endswith("millis") else "us"
    if logical.startswith("time-"):
        return times.time_since_midnight(Decimal(value), unit)
    return timestamp(value * (1000 if unit == "ms" else 1), not logical.startswith("local"))


def _decimal(details: Mapping[str, Any], base: Plain, value: bytes) -> Written:
    precision, scale = details["precision"], details.get("scale", 0)
    if precision > 38 or scale > precision:
        return Written.of(base, value)
    if not value:
        raise Fault("malformed")
    number = Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale)
    if abs(number) >= Decimal(10) ** (precision - scale):
        raise Fault("out_of_range")
    return Written(Plain("decimal", (precision, scale)), number, base, value)


def _uuid(base: Plain, value: Any) -> Written:
    if base == STRING:
        try:
            if len(value) != 36:
                raise ValueError(value)
            return Written(Plain("uuid"), UUID(value).bytes, base, value)
        except ValueError:
            raise Fault("type_mismatch") from None
    return Written(Plain("uuid"), value, base, value) if base.args == (16,) else Written.of(base, value)
