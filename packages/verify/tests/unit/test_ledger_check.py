"""The ledger of a table, checked by its metadata: what a history shows, clean or with a fault planted in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from frazil.catalog.progress import MAINTENANCE_ID, REPLAY_ID, key, to_summary
from frazil.ledger import Ledger
from frazil.types import Balance, CommittedBatch, Progress
from frazil_verify.findings import Kind
from frazil_verify.history import History, Snapshot
from frazil_verify.ledger_check import OTHER_HASHES, check_ledger

PIPELINE = "p"
BATCH = 10


def commit(number: int) -> Progress:
    """The progress after so many batches of ten records, one of which is bad and one dropped."""
    return Progress(
        offsets={"t": {0: number * BATCH}},
        topic_ids={"t": "id"},
        commit_id=f"c{number}",
        batch=CommittedBatch(balance=Balance(BATCH, 8, 1, {"where": 1})),
        ledger=Ledger(
            number, f"c{number - 1}" if number > 1 else "", number * BATCH, number * BATCH, number, number * 8, number,
            number, number * 8, number,
        ),
    )  # fmt: skip


def snapshot(number: int, progress: Progress | None, operation: str = "append", **summary: str) -> Snapshot:
    """A snapshot whose parent is the one before it."""
    own = {} if progress is None else to_summary(PIPELINE, progress)
    iceberg = {name.replace("_", "-"): value for name, value in summary.items()}
    return Snapshot(number, number - 1 if number > 1 else None, number * 1000, operation, {**own, **iceberg})


def committed(number: int, progress: Progress | None = None, total: int | None = None) -> Snapshot:
    """The snapshot of a commit with its rows."""
    total = number * 8 if total is None else total
    return snapshot(number, progress or commit(number), added_records="8", total_records=str(total))


def clean(count: int = 5) -> list[Snapshot]:
    """A history without a fault."""
    return [committed(number) for number in range(1, count + 1)]


def kinds(snapshots: list[Snapshot], left_behind: tuple[Snapshot, ...] = ()) -> set[Kind]:
    """The kinds of differences of a history."""
    return set(check_ledger(PIPELINE, History(tuple(snapshots), left_behind)).findings.counts)


def test_a_clean_history_has_no_finding_and_each_commit_is_compared_with_the_one_before() -> None:
    check = check_ledger(PIPELINE, History(tuple(clean())))
    assert (check.findings.counts, check.findings.notes) == ({}, [])
    assert (check.commits, check.ledger) == (4, commit(5).ledger)


def test_a_ledger_of_another_version_is_compared_without_its_digests() -> None:
    older = [committed(number, _ledger(number, hash_version=1)) for number in range(1, 6)]
    check = check_ledger(PIPELINE, History(tuple(older)))
    assert (dict(check.findings.counts), check.findings.notes) == ({}, [OTHER_HASHES])
    assert check.commits == 4
    gap = [*older[:2], *older[3:]]
    assert kinds(gap) == {Kind.LEDGER}


def test_expired_snapshots_take_nothing_from_the_ledger() -> None:
    assert kinds(clean()[2:]) == set()


def _with(number: int, progress: Progress, total: int | None = None) -> Callable[[], list[Snapshot]]:
    def planted() -> list[Snapshot]:
        snapshots = clean()
        snapshots[number - 1] = committed(number, progress, total)
        return snapshots

    return planted


def _ledger(number: int, **sums: Any) -> Progress:
    ledger = commit(number).ledger
    assert ledger is not None
    return replace(commit(number), ledger=replace(ledger, **sums))


@pytest.mark.parametrize(
    ("planted", "kind"),
    [
        (_with(3, replace(commit(3), offsets={"t": {0: 35}})), Kind.GAP),
        (_with(3, replace(commit(3), offsets={"t": {0: 15}})), Kind.OVERLAP),
        (_with(3, _ledger(3, records=29)), Kind.LEDGER),
        (_with(3, _ledger(3, written=25)), Kind.LEDGER),
        (_with(3, replace(commit(3), batch=CommittedBatch(balance=Balance(BATCH, 7, 1, {"where": 1})))), Kind.LEDGER),
        (_with(3, _ledger(3, commits=1)), Kind.LEDGER),
        (lambda: [*clean()[:2], *clean()[3:]], Kind.LEDGER),
        (_with(5, commit(5), total=32), Kind.MISSING),
        (_with(5, commit(5), total=41), Kind.INVENTED),
    ],
    ids=["gap", "overlap", "records", "written", "balance", "anew", "lost commit", "lost file", "file twice"],
)
def test_a_fault_in_the_history_is_found(planted: Callable[[], list[Snapshot]], kind: Kind) -> None:
    assert kind in kinds(planted())


def test_a_gap_is_named_with_its_offsets() -> None:
    planted = _with(3, replace(commit(3), offsets={"t": {0: 35}}))()
    first = check_ledger(PIPELINE, History(tuple(planted))).findings.first[0]
    assert (first.topic, first.partition, first.offset, first.end) == ("t", 0, 20, 35)


def _other(number: int, operation: str, own: Mapping[str, str] | None = None, **summary: str) -> Snapshot:
    made = snapshot(number, None, operation, **summary)
    return replace(made, summary={**made.summary, **{key(PIPELINE, name): text for name, text in (own or {}).items()}})


def test_rows_of_another_writer_are_named_and_compaction_replay_and_roll_back_are_no_fault() -> None:
    compacted = _other(6, "replace", {MAINTENANCE_ID: "m"}, added_records="40", deleted_records="40")
    replayed = _other(6, "append", {REPLAY_ID: "r"}, added_records="2", total_records="42")
    written = _other(6, "append", added_records="2", total_records="42")
    assert kinds([*clean(), compacted, replace(committed(7, commit(6), 48), parent_id=6)]) == set()
    assert kinds([*clean(), replayed, replace(committed(7, commit(6), 50), parent_id=6)]) == set()
    assert kinds([*clean(), written]) == {Kind.OTHER_WRITER}
    check = check_ledger(PIPELINE, History(tuple(clean()), (committed(9, commit(6)),)))
    assert check.findings.counts == {}
    assert "was rolled back, which left 1 commit behind: snapshots 9" in check.findings.notes[0]


def test_rows_that_appear_beside_those_of_expired_snapshots_are_counted_alone() -> None:
    more = [committed(number, total=number * 8 + (101 if number == 5 else 100)) for number in (3, 4, 5)]
    findings = check_ledger(PIPELINE, History(tuple(more))).findings
    assert findings.counts == {Kind.INVENTED: 1}
    assert findings.first[0].text == "snapshot 5: the files have 1 rows more"


def test_a_compaction_that_loses_rows_is_found() -> None:
    compacted = _other(6, "replace", {MAINTENANCE_ID: "m"}, added_records="39", deleted_records="40")
    assert kinds([*clean(), compacted]) == {Kind.MISSING}


def test_skipped_offsets_new_partitions_and_a_recreated_topic_are_no_gap() -> None:
    batch = replace(commit(3).batch, skipped={"t": {0: (20, 40)}})
    skipped = replace(commit(3), offsets={"t": {0: 50}}, batch=batch)
    assert kinds([*clean(2), committed(3, skipped)]) == set()
    ledger = commit(3).ledger
    assert ledger is not None
    newer = replace(commit(3), offsets={"t": {0: 20, 1: 17}}, ledger=replace(ledger, starts={"t": {1: 7}}))
    assert kinds([*clean(2), committed(3, newer)]) == set()
    anew = replace(ledger, commits=1, offsets=10, records=10, written=8, bad=1, dropped=1, starts={})
    recreated = replace(commit(3), offsets={"t": {0: 10}}, topic_ids={"t": "other"}, ledger=anew)
    assert kinds([*clean(2), committed(3, recreated)]) == set()
