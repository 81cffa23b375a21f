"""The rows of a table that only appends, compared with a ledger: with its own, commit by commit, or with that of its copy.

A commit's own rows are the files that it has added. Where compaction has replaced them, the rows of all such files together
must be those of all such commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.port import TableState
from frazil.catalog.progress import key
from frazil.ingest.tables.table import Table
from frazil.ledger import MODULUS
from frazil.printable import plural
from frazil.types import Progress
from frazil.write.digests import digest_of, row_hashes
from frazil.write.plain_target import plain_target
from frazil_verify.findings import Finding, Findings, Kind
from frazil_verify.history import History, Snapshot, read_history
from frazil_verify.independent.stored import RowsNotReadable, StoredFile
from frazil_verify.ledger_check import REPAIR_ID, moves
from frazil_verify.opened import Opened, stored_rows

_SHOWN = 5


@dataclass(frozen=True)
class Sum:
    """Rows, and the sum of their hashes modulo 2**64."""

    rows: int = 0
    digest: int = 0

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.rows + other.rows, (self.digest + other.digest) % MODULUS)

    def __sub__(self, other: Sum) -> Sum:
        return Sum(self.rows - other.rows, (self.digest - other.digest) % MODULUS)


@dataclass(frozen=True)
class Written:
    """A commit and what it has written."""

    snapshot: Snapshot
    sum: Sum
    before: Progress
    progress: Progress


def digest_of_batches(batches: Iterable[pa.RecordBatch]) -> Sum:
    """Returns the sum of rows."""
    total = Sum()
    for batch in batches:
        total += Sum(batch.num_rows, digest_of(row_hashes(batch)))
    return total


def has_digests(table: Table) -> bool:
    """Whether the ledger of a loaded table has a digest of its rows that this version can compare."""
    ledger = table.progress.ledger
    return ledger is not None and ledger.row_digest is not None and ledger.has_known_hashes


def check_digests(
    opened: Opened, table: Table, snapshot_id: int, known: Mapping[str, tuple[int, int]] | None, findings: Findings
) -> bool:
    """Adds a finding for each commit whose rows are others than those that it wrote; returns whether the table has a digest.
    known: the numbers and digests of the rows of files by their names, of all columns; None where they are not known.

    Raises: RowsNotReadable.
    """
    state = table.state
    if not has_digests(table) or state is None:
        return False
    stored = stored_rows(opened.catalog, table, state, snapshot_id)
    dropped = stored.dropped_columns()
    if dropped:
        findings.note(f"rows are not compared with the ledger, as columns were dropped: {', '.join(dropped[:_SHOWN])}")
        return True
    sums = {name: Sum(*of) for name, of in (known or {}).items()}
    for name, batches in stored.parts() if known is None else ():
        total = digest_of_batches(batches)
        if not stored.is_unreadable(name):
            sums[name] = total
    if not findings.counts[Kind.UNREADABLE]:
        findings.add_unreadable(stored.unreadable)
    history = read_history(opened.catalog, table.name)
    files = {file: sums[file.name] for file in stored.files() if file.name in sums}
    compare(opened.spec.pipeline, history, snapshot_id, files, findings)
    return True


def count_of_equal(catalog: IcebergCatalog, table: Table, copy: TableState) -> int | None:
    """Returns how many rows a loaded table has, where they are those that the commits of its copy have written, by the
    digest in the copy's ledger; None where they are not, or nobody knows: each row is to be compared then. The copy's files
    are not read.
    """
    state, ledger = table.state, copy.progress.ledger
    if (
        state is None
        or ledger is None
        or ledger.rows is None
        or ledger.row_digest is None
        or not ledger.has_known_hashes
    ):
        return None
    kinds = (plain_target(of).arrow_schema for of in (state, copy))
    if not next(kinds).equals(next(kinds), check_metadata=True):  # Hashes are keyed by the ids of columns.
        return None
    stored, wanted = stored_rows(catalog, table, state), Sum(ledger.rows, ledger.row_digest)
    try:
        files = list(stored.files())
        if sum(file.rows for file in files) != wanted.rows and not any(file.has_deletes for file in files):
            return None
        total = digest_of_batches(stored.batches())
    except RowsNotReadable:
        return None
    return total.rows if total == wanted and not stored.unreadable else None


def compare(
    pipeline: str, history: History, snapshot_id: int, files: Mapping[StoredFile, Sum], findings: Findings
) -> None:
    """Adds what differs. files: those of the snapshot, with the sums of their rows."""
    left = dict(files)
    own, expected = _commits(pipeline, history, snapshot_id)
    if expected is None:
        return
    for commit in own:
        added = [file for file in left if file.added_by == commit.snapshot.snapshot_id]
        if not added or any(file.has_deletes for file in added) or sum(of.rows for of in added) != commit.sum.rows:
            continue
        total = sum((left.pop(file) for file in added), Sum())
        expected -= commit.sum
        if total != commit.sum:
            _add_commit(commit, total, findings)
    has_deletes = any(file.has_deletes for file in left)
    if has_deletes or sum(of.rows for of in left) != expected.rows:
        count = sum(of.rows for of in left)
        findings.note(f"{plural(count, 'row')} are not compared with the ledger: others than commits have changed them")
        return
    total = sum(left.values(), Sum())
    if total != expected:
        text = f"the {plural(expected.rows, 'row')} of files that were rewritten are others than commits wrote"
        findings.add(Finding(Kind.CHANGED, text))


def _commits(pipeline: str, history: History, snapshot_id: int) -> tuple[list[Written], Sum | None]:
    """Returns the commits with their own sums, and the sum of all of them; None without one."""
    before, commits, total = Progress(), list[Written](), None
    is_known = not history.is_cut
    for snapshot, progress in history.progress(pipeline):
        if progress is not None:
            ledger, old = progress.ledger, before.ledger
            total = None
            if ledger is not None and ledger.rows is not None and ledger.row_digest is not None:
                total = Sum(ledger.rows, ledger.row_digest)
            base = Sum() if old is None or old.rows is None else Sum(old.rows, old.row_digest or 0)
            is_first = old is None and is_known and ledger is not None and ledger.commits == 1
            follows = old is not None and old.rows is not None
            is_batch = progress.batch.balance is not None and key(pipeline, REPAIR_ID) not in snapshot.summary
            if total is not None and is_batch and (is_first or follows) and total.rows > base.rows:
                commits.append(Written(snapshot, total - base, before, progress))
            before, is_known = progress, True
        if snapshot.snapshot_id == snapshot_id:
            break
    return commits, total


def _add_commit(commit: Written, total: Sum, findings: Findings) -> None:
    places = [
        Finding(Kind.CHANGED, "", topic, partition, start, end)
        for topic, partition, start, end in moves(commit.before, commit.progress)
    ]
    named = "; ".join(place.place for place in places[:_SHOWN])
    text = (
        f"snapshot {commit.snapshot.snapshot_id}: its {plural(total.rows, 'row')} are others than it wrote, of {named}"
    )
    at_ms = commit.snapshot.at_ms
    if len(places) == 1:
        (of,) = places
        findings.add(Finding(Kind.CHANGED, text, of.topic, of.partition, of.offset, of.end, at_ms))
    else:
        findings.add(Finding(Kind.CHANGED, text, at_ms=at_ms))
