"""What a task must know of a table to write rows for it: sent with the job, small, and comparable (tasks keep what they
derive from it for the next batch)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UnknownType,
)

from frazil.decode.envelope import OWN_TYPES, Envelope
from frazil.decode.settings import Reading
from frazil.schema.arrow import arrow_field
from frazil.schema.projection import Layout, Shaping, make_layout
from frazil.schema.selection import Path
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
    sorted pairs. metadata: fields of record metadata, each with its column. dead_letters: its dead-letter table, while bad
    records are to be expected. shaping: where its columns are not simply the fields of the record. key: how record keys are
    read, where the table has them decoded. headers: by column how those are read that are more than text, digits or bytes.
    partition_spec, sort_order, older_specs: as in TableState. most_partitions: how many of them a task may write; 0: any
    number. changes: how records become changes; None where they are appended. envelope: how records wrap a change; None
    where they are rows. is_single_task: a batch is read by one task, which keeps
    every change until it has seen the last: rows that had another key are looked for among them. unpaired: topic,
    partition and offset of records whose row had another key, and the row of that key is not known; missing_required: of
    those that lack a value for a required column, which no row had either; crashing: records that end the task that reads
    them, which are refused unread; abandoned: of halves of a change of the key whose other half is not waited for any
    longer; applied_early: topic and position in the source's log of those whose insert is in the table; last_deletes: as in
    Progress. told_by: how record keys are read, where an envelope may leave it to them to tell a row. tombstones: what
    becomes of records without a value (`ignore`, `dead_letter`, `row`); empty: as the mode has it.
    """

    name: str
    schema_json: str
    location: str
    properties: tuple[tuple[str, str], ...]
    io_properties: tuple[tuple[str, str], ...]
    spec_id: int
    metadata: tuple[tuple[str, str], ...]
    target_file_size_bytes: int
    reading: Reading = field(default_factory=Reading)
    dead_letters: TableTarget | None = None
    shaping: Shaping | None = None
    key: Reading | None = None
    headers: tuple[tuple[str, Reading], ...] = ()
    partition_spec: str = ""
    sort_order: str = ""
    older_specs: tuple[str, ...] = ()
    most_partitions: int = 0
    changes: ChangeReading | None = None
    envelope: Envelope | None = None
    is_single_task: bool = False
    unpaired: tuple[tuple[str, int, int], ...] = ()
    missing_required: tuple[tuple[str, int, int], ...] = ()
    crashing: tuple[BadRecord, ...] = ()
    abandoned: tuple[tuple[str, int, int], ...] = ()
    applied_early: tuple[tuple[str, str], ...] = ()
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
        return pa.schema([arrow_field(field) for field in self.schema.fields])


def _path_to(field_id: int, fields: Iterable[NestedField]) -> Path:
    """The path of the field with an id; empty where no struct has it."""
    for one in fields:
        if one.field_id == field_id:
            return (one.name,)
        inner = _path_to(field_id, one.field_type.fields) if isinstance(one.field_type, StructType) else ()
        if inner:
            return (one.name, *inner)
    return ()
