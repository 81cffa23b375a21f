"""How often a row is written again by table maintenance, by how far apart the commits of its table are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from frazil.catalog.maintenance_port import Compaction, Rewritten, Transfer
from frazil.catalog.table_metadata import Snapshot, StoredData
from frazil.maintenance.due import TableActivity
from frazil.maintenance.plan import ORPHANS_NOTE, MaintenanceTask
from frazil.maintenance.run import MaintainedTable, MaintenanceRunner
from frazil.maintenance.scheduler import ROUND_BYTES, MaintenanceScheduler
from frazil.spec.settings import MaintenanceSpec
from frazil_testing.twins import FakeClock
from tests.unit.maintenance.scheduler_scene import MemoryMaintenance
from tests.unit.maintenance.tables import MIB, table
from tests.unit.maintenance.test_plan import rewritten

TARGET = 128 * MIB
ROWS = 1_000_000


class Rewriting(MemoryMaintenance):
    """Tables on paper whose files are combined as Iceberg would. written: bytes of what was written again."""

    written = 0

    def compact(self, table: str, compaction: Compaction, transfer: Transfer | None = None) -> Rewritten:  # noqa: ARG002
        self.calls.append("compact")
        metadata, options = self.tables[table], compaction.options
        most = int(options.get("max-files-to-rewrite", len(metadata.files)))
        by_partition: dict[str, list[StoredData]] = {}
        for file in metadata.files:
            by_partition.setdefault(file.partition, []).append(file)
        removed = 0
        left: list[StoredData] = []
        for partition, files in by_partition.items():
            if removed >= most or (compaction.partitions is not None and partition not in compaction.partitions):
                left += files
                continue
            after = [*self._without_worn(files, options), *self._together(partition, files, options)]
            removed += (Counter(files) - Counter(after)).total()
            self.written += sum(file.size_bytes for file in (Counter(after) - Counter(files)).elements())
            left += after
        self.tables[table] = replace(metadata, files=tuple(left))
        return Rewritten(removed, 1)

    def _without_worn(self, files: Sequence[StoredData], options: Mapping[str, str]) -> list[StoredData]:
        most = float(options.get("delete-ratio-threshold", "2"))
        deleted = [file for file in files if file.deleted]
        return [
            replace(file, deleted=0 if file.deleted >= most * file.record_count else file.deleted) for file in deleted
        ]

    def _together(self, partition: str, files: Sequence[StoredData], options: Mapping[str, str]) -> list[StoredData]:
        sizes = [file.size_bytes for file in files if not file.deleted]
        return [StoredData(size, ROWS, partition) for size in rewritten(sizes, options, is_ordered=False)]


class Feed:
    """A table that gets a commit every so often while table maintenance looks after it."""

    def __init__(self, files: Sequence[StoredData] = ()) -> None:
        self.clock = FakeClock()
        # Looking for orphans writes no rows.
        never = {f"frazil.p.{ORPHANS_NOTE}": str(self.clock.now_ms() + 10**12)}
        self.table_maintenance = Rewriting(replace(table(), properties=never, files=tuple(files)), self.clock)
        self.maintenance_scheduler = MaintenanceScheduler(
            MaintenanceRunner(self.table_maintenance, "p", self.clock), self.clock
        )
        self.maintained = MaintainedTable("t.a", MaintenanceTask(MaintenanceSpec(), TARGET, ROUND_BYTES))
        self.commits = 0

    @property
    def files(self) -> tuple[StoredData, ...]:
        return self.table_maintenance.tables["t.a"].files

    def commit(self, files: Sequence[StoredData]) -> None:
        self.commits += 1
        head = Snapshot(self.commits, None, self.clock.now_ms(), progress={"p": str(self.commits)})
        metadata = self.table_maintenance.tables["t.a"]
        self.table_maintenance.tables["t.a"] = replace(
            metadata, files=tuple(files), snapshots={head.id: head}, head=head.id
        )

    def rest(self, seconds: int) -> None:
        step_s = max(1, seconds // 60)
        for _ in range(0, seconds, step_s):
            self.maintenance_scheduler.note([TableActivity(self.maintained, str(self.commits), len(self.files), 1)])
            self.clock.sleep(step_s)
            self.maintenance_scheduler.run_next()


@pytest.mark.parametrize(
    ("every_s", "mib", "partitions", "commits"),
    [
        (1, 1, 1, 1500),
        (10, 1, 16, 400),
        (60, 1, 1, 800),
        (60, 4, 16, 300),
        (300, 1, 1, 500),
        (300, 16, 16, 100),
        (3600, 4, 1, 300),
    ],
)
def test_each_row_is_written_again_a_few_times_only(every_s: int, mib: int, partitions: int, commits: int) -> None:
    feed = Feed()
    for _ in range(commits):
        new = [StoredData(mib * MIB // partitions, ROWS, f"[0,[{n}]]") for n in range(partitions)]
        feed.commit([*feed.files, *new])
        feed.rest(every_s)
    assert feed.table_maintenance.written <= 3 * commits * mib * MIB
    small = Counter(file.partition for file in feed.files if file.size_bytes < 0.75 * TARGET)
    assert max(small.values(), default=0) <= 52


def test_what_one_partition_is_written_again_for_is_nothing_to_the_others() -> None:
    feed = Feed()
    for _ in range(300):
        thirds = StoredData(42 * MIB, ROWS, "[0,[0]]")
        feed.commit([*feed.files, thirds, *(StoredData(2 * MIB, ROWS, f"[0,[{n}]]") for n in range(1, 11))])
        feed.rest(1)
    assert feed.table_maintenance.written <= 1.1 * 300 * 62 * MIB


@pytest.mark.parametrize("every_s", [30, 120, 300, 3600])
def test_an_upsert_table_is_written_again_once_for_every_tenth_that_changes(every_s: int) -> None:
    feed = Feed([StoredData(TARGET, ROWS, "[0,[]]") for _ in range(4)])
    for _ in range(120):
        feed.commit([replace(file, deleted=file.deleted + ROWS // 100) for file in feed.files])
        feed.rest(every_s)
    assert feed.table_maintenance.written <= 12 * 4 * TARGET, "120 % of its rows have changed"
    assert max(file.deleted for file in feed.files) < 0.2 * ROWS


@pytest.mark.parametrize(("every_s", "commits"), [(1, 600), (60, 30), (300, 30)])
def test_a_table_that_really_rests_is_combined(every_s: int, commits: int) -> None:
    feed = Feed()
    for _ in range(commits):
        feed.commit([*feed.files, StoredData(MIB // 10, ROWS, "[0,[]]")])
        feed.rest(every_s)
    feed.rest(max(300, 4 * every_s))
    assert len(feed.files) == 1


def test_what_comes_last_joins_a_file_that_is_nearly_full() -> None:
    feed = Feed([StoredData(size * MIB, ROWS, f"[0,[{size}]]") for size in (100, 110, 120)])
    feed.commit([*feed.files, *(StoredData(MIB, ROWS, file.partition) for file in feed.files)])
    feed.rest(600)
    assert [file.size_bytes for file in feed.files] == [101 * MIB, 111 * MIB, 121 * MIB]
    assert feed.table_maintenance.written == sum(file.size_bytes for file in feed.files)


def test_what_fits_together_only_after_a_round_is_combined_soon_after_it() -> None:
    feed = Feed()
    feed.commit([StoredData(size * MIB, ROWS, "[0,[]]") for size in (40, 94, 60, 94, 40)])
    feed.rest(300)
    assert sorted(file.size_bytes // MIB for file in feed.files) == [40, 100, 188]
    feed.table_maintenance.calls.clear()
    feed.rest(3600)
    assert feed.table_maintenance.calls == []


def test_a_file_that_is_nearly_full_is_not_written_again_for_each_row_that_comes() -> None:
    feed = Feed([StoredData(100 * MIB, ROWS, "[0,[]]")])
    for _ in range(96):
        feed.commit([*feed.files, StoredData(MIB // 10, ROWS, "[0,[]]")])
        feed.rest(3600)
    assert feed.table_maintenance.written <= 6 * TARGET, "once a day, and what comes meanwhile"


def test_bursts_with_pauses_are_no_reason_to_write_everything_again_in_every_pause() -> None:
    feed = Feed()
    for _ in range(60):
        for _ in range(20):
            feed.commit([*feed.files, StoredData(MIB // 10, ROWS, "[0,[]]")])
            feed.rest(1)
        feed.rest(400)
    assert feed.table_maintenance.written <= 5 * 60 * 2 * MIB


def test_a_table_with_few_commits_is_not_looked_at_again_and_again_between_them() -> None:
    feed = Feed()
    for _ in range(12):
        feed.commit([*feed.files, StoredData(MIB, ROWS, "[0,[]]")])
        feed.table_maintenance.calls.clear()
        feed.rest(7200)
        assert feed.table_maintenance.calls.count("metadata") <= 4


def test_progress_is_committed_again_soon_after_files_were_rewritten() -> None:
    feed, compacted = Feed(), 0
    for number in range(40):
        feed.commit([*feed.files, StoredData(MIB, ROWS, "[0,[]]")])
        feed.table_maintenance.calls.clear()
        feed.rest(3600)
        compacted += "compact" in feed.table_maintenance.calls
        assert ("compact" in feed.table_maintenance.calls) <= ("carry" in feed.table_maintenance.calls), number
    assert compacted
