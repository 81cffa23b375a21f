"""Real services that take connections and say nothing, one after another, under one run: a table that needs none of them
stays as fresh as before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from frazil.clock import SystemClock
from frazil.decode.settings import WriterSchema
from tests.acceptance.proxy import Answer, Proxy
from tests.fixtures.brokers import TwoBrokers
from tests.fixtures.processes import frozen
from tests.fixtures.registry import ApicurioRegistry
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Pipeline, Running
from tests.integration.servers import RestCatalogServer, catalog_section
from tests.unit.ingest.tables.test_schemas import avro
from tests.unit.rows.test_writer_schemas import framed

pytestmark = [pytest.mark.timeout(600), pytest.mark.soak]  # It measures times, which needs a machine of its own.

RECORDS = 5
STUCK = ("s.stuck0", "s.stuck1", "s.stuck2")
GRAIN_S = 1.0
"""Half an interval, within which a record comes too late for a batch, and what the busy cores of this machine add."""


class HangingCatalog(Proxy):
    """A REST catalog that answers nothing about some tables while it hangs."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._answers = threading.Event()
        self._answers.set()
        self.waiting = threading.Semaphore(0)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        self._answers.clear()
        try:
            yield
        finally:
            self._answers.set()

    def forward(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        if "/tables/stuck" in path and not self._answers.is_set():
            self.waiting.release()
            self._answers.wait(300)
        return super().forward(method, path, body, headers)


class Fresh:
    """The table that needs no more than Kafka's first broker and the catalog's answers about itself."""

    def __init__(self, producer: Producer, running: Running) -> None:
        self._producer, self._running = producer, running
        self._clock = SystemClock()

    def produce(self, topic: str, value: bytes) -> None:
        self._producer.produce(topic, value)
        self._producer.flush(20)

    def took_s(self) -> float:
        """From a record until it is in the table."""
        known = len(self._commits())
        began_s = self._clock.monotonic_s()
        self.produce("fresh", b'{"id": 1}')
        wait_until(lambda: len(self._commits()) > known, "the record is committed", 60)
        return self._clock.monotonic_s() - began_s

    def slowest_s(self) -> float:
        return max(self.took_s() for _ in range(RECORDS))

    def _commits(self) -> list[object]:
        return [event for event in self._running.events_named("batch_committed") if event["table"] == "s.fresh"]


def test_a_table_stays_fresh_while_each_service_that_others_need_hangs_in_turn(tmp_path: Path) -> None:
    with ExitStack() as stack:
        brokers = stack.enter_context(TwoBrokers(tmp_path / "brokers"))
        for topic in ("fresh", "avro", *(name.removeprefix("s.") for name in STUCK)):
            brokers.create(topic, 1)
        brokers.create("far", 2)
        registry = ApicurioRegistry(tmp_path / "registry")
        stack.callback(registry.kill)
        registry.start()
        server = RestCatalogServer(tmp_path / "catalog", f"file:{tmp_path / 'warehouse'}")
        stack.callback(server.kill)
        server.start()
        catalog = HangingCatalog(server.port)
        stack.callback(catalog.close)
        document = {
            "pipeline": "hanging",
            "kafka": {"bootstrap.servers": brokers.bootstrap_servers, "request.timeout.ms": "10000"},
            "catalog": {**catalog_section(server, {}), "uri": catalog.url},
            "registry": {"url": registry.api},
            "commit": {"interval": "500ms"},
            "tables": {
                "s.fresh": {"topic": "fresh"},
                "s.avro": {"topic": "avro", "value": {"format": "avro"}},
                "s.far": {"topic": "far"},
                **{name: {"topic": name.removeprefix("s.")} for name in STUCK},
            },
        }
        running = stack.enter_context(Pipeline(tmp_path / "pipeline", document).start())
        fresh = Fresh(Producer({"bootstrap.servers": brokers.bootstrap_servers, "enable.idempotence": True}), running)
        topics = ["far", *(name.removeprefix("s.") for name in STUCK)]
        for topic in topics:
            fresh.produce(topic, b'{"id": 1}')
        fresh.took_s()
        running.wait_until_committed(1 + len(topics))
        allowed_s = 2 * fresh.slowest_s() + GRAIN_S
        slowest_s = {}

        schema = avro(id="int")
        number = registry.register("avro-value", "AVRO", schema)
        with frozen(registry.pid):
            fresh.produce("avro", framed(number, WriterSchema("avro", schema), {"id": 1})[0])
            slowest_s["registry"] = fresh.slowest_s()
        with catalog.hanging():
            for name in STUCK:
                fresh.produce(name.removeprefix("s."), b'{"id": 2}')
            assert catalog.waiting.acquire(timeout=60)
            slowest_s["catalog"] = fresh.slowest_s()
        with frozen(brokers.second_pid):
            slowest_s["one broker of two"] = fresh.slowest_s()
        assert {name: took_s for name, took_s in slowest_s.items() if took_s > allowed_s} == {}, allowed_s
        committed = {event["table"] for event in running.wait_for("batch_committed", 6)}
        assert committed >= {"s.fresh", "s.far", *STUCK}
