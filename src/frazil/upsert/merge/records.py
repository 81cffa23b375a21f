"""Records whose values cannot be merged: they are bad records before anything is added to a row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.decode.columns import Mismatch
from frazil.error_classes import ErrorClass
from frazil.schema.arrow import Bools
from frazil.stages.changes import Changes, ReadRecords
from frazil.upsert.merge.functions import ADDING, MergedColumn, merged_columns
from frazil.upsert.merge.quantiles import QUANTILES, lack_number
from frazil.upsert.records.read_changes import refuse
from frazil.write.target import TableTarget

_UNKNOWN = "the change does not have the value of {}, which cannot be merged without it"
_NO_NUMBER = "the bytes of {} are not a number as text, of which a sketch of quantiles is made"
_COMPARED = ("min", "max")


def refuse_unmergeable(target: TableTarget, read: ReadRecords, changes: Changes) -> Changes:
    """Returns the changes of a table whose rows are merged, with the records refused that have NaN where values are added
    or compared, an infinity where they are added, bytes that are not a number where quantiles are, or a value that the
    source did not send.
    """
    if target.changes is None or not target.changes.merge or not changes.ops.size or changes.must_read_again:
        return changes
    mismatches: list[Mismatch] = []
    columns = {column.name: column for column in merged_columns(target)}
    for n, (field, values) in enumerate(zip(target.fields, changes.columns, strict=True)):
        if n in changes.unavailable:
            reason = _UNKNOWN.format(field.name)
            lacks = changes.unavailable[n]
            mismatches += refuse(changes, lacks, field.name, ErrorClass.UNAVAILABLE_VALUE, reason, read.limit)
        column = columns.get(field.name)
        if column is not None and column.function == QUANTILES:
            bad, reason = lack_number(values), _NO_NUMBER.format(field.name)
            mismatches += refuse(changes, bad, field.name, ErrorClass.TYPE_MISMATCH, reason, read.limit)
        if column is not None and pa.types.is_floating(values.type):
            bad, reason = _unfit(column, values)
            mismatches += refuse(changes, bad, field.name, ErrorClass.OUT_OF_RANGE, reason, read.limit)
    if not mismatches:
        return changes
    return replace(changes, decoded=changes.decoded.refusing(changes.decoded.refused, mismatches, read.limit))


def _unfit(column: MergedColumn, values: pa.Array) -> tuple[Bools, str]:
    """Returns which values a function cannot merge, bool `(n_values,)`, and why."""
    if column.function in ADDING:
        is_finite = np.asarray(pc.fill_null(pc.is_finite(values), True))
        return ~is_finite, f"NaN and infinite values of {column.name} cannot be added: every later sum would be NaN too"
    if column.function in _COMPARED:
        is_nan = np.asarray(pc.fill_null(pc.is_nan(values), False))
        return is_nan, f"NaN of {column.name} is neither less nor greater than other values"
    return np.zeros(len(values), np.bool_), ""
