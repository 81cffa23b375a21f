"""What a task must know of a table to write rows for it: sent with the job, small, and comparable (tasks keep what they
derive from it for the next batch)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
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
    UnknownType,
    UUIDType,
)

from frazil.ingest.envelope import OWN_TYPES, Envelope
from frazil.ingest.name_mapping import Aliases
from frazil.ingest.naming import Layout, Shaping, make_layout
from frazil.ingest.selection import Path, Selection
from frazil.types import RESCUED_COLUMN, BadRecord, LastDelete

if TYPE_CHECKING:
    from frazil.spec.models import MetadataField

# Columns of record metadata: the Iceberg type each has. Headers may repeat a key, so they are a list.
_UNKNOWN = UnknownType()
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
_KEY_TYPES: dict[str, IcebergType] = {"raw": BinaryType(), "text": StringType()}


def metadata_columns(metadata: Mapping[MetadataField, str], key_format: str = "raw") -> dict[str, IcebergType]:
    """The columns of record metadata with their types, for a table's setting `metadata`. The keys' type is known only of
    keys that are no more than bytes or text.
    """
    kinds = {**METADATA_TYPES, **OWN_TYPES, "key": _KEY_TYPES.get(key_format, _UNKNOWN)}
    return {column: kinds[field] for field, column in metadata.items() if kinds[field] != _UNKNOWN}


_ID = b"PARQUET:field_id"
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
class WriterSchema:
    """A schema of the registry, as tasks need it.

    kind: avro, protobuf or json_schema; `unknown` where the registry has none of the id; `unusable` with the reason as its
    text. references: name and text of what it refers to. descriptors: of Protobuf, the compiled FileDescriptorSet.
    """

    kind: str
    text: str = ""
    references: tuple[tuple[str, str], ...] = ()
    descriptors: bytes = b""


Framing = Literal["confluent", "apicurio", "none"]


@dataclass(frozen=True)
class Reading:
    """How a table's records become rows.

    format: of the values; framing: where they name their schema (see `decode.frames`), or in the header `header` if
    is_by_header. message: full name of the Protobuf message, where records do not name one. schemas: by id those known
    so far. unknown_fields: what becomes of fields that the table lacks (`add`, `drop`, `rescue`, `refuse`). is_rescuing:
    whether values that do not fit go to the column `_rescued`. may_widen: whether a column may get a wider type.
    on_bad: what becomes of a record that cannot become a row (`dead_letter`, `stop`, `skip`). max_record_bytes: larger
    values are not read. selection: the fields that count; None: all. units: of numbers in fields of time, by path;
    without one they are milliseconds in JSON, and no times elsewhere. envelope: how records wrap a change, where what is
    read is not the record but its opened envelope (`decode.envelopes.opened`). barred: paths of fields that the table cannot
    have, with the reason: records that have them are bad ones. room: so many columns may be added; a record that brings more
    is a bad one. is_extended: JSON is MongoDB's extended one. coerced: paths of columns that take values of other types as
    text. numbers: what numbers of JSON become where there is no column yet; None: what their values need. hints: as in
    `hints`, of records before these. zones: of local times, by path. infers_times: whether text of JSON that is always a
    time becomes one where there is no column yet. aliases: by path of a column other names that its field may have in
    records. keys: paths of fields that identify rows, where there is no envelope to say so: equal numbers in them must be
    written alike; the empty path is all of a key.
    """

    format: str = "json"
    framing: Framing = "confluent"
    is_by_header: bool = False
    header: str = "__value_schema_id"
    message: str = ""
    schemas: tuple[tuple[str, WriterSchema], ...] = ()
    unknown_fields: str = "add"
    is_rescuing: bool = False
    may_widen: bool = True
    on_bad: str = "stop"
    max_record_bytes: int = 2**31
    selection: Selection | None = None
    units: tuple[tuple[Path, str], ...] = ()
    envelope: Envelope | None = None
    barred: tuple[tuple[Path, str], ...] = ()
    room: int = 2**31
    is_extended: bool = False
    coerced: tuple[Path, ...] = ()
    numbers: IcebergType | None = None
    hints: tuple[tuple[Path, str], ...] = ()
    zones: tuple[tuple[Path, str], ...] = ()
    infers_times: bool = False
    aliases: Aliases = ()
    keys: tuple[Path, ...] = ()

    def schema(self, schema_id: str) -> WriterSchema | None:
        """The schema of an id, None while it is not known."""
        return self._by_id.get(schema_id)

    @cached_property
    def _by_id(self) -> dict[str, WriterSchema]:
        return dict(self.schemas)

    @cached_property
    def unit_at(self) -> Mapping[Path, str]:
        """The units, by path."""
        return dict(self.units)

    def coerces(self, path: Path) -> bool:
        """Whether text at a path takes values of other types."""
        return any(path[: len(one)] == one for one in self.coerced)

    @cached_property
    def zone_at(self) -> Mapping[Path, str]:
        """The zones of local times, by path."""
        return dict(self.zones)

    @cached_property
    def barred_at(self) -> Mapping[Path, str]:
        """Why fields cannot be had, by path."""
        return dict(self.barred)

    @property
    def has_rescued_column(self) -> bool:
        """Whether the table has the column `_rescued`."""
        return self.is_rescuing or self.unknown_fields == "rescue"


@dataclass(frozen=True)
class ChangeReading:
    """How records become changes of an upsert table.

    key: how record keys are read. key_columns: paths of the columns that identify a row; empty until it is known which the
    record keys have. is_key_of_record: whether these columns always come from the record's key, and not from its value.
    order_by: the column that tells which change is the last; empty: partition and offset do. marks_deletes: a deleted row
    stays and says so. has_source_order: whether `order_by` is the place of a change in its source, which truncates have
    too. is_one_partition: whether the changes of all rows are in one partition. is_one_topic: whether they are in one topic.
    """

    key: Reading
    key_columns: tuple[str, ...] = ()
    is_key_of_record: bool = False
    order_by: str = ""
    marks_deletes: bool = False
    has_source_order: bool = False
    is_one_partition: bool = True
    is_one_topic: bool = True

    @property
    def paths(self) -> tuple[Path, ...]:
        """The key columns as names from the top downwards."""
        return tuple(tuple(name.split(".")) for name in self.key_columns)


@dataclass(frozen=True)
class TableTarget:
    """One table, as a task sees it.

    schema_json: Iceberg's JSON; empty while there is no table. location, properties, io_properties: as in TableState,
    sorted pairs. metadata: fields of record metadata, each with its column. letters: its dead-letter table, while bad
    records are to be expected. shaping: where its columns are not simply the fields of the record. key: how record keys are
    read, where the table has them decoded. headers: by column how those are read that are more than text, digits or bytes.
    partition_spec, sort_order, older_specs: as in TableState. most_partitions: how many of them a task may write; 0: any
    number. changes: how records become changes; None where they are appended. envelope: how records wrap a change; None
    where they are rows. is_whole: a batch is read by one task, which keeps
    every change until it has seen the last: rows that had another key are looked for among them. unpaired: topic,
    partition and offset of records whose row had another key, and the row of that key is not known; unfilled: of those that
    lack a value for a required column, which no row had either; crashing: records that end the task that reads them, which
    are refused unread; given_up: of halves of a change of the key whose other half
    is not waited for any longer; ahead: topic and position in the source's log of those whose insert is in the table;
    last_deletes: as in Progress. told_by: how record keys are read, where an envelope may leave it to them to tell a row.
    tombstones: what becomes of records without a value (`ignore`, `dead_letter`, `row`); empty: as the mode has it.
    """

    name: str
    schema_json: str
    location: str
    properties: tuple[tuple[str, str], ...]
    io_properties: tuple[tuple[str, str], ...]
    spec_id: int
    metadata: tuple[tuple[str, str], ...]
    target_file_size_bytes: int
    reading: Reading = Reading()
    letters: TableTarget | None = None
    shaping: Shaping | None = None
    key: Reading | None = None
    headers: tuple[tuple[str, Reading], ...] = ()
    partition_spec: str = ""
    sort_order: str = ""
    older_specs: tuple[str, ...] = ()
    most_partitions: int = 0
    changes: ChangeReading | None = None
    envelope: Envelope | None = None
    is_whole: bool = False
    unpaired: tuple[tuple[str, int, int], ...] = ()
    unfilled: tuple[tuple[str, int, int], ...] = ()
    crashing: tuple[BadRecord, ...] = ()
    given_up: tuple[tuple[str, int, int], ...] = ()
    ahead: tuple[tuple[str, str], ...] = ()
    last_deletes: tuple[LastDelete, ...] = ()
    told_by: Reading | None = None
    tombstones: str = ""

    def __repr__(self) -> str:
        return f"TableTarget({self.name})"

    @cached_property
    def schema(self) -> Schema:
        """The Iceberg schema."""
        return Schema.model_validate_json(self.schema_json) if self.schema_json else Schema()

    @cached_property
    def partitioning(self) -> PartitionSpec:
        """The partition spec."""
        return PartitionSpec.model_validate_json(self.partition_spec) if self.partition_spec else PartitionSpec()

    @cached_property
    def sorting(self) -> SortOrder:
        """The sort order."""
        return SortOrder.model_validate_json(self.sort_order) if self.sort_order else UNSORTED_SORT_ORDER

    @cached_property
    def fields(self) -> tuple[NestedField, ...]:
        """The columns that come from the record's value."""
        others = {column for _, column in self.metadata}
        if self.reading.has_rescued_column:
            others.add(RESCUED_COLUMN)
        return tuple(field for field in self.schema.fields if field.name not in others)

    @cached_property
    def fixed(self) -> frozenset[Path]:
        """Paths of columns that cannot become optional: those that identify a row, and what they are in."""
        found = set()
        for identifier in self.schema.identifier_field_ids:
            path = _path_to(identifier, self.schema.fields)
            found |= {path[:cut] for cut in range(1, len(path) + 1)}
        return frozenset(found)

    @cached_property
    def needs_headers(self) -> bool:
        """Whether all headers of a record are needed, be it for its schema or for a column."""
        readings = [self.reading, *(one for one in (self.key, self.told_by) if one is not None)]
        readings += [self.changes.key] if self.changes is not None else []
        return any(reading.is_by_header for reading in readings) or bool(
            self.shaping is not None and self.shaping.headers
        )

    @cached_property
    def layout(self) -> Layout:
        """What to decode, and where the columns lie in it; of a table with `shaping`."""
        assert self.shaping is not None
        return make_layout(self.fields, self.shaping)

    @cached_property
    def metadata_fields(self) -> frozenset[str]:
        """The fields of record metadata that it needs."""
        own = {"key", "offset"} if self.changes is not None else {"key"} if self.key is not None else set()
        if self.envelope is not None and self.envelope.needs_keys:
            own.add("key")
        return frozenset(field for field, _ in self.metadata) | own

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The files' schema: every field with its Iceberg id, at every level."""
        return pa.schema([_arrow_field(field) for field in self.schema.fields])


def _path_to(field_id: int, fields: Iterable[NestedField]) -> Path:
    """The path of the field with an id; empty where no struct has it."""
    for field in fields:
        if field.field_id == field_id:
            return (field.name,)
        inner = _path_to(field_id, field.field_type.fields) if isinstance(field.field_type, StructType) else ()
        if inner:
            return (field.name, *inner)
    return ()


def _arrow_field(field: NestedField) -> pa.Field:
    return _with_id(field.name, arrow_type(field.field_type), field.field_id, not field.required)


def field_id_of(field: pa.Field) -> int:
    """The Iceberg id of a field of a file; -1 where it has none."""
    return int((field.metadata or {}).get(_ID, b"-1"))


def _with_id(name: str, kind: pa.DataType, field_id: int, nullable: bool) -> pa.Field:
    return pa.field(name, kind, nullable, metadata={_ID: str(field_id).encode()})


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
