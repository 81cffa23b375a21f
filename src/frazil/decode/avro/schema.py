"""Avro schema texts parsed: names resolved, logical types that do not apply left out.

Source: Avro specification 1.12, "Schema Declaration", "Names" and "Logical Types".

Nothing named in a schema is loaded or instantiated: `java-class` and similar attributes are ignored.

Logical types beside the type that they would apply to, where Avro ignores them, are found in the text.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from frazil.registry.port import UnusableSchema
from frazil.schema.parts import Path

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
MAX_LEVELS = 64
MAX_FIELDS = 2000
MAX_TEXT_BYTES = 2**20
MAX_FIXED_BYTES = 2**16
MAX_PRECISION = 38

# Names in any alphabet, as Avro's Java library allows, and with it registries and Kafka Connect. Namespaces are not
# checked: nor did that library before 1.12.1, and Connect makes them from topic prefixes such as `db-1.shop.orders`.
_NAME = re.compile(r"[^\W\d]\w*")
_LOGICAL = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "uuid": "string",
}
_OF_LOGICAL = ("logicalType", "precision", "scale")


@dataclass(eq=False)
class Avro:
    """One type of a schema. A named type is one object wherever it is used, so a record can contain itself."""

    #: A primitive type, `record`, `enum`, `fixed`, `array`, `map` or `union`.
    kind: str
    #: The full name of a named type.
    name: str = ""
    #: The full names that a record had before.
    aliases: tuple[str, ...] = ()
    #: The logical type that applies and changes the column's type, else empty.
    logical: str = ""
    #: The size of a fixed, in bytes.
    size: int = 0
    #: The precision of a decimal. One of more than 38 digits, which no column has, keeps it without the logical type.
    precision: int = 0
    #: The scale of a decimal.
    scale: int = 0
    #: The symbols of an enum.
    symbols: tuple[str, ...] = ()
    #: The fields of a record.
    fields: list[AvroField] = field(default_factory=list)
    #: The branches of a union, or the one type of an array's elements or a map's values.
    items: list[Avro] = field(default_factory=list)
    #: The attributes that Kafka Connect's converter adds, such as `connect.name`; Avro itself ignores them.
    connect: Mapping[str, Any] = field(default_factory=dict)

    @property
    def short_name(self) -> str:
        """The type's name in a union: a named type's name without its namespace, else the kind."""
        return self.name.rpartition(".")[2] or self.kind


@dataclass(frozen=True, eq=False)
class AvroField:
    """One field of a record."""

    name: str
    type: Avro
    #: The names that it had before.
    aliases: tuple[str, ...]


@dataclass(frozen=True)
class _Place:
    """A place in a schema text."""

    #: The fields on the way.
    path: tuple[str, ...] = ()
    #: The namespace that applies there.
    namespace: str = ""
    #: The levels of nesting.
    level: int = 0

    def deeper(self, *path: str, namespace: str | None = None) -> _Place:
        wider = self.namespace if namespace is None else namespace
        return replace(self, path=(*self.path, *path), namespace=wider, level=self.level + 1)


def parse_avro(schema: str, references: tuple[str, ...] = ()) -> Avro:
    """Returns the type that `schema` declares; it may use the named types of `references`, each of which may use those
    before.

    Raises: UnusableSchema for a text that is no Avro schema and for texts of more than MAX_TEXT_BYTES together.
    """
    if sum(len(text.encode("utf-8", "surrogatepass")) for text in (schema, *references)) > MAX_TEXT_BYTES:
        raise UnusableSchema(f"the schema and its references have more than {MAX_TEXT_BYTES:,} bytes of text")
    parser = _Parser({})
    for number, text in enumerate(references, 1):
        place = _Place((f"reference {number}",))
        parser.parse(_load(text, place), place)
    return parser.parse(_load(schema, _Place()), _Place())


def unusable(message: str, path: tuple[str, ...]) -> UnusableSchema:
    """Returns the error with its place."""
    return UnusableSchema(f"{message}, at `{'.'.join(path)}`" if path else f"{message}, at the top of the schema")


def branch_names(union: Avro, path: tuple[str, ...] = ()) -> list[str]:
    """Returns the name of each branch, that of null included: the short name, or the full one where that is not unique."""
    short = [branch.short_name for branch in union.items]
    names = [
        branch.name.replace(".", "_") if branch.name and short.count(name) > 1 else name
        for branch, name in zip(union.items, short, strict=True)
    ]
    if len(set(names)) < len(names):
        raise unusable("two branches of a union have one name", path)
    return names


def _connect(node: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in node.items() if name.startswith("connect.")}


def connect_attributes(
    avro: Avro, path: Path = (), around: tuple[Avro, ...] = ()
) -> Iterator[tuple[Path, str, Mapping[str, Any]]]:
    """Yields the kind and the attributes of Kafka Connect by path of the value, of a type and all types inside it; of a
    record inside itself only once. path: names of fields, `element` and `value` below lists and maps, names of branches
    below unions.
    """
    if avro in around:
        return
    yield path, avro.kind, avro.connect
    around = (*around, avro)
    for member in avro.fields:
        yield from connect_attributes(member.type, (*path, member.name), around)
    if avro.kind in ("array", "map"):
        yield from connect_attributes(avro.items[0], (*path, "element" if avro.kind == "array" else "value"), around)
    elif avro.kind == "union":
        is_optional = sum(branch.kind != "null" for branch in avro.items) == 1
        for branch, name in zip(avro.items, branch_names(avro, path), strict=True):
            if branch.kind != "null":
                yield from connect_attributes(branch, path if is_optional else (*path, name), around)


def _load(text: str, place: _Place) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise unusable(f"the schema is nested more than {MAX_LEVELS} levels deep", place.path) from None
    except ValueError as error:
        raise unusable(f"the schema is not JSON ({error})".lower(), place.path) from None


def _precision(node: dict[str, Any], size: int | None) -> tuple[int, int]:
    """Returns precision and scale of a decimal that applies; (0, 0) for any other."""
    precision, scale = node.get("precision"), node.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision:
        return 0, 0
    if precision == 0 or (size is not None and precision > int((8 * size - 1) * math.log10(2))):
        return 0, 0
    return precision, scale


def _with_logical(avro: Avro, node: dict[str, Any]) -> Avro:
    """Returns the type with its logical type, if that applies: "implementations must ignore" those that do not."""
    logical = node.get("logicalType")
    if logical == "decimal" and avro.kind in ("bytes", "fixed"):
        precision, scale = _precision(node, avro.size if avro.kind == "fixed" else None)
        logical = "decimal" if 0 < precision <= MAX_PRECISION else ""
        return replace(avro, logical=logical, precision=precision, scale=scale)
    if isinstance(logical, str) and _LOGICAL.get(logical) == avro.kind:
        return replace(avro, logical=logical)
    return replace(avro, logical="uuid") if logical == "uuid" and avro.size == 16 else avro


def logical_of(node: dict[str, Any]) -> str:
    """Returns the logical type that applies to a type written as an object, a primitive or a fixed; empty without one."""
    size = node.get("size")
    kind = Avro(node["type"], size=size if node["type"] == "fixed" and type(size) is int else 0)
    return _with_logical(kind, node).logical


@dataclass
class _Parser:
    """Parses types."""

    #: The types defined so far, by full name.
    named: dict[str, Avro]

    def parse(self, node: Any, place: _Place) -> Avro:
        """Returns the type that a JSON value declares."""
        if place.level > MAX_LEVELS:
            raise unusable(f"the schema is nested more than {MAX_LEVELS} levels deep", place.path[:8])
        if isinstance(node, str):
            return self._find(node, place)
        if isinstance(node, list):
            return self._union(node, place)
        if not isinstance(node, dict):
            raise unusable("a type is neither a name nor an object nor a union", place.path)
        kind = node.get("type")
        if isinstance(kind, (dict, list)):
            inner = self.parse(kind, place.deeper())
            # A record is one object for all its uses, so it keeps only the attributes of its declaration.
            return inner if inner.kind == "record" else replace(inner, connect={**_connect(node), **inner.connect})
        if not isinstance(kind, str):
            raise unusable("a type has no `type`", place.path)
        complex_kinds: dict[str, Callable[[dict[str, Any], _Place], Avro]] = {
            "record": self._record, "error": self._record, "enum": self._enum, "fixed": self._fixed,
            "array": self._array, "map": self._map,
        }  # fmt: skip
        if kind in complex_kinds:
            return complex_kinds[kind](node, place)
        avro = self._find(kind, place)
        return _with_logical(replace(avro, connect=_connect(node)), node) if kind in PRIMITIVES else avro

    def _find(self, name: str, place: _Place) -> Avro:
        if name in PRIMITIVES:
            return Avro(name)
        qualified = f"{place.namespace}.{name}" if place.namespace and "." not in name else name
        avro = self.named.get(qualified) or self.named.get(name)
        if avro is None:
            raise unusable(f"unknown type `{qualified}`: it is defined neither before nor in a reference", place.path)
        return avro

    def _define(self, kind: str, node: dict[str, Any], place: _Place) -> tuple[Avro, str]:
        """Returns a new named type and the namespace inside it."""
        name, namespace = node.get("name"), node.get("namespace")
        namespace = place.namespace if namespace is None else namespace
        if not isinstance(name, str) or not isinstance(namespace, str):
            raise unusable(f"a type of kind {kind} has no name", place.path)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full.removeprefix(".")
        if not _NAME.fullmatch(full.rpartition(".")[2]) or full in PRIMITIVES:
            raise unusable(f"`{full}` cannot be the name of a type", place.path)
        if full in self.named:
            raise unusable(f"the type `{full}` is defined twice", place.path)
        self.named[full] = Avro(kind, full, connect=_connect(node))
        return self.named[full], full.rpartition(".")[0]

    def _record(self, node: dict[str, Any], place: _Place) -> Avro:
        record, namespace = self._define("record", node, place)
        aliases = node.get("aliases")
        former = [name for name in aliases if isinstance(name, str)] if isinstance(aliases, list) else []
        record.aliases = tuple(name if "." in name or not namespace else f"{namespace}.{name}" for name in former)
        fields = node.get("fields")
        if not isinstance(fields, list):
            raise unusable(f"the record `{record.name}` has no list of `fields`", place.path)
        if len(fields) > MAX_FIELDS:
            raise unusable(f"the record `{record.name}` has more than {MAX_FIELDS:,} fields", place.path)
        for member in fields:
            record.fields.append(self._field(member, record, place, namespace))
        if len({member.name for member in record.fields}) < len(record.fields):
            raise unusable(f"the record `{record.name}` has the same field twice", place.path)
        return record

    def _field(self, node: Any, record: Avro, place: _Place, namespace: str) -> AvroField:
        name = node.get("name") if isinstance(node, dict) else None
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise unusable(f"a field of the record `{record.name}` has no name that Avro allows", place.path)
        inside = place.deeper(name, namespace=namespace)
        if "type" not in node:
            raise unusable("the field has no type", inside.path)
        aliases = node.get("aliases") or []
        if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
            raise unusable("the aliases of the field are not a list of names", inside.path)
        return AvroField(name, self.parse(node["type"], inside), tuple(aliases))

    def _enum(self, node: dict[str, Any], place: _Place) -> Avro:
        enum, _ = self._define("enum", node, place)
        symbols = node.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(s, str) and _NAME.fullmatch(s) for s in symbols):
            raise unusable(f"the enum `{enum.name}` has no list of names as its `symbols`", place.path)
        if not symbols or len(set(symbols)) < len(symbols):
            raise unusable(f"the enum `{enum.name}` has no symbols, or the same one twice", place.path)
        enum.symbols = tuple(symbols)
        return enum

    def _fixed(self, node: dict[str, Any], place: _Place) -> Avro:
        fixed, _ = self._define("fixed", node, place)
        size = node.get("size")
        if type(size) is not int or not 1 <= size <= MAX_FIXED_BYTES:
            raise unusable(f"the fixed `{fixed.name}` has no `size` from 1 to {MAX_FIXED_BYTES:,} bytes", place.path)
        fixed.size = size
        self.named[fixed.name] = _with_logical(fixed, node)
        return self.named[fixed.name]

    def _array(self, node: dict[str, Any], place: _Place) -> Avro:
        if "items" not in node:
            raise unusable("an array has no `items`", place.path)
        return Avro("array", items=[self.parse(node["items"], place.deeper("element"))], connect=_connect(node))

    def _map(self, node: dict[str, Any], place: _Place) -> Avro:
        if "values" not in node:
            raise unusable("a map has no `values`", place.path)
        return Avro("map", items=[self.parse(node["values"], place.deeper("value"))], connect=_connect(node))

    def _union(self, node: list[Any], place: _Place) -> Avro:
        branches = [self.parse(branch, place) for branch in node]
        kinds = [branch.name or branch.kind for branch in branches]
        if not branches or "union" in kinds:
            raise unusable("a union has no branches, or a union among them", place.path)
        if len(set(kinds)) < len(kinds):
            raise unusable("a union has the same type twice", place.path)
        return Avro("union", items=branches)


@dataclass(frozen=True)
class Misplaced:
    """A logical type beside the type that it would apply to."""

    #: Names of the fields that lead there, with dots between.
    path: str
    #: The type, and the logical type that it would have.
    kind: str
    #: The logical type.
    logical: str


@functools.lru_cache(maxsize=256)
def find_misplaced(schema: str, references: tuple[str, ...] = ()) -> tuple[Misplaced, ...]:
    """Returns the misplaced logical types in valid schema texts; not those that could not apply to their type."""
    misplaced: list[Misplaced] = []
    for text in (*references, schema):
        _move_logical_types(json.loads(text), (), misplaced)
    return tuple(dict.fromkeys(misplaced))


@functools.lru_cache(maxsize=256)
def with_moved_logical_types(schema: str) -> str:
    """Returns the schema's text with misplaced logical types moved into their type."""
    misplaced: list[Misplaced] = []
    moved = _move_logical_types(json.loads(schema), (), misplaced)
    return json.dumps(moved) if misplaced else schema


def _move_logical_types(node: Any, path: tuple[str, ...], misplaced: list[Misplaced]) -> Any:
    """Returns the type with misplaced logical types moved; adds them to `misplaced`."""
    if isinstance(node, list):
        return [_move_logical_types(branch, path, misplaced) for branch in node]
    if not isinstance(node, dict):
        return node
    moved = dict(node)
    kind = node.get("type")
    if kind in ("record", "error"):
        moved["fields"] = [_field(member, path, misplaced) for member in node.get("fields", ())]
    for inner, name in (("items", "element"), ("values", "value")):
        if kind in ("array", "map") and inner in node:
            moved[inner] = _move_logical_types(node[inner], (*path, name), misplaced)
    if isinstance(kind, dict | list):
        moved["type"] = _inside(node, path, misplaced)
    return moved


def _field(member: Mapping[str, Any], path: tuple[str, ...], misplaced: list[Misplaced]) -> dict[str, Any]:
    return {**member, "type": _inside(member, (*path, str(member["name"])), misplaced)}


def _inside(owner: Mapping[str, Any], path: tuple[str, ...], misplaced: list[Misplaced]) -> Any:
    """Returns the type of a field, or of an object around another type, with the owner's logical type."""
    attributes = {name: owner[name] for name in _OF_LOGICAL if name in owner}
    kind = _move_logical_types(owner["type"], path, misplaced)
    if "logicalType" not in attributes:
        return kind
    if isinstance(kind, list):
        return [_with(branch, attributes, path, misplaced) for branch in kind]
    return _with(kind, attributes, path, misplaced)


def _with(kind: Any, attributes: Mapping[str, Any], path: tuple[str, ...], misplaced: list[Misplaced]) -> Any:
    """Returns the type with a logical type, where it has none of its own and this one applies to it."""
    node = {"type": kind} if isinstance(kind, str) else kind
    is_open = isinstance(node, dict) and "logicalType" not in node and isinstance(node.get("type"), str)
    if not is_open or not logical_of({**node, **attributes}):
        return kind
    misplaced.append(Misplaced(".".join(path), node["type"], str(attributes["logicalType"])))
    return {**node, **attributes}
