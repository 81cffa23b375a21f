"""The status of a pipeline: what its process records in the state file, and what `frazil status` and the API show of it.

As in `table_status`, fields are keys and their comments the meanings in `docs/reference/output.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from frazil.ingest.loop.leadership import LeadershipState
from frazil.ingest.loop.published_offsets import Published
from frazil.ops.json_records import object_schema, schema_of, to_json
from frazil.ops.reports import Problem
from frazil.ops.table_status import SHOWN, Milliseconds, TableStatus, table_document


@dataclass(frozen=True)
class ProcessState:
    """What a process records of itself and its tables; what is not known has its default."""

    pid: Annotated[int, Field(gt=0, lt=2**31)] | None = None
    host: str = ""
    #: When the process was started, in clock ticks since boot.
    started: str | None = None
    #: The address of the catalog that has the tables.
    catalog: str = ""
    ended: bool = False
    updated_ms: Milliseconds | None = None
    leadership: LeadershipState | None = None
    published_offsets: Published | None = None
    tables: Mapping[str, TableStatus] = field(default_factory=dict)

    def table(self, name: str) -> TableStatus:
        """Returns the status of a table; of one that the process has not recorded nothing is known."""
        return self.tables.get(name) or TableStatus(name)


@dataclass(frozen=True)
class Process:
    """The process that runs the pipeline, or ran it last."""

    #: Whether the process is running.
    is_running: Annotated[bool, Field(alias="running")] = False
    #: Whether the process is running and has not written its state for a minute.
    is_silent: Annotated[bool, Field(alias="silent")] = False
    #: The process id.
    pid: int | None = None
    #: The host of the process.
    host: str = ""
    #: When the process last wrote its state.
    updated_ms: Milliseconds | None = None


@dataclass(frozen=True)
class PipelineReport:
    """The status of the whole pipeline."""

    #: The pipeline's name.
    pipeline: str
    #: The process that runs the pipeline, or the last one that did.
    process: Process
    #: Problems of more than one table: `message`, `remedy` and `where`.
    problems: tuple[Problem, ...]
    #: The tables by name.
    tables: Annotated[tuple[TableStatus, ...], "object"]
    #: The time of the report.
    now_ms: Milliseconds
    #: The [processes of the pipeline](../operate/standby.md) and who leads them; null while none runs.
    leadership: LeadershipState | None = None
    #: The offsets for [lag tools](../operate/lag.md): the consumer group `group`, `last_ms` when it last had them, and
    #: `failure`, why not; null while none runs, and with `publish_offsets: false`.
    published_offsets: Published | None = None

    @property
    def is_well(self) -> bool:
        """Whether the pipeline needs no operator. A process that does not run, and unread records, are not a problem."""
        return not self.problems and all(table.derived.is_well for table in self.tables)

    def document(self) -> dict[str, Any]:
        """Returns the JSON of the report."""
        return as_document(self)


def pipeline_document(report: PipelineReport) -> dict[str, Any]:
    """Returns the JSON of the report without its tables."""
    return {"ok": report.is_well, **to_json(report, "tables")}


def tables_document(report: PipelineReport) -> dict[str, Any]:
    """Returns the JSON of the tables, by name."""
    return {table.name: table_document(table, SHOWN) for table in report.tables}


def as_document(report: PipelineReport) -> dict[str, Any]:
    """Returns the JSON of the report."""
    return {**pipeline_document(report), "tables": tables_document(report)}


def pipeline_schema() -> dict[str, Any]:
    """Returns the JSON Schema of the pipeline's document without its tables."""
    properties = schema_of(PipelineReport)["properties"]
    del properties["tables"]
    return object_schema({"ok": {"type": "boolean"}, **properties})
