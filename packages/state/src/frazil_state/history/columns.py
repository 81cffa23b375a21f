"""The columns of a table that keeps history: those that are tracked, and what they must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from frazil.column_names import Spellings
from frazil.errors import SpecError, UnusableType
from frazil.schema.arrow import Ints, one_array
from frazil.upsert.deduplicate import key_codes
from frazil.write.target import TableTarget
from frazil_state.history.times import as_times


def tracked_columns(target: TableTarget) -> list[str]:
    """Returns the columns whose changes make a version."""
    changes = target.changes
    assert changes is not None
    assert changes.history is not None
    names = [field.name for field in target.fields]
    if changes.history.track:
        columns = Spellings(target.arrow_schema.names)
        tracked = {columns.find(name) for name in changes.history.track}
        return [name for name in target.arrow_schema.names if name in tracked]
    others = {path[0] for path in changes.paths if len(path) == 1} | {changes.order_by}
    return [name for name in names if name not in others]


def are_untracked(target: TableTarget) -> bool:
    """Returns whether some columns change without a version."""
    changes = target.changes
    assert changes is not None
    history = changes.history
    assert history is not None
    fixed = {history.valid_from, history.valid_to, history.is_current, *tracked_columns(target)}
    fixed |= {path[0] for path in changes.paths}
    return not fixed.issuperset(target.arrow_schema.names)


def untracked_columns(target: TableTarget) -> list[str]:
    """Returns the columns that `track` names and the table does not have."""
    if target.changes is None or target.changes.history is None or not target.schema_json:
        return []
    columns = Spellings(field.name for field in target.schema.fields)
    return [name for name in target.changes.history.track if columns.find(name) is None]


def check_columns(target: TableTarget) -> None:
    """Checks that the column which orders versions has times, and that what is tracked are columns.

    Raises: SpecError where it has another type, or a tracked name is that of a field inside of a column.
    """
    if target.changes is None or target.changes.history is None or not target.schema_json:
        return
    _check_track(target, target.changes.history.track)
    name = target.changes.order_by
    kind = next((field for field in target.arrow_schema if field.name == name), None)
    if kind is not None and as_times(pa.nulls(0, kind.type)) is None:
        remedy = (
            f"declare the column, `columns: {{{name}: timestamptz}}`, and create the table again, or remove `order_by`"
            if target.query is None
            else f"make a time of it in the query, such as `cast({name} as timestamp) as {name}`; a table that has the"
            " column must be created again"
        )
        raise UnusableType(
            f"`order_by: {name}` has the type {target.schema.find_field(name).field_type}, and with `mode: history`"
            " versions are valid from the time in it",
            (name,),
            remedy=remedy,
            where=target.name,
        )


def _check_track(target: TableTarget, track: Sequence[str]) -> None:
    columns = Spellings(target.arrow_schema.names)
    for name in track:
        column = columns.find(name.partition(".")[0])
        if (
            columns.find(name) is None
            and column is not None
            and pa.types.is_nested(target.arrow_schema.field(column).type)
        ):
            raise UnusableType(
                f"`track` names a field inside of the column `{column}`: `{name}`",
                (column,),
                remedy=f"track the whole column, `{column}`, or give the field a column of its own, such as"
                f" `columns: {{NAME: {{type: string, field: {name}}}}}`",
                where=target.name,
            )


def check_versions(target: TableTarget, format_version: int) -> None:
    """Checks that a table can have versions.

    Raises: SpecError where it cannot.
    """
    if format_version < 2:
        raise SpecError(
            "the table has format version 1, and `mode: history` needs version 2 or 3",
            remedy="upgrade the table to format version 2 or 3",
            where=target.name,
        )
    check_columns(target)


def tracked_codes(target: TableTarget, stored: Sequence[pa.Array], rows: pa.Table) -> Ints:
    """Returns per stored version, and behind them per row, a number that is equal where the tracked columns are, int64. A
    null equals a null.
    """
    names = tracked_columns(target)
    count = rows.num_rows + (len(stored[0]) if stored else 0)
    if not names:
        return np.zeros(count, np.int64)
    columns = [pa.concat_arrays([column, one_array(rows[name])]) for column, name in zip(stored, names, strict=True)]
    return key_codes([_comparable(column) for column in columns])


def _comparable(column: pa.Array) -> pa.Array:
    """Returns lists, maps and structs as texts, which are equal where the values are: the entries of a map have no order."""
    if not pa.types.is_nested(column.type):
        return column
    values = (_without_order(value, column.type) for value in column.to_pylist())
    return pa.array([None if value is None else repr(value) for value in values], pa.string())


def _without_order(value: Any, kind: pa.DataType) -> Any:
    """Returns a value of Python with the entries of maps in one order, and zeros with one sign."""
    if value is None or not (pa.types.is_nested(kind) or pa.types.is_floating(kind)):
        return value
    if pa.types.is_map(kind):
        entries = ((_without_order(key, kind.key_type), _without_order(item, kind.item_type)) for key, item in value)
        return sorted(entries, key=repr)
    if pa.types.is_struct(kind):
        return [_without_order(value[member.name], member.type) for member in kind]
    if pa.types.is_list(kind):
        return [_without_order(element, kind.value_type) for element in value]
    return value + 0.0
