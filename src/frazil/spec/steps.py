"""The steps of a table before its rows are written: `rename`, `drop_fields`, `keep_fields`, `cast`, `add_fields`."""

from __future__ import annotations

import math
from collections.abc import Mapping

from frazil.name_length import is_long, long_name_reason
from frazil.plugins.envelopes import ENVELOPES
from frazil.spec.document import Scalar, Section
from frazil.spec.forms import parse_path
from frazil.spec.keys import Fields, Path, describe, read_text
from frazil.spec.models import TableSpec
from frazil.spec.problems import advice
from frazil.spec.settings import METADATA_COLUMNS, Constant, MetadataField
from frazil.spec.types import parse_type
from frazil.types import RESERVED_COLUMNS

OF_RECORDS: tuple[MetadataField, ...] = ("key", "headers", "topic", "partition", "offset", "timestamp")
"""The metadata of every record that a query can name, each as its column of METADATA_COLUMNS."""
OF_CHANGES: Mapping[str, tuple[MetadataField, str]] = {
    "op": ("op", "_op"),
    "ts_ms": ("connector_ts", "unix_millis(_connector_ts)"),
    "source.ts_ms": ("source_ts", "unix_millis(_source_ts)"),
    "source.db": ("source_database", "_source_database"),
    "source.schema": ("source_schema", "_source_schema"),
    "source.table": ("source_table", "_source_table"),
    "source.collection": ("source_table", "_source_table"),
    "transaction.id": ("transaction_id", "_transaction_id"),
    "transaction.total_order": ("total_order", "_total_order"),
    "transaction.data_collection_order": ("collection_order", "_collection_order"),
}
"""The metadata of changes under the names of Debezium's envelope, each with its SQL (Debezium, New Record State Extraction,
`add.fields`).
"""
_MOST = 2**63


def read_rename(fields: Fields, key: str) -> tuple[tuple[Path, str], ...]:
    """Reads a mapping of paths to new names."""
    renamed = fields.words_by_name(key, "`rename: {cust: customer}`, each old name with its new one")
    paths = {name: fields.problems.attempt(fields.node(key).line, None, parse_path, name) for name in renamed}
    return tuple((path, renamed[name]) for name, path in paths.items() if path)


def read_cast(fields: Fields, key: str) -> tuple[tuple[Path, object], ...]:
    """Reads a mapping of paths to types in Iceberg's words."""
    found = []
    for name, text in fields.words_by_name(key, '`cast: {amount: "decimal(12,2)"}`').items():
        line = fields.node(key).line
        path = fields.problems.attempt(line, None, parse_path, name)
        parsed = fields.problems.attempt(line, None, parse_type, text)
        if path and parsed:
            found.append((path, parsed))
    return tuple(found)


def read_added(fields: Fields, key: str) -> tuple[tuple[str, Constant], ...]:
    """Reads a mapping of new columns to constants, or to pieces of metadata by their names."""
    node = fields.node(key)
    if not isinstance(node, Section):
        message = f"`{key}` is {describe(node)} where a mapping is expected"
        fields.problems.add(node.line, message, "write `add_fields: {name: value}`")
        return ()
    found: list[tuple[str, Constant]] = []
    for entry in node.entries:
        value = entry.value
        if isinstance(value, Scalar) and value.kind in ("integer", "number"):
            number = _number(value)
            if number is not None:
                found.append((entry.key, number))
                continue
            message = f"`{key}.{entry.key}` is neither a whole number of 64 bits nor a finite one"
            fields.problems.add(value.line, message, "write it in decimal digits, or in quotes for text")
        elif isinstance(value, Scalar) and value.text.lower() in ("true", "false") and value.kind == "boolean":
            found.append((entry.key, value.text.lower() == "true"))
        else:
            text = read_text(value, f"{key}.{entry.key}", fields.problems)
            found += [(entry.key, text)] if text else []
    return tuple(found)


def _number(value: Scalar) -> int | float | None:
    """The number as Spark's SQL can have it: `long` or `double`; None for another."""
    try:
        number = int(value.text) if value.kind == "integer" else float(value.text)
    except ValueError:  # YAML has more forms than Python, such as `.inf` and `0x10`.
        return None
    return number if -_MOST <= number < _MOST or (isinstance(number, float) and math.isfinite(number)) else None


def metadata_names(table: TableSpec) -> dict[str, str]:
    """The SQL of the metadata that the table's query and `add_fields` can name: that of every record, and of changes what
    the table's envelope has.
    """
    fields: set[str] = {*OF_RECORDS}
    of_changes: dict[str, str] = {}
    if table.envelope is not None:
        fields |= {"op", "image", *ENVELOPES.get(table.envelope.kind).all_metadata}
        of_changes = {name: sql for name, (field, sql) in OF_CHANGES.items() if field in fields}
    return {column: column for field, column in METADATA_COLUMNS.items() if field in fields} | of_changes


def check_new_names(fields: Fields, table: TableSpec) -> None:
    """Notes names of columns from `rename` and `add_fields` that no table can have."""
    named = metadata_names(table)
    found = [("rename", name) for path, name in table.rename if len(path) == 1]
    found += [("add_fields", name) for name, value in table.add_fields if not (name == value and name in named)]
    for key, name in found:
        if not name:
            fields.refuse_key(key, f"`{key}` makes a column without a name", "give it a name")
        if name.lower() in RESERVED_COLUMNS:
            message = f"`{key}` makes a column `{name}`, which is the name of one of Iceberg's metadata columns"
            fields.refuse_key(key, message, "choose another name")
    for key, name in [*found, *(("rename", name) for path, name in table.rename if len(path) > 1)]:
        if is_long(name):
            fields.refuse_key(key, f"`{key}`: {long_name_reason(name)}", "give it a shorter name")


def check_different(fields: Fields, table: TableSpec) -> None:
    """Notes fields and columns that are named twice, in letter case or not, as no reader distinguishes them. Those of
    `columns` and `metadata` are compared with the table's when it is made.
    """
    spelt = ".".join
    made = [spelt((*path[:-1], name)) for path, name in table.rename]
    named = {
        "key_columns": list(table.key_columns),
        "rename": [spelt(path) for path, _ in table.rename],
        "cast": [spelt(path) for path, _ in table.cast],
        "add_fields": [name for name, _ in table.add_fields],
    }
    for key, names in [*named.items(), ("rename", made)]:
        first: dict[str, str] = {}
        for name in names:
            if name.lower() in first:
                message = f"`{key}` has `{first[name.lower()]}` and `{name}`, which most readers take for one column"
                fields.refuse_key(key, message, "keep one of them")
            first.setdefault(name.lower(), name)


def check_added(fields: Fields, table: TableSpec) -> None:
    """Notes metadata in `add_fields` that the table does not have: it would be a constant."""
    known, has_envelope = metadata_names(table), table.envelope is not None
    for _, value in table.add_fields:
        text = str(value)
        is_path = text in OF_CHANGES and (has_envelope or "." in text)
        is_path |= has_envelope and text.startswith(("source.", "transaction."))
        if text in known or not (is_path or text in METADATA_COLUMNS.values()):
            continue
        if has_envelope:
            message = f"`add_fields` has `{text}`, which the table's envelope does not have"
            fields.refuse_value("add_fields", message, advice(text, known))
        else:
            message = f"`add_fields` has `{text}`, which needs an envelope that the table does not have"
            fields.refuse_value("add_fields", message, "write `envelope`, or take it out of `add_fields`")
