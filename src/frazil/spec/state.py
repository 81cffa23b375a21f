"""The keys of tables that are their own state: `merge`, functions of the records of a key, and `dedupe`.

What is merged is in `frazil_state.merge`, and duplicates are found in `frazil_state.dedupe`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyiceberg import types

from frazil.column_names import Spellings
from frazil.plugins.tables import TABLE_KINDS
from frazil.spec.grouped_tables import describe_grouping, session_of
from frazil.spec.models import TableSpec
from frazil.spec.settings import METADATA_COLUMNS, ColumnSpec
from frazil.spec.syntax.problems import Mistake, try_check
from frazil.spec.syntax.units import duration_text
from frazil.spec.table_forms import ALL_COLUMNS, LATEST_BY

_NUMBERS = (types.IntegerType, types.LongType, types.FloatType, types.DoubleType, types.DecimalType)
_TAKEN: Mapping[str, tuple[tuple[type[types.IcebergType], ...], str]] = {
    "sum": (_NUMBERS, "numbers"),
    "bool_and": ((types.BooleanType,), "booleans"),
    "bool_or": ((types.BooleanType,), "booleans"),
    "collect_set": ((types.ListType,), "lists"),
    "collect_list": ((types.ListType,), "lists"),
    "distinct_sketch": ((types.BinaryType,), "bytes"),
    "quantile_sketch": ((types.BinaryType,), "bytes"),
    "min": ((types.PrimitiveType,), "plain values"),
    "max": ((types.PrimitiveType,), "plain values"),
}
"""The types of columns that a function takes, and what they are called; the other functions take every column."""
RETRACTABLE = ("latest", "sum", "count", "avg")
"""The functions from which a row of the source can be subtracted, or that need not change."""
_ADDING = ("sum", "count", "collect_list")
"""The functions to which each record adds something, also one that is read a second time."""
APPENDED: Mapping[str, Any] = {
    "mode": "append", "key_columns": (), "deletes": "hard", "merge": (), "dedupe": None, "keeps_history": False,
    "track": (),
}  # fmt: skip
"""The keys of a table that appends its records as they are, whatever it is to make of them."""
_BY_ORDER_NOT = ("latest_non_null", "first", "first_non_null")
"""The functions that would need the ordering value of each value, which a row does not have."""
_OF_ORDER = ("latest", "max")
_WHOLE = ("debezium", "maxwell", "canal")
"""The envelopes that have the whole row before an update."""
_LIST_REMEDY = "make a list of the value, such as `select: select id, array(tag) as tags from records`"


def retracts(table: TableSpec) -> bool:
    """Whether updates and deletes of the source subtract the row before from what it was merged into."""
    return table.changes.counts_every_row and table.changes.wraps_changes


def adding_function(table: TableSpec) -> str:
    """The first function to which each record adds something, also one that is read a second time; empty without one."""
    return next((function for _, function in table.changes.merge if function in _ADDING), "")


def other_commits(table: TableSpec) -> str:
    """Why the rows of a commit depend on the records of others; empty where they do not."""
    if table.changes.counts_every_row:
        return "its rows are merged of more records than those of a commit"
    if table.changes.keeps_history:
        return "its versions depend on more records than those of a commit"
    return "it drops duplicates of records of other commits" if table.changes.dedupe is not None else ""


def settings_of_state(table: TableSpec, metadata: Mapping[str, str]) -> dict[str, Any]:
    """The columns, metadata, and handling of tombstones and bad records that `merge` and `dedupe` bring about. metadata: of
    the table.
    """
    settings: dict[str, Any] = {}
    declared = Spellings((*(column.name for column in table.shape.columns), *metadata.values()))
    counts = [name for name in table.changes.counted_columns if declared.find(name) is None]
    counts = [] if table.has_query else counts  # Added behind the query, which may read a field of this name.
    if counts and ALL_COLUMNS not in counts:
        columns = (ColumnSpec(name=name, type=types.LongType(), constant="1") for name in counts)
        settings["columns"] = (*table.shape.columns, *columns)
    if retracts(table) and not table.changes.tombstones:
        settings["tombstones"] = "ignore"
    if retracts(table) and "on_bad_record" not in table.bad_records.model_fields_set:
        # Without the record, the next change of its row would subtract what was never added.
        settings["on_bad_record"] = "stop"
    if table.changes.dedupe is not None and table.changes.dedupe.within_s is not None and "timestamp" not in metadata:
        settings["metadata"] = {**metadata, "timestamp": METADATA_COLUMNS["timestamp"]}
    return settings


def describe_state(table: TableSpec) -> Iterator[str]:
    """Yields how rows are made of more than their own record, a line for each setting."""
    changes, groups = table.changes, list(describe_grouping(table))
    yield from groups
    if table.changes.counts_every_row and not groups:
        functions = dict(changes.merge)
        others = functions.pop(ALL_COLUMNS, "latest")
        named = [f"{function} of {name}" for name, function in functions.items() if function != "count"]
        named += [f"{name} counts records" for name, function in functions.items() if function == "count"]
        keys = ", ".join(changes.key_columns) or "the record's key"
        subtracted = "; updates and deletes subtract the row before" if retracts(table) else ""
        yield f"merges records by {keys}: {', '.join((*named, f'{others} of other columns'))}{subtracted}"
    if changes.dedupe is not None:
        within = changes.dedupe.within_s
        reach = f" at most {duration_text(within)} apart" if within is not None else ""
        yield f"drops records with the same {', '.join(changes.dedupe.by)}{reach}"


def check_kind(table: TableSpec) -> Iterator[Mistake]:
    """Yields a table that is its own state, where the package with its kind is not installed. For a query with GROUP BY
    `check_grouping` finds this.
    """
    kind = table.changes.kind
    if kind:
        yield from try_check({"history": "mode"}.get(kind, kind), TABLE_KINDS.get, kind)


def check_merge(table: TableSpec) -> Iterator[Mistake]:
    """Yields functions that the table's mode, key, order, envelope or columns do not allow."""
    changes = table.changes
    if not changes.merge:
        return
    if changes.mode != "upsert":
        message = "`merge` merges the records of a key, and a table with `mode: append` keeps all of them"
        yield Mistake("merge", message, "write `mode: upsert` and `key_columns: [NAME]`, or remove it")
        return
    if changes.deletes == "soft":
        message = "`deletes: soft` keeps a deleted row, and `merge` would continue with its values"
        yield Mistake("deletes", message, "write `deletes: hard`, or remove `merge`")
    yield from _check_columns(table)
    yield from _check_order(table)
    yield from _check_orders(table)
    if retracts(table):
        yield from _check_source(table)
        yield from _check_retractions(table)


def _check_columns(table: TableSpec) -> Iterator[Mistake]:
    keys, metadata = Spellings(table.changes.key_columns), Spellings(table.metadata.values())
    for name, function in table.changes.merge:
        if name == ALL_COLUMNS and function == "count":
            remedy = "name the column: `merge: {records: count}`"
            yield Mistake("merge", "`merge: count` names no column for the number of records", remedy)
        elif name != ALL_COLUMNS and keys.find(name) is not None:
            message = f"`merge` has `{name}`, which identifies the row"
            yield Mistake(("merge", name), message, "take it out of `merge`, or out of `key_columns`")
        elif name != ALL_COLUMNS:
            column = table.declared_column(name)
            yield from _check_column(name, function, column, is_metadata=metadata.find(name) is not None)


def _check_column(name: str, function: str, column: ColumnSpec | None, *, is_metadata: bool) -> Iterator[Mistake]:
    """Yields a function that does not fit its column. column: as it is declared; None where it is not."""
    of_count = f"`merge.{name}` is `count`, which makes a column of its own, and"
    if function == "count" and is_metadata:
        yield Mistake(("merge", name), f"{of_count} `metadata` makes the column too", "give the count another name")
    if column is None:
        return
    if function == "count" and column.constant is None:
        remedy = "take it out of `columns`, or write `sum`"
        yield Mistake(("merge", name), f"{of_count} `columns` declares the column", remedy)
    kinds, what = _TAKEN.get(function, ((types.IcebergType,), ""))
    if not isinstance(column.type, kinds):
        remedy = _LIST_REMEDY if kinds == (types.ListType,) else "write another function, or another type"
        yield Mistake(("merge", name), f"`merge.{name}`: `{function}` takes {what}, not `{column.type}`", remedy)


def _check_order(table: TableSpec) -> Iterator[Mistake]:
    order_by = table.changes.order_by
    if order_by is None or not table.changes.counts_every_row:
        return
    functions = dict(table.changes.merge)
    of_order = functions.get(order_by, functions.get(ALL_COLUMNS, "latest"))
    if of_order not in _OF_ORDER:
        message = f"`merge` makes `{of_order}` of `{order_by}`, which orders the records: the latest would be unknown"
        yield Mistake("merge", message, f"write `{order_by}: latest`, or let another column order the records")
    for name, function in table.changes.merge:
        if function in _BY_ORDER_NOT and name != order_by:
            message = f"`{function}` of late records is unknown: a row has no `{order_by}` for each of its values"
            remedy = (
                "leave `order_by` out, so that records count in the order of their offsets, or write `latest`, `min`"
            )
            yield Mistake(("merge", name) if name else "merge", message, f"{remedy} or `max`")


def _check_orders(table: TableSpec) -> Iterator[Mistake]:
    """Yields columns that order the values of others and are not their greatest value: the order would be lost."""
    functions = dict(table.changes.merge)
    spellings = Spellings(functions)
    for name, function in functions.items():
        order = function.removeprefix(LATEST_BY)
        merged = functions.get(spellings.find(order) or order, "max")
        if function.startswith(LATEST_BY) and merged != "max":
            message = f"`merge.{name}` is the latest value by `{order}`, of which `merge` makes `{merged}`"
            yield Mistake(("merge", name) if name else "merge", message, f"write `{order}: max`, or leave it out")


def _check_source(table: TableSpec) -> Iterator[Mistake]:
    """Yields an envelope, or a use of it, that does not have the row to subtract."""
    changes = table.changes
    kind = changes.envelope_kind
    if kind not in _WHOLE:
        what = "an operation in a field" if kind == "operation" else f"`envelope: {kind}`"
        message = f"`merge` subtracts the row before an update, and {what} does not have the whole of it"
        yield Mistake("envelope", message, "merge records without `envelope`, or write `mode: upsert` without `merge`")
    if changes.atomic is not None:
        message = "`atomic` shows transactions whole, and `merge` does not keep them apart"
        yield Mistake("atomic", message, "remove one of them")
    if changes.order_by is not None:
        message = "`order_by` has no effect where updates and deletes subtract the row before"
        yield Mistake("order_by", message, "leave it out: changes are merged in the order of their offsets")
    if changes.tombstones == "delete":
        message = "`tombstones: delete` deletes the row of a key, and `merge` subtracts the deleted rows themselves"
        yield Mistake("tombstones", message, "write `tombstones: ignore`, or remove it")


def _check_retractions(table: TableSpec) -> Iterator[Mistake]:
    changes, of_session = table.changes, session_of(table) or ()
    for name, function in changes.merge:
        if function not in RETRACTABLE and name not in of_session:
            message = f"`{function}` cannot subtract a row of the source: the value without it is unknown"
            remedy = f"write one of: {', '.join(RETRACTABLE)}; or merge a changelog table's rows in a query"
            yield Mistake(("merge", name) if name else "merge", message, remedy)
    if all(function != "count" for _, function in changes.merge):
        message = "`merge` subtracts deleted rows, and no `count` shows when none is left"
        yield Mistake("merge", message, "add one, such as `merge: {rows: count}`: a row whose count is 0 is deleted")
    if not changes.key_columns:
        message = "`merge` of changes needs the columns to group by, and the table names no `key_columns`"
        yield Mistake("merge", message, "write `key_columns: [NAME]`")


def check_dedupe(table: TableSpec) -> Iterator[Mistake]:
    """Yields `dedupe` of a table that cannot have it, and a column that cannot identify an event."""
    dedupe = table.changes.dedupe
    if dedupe is None:
        return
    if table.changes.mode == "upsert":
        message = "`dedupe` drops records that are in the table already, and `mode: upsert` replaces their rows"
        yield Mistake("dedupe", message, "remove one of them")
    if table.changes.changelog:
        message = "`dedupe` would drop changes of a row, which `changelog: true` keeps"
        yield Mistake("dedupe", message, "remove one of them")
    for name in dedupe.by:
        column = table.declared_column(name)
        if column is not None and not column.type.is_primitive:
            kind = str(column.type).partition("<")[0]
            message = f"`dedupe.by` has `{name}`, a {kind}, and takes columns with plain values"
            yield Mistake("dedupe", message, "name another column, or one inside it")
