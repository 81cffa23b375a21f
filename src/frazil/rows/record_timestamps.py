"""Timestamps of Kafka records in a column of the table: they are out of range by the same rule as times in record
values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.decode.columns import Decoded, Mismatch
from frazil.decode.epochs import inside_years, outside_years
from frazil.write.target import TableTarget

_FIELDS = frozenset(("timestamp", "deleted_at"))
"""Fields of metadata that contain the record's timestamp, always or as the fallback."""


def refuse_far_times(target: TableTarget, records: Mapping[str, pa.Array], decoded: Decoded, limit: int) -> Decoded:
    """Returns the result with the records refused whose timestamp is outside the years 1 to 9999, where the table has a
    column for it. limit: the number of mismatches that are kept.
    """
    if "timestamp" not in records or not _FIELDS & target.metadata_fields:
        return decoded
    outside = outside_years(records["timestamp"])
    if not outside.any():
        return decoded
    micros = records["timestamp"].cast(pa.int64())
    column = dict(target.metadata).get("timestamp", "timestamp")
    reason = "the record's timestamp of {} ms is outside of the years 1 to 9999"
    mismatches = [
        Mismatch(row, column, "out_of_range", reason.format(micros[row].as_py() // 1000))
        for row in np.flatnonzero(outside & ~decoded.refused)[:limit].tolist()
    ]
    both = sorted([*decoded.mismatches, *mismatches], key=lambda mismatch: mismatch.row)[:limit]
    return replace(decoded, refused=decoded.refused | outside, mismatches=both)


def divided_times(times: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Returns the timestamps in microseconds, null for those that no reader of the dead-letter table could show, and
    the latter in milliseconds.
    """
    near = inside_years(times)[0]
    is_far = pc.and_(pc.is_null(near), pc.is_valid(times))
    far_ms = pc.divide(times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), 1000)
    return near, pc.if_else(is_far, far_ms, pa.scalar(None, pa.int64()))


def undivided_times(near: pa.Array, far_ms: pa.Array) -> pa.Array:
    """Returns all timestamps in microseconds, from the two arrays of `divided_times`."""
    return pc.coalesce(near, pc.multiply(far_ms, 1000).cast(near.type))
