"""Rows by partition and in order: one file of each partition, sorted as a whole, described with its values."""

from __future__ import annotations

import json
import math
import resource
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)

from frazil import failpoints
from frazil.catalog.layout import order_of, spec_of
from frazil.ingest.tasks.task_job import Job
from frazil.spec.partitioning import parse_sort, parse_term
from frazil.types import DataFile
from frazil.write import write
from frazil.write.parquet import statistics_of
from frazil.write.target import TableTarget
from frazil.write.transforms import TooManyPartitions
from frazil.write.write import FileWriter
from tests.unit.ingest.targets import records_of, run, target_of

_COLUMNS = {
    "id": "long",
    "at": "timestamptz",
    "x": "double",
    "s": "struct<a: string, b: struct<c: int>>",
    "w": "string",
}


def _target(folder: Path, partition_by: str = "", sort_by: str = "", **other: Any) -> TableTarget:
    plain = target_of(folder, _COLUMNS)
    terms = tuple(map(parse_term, filter(None, partition_by.split(";"))))
    sorts = tuple(map(parse_sort, filter(None, sort_by.split(";"))))
    spec, order = spec_of(terms, plain.schema), order_of(sorts, plain.schema)
    layout: dict[str, Any] = {"partition_spec": spec.model_dump_json(), "sort_order": order.model_dump_json()}
    return target_of(folder, _COLUMNS, **layout, **other)


def _rows(target: TableTarget, rows: Iterable[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), target.arrow_schema)


def _write(target: TableTarget, *batches: Sequence[dict[str, Any]]) -> list[DataFile]:
    writer = FileWriter(target)
    for rows in batches:
        writer.write(_rows(target, rows))
    return writer.finish()


def _partitions(files: Iterable[DataFile]) -> list[tuple[Any, ...]]:
    return [tuple(json.loads(file.content)["partition"]) for file in files]


def _read(file: DataFile) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.ParquetFile(file.path).read().to_pylist()
    return rows


def test_each_partition_gets_one_file_with_its_rows_in_the_order_they_came(tmp_path: Path) -> None:
    target = _target(tmp_path, "truncate(id, 10);s.b.c")
    rows = [{"id": n % 23 - 5, "s": {"b": {"c": n % 2}} if n % 3 else None, "w": str(n)} for n in range(200)]
    files = _write(target, rows[:70], rows[70:])
    found = dict(zip(_partitions(files), files, strict=True))
    expected: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        inner = row["s"]["b"]["c"] if isinstance(row["s"], dict) else None
        expected.setdefault((math.floor(int(str(row["id"])) / 10) * 10, inner), []).append(str(row["w"]))
    assert {key: [row["w"] for row in _read(file)] for key, file in found.items()} == expected
    path = found[-10, None].path.removeprefix(str(tmp_path / "lake.t"))
    assert path.startswith("/data/id_trunc_10=-10/s.b.c=null/")
    assert all(file.record_count == len(_read(file)) for file in files)
    assert "sort-order-id" not in json.loads(files[0].content)


def test_a_partition_of_many_rows_gets_files_and_row_groups_of_the_wanted_size(tmp_path: Path) -> None:
    target = _target(
        tmp_path, "w", target_file_size_bytes=100_000, properties={"write.parquet.row-group-size-bytes": "20000"}
    )
    chance = np.random.default_rng(1)
    rows = [{"id": int(n), "w": "a" if n % 10 else "b"} for n in chance.integers(0, 2**62, 200_000)]
    files = _write(target, rows)
    big = [file for file in files if _partitions([file]) == [("a",)]]
    assert len(files) - len(big) == 1
    assert len(big) >= 3
    assert [row["id"] for file in big for row in _read(file)] == [row["id"] for row in rows if row["w"] == "a"]
    groups = [pq.ParquetFile(file.path).metadata.row_group(0) for file in big]
    assert max(group.total_byte_size for group in groups) < 40_000


_ORDERS = {
    "id": lambda row: (row["id"] is not None, row["id"] or 0),
    "id desc": lambda row: (row["id"] is None, -(row["id"] or 0)),
    "id nulls last": lambda row: (row["id"] is None, row["id"] or 0),
    "w desc nulls first;id": lambda row: (
        row["w"] is not None,
        [-ord(dead_letter) for dead_letter in row["w"] or ""],
        row["id"] is not None,
        row["id"] or 0,
    ),
    "truncate(id, 100) desc;s.b.c": lambda row: (
        row["id"] is None,
        -((row["id"] or 0) // 100),
        row["s"] is not None,
        (row["s"] or {"b": {"c": 0}})["b"]["c"],
    ),
}


@pytest.mark.parametrize("sort_by", _ORDERS)
@pytest.mark.parametrize("partition_by", ["", "bucket(id, 3)"])
def test_files_are_sorted_as_a_whole_and_say_so(
    tmp_path: Path, sort_by: str, partition_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "_CLUSTER_BYTES", 40_000)
    target = _target(tmp_path, partition_by, sort_by, properties={"write.parquet.row-group-size-bytes": "4000"})
    chance = np.random.default_rng(2)
    rows: list[dict[str, Any]] = [
        {
            "id": None if n % 11 == 0 else int(chance.integers(-500, 500)),
            "w": None if n % 7 == 0 else f"{int(chance.integers(0, 30)):02d}",
            "s": None if n % 5 == 0 else {"a": None, "b": {"c": int(chance.integers(0, 9))}},
        }
        for n in range(3000)
    ]
    files = _write(target, *(rows[n : n + 200] for n in range(0, 3000, 200)))
    assert len(files) > 1, "more than one flush"
    for file in files:
        read = _read(file)
        assert sorted(read, key=_ORDERS[sort_by]) == read
        assert json.loads(file.content)["sort-order-id"] == 1
    assert any(pq.ParquetFile(file.path).num_row_groups > 1 for file in files)
    assert sorted(map(str, (row for file in files for row in _read(file)))) == sorted(
        str({"id": row["id"], "at": None, "x": None, "s": row["s"], "w": row["w"]}) for row in rows
    )


def test_floats_are_sorted_and_told_apart_as_iceberg_does(tmp_path: Path) -> None:
    """-0.0 is before 0.0 and another partition; what is not a number is one, and after all others."""
    values = [float("nan"), 1.0, 0.0, -0.0, float("-inf"), None, -2.5, float("inf"), -float("nan")]
    (file,) = _write(_target(tmp_path, "", "x"), [{"x": value} for value in values])
    read = [row["x"] for row in _read(file)]
    assert str(read) == "[None, -inf, -2.5, -0.0, 0.0, 1.0, inf, nan, nan]"
    files = _write(_target(tmp_path, "x"), [{"x": value} for value in values])
    assert sorted(map(str, _partitions(files))) == sorted(
        ["(nan,)", "(1.0,)", "(0.0,)", "(-0.0,)", "(-inf,)", "(None,)", "(-2.5,)", "(inf,)"]
    )


def test_few_partitions_keep_their_files_open_from_one_load_of_rows_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "_CLUSTER_BYTES", 20_000)
    rows = [{"id": n, "w": f"word {n}"} for n in range(5000)]
    batches = [rows[n : n + 500] for n in range(0, 5000, 500)]
    assert len(_write(_target(tmp_path, "bucket(id, 8)"), *batches)) == 8
    assert len(_write(_target(tmp_path, "bucket(id, 500)"), *batches)) == 500, "scattered rows wait for each other"
    monkeypatch.setattr(write, "_SCATTERED_BYTES", 40_000)
    many = _write(_target(tmp_path, "bucket(id, 500)"), *batches)
    assert len(many) > 500, "but not for ever, and files beyond the few that may be open are closed"
    assert sum(file.record_count for file in many) == 5000


def test_very_many_partitions_are_one_file_each_of_which_few_are_open(tmp_path: Path) -> None:
    rows = [{"id": n % 1000, "w": f"word {n}"} for n in range(5000)]
    target = _target(tmp_path, "id")
    batches = [_rows(target, rows[n : n + 500]) for n in range(0, 5000, 500)]
    usual, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    writer = FileWriter(target)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 64, hard))
    pa.set_memory_pool(pool)
    try:
        for batch in batches:
            writer.write(batch)
        files = writer.finish()
    finally:
        pa.set_memory_pool(usual)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sorted(file.record_count for file in files) == [5] * 1000
    assert len(set(_partitions(files))) == 1000
    assert pool.max_memory() < 32 * 1024 * 1024


def test_a_task_writes_no_more_partitions_than_it_may(tmp_path: Path) -> None:
    target = _target(tmp_path, "hour(at)", max_partitions=5)
    hour = 3_600_000_000
    assert len(_write(target, [{"at": n * hour} for n in range(5)])) == 5
    writer = FileWriter(target)
    writer.write(_rows(target, [{"at": n * hour} for n in range(6)]))
    with pytest.raises(TooManyPartitions, match=r"more than 5 partitions, at_hour=1970-01-01-00 and .*-05 among them"):
        writer.finish()
    writer.abandon()
    assert len(list((tmp_path / "lake.t").rglob("*.parquet"))) == 5


def test_a_report_reports_that_there_are_too_many_and_no_file_is_left(tmp_path: Path) -> None:
    target = _target(tmp_path, "id", max_partitions=3)
    records = records_of([{"value": b'{"id": %d}' % n} for n in range(4)])
    report = run(Job({"a": target}), records)["lake.t"]
    assert (report.written.data, report.counts.record_count, report.written.scattered) == ((), 4, ("id=0", "id=3"))
    assert not list(tmp_path.rglob("*.parquet"))


def test_names_too_long_for_a_file_system_are_cut_and_stay_different(tmp_path: Path) -> None:
    rows = [{"w": "日" * 300 + dead_letter} for dead_letter in "ab"]
    one, other = _write(_target(tmp_path, "w"), rows)
    assert Path(one.path).parent != Path(other.path).parent
    assert {values[0] for values in _partitions([one, other])} == {row["w"] for row in rows}


@pytest.mark.parametrize("point", ["task.write", "task.close"])
def test_a_full_disk_leaves_nothing(tmp_path: Path, point: str) -> None:
    target = _target(tmp_path, "bucket(id, 4)")
    writer = FileWriter(target)
    failpoints.arm({failpoints.VARIABLE: f"{point}=enospc@3"})
    try:
        writer.write(_rows(target, [{"id": n} for n in range(100)]))
        with pytest.raises(OSError, match="space"):
            writer.finish()
        writer.abandon()
    finally:
        failpoints.arm({})
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("mode", ["truncate(16)", "truncate(3)", "full", "counts", "none"])
def test_small_files_are_described_as_pyiceberg_describes_them(tmp_path: Path, mode: str) -> None:
    columns = {
        "id": "long", "n": "int", "f": "float", "x": "double", "b": "boolean", "s": "string", "d": "decimal(9,2)",
        "big": "decimal(38,3)", "day": "date", "at": "timestamptz", "local": "timestamp", "t": "time", "u": "uuid",
        "raw": "binary", "two": "fixed[2]", "l": "list<struct<k: string>>", "m": "map<string,list<long>>",
        "deep": "struct<a: struct<z: long>>",
    }  # fmt: skip
    target = target_of(tmp_path, columns, properties={"write.metadata.metrics.default": mode})
    chance = np.random.default_rng(3)
    for count in (1, 2, 50):
        arrays = [_chance_array(field.type, count, chance) for field in target.arrow_schema]
        rows = pa.Table.from_arrays(arrays, schema=target.arrow_schema)
        for one in (rows, rows.slice(0, 1), pa.Table.from_pylist([{}], target.arrow_schema)):
            for group in (one.num_rows, 17, 1):
                metadata = _footer(one, tmp_path / "one.parquet", group)
                assert vars(statistics_of(target, metadata)) == _by_pyiceberg(target, metadata)


def _by_pyiceberg(target: TableTarget, metadata: pq.FileMetaData) -> dict[str, Any]:
    plan, ids = (
        compute_statistics_plan(target.schema, dict(target.files.properties)),
        parquet_path_to_id_mapping(target.schema),
    )
    words = data_file_statistics_from_parquet_metadata(metadata, plan, ids).to_serialized_dict()
    del words["record_count"]
    return words


def _footer(rows: pa.Table, path: Path, group: int) -> pq.FileMetaData:
    pq.write_table(rows, path, row_group_size=max(1, group), store_schema=False)
    return pq.read_metadata(path)


def _chance_array(kind: pa.DataType, count: int, chance: np.random.Generator) -> pa.Array:
    """Values of any type, nulls among them."""
    if pa.types.is_struct(kind):
        children = [_chance_array(kind.field(n).type, count, chance) for n in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=[kind.field(n) for n in range(kind.num_fields)])
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return pa.nulls(count, kind)
    nulls = chance.random(count) < 0.3
    if pa.types.is_decimal(kind):
        raw = chance.integers(-(10**8), 10**8, count)
        pairs = np.stack([raw, raw >> 63], axis=1)
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(pairs.tobytes())])
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        size = kind.byte_width if pa.types.is_fixed_size_binary(kind) else 0
        texts = ["z\U0010ffff" * int(n) + "日é" for n in chance.integers(0, 12, count)]
        values: list[Any] = [text.encode() for text in texts] if pa.types.is_binary(kind) else list(texts)
        if size:
            values = [chance.bytes(size) for _ in range(count)]
        return pa.array([None if null else value for value, null in zip(values, nulls, strict=True)], kind)
    if pa.types.is_boolean(kind):
        return pa.array(chance.random(count) < 0.5, mask=nulls)
    if pa.types.is_floating(kind):
        return pa.array(chance.normal(size=count), mask=nulls).cast(kind)
    wide = kind.bit_width == 64
    most = (
        86_400_000_000
        if pa.types.is_time(kind)
        else 2 * 10**17
        if wide
        else 2_900_000
        if pa.types.is_date(kind)
        else 2**31 - 1
    )
    least = 0 if pa.types.is_time(kind) else -most // 5
    return (
        pa.array(chance.integers(least, most, count), pa.int64(), mask=nulls)
        .cast(pa.int64() if wide else pa.int32())
        .view(kind)
    )


@pytest.mark.parametrize(
    "kind",
    [
        "boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "string", "uuid",
        "binary", "decimal(9,2)", "decimal(38,10)",
    ],
)  # fmt: skip
def test_every_type_can_be_partitioned_and_sorted_by(tmp_path: Path, kind: str) -> None:
    plain = target_of(tmp_path, {"c": kind, "i": "long"})
    spec, order = spec_of([parse_term("c")], plain.schema), order_of([parse_sort("c desc nulls first")], plain.schema)
    column = _chance_array(plain.arrow_schema.field(0).type, 60, np.random.default_rng(4))
    rows = pa.Table.from_arrays([column, pa.array(range(60))], schema=plain.arrow_schema)
    for layout in ({"partition_spec": spec.model_dump_json()}, {"sort_order": order.model_dump_json()}):
        target = target_of(tmp_path, {"c": kind, "i": "long"}, metadata=(), properties=None, **layout)
        writer = FileWriter(target)
        writer.write(rows)
        read = [pq.ParquetFile(file.path).read().column("c").to_pylist() for file in writer.finish()]
        if "partition_spec" in layout:
            assert sorted(map(str, column.unique().to_pylist())) == sorted(str(values[0]) for values in read)
            assert all(len(set(map(str, values))) == 1 for values in read)
        else:
            present = [value for value in read[0] if value is not None]
            nulls: list[Any] = [None] * column.null_count
            assert read == [nulls + sorted(present, reverse=True)]
