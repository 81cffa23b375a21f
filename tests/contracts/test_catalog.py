"""The Catalog port: what every catalog promises, on memory and on Iceberg's own JDBC catalog."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
    UnknownType,
)

from frazil.catalog.history import Said
from frazil.catalog.layout import METRICS_OF, Layout
from frazil.catalog.port import Catalog, Rewrite, TableSize, TableState
from frazil.clock import new_id
from frazil.errors import ConflictError, SpecError, UnavailableError
from frazil.ingest.evolve import extend_schema, new_schema
from frazil.ingest.files.write import FileWriter
from frazil.ingest.shape import shape_rows
from frazil.ingest.table import Table
from frazil.runtime.jvm import Jvm
from frazil.runtime.light_jvm import LightJvm
from frazil.spec.models import TableSpec, TopicSelector
from frazil.spec.partitioning import parse_sort, parse_term
from frazil.types import Commit, DataFile, Progress, Watermark
from tests.contracts.catalogs import IcebergLake, Lake
from tests.unit.ingest.columns import decode

_TABLE = "lake.sub.t"
_SCHEMA = new_schema([("id", LongType()), ("s", StructType(NestedField(0, "a", LongType(), required=False)))])


def _create(catalog: Catalog) -> TableState:
    return catalog.create(_TABLE, _SCHEMA, {"owner": "me"}, 2)


def _write(state: TableState, *ids: int) -> tuple[DataFile, ...]:
    table = Table(TableSpec(name=_TABLE, topics=(TopicSelector(literal="a"),)), state)
    kinds = {field.name: field.field_type for field in state.schema.fields}
    writer = FileWriter(table.target())
    writer.write(shape_rows(table.target(), decode([f'{{"id": {n}}}' for n in ids], "add", **kinds), {}))
    return tuple(writer.finish())


def _commit(state: TableState, end: int, *, epoch: int = 1, ids: tuple[int, ...] = (1, 2)) -> Commit:
    progress = Progress(
        offsets={"a": {0: end, 10: 3}},
        topic_ids={"a": "id-a"},
        cluster_id="cluster",
        commit_id=new_id(),
        epoch=epoch,
        run_id="run",
        watermark=Watermark({"a": {0: 99}}, 98),
        skipped={"a": {0: (1, 2)}},
    )
    return Commit(_TABLE, _write(state, *ids) if ids else (), progress, state.progress)


def _load(catalog: Catalog) -> TableState:
    state = catalog.load(_TABLE)
    assert state is not None
    return state


def _plain(progress: Progress) -> Progress:
    """Without the time of the commit, which only a real table knows."""
    return replace(progress, committed_at_ms=None)


def test_a_table_that_is_not_there_is_none(catalog: Catalog) -> None:
    assert catalog.load("nowhere.t") is None
    assert catalog.load(_TABLE) is None


def test_a_created_table_has_its_columns_with_ids_and_no_progress(catalog: Catalog) -> None:
    made = _create(catalog)
    assert made.schema.as_struct() == _load(catalog).schema.as_struct()
    assert [(field.name, str(field.field_type)[:6]) for field in made.schema.fields] == [
        ("id", "long"),
        ("s", "struct"),
    ]
    assert len(made.schema.field_ids) == len(set(made.schema.field_ids)) == 3
    assert (made.progress, made.history_lost, made.is_partitioned, made.format_version) == (Progress(), False, False, 2)
    assert made.properties["owner"] == "me"


def test_a_table_whose_properties_name_a_column_that_it_lacks_cannot_be_made(catalog: Catalog) -> None:
    with pytest.raises(UnavailableError, match="the table cannot be created"):
        catalog.create(_TABLE, new_schema([("other", StringType())]), {METRICS_OF + "id": "full"}, 2)
    assert catalog.load(_TABLE) is None


def test_creating_a_table_that_is_there_answers_the_one_that_is_there(lake: Lake) -> None:
    first = _create(lake.catalog())
    second = lake.catalog().create(_TABLE, new_schema([("other", StringType())]), {}, 2)
    assert (second.uuid, second.schema.as_struct()) == (first.uuid, first.schema.as_struct())


def test_a_commit_carries_its_rows_and_its_progress(catalog: Catalog, lake: Lake) -> None:
    state = _create(catalog)
    commit = _commit(state, 5)
    committed = catalog.commit(commit)
    assert _plain(committed) == replace(commit.progress, snapshot_id=committed.snapshot_id)
    assert committed.snapshot_id is not None
    assert _plain(_load(lake.catalog()).progress) == _plain(committed)
    size = catalog.size(_TABLE)
    assert size == TableSize(2, 1, sum(file.size_bytes for file in commit.files), 1)


def test_a_commit_without_rows_moves_the_progress(catalog: Catalog) -> None:
    state = _create(catalog)
    catalog.commit(_commit(state, 5, ids=()))
    assert _load(catalog).progress.offsets == {"a": {0: 5, 10: 3}}
    assert catalog.size(_TABLE).row_count == 0


def test_a_stale_writer_is_refused_by_the_table(lake: Lake) -> None:
    winner, loser = lake.catalog(), lake.catalog()
    _create(winner)
    mine, other = _load(winner), _load(loser)
    first = winner.commit(_commit(mine, 5))
    with pytest.raises(ConflictError):
        loser.commit(_commit(other, 7))
    assert _plain(_load(loser).progress) == _plain(first)
    assert loser.commit(_commit(_load(loser), 9)).offsets["a"][0] == 9


@pytest.mark.parametrize("what", ["schema", "partition spec", "sort order"])
def test_files_written_for_another_shape_of_the_table_are_refused(lake: Lake, what: str) -> None:
    mine, other = lake.catalog(), lake.catalog("q")
    state = _create(mine)
    _load(other)
    if what == "schema":
        other.evolve(_TABLE, lambda schema: extend_schema(schema, {(): {"more": StringType()}}))
    else:
        partition_by = (parse_term("bucket(id, 2)"),) if what == "partition spec" else None
        other.arrange(_TABLE, Layout(partition_by, (parse_sort("id"),) if partition_by is None else None))
    with pytest.raises(ConflictError, match="changed after this batch was planned"):
        mine.commit(replace(_commit(state, 5), shape=state.shape))
    now = _load(mine)
    assert (now.progress, now.shape == state.shape) == (Progress(), False)
    assert mine.commit(replace(_commit(now, 5), shape=now.shape)).offsets["a"][0] == 5
    with lake.lose_next_answer():
        now = _load(mine)
        assert mine.commit(replace(_commit(now, 7), shape=now.shape)).offsets["a"][0] == 7


def test_of_many_committers_at_once_exactly_one_wins(lake: Lake) -> None:
    _create(lake.catalog())
    writers = [lake.catalog() for _ in range(4)]
    commits = [_commit(_load(writer), 5 + n) for n, writer in enumerate(writers)]
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
    state = _load(last)
    assert [_plain(progress) for progress in won] == [_plain(state.progress)]
    assert last.commit(_commit(state, 99)).offsets["a"][0] == 99


def test_snapshots_of_other_writers_do_not_hide_the_progress(catalog: Catalog, lake: Lake) -> None:
    state = _create(catalog)
    committed = catalog.commit(_commit(state, 5))
    lake.append_foreign(_TABLE)
    lake.append_foreign(_TABLE)
    assert _plain(_load(catalog).progress) == _plain(committed)
    assert catalog.commit(_commit(_load(catalog), 6)).offsets["a"][0] == 6


def test_a_foreign_snapshot_between_load_and_commit_is_no_conflict(catalog: Catalog, lake: Lake) -> None:
    _create(catalog)
    state = _load(catalog)
    lake.append_foreign(_TABLE)
    assert catalog.commit(_commit(state, 5)).offsets["a"][0] == 5


def test_two_pipelines_feed_one_table_and_do_not_see_each_other_s_progress(lake: Lake) -> None:
    mine, theirs = lake.catalog("p"), lake.catalog("q")
    _create(mine)
    my_state, their_state = _load(mine), _load(theirs)
    mine.commit(_commit(my_state, 5))
    theirs.commit(_commit(their_state, 70))
    assert _load(mine).progress.offsets["a"][0] == 5
    assert _load(theirs).progress.offsets["a"][0] == 70


def test_a_lost_answer_is_looked_up_in_the_table(catalog: Catalog, lake: Lake) -> None:
    state = _create(catalog)
    commit = _commit(state, 5)
    with lake.lose_next_answer():
        committed = catalog.commit(commit)
    assert _plain(committed) == replace(commit.progress, snapshot_id=committed.snapshot_id)
    assert catalog.size(_TABLE).row_count == 2


def test_a_rolled_back_table_resumes_from_the_restored_progress(catalog: Catalog, lake: Lake) -> None:
    first = catalog.commit(_commit(_create(catalog), 5))
    second = catalog.commit(_commit(_load(catalog), 7))
    assert first.snapshot_id is not None
    lake.roll_back(_TABLE, first.snapshot_id)
    stale = replace(_load(catalog), progress=second)
    with pytest.raises(ConflictError):
        catalog.commit(_commit(stale, 9))
    assert _plain(_load(catalog).progress) == _plain(first)
    assert catalog.commit(_commit(_load(catalog), 6)).offsets["a"][0] == 6


def test_progress_that_was_expired_is_lost_and_not_none(catalog: Catalog, lake: Lake) -> None:
    catalog.commit(_commit(_create(catalog), 5))
    lake.append_foreign(_TABLE)
    lake.expire_all_but_newest(_TABLE)
    state = _load(lake.catalog())
    assert (state.progress, state.history_lost) == (Progress(), True)


def test_progress_in_a_table_that_someone_else_made_is_not_forgotten_either(lake: Lake) -> None:
    _create(lake.catalog("someone-else"))
    mine = lake.catalog()
    mine.commit(_commit(_load(mine), 5))
    lake.append_foreign(_TABLE)
    lake.expire_all_but_newest(_TABLE)
    assert _load(lake.catalog()).history_lost


def test_a_pipeline_that_never_committed_has_lost_nothing(lake: Lake) -> None:
    _create(lake.catalog("someone-else"))
    lake.append_foreign(_TABLE)
    lake.append_foreign(_TABLE)
    lake.expire_all_but_newest(_TABLE)
    state = _load(lake.catalog())
    assert (state.progress, state.history_lost) == (Progress(), False)


@pytest.mark.parametrize("kind", [TimestampNanoType(), TimestamptzNanoType(), UnknownType()], ids=str)
def test_a_table_with_a_column_that_cannot_be_written_is_refused_with_its_name_and_type(
    lake: Lake, kind: IcebergType
) -> None:
    inside = StructType(NestedField(0, "at", kind, required=False))
    said = f"the column s.at has the type {kind}, which this version cannot write"
    with pytest.raises(SpecError, match=said):
        lake.catalog().create(_TABLE, new_schema([("s", inside)]), {}, 3)
    with pytest.raises(SpecError, match=said):
        lake.catalog().load(_TABLE)


@pytest.mark.jvm
def test_a_column_that_python_cannot_even_name_is_refused_too_and_takes_no_commit_for_lost(
    jvm: Jvm, folder: Path
) -> None:
    lake = IcebergLake(jvm, folder)
    catalog = lake.catalog()
    state = catalog.create(_TABLE, _SCHEMA, {}, 3)
    commit = _commit(state, 5)
    lake.add_column(_TABLE, "v", "variant")
    # The commit lands, and what it came to cannot be looked up: it may not be taken for one that was not made.
    with lake.lose_next_answer(), pytest.raises(UnavailableError, match="the commit did not go through"):
        catalog.commit(commit)
    with pytest.raises(SpecError, match="the column v has the type variant, which this version cannot write"):
        catalog.load(_TABLE)
    assert lake.column(_TABLE, "id") == [1, 2]


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_table_that_was_dropped_and_made_anew_is_another_table(lake: Lake, is_seen: bool) -> None:
    mine = lake.catalog()
    _create(lake.catalog("someone-else"))
    mine.commit(_commit(_load(mine), 5))
    before = _load(mine)
    stale = _commit(before, 7)
    lake.drop(_TABLE)
    if is_seen:
        assert mine.load(_TABLE) is None
    made = _create(lake.catalog("someone-else"))
    if not is_seen:
        with pytest.raises((ConflictError, UnavailableError)):
            mine.commit(stale)
    after = _load(mine)
    assert (after.uuid, after.progress, after.history_lost) == (made.uuid, Progress(), False)
    assert after.uuid != before.uuid
    assert mine.commit(_commit(after, 5, ids=(3,))).offsets["a"][0] == 5
    assert lake.column(_TABLE, "id") == [3]
    lake.append_foreign(_TABLE)
    lake.expire_all_but_newest(_TABLE)
    assert _load(lake.catalog()).history_lost, "the second table is marked as one of ours too"


def test_a_schema_grows_at_every_depth_and_keeps_its_ids(catalog: Catalog, lake: Lake) -> None:
    before = _create(catalog).schema
    wanted: dict[tuple[str, ...], dict[str, IcebergType]] = {
        (): {"x": DoubleType(), "l": ListType(0, LongType(), False)},
        ("s",): {"b": StringType()},
    }
    after = catalog.evolve(_TABLE, lambda schema: extend_schema(schema, wanted)).schema
    names = {after.find_column_name(field_id): field_id for field_id in after.field_ids}
    assert set(names) == {"id", "s", "s.a", "s.b", "x", "l", "l.element"}
    assert {before.find_column_name(i): i for i in before.field_ids}.items() <= names.items()
    assert _load(lake.catalog()).schema.as_struct() == after.as_struct()


@pytest.mark.jvm
def test_a_column_that_was_dropped_and_comes_again_with_another_type_is_another_column(jvm: Jvm, folder: Path) -> None:
    lake = IcebergLake(jvm, folder)
    catalog = lake.catalog()
    state = _create(catalog)
    catalog.commit(_commit(state, 5, ids=(1, 2)))
    lake.drop_column(_TABLE, "id")
    after = catalog.evolve(_TABLE, lambda schema: extend_schema(schema, {(): {"id": StringType()}})).schema
    assert after.find_field("id").field_type == StringType()
    assert after.find_field("id").field_id not in state.schema.field_ids
    assert {value for value, _ in lake._read(_TABLE, "id", "s")} == {None}, "nothing of the old column is in it"


def test_the_same_change_from_two_processes_is_made_once(lake: Lake) -> None:
    _create(lake.catalog())
    first, second = lake.catalog(), lake.catalog()
    assert _load(second).schema.find_type("id") == LongType()

    def change(schema: Schema) -> Schema:
        return extend_schema(schema, {(): {"x": DoubleType()}})

    one, other = first.evolve(_TABLE, change), second.evolve(_TABLE, change)
    assert one.schema.as_struct() == other.schema.as_struct()


def test_a_table_that_is_gone_cannot_evolve(catalog: Catalog) -> None:
    with pytest.raises(UnavailableError):
        catalog.evolve(_TABLE, lambda schema: schema)


def test_files_that_nobody_committed_are_removed(catalog: Catalog) -> None:
    files = _write(_create(catalog), 1)
    catalog.load(_TABLE)
    catalog.delete_files(_TABLE, [file.path for file in files])
    assert not any(Path(file.path).exists() for file in files)


def _head(catalog: Catalog) -> int:
    head = _load(catalog).head_id
    assert head is not None
    return head


def _paths(catalog: Catalog) -> list[str]:
    _load(catalog)
    return sorted(file.path for file in catalog.files(_TABLE))


def _begin(catalog: Catalog) -> tuple[str, str]:
    """Two files in two snapshots; their paths."""
    first, second = (_commit(_create(catalog), 5), _commit(_load(catalog), 5, ids=(3,)))
    second = replace(second, expected=catalog.commit(first))
    catalog.commit(second)
    return first.files[0].path, second.files[0].path


def _rewrite(catalog: Catalog, removed: str, *ids: int, read_at: int | None = None, name: str = "r") -> Rewrite:
    state = _load(catalog)
    assert state.head_id is not None
    return Rewrite(
        _TABLE, read_at or state.head_id, name, (removed,), _write(state, *ids) if ids else (), {"retry": "x"}
    )


def test_a_table_says_which_snapshot_is_its_newest(catalog: Catalog) -> None:
    assert _create(catalog).head_id is None
    committed = catalog.commit(_commit(_load(catalog), 5))
    assert _load(catalog).head_id == committed.snapshot_id


def test_marks_are_a_pipeline_s_own_and_come_and_go(lake: Lake) -> None:
    catalog, other = lake.catalog(), lake.catalog("q")
    _create(catalog)
    assert "begun" not in _load(catalog).marks
    catalog.mark(_TABLE, "begun", "1")
    assert _load(catalog).marks["begun"] == _load(lake.catalog()).marks["begun"] == "1"
    assert "begun" not in _load(other).marks
    catalog.mark(_TABLE, "begun", None)
    catalog.mark(_TABLE, "begun", None)
    assert "begun" not in _load(lake.catalog()).marks


def test_a_rewrite_replaces_files_and_says_so(catalog: Catalog, lake: Lake) -> None:
    first, second = _begin(catalog)
    before, progress = _head(catalog), _load(catalog).progress
    rewrite = _rewrite(catalog, first, 7)
    catalog.rewrite(rewrite)
    assert _paths(lake.catalog()) == sorted([second, rewrite.added[0].path])
    assert catalog.size(_TABLE).row_count == 2
    assert _plain(_load(catalog).progress) == _plain(progress)
    newest, *older = catalog.history(_TABLE, ("retry", "rewrite-id", "retry-id"))
    assert newest == Said(_head(catalog), {"retry": "x", "rewrite-id": "r"})
    assert [said.snapshot_id for said in older][:1] == [before]
    assert not any(said.words or said.is_cut for said in older)


def test_a_rewrite_may_only_take_away(catalog: Catalog) -> None:
    first, second = _begin(catalog)
    catalog.rewrite(_rewrite(catalog, first))
    assert _paths(catalog) == [second]


def test_files_that_came_meanwhile_are_no_conflict_for_a_rewrite(lake: Lake) -> None:
    slow, quick = lake.catalog(), lake.catalog()
    first, second = _begin(slow)
    rewrite = _rewrite(slow, first)
    third = _commit(_load(quick), 9, ids=(9,))
    quick.commit(third)
    slow.rewrite(rewrite)
    assert _paths(quick) == sorted([second, third.files[0].path])
    assert _load(slow).progress.offsets["a"][0] == 9


def test_of_two_rewrites_that_saw_the_same_snapshot_one_is_refused_also_with_other_files(lake: Lake) -> None:
    slow, quick = lake.catalog(), lake.catalog()
    first, second = _begin(slow)
    read_at = _head(slow)
    for path in (first, second):
        late = _rewrite(slow, path, 7, read_at=read_at, name="late")
        if path == first:
            quick.load(_TABLE)
            quick.rewrite(_rewrite(quick, first, name="quick"))
        with pytest.raises(ConflictError):
            slow.rewrite(late)
    assert _paths(slow) == [second]


def test_a_rewrite_of_files_that_are_not_there_is_refused(catalog: Catalog) -> None:
    first, second = _begin(catalog)
    with pytest.raises(ConflictError):
        catalog.rewrite(_rewrite(catalog, f"{first}.gone", 7))
    assert _paths(catalog) == sorted([first, second])


def test_a_rewrite_of_a_table_that_was_rolled_back_is_refused(catalog: Catalog, lake: Lake) -> None:
    first, second = _begin(catalog)
    rewrite = _rewrite(catalog, second)
    *_, oldest = catalog.history(_TABLE, ())
    lake.roll_back(_TABLE, oldest.snapshot_id)
    with pytest.raises(ConflictError):
        catalog.rewrite(rewrite)
    assert _paths(catalog) == [first]


def test_a_rewrite_whose_answer_was_lost_is_looked_up(catalog: Catalog, lake: Lake) -> None:
    first, second = _begin(catalog)
    with lake.lose_next_answer("retry.rewrite-landed"):
        catalog.rewrite(_rewrite(catalog, first))
    assert _paths(catalog) == [second]


def test_a_rewrite_that_somebody_else_has_done_is_done(lake: Lake) -> None:
    slow, quick = lake.catalog(), lake.catalog()
    first, second = _begin(slow)
    late, done = _rewrite(slow, first, 7), _rewrite(quick, first, 7)
    quick.rewrite(done)
    slow.rewrite(late)
    assert _paths(slow) == sorted([second, done.added[0].path])


def test_files_are_appended_once_under_a_name_and_leave_the_progress_alone(lake: Lake) -> None:
    one, other = lake.catalog(), lake.catalog()
    _begin(one)
    since, progress = _head(one), _load(one).progress
    files = _write(_load(one), 8)
    one.append_once(_TABLE, files, "retry-id", "r1", since)
    _load(other)
    lake.append_foreign(_TABLE)
    with suppress(ConflictError):
        other.append_once(_TABLE, files, "retry-id", "r1", since)
    assert len(_paths(other)) == 3
    assert _plain(_load(other).progress) == _plain(progress)
    other.append_once(_TABLE, (), "retry-id", "r2", since)
    assert [said.words for said in other.history(_TABLE, ("retry-id",))][:3] == [
        {"retry-id": "r2"}, {}, {"retry-id": "r1"},
    ]  # fmt: skip
    assert one.commit(_commit(_load(one), 30)).offsets["a"][0] == 30


def test_an_append_whose_answer_was_lost_is_looked_up(catalog: Catalog, lake: Lake) -> None:
    _begin(catalog)
    with lake.lose_next_answer("retry.append-landed"):
        catalog.append_once(_TABLE, _write(_load(catalog), 8), "retry-id", "r1", _head(catalog))
    assert len(_paths(catalog)) == 3


def test_nothing_is_appended_where_the_history_does_not_reach_back_far_enough(catalog: Catalog, lake: Lake) -> None:
    _begin(catalog)
    since = _head(catalog)
    lake.append_foreign(_TABLE)
    lake.expire_all_but_newest(_TABLE)
    state = _load(catalog)
    [left] = catalog.history(_TABLE, ("retry-id",))
    assert (left.snapshot_id, left.is_cut) == (state.head_id, True)
    with pytest.raises(UnavailableError):
        catalog.append_once(_TABLE, _write(state, 8), "retry-id", "r1", since)


def test_the_small_jvm_can_commit_too(lake: Lake, folder: Path) -> None:
    if not isinstance(lake, IcebergLake):
        _begin(lake.catalog())
        return
    _begin(lake.catalog())
    jvm = LightJvm({})
    try:
        jvm.listen()
        catalog = IcebergLake(jvm, folder).catalog()
        assert catalog.commit(_commit(_load(catalog), 9)).offsets["a"][0] == 9
        catalog.append_once(_TABLE, _write(_load(catalog), 8), "retry-id", "r1", _head(catalog))
        assert len(_paths(catalog)) == 4
    finally:
        jvm.close()
