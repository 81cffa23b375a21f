"""What tasks report of their changes beside the rows, on its way to the driver."""

from __future__ import annotations

from typing import Any

from frazil.report import ChangeReport, TaskReport, dump_report, load_report, merge_reports
from frazil.types import LastDelete, OrderProgress, Progress
from frazil.upsert.change_notes import dependence, error_in, progress_after
from frazil.upsert.emptied import Emptying, emptying_in
from frazil.upsert.key_updates.parts import KeyUpdateNotes, KeyUpdatePart, key_update_notes


def _report(ends: dict[str, dict[int, int]], *unpaired: tuple[str, int, int], emptied: str = "") -> TaskReport:
    notes: dict[str, tuple[Any, ...]] = dict(Emptying(emptied).notes())
    if ends or unpaired:
        notes["primary_key_updates"] = ({"unpaired": unpaired, "ends": ends},)
    return load_report(dump_report(TaskReport("n.t", changes=ChangeReport(notes=notes))))


def _emptied(position: str) -> Progress:
    return Progress(order=OrderProgress(emptied=position))


def test_the_notes_of_all_tasks_are_read_as_one() -> None:
    tasks = [_report({}, ("b", 1, 2), emptied="5"), _report({"a": {0: 7}}, ("a", 0, 1), emptied="3"), _report({})]
    report = merge_reports("n.t", tasks)
    assert key_update_notes(report.changes) == KeyUpdateNotes(False, (("a", 0, 1), ("b", 1, 2)), (), {"a": {0: 7}})
    assert emptying_in(report.changes) == Emptying("5")
    assert progress_after(Progress(), _emptied("4"), report).order.emptied == "5"
    assert progress_after(Progress(), _emptied("6"), report).order.emptied == "6"


def test_parts_of_primary_key_updates_survive_their_way() -> None:
    part = KeyUpdatePart("a", 0, 1, None, "p", True)
    notes = {"primary_key_updates": ({"parts": [vars(part)]},)}
    report = load_report(dump_report(TaskReport("n.t", changes=ChangeReport(notes=notes))))
    assert key_update_notes(report.changes).parts == (part,)


def test_a_report_without_notes_needs_nothing() -> None:
    changes = _report({}).changes
    assert (changes.notes, error_in(changes), dependence(changes)) == ({}, None, "")
    assert key_update_notes(changes) == KeyUpdateNotes()


def test_the_first_truncate_without_a_position_stops_the_table() -> None:
    places = [Emptying(unplaced={("b", 0, 1)}), Emptying(unplaced={("a", 3, 9), ("a", 3, 4)})]
    reports = [TaskReport("n.t", changes=ChangeReport(notes=truncates.notes())) for truncates in places]
    error = error_in(merge_reports("n.t", reports).changes)
    assert error is not None
    assert (error.topic, error.partition, error.offset) == ("a", 3, 4)


def test_rows_that_depend_on_more_than_their_records_are_named() -> None:
    assert dependence(_report({}, ("a", 0, 1)).changes) == "keys of rows were changed"
    assert dependence(_report({}, emptied="1").changes) == "the table was truncated"


def test_the_last_deletes_of_a_batch_are_in_its_progress() -> None:
    last = LastDelete("a", 0, 4, "k")
    report = TaskReport("n.t", changes=ChangeReport(last_deletes=(last,)))
    assert progress_after(Progress(offsets={"a": {0: 5}}), Progress(), report).order.last_deletes == (last,)
