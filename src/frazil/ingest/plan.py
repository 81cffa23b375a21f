"""Plans batches of exact offset ranges from progress, ends and the clock. Pure: the same input gives the same batches."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from frazil.catalog.port import TableSize
from frazil.kafka.port import Partition
from frazil.report import TaskReport
from frazil.types import Batch, OffsetRange, Offsets, Watermark, by_partition, by_topic, later

# A table with a larger batch than this is in catch-up: it gets jobs of its own.
CATCH_UP_RECORDS = 150_000
# The first batch decides the inferred columns.
FIRST_BATCH_RECORDS = 50_000
# A batch that is not large enough for files of the target size may grow beyond this as far as it takes no longer than a
# minute, which limits the cost of a failure and the wait of a table's readers for the next rows. A batch whose rows are
# buffered until its end does not grow.
MAX_BATCH_RECORDS = 4_000_000
MAX_BATCH_BYTES = 1024 * 1024 * 1024
LONGEST_BATCH_S = 60.0
ASSUMED_RECORD_BYTES = 250
# Batches are due this much early, so that a job that takes two seconds longer than the last one delays no commit.
HEAD_START = 1 / 15
LONGEST_HEAD_START_S = 2.0
# Table maintenance lengthens no commit interval beyond this, as readers wait for rows.
LONGEST_SLOWED_S = 60.0
# Tables of one job are committed one after another: with 200 tables the last commit would be seconds late, and all
# tables would be due again at the same time.
MAX_TABLES_PER_JOB = 16
# New tables have no commit that could be late, and of tables just taken from another process each is: the more of them share
# a job, the less of it each pays. All tables of a job that fails are read again, each by itself.
MAX_NEW_TABLES_PER_JOB = 64
# A task that reads for several tables buffers unwritten rows of each.
MAX_CATCH_UPS_PER_JOB = 4
# An upsert table reads no more than fits into memory, while an append table beside it could fill large files.
_MUCH_RECORDS = 2_000_000
ASSUMED_SHARE = 1 / 6
# A smaller file is mostly footer, which shows nothing about a large one.
LEAST_TYPICAL_BYTES = 32 * 1024
# Estimates are never exact: a file that is planned a little too small is one file, one that is too large becomes two.
AIM = 0.95
# Memory of a column with or without a value, and of the order of a change.
_VALUE_BYTES, _PLACE_BYTES = 8, 50


@dataclass(frozen=True)
class TableClock:
    """The facts about a table that decide when its next batch is due, and how large it is."""

    #: `namespace.table`.
    table: str
    #: When the next batch is due, on the monotonic clock in seconds.
    next_due_s: float
    #: The target size of a data file.
    target_bytes: int
    #: The average size of the table's records, as far as it is known.
    record_bytes: float = ASSUMED_RECORD_BYTES
    #: Whether the next batch decides the columns.
    is_first: bool = False
    #: The average size of a row in a file; None while it is not known.
    row_bytes: float | None = None
    #: The size of a file that need not wait for the interval; None for the target size.
    min_bytes: int | None = None
    #: Records per second of the last batch.
    records_per_s: float = 0.0
    #: The number of tasks that a large batch is split into.
    tasks: int = 1
    #: First batches without a column that had more records behind them.
    empty_batches: int = 0
    #: The least memory of a record in a task that buffers all rows of its batch; None where tasks write rows as they
    #: are read.
    buffered_bytes: int | None = None
    #: The largest number of records in a batch, after more of them took more than a task may; None without such a
    #: limit.
    most_records: int | None = None
    #: How long the store's credentials are still valid.
    credentials_left_s: float = float("inf")

    def file_bytes(self, span: int) -> float:
        """Returns the size of the files of `span` records together."""
        return span * (self.row_bytes or self.record_bytes * ASSUMED_SHARE)

    @property
    def records_per_file(self) -> int:
        """The number of records in a file of the target size."""
        return records_per_file(self.target_bytes, self.file_bytes(1))


def plan_batch(position: Offsets, ends: Mapping[Partition, int], clock: TableClock, now_s: float) -> Batch | None:
    """Returns the table's next batch, or None when it is not due or there are not records.

    A table is due when its interval has passed, or when enough records for a file are waiting. position: the next
    offsets to read, by topic and partition.
    """
    waiting = [
        OffsetRange(*place, offset, ends[place])
        for place, offset in by_partition(position).items()
        if ends.get(place, offset) > offset
    ]
    written, is_early = clock.file_bytes(sum(r.span for r in waiting)), now_s < clock.next_due_s
    is_full = written >= (clock.min_bytes or clock.target_bytes)
    if not waiting or (is_early and (clock.is_first or not is_full)):
        return None
    most, files = batch_limit(clock), int(written / clock.target_bytes)
    limit = most
    # Records beyond whole files wait for the next ones, or for the interval; a search for columns writes no files.
    if (is_early or files >= clock.tasks) and not (clock.is_first and clock.empty_batches):
        limit = min(limit, clock.records_per_file * whole_files(files, clock.tasks))
    ranges = tuple(limit_ranges(waiting, limit))
    span = sum(r.span for r in ranges)
    # A batch that memory limits writes smaller files, and the remaining records wait.
    is_for_files = is_early and (clock.buffered_bytes is None or span < most)
    return Batch(clock.table, ranges, _most_tasks(clock, span, is_for_files))


def pace_s(interval_s: float) -> float:
    """Returns the seconds between a batch and the next: a little less than the interval, so that a wait for the job of
    another table does not delay the commit.
    """
    return interval_s - min(interval_s * HEAD_START, LONGEST_HEAD_START_S)


def slowed_s(interval_s: float, slowed_by: float) -> float:
    """Returns the interval in seconds, `slowed_by` times as long, but at most LONGEST_SLOWED_S."""
    return max(interval_s, min(interval_s * slowed_by, LONGEST_SLOWED_S))


def _most_tasks(clock: TableClock, span: int, is_for_files: bool) -> int | None:
    """Returns the number of tasks with which each file has the size that the batch was due for, as each task writes a
    file of its own; None for any number. A batch whose interval has passed is not limited, unless the pipeline file has
    a least size.
    """
    if clock.min_bytes:
        return max(1, int(clock.file_bytes(span) / clock.min_bytes))
    return max(1, round(clock.file_bytes(span) / clock.target_bytes)) if is_for_files else None


def batch_limit(clock: TableClock) -> int:
    """Returns the largest number of offsets in one batch of the table."""
    usual = _usual_limit(clock)
    return usual if clock.most_records is None else min(usual, clock.most_records)


def _usual_limit(clock: TableClock) -> int:
    by_bytes = int(MAX_BATCH_BYTES / max(1.0, clock.record_bytes, clock.buffered_bytes or 0))
    if clock.is_first:
        # A first batch is never committed, so each attempt begins at the same offset and must be longer to find more.
        return max(1, min(FIRST_BATCH_RECORDS, by_bytes)) << clock.empty_batches
    usual, longest_s = min(MAX_BATCH_RECORDS, by_bytes), LONGEST_BATCH_S
    if clock.credentials_left_s < float("inf") and clock.records_per_s:
        # Tasks cannot renew credentials, so a batch takes half of the time that is left, at the pace of the last one. The
        # pace of a small batch is that of its overhead: limited by it, the next one would be smaller still.
        longest_s = min(longest_s, clock.credentials_left_s / 2)
        usual = min(usual, max(CATCH_UP_RECORDS, int(clock.records_per_s * clock.credentials_left_s / 2)))
    usual = max(1, usual)
    most = max(usual, int(clock.records_per_s * longest_s)) if clock.buffered_bytes is None else usual
    return span_of_whole_files(usual, most, clock.records_per_file, clock.tasks)


def limit_ranges(ranges: Iterable[OffsetRange], limit: int) -> list[OffsetRange]:
    """Returns the ranges cut to `limit` offsets in all: short ranges complete, long ones to one length."""
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


def learn_row_bytes(known: float | None, report: TaskReport, stored: float | None = None) -> float | None:
    """Returns the size of a record in a file, in bytes: the mean of the known size and that of the batch of `report`. Of
    small files the latter counts where it is less than is known, or than a row takes in the `stored` table: records that
    have no row take nothing.
    """
    written = sum(file.size_bytes for file in report.written.data)
    if not report.written.data or not report.counts.record_count:
        return known
    measured = written / report.read_count
    if written < LEAST_TYPICAL_BYTES * len(report.written.data):
        most = known or stored
        return measured if most is not None and measured < most else known
    return measured if known is None else (known + measured) / 2


def stored_row_bytes(size: TableSize | None) -> float | None:
    """Returns the size of a row in the stored table, in bytes; None where its files are small."""
    if size is None or not size.row_count or size.size_bytes < LEAST_TYPICAL_BYTES * size.file_count:
        return None
    return size.size_bytes / size.row_count


def buffered_row_bytes(columns: int) -> int:
    """Returns the least memory of a buffered change in a table with `columns` columns, in bytes: far more than the
    record, where few columns have a value.
    """
    return _PLACE_BYTES + columns * _VALUE_BYTES


def records_per_file(file_bytes: int, row_bytes: float) -> int:
    """Returns the number of records in a file of this size; at least one."""
    return max(1, int(AIM * file_bytes / max(row_bytes, 1e-3)))


def whole_files(files: int, tasks: int) -> int:
    """Returns the largest number of files, up to `files`, that the tasks share evenly; at least one."""
    return files // tasks * tasks if files >= tasks else max(1, files)


def span_of_whole_files(usual: int, most: int, per_file: int, tasks: int) -> int:
    """Returns the number of records with which each task of a batch writes files of the target size and no remainder:
    about `usual` where that has several files, more where it has less than one for each task, never more than `most`.
    """
    a_file_each = per_file * tasks
    return min(most, max(1, usual // a_file_each) * a_file_each)


def group_batches(batches: Iterable[Batch], alone: Container[str] = ()) -> tuple[list[list[Batch]], list[list[Batch]]]:
    """Returns small batches and catch-ups in groups, one job for each. A catch-up shares a job only with others of its
    topics. Batches that share a read may be cut (`shared_reads`). alone: tables that share no job. Groups are in the
    order of their first batches.
    """
    groups: list[list[Batch]] = []
    catch_ups: list[list[Batch]] = []
    for batch in batches:
        pool = groups if batch.span <= CATCH_UP_RECORDS else catch_ups
        # Only the first group of catch-ups runs next; the others are compared when they are first.
        for number, group in enumerate(pool if pool is groups else pool[:1]):
            if _may_join(group, batch, alone) and (joined := join_read(group, batch)):
                pool[number] = joined
                break
        else:
            pool.append([batch])
    return groups, catch_ups


def _may_join(group: list[Batch], batch: Batch, alone: Container[str]) -> bool:
    if batch.table in alone or group[0].table in alone:
        return False
    if batch.rest and batch.rest in {other.rest for other in group}:
        return True  # However many they are, they share the records of one.
    count = len({other.rest or other.table for other in group})
    if count >= _most_tables(group, batch):
        return False
    is_small = batch.span <= CATCH_UP_RECORDS
    return is_small or (count < MAX_CATCH_UPS_PER_JOB and not batch.topics.isdisjoint(group[0].topics))


def _most_tables(group: list[Batch], batch: Batch) -> int:
    """Returns how many tables may share the job of `group` and `batch`: more where all of them are new and small."""
    if len(group) < MAX_TABLES_PER_JOB or not batch.is_new or len(group) >= MAX_NEW_TABLES_PER_JOB:
        return MAX_TABLES_PER_JOB
    is_small = batch.span + sum(other.span for other in group) <= CATCH_UP_RECORDS
    return MAX_NEW_TABLES_PER_JOB if is_small and all(other.is_new for other in group) else MAX_TABLES_PER_JOB


def join_read(group: Sequence[Batch], batch: Batch) -> list[Batch] | None:
    """Returns the group with `batch`, with batches of the same partitions cut to the same ends. Returns None where the
    batch must be read alone: its end must not be moved, it shares no topic, or too few records of a batch would be
    left.
    """
    others = [other for other in group if not other.topics.isdisjoint(batch.topics)]
    if not others:
        return [*group, batch]
    if any(candidate.is_apart for candidate in (batch, *others)):
        return None
    ends = _first_ends((batch, *others))
    joined = [_up_to(member, ends) for member in (*group, batch)]
    pairs = zip(joined, (*group, batch), strict=True)
    are_enough = all(2 * cut.span >= whole.span or cut.span >= _MUCH_RECORDS for cut, whole in pairs)
    return joined if are_enough and all(r.span > 0 for cut in joined for r in cut.ranges) else None


def read_once(batches: Iterable[Batch]) -> list[OffsetRange]:
    """Returns the ranges that cover all batches, one for each partition."""
    covered: dict[Partition, OffsetRange] = {}
    for r in (r for batch in batches for r in batch.ranges):
        offsets = covered.setdefault((r.topic, r.partition), r)
        covered[r.topic, r.partition] = replace(r, start=min(r.start, offsets.start), end=max(r.end, offsets.end))
    return list(covered.values())


def own_starts(batches: Sequence[Batch]) -> dict[str, Offsets]:
    """Returns the offsets at which the records of a table begin, by table, topic and partition, for tables that do not
    use all records of their topics' read.
    """
    read = {(r.topic, r.partition): r.start for r in read_once(batches)}
    starts: dict[str, Offsets] = {}
    for batch in batches:
        own = {(r.topic, r.partition): r.start for r in batch.ranges}
        if own != {place: start for place, start in read.items() if place[0] in batch.topics}:
            starts[batch.table] = by_topic(own)
    return starts


def tables_read_with(batch: Batch, batches: Iterable[Batch]) -> frozenset[str]:
    """Returns the other tables that the batch's topics are read for."""
    return frozenset(
        other.table for other in batches if other is not batch and not other.topics.isdisjoint(batch.topics)
    )


def _first_ends(batches: Iterable[Batch]) -> dict[Partition, int]:
    ends: dict[Partition, int] = {}
    for r in (r for batch in batches for r in batch.ranges):
        ends[r.topic, r.partition] = min(r.end, ends.get((r.topic, r.partition), r.end))
    return ends


def _up_to(batch: Batch, ends: dict[Partition, int]) -> Batch:
    cut = (replace(r, end=min(r.end, ends.get((r.topic, r.partition), r.end))) for r in batch.ranges)
    return replace(batch, ranges=tuple(cut))


def lag_records(position: Offsets, ends: Mapping[Partition, int]) -> int:
    """Returns the number of offsets between the position and the ends."""
    return sum(max(0, ends.get(place, offset) - offset) for place, offset in by_partition(position).items())


def open_transactions(
    position: Offsets, ends: Mapping[Partition, int], log_ends: Mapping[Partition, int]
) -> tuple[OffsetRange, ...]:
    """Returns the offsets behind `position` that wait for an open transaction, one range for each partition with one. A
    range begins at the transaction's first offset.

    ends: the ends of what may be read (Kafka's last stable offsets), requested after `log_ends`: a record that arrived
    between the two requests would otherwise seem to wait.
    """
    return tuple(
        OffsetRange(*place, ends[place], log_ends[place])
        for place, offset in sorted(by_partition(position).items())
        if place in ends and offset <= ends[place] < log_ends.get(place, 0)
    )


def known_lag(position: Offsets, ends: Mapping[Partition, int], held: Iterable[OffsetRange] = ()) -> int | None:
    """Returns the number of offsets between the position and the ends of the logs; None where an end is before the
    position: the topic is another one now, or has lost records. held: those that wait for open transactions.
    """
    is_behind = any(ends.get(place, offset) < offset for place, offset in by_partition(position).items())
    return None if is_behind else lag_records(position, ends) + sum(r.span for r in held)


def advance_watermark(
    before: Watermark,
    latest_ms: Mapping[str, Mapping[int, int]],
    ranges: tuple[OffsetRange, ...],
    position: Offsets,
    ends: Mapping[Partition, int],
    silent: Container[Partition] = (),
) -> Watermark:
    """Returns the watermark after a batch; it never goes back.

    A partition that is read to its end without new records does not hold the others back. A partition with records to
    read does, also before the first of them is read.

    before: the watermark before the batch. latest_ms: the latest timestamps in the batch, in milliseconds since the
    epoch. ranges: the offsets of the batch. position: the table's offsets after the batch. ends: the ends when it was
    planned. silent: partitions that have records to read whatever their ends: those behind an open
    transaction; those without a known end, which may have any.
    """
    marks = later(before.partitions, latest_ms)
    read_to = by_partition(position).items()
    behind = {place for place, offset in read_to if place in silent or ends.get(place, offset) > offset}
    if any(partition not in marks.get(topic, {}) for topic, partition in behind):
        return Watermark(marks, before.complete_to_ms)
    read = {(r.topic, r.partition) for r in ranges}
    holding = [mark for place, mark in by_partition(marks).items() if place in read | behind]
    complete = [ms for ms in (before.complete_to_ms, min(holding, default=None)) if ms is not None]
    return Watermark(marks, max(complete, default=None))
