"""Counts and sums of groups in Spark Structured Streaming: state in RocksDB, rows in an Iceberg table by `MERGE INTO`.

Started as a process of its own: `python -m bench.stock_state JOB.json`. As a careful Spark user would write it: update mode,
so that each micro-batch has the groups that it changes, and these are merged, merge-on-read, format 3.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from bench.stock import TABLE, session

_COLUMNS = "g bigint, n bigint, at bigint, records bigint"
_STATE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
}
_PROPERTIES = "'format-version'='3', 'write.merge.mode'='merge-on-read', 'write.merge.distribution-mode'='none'"
_MERGE = f"""
merge into {TABLE} t using changes c on t.g = c.g
when matched then update set n = c.n, at = c.at, records = c.records
when not matched then insert (g, n, at, records) values (c.g, c.n, c.at, c.records)
"""


def _merge(batch: DataFrame, _: int) -> None:
    batch.createOrReplaceTempView("changes")
    batch.sparkSession.sql(_MERGE)


def main(path: Path) -> None:
    job: dict[str, Any] = json.loads(path.read_text())
    folder = Path(job["folder"])
    spark = session({**job, "conf": _STATE})
    spark.sql("create namespace if not exists lake.bench")
    spark.sql(f"create table if not exists {TABLE} ({_COLUMNS}) using iceberg tblproperties ({_PROPERTIES})")
    options = {
        "kafka.bootstrap.servers": job["bootstrap"],
        "subscribe": job["topic"],
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(job["per_batch"]),
    }
    read = spark.readStream.format("kafka").options(**options).load()
    row = f.from_json(f.col("value").cast("string"), "g bigint, n bigint, at bigint").alias("j")
    groups = (
        read.select(row)
        .groupBy("j.g")
        .agg(f.sum("j.n").alias("n"), f.max("j.at").alias("at"), f.count("*").alias("records"))
    )
    writer = groups.writeStream.outputMode("update").foreachBatch(_merge)
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [json.loads(one.json) for one in query.recentProgress]
    (folder / "progress.json").write_text(json.dumps(progress, indent=1))
    failure = query.exception()
    spark.stop()
    if failure is not None:
        sys.exit(f"the query failed: {failure}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
