"""Comparisons. NaN is equal to itself and greater than every other number; -0.0 equals 0.0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.process.kernels.values import Bools, Kernel, Value, as_array, is_there, rows_of
from frazil.process.program import Call


def _has_nan(value: Value) -> bool:
    if not pa.types.is_floating(value.type):
        return False
    found = pc.is_nan(value)
    return bool(found.as_py() if isinstance(found, pa.Scalar) else pc.any(found).as_py())


def _nan(value: Value) -> Any:
    return pc.is_nan(value)


def equal(one: Value, other: Value) -> pa.Array:
    """Returns where the values are equal; null where one is."""
    found = pc.equal(one, other)
    return pc.or_(found, pc.and_(_nan(one), _nan(other))) if _has_nan(one) and _has_nan(other) else found


def less(one: Value, other: Value) -> pa.Array:
    """Returns where the first value is less than the other; null where one is."""
    found = pc.less(one, other)
    return pc.or_(found, pc.and_(pc.invert(_nan(one)), _nan(other))) if _has_nan(other) else found


def _less_or_equal(one: Value, other: Value) -> pa.Array:
    if _has_nan(one) or _has_nan(other):
        return pc.invert(less(other, one))
    return pc.less_equal(one, other)


def _equal_null_safe(_: Call, one: Value, other: Value) -> pa.Array:
    rows = rows_of(one, other)
    there, others = is_there(one, rows), is_there(other, rows)
    found = as_array(equal(one, other), rows).fill_null(False)
    return pa.array(np.where(there & others, np.asarray(found), ~there & ~others))


def _is_nan(_: Call, value: pa.Array) -> pa.Array:
    return pc.is_nan(value).fill_null(False)


def _greatest(call: Call, *values: Value) -> pa.Array:
    """The greatest value of those that are not null, the first of equal ones; of all for LEAST the least."""
    rows = rows_of(*values)
    best = as_array(values[0], rows)
    for value in values[1:]:
        other = as_array(value, rows)
        is_better = less(best, other) if call.function == "Greatest" else less(other, best)
        better = np.asarray(is_better.fill_null(False)) | np.asarray(best.is_null())
        best = pc.if_else(pa.array(better), other, best)
    return best


def flags_of(array: pa.Array) -> Bools:
    """Returns which rows are true: bool of shape (rows,)."""
    return np.asarray(array.fill_null(False))


_ORDERED = ("bool, bool", "int, int", "long, long", "float, float", "double, double", "text, text", "binary, binary",
            "date, date", "timestamp, timestamp", "ntz, ntz")  # fmt: skip


def same_type(call: Call) -> str:
    """Returns why a call is not proven whose arguments are to be of one type; empty where they are."""
    kinds = {argument.type for argument in call.arguments}
    return "" if len(kinds) == 1 else "the arguments are of several types"


def _compares(function: Any) -> Kernel:
    return Kernel((*_ORDERED, "decimal, decimal"), lambda _, one, other: function(one, other), objection=same_type)


_EXTREME = ("int, ...", "long, ...", "double, ...", "text, ...", "date, ...", "timestamp, ...", "decimal, ...")
KERNELS = {
    "EqualTo": _compares(equal),
    "LessThan": _compares(less),
    "LessThanOrEqual": _compares(_less_or_equal),
    "GreaterThan": _compares(lambda one, other: less(other, one)),
    "GreaterThanOrEqual": _compares(lambda one, other: _less_or_equal(other, one)),
    "EqualNullSafe": Kernel((*_ORDERED, "decimal, decimal"), _equal_null_safe, is_eager=True, objection=same_type),
    "Not": Kernel(("bool",), lambda _, value: pc.invert(value)),
    "IsNull": Kernel(("any",), lambda _, value: value.is_null(), is_eager=True),
    "IsNotNull": Kernel(("any",), lambda _, value: value.is_valid(), is_eager=True),
    "IsNaN": Kernel(("double", "float"), _is_nan, is_eager=True),
    "Greatest": Kernel(_EXTREME, _greatest, is_eager=True, objection=same_type),
    "Least": Kernel(_EXTREME, _greatest, is_eager=True, objection=same_type),
}
