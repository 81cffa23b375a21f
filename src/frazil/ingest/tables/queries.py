"""Tables whose rows a query makes: the schema of their records, kept in a mark of the table, and the query analysed for it.

The fields of records change by the rules of any table's schema; the table's own columns follow what the query makes of
them.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyiceberg.schema import Schema

from frazil.catalog.port import Catalog, TableState
from frazil.column_names import Spellings
from frazil.errors import SpecError, UnavailableError
from frazil.failpoints import hit
from frazil.ingest.tables.lookups import Lookups, open_lookups
from frazil.ingest.tables.schema_changes import (
    columns_with_query,
    naming_in_query,
    query_adder,
    refuse_lost_columns,
    same_table,
    waiting_for_fields,
)
from frazil.ingest.tables.settings import (
    declared_columns,
    metadata_in_query,
    own_columns,
    program_of,
    query_columns,
    row_columns,
    steps_of,
    with_counts,
    with_key,
)
from frazil.ingest.tables.table import RECORDS_SCHEMA, Table, loaded
from frazil.ingest.tables.taken_names import FirstNames, refuse_taken_names, rejecting_fields
from frazil.ingest.tables.target import columns_of_keys, target_of
from frazil.ingest.tasks.spark_inputs import inputs_of
from frazil.plugins.formats import ENVELOPES
from frazil.plugins.functions import Function
from frazil.plugins.tables import TABLE_KINDS
from frazil.queries.analysis import Column, Query, analyse, analyse_condition
from frazil.queries.catalyst import RECORDS, RULES, Catalyst
from frazil.queries.in_spark import Outside, values_here
from frazil.queries.kernels.table import reason
from frazil.queries.program import (
    Call,
    Expression,
    Field,
    Lookup,
    Program,
    Project,
    SparkPart,
    exploded_columns,
    spark_columns,
)
from frazil.queries.program import origins_of as origins_of_columns
from frazil.queries.refusals import check_condition, check_query
from frazil.queries.steps import NoFieldLeft, compile_steps
from frazil.schema.arrow import arrow_type, iceberg_type
from frazil.schema.evolve import extend_schema, new_schema, with_identifiers
from frazil.schema.names import spelled
from frazil.spec import TableSpec
from frazil.spec.grouped_tables import groups_of
from frazil.stages.notes import StageNote
from frazil.stages.stage import Origins, RowCondition, TableStage
from frazil.stages.table import table_stages
from frazil.types import EXTRA_COLUMNS, FIRST_PLACEHOLDER_ID
from frazil.upsert.kinds import check_kind
from frazil.upsert.lookup.live_rows import check_ids
from frazil.write.target import TableTarget

Read = TypeVar("Read")


class Queries(Protocol):
    """Analyses queries."""

    def analyse(self, spec: TableSpec, records: Schema) -> Query:
        """Returns the table's query for records with these fields and columns of metadata.

        Raises: SpecError for a query that is wrong; UnavailableError for a field that no record has had yet, and where Spark
        does not answer.
        """

    def check(self, spec: TableSpec) -> None:
        """Checks what of the table's query is wrong whatever fields the records have.

        Raises: SpecError where it is no query, no condition, or has what queries may not have.
        """

    def parse(self, query: str) -> frozenset[str]:
        """Returns the views that a query over other tables reads: names of one part that it does not define itself.

        Raises: SpecError where its syntax is wrong.
        """

    def conditions(
        self, spec: TableSpec, rows: Schema, conditions: Sequence[RowCondition]
    ) -> tuple[tuple[str, Expression], ...]:
        """Returns conditions of the table's stages for rows with these columns, by name.

        Raises: as `analyse`.
        """

    def values(self, part: SparkPart, inputs: Sequence[pa.Array], count: int) -> dict[str, pa.Array]:
        """Returns the values of expressions that Spark evaluates, by the column of `SparkPart.values`, without a job.
        inputs: the columns that they use, of `count` records.
        """


class SparkQueries:
    """Implements `Queries` in a JVM with Spark's classes; thread-safe. Each query is analysed once for a schema."""

    def __init__(self, jvm: Callable[[], Any]) -> None:
        """Stores the settings. jvm: returns py4j's view of the JVM."""
        self._jvm = jvm
        self._lock = threading.Lock()
        #: By the Python functions that queries may call.
        self._catalysts: dict[tuple[Function, ...], Catalyst] = {}
        self._known: dict[tuple[str, str], Query] = {}
        self._conditions: dict[tuple[str, str], tuple[tuple[str, Expression], ...]] = {}

    def analyse(self, spec: TableSpec, records: Schema) -> Query:
        """See Queries."""
        place = (
            repr((spec.query.udf, spec.query.where, steps_of(spec), spec.query.select, spec.metadata)),
            records.model_dump_json(),
        )
        with self._lock:
            if place not in self._known:
                self._known[place] = self._analysed(spec, records)
            return self._known[place]

    def check(self, spec: TableSpec) -> None:
        """See Queries."""
        with self._lock:
            catalyst = self._catalyst(spec.query.udf)
            if spec.query.select:
                grouping = groups_of(spec)
                text = spec.query.select if grouping is None else grouping.projection({})
                check_query(text, catalyst.parse(text), catalyst.functions)
            _check_conditions(spec, catalyst)

    def parse(self, query: str) -> frozenset[str]:
        """See Queries."""
        with self._lock:
            plan = str(self._catalyst().parse(query).treeString())
        return frozenset(re.findall(r"UnresolvedRelation \[([^],]+)\]", plan)) - {
            *re.findall(r"SubqueryAlias (\S+)", plan)
        }

    def conditions(
        self, spec: TableSpec, rows: Schema, conditions: Sequence[RowCondition]
    ) -> tuple[tuple[str, Expression], ...]:
        """See Queries."""
        place = repr((spec.query.udf, conditions)), rows.model_dump_json()
        with self._lock:
            if place not in self._conditions:
                analysed = ((condition.name, self._condition(spec, condition, rows)) for condition in conditions)
                self._conditions[place] = tuple(analysed)
            return self._conditions[place]

    def _condition(self, spec: TableSpec, declared: RowCondition, rows: Schema) -> Expression:
        where = f"{spec.name}, {declared.place}"
        try:
            with waiting_for_fields(spec, where, may_come=not spec.query.select or "*" in spec.query.select):
                condition = analyse_condition(self._catalyst(spec.query.udf), declared.text, rows, declared.name)
        except SpecError as error:
            error.where = ", ".join(filter(None, (where, error.where)))
            raise
        _refuse_outside(condition.outside, where, declared.remedy)
        assert condition.operator is not None
        expression = condition.operator.condition
        _refuse_unproven(Program((), (), conditions=((declared.name, expression),)), where, declared.remedy)
        return expression

    def values(self, part: SparkPart, inputs: Sequence[pa.Array], count: int) -> dict[str, pa.Array]:
        """See Queries."""
        with self._lock:
            return values_here(self._catalyst(), part, inputs, count) if count else {}

    def _catalyst(self, functions: tuple[Function, ...] = ()) -> Catalyst:
        if functions not in self._catalysts:
            self._catalysts[functions] = Catalyst(self._jvm(), functions)
        return self._catalysts[functions]

    def _analysed(self, spec: TableSpec, records: Schema) -> Query:
        # `*` stands for none of these: a table has its own metadata whatever its query makes.
        named = {*metadata_in_query(spec).values(), *spec.metadata.values()}
        metadata = tuple(field.name for field in records.fields if field.name in named)
        fields = Schema(*(field for field in records.fields if field.name not in metadata))
        _check_conditions(spec, self._catalyst(spec.query.udf))
        with waiting_for_fields(spec, spec.name):
            steps = compile_steps(steps_of(spec), fields, metadata).sql if spec.query.has_steps else ""
            text, grouping = spec.query.select or f"select * from {RECORDS}", groups_of(spec)
            catalyst = self._catalyst(spec.query.udf)

            def analysed(sql: str) -> Query:
                return analyse(catalyst, sql, records, spec.query.where, steps, metadata)

            query = analysed(text) if grouping is None else TABLE_KINDS.get("merge").group_analyser(grouping, analysed)
        _refuse_outside(query.outside, spec.name, _OTHERWISE_REMEDY)
        _refuse_unproven(program_of(query), spec.name, _OTHERWISE_REMEDY)
        if program_of(query).spark_part is not None:
            _refuse_spark_part(spec, program_of(query))
        return query


def _check_conditions(spec: TableSpec, catalyst: Catalyst) -> None:
    """Raises SpecError for a `where` or `filter` that is no condition, with the place in it: it becomes part of a query."""
    for name, condition in (("where", spec.query.where), ("filter", spec.query.filter)):
        try:
            if condition:
                check_condition(condition, catalyst.parse_condition(condition).condition(), catalyst.functions)
        except SpecError as error:
            error.where = ", ".join(filter(None, (spec.name, name, error.where.replace("query", "condition"))))
            raise


_OTHERWISE_REMEDY = f"write it otherwise; {RULES}"


def _refuse_outside(outside: Outside | None, where: str, remedy: str) -> None:
    if outside is not None:
        message = f"tasks cannot compute `{outside.expression}`: {outside.reason}"
        raise SpecError(message, remedy=remedy, where=where)


def _refuse_unproven(program: Program, where: str, remedy: str) -> None:
    unproven = reason(program)
    if unproven is not None:
        raise SpecError(f"tasks cannot compute {unproven}", remedy=remedy, where=where)


def _refuse_spark_part(spec: TableSpec, program: Program) -> None:
    """Refuses expressions that Spark would have to evaluate for several rows of a record, for rows without a record, or
    behind a lookup.
    """
    part = program.spark_part
    assert part is not None
    what = f"Spark computes {part.reason}"
    looked_up = {lookup.name for lookup in spec.query.lookup} & {field.name for field in part.inputs.output}
    if looked_up:
        raise SpecError(
            f"{what}, and `{min(looked_up)}` is looked up behind that",
            remedy=f"use functions that tasks compute themselves; {RULES}",
            where=spec.name,
        )
    envelope = spec.changes.envelope
    if envelope is not None and ENVELOPES.get(envelope.kind).open_rows is not None:
        raise SpecError(
            f"{what}, and only one row of a message, where those of {envelope.kind.capitalize()} have several",
            remedy=f"use functions that tasks compute themselves; {RULES}",
            where=spec.name,
        )
    spellings = Spellings(spark_columns(program))
    for name in (*spec.changes.key_columns, *filter(None, (spec.changes.order_by,))):
        if spellings.find(name):
            raise SpecError(
                f"{what}, and `{name}`, by which rows are found, needs a value in deletes too",
                remedy=f"make `{name}` of functions that tasks compute themselves; {RULES}",
                where=spec.name,
            )


class QueryTables:
    """Creates and changes tables with a query. queries: None where no table has one. referenced: the catalog with reference
    tables, where it is another one.
    """

    def __init__(self, catalog: Catalog, queries: Queries | None, referenced: Catalog | None = None) -> None:
        self._catalog = catalog
        self._queries = queries
        self._referenced = referenced or catalog

    @cached_property
    def _lookups(self) -> Lookups:
        return open_lookups(self._referenced)

    def refresh(self, tables: Iterable[Table]) -> None:
        """Gives the next batch of the tables the newest versions of their reference tables; analyses a query again where
        their columns have changed.

        Raises: UnavailableError; other errors show when the table is loaded again, alone.
        """
        states: dict[str, TableState | None] = {}
        for table in tables:
            if not table.spec.query.lookup:
                continue
            types_before = {name: reference.types for name, reference in table.schema.references.items()}
            try:
                self._lookups.refresh(table, states)
                types = {name: reference.types for name, reference in table.schema.references.items()}
                if table.schema.query is not None and types != types_before:
                    table.state = self.load(table)
            except SpecError as error:
                raise UnavailableError(error.message, remedy=error.remedy, where=error.where) from None

    def first_schema(self, table: Table, records: Schema, key_columns: Sequence[str]) -> Schema:
        """Returns the schema of a new table. records: the fields of its records. key_columns: the fields of the records'
        keys, where these identify the rows.

        Raises: as `Queries.analyse`; SpecError where the query leaves out a field of the key; UnavailableError where
            no column is left.
        """
        query = table.schema.query = self._analysed(table, records)
        with naming_in_query(table.spec), waiting_for_fields(table.spec, table.name):
            schema = new_schema(columns_with_query(table.spec, query).items())
            if not schema.fields:  # Steps have refused it.
                settings = " and ".join(f"`{note.setting}`" for note in query.notes)
                raise NoFieldLeft(f"{settings} drops every field that records have had", remedy="drop fewer")
        _checked(table, schema)
        if table.spec.changes.mode != "upsert":
            return schema
        keys = [spelled(name, schema) for name in table.spec.changes.key_columns]
        return with_identifiers(schema, row_columns(table.spec, keys or columns_of_keys(query, key_columns)))

    def check(self, table: Table) -> None:
        """Checks what of the table's query is wrong whatever fields the records have.

        Raises: as `Queries.check`.
        """
        if self._queries is not None:
            self._queries.check(table.spec)

    def asking_spark(
        self, target: TableTarget, topic: str, read: Callable[[dict[str, pa.Array]], Read]
    ) -> Callable[[dict[str, pa.Array]], Read]:
        """Returns a function that reads records with the values that Spark makes of them, as a job does. topic: the records'
        topic, empty where they name it. read: reads records with these values.
        """
        part, queries = target.spark_part, self._queries
        if part is None or queries is None:
            return read

        def asking(records: dict[str, pa.Array]) -> Read:
            inputs = inputs_of(target, topic, records)
            return read({**records, **queries.values(part, inputs, len(records["value"]))})

        return asking

    def known(self, table: Table) -> Query | None:
        """Returns the query of a loaded table for the known fields of its records; None where none are known yet.

        Raises: as `Queries.analyse`.
        """
        records = table.records.state
        if records is None or RECORDS_SCHEMA not in records.marks:
            return None
        return self._analysed(table, records.schema)

    def load(self, table: Table) -> TableState:
        """Analyses the query of a loaded table for the known fields of its records, and adds the columns that the table
        lacks; returns the table.

        Raises: as `Queries.analyse`; SpecError for a query that makes no such table.
        """
        state = table.state
        assert state is not None
        table.schema.query = None
        self._note_marks(table, state)
        records = table.records.state
        if RECORDS_SCHEMA not in state.marks or records is None:
            return state
        query = table.schema.query = self._analysed(table, records.schema)
        change = _adder(table, query)
        return self._catalog.evolve(table.name, change) if change(state.schema) != state.schema else state

    def checking(self, table: Table) -> Callable[[Schema], None]:
        """Returns a function that raises NameConflict for new fields of the records that take a name of the query, or with
        which it cannot read records. It is to be called with all new fields first.
        """
        if not table.spec.has_query:
            return lambda _: None

        def refuse(records: Schema) -> None:
            refuse_taken_names(table, self._analysed(table, records), records)

        if table.state is None or RECORDS_SCHEMA not in table.state.marks:
            return FirstNames(refuse, declared_columns(table.records.spec))

        view = table.records.state
        known_count = len(view.schema.field_ids) if view is not None else 0

        def check(records: Schema) -> None:
            with rejecting_fields(are_new=len(records.field_ids) > known_count):
                refuse(records)

        return check

    def evolve(self, table: Table, change: Callable[[Schema], Schema]) -> TableState:
        """Applies a change to the schema of the table's records; returns the table.

        Raises: as `load`; ConflictError where the table was recreated.
        """
        assert table.state is not None
        if not table.spec.has_query:
            return same_table(table.state, self._catalog.evolve(table.name, change))
        view = table.records.state
        assert view is not None
        records = change(view.schema)
        query = self._analysed(table, records)
        # The columns first: were the fields known without them, no batch would ask for them again.
        same_table(table.state, self._catalog.evolve(table.name, _adder(table, query)))
        hit("query.evolved")
        table.schema.query = query
        return self.remember(table, records)

    def remember(self, table: Table, records: Schema) -> TableState:
        """Keeps the fields of the table's records in the table; returns the table."""
        own = own_columns(table.records.spec)
        fields = Schema(*(field for field in records.fields if field.name not in own))
        self._catalog.mark(table.name, RECORDS_SCHEMA, fields.model_dump_json())
        state = loaded(self._catalog, table.name)
        self._note_marks(table, state)
        return state

    def _note_marks(self, table: Table, state: TableState) -> None:
        """Keeps in the table what its stages are to find there later.

        Raises: SpecError for what must not change.
        """
        for stage in table_stages(table.spec):
            for mark, value in stage.new_marks(table.spec, state.marks, partial(_key_columns, table)).items():
                self._catalog.mark(table.name, mark, value)

    def _analysed(self, table: Table, records: Schema) -> Query:
        whole = extend_schema(records, {(): declared_columns(table.records.spec)})
        fields = Schema(*(field for field in whole.fields if field.name not in EXTRA_COLUMNS))
        stages = table_stages(table.spec)
        origins = field_origins(table, fields) if stages else {}
        seen, projects, notes = fields, list[Project](), list[StageNote]()
        for stage in stages:
            if (before := stage.before_query(seen, origins)) is not None:
                projects.append(before[0])
                notes.append(before[1])
                seen = _behind(seen, before[0])
        lookups: Sequence[Lookup] = ()
        if table.spec.query.lookup:
            self._lookups.refresh(table, {})
            with waiting_for_fields(table.spec, table.name):
                lookups = self._lookups.operators(table, seen)
            seen = self._lookups.columns_behind(seen, lookups)
        if not (table.spec.query.select or table.spec.query.where or table.spec.query.has_steps):
            query = _unchanged(table, seen)
        elif self._queries is None:
            raise _no_spark(table)
        else:
            query = self._queries.analyse(table.spec, seen)
            for stage in stages:
                stage.check_query(table.spec, query, fields, origins)
        if lookups:
            query = self._lookups.joined(query, lookups, bool(table.spec.query.where))
        query = with_key(table.spec, query, seen)
        query = with_counts(table.spec, query)
        _refuse_keys_looked_up(table.spec, query)
        _refuse_keys_of_elements(table.spec, query)
        refuse_lost_columns(table.spec, query)
        for stage in stages:
            query = _reshaped(query, stage)
        for project in reversed(projects):
            query = replace(query, program=_with_project(project, program_of(query)))
        return self._judged(table, replace(query, notes=tuple(notes)), stages)

    def _judged(self, table: Table, query: Query, stages: Iterable[TableStage]) -> Query:
        """Returns the query with the conditions by which stages judge its rows."""
        conditions = [condition for stage in stages for condition in stage.conditions()]
        if not conditions:
            return query
        if self._queries is None:
            raise _no_spark(table)
        analysed = self._queries.conditions(table.spec, new_schema(query_columns(query).items()), conditions)
        return replace(query, program=replace(program_of(query), conditions=analysed))


def _adder(table: Table, query: Query) -> Callable[[Schema], Schema]:
    """Returns `query_adder` with checks: it raises SpecError where the columns do not fit the kind of the table."""
    add = query_adder(table.spec, query)
    return lambda schema: _checked(table, add(schema))


def _checked(table: Table, schema: Schema) -> Schema:
    """Returns the schema of rows. Raises SpecError where its columns do not fit the kind of the table."""
    if table.spec.changes.mode == "upsert":
        target = target_of(table).with_schema(schema)
        check_kind(target)
    if table.spec.changes.dedupe is not None:
        check_ids(target_of(table).with_schema(schema))
    return schema


def _no_spark(table: Table) -> SpecError:
    return SpecError("the table has a query, which needs Spark to be analysed", where=table.name)


def _reshaped(query: Query, stage: TableStage) -> Query:
    """Returns the query with the columns that have another type behind it for the stage's sake."""
    program = program_of(query)
    reshaped = stage.after_query({field.name: field.type for field in program.output})
    if not reshaped:
        return query
    of_query = {field.name: field for field in program.output}
    project = Project(tuple({**of_query, **reshaped}.items()), True)
    output = tuple(Field(name, expression.type) for name, expression in project.columns)
    ids = itertools.count(FIRST_PLACEHOLDER_ID)
    types = {name: iceberg_type(expression.type, ids) for name, expression in reshaped.items()}
    columns = tuple(replace(column, type=types.pop(column.name, column.type)) for column in query.columns)
    columns += tuple(Column(name, kind, False, frozenset()) for name, kind in types.items())
    return replace(
        query, columns=columns, program=replace(program, operators=(*program.operators, project), output=output)
    )


def _with_project(operator: Project, program: Program) -> Program:
    """Returns the program for records whose columns `operator` replaces before it."""
    part = program.spark_part
    if part is not None:
        carried = tuple((value.name, value) for value in part.values)
        inputs = replace(part.inputs, operators=(operator, *part.inputs.operators))
        operator, program = (
            replace(operator, columns=(*operator.columns, *carried)),
            replace(program, spark_part=replace(part, inputs=inputs)),
        )
    return replace(program, operators=(operator, *program.operators))


def _key_columns(table: Table) -> Sequence[str]:
    """Returns the columns that identify the rows of an upsert table; none while they are not known."""
    changes = target_of(table).changes
    return changes.key_columns if changes is not None else ()


def field_origins(table: Table, fields: Schema) -> Origins:
    """Returns the field that feeds each column of the records, as `TableTarget.origins`."""
    source = target_of(table, fields).source
    assert source is not None
    return source.origins


def _unchanged(table: Table, seen: Schema) -> Query:
    """Returns the query of a table whose rows are its records, as they are behind stages and `lookup`."""
    kept = [field for field in seen.fields if field.name not in own_columns(table.spec)]
    columns = tuple(Column(field.name, field.field_type, False, frozenset(((field.name,),))) for field in kept)
    output = tuple(Field(field.name, arrow_type(field.field_type)) for field in kept)
    operator = Project(tuple((field.name, field) for field in output))
    return Query(columns, frozenset(), Program((operator,), output), None)


def _refuse_keys_looked_up(spec: TableSpec, query: Query) -> None:
    """Raises SpecError where what identifies or orders rows is looked up: it would change with the reference table."""
    looked_up = Spellings(origins_of_columns(program_of(query)).looked_up)
    for setting, names in (("key_columns", spec.changes.key_columns), ("order_by", (spec.changes.order_by,))):
        for name in filter(None, names):
            if looked_up.find(name):
                raise SpecError(
                    f"`{setting}` names `{name}`, which is looked up and changes with the reference table",
                    remedy="name a column of the record's own fields",
                    where=spec.name,
                )


def _refuse_keys_of_elements(spec: TableSpec, query: Query) -> None:
    """Raises SpecError where elements of a list identify rows: of the rows of a record only the last one would stay."""
    if spec.changes.mode != "upsert" or spec.changes.counts_every_row:
        return
    exploded = Spellings(exploded_columns(program_of(query)))
    for name in spec.changes.key_columns:
        if exploded.find(name):
            raise SpecError(
                f"`key_columns` names `{name}`, which `explode` makes, and of the rows of one record the last one stays",
                remedy="write `mode: append`, or `merge: {changes: count}`, with which each row is a change of its own",
                where=spec.name,
            )


def _behind(fields: Schema, operator: Project) -> Schema:
    """Returns the fields as a query sees them behind `operator`."""
    ids = itertools.count(fields.highest_field_id + FIRST_PLACEHOLDER_ID)
    kinds = {
        name: iceberg_type(column.type, ids) if isinstance(column, Call) else fields.find_type(name)
        for name, column in operator.columns
    }
    return new_schema(kinds.items())
