"""Tables in a row that are published together, their source, and a reader of all of them."""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable, Table

from frazil.clock import SystemClock, new_id
from frazil.failpoints import VARIABLE
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Pipeline
from tests.integration.servers import RestCatalogServer, catalog_section

GENERATION = "frazil.shop.published-generation"
_BURST_S = 0.5


def say(words: str) -> None:
    """Shows how far a soak is."""
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def _id_of(place: int, number: int, writes: int) -> int:
    """Returns the id in the row of this number that the table at this place writes."""
    new = number // writes
    return new // 2 if place and number % 3 == 0 else new


class Chain:
    """Upsert tables in a row: each row refers to one of the table before it, which its source has written first."""

    def __init__(
        self,
        broker: EmbeddedBroker,
        folder: Path,
        names: tuple[str, ...],
        server: RestCatalogServer | None = None,
        every: str = "1s",
        interval: str = "1s",
    ) -> None:
        """every: of `publish`. interval: of commits."""
        self.folder, self.names, self._server = folder, names, server
        self._every, self._interval = every, interval
        self._servers = broker.bootstrap_servers
        self._topics = {name: new_id() for name in names}
        admin = AdminClient({"bootstrap.servers": self._servers})
        for created in admin.create_topics([NewTopic(topic, 2) for topic in self._topics.values()]).values():
            created.result(20)
        self._producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 5})
        #: What the last run uses; None: a process of its own.
        self.jvm: Jvm | None = None
        #: How often each new row is written, one time after another.
        self.writes = 1
        #: Further keys of each table.
        self.more: Mapping[str, Any] = {}
        #: Properties of Spark.
        self.conf: Mapping[str, str] = {}
        #: Rows of each table, replaced ones included.
        self.count = 0
        #: The generations that were looked at.
        self.seen: set[int] = set()
        self._looked_at: set[tuple[int, bool]] = set()

    def pipeline(self, **environment: str) -> Pipeline:
        document: dict[str, Any] = {
            "pipeline": "shop",
            "kafka": {"bootstrap.servers": self._servers},
            "http": False,
            "commit": {"interval": self._interval},
            "tables": self.settings(),
            "spark": {"conf": self.conf},
        }
        if self._server is not None:
            document["catalog"] = catalog_section(self._server, {})
        return Pipeline(self.folder, document, environment, self.jvm)

    def settings(self) -> dict[str, Mapping[str, Any]]:
        """The tables of the pipeline file."""
        return {f"shop.{name}": self._settings(name) for name in self.names}

    def _settings(self, name: str) -> Mapping[str, Any]:
        publish: dict[str, Any] = {"every": self._every, "group": "shop"}
        place = self.names.index(name)
        if place:
            parent = self.names[place - 1]
            query = f"select * from candidate c left anti join {parent} p on c.parent = p.id"
            publish["audits"] = {"dangling": query}
        columns = {"id": "long", "parent": "long"}
        keys = {"mode": "upsert", "key_columns": ["id"]}
        own = {"topic": self._topics[name], "columns": columns, "branch": "ingest", "publish": publish}
        return {**own, **keys, **self.more}

    def change(self, rows: int = 5) -> None:
        """Sends rows of the first table, then rows of each next one that refer to them; some of them change rows."""
        numbers = range(self.count, self.count + rows)
        for place, name in enumerate(self.names):
            for number in numbers:
                # Every third row of a later table replaces an older one, and refers to another row from then on.
                ids = [_id_of(table, number, self.writes) for table in (place, max(place - 1, 0))]
                row = dict(zip(("id", "parent"), ids, strict=True))
                self._producer.produce(self._topics[name], json.dumps(row).encode(), partition=number % 2)
            self._producer.flush(30)  # Else a row may be in Kafka before the one that it refers to.
        self.count += rows

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
        if (older, are_equal) in self._looked_at:
            return
        rows = {
            name: (table.scan() if are_equal else table.scan().use_ref(f"shop-{older}")).to_arrow()
            for name, table in tables.items()
        }
        for parent, child in zip(self.names, self.names[1:], strict=False):
            missing = np.setdiff1d(rows[child]["parent"].to_numpy(), rows[parent]["id"].to_numpy())
            assert missing.size == 0, (older, are_equal, child, missing[:5])
        self.seen.add(older)
        self._looked_at.add((older, are_equal))

    def live(self, failpoints: str) -> None:
        """One process, which dies at a step of a commit or of a publish."""
        with self.pipeline(**{VARIABLE: failpoints}).start() as running:

            def is_dead() -> bool:
                self.change()
                self.look()
                return running.has_ended

            wait_until(is_dead, f"it dies at {failpoints}", 180)

    def settle(self) -> None:
        """In the end readers see every row, and all tables are of one generation."""
        self.flush()
        self.pipeline().run()
        self.check()

    def flush(self) -> None:
        assert self._producer.flush(60) == 0

    def check(self) -> None:
        """Readers see every row, and all tables are of one generation."""
        self.look()
        tables = self.tables()
        assert len({table.properties[GENERATION] for table in tables.values()}) == 1
        assert tables[self.names[0]].scan().to_arrow().num_rows == -(-self.count // self.writes)
