"""A store that fails requests, and credentials that expire while a pipeline runs: nothing is lost or doubled."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from frazil.clock import SystemClock
from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.lakes import RemoteLake
from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline, opened
from tests.acceptance.proxy import Proxy
from tests.acceptance.running import Run
from tests.acceptance.soaking import soak_s
from tests.fixtures.foreign_spark import ForeignSpark
from tests.fixtures.store_proxy import EXPIRING, StoreProxy

pytestmark = pytest.mark.timeout(7200)

BATCH = 300
FAULTS_IN_TIME = 8
SOAK_S = 1200.0


class VendingCatalog(Proxy):
    """A REST catalog that vends credentials for `lifetime_s` with each table, in `storage-credentials` alone, as new
    servers do.
    """

    def __init__(self, port: int, lifetime_s: float) -> None:
        self._lifetime_s = lifetime_s
        super().__init__(port)

    def changed(self, content: bytes) -> bytes:
        """An answer that has a table, with new credentials."""
        document = json.loads(content) if content.startswith(b"{") else {}
        if "metadata-location" not in document:
            return content
        until_ms = int(SystemClock().now_ms() + self._lifetime_s * 1000)
        keys = {
            "s3.access-key-id": f"{EXPIRING}{until_ms}",
            "s3.secret-access-key": "vended-secret-key",
            "s3.session-token": "vended-session-token",
            "s3.session-token-expires-at-ms": str(until_ms),
        }
        wrong = {**keys, "s3.access-key-id": "AKOFASHORTERPREFIX"}
        credentials = [{"prefix": "s3://lake/warehouse", "config": keys}, {"prefix": "s3://lake", "config": wrong}]
        return json.dumps({**document, "storage-credentials": credentials}).encode()


@pytest.fixture
def pipeline(
    broker: EmbeddedBroker, spark: ForeignSpark, remote_lake: RemoteLake, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pipeline]:
    """Its tables are in the lake."""
    with opened(tmp_path_factory.mktemp("stores"), broker.bootstrap_servers, spark, remote_lake) as made:
        yield made


def _feed(pipeline: Pipeline, run: Run, table: str, topic: str, sent: int) -> int:
    """One more batch, committed."""
    pipeline.feed.produce(topic, events(BATCH, sent))
    pipeline.wait_for_commit_of(table, run)
    return sent + BATCH


def _fail_requests(pipeline: Pipeline, lake: RemoteLake, share: float, for_s: float) -> StoreProxy:
    """Requests of driver and tasks fail, so long and until enough have failed."""
    store = StoreProxy(lake.store_port, share, seed=1)
    pipeline.document["catalog"]["properties"] |= {"s3.endpoint": store.url, "s3.retry.min-wait-ms": "50"}
    table, topic = pipeline.add_fed_table("failing")
    clock, sent = SystemClock(), 0
    until_s = clock.monotonic_s() + for_s
    with pipeline.running() as run:
        while clock.monotonic_s() < until_s or store.faults.total() < FAULTS_IN_TIME:
            sent = _feed(pipeline, run, table, topic, sent)
        assert run.stop() == 0, run.tail()
    store.close()
    pipeline.check(table)
    return store


@pytest.mark.slow  # In time: a full disk in test_full_disk.py, an upload that fails in integration/test_stores.py.
def test_a_store_that_fails_requests_loses_and_doubles_nothing(pipeline: Pipeline, remote_lake: RemoteLake) -> None:
    store = _fail_requests(pipeline, remote_lake, share=0.2, for_s=0.0)
    assert len(store.faults) > 1


@pytest.mark.soak
def test_one_failed_request_in_twenty_loses_and_doubles_nothing(pipeline: Pipeline, remote_lake: RemoteLake) -> None:
    _fail_requests(pipeline, remote_lake, share=0.05, for_s=soak_s(300.0))


def _writers(store: StoreProxy) -> set[str]:
    """The access keys by which data files were written."""
    return {one.access_key for one in list(store.requests) if ".parquet" in one.path}


def _renew(
    pipeline: Pipeline, lake: RemoteLake, lifetime_s: float, for_s: float, pause_s: float = 0.0
) -> tuple[StoreProxy, Run]:
    """Runs with credentials that the store refuses once they have expired, so long and until they were renewed."""
    store, catalog = StoreProxy(lake.store_port), VendingCatalog(lake.port, lifetime_s)
    section = pipeline.document["catalog"]
    section["uri"] = catalog.url
    section["properties"] = {name: text for name, text in section["properties"].items() if "key" not in name}
    section["properties"]["s3.endpoint"] = store.url
    table, topic = pipeline.add_fed_table("vended")
    clock, sent = SystemClock(), 0
    until_s = clock.monotonic_s() + for_s
    with pipeline.running() as run:
        while clock.monotonic_s() < until_s or len(_writers(store)) < 2:
            sent = _feed(pipeline, run, table, topic, sent)
            clock.sleep(pause_s)
        assert run.stop() == 0, run.tail()
    catalog.close()
    store.close()
    pipeline.check(table)
    assert "vended-secret-key" not in run.tail()
    return store, run


def test_credentials_are_renewed_before_they_expire(pipeline: Pipeline, remote_lake: RemoteLake) -> None:
    store, _ = _renew(pipeline, remote_lake, lifetime_s=20.0, for_s=0.0, pause_s=4.0)
    keys = _writers(store)
    assert all(key.startswith(EXPIRING) for key in keys), "the credentials of the longest prefix are the right ones"


@pytest.mark.soak
def test_twenty_minutes_of_expiring_credentials_fail_no_batch(pipeline: Pipeline, remote_lake: RemoteLake) -> None:
    store, run = _renew(pipeline, remote_lake, lifetime_s=60.0, for_s=soak_s(SOAK_S), pause_s=2.0)
    assert store.faults.total() == 0
    assert not run.seen("table_backing_off")
