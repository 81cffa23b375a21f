"""The keys of tables with `mode: history`, which have a row for each version of what their keys identify.

Once the file is read such a table is one with `mode: upsert`, whose rows are looked up by key, that `keeps_history`. How
versions are made is in `frazil_state.history`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from pyiceberg.types import DateType, IcebergType, TimestampType, TimestamptzType

from frazil.column_names import Spellings
from frazil.plugins.formats import ENVELOPES
from frazil.spec.models import TableSpec
from frazil.spec.settings import HISTORY
from frazil.spec.syntax.problems import Mistake

Spec = TypeVar("Spec", bound=TableSpec)
_TIMES = (TimestampType, TimestamptzType, DateType)
_OF_TIMES = ("timestamp", "source_ts", "connector_ts", "ce_time")
_EVENTS = ("cloudevents", "outbox", "operation")
"""The envelopes whose deletes have the row's columns as they are at the time of the delete."""
_OTHERS = (
    ("merge", "`merge` makes one row of all records of a key, and `mode: history` a row of each version"),
    ("changelog", "`changelog: true` appends every change, and the table has `mode: history`"),
    ("atomic", "`atomic` shows transactions whole, and `mode: history` does not keep them apart"),
)


def as_upserts(table: Spec) -> Spec:
    """Returns a table with `mode: history` as an upsert table that keeps history, and any other table unchanged."""
    if table.changes.mode != "history":
        return table
    return table.model_copy(update={"mode": "upsert", "keeps_history": True})


def describe_history(table: TableSpec) -> Iterator[str]:
    """Yields how versions are made, in a line."""
    changes = table.changes
    if changes.keeps_history:
        what = ", ".join(changes.track) or "any column"
        order = changes.order_by or "the order of the records"
        keys = ", ".join(changes.key_columns) or "the record's key"
        yield f"keeps each version of {what} by {keys}, from {order}, in {', '.join(_columns(table))}"


def check_history(table: TableSpec) -> Iterator[Mistake]:
    """Yields settings that contradict the table's history, and history's settings of another table."""
    changes = table.changes
    if not changes.keeps_history:
        if changes.track:
            message = "`track` chooses the columns whose changes make a version, and the table keeps no history"
            yield Mistake("track", message, "write `mode: history` and `key_columns: [NAME]`, or remove it")
        return
    for key, message in _OTHERS:
        if getattr(changes, key):
            yield Mistake(key, message, "remove one of them")
    if changes.deletes == "soft":
        message = "`deletes: soft` marks a row, and with `mode: history` a delete closes its last version"
        yield Mistake("deletes", message, "remove it")
    keys, own = Spellings(changes.key_columns), Spellings(_columns(table))
    for name in changes.track:
        if keys.find(name) is not None or own.find(name) is not None:
            message = f"`track` has `{name}`, which identifies a version and does not change in it"
            yield Mistake("track", message, "take it out of `track`")
    yield from _check_order(table)


def _columns(table: TableSpec) -> list[str]:
    """The columns that show when a version was valid."""
    return [table.metadata.get(field, field) for field in HISTORY]


def _check_order(table: TableSpec) -> Iterator[Mistake]:
    name, envelope = table.changes.order_by, table.changes.envelope
    if name is None:
        return
    field = next((field for field, column in table.metadata.items() if column == name), None)
    if field in _OF_TIMES:
        return
    kind: IcebergType | None = None
    if not table.has_query and field is None:
        types = {column.name: column.type for column in table.shape.columns}
        kind = types.get(Spellings(types).find(name) or name)
    if field is not None or (kind is not None and not isinstance(kind, _TIMES)):
        message = f"`order_by: {name}` is not a time, and with `mode: history` versions are valid from the time in it"
        remedy = f"name a column with a time, such as `columns: {{{name}: timestamptz}}`, or remove it"
        yield Mistake("order_by", message, remedy)
    elif envelope is not None and envelope.kind not in _EVENTS:
        message = f"a delete has no value for `order_by: {name}`: the row before it has the time of an earlier change"
        has_time = "source_ts" in ENVELOPES.get(envelope.kind).all_metadata
        order = "write `metadata: [source_ts]` and `order_by: _source_ts`, or " if has_time else ""
        yield Mistake("order_by", message, f"{order}remove it")
