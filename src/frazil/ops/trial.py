"""What a run would make of records that are in a table's topics now: for `frazil try`.

The table is a copy in memory, which gets the columns that the records need, as a run would give them to the table. Each
record is then read as a task reads it. Nothing is written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema

from frazil.catalog.memory import MemoryCatalog
from frazil.catalog.port import Catalog
from frazil.dead_letters.requirements import Needs, meet
from frazil.decode.columns import Decoded
from frazil.decode.json.slices import MAX_MISMATCHES
from frazil.decode.json_texts import json_text
from frazil.decode.limits import read_bounded
from frazil.decode.lossless import format_type
from frazil.errors import InvariantError, SpecError, UnavailableError
from frazil.ingest.discovery import Discovery
from frazil.ingest.queries import Queries, QueryTables
from frazil.ingest.schema_changes import CLASH_REMEDY, accept_columns, adder, checked_change
from frazil.ingest.schema_updates import NewTables
from frazil.ingest.schemas import Schemas
from frazil.ingest.shares import shares_of
from frazil.ingest.table import Table, set_key_columns
from frazil.ingest.target import target_of
from frazil.ingest.task import ReadRecords, read_records
from frazil.ingest.task_job import Job, quoting_no_record
from frazil.ingest.topics import missing_topics
from frazil.kafka.port import ReadRecord, Source
from frazil.ops.sampling import batch_of, routed_sample
from frazil.ops.status import MissingTopics
from frazil.process.evaluate import evaluate
from frazil.process.program import Field, Program, Project
from frazil.process.protect import protecting
from frazil.rows.decoder import fields_requested_by_rows
from frazil.rows.protected import origins_of
from frazil.rows.query_rows import input_columns
from frazil.schema.arrow import Records, pick
from frazil.schema.evolve import NameConflict, merge_requested_fields
from frazil.spec import PipelineSpec
from frazil.spec.problems import nearest
from frazil.types import OffsetRange
from frazil.upsert.changes import DELETE, TRUNCATE, UPSERT
from frazil.upsert.query_changes import read_upserts
from frazil.upsert.records.read_changes import rows_of
from frazil.write.target import TableTarget

_APPEND = "append"
_CHANGES = {UPSERT: "upsert", DELETE: "delete", TRUNCATE: "truncate"}
Row = dict[str, Any]
LEARNED_RECORDS = 1_000
"""The number of records whose fields and types are learned; those that are shown are a part of them."""
_ROUNDS = 20
_WIDER = 10
ReadSample = Callable[[list[OffsetRange]], list[ReadRecord]]
_Owned = list[tuple[ReadRecord, str]]


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

    error_class: str
    #: Path of the field, or the column; empty for the whole record.
    path: str
    message: str


@dataclass(frozen=True)
class TriedRecord:
    """What becomes of one record."""

    record: ReadRecord
    #: The table that it goes to.
    table: str
    #: Its fields as a query sees them, for each row in it; empty where it cannot be read. Protected fields are protected.
    input: tuple[Row, ...] = ()
    output: tuple[TriedChange, ...] = ()
    #: The names of what drops or ignores it.
    dropped: tuple[str, ...] = ()
    error: TriedError | None = None
    #: Its value as Kafka has it, where it cannot be read and its table protects nothing.
    value: bytes | None = None

    @property
    def outcome(self) -> str:
        """`written`, `dropped` or `failed`."""
        if self.error is not None:
            return "failed"
        return "written" if self.output else "dropped"


def read_columns(target: TableTarget, topic: str, records: Records) -> ReadRecords:
    """Returns some records of a topic as a task reads them."""
    if target.changes is None:
        return read_records(target, records)
    changes = read_upserts(target, topic, records, MAX_MISMATCHES)
    return ReadRecords(changes.decoded, changes)


def try_record(target: TableTarget, record: ReadRecord) -> TriedRecord:
    """Returns what becomes of a record in a table that has all columns which the record needs.

    Raises: RuntimeError, which quotes no record, in place of another exception where the table protects fields.
    """
    with quoting_no_record(Job({record.topic: target})):
        read_one = partial(read_columns, target, record.topic)
        ((_, columns, read),) = read_bounded(batch_of([record]), read_one, target.reading.columns_left)
        seen = _input(target, record.topic, columns)
        dropped = tuple(sorted(name for name, count in read.ignored_records.items() if count))
        if not read.decoded.refused.any():
            output = tuple(_output(target, columns, read))
            return TriedRecord(record, target.name, seen, output, dropped)
        first = read.decoded.mismatches[0]
        error = TriedError(first.kind, first.path, first.reason)
        value = record.value if not seen and target.protection is None else None
        return TriedRecord(record, target.name, seen, error=error, value=value)


def _input(target: TableTarget, topic: str, records: Records) -> tuple[Row, ...]:
    """Returns the fields of the rows in a record, as the table's query sees them."""
    source = target.source or target
    read = read_columns(source, topic, records)
    if read.decoded.refused.any() or (read.ignored is not None and read.ignored.any()):
        return ()
    if read.changes is None:
        found = input_columns(source, read.decoded.columns, records, {})
    else:
        changes = read.changes
        found = input_columns(source, changes.columns, pick(records, changes.records), changes.own)
    if target.protection is not None:
        found = _protected(target, source, found)
    return tuple(_documents(found))


def _protected(target: TableTarget, source: TableTarget, columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Returns the columns that the table's schema of records has, protected."""
    assert target.protection is not None
    known = {name: column for name, column in columns.items() if name in source.arrow_schema.names}
    stage = protecting(source.schema, target.protection, origins_of(source))
    if stage is None:
        return known
    kept = tuple(one for one in stage.columns if one[0] in known)
    program = Program((Project(kept),), tuple(Field(name, expression.type) for name, expression in kept))
    count = len(next(iter(columns.values())))
    made = evaluate(program, known, count).columns
    return {name: column for (name, _), column in zip(kept, made, strict=True)}


def _output(target: TableTarget, records: Records, read: ReadRecords) -> Iterator[TriedChange]:
    """Yields what a good record changes in the table."""
    if target.changes is None or read.changes is None:
        rows = read.rows(target, records)
        yield from (TriedChange(_APPEND, row) for row in _documents(_by_name(rows)))
        return
    changes = read.changes
    rows = rows_of(target, changes, pick(records, changes.records))
    keys = {path[0] for path in target.changes.paths}
    unavailable = {target.fields[n].name: mask for n, mask in changes.unavailable.items()}
    for number, row in enumerate(_documents(_by_name(rows))):
        op = int(changes.ops[number])
        absent = {name for name, mask in unavailable.items() if mask[number]}
        absent |= row.keys() - keys if op == DELETE else row.keys() if op == TRUNCATE else set()
        yield TriedChange(_CHANGES[op], {name: value for name, value in row.items() if name not in absent})


def _by_name(rows: pa.Table) -> dict[str, pa.Array]:
    return {name: rows.column(name).combine_chunks() for name in rows.column_names}


def _documents(columns: dict[str, pa.Array]) -> Iterator[Row]:
    """Yields the rows as JSON."""
    for row in range(len(next(iter(columns.values()), ()))):
        yield {name: json.loads(json_text(column[row])) for name, column in columns.items()}


@dataclass(frozen=True)
class TriedTable:
    """What becomes of some records of a table's topics."""

    name: str
    #: The table's columns, with their types in the notation of a pipeline file.
    columns: tuple[tuple[str, str], ...] = ()
    #: In the order of their timestamps.
    records: tuple[TriedRecord, ...] = ()
    #: The number of records by outcome.
    counts: Counter[str] = field(default_factory=Counter)


class Trial:
    """Reads records of a pipeline's tables. schemas: None without a registry. queries: None where no table has one."""

    def __init__(
        self,
        spec: PipelineSpec,
        source: Source,
        catalog: Catalog,
        read_sample: ReadSample,
        schemas: Schemas | None = None,
        queries: Queries | None = None,
    ) -> None:
        self._spec = spec
        self._source = source
        self._catalog = catalog
        self._read_sample = read_sample
        self._schemas = schemas
        self._discovery = Discovery(spec, source, catalog)
        self._copies = MemoryCatalog(spec.state_dir, spec.pipeline)
        self._queries = QueryTables(self._copies, queries)

    def run(self, name: str, count: int, *, is_oldest: bool = False) -> TriedTable:
        """Returns what becomes of the newest, or the oldest, records of a table. Records of the table of the rest are all
        that its route reads, each with the table that it goes to.

        Raises: SpecError for a table that the pipeline does not have or cannot have; UnavailableError where a service does
        not answer, a topic is missing, the query names a field that no record has had, or no record has a field.
        """
        self._discovery.refresh_topics()
        self._discovery.add_named()
        self._discovery.load_routes()
        table = self._find(name)
        self._refuse_missing(table)
        owned = self._owned(table, self._sample(table, count, is_oldest))
        if not _is_rest(table):
            owned = [(record, owner) for record, owner in owned if owner == name]
        shown = owned[:count] if is_oldest else owned[-count:]
        tables = self._discovery.tables
        for owner in sorted({name, *(owner for _, owner in shown)}):
            self._settle(tables[owner], [record for record, mine in owned if mine == owner])
        tried = tuple(try_record(target_of(tables[owner]), record) for record, owner in shown)
        for one in tried:
            if one.outcome == "dropped" and not one.dropped:  # There is no column that it could have a value in.
                message = "no record has a field yet, so the table has no column"
                remedy = "produce records with fields, or declare `columns`"
                raise UnavailableError(message, remedy=remedy, where=one.table)
        schema = table.state.schema if table.state is not None else Schema()
        columns = tuple((one.name, format_type(one.field_type)) for one in schema.fields)
        return TriedTable(name, columns, tried, Counter(one.outcome for one in tried))

    # ---- which records

    def _find(self, name: str) -> Table:
        """Returns a table, also one that a route would make of its newest records."""
        tables = self._discovery.tables
        for rest in [one for one in tables.values() if _is_rest(one)] if name not in tables else ():
            self._owned(rest, self._sample(rest, LEARNED_RECORDS, is_oldest=False))
        if name in tables:
            return tables[name]
        near = nearest(name, tables)
        hint = f"did you mean `{near}`?" if near else "see the tables in the pipeline file"
        raise SpecError(f"the pipeline has no table `{name}`", remedy=hint)

    def _refuse_missing(self, table: Table) -> None:
        if table.offsets.topics:
            return
        for _, topic in missing_topics([table]):
            problem = MissingTopics(self._source).problem(topic)
            raise UnavailableError(problem.message, remedy=problem.remedy, where=problem.where)

    def _sample(self, table: Table, count: int, is_oldest: bool) -> list[ReadRecord]:
        """Returns the newest, or the oldest, records of a table's topics by timestamp: at least `count` where there are as
        many; offsets without a record, as those of transactions and of compacted topics, do not count.
        """
        partitions = table.partitions()
        starts, ends = self._source.beginnings(partitions), self._source.ends(partitions)
        whole = [OffsetRange(*place, starts[place], ends[place]) for place in sorted(starts.keys() & ends.keys())]
        span = max(count, LEARNED_RECORDS // max(1, len(whole)))
        while True:
            cut = _first if is_oldest else _last
            ranges = [cut(one, span) for one in whole]
            found = self._read_sample([one for one in ranges if one.span])
            if len(found) >= count or ranges == whole:
                return sorted(found, key=lambda one: (one.timestamp_ms or 0, one.topic, one.partition, one.offset))
            span *= _WIDER

    def _owned(self, table: Table, records: Sequence[ReadRecord]) -> _Owned:
        """Returns the records, each with the name of the table that takes it. Tables that a route would make of them are
        added to those of the pipeline.
        """
        if table.spec.route is None:
            return [(record, table.name) for record in records]
        tables = self._discovery.tables
        rest = tables[table.spec.route.rest]
        routed_sample(rest, records, self._schemas)
        self._discovery.add_found(rest)
        routes = [one for one in tables.values() if one.spec.route is not None and one.spec.route.rest == rest.name]
        targets, owners = [target_of(one) for one in routes], dict[tuple[str, int, int], str]()
        for topic in {one.topic for one in records}:
            batch = batch_of([one for one in records if one.topic == topic])
            for share in shares_of(targets, topic, batch, {}):
                own = share.records
                places = zip(own.column("partition").to_pylist(), own.column("offset").to_pylist(), strict=True)
                owners |= {(topic, partition, offset): share.target.name for partition, offset in places}
        return [(one, owners[one.topic, one.partition, one.offset]) for one in records]

    # ---- the table

    def _settle(self, table: Table, records: Sequence[ReadRecord]) -> None:
        """Gives the copy of a table the schemas and the columns that the records need.

        Raises: as `run`.
        """
        state = self._catalog.load(table.name)
        if state is not None:
            self._copies.adopt(state)
            table.state = NewTables(self._copies, self._queries).with_declared(table, state)
            table.state = self._queries.load(table) if table.spec.has_query else table.state
        for _ in range(_ROUNDS):
            needs = self._needs(table, records)
            is_new = table.state is None and not needs.missing
            if is_new and (needs.requested_fields or table.spec.columns or table.spec.metadata):
                self._create(table, needs)
            elif is_new or needs.is_met:
                return
            else:
                meet(self._copies, self._queries, self._schemas, table, needs)
        raise InvariantError("the records need one schema change after another", where=table.name)

    def _needs(self, table: Table, records: Sequence[ReadRecord]) -> Needs:
        target, needs = target_of(table), Needs()
        fixed = (target.source or target).fixed
        for topic in sorted({one.topic for one in records}):
            batch = batch_of([one for one in records if one.topic == topic])
            read = partial(read_columns, target, topic)
            with quoting_no_record(Job({topic: target})):
                for _, columns, found in read_bounded(batch, read, target.reading.columns_left):
                    needs.note(_decoded(target, topic, columns, found.decoded), [topic], fixed)
                    needs.key_columns = needs.key_columns or (found.changes.key_columns if found.changes else ())
        return needs

    def _create(self, table: Table, needs: Needs) -> None:
        """Creates the copy of a table that does not exist."""
        records = table.records
        try:
            wanted = merge_requested_fields(needs.requested_fields, keeps_first=True)
            accepted, rejected = accept_columns(records, wanted)
            schema = checked_change(records, adder(records.spec, accepted), needs.key_columns)(Schema())
        except NameConflict as error:
            raise SpecError(str(error), remedy=CLASH_REMEDY, where=table.name) from None
        table.schema.rejected |= rejected
        created = NewTables(self._copies, self._queries).create(table, schema, needs.key_columns)
        table.state = set_key_columns(self._copies, created, needs.key_columns)


def _decoded(target: TableTarget, topic: str, columns: Records, found: Decoded) -> Decoded:
    """Returns the result with the schema requests of records that become rows alone."""

    def read(target: TableTarget, records: Records) -> Decoded:
        return read_columns(target, topic, records).decoded

    return fields_requested_by_rows(target.source or target, columns, found, read)


def _is_rest(table: Table) -> bool:
    """Whether the table takes the records of a route that no other table takes."""
    return table.spec.route is not None and not table.spec.route_values


def _last(whole: OffsetRange, span: int) -> OffsetRange:
    return OffsetRange(whole.topic, whole.partition, max(whole.start, whole.end - span), whole.end)


def _first(whole: OffsetRange, span: int) -> OffsetRange:
    return OffsetRange(whole.topic, whole.partition, whole.start, min(whole.end, whole.start + span))
