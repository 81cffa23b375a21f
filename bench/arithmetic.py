"""The pure arithmetic of the benchmarks: what is done with samples, snapshots and times once they are taken."""

from __future__ import annotations

import bisect
import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence


def spread(values: Iterable[float | None]) -> dict[str, float] | None:
    """Smallest, median and largest of the values that are there; None when none is."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    return {"min": min(present), "median": statistics.median(present), "max": max(present)}


def summary(runs: Sequence[Mapping[str, object]]) -> dict[str, dict[str, float]]:
    """The spread of every number that a run reports."""
    names = dict.fromkeys(name for run in runs for name, value in run.items() if _number(value) is not None)
    spreads = {name: spread([_number(run.get(name)) for run in runs]) for name in names}
    return {name: value for name, value in spreads.items() if value is not None}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def value_at(series: Sequence[tuple[float, float]], time_s: float) -> float:
    """The value of a rising series of (time, value) at `time_s`, on the line between its neighbours."""
    if not series:
        raise ValueError("no sample was taken")
    after = bisect.bisect_left(series, time_s, key=lambda sample: sample[0])
    if after == 0:
        return series[0][1]
    if after == len(series):
        return series[-1][1]
    (left_time, left), (right_time, right) = series[after - 1], series[after]
    return left + (right - left) * (time_s - left_time) / (right_time - left_time)


def first_seen_ms(snapshots: Sequence[int], seen: Mapping[int, int]) -> dict[int, int]:
    """When each snapshot of a table became visible, given what a watcher saw as the current snapshot and when.

    `snapshots` are ids in the order of their commits. A snapshot that the watcher missed, because the next followed at
    once, was visible no later than its successor: it gets the successor's time. The tail that nobody saw is absent.
    """
    times: dict[int, int] = {}
    later: int | None = None
    for snapshot in reversed(snapshots):
        own = seen.get(snapshot)
        candidates = [time for time in (own, later) if time is not None]
        if candidates:
            later = times[snapshot] = min(candidates)
    return times


def back_under_s(
    sights: Sequence[tuple[int, int]], since_ms: int, end_ms: int, limit_ms: int, hold_ms: int
) -> float | None:
    """How many seconds after `since_ms` the newest record that a reader could see was younger than `limit_ms` again.

    sights: when a snapshot was first seen and the time of its newest record. 0.0 where that record was never older; None
    where it still was at `end_ms`, when the feed ended. A record that is too old again more than `hold_ms` later is
    another story, and does not count.
    """
    back_ms, newest_ms = since_ms, 0
    inside = [sight for sight in sorted(sights) if sight[0] < end_ms]
    if not inside:
        return None
    for (seen_ms, time_ms), (until_ms, _) in itertools.pairwise([*inside, (end_ms, 0)]):
        newest_ms = max(newest_ms, time_ms)
        old_from_ms = max(seen_ms, newest_ms + limit_ms, since_ms)
        if old_from_ms >= until_ms:
            continue
        if old_from_ms - back_ms > hold_ms:
            break
        if until_ms == end_ms:
            return None
        back_ms = until_ms
    return (back_ms - since_ms) / 1000


def lateness_ms(commits_ms: Sequence[int], interval_ms: int, start_ms: int, end_ms: int) -> list[int]:
    """How much later than `interval_ms` after its predecessor each commit of the window came; early is negative.

    A table that stopped committing is late too: the gap still open at the end counts where it is over the interval.
    """
    inside = [time for time in sorted(commits_ms) if start_ms <= time <= end_ms]
    points = [start_ms] if not inside else []
    points += inside
    gaps = [after - before for before, after in itertools.pairwise(points)]
    if end_ms - points[-1] > interval_ms:
        gaps.append(end_ms - points[-1])
    return [gap - interval_ms for gap in gaps]


def in_64_bits(total: int) -> int:
    """What 64 signed bits keep of a sum: Arrow adds the values of a file in them."""
    return (total + 2**63) % 2**64 - 2**63


def prefix_total(cycle: Sequence[int], count: int) -> int:
    """The sum of the first `count` values of `cycle` repeated without end."""
    whole, rest = divmod(count, len(cycle))
    return whole * sum(cycle) + sum(cycle[:rest])


def rows_of(records: int, rows: int, total: int) -> int:
    """How many rows so many records become, where `total` records become `rows`, evenly."""
    return records * rows // total


def records_of(count: int, rows: int, total: int) -> int:
    """How many records so many rows come from, where `total` records become `rows`, evenly."""
    return count * total // rows


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    """How many times `denominator` fits into `numerator`, where both are known."""
    return numerator / denominator if numerator is not None and denominator else None
