"""Records without a timestamp, as producers of old clients and raw requests write them: Kafka has -1 for it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from tests.integration.pipelines import Pipeline
from tests.integration.test_changelog import rows

pytestmark = pytest.mark.jvm
_NONE_MS, _NOON_MS, _NANOSECONDS = -1, 1_782_907_200_000, 1_782_907_200_000_000_000
_SETTINGS = {"message.timestamp.after.max.ms": str(2**63 - 1)}


def _topic(servers: str, records: Iterable[tuple[int, dict[str, Any]]], **config: str) -> str:
    """A topic of one partition with these records, each with its timestamp."""
    topic = f"timeless-{new_id()[:8]}"
    admin, producer = AdminClient({"bootstrap.servers": servers}), Producer({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, config={**_SETTINGS, **config})])[topic].result(20)
    for at_ms, value in records:
        producer.produce(topic, json.dumps(value).encode(), str(value["id"]).encode(), 0, timestamp=at_ms)
    assert producer.flush(30) == 0
    return topic


@pytest.fixture(scope="module")
def ran(broker: EmbeddedBroker, jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    servers, folder = broker.bootstrap_servers, tmp_path_factory.mktemp("timeless")
    ids = [{"id": n} for n in range(4)]
    plain = _topic(servers, zip((_NONE_MS, _NOON_MS, _NONE_MS, _NONE_MS), ids, strict=True))
    only = _topic(servers, ((_NONE_MS, one) for one in ids))
    far = _topic(servers, zip((_NONE_MS, _NANOSECONDS, _NONE_MS, _NOON_MS), ids, strict=True))
    appended = _topic(servers, ((_NONE_MS, one) for one in ids), **{"message.timestamp.type": "LogAppendTime"})
    changes = [(_NOON_MS, {"id": 1, "v": "a"}), (_NONE_MS, {"id": 1, "v": "b"}), (_NOON_MS + 1, {"id": 2, "v": "c"})]
    timed = {"metadata": ["timestamp"], "partition_by": ["hour(_timestamp)"]}
    tables: dict[str, Any] = {
        "s.plain": {"topic": plain, **timed},
        "s.chosen": {"topic": plain, "where": "_timestamp is null", "metadata": ["timestamp"]},
        "s.only": {"topic": only, **timed},
        "s.since": {"topic": plain, "start": _NOON_MS, **timed},
        "s.far": {"topic": far, **timed},
        "s.appended": {"topic": appended, **timed},
        "s.ordered": {
            "topic": _topic(servers, changes),
            "mode": "upsert",
            "key_columns": ["id"],
            "metadata": ["timestamp"],
            "order_by": "_timestamp",
        },
    }
    tables = {name: {**table, "dead_letters": {"stop_above": "100%"}} for name, table in tables.items()}
    document = {"pipeline": "timeless", "kafka": {"bootstrap.servers": servers}, "tables": tables}
    return folder, Pipeline(folder, document, jvm=jvm).run()["tables"]


def _times(folder: Path, table: str) -> dict[int, int | None]:
    """The timestamp of each row, in milliseconds."""
    return {row["id"]: row["_timestamp"] and int(row["_timestamp"].timestamp() * 1000) for row in rows(folder, table)}


def test_the_timestamp_is_null_and_so_is_its_partition(ran: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = ran
    assert _times(folder, "plain") == {0: None, 1: _NOON_MS, 2: None, 3: None}
    assert _times(folder, "chosen") == {0: None, 2: None, 3: None}
    assert _times(folder, "only") == dict.fromkeys(range(4))
    assert _times(folder, "since") == {1: _NOON_MS, 2: None, 3: None}
    hours = {path.name for table in ("plain", "only") for path in folder.rglob(f"{table}/data/_timestamp_hour=*")}
    assert hours == {"_timestamp_hour=null", "_timestamp_hour=2026-07-01-12"}


def test_a_missing_timestamp_is_null_beside_timestamps_in_nanoseconds(ran: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = ran
    assert _times(folder, "far") == {0: None, 2: None, 3: _NOON_MS}
    assert [row["error_class"] for row in rows(folder, "far__dead_letters")] == ["out_of_range"]


def test_the_time_at_which_the_broker_appends_is_a_timestamp(ran: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = ran
    assert all(at_ms is not None and at_ms > _NOON_MS for at_ms in _times(folder, "appended").values())


def test_a_change_without_an_order_is_a_dead_letter_without_a_timestamp(
    ran: tuple[Path, dict[str, Any]],
) -> None:
    folder, _ = ran
    assert {row["id"]: row["v"] for row in rows(folder, "ordered")} == {1: "a", 2: "c"}
    (dead,) = rows(folder, "ordered__dead_letters")
    assert (dead["error_class"], dead["timestamp"], dead["timestamp_ms"]) == ("no_order_value", None, None)
    assert json.loads(dead["value"]) == {"id": 1, "v": "b"}


def test_nothing_is_reported_of_the_age_of_records_without_a_timestamp(ran: tuple[Path, dict[str, Any]]) -> None:
    _, tables = ran
    assert (tables["s.only"]["freshness_ms"], tables["s.only"]["watermark_ms"]) == (None, None)
    assert tables["s.plain"]["watermark_ms"] == _NOON_MS
