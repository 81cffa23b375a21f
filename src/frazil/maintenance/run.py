"""Plans and runs the care of one table at a time. Nothing here is remembered: a round that died is planned again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import structlog

from frazil.catalog.history import DEAD_LETTERS_MARK, has_uncommitted_dead_letters, read_by_retry
from frazil.catalog.maintenance_port import Rewritten, Upkeep
from frazil.catalog.shared_folder import plain
from frazil.catalog.table_metadata import TableMetadata
from frazil.clock import Clock
from frazil.errors import ConflictError, FrazilError
from frazil.failpoints import hit
from frazil.maintenance.health import CARED_NOTE, TableHealth, measure
from frazil.maintenance.plan import (
    BEGIN_NOTE,
    ORPHANS_NOTE,
    REWRITES,
    Action,
    Holds,
    MaintenanceTask,
    Mode,
    Plan,
    as_the_table_says,
    mode_of,
    plan_maintenance,
)
from frazil.maintenance.retention import before_first_commit

log = structlog.get_logger("frazil")

_MARK = re.compile(r"frazil\.(?P<pipeline>.+?)\.(?P<name>created|dead-letters|replaying\.[^.]+)")
_DELETES_BYTES = str(64 * 1024 * 1024)
# Without partial progress: it would take a failed write or commit for a success. A group is one file, so one task's.
DELETES_OPTIONS = {
    "rewrite-all": "true",
    "max-concurrent-file-group-rewrites": "1",
    "max-file-group-size-bytes": _DELETES_BYTES,
    "target-file-size-bytes": _DELETES_BYTES,
}


@dataclass(frozen=True)
class Charge:
    """A table in care. dead_letters: the name of its dead-letter table; owners: of a dead-letter table those whose it is.
    is_upsert: its records replace rows, so its commits undo care's work. files_since_ms: see Plan.
    """

    name: str
    maintenance: MaintenanceTask
    dead_letters: str = ""
    owners: tuple[str, ...] = ()
    is_upsert: bool = False
    files_since_ms: int | None = None


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

    def plan(self, charge: Charge, mode: Mode | None = None, begins: bool = False) -> Plan | None:
        """What is to do; None where there is no table. mode: None: as the table's newest snapshots say. begins: whether to
        note of a table that has never been cared for that its care begins now; its orphans are looked for a day later.

        Raises UnavailableError as the catalog does.
        """
        metadata = self._upkeep.metadata(charge.name, with_files=True)
        if metadata is None:
            return None
        now_ms = self._clock.now_ms()
        noted = self._noted(metadata)
        if begins and not noted:
            self._upkeep.note(charge.name, BEGIN_NOTE, str(now_ms))
            noted = {BEGIN_NOTE: now_ms}
        holds, mode = self._holds(metadata, charge), mode or mode_of(metadata, now_ms)
        plan = plan_maintenance(metadata, charge.maintenance, holds, now_ms, mode, noted)
        is_settled = not plan.actions and not plan.waiting
        if is_settled and mode != "thorough":
            is_settled = not plan_maintenance(metadata, charge.maintenance, holds, now_ms, "thorough", noted).actions
        return replace(plan, files_since_ms=charge.files_since_ms, is_settled=is_settled)

    def measure(self, charge: Charge) -> TableHealth:
        """What the table owes now; nothing where there is none. Raises UnavailableError as the catalog does."""
        metadata = self._upkeep.metadata(charge.name, with_files=True)
        return (
            measure(metadata, as_the_table_says(charge.maintenance, metadata).target_bytes)
            if metadata is not None
            else TableHealth()
        )

    def note_round(self, table: str) -> None:
        """Notes that a round has done something: expired snapshots and removed files leave no trace of it."""
        self._upkeep.note(table, CARED_NOTE, str(self._clock.now_ms()))

    def run(
        self, plan: Plan, maintenance: MaintenanceTask, is_stopping: Callable[[], bool] = lambda: False
    ) -> Iterator[Outcome]:
        """Does what is planned, one action after another. Where one has failed, and was not lost to another commit, no
        more files are rewritten; books are kept nevertheless, or the metadata would grow for as long as it fails.
        """
        has_failed = False
        for action in plan.actions:
            if is_stopping():
                return
            if has_failed and action.kind in REWRITES:
                continue
            began_s = self._clock.monotonic_s()
            try:
                rewritten = self._do(action, plan, maintenance)
                outcome = Outcome(action, self._clock.monotonic_s() - began_s, rewritten)
            except FrazilError as error:
                took_s = self._clock.monotonic_s() - began_s
                outcome = Outcome(action, took_s, failure=error.message, is_lost=isinstance(error, ConflictError))
            _tell(outcome)
            yield outcome
            has_failed = has_failed or bool(outcome.failure and not outcome.is_lost)

    def _do(self, action: Action, plan: Plan, maintenance: MaintenanceTask) -> Rewritten:
        hit("maintenance.planned")
        upkeep, table = self._upkeep, action.table
        done = Rewritten()
        if action.kind == "compact" and action.compaction is not None:
            done = upkeep.compact(table, action.compaction, maintenance.transfer)
        elif action.kind == "deletes":
            done = upkeep.rewrite_deletes(table, DELETES_OPTIONS)
        elif action.kind == "manifests":
            done = upkeep.rewrite_manifests(table)
        elif action.kind == "orphans":
            done = self._remove_orphans(plan, maintenance)
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

    def _remove_orphans(self, plan: Plan, maintenance: MaintenanceTask) -> Rewritten:
        table, now_ms = plan.table, self._clock.now_ms()
        # A process that was stopped for days has files that are as old, and may commit them next.
        oldest_ms = plan.files_since_ms if plan.files_since_ms is not None else now_ms
        found = self._upkeep.orphans(table, min(oldest_ms, now_ms - int(maintenance.spec.orphan_age_s * 1000)))
        names = {plain(path) for path in plan.spared}
        orphans = [path for path in found if plain(path) not in names]
        hit("maintenance.orphans.found")
        self._upkeep.remove(table, orphans)
        self._upkeep.note(table, ORPHANS_NOTE, str(now_ms))
        return Rewritten(removed=len(orphans))

    # ---- what must stay

    def _holds(self, metadata: TableMetadata, charge: Charge) -> Holds:
        """What promises to and from dead-letter tables still need (docs/decisions/0009, 0010, 0019)."""
        marks = dict(_marks(metadata))
        read = [(value, read_by_retry(name, value)) for (_, name), value in marks.items()]
        back_to = tuple(snapshot for _, snapshot in read if snapshot is not None)
        boxes = {value for (_, name), value in marks.items() if name == DEAD_LETTERS_MARK} | {charge.dead_letters}
        waits = next((words for box in sorted(boxes - {""}) if (words := self._open_retry(box))), "")
        if any(snapshot is not None and has_uncommitted_dead_letters(value) for value, snapshot in read):
            waits = _unfinished(metadata.name)
        others = {pipeline for pipeline, name in marks if name == "created"} - {self._pipeline}
        if charge.owners and others:
            waits = f"another pipeline stores dead letters here as well: {min(others)}"
        back_to += before_first_commit(metadata, self._pipeline)
        return Holds(back_to, waits, frozenset(path for owner in charge.owners for path in self._promised(owner)))

    def _open_retry(self, box: str) -> str:
        metadata = self._upkeep.metadata(box, with_files=False)
        is_open = metadata is not None and any(
            read_by_retry(name, value) is not None for (_, name), value in _marks(metadata)
        )
        return _unfinished(box) if is_open else ""

    def _promised(self, owner: str) -> frozenset[str]:
        metadata = self._upkeep.metadata(owner, with_files=False)
        return metadata.promised if metadata is not None else frozenset()

    def _noted(self, metadata: TableMetadata) -> Mapping[str, int]:
        texts = {
            name: metadata.properties.get(f"frazil.{self._pipeline}.{name}", "") for name in (ORPHANS_NOTE, BEGIN_NOTE)
        }
        return {name: int(text) for name, text in texts.items() if text.isdecimal()}


def _unfinished(box: str) -> str:
    return f"a replay of dead letters is not finished: {box}"


def _marks(metadata: TableMetadata) -> Iterator[tuple[tuple[str, str], str]]:
    """The properties of every pipeline, by pipeline and name."""
    for name, value in metadata.properties.items():
        match = _MARK.fullmatch(name)
        if match is not None:
            yield (match["pipeline"], match["name"]), value


def _tell(outcome: Outcome) -> None:
    action, took_s = outcome.action, round(outcome.took_s, 3)
    if outcome.is_lost:
        log.info("maintenance_conflict", table=action.table, action=action.kind, reason=outcome.failure, took_s=took_s)
    elif outcome.failure:
        log.warning("maintenance_failed", table=action.table, action=action.kind, reason=outcome.failure)
    else:
        done = outcome.rewritten
        log.info(
            "maintenance_done",
            table=action.table,
            action=action.kind,
            reason=action.reason,
            removed=done.removed,
            added=done.added,
            conflicts=done.lost,
            took_s=took_s,
        )
