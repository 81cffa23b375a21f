"""A local lake without Kafka for tests of table maintenance: files written and committed as ingestion does it, and other
writers.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.maintenance import IcebergMaintenance
from frazil.catalog.maintenance_port import MergeOf, Transfer
from frazil.catalog.table_metadata import TableMetadata
from frazil.clock import SystemClock, new_id
from frazil.maintenance.merge_task import merge_of
from frazil.maintenance.plan import MaintenanceTask, Mode
from frazil.maintenance.run import MaintainedTable, MaintenanceRunner, Outcome
from frazil.runtime.jvm import Jvm
from frazil.spec.settings import MaintenanceSpec, OrphansSpec, SnapshotsSpec
from frazil.types import Commit, DataFile, PendingDeadLetters, Progress, Writer
from frazil.write.target import TableFiles, TableTarget
from frazil.write.write import FileWriter

Rows = list[tuple[int, str]]
COLUMNS = Schema(
    NestedField(1, "id", LongType(), required=False), NestedField(2, "_partition", StringType(), required=False)
)
PROPERTIES = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "20"}
KEEN = MaintenanceSpec(min_input_files=2, snapshots=SnapshotsSpec(kept=3), orphans=OrphansSpec(age_s=3600.0))
TARGET = 1024 * 1024


class Lake:
    """One warehouse with a catalog for the pipeline `p`."""

    def __init__(self, jvm: Jvm, root: Path, merge_of: MergeOf | None = merge_of) -> None:
        """merge_of: as of IcebergMaintenance."""
        root.mkdir(parents=True, exist_ok=True)
        self.jvm = jvm
        self.root = root
        self.catalog = self.connect()
        self.table_maintenance = IcebergMaintenance(self.catalog, jvm.session, merge_of=merge_of)
        self.runner = MaintenanceRunner(self.table_maintenance, "p", SystemClock())

    def connect(self, pipeline: str = "p") -> IcebergCatalog:
        """Another connection."""
        properties = {"type": "jdbc", "uri": f"jdbc:sqlite:{self.root / 'catalog.db'}", "warehouse": str(self.root)}
        properties |= {"jdbc.schema-version": "V1", "jdbc.busy_timeout": "60000"}
        return IcebergCatalog(self.jvm.gateway, pipeline, properties, self.jvm.hadoop)

    def create(self, table: str, format_version: int = 2) -> None:
        """An empty table with a column whose name Spark's reader refuses."""
        self.catalog.create(table, COLUMNS, PROPERTIES, format_version)

    def files(self, table: str, rows: Rows) -> list[DataFile]:
        """One file that no snapshot names yet."""
        state = self.catalog.load(table)
        assert state is not None
        properties = tuple(sorted(state.properties.items()))
        files = TableFiles(state.location, properties, (), TARGET, state.layout.spec_id)
        target = TableTarget(table, state.schema.model_dump_json(), files)
        writer = FileWriter(target)
        columns = [pa.array([i for i, _ in rows], pa.int64()), pa.array([text for _, text in rows], pa.string())]
        writer.write(pa.Table.from_arrays(columns, schema=target.arrow_schema))
        return writer.finish()

    def commit(
        self, table: str, rows: Rows, dead_letters: PendingDeadLetters | None = None, pipeline: str = "p"
    ) -> Progress:
        """One batch."""
        catalog = self.catalog if pipeline == "p" else self.connect(pipeline)
        files = self.files(table, rows)
        state = catalog.load(table)
        assert state is not None
        at = state.progress.offsets.get("topic", {}).get(0, 0)
        progress = Progress(
            {"topic": {0: at + len(rows)}}, {"topic": "id"}, "c", new_id(), Writer(1, "run"), dead_letters=dead_letters
        )
        return catalog.commit(Commit(table, tuple(files), progress, state.progress))

    def fill(self, table: str, commits: int, rows: int = 10) -> None:
        """Some batches of one file each."""
        for number in range(commits):
            self.commit(table, [(number * rows + i, str(i)) for i in range(rows)])

    def progress(self, table: str, pipeline: str = "p") -> Progress:
        """As a fresh process finds it."""
        state = self.connect(pipeline).load(table)
        assert state is not None
        assert not state.history_lost
        return state.progress

    def told(self, table: str, pipeline: str = "p") -> Progress:
        """The same, whichever snapshot reports it: table maintenance may say it again."""
        return replace(self.progress(table, pipeline), snapshot_id=None)

    def rows(self, table: str, snapshot: int | None = None) -> Rows:
        """All rows, sorted, as PyIceberg reads them: a file that is gone is an error."""
        java = self.catalog.java_table(table)
        static = StaticTable.from_metadata(str(java.operations().current().metadataFileLocation()))
        found = static.scan(snapshot_id=snapshot).to_arrow()
        return sorted(zip(*(found.column(place).to_pylist() for place in range(2)), strict=True))

    def metadata(self, table: str) -> TableMetadata:
        """With its files."""
        found = self.table_maintenance.metadata(table, with_files=True)
        assert found is not None
        return found

    def maintenance(
        self,
        table: str,
        spec: MaintenanceSpec = KEEN,
        mode: Mode = "thorough",
        owners: Sequence[str] = (),
        is_stopping: Callable[[], bool] = lambda: False,
        transfer: Transfer | None = None,
    ) -> list[Outcome]:
        """One round."""
        maintained = MaintainedTable(
            table, MaintenanceTask(spec, TARGET, transfer=transfer), f"{table}__dead_letters", tuple(owners)
        )
        plan = self.runner.plan(maintained, mode)
        assert plan is not None
        return list(self.runner.run(plan, maintained.maintenance, is_stopping))

    def spark(self) -> SparkSession:
        """A session of somebody else's, with the catalog `frazil`."""
        spark = self.jvm.session().newSession()
        spark.conf.set(
            "spark.sql.shuffle.partitions", "2"
        )  # 200 tasks for a few rows would be most of what a test does.
        prefix = "spark.sql.catalog.frazil"
        spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
        settings = {"type": "jdbc", "uri": f"jdbc:sqlite:{self.root / 'catalog.db'}", "warehouse": str(self.root)}
        for name, value in {**settings, "jdbc.schema-version": "V1", "cache-enabled": "false"}.items():
            spark.conf.set(f"{prefix}.{name}", value)
        return spark

    def expire_by_spark(self, table: str) -> None:
        """Somebody else keeps the newest snapshot alone, whatever its age."""
        arguments = f"table => '{table}', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1"
        self.spark().sql(f"CALL frazil.system.expire_snapshots({arguments})")

    def delete_equal(self, table: str, ids: Sequence[int]) -> None:
        """What Flink does: rows are deleted by their id, wherever they are."""
        java, jvm = self.java(table), self.jvm.gateway.jvm
        iceberg = jvm.org.apache.iceberg
        path = f"{java.location()}/data/{new_id()}.parquet"
        field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
        pq.write_table(pa.table([pa.array(ids, pa.int64())], schema=pa.schema([field])), path)
        equal = self.jvm.gateway.new_array(jvm.int, 1)
        equal[0] = 1
        file = iceberg.FileMetadata.deleteFileBuilder(java.spec()).ofEqualityDeletes(equal).withPath(path)
        file = file.withFormat("parquet").withFileSizeInBytes(Path(path).stat().st_size).withRecordCount(len(ids))
        java.newRowDelta().addDeletes(file.build()).commit()

    def rows_in_java(self, table: str) -> Rows:
        """All rows, sorted, as Iceberg's own reader has them: PyIceberg knows no equality deletes."""
        records = self.jvm.gateway.jvm.org.apache.iceberg.data.IcebergGenerics.read(self.java(table)).build()
        iterator, found = records.iterator(), []
        while iterator.hasNext():
            record = iterator.next()
            found.append((int(record.getField("id")), str(record.getField("_partition"))))
        return sorted(found)

    def java(self, table: str) -> Any:
        """The Java table, for other writers."""
        return self.catalog.java_table(table)


def noise(number: int, size_bytes: int) -> str:
    """Text that takes about so much in a file: it cannot be compressed."""
    return base64.b85encode(np.random.default_rng(number).bytes(size_bytes)).decode()


def age(path: str | Path, hours: float) -> None:
    """Makes a file look as if it were written so long ago."""
    then_s = SystemClock().now_ms() / 1000 - hours * 3600
    os.utime(path, (then_s, then_s))
