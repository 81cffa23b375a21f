"""Records that no task should hold, compressed to some kilobytes: dead letters that nobody has read.

Each codec: integration/test_large_records.py; tables of one topic and of a route: unit/ingest/tasks/test_left_out.py.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from frazil.runtime.jvm import Jvm
from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Document, Pipeline
from tests.acceptance.verifier import read_newest

pytestmark = pytest.mark.timeout(600)

HUGE_BYTES = 400 * 1024 * 1024
GOOD = 5


def send_huge(servers: str, topic: str, codec: str) -> None:
    """Sends a record of a key that others have."""
    value = b'{"id": 1, "text": "%s"}' % (b"x" * HUGE_BYTES)
    producer = Producer({"bootstrap.servers": servers, "compression.type": codec, "message.max.bytes": 1_000_000_000})
    producer.produce(topic, value, b"1", 0, headers={"from": b"a test"})
    assert producer.flush(60) == 0


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


def feed(pipeline: Pipeline, topic: str, *codecs: str) -> None:
    """Sends good records around a huge one of each codec."""
    sent = 0
    for codec in codecs:
        pipeline.feed.produce(topic, events(GOOD, sent))
        send_huge(pipeline.servers, topic, codec)
        sent += GOOD
    pipeline.feed.produce(topic, events(GOOD, sent))


def dead_letters(pipeline: Pipeline, table: str) -> list[tuple[object, ...]]:
    metadata = pipeline.metadata(f"{table}__dead_letters")
    assert metadata is not None
    found = read_newest(metadata)
    return sorted((one["offset"], one["error_class"], one["key"], one["value"]) for one in found)


def unread(*offsets: int) -> list[tuple[object, ...]]:
    return [(offset, "too_large", b"1", None) for offset in offsets]


def test_no_process_dies_of_huge_records_and_each_is_a_dead_letter(pipeline: Pipeline, jvm: Jvm) -> None:
    twice, topic_of_twice = pipeline.add_fed_table("twice", 1)
    changes, topic_of_changes = pipeline.add_fed_table("changes", 1, mode="upsert", key_columns=["id"])
    allowing, topic_of_allowing = pipeline.add_fed_table("allowing", 1, limits={"record_size": "399MiB"})
    together, topic_of_together = pipeline.add_fed_table("together", 1)
    neighbour, topic_of_neighbour = pipeline.add_fed_table("neighbour", 1)
    feed(pipeline, topic_of_twice, "zstd", "gzip")
    send_together(pipeline.servers, topic_of_together)
    feed(pipeline, topic_of_changes, "lz4")
    feed(pipeline, topic_of_allowing, "zstd")
    pipeline.feed.produce(topic_of_neighbour, events(GOOD))
    found: Document = pipeline.catch_up()["tables"]
    assert {name: found[name].get("dead_letters", 0) for name in (twice, changes, allowing, together, neighbour)} == {
        twice: 2,
        changes: 1,
        allowing: 1,
        together: 1,
        neighbour: 0,
    }
    for table in (twice, neighbour, allowing):
        pipeline.check(table)
    assert dead_letters(pipeline, twice) == unread(GOOD, 2 * GOOD + 1)
    for table in (changes, allowing):
        assert dead_letters(pipeline, table) == unread(GOOD)
        # Its value is nowhere but in Kafka: it stays, and above all it deletes no row.
        replayed = pipeline.command_on(jvm, "dead-letters", "replay", table)
        assert replayed["tables"] == {table: {"replayed": 0, "remaining": 1}}
    assert dead_letters(pipeline, together) == [(1, "too_large", None, None)]
    for table, ids in ((changes, range(2 * GOOD)), (together, (1, 3))):
        metadata = pipeline.metadata(table)
        assert metadata is not None
        assert sorted(row["id"] for row in read_newest(metadata)) == list(ids)
