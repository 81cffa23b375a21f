"""Comparisons and conditions. NaN is equal to itself and greater than every other number; -0.0 equals 0.0.

Spark does not evaluate conditions in full for every row: a row fails only by what is reached in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.queries.kernels.values import Bools, Column, Kernel, Value, as_array, is_there, null_where, rows_of
from frazil.queries.program import Call


def _has_nan(value: Value) -> bool:
    if not pa.types.is_floating(value.type):
        return False
    is_nan = pc.is_nan(value)
    return bool(is_nan.as_py() if isinstance(is_nan, pa.Scalar) else pc.any(is_nan).as_py())


def _nan(value: Value) -> Any:
    return pc.is_nan(value)


def equal(left: Value, right: Value) -> pa.Array:
    """Returns where the values are equal; null where one is."""
    is_equal = pc.equal(left, right)
    return pc.or_(is_equal, pc.and_(_nan(left), _nan(right))) if _has_nan(left) and _has_nan(right) else is_equal


def less(left: Value, right: Value) -> pa.Array:
    """Returns where the first value is less than the other; null where one is."""
    is_less = pc.less(left, right)
    return pc.or_(is_less, pc.and_(pc.invert(_nan(left)), _nan(right))) if _has_nan(right) else is_less


def _less_or_equal(left: Value, right: Value) -> pa.Array:
    if _has_nan(left) or _has_nan(right):
        return pc.invert(less(right, left))
    return pc.less_equal(left, right)


def _equal_null_safe(_: Call, left: Value, right: Value) -> pa.Array:
    rows = rows_of(left, right)
    has_left, has_right = is_there(left, rows), is_there(right, rows)
    is_equal = as_array(equal(left, right), rows).fill_null(False)
    return pa.array(np.where(has_left & has_right, np.asarray(is_equal), ~has_left & ~has_right))


def _is_nan(_: Call, value: pa.Array) -> pa.Array:
    return pc.is_nan(value).fill_null(False)


_ORDERED = ("bool, bool", "int, int", "long, long", "float, float", "double, double", "text, text", "binary, binary",
            "date, date", "timestamp, timestamp", "ntz, ntz")  # fmt: skip


def same_type(call: Call) -> str:
    """Returns why a call is not proven whose arguments are to be of one type; empty where they are."""
    kinds = {argument.type for argument in call.arguments}
    return "" if len(kinds) == 1 else "the arguments are of several types"


def _compares(function: Any) -> Kernel:
    return Kernel((*_ORDERED, "decimal, decimal"), lambda _, left, right: function(left, right), objection=same_type)


_COMPARISONS = {
    "EqualTo": _compares(equal),
    "LessThan": _compares(less),
    "LessThanOrEqual": _compares(_less_or_equal),
    "GreaterThan": _compares(lambda left, right: less(right, left)),
    "GreaterThanOrEqual": _compares(lambda left, right: _less_or_equal(right, left)),
    "EqualNullSafe": Kernel((*_ORDERED, "decimal, decimal"), _equal_null_safe, is_eager=True, objection=same_type),
    "Not": Kernel(("bool",), lambda _, value: pc.invert(value)),
    "IsNull": Kernel(("any",), lambda _, value: value.is_null(), is_eager=True),
    "IsNotNull": Kernel(("any",), lambda _, value: value.is_valid(), is_eager=True),
    "IsNaN": Kernel(("double", "float"), _is_nan, is_eager=True),
}


Failed = NDArray[np.int32] | None


def merge_failed(first: Failed, then: Failed, reached: Bools | None) -> Failed:
    """Returns the failures of what is evaluated first, and where it did not fail those of what is evaluated then, in the
    rows that reach it (None: all).
    """
    if then is None:
        return first
    if reached is not None:
        then = np.where(reached, then, 0).astype(np.int32)
    if not then.any():
        return first
    return then if first is None else np.where(first != 0, first, then)


def as_column(values: Value, failed: Failed, rows: int) -> Column:
    """Returns a column whose failed rows are null."""
    if failed is None or not failed.any():
        return Column(values)
    return Column(null_where(as_array(values, rows), failed != 0), failed)


def _flags(value: Value, rows: int) -> Bools:
    """Returns which rows are true, neither false nor null: bool of shape (rows,)."""
    if isinstance(value, pa.Scalar):
        return np.full(rows, value.as_py() is True)
    return np.asarray(value.fill_null(False) if value.null_count else value)


def _and(_: Call, arguments: Sequence[Column], rows: int) -> Column:
    left, right = arguments
    is_false = _flags(pc.invert(left.values), rows) if right.failed is not None else None
    failed = merge_failed(left.failed, right.failed, None if is_false is None else ~is_false)
    return as_column(pc.and_kleene(left.values, right.values), failed, rows)


def _or(_: Call, arguments: Sequence[Column], rows: int) -> Column:
    left, right = arguments
    is_true = _flags(left.values, rows) if right.failed is not None else None
    failed = merge_failed(left.failed, right.failed, None if is_true is None else ~is_true)
    return as_column(pc.or_kleene(left.values, right.values), failed, rows)


def _case(call: Call, arguments: Sequence[Column], rows: int) -> Column:
    """CASE, and IF as its simplest form."""
    pairs = [(arguments[n], arguments[n + 1]) for n in range(0, len(arguments) - 1, 2)]
    last = arguments[-1].values if len(arguments) % 2 else pa.scalar(None, call.type)
    failed: Failed = None
    waiting = np.ones(rows, np.bool_)
    chosen: list[Bools] = []
    for condition, then in pairs:
        failed = merge_failed(failed, condition.failed, waiting)
        chosen.append(_flags(condition.values, rows) & waiting)
        waiting = waiting & ~chosen[-1]
        if condition.failed is not None:
            waiting &= condition.failed == 0
        failed = merge_failed(failed, then.failed, chosen[-1])
    if len(arguments) % 2:
        failed = merge_failed(failed, arguments[-1].failed, waiting)
    values = as_array(last, rows)
    for flags, (_, then) in zip(reversed(chosen), reversed(pairs), strict=True):
        values = _where(flags, then.values, values)
    return as_column(values, failed, rows)


def _where(flags: Bools, then: Value, otherwise: pa.Array) -> pa.Array:
    """Returns one value where the flag is set and the other where it is not."""
    if not pa.types.is_nested(otherwise.type):
        return pc.if_else(pa.array(flags), then, otherwise)
    count = len(otherwise)
    places = np.arange(count) + np.where(flags, 0, count)
    return pa.concat_arrays([as_array(then, count), otherwise]).take(pa.array(places))


def _coalesce(call: Call, arguments: Sequence[Column], rows: int) -> Column:
    failed: Failed = None
    waiting = np.ones(rows, np.bool_)
    values = pa.nulls(rows, call.type)
    for argument in arguments:
        failed = merge_failed(failed, argument.failed, waiting)
        has_value = is_there(argument.values, rows) & waiting
        if argument.failed is not None:
            waiting = waiting & (argument.failed == 0)
        values = _where(has_value, argument.values, values)
        waiting = waiting & ~has_value
    return as_column(values, failed, rows)


def _in(_: Call, arguments: Sequence[Column], rows: int) -> Column:
    """`value IN (list)`: the list is evaluated until an item is equal; NULL where none is and one is NULL."""
    value, *items = arguments
    failed = value.failed
    waiting = is_there(value.values, rows)
    is_found = np.zeros(rows, np.bool_)
    has_null = ~waiting
    for item in items:
        failed = merge_failed(failed, item.failed, waiting)
        if item.failed is not None:
            waiting = waiting & (item.failed == 0)
        if isinstance(item.values, pa.Scalar) and isinstance(value.values, pa.Scalar):
            is_equal: Value = pa.repeat(equal(value.values, as_array(item.values, 1))[0], rows)
        else:
            is_equal = equal(value.values, item.values)
        is_found |= _flags(is_equal, rows) & waiting
        has_null |= waiting & ~is_there(item.values, rows)
        waiting = waiting & ~is_found
    return as_column(pa.array(is_found, pa.bool_(), mask=has_null & ~is_found), failed, rows)


_COMPARED = "bool|int|long|float|double|decimal|text|binary|date|timestamp|ntz"
KERNELS = {
    **_COMPARISONS,
    "And": Kernel(("bool, bool",), choose=_and),
    "Or": Kernel(("bool, bool",), choose=_or),
    "If": Kernel(("bool, any, any",), choose=_case),
    "CaseWhen": Kernel(("any, ...",), choose=_case),
    "Coalesce": Kernel(("any, ...",), choose=_coalesce),
    "In": Kernel((f"{_COMPARED}, {_COMPARED}, ...",), choose=_in),
}
