"""The readers that tables are shown to: they agree on tables with deleted rows, and tell when one of them is wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from hashlib import md5
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.types import BinaryType, IntegerType, MapType, NestedField, StringType, TimestamptzType, UUIDType

from tests.acceptance.verifier import Metadata
from tests.fixtures import readers
from tests.fixtures.foreign_spark import ForeignSpark
from tests.fixtures.readers import DIGESTS, IN_PROCESS, assert_equal_everywhere, rows_of
from tests.fixtures.slices import sliced

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

_COLUMNS = """
  id bigint, flag boolean, small int, ratio float, exact decimal(12, 2), day date, at timestamp, local timestamp_ntz,
  word string, raw binary, tags array<string>, counts map<string, int>, place struct<x: double, deep: struct<y: int>>
"""
_ROW = """
  select id, id % 2 = 0, cast(id as int), cast(id / 4 as float), cast(id / 8 as decimal(12, 2)),
    date '2026-01-01' + cast(id as int),
    timestamp '2026-01-02 03:04:05.678901Z' + make_interval(0, 0, 0, 0, cast(id as int)),
    timestamp_ntz '2026-01-02 03:04:05.678901',
    concat('word ', id), cast(concat('raw', id) as binary), array('a', null, string(id)),
    if(id % 3 = 0, null, map('one', 1, 'id', cast(id as int))),
    named_struct('x', double(id), 'deep', named_struct('y', if(id % 5 = 0, null, cast(id as int))))
  from range({first}, {last})
"""


@pytest.fixture(scope="module", autouse=True)
def _lake(spark: ForeignSpark, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A catalog of Spark's own in a folder."""
    spark.restart()
    spark.add_catalog("own", {"type": "hadoop", "warehouse": str(tmp_path_factory.mktemp("lake"))})


def _changed_table(spark: ForeignSpark, version: int) -> Path:
    """A table with deleted and changed rows, and a column that its first snapshots lack; its metadata file."""
    name = f"own.db.v{version}"
    modes = ", ".join(f"'write.{verb}.mode'='merge-on-read'" for verb in ("delete", "update", "merge"))
    spark.sql(f"create table {name} ({_COLUMNS}) using iceberg tblproperties ('format-version'='{version}', {modes})")
    spark.sql(f"insert into {name} {_ROW.format(first=0, last=40)}")
    spark.sql(f"delete from {name} where id % 7 = 0")
    spark.sql(f"alter table {name} add column late string")
    spark.sql(f"update {name} set late = 'now', word = null where id % 5 = 1")
    spark.sql(f"insert into {name} select *, null from ({_ROW.format(first=40, last=50)})")
    spark.sql(f"delete from {name} where id % 11 = 3")
    return _metadata(spark, name)


def _metadata(spark: ForeignSpark, name: str) -> Path:
    [newest] = spark.sql(f"select file from {name}.metadata_log_entries order by timestamp desc limit 1")
    return Path(newest["file"].removeprefix("file:"))


@pytest.mark.parametrize("version", sliced([3, 2], 1))
def test_all_readers_agree_on_every_snapshot_of_a_table_with_deletes(spark: ForeignSpark, version: int) -> None:
    metadata = _changed_table(spark, version)
    snapshots = [one.snapshot_id for one in StaticTable.from_metadata(f"file://{metadata}").snapshots()]
    assert len(snapshots) == 5
    assert_equal_everywhere(metadata, snapshots, spark)
    assert_equal_everywhere(metadata)
    assert_equal_everywhere(metadata, snapshots, readers=DIGESTS)


def test_a_reader_that_misses_a_delete_is_told_apart(spark: ForeignSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "own.db.blind"
    spark.sql(f"create table {name} (id bigint) using iceberg tblproperties ('format-version'='3')")
    spark.sql(f"insert into {name} values (1), (2), (2)")
    metadata = _metadata(spark, name)
    assert_equal_everywhere(metadata)
    blind = pa.table({"id": [1, 2, 2, 3]})
    monkeypatch.setattr(readers, "IN_PROCESS", {**readers.IN_PROCESS, "blind": lambda *_: blind})
    with pytest.raises(AssertionError, match="DuckDB reads 3 rows, blind 4"):
        assert_equal_everywhere(metadata)


def test_a_reader_that_has_another_text_is_told_apart_by_its_digest(spark: ForeignSpark) -> None:
    name = "own.db.words"
    spark.sql(f"create table {name} (id bigint, word string, place struct<word: string>) using iceberg")
    spark.sql(f"insert into {name} values (1, 'é 日', struct('deep')), (2, null, null), (3, '', struct(null))")
    metadata = _metadata(spark, name)
    assert_equal_everywhere(metadata, readers=DIGESTS)
    [snapshot] = [one.snapshot_id for one in StaticTable.from_metadata(f"file://{metadata}").snapshots()]
    found = DIGESTS["DuckDB"](metadata, snapshot).sort_by("id")
    assert found["word"].to_pylist() == [md5("é 日".encode()).hexdigest(), None, md5(b"").hexdigest()]
    other = {**DIGESTS, "other": lambda *_: found.set_column(1, "word", pa.array(["x", None, ""]))}
    with pytest.raises(AssertionError, match="only other"):
        assert_equal_everywhere(metadata, readers=other)


def test_a_list_of_structs_that_is_null_is_empty_to_pyiceberg_alone(spark: ForeignSpark) -> None:
    name = "own.db.lists"
    spark.sql(f"create table {name} (id bigint, pairs array<struct<key: string>>, tags array<string>) using iceberg")
    spark.sql(f"insert into {name} values (1, null, null), (2, array(), array()), (3, array(struct('a')), array('b'))")
    metadata = _metadata(spark, name)
    assert_equal_everywhere(metadata, spark=spark)
    [snapshot] = [one.snapshot_id for one in StaticTable.from_metadata(f"file://{metadata}").snapshots()]
    reported = readers.read_with_pyiceberg(metadata, snapshot).sort_by("id")
    assert reported["tags"].to_pylist() == [None, [], ["b"]]
    assert reported["pairs"].to_pylist() == [[], [], [{"key": "a"}]], (
        "once this is null, readers.with_null_lists can go"
    )
    answers: list[list[Any]] = [[[], [], []], [[], None, [{"key": "a"}]], [[{"key": "a"}], [], []]]
    for wrong in answers:
        other = reported.set_column(1, "pairs", pa.array(wrong, reported["pairs"].type))
        with pytest.raises(AssertionError, match="only PyIceberg"):
            assert_equal_everywhere(metadata, readers={**IN_PROCESS, "PyIceberg": partial(_reported, other)})


def _reported(found: pa.Table, _metadata: Metadata, _snapshot: int) -> pa.Table:
    return found


def test_an_older_snapshot_whose_columns_had_other_names_is_left_out(spark: ForeignSpark) -> None:
    name = "own.db.renamed"
    spark.sql(f"create table {name} (id bigint, word string) using iceberg")
    asked: list[int] = []

    def read(metadata: Metadata, snapshot: int) -> pa.Table:
        asked.append(snapshot)
        return readers.read_with_duckdb(metadata, snapshot)

    def ask() -> int:
        asked.clear()
        assert_equal_everywhere(_metadata(spark, name), readers={"DuckDB": read})
        return len(asked)

    for number in (1, 2, 3):
        spark.sql(f"insert into {name} values ({number}, 'x')")
    assert ask() == 3
    spark.sql(f"alter table {name} rename column word to text")
    spark.sql(f"insert into {name} values (4, 'x')")
    assert ask() == 1
    spark.sql(f"alter table {name} add column late string")
    spark.sql(f"insert into {name} values (5, 'x', 'y')")
    assert ask() == 2
    spark.sql(f"alter table {name} drop column late")
    spark.sql(f"insert into {name} values (6, 'x')")
    assert ask() == 3
    spark.sql(f"alter table {name} add column late string")
    spark.sql(f"insert into {name} values (7, 'x', 'y')")
    assert ask() == 2, "the last two: what is called so now was another column before"


def test_values_are_equal_however_a_reader_reports_them() -> None:
    schema = Schema(
        NestedField(1, "who", UUIDType()),
        NestedField(2, "raw", BinaryType()),
        NestedField(3, "counts", MapType(4, StringType(), 5, IntegerType())),
        NestedField(6, "at", TimestamptzType()),
        NestedField(7, "absent", StringType()),
    )
    who, at = UUID(int=7), datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    pairs = pa.map_(pa.string(), pa.int32())
    structs = pa.list_(pa.struct([("key", pa.string()), ("value", pa.int32())]))
    one = pa.table(
        {
            "who": pa.array([str(who)]),
            "raw": pa.array([b"\x00\xff"]),
            "counts": pa.array([[("b", 2), ("a", 1)]], pairs),
            "at": pa.array([at], pa.timestamp("us", "UTC")),
        }
    )
    other = pa.table(
        {
            "who": pa.array([who.bytes], pa.binary(16)),
            "raw": pa.array([b"\x00\xff"], pa.large_binary()),
            "counts": pa.array([[{"key": "a", "value": 1}, {"key": "b", "value": 2}]], structs),
            "at": pa.array([at], pa.timestamp("us", "Europe/Paris")),
            "absent": pa.array([None], pa.string()),
        }
    )
    assert rows_of(one, schema) == rows_of(other, schema)
