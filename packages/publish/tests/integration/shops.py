"""A topic of orders, the pipeline that publishes them, and what its readers see."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.table import StaticTable

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from tests.integration.pipelines import Pipeline
from tests.integration.servers import free_port

TABLE = "shop.orders"
AUDITS = {
    "no_null_ids": "select count(*) = 0 from candidate where id is null",
    "no_less": "select (select count(*) from candidate) >= (select count(*) from published)",
    "no_negative": "select id, amount from candidate where amount < 0",
}


class Shop:
    """A topic of orders, and a pipeline that publishes them."""

    def __init__(self, broker: EmbeddedBroker, folder: Path, jvm: Jvm | None = None, /, **settings: Any) -> None:
        """jvm: as of Pipeline."""
        self.folder, self.topic, self.port, self._jvm = folder, new_id(), free_port(), jvm
        self._servers = broker.bootstrap_servers
        self.topic_of(self.topic)
        self._producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True})
        columns = {"id": "long", "amount": "double"}
        self.table = {"topic": self.topic, "columns": columns, "branch": "ingest", **settings}

    def topic_of(self, name: str) -> str:
        """Makes a topic; its name."""
        admin = AdminClient({"bootstrap.servers": self._servers})
        for created in admin.create_topics([NewTopic(name, 2)]).values():
            created.result(20)
        return name

    def pipeline(self, **environment: str) -> Pipeline:
        document = {
            "pipeline": "shop",
            "kafka": {"bootstrap.servers": self._servers},
            "http": {"listen": f"127.0.0.1:{self.port}"},
            "tables": {TABLE: self.table},
        }
        return Pipeline(self.folder, document, environment, self._jvm)

    def send(self, *orders: tuple[int | None, float]) -> None:
        for number, (order, amount) in enumerate(orders):
            record = {"id": order, "amount": amount}
            self._producer.produce(self.topic, json.dumps(record).encode(), partition=number % 2)
        assert self._producer.flush(30) == 0

    def location(self) -> str | None:
        """The metadata file of the table; None where it does not exist."""
        with closing(sqlite3.connect(self.folder / "frazil-data" / "catalog.db")) as catalog:
            query = "select metadata_location from iceberg_tables where table_name = 'orders'"
            row = catalog.execute(query).fetchone()
        return None if row is None else str(row[0])

    def metadata(self) -> StaticTable:
        location = self.location()
        assert location is not None
        return StaticTable.from_metadata(location)

    def seen(self) -> list[int | None]:
        """The ids that readers see, who know nothing of branches."""
        table = self.metadata()
        return [] if table.current_snapshot() is None else ids_of(table.scan())

    def ingested(self) -> list[int | None]:
        """The ids of the branch."""
        table = self.metadata()
        snapshot = table.snapshot_by_name("ingest")
        assert snapshot is not None
        return ids_of(table.scan(snapshot_id=snapshot.snapshot_id))

    def publishing(self) -> dict[str, Any]:
        """What the running process reports."""
        with urlopen(f"http://127.0.0.1:{self.port}/api/v1/tables/{TABLE}", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)["publishing"]
        return found

    def metrics(self) -> list[str]:
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
        return text.splitlines()


def ids_of(scan: Any) -> list[int | None]:
    ids: Sequence[int | None] = scan.to_arrow()["id"].to_pylist()
    return sorted(ids, key=lambda value: (value is None, value))
