"""One task, start to end, on Arrow batches: no Spark, no Kafka."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType

from frazil import failpoints
from frazil.ingest.evolve import load_wanted
from frazil.ingest.task import HEAVY_PARTITION, Job, run_task, source_columns
from frazil.spec.models import METADATA_COLUMNS
from frazil.types import BadRecord, TaskReport
from tests.unit.ingest.targets import records_of, run, target_of


def _rows(report: TaskReport) -> list[dict[str, Any]]:
    return [row for file in report.files for row in pq.read_table(file.path).to_pylist()]


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
    assert (report.record_count, report.latest_ms) == (4, {"a": {0: 9000, 2: 7000}})


def test_a_record_that_was_left_out_for_its_size_sends_the_batch_back(tmp_path: Path) -> None:
    job = Job({"a": target_of(tmp_path, {"id": "long"})})
    first = records_of([{"value": _value(id=1)}, {"value": _value(id=23)}])
    assert run(job, first)["lake.t"].largest_bytes == len(_value(id=23))
    assert run(job, first)["lake.t"].value_bytes == len(_value(id=1) + _value(id=23))
    before = list(tmp_path.rglob("*.parquet"))
    report = run(job, first, records_of([{"partition": HEAVY_PARTITION, "value": None}]), first)["lake.t"]
    assert (report.has_heavy, report.files, report.bad) == (True, (), ())
    assert list(tmp_path.rglob("*.parquet")) == before


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


def test_metadata_columns_belong_to_their_own_record_in_a_batch_of_several_topics(tmp_path: Path) -> None:
    metadata = tuple(METADATA_COLUMNS)
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
                "id": n, "_topic": topic, "_partition": 1, "_offset": 10 + n,
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
    assert reports["lake.a"].files == ()
    assert (reports["lake.a"].bad_count, reports["lake.a"].bad) == (
        2,
        (
            BadRecord("a", 3, 71, "id", 'string "x" does not fit long'),
            BadRecord("a", 3, 75, "", "the record has no value (a tombstone), so it is not a JSON object"),
        ),
    )
    assert _rows(reports["lake.b"]) == [{"id": 2}]
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


def test_a_batch_after_a_bad_one_writes_nothing_and_removes_what_there_was(tmp_path: Path) -> None:
    job = Job({"a": target_of(tmp_path, {"id": "long"}, target_file_size_bytes=1)})
    good, bad = records_of([{"value": _value(id=1)}]), records_of([{"value": b"no"}])
    report = run(job, good, bad, good)["lake.t"]
    assert (report.files, report.bad_count, report.record_count) == ((), 1, 3)
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_new_field_is_wanted_and_no_file_is_written(tmp_path: Path) -> None:
    job = Job({"a": target_of(tmp_path, {"id": "long"})})
    batch = records_of([{"value": _value(id=1, new=2)}])
    report = run(job, batch, batch)["lake.t"]
    assert [load_wanted(text) for text in report.wanted] == [{(): {"new": LongType()}}]
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_table_that_drops_undeclared_fields_writes_and_says_which(tmp_path: Path) -> None:
    report = run(
        Job({"a": target_of(tmp_path, {"id": "long"}, undeclared="drop")}), records_of([{"value": _value(id=1, new=2)}])
    )["lake.t"]
    assert (_rows(report), report.wanted, report.dropped) == ([{"id": 1}], (), frozenset({"new"}))


def test_a_trial_only_looks(tmp_path: Path) -> None:
    target = target_of(tmp_path, {})
    report = run(Job({"a": target}, frozenset({target.name})), records_of([{"value": _value(id=1)}]))["lake.t"]
    assert [load_wanted(text) for text in report.wanted] == [{(): {"id": LongType()}}]
    assert (report.files, report.record_count) == ((), 1)


def test_a_task_without_records_reports_nothing(tmp_path: Path) -> None:
    job = Job({"a": target_of(tmp_path, {"id": "long"})})
    assert run(job) == {}
    assert run(job, records_of([{"value": _value()}]).slice(0, 0)) == {}


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
    assert source_columns(Job({"a": plain}), with_offsets=False) == ["partition", "timestamp", "value"]
    assert source_columns(Job({"a": plain}), with_offsets=True) == ["partition", "offset", "timestamp", "value"]
    assert source_columns(Job({"a": plain, "b": full}), with_offsets=False) == [
        "topic", "partition", "offset", "timestamp", "key", "value",
    ]  # fmt: skip
