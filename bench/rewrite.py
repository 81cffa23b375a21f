"""A table's rows written anew by stock Spark, for comparison of what reading costs: `python -m bench.rewrite JOB.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.stock import session

NAME = "anew"


def main(path: Path) -> None:
    job = json.loads(path.read_text())
    spark = session(job)
    spark.sql("create namespace if not exists lake.bench")
    rows = spark.read.format("iceberg").load(job["location"])
    anew = rows.writeTo(f"lake.bench.{NAME}").using("iceberg")
    anew.tableProperty("format-version", "3").tableProperty("write.parquet.compression-codec", "zstd").create()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
