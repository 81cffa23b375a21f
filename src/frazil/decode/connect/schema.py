"""Schemas of Kafka Connect: those in JSON messages, and the attributes that its converter adds to Avro schemas.

Connect has few types of its own and gives others a name: `io.debezium.time.MicroTimestamp` is a long. The types here
are those as written, and `logical_types` has the fields with such a name (docs/reference/debezium.md).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg import types as t

from frazil.decode.avro.schema import connect_attributes, parse_avro
from frazil.decode.columns import Columns, Fault, filled
from frazil.decode.connect.values import UNSIGNED, ConnectValues, LogicalType, read_logical_type
from frazil.decode.renames import FedColumns
from frazil.decode.values_as_json import json_text
from frazil.error_classes import ErrorClass
from frazil.registry.port import UnusableSchema
from frazil.schema.arrow import children_of, replace_children, unsliced
from frazil.schema.names import wide_settings
from frazil.schema.parts import Path, parts_of, retyped, with_parts

_MAX_LEVELS = 64
_MAX_TEXT_BYTES = 2**20
_PRIMITIVES: Mapping[str, t.IcebergType] = {
    "int8": t.IntegerType(),
    "int16": t.IntegerType(),
    "int32": t.IntegerType(),
    "int64": t.LongType(),
    "float": t.FloatType(),
    "float32": t.FloatType(),
    "double": t.DoubleType(),
    "float64": t.DoubleType(),
    "boolean": t.BooleanType(),
    "string": t.StringType(),
    "bytes": t.BinaryType(),
}
_HEAD_BYTES = 1000
_STRUCT = re.compile(rb'"type"\s*:\s*"struct"')
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_SOURCE_TYPE = "__debezium.source.column.type"
_UNSIGNED_COLUMN = re.compile(r"(BIGINT|INT8)\b.*\bUNSIGNED\b|SERIAL$", re.IGNORECASE)
"""Types of MySQL's unsigned 64-bit columns, as Debezium writes them into `__debezium.source.column.type`."""


@dataclass(frozen=True)
class ConnectType:
    """A schema of any type, as it is written."""

    #: The Iceberg type of the payload as it is written.
    kind: t.IcebergType
    #: By path of a field, the name of its type; the empty path is the payload itself.
    logical_types: Mapping[Path, LogicalType]


@functools.lru_cache(maxsize=256)
def parse_connect_type(text: bytes) -> ConnectType:
    """Returns the schema of any type in a JSON message.

    Raises: UnusableSchema for an invalid one.
    """
    if len(text) > _MAX_TEXT_BYTES:
        raise UnusableSchema(f"the schema has more than {_MAX_TEXT_BYTES:,} bytes of text")
    logical_types: dict[Path, LogicalType] = {}
    try:
        return ConnectType(_type_of(json.loads(text), (), logical_types), logical_types)
    except (KeyError, TypeError, AttributeError, RecursionError, ValueError):
        raise UnusableSchema("the member `schema` is not a schema of Kafka Connect") from None


@functools.lru_cache(maxsize=256)
def names_connect_type(text: bytes) -> bool:
    """Whether a JSON object names a type of Kafka Connect, as the schema in a message of Connect's converter does. The
    rest of it may be invalid.
    """
    if len(text) > _MAX_TEXT_BYTES:
        return _STRUCT.search(text[:_HEAD_BYTES]) is not None
    try:
        node = json.loads(text)
    except (RecursionError, ValueError):
        return False
    kind = node.get("type") if isinstance(node, dict) else None
    return isinstance(kind, str) and (kind in _PRIMITIVES or kind in ("struct", "array", "map"))


def _type_of(node: dict[str, Any], path: Path, logical_types: dict[Path, LogicalType]) -> t.IcebergType:
    if len(path) > _MAX_LEVELS:
        raise UnusableSchema(f"the schema is nested more than {_MAX_LEVELS} levels deep")
    kind = node["type"]
    logical_type = logical_type_of(node.get("name"), node.get("parameters"), is_long=kind == "int64")
    if logical_type is not None:
        logical_types[path] = logical_type
    if kind == "struct":
        members = node.get("fields") or []
        inner = [(member["field"], _type_of(member, (*path, member["field"]), logical_types)) for member in members]
        if len({name for name, _ in inner}) < len(inner):
            raise UnusableSchema(f"the schema has two fields of one name in {'.'.join(path) or 'its struct'}")
        return t.StructType(*(t.NestedField(0, name, of, required=False) for name, of in inner))
    if kind == "array":
        element = _type_of(node["items"], (*path, "element"), logical_types)
        return t.ListType(element_id=0, element_type=element, element_required=False)
    if kind == "map":
        return _map_of(node, path, logical_types)
    if kind not in _PRIMITIVES:
        raise UnusableSchema(f"the field {'.'.join(path)} has the unknown type {kind}")
    return _PRIMITIVES[kind]


def _map_of(node: dict[str, Any], path: Path, logical_types: dict[Path, LogicalType]) -> t.IcebergType:
    """Returns the type of a map. Connect's converter writes a map whose keys are no texts as an array of pairs; where
    its keys are not primitive either, it becomes a list of pairs, as Connect's converter for Avro writes it.
    """
    key, value = node["keys"], node["values"]
    if key["type"] in _PRIMITIVES:
        of_key = _type_of(key, (*path, "key"), logical_types)
        return t.MapType(0, of_key, 0, _type_of(value, (*path, "value"), logical_types), False)
    inner = (*path, "element")
    members = {name: _type_of(of, (*inner, name), logical_types) for name, of in (("key", key), ("value", value))}
    pair = t.StructType(*(t.NestedField(0, name, of, required=False) for name, of in members.items()))
    return t.ListType(element_id=0, element_type=pair, element_required=False)


def is_unsigned(name: Any, parameters: Any, kind: t.IcebergType) -> bool:
    """Whether a schema of the type `kind`, with a name and parameters, describes unsigned integers of 64 bits that wrap.

    A long without a name may have the type of the source's column among its parameters, as with Debezium's
    `column.propagate.source.type`.
    """
    if name or not isinstance(kind, t.LongType) or not isinstance(parameters, dict):
        return False
    return _UNSIGNED_COLUMN.match(str(parameters.get(_SOURCE_TYPE))) is not None


def logical_type_of(name: Any, parameters: Any, is_long: bool) -> LogicalType | None:
    """Returns the logical type of a schema with a name and parameters; None for a type that is used as written."""
    given = parameters if isinstance(parameters, dict) else {}
    if not name:
        return UNSIGNED if is_long and is_unsigned(name, given, t.LongType()) else None
    if name != _DECIMAL:
        return LogicalType(name)
    try:
        scale, precision = int(given.get("scale", 0)), int(given.get("connect.decimal.precision") or 38)
    except (TypeError, ValueError, OverflowError):  # A converter writes numbers there; other values are ignored.
        return LogicalType("")
    return LogicalType(name, scale, min(precision, 38))


def scales_of(logical_types: Mapping[Path, LogicalType]) -> dict[Path, int]:
    """Returns the scales of Connect's decimals, by path."""
    return {path: logical_type.scale for path, logical_type in logical_types.items() if logical_type.name == _DECIMAL}


@functools.lru_cache(maxsize=256)
def logical_types_of_avro(text: str, references: tuple[str, ...] = ()) -> Mapping[Path, LogicalType]:
    """Returns the logical types that Connect's converter stored in an Avro schema, by path of the value; the texts are
    valid.
    """
    logical_types = {}
    for path, kind, attributes in connect_attributes(parse_avro(text, references)):
        name = attributes.get("connect.name")
        name = name if isinstance(name, str) else None
        logical_type = logical_type_of(name, attributes.get("connect.parameters"), is_long=kind == "long")
        if logical_type is not None:
            logical_types[path] = logical_type
    return logical_types


@dataclass
class _Reading:
    """Columns while they are converted to their logical types."""

    logical_types: Mapping[Path, LogicalType]
    #: The columns of the fields.
    fed: FedColumns
    #: The fault of each record, as in Columns.
    fault: NDArray[np.uint8]
    #: The faults, as in Columns.
    faults: list[Fault]
    #: The field at fault by record, as in Columns.
    paths: dict[int, str]
    #: The value at fault by record, as in Columns.
    values: dict[int, str]
    #: The number of names at the beginning of a path that lead to the row; None: the values are not in a row.
    row_depth: int | None

    def in_row(self, path: Path) -> Path:
        """Returns the path of a column's field in the row; the empty path outside of rows."""
        return () if self.row_depth is None else self.fed.path_of(path)[self.row_depth :]

    def read(
        self, array: pa.Array, kind: t.IcebergType, path: Path, owner: NDArray[np.int64]
    ) -> tuple[pa.Array, t.IcebergType]:
        """Returns one column; `owner` is the record that each of its values belongs to, -1 for a value inside a struct
        that is null.
        """
        logical_type, wanted = self.logical_types.get(path), self.fed.type_at(path)
        if logical_type is not None and _is_converted(logical_type, kind, wanted):
            converted = read_logical_type(array, logical_type, wanted)
            if converted is not None:
                self._note(array, converted, logical_type, path, owner)
                return converted.array, converted.kind
        parts = parts_of(kind)
        if not parts or not any(len(other) > len(path) and other[: len(path)] == path for other in self.logical_types):
            return array, kind
        array = unsliced(array)
        if isinstance(kind, t.StructType):
            owner = np.where(np.asarray(array.is_valid()), owner, -1)
        else:
            owner = np.repeat(owner, np.diff(np.asarray(array.offsets)))
        keys: pa.Array | None = None
        if isinstance(kind, t.MapType):
            keys, of_key = self.read(array.keys, kind.key_type, (*path, "key"), owner)
            keys = filled(keys)  # The record of an unreadable key is refused; Arrow aborts the process over a null key.
            kind = t.MapType(kind.key_id, of_key, kind.value_id, kind.value_type, kind.value_required)
        read = [
            self.read(child, part.field_type, (*path, part.name), owner)
            for child, part in zip(children_of(array), parts, strict=True)
        ]
        rebuilt = replace_children(array, [part.name for part in parts], [child for child, _ in read], keys)
        return rebuilt, with_parts(kind, [retyped(part, of) for part, (_, of) in zip(parts, read, strict=True)])

    def _note(
        self, array: pa.Array, converted: ConnectValues, logical_type: LogicalType, path: Path, owner: NDArray[np.int64]
    ) -> None:
        if not converted.bad.any():
            return
        far = np.zeros(converted.bad.size, np.bool_) if converted.far is None else converted.far
        name = logical_type.name.rpartition(".")[2]
        remedy = f": {wide_settings(self.in_row(path))}" if logical_type.name == UNSIGNED.name else ""
        beyond = Fault(ErrorClass.OUT_OF_RANGE, f"{{value}} ({name}) is out of the range of {converted.kind}{remedy}")
        self._refuse(array if converted.shown is None else converted.shown, far, beyond, path, owner)
        none = Fault(ErrorClass.TYPE_MISMATCH, f"{{value}} is not a {name} that {converted.kind} can hold")
        self._refuse(array, converted.bad & ~far, none, path, owner)

    def _refuse(
        self, array: pa.Array, bad: NDArray[np.bool_], fault: Fault, path: Path, owner: NDArray[np.int64]
    ) -> None:
        """Refuses records; of a record with several such values the first counts."""
        places = np.flatnonzero(bad & (owner >= 0) & (self.fault[owner] == 0))
        rows, first = np.unique(owner[places], return_index=True)
        if not rows.size:
            return
        if fault not in self.faults:
            # There are few pairs of a logical type and a column's type, so that a byte can number their faults.
            self.faults.append(fault)
        self.fault[rows] = self.faults.index(fault) + 1
        for row, place in zip(rows.tolist(), places[first].tolist(), strict=True):
            self.paths[row], self.values[row] = ".".join(path), json_text(array[place])


def _is_converted(logical_type: LogicalType, kind: t.IcebergType, wanted: t.IcebergType | None) -> bool:
    """Whether values are converted to their logical type. A column may be declared for values as they are written; a
    number that is written as another one is never stored so, and neither is a local time as an instant.
    """
    if logical_type.name == UNSIGNED.name or logical_type.has_zone:
        return True
    return wanted != kind and not _is_as_written(kind, wanted)


def _is_as_written(kind: t.IcebergType, wanted: t.IcebergType | None) -> bool:
    families = (
        (t.IntegerType, t.LongType, t.FloatType, t.DoubleType, t.DecimalType),
        (t.BinaryType, t.FixedType),
        (t.StructType,),
    )
    return any(isinstance(kind, family) and isinstance(wanted, family) for family in families)


def as_declared(
    logical_types: Mapping[Path, LogicalType], units: Mapping[Path, str], zones: Mapping[Path, str], fed: FedColumns
) -> Mapping[Path, LogicalType]:
    """Returns the logical types with what the pipeline file declares for their columns: a unit of numbers takes
    precedence over the type, and local times are of the column's zone. units, zones: by path of the column.
    """
    if not units and not zones:
        return logical_types
    declared = {}
    for path, logical_type in logical_types.items():
        if logical_type.is_local and fed.path_of(path) in zones:
            declared[path] = replace(logical_type, has_zone=True, unit=units.get(fed.path_of(path), ""))
        elif not _has_unit(path, units, fed):
            declared[path] = logical_type
    return declared


def _has_unit(path: Path, units: Mapping[Path, str], fed: FedColumns) -> bool:
    """Whether the file declares a unit for the column of the field at `path`: every declared `date` and `time` has one for
    numbers without a meaning, days and milliseconds.
    """
    unit, kind = units.get(fed.path_of(path)), fed.type_at(path)
    return unit is not None and not isinstance(kind, t.DateType) and (unit != "ms" or not isinstance(kind, t.TimeType))


def with_keys(
    logical_types: Mapping[Path, LogicalType], keys: Collection[Path], fed: FedColumns
) -> Mapping[Path, LogicalType]:
    """Returns the logical types, with a mark for fields that identify rows. keys: the paths of their columns; the empty
    path is an entire key.
    """
    if not keys:
        return logical_types
    return {
        path: replace(logical_type, is_key=True) if fed.path_of(path) in keys or () in keys else logical_type
        for path, logical_type in logical_types.items()
    }


def convert_logical_types(
    struct: t.StructType,
    columns: Columns,
    logical_types: Mapping[Path, LogicalType],
    fed: FedColumns,
    row_depth: int | None = 0,
) -> tuple[t.StructType, Columns]:
    """Returns the columns converted to their logical types. A value that its type cannot hold is a fault of its record.

    row_depth: the number of names at the beginning of a path that lead to the row; None: the values are not in a row.
    """
    if not logical_types:
        return struct, columns
    fault = columns.fault.copy()
    paths, values = dict(columns.paths), dict(columns.values)
    reading = _Reading(logical_types, fed, fault, list(columns.faults), paths, values, row_depth)
    owner = np.arange(fault.size)
    fields, arrays = [], []
    for member, array in zip(struct.fields, columns.arrays, strict=True):
        converted, kind = reading.read(array, member.field_type, (member.name,), owner)
        arrays.append(converted)
        fields.append(member.model_copy(update={"field_type": kind}))
    converted_columns = replace(
        columns, arrays=arrays, fault=fault, faults=reading.faults, paths=reading.paths, values=reading.values
    )
    return t.StructType(*fields), converted_columns
