"""The columns of a table: those that it declares, how the others are made from fields, and what the bytes of records are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from frazil.spec.document import Entry, Node, Scalar, Section
from frazil.spec.forms import read_paths
from frazil.spec.keys import Fields, describe, keys_of, read_string, read_text
from frazil.spec.models import ColumnSpec, FlattenSpec, MetadataField, ValueSpec
from frazil.spec.problems import Problems
from frazil.spec.secrets import has_reference
from frazil.spec.types import parse_column_type
from frazil.types import FORMATS_OF_REGISTRY, RESCUED_COLUMN, RESERVED_COLUMNS

_SOURCES = ("field", "constant", "header")
_HEADER_TYPES = (StringType, BinaryType, IntegerType, LongType)
_TYPES_OF: dict[str, tuple[type[IcebergType], ...]] = {
    "raw": (BinaryType,),
    "text": (StringType, IntegerType, LongType),
    "protobuf": (StructType,),
    "json_schema": (StructType,),
}
"""What a header of a format can be; of others any type."""
_WORDS: dict[type[IcebergType], str] = {
    BinaryType: "binary",
    StringType: "string",
    IntegerType: "int",
    LongType: "long",
    StructType: "a struct",
}
_RECORDLESS = ("text", "raw")
_MAX_DEPTH = 100
_ONLY_FOR = {
    "schema": FORMATS_OF_REGISTRY,
    "framing": FORMATS_OF_REGISTRY,
    "subject": FORMATS_OF_REGISTRY,
    "message": ("protobuf",),
    "logical_types": ("avro",),
}
AS_SEEN = "as_seen"
_REMEDY = "write as_seen, double, or a decimal such as decimal(18,4)"


def read_columns(table: Fields) -> tuple[ColumnSpec, ...]:
    """The columns that `columns` declares."""
    entry, problems = table.get("columns"), table.problems
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
    chosen: dict[str, Any] = {}
    if isinstance(node, Section):
        fields = Fields(node, keys_of(ColumnSpec), label, problems)
        written = fields.get("type")
        if written is None:
            problems.add(entry.line, f"`{label}` has no type", f"write `{entry.key}: long`, or another type")
        node = written.value if written else None
        chosen = fields.values() | _read_source(fields, label)
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


def _read_source(fields: Fields, label: str) -> dict[str, Any]:
    """Where the column's values come from, if that is written."""
    written = [entry for entry in (fields.get(name) for name in _SOURCES) if entry is not None]
    for more in written[1:]:
        message = f"`{label}` has both `{written[0].key}` and `{more.key}`"
        fields.problems.add(more.line, message, "keep one of them")
    chosen: dict[str, Any] = {}
    if fields.get("value") is not None:
        chosen["value"] = read_value(fields, "value")
    if fields.get("constant") is not None:
        chosen["constant"] = _read_constant(fields.node("constant"), f"{label}.constant", fields.problems)
    return chosen


def _read_constant(node: Node, label: str, problems: Problems) -> str | None:
    if isinstance(node, Scalar) and node.kind == "text":  # Also an empty one.
        return node.text
    return read_string(node, label, problems)


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
    name, types = column.name, _TYPES_OF.get(value.format)
    if column.header is None:
        message = f"`columns.{name}.value` describes the bytes of a header, and the column has no header"
        raise SpecError(message, remedy="write `header: NAME`, or remove it")
    if types is not None and not isinstance(column.type, types):
        message = f"`columns.{name}`: a header of the format {value.format} cannot be a `{column.type}`"
        words = ", ".join(_WORDS[kind] for kind in types)
        raise SpecError(message, remedy=f"write another type ({words}), or another format")
    if value.framing == "header":
        message = f"`columns.{name}.value.framing`: a header names its schema itself, in its first bytes"
        raise SpecError(message, remedy="write confluent or apicurio")
    if value.source == "latest" and value.subject is None:
        message = f"`columns.{name}.value` is read with the latest schema, and headers have no subject of their own"
        raise SpecError(message, remedy="write `subject: NAME`")


def check_columns(fields: Fields, columns: tuple[ColumnSpec, ...], metadata: Mapping[MetadataField, str]) -> None:
    """Notes declared columns whose names are taken, and fields that feed two of them."""
    entry, problems = fields.get("columns"), fields.problems
    sources: dict[str, str] = {column: field for field, column in metadata.items()}
    declared = entry.value.entries if entry and isinstance(entry.value, Section) else ()
    lines = {column.key: column.line for column in declared}
    fed: dict[tuple[str, ...], str] = {}
    for column in columns:
        line = lines[column.name]
        if column.name in sources:
            message = f"the column `{column.name}` is declared, and `metadata` writes {sources[column.name]} to it"
            problems.add(line, message, "rename the column, or take it out of `metadata`")
        elif column.name == RESCUED_COLUMN:
            message = f"`{RESCUED_COLUMN}` is the column for what does not fit its own"
            problems.add(line, message, "rename the column")
        elif column.name in RESERVED_COLUMNS:
            message = f"the column `{column.name}` has the name of one of Iceberg's metadata columns"
            problems.add(line, message, "rename the column")
        elif (long := column.name if is_long(column.name) else long_name_in(column.type)) is not None:
            message = f"the column `{shorten(column.name)}`: {long_name_reason(long)}"
            problems.add(line, message, "give it a shorter name")
        elif not column.is_own:
            problems.attempt(line, None, _check_fed, column, fed, columns)


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


def read_shaping(fields: Fields, columns: Sequence[ColumnSpec], value_format: str) -> dict[str, Any]:
    """The settings that say how fields become columns."""
    for key in ("flatten", "column_case", "include", "exclude"):
        if fields.get(key) is not None and value_format in _RECORDLESS:
            message = f"`{key}` has no effect with the format {value_format}: its values have no fields"
            fields.refuse_key(key, message, "remove it")
    flatten, case = _read_flatten(fields), fields.choice("column_case")
    include, exclude = read_paths(fields, "include"), read_paths(fields, "exclude")
    is_plain = flatten is None and case == "keep"
    asked = [(path, "include") for path in include]
    asked += [(column.field, "columns") for column in columns if column.field]
    asked += [((one.name,), "columns") for one in columns if is_plain and not (one.field or one.is_own)]
    for path, label in asked:
        if any(path[: len(left)] == left for left in exclude):
            message = f"`exclude` leaves out `{'.'.join(path)}`, which `{label}` asks for"
            fields.refuse_key("exclude", message, "take it out of one of them")
    return {"flatten": flatten, "column_case": case, "include": include, "exclude": exclude}


def _read_flatten(fields: Fields) -> FlattenSpec | None:
    entry = fields.get("flatten")
    if entry is None or not isinstance(entry.value, Section):
        return FlattenSpec() if fields.choice("flatten") else None
    return FlattenSpec(**fields.section("flatten", FlattenSpec).values())


def read_value(owner: Fields, key: str, model: type[ValueSpec] = ValueSpec) -> ValueSpec:
    """The section under `key`, whose keys `model` declares; settings that say nothing of its format are noted."""
    entry, default = owner.get(key), str(keys_of(model)["format"].default)
    if entry is None:
        return ValueSpec.model_validate({"format": default})
    node, label = entry.value, owner.path(key)
    if isinstance(node, Scalar) and node.text in keys_of(model)["format"].choices:
        _refuse_word(node, label, owner.problems)
        return ValueSpec.model_validate({"format": node.text})
    fields = Fields(node, keys_of(model), label, owner.problems)
    value = ValueSpec.model_validate({"format": default, **fields.values()})
    for name, owners in _ONLY_FOR.items():
        written = fields.get(name)
        if written is not None and value.format not in owners:
            message = f"`{label}.{name}` has no effect with the format {value.format}"
            owner.problems.add(written.line, message, f"remove it, or write `format`: it is for {', '.join(owners)}")
    return value


def _refuse_word(node: Scalar, label: str, problems: Problems) -> None:
    message = f"`{label}` is {describe(node)} where a mapping is expected"
    problems.add(node.line, message, f"write `{label}: {{format: {node.text}}}`")


def check_numbers(fields: Fields, value_format: str) -> None:
    """Notes settings of JSON without a schema where the values are something else."""
    for key in ("numbers", "infer"):
        if fields.get(key) is not None and value_format != "json":
            message = f"`{key}` is for JSON without a schema, and the values are {value_format}"
            fields.refuse_key(key, message, "remove it, or declare `columns`")
