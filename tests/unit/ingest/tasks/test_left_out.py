"""Records whose values were left out for their size: a dead letter of each of their tables, and nothing else is touched."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.dead_letters.record import DEAD_LETTER_TYPES
from frazil.decode.settings import Reading
from frazil.error_classes import ErrorClass
from frazil.ingest.tasks.task_job import FLOOR_BYTES, MOST_VALUE_BYTES, Job, most_value_bytes
from frazil.kafka.fetch.columns import LEFT_OUT
from frazil.report import TaskReport
from frazil.routes.share import Division, Share, parse_template
from frazil.schema.evolve import new_schema
from frazil.types import BadRecord, DataFile
from frazil.write.target import TableQuery, TableTarget
from tests.unit.ingest.targets import records_of, run, target_of

MIB = 1024 * 1024
HUGE = 400 * MIB
WORDS = f"the value has {HUGE} bytes, and `limits.record_size` allows {{}}: it was not read, and only Kafka has it"


def target(folder: Path, name: str, limit: int = 16 * MIB, **other: Any) -> TableTarget:
    reading = Reading(max_record_bytes=limit, on_bad="dead_letter")
    bad_records = target_of(
        folder, {}, name=f"{name}.bad", schema_json=new_schema(DEAD_LETTER_TYPES.items()).model_dump_json()
    )
    return target_of(
        folder, {"id": "long", "kind": "string"}, name=name, reading=reading, dead_letters=bad_records, **other
    )


def records(*sizes: int, partition: int = 0, **other: Any) -> pa.RecordBatch:
    """A record of each size at the offsets from 5 on; those of 0 have a value."""
    rows = [
        {
            "topic": "t", "partition": partition, "offset": 5 + n, "timestamp": 1_000_000 * n, "key": b"k%d" % n,
            "headers": [{"key": "h", "value": b"x"}], "value": None if size else json.dumps({"id": n, **other}).encode(),
        }
        for n, size in enumerate(sizes)
    ]  # fmt: skip
    batch = records_of(rows)
    return batch.append_column(LEFT_OUT, pa.array(sizes, pa.int64())) if any(sizes) else batch


def rows_of(files: tuple[DataFile, ...]) -> list[dict[str, Any]]:
    return [row for file in files for row in pq.read_table(file.path).to_pylist()]


def dead(report: TaskReport) -> list[tuple[Any, ...]]:
    names = ("offset", "key", "value", "error_class", "message", "headers")
    return [tuple(row[name] for name in names) for row in rows_of(report.written.dead_letters)]


def test_an_oversized_record_is_a_dead_letter_without_its_value(tmp_path: Path) -> None:
    job = Job({"t": target(tmp_path, "lake.t")})
    report = run(job, records(0), records(0, HUGE, 0), records(0))["lake.t"]
    assert [row["id"] for row in rows_of(report.written.data)] == [0, 0, 2, 0]
    assert dead(report) == [(6, b"k1", None, "too_large", WORDS.format(16 * MIB), [{"key": "h", "value": b"x"}])]
    assert (report.counts.record_count, report.counts.written_count, report.counts.row_count) == (5, 4, 4)
    assert report.bad_records.count == 1
    assert report.bad_records.first == (BadRecord("t", 0, 6, ErrorClass.TOO_LARGE, "", WORDS.format(16 * MIB)),)
    assert report.counts.latest_ms == {"t": {0: 2000}}


def test_each_table_of_the_topic_refuses_it_from_its_own_start_on(tmp_path: Path) -> None:
    one, two, three = (target(tmp_path, f"lake.{n}", (n + 1) * MIB) for n in range(3))
    starts = {"lake.1": {"t": {0: 7}}, "lake.2": {"t": {0: 0}}}
    reports = run(Job({"t": one}, beside={"t": (two, three)}, starts=starts), records(HUGE, 0, 0))
    assert {name: [one[4] for one in dead(report)] for name, report in reports.items()} == {
        "lake.0": [WORDS.format(MIB)],
        "lake.1": [],
        "lake.2": [WORDS.format(3 * MIB)],
    }
    assert [len(rows_of(reports[f"lake.{n}"].written.data)) for n in range(3)] == [2, 1, 2]


def test_a_batch_of_nothing_else_is_read(tmp_path: Path) -> None:
    report = run(Job({"t": target(tmp_path, "lake.t")}), records(HUGE, HUGE))["lake.t"]
    assert [one[0] for one in dead(report)] == [5, 6]
    assert report.written.data == ()


def test_of_a_route_the_table_of_the_rest_has_it(tmp_path: Path) -> None:
    division = Division("lake.rest", parse_template("lake.${kind}"), 10)
    rest = target(tmp_path, "lake.rest", share=Share(division))
    own = [target(tmp_path, f"lake.{kind}", share=Share(division, (kind,))) for kind in "ab"]
    batches = [records(0, 0, kind="a"), records(0, HUGE, 0, kind="b"), records(HUGE)]
    for first, *others in ([rest, *own], [*own, rest]):
        reports = run(Job({"t": first}, beside={"t": tuple(others)}), *batches)
        assert [one[0] for one in dead(reports["lake.rest"])] == [6, 5]
        assert [len(rows_of(reports[f"lake.{kind}"].written.data)) for kind in "ab"] == [2, 2]
        assert {report.read_count for report in reports.values()} == {6}
    reports = run(Job({"t": own[0]}, beside={"t": (own[1],)}), *batches)
    assert [reports[f"lake.{kind}"].bad_records.count for kind in "ab"] == [0, 0]


def test_where_bad_records_stop_the_table_nothing_is_written(tmp_path: Path) -> None:
    stopping = target(tmp_path, "lake.t")
    stopping = replace(stopping, reading=replace(stopping.reading, on_bad="stop"), dead_letters=None)
    batch = records(0, HUGE).drop_columns(["offset", "topic", "key", "headers"])
    report = run(Job({"t": stopping}), batch)["lake.t"]
    assert (report.written.data, report.bad_records.count) == ((), 1)
    assert report.bad_records.first == (BadRecord("t", 0, -1, ErrorClass.TOO_LARGE, "", WORDS.format(16 * MIB)),)


def test_above_the_most_that_is_read_the_limit_of_the_table_is_not_blamed(tmp_path: Path) -> None:
    job = Job({"t": target(tmp_path, "lake.t", 1024 * MIB)})
    report = run(job, records(600 * MIB))["lake.t"]
    assert report.bad_records.first[0].reason == (
        f"the value has {600 * MIB} bytes, and no more than {MOST_VALUE_BYTES} are ever read: it was not read, and only"
        " Kafka has it"
    )


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ([MIB], FLOOR_BYTES),
        ([MIB, 100 * MIB], 100 * MIB),
        ([MIB, 1024 * MIB], MOST_VALUE_BYTES),
    ],
)
def test_a_job_reads_what_one_of_its_tables_allows(tmp_path: Path, limits: list[int], most: int) -> None:
    first, *others = (target(tmp_path, f"lake.{n}", limit) for n, limit in enumerate(limits))
    assert most_value_bytes(Job({"t": first}, beside={"t": tuple(others)})) == most


def test_the_limit_of_a_query_is_that_of_its_source(tmp_path: Path) -> None:
    query = TableQuery(target(tmp_path, "lake.t", 64 * MIB))
    made = replace(target(tmp_path, "lake.t", MIB), query=query)
    assert most_value_bytes(Job({"t": made})) == 64 * MIB
