"""Leadership by an election: one thread that claims when there is no leader, and follows whoever has claimed.

The link notices at once that a leader is gone, the elector decides who follows. A claim without asking the elector for signs
of life is made only where this process was connected with the leader before: a network that keeps two processes apart must
not make them replace each other in turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import structlog

from frazil.clock import Clock, SystemClock, new_id
from frazil.errors import FrazilError, SpecError
from frazil.ingest.loop.leadership import LeadershipState, Member
from frazil_ha.elector import Claim, Elector
from frazil_ha.link import BEAT_S, SILENCE_S, Beat, Guest, Host
from frazil_ha.spread import Division, Holding, divide

log = structlog.get_logger("frazil")

_DAMPED_S = 30.0
"""How long after a claim for silence the next one waits for the elector instead."""
_PRESENCE_S = 0.5
_YIELD_S = 1.0
"""How long a process that is not warm leaves the claim to those that are."""
_RESUME_S = 5.0
"""How long a leader that has stood down waits for another one."""
_STALLED_S = 30.0
"""How long the service's thread may not turn before this process keeps silent."""
_HANGING_TURNS = 20
_LEAVE_S = 30.0
"""How long a leader that stands down waits for the batches that it has in hand: a service that hangs may hold one."""
_EVEN_OUT_S = 30.0
_BREAK_S = 0.6
"""How long the tables of a process whose connection has broken are kept for it: the second attempt comes after 0.3 s."""
_JOIN_S = 1.0
"""How long a new leader keeps tables for processes that have yet to connect with it."""
_RETRY_S = 1.0
_OTHERS_S = 20.0
"""How long the leader of another pipeline is seen alive before this process ends: electors notice deaths sooner."""
_MOST_TABLES = 20
"""How many tables a claim names."""


class Elected:
    """Implements the port `Leadership`. `start` and `close` are called once each."""

    def __init__(
        self,
        elector: Elector,
        host: Host,
        me: Member,
        mode: Literal["lead", "spread"],
        clock: Clock | None = None,
        tables: Collection[str] = (),
    ) -> None:
        """tables: those of the pipeline file, each with its catalog (`Claim.tables`)."""
        self._elector = elector
        self._host = host
        self._mode = mode
        self._clock = clock or SystemClock()
        self._event = threading.Event()
        self._lock = threading.RLock()
        self._is_closed = False
        self._wake: Callable[[], None] = lambda: None
        self._me = me
        self._tables = sorted(tables)
        #: Why this process ends: another pipeline has its name.
        self._refusal: SpecError | None = None
        self._newest: Claim | None = None
        #: When the newest claim was first seen; from the clock that never goes back, as all moments here.
        self._seen_s = 0.0
        self._ask_presence_s = 0.0
        self._is_leading = False
        #: The processes that the leader last reported.
        self._members: dict[str, Member] = {}
        #: When the last of them was seen to go.
        self._alone_s = float("-inf")
        #: What this process has reported of each table: the records per second, None where it does not know them.
        self._loads: dict[str, float | None] = {}
        #: When the service last turned, and for how many turns of the election it has hung.
        self._turned_s: float | None = None
        self._hanging_turns = 0
        #: Tables that the service may have in hand; False once it has been answered that they are not its own.
        self._held: dict[str, bool] = {}
        #: Why this process hands over what it owns, and since when.
        self._leaving: tuple[str, float] | None = None
        #: Whether this process takes no table any more.
        self._is_ending = False
        self._has_left = False
        #: With `spread`: the division that this process acts by, and how the leader makes it.
        self._owners: Mapping[str, str] = {}
        self._version = 0
        self._division: Division | None = None
        self._wanted: dict[str, str] = {}
        #: What each process has last reported, and when: until a moment after its connection has broken.
        self._reports: dict[str, tuple[_Report, float]] = {}
        #: The records per second of each table, as last reported.
        self._rates: dict[str, float] = {}
        #: The processes that the tables were last divided among, and when.
        self._divided_among: set[str] = set()
        self._divided_s = 0.0
        #: Tables that another writer has taken, each until when it is left alone.
        self._lost: dict[str, float] = {}
        self._guest = Guest(self._clock, self._beat_of_guest, self._hear)
        self._thread = threading.Thread(target=self._run, name="ha", daemon=True)

    # ---- for the service

    def start(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._thread.start()

    def owns(self, table: str) -> bool:
        with self._lock:
            if self._refusal is not None:
                raise self._refusal
            is_mine = self._leaving is None and self._is_mine(table)
            if is_mine or table in self._held:
                self._held[table] = is_mine
            return is_mine

    def _is_mine(self, table: str) -> bool:
        now_s = self._clock.monotonic_s()
        if self._mode == "lead":
            return self._is_leading
        is_certain = self._is_leading or now_s - self._guest.heard_s < SILENCE_S
        return is_certain and self._owners.get(table) == self._me.name and self._lost.get(table, 0.0) < now_s

    def offer(self, loads: Mapping[str, float | None], is_warm: bool) -> None:
        with self._lock:
            self._loads = dict(loads)
            self._me = replace(self._me, is_warm=is_warm)
            self._turned_s = self._clock.monotonic_s()

    def fenced(self, table: str) -> bool:
        with self._lock:
            others = self._members.keys() - {self._me.name}
            if not others and not self._was_met and (self._newest is None or self._newest.name == self._me.name):
                return False
            if self._mode == "spread":
                self._lost[table] = self._clock.monotonic_s() + _RESUME_S
            elif self._is_leading:
                self._leave(f"a later run has written {table}")
        self._event.set()
        return True

    @property
    def _was_met(self) -> bool:
        """Whether another process was linked with this one until a moment ago: it leaves a leader that it replaces before
        this one has heard of its claim.
        """
        return self._clock.monotonic_s() - self._alone_s < _RESUME_S

    def stand_down(self, reason: str, is_final: bool = False) -> None:
        with self._lock:
            self._is_ending |= is_final
            if self._is_leading or self._mode == "spread":
                self._leave(reason)
        self._event.set()

    def _leave(self, reason: str) -> None:
        self._leaving, self._has_left = (reason, self._clock.monotonic_s()), False

    def release(self, in_hand: Collection[str] = ()) -> None:
        with self._lock:
            self._held = {table: is_mine for table, is_mine in self._held.items() if is_mine or table in in_hand}
        self._event.set()

    @property
    def state(self) -> LeadershipState:
        with self._lock:
            claim = self._newest
            return LeadershipState(
                self._elector.kind,
                self._mode,
                self._me.name,
                tuple(sorted({**self._members, self._me.name: self._me}.values(), key=lambda member: member.name)),
                claim.name if claim is not None and (claim.name != self._me.name or self._is_leading) else None,
                claim.since_ms if claim is not None else None,
                claim.cause if claim is not None else "",
                dict(self._owners) if self._mode == "spread" else None,
            )

    def close(self) -> None:
        with self._lock:
            self._is_closed, self._has_left = True, True
            leads_others = self._is_leading and bool(self._host.guests)
        self._event.set()
        if leads_others:
            self._clock.sleep(2 * BEAT_S)  # So that all have heard that it was on purpose.
        self._guest.close()
        self._host.close()
        if self._thread.is_alive():
            self._thread.join(2 * SILENCE_S)
        self._elector.close()

    # ---- the election

    def _run(self) -> None:
        ask_s, problem = self._clock.monotonic_s(), ""
        while not self._is_closed:
            try:
                is_leading = self._turn_as_leader()
                # Counted in turns of this thread: after a freeze of the whole process the service continues as well.
                self._hanging_turns = self._hanging_turns + 1 if self._hangs else 0
                if self._hanging_turns > _HANGING_TURNS:
                    self._elector.close()  # It shows no life: whoever has no link with it follows it too.
                elif self._clock.monotonic_s() >= ask_s:
                    ask_s = self._clock.monotonic_s() + self._elector.poll_s
                    self._elector.prepare()
                    self._see(self._elector.newest())
                    problem = ""
                if not is_leading and not problem and not self._hangs:
                    self._turn_as_another()
            except Exception as error:  # noqa: BLE001  (without this thread nobody would ever take over)
                ask_s, problem = self._clock.monotonic_s() + _RETRY_S, _log_once(error, problem)
            self._event.wait(BEAT_S)
            self._event.clear()

    @property
    def _hangs(self) -> bool:
        """Whether the service's thread has not turned for long. Before its first turn it is starting."""
        return self._turned_s is not None and self._clock.monotonic_s() - self._turned_s > _STALLED_S

    def _turn_as_another(self) -> None:
        with self._lock:
            if self._leaving is not None and self._clock.monotonic_s() - self._leaving[1] > _EVEN_OUT_S:
                self._leaving = self._leaving if self._is_ending else None
        cause = None if self._is_leading or self._is_ending else self._cause_to_claim()
        if cause is not None:
            tables = tuple(self._tables[:_MOST_TABLES])
            mine = Claim(self._me.name, self._host.address, new_id(), self._clock.now_ms(), cause, tables=tables)
            self._host.serve(mine.key, self._beat_of_host, self._event.set)
            if not self._elector.claim(mine, self._newest):
                self._host.serve(None, self._beat_of_host, self._event.set)
            self._see(self._elector.newest())

    def _see(self, newest: Claim | None) -> None:
        if newest == self._newest:
            return
        with self._lock:
            was_leading, former = self._is_leading, self._newest
            self._newest, self._seen_s = newest, self._clock.monotonic_s()
            self._is_leading = newest is not None and newest.name == self._me.name
            self._has_left = False
            self._leaving = self._leaving if self._mode == "spread" else None
            if self._is_leading and newest is not None:
                self._members.pop(former.name if former is not None else "", None)
                owners = {table: owner for table, owner in self._owners.items() if owner in self._members}
                self._division, self._divided_among, self._version = Division(owners), set(), 0
                self._wanted, self._reports = {}, {}
                self._event.set()  # What it owns is divided at once.
        if newest is not None and self._is_leading:
            self._guest.follow(None)
            self._host.serve(newest.key, self._beat_of_host, self._event.set)
            log.info("leadership_taken", cause=newest.cause, number=newest.number)
        else:
            with self._lock:
                self._guest.follow(None if self._is_of_another_pipeline(newest) else newest)
                self._version = 0  # Each leader counts its own divisions.
            self._host.serve(None, self._beat_of_host, self._event.set)
            if was_leading and newest is not None:
                log.warning("leadership_lost", leader=newest.name, cause=newest.cause)
        self._wake()

    def _cause_to_claim(self) -> str | None:
        claim, now_s = self._newest, self._clock.monotonic_s()
        if claim is None:
            return "start"
        if self._is_of_another_pipeline(claim):
            return self._cause_after_another_pipeline(claim, now_s)
        cause = None
        if self._guest.heard.get("has_left"):
            cause = "released"
        elif self._guest.standing == "gone":
            cause = "lost"
        elif self._guest.standing == "silent" and (claim.cause != "forced" or now_s - self._seen_s >= _DAMPED_S):
            cause = "forced"
        elif self._guest.standing != "linked" and self._guest.failures and now_s >= self._ask_presence_s:
            self._ask_presence_s = now_s + _PRESENCE_S
            cause = None if self._elector.is_present(claim) else "lost"
        return None if cause is not None and self._leaves_it_to_others(claim, now_s) else cause

    def _is_of_another_pipeline(self, claim: Claim | None) -> bool:
        return claim is not None and bool(claim.tables and self._tables) and not set(claim.tables) & set(self._tables)

    def _cause_after_another_pipeline(self, claim: Claim, now_s: float) -> str | None:
        """Such a claim is followed once its claimant is gone; while it lives this process neither works nor stands by."""
        if now_s < self._ask_presence_s:
            return None
        self._ask_presence_s = now_s + _PRESENCE_S
        if not self._elector.is_present(claim):
            return "lost"
        if now_s - self._seen_s >= _OTHERS_S:
            message = (
                f"another pipeline has this one's name: {claim.name} writes {claim.tables[0]}, not {self._tables[0]}"
            )
            remedy = (
                "name one of them otherwise under `pipeline`, before its first run, or write `ha: {elect: none}` there"
            )
            self._refusal = SpecError(message, remedy=remedy, where="pipeline")
            self._wake()
        return None

    def _leaves_it_to_others(self, claim: Claim, now_s: float) -> bool:
        warm = [
            member
            for member in self._members.values()
            if member.is_warm and member.name not in (claim.name, self._me.name)
        ]
        return bool(warm) and not self._me.is_warm and now_s - self._guest.heard_s < _YIELD_S

    # ---- as the leader

    def _turn_as_leader(self) -> bool:
        """Does what the leader does each turn. Returns whether this process leads."""
        guests = self._host.guests
        with self._lock:
            if not self._is_leading:
                return False
            if not guests and self._members.keys() - {self._me.name}:
                self._alone_s = self._clock.monotonic_s()
            self._members = {name: _member(beat) for name, beat in guests.items()} | {self._me.name: self._me}
            is_new = self._divide(guests) if self._mode == "spread" else False
            is_new |= self._end_leaving(has_others=bool(guests) or self._was_met)
        if is_new:
            self._wake()
        return True

    def _end_leaving(self, has_others: bool) -> bool:
        """Takes its tables again where nobody else does. Returns whether that was so."""
        if self._leaving is None or self._is_closed:
            return False
        reason, since_s = self._leaving
        left_s = self._clock.monotonic_s() - since_s
        if not self._is_ending and (not has_others or (self._has_left and left_s > _RESUME_S)):
            self._leaving, self._has_left = None, False
            return True
        if not self._has_left and (not self._held or left_s > _LEAVE_S):
            log.info("leadership_released", reason=reason)
            self._leaving, self._has_left = (reason, self._clock.monotonic_s()), True
        return False

    def _divide(self, guests: Mapping[str, Beat]) -> bool:
        now_s, division = self._clock.monotonic_s(), self._division
        assert division is not None
        reports = self._take_reports(guests, now_s)
        reports[self._me.name] = _report(self._beat(), division.version)
        members = {name: report.holding for name, report in reports.items()}
        if now_s - self._seen_s < _JOIN_S:  # Their tables are theirs until they have had time to connect.
            missing = set(division.given.values()) - members.keys()
            members |= {name: Holding(0, frozenset()) for name in missing}
        cold = {name for name, report in reports.items() if not report.is_warm}
        leaving = {name for name, report in reports.items() if report.is_leaving}
        able = members.keys() - leaving - cold or members.keys() - leaving or set(members)
        is_stale = able != self._divided_among or self._wanted.keys() != self._loads.keys()
        if is_stale or now_s - self._divided_s >= _EVEN_OUT_S:
            for report in reports.values():
                self._rates |= report.loads
            self._wanted = divide(self._loads, self._rates, able, {**division.given, **self._wanted})
            self._divided_among, self._divided_s = able, now_s
        is_new = division.turn(self._wanted, members)
        self._owners, self._version = division.owners, division.version
        return is_new

    def _take_reports(self, guests: Mapping[str, Beat], now_s: float) -> dict[str, _Report]:
        """Returns what each process has last reported, those included whose connection has just broken."""
        broken = {
            name: (report, seen_s)
            for name, (report, seen_s) in self._reports.items()
            if now_s - seen_s < _BREAK_S and not report.is_leaving
        }
        self._reports = broken | {name: (_report(beat), now_s) for name, beat in guests.items()}
        return {name: report for name, (report, _) in self._reports.items()}

    def _beat_of_host(self, name: str) -> Beat | None:
        """What the process of this name is sent. A leader whose service hangs is as silent as one that is frozen."""
        with self._lock:
            if self._hangs:
                return None
            beat: dict[str, Any] = {
                "has_left": self._has_left,
                "members": [asdict(member) for member in self._members.values()],
                "version": self._version,
            }
            seen = self._host.guests.get(name, {}).get("seen")
            return beat if seen == self._version else {**beat, "owners": dict(self._owners)}

    # ---- as another process

    def _beat_of_guest(self) -> Beat | None:
        """What the leader is sent. A process whose service hangs is as silent as one that is frozen."""
        with self._lock:
            return None if self._hangs else self._beat()

    def _beat(self) -> Beat:
        return {
            **asdict(self._me),
            "seen": self._version,
            "holds": sorted(self._held),
            "loads": {table: load for table in self._held if (load := self._loads.get(table)) is not None},
            "is_leaving": self._leaving is not None,
        }

    def _hear(self) -> None:
        """Takes what the leader has sent, in the link's thread: the election may wait for its service meanwhile."""
        is_new = False
        with self._lock:
            heard = self._guest.heard
            if not self._is_leading and self._guest.standing == "linked":
                self._members = {fields["name"]: _member(fields) for fields in heard.get("members", ())}
                is_new = heard.get("version", self._version) != self._version
                if is_new:
                    self._owners, self._version = heard.get("owners", {}), heard["version"]
        self._event.set()
        if is_new:
            self._wake()


@dataclass(frozen=True)
class _Report:
    """What a process has reported, as far as tables are divided by it."""

    holding: Holding
    #: The records per second of the tables that it holds.
    loads: Mapping[str, float]
    is_warm: bool
    is_leaving: bool


def _report(beat: Beat, seen: int | None = None) -> _Report:
    """Returns the report of a beat. Another version may not send all of it: such a process counts as cold."""
    holding = Holding(int(beat.get("seen", 0)) if seen is None else seen, frozenset(beat.get("holds", ())))
    return _Report(holding, beat.get("loads", {}), bool(beat.get("is_warm")), bool(beat.get("is_leaving")))


def _member(beat: Beat) -> Member:
    """Returns the process of a beat. Another version may send more, or less."""
    return Member(beat["name"], beat.get("version", ""), beat.get("started_at_ms", 0), bool(beat.get("is_warm")))


def _log_once(error: Exception, before: str) -> str:
    """Logs a problem of the election, unless it is the one of before. Returns its name."""
    name = error.message if isinstance(error, FrazilError) else f"{type(error).__name__}: {error}"
    if name != before and isinstance(error, FrazilError):
        log.warning("election_unavailable", message=error.message, remedy=error.remedy)
    elif name != before:
        log.error("unexpected_error", error=name, exc_info=error)
    return name
