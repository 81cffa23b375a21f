"""Table maintenance on a local lake by Iceberg's own actions: rows stay what they are, progress stays, live files stay."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from frazil import failpoints
from frazil.catalog.iceberg import data_files, maintenance
from frazil.catalog.iceberg.data_files import Described
from frazil.catalog.maintenance_port import Compaction
from frazil.catalog.table_metadata import find_foreign_metadata
from frazil.clock import SystemClock, new_id
from frazil.errors import ConflictError, SpecError, UnavailableError
from frazil.maintenance.plan import MaintenanceTask, Mode
from frazil.maintenance.run import DELETES_OPTIONS, MaintainedTable, Outcome
from frazil.runtime.jvm import Jvm
from frazil.spec.settings import MaintenanceSpec, OrphansSpec, SnapshotsSpec
from frazil.types import PendingDeadLetters, Progress
from tests.fixtures.slices import sliced
from tests.integration.lakes import KEEN, TARGET, Lake, age, noise

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

HALF_DONE = (
    "maintenance.compact.written", "maintenance.compact.landed", "maintenance.expire.landed",
    "maintenance.orphans.deleting",
)  # fmt: skip
STEPS = (
    *HALF_DONE, "maintenance.planned", "maintenance.compact.begins", "maintenance.expire.begins",
    "maintenance.orphans.found",
)  # fmt: skip


@pytest.fixture(scope="module")
def shared(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(jvm, tmp_path_factory.mktemp("lake"))


@pytest.fixture
def lake(shared: Lake) -> Iterator[Lake]:
    yield shared
    failpoints.arm({})


@pytest.fixture
def table(lake: Lake) -> str:
    name = f"t.maintained_{new_id()[:8]}"
    lake.create(name)
    return name


def kinds(outcomes: list[Outcome]) -> list[str]:
    assert [outcome.failure for outcome in outcomes if outcome.failure] == []
    return [outcome.action.kind for outcome in outcomes]


def test_the_first_look_at_a_new_table_of_a_running_pipeline_commits_nothing(lake: Lake, table: str) -> None:
    before = lake.metadata(table).properties
    plan = lake.runner.plan(MaintainedTable(table, MaintenanceTask(KEEN, TARGET)), begins=True)
    assert plan is not None
    assert [action.kind for action in plan.actions] == []
    assert lake.metadata(table).properties == before
    assert int(before["frazil.p.created-at"]) == pytest.approx(SystemClock().now_ms(), abs=600_000)


def test_a_round_leaves_the_same_rows_in_fewer_files_and_snapshots(lake: Lake, table: str) -> None:
    lake.fill(table, 8)
    rows, progress = lake.rows(table), lake.told(table)
    assert kinds(lake.maintenance(table)) == ["compact", "carry", "expire", "orphans"]
    metadata = lake.metadata(table)
    assert lake.rows(table) == rows
    assert lake.told(table) == progress
    assert len(metadata.files) == 1
    assert "compact" not in kinds(lake.maintenance(table))
    lake.commit(table, [(1, "later")])
    assert lake.progress(table).offsets == {"topic": {0: 81}}
    assert not list(lake.root.rglob("*.crc")), "no checksum file lies beside a table's"


def test_files_that_are_enough_for_one_become_it_while_records_arrive(lake: Lake, table: str) -> None:
    rows = [(number, noise(number, TARGET // 32)) for number in range(32)]
    for row in rows:
        lake.commit(table, [row])
    assert len(lake.metadata(table).files) == 32
    spec = MaintenanceSpec(orphans=OrphansSpec(age_s=3600.0))
    assert "compact" in kinds(lake.maintenance(table, spec, "busy"))
    assert len(lake.metadata(table).files) <= 2
    assert lake.rows(table) == rows
    assert "compact" not in kinds(lake.maintenance(table, spec, "busy"))


@pytest.mark.parametrize("shares", sliced([((0.85, 0.05),), ((0.6, 0.65),)], 1))
def test_a_table_at_rest_keeps_no_two_files_of_which_one_could_be(
    lake: Lake, table: str, shares: tuple[float, float]
) -> None:
    for number, share in enumerate(shares):
        lake.commit(table, [(number * 10 + i, noise(number * 10 + i, int(share * TARGET / 10))) for i in range(10)])
    rows, sizes = lake.rows(table), [file.size_bytes / TARGET for file in lake.metadata(table).files]
    assert sorted(sizes) == pytest.approx(sorted(shares), rel=0.1)
    assert "compact" in kinds(lake.maintenance(table))
    assert len(lake.metadata(table).files) == 1
    assert lake.rows(table) == rows
    assert "compact" not in kinds(lake.maintenance(table))


def test_queries_on_snapshots_that_are_kept_find_their_files(lake: Lake, table: str) -> None:
    lake.fill(table, 3)
    before = {snapshot: lake.rows(table, snapshot) for snapshot in lake.metadata(table).snapshots}
    last = lake.progress(table).snapshot_id
    lake.maintenance(table)
    lake.fill(table, 6)
    lake.maintenance(table)
    kept = lake.metadata(table).snapshots.keys() & before.keys()
    assert last in kept, "the last one before files were removed"
    assert {snapshot: lake.rows(table, snapshot) for snapshot in kept} == {s: before[s] for s in kept}


def test_row_ids_survive_a_compaction(lake: Lake) -> None:
    table = f"t.lineage_{new_id()[:8]}"
    lake.create(table, format_version=3)
    lake.fill(table, 3)
    rows = lake.rows(table)

    def lineage() -> list[str]:
        columns = "_row_id, _last_updated_sequence_number, id"
        frame = lake.spark().sql(f"SELECT {columns} FROM frazil.{table}")
        return sorted(str(row) for row in frame._jdf.toJSON().collectAsList())

    before = lineage()
    assert "compact" in kinds(lake.maintenance(table))
    assert lake.rows(table) == rows
    assert lineage() == before


def test_a_compaction_sorts_where_the_file_asks(lake: Lake, table: str) -> None:
    for part in ([(5, "e"), (1, "a")], [(4, "d"), (2, "b")]):
        lake.commit(table, part)
    assert "compact" in kinds(lake.maintenance(table, KEEN.model_copy(update={"sort": ("_partition desc",)})))
    assert len(lake.metadata(table).files) == 1
    newest = max(Path(lake.java(table).location()).glob("data/*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    assert pq.read_table(newest).column(0).to_pylist() == [5, 4, 2, 1]
    assert lake.rows(table) == [(1, "a"), (2, "b"), (4, "d"), (5, "e")]


def test_what_cannot_be_sorted_is_refused_by_name(lake: Lake, table: str) -> None:
    lake.fill(table, 2)
    with pytest.raises(SpecError, match=r"maintenance\.sort"):
        lake.table_maintenance.compact(table, Compaction(sort=("nothing",)))
    for words in (("nothing",), ("id", "nothing")):
        with pytest.raises(SpecError, match=r"maintenance\.zorder` names a column that has no place .* `nothing`"):
            lake.table_maintenance.compact(table, Compaction(zorder=words))


def test_tags_branches_and_progress_are_never_expired(lake: Lake, table: str) -> None:
    lake.fill(table, 4)
    branched, shared, over, tagged = (snapshot.id for snapshot in lake.metadata(table).ancestors())
    lake.java(table).manageSnapshots().createTag("kept", tagged).commit()
    lake.java(table).manageSnapshots().createTag("over", over).setMaxRefAgeMs("over", 1).commit()
    lake.java(table).manageSnapshots().createBranch("side", branched).setMinSnapshotsToKeep("side", 2).commit()
    rows = [lake.rows(table, snapshot) for snapshot in (tagged, shared, branched)]
    lake.fill(table, 6)
    held = lake.progress(table)
    for _ in range(5):
        lake.java(table).newFastAppend().commit()
    lake.maintenance(table, KEEN.model_copy(update={"snapshots": SnapshotsSpec(age_s=0.001, kept=3)}))
    kept = lake.metadata(table).snapshots
    assert {tagged, branched, held.snapshot_id} <= kept.keys()
    assert [lake.rows(table, snapshot) for snapshot in (tagged, shared, branched)] == rows, (
        "two that the branch retains"
    )
    assert over not in kept, "its tag was to be kept for a millisecond"
    assert lake.metadata(table).refs.keys() == {"kept", "side"}
    assert lake.progress(table).commit_id == held.commit_id
    with pytest.raises(ConflictError):
        lake.table_maintenance.expire(table, [tagged])
    assert tagged in lake.metadata(table).snapshots


def test_progress_behind_other_writers_is_carried_forward(lake: Lake, table: str) -> None:
    lake.fill(table, 2)
    lake.commit(table, [(7, "q")], pipeline="q")
    mine, theirs, before = lake.told(table), lake.told(table, "q"), lake.progress(table).snapshot_id
    for _ in range(6):
        lake.java(table).newFastAppend().commit()
    assert "carry" in kinds(lake.maintenance(table))
    assert "expire" in kinds(lake.maintenance(table))
    assert (lake.told(table), lake.told(table, "q")) == (mine, theirs)
    assert before not in lake.metadata(table).snapshots
    lake.commit(table, [(8, "later")])
    assert lake.progress(table).offsets == {"topic": {0: 21}}


def test_a_table_that_others_fill_before_its_first_record_can_be_begun(lake: Lake, table: str) -> None:
    for _ in range(8):
        lake.java(table).newFastAppend().commit()
    lake.maintenance(table, KEEN.model_copy(update={"snapshots": SnapshotsSpec(age_s=0.001, kept=3)}))
    assert lake.progress(table) == Progress(), "and nothing of it is lost"
    lake.commit(table, [(1, "first")])
    assert "expire" in kinds(
        lake.maintenance(table, KEEN.model_copy(update={"snapshots": SnapshotsSpec(age_s=0.001, kept=3)}))
    )
    assert len(lake.metadata(table).snapshots) < 8


@pytest.mark.parametrize("mode", sliced(["idle", "thorough"], 1))
def test_an_expiry_of_all_but_the_newest_snapshot_leaves_an_idle_tables_progress(
    lake: Lake, table: str, mode: Mode
) -> None:
    lake.fill(table, 4)
    lake.commit(table, [(77, "q")], pipeline="q")
    reported, rows = (lake.told(table), lake.told(table, "q")), lake.rows(table)
    assert kinds(lake.maintenance(table, mode=mode))[:2] == ["compact", "carry"]
    assert "carry" not in kinds(lake.maintenance(table, mode=mode)), "it is there"
    for is_covered in (False, True):
        if is_covered:
            lake.java(table).newFastAppend().commit()
            assert "carry" in kinds(lake.maintenance(table, mode=mode))
        lake.expire_by_spark(table)
        assert len(lake.metadata(table).snapshots) == 1
        assert (lake.told(table), lake.told(table, "q"), lake.rows(table)) == (*reported, rows)
    lake.commit(table, [(99, "later")])
    assert lake.rows(table) == sorted([*rows, (99, "later")])
    assert lake.progress(table).offsets == {"topic": {0: 41}}


def test_orphans_are_removed_when_they_are_old_and_nobody_was_promised_them(lake: Lake, table: str) -> None:
    owner = f"t.owner_{new_id()[:8]}"
    lake.create(owner)
    lake.fill(table, 2)
    young, old, pending_files = (lake.files(table, [(9, "orphan")])[0] for _ in range(3))
    lake.commit(owner, [(1, "row")], PendingDeadLetters(table, (pending_files,), {}))
    metadata = Path(lake.java(table).location()) / "metadata"
    manifest = metadata / f"{new_id()}-m0.avro"
    shutil.copy(next(metadata.glob("*-m0.avro")), manifest)
    written = [p for p in Path(lake.java(table).location()).rglob("*") if p.is_file()]
    for path in (Path(old.path), Path(pending_files.path), *written):
        age(path, hours=2)
    age(young.path, hours=0)
    assert "orphans" in kinds(lake.maintenance(table, owners=[owner]))
    found = {"young": young.path, "old": old.path, "pending_files": pending_files.path, "manifest": str(manifest)}
    assert {name: Path(path).exists() for name, path in found.items()} == {
        "young": True,
        "old": False,
        "pending_files": True,
        "manifest": False,
    }
    assert len(lake.rows(table)) == 20


def test_a_folder_of_two_tables_is_left_alone(lake: Lake, table: str) -> None:
    lake.fill(table, 2)
    java = lake.java(table)
    other = Path(java.location()) / "metadata" / "00000-other.metadata.json"
    text = Path(java.operations().current().metadataFileLocation()).read_text()
    other.write_text(text.replace(str(java.uuid()), new_id()))
    outcomes = lake.maintenance(table)
    assert "another table's metadata" in outcomes[-1].failure
    assert len(lake.rows(table)) == 20


def test_few_of_very_many_old_metadata_files_are_read_to_see_whose_they_are(
    lake: Lake, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"write.metadata.delete-after-commit.enabled": "false", "write.metadata.previous-versions-max": "5"}
    for name, text in [*settings.items(), *((f"n{number}", "") for number in range(30))]:
        lake.java(table).updateProperties().set(name, text).commit()
    lake.fill(table, 1)
    read: list[str] = []

    def find(paths: Sequence[str], uuid: str, read_one: Callable[[str], str | None]) -> str | None:
        def noted(path: str) -> str | None:
            read.append(path)
            return read_one(path)

        return find_foreign_metadata(paths, uuid, noted)

    monkeypatch.setattr(maintenance, "find_foreign_metadata", find)
    soon_ms = SystemClock().now_ms() + 1000
    old = [path for path in lake.table_maintenance.orphans(table, soon_ms) if path.endswith(".metadata.json")]
    assert len(old) > 20
    assert 0 < len(read) <= len(old) / 5


def test_a_table_that_lies_in_the_data_folder_of_another_keeps_its_files(lake: Lake, table: str) -> None:
    inner = f"{table}.data"
    lake.create(inner)
    for name in (table, inner):
        lake.fill(name, 2)
    for path in Path(lake.java(table).location()).rglob("*"):
        if path.is_file():
            age(path, hours=2)
    outcomes = lake.maintenance(table)
    assert "another table's metadata" in outcomes[-1].failure
    assert (len(lake.rows(table)), len(lake.rows(inner))) == (20, 20)
    assert "orphans" in kinds(lake.maintenance(inner))


def test_a_table_that_shares_its_files_keeps_them(lake: Lake, table: str) -> None:
    lake.fill(table, 8)
    lake.java(table).updateProperties().set("gc.enabled", "false").commit()
    assert kinds(lake.maintenance(table)) == ["compact", "carry"]
    snapshots = sorted(lake.metadata(table).snapshots)
    with pytest.raises(UnavailableError, match=r"snapshots cannot be expired: .*GC is disabled"):
        lake.table_maintenance.expire(table, snapshots[:1])
    with pytest.raises(UnavailableError, match=r"orphan files cannot be listed: .*GC is disabled"):
        lake.table_maintenance.orphans(table, 0)
    assert sorted(lake.metadata(table).snapshots) == snapshots


def test_an_open_replay_keeps_its_history_and_its_pending_dead_letters(lake: Lake, table: str) -> None:
    box = f"{table}__dead_letters"
    lake.create(box)
    lake.fill(table, 4)
    lake.fill(box, 4)
    waiting = Path(lake.files(box, [(9, "waiting")])[0].path)
    age(waiting, hours=2)
    read_at = sorted(lake.metadata(box).snapshots.values(), key=lambda one: one.at_ms)[1].id
    lake.catalog.load(box)
    lake.catalog.mark(box, "replaying.1234", f"{read_at} - {table}")
    assert kinds(lake.maintenance(table)) == ["compact", "carry"]
    assert "orphans" not in kinds(lake.maintenance(box))
    assert read_at in {snapshot.id for snapshot in lake.metadata(box).ancestors()}
    assert waiting.exists()
    lake.catalog.load(box)
    lake.catalog.mark(box, "replaying.1234", None)
    assert "expire" in kinds(lake.maintenance(table))
    assert "orphans" in kinds(lake.maintenance(box))
    assert not waiting.exists()


# In time: those steps where something is half done, each behind what the round before it has left.
@pytest.mark.parametrize("steps", sliced([(HALF_DONE,), *(((step,),) for step in STEPS)], 1), ids=" ".join)
def test_a_step_that_dies_is_made_up_for(lake: Lake, table: str, steps: Sequence[str]) -> None:
    lake.fill(table, 6)
    orphan = lake.files(table, [(9, "orphan")])[0].path
    age(orphan, hours=2)
    rows, progress = lake.rows(table), lake.told(table)
    for step in steps:
        failpoints.arm({failpoints.VARIABLE: f"{step}=error"})
        with pytest.raises(RuntimeError, match="failpoint"):
            lake.maintenance(table)
        failpoints.arm({})
        assert (lake.rows(table), lake.told(table)) == (rows, progress)
    lake.maintenance(table)
    assert (lake.rows(table), lake.told(table)) == (rows, progress)
    assert not Path(orphan).exists()


# In time: that of an expiry in test_lost_answers.py.
@pytest.mark.parametrize(
    "step", sliced(["maintenance.compact.written", "maintenance.compact.landed", "maintenance.expire.landed"], 2)
)
def test_an_answer_that_is_lost_is_cleared_up(lake: Lake, table: str, step: str) -> None:
    lake.fill(table, 6)
    rows, progress = lake.rows(table), lake.told(table)
    failpoints.arm({failpoints.VARIABLE: f"{step}=reset"})
    outcomes = lake.maintenance(table)
    (failed,) = [outcome for outcome in outcomes if outcome.failure]
    assert "Connection reset" in failed.failure
    assert not failed.is_lost
    failpoints.arm({})
    lake.maintenance(table)
    assert (lake.rows(table), lake.told(table)) == (rows, progress)


def test_two_at_once_do_no_harm(lake: Lake, table: str) -> None:
    lake.fill(table, 12)
    rows, progress = lake.rows(table), lake.told(table)
    ended: list[list[Outcome]] = []
    threads = [threading.Thread(target=lambda: ended.append(lake.maintenance(table))) for _ in range(2)]
    for thread in threads:
        thread.start()
    lake.commit(table, [(1000, "meanwhile")])
    for thread in threads:
        thread.join()
    assert len(ended) == 2
    assert [o.failure for outcomes in ended for o in outcomes if o.failure and not o.is_lost] == []
    assert lake.rows(table) == sorted([*rows, (1000, "meanwhile")])
    assert lake.progress(table).offsets == {"topic": {0: progress.offsets["topic"][0] + 1}}


def test_deletes_of_another_engine_are_taken_out(lake: Lake, table: str) -> None:
    lake.java(table).updateProperties().set("write.delete.mode", "merge-on-read").commit()
    lake.java(table).updateSchema().renameColumn("_partition", "word").commit()
    lake.fill(table, 3)
    spark = lake.spark()
    for numbers in ("1, 2, 11, 12, 13, 21", "14"):
        spark.sql(f"DELETE FROM frazil.{table} WHERE id IN ({numbers})")
    rows = lake.rows(table)
    assert len(rows) == 23
    assert {file.kind for file in lake.metadata(table).deletes} == {"position"}
    lake.java(table).updateProperties().set("write.delete.parquet.compression-codec", "none-such").commit()
    with pytest.raises(UnavailableError, match="delete files cannot be rewritten"):
        lake.table_maintenance.rewrite_deletes(table, DELETES_OPTIONS)
    lake.java(table).updateProperties().remove("write.delete.parquet.compression-codec").commit()
    assert lake.table_maintenance.rewrite_deletes(table, DELETES_OPTIONS).removed > 0
    assert lake.rows(table) == rows
    lake.maintenance(table)
    assert lake.rows(table) == rows
    assert sum(file.record_count for file in lake.metadata(table).files) == 23
    lake.commit(table, [(99, "later")])
    assert lake.progress(table).offsets == {"topic": {0: 31}}


def test_files_with_many_deleted_rows_are_written_without_them(lake: Lake) -> None:
    table = f"t.vectors_{new_id()[:8]}"
    lake.create(table, format_version=3)
    lake.java(table).updateProperties().set("write.delete.mode", "merge-on-read").commit()
    lake.java(table).updateSchema().renameColumn("_partition", "word").commit()
    lake.fill(table, 1)
    lake.spark().sql(f"DELETE FROM frazil.{table} WHERE id < 4")
    rows, metadata = lake.rows(table), lake.metadata(table)
    assert [file.kind for file in metadata.deletes] == ["vector"]
    assert [(file.record_count, file.deleted) for file in metadata.files] == [(10, 4)]
    assert "compact" in kinds(lake.maintenance(table))
    after = lake.metadata(table)
    assert [(file.record_count, file.deleted) for file in after.files] == [(6, 0)]
    assert lake.rows(table) == rows


def test_equality_deletes_of_another_writer_are_converted(lake: Lake, table: str) -> None:
    lake.fill(table, 3)
    lake.delete_equal(table, [1, 12])
    rows = lake.rows_in_java(table)
    assert len(rows) == 28
    assert lake.metadata(table).deletes[0].kind == "equality"
    assert "compact" in kinds(lake.maintenance(table))
    metadata = lake.metadata(table)
    assert (len(metadata.deletes), lake.rows(table)) == (0, rows)


def test_what_iceberg_cannot_read_is_not_reported_to_be_lost_to_another_writer(lake: Lake, table: str) -> None:
    """Equality deletes by a column that was dropped, and another one has its name."""
    lake.fill(table, 2)
    lake.delete_equal(table, [1])
    lake.java(table).updateSchema().deleteColumn("id").commit()
    long = getattr(lake.jvm.gateway.jvm.org.apache.iceberg.types, "Types$LongType").get()
    lake.java(table).updateSchema().addColumn("id", long).commit()
    (compact,) = [outcome for outcome in lake.maintenance(table) if outcome.action.kind == "compact"]
    assert "multiple fields for name id" in compact.failure
    assert not compact.is_lost


def test_a_look_at_very_many_files_is_taken_in_lots(lake: Lake, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.fill(table, 8)
    lake.delete_equal(table, [1, 12])
    whole = lake.metadata(table)
    java = lake.java(table)
    described = Described(lake.catalog.gateway.jvm, java)
    (text,) = described.batches(java.newScan())
    monkeypatch.setattr(data_files, "_FILES_AT_ONCE", 3)
    texts = list(described.batches(java.newScan()))
    assert [len(json.loads(lot)["file-scan-tasks"]) for lot in texts] == [3, 3, 2]
    assert max(map(len, texts)) < len(text) / 2
    metadata = lake.metadata(table)
    assert (len(metadata.files), len(metadata.deletes)) == (8, 1)
    assert Counter(metadata.files) == Counter(whole.files)
    assert metadata.deletes == whole.deletes


def test_manifests_and_statistics(lake: Lake, table: str) -> None:
    lake.java(table).updateProperties().set("commit.manifest-merge.enabled", "false").commit()
    lake.fill(table, 4)
    rows = lake.rows(table)
    assert len(lake.metadata(table).sizes.manifests) == 4
    assert lake.table_maintenance.rewrite_manifests(table).removed == 4
    assert len(lake.metadata(table).sizes.manifests) == 1
    lake.table_maintenance.compute_statistics(table)
    metadata = lake.metadata(table)
    assert metadata.statistics == (metadata.head,)
    java = lake.java(table)
    (statistics,) = StaticTable.from_metadata(
        str(java.operations().current().metadataFileLocation())
    ).metadata.statistics
    assert {tuple(blob.fields): blob.properties for blob in statistics.blob_metadata} == {(1,): {"ndv": "40"}}
    assert lake.rows(table) == rows
