"""Tasks of tables whose records wrap changes."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from frazil.dead_letters.record import DEAD_LETTER_TYPES
from frazil.decode.settings import Envelope, Reading
from frazil.ingest.tasks.task_job import Job
from frazil.report import TaskReport, merge_reports
from frazil.schema.evolve import load_requested_fields
from frazil.schema.projection import Shaping
from frazil.write.target import ChangeReading
from tests.unit.ingest.targets import records_of, run, target_of

LOG = Envelope("debezium", is_log=True)
ROWS = Envelope("debezium")
READING = Reading(on_bad="dead_letter")


def _value(op: str, before: Any = None, after: Any = None, **source: Any) -> bytes:
    return json.dumps({"op": op, "before": before, "after": after, "source": source}).encode()


def _rows(report: TaskReport) -> list[dict[str, Any]]:
    return [row for file in report.written.data for row in pq.read_table(file.path).to_pylist()]


def _rows_of(paths: list[str]) -> list[dict[str, Any]]:
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def test_every_image_of_a_change_is_a_row_with_the_place_of_its_record(tmp_path: Path) -> None:
    target = target_of(
        tmp_path, {"id": "long"}, metadata=("offset", "op", "image", "source_ts"), envelope=LOG, reading=READING
    )
    values = [_value("u", {"id": 1}, {"id": 2}, ts_ms=1), b'{"ts_ms":1}', None, _value("d", {"id": 2}, ts_ms=2)]
    batch = records_of([{"offset": 10 + n, "value": value} for n, value in enumerate(values)])
    (report,) = run(Job({"a": target}), batch).values()
    found = [(row["_offset"], row["_op"], row["_image"], row["id"]) for row in _rows(report)]
    assert found == [(10, "u", "before", 1), (10, "u", "after", 2), (13, "d", "before", 2)]
    assert [row["_source_ts"].microsecond for row in _rows(report)] == [1000, 1000, 2000]
    assert (report.counts.record_count, report.bad_records.count) == (4, 0)
    assert report.counts.ignored_records == {"heartbeat": 1, "tombstone": 1}


def test_a_table_of_rows_counts_the_deletes_that_it_passes_over(tmp_path: Path) -> None:
    target = target_of(tmp_path, {"id": "long"}, envelope=ROWS, reading=READING)
    batch = records_of([{"value": _value(op, {"id": 1}, {"id": 2} if op != "d" else None)} for op in "cudt"])
    (report,) = run(Job({"a": target}), batch).values()
    assert [row["id"] for row in _rows(report)] == [2, 2]
    assert report.counts.ignored_records == {"delete": 1, "truncate": 1}
    assert merge_reports("lake.t", [report, report]).counts.ignored_records == {"delete": 2, "truncate": 2}


def test_an_envelope_that_lies_becomes_a_dead_letter_and_its_neighbours_become_rows(tmp_path: Path) -> None:
    dead_letters = target_of(
        tmp_path, {name: str(kind) for name, kind in _dead_letter_columns()}, name="lake.dead_letters"
    )
    target = target_of(tmp_path, {"id": "long"}, envelope=LOG, reading=READING, dead_letters=dead_letters)
    values = [_value("c", after={"id": 1}), _value("?", after={"id": 2}), _value("c"), _value("c", after={"id": "x"})]
    keyed = [{"topic": "a", "offset": n, "key": b"k", "headers": [], "value": value} for n, value in enumerate(values)]
    (report,) = run(Job({"a": target}), records_of(keyed)).values()
    assert [row["id"] for row in _rows(report)] == [1]
    found = _rows_of([file.path for file in report.written.dead_letters])
    assert [(row["offset"], row["error_class"], row["path"]) for row in found] == [
        (1, "unknown_operation", None),
        (2, "missing_image", None),
        (3, "type_mismatch", "after.id"),
    ]
    assert found[0]["value"] == values[1]


def _dead_letter_columns() -> list[tuple[str, Any]]:
    words = {"headers": "list<struct<key: string, value: binary>>"}
    return [(name, words.get(name, kind)) for name, kind in DEAD_LETTER_TYPES.items()]


def test_a_new_column_of_the_row_is_wanted_by_its_path_in_the_row(tmp_path: Path) -> None:
    target = target_of(tmp_path, {"id": "long"}, envelope=LOG, reading=READING)
    batch = records_of([{"value": _value("u", {"id": 1, "old": "x"}, {"id": 1, "new": {"a": 1.5}})}])
    (report,) = run(Job({"a": target}), batch).values()
    (requested_fields,) = [load_requested_fields(text) for text in report.schema.requested_fields]
    assert {name: str(kind) for name, kind in requested_fields[()].items()}.keys() == {"old", "new"}
    assert report.written.data == ()


def test_fields_of_the_row_are_shaped_as_fields_of_a_record_are(tmp_path: Path) -> None:
    shaping = Shaping(fields=(("number", ("id",)),), constants=(("region", "eu"),), exclude=(("secret",),))
    columns = {"number": "long", "region": "string", "v": "string"}
    target = target_of(tmp_path, columns, envelope=LOG, reading=READING, shaping=shaping, metadata=("image",))
    row = {"id": 7, "v": "x", "secret": 1}
    batch = records_of([{"value": _value("u", {**row, "v": "w"}, row, connector="mysql")}])
    (report,) = run(Job({"a": target}), batch).values()
    assert _rows(report) == [
        {"number": 7, "region": "eu", "v": "w", "_image": "before"},
        {"number": 7, "region": "eu", "v": "x", "_image": "after"},
    ]


def test_names_made_from_paths_are_found_in_the_row(tmp_path: Path) -> None:
    target = target_of(
        tmp_path, {"user_id": "long"}, envelope=ROWS, reading=READING, shaping=Shaping(depth=1, case="snake")
    )
    batch = records_of([{"value": _value("c", after={"user": {"id": 1}})}])
    (report,) = run(Job({"a": target}), batch).values()
    assert [load_requested_fields(text)[("user",)].keys() for text in report.schema.requested_fields] == [{"id"}]


def test_records_that_are_all_skipped_make_no_file_and_hold_nothing_up(tmp_path: Path) -> None:
    target = target_of(tmp_path, {"id": "long"}, envelope=LOG, reading=READING)
    (report,) = run(Job({"a": target}), records_of([{"value": None}, {"value": b'{"ts_ms":1}'}])).values()
    assert (
        report.written.data,
        report.schema.requested_fields,
        report.bad_records.count,
        report.counts.record_count,
    ) == ((), (), 0, 2)


@pytest.mark.parametrize("values", list(permutations([None, None, _value("c", after={"id": 1}), _value("c")])))
def test_stretches_without_a_change_are_no_part_of_what_a_task_folds(
    tmp_path: Path, values: tuple[bytes | None, ...]
) -> None:
    upsert_table = Envelope("debezium", is_upsert=True, keys=(("id",),))
    changes = ChangeReading(Reading(format="json"), ("id",))
    dead_letters = target_of(
        tmp_path, {name: str(kind) for name, kind in _dead_letter_columns()}, name="lake.dead_letters"
    )
    target = target_of(
        tmp_path, {"id": "long"}, envelope=upsert_table, changes=changes, reading=READING, dead_letters=dead_letters
    )
    keyed: list[dict[str, Any]] = [
        {"topic": "a", "offset": n, "key": None, "headers": [], "value": value} for n, value in enumerate(values)
    ]
    (report,) = run(Job({"a": target}), *(records_of([one]) for one in keyed)).values()
    assert [row["id"] for row in _rows(report)] == [1]
    assert (report.counts.record_count, report.bad_records.count, report.written.dead_letter_count) == (4, 1, 1)
    assert [touched.change_count for touched in report.changes.touched] == [1]
    (report,) = run(Job({"a": target}), *(records_of([one]) for one in keyed if one["value"] is None)).values()
    assert (report.written.data, report.changes.touched, report.counts.ignored_records) == ((), (), {"tombstone": 2})
