"""The keys of what a table does to its records before its rows are written.

They are the single steps `rename`, `drop_fields`, `keep_fields`, `cast` and `add_fields`; `udf`, the Python functions
that its query may call; `lookup`, reference tables that its records are joined with, by the name of the column that each
fills; `expect`, the conditions that its rows are expected to meet. What the steps do is in `process.steps`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from frazil.errors import SpecError
from frazil.name_length import is_long, long_name_reason
from frazil.plugins.envelopes import ENVELOPES
from frazil.plugins.functions import Function, import_function
from frazil.spec.models import TableSpec
from frazil.spec.settings import METADATA_COLUMNS, REFERENCE_FILES, Constant, ExpectationSpec, LookupSpec, MetadataField
from frazil.spec.syntax.document import Entry, Items, Scalar, Section
from frazil.spec.syntax.forms import parse_path
from frazil.spec.syntax.keys import Fields, Path, describe, keys_of, read_text
from frazil.spec.syntax.problems import Problems, advice
from frazil.spec.syntax.types import parse_type
from frazil.spec.topics import table_name
from frazil.store.addresses import address_of
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
_LOOKUP_EXAMPLE = "`lookup: {country: {table: ref.countries, on: country_code = code, take: [name]}}`"
OTHER_DROPS = (
    "where", "filter", "explode", "lookup", "tombstone", "heartbeat", "transaction", "schema_change", "message", "delete",
    "truncate", "update_without_document", "notification",
)  # fmt: skip
"""What records are counted as that other things drop: no expectation has such a name."""
_EXPECTATION_KINDS = ("that", "min_rows", "max_age")
_EXPECTATION_NAME = re.compile("[A-Za-z][A-Za-z0-9_]{0,99}")


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


def read_functions(fields: Fields, key: str) -> tuple[Function, ...]:
    """Reads the name of a function, or a list of names; each is imported."""
    node, problems = fields.node(key), fields.problems
    found: dict[str, Function] = {}
    for item in node.items if isinstance(node, Items) else (node,):
        text = read_text(item, fields.path(key), problems)
        function = problems.attempt(item.line, None, _load, text, problems.folder) if text else None
        if function is None:
            continue
        if function.name.lower() in found:
            message = f"`{key}` has two functions `{function.name}`"
            problems.add(item.line, message, "keep one of them")
        found[function.name.lower()] = function
    return tuple(found.values())


def _load(path: str, folder: str) -> Function:
    returns = getattr(import_function(path, folder), "frazil_returns", None)
    if not isinstance(returns, str):
        remedy = "write `@frazil.udf(returns=TYPE)` above the function"
        raise SpecError(f"the function `{path}` does not declare the type of its values", remedy=remedy)
    if re.search(r"\b(uuid|fixed)\b", str(parse_type(returns))):
        remedy = "return `string` or `binary`"
        raise SpecError(f"the function `{path}` returns {returns}, which Spark has no type for", remedy=remedy)
    return Function(path, folder, returns)


def read_lookups(fields: Fields, key: str) -> tuple[LookupSpec, ...]:
    """The lookups under `lookup`, in the order of the file."""
    node = fields.node(key)
    if not isinstance(node, Section):
        fields.refuse_key(key, f"`{key}` is {describe(node)} where a mapping is expected", f"write {_LOOKUP_EXAMPLE}")
        return ()
    found = (_read_lookup(entry, f"{key}.{entry.key}", fields.problems) for entry in node.entries)
    return tuple(one for one in found if one is not None)


def _read_lookup(entry: Entry, label: str, problems: Problems) -> LookupSpec | None:
    fields = Fields(entry.value, keys_of(LookupSpec), label, problems)
    if not isinstance(entry.value, Section):
        return None
    if (fields.get("table") is None) == (fields.get("file") is None):
        problems.add(entry.line, f"`{label}` needs a `table` or a `file`", "write one of the two")
    for needed in ("on", "take"):
        if fields.get(needed) is None:
            problems.add(entry.line, f"`{label}` has no `{needed}`", f"write it, such as {_LOOKUP_EXAMPLE}")
    found = LookupSpec(name=entry.key, **fields.values())
    taken = fields.get("take")
    if taken is not None and isinstance(taken.value, Items) and not taken.value.items:
        fields.refuse_key("take", f"`{label}.take` is empty", "name the columns to have, such as `take: [name]`")
    _check_names(found, entry.line, label, problems)
    for name, written, check in (("table", found.table, table_name), ("file", found.file, _check_file)):
        if written:
            problems.attempt(fields.node(name).line, None, check, written)
    return found


def _check_names(lookup: LookupSpec, line: int, label: str, problems: Problems) -> None:
    """Notes a column that no table can have, and members of it whose names differ in case alone: one would be lost."""
    if not lookup.name:
        problems.add(line, "`lookup` makes a column without a name", "give the lookup a name")
    if lookup.name.lower() in RESERVED_COLUMNS:
        message = f"`{label}` makes a column with the name of one of Iceberg's metadata columns"
        problems.add(line, message, "give the lookup another name")
    if is_long(lookup.name):
        problems.add(line, f"`lookup`: {long_name_reason(lookup.name)}", "give the lookup a shorter name")
    lowered = [name.lower() for name in lookup.take]
    twins = [name for name in lookup.take if lowered.count(name.lower()) > 1]
    if twins:
        message = f"`{label}.take` has `{twins[0]}` and `{twins[1]}`, which are one column"
        problems.add(line, message, "take one of them")


def _check_file(location: str) -> str:
    if PurePosixPath(location).suffix.lower() not in REFERENCE_FILES:
        raise SpecError(
            f"`{location}` is neither a Parquet nor a CSV file", remedy="name a file that ends with .parquet or .csv"
        )
    address = address_of(location)
    if address.kind == "hdfs":
        raise SpecError(
            f"`{location}` is in HDFS, whose settings tasks have for tables alone",
            remedy="join a table in its place, or keep the file in an object store",
        )
    if address.kind == "local" and not address.key.startswith("/"):
        raise SpecError(
            f"`{location}` is not a whole path", remedy="begin the path with `/`, or with the scheme of a store"
        )
    return location


def read_expect(fields: Fields, key: str) -> tuple[ExpectationSpec, ...]:
    """The expectations under `expect`, in the order of the file."""
    node = fields.node(key)
    if not isinstance(node, Section):
        remedy = 'write `expect: {amount_not_negative: "amount >= 0"}`'
        fields.refuse_key(key, f"`expect` is {describe(node)} where a mapping is expected", remedy)
        return ()
    found = (_read_expectation(entry, fields.problems) for entry in node.entries)
    return tuple(one for one in found if one is not None)


def _read_expectation(entry: Entry, problems: Problems) -> ExpectationSpec | None:
    name, label = entry.key, f"expect.{entry.key}"
    if name in OTHER_DROPS:
        message = f"an expectation cannot have the name `{name}`, which other dropped records are counted as"
        problems.add(entry.line, message, "name it after its condition, such as `amount_not_negative`")
    elif _EXPECTATION_NAME.fullmatch(name) is None:
        message = f"`{name}` is no name of an expectation"
        problems.add(entry.line, message, "write a to z, digits and `_`, such as `amount_not_negative`")
    if isinstance(entry.value, Scalar):
        that = read_text(entry.value, label, problems)
        return None if that is None else ExpectationSpec(name=name, that=that)
    fields = Fields(entry.value, keys_of(ExpectationSpec), label, problems)
    kinds = [key for key in _EXPECTATION_KINDS if fields.get(key) is not None]
    if isinstance(entry.value, Section) and len(kinds) != 1:
        what = f"has `{'` and `'.join(kinds)}`" if kinds else "expects nothing"
        remedy = "keep one of them, and give the other a name of its own" if kinds else 'write `that: "amount >= 0"`'
        problems.add(entry.line, f"`{label}` {what}", remedy)
        return None
    found = ExpectationSpec(name=name, **fields.values())
    _check_batch(fields, found, label)
    return found


def _check_batch(fields: Fields, found: ExpectationSpec, label: str) -> None:
    """Notes settings that do not go together."""
    if fields.get("at_most") is not None and not found.is_of_rows:
        fields.refuse_key("at_most", f"`{label}.at_most` is for `that`", "remove it")
    if found.is_of_batch and found.action in ("drop", "dead_letter"):
        message = f"`{label}` is of a whole commit, and `else` is {found.action}"
        fields.refuse_key("else", message, "write `else: warn` or `else: stop`")
    if found.max_age_s is not None and fields.get("else") is not None:
        fields.refuse_key("else", f"`{label}` only warns, in `status`", "remove it")


def check_expect(fields: Fields, table: TableSpec) -> None:
    """Notes expectations that make dead letters of a table without them."""
    for one in table.expect:
        if one.action == "dead_letter" and table.on_bad_record != "dead_letter":
            message = f"`expect.{one.name}` makes dead letters, and `on_bad_record` is {table.on_bad_record}"
            remedy = "write `on_bad_record: dead_letter`, or `else: warn`, `drop` or `stop`"
            fields.refuse_key("expect", message, remedy)
