"""Intermediate values of reading changes: opened envelopes, the planned changes, and the bad records found so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import NestedField

from frazil.decode.columns import Decoded, Fault, Mismatch, first_mismatches
from frazil.decode.settings import Envelope
from frazil.schema.arrow import Bools, Ints, Records
from frazil.write.target import TableTarget

CREATE, UPDATE, REMOVE, SNAPSHOT, EMPTY = range(5)
OPERATIONS = ("c", "u", "d", "r", "t")
"""The values of the column `_op`, by the code of the operation."""


@dataclass(frozen=True)
class Opened:
    """Envelopes of a stretch, opened to columns."""

    #: The result per record, without columns of the table.
    decoded: Decoded
    #: The kind of each record, a code of `cdc.envelope`.
    record_kind: NDArray[np.int32]
    #: The operation of each change, an index of OPERATIONS.
    op: Ints
    #: The operation as the record has it.
    op_texts: pa.Array
    #: The row after the change, a struct.
    after: pa.Array
    #: The row before the change, a struct; None where no record has it.
    before: pa.Array | None
    #: By position of the row's field, which records did not send its value.
    unsent: Mapping[int, Bools]
    #: Other values of the envelope, by name.
    facts: Mapping[str, pa.Array]
    #: The record of each row, of messages that have several rows; None where each record has one.
    owner: NDArray[np.int32] | None = None

    @property
    def has_after(self) -> Bools:
        """Which records have the row after the change, or the row itself."""
        return np.asarray(self.after.is_valid())

    @property
    def has_before(self) -> Bools:
        """Which records have the row before the change."""
        return np.zeros(self.record_kind.size, np.bool_) if self.before is None else np.asarray(self.before.is_valid())


@dataclass(frozen=True)
class Plan:
    """The planned changes."""

    #: The record of each change: shape (n_changes,).
    records: Ints
    #: The operation of each change.
    ops: NDArray[np.int8]
    #: Which changes take the image after the change.
    is_after: Bools
    #: Which changes take the image before the change.
    is_before: Bools

    def only(self, kept: Bools) -> Plan:
        """Returns the changes that `kept` marks."""
        return Plan(self.records[kept], self.ops[kept], self.is_after[kept], self.is_before[kept])


class BadRecords:
    """The bad records of a stretch found so far. refused: which records are bad; missing: ids of schemas that must be
    fetched.
    """

    def __init__(self, opened: Opened, limit: int) -> None:
        self.refused = opened.decoded.refused.copy()
        self.mismatches = list(opened.decoded.mismatches)
        self.missing: frozenset[str] = frozenset()
        self._limit = limit

    def miss(self, missing: frozenset[str]) -> None:
        """Adds ids of schemas that are missing."""
        self.missing |= missing

    def refuse(self, bad: Bools, fault: Fault, path: str = "") -> None:
        """Marks these records as bad; a record that is bad already keeps its first reason."""
        rows = np.flatnonzero(bad & ~self.refused)
        self.mismatches += [Mismatch(row, path, fault.kind, fault.message) for row in rows[: self._limit].tolist()]
        self.refused[rows] = True

    def take(self, decoded: Decoded, records: Ints) -> None:
        """Marks the records of refused changes as bad."""
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
        """Returns the mismatches to keep, in the order of the records."""
        return first_mismatches(self.mismatches, self._limit)


@dataclass(frozen=True)
class ChangeContext:
    """The inputs from which changes are made."""

    target: TableTarget
    envelope: Envelope
    opened: Opened
    #: The fields of the row in the images.
    row: Sequence[NestedField]
    #: The records' columns, as read from Kafka.
    records: Records
    #: The bad records found so far.
    check: BadRecords
