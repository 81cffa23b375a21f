"""What the changes of upsert tables need of other batches: here of primary-key updates, whose row has another key now.

One task reads the batch, and the batch ends before an update whose other part is missing, or continues without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace

import structlog

from frazil.clock import Clock
from frazil.ingest.tables.batch_ends import Cut, Waiting
from frazil.ingest.tables.table import Planned, Table
from frazil.report import TaskReport
from frazil.types import OffsetRange, Place
from frazil.upsert.commit import IncompleteChanges
from frazil.upsert.key_updates.parts import PendingUpdate, key_update_notes
from frazil.upsert.late_records import has_hidden_late
from frazil.upsert.old_values.complete import OldRowsMissing

log = structlog.get_logger("frazil")

# The source sends both parts at once, and repeats records without a pause.
WAITED_MS = 60_000
SEARCH_AGAIN_S = 10.0
PENDING = "a primary-key update is incomplete: its other part is not in Kafka yet"


@dataclass(frozen=True)
class KeyUpdates:
    """Rows have other keys, and the parts of such updates are not all in one task."""

    #: Topic, partition and offset of records whose row had another key, where the row of that key is not known.
    unpaired: tuple[Place, ...] = ()

    def apply(self, planned: Planned, report: TaskReport, clock: Clock) -> None:
        """See Finding."""
        table, notes, unpaired = planned.table, key_update_notes(report.changes), frozenset(self.unpaired)
        state = table.changes.key_updates
        planned_ms = clock.now_ms() - round(1000 * (clock.monotonic_s() - planned.planned_at_s))
        table.changes.is_single_task = True
        stuck = {part.place for part in notes.parts if part.is_delete} if notes.ends else set()
        stuck |= unpaired
        # A shorter batch waits for other records than the whole one; the wait of each begins when it was first read.
        position, pending = planned.position, planned.table.changes.key_updates.pending
        state.pending = {place: PendingUpdate(planned_ms) for place in stuck} | {
            place: update
            for place, update in pending.items()
            if place[2] >= position.get(place[0], {}).get(place[1], 0)
        }
        late = {place for place in stuck if not _may_follow(place, planned, planned_ms)}
        ranges = _limited(_limited(planned.batch.ranges, notes.ends), _before(stuck))
        if late or not stuck:
            _abandon(table, late, unpaired)
        elif ranges:
            table.offsets.cut, table.offsets.waiting = Cut(planned.position, ranges, planned.places or {}), None
            log.debug("batch_shortened", table=table.name, incomplete_updates=len(stuck))
        elif _can_have_more(planned):
            _wait_for_other_part(planned, clock, _are_old(stuck, report, planned_ms))
        else:  # The other part is beyond the largest batch.
            _abandon(table, stuck, unpaired)


@dataclass(frozen=True)
class HiddenLate:
    """A task may have taken a late record for one in time: one task reads the batch again."""

    def apply(self, planned: Planned, report: TaskReport, clock: Clock) -> None:  # noqa: ARG002
        """See Finding."""
        planned.table.changes.is_single_task = True


def change_findings_in(report: TaskReport) -> tuple[KeyUpdates | HiddenLate, ...]:
    """Returns what the changes of the batch need before it can be committed; nothing where they need nothing."""
    if has_hidden_late(report.changes):
        return (HiddenLate(),)
    notes = key_update_notes(report.changes)
    return (KeyUpdates(notes.unpaired),) if notes.needs_one_task or notes.unpaired or notes.ends else ()


def change_findings_of(gone: IncompleteChanges, planned: Planned) -> tuple[KeyUpdates, ...]:
    """Returns what changes need that could not be committed; nothing where they need another schema."""
    return (KeyUpdates(gone.places(sorted(planned.batch.topics))),) if isinstance(gone, OldRowsMissing) else ()


def _abandon(table: Table, places: Set[Place], unpaired: Set[Place]) -> None:
    """Lets the batch continue without the other parts of these updates."""
    state = table.changes.key_updates
    state.abandoned |= places - unpaired
    state.unpaired |= places & unpaired
    log.info("primary_key_updates_found", table=table.name, dead_letters=len(state.unpaired))


def note_applied(table: Table, report: TaskReport, now_ms: int) -> None:
    """Keeps for a while which updates are in the table by their insert alone, so that their delete does not wait."""
    parts, state = key_update_notes(report.changes).parts, table.changes.key_updates
    deletes = {(part.topic, part.position) for part in parts if part.is_delete}
    inserts = {(part.topic, part.position) for part in parts if not part.is_delete}
    recent = {change: at_ms for change, at_ms in state.applied_early.items() if now_ms - at_ms <= WAITED_MS}
    state.applied_early = recent | dict.fromkeys(inserts - deletes, now_ms)


def _may_follow(place: Place, planned: Planned, planned_ms: int) -> bool:
    """Whether missing records may still arrive: the other part of the update or, where both parts exist and the row
    does not, later changes of the row, since a source that repeats the update repeats them behind it.

    The decision uses offsets, and the time since the table first read the record. Timestamps of a replicated or
    replayed topic show neither when a record was written nor the order of two records. planned_ms: when the ends were
    requested, in milliseconds since the epoch; the batch may have taken long since then.
    """
    table = planned.table
    if table.spec.changes.atomic is not None:
        return False  # The batch has complete transactions.
    pending_updates = table.changes.key_updates.pending[place]
    if planned_ms <= pending_updates.since_ms + WAITED_MS:
        return True
    pending_updates.ends = pending_updates.ends or dict(planned.ends)
    ranges = {(r.topic, r.partition): r for r in planned.batch.ranges}
    for topic, number in table.partitions():
        own = ranges.get((topic, number))
        if (topic, number) in planned.silent:
            return True
        if own is not None and place == (topic, number, own.start):
            continue  # The batch already has as many records behind this one as it may have.
        end = own.end if own is not None else planned.position.get(topic, {}).get(number, 0)
        if end < min(pending_updates.ends.get((topic, number), end), planned.ends.get((topic, number), end)):
            return True
    return False


def _can_have_more(planned: Planned) -> bool:
    """Whether the next batch may be longer: this one was shortened, has all records, or a partition has no leader."""
    return _is_cut(planned) or not planned.silent.isdisjoint(planned.table.partitions()) or _is_all(planned)


def _is_cut(planned: Planned) -> bool:
    cut = planned.table.offsets.cut
    return cut is not None and cut.position == planned.position


def _is_all(planned: Planned) -> bool:
    """Whether the batch has all records that may be read."""
    return all(r.end >= planned.reach.get((r.topic, r.partition), r.end) for r in planned.batch.ranges)


def _before(places: Iterable[Place]) -> dict[str, dict[int, int]]:
    """Returns the ends before all of these records, by topic and partition."""
    ends: dict[str, dict[int, int]] = {}
    for topic, partition, offset in places:
        mine = ends.setdefault(topic, {})
        mine[partition] = min(offset, mine.get(partition, offset))
    return ends


def _limited(ranges: Iterable[OffsetRange], ends: Mapping[str, Mapping[int, int]]) -> tuple[OffsetRange, ...]:
    """Returns the ranges cut at these ends."""
    cut = (replace(r, end=min(r.end, ends.get(r.topic, {}).get(r.partition, r.end))) for r in ranges)
    return tuple(r for r in cut if r.span > 0)


def _are_old(stuck: Iterable[Place], report: TaskReport, planned_ms: int) -> bool:
    """Whether one of these records has an old timestamp. That does not show when the record was written; but every
    later run would find the same, and leave the record to the next run.
    """
    timestamps = {
        part.place: part.timestamp_ms
        for part in key_update_notes(report.changes).parts
        if part.timestamp_ms is not None
    }
    times = (
        timestamps.get(place, report.counts.latest_ms.get(place[0], {}).get(place[1], planned_ms)) for place in stuck
    )
    return any(planned_ms > at_ms + WAITED_MS for at_ms in times)


def _wait_for_other_part(planned: Planned, clock: Clock, are_old: bool) -> None:
    """Sets the table to waiting until a record arrives, or until it is time to search again. are_old: whether the
    pending records are old.
    """
    table = planned.table
    if table.offsets.waiting is None:
        log.info("primary_key_update_pending", table=table.name, lag_records=table.offsets.lag_records)
    watched = set(table.partitions())
    if not _is_cut(planned) and not _is_all(planned):  # The batch has its largest size: later records are not in it.
        watched &= planned.silent
    ends = {partition: planned.ends.get(partition, -1) for partition in watched}
    table.offsets.cut = None
    is_all = all(planned.reach.get(partition, end) >= end for partition, end in planned.ends.items())
    until_s = clock.monotonic_s() + SEARCH_AGAIN_S
    table.offsets.waiting = Waiting(planned.position, ends, until_s, SEARCH_AGAIN_S, keeps_run=are_old and is_all)
    table.status.wait_for(PENDING)
