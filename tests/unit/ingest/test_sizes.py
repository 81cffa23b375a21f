"""How many records make a file: learned from reports, and what a batch should cover for whole files."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from frazil.ingest.job import slices_of
from frazil.ingest.sizes import LEAST_TELLING_BYTES, learn_file_share, records_per_file, span_of_whole_files
from frazil.types import Batch, DataFile, OffsetRange, TaskReport


def _report(value_bytes: int, *file_bytes: int) -> TaskReport:
    files = tuple(DataFile(f"f{number}", 1, size, "{}") for number, size in enumerate(file_bytes))
    return TaskReport("t", files=files, record_count=1, value_bytes=value_bytes)


def test_the_first_files_replace_the_assumption_and_later_ones_count_by_half() -> None:
    assert learn_file_share(None, _report(1_000_000, 60_000, 40_000)) == 0.1
    assert learn_file_share(0.1, _report(1_000_000, 300_000)) == 0.2


def test_files_that_are_mostly_footer_and_batches_without_values_tell_nothing() -> None:
    assert learn_file_share(0.1, _report(1000, LEAST_TELLING_BYTES - 1)) == 0.1
    assert learn_file_share(0.1, _report(1_000_000, LEAST_TELLING_BYTES, LEAST_TELLING_BYTES - 1)) == 0.1
    assert learn_file_share(None, _report(0, 50_000)) is None
    assert learn_file_share(None, _report(1_000_000)) is None


def test_a_file_is_planned_a_little_smaller_than_it_may_be() -> None:
    assert records_per_file(1_000_000, record_bytes=100, file_share=0.1) == 95_000
    assert records_per_file(10, record_bytes=100, file_share=0.5) == 1
    assert records_per_file(1000, record_bytes=0.0, file_share=0.5) == 950_000


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
    def batch(span: int, most_tasks: int | None = None) -> Batch:
        return Batch("t", (OffsetRange("a", 0, 0, span),), most_tasks=most_tasks)

    assert slices_of([batch(100)], 4) == 1
    assert slices_of([batch(1_000_000)], 4) == 4
    assert slices_of([batch(1_000_000, 1)], 4) == 1
    assert slices_of([batch(1_000_000, 3)], 4) == 3
    assert slices_of([batch(1_000_000, 9)], 4) == 4
    assert slices_of([batch(100_000, 1), batch(10, 1)], 4) == 2
