"""What changes are made of: opened envelopes, the plan of the changes, and the records that turn out to be bad ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import NestedField

from frazil.decode.columns import Decoded, Mismatch
from frazil.decode.envelope import Envelope
from frazil.write.target import TableTarget

Records = Mapping[str, pa.Array]
Bools = NDArray[np.bool_]
Rows = NDArray[np.int64]

CREATE, UPDATE, REMOVE, SNAPSHOT, EMPTY = range(5)
WORDS = ("c", "u", "d", "r", "t")
"""Operations by code, and how the column `_op` spells them."""


@dataclass(frozen=True)
class Opened:
    """Envelopes of a stretch: what each is and does, and the images that it has. owner: of messages that have several rows,
    and what is opened are these rows, the record of each.
    """

    decoded: Decoded
    note: NDArray[np.int32]
    op: NDArray[np.int64]
    words: pa.Array
    after: pa.Array
    before: pa.Array | None
    unsent: Mapping[int, Bools]
    facts: Mapping[str, pa.Array]
    owner: NDArray[np.int32] | None = None

    @property
    def has_after(self) -> Bools:
        """Which have the row after the change, or the row itself."""
        return np.asarray(self.after.is_valid())

    @property
    def has_before(self) -> Bools:
        """Which have the row before the change."""
        return np.zeros(self.note.size, np.bool_) if self.before is None else np.asarray(self.before.is_valid())


@dataclass(frozen=True)
class Plan:
    """The changes to be: of each its record, what it does, and where its image is: `after`, `before`, or neither."""

    records: Rows
    ops: NDArray[np.int8]
    is_after: Bools
    is_before: Bools

    def only(self, kept: Bools) -> Plan:
        """The changes that `kept` marks."""
        return Plan(self.records[kept], self.ops[kept], self.is_after[kept], self.is_before[kept])


class Check:
    """Bad records of a stretch, as they are found. refused: all of them. missing: ids of schemas that more takes."""

    def __init__(self, opened: Opened, limit: int) -> None:
        self.refused = opened.decoded.refused.copy()
        self.mismatches = list(opened.decoded.mismatches)
        self.missing: frozenset[str] = frozenset()
        self._limit = limit

    def miss(self, missing: frozenset[str]) -> None:
        """These schemas must be there first."""
        self.missing |= missing

    def refuse(self, bad: Bools, kind: str, reason: str, path: str = "") -> None:
        """These records are bad ones; of those that are already, nothing more is said."""
        rows = np.flatnonzero(bad & ~self.refused)
        self.mismatches += [Mismatch(row, path, kind, reason) for row in rows[: self._limit].tolist()]
        self.refused[rows] = True

    def take(self, decoded: Decoded, records: Rows) -> None:
        """What was wrong with changes is wrong with their records."""
        bad = np.zeros(self.refused.size, np.bool_)
        bad[records[decoded.refused]] = True
        new = bad & ~self.refused
        known = set()
        for mismatch in decoded.mismatches:
            row = int(records[mismatch.row])
            if new[row] and (row, mismatch.path) not in known:
                known.add((row, mismatch.path))
                self.mismatches.append(replace(mismatch, row=row))
        self.refused |= bad

    def first(self) -> list[Mismatch]:
        """As many as are noted, in the order of the records."""
        return sorted(self.mismatches, key=lambda mismatch: mismatch.row)[: self._limit]


@dataclass(frozen=True)
class Making:
    """What changes are made of."""

    target: TableTarget
    envelope: Envelope
    opened: Opened
    row: Sequence[NestedField]
    records: Records
    check: Check
