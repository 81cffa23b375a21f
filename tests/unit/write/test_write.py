"""Columns to files: ids, metrics and the table's properties; and that nothing is left of a file nobody will commit."""

from __future__ import annotations

import hashlib
import json
import sys
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes

from frazil import failpoints
from frazil.errors import SpecError
from frazil.rows.project import shape_rows
from frazil.schema.arrow import as_written
from frazil.stages.changes import appended
from frazil.types import DataFile
from frazil.write.file_formats import read_avro, read_file
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter
from tests.needs import cases
from tests.unit.decode.columns import decode
from tests.unit.ingest.targets import EVERY_KIND, target_of
from tests.unit.write.other_formats import convert

_RECORDS: list[dict[str, Any]] = [
    {
        "id": 7, "n": 1, "f": 0.5, "x": -0.0, "b": True, "s": "é" * 20, "d": 1.5, "day": "2026-01-31",
        "at": "2026-01-31T12:00:00+02:00", "local": "2026-01-31T12:00:00", "t": "12:00:00",
        "u": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "raw": "AP8=", "two": "AP8=", "l": [{"k": "a"}, None, {}],
        "m": {"k": [1, 2], "e": []}, "deep": {"a": {"z": 5}},
    },
    {},
    {"id": -3, "n": -1, "x": 2.5, "d": "-0.25", "l": [], "m": {}, "deep": {"a": {"z": -5}}},
]  # fmt: skip


def _write(target: TableTarget, *batches: list[dict[str, Any]]) -> list[DataFile]:
    writer = FileWriter(target)
    for records in batches:
        kinds = {field.name: field.field_type for field in target.fields}
        decoded = decode([json.dumps(record) for record in records], "add", **kinds)
        assert decoded.mismatches == []
        writer.write(shape_rows(target, appended(decoded), {}))
    return writer.finish()


def _ids(field: pa.Field) -> list[int]:
    """Field ids of a field and of all in it."""
    own = int(field.metadata[b"PARQUET:field_id"])
    return [own, *(i for n in range(field.type.num_fields) for i in _inner(field.type.field(n)))]


def _inner(field: pa.Field) -> list[int]:
    if field.metadata is None or b"PARQUET:field_id" not in field.metadata:  # The struct of a map's entries has none.
        return [i for n in range(field.type.num_fields) for i in _inner(field.type.field(n))]
    return _ids(field)


def test_rows_come_back_and_every_level_has_its_field_id(tmp_path: Path) -> None:
    target = target_of(tmp_path, EVERY_KIND)
    (file,) = _write(target, _RECORDS)
    written = pq.ParquetFile(file.path).schema_arrow
    assert sorted(i for field in written for i in _ids(field)) == sorted(target.schema.field_ids)
    rows = pq.read_table(file.path).to_pylist()
    assert rows[0] == {
        "id": 7, "n": 1, "f": 0.5, "x": -0.0, "b": True, "s": "é" * 20, "d": Decimal("1.50"),
        "day": date(2026, 1, 31), "at": datetime(2026, 1, 31, 10, tzinfo=UTC),
        "local": datetime.fromisoformat("2026-01-31T12:00"), "t": time(12),
        "u": bytes.fromhex("f81d4fae7dec11d0a76500a0c91e6bf6"), "raw": b"\x00\xff", "two": b"\x00\xff",
        "l": [{"k": "a"}, None, {"k": None}], "m": [("k", [1, 2]), ("e", [])], "deep": {"a": {"z": 5}},
    }  # fmt: skip
    assert set(rows[1].values()) == {None}
    assert (rows[2]["l"], rows[2]["m"], rows[2]["deep"]) == ([], [], {"a": {"z": -5}})


def test_a_file_is_described_with_counts_and_bounds_of_every_leaf(tmp_path: Path) -> None:
    target = target_of(tmp_path, EVERY_KIND)
    (file,) = _write(target, _RECORDS)
    content = json.loads(file.content)
    size = Path(file.path).stat().st_size
    assert (file.record_count, file.size_bytes) == (3, size)
    assert {name: content[name] for name in ("spec-id", "content", "file-path", "file-format", "partition")} == {
        "spec-id": 0, "content": "data", "file-path": file.path, "file-format": "parquet", "partition": {},
    }  # fmt: skip
    assert (content["record-count"], content["file-size-in-bytes"]) == (3, size)
    bounds = {side: _bounds(target, content[f"{side}-bounds"]) for side in ("lower", "upper")}
    nulls = _by_name(target, content["null-value-counts"])
    assert (bounds["lower"]["id"], bounds["upper"]["id"], nulls["id"]) == (-3, 7, 1)
    assert nulls["deep.a.z"] == 1
    assert "deep.a.z" not in bounds["lower"], "PyIceberg counts nested columns and gives them no bounds"
    assert (bounds["lower"]["d"], bounds["upper"]["d"]) == (Decimal("-0.25"), Decimal("1.50"))
    assert (bounds["lower"]["x"], bounds["upper"]["x"]) == (-0.0, 2.5)
    assert (bounds["lower"]["s"], bounds["upper"]["s"]) == ("é" * 16, "é" * 15 + "ê")
    assert nulls["s"] == 2
    assert _by_name(target, content["value-counts"])["id"] == 3


def _by_name(target: TableTarget, pairs: dict[str, list[Any]]) -> dict[str, Any]:
    names = [target.schema.find_column_name(field_id) or "" for field_id in pairs["keys"]]
    return dict(zip(names, pairs["values"], strict=True))


def _bounds(target: TableTarget, pairs: dict[str, list[Any]]) -> dict[str, Any]:
    return {
        name: from_bytes(target.schema.find_type(name), bytes.fromhex(text))  # type: ignore[arg-type]
        for name, text in _by_name(target, pairs).items()
    }


_LONG = "z" + "x" * 5000
_A_GROUP_EACH = {"write.parquet.row-group-size-bytes": "1"}
"""Every batch is a row group."""


@pytest.mark.parametrize(
    ("groups", "bounds"),
    [
        ([["a"], ["zebra", "b"]], ("a", "zebra")),
        ([["a"], ["zebra", _LONG]], None),
        ([["zebra", _LONG], ["a"]], None),
        ([["a"], ["b" * 5000, "zebra"], ["c"]], None),
        ([[_LONG]], None),
        ([["a"], [None]], ("a", "a")),
        ([["a"], ["z" * 4096]], ("a", "z" * 15 + "{")),
        ([["", "b"], ["a", None]], ("", "b")),
    ],
)
def test_bounds_hold_for_every_row_or_are_left_out(
    tmp_path: Path, groups: list[list[str | None]], bounds: tuple[str, str] | None
) -> None:
    target = target_of(tmp_path, {"s": "string", "raw": "binary", "x": "double"}, properties=_A_GROUP_EACH)
    writer = FileWriter(target)
    for texts in groups:
        rows = [{"s": text, "raw": None if text is None else text.encode(), "x": 0.5} for text in texts]
        writer.write(pa.Table.from_pylist(rows, target.arrow_schema))
    (file,) = writer.finish()
    assert pq.ParquetFile(file.path).metadata.num_row_groups == len(groups)
    content = json.loads(file.content)
    lower, upper = (_bounds(target, content[f"{side}-bounds"]) for side in ("lower", "upper"))
    assert (lower.pop("x"), upper.pop("x")) == (0.5, 0.5)
    expected = [{"s": text, "raw": text.encode()} for text in bounds] if bounds else [{}, {}]
    assert [lower, upper] == expected


def test_row_groups_of_nothing_but_nan_leave_the_bounds_of_the_others(tmp_path: Path) -> None:
    target = target_of(tmp_path, {"x": "double"}, properties=_A_GROUP_EACH)
    writer = FileWriter(target)
    for number in (float("nan"), 1.5, None, -2.5):
        writer.write(pa.Table.from_pylist([{"x": number}], target.arrow_schema))
    content = json.loads(writer.finish()[0].content)
    assert [_bounds(target, content[f"{side}-bounds"]) for side in ("lower", "upper")] == [{"x": -2.5}, {"x": 1.5}]


@pytest.mark.parametrize(
    ("text", "upper"),
    [
        ("a" * 15 + "\ud7ff" + "b", "a" * 15 + "\ue000"),
        ("a" + "\U0010ffff" * 16, "b" + "\U0010ffff" * 15),
        ("\ud7ff" + "\U0010ffff" * 16, "\ue000" + "\U0010ffff" * 15),
        ("\U0010ffff" * 17, None),
        ("a" * 15 + "\ud7ff", "a" * 15 + "\ud7ff"),
    ],
)
def test_bounds_of_texts_are_texts(tmp_path: Path, text: str, upper: str | None) -> None:
    target = target_of(tmp_path, {"s": "string"})
    writer = FileWriter(target)
    writer.write(pa.Table.from_pylist([{"s": text}], target.arrow_schema))
    content = json.loads(writer.finish()[0].content)
    assert _bounds(target, content["lower-bounds"]) == {"s": text[:16]}
    assert _bounds(target, content["upper-bounds"]) == ({"s": upper} if upper else {})


def test_the_table_s_metrics_modes_are_honoured(tmp_path: Path) -> None:
    properties = {"write.metadata.metrics.default": "none", "write.metadata.metrics.column.id": "full"}
    target = target_of(tmp_path, {"id": "long", "s": "string"}, properties=properties)
    (file,) = _write(target, [{"id": 1, "s": "x"}])
    assert _bounds(target, json.loads(file.content)["lower-bounds"]) == {"id": 1}


def test_compression_is_zstd_unless_the_table_reports_otherwise(tmp_path: Path) -> None:
    for properties, codec in (
        ({}, "ZSTD"),
        ({"write.parquet.compression-codec": "snappy"}, "SNAPPY"),
        ({"write.parquet.compression-codec": "snappy", "write.parquet.compression-level": "1"}, "SNAPPY"),
        ({"write.parquet.compression-codec": "uncompressed"}, "UNCOMPRESSED"),
        ({"write.parquet.compression-codec": "Uncompressed", "write.parquet.compression-level": "1"}, "UNCOMPRESSED"),
        ({"write.parquet.compression-codec": "gzip", "write.parquet.compression-level": "3"}, "GZIP"),
        ({"write.parquet.compression-codec": "gzip", "write.parquet.compression-level": "12"}, "GZIP"),
        ({"write.parquet.compression-codec": "gzip", "write.parquet.compression-level": "-2"}, "GZIP"),
    ):
        (file,) = _write(target_of(tmp_path, {"s": "string"}, properties=properties), [{"s": "x" * 100}])
        assert pq.ParquetFile(file.path).metadata.row_group(0).column(0).compression == codec


def test_columns_whose_values_repeat_have_a_dictionary(tmp_path: Path) -> None:
    target = target_of(
        tmp_path, {"same": "string", "other": "string", "id": "long", "u": "binary", "d": "decimal(9,2)"}
    )
    (file,) = _write(
        target, [{"same": f"s{n % 5}", "other": f"o{n}", "id": n, "d": 1, "u": f"{n:08}"} for n in range(1000)]
    )
    group = pq.ParquetFile(file.path).metadata.row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n).has_dictionary_page for n in range(group.num_columns)}
    assert columns == {"same": True, "other": False, "id": False, "u": False, "d": True}


@pytest.mark.parametrize(("different", "has_dictionary"), [(250, True), (700, True), (3000, False)])
def test_a_dictionary_is_decided_by_as_many_rows_as_it_takes(
    tmp_path: Path, different: int, has_dictionary: bool
) -> None:
    (file,) = _write(target_of(tmp_path, {"s": "string"}), [{"s": f"v{n * 7919 % different}"} for n in range(5000)])
    column = pq.ParquetFile(file.path).metadata.row_group(0).column(0)
    assert column.has_dictionary_page == has_dictionary


@pytest.mark.parametrize("column", ["s", "deep.k", "gone", "b", "deep.f"])
def test_bloom_filters_are_written_where_the_table_asks_for_them(tmp_path: Path, column: str) -> None:
    with_filter = {f"write.parquet.bloom-filter-enabled.column.{column}": "true"}
    sizes = []
    for properties in ({}, with_filter):
        target = target_of(
            tmp_path, {"s": "string", "deep": "struct<k: string, f: boolean>", "b": "boolean"}, properties=properties
        )
        (file,) = _write(target, [{"s": f"v{n}", "deep": {"k": f"w{n}"}, "b": True} for n in range(1000)])
        sizes.append(file.size_bytes)
    assert (sizes[1] > sizes[0]) == (column in ("s", "deep.k"))


def test_the_target_size_splits_files(tmp_path: Path) -> None:
    target = target_of(tmp_path, {"id": "long", "s": "string"}, target_file_size_bytes=20_000)
    batches = [
        [{"id": n, "s": hashlib.sha256(b"%d" % n).hexdigest()} for n in range(start, start + 500)]
        for start in range(0, 5000, 500)
    ]
    files = _write(target, *batches)
    assert len(files) > 2
    assert all(file.size_bytes < 60_000 for file in files)
    assert sorted(n for file in files for n in pq.read_table(file.path)["id"].to_pylist()) == list(range(5000))
    assert len({file.path for file in files}) == len(files)


def test_abandoned_files_are_removed_open_ones_too(tmp_path: Path) -> None:
    target = target_of(tmp_path, {"id": "long"}, target_file_size_bytes=1)
    writer = FileWriter(target)
    rows = shape_rows(target, appended(decode(['{"id": 1}'], id="long")), {})
    writer.write(rows)
    writer.write(rows)
    writer.abandon()
    assert list(tmp_path.rglob("*.parquet")) == []


@pytest.mark.parametrize("point", ["task.write", "task.close"])
def test_a_full_disk_leaves_no_file_behind(tmp_path: Path, point: str) -> None:
    target = target_of(tmp_path, {"id": "long"})
    writer = FileWriter(target)
    writer.write(shape_rows(target, appended(decode(['{"id": 1}'], id="long")), {}))
    failpoints.arm({failpoints.VARIABLE: f"{point}=enospc"})
    try:
        with pytest.raises(OSError, match="No space left"):
            writer.finish()
    finally:
        failpoints.arm({})
    writer.abandon()
    assert list(tmp_path.rglob("*.parquet")) == []


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    assert FileWriter(target_of(tmp_path, {"id": "long"})).finish() == []


@pytest.mark.parametrize("name", cases(["orc", "avro"], {"avro": "replay"}))
def test_files_of_other_writers_in_other_formats_are_read_with_every_type(tmp_path: Path, name: str) -> None:
    columns = {**EVERY_KIND, "same": "fixed[2]", "a-b": "struct<c-d: time, m: map<string,timestamp>>"}
    records = [{**one, "same": "AP8=", "a-b": {"c-d": "12:00:00", "m": {"x": None}}} for one in _RECORDS[:1]] + _RECORDS
    target = target_of(tmp_path, columns)
    (file,) = _write(target, records)
    other = tmp_path / f"other.{name}"
    with Path(file.path).open("rb") as parquet, other.open("wb") as out:
        convert(parquet, out, name, target.schema.fields)
    with other.open("rb") as stream:
        found = read_file(stream, name, str(other)).read()
    assert [i for field in found.schema for i in _ids(field)] == [i for one in target.arrow_schema for i in _ids(one)]
    rows = [
        as_written(column.combine_chunks(), kind)
        for column, kind in zip(found.columns, target.arrow_schema.types, strict=True)
    ]
    assert pa.Table.from_arrays(rows, schema=target.arrow_schema).equals(pq.read_table(file.path))


def test_a_library_that_is_not_installed_is_an_error_with_the_line_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(SpecError, match="which is not installed") as raised:
        read_avro(None)
    assert (
        raised.value.remedy
        == "install `frazil[avro-files]` with pip from where Frazil was installed, here and where tasks run"
    )
