"""The columns of a table: those that it declares, how the others are made from fields, and what the bytes of records are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyiceberg import types

from frazil.column_names import is_long, long_name_in, long_name_reason, shorten
from frazil.errors import SpecError
from frazil.literals import parse_constant
from frazil.plugins.extras import names_of_extras
from frazil.plugins.formats import FORMATS, MESSAGES
from frazil.secrets import has_reference
from frazil.spec.models import TableSpec
from frazil.spec.settings import ColumnSpec, ValueSpec
from frazil.spec.syntax.keys import keys_of
from frazil.spec.syntax.problems import LABEL, Mistake, try_check
from frazil.types import EXTRA_COLUMNS, RESERVED_COLUMNS

_SOURCES = ("field", "constant", "header")
_HEADER_TYPES = (types.StringType, types.BinaryType, types.IntegerType, types.LongType)
_WORDS: dict[type[types.IcebergType], str] = {
    types.BinaryType: "binary",
    types.StringType: "string",
    types.IntegerType: "int",
    types.LongType: "long",
    types.StructType: "a struct",
}
STRANGE_IN_COLUMN = {
    "properties": "write it in the table's `properties`, under Iceberg's name, which ends with the column's, such as"
    " write.parquet.bloom-filter-enabled.column.id"
}


def check_column(column: ColumnSpec) -> Iterator[Mistake]:
    """Yields sources of one column that contradict each other, and settings that its source or type makes wrong."""
    written = [source for source in _SOURCES if source in column.model_fields_set]
    for more in written[1:]:
        message = f"`columns.{column.name}` has both `{written[0]}` and `{more}`"
        yield Mistake(more, message, "keep one of them")
    yield from try_check((), _check_source, column)


def _check_source(column: ColumnSpec) -> None:
    name, kind = column.name, column.type
    if column.value is not None:
        _check_header_value(column, column.value)
    elif column.header is not None and not isinstance(kind, _HEADER_TYPES):
        remedy = "write string, binary, int or long as its type, or what its bytes are, such as `value: {format: json}`"
        raise SpecError(f"`columns.{name}`: the bytes of a header are not a `{kind}`", remedy=remedy)
    if column.is_own and column.unit is not None:
        raise SpecError(f"`columns.{name}`: a unit is for numbers in records", remedy=f"write `{kind}` alone")
    if column.coerce and (column.is_own or not _has_text(kind)):
        message = f"`columns.{name}.coerce` keeps values as text, and the column"
        what = "is not read from records' fields" if column.is_own else f"is a `{kind}`"
        raise SpecError(f"{message} {what}", remedy="write `type: string`, or remove `coerce`")
    if column.zone is not None and (column.is_own or not isinstance(kind, types.TimestampType | types.TimestamptzType)):
        message = f"`columns.{name}.zone` is for a timestamp or timestamptz of records, and this is a `{kind}`"
        raise SpecError(message, remedy="write `type: timestamp` or `type: timestamptz`, or remove it")
    if column.constant is not None and has_reference(column.constant):
        message = f"the constant of `columns.{name}` refers to a secret, and it would be in every row"
        raise SpecError(message, remedy="write the value itself")
    if column.constant is not None:
        parse_constant(column.constant, kind)


def _has_text(kind: types.IcebergType) -> bool:
    """Whether a type is text, or has some inside, other than as the key of a map."""
    if isinstance(kind, types.StructType):
        return any(_has_text(member.field_type) for member in kind.fields)
    if isinstance(kind, types.ListType):
        return _has_text(kind.element_type)
    return _has_text(kind.value_type) if isinstance(kind, types.MapType) else isinstance(kind, types.StringType)


def _check_header_value(column: ColumnSpec, value: ValueSpec) -> None:
    name, allowed = column.name, FORMATS.get(value.format).header_types
    if column.header is None:
        message = f"`columns.{name}.value` describes the bytes of a header, and the column has no header"
        raise SpecError(message, remedy="write `header: NAME`, or remove it")
    if value.format not in FORMATS.built_in:
        message = f"`columns.{name}`: the format {value.format} is read from records' values alone, not from headers"
        raise SpecError(message, remedy=f"write one of: {', '.join(FORMATS.built_in)}")
    if allowed and not isinstance(column.type, allowed):
        message = f"`columns.{name}`: a header of the format {value.format} cannot be a `{column.type}`"
        words = ", ".join(_WORDS[kind] for kind in allowed)
        raise SpecError(message, remedy=f"write another type ({words}), or another format")
    if value.framing == "header":
        message = f"`columns.{name}.value.framing`: a header names its schema itself, in its first bytes"
        raise SpecError(message, remedy="write confluent or apicurio")
    if value.source == "latest" and value.subject is None:
        message = f"`columns.{name}.value` is read with the latest schema, and headers have no subject of their own"
        raise SpecError(message, remedy="write `subject: NAME`")


def check_columns(table: TableSpec) -> Iterator[Mistake]:
    """Yields declared columns whose names are taken, and fields that feed two of them."""
    sources: dict[str, str] = {column: field for field, column in table.metadata.items()}
    fed: dict[tuple[str, ...], str] = {}
    for column in table.shape.columns:
        mistakes = [*try_check(("columns", column.name), _check_name, column, sources)]
        if not (mistakes or column.is_own):
            mistakes += try_check(("columns", column.name), _check_fed, column, fed, table.shape.columns)
        yield from mistakes


def _check_name(column: ColumnSpec, sources: Mapping[str, str]) -> None:
    if column.name in sources:
        message = f"the column `{column.name}` is declared, and `metadata` writes {sources[column.name]} to it"
        raise SpecError(message, remedy="rename the column, or take it out of `metadata`")
    if not column.name:
        raise SpecError("the name of a column is empty", remedy="give it a name")
    if column.name in EXTRA_COLUMNS:
        message = f"`{column.name}` is the column for what does not fit its own"
        raise SpecError(message, remedy="rename the column")
    if column.name.lower() in RESERVED_COLUMNS:
        message = f"the column `{column.name}` has the name of one of Iceberg's metadata columns"
        raise SpecError(message, remedy="rename the column")
    long = column.name if is_long(column.name) else long_name_in(column.type)
    if long is not None:
        message = f"the column `{shorten(column.name)}`: {long_name_reason(long)}"
        raise SpecError(message, remedy="give it a shorter name")


def _check_fed(column: ColumnSpec, fed: dict[tuple[str, ...], str], columns: Sequence[ColumnSpec]) -> None:
    path = column.field or (column.name,)
    if path in fed:
        message = f"the columns `{fed[path]}` and `{column.name}` are both for the field `{'.'.join(path)}`"
        raise SpecError(message, remedy="keep one of them, or write another `field`")
    fed[path] = column.name
    for other in columns:
        inner = other.field or ()
        is_inside = len(inner) > len(path) and inner[: len(path)] == path
        if is_inside and column.field and not isinstance(column.type, types.StructType):
            message = (
                f"the column `{other.name}` is for a field inside the one of `{column.name}`, which is not a struct"
            )
            raise SpecError(message, remedy="keep one of them, or give the other a struct type")


def check_shaping(table: TableSpec) -> Iterator[Mistake]:
    """Yields settings of fields that the values do not have, and fields that are both asked for and left out."""
    for key in ("flatten", "column_case", "include", "exclude"):
        if key in table.shape.model_fields_set and not FORMATS.get(table.source.value.format).has_fields:
            message = f"`{key}` has no effect with the format {table.source.value.format}: its values have no fields"
            yield Mistake(key, message, "remove it")
    is_plain = table.shape.flatten is None and table.shape.column_case == "keep"
    asked = [(path, "include") for path in table.shape.include]
    asked += [(column.field, "columns") for column in table.shape.columns if column.field]
    asked += [
        ((column.name,), "columns")
        for column in table.shape.columns
        if is_plain and not (column.field or column.is_own)
    ]
    for path, label in asked:
        if any(path[: len(left)] == left for left in table.shape.exclude):
            message = f"`exclude` leaves out `{'.'.join(path)}`, which `{label}` needs"
            yield Mistake("exclude", message, "take it out of one of them")


def check_value(value: ValueSpec) -> Iterator[Mistake]:
    """Yields settings that say nothing of the format of values, and a format whose package is not installed."""
    if value.format in names_of_extras(MESSAGES.group):
        yield from try_check("format", MESSAGES.get, value.format)
    keys = FORMATS.get(value.format).keys
    for name in dict.fromkeys(name for value_format in FORMATS.built_in.values() for name in value_format.keys):
        if keys_of(ValueSpec)[name].field in value.model_fields_set and name not in keys:
            owners = [label for label, value_format in FORMATS.built_in.items() if name in value_format.keys]
            message = f"`{LABEL}` has no effect with the format {value.format}"
            yield Mistake(name, message, f"remove it, or write `format`: it is for {', '.join(owners)}")


def check_numbers(table: TableSpec) -> Iterator[Mistake]:
    """Yields settings of JSON without a schema where the values are something else; those that change nothing may stay."""
    for key, has_effect in (("numbers", table.source.numbers is not None), ("infer", table.source.infer.timestamps)):
        if has_effect and table.source.value.format != "json":
            message = f"`{key}` is for JSON without a schema, and the values are {table.source.value.format}"
            yield Mistake(key, message, "remove it, or declare `columns`")
