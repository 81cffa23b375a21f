"""Main without delete files: what a reader that does not apply them gets, while the branch has its deletes. In time: of
format 2, what main and the branch have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from frazil import failpoints
from frazil.catalog.iceberg.java import each
from frazil.catalog.maintenance_port import BranchMove, Copy, Transfer
from frazil.clock import SystemClock
from frazil.errors import UnavailableError
from frazil.maintenance.merge_task import merge_of
from frazil.ops.seen_by_readers import PublishReport
from frazil.runtime.jvm import Jvm
from frazil.upsert.commit import transfer_deletes
from frazil_publish.audits import NO_AUDITS
from frazil_publish.iceberg_branches import IcebergBranches
from frazil_publish.iceberg_copies import IcebergCopies
from frazil_publish.publisher import Published, Publisher
from tests.acceptance.disks import full, small_disk
from tests.fixtures.readers import read_with_duckdb
from tests.fixtures.slices import sliced
from tests.integration.lakes import Lake
from tests.integration.tended import BY_ID, Row, Tended, in_order, layout_of

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]


class Meanwhile(IcebergCopies):
    """Copies that take long: something is called once the files are written."""

    calls: Callable[[], object] = staticmethod(lambda: None)

    def write(self, table: str, snapshot_id: int, stages: tuple[Any, ...] = ()) -> Copy | None:
        copy = super().write(table, snapshot_id, stages)
        self.calls()
        return copy


class Copied:
    """An upsert table with a branch, whose main gets data files alone."""

    def __init__(self, jvm: Jvm, folder: Path, version: int) -> None:
        self.lake = Lake(jvm, folder)
        self.lake.catalog.with_branches(lambda _: "ingest")
        self.table, self.rows = Tended(self.lake, layout_of("region"), version), dict[int, Row]()
        self.copies = Meanwhile(self.lake.catalog, self.lake.table_maintenance, merge_of)
        self.publisher = self.another()
        target = replace(self.table.target(self.lake.catalog), changes=BY_ID)
        self.transfer: Transfer = partial(transfer_deletes, target, version)

    def another(self, branches: IcebergBranches | None = None) -> Publisher:
        """That of a second process."""
        branches = branches or IcebergBranches(self.lake.catalog)
        return Publisher(branches, NO_AUDITS, "p", SystemClock(), self.copies)

    def upsert(self, times: int = 1) -> None:
        for _ in range(times):
            self.table.upsert(self.rows, 30)

    def publish(self) -> PublishReport:
        published = Published(self.table.name, is_copied=True, transfer=self.transfer)
        return self.publisher.publish(published)

    def seen(self) -> list[Any]:
        """What a reader that knows data files alone gets of main: every row of each file that its manifests name."""
        java = self.lake.java(self.table.name)
        snapshot, io = java.currentSnapshot(), java.io()
        files = self.lake.jvm.gateway.jvm.org.apache.iceberg.ManifestFiles
        for manifest in each(snapshot.deleteManifests(io)):
            assert not manifest.hasAddedFiles()
            assert not manifest.hasExistingFiles()
        count = sum(
            int(file.recordCount())
            for manifest in each(snapshot.dataManifests(io))
            for file in each(files.read(manifest, io, java.specs()))
        )
        main = read_with_duckdb(self.table.metadata, int(snapshot.snapshotId())).sort_by("id")
        assert main.num_rows == count
        values: list[Any] = main["v"].to_pylist()
        return values

    @property
    def expected(self) -> list[Any]:
        return [row["v"] for row in in_order(list(self.rows.values()))]

    def data_files(self) -> set[str]:
        """The data files of main."""
        java = self.lake.java(self.table.name)
        return {str(task.file().location()) for task in each(java.newScan().planFiles())}


@pytest.fixture(params=sliced([3, 2], 1))
def copied(jvm: Jvm, tmp_path: Path, request: pytest.FixtureRequest) -> Copied:
    return Copied(jvm, tmp_path / "lake", request.param)


@pytest.mark.parametrize("copied", [2, 3], indirect=True)
def test_main_has_data_files_alone_and_the_branch_is_fresh(copied: Copied) -> None:
    copied.upsert(4)
    before = copied.expected
    copied.copies.calls = copied.upsert
    report = copied.publish()
    assert (report.state, copied.seen()) == ("published", before)
    assert copied.table.read() == in_order(list(copied.rows.values()))
    copied.copies.calls = lambda: None
    assert copied.publish().snapshot_id != report.snapshot_id
    assert copied.seen() == copied.expected
    copied.publish()
    idle = copied.publish()
    assert (copied.publish(), idle.state) == (idle, "published")
    assert copied.seen() == copied.expected


def test_only_files_with_deletes_since_the_last_time_are_written(copied: Copied) -> None:
    copied.upsert(4)
    copied.publish()
    first = copied.data_files()
    (number, row), *_ = copied.rows.items()
    copied.table.change([(number, {**row, "v": -1})])
    copied.rows[number] = {**row, "v": -1}
    copied.publish()
    assert len(first & copied.data_files()) >= len(first) - 1
    assert copied.seen() == copied.expected


# In time: after main has moved, and before; at `branch.before` the same is there as at `branch.copied`.
@pytest.mark.parametrize(
    "point", sliced(["branch.copied", "branch.landed", "maintenance.compact.landed", "branch.before"], 3)
)
def test_a_process_that_dies_while_it_copies(copied: Copied, point: str) -> None:
    copied.upsert(4)
    copied.publish()
    before = copied.expected
    copied.upsert(2)
    failpoints.arm({failpoints.VARIABLE: f"{point}=error"})
    try:
        with pytest.raises(RuntimeError):
            copied.publish()
    finally:
        failpoints.arm({})
    has_landed = point in ("branch.landed", "maintenance.compact.landed")
    assert copied.seen() == (copied.expected if has_landed else before)
    copied.upsert()
    copied.publisher = copied.another()
    assert copied.publish().state == "published"
    assert copied.seen() == copied.expected
    assert copied.table.read() == in_order(list(copied.rows.values()))


class SentTwice(IcebergBranches):
    """A catalog that the answer to the first copy of a request is lost from: it refuses the second copy."""

    def _commit(self, moves: Sequence[BranchMove], loaded: Sequence[Any], staged: Sequence[tuple[Any, Any]]) -> None:
        super()._commit(moves, loaded, staged)
        super()._commit(moves, loaded, staged)


def test_main_that_was_moved_and_then_refused_keeps_its_manifests(copied: Copied) -> None:
    copied.upsert(4)
    copied.publisher = copied.another(SentTwice(copied.lake.catalog))
    assert copied.publish().state == "published"
    assert copied.seen() == copied.expected
    copied.upsert()
    assert copied.publish().state == "published"
    assert copied.seen() == copied.expected


def test_manifests_of_a_try_that_was_refused_are_deleted(copied: Copied) -> None:
    class Overtaken(IcebergBranches):
        """Ingestion commits between the look at the table and the first try."""

        tries = 0

        def _commit(self, *places: Any) -> None:
            self.tries += 1
            if self.tries == 1:
                copied.upsert()
            super()._commit(*places)

    copied.upsert(4)
    before, branches = copied.expected, Overtaken(copied.lake.catalog)
    copied.publisher = copied.another(branches)
    copied.publish()
    assert (branches.tries, copied.seen()) == (2, before)
    snapshots = each(copied.lake.java(copied.table.name).snapshots())
    known = {Path(str(snapshot.manifestListLocation())).name for snapshot in snapshots}
    assert {path.name for path in copied.lake.root.rglob("snap-*.avro")} == known


def test_a_full_disk_leaves_main_where_it_is_until_there_is_room(jvm: Jvm, tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    with small_disk(folder) as has_disk, ExitStack() as disk:
        copied = Copied(jvm, folder, 3)
        copied.upsert(4)
        copied.publish()
        before = copied.seen()
        copied.upsert(2)
        if has_disk:  # Where this machine lets us mount one.
            copied.copies.calls = lambda: disk.enter_context(full(folder))
            with pytest.raises(UnavailableError, match="No space left on device"):
                copied.publish()
            with pytest.raises(UnavailableError, match="No space left on device"):
                copied.publisher.publish(Published(copied.table.name))
            assert copied.seen() == before
            disk.close()
        copied.copies.calls = lambda: None
        assert copied.publish().state == "published"
        assert copied.seen() == copied.expected


def test_a_compaction_of_the_branch_meanwhile_is_left_as_it_is(copied: Copied) -> None:
    copied.upsert(6)
    before = copied.expected

    def compact() -> None:
        copied.copies.calls = lambda: None
        copied.upsert()
        copied.lake.maintenance(copied.table.name)

    copied.copies.calls = compact
    copied.publish()
    assert copied.seen() == before
    assert copied.table.read() == in_order(list(copied.rows.values()))
    copied.publish()
    assert copied.seen() == copied.expected


def test_expiry_keeps_what_main_and_the_branch_have(copied: Copied) -> None:
    for _ in range(4):
        copied.upsert(3)
        copied.copies.calls = copied.upsert
        copied.publish()
        copied.copies.calls = lambda: None
        seen = copied.seen()
        outcomes = copied.lake.maintenance(copied.table.name)
        assert [outcome.failure for outcome in outcomes if outcome.failure] == []
        assert copied.seen() == seen
        assert copied.table.read() == in_order(list(copied.rows.values()))
    assert len(copied.lake.metadata(copied.table.name).snapshots) < 12
    copied.upsert()
    assert copied.publish().state == "published"
    assert copied.seen() == copied.expected


def test_two_processes_that_copy_at_a_time_publish_once(copied: Copied) -> None:
    copied.upsert(3)
    other = copied.another()
    published = Published(copied.table.name, is_copied=True, transfer=copied.transfer)

    def publish_too() -> None:
        copied.copies.calls = lambda: None
        other.publish(published)

    copied.copies.calls = publish_too
    with pytest.raises(Exception, match="was moved in the meantime"):
        copied.publish()
    assert copied.seen() == copied.expected
    assert copied.publish().state == "published"
    assert copied.table.read() == in_order(list(copied.rows.values()))
