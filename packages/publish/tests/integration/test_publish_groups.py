"""Tables that are published together never show a row that refers to one which is missing: with kills, a second process,
lost answers, on a catalog with commits of several tables and on one without.

`make soak-publish` publishes 20 tables 1,000 times; FRAZIL_PUBLISHES for another number, FRAZIL_RATE for other changes a
second. Kills are in test_publish_kills.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from frazil.clock import SystemClock, new_id
from frazil.failpoints import VARIABLE
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from packages.publish.tests.integration.chains import Chain, say
from tests.fixtures.waiting import wait_until
from tests.integration.servers import RestCatalogServer

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]
PUBLISHES = int(os.environ.get("FRAZIL_PUBLISHES", "1000"))
RATE = int(os.environ.get("FRAZIL_RATE", "10000"))
COMPILES_SOON = " ".join(
    f"-XX:{option}"
    for option in (
        "CompileThresholdScaling=1",
        "Tier4InvocationThreshold=5000",
        "Tier4MinInvocationThreshold=600",
        "Tier4CompileThreshold=15000",
        "Tier4BackEdgeThreshold=40000",
    )
)
"""The defaults of Java 17, which a pipeline's own options have changed for a quick start."""
_LOOKING_SHARE = 0.1
"""Of the time of the soak: reading twenty tables whole takes as long as publishing them."""


# In time: two publishers of one table in test_copies.py, and a group whose process dies between its tables, with another
# after it, in test_publish_kills.py.
@pytest.mark.slow
def test_nothing_dangles_though_two_processes_publish(broker: EmbeddedBroker, jvm: Jvm, tmp_path: Path) -> None:
    chain = Chain(broker, tmp_path, ("customers", "orders"))
    chain.jvm = jvm
    with chain.pipeline().start() as first, chain.pipeline().start() as second:

        def has_one_left() -> bool:
            chain.change()
            chain.look()
            return (first.has_ended or second.has_ended) and len(chain.seen) >= 2

        wait_until(has_one_left, "one of two ends, and readers have seen what the other publishes", 180)
    chain.settle()
    assert len(chain.seen) >= 3


def test_tables_of_a_rest_catalog_are_published_in_one_commit(
    broker: EmbeddedBroker, jvm: Jvm, server: RestCatalogServer, tmp_path: Path
) -> None:
    """And without their delete files, which readers of the branch apply."""
    chain = Chain(broker, tmp_path, (f"c{new_id()[:8]}", f"o{new_id()[:8]}"), server)
    chain.jvm, chain.more = jvm, {"delete_mode": "copy_on_write"}
    # The answer to the first commit is lost; nothing is published one table after another.
    with chain.pipeline(
        **{VARIABLE: "branch.landed=reset;branch.between=kill;branch.before=kill@5"}
    ).start() as running:

        def has_ended() -> bool:
            chain.change()
            chain.look()
            return running.has_ended

        wait_until(has_ended, "its death before a later publish", 180)
    assert chain.seen
    chain.settle()
    for table in chain.tables().values():
        main = table.current_snapshot()
        assert main is not None
        assert main.summary is not None
        assert main.summary["total-delete-files"] == "0"


@pytest.mark.soak
@pytest.mark.timeout(8 * 3600)
def test_20_tables_are_published_1000_times(broker: EmbeddedBroker, tmp_path: Path) -> None:
    # Each publish ends a batch of every table: there are no other commits.
    chain = Chain(broker, tmp_path, tuple(f"t{number}" for number in range(20)), every="100ms", interval="1m")
    # Over an hour it pays to compile as soon as the JVM does by itself: warm, nineteen audits take 4 CPU-s in place of 6.
    chain.conf = {"spark.driver.extraJavaOptions": f"-Xshare:auto {COMPILES_SOON}"}
    chain.writes = 40  # Else audits of ever more rows are most of it.
    clock = SystemClock()
    begun_s = due_s = clock.monotonic_s()
    with chain.pipeline().start() as running, chain.changing(RATE):

        def is_done() -> bool:
            nonlocal due_s
            assert not running.has_ended
            now_s = clock.monotonic_s()
            if now_s < due_s:
                return False
            chain.look()
            took_s = clock.monotonic_s() - now_s
            due_s = now_s + max(1.0, took_s / _LOOKING_SHARE)
            published = len(running.events_named("table_published")) // len(chain.names)
            say(
                f"{now_s - begun_s:.0f} s: {published} publishes, {len(chain.seen)} of them read whole, {chain.count} rows"
                " a table"
            )
            return published >= PUBLISHES

        wait_until(is_done, f"{PUBLISHES} publishes", 7 * 3600)
    chain.settle()


class Captured(Chain):
    """Upsert tables of one database, whose constraints are checked when a transaction ends: each of its transactions writes
    the rows that refer to others before these.
    """

    events = ""

    def _settings(self, name: str) -> Mapping[str, Any]:
        if not self.events:
            self.events = new_id()
            admin = AdminClient({"bootstrap.servers": self._servers})
            admin.create_topics([NewTopic(self.events, 1)])[self.events].result(20)
        publish = {"every": "1s", "group": "shop", "transaction_topic": self.events}
        captured = {"envelope": "debezium", "key": {"format": "json"}, "mode": "upsert"}
        return {"topic": self._topics[name], **captured, "branch": "ingest", "publish": publish}

    def change(self, rows: int = 5) -> None:
        transaction, order = self.count + 1000, 0
        self._tell("BEGIN", transaction)
        for name in reversed(self.names):
            for number in range(self.count, self.count + rows):
                order += 1
                self._send(name, number, transaction, order)
            self._producer.flush(30)
            SystemClock().sleep(0.02)  # As long as a transaction takes, in which a moment can lie.
        self._tell("END", transaction, {self._topics[name]: rows for name in self.names})
        self.count += rows

    def _send(self, name: str, number: int, transaction: int, order: int) -> None:
        lsn = transaction * 100 + order
        source = {
            "connector": "postgresql",
            "lsn": lsn,
            "txId": transaction,
            "sequence": f'["{transaction}00", "{lsn}"]',
        }
        numbered = {"id": f"{transaction}:{lsn}", "total_order": order, "data_collection_order": order}
        change = {"op": "c", "after": {"id": number, "parent": number}, "source": source, "transaction": numbered}
        key, value = json.dumps({"id": number}).encode(), json.dumps(change).encode()
        self._producer.produce(self._topics[name], value, key=key, partition=number % 2)

    def _tell(self, status: str, transaction: int, counts: Mapping[str, int] | None = None) -> None:
        collections = [{"data_collection": name, "event_count": count} for name, count in (counts or {}).items()]
        event = {"status": status, "id": f"{transaction}:1", "data_collections": collections}
        self._producer.produce(self.events, json.dumps(event).encode())
        self._producer.flush(30)


@pytest.mark.slow
def test_a_group_is_published_at_the_ends_of_its_sources_transactions(broker: EmbeddedBroker, tmp_path: Path) -> None:
    chain = Captured(broker, tmp_path, ("customers", "orders"))
    chain.live("branch.between=kill")
    with chain.pipeline().start() as running:

        def has_published() -> bool:
            assert not running.has_ended
            chain.change()
            chain.look()
            return len(chain.seen) > 6

        wait_until(has_published, "seven generations without an order whose customer is missing", 180)
    chain.settle()
