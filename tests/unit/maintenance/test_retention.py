"""Which snapshots go: never one that progress, a reference, a retry or a query that has begun still needs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.catalog.table_metadata import MetadataSizes, OwnBranch, Ref, Snapshot, TableMetadata
from frazil.maintenance.retention import Retention, before_first_commit, expirable, needs_carrying
from frazil.types import MAIN
from tests.unit.maintenance.tables import line, table, without_progress

HOUR_MS = 3_600_000
KEEP_TEN = Retention(HOUR_MS, 10)


def test_the_newest_are_kept_up_to_the_count_and_the_age() -> None:
    metadata = table(line(50))
    assert expirable(metadata, KEEP_TEN, (), 50_000) == tuple(range(1, 41))
    assert expirable(metadata, Retention(5_000, 100), (), 50_000) == tuple(range(1, 45))
    assert expirable(table(), KEEP_TEN, (), 0) == ()


def test_the_newest_progress_of_every_pipeline_is_kept_with_all_that_came_after_it() -> None:
    snapshots = line(50, pipelines=("p", "q"))
    foreign = [*snapshots[:20], *(without_progress(one) for one in snapshots[20:])]
    assert expirable(table(foreign), KEEP_TEN, (), 50 * HOUR_MS) == tuple(range(1, 19))
    assert needs_carrying(table(foreign), KEEP_TEN)
    assert not needs_carrying(table(snapshots), KEEP_TEN)


def test_the_oldest_that_is_kept_has_progress_for_a_table_that_is_rolled_back_to_it() -> None:
    snapshots = [without_progress(one) if 35 < one.id < 45 else one for one in line(50)]
    assert expirable(table(snapshots), KEEP_TEN, (), 50_000) == tuple(range(1, 35))


@pytest.mark.parametrize("statistics", [(5, 9), (9, 5), (9, 77, 5)])
def test_branches_tags_and_the_newest_statistics_are_kept(statistics: tuple[int, ...]) -> None:
    metadata = replace(table(line(50)), refs={"tag": Ref(3), "branch": Ref(7, True)}, statistics=statistics)
    assert expirable(metadata, KEEP_TEN, (), 50_000) == tuple(n for n in range(1, 41) if n not in (3, 7, 9))
    assert {9} == {3, 7, 9} & {*expirable(metadata, KEEP_TEN, (), 9_001 + 24 * HOUR_MS)}, (
        "it would hold its files for ever"
    )


def test_snapshots_of_another_branch_are_left_to_it() -> None:
    side = [Snapshot(100, 3, 3_500), Snapshot(101, 100, 3_600)]
    metadata = replace(table([*side, *line(50)]), refs={"side": Ref(101, True)})
    assert not {100, 101} & set(expirable(metadata, KEEP_TEN, (), 99 * HOUR_MS))


def test_the_retention_of_another_branch_counts_for_what_it_shares_with_main() -> None:
    refs = {"few": Ref(5, True, min_snapshots=3), "young": Ref(20, True, max_snapshot_age_ms=32_500)}
    metadata = replace(table(line(50)), refs=refs)
    kept = {3, 4, 5, 18, 19, 20}
    assert expirable(metadata, KEEP_TEN, (), 50_000) == tuple(n for n in range(1, 41) if n not in kept)


def test_a_tag_keeps_nothing_but_its_snapshot_and_nothing_once_its_time_is_over() -> None:
    rolled_back = [Snapshot(100, 3, 3_500), Snapshot(101, 100, 3_600)]
    refs = {"bad": Ref(101), "over": Ref(7, max_age_ms=1000), "branch over": Ref(8, True, 1000, min_snapshots=9)}
    metadata = replace(table([*rolled_back, *line(50)]), refs=refs)
    gone = expirable(metadata, KEEP_TEN, (), 50 * HOUR_MS)
    assert gone == (1, 2, 3, 100, *range(4, 50))


def test_what_readers_see_keeps_its_progress_however_far_the_branch_is() -> None:
    snapshots = [without_progress(one, removes_files=True) if one.id in (5, 6) else one for one in line(50)]
    published = replace(table(snapshots), branch=OwnBranch("ingest"), refs={MAIN: Ref(6, is_branch=True)})
    gone = expirable(published, KEEP_TEN, (), 60 * HOUR_MS)
    assert {4, 5, 6} & set(gone) == set()
    assert gone[:3] == (1, 2, 3)


def test_what_the_properties_of_the_table_keep_is_kept_however_much_it_is() -> None:
    metadata = replace(table(line(400)), sizes=MetadataSizes(400 * 20_000))
    assert len(expirable(metadata, Retention(HOUR_MS, 20, 100_000), (), 400_000)) == 400 - 101
    assert len(expirable(metadata, Retention(HOUR_MS, 300, 0, 300), (), 400_000)) == 100
    assert len(expirable(metadata, Retention(HOUR_MS, 300, 1000, 2), (), 400_000)) == 400 - 45


def test_an_open_retry_keeps_all_since_it_read() -> None:
    assert expirable(table(line(50)), KEEP_TEN, (20,), 50_000) == tuple(range(1, 20))
    gone = table(line(50)[10:])
    assert expirable(gone, KEEP_TEN, (5,), 50_000) == (), "nobody knows how far back is far enough"


def test_a_table_that_was_made_and_has_no_progress_yet_keeps_its_beginning() -> None:
    foreign = [without_progress(one) for one in line(50)]
    made = replace(table(foreign), properties={"frazil.p.created": "true"})
    assert expirable(made, KEEP_TEN, before_first_commit(made, "p"), 99 * HOUR_MS) == ()
    assert before_first_commit(table(foreign), "p") == (), "another's table begins again without harm"
    assert before_first_commit(made, "q") == ()
    begun = replace(table([*foreign[:20], *line(50)[20:]]), properties=made.properties)
    assert before_first_commit(begun, "p") == ()
    cut = replace(table(foreign[5:]), properties=made.properties)
    assert before_first_commit(cut, "p") == (), "it is too late"


def test_the_last_snapshot_before_files_were_removed_is_kept_for_queries() -> None:
    snapshots = [without_progress(one, removes_files=True) if one.id in (10, 30) else one for one in line(50)]
    gone = expirable(table(snapshots), KEEP_TEN, (), 50_000)
    assert gone == tuple(n for n in range(1, 41) if n not in (9, 29))
    left = table([one for one in snapshots if one.id not in gone])
    assert expirable(left, KEEP_TEN, (), 50_000) == ()
    assert expirable(left, KEEP_TEN, (), 9_001 + HOUR_MS) == (9,)


def test_what_was_rolled_back_or_is_staged_stays_until_it_is_old() -> None:
    abandoned = [Snapshot(60, 45, 45_500, progress={"p": "x"}), Snapshot(61, None, 2_000, is_staged=True)]
    metadata = table([*abandoned, *line(50)])
    assert not {60, 61} & set(expirable(metadata, KEEP_TEN, (), 50_000))
    assert {60, 61} <= set(expirable(metadata, KEEP_TEN, (), 46_000 + HOUR_MS))


def test_heavy_snapshots_are_fewer() -> None:
    metadata = replace(table(line(400)), sizes=MetadataSizes(400 * 20_000))
    kept = 400 - len(expirable(metadata, Retention(HOUR_MS, 200), (), 400_000))
    assert kept == 45


@st.composite
def histories(draw: st.DrawFn) -> TableMetadata:
    """A main branch with gaps of progress, rewrites, references and leftovers."""
    count = draw(st.integers(1, 40))
    chosen = st.sets(st.integers(1, count))
    foreign, rewrites, refs = draw(chosen), draw(chosen), draw(st.sets(st.integers(1, count), max_size=3))
    snapshots = [
        without_progress(one, one.id in rewrites) if one.id in foreign | rewrites else one
        for one in line(count, pipelines=draw(st.sampled_from([("p",), ("p", "q")])))
    ]
    return replace(table(snapshots), refs={f"r{n}": Ref(n) for n in refs})


def newest_progress(metadata: TableMetadata) -> dict[str, str]:
    found: dict[str, str] = {}
    for snapshot in metadata.ancestors():
        for pipeline, commit in snapshot.progress.items():
            found.setdefault(pipeline, commit)
    return found


@settings(max_examples=400, deadline=None)
@given(histories(), st.integers(1, 12), st.integers(1, 50), st.integers(0, 200))
def test_no_history_loses_progress_or_a_reference(metadata: TableMetadata, count: int, age_s: int, now_s: int) -> None:
    for _ in range(3):
        gone = set(expirable(metadata, Retention(age_s * 1000, count), (), now_s * 1000))
        left = replace(metadata, snapshots={i: s for i, s in metadata.snapshots.items() if i not in gone})
        assert newest_progress(left) == newest_progress(metadata)
        assert {*(ref.snapshot for ref in metadata.refs.values()), metadata.head} <= left.snapshots.keys()
        metadata = left


@pytest.mark.parametrize("retention", [Retention(HOUR_MS, 1), Retention(1, 1)])
def test_the_newest_snapshot_always_stays(retention: Retention) -> None:
    assert 50 not in expirable(table(line(50, pipelines=())), retention, (), 10**12)
