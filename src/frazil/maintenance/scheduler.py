"""Care in the idle capacity of a running pipeline: one thread that looks at a table when it may owe something, does a
little, and rests. Ingestion tells it what it has committed and never waits for it.
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
from frazil.maintenance.plan import DAILY, DAILY_MS, IDLE_AFTER_MS, Kind, Mode, Plan, is_open
from frazil.maintenance.run import Carer, Charge, Outcome

log = structlog.get_logger("frazil")

ROUND_BYTES = 256 * 1024 * 1024
"""What one round rewrites of a table, for each task that care may have."""
LOOK_AFTER_S = 10.0
IDLE_S = IDLE_AFTER_MS / 1000
DAILY_S = DAILY_MS / 1000
THOROUGH_EVERY_S = 600.0
IDLE_UPSERT_S = 10.0
"""A mirror rests sooner: while rows of it are deleted beside their files, every reader pays for that."""
WATCHED_EVERY_S = 60.0
"""So often mirrors are looked at that are cared for by others."""
THOROUGH_IDLE_S = 180.0
_EARLY_TIMES = 9
"""So many times as long as an early look took, with the compaction that came of it, there is no other: all of them together
take a tenth of the time at most.
"""
_PAUSES_KEPT = 5
_HABIT_TIMES = 10.0
"""So many times its own length after its end a pause tells nothing of how long the next will be."""
_LONGEST_USUAL_S = 3 * 3600.0
"""A table without commits for so long rests, whatever its habits."""
FAILED_RETRY_S = 60.0
BEHIND = 4.0
"""How much further apart commits of changes are to be while what a table owes is above a cap."""
MOST_APART = 64.0
_NAP_S = 0.5
_MOST_REST_S = 30.0
_IDLE_PAUSES = 40
# So many lost rounds are as far apart as commits may be; a power of a number without a limit would outgrow its type.
_MOST_LOSSES = 16


@dataclass(frozen=True)
class Seen:
    """A table as ingestion last left it. version: differs after every commit. files, snapshots: as the commit said. batch_s:
    when the batch in hand was planned, on the monotonic clock; None: no batch is.
    """

    charge: Charge
    version: str
    files: int
    snapshots: int
    batch_s: float | None = None


@dataclass
class _Known:
    """What the caretaker knows of a table. changed_s: when it saw the last commit. pauses: the last times without one that
    might have been the end, each as when it was over and how long it was. is_shut: the window was closed at the last look.
    ended_s: when what that look led to was over, and noted. again: how the last round looked at it, if something came to
    nothing there. lost_rounds: compactions in a row that other commits have refused. is_behind: what it owes is above a
    cap, after all that the last round did. fewer_files: by so many care has made them fewer since the last commit that it
    knows of. files_since_ms: no file of a batch in hand, or of a later one, is older. put_off: daily actions that came to
    nothing: until when they are not tried again, and why.
    """

    seen: Seen
    changed_s: float
    pauses: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_PAUSES_KEPT))
    is_shut: bool = False
    looked_s: float = float("-inf")
    ended_s: float = float("-inf")
    thorough_s: float = float("-inf")
    regular_s: float = float("-inf")
    inspected: Seen | None = None
    thorough_at: str = ""
    idle_at: str = ""
    regular_at: str = ""
    not_before_s: float = 0.0
    has_more: bool = False
    again: Mode | None = None
    lost_rounds: int = 0
    is_behind: bool = False
    fewer_files: int = 0
    last_ms: int | None = None
    plan: Plan | None = None
    failure: str = ""
    files_since_ms: int = 0
    put_off: dict[Kind, tuple[float, str]] = field(default_factory=dict)


class MaintenanceScheduler:
    """Decides when to look at which table. `start` begins, `stop` ends after the action in hand."""

    def __init__(self, carer: Carer, clock: Clock) -> None:
        self._carer = carer
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._spare_from_s = float("-inf")
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="maintenance", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Begins nothing more; whether the action in hand has ended in that time."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def note(self, tables: Sequence[Seen]) -> None:
        """What ingestion knows of its tables now; takes no time."""
        now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        with self._lock:
            for seen in tables:
                known = self._known.get(seen.charge.name)
                since_ms = _files_since_ms(seen, known, now_ms, now_s)
                if known is None:
                    # All that was there before is worth one thorough look.
                    known = _Known(seen, now_s, thorough_s=now_s, regular_s=now_s, looked_s=now_s, ended_s=now_s)
                    known.idle_at = seen.version
                    self._known[seen.charge.name] = known
                elif known.seen.version != seen.version:
                    if now_s - known.changed_s >= _idle_s(seen):
                        known.pauses.append((now_s, now_s - known.changed_s))
                    known.changed_s = now_s
                    if known.inspected is not None:
                        # What care itself has put together is no reason to look again.
                        left = max(0, known.inspected.files - known.fewer_files)
                        known.inspected, known.fewer_files = replace(known.inspected, files=left), 0
                known.seen, known.files_since_ms = seen, since_ms

    def said(self) -> Mapping[str, Mapping[str, Any]]:
        """For each table: when it was last cared for, what is due, what is above its cap, and why the last care failed."""
        with self._lock:
            return {name: _said(known) for name, known in self._known.items() if known.plan or known.failure}

    def slowed_by(self, table: str) -> float:
        """How many times as far apart as usual a table's commits should be, if each may undo care's work: 1.0 while care
        keeps up, more while debt is above a cap, and twice as much with every second and further compaction that is lost.
        """
        with self._lock:
            known = self._known.get(table)
        return 1.0 if known is None else _slowed_by(known)

    def turn(self) -> float:
        """Looks at the table that has waited longest, if one is due, and does what it owes; how long to rest then."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            now_ms, every, is_spare = self._clock.now_ms(), self._known.items(), now_s >= self._spare_from_s
            due = [
                (known.looked_s, name, mode) for name, known in every if (mode := _due(known, now_s, now_ms, is_spare))
            ]
        if not due:
            return _NAP_S
        _, name, mode = min(due)
        known, is_calm = self._known[name], all(_is_small(self._known[each]) for _, each, _ in due)
        self._look_after(known, mode)
        # As much rest as work: care takes half of what it was given at most. What can hardly owe anything, as hundreds of
        # tables that a start finds, waits longer for its look.
        times = _IDLE_PAUSES if is_calm and known.plan is not None and not known.plan.actions else 1
        return min(_MOST_REST_S, max(_NAP_S, times * (self._clock.monotonic_s() - now_s)))

    def _loop(self) -> None:
        rest_s = _NAP_S
        while not self._stopping.wait(rest_s):
            rest_s = self.turn()

    def _look_after(self, known: _Known, mode: Mode) -> None:
        with self._lock:
            seen = known.seen
            charge = replace(seen.charge, files_since_ms=known.files_since_ms)
        now_s = self._clock.monotonic_s()
        known.is_shut = not is_open(charge.maintenance.spec.window, self._clock.now_ms())
        _note_look(known, seen, mode, now_s)
        try:
            known.plan = plan = self._carer.plan(charge, mode, begins=charge.maintenance.spec.is_on)
            if plan is None:
                known.failure, known.is_behind = "", False
                return
            if plan.is_settled:
                _note_look(known, seen, "thorough", now_s)
            plan = _without_put_off(plan, known, now_s)
            known.plan, known.is_behind = plan, bool(plan.health.above_cap)
            outcomes = list(self._carer.run(plan, charge.maintenance, self._stopping.is_set))
            if mode == "eager":
                due_s = sum(outcome.took_s for outcome in outcomes if not outcome.action.is_early)
                ended_s = self._clock.monotonic_s()
                self._spare_from_s = ended_s + _EARLY_TIMES * (ended_s - now_s - due_s)
            self._settle(known, outcomes, mode)
            if known.is_behind and outcomes:
                health = self._carer.measure(charge)
                known.plan, known.is_behind = replace(plan, health=health), bool(health.above_cap)
        except FrazilError as error:
            self._put_off(known, error.message, mode)
        except Exception as error:  # noqa: BLE001  (care must never end the pipeline)
            if not self._stopping.is_set():
                log.error("unexpected_error", table=charge.name, error=f"{type(error).__name__}: {error}")
                self._put_off(known, f"{type(error).__name__}: {error}", mode)
        finally:
            known.ended_s = self._clock.monotonic_s()

    def _settle(self, known: _Known, outcomes: Sequence[Outcome], mode: Mode) -> None:
        known.again = mode if any(one.failure and one.action.kind not in DAILY for one in outcomes) else None
        failed = [outcome for outcome in outcomes if outcome.failure and not outcome.is_lost]
        _put_off_daily(known, outcomes, self._clock.monotonic_s())
        wrong = [outcome.failure for outcome in failed] + [words for _, words in known.put_off.values() if words]
        known.failure = wrong[0] if wrong else ""
        if failed:
            known.not_before_s = self._clock.monotonic_s() + FAILED_RETRY_S
        if any(not outcome.failure for outcome in outcomes):
            known.last_ms = self._clock.now_ms()
        compactions = [outcome for outcome in outcomes if outcome.action.kind == "compact"]
        known.fewer_files += sum(outcome.rewritten.removed - outcome.rewritten.added for outcome in compactions)
        known.has_more = any(_has_more(outcome) for outcome in compactions)
        if any(_has_rest(outcome) for outcome in compactions):
            known.thorough_at = ""
        is_undone = any(outcome.rewritten.lost and not outcome.rewritten.removed for outcome in compactions)
        is_lost = is_undone or any(outcome.is_lost for outcome in compactions)
        known.lost_rounds = known.lost_rounds + 1 if is_lost else known.lost_rounds if known.has_more else 0
        if is_undone and known.lost_rounds == 1:
            known.not_before_s = self._clock.monotonic_s() + FAILED_RETRY_S

    def _put_off(self, known: _Known, reason: str, mode: Mode) -> None:
        known.failure, known.again = reason, mode
        known.not_before_s = self._clock.monotonic_s() + FAILED_RETRY_S
        if not self._stopping.is_set():
            log.warning("maintenance_skipped", table=known.seen.charge.name, reason=reason, retry_in_s=FAILED_RETRY_S)


def _due(known: _Known, now_s: float, now_ms: int, is_spare: bool) -> Mode | None:
    """Whether a table may owe something, as far as the numbers of its last commit tell, and how to look at it. is_spare:
    whether there is time for what could wait.
    """
    seen, spec, then = known.seen, known.seen.charge.maintenance.spec, known.inspected
    if now_s < known.not_before_s or now_s - known.looked_s < LOOK_AFTER_S:
        return None
    if not spec.is_on:
        # Somebody else may care for it, and its commits are slowed while they cannot keep up.
        is_time = now_s - known.looked_s >= WATCHED_EVERY_S
        return "busy" if seen.charge.is_upsert and is_time and _has_changed(known) else None
    if mode := _thorough_or_regular(known, now_s):
        return mode
    usual: Mode = "eager" if seen.charge.is_upsert and is_spare else "busy"
    if known.has_more or _has_changed(known, usual):
        return usual
    if known.again is not None:
        return known.again
    # What time alone makes due: snapshots, orphans, of which the last round noted when it was done; and what the window has
    # kept waiting.
    if now_s - known.ended_s >= min(DAILY_S, spec.orphan_age_s) or (known.is_shut and is_open(spec.window, now_ms)):
        return "thorough"
    # A look right after the last commit, as one among others, has not done what is worth it at rest.
    is_new = then is not None and known.idle_at != seen.version
    return "quiet" if is_new and _rests(known, now_s, _idle_s(seen), 2) else None


def _thorough_or_regular(known: _Known, now_s: float) -> Mode | None:
    """A table that rests, or has had no thorough look for a day, gets one; one with commits a lesser one now and then. What
    is put together all at once after every commit of a table that has one every few minutes would be written anew each time.
    """
    if known.thorough_at == known.seen.version and not known.has_more:
        return None
    if _rests(known, now_s, THOROUGH_IDLE_S, 3) or now_s - known.thorough_s >= DAILY_S:
        return "thorough"
    is_new = known.regular_at != known.seen.version or known.has_more
    return "regular" if is_new and now_s - known.regular_s >= THOROUGH_EVERY_S else None


def _idle_s(seen: Seen) -> float:
    """How long a table is without a commit at least, when it rests."""
    return IDLE_UPSERT_S if seen.charge.is_upsert else IDLE_S


def _rests(known: _Known, now_s: float, least_s: float, times: int) -> bool:
    """Whether the table has been without a commit for so long, and so many times as long as it usually is."""
    pauses_s = [length_s for over_s, length_s in known.pauses if known.changed_s - over_s <= _HABIT_TIMES * length_s]
    # One pause is no habit: it may be that after a first load.
    usual_s = median(pauses_s) if len(pauses_s) > 1 else 0.0
    return now_s - known.changed_s >= max(least_s, min(_LONGEST_USUAL_S, times * usual_s))


def _is_small(known: _Known) -> bool:
    """Whether the table has too few files and snapshots to owe anything soon, as far as these tell; of mirrors not."""
    seen, spec = known.seen, known.seen.charge.maintenance.spec
    is_few = seen.files < spec.min_input_files and seen.snapshots <= spec.snapshot_count
    return is_few and not seen.charge.is_upsert and known.again is None and not known.has_more


def _note_look(known: _Known, seen: Seen, mode: Mode, now_s: float) -> None:
    known.looked_s, known.inspected, known.again = now_s, seen, None
    if mode in ("regular", "thorough"):
        known.regular_s, known.regular_at = now_s, seen.version
    if mode in ("quiet", "thorough"):
        known.idle_at = seen.version
    if mode == "thorough":
        known.thorough_s, known.thorough_at = now_s, seen.version


def _has_changed(known: _Known, mode: Mode = "busy") -> bool:
    """Whether the table has so many more files or snapshots than when it was looked at, or somebody has replaced files."""
    seen, then, spec = known.seen, known.inspected, known.seen.charge.maintenance.spec
    if then is None or seen.files - then.files >= fewest_files(spec.min_input_files, mode) or seen.files < then.files:
        return True
    kept = known.plan.kept_snapshots if known.plan is not None else None
    return seen.snapshots - then.snapshots >= max(1, (kept or spec.snapshot_count) // 4)


def _put_off_daily(known: _Known, outcomes: Sequence[Outcome], now_s: float) -> None:
    """What is done once a day is tried once a day too: it takes a listing, or a read, of the whole table. What was lost is
    tried again soon, and says nothing.
    """
    for outcome in outcomes:
        kind = outcome.action.kind
        if kind in DAILY:
            known.put_off.pop(kind, None)
        if kind in DAILY and outcome.failure:
            pause_s = THOROUGH_EVERY_S if outcome.is_lost else DAILY_S
            known.put_off[kind] = (now_s + pause_s, "" if outcome.is_lost else outcome.failure)


def _without_put_off(plan: Plan, known: _Known, now_s: float) -> Plan:
    left = {kind for kind, (until_s, _) in known.put_off.items() if now_s < until_s}
    return replace(plan, actions=tuple(action for action in plan.actions if action.kind not in left))


def _files_since_ms(seen: Seen, known: _Known | None, now_ms: int, now_s: float) -> int:
    """By the clock that files go by: a machine that sleeps stops the other one."""
    if seen.batch_s is None:
        return now_ms
    if known is not None and known.seen.batch_s == seen.batch_s:
        return known.files_since_ms
    return now_ms - int((now_s - seen.batch_s) * 1000)


def _has_more(outcome: Outcome) -> bool:
    """Whether a compaction has reached the limit of its round, or has lost some of it."""
    compaction = outcome.action.compaction
    most = compaction.options.get("max-files-to-rewrite") if compaction is not None else None
    is_at_limit = most is not None and outcome.rewritten.removed >= int(most)
    return outcome.is_lost or outcome.rewritten.lost > 0 or is_at_limit


def _has_rest(outcome: Outcome) -> bool:
    """Whether files became fewer, of which some may go together now. Each time there are fewer, so it comes to an end."""
    return outcome.action.has_rest and outcome.rewritten.removed > outcome.rewritten.added


def _slowed_by(known: _Known) -> float:
    by_losses = 2.0 ** max(0, min(known.lost_rounds, _MOST_LOSSES) - 1)
    return min(MOST_APART, max(by_losses, BEHIND if known.is_behind else 1.0))


def _said(known: _Known) -> dict[str, Any]:
    plan, health = known.plan, known.plan.health if known.plan else TableHealth()
    return {
        "last_ms": known.last_ms,
        "waiting": list(plan.waiting) if plan else [],
        "above_cap": list(health.above_cap),
        "failure": known.failure,
        "slowed_by": _slowed_by(known),
    }
