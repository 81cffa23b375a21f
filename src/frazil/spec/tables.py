"""One entry under `tables`, and `defaults`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from pyiceberg.types import IcebergType

from frazil.errors import SpecError
from frazil.spec.changes import read_atomic, read_change_settings, read_changes
from frazil.spec.columns import (
    check_columns,
    check_numbers,
    read_columns,
    read_shaping,
    read_value,
)
from frazil.spec.document import Entry, Items, Node, Scalar, Section, lines_of
from frazil.spec.keys import Fields, Path, keys_of, read_items, read_text
from frazil.spec.models import (
    DEFAULTS_KEYS,
    METADATA_COLUMNS,
    OF_ONE_TABLE,
    TABLE_KEYS,
    TABLE_MAINTENANCE_KEYS,
    ColumnSpec,
    CommitSpec,
    KeySpec,
    MaintenanceSpec,
    MetadataField,
    PipelineSpec,
    Start,
    TableSpec,
    TopicSelector,
    ValueSpec,
)
from frazil.spec.partitioning import METADATA_TYPES, PartitionTerm, check_terms
from frazil.spec.problems import Problems, advice
from frazil.spec.secrets import has_reference, secrets_of
from frazil.spec.sections import check_order, read_commit, read_maintenance
from frazil.spec.topics import check_offset_topics, parse_start, parse_topic, table_name
from frazil.spec.units import parse_size
from frazil.types import RESCUED_COLUMN, RESERVED_COLUMNS

_STRANGE_IN_TABLE: Mapping[str, str] = {
    **dict.fromkeys(keys_of(PipelineSpec), "write it at the top of the file"),
    **dict.fromkeys(keys_of(CommitSpec), "write it under `commit`"),
    **dict.fromkeys(keys_of(ValueSpec), "write it under `value`, or under `key`"),
}
"""Keys of other places that are easily written into a table, and what to do about them."""
_STRANGE_IN_DEFAULTS: Mapping[str, str] = {
    **_STRANGE_IN_TABLE,
    **dict.fromkeys(OF_ONE_TABLE, "write it in each table: it is no default for others"),
}
_OF_UPSERT_TABLES = ("key_columns", "order_by", "deletes")
"""Settings of upsert tables, which a table with its own `mode: append`, such as a changelog table, does not take from
`defaults`.
"""
_FORMATS = ("write.format.default", "write.delete.format.default")
_CODEC, _LEVEL = "write.parquet.compression-codec", "write.parquet.compression-level"
_CODECS = ("zstd", "snappy", "gzip", "brotli", "lz4", "uncompressed")
_SIZES = (
    "write.target-file-size-bytes", "write.parquet.row-group-size-bytes", "write.parquet.page-size-bytes",
)  # fmt: skip


def read_table(
    entry: Entry, inherited: CommitSpec, maintenance: MaintenanceSpec, defaults: Section | None, problems: Problems
) -> TableSpec:
    """The table that `entry` declares; what it leaves out of `commit` is `inherited`, of `maintenance` taken from
    `maintenance`, what it leaves out else from `defaults`.
    """
    problems.attempt(entry.line, None, table_name, entry.key)
    node, owner = _with_defaults(entry.value, defaults), f"table `{entry.key}`"
    with problems.in_part(lines_of(defaults), f"{owner} has it from `defaults`"):
        fields = Fields(node, TABLE_KEYS, "", problems, owner, _STRANGE_IN_TABLE)
        topics = _read_topics(fields, entry, problems)
        return _read_settings(entry, fields, topics, (inherited, maintenance))


def read_defaults(
    entry: Entry | None, inherited: CommitSpec, maintenance: MaintenanceSpec, problems: Problems
) -> TableSpec | None:
    """The settings of tables that the file does not declare one by one."""
    if entry is None:
        return None
    fields = Fields(entry.value, DEFAULTS_KEYS, "", problems, "`defaults`", _STRANGE_IN_DEFAULTS)
    return _read_settings(entry, fields, (), (inherited, maintenance))


def _with_defaults(node: Node, defaults: Section | None) -> Node:
    if defaults is None or not isinstance(node, Section):
        return node
    own = {entry.key: entry.value for entry in node.entries}
    mode = own.get("mode")
    strange = _OF_UPSERT_TABLES if isinstance(mode, Scalar) and mode.text == "append" else ()
    # What is no setting of a table is noted where `defaults` itself is read.
    missing = DEFAULTS_KEYS.keys() - {*own, *strange}
    return replace(node, entries=(*node.entries, *(entry for entry in defaults.entries if entry.key in missing)))


def _read_settings(
    entry: Entry,
    fields: Fields,
    topics: tuple[TopicSelector, ...],
    inherited: tuple[CommitSpec, MaintenanceSpec],
) -> TableSpec:
    problems, columns = fields.problems, read_columns(fields)
    value = read_value(fields, "value")
    of_key = read_value(fields, "key", KeySpec)
    asked = _read_metadata(fields.get("metadata"), problems)
    mode = str(fields.choice("mode"))
    wrapped = read_change_settings(fields, mode, value.format, asked)
    changes = wrapped | read_changes(fields, mode, of_key.format, wrapped)
    metadata = changes["metadata"]
    _check_latest(entry, value, topics, problems)
    check_numbers(fields, value.format)
    unknown_fields = fields.choice("unknown_fields")
    check_columns(fields, columns, metadata)
    shaping = read_shaping(fields, columns, value.format)
    if unknown_fields == "drop" and not columns and not metadata:
        message = f"table `{entry.key}` drops every field: `unknown_fields` is drop, and no `columns` are declared"
        problems.add(entry.line, message, "declare `columns`")
    known = _known_columns(columns, metadata, unknown_fields)
    settings = {
        "name": entry.key,
        "topics": topics,
        "start": _read_start(fields.get("start"), topics, problems),
        "value": value,
        "key": of_key,
        "columns": columns,
        **fields.values(),
        "unknown_fields": unknown_fields,
        **(fields.section("infer", TableSpec, "infer").values() if fields.get("infer") is not None else {}),
        **shaping,
        **changes,
        "atomic": read_atomic(fields, topics, wrapped["envelope"]),
        "commit": read_commit(fields.get("commit"), inherited[0], problems),
        "maintenance": _read_maintenance(entry, fields, inherited[1], known),
        "properties": fields.strings("properties", _check_table_property),
        "line": entry.line,
    }
    _check_layout(fields, settings, known)
    _check_named_columns(fields, settings, columns)
    return TableSpec.model_validate(settings)


@dataclass(frozen=True)
class _Known:
    """The columns of a table that the file declares or asks for."""

    #: The types of the columns whose type the file fixes.
    types: Mapping[str, IcebergType]
    #: The columns whose type the file leaves open.
    others: tuple[str, ...]
    #: Whether the table can have no further columns.
    is_complete: bool

    def is_checked(self, path: str) -> bool:
        """Whether the file fixes the type of the column at this path, or rules the column out."""
        return path.split(".")[0] not in self.others


def _known_columns(
    columns: tuple[ColumnSpec, ...], metadata: Mapping[MetadataField, str], unknown_fields: object
) -> _Known:
    types = {column.name: column.type for column in columns}
    types |= {column: METADATA_TYPES[field] for field, column in metadata.items() if field in METADATA_TYPES}
    others = tuple(column for field, column in metadata.items() if field not in METADATA_TYPES)
    return _Known(types, (*others, RESCUED_COLUMN), unknown_fields != "add" and bool(columns))


def _check_layout(fields: Fields, settings: Mapping[str, Any], known: _Known) -> None:
    """Checks `partition_by` and `sort_by` against the columns whose types the file declares."""
    terms = [*settings.get("partition_by", ()), *(sort.term for sort in settings.get("sort_by", ()))]
    checked = [term for term in terms if known.is_checked(term.column)]
    check_terms(checked, known.types, known.is_complete, fields.problems)


def _read_maintenance(table: Entry, fields: Fields, inherited: MaintenanceSpec, known: _Known) -> MaintenanceSpec:
    """`maintenance`, its order of rows checked likewise, though it is inherited."""
    maintenance = read_maintenance(fields.get("maintenance"), inherited, fields.problems, TABLE_MAINTENANCE_KEYS)
    for line, error in check_order(maintenance, known.types, known.is_complete, known.others):
        fields.problems.add(line, f"table `{table.key}`: {error.message}", error.remedy)
    return maintenance


def _check_latest(table: Entry, value: ValueSpec, topics: tuple[TopicSelector, ...], problems: Problems) -> None:
    is_many = len(topics) > 1 or any(selector.pattern is not None for selector in topics)
    if is_many and value.source == "latest" and not value.subject:
        message = f"table `{table.key}` reads several topics with `schema: latest`, and each has a subject of its own"
        problems.add(table.line, message, "write `subject: NAME`, or give each topic its table")


def _read_topics(fields: Fields, table: Entry, problems: Problems) -> tuple[TopicSelector, ...]:
    one, many = fields.get("topic"), fields.get("topics")
    if one and many:
        line = max(one.line, many.line)
        problems.add(line, f"table `{table.key}` has both `topic` and `topics`", "keep one of them")
    if many:
        return tuple(fields.values().get("topics", ()))
    if one and isinstance(one.value, Items):
        problems.add(one.value.line, "`topic` takes one name", "write `topics` for several")
    elif one:
        selector = fields.parsed("topic", parse_topic)
        return (selector,) if selector else ()
    elif isinstance(table.value, Section):
        problems.add(table.line, f"table `{table.key}` names no topic", "write `topic: NAME`, or `topics: [a, b]`")
    return ()


def _read_start(entry: Entry | None, topics: tuple[TopicSelector, ...], problems: Problems) -> Start:
    if entry is None:
        return Start()
    start = problems.attempt(entry.value.line, Start(), parse_start, entry.value)
    if topics:
        problems.attempt(entry.value.line, None, check_offset_topics, start, topics)
    return start


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


def _check_table_property(text: str, key: str) -> None:
    if key == "format-version":
        raise SpecError("`format-version` is not for `properties`", remedy="write `format_version: 3`")
    if key.startswith("frazil."):
        raise SpecError(f"`{key}` is one of Frazil's own names", remedy="use another name")
    _check_value(text, key)
    if secrets_of(key, text):
        message = f"`properties.{key}` holds a secret, and table properties are for everyone to read"
        raise SpecError(message, remedy="remove it, or put it under `catalog.properties`")
    if has_reference(text):
        message = f"`properties.{key}` refers to a secret, and table properties are for everyone to read"
        raise SpecError(message, remedy="write the value, or put it under `catalog.properties`")


def _check_named_columns(fields: Fields, settings: Mapping[str, Any], columns: Sequence[ColumnSpec]) -> None:
    """Notes columns of record metadata that `metadata` does not ask for, and keys and orders of fields that are left out.
    settings: of the table, by name.
    """
    declared = {column.name: column for column in columns}
    metadata = set(settings["metadata"].values())
    for key, line, name, text in _named(fields, settings):
        first = name.split(".")[0]
        field = next((field for field, usual in METADATA_COLUMNS.items() if usual == first), None)
        if field is not None and first not in declared and first not in metadata:
            message = f"`{key}` has `{text}`, and there is no column `{first}`: `metadata` does not ask for it"
            fields.problems.add(line, message, f"write `metadata: [{field}]`")
        elif key in ("key_columns", "order_by") and first not in metadata:
            if first not in declared and columns and settings["unknown_fields"] != "add":
                message = f"`{key}` has `{name}`, which `columns` does not declare and `unknown_fields` keeps away"
                fields.problems.add(line, message, "declare it under `columns`")
            path = _field_of(name, declared)
            if path is not None and not _makes_names(settings):
                taken = () if first in declared else settings["include"]
                _check_taken(key, line, path, taken, settings["exclude"], fields.problems)


def _named(fields: Fields, settings: Mapping[str, Any]) -> Iterator[tuple[str, int, str, str]]:
    """Each setting that names a column, its line, the column, and how it is written."""
    terms: list[tuple[str, PartitionTerm]] = [("partition_by", term) for term in settings.get("partition_by", ())]
    terms += [("sort_by", sort.term) for sort in settings.get("sort_by", ())]
    yield from ((key, term.line, term.column, term.text) for key, term in terms)
    for key, names in (("key_columns", settings["key_columns"]), ("order_by", (settings["order_by"],))):
        entry = fields.get(key)
        yield from ((key, entry.line, name, name) for name in names if entry is not None and name)


def _field_of(name: str, declared: Mapping[str, ColumnSpec]) -> Path | None:
    """The path of the field that feeds a column; None where it comes from something else than the record's value."""
    first, *rest = name.split(".")
    column = declared.get(first)
    if column is None:
        return (first, *rest)
    return None if column.is_own else (*(column.field or (first,)), *rest)


def _makes_names(settings: Mapping[str, Any]) -> bool:
    """Whether the names of columns are made from fields, so that the field of a column is not known yet."""
    return settings["flatten"] is not None or settings["column_case"] != "keep"


def _check_taken(
    key: str, line: int, path: Path, include: Sequence[Path], exclude: Sequence[Path], problems: Problems
) -> None:
    """Without a value every record would be a bad one."""
    name = ".".join(path)
    if any(path[: len(out)] == out for out in exclude):
        problems.add(line, f"`exclude` leaves out `{name}`, which `{key}` asks for", "take it out of one of them")
    elif include and not any(path[: len(taken)] == taken[: len(path)] for taken in include):
        problems.add(line, f"`include` does not take `{name}`, which `{key}` asks for", "add it to `include`")


def _check_value(text: str, key: str) -> None:
    """Raises a SpecError for a value that no file could be written with."""
    if key in _FORMATS and text.lower() != "parquet":
        raise SpecError(f"`properties.{key}` is `{text}`, and Frazil writes Parquet", remedy="remove it")
    if key == _CODEC and text.lower() not in _CODECS:
        raise SpecError(f"`properties.{key}` cannot be `{text}`", remedy=advice(text, _CODECS))
    if key == _LEVEL and re.fullmatch(r"-?[0-9]+|null", text, re.ASCII) is None:
        raise SpecError(f"`properties.{key}` is `{text}`, which is no level", remedy="write a number, such as 3")
    if key in _SIZES and not (_is_whole(text) and int(text)):
        size_bytes = 128 * 1024 * 1024
        with suppress(SpecError):
            size_bytes = parse_size(text)
        message = f"`properties.{key}` is `{text}`, and Iceberg takes a number of bytes"
        raise SpecError(message, remedy=f"write it in bytes, such as {size_bytes}")


def _is_whole(text: str) -> bool:
    return text.isdecimal() and text.isascii()
