"""One read for several tables: who shares it, up to where, and which records are whose."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.ingest.plan import join_read, own_starts, read_once, tables_read_with
from frazil.types import Batch, OffsetRange


def batch(table: str, *ranges: tuple[int, int], topic: str = "a") -> Batch:
    """A batch of these ranges of partitions 0, 1, …; an empty one is none."""
    return Batch(table, tuple(OffsetRange(topic, p, *r) for p, r in enumerate(ranges) if r[1] > r[0]))


def test_equal_ranges_are_read_once_and_each_table_takes_all_of_them() -> None:
    upsert_table, log = batch("upsert_table", (0, 10), (5, 9)), batch("log", (0, 10), (5, 9))
    assert join_read([upsert_table], log) == [upsert_table, log]
    assert read_once([upsert_table, log]) == list(upsert_table.ranges)
    assert own_starts([upsert_table, log]) == {}


def test_a_shared_read_ends_where_the_first_table_would_so_that_both_begin_the_next_one_together() -> None:
    joined = join_read([batch("upsert_table", (0, 10), (0, 9))], batch("log", (0, 16), (0, 8)))
    assert joined == [batch("upsert_table", (0, 10), (0, 8)), batch("log", (0, 10), (0, 8))]


def test_a_table_that_is_behind_brings_its_own_records_along() -> None:
    upsert_table, log = batch("upsert_table", (4, 10), (0, 9)), batch("log", (7, 10), (0, 9))
    assert join_read([upsert_table], log) == [upsert_table, log]
    assert read_once([upsert_table, log]) == list(upsert_table.ranges)
    assert own_starts([upsert_table, log]) == {"log": {"a": {0: 7, 1: 0}}}


def test_a_partition_that_one_of_them_has_read_already_is_not_its_own() -> None:
    upsert_table, log = batch("upsert_table", (0, 10), (8, 9)), batch("log", (0, 10), (9, 9))
    assert join_read([upsert_table], log) == [upsert_table, log]
    assert read_once([upsert_table, log]) == list(upsert_table.ranges)
    assert own_starts([upsert_table, log]) == {"log": {"a": {0: 0}}}


def test_tables_read_apart_what_they_do_not_both_read() -> None:
    assert join_read([batch("upsert_table", (0, 5))], batch("log", (5, 10))) is None
    assert join_read([batch("upsert_table", (0, 5), (0, 9))], batch("log", (5, 10), (0, 9))) is None


def test_no_batch_is_cut_to_less_than_half_for_the_sake_of_another() -> None:
    assert join_read([batch("upsert_table", (0, 10))], batch("log", (6, 20))) is None
    assert join_read([batch("upsert_table", (0, 10))], batch("log", (0, 21))) is None
    assert join_read([batch("upsert_table", (0, 10))], batch("log", (0, 20))) is not None
    much = 2_000_000
    assert join_read([batch("upsert_table", (0, much - 1))], batch("log", (0, 2 * much))) is None
    assert join_read([batch("upsert_table", (0, much))], batch("log", (0, 9 * much))) is not None, (
        "it is much all the same"
    )


def test_a_batch_that_must_end_where_it_ends_is_read_by_itself() -> None:
    upsert_table, log = batch("upsert_table", (0, 10)), batch("log", (0, 10))
    assert join_read([replace(upsert_table, is_apart=True)], log) is None
    assert join_read([upsert_table], replace(log, is_apart=True)) is None
    other = batch("other", (0, 3), topic="b")
    assert join_read([replace(upsert_table, is_apart=True)], other) == [replace(upsert_table, is_apart=True), other]


def test_who_reads_other_topics_is_neither_cut_nor_company() -> None:
    upsert_table, other, log = batch("upsert_table", (0, 10)), batch("other", (0, 99), topic="b"), batch("log", (0, 8))
    joined = join_read([upsert_table, other], log)
    assert joined == [batch("upsert_table", (0, 8)), other, log]
    assert [sorted(tables_read_with(one, joined)) for one in joined] == [["log"], [], ["upsert_table"]]
    assert own_starts(joined) == {}


_RANGES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=3)


@settings(max_examples=300, deadline=None)
@given(st.lists(_RANGES, min_size=2, max_size=4))
def test_however_tables_stand_each_gets_a_stretch_of_its_own_records_from_its_own_start(
    stands: list[list[tuple[int, int]]],
) -> None:
    batches = [batch(f"t{n}", *stand) for n, stand in enumerate(stands)]
    group = [batches[0]] if batches[0].ranges else []
    for one in (one for one in batches[1:] if one.ranges):
        group = join_read(group, one) or group
    starts = own_starts(group)
    read = {(r.partition, offset) for r in read_once(group) for offset in range(r.start, r.end)}
    for one in group:
        before = {r.partition: r for r in next(b for b in batches if b.table == one.table).ranges}
        assert [r.partition for r in one.ranges] == list(before)
        assert all(before[r.partition].start == r.start < r.end <= before[r.partition].end for r in one.ranges)
        own = starts.get(one.table, {"a": {p: 0 for p, _ in read}})["a"]
        taken = {(p, offset) for p, offset in read if p in own and offset >= own[p]}
        assert taken == {(r.partition, offset) for r in one.ranges for offset in range(r.start, r.end)}
