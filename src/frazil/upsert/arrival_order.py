"""The order of changes of one key where the position in the source's log does not decide.

A row of an initial snapshot carries the position at which the snapshot was read. A transaction that was open at that
time has older positions, and its changes arrive behind the row, in the same partition; they are newer than the row. A
change behind a snapshot row of the same partition is therefore never late against that row. The same holds for a change
behind a delete, because a table keeps no trace of a deleted row. All other changes are ordered by their positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from frazil.raw_memory import COMPILED

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class ArrivalOrder:
    """Changes to be ranked, as columns of equal length `(n_changes,)`."""

    #: A number per distinct key.
    codes: Ints
    #: A number per partition of each topic.
    partition_codes: Ints
    #: The rank of the change by topic, partition, offset and step.
    sequence: Ints
    #: The rank of the change by its position in the source's log.
    ranks: Ints
    #: Whether the change is a row of an initial snapshot.
    reads: Bools
    #: Whether every change behind this one in its partition is newer: rows of snapshots, and deletes.
    opens: Bools
    #: Whether changes before this one no longer count: deletes without an ordering value.
    clears: Bools

    def ranks_by_arrival(self) -> Ints | None:
        """Returns ranks, int64 `(n_changes,)`: the newer of two changes of a key has the greater rank; of equal ranks
        the change that arrived later is newer. None where the ranks by position give the same order.
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
        for numbers in (heights, turns, own):
            steps[1:] |= numbers[by_rank][1:] != numbers[by_rank][:-1]
        arrival_ranks = np.empty(order.size, np.int64)
        arrival_ranks[order[by_rank]] = np.cumsum(steps)
        return arrival_ranks


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _walk(begins: Bools, ranks: Ints, kinds: Ints, clears: Bools, heights: Ints, turns: Ints, own: Ints) -> None:
    """Fills `heights`, `turns` and `own`, which together rank the changes, by applying the changes of each key and
    partition in order of arrival.

    `kinds` is 2 for a row of a snapshot and 1 for another change that opens. An accepted change that opens begins a new
    turn, ranked above everything before it. The ranks of the other accepted changes count inside their turn, and beyond
    it where they exceed all ranks before. A late change keeps its own rank; it may be a repetition of the change that
    opened the turn, and then the changes behind the repetition are above both. A late snapshot row is always a
    repetition: if its first copy is not among these changes, that copy preceded all of them, and the changes behind the
    repetition are above them.
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
