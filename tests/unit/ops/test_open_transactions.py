"""What people are told of records that wait behind an open transaction: in the status, in a plan and at the end of a run."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from frazil.api.running import result_of
from frazil.cli.output import Output, OutputFormat
from frazil.cli.plan import _lines
from frazil.cli.run import report
from frazil.ops.pipeline_status import as_document
from frazil.types import OffsetRange
from tests.unit.ingest.service_scene import Scene as Running
from tests.unit.ops.conftest import Scenario
from tests.unit.ops.test_plan import plan, produce
from tests.unit.ops.test_status import NEVER_RUN, Broken, Scene, reported, text_of

WAITS = "1,010 records wait behind an open transaction since offset"


def held_topic(scene: Scene) -> None:
    """Ten records of a transaction that is still open, and a thousand plain ones behind them."""
    scene.source.begin_transaction("a", 0)
    for _ in range(1010):
        scene.source.produce("a", 0, b"{}")


def test_the_status_counts_them_and_names_the_transaction(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    held_topic(scene)
    found = scene.table()
    assert (found["lag_records"], found["ok"]) == (1010, True)
    assert found["open_transactions"] == [{"topic": "a", "partition": 0, "start": 10, "end": 1020}]
    text = text_of(scene.report(), 200)
    assert f"note: s.a: {WAITS} 10\n  where: topic a, partition 0\n  remedy: wait until its producer commits" in text
    scene.source.end_transaction("a", 0)
    assert (scene.table()["open_transactions"], scene.table()["lag_records"]) == ([], 1011)


def test_a_table_without_a_commit_counts_them_too(tmp_path: Path) -> None:
    scene = Scene(tmp_path, committed=0)
    scene.source.by_name["a"].open[0] = 0
    found = scene.table()
    assert (found["lag_records"], found["open_transactions"]) == (
        10, [{"topic": "a", "partition": 0, "start": 0, "end": 10}],
    )  # fmt: skip


def test_without_the_catalog_the_process_is_believed(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    known = {"topic": "a", "partition": 0, "start": 10, "end": 20}
    found = scene.table(reported({"lag_records": 10, "open_transactions": [known]}), Broken())
    assert (found["lag_records"], found["open_transactions"]) == (10, [known])
    assert scene.table(NEVER_RUN, Broken())["open_transactions"] == []


def test_a_plan_waits_for_the_transaction_and_not_for_a_field(scenario: Scenario) -> None:
    scenario.source.create("a", 2)
    scenario.source.begin_transaction("a", 1)
    produce(scenario, "a", *({"id": 1},) * 20)
    scenario.source.trim("a", 0, 10)
    table = plan(scenario, "tables: {s.a: {topic: a}}\n")["s.a"]
    assert (table.action, table.unread, table.is_idle) == ("wait", 10, False)
    assert table.open_transactions == (OffsetRange("a", 1, 0, 10),)
    assert table.problem is not None
    assert table.problem.message == "10 records wait behind an open transaction since offset 0"
    assert table.problem.where == "topic a, partition 1"


def test_a_plan_of_readable_records_notes_those_that_wait(scenario: Scenario) -> None:
    produce(scenario, "a", {"id": 1}, {"id": 2})
    scenario.source.begin_transaction("a", 1)
    produce(scenario, "a", {"id": 1}, {"id": 2})
    table = plan(scenario, "tables: {s.a: {topic: a}}\n")["s.a"]
    assert (table.action, table.sampled, table.unread) == ("create", 3, 4)
    assert "  note: 1 record waits behind an open transaction since offset 1 (topic a, partition 1)" in [*_lines(table)]
    assert table.document()["open_transactions"] == [{"topic": "a", "partition": 1, "start": 1, "end": 2}]


def ended(scene: Running, form: OutputFormat) -> tuple[int, str]:
    """The exit code of a run that has caught up, and what it printed."""
    printed = io.StringIO()
    code = report(Output(form, results=printed), result_of(scene.catch_up(), until_caught_up=True))
    return code, printed.getvalue()


def test_a_run_that_has_caught_up_says_what_it_could_not_read(tmp_path: Path) -> None:
    scene = Running(tmp_path, "a")
    scene.feed("a", {"x": 1})
    scene.source.begin_transaction("a", 0)
    scene.feed("a", *({"x": number} for number in range(1010)))
    code, text = ended(scene, OutputFormat.text)
    assert (code, text) == (0, f"n.a: 1 row, 1,010 records behind; {WAITS} 1 (topic a, partition 0)\n")
    document: Mapping[str, Any] = json.loads(ended(scene, OutputFormat.json)[1])
    found = document["tables"]["n.a"]
    assert (found["lag_records"], found["open_transactions"]) == (
        1010, [{"topic": "a", "partition": 0, "start": 1, "end": 1011}],
    )  # fmt: skip


def test_several_partitions_are_one_sentence(tmp_path: Path) -> None:
    scene = Scene(tmp_path, committed=0)
    scene.source.create("a", 3)
    for partition in range(3):
        scene.source.begin_transaction("a", partition)
        scene.source.produce("a", partition, b"{}")
    found = scene.report()
    assert as_document(found)["tables"]["s.a"]["lag_records"] == 3
    words = "3 records wait behind an open transaction since offset 0, and behind others in 2 more partitions"
    assert words in text_of(found, 200)
