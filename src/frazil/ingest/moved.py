"""What follows where rows get another key: the batch is read by one task, ends before what lacks its other half, or goes on
without that half.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import structlog

from frazil.clock import Clock
from frazil.ingest.pipeline import Outcome, Planned
from frazil.ingest.table import RunState, Table
from frazil.ingest.transactions.runs import Cut, Held
from frazil.ingest.upserts.halves import Place
from frazil.types import Half, OffsetRange, TaskReport

log = structlog.get_logger("frazil")

# The source sends both halves at once, and repeats what it has sent without a pause.
WAITED_MS = 60_000
LOOK_AGAIN_S = 10.0
AWAITED = "a row gets another key, and not all records that tell of it are in Kafka yet"


def note_moved(planned: Planned, outcome: Outcome, clock: Clock) -> None:
    """Notes what the batch that is planned again must know."""
    table, report = planned.table, outcome.report
    planned_ms = clock.now_ms() - round(1000 * (clock.monotonic_s() - planned.planned_at_s))
    table.is_whole = True
    alone = {half.place: half for half in report.halves}
    stuck = {place for place, half in alone.items() if half.is_delete} if report.ends else set[Place]()
    if outcome.unpaired:
        stuck.update(outcome.unpaired)
    table.awaited = {place: table.awaited.get(place, planned_ms) for place in stuck}
    late = {place for place in stuck if not _may_follow(place, alone.get(place), planned, report, planned_ms)}
    if late or not stuck:
        table.given_up |= late.difference(outcome.unpaired)
        table.unpaired |= late.intersection(outcome.unpaired)
        log.info("rows_moved", table=table.name, lost=len(table.unpaired))
        return
    ranges = _limited(_limited(planned.batch.ranges, report.ends), _before(stuck))
    if ranges:
        table.cut, table.held = Cut(planned.position, ranges, planned.places or {}), None
        log.debug("batch_shortened", table=table.name, waits_for=len(stuck))
    elif _can_have_more(planned):
        _hold(planned, clock)
    else:  # The other half is further off than a batch may reach.
        table.given_up |= stuck.difference(outcome.unpaired)
        table.unpaired |= stuck.intersection(outcome.unpaired)
        log.info("rows_moved", table=table.name, lost=len(table.unpaired))


def note_ahead(table: Table, report: TaskReport, now_ms: int) -> None:
    """Remembers for a while which changes of the key are in the table by their insert alone: no delete of them waits."""
    deletes = {(half.topic, half.position) for half in report.halves if half.is_delete}
    inserts = {(half.topic, half.position) for half in report.halves if not half.is_delete}
    recent = {change: at_ms for change, at_ms in table.ahead.items() if now_ms - at_ms <= WAITED_MS}
    table.ahead = recent | dict.fromkeys(inserts - deletes, now_ms)


def _may_follow(place: Place, half: Half | None, planned: Planned, report: TaskReport, planned_ms: int) -> bool:
    """Whether what is missing can still come. half: without its other one; None: both are there, and the row is not. Such a
    change is one that the source repeats, and what has become of the row since is repeated behind it. planned_ms: when the
    ends were asked for; a batch may have taken long since then.
    """
    table = planned.table
    if table.spec.atomic is not None:
        return False  # All of it is in the batch.
    if half is None:
        topic, partition, _ = place
        latest_ms = report.latest_ms.get(topic, {}).get(partition, planned_ms)
        return planned_ms <= min(latest_ms, table.awaited[place]) + WAITED_MS
    ends = {(r.topic, r.partition): r.end for r in planned.batch.ranges}
    for topic, number in table.partitions():
        if (topic, number) in planned.silent:
            return True
        end = ends.get((topic, number), planned.position.get(topic, {}).get(number, 0))
        is_all = end >= planned.ends.get((topic, number), end)
        # The clock of those who write records may be another one: their times are compared with each other.
        if is_all and planned_ms <= min(half.timestamp_ms, table.awaited[place]) + WAITED_MS:
            return True
        if not is_all and report.latest_ms.get(topic, {}).get(number, 0) <= half.timestamp_ms + WAITED_MS:
            return True
    return False  # In every partition a much later record was read, or there is no more.


def _can_have_more(planned: Planned) -> bool:
    """Whether the same batch can be another one when it is planned later: it was shortened, a partition that it lacks has no
    leader, or it has all that it may read.
    """
    return _is_cut(planned) or not planned.silent.isdisjoint(planned.table.partitions()) or _is_all(planned)


def _is_cut(planned: Planned) -> bool:
    cut = planned.table.cut
    return cut is not None and cut.position == planned.position


def _is_all(planned: Planned) -> bool:
    """Whether a longer batch would be no other one."""
    return all(r.end >= planned.reach.get((r.topic, r.partition), r.end) for r in planned.batch.ranges)


def _before(places: Iterable[Place]) -> dict[str, dict[int, int]]:
    """Where batches end that have none of these records."""
    ends: dict[str, dict[int, int]] = {}
    for topic, partition, offset in places:
        mine = ends.setdefault(topic, {})
        mine[partition] = min(offset, mine.get(partition, offset))
    return ends


def _limited(ranges: Iterable[OffsetRange], ends: Mapping[str, Mapping[int, int]]) -> tuple[OffsetRange, ...]:
    """The ranges as far as they are before these ends."""
    cut = (replace(r, end=min(r.end, ends.get(r.topic, {}).get(r.partition, r.end))) for r in ranges)
    return tuple(r for r in cut if r.span > 0)


def _hold(planned: Planned, clock: Clock) -> None:
    """Nothing else is there: the table waits until something comes, or until it is time to look again."""
    table = planned.table
    if table.held is None:
        log.info("key_change_awaited", table=table.name, lag_records=table.lag_records)
    watched = set(table.partitions())
    if not _is_cut(planned) and not _is_all(planned):  # It is as long as a batch may be: what else comes is not in it.
        watched &= planned.silent
    ends = {partition: planned.ends.get(partition, -1) for partition in watched}
    table.cut = None
    table.held = Held(planned.position, ends, clock.monotonic_s() + LOOK_AGAIN_S, LOOK_AGAIN_S)
    table.run_state, table.reason, table.remedy, table.where = RunState.WAITING, AWAITED, "", ""
