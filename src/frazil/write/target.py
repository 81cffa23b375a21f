"""The description of a table that a task needs to write rows for it.

It is sent with the job, small, and comparable (tasks keep values derived from it for the next batch).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg import types as t
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

from frazil.column_names import fold_case
from frazil.decode.settings import OWN_TYPES, Envelope, Reading
from frazil.process.program import Program, SparkPart
from frazil.schema.arrow import Bools, arrow_field
from frazil.schema.names import spelled
from frazil.schema.parts import with_requirement
from frazil.schema.projection import HEADERS, KEY, Layout, Shaping, make_layout
from frazil.schema.selection import Path
from frazil.shares.share import Share
from frazil.stages.record_key import RecordKey
from frazil.stages.stage import TableStage
from frazil.types import EXTRA_COLUMNS, BadRecord, LastDelete

if TYPE_CHECKING:
    from frazil.spec.settings import MetadataField

# Types of the columns of record metadata. Headers may repeat a key, so they are a list.
_UNKNOWN = t.UnknownType()
METADATA_TYPES: dict[str, t.IcebergType] = {
    "topic": t.StringType(),
    "partition": t.IntegerType(),
    "offset": t.LongType(),
    "timestamp": t.TimestamptzType(),
    "headers": t.ListType(
        element_id=0,
        element=t.StructType(
            t.NestedField(0, "key", t.StringType(), required=False),
            t.NestedField(0, "value", t.BinaryType(), required=False),
        ),
        element_required=False,
    ),
    "key": t.BinaryType(),
}
_KEY_TYPES: dict[str, t.IcebergType] = {"raw": t.BinaryType(), "text": t.StringType()}
ROW_ID = "_row_id"
ROW_ID_FIELD = 2147483540
_UPDATED = "_last_updated_sequence_number"
UPDATED_FIELD = 2147483539
LINEAGE_FIELDS = (
    t.NestedField(ROW_ID_FIELD, ROW_ID, t.LongType(), required=False),
    t.NestedField(UPDATED_FIELD, _UPDATED, t.LongType(), required=False),
)
"""The columns of row lineage (Iceberg specification, "Row Lineage")."""
LINEAGE_SINCE = 3
NO_ID = -1


def metadata_columns(metadata: Mapping[MetadataField, str], key_format: str = "raw") -> dict[str, t.IcebergType]:
    """Returns the columns of record metadata with their types, for a table's setting `metadata`. The type of keys is
    known only where they are bytes or text.
    """
    kinds = {**METADATA_TYPES, **OWN_TYPES, "key": _KEY_TYPES.get(key_format, _UNKNOWN)}
    return {column: kinds[field] for field, column in metadata.items() if kinds[field] != _UNKNOWN}


@dataclass(frozen=True)
class Late:
    """Which records are late."""

    #: How much less than the greatest time before it the time of a record may be.
    after_us: int
    #: Whether later records are dead letters, and not dropped.
    is_dead_letter: bool
    #: Whether windows that have become complete never change again, whatever `after_us` becomes (`emit: closed`).
    is_final: bool = False
    #: Of a copy of a table: see `LateSpec.of_copy`.
    recorded: tuple[tuple[str, int, int, int], ...] | None = None


@dataclass(frozen=True)
class History:
    """The columns of the versions of rows."""

    #: The column with the time from which a version is valid.
    valid_from: str
    #: The column with the time from which it is no longer; null for a current version.
    valid_to: str
    #: The column that shows whether the version is current.
    is_current: str
    #: The columns whose changes make a version; empty: all but the key, the ordering column and metadata.
    track: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChangeReading:
    """How records become changes of an upsert table."""

    #: How record keys are read.
    key: Reading
    #: Paths of the columns that identify a row; empty until the fields of the record keys are known.
    key_columns: tuple[str, ...] = ()
    #: Whether these columns always come from the record's key, and not from its value.
    is_key_of_record: bool = False
    #: The column that orders the changes of a key; empty: partition and offset do.
    order_by: str = ""
    #: Whether a deleted row stays, marked as deleted (`deletes: soft`).
    marks_deletes: bool = False
    #: Whether `order_by` is the position of a change in its source, which deletes of all rows have too.
    has_source_order: bool = False
    #: Whether the changes of all rows are in one partition.
    is_one_partition: bool = True
    #: Whether the changes of all rows are in one topic.
    is_one_topic: bool = True
    #: Whether the columns are known; not while the query that makes them waits for the fields of the records. No record
    #: is refused for its key until then.
    is_key_known: bool = True
    #: By column, the function that merges the values of its key's records; empty: the latest record of a key is its row.
    #: The name `spec.table_forms.ALL_COLUMNS` stands for every column that is not named.
    merge: tuple[tuple[str, str], ...] = ()
    #: Whether updates and deletes of the source subtract the row before from what it was merged into.
    retracts: bool = False
    #: Which records are late; None where none is.
    late: Late | None = None
    #: How every version of a row is kept; None where the latest alone is.
    history: History | None = None
    #: The columns with the start and the end of a session of the key's records; None where its records are one row.
    session: tuple[str, str] | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The key columns as paths."""
        return tuple(tuple(name.split(".")) for name in self.key_columns)

    @property
    def counts_every_row(self) -> bool:
        """Whether all records of a key make its row, and not the latest alone."""
        return bool(self.merge)

    @property
    def row_paths(self) -> tuple[Path, ...]:
        """The columns that identify one row, as paths: several versions or sessions have one key."""
        if self.session is not None:
            return (*self.paths, (self.session[0],))
        return self.paths if self.history is None else (*self.paths, (self.history.valid_from,))

    def spelled(self, schema: Schema | None) -> ChangeReading:
        """Returns the reading with key and ordering columns as the schema writes their names, whatever their case."""
        columns = tuple(spelled(name, schema) for name in self.key_columns)
        merge = tuple((spelled(name, schema), function) for name, function in self.merge)
        history = self.history and replace(
            self.history, track=tuple(spelled(name, schema) for name in self.history.track)
        )
        order = spelled(self.order_by, schema)
        return replace(self, key_columns=columns, order_by=order, merge=merge, history=history)


@dataclass(frozen=True)
class Dedupe:
    """Which rows of an append table are duplicates."""

    #: The columns that identify an event.
    by: tuple[str, ...]
    #: The greatest distance in milliseconds between the timestamps of a duplicate and of the row that is kept; None: any.
    within_ms: int | None = None
    #: The column with the record's timestamp; empty where the distance is not limited.
    time: str = ""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The columns as paths."""
        return tuple(tuple(name.split(".")) for name in self.by)

    def spelled(self, schema: Schema | None) -> Dedupe:
        """Returns the columns as the schema writes their names, whatever their case."""
        by = tuple(spelled(name, schema) for name in self.by)
        return replace(self, by=by, time=spelled(self.time, schema))


@dataclass(frozen=True)
class TableFiles:
    """Where the files of a table are, and how they are written."""

    #: The table's location, as in TableState.
    location: str = ""
    #: The table's properties, as sorted pairs.
    properties: tuple[tuple[str, str], ...] = ()
    #: The properties for access to the table's store, as sorted pairs.
    io_properties: tuple[tuple[str, str], ...] = ()
    #: The size of data files to aim at.
    target_file_size_bytes: int = 0
    #: The id of the partition spec.
    spec_id: int = 0
    #: The partition spec as Iceberg's JSON, as in TableState.
    partition_spec: str = ""
    #: The sort order as Iceberg's JSON, as in TableState.
    sort_order: str = ""
    #: Older partition specs, as in TableState.
    older_specs: tuple[str, ...] = ()
    #: The largest number of partitions that a task may write; 0: no limit.
    max_partitions: int = 0
    #: Whether rows are counted and added to the digest, and not written: of copies that `frazil verify` compares.
    is_summed: bool = False


@dataclass(frozen=True)
class RecordReading:
    """How a record is read beside its value."""

    #: How record keys are read, where a column has them decoded.
    key: Reading | None = None
    #: How record keys are read, where deletes in an envelope may identify their row by the record's key alone.
    before_key: Reading | None = None
    #: How header values are read, by column, where they are more than text, digits or bytes.
    headers: tuple[tuple[str, Reading], ...] = ()
    #: The handling of records without a value: `ignore`, `dead_letter` or `row`; empty: as the table's mode does.
    tombstones: str = ""


@dataclass(frozen=True)
class TableQuery:
    """What makes the rows of a table from those that its records alone would make."""

    #: The records, as the table that they would make without the query.
    source: TableTarget
    #: What makes the rows from the columns of `source`; None while the fields of the records are not known.
    program: Program | None = None
    #: The lookups of `program`, each with the key of the rows that the batch joins (`process/references.py`).
    lookups: tuple[tuple[str, str], ...] = ()
    #: What an expression that fails makes: a dead letter (False), or null in its column (True).
    fails_to_null: bool = False


@dataclass(frozen=True)
class KnownRecords:
    """What earlier attempts and batches have found out about single records of a table."""

    #: Records that end the process that reads them; they are refused unread.
    crashing: tuple[BadRecord, ...] = ()
    #: Single changes of an upsert table, such as places of records, by what is known of them; rooms of `upsert` name it.
    noted: tuple[tuple[str, tuple[tuple[Any, ...], ...]], ...] = ()
    #: Whether one task reads the batch and keeps every change until it has seen the last.
    is_single_task: bool = False
    #: The last records of partitions that are deletes, as in Progress.
    last_deletes: tuple[LastDelete, ...] = ()

    def of(self, name: str) -> tuple[tuple[Any, ...], ...]:
        """Returns what is noted under this name."""
        return dict(self.noted).get(name, ())

    def are_crashing(self, topic: str, records: pa.RecordBatch) -> Bools:
        """Returns which records of a topic are refused unread, bool of shape (n_records,)."""
        crashing = {(record.partition, record.offset) for record in self.crashing if record.topic == topic}
        if not crashing:
            return np.zeros(records.num_rows, np.bool_)
        places = zip(records.column("partition").to_pylist(), records.column("offset").to_pylist(), strict=True)
        return np.array([place in crashing for place in places], np.bool_)


@dataclass(frozen=True)
class TableTarget:
    """One table, as a task sees it: a record of settings for each part of the way of its records."""

    name: str
    #: The schema as Iceberg's JSON; empty while the table does not exist.
    schema_json: str = ""
    files: TableFiles = field(default_factory=TableFiles)
    #: How record values become columns.
    reading: Reading = field(default_factory=Reading)
    record: RecordReading = field(default_factory=RecordReading)
    #: How columns are made from records; None where the columns are the fields of the record.
    shaping: Shaping | None = None
    #: Fields of record metadata, each with its column.
    metadata: tuple[tuple[str, str], ...] = ()
    #: The CDC envelope of the records; None where records are rows.
    envelope: Envelope | None = None
    #: How records become changes; None where rows are appended.
    changes: ChangeReading | None = None
    #: Which rows are duplicates; None where all rows are kept.
    dedupe: Dedupe | None = None
    #: None where the rows are what the records alone make.
    query: TableQuery | None = None
    #: The stages that the table's settings ask for, in order; of a dead-letter table those of its table, which see no row.
    stages: tuple[TableStage, ...] = ()
    #: None where the table takes all records of its topics.
    share: Share | None = None
    known: KnownRecords = field(default_factory=KnownRecords)
    #: The table's dead-letter table, while bad records are expected.
    dead_letters: TableTarget | None = None

    def __repr__(self) -> str:
        return f"TableTarget({self.name})"

    @property
    def source(self) -> TableTarget | None:
        """The records of a table with a query, as the table that they would make without it."""
        return self.query.source if self.query is not None else None

    @property
    def program(self) -> Program | None:
        """What makes the rows from the columns of `source`; None while the fields of the records are not known."""
        return self.query.program if self.query is not None else None

    @property
    def looks_up_rows(self) -> bool:
        """Whether what becomes of a record depends on the rows that the table has."""
        return self.changes is not None or self.dedupe is not None

    @property
    def kind(self) -> str:
        """The name of the table's kind (`plugins.tables`); empty where rows are appended, or are the latest of their key."""
        if self.changes is None:
            return "" if self.dedupe is None else "dedupe"
        if self.changes.history is not None:
            return "history"
        return "merge" if self.changes.counts_every_row else ""

    def empty_ids(self, untyped: Iterable[Path]) -> frozenset[str]:
        """Returns the columns of `dedupe.by` that fields would feed, or fields inside of them. untyped: the paths of fields
        without a type, which records have only without a value.
        """
        if self.dedupe is None:
            return frozenset()
        shaping = self.shaping or Shaping()
        fed = {spelling for path in untyped for spelling in shaping.spellings(self.reading.in_row(path))}
        return frozenset(
            name
            for name, path in zip(self.dedupe.by, self.dedupe.paths, strict=True)
            if not fed.isdisjoint(tuple(map(fold_case, path[:cut])) for cut in range(1, len(path) + 1))
        )

    def without_waits(self) -> TableTarget:
        """Returns the table whose query has null where a record would wait for a row of a reference table."""
        if self.query is None or self.query.program is None:
            return self
        return replace(self, query=replace(self.query, program=self.query.program.without_waits()))

    @property
    def record_key(self) -> RecordKey | None:
        """What encrypts records that are kept whole; None where anybody may read them."""
        return next((stage.record_key for stage in self.stages if stage.record_key is not None), None)

    @cached_property
    def schema(self) -> Schema:
        """The Iceberg schema."""
        return _read_schema(self.schema_json) if self.schema_json else Schema()

    def with_schema(self, schema: Schema) -> TableTarget:
        """Returns the table with another schema, and with key and ordering columns as it writes their names."""
        changes = self.changes.spelled(schema) if self.changes is not None else None
        envelope = (
            replace(self.envelope, keys=changes.paths) if self.envelope is not None and changes else self.envelope
        )
        return replace(self, schema_json=schema.model_dump_json(), changes=changes, envelope=envelope)

    @cached_property
    def partitioning(self) -> PartitionSpec:
        """The partition spec."""
        text = self.files.partition_spec
        return PartitionSpec.model_validate_json(text) if text else PartitionSpec()

    @cached_property
    def sorting(self) -> SortOrder:
        """The sort order."""
        text = self.files.sort_order
        return SortOrder.model_validate_json(text) if text else UNSORTED_SORT_ORDER

    @cached_property
    def fields(self) -> tuple[t.NestedField, ...]:
        """The columns that are made from the record's value. Those that identify a row count as optional: the record's key
        may have what the value lacks, and a row without a key is refused afterwards.
        """
        others = {column for _, column in self.metadata} | self.reading.extra_columns
        keys = self.changes.paths if self.changes is not None else ()
        return tuple(with_requirement(field, keys, False) for field in self.schema.fields if field.name not in others)

    @cached_property
    def fixed(self) -> frozenset[Path]:
        """Paths of columns that cannot become optional: those that identify a row, and the structs around them."""
        paths = set()
        for identifier in self.schema.identifier_field_ids:
            path = _path_to(identifier, self.schema.fields)
            paths |= {path[:cut] for cut in range(1, len(path) + 1)}
        return frozenset(paths)

    @property
    def spark_part(self) -> SparkPart | None:
        """What Spark evaluates of the table's query, before the task; None where it has no part."""
        return self.program.spark_part if self.program is not None else None

    @cached_property
    def needs_headers(self) -> bool:
        """Whether all headers of a record are needed, for its schema or for a column."""
        if self.source is not None:
            return self.source.needs_headers or any(stage.needs_headers for stage in self.stages)
        keys = (self.record.key, self.record.before_key)
        readings = [self.reading, *(key for key in keys if key is not None)]
        readings += [self.changes.key] if self.changes is not None else []
        has_events = self.envelope is not None and self.envelope.has_events
        return (
            has_events
            or any(stage.needs_headers for stage in self.stages)
            or (self.share is not None and self.share.needs_headers)
            or any(reading.wire.is_by_header for reading in readings)
            or bool(self.shaping is not None and self.shaping.headers)
        )

    @cached_property
    def layout(self) -> Layout:
        """The fields to decode and the columns they feed, of a table with `shaping`."""
        assert self.shaping is not None
        return make_layout(self.fields, self.shaping)

    @property
    def origins(self) -> dict[str, Path | None]:
        """By column, the field or the part of the record that feeds it, where these have another name; None for a column
        that is not a part of the record as its producer sent it, such as the offset.
        """
        origins: dict[str, Path | None] = {}
        if self.shaping is not None:
            origins |= self.layout.paths
            origins |= dict.fromkeys(self.shaping.own)
            origins |= {column: (HEADERS, name) for column, name in self.shaping.headers}
            if self.shaping.key:
                origins[self.shaping.key] = (KEY,)
        parts: dict[str, Path] = {"key": (KEY,), "headers": (HEADERS,)}
        origins |= dict.fromkeys(EXTRA_COLUMNS)
        return origins | {column: parts.get(field) for field, column in self.metadata}

    @cached_property
    def metadata_fields(self) -> frozenset[str]:
        """The fields of record metadata that the table needs."""
        needed = {"key", "offset"} if self.changes is not None else {"key"} if self.record.key is not None else set()
        if self.envelope is not None and (self.envelope.needs_keys or self.envelope.has_events):
            needed.add("key")
        fields = frozenset(field for field, _ in self.metadata) | needed
        return fields if self.source is None else fields | self.source.metadata_fields

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the table's files, with Iceberg field ids at every level."""
        return pa.schema([arrow_field(field) for field in self.schema.fields])


@lru_cache(maxsize=64)
def _read_schema(text: str) -> Schema:
    # A process has the same table in every batch, and several descriptions of it in one.
    return Schema.model_validate_json(text)


def _path_to(field_id: int, fields: Iterable[t.NestedField]) -> Path:
    """Returns the path of the field with an id; empty where no struct has it."""
    for member in fields:
        if member.field_id == field_id:
            return (member.name,)
        inner = _path_to(field_id, member.field_type.fields) if isinstance(member.field_type, t.StructType) else ()
        if inner:
            return (member.name, *inner)
    return ()


def has_lineage(target: TableTarget, format_version: int) -> bool:
    """Whether row ids of the table can be kept: not where a column of its own has the name of a lineage column, as a
    file would have the name twice.
    """
    return format_version >= LINEAGE_SINCE and not {ROW_ID, _UPDATED}.intersection(target.arrow_schema.names)


def lineage_schema(target: TableTarget) -> pa.Schema:
    """Returns the schema of the table's files with the lineage columns."""
    return pa.schema([*target.arrow_schema, *map(arrow_field, LINEAGE_FIELDS)])


def with_row_ids(target: TableTarget, rows: pa.Table, ids: NDArray[np.int64]) -> pa.Table:
    """Returns the rows with their row ids, int64 of shape (n_rows,); NO_ID for those that get one by the commit. All
    rows count as updated by the commit.
    """
    columns = [*rows.columns, pa.array(ids, mask=ids == NO_ID), pa.nulls(rows.num_rows, pa.int64())]
    return pa.Table.from_arrays(columns, schema=lineage_schema(target))
