"""The tables of a pipeline as table care has them: each with its dead-letter table, settings and target size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from frazil.catalog.maintenance_port import Transfer, Upkeep
from frazil.catalog.port import Catalog
from frazil.clock import Clock
from frazil.errors import FrazilError
from frazil.ingest.table import Table
from frazil.maintenance.plan import MaintenanceTask
from frazil.maintenance.run import Carer, Charge
from frazil.maintenance.scheduler import ROUND_BYTES, Seen
from frazil.ops.reports import MaintenanceReport
from frazil.upsert.concurrent_deletes import transfer_deletes


def charges(tables: Iterable[Table], is_limited: bool = False) -> list[Charge]:
    """Every table, and every dead-letter table, which may not be there. is_limited: a round rewrites only so much."""
    known = list(tables)
    owners: dict[str, list[Table]] = {}
    for table in known:
        owners.setdefault(table.dead_letter_table_name, []).append(table)
    own = [charge_of(table, is_limited) for table in known]
    boxes = [
        Charge(name, _for_dead_letters(_maintenance_task(of[0], is_limited)), owners=tuple(table.name for table in of))
        for name, of in owners.items()
    ]
    return own + boxes


def charge_of(table: Table, is_limited: bool = False) -> Charge:
    """One table."""
    maintenance, is_upsert = _maintenance_task(table, is_limited), table.spec.mode == "upsert"
    return Charge(table.name, maintenance, dead_letters=table.dead_letter_table_name, is_upsert=is_upsert)


def load_upsert_tables(tables: Iterable[Table], catalog: Catalog) -> None:
    """Asks for the tables whose records replace rows: only with their keys is a rewrite of their files not lost to
    ingestion. What the catalog does not tell stays unknown.
    """
    for table in tables:
        if table.spec.mode == "upsert":
            with suppress(FrazilError):
                table.state = catalog.load(table.name)


def seen_by(tables: Iterable[Table]) -> list[Seen]:
    """What a running pipeline last saw of its tables; those that nothing was committed to yet are left out."""
    known = list(tables)
    in_hand = _batches(known)
    by_name = {charge.name: charge for charge in charges(known, is_limited=True)}
    found = []
    for table in known:
        if table.catalog.size is None:
            continue
        version, size = table.progress.commit_id, table.catalog.size
        found.append(Seen(by_name[table.name], version, size.file_count, size.snapshot_count, in_hand.get(table.name)))
        if table.catalog.dead_letter_count:
            box = table.dead_letter_table_name
            found.append(Seen(by_name[box], str(table.catalog.dead_letter_count), 0, 0, in_hand.get(box)))
    return found


def _batches(tables: Iterable[Table]) -> dict[str, float]:
    """When the oldest batch in hand of each table was planned; a batch may have letters for the dead-letter table too."""
    found: dict[str, float] = {}
    for table in tables:
        for name in (table.name, table.dead_letter_table_name) if table.schedule.in_flight else ():
            found[name] = min(found.get(name, table.schedule.last_batch_at_s), table.schedule.last_batch_at_s)
    return found


def report_maintenance(
    upkeep: Upkeep, pipeline: str, table: Table, said: Mapping[str, Any], clock: Clock
) -> MaintenanceReport | None:
    """What `status` says of one table's care; None where there is no table. said: by the running process, of this care.

    Raises UnavailableError as the catalog does.
    """
    plan = Carer(upkeep, pipeline, clock).plan(charge_of(table))
    if plan is None:
        return None
    health = plan.health
    lasts = [at for at in (health.last_maintenance_ms, said.get("last_ms")) if at is not None]
    return MaintenanceReport(
        p50_bytes=health.p50_bytes,
        small_share=round(health.small_share, 4),
        delete_files=health.delete_files,
        deleted_rows=health.deleted_rows,
        manifests=health.manifests,
        metadata_bytes=health.metadata_bytes,
        last_ms=max(lasts, default=None),
        due=tuple(f"{action.kind}: {action.reason}" for action in plan.actions),
        waiting=plan.waiting,
        above_cap=health.above_cap,
        failure=said.get("failure", ""),
        slowed_by=said.get("slowed_by", 1.0) if table.spec.mode == "upsert" else 1.0,
    )


def _for_dead_letters(maintenance: MaintenanceTask) -> MaintenanceTask:
    """The same without an order of rows and without keys: both are of the table's columns, which letters do not have."""
    return replace(
        maintenance,
        spec=maintenance.spec.model_copy(update={"sort": (), "zorder": (), "order_lines": ()}),
        transfer=None,
    )


def _maintenance_task(table: Table, is_limited: bool) -> MaintenanceTask:
    spec = table.spec.maintenance
    target = spec.target_file_size_bytes or table.spec.commit.target_file_size_bytes
    return MaintenanceTask(spec, target, ROUND_BYTES * spec.cores if is_limited else None, _transfer(table))


def _transfer(table: Table) -> Transfer | None:
    """How rows that ingestion deletes while they are rewritten are found again: by the keys of the table."""
    if table.state is None or table.spec.mode != "upsert":
        return None
    target = table.target()
    has_keys = target.changes is not None and bool(target.changes.paths)
    return partial(transfer_deletes, target, table.state.format_version) if has_keys else None
