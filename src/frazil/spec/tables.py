"""One entry under `tables`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from frazil.errors import SpecError
from frazil.spec.document import Entry, Node, Section
from frazil.spec.models import METADATA_COLUMNS, ColumnSpec, CommitSpec, MetadataField, Start, TableSpec, TopicSelector
from frazil.spec.problems import Problems, advice
from frazil.spec.reading import Fields, read_items, read_text
from frazil.spec.secrets import has_reference
from frazil.spec.sections import read_commit
from frazil.spec.table_vocabulary import TABLE
from frazil.spec.topics import check_offset_topics, parse_start, parse_topic, read_selectors
from frazil.spec.types import parse_type
from frazil.spec.vocabulary import COLUMN, VALUE

RESERVED_COLUMNS = frozenset(
    ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number")
)
"""Names of Iceberg's own metadata columns: Spark refuses to read a table that has such a column itself."""

_SINGLE_CHOICES = ("on_drift", "on_bad_record", "rescue", "envelope", "mode", "changelog")


def check_dotted_name(name: str, fewest_parts: int, what: str) -> None:
    """Raises if `name` is not at least so many parts joined by dots."""
    parts = name.split(".")
    if not all(re.fullmatch(r"[^\s`'\"/\\]+", part) for part in parts):
        remedy = "join non-empty parts by dots, without spaces, quotes and slashes"
        raise SpecError(f"`{name}` is not the name of a {what}", remedy=remedy)
    if len(parts) < fewest_parts:
        raise SpecError(f"the table `{name}` has no namespace", remedy=f"write `<namespace>.{name}`")


def read_table(entry: Entry, inherited: CommitSpec, problems: Problems) -> TableSpec:
    """The table that `entry` declares; what it leaves out of `commit` is `inherited`."""
    problems.attempt(entry.line, None, check_dotted_name, entry.key, 2, "table")
    fields = Fields(entry.value, TABLE, "", problems, owner=f"table `{entry.key}`")
    for key in _SINGLE_CHOICES:
        fields.choice(key)
    _read_value(fields.get("value"), problems)
    topics = _read_topics(fields, entry, problems)
    columns = _read_columns(fields.get("columns"), problems)
    metadata = _read_metadata(fields.get("metadata"), problems)
    undeclared = fields.choice("undeclared")
    _check_columns(fields.get("columns"), columns, metadata, problems)
    if undeclared == "drop" and not columns and not metadata:
        message = f"table `{entry.key}` drops every field: `undeclared` is drop, and no `columns` are declared"
        problems.add(entry.line, message, "declare `columns`")
    return TableSpec.model_validate(
        {
            "name": entry.key,
            "topics": topics,
            "start": _read_start(fields.get("start"), topics, problems),
            "columns": columns,
            "undeclared": undeclared,
            "metadata": metadata,
            "commit": read_commit(fields.get("commit"), inherited, problems),
            "on_data_loss": fields.choice("on_data_loss"),
            "format_version": fields.choice("format_version"),
            "properties": fields.strings("properties", _table_property),
            "line": entry.line,
        }
    )


def _read_value(entry: Entry | None, problems: Problems) -> None:
    if entry is not None:
        Fields(entry.value, VALUE, "value", problems).choice("format")


def _read_topics(fields: Fields, table: Entry, problems: Problems) -> tuple[TopicSelector, ...]:
    one, many = fields.get("topic"), fields.get("topics")
    if one and many:
        line = max(one.line, many.line)
        problems.add(line, f"table `{table.key}` has both `topic` and `topics`", "keep one of them")
    if many:
        return read_selectors(many.value, problems)
    if one:
        text = read_text(one.value, "topic", problems)
        selector = problems.attempt(one.value.line, None, parse_topic, text) if text else None
        return (selector,) if selector else ()
    if isinstance(table.value, Section):
        problems.add(table.line, f"table `{table.key}` names no topic", "write `topic: NAME`, or `topics: [a, b]`")
    return ()


def _read_start(entry: Entry | None, topics: tuple[TopicSelector, ...], problems: Problems) -> Start:
    if entry is None:
        return Start()
    start = problems.attempt(entry.value.line, Start(), parse_start, entry.value)
    if topics:
        problems.attempt(entry.value.line, None, check_offset_topics, start, topics)
    return start


def _read_columns(entry: Entry | None, problems: Problems) -> tuple[ColumnSpec, ...]:
    if entry is None:
        return ()
    if not isinstance(entry.value, Section):
        problems.add(entry.line, "`columns` is not a mapping", "write `columns: {name: type}`")
        return ()
    columns = (_read_column(column, problems) for column in entry.value.entries)
    return tuple(column for column in columns if column is not None)


def _read_column(entry: Entry, problems: Problems) -> ColumnSpec | None:
    label = f"columns.{entry.key}"
    node: Node | None = entry.value
    if isinstance(node, Section):
        written = Fields(node, COLUMN, label, problems).get("type")
        if written is None:
            problems.add(entry.line, f"`{label}` has no type", f"write `{entry.key}: long`, or another type")
        node = written.value if written else None
    text = read_text(node, label, problems) if node else None
    if not text or not node:
        return None
    column_type = problems.attempt(node.line, None, parse_type, text)
    return ColumnSpec(name=entry.key, type=column_type) if column_type else None


def _read_metadata(entry: Entry | None, problems: Problems) -> dict[MetadataField, str]:
    """A list of fields, each in its usual column, or a mapping of fields to columns."""
    columns: dict[MetadataField, str] = {}
    for name, line, column in _asked_metadata(entry, problems):
        field = cast(MetadataField, name)
        if name not in METADATA_COLUMNS:
            problems.add(line, f"`metadata` has no `{name}`", advice(name, METADATA_COLUMNS))
        elif field in columns:
            problems.add(line, f"`{name}` is there twice in `metadata`", "keep one of them")
        elif column in columns.values():
            problems.add(line, f"`metadata` writes two fields to the column `{column}`", "rename one of the columns")
        elif column in RESERVED_COLUMNS and column != METADATA_COLUMNS[field]:
            message = f"the column `{column}` has the name of one of Iceberg's metadata columns"
            problems.add(line, message, "rename the column")
        elif column is not None:
            columns[field] = column
    return columns


def _asked_metadata(entry: Entry | None, problems: Problems) -> list[tuple[str, int, str | None]]:
    """Every field as it is written, its line, and its column (None for what is no field or no name)."""
    if entry is None:
        return []
    if isinstance(entry.value, Section):
        written = entry.value.entries
        return [(one.key, one.line, read_text(one.value, f"metadata.{one.key}", problems)) for one in written]
    items = read_items(entry.value, "metadata", problems)
    texts = [(item.line, read_text(item, "metadata", problems)) for item in items]
    return [(text, line, METADATA_COLUMNS.get(cast(MetadataField, text))) for line, text in texts if text]


def _check_columns(
    entry: Entry | None, columns: tuple[ColumnSpec, ...], metadata: Mapping[MetadataField, str], problems: Problems
) -> None:
    sources = {column: field for field, column in metadata.items()}
    declared = entry.value.entries if entry and isinstance(entry.value, Section) else ()
    lines = {column.key: column.line for column in declared}
    for column in columns:
        if column.name in sources:
            message = f"the column `{column.name}` is declared, and `metadata` writes {sources[column.name]} to it"
            problems.add(lines[column.name], message, "rename the column, or take it out of `metadata`")
        elif column.name in RESERVED_COLUMNS:
            message = f"the column `{column.name}` has the name of one of Iceberg's metadata columns"
            problems.add(lines[column.name], message, "rename the column")


def _table_property(text: str, key: str) -> str:
    if key == "format-version":
        raise SpecError("`format-version` is not for `properties`", remedy="write `format_version: 3`")
    if key.startswith("frazil."):
        raise SpecError(f"`{key}` is one of Frazil's own names", remedy="use another name")
    if has_reference(text):
        message = f"`properties.{key}` refers to a secret, and table properties are for everyone to read"
        raise SpecError(message, remedy="write the value, or put it under `catalog.properties`")
    return text
