"""Checks of a loaded table that need no record, and changes of its layout that the pipeline file asks for.

`check` and `plan` run them before a run would stop for the same reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from frazil.catalog.layout import (
    METRICS_OF,
    bind,
    find_column,
    is_arranged,
    refuse_partition_field_names,
    unknown_transform,
)
from frazil.catalog.port import Catalog, TableState
from frazil.cdc.document_ids import ID
from frazil.column_names import Spellings
from frazil.dead_letters.tables import DELETES_OLD, refuse_other_table
from frazil.errors import FrazilError, SpecError
from frazil.ingest.failures import TableStopped, describe_error
from frazil.ingest.tables.schema_changes import CLASH_REMEDY, declared_adder
from frazil.ingest.tables.settings import declared_columns, identifier_names, layout_of
from frazil.ingest.tables.table import Table
from frazil.ingest.tables.target import target_of
from frazil.plugins.formats import ENVELOPES
from frazil.printable import plural
from frazil.schema.evolve import NameConflict, can_promote, new_schema
from frazil.schema.names import spelled
from frazil.schema.parts import Path as FieldPath
from frazil.schema.parts import parts_of
from frazil.spec import TableSpec
from frazil.spec.settings import MetadataField
from frazil.spec.syntax.problems import advice
from frazil.upsert.kinds import check_kind, missing_columns
from frazil.upsert.lookup.live_rows import check_columns, check_ids
from frazil.write.file_formats import check_properties


def has_needed_columns(spec: TableSpec) -> bool:
    """Whether every column of the table's key, partitioning, sort order and properties is declared or a metadata column;
    otherwise the table is created when records have shown its columns. A key column that is added later cannot be required.
    """
    schema = new_schema(declared_columns(spec).items())
    keys = spec.changes.key_columns if spec.changes.mode == "upsert" else ()
    named = [*(term.column for term in layout_of(spec).terms), *measured_columns(spec), *keys]
    return all(find_column(schema, name) is not None for name in named)


def measured_columns(spec: TableSpec) -> list[str]:
    """Returns the columns that table properties of the pipeline file name."""
    return [name.removeprefix(METRICS_OF) for name in spec.layout.properties if name.startswith(METRICS_OF)]


def check_measured_columns(spec: TableSpec, schema: Schema) -> None:
    """Raises SpecError for a property of a column that a new table does not have: Iceberg would refuse to create it."""
    for name in measured_columns(spec):
        setting = METRICS_OF + name
        column = find_column(schema, name)
        if column is None or schema.find_column_name(column.field_id) != name:  # Iceberg finds it in its own case only.
            raise SpecError(
                f"`{setting}`: the table has no column `{name}`",
                remedy=f"declare it under `columns`, or correct the name: {advice(name, schema.column_names)}",
                where=spec.name,
            )


def arranged(catalog: Catalog, spec: TableSpec, state: TableState) -> TableState:
    """Returns the table after setting the partition spec and sort order of the pipeline file.

    Raises: the errors of `Catalog.arrange`.
    """
    layout = layout_of(spec)
    if is_arranged(layout, state.schema, state.partitioning, state.sorting, state.name):
        return state
    return catalog.arrange(state.name, layout)


def layout_mismatch(spec: TableSpec, state: TableState, file: Path) -> SpecError | None:
    """Returns the error, with file and line, of a table that cannot have the file's layout; None when it can."""
    spec_kept = state.partitioning if spec.layout.partition_by is None else PartitionSpec()
    unknown = unknown_transform(spec_kept, state.sorting if spec.layout.sort_by is None else UNSORTED_SORT_ORDER)
    if unknown:
        return SpecError(
            f"the table is partitioned or sorted by {unknown}, which is not a known transform",
            remedy="write `partition_by` and `sort_by` with known transforms, or use another table",
            where=state.name,
        )
    return term_mismatch(spec, state.schema, file)


def term_mismatch(spec: TableSpec, found: Schema, file: Path) -> SpecError | None:
    """Returns the error, with file and line, of the terms of `partition_by` and `sort_by` that have no column among the
    schema `found`, the declared columns and the metadata columns: the first one, which names the others; None when all
    have one.
    """
    columns = {field.name: field.field_type for field in found.fields}
    spellings = Spellings(columns)
    declared = {name: kind for name, kind in declared_columns(spec).items() if spellings.find(name) is None}
    schema = new_schema((declared | columns).items())
    errors: list[SpecError] = []
    for term in layout_of(spec).terms:
        try:
            bind(term, schema)
        except SpecError as error:
            error.where = f"{file}:{term.line}" if term.line else spec.name
            errors.append(error)
    if not errors:
        return None
    first, *others = errors
    words = "; ".join([first.message, *(error.message for error in others)])
    return SpecError(words, remedy=first.remedy, where=first.where, others=others)


def refuse_foreseen(table: Table, catalog: Catalog) -> None:
    """Raises TableStopped for the first reason for which a run would stop this table."""
    try:
        check_partitions(table)
        _check_declared(table)
        if table.spec.bad_records.on_bad_record == "dead_letter":
            dead_letters = catalog.load(table.dead_letter_table_name)
            if dead_letters is not None:
                refuse_other_table(dead_letters, table.name)
    except FrazilError as error:
        if error.exit_code != 2:
            raise
        raise TableStopped(*describe_error(error)) from None


def _check_declared(table: Table) -> None:
    """Raises an error when the declared columns cannot be added to the existing table, or cannot be those of a new one."""
    spec, state = table.spec, table.state
    if state is None:
        schema = new_schema(declared_columns(spec).items())
        if spec.shape.unknown_fields != "add":
            check_measured_columns(spec, schema)
    else:
        check_properties(state.properties, table.name)
        try:
            schema = declared_adder(spec)(state.schema)
        except NameConflict as error:
            raise TableStopped(str(error), CLASH_REMEDY, table.name) from None
        refuse_partition_field_names(state.schema, schema, state.specs, table.name)
    refuse_columns(table, schema)


def refuse_columns(table: Table, schema: Schema) -> None:
    """Raises SpecError where a table with this schema cannot be an upsert table, or drop duplicates."""
    if table.spec.changes.mode == "upsert":
        target = target_of(table, schema)
        check_columns(target, ())
        check_kind(target)
    if table.spec.changes.dedupe is not None:
        check_ids(target_of(table, schema))


_CREATED = re.compile(r"frazil\.(.*)\.created")
"""The properties that pipelines give their tables with the first commit."""
_SHOWN_DEFAULTS = 5
_PLACES: tuple[MetadataField, ...] = ("source_order", "position")


def warnings_of(table: Table, schema: Schema) -> list[str]:
    """Returns what an operator should know of a table that does not stop it. schema: of the table, also of one to be
    created.
    """
    state = table.state
    metadata = keeps_old_metadata(state), removes_needed_metadata(state)
    spec = table.spec
    own = (
        filled_by_another(table),
        text_order(spec, schema),
        topics_without_order(table),
        identified_otherwise(table),
        unwritten_defaults(table),
        field_in_image(spec),
        *metadata,
        moments_as_partitions(spec, schema),
        *columns_without_fields(table, schema),
    )
    return [words for words in own if words]


def filled_by_another(table: Table) -> str:
    """Returns a warning for a table with rows of another program or pipeline, to which a run would add those of the
    topic's first records too; empty for tables that this pipeline has written to, and where a record replaces the row of
    its key.
    """
    state, size, changes = table.state, table.catalog.size, table.spec.changes
    if state is None or size is None or not size.live_row_count or table.spec.source.start.kind != "earliest":
        return ""
    if state.progress.snapshot_id is not None or (changes.looks_up_rows and not changes.counts_every_row):
        return ""
    pipelines = sorted(match[1] for match in map(_CREATED.fullmatch, state.properties) if match is not None)
    words = (
        "the table has {rows} of {writer}, and a run reads its topics from their beginning: records that are rows already"
        " become rows again. `frazil adopt {table} {options}` continues {place}; `start: latest` reads new records alone"
    )
    if pipelines:
        writer, options = f"the pipeline `{pipelines[0]}`", "--from group --offsets FILE"
        place = "at its offsets, if this is that pipeline under another name"
    else:
        writer, options, place = "another program", "--from TOOL", "where that program has stopped"
    rows = plural(size.live_row_count, "row")
    return words.format(rows=rows, writer=writer, table=table.name, options=options, place=place)


def columns_without_fields(table: Table, schema: Schema) -> Iterator[str]:
    """Yields a warning for the columns that a key of an upsert table names and the table does not have."""
    if table.spec.changes.mode == "upsert" and schema.fields:
        for key, names in missing_columns(replace(target_of(table), schema_json=schema.model_dump_json())).items():
            without = "and the table has no such column: no record that can become a row has had the field yet"
            yield f"`{key}` names {', '.join(names)}, {without}"


def field_in_image(spec: TableSpec) -> str:
    """Returns a warning for a column whose declared field begins with the member of the envelope that has the row; empty
    for other tables. Fields are those of the row, so that nothing feeds the column.
    """
    kind = spec.changes.envelope.kind if spec.changes.envelope is not None else ""
    envelope = ENVELOPES.get(kind) if kind else None
    members = envelope.members if envelope is not None else None
    own_images = envelope.images if envelope is not None else ()
    images = (members.after, members.before) if members is not None else own_images
    for column in spec.shape.columns:
        field = ".".join(column.field or ())
        image = next((image for image in images if image and field.startswith(f"{image}.")), "")
        if image:
            return (
                f"`columns: {{{column.name}: {{field: {field}}}}}` names a member of the envelope, and fields are those of"
                f" the row in it: the column stays null unless rows have a field `{image}`. Write"
                f" `field: {field.removeprefix(f'{image}.')}`"
            )
    return ""


def unwritten_defaults(table: Table) -> str:
    """Returns a warning for a table with columns that have a default for new rows (Iceberg spec "Default values"); empty
    for other tables, and where a query makes the columns. Records do not show whether a null was meant.
    """
    names = [] if table.state is None or table.spec.has_query else _with_defaults(table.state.schema)
    if not names:
        return ""
    shown = ", ".join(f"`{name}`" for name in names[:_SHOWN_DEFAULTS]) + (", …" if names[_SHOWN_DEFAULTS:] else "")
    first = names[0].partition(".")[0]
    return (
        f"the default of {shown} is not written: a record without the field leaves null, or is a bad record where the column"
        f" is required. A query can write it: `select: select …, coalesce({first}, …) as {first} from records`"
    )


def _with_defaults(schema: Schema) -> list[str]:
    """Returns the paths of columns with a default for new rows."""
    fields = [schema.find_field(number) for number in schema.field_ids]
    return [
        schema.find_column_name(field.field_id) or field.name for field in fields if field.write_default is not None
    ]


def moments_as_partitions(spec: TableSpec, schema: Schema) -> str:
    """Returns a warning where `partition_by` has a timestamp as it is; empty where it does not."""
    times = (TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)
    for term in spec.layout.partition_by or ():
        column = find_column(schema, term.column)
        if term.transform == "identity" and column is not None and isinstance(column.field_type, times):
            return (
                f"`partition_by: {term.column}` makes a partition of each moment, as `{term.column}` is a timestamp: write"
                f" `day({term.column})` or `hour({term.column})`"
            )
    return ""


def text_order(spec: TableSpec, schema: Schema) -> str:
    """Returns a warning where `order_by` names a text column; empty where it does not, or where it names a position in
    the source's log, whose text form sorts correctly. schema: the schema of the table, or of the table to be created.
    """
    name = spec.changes.order_by
    if name is None or name in [spec.metadata.get(place) for place in _PLACES]:
        return ""
    column = spelled(name, schema)
    kind = next((field.field_type for field in schema.fields if field.name == column), None)
    if not isinstance(kind, StringType):
        return ""
    return (
        f"`order_by: {name}` is text, and texts are compared by their bytes: `9` counts as newer than `10`, and"
        " `03:04:05Z` as newer than `03:04:05.5Z`, so newer changes may be dropped. Declare the column, as"
        " `timestamptz` or `decimal(p,s)`, before the table is created, unless all of its texts have one form"
    )


_SHOWN_TOPICS = 3
SOURCE_ORDER = "write `metadata: [source_order]` and `order_by: _source_order`"
_ORIGINS: tuple[MetadataField, ...] = ("topic", "source_database", "source_schema", "source_table")


def has_apart_rows(table: Table) -> bool:
    """Whether the table's key has the topic or the source table of a row, so that no row moves from one to another."""
    changes = target_of(table).changes
    return changes is not None and any(table.spec.metadata.get(origin) in changes.key_columns for origin in _ORIGINS)


def may_have_source_order(table: Table) -> bool:
    """Whether changes of an upsert table without `order_by` may have a position in the log of their source, by which they
    could be ordered; those of MongoDB documents have none.
    """
    spec, changes = table.spec, target_of(table).changes
    if spec.changes.envelope is None or spec.changes.order_by is not None or changes is None:
        return False
    is_of_documents = any(name.split(".")[0] == ID for name in changes.key_columns)
    return "source_order" in ENVELOPES.get(spec.changes.envelope.kind).all_metadata and not is_of_documents


def topics_without_order(table: Table) -> str:
    """Returns a warning where changes of one key may be in several topics, and nothing orders them; else nothing."""
    topics = sorted(table.offsets.topics)
    if len(topics) < 2 or not may_have_source_order(table) or has_apart_rows(table):
        return ""
    names = ", ".join(topics[:_SHOWN_TOPICS]) + (", …" if len(topics) > _SHOWN_TOPICS else "")
    return (
        f"several topics ({names}) feed the table, and topics are read in no order of their changes: a row that moves from"
        " one of them to another, as between partitions of a PostgreSQL table, may be lost or return to an older state."
        f" {SOURCE_ORDER.capitalize()}; or let `key_columns` contain `_topic` or `_source_table` where each topic has rows"
        " of its own"
    )


def identified_otherwise(table: Table) -> str:
    """Returns a warning for an upsert table whose rows are identified by other columns than its identifier fields; empty
    for other tables.
    """
    changes = target_of(table).changes
    names = identifier_names(table.state.schema) if table.state is not None else ()
    if changes is None or not names or not changes.key_columns:
        return ""
    of_rows = [".".join(path) for path in changes.row_paths]
    if set(of_rows) == set(names):
        return ""
    keys = [name for name in names if changes.history is None or name != changes.history.valid_from]
    return (
        f"rows are identified by {', '.join(of_rows)}, and the table's identifier fields are"
        f" {', '.join(names)}, by which other engines identify them. Write `key_columns: [{', '.join(keys)}]`, or `ALTER"
        f" TABLE {table.name} SET IDENTIFIER FIELDS {', '.join(of_rows)}`"
    )


def keeps_old_metadata(state: TableState | None) -> str:
    """Returns a warning for a table without Iceberg's property about old metadata files; empty for other tables, and
    where the catalog needs the files.
    """
    if state is None or state.must_keep_metadata or DELETES_OLD in state.properties:
        return ""
    return (
        "every commit leaves a metadata file behind, 86,400 a day with a commit a second, until table maintenance"
        f" removes it as an orphan. `ALTER TABLE {state.name} SET TBLPROPERTIES ('{DELETES_OLD}' = 'true')`: then each"
        " commit removes the oldest one"
    )


def removes_needed_metadata(state: TableState | None) -> str:
    """Returns a warning for a table that removes old metadata files although its catalog needs them; empty for others."""
    if state is None or not state.must_keep_metadata or state.properties.get(DELETES_OLD, "").lower() != "true":
        return ""
    return (
        "every commit removes the oldest metadata file, and this catalog needs them: without them a process that was"
        " paused can hide later commits of others, and another branch of the catalog may not be readable. `ALTER TABLE"
        f" {state.name} SET TBLPROPERTIES ('{DELETES_OLD}' = 'false')`"
    )


def declared_mismatch(spec: TableSpec, schema: Schema | None) -> SpecError | None:
    """Returns the reason why the table cannot have the declared columns; None when it can, also where a run adds or widens
    some. schema: of the table (None: it will be created); of a table with a query, the known fields of its records.
    """
    existing = {field.name: field.field_type for field in schema.fields} if schema is not None else {}
    spellings = Spellings([*existing])
    for column in spec.shape.columns:
        pair = _member_pair(column.type, existing.get(column.name), (column.name,))
        if pair is not None:
            return _members_alike(spec, *pair)
        if column.name in existing:
            if not _is_or_becomes(existing[column.name], column.type):
                return _of_another_type(spec, column.name, existing[column.name], column.type)
            continue
        others = spellings.others(column.name)
        if others:
            return _respelt(spec, column.name, others[0], is_there=others[0] in existing)
        spellings.add(column.name)
    return None


def _is_or_becomes(table: IcebergType, declared: IcebergType) -> bool:
    """Whether a column has the declared type, or a wider one that records have required since, or can be widened to it."""
    if isinstance(table, StructType) and isinstance(declared, StructType):
        members = {member.name: member.field_type for member in table.fields}
        return all(
            _is_or_becomes(members[member.name], member.field_type)
            for member in declared.fields
            if member.name in members
        )
    if isinstance(table, ListType) and isinstance(declared, ListType):
        return _is_or_becomes(table.element_type, declared.element_type)
    if isinstance(table, MapType) and isinstance(declared, MapType):
        return table.key_type == declared.key_type and _is_or_becomes(table.value_type, declared.value_type)
    return table == declared or can_promote(table, declared) or can_promote(declared, table)


def _member_pair(declared: IcebergType, table: IcebergType | None, path: FieldPath) -> tuple[FieldPath, str] | None:
    """Returns the path of a declared member, and the name of another one beside it that differs in case alone; None where
    there is none, or the table has both. table: the type of the column in the table. path: of the declared type.
    """
    spellings, members = Spellings(), {part.name: part.field_type for part in parts_of(table)} if table else {}
    for part in parts_of(declared):
        others = spellings.others(part.name)
        if others and not members.keys() >= {part.name, others[0]}:
            return (*path, part.name), others[0]
        spellings.add(part.name)
    inner = (_member_pair(part.field_type, members.get(part.name), (*path, part.name)) for part in parts_of(declared))
    return next(filter(None, inner), None)


def _members_alike(spec: TableSpec, path: FieldPath, other: str) -> SpecError:
    *around, name = path
    is_inside = "element" in path or "value" in path
    column = f"; the column `{around[-1]}_{name}: {{type: …, field: {'.'.join(path)}}}` takes its values"
    return SpecError(
        f"`columns` declares `{other}` and `{name}` in `{'.'.join(around)}`, which differ only in letter case: engines"
        " cannot distinguish them",
        remedy=f"take `{name}` out of the declared type{'' if is_inside else column}",
        where=spec.name,
    )


def _of_another_type(spec: TableSpec, name: str, table: IcebergType, declared: IcebergType) -> SpecError:
    have, asked = (str(kind).split("<")[0] for kind in (table, declared))
    differs = have if have != asked else f"another {have}"
    column = next(candidate for candidate in spec.shape.columns if candidate.name == name)
    field = ".".join(column.field or (name,))
    as_text = ", coerce: true" if column.coerce else ""
    message = (
        f"`columns` declares `{name}` as {asked}, and the table has it as {differs}, which Iceberg cannot widen to that"
    )
    if spec.has_query:
        message = (
            f"`columns` declares `{name}` as {asked}, and the table's records have it as {differs}, which Iceberg cannot"
            " widen to that"
        )
    return SpecError(
        message,
        remedy=(
            f"take `{name}` out of `columns`, or write its type as the table has it; or declare the field under another"
            f" name, `columns: {{NAME: {{type: {asked}{as_text}, field: {field}}}}}`"
        ),
        where=spec.name,
    )


def _respelt(spec: TableSpec, name: str, other: str, is_there: bool) -> SpecError:
    if is_there:
        message = f"`columns` declares `{name}`, and the table has `{other}`, which differs only in letter case"
        if spec.has_query:
            message = f"`columns` declares `{name}`, and records have `{other}`, which differs only in letter case"
        return SpecError(message, remedy=f"write `{other}` under `columns`, as the table has it", where=spec.name)
    message = (
        f"`columns` declares `{other}` and `{name}`, which differ only in letter case: engines cannot distinguish them"
    )
    remedy = f"give one of them another name, such as `{name}_2: {{type: …, field: {name}}}`"
    return SpecError(message, remedy=remedy, where=spec.name)


def check_partitions(table: Table) -> None:
    """Raises SpecError for several partitions without a topic of transactions, where nothing shows their ends."""
    count = max((topic.partition_count for topic in table.offsets.topics.values()), default=0)
    if count > 1 and table.spec.changes.atomic is not None and table.spec.changes.atomic.transaction_topic is None:
        raise SpecError(
            f"a transaction may span all {count} partitions of the topic, and nothing shows when it is complete",
            remedy="write `atomic: {transaction_topic: …}` with Debezium's topic, or use a topic of one partition",
            where=f"topic {min(table.offsets.topics)}",
        )
