"""The Catalog port: files that are replaced or appended once, on memory and on Iceberg's own JDBC catalog."""

from __future__ import annotations

from contextlib import suppress

import pytest

from frazil.catalog.port import Catalog, NamedAppend, Rewrite
from frazil.catalog.progress import LoggedSnapshot
from frazil.errors import ConflictError, UnavailableError
from tests.contracts.catalogs import Lake
from tests.contracts.tables import TABLE, begin, commit_of, files_of, head_of, load, paths, plain


def _rewrite(catalog: Catalog, removed: str, *ids: int, read_at: int | None = None, name: str = "r") -> Rewrite:
    state = load(catalog)
    assert state.head_id is not None
    return Rewrite(
        TABLE, read_at or state.head_id, name, (removed,), files_of(state, *ids) if ids else (), {"replay": "x"}
    )


def test_a_rewrite_replaces_files_and_reports_it(catalog: Catalog, lake: Lake) -> None:
    first, second = begin(catalog)
    before, progress = head_of(catalog), load(catalog).progress
    rewrite = _rewrite(catalog, first, 7)
    catalog.rewrite(rewrite)
    assert paths(lake.catalog()) == sorted([second, rewrite.added[0].path])
    assert catalog.size(TABLE).row_count == 2
    assert plain(load(catalog).progress) == plain(progress)
    newest, *older = catalog.history(TABLE, ("replay", "rewrite-id", "replay-id"))
    assert newest == LoggedSnapshot(head_of(catalog), {"replay": "x", "rewrite-id": "r"})
    assert [reported.snapshot_id for reported in older][:1] == [before]
    assert not any(reported.summary or reported.is_cut for reported in older)


def test_a_rewrite_may_only_take_away(catalog: Catalog) -> None:
    first, second = begin(catalog)
    catalog.rewrite(_rewrite(catalog, first))
    assert paths(catalog) == [second]


def test_files_that_came_meanwhile_are_no_conflict_for_a_rewrite(lake: Lake) -> None:
    slow, quick = lake.catalog(), lake.catalog()
    first, second = begin(slow)
    rewrite = _rewrite(slow, first)
    third = commit_of(load(quick), 9, ids=(9,))
    quick.commit(third)
    slow.rewrite(rewrite)
    assert paths(quick) == sorted([second, third.files[0].path])
    assert load(slow).progress.offsets["a"][0] == 9


def test_one_of_two_rewrites_of_a_snapshot_is_refused_even_with_other_files(lake: Lake) -> None:
    slow, quick = lake.catalog(), lake.catalog()
    first, second = begin(slow)
    read_at = head_of(slow)
    for path in (first, second):
        late = _rewrite(slow, path, 7, read_at=read_at, name="late")
        if path == first:
            quick.load(TABLE)
            quick.rewrite(_rewrite(quick, first, name="quick"))
        with pytest.raises(ConflictError):
            slow.rewrite(late)
    assert paths(slow) == [second]


def test_a_rewrite_of_files_that_are_not_there_is_refused(catalog: Catalog) -> None:
    first, second = begin(catalog)
    with pytest.raises(ConflictError):
        catalog.rewrite(_rewrite(catalog, f"{first}.gone", 7))
    assert paths(catalog) == sorted([first, second])


def test_a_rewrite_of_a_table_that_was_rolled_back_is_refused(catalog: Catalog, lake: Lake) -> None:
    first, second = begin(catalog)
    rewrite = _rewrite(catalog, second)
    *_, oldest = catalog.history(TABLE, ())
    lake.roll_back(TABLE, oldest.snapshot_id)
    with pytest.raises(ConflictError):
        catalog.rewrite(rewrite)
    assert paths(catalog) == [first]


def test_a_rewrite_whose_answer_was_lost_is_looked_up(catalog: Catalog, lake: Lake) -> None:
    first, second = begin(catalog)
    with lake.lose_next_response("replay.rewrite-landed"):
        catalog.rewrite(_rewrite(catalog, first))
    assert paths(catalog) == [second]


def test_a_rewrite_that_somebody_else_has_done_is_done(lake: Lake) -> None:
    slow, quick = lake.catalog(), lake.catalog()
    first, second = begin(slow)
    late, done = _rewrite(slow, first, 7), _rewrite(quick, first, 7)
    quick.rewrite(done)
    slow.rewrite(late)
    assert paths(slow) == sorted([second, done.added[0].path])


def test_files_are_appended_once_under_a_name_and_leave_the_progress_alone(lake: Lake) -> None:
    one, other = lake.catalog(), lake.catalog()
    begin(one)
    since, progress = head_of(one), load(one).progress
    files = files_of(load(one), 8)
    one.append_once(NamedAppend(TABLE, files, "replay-id", "r1", since))
    load(other)
    lake.append_foreign(TABLE)
    with suppress(ConflictError):
        other.append_once(NamedAppend(TABLE, files, "replay-id", "r1", since))
    assert len(paths(other)) == 3
    assert plain(load(other).progress) == plain(progress)
    other.append_once(NamedAppend(TABLE, (), "replay-id", "r2", since))
    assert [reported.summary for reported in other.history(TABLE, ("replay-id",))][:3] == [
        {"replay-id": "r2"}, {}, {"replay-id": "r1"},
    ]  # fmt: skip
    assert one.commit(commit_of(load(one), 30)).offsets["a"][0] == 30


def test_an_append_whose_answer_was_lost_is_looked_up(catalog: Catalog, lake: Lake) -> None:
    begin(catalog)
    with lake.lose_next_response("replay.append-landed"):
        catalog.append_once(NamedAppend(TABLE, files_of(load(catalog), 8), "replay-id", "r1", head_of(catalog)))
    assert len(paths(catalog)) == 3


def test_nothing_is_appended_where_the_history_does_not_reach_back_far_enough(catalog: Catalog, lake: Lake) -> None:
    begin(catalog)
    since = head_of(catalog)
    lake.append_foreign(TABLE)
    lake.expire_all_but_newest(TABLE)
    state = load(catalog)
    [left] = catalog.history(TABLE, ("replay-id",))
    assert (left.snapshot_id, left.is_cut) == (state.head_id, True)
    with pytest.raises(UnavailableError):
        catalog.append_once(NamedAppend(TABLE, files_of(state, 8), "replay-id", "r1", since))
