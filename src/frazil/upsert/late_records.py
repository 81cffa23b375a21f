"""Records that are late for the windows of their time, and how far windows are complete.

A record is late whose time is more than `late` behind the greatest time before it in its partition, or before the time up to
which the windows of the last commit are complete. The first is decided by the records of one partition alone, in whatever
batches they are read. The second keeps a promise to readers: a partition without records to read does not hold windows back.
With `emit: closed` it keeps it for good: neither a longer `late` nor a replay changes a window that was complete once.

A time counts no further than the timestamp of its record, so that one wrong clock does not end all windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.error_classes import ErrorClass
from frazil.errors import SpecError
from frazil.report import ChangeReport
from frazil.schema.arrow import Bools, Ints, Records
from frazil.stages.changes import Changes
from frazil.types import EVENT_TIME, BadRecord, OrderProgress, Progress, Watermark
from frazil.write.target import TableTarget

LATE = "late"
"""What late records are counted as that are dropped."""
FINAL = "main has the window of its time, which `emit: closed` puts there once and for good"
_NOTE = "event_times"
_COMPLETE = "event_time"
_WINDOWS = "windows_complete"
_FIRST = -(2**62)
"""Before every time."""


@dataclass
class _Stretch:
    """The times of one partition in a task."""

    #: The offset of the first record.
    first: int
    #: The greatest time so far, those of earlier batches among them.
    greatest: int
    #: The greatest time that could be before the stretch without a record of it being late.
    most_before: int


class LateRecords:
    """Finds late records of one table in one task; each record is passed once, in the order of its partition."""

    def __init__(self, target: TableTarget) -> None:
        self._late = target.changes.late if target.changes is not None else None
        self._before = {(topic, partition): time for topic, partition, time in target.known.of(_NOTE)}
        self._complete = max((time for (time,) in target.known.of(_COMPLETE)), default=_FIRST)
        self._recorded = None if self._late is None else _by_place(self._late.recorded)
        is_final = self._late is not None and self._late.is_final
        self._final = max((time for (time,) in target.known.of(_WINDOWS) if is_final), default=_FIRST)
        self._stretches: dict[tuple[str, int], _Stretch] = {}

    def find(self, topic: str, records: Records, changes: Changes) -> Bools:
        """Returns which records are late, bool `(n_records,)`. records: the columns of the changes' records."""
        count = changes.decoded.refused.size
        is_late = np.zeros(count, np.bool_)
        if self._late is None or EVENT_TIME not in changes.own:
            return is_late
        times = _times_of(changes)
        has_time = (times > _FIRST) & ~changes.decoded.refused
        partitions, offsets = np.asarray(records["partition"]), np.asarray(records["offset"])
        counted = np.minimum(times, _timestamps(records, count))
        for partition in np.unique(partitions[has_time]).tolist():
            rows = np.flatnonzero(has_time & (partitions == partition))
            place = topic, partition
            before = self._before.get(place, _FIRST)
            stretch = self._stretches.setdefault(place, _Stretch(int(offsets[rows[0]]), before, -_FIRST))
            greatest = np.maximum.accumulate(np.r_[stretch.greatest, counted[rows]])
            known = np.maximum(greatest[:-1], self._complete_before(place, offsets[rows]))
            limits = np.maximum(known - self._late.after_us, self._final)
            is_late[rows] = times[rows] < limits
            on_time = times[rows[~is_late[rows]]]
            stretch.greatest = int(greatest[-1])
            if on_time.size:
                stretch.most_before = min(stretch.most_before, int(on_time.min()) + self._late.after_us)
        return is_late

    def _complete_before(self, place: tuple[str, int], offsets: Ints) -> Ints:
        """Returns the time that all partitions had reached before the batch of each record, int64 `(n_records,)`."""
        if self._recorded is None:
            return np.full(offsets.size, self._complete)
        firsts, times = self._recorded.get(place, ([], [_FIRST]))
        return np.array(times)[np.searchsorted(firsts, offsets, "right")]

    def split(
        self, topic: str, records: Records, changes: Changes
    ) -> tuple[Changes, dict[str, int], dict[int, BadRecord]]:
        """Returns the changes without those of late records, how many of these are dropped, and of others by the index of
        the record why they are dead letters.
        """
        is_late = self.find(topic, records, changes)
        if not is_late.any():
            return changes, {}, {}
        assert self._late is not None
        kept, rows = changes.only(~is_late[changes.records]), np.flatnonzero(is_late).tolist()
        if not self._late.is_dead_letter:
            return kept, {LATE: len(rows)}, {}
        times = _times_of(changes)
        millis = self._late.after_us // 1000
        units = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
        after = next(f"{millis // size}{unit}" for unit, size in units if millis % size == 0)
        reason = "the time of the record is {}, and records are late after " + after
        reason += ", or where main has their window" if self._late.is_final else ""
        return kept, {}, {row: _bad(topic, records, row, reason.format(_moment(times[row]))) for row in rows}

    def notes(self) -> dict[str, tuple[tuple[str, int, int, int, int], ...]]:
        """Returns the times of the partitions, for the task's report."""
        stretches = (
            (*place, stretch.first, stretch.greatest, stretch.most_before) for place, stretch in self._stretches.items()
        )
        return {_NOTE: tuple(stretches)} if self._stretches else {}


def _by_place(
    recorded: tuple[tuple[str, int, int, int], ...] | None,
) -> dict[tuple[str, int], tuple[list[int], list[int]]] | None:
    """Returns `Late.recorded` by topic and partition: offsets, and the time before the first and from each of them on."""
    if recorded is None:
        return None
    by_place: dict[tuple[str, int], tuple[list[int], list[int]]] = {}
    for topic, partition, first, time in sorted(recorded):
        firsts, times = by_place.setdefault((topic, partition), ([], [_FIRST]))
        firsts.append(first)
        times.append(time)
    return by_place


def final_to_us(target: TableTarget, progress: Progress) -> int:
    """Returns the time up to which the windows of a table are complete for good, in microseconds; a time before all others
    where they can change.
    """
    late, complete_us = (
        target.changes.late if target.changes is not None else None,
        progress.order.windows_complete_to_us,
    )
    return _FIRST if late is None or not late.is_final or complete_us is None else complete_us


def are_final(changes: Changes, complete_us: int) -> Bools:
    """Returns which changes are of windows that are complete for good, bool `(n_changes,)`. complete_us: see
    `final_to_us`.
    """
    if complete_us == _FIRST or EVENT_TIME not in changes.own:
        return np.zeros(changes.records.size, np.bool_)
    times = _times_of(changes)
    return ((times > _FIRST) & (times < complete_us))[changes.records]


def earliest_us(changes: Changes) -> int:
    """Returns the smallest time of changes in microseconds; a time after all others without one."""
    column = changes.own.get(EVENT_TIME)
    return -_FIRST if column is None or not len(column) else int(pc.min(column.cast(pa.int64())).as_py() or -_FIRST)


def _times_of(changes: Changes) -> Ints:
    """Returns the time of each record in microseconds, the smallest of its rows', int64 `(n_records,)`."""
    column = changes.own[EVENT_TIME].cast(pa.int64())
    times = np.full(changes.decoded.refused.size, -_FIRST)
    rows = np.flatnonzero(np.asarray(column.is_valid()))
    np.minimum.at(times, changes.records[rows], np.asarray(column.fill_null(0))[rows])
    return np.where(times == -_FIRST, _FIRST, times)


def _timestamps(records: Records, count: int) -> Ints:
    """Returns the timestamps of the records in microseconds, int64 `(n_records,)`; a time after all others for null."""
    if "timestamp" not in records:
        return np.full(count, -_FIRST)
    return np.asarray(records["timestamp"].cast(pa.int64()).fill_null(-_FIRST))


def _bad(topic: str, records: Records, row: int, reason: str) -> BadRecord:
    partition, offset = records["partition"][row].as_py(), records["offset"][row].as_py()
    return BadRecord(topic, partition, offset, ErrorClass.LATE, "", reason)


def _moment(micros: int) -> str:
    return str(pa.scalar(int(micros), pa.timestamp("us")).cast(pa.string()))


# In the driver


def greatest_times(changes: ChangeReport) -> dict[str, dict[int, int]]:
    """Returns the greatest time of each partition that a batch has read, in microseconds, by topic and partition."""
    greatest: dict[str, dict[int, int]] = {}
    for topic, partition, _, time, _ in changes.notes.get(_NOTE, ()):
        if time > _FIRST:
            of_topic = greatest.setdefault(topic, {})
            of_topic[partition] = max(time, of_topic.get(partition, time))
    return greatest


def order_in_time(target: TableTarget, times: Watermark, before: OrderProgress) -> OrderProgress:
    """Returns how far a table is in the order of time. times: those of its records, as `OrderProgress.event_times`. before:
    that of the last commit.
    """
    late = target.changes.late if target.changes is not None else None
    complete_us = None if late is None or times.complete_to_ms is None else times.complete_to_ms - late.after_us
    if late is not None and late.is_final and before.windows_complete_to_us is not None:
        before_us = before.windows_complete_to_us
        complete_us = before_us if complete_us is None else max(complete_us, before_us)
    return OrderProgress(event_times=times, windows_complete_to_us=complete_us)


def has_closed_windows(progress: Progress) -> bool:
    """Whether a progress is that of main with `emit: closed`, which has complete windows alone."""
    complete_us, watermark = progress.order.windows_complete_to_us, progress.watermark
    return complete_us is not None and watermark == Watermark({}, complete_us // 1000)


def error_of_lost(progress: Progress, where: str) -> SpecError | None:
    """Returns the error of a table that continues from main, where `emit: closed` has put complete windows alone; None for
    another table. progress: that it would continue from.
    """
    if not has_closed_windows(progress):
        return None
    return SpecError(
        "the table would continue from main, which has complete windows alone by `emit: closed`: those that were open lack"
        " the records that were read",
        remedy="write `emit: closed` and `branch` as before, if the branch is left; otherwise drop the table, so that it"
        " reads its topics again",
        where=where,
    )


def has_hidden_late(changes: ChangeReport) -> bool:
    """Whether a task may have taken a late record for one in time, as an earlier part of its partition was read by another
    task.
    """
    greatest: dict[tuple[str, int], int] = {}
    for topic, partition, _, time, most_before in sorted(tuple(note) for note in changes.notes.get(_NOTE, ())):
        earlier = greatest.get((topic, partition), _FIRST)
        if earlier > most_before:
            return True
        greatest[topic, partition] = max(earlier, time)
    return False


def noted_times(progress: Progress) -> tuple[tuple[str, tuple[tuple[object, ...], ...]], ...]:
    """Returns what tasks must know of the times that are committed, by name (see KnownRecords)."""
    times = progress.order.event_times
    if not times.partitions:
        return ()
    places = (
        (topic, partition, time) for topic, numbers in times.partitions.items() for partition, time in numbers.items()
    )
    complete = () if times.complete_to_ms is None else ((_COMPLETE, ((times.complete_to_ms,),)),)
    windows_us = progress.order.windows_complete_to_us
    windows = () if windows_us is None else ((_WINDOWS, ((windows_us,),)),)
    return ((_NOTE, tuple(sorted(places))), *complete, *windows)
