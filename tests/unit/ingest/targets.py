"""Table targets and record batches for tests that run a task without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from frazil.ingest.tasks.task import run_task
from frazil.ingest.tasks.task_job import Job
from frazil.report import TaskReport, load_report
from frazil.schema.evolve import new_schema
from frazil.spec.settings import METADATA_COLUMNS, MetadataField
from frazil.spec.syntax.types import parse_type
from frazil.write.target import TableFiles, TableTarget, metadata_columns

_RECORD_TYPES: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "key": pa.binary(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "value": pa.binary(),
}

EVERY_KIND = {
    "id": "long", "n": "int", "f": "float", "x": "double", "b": "boolean", "s": "string", "d": "decimal(9,2)",
    "day": "date", "at": "timestamptz", "local": "timestamp", "t": "time", "u": "uuid", "raw": "binary",
    "two": "fixed[2]", "l": "list<struct<k: string>>", "m": "map<string,list<long>>",
    "deep": "struct<a: struct<z: long>>",
}  # fmt: skip
"""Columns of every type, also inside others."""


def target_of(
    folder: Path,
    columns: Mapping[str, str],
    *,
    name: str = "lake.t",
    metadata: tuple[MetadataField, ...] = (),
    properties: Mapping[str, str] | None = None,
    **other: Any,
) -> TableTarget:
    """A table with these columns, its files under `folder`."""
    fields = {column: parse_type(word) for column, word in columns.items()}
    fields |= metadata_columns({field: METADATA_COLUMNS[field] for field in metadata})
    schema_json = new_schema(fields.items()).model_dump_json() if fields else ""
    target = TableTarget(
        name=name,
        schema_json=schema_json,
        files=TableFiles(str(folder / name), tuple(sorted((properties or {}).items())), (), 128 * 2**20),
        metadata=tuple((field, METADATA_COLUMNS[field]) for field in metadata),
    )
    return changed(target, **other)


def changed(target: TableTarget, **fields: Any) -> TableTarget:
    """The table with other values of these fields, or of those of its records of settings."""
    for group in ("files", "record", "known"):
        settings = getattr(target, group)
        own = {name: fields.pop(name) for name in settings.__dataclass_fields__ if name in fields}
        fields |= {group: replace(settings, **own)} if own else {}
    return replace(target, **fields)


def records_of(rows: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    """Records as the source ships them: the columns that the rows have. Partition and timestamp are 0 unless given."""
    full = [{"partition": 0, "timestamp": 0, **row} for row in rows]
    names = [name for name in _RECORD_TYPES if any(name in row for row in full)]
    return pa.RecordBatch.from_arrays(
        [pa.array([row.get(name) for row in full], _RECORD_TYPES[name]) for name in names], names=names
    )


def run(job: Job, *batches: pa.RecordBatch) -> dict[str, TaskReport]:
    """One task's reports by table."""
    (answer,) = run_task(job, iter(batches))
    reports = [load_report(text) for text in answer.column("report").to_pylist()]
    return {report.table: report for report in reports}
