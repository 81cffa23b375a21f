"""What status reports, from tables and topics in memory and from what a run left in its state file."""

from __future__ import annotations

import io
import os
import socket
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from rich.console import Console

from frazil.catalog.layout import Layout
from frazil.catalog.port import Catalog, TableState
from frazil.cli.status import render
from frazil.errors import SpecError, UnavailableError
from frazil.ingest.tables.table import Table
from frazil.maintenance.due import RoundsStatus
from frazil.ops.pipeline_status import (
    MaintenanceReport,
    PipelineReport,
    ProcessState,
    TableStatus,
    as_document,
    ended_document,
    status_of,
)
from frazil.ops.state_file import read_state
from frazil.ops.status import Shown, problem_of, report_pipeline
from frazil.spec import CatalogSpec, PipelineSpec, TableSpec, TopicSelector, load_spec
from frazil.spec.partitioning import parse_sort, parse_term
from frazil.stages.expect_settings import ExpectationSpec
from frazil.types import Commit, DataFile, Progress, Totals, Watermark
from frazil_testing.memory_catalog import MemoryCatalog
from frazil_testing.memory_kafka import MemorySource
from tests.unit.upsert.test_upsert_service import JSON_KEYS, UpsertScenario

NOW_MS = 1_000_000_000
NEVER_RUN = ProcessState()
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
BAD = {
    "state": "stopped",
    "reason": "field id: string does not fit long",
    "remedy": "fix the producer",
    "where": "topic a, partition 0, offset 7",
}


class Scene:
    """One table `s.a` fed by topic `a` of ten records, of which `committed` are in the table."""

    def __init__(self, root: Path, committed: int = 10) -> None:
        self.spec = PipelineSpec(
            pipeline="p",
            kafka={"bootstrap.servers": "x:1"},
            catalog=CatalogSpec(uri="jdbc:sqlite:x"),
            tables=(TableSpec(name="s.a", topics=(TopicSelector(literal="a"),)),),
            path=root / "p.yaml",
            state_dir=root,
        )
        self.source = MemorySource()
        self.catalog = MemoryCatalog(root, "p")
        self.source.create("a")
        for _ in range(10):
            self.source.produce("a", 0, b"{}")
        if committed:
            self.commit(committed)

    def commit(self, end: int) -> None:
        state = self.catalog.create("s.a", SCHEMA, {}, 2)
        progress = Progress(
            offsets={"a": {0: end}},
            topic_ids={"a": self.source.by_name["a"].id},
            cluster_id=self.source.cluster_id(),
            commit_id="c",
            watermark=Watermark({"a": {0: NOW_MS - 5000}}, NOW_MS - 5000),
        )
        files = (DataFile("f1", end - 2, 3000, ""), DataFile("f2", 2, 1000, ""))
        self.catalog.commit(Commit("s.a", files, progress, state.progress))

    def report(self, reported: ProcessState = NEVER_RUN, catalog: Any = None) -> PipelineReport:
        opened = catalog or nullcontext(self.catalog)
        return report_pipeline(self.spec, self.source, opened, reported, NOW_MS)

    def table(self, reported: ProcessState = NEVER_RUN, catalog: Any = None) -> dict[str, Any]:
        document: dict[str, Any] = as_document(self.report(reported, catalog))["tables"]["s.a"]
        return document


def reported(
    table: dict[str, Any], others: Mapping[str, dict[str, Any]] = MappingProxyType({}), **process: Any
) -> ProcessState:
    """A state file of this process, which therefore runs. others: its other tables."""
    words = {"pid": os.getpid(), "host": socket.gethostname(), "ended": False, "updated_ms": NOW_MS - 200}
    return read_state({**words, **process, "tables": {"s.a": {"state": "waiting", **table}, **others}})


class Broken(AbstractContextManager[Catalog]):
    """A catalog that cannot be opened."""

    def __enter__(self) -> Catalog:
        raise UnavailableError("the catalog: refused", where="http://catalog")

    def __exit__(self, *_: object) -> None:
        """Never reached."""


def text_of(report: PipelineReport, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as capture:
        console.print(render(report))
    return capture.get()


def test_a_table_that_is_read_to_its_end_is_well_though_nothing_runs(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.report().is_well
    assert scene.table() == {
        "state": "not running", "ok": True, "reason": "", "remedy": "", "where": "", "topics": ["a"],
        "lag_records": 0, "open_transactions": [], "lag_s": 0.0, "watermark_ms": NOW_MS - 5000, "committed": True,
        "last_commit_ms": None,
        "rows": 10, "files": 2, "size_bytes": 4000, "average_file_bytes": 2000, "snapshots": 1,
        "partition_spec": [], "sort_order": [],
        "dropped_fields": [], "dead_letters": 0, "bad_skipped": 0, "skipped_offsets": None, "ignored_records": {},
        "expectations": {}, "stale": {}, "rest_records": {}, "waiting_records": None,
        "windows_complete_to_ms": None,
        "refused_changes": [],
        "last_upsert": None, "maintenance": None, "verification": None, "publishing": None,
    }  # fmt: skip


def test_an_upsert_table_reports_how_many_files_its_last_batch_looked_at(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path / "scenario", key_columns=("id",), key=JSON_KEYS)
    assert ended_document(status_of(scenario.tell(("1", {"id": 1, "v": "a"}))))["last_upsert"]["inspected"] == 0
    scenario.tell(("90", {"id": 90, "v": "a"}))
    last = ended_document(status_of(scenario.tell(("1", {"id": 1, "v": "b"}), ("2", {"id": 2, "v": "b"}))))[
        "last_upsert"
    ]
    assert last == {
        "changes": 2, "keys": 2, "deleted": 1, "late": 0, "missing_required": 0, "files": 2, "inspected": 1, "tries": 1,
    }  # fmt: skip
    scene, told = Scene(tmp_path), reported({"last_upsert": last})
    assert scene.table(told)["last_upsert"] == last
    *_, columns, values = text_of(scene.report(told)).rstrip().splitlines()
    assert columns.split("  ")[0] == "upsert table, last batch"
    assert values.split() == ["s.a", "2", "1", "1", "of", "2"]


def test_lag_is_ends_less_committed_offsets_and_seconds_since_the_watermark(tmp_path: Path) -> None:
    table = Scene(tmp_path, committed=4).table()
    assert (table["lag_records"], table["lag_s"], table["ok"]) == (6, 5.0, True)


def test_lag_in_seconds_is_no_longer_than_records_wait_though_the_topic_was_idle_before(tmp_path: Path) -> None:
    scene = Scene(tmp_path, committed=4)
    for since_ms, seconds in ((NOW_MS - 800, 0.8), (NOW_MS - 60_000, 5.0), (None, 5.0)):
        assert scene.table(reported({"lag_records": 6, "behind_since_ms": since_ms}))["lag_s"] == seconds


@pytest.mark.parametrize("known", [NEVER_RUN, reported({**BAD, "lag_records": 0})])
def test_a_topic_that_was_recreated_has_no_lag_that_is_known_and_its_table_has_its_rows(
    tmp_path: Path, known: ProcessState
) -> None:
    scene = Scene(tmp_path)
    scene.source.create("a")
    scene.source.produce("a", 0, b"{}")
    table = scene.table(known)
    assert (table["ok"], table["lag_records"], table["lag_s"], table["rows"], table["files"]) == (
        False,
        None,
        None,
        10,
        2,
    )


@pytest.mark.parametrize(("state", "is_well"), [("waiting", True), ("running", True), ("backing off", False)])
def test_a_running_process_reports_what_its_tables_do(tmp_path: Path, state: str, is_well: bool) -> None:
    report = Scene(tmp_path).report(reported({"state": state}))
    assert (report.process.is_running, report.tables[0].condition.state, report.is_well) == (True, state, is_well)


def test_a_stopped_table_reports_why_where_and_what_to_do_also_after_the_process_ended(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    for ended in (False, True):
        table = scene.table(reported(BAD, ended=ended))
        assert {name: table[name] for name in BAD} == BAD
        assert not table["ok"]
    text = text_of(scene.report(reported(BAD)))
    assert "problem: s.a: field id: string does not fit long\n" in text
    assert "where: topic a, partition 0, offset 7\n  remedy: fix the producer" in text


def test_a_note_of_a_waiting_table_is_no_fault(tmp_path: Path) -> None:
    note = {"state": "waiting", "reason": "no record has a field yet", "remedy": "", "where": ""}
    report = Scene(tmp_path).report(reported(note))
    assert report.is_well
    assert "note: s.a: no record has a field yet" in text_of(report)


def test_a_table_whose_records_all_change_no_row_says_so_also_after_the_process_has_ended(tmp_path: Path) -> None:
    scene = Scene(tmp_path, committed=0)
    reason = "the records so far change no row (schema_change), so the table has no column yet"
    note = {"state": "waiting", "reason": reason, "remedy": "nothing", "where": "", "lag_records": 0}
    for ended, state, lag in ((False, "waiting", 0), (True, "not running", 10)):
        report = scene.report(reported(note, ended=ended))
        (table,) = report.tables
        assert (report.is_well, table.condition.state, table.lag.lag_records) == (True, state, lag)
        assert f"note: s.a: {reason}" in text_of(report, 200)
    scene.commit(4)
    document = scene.table(reported(note, ended=True))
    assert (document["reason"], document["lag_records"]) == ("", 6)


def test_what_was_lost_is_reported(tmp_path: Path) -> None:
    report = Scene(tmp_path).report(reported({"skipped_offsets": 50}))
    assert report.is_well
    assert "s.a has skipped 50 offsets whose records Kafka had deleted" in " ".join(text_of(report).split())


def test_a_missing_topic_is_named(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    del scene.source.by_name["a"]
    table = scene.table()
    assert (table["ok"], table["reason"], table["rows"]) == (False, "topic a does not exist", 10)
    scene.source.create("aa")
    assert scene.table()["remedy"].startswith("did you mean `aa`? otherwise create the topic")


def test_a_pattern_that_matches_nothing_is_named(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.spec = scene.spec.model_copy(update={"namespace": "s", "topics": (TopicSelector(pattern="^device-"),)})
    report = scene.report()
    assert not report.is_well
    assert [problem.message for problem in report.problems] == ["the regular expression /^device-/ matches no topic"]


def test_a_topic_made_again_is_found_without_a_run(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.source.create("a")
    table = scene.table()
    assert (table["state"], table["ok"]) == ("not running", False)
    assert "deleted and recreated" in table["reason"]


def test_a_table_that_a_run_wrote_and_that_is_gone_is_a_fault(tmp_path: Path) -> None:
    table = Scene(tmp_path, committed=0).table(reported({"last_commit_ms": 5}))
    assert (table["ok"], table["reason"]) == (False, "the table no longer exists")


@pytest.mark.parametrize("has_kafka", [True, False])
@pytest.mark.parametrize(
    "error", [ValueError("no such type"), SpecError("no such type", remedy="drop it", where="s.b")]
)
def test_a_table_that_cannot_be_read_at_all_is_told_of_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, has_kafka: bool
) -> None:
    scene = Scene(tmp_path)
    other = TableSpec(name="s.b", topics=(TopicSelector(literal="a"),))
    scene.spec = scene.spec.model_copy(update={"tables": (other, *scene.spec.tables)})
    load = scene.catalog.load

    def load_or_fail(table: str) -> TableState | None:
        if table == "s.b":
            raise error
        return load(table)

    monkeypatch.setattr(scene.catalog, "load", load_or_fail)
    scene.source.is_down = not has_kafka
    size = {"row_count": 7, "file_count": 1, "size_bytes": 9, "snapshot_count": 1}
    document = as_document(scene.report(read_state({"tables": {"s.b": {"size": size}}})))
    good, bad = document["tables"]["s.a"], document["tables"]["s.b"]
    assert (document["ok"], good["ok"], good["rows"]) == (False, True, 10)
    assert (bad["ok"], bad["where"], bad["rows"], bad["lag_records"]) == (False, "s.b", 7, None)
    assert "no such type" in bad["reason"]
    assert bad["remedy"]


def test_without_kafka_the_tables_still_tell_and_lag_is_the_running_process_s_or_unknown(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.source.is_down = True
    report = scene.report()
    assert [problem.message for problem in report.problems] == ["Kafka does not answer"]
    assert (report.is_well, report.tables[0].derived.rows, report.tables[0].lag.lag_records) == (False, 10, None)
    assert scene.table(reported({"lag_records": 3}))["lag_records"] == 3


def test_without_the_catalog_the_state_file_is_what_is_known(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    size = {"row_count": 8, "file_count": 2, "size_bytes": 100, "snapshot_count": 3}
    report = scene.report(reported({"size": size, "watermark_ms": 7, "last_commit_ms": 9}), Broken())
    assert [problem.where for problem in report.problems] == ["http://catalog"]
    (table,) = report.tables
    assert (table.derived.rows, table.derived.files, table.derived.snapshots) == (8, 2, 3)
    assert (table.progress.watermark_ms, table.progress.last_commit_ms) == (7, 9)


def test_tables_of_top_level_topics_are_remembered_while_kafka_is_away(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.source.is_down = True
    scene.spec = scene.spec.model_copy(update={"namespace": "n", "topics": (TopicSelector(pattern="^dev"),)})
    known = reported({}, {"n.dev-1": {"state": "running"}, "n.other": {"state": "running"}})
    assert [table.name for table in scene.report(known).tables] == ["n.dev-1", "s.a"]


def test_a_table_of_a_route_that_the_last_run_has_reported_has_the_topic_of_the_route(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    text = "pipeline: p\nkafka: {bootstrap.servers: 'x:1'}\ntables: {s.a: {topic: a}}\n"
    (tmp_path / "p.yaml").write_text(text + "routes: [{topic: a, by: k, to: 'r.${k}', rest: r.rest}]\n")
    scene.spec = load_spec(tmp_path / "p.yaml", {})
    known = reported({}, {"r.x": {"state": "waiting"}})
    found = {table.name: table for table in scene.report(known).tables}
    assert (found["r.x"].lag.topics, found["r.x"].condition.problem) == (("a",), None)


def test_a_process_that_has_gone_silent_is_a_fault_and_one_elsewhere_runs_while_it_writes(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    silent = scene.report(reported({}, updated_ms=NOW_MS - 90_000))
    assert (silent.process.is_silent, silent.is_well) == (True, False)
    assert "not written its state for 90 s" in silent.problems[0].message
    elsewhere = [scene.report(reported({}, host="elsewhere", updated_ms=NOW_MS - age)) for age in (1000, 90_000)]
    assert [report.process.is_running for report in elsewhere] == [True, False]


def test_the_text_fits_a_hundred_columns_and_names_what_is_dropped(tmp_path: Path) -> None:
    report = Scene(tmp_path, committed=4).report(reported({"dropped_fields": ["x", "y"]}))
    text = text_of(report)
    assert max(map(len, text.splitlines())) <= 100
    assert "s.a drops unknown fields: x, y" in text
    assert "6 (5.0 s)" in text
    assert "2 × 2.0 KiB" in text or "2 × 2000 B" in text


@pytest.mark.parametrize("width", [80, 60, 40, 20])
def test_a_narrow_terminal_shows_fewer_columns_and_cuts_no_name_and_no_number(tmp_path: Path, width: int) -> None:
    report = Scene(tmp_path, committed=4).report()
    table = derived(report.tables[0], rows=123_456_789)
    table = replace(table, name="shop.payments_of_customers")
    lines = text_of(replace(report, tables=(table,)), width).splitlines()
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "…" not in text
    assert "not running" in text
    if width >= 40:
        assert "shop.payments_of_customers" in text
    assert ("6 (5.0 s)" in text) is (width >= 60)
    assert "(a wider terminal" in text
    wide = text_of(replace(report, tables=(table,)), 140)
    assert ("123,456,789" in wide, "(a wider terminal" in wide) == (True, False)


def test_how_new_files_are_partitioned_and_sorted_is_reported(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    layout = Layout((parse_term("bucket(id, 4)"), parse_term("id")), (parse_sort("id desc"),))
    assert "partitioned" not in text_of(scene.report())
    scene.catalog.arrange("s.a", layout)
    table = scene.table()
    assert (table["partition_spec"], table["sort_order"]) == (["bucket(id, 4)", "id"], ["id desc nulls last"])
    assert "s.a is partitioned by bucket(id, 4), id and sorted by id desc nulls last" in text_of(scene.report())
    unreached = scene.table(NEVER_RUN, Broken())
    assert (unreached["partition_spec"], unreached["sort_order"]) == (None, None)


@pytest.mark.parametrize(("ended", "expected"), [(False, RoundsStatus(5, "no room")), (True, RoundsStatus(5))])
def test_what_troubles_maintenance_is_reported_while_the_process_runs(
    tmp_path: Path, ended: bool, expected: RoundsStatus
) -> None:
    scene = Scene(tmp_path)
    heard: list[RoundsStatus] = []

    def maintenance_status(_catalog: Catalog, _table: Table, rounds: RoundsStatus) -> None:
        heard.append(rounds)

    document = reported({"maintenance": {"failure": "no room", "last_ms": 5}}, ended=ended)
    report_pipeline(scene.spec, scene.source, nullcontext(scene.catalog), document, NOW_MS, maintenance_status)
    assert heard == [expected]


REFUSED = ["column x: no", *(f"schema {n}: column y: int is not widened to long" for n in (12, 9))]


def test_what_became_of_bad_records_is_counted(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    dead_letters = scene.catalog.create("s.dead_letters", SCHEMA, {}, 2)
    scene.catalog.commit(
        Commit("s.dead_letters", (DataFile("f3", 3, 10, ""),), Progress(commit_id="l"), dead_letters.progress)
    )
    scene.catalog.mark("s.a", "dead-letters", "s.dead_letters")
    before = scene.catalog.load("s.a")
    assert before is not None
    after = replace(before.progress, commit_id="d", totals=Totals(bad_skipped=1))
    scene.catalog.commit(Commit("s.a", (), after, before.progress))
    report = scene.report(reported({"refused_changes": REFUSED, "dead_letters": 7}))
    table = as_document(report)["tables"]["s.a"]
    assert [table[name] for name in ("dead_letters", "bad_skipped")] == [3, 1]
    widen = "write `schema_evolution: evolve`, or widen the column yourself"
    assert table["refused_changes"] == [
        {"change": "column x: no", "schemas": [], "remedy": ""},
        {"change": "column y: int is not widened to long", "schemas": ["9", "12"], "remedy": widen},
    ]
    text = text_of(report)
    assert "s.a has 3 dead letters: run `frazil dead-letters list`" in text
    assert "s.a has skipped 1 bad record: `on_bad_record: skip`" in text
    assert "s.a refuses a change: column x: no\n" in text
    assert f"schemas 9, 12: column y: int is not widened to long\n  remedy: {widen}\n" in text
    unreached = scene.table(reported({"dead_letters": 7, "bad_skipped": 2}), Broken())
    assert (unreached["dead_letters"], unreached["bad_skipped"]) == (7, 2)


def test_records_that_are_no_change_of_a_row_are_counted_by_what_they_are(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    before = scene.catalog.load("s.a")
    assert before is not None
    after = replace(before.progress, commit_id="d", totals=Totals(ignored_records={"heartbeat": 1200, "delete": 2}))
    scene.catalog.commit(Commit("s.a", (), after, before.progress))
    report = scene.report()
    assert as_document(report)["tables"]["s.a"]["ignored_records"] == {"heartbeat": 1200, "delete": 2}
    assert "s.a has ignored records that change no row: 2 delete, 1,200 heartbeat" in text_of(report)
    assert scene.table(reported({"ignored_records": {"delete": 5}}), Broken())["ignored_records"] == {"delete": 5}


MAINTAINED = MaintenanceReport(
    p50_bytes=3 * 1024 * 1024,
    small_share=0.25,
    delete_files=12,
    deleted_rows=3456,
    manifests=7,
    metadata_bytes=20 * 1024,
)


def maintained(tmp_path: Path, maintenance: MaintenanceReport) -> PipelineReport:
    report = Scene(tmp_path).report()
    return replace(report, tables=tuple(derived(table, maintenance=maintenance) for table in report.tables))


def derived(table: TableStatus, **values: Any) -> TableStatus:
    return replace(table, derived=replace(table.derived, **values))


def test_how_a_table_is_stored_is_always_shown(tmp_path: Path) -> None:
    report = maintained(tmp_path, MAINTAINED)
    text = text_of(report)
    (at,) = [n for n, words in enumerate(text.splitlines()) if "median file" in words]
    heads, numbers = text.splitlines()[at : at + 2]
    names = ["table", "median file", "small files", "delete files", "deleted rows", "manifests", "metadata"]
    assert heads.split() == " ".join(names).split()
    assert numbers.split() == ["s.a", "3.0", "MiB", "25%", "12", "3,456", "7", "20", "KiB"]
    assert "due for maintenance" not in text
    reported = as_document(report)["tables"]["s.a"]
    assert (reported["files"], reported["snapshots"]) == (2, 1)
    figures = ("p50_bytes", "small_share", "delete_files", "metadata_bytes")
    assert {name: reported["maintenance"][name] for name in figures} == {
        "p50_bytes": 3145728, "small_share": 0.25, "delete_files": 12, "metadata_bytes": 20480,
    }  # fmt: skip


def test_what_a_table_owes_is_reported_with_what_comes_of_it(tmp_path: Path) -> None:
    owed = replace(
        MAINTAINED,
        due=("compact: 60 files of 1 MiB on average",),
        waiting=("files are rewritten in the window",),
        above_cap=("1,200,000 deleted rows, 60% of all",),
        slowed_by=4.0,
        failure="no space left",
    )
    report = maintained(tmp_path, owed)
    text = text_of(report, 150)
    for words in (
        "s.a is due for maintenance\n  compact: 60 files of 1 MiB on average\n  waiting: files are rewritten in the"
        " window\n",
        "slows readers down: 1,200,000 deleted rows, 60% of all; run `frazil maintain`",
        "note: s.a: commits are up to 4 times as far apart until maintenance has caught up",
        "note: s.a: maintenance failed: no space left",
    ):
        assert words in text
    assert as_document(report)["tables"]["s.a"]["maintenance"]["above_cap"] == ["1,200,000 deleted rows, 60% of all"]
    assert report.is_well, "what is owed asks for nothing that must be done at once"


def test_what_is_not_as_expected_is_counted_and_an_old_newest_record_is_noted(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    (table,) = scene.spec.tables
    expected = (
        ExpectationSpec(name="positive", that="n > 0"),
        ExpectationSpec(name="fresh", max_age_s=4),
        ExpectationSpec(name="recent", max_age_s=6),
    )
    scene.spec = scene.spec.model_copy(update={"tables": (table.model_copy(update={"expect": expected}),)})
    before = scene.catalog.load("s.a")
    assert before is not None
    after = replace(before.progress, commit_id="d", totals=Totals(findings={"positive": 1200, "fresh": 0, "recent": 0}))
    scene.catalog.commit(Commit("s.a", (), after, before.progress))
    report = scene.report()
    document = as_document(report)["tables"]["s.a"]
    assert document["expectations"] == {"positive": 1200, "fresh": 0, "recent": 0}
    assert (document["stale"], document["ok"]) == ({"fresh": 5.0}, True)
    assert "s.a is not as expected: 1,200 positive" in text_of(report)
    assert "note: s.a: the newest record is 5.0 s old (fresh)" in text_of(report)
    assert scene.table(reported({"expectations": {"positive": 5}}), Broken())["expectations"] == {"positive": 5}


@pytest.mark.parametrize(
    ("remedy", "shown"),
    [
        ("free disk space; Frazil retries with back-off", "free disk space"),
        ("Frazil retries with back-off; check that the registry is running", "check that the registry is running"),
    ],
)
def test_a_command_does_not_say_that_it_retries(remedy: str, shown: str) -> None:
    assert problem_of(UnavailableError("a service does not answer", remedy=remedy)).remedy == shown


def test_what_a_process_of_another_version_has_recorded_of_a_comparison_is_shown_as_far_as_it_is_known(
    tmp_path: Path,
) -> None:
    found = Scene(tmp_path).table(reported({"verification": {"commits": 3, "surplus": 1, "of_another_version": 7}}))
    assert (found["verification"]["commits"], found["verification"]["surplus"]) == (3, 1)
    assert "of_another_version" not in found["verification"]


def test_one_table_is_reported_alone_with_what_is_wrong_elsewhere_left_out(tmp_path: Path) -> None:
    scene, doings = Scene(tmp_path), list[str]()
    other = TableSpec(name="s.b", topics=(TopicSelector(literal="nowhere"),))
    scene.spec = scene.spec.model_copy(
        update={"tables": (*scene.spec.tables, other), "topics": (TopicSelector(literal="gone"),), "namespace": "s"}
    )

    def report(only: str | None) -> PipelineReport:
        shown = Shown(only, doings.append)
        return report_pipeline(scene.spec, scene.source, nullcontext(scene.catalog), NEVER_RUN, NOW_MS, shown=shown)

    assert ([table.name for table in report("s.a").tables], report("s.a").is_well) == (["s.a"], True)
    assert doings == ["loading s.a"] * 2
    assert [table.name for table in report("s.b").tables] == ["s.b"]
    assert (report(None).is_well, report("s.b").is_well) == (False, False)
    with pytest.raises(SpecError, match=r"no table `s\.c`"):
        report("s.c")
