"""Schemas of Kafka Connect: the one that JSON messages carry with them, and what Connect's converter notes in Avro ones.

Connect has few types of its own and gives others a name: `io.debezium.time.MicroTimestamp` is a long. The types here are
those as written, and `meanings` says which fields have such a name (docs/reference/debezium.md).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from frazil.ingest.decode.columns import Columns, Fault
from frazil.ingest.decode.connect.values import Meaning, Meant, read_meaning
from frazil.ingest.decode.json_texts import json_text
from frazil.ingest.envelope import Path
from frazil.ingest.selection import list_with
from frazil.registry.port import UnusableSchema

_MAX_LEVELS = 64
_MAX_TEXT_BYTES = 2**20
_PRIMITIVES: Mapping[str, IcebergType] = {
    "int8": IntegerType(),
    "int16": IntegerType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "float": FloatType(),
    "float32": FloatType(),
    "double": DoubleType(),
    "float64": DoubleType(),
    "boolean": BooleanType(),
    "string": StringType(),
    "bytes": BinaryType(),
}
_IN_DOUBLE = {"int8", "int16", "int32", "float", "float32", "double", "float64"}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


@dataclass(frozen=True)
class ConnectSchema:
    """A struct as it is written, and by path the fields whose type has a name."""

    struct: StructType
    meanings: Mapping[Path, Meaning]


@functools.lru_cache(maxsize=256)
def parse_connect(text: bytes) -> ConnectSchema:
    """The schema that a JSON message carries. Raises UnusableSchema for what is none."""
    if len(text) > _MAX_TEXT_BYTES:
        raise UnusableSchema(f"the schema has more than {_MAX_TEXT_BYTES:,} bytes of text")
    meanings: dict[Path, Meaning] = {}
    try:
        struct = _type_of(json.loads(text), (), meanings)
    except (KeyError, TypeError, AttributeError, RecursionError, ValueError):
        raise UnusableSchema("the member `schema` is no schema of Kafka Connect") from None
    if not isinstance(struct, StructType):
        raise UnusableSchema("the member `schema` describes no struct")
    return ConnectSchema(struct, meanings)


def _type_of(node: dict[str, Any], path: Path, meanings: dict[Path, Meaning]) -> IcebergType | None:
    """None for what no column holds: maps whose keys are no texts."""
    if len(path) > _MAX_LEVELS:
        raise UnusableSchema(f"the schema is nested more than {_MAX_LEVELS} levels deep")
    kind = node["type"]
    if node.get("name"):
        meanings[path] = _meaning(node["name"], node.get("parameters"))
    if kind == "struct":
        members = node.get("fields") or []
        inner = [(one["field"], _type_of(one, (*path, one["field"]), meanings)) for one in members]
        return StructType(*(NestedField(0, name, of, required=False) for name, of in inner if of is not None))
    if kind == "array":
        element = _type_of(node["items"], (*path, "element"), meanings)
        return element and ListType(0, element, False)
    if kind == "map":
        return _map_of(node, path, meanings)
    if kind not in _PRIMITIVES:
        raise UnusableSchema(f"the field {'.'.join(path)} has the unknown type {kind}")
    return _PRIMITIVES[kind]


def _map_of(node: dict[str, Any], path: Path, meanings: dict[Path, Meaning]) -> IcebergType | None:
    """The type of a map. With keys that are no texts it is written as an array of pairs, of which numbers make a list."""
    value = _type_of(node["values"], (*path, "value"), meanings)
    if node["keys"]["type"] == "string":
        return value and MapType(0, StringType(), 0, value, False)
    if {node["keys"]["type"], node["values"]["type"]} <= _IN_DOUBLE and not node["values"].get("name"):
        return ListType(0, ListType(0, DoubleType(), False), False)
    return None


def _meaning(name: str, parameters: Any) -> Meaning:
    given = parameters if isinstance(parameters, dict) else {}
    if name != _DECIMAL:
        return Meaning(name)
    try:
        scale, precision = int(given.get("scale", 0)), int(given.get("connect.decimal.precision", 38))
    except (ValueError, TypeError):  # Numbers are what a converter writes there; others mean nothing.
        return Meaning("")
    return Meaning(name, scale, min(precision, 38))


@functools.lru_cache(maxsize=256)
def meanings_of_avro(text: str) -> Mapping[Path, Meaning]:
    """The names that Connect's converter noted in an Avro schema, by path of the field; the text was parsed before."""
    found: dict[Path, Meaning] = {}
    _walk_avro(json.loads(text), (), {}, found)
    return found


def _walk_avro(node: Any, path: Path, named: dict[str, Any], found: dict[Path, Meaning]) -> None:
    if isinstance(node, str):
        short = node.rpartition(".")[2]
        again = named.get(short)
        if again is not None:  # Inside of itself a type says nothing new.
            _walk_avro({**again, "name": ""}, path, {name: of for name, of in named.items() if name != short}, found)
    elif isinstance(node, list):
        for branch in node:
            _walk_avro(branch, path, named, found)
    elif isinstance(node, dict):
        if isinstance(node.get("connect.name"), str):
            found[path] = _meaning(node["connect.name"], node.get("connect.parameters"))
        if node.get("name") and node.get("type") in ("record", "fixed", "enum"):
            named[node["name"].rpartition(".")[2]] = node
        _walk_inside(node, path, named, found)


def _walk_inside(node: dict[str, Any], path: Path, named: dict[str, Any], found: dict[Path, Meaning]) -> None:
    kind = node.get("type")
    if len(path) > _MAX_LEVELS:
        return
    if kind == "record":
        for member in node.get("fields", ()):
            _walk_avro(member["type"], (*path, member["name"]), named, found)
    elif kind == "array":
        _walk_avro(node.get("items"), (*path, "element"), named, found)
    elif kind == "map":
        _walk_avro(node.get("values"), (*path, "value"), named, found)
    elif isinstance(kind, (dict, list)):
        _walk_avro(kind, path, named, found)


TypeAt = Callable[[Path], IcebergType | None]


@dataclass
class _Reading:
    """Columns on their way to what they mean. wanted: the type of the table's column for a field."""

    meanings: Mapping[Path, Meaning]
    wanted: TypeAt
    fault: NDArray[np.uint8]
    faults: list[Fault]
    paths: dict[int, str]
    values: dict[int, str]

    def read(
        self, array: pa.Array, kind: IcebergType, path: Path, owner: NDArray[np.int64]
    ) -> tuple[pa.Array, IcebergType]:
        """One column; `owner` is the record that each of its values belongs to."""
        meaning, wanted = self.meanings.get(path), self.wanted(path)
        if meaning is not None and wanted != kind:
            meant = read_meaning(array, meaning, wanted)
            if meant is not None:
                self._note(array, meant, meaning, path, owner)
                return meant.array, meant.kind
        if not any(len(other) > len(path) and other[: len(path)] == path for other in self.meanings):
            return array, kind
        if array.offset:
            array = pa.concat_arrays([array])
        if isinstance(kind, StructType):
            return self._struct(array, kind, path, owner)
        if isinstance(kind, ListType):
            counts = np.diff(np.asarray(array.offsets))
            items, of = self.read(array.values, kind.element_type, (*path, "element"), np.repeat(owner, counts))
            arrow = pa.list_(pa.field("element", items.type))
            made = pa.Array.from_buffers(arrow, len(array), array.buffers()[:2], array.null_count, children=[items])
            return made, list_with(kind, of, kind.element_required)
        return array, kind

    def _struct(
        self, array: pa.Array, kind: StructType, path: Path, owner: NDArray[np.int64]
    ) -> tuple[pa.Array, IcebergType]:
        read = [
            self.read(array.field(n), member.field_type, (*path, member.name), owner)
            for n, member in enumerate(kind.fields)
        ]
        fields = [
            member.model_copy(update={"field_type": of}) for member, (_, of) in zip(kind.fields, read, strict=True)
        ]
        arrow = pa.struct([pa.field(f.name, one.type) for f, (one, _) in zip(fields, read, strict=True)])
        children = [one for one, _ in read]
        made = pa.Array.from_buffers(arrow, len(array), array.buffers()[:1], array.null_count, children=children)
        return made, type(kind)(*fields)  # A union stays one.

    def _note(self, array: pa.Array, meant: Meant, meaning: Meaning, path: Path, owner: NDArray[np.int64]) -> None:
        if not meant.bad.any():
            return
        far = np.zeros(meant.bad.size, np.bool_) if meant.far is None else meant.far
        name = meaning.name.rpartition(".")[2]
        beyond = Fault("out_of_range", f"{{value}} ({name}) is out of the range of {meant.kind}")
        self._refuse(array, far, beyond, path, owner)
        none = Fault("does_not_fit", f"{{value}} is no {name} that {meant.kind} can hold")
        self._refuse(array, meant.bad & ~far, none, path, owner)

    def _refuse(
        self, array: pa.Array, bad: NDArray[np.bool_], fault: Fault, path: Path, owner: NDArray[np.int64]
    ) -> None:
        """Makes records bad ones; of a record with several such values the first counts."""
        places = np.flatnonzero(bad & (self.fault[owner] == 0))
        rows, first = np.unique(owner[places], return_index=True)
        if not rows.size:
            return
        if fault not in self.faults:
            self.faults.append(fault)  # Of a type and a table's type there are few, and a byte numbers them.
        self.fault[rows] = self.faults.index(fault) + 1
        for row, place in zip(rows.tolist(), places[first].tolist(), strict=True):
            self.paths[row], self.values[row] = ".".join(path), json_text(array[place])


def give_meaning(
    struct: StructType, columns: Columns, meanings: Mapping[Path, Meaning], wanted: TypeAt
) -> tuple[StructType, Columns]:
    """The columns as what their types' names mean. A value that its type cannot hold is a fault of its record."""
    if not meanings:
        return struct, columns
    fault = columns.fault.copy()
    reading = _Reading(meanings, wanted, fault, list(columns.faults), dict(columns.paths), dict(columns.values))
    owner = np.arange(fault.size)
    fields, arrays = [], []
    for member, array in zip(struct.fields, columns.arrays, strict=True):
        made, kind = reading.read(array, member.field_type, (member.name,), owner)
        arrays.append(made)
        fields.append(member.model_copy(update={"field_type": kind}))
    found = replace(
        columns, arrays=arrays, fault=fault, faults=reading.faults, paths=reading.paths, values=reading.values
    )
    return StructType(*fields), found
