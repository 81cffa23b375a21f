"""Plans and runs the care of one table at a time. Nothing here is remembered: a round that died is planned again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import structlog

from frazil.catalog.history import LETTERS_MARK, OPEN_RETRY
from frazil.catalog.look import TableLook
from frazil.catalog.upkeep import Rewritten, Upkeep
from frazil.clock import Clock
from frazil.errors import ConflictError, FrazilError
from frazil.failpoints import hit
from frazil.maintain.plan import ORPHANS_NOTE, Action, Care, Holds, Mode, Plan, mode_of, plan_care

log = structlog.get_logger("frazil")

_MARK = re.compile(r"frazil\.(?P<pipeline>.+?)\.(?P<name>created|dead-letters|retrying\.[^.]+)")
_DELETES_OPTIONS = {"rewrite-all": "true", "partial-progress.enabled": "true"}


@dataclass(frozen=True)
class Charge:
    """A table in care. letters: the name of its dead-letter table; owners: of a dead-letter table those whose it is."""

    name: str
    care: Care
    letters: str = ""
    owners: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How an action ended. failure: in words, where it came to nothing; is_lost: another commit was in the way."""

    action: Action
    took_s: float
    rewritten: Rewritten = field(default_factory=Rewritten)
    failure: str = ""
    is_lost: bool = False


class Carer:
    """Cares for the tables of one pipeline, by `upkeep`."""

    def __init__(self, upkeep: Upkeep, pipeline: str, clock: Clock) -> None:
        self._upkeep = upkeep
        self._pipeline = pipeline
        self._clock = clock

    def plan(self, charge: Charge, mode: Mode | None = None) -> Plan | None:
        """What is to do; None where there is no table. mode: None: as the table's newest snapshots say.

        Raises UnavailableError as the catalog does.
        """
        look = self._upkeep.look(charge.name, with_files=True)
        if look is None:
            return None
        now_ms = self._clock.now_ms()
        noted = self._noted(look)
        return plan_care(look, charge.care, self._holds(look, charge), now_ms, mode or mode_of(look, now_ms), noted)

    def first_note(self, charge: Charge) -> None:
        """Notes a table that has never been cared for as one without orphans: what it has is looked for a day later."""
        look = self._upkeep.look(charge.name, with_files=False)
        if look is not None and ORPHANS_NOTE not in self._noted(look):
            self._upkeep.note(charge.name, ORPHANS_NOTE, str(self._clock.now_ms()))

    def run(self, plan: Plan, care: Care, is_stopping: Callable[[], bool] = lambda: False) -> Iterator[Outcome]:
        """Does what is planned, one action after another; what fails keeps only the table's later actions from being done
        when it was not lost to another commit.
        """
        for action in plan.actions:
            if is_stopping():
                return
            began_s = self._clock.monotonic_s()
            try:
                rewritten = self._do(action, plan, care)
                outcome = Outcome(action, self._clock.monotonic_s() - began_s, rewritten)
            except FrazilError as error:
                took_s = self._clock.monotonic_s() - began_s
                outcome = Outcome(action, took_s, failure=error.message, is_lost=isinstance(error, ConflictError))
            _tell(outcome)
            yield outcome
            if outcome.failure and not outcome.is_lost:
                return

    def _do(self, action: Action, plan: Plan, care: Care) -> Rewritten:
        hit("care.planned")
        upkeep, table = self._upkeep, action.table
        done = Rewritten()
        if action.kind == "compact" and action.compaction is not None:
            done = upkeep.compact(table, action.compaction)
        elif action.kind == "deletes":
            done = upkeep.rewrite_deletes(table, _DELETES_OPTIONS)
        elif action.kind == "manifests":
            done = upkeep.rewrite_manifests(table)
        elif action.kind == "orphans":
            done = self._remove_orphans(table, care, plan.spared)
        else:
            self._keep_books(action)
        return done

    def _keep_books(self, action: Action) -> None:
        if action.kind == "carry":
            self._upkeep.carry(action.table)
        elif action.kind == "expire":
            self._upkeep.expire(action.table, action.snapshots)
        elif action.kind == "statistics":
            self._upkeep.compute_statistics(action.table)

    def _remove_orphans(self, table: str, care: Care, spared: frozenset[str]) -> Rewritten:
        now_ms = self._clock.now_ms()
        found = self._upkeep.orphans(table, now_ms - int(care.spec.orphan_age_s * 1000))
        names = {_plain(path) for path in spared}
        orphans = [path for path in found if _plain(path) not in names]
        hit("care.orphans.found")
        self._upkeep.remove(table, orphans)
        self._upkeep.note(table, ORPHANS_NOTE, str(now_ms))
        return Rewritten(removed=len(orphans))

    # ---- what must stay

    def _holds(self, look: TableLook, charge: Charge) -> Holds:
        """What promises to and from dead-letter tables still need (docs/decisions/0009, 0010, 0019)."""
        marks = dict(_marks(look))
        back_to = tuple(int(value) for (_, name), value in marks.items() if name.startswith(OPEN_RETRY))
        boxes = {value for (_, name), value in marks.items() if name == LETTERS_MARK} | {charge.letters}
        waits = next((words for box in sorted(boxes - {""}) if (words := self._open_retry(box))), "")
        others = {pipeline for pipeline, name in marks if name == "created"} - {self._pipeline}
        if charge.owners and others:
            waits = f"another pipeline keeps dead letters here as well: {min(others)}"
        return Holds(back_to, waits, frozenset(path for owner in charge.owners for path in self._promised(owner)))

    def _open_retry(self, box: str) -> str:
        look = self._upkeep.look(box, with_files=False)
        is_open = look is not None and any(name.startswith(OPEN_RETRY) for (_, name), _ in _marks(look))
        return f"a retry of dead letters is not finished: {box}" if is_open else ""

    def _promised(self, owner: str) -> frozenset[str]:
        look = self._upkeep.look(owner, with_files=False)
        return look.promised if look is not None else frozenset()

    def _noted(self, look: TableLook) -> Mapping[str, int]:
        text = look.properties.get(f"frazil.{self._pipeline}.{ORPHANS_NOTE}", "")
        return {ORPHANS_NOTE: int(text)} if text.isdecimal() else {}


def _marks(look: TableLook) -> Iterator[tuple[tuple[str, str], str]]:
    """The properties of every pipeline, by pipeline and name."""
    for name, value in look.properties.items():
        match = _MARK.fullmatch(name)
        if match is not None:
            yield (match["pipeline"], match["name"]), value


def _plain(path: str) -> str:
    """A path without what two ways of writing it differ in."""
    return path.removeprefix("file:").lstrip("/")


def _tell(outcome: Outcome) -> None:
    action, took_s = outcome.action, round(outcome.took_s, 3)
    if outcome.is_lost:
        log.info("care_lost", table=action.table, action=action.kind, reason=outcome.failure, took_s=took_s)
    elif outcome.failure:
        log.warning("care_failed", table=action.table, action=action.kind, reason=outcome.failure)
    else:
        done = outcome.rewritten
        log.info(
            "care_done",
            table=action.table,
            action=action.kind,
            reason=action.reason,
            removed=done.removed,
            added=done.added,
            lost=done.lost,
            took_s=took_s,
        )
