"""The rows of files compared with the ledger of the commits that have written them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from frazil.ingest.tables.table import Table
from frazil.types import Progress
from frazil.write.plain_target import plain_target
from frazil_verify import row_digests
from frazil_verify.findings import Findings, Kind
from frazil_verify.history import History
from frazil_verify.independent.stored import RowsNotReadable, StoredFile
from frazil_verify.row_digests import Sum, compare, count_of_equal
from packages.verify.tests.unit.planted import Filled, MemoryRows, Row
from packages.verify.tests.unit.test_ledger_check import PIPELINE, clean, committed, snapshot
from tests.simulation.judge.loop import TABLE, Sent

ROWS = 8
"""The number of rows of each commit, whose hashes have the sum 1."""


def file(added_by: int, rows: int = ROWS, has_deletes: bool = False) -> StoredFile:
    """A file that a snapshot has added."""
    return StoredFile(f"file {added_by}", added_by, rows, has_deletes)


def compared(files: dict[StoredFile, Sum], history: History | None = None, head: int = 5) -> Findings:
    """What differs between the files of a snapshot and the ledger."""
    findings = Findings()
    compare(PIPELINE, history or History(tuple(clean())), head, files, findings)
    return findings


def whole(*numbers: int) -> dict[StoredFile, Sum]:
    """The files of commits as they were written."""
    return {file(number): Sum(ROWS, 1) for number in numbers}


def test_rows_that_are_those_of_their_commits_are_no_finding() -> None:
    findings = compared(whole(1, 2, 3, 4, 5))
    assert (findings.counts, findings.notes) == ({}, [])


def test_an_older_snapshot_is_compared_with_the_commits_up_to_it() -> None:
    findings = compared(whole(1, 2, 3), head=3)
    assert (findings.counts, findings.notes) == ({}, [])


def test_other_rows_in_a_file_name_the_commit_and_its_offsets() -> None:
    findings = compared({**whole(1, 2, 4, 5), file(3): Sum(ROWS, 9)})
    (finding,) = findings.first
    assert (finding.kind, finding.topic, finding.partition, finding.offset, finding.end) == (
        Kind.CHANGED,
        "t",
        0,
        20,
        30,
    )
    assert finding.text == "snapshot 3: its 8 rows are others than it wrote, of topic t, partition 0, offsets 20 to 29"


def test_a_file_with_fewer_rows_than_its_metadata_says_is_one_with_other_rows() -> None:
    assert compared({**whole(1, 2, 4, 5), file(3): Sum(ROWS - 1, 0)}).counts == {Kind.CHANGED: 1}


def test_rewritten_files_are_compared_together() -> None:
    rewrite = snapshot(6, None, "replace", added_records="24", deleted_records="24")
    history = History((*clean(), rewrite))
    rewritten = file(6, 3 * ROWS)
    assert compared({**whole(4, 5), rewritten: Sum(3 * ROWS, 3)}, history, 6).counts == {}
    findings = compared({**whole(4, 5), rewritten: Sum(3 * ROWS, 4)}, history, 6)
    (finding,) = findings.first
    assert finding.text == "the 24 rows of files that were rewritten are others than commits wrote"


def test_after_expiry_the_oldest_commits_are_compared_together() -> None:
    history = History(tuple(clean()[2:]))
    assert compared(whole(1, 2, 3, 4, 5), history).counts == {}
    findings = compared({**whole(2, 3, 4, 5), file(1): Sum(ROWS, 2)}, history)
    assert findings.counts == {Kind.CHANGED: 1}


def test_rows_that_others_have_added_or_deleted_accuse_nobody() -> None:
    other = snapshot(6, None, "append", added_records="3")
    for files in (
        {**whole(1, 2, 3, 4, 5), file(6, 3): Sum(3, 77)},
        {**whole(1, 2, 3, 4), file(5, has_deletes=True): Sum(ROWS - 1, 0)},
    ):
        findings = compared(files, History((*clean(), other)), 6)
        assert findings.counts == {}
        assert "are not compared with the ledger" in findings.notes[0]
    assert compared(
        {**whole(1, 2, 4, 5), file(3): Sum(ROWS, 9), file(6, 3): Sum(3, 7)}, History((*clean(), other)), 6
    ).counts


def test_commits_after_the_snapshot_do_not_count() -> None:
    history = History((*clean(), committed(6)))
    assert compared(whole(1, 2, 3, 4, 5), history, 5).counts == {}


@dataclass
class OneFile(MemoryRows):
    """Rows in a file. error: what reading them raises."""

    error: str = ""

    def files(self) -> Iterator[StoredFile]:
        """See StoredRows."""
        yield StoredFile("rows", 1, len(self.rows), False)

    def batches(self, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """See StoredRows."""
        yield from super().batches(names)
        if self.error:
            raise RowsNotReadable(self.error)


def test_rows_are_those_of_a_copy_where_its_ledger_has_their_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [json.dumps({"id": number, "name": f"n{number}"}).encode() for number in range(20)]
    filled = Filled.of(tmp_path, {"columns": {"id": "long", "name": "string"}}, [Sent(0, value) for value in values])
    table, copy, catalog = Table(filled.loop.spec.tables[0]), filled.loop.catalog.load(TABLE), None
    table.state = copy
    assert copy is not None
    schema = plain_target(copy).arrow_schema

    def count(rows: list[Row], copied: Any = copy, **more: Any) -> int | None:
        monkeypatch.setattr(row_digests, "stored_rows", lambda *_: OneFile(rows, schema, **more))
        of_catalog: Any = catalog
        return count_of_equal(of_catalog, table, copied)

    rows = filled.rows()
    assert count(rows) == count(rows[::-1]) == 20
    assert count(rows[1:]) is None
    assert count([*rows, rows[0]]) is None
    assert count([{**rows[0], "name": "other"}, *rows[1:]]) is None
    assert count([rows[1], *rows[1:]]) is None
    assert count(rows, unreadable={"rows": "it ends"}) is None
    assert count(rows, error="it is gone") is None
    assert count(rows, replace(copy, progress=Progress())) is None
