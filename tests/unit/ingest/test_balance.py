"""The balance of a batch: what is counted of it, and that a batch with a miscount is not committed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType, StringType

from frazil.decode.json import columns, names
from frazil.decode.json.slices import Members
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.ingest.tasks import task
from frazil.report import TaskReport
from frazil.spec import ColumnSpec
from frazil.spec.settings import EnvelopeSpec
from frazil.types import Balance
from tests.unit.ingest.service_scene import Scene, only, turn_until

UPSERT = {"mode": "upsert", "key_columns": ("id",), "format_version": 3}
FAR_MS = 10**15


def balance(scene: Scene) -> Balance | None:
    """The balance of the newest commit, of its records alone."""
    found = scene.progress().batch.balance
    return None if found is None else replace(found, fields={})


def fields(scene: Scene) -> dict[str, int]:
    """What became of the fields of the newest commit's records."""
    found = scene.progress().batch.balance
    assert found is not None
    return dict(found.fields)


def test_the_balance_of_a_commit_has_its_records_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", tombstones="ignore")
    scene.feed("a", {"id": 1}, {"id": 2}, None, b"{")
    scene.catch_up()
    assert balance(scene) == Balance(4, 2, 1, {"tombstone": 1})
    scene.feed("a", {"id": 3})
    scene.catch_up()
    assert balance(scene) == Balance(1, 1)


MANY = {"id": 1, "o": {"a": 1}, "x": 2, "n": None, "e": [], "X": 3}
"""A record with a value for each fate of a field; `n` has none."""


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"read": 4, "column": 3, "no_column": 1}),
        ({"unknown_fields": "drop"}, {"read": 4, "column": 1, "left_out": 3}),
        ({"unknown_fields": "rescue"}, {"read": 4, "column": 1, "rescued": 3}),
        ({"include": (("id",), ("o", "a"))}, {"read": 4, "column": 2, "left_out": 2}),
        ({"exclude": (("o",),)}, {"read": 4, "column": 2, "left_out": 1, "no_column": 1}),
        ({"exclude": (("ID",), ("e",))}, {"read": 4, "column": 2, "left_out": 2}),
        (
            {"columns": (ColumnSpec(name="id", type=StringType()),), "rescue": True},
            {"read": 4, "column": 3, "no_column": 1},
        ),
    ],
)
def test_every_field_of_a_json_record_is_counted_once(
    tmp_path: Path, settings: dict[str, Any], expected: dict[str, int]
) -> None:
    columns = (ColumnSpec(name="id", type=LongType()),) if "id" not in str(settings.get("exclude", "")).lower() else ()
    scene = Scene(tmp_path, "a", **{"columns": columns, **settings})
    scene.feed("a", {name: value for name, value in MANY.items() if name != "X"})
    scene.catch_up()
    assert fields(scene) == expected
    scene.feed("a", *({"id": 2, f"k{n}": None} for n in range(3)), b'{"id":2,"id":3}', b'{"id":7,', None)
    scene.catch_up()
    assert fields(scene).get("bad", 0) == 0


def test_fields_of_bad_records_are_lost_with_them(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", columns=(ColumnSpec(name="id", type=LongType()),))
    scene.feed("a", {"id": 1, "b": 1}, {"id": "text", "b": 2, "c": 3}, MANY, {"id": 2, "B": 1})
    scene.catch_up()
    assert (balance(scene), fields(scene)) == (Balance(4, 2, 2), {"read": 12, "column": 4, "bad": 8})


def test_a_batch_in_which_a_field_is_lost_is_not_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, "a", unknown_fields="rescue", columns=(ColumnSpec(name="id", type=LongType()),))
    scene.feed("a", {"id": 1, "x": 1}, {"id": 2, "x": 2, "y": 3})
    with monkeypatch.context() as patch:
        every = names.all_members
        patch.setattr(columns, "all_members", lambda *given: lossy(*every(*given)))
        service = scene.start()
        assert turn_until(service, lambda: only(service.tables).status.run_state is RunState.STOPPED, 50)
        reason = only(service.tables).status.reason
    assert "fields of the batch are not accounted for: column=2 read=5 rescued=2" in reason
    assert scene.rows("n.a") == []
    scene.catch_up()
    assert fields(scene) == {"read": 5, "column": 2, "rescued": 3}


def lossy(names: list[str], members: Members) -> tuple[list[str], Members]:
    """The members without the last name's, as a limit on names that is counted over many records would leave them."""
    return names[:-1], replace(members, columns=members.columns[:-1])


def test_skipped_records_are_bad_ones_and_superseded_changes_are_written(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", on_bad_record="skip", **UPSERT)
    scene.feed("a", {"id": 1, "n": 1}, {"id": 1, "n": 2}, {"n": 3}, b"{")
    scene.catch_up()
    assert (scene.rows("n.a"), balance(scene)) == ([{"id": 1, "n": 2}], Balance(4, 2, 2))


def test_records_that_change_no_row_are_dropped_by_their_kind(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", envelope=EnvelopeSpec(kind="debezium"), changelog=True)
    change = {"before": {"id": 1}, "after": {"id": 2}, "op": "u", "source": {"connector": "mysql"}, "ts_ms": 1}
    scene.feed("a", change, None, {"status": "BEGIN", "id": "1", "event_count": None, "data_collections": None})
    scene.catch_up()
    assert balance(scene) == Balance(3, 1, 0, {"tombstone": 1, "transaction": 1})
    assert len(scene.rows("n.a")) == 2


@pytest.mark.parametrize("settings", [{"where": "id < 9"}, {"where": "id < 9", **UPSERT}], ids=["append", "upsert"])
def test_a_record_with_a_far_timestamp_is_one_bad_record_and_no_row_whatever_a_query_does_with_it(
    scene: Any, settings: dict[str, Any]
) -> None:
    made = scene(metadata={"timestamp": "_timestamp"}, **settings)
    made.feed("a", {"id": 1})
    for number in (2, 9):
        made.source.produce("a", 0, b'{"id": %d}' % number, FAR_MS)
    made.feed("a", {"id": 9})
    made.catch_up()
    assert [row["id"] for row in made.rows("n.a")] == [1]
    assert balance(made) == Balance(4, 1, 2, {"where": 1})
    assert made.dead_letters("n.a") == [("a", 0, 1), ("a", 0, 2)]


def _without(part: str, **counts: int) -> Any:
    """A change of a report, which has so many less of something."""

    def plant(report: TaskReport) -> TaskReport:
        old = getattr(report, part)
        less = {name: getattr(old, name) - number for name, number in counts.items()}
        return replace(report, **{part: replace(old, **less)})

    return plant


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (_without("counts", written_count=1), "are not accounted for: read=3 written=1 bad=1 dropped=0"),
        (_without("counts", written_count=-1), "are not accounted for: read=3 written=3 bad=1 dropped=0"),
        (_without("counts", record_count=1), "are not accounted for: read=2 written=2 bad=1 dropped=0"),
        (_without("counts", row_count=1), "the rows in the files differ from the written rows: written=1 in_files=2"),
        (lambda report: replace(report, written=replace(report.written, data=())), "written=2 in_files=0"),
    ],
)
def test_a_batch_with_a_miscount_is_not_committed_and_is_read_again_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Any, words: str
) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"id": 1}, {"id": 2}, b"{")
    report = task.TableRun.report
    with monkeypatch.context() as patch:
        patch.setattr(task.TableRun, "report", lambda run: plant(report(run)))
        service = scene.start()
        assert turn_until(service, lambda: only(service.tables).status.run_state is RunState.STOPPED, 50)
        table: Table = only(service.tables)
        assert words in table.status.reason
        assert table.status.remedy == "keep the logs and report it; nothing was committed"
    assert (scene.rows("n.a"), scene.dead_letters("n.a")) == ([], [])
    assert balance(scene) is None
    scene.catch_up()
    assert (len(scene.rows("n.a")), balance(scene)) == (2, Balance(3, 2, 1))


def test_an_upsert_table_does_not_commit_a_miscount_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, "a", **UPSERT)
    scene.feed("a", {"id": 1, "n": 1}, {"id": 1, "n": 2})
    report = task.TableRun.report
    with monkeypatch.context() as patch:
        patch.setattr(task.TableRun, "report", lambda run: _without("counts", written_count=1)(report(run)))
        service = scene.start()
        assert turn_until(service, lambda: only(service.tables).status.run_state is RunState.STOPPED, 50)
    assert scene.rows("n.a") == []
    scene.catch_up()
    assert balance(scene) == Balance(2, 2)
