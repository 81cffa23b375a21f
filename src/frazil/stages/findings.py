"""Records that stages find in rows by a name: they are counted, and some are refused or dropped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from frazil.decode.columns import Mismatch
from frazil.error_classes import ErrorClass
from frazil.queries.program import Program
from frazil.schema.arrow import Bools, Rows


@dataclass(frozen=True)
class QueriedRows:
    """Rows that a query makes of records, in its own types, before any of them is dropped."""

    program: Program
    #: One array per column of the program's output.
    columns: Sequence[pa.Array]
    #: The record of each row, ascending, `(n_rows,)`.
    records: Rows
    #: The number of records.
    count: int
    #: By field of the records, the rows whose change does not have its value: a row then keeps the value of the row that it
    #: replaces, which was judged when it came.
    unsent: Mapping[str, Bools]


@dataclass(frozen=True)
class StageFinding:
    """Records that a stage finds by a name."""

    name: str
    #: Which records: bool of shape (n_records,).
    records: Bools
    #: Why, by record: of each that is refused; otherwise of the first.
    reasons: Mapping[int, str]
    error_class: ErrorClass
    #: What becomes of them: rows, nothing, or dead letters.
    outcome: Literal["row", "drop", "refuse"]


def refuse_found(findings: Iterable[StageFinding], refused: Bools, limit: int) -> list[Mismatch]:
    """Marks the records in `refused` that findings refuse; returns their mismatches."""
    mismatches: dict[int, Mismatch] = {}
    for finding in findings:
        if finding.outcome == "refuse":
            refused |= finding.records
            for row, reason in finding.reasons.items():
                mismatches.setdefault(row, Mismatch(row, "", finding.error_class, reason))
    return [mismatches[row] for row in sorted(mismatches)[:limit]]


def dropped_by(findings: Iterable[StageFinding]) -> dict[str, Bools]:
    """Returns the records that findings drop, each by the first that does."""
    dropped: dict[str, Bools] = {}
    for finding in findings:
        if finding.outcome == "drop":
            dropped[finding.name] = finding.records & ~are_any(dropped.values(), finding.records.size)
    return dropped


def are_any(masks: Iterable[Bools], count: int) -> Bools:
    """Returns which of `count` records one of the masks has."""
    are_set: Bools = np.logical_or.reduce([np.zeros(count, np.bool_), *masks])
    return are_set
