"""One entry under `tables`, and `defaults`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

from frazil.errors import SpecError
from frazil.name_case import Spellings, fold_case, fold_path
from frazil.spec.changes import check_atomic, complete_changes, read_atomic, read_envelope, read_tombstones
from frazil.spec.columns import (
    check_columns,
    check_numbers,
    check_shaping,
    read_columns,
    read_flatten,
    read_value,
)
from frazil.spec.models import (
    DEFAULTS_KEYS,
    OF_ONE_TABLE,
    TABLE_KEYS,
    TABLE_MAINTENANCE_KEYS,
    PipelineSpec,
    TableSpec,
    TopicSelector,
)
from frazil.spec.package_stages import read_stages, stage_keys
from frazil.spec.partitioning import METADATA_TYPES, check_terms
from frazil.spec.protect import check_protect, read_protect, read_protect_key
from frazil.spec.sections import check_order, read_commit, read_maintenance
from frazil.spec.settings import (
    METADATA_COLUMNS,
    ColumnSpec,
    CommitSpec,
    KeySpec,
    MaintenanceSpec,
    MetadataField,
    ValueSpec,
)
from frazil.spec.steps import (
    check_added,
    check_different,
    check_expect,
    check_new_names,
    read_added,
    read_cast,
    read_expect,
    read_functions,
    read_lookups,
    read_rename,
)
from frazil.spec.syntax.document import Entry, Items, Node, Scalar, Section, lines_of
from frazil.spec.syntax.forms import read_paths
from frazil.spec.syntax.keys import Fields, Path, Read, keys_of, read_items, read_text
from frazil.spec.syntax.problems import Problems, advice
from frazil.spec.syntax.secrets import Secrets, has_reference, secrets_of
from frazil.spec.syntax.units import parse_size
from frazil.spec.topics import check_offset_topics, parse_topic, table_name
from frazil.store.properties import check_table_properties
from frazil.store.table_properties import CODEC, CODECS, SIZES, wrong_values
from frazil.types import RESCUED_COLUMN, RESERVED_COLUMNS

STRANGE_IN_TABLE: Mapping[str, str] = {
    **dict.fromkeys(keys_of(PipelineSpec), "write it at the top of the file"),
    **dict.fromkeys(keys_of(CommitSpec), "write it under `commit`"),
    **dict.fromkeys(keys_of(ValueSpec), "write it under `value`, or under `key`"),
    **dict.fromkeys(
        ("primary_key", "primary_keys", "merge_key", "id_columns", "keys"),
        "write `mode: upsert` and `key_columns: [NAME]`",
    ),
    "value_format": "write `value: {format: FORMAT}`",
    "key_format": "write `key: {format: FORMAT}`",
    "coerce": "write it in a column: `columns: {NAME: {type: string, coerce: true}}`",
    "zone": "write it in a column: `columns: {NAME: {type: timestamptz, zone: UTC}}`",
}
"""Keys of other places and of other tools that are easily written into a table, and what to do about them."""
_STRANGE_IN_DEFAULTS: Mapping[str, str] = {
    **STRANGE_IN_TABLE,
    **dict.fromkeys(OF_ONE_TABLE, "write it in each table: it is no default for others"),
}
_OF_UPSERT_TABLES = ("key_columns", "order_by", "deletes")
"""Settings of upsert tables, which a table with its own `mode: append`, such as a changelog table, does not take from
`defaults`.
"""
_Spec = TypeVar("_Spec", bound=TableSpec)
_FORMATS = ("write.format.default", "write.delete.format.default")


def read_table(
    entry: Entry,
    inherited: tuple[CommitSpec, MaintenanceSpec],
    defaults: Section | None,
    secrets: Secrets,
    problems: Problems,
) -> TableSpec:
    """The table that `entry` declares; what it leaves out of `commit` and `maintenance` is `inherited`, what it leaves out
    else is taken from `defaults`.
    """
    problems.attempt(entry.line, None, table_name, entry.key)
    node, owner = with_defaults(entry.value, defaults), f"table `{entry.key}`"
    with problems.in_part(lines_of(defaults), f"{owner} has it from `defaults`"):
        fields = Fields(node, {**TABLE_KEYS, **stage_keys()}, "", problems, owner, STRANGE_IN_TABLE)
        if not isinstance(node, Section):
            return TableSpec(name=entry.key, topics=(), line=entry.line)
        check_topics(fields, entry)
        return read_settings(entry, fields, inherited, secrets, TableSpec)


def read_defaults(
    entry: Entry | None, inherited: tuple[CommitSpec, MaintenanceSpec], secrets: Secrets, problems: Problems
) -> TableSpec | None:
    """The settings of tables that the file does not declare one by one."""
    if entry is None:
        return None
    fields = Fields(entry.value, {**DEFAULTS_KEYS, **stage_keys()}, "", problems, "`defaults`", _STRANGE_IN_DEFAULTS)
    return read_settings(entry, fields, inherited, secrets, TableSpec)


def with_defaults(node: Node, defaults: Section | None) -> Node:
    """The settings of a table, with those of `defaults` that it does not have itself."""
    if defaults is None or not isinstance(node, Section):
        return node
    own = {entry.key: entry.value for entry in node.entries}
    mode = own.get("mode")
    strange = _OF_UPSERT_TABLES if isinstance(mode, Scalar) and mode.text == "append" else ()
    # What is no setting of a table is noted where `defaults` itself is read.
    missing = {*DEFAULTS_KEYS, *stage_keys()} - {*own, *strange}
    return replace(node, entries=(*node.entries, *(entry for entry in defaults.entries if entry.key in missing)))


def read_settings(
    entry: Entry,
    fields: Fields,
    inherited: tuple[CommitSpec, MaintenanceSpec],
    secrets: Secrets,
    model: type[_Spec],
) -> _Spec:
    """The settings under `entry`, for `model`, with the rules between them."""
    commit, maintenance = (fields.get("commit"), inherited[0]), (fields.get("maintenance"), inherited[1])
    readers: Mapping[str, Read] = {**_READERS, "protect_key": partial(read_protect_key, secrets=secrets)}
    declared = model(
        **{"topics": (), **fields.values(readers)},
        stages=read_stages(fields),
        name=entry.key,
        commit=read_commit(*commit, fields.problems),
        maintenance=read_maintenance(*maintenance, fields.problems, TABLE_MAINTENANCE_KEYS),
        line=entry.line,
    )
    table = complete_changes(fields, declared)
    for check in _CHECKS:
        check(fields, table)
    return table


def _check_sources(fields: Fields, table: TableSpec) -> None:
    """Notes settings of topics and of values that the topics or the values make wrong, and a table without columns."""
    is_many = len(table.topics) > 1 or any(selector.pattern is not None for selector in table.topics)
    if is_many and table.value.source == "latest" and not table.value.subject:
        message = f"table `{table.name}` reads several topics with `schema: latest`, and each has a subject of its own"
        fields.problems.add(table.line, message, "write `subject: NAME`, or give each topic its table")
    if table.topics and fields.get("start") is not None:
        line = fields.node("start").line
        fields.problems.attempt(line, None, check_offset_topics, table.start, table.topics)
    if table.unknown_fields == "drop" and not table.columns and not table.metadata:
        message = f"table `{table.name}` drops every field: `unknown_fields` is drop, and no `columns` are declared"
        fields.problems.add(table.line, message, "declare `columns`")


def _check_layout(fields: Fields, table: TableSpec) -> None:
    """Checks `partition_by`, `sort_by` and the order of `maintenance`, though it is inherited, against the columns whose
    types the file declares.
    """
    types = {} if table.has_query else {column.name: column.type for column in table.columns}
    types |= {column: METADATA_TYPES[field] for field, column in table.metadata.items() if field in METADATA_TYPES}
    #: Columns whose types the file leaves open.
    others = {RESCUED_COLUMN, *(column for field, column in table.metadata.items() if field not in METADATA_TYPES)}
    is_complete = table.unknown_fields != "add" and bool(table.columns) and not table.has_query
    terms = [*(table.partition_by or ()), *(sort.term for sort in table.sort_by or ())]
    checked = [term for term in terms if term.column.split(".")[0] not in others]
    check_terms(checked, types, is_complete, fields.problems)
    for line, error in check_order(table.maintenance, types, is_complete, others):
        fields.problems.add(line, f"table `{table.name}`: {error.message}", error.remedy)


def check_topics(fields: Fields, table: Entry) -> None:
    """Notes a table or a route that names no topic, or names it twice."""
    one, many = fields.get("topic"), fields.get("topics")
    if one and many:
        line = max(one.line, many.line)
        fields.problems.add(line, f"table `{table.key}` has both `topic` and `topics`", "keep one of them")
    if not one and not many and isinstance(table.value, Section):
        remedy = "write `topic: NAME`, or `topics: [a, b]`"
        fields.problems.add(table.line, f"table `{table.key}` names no topic", remedy)


def _read_topic(fields: Fields, key: str) -> tuple[TopicSelector, ...] | None:
    if isinstance(fields.node(key), Items):
        fields.refuse_value(key, "`topic` takes one name", "write `topics` for several")
        return None
    selector = fields.parsed(key, parse_topic)
    return (selector,) if selector else None


def _read_key_columns(fields: Fields, key: str) -> tuple[str, ...]:
    return tuple(".".join(path) for path in read_paths(fields, key))


def _read_infer(fields: Fields, key: str) -> object:
    return fields.section(key, TableSpec, key).values().get("infers_timestamps")


def _read_metadata(fields: Fields, key: str) -> dict[MetadataField, str]:
    """A list of fields, each in its usual column, or a mapping of fields to columns."""
    columns: dict[MetadataField, str] = {}
    problems = fields.problems
    for name, line, column in _asked_metadata(fields.node(key), problems):
        field = cast(MetadataField, name)
        if name not in METADATA_COLUMNS:
            problems.add(line, f"`metadata` has no `{name}`", advice(name, METADATA_COLUMNS))
        elif field in columns:
            problems.add(line, f"`{name}` is there twice in `metadata`", "keep one of them")
        elif column in columns.values():
            problems.add(line, f"`metadata` writes two fields to the column `{column}`", "rename one of the columns")
        elif (column or "").lower() in RESERVED_COLUMNS and column != METADATA_COLUMNS[field]:
            message = f"the column `{column}` has the name of one of Iceberg's metadata columns"
            problems.add(line, message, "rename the column")
        elif column is not None:
            columns[field] = column
    return columns


def _asked_metadata(node: Node, problems: Problems) -> list[tuple[str, int, str | None]]:
    """Every field as it is written, its line, and its column (None for what is no field or no name)."""
    if isinstance(node, Section):
        return [(one.key, one.line, read_text(one.value, f"metadata.{one.key}", problems)) for one in node.entries]
    items = read_items(node, "metadata", problems)
    texts = [(item.line, read_text(item, "metadata", problems)) for item in items]
    return [(text, line, METADATA_COLUMNS.get(cast(MetadataField, text))) for line, text in texts if text]


def _check_table_property(text: str, key: str) -> None:
    if key == "format-version":
        raise SpecError("`format-version` is not for `properties`", remedy="write `format_version: 3`")
    if key.startswith("frazil."):
        raise SpecError(f"`{key}` is one of Frazil's own names", remedy="use another name")
    _check_value(text, key)
    check_table_properties({key: text})
    if secrets_of(key, text):
        message = f"`properties.{key}` holds a secret, and table properties are for everyone to read"
        raise SpecError(message, remedy="remove it, or put it under `catalog.properties`")
    if has_reference(text):
        message = f"`properties.{key}` refers to a secret, and table properties are for everyone to read"
        raise SpecError(message, remedy="write the value, or put it under `catalog.properties`")


def _check_named_columns(fields: Fields, table: TableSpec) -> None:
    """Notes columns of record metadata that `metadata` does not ask for, and keys and orders of fields that are left out."""
    declared = {column.name: column for column in table.columns}
    columns, metadata = Spellings(declared), Spellings(table.metadata.values())
    # Where names of columns are made from fields, the field of a column is not known yet.
    is_plain = table.flatten is None and table.column_case == "keep"
    if table.has_query:  # The query makes the columns.
        return
    for key, line, name, text in _named(fields, table):
        first = name.split(".")[0]
        field = next((one for one, usual in METADATA_COLUMNS.items() if fold_case(usual) == fold_case(first)), None)
        is_declared, is_metadata = columns.find(first) is not None, metadata.find(first) is not None
        if field is not None and not is_declared and not is_metadata:
            message = f"`{key}` has `{text}`, and there is no column `{first}`: `metadata` does not ask for it"
            fields.problems.add(line, message, f"write `metadata: [{field}]`")
        elif key in ("key_columns", "order_by") and not is_metadata:
            if not is_declared and table.columns and table.unknown_fields != "add":
                message = f"`{key}` has `{name}`, which `columns` does not declare and `unknown_fields` keeps away"
                fields.problems.add(line, message, "declare it under `columns`")
            path = _field_of(name, declared)
            if path is not None and is_plain:
                taken = () if is_declared else table.include
                _check_taken(key, line, path, taken, table.exclude, fields.problems)


def _named(fields: Fields, table: TableSpec) -> Iterator[tuple[str, int, str, str]]:
    """Each setting that names a column, its line, the column, and how it is written."""
    terms = [("partition_by", term) for term in table.partition_by or ()]
    terms += [("sort_by", sort.term) for sort in table.sort_by or ()]
    yield from ((key, term.line, term.column, term.text) for key, term in terms)
    for key, names in (("key_columns", table.key_columns), ("order_by", (table.order_by,))):
        entry = fields.get(key)
        yield from ((key, entry.line, name, name) for name in names if entry is not None and name)


def _field_of(name: str, declared: Mapping[str, ColumnSpec]) -> Path | None:
    """The path of the field that feeds a column; None where it comes from something else than the record's value."""
    first, *rest = name.split(".")
    column = declared.get(Spellings(declared).find(first) or first)
    if column is None:
        return (first, *rest)
    return None if column.is_own else (*(column.field or (first,)), *rest)


def _check_taken(
    key: str, line: int, path: Path, include: Sequence[Path], exclude: Sequence[Path], problems: Problems
) -> None:
    """Without a value every record would be a bad one."""
    name = ".".join(path)
    if any(path[: len(out)] == out for out in exclude):
        problems.add(line, f"`exclude` leaves out `{name}`, which `{key}` asks for", "take it out of one of them")
    elif include and not any(fold_path(path)[: len(taken)] == fold_path(taken)[: len(path)] for taken in include):
        problems.add(line, f"`include` does not take `{name}`, which `{key}` asks for", "add it to `include`")


def _check_value(text: str, key: str) -> None:
    """Raises a SpecError for a value that no file could be written with."""
    if key in _FORMATS and text.lower() != "parquet":
        raise SpecError(f"`properties.{key}` is `{text}`, and Frazil creates tables in Parquet", remedy="remove it")
    for wrong in wrong_values({key: text}):
        message = f"`properties.{key}` is `{text}`, and Iceberg takes {wrong.taken}"
        if key == CODEC:
            raise SpecError(message, remedy=advice(text, CODECS))
        usual = wrong.usual
        if key in SIZES:
            with suppress(SpecError):
                usual = str(parse_size(text) or usual)
        raise SpecError(message, remedy=f"write `{usual}`")


_READERS: Mapping[str, Read] = {
    "topic": _read_topic,
    "value": read_value,
    "key": partial(read_value, model=KeySpec),
    "columns": read_columns,
    "metadata": _read_metadata,
    "infer": _read_infer,
    "flatten": read_flatten,
    "envelope": read_envelope,
    "key_columns": _read_key_columns,
    "tombstones": read_tombstones,
    "atomic": read_atomic,
    "protect": read_protect,
    "expect": read_expect,
    "lookup": read_lookups,
    "udf": read_functions,
    "properties": lambda fields, key: fields.strings(key, _check_table_property),
    "rename": read_rename,
    "cast": read_cast,
    "add_fields": read_added,
}
"""Readers of keys that are more than their forms."""
_CHECKS = (
    _check_sources, check_numbers, check_columns, check_shaping, check_atomic, _check_layout, _check_named_columns,
    check_protect, check_added, check_new_names, check_different, check_expect,
)  # fmt: skip
"""The rules between the settings of a table."""
