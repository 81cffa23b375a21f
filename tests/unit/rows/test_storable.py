"""Decimals whose truncation has more digits than their type: no manifest can have the partition value."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from frazil.catalog.layout import spec_of
from frazil.dead_letters.record import DEAD_LETTER_TYPES
from frazil.decode.settings import Envelope, Reading
from frazil.ingest.tasks.task import read_records
from frazil.ingest.tasks.task_job import Job
from frazil.routes.together import Together
from frazil.rows.storable import partition_floors
from frazil.spec.partitioning import parse_term
from frazil.stages.changes import Changes
from frazil.write.target import ChangeReading, TableTarget
from tests.unit.ingest.targets import records_of, run, target_of

_COLUMNS = {"id": "long", "v": "decimal(4,2)", "s": "struct<w: decimal(38,10)>"}


def _target(folder: Path, term: str, columns: dict[str, str] | None = None, **other: Any) -> TableTarget:
    plain = target_of(folder, columns or _COLUMNS)
    spec = spec_of([parse_term(term)], plain.schema).model_dump_json()
    reading = Reading(on_bad="dead_letter")
    return target_of(folder, columns or _COLUMNS, partition_spec=spec, reading=reading, **other)


@pytest.mark.parametrize("width", [1, 2, 3, 7, 9, 10, 11, 99, 100, 101, 9999, 2**31 - 1])
@pytest.mark.parametrize("kind", ["decimal(1,0)", "decimal(3,3)", "decimal(4,2)"])
def test_the_smallest_value_with_a_partition_is_found(tmp_path: Path, kind: str, width: int) -> None:
    floors = partition_floors(_target(tmp_path, f"truncate(v, {width})", {"v": kind}))
    precision, scale = map(int, kind[8:-1].split(","))
    end = 10**precision
    fits = min(number for number in range(1 - end, end) if number // width * width > -end)
    assert [floor.value for floor in floors] == ([Decimal(fits).scaleb(-scale)] if fits > 1 - end else [])


def test_a_record_below_it_is_a_dead_letter_and_its_neighbours_are_rows(tmp_path: Path) -> None:
    names = ("offset", "error_class", "message", "path")
    dead_letters = target_of(tmp_path, {name: str(DEAD_LETTER_TYPES[name]) for name in names}, name="lake.d")
    target = _target(tmp_path, "truncate(v, 10)", dead_letters=dead_letters)
    values = ["-99.99", "-99.91", "-99.90", "99.99", "null"]
    report = run(
        Job({"a": target}),
        records_of([{"offset": n, "value": b'{"v": %s}' % one.encode()} for n, one in enumerate(values)]),
    )["lake.t"]
    files = [pq.ParquetFile(file.path).read() for file in report.written.data]
    assert sorted(str(value) for rows in files for value in rows["v"].to_pylist()) == ["-99.90", "99.99", "None"]
    (found,) = [pq.ParquetFile(file.path).read().to_pylist() for file in report.written.dead_letters]
    assert [(one["offset"], one["error_class"], one["path"]) for one in found] == [
        (0, "out_of_range", "v"),
        (1, "out_of_range", "v"),
    ]
    assert found[0]["message"] == "truncate(v, 10) of -99.99 does not fit decimal(4, 2)"


def test_a_decimal_inside_of_a_struct_is_a_bad_record_too(tmp_path: Path) -> None:
    target = _target(tmp_path, "truncate(s.w, 1000)")
    nines = "9" * 28 + "." + "9" * 10
    texts = [f'{{"s": {{"w": {sign}{nines}}}}}' for sign in ("", "-")] + ['{"s": null}']
    batch = records_of([{"value": text.encode()} for text in texts])
    found = read_records(target, "a", dict(zip(batch.schema.names, batch.columns, strict=True)))
    assert found.decoded.refused.tolist() == [False, True, False]
    assert [(one.path, one.kind) for one in found.decoded.mismatches] == [("s.w", "out_of_range")]


def test_a_change_with_such_a_decimal_is_a_bad_record(tmp_path: Path) -> None:
    target = _target(tmp_path, "truncate(v, 10)")
    target = replace(target, changes=ChangeReading(Reading(), ("id",)))
    rows = [{"id": 1, "v": 1}, {"id": 2, "v": -99.99}]
    batch = records_of([{"offset": n, "key": b"k", "value": json.dumps(row).encode()} for n, row in enumerate(rows)])
    found = read_records(target, "a", dict(zip(batch.schema.names, batch.columns, strict=True)))
    assert found.decoded.refused.tolist() == [False, True]
    enveloped = replace(_target(tmp_path, "truncate(v, 10)"), envelope=Envelope("debezium"))
    messages = [json.dumps({"op": "c", "before": None, "after": row, "source": {}}).encode() for row in rows]
    batch = records_of([{"offset": n, "key": b"{}", "value": value} for n, value in enumerate(messages)])
    read = read_records(enveloped, "a", dict(zip(batch.schema.names, batch.columns, strict=True)))
    assert read.decoded.refused.tolist() == [False, True]


def _never(*_: object) -> Changes:
    raise AssertionError


def test_tables_of_a_route_with_other_partitions_are_not_read_together(tmp_path: Path) -> None:
    one, other = (_target(tmp_path, f"truncate(v, {width})", name=f"lake.t{width}") for width in (3, 10))
    assert Together([one, replace(one, name="lake.again")], _never).tables == {
        "lake.t3",
        "lake.again",
    }
    assert Together([one, other], _never).tables == {"lake.t3"}
