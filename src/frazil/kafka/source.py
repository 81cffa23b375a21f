"""The Spark read of offset ranges: the Kafka source's V2 reader, one read for many topics.

The driver asks Kafka nothing. Spark's own batch read describes the topics first, and its admin client asks any broker of the
cluster, whatever `bootstrap.servers` contains: one that is silent would hold every other job for `request.timeout.ms`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from frazil.kafka.far_records import Stretch, without
from frazil.kafka.properties import java_properties
from frazil.types import OffsetRange, Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The consumer seeks and asks for both ends of the log at every poll, so that small polls cost round trips.
_TUNING = {
    # A consumer of a deleted topic must not create it again.
    "allow.auto.create.topics": "false",
    "max.poll.records": "10000",
    "max.partition.fetch.bytes": str(8 * 1024 * 1024),
    "fetch.max.bytes": str(64 * 1024 * 1024),
    "receive.buffer.bytes": str(1024 * 1024),
    "fetch.max.wait.ms": "5",
    # Each partition has a consumer, which would ask at its start which metrics it has to report to the broker (KIP-714).
    "enable.metrics.push": "false",
}
# How long a task waits for records of a silent broker, where the pipeline file sets no time-out: Spark's default is two
# minutes, and another minute for the end offsets.
_PATIENCE_MS = "30000"
_CALL_TIMEOUT = "default.api.timeout.ms"
_PLACE = ("topic", "partition", "offset")

# Each piece costs its task a few more round trips to the broker.
WORTH_CUTTING = 100_000


def read_ranges(
    spark: SparkSession,
    properties: Mapping[str, str],
    ranges: Iterable[OffsetRange],
    columns: Sequence[str],
    slices: int,
    apart: Sequence[Stretch] = (),
) -> DataFrame:
    """Returns the records of `ranges` with the source's `columns` (key, value, topic, partition, offset, timestamp,
    headers).

    slices: the number of Spark partitions; with fewer than there are ranges, ranges share a task, with more they are
    split. Missing offsets fail the job: whether to skip them is decided before (`on_data_loss`). apart: parts of the ranges
    that Spark cannot read, in order per partition; one task gets all records then.
    """
    chosen = sorted(ranges, key=lambda r: (r.topic, r.partition))
    pieces = pieces_of(chosen, slices)
    consumer = {**_TUNING, **_bounded(java_properties(properties))}
    fingerprint = hashlib.sha256(json.dumps(sorted(consumer.items())).encode()).hexdigest()[:12]
    options = {
        **{f"kafka.{name}": value for name, value in consumer.items()},
        "kafkaConsumer.pollTimeoutMs": consumer[_CALL_TIMEOUT],
        # A stable group lets executors keep their consumers between batches; one without the hash of the options would make
        # them refuse other options for the same group (the pool's check), none at all leaks a map entry per batch.
        "kafka.group.id": f"frazil-{fingerprint}",
        "failOnDataLoss": "true",
        "includeHeaders": str("headers" in columns).lower(),
        "assign": json.dumps({topic: list(found) for topic, found in _by_topic(chosen, "start").items()}),
    }
    if apart:
        return _in_one_task(spark, options, chosen, columns, apart)
    if pieces > len(chosen):
        options["minPartitions"] = str(pieces)
    records = _planned(spark, options, chosen).select(*columns)
    return records.coalesce(slices) if slices < pieces else records


def _in_one_task(
    spark: SparkSession,
    options: Mapping[str, str],
    ranges: Sequence[OffsetRange],
    columns: Sequence[str],
    apart: Sequence[Stretch],
) -> DataFrame:
    """Returns the records of the ranges in one Spark partition, in order; those of `apart` come from the driver."""
    wanted = [*_PLACE, *(name for name in columns if name not in _PLACE)]
    found = _handed_over(spark, wanted, apart)
    left = without(ranges, apart)
    while left:  # Spark reads one range of each partition at a time.
        first = {(r.topic, r.partition): r for r in reversed(left)}
        found = found.union(_planned(spark, options, list(first.values())).select(*wanted))
        left = [r for r in left if first[r.topic, r.partition] is not r]
    return found.coalesce(1).sortWithinPartitions(*_PLACE).select(*columns)


def _handed_over(spark: SparkSession, columns: Sequence[str], apart: Iterable[Stretch]) -> DataFrame:
    rows = [
        (
            one.topic,
            one.partition,
            one.offset,
            None if one.timestamp_ms is None else 1000 * one.timestamp_ms,
            one.key,
            one.value,
            [(name, held) for name, held in one.headers] or None,
        )
        for stretch in apart
        for one in stretch.records
    ]
    types = (
        "topic string, partition int, offset bigint, micros bigint, key binary, value binary,"
        " headers array<struct<key: string, value: binary>>"
    )
    made = spark.createDataFrame(rows, types)
    return made.selectExpr(*("timestamp_micros(micros) as timestamp" if one == "timestamp" else one for one in columns))


def _planned(spark: SparkSession, options: Mapping[str, str], ranges: Sequence[OffsetRange]) -> DataFrame:
    """The read that a stream would plan for a batch of these ranges: without a question to Kafka."""
    from pyspark.sql import DataFrame  # noqa: PLC0415  (a third of a second that other commands need not pay)

    starts, ends = _by_topic(ranges, "start"), _by_topic(ranges, "end")

    context, session = spark.sparkContext, spark._jsparkSession
    jvm: Any = context._jvm
    sql = jvm.org.apache.spark.sql
    java_options = sql.util.CaseInsensitiveStringMap(dict(options))
    table = sql.kafka010.KafkaSourceProvider().getTable(java_options)
    stream = table.newScanBuilder(java_options).build().toMicroBatchStream("")
    start, end = (stream.deserializeOffset(json.dumps(offsets)) for offsets in (starts, ends))
    pieces = jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(stream.planInputPartitions(start, end))
    no_metrics = jvm.scala.Predef.Map().empty()
    # Each piece is a partition, as in Spark's own scan.
    rdd = sql.execution.datasources.v2.DataSourceRDD(
        context._jsc.sc(), pieces.grouped(1).toSeq(), stream.createReaderFactory(), False, no_metrics
    )
    return DataFrame(session.internalCreateDataFrame(rdd, table.schema(), False), spark)


def pieces_of(ranges: Sequence[OffsetRange], slices: int) -> int:
    """Returns the number of pieces that the ranges are cut into, to be read by `slices` tasks. A large read whose
    ranges do not divide evenly among the tasks is cut into more pieces, or some tasks would read twice as much as
    others.
    """
    count = len(ranges)
    is_even = count % slices == 0 or slices % count == 0
    if is_even or sum(r.span for r in ranges) < WORTH_CUTTING:
        return max(count, slices)
    return count * slices


def _bounded(java: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties with a time-out for every call, which Java's admin client requires to be at least that of
    one request.
    """
    return {_CALL_TIMEOUT: java.get("request.timeout.ms", _PATIENCE_MS), **java}


def _by_topic(ranges: Iterable[OffsetRange], bound: Literal["start", "end"]) -> Offsets:
    offsets: dict[str, dict[int, int]] = {}
    for r in ranges:
        offsets.setdefault(r.topic, {})[r.partition] = r.start if bound == "start" else r.end
    return offsets
