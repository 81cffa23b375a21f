"""Records whose timestamps Spark cannot hold, as of a producer that writes nanoseconds: a row each, unless the table has the
timestamp as a column, and in their place in the order of changes.
"""

from __future__ import annotations

import json
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.integration.pipelines import Pipeline
from tests.integration.test_changelog import rows

NOW_MS = 1_795_733_737_000
NANOSECONDS = NOW_MS * 1_000_000
COUNT = 1000
FAR = {*range(5, 12), 300, 301, 303, 999}
"""Side by side, with a few records between them, far from each other, and the last of all."""


def test_a_record_with_a_timestamp_in_nanoseconds_is_read(broker: EmbeddedBroker, tmp_path: Path) -> None:
    servers = broker.bootstrap_servers
    topic = f"far-{new_id()[:8]}"
    new = NewTopic(topic, 2, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([new])[topic].result(20)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for n in range(COUNT):
        at = NANOSECONDS + n if n in FAR else NOW_MS + n
        value = json.dumps({"key": n % 7, "n": n}).encode()
        producer.produce(topic, value, f"k{n}".encode(), n % 7 % 2, timestamp=at, headers={"n": str(n)})
    assert producer.flush(30) == 0
    upsert = {"topic": topic, "mode": "upsert", "key_columns": ["key"]}
    document = {
        "pipeline": "p",
        "kafka": {"bootstrap.servers": servers},
        "tables": {
            "s.plain": {"topic": topic, "metadata": ["offset", "partition", "key", "headers"]},
            "s.timed": {"topic": topic, "metadata": ["timestamp"]},
            "s.newest": upsert,
        },
    }
    pipeline = Pipeline(tmp_path, document)
    pipeline.run()
    plain = rows(tmp_path, "plain")
    assert sorted(row["n"] for row in plain) == list(range(COUNT))
    assert all(row["_key"] == f"k{row['n']}".encode() for row in plain)
    assert {row["_headers"][0]["value"] for row in plain if row["n"] in FAR} == {str(n).encode() for n in FAR}
    for partition in (0, 1):
        mine = sorted((row for row in plain if row["_partition"] == partition), key=lambda row: row["_offset"])
        assert [row["n"] for row in mine] == [n for n in range(COUNT) if n % 7 % 2 == partition]
        assert [row["_offset"] for row in mine] == list(range(len(mine)))
    assert {row["n"] for row in rows(tmp_path, "timed")} == set(range(COUNT)) - FAR
    dead = rows(tmp_path, "timed__dead_letters")
    assert {json.loads(row["value"])["n"] for row in dead} == FAR
    assert {row["error_class"] for row in dead} == {"out_of_range"}
    newest = {row["key"]: row["n"] for row in rows(tmp_path, "newest")}
    assert newest == {n % 7: n for n in range(COUNT)}
