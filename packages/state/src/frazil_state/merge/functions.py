"""Which function merges the values of each column of a table, the types that it takes, and the values that it refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from frazil.column_names import Spellings
from frazil.decode.columns import Mismatch
from frazil.error_classes import ErrorClass
from frazil.errors import UnusableType
from frazil.schema.arrow import Bools
from frazil.stages.changes import Changes, ReadRecords
from frazil.upsert.records.read_changes import refuse
from frazil.write.target import TableTarget
from frazil_state.merge.quantiles import QUANTILES, lack_number

_ALL_COLUMNS = ""
_BY = " by "
"""Between a function and the column that orders its values."""
ADDING = ("sum", "count")
"""The functions that add values, and from which a value can be subtracted."""
COLLECTING = ("collect_set", "collect_list")
"""The functions that join lists."""
_UNKNOWN = "the change does not have the value of {}, which cannot be merged without it"
_NO_NUMBER = "the bytes of {} are not a number as text, of which a sketch of quantiles is made"
_COMPARED = ("min", "max")


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_plain(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind)


def _is_plain_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind)) and _is_plain(kind.value_type)


_NUMBERS, _BOOLEANS, _PLAIN = (_is_number, "numbers"), (pa.types.is_boolean, "booleans"), (_is_plain, "plain values")
_LISTS = (_is_plain_list, "lists of plain values")
_TAKEN: Mapping[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "sum": _NUMBERS,
    "min": _PLAIN,
    "max": _PLAIN,
    "bool_and": _BOOLEANS,
    "bool_or": _BOOLEANS,
    "collect_set": _LISTS,
    "collect_list": _LISTS,
    "distinct_sketch": (pa.types.is_binary, "bytes"),
    "quantile_sketch": (pa.types.is_binary, "bytes"),
}


@dataclass(frozen=True)
class MergedColumn:
    """One column of a table whose rows are merged."""

    name: str
    #: The function, such as `sum`.
    function: str
    #: The type of the column in files.
    type: pa.DataType
    #: Whether the column has the key of the row, or a part of it.
    is_of_key: bool = False
    #: The column by whose values the latest value is chosen; empty: by the order of the records.
    order_by: str = ""


def merged_columns(target: TableTarget) -> tuple[MergedColumn, ...]:
    """Returns the columns of a table with the functions that merge their values. Columns that identify the row, and
    columns of metadata that `merge` does not name, have `latest`.
    """
    assert target.changes is not None
    named = dict(target.changes.merge)
    usual = named.pop(_ALL_COLUMNS, "latest")
    others = {path[0] for path in target.changes.paths}
    of_records = {field.name for field in target.fields} - others
    functions = dict.fromkeys(of_records, usual) | {name: named[name] for name in named.keys() - others}
    spellings = Spellings(target.arrow_schema.names)

    def merged(field: pa.Field) -> MergedColumn:
        function, _, order = functions.get(field.name, "latest").partition(_BY)
        return MergedColumn(field.name, function, field.type, field.name in others, spellings.find(order) or order)

    return tuple(map(merged, target.arrow_schema))


def check_functions(target: TableTarget) -> None:
    """Checks the types of the columns that functions merge.

    Raises: UnusableType where a function does not take the type of its column; SpecError where a query lacks the column of
        a `count`.
    """
    if target.changes is None or not target.changes.merge or not target.schema_json:
        return
    for column in merged_columns(target):
        is_taken, what = _TAKEN.get(column.function, (None, ""))
        if is_taken is not None and not is_taken(column.type):
            message = f"`merge.{column.name}`: `{column.function}` takes {what}, and the column has the type"
            raise UnusableType(
                f"{message} {_iceberg_type(target.schema, column.name)}",
                (column.name,),
                remedy=_remedy(column),
                where=target.name,
            )


def unmerged_columns(target: TableTarget) -> list[str]:
    """Returns the columns that `merge` names and the table does not have, in the order of the pipeline file."""
    if target.changes is None or not target.schema_json:
        return []
    names = {field.name for field in target.schema.fields}
    return [name for name, _ in target.changes.merge if name != _ALL_COLUMNS and name not in names]


def _iceberg_type(schema: Schema, name: str) -> str:
    return str(schema.find_field(name).field_type)


def _remedy(column: MergedColumn) -> str:
    if column.function in ("distinct_sketch", "quantile_sketch"):
        value = f"cast(cast({column.name} as string) as binary)"
        return f"make bytes of the value in a query, such as `{value} as {column.name}`"
    if column.function in COLLECTING:
        return f"make a list of the value in a query, such as `array({column.name}) as {column.name}`"
    return "write another function, or declare the column with another type, and create the table again"


def refuse_unmergeable(target: TableTarget, read: ReadRecords, changes: Changes) -> Changes:
    """Returns the changes of a table whose rows are merged, with the records refused that have NaN where values are added
    or compared, an infinity where they are added, bytes that are not a number where quantiles are, or a value that the
    source did not send.
    """
    if target.changes is None or not target.changes.merge or not changes.ops.size or changes.must_read_again:
        return changes
    mismatches: list[Mismatch] = []
    columns = {column.name: column for column in merged_columns(target)}
    for n, (field, values) in enumerate(zip(target.fields, changes.columns, strict=True)):
        if n in changes.unavailable:
            reason = _UNKNOWN.format(field.name)
            lacks = changes.unavailable[n]
            mismatches += refuse(changes, lacks, field.name, ErrorClass.UNAVAILABLE_VALUE, reason, read.limit)
        column = columns.get(field.name)
        if column is not None and column.function == QUANTILES:
            bad, reason = lack_number(values), _NO_NUMBER.format(field.name)
            mismatches += refuse(changes, bad, field.name, ErrorClass.TYPE_MISMATCH, reason, read.limit)
        if column is not None and pa.types.is_floating(values.type):
            bad, reason = _unfit(column, values)
            mismatches += refuse(changes, bad, field.name, ErrorClass.OUT_OF_RANGE, reason, read.limit)
    if not mismatches:
        return changes
    return replace(changes, decoded=changes.decoded.refusing(changes.decoded.refused, mismatches, read.limit))


def _unfit(column: MergedColumn, values: pa.Array) -> tuple[Bools, str]:
    """Returns which values a function cannot merge, bool `(n_values,)`, and why."""
    if column.function in ADDING:
        is_finite = np.asarray(pc.fill_null(pc.is_finite(values), True))
        return ~is_finite, f"NaN and infinite values of {column.name} cannot be added: every later sum would be NaN too"
    if column.function in _COMPARED:
        is_nan = np.asarray(pc.fill_null(pc.is_nan(values), False))
        return is_nan, f"NaN of {column.name} is neither less nor greater than other values"
    return np.zeros(len(values), np.bool_), ""
