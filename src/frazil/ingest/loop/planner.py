"""Plans the next batch of each table from the ends of its topics: the state around the pure functions of `plan`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from operator import eq

import structlog

from frazil.clock import Clock
from frazil.errors import UnavailableError
from frazil.ingest.batches.job import JobRunner
from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.plan import TableClock, known_lag, lag_records, open_transactions, plan_batch
from frazil.ingest.tables.cuts import Cuts
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Planned, Table
from frazil.kafka.port import Partition, Source
from frazil.types import by_partition

log = structlog.get_logger("frazil")

# How often the ends of the logs are requested: only lag depends on them, and only behind an open transaction.
LOG_ENDS_EVERY_S = 5.0


class Planner:
    """Plans one table at a time."""

    def __init__(self, discovery: Discovery, jobs: JobRunner, time: Clock, cuts: Cuts | None = None) -> None:
        self._discovery = discovery
        self._cuts = cuts or Cuts(time)
        self._jobs = jobs
        self._time = time
        self._goal: dict[Partition, int] | None = None
        self._open_goals: set[Partition] = set()
        self._leaderless: set[str] = set()
        self._gathering = Gathering()
        #: The pauses between turns of the loop.
        self.polling = Polling()
        #: The end of every partition, as last requested.
        self.ends: dict[Partition, int] = {}
        #: The end of every partition's log, records behind an open transaction included, as last requested.
        self.log_ends: Mapping[Partition, int] = {}
        self._log_ends_due_s = float("-inf")
        #: Whether an end is another than at the request before.
        self.is_changed = False
        #: When the end of a partition was last another one, and when all ends are requested again.
        self._changed_s: dict[Partition, float] = {}
        self._all_due_s = float("-inf")
        #: Partitions without an end, such as those without a leader.
        self.silent: frozenset[Partition] = frozenset()

    def request_ends(self, source: Source) -> None:
        """Asks Kafka for the ends of all tables whose lag they determine, and sets that of tables without batches; where
        it costs much, asks between two such requests for the ends of those partitions alone that have got records
        in the last seconds.

        Raises: UnavailableError when Kafka does not answer.
        """
        now_s = self._time.monotonic_s()
        self._changed_s = {place: at_s for place, at_s in self._changed_s.items() if now_s - at_s < IDLE_AFTER_S}
        if now_s < self._all_due_s:
            self._ask(source, self._changed_s.keys(), now_s)
            return
        tables = self._discovery.tables.values()
        measured = [table for table in tables if _is_planned(table) or table.has_its_topics]
        asked = {partition for table in measured for partition in table.partitions()}
        gone = self.ends.keys() - asked
        self.ends = {place: end for place, end in self.ends.items() if place in asked}
        self.silent &= asked
        are_logs_due = now_s >= self._log_ends_due_s
        if are_logs_due:
            self.log_ends = source.log_ends(asked) if asked else {}
            self._log_ends_due_s = now_s + LOG_ENDS_EVERY_S
        self._ask(source, asked, now_s)
        self.is_changed |= bool(gone)
        for table in tables:
            if table.catalog.is_loaded and (are_logs_due or not _is_planned(table)):
                self.is_changed |= self.measure(table)
        ended_s = self._time.monotonic_s()
        self._all_due_s = ended_s + min(LONGEST_IDLE_POLL_S, (ended_s - now_s) / IDLE_POLL_SHARE)

    def _ask(self, source: Source, asked: Set[Partition], now_s: float) -> None:
        ends = source.ends(asked) if asked else {}
        if asked and not ends and self._discovery.outage is not None:
            raise self._discovery.outage  # Neither ends nor topics are returned: Kafka itself is unavailable.
        silent = asked - ends.keys()
        moved = [partition for partition, end in ends.items() if self.ends.get(partition) != end]
        self.is_changed = bool(moved) or not silent.isdisjoint(self.ends)
        self.ends = {place: end for place, end in self.ends.items() if place not in silent} | ends
        self.silent = (self.silent - asked) | silent
        self._changed_s |= dict.fromkeys(moved, now_s)

    def make_cuts(self, source: Source) -> None:
        """Finds where batches of tables that readers get together end. Raises: UnavailableError."""
        self._cuts.make(self._discovery.tables, self.ends, source)

    def measure(self, table: Table) -> bool:
        """Sets the lag of a table from the ends as last requested; returns whether it is another than before."""
        offsets, position = table.offsets, table.awaited_from()
        before = offsets.lag_records, offsets.open_transactions
        is_known = (_is_planned(table) or table.has_its_topics) and not table.unplaced()
        held = open_transactions(position, self.ends, self.log_ends)
        offsets.set_lag(known_lag(position, self.ends, held) if is_known else None, self._time.now_ms(), held)
        return before != (offsets.lag_records, offsets.open_transactions)

    def is_idle(self, table: Table) -> bool:
        """Whether planning the table would change nothing: a quick check, as a thousand tables may be idle."""
        return (
            table.status.run_state is RunState.WAITING
            and not self.silent
            and not table.offsets.needs_check
            and not table.catalog.was_asked
            and not table.schema.was_asked
            and self._has_nothing_new(table)
        )

    def set_idle_status(self, table: Table) -> None:
        """Sets what a table without a batch waits for: a topic, a leader, or records."""
        waits_for = self.silent if self._goal is None else self._open_goals
        silent = [partition for partition in table.partitions() if partition in waits_for] if waits_for else []
        is_over = table.offsets.read_to is not None or table.name in self._leaderless
        self._leaderless.discard(table.name)
        if not table.offsets.topics:
            table.offsets.set_lag(None, self._time.now_ms())
            names = ", ".join(s.literal or f"/{s.pattern}/" for s in table.spec.source.topics)
            table.status.set(
                RunState.BACKING_OFF,
                UnavailableError(f"topic {names} does not exist", remedy="create the topic, or correct its name"),
            )
        elif silent:
            self._leaderless.add(table.name)
            table.status.set(RunState.BACKING_OFF, _no_leader(silent[0]))
        elif is_over and table.status.run_state is not RunState.WAITING:
            table.status.set(RunState.WAITING)

    def set_goal(self) -> None:
        """Limits later batches to the ends at the first call; for a partition without one, to its first known end."""
        if self._goal is None:
            self._goal, self._open_goals = {}, {*self.ends, *self.silent}
        for partition in self._open_goals & self.ends.keys():
            self._goal[partition] = self.ends[partition]
        self._open_goals -= self.ends.keys()

    def is_caught_up(self, tables: Iterable[Table]) -> bool:
        """Whether every table that has not stopped has reached the goal, or all of it except an incomplete transaction."""
        if self._goal is None:
            return False
        for table in tables:
            if table.status.run_state is RunState.STOPPED:
                continue
            if not self._open_goals.isdisjoint(table.partitions()):
                return False
            read_to = by_partition(
                table.offsets.search.read_to if table.is_first and table.offsets.search.read_to else table.position()
            )
            wait = table.offsets.waiting
            waiting = wait.ends if wait is not None and not wait.keeps_run else {}
            if any(
                max(read_to.get(partition, -1), waiting.get(partition, -1)) < self._goal.get(partition, 0)
                for partition in table.partitions()
            ):
                return False
        return True

    def plan(self, table: Table, now_s: float) -> Planned | None:
        """Returns the table's next batch, or None when it is not due or there are not records; updates its lag.

        Raises: TableStopped when records are gone that the table has not read, or it is another table's too.
        """
        if (
            not table.catalog.is_loaded
            or not table.offsets.topics
            or (not table.offsets.needs_check and self._has_nothing_new(table))
        ):
            return None
        self._discovery.refuse_shared(table)
        self._discovery.check_start(table)
        self._discovery.add_first_offsets(table)
        if table.unplaced():  # After a commit `start` would no longer apply to these partitions.
            return None
        position = table.position()
        self.measure(table)
        is_behind_start = any(self.ends.get(place, o) < o for place, o in by_partition(position).items())
        if table.offsets.needs_check or is_behind_start:
            for lost in self._discovery.check_offsets(table, self.ends):
                place = {"topic": lost.topic, "partition": lost.partition, "first": lost.start, "last": lost.end - 1}
                log.warning("records_skipped", table=table.name, **place)
            if table.unplaced():
                return None
            position = table.position()
        if self._is_waiting(table, now_s) or self._waits_for_shared_read(table, now_s):
            return None
        if self._gathering.waits(table, self._discovery.tables.values(), now_s):
            return None
        reach = self._readable(self.ends, self._cuts.limits(table))
        batch = plan_batch(position, reach, self._clock(table, now_s), now_s)
        if batch is None:
            table.offsets.read_to = (
                None if lag_records(position, self.ends) else {p: self.ends.get(p) for p in table.partitions()}
            )
            return None
        share, is_new = (
            table.spec.source.share,
            not table.schedule.last_batch_at_s or table.progress.snapshot_id is None,
        )
        batch = replace(batch, is_apart=table.needs_one_task, rest=share.rest if share else "", is_new=is_new)
        planned = Planned(
            table, batch, position, dict(self.ends), dict(reach), now_s, self.silent, log_ends=self.log_ends
        )
        return planned.with_cut(table.offsets.cut)

    def due_s(self, table: Table, due_s: float) -> float:
        """Returns when a table is due that would be due at `due_s`: with another table of its topics and interval that
        is due a little earlier, so that one read serves both from then on.
        """
        earliest_s = due_s - (table.schedule.interval_s or 0.0) / 2
        others = (
            other.schedule.next_due_s
            for other in self._discovery.tables.values()
            if earliest_s <= other.schedule.next_due_s < due_s
            and other is not table
            and other.schedule.interval_s == table.schedule.interval_s
            and not other.schedule.failures
            and not table.offsets.topics.keys().isdisjoint(other.offsets.topics)
        )
        return min(others, default=due_s)

    def _waits_for_shared_read(self, table: Table, now_s: float) -> bool:
        """Whether other tables of its last shared read are still in that batch. The table waits for them as long as the
        batch has taken, since a read of its own would cost as much.
        """
        is_patient = now_s < 2 * table.schedule.batch_done_at_s - table.schedule.last_batch_at_s
        others = (self._discovery.tables[name] for name in table.schedule.read_with) if is_patient else ()
        if not any(
            other.schedule.in_flight and other.schedule.last_batch_at_s == table.schedule.last_batch_at_s
            for other in others
        ):
            table.schedule.read_with = frozenset()
        return bool(table.schedule.read_with)

    def _clock(self, table: Table, now_s: float) -> TableClock:
        clock = table.clock(self._time.now_ms(), self._jobs.parallelism)
        # With a goal no more records are collected, so that no batch waits for its interval; a table without columns
        # waits, as it would otherwise be tried without a pause.
        is_hurrying = (self._goal is not None or self._cuts.hurries(table)) and not clock.is_first
        return replace(clock, next_due_s=min(clock.next_due_s, now_s)) if is_hurrying else clock

    def _is_waiting(self, table: Table, now_s: float) -> bool:
        """Whether the table waits for the rest of a transaction, and no record has arrived since the last search."""
        waiting = table.offsets.waiting
        return (
            waiting is not None
            and now_s < waiting.until_s
            and waiting.position == table.position()
            and all(self.ends.get(partition, -1) == end for partition, end in waiting.ends.items())
        )

    def _has_nothing_new(self, table: Table) -> bool:
        """Whether the ends are those that the table was last read to."""
        read_to, ends = table.offsets.read_to, self.ends
        if read_to is None or len(read_to) != table.offsets.partition_count:
            return False
        # Without a generator: every turn compares every idle table.
        return all(map(eq, map(ends.get, read_to), read_to.values()))

    def _readable(self, ends: Mapping[Partition, int], limits: Mapping[Partition, int]) -> Mapping[Partition, int]:
        if limits:
            ends = {partition: min(end, limits.get(partition, end)) for partition, end in ends.items()}
        if self._goal is None:
            return ends
        return {partition: min(end, self._goal.get(partition, 0)) for partition, end in ends.items()}


def _is_planned(table: Table) -> bool:
    """Whether this process plans batches of the table, and measures its lag then."""
    schedule = table.schedule
    return schedule.is_owned and not schedule.is_paused and table.status.run_state is not RunState.STOPPED


def _no_leader(partition: Partition) -> UnavailableError:
    """Returns the error of a table that waits for this partition."""
    return UnavailableError(
        f"partition {partition[1]} of topic {partition[0]} has no leader, or one that does not answer",
        remedy="check that the brokers of the partition are running; other partitions are still read",
        where=f"topic {partition[0]}, partition {partition[1]}",
    )


SHORTEST_POLL_S = 0.02
LONGEST_POLL_S = 0.25
# The same while no topic has got a record for a while.
LONGEST_IDLE_POLL_S = 0.5
IDLE_AFTER_S = 10.0
# Requests for ends and planning may take this share of the loop's time, so that hundreds of idle topics cost little.
POLL_SHARE = 0.03
# The same while no topic has got a record for a while.
IDLE_POLL_SHARE = 0.01
# While tables become due one after another they may take this share, and this one while work ends one after another.
BUSY_POLL_SHARE = 0.25
AFTER_WORK_SHARE = 0.1
# One slow answer, or a broker that stops answering, must not make the loop wait for seconds: an answer counts at most as
# a few times the average of the last ones, so that a broker that stays slow is noticed after a dozen answers.
ASKS_REMEMBERED = 8
MOST_TIMES = 4
LEAST_S = 0.02


class Polling:
    """The average cost of a turn of the loop, which requests the ends of topics and plans, and the pause that follows
    from it.
    """

    def __init__(self) -> None:
        self._cost_s = 0.0
        self._changed_s = self._now_s = 0.0

    def record(self, now_s: float, took_s: float, is_changed: bool) -> None:
        """Adds the duration of a turn to the average. is_changed: whether an end is another than before."""
        self._now_s = now_s
        if is_changed:
            self._changed_s = now_s
        counted_s = min(took_s, MOST_TIMES * self._cost_s + LEAST_S)
        self._cost_s += (counted_s - self._cost_s) / ASKS_REMEMBERED

    @property
    def after_work_s(self) -> float:
        """The shortest pause that ends because work has ended."""
        return self._cost_s / AFTER_WORK_SHARE

    def pause_s(self, next_due_in_s: float) -> float:
        """Returns the pause before the next turn, which ends no later than the next table is due."""
        is_idle = self._now_s - self._changed_s >= IDLE_AFTER_S
        longest_s, share = (LONGEST_IDLE_POLL_S, IDLE_POLL_SHARE) if is_idle else (LONGEST_POLL_S, POLL_SHARE)
        earned_s = max(SHORTEST_POLL_S, self._cost_s / share)
        return min(earned_s, max(longest_s, self._cost_s / BUSY_POLL_SHARE, next_due_in_s))


# The longest time for which tables wait for new ones, so that one which hangs does not hold up the others.
_GATHER_S = 10.0


class Gathering:
    """Knows which new tables of a division are not ready, as of a turn of the loop. They wait for each other, so that they
    share the first read: once out of step they would stay so.
    """

    def __init__(self) -> None:
        #: By table of the rest, its tables without a commit, as of a turn of the loop, and since when tables wait for them.
        self._new: Mapping[str, Sequence[Table]] = {}
        self._new_at_s = float("-inf")
        self._gathering_from_s: dict[str, float] = {}

    def waits(self, table: Table, tables: Iterable[Table], now_s: float) -> bool:
        """Whether new tables are about to be ready for the read that serves this one too. tables: all tables."""
        share = table.spec.source.share
        if share is None or (not share.is_rest and table.progress.snapshot_id is not None):
            return False
        if now_s != self._new_at_s:
            self._new_at_s, self._new = now_s, _new_tables(tables)
        if any(_is_unready(new, share.is_rest) for new in self._new.get(share.rest, ())):
            return now_s < self._gathering_from_s.setdefault(table.name, now_s) + _GATHER_S
        self._gathering_from_s.pop(table.name, None)
        return False


def _new_tables(tables: Iterable[Table]) -> dict[str, list[Table]]:
    """Returns by table of the rest those derived tables that have no commit yet, and that nothing keeps from one."""
    tables_by_rest: dict[str, list[Table]] = {}
    for table in tables:
        share, schedule = table.spec.source.share, table.schedule
        if (
            share is not None
            and not share.is_rest
            and table.progress.snapshot_id is None
            and schedule.is_owned
            and not (schedule.is_paused or schedule.failures)
            and table.status.run_state is not RunState.STOPPED
        ):
            tables_by_rest.setdefault(share.rest, []).append(table)
    return tables_by_rest


def _is_unready(table: Table, is_rest: bool) -> bool:
    """Whether a new table cannot be read yet for its rows, or at all. is_rest: it is the table of the rest that would wait
    for it, also while its columns are to be found.
    """
    return table.schedule.in_flight or not table.catalog.is_loaded or (is_rest and table.is_trial)
