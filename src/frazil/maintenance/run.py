"""Plans and runs the maintenance of one table at a time: what each built-in action does, and the order of a round.
Nothing is remembered here: an interrupted round is planned again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import structlog

from frazil.catalog.maintenance_port import Compaction, Rewritten, TableMaintenance
from frazil.catalog.progress import CREATED_AT, DEAD_LETTERS_MARK, has_uncommitted_dead_letters, read_by_replay
from frazil.catalog.table_metadata import TableMetadata, normalize_path
from frazil.clock import Clock
from frazil.errors import ConflictError, FrazilError
from frazil.failpoints import hit
from frazil.maintenance.health import MAINTAINED_NOTE
from frazil.maintenance.plan import (
    BEGIN_NOTE,
    ORPHANS_NOTE,
    Action,
    Holds,
    MaintenanceTask,
    Mode,
    Plan,
    mode_of,
    plan_maintenance,
)
from frazil.maintenance.retention import before_first_commit
from frazil.plugins.driver import ACTIONS

_DELETES_BYTES = str(64 * 1024 * 1024)
# Without partial progress, which would report a failed write or commit as success. A group is one file: one task.
DELETES_OPTIONS = {
    "rewrite-all": "true",
    "max-concurrent-file-group-rewrites": "1",
    "max-file-group-size-bytes": _DELETES_BYTES,
    "target-file-size-bytes": _DELETES_BYTES,
}
log = structlog.get_logger("frazil")
_MARK = re.compile(r"frazil\.(?P<pipeline>.+?)\.(?P<name>created|dead-letters|replaying\.[^.]+)")


@dataclass(frozen=True)
class Round:
    """A round of maintenance of one table: what its actions are run with."""

    #: The table's maintenance in the catalog and the store.
    table_maintenance: TableMaintenance
    #: The plan of the round.
    plan: Plan
    #: How the table is maintained.
    maintenance: MaintenanceTask
    #: The clock of the process.
    clock: Clock
    #: Whether nothing more may be done to the table, as the process ends, or the table is another process's now.
    is_stopping: Callable[[], bool] = lambda: False


def compact(action: Action, current: Round) -> Rewritten:
    """Rewrites data files."""
    compaction = action.compaction or Compaction()
    return current.table_maintenance.compact(action.table, compaction, current.maintenance.transfer)


def rewrite_deletes(action: Action, current: Round) -> Rewritten:
    """Rewrites files of position deletes."""
    return current.table_maintenance.rewrite_deletes(action.table, DELETES_OPTIONS)


def rewrite_manifests(action: Action, current: Round) -> Rewritten:
    """Merges manifests."""
    return current.table_maintenance.rewrite_manifests(action.table)


def carry(action: Action, current: Round) -> Rewritten:
    """Repeats the newest progress in the newest snapshot."""
    current.table_maintenance.carry(action.table)
    return Rewritten()


def expire(action: Action, current: Round) -> Rewritten:
    """Expires the snapshots of the action."""
    current.table_maintenance.expire(action.table, action.snapshots)
    return Rewritten()


def compute_statistics(action: Action, current: Round) -> Rewritten:
    """Counts distinct values."""
    current.table_maintenance.compute_statistics(action.table)
    return Rewritten()


def remove_orphans(action: Action, current: Round) -> Rewritten:
    """Removes files that no snapshot references."""
    plan, now_ms, table_maintenance = current.plan, current.clock.now_ms(), current.table_maintenance
    # A process that was stopped for days has files of that age, and may commit them next.
    oldest_ms = plan.files_since_ms if plan.files_since_ms is not None else now_ms
    age_ms = int(current.maintenance.spec.orphans.age_s * 1000)
    unreferenced = table_maintenance.orphans(action.table, min(oldest_ms, now_ms - age_ms))
    names = {normalize_path(path) for path in plan.pending_files}
    orphans = [path for path in unreferenced if normalize_path(path) not in names]
    hit("maintenance.orphans.found")
    if current.is_stopping():  # The listing may have taken hours, and another process may write the table by now.
        return Rewritten()
    table_maintenance.remove(action.table, orphans)
    table_maintenance.note(action.table, ORPHANS_NOTE, str(now_ms))
    return Rewritten(removed=len(orphans))


@dataclass(frozen=True)
class MaintainedTable:
    """A table under maintenance."""

    name: str
    #: How it is maintained.
    maintenance: MaintenanceTask
    #: The name of its dead-letter table; empty without one.
    dead_letters: str = ""
    #: For a dead-letter table, the tables it belongs to.
    owners: tuple[str, ...] = ()
    #: Whether it is an upsert table, whose commits can undo maintenance.
    is_upsert: bool = False
    #: See Plan.files_since_ms.
    files_since_ms: int | None = None


@dataclass(frozen=True)
class Outcome:
    """How an action ended."""

    action: Action
    #: How long it took.
    took_s: float
    #: What it rewrote.
    rewritten: Rewritten = field(default_factory=Rewritten)
    #: Why it failed; empty on success.
    failure: str = ""
    #: Whether it failed because of a conflicting commit.
    is_lost: bool = False


class MaintenanceRunner:
    """Plans and runs maintenance for the tables of one pipeline."""

    def __init__(
        self,
        table_maintenance: TableMaintenance,
        pipeline: str,
        clock: Clock,
        held: Callable[[str], tuple[int, ...]] = lambda _: (),
    ) -> None:
        """held: returns the snapshots of a table that other threads of this process read."""
        self._table_maintenance = table_maintenance
        self._pipeline = pipeline
        self._clock = clock
        self._held = held

    def plan(
        self,
        maintained: MaintainedTable,
        mode: Mode | None = None,
        begins: bool = False,
        is_scheduled: bool = False,
    ) -> Plan | None:
        """Returns the plan for the table; None where the table does not exist. mode: None: derived from the table's
        newest snapshot. begins: whether to note, for a table that was never maintained, that maintenance begins now;
        orphan files are then searched a day later, or a day after its creation. is_scheduled: whether they are searched
        a day after its creation without that note, as a running pipeline will.

        Raises: UnavailableError as the catalog.
        """
        metadata = self._table_maintenance.metadata(maintained.name, with_files=True)
        if metadata is None:
            return None
        now_ms = self._clock.now_ms()
        noted = self._noted(metadata)
        if noted.keys().isdisjoint((ORPHANS_NOTE, BEGIN_NOTE)):
            if CREATED_AT in noted and (begins or is_scheduled):
                noted = {**noted, BEGIN_NOTE: noted[CREATED_AT]}
            elif begins:
                self._table_maintenance.note(maintained.name, BEGIN_NOTE, str(now_ms))
                noted = {**noted, BEGIN_NOTE: now_ms}
        holds, mode = self._holds(metadata, maintained), mode or mode_of(metadata, now_ms)
        plan = plan_maintenance(metadata, maintained.maintenance, holds, now_ms, mode, noted)
        is_settled = not plan.actions and not plan.waiting
        if is_settled and mode != "thorough":
            is_settled = not plan_maintenance(
                metadata, maintained.maintenance, holds, now_ms, "thorough", noted
            ).actions
        return replace(plan, files_since_ms=maintained.files_since_ms, is_settled=is_settled)

    def note_round(self, table: str) -> None:
        """Notes that a round has done something: expired snapshots and removed files leave no trace of it."""
        self._table_maintenance.note(table, MAINTAINED_NOTE, str(self._clock.now_ms()))

    def run(
        self, plan: Plan, maintenance: MaintenanceTask, is_stopping: Callable[[], bool] = lambda: False
    ) -> Iterator[Outcome]:
        """Runs the actions of the plan and yields their outcomes. After a failure that was not a conflict, no more files
        are rewritten; snapshots are expired nevertheless, or the metadata would grow for as long as rewriting fails.
        """
        has_failed, current = False, Round(self._table_maintenance, plan, maintenance, self._clock, is_stopping)
        for action in plan.actions:
            if is_stopping():
                return
            kind = ACTIONS.get(action.kind)
            if has_failed and kind.is_rewrite:
                continue
            began_s = self._clock.monotonic_s()
            try:
                hit("maintenance.planned")
                rewritten = kind.runner(action, current)
                outcome = Outcome(action, self._clock.monotonic_s() - began_s, rewritten)
            except FrazilError as error:
                took_s = self._clock.monotonic_s() - began_s
                outcome = Outcome(action, took_s, failure=error.message, is_lost=isinstance(error, ConflictError))
            _log(outcome)
            yield outcome
            has_failed = has_failed or bool(outcome.failure and not outcome.is_lost)

    # ---- what must be kept

    def _holds(self, metadata: TableMetadata, maintained: MaintainedTable) -> Holds:
        """Returns what dead-letter tables and unfinished replays still need (docs/decisions/0009, 0010, 0019)."""
        marks = dict(_marks(metadata))
        read = [(value, read_by_replay(name, value)) for (_, name), value in marks.items()]
        back_to = tuple(snapshot for _, snapshot in read if snapshot is not None)
        tables = {value for (_, name), value in marks.items() if name == DEAD_LETTERS_MARK} | {maintained.dead_letters}
        waits = next((reason for table in sorted(tables - {""}) if (reason := self._open_replay(table))), "")
        if any(snapshot is not None and has_uncommitted_dead_letters(value) for value, snapshot in read):
            waits = _unfinished(metadata.name)
        others = {pipeline for pipeline, name in marks if name == "created"} - {self._pipeline}
        if maintained.owners and others:
            waits = f"another pipeline stores dead letters here as well: {min(others)}"
        back_to += (*before_first_commit(metadata, self._pipeline), *self._held(metadata.name))
        return Holds(
            back_to, waits, frozenset(path for owner in maintained.owners for path in self._pending_files(owner))
        )

    def _open_replay(self, dead_letter_table: str) -> str:
        metadata = self._table_maintenance.metadata(dead_letter_table, with_files=False)
        is_open = metadata is not None and any(
            read_by_replay(name, value) is not None for (_, name), value in _marks(metadata)
        )
        return _unfinished(dead_letter_table) if is_open else ""

    def _pending_files(self, owner: str) -> frozenset[str]:
        metadata = self._table_maintenance.metadata(owner, with_files=False)
        return metadata.pending_files if metadata is not None else frozenset()

    def _noted(self, metadata: TableMetadata) -> Mapping[str, int]:
        prefix = f"frazil.{self._pipeline}."
        notes = (
            (name.removeprefix(prefix), text) for name, text in metadata.properties.items() if name.startswith(prefix)
        )
        return {name: int(text) for name, text in notes if text.isdecimal()}


def _unfinished(dead_letter_table: str) -> str:
    return f"a replay of dead letters is not finished: {dead_letter_table}"


def _marks(metadata: TableMetadata) -> Iterator[tuple[tuple[str, str], str]]:
    """Yields Frazil's table properties of every pipeline: pipeline and name, and the value."""
    for name, value in metadata.properties.items():
        match = _MARK.fullmatch(name)
        if match is not None:
            yield (match["pipeline"], match["name"]), value


def _log(outcome: Outcome) -> None:
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
