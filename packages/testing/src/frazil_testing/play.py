"""Plays a case: the service of `frazil run` reads the records on twins in memory, and what its tables have then.

Types are learned from the records of the case alone, and every table begins empty.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyiceberg.schema import Schema as TableSchema
from structlog.testing import capture_logs

from frazil.decode.settings import NEW_KEY, OLD_KEY
from frazil.errors import FrazilError, SpecError, UnavailableError
from frazil.ingest.batches.services import RunTimeouts, Services
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.queries import Queries
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.registry.port import subject_of
from frazil.spec import PipelineSpec, Start, TableSpec, TopicSelector
from frazil.spec.settings import ValueSpec
from frazil.spec.syntax.document import Items, Node, Scalar, Section
from frazil.spec.syntax.keys import whole_number
from frazil.spec.syntax.problems import advice, nearest
from frazil_testing.case_file import Case, CaseFile, CaseRecord
from frazil_testing.encoding import (
    Encoder,
    SchemaFile,
    WrongValue,
    bytes_of,
    is_null,
    json_text,
    moment_of,
    read_schema,
)
from frazil_testing.memory_catalog import MemoryCatalog
from frazil_testing.memory_kafka import MemorySource
from frazil_testing.memory_registry import MemoryRegistry
from frazil_testing.twins import FakeClock, MemoryJobs, StepWorkers, live_rows

FIRST_MS = 1_767_225_600_000
"""The timestamp of the first record that names none: 2026-01-01. Each further record is a second later."""
_STEP_MS = 1_000
_LONGEST_WAIT_S = 60.0
_GIVEN = "given"


@dataclass(frozen=True)
class PlayedTable:
    """A table at the end of a case."""

    name: str
    #: None where no record has made the table.
    schema: TableSchema | None
    #: The columns that identify a row; empty for an append table.
    key_columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...] = ()
    dead_letters: tuple[Mapping[str, Any], ...] = ()
    #: The columns of dead letters; None without dead letters.
    dead_letter_schema: TableSchema | None = None
    #: How many records changed no row, by what drops or ignores them.
    dropped: Mapping[str, int] = field(default_factory=dict)
    #: Why the table has stopped; empty where it has not.
    stopped: str = ""
    #: Why no record has made the table, although some are neither ignored nor dropped; None where that is not so.
    unmade: UnavailableError | None = None


@dataclass(frozen=True)
class Played:
    """A case at its end."""

    tables: Mapping[str, PlayedTable]
    #: Why not all records were read; empty where they were.
    failure: str = ""
    #: The line of each record, by topic, partition and offset.
    lines: Mapping[tuple[str, int, int], int] = field(default_factory=dict)


class Player:
    """Plays the cases of one file. Its registry keeps their schemas, so that each is compiled once."""

    def __init__(self, spec: PipelineSpec, file: CaseFile, queries: Queries | None) -> None:
        """queries: analyses the queries of tables; None where no table has one."""
        self._spec = spec
        self._file = file
        self.queries = queries
        self._lines: Mapping[tuple[str, int, int], int] = {}
        self._registry = MemoryRegistry()
        self._encoder = Encoder(self._registry)
        naming = spec.registry.naming if spec.registry is not None else "topic"
        self.schemas = Schemas(self._registry, naming)
        self._named = {name: read_schema(path, file.where(1)) for name, path in file.schemas.items()}

    def play(self, case: Case, folder: Path) -> Played:
        """Returns what a case makes of its tables. folder: an empty one for the files of tables.

        Raises: SpecError where a record of the case cannot be written.
        """
        source, catalog, spec = self.produce(case, folder)
        return replace(run(spec, source, catalog, self.schemas, self.queries), lines=self._lines)

    def produce(self, case: Case, folder: Path) -> tuple[MemorySource, MemoryCatalog, PipelineSpec]:
        """Returns topics with the records of a case, a catalog with the tables that are given, and the pipeline that reads
        the topics.

        Raises: as `play`.
        """
        source, catalog = MemorySource(), MemoryCatalog(folder, self._spec.pipeline)
        _give(case.given, catalog.for_pipeline(_GIVEN), folder)
        topics = {self._topic_of(record) for record in case.records}
        spec = played_spec(self._spec, topics, folder, self._file.where(case.line))
        self._lines = self._produce(case.records, spec, source)
        return source, catalog, spec

    def _topic_of(self, record: CaseRecord) -> str:
        if record.topic:
            return record.topic
        tables = [table for table in self._spec.tables if table.name == self._file.table or not self._file.table]
        topics = {selector.literal for table in tables for selector in table.source.topics}
        if len(topics) == 1 and (topic := next(iter(topics))):
            return topic
        near = nearest(self._file.table, [table.name for table in self._spec.tables]) if not tables else None
        if near is not None:
            message, where = f"the pipeline file has no table `{self._file.table}`", self._file.where(1)
            raise SpecError(message, remedy=f"did you mean `{near}`?", where=where)
        remedy = "write `topic: NAME` at the top of the file, or in the record"
        where = self._file.where(record.line)
        raise SpecError("the topic of the record is not known", remedy=remedy, where=where)

    def _produce(
        self, records: Sequence[CaseRecord], spec: PipelineSpec, source: MemorySource
    ) -> dict[tuple[str, int, int], int]:
        """Writes the records; returns the line of each by its topic, partition and offset."""
        lines: dict[tuple[str, int, int], int] = {}
        positions = _Positions()
        for number, record in enumerate(records):
            topic = self._topic_of(record)
            partition = self._number(record, "partition")
            if topic not in source.by_name:
                source.create(topic)
            partitions = source.by_name[topic].partitions
            partitions += [[] for _ in range(partition + 1 - len(partitions))]
            end = source.by_name[topic].end(partition)
            offset = self._number(record, "offset") if "offset" in record.section else end
            try:
                offset = source.produce(
                    topic,
                    partition,
                    self._value(record, topic, spec, number, positions.of(record, topic, number)),
                    self._timestamp(record, number),
                    gap=max(0, offset - end),
                    key=self._key(record, topic, spec),
                    headers=tuple(_headers(record)),
                )
            except (WrongValue, ValueError) as error:
                where = self._file.where(record.line)
                remedy = "correct the record"
                raise SpecError(f"the record cannot be written: {error}", remedy=remedy, where=where) from None
            lines[topic, partition, offset] = record.line
        return lines

    def _number(self, record: CaseRecord, key: str) -> int:
        node = record.section.get(key)
        number = 0 if node is None else whole_number(node)
        if number is None:
            where = self._file.where(record.section.lines[key])
            raise SpecError(f"`{key}` is not a number", remedy="write a whole number from 0 on", where=where)
        return number

    def _timestamp(self, record: CaseRecord, number: int) -> int:
        node = record.section.get("timestamp")
        if node is None:
            return FIRST_MS + number * _STEP_MS
        if isinstance(node, Scalar):
            with suppress(ValueError):
                # -1 is that of a record without one.
                return int(node.text) if node.kind == "integer" else round(moment_of(node.text).timestamp() * 1000)
        raise WrongValue("`timestamp` is neither ISO 8601 nor milliseconds since 1970")

    def _value(self, record: CaseRecord, topic: str, spec: PipelineSpec, number: int, position: int) -> bytes | None:
        section, folder = record.section, self._file.path.parent
        table, schema = table_of(spec, topic), self._schema(record, "schema", "value")
        subject = self._subject(table, topic, is_key=False)
        if schema is not None:  # Exact bytes may have its id too.
            self._encoder.register(table.source.value, schema, subject)
        if "text" in section:
            return _text_of(section["text"])
        if "json" in section:
            return _text_of(section["json"])
        if "bytes" in section:
            return bytes_of(section["bytes"], folder)
        node = section.get("value")
        if node is None:
            node = change_of(section["change"], topic, self._timestamp(record, number), position)
        return self._encoder.encode(node, table.source.value, schema, subject)

    def _key(self, record: CaseRecord, topic: str, spec: PipelineSpec) -> bytes | None:
        node = record.section.get("key")
        if node is None or is_null(node):
            return None
        table, schema = table_of(spec, topic), self._schema(record, "key_schema", "key")
        kind = ValueSpec(format="avro") if schema is not None and table.source.key.format == "raw" else table.source.key
        if isinstance(node, Section) and set(node) <= {"hex", "base64", "file"} and kind.format in ("raw", "text"):
            return bytes_of(node, self._file.path.parent)
        return self._encoder.encode(node, kind, schema, self._subject(table, topic, is_key=True))

    def _subject(self, table: TableSpec, topic: str, *, is_key: bool) -> str:
        value = table.source.key if is_key else table.source.value
        return value.subject or subject_of(topic, is_key)

    def _schema(self, record: CaseRecord, key: str, name: str) -> SchemaFile | None:
        node = record.section.get(key)
        if node is None:
            return self._named.get(name)
        where = self._file.where(record.section.lines[key])
        if not isinstance(node, Scalar):
            raise SpecError(f"`{key}` is not the path of a file", remedy="write the path of a schema", where=where)
        return read_schema(self._file.path.parent / node.text, where)


def _text_of(node: Node) -> bytes | None:
    if is_null(node):
        return None
    if not isinstance(node, Scalar):
        raise WrongValue("the value is not text; write structured values under `value`")
    return node.text.encode()


def _headers(record: CaseRecord) -> Iterator[tuple[str, bytes | None]]:
    node = record.section.get("headers")
    if node is None:
        return
    if not isinstance(node, Section):
        raise WrongValue("`headers` is not a mapping of names to values")
    for name, value in node.items():
        for member in value if isinstance(value, Items) else [value]:
            is_text = isinstance(member, Scalar)
            yield name, None if is_null(member) else (member.text if is_text else json_text(member)).encode()  # type: ignore[union-attr]


class _Positions:
    """The positions of changes in the log of their source: they count up, and the two parts of a primary-key update, which
    Debezium's headers name, have one.
    """

    def __init__(self) -> None:
        #: By topic and the header of the other part the positions of parts that have been alone so far.
        self._alone: dict[tuple[str, str], list[int]] = {}

    def of(self, record: CaseRecord, topic: str, number: int) -> int:
        """Returns the position of a record. number: of the record in its case."""
        headers = record.section.get("headers")
        for own, other in ((NEW_KEY, OLD_KEY), (OLD_KEY, NEW_KEY)):
            if isinstance(headers, Section) and own in headers and "change" in record.section:
                if alone := self._alone.get((topic, own)):
                    return alone.pop(0)
                self._alone.setdefault((topic, other), []).append(number + 1)
        return number + 1


def change_of(node: Node, topic: str, timestamp_ms: int, position: int) -> Section:
    """Returns a change as Debezium writes it. node: `before`, `after`, and what else its envelope has. position: in the
    log of the source.

    Raises: WrongValue.
    """
    if not isinstance(node, Section):
        raise WrongValue("`change` is not a mapping; write `change: {before: {…}, after: {…}}`")

    def scalar(text: str, kind: str = "text") -> Scalar:
        return Scalar(text, kind, node.line)  # type: ignore[arg-type]

    nothing = scalar("null", "nothing")
    before, after = node.get("before", nothing), node.get("after", nothing)
    op = "d" if is_null(after) else "c" if is_null(before) else "u"
    moment = scalar(str(timestamp_ms), "integer")
    source: dict[str, Node] = {
        "connector": scalar("postgresql"),
        "name": scalar(topic.partition(".")[0]),
        "table": scalar(topic.rpartition(".")[2]),
        "ts_ms": moment,
        "lsn": scalar(str(position), "integer"),
    }
    given = node.get("source")
    source |= given if isinstance(given, Section) else {}
    values: dict[str, Node] = {"before": before, "after": after, "op": scalar(op), "ts_ms": moment, **node}
    values["source"] = Section(source, node.line, dict.fromkeys(source, node.line))
    return Section(values, node.line, {key: node.lines.get(key, node.line) for key in values})


# ---- the pipeline


def table_of(spec: PipelineSpec, topic: str) -> TableSpec:
    """Returns the settings under which a topic is read."""
    for table in spec.declared:
        if any(selector.matches(topic) for selector in table.source.topics):
            return table
    return spec.table_for(topic)


def played_spec(spec: PipelineSpec, topics: Iterable[str], folder: Path, where: str) -> PipelineSpec:
    """Returns the pipeline with what reads these topics alone, from their beginnings. where: of the case.

    Raises: SpecError for a topic that nothing reads.
    """
    topics = sorted(topics)

    def reads(table: TableSpec) -> bool:
        return any(selector.matches(topic) for selector in table.source.topics for topic in topics)

    def begun(table: TableSpec) -> TableSpec:
        dead_letters = table.bad_records.dead_letters.model_copy(update={"topic": None})
        copy = table.model_copy(update={"start": Start(), "dead_letters": dead_letters})
        return copy.with_stages(lambda stage: stage.in_folder(f"{folder.as_uri()}/beside"))

    selectors = [*spec.new_topics, *(selector for table in spec.tables for selector in table.source.topics)]
    for topic in topics:
        if not any(selector.matches(topic) for selector in selectors):
            remedy = advice(topic, [selector.text for selector in selectors])
            raise SpecError(f"no table reads the topic `{topic}`", remedy=remedy, where=where)
    return spec.model_copy(
        update={
            "tables": tuple(map(begun, filter(reads, spec.tables))),
            "routes": tuple(filter(reads, spec.routes)),
            "topics": tuple(s for s in spec.selected.topics if any(map(s.matches, topics))),
            "follows_topic_keys": False,
            "state_dir": folder,
            "ha": None,
        }
    )


def run(
    spec: PipelineSpec, source: MemorySource, catalog: MemoryCatalog, schemas: Schemas | None, queries: Queries | None
) -> Played:
    """Reads all records of the topics, and returns the tables then."""
    clock = FakeClock(FIRST_MS)
    jobs = MemoryJobs(source, queries=queries)
    services = Services(source, catalog, jobs, clock, StepWorkers(clock), schemas, reader=source, queries=queries)
    service = Service(spec, services, "case", lambda _: None)
    failure = ""
    with capture_logs():
        try:
            service.run(until_caught_up=True, timeouts=RunTimeouts(clock, _LONGEST_WAIT_S))
        except FrazilError as error:
            failure = f"{error.message}; {error.remedy}"
    tables = {table.name: _played(table, catalog, spec.pipeline) for table in service.tables}
    return Played(tables, "" if any(table.stopped for table in tables.values()) else failure)


def _played(table: Table, catalog: MemoryCatalog, pipeline: str) -> PlayedTable:
    state = catalog.load(table.name)
    bad_table = table.spec.bad_records.dead_letters.table or f"{table.name}__dead_letters"
    bad_state = catalog.load(bad_table)
    is_stopped = table.status.run_state is RunState.STOPPED
    stopped = "; ".join(filter(None, (table.status.reason, table.status.remedy))) if is_stopped else ""
    if state is None:
        status, dropped = table.status, dict(table.bad_records.ignored_records)
        is_unmade = status.run_state is RunState.BACKING_OFF
        unmade = UnavailableError(status.reason, remedy=status.remedy, where=status.where) if is_unmade else None
        return PlayedTable(table.name, None, (), dropped=dropped, stopped=stopped, unmade=unmade)
    keys = {state.schema.find_column_name(number) or "" for number in state.schema.identifier_field_ids}
    return PlayedTable(
        table.name,
        state.schema,
        tuple(sorted(keys)) if table.spec.changes.mode == "upsert" else (),
        tuple(live_rows(catalog, table.name)),
        tuple(live_rows(catalog, bad_table)) if bad_state is not None else (),
        bad_state.schema if bad_state is not None else None,
        _dropped(catalog, table.name, pipeline),
        stopped,
    )


def _dropped(catalog: MemoryCatalog, table: str, pipeline: str) -> dict[str, int]:
    """Returns the records that the commits of a table have dropped, by what dropped them."""
    dropped = Counter[str]()
    for summary in catalog.summaries(table):
        balance = json.loads(summary.get(f"frazil.{pipeline}.balance", "{}"))
        dropped.update({name: int(count) for name, count in balance.get("dropped", {}).items()})
    return dict(sorted(dropped.items()))


def _give(given: Mapping[str, Items], catalog: MemoryCatalog, folder: Path) -> None:
    """Creates tables with rows, such as those of lookups, as a pipeline of its own writes them from JSON."""
    if not given:
        return
    source = MemorySource()
    for name, rows in given.items():
        source.create(name)
        for row in rows:
            source.produce(name, 0, json_text(row).encode(), FIRST_MS)
    tables = tuple(TableSpec(name=name, topics=(TopicSelector(literal=name),)) for name in given)
    spec = PipelineSpec(
        pipeline=_GIVEN,
        kafka={"bootstrap.servers": "memory:1"},
        tables=tables,
        path=folder / "given.yaml",
        state_dir=folder,
    )
    run(spec, source, catalog, None, None)
