"""A REST catalog with an S3 store, so that nothing is local by accident: exactly once, through outages, without secrets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.integration.pipelines import Ledger, Pipeline
from tests.integration.servers import ObjectStore, RestCatalogServer

BUCKET = "lake"
KEY, SECRET = "AKFRAZILTESTKEY", "s3cr3t/with+signs=and-more"
ENVIRONMENT = {"LAKE_KEY": KEY, "LAKE_SECRET": SECRET}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    server = ObjectStore(tmp_path_factory.mktemp("store"), KEY, SECRET)
    server.start()
    server.make_bucket(BUCKET)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def catalog(store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogServer]:
    server = RestCatalogServer(tmp_path_factory.mktemp("catalog"), f"s3://{BUCKET}/warehouse", store.properties())
    server.start()
    yield server
    server.kill()


def document(broker: EmbeddedBroker, catalog: RestCatalogServer, topic: str, **more: Any) -> dict[str, Any]:
    return {
        "pipeline": f"p-{topic}",
        "kafka": {"bootstrap.servers": broker.bootstrap_servers},
        "catalog": {"type": "rest", "uri": catalog.url, "warehouse": catalog.warehouse, **more},
        "tables": {f"lake.t{topic.replace('-', '')}": {"topic": topic}},
    }


def in_s3(store: ObjectStore) -> dict[str, str]:
    secrets = {"s3.access-key-id": "${env:LAKE_KEY}", "s3.secret-access-key": "${env:LAKE_SECRET}"}
    return {**store.properties(), **secrets}


def rows_of(catalog: RestCatalogServer, topic: str, properties: dict[str, str]) -> pa.Table:
    """What another reader finds."""
    with RestCatalog("reader", uri=catalog.url, **properties) as reader:
        return reader.load_table(f"lake.t{topic.replace('-', '')}").scan().to_arrow()


def test_records_reach_s3_once_and_no_secret_is_shown(
    broker: EmbeddedBroker, store: ObjectStore, catalog: RestCatalogServer, tmp_path: Path
) -> None:
    ledger = Ledger(broker.bootstrap_servers, new_id())
    spec = document(broker, catalog, ledger.topic, properties=in_s3(store))
    pipeline = Pipeline(tmp_path, spec, ENVIRONMENT)
    for count in (3000, 2000):
        ledger.produce(count)
        pipeline.run("--debug", "--log-level", "debug")
    ledger.assert_equals(rows_of(catalog, ledger.topic, store.properties()))
    metadata = list(store.texts(BUCKET, ".metadata.json"))
    assert metadata
    for text in (pipeline.said, pipeline.state_text, *metadata):
        assert text
        assert SECRET not in text
        assert KEY not in text
