"""What the maintenance scheduler knows of one table, and when the table is due for a check: pure, with the clock passed in.

Times that end in `_s` are seconds of the monotonic clock, unless they are durations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from frazil.maintenance.file_groups import fewest_files
from frazil.maintenance.plan import DAILY_MS, IDLE_AFTER_MS, Mode, Plan, is_open
from frazil.maintenance.run import MaintainedTable, Outcome
from frazil.plugins.driver import ACTIONS

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
_PAUSES_KEPT = 5
_HABIT_TIMES = 10.0
"""This many times its own length after its end, a pause no longer predicts the length of the next."""
_LONGEST_USUAL_S = 3 * 3600.0
"""A table without commits for this long is idle, whatever its earlier pauses were."""
FAILED_RETRY_S = 60.0
BEHIND = 4.0
"""How much further apart commits of changes are while a table's health is above a cap."""
MOST_APART = 64.0
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

    @property
    def idle_s(self) -> float:
        """How long the table is at least without a commit before it counts as idle."""
        return IDLE_UPSERT_S if self.maintained.is_upsert else IDLE_S


@dataclass
class Checks:
    """When a table was checked, and what it was like then."""

    #: When the table was last checked.
    checked_s: float
    #: When the actions of that check had ended and were noted.
    ended_s: float
    #: When the table last had a regular or thorough check.
    regular_s: float
    #: When the table last had a thorough check.
    thorough_s: float
    #: The version of the table at the last check as an idle table.
    idle_at: str
    #: The version of the table at the last regular check.
    regular_at: str = ""
    #: The version of the table at the last thorough check.
    thorough_at: str = ""
    #: What ingestion had reported at the last check; fewer files where maintenance has compacted since.
    inspected: TableActivity | None = None
    #: Whether the maintenance window was closed at the last check.
    is_shut: bool = False

    def note(self, activity: TableActivity, mode: Mode, now_s: float) -> None:
        """Records a check in this mode of the table as ingestion had last reported it."""
        self.checked_s, self.inspected = now_s, activity
        if mode in ("regular", "thorough"):
            self.regular_s, self.regular_at = now_s, activity.version
        if mode in ("idle", "thorough"):
            self.idle_at = activity.version
        if mode == "thorough":
            self.thorough_s, self.thorough_at = now_s, activity.version


@dataclass(frozen=True)
class RoundsStatus:
    """What the last rounds of a table came to, for those who show it."""

    #: When an action last succeeded, in milliseconds since 1970.
    last_ms: int | None = None
    #: Why maintenance last failed; empty after a success.
    failure: str = ""
    #: See `Rounds.slowed_by`.
    slowed_by: float = 1.0


@dataclass
class Rounds:
    """What the last rounds of maintenance came to."""

    #: The last plan.
    plan: Plan | None = None
    #: Whether the table's health is above a cap after the last round.
    is_behind: bool = False
    #: Whether the last round reached its limit, or lost a part to a conflict.
    has_more: bool = False
    #: The mode of the last check, if an action of it failed.
    again: Mode | None = None
    #: The earliest time of the next check, after a failure.
    not_before_s: float = 0.0
    #: Why maintenance last failed; empty after a success.
    failure: str = ""
    #: Daily actions that failed: until when they are not tried again, and why.
    postponed: dict[str, tuple[float, str]] = field(default_factory=dict)
    #: The number of compactions in a row that conflicting commits have discarded.
    lost_rounds: int = 0
    #: By how many files maintenance has reduced the table since the last reported commit.
    fewer_files: int = 0
    #: When an action last succeeded, in milliseconds since 1970.
    last_ms: int | None = None

    def adopt(self, plan: Plan, now_s: float) -> Plan:
        """Returns the plan without postponed actions, and records it."""
        left = {kind for kind, (until_s, _) in self.postponed.items() if now_s < until_s}
        self.plan = replace(plan, actions=tuple(action for action in plan.actions if action.kind not in left))
        self.is_behind = bool(plan.health.above_cap)
        return self.plan

    def fail(self, reason: str, mode: Mode, now_s: float) -> None:
        """Records that a check in this mode failed."""
        self.failure, self.again, self.not_before_s = reason, mode, now_s + FAILED_RETRY_S

    def settle(self, outcomes: Sequence[Outcome], mode: Mode, now_s: float, now_ms: int) -> None:
        """Records what the actions of a check in this mode came to."""
        self.again = mode if any(outcome.failure and not _is_daily(outcome) for outcome in outcomes) else None
        failed = [outcome for outcome in outcomes if outcome.failure and not outcome.is_lost]
        self._postpone_daily(outcomes, now_s)
        wrong = [outcome.failure for outcome in failed] + [words for _, words in self.postponed.values() if words]
        self.failure = wrong[0] if wrong else ""
        if any(not outcome.failure for outcome in outcomes):
            self.last_ms = now_ms
        compactions = [outcome for outcome in outcomes if outcome.action.kind == "compact"]
        self.fewer_files += sum(outcome.rewritten.removed - outcome.rewritten.added for outcome in compactions)
        self.has_more = any(_has_more(outcome) for outcome in compactions)
        is_undone = any(outcome.rewritten.lost and not outcome.rewritten.removed for outcome in compactions)
        is_lost = is_undone or any(outcome.is_lost for outcome in compactions)
        self.lost_rounds = self.lost_rounds + 1 if is_lost else self.lost_rounds if self.has_more else 0
        if failed or (is_undone and self.lost_rounds == 1):
            self.not_before_s = now_s + FAILED_RETRY_S

    def _postpone_daily(self, outcomes: Sequence[Outcome], now_s: float) -> None:
        """Postpones failed daily actions by a day, because each lists or reads the whole table. After a conflict the
        action is tried again soon, and reports no failure.
        """
        for outcome in filter(_is_daily, outcomes):
            self.postponed.pop(outcome.action.kind, None)
            if outcome.failure:
                pause_s = THOROUGH_EVERY_S if outcome.is_lost else DAILY_S
                self.postponed[outcome.action.kind] = (now_s + pause_s, "" if outcome.is_lost else outcome.failure)

    @property
    def status(self) -> RoundsStatus:
        """What is shown of the rounds."""
        return RoundsStatus(self.last_ms, self.failure, self.slowed_by)

    @property
    def slowed_by(self) -> float:
        """How many times as far apart as usual the table's commits should be, if each may undo maintenance: 1.0 while
        maintenance keeps up.
        """
        by_losses = 2.0 ** max(0, min(self.lost_rounds, _MOST_LOSSES) - 1)
        return min(MOST_APART, max(by_losses, BEHIND if self.is_behind else 1.0))


@dataclass
class WatchedTable:
    """What the scheduler knows of one table."""

    #: The last report of ingestion.
    activity: TableActivity
    #: When the last commit was reported.
    changed_s: float
    #: No file of a batch in progress, or of a later one, is older, in milliseconds since 1970.
    files_since_ms: int
    #: When the table was checked.
    checks: Checks
    #: What maintenance of it came to.
    rounds: Rounds = field(default_factory=Rounds)
    #: The last times without a commit that might have been the end: when each was over, and its length.
    pauses: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_PAUSES_KEPT))

    @classmethod
    def first(cls, activity: TableActivity, now_s: float, now_ms: int) -> WatchedTable:
        """Returns what is known after a first report: everything that was in the table before deserves one thorough
        check.
        """
        checks = Checks(now_s, now_s, now_s, now_s, idle_at=activity.version)
        return cls(activity, now_s, _files_since_ms(activity, now_s, now_ms), checks)

    def note(self, activity: TableActivity, now_s: float, now_ms: int) -> None:
        """Records a further report of ingestion."""
        if activity.batch_s is None or activity.batch_s != self.activity.batch_s:
            self.files_since_ms = _files_since_ms(activity, now_s, now_ms)
        if self.activity.version != activity.version:
            if now_s - self.changed_s >= activity.idle_s:
                self.pauses.append((now_s, now_s - self.changed_s))
            self.changed_s = now_s
        has_moved = (self.activity.version, self.activity.files) != (activity.version, activity.files)
        if has_moved and (then := self.checks.inspected) is not None:
            # Files that maintenance itself has compacted are not a reason for another check.
            self.checks.inspected = replace(then, files=max(0, then.files - self.rounds.fewer_files))
            self.rounds.fewer_files = 0
        self.activity = activity

    @property
    def is_small(self) -> bool:
        """Whether the table has too few files and snapshots to need maintenance soon; False for upsert tables."""
        activity, spec = self.activity, self.activity.maintained.maintenance.spec
        is_few = activity.files < spec.min_input_files and activity.snapshots <= spec.snapshots.kept
        return is_few and not activity.maintained.is_upsert and self.rounds.again is None and not self.rounds.has_more

    def due(self, now_s: float, now_ms: int, is_spare: bool) -> Mode | None:
        """Returns the mode in which the table is to be checked, if the figures of its last commit suggest that
        maintenance is due; None where it is not. is_spare: whether there is time for actions that could wait.
        """
        activity, spec, checks = self.activity, self.activity.maintained.maintenance.spec, self.checks
        if now_s < self.rounds.not_before_s or now_s - checks.checked_s < CHECK_INTERVAL_S:
            return None
        if not spec.is_on:
            # Another process may maintain it, and its commits are slowed while that process cannot keep up.
            is_time = now_s - checks.checked_s >= WATCHED_EVERY_S
            return "busy" if activity.maintained.is_upsert and is_time and self._has_changed("busy") else None
        if mode := self._thorough_or_regular(now_s):
            return mode
        usual: Mode = "eager" if activity.maintained.is_upsert and is_spare else "busy"
        if self.rounds.has_more or self._has_changed(usual):
            return usual
        if self.rounds.again is not None:
            return self.rounds.again
        # Due by time alone: snapshots and orphan files, by the notes of the last round, and actions that the window
        # postponed.
        is_daily = now_s - checks.ended_s >= min(DAILY_S, spec.orphans.age_s)
        if is_daily or (checks.is_shut and is_open(spec.window, now_ms)):
            return "thorough"
        # A check right after the last commit, one among many, has not done what is worth doing for an idle table.
        is_new = checks.inspected is not None and checks.idle_at != activity.version
        return "idle" if is_new and self._is_idle(now_s, activity.idle_s, 2) else None

    def _thorough_or_regular(self, now_s: float) -> Mode | None:
        """Returns the mode of a table that is idle, or has had no thorough check for a day, or now and then of a table
        with commits. Compacting everything after each commit of a table with a commit every few minutes would rewrite
        its files each time.
        """
        checks, version, has_more = self.checks, self.activity.version, self.rounds.has_more
        if checks.thorough_at == version and not has_more:
            return None
        if self._is_idle(now_s, THOROUGH_IDLE_S, 3) or now_s - checks.thorough_s >= DAILY_S:
            return "thorough"
        is_new = checks.regular_at != version or has_more
        return "regular" if is_new and now_s - checks.regular_s >= THOROUGH_EVERY_S else None

    def _is_idle(self, now_s: float, least_s: float, times: int) -> bool:
        """Returns whether the table has been without a commit for `least_s`, and for `times` its usual pause."""
        pauses_s = [length_s for over_s, length_s in self.pauses if self.changed_s - over_s <= _HABIT_TIMES * length_s]
        # A single pause is not a habit: it may be the one after an initial load.
        usual_s = median(pauses_s) if len(pauses_s) > 1 else 0.0
        return now_s - self.changed_s >= max(least_s, min(_LONGEST_USUAL_S, times * usual_s))

    def _has_changed(self, mode: Mode) -> bool:
        """Returns whether the table has enough more files or snapshots than at the last check, or files were
        replaced.
        """
        activity, then, spec = self.activity, self.checks.inspected, self.activity.maintained.maintenance.spec
        if then is None or activity.files < then.files:
            return True
        if activity.files - then.files >= fewest_files(spec.min_input_files, mode):
            return True
        kept = self.rounds.plan.kept_snapshots if self.rounds.plan is not None else None
        return activity.snapshots - then.snapshots >= max(1, (kept or spec.snapshots.kept) // 4)


def _files_since_ms(activity: TableActivity, now_s: float, now_ms: int) -> int:
    """Returns the wall-clock time since when files may belong to a batch in progress; the monotonic clock stops while a
    machine sleeps.
    """
    return now_ms if activity.batch_s is None else now_ms - int((now_s - activity.batch_s) * 1000)


def _is_daily(outcome: Outcome) -> bool:
    return ACTIONS.get(outcome.action.kind).is_daily


def _has_more(outcome: Outcome) -> bool:
    """Returns whether a compaction reached the limit of its round, or lost a part to a conflict."""
    compaction = outcome.action.compaction
    most = compaction.options.get("max-files-to-rewrite") if compaction is not None else None
    is_at_limit = most is not None and outcome.rewritten.removed >= int(most)
    return outcome.is_lost or outcome.rewritten.lost > 0 or is_at_limit
