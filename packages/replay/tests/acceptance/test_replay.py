"""`frazil replay` on a real broker and registry: rows and changes of a table as records, each once, whatever kills it.

In time: kills and changes; how values are written in unit/test_values.py.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyiceberg.table import StaticTable

from frazil.clock import new_id
from frazil.runtime.jvm import Jvm
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.soaking import rng
from tests.fixtures.registry import ApicurioRegistry

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]

ROWS, RATE = 900, 300
Row = dict[str, Any]
KILLS = ("outbox.before=kill@1", "outbox.after=kill@1", "outbox.before=kill@2")
IN_TIME = KILLS[1:]
"""The first leaves nothing behind that the last does not."""
SOAKED = tuple(KILLS[rng(1, turn, len(KILLS))] for turn in range(20))


@dataclass(frozen=True)
class Record:
    """A record of a topic."""

    key: bytes | None
    value: bytes | None
    headers: dict[str, str]


class Tables:
    """Two tables of a pipeline that does not run any more: one that only grew, one whose rows were replaced and deleted."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        columns = {
            "id": "long",
            "name": "string",
            "amount": "decimal(9,2)",
            "at": "timestamptz",
            "tags": "list<string>",
        }
        self.grown, grown = pipeline.add_fed_table("grown", columns=columns)
        self.changed, changed = pipeline.add_fed_table(
            "changed", mode="upsert", key_columns=["id"], value={"format": "json"}
        )
        with pipeline.running() as run:
            for first in (0, ROWS // 2):
                pipeline.feed.produce(grown, [_value(number) for number in range(first, first + ROWS // 2)])
                pipeline.feed.produce(changed, [{"id": number % 500, "n": first + number} for number in range(600)])
                for table in (self.grown, self.changed):
                    pipeline.wait_for_commit_of(table, run)
            run.stop()

    def rows(self, table: str, snapshot: int | None = None) -> list[Row]:
        """The rows as another reader has them."""
        metadata = self.pipeline.metadata(table)
        found: list[Row] = StaticTable.from_metadata(str(metadata)).scan(snapshot_id=snapshot).to_arrow().to_pylist()
        return found

    def snapshots(self, table: str) -> list[int]:
        """The snapshots, the oldest first."""
        return [one.snapshot_id for one in StaticTable.from_metadata(str(self.pipeline.metadata(table))).snapshots()]

    def records(self, topic: str) -> list[Record]:
        """What is committed, in the order of each partition."""
        consumer = Consumer({"bootstrap.servers": self.pipeline.servers, "group.id": new_id(), "log_level": 0})
        try:
            found = []
            for partition in range(2):
                place = TopicPartition(topic, partition, 0)
                _, end = consumer.get_watermark_offsets(place, timeout=20)
                consumer.assign([place])
                while max(0, consumer.position([place])[0].offset) < end:  # Before the first record it is negative.
                    message = consumer.poll(0.2)
                    if message is not None and message.error() is None:
                        headers = {str(pair[0]): bytes(pair[1] or b"").decode() for pair in message.headers() or []}  # type: ignore[arg-type]
                        found.append(Record(message.key(), message.value(), headers))
            return found
        finally:
            consumer.close()


def _value(number: int) -> Row:
    at = f"2026-01-01T00:00:{number % 60:02}.{number % 1000:06}Z"
    return {"id": number, "name": f"n {number}", "amount": f"{number}.50", "at": at, "tags": ["a", str(number % 7)]}


@pytest.fixture(scope="module")
def tables(shared_pipeline: Pipeline) -> Tables:
    return Tables(shared_pipeline)


@pytest.fixture
def topic(tables: Tables) -> str:
    return tables.pipeline.new_topic("replayed")


def _rows_of(records: list[Record]) -> list[Row]:
    return sorted((json.loads(one.value or b"") for one in records), key=lambda row: row["id"])


def _plain(rows: list[Row], *names: str) -> list[Row]:
    return sorted(({name: row[name] for name in names} for row in rows), key=lambda row: row["id"])


@pytest.mark.parametrize(
    ("blows", "rate"),
    [
        pytest.param(IN_TIME, RATE, id="two"),
        pytest.param(SOAKED, ROWS // len(SOAKED), marks=pytest.mark.soak, id="twenty"),
    ],
)
def test_a_replay_killed_at_any_step_writes_every_row_once(
    tables: Tables, jvm: Jvm, topic: str, blows: Sequence[str], rate: int
) -> None:
    words = ("replay", tables.grown, "--to", topic, "--rate", f"{rate}/s")
    for blow in blows:
        tables.pipeline.command(*words, failpoints=blow, expected=-signal.SIGKILL)
    done = tables.pipeline.command_on(jvm, *words)
    assert done["records"] == ROWS
    rows = _rows_of(tables.records(topic))
    assert [row["id"] for row in rows] == [*range(ROWS)]
    names = ("id", "name", "tags")
    assert _plain(rows, *names) == _plain(tables.rows(tables.grown), *names)
    assert {row["amount"] for row in rows} == {str(row["amount"]) for row in tables.rows(tables.grown)}
    assert tables.pipeline.command_on(jvm, *words)["written_now"] == 0
    assert len(tables.records(topic)) == ROWS


@pytest.mark.slow
def test_a_condition_chooses_rows_and_every_record_has_its_key_and_headers(tables: Tables, topic: str) -> None:
    words = (
        "--where",
        "id % 3 = 0 and name like 'n 1%'",
        "--key",
        "id",
        "--header",
        "from=lake",
        "--format",
        "json-schema",
    )
    tables.pipeline.command("replay", tables.grown, "--to", topic, *words)
    records = tables.records(topic)
    payloads = {json.loads(one.value or b"")["payload"]["id"]: one for one in records}
    assert sorted(payloads) == [number for number in range(0, ROWS, 3) if str(number)[0] == "1"]
    assert len(payloads) == len(records)
    for number, one in payloads.items():
        assert json.loads(one.key or b"")["payload"] == {"id": number}
        assert one.headers == {"from": "lake"}


def test_changes_after_a_snapshot_lead_to_the_rows_of_the_last_one(tables: Tables, jvm: Jvm, topic: str) -> None:
    first, *_, last = tables.snapshots(tables.changed)
    done = tables.pipeline.command_on(
        jvm,
        "replay",
        tables.changed,
        "--to",
        topic,
        "--from-snapshot",
        str(first),
        "--to-snapshot",
        str(last),
        "--key",
        "id",
    )
    state = {row["id"]: row["n"] for row in tables.rows(tables.changed, first)}
    records = tables.records(topic)
    assert done["records"] == len(records)
    assert {one.headers["_change_type"] for one in records} == {"DELETE", "INSERT"}
    for one in records:
        number = json.loads(one.key or b"")["id"]
        if one.headers["_change_type"] == "DELETE":
            assert one.value is None
            del state[number]
        else:
            assert number not in state
            state[number] = json.loads(one.value or b"")["n"]
    assert state == {row["id"]: row["n"] for row in tables.rows(tables.changed)}


@pytest.fixture
def registered(tables: Tables, registry: ApicurioRegistry) -> Iterator[ApicurioRegistry]:
    tables.pipeline.document["registry"] = {"url": registry.api}
    yield registry
    del tables.pipeline.document["registry"]


@pytest.mark.slow
def test_avro_of_the_registry_has_the_values_of_the_rows(
    tables: Tables, topic: str, registered: ApicurioRegistry
) -> None:
    tables.pipeline.command("replay", tables.grown, "--to", topic, "--format", "avro", "--where", "id < 100")
    client = SchemaRegistryClient({"url": registered.api})
    read = AvroDeserializer(client)
    context = SerializationContext(topic, MessageField.VALUE)
    found = [read(one.value, context) for one in tables.records(topic)]
    client.close()
    assert sorted(found, key=lambda row: row["id"]) == sorted(
        (row for row in tables.rows(tables.grown) if row["id"] < 100), key=lambda row: row["id"]
    )


@pytest.mark.slow
def test_a_wrong_snapshot_condition_or_column_is_refused(tables: Tables, topic: str) -> None:
    for words, message in (
        (("--key", "surname"), "the table has no column `surname`"),
        (("--to-snapshot", "7"), "the table has no snapshot 7"),
        (("--where", "surname = 1"), "surname"),
    ):
        error = tables.pipeline.command("replay", tables.grown, "--to", topic, *words, expected=2)["error"]
        assert message in error["message"]
        assert error["remedy"]
    assert tables.records(topic) == []
