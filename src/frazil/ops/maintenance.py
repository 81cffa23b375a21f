"""The tables of a pipeline as maintenance needs them: each with its dead-letter table, settings and target file size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from frazil.catalog.maintenance_port import TableMaintenance, Transfer
from frazil.catalog.port import Catalog
from frazil.clock import Clock
from frazil.errors import FrazilError
from frazil.ingest.table import Table
from frazil.maintenance.plan import MaintenanceTask
from frazil.maintenance.run import MaintainedTable, MaintenanceRunner
from frazil.maintenance.scheduler import ROUND_BYTES, TableActivity
from frazil.ops.reports import MaintenanceReport
from frazil.upsert.commit import transfer_deletes


def maintained_tables(tables: Iterable[Table], is_limited: bool = False) -> list[MaintainedTable]:
    """Returns every table and every dead-letter table, which may not exist. is_limited: limits the bytes of a round."""
    known = list(tables)
    owners: dict[str, list[Table]] = {}
    for table in known:
        owners.setdefault(table.dead_letter_table_name, []).append(table)
    own = [maintained_table(table, is_limited) for table in known]
    dead_letter_tables = [
        MaintainedTable(
            name, _for_dead_letters(_maintenance_task(of[0], is_limited)), owners=tuple(table.name for table in of)
        )
        for name, of in owners.items()
    ]
    return own + dead_letter_tables


def maintained_table(table: Table, is_limited: bool = False) -> MaintainedTable:
    """Returns one table."""
    maintenance, is_upsert = _maintenance_task(table, is_limited), table.spec.mode == "upsert"
    return MaintainedTable(table.name, maintenance, dead_letters=table.dead_letter_table_name, is_upsert=is_upsert)


def load_upsert_tables(tables: Iterable[Table], catalog: Catalog) -> None:
    """Loads the upsert tables: a compaction can survive concurrent deletes only with the keys of the table. What the
    catalog does not answer stays unknown.
    """
    for table in tables:
        if table.spec.mode == "upsert":
            with suppress(FrazilError):
                table.state = catalog.load(table.name)


def activity_of(tables: Iterable[Table]) -> list[TableActivity]:
    """Returns what a running pipeline last committed to its tables; tables without a commit are left out."""
    known = list(tables)
    in_hand = _batches(known)
    by_name = {maintained.name: maintained for maintained in maintained_tables(known, is_limited=True)}
    found = []
    for table in known:
        if table.catalog.size is None:
            continue
        version, size = table.progress.commit_id, table.catalog.size
        found.append(
            TableActivity(by_name[table.name], version, size.file_count, size.snapshot_count, in_hand.get(table.name))
        )
        if table.catalog.dead_letter_count:
            dead_letter_table = table.dead_letter_table_name
            found.append(
                TableActivity(
                    by_name[dead_letter_table],
                    str(table.catalog.dead_letter_count),
                    0,
                    0,
                    in_hand.get(dead_letter_table),
                )
            )
    return found


def _batches(tables: Iterable[Table]) -> dict[str, float]:
    """Returns when the oldest batch in progress of each table was planned; a batch may have dead letters too."""
    found: dict[str, float] = {}
    for table in tables:
        for name in (table.name, table.dead_letter_table_name) if table.schedule.in_flight else ():
            found[name] = min(found.get(name, table.schedule.last_batch_at_s), table.schedule.last_batch_at_s)
    return found


def report_maintenance(
    table_maintenance: TableMaintenance, pipeline: str, table: Table, known_state: Mapping[str, Any], clock: Clock
) -> MaintenanceReport | None:
    """Returns the health and due maintenance of one table for `status`; None where the table does not exist.
    known_state: what the running process last reported of its maintenance.

    Raises: UnavailableError as the catalog.
    """
    plan = MaintenanceRunner(table_maintenance, pipeline, clock).plan(maintained_table(table))
    if plan is None:
        return None
    health = plan.health
    lasts = [at for at in (health.last_maintenance_ms, known_state.get("last_ms")) if at is not None]
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
        failure=known_state.get("failure", ""),
        slowed_by=known_state.get("slowed_by", 1.0) if table.spec.mode == "upsert" else 1.0,
    )


def _for_dead_letters(maintenance: MaintenanceTask) -> MaintenanceTask:
    """Returns the task without a sort order and without keys, both of which refer to columns that dead-letter tables
    lack.
    """
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
    """Returns how rows that ingestion deletes during a compaction are found in the new files: by the table's keys."""
    if table.state is None or table.spec.mode != "upsert":
        return None
    target = table.target()
    has_keys = target.changes is not None and bool(target.changes.paths)
    return partial(transfer_deletes, target, table.state.format_version) if has_keys else None
