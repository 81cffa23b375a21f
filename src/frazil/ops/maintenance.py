"""Maintenance of a pipeline's tables in one round, for `frazil maintain` and the API.

Each table has its dead-letter table, settings and target file size; a round has what is due, what was done, and the JSON
of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from frazil.catalog.maintenance_port import TableMaintenance
from frazil.catalog.port import Catalog
from frazil.clock import Clock
from frazil.errors import FrazilError, SpecError
from frazil.ingest.tables.table import Table
from frazil.ingest.tables.target import transfer_of
from frazil.maintenance.due import RoundsStatus, TableActivity
from frazil.maintenance.plan import Action, MaintenanceTask, Plan
from frazil.maintenance.run import MaintainedTable, MaintenanceRunner, Outcome
from frazil.maintenance.scheduler import ROUND_BYTES
from frazil.ops.pipeline_status import MaintenanceReport
from frazil.printable import counted
from frazil.spec.syntax.problems import nearest
from frazil.stages.table import table_stages

_OFF = "`maintenance` is false in this pipeline file"


def maintained_tables(tables: Iterable[Table]) -> list[MaintainedTable]:
    """Returns every table and every dead-letter table, which may not exist."""
    all_tables = list(tables)
    own = [maintained_table(table) for table in all_tables]
    return own + [_dead_letter_table(owners) for owners in _owners_of_dead_letters(all_tables).values()]


def maintained_table(table: Table, is_limited: bool = False) -> MaintainedTable:
    """Returns one table. is_limited: limits the bytes of a round."""
    maintenance, is_upsert = _maintenance_task(table, is_limited), table.spec.changes.mode == "upsert"
    return MaintainedTable(table.name, maintenance, dead_letters=table.dead_letter_table_name, is_upsert=is_upsert)


def _owners_of_dead_letters(tables: Iterable[Table]) -> dict[str, list[Table]]:
    """Returns the tables of each dead-letter table."""
    owners: dict[str, list[Table]] = {}
    for table in tables:
        owners.setdefault(table.dead_letter_table_name, []).append(table)
    return owners


def _dead_letter_table(owners: Sequence[Table], is_limited: bool = False) -> MaintainedTable:
    # A sort order and keys refer to columns that dead-letter tables lack.
    maintenance = _maintenance_task(owners[0], is_limited)
    maintenance = replace(
        maintenance,
        spec=maintenance.spec.model_copy(update={"sort": (), "zorder": (), "order_lines": ()}),
        transfer=None,
        stages=(),
    )
    return MaintainedTable(owners[0].dead_letter_table_name, maintenance, owners=tuple(table.name for table in owners))


def load_upsert_tables(tables: Iterable[Table], catalog: Catalog) -> None:
    """Loads the upsert tables: a compaction can survive concurrent deletes only with the keys of the table. What the
    catalog does not answer stays unknown.
    """
    for table in tables:
        if table.spec.changes.mode == "upsert":
            with suppress(FrazilError):
                table.state = catalog.load(table.name)


class Activities:
    """What a running pipeline last committed to its tables. How an append table and a dead-letter table are maintained is
    in the pipeline file alone, and is remembered: this is read twice a second.
    """

    def __init__(self) -> None:
        self._append_tables: dict[str, MaintainedTable] = {}
        self._dead_letter_tables: dict[tuple[str, ...], MaintainedTable] = {}

    def of(self, tables: Iterable[Table]) -> list[TableActivity]:
        """Returns the last commit to each table that this process works on; tables without a commit are left out. A
        dead-letter table of several tables is the first one's.
        """
        all_tables = list(tables)
        in_hand, owners, activities = _batches(all_tables), _owners_of_dead_letters(all_tables), list[TableActivity]()
        for table in all_tables:
            if table.catalog.size is None:
                continue
            version, size = table.progress.commit_id, table.catalog.size
            maintained = self._append_tables.get(table.name)
            if maintained is None:
                maintained = maintained_table(table, is_limited=True)
                if not maintained.is_upsert:
                    self._append_tables[table.name] = maintained
            activities.append(
                TableActivity(maintained, version, size.file_count, size.snapshot_count, in_hand.get(table.name))
            )
            if count := table.catalog.dead_letter_count:
                dead_letters = self._dead_letters(owners[table.dead_letter_table_name])
                activities.append(TableActivity(dead_letters, str(count), 0, 0, in_hand.get(dead_letters.name)))
        owned = {table.name for table in all_tables if table.schedule.is_owned}
        return [
            activity
            for activity in activities
            if (activity.maintained.owners or (activity.maintained.name,))[0] in owned
        ]

    def _dead_letters(self, owners: list[Table]) -> MaintainedTable:
        names = tuple(table.name for table in owners)
        if names not in self._dead_letter_tables:
            self._dead_letter_tables[names] = _dead_letter_table(owners, is_limited=True)
        return self._dead_letter_tables[names]


def _batches(tables: Iterable[Table]) -> dict[str, float]:
    """Returns when the oldest batch in progress of each table was planned; a batch may have dead letters too."""
    begins_s: dict[str, float] = {}
    for table in tables:
        for name in (table.name, table.dead_letter_table_name) if table.schedule.in_flight else ():
            begins_s[name] = min(begins_s.get(name, table.schedule.last_batch_at_s), table.schedule.last_batch_at_s)
    return begins_s


def report_maintenance(
    table_maintenance: TableMaintenance, pipeline: str, table: Table, rounds: RoundsStatus, clock: Clock
) -> MaintenanceReport | None:
    """Returns the health and due maintenance of one table for `status`; None where the table does not exist. rounds: what
    the rounds of the running process came to.

    Raises: UnavailableError as the catalog.
    """
    runner = MaintenanceRunner(table_maintenance, pipeline, clock)
    plan = runner.plan(maintained_table(table), is_scheduled=True)
    return None if plan is None else maintenance_report(plan, table.spec.changes.mode, rounds)


def maintenance_report(plan: Plan, mode: str, rounds: RoundsStatus) -> MaintenanceReport:
    """Returns the health and due maintenance of a table with this plan. mode: the table's mode; rounds: what the rounds of
    the running process came to.
    """
    health = plan.health
    lasts = [at for at in (health.last_maintenance_ms, rounds.last_ms) if at is not None]
    return MaintenanceReport(
        p50_bytes=health.p50_bytes,
        small_share=round(health.small_share, 4),
        delete_files=health.delete_files,
        deleted_rows=health.deleted_rows,
        manifests=health.manifests,
        metadata_bytes=health.metadata_bytes,
        last_ms=max(lasts, default=None),
        due=tuple(f"{action.kind}: {action.reason}" for action in plan.actions if not action.is_precaution),
        waiting=plan.waiting,
        above_cap=health.above_cap,
        failure=rounds.failure,
        slowed_by=rounds.slowed_by if mode == "upsert" else 1.0,
    )


def _maintenance_task(table: Table, is_limited: bool) -> MaintenanceTask:
    spec = table.spec.maintenance
    target = spec.target_file_size_bytes or table.spec.commit.target_file_size_bytes
    most = ROUND_BYTES * spec.cores if is_limited else None
    return MaintenanceTask(spec, target, most, transfer_of(table), table_stages(table.spec))


@dataclass(frozen=True)
class TableRound:
    """One round of maintenance of one table."""

    name: str
    #: Its plan; None without one.
    plan: Plan | None = None
    outcomes: tuple[Outcome, ...] = ()
    #: Why there is no plan.
    failure: str = ""


def chosen_tables(known: Sequence[Table], table: str | None) -> list[MaintainedTable]:
    """Returns the tables to maintain: all, or one with its dead-letter table.

    Raises: SpecError for a name that no table has.
    """
    candidates = maintained_tables(known)
    if table is None:
        return candidates
    mine = [maintained for maintained in candidates if table == maintained.name or table in maintained.owners]
    if not mine:
        near = nearest(table, [other.name for other in known])
        remedy = f"did you mean `{near}`?" if near else "name a table that `frazil status` shows"
        raise SpecError(f"the pipeline has no table `{table}`", remedy=remedy)
    return mine


def plan_rounds(
    runner: MaintenanceRunner, chosen: Sequence[MaintainedTable], note: Callable[[str], None] = lambda _: None
) -> Iterator[TableRound]:
    """Yields what is due for each table that exists. note: receives what is being done."""
    for number, maintained in enumerate(chosen, 1):
        note(counted(f"looking at {maintained.name}", number, len(chosen)))
        try:
            plan = runner.plan(maintained, "thorough")
        except FrazilError as error:
            yield TableRound(maintained.name, failure=error.message)
            continue
        if plan is not None:
            is_on = maintained.maintenance.spec.is_on
            yield TableRound(maintained.name, plan if is_on else replace(plan, waiting=(_OFF,)))


def run_rounds(
    runner: MaintenanceRunner, chosen: Sequence[MaintainedTable], note: Callable[[str], None] = lambda _: None
) -> Iterator[TableRound]:
    """Runs what is due for each table that exists; yields each round at its end. note: receives what is being done."""
    for number, maintained in enumerate(chosen, 1):
        note(counted(f"maintaining {maintained.name}", number, len(chosen)))
        for planned in plan_rounds(runner, [maintained]):
            outcomes = tuple(runner.run(planned.plan, maintained.maintenance)) if planned.plan is not None else ()
            if any(not outcome.failure for outcome in outcomes):
                with suppress(FrazilError):  # The actions are done and reported.
                    runner.note_round(planned.name)
            yield TableRound(planned.name, planned.plan, outcomes, planned.failure)


def document_of_rounds(rounds: Sequence[TableRound], dry_run: bool) -> dict[str, Any]:
    """Returns the JSON of the plans and their outcomes."""
    return {"dry_run": dry_run, "tables": {table_round.name: _of_table(table_round) for table_round in rounds}}


def _of_table(table_round: TableRound) -> dict[str, Any]:
    plan = table_round.plan
    document: dict[str, Any] = {"failure": table_round.failure, "actions": [], "waiting": [], "health": None}
    if plan is None:
        return document
    for action, outcome in ends_of(table_round):
        described: dict[str, Any] = {"action": action.kind, "reason": action.reason, "gain": action.gain}
        if outcome is not None:
            described |= {"took_s": round(outcome.took_s, 3), "failure": outcome.failure, "conflict": outcome.is_lost}
            rewritten = asdict(outcome.rewritten)
            described["rewritten"] = {"conflicts": rewritten.pop("lost"), **rewritten}
        document["actions"].append(described)
    health = plan.health
    figures = {**asdict(health), "small_share": round(health.small_share, 4), "above_cap": health.above_cap}
    return {**document, "waiting": plan.waiting, "health": figures}


def ends_of(table_round: TableRound) -> Iterator[tuple[Action, Outcome | None]]:
    """Yields each action with its outcome; None for an action that was not started."""
    outcomes = {outcome.action.kind: outcome for outcome in table_round.outcomes}
    for action in table_round.plan.actions if table_round.plan is not None else ():
        yield action, outcomes.get(action.kind)
