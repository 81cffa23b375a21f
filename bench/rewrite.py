"""A table's rows written anew by stock Spark, and how long Spark takes to read them: `python -m bench.rewrite JOB.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench import reads
from bench.stock import session

NAME = "anew"
READS_FILE = "reads.json"


def main(path: Path) -> None:
    """`locations` of the job are metadata files by name; `full` is the one that is written anew."""
    job = json.loads(path.read_text())
    spark = session(job)
    spark.sql("create namespace if not exists lake.bench")
    rows = spark.read.format("iceberg").load(job["locations"]["full"])
    anew = rows.writeTo(f"lake.bench.{NAME}").using("iceberg")
    anew.tableProperty("format-version", "3").tableProperty("write.parquet.compression-codec", "zstd").create()

    def read(location: str) -> None:
        # Spark's sink that takes every row and keeps none.
        spark.read.format("iceberg").load(location).write.format("noop").mode("overwrite").save()

    took = reads.medians(read, {**job["locations"], NAME: f"lake.bench.{NAME}"})
    (path.parent / READS_FILE).write_text(json.dumps(took))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
