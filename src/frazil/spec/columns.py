"""The columns of a table: those that it declares, how the others are made from fields, and what the bytes of records are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from frazil.errors import SpecError
from frazil.literals import parse_constant
from frazil.name_length import is_long, long_name_in, long_name_reason, shorten
from frazil.plugins.formats import FORMATS
from frazil.spec.models import TableSpec
from frazil.spec.settings import ColumnSpec, FlattenSpec, ValueSpec
from frazil.spec.syntax.document import Entry, Node, Scalar, Section
from frazil.spec.syntax.keys import Fields, describe, keys_of, read_string, read_text
from frazil.spec.syntax.problems import Problems
from frazil.spec.syntax.secrets import has_reference
from frazil.spec.syntax.types import parse_column_type
from frazil.types import RESCUED_COLUMN, RESERVED_COLUMNS

_SOURCES = ("field", "constant", "header")
_HEADER_TYPES = (StringType, BinaryType, IntegerType, LongType)
_WORDS: dict[type[IcebergType], str] = {
    BinaryType: "binary",
    StringType: "string",
    IntegerType: "int",
    LongType: "long",
    StructType: "a struct",
}
_STRANGE_IN_COLUMN = {
    "properties": "write it in the table's `properties`, under Iceberg's name, which ends with the column's, such as"
    " write.parquet.bloom-filter-enabled.column.id"
}


def read_columns(table: Fields, key: str) -> tuple[ColumnSpec, ...]:
    """The columns that `columns` declares."""
    node = table.node(key)
    if not isinstance(node, Section):
        table.refuse_key(key, "`columns` is not a mapping", "write `columns: {name: type}`")
        return ()
    columns = (_read_column(column, table.problems) for column in node.entries)
    return tuple(column for column in columns if column is not None)


def _read_column(entry: Entry, problems: Problems) -> ColumnSpec | None:
    label = f"columns.{entry.key}"
    node: Node | None = entry.value
    chosen: dict[str, Any] = {}
    if isinstance(node, Section):
        fields = Fields(node, keys_of(ColumnSpec), label, problems, strange=_STRANGE_IN_COLUMN)
        written = fields.get("type")
        if written is None:
            problems.add(entry.line, f"`{label}` has no type", f"write `{entry.key}: long`, or another type")
        node = written.value if written else None
        _check_sources(fields, label)
        chosen = fields.values({"value": read_value, "constant": _read_constant})
    text = read_text(node, label, problems) if node else None
    if not text or not node:
        return None
    parsed = problems.attempt(node.line, None, parse_column_type, text)
    if parsed is None:
        return None
    kind, unit = parsed
    column = ColumnSpec(name=entry.key, type=kind, unit=unit, **chosen)
    problems.attempt(entry.line, None, _check_source, column)
    return column


def _check_sources(fields: Fields, label: str) -> None:
    written = [entry for entry in (fields.get(name) for name in _SOURCES) if entry is not None]
    for more in written[1:]:
        message = f"`{label}` has both `{written[0].key}` and `{more.key}`"
        fields.problems.add(more.line, message, "keep one of them")


def _read_constant(fields: Fields, key: str) -> str | None:
    node = fields.node(key)
    if isinstance(node, Scalar) and node.kind == "text":  # Also an empty one.
        return node.text
    return read_string(node, fields.path(key), fields.problems)


def _check_source(column: ColumnSpec) -> None:
    name, kind = column.name, column.type
    if column.value is not None:
        _check_header_value(column, column.value)
    elif column.header is not None and not isinstance(kind, _HEADER_TYPES):
        remedy = "write string, binary, int or long as its type, or what its bytes are, such as `value: {format: json}`"
        raise SpecError(f"`columns.{name}`: the bytes of a header are no `{kind}`", remedy=remedy)
    if column.is_own and column.unit is not None:
        raise SpecError(f"`columns.{name}`: a unit is for numbers in records", remedy=f"write `{kind}` alone")
    if column.coerce and (column.is_own or not _has_text(kind)):
        message = f"`columns.{name}.coerce` keeps values as text, and the column"
        what = "is not read from records' fields" if column.is_own else f"is a `{kind}`"
        raise SpecError(f"{message} {what}", remedy="write `type: string`, or remove `coerce`")
    if column.zone is not None and (column.is_own or not isinstance(kind, TimestampType | TimestamptzType)):
        message = f"`columns.{name}.zone` is for a timestamp or timestamptz of records, and this is a `{kind}`"
        raise SpecError(message, remedy="write `type: timestamp` or `type: timestamptz`, or remove it")
    if column.constant is not None and has_reference(column.constant):
        message = f"the constant of `columns.{name}` refers to a secret, and it would be in every row"
        raise SpecError(message, remedy="write the value itself")
    if column.constant is not None:
        parse_constant(column.constant, kind)


def _has_text(kind: IcebergType) -> bool:
    """Whether a type is text, or has some inside, other than as the key of a map."""
    if isinstance(kind, StructType):
        return any(_has_text(member.field_type) for member in kind.fields)
    if isinstance(kind, ListType):
        return _has_text(kind.element_type)
    return _has_text(kind.value_type) if isinstance(kind, MapType) else isinstance(kind, StringType)


def _check_header_value(column: ColumnSpec, value: ValueSpec) -> None:
    name, types = column.name, FORMATS.get(value.format).header_types
    if column.header is None:
        message = f"`columns.{name}.value` describes the bytes of a header, and the column has no header"
        raise SpecError(message, remedy="write `header: NAME`, or remove it")
    if value.format not in FORMATS.built_in:
        message = f"`columns.{name}`: the format {value.format} is read from records' values alone, not from headers"
        raise SpecError(message, remedy=f"write one of: {', '.join(FORMATS.built_in)}")
    if types and not isinstance(column.type, types):
        message = f"`columns.{name}`: a header of the format {value.format} cannot be a `{column.type}`"
        words = ", ".join(_WORDS[kind] for kind in types)
        raise SpecError(message, remedy=f"write another type ({words}), or another format")
    if value.framing == "header":
        message = f"`columns.{name}.value.framing`: a header names its schema itself, in its first bytes"
        raise SpecError(message, remedy="write confluent or apicurio")
    if value.source == "latest" and value.subject is None:
        message = f"`columns.{name}.value` is read with the latest schema, and headers have no subject of their own"
        raise SpecError(message, remedy="write `subject: NAME`")


def check_columns(fields: Fields, table: TableSpec) -> None:
    """Notes declared columns whose names are taken, and fields that feed two of them."""
    entry, problems = fields.get("columns"), fields.problems
    sources: dict[str, str] = {column: field for field, column in table.metadata.items()}
    declared = entry.value.entries if entry and isinstance(entry.value, Section) else ()
    lines = {column.key: column.line for column in declared}
    fed: dict[tuple[str, ...], str] = {}
    for column in table.columns:
        line = lines[column.name]
        if column.name in sources:
            message = f"the column `{column.name}` is declared, and `metadata` writes {sources[column.name]} to it"
            problems.add(line, message, "rename the column, or take it out of `metadata`")
        elif not column.name:
            problems.add(line, "the name of a column is empty", "give it a name")
        elif column.name == RESCUED_COLUMN:
            message = f"`{RESCUED_COLUMN}` is the column for what does not fit its own"
            problems.add(line, message, "rename the column")
        elif column.name.lower() in RESERVED_COLUMNS:
            message = f"the column `{column.name}` has the name of one of Iceberg's metadata columns"
            problems.add(line, message, "rename the column")
        elif (long := column.name if is_long(column.name) else long_name_in(column.type)) is not None:
            message = f"the column `{shorten(column.name)}`: {long_name_reason(long)}"
            problems.add(line, message, "give it a shorter name")
        elif not column.is_own:
            problems.attempt(line, None, _check_fed, column, fed, table.columns)


def _check_fed(column: ColumnSpec, fed: dict[tuple[str, ...], str], columns: Sequence[ColumnSpec]) -> None:
    path = column.field or (column.name,)
    if path in fed:
        message = f"the columns `{fed[path]}` and `{column.name}` are both for the field `{'.'.join(path)}`"
        raise SpecError(message, remedy="keep one of them, or write another `field`")
    fed[path] = column.name
    for other in columns:
        inner = other.field or ()
        is_inside = len(inner) > len(path) and inner[: len(path)] == path
        if is_inside and column.field and not isinstance(column.type, StructType):
            message = f"the column `{other.name}` is for a field inside the one of `{column.name}`, which is no struct"
            raise SpecError(message, remedy="keep one of them, or give the other a struct type")


def check_shaping(fields: Fields, table: TableSpec) -> None:
    """Notes settings of fields that the values do not have, and fields that are both asked for and left out."""
    for key in ("flatten", "column_case", "include", "exclude"):
        if fields.get(key) is not None and not FORMATS.get(table.value.format).has_fields:
            message = f"`{key}` has no effect with the format {table.value.format}: its values have no fields"
            fields.refuse_key(key, message, "remove it")
    is_plain = table.flatten is None and table.column_case == "keep"
    asked = [(path, "include") for path in table.include]
    asked += [(column.field, "columns") for column in table.columns if column.field]
    asked += [((one.name,), "columns") for one in table.columns if is_plain and not (one.field or one.is_own)]
    for path, label in asked:
        if any(path[: len(left)] == left for left in table.exclude):
            message = f"`exclude` leaves out `{'.'.join(path)}`, which `{label}` asks for"
            fields.refuse_key("exclude", message, "take it out of one of them")


def read_flatten(fields: Fields, key: str) -> FlattenSpec | None:
    """How nested records become columns; None for `false`."""
    if not isinstance(fields.node(key), Section):
        return FlattenSpec() if fields.choice(key) else None
    return FlattenSpec(**fields.section(key, FlattenSpec).values())


def read_value(owner: Fields, key: str, model: type[ValueSpec] = ValueSpec) -> ValueSpec:
    """The section under `key`, whose keys `model` declares; settings that say nothing of its format are noted."""
    node, label, default = owner.node(key), owner.path(key), keys_of(model)["format"].default
    if isinstance(node, Scalar) and node.text in keys_of(model)["format"].words:
        _refuse_word(node, label, owner.problems)
        return ValueSpec.model_validate({"format": node.text})
    fields = Fields(node, keys_of(model), label, owner.problems)
    value = ValueSpec.model_validate({"format": default, **fields.values()})
    for name in dict.fromkeys(name for one in FORMATS.built_in.values() for name in one.keys):
        written = fields.get(name)
        if written is not None and name not in FORMATS.get(value.format).keys:
            owners = [label for label, one in FORMATS.built_in.items() if name in one.keys]
            message = f"`{label}.{name}` has no effect with the format {value.format}"
            owner.problems.add(written.line, message, f"remove it, or write `format`: it is for {', '.join(owners)}")
    return value


def _refuse_word(node: Scalar, label: str, problems: Problems) -> None:
    message = f"`{label}` is {describe(node)} where a mapping is expected"
    problems.add(node.line, message, f"write `{label}: {{format: {node.text}}}`")


def check_numbers(fields: Fields, table: TableSpec) -> None:
    """Notes settings of JSON without a schema where the values are something else; those that change nothing may stay."""
    for key, has_effect in (("numbers", table.numbers is not None), ("infer", table.infers_timestamps)):
        if has_effect and fields.get(key) is not None and table.value.format != "json":
            message = f"`{key}` is for JSON without a schema, and the values are {table.value.format}"
            fields.refuse_key(key, message, "remove it, or declare `columns`")
