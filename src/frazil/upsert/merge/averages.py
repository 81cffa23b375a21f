"""Averages of groups: made of the sum and the count that the row has beside them, as often as it is written."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np
import pyarrow as pa

from frazil.schema.arrow import Bools

AVERAGE = "avg"
"""The function of a column whose values are the average of a column with its sum and one with its count."""
SUM, COUNT = "_sum", "_count"
"""What the names of these columns have behind that of the average."""
_CONTEXT = Context(prec=80, rounding=ROUND_HALF_UP)


def average(sums: pa.Array, counts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Bools]:
    """Returns the averages as values of a type, and which do not fit it, bool `(n_rows,)`; null for these, and without a
    value. Decimals are rounded half up, as Spark does.
    """
    numbers = np.asarray(counts.fill_null(0))
    has_none = (numbers == 0) | np.asarray(sums.is_null())
    if not pa.types.is_decimal(kind):
        totals = np.asarray(sums.cast(pa.float64()).fill_null(0.0))
        return pa.array(totals / np.where(has_none, 1, numbers), mask=has_none), np.zeros(has_none.size, np.bool_)
    step, end = Decimal(1).scaleb(-kind.scale), Decimal(1).scaleb(kind.precision - kind.scale)
    values = [
        None if is_none else _CONTEXT.divide(total, Decimal(number)).quantize(step, context=_CONTEXT)
        for total, number, is_none in zip(sums.to_pylist(), numbers.tolist(), has_none.tolist(), strict=True)
    ]
    is_over = [value is not None and not -end < value < end for value in values]
    fitting = [None if too_large else value for value, too_large in zip(values, is_over, strict=True)]
    return pa.array(fitting, kind), np.array(is_over, np.bool_)
