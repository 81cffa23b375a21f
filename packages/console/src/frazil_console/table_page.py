"""What the page of one table shows of its metadata and settings: commits, file sizes, schemas, partitions. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

from markupsafe import Markup
from pydantic import BaseModel

from frazil.catalog.progress import REPLAY_ID, from_summary, key
from frazil.catalog.table_metadata import Snapshot, StoredData, TableMetadata
from frazil.ingest.tables.state import RunCounts
from frazil.ingest.tables.table import Table
from frazil.kafka.port import Partition
from frazil.ops.plan import describe_stages
from frazil.ops.reports import size
from frazil.spec import PipelineSpec, TableSpec
from frazil.spec.models import TABLE_KEYS
from frazil.spec.settings import HISTORY
from frazil.spec.state import describe_state
from frazil.spec.syntax.keys import Key, keys_of
from frazil.spec.table_keys import SourceSpec
from frazil.types import Offsets, Progress, by_partition
from frazil_console.charts import bars

MOST_COMMITS = 50
_MIB = 1 << 20
_BOUNDS = (1 * _MIB, 8 * _MIB, 32 * _MIB, 128 * _MIB, 512 * _MIB)
_FORMATS = {"append": 2, "upsert": 3}
_SECRET = "***"
_UNSET = TableSpec(name="")
_SECTIONS = ("value", "key", "commit", "maintenance", "snapshots", "orphans", "dead_letters", "limits", "infer")
"""Keys whose value has keys of its own, each shown as a setting."""


@dataclass(frozen=True)
class PartitionRange:
    """The offsets of one partition that a commit has added: from `start`, up to but without `end`."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class CommitRow:
    """One snapshot of the main branch."""

    id: int
    at_ms: int
    #: Who made it: this pipeline's ingestion, a replay, table maintenance, or another writer.
    author: str
    operation: str
    #: Figures of Iceberg's summary.
    added_rows: int
    deleted_rows: int
    added_files: int
    removed_files: int
    ranges: tuple[PartitionRange, ...] = ()
    #: Schemas of the registry that records were decoded with for the first time.
    new_schemas: tuple[str, ...] = ()
    epoch: int | None = None
    schema_id: int | None = None


def commits_of(metadata: TableMetadata, pipeline: str) -> list[CommitRow]:
    """Returns the snapshots of the main branch, the newest first."""
    line = list(metadata.ancestors())
    rows: list[CommitRow] = []
    before = Progress()
    for place, snapshot in enumerate(reversed(line)):
        after = from_summary(pipeline, snapshot.summary, snapshot.id)
        # What the oldest kept snapshot has added is not known: the one before it has been expired.
        is_known = place > 0 or snapshot.parent is None
        rows.append(_commit(snapshot, pipeline, before, after, is_known))
        before = after or before
    return rows[::-1]


def _commit(snapshot: Snapshot, pipeline: str, before: Progress, after: Progress | None, is_known: bool) -> CommitRow:
    is_own = after is not None and after.commit_id != before.commit_id
    numbers = [int(snapshot.summary.get(name, 0)) for name in _FIGURES]
    return CommitRow(
        snapshot.id,
        snapshot.at_ms,
        _author(snapshot, pipeline, is_own),
        snapshot.operation,
        numbers[0],
        numbers[1] + numbers[2],
        numbers[3] + numbers[4],
        numbers[5] + numbers[6],
        tuple(_ranges(before.offsets, after.offsets)) if after is not None and is_own and is_known else (),
        tuple(schema for schema in after.batch.schemas if schema not in before.batch.schemas)
        if after is not None and is_known
        else (),
        after.writer.epoch if after is not None else None,
        snapshot.schema_id,
    )


_FIGURES = (
    "added-records",
    "deleted-records",
    "added-position-deletes",
    "added-data-files",
    "added-delete-files",
    "deleted-data-files",
    "removed-delete-files",
)


def _author(snapshot: Snapshot, pipeline: str, is_own: bool) -> str:
    if snapshot.is_maintenance:
        return "maintenance"
    if key(pipeline, REPLAY_ID) in snapshot.summary:
        return "replay"
    if is_own:
        return "ingestion"
    return "ingestion of another pipeline" if snapshot.progress else "another writer"


def _ranges(before: Offsets, after: Offsets) -> Iterator[PartitionRange]:
    offsets_before = by_partition(before)
    for (topic, partition), end in sorted(by_partition(after).items()):
        start = offsets_before.get((topic, partition), 0)
        if end != start:
            yield PartitionRange(topic, partition, start, end)


# ---- files


def file_sizes(files: tuple[StoredData, ...]) -> list[tuple[str, int, Any]]:
    """Returns a histogram of the sizes of data files: label, number of files, and a bar."""
    counts = [0] * (len(_BOUNDS) + 1)
    for file in files:
        counts[sum(file.size_bytes >= bound for bound in _BOUNDS)] += 1
    edges = (f"{size(low)} to {size(high)}" for low, high in pairwise(_BOUNDS))
    return bars(counts, [f"below {size(_BOUNDS[0])}", *edges, f"{size(_BOUNDS[-1])} and more"])


# ---- schemas


@dataclass(frozen=True)
class SchemaColumn:
    """One field of a schema."""

    path: str
    type: str
    is_required: bool
    doc: str


@dataclass(frozen=True)
class FieldChange:
    """One difference between a schema and the one before it."""

    #: `created`, `added`, `changed` or `removed`.
    kind: str
    text: str


@dataclass(frozen=True)
class SchemaChange:
    """One schema of a table, by what it changed."""

    id: int
    #: Added fields first, then changed ones, then removed ones.
    changes: tuple[FieldChange, ...]
    #: The first commit with it that is still kept; None where there is none.
    commit: CommitRow | None


def current_columns(metadata: TableMetadata) -> list[SchemaColumn]:
    """Returns the fields of the newest schema, nested ones behind their parents."""
    return list(_fields(metadata.shape.schemas[-1]).values()) if metadata.shape.schemas else []


def schema_changes(metadata: TableMetadata, commits: list[CommitRow]) -> list[SchemaChange]:
    """Returns what each schema changed, the newest first, and the first commit that was made with it: its records are the
    cause, where this pipeline made it.
    """
    first = {commit.schema_id: commit for commit in commits}  # The oldest one comes last.
    changes_of_schemas: list[SchemaChange] = []
    before: dict[int, SchemaColumn] | None = None
    for schema in metadata.shape.schemas:
        number, fields = int(schema["schema-id"]), _fields(schema)
        changes = (FieldChange("created", "created"),) if before is None else tuple(_changes(before, fields))
        changes_of_schemas.append(SchemaChange(number, changes, first.get(number)))
        before = fields
    return changes_of_schemas[::-1]


def _fields(schema: Mapping[str, Any], prefix: str = "") -> dict[int, SchemaColumn]:
    """Returns the fields of a struct in Iceberg's JSON by their ids, nested ones included."""
    columns: dict[int, SchemaColumn] = {}
    for field in schema["fields"]:
        path, kind = f"{prefix}{field['name']}", field["type"]
        columns[field["id"]] = SchemaColumn(path, _type_text(kind), bool(field["required"]), field.get("doc", ""))
        columns |= _nested(kind, f"{path}.")
    return columns


def _nested(kind: Any, prefix: str) -> dict[int, SchemaColumn]:
    if not isinstance(kind, dict):
        return {}
    if kind["type"] == "struct":
        return _fields(kind, prefix)
    parts = {"list": ("element",), "map": ("key", "value")}[kind["type"]]
    return {number: column for part in parts for number, column in _nested(kind[part], f"{prefix}{part}.").items()}


def _type_text(kind: Any) -> str:
    if not isinstance(kind, dict):
        return str(kind)
    if kind["type"] == "list":
        return f"list<{_type_text(kind['element'])}>"
    if kind["type"] == "map":
        return f"map<{_type_text(kind['key'])}, {_type_text(kind['value'])}>"
    return "struct"


def _changes(before: Mapping[int, SchemaColumn], after: Mapping[int, SchemaColumn]) -> Iterator[FieldChange]:
    for number, column in after.items():
        if number not in before:
            yield FieldChange("added", f"{column.path}: {_kind(column)}")
    for number, column in after.items():
        old = before.get(number, column)
        if old.path != column.path:
            yield FieldChange("changed", f"{old.path} is now {column.path}")
        if _kind(old) != _kind(column):
            yield FieldChange("changed", f"{column.path}: {_kind(old)} → {_kind(column)}")
    for number, column in before.items():
        if number not in after:
            yield FieldChange("removed", f"{column.path}: {_kind(column)}")


def _kind(column: SchemaColumn) -> str:
    return f"{column.type}, required" if column.is_required else column.type


# ---- the way of a record


def path_of(spec: TableSpec, topics: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the steps from topic to table, each with what it is: a picture as text."""
    source = ", ".join(topics[:3]) + (f" and {len(topics) - 3} more" if len(topics) > 3 else "") or "no topic yet"
    mode = "history" if spec.changes.keeps_history else spec.changes.mode
    rows = f"{mode} by {', '.join(spec.changes.key_columns)}" if spec.changes.key_columns else mode
    stages = [("stage", text) for text in describe_stages(spec)]
    state = [("state", text) for text in describe_state(spec)]
    return [("topic", source), *stages, *state, ("table", f"{spec.name}: {rows}")]


@dataclass(frozen=True)
class BatchTime:
    """Where the time of a table's batches goes, since the process started."""

    batches: int
    #: Means in seconds: of a whole batch, of its part up to the end of its tasks, of its commit.
    whole_s: float
    tasks_s: float
    commit_s: float


def batch_time(counts: RunCounts) -> BatchTime | None:
    """Returns the mean times of the committed batches; None before the first."""
    batches = sum(counts.batch_s.counts)
    if not batches:
        return None
    whole_s, commit_s = counts.batch_s.total / batches, counts.commit_s.total / batches
    return BatchTime(batches, whole_s, max(0.0, whole_s - commit_s), commit_s)


# ---- partitions


@dataclass(frozen=True)
class PartitionRow:
    """One Kafka partition of a table."""

    topic: str
    partition: int
    #: The next offset to read; None before the first commit.
    next_offset: int | None
    #: The offset behind its last record; None while Kafka does not answer.
    end_offset: int | None
    #: The latest record timestamp that was read.
    watermark_ms: int | None

    @property
    def lag(self) -> int | None:
        """The offsets that are not read yet."""
        if self.next_offset is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.next_offset)


def partitions_of(table: Table, ends: Mapping[Partition, int]) -> list[PartitionRow]:
    """Returns the Kafka partitions of a table of the running pipeline. ends: the offsets behind their last records."""
    progress = table.progress
    committed, times = by_partition(progress.offsets), by_partition(progress.watermark.partitions)
    every = sorted({*committed, *table.offsets.partitions()})
    return [PartitionRow(*place, committed.get(place), ends.get(place), times.get(place)) for place in every]


def with_bars(partitions: Sequence[PartitionRow]) -> list[tuple[PartitionRow, Markup]]:
    """Returns each partition with a bar for its lag, the largest one in full."""
    drawn = bars([partition.lag or 0 for partition in partitions], [""] * len(partitions))
    return [(partition, bar) for partition, (_, _, bar) in zip(partitions, drawn, strict=True)]


# ---- settings


@dataclass(frozen=True)
class Setting:
    """One setting of a table."""

    key: str
    value: str
    #: Where it comes from.
    origin: str


def settings_of(spec: PipelineSpec, table: TableSpec) -> list[Setting]:
    """Returns the settings of a table. A value that equals the default counts as the default."""
    where = f"the table, line {table.line}" if table.line else "the table"

    settings: list[Setting] = []
    for name, fields in _leaves(TABLE_KEYS, table):
        value, origin = _at(table, fields), where
        if spec.defaults is not None and _at(spec.defaults, fields) == value:
            origin = "`defaults`"
        if fields[0] in ("commit", "maintenance") and _at(spec, fields) == value:
            origin = f"`{fields[0]}` of the pipeline"
        is_default = value == _default(fields, table)
        text = _value_text(fields[-1], _at(table, fields[:-1]), value)
        if name == "mode" and table.changes.keeps_history:
            text = "history"  # Once the file is read it is an upsert table that keeps history.
        settings.append(Setting(name, text, "default" if is_default else origin))
    return settings


def _leaves(
    keys: Mapping[str, Key], model: BaseModel, prefix: str = "", outer: tuple[str, ...] = ()
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the keys with a value of their own, with the path of each in the file and among the fields of models."""
    for name, declared in keys.items():
        fields = tuple(declared.field.split("."))
        value = _at(model, fields)
        if name in _SECTIONS and isinstance(value, BaseModel):
            yield from _leaves(keys_of(type(value)), value, f"{prefix}{name}.", (*outer, *fields))
        elif name != "topic":  # What it has is in `topics`.
            yield f"{prefix}{name}", (*outer, *fields)


def _at(model: BaseModel, fields: tuple[str, ...]) -> Any:
    return reduce(getattr, fields, model)


def _default(fields: tuple[str, ...], table: TableSpec) -> Any:
    if fields == ("layout", "format_version"):
        return _FORMATS[table.changes.mode]
    if fields == ("metadata",) and table.changes.mode == "upsert":
        key = {} if table.changes.key_columns else {"key": "_key"}  # The record's key identifies the rows.
        return {**key, **{name: name for name in HISTORY if table.changes.keeps_history}}
    return _at(_UNSET, fields)


def _value_text(field: str, model: BaseModel, value: Any) -> str:
    if type(model).model_fields[field].exclude:
        return _SECRET if value else "–"
    if value is None or value == "" or value == () or value == {}:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(model, SourceSpec) and value is model.topics:
        return ", ".join(str(topic.literal or f"/{topic.pattern}/") for topic in model.topics)
    if field.endswith("_s"):
        return f"{value:g} s"
    if field.endswith("_bytes"):
        return size(value)
    dumped = model.model_dump(mode="json", include={field})[field]
    return dumped if isinstance(dumped, str) else json.dumps(_without_nothing(dumped), ensure_ascii=False)


def _without_nothing(value: Any) -> Any:
    """Returns a JSON value without the members of objects that have nothing."""
    if isinstance(value, dict):
        return {name: _without_nothing(held) for name, held in value.items() if held not in (None, "", [], {})}
    return [_without_nothing(held) for held in value] if isinstance(value, list) else value
