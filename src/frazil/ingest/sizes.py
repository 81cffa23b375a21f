"""How many records make a file: learned from the files that a table's batches were written to. Pure.

A file is a fraction of its records' size, and which one hangs on the records: compressed columns of one topic take a
third of their JSON, of another a fifteenth. The constant stands only until the first files have been seen.
"""

from __future__ import annotations

from frazil.types import TaskReport

ASSUMED_FILE_SHARE = 1 / 6
# A smaller file is mostly footer and says nothing of a large one.
LEAST_TELLING_BYTES = 32 * 1024
# Estimates are never exact: a file that is planned to be a little too small is one, a little too large it is two.
AIM = 0.95


def learn_file_share(known: float | None, report: TaskReport) -> float | None:
    """Bytes of files per byte of record values, as last known and with what `report` tells: half old, half new."""
    written = sum(file.size_bytes for file in report.files)
    if not report.value_bytes or written < LEAST_TELLING_BYTES * len(report.files) or not report.files:
        return known
    found = written / report.value_bytes
    return found if known is None else (known + found) / 2


def records_per_file(file_bytes: int, record_bytes: float, file_share: float) -> int:
    """How many records a file of this size holds; at least one."""
    return max(1, int(AIM * file_bytes / max(record_bytes * file_share, 1e-3)))


def span_of_whole_files(usual: int, most: int, per_file: int, tasks: int) -> int:
    """How many records a batch should cover so that each of its tasks writes files of the size that was asked for and no
    remainder: about `usual` where several files fit into that, more where one for each task does not, never more than
    `most`.
    """
    a_file_each = per_file * tasks
    return min(most, max(1, usual // a_file_each) * a_file_each)
