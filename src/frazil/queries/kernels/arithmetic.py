"""Arithmetic of integers, doubles and decimals: an overflow is an error, and so is a division by zero, of doubles too.

Decimals are exact in 256 bits, then rounded half up once, as Spark does; too many digits are an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.queries.kernels.values import (
    ARITHMETIC_OVERFLOW,
    DIVIDE_BY_ZERO,
    NUMERIC_VALUE_OUT_OF_RANGE,
    REMAINDER_BY_ZERO,
    Bools,
    Kernel,
    Result,
    Value,
    both_there,
    failing,
    from_numbers,
    is_constant,
    numbers,
    rows_of,
)
from frazil.queries.program import Call, Expression

WIDEST = 76
_DIGITS_OF_WORD = 9
_LONG_DIGITS = 19


def rescale(array: pa.Array, target: pa.Decimal128Type) -> Result:
    """Returns decimals of 128 or 256 bits in another precision and scale, rounded half up."""
    kind = array.type
    if kind.scale <= target.scale and kind.precision - kind.scale <= target.precision - target.scale:
        return Result(array.cast(target))
    return narrow(array, target)


def narrow(array: pa.Array, target: pa.Decimal128Type) -> Result:
    """Returns decimals in another precision and scale, rounded half up; an error where the result has too many digits."""
    wide = _widened(array)
    if wide.type.scale > target.scale:
        half = Decimal((0, (5,), -target.scale - 1))
        is_negative = pc.less(wide, pa.scalar(Decimal(0), wide.type))
        away = pc.if_else(is_negative, pa.scalar(-half, wide.type), pa.scalar(half, wide.type))
        wide = truncate(_widened(pc.add(_narrower(wide), _narrower(away))), target.scale)
    bad = _is_beyond(wide, target)
    if bad.any():
        wide = pc.if_else(pa.array(~bad), wide, pa.scalar(None, wide.type))
    return failing(wide.cast(target), bad, NUMERIC_VALUE_OUT_OF_RANGE)


def _widened(array: pa.Array) -> pa.Array:
    return array.cast(pa.decimal256(WIDEST, array.type.scale))


def _narrower(wide: pa.Array) -> pa.Array:
    """Returns decimals with a digit less, so that a sum fits; no value has that many."""
    return wide.cast(pa.decimal256(WIDEST - 1, wide.type.scale))


def truncate(wide: pa.Array, scale: int) -> pa.Array:
    """Returns decimals without the digits behind a scale. Arrow 26 divides wrongly by more than 32 bits (the quotient of
    9223372036854775807.5 lacks 2**32), so at most nine digits are removed at a time.
    """
    while wide.type.scale > scale:
        wide = wide.cast(pa.decimal256(WIDEST, max(scale, wide.type.scale - _DIGITS_OF_WORD)), safe=False)
    return wide


def _is_beyond(wide: pa.Array, target: pa.Decimal128Type) -> Bools:
    limit = Decimal(10) ** (target.precision - target.scale)
    if target.precision - target.scale > wide.type.precision - wide.type.scale:
        return np.zeros(len(wide), np.bool_)
    ends = pc.min_max(wide)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is None or (most < limit and least > -limit):
        return np.zeros(len(wide), np.bool_)
    edge: Any = pa.scalar(limit, wide.type)
    return np.asarray(pc.greater_equal(pc.abs(wide), edge).fill_null(False))


def decimal_of_integers(array: pa.Array, target: pa.Decimal128Type) -> Result:
    """Returns integers as decimals."""
    return rescale(array.cast(pa.decimal128(_LONG_DIGITS, 0)), target)


def nearest_doubles(array: pa.Array, _: pa.DataType) -> pa.Array:
    """Returns the double nearest to each decimal; Arrow's own cast misses it for many."""
    return array.cast(pa.string()).cast(pa.float64())


def decimal_texts(array: pa.Array, _: pa.DataType) -> pa.Array:
    """Returns decimals as texts without an exponent."""
    texts = array.cast(pa.string())
    has_exponent = pc.match_substring(texts, "E")
    if not pc.any(has_exponent).as_py():
        return texts
    with_exponent = has_exponent.fill_null(False)
    plain = pa.array([format(decimal, "f") for decimal in array.filter(with_exponent).to_pylist()], pa.string())
    return pc.replace_with_mask(texts, with_exponent, plain)


_PLAIN: dict[str, tuple[Any, Any, Any]] = {
    "Add": (pc.add, pc.add_checked, np.add),
    "Subtract": (pc.subtract, pc.subtract_checked, np.subtract),
    "Multiply": (pc.multiply, pc.multiply_checked, np.multiply),
}
_LONG_MIN = np.iinfo(np.int64).min
_DIGITS_OF_NEGATION = 34


def _arithmetic(call: Call, left: Value, right: Value) -> Result:
    plain, checked, by_numpy = _PLAIN[call.function]
    if pa.types.is_decimal(call.type):
        return narrow(plain(_wide(left, right.type, call), _wide(right, left.type, call)), call.type)
    if pa.types.is_floating(call.type):
        return Result(plain(left, right))
    try:
        return Result(checked(left, right))
    except pa.ArrowInvalid:  # Some row overflows.
        return _overflowing(call, by_numpy, left, right)


def _wide(value: Value, other: pa.Decimal128Type, call: Call) -> Value:
    """Returns decimals in 256 bits, for sums with the scale of the result of both."""
    kind = value.type
    scale = kind.scale if call.function == "Multiply" else max(kind.scale, other.scale)
    return value.cast(pa.decimal256(kind.precision - kind.scale + scale, scale))


def _overflowing(call: Call, by_numpy: Callable[..., Any], left: Value, right: Value) -> Result:
    a, b = numbers(left), numbers(right)
    with np.errstate(over="ignore"):
        if call.type == pa.int32():
            wide = by_numpy(np.asarray(a, np.int64), np.asarray(b, np.int64))
            bad = (wide < -(2**31)) | (wide >= 2**31)
            wrapped = wide.astype(np.int32)
        else:
            wrapped = by_numpy(np.asarray(a, np.int64), np.asarray(b, np.int64))
            bad = _long_overflows(call.function, np.asarray(a, np.int64), np.asarray(b, np.int64), wrapped)
    values = from_numbers(wrapped, call.type, left, right)
    have_values = both_there(left, right)
    return failing(values, bad if have_values is None else bad & have_values, ARITHMETIC_OVERFLOW)


def _long_overflows(function: str, a: Any, b: Any, wrapped: NDArray[np.int64]) -> Bools:
    if function == "Add":
        return np.asarray(((a ^ wrapped) & (b ^ wrapped)) < 0)
    if function == "Subtract":
        return np.asarray(((a ^ b) & (a ^ wrapped)) < 0)
    divisor = np.where(b == 0, 1, b)
    is_edge = (b == -1) & (a == _LONG_MIN)
    with np.errstate(over="ignore"):
        return np.asarray(((b != 0) & (wrapped // np.where(is_edge, 1, divisor) != a)) | is_edge)


def _bad_zero(left: Value, right: Value) -> Bools:
    """Returns where a number other than null is divided by zero."""
    rows = rows_of(left, right)
    have_values = both_there(left, right)
    is_zero = np.broadcast_to(numbers(right) == 0, (rows,))
    return np.array(is_zero if have_values is None else is_zero & have_values)


def _divide(call: Call, left: Value, right: Value) -> Result:
    bad = _bad_zero(left, right)
    with np.errstate(all="ignore"):
        quotients = np.asarray(numbers(left)) / np.where(numbers(right) == 0, 1.0, numbers(right))
    return failing(from_numbers(quotients, call.type, left, right), bad, DIVIDE_BY_ZERO)


def _remainder(call: Call, left: Value, right: Value) -> Result:
    """The remainder with the sign of the dividend; for PMOD one that is not negative."""
    bad = _bad_zero(left, right)
    with np.errstate(all="ignore"):
        width = call.type.to_pandas_dtype()
        a, b = np.asarray(numbers(left), width), np.asarray(numbers(right), width)
        divisor = np.where(b == 0, np.ones(1, width), b)
        remainders = np.fmod(a, divisor)
        if call.function == "Pmod":
            remainders = np.where(remainders < 0, np.fmod(remainders + divisor, divisor), remainders).astype(width)
    return failing(from_numbers(remainders, call.type, left, right), bad, REMAINDER_BY_ZERO)


def _negate(call: Call, value: pa.Array) -> Result:
    if pa.types.is_integer(value.type):
        bad = numbers(value) == np.iinfo(value.type.to_pandas_dtype()).min
        negated = pc.negate(value) if call.function == "UnaryMinus" else pc.abs(value)
        return failing(negated, bad & np.asarray(value.is_valid()), ARITHMETIC_OVERFLOW)
    return Result(pc.negate(value) if call.function == "UnaryMinus" else pc.abs(value))


def _round(call: Call, value: pa.Array, _: pa.Scalar) -> Result:
    return narrow(value, call.type) if pa.types.is_decimal(value.type) else Result(value)


def constants_last(call: Call) -> Call:
    """Returns a sum, or a product, of integers with its constants computed by themselves and last, as Spark's optimizer has
    it (`ReorderAssociativeOperator`): it decides what overflows on the way.
    """
    operands = (
        _operands(call, call.function)
        if call.function in ("Add", "Multiply") and pa.types.is_integer(call.type)
        else []
    )
    constants = [operand for operand in operands if is_constant(operand)]
    others = [operand for operand in operands if not is_constant(operand)]
    if len(operands) < 3 or not constants or not others:
        return call

    def join(left: Expression, right: Expression) -> Expression:
        return replace(call, arguments=(left, right))

    return replace(call, arguments=(reduce(join, others), reduce(join, constants)))


def _operands(expression: Expression, function: str) -> list[Expression]:
    """Returns what a chain of one function, such as a + b + 1, is made of; as in Spark, also where a part of it is `try_add`
    and fails then as the whole does.
    """
    if not isinstance(expression, Call) or expression.function != function:
        return [expression]
    return [operand for argument in expression.arguments for operand in _operands(argument, function)]


def _fits(call: Call) -> str:
    """Exact decimals have at most the 76 digits of Arrow's widest."""
    if not pa.types.is_decimal(call.type):
        return ""
    left, right = (argument.type for argument in call.arguments)
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    digits = left.precision + right.precision if call.function == "Multiply" else whole + scale
    return "" if digits < WIDEST - 1 else f"its exact result may have more than {WIDEST - 2} digits"


def _is_short(call: Call) -> str:
    """Spark negates decimals with 34 digits (java.math.MathContext.DECIMAL128), and rounds longer ones."""
    kind = call.arguments[0].type
    is_long = pa.types.is_decimal(kind) and kind.precision > _DIGITS_OF_NEGATION
    return f"Spark rounds numbers of more than {_DIGITS_OF_NEGATION} digits" if is_long else ""


def _scale_is_positive(call: Call) -> str:
    scale = getattr(call.arguments[1], "value", None)
    return "" if scale is not None and scale >= 0 else "it rounds before the point"


_BOTH = ("int, int", "long, long", "double, double")
_NUMBERS = ("int", "long", "double", "decimal")
KERNELS = {
    **{name: Kernel((*_BOTH, "decimal, decimal"), _arithmetic, objection=_fits) for name in _PLAIN},
    "Divide": Kernel(("double, double",), _divide, order=(1, 0)),
    "Remainder": Kernel(_BOTH, _remainder, order=(1, 0)),
    "Pmod": Kernel(_BOTH, _remainder, order=(1, 0)),
    "UnaryMinus": Kernel(_NUMBERS, _negate, objection=_is_short),
    "UnaryPositive": Kernel(_NUMBERS, lambda _, value: value),
    "Abs": Kernel(_NUMBERS, _negate, objection=_is_short),
    "Round": Kernel(("int, int!", "long, int!", "decimal, int!"), _round, objection=_scale_is_positive),
}
