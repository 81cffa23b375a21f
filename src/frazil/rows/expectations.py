"""Conditions that rows of a query are expected to meet, and the records that are refused or dropped because of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from frazil.decode.columns import Mismatch
from frazil.error_classes import ErrorClass
from frazil.process.evaluate import Unmet
from frazil.schema.arrow import Bools


def refuse_unmet(unmet: Iterable[Unmet], refused: Bools, limit: int) -> list[Mismatch]:
    """Marks the records in `refused` that do not meet an expectation which refuses them; returns their mismatches."""
    mismatches: dict[int, Mismatch] = {}
    for failure in unmet:
        if failure.expectation.is_refusing:
            refused |= failure.records
            for row, values in failure.rows.items():
                mismatches.setdefault(row, Mismatch(row, "", ErrorClass.FAILED_EXPECTATION, reason_of(failure, values)))
    return [mismatches[row] for row in sorted(mismatches)[:limit]]


def reason_of(unmet: Unmet, values: str) -> str:
    """Returns why a record with these values does not meet an expectation."""
    expectation = unmet.expectation
    return f"the record does not meet {expectation.name} ({expectation.text})" + (f": {values}" if values else "")


def dropped_by(unmet: Iterable[Unmet]) -> dict[str, Bools]:
    """Returns the records that expectations drop, each by the first that does."""
    dropped: dict[str, Bools] = {}
    for failure in unmet:
        if failure.expectation.action == "drop":
            dropped[failure.expectation.name] = failure.records & ~are_any(dropped.values(), failure.records.size)
    return dropped


def are_any(masks: Iterable[Bools], count: int) -> Bools:
    """Returns which of `count` records one of the masks has."""
    are_set: Bools = np.logical_or.reduce([np.zeros(count, np.bool_), *masks])
    return are_set
