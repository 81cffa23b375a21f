"""The Catalog port: commits and the progress that they carry, on memory and on Iceberg's own JDBC catalog."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.types import StringType

from frazil.catalog.layout import Layout
from frazil.catalog.port import Catalog, NamedAppend, TableSize
from frazil.errors import ConflictError, UnavailableError
from frazil.schema.evolve import extend_schema
from frazil.spec.partitioning import parse_sort, parse_term
from frazil.types import Commit, Progress
from tests.contracts.catalogs import IcebergLake, Lake
from tests.contracts.tables import TABLE, begin, commit_of, create, files_of, head_of, load, paths, plain
from tests.fixtures.jvms import light_jvm


def test_a_table_reports_which_snapshot_is_its_newest(catalog: Catalog) -> None:
    assert create(catalog).head_id is None
    committed = catalog.commit(commit_of(load(catalog), 5))
    assert load(catalog).head_id == committed.snapshot_id


def test_a_commit_carries_its_rows_and_its_progress(catalog: Catalog, lake: Lake) -> None:
    state = create(catalog)
    commit = commit_of(state, 5)
    committed = catalog.commit(commit)
    assert plain(committed) == replace(commit.progress, snapshot_id=committed.snapshot_id)
    assert committed.snapshot_id is not None
    assert plain(load(lake.catalog()).progress) == plain(committed)
    size = catalog.size(TABLE)
    assert size == TableSize(2, 1, sum(file.size_bytes for file in commit.files), 1)


def test_a_commit_without_rows_moves_the_progress(catalog: Catalog) -> None:
    state = create(catalog)
    catalog.commit(commit_of(state, 5, ids=()))
    assert load(catalog).progress.offsets == {"a": {0: 5, 10: 3}}
    assert catalog.size(TABLE).row_count == 0


def test_a_stale_writer_is_refused_by_the_table(lake: Lake) -> None:
    winner, loser = lake.catalog(), lake.catalog()
    create(winner)
    mine, other = load(winner), load(loser)
    first = winner.commit(commit_of(mine, 5))
    with pytest.raises(ConflictError):
        loser.commit(commit_of(other, 7))
    assert plain(load(loser).progress) == plain(first)
    assert loser.commit(commit_of(load(loser), 9)).offsets["a"][0] == 9


def test_a_commit_can_require_the_newest_snapshot_and_leave_entries_for_other_tools(lake: Lake) -> None:
    mine, other = lake.catalog(), lake.catalog()
    state = create(mine)
    first = mine.commit(commit_of(state, 5))
    looked_at = head_of(mine)
    load(other)
    other.append_once(NamedAppend(TABLE, (), "replay-id", "r", None))
    commit = replace(commit_of(state, 7, ids=()), expected=first, head_id=looked_at, entries={"tool.offsets": "7"})
    with pytest.raises(ConflictError, match="another writer"):
        mine.commit(commit)
    mine.commit(replace(commit, head_id=head_of(mine)))
    newest, before, *_ = mine.summaries(TABLE)
    assert newest["tool.offsets"] == "7"
    assert "tool.offsets" not in before


@pytest.mark.parametrize("what", ["schema", "partition spec", "sort order"])
def test_files_written_for_another_shape_of_the_table_are_refused(lake: Lake, what: str) -> None:
    mine, other = lake.catalog(), lake.catalog("q")
    state = create(mine)
    load(other)
    if what == "schema":
        other.evolve(TABLE, lambda schema: extend_schema(schema, {(): {"more": StringType()}}))
    else:
        partition_by = (parse_term("bucket(id, 2)"),) if what == "partition spec" else None
        other.arrange(TABLE, Layout(partition_by, (parse_sort("id"),) if partition_by is None else None))
    with pytest.raises(ConflictError, match="changed after this batch was planned"):
        mine.commit(replace(commit_of(state, 5), shape=state.shape))
    now = load(mine)
    assert (now.progress, now.shape == state.shape) == (Progress(), False)
    assert mine.commit(replace(commit_of(now, 5), shape=now.shape)).offsets["a"][0] == 5
    with lake.lose_next_response():
        now = load(mine)
        assert mine.commit(replace(commit_of(now, 7), shape=now.shape)).offsets["a"][0] == 7


def test_of_many_committers_at_once_exactly_one_wins(lake: Lake) -> None:
    create(lake.catalog())
    writers = [lake.catalog() for _ in range(4)]
    commits = [commit_of(load(writer), 5 + n) for n, writer in enumerate(writers)]
    won: list[Progress] = []
    barrier = threading.Barrier(len(writers))

    def try_to(writer: Catalog, commit: Commit) -> None:
        barrier.wait()
        with suppress(ConflictError, UnavailableError):
            won.append(writer.commit(commit))

    threads = [threading.Thread(target=try_to, args=pair) for pair in zip(writers, commits, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = lake.catalog()
    state = load(last)
    assert [plain(progress) for progress in won] == [plain(state.progress)]
    assert last.commit(commit_of(state, 99)).offsets["a"][0] == 99


def test_snapshots_of_other_writers_do_not_hide_the_progress(catalog: Catalog, lake: Lake) -> None:
    state = create(catalog)
    committed = catalog.commit(commit_of(state, 5))
    lake.append_foreign(TABLE)
    lake.append_foreign(TABLE)
    assert plain(load(catalog).progress) == plain(committed)
    assert catalog.commit(commit_of(load(catalog), 6)).offsets["a"][0] == 6


def test_a_foreign_snapshot_between_load_and_commit_is_no_conflict(catalog: Catalog, lake: Lake) -> None:
    create(catalog)
    state = load(catalog)
    lake.append_foreign(TABLE)
    assert catalog.commit(commit_of(state, 5)).offsets["a"][0] == 5


def test_two_pipelines_feed_one_table_and_do_not_see_each_other_s_progress(lake: Lake) -> None:
    mine, theirs = lake.catalog("p"), lake.catalog("q")
    create(mine)
    my_state, their_state = load(mine), load(theirs)
    mine.commit(commit_of(my_state, 5))
    theirs.commit(commit_of(their_state, 70))
    assert load(mine).progress.offsets["a"][0] == 5
    assert load(theirs).progress.offsets["a"][0] == 70


def test_a_lost_answer_is_looked_up_in_the_table(catalog: Catalog, lake: Lake) -> None:
    state = create(catalog)
    commit = commit_of(state, 5)
    with lake.lose_next_response():
        committed = catalog.commit(commit)
    assert plain(committed) == replace(commit.progress, snapshot_id=committed.snapshot_id)
    assert catalog.size(TABLE).row_count == 2


def test_a_rolled_back_table_resumes_from_the_restored_progress(catalog: Catalog, lake: Lake) -> None:
    first = catalog.commit(commit_of(create(catalog), 5))
    second = catalog.commit(commit_of(load(catalog), 7))
    assert first.snapshot_id is not None
    lake.roll_back(TABLE, first.snapshot_id)
    stale = replace(load(catalog), progress=second)
    with pytest.raises(ConflictError):
        catalog.commit(commit_of(stale, 9))
    assert plain(load(catalog).progress) == plain(first)
    assert catalog.commit(commit_of(load(catalog), 6)).offsets["a"][0] == 6


def test_progress_that_was_expired_is_lost_and_not_none(catalog: Catalog, lake: Lake) -> None:
    catalog.commit(commit_of(create(catalog), 5))
    lake.append_foreign(TABLE)
    lake.expire_all_but_newest(TABLE)
    state = load(lake.catalog())
    assert (state.progress, state.history_lost) == (Progress(), True)


def test_rows_stay_when_the_snapshots_that_brought_them_are_expired(catalog: Catalog, lake: Lake) -> None:
    catalog.commit(commit_of(create(catalog), 5))
    catalog.commit(commit_of(load(catalog), 7))
    before = {file.path for file in catalog.scan(TABLE).files}
    lake.expire_all_but_newest(TABLE)
    other = lake.catalog()
    state = load(other)
    assert (state.progress.offsets["a"][0], state.history_lost) == (7, False)
    assert {file.path for file in other.scan(TABLE).files} == before
    assert other.size(TABLE).snapshot_count == 1


def test_progress_in_a_table_that_someone_else_made_is_not_forgotten_either(lake: Lake) -> None:
    create(lake.catalog("someone-else"))
    mine = lake.catalog()
    mine.commit(commit_of(load(mine), 5))
    lake.append_foreign(TABLE)
    lake.expire_all_but_newest(TABLE)
    assert load(lake.catalog()).history_lost


def test_a_pipeline_that_never_committed_has_lost_nothing(lake: Lake) -> None:
    create(lake.catalog("someone-else"))
    lake.append_foreign(TABLE)
    lake.append_foreign(TABLE)
    lake.expire_all_but_newest(TABLE)
    state = load(lake.catalog())
    assert (state.progress, state.history_lost) == (Progress(), False)


def test_files_that_nobody_committed_are_removed(catalog: Catalog) -> None:
    files = files_of(create(catalog), 1)
    catalog.load(TABLE)
    catalog.delete_files(TABLE, [file.path for file in files])
    assert not any(Path(file.path).exists() for file in files)


def test_the_small_jvm_can_commit_too(lake: Lake, folder: Path) -> None:
    if not isinstance(lake, IcebergLake):
        begin(lake.catalog())
        return
    begin(lake.catalog())
    with light_jvm() as jvm:
        jvm.listen()
        catalog = IcebergLake(jvm, folder).catalog()
        assert catalog.commit(commit_of(load(catalog), 9)).offsets["a"][0] == 9
        catalog.append_once(NamedAppend(TABLE, files_of(load(catalog), 8), "replay-id", "r1", head_of(catalog)))
        assert len(paths(catalog)) == 4
