"""A table with lookups whose reference tables have changed, on real parts: its copy joins each record with the version that
the record's commit names.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from packages.verify.tests.integration.files import replace_rows
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Ledger, Pipeline, Running

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(900)]
ORDERS, PEOPLE = "v.orders", "v.people"
NAMES = ("Germany", "Deutschland", "Allemagne")


class Scene:
    """Orders, and people by id, joined with countries that the same pipeline keeps and that change twice while it runs.
    People are joined with a file too, and come after the first change.
    """

    def __init__(self, broker: EmbeddedBroker, folder: Path) -> None:
        servers = broker.bootstrap_servers
        countries, orders, people = (Ledger(servers, new_id(), 1).topic for _ in range(3))
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
        self.sizes = folder / "sizes.parquet"
        country = {"table": "v.countries", "on": "code = code", "take": ["name"]}
        size = {"file": str(self.sizes), "on": "id = code", "take": ["cm"]}
        tables: dict[str, Any] = {
            "v.countries": {"topic": countries, "mode": "upsert", "key": {"format": "json"}},
            ORDERS: {"topic": orders, "lookup": {"country": {**country, "on_miss": "drop"}}},
            PEOPLE: {
                "topic": people, "mode": "upsert", "key_columns": ["id"], "lookup": {"country": country, "size": size}
            },
        }  # fmt: skip
        document = {"pipeline": "v", "kafka": {"bootstrap.servers": servers}, "tables": tables, "http": False}
        self.pipeline = Pipeline(folder, document)
        pq.write_table(pa.table({"code": pa.array([1], pa.int64()), "cm": [80]}), self.sizes)
        codes = ("de", "fr", "us")
        with self.pipeline.start() as run:
            for number, name in enumerate(NAMES):
                france = None if number == 2 else {"code": "fr", "name": "France"}
                named = (({"code": "de"}, {"code": "de", "name": name}), ({"code": "fr"}, france))
                self._send(run, countries, "v.countries", *named)
                rows = [(None, {"id": 3 * number + place, "code": code}) for place, code in enumerate(codes)]
                self._send(run, orders, ORDERS, *rows)
                if number:
                    rows = [(None, {"id": place + number, "code": code}) for place, code in enumerate(codes)]
                    self._send(run, people, PEOPLE, *rows)
            run.stop()

    def _send(self, run: Running, topic: str, table: str, *records: tuple[Any, Any]) -> None:
        """Sends records, and waits until their table has read them."""
        before = self._committed(run, table)
        for record in records:
            key, value = (None if part is None else json.dumps(part) for part in record)
            self._producer.produce(topic, value, key)
        assert self._producer.flush(30) == 0
        wait_until(lambda: self._committed(run, table) == before + len(records), lambda: f"{table}: {run.events()}")

    @staticmethod
    def _committed(run: Running, table: str) -> int:
        return sum(line["records"] for line in run.events_named("batch_committed") if line["table"] == table)

    def verify(self, *words: str) -> tuple[int, dict[str, Any]]:
        """The exit code, and what was found of each table."""
        done, printed = self.pipeline.command("verify", *words)
        assert "tables" in printed, done.stderr
        return done.returncode, printed["tables"]

    def metadata(self, table: str) -> Path:
        """The newest metadata file of a table."""
        with closing(sqlite3.connect(self.pipeline.directory / "frazil-data" / "catalog.db")) as catalog:
            query = "select metadata_location from iceberg_tables where table_name = ?"
            (location,) = catalog.execute(query, (table.partition(".")[2],)).fetchone()
        return Path(str(location).removeprefix("file://").removeprefix("file:"))


@pytest.fixture(scope="module")
def scene(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The tables, which tests leave as they are."""
    return Scene(broker, tmp_path_factory.mktemp("versions"))


def test_records_are_joined_with_the_versions_that_their_commits_name(scene: Scene) -> None:
    code, tables = scene.verify()
    counts = {"v.countries": 1, ORDERS: 5, PEOPLE: 4}
    assert (code, {name: table["rows"] for name, table in tables.items()}) == (0, counts), tables


def test_a_row_that_was_joined_with_a_newer_version_is_found(scene: Scene) -> None:
    folder = scene.pipeline.directory / "frazil-data" / "warehouse" / "v" / "orders" / "data"
    path = min(folder.rglob("*.parquet"), key=lambda of: of.stat().st_mtime_ns)
    whole, rows = path.read_bytes(), pq.ParquetFile(path).read()
    place = rows.schema.get_field_index("country")
    names = pa.array([{"name": NAMES[2]}] * rows.num_rows, rows.schema.field(place).type)
    replace_rows(path, rows.set_column(place, rows.schema.field(place), names))
    code, tables = scene.verify(ORDERS)
    path.write_bytes(whole)
    table = tables[ORDERS]
    assert (code, table["missing"], table["surplus"]) == (4, 2, 2), tables
    assert all(NAMES[0] in row or "France" in row for row in table["missing_rows"]), tables
    assert all(NAMES[2] in row for row in table["surplus_rows"]), tables


@pytest.mark.last
def test_versions_that_are_gone_are_named(scene: Scene) -> None:
    path = scene.metadata("v.countries")
    document = json.loads(path.read_text())
    document["snapshots"].sort(key=lambda of: of["sequence-number"])
    gone, *document["snapshots"] = document["snapshots"]
    document["snapshot-log"] = [of for of in document["snapshot-log"] if of["snapshot-id"] != gone["snapshot-id"]]
    path.write_text(json.dumps(document))
    pq.write_table(pa.table({"code": pa.array([1], pa.int64()), "cm": [81]}), scene.sizes)
    code, tables = scene.verify()
    assert (code, tables[ORDERS]["equal"], tables[PEOPLE]["equal"]) == (1, None, None), tables
    assert f"no longer has snapshot {gone['snapshot-id']}" in tables[ORDERS]["reason"]
    assert "its commits name other versions of" in tables[PEOPLE]["reason"]
    assert all("--rows" in tables[name]["remedy"] for name in (ORDERS, PEOPLE))
