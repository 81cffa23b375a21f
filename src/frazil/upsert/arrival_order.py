"""Which of a key's changes comes after which, where the place in the source's log does not tell.

A row of a snapshot has the place at which its source was read, and a transaction that was open then has older ones. Its
changes come behind the row, in the same partition, and are newer. So what comes behind such a row there is never late
against it; nor against a delete, of which a table keeps no trace. All else is in the order of places.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from frazil.decode.memory import COMPILED

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class ArrivalOrder:
    """Changes while they are put in order. codes: a number for each key; partition_codes: for each partition; sequence: their order of
    arrival; ranks: in the order of places. reads: rows of snapshots. opens: whatever comes behind them in their partition is
    newer. clears: what was before them no longer counts.
    """

    codes: Ints
    partition_codes: Ints
    sequence: Ints
    ranks: Ints
    reads: Bools
    opens: Bools
    clears: Bools

    def ranks_by_arrival(self) -> Ints | None:
        """Ranks by which the later ones of a key are greater, and of equal ones the one that arrives later; None where those
        by places will do.
        """
        if not self.opens.any():
            return None
        order = np.lexsort((self.sequence, self.codes))
        codes, partition_codes, ranks = self.codes[order], self.partition_codes[order], self.ranks[order]
        begins = np.ones(order.size, np.bool_)
        begins[1:] = (codes[1:] != codes[:-1]) | (partition_codes[1:] != partition_codes[:-1])
        if not (~begins[1:] & (ranks[1:] < ranks[:-1])).any():
            return None
        heights, turns, own = np.empty(order.size, np.int64), np.empty(order.size, np.int64), ranks.copy()
        kinds = (self.opens.astype(np.int64) + self.reads)[order]
        _walk(begins, ranks, kinds, self.clears[order], heights, turns, own)
        by_rank = np.lexsort((own, turns, heights))
        steps = np.zeros(order.size, np.int64)
        for one in (heights, turns, own):
            steps[1:] |= one[by_rank][1:] != one[by_rank][:-1]
        found = np.empty(order.size, np.int64)
        found[order[by_rank]] = np.cumsum(steps)
        return found


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _walk(begins: Bools, ranks: Ints, kinds: Ints, clears: Bools, heights: Ints, turns: Ints, own: Ints) -> None:
    """Applies the changes of each key and partition one after the other, to a table that has nothing of them. kinds: 2 for a
    row of a snapshot, 1 for others that open.

    One that is taken and opens begins another turn, above all that was there before; the ranks of the others that are taken
    count inside their turn, and beyond it where they are greater than all before. What is late stays at its own rank, where
    it may be what opened the turn, told again: what came behind that is above both. A row of a snapshot that is late is
    always told again: where it was not told here before, that was before all that is here; what comes behind it is above.
    """
    state, floor, top, turn, is_open, low, read, bottom = -1, -1, -1, 0, True, -1, -1, -1
    for n in range(ranks.size):
        if begins[n] or clears[n]:
            state, floor, top, turn, is_open, low, read, bottom = -1, -1, -1, 0, True, ranks[n], -1, -1
        is_taken = is_open or ranks[n] >= state
        if is_taken:
            state, is_open = ranks[n], kinds[n] > 0
        if kinds[n]:
            own[n] = -1
        if is_taken and kinds[n]:
            turn += 1
            floor = max(top, ranks[n])
        heights[n], turns[n] = max(ranks[n], floor if is_taken else bottom), turn
        if kinds[n] > 1 and not is_taken and read < ranks[n]:
            heights[n], turns[n] = min(low, ranks[n]), -1
            bottom = max(bottom, heights[n])
        if kinds[n] > 1:
            read = max(read, ranks[n])
        low, top = min(low, heights[n]), max(top, heights[n])
