"""Checks the ledger of a table by its metadata alone: commit by commit, that nothing is lost between two of them.

Each commit carries sums over all commits before it (`ledger.py` of the core), so the oldest snapshot that is left still
vouches for those that have expired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from frazil.catalog.progress import MAINTENANCE_ID, REMOVED, REPLAY_ID, key
from frazil.ledger import Ledger
from frazil.printable import plural
from frazil.types import Offsets, Progress, by_partition
from frazil_verify.findings import Finding, Findings, Kind
from frazil_verify.history import History, Snapshot

REPAIR_ID = "repair-id"
"""Summary key of a snapshot that `frazil repair` has made."""
OTHER_HASHES = "another version began the ledger, with other hashes: offsets and numbers are compared, digests are not"
"""The note on a table whose digests this version cannot compare."""
_SUMS = ("records", "written", "bad", "dropped")


@dataclass(frozen=True)
class LedgerCheck:
    """What checking the ledger of one table has found."""

    findings: Findings
    #: The ledger of the newest commit; None where it has none.
    ledger: Ledger | None = None
    #: The progress of the newest commit.
    offsets: Offsets | None = None
    #: The number of commits whose ledgers were compared with the one before.
    commits: int = 0


@dataclass
class _Pass:
    """What is known while the snapshots are passed, the oldest first."""

    pipeline: str
    findings: Findings
    before: Progress | None = None
    #: Whether snapshots before the first one have expired.
    is_cut: bool = False
    commits: int = 0
    #: Rows that snapshots without progress have added, less those that they removed.
    other_rows: int = 0
    #: Rows that other writers have deleted in files that are still there.
    deletes: int = 0
    #: How many rows more than its ledger the table had at the first commit: of snapshots that have expired.
    base_rows: int | None = None


def check_ledger(pipeline: str, history: History) -> LedgerCheck:
    """Returns what the metadata of a table shows."""
    seen = _Pass(pipeline, Findings(), is_cut=history.is_cut)
    for snapshot, progress in history.progress(pipeline):
        if progress is None:
            _note_other(seen, snapshot)
        else:
            _check_progress(seen, snapshot, progress)
            _check_rows(seen, snapshot, progress)
            seen.before = progress
    own = [snapshot for snapshot in history.left_behind if key(pipeline, "offsets") in snapshot.summary]
    if own:
        names = ", ".join(str(snapshot.snapshot_id) for snapshot in own[:5])
        commits = plural(len(own), "commit")
        seen.findings.note(f"the table was rolled back, which left {commits} behind: snapshots {names}")
    newest = seen.before
    ledger, offsets = (None, None) if newest is None else (newest.ledger, newest.offsets)
    if newest is not None and ledger is None:
        seen.findings.note("the newest commit has no ledger: it is older than ledgers, or follows a reset")
    if ledger is not None and not ledger.has_known_hashes:
        seen.findings.note(OTHER_HASHES)
    return LedgerCheck(seen.findings, ledger, offsets, seen.commits)


def _check_progress(seen: _Pass, snapshot: Snapshot, progress: Progress) -> None:
    before = seen.before
    if progress.batch.balance is None:
        if key(seen.pipeline, REPAIR_ID) in snapshot.summary:
            added, removed = snapshot.number("added-records"), snapshot.number("added-position-deletes")
            seen.findings.note(
                f"the repair in snapshot {snapshot.snapshot_id} added {added} rows and removed {removed}"
            )
            seen.deletes += removed
        elif before is not None and progress.commit_id != before.commit_id:
            _check_empty(seen, snapshot, before, progress)
        return
    if progress.batch.balance.lost:
        _add_finding(
            seen, snapshot, Kind.LEDGER, f"{progress.batch.balance.lost} records of the commit are not accounted for"
        )
    ledger = progress.ledger
    if ledger is None or before is None or before.ledger is None:
        if before is None and not seen.is_cut and ledger is not None:
            _check_sums(seen, snapshot, Progress(ledger=Ledger()), progress, ledger)
        return
    seen.commits += 1
    if ledger.commits == 1 and before.ledger.commits:
        topic_ids = progress.topic_ids
        if all(topic_ids.get(topic, topic_id) == topic_id for topic, topic_id in before.topic_ids.items()):
            _add_finding(seen, snapshot, Kind.LEDGER, "the ledger begins again, and no topic was recreated")
        else:
            seen.findings.note(f"a topic was deleted and recreated before snapshot {snapshot.snapshot_id}")
        return
    _check_sums(seen, snapshot, before, progress, ledger)


def _check_empty(seen: _Pass, snapshot: Snapshot, before: Progress, progress: Progress) -> None:
    """Checks a commit that has read nothing: it may bring new partitions, and after a reset everything."""
    if progress.ledger is None and before.ledger is not None:
        seen.findings.note(f"snapshot {snapshot.snapshot_id} is a reset: the topics are read again from its offsets")
        return
    known = by_partition(progress.offsets)
    for (topic, partition), end in sorted(by_partition(before.offsets).items()):
        now = known.get((topic, partition), end)
        if now != end:
            _add_range(seen, snapshot, topic, partition, (end, now), "and no record was read")
    if before.ledger is not None and progress.ledger != before.ledger and before.ledger.commits:
        _add_finding(seen, snapshot, Kind.LEDGER, "the ledger has changed, and no record was read")


def _check_sums(seen: _Pass, snapshot: Snapshot, before: Progress, progress: Progress, ledger: Ledger) -> None:
    old, balance = before.ledger, progress.batch.balance
    assert old is not None
    assert balance is not None
    if ledger.before != before.commit_id or ledger.commits != old.commits + 1:
        missing = ledger.commits - old.commits - 1
        what = f"{missing} commits" if missing > 0 else "a commit"
        _add_finding(
            seen, snapshot, Kind.LEDGER, f"{what} before it, {ledger.before or 'none'}, cannot be found in the history"
        )
        return
    became = dict(zip(_SUMS, (balance.read, balance.written, balance.bad, sum(balance.dropped.values())), strict=True))
    for name, number in became.items():
        difference = getattr(ledger, name) - getattr(old, name)
        if difference != number:
            _add_finding(
                seen, snapshot, Kind.LEDGER, f"{name}: the ledger grew by {difference}, and the commit has {number}"
            )
    if ledger.lost:
        _add_finding(seen, snapshot, Kind.LEDGER, f"{ledger.lost} records of all commits are not accounted for")
    _check_offsets(seen, snapshot, before, progress, ledger.offsets - old.offsets)


def _check_offsets(seen: _Pass, snapshot: Snapshot, before: Progress, progress: Progress, covered: int) -> None:
    """Checks that the offsets between two commits are those that the second one has read. covered: their number."""
    moved = list(moves(before, progress))
    for topic, partition, start, end in moved:
        if end < start:
            _add_range(seen, snapshot, topic, partition, (start, end), "which go back")
    span = sum(end - start for _, _, start, end in moved)
    if span != covered and all(start <= end for _, _, start, end in moved):
        for topic, partition, start, end in moved:
            words = f"{span} offsets in all, and its batch covered {covered}"
            _add_range(seen, snapshot, topic, partition, (start, end), words)
        if not moved:
            _add_finding(
                seen, snapshot, Kind.GAP, f"its batch covered {covered} offsets, and the progress did not move"
            )


def moves(before: Progress, progress: Progress) -> Iterator[tuple[str, int, int, int]]:
    """Yields the ranges between two commits, without skipped offsets: topic, partition, first offset and end."""
    known, skipped = by_partition(before.offsets), by_partition(progress.batch.skipped)
    starts: Mapping[tuple[str, int], int] = by_partition(progress.ledger.starts) if progress.ledger else {}
    for (topic, partition), end in sorted(by_partition(progress.offsets).items()):
        start = known.get((topic, partition), starts.get((topic, partition), 0))
        lost_from, lost_to = skipped.get((topic, partition), (start, start))
        start = lost_to if lost_from <= start <= lost_to else start
        if start != end:
            yield topic, partition, start, end


def _check_rows(seen: _Pass, snapshot: Snapshot, progress: Progress) -> None:
    """Checks the rows of an append table that Iceberg counts."""
    ledger, old = progress.ledger, seen.before.ledger if seen.before is not None else None
    if ledger is None or ledger.rows is None:
        seen.base_rows = None
        return
    if progress.batch.balance is not None and old is not None and old.rows is not None:
        added, rows = snapshot.number("added-records"), ledger.rows - old.rows
        if added != rows:
            _add_finding(seen, snapshot, Kind.LEDGER, f"its files have {added} rows, and its records made {rows}")
    if "total-records" not in snapshot.summary:
        return
    surplus = snapshot.number("total-records") - ledger.rows - seen.other_rows
    if key(seen.pipeline, REPAIR_ID) in snapshot.summary:  # It has made the rows those of the records.
        seen.base_rows = surplus
    if seen.base_rows is None:
        seen.base_rows = surplus if seen.is_cut else 0
        if seen.is_cut and surplus:
            seen.findings.note(f"{surplus} rows are of other writers or replays whose snapshots have expired")
    if surplus != seen.base_rows:
        kind, number = (
            (Kind.MISSING, seen.base_rows - surplus)
            if surplus < seen.base_rows
            else (Kind.INVENTED, surplus - seen.base_rows)
        )
        _add_finding(
            seen, snapshot, kind, f"the files have {number} rows {'less' if kind is Kind.MISSING else 'more'}", number
        )
        seen.base_rows = surplus


def _note_other(seen: _Pass, snapshot: Snapshot) -> None:
    """Notes a snapshot without progress."""
    added, removed = snapshot.number("added-records"), snapshot.number("deleted-records")
    deletes = snapshot.number("added-position-deletes") + snapshot.number("added-equality-deletes")
    own = {name.rpartition(".")[2] for name in snapshot.summary if name.startswith(key(seen.pipeline, ""))}
    seen.other_rows += added - removed
    if snapshot.operation == "replace":
        _note_rewrite(seen, snapshot, removed - added)
        if MAINTENANCE_ID not in own:
            seen.findings.note(f"another writer has rewritten files in snapshot {snapshot.snapshot_id}")
    elif own & {REPLAY_ID, REMOVED}:
        seen.findings.note(f"{added} rows of replayed dead letters were added by snapshot {snapshot.snapshot_id}")
    elif not own and (added or removed or deletes):
        text = f"another writer ({snapshot.operation}) added {added} rows and removed {removed + deletes}"
        _add_finding(seen, snapshot, Kind.OTHER_WRITER, text, added + removed + deletes)
        seen.deletes += deletes


def _note_rewrite(seen: _Pass, snapshot: Snapshot, fewer: int) -> None:
    """Notes that a compaction has written so many rows less than it read: only deleted ones may go."""
    only_appends = seen.before is not None and seen.before.ledger is not None and seen.before.ledger.rows is not None
    if only_appends and not 0 <= fewer <= seen.deletes and not (fewer > 0 and seen.is_cut):
        text = f"rewritten files have {abs(fewer)} rows {'less' if fewer > 0 else 'more'} than those that they replace"
        _add_finding(seen, snapshot, Kind.MISSING if fewer > 0 else Kind.INVENTED, text, abs(fewer))
    seen.deletes = max(0, seen.deletes - max(0, fewer))


def _add_finding(seen: _Pass, snapshot: Snapshot, kind: Kind, text: str, count: int = 1) -> None:
    seen.findings.add(Finding(kind, f"snapshot {snapshot.snapshot_id}: {text}", at_ms=snapshot.at_ms), count)


def _add_range(seen: _Pass, snapshot: Snapshot, topic: str, partition: int, ends: tuple[int, int], words: str) -> None:
    start, end = ends
    kind, first, last = (Kind.GAP, start, end) if end > start else (Kind.OVERLAP, end, start)
    finding = Finding(kind, "", topic, partition, first, last, snapshot.at_ms)
    verb = "skips" if kind is Kind.GAP else "repeats"
    text = f"snapshot {snapshot.snapshot_id} {verb} {finding.place}: {words}"
    seen.findings.add(replace(finding, text=text), max(1, last - first))
