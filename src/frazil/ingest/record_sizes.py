"""The number of records in a data file, learned from the files that a table's records were written to. Pure.

A record takes a fraction of its own size in a file, which depends on the records: a third for JSON of one topic, a
fifteenth for another. The assumed share applies only until the first files are written.
"""

from __future__ import annotations

from frazil.catalog.port import TableSize
from frazil.report.task_report import TaskReport

ASSUMED_SHARE = 1 / 6
# A smaller file is mostly footer, which shows nothing about a large one.
LEAST_TYPICAL_BYTES = 32 * 1024
# Estimates are never exact: a file that is planned a little too small is one file, one that is too large becomes two.
AIM = 0.95
# Memory of a column with or without a value, and of the order of a change.
_VALUE_BYTES, _PLACE_BYTES = 8, 50


def learn_row_bytes(known: float | None, report: TaskReport) -> float | None:
    """Returns the size of a record in a file, in bytes: the mean of the known size and that of the batch of `report`."""
    written = sum(file.size_bytes for file in report.written.data)
    if (
        not report.written.data
        or not report.counts.record_count
        or written < LEAST_TYPICAL_BYTES * len(report.written.data)
    ):
        return known
    found = written / report.counts.record_count
    return found if known is None else (known + found) / 2


def stored_row_bytes(size: TableSize | None) -> float | None:
    """Returns the size of a row in the stored table, in bytes; None where its files are small."""
    if size is None or not size.row_count or size.size_bytes < LEAST_TYPICAL_BYTES * size.file_count:
        return None
    return size.size_bytes / size.row_count


def buffered_row_bytes(columns: int) -> int:
    """Returns the least memory of a buffered change in a table with `columns` columns, in bytes: far more than the
    record, where few columns have a value.
    """
    return _PLACE_BYTES + columns * _VALUE_BYTES


def records_per_file(file_bytes: int, row_bytes: float) -> int:
    """Returns the number of records in a file of this size; at least one."""
    return max(1, int(AIM * file_bytes / max(row_bytes, 1e-3)))


def whole_files(files: int, tasks: int) -> int:
    """Returns the largest number of files, up to `files`, that the tasks share evenly; at least one."""
    return files // tasks * tasks if files >= tasks else max(1, files)


def span_of_whole_files(usual: int, most: int, per_file: int, tasks: int) -> int:
    """Returns the number of records with which each task of a batch writes files of the target size and no remainder:
    about `usual` where that has several files, more where it has less than one for each task, never more than `most`.
    """
    a_file_each = per_file * tasks
    return min(most, max(1, usual // a_file_each) * a_file_each)
