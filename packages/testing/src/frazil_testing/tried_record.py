"""One record of a topic, read as a task reads it, and what it changes in its table: for `frazil try`."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType, UUIDType

from frazil.decode.limits import read_bounded
from frazil.decode.values_as_json import json_text
from frazil.error_classes import ErrorClass
from frazil.ingest.tasks.task import read_records
from frazil.ingest.tasks.task_job import Job, quoting_no_record
from frazil.kafka.port import ReadRecord
from frazil.rows.metadata_columns import batch_of
from frazil.rows.project import shape_rows
from frazil.rows.query import query_input
from frazil.schema.arrow import Records, arrow_type, pick
from frazil.stages.changes import DELETE, TRUNCATE, UPSERT, Changes
from frazil.write.target import TableTarget

_APPEND = "append"
_CHANGES = {UPSERT: "upsert", DELETE: "delete", TRUNCATE: "truncate"}
Row = dict[str, Any]
Read = Callable[[dict[str, pa.Array]], Changes]


@dataclass(frozen=True)
class TriedChange:
    """What a record changes in its table."""

    #: `append`, `upsert`, `delete` or `truncate`.
    change: str
    #: The row as JSON; of a delete its key. Values that the change leaves as they are in the table are absent.
    row: Row


@dataclass(frozen=True)
class TriedError:
    """Why a record is a bad record."""

    error_class: ErrorClass
    #: Path of the field, or the column; empty for the whole record.
    path: str
    message: str


@dataclass(frozen=True)
class TriedRecord:
    """What becomes of one record."""

    record: ReadRecord
    #: The table that it goes to.
    table: str
    #: Its fields as a query sees them, for each row in it; empty where it cannot be read.
    input: tuple[Row, ...] = ()
    output: tuple[TriedChange, ...] = ()
    #: The names of what drops or ignores it.
    dropped: tuple[str, ...] = ()
    error: TriedError | None = None
    #: Its value as Kafka has it, where it cannot be read and anybody may read it.
    value: bytes | None = None

    @property
    def outcome(self) -> str:
        """`written`, `dropped` or `failed`."""
        if self.error is not None:
            return "failed"
        return "written" if self.output else "dropped"


def try_record(target: TableTarget, record: ReadRecord, read_one: Read) -> TriedRecord:
    """Returns what becomes of a record in a table that has all columns which the record needs. read_one: `read_records` of
    the table and the record's topic, with the values that Spark makes.

    Raises: RuntimeError, which quotes no record, in place of another exception where the table's records are private.
    """
    with quoting_no_record(Job({record.topic: target})):
        ((_, columns, changes),) = read_bounded(batch_of([record]), read_one, target.reading.evolution.columns_left)
        seen = _input(target, record.topic, columns)
        dropped = tuple(sorted(name for name, count in changes.ignored_records.items() if count))
        if not changes.decoded.refused.any():
            output = tuple(_output(target, columns, changes))
            return TriedRecord(record, target.name, seen, output, dropped)
        first = changes.decoded.mismatches[0]
        error = TriedError(first.kind, first.path, first.reason)
        value = record.value if not seen and target.record_key is None else None
        return TriedRecord(record, target.name, seen, error=error, value=value)


def _input(target: TableTarget, topic: str, records: Records) -> tuple[Row, ...]:
    """Returns the fields of the rows in a record, as the table's query sees them."""
    source = target.source or target
    changes = read_records(source, topic, records)
    if changes.decoded.refused.any():
        return ()
    columns: Records = query_input(source, records, changes)
    for stage in target.stages:
        columns = stage.show(source, columns)
    return tuple(_documents(columns, source.schema))


def _output(target: TableTarget, records: Records, changes: Changes) -> Iterator[TriedChange]:
    """Yields what a good record changes in the table."""
    rows = shape_rows(target, changes, pick(records, changes.records))
    if target.changes is None:
        yield from (TriedChange(_APPEND, row) for row in _documents(_by_name(rows), target.schema))
        return
    keys = {path[0] for path in target.changes.paths}
    unavailable = {target.fields[n].name: mask for n, mask in changes.unavailable.items()}
    for number, row in enumerate(_documents(_by_name(rows), target.schema)):
        op = int(changes.ops[number])
        absent = {name for name, mask in unavailable.items() if mask[number]}
        absent |= row.keys() - keys if op == DELETE else set() if changes.have_keys[number] else row.keys()
        yield TriedChange(_CHANGES[op], {name: value for name, value in row.items() if name not in absent})


def _by_name(rows: pa.Table) -> dict[str, pa.Array]:
    return {name: rows.column(name).combine_chunks() for name in rows.column_names}


def _documents(columns: Records, schema: Schema) -> Iterator[Row]:
    """Yields the rows as JSON. schema: of the table; columns may have another type as they are shown."""
    kinds = {field.name: field.field_type for field in schema.fields if field.name in columns}
    readable = {name: kind for name, kind in kinds.items() if arrow_type(kind).equals(columns[name].type)}
    for row in range(len(next(iter(columns.values()), ()))):
        yield {
            name: _with_uuids(json.loads(json_text(column[row])), readable.get(name))
            for name, column in columns.items()
        }


def _with_uuids(value: Any, kind: IcebergType | None) -> Any:
    """Returns a value in JSON with UUIDs as they are written: Arrow has no type of its own for them."""
    if value is None:
        return None
    if isinstance(kind, UUIDType):
        return str(UUID(bytes=base64.b64decode(value)))
    if isinstance(kind, StructType):
        return {field.name: _with_uuids(value[field.name], field.field_type) for field in kind.fields}
    if isinstance(kind, ListType):
        return [_with_uuids(element, kind.element_type) for element in value]
    if isinstance(kind, MapType):
        return [[_with_uuids(key, kind.key_type), _with_uuids(entry, kind.value_type)] for key, entry in value]
    return value
