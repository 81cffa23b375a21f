"""Maintenance in the spare capacity of a running pipeline, by one thread.

It checks a table when its health may have declined, runs a little maintenance, and pauses. Ingestion reports its commits
to this thread and never waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import structlog

from frazil.clock import Clock
from frazil.errors import FrazilError
from frazil.maintenance.due import FAILED_RETRY_S, RoundsStatus, TableActivity, WatchedTable
from frazil.maintenance.plan import Mode, Plan, is_open
from frazil.maintenance.run import MaintainedTable, MaintenanceRunner, Outcome

log = structlog.get_logger("frazil")

ROUND_BYTES = 256 * 1024 * 1024
"""The number of bytes that one round rewrites of a table, per task of maintenance."""
_EARLY_TIMES = 9
"""An early round, with its compaction, is followed by a pause of this many times its duration: all early rounds
together take at most a tenth of the time.
"""
_NAP_S = 0.5
# Looking for due tables among a thousand may take this share of the time.
_LOOK_SHARE = 0.003
_LONGEST_PAUSE_S = 30.0
# A thousand tables without commits, each checked once after a start, take 1 % of a core (bench/idle.py).
_IDLE_PAUSES = 80


class MaintenanceScheduler:
    """Decides which table is checked when. `start` starts the thread, `stop` ends it after the current action."""

    def __init__(
        self, runner: MaintenanceRunner, clock: Clock, on_change: Callable[[str], None] = lambda _: None
    ) -> None:
        """on_change: called with the name of a table after a round that has done something to it."""
        self._runner = runner
        self._on_change = on_change
        self._clock = clock
        self._watched: dict[str, WatchedTable] = {}
        self._spare_from_s = float("-inf")
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="maintenance", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Starts no further action; returns whether the current action ended within the time."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def note(self, tables: Sequence[TableActivity]) -> None:
        """Records what ingestion reports of its tables; returns at once. A table that it no longer reports is another
        process's, and is not maintained any more.
        """
        now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        with self._lock:
            for name in self._watched.keys() - {activity.maintained.name for activity in tables}:
                del self._watched[name]
            for activity in tables:
                name = activity.maintained.name
                if name in self._watched:
                    self._watched[name].note(activity, now_s, now_ms)
                else:
                    self._watched[name] = WatchedTable.first(activity, now_s, now_ms)

    def status(self) -> Mapping[str, RoundsStatus]:
        """Returns what the rounds of each table came to."""
        with self._lock:
            return {name: watched.rounds.status for name, watched in self._watched.items()}

    def plans(self) -> Mapping[str, Plan]:
        """Returns the health of each table that was checked, and what was due, as of its last check."""
        with self._lock:
            return {
                name: watched.rounds.plan for name, watched in self._watched.items() if watched.rounds.plan is not None
            }

    def note_round(self, table: str, plan: Plan | None) -> None:
        """Takes the plan of a table after a round of maintenance that an operator has requested."""
        with self._lock:
            watched = self._watched.get(table)
            if watched is not None and plan is not None:
                watched.rounds.adopt(plan, self._clock.monotonic_s())

    def slowed_by(self, table: str) -> float:
        """Returns how many times as far apart as usual a table's commits should be, if each may undo maintenance: 1.0
        while maintenance keeps up, more while the table's health is above a cap, and doubled with every second and
        further compaction that is discarded.
        """
        with self._lock:
            watched = self._watched.get(table)
        return 1.0 if watched is None else watched.rounds.slowed_by

    def run_next(self) -> float:
        """Checks the table that has waited longest, if one is due, and runs its actions; returns how long to pause, in
        seconds.
        """
        now_s = self._clock.monotonic_s()
        with self._lock:
            now_ms, every, is_spare = self._clock.now_ms(), self._watched.items(), now_s >= self._spare_from_s
            due = [
                (watched.checks.checked_s, name, mode, watched)
                for name, watched in every
                if (mode := watched.due(now_s, now_ms, is_spare))
            ]
        if not due:
            return min(_LONGEST_PAUSE_S, max(_NAP_S, (self._clock.monotonic_s() - now_s) / _LOOK_SHARE))
        _, _, mode, watched = min(due, key=lambda due_round: due_round[:2])
        are_all_small = all(due_mode.is_small for *_, due_mode in due)
        was_idle = self._maintain(watched, mode)
        # A pause as long as the work: maintenance takes at most half of its capacity. Tables that hardly need it, such
        # as the hundreds that a start finds, wait longer.
        times = _IDLE_PAUSES if are_all_small and was_idle else 1
        return min(_LONGEST_PAUSE_S, max(_NAP_S, times * (self._clock.monotonic_s() - now_s)))

    def _loop(self) -> None:
        pause_s = _NAP_S
        while not self._stopping.wait(pause_s):
            pause_s = self.run_next()

    def _maintain(self, watched: WatchedTable, mode: Mode) -> bool:
        """Runs a round for a table; returns whether it has looked at the table and found nothing to do."""
        rounds, checks = watched.rounds, watched.checks
        with self._lock:
            activity = watched.activity
            maintained = replace(activity.maintained, files_since_ms=watched.files_since_ms)
        now_s = self._clock.monotonic_s()
        checks.is_shut = not is_open(maintained.maintenance.spec.window, self._clock.now_ms())
        checks.note(activity, mode, now_s)
        rounds.again = None
        try:
            plan = rounds.plan = self._runner.plan(maintained, mode, begins=maintained.maintenance.spec.is_on)
            if plan is None:
                rounds.failure, rounds.is_behind = "", False
                return False
            if plan.is_settled:
                checks.note(activity, "thorough", now_s)
            plan = rounds.adopt(plan, now_s)
            outcomes = list(self._runner.run(plan, maintained.maintenance, partial(self._is_over, watched)))
            if mode == "eager":
                ended_s = self._clock.monotonic_s()
                due_s = sum(outcome.took_s for outcome in outcomes if not outcome.action.is_early)
                self._spare_from_s = ended_s + _EARLY_TIMES * (ended_s - now_s - due_s)
            self._settle(watched, maintained, mode, outcomes)
            return not plan.actions
        except FrazilError as error:
            self._postpone(watched, error.message, mode)
        except Exception as error:  # noqa: BLE001  (maintenance must never end the pipeline)
            if not self._stopping.is_set():
                log.error("unexpected_error", table=maintained.name, error=f"{type(error).__name__}: {error}")
                self._postpone(watched, f"{type(error).__name__}: {error}", mode)
        finally:
            checks.ended_s = self._clock.monotonic_s()
        return False

    def _is_over(self, watched: WatchedTable) -> bool:
        """Whether no further action of the table may begin: the process ends, or the table is another process's now."""
        with self._lock:
            return self._stopping.is_set() or watched not in self._watched.values()

    def _settle(
        self, watched: WatchedTable, maintained: MaintainedTable, mode: Mode, outcomes: Sequence[Outcome]
    ) -> None:
        """Records what the actions of a round came to, and plans again: what is left to do, and whether the table's health
        is below its caps now.
        """
        watched.rounds.settle(outcomes, mode, self._clock.monotonic_s(), self._clock.now_ms())
        if any(map(_has_follow_up, outcomes)):
            watched.checks.thorough_at = ""
        if any(not outcome.failure for outcome in outcomes) and not self._is_over(watched):
            self._on_change(maintained.name)
            plan = self._runner.plan(maintained, mode)
            if plan is not None:
                watched.rounds.adopt(plan, self._clock.monotonic_s())

    def _postpone(self, watched: WatchedTable, reason: str, mode: Mode) -> None:
        watched.rounds.fail(reason, mode, self._clock.monotonic_s())
        if not self._stopping.is_set():
            name = watched.activity.maintained.name
            log.warning("maintenance_skipped", table=name, reason=reason, retry_in_s=FAILED_RETRY_S)


def _has_follow_up(outcome: Outcome) -> bool:
    """Returns whether files became fewer, so that some may be compactable now. Each time there are fewer, so this ends."""
    is_fewer = outcome.rewritten.removed > outcome.rewritten.added
    return outcome.action.kind == "compact" and outcome.action.has_follow_up and is_fewer
