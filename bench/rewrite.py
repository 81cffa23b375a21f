"""A table written anew by stock Spark, and how long Spark takes to read it: `python -m bench.rewrite JOB.json`.

Twice: its rows into a new table, as many files as Spark makes of them, and all files of the same table by Iceberg's own
`rewrite_data_files`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench import reads
from bench.stock import session

NAME = "anew"
COMPACTED = "compacted"
READS_FILE = "reads.json"


def main(path: Path) -> None:
    """`locations` of the job are metadata files by name; `full` is the one that is written anew."""
    job = json.loads(path.read_text())
    spark = session(job)
    spark.sql("create namespace if not exists lake.bench")
    rows = spark.read.format("iceberg").load(job["locations"]["full"])
    anew = rows.writeTo(f"lake.bench.{NAME}").using("iceberg")
    anew.tableProperty("format-version", "3").tableProperty("write.parquet.compression-codec", "zstd").create()
    copied = f"table => 'bench.{COMPACTED}', metadata_file => '{job['locations']['full']}'"
    spark.sql(f"call lake.system.register_table({copied})")
    options = "map('rewrite-all', 'true')"
    spark.sql(f"call lake.system.rewrite_data_files(table => 'bench.{COMPACTED}', options => {options})")

    def read(location: str) -> None:
        # Spark's sink that takes every row and keeps none.
        spark.read.format("iceberg").load(location).write.format("noop").mode("overwrite").save()

    took = reads.medians(read, {**job["locations"], NAME: f"lake.bench.{NAME}", COMPACTED: f"lake.bench.{COMPACTED}"})
    (path.parent / READS_FILE).write_text(json.dumps(took))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
