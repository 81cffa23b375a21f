"""How keys of a table with more than one value are written: metadata, properties, steps, functions, named sections."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from frazil.column_names import Spellings
from frazil.errors import SpecError
from frazil.plugins.functions import Function, import_function
from frazil.secrets import has_reference, secrets_of
from frazil.spec.settings import METADATA_COLUMNS, Constant, MetadataField
from frazil.spec.syntax import forms
from frazil.spec.syntax.document import Node, Scalar, Section
from frazil.spec.syntax.keys import Form, JsonSchema, section
from frazil.spec.syntax.problems import LABEL, advice
from frazil.spec.syntax.types import parse_type, unit_of
from frazil.spec.syntax.units import parse_size
from frazil.store.properties import CODEC, CODECS, SIZES, check_table_properties, wrong_values
from frazil.types import RESERVED_COLUMNS

if TYPE_CHECKING:
    from frazil.spec.syntax.reading import Reading

_FORMATS = ("write.format.default", "write.delete.format.default")
_MOST = 2**63


def _hide_unit(column: Section) -> None:
    written = column.get("type")
    if isinstance(written, Scalar) and (unit := unit_of(written.text)):
        column.hide("unit", unit)


def _read_metadata(node: Node, _: Reading) -> dict[MetadataField, str]:
    """A list of fields, each in its usual column, or a mapping of fields to columns."""
    columns: dict[MetadataField, str] = {}

    def add(name: str, column: str) -> None:
        field = cast(MetadataField, name)
        if name not in METADATA_COLUMNS:
            raise SpecError(f"`metadata` has no `{name}`", remedy=advice(name, METADATA_COLUMNS))
        column = column or METADATA_COLUMNS[field]
        if field in columns:
            raise SpecError(f"`{name}` occurs twice in `metadata`", remedy="keep one of them")
        if column in columns.values():
            message = f"`metadata` writes two fields to the column `{column}`"
            raise SpecError(message, remedy="rename one of the columns")
        if column.lower() in RESERVED_COLUMNS and column != f"_{name}":
            message = f"the column `{column}` has the name of one of Iceberg's metadata columns"
            raise SpecError(message, remedy="rename the column")
        columns[field] = column

    if isinstance(node, Section):
        forms.read_entries(node, lambda name, column: add(name, forms.read_text(column)))
    else:
        forms.read_list(node, lambda item: add(forms.read_text(item), ""))
    return columns


def _read_added(node: Node, _: Reading) -> tuple[tuple[str, Constant], ...]:
    """Reads a mapping of new columns to constants, or to pieces of metadata by their names."""

    def read_one(name: str, value: Node) -> tuple[str, Constant]:
        if isinstance(value, Scalar) and value.kind in ("integer", "number"):
            if (number := _number(value)) is not None:
                return name, number
            message = f"`{LABEL}` is neither a whole number of 64 bits nor a finite one"
            raise SpecError(message, remedy="write it in decimal digits, or in quotes for text")
        if isinstance(value, Scalar) and value.kind == "boolean" and value.text.lower() in ("true", "false"):
            return name, value.text.lower() == "true"
        return name, forms.read_text(value)

    return tuple(forms.read_entries(forms.entries_of(node, "`add_fields: {name: value}`"), read_one))


def _number(value: Scalar) -> int | float | None:
    """The number as Spark's SQL can have it: `long` or `double`; None for another."""
    try:
        number = int(value.text) if value.kind == "integer" else float(value.text)
    except ValueError:  # YAML has more forms than Python, such as `.inf` and `0x10`.
        return None
    return number if -_MOST <= number < _MOST or (isinstance(number, float) and math.isfinite(number)) else None


def _read_functions(node: Node, reading: Reading) -> tuple[Function, ...]:
    """Reads the name of a function, or a list of names that is not empty; each is imported."""
    functions: dict[str, Function] = {}

    def read_one(item: Node) -> None:
        function = _load(forms.read_text(item), reading.folder)
        if function.name.lower() in functions:
            raise SpecError(f"`{LABEL}` has two functions `{function.name}`", remedy="keep one of them")
        functions[function.name.lower()] = function

    remedy = "write the names of functions, such as `[module.function]`, or remove it"
    forms.one_or_several(node, read_one, SpecError(f"`{LABEL}` is empty", remedy=remedy))
    return tuple(functions.values())


def _load(path: str, folder: str) -> Function:
    returns = getattr(import_function(path, folder), "frazil_returns", None)
    if not isinstance(returns, str):
        remedy = "write `@frazil.udf(returns=TYPE)` above the function"
        raise SpecError(f"the function `{path}` does not declare the type of its values", remedy=remedy)
    if re.search(r"\b(uuid|fixed)\b", str(parse_type(returns))):
        remedy = "return `string` or `binary`"
        raise SpecError(f"the function `{path}` returns {returns}, which Spark has no type for", remedy=remedy)
    return Function(path, folder, returns)


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


METADATA_SCHEMA: JsonSchema = {
    "anyOf": [
        {"type": "array", "items": {"enum": list(METADATA_COLUMNS)}, "uniqueItems": True},
        {
            "type": "object",
            "propertyNames": {"enum": list(METADATA_COLUMNS)},
            "additionalProperties": {"type": "string"},
        },
    ]
}
METADATA = Form(METADATA_SCHEMA, read=_read_metadata)
PROPERTIES = forms.strings(_check_table_property, has_secrets=False)
RENAME = forms.words_by_name(
    forms.STRINGS,
    "`rename: {cust: customer}`, each old name with its new one",
    lambda name, word: (forms.parse_path(name), word),
)
CAST = forms.words_by_name(
    {"type": "object", "additionalProperties": forms.TYPE_WORD},
    '`cast: {amount: "decimal(12,2)"}`',
    lambda name, word: (forms.parse_path(name), parse_type(word)),
)
ADD_FIELDS = Form(forms.STRINGS, read=_read_added)
UDF = Form(forms.TEXT_OR_TEXTS, read=_read_functions)
COLUMNS = forms.by_name(
    {"anyOf": [forms.TYPE_WORD, section("column").schema]}, "`columns: {name: type}`", short="type", also=_hide_unit
)
LOOKUP_EXAMPLE = "`lookup: {country: {table: ref.countries, on: country_code = code, take: [name]}}`"
LOOKUP = forms.by_name(section("lookup").schema, LOOKUP_EXAMPLE)
MERGE_FUNCTIONS = (
    "latest", "latest_non_null", "first", "first_non_null", "sum", "count", "min", "max", "bool_and", "bool_or",
    "collect_set", "collect_list", "distinct_sketch", "quantile_sketch",
)  # fmt: skip
"""The functions of `merge`."""
LATEST_BY = "latest by "
"""Begins the function of a column whose value is that of the record with the greatest value in another column."""
ALL_COLUMNS = ""
"""In place of a column's name: the function of every column that `merge` does not name."""


def _merge_function(word: str) -> str:
    if word.startswith(LATEST_BY) and (column := word.removeprefix(LATEST_BY).strip()):
        return LATEST_BY + column
    if word not in MERGE_FUNCTIONS:
        raise SpecError(f"`{LABEL}` cannot be `{word}`", remedy=advice(word, MERGE_FUNCTIONS))
    return word


def _read_merge(node: Node, _: Reading) -> tuple[tuple[str, str], ...]:
    """Reads a mapping of columns to functions, or one function for all columns."""
    if isinstance(node, Scalar):
        return _with_orders(((ALL_COLUMNS, _merge_function(forms.read_text(node))),))
    example = "`merge: {amount: sum, name: latest}`"
    words = forms.entries_of(node, example)
    if not words:
        raise SpecError(f"`{LABEL}` is empty", remedy=f"write {example}, or remove it")

    def read_one(name: str, word: Node) -> tuple[str, str]:
        return name, _merge_function(forms.read_string(word, is_joined=False))

    return _with_orders(tuple(forms.read_entries(words, read_one)))


def _with_orders(functions: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Returns the functions with `max` of the columns that order others: the row has the order of its values."""
    named, of_orders = Spellings(name for name, _ in functions), list[tuple[str, str]]()
    for order in (word.removeprefix(LATEST_BY) for _, word in functions if word.startswith(LATEST_BY)):
        if named.find(order) is None:
            named.add(order)
            of_orders.append((order, "max"))
    return (*functions, *of_orders)


_BY_COLUMN: JsonSchema = {"type": "string", "pattern": f"^{LATEST_BY}.+$", "examples": ["latest by updated_at"]}
_MERGE_SCHEMA: JsonSchema = {"anyOf": [{"enum": list(MERGE_FUNCTIONS)}, _BY_COLUMN]}
MERGE_SCHEMA: JsonSchema = {
    "anyOf": [
        {"enum": list(MERGE_FUNCTIONS)},
        {"type": "object", "additionalProperties": _MERGE_SCHEMA, "minProperties": 1},
    ]
}
MERGE = Form(MERGE_SCHEMA, read=_read_merge)
