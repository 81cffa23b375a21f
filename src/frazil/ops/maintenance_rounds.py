"""One round of maintenance, for `frazil maintain` and the API: what is due, what was done, and the JSON of both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from frazil.errors import FrazilError, SpecError
from frazil.ingest.table import Table
from frazil.maintenance.plan import Action, Plan
from frazil.maintenance.run import MaintainedTable, MaintenanceRunner, Outcome
from frazil.ops.maintenance import maintained_tables
from frazil.spec.problems import nearest

_OFF = "`maintenance` is false in this pipeline file"


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
    found = maintained_tables(known)
    if table is None:
        return found
    mine = [maintained for maintained in found if table == maintained.name or table in maintained.owners]
    if not mine:
        near = nearest(table, [one.name for one in known])
        remedy = f"did you mean `{near}`?" if near else "name a table that `frazil status` shows"
        raise SpecError(f"the pipeline has no table `{table}`", remedy=remedy)
    return mine


def plan_rounds(runner: MaintenanceRunner, chosen: Sequence[MaintainedTable]) -> Iterator[TableRound]:
    """Yields what is due for each table that exists."""
    for maintained in chosen:
        try:
            plan = runner.plan(maintained, "thorough")
        except FrazilError as error:
            yield TableRound(maintained.name, failure=error.message)
            continue
        if plan is not None:
            is_on = maintained.maintenance.spec.is_on
            yield TableRound(maintained.name, plan if is_on else replace(plan, waiting=(_OFF,)))


def run_rounds(runner: MaintenanceRunner, chosen: Sequence[MaintainedTable]) -> Iterator[TableRound]:
    """Runs what is due for each table that exists; yields each round at its end."""
    for maintained in chosen:
        for planned in plan_rounds(runner, [maintained]):
            outcomes = tuple(runner.run(planned.plan, maintained.maintenance)) if planned.plan is not None else ()
            if any(not outcome.failure for outcome in outcomes):
                with suppress(FrazilError):  # The actions are done and reported.
                    runner.note_round(planned.name)
            yield TableRound(planned.name, planned.plan, outcomes, planned.failure)


def document_of_rounds(rounds: Sequence[TableRound], dry_run: bool) -> dict[str, Any]:
    """Returns the JSON of the plans and their outcomes."""
    return {"dry_run": dry_run, "tables": {found.name: _of_table(found) for found in rounds}}


def _of_table(found: TableRound) -> dict[str, Any]:
    plan = found.plan
    document: dict[str, Any] = {"failure": found.failure, "actions": [], "waiting": [], "health": None}
    if plan is None:
        return document
    for action, outcome in ends_of(found):
        described: dict[str, Any] = {"action": action.kind, "reason": action.reason, "gain": action.gain}
        if outcome is not None:
            described |= {"took_s": round(outcome.took_s, 3), "failure": outcome.failure, "conflict": outcome.is_lost}
            rewritten = asdict(outcome.rewritten)
            described["rewritten"] = {"conflicts": rewritten.pop("lost"), **rewritten}
        document["actions"].append(described)
    health = plan.health
    figures = {**asdict(health), "small_share": round(health.small_share, 4), "above_cap": health.above_cap}
    return {**document, "waiting": plan.waiting, "health": figures}


def ends_of(found: TableRound) -> Iterator[tuple[Action, Outcome | None]]:
    """Yields each action with its outcome; None for an action that was not started."""
    outcomes = {outcome.action.kind: outcome for outcome in found.outcomes}
    for action in found.plan.actions if found.plan is not None else ():
        yield action, outcomes.get(action.kind)
