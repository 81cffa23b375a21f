"""Plays a case: a pipeline file reads a topic on the twins in memory, in two runs; and what is in its tables then, as text.

Only what users promise to see is looked at: rows, schemas, commits, dead letters and log events.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, time
from decimal import Decimal
from functools import cache
from hashlib import blake2b
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any
from uuid import UUID

from structlog.testing import capture_logs

from frazil.errors import SpecError
from frazil.ingest.batches.services import RunTimeouts, Services
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.queries import SparkQueries
from frazil.ingest.tables.schemas import Schemas
from frazil.runtime.light_jvm import LightJvm
from frazil.spec import load_spec
from frazil.types import as_json
from frazil_testing.memory_registry import MemoryRegistry
from frazil_testing.twins import FakeClock, MemoryCatalog, MemoryJobs, MemorySource, StepWorkers, live_rows
from tests.corpus.settings import FOLDER, LABELS, Setting
from tests.corpus.topics import TOPIC, Stream

PIPELINE = "p"
_ENVIRONMENT = {"PROTECT_KEY": "k" * 32}
_LONGEST_WAIT_S = 60.0
_CHANGING_KEYS = frozenset(
    (
        "topic-ids",
        "cluster-id",
        "commit-id",
        "epoch",
        "run-id",
        "dead-letters",
        "lookups",
        "balance",
        "watermarks",
        "ledger",
    )
)
"""Keys of a commit's summary that differ from run to run, or that are shown otherwise."""
_CHANGING_FIELDS = frozenset(
    ("log_level", "event", "took_s", "retry_in_s", "lag_records", "exc_info", "cluster_id", "epoch", "interval_s")
)
"""Fields of a log event that differ from run to run."""
_QUIET_EVENTS = frozenset(("connected", "batch_committed", "batch_planned", "settings_ignored"))
_CHANGING_METRICS = frozenset(("file-path", "file-size-in-bytes", "split-offsets", "column-sizes"))
_DEAD_LETTER_BYTES = ("key", "value", "headers")


@dataclass(frozen=True)
class Line:
    """A row or a dead letter as text. block: where it is looked for."""

    block: str
    text: str


@dataclass
class PlayedTable:
    """A table at the end of a case."""

    name: str
    #: What is known of it besides rows: columns, commits, files.
    facts: list[str] = field(default_factory=list)
    #: Rows in the order of files.
    rows: list[Line] = field(default_factory=list)
    #: Dead letters by class and path: the block.
    dead_letters: list[Line] = field(default_factory=list)


@dataclass
class Played:
    """A case at its end."""

    #: The log and the errors of the runs.
    events: list[str] = field(default_factory=list)
    tables: list[PlayedTable] = field(default_factory=list)
    record_count: int = 0


@cache
def _queries() -> SparkQueries:
    """Returns what analyses queries, in a JVM that starts with the first query and ends with this process."""

    @cache
    def gateway() -> Any:
        jvm = LightJvm({}, needs_spark_jars=True)
        Finalize(None, jvm.close, exitpriority=1)
        return jvm.gateway.jvm

    return SparkQueries(gateway)


class _Pipeline:
    """A pipeline file with its services in memory, in a folder of its own."""

    def __init__(self, folder: Path, stream: Stream, file: Mapping[str, Any]) -> None:
        """Raises SpecError where the file is refused."""
        self._folder, self._stream = folder, stream
        (folder / "labels.csv").write_text(LABELS)
        document = {
            "pipeline": PIPELINE,
            "kafka": {"bootstrap.servers": "localhost:9092"},
            "registry": {"url": "http://localhost:8081"},
            **file,
        }
        path = folder / "pipeline.yaml"
        path.write_text(json.dumps(document, ensure_ascii=False).replace(FOLDER, str(folder)))
        self.spec = load_spec(path, _ENVIRONMENT).model_copy(update={"state_dir": folder})
        self.source, self.catalog, registry = MemorySource(), MemoryCatalog(folder, PIPELINE), MemoryRegistry()
        self.source.create(TOPIC, stream.partitions)
        for one in stream.schemas:
            registry.register(one.kind, one.text, subject=one.subject)  # type: ignore[arg-type]
        self._schemas = Schemas(registry)
        self._sent = 0
        self.tables: list[str] = []
        self.events: set[str] = set()

    def run(self, until: int, chunk: int, tasks: int) -> None:
        """Produces the records up to a number of them, and reads them in chunks, in so many tasks."""
        for one in self._stream.records[self._sent : until]:
            self.source.produce(one.topic, one.partition, one.value, one.timestamp_ms, key=one.key, headers=one.headers)
        self._sent = until
        clock = FakeClock()
        services = Services(
            self.source,
            self.catalog,
            MemoryJobs(self.source, chunk, tasks),
            clock,
            StepWorkers(clock),
            self._schemas,
            reader=self.source,
            queries=_queries(),
        )
        service = Service(self.spec, services, f"run-{chunk}", lambda _: None)
        with capture_logs() as logs:
            try:
                service.run(until_caught_up=True, timeouts=RunTimeouts(clock, _LONGEST_WAIT_S))
            except Exception as error:  # noqa: BLE001  (an answer like others)
                self._add(f"{type(error).__name__}: {error}")
        for log in logs:
            if log["event"] not in _QUIET_EVENTS and log["log_level"] != "debug":
                fields = {name: value for name, value in log.items() if name not in _CHANGING_FIELDS}
                self._add(f"{log['log_level']} {log['event']} {json.dumps(fields, sort_keys=True, default=str)}")
        self.tables = [table.name for table in service.tables]

    def _add(self, event: str) -> None:
        self.events.add(event.replace(str(self._folder), FOLDER))


def play(stream: Stream, setting: Setting, folder: Path) -> Played:
    """Plays a stream under a setting, in an empty folder."""
    played = Played(record_count=len(stream.records))
    try:
        pipeline = _Pipeline(folder, stream, setting.file(stream))
    except SpecError as error:
        refusals = [error, *error.others]
        played.events = [f"refused: {one.message} / {one.remedy}" for one in refusals]
        return played
    half = len(stream.records) // 2
    pipeline.run(half, 150, 1)
    first = {name: _columns(pipeline.catalog, name) for name in pipeline.tables}
    pipeline.run(len(stream.records), 60, 2)
    played.events = sorted(pipeline.events)
    for name in pipeline.tables:
        if pipeline.catalog.load(name) is None:
            played.tables.append(PlayedTable(name, ["no table"]))
            continue
        played.tables.append(_played(pipeline, name, first.get(name, {})))
    return played


def _played(pipeline: _Pipeline, name: str, first: Mapping[str, str]) -> PlayedTable:
    catalog = pipeline.catalog
    table = PlayedTable(name, [*_layout(catalog, name)])
    for column, text in _columns(catalog, name).items():
        mark = " " if first.get(column) == text else "+" if column not in first else "~"
        table.facts.append(f"{mark} {text}")
    table.facts += _commits(catalog, name)
    table.facts += _files(catalog, name)
    for place, row in enumerate(live_rows(catalog, name)):
        table.rows.append(_row(place, row))
    dead_letters = f"{name}__dead_letters"
    if catalog.load(dead_letters) is not None:
        is_sealed = any(one.protection.protect for one in (*pipeline.spec.tables, *pipeline.spec.routes))
        table.dead_letters = [_dead_letter(row, is_sealed) for row in live_rows(catalog, dead_letters)]
    return table


def _layout(catalog: MemoryCatalog, name: str) -> Iterator[str]:
    state = catalog.load(name)
    assert state is not None
    parts = [f"{one.name}={one.transform}({one.source_id})" for one in state.partitioning.fields]
    order = [f"{one.transform}({one.source_id}) {one.direction} {one.null_order}" for one in state.sorting.fields]
    identifiers = sorted(state.schema.identifier_field_ids)
    yield f"format {state.format_version}, partitions {parts}, order {order}, identifiers {identifiers}"


def _columns(catalog: MemoryCatalog, name: str) -> dict[str, str]:
    """Returns each column with its id, type and comment; none of a table that does not exist."""
    state = catalog.load(name)
    if state is None:
        return {}
    return {
        one.name: f"{one.field_id} {one.name}: {one.field_type}{' required' if one.required else ''}"
        + (f" ({one.doc})" if one.doc else "")
        for one in state.schema.fields
    }


def _commits(catalog: MemoryCatalog, name: str) -> list[str]:
    prefix = f"frazil.{PIPELINE}."
    summaries = [dict(one.summary) for one in reversed(catalog.ancestors(name))]
    commits = [f"commit {one[f'{prefix}balance']}" for one in summaries if f"{prefix}balance" in one]
    last = {key.removeprefix(prefix): text for key, text in summaries[-1].items()} if summaries else {}
    return [*commits, *(f"{key} {last[key]}" for key in sorted(last.keys() - _CHANGING_KEYS))]


def _files(catalog: MemoryCatalog, name: str) -> list[str]:
    """Returns how many rows each partition has, with a digest of the statistics of its files."""
    parts: dict[str, list[Mapping[str, Any]]] = {}
    deletes: dict[str, int] = {}
    for file in catalog.scan(name).files:
        described = json.loads(file.content)
        parts.setdefault(as_json(described.get("partition")), []).append(described)
        for delete in file.deletes:
            deletes[delete.kind] = deletes.get(delete.kind, 0) + delete.record_count
    shown = []
    for part, files in sorted(parts.items()):
        kept = [{key: one for key, one in file.items() if key not in _CHANGING_METRICS} for file in files]
        shown.append(f"files {part}: {[file['record-count'] for file in files]} {digest(map(as_json, kept))}")
    return [*shown, *(f"deleted by {kind}: {count}" for kind, count in sorted(deletes.items()))]


def _row(place: int, row: Mapping[str, Any]) -> Line:
    values = {name: value for name, value in row.items() if value is not None}
    if "_partition" not in values or "_offset" not in values:
        return Line(f"row {place // 100 * 100:03}", shown(values))
    partition, offset = values.pop("_partition"), values.pop("_offset")
    return Line(f"{partition}/{offset // 100 * 100:03}", f"{partition}/{offset} {shown(values)}")


def _dead_letter(row: Mapping[str, Any], is_sealed: bool) -> Line:
    """Returns a dead letter. is_sealed: whether its bytes are encrypted, each time in other ways."""
    values = {name: value for name, value in row.items() if value is not None and name != "frazil_version"}
    block = f"{values.pop('error_class')} {values.pop('path', '')!r}"
    place, message = f"{values.pop('partition')}/{values.pop('offset')}", values.pop("message")
    if is_sealed:
        values = {name: value for name, value in values.items() if name not in _DEAD_LETTER_BYTES}
    return Line(block, f"{place} {message} {shown(values)}")


def shown(value: Any) -> str:
    """Returns a value of a row as text; types that differ are written in other ways."""
    match value:
        case bytes():
            return f"x'{value.hex()}'"
        case date() | time():
            return value.isoformat()
        case dict():
            return "{" + ", ".join(f"{name}: {shown(one)}" for name, one in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(shown, value)) + "]"
        case tuple():
            return " -> ".join(map(shown, value))
        case Decimal() | UUID():
            return str(value)
    return json.dumps(value, ensure_ascii=False)


def digest(texts: Iterable[str]) -> str:
    """Returns a short digest of texts in their order."""
    made = blake2b(digest_size=4)
    for text in texts:
        made.update(text.encode(errors="surrogatepass"))
        made.update(b"\n")
    return made.hexdigest()
