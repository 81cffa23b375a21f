"""Table maintenance of tables with columns that Spark has no type for, or whose names differ in case alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyroaring import BitMap64

from frazil.catalog.layout import Layout
from frazil.catalog.maintenance_port import Compaction
from frazil.clock import SystemClock, new_id
from frazil.maintenance.plan import ORPHANS_NOTE
from frazil.runtime.jvm import Jvm
from frazil.schema.evolve import new_schema
from frazil.spec.partitioning import parse_term
from frazil.spec.settings import SnapshotsSpec
from frazil.spec.syntax.types import parse_type
from frazil.types import Commit, Progress, RowDelta, Writer
from frazil.upsert.lookup.delete_files import write_deletes
from frazil.write.plain_target import plain_target
from frazil.write.write import FileWriter
from tests.fixtures.readers import assert_equal_everywhere, read_with_duckdb
from tests.fixtures.slices import sliced
from tests.integration.lakes import KEEN, PROPERTIES, Lake

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

Row = dict[str, Any]
TIMES = {"id": "long", "region": "string", "t": "time", "inside": "struct<at: time, n: long>"}
PLAIN = {
    "id": "long",
    "region": "string",
    "n": "int",
    "at_place": "long",
    "inside": "struct<words: list<struct<w: string>>, x: double>",
}
CASES = {"id": "long", "Id": "long", "region": "string"}


@pytest.fixture(scope="module")
def lake(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(jvm, tmp_path_factory.mktemp("lake"))


class Kept:
    """A table and what it holds."""

    def __init__(self, lake: Lake, columns: dict[str, str], version: int, *partition_by: str) -> None:
        self.lake = lake
        self.columns = columns
        self.name = f"t.kept_{new_id()[:8]}"
        self.rows: list[Row] = []
        self.told = 0
        fields = {name: parse_type(word) for name, word in columns.items()}
        schema = new_schema(fields.items())
        if len(schema.fields) < len(
            fields
        ):  # Frazil makes no table with names that differ in capitals alone; others do.
            schema = Schema(*(NestedField(n, name, fields[name], required=False) for n, name in enumerate(fields, 1)))
        lake.catalog.create(self.name, schema, PROPERTIES, version, layout_of(*partition_by))
        lake.table_maintenance.note(self.name, ORPHANS_NOTE, str(SystemClock().now_ms()))

    def append(self, rows: Sequence[Row]) -> None:
        """One commit."""
        catalog = self.lake.catalog
        state = catalog.load(self.name)
        assert state is not None
        target = plain_target(state)
        writer = FileWriter(target)
        writer.write(pa.Table.from_pylist(list(rows), target.arrow_schema))
        self.rows += rows
        self.told += len(rows)
        progress = Progress({"topic": {0: self.told}}, {"topic": "id"}, "c", new_id(), Writer(1, "run"))
        catalog.commit(Commit(self.name, tuple(writer.finish()), progress, state.progress))

    def read(self) -> list[Row]:
        """All rows by id, as every reader in this process has them."""
        head = self.lake.metadata(self.name).head
        assert head is not None
        metadata = Path(
            str(self.lake.java(self.name).operations().current().metadataFileLocation()).removeprefix("file:")
        )
        assert_equal_everywhere(metadata, [head])
        return in_order(read_with_duckdb(metadata, head).to_pylist())

    def delete_first(self, count: int) -> None:
        """Deletes the first rows of every file."""
        catalog = self.lake.catalog
        state = catalog.load(self.name)
        assert state is not None
        scan = catalog.scan(self.name)
        gone = {file: BitMap64(range(count)) for file in scan.files}
        deletes = write_deletes(plain_target(state), gone, state.format_version)
        for file in scan.files:
            first = pq.ParquetFile(file.path.removeprefix("file:")).read().slice(0, count).column("id").to_pylist()
            self.rows = [row for row in self.rows if row["id"] not in first]
        self.told += 1
        progress = Progress({"topic": {0: self.told}}, {"topic": "id"}, "c", new_id(), Writer(1, "run"))
        delta = RowDelta(scan.read_at, tuple(deletes), touched=tuple(file.path for file in scan.files))
        catalog.commit(Commit(self.name, (), progress, state.progress, delta))

    def row_ids(self) -> dict[int, int]:
        """Of every row by its own id, as Iceberg's generic reader has them."""
        iceberg, java = self.lake.jvm.gateway.jvm.org.apache.iceberg, self.lake.java(self.name)
        schema = iceberg.MetadataColumns.schemaWithRowLineage(java.schema())
        records = iceberg.data.IcebergGenerics.read(java).project(schema).build().iterator()
        found = {}
        while records.hasNext():
            record = records.next()
            found[int(record.getField("id"))] = int(record.getField("_row_id"))
        return found

    def files(self) -> list[Path]:
        """The data files of the newest snapshot."""
        tasks = self.lake.java(self.name).newScan().planFiles().iterator()
        found = []
        while tasks.hasNext():
            found.append(Path(str(tasks.next().file().location()).removeprefix("file:")))
        return found


def layout_of(*partition_by: str) -> Layout:
    return Layout(tuple(map(parse_term, partition_by)), ())


def in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["id"])


def row_with_times(number: int) -> Row:
    at = time(number % 24, 5, 6, 789) if number % 5 else None
    return {"id": number, "region": ["north", "south"][number % 2], "t": at, "inside": {"at": at, "n": number}}


@pytest.mark.parametrize(
    ("version", "partition_by"),
    sliced(
        [
            (2, ("bucket(id, 2)", "region")),
            (3, ()),
            (2, ()),
            (2, ("region",)),
            (3, ("region",)),
            (3, ("bucket(id, 2)", "region")),
        ],
        2,
    ),
)
def test_files_with_times_become_one_for_each_partition(
    lake: Lake, version: int, partition_by: tuple[str, ...]
) -> None:
    table = Kept(lake, TIMES, version, *partition_by)
    for start in range(0, 60, 20):
        table.append([row_with_times(start + number) for number in range(20)])
    partitions = {file.partition for file in lake.metadata(table.name).files}
    outcomes = lake.maintenance(table.name)
    assert [(one.action.kind, one.failure) for one in outcomes if one.action.kind == "compact"] == [("compact", "")]
    assert sorted(file.partition for file in lake.metadata(table.name).files) == sorted(partitions)
    assert table.read() == in_order(table.rows)
    for path in table.files():
        assert str(pq.ParquetFile(path).schema_arrow.field("t").type) == "time64[us]"
    assert "compact" not in [outcome.action.kind for outcome in lake.maintenance(table.name)]


def test_files_with_times_of_an_old_partition_spec_stay_of_that_spec(lake: Lake) -> None:
    table = Kept(lake, TIMES, 2, "region")
    for start in range(0, 40, 20):
        rows = [row_with_times(start + number) for number in range(20)]
        table.append([{**row, "region": "null" if row["id"] % 2 else None} for row in rows])
    lake.catalog.arrange(table.name, layout_of("bucket(id, 2)"))
    for start in range(40, 80, 20):
        table.append([row_with_times(start + number) for number in range(20)])
    assert {one.failure for one in lake.maintenance(table.name)} == {""}
    files = set(table.files())
    assert len(files) == 4
    assert table.read() == in_order(table.rows)
    table.append([row_with_times(100)])
    lake.maintenance(table.name)
    assert len(files & set(table.files())) >= 2, "files that are alone in their old partition are left alone"


@pytest.mark.parametrize(("version", "is_own"), sliced([(3, True), (2, False), (2, True), (3, False)], 2))
def test_deleted_rows_of_files_with_times_stay_deleted_and_the_others_keep_their_ids(
    lake: Lake, version: int, is_own: bool
) -> None:
    lake = lake if is_own else Lake(lake.jvm, lake.root, None)
    table = Kept(lake, TIMES, version)
    for start in range(0, 60, 20):
        table.append([row_with_times(start + number) for number in range(20)])
    table.delete_first(5)
    row_ids = table.row_ids() if version == 3 else {}
    assert [one.failure for one in lake.maintenance(table.name)][:1] == [""]
    assert table.read() == in_order(table.rows)
    assert (len(table.files()), lake.metadata(table.name).deletes) == (1, ())
    assert [path for path in table.files() if is_own_file(path)] == (table.files() if is_own else [])
    assert version == 2 or table.row_ids() == row_ids
    table.append([row_with_times(100)])
    assert table.read() == in_order(table.rows)


@pytest.mark.parametrize("version", sliced([3, 2], 1))
def test_own_writer_takes_columns_as_they_are_and_icebergs_those_that_were_widened(lake: Lake, version: int) -> None:
    table = Kept(lake, PLAIN, version, "truncate(region, 3)", "bucket(n, 2)")
    for start in range(0, 60, 20):
        table.append([plain_row(start + number) for number in range(20)])
    table.delete_first(1)
    row_ids = table.row_ids() if version == 3 else {}
    assert {one.failure for one in lake.maintenance(table.name)} == {""}
    assert all(is_own_file(path) for path in table.files())
    assert table.read() == in_order(table.rows)
    java = lake.java(table.name)
    java.updateSchema().updateColumn("n", java.schema().findType("at_place")).addColumn(
        "late", java.schema().findType("region")
    ).commit()
    table.rows = [{**row, "late": None} for row in table.rows]
    table.append([{**plain_row(n), "late": "x"} for n in range(60, 80)])
    assert version == 2 or {**table.row_ids(), **row_ids} == table.row_ids()
    assert {one.failure for one in lake.maintenance(table.name)} == {""}
    assert {is_own_file(path) for path in table.files()} == {False}
    assert table.read() == in_order(table.rows)
    assert version == 2 or {**table.row_ids(), **row_ids} == table.row_ids()
    table.append([{**plain_row(n), "late": None} for n in range(80, 100)])
    assert {one.failure for one in lake.maintenance(table.name)} == {""}
    assert {is_own_file(path) for path in table.files()} == {True}, "what Iceberg has widened is as the table's is"
    assert table.read() == in_order(table.rows)
    assert version == 2 or {**table.row_ids(), **row_ids} == table.row_ids()


def test_files_of_other_partitions_than_those_chosen_are_left_alone(lake: Lake) -> None:
    table = Kept(lake, PLAIN, 2, "region", "n")
    for start in range(0, 60, 20):
        table.append([plain_row(start + number) for number in range(20)])
    before, files = set(table.files()), lake.metadata(table.name).files
    chosen = sorted({file.partition for file in files})[:4]
    options = {"rewrite-all": "true", "max-files-to-rewrite": "7"}
    done = lake.table_maintenance.compact(table.name, Compaction(options, partitions=frozenset(chosen)))
    counts = Counter(file.partition for file in lake.metadata(table.name).files)
    assert [name for name in chosen if counts[name] == 1]
    assert {name: count for name, count in counts.items() if name not in chosen} == {
        name: count for name, count in Counter(file.partition for file in files).items() if name not in chosen
    }
    assert 7 <= done.removed < 7 + 3
    assert len(before - set(table.files())) == done.removed
    assert table.read() == in_order(table.rows)


def test_nothing_is_left_of_a_group_that_the_own_writer_can_write_in_part(lake: Lake) -> None:
    table = Kept(lake, {"id": "long", "n": "int", "s": "string"}, 3)
    rng = np.random.default_rng(1)
    for start in range(0, 80, 10):
        if start == 40:
            java = lake.java(table.name)
            java.updateSchema().updateColumn("n", java.schema().findType("id")).commit()
        table.append([{"id": start + n, "n": n, "s": rng.bytes(20_000).hex()} for n in range(10)])
    old = set(table.files())
    assert {one.failure for one in lake.maintenance(table.name, KEEN.model_copy(update={"cores": 2}))} == {""}
    new = set(table.files())
    assert {is_own_file(path) for path in new} == {False}
    assert set(next(iter(new)).parent.glob("*.parquet")) <= old | new
    assert table.read() == in_order(table.rows)


def plain_row(number: int) -> Row:
    region = ("nörd/st", "a b%", None)[number % 3]
    inside = {"words": [{"w": str(number)}, None], "x": number / 4} if number % 4 else None
    return {"id": number, "region": region, "n": number % 5, "at_place": number, "inside": inside}


def is_own_file(path: Path) -> bool:
    return str(pq.read_metadata(path).created_by).startswith("parquet-cpp-arrow")


def test_many_manifests_of_tables_with_times_become_few(lake: Lake) -> None:
    table = Kept(lake, TIMES, 2)
    for number in range(4):
        table.append([row_with_times(number)])
    assert lake.table_maintenance.rewrite_manifests(table.name).removed == 4
    assert len(lake.metadata(table.name).sizes.manifests) == 1
    assert table.read() == in_order(table.rows)


@pytest.mark.parametrize("partition_by", [(), ("bucket(id, 2)",)])
def test_columns_whose_names_differ_in_case_alone_are_kept_apart(lake: Lake, partition_by: tuple[str, ...]) -> None:
    table = Kept(lake, CASES, 2, *partition_by)
    for start in range(0, 40, 20):
        table.append([{"id": start + n, "Id": -n, "region": "north"} for n in range(20)])
    partitions = {file.partition for file in lake.metadata(table.name).files}
    settings = KEEN.model_copy(update={"sort": ("Id",), "snapshots": SnapshotsSpec(kept=100), "statistics": True})
    assert [one.failure for one in lake.maintenance(table.name, settings) if one.failure] == []
    assert len(table.files()) == len(partitions)
    found = [dict(zip(("id", "Id"), pair, strict=True)) for path in table.files() for pair in pairs(path)]
    assert in_order(found) == [{"id": row["id"], "Id": row["Id"]} for row in in_order(table.rows)]
    for path in table.files():
        assert [second for _, second in pairs(path)] == sorted(second for _, second in pairs(path))


def pairs(path: Path) -> list[tuple[int, int]]:
    """Both columns of a file, by their field ids."""
    found = pq.ParquetFile(path).read()
    return list(zip(found.column(0).to_pylist(), found.column(1).to_pylist(), strict=True))
