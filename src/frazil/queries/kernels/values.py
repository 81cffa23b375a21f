"""What kernels take and return, and the words in which the table of proven functions is written.

A kernel gets one value per argument: an array, or a scalar for a literal; at least one of them is an array, and all
arrays are of one length. It returns an array that is null where an argument is, and an error code where Spark would raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.queries.program import Call, Literal

Bools = NDArray[np.bool_]
U8 = NDArray[np.uint8]
Value: TypeAlias = Any
"""An array, or a scalar of Arrow."""
ERRORS = (
    "",
    "CAST_INVALID_INPUT",
    "CAST_OVERFLOW",
    "NUMERIC_VALUE_OUT_OF_RANGE",
    "ARITHMETIC_OVERFLOW",
    "DIVIDE_BY_ZERO",
    "REMAINDER_BY_ZERO",
    "INVALID_ARRAY_INDEX",
    "INVALID_UTF8_STRING",
    "NUMERIC_OUT_OF_SUPPORTED_RANGE",
    "EXPRESSION_FAILED",
)
"""Spark's error classes, and the one of all failures in Spark itself and in Python functions; an error code is a place in
this list.
"""
(
    NO_ERROR,
    CAST_INVALID_INPUT,
    CAST_OVERFLOW,
    NUMERIC_VALUE_OUT_OF_RANGE,
    ARITHMETIC_OVERFLOW,
    DIVIDE_BY_ZERO,
    REMAINDER_BY_ZERO,
    INVALID_ARRAY_INDEX,
    INVALID_UTF8_STRING,
    NUMERIC_OUT_OF_SUPPORTED_RANGE,
    EXPRESSION_FAILED,
) = range(len(ERRORS))


@dataclass(frozen=True)
class Result:
    """What a kernel returns."""

    #: One value per row, null where the row failed.
    values: pa.Array
    #: An error code per row: uint8 of shape (rows,), None where none failed.
    errors: U8 | None = None
    #: By row, why it failed, where the error does not say it.
    reasons: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Column:
    """The values of an expression for the rows of a batch."""

    #: An array, null where a row failed; a scalar for an expression without fields.
    values: Value
    #: int32 of shape (rows,): 0, or the number of the failure; None where none failed.
    failed: NDArray[np.int32] | None = None


Run = Callable[..., Result | pa.Array]
Choose = Callable[[Call, Sequence[Column], int], Column]


@dataclass(frozen=True)
class Kernel:
    """An entry of the table of proven functions."""

    #: Which arguments are proven: alternatives, each the kinds of all arguments; see `kind_of` and `matches`.
    takes: tuple[str, ...]
    #: Evaluates the call on the arguments' values; None for a conditional expression.
    run: Run | None = None
    #: Evaluates a conditional expression, whose arguments may not all be reached.
    choose: Choose | None = None
    #: Whether Spark evaluates every argument even where an earlier one is null.
    is_eager: bool = False
    #: The order in which Spark evaluates the arguments: of divisions the divisor first; empty for the order in which they
    #: are written.
    order: tuple[int, ...] = ()
    #: Why a call of these types is not proven all the same; empty where it is.
    objection: Callable[[Call], str] = lambda _: ""


_KINDS = {
    pa.string(): "text",
    pa.binary(): "binary",
    pa.bool_(): "bool",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "ntz",
}
_NESTED = ((pa.types.is_decimal128, "decimal"), (pa.types.is_list, "list"), (pa.types.is_map, "map"),
           (pa.types.is_struct, "struct"))  # fmt: skip


def kind_of(kind: pa.DataType) -> str:
    """Returns the word for a type in the table of proven functions."""
    word_of_kind = _KINDS.get(kind)
    return word_of_kind or next((word for is_kind, word in _NESTED if is_kind(kind)), str(kind))


def matches(pattern: str, call: Call) -> bool:
    """Whether a call has the arguments of a pattern: kinds separated by commas, alternatives by `|`, `any` for every kind,
    `!` behind one that must be a literal other than NULL, and `...` at the end to repeat the last.
    """
    parts = _parts(pattern, call)
    if len(parts) != len(call.arguments):
        return False
    return all(_is(part, argument) for part, argument in zip(parts, call.arguments, strict=True))


def _parts(pattern: str, call: Call) -> list[str]:
    parts = [part.strip() for part in pattern.split(",")]
    if parts[-1] == "...":
        parts[-1:] = [parts[-2]] * max(0, len(call.arguments) - len(parts) + 1)
    return parts


def literal_places(kernel: Kernel, call: Call) -> set[int]:
    """Returns the places of the arguments that a kernel takes as scalars always."""
    pattern = next(pattern for pattern in kernel.takes if matches(pattern, call))
    return {place for place, part in enumerate(_parts(pattern, call)) if part.endswith("!")}


def _is(part: str, argument: Any) -> bool:
    if part.endswith("!") and (not isinstance(argument, Literal) or argument.value is None):
        return False
    words = part.rstrip("!").split("|")
    return "any" in words or kind_of(argument.type) in words


def is_constant(expression: Any) -> bool:
    """Whether an expression has no fields."""
    if isinstance(expression, Call):
        return all(map(is_constant, expression.arguments))
    return isinstance(expression, Literal)


def rows_of(*values: Value) -> int:
    """Returns the length of the arrays among these values."""
    return next(len(value) for value in values if isinstance(value, pa.Array))


def as_array(value: Value, rows: int) -> pa.Array:
    """Returns a value for each row."""
    return value if isinstance(value, pa.Array) else pa.repeat(value, rows)


def is_there(value: Value, rows: int) -> Bools:
    """Returns which rows have a value: bool of shape (rows,)."""
    if isinstance(value, pa.Scalar):
        return np.full(rows, value.is_valid)
    return np.asarray(value.is_valid()) if value.null_count else np.ones(rows, np.bool_)


def numbers(value: Value) -> Any:
    """Returns numbers, days or times as numpy has them, 0 for null: an array, or one number for a scalar."""
    if isinstance(value, pa.Scalar):
        return numbers(pa.array([value.as_py()], value.type) if not _is_time(value.type) else pa.repeat(value, 1))[0]
    if _is_time(value.type):
        value = value.view(pa.int32() if pa.types.is_date32(value.type) else pa.int64())
    return np.asarray(value.fill_null(0) if value.null_count else value)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind))


def from_numbers(bits: NDArray[Any], kind: pa.DataType, *arguments: Value) -> pa.Array:
    """Returns numbers, days or times from their bits; null where an argument is."""
    have_values = both_there(*arguments)
    width = {"date": pa.int32(), "timestamp": pa.int64(), "ntz": pa.int64()}.get(kind_of(kind), kind)
    values = pa.array(bits, width, mask=None if have_values is None else ~have_values)
    return values if width == kind else values.view(kind)


def both_there(*values: Value) -> Bools | None:
    """Returns which rows have a value for each argument: bool of shape (rows,); None for all."""
    if all(value.is_valid if isinstance(value, pa.Scalar) else not value.null_count for value in values):
        return None
    rows = rows_of(*values)
    have_values = is_there(values[0], rows)
    for value in values[1:]:
        have_values = have_values & is_there(value, rows)
    return have_values


def null_where(values: pa.Array, bad: Bools) -> pa.Array:
    """Returns the values, null in these rows."""
    if not bad.any():
        return values
    if pa.types.is_nested(values.type):
        return values.take(pa.array(np.arange(len(values)), mask=bad))
    return pc.if_else(pa.array(~bad), values, pa.scalar(None, values.type))


def failing(values: pa.Array, bad: Bools, error: int) -> Result:
    """Returns the values with an error in these rows."""
    return Result(null_where(values, bad), bad.astype(np.uint8) * np.uint8(error)) if bad.any() else Result(values)


def by_value(array: pa.Array, kind: pa.DataType, function: Callable[[Any], Any]) -> pa.Array:
    """Returns a function of Python of each distinct value; null for null."""
    encoded = array.dictionary_encode()
    results = pa.array([function(value) for value in encoded.dictionary.to_pylist()], kind)
    return results.take(encoded.indices)


def by_row(array: pa.Array, fast: pa.Array, odd: Bools, function: Callable[[Any], Any]) -> pa.Array:
    """Returns `fast`, with a function of Python of the odd rows' values in their place."""
    if not odd.any():
        return fast
    return pc.replace_with_mask(fast, pa.array(odd), by_value(array.filter(pa.array(odd)), fast.type, function))
