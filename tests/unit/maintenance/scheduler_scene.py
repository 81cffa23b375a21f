"""The scheduler of table maintenance beside an ingestion that a test plays, and tables on paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from frazil.catalog.maintenance_port import Compaction, Rewritten, Transfer
from frazil.catalog.table_metadata import TableMetadata
from frazil.errors import FrazilError
from frazil.maintenance.due import TableActivity
from frazil.maintenance.plan import MaintenanceTask
from frazil.maintenance.run import MaintainedTable, MaintenanceRunner
from frazil.maintenance.scheduler import MaintenanceScheduler
from frazil.spec.settings import MaintenanceSpec
from frazil_testing.twins import FakeClock
from tests.unit.maintenance.tables import MIB, line, table

MAINTENANCE = MaintenanceTask(MaintenanceSpec(min_input_files=5), 128 * MIB, 256 * MIB)


class MemoryMaintenance:
    """Tables on paper: notes what is asked of it. failures: what the next changes raise; blindness: what looks raise;
    checked_after_s: what each takes; compact_s: and a compaction.
    """

    def __init__(self, metadata: TableMetadata, clock: FakeClock) -> None:
        self.clock, self.checked_after_s, self.compact_s = clock, 0.0, 0.0
        self.tables: dict[str, TableMetadata] = {metadata.name: metadata}
        self.calls: list[str] = []
        self.removed: list[str] = []
        self.found: list[str] = []
        self.failures: list[FrazilError] = []
        self.blindness: FrazilError | None = None
        self.loses = False

    def metadata(self, table: str, with_files: bool) -> TableMetadata | None:
        if self.blindness is not None:
            raise self.blindness
        if with_files:
            self.calls.append("metadata")
            self.clock.sleep(self.checked_after_s)
        return self.tables.get(table)

    def described(self, table: str) -> tuple[str, Mapping[str, str]]:
        raise AssertionError(table)

    def compact(self, table: str, compaction: Compaction, transfer: Transfer | None = None) -> Rewritten:  # noqa: ARG002
        self._note("compact")
        self.clock.sleep(self.compact_s)
        files = self.tables[table].files
        if self.loses:
            return Rewritten(lost=len(files))
        most = int(compaction.options.get("max-files-to-rewrite", len(files)))
        return Rewritten(min(most, len(files)), 1)

    def rewrite_deletes(self, table: str, options: Mapping[str, str]) -> Rewritten:
        raise AssertionError(table, options)

    def rewrite_manifests(self, table: str) -> Rewritten:
        raise AssertionError(table)

    def expire(self, table: str, snapshots: Sequence[int]) -> None:
        self._note("expire")
        kept = {i: s for i, s in self.tables[table].snapshots.items() if i not in snapshots}
        self.tables[table] = replace(self.tables[table], snapshots=kept)

    def carry(self, table: str) -> None:
        assert table in self.tables
        self._note("carry")

    def orphans(self, table: str, older_than_ms: int) -> list[str]:
        self._note(f"orphans of {table} before {older_than_ms}")
        return self.found

    def remove(self, table: str, paths: Sequence[str]) -> None:
        assert table in self.tables
        self.removed += paths

    def compute_statistics(self, table: str) -> None:
        raise AssertionError(table)

    def note(self, table: str, name: str, text: str) -> None:
        properties = {**self.tables[table].properties, f"frazil.p.{name}": text}
        self.tables[table] = replace(self.tables[table], properties=properties)

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if self.failures:
            raise self.failures.pop(0)


class SchedulerScene:
    """The scheduler of table maintenance beside an ingestion that a test plays."""

    def __init__(self, files: int, snapshots: int = 3) -> None:
        self.clock = FakeClock()
        recent = [replace(one, at_ms=self.clock.now_ms() - 1000) for one in line(snapshots)]
        self.table_maintenance = MemoryMaintenance(table(recent, {"[0,[]]": [MIB] * files}), self.clock)
        self.maintenance_scheduler = MaintenanceScheduler(
            MaintenanceRunner(self.table_maintenance, "p", self.clock), self.clock
        )
        self.commits = 0
        self.files = files
        self.maintained = MaintainedTable("t.a", MAINTENANCE)
        self.batch_s: float | None = None
        self.commit(0)

    def commit(self, files: int = 1) -> None:
        self.commits += 1
        self.files += files
        seen = TableActivity(self.maintained, str(self.commits), self.files, self.commits, self.batch_s)
        self.maintenance_scheduler.note([seen])

    def after(self, seconds: float) -> list[str]:
        """What maintenance does so much later."""
        self.clock.sleep(seconds)
        self.table_maintenance.calls.clear()
        self.maintenance_scheduler.run_next()
        return list(self.table_maintenance.calls)
