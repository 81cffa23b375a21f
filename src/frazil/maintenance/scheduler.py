"""Maintenance in the spare capacity of a running pipeline: one thread checks a table when its health may have declined,
runs a little maintenance, and pauses. Ingestion reports its commits to this thread and never waits for it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import structlog

from frazil.clock import Clock
from frazil.errors import FrazilError
from frazil.maintenance.file_groups import fewest_files
from frazil.maintenance.health import TableHealth
from frazil.maintenance.plan import DAILY_MS, IDLE_AFTER_MS, Mode, Plan, is_open
from frazil.maintenance.run import MaintainedTable, MaintenanceRunner, Outcome
from frazil.plugins.maintenance_actions import ACTIONS

log = structlog.get_logger("frazil")

ROUND_BYTES = 256 * 1024 * 1024
"""The number of bytes that one round rewrites of a table, per task of maintenance."""
CHECK_INTERVAL_S = 10.0
IDLE_S = IDLE_AFTER_MS / 1000
DAILY_S = DAILY_MS / 1000
THOROUGH_EVERY_S = 600.0
IDLE_UPSERT_S = 10.0
"""Upsert tables count as idle sooner: while rows of a data file are deleted in another file, every reader pays for it.
"""
WATCHED_EVERY_S = 60.0
"""How often upsert tables are checked that other processes maintain."""
THOROUGH_IDLE_S = 180.0
_EARLY_TIMES = 9
"""An early round, with its compaction, is followed by a pause of this many times its duration: all early rounds
together take at most a tenth of the time.
"""
_PAUSES_KEPT = 5
_HABIT_TIMES = 10.0
"""This many times its own length after its end, a pause no longer predicts the length of the next."""
_LONGEST_USUAL_S = 3 * 3600.0
"""A table without commits for this long is idle, whatever its earlier pauses were."""
FAILED_RETRY_S = 60.0
BEHIND = 4.0
"""How much further apart commits of changes are while a table's health is above a cap."""
MOST_APART = 64.0
_NAP_S = 0.5
_LONGEST_PAUSE_S = 30.0
_IDLE_PAUSES = 40
# Commits are as far apart as allowed after this many discarded rounds; an unbounded power would overflow.
_MOST_LOSSES = 16


@dataclass(frozen=True)
class TableActivity:
    """A table as ingestion last committed to it."""

    #: The table.
    maintained: MaintainedTable
    #: A value that differs after every commit.
    version: str
    #: The number of data files, by the last commit.
    files: int
    #: The number of snapshots, by the last commit.
    snapshots: int
    #: When the batch in progress was planned, on the monotonic clock; None without one.
    batch_s: float | None = None


@dataclass
class _Known:
    """The scheduler's state of one table."""

    #: The last report of ingestion.
    activity: TableActivity
    #: When the last commit was reported.
    changed_s: float
    #: The last times without a commit that might have been the end: when each was over, and its length.
    pauses: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_PAUSES_KEPT))
    #: Whether the maintenance window was closed at the last check.
    is_shut: bool = False
    #: When the table was last checked.
    checked_s: float = float("-inf")
    #: When the actions of that check had ended and were noted.
    ended_s: float = float("-inf")
    #: When the table last had a thorough check.
    thorough_s: float = float("-inf")
    #: When the table last had a regular or thorough check.
    regular_s: float = float("-inf")
    #: What ingestion had reported at the last check.
    inspected: TableActivity | None = None
    #: The version of the table at the last thorough check.
    thorough_at: str = ""
    #: The version of the table at the last check as an idle table.
    idle_at: str = ""
    #: The version of the table at the last regular check.
    regular_at: str = ""
    #: The earliest time of the next check, after a failure.
    not_before_s: float = 0.0
    #: Whether the last round reached its limit, or lost a part to a conflict.
    has_more: bool = False
    #: The mode of the last check, if an action of it failed.
    again: Mode | None = None
    #: The number of compactions in a row that conflicting commits have discarded.
    lost_rounds: int = 0
    #: Whether the table's health is above a cap after the last round.
    is_behind: bool = False
    #: By how many files maintenance has reduced the table since the last reported commit.
    fewer_files: int = 0
    #: When an action last succeeded.
    last_ms: int | None = None
    #: The last plan.
    plan: Plan | None = None
    #: Why maintenance last failed; empty after a success.
    failure: str = ""
    #: No file of a batch in progress, or of a later one, is older.
    files_since_ms: int = 0
    #: Daily actions that failed: until when they are not tried again, and why.
    postponed: dict[str, tuple[float, str]] = field(default_factory=dict)


class MaintenanceScheduler:
    """Decides which table is checked when. `start` starts the thread, `stop` ends it after the current action."""

    def __init__(self, runner: MaintenanceRunner, clock: Clock) -> None:
        self._runner = runner
        self._clock = clock
        self._known: dict[str, _Known] = {}
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
        """Records what ingestion reports of its tables; returns at once."""
        now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        with self._lock:
            for activity in tables:
                known = self._known.get(activity.maintained.name)
                since_ms = _files_since_ms(activity, known, now_ms, now_s)
                if known is None:
                    # Everything that was in the table before deserves one thorough check.
                    known = _Known(activity, now_s, thorough_s=now_s, regular_s=now_s, checked_s=now_s, ended_s=now_s)
                    known.idle_at = activity.version
                    self._known[activity.maintained.name] = known
                elif known.activity.version != activity.version:
                    if now_s - known.changed_s >= _idle_s(activity):
                        known.pauses.append((now_s, now_s - known.changed_s))
                    known.changed_s = now_s
                    if known.inspected is not None:
                        # Files that maintenance itself has compacted are no reason for another check.
                        left = max(0, known.inspected.files - known.fewer_files)
                        known.inspected, known.fewer_files = replace(known.inspected, files=left), 0
                known.activity, known.files_since_ms = activity, since_ms

    def status(self) -> Mapping[str, Mapping[str, Any]]:
        """Returns for each table when it was last maintained, what is due, what is above a cap, and why maintenance
        last failed.
        """
        with self._lock:
            return {name: _status_of(known) for name, known in self._known.items() if known.plan or known.failure}

    def slowed_by(self, table: str) -> float:
        """Returns how many times as far apart as usual a table's commits should be, if each may undo maintenance: 1.0
        while maintenance keeps up, more while the table's health is above a cap, and doubled with every second and
        further compaction that is discarded.
        """
        with self._lock:
            known = self._known.get(table)
        return 1.0 if known is None else _slowed_by(known)

    def run_next(self) -> float:
        """Checks the table that has waited longest, if one is due, and runs its actions; returns how long to pause, in
        seconds.
        """
        now_s = self._clock.monotonic_s()
        with self._lock:
            now_ms, every, is_spare = self._clock.now_ms(), self._known.items(), now_s >= self._spare_from_s
            due = [
                (known.checked_s, name, mode) for name, known in every if (mode := _due(known, now_s, now_ms, is_spare))
            ]
        if not due:
            return _NAP_S
        _, name, mode = min(due)
        known, are_all_small = self._known[name], all(_is_small(self._known[each]) for _, each, _ in due)
        self._maintain(known, mode)
        # A pause as long as the work: maintenance takes at most half of its capacity. Tables that hardly need it, such
        # as the hundreds that a start finds, wait longer.
        times = _IDLE_PAUSES if are_all_small and known.plan is not None and not known.plan.actions else 1
        return min(_LONGEST_PAUSE_S, max(_NAP_S, times * (self._clock.monotonic_s() - now_s)))

    def _loop(self) -> None:
        pause_s = _NAP_S
        while not self._stopping.wait(pause_s):
            pause_s = self.run_next()

    def _maintain(self, known: _Known, mode: Mode) -> None:
        with self._lock:
            activity = known.activity
            maintained = replace(activity.maintained, files_since_ms=known.files_since_ms)
        now_s = self._clock.monotonic_s()
        known.is_shut = not is_open(maintained.maintenance.spec.window, self._clock.now_ms())
        _note_check(known, activity, mode, now_s)
        try:
            known.plan = plan = self._runner.plan(maintained, mode, begins=maintained.maintenance.spec.is_on)
            if plan is None:
                known.failure, known.is_behind = "", False
                return
            if plan.is_settled:
                _note_check(known, activity, "thorough", now_s)
            plan = _without_postponed(plan, known, now_s)
            known.plan, known.is_behind = plan, bool(plan.health.above_cap)
            outcomes = list(self._runner.run(plan, maintained.maintenance, self._stopping.is_set))
            if mode == "eager":
                due_s = sum(outcome.took_s for outcome in outcomes if not outcome.action.is_early)
                ended_s = self._clock.monotonic_s()
                self._spare_from_s = ended_s + _EARLY_TIMES * (ended_s - now_s - due_s)
            self._settle(known, outcomes, mode)
            if known.is_behind and outcomes:
                health = self._runner.measure(maintained)
                known.plan, known.is_behind = replace(plan, health=health), bool(health.above_cap)
        except FrazilError as error:
            self._postpone(known, error.message, mode)
        except Exception as error:  # noqa: BLE001  (maintenance must never end the pipeline)
            if not self._stopping.is_set():
                log.error("unexpected_error", table=maintained.name, error=f"{type(error).__name__}: {error}")
                self._postpone(known, f"{type(error).__name__}: {error}", mode)
        finally:
            known.ended_s = self._clock.monotonic_s()

    def _settle(self, known: _Known, outcomes: Sequence[Outcome], mode: Mode) -> None:
        known.again = mode if any(one.failure and not _is_daily(one) for one in outcomes) else None
        failed = [outcome for outcome in outcomes if outcome.failure and not outcome.is_lost]
        _postpone_daily(known, outcomes, self._clock.monotonic_s())
        wrong = [outcome.failure for outcome in failed] + [words for _, words in known.postponed.values() if words]
        known.failure = wrong[0] if wrong else ""
        if failed:
            known.not_before_s = self._clock.monotonic_s() + FAILED_RETRY_S
        if any(not outcome.failure for outcome in outcomes):
            known.last_ms = self._clock.now_ms()
        compactions = [outcome for outcome in outcomes if outcome.action.kind == "compact"]
        known.fewer_files += sum(outcome.rewritten.removed - outcome.rewritten.added for outcome in compactions)
        known.has_more = any(_has_more(outcome) for outcome in compactions)
        if any(_has_follow_up(outcome) for outcome in compactions):
            known.thorough_at = ""
        is_undone = any(outcome.rewritten.lost and not outcome.rewritten.removed for outcome in compactions)
        is_lost = is_undone or any(outcome.is_lost for outcome in compactions)
        known.lost_rounds = known.lost_rounds + 1 if is_lost else known.lost_rounds if known.has_more else 0
        if is_undone and known.lost_rounds == 1:
            known.not_before_s = self._clock.monotonic_s() + FAILED_RETRY_S

    def _postpone(self, known: _Known, reason: str, mode: Mode) -> None:
        known.failure, known.again = reason, mode
        known.not_before_s = self._clock.monotonic_s() + FAILED_RETRY_S
        if not self._stopping.is_set():
            name = known.activity.maintained.name
            log.warning("maintenance_skipped", table=name, reason=reason, retry_in_s=FAILED_RETRY_S)


def _due(known: _Known, now_s: float, now_ms: int, is_spare: bool) -> Mode | None:
    """Returns the mode in which a table is to be checked, if the figures of its last commit suggest that maintenance is
    due; None where it is not. is_spare: whether there is time for actions that could wait.
    """
    activity, spec, then = known.activity, known.activity.maintained.maintenance.spec, known.inspected
    if now_s < known.not_before_s or now_s - known.checked_s < CHECK_INTERVAL_S:
        return None
    if not spec.is_on:
        # Another process may maintain it, and its commits are slowed while that process cannot keep up.
        is_time = now_s - known.checked_s >= WATCHED_EVERY_S
        return "busy" if activity.maintained.is_upsert and is_time and _has_changed(known) else None
    if mode := _thorough_or_regular(known, now_s):
        return mode
    usual: Mode = "eager" if activity.maintained.is_upsert and is_spare else "busy"
    if known.has_more or _has_changed(known, usual):
        return usual
    if known.again is not None:
        return known.again
    # Due by time alone: snapshots and orphan files, by the notes of the last round, and actions that the window
    # postponed.
    if now_s - known.ended_s >= min(DAILY_S, spec.orphan_age_s) or (known.is_shut and is_open(spec.window, now_ms)):
        return "thorough"
    # A check right after the last commit, one among many, has not done what is worth doing for an idle table.
    is_new = then is not None and known.idle_at != activity.version
    return "idle" if is_new and _is_idle(known, now_s, _idle_s(activity), 2) else None


def _thorough_or_regular(known: _Known, now_s: float) -> Mode | None:
    """Returns the mode of a table that is idle, or has had no thorough check for a day, or now and then of a table with
    commits. Compacting everything after each commit of a table with a commit every few minutes would rewrite its files
    each time.
    """
    if known.thorough_at == known.activity.version and not known.has_more:
        return None
    if _is_idle(known, now_s, THOROUGH_IDLE_S, 3) or now_s - known.thorough_s >= DAILY_S:
        return "thorough"
    is_new = known.regular_at != known.activity.version or known.has_more
    return "regular" if is_new and now_s - known.regular_s >= THOROUGH_EVERY_S else None


def _idle_s(activity: TableActivity) -> float:
    """Returns how long a table is at least without a commit before it counts as idle, in seconds."""
    return IDLE_UPSERT_S if activity.maintained.is_upsert else IDLE_S


def _is_idle(known: _Known, now_s: float, least_s: float, times: int) -> bool:
    """Returns whether the table has been without a commit for `least_s`, and for `times` its usual pause."""
    pauses_s = [length_s for over_s, length_s in known.pauses if known.changed_s - over_s <= _HABIT_TIMES * length_s]
    # A single pause is no habit: it may be the one after an initial load.
    usual_s = median(pauses_s) if len(pauses_s) > 1 else 0.0
    return now_s - known.changed_s >= max(least_s, min(_LONGEST_USUAL_S, times * usual_s))


def _is_small(known: _Known) -> bool:
    """Returns whether the table has too few files and snapshots to need maintenance soon; False for upsert tables."""
    activity, spec = known.activity, known.activity.maintained.maintenance.spec
    is_few = activity.files < spec.min_input_files and activity.snapshots <= spec.snapshot_count
    return is_few and not activity.maintained.is_upsert and known.again is None and not known.has_more


def _note_check(known: _Known, activity: TableActivity, mode: Mode, now_s: float) -> None:
    known.checked_s, known.inspected, known.again = now_s, activity, None
    if mode in ("regular", "thorough"):
        known.regular_s, known.regular_at = now_s, activity.version
    if mode in ("idle", "thorough"):
        known.idle_at = activity.version
    if mode == "thorough":
        known.thorough_s, known.thorough_at = now_s, activity.version


def _has_changed(known: _Known, mode: Mode = "busy") -> bool:
    """Returns whether the table has enough more files or snapshots than at the last check, or files were replaced."""
    activity, then, spec = known.activity, known.inspected, known.activity.maintained.maintenance.spec
    if (
        then is None
        or activity.files - then.files >= fewest_files(spec.min_input_files, mode)
        or activity.files < then.files
    ):
        return True
    kept = known.plan.kept_snapshots if known.plan is not None else None
    return activity.snapshots - then.snapshots >= max(1, (kept or spec.snapshot_count) // 4)


def _postpone_daily(known: _Known, outcomes: Sequence[Outcome], now_s: float) -> None:
    """Postpones failed daily actions by a day, because each lists or reads the whole table. After a conflict the action
    is tried again soon, and reports no failure.
    """
    for outcome in outcomes:
        kind = outcome.action.kind
        if _is_daily(outcome):
            known.postponed.pop(kind, None)
        if _is_daily(outcome) and outcome.failure:
            pause_s = THOROUGH_EVERY_S if outcome.is_lost else DAILY_S
            known.postponed[kind] = (now_s + pause_s, "" if outcome.is_lost else outcome.failure)


def _is_daily(outcome: Outcome) -> bool:
    return ACTIONS.get(outcome.action.kind).is_daily


def _without_postponed(plan: Plan, known: _Known, now_s: float) -> Plan:
    left = {kind for kind, (until_s, _) in known.postponed.items() if now_s < until_s}
    return replace(plan, actions=tuple(action for action in plan.actions if action.kind not in left))


def _files_since_ms(activity: TableActivity, known: _Known | None, now_ms: int, now_s: float) -> int:
    """Returns the wall-clock time since when files may belong to a batch in progress; the monotonic clock stops while a
    machine sleeps.
    """
    if activity.batch_s is None:
        return now_ms
    if known is not None and known.activity.batch_s == activity.batch_s:
        return known.files_since_ms
    return now_ms - int((now_s - activity.batch_s) * 1000)


def _has_more(outcome: Outcome) -> bool:
    """Returns whether a compaction reached the limit of its round, or lost a part to a conflict."""
    compaction = outcome.action.compaction
    most = compaction.options.get("max-files-to-rewrite") if compaction is not None else None
    is_at_limit = most is not None and outcome.rewritten.removed >= int(most)
    return outcome.is_lost or outcome.rewritten.lost > 0 or is_at_limit


def _has_follow_up(outcome: Outcome) -> bool:
    """Returns whether files became fewer, so that some may be compactable now. Each time there are fewer, so this ends."""
    return outcome.action.has_follow_up and outcome.rewritten.removed > outcome.rewritten.added


def _slowed_by(known: _Known) -> float:
    by_losses = 2.0 ** max(0, min(known.lost_rounds, _MOST_LOSSES) - 1)
    return min(MOST_APART, max(by_losses, BEHIND if known.is_behind else 1.0))


def _status_of(known: _Known) -> dict[str, Any]:
    plan, health = known.plan, known.plan.health if known.plan else TableHealth()
    return {
        "last_ms": known.last_ms,
        "waiting": list(plan.waiting) if plan else [],
        "above_cap": list(health.above_cap),
        "failure": known.failure,
        "slowed_by": _slowed_by(known),
    }
