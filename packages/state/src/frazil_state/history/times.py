"""Times of versions: the columns that show them, and their forms as arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from frazil.schema.arrow import Ints

TIME = pa.timestamp("us", tz="UTC")
"""The type of the columns with times of versions."""


def as_times(column: pa.Array) -> pa.Array | None:
    """Returns dates or times as moments in microseconds, those without a zone in UTC; None for a column of another type."""
    if not (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
        return None
    local = column.cast(pa.timestamp("us", tz=getattr(column.type, "tz", None)), safe=False)
    return local.cast(pa.int64()).cast(TIME)


def micros(times: pa.Array, default: int) -> Ints:
    """Returns times as microseconds since 1970, int64 `(n_times,)`. default: in place of null."""
    return np.asarray(times.cast(pa.int64()).fill_null(default))
