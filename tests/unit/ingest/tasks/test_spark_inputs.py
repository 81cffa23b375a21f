"""What Spark gets of records whose query it computes in part: every record as it is, with inputs only where the task will
read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from frazil.ingest.tasks import spark_inputs
from frazil.ingest.tasks.spark_inputs import with_inputs
from frazil.ingest.tasks.task_job import Job
from frazil.kafka.fetch.columns import LEFT_OUT
from frazil.process.program import BY_SPARK, INPUT, Call, Field, Program, Project, SparkPart
from frazil.types import BadRecord
from frazil.write.target import TableQuery, TableTarget
from tests.unit.ingest.targets import changed, records_of, run, target_of

_A = Field("a", pa.string())
_VALUE = Field("\x01value0", pa.struct([("value", pa.string())]))
_PART = SparkPart(Program((Project((("a", _A),)),), (_A,)), (_VALUE,), b"", "")
_CALL = Call(BY_SPARK, (_VALUE, _A), pa.string(), (("inputs", '["a"]'),), "f(a)")
_PROGRAM = Program((Project((("b", _CALL),)),), (Field("b", pa.string()),), _PART)


@pytest.fixture
def target(tmp_path: Path) -> TableTarget:
    source = target_of(tmp_path, {"a": "string"})
    return target_of(tmp_path, {"b": "string"}, query=TableQuery(source, _PROGRAM))


def _records(*values: Any, **columns: Any) -> pa.RecordBatch:
    texts = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    rows: Iterator[dict[str, Any]] = ({"value": text, "offset": n, **columns} for n, text in enumerate(texts))
    return records_of(rows)


def _inputs(target: TableTarget, records: pa.RecordBatch) -> list[str | None]:
    (found,) = with_inputs(Job({"t": target}), [records])
    assert found.select(records.schema.names).equals(records)
    texts: list[str | None] = found.column(INPUT.format(0)).to_pylist()
    return texts


def test_a_record_that_cannot_be_read_has_no_inputs_and_stays(target: TableTarget) -> None:
    assert _inputs(target, _records({"a": "x"}, b"{", {"a": 5}, {"a": None}, {"a": "y"})) == [
        "x",
        None,
        None,
        None,
        "y",
    ]


def test_records_that_end_tasks_and_those_that_were_left_out_are_not_read(target: TableTarget) -> None:
    known = changed(target, crashing=(BadRecord("t", 0, 1, "crashes_decoder", "", ""),))
    assert _inputs(known, _records({"a": "x"}, {"a": "y"}, {"a": "z"})) == ["x", None, "z"]
    sizes = pa.array([0, 400 * 1024 * 1024], pa.int64())
    assert _inputs(target, _records({"a": "x"}, {"a": "y"}).append_column(LEFT_OUT, sizes)) == ["x", None]


def test_a_reader_that_raises_is_left_to_the_task(target: TableTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("of the reader")

    monkeypatch.setattr(spark_inputs, "read_records", fail)
    assert _inputs(target, _records({"a": "x"}, {"a": "y"})) == [None, None]


def test_a_new_field_is_asked_for_before_spark_is(target: TableTarget) -> None:
    assert _inputs(target, _records({"a": "x"}, {"a": "y", "new": 1})) == [None, None]


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
