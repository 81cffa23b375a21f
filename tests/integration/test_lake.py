"""A REST catalog with an S3 store, so that nothing is local by accident: exactly once, through outages and a store that
says nothing, no secrets, and credentials of the file's or of the catalog's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from frazil.clock import new_id
from frazil.failpoints import VARIABLE
from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.points import Point, Points
from tests.fixtures.processes import frozen
from tests.fixtures.store_proxy import StoreProxy
from tests.integration.pipelines import Ledger, Pipeline, Running
from tests.integration.servers import ObjectStore, Relay, RestCatalogServer, assert_whole, pipeline_on

# So that a test need not wait for as long as a user may have to.
IMPATIENT = {"http-client.apache.socket-timeout-ms": "2000", "s3.retry.num-retries": "0"}
NAMED_WITHIN_S = 60.0


@contextmanager
def started(catalog: RestCatalogServer) -> Iterator[RestCatalogServer]:
    """Killed after the block."""
    catalog.start()
    try:
        yield catalog
    finally:
        catalog.kill()


@contextmanager
def relay(port: int) -> Iterator[Relay]:
    """Cut before the block and after it."""
    way = Relay(port)
    try:
        yield way
    finally:
        way.cut()


def be_silent(way: Relay, running: Running, pipeline: Pipeline, ledger: Ledger, point: Point) -> None:
    """The store takes connections and reports nothing: it is named by a task and by `check`, and waited out, in the middle
    of a commit, too.
    """

    def times() -> int:
        return len(running.events_named("table_backing_off"))

    before = times()
    with way.silent():
        ledger.produce(300)
        reported = running.wait_for("table_backing_off", before + 1, NAMED_WITHIN_S)[-1]
        assert "a task failed" in reported["reason"]
        [problem] = [check for check in pipeline.checks() if not check["ok"]]
        assert problem["name"] == "store"
        assert problem["where"] in problem["tried"]
        assert "the store cannot be reached" in problem["found"]
    running.wait_until_committed(ledger.count - 1000)
    with point.armed():
        ledger.produce(300)
        point.wait_for_all(1, NAMED_WITHIN_S)
        before = times()
        with way.silent():
            point.disarm()
            running.wait_for("table_backing_off", before + 1, NAMED_WITHIN_S)
    running.wait_until_committed(ledger.count - 1000)


def go_away(catalog: RestCatalogServer, way: Relay, running: Running, ledger: Ledger) -> None:
    """Both, one after the other, in the middle."""
    for leave, come_back in ((catalog.kill, catalog.start), (way.cut, way.join)):
        backed_off = len(running.events_named("table_backing_off"))
        leave()
        ledger.produce(500)
        running.wait_for("table_backing_off", backed_off + 1)
        come_back()
        running.wait_until_committed(ledger.count - 1000)


def assert_nothing_is_shown(store: ObjectStore, pipeline: Pipeline) -> None:
    """No secret is in what was reported or written."""
    metadata = list(store.texts(".metadata.json"))
    assert metadata
    for text in (pipeline.reported, pipeline.state_text, *metadata):
        assert text
        assert store.secret not in text
        assert store.key not in text


def test_records_reach_s3_once_through_a_kill_and_outages_and_no_secret_is_shown(
    broker: EmbeddedBroker, store: ObjectStore, tmp_path: Path
) -> None:
    """The first run dies when its commit has landed, before the catalog's answer counts for anything. Of the second, which
    has the credentials that the catalog hands out, both are away at the start; then one after the other goes away in the
    middle, and the store falls silent. The verifier sees every row in it.
    """
    ledger = Ledger(broker.bootstrap_servers, new_id())
    warehouse, words = "s3://lake/outages", ("--debug", "--log-level", "debug")
    # As a store of one's own is written first: without its region.
    references = {name: value for name, value in store.references().items() if name != "client.region"}
    ledger.produce(1000)
    with started(RestCatalogServer(tmp_path / "catalog", warehouse, store.properties())) as catalog:
        spec = pipeline_on(catalog, ledger.servers, ledger.topic, references)
        dying = Pipeline(tmp_path / "run", spec, {**store.environment(), VARIABLE: "commit.landed=kill"})
        with dying.start("--until-caught-up", *words) as running:
            running.wait_for_death()
    ledger.produce(1000)
    with closing(StoreProxy(store.port)) as proxy, relay(proxy.port) as way:
        vending = {**store.properties(), "include-credentials": "true"}
        catalog = RestCatalogServer(tmp_path / "catalog", warehouse, vending)
        own = {name: value for name, value in store.references(way.port).items() if "key" not in name} | IMPATIENT
        points = Points(tmp_path / "points", ("commit.before", "hold"))
        spec = pipeline_on(catalog, ledger.servers, ledger.topic, own)
        pipeline = Pipeline(tmp_path / "run", spec, {VARIABLE: points.declaration})
        try:
            with pipeline.start(*words) as running:
                assert running.wait_for("service_unavailable")[0]["where"] == catalog.url
                catalog.start()
                assert "lake" in running.wait_for("table_backing_off")[0]["reason"]
                way.join()
                running.wait_until_committed(1000)
                go_away(catalog, way, running, ledger)
                be_silent(way, running, pipeline, ledger, points["commit.before", "hold"])
                running.stop()
            assert_whole(catalog, ledger, store.properties())
            with pytest.raises(AssertionError, match=r"invented 1 .*read by PyIceberg"):
                assert_whole(catalog, ledger, store.properties(), but=max(ledger.records))
        finally:
            catalog.kill()
    assert {one.access_key for one in proxy.requests if one.path.endswith(".parquet")} == {store.key}
    assert_nothing_is_shown(store, pipeline)


@pytest.mark.slow
def test_a_catalog_that_answers_no_request_is_named_and_waited_for(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """At the start, by `check`, and in the middle. Its tables are local files. In time: a catalog that refuses connections
    is waited out in the test above. One that hangs, under other tables, is in tests/acceptance/test_hanging_services.py.
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
