"""Bytes that Kafka itself holds damaged: their table waits, reports where they lie, and continues once they are whole
again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.ledger import Feed, Ledger
from tests.acceptance.topics import Topics
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Pipeline, Running
from tests.integration.test_changelog import rows

TEXTS = ["before", "a text that is nowhere else", "behind"]


def turn_a_bit(segment: Path) -> None:
    """In the middle one of the texts in a topic's file: damages it, and mends it when it is done again."""
    text = TEXTS[1].encode()
    at = segment.read_bytes().index(text[1:]) - 1
    with segment.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def of_table(running: Running, event: str, table: str) -> list[dict[str, Any]]:
    return [one for one in running.events_named(event) if one["table"] == table]


def committed(running: Running, table: str) -> int:
    return sum(event["records"] for event in of_table(running, "batch_committed", table))


def test_a_table_waits_for_a_damaged_batch_and_no_other_does(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topics, feed = Topics(broker.bootstrap_servers), Feed(broker.bootstrap_servers, Ledger())
    struck, whole = (topics.create(f"{name}-{new_id()[:8]}", 1) for name in ("struck", "whole"))
    for topic in (struck, whole):
        for text in TEXTS:  # Each in a batch of its own.
            feed.produce(topic, [{"text": text}], 0)
    segment = broker.directory / "data" / f"{struck}-0" / "00000000000000000000.log"
    turn_a_bit(segment)
    document = {
        "pipeline": "p",
        "kafka": {"bootstrap.servers": broker.bootstrap_servers},
        "commit": {"interval": "200ms"},
        "tables": {
            "s.struck": {"topic": struck, "metadata": ["offset"]},
            "s.whole": {"topic": whole, "metadata": ["offset"]},
        },
    }
    with Pipeline(tmp_path, document).start() as running:
        wait_until(lambda: committed(running, "s.whole") == len(TEXTS), "the other table is there")
        waits = wait_until(lambda: of_table(running, "table_backing_off", "s.struck"), "the table waits")
        assert waits[-1]["where"] == f"topic {struck}, partition 0, offset 1"
        assert committed(running, "s.struck") < len(TEXTS)
        turn_a_bit(segment)
        wait_until(lambda: committed(running, "s.struck") == len(TEXTS), "the table continues")
        assert not running.events_named("table_stopped")
        running.stop()
    for table in ("struck", "whole"):
        found = sorted(rows(tmp_path, table), key=lambda row: int(row["_offset"]))
        assert [row["text"] for row in found] == TEXTS
