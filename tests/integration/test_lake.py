"""A REST catalog with an S3 store, so that nothing is local by accident: exactly once, through outages, no secrets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.clock import new_id
from frazil.failpoints import VARIABLE
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.connect import catalog_properties
from frazil.spec import load_spec
from tests.fixtures.jvms import light_jvm
from tests.fixtures.processes import frozen
from tests.integration.pipelines import Ledger, Pipeline
from tests.integration.servers import ObjectStore, Relay, RestCatalogServer, assert_whole, pipeline_on, table_of


@pytest.fixture
def way(store: ObjectStore) -> Iterator[Relay]:
    relay = Relay(store.port)
    yield relay
    relay.cut()


def test_records_reach_s3_once_though_the_process_is_killed_in_a_commit_and_no_secret_is_shown(
    broker: EmbeddedBroker, store: ObjectStore, catalog: RestCatalogServer, tmp_path: Path
) -> None:
    """The first run dies when its commit has landed, before the catalog's answer counts for anything."""
    ledger = Ledger(broker.bootstrap_servers, new_id())
    # As a store of one's own is written first: without its region.
    references = {name: value for name, value in store.references().items() if name != "client.region"}
    spec = pipeline_on(catalog, ledger.servers, ledger.topic, references)
    words = ("--debug", "--log-level", "debug")
    ledger.produce(3000)
    dying = Pipeline(tmp_path, spec, {**store.environment(), VARIABLE: "commit.landed=kill"})
    with dying.start("--until-caught-up", *words) as running:
        running.wait_for_death()
    ledger.produce(2000)
    pipeline = Pipeline(tmp_path, spec, store.environment())
    pipeline.run(*words)
    assert_whole(catalog, ledger, store.properties())
    metadata = list(store.texts(".metadata.json"))
    assert metadata
    for text in (pipeline.reported, pipeline.state_text, *metadata):
        assert text
        assert store.secret not in text
        assert store.key not in text


@pytest.mark.slow
def test_a_catalog_that_takes_connections_and_reports_nothing_is_named_and_waited_out(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """At the start, by `check`, and in the middle. Its tables are local files. A catalog that refuses connections is waited
    out in the next test; one that hangs, under other tables, in tests/acceptance/test_hanging_services.py.
    """
    ledger = Ledger(broker.bootstrap_servers, new_id())
    ledger.produce(1000)
    catalog = RestCatalogServer(tmp_path / "catalog", str(tmp_path / "warehouse"))
    catalog.start()
    patience = {"rest.client.socket-timeout-ms": "5000"}
    pipeline = Pipeline(tmp_path / "run", pipeline_on(catalog, ledger.servers, ledger.topic, patience))
    try:
        with ExitStack() as stack:
            with frozen(catalog.pid):
                running = stack.enter_context(pipeline.start())
                reported = running.wait_for("service_unavailable")[0]
                assert (reported["where"], "timed out" in reported["reason"]) == (catalog.url, True)
                [problem] = [check for check in pipeline.checks() if not check["ok"]]
                assert (problem["name"], problem["where"]) == ("catalog", catalog.url)
                assert "timed out" in problem["found"]
            running.wait_until_committed(ledger.count)
            backed_off = len(running.events_named("table_backing_off"))
            with frozen(catalog.pid):
                ledger.produce(1000)
                assert "timed out" in running.wait_for("table_backing_off", backed_off + 1)[-1]["reason"]
            running.wait_until_committed(ledger.count)
            running.stop()
        assert_whole(catalog, ledger, {})
    finally:
        catalog.kill()


def test_outages_of_catalog_and_store_are_named_and_waited_out(
    broker: EmbeddedBroker, store: ObjectStore, way: Relay, tmp_path: Path
) -> None:
    """Both are away at the start; then one after the other goes away in the middle."""
    ledger = Ledger(broker.bootstrap_servers, new_id())
    ledger.produce(2000)
    catalog = RestCatalogServer(tmp_path / "catalog", "s3://lake/outages", store.properties())
    document = pipeline_on(catalog, ledger.servers, ledger.topic, store.references(way.port))
    pipeline = Pipeline(tmp_path / "run", document, store.environment())
    try:
        with pipeline.start("--log-level", "debug") as running:
            assert running.wait_for("service_unavailable")[0]["where"] == catalog.url
            catalog.start()
            assert "lake" in running.wait_for("table_backing_off")[0]["reason"]
            way.join()
            running.wait_until_committed(ledger.count)
            for go_away, come_back in ((catalog.kill, catalog.start), (way.cut, way.join)):
                backed_off = len(running.events_named("table_backing_off"))
                go_away()
                ledger.produce(2000)
                running.wait_for("table_backing_off", backed_off + 1)
                come_back()
                running.wait_until_committed(ledger.count)
            running.stop()
        assert_whole(catalog, ledger, store.properties())
    finally:
        catalog.kill()
    assert store.secret not in pipeline.reported + pipeline.state_text


def test_credentials_that_the_catalog_hands_out_reach_the_tasks(
    broker: EmbeddedBroker, store: ObjectStore, tmp_path: Path
) -> None:
    ledger = Ledger(broker.bootstrap_servers, new_id())
    ledger.produce(1000)
    vending = {**store.properties(), "include-credentials": "true"}
    catalog = RestCatalogServer(tmp_path / "catalog", "s3://lake/vended", vending)
    own = {name: value for name, value in store.properties().items() if "key" not in name}
    catalog.start()
    try:
        pipeline = Pipeline(tmp_path / "run", pipeline_on(catalog, ledger.servers, ledger.topic, own))
        pipeline.run("--debug", "--log-level", "debug")
        assert_whole(catalog, ledger, store.properties())
        spec = load_spec(pipeline.file)
        with light_jvm(needs_s3=True) as jvm:
            state = IcebergCatalog(jvm.gateway, spec.pipeline, catalog_properties(spec), {}).load(
                table_of(ledger.topic)
            )
    finally:
        catalog.kill()
    assert state is not None
    assert state.io_properties["s3.access-key-id"] == store.key
    assert state.io_properties["s3.secret-access-key"] == store.secret
    assert store.secret not in pipeline.reported + pipeline.state_text
