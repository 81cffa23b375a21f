"""A store that refuses what tasks write, of a table that is there: named with a remedy, and no record is searched for.

In time: what such words mean, unit/ingest/batches/test_failures.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.fixtures.store_proxy import Fault, StoreProxy
from tests.integration.pipelines import Ledger, Pipeline, Running
from tests.integration.servers import ObjectStore, RestCatalogServer, assert_whole, pipeline_on

IMPATIENT = {"s3.retry.num-retries": "0"}
REFUSALS: Mapping[Fault, tuple[str, str]] = {
    "wrong key": ("SignatureDoesNotMatch", "check the credentials under `catalog.properties`"),
    "expired": ("ExpiredToken", "renew the credentials"),
    "no bucket": ("NoSuchBucket", "create the bucket"),
    "cut before": ("error sending request", "check the address"),
}
"""What is reported of each fault: words of the store, and how the remedy begins."""


@pytest.fixture
def catalog(store: ObjectStore, tmp_path: Path) -> Iterator[RestCatalogServer]:
    """One that reaches the store by itself, whatever becomes of the pipeline's way to it."""
    made = RestCatalogServer(tmp_path / "catalog", "s3://lake/refused", store.properties())
    made.start()
    try:
        yield made
    finally:
        made.kill()


def refusals(running: Running, ledger: Ledger, words: str) -> list[dict[str, str]]:
    """Two refusals in a row that have these words, of records that are produced now."""
    before = len(running.events_named("table_backing_off"))
    ledger.produce(10)
    running.wait_for("table_backing_off", before + 2)
    found = running.events_named("table_backing_off")[before:]
    assert [words in one["reason"] for one in found] == [True] * len(found), found
    return found


def test_a_refused_store_is_named_and_no_record_is_searched_for_until_it_takes_rows(
    broker: EmbeddedBroker, store: ObjectStore, catalog: RestCatalogServer, tmp_path: Path
) -> None:
    ledger = Ledger(broker.bootstrap_servers, new_id())
    ledger.produce(10)
    with closing(StoreProxy(store.port)) as proxy:
        spec = pipeline_on(catalog, ledger.servers, ledger.topic, {**store.references(proxy.port), **IMPATIENT})
        pipeline = Pipeline(tmp_path / "run", spec, store.environment())
        with pipeline.start() as running:
            running.wait_until_committed(ledger.count)
            for fault, (words, remedy) in REFUSALS.items():
                proxy.always = fault
                found = refusals(running, ledger, words)
                assert [one["where"].startswith("s3://lake/refused") for one in found] == [True] * len(found), found
                assert [one["remedy"].startswith(remedy) for one in found] == [True] * len(found), found
                proxy.always = None
                # After each: the eighth failure in a row is waited for half a minute.
                running.wait_until_committed(ledger.count)
            assert running.events_named("crashing_record_search_started") == []
            assert running.events_named("crashing_record_found") == []
            running.stop()
    assert_whole(catalog, ledger, store.properties())


def test_a_folder_that_takes_no_files_is_named_and_no_record_is_searched_for(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    ledger = Ledger(broker.bootstrap_servers, new_id())
    ledger.produce(10)
    warehouse = tmp_path / "warehouse"
    catalog = RestCatalogServer(tmp_path / "catalog", str(warehouse))
    catalog.start()
    try:
        pipeline = Pipeline(tmp_path / "run", pipeline_on(catalog, ledger.servers, ledger.topic, {}))
        with pipeline.start() as running:
            running.wait_until_committed(ledger.count)
            [data] = warehouse.rglob("data")
            kept = data.rename(data.with_name("kept"))
            data.write_text("no folder")
            one = refusals(running, ledger, "File exists")[-1]
            assert one["where"].startswith(str(data))
            assert one["remedy"].startswith("let this user write to the folder")
            assert running.events_named("crashing_record_search_started") == []
            data.unlink()
            kept.rename(data)
            running.wait_until_committed(ledger.count)
            running.stop()
    finally:
        catalog.kill()
