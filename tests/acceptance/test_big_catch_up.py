"""A table with millions of records to catch up with, beside one that trickles: the small one's commits keep coming.

In time: unit/ingest/test_many_tables.py, on a clock of its own.
"""

from __future__ import annotations

import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer

from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.verifier import Metadata, document_of, open_table
from tests.fixtures.background import repeated
from tests.fixtures.foreign_spark import ForeignSpark
from tests.fixtures.readers import IN_PROCESS, Read

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]

BACKLOG, PARTITIONS = 2_000_000, 4
MOST_GAP_S = 3.0
# Where other work makes all of it slow. Held up, the small table would wait for nearly all of that time.
MOST_GAP_SHARE = 0.25
FEWEST_COMMITS = 5
"""More than come before the large table's columns are known and its backlog is begun."""


def fill(servers: str, topic: str) -> None:
    """The backlog: one record over and over, as it is only to take its time."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 50,
            "queue.buffering.max.messages": BACKLOG,
        }
    )
    [record] = events(1)
    value = json.dumps(record).encode()
    for number in range(BACKLOG):
        producer.produce(topic, value, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def commits_s(pipeline: Pipeline, table: str) -> list[float]:
    """When each batch of the table was committed."""
    metadata = pipeline.current(table)
    snapshots = document_of(metadata)["snapshots"] if metadata else []
    ours = [one for one in snapshots if f"frazil.{pipeline.name}.commit-id" in one["summary"]]
    return [one["timestamp-ms"] / 1000 for one in ours]


def test_a_big_catch_up_holds_up_no_small_table(pipeline: Pipeline, spark: ForeignSpark) -> None:
    small, trickle = pipeline.add_fed_table("small", 1)
    topic = pipeline.new_topic("large", PARTITIONS)
    large = pipeline.add_table("large", topic)
    in_process = {name: sums(read) for name, read in IN_PROCESS.items()}
    pipeline.readers[large] = {**in_process, "Spark": sums_by(spark, pipeline, large)}
    fill(pipeline.servers, topic)
    with pipeline.running() as run:
        with repeated(lambda turn: pipeline.feed.send(trickle, events(2, 2 * turn)), 0.1):
            goal = {topic: dict.fromkeys(range(PARTITIONS), BACKLOG // PARTITIONS)}
            pipeline.wait_for_offsets(large, goal, run)
        pipeline.feed.flush()
        pipeline.wait_for_commit_of(small, run)
        assert run.stop() == 0, run.tail()
    commits = commits_s(pipeline, small)
    caught_up_s = commits_s(pipeline, large)[-1]
    during = [time for time in commits if time < caught_up_s]
    gaps = [after - before for before, after in itertools.pairwise([*during, caught_up_s])]
    assert len(during) >= FEWEST_COMMITS, (commits, caught_up_s)
    assert np.percentile(gaps, 95) <= max(MOST_GAP_S, MOST_GAP_SHARE * (caught_up_s - commits[0])), gaps
    pipeline.check(small)
    check_backlog(pipeline, large)
    pipeline.check_readers(large)


def sums(read: Read) -> Read:
    """What this reader reports of a table of millions of rows: how many there are, the sum of their offsets, and how many of
    these differ, in columns that the table has.
    """

    def summed(metadata: Metadata, snapshot: int) -> pa.Table:
        offsets = read(metadata, snapshot)["_offset"]
        distinct = pc.count_distinct(offsets).as_py()
        return pa.Table.from_pylist(
            [{"id": len(offsets), "_offset": pc.sum(offsets).as_py(), "_kafka_partition": distinct}]
        )

    return summed


def sums_by(spark: ForeignSpark, pipeline: Pipeline, table: str) -> Read:
    """The same by Spark, which adds up by itself."""
    sums = "count(*) as id, sum(_offset) as _offset, count(distinct _offset) as _kafka_partition"

    def summed(_: Metadata, snapshot: int) -> pa.Table:
        spark.restart()
        spark.add_local_catalog("frazil", pipeline.folder)
        return pa.Table.from_pylist(spark.sql(f"select {sums} from frazil.{table} version as of {snapshot}"))

    return summed


def check_backlog(pipeline: Pipeline, table: str) -> None:
    """Every record of it is there, once."""
    metadata = pipeline.current(table)
    assert metadata is not None
    places = open_table(metadata).scan(selected_fields=("_kafka_partition", "_offset")).to_arrow()
    assert places.num_rows == BACKLOG
    for partition in range(PARTITIONS):
        offsets = places.filter(pc.equal(places["_kafka_partition"], partition))["_offset"]
        assert np.array_equal(np.sort(offsets.to_numpy()), np.arange(BACKLOG // PARTITIONS))
