"""What the settings of a table mean for its columns, its records and their reading."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, LongType

from frazil.catalog.layout import Layout
from frazil.column_names import Spellings, fold_case, fold_path
from frazil.decode.settings import Envelope, Framing
from frazil.queries.analysis import Column, Query, handing_on
from frazil.queries.catalyst import NameTaken
from frazil.queries.program import Field, Literal, Program, Project, exploded_columns, origins_of
from frazil.queries.steps import Steps
from frazil.schema.arrow import arrow_type
from frazil.schema.parts import Path, counted_in, types_in
from frazil.schema.projection import Shaping
from frazil.spec import TableSpec
from frazil.spec.grouped_tables import groups_of, session_of
from frazil.spec.settings import METADATA_COLUMNS, MetadataField, ValueSpec
from frazil.spec.state import APPENDED, retracts
from frazil.spec.steps import metadata_names
from frazil.write.target import metadata_columns


def identifier_names(schema: Schema) -> tuple[str, ...]:
    """Returns the columns that identify a row according to the table (Iceberg specification, "Identifier Field IDs"), in
    the order of the schema; none where the table does not name them.
    """
    return tuple(str(schema.find_column_name(number)) for number in sorted(schema.identifier_field_ids))


def row_columns(spec: TableSpec, keys: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns that identify one row. keys: the table's key columns, which several versions of a row have, and
    several sessions.
    """
    session = session_of(spec)
    if session is not None:
        return (*keys, session[0])
    return (*keys, spec.metadata["valid_from"]) if spec.changes.keeps_history else tuple(keys)


def layout_of(spec: TableSpec) -> Layout:
    """Returns the layout of the table's files in the pipeline file."""
    return Layout(spec.layout.partition_by, spec.layout.sort_by)


def metadata_in_query(spec: TableSpec) -> dict[MetadataField, str]:
    """Returns the metadata of records that the table's query names, with the columns it is named by."""
    names = metadata_names(spec)
    keys = (".".join(path) for lookup in spec.query.lookup for path, _ in lookup.on)
    added = (names.get(str(value), "") for _, value in spec.query.add_fields)
    text = " ".join((spec.query.where, spec.query.filter, spec.query.select, *added, *keys))
    metadata = {field: column for field, column in METADATA_COLUMNS.items() if column in names}
    return {field: column for field, column in metadata.items() if re.search(rf"\b{column}\b", text, re.IGNORECASE)}


def records_spec(spec: TableSpec, query: Query | None) -> TableSpec:
    """Returns the settings of the table that the records would make without the query. query: None while their fields
    are not known.
    """
    named = metadata_in_query(spec)
    origins = origins_of(program_of(query)).columns if query is not None else {}

    spellings = Spellings(origins)

    def fields_of(column: str) -> Collection[str]:
        return origins.get(spellings.find(column) or column, ()) or (column,)

    if groups_of(spec) is not None and not retracts(spec):
        # Nothing is deleted by its key, and a record without a value of the key is not refused before the query.
        return spec.of_records().model_copy(
            update={
                **APPENDED,
                "partition_by": None,
                "sort_by": None,
                "metadata": spec.metadata | named,
            }
        )

    keys = spec.changes.key_columns
    if query is not None and spec.changes.envelope is None:
        # A record without elements makes no row, and lacks no key.
        exploded = Spellings(exploded_columns(program_of(query)))
        keys = tuple(column for column in keys if exploded.find(column) is None) or keys

    # The order of a column made of several fields is known of rows alone, once the query has made them.
    order = fields_of(spec.changes.order_by) if spec.changes.order_by else ()

    return spec.of_records().model_copy(
        update={
            "partition_by": None,
            "sort_by": None,
            "metadata": spec.metadata | named,
            "key_columns": tuple(next(iter(fields_of(column))) for column in keys),
            "order_by": next(iter(order)) if len(order) == 1 else None,
        }
    )


def program_of(query: Query) -> Program:
    """Returns the program of a query that tasks can evaluate, which every query of a running table is."""
    assert query.program is not None
    return query.program


def query_columns(query: Query) -> dict[str, IcebergType]:
    """Returns the columns that a query makes."""
    return {column.name: column.type for column in query.columns}


def own_columns(spec: TableSpec) -> dict[str, IcebergType]:
    """Returns the columns that come neither from the record's value nor from the table's query."""
    columns = metadata_columns(spec.metadata, spec.source.key.format)
    if not spec.has_query:
        columns |= {column.name: column.type for column in spec.shape.columns if column.is_own}
    return columns | spec.shape.extra_columns


def envelope_of(spec: TableSpec, keys: tuple[tuple[str, ...], ...]) -> Envelope | None:
    """Returns how records contain changes; None where they are rows. keys: paths of known key columns."""
    envelope = spec.changes.envelope
    if envelope is None:
        return None
    values = (envelope.insert, envelope.update, envelope.delete) if envelope.kind == "operation" else ((), (), ())
    return Envelope(
        envelope.kind,
        envelope.operation,
        *values,
        placeholder=envelope.placeholder,
        keys=keys,
        is_log=spec.changes.changelog or retracts(spec),
        marks_deletes=spec.changes.deletes == "soft",
        is_upsert=spec.changes.mode == "upsert",
        retracts=retracts(spec),
    )


def declared_columns(spec: TableSpec) -> dict[str, IcebergType]:
    """Returns the columns of the pipeline file, and those that do not come from the record's value. What a table with a
    query declares are fields of its records.
    """
    declared = {} if spec.has_query else {column.name: column.type for column in spec.shape.columns}
    return declared | own_columns(spec)


def key_column_of(spec: TableSpec) -> str:
    """Returns the column of decoded record keys; empty where there is none, or where keys are kept as bytes."""
    return spec.metadata.get("key", "") if spec.source.key.format != "raw" else ""


def with_key(spec: TableSpec, query: Query, records: Schema) -> Query:
    """Returns a query with the column of decoded keys that `metadata` names: a table has it whatever its query selects, as
    it has other metadata. records: the columns that the query reads.
    """
    name, source = key_column_of(spec), key_column_of(records_spec(spec, None))
    types = {column.name: column.field_type for column in records.fields}
    if not name or source not in types or fold_case(name) in map(fold_case, query_columns(query)):
        return query
    return handing_on(query, Column(name, types[source], False, frozenset(((source,),))))


def with_counts(spec: TableSpec, query: Query) -> Query:
    """Returns a query with the columns that count records: a table has them whatever its query selects.

    Raises: NameTaken where the query makes such a column itself, or hands on a field of this name: its values would be
        added.
    """
    names = spec.changes.counted_columns
    if not names or groups_of(spec) is not None:  # The counts of groups are in the query's order already.
        return query
    counted = Spellings(names)
    for column in query.columns:
        name = counted.find(column.name)
        if name is not None:
            raise _counted_twice(spec, name, is_field=column.sources == {(column.name,)})
    program, number = program_of(query), Literal(1, arrow_type(LongType()))
    operators = list(program.operators)
    last = max(n for n, operator in enumerate(operators) if isinstance(operator, Project))
    operator = operators[last]
    assert isinstance(operator, Project)
    operators[last] = Project((*operator.columns, *((name, number) for name in names)))
    output = (*program.output, *(Field(name, number.type) for name in names))
    columns = (Column(name, LongType(), False, frozenset()) for name in names)
    return replace(
        query, columns=(*query.columns, *columns), program=replace(program, operators=tuple(operators), output=output)
    )


def _counted_twice(spec: TableSpec, name: str, is_field: bool) -> NameTaken:
    """Returns the error of a column that counts records and that rows have already. is_field: as a field of records."""
    is_handed_on = is_field and (not spec.query.select or "*" in spec.query.select)
    if is_handed_on and Spellings(column.name for column in spec.shape.columns).find(name) is not None:
        maker, advice = "`columns` declares the column", "take it out of `columns`"
    elif is_handed_on:
        maker, advice = "the records have a field of this name", f"leave the field out with `drop_fields: [{name}]`"
    elif spec.query.select:
        maker, advice = "the query makes the column too", f"leave `{name}` out of the query"
    else:
        maker, advice = "a step makes the column too", f"leave `{name}` out of the steps"
    return NameTaken(
        f"`merge.{name}` is `count`, which makes a column of its own, and {maker}",
        (name,),
        remedy=f"give the count another name, {advice}, or write `sum`",
        where=spec.name,
    )


def shaping_of(spec: TableSpec) -> Shaping | None:
    """Returns how the table's columns are derived from its records; None where they are the records' fields."""
    fields = tuple((column.name, column.field) for column in spec.shape.columns if column.field)
    shaping = Shaping(
        depth=spec.shape.flatten.depth if spec.shape.flatten else 0,
        separator=spec.shape.flatten.separator if spec.shape.flatten else "_",
        case=spec.shape.column_case,
        include=spec.shape.include,
        exclude=spec.shape.exclude,
        kept=_kept(spec),
        fields=fields,
        units=tuple((column.name, column.unit) for column in spec.shape.columns if column.unit),
        counted=tuple(
            (column.name, *inner)
            for column in spec.shape.columns
            if not column.is_own
            for inner in counted_in(column.type, column.unit)
        ),
        coerced=tuple(column.name for column in spec.shape.columns if column.coerce),
        zones=tuple((column.name, column.zone) for column in spec.shape.columns if column.zone),
        constants=tuple((column.name, column.constant) for column in spec.shape.columns if column.constant is not None),
        headers=tuple((column.name, column.header) for column in spec.shape.columns if column.header is not None),
        key=key_column_of(spec),
    )
    if shaping.exclude and shaping.makes_names:
        shaping = replace(shaping, kept_columns=frozenset(map(fold_path, _named_columns(spec))))
    if shaping.include and not shaping.makes_names:  # A declared column is always included.
        others = tuple((column.name,) for column in spec.shape.columns if not column.field and not column.is_own)
        shaping = replace(shaping, include=shaping.include + others)
    return shaping if shaping != Shaping() else None


def _kept(spec: TableSpec) -> tuple[Path, ...]:
    """Returns the fields that the table's settings name and `exclude` has in another case only."""
    named = [*spec.shape.include, *_named_columns(spec)]
    for column in spec.shape.columns:
        named += [path for path, _ in types_in(column.type, column.field)] if column.field else []
    left_out = set(map(fold_path, spec.shape.exclude))
    return tuple(
        dict.fromkeys(path for path in named if fold_path(path) in left_out and path not in spec.shape.exclude)
    )


def _named_columns(spec: TableSpec) -> Iterator[Path]:
    """Yields the columns that the table's settings name, other than with the field that feeds them, and all inside them."""
    yield from (tuple(name.split(".")) for name in (*spec.changes.key_columns, spec.changes.order_by) if name)
    for column in spec.shape.columns:
        if not column.is_own and not column.field:
            yield from (path for path, _ in types_in(column.type, (column.name,)))


def framing_of(value: ValueSpec) -> Framing:
    """Returns the framing of the bytes: where they contain the id of their schema."""
    return "none" if value.framing == "header" or value.source == "latest" else value.framing


def steps_of(spec: TableSpec) -> Steps:
    """Returns the steps before a table's query. Where a query follows, all rows are kept by a condition, which keeps the
    metadata too.
    """
    return Steps(
        dict(spec.query.rename),
        spec.query.drop_fields,
        spec.query.keep_fields,
        dict(spec.query.cast),
        dict(spec.query.add_fields),
        spec.query.filter or ("true" if spec.query.select else ""),
        metadata_names(spec),
    )
