"""Spark SQL and PyIceberg write to the tables of a running pipeline: rows that come, go and change, columns, partitions and
sort order; and Spark compacts them and expires their snapshots, by Iceberg's own procedures. Every record is there once, as
the others left it; of an upsert table every key, as the last one left it who changed it.

All is on a REST catalog, which each of them reaches by its own client. What is done to columns and partitions is done
while a batch that was written for the table as it was is about to be committed. In time: one writer and one format; what a
compaction of others changes for a batch in contracts/test_row_deltas.py and integration/test_maintenance_layouts.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.foreign_writers import LAKE, ForeignWriter, PyIcebergWriter, Row, SparkWriter
from tests.acceptance.ledger import Place, events
from tests.acceptance.pipelines import Pipeline, opened
from tests.acceptance.points import Points
from tests.acceptance.running import Run
from tests.acceptance.verifier import canonical, local_path, read_newest
from tests.fixtures.background import repeated
from tests.fixtures.foreign_spark import ForeignSpark
from tests.fixtures.waiting import wait_until
from tests.integration.servers import RestCatalogServer

pytestmark = pytest.mark.timeout(900)

Change = Callable[[int, Row], Row | None]
"""What somebody has done to the row of the record at an offset; None: deleted it."""
PLACE = {"topic": "from_topic", "partition": "from_partition", "offset": "from_offset"}
"""Spark cannot read a column `_partition`."""
PROPERTIES = {"write.metadata.previous-versions-max": "1000"}
REFUSED = "the table's schema, partition spec or sort order was changed after this batch was planned"
GONE = range(20)
CHANGED = range(20, 40)
MEANWHILE = range(15, 50)
BESIDE = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update")}
KEPT = 8
"""Snapshots that another one's expiry leaves: more than it has made itself."""
FAR_AHEAD = "timestamp '2100-01-01 00:00:00'"


def _in(numbers: range, column: str = "from_offset") -> str:
    return f"{column} >= {numbers.start} and {column} < {numbers.stop}"


class Scenario:
    """A pipeline that runs, on a REST catalog that others reach too."""

    def __init__(self, pipeline: Pipeline, spark: ForeignSpark, url: str) -> None:
        self.pipeline = pipeline
        self.points = Points(pipeline.folder / "points", ("commit.before", "hold"), ("upsert.resolved", "hold"))
        self.by_spark = SparkWriter(spark, url)
        self.foreign_writer: Mapping[str, ForeignWriter] = {"spark": self.by_spark, "pyiceberg": PyIcebergWriter(url)}
        self.tables = {
            "spark_rows": self._add("spark_rows"),
            "spark_rows_beside": self._add("spark_rows_beside", BESIDE),
            "pyiceberg_rows": self._add("pyiceberg_rows"),
            "spark_columns": self._add("spark_columns"),
            "pyiceberg_columns": self._add("pyiceberg_columns"),
            "parted": self._add("parted"),
            "order": self._add("order"),
            "declared": self._add("declared", partition_by=["even"]),
            "adopted": self._add("adopted"),
            "tidied": self._add("tidied"),
        }
        self.upsert_tables = {
            "vectors": self._add_upsert_table("vectors", BESIDE),
            "positions": self._add_upsert_table(
                "positions", {**BESIDE, "write.delete.granularity": "partition"}, format_version=2
            ),
            "pyiceberg": self._add_upsert_table("pyiceberg_upsert_table", format_version=2),
            "tidied_vectors": self._add_upsert_table("tidied_vectors"),
            "tidied_positions": self._add_upsert_table("tidied_positions", format_version=2),
        }
        self._make_adopted(self.tables["adopted"])
        self._run: Run | None = None

    def _add(self, name: str, properties: Mapping[str, str] | None = None, **settings: Any) -> Shared:
        table, topic = self.pipeline.add_fed_table(
            name, 1, metadata=PLACE, properties={**PROPERTIES, **(properties or {})}, **settings
        )
        return Shared(self, table, topic)

    def _make_adopted(self, adopted: Shared) -> None:
        """A table that is there before the pipeline: with rows, a column that needs a value, and a place of its own."""
        namespace = adopted.table.partition(".")[0]
        rows = [{"id": -number, "text": "was there"} for number in range(1, 4)]
        self.by_spark.sql(f"create namespace if not exists {LAKE}.{namespace}")
        self.by_spark.sql(
            f"create table {LAKE}.{adopted.table} (text string, id bigint not null) using iceberg "
            f"location '{self.elsewhere}' tblproperties ('write.metadata.previous-versions-max' = '1000')"
        )
        self.by_spark.append(adopted.table, rows)
        adopted.has_come(rows)

    @property
    def elsewhere(self) -> Path:
        """Outside the warehouse."""
        return self.pipeline.folder.parent / "elsewhere"

    def _add_upsert_table(
        self, name: str, properties: Mapping[str, str] | None = None, **settings: Any
    ) -> SharedUpsertTable:
        given = {"mode": "upsert", "key_columns": ["id"], "key": {"format": "json"}, **settings}
        made = self._add(name, properties, **given)
        return SharedUpsertTable(self, made.table, made.topic)

    def run(self) -> Run:
        """The running pipeline."""
        if self._run is None:
            self._run = self.pipeline.run(failpoints=self.points.declaration)
        return self._run


class Shared:
    """A table with its topic, and what must be in it: the row of every record, changed by what others did, and their own."""

    def __init__(self, scenario: Scenario, table: str, topic: str) -> None:
        self._scenario = scenario
        self.table = table
        self.topic = topic
        self._told = 0
        self._changes: list[Change] = []
        self._others = Counter[str]()

    def produce(self, count: int = 50, **more: Any) -> None:
        """Some more records."""
        self._scenario.pipeline.feed.produce(self.topic, events(count, self._told, **more))
        self._told += count

    def wait(self) -> None:
        """Until all of them are committed."""
        self._scenario.pipeline.wait_for_commit_of(self.table, self._scenario.run())

    @contextmanager
    def batch_in_hand(self) -> Iterator[int]:
        """While the block lasts a batch is about to be committed; the first offset that is not committed."""
        point = self._scenario.points["commit.before", "hold"]
        self.wait()
        with point.armed():
            self.produce()
            point.wait(self._scenario.run())
            yield self._scenario.pipeline.progress(self.table)[self.topic][0]
        self.wait()
        assert self._scenario.run().seen("commit_conflict", table=self.table, reason=REFUSED)

    def has_come(self, rows: list[Row]) -> None:
        """Somebody else has added rows."""
        self._others += Counter(map(canonical, rows))

    def has_changed(self, change: Change) -> None:
        """Somebody else has changed rows that were there."""
        self._changes.append(change)

    @property
    def metadata(self) -> Path:
        """The newest metadata file."""
        found = self._scenario.pipeline.metadata(self.table)
        assert found is not None
        return found

    @property
    def by_spark(self) -> SparkWriter:
        """Another team's Spark."""
        return self._scenario.by_spark

    def rewrites(self) -> set[int]:
        """Snapshots that put files in place of others and are not the pipeline's own."""
        snapshots = json.loads(self.metadata.read_text())["snapshots"]
        return {
            one["snapshot-id"]
            for one in snapshots
            if one["summary"]["operation"] == "replace"
            and f"frazil.{self._scenario.pipeline.name}.maintenance-id" not in one["summary"]
        }

    def check(self) -> None:
        """All of it is there, once, and every reader reports the same."""
        self.wait()
        found, others = Counter[tuple[Place, str]](), Counter[str]()
        for row in read_newest(self.metadata):
            topic, partition, offset = (row.pop(name) for name in PLACE.values())
            if topic is None:
                others[canonical(row)] += 1
            else:
                found[(topic, partition, offset), canonical(row)] += 1
        assert found == Counter(self._expected())
        assert others == self._others
        self.check_readers()

    def check_readers(self) -> None:
        """Every reader reports the same, and the pipeline has nothing to complain about."""
        self._scenario.pipeline.check_readers(self.table)
        assert not self._scenario.run().seen("table_stopped")
        assert not self._scenario.run().seen("unexpected_error")

    def _expected(self) -> Iterator[tuple[Place, str]]:
        for place, value in self._scenario.pipeline.ledger.of(self.topic).items():
            assert value is not None
            row: Row | None = json.loads(value)
            for change in self._changes:
                row = change(place[2], row) if row is not None else None
            if row is not None:
                yield place, canonical(row)

    def files(self) -> Iterator[tuple[Any, list[Row]]]:
        """The data files of the newest snapshot, with their rows."""
        for task in StaticTable.from_metadata(f"file://{self.metadata}").scan().plan_files():
            yield task.file, pq.ParquetFile(local_path(task.file.file_path)).read().to_pylist()


class SharedUpsertTable(Shared):
    """An upsert table of its topic's keys. rows: what must be in it, as the last one left it who changed it."""

    def __init__(self, scenario: Scenario, table: str, topic: str) -> None:
        super().__init__(scenario, table, topic)
        self.rows: dict[int, Row] = {}

    def put(self, keys: range) -> None:
        """A record with a row for each of these keys."""
        for key in keys:
            self._told += 1
            row = {"id": key, "text": f"text {self._told}", "told": self._told}
            self._scenario.pipeline.feed.send(self.topic, [row], 0, str(key).encode())
            self.rows[key] = row
        self._scenario.pipeline.feed.flush()

    def drop(self, keys: range) -> None:
        """A record that deletes the row of each of these keys."""
        for key in keys:
            self._scenario.pipeline.feed.send(self.topic, [None], 0, str(key).encode())
            self.rows.pop(key, None)
        self._scenario.pipeline.feed.flush()

    def change_rows(self, foreign_writer: ForeignWriter, own: range) -> None:
        """Somebody else deletes rows, changes rows, and adds rows with these keys."""
        foreign_writer.delete(self.table, _in(GONE, "id"))
        foreign_writer.overwrite(self.table, _in(CHANGED, "id"), "changed")
        foreign_writer.append(self.table, [{"id": key, "text": "theirs"} for key in own])
        self.rows = {key: row for key, row in self.rows.items() if key not in GONE}
        self.rows |= {key: {**self.rows[key], "text": "changed"} for key in CHANGED}
        self.rows |= {key: {"id": key, "text": "theirs", "told": None} for key in own}

    def check(self) -> None:
        self.wait()
        found = [{name: row[name] for name in ("id", "text", "told")} for row in read_newest(self.metadata)]
        assert sorted(found, key=lambda row: int(row["id"])) == [self.rows[key] for key in sorted(self.rows)]
        self.check_readers()


@pytest.fixture(scope="module")
def scenario(
    broker: EmbeddedBroker, spark: ForeignSpark, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scenario]:
    """Nothing is produced yet."""
    folder = tmp_path_factory.mktemp("shared")
    catalog = RestCatalogServer(folder / "catalog", str(folder / "warehouse"))
    catalog.start()
    try:
        with opened(folder / "pipeline", broker.bootstrap_servers, spark) as pipeline:
            pipeline.document["catalog"] = {"type": "rest", "uri": catalog.url}
            pipeline.catalog_file = folder / "catalog" / "rest.db"
            yield Scenario(pipeline, spark, catalog.url)
    finally:
        catalog.kill()


@pytest.mark.parametrize(
    ("name", "writer"),
    [
        ("spark_rows", "spark"),
        pytest.param("spark_rows_beside", "spark", marks=pytest.mark.slow),
        pytest.param("pyiceberg_rows", "pyiceberg", marks=pytest.mark.slow),
    ],
)
def test_rows_of_others_come_go_and_change_while_records_arrive(scenario: Scenario, name: str, writer: str) -> None:
    table, foreign_writer = scenario.tables[name], scenario.foreign_writer[writer]
    own = [{"id": -number, "text": f"by {writer}"} for number in range(1, 6)]
    table.produce(100)
    table.wait()
    with repeated(lambda _: table.produce(5), 0.05):
        foreign_writer.append(table.table, own)
        foreign_writer.delete(table.table, _in(GONE))
        foreign_writer.overwrite(table.table, _in(CHANGED), "changed")
        foreign_writer.append(table.table, own)
    table.has_come([*own, *own])
    table.has_changed(lambda offset, row: None if offset in GONE else row)
    table.has_changed(lambda offset, row: {**row, "text": "changed"} if offset in CHANGED else row)
    table.check()


@pytest.mark.parametrize(
    ("name", "writer"),
    [
        ("vectors", "spark"),
        pytest.param("positions", "spark", marks=pytest.mark.slow),
        pytest.param("pyiceberg", "pyiceberg", marks=pytest.mark.slow),
    ],
)
def test_rows_of_an_upsert_table_are_as_the_last_one_left_them_who_changed_them(
    scenario: Scenario, name: str, writer: str
) -> None:
    upsert_table, foreign_writer = scenario.upsert_tables[name], scenario.foreign_writer[writer]
    point = scenario.points["upsert.resolved", "hold"]
    upsert_table.put(range(100))
    upsert_table.wait()
    scenario.pipeline.wait_until_settled(upsert_table.table, scenario.run())
    with point.armed():
        upsert_table.put(MEANWHILE)
        newer = {key: upsert_table.rows[key] for key in MEANWHILE}
        point.wait(scenario.run())
        upsert_table.change_rows(foreign_writer, range(1000, 1010))
    upsert_table.rows |= newer
    upsert_table.check()
    assert scenario.run().seen("lookup_repeated", table=upsert_table.table)
    assert not scenario.run().seen("commit_conflict", table=upsert_table.table)
    upsert_table.change_rows(foreign_writer, range(2000, 2010))
    upsert_table.check()
    upsert_table.put(range(5, 25))
    upsert_table.put(range(1000, 1005))
    upsert_table.drop(range(3))
    upsert_table.drop(range(30, 35))
    upsert_table.drop(range(2000, 2005))
    upsert_table.check()


def tidy(table: Shared, where: str = "") -> None:
    """What another team's job does now and then, by Iceberg's own procedures: compacts files, their deletes and their
    manifests, and expires snapshots. where: of the rows whose files are compacted; empty: all.
    """
    spark, name, before = table.by_spark, table.table, table.rewrites()
    chosen = {"where": f"'{where}'"} if where else {}
    done = spark.call("rewrite_data_files", name, options="map('rewrite-all', 'true')", **chosen)
    assert done["rewritten_data_files_count"] > done["added_data_files_count"] > 0
    assert table.rewrites() - before, "a compaction that is not the pipeline's own has landed"
    spark.call("rewrite_position_delete_files", name, options="map('rewrite-all', 'true')")
    spark.call("rewrite_manifests", name, use_caching="false")
    expired = spark.call("expire_snapshots", name, older_than=FAR_AHEAD, retain_last=str(KEPT))
    assert expired["deleted_manifest_lists_count"] > 0


@pytest.mark.slow
def test_spark_compacts_a_table_and_expires_its_snapshots_while_records_arrive(scenario: Scenario) -> None:
    table = scenario.tables["tidied"]
    for _ in range(KEPT):
        table.produce(20)
        table.wait()
    with repeated(lambda _: table.produce(5), 0.2):
        tidy(table)
    table.check()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tidied_vectors", "tidied_positions"])
def test_spark_compacts_and_expires_an_upsert_table_while_changes_arrive(scenario: Scenario, name: str) -> None:
    upsert_table, run = scenario.upsert_tables[name], scenario.run()
    for number in range(KEPT):
        upsert_table.put(range(10 * number, 10 * number + 15))
        upsert_table.wait()
    # Whose rows are changed while they are compacted is compacted in vain.
    with repeated(lambda _: upsert_table.put(range(1000, 1010)), 0.2):
        tidy(upsert_table, where="id < 1000")
    upsert_table.check()
    scenario.pipeline.wait_until_settled(upsert_table.table, run)
    point, before = scenario.points["upsert.resolved", "hold"], upsert_table.rewrites()
    looked = len(run.seen("lookup_repeated", table=upsert_table.table))
    with point.armed():
        upsert_table.put(range(20, 40))
        point.wait(run)
        upsert_table.by_spark.call("rewrite_data_files", upsert_table.table, options="map('rewrite-all', 'true')")
        assert upsert_table.rewrites() - before
    upsert_table.check()
    assert len(run.seen("lookup_repeated", table=upsert_table.table)) > looked
    upsert_table.put(range(30, 50))
    upsert_table.drop(range(5))
    upsert_table.drop(range(1000, 1005))
    upsert_table.check()


@pytest.mark.parametrize("writer", ["spark", pytest.param("pyiceberg", marks=pytest.mark.slow)])
def test_columns_are_renamed_dropped_and_added_under_a_batch(scenario: Scenario, writer: str) -> None:
    table, foreign_writer = scenario.tables[f"{writer}_columns"], scenario.foreign_writer[writer]
    table.produce()
    with table.batch_in_hand() as renamed_at:
        foreign_writer.rename(table.table, "text", "words")
    table.has_changed(lambda offset, row: _renamed(row, "text", "words") if offset < renamed_at else row)
    table.check()
    with table.batch_in_hand() as dropped_at:
        foreign_writer.drop(table.table, "amount")
    table.has_changed(lambda offset, row: {**row, "amount": None} if offset < dropped_at else row)
    table.check()
    with table.batch_in_hand():
        foreign_writer.add(table.table, "note")
    table.produce(50, note="of a record")
    table.check()


def _renamed(row: Row, column: str, name: str) -> Row:
    return {**row, column: None, name: row[column]}


def test_another_partition_spec_counts_for_all_that_comes(scenario: Scenario) -> None:
    table = scenario.tables["parted"]
    table.produce()
    with table.batch_in_hand() as changed_at:
        scenario.by_spark.sql(f"alter table {LAKE}.{table.table} add partition field bucket(4, id)")
    table.produce()
    table.check()
    specs = {row["from_offset"] >= changed_at: file.spec_id for file, rows in table.files() for row in rows}
    assert specs == {False: 0, True: 1}
    assert all(len({row["from_offset"] >= changed_at for row in rows}) == 1 for _, rows in table.files())


@pytest.mark.slow
def test_another_sort_order_counts_for_all_that_comes(scenario: Scenario) -> None:
    table = scenario.tables["order"]
    table.produce()
    with table.batch_in_hand() as changed_at:
        scenario.by_spark.sql(f"alter table {LAKE}.{table.table} write locally ordered by id desc")
    table.produce()
    table.check()
    for _, rows in table.files():
        ids = [row["id"] for row in rows]
        assert ids == sorted(ids, reverse=rows[0]["from_offset"] >= changed_at)


def test_a_partition_spec_that_the_file_declares_is_put_back(scenario: Scenario) -> None:
    table = scenario.tables["declared"]
    table.produce()
    with table.batch_in_hand():
        scenario.by_spark.sql(f"alter table {LAKE}.{table.table} drop partition field even")
    table.produce()
    table.check()
    assert all(len({row["even"] for row in rows}) == 1 for _, rows in table.files())
    document = json.loads(table.metadata.read_text())
    assert document["default-spec-id"] == 0


def test_a_table_that_was_there_keeps_its_rows_columns_and_place(scenario: Scenario) -> None:
    table = scenario.tables["adopted"]
    table.produce()
    table.produce(1, id=None)
    table.produce()
    table.has_changed(lambda offset, row: None if offset == 50 else row)
    table.check()
    document = json.loads(table.metadata.read_text())
    columns = document["schemas"][-1]["fields"]
    assert [(one["name"], one["required"]) for one in columns[:2]] == [("text", False), ("id", True)]
    assert document["location"].removeprefix("file:") == str(scenario.elsewhere)
    paths = [local_path(file.file_path) for file, _ in table.files()]
    assert [path for path in paths if not path.is_relative_to(scenario.elsewhere)] == []
    wait_until(lambda: scenario.pipeline.state(table.table).get("dead_letters") == 1, "its dead letter is there")
    dead_letters = scenario.pipeline.metadata(f"{table.table}__dead_letters")
    assert dead_letters is not None
    assert [dead_letter["offset"] for dead_letter in read_newest(dead_letters)] == [50]
    told = scenario.run().seen("old_metadata_kept")
    assert [one["table"] for one in told] == [table.table], "those that Frazil makes say what becomes of old metadata"
