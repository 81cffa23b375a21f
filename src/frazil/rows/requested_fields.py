"""The schema changes that a table's rows need, without those that only bad records would bring.

A record is found bad in many places: its text, a value, its envelope, its key. Some of these are checked after its
fields were compared with the table's columns. So where a batch has bad records and requests changes, it is read again
without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.decode.columns import Decoded
from frazil.schema.arrow import pick
from frazil.schema.evolve import NameConflict, extend_schema
from frazil.schema.projection import extend_shaped
from frazil.write.target import TableTarget

Records = Mapping[str, pa.Array]
ReadRows = Callable[[TableTarget, Records], Decoded]
"""Reads records as rows of a table, for the requested fields alone."""
_MAX_SINGLE_READS = 32


def fields_requested_by_rows(target: TableTarget, records: Records, found: Decoded, read_rows: ReadRows) -> Decoded:
    """Returns the result with only the schema changes of records that become rows.

    A record that needs a change to become a row, such as a wider type, is no bad record. While a table has no columns
    and no record is a row, the changes are those of the bad records: dead letters need a table.
    """
    # The fields that feed some columns are not known yet.
    is_waiting = target.shaping is not None and bool(target.layout.unbound)
    if found.missing or is_waiting or not (found.requested_fields or found.made_optional):
        return found
    try:
        # Whether a record has a key is not known while the table lacks the key's column.
        is_found_later = target.changes is not None and read_rows(_with_changes(target, found), records).refused.any()
        good = _of_good_records(target, records, found, read_rows) if found.refused.any() or is_found_later else found
    except NameConflict:  # The evolution of the table reports the conflict.
        return found
    return (
        found
        if good is None
        else replace(found, requested_fields=good.requested_fields, made_optional=good.made_optional)
    )


def _of_good_records(target: TableTarget, records: Records, found: Decoded, read_rows: ReadRows) -> Decoded | None:
    """Returns the result for the records that become rows; None where there are none and the table has no columns."""
    refused = np.flatnonzero(found.refused)
    bad = [
        row
        for row in refused[:_MAX_SINGLE_READS].tolist()
        if _are_bad(target, pick(records, np.array([row])), read_rows).any()
    ]
    left = refused[_MAX_SINGLE_READS:]
    if left.size:
        bad += left[_are_bad(target, pick(records, left), read_rows)].tolist()
    rows = np.setdiff1d(np.arange(found.refused.size), bad)
    # The remaining records may differ in the type of a field: then the type of the earlier ones counts.
    again = _are_bad(target, pick(records, rows), read_rows)
    rows = rows[~again]
    if not rows.size:
        return Decoded([], np.zeros(0, np.bool_)) if target.fields else None
    return read_rows(target, pick(records, rows))


def _are_bad(target: TableTarget, records: Records, read_rows: ReadRows) -> NDArray[np.bool_]:
    """Returns which records cannot become rows even with the schema changes that they request, bool of shape
    (n_records,).
    """
    if not len(records["value"]):
        return np.zeros(0, np.bool_)
    first = read_rows(target, records)
    if not (first.requested_fields or first.made_optional):
        return first.refused
    return read_rows(_with_changes(target, first), records).refused


def _with_changes(target: TableTarget, found: Decoded) -> TableTarget:
    """Returns the table with the schema changes that its records request.

    Raises: NameConflict.
    """
    made_optional, may_widen = found.made_optional - target.fixed, target.reading.may_widen
    if target.shaping is None:
        schema = extend_schema(target.schema, found.requested_fields, made_optional, may_widen)
    else:
        own = [column for _, column in target.metadata]
        schema = extend_shaped(target.schema, target.shaping, own, found.requested_fields, made_optional, may_widen)
    return replace(target, schema_json=schema.model_dump_json())
