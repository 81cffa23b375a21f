"""Local times of a zone, and the instants that they are.

Arrow knows the changes of clocks that a zone's file lists, and not the rule by which they continue: from 2037 on it takes
the last change for ever. Python knows the rule, and is slower.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

LAST_LISTED_US = 2_114_380_800_000_000
"""2037-01-01: the files of zones list no changes after that year."""
_LAST_US = 253_402_300_800_000_000  # 10000-01-01, where Python's times end.
_US = timedelta(microseconds=1)
_EPOCH, _DAY_US = datetime.fromtimestamp(0, UTC).replace(tzinfo=None), 86_400_000_000
_LOCAL = pa.timestamp("us")


def local_of(instants: pa.Array, zone: str) -> pa.Array:
    """Returns the local times of instants, timestamp("us")."""
    local = pc.local_timestamp(instants.cast(pa.timestamp("us", tz=zone)))
    micros, is_far = _far(instants)
    if not is_far.any():
        return local
    local_us = np.asarray(local.cast(pa.int64()).fill_null(0)).copy()
    local_us[is_far] = micros[is_far] + _offsets_us(micros[is_far], zone, is_local=False)
    return pa.array(local_us, mask=np.asarray(local.is_null())).cast(_LOCAL)


def instants_of(local: pa.Array, zone: str) -> pa.Array:
    """Returns the instants of local times, timestamp("us", UTC): the first of two where clocks are set back; where they are
    set forward past a time, an instant with another local time.
    """
    zoned = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="earliest")
    micros, is_far = _far(local)
    instants_us = zoned.cast(pa.int64())
    if is_far.any():
        far = np.asarray(instants_us.fill_null(0)).copy()
        far[is_far] = micros[is_far] - _offsets_us(micros[is_far], zone, is_local=True)
        instants_us = pa.array(far, mask=np.asarray(zoned.is_null()))
    return instants_us.cast(pa.timestamp("us", tz="UTC"))


def _far(times: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns the times in microseconds, and which of them Arrow has no rule for."""
    micros = np.asarray(times.cast(pa.int64()).fill_null(0))
    return micros, (micros >= LAST_LISTED_US) & (micros < _LAST_US - _DAY_US)


def _offsets_us(micros: NDArray[np.int64], zone: str, is_local: bool) -> NDArray[np.int64]:
    """Returns how far the zone is ahead of UTC at some times."""
    time_zone = _zone(zone)
    different, places = np.unique(micros, return_inverse=True)
    offsets = np.empty(different.size, np.int64)
    for place, instant in enumerate(different.tolist()):
        time = _EPOCH + timedelta(microseconds=instant)
        zoned = time.replace(tzinfo=time_zone) if is_local else time.replace(tzinfo=UTC).astimezone(time_zone)
        offset = zoned.utcoffset()
        assert offset is not None
        offsets[place] = offset // _US
    return offsets[places]


@cache
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
