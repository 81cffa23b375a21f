"""`frazil maintain`: one round of table maintenance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from frazil.catalog.iceberg.maintenance import IcebergMaintenance
from frazil.catalog.maintenance_port import TableMaintenance
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.cli.wiring import (
    has_catalog,
    known_state,
    light_jvm,
    open_catalog,
    open_catalog_for_reading,
    read_spec,
    running_jvm,
    topics_for_reading,
)
from frazil.clock import SystemClock
from frazil.errors import FrazilError, SpecError
from frazil.ingest.failures import named_jvm_death
from frazil.ingest.table import Table
from frazil.maintenance.merge_task import merge_of
from frazil.maintenance.plan import Action, Plan
from frazil.maintenance.run import MaintainedTable, MaintenanceRunner, Outcome
from frazil.ops.maintenance import load_upsert_tables, maintained_tables
from frazil.ops.reports import count, duration, plural, size
from frazil.ops.status import known_tables
from frazil.spec import PipelineSpec
from frazil.spec.problems import nearest

FAILED = 1
_OFF = "`maintenance` is false in this pipeline file"
OneTable = Annotated[
    str | None, typer.Option("--table", metavar="TABLE", help="Only this table and its dead-letter table.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the due actions and their reasons; change nothing.")]


@dataclass(frozen=True)
class TableRound:
    """The round of one table."""

    name: str
    #: Its plan; None without one.
    plan: Plan | None = None
    outcomes: tuple[Outcome, ...] = ()
    #: Why there is no plan.
    failure: str = ""


def command(output: Output, file: SpecFile = DEFAULT_FILE, table: OneTable = None, dry_run: DryRun = False) -> int:
    """Run table maintenance once: compact small files, rewrite delete files and manifests, expire snapshots, remove orphans.

    Only actions due by `maintenance` in the pipeline file run. Works whether or not `frazil run` is running, on this
    machine or another. A round can be interrupted at any time: the next one continues.

    Exit code: 0 when every due action is done or was refused because of another writer's commit; 1 when an action failed.
    """
    spec = read_spec(output, file)
    known = known_tables(spec, topics_for_reading(spec), known_state(spec))
    chosen = _chosen(known, table)
    if not has_catalog(spec):
        rounds = []
    elif dry_run:
        with light_jvm(spec) as light:
            table_maintenance = IcebergMaintenance(open_catalog_for_reading(light, spec))
            rounds = list(_plans(MaintenanceRunner(table_maintenance, spec.pipeline, SystemClock()), chosen))
    else:
        with running_jvm(spec) as jvm, named_jvm_death():
            catalog = open_catalog(jvm, spec)
            load_upsert_tables(known, catalog)
            table_maintenance = IcebergMaintenance(catalog, jvm.session, spec.maintenance.cores, merge_of)
            rounds = list(_round(table_maintenance, spec, _chosen(known, table)))
    output.result(document_of(rounds, dry_run), _render(rounds, dry_run))
    return FAILED if any(found.failure or any(_is_bad(o) for o in found.outcomes) for found in rounds) else 0


def _chosen(known: Sequence[Table], table: str | None) -> list[MaintainedTable]:
    found = maintained_tables(known)
    if table is None:
        return found
    mine = [maintained for maintained in found if table == maintained.name or table in maintained.owners]
    if not mine:
        near = nearest(table, [one.name for one in known])
        remedy = f"did you mean `{near}`?" if near else "name a table that `frazil status` shows"
        raise SpecError(f"the pipeline has no table `{table}`", remedy=remedy)
    return mine


def _plans(runner: MaintenanceRunner, chosen: Sequence[MaintainedTable]) -> Iterator[TableRound]:
    for maintained in chosen:
        try:
            plan = runner.plan(maintained, "thorough")
        except FrazilError as error:
            yield TableRound(maintained.name, failure=error.message)
            continue
        if plan is not None:
            is_on = maintained.maintenance.spec.is_on
            yield TableRound(maintained.name, plan if is_on else replace(plan, waiting=(_OFF,)))


def _round(
    table_maintenance: TableMaintenance, spec: PipelineSpec, chosen: Sequence[MaintainedTable]
) -> Iterator[TableRound]:
    runner = MaintenanceRunner(table_maintenance, spec.pipeline, SystemClock())
    for maintained in chosen:
        for planned in _plans(runner, [maintained]):
            outcomes = tuple(runner.run(planned.plan, maintained.maintenance)) if planned.plan is not None else ()
            if any(not outcome.failure for outcome in outcomes):
                with suppress(FrazilError):  # The actions are done and reported.
                    runner.note_round(planned.name)
            yield TableRound(planned.name, planned.plan, outcomes, planned.failure)


def _is_bad(outcome: Outcome) -> bool:
    return bool(outcome.failure) and not outcome.is_lost


# ---- output


def document_of(rounds: Sequence[TableRound], dry_run: bool) -> dict[str, Any]:
    """Returns the JSON of the plans and their outcomes."""
    return {"dry_run": dry_run, "tables": {found.name: _of_table(found) for found in rounds}}


def _of_table(found: TableRound) -> dict[str, Any]:
    plan = found.plan
    document: dict[str, Any] = {"failure": found.failure, "actions": [], "waiting": [], "health": None}
    if plan is None:
        return document
    for action, outcome in _ends(found):
        described: dict[str, Any] = {"action": action.kind, "reason": action.reason, "gain": action.gain}
        if outcome is not None:
            described |= {"took_s": round(outcome.took_s, 3), "failure": outcome.failure, "conflict": outcome.is_lost}
            rewritten = asdict(outcome.rewritten)
            described["rewritten"] = {"conflicts": rewritten.pop("lost"), **rewritten}
        document["actions"].append(described)
    health = plan.health
    figures = {**asdict(health), "small_share": round(health.small_share, 4), "above_cap": health.above_cap}
    return {**document, "waiting": plan.waiting, "health": figures}


def _ends(found: TableRound) -> Iterator[tuple[Action, Outcome | None]]:
    """Yields each action with its outcome; None for an action that was not started."""
    outcomes = {outcome.action.kind: outcome for outcome in found.outcomes}
    for action in found.plan.actions if found.plan is not None else ():
        yield action, outcomes.get(action.kind)


def _render(rounds: Sequence[TableRound], dry_run: bool) -> RenderableType:
    if not rounds:
        return Text("no tables yet")
    return Group(*(line for found in rounds for line in _lines(found, dry_run)))


def _lines(found: TableRound, dry_run: bool) -> Iterator[Text]:
    plan = found.plan
    if plan is None:
        yield Text.assemble((found.name, "bold"), ("  metadata cannot be read: ", "red"), found.failure)
        return
    health = plan.health
    numbers = f"{plural(health.files, 'file')} × {size(health.p50_bytes)} (median), {health.small_share:.0%} small"
    if health.delete_files:
        numbers += f", {plural(health.delete_files, 'delete file')} with {plural(health.deleted_rows, 'row')}"
    yield Text.assemble((found.name, "bold"), f"  {numbers}, {plural(health.snapshots, 'snapshot')}")
    for action, outcome in _ends(found):
        end = _end(outcome) if outcome is not None else "" if dry_run else "not started"
        yield Text(f"  {action.kind}: {action.reason}; {action.gain}" + (f" — {end}" if end else ""))
    for words in plan.waiting:
        yield Text(f"  waiting: {words}", style="dim")
    if not plan.actions and not plan.waiting:
        yield Text("  nothing is due", style="dim")


def _end(outcome: Outcome) -> str:
    if outcome.is_lost:
        return f"refused because of another writer: {outcome.failure}"
    if outcome.failure:
        return f"failed: {outcome.failure}"
    done = outcome.rewritten
    files = f", {count(done.removed)} files removed, {count(done.added)} added" if done.removed or done.added else ""
    return f"done in {duration(outcome.took_s)}{files}"
