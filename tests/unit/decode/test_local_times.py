"""Local times and instants of a zone, also after the years whose changes its file lists."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from frazil.decode.epochs import are_skipped, to_instants, to_local

_INSTANT, _LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
_ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Sydney",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Kathmandu",
)
_NEAR_ENDS = (datetime(2036, 12, 31, 23, tzinfo=UTC), datetime(2037, 1, 1, 1, tzinfo=UTC))


def _instants() -> list[datetime]:
    monthly = [datetime(year, month, 20, 12, tzinfo=UTC) for year in range(1970, 2120) for month in (1, 4, 7, 10)]
    return [*monthly, *_NEAR_ENDS, datetime(9998, 7, 1, tzinfo=UTC)]


@pytest.mark.parametrize("zone", _ZONES)
def test_local_times_follow_the_rule_of_their_zone_in_every_year(zone: str) -> None:
    instants = _instants()
    expected = [instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for instant in instants]
    assert to_local(pa.array(instants, _INSTANT), zone).to_pylist() == expected
    back = to_instants(pa.array(expected, _LOCAL), zone)
    assert [found.astimezone(UTC) for found in back.to_pylist()] == instants


def test_a_local_time_that_is_skipped_in_a_far_year_is_none_and_of_two_the_first_counts() -> None:
    # Berlin sets its clocks forward on 2050-03-27 at 2:00, and back on 2050-10-30 at 3:00.
    local = pa.array([datetime(2050, 3, 27, 2, 30), datetime(2050, 10, 30, 2, 30), None], _LOCAL)  # noqa: DTZ001
    first = datetime(2050, 10, 30, 0, 30, tzinfo=UTC)
    found = to_instants(local, "Europe/Berlin").to_pylist()
    assert found[0] is None
    assert found[1].astimezone(UTC) == first
    assert found[2] is None
    assert np.flatnonzero(are_skipped(local, "Europe/Berlin")).tolist() == [0]


def test_times_at_the_end_of_the_years_are_none_where_the_other_time_is_in_the_year_10000() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    assert to_local(pa.array([last], _INSTANT), "Europe/Berlin").to_pylist() == [None]
    assert to_instants(pa.array([last.replace(tzinfo=None)], _LOCAL), "America/New_York").to_pylist() == [None]
    before = last - timedelta(days=2)
    assert to_local(pa.array([before], _INSTANT), "UTC").to_pylist() == [before.replace(tzinfo=None)]
