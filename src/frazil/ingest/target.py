"""What a task must know of a table to write rows for it: sent with the job, small, and comparable (tasks keep what they
derive from it for the next batch)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

if TYPE_CHECKING:
    from frazil.spec.models import MetadataField

# Columns of record metadata: the Iceberg type each has. Headers may repeat a key, so they are a list.
METADATA_TYPES: dict[str, IcebergType] = {
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestamptzType(),
    "headers": ListType(
        element_id=0,
        element=StructType(
            NestedField(0, "key", StringType(), required=False), NestedField(0, "value", BinaryType(), required=False)
        ),
        element_required=False,
    ),
    "key": BinaryType(),
}


def metadata_columns(metadata: Mapping[MetadataField, str]) -> dict[str, IcebergType]:
    """The columns of record metadata with their types, for a table's setting `metadata`."""
    return {column: METADATA_TYPES[field] for field, column in metadata.items()}


_PRIMITIVES: dict[type[IcebergType], pa.DataType] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", tz="UTC"),
    UUIDType: pa.binary(16),
}


@dataclass(frozen=True)
class TableTarget:
    """One table, as a task sees it.

    schema_json: Iceberg's JSON; empty while there is no table. location, properties, io_properties: as in TableState,
    sorted pairs. metadata: fields of record metadata, each with its column. undeclared: add | drop.
    """

    name: str
    schema_json: str
    location: str
    properties: tuple[tuple[str, str], ...]
    io_properties: tuple[tuple[str, str], ...]
    spec_id: int
    metadata: tuple[tuple[str, str], ...]
    undeclared: str
    target_file_size_bytes: int

    def __repr__(self) -> str:
        return f"TableTarget({self.name})"

    @cached_property
    def schema(self) -> Schema:
        """The Iceberg schema."""
        return Schema.model_validate_json(self.schema_json) if self.schema_json else Schema()

    @cached_property
    def fields(self) -> tuple[NestedField, ...]:
        """The columns that come from the record's value."""
        metadata = {column for _, column in self.metadata}
        return tuple(field for field in self.schema.fields if field.name not in metadata)

    @cached_property
    def metadata_fields(self) -> frozenset[str]:
        """The fields of record metadata that it needs."""
        return frozenset(field for field, _ in self.metadata)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The files' schema: every field with its Iceberg id, at every level."""
        return pa.schema([_arrow_field(field) for field in self.schema.fields])


def _arrow_field(field: NestedField) -> pa.Field:
    return _with_id(field.name, arrow_type(field.field_type), field.field_id, not field.required)


def _with_id(name: str, kind: pa.DataType, field_id: int, nullable: bool) -> pa.Field:
    return pa.field(name, kind, nullable, metadata={b"PARQUET:field_id": str(field_id).encode()})


def arrow_type(kind: IcebergType) -> pa.DataType:
    """The Arrow type that is written for an Iceberg type, ids in its nested fields."""
    if isinstance(kind, StructType):
        return pa.struct([_arrow_field(field) for field in kind.fields])
    if isinstance(kind, ListType):
        element = _with_id("element", arrow_type(kind.element_type), kind.element_id, not kind.element_required)
        return pa.list_(element)
    if isinstance(kind, MapType):
        key = _with_id("key", arrow_type(kind.key_type), kind.key_id, nullable=False)
        return pa.map_(key, _with_id("value", arrow_type(kind.value_type), kind.value_id, not kind.value_required))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, FixedType):
        return pa.binary(len(kind))
    return _PRIMITIVES[type(kind)]
