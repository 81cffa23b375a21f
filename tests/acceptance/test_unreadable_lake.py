"""Runs whose lake cannot be read, with a catalog on SQLite and a store that refuses or fails: each names the reason within
seconds, continues by itself, and ends in time where it is to catch up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.fixtures.store_proxy import Fault, StoreProxy
from tests.integration.pipelines import Ledger, Pipeline
from tests.integration.servers import ObjectStore

pytestmark = [pytest.mark.jvm, pytest.mark.slow]
# A start included; Iceberg's own tries take longer.
REPORTED_WITHIN_S = 60.0


@pytest.fixture
def ledger(broker: EmbeddedBroker) -> Ledger:
    made = Ledger(broker.bootstrap_servers, new_id())
    made.produce(10)
    return made


@pytest.fixture
def proxy(store: ObjectStore) -> Iterator[StoreProxy]:
    with closing(StoreProxy(store.port)) as running:
        yield running


def filled(ledger: Ledger, store: ObjectStore, proxy: StoreProxy, folder: Path) -> Pipeline:
    """A pipeline whose table has what was produced."""
    catalog = {
        "uri": f"jdbc:sqlite:{folder}/catalog.db",
        "warehouse": f"s3://lake/{ledger.topic}",
        "properties": store.references(proxy.port),
    }
    document = {
        "pipeline": "p",
        "kafka": {"bootstrap.servers": ledger.servers},
        "catalog": catalog,
        "tables": {"n.t": {"topic": ledger.topic, "commit": {"interval": "200ms"}}},
    }
    pipeline = Pipeline(folder / "run", document, store.environment())
    pipeline.run()
    return pipeline


def test_a_run_names_a_store_that_refuses_its_secret_and_continues_when_it_does_not(
    ledger: Ledger, store: ObjectStore, proxy: StoreProxy, tmp_path: Path
) -> None:
    pipeline, began = filled(ledger, store, proxy, tmp_path), time.monotonic()
    proxy.always = "wrong key"
    with pipeline.start() as running:
        backed_off = running.wait_for("table_backing_off", within_s=REPORTED_WITHIN_S)[0]
        assert time.monotonic() - began < REPORTED_WITHIN_S
        assert "metadata.json cannot be read: The request signature we calculated" in backed_off["reason"]
        assert backed_off["remedy"].startswith("check the credentials under `catalog.properties`")
        proxy.always = None
        ledger.produce(5)
        running.wait_until_committed(5)
        proxy.always = "503"
        ledger.produce(5)
        time.sleep(3.0)
        proxy.always = None
        running.wait_until_committed(10)
        running.stop()


@pytest.mark.parametrize(("fault", "words"), [("no bucket", "bucket does not exist"), ("cut before", "cannot be read")])
def test_a_run_that_is_to_catch_up_ends_in_time_with_the_reason(
    ledger: Ledger, store: ObjectStore, proxy: StoreProxy, tmp_path: Path, fault: Fault, words: str
) -> None:
    pipeline = filled(ledger, store, proxy, tmp_path)
    proxy.always = fault
    done, answer = pipeline.command("run", "--until-caught-up", "--timeout", "20s")
    assert done.returncode == 1, answer
    assert answer["error"]["message"].startswith("not caught up after waiting for 20s: table n.t: ")
    assert words in answer["error"]["message"]
    proxy.always = None
    assert pipeline.run()["tables"].keys() == {"n.t"}
