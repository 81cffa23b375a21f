"""The windows that a time is in, as Spark's `window` makes them: aligned to 1970-01-01 UTC, their end excluded.

In a session each time has a window of its own, and windows that touch are joined (`frazil_state.merge.sessions`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from frazil.queries.program import Windows
from frazil.schema.arrow import Bools, Ints

NO_TIME = "NO_EVENT_TIME"
"""The error class of a record without a time that can be in a window."""
_FARTHEST_US = 2**61


def windows_of(operator: Windows, times: pa.Array) -> tuple[Ints, dict[str, pa.Array]]:
    """Returns the row of each window, ascending, int64 `(n_windows,)`, and the columns of the windows' bounds. A time that
    is null, or so far away that a bound has no number, is in none.
    """
    micros = np.asarray(times.cast(pa.int64()).fill_null(_FARTHEST_US + 1))
    rows = np.flatnonzero(np.abs(micros) <= _FARTHEST_US)
    taken = micros[rows]
    if not operator.slide_us:
        return rows, _bounds_of(operator, taken, times.type)
    last = taken - np.mod(taken - operator.offset_us, operator.slide_us)
    most = -(-operator.size_us // operator.slide_us)
    starts = last[:, None] - np.arange(most)[::-1] * operator.slide_us
    is_in = starts + operator.size_us > taken[:, None]
    chosen = starts[is_in]
    return np.repeat(rows, is_in.sum(axis=1)), _bounds_of(operator, chosen, times.type)


def _bounds_of(operator: Windows, starts: Ints, kind: pa.DataType) -> dict[str, pa.Array]:
    columns = {operator.start: starts, operator.end: starts + operator.size_us}
    return {name: pa.array(values).cast(kind) for name, values in columns.items() if name}


def spread_bounds(bounds: Mapping[str, pa.Array], has_window: Bools) -> dict[str, pa.Array]:
    """Returns the columns of bounds with null for rows without a window. has_window: of each row, bool `(n_rows,)`."""
    places = np.cumsum(has_window) - 1
    return {name: column.take(pa.array(places, mask=~has_window)) for name, column in bounds.items()}
