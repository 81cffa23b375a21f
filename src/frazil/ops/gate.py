"""The gate: the registry's newest schemas against the tables, before a record is written with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from frazil.errors import SpecError, UnavailableError
from frazil.ingest.decode.columns import Columns, Decoded
from frazil.ingest.decode.fit import Fitting, fit_columns
from frazil.ingest.decode.framed import row_renames, row_struct
from frazil.ingest.decode.json_schema.refusals import refused_changes
from frazil.ingest.evolve import NamesClash, SchemaChange, compare_schemas, lacking_of, new_schema
from frazil.ingest.layouts import term_misfit
from frazil.ingest.pipeline import adder
from frazil.ingest.schemas import UNKNOWN, Schemas
from frazil.ingest.table import Table
from frazil.ingest.target import TableTarget, WriterSchema, arrow_type
from frazil.ops.check import Finding, failed
from frazil.ops.plan import describe_type

_REMEDIES = {
    "dead_letter": "records with such values become dead letters: change the schema, or the table's declared column",
    "stop": "the table stops at such a record: change the schema, or the table's declared column",
    "skip": "records with such values are left out: change the schema, or the table's declared column",
}


def check_schemas(tables: Iterable[Table], schemas: Schemas, file: Path) -> Iterator[Finding]:
    """The newest schema of every topic that is read with one: what its table would become, and what would be refused. file:
    the pipeline file.
    """
    for table in tables:
        if not table.spec.value.needs_registry:
            continue
        found: list[Schema] = []
        for topic in sorted(table.topics):
            finding = _check_topic(table, topic, schemas, found)
            yield finding
            if finding.name == "registry":
                return
        # Decoded keys become columns too, which no schema of values has.
        has_more = table.spec.key.format not in ("raw", "text")
        if table.state is None and len(found) == len(table.topics) and not has_more:
            yield from _check_layout(table, found, file)


def _check_layout(table: Table, found: Sequence[Schema], file: Path) -> Iterator[Finding]:
    """A table that is to be made and cannot be arranged with the columns of any topic's schema."""
    errors = [term_misfit(table.spec, schema, file) for schema in found]
    error = errors[0] if errors and None not in errors else None
    if error is not None:
        tried = "looked for the columns of `partition_by` and `sort_by` in the newest schemas"
        yield Finding(f"layout of {table.name}", False, tried, error.message, error.remedy, error.where)


def _check_topic(table: Table, topic: str, schemas: Schemas, found: list[Schema]) -> Finding:
    """found: gets what the table becomes for records of the topic, where the schema tells all of it."""
    value = table.spec.value
    try:
        subject = schemas.subject(topic, value)
        schema = schemas.latest(topic, value)
    except UnavailableError as error:
        return failed("registry", "asked it for the newest schemas", error)
    except SpecError:
        tried, words = (
            "looked at `registry.naming`",
            "records name their schemas; there is no subject to look at before",
        )
        return Finding(f"schema of {topic}", True, tried, words)
    name, tried = f"schema {subject}", f"compared the newest version with table {table.name}"
    if schema == UNKNOWN:
        return Finding(name, True, tried, "the registry has no such subject yet")
    if schema.kind == "unusable":
        return Finding(name, False, tried, schema.text, "register a version that records can be read with", subject)
    if schema.kind != value.format:
        remedy = f"write `value: {{format: {schema.kind}}}`, or correct the subject"
        return Finding(name, False, tried, f"it is {schema.kind}, and the table reads {value.format}", remedy, subject)
    before = table.state.schema if table.state else new_schema({c.name: c.type for c in table.spec.columns}.items())
    after, refusals = _become(table, before, schema, subject)
    if after is not None and schema.kind != "json_schema":  # Its records may have fields that it does not name.
        found.append(after)
    if after is None or refusals:
        return Finding(name, False, tried, "; ".join(refusals), _REMEDIES[table.spec.on_bad_record], table.name)
    return Finding(name, True, tried, _in_words(compare_schemas(before, after)))


def _become(table: Table, before: Schema, written: WriterSchema, subject: str) -> tuple[Schema | None, list[str]]:
    """What a table becomes for records of a schema, None where names clash, and what its policy or its types refuse."""
    decoded = _compared(table, table.target(before), written, subject)
    try:
        return adder(table.spec, decoded.wanted)(before), sorted(decoded.refusals)
    except NamesClash as error:
        return None, [str(error), *sorted(decoded.refusals)]


def _compared(table: Table, target: TableTarget, written: WriterSchema, subject: str) -> Decoded:
    """What tasks would find of records of a schema, without one."""
    fields, reading = target.fields, target.reading
    if target.shaping is not None:
        fields, reading = target.layout.fields, replace(reading, units=target.layout.units)
    struct = row_struct(written, target.envelope, fields, table.spec.value.message or "")
    if target.shaping is not None:
        struct = target.shaping.selection.prune_struct(struct) or StructType()
    if written.kind == "json_schema":  # What the records hold is text, of which columns take more than of such types.
        wanted = lacking_of(StructType(*fields), struct, reading.may_widen) if reading.undeclared == "add" else {}
        refusals = refused_changes(reading, StructType(*fields), struct, subject)
        return Decoded(
            [], np.zeros(0, np.bool_), wanted={path: dict(of) for path, of in wanted.items()}, refusals=refusals
        )
    nothing = Columns([pa.nulls(0, arrow_type(f.field_type)) for f in struct.fields], np.zeros(0, np.uint8), ())
    renames = row_renames(written, target.envelope, struct)
    return fit_columns(Fitting(reading, subject, 0, 0, renames), struct, nothing, fields)


def _in_words(changes: list[SchemaChange]) -> str:
    if not changes:
        return "the table has all of it"
    words = [
        f"{'adds' if change.is_new else 'widens'} {change.path}: {describe_type(change.kind)}" for change in changes
    ]
    return "a run " + ", ".join(words)
