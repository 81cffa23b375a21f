"""The Spark read of offset ranges: the Kafka source's V2 reader, one read for many topics.

The driver asks Kafka nothing. Spark's own batch read describes the topics first, and its admin client asks any broker of the
cluster, whatever `bootstrap.servers` contains: one that is silent would hold every other job for `request.timeout.ms`.

Records whose timestamps Spark cannot hold are read by the driver, and Spark gets them beside those that it reads itself: its
source makes microseconds in 64 bits of every timestamp, whatever columns are asked for, and ends the task where they do not
fit. A producer that writes nanoseconds in place of milliseconds is enough (decision 49).
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from frazil.kafka.port import FARTHEST_MS, NO_TIMESTAMP_MS, Partition, ReadRecord
from frazil.kafka.properties import task_properties
from frazil.types import OffsetRange, Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_RECORDS = 10_000
"""The largest number of records that the driver keeps, and that one job gets from it."""
MOST_STRETCHES = 50
"""The largest number of stretches in a batch: Spark reads what is between them in as many pieces."""
_MOST_BYTES = 32 * 1024 * 1024
# Spark would read what is between two such records in a piece of its own. Below this the driver hands that over too.
_NEAR_RECORDS, _NEAR_BYTES = 100, 1024 * 1024

RangeReader = Callable[[OffsetRange], Iterator[Sequence[ReadRecord]]]
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
_GROUP = "kafka.group.id"
_FETCHED = "kafka.max.partition.fetch.bytes"
_PLACE = ("topic", "partition", "offset")
# Each piece costs its task a few more round trips to the broker.
WORTH_CUTTING = 100_000


@dataclass(frozen=True)
class Stretch:
    """All records of a range that begins and ends with one that Spark cannot read."""

    range: OffsetRange
    records: tuple[ReadRecord, ...]

    @property
    def place(self) -> Partition:
        """The topic and its partition."""
        return self.range.topic, self.range.partition

    def overlaps(self, r: OffsetRange) -> bool:
        """Whether a part of it is in another range."""
        return self.place == (r.topic, r.partition) and self.range.start < r.end and r.start < self.range.end

    def within(self, r: OffsetRange) -> Stretch:
        """Returns the part of it in another range of the partition."""
        start, end = max(r.start, self.range.start), min(r.end, self.range.end)
        records = tuple(one for one in self.records if start <= one.offset < end)
        return Stretch(OffsetRange(r.topic, r.partition, start, end), records)


def joined(stretches: Iterable[Stretch], others: Sequence[Stretch]) -> list[Stretch]:
    """Returns all stretches in order per partition; records of the others replace those inside of the first."""
    single = {(*one.place, one.range.start): one for one in others}
    kept = []
    for stretch in stretches:
        places = [(one.topic, one.partition, one.offset) for one in stretch.records]
        replaced = (single.pop(place, None) for place in places)
        records = (old if new is None else new.records[0] for old, new in zip(stretch.records, replaced, strict=True))
        kept.append(replace(stretch, records=tuple(records)))
    return sorted([*kept, *single.values()], key=lambda one: (*one.place, one.range.start))


class TooManyFarRecords(Exception):
    """A batch has more of them than the driver hands over at once; `first` is the first of them."""

    def __init__(self, first: ReadRecord) -> None:
        super().__init__(
            f"too many records of topic {first.topic} for one batch have timestamps that Spark cannot read, such as"
            " nanoseconds in place of milliseconds"
        )
        self.first = first


class FarRecords:
    """The stretches that were found so far. Used by several threads at once."""

    def __init__(self, read: RangeReader) -> None:
        """read: yields the records of a range; see `RecordReader.batches`."""
        self._read = read
        self._lock = threading.Lock()
        self._known: tuple[Stretch, ...] = ()

    def within(self, ranges: Sequence[OffsetRange]) -> list[Stretch]:
        """Returns what is known in the ranges, in order per partition."""
        found = (one.within(r) for one in self._known for r in ranges if one.overlaps(r))
        return sorted(found, key=lambda one: (*one.place, one.range.start))

    def search(self, ranges: Iterable[OffsetRange]) -> bool:
        """Reads the ranges, and returns whether they have such records that were not known.

        Raises: TooManyFarRecords; UnavailableError where the records do not arrive.
        """
        found: list[Stretch] = []
        for r in ranges:
            for one in _stretches(record for batch in self._read(r) for record in batch):
                found.append(one)
                if len(found) > MOST_STRETCHES or _is_too_much(found):
                    raise TooManyFarRecords(found[0].records[0])
        with self._lock:
            has_news = not {one.range for one in found} <= {one.range for one in self._known}
            kept = [*(one for one in self._known if not any(one.overlaps(new.range) for new in found)), *found]
            while _is_too_much(kept) or len(kept) > MOST_STRETCHES:
                kept.pop(0)  # Found again where it is read once more.
            self._known = tuple(kept)
        return has_news


def without(ranges: Iterable[OffsetRange], apart: Iterable[Stretch]) -> list[OffsetRange]:
    """Returns the ranges without the stretches, which are in order per partition."""
    cuts = list(apart)
    left: list[OffsetRange] = []
    for r in ranges:
        start = r.start
        for cut in (one.range for one in cuts if one.place == (r.topic, r.partition)):
            left.append(OffsetRange(r.topic, r.partition, start, cut.start))
            start = cut.end
        left.append(OffsetRange(r.topic, r.partition, start, r.end))
    return [r for r in left if r.span > 0]


def _stretches(records: Iterable[ReadRecord]) -> Iterator[Stretch]:
    """Yields the stretches of a partition's records, which are in order; a long one in parts, so that it can be refused."""
    found: list[ReadRecord] = []
    since: list[ReadRecord] = []
    for record in records:
        if record.timestamp_ms is not None and abs(record.timestamp_ms) >= FARTHEST_MS:
            found += [*since, record]
            since = []
        elif found:
            since.append(record)
        if found and (len(since) > _NEAR_RECORDS or _size(since) > _NEAR_BYTES or len(found) > MOST_RECORDS):
            yield _stretch(found)
            found, since = [], []
    if found:
        yield _stretch(found)


def _stretch(records: Sequence[ReadRecord]) -> Stretch:
    first, last = records[0], records[-1]
    return Stretch(OffsetRange(first.topic, first.partition, first.offset, last.offset + 1), tuple(records))


def _is_too_much(found: Sequence[Stretch]) -> bool:
    """A single record is never too much: Spark would hold it too."""
    count = sum(len(one.records) for one in found)
    return count > MOST_RECORDS or (count > 1 and sum(_size(one.records) for one in found) > _MOST_BYTES)


def _size(records: Iterable[ReadRecord]) -> int:
    return sum(len(one.value or b"") + len(one.key or b"") for one in records)


def read_ranges(
    spark: SparkSession,
    properties: Mapping[str, str],
    ranges: Iterable[OffsetRange],
    columns: Sequence[str],
    slices: int,
    apart: Sequence[Stretch] = (),
    *,
    is_fresh: bool = False,
) -> DataFrame:
    """Returns the records of `ranges` with the source's `columns` (key, value, topic, partition, offset, timestamp,
    headers).

    slices: the number of Spark partitions; with fewer than there are ranges, ranges share a task, with more they are
    split. Missing offsets fail the job: whether to skip them is decided before (`on_data_loss`). apart: parts of the ranges
    that Spark cannot read, in order per partition; one task gets all records then. is_fresh: whether its consumers must not
    even fetch these parts.
    """
    chosen = sorted(ranges, key=lambda r: (r.topic, r.partition))
    pieces = pieces_of(chosen, slices)
    consumer = {**_TUNING, **_bounded(task_properties(properties))}
    fingerprint = hashlib.sha256(json.dumps(sorted(consumer.items())).encode()).hexdigest()[:12]
    options = {
        **{f"kafka.{name}": value for name, value in consumer.items()},
        "kafkaConsumer.pollTimeoutMs": consumer[_CALL_TIMEOUT],
        # A stable group lets executors keep their consumers between batches; one without the hash of the options would make
        # them refuse other options for the same group (the pool's check), none at all leaks a map entry per batch.
        _GROUP: f"frazil-{fingerprint}",
        "failOnDataLoss": "true",
        "includeHeaders": str("headers" in columns).lower(),
        "assign": json.dumps({topic: list(found) for topic, found in _by_topic(chosen, "start").items()}),
    }
    if apart:
        return _in_one_task(spark, options, chosen, columns, apart, is_fresh=is_fresh)
    if pieces > len(chosen):
        options["minPartitions"] = str(pieces)
    records = _planned(spark, options, chosen).selectExpr(*_as_sent(columns))
    return records.coalesce(slices) if slices < pieces else records


def _in_one_task(
    spark: SparkSession,
    options: Mapping[str, str],
    ranges: Sequence[OffsetRange],
    columns: Sequence[str],
    apart: Sequence[Stretch],
    *,
    is_fresh: bool,
) -> DataFrame:
    """Returns the records of the ranges in one Spark partition, in order; those of `apart` come from the driver."""
    wanted = [*_PLACE, *(name for name in columns if name not in _PLACE)]
    found = _handed_over(spark, wanted, apart)
    left = without(ranges, apart)
    while left:  # Spark reads one range of each partition at a time.
        first = {(r.topic, r.partition): r for r in reversed(left)}
        # A consumer reads on in what it has fetched, and fetches what follows its range: that is never another batch of
        # records here, and no later read waits for it.
        apart_from = {_GROUP: f"{options[_GROUP]}-{len(left)}-{apart[0].range.end}", _FETCHED: "1"} if is_fresh else {}
        planned = _planned(spark, {**options, **apart_from}, list(first.values()))
        found = found.union(planned.selectExpr(*_as_sent(wanted)))
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


def _as_sent(columns: Iterable[str]) -> list[str]:
    """Returns Spark's expressions of the source's columns: the timestamp of a record without one is null."""
    timestamp = f"nullif(timestamp, timestamp_millis({NO_TIMESTAMP_MS})) as timestamp"
    return [timestamp if name == "timestamp" else name for name in columns]


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
