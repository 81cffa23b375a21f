"""Records that no process could hold, compressed to some kilobytes: dead letters that nobody has read.

In time: how large records are found, unit/kafka/test_record_sizes.py and integration/test_record_sizes.py; what follows a
JVM that ends, unit/ingest/batches/test_crash_suspects.py.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Document, Pipeline
from tests.acceptance.verifier import read_newest

pytestmark = pytest.mark.timeout(600)

HUGE_BYTES = 400 * 1024 * 1024
GOOD = 5


def send_huge(servers: str, topic: str, codec: str) -> int:
    """Sends a record of a key that others have, and returns the bytes of its value."""
    value = b'{"id": 1, "text": "%s"}' % (b"x" * HUGE_BYTES)
    producer = Producer({"bootstrap.servers": servers, "compression.type": codec, "message.max.bytes": 1_000_000_000})
    producer.produce(topic, value, b"1", 0, headers={"from": b"a test"})
    assert producer.flush(60) == 0
    return len(value)


def send_together(servers: str, topic: str) -> None:
    """Sends a huge record in one batch with a record before and one behind it."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": "zstd",
            "message.max.bytes": 1_000_000_000,
            "batch.size": 2**30,
            "linger.ms": 3000,
        }
    )
    for value in (b'{"id": 1}', b'{"id": 2, "text": "%s"}' % (b"x" * HUGE_BYTES), b'{"id": 3}'):
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


def feed(pipeline: Pipeline, topic: str, *codecs: str) -> int:
    """Sends good records around a huge one of each codec."""
    sent = 0
    for codec in codecs:
        pipeline.feed.produce(topic, events(GOOD, sent))
        size = send_huge(pipeline.servers, topic, codec)
        sent += GOOD
    pipeline.feed.produce(topic, events(GOOD, sent))
    return size


def dead_letters(pipeline: Pipeline, table: str) -> list[tuple[object, ...]]:
    metadata = pipeline.metadata(f"{table}__dead_letters")
    assert metadata is not None
    found = read_newest(metadata)
    return sorted((one["offset"], one["error_class"], one["key"], one["value"]) for one in found)


def unread(*offsets: int) -> list[tuple[object, ...]]:
    return [(offset, "too_large", b"1", None) for offset in offsets]


def test_no_process_dies_of_huge_records_and_each_is_a_dead_letter(pipeline: Pipeline) -> None:
    twice, topic_of_twice = pipeline.add_fed_table("twice", 1)
    changes, topic_of_changes = pipeline.add_fed_table("changes", 1, mode="upsert", key_columns=["id"])
    allowing, topic_of_allowing = pipeline.add_fed_table("allowing", 1, limits={"record_size": "1GiB"})
    together, topic_of_together = pipeline.add_fed_table("together", 1)
    neighbour, topic_of_neighbour = pipeline.add_fed_table("neighbour", 1)
    feed(pipeline, topic_of_twice, "zstd", "gzip")
    send_together(pipeline.servers, topic_of_together)
    feed(pipeline, topic_of_changes, "lz4")
    size = feed(pipeline, topic_of_allowing, "zstd")
    pipeline.feed.produce(topic_of_neighbour, events(GOOD))
    found: Document = pipeline.catch_up(expected=4)["tables"]
    for table in (twice, neighbour):
        pipeline.check(table)
    assert dead_letters(pipeline, twice) == unread(GOOD, 2 * GOOD + 1)
    assert dead_letters(pipeline, changes) == unread(GOOD)
    stopped = found[allowing]
    assert (stopped["state"], stopped["where"]) == (
        "stopped",
        f"topic {topic_of_allowing}, partition 0, offset {GOOD}",
    )
    assert f"a record of {size} bytes" in stopped["reason"]
    assert "write `limits: {record_size: 399MiB}` or less" in stopped["remedy"]
    stopped = found[together]
    assert (stopped["state"], stopped["where"]) == ("stopped", f"topic {topic_of_together}, partition 0, offset 1")
    assert "without another one of their batch" in stopped["reason"]
    del pipeline.document["tables"][together]
    pipeline.document["tables"][allowing]["limits"] = {"record_size": "399MiB"}
    assert pipeline.catch_up()["tables"][allowing]["dead_letters"] == 1
    pipeline.check(allowing)
    assert dead_letters(pipeline, allowing) == unread(GOOD)
    for table in (allowing, changes):
        # Its value is nowhere but in Kafka: it stays, and above all it deletes no row.
        replayed = pipeline.command("dead-letters", "replay", table)
        assert replayed["tables"] == {table: {"replayed": 0, "remaining": 1}}
    metadata = pipeline.metadata(changes)
    assert metadata is not None
    assert sorted(row["id"] for row in read_newest(metadata)) == list(range(2 * GOOD))


@pytest.mark.slow
def test_where_the_process_dies_of_them_the_next_one_finds_all_of_them(pipeline: Pipeline) -> None:
    # What Spark does by itself: the first error of memory ends the JVM.
    pipeline.document["spark"]["conf"]["spark.executor.killOnFatalError.depth"] = "5"
    bad = [pipeline.add_fed_table(name, 1) for name in ("bad", "worse")]
    neighbour, topic_of_neighbour = pipeline.add_fed_table("neighbour", 1)
    for _, topic in bad:
        feed(pipeline, topic, "zstd")
    pipeline.feed.produce(topic_of_neighbour, events(GOOD))
    pipeline.catch_up(expected=1)
    pipeline.catch_up()
    for table in (neighbour, *(name for name, _ in bad)):
        pipeline.check(table)
    assert [dead_letters(pipeline, table) for table, _ in bad] == [unread(GOOD)] * 2
