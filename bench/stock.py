"""Stock Spark Structured Streaming doing Frazil's job, as a careful Spark user would write and tune it.

Started as a process of its own: `python -m bench.stock JOB.json`. It knows nothing of Frazil's data path: Spark's Kafka
source, `from_json` with the schema written down, Iceberg's streaming sink. When it ends it leaves `progress.json`.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.records import SCHEMA
from tests.fixtures.streaming import spark_jars

TABLE = "lake.bench.t"
_SQL_TYPES = {"long": "bigint"}
_META = ("_partition", "_offset", "_timestamp")
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def session(job: dict[str, Any]) -> SparkSession:
    """A local session with the same catalog and the same memory as Frazil's."""
    conf = {
        "spark.jars": ",".join(str(path) for path in spark_jars()),
        "spark.driver.memory": job["heap"],
        "spark.driver.extraJavaOptions": job["jvm_options"],
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": f"jdbc:sqlite:{job['catalog']}",
        "spark.sql.catalog.lake.warehouse": f"{job['folder']}/warehouse",
        "spark.sql.catalog.lake.jdbc.schema-version": "V1",
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        "spark.sql.session.timeZone": "UTC",
        **job.get("conf", {}),
    }
    builder = SparkSession.Builder().master("local[*]").appName("stock")
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def make_table(spark: SparkSession, job: dict[str, Any], frame: DataFrame) -> None:
    """The table, with the columns of what is written to it."""
    declared = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in frame.schema)
    properties = {"format-version": "2", "write.parquet.compression-codec": "zstd", **job.get("properties", {})}
    listed = ", ".join(f"'{name}'='{value}'" for name, value in properties.items())
    spark.sql("create namespace if not exists lake.bench")
    spark.sql(f"create table if not exists {TABLE} ({declared}) using iceberg tblproperties ({listed})")


def rows(spark: SparkSession, job: dict[str, Any]) -> DataFrame:
    """The topic's records as the table's columns: those of its query, `select … from records`, where the job has one."""
    options = {
        "kafka.bootstrap.servers": job["bootstrap"],
        "subscribe": job["topic"],
        "startingOffsets": "earliest",
        "kafka.max.poll.records": "10000",
        "kafka.max.partition.fetch.bytes": str(4 << 20),
        "kafka.fetch.max.bytes": str(64 << 20),
        **job.get("source", {}),
    }
    schema = ", ".join(f"{name} {_SQL_TYPES.get(kind, kind)}" for name, kind in SCHEMA.items())
    value = f.from_json(f.col("value").cast("string"), schema).alias("j")
    meta = [f.col(name.removeprefix("_")).alias(name) for name in _META] if job["metadata"] else []
    read = spark.readStream.format("kafka").options(**options).load()
    shaped = read.select(value, *meta).select("j.*", *[column for column in _META if job["metadata"]])
    if job.get("tasks"):
        shaped = shaped.coalesce(job["tasks"])
    if not job.get("select"):
        return shaped
    shaped.createOrReplaceTempView("records")
    return spark.sql(job["select"])


def start(job: dict[str, Any], frame: DataFrame) -> StreamingQuery:
    """The query: everything that is there (`available`), or every so often (`every`)."""
    writer: DataStreamWriter = frame.writeStream.format("iceberg").outputMode("append")
    writer = writer.option("checkpointLocation", f"{job['folder']}/checkpoint").option("fanout-enabled", "true")
    if job["trigger"] == "available":
        return writer.trigger(availableNow=True).toTable(TABLE)
    return writer.trigger(processingTime=job["trigger"]).toTable(TABLE)


def main(path: Path) -> None:
    job = json.loads(path.read_text())
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    spark = session(job)
    frame = rows(spark, job)
    make_table(spark, job, frame)
    query = start(job, frame)
    while not query.awaitTermination(1):
        if stopping:
            query.stop()
    progress = [json.loads(one.json) for one in query.recentProgress]
    (Path(job["folder"]) / "progress.json").write_text(json.dumps(progress, indent=1))
    failure = query.exception()
    spark.stop()
    if failure is not None:
        sys.exit(f"the query failed: {failure}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
