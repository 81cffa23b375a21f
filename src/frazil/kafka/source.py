"""The Spark read of offset ranges: the Kafka source's V2 reader, one load for many topics."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from frazil.kafka.properties import java_properties
from frazil.types import OffsetRange

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
}
# How long a task waits for records of a silent broker, where the pipeline file sets no time-out: Spark's default is two
# minutes, and another minute for the end offsets.
_PATIENCE_MS = "30000"
_CALL_TIMEOUT = "default.api.timeout.ms"

# Each piece costs its task a few more round trips to the broker.
WORTH_CUTTING = 100_000


def read_ranges(
    spark: SparkSession,
    properties: Mapping[str, str],
    ranges: Iterable[OffsetRange],
    columns: Sequence[str],
    slices: int,
) -> DataFrame:
    """Returns the records of `ranges` with the source's `columns` (key, value, topic, partition, offset, timestamp,
    headers).

    slices: the number of Spark partitions; with fewer than there are ranges, ranges share a task, with more they are
    split. Missing offsets fail the job: whether to skip them is decided before (`on_data_loss`).
    """
    chosen = sorted(ranges, key=lambda r: (r.topic, r.partition))
    consumer = {**_TUNING, **_bounded(java_properties(properties))}
    reader = spark.read.format("kafka").option("failOnDataLoss", "true")
    for name, value in consumer.items():
        reader = reader.option(f"kafka.{name}", value)
    reader = reader.option("kafkaConsumer.pollTimeoutMs", consumer[_CALL_TIMEOUT])
    # A stable group lets executors keep their consumers between batches; one without the hash of the options would make
    # them refuse other options for the same group (the pool's check), none at all leaks a map entry per batch.
    reader = reader.option("kafka.group.id", f"frazil-{_fingerprint(consumer)}")
    assigned: dict[str, list[int]] = {}
    for r in chosen:
        assigned.setdefault(r.topic, []).append(r.partition)
    reader = reader.option("assign", json.dumps(assigned))
    reader = reader.option("startingOffsets", json.dumps(_by_topic((r.topic, r.partition, r.start) for r in chosen)))
    reader = reader.option("endingOffsets", json.dumps(_by_topic((r.topic, r.partition, r.end) for r in chosen)))
    if "headers" in columns:
        reader = reader.option("includeHeaders", "true")
    pieces = pieces_of(chosen, slices)
    if pieces > len(chosen):
        reader = reader.option("minPartitions", str(pieces))
    frame = reader.load().select(*columns)
    return frame.coalesce(slices) if slices < pieces else frame


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


def _by_topic(triples: Iterable[tuple[str, int, int]]) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for topic, partition, number in triples:
        topics.setdefault(topic, {})[str(partition)] = number
    return topics


def _fingerprint(options: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(sorted(options.items())).encode()).hexdigest()[:12]
