"""Progress, ends and the clock in; batches of exact offset ranges out. Pure: the same input plans the same batches."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from frazil.ingest.record_sizes import ASSUMED_SHARE, records_per_file, span_of_whole_files, whole_files
from frazil.ingest.shared_reads import join_read
from frazil.kafka.port import Partition
from frazil.types import Batch, OffsetRange, Offsets

# A table with more than this to read is in catch-up: it gets jobs of its own.
CATCH_UP_RECORDS = 150_000
# The first batch decides the inferred columns.
FIRST_BATCH_RECORDS = 50_000
# A batch that is not large enough for files of the target size may grow beyond this as far as it takes no longer than a
# minute: what a failure costs, and how long a reader of a table in catch-up waits for the next rows. One whose rows are all
# in memory until it is over does not grow.
MAX_BATCH_RECORDS = 4_000_000
MAX_BATCH_BYTES = 1024 * 1024 * 1024
LONGEST_BATCH_S = 60.0
ASSUMED_RECORD_BYTES = 250
# A job that takes two seconds longer than the last one of its tables, or waits for another that does, makes no commit late.
HEAD_START = 1 / 15
LONGEST_HEAD_START_S = 2.0
# Beyond this no table is slowed down by its care: readers wait for rows too.
LONGEST_SLOWED_S = 60.0
# Tables of one job are committed one after another: with 200 at a time the last of them would be seconds late, and all
# of them due again in the same moment.
MAX_TABLES_PER_JOB = 16
# A task that reads for several tables holds rows of each that are not written yet.
MAX_CATCH_UPS_PER_JOB = 4


@dataclass(frozen=True)
class TableClock:
    """When a table may commit again, and how much at a time.

    next_due_s: on the monotonic clock. target_bytes: of a data file; min_bytes: of one that need not wait for the
    interval, None for the target. record_bytes: average size of its records, as far as known; row_bytes: what each takes
    in a file, None while that is not known. is_small: they are known to be small, every one of them. is_first: nothing is
    known of its columns yet; empty_batches: so many first batches had no field, and more was behind them. records_per_s: how
    fast its last batch was. tasks: that a large batch is split into. buffered_bytes: what a record takes in memory at least,
    where tasks keep all rows of a batch until they have seen the last; None where they write them as they come.
    most_records: of a batch, where more of them together took more than a task may; None where that is not known.
    """

    table: str
    next_due_s: float
    target_bytes: int
    record_bytes: float = ASSUMED_RECORD_BYTES
    is_small: bool = False
    is_first: bool = False
    row_bytes: float | None = None
    min_bytes: int | None = None
    records_per_s: float = 0.0
    tasks: int = 1
    empty_batches: int = 0
    buffered_bytes: int | None = None
    most_records: int | None = None

    def file_bytes(self, span: int) -> float:
        """How large the files of so many records will be together."""
        return span * (self.row_bytes or self.record_bytes * ASSUMED_SHARE)

    @property
    def records_per_file(self) -> int:
        """How many records a file of the target size holds."""
        return records_per_file(self.target_bytes, self.file_bytes(1))


def plan_batch(position: Offsets, ends: Mapping[Partition, int], clock: TableClock, now_s: float) -> Batch | None:
    """What the table reads next, or None when it is not due or there is nothing.

    position: per topic and partition the next offset to read. Due is a table whose interval has passed, or for which
    enough waits to fill a file.
    """
    waiting = [
        OffsetRange(topic, partition, offset, ends[topic, partition])
        for topic, partitions in position.items()
        for partition, offset in partitions.items()
        if ends.get((topic, partition), offset) > offset
    ]
    written, is_early = clock.file_bytes(sum(r.span for r in waiting)), now_s < clock.next_due_s
    is_full = written >= (clock.min_bytes or clock.target_bytes)
    if not waiting or (is_early and (clock.is_first or not is_full)):
        return None
    most, files = batch_limit(clock), int(written / clock.target_bytes)
    limit = most
    # What is more than whole files can wait for the next ones, or for the interval; a search for columns makes no files.
    if (is_early or files >= clock.tasks) and not (clock.is_first and clock.empty_batches):
        limit = min(limit, clock.records_per_file * whole_files(files, clock.tasks))
    ranges = tuple(limit_ranges(waiting, limit))
    span = sum(r.span for r in ranges)
    # Where memory ends a batch, its files are as small as they are, and the rest waits.
    is_for_files = is_early and (clock.buffered_bytes is None or span < most)
    return Batch(clock.table, ranges, clock.is_small, _most_tasks(clock, span, is_for_files))


def pace_s(interval_s: float) -> float:
    """How long after one batch the next is due: a little before the interval has passed, so that a wait for another
    table's job does not make its commit late.
    """
    return interval_s - min(interval_s * HEAD_START, LONGEST_HEAD_START_S)


def slowed_s(interval_s: float, slowed_by: float) -> float:
    """The interval while table care has asked for commits that are so many times as far apart."""
    return max(interval_s, min(interval_s * slowed_by, LONGEST_SLOWED_S))


def _most_tasks(clock: TableClock, span: int, is_for_files: bool) -> int | None:
    """As each task writes a file of its own: how many of them leave files of the size that the batch was due for. A batch
    whose interval has passed is in more of a hurry than its files, unless the pipeline file says how small they may be.
    """
    if clock.min_bytes:
        return max(1, int(clock.file_bytes(span) / clock.min_bytes))
    return max(1, round(clock.file_bytes(span) / clock.target_bytes)) if is_for_files else None


def batch_limit(clock: TableClock) -> int:
    """The most offsets that one batch of the table covers."""
    usual = _usual_limit(clock)
    return usual if clock.most_records is None else min(usual, clock.most_records)


def _usual_limit(clock: TableClock) -> int:
    by_bytes = int(MAX_BATCH_BYTES / max(1.0, clock.record_bytes, clock.buffered_bytes or 0))
    if clock.is_first:
        # It is never committed, so each try begins where the last one did: without a longer one it would find no more.
        return max(1, min(FIRST_BATCH_RECORDS, by_bytes)) << clock.empty_batches
    usual = max(1, min(MAX_BATCH_RECORDS, by_bytes))
    most = max(usual, int(clock.records_per_s * LONGEST_BATCH_S)) if clock.buffered_bytes is None else usual
    return span_of_whole_files(usual, most, clock.records_per_file, clock.tasks)


def limit_ranges(ranges: Iterable[OffsetRange], limit: int) -> list[OffsetRange]:
    """The ranges cut to `limit` offsets in all, fairly: short ones whole, long ones to the same length."""
    by_length = sorted(ranges, key=lambda r: (r.span, r.topic, r.partition))
    kept = []
    left = limit
    for number, r in enumerate(by_length):
        share = left // (len(by_length) - number)
        span = min(r.span, share)
        left -= span
        if span:
            kept.append(OffsetRange(r.topic, r.partition, r.start, r.start + span))
    return sorted(kept, key=lambda r: (r.topic, r.partition))


def group_batches(batches: Iterable[Batch], alone: Container[str] = ()) -> tuple[list[list[Batch]], list[list[Batch]]]:
    """Batches in groups that one job each can serve: small ones, and catch-ups, which go with those alone that read the same
    records. What is read for several tables may be cut (`shared.py`). alone: tables that share no job. Groups come in the
    order of their first batches.
    """
    groups: list[list[Batch]] = []
    catch_ups: list[list[Batch]] = []
    for batch in batches:
        pool = groups if batch.span <= CATCH_UP_RECORDS else catch_ups
        # Of catch-ups one group is next, and the others are compared when they are.
        for number, group in enumerate(pool if pool is groups else pool[:1]):
            if _may_join(group, batch, alone) and (joined := join_read(group, batch)):
                pool[number] = joined
                break
        else:
            pool.append([batch])
    return groups, catch_ups


def _may_join(group: list[Batch], batch: Batch, alone: Container[str]) -> bool:
    if len(group) >= MAX_TABLES_PER_JOB or batch.table in alone or group[0].table in alone:
        return False
    is_small = batch.span <= CATCH_UP_RECORDS
    return is_small or (len(group) < MAX_CATCH_UPS_PER_JOB and not batch.topics.isdisjoint(group[0].topics))


def lag_records(position: Offsets, ends: Mapping[Partition, int]) -> int:
    """Offsets between the position and the ends."""
    return sum(
        max(0, ends.get((topic, partition), offset) - offset)
        for topic, partitions in position.items()
        for partition, offset in partitions.items()
    )
