"""Finding the live rows of keys, against a plain look at every row; deleted rows as bytes and back."""

from __future__ import annotations

import shutil
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from frazil.catalog.scans import LiveFile
from frazil.errors import SpecError, UnavailableError
from frazil.ingest.files.write import FileWriter
from frazil.ingest.target import ChangeReading, Reading, TableTarget
from frazil.ingest.upserts import key_index
from frazil.ingest.upserts.delete_files import dump_vector, load_vector, read_deletes, write_deletes
from frazil.ingest.upserts.resolve import find_rows
from tests.unit.ingest.targets import target_of

_PATHS = [("k",)]
KINDS: dict[str, pa.DataType] = {
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "uuid": pa.binary(16),
    "fixed[4]": pa.binary(4),
    "decimal(12,2)": pa.decimal128(12, 2),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "double": pa.float64(),
    "float": pa.float32(),
}


def _keys(kind: str, numbers: list[int]) -> pa.Array:
    """One value for each number; negative numbers too."""
    arrow = KINDS[kind]
    if kind == "boolean":
        return pa.array([bool(n % 2) for n in numbers])
    if kind in ("string", "binary"):
        return pa.array([f"{n:+06d}-and-a-tail-that-is-longer-than-bounds-are" for n in numbers]).cast(arrow)
    if kind in ("uuid", "fixed[4]"):
        width = 16 if kind == "uuid" else 4
        return pa.array([(n % 2**32).to_bytes(width, "big") for n in numbers], arrow)
    if kind.startswith("decimal"):
        return pa.array([Decimal(n) for n in numbers], arrow)
    if pa.types.is_temporal(arrow):
        wide = pa.int32() if kind == "date" else pa.int64()
        return pa.array([abs(n) if kind == "time" else n for n in numbers], wide).cast(arrow)
    return pa.array(numbers, pa.int64()).cast(arrow)


def _write(target: TableTarget, *columns: pa.Array) -> LiveFile:
    writer = FileWriter(target)
    writer.write(pa.Table.from_arrays(list(columns), schema=target.arrow_schema))
    (file,) = writer.finish()
    return LiveFile(file.path, file.record_count, file.content)


def _target(folder: Path, **columns: str) -> TableTarget:
    reading = ChangeReading(Reading(), tuple(columns))
    return replace(target_of(folder, columns), changes=reading)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", [2, 3])
def test_live_rows_are_found_by_keys_of_every_type(tmp_path: Path, kind: str, version: int) -> None:
    chance, target = np.random.default_rng(3), _target(tmp_path, k=kind)
    held = [[int(n) for n in chance.integers(-60, 60, 40)] for _ in range(3)]
    arrays = [pa.concat_arrays([_keys(kind, numbers), pa.nulls(1, KINDS[kind])]) for numbers in held]
    files = [_write(target, array) for array in arrays]
    gone = BitMap64(range(0, 40, 3))
    (deletes,) = write_deletes(target, {files[1]: gone}, version)
    files[1] = replace(files[1], deletes=(deletes,))
    asked = _keys(kind, sorted({int(n) for n in chance.integers(-80, 80, 30)})).unique()
    found = {(hit.file.path, row, asked[key].as_py()) for hit in find_rows(target, files, [asked], _PATHS).hits
             for row, key in zip(hit.rows.tolist(), hit.keys.tolist(), strict=True)}  # fmt: skip
    wanted = set(asked.to_pylist())
    assert found == {
        (file.path, row, value)
        for n, (file, array) in enumerate(zip(files, arrays, strict=True))
        for row, value in enumerate(array.to_pylist())
        if value in wanted and not (n == 1 and row in gone)
    }


@pytest.mark.parametrize("kind", ["int", "long", "date", "time", "timestamp", "timestamptz"])
@pytest.mark.parametrize("is_ordered", [False, True])
def test_a_few_keys_are_found_in_large_files_without_going_through_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, is_ordered: bool
) -> None:
    monkeypatch.setattr(key_index, "_FEWEST_ROWS", 200)
    chance, target = np.random.default_rng(5), _target(tmp_path, k=kind)
    numbers = [int(n) for n in chance.integers(0, 150, 400)]
    array = _keys(kind, sorted(numbers) if is_ordered else numbers)
    if not is_ordered:
        array = pa.concat_arrays([array[:100], pa.nulls(1, array.type), array[100:]])
    gone = BitMap64(range(0, 400, 3))
    file = _write(target, array)
    file = replace(file, deletes=tuple(write_deletes(target, {file: gone}, 3)))
    asked = _keys(kind, [140, 3, 900, 77, 12, 0])
    for _ in range(2):  # The second time from memory.
        (hit,) = find_rows(target, [file], [asked], _PATHS).hits
        assert hit.rows.tolist() == sorted(hit.rows.tolist())
        assert {(row, asked[key].as_py()) for row, key in zip(hit.rows.tolist(), hit.keys.tolist(), strict=True)} == {
            (row, value)
            for row, value in enumerate(array.to_pylist())
            if value in asked.to_pylist() and row not in gone
        }
    assert find_rows(target, [file], [_keys(kind, [900, 901])], _PATHS).hits == []


def test_files_whose_bounds_exclude_every_key_are_not_looked_at(tmp_path: Path) -> None:
    target = _target(tmp_path, k="long")
    files = [_write(target, pa.array(range(start, start + 100))) for start in (0, 1000, 2000)]
    found = find_rows(target, files, [pa.array([500, 1005, 1999])], _PATHS)
    assert (found.file_count, found.looked_at) == (3, 1)
    assert [(hit.file.path, hit.rows.tolist()) for hit in found.hits] == [(files[1].path, [5])]
    assert find_rows(target, files, [pa.array([], pa.int64())], _PATHS).hits == []


def test_bounds_of_files_that_are_older_than_a_wider_type_are_understood(tmp_path: Path) -> None:
    narrow, wide = _target(tmp_path, k="int"), _target(tmp_path, k="long")
    file = _write(narrow, pa.array(range(100, 200), pa.int32()))
    assert find_rows(wide, [file], [pa.array([5, 2**40])], _PATHS).looked_at == 0
    (hit,) = find_rows(wide, [file], [pa.array([105, 2**40])], _PATHS).hits
    assert (hit.rows.tolist(), hit.keys.tolist()) == ([5], [0])


def test_texts_are_compared_with_bounds_that_are_cut(tmp_path: Path) -> None:
    target, tail = _target(tmp_path, k="string"), "x" * 30
    file = _write(target, pa.array([f"b{tail}1", f"b{tail}9"]))
    for key, looked_at in (("a", 0), (f"b{tail}5", 1), (f"b{tail}9", 1), ("c", 0), ("ß", 0)):
        assert find_rows(target, [file], [pa.array([key])], _PATHS).looked_at == looked_at


@pytest.mark.parametrize("key", ["zebra", "z" + "x" * 5000, "a"])
def test_a_row_is_found_beside_one_that_is_too_long_for_bounds(tmp_path: Path, key: str) -> None:
    target = _target(tmp_path, k="string")
    target = replace(target, properties=(("write.parquet.row-group-size-bytes", "1"),))
    writer = FileWriter(target)
    for keys in (["a"], ["zebra", "z" + "x" * 5000]):
        writer.write(pa.table([pa.array(keys)], schema=target.arrow_schema))
    (written,) = writer.finish()
    file = LiveFile(written.path, written.record_count, written.content)
    assert len(find_rows(target, [file], [pa.array([key])], _PATHS).hits) == 1


def test_a_key_of_two_columns_is_found_only_as_a_whole(tmp_path: Path) -> None:
    target = _target(tmp_path, a="long", b="string")
    file = _write(target, pa.array([1, 1, 2, 2, None]), pa.array(["x", "y", "x", "y", "x"]))
    found = find_rows(target, [file], [pa.array([1, 2, 3]), pa.array(["y", "x", "x"])], [("a",), ("b",)])
    assert [(hit.rows.tolist(), hit.keys.tolist()) for hit in found.hits] == [([1, 2], [0, 1])]


def test_columns_are_known_by_their_ids_and_files_may_be_older_than_they(tmp_path: Path) -> None:
    target = _target(tmp_path, k="long")
    file = _write(target, pa.array([1, 2]))
    renamed = pq.read_table(file.path).rename_columns(["other"])
    ids = pa.schema([pa.field("other", pa.int64(), metadata={b"PARQUET:field_id": b"1"})])
    pq.write_table(renamed.cast(ids), tmp_path / "renamed.parquet")
    without = pa.schema([pa.field("k", pa.int64(), metadata={b"PARQUET:field_id": b"99"})])
    pq.write_table(pq.read_table(file.path).cast(without), tmp_path / "older.parquet")
    for name, rows in (("renamed", [[1]]), ("older", [])):
        one = replace(file, path=str(tmp_path / f"{name}.parquet"))
        assert [hit.rows.tolist() for hit in find_rows(target, [one], [pa.array([2])], _PATHS).hits] == rows


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    target = _target(tmp_path, k="long")
    file = _write(target, pa.array([1, 2]))
    other = replace(file, path="/x.orc", content=file.content.replace('"parquet"', '"orc"'))
    with pytest.raises(SpecError, match="no Parquet"):
        find_rows(target, [other], [pa.array([2])], _PATHS)


@pytest.mark.parametrize("positions", [[], [0], [2**31, 2**32 + 7, 5], list(range(100_000))])
def test_a_vector_is_read_as_it_was_written(positions: list[int]) -> None:
    assert load_vector(dump_vector(BitMap64(positions))) == BitMap64(positions)


def test_a_vector_with_a_changed_byte_is_refused() -> None:
    blob = dump_vector(BitMap64([1, 2, 70_000]))
    for place in range(len(blob)):
        damaged = bytearray(blob)
        damaged[place] ^= 1
        with pytest.raises(UnavailableError, match="damaged"):
            load_vector(bytes(damaged))


def test_a_vector_that_this_process_has_not_written_is_read_from_its_file(tmp_path: Path) -> None:
    target = _target(tmp_path, k="long")
    file = _write(target, pa.array(range(10)))
    (written,) = write_deletes(target, {file: BitMap64([3, 7])}, 3)
    copy = tmp_path / "copy.puffin"
    shutil.copy(written.path, copy)
    for _ in range(2):
        assert read_deletes(target, file.path, [replace(written, path=str(copy))]) == BitMap64([3, 7])


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_of_several_files_are_told_apart(tmp_path: Path, version: int) -> None:
    target = _target(tmp_path, k="long")
    files = [_write(target, pa.array(range(10))) for _ in range(3)]
    gone = {file: BitMap64([n, n + 4]) for n, file in enumerate(files)}
    written = write_deletes(target, gone, version)
    assert [(delete.data_file, delete.record_count) for delete in written] == [(file.path, 2) for file in files]
    read: list[Any] = [read_deletes(target, file.path, [delete]) for file, delete in zip(files, written, strict=True)]
    assert read == list(gone.values())
    assert len({delete.path for delete in written}) == (1 if version == 3 else 3)
