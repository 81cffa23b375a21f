"""`MERGE INTO` per micro-batch of Spark Structured Streaming: the same topic of changes into the same kind of table.

Started as a process of its own: `python -m bench.merge JOB.json`. As a careful Spark user would write it: the load is one
batch insert, ordered by key; of each micro-batch the newest change of every key is merged, merge-on-read, format 3. When
the load is committed it leaves the file `loaded`, at the end `progress.json`.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from bench.stock import TABLE, session

_COLUMNS = "id bigint, v bigint, s string, ts bigint"
_PROPERTIES = {
    "format-version": "3",
    "write.parquet.compression-codec": "zstd",
    "write.merge.mode": "merge-on-read",
    "write.merge.distribution-mode": "none",
}
_MERGE = f"""
merge into {TABLE} t using changes c on t.id = c.id
when matched and c.is_delete then delete
when matched then update set v = c.v, s = c.s, ts = c.ts
when not matched and not c.is_delete then insert (id, v, s, ts) values (c.id, c.v, c.s, c.ts)
"""


def _source(job: dict[str, Any], **options: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": job["bootstrap"],
        "subscribe": job["topic"],
        "kafka.max.poll.records": "10000",
        "kafka.max.partition.fetch.bytes": str(4 << 20),
        "kafka.fetch.max.bytes": str(64 << 20),
        **options,
    }


def newest(records: DataFrame) -> DataFrame:
    """The newest change of every key; a key is always in one partition."""
    row = f.from_json(f.col("value").cast("string"), _COLUMNS).alias("j")
    key = f.col("key").cast("string").cast("bigint")
    changes = records.select(key.alias("id"), f.col("value").isNull().alias("is_delete"), "offset", row).select(
        "id", "is_delete", "offset", "j.v", "j.s", "j.ts"
    )
    latest = Window.partitionBy("id").orderBy(f.col("offset").desc())
    return changes.withColumn("place", f.row_number().over(latest)).where("place = 1").drop("place", "offset")


def _load(spark: SparkSession, job: dict[str, Any], ends: str) -> None:
    records = spark.read.format("kafka").options(**_source(job, startingOffsets="earliest", endingOffsets=ends)).load()
    rows = newest(records).where("not is_delete").select("id", "v", "s", "ts").orderBy("id")
    rows.writeTo(TABLE).append()


def _merge(batch: DataFrame, _: int) -> None:
    newest(batch).createOrReplaceTempView("changes")
    batch.sparkSession.sql(_MERGE)


def main(path: Path) -> None:
    job = json.loads(path.read_text())
    folder, stopping = Path(job["folder"]), []  # type: Path, list[int]
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    spark = session(job)
    spark.sql("create namespace if not exists lake.bench")
    listed = ", ".join(f"'{name}'='{value}'" for name, value in _PROPERTIES.items())
    spark.sql(f"create table {TABLE} ({_COLUMNS}) using iceberg tblproperties ({listed})")
    ends = json.dumps({job["topic"]: {str(number): end for number, end in enumerate(job["ends"])}})
    _load(spark, job, ends)
    read = spark.readStream.format("kafka").options(**_source(job, startingOffsets=ends)).load()
    writer = read.writeStream.foreachBatch(_merge).option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(processingTime="0 seconds").start()
    (folder / "loaded").touch()
    while not query.awaitTermination(1):
        if stopping:
            query.stop()
    progress = [json.loads(one.json) for one in query.recentProgress]
    (folder / "progress.json").write_text(json.dumps(progress, indent=1))
    failure = query.exception()
    spark.stop()
    if failure is not None:
        sys.exit(f"the query failed: {failure}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
