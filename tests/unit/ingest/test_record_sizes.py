"""How many records make a file: learned from reports, and what a batch should cover for whole files."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from frazil.catalog.port import TableSize
from frazil.ingest.batches.job import slices_of
from frazil.ingest.plan import (
    LEAST_TYPICAL_BYTES,
    buffered_row_bytes,
    learn_row_bytes,
    records_per_file,
    span_of_whole_files,
    stored_row_bytes,
    whole_files,
)
from frazil.ingest.tables.state import Sizes
from frazil.report import Counts, ShareReport, TaskReport, WrittenFiles
from frazil.types import Batch, DataFile, OffsetRange


def _report(records: int, *file_bytes: int) -> TaskReport:
    files = tuple(DataFile(f"f{number}", 1, size, "{}") for number, size in enumerate(file_bytes))
    return TaskReport("t", written=WrittenFiles(data=files), counts=Counts(record_count=records))


def test_the_first_files_replace_the_assumption_and_later_ones_count_by_half() -> None:
    assert learn_row_bytes(None, _report(1000, 60_000, 40_000)) == 100
    assert learn_row_bytes(100, _report(1000, 300_000)) == 200


def test_files_that_are_mostly_footer_and_batches_without_files_tell_nothing() -> None:
    assert learn_row_bytes(100, _report(10, LEAST_TYPICAL_BYTES - 1)) == 100
    assert learn_row_bytes(100, _report(10, LEAST_TYPICAL_BYTES, LEAST_TYPICAL_BYTES - 1)) == 100
    assert learn_row_bytes(None, _report(0, 50_000)) is None
    assert learn_row_bytes(None, _report(1_000_000)) is None


def test_a_table_of_a_route_learns_from_what_is_read_for_it_though_no_record_is_its_own() -> None:
    rest, unread = Sizes(), Sizes()
    rest.update(TaskReport("n.rest", share=ShareReport(others=1_000_000)))
    assert (rest.record_bytes, rest.is_scattered) == (0, None)
    unread.update(TaskReport("n.rest"))
    assert unread == Sizes()


def test_a_small_share_of_a_route_plans_whole_files_after_a_restart() -> None:
    """The stored table has 100 bytes for a row; one of 1000 records read is its own, so a record takes a tenth of a byte."""
    share, usual = Sizes(), Sizes()
    files = WrittenFiles(data=(DataFile("f", 1, 10_000, "{}"),))
    share.update(
        TaskReport("n.a", written=files, counts=Counts(record_count=100), share=ShareReport(others=99_900)), 100.0
    )
    usual.update(TaskReport("n.a", written=files, counts=Counts(record_count=20)), 100.0)
    assert (share.row_bytes, usual.row_bytes) == (0.1, None)
    assert learn_row_bytes(90.0, TaskReport("n.a", written=files, counts=Counts(record_count=1000)), 100.0) == 10


def test_a_row_takes_room_in_memory_for_its_place_and_for_each_column_with_a_value_or_not() -> None:
    assert [buffered_row_bytes(columns) for columns in (0, 4, 500)] == [50, 82, 4050]


def test_a_table_tells_what_its_rows_take_unless_its_files_are_small() -> None:
    assert stored_row_bytes(TableSize(row_count=1000, file_count=2, size_bytes=100_000, snapshot_count=9)) == 100
    assert stored_row_bytes(TableSize(row_count=1000, file_count=4, size_bytes=100_000, snapshot_count=9)) is None
    assert stored_row_bytes(TableSize(0, 0, 0, 0)) is None
    assert stored_row_bytes(None) is None


def test_a_file_is_planned_a_little_smaller_than_it_may_be() -> None:
    assert records_per_file(1_000_000, row_bytes=10) == 95_000
    assert records_per_file(10, row_bytes=50) == 1
    assert records_per_file(1000, row_bytes=0.0) == 950_000


def test_tasks_share_whole_files_evenly() -> None:
    assert [whole_files(files, 2) for files in range(6)] == [1, 1, 2, 2, 4, 4]
    assert [whole_files(files, 1) for files in range(4)] == [1, 1, 2, 3]


@given(st.integers(1, 10**7), st.integers(0, 10**8), st.integers(1, 10**7), st.integers(1, 64))
def test_a_span_is_whole_files_for_every_task_unless_that_is_more_than_it_may_be(
    usual: int, more: int, per_file: int, tasks: int
) -> None:
    most = usual + more
    span = span_of_whole_files(usual, most, per_file, tasks)
    assert 0 < span <= most
    assert span == most or span % (per_file * tasks) == 0
    assert span <= max(usual, per_file * tasks)


def test_a_job_has_as_many_tasks_as_are_quickest_or_as_leave_large_enough_files() -> None:
    def batch(span: int, most_tasks: int | None = None, topic: str = "a") -> Batch:
        return Batch("t", (OffsetRange(topic, 0, 0, span),), most_tasks=most_tasks)

    assert slices_of([batch(100)], 4) == 1
    assert slices_of([batch(1_000_000)], 4) == 4
    assert slices_of([batch(1_000_000, 1)], 4) == 1
    assert slices_of([batch(1_000_000, 3)], 4) == 3
    assert slices_of([batch(1_000_000, 9)], 4) == 4
    assert slices_of([batch(100_000, 1), batch(10, 1, topic="b")], 4) == 2
    assert slices_of([batch(1_000_000, 3), batch(1_000_000, 2)], 4) == 2
    assert slices_of([batch(70_000), batch(70_000)], 4) == 2
