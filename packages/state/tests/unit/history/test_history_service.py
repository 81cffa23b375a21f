"""A whole service on the ports in memory: tables that keep every version of a row, over restarts."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from frazil.catalog.scans import LiveFile
from frazil.ingest.tables.queries import SparkQueries
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.target import target_of
from frazil.upsert.commit import transfer_deletes
from frazil.upsert.lookup.delete_files import read_deletes
from frazil.write.write import FileWriter
from packages.state.tests.unit.grouping.grouping import Grouped
from packages.state.tests.unit.history.versions import Kept

_PLAIN = "mode: history, key_columns: [k], key: {format: json}"
_ORDERED = f"{_PLAIN}, order_by: at, columns: {{at: timestamptz}}"


def _at(second: int) -> str:
    return f"1970-01-01T00:00:{second:02}Z"


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("version", [2, 3])
def test_versions_open_and_close_over_batches_and_restarts(tmp_path: Path, version: int, tasks: int) -> None:
    kept = Kept(tmp_path, f"{_PLAIN}, format_version: {version}", tasks=tasks)
    kept.put_at(1, {"k": 1, "v": "a"})
    kept.put_at(2, {"k": 2, "v": "x"})
    kept.put_at(3, {"k": 1, "v": "b"})
    kept.put_at(4, {"k": 1, "v": "c"})
    kept.catch_up()
    assert kept.versions() == [(1, 1, 3, "a"), (1, 3, 4, "b"), (1, 4, None, "c"), (2, 2, None, "x")]
    kept.put_at(5, {"k": 1, "v": "c"})
    kept.put_at(6, None, key={"k": 2})
    kept.put_at(7, {"k": 1, "v": "a"})
    kept.put_at(9, {"k": 2, "v": "x"})
    kept.catch_up()
    assert kept.versions() == [
        (1, 1, 3, "a"),
        (1, 3, 4, "b"),
        (1, 4, 7, "c"),
        (1, 7, None, "a"),
        (2, 2, 6, "x"),
        (2, 9, None, "x"),
    ]


def test_a_record_is_the_newest_of_its_key_without_order_by_and_time_does_not_run_backwards(tmp_path: Path) -> None:
    kept = Kept(tmp_path, _PLAIN)
    kept.put_at(5, {"k": 1, "v": "a"})
    kept.put_at(3, {"k": 1, "v": "b"})
    kept.catch_up()
    assert kept.versions() == [(1, 5, None, "b")]
    kept.put_at(9, {"k": 1, "v": "c"})
    kept.put_at(7, None, key={"k": 1})
    kept.catch_up()
    assert kept.versions() == [(1, 5, 9, "b")]


def test_late_records_are_put_between_closing_and_opening_their_neighbours(tmp_path: Path) -> None:
    kept = Kept(tmp_path, _ORDERED)
    kept.tell({"k": 1, "v": "a", "at": _at(10)}, {"k": 1, "v": "c", "at": _at(30)})
    kept.tell({"k": 1, "v": "b", "at": _at(20)})
    assert kept.versions() == [(1, 10, 20, "a"), (1, 20, 30, "b"), (1, 30, None, "c")]
    kept.tell({"k": 1, "v": "first", "at": _at(5)}, {"k": 1, "v": "c", "at": _at(50)})
    kept.tell({"k": 1, "v": "d", "at": _at(40)})
    assert kept.versions() == [
        (1, 5, 10, "first"),
        (1, 10, 20, "a"),
        (1, 20, 30, "b"),
        (1, 30, 40, "c"),
        (1, 40, 50, "d"),
        (1, 50, None, "c"),
    ]
    assert sorted(kept.versions("at"))[3][3].second == 30


def test_doubled_records_change_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path, _ORDERED)
    records = [{"k": 1, "v": value, "at": _at(at)} for value, at in (("a", 1), ("b", 2), ("a", 3))]
    kept.tell(*records)
    kept.tell(*records)
    assert kept.versions() == [(1, 1, 2, "a"), (1, 2, 3, "b"), (1, 3, None, "a")]


def test_many_versions_of_one_key_in_one_batch(tmp_path: Path) -> None:
    kept = Kept(tmp_path, _PLAIN, tasks=3)
    for number in range(200):
        kept.put_at(number + 1, {"k": 1, "v": number // 2})
    kept.catch_up()
    assert kept.versions() == [(1, 2 * n + 1, 2 * n + 3 if n < 99 else None, n) for n in range(100)]


def test_track_chooses_the_columns_and_the_others_are_those_of_the_last_record(tmp_path: Path) -> None:
    kept = Kept(tmp_path, f"{_PLAIN}, track: [v]")
    kept.put_at(1, {"k": 1, "v": "a", "seen": 1})
    kept.put_at(2, {"k": 1, "v": "a", "seen": 2})
    kept.catch_up()
    kept.put_at(3, {"k": 1, "v": "b", "seen": 3})
    kept.put_at(4, {"k": 1, "v": "b", "seen": 4})
    kept.catch_up()
    assert kept.versions() == [(1, 1, 3, "a"), (1, 3, None, "b")]
    assert kept.versions("seen") == [(1, 1, 3, 2), (1, 3, None, 4)]


def test_track_finds_a_column_in_other_capitals(tmp_path: Path) -> None:
    kept = Kept(tmp_path, f"{_PLAIN}, track: [V]")
    for number, value in enumerate("aab"):
        kept.put_at(number + 1, {"k": 1, "v": value})
        kept.catch_up()
    assert kept.versions() == [(1, 1, 3, "a"), (1, 3, None, "b")]


@pytest.mark.parametrize("mended", ["track: [o]", "track: [tag], columns: {tag: {type: string, field: o.tag}}"])
def test_a_field_inside_of_a_column_is_tracked_with_it_or_as_a_column_of_its_own(tmp_path: Path, mended: str) -> None:
    kept = Kept(tmp_path, f"{_PLAIN}, track: [o.tag]")
    kept.put_at(1, {"k": 1, "v": "a", "o": {"tag": "x"}})
    kept.put_at(2, {"k": 1, "v": "b", "o": {"tag": "x"}})
    kept.put_at(3, {"k": 1, "v": "c", "o": {"tag": "y"}})
    table = kept.catch_up()
    assert table.status.run_state is RunState.STOPPED
    assert table.status.reason == "`track` names a field inside of the column `o`: `o.tag`"
    assert table.status.remedy.startswith("track the whole column, `o`, or give the field a column of its own, such as")
    kept.spec = kept.spec.model_copy(update={"tables": Kept(tmp_path / "m", f"{_PLAIN}, {mended}").spec.tables})
    kept.catch_up()
    assert kept.versions() == [(1, 1, 3, "b"), (1, 3, None, "c")]


def test_nested_values_and_nulls_are_compared(tmp_path: Path) -> None:
    kept = Kept(tmp_path, _PLAIN)
    values = [{"tags": ["a"]}, {"tags": ["a"]}, {"tags": ["a", None]}, {"tags": None}, {"tags": None}, {"tags": []}]
    for number, value in enumerate(values):
        kept.put_at(number + 1, {"k": 1, "o": value})
        kept.catch_up()
    assert kept.versions("o") == [
        (1, 1, 3, {"tags": ["a"]}),
        (1, 3, 4, {"tags": ["a", None]}),
        (1, 4, 6, {"tags": None}),
        (1, 6, None, {"tags": []}),
    ]


def test_a_new_column_makes_a_version_with_its_first_value(tmp_path: Path) -> None:
    kept = Kept(tmp_path, _PLAIN)
    kept.put_at(1, {"k": 1, "v": "a"})
    kept.put_at(1, {"k": 2, "v": "x"})
    kept.catch_up()
    kept.put_at(2, {"k": 1, "v": "a", "city": "Bonn"})
    kept.put_at(3, {"k": 2, "v": "x"})
    kept.catch_up()
    assert kept.versions("city") == [(1, 1, 2, None), (1, 2, None, "Bonn"), (2, 1, None, None)]


def test_changes_of_a_source_have_the_time_of_the_source(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "mode: history, envelope: debezium, key: {format: json}")
    a, b = {"k": 1, "v": "a"}, {"k": 1, "v": "b"}
    changes = [("c", None, a, 1000), ("u", a, b, 2000), ("u", b, b, 3000), ("d", b, None, 4000), ("c", None, a, 5000)]
    for op, before, after, at_ms in changes:
        kept.put({"op": op, "before": before, "after": after, "source": {"ts_ms": at_ms}}, key={"k": 1})
        if op == "d":
            kept.put(None, key={"k": 1})
        kept.catch_up()
    assert kept.versions() == [(1, 1, 2, "a"), (1, 2, 4, "b"), (1, 5, None, "a")]


def test_changes_may_be_late_by_the_time_of_the_source(tmp_path: Path) -> None:
    settings = "mode: history, envelope: debezium, key: {format: json}, metadata: [source_ts], order_by: _source_ts"
    kept = Kept(tmp_path, settings)
    a, b = {"k": 1, "v": "a"}, {"k": 1, "v": "b"}
    for op, before, after, at_ms in [("c", None, a, 1000), ("d", b, None, 4000), ("u", a, b, 2000)]:
        kept.put({"op": op, "before": before, "after": after, "source": {"ts_ms": at_ms}}, key={"k": 1})
        kept.catch_up()
    assert kept.versions() == [(1, 1, 2, "a"), (1, 2, 4, "b")]


def test_a_changed_primary_key_closes_one_row_and_opens_another(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "mode: history, envelope: debezium, key_columns: [k]")
    before, after = {"k": 1, "v": "a"}, {"k": 2, "v": "a"}
    kept.put({"op": "c", "before": None, "after": before, "source": {"ts_ms": 1000}}, key={"k": 1})
    kept.put({"op": "u", "before": before, "after": after, "source": {"ts_ms": 2000}}, key={"k": 1})
    kept.catch_up()
    assert kept.versions() == [(1, 1, 2, "a"), (2, 2, None, "a")]


def test_values_that_were_not_sent_and_truncates_are_dead_letters(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "mode: history, envelope: debezium, key_columns: [k]")
    row = {"k": 1, "v": "a", "big": "x"}
    kept.put({"op": "c", "before": None, "after": row, "source": {"ts_ms": 1000}}, key={"k": 1})
    toasted = {**row, "v": "b", "big": "__debezium_unavailable_value"}
    kept.put({"op": "u", "before": None, "after": toasted, "source": {"ts_ms": 2000}}, key={"k": 1})
    kept.put({"op": "t", "before": None, "after": None, "source": {"ts_ms": 3000}})
    kept.catch_up()
    assert kept.versions() == [(1, 1, None, "a")]
    assert [kind for kind, _ in kept.dead_letters()] == ["unavailable_value", "unknown_operation"]


def test_columns_may_have_other_names_and_a_field_of_their_name_is_a_dead_letter(tmp_path: Path) -> None:
    kept = Kept(tmp_path, _PLAIN)
    kept.put_at(1, {"k": 1, "v": "a"})
    kept.put_at(2, {"k": 1, "v": "b", "valid_to": "never"})
    kept.catch_up()
    assert kept.versions() == [(1, 1, None, "a")]
    ((kind, message),) = kept.dead_letters()
    assert kind == "name_conflict"
    assert "valid_to" in message
    kept = Kept(tmp_path / "renamed", f"{_PLAIN}, metadata: {{valid_to: until}}")
    kept.put_at(1, {"k": 1, "v": "a", "valid_to": "never"})
    kept.put_at(2, {"k": 1, "v": "b", "valid_to": "never"})
    kept.catch_up()
    rows = kept.table_rows("k", "v", "valid_to", "is_current")
    assert rows == [(1, "a", "never", False), (1, "b", "never", True)]


@pytest.mark.parametrize(
    ("stopped", "reason", "remedy", "mended"),
    [
        (
            f"{_PLAIN}, order_by: n",
            "`order_by: n` has the type long, and with `mode: history`",
            "declare the column, `columns: {n: timestamptz}`",
            f"{_PLAIN}, order_by: n, columns: {{n: timestamptz(s)}}",
        ),
        (f"{_PLAIN}, metadata: {{offset: at}}, order_by: n", "`order_by: n` has the type long", "declare", _PLAIN),
    ],
)
def test_a_table_whose_order_is_no_time_continues_once_the_remedy_is_done(
    tmp_path: Path, stopped: str, reason: str, remedy: str, mended: str
) -> None:
    kept = Kept(tmp_path, stopped)
    kept.put_at(5, {"k": 1, "n": 5, "v": "a"})
    table = kept.catch_up()
    assert table.status.run_state is RunState.STOPPED
    assert table.status.reason.startswith(reason)
    assert table.status.remedy.startswith(remedy)
    again = Kept(tmp_path / "again", mended)
    again.source.by_name["a"] = kept.source.by_name["a"]
    again.catch_up()
    assert again.versions() == [(1, 5, None, "a")]


def test_a_text_that_orders_versions_is_refused_before_the_table_has_it(tmp_path: Path, queries: SparkQueries) -> None:
    settings = f"{_PLAIN}, order_by: at, columns: {{k: long, v: string}}"
    grown = Kept(tmp_path / "g", settings)
    grown.put_at(1, {"k": 1, "v": "a", "at": _at(5)})
    table = grown.catch_up()
    assert (table.status.run_state, table.status.remedy[:18]) == (RunState.STOPPED, "declare the column")
    assert "at" not in grown.columns()
    mended = Kept(tmp_path / "m", f"{settings[:-1]}, at: timestamptz}}").spec
    grown.spec = grown.spec.model_copy(update={"tables": mended.tables})
    grown.catch_up()
    assert grown.versions() == [(1, 5, None, "a")]
    select = "select k, v, {} from records"
    asked = "mode: history, key_columns: [k], order_by: at"
    queried = Grouped(tmp_path / "q", queries, select.format("at"), asked)
    queried.put({"k": 1, "v": "a", "at": _at(5)})
    table = queried.catch_up()
    assert (table.status.run_state, table.status.remedy[:28]) == (RunState.STOPPED, "make a time of it in the que")
    assert queried.catalog.load("n.t") is None
    mended = Grouped(tmp_path / "c", queries, select.format("cast(at as timestamp) as at"), asked).spec
    queried.spec = queried.spec.model_copy(update={"tables": mended.tables})
    queried.catch_up()
    assert [moment.second for (moment,) in queried.table_rows("valid_from")] == [5]


def test_a_table_with_rows_that_are_no_versions_stops_and_a_table_of_its_own_has_them(tmp_path: Path) -> None:
    others = Kept(tmp_path, "mode: upsert, key_columns: [k], key: {format: json}")
    others.put_at(1, {"k": 1, "v": "a"})
    others.catch_up()
    kept = Kept(tmp_path / "kept", _PLAIN)
    kept.source, kept.catalog, kept.jobs = others.source, others.catalog, others.jobs
    kept.put_at(2, {"k": 1, "v": "b"})
    table = kept.catch_up()
    assert table.status.run_state is RunState.STOPPED
    assert table.status.reason == "the table has rows without a time in `valid_from`: they are not versions"
    assert table.status.remedy.startswith("give the history a table of its own")
    again = Kept(tmp_path / "again", _PLAIN)
    again.source.by_name["a"] = others.source.by_name["a"]
    again.catch_up()
    assert again.versions() == [(1, 1, 2, "a"), (1, 2, None, "b")]


def test_a_version_is_identified_by_its_key_and_its_start(tmp_path: Path) -> None:
    kept = Kept(tmp_path, f"{_PLAIN}, format_version: 3")
    kept.put_at(1, {"k": 1, "v": "a"})
    kept.catch_up()
    state = kept.catalog.load("n.t")
    assert state is not None
    names = [state.schema.find_column_name(number) for number in state.schema.identifier_field_ids]
    assert names == ["k", "valid_from"]


def test_a_version_that_is_closed_during_a_compaction_is_found_in_the_new_file(tmp_path: Path) -> None:
    kept = Kept(tmp_path, f"{_PLAIN}, format_version: 3")
    kept.put_at(1, {"k": 1, "v": "a"})
    kept.put_at(2, {"k": 1, "v": "b"})
    kept.catch_up()
    before = kept.catalog.scan("n.t").files
    kept.put_at(3, {"k": 1, "v": "c"})
    target = target_of(kept.catch_up())
    (path,) = (file.path for file in before)
    now = [file for file in kept.catalog.scan("n.t").files if file.path == path]
    writer = FileWriter(target)
    writer.write(pq.read_table(path).select(target.arrow_schema.names).cast(target.arrow_schema)[::-1])
    (compacted,) = (LiveFile(file.path, file.record_count, file.content) for file in writer.finish())
    deletes = transfer_deletes(target, 3, before, now, [compacted])
    assert deletes is not None
    (row,) = read_deletes(target, compacted.path, tuple(deletes))
    assert pq.read_table(compacted.path).slice(row, 1).to_pylist()[0]["v"] == "b"


def test_files_of_versions_that_have_ended_before_are_not_read(tmp_path: Path) -> None:
    kept = Kept(tmp_path, f"{_PLAIN}, partition_by: [is_current]")
    for number in range(1, 5):
        kept.put_at(number, {"k": 1, "v": number})
        table = kept.catch_up()
    assert table.changes.resolved is not None
    assert (table.changes.resolved.files, table.changes.resolved.inspected) == (5, 3)
    assert kept.versions() == [(1, 1, 2, 1), (1, 2, 3, 2), (1, 3, 4, 3), (1, 4, None, 4)]


@pytest.mark.parametrize("is_cut", [True, False])
def test_maps_in_another_order_and_zeros_of_another_sign_make_no_version(tmp_path: Path, is_cut: bool) -> None:
    columns = 'columns: {k: long, v: "struct<m: map<string, list<double>>, n: double>"}'
    kept = Kept(tmp_path, f"{_PLAIN}, {columns}")
    values = [
        {"m": {"a": [0.0], "b": [1.0]}, "n": 0.0},
        {"m": {"b": [1.0], "a": [-0.0]}, "n": -0.0},
        {"m": {"b": [1.0], "a": [0.5]}, "n": 0.0},
        {"m": {"a": [0.5]}, "n": 0.0},
        {"m": None, "n": 0.0},
    ]
    for second, value in enumerate(values, start=1):
        kept.put_at(second, {"k": 1, "v": value})
        if is_cut:
            kept.catch_up()
    kept.catch_up()
    assert [(start, end) for _, start, end, _ in kept.versions()] == [(1, 3), (3, 4), (4, 5), (5, None)]


def test_a_truncate_is_a_dead_letter_also_beside_a_bad_record_with_a_new_field(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "mode: history, key_columns: [k], envelope: debezium")
    kept.put_at(1, {"op": "c", "before": None, "after": {"k": 1, "v": "a"}, "source": {"ts_ms": 1000}}, key={"k": 1})
    kept.catch_up()
    kept.put_at(2, {"op": "c", "before": None, "after": {"k": 2, "v": "b"}, "source": {"ts_ms": 2000}}, key={"k": 2})
    kept.put_at(3, {"op": "c", "before": None, "after": {"k": None, "new": 5}}, key={"k": None})
    kept.put_at(4, {"op": "t", "source": {}})
    assert kept.catch_up().status.run_state is not RunState.STOPPED
    assert kept.versions() == [(1, 1, None, "a"), (2, 2, None, "b")]
    assert [name for name, _ in kept.dead_letters()] == ["missing_key", "unknown_operation"]
