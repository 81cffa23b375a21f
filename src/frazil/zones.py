"""The time-zone database of the machine, which Arrow and Python read.

Slim containers have none, and then Arrow reads no time with a zone, not even in UTC.
"""

from __future__ import annotations

from functools import cache
from zoneinfo import available_timezones

from frazil.errors import UnavailableError

NO_ZONES = "this machine has no time-zone database"
ZONES_REMEDY = (
    "install the system's package `tzdata`, here and where Spark's executors run; if PYTHONTZPATH is set, let it name the"
    " folder of that package"
)


@cache
def regions() -> frozenset[str]:
    """Returns the names of zones that the database has.

    Raises: UnavailableError without a database.
    """
    names = available_timezones() - {"Factory", "localtime", "posixrules"}
    if not names or not _has_arrow_zones():
        raise UnavailableError(NO_ZONES, remedy=ZONES_REMEDY, where="/usr/share/zoneinfo")
    return frozenset(names)


def _has_arrow_zones() -> bool:
    import pyarrow as pa  # noqa: PLC0415  (the JVM starts before most imports)
    import pyarrow.compute as pc  # noqa: PLC0415

    try:
        pc.local_timestamp(pa.array([0], pa.timestamp("us", tz="UTC")))
    except pa.ArrowInvalid:
        return False
    return True
