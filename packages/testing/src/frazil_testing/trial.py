"""What a run would make of records that are in a table's topics now: for `frazil try`.

The table is a copy in memory, which gets the columns that the records need, as a run would give them to the table. Nothing
is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from pyiceberg.schema import Schema

from frazil.catalog.port import Catalog
from frazil.decode.limits import read_bounded
from frazil.decode.lossless import format_type
from frazil.errors import InvariantError, SpecError, UnavailableError, UnusableType
from frazil.ingest.batches.schema_updates import TableCreator
from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.loop.topics import missing_topics
from frazil.ingest.tables.first_values import refused_kinds
from frazil.ingest.tables.queries import Queries, QueryTables
from frazil.ingest.tables.schema_changes import CLASH_REMEDY, accept_columns, adder, checked_change
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.table import Table, set_key_columns
from frazil.ingest.tables.target import target_of
from frazil.ingest.tasks.task import read_records, requests_of_rows
from frazil.ingest.tasks.task_job import Job, quoting_no_record
from frazil.kafka.port import ReadRecord, Source
from frazil.ops.sampling import own_sample
from frazil.ops.status import MissingTopics, no_such_table
from frazil.queries.catalyst import TypeRefused
from frazil.routes.divide import TopicShares
from frazil.rows.metadata_columns import batch_of
from frazil.schema.evolve import NameConflict, merge_requested_fields
from frazil.spec import PipelineSpec
from frazil.types import OffsetRange
from frazil.write.target import TableTarget
from frazil_deadletters.requirements import Needs, meet
from frazil_testing.memory_catalog import MemoryCatalog
from frazil_testing.tried_record import Read, TriedRecord, try_record

LEARNED_RECORDS = 1_000
"""The number of records whose fields and types are learned; those that are shown are a part of them."""
_ROUNDS = 20
_WIDER = 10
ReadSample = Callable[[list[OffsetRange]], list[ReadRecord]]
_Owned = list[tuple[ReadRecord, str]]


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
        self._copies = MemoryCatalog(spec.file.state_dir, spec.pipeline, catalog.store_properties)
        self._queries = QueryTables(self._copies, queries, referenced=catalog)

    def run(self, name: str, count: int, *, is_oldest: bool = False) -> TriedTable:
        """Returns what becomes of the newest, or the oldest, records of a table. Records of the table of the rest are all
        that are divided, each with the table that takes it.

        Raises: SpecError for a table that the pipeline does not have or cannot have; UnavailableError where a service does
        not answer, a topic is missing, the query names a field that no record has had, or no record has a field.
        """
        self._discovery.refresh_topics()
        self._discovery.add_named()
        self._discovery.load_derived()
        table = self._find(name)
        self._refuse_missing(table)
        owned = self._owned(table, self._sample(table, count, is_oldest))
        if not _is_rest(table):
            owned = [(record, owner) for record, owner in owned if owner == name]
        shown = owned[:count] if is_oldest else owned[-count:]
        tables = self._discovery.tables
        for owner in sorted({name, *(owner for _, owner in shown)}):
            self._settle(tables[owner], [record for record, mine in owned if mine == owner])
        tried = tuple(self._try(target_of(tables[owner]), record) for record, owner in shown)
        for trial in tried:
            if trial.outcome == "dropped" and not trial.dropped:  # There is no column that it could have a value in.
                message = "no record has a field yet, so the table has no column"
                remedy = "produce records with fields, or declare `columns`"
                raise UnavailableError(message, remedy=remedy, where=trial.table)
        schema = table.state.schema if table.state is not None else Schema()
        columns = tuple((column.name, format_type(column.field_type)) for column in schema.fields)
        return TriedTable(name, columns, tried, Counter(result.outcome for result in tried))

    def _try(self, target: TableTarget, record: ReadRecord) -> TriedRecord:
        return try_record(target, record, self._reading(target, record.topic))

    def _reading(self, target: TableTarget, topic: str) -> Read:
        """Returns a function that reads records as a task reads them, with the values that Spark makes."""
        return self._queries.asking_spark(target, topic, partial(read_records, target, topic))

    # ---- which records

    def _find(self, name: str) -> Table:
        """Returns a table, also one that a run would derive from its newest records."""
        tables = self._discovery.tables
        for rest in [candidate for candidate in tables.values() if _is_rest(candidate)] if name not in tables else ():
            self._owned(rest, self._sample(rest, LEARNED_RECORDS, is_oldest=False))
        if name in tables:
            return tables[name]
        raise no_such_table(name, tables)

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
            ranges = [cut(offsets, span) for offsets in whole]
            sample = self._read_sample([offsets for offsets in ranges if offsets.span])
            if len(sample) >= count or ranges == whole:
                return sorted(
                    sample, key=lambda record: (record.timestamp_ms or 0, record.topic, record.partition, record.offset)
                )
            span *= _WIDER

    def _owned(self, table: Table, records: Sequence[ReadRecord]) -> _Owned:
        """Returns the records, each with the name of the table that takes it. Tables that a run would derive from them
        are added to those of the pipeline.
        """
        share = table.spec.source.share
        if share is None:
            return [(record, table.name) for record in records]
        tables = self._discovery.tables
        own_sample(tables[share.rest], records, self._schemas)
        self._discovery.add_derived(tables[share.rest])
        members = [
            other for other in tables.values() if other.spec.source.share and other.spec.source.share.rest == share.rest
        ]
        targets, owners = [target_of(member) for member in members], dict[tuple[str, int, int], str]()
        for topic in {record.topic for record in records}:
            batch = batch_of([record for record in records if record.topic == topic])
            for taken in TopicShares(targets, topic).divide(batch):
                owners |= {(topic, *place): taken.target.name for place in taken.places}
        return [(record, owners[record.topic, record.partition, record.offset]) for record in records]

    # ---- the table

    def _settle(self, table: Table, records: Sequence[ReadRecord]) -> None:
        """Gives the copy of a table the schemas and the columns that the records need.

        Raises: as `run`.
        """
        state = self._catalog.load(table.name)
        if state is not None:
            self._copies.adopt(state)
            table.state = TableCreator(self._copies, self._queries).with_declared(table, state)
            table.state = self._queries.load(table) if table.spec.has_query else table.state
        for _ in range(_ROUNDS):
            needs = self._needs(table, records)
            is_new = table.state is None and not needs.missing
            if is_new and (needs.requested_fields or table.spec.shape.columns or table.spec.metadata):
                self._create(table, needs)
            elif is_new or needs.is_met:
                return
            else:
                meet(self._copies, self._queries, self._schemas, table, needs)
        raise InvariantError("the records need one schema change after another", where=table.name)

    def _needs(self, table: Table, records: Sequence[ReadRecord]) -> Needs:
        target, needs = target_of(table), Needs()
        fixed = (target.source or target).fixed
        for topic in sorted({record.topic for record in records}):
            batch = batch_of([record for record in records if record.topic == topic])
            read = self._reading(target, topic)
            with quoting_no_record(Job({topic: target})):
                for _, columns, reading in read_bounded(batch, read, target.reading.evolution.columns_left):
                    decoded = requests_of_rows(target.source or target, topic, columns, reading.decoded)
                    needs.note(decoded, [topic], fixed)
                    needs.key_columns = needs.key_columns or reading.key_columns
        return needs

    def _create(self, table: Table, needs: Needs) -> None:
        """Creates the copy of a table that does not exist."""
        records = table.records
        try:
            wanted = merge_requested_fields(needs.requested_fields, keeps_first=True)
            accepted, rejected = accept_columns(records, wanted, self._queries.checking(table))
            schema = checked_change(table, adder(records.spec, accepted), needs.key_columns)(Schema())
            table.schema.rejected |= rejected
            created = TableCreator(self._copies, self._queries).create(table, schema, needs.key_columns)
        except NameConflict as error:
            raise SpecError(str(error), remedy=CLASH_REMEDY, where=table.name) from None
        except (TypeRefused, UnusableType, UnavailableError) as error:
            table.schema.refused_kinds |= refused_kinds(table, error, wanted, needs.mismatched)
            return
        table.state = set_key_columns(self._copies, created, needs.key_columns)


def _is_rest(table: Table) -> bool:
    """Whether the table takes the records that no derived table takes."""
    return table.spec.source.share is not None and table.spec.source.share.is_rest


def _last(whole: OffsetRange, span: int) -> OffsetRange:
    return OffsetRange(whole.topic, whole.partition, max(whole.start, whole.end - span), whole.end)


def _first(whole: OffsetRange, span: int) -> OffsetRange:
    return OffsetRange(whole.topic, whole.partition, whole.start, min(whole.end, whole.start + span))
