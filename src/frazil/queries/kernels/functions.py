"""Values that tasks do not compute: those of Spark, made before, and those of Python functions of the user.

A function is called with all rows, and with fewer where it raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import SpecError
from frazil.plugins.functions import import_function
from frazil.printable import plural
from frazil.queries.kernels.values import EXPRESSION_FAILED, Bools, Kernel, Result, as_array, null_where, rows_of
from frazil.queries.program import BY_SPARK, PYTHON, Call
from frazil.schema.arrow import as_written


def _value(call: Call, structs: pa.Array, *_: pa.Array) -> Result:
    bad = np.asarray(structs.is_null())
    values = as_written(pc.struct_field(structs, 0), call.type)
    bad |= _has_invalid_text(values)
    return Result(null_where(values, bad), bad.astype(np.uint8) * np.uint8(EXPRESSION_FAILED))


def _has_invalid_text(values: pa.Array) -> Bools:
    """Returns which rows have text that is not UTF-8, which Spark's text may be: bool of shape (rows,)."""
    if _is_valid(values):
        return np.zeros(len(values), np.bool_)
    return np.array([not _is_valid(values.slice(row, 1)) for row in range(len(values))], np.bool_)


def _is_valid(values: pa.Array) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


WRONG_RESULT = "correct the function, and start again"
"""The remedy for a function that does not return an array of its type with a value for each row."""


def _run(call: Call, *arguments: Any) -> Result:
    rows = rows_of(*arguments)
    options = dict(call.options)
    function = import_function(str(options["function"]), str(options["folder"]))
    reasons: dict[int, str] = {}
    arrays = [as_array(argument, rows) for argument in arguments]
    pieces = list(_pieces(call, function, arrays, 0, reasons)) if rows else []
    errors = np.zeros(rows, np.uint8)
    errors[list(reasons)] = EXPRESSION_FAILED
    values = pa.concat_arrays(pieces) if pieces else pa.array([], call.type)
    return Result(values, errors if reasons else None, reasons)


def _pieces(
    call: Call, function: Callable[..., Any], arguments: Sequence[pa.Array], first: int, reasons: dict[int, str]
) -> Iterator[pa.Array]:
    """Yields the values of the rows from `first` on, null for those of which `reasons` gets what the function raised."""
    rows = len(arguments[0])
    try:
        result = function(*arguments)
    except Exception as error:  # noqa: BLE001  (whatever the user's code raises)
        if rows == 1:
            name, words = type(error).__name__, str(error)
            reasons[first] = f"{name}: {words}" if words else name
            yield pa.nulls(1, call.type)
            return
    else:
        yield _checked(call, result, rows)
        return
    half = rows // 2
    yield from _pieces(call, function, [argument.slice(0, half) for argument in arguments], first, reasons)
    yield from _pieces(call, function, [argument.slice(half) for argument in arguments], first + half, reasons)


def _checked(call: Call, result: Any, rows: int) -> pa.Array:
    """Returns what a function has made of so many rows.

    Raises: SpecError where that is not an array of the declared type with a value for each row.
    """
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, pa.Array):
        raise SpecError(f"`{call.sql}` returns no Arrow array, but {type(result).__name__}", remedy=WRONG_RESULT)
    if not result.type.equals(call.type):
        message = f"`{call.sql}` returns an array of {result.type}, and declares {call.type}"
        raise SpecError(message, remedy=WRONG_RESULT)
    if len(result) != rows:
        raise SpecError(
            f"`{call.sql}` returns {plural(len(result), 'value')} for {plural(rows, 'row')}", remedy=WRONG_RESULT
        )
    try:
        result.validate(full=True)
    except pa.ArrowInvalid as error:
        raise SpecError(f"`{call.sql}` returns an invalid array: {error}", remedy=WRONG_RESULT) from None
    return as_written(result, call.type)


KERNELS = {
    BY_SPARK: Kernel(("any, ...",), _value, is_eager=True),
    PYTHON: Kernel(("any, ...",), _run, is_eager=True),
}
