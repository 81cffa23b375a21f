"""Times with a zone in columns without one, and the other way round, by the zone that a declared column names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, TimestampType, TimestamptzType

from frazil.decode.epochs import FIRST_US, LAST_US

HAS_ZONE = r"[0-9](Z|z|[+-][0-9]{2}(:?[0-9]{2})?)$"
"""The end of a time text with a zone; a day alone, such as 2026-01-31, has no colon."""
_INSTANT, _LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")


def to_local(instants: pa.Array, zone: str) -> pa.Array:
    """Returns the local times of instants in a zone; null outside the years 1 to 9999."""
    local = pc.local_timestamp(instants.cast(pa.timestamp("us", tz=zone)))
    micros = local.cast(pa.int64())
    is_inside = pc.and_(pc.greater_equal(micros, FIRST_US), pc.less(micros, LAST_US))
    return pc.if_else(is_inside, local, pa.scalar(None, _LOCAL))


def to_instants(local: pa.Array, zone: str) -> pa.Array:
    """Returns the instants of local times in a zone; of the two that a time has when clocks go back, the first. Null
    for times that are skipped when clocks go forward, and outside the years 1 to 9999.
    """
    zoned = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="earliest")
    again = pc.local_timestamp(zoned)
    micros = zoned.cast(pa.int64())
    is_inside = pc.and_(pc.greater_equal(micros, FIRST_US), pc.less(micros, LAST_US))
    is_good = pc.and_(pc.equal(again, local), is_inside)
    return pc.if_else(is_good, zoned.cast(_INSTANT), pa.scalar(None, _INSTANT))


def convert_zone(array: pa.Array, wanted: IcebergType, zone: str) -> pa.Array | None:
    """Returns times in the other of Iceberg's two timestamp types; None where they are no times, or need no change."""
    if not pa.types.is_timestamp(array.type):
        return None
    if isinstance(wanted, TimestampType) and array.type.tz is not None:
        return to_local(array.cast(_INSTANT), zone)
    if isinstance(wanted, TimestamptzType) and array.type.tz is None:
        return to_instants(array.cast(_LOCAL), zone)
    return None


def have_zones(texts: pa.StringArray) -> NDArray[np.bool_]:
    """Returns which texts are times with a zone, if they are times: bool of shape (n_texts,)."""
    ends = pc.and_(pc.match_substring_regex(texts, HAS_ZONE), pc.match_substring(texts, ":"))
    return np.asarray(pc.fill_null(ends, False))


def differ_in_zone(written: IcebergType, wanted: IcebergType) -> bool:
    """Whether one of the types has a zone and the other has none."""
    return {type(written), type(wanted)} == {TimestampType, TimestamptzType}


def zone_settings(path: tuple[str, ...], wanted: IcebergType) -> str:
    """Returns the setting by which a time column accepts times with a zone, or without. path: of the field, in the row."""
    does = "converts them" if isinstance(wanted, TimestampType) else "reads them as of that zone"
    if not path or "element" in path or "value" in path:
        return "declare the column as the other of timestamp and timestamptz in a new table"
    if len(path) == 1:
        return f"`columns: {{{path[0]}: {{type: {wanted}, zone: UTC}}}}` {does}"
    return f"`columns: {{NAME: {{type: {wanted}, zone: UTC, field: {'.'.join(path)}}}}}` {does}"
