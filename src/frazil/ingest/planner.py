"""Which batch a table reads next, given how far its topics reach: the state around the pure `plan.py`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from frazil.errors import UnavailableError
from frazil.ingest.discovery import Discovery
from frazil.ingest.job import JobRunner
from frazil.ingest.pipeline import Planned
from frazil.ingest.plan import TableClock, lag_records, plan_batch
from frazil.ingest.table import RunState, Table
from frazil.kafka.port import Partition


class Planner:
    """Plans one table at a time. ends: of every partition, as last asked for."""

    def __init__(self, discovery: Discovery, jobs: JobRunner) -> None:
        self._discovery = discovery
        self._jobs = jobs
        self._goal: dict[Partition, int] | None = None
        self.ends: dict[Partition, int] = {}

    def set_goal(self) -> None:
        """From the first call on nothing is read beyond the ends that were known then."""
        if self._goal is None:
            self._goal = dict(self.ends)

    def is_caught_up(self, tables: Iterable[Table]) -> bool:
        """Whether every table that goes on has reached the goal."""
        if self._goal is None:
            return False
        for table in tables:
            if table.run_state is RunState.STOPPED:
                continue
            vector = table.position()
            if any(vector.get(t, {}).get(p, -1) < self._goal.get((t, p), 0) for t, p in table.partitions()):
                return False
        return True

    def plan(self, table: Table, now_s: float) -> Planned | None:
        """The table's next batch, or None when it is not due or has nothing to read; notes its lag.

        Raises TableStopped when records are gone that it should read.
        """
        if not table.is_loaded or not table.topics or (not table.needs_check and self._has_nothing_new(table)):
            return None
        self._discovery.add_first_offsets(table)
        position = table.position()
        table.lag_records = lag_records(position, self.ends)
        is_behind_start = any(self.ends.get((t, p), o) < o for t, ps in position.items() for p, o in ps.items())
        if table.needs_check or is_behind_start:
            self._discovery.check_offsets(table, self.ends)
        position = table.position()
        batch = plan_batch(position, self._readable_ends(), self._clock(table, now_s), now_s)
        if batch is None:
            table.read_to = None if table.lag_records else {p: self.ends.get(p) for p in table.partitions()}
            return None
        return Planned(table, batch, position, dict(self.ends), now_s)

    def _clock(self, table: Table, now_s: float) -> TableClock:
        clock = table.clock(self._jobs.parallelism)
        # On the way to a goal nothing more is collected, so there is nothing to wait for; a table without columns yet is
        # due when it says so, or it would be tried without a pause.
        is_hurrying = self._goal is not None and not clock.is_first
        return replace(clock, next_due_s=min(clock.next_due_s, now_s)) if is_hurrying else clock

    def _has_nothing_new(self, table: Table) -> bool:
        """The quick look that hundreds of idle tables get: are the ends those that it was last read to?"""
        read_to = table.read_to
        return (
            read_to is not None
            and len(read_to) == len(table.partitions())
            and all(self.ends.get(p) == end for p, end in read_to.items())
        )

    def _readable_ends(self) -> dict[Partition, int]:
        if self._goal is None:
            return self.ends
        return {partition: min(end, self._goal.get(partition, 0)) for partition, end in self.ends.items()}


def no_topic(table: Table) -> UnavailableError:
    """What is said of a table none of whose topics exists."""
    names = ", ".join(s.literal or f"/{s.pattern}/" for s in table.spec.topics)
    return UnavailableError(f"topic {names} does not exist", remedy="create the topic, or correct its name")
