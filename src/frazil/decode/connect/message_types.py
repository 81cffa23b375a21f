"""Values of the messages that Confluent's ProtobufConverter has for Kafka Connect's decimals, dates and times."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_DAY_US = 86_400_000_000
_FIRST_YEAR, _LAST_YEAR = 1, 9999


def member(array: pa.Array, name: str) -> pa.Array | None:
    """Returns the values of a message's field, null where there is no message; None where it has no such field."""
    place = array.type.get_field_index(name) if pa.types.is_struct(array.type) else -1
    return None if place < 0 else pc.struct_field(array, [place])


def _numbers(array: pa.Array, *names: str) -> list[NDArray[np.int64]] | None:
    """Returns the fields as integers, 0 where they are absent; None for another message."""
    found = [member(array, name) for name in names]
    if any(one is None or not pa.types.is_integer(one.type) for one in found):
        return None
    return [np.asarray(pc.fill_null(one, 0)).astype(np.int64) for one in found]


def read_days(array: pa.Array) -> pa.Array | None:
    """Returns the days of `google.type.Date`; null where a message is no day, as without a month."""
    found = _numbers(array, "year", "month", "day")
    if found is None:
        return None
    year, month, day = found
    fits = (year >= _FIRST_YEAR) & (year <= _LAST_YEAR) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    months = np.where(fits, (year - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + np.where(fits, day - 1, 0)
    fits &= days.astype("datetime64[M]") == months
    mask = ~fits | np.asarray(array.is_null())
    return pa.array(days.astype(np.int64).astype(np.int32), pa.int32(), mask=mask).cast(pa.date32())


def read_times(array: pa.Array) -> pa.Array | None:
    """Returns the times of `google.type.TimeOfDay`, to the microsecond; null where a message is no time below 24 hours."""
    found = _numbers(array, "hours", "minutes", "seconds", "nanos")
    if found is None:
        return None
    hours, minutes, seconds, nanos = found
    fits = (hours >= 0) & (hours < 24)
    for part, most in ((minutes, 60), (seconds, 60), (nanos, 1_000_000_000)):
        fits &= (part >= 0) & (part < most)
    micros = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + nanos // 1000
    mask = ~fits | np.asarray(array.is_null())
    return pa.array(np.where(fits, micros, 0) % _DAY_US, pa.int64(), mask=mask).cast(pa.time64("us"))
