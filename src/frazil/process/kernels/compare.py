"""Comparisons. NaN is equal to itself and greater than every other number; -0.0 equals 0.0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.process.kernels.values import Kernel, Value, as_array, is_there, rows_of
from frazil.process.program import Call


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


KERNELS = {
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
