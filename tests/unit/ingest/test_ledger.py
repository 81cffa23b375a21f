"""The ledger of a table: sums over its commits, which say what each of them has read and written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from frazil.catalog.progress import to_summary
from frazil.ingest.batches import balance
from frazil.ingest.tables.state import RunState
from frazil.ingest.tasks import task
from frazil.ledger import Ledger, dump_ledger, load_ledger
from frazil.report import TaskReport
from frazil.spec.settings import DedupeSpec
from tests.needs import needs
from tests.unit.ingest.service_scene import Scene, only, turn_until

UPSERT = {"mode": "upsert", "key_columns": ("id",), "format_version": 3}


def ledger(scene: Scene) -> Ledger:
    """The ledger of the newest commit."""
    newest = scene.progress().ledger
    assert newest is not None
    return newest


def counts(scene: Scene) -> tuple[int, int, int, int, int, int | None]:
    """Commits, records, written, bad and dropped ones, and rows."""
    newest = ledger(scene)
    return newest.commits, newest.records, newest.written, newest.bad, newest.dropped, newest.rows


def test_the_sums_of_a_ledger_are_those_of_all_commits(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", tombstones="ignore")
    scene.feed("a", {"id": 1}, {"id": 2}, None, b"{")
    scene.catch_up()
    first = ledger(scene)
    assert counts(scene) == (1, 4, 2, 1, 1, 2)
    commit_id = scene.progress().commit_id
    scene.feed("a", {"id": 3})
    scene.catch_up()
    assert counts(scene) == (2, 5, 3, 1, 1, 3)
    assert ledger(scene).before == commit_id
    assert ledger(scene).record_digest != first.record_digest
    assert ledger(scene).lost == 0


def test_digests_do_not_depend_on_how_records_were_divided_into_batches(tmp_path: Path) -> None:
    values = [{"id": n, "name": f"n{n}"} for n in range(20)]
    together, apart = Scene(tmp_path / "one", "a"), Scene(tmp_path / "two", "a")
    together.feed("a", *values)
    together.catch_up()
    for value in values:
        apart.feed("a", value)
        apart.catch_up()
    one, other = ledger(together), ledger(apart)
    assert other.commits > one.commits
    assert (one.record_digest, one.row_digest) == (other.record_digest, other.row_digest)


def test_a_table_whose_rows_are_replaced_has_no_digest_of_rows(tmp_path: Path) -> None:
    upsert = Scene(tmp_path / "upsert", "a", **UPSERT)
    upsert.feed("a", {"id": 1, "n": 1}, {"id": 1, "n": 2})
    upsert.catch_up()
    assert counts(upsert) == (1, 2, 2, 0, 0, None)


@needs("state")
def test_a_table_whose_rows_are_left_out_has_no_digest_of_rows(tmp_path: Path) -> None:
    deduplicated = Scene(tmp_path / "dedupe", "a", dedupe=DedupeSpec(by=("id",)))
    deduplicated.feed("a", {"id": 1}, {"id": 1}, {"id": 2})
    deduplicated.catch_up()
    assert counts(deduplicated) == (1, 3, 2, 0, 1, None)


def test_a_batch_that_has_read_records_twice_is_not_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"id": 1}, {"id": 2})
    report = task.TableRun.report

    def doubled(run: task.TableRun) -> TaskReport:
        made = report(run)
        more = replace(made.counts, record_count=4, written_count=4, row_count=4)
        return replace(made, counts=more, written=replace(made.written, data=made.written.data * 2))

    with monkeypatch.context() as patch:
        patch.setattr(task.TableRun, "report", doubled)
        service = scene.start()
        assert turn_until(service, lambda: only(service.tables).status.run_state is RunState.STOPPED, 50)
        assert "records were read twice: read=4 offsets=2" in only(service.tables).status.reason
    assert scene.rows("n.a") == []
    scene.catch_up()
    assert counts(scene) == (1, 2, 2, 0, 0, 2)


@pytest.mark.parametrize(
    "written",
    [
        Ledger(1, "", 2, 2, 0, 2, 0, 0, 2, 2**64 - 1),
        Ledger(9, "b", 9, 7, 2**63, 5, 1, 1, None, None, {"a": {0: 3, 12: 4}}, True),
    ],
)
def test_a_ledger_is_read_as_it_was_written(written: Ledger) -> None:
    assert load_ledger(dump_ledger(written)) == written


def test_a_ledger_of_another_version_is_read_and_keeps_the_version_of_its_hashes(tmp_path: Path) -> None:
    older = dump_ledger(Ledger(1, "", 2, 2)).replace('"hash_version":2,', "")
    newer = dump_ledger(Ledger(1, "", 2, 2, hash_version=7)).replace("{", '{"a_newer_key":[1],', 1)
    versions = [read.hash_version for text in (older, newer) if (read := load_ledger(text))]
    assert versions == [1, 7]
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"id": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(balance, "HASH_VERSION", 1)
        scene.catch_up()
    scene.feed("a", {"id": 2})
    scene.catch_up()
    assert (ledger(scene).commits, ledger(scene).hash_version) == (2, 1)


def test_a_ledger_is_as_long_after_ten_thousand_commits_as_after_one(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"id": 1})
    scene.catch_up()
    many = replace(ledger(scene), commits=10_000, offsets=10**12, records=10**12, written=10**12, rows=10**12)
    summary: dict[str, Any] = to_summary("p", replace(scene.progress(), ledger=many))
    assert len(summary["frazil.p.ledger"]) < 300
