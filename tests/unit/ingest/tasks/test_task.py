"""One task, start to end, on Arrow batches: no Spark, no Kafka."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType

from frazil import __version__, failpoints
from frazil.dead_letters.record import DEAD_LETTER_TYPES
from frazil.decode.settings import Reading
from frazil.error_classes import ErrorClass
from frazil.ingest.tasks.task import run_task
from frazil.ingest.tasks.task_job import Job, source_columns
from frazil.report import TaskReport
from frazil.schema.evolve import load_requested_fields, new_schema
from frazil.spec.settings import METADATA_COLUMNS, LimitsSpec
from frazil.types import BadRecord
from frazil.write.target import METADATA_TYPES, TableFiles, TableTarget
from tests.unit.ingest.targets import changed, records_of, run, target_of

REMEDY = ": a new table with `numbers: double`, or with double where the column is declared, takes it"


def _rows(report: TaskReport) -> list[dict[str, Any]]:
    return [row for file in report.written.data for row in pq.read_table(file.path).to_pylist()]


def _value(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_records_become_rows_and_the_latest_times_are_reported(tmp_path: Path) -> None:
    job = Job({"a": target_of(tmp_path, {"id": "long"})})
    batch = records_of(
        [
            {"partition": 0, "timestamp": 5_000_999, "value": _value(id=1)},
            {"partition": 0, "timestamp": 3_000_000, "value": _value(id=2)},
            {"partition": 2, "timestamp": 7_000_000, "value": _value(id=3)},
        ]
    )
    report = run(job, batch, records_of([{"partition": 0, "timestamp": 9_000_000, "value": _value()}]))["lake.t"]
    assert _rows(report) == [{"id": 1}, {"id": 2}, {"id": 3}, {"id": None}]
    assert (report.counts.record_count, report.counts.latest_ms) == (4, {"a": {0: 9000, 2: 7000}})
    assert report.counts.value_bytes == 3 * len(_value(id=1)) + len(_value())


def test_several_topics_share_a_batch_and_two_may_feed_one_table(tmp_path: Path) -> None:
    one, two = (
        target_of(tmp_path, {"id": "long"}, name=f"lake.{name}", metadata=("topic",)) for name in ("one", "two")
    )
    topics = ["a", "a", "b", "c", "a"]
    batch = records_of([{"topic": topic, "value": _value(id=n)} for n, topic in enumerate(topics)])
    reports = run(Job({"a": one, "b": two, "c": one}), batch)
    assert _rows(reports["lake.one"]) == [
        {"id": 0, "_topic": "a"}, {"id": 1, "_topic": "a"}, {"id": 3, "_topic": "c"}, {"id": 4, "_topic": "a"},
    ]  # fmt: skip
    assert _rows(reports["lake.two"]) == [{"id": 2, "_topic": "b"}]


def test_a_topic_may_feed_several_tables_each_from_where_its_own_records_begin(tmp_path: Path) -> None:
    one, two, three = (
        target_of(tmp_path, {"id": "long"}, name=f"lake.{name}", reading=Reading(on_bad=on_bad))
        for name, on_bad in (("one", "skip"), ("two", "stop"), ("three", "skip"))
    )
    job = Job(
        {"a": one}, beside={"a": (two, three)}, starts={"lake.two": {"a": {0: 6, 1: 0}}, "lake.three": {"a": {1: 8}}}
    )
    assert source_columns(job) == ["partition", "offset", "timestamp", "value"]
    places = [(0, 5), (0, 6), (1, 7), (1, 8)]
    batch = records_of([{"partition": p, "offset": o, "value": _value(id=o)} for p, o in places])
    reports = run(job, batch, batch.slice(0, 1))
    assert {name: [row["id"] for row in _rows(report)] for name, report in reports.items()} == {
        "lake.one": [5, 6, 7, 8, 5], "lake.two": [6, 7, 8], "lake.three": [8],
    }  # fmt: skip
    assert reports["lake.three"].counts.latest_ms == {"a": {1: 0}}
    bad = records_of(
        [{"partition": 0, "offset": 9, "value": b"x"}, {"partition": 1, "offset": 9, "value": _value(id=9)}]
    )
    reports = run(job, bad)
    mine = [reports[f"lake.{name}"] for name in ("one", "two", "three")]
    assert [(one.bad_records.count, len(one.written.data)) for one in mine] == [(1, 1), (1, 0), (0, 1)]


def test_metadata_columns_belong_to_their_own_record_in_a_batch_of_several_topics(tmp_path: Path) -> None:
    metadata = tuple(field for field in METADATA_COLUMNS if field in METADATA_TYPES)
    targets = {name: target_of(tmp_path, {"id": "long"}, name=f"lake.{name}", metadata=metadata) for name in "ab"}
    rows = [
        {
            "topic": topic, "partition": 1, "offset": 10 + n, "timestamp": n, "key": b"k%d" % n if n % 2 else None,
            "headers": [{"key": f"h{n}", "value": b"v"}, {"key": "e", "value": None}][: n % 3] if n else None,
            "value": _value(id=n),
        }
        for n, topic in enumerate("aabbab")
    ]  # fmt: skip
    reports = run(Job(targets), records_of(rows))
    for topic in "ab":
        assert _rows(reports[f"lake.{topic}"]) == [
            {
                "id": n, "_topic": topic, "_kafka_partition": 1, "_offset": 10 + n,
                "_timestamp": datetime.fromtimestamp(0, UTC).replace(microsecond=n),
                "_headers": row["headers"], "_key": row["key"],
            }
            for n, row in enumerate(rows) if row["topic"] == topic
        ]  # fmt: skip


def test_a_bad_record_is_reported_by_its_place_and_its_table_has_no_files(tmp_path: Path) -> None:
    targets = {name: target_of(tmp_path, {"id": "long"}, name=f"lake.{name}") for name in "ab"}
    batch = records_of(
        [
            {"topic": "a", "partition": 3, "offset": 70, "value": _value(id=1)},
            {"topic": "a", "partition": 3, "offset": 71, "value": _value(id="x")},
            {"topic": "a", "partition": 3, "offset": 75, "value": None},
            {"topic": "b", "partition": 0, "offset": 5, "value": _value(id=2)},
        ]
    )
    reports = run(Job(targets), batch)
    assert reports["lake.a"].written.data == ()
    assert (reports["lake.a"].bad_records.count, reports["lake.a"].bad_records.first) == (
        2,
        (
            BadRecord("a", 3, 71, ErrorClass.TYPE_MISMATCH, "id", 'string "x" does not fit long'),
            BadRecord(
                "a",
                3,
                75,
                ErrorClass.TOMBSTONE,
                "",
                "the record has no value (a tombstone), so it is not a JSON object",
            ),
        ),
    )
    assert _rows(reports["lake.b"]) == [{"id": 2}]
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


def test_a_batch_after_a_bad_one_writes_nothing_and_removes_what_there_was(tmp_path: Path) -> None:
    job = Job({"a": target_of(tmp_path, {"id": "long"}, target_file_size_bytes=1)})
    good, bad = records_of([{"value": _value(id=1)}]), records_of([{"value": b"no"}])
    report = run(job, good, bad, good)["lake.t"]
    assert (report.written.data, report.bad_records.count, report.counts.record_count) == ((), 1, 3)
    assert list(tmp_path.rglob("*.parquet")) == []


def _owner_of_dead_letter_table(folder: Path) -> TableTarget:
    return TableTarget(
        name="lake.t__dead_letters",
        schema_json=new_schema(DEAD_LETTER_TYPES.items()).model_dump_json(),
        files=TableFiles(str(folder / "dead_letters"), target_file_size_bytes=2**27),
    )


def _mixed() -> pa.RecordBatch:
    """Good and bad records, the bad ones more than a report would name."""
    rows = [
        {
            "offset": n,
            "timestamp": n * 1_000_000,
            "key": b"k%d" % n,
            "headers": [{"key": "h", "value": b"v%d" % n}],
            "value": _value(id=n) if n % 2 else b'{"id": "x%d"}' % n,
        }
        for n in range(100)
    ]
    return records_of(rows)


def test_bad_records_wait_until_there_is_a_place_for_them(tmp_path: Path) -> None:
    job = Job({"a": target_of(tmp_path, {"id": "long"}, reading=Reading(on_bad="dead_letter"))})
    report = run(job, _mixed())["lake.t"]
    assert (
        report.bad_records.count,
        report.written.dead_letter_count,
        report.written.data,
        report.written.dead_letters,
    ) == (50, 0, (), ())
    assert list(tmp_path.rglob("*.parquet")) == []


def test_bad_records_become_dead_letters_with_all_that_kafka_had_of_them_and_good_ones_rows(tmp_path: Path) -> None:
    dead_letters = _owner_of_dead_letter_table(tmp_path)
    job = Job(
        {"a": target_of(tmp_path, {"id": "long"}, reading=Reading(on_bad="dead_letter"), dead_letters=dead_letters)}
    )
    assert source_columns(job) == [
        "partition", "offset", "timestamp", "key", "headers", "value",
    ]  # fmt: skip
    report = run(job, _mixed())["lake.t"]
    assert _rows(report) == [{"id": n} for n in range(1, 100, 2)]
    assert (report.counts.record_count, report.bad_records.count, report.written.dead_letter_count) == (100, 50, 50)
    found = [row for file in report.written.dead_letters for row in pq.read_table(file.path).to_pylist()]
    assert [row["offset"] for row in found] == list(range(0, 100, 2))
    assert found[2] == {
        "topic": "a",
        "partition": 0,
        "offset": 4,
        "timestamp": datetime(1970, 1, 1, 0, 0, 4, tzinfo=UTC),
        "timestamp_ms": None,
        "key": b"k4",
        "value": b'{"id": "x4"}',
        "headers": [{"key": "h", "value": b"v4"}],
        "schema_id": None,
        "error_class": "type_mismatch",
        "message": 'string "x4" does not fit long',
        "path": "id",
        "retries": 0,
        "frazil_version": __version__,
    }
    assert {row["message"] for row in found} == {f'string "x{n}" does not fit long' for n in range(0, 100, 2)}


def test_bad_records_may_be_left_out_and_are_counted(tmp_path: Path) -> None:
    job = Job({"a": target_of(tmp_path, {"id": "long"}, reading=Reading(on_bad="skip"))})
    report = run(job, _mixed())["lake.t"]
    assert (_rows(report), report.bad_records.count) == ([{"id": n} for n in range(1, 100, 2)], 50)


def test_what_does_not_fit_is_rescued_and_the_rest_of_its_record_is_a_row(tmp_path: Path) -> None:
    columns = {"id": "long", "where": "struct<zip: string>", "tags": "list<long>", "_rescued": "string"}
    reading = Reading(unknown_fields="rescue", is_rescuing=True, on_bad="skip")
    values = [
        {"id": 1, "where": {"zip": "1"}, "tags": [1]},
        {"id": "x", "where": {"zip": 5, "city": "B"}, "tags": [1, "a", None, 2.5], "new": {"a": [1, None]}},
        {"id": 3, "new": None},
        {"id": 4, "more": "m", "where": 7},
    ]
    batch = records_of([{"value": json.dumps(value).encode()} for value in values] + [{"value": b"{"}])
    report = run(Job({"a": target_of(tmp_path, columns, reading=reading)}), batch)["lake.t"]
    rows = _rows(report)
    assert [
        row.pop("_rescued") and json.loads(row_text)
        for row, row_text in zip(rows, [r["_rescued"] for r in rows], strict=True)
    ] == [
        None,
        {
            "id": {"value": "x", "reason": 'string "x" does not fit long'},
            "where.zip": {"value": 5, "reason": "integer 5 does not fit string"},
            "tags.element": {"value": "a", "reason": 'string "a" does not fit long'},
            "tags.element#2": {"value": 2.5, "reason": "number 2.5 is not a whole number, as long needs" + REMEDY},
            "where.city": {"value": "B", "reason": "unknown_field"},
            "new": {"value": {"a": [1, None]}, "reason": "unknown_field"},
        },
        None,
        {
            "where": {"value": 7, "reason": "integer 7 does not fit struct"},
            "more": {"value": "m", "reason": "unknown_field"},
        },
    ]
    assert rows == [
        {"id": 1, "where": {"zip": "1"}, "tags": [1]},
        {"id": None, "where": {"zip": None}, "tags": [1, None, None, None]},
        {"id": 3, "where": None, "tags": None},
        {"id": 4, "where": None, "tags": None},
    ]
    assert report.bad_records.count == 1


def test_a_value_beyond_the_limit_is_refused_unread_in_every_format(tmp_path: Path) -> None:
    large = b'{"id": 2, "text": "' + b"x" * 100 + b'"}'
    batch = records_of([{"value": _value(id=1)}, {"value": large}, {"value": b"{"}, {"value": _value(id=3)}])
    reading = Reading(on_bad="skip", max_record_bytes=50)
    report = run(Job({"a": target_of(tmp_path, {"id": "long"}, reading=reading)}), batch)["lake.t"]
    assert (_rows(report), [bad.kind for bad in report.bad_records.first]) == (
        [{"id": 1}, {"id": 3}],
        ["too_large", "malformed"],
    )
    reading = Reading(format="text", on_bad="skip", max_record_bytes=50)
    report = run(Job({"a": target_of(tmp_path, {"value": "string"}, reading=reading)}), batch)["lake.t"]
    assert [row["value"] for row in _rows(report)] == ['{"id": 1}', "{", '{"id": 3}']


def test_a_record_beyond_the_usual_limit_is_a_dead_letter_with_all_of_it(tmp_path: Path) -> None:
    large, key = b'{"id": 2, "text": "' + b"x" * (17 * 2**20) + b'"}', b"k" * 2**20
    usual = Reading(on_bad="dead_letter", max_record_bytes=LimitsSpec().record_bytes)
    target = target_of(tmp_path, {"id": "long"}, reading=usual, dead_letters=_owner_of_dead_letter_table(tmp_path))
    kept: dict[str, Any] = {"topic": "a", "key": key, "headers": []}
    batch = records_of(
        [{"offset": n, "value": value, **kept} for n, value in enumerate([_value(id=1), large, _value(id=3)])]
    )
    report = run(Job({"a": target}), batch)["lake.t"]
    assert _rows(report) == [{"id": 1}, {"id": 3}]
    [dead_letter] = [row for file in report.written.dead_letters for row in pq.read_table(file.path).to_pylist()]
    assert (dead_letter["offset"], dead_letter["error_class"], dead_letter["key"]) == (1, "too_large", key)
    assert dead_letter["value"] == large


def test_a_table_that_may_not_change_refuses_records_with_new_fields(tmp_path: Path) -> None:
    target = target_of(tmp_path, {"id": "long"}, reading=Reading(unknown_fields="refuse", on_bad="skip"))
    batch = records_of([{"value": _value(id=1)}, {"value": _value(id=2, new=1)}, {"value": _value(id=3, new=None)}])
    report = run(Job({"a": target}), batch)["lake.t"]
    assert (_rows(report), report.schema.requested_fields) == ([{"id": 1}, {"id": 3}], ())
    assert [(bad.kind, bad.path) for bad in report.bad_records.first] == [("unknown_field", "new")]


def test_a_new_field_is_wanted_and_no_file_is_written(tmp_path: Path) -> None:
    job = Job({"a": target_of(tmp_path, {"id": "long"})})
    batch = records_of([{"value": _value(id=1, new=2)}])
    report = run(job, batch, batch)["lake.t"]
    assert [load_requested_fields(text) for text in report.schema.requested_fields] == [{(): {"new": LongType()}}]
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_table_that_drops_unknown_fields_writes_and_reports_which(tmp_path: Path) -> None:
    report = run(
        Job({"a": target_of(tmp_path, {"id": "long"}, reading=Reading(unknown_fields="drop"))}),
        records_of([{"value": _value(id=1, new=2)}]),
    )["lake.t"]
    assert (_rows(report), report.schema.requested_fields, report.schema.dropped) == (
        [{"id": 1}],
        (),
        frozenset({"new"}),
    )


def test_a_trial_only_looks(tmp_path: Path) -> None:
    target = target_of(tmp_path, {})
    report = run(Job({"a": target}, frozenset({target.name})), records_of([{"value": _value(id=1)}]))["lake.t"]
    assert [load_requested_fields(text) for text in report.schema.requested_fields] == [{(): {"id": LongType()}}]
    assert (report.written.data, report.counts.record_count) == ((), 1)


def test_a_task_without_records_reports_nothing(tmp_path: Path) -> None:
    job = Job({"a": target_of(tmp_path, {"id": "long"})})
    assert run(job) == {}
    assert run(job, records_of([{"value": _value()}]).slice(0, 0)) == {}


def test_rows_that_are_only_summed_are_in_no_file_and_have_the_same_digest(tmp_path: Path) -> None:
    batch = records_of([{"value": _value(id=1)}, {"value": b"{"}, {"value": _value(id=2)}])
    target = target_of(tmp_path, {"id": "long"}, reading=Reading(on_bad="skip"))
    written, summed = (
        run(Job({"a": changed(target, is_summed=is_summed)}), batch)["lake.t"] for is_summed in (False, True)
    )
    assert (len(_rows(written)), summed.written.data) == (2, ())
    assert written.written.row_count == summed.written.row_count == 2
    assert summed.counts == written.counts
    assert summed.counts.row_digest


def test_a_store_that_refuses_fails_the_task_and_leaves_nothing(tmp_path: Path) -> None:
    targets = {name: target_of(tmp_path, {"id": "long"}, name=f"lake.{name}") for name in "ab"}
    batch = records_of([{"topic": name, "value": _value(id=1)} for name in "ab"])
    failpoints.arm({failpoints.VARIABLE: "task.close=enospc@2"})
    try:
        with pytest.raises(OSError, match="No space left"):
            list(run_task(Job(targets), iter([batch])))
    finally:
        failpoints.arm({})
    assert list(tmp_path.rglob("*.parquet")) == []


def test_only_the_columns_that_are_used_are_asked_of_the_source(tmp_path: Path) -> None:
    plain = target_of(tmp_path, {"id": "long"})
    full = target_of(tmp_path, {"id": "long"}, name="lake.full", metadata=("key", "offset"))
    assert source_columns(Job({"a": plain})) == ["partition", "offset", "timestamp", "value"]
    assert source_columns(Job({"a": plain, "b": full})) == [
        "topic", "partition", "offset", "timestamp", "key", "value",
    ]  # fmt: skip
