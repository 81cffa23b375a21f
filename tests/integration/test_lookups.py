"""Tables joined with reference tables, as their user runs them: a table that the same pipeline keeps, and a file, both
changed while the pipeline runs. And a route of the same pipeline, which dies as it names the tables of the route.
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
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import StaticTable

from frazil.clock import new_id
from frazil.failpoints import VARIABLE
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Ledger, Pipeline
from tests.integration.test_published_offsets import coordinated
from tests.integration.test_routes import Routed

pytestmark = pytest.mark.timeout(900)
COUNTRY = {"table": "ref.countries", "on": "country_code = code", "take": ["name"]}


def _person(op: str, key: int, code: str) -> tuple[Any, Any]:
    after = {"id": key, "country_code": code}
    return {"id": key}, {"before": None, "after": after, "source": {"connector": "postgresql"}, "op": op, "ts_ms": 1}


def _country(code: str, name: str | None) -> tuple[Any, Any]:
    return {"code": code}, None if name is None else {"code": code, "name": name}


class Scene:
    """A topic of countries, which the reference table keeps, and topics of orders and people that are joined with it."""

    def __init__(self, broker: EmbeddedBroker, jvm: Jvm, folder: Path) -> None:
        servers = broker.bootstrap_servers
        self.folder, self.sizes = folder, folder / "sizes.parquet"
        self.countries, self.orders, self.people, self.parcels = (Ledger(servers, new_id(), 1).topic for _ in range(4))
        self.name = f"p-{self.orders}"
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        self.routed = Routed(servers)
        #: While it is there, the process dies as a commit has landed.
        self.deadly = folder / "deadly"
        size = {"file": str(self.sizes), "on": "size_code = code", "take": ["cm"]}
        self.pipeline = Pipeline(
            folder,
            {
                "pipeline": self.name,
                "kafka": {"bootstrap.servers": servers},
                "publish_offsets": False,
                "routes": [self.routed.route],
                "tables": {
                    "ref.countries": {"topic": self.countries, "mode": "upsert", "key": {"format": "json"}},
                    "s.orders": {
                        "topic": self.orders,
                        "lookup": {"country": {**COUNTRY, "on_miss": "dead_letter"}, "size": size},
                        "select": "select id, country.name as country, size.cm as cm from records",
                    },
                    "s.people": {
                        "topic": self.people,
                        "envelope": "debezium",
                        "mode": "upsert",
                        "lookup": {"country": {**COUNTRY, "on_miss": "drop"}},
                    },
                    "s.parcels": {
                        "topic": self.parcels,
                        "mode": "upsert",
                        "key_columns": ["id"],
                        "lookup": {"country": {**COUNTRY, "wait": "1h"}},
                        "select": "select id, country.name as country from records",
                    },
                },
            },
            {VARIABLE: f"commit.landed=kill@{self.deadly}"},
            jvm,
        )
        #: The versions of the reference table that tables were joined with.
        self.versions: list[Any] = []
        #: What the last run reported, the dead letters of orders, and what the commits of each table name of their lookups,
        #: at the end of the runs.
        self.reported: dict[str, Any] = {}
        self.dead_letters: list[dict[str, Any]] = []
        self.named: dict[str, list[Any]] = {}

    def write_sizes(self, cm: int) -> None:
        pq.write_table(pa.table({"code": pa.array([1], pa.int32()), "cm": [cm]}), self.sizes)

    def produce(self, topic: str, *records: tuple[Any, Any]) -> None:
        for key, value in records:
            texts = (None if one is None else json.dumps(one) for one in (key, value))
            self._producer.produce(topic, key=next(texts), value=next(texts))
        assert self._producer.flush(30) == 0

    def table(self, name: str) -> StaticTable:
        with closing(sqlite3.connect(self.folder / "frazil-data" / "catalog.db")) as catalog:
            query = "select metadata_location from iceberg_tables where table_name = ?"
            found = catalog.execute(query, (name,)).fetchall()
        if not found:
            raise NoSuchTableError(name)
        return StaticTable.from_metadata(found[0][0])

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """The rows of a table in order, without the names of its columns; none before it exists."""
        try:
            found = self.table(name).scan().to_arrow().to_pylist()
        except (NoSuchTableError, sqlite3.OperationalError):
            return []
        return sorted(tuple(row.values()) for row in found)

    def wait_for(self, name: str, *expected: tuple[Any, ...]) -> None:
        wait_until(lambda: self.rows(name) == list(expected), lambda: f"{name}: {self.rows(name)}")

    def note_version(self) -> None:
        snapshot = self.table("countries").current_snapshot()
        assert snapshot is not None
        self.versions.append({"table": "ref.countries", "snapshot-id": snapshot.snapshot_id})

    def lookups(self, name: str) -> list[Any]:
        """What the commits of records to a table name of their lookups, the oldest first, each once."""
        summaries = [one.summary for one in self.table(name).snapshots() if one.summary]
        of_maintenance = f"frazil.{self.name}.maintenance-id"
        texts = [
            str(summary[f"frazil.{self.name}.lookups"]) for summary in summaries if summary[of_maintenance] is None
        ]
        return [json.loads(text) for text in dict.fromkeys(texts)]


@pytest.fixture(scope="module")
def scene(broker: EmbeddedBroker, jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    made = Scene(broker, jvm, tmp_path_factory.mktemp("lookups"))
    lacking = {one["name"]: one["found"] for one in made.pipeline.checks() if not one["ok"]}
    assert "does not exist" in lacking["lookup country of s.orders"]
    assert "cannot be read" in lacking["lookup size of s.orders"]
    made.write_sizes(80)
    with made.pipeline.start() as running:
        made.produce(made.countries, _country("de", "Germany"), _country("fr", "France"))
        made.wait_for("countries", ("de", "Germany"), ("fr", "France"))
        made.note_version()
        made.produce(
            made.orders, *((None, {"id": n, "country_code": c, "size_code": 1}) for n, c in ((1, "de"), (2, "us")))
        )
        made.produce(made.people, _person("c", 1, "de"), _person("c", 2, "fr"), _person("c", 3, "us"))
        parcels = ((1, "us"), (2, "us"), (3, "de"), (4, "it"), (2, "fr"))
        made.produce(made.parcels, *((None, {"id": n, "country_code": code}) for n, code in parcels))
        made.wait_for("orders", (1, "Germany", 80))
        made.wait_for("parcels", (2, "France"), (3, "Germany"))
        made.wait_for("people", (1, "de", {"name": "Germany"}), (2, "fr", {"name": "France"}))
        running.wait_until_committed(2 + 2 + 3 + 5)
        # The first commit of the route is that of the rest, which names the tables that are made next.
        made.deadly.touch()
        made.routed.produce()
        running.wait_for_death()
    made.deadly.unlink()
    assert made.routed.tables(made.folder) == {"rest": []}
    with made.pipeline.start() as running:
        # France is deleted, by a delete file, and Germany renamed: person 1 keeps what was looked up, person 2 is dropped.
        made.produce(made.countries, _country("de", "Deutschland"), _country("fr", None), _country("us", "USA"))
        made.wait_for("countries", ("de", "Deutschland"), ("us", "USA"))
        made.note_version()
        made.write_sizes(81)
        made.produce(
            made.orders,
            (None, {"id": 3, "country_code": "de", "size_code": 1}),
            (None, {"id": 4, "country_code": "us"}),
        )
        made.produce(made.people, _person("u", 2, "fr"), _person("c", 4, "de"))
        made.wait_for("orders", (1, "Germany", 80), (3, "Deutschland", 81), (4, "USA", None))
        made.wait_for("parcels", (1, "USA"), (2, "France"), (3, "Germany"))
        made.wait_for("people", (1, "de", {"name": "Germany"}), (4, "de", {"name": "Deutschland"}))
        made.routed.produce_more()
        wait_until(lambda: made.routed.is_read(made.folder), "the route is read")
        made.reported = running.stop()["tables"]
    # Before a test replays a dead letter.
    made.dead_letters = made.table("orders__dead_letters").scan().to_arrow().to_pylist()
    made.named = {table: made.lookups(table) for table in ("orders", "people")}
    return made


def test_records_wait_for_their_country_through_a_kill_and_a_newer_change_of_a_row_stays(scene: Scene) -> None:
    """The process was killed while parcels 1, 2 and 4 waited for their countries."""
    assert scene.rows("parcels") == [(1, "USA"), (2, "France"), (3, "Germany")]
    waiting = scene.table("parcels__dead_letters").scan().to_arrow().to_pylist()
    assert [(row["error_class"], row["offset"]) for row in waiting] == [("lookup_waiting", 3)]
    assert (scene.reported["s.parcels"]["waiting_records"], scene.reported["s.parcels"]["dead_letters"]) == (1, 1)


def test_each_commit_names_the_version_that_its_rows_have(scene: Scene) -> None:
    for found in scene.named.values():
        named = [one["country"] for one in found]
        assert [one for n, one in enumerate(named) if one not in named[:n]] == scene.versions
    assert len({one["size"]["version"] for one in scene.named["orders"]}) == 2


def test_misses_are_counted(scene: Scene) -> None:
    """That lineage names the keys: test_query_tables.py."""
    assert scene.reported["s.people"]["ignored_records"] == {"lookup country": 2}
    assert scene.reported["s.orders"]["dead_letters"] == 1


def test_a_dead_letter_becomes_a_row_once_the_reference_table_has_its_key(scene: Scene) -> None:
    [dead_letter] = scene.dead_letters
    assert (dead_letter["error_class"], dead_letter["offset"]) == ("lookup_miss", 1)
    assert scene.pipeline.command("dead-letters", "replay", "s.orders")[0].returncode == 0
    assert (2, "USA", 81) in scene.rows("orders")


def test_every_record_of_a_route_with_a_lookup_is_in_one_table_through_kills(scene: Scene) -> None:
    scene.routed.assert_whole(scene.folder, scene.reported)


def test_a_pipeline_that_is_to_publish_no_offsets_leaves_its_group_alone(scene: Scene, broker: EmbeddedBroker) -> None:
    group = coordinated(broker, f"frazil-{scene.name}")
    assert group.offsets([(scene.orders, 0), (scene.countries, 0)]) == {}
