"""Written times, and numbers that count a declared unit, to the table's timestamps. A time that the column cannot hold is a
bad record with its reason: it is outside the years 1 to 9999, or the column's zone does not have it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, TimestampType, TimestamptzType

from frazil.decode.conversion import Conversion, Place
from frazil.decode.epochs import SKIPPED, are_skipped, convert_zone, from_numbers, to_local
from frazil.schema.arrow import arrow_type


def convert_times(conversion: Conversion, array: pa.Array, wanted: IcebergType, place: Place) -> pa.Array | None:
    """Returns times of a column with a zone, or numbers of one with a unit, in the column's type; None for others."""
    zone, unit = _zone_at(conversion, place), conversion.unit_at(place.path)
    found = _in_zone(conversion, array, wanted, place, zone) if zone is not None else None
    if (
        found is None
        and unit is not None
        and _is_number(array.type)
        and isinstance(wanted, TimestampType | TimestamptzType)
    ):
        return _from_epoch(conversion, array, wanted, place, unit)
    return found


def _zone_at(conversion: Conversion, place: Place) -> str | None:
    return conversion.reading.zone_at.get(place.path) if conversion.reading.zones else None


def _in_zone(conversion: Conversion, array: pa.Array, wanted: IcebergType, place: Place, zone: str) -> pa.Array | None:
    """Returns what `convert_zone` does, and refuses the times that it cannot convert."""
    found = convert_zone(array, wanted, zone)
    if found is None:
        return None
    lost = np.asarray(array.is_valid()) & np.asarray(found.is_null())
    if lost.any() and isinstance(wanted, TimestamptzType):
        skipped = lost & are_skipped(array, zone)
        conversion.refuse(array, skipped, place.owner, place.path, "out_of_range", SKIPPED.replace("{zone}", zone))
        lost &= ~skipped
    _refuse_far_times(conversion, array, lost, place, f"{wanted} in {zone}")
    return found


def _from_epoch(conversion: Conversion, array: pa.Array, wanted: IcebergType, place: Place, unit: str) -> pa.Array:
    moments = from_numbers(array, unit)
    _refuse_far_times(conversion, array, moments.is_outside, place, f"{wanted}({unit})")
    zone = _zone_at(conversion, place)
    if zone is None or not isinstance(wanted, TimestampType):
        return moments.micros.cast(arrow_type(wanted))
    local = to_local(moments.micros.cast(pa.timestamp("us", tz="UTC")), zone)
    lost = np.asarray(moments.micros.is_valid()) & np.asarray(local.is_null())
    _refuse_far_times(conversion, array, lost, place, f"{wanted} in {zone}")
    return local


def _refuse_far_times(
    conversion: Conversion, array: pa.Array, bad: NDArray[np.bool_], place: Place, wanted: str
) -> None:
    if bad.any():
        reason = f"{{value}} is out of the range of {wanted}"
        conversion.refuse(array, bad, place.owner, place.path, "out_of_range", reason)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
