"""Bloom filters of key columns: what Parquet's own writer puts in is found, and files without a key are left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from xxhash import xxh64_intdigest

from frazil.catalog.scans import LiveFile
from frazil.decode.settings import Reading
from frazil.upsert.lookup.pruning import hashes
from frazil.upsert.lookup.search import find_rows
from frazil.write.target import ChangeReading, TableTarget
from frazil.write.write import FileWriter
from tests.unit.ingest.targets import changed, target_of

_KINDS: dict[str, pa.DataType] = {
    "int": pa.int32(),
    "long": pa.int64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "string": pa.string(),
    "binary": pa.binary(),
    "uuid": pa.binary(16),
}


def _keys(kind: str, numbers: list[int]) -> pa.Array:
    """One value for each number, spread so that bounds exclude nothing."""
    arrow = _KINDS[kind]
    if kind == "uuid":
        return pa.array([(n * 0x9E3779B97F4A7C15 % 2**128).to_bytes(16, "big") for n in numbers], arrow)
    if kind in ("string", "binary"):
        return pa.array([f"{n * 2654435761 % 2**32:08x}" * (1 + n % 6) for n in numbers]).cast(arrow)
    spread = pa.array([n * 2654435761 % 2**31 - 2**30 for n in numbers], pa.int32())
    return spread.cast(arrow) if kind in ("int", "date") else spread.cast(pa.int64()).cast(arrow)


def _target(folder: Path, filtered: str = "k", **columns: str) -> TableTarget:
    target = replace(target_of(folder, columns), changes=ChangeReading(Reading(), tuple(columns)))
    return changed(target, properties=((f"write.parquet.bloom-filter-enabled.column.{filtered}", "true"),))


def _write(target: TableTarget, *columns: pa.Array) -> LiveFile:
    writer = FileWriter(target)
    writer.write(pa.Table.from_arrays(list(columns), schema=target.arrow_schema))
    (file,) = writer.finish()
    return LiveFile(file.path, file.record_count, file.content)


def test_hashes_are_those_that_others_count() -> None:
    # These three are published with the algorithm.
    texts, _ = hashes(pa.array(["", "a", "abc"]), "BYTE_ARRAY")
    assert texts.tolist() == [0xEF46DB3751D8E999, 0xD24EC4F1A98C6E5B, 0x44BC2CF5AD770999]
    for width, physical in ((4, "INT32"), (8, "INT64")):
        numbers = [0, 1, -1, 2**31 - 1, -(2**31)]
        words, is_there = hashes(pa.array(numbers, pa.int64()), physical)
        assert words.tolist() == [xxh64_intdigest(n.to_bytes(width, "little", signed=True)) for n in numbers]
        assert is_there.all()
    assert hashes(pa.array([2**31, None]), "INT32")[1].tolist() == [False, False]


@pytest.mark.parametrize("kind", _KINDS)
def test_a_file_with_a_key_is_looked_at_and_most_without_are_not(tmp_path: Path, kind: str) -> None:
    target = _target(tmp_path, k=kind)
    files = [_write(target, _keys(kind, list(range(start, 4000, 40)))) for start in range(40)]
    for start in range(0, 40, 7):
        asked = _keys(kind, [start + 400, 100_000])
        found = find_rows(target, files, [asked], [("k",)])
        assert [(hit.file.path, hit.rows.tolist(), hit.keys.tolist()) for hit in found.hits] == [
            (files[start].path, [10], [0])
        ]
        assert found.inspected < 6
    everything = find_rows(target, files, [_keys(kind, list(range(4000)))], [("k",)])
    assert sum(hit.rows.size for hit in everything.hits) == 4000


def test_every_row_group_is_asked(tmp_path: Path) -> None:
    target = _target(tmp_path, k="long")
    path, schema = tmp_path / "groups.parquet", target.arrow_schema
    with pq.ParquetWriter(path, schema, store_schema=False, bloom_filter_options={"k": {"ndv": 100}}) as writer:
        for start in (0, 1):
            writer.write_table(pa.Table.from_arrays([pa.array(range(start, 200, 2))], schema=schema))
    file = replace(_write(target, pa.array(range(200))), path=str(path))
    for key, row in ((50, 25), (51, 125)):
        (hit,) = find_rows(target, [file], [pa.array([key])], [("k",)]).hits
        assert hit.rows.tolist() == [row]


def test_a_file_that_is_older_than_a_wider_type_or_a_name_is_asked_rightly(tmp_path: Path) -> None:
    narrow, wide = _target(tmp_path, k="int"), _target(tmp_path, k="long")
    file = _write(narrow, _keys("int", list(range(500))))
    asked = _keys("long", [7, 100_000])
    (hit,) = find_rows(wide, [file], [asked], [("k",)]).hits
    assert (hit.rows.tolist(), hit.keys.tolist()) == ([7], [0])
    # Another column had the name once: its filter has nothing of this one.
    strange = pa.schema([pa.field(name, pa.int64(), metadata={b"PARQUET:field_id": number})
                         for name, number in (("k", b"9"), ("was", b"1"))])  # fmt: skip
    path, numbers = tmp_path / "renamed.parquet", np.arange(500)
    rows = pa.Table.from_arrays([pa.array(numbers + 10_000), pa.array(numbers)], schema=strange)
    pq.write_table(rows, path, store_schema=False, bloom_filter_options={"k": True})
    (hit,) = find_rows(wide, [replace(file, path=str(path))], [pa.array([7])], [("k",)]).hits
    assert hit.rows.tolist() == [7]


def test_of_a_key_of_two_columns_either_filter_may_exclude_it(tmp_path: Path) -> None:
    target = _target(tmp_path, filtered="b", a="long", b="string")
    files = [
        _write(target, pa.array(range(500)), pa.array([f"{n:03}" for n in range(start, start + 1500, 3)]))
        for start in range(3)
    ]
    found = find_rows(target, files, [pa.array([7]), pa.array(["021"])], [("a",), ("b",)])
    assert (found.inspected, [hit.rows.tolist() for hit in found.hits]) == (1, [[7]])
