"""The balance of a batch: each record that was read ends exactly once, as written, as a bad record, or dropped by a name. It
is checked before each commit, from counts alone, and recorded in the commit's summary.
"""

from __future__ import annotations

from frazil.errors import InvariantError
from frazil.ingest.table import Table
from frazil.report import TaskReport
from frazil.types import Balance


def checked_balance(table: Table, report: TaskReport) -> Balance:
    """Returns what became of the records of a batch.

    Raises: InvariantError where records are lost or counted twice, or where files have other numbers of rows than tasks
    have written. Such a batch is not committed: read again, it would give the same.
    """
    counts, written = report.counts, report.written
    balance = Balance(counts.record_count, counts.written_count, report.bad_records.count, counts.ignored_records)
    wrong = []
    if balance.lost:
        dropped = sum(balance.dropped.values())
        became = f"written={balance.written} bad={balance.bad} dropped={dropped}"
        wrong.append(f"records of the batch are not accounted for: read={balance.read} {became}")
    row_count = sum(file.record_count for file in written.data)
    if table.spec.mode == "append" and row_count != counts.row_count:
        wrong.append(f"files have other rows than were written: written={counts.row_count} in_files={row_count}")
    if table.spec.on_bad_record == "dead_letter" and written.dead_letter_count != balance.bad:
        wrong.append(f"files have other dead letters: bad={balance.bad} in_files={written.dead_letter_count}")
    if wrong:
        raise InvariantError("; ".join(wrong), where=table.name)
    return balance
