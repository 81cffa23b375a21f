"""A table's settings as the independent rules take them, or why those rules do not make its rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyiceberg import types as t

from frazil.catalog.port import TableState
from frazil.ingest.tables.table import Table
from frazil.ingest.tables.target import target_of
from frazil.spec import TableSpec
from frazil_verify.independent.routes import Route
from frazil_verify.independent.rules import Format, NotJudged, Rules
from frazil_verify.model.settings import Column, Settings, table_of
from frazil_verify.model.types import ListOf, MapOf, Plain, StructOf, Type

_FORMATS = ("json", "avro", "json_schema", "protobuf")
_KEY_FORMATS = ("raw", "json", "text", "avro")
_TYPES = frozenset(
    (
        "boolean", "int", "long", "float", "double", "decimal", "string", "date", "time", "timestamp", "timestamptz", "uuid",
        "binary", "fixed",
    )
)  # fmt: skip
_BY_COPY = "run it without --independent: a copy of the table is made and compared"
_BY_PLACES = "add --rows or --ledger in its place, which find lost and doubled records by their offsets"


def rules_of(
    table: Table,
    state: TableState,
    schema: pa.Schema,
    schemas: Mapping[int, Any],
    key_schemas: Mapping[int, Any] | None = None,
) -> Rules:
    """Returns the rules of a loaded table. schema: its columns in Arrow's types. schemas: those of the registry that its
    values name, by id. key_schemas: those of its keys.

    Raises: NotJudged where the rules do not make its rows.
    """
    spec = table.spec
    reason = why_not(spec)
    if reason:
        has_copy = spec.source.share is None
        raise NotJudged(reason, _BY_COPY if has_copy else _BY_PLACES)
    settings = _settings(spec)
    columns = {field.name: type_of(field.field_type) for field in state.schema.fields}
    odd = next((name for name, kind in columns.items() if not _has_rules(kind)), None)
    if odd is not None:
        raise NotJudged(f"its column {odd} has a type that the rules do not have", _BY_COPY)
    comments = {field.name: field.doc or "" for field in state.schema.fields}
    changes = target_of(table).changes
    keys = changes.key_columns if changes is not None else ()
    if changes is not None and (not keys or any("." in name for name in keys)):
        raise NotJudged("its key columns are not columns of the table, or not known yet", _BY_COPY)
    is_plain = spec.source.key.format == "text" or (spec.source.key.format == "raw" and spec.changes.envelope is None)
    if changes is not None and is_plain and not spec.changes.key_columns:
        raise NotJudged("the whole key identifies its rows", _BY_COPY)
    envelope = "none"
    if spec.changes.envelope is not None:
        envelope = "upsert" if changes is not None else "changelog" if spec.changes.changelog else "append"
    return Rules(
        settings,
        table_of(columns, comments, settings),
        schema,
        Format(
            spec.source.value.format,
            envelope,
            schemas,
            spec.source.key.format,
            {} if key_schemas is None else key_schemas,
        ),
        keys,
        spec.changes.order_by or "",
        _route_of(table),
    )


def _route_of(table: Table) -> Route | None:
    """Returns how a table of a route finds its records; None for a table that takes all of them."""
    share = table.spec.source.share
    if share is None:
        return None
    sources = tuple((str(source.kind), source.path) for source in share.division.to.sources)
    return Route(sources, share.values, {derived.values: derived.start for derived in table.progress.rest.derived})


def why_not(spec: TableSpec) -> str:
    """Returns why the independent rules do not make the rows of a table; empty where they do."""
    changes, shape, source = spec.changes, spec.shape, spec.source
    names_schemas = [source.value, *([source.key] if changes.mode == "upsert" else [])]
    own_columns = [column.name for column in shape.columns if column.constant is not None or column.header is not None]
    reasons = {
        "a query, `lookup` or a stage makes its rows, which takes Spark's or Frazil's own functions": spec.has_query
        or any(stage.makes_rows for stage in spec.stage_settings.values()),
        f"its records are {source.value.format}": source.value.format not in _FORMATS,
        "its records do not name their schema in Confluent's way": any(
            of.needs_registry and (of.framing != "confluent" or of.source != "registry" or of.message is not None)
            for of in names_schemas
        ),
        "`logical_types: lenient` reads its schemas": any(of.logical_types != "strict" for of in names_schemas),
        "its envelope has Protobuf inside": source.value.format == "protobuf" and changes.envelope is not None,
        "its envelope has no rules": changes.envelope is not None and changes.envelope.kind != "debezium",
        f"its keys are {source.key.format}": changes.mode == "upsert" and source.key.format not in _KEY_FORMATS,
        "its rows are merged of several records": changes.counts_every_row,
        "it drops duplicates": changes.dedupe is not None,
        "it keeps all versions of its rows (`mode: history`)": changes.keeps_history,
        "deleted rows stay in it (`deletes: soft`)": changes.deletes == "soft",
        "transactions are atomic": changes.atomic is not None,
        "`flatten` makes its columns": shape.flatten is not None,
        "`column_case: camel` names its columns": shape.column_case == "camel",
        f"constants or headers feed the columns {', '.join(own_columns)}": bool(own_columns),
        "its tombstones are rows": changes.tombstones == "row",
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _has_rules(kind: Type) -> bool:
    match kind:
        case StructOf(members):
            return all(_has_rules(member) for _, member in members)
        case ListOf(element):
            return _has_rules(element)
        case MapOf(key, value):
            return _has_rules(key) and _has_rules(value)
    return kind.name in _TYPES


def _settings(spec: TableSpec) -> Settings:
    shape = spec.shape
    columns = {
        column.name: Column(
            f"{column.type}[{column.unit}]" if column.unit else str(column.type),
            column.field or (),
            column.coerce,
            column.zone or "",
        )
        for column in shape.columns
    }
    return Settings(
        columns=columns,
        unknown_fields=shape.unknown_fields,
        schema_evolution=shape.schema_evolution,
        rescue=shape.rescue,
        include=shape.include,
        exclude=shape.exclude,
        column_case=shape.column_case,
        metadata={str(name): column for name, column in spec.metadata.items()},
    )


def type_of(kind: t.IcebergType) -> Type:
    """Returns a column's type in the words of the rules."""
    match kind:
        case t.StructType():
            return StructOf(tuple((member.name, type_of(member.field_type)) for member in kind.fields))
        case t.ListType():
            return ListOf(type_of(kind.element_type))
        case t.MapType():
            return MapOf(type_of(kind.key_type), type_of(kind.value_type))
        case t.DecimalType():
            return Plain("decimal", (kind.precision, kind.scale))
        case t.FixedType():
            return Plain("fixed", (len(kind),))
    return Plain(str(kind))
