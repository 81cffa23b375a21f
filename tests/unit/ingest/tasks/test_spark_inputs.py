"""The two stages of a task whose query Spark computes in part: what the first decodes, the second makes rows of, whatever
batches Spark cuts its values into.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from frazil import failpoints
from frazil.dead_letters.record import DEAD_LETTER_TYPES
from frazil.decode.columns import Decoded
from frazil.decode.settings import Reading
from frazil.error_classes import ErrorClass
from frazil.ingest.batches.job import _failure_of
from frazil.ingest.tasks.spark_inputs import STEP, first_pass, second_pass_of
from frazil.ingest.tasks.task_job import Job
from frazil.kafka.fetch.columns import LEFT_OUT
from frazil.queries.program import BY_SPARK, INPUT, Call, Field, Program, Project, SparkPart
from frazil.report import TaskReport, load_report
from frazil.routes.share import Division, Share, parse_template
from frazil.rows import decoder
from frazil.schema.evolve import new_schema
from frazil.types import BadRecord
from frazil.write.target import TableQuery, TableTarget
from tests.unit.ingest.targets import changed, records_of, run, target_of
from tests.unit.ingest.tasks.test_left_out import dead, rows_of

_A = Field("a", pa.string())
_VALUE = Field("\x01value0", pa.struct([("value", pa.string())]))
_PART = SparkPart(Program((Project((("a", _A),)),), (_A,)), (_VALUE,), b"", "")
_CALL = Call(BY_SPARK, (_VALUE, _A), pa.string(), (("inputs", '["a"]'),), "f(a)")
_PROGRAM = Program((Project((("b", _CALL),)),), (Field("b", pa.string()),), _PART)
_LEFT_OUT_BYTES = 400 * 1024 * 1024


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def target(tmp_path: Path) -> TableTarget:
    source = target_of(tmp_path, {"a": "string"})
    return target_of(tmp_path, {"b": "string"}, query=TableQuery(source, _PROGRAM))


@pytest.fixture
def with_dead_letters(target: TableTarget, tmp_path: Path) -> TableTarget:
    assert target.source is not None
    schema_json, reading = new_schema(DEAD_LETTER_TYPES.items()).model_dump_json(), Reading(on_bad="dead_letter")
    bad_records = target_of(tmp_path, {}, name="lake.bad", schema_json=schema_json)
    source = replace(target.source, reading=reading)
    return replace(target, query=TableQuery(source, _PROGRAM), reading=reading, dead_letters=bad_records)


def _records(*values: Any, first: int = 0, **columns: Any) -> pa.RecordBatch:
    texts = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    rows: Iterator[dict[str, Any]] = (
        {"value": text, "offset": n, "topic": "t", "key": None, "headers": None, **columns}
        for n, text in enumerate(texts, first)
    )
    return records_of(rows)


def _inputs(target: TableTarget, *batches: pa.RecordBatch) -> list[str | None]:
    found = pa.Table.from_batches(first_pass(Job({"t": target}), batches))
    texts: list[str | None] = found.column(INPUT.format(0)).to_pylist()
    return texts


def _f(text: str | None) -> Mapping[str, Any] | None:
    """An expression that makes capitals and fails for `fails`."""
    return None if text == "fails" else {"value": text.upper() if text is not None else None}


def _values(batches: Iterator[pa.RecordBatch], most_rows: int) -> list[pa.RecordBatch]:
    """What Spark hands the second pass, in batches of its own."""
    rows = pa.Table.from_batches(batches)
    values = pa.array([_f(text) for text in rows.column(INPUT.format(0)).to_pylist()], _VALUE.type)
    parts: list[pa.RecordBatch] = pa.table({STEP: rows.column(STEP), _VALUE.name: values}).to_batches(most_rows)
    return parts


def _run(job: Job, *batches: pa.RecordBatch, most_rows: int = 2) -> TaskReport:
    """The report of both stages."""
    (answer,) = second_pass_of(job)(_values(first_pass(job, batches), most_rows))
    (text,) = answer.column("report").to_pylist()
    return load_report(text)


def test_a_record_that_cannot_be_read_has_no_inputs_and_stays(target: TableTarget) -> None:
    assert _inputs(target, _records({"a": "x"}, b"{", {"a": 5}, {"a": None}, {"a": "y"})) == [
        "x",
        None,
        None,
        None,
        "y",
    ]


def test_a_new_field_is_asked_for_before_spark_is(target: TableTarget) -> None:
    records = _records({"a": "x"}, {"a": "y", "new": 1})
    assert _inputs(target, records) == [None, None]
    assert "new" in str(_run(Job({"t": target}), records).schema.requested_fields)


def test_no_records_leave_no_file(target: TableTarget, temporary: Path) -> None:
    assert list(first_pass(Job({"t": target}), [])) == []
    assert list(temporary.iterdir()) == []
    (answer,) = second_pass_of(Job({"t": target}))([])
    assert answer.num_rows == 0


@pytest.mark.parametrize("most_rows", [1, 2, 3, 100])
def test_rows_are_those_of_the_values_whatever_batches_spark_makes(
    with_dead_letters: TableTarget, temporary: Path, most_rows: int
) -> None:
    known = changed(with_dead_letters, crashing=(BadRecord("t", 0, 5, ErrorClass.CRASHES_DECODER, "", "ends a task"),))
    sizes = pa.array([0, _LEFT_OUT_BYTES, 0], pa.int64())
    batches = [
        _records({"a": "a"}, b"{", {"a": "fails"}, {"a": None}),
        _records({"a": "e"}, {"a": "f"}, first=4),
        _records({"a": "g"}, b"", {"a": "i"}, first=6).append_column(LEFT_OUT, sizes),
        _records({"a": "j"}, first=9),
    ]
    report = _run(Job({"t": known}), *batches, most_rows=most_rows)
    assert [row["b"] for row in rows_of(report.written.data)] == ["A", None, "E", "G", "I", "J"]
    assert sorted((offset, kind) for offset, _, _, kind, *_ in dead(report)) == [
        (1, "malformed"),
        (2, "failed_expression"),
        (5, ErrorClass.CRASHES_DECODER),
        (7, "too_large"),
    ]
    assert {offset: value for offset, _, value, *_ in dead(report)}[2] == b'{"a": "fails"}'
    counts = report.counts
    assert (counts.record_count, counts.written_count, report.bad_records.count) == (10, 6, 4)
    assert list(temporary.iterdir()) == []


def test_records_that_end_tasks_and_those_that_were_left_out_are_not_decoded(target: TableTarget) -> None:
    known = changed(target, crashing=(BadRecord("t", 0, 1, ErrorClass.CRASHES_DECODER, "", ""),))
    assert _inputs(known, _records({"a": "x"}, {"a": "y"}, {"a": "z"})) == [None, "x", "z"]
    sizes = pa.array([0, _LEFT_OUT_BYTES], pa.int64())
    records = _records({"a": "x"}, {"a": "y"}).append_column(LEFT_OUT, sizes)
    assert _inputs(target, records) == [None, "x"]


def test_each_record_is_decoded_once(target: TableTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    decode: Callable[..., Decoded] = decoder.decode_values

    def counting(reading: Any, fields: Any, records: Any, limit: int) -> Decoded:
        decoded.append(len(records["value"]))
        return decode(reading, fields, records, limit)

    monkeypatch.setattr("frazil.rows.project.decode_values", counting)
    report = _run(Job({"t": target}), _records({"a": "x"}, {"a": "y"}, {"a": None}), _records({"a": "z"}, first=3))
    assert report.counts.written_count == 4
    assert decoded == [3, 1]


def test_a_table_of_a_route_decodes_its_own_records_and_reports_the_others(target: TableTarget) -> None:
    division = Division("lake.rest", parse_template("lake.${a}"), 10)
    own = replace(target, share=Share(division, ("x",)))
    report = _run(Job({"t": own}), _records({"a": "x"}, {"a": "y"}, {"a": "x"}))
    assert [row["b"] for row in rows_of(report.written.data)] == ["X", "X"]
    assert report.share.others == 1


def test_a_decoder_that_raises_ends_the_first_pass(target: TableTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("of the reader")

    monkeypatch.setattr("frazil.rows.project.decode_values", fail)
    with pytest.raises(RuntimeError, match="of the reader"):
        list(first_pass(Job({"t": target}), [_records({"a": "x"})]))


def test_a_full_disk_is_an_error_with_the_file_and_what_to_do(target: TableTarget, temporary: Path) -> None:
    reading = first_pass(Job({"t": target}), [_records({"a": "x"}), _records({"a": "y"})])
    next(reading)
    failpoints.arm({failpoints.VARIABLE: "pass.write=enospc"})
    try:
        with pytest.raises(OSError, match="No space left on device") as caught:
            next(reading)
    finally:
        failpoints.arm({})
    (folder,) = temporary.iterdir()
    assert [file.name for file in folder.iterdir()] == ["0"]
    assert caught.value.filename == str(folder / "1")
    failure = _failure_of(PySparkException(f"Traceback (most recent call last):\nOSError: {caught.value}\n"))
    assert failure.remedy == "free disk space; Frazil retries with back-off"
    assert failure.where == str(folder / "1")


_KILLED = """
import os, pickle, signal, sys
from frazil.ingest.tasks.spark_inputs import first_pass
job, batches = pickle.load(sys.stdin.buffer)
reading = first_pass(job, batches)
next(reading)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_files_of_a_task_that_was_killed_between_its_stages_are_removed_by_the_next_one(
    target: TableTarget, temporary: Path
) -> None:
    job, records = Job({"t": target}), _records({"a": "x"})
    environment = {**os.environ, "TMPDIR": str(temporary)}
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED], input=pickle.dumps((job, [records, records])), env=environment, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    (left,) = temporary.iterdir()
    assert [file.name for file in left.iterdir()] == ["0"]
    assert _run(job, records).counts.written_count == 1
    assert list(temporary.iterdir()) == [left]  # It may belong to a task whose second pass has yet to begin.
    os.utime(left, (1, 1))
    assert _run(job, records).counts.written_count == 1
    assert list(temporary.iterdir()) == []


def test_a_second_stage_that_fails_removes_the_files(target: TableTarget, temporary: Path) -> None:
    job = Job({"t": target})
    values = _values(first_pass(job, [_records({"a": "x"}), _records({"a": "y"})]), 1)
    failpoints.arm({failpoints.VARIABLE: "task.write=error"})
    try:
        with pytest.raises(RuntimeError):
            list(second_pass_of(job)(values))
    finally:
        failpoints.arm({})
    assert list(temporary.iterdir()) == []


def test_values_become_rows_and_a_null_struct_a_dead_letter(target: TableTarget) -> None:
    values = pa.array([{"value": "v"}, None, {"value": None}], _VALUE.type)
    records = _records({"a": "x"}, {"a": "y"}, {"a": "z"}).append_column(_VALUE.name, values)
    report = run(Job({"t": target}), records)["lake.t"]
    (bad,) = report.bad_records.first
    assert (bad.offset, bad.kind, bad.path, bad.reason) == (
        1,
        "failed_expression",
        "b",
        'EXPRESSION_FAILED: f(a) of "y"',
    )
    assert target.query is not None
    lenient = replace(target, query=replace(target.query, fails_to_null=True))
    assert run(Job({"t": lenient}), records)["lake.t"].bad_records.count == 0


def test_text_that_is_no_utf_8_is_a_failure_and_no_row(target: TableTarget) -> None:
    spoiled = pa.array([b"ok", b"\xff"], pa.binary()).view(pa.string())
    values = pa.StructArray.from_arrays([spoiled], ["value"])
    records = _records({"a": "x"}, {"a": "y"}).append_column(_VALUE.name, values)
    assert [one.offset for one in run(Job({"t": target}), records)["lake.t"].bad_records.first] == [1]
