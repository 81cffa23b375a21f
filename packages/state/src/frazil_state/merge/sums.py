"""Sums that no order of their values can overflow: numbers are added in limbs of 32 bits, each in an int64.

Floats are added as float64 instead, and overflow to infinities, as in Spark.

The sum of `bigint` values in 64 bits fails on any prefix that is too large, though the total fits. Limbs add up two
thousand million values before a limb is full, and whether the total fits its column is decided at the end. Averages are
made of the sum and the count that a row has beside them, as often as it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.schema.arrow import Bools, Ints, unsliced

_BITS = 32
_MASK = 2**_BITS - 1
_OF_INTEGERS, _OF_DECIMALS = 2, 4
AVERAGE = "avg"
"""The function of a column whose values are the average of a column with its sum and one with its count."""
SUM, COUNT = "_sum", "_count"
"""What the names of these columns have behind that of the average."""
_CONTEXT = Context(prec=80, rounding=ROUND_HALF_UP)


def limb_count(kind: pa.DataType) -> int:
    """Returns the number of arrays that hold the sums of values of this type: one of floats, which are added as float64."""
    if pa.types.is_decimal(kind):
        return _OF_DECIMALS
    return 1 if pa.types.is_floating(kind) else _OF_INTEGERS


def zero(kind: pa.DataType) -> pa.Scalar:
    """Returns 0 of a type that is summed. An int64 casts to no decimal with fewer than 19 digits before its point."""
    return pa.scalar(Decimal(0) if pa.types.is_decimal(kind) else 0, kind)


def split(column: pa.Array, signs: Ints | None = None) -> list[pa.Array]:
    """Returns numbers as limbs, the lowest first, each int64 `(n_rows,)`, or float64 for floats; null for null. signs: 1
    for a value to be added and -1 for one to be subtracted; None: all are added.
    """
    is_null = pa.array(np.asarray(column.is_null())) if column.null_count else None
    if pa.types.is_floating(column.type):
        values = _numbers(column.cast(pa.float64()))
        return [_masked(values if signs is None else values * signs, is_null)]
    if pa.types.is_decimal(column.type):
        # Each 128-bit number is two words, the lower one first; zero for null.
        plain = unsliced(column)
        words = np.frombuffer(plain.buffers()[1], np.int64, 2 * len(plain)).reshape(-1, 2)
        there = np.asarray(plain.is_valid())
        low, high = np.where(there, words[:, 0], 0).view(np.uint64), np.where(there, words[:, 1], 0)
        limbs = [low & np.uint64(_MASK), low >> np.uint64(_BITS), high & _MASK, high >> _BITS]
    else:
        numbers = _numbers(column.cast(pa.int64()))
        limbs = [numbers & _MASK, numbers >> _BITS]
    signed = (limb.astype(np.int64, copy=False) for limb in limbs)
    return [_masked(limb if signs is None else limb * signs, is_null) for limb in signed]


def add(limbs: Sequence[pa.Array], codes: Ints, counted: Bools, count: int) -> list[pa.Array]:
    """Returns the sums of limbs by group; null for a group without a value. codes: the group of each row, below `count`.
    counted: which rows are added.
    """
    rows = np.flatnonzero(counted & np.asarray(limbs[0].is_valid()))
    groups = codes[rows]
    has_value = np.zeros(count, np.bool_)
    has_value[groups] = True
    totals = []
    for limb in limbs:
        values = _numbers(limb)
        total = np.zeros(count, values.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            np.add.at(total, groups, values[rows])
        totals.append(total)
    # What exceeds 32 bits of a limb moves into the next one.
    for number in range(len(totals) - 1):
        totals[number + 1][:] += totals[number] >> _BITS
        totals[number][:] &= _MASK
    is_null = None if has_value.all() else pa.array(~has_value)
    return [_masked(total, is_null) for total in totals]


def join(limbs: Sequence[pa.Array], kind: pa.DataType) -> tuple[pa.Array, Bools]:
    """Returns the sums as values of a type, and which do not fit it, bool `(n_rows,)`; those are null."""
    is_null: Bools = np.asarray(limbs[0].is_null())
    numbers = [_numbers(limb) for limb in limbs]
    if pa.types.is_floating(kind):
        with np.errstate(over="ignore"):
            values = numbers[0].astype(np.float32) if pa.types.is_float32(kind) else numbers[0]
        return _masked(values, pa.array(is_null)), np.zeros(is_null.size, np.bool_)
    is_over = ~is_null & ~_is_32_bits(numbers[-1])
    numbers[-1] = np.where(is_over, 0, numbers[-1])
    if pa.types.is_decimal(kind):
        sums = _decimals(numbers, kind)
        most = pa.scalar(Decimal(10**kind.precision - 1), pa.decimal128(38, 0))
        is_over |= ~is_null & np.asarray(pc.greater(pc.abs(_decimals(numbers, pa.decimal128(38, 0))), most))
    else:
        sums = pa.array((numbers[1] << _BITS) | numbers[0])
        if pa.types.is_int32(kind):
            is_over |= ~is_null & ~_is_32_bits(np.asarray(sums))
    return pc.if_else(pa.array(is_null | is_over), pa.scalar(None, sums.type), sums).cast(kind), is_over


def _is_32_bits(numbers: Ints) -> Bools:
    return np.asarray((numbers >= -(2**31)) & (numbers < 2**31), np.bool_)


def _decimals(limbs: Sequence[Ints], kind: pa.DataType) -> pa.Array:
    words = np.empty((limbs[0].size, 2), np.int64)
    words[:, 0] = (limbs[1] << _BITS) | limbs[0]
    words[:, 1] = (limbs[3] << _BITS) | limbs[2]
    return pa.Array.from_buffers(kind, limbs[0].size, [None, pa.py_buffer(words)])


def _numbers(column: pa.Array) -> np.ndarray:
    """Returns numbers, 0 for null."""
    return np.asarray(column.fill_null(0) if column.null_count else column)


def _masked(values: np.ndarray, is_null: pa.Array | None) -> pa.Array:
    """Returns numbers with nulls; without one, as they are in memory."""
    return pa.array(values) if is_null is None else pa.array(values, mask=np.asarray(is_null))


def average(sums: pa.Array, counts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Bools]:
    """Returns the averages as values of a type, and which do not fit it, bool `(n_rows,)`; null for these, and without a
    value. Decimals are rounded half up, as Spark does.
    """
    numbers = np.asarray(counts.fill_null(0))
    has_none = (numbers == 0) | np.asarray(sums.is_null())
    if not pa.types.is_decimal(kind):
        totals = np.asarray(sums.cast(pa.float64(), safe=False).fill_null(0.0))  # Beyond 2**53 the nearest double.
        return pa.array(totals / np.where(has_none, 1, numbers), mask=has_none), np.zeros(has_none.size, np.bool_)
    step, end = Decimal(1).scaleb(-kind.scale), Decimal(1).scaleb(kind.precision - kind.scale)
    values = [
        None if is_none else _CONTEXT.divide(total, Decimal(number)).quantize(step, context=_CONTEXT)
        for total, number, is_none in zip(sums.to_pylist(), numbers.tolist(), has_none.tolist(), strict=True)
    ]
    is_over = [value is not None and not -end < value < end for value in values]
    fitting = [None if too_large else value for value, too_large in zip(values, is_over, strict=True)]
    return pa.array(fitting, kind), np.array(is_over, np.bool_)
