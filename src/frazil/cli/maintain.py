"""`frazil maintain`: one round of table maintenance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from frazil.api.wiring import (
    has_catalog,
    known_state,
    light_jvm,
    open_catalog,
    open_catalog_for_reading,
    read_spec,
    topics_for_reading,
)
from frazil.catalog.iceberg.maintenance import IcebergMaintenance
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.clock import SystemClock
from frazil.errors import SpecError
from frazil.ingest.failures import named_jvm_death
from frazil.maintenance.merge_task import merge_of
from frazil.maintenance.run import MaintenanceRunner, Outcome
from frazil.ops.audit import record_command
from frazil.ops.maintenance import (
    TableRound,
    chosen_tables,
    document_of_rounds,
    ends_of,
    load_upsert_tables,
    plan_rounds,
    run_rounds,
)
from frazil.ops.reports import count, duration, size
from frazil.ops.status import known_tables
from frazil.printable import plural
from frazil.runtime.properties import running_jvm

FAILED = 1
TableName = Annotated[
    str | None,
    typer.Argument(
        metavar="TABLE", help="Only this table and its dead-letter table, such as shop.orders.", show_default=False
    ),
]
OneTable = Annotated[str | None, typer.Option("--table", metavar="TABLE", help="The same.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the due actions and their reasons; change nothing.")]


def command(
    output: Output,
    file: SpecFile = DEFAULT_FILE,
    name: TableName = None,
    table: OneTable = None,
    dry_run: DryRun = False,
) -> int:
    """Run table maintenance once: compact small files, rewrite delete files and manifests, expire snapshots, remove orphans.

    Only actions due by `maintenance` in the pipeline file run. Works whether or not `frazil run` is running, on this
    machine or another. A round can be interrupted at any time: the next one continues.

    Exit code: 0 when every due action is done or was refused because of another writer's commit; 1 when an action failed; 2
    when the pipeline file is wrong.
    """
    if name is not None and table not in (None, name):
        raise SpecError(f"`{name}` and `--table {table}` name two tables", remedy="leave one of the two out")
    spec, table = read_spec(output, file), table or name
    tables = known_tables(spec, topics_for_reading(spec), known_state(spec))
    chosen = chosen_tables(tables, table)
    if not has_catalog(spec):
        rounds = []
    elif dry_run:
        with light_jvm(spec) as light:
            table_maintenance = IcebergMaintenance(open_catalog_for_reading(light, spec))
            runner = MaintenanceRunner(table_maintenance, spec.pipeline, SystemClock())
            rounds = list(plan_rounds(runner, chosen, output.doing))
    else:
        record_command(spec, "maintain", table=table)
        with running_jvm(spec) as jvm, named_jvm_death():
            catalog = open_catalog(jvm, spec)
            load_upsert_tables(tables, catalog)
            table_maintenance = IcebergMaintenance(catalog, jvm.session, spec.maintenance.cores, merge_of)
            runner = MaintenanceRunner(table_maintenance, spec.pipeline, SystemClock())
            rounds = list(run_rounds(runner, chosen_tables(tables, table), output.doing))
    lines = [line for table_round in rounds for line in _lines(table_round, dry_run)]
    nothing = f"{table} does not exist yet" if table else "no tables yet"
    output.result(document_of_rounds(rounds, dry_run), Group(*lines) if rounds else Text(nothing))
    return (
        FAILED
        if any(
            table_round.failure or any(o.failure and not o.is_lost for o in table_round.outcomes)
            for table_round in rounds
        )
        else 0
    )


# ---- output


def _lines(table_round: TableRound, dry_run: bool) -> Iterator[Text]:
    plan = table_round.plan
    if plan is None:
        yield Text.assemble((table_round.name, "bold"), ("  metadata cannot be read: ", "red"), table_round.failure)
        return
    health = plan.health
    numbers = f"{plural(health.files, 'file')} × {size(health.p50_bytes)} (median), {health.small_share:.0%} small"
    if health.delete_files:
        numbers += f", {plural(health.delete_files, 'delete file')} with {plural(health.deleted_rows, 'row')}"
    yield Text.assemble((table_round.name, "bold"), f"  {numbers}, {plural(health.snapshots, 'snapshot')}")
    for action, outcome in ends_of(table_round):
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
