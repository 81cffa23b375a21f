"""Large records on a real broker, read by a task with little memory: dead letters at their places, and rows around them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from frazil.clock import new_id
from frazil.dead_letters.record import DEAD_LETTER_TYPES
from frazil.decode.settings import Reading
from frazil.ingest.tasks.task import run_task
from frazil.ingest.tasks.task_job import Job, most_value_bytes, source_columns
from frazil.ingest.tasks.task_limits import MEMORY_BYTES, limited_memory
from frazil.kafka.fetch.cluster import KafkaCluster
from frazil.kafka.fetch.columns import Wanted
from frazil.kafka.fetch.ranges import read_ranges
from frazil.kafka.properties import task_properties
from frazil.report import TaskReport, load_report
from frazil.runtime.broker import EmbeddedBroker
from frazil.schema.evolve import new_schema
from frazil.types import DataFile, OffsetRange
from tests.acceptance.topics import Topics
from tests.unit.ingest.targets import target_of

MIB = 1024 * 1024
HUGE = b'{"id": 0, "text": "' + b"x" * 400 * MIB + b'"}'
LARGE = b'{"id": 0, "text": "' + b"x" * 40 * MIB + b'"}'
LITTLE = 600 * MIB


def send(servers: str, topic: str, codec: str, *values: bytes, **settings: Any) -> None:
    """Sends values, each in a batch of its own unless the settings say otherwise."""
    given = {"bootstrap.servers": servers, "compression.type": codec, "message.max.bytes": 1_000_000_000}
    producer = Producer({**given, **settings})
    for value in values:
        producer.produce(topic, value, b"k", 0, headers=[("from", b"a test")])
    assert producer.flush(60) == 0


def read(servers: str, folder: Path, r: OffsetRange, limit: int = 16 * MIB, more_bytes: int = LITTLE) -> TaskReport:
    """What a task reports that reads the range for one table."""
    bad_records = target_of(folder, {}, name="bad", schema_json=new_schema(DEAD_LETTER_TYPES.items()).model_dump_json())
    reading = Reading(max_record_bytes=limit, on_bad="dead_letter")
    target = target_of(folder, {"id": "long", "text": "string"}, reading=reading, dead_letters=bad_records)
    job = Job({r.topic: target})
    wanted = Wanted(tuple(source_columns(job)), most_value_bytes=most_value_bytes(job))
    with (
        closing(KafkaCluster(task_properties({"bootstrap.servers": servers}))) as cluster,
        closing(read_ranges(cluster, [r], wanted)) as batches,
        limited_memory(more_bytes),
    ):
        (answer,) = run_task(job, batches)
    (report,) = [load_report(text) for text in answer.column("report").to_pylist()]
    return report


def rows_of(files: Sequence[DataFile]) -> list[dict[str, Any]]:
    return [row for file in files for row in pq.read_table(file.path).to_pylist()]


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    return Topics(broker.bootstrap_servers).create(f"large-{new_id()[:8]}", 1, {"max.message.bytes": "100000000"})


@pytest.mark.parametrize(
    ("codec", "large"), [("zstd", HUGE), ("gzip", HUGE), ("lz4", HUGE), ("snappy", LARGE), ("none", LARGE)]
)
def test_a_large_record_is_a_dead_letter_at_its_place(
    broker: EmbeddedBroker, tmp_path: Path, topic: str, codec: str, large: bytes
) -> None:
    servers = broker.bootstrap_servers
    for value in (b'{"id": 1}', large, b'{"id": 2}'):
        send(servers, topic, codec, value)
    report = read(servers, tmp_path, OffsetRange(topic, 0, 0, 3))
    assert [row["id"] for row in rows_of(report.written.data)] == [1, 2]
    (dead_letter,) = rows_of(report.written.dead_letters)
    assert (dead_letter["offset"], dead_letter["error_class"], dead_letter["value"]) == (1, "too_large", None)
    assert (dead_letter["key"], dead_letter["headers"]) == (b"k", [{"key": "from", "value": b"a test"}])
    assert dead_letter["message"].startswith(
        f"the value has {len(large)} bytes, and `limits.record_size` allows 16777216"
    )


def test_what_shares_a_batch_with_it_is_read(broker: EmbeddedBroker, tmp_path: Path, topic: str) -> None:
    servers, together = broker.bootstrap_servers, {"batch.size": 2**30, "linger.ms": 3000}
    send(servers, topic, "zstd", b'{"id": 1}', HUGE, b'{"id": 2}', **together)
    report = read(servers, tmp_path, OffsetRange(topic, 0, 0, 3))
    assert [row["id"] for row in rows_of(report.written.data)] == [1, 2]
    assert [row["offset"] for row in rows_of(report.written.dead_letters)] == [1]


def test_a_table_that_allows_it_has_its_row(broker: EmbeddedBroker, tmp_path: Path, topic: str) -> None:
    servers = broker.bootstrap_servers
    send(servers, topic, "zstd", b'{"id": 1}', LARGE, b'{"id": 2}')
    report = read(servers, tmp_path, OffsetRange(topic, 0, 0, 3), 64 * MIB, MEMORY_BYTES)
    assert [(row["id"], len(row["text"] or "")) for row in rows_of(report.written.data)] == [
        (1, 0),
        (0, 40 * MIB),
        (2, 0),
    ]
