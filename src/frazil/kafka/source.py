"""What each task of a Spark job reads: exact ranges of offsets, which go to it beside the job and never into a plan.

Spark runs, places and repeats tasks; they read Kafka themselves (`fetch`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from frazil.kafka.fetch.cluster import cluster_of, second_cluster
from frazil.kafka.fetch.columns import Wanted
from frazil.kafka.fetch.ranges import read_ranges
from frazil.types import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Task = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]

_SCHEMA = "read string"
_current_ranges: list[OffsetRange] = []
WORTH_CUTTING = 100_000
"""Fewer records are divided among tasks by whole ranges."""


def share_ranges(ranges: Iterable[OffsetRange], slices: int) -> list[list[OffsetRange]]:
    """Returns the ranges divided among at most so many tasks: each about as many offsets, and of a partition one range."""
    chosen = sorted((r for r in ranges if r.span > 0), key=lambda r: (r.topic, r.partition))
    total = sum(r.span for r in chosen)
    if slices == 1 or not total:
        return [chosen]
    shares: list[list[OffsetRange]] = [[] for _ in range(slices)]
    if total < WORTH_CUTTING and len(chosen) >= slices:
        for r in sorted(chosen, key=lambda r: r.span, reverse=True):
            min(shares, key=lambda share: sum(offset_range.span for offset_range in share)).append(r)
        return [share for share in shares if share]
    before = 0
    for r in chosen:
        start = r.start
        while start < r.end:
            number = before * slices // total
            end = min(r.end, start + -(-(number + 1) * total // slices) - before)
            shares[number].append(OffsetRange(r.topic, r.partition, start, end))
            before += end - start
            start = end
    return [share for share in shares if share]


def plan_reads(spark: SparkSession, settings: Mapping[str, str], shares: Sequence[Sequence[OffsetRange]]) -> DataFrame:
    """Returns a row for each task, in a partition of its own: what `reading` takes.

    settings: see `task_properties`. They have secrets, so that they are part of no plan that Spark prints or logs, and of no
    function, which PySpark writes to a file where it is large.
    """
    from pyspark.sql import DataFrame  # noqa: PLC0415  (a third of a second that other commands need not pay)

    context = spark.sparkContext
    jvm: Any = context._jvm
    gateway: Any = context._gateway
    rows = jvm.java.util.ArrayList()
    for share in shares:
        values = gateway.new_array(jvm.java.lang.Object, 1)
        asked = json.dumps({"settings": dict(settings), "ranges": [astuple(r) for r in share]})
        values[0] = jvm.org.apache.spark.unsafe.types.UTF8String.fromString(asked)
        rows.add(jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(values))
    rdd = context._jsc.parallelize(rows, len(shares)).rdd()
    schema = jvm.org.apache.spark.sql.types.StructType.fromDDL(_SCHEMA)
    return DataFrame(spark._jsparkSession.internalCreateDataFrame(rdd, schema, False), spark)


def reading(wanted: Wanted, task: Task) -> Task:
    """Returns the function for `mapInArrow` on what `plan_reads` returns, which hands the records to a task."""
    return partial(_read, wanted, task)


def _read(wanted: Wanted, task: Task, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    try:
        yield from task(_records(wanted, batches))
    finally:
        _current_ranges.clear()


def _records(wanted: Wanted, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for text in batch.column(0).to_pylist():
            asked = json.loads(text)
            ranges = [OffsetRange(*r) for r in asked["ranges"]]
            _current_ranges.extend(ranges)
            yield from read_ranges(cluster_of(asked["settings"]), ranges, wanted)


def current_ranges() -> Sequence[OffsetRange]:
    """Returns the ranges that the task of this process reads, as far as it has begun; none of a task that reads no topic."""
    return tuple(_current_ranges)


def read_before(before: OffsetRange, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """Yields records before those that this task reads at the moment; those that no longer exist are left out.

    Raises: UnavailableError, as `read_ranges`.
    """
    with second_cluster() as cluster:
        yield from read_ranges(cluster, [before], wanted, is_lenient=True)
