"""Which of the rows of one id are kept: the first of them, and each that is far enough from every row that is kept."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from frazil.raw_memory import COMPILED
from frazil.schema.arrow import Bools, Ints

UNKNOWN_TIME = np.iinfo(np.int64).min
"""The time of a row without a timestamp, which is at no distance from any other."""


def find_duplicates(codes: Ints, times: Ints, are_stored: Bools, within: int | None) -> Bools:
    """Returns which rows are duplicates, bool `(n_rows,)`, of rows in the order of their records, behind those that the
    table has. codes: a number per distinct id. times: in any unit. are_stored: the rows that the table has, which are kept
    whatever their distance. within: the greatest distance between a duplicate and the row that is kept; None: any.

    A row is compared with every row of its id that is kept, not with duplicates: a record that is repeated each hour is kept
    again once `within` has passed since it was kept.
    """
    are_duplicates = np.zeros(codes.size, np.bool_)
    # Most ids occur once.
    rows = np.flatnonzero(np.bincount(codes)[codes] > 1)
    order = rows[np.argsort(codes[rows], kind="stable")]
    are_duplicates[order] = _walk(codes[order], times[order], are_stored[order], -1 if within is None else within)
    return are_duplicates


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _walk(codes: Ints, times: Ints, are_stored: NDArray[np.bool_], within: int) -> Bools:
    duplicates = np.zeros(codes.size, np.bool_)
    kept = np.empty(codes.size, np.int64)
    count = 0
    for n in range(codes.size):
        if n == 0 or codes[n] != codes[n - 1]:
            count = 0
        is_near = False
        if not are_stored[n]:
            for k in range(count):
                if (
                    within < 0
                    or times[n] == np.iinfo(np.int64).min
                    or kept[k] == np.iinfo(np.int64).min
                    or abs(times[n] - kept[k]) <= within
                ):
                    is_near = True
                    break
        duplicates[n] = is_near
        if not is_near:
            kept[count] = times[n]
            count += 1
    return duplicates
