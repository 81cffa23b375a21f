"""Finding the live rows of keys, against a plain look at every row; deleted rows as bytes and back."""

from __future__ import annotations

import json
import re
import shutil
import tracemalloc
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.types import LongType, NestedField, StringType
from pyroaring import BitMap64

from frazil.catalog.layout import spec_of
from frazil.catalog.scans import LiveFile, delete_file_of
from frazil.clock import new_id
from frazil.decode.settings import Reading
from frazil.errors import SpecError, UnavailableError
from frazil.spec.partitioning import parse_term
from frazil.types import DeleteFile
from frazil.upsert.lookup import pruning, search
from frazil.upsert.lookup.delete_files import (
    are_in,
    bits_of,
    dump_vector,
    load_vector,
    read_deletes,
    rows_of,
    write_deletes,
)
from frazil.upsert.lookup.search import Found, find_rows
from frazil.write.target import ChangeReading, TableTarget
from frazil.write.write import FileWriter
from tests.needs import cases
from tests.unit.ingest.targets import changed, target_of
from tests.unit.write.other_formats import convert

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
    rng, target = np.random.default_rng(3), _target(tmp_path, k=kind)
    held = [[int(n) for n in rng.integers(-60, 60, 40)] for _ in range(3)]
    arrays = [pa.concat_arrays([_keys(kind, numbers), pa.nulls(1, KINDS[kind])]) for numbers in held]
    files = [_write(target, array) for array in arrays]
    gone = BitMap64(range(0, 40, 3))
    (deletes,) = write_deletes(target, {files[1]: gone}, version)
    files[1] = replace(files[1], deletes=(deletes,))
    asked = _keys(kind, sorted({int(n) for n in rng.integers(-80, 80, 30)})).unique()
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
    monkeypatch.setattr(search, "_FEWEST_ROWS", 200)
    rng, target = np.random.default_rng(5), _target(tmp_path, k=kind)
    numbers = [int(n) for n in rng.integers(0, 150, 400)]
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
    assert found.inspected == 1
    assert [(hit.file.path, hit.rows.tolist()) for hit in found.hits] == [(files[1].path, [5])]
    assert find_rows(target, files, [pa.array([], pa.int64())], _PATHS).hits == []


def test_bounds_of_files_that_are_older_than_a_wider_type_are_understood(tmp_path: Path) -> None:
    narrow, wide = _target(tmp_path, k="int"), _target(tmp_path, k="long")
    file = _write(narrow, pa.array(range(100, 200), pa.int32()))
    assert find_rows(wide, [file], [pa.array([5, 2**40])], _PATHS).inspected == 0
    (hit,) = find_rows(wide, [file], [pa.array([105, 2**40])], _PATHS).hits
    assert (hit.rows.tolist(), hit.keys.tolist()) == ([5], [0])


def test_texts_are_compared_with_bounds_that_are_cut(tmp_path: Path) -> None:
    target, tail = _target(tmp_path, k="string"), "x" * 30
    file = _write(target, pa.array([f"b{tail}1", f"b{tail}9"]))
    for key, inspected in (("a", 0), (f"b{tail}5", 1), (f"b{tail}9", 1), ("c", 0), ("ß", 0)):
        assert find_rows(target, [file], [pa.array([key])], _PATHS).inspected == inspected


@pytest.mark.parametrize("key", ["zebra", "z" + "x" * 5000, "a"])
def test_a_row_is_found_beside_one_that_is_too_long_for_bounds(tmp_path: Path, key: str) -> None:
    target = _target(tmp_path, k="string")
    target = changed(target, properties=(("write.parquet.row-group-size-bytes", "1"),))
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


@pytest.mark.parametrize("name", cases(["orc", "avro"], {"avro": "replay"}))
def test_rows_are_found_in_files_of_other_formats(tmp_path: Path, name: str) -> None:
    target = _target(tmp_path, k="long")
    file = _write(target, pa.array([1, 2, None]))
    with Path(file.path).open("rb") as parquet, Path(f"{file.path}.{name}").open("wb") as out:
        convert(parquet, out, name, target.schema.fields)
    other = replace(file, path=f"{file.path}.{name}", content=file.content.replace('"parquet"', f'"{name}"'))
    (hit,) = find_rows(target, [other], [pa.array([2])], _PATHS).hits
    assert hit.rows.tolist() == [1]


def test_a_file_that_cannot_be_read_is_refused_with_a_remedy(tmp_path: Path) -> None:
    target = _target(tmp_path, k="long")
    file = _write(target, pa.array([1, 2]))
    imported = tmp_path / "imported.avro"
    with imported.open("wb") as out:
        schema = {"type": "record", "name": "r", "fields": [{"name": "k", "type": "long"}]}
        fastavro.writer(out, schema, [{"k": 1}])
    for path, name in ((imported, "avro"), (Path(file.path), "vortex")):
        other = replace(file, path=str(path), content=file.content.replace('"parquet"', f'"{name}"'))
        with pytest.raises(SpecError, match="cannot be read: format=") as refused:
            find_rows(target, [other], [pa.array([2])], _PATHS)
        assert "`write.format.default` to `parquet`" in refused.value.remedy


@pytest.mark.parametrize("positions", [[], [0], [2**31, 2**32 + 7, 5], list(range(100_000))])
def test_a_vector_is_read_as_it_was_written(positions: list[int]) -> None:
    assert load_vector(dump_vector(BitMap64(positions))) == BitMap64(positions)


def test_rows_become_bits_and_bits_rows_without_an_object_for_each() -> None:
    rows = np.random.default_rng(2).permutation(400_000)[:200_000].astype(np.int64) + 2**33
    tracemalloc.start()
    try:
        bits = bits_of(rows)
        back = rows_of(bits)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert back.tolist() == sorted(rows.tolist())
    assert peak_bytes < 36 * rows.size
    asked = np.array([rows[5], 3, rows[7], rows[5], 2**33 - 1])
    assert are_in(asked, bits).tolist() == [True, False, True, True, False]
    assert are_in(asked, BitMap64()).tolist() == are_in(asked, BitMap64([4])).tolist() == [False] * 5
    assert rows_of(bits_of(rows[:0])).size == are_in(rows[:0], bits).size == 0


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


def test_a_large_vector_has_a_file_of_its_own(tmp_path: Path) -> None:
    target = _target(tmp_path, k="long")
    files = [_write(target, pa.array(range(10))) for _ in range(4)]
    large = BitMap64(range(0, 100_000, 3))
    gone = {file: large if n in (0, 2) else BitMap64([n]) for n, file in enumerate(files)}
    written = write_deletes(target, gone, 3)
    assert [(delete.data_file, delete.record_count) for delete in written] == [(f.path, len(gone[f])) for f in files]
    assert written[1].path == written[3].path
    assert len({delete.path for delete in written}) == 3
    for n, (file, delete) in enumerate(zip(files, written, strict=True)):
        puffin = PuffinFile(Path(delete.path).read_bytes())
        vectors = {vector.referenced_data_file: vector for vector in deletion_vectors_from_puffin_file(puffin)}
        assert vectors[file.path].to_vector().to_pylist() == list(gone[file])
        copy = tmp_path / f"{n}.puffin"
        shutil.copy(delete.path, copy)
        assert read_deletes(target, file.path, [replace(delete, path=str(copy))]) == gone[file]


def _equality(folder: Path, ids: list[int], **columns: pa.Array) -> DeleteFile:
    """What another writer has deleted by the values of these columns."""
    fields = zip(columns.items(), ids, strict=True)
    schema = pa.schema([pa.field(n, c.type, metadata={b"PARQUET:field_id": str(i).encode()}) for (n, c), i in fields])
    path, count = folder / f"{new_id()}.parquet", len(next(iter(columns.values())))
    pq.write_table(pa.table(list(columns.values()), schema=schema), path)
    content = {"content": "equality-deletes", "file-path": str(path), "file-format": "PARQUET", "record-count": count}
    return delete_file_of(json.dumps({**content, "equality-ids": ids}))


@pytest.mark.parametrize("is_large", [False, True])
def test_rows_that_equality_deletes_have_taken_are_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    monkeypatch.setattr(search, "_FEWEST_ROWS", 5 if is_large else 1000)
    monkeypatch.setattr(search, "_INDEXED_ROWS_FOR_A_KEY", 0)
    target = _target(tmp_path, k="long", v="string")
    file = _write(target, pa.array([1, 2, 3, 4, 5, 6]), pa.array(["a", "b", "c", None, "e", None]))
    by_key = _equality(tmp_path, [1], other_name=pa.array([2, 77]))
    by_both = _equality(tmp_path, [2, 1], v=pa.array(["c", None, "a"]), k=pa.array([3, 4, 6]))
    asked = [pa.array([1, 2, 3, 4, 6])]
    for deletes, left in (((), [0, 1, 2, 3, 5]), ((by_key,), [0, 2, 3, 5]), ((by_key, by_both), [0, 5])):
        (hit,) = find_rows(target, [replace(file, deletes=deletes)], asked, _PATHS).hits
        assert (hit.rows.tolist(), len(hit.deleted)) == (left, 0)
    vectors = write_deletes(target, {file: BitMap64([0])}, 3)
    (hit,) = find_rows(target, [replace(file, deletes=(*vectors, by_both))], asked, _PATHS).hits
    assert (hit.rows.tolist(), hit.deleted) == ([1, 5], BitMap64([0]))


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
def test_equality_deletes_by_a_column_that_was_dropped_since_count(tmp_path: Path, kind: pa.DataType) -> None:
    target = _target(tmp_path, k="long", old="long")
    file = _write(target, pa.array([1, 2, 3, 4]), pa.array([5, 6, None, 5]))
    by_old = _equality(tmp_path, [2], old=pa.array([5, None], kind))
    by_both = _equality(tmp_path, [1, 2], k=pa.array([2, 9]), old=pa.array([6, 6], kind))
    asked = [pa.array([1, 2, 3, 4])]
    now = _target(tmp_path, k="long")
    for deletes, left in (((), [0, 1, 2, 3]), ((by_old,), [1]), ((by_both,), [0, 2, 3])):
        (hit,) = find_rows(now, [replace(file, deletes=deletes)], asked, _PATHS).hits
        assert hit.rows.tolist() == left
    younger = _write(now, pa.array([1]))
    with pytest.raises(UnavailableError, match="columns that the table no longer has"):
        find_rows(now, [replace(younger, deletes=(by_old,))], asked, _PATHS)


@pytest.mark.parametrize("name", cases(["orc", "avro"], {"avro": "replay"}))
def test_deletes_of_other_writers_are_read_in_every_format(tmp_path: Path, name: str) -> None:
    target = _target(tmp_path, k="long")
    file = _write(target, pa.array([1, 2, 3, 4]))
    (positions,) = write_deletes(target, {file: BitMap64([0])}, 2)
    deletes = (positions, _equality(tmp_path, [1], k=pa.array([3])))
    fields = [
        NestedField(1, "file_path", StringType(), required=True),
        NestedField(2, "pos", LongType(), required=True),
    ]
    for delete, members in zip(deletes, (fields, [NestedField(1, "k", LongType(), required=False)]), strict=True):
        with Path(delete.path).open("rb") as parquet, Path(f"{delete.path}.{name}").open("wb") as out:
            convert(parquet, out, name, members)
    others = tuple(
        replace(one, path=f"{one.path}.{name}", content=re.sub('"parquet"', f'"{name}"', one.content, flags=re.I))
        for one in deletes
    )
    (hit,) = find_rows(target, [replace(file, deletes=others)], [pa.array([1, 2, 3])], _PATHS).hits
    assert (hit.rows.tolist(), hit.deleted) == ([1], BitMap64([0]))


def test_equality_deletes_by_an_unknown_column_are_waited_for(tmp_path: Path) -> None:
    target = _target(tmp_path, k="long")
    file = _write(target, pa.array([1, 2]))
    delete = _equality(tmp_path, [1], k=pa.array([1]))
    bad = replace(file, deletes=(replace(delete, content=delete.content.replace("[1]", "[9]")),))
    with pytest.raises(UnavailableError, match="equality deletes of another writer"):
        find_rows(target, [bad], [pa.array([2])], _PATHS)


@pytest.mark.parametrize("kind", ["int", "long", "decimal(12,2)", "string", "binary", "fixed[4]", "date", "timestamp"])
def test_bounds_of_every_type_that_has_an_order_exclude_files(tmp_path: Path, kind: str) -> None:
    target = _target(tmp_path, k=kind)
    files = [_write(target, _keys(kind, list(range(start, start + 10)))) for start in (0, 100, 300, 400)]
    found = find_rows(target, files, [_keys(kind, [50, 105, 409])], _PATHS)
    assert found.inspected == 2
    assert [(hit.file.path, hit.rows.tolist()) for hit in found.hits] == [(files[1].path, [5]), (files[3].path, [9])]


@pytest.mark.parametrize("kind", ["int", "long", "decimal(12,2)", "string", "binary", "fixed[4]", "date", "timestamp"])
def test_of_very_many_keys_the_least_and_the_greatest_exclude_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(pruning, "_MOST_KEYS_TO_SORT", 2)
    target = _target(tmp_path, k=kind)
    files = [_write(target, _keys(kind, list(range(start, start + 10)))) for start in (0, 100, 200, 300, 400)]
    found = find_rows(target, files, [_keys(kind, [350, 105, 309])], _PATHS)
    assert found.inspected == 3
    assert [(hit.file.path, hit.rows.tolist()) for hit in found.hits] == [(files[1].path, [5]), (files[3].path, [9])]
    for outside in ([410, 411, 412], [-3, -2, -1]):
        assert find_rows(target, files, [_keys(kind, outside)], _PATHS).inspected == 0
    assert find_rows(target, files, [_keys(kind, [9, 8, 7])], _PATHS).inspected == 1


def test_rows_of_many_keys_are_found_in_every_group_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = _target(tmp_path, k="long")
    files = [_write(target, pa.array(range(start, 100, 5))) for start in range(5)]
    asked = pa.array([98, 3, 50, 44, 101, 12, 27])
    found = [
        (hit.file.path, hit.rows.tolist(), hit.keys.tolist()) for hit in find_rows(target, files, [asked], _PATHS).hits
    ]
    assert sum(len(rows) for _, rows, _ in found) == 6
    for rows_at_once in (1, 30, 45):
        monkeypatch.setattr(search, "_ROWS_AT_ONCE", rows_at_once)
        again = find_rows(target, files, [asked], _PATHS).hits
        assert [(hit.file.path, hit.rows.tolist(), hit.keys.tolist()) for hit in again] == found


_LAYOUTS = ("bucket(k, 16)", "truncate(k, 10)", "day(k)", "hour(k)", "month(k)", "k")
_SUITED = {
    "int": (0, 1, 5), "long": (0, 1, 5), "string": (0, 1, 5), "binary": (0, 1, 5), "uuid": (0, 5), "fixed[4]": (0,),
    "decimal(12,2)": (0, 1, 5), "date": (0, 2, 4, 5), "time": (0, 5), "timestamp": (0, 2, 3, 4, 5),
    "timestamptz": (0, 2, 3, 4, 5),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "words"), [(kind, _LAYOUTS[n]) for kind in _SUITED for n in _SUITED[kind]])
def test_a_file_of_another_partition_is_not_looked_at_and_none_with_the_key_is_skipped(
    tmp_path: Path, kind: str, words: str
) -> None:
    target = _partitioned(_target(tmp_path, k=kind, v="long"), words)
    arrays = [_keys(kind, [n * 90_000_000_000 if "time" in kind else n * 7 for n in numbers]) for numbers in _SPREAD]
    files = [file for array in arrays for file in _write_many(target, array, pa.array(range(len(array))))]
    bare = [replace(file, content=_without_bounds(file)) for file in files]
    whole = changed(target, partition_spec="")
    for key in arrays[0][:3]:
        asked = [pa.array([key.as_py()], arrays[0].type)]
        found, expected = (find_rows(one, bare, asked, _PATHS) for one in (target, whole))
        assert _told(found) == _told(expected)
        assert expected.inspected == len(files)
        is_told = words not in ("k", "truncate(k, 10)") or kind in ("int", "long", "string", "date")
        assert (found.inspected < len(files) / 2) == is_told


def test_partitions_of_an_older_spec_say_nothing(tmp_path: Path) -> None:
    target = _partitioned(_target(tmp_path, k="long", v="long"), "truncate(k, 10)")
    (file,) = _write_many(target, pa.array([1]), pa.array([1]))
    described = json.loads(_without_bounds(file))
    reported: list[tuple[dict[str, Any], int]] = [
        ({}, 0),
        ({"partition": {"1000": 0}}, 0),
        ({"partition": {"1000": 20}}, 1),
        ({"partition": {}}, 1),
    ]
    for more, inspected in [*reported, ({"spec-id": 8}, 1)]:
        other = replace(file, content=json.dumps({**described, **more}))
        assert find_rows(target, [other], [pa.array([25])], _PATHS).inspected == inspected


def test_of_a_key_of_several_columns_only_its_own_partitions_are_looked_at(tmp_path: Path) -> None:
    target = _partitioned(_target(tmp_path, a="long", b="string"), "b", "bucket(a, 4)")
    numbers, words = pa.array([n for n in range(40) for _ in "xy"]), pa.array(["x", "y"] * 40)
    files = _write_many(target, numbers, words)
    assert len(files) == 8
    found = find_rows(target, files, [pa.array([3, 4, 99]), pa.array(["x", "y", "z"])], [("a",), ("b",)])
    assert (found.inspected, sorted(hit.keys.tolist() for hit in found.hits)) == (2, [[0], [1]])


_SPREAD = (range(40), range(20, 60), range(-30, 10))


def _partitioned(target: TableTarget, *words: str) -> TableTarget:
    spec = spec_of(tuple(map(parse_term, words)), target.schema)
    return changed(target, partition_spec=spec.model_dump_json())


def _write_many(target: TableTarget, *columns: pa.Array) -> list[LiveFile]:
    writer = FileWriter(target)
    writer.write(pa.Table.from_arrays(list(columns), schema=target.arrow_schema))
    return [LiveFile(file.path, file.record_count, file.content) for file in writer.finish()]


def _without_bounds(file: LiveFile) -> str:
    return json.dumps({name: word for name, word in json.loads(file.content).items() if not name.endswith("-bounds")})


def _told(found: Found) -> list[tuple[str, list[int]]]:
    return sorted((hit.file.path, hit.rows.tolist()) for hit in found.hits)
