"""Tables that are published together never show a row that refers to one which is missing: with kills, a second process,
lost answers, on a catalog with commits of several tables and on one without.

`make soak-publish` kills 200 times, and publishes 20 tables 1,000 times; FRAZIL_KILLS, FRAZIL_PUBLISHES, FRAZIL_RATE
(changes a second) and FRAZIL_FIRST_SEED for others.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable, Table

from frazil.clock import SystemClock, new_id
from frazil.failpoints import VARIABLE
from frazil.runtime.broker import EmbeddedBroker
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Pipeline
from tests.integration.servers import RestCatalogServer, catalog_section

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]
GENERATION = "frazil.shop.published-generation"
POINTS = ("commit.landed", "publish.audited", "branch.before", "branch.landed", "branch.between")
KILLS = int(os.environ.get("FRAZIL_KILLS", "200"))
PUBLISHES = int(os.environ.get("FRAZIL_PUBLISHES", "1000"))
RATE = int(os.environ.get("FRAZIL_RATE", "10000"))
SEED = int(os.environ.get("FRAZIL_FIRST_SEED", "1"))
_BURST_S = 0.05


class Chain:
    """Upsert tables in a row: each row refers to one of the table before it, which its source has written first."""

    def __init__(
        self, broker: EmbeddedBroker, folder: Path, names: tuple[str, ...], server: RestCatalogServer | None = None
    ) -> None:
        self.folder, self.names, self._server = folder, names, server
        self._servers = broker.bootstrap_servers
        self._topics = {name: new_id() for name in names}
        admin = AdminClient({"bootstrap.servers": self._servers})
        for created in admin.create_topics([NewTopic(topic, 2) for topic in self._topics.values()]).values():
            created.result(20)
        self._producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 5})
        self._count = 0
        #: The generations that were looked at.
        self.seen: set[int] = set()

    def pipeline(self, **environment: str) -> Pipeline:
        document: dict[str, Any] = {
            "pipeline": "shop",
            "kafka": {"bootstrap.servers": self._servers},
            "http": False,
            "commit": {"interval": "1s"},
            "tables": {f"shop.{name}": self._settings(name) for name in self.names},
        }
        if self._server is not None:
            document["catalog"] = catalog_section(self._server, {})
        return Pipeline(self.folder, document, environment)

    def _settings(self, name: str) -> Mapping[str, Any]:
        publish: dict[str, Any] = {"every": "1s", "group": "shop"}
        place = self.names.index(name)
        if place:
            parent = self.names[place - 1]
            query = f"select * from candidate c left anti join {parent} p on c.parent = p.id"
            publish["audits"] = {"dangling": query}
        columns = {"id": "long", "parent": "long"}
        keys = {"mode": "upsert", "key_columns": ["id"]}
        return {"topic": self._topics[name], "columns": columns, **keys, "branch": "ingest", "publish": publish}

    def change(self, rows: int = 5) -> None:
        """Sends rows of the first table, then rows of each next one that refer to them; some of them change rows."""
        numbers = range(self._count, self._count + rows)
        for place, name in enumerate(self.names):
            for number in numbers:
                # Every third row of a table replaces an older one, which refers to a new row from then on.
                row = {"id": number // 2 if place and number % 3 == 0 else number, "parent": number}
                self._producer.produce(self._topics[name], json.dumps(row).encode(), partition=number % 2)
            if len(self.names) == 2:
                self._producer.flush(30)
        self._count += rows
        self._producer.poll(0)

    @contextmanager
    def changing(self, rate: int) -> Iterator[None]:
        """Sends so many changes a second while its block runs."""
        ended, clock = threading.Event(), SystemClock()

        def feed() -> None:
            due_s = clock.monotonic_s()
            while not ended.wait(max(0.0, due_s - clock.monotonic_s())):
                self.change(max(1, int(rate * _BURST_S / len(self.names))))
                due_s += _BURST_S

        thread = threading.Thread(target=feed)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            assert self._producer.flush(60) == 0

    def tables(self) -> dict[str, StaticTable | Table]:
        """The tables as readers find them."""
        if self._server is not None:
            lake = load_catalog("lake", type="rest", uri=self._server.url)
            return {name: lake.load_table(f"shop.{name}") for name in self.names if lake.table_exists(f"shop.{name}")}
        file = self.folder / "frazil-data" / "catalog.db"
        if not file.exists():
            return {}
        locations: dict[str, str] = {}
        with (
            closing(sqlite3.connect(file)) as catalog,
            suppress(sqlite3.OperationalError),
        ):  # Its tables may be missing.
            locations = dict(catalog.execute("select table_name, metadata_location from iceberg_tables"))
        return {name: StaticTable.from_metadata(locations[name]) for name in self.names if name in locations}

    def look(self) -> None:
        """A reader of all tables takes what main has where all are of one generation, and else the tag of the older one."""
        tables = self.tables()
        numbers = [int(table.properties.get(GENERATION, 0)) for table in tables.values()]
        if len(tables) < len(self.names) or not min(numbers):
            return
        are_equal, older = len(set(numbers)) == 1, min(numbers)
        if older in self.seen and are_equal:
            return
        rows = {
            name: (table.scan() if are_equal else table.scan().use_ref(f"shop-{older}")).to_arrow()
            for name, table in tables.items()
        }
        for parent, child in zip(self.names, self.names[1:], strict=False):
            missing = np.setdiff1d(rows[child]["parent"].to_numpy(), rows[parent]["id"].to_numpy())
            assert missing.size == 0, (older, are_equal, child, missing[:5])
        self.seen.add(older)

    def settle(self) -> None:
        """In the end readers see every row, and all tables are of one generation."""
        assert self._producer.flush(60) == 0
        self.pipeline().run()
        self.look()
        tables = self.tables()
        assert len({table.properties[GENERATION] for table in tables.values()}) == 1
        assert tables[self.names[0]].scan().to_arrow().num_rows == self._count

    def live(self, point: str, nth: int) -> None:
        """One process, which dies at a step of a commit or of a publish."""
        with self.pipeline(**{VARIABLE: f"{point}=kill@{nth}"}).start() as running:

            def is_dead() -> bool:
                self.change()
                self.look()
                return running.has_ended

            wait_until(is_dead, f"it dies at {point}", 180)


def test_nothing_dangles_through_kills_and_a_second_process(broker: EmbeddedBroker, tmp_path: Path) -> None:
    chain = Chain(broker, tmp_path, ("customers", "orders"))
    chain.live("branch.between", 1)
    chain.live("branch.landed", 2)
    with chain.pipeline().start() as first, chain.pipeline().start() as second:

        def has_one_left() -> bool:
            chain.change()
            chain.look()
            return (first.has_ended or second.has_ended) and len(chain.seen) >= 2

        wait_until(has_one_left, "one of two ends, and readers have seen what the other publishes", 180)
    chain.settle()
    assert len(chain.seen) >= 3


@pytest.mark.parametrize("point", ["branch.landed=reset;branch.between=kill", "branch.before=kill@2"])
def test_tables_of_a_rest_catalog_are_published_in_one_commit(
    broker: EmbeddedBroker, server: RestCatalogServer, tmp_path: Path, point: str
) -> None:
    chain = Chain(broker, tmp_path, (f"c{new_id()[:8]}", f"o{new_id()[:8]}"), server)
    with chain.pipeline(**{VARIABLE: point}).start() as running:

        def has_published() -> bool:
            chain.change()
            chain.look()
            return running.has_ended or len(chain.seen) > 2

        wait_until(has_published, "three generations, or its death", 180)
        assert running.has_ended == ("between" not in point)  # Which is reached where tables are published one by one.
    chain.settle()


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
def test_200_kills_of_a_group(broker: EmbeddedBroker, tmp_path: Path) -> None:
    chain, chance = Chain(broker, tmp_path, ("customers", "orders")), np.random.default_rng(SEED)
    for _ in range(KILLS):
        chain.live(POINTS[chance.integers(0, len(POINTS))], int(chance.integers(1, 4)))
    chain.settle()


@pytest.mark.soak
@pytest.mark.timeout(8 * 3600)
def test_20_tables_are_published_1000_times(broker: EmbeddedBroker, tmp_path: Path) -> None:
    chain = Chain(broker, tmp_path, tuple(f"t{number}" for number in range(20)))
    with chain.pipeline().start() as running, chain.changing(RATE):

        def is_done() -> bool:
            assert not running.has_ended
            chain.look()
            return len(running.events_named("table_published")) >= PUBLISHES * len(chain.names)

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
        transaction, order = self._count + 1000, 0
        self._tell("BEGIN", transaction)
        for name in reversed(self.names):
            for number in range(self._count, self._count + rows):
                order += 1
                self._send(name, number, transaction, order)
            self._producer.flush(30)
            SystemClock().sleep(0.02)  # As long as a transaction takes, in which a moment can lie.
        self._tell("END", transaction, {self._topics[name]: rows for name in self.names})
        self._count += rows

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
    chain.live("branch.between", 1)
    with chain.pipeline().start() as running:

        def has_published() -> bool:
            assert not running.has_ended
            chain.change()
            chain.look()
            return len(chain.seen) > 6

        wait_until(has_published, "seven generations without an order whose customer is missing", 180)
    chain.settle()
