"""Files of an upsert table are rewritten while changes replace rows in them: the rewrite is not lost, and no row comes
back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from frazil.catalog.iceberg.data_files import TableScans
from frazil.catalog.iceberg.rewrite_commit import RewriteCommit
from frazil.catalog.maintenance_port import Rewritten, Transfer
from frazil.decode.settings import Reading
from frazil.runtime.jvm import Jvm
from frazil.spec.settings import MaintenanceSpec
from frazil.upsert.commit import transfer_deletes
from frazil.write.target import ChangeReading
from tests.fixtures.readers import read_with_duckdb
from tests.fixtures.slices import sliced
from tests.integration.lakes import KEEN, Lake
from tests.integration.tended import Row, Tended, in_order, layout_of

SPECS = {
    "packed": KEEN,
    "zorder": KEEN.model_copy(update={"zorder": ("id", "v")}),
    "sorted": KEEN.model_copy(update={"sort": ("v desc",)}),
}
_FIRST = [(2, "packed", "bucket(id, 2)"), (3, "zorder", ""), (3, "sorted", "bucket(id, 2)")]
_ALL = [*_FIRST, *(case for case in product((2, 3), SPECS, ("", "bucket(id, 2)")) if case not in _FIRST)]


@pytest.fixture(scope="module")
def lake(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(jvm, tmp_path_factory.mktemp("lake"))


def transfer_of(table: Tended) -> Transfer:
    """By the table's key, as a pipeline has it."""
    target = replace(table.target(table.lake.catalog), changes=ChangeReading(Reading("json"), ("id",)))
    return partial(transfer_deletes, target, table.version)


def upserted(lake: Lake, version: int = 3) -> tuple[Tended, dict[int, Row]]:
    """A table of three batches of changes, and what it must hold."""
    table, upsert_table = Tended(lake, layout_of(""), version), dict[int, Row]()
    for _ in range(3):
        table.upsert(upsert_table, 40)
    return table, upsert_table


def compacted(table: Tended, spec: MaintenanceSpec = KEEN, lake: Lake | None = None) -> Rewritten:
    """What the compaction of one round did. lake: of the process that maintains it, the table's own unless given."""
    outcomes = (lake or table.lake).maintenance(table.name, spec, transfer=transfer_of(table))
    done = [one for one in outcomes if one.action.kind == "compact"]
    assert [one.failure for one in done] == [""]
    return done[0].rewritten


def before_commits(monkeypatch: pytest.MonkeyPatch, times: int, meanwhile: Callable[[], object]) -> None:
    """Calls `meanwhile` before so many commits of a rewrite, after it was reported from when on others are in its way."""
    send, left = RewriteCommit._replace, [meanwhile] * times

    def send_late(commit: RewriteCommit, rewrite: Any, *files: Any) -> Any:
        if left:
            left.pop()()
        return send(commit, rewrite, *files)

    monkeypatch.setattr(RewriteCommit, "_replace", send_late)


@pytest.mark.parametrize(("version", "spec", "words"), sliced(_ALL, len(_FIRST)))
def test_a_compaction_takes_over_what_changes_delete_meanwhile(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, version: int, spec: str, words: str
) -> None:
    table = Tended(lake, layout_of(words), version)
    upsert_table: dict[int, Row] = {}
    for _ in range(4):
        table.upsert(upsert_table, 40)
    progress = lake.progress(table.name).offsets["topic"][0]
    before_commits(monkeypatch, 3, lambda: table.upsert(upsert_table, 25))
    done = compacted(table, SPECS[spec])
    assert done.removed >= 2
    assert done.lost == 0
    assert table.read() == in_order(list(upsert_table.values()))
    assert lake.progress(table.name).offsets["topic"][0] > progress
    for _ in range(2):
        table.upsert(upsert_table, 40)
        assert table.read() == in_order(list(upsert_table.values()))


def test_a_batch_of_the_same_process_waits_for_the_commit_of_a_compaction(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, upsert_table = upserted(lake)
    batch = Thread(target=table.upsert, args=(upsert_table, 40))
    commits: list[bool] = []
    send = RewriteCommit._replace

    def send_late(commit: RewriteCommit, rewrite: Any, *files: Any) -> Any:
        batch.start()
        batch.join(1.0)
        commits.append(batch.is_alive())
        return send(commit, rewrite, *files)

    monkeypatch.setattr(RewriteCommit, "_replace", send_late)
    assert compacted(table).lost == 0
    batch.join(60)
    assert commits == [True]
    assert table.read() == in_order(list(upsert_table.values()))


def test_rows_that_are_all_deleted_while_they_are_rewritten_stay_deleted(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, upsert_table = upserted(lake)
    before_commits(monkeypatch, 1, lambda: table.upsert(upsert_table, 400, deletes=1.0))
    assert compacted(table).lost == 0
    assert upsert_table == {}
    assert table.read() == []


def test_a_batch_after_progress_was_reported_again_lists_no_files_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, upsert_table = upserted(lake)
    listed: list[str] = []
    read = TableScans._read

    def noted(scans: TableScans, name: str, java: Any, snapshot_id: int) -> Any:
        listed.append(name)
        return read(scans, name, java, snapshot_id)

    monkeypatch.setattr(TableScans, "_read", noted)
    outcomes = lake.maintenance(table.name, transfer=transfer_of(table))
    assert [(one.action.kind, one.failure) for one in outcomes][:2] == [("compact", ""), ("carry", "")]
    table.upsert(upsert_table, 40)
    assert table.name not in listed
    assert table.read() == in_order(list(upsert_table.values()))


@pytest.mark.parametrize(("is_ours", "tries"), [(True, 1), (False, 2)])
def test_a_batch_whose_files_were_rewritten_meanwhile_finds_its_rows_where_they_are(
    lake: Lake, is_ours: bool, tries: int
) -> None:
    """A compaction of its own process tells it; that of another one refuses its first commit."""
    other = lake if is_ours else Lake(lake.jvm, lake.root)
    table, upsert_table = upserted(lake)
    resolved = table.upsert(upsert_table, 40, lambda: compacted(table, lake=other))
    assert resolved.tries == tries
    assert table.read() == in_order(list(upsert_table.values()))


def test_a_key_with_two_rows_of_which_somebody_deletes_one_is_not_guessed_at(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Tended(lake, layout_of(""), 3)
    for start in (0, 10):
        table.append([table.row(number) for number in range(start, start + 10)])
    doubled = table.row(3)
    table.append([doubled])
    before = len(lake.metadata(table.name).files)
    before_commits(monkeypatch, 1, lambda: table.upsert({}, 200))
    done = compacted(table)
    assert (done.removed, done.added) == (0, 0)
    assert done.lost == before
    written = Path(lake.java(table.name).location()).rglob("*-00001.parquet")
    assert list(written) == [], "as Spark names its files"


@pytest.mark.parametrize("is_last", [True, False])
def test_rows_that_another_writer_deletes_by_their_values_stay_deleted(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_last: bool
) -> None:
    """Before or after a batch: Iceberg forgets deletes that are older than all files that it knows of, so that a rewrite of
    all of them is lost to such deletes.
    """
    table, upsert_table = upserted(lake, 2)

    def both() -> None:
        if is_last:
            table.upsert(upsert_table, 25)
        gone = sorted(upsert_table)[:5]
        lake.delete_equal(table.name, gone)
        for number in gone:
            del upsert_table[number]
        if not is_last:
            more = [table.row(number) for number in range(100, 110)]
            table.append(more)
            upsert_table.update({row["id"]: row for row in more})

    before_commits(monkeypatch, 1, both)
    for is_lost in (True, False):
        assert bool(compacted(table).lost) is is_lost
        head = lake.metadata(table.name).head
        assert head is not None
        rows = read_with_duckdb(table.metadata, head).to_pylist()  # PyIceberg does not read such deletes.
        assert {row["id"]: row["v"] for row in rows} == {number: row["v"] for number, row in upsert_table.items()}
        assert len(rows) == len(upsert_table)
