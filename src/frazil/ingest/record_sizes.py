"""How many records make a file: learned from the files that a table's records were written to. Pure.

What a record takes in a file is a fraction of its own size, and which one hangs on the records: of one topic's JSON a third
stays, of another's a fifteenth. The assumption stands only until the first files have been seen.
"""

from __future__ import annotations

from frazil.catalog.port import TableSize
from frazil.report.task_report import TaskReport

ASSUMED_SHARE = 1 / 6
# A smaller file is mostly footer and says nothing of a large one.
LEAST_TELLING_BYTES = 32 * 1024
# Estimates are never exact: a file that is planned to be a little too small is one, a little too large it is two.
AIM = 0.95
# Of a column whether it has a value or not, and of a change where it is in the order.
_VALUE_BYTES, _PLACE_BYTES = 8, 50


def learn_row_bytes(known: float | None, report: TaskReport) -> float | None:
    """What a record takes in a file, in bytes: as last known, and as the batch of `report` tells; half old, half new."""
    written = sum(file.size_bytes for file in report.written.data)
    if (
        not report.written.data
        or not report.counts.record_count
        or written < LEAST_TELLING_BYTES * len(report.written.data)
    ):
        return known
    found = written / report.counts.record_count
    return found if known is None else (known + found) / 2


def stored_row_bytes(size: TableSize | None) -> float | None:
    """The same for a table as it is stored, where its files are not all small."""
    if size is None or not size.row_count or size.size_bytes < LEAST_TELLING_BYTES * size.file_count:
        return None
    return size.size_bytes / size.row_count


def buffered_row_bytes(columns: int) -> int:
    """What a change of a table with so many columns takes at least in the memory of a task that keeps it: where few of them
    have a value, far more than in the record.
    """
    return _PLACE_BYTES + columns * _VALUE_BYTES


def records_per_file(file_bytes: int, row_bytes: float) -> int:
    """How many records a file of this size holds; at least one."""
    return max(1, int(AIM * file_bytes / max(row_bytes, 1e-3)))


def whole_files(files: int, tasks: int) -> int:
    """Of so many files those that the tasks share evenly; at least one."""
    return files // tasks * tasks if files >= tasks else max(1, files)


def span_of_whole_files(usual: int, most: int, per_file: int, tasks: int) -> int:
    """How many records a batch should cover so that each of its tasks writes files of the size that was asked for and no
    remainder: about `usual` where several files fit into that, more where one for each task does not, never more than
    `most`.
    """
    a_file_each = per_file * tasks
    return min(most, max(1, usual // a_file_each) * a_file_each)
