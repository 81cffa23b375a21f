"""Tables whose query has GROUP BY: what follows from the query, the rules of its keys, and a line for `frazil plan`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from frazil.errors import SpecError
from frazil.spec.grouping import AVERAGE, DISTINCT, WINDOW_END, WINDOW_START, Grouping, grouping_of
from frazil.spec.models import TableSpec
from frazil.spec.publishing import PublishSpec
from frazil.spec.syntax.problems import Mistake
from frazil.types import MAIN

_BRANCH_OF_WINDOWS = "windows"
"""The branch of a table with `emit: closed`, unless the file names one."""
_CLOSED_EVERY_S = 10.0


def groups_of(table: TableSpec) -> Grouping | None:
    """Returns the groups of the table's query; None where it has none, or is wrong (`check_grouping` reports it)."""
    try:
        return grouping_of(table.query.select) if table.query.select else None
    except SpecError:
        return None


def session_of(table: TableSpec) -> tuple[str, str] | None:
    """Returns the columns with the start and the end of a session; None where records are in no sessions."""
    grouping = groups_of(table)
    return None if grouping is None else grouping.session


def settings_of_grouping(table: TableSpec) -> dict[str, Any]:
    """Returns the settings that GROUP BY brings about: an upsert table whose key are the groups."""
    grouping = groups_of(table)
    if grouping is None:
        return {}
    if "mode" in table.changes.model_fields_set and table.changes.mode != "upsert":
        return {}  # `check_grouping` reports it, and nothing that follows from an upsert table besides.
    settings = _decided(grouping)
    if not table.changes.tombstones:
        settings["tombstones"] = "dead_letter" if table.changes.envelope is None else "ignore"
    if table.changes.emit == "closed" and table.publishing.branch == MAIN:
        settings["branch"] = _BRANCH_OF_WINDOWS
    if table.changes.emit == "closed" and table.publishing.publish is None:
        settings["publish"] = PublishSpec(every_s=_CLOSED_EVERY_S)
    written = table.changes.model_fields_set | table.publishing.model_fields_set
    return {name: value for name, value in settings.items() if name not in written}


def _decided(grouping: Grouping) -> dict[str, Any]:
    """Returns the keys that GROUP BY decides."""
    return {"mode": "upsert", "key_columns": grouping.key_columns, "merge": grouping.merge}


def describe_grouping(table: TableSpec) -> Iterator[str]:
    """Yields what makes the rows of a table with groups, a line for each part."""
    grouping = groups_of(table)
    if grouping is None:
        return
    words = {AVERAGE: "the average", DISTINCT: "the number of distinct values", "latest": "the last value"}
    made = [
        f"{column.name} is {words.get(column.function, column.function)}" for column in grouping.columns if column.sql
    ]
    made = [text for text in made if not text.endswith(" is key")]
    made += [f"{column.name} counts records" for column in grouping.columns if column.function == "count"]
    yield f"groups records by {', '.join(grouping.key_columns)}: {', '.join(made)}"
    window = grouping.window
    if window is not None:
        ends = " and ".join(
            f"{column.name} is its {column.function.partition('.')[2]}"
            for column in grouping.columns
            if column.function in (WINDOW_START, WINDOW_END)
        )
        yield f"each record is in {_windows_text(grouping)}: {ends}"
    if table.changes.emit == "closed":
        yield "main, which readers see, has a window once it is complete"
    late = table.changes.late
    if late is not None:
        what = "dead letters" if late.action == "dead_letter" else "dropped and counted as late"
        yield f"records more than {late.text} behind the greatest time of their partition are {what}"


def _windows_text(grouping: Grouping) -> str:
    window = grouping.window
    assert window is not None
    most = window.windows_per_time
    return f"one {window.text}" if most == 1 else f"up to {most} of {window.text}"


def check_grouping(table: TableSpec) -> Iterator[Mistake]:
    """Yields a query whose groups cannot be made, and settings that contradict it."""
    try:
        grouping = grouping_of(table.query.select) if table.query.select else None
    except SpecError as error:
        yield Mistake("select", error.message, error.remedy)
        return
    if grouping is None:
        for key in ("late", "emit"):
            if key in table.changes.model_fields_set:
                message = f"`{key}` is for windows, and the table's query has no GROUP BY"
                yield Mistake(key, message, "group by `window(TIME, '1 minute')` in `select`, or remove it")
        return
    yield from _check_settings(table, grouping)
    yield from _check_time(table, grouping)


def _check_settings(table: TableSpec, grouping: Grouping) -> Iterator[Mistake]:
    changes = table.changes
    for key, value in _decided(grouping).items():
        if key in changes.model_fields_set and getattr(changes, key) != value:
            message = f"the query's GROUP BY decides `{key}`, and the table has another"
            yield Mistake(key, message, "remove it, or take GROUP BY out of `select`")
    if changes.keeps_history:
        message = "`mode: history` keeps versions of rows, and GROUP BY makes one row of all records of a group"
        yield Mistake("mode", message, "remove it, or take GROUP BY out of `select`")
    if changes.tombstones == "delete":
        message = "`tombstones: delete` deletes the row of a key, and the rows of groups are of many keys"
        yield Mistake("tombstones", message, "write `tombstones: ignore`, or `dead_letter`")
    if changes.order_by is not None:
        message = f"the groups of the query do not have `{changes.order_by}`, by which records would be ordered"
        yield Mistake("order_by", message, "remove it: `first` and `last` follow the offsets")


def _check_time(table: TableSpec, grouping: Grouping) -> Iterator[Mistake]:
    changes = table.changes
    for key in ("late", "emit"):
        if grouping.window is None and key in changes.model_fields_set:
            message = f"`{key}` is for windows, and the query groups by none"
            yield Mistake(key, message, "group by `window(TIME, '1 minute')`, or remove it")
    if grouping.session is not None and changes.wraps_changes:
        message = "an update or a delete of the source can divide a session, whose records the table does not have"
        yield Mistake(
            "envelope", message, "write `window(TIME, '5 minutes')` in place of `session_window`, or remove it"
        )
    if changes.late is not None and changes.wraps_changes:
        message = "`late` would leave out changes of rows that are in a window already"
        yield Mistake(
            "late", message, "remove it: an update or a delete changes the window of its row whenever it comes"
        )
    if changes.emit == "closed":
        yield from _check_closed(table, grouping)


def _check_closed(table: TableSpec, grouping: Grouping) -> Iterator[Mistake]:
    publishing, publish = table.publishing, table.publishing.publish
    if grouping.window is not None and table.changes.late is None:
        message = "`emit: closed` needs `late`: without it a window never is complete"
        yield Mistake("emit", message, "write `late: 1h`, how far behind records may come, or remove `emit`")
    if publishing.tags or publishing.copies_rows or (publish is not None and (publish.audits or publish.group)):
        message = "`emit: closed` gives readers windows one by one, and cannot audit, tag or copy a whole snapshot"
        remedy = "write `publish: {every: 10s}` alone, without `tags` and `delete_mode`, or remove `emit`"
        yield Mistake("emit", message, remedy)
