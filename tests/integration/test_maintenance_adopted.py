"""Table maintenance of tables that other engines have made or use: their files, references and metadata stay as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from frazil.catalog.maintenance_port import Compaction
from frazil.clock import SystemClock, new_id
from frazil.maintenance.plan import MaintenanceTask
from frazil.maintenance.run import MaintainedTable
from frazil.runtime.jvm import Jvm
from frazil.types import Progress
from frazil_replay.snapshots import Snapshots
from tests.integration.lakes import COLUMNS, KEEN, PROPERTIES, TARGET, Lake, age

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

DONE = [("compact", ""), ("carry", ""), ("expire", ""), ("orphans", "")]


@pytest.fixture(scope="module")
def lake(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(jvm, tmp_path_factory.mktemp("lake"))


def test_a_table_with_all_files_elsewhere_is_maintained_without_removals_there(lake: Lake) -> None:
    table, shared = f"t.elsewhere_{new_id()[:8]}", lake.root / "shared"
    folders = {"write.data.path": str(shared / "data"), "write.metadata.path": str(shared / "metadata")}
    lake.catalog.create(table, COLUMNS, {**PROPERTIES, **folders}, 2)
    lake.fill(table, 8)
    of_another = Path(lake.files(table, [(9, "of another table")])[0].path)
    age(of_another, hours=200)
    assert not Path(lake.java(table).location()).exists()
    assert [(outcome.action.kind, outcome.failure) for outcome in lake.maintenance(table)] == DONE
    assert of_another.exists()
    assert len(lake.rows(table)) == 80
    plan = lake.runner.plan(MaintainedTable(table, MaintenanceTask(KEEN, TARGET)))
    assert plan is not None
    assert [words.partition("property ")[2].split(",")[0] for words in plan.waiting] == list(folders)


def test_a_table_whose_partition_fields_were_all_removed_is_maintained(lake: Lake) -> None:
    table = f"t.unpartitioned_{new_id()[:8]}"
    lake.create(table, format_version=1)
    lake.java(table).updateSpec().addField("id").commit()
    lake.java(table).updateSpec().removeField("id").commit()
    assert "void" in str(lake.java(table).spec().toString()), "format version 1 keeps the field"
    lake.fill(table, 3)
    rows = lake.rows(table)
    assert ("compact", "") in [(outcome.action.kind, outcome.failure) for outcome in lake.maintenance(table)]
    assert (lake.rows(table), len(lake.metadata(table).files)) == (rows, 1)


def test_files_of_an_older_spec_are_compacted_with_those_without_partitions(lake: Lake) -> None:
    table = f"t.regrouped_{new_id()[:8]}"
    lake.create(table)
    lake.java(table).updateSpec().addField("id").commit()
    lake.java(table).updateSpec().removeField("id").commit()
    lake.fill(table, 3)
    # Which file of the group is the first is up to chance: here it is none of those that were chosen.
    chosen = Compaction({"rewrite-all": "true"}, partitions=frozenset({"[1,[1]]"}))
    assert lake.table_maintenance.compact(table, chosen).removed == 3


def test_snapshots_without_a_summary_are_no_obstacle(lake: Lake) -> None:
    table = f"t.first_{new_id()[:8]}"
    lake.create(table, format_version=1)
    lake.fill(table, 3)
    for _ in range(2):
        lake.java(table).newFastAppend().commit()
    newest = Path(lake.java(table).operations().current().metadataFileLocation())
    document = json.loads(newest.read_text())
    for snapshot in document["snapshots"][-2:]:
        del snapshot["summary"]
    newest.write_text(json.dumps(document))
    assert lake.progress(table).offsets == {"topic": {0: 30}}
    assert [(outcome.action.kind, outcome.failure) for outcome in lake.maintenance(table)] == DONE
    lake.commit(table, [(1, "later")])
    assert lake.progress(table).offsets == {"topic": {0: 31}}
    assert len(lake.rows(table)) == 31


def test_a_table_with_rows_staged_before_its_first_record_has_lost_no_progress(lake: Lake) -> None:
    table = f"t.staged_{new_id()[:8]}"
    lake.create(table)
    lake.java(table).newFastAppend().stageOnly().commit()
    lake.java(table).newFastAppend().commit()
    assert lake.progress(table) == Progress()
    lake.commit(table, [(1, "first")])
    lake.spark().sql(f"CREATE OR REPLACE TABLE frazil.{table} USING iceberg AS SELECT 1L AS id, 'x' AS text")
    replaced = lake.connect().load(table)
    assert replaced is not None
    assert replaced.history_lost, "the first commit is still there, and its rows are not"


def test_a_replay_keeps_its_snapshot_for_a_week_whatever_its_age(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = f"t.replayed_{new_id()[:8]}"
    lake.create(table)
    lake.fill(table, 1)
    day_ms, now_ms = 86_400_000, SystemClock().now_ms()
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: now_ms + 30 * day_ms)
    snapshot = lake.progress(table).snapshot_id
    assert snapshot is not None
    Snapshots(lake.catalog, table).hold("replay", snapshot)
    kept_days = int(lake.java(table).refs().get("replay").maxRefAgeMs()) / day_ms
    assert kept_days == pytest.approx(37, abs=0.01), "Iceberg counts from the time of the snapshot"
