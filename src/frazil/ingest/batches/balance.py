"""What became of the records of a batch, checked before its commit, and the ledger that the commit carries on."""

from __future__ import annotations

from frazil.errors import InvariantError
from frazil.ingest.tables.table import Planned
from frazil.ledger import HASH_VERSION, MODULUS, Ledger
from frazil.report import TaskReport
from frazil.stages.table import table_stages
from frazil.types import Balance, Offsets, Progress, by_partition, by_topic


def checked_balance(planned: Planned, report: TaskReport) -> Balance:
    """Returns what became of the records of a batch.

    Raises: InvariantError where records are lost, read twice or counted twice, or where files have other numbers of rows
    than tasks have written. Such a batch is not committed: read again, it would give the same.
    """
    table, counts, written = planned.table, report.counts, report.written
    bad, dropped_records = report.bad_records.count, counts.ignored_records
    balance = Balance(counts.record_count, counts.written_count, bad, dropped_records, counts.fields)
    wrong = []
    if balance.lost:
        dropped = sum(balance.dropped.values())
        became = f"written={balance.written} bad={balance.bad} dropped={dropped}"
        wrong.append(f"records of the batch are not accounted for: read={balance.read} {became}")
    if report.read_count - counts.again_count > planned.batch.span:
        wrong.append(f"records were read twice: read={report.read_count} offsets={planned.batch.span}")
    if balance.lost_fields:
        became = " ".join(f"{name}={number}" for name, number in sorted(balance.fields.items()))
        wrong.append(f"fields of the batch are not accounted for: {became}")
    if table.spec.changes.mode == "append" and written.row_count != counts.row_count:
        in_files = f"written={counts.row_count} in_files={written.row_count}"
        wrong.append(f"the rows in the files differ from the written rows: {in_files}")
    if table.spec.bad_records.on_bad_record == "dead_letter" and written.dead_letter_count != balance.bad:
        wrong.append(f"files have other dead letters: bad={balance.bad} in_files={written.dead_letter_count}")
    if wrong:
        raise InvariantError("; ".join(wrong), where=table.name)
    return balance


def next_ledger(planned: Planned, report: TaskReport, before: Progress, balance: Balance) -> Ledger:
    """Returns the ledger of the table after a batch. before: the progress that its commit replaces.

    The records of a topic that was deleted and recreated begin a new ledger; the rows of the one before still count.
    """
    counts, ledger, table = report.counts, before.ledger, planned.table
    ids = table.topic_ids()
    is_recreated = any(ids.get(topic, topic_id) != topic_id for topic, topic_id in before.topic_ids.items())
    rows = row_digest = None
    keeps_aside = any(stage.keeps_aside for stage in table_stages(table.spec))
    if not table.spec.changes.looks_up_rows and not keeps_aside:
        rows, row_digest = (0, 0) if ledger is None and not before.offsets else _rows_of(ledger)
    if rows is not None and row_digest is not None:
        rows, row_digest = rows + counts.row_count, (row_digest + counts.row_digest) % MODULUS
    partial = bool(before.offsets) if ledger is None else ledger.partial
    hash_version = HASH_VERSION if ledger is None else ledger.hash_version
    known = {} if ledger is None or is_recreated else before.offsets
    if ledger is None or is_recreated:
        ledger = Ledger()
    return Ledger(
        commits=ledger.commits + 1,
        before=before.commit_id,
        offsets=ledger.offsets + planned.batch.span,
        records=ledger.records + balance.read,
        record_digest=(ledger.record_digest + counts.record_digest) % MODULUS,
        written=ledger.written + balance.written,
        bad=ledger.bad + balance.bad,
        dropped=ledger.dropped + sum(balance.dropped.values()),
        rows=rows,
        row_digest=row_digest,
        partial=partial,
        starts=_starts(ledger, known, planned.position),
        hash_version=hash_version,
    )


def first_ledger(before: Progress, position: Offsets) -> Ledger | None:
    """Returns the ledger of a table whose progress is committed before its first batch. before: the progress so far."""
    if before.ledger is not None or before.offsets:
        return before.ledger
    return Ledger(rows=0, row_digest=0, starts=_starts(Ledger(), {}, position))


def _starts(ledger: Ledger, known: Offsets, position: Offsets) -> dict[str, dict[int, int]]:
    """Returns the first offsets of all partitions, those that are new with this position, where they are not 0."""
    seen = by_partition(known)
    new = {place: start for place, start in by_partition(position).items() if place not in seen and start}
    return by_topic(by_partition(ledger.starts) | new)


def _rows_of(ledger: Ledger | None) -> tuple[int | None, int | None]:
    return (None, None) if ledger is None else (ledger.rows, ledger.row_digest)
