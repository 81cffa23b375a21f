"""The page "audit before publish" with catalogs of three kinds: every engine reads only what has passed, and needs no
setting for it. `make readers` fetches Trino before, which takes 480 MB.

In time: the example with a REST catalog, which PyIceberg reads, in integration/test_publish.py.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.table import StaticTable

from docs.scan import ROOT
from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from packages.publish.tests.fixtures.trino import TrinoServer
from tests.acceptance.catalogs import NessieLake
from tests.acceptance.verifier import Stored, metadata_locations, open_duckdb
from tests.fixtures.foreign_spark import ForeignSpark
from tests.integration.pipelines import Pipeline
from tests.integration.servers import REGION, ObjectStore, RestCatalogServer, catalog_section

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(900)]
_S3 = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}
Ids = list[int]


class Kind(ABC):
    """A kind of catalog whose tables are in the store."""

    def __init__(self, folder: Path, store: ObjectStore, rest: RestCatalogServer) -> None:
        self.folder, self.store, self.rest = folder, store, rest
        #: What engines call it.
        self.name = f"c{new_id()[:8]}"
        #: Ends the servers of its own.
        self.servers = ExitStack()

    @abstractmethod
    def section(self) -> dict[str, Any]:
        """The pipeline file's `catalog`."""

    @abstractmethod
    def spark(self) -> dict[str, str]:
        """The catalog's properties for another team's Spark."""

    @abstractmethod
    def location(self, table: str) -> str:
        """The table's metadata file."""

    @abstractmethod
    def trino(self) -> dict[str, str]:
        """The catalog's properties for Trino."""


class Sqlite(Kind):
    """Iceberg's JDBC catalog on SQLite, whose tables are under its name."""

    def section(self) -> dict[str, Any]:
        return {"type": "jdbc", "name": self.name, **self._place(), "properties": {**self.store.references(), **_S3}}

    def spark(self) -> dict[str, str]:
        return {"type": "jdbc", "jdbc.schema-version": "V1", **self._place()}

    def location(self, table: str) -> str:
        return metadata_locations(self.folder / "catalog.db", "")[table]

    def trino(self) -> dict[str, str]:
        place = {"connection-url": self._place()["uri"], "default-warehouse-dir": self._place()["warehouse"]}
        own = {"driver-class": "org.sqlite.JDBC", "catalog-name": self.name, "schema-version": "V1", **place}
        return {"iceberg.catalog.type": "jdbc", **{f"iceberg.jdbc-catalog.{name}": text for name, text in own.items()}}

    def _place(self) -> dict[str, str]:
        return {"uri": f"jdbc:sqlite:{self.folder / 'catalog.db'}", "warehouse": "s3://lake/sqlite"}


class Rest(Kind):
    """Iceberg's own server."""

    def section(self) -> dict[str, Any]:
        return catalog_section(self.rest, {**self.store.references(), **_S3})

    def spark(self) -> dict[str, str]:
        return {"type": "rest", "uri": self.rest.url}

    def location(self, table: str) -> str:
        return metadata_locations(self.rest.directory / "rest.db", "")[table]

    def trino(self) -> dict[str, str]:
        return {"iceberg.catalog.type": "rest", "iceberg.rest-catalog.uri": self.rest.url}


class Nessie(Kind):
    """Nessie's own API."""

    def __init__(self, folder: Path, store: ObjectStore, rest: RestCatalogServer) -> None:
        super().__init__(folder, store, rest)
        self._lake = NessieLake(folder)
        self._lake.server.start()
        self.servers.callback(self._lake.server.kill)

    def section(self) -> dict[str, Any]:
        return {"type": "nessie", **self._place(), "properties": {**self.store.references(), **_S3}}

    def spark(self) -> dict[str, str]:
        return {"type": "nessie", **self._place()}

    def location(self, table: str) -> str:
        return self._lake.locations(table.partition(".")[0])[table]

    def trino(self) -> dict[str, str]:
        place = {"uri": self._lake.server.uri, "default-warehouse-dir": "s3://lake/nessie"}
        own = {f"iceberg.nessie-catalog.{name}": value for name, value in place.items()}
        return {"iceberg.catalog.type": "nessie", **own}

    def _place(self) -> dict[str, str]:
        return {"uri": self._lake.server.uri, "warehouse": "s3://lake/nessie"}


class Readers:
    """What each engine finds in a table that it is given by name alone."""

    def __init__(self, kind: Kind, table: str, spark: ForeignSpark, trino: TrinoServer) -> None:
        self._kind, self._table, self._spark, self._trino = kind, table, spark, trino
        spark.add_catalog(kind.name, {**kind.spark(), **_S3, **kind.store.properties(), "cache-enabled": "false"})

    def ids(self) -> dict[str, Ids]:
        """The ids of its rows, by engine."""
        stored = Stored(self._kind.location(self._table), self._kind.store.properties())
        found = {
            "spark": self.spark(self._table),
            "pyiceberg": StaticTable.from_metadata(stored.location, dict(stored.properties)).scan().to_arrow()["id"],
        }
        with closing(open_duckdb(stored)) as connection:
            rows = connection.sql(f"select id from iceberg_scan('{stored.location}')").fetchall()
        read: dict[str, Ids] = {name: _sorted(ids) for name, ids in found.items()}
        read["duckdb"] = sorted(row[0] for row in rows)
        read["trino"] = sorted(row[0] for row in self._trino.sql(f"select id from lake.{self._table}"))
        return read

    def spark(self, table: str) -> Any:
        """What Spark finds."""
        return [row["id"] for row in self._spark.sql(f"select id from {self._kind.name}.{table}")]


def _sorted(ids: Any) -> Ids:
    return sorted(ids if isinstance(ids, Sequence) else ids.to_pylist())


KINDS: Mapping[str, Callable[[Path, ObjectStore, RestCatalogServer], Kind]] = {
    "sqlite": Sqlite,
    "rest": Rest,
    "nessie": Nessie,
}


@pytest.fixture(params=[*KINDS])
def kind(
    request: pytest.FixtureRequest, tmp_path: Path, store: ObjectStore, catalog: RestCatalogServer
) -> Iterator[Kind]:
    """A catalog of this kind."""
    made = KINDS[request.param](tmp_path, store, catalog)
    yield made
    made.servers.close()


def test_every_engine_reads_only_what_has_passed(
    kind: Kind, broker: EmbeddedBroker, spark: ForeignSpark, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "guides" / "publish.md").read_text()
    document: dict[str, Any] = yaml.safe_load(
        re.findall(r"^```yaml\n(pipeline.*?)^```", page, re.DOTALL | re.MULTILINE)[0]
    )
    topic, table = new_id(), f"s{new_id()[:8]}.orders"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 2)])[topic].result(20)
    document |= {"kafka": {"bootstrap.servers": broker.bootstrap_servers}, "catalog": kind.section(), "http": False}
    document["tables"] = {table: {**document["tables"]["shop.orders"], "topic": topic}}
    pipeline = Pipeline(tmp_path / "run", document, kind.store.environment())
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    def send(*orders: tuple[int, float]) -> None:
        for order, amount in orders:
            producer.produce(topic, json.dumps({"id": order, "customer": 1, "amount": amount}).encode())
        assert producer.flush(30) == 0

    def seen() -> set[tuple[int, ...]]:
        return {tuple(ids) for ids in readers.ids().values()}

    with ExitStack() as held:
        s3 = {"fs.native-s3.enabled": "true", "s3.endpoint": kind.store.url, "s3.region": REGION}
        s3 |= {
            "s3.path-style-access": "true",
            "s3.aws-access-key": kind.store.key,
            "s3.aws-secret-key": kind.store.secret,
        }
        trino = TrinoServer(tmp_path / "trino", {"lake": {**kind.trino(), **s3}})
        held.callback(trino.kill)
        trino.start()
        send((1, 1.0), (2, 2.0))
        pipeline.run()
        readers = Readers(kind, table, spark, trino)
        assert seen() == {(1, 2)}
        send((3, -3.0))
        pipeline.run()
        assert (seen(), sorted(readers.spark(f"{table}.branch_ingest"))) == ({(1, 2)}, [1, 2, 3])
        done, document = pipeline.command("publish", table)
        assert (done.returncode, [audit["name"] for audit in document["failed_audits"]]) == (4, ["no_negative_amounts"])
        assert pipeline.command("publish", table, "--override")[0].returncode == 0
        assert seen() == {(1, 2, 3)}
        assert readers.ids().keys() == {"spark", "duckdb", "pyiceberg", "trino"}
