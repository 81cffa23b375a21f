"""Loads of tables whose metadata files a store refuses to hand out, for a moment or for longer, through a real client of S3:
the reason is known within seconds, also to several threads at once, and no Java thread is left behind.

Runs: acceptance/test_unreadable_lake.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from pathlib import Path
from threading import Timer

import pytest
import yaml

from frazil.catalog.iceberg import loads
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.commits import Refresh
from frazil.catalog.port import TableState
from frazil.clock import new_id
from frazil.errors import UnavailableError
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.light_jvm import LightJvm
from frazil.schema.evolve import new_schema
from tests.fixtures.in_process import ended_on
from tests.fixtures.jvms import light_jvm
from tests.fixtures.store_proxy import Fault, StoreProxy
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Ledger
from tests.integration.servers import ObjectStore, Relay

pytestmark = pytest.mark.jvm
S3 = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}
TABLES = [f"n.t{number}" for number in range(6)]
WITHIN_S = 10.0


@pytest.fixture(scope="module")
def jvm() -> Iterator[LightJvm]:
    with light_jvm(needs_s3=True) as running:
        yield running


@pytest.fixture(scope="module")
def properties(jvm: LightJvm, store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Those of a catalog with six tables."""
    folder = tmp_path_factory.mktemp("catalog")
    database = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder / 'catalog.db'}", "jdbc.schema-version": "V1"}
    named = {**store.properties(), **S3, **database, "warehouse": f"s3://lake/{folder.name}"}
    writing = IcebergCatalog(jvm.gateway, "p", named, {})
    for table in TABLES:
        writing.create(table, new_schema([]), {}, 2)
    return named


@pytest.fixture
def proxy(store: ObjectStore) -> Iterator[StoreProxy]:
    with closing(StoreProxy(store.port)) as running:
        yield running


def load_at_once(catalog: IcebergCatalog) -> list[Future[TableState | None]]:
    """Loads every table, each in a thread of its own."""
    with ThreadPoolExecutor(len(TABLES)) as threads:
        begun = [threads.submit(catalog.load, table) for table in TABLES]
        wait(begun)
    return begun


def java_threads(jvm: LightJvm) -> set[str]:
    """The names of the Java threads that load tables."""
    everything = jvm.gateway.jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()
    return {name for thread in everything if (name := str(thread.getName())).startswith("frazil-load-")}


@pytest.mark.parametrize(
    ("fault", "words", "remedy"),
    [
        ("wrong key", "request signature we calculated does not match", "check the credentials under"),
        ("no bucket", "specified bucket does not exist", "create the bucket, or correct `catalog.warehouse`"),
    ],
)
def test_several_threads_learn_within_seconds_why_their_tables_cannot_be_read(
    jvm: LightJvm, properties: Mapping[str, str], proxy: StoreProxy, fault: Fault, words: str, remedy: str
) -> None:
    before, proxy.always = java_threads(jvm), fault
    catalog = IcebergCatalog(jvm.gateway, "p", {**properties, "s3.endpoint": proxy.url}, {})
    began = time.monotonic()
    errors = [load.exception() for load in load_at_once(catalog)]
    assert time.monotonic() - began < WITHIN_S
    for table, error in zip(TABLES, errors, strict=True):
        assert isinstance(error, UnavailableError), error
        assert (error.where, error.remedy.startswith(remedy)) == (table, True), error
        assert f"/{table.replace('.', '/')}/metadata/" in error.message
        assert words in error.message
    wait_until(lambda: java_threads(jvm) <= before, lambda: str(java_threads(jvm)), WITHIN_S)
    proxy.always = None
    assert [state.name for load in load_at_once(catalog) if (state := load.result())] == TABLES


def test_a_table_whose_commit_is_looked_up_is_refreshed_within_seconds(
    jvm: LightJvm, properties: Mapping[str, str], proxy: StoreProxy
) -> None:
    """As after a commit without an answer, and before a compaction is committed."""
    catalog = IcebergCatalog(jvm.gateway, "p", {**properties, "s3.endpoint": proxy.url}, {})
    java = catalog.java_table(TABLES[2])
    writing = IcebergCatalog(jvm.gateway, "p", properties, {})
    assert writing.load(TABLES[2]) is not None
    writing.mark(TABLES[2], "number", "7")
    refresh, proxy.always = catalog.refresher(TABLES[2], java), "wrong key"
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="request signature we calculated does not match"):
        refresh()
    assert time.monotonic() - began < WITHIN_S
    proxy.always = None
    wait_until(lambda: is_refreshed(refresh), "the table is refreshed", WITHIN_S)
    assert java.properties().get("frazil.p.number") == "7"


def is_refreshed(refresh: Refresh) -> bool:
    """Whether the table is; the last thread that tried may not have ended yet."""
    with suppress(UnavailableError):
        refresh()
        return True
    return False


@pytest.mark.parametrize("command", ["plan", "status", "maintain --dry-run", "verify"])
def test_commands_report_within_seconds_why_a_table_cannot_be_read(
    jvm: LightJvm,
    properties: Mapping[str, str],
    store: ObjectStore,
    proxy: StoreProxy,
    broker: EmbeddedBroker,
    tmp_path: Path,
    command: str,
) -> None:
    ledger = Ledger(broker.bootstrap_servers, new_id())
    catalog = {name: properties[name] for name in ("uri", "warehouse")}
    document = {
        "pipeline": "p",
        "kafka": {"bootstrap.servers": ledger.servers},
        "catalog": {**catalog, "properties": {**S3, **store.references(proxy.port)}},
        "tables": {TABLES[0]: {"topic": ledger.topic}},
    }
    file, proxy.always = tmp_path / "frazil.yaml", "wrong key"
    file.write_text(yaml.safe_dump(document))
    began = time.monotonic()
    code, answer = ended_on(jvm, file, store.environment(), *command.split())
    assert time.monotonic() - began < 2 * WITHIN_S
    assert code in (1, 4), answer
    assert "metadata.json cannot be read: The request signature we calculated does not match" in json.dumps(answer)


def test_a_store_that_is_overloaded_for_three_seconds_delays_a_load_and_fails_none(
    jvm: LightJvm, properties: Mapping[str, str], proxy: StoreProxy
) -> None:
    catalog = IcebergCatalog(jvm.gateway, "p", {**properties, "s3.endpoint": proxy.url}, {})
    proxy.always = "503"
    recovery = Timer(3.0, lambda: setattr(proxy, "always", None))
    recovery.start()
    assert catalog.load(TABLES[0]) is not None
    assert proxy.faults["503"] > 1
    recovery.join()


def test_a_store_that_is_stopped_is_named_until_it_comes_back(
    jvm: LightJvm, properties: Mapping[str, str], store: ObjectStore
) -> None:
    way = Relay(store.port)
    way.join()
    catalog = IcebergCatalog(jvm.gateway, "p", {**properties, "s3.endpoint": f"http://127.0.0.1:{way.port}"}, {})
    with way.away():
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(UnavailableError, match=r"metadata\.json cannot be read: .*refused") as refused:
                catalog.load(TABLES[0])
            assert refused.value.remedy.startswith("check that the store is running at `s3.endpoint`")
            assert time.monotonic() - began < WITHIN_S
    assert catalog.load(TABLES[0]) is not None
    way.cut()


def test_a_silent_store_holds_one_java_thread_of_a_table_however_often_it_is_loaded(
    jvm: LightJvm, properties: Mapping[str, str], store: ObjectStore
) -> None:
    way = Relay(store.port)
    way.join()
    silent = {"s3.retry.num-retries": "0", "http-client.apache.socket-timeout-ms": "4000"}
    own = {**properties, **silent, "s3.endpoint": f"http://127.0.0.1:{way.port}"}
    catalog, before = IcebergCatalog(jvm.gateway, "p", own, {}), java_threads(jvm)
    with way.silent():
        for _ in range(4):
            with pytest.raises(UnavailableError, match=r"metadata\.json cannot be read: .*timed out"):
                catalog.load(TABLES[0])
            assert len(java_threads(jvm) - before) <= 1
    way.sever()

    def is_loaded() -> bool:
        try:
            return catalog.load(TABLES[0]) is not None
        except UnavailableError:  # Its last thread has not ended.
            return False

    wait_until(is_loaded, "the table is loaded", 3 * WITHIN_S)
    way.cut()


def test_what_iceberg_logs_does_not_grow_with_the_number_of_commits(
    jvm: LightJvm, properties: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "_TAKEN_EVERY_S", 0.0)
    catalog = IcebergCatalog(jvm.gateway, "p", properties, {})
    text, lengths = catalog._loads._threads.log._text, list[int]()
    for number in range(12):
        catalog.load(TABLES[1])
        catalog.mark(TABLES[1], "number", str(number))
        lengths.append(int(text.length()))
    assert 0 < max(lengths) < 2 * min(lengths), lengths
