"""JSON Schema to Iceberg types: the types of a record's fields, as far as its schema determines them.

The records themselves are read by the JSON decoder. A field whose schema leaves the type open (any value, alternatives
without one type, a type that contains itself) is left out of the struct, and its type is then inferred from the
records, as without a schema. docs/reference/json-schema.md has the table; packages/jsonschema/tests/unit/test_types.py
verifies it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyiceberg import types as t

from frazil.column_names import Spellings
from frazil.decode.connect.schema import is_unsigned
from frazil.decode.connect.values import UNSIGNED
from frazil.decode.conversion import NOT_ADDED
from frazil.decode.settings import Reading
from frazil.registry.port import UnusableSchema
from frazil.schema.evolve import can_promote
from frazil.schema.parts import Path, common_part, type_word
from frazil_jsonschema.kinds import (
    ANY,
    Array,
    Dictionary,
    Drawing,
    Kind,
    Null,
    Open,
    Plain,
    Record,
    both,
    either,
)
from frazil_jsonschema.refs import Documents, Node

MAX_DEPTH = 64
_MAX_HOPS = 128
_MAX_VISITS = 20_000

_CONNECT = "org.apache.kafka.connect.data."
_CONNECT_NUMBERS: Mapping[str, t.IcebergType] = {
    "int8": t.IntegerType(),
    "int16": t.IntegerType(),
    "int32": t.IntegerType(),
    "int64": t.LongType(),
    "float32": t.FloatType(),
    "float64": t.DoubleType(),
}
# `time` is not among them: its texts end with a zone, which Iceberg's time of day does not have.
_FORMATS: Mapping[str, t.IcebergType] = {"date": t.DateType(), "date-time": t.TimestamptzType(), "uuid": t.UUIDType()}
_SIMPLE: Mapping[str, Kind] = {"null": Null(), "boolean": Plain(t.BooleanType())}
_DECIMAL = Open("a Decimal of Connect may be written as a number or as bytes; declare the column")
_RECURSIVE = Open("its type contains itself")
_DYNAMIC = Open("its type depends on the schema that refers to it")


@dataclass(frozen=True)
class SchemaStruct:
    """The struct of a schema."""

    #: The struct: every field optional, its ids placeholders.
    struct: t.StructType
    #: Fields whose types the schema leaves open, by path (`element` and `value` lead into lists and maps), with the
    #: reason.
    left_out: Mapping[str, str]
    #: The names that the schema gives the types of fields, by path, such as those of Kafka Connect.
    titles: Mapping[Path, str] = field(default_factory=dict)


def read_json_schema(text: str, references: tuple[tuple[str, str], ...] = ()) -> SchemaStruct:
    """Returns the struct of a record that the schema `text` describes; references: the other schemas it may refer to,
    by name.

    Raises: UnusableSchema for a text that is no JSON Schema of an object, refers to an absent schema, or exceeds the
    limits: 1 MiB, 64 levels, 2,000 fields. Source: JSON Schema drafts 4 to 2020-12, as validators read them; OpenAPI's
    and Kafka Connect's additions where the table names them.
    """
    try:
        documents = Documents(text, references)
        kind = _Reading(documents).read(documents.root, 0)
        drawing = Drawing()
        if isinstance(kind, Record):
            return SchemaStruct(drawing.struct(kind), drawing.left_out, drawing.titles)
    except RecursionError:
        raise UnusableSchema("it is nested too deeply") from None
    if isinstance(kind, Plain | Array | Null):
        raise UnusableSchema("it describes something else than an object, and a record's value is one")
    reason = kind.reason if isinstance(kind, Open) else "its object names no properties"
    return SchemaStruct(t.StructType(), {"": reason})


class _Reading:
    """One walk over a schema. `_open`: the references on the way; `_visits`: the cost so far."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._open: list[int] = []
        self._visits = 0

    def read(self, node: Node, depth: int) -> Kind:
        """Returns the kind of a value that `node` describes, `depth` levels below the record."""
        self._visits += 1
        if self._visits > _MAX_VISITS:
            raise UnusableSchema(f"it has more than {_MAX_VISITS} parts, references counted where they are used")
        if isinstance(node.schema, bool):
            return ANY if node.schema else Open("its schema allows no value")
        if not isinstance(node.schema, dict):
            raise UnusableSchema("it has something else where a schema should be")
        if id(node.schema) in self._open:
            return _RECURSIVE
        if depth > MAX_DEPTH or len(self._open) > _MAX_HOPS:
            raise UnusableSchema(f"it is nested more than {MAX_DEPTH} levels deep")
        self._open.append(id(node.schema))
        kind = both(self._claims(node, depth))
        self._open.pop()
        return kind

    def _claims(self, node: Node, depth: int) -> list[Kind]:
        """Returns the kinds that hold together: of the keywords themselves, of the references, and of the alternatives."""
        schema = node.schema
        claims = [self._own(node, depth)]
        reference = schema.get("$ref")
        if isinstance(reference, str):
            claims.append(self.read(self._documents.follow(node, reference), depth))
        if "$dynamicRef" in schema or "$recursiveRef" in schema:
            claims.append(_DYNAMIC)
        claims += [self.read(part, depth) for part in _parts(node, "allOf")]
        for keyword in ("anyOf", "oneOf"):
            branches = [self.read(part, depth) for part in _parts(node, keyword)]
            if branches:
                claims.append(either(branches))
        return claims

    def _own(self, node: Node, depth: int) -> Kind:
        declared = node.schema.get("type")
        if declared is None:
            # Some keywords apply to only one type.
            others = node.schema.get("additionalProperties")
            if "properties" in node.schema or isinstance(others, dict) or "patternProperties" in node.schema:
                declared = "object"
            elif "items" in node.schema or "prefixItems" in node.schema:
                declared = "array"
        if isinstance(declared, str):
            return self._typed(node, declared, depth)
        if isinstance(declared, list) and all(isinstance(name, str) for name in declared):
            return either([self._typed(node, name, depth) for name in declared]) if declared else ANY
        if declared is None:
            if "const" in node.schema:
                return _kind_of(node.schema["const"])
            values = node.schema.get("enum")
            return either([_kind_of(value) for value in values]) if isinstance(values, list) and values else ANY
        raise UnusableSchema("it has a `type` that is neither a word nor a list of words")

    def _typed(self, node: Node, name: str, depth: int) -> Kind:
        if name in _SIMPLE:
            return _SIMPLE[name]
        if name in ("integer", "number", "string"):
            kind = _string(node.schema) if name == "string" else _number(node.schema, name)
            title = node.schema.get("title")
            if isinstance(kind, Plain) and is_unsigned(title, node.schema.get("connect.parameters"), kind.type):
                return Plain(t.DecimalType(20, 0), UNSIGNED.name)
            return replace(kind, title=title) if isinstance(kind, Plain) and isinstance(title, str) else kind
        if name == "array":
            return self._array(node, depth)
        if name == "object":
            return self._object(node, depth)
        return Open(f"its type `{name}` is none of JSON Schema's")

    def _array(self, node: Node, depth: int) -> Kind:
        items = node.schema.get("items")
        parts = _parts(node, "prefixItems")
        if isinstance(items, list):
            parts += _parts(node, "items")
            items = node.schema.get("additionalItems")
        if items is not None and items is not False:
            parts.append(node.enter(items))
        return Array(either([self.read(part, depth + 1) for part in parts]) if parts else ANY)

    def _object(self, node: Node, depth: int) -> Kind:
        properties = node.schema.get("properties", {})
        if not isinstance(properties, dict):
            raise UnusableSchema("it has `properties` that are not an object")
        if properties:
            return Record({name: self._property(node, name, part, depth) for name, part in properties.items()})
        patterns, further = node.schema.get("patternProperties", {}), node.schema.get("additionalProperties")
        if not isinstance(patterns, dict):
            raise UnusableSchema("it has `patternProperties` that are not an object")
        values = [*patterns.values(), *([] if further is False else [further])]
        if values and all(isinstance(part, dict) and part for part in values):
            # Which names a pattern means is not tried: a value is of one of the kinds.
            return Dictionary(either([self.read(node.enter(part), depth + 1) for part in values]))
        return Open("its object names no properties")

    def _property(self, node: Node, name: str, part: Any, depth: int) -> Kind:
        if any("\ud800" <= character <= "\udfff" for character in name):
            return Open("its name has half of a surrogate pair, which is not text")
        return self.read(node.enter(part), depth + 1)


def _parts(node: Node, keyword: str) -> list[Node]:
    parts = node.schema.get(keyword, [])
    if not isinstance(parts, list):
        raise UnusableSchema(f"it has `{keyword}` that is not a list")
    return [node.enter(part) for part in parts]


def _number(schema: Mapping[str, Any], name: str) -> Kind:
    title, connect = schema.get("title"), schema.get("connect.type")
    if title == f"{_CONNECT}Decimal" or connect == "bytes":
        return _DECIMAL
    if title == f"{_CONNECT}Timestamp" and name == "integer":
        return Plain(t.TimestamptzType())  # Milliseconds since 1970, which the JSON decoder reads as a time.
    chosen = _CONNECT_NUMBERS.get(connect) if isinstance(connect, str) else None
    return Plain(chosen or (t.LongType() if name == "integer" else t.DoubleType()))


def _string(schema: Mapping[str, Any]) -> Kind:
    if schema.get("title") == f"{_CONNECT}Decimal":
        return _DECIMAL
    encoding, form = schema.get("contentEncoding"), schema.get("format")
    if schema.get("connect.type") == "bytes" or (isinstance(encoding, str) and encoding.lower() == "base64"):
        return Plain(t.BinaryType())
    return Plain(_FORMATS.get(form, t.StringType()) if isinstance(form, str) else t.StringType())


def _kind_of(value: Any) -> Kind:
    kinds: Mapping[type, Kind] = {
        type(None): Null(),
        bool: Plain(t.BooleanType()),
        int: Plain(t.LongType()),
        float: Plain(t.DoubleType()),
        str: Plain(t.StringType()),
    }
    return kinds.get(type(value), Open("its values are objects or arrays"))


_NUMBER, _TEXT = frozenset({"number"}), frozenset({"text"})
_EVERY = frozenset({"number", "text", "boolean", "object", "array"})
_WRITTEN_AS: dict[type[t.IcebergType], frozenset[str]] = {
    t.BooleanType: frozenset({"boolean"}),
    t.IntegerType: _NUMBER,
    t.LongType: _NUMBER,
    t.FloatType: _NUMBER,
    t.DoubleType: _NUMBER,
    t.DecimalType: _NUMBER | _TEXT,
    t.TimestampType: _NUMBER | _TEXT,
    t.TimestamptzType: _NUMBER | _TEXT,
    t.StructType: frozenset({"object"}),
    t.MapType: frozenset({"object"}),
    t.ListType: frozenset({"array"}),
}


def refused_changes(reading: Reading, table: t.StructType, written: t.StructType, schema_id: str) -> set[str]:
    """Returns the refused changes for the struct that a schema describes: one text for each column."""
    return {
        f"schema {schema_id}: column {'.'.join(path)}: {what}" for path, what in _of_struct(reading, table, written, ())
    }


def _of_struct(reading: Reading, table: t.StructType, written: t.StructType, path: Path) -> Iterator[tuple[Path, str]]:
    column_types, spellings = (
        {member.name: member.field_type for member in table.fields},
        Spellings(m.name for m in table.fields),
    )
    for member in written.fields:
        inner, column = (*path, member.name), spellings.find(member.name)
        if column is not None:
            yield from _of_value(reading, column_types[column], member.field_type, inner)
        elif reading.unknown_fields == "refuse":
            yield inner, f"{member.field_type} is {NOT_ADDED}"


def _of_value(reading: Reading, table: t.IcebergType, written: t.IcebergType, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(table, t.StructType) and isinstance(written, t.StructType):
        yield from _of_struct(reading, table, written, path)
    elif (both := common_part(table, written)) is not None:
        column, part = both
        yield from _of_value(reading, column.field_type, part.field_type, (*path, column.name))
    elif can_promote(table, written):
        if not reading.evolution.may_widen:
            yield path, f"{table} is not widened to {written}"
    elif not ((_written_as(table) | _declared_for(reading, table, path)) & _written_as(written)):
        yield path, f"{type_word(written)} does not fit {type_word(table)}"


def _declared_for(reading: Reading, table: t.IcebergType, path: Path) -> frozenset[str]:
    """Returns the kinds of JSON value that a column accepts by its declaration."""
    paths = [path] if reading.envelope is None else [path, ("after", *path)]
    if isinstance(table, t.StringType) and any(reading.coerces(place) for place in paths):
        return _EVERY
    is_counted = isinstance(table, t.DateType | t.TimeType) and any(place in reading.unit_at for place in paths)
    return _NUMBER if is_counted else frozenset()


def _written_as(kind: t.IcebergType) -> frozenset[str]:
    """Returns the kinds of JSON value that a column of the type accepts."""
    return _WRITTEN_AS.get(type(kind), _TEXT)
