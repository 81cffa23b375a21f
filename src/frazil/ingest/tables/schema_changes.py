"""Changes of a table's schema that its records request, checked against the limits of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from frazil.catalog.port import TableState
from frazil.column_names import Spellings, fold_case
from frazil.error_classes import ErrorClass
from frazil.errors import ConflictError, SpecError, UnavailableError
from frazil.ingest.tables.settings import (
    declared_columns,
    own_columns,
    program_of,
    query_columns,
    records_spec,
    shaping_of,
)
from frazil.ingest.tables.table import Table
from frazil.ingest.tables.target import target_of
from frazil.queries.analysis import Query
from frazil.queries.catalyst import NameTaken, UnknownColumn
from frazil.queries.program import Field, Project
from frazil.queries.steps import NoFieldLeft
from frazil.schema.conflicts import MAX_REJECTED, accept
from frazil.schema.evolve import NameConflict, Path, RequestedFields, can_promote, extend_schema, new_schema
from frazil.schema.names import column_settings, spelled_as_declared
from frazil.schema.projection import check_reserved, extend_shaped
from frazil.spec import TableSpec
from frazil.spec.syntax.problems import advice
from frazil.upsert.kinds import check_kind
from frazil.upsert.lookup.live_rows import check_columns, check_ids
from frazil.write.target import metadata_columns

CLASH_REMEDY = (
    "leave one of the fields out with `exclude`, or give it a column: `columns: {NAME: {type: …, field: PATH}}`"
)
"""The remedy for two fields with one column name."""


def accept_columns(
    table: Table, requested_fields: RequestedFields, check: Callable[[Schema], object]
) -> tuple[RequestedFields, dict[Path, str]]:
    """Returns the fields that can be columns of the table, and the other fields with the reason. check: raises NameConflict
    where the table's query cannot read records with these fields.

    Raises: NameConflict where too many fields are rejected, or where fields that were rejected before are requested
    again.
    """
    spec = table.spec
    schema = table.state.schema if table.state is not None else new_schema(declared_columns(spec).items())
    accepted, rejected = accept_names(requested_fields, lambda some: adder(spec, some)(schema), check)
    is_known = not accepted and rejected.keys() <= table.schema.rejected.keys()
    if rejected and (is_known or len(rejected.keys() | table.schema.rejected.keys()) > MAX_REJECTED):
        raise NameConflict(next(iter(rejected.values())))
    return accepted, rejected


def accept_names(
    requested_fields: RequestedFields,
    add: Callable[[RequestedFields], Schema],
    check: Callable[[Schema], object],
) -> tuple[RequestedFields, dict[Path, str]]:
    """Returns the fields that can be columns together, and the other fields with the reason. add: returns the columns with
    fields. check: raises NameConflict where a query cannot read records with these columns. It is called with all fields
    that the columns can have before it is called with some of them.

    Raises: NameConflict where too many fields are rejected.
    """
    possible, rejected = accept(requested_fields, add)
    accepted, taken = accept(possible, lambda some: check(add(some)))
    return accepted, rejected | taken


def as_declared(table: Table, requested_fields: RequestedFields) -> RequestedFields:
    """Returns the fields that records request, for a table that does not exist with the names by which the pipeline file
    declares columns for them: of an existing one tasks know these columns.
    """
    if table.state is not None or () not in requested_fields:
        return requested_fields
    paths = [column.field or (column.name,) for column in table.spec.shape.columns if not column.is_own]
    fields = (NestedField(0, name, kind, required=False) for name, kind in requested_fields[()].items())
    row = spelled_as_declared(StructType(*fields), paths)
    assert isinstance(row, StructType)
    return {**requested_fields, (): {member.name: member.field_type for member in row.fields}}


def checked_change(table: Table, change: Callable[[Schema], Schema], keys: Sequence[str]) -> Callable[[Schema], Schema]:
    """Returns the change of the columns of the table's records with checks: it raises SpecError when these would be too
    many, or key columns or an ordering column no plain values. keys: the key columns that the records name.
    """
    records, is_whole = table.records, table.state is not None and not table.spec.has_query

    def checked(schema: Schema) -> Schema:
        after = within_limit(records, change)(schema)
        if records.spec.changes.mode == "upsert":
            target = target_of(records, after)
            check_columns(target, keys)
            if is_whole:  # Declared columns, and those that a query makes, are checked when the table gets them.
                check_kind(target)
        if is_whole and records.spec.changes.dedupe is not None:
            check_ids(target_of(records, after))
        return after

    return checked


def within_limit(table: Table, change: Callable[[Schema], Schema]) -> Callable[[Schema], Schema]:
    """Returns the change with a check: it raises SpecError when the table would have more columns than its limit."""

    def limited(schema: Schema) -> Schema:
        after, most = change(schema), table.spec.bad_records.limits.columns
        if len(after.field_ids) > max(most, len(schema.field_ids)):
            raise SpecError(
                f"records bring the table to {len(after.field_ids)} columns, nested ones counted, and its limit is"
                f" {most}",
                remedy=ErrorClass.TOO_MANY_FIELDS.entry.remedy,
                where=table.name,
            )
        return after

    return limited


def declared_adder(spec: TableSpec) -> Callable[[Schema], Schema]:
    """Returns the change that adds missing declared and metadata columns to a table."""

    def change(schema: Schema) -> Schema:
        refuse_metadata_types(spec, schema)
        return extend_schema(schema, {(): declared_columns(spec)})

    return change


def refuse_metadata_types(spec: TableSpec, schema: Schema) -> None:
    """Raises SpecError where the table has a column of `metadata` with a type that cannot hold its values: a number in place
    of a time would have microseconds, where other tools write milliseconds.
    """
    fields = {column: field for field, column in spec.metadata.items()}
    types = {field.name: field.field_type for field in schema.fields}
    for name, kind in metadata_columns(spec.metadata, spec.source.key.format).items():
        table = types.get(name, kind)
        if kind.is_primitive and not _holds(table, kind):
            raise SpecError(
                f"`metadata` writes {fields[name]} to `{name}` as {kind}, and the table has it as {table}",
                remedy=_metadata_remedy(spec, fields[name], name, kind, table),
                where=spec.name,
            )


def _holds(table: IcebergType, kind: IcebergType) -> bool:
    """Whether a column of the table's type has every value of metadata of the type `kind`."""
    if table == kind or can_promote(kind, table) or isinstance(table, StringType):
        return True
    if isinstance(kind, TimestamptzType):
        return isinstance(table, TimestampType | TimestampNanoType | TimestamptzNanoType)
    return isinstance(kind, StringType | BinaryType) and isinstance(table, BinaryType | StringType)


def _metadata_remedy(spec: TableSpec, field: str, name: str, kind: IcebergType, table: IcebergType) -> str:
    if not _is_number_of_time(kind, table):
        return f"name another column, `metadata: {{{field}: NAME}}`"
    column = f"_{field}"
    query = "in `select`" if spec.query.select else "in a query, `select: select *, … from records`"
    return f"take `{field}` out of `metadata`, and write `unix_millis({column}) as {name}` {query}"


def _is_number_of_time(kind: IcebergType, table: IcebergType) -> bool:
    """Whether the table has a number in place of a time, as other tools write Kafka's milliseconds."""
    return isinstance(kind, TimestamptzType) and isinstance(table, LongType)


def query_adder(spec: TableSpec, query: Query) -> Callable[[Schema], Schema]:
    """Returns the change that gives a table the columns which its query makes.

    The change raises SpecError where the table has a column of another type, or may not be changed.
    """
    columns, may_widen = columns_with_query(spec, query), spec.shape.schema_evolution == "evolve"
    metadata = spec.metadata.values()

    def change(schema: Schema) -> Schema:
        refuse_metadata_types(spec, schema)
        with naming_in_query(spec):
            after = extend_schema(schema, {(): columns}, may_widen=may_widen)
        if spec.shape.schema_evolution == "freeze" and len(after.field_ids) > len(schema.field_ids):
            raise SpecError(
                "the query makes a column that the table lacks, and `schema_evolution` is freeze",
                remedy="add the column to the table, or take it out of `select`",
                where=spec.name,
            )
        computed = {name: kind for name, kind in columns.items() if name not in metadata}
        _compare(spec, computed, {field.name: field.field_type for field in after.fields})
        return after

    return change


def _compare(spec: TableSpec, computed: Mapping[str, IcebergType], types: Mapping[str, IcebergType]) -> None:
    """Raises SpecError where a column of the query has another type, or other letter case, than the table's."""
    for name, kind in computed.items():
        if name not in types:
            other = next(candidate for candidate in types if fold_case(candidate) == fold_case(name))
            raise NameTaken(
                f"the query makes a column `{name}`, and the table has it as `{other}`",
                (name,),
                remedy=_name_otherwise(spec),
                where=spec.name,
            )
        if kind.is_primitive and kind != types[name] and not can_promote(kind, types[name]):
            raise SpecError(
                f"the query makes {name} as {kind}, and the table has it as {types[name]}",
                remedy=_type_remedy(spec, name, kind, types[name]),
                where=spec.name,
            )


def _type_remedy(spec: TableSpec, name: str, kind: IcebergType, table: IcebergType) -> str:
    """Returns what to do about a column of the query that has another type than the table's."""
    added, is_number = dict(spec.query.add_fields).get(name), _is_number_of_time(kind, table)
    if added is not None and name not in (spec.query.select or ""):
        value = f"unix_millis({added})" if is_number else f"cast({added!r} as …)"
        return f"take `{name}` out of `add_fields`, and write `{value} as {name}` in `select`"
    if is_number:
        return f"write `unix_millis({name}) as {name}` in `select`"
    if not spec.query.select:
        return f"write `cast: {{{name}: {table}}}`, or name the column otherwise with `rename`"
    return f"write `cast({name} as …)` in `select`, or name the column otherwise"


def columns_with_query(spec: TableSpec, query: Query) -> dict[str, IcebergType]:
    """Returns the columns of a table with a query: those that it makes, and the table's own.

    Raises: SpecError where two of them have one name, letter case aside.
    """
    computed, own = query_columns(query), own_columns(spec)
    taken = {fold_case(name): name for name in own}
    in_records = {
        spec.metadata[field]: name
        for field, name in records_spec(spec, None).metadata.items()
        if field in spec.metadata
    }
    for column in query.columns:
        other = taken.get(fold_case(column.name))
        if other is not None and not (
            other == column.name and _is_handed_on(query, other, in_records.get(other, other))
        ):
            raise NameTaken(
                f"the query makes a column `{column.name}`, and the table has a column of its own `{other}`",
                (column.name,),
                remedy=_name_otherwise(spec),
                where=spec.name,
            )
    return computed | own


def _is_handed_on(query: Query, name: str, in_records: str) -> bool:
    """Whether the query's column is the records' own of this name, unchanged, as it is in `*`. in_records: what the records
    call it.
    """
    source = name
    for operator in reversed(program_of(query).operators):
        if isinstance(operator, Project):
            expression = dict(operator.columns).get(source)
            if operator.is_in_place and expression is not None:
                continue
            if not isinstance(expression, Field):
                return False
            source = expression.name
    return source == in_records


def refuse_lost_columns(spec: TableSpec, query: Query) -> None:
    """Refuses a query that makes no column which `key_columns` or `order_by` names: its rows could not be found again.

    Raises: UnavailableError where records may still bring the column; SpecError where none can.
    """
    spellings = Spellings(columns_with_query(spec, query))
    for setting, names in (
        ("key_columns", spec.changes.key_columns),
        ("order_by", filter(None, (spec.changes.order_by,))),
    ):
        for name in names:
            if not (spellings.find(name) or spellings.find(name.split(".")[0])):
                raise _lost(spec, setting, name, list(columns_with_query(spec, query)))


def _folded(path: Iterable[str]) -> Path:
    return tuple(map(fold_case, path))


def _lost(spec: TableSpec, setting: str, name: str, columns: Sequence[str]) -> SpecError | UnavailableError:
    does = "identifies rows" if setting == "key_columns" else "orders changes"
    if spec.query.select and "*" not in spec.query.select:
        return SpecError(
            f"the query leaves out {name}, which {does}", remedy=f"add `{name}` to `select`", where=spec.name
        )
    path = _folded(name.split("."))
    new = next((new for old, new in spec.query.rename if _folded(old) == path), None)
    if new is not None:
        message = f"`{setting}` names `{name}`, which `rename` makes `{new}`"
        return SpecError(message, remedy=f"write `{new}` under `{setting}`", where=spec.name)
    if any(_folded(dropped) == path[: len(dropped)] for dropped in spec.query.drop_fields):
        message = f"`drop_fields` leaves out `{name}`, which {does}"
        return SpecError(message, remedy="take it out of `drop_fields`", where=spec.name)
    if spec.query.keep_fields and not any(_folded(field) == path[: len(field)] for field in spec.query.keep_fields):
        message = f"`keep_fields` leaves out `{name}`, which {does}"
        return SpecError(message, remedy="add it to `keep_fields`", where=spec.name)
    message, remedy = (
        f"`{setting}` names `{name}`, which no record that can become a row has had yet",
        advice(name, columns),
    )
    if spec.shape.unknown_fields != "add":
        return SpecError(message, remedy=remedy, where=spec.name)
    return UnavailableError(message, remedy=f"correct it ({remedy}); Frazil looks at further records", where=spec.name)


@contextmanager
def waiting_for_fields(spec: TableSpec, where: str, may_come: bool = True) -> Iterator[None]:
    """Makes of an unknown column in its block, or of steps that leave no field, an error for which the table waits, where
    records may bring a field.
    """
    try:
        yield
    except UnknownColumn as error:
        if spec.shape.unknown_fields != "add" or not may_come:
            raise
        raise UnavailableError(
            f"{error.message}, and no record that can become a row has had it yet",
            remedy=f"declare its type under `columns`, or correct it ({error.remedy}); Frazil looks at further records",
            where=where,
        ) from error
    except NoFieldLeft as error:
        if spec.shape.unknown_fields != "add":
            raise
        raise UnavailableError(
            error.message, remedy=f"{error.remedy}; Frazil looks at further records", where=where
        ) from None


def unknown_column(error: SpecError | UnavailableError) -> str:
    """Returns the column that a query names and records do not have, also where the table waits for it; empty for an error
    of another kind.
    """
    cause = error if isinstance(error, UnknownColumn) else error.__cause__
    return cause.name if isinstance(cause, UnknownColumn) else ""


@contextmanager
def naming_in_query(spec: TableSpec) -> Iterator[None]:
    """Makes of a column-name conflict in its block an error with the remedy for a table whose columns a query makes."""
    try:
        yield
    except NameConflict as error:
        raise NameTaken(error.reason, error.field, remedy=_name_otherwise(spec), where=spec.name) from None


def _name_otherwise(spec: TableSpec) -> str:
    return "name the column otherwise in `select`" if spec.query.select else "name the column otherwise with `rename`"


def adder(
    spec: TableSpec, requested_fields: RequestedFields, made_optional: Sequence[Path] = ()
) -> Callable[[Schema], Schema]:
    """Returns the change that adds the requested fields to a table. The change raises NameConflict."""
    own, shaping, may_widen = own_columns(spec), shaping_of(spec), spec.shape.schema_evolution == "evolve"
    if shaping is not None:
        return lambda schema: extend_shaped(schema, shaping, own, requested_fields, made_optional, may_widen)
    check_metadata_names(requested_fields, own)

    def change(schema: Schema) -> Schema:
        names = {column.name for column in schema.fields}
        for name in requested_fields.get((), {}):
            if name not in names:
                check_reserved(name, (name,))
        return extend_schema(schema, requested_fields, made_optional, may_widen)

    return change


def check_metadata_names(requested_fields: RequestedFields, columns: Iterable[str]) -> None:
    """Raises NameConflict when a requested field has the name of a metadata column: one of the two would be lost."""
    fields = {fold_case(name): name for name in requested_fields.get((), {})}
    for column in columns:
        name = fields.get(fold_case(column))
        if name is not None:
            raise NameConflict(
                f"field {name}: the table has a column of its own with this name: {column_settings((name,))}"
            )


def same_table(before: TableState, after: TableState) -> TableState:
    """Returns `after`, the table after a change.

    Raises: ConflictError when it is another table than `before`, which must be loaded.
    """
    if after.uuid != before.uuid:
        raise ConflictError("the table was dropped and recreated", where=after.name)
    return after
