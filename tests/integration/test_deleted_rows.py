"""Rows of an upsert table that no change of their key takes away: by others' equality deletes, by truncates that have a
place; and those of files that were imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.runtime.jvm import Jvm
from tests.integration.lakes import Lake
from tests.integration.tended import BY_ID, Row, Tended, in_order, layout_of

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def lake(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(jvm, tmp_path_factory.mktemp("lake"))


def _row(table: Tended, key: int, v: int) -> Row:
    return {**table.row(key), "v": v, "name": f"{v:05d}"}


@contextmanager
def _hidden(file: Path) -> Iterator[None]:
    """Nobody can open the file while the block lasts."""
    elsewhere = file.with_suffix(".hidden")
    file.rename(elsewhere)
    yield
    elsewhere.rename(file)


@pytest.mark.parametrize("version", [2, 3])
def test_a_row_that_an_equality_delete_has_taken_is_newer_than_no_change(lake: Lake, version: int) -> None:
    table, by_v = Tended(lake, layout_of(""), version), replace(BY_ID, order_by="v")
    table.change([(key, _row(table, key, 10)) for key in range(1, 5)], by_v)
    lake.delete_equal(table.name, [1, 2])
    late = [_row(table, key, 5) for key in (1, 3)]
    done = table.change([(row["id"], row) for row in late] + [(2, None)], by_v)
    assert (done.keys, done.deleted, done.late) == (3, 0, 1)
    newer = _row(table, 4, 11)
    assert table.change([(4, newer)], by_v).deleted == 1
    assert "compact" in [outcome.action.kind for outcome in lake.maintenance(table.name) if not outcome.failure]
    found = [(row["id"], row["v"]) for row in table.read()]
    assert found == [(1, 5), (3, 10), (4, 11)]


@pytest.mark.parametrize("version", [2, 3])
def test_a_truncate_opens_only_files_that_have_older_rows_and_others(lake: Lake, version: int) -> None:
    table = Tended(lake, layout_of(""), version)
    by_place = replace(BY_ID, order_by="name", has_source_order=True, is_one_partition=False)
    table.change([(key, _row(table, key, key)) for key in range(1, 8)], by_place)
    rows = {key: _row(table, key, key) for key in range(8, 13)}
    table.change([(2, None), *rows.items()], by_place)
    later = {key: _row(table, key, key) for key in range(30, 33)}
    table.change(list(later.items()), by_place)
    new = {10: _row(table, 10, 20), 21: _row(table, 21, 21)}
    table.lake = Lake(lake.jvm, lake.root)  # A process that knows the files from Iceberg.
    table.lake.catalog.load(table.name)
    files = {
        file.record_count: Path(file.path.removeprefix("file:")) for file in table.lake.catalog.scan(table.name).files
    }
    with _hidden(files[7]), _hidden(files[3]):
        done = table.change([*new.items(), (22, _row(table, 22, 3))], by_place, emptied="00010")
    assert (done.deleted, done.late) == (9, 1)
    assert len(lake.metadata(table.name).files) == 3
    assert table.read() == in_order([*new.values(), rows[11], rows[12], *later.values()])
    assert lake.progress(table.name).order.emptied == "00010"


def _import(table: Tended, rows: list[Row], region: str) -> None:
    """As a table of Hive's is: without field ids, without the column of the partition, and `id` has another name."""
    java = table.lake.java(table.name)
    iceberg, path = table.lake.jvm.gateway.jvm.org.apache.iceberg, table.lake.root / f"{table.name}.parquet"
    columns = {"number": [row["id"] for row in rows], "name": [row["name"] for row in rows], "v": [0] * len(rows)}
    pq.write_table(pa.table(columns), path)
    mapping = json.loads(iceberg.mapping.NameMappingParser.toJson(iceberg.mapping.MappingUtil.create(java.schema())))
    for field in mapping:
        field["names"] = [{"id": "number"}.get(name, name) for name in field["names"]]
    java.updateProperties().set("schema.name-mapping.default", json.dumps(mapping)).commit()
    file = iceberg.DataFiles.builder(java.spec()).withPath(f"file:{path}").withFormat("parquet")
    file = (
        file.withFileSizeInBytes(path.stat().st_size).withRecordCount(len(rows)).withPartitionPath(f"region={region}")
    )
    java.newAppend().appendFile(file.build()).commit()


@pytest.mark.parametrize("is_older_spec", [True, False])
def test_rows_of_an_imported_file_are_replaced(lake: Lake, is_older_spec: bool) -> None:
    table, by_region = Tended(lake, layout_of("region"), 3), replace(BY_ID, order_by="region")
    old = [{**_row(table, key, 0), "region": "north", "at": None} for key in range(1, 5)]
    _import(table, old, "north")
    if is_older_spec:
        table.arrange(layout_of("bucket(id, 2)"))
    newer, late = {**table.row(1), "region": "south"}, {**table.row(2), "region": "east"}
    done = table.change([(1, newer), (2, late), (3, None)], by_region)
    assert (done.keys, done.deleted, done.late) == (3, 2, 1)
    assert "compact" in [outcome.action.kind for outcome in lake.maintenance(table.name) if not outcome.failure]
    assert table.read() == in_order([newer, old[1], old[3]])
