"""Compares the registry's newest schemas of values and keys with the tables, before records are written with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from frazil.cdc.document_ids import ID
from frazil.column_names import fold_case
from frazil.decode.cast import convert_columns
from frazil.decode.columns import Columns, Decoded
from frazil.decode.conversion import Conversion
from frazil.decode.lossless import format_type
from frazil.decode.messages import text_schemas
from frazil.decode.renames import Renames
from frazil.decode.settings import Envelope, Reading, WriterSchema
from frazil.errors import SpecError, UnavailableError
from frazil.ingest.tables.preflight import term_mismatch
from frazil.ingest.tables.queries import QueryTables
from frazil.ingest.tables.schema_changes import adder
from frazil.ingest.tables.schemas import UNKNOWN, Schemas, as_read, ignored_in, ignored_phrases
from frazil.ingest.tables.settings import key_column_of
from frazil.ingest.tables.table import Table
from frazil.ingest.tables.target import target_of
from frazil.ops.check import Finding, declared_schema, failed
from frazil.registry.port import UnusableSchema
from frazil.rows.project import in_column
from frazil.rows.record_keys import is_record
from frazil.rows.writer_schemas import row_branches, row_renames, row_struct
from frazil.schema.arrow import arrow_type
from frazil.schema.conflicts import remedy_of
from frazil.schema.evolve import NameConflict, SchemaChange, compare_schemas, find_missing_fields
from frazil.schema.names import as_columns, column_names
from frazil.schema.parts import Path as FieldPath
from frazil.schema.parts import types_in
from frazil.schema.projection import KEY_ROOT
from frazil.spec import PipelineSpec
from frazil.spec.settings import ValueSpec
from frazil.upsert.records.key_fields import leaves_of, places_of
from frazil.write.target import TableTarget

_CONSEQUENCES = {
    "dead_letter": "records with such values become dead letters: change the schema, or the table's declared column",
    "stop": "the table stops at such a record: change the schema, or the table's declared column",
    "skip": "records with such values are skipped: change the schema, or the table's declared column",
}


@dataclass
class _Gate:
    """One table compared with the registry's newest schemas."""

    table: Table
    schemas: Schemas
    #: The table's schema after records of each schema that describes records completely.
    schemas_after: list[Schema] = field(default_factory=list)
    inspected: int = 0


def check(
    spec: PipelineSpec, schemas: Schemas, tables: Iterable[Table], queries: QueryTables | None
) -> Iterator[Finding]:
    """Yields whether the registry answers, and if so what `check_schemas` does."""
    assert spec.registry is not None
    registry = check_registry(schemas, spec.registry.urls)
    yield registry
    if registry.is_ok:
        yield from check_schemas(tables, schemas, spec.file.path, queries)


def check_registry(schemas: Schemas, urls: Sequence[str]) -> Finding:
    """Checks whether the registry answers, also where no existing topic needs it."""
    hosts = ", ".join(urls)
    tried = f"asked {hosts} for a schema that nobody has registered"
    try:
        schemas.reach()
    except UnavailableError as error:
        return failed("registry", tried, error)
    return Finding("registry", True, tried, hosts)


def check_schemas(
    tables: Iterable[Table], schemas: Schemas, file: Path, queries: QueryTables | None = None
) -> Iterator[Finding]:
    """Yields, for the newest schema of every topic's values and keys, what its table would become and what would be
    refused; of a table with a query, what the table would become that the records alone would make, and whether the
    query can be computed. file: the pipeline file. queries: None where queries cannot be analysed.
    """
    for whole in tables:
        table = whole.records
        gate = _Gate(table, schemas)
        keys = _format_of_keys(table)
        for topic in sorted(table.offsets.topics):
            try:
                if table.spec.source.value.needs_registry:
                    yield from _check_topic(gate, topic, table.spec.source.value, "value")
                if keys is not None:
                    yield from _check_topic(gate, topic, keys, "key")
            except UnavailableError as error:
                yield failed("registry", "asked it for the newest schemas", error)
                return
        # Decoded keys become columns too, which no schema of values contains.
        has_more = table.spec.source.key.format not in ("raw", "text")
        if table.state is None and gate.schemas_after and len(gate.schemas_after) == gate.inspected and not has_more:
            yield from _check_layout(table, gate.schemas_after, file)
        if whole.spec.has_query and gate.schemas_after and queries is not None:
            yield from _check_query(whole, gate.schemas_after, queries)


def _check_query(table: Table, schemas: Sequence[Schema], queries: QueryTables) -> Iterator[Finding]:
    """Yields a finding for a query that can be computed for the schemas of no topic."""
    error: SpecError | UnavailableError | None = None
    for schema in schemas:
        try:
            queries.first_schema(table, schema, ())
        except (SpecError, UnavailableError) as refusal:
            error = error or refusal
        else:
            return
    if error is not None:
        yield failed(f"query of {table.name}", "analysed it for the newest schemas of its topics", error)


def _check_layout(table: Table, schemas: Sequence[Schema], file: Path) -> Iterator[Finding]:
    """Yields a finding for a new table that cannot have its layout with the columns of any topic's schema."""
    errors = [term_mismatch(table.spec, schema, file) for schema in schemas]
    error = errors[0] if errors and None not in errors else None
    if error is not None:
        tried = "looked for the columns of `partition_by` and `sort_by` in the newest schemas"
        yield Finding(f"layout of {table.name}", False, tried, error.message, error.remedy, error.where)


def _check_topic(gate: _Gate, topic: str, value: ValueSpec, key: str) -> Iterator[Finding]:
    """Checks the newest schemas of a topic's values or keys. key: the setting of their format, `value` or `key`."""
    table, is_key = gate.table, key == "key"
    what = f"the keys of table {table.name}" if is_key else f"table {table.name}"
    for subject, written in _newest(gate, topic, value, is_key):
        if written is None:
            if not is_key:  # The types of keys are not kept in the progress.
                gate.inspected += 1
                unnamed = "no record's type is known yet that would name a subject"
                yield Finding(f"schema of {topic}", True, "looked at `registry.naming`", unnamed)
            continue
        schema = as_read(written, value)
        name, tried = f"schema {subject}", f"compared the newest version with {what}"
        finding = _unusable(name, tried, subject, schema, value, key)
        if finding is None:
            try:
                finding = _compare(gate, (name, tried), subject, schema, is_key)
            except UnusableSchema as error:  # The schema has no such message, or one that no table can have.
                finding = _unreadable(name, tried, subject, str(error))
        gate.inspected += not is_key
        words = ignored_phrases(ignored_in(written, value), key)
        yield replace(finding, found=f"{finding.found}; warning: {words}") if words else finding


def _compare(gate: _Gate, names: tuple[str, str], subject: str, schema: WriterSchema, is_key: bool) -> Finding:
    """Returns the finding for a schema that can be used. names: of the finding, and of what was tried.

    Raises: UnusableSchema where the messages of records cannot be read.
    """
    table = gate.table
    before = table.state.schema if table.state else declared_schema(table)
    become = _become_with_key if is_key else _become
    after, refusals = become(table, before, schema, subject)
    if not is_key and after is not None and schema.kind != "json_schema":
        gate.schemas_after.append(after)  # Records of a JSON Schema may have fields that it does not declare.
    return _compared_finding(*names, table, (before, after), refusals)


def _newest(gate: _Gate, topic: str, value: ValueSpec, is_key: bool) -> Iterator[tuple[str, WriterSchema | None]]:
    """Yields the subjects of a topic with their newest schemas; an empty subject where no record type is known yet."""
    ids = gate.table.progress.batch.schemas if gate.table.state is not None and not is_key else ()
    writer_schemas = gate.schemas.fetch(ids, topic, value).values() if gate.schemas.needs_types(value) else ()
    subjects = gate.schemas.subjects(topic, value, writer_schemas, is_key)
    for subject in subjects:
        yield subject, gate.schemas.newest(subject)
    if not subjects:
        yield "", None


def _unusable(name: str, tried: str, subject: str, schema: WriterSchema, value: ValueSpec, key: str) -> Finding | None:
    """Returns the finding for a schema that cannot be used; None where it can. key: the setting of the format."""
    if schema == UNKNOWN:
        return Finding(name, True, tried, "the registry has no such subject yet")
    if schema.kind == "unusable":
        return _unreadable(name, tried, subject, schema.text)
    if schema.kind != value.format:
        remedy = f"write `{key}: {{format: {schema.kind}}}`, or correct the subject"
        return Finding(name, False, tried, f"it is {schema.kind}, and the table reads {value.format}", remedy, subject)
    return None


def _unreadable(name: str, tried: str, subject: str, reason: str) -> Finding:
    return Finding(name, False, tried, reason, "register a version that records can be read with", subject)


def _compared_finding(
    name: str, tried: str, table: Table, change: tuple[Schema, Schema | None], refusals: Sequence[str]
) -> Finding:
    before, after = change
    if after is None or refusals:
        remedies = dict.fromkeys(remedy_of(refusal) for refusal in refusals)
        remedy = "; ".join(filter(None, [_CONSEQUENCES[table.spec.bad_records.on_bad_record], *remedies]))
        return Finding(name, False, tried, "; ".join(refusals), remedy, table.name)
    return Finding(name, True, tried, _describe_changes(compare_schemas(before, after)))


def _become(table: Table, before: Schema, written: WriterSchema, subject: str) -> tuple[Schema | None, list[str]]:
    """Returns the table's schema after records of a schema, None where names clash; and what its policy or its types
    refuse.
    """
    decoded = _compared(table, target_of(table, before), written, subject)
    try:
        return adder(table.spec, decoded.requested_fields)(before), sorted(decoded.refusals)
    except NameConflict as error:
        return None, [str(error), *sorted(decoded.refusals)]


def _compared(table: Table, target: TableTarget, written: WriterSchema, subject: str) -> Decoded:
    """Returns what tasks would find in records of the schema, without records."""
    fields, reading = target.fields, target.reading
    if target.shaping is not None:
        layout = target.layout
        fields, reading = layout.fields, replace(reading, declared=layout.declared)
    message = table.spec.source.value.message or ""
    struct = row_struct(written, target.envelope, fields, message, reading)
    renames = row_renames(written, target.envelope, struct)
    if target.shaping is not None:
        renames, selection = renames.selecting(target.shaping.selection)
        struct = selection.prune_struct(struct) or StructType()
    if reading.aliases:
        named = as_columns(struct, column_names(reading.aliases))
        struct = named if isinstance(named, StructType) else struct
    return _fitted(reading, subject, written, struct, fields, renames, target.envelope)


def _fitted(
    reading: Reading,
    subject: str,
    written: WriterSchema,
    struct: StructType,
    fields: Sequence[NestedField],
    renames: Renames | None = None,
    envelope: Envelope | None = None,
) -> Decoded:
    if written.kind == "json_schema":  # The records contain text, from which columns accept more than from such types.
        requested_fields = (
            find_missing_fields(StructType(*fields), struct, reading.evolution.may_widen)
            if reading.unknown_fields == "add"
            else {}
        )
        refusals = text_schemas().refused_changes(reading, StructType(*fields), struct, subject)
        return Decoded(
            [],
            np.zeros(0, np.bool_),
            requested_fields={path: dict(of) for path, of in requested_fields.items()},
            refusals=refusals,
        )
    nothing = Columns([pa.nulls(0, arrow_type(f.field_type)) for f in struct.fields], np.zeros(0, np.uint8), ())
    fitting = Conversion(reading, subject, 0, 0, renames or Renames(), row_branches(written, envelope))
    return convert_columns(fitting, struct, nothing, fields)


# ---- keys


def _format_of_keys(table: Table) -> ValueSpec | None:
    """Returns the format in which the registry's key schemas are read; None where the table does not use them."""
    spec = table.spec
    uses_keys = spec.changes.mode == "upsert"
    if spec.source.key.needs_registry:
        return spec.source.key if uses_keys or key_column_of(spec) else None
    # Without a declared format, keys of envelopes have the format of their values.
    if (
        uses_keys
        and spec.changes.envelope is not None
        and spec.source.key.format == "raw"
        and spec.source.value.needs_registry
    ):
        return spec.source.value.model_copy(update={"message": None, "subject": None})
    return None


def _become_with_key(
    table: Table, before: Schema, written: WriterSchema, subject: str
) -> tuple[Schema | None, list[str]]:
    """Returns the table's schema after keys of a schema, where it has a column for keys; and what is refused."""
    format_ = _format_of_keys(table)
    message = format_.message or "" if format_ is not None else ""
    after, refusals = _with_key_column(table, before, written, subject, message)
    return after, refusals + _missing_key_fields(table, written, subject, message)


def _with_key_column(
    table: Table, before: Schema, written: WriterSchema, subject: str, message: str
) -> tuple[Schema | None, list[str]]:
    target, name = target_of(table, before), key_column_of(table.spec)
    if not name or target.record.key is None:
        return before, []
    kind = next((column.field_type for column in before.fields if column.name == name), None)
    is_struct = is_record(written)
    if kind is None:
        struct = row_struct(written, None, (), message)
        key_type = struct if is_struct else struct.fields[0].field_type
        return adder(table.spec, {(): {KEY_ROOT: key_type}})(before), []
    if is_struct != isinstance(kind, StructType):
        words = ("are records", "holds none") if is_struct else ("are not records", "holds records")
        return before, [f"schema {subject}: column {name}: the keys {words[0]}, and the column {words[1]}"]
    fields = kind.fields if isinstance(kind, StructType) else (NestedField(0, "value", kind, required=False),)
    struct = row_struct(written, None, fields, message)
    decoded = _fitted(target.record.key, subject, written, struct, fields)
    requested_fields = {
        (KEY_ROOT, *path) if is_struct else (): of if is_struct else {KEY_ROOT: of["value"]}
        for path, of in decoded.requested_fields.items()
    }
    after = adder(table.spec, requested_fields)(before) if requested_fields else before
    return after, sorted(in_column(refusal, name, kind) for refusal in decoded.refusals)


def _missing_key_fields(table: Table, written: WriterSchema, subject: str, message: str) -> list[str]:
    """Returns what the keys of a schema lack, or have in addition, to identify the rows of an upsert table."""
    target = target_of(table)
    changes = target.changes
    if changes is None or not changes.paths or not is_record(written):
        return []
    struct = row_struct(written, None, (), message)
    places = places_of(target, changes)
    key_fields = {_folded(path) for path, _ in types_in(struct)}
    lacking = [
        f"schema {subject}: the keys have no field for the key column {'.'.join(path)}"
        for path, mine in places.items()
        if path[0] != ID and key_fields.isdisjoint(map(_folded, mine))
    ]
    if not changes.is_key_of_record:
        return lacking
    named_fields = {_folded(place) for mine in places.values() for place in mine}
    more = [".".join(path) for path in leaves_of(struct) if _folded(path) not in named_fields]
    return lacking + [f"schema {subject}: the keys have the field {name}, which is not a key column" for name in more]


def _folded(path: FieldPath) -> FieldPath:
    """Returns a path without case: a field feeds the column whose name differs in case alone."""
    return tuple(map(fold_case, path))


def _describe_changes(changes: list[SchemaChange]) -> str:
    if not changes:
        return "the table has all of it"
    words = [f"{'adds' if change.is_new else 'widens'} {change.path}: {format_type(change.kind)}" for change in changes]
    return "a run " + ", ".join(words)
