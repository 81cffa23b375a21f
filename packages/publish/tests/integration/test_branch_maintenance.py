"""Table maintenance of a branch: compaction, delete files, statistics and expiry, while readers see an older main."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.catalog.maintenance_port import BranchMove
from frazil.clock import new_id
from frazil.maintenance.run import DELETES_OPTIONS
from frazil.runtime.jvm import Jvm
from frazil.types import MAIN
from frazil_publish.iceberg_branches import IcebergBranches
from tests.fixtures.readers import read_with_duckdb
from tests.fixtures.slices import sliced
from tests.integration.lakes import KEEN, Lake
from tests.integration.tended import Row, Tended, in_order, layout_of

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]


@pytest.fixture
def lake(jvm: Jvm, tmp_path: Path) -> Lake:
    branched = Lake(jvm, tmp_path / "lake")
    branched.catalog.with_branches(lambda _: "ingest")
    return branched


def publish(table: Tended) -> int:
    """Moves main to the newest snapshot of the branch; the snapshot."""
    state = table.lake.catalog.load(table.name)
    assert state is not None
    assert state.head_id is not None
    IcebergBranches(table.lake.catalog).move(BranchMove(table.name, MAIN, state.main_id, state.head_id, new_id()))
    return state.head_id


def kinds_of(table: Tended) -> list[str]:
    """What a round of maintenance has done."""
    outcomes = table.lake.maintenance(table.name, KEEN.model_copy(update={"statistics": True}))
    assert [outcome.failure for outcome in outcomes if outcome.failure] == []
    return [outcome.action.kind for outcome in outcomes]


@pytest.mark.parametrize("version", sliced([2, 3], 1))
def test_a_branch_is_maintained_and_main_keeps_its_rows(lake: Lake, version: int) -> None:
    table, rows = Tended(lake, layout_of("region"), version), dict[int, Row]()
    for _ in range(4):
        table.upsert(rows, 30)
    assert lake.java(table.name).currentSnapshot() is None
    published, seen = publish(table), in_order(list(rows.values()))
    for _ in range(6):
        table.upsert(rows, 30)
    kinds = kinds_of(table)
    assert {"compact", "statistics"} <= set(kinds)
    assert "manifests" not in kinds
    if version == 2:
        lake.table_maintenance.rewrite_deletes(table.name, DELETES_OPTIONS)
    for _ in range(6):
        table.upsert(rows, 30)
    kinds_of(table)
    kinds_of(table)
    metadata = lake.metadata(table.name)
    assert (metadata.branch.name, {name: ref.snapshot for name, ref in metadata.refs.items()}) == (
        "ingest",
        {MAIN: published},
    )
    assert len(metadata.snapshots) < 10
    assert table.read() == in_order(list(rows.values()))
    main = read_with_duckdb(table.metadata, published).sort_by("id")
    assert main["v"].to_pylist() == [row["v"] for row in seen]
    table.upsert(rows, 30)
    publish(table)
    assert table.read() == in_order(list(rows.values()))


def test_progress_behind_other_writers_is_carried_forward_on_the_branch(lake: Lake) -> None:
    table, rows = Tended(lake, layout_of("")), dict[int, Row]()
    table.upsert(rows, 30)
    before = lake.catalog.load(table.name)
    assert before is not None
    lake.java(table.name).newAppend().toBranch("ingest").commit()
    lake.table_maintenance.carry(table.name)
    state = lake.catalog.load(table.name)
    assert state is not None
    assert state.progress.commit_id == before.progress.commit_id
    assert state.progress.snapshot_id == state.head_id
    assert state.main_id is None
