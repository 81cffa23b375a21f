"""`frazil init` on a real broker and registry: the file that it proposes passes every check."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from frazil.cli.main import main
from frazil.runtime.broker import EmbeddedBroker
from tests.fixtures.registry import ApicurioRegistry

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

_ROW = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "id", "type": "long"}, {"name": "total", "type": "double"}],
}
_CHANGE = {"op": "c", "before": None, "after": {"id": 1, "total": 1.5}, "source": {"db": "shop"}, "ts_ms": 1}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApicurioRegistry]:
    made = ApicurioRegistry(tmp_path_factory.mktemp("registry"))
    made.start()
    yield made
    made.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, registry: ApicurioRegistry) -> Iterator[EmbeddedBroker]:
    """A cluster of its own: every topic is looked at."""
    number = registry.register("orders-value", "AVRO", json.dumps(_ROW))
    framed = b"\0" + number.to_bytes(4, "big") + b"\x02" + b"\0" * 8
    records: dict[str, list[tuple[bytes | None, bytes | None]]] = {
        "clicks": [(None, json.dumps({"id": n, "page": f"/{n}"}).encode()) for n in range(30)],
        "orders": [(None, framed)] * 3,
        "shop.customers": [(b'{"id":1}', json.dumps(_CHANGE).encode()), (b'{"id":1}', None)],
        "connect-configs": [(b"k", b"{}")],
        "idle": [],
    }
    with EmbeddedBroker(tmp_path_factory.mktemp("cluster")) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        for made in admin.create_topics([NewTopic(name, 1) for name in records]).values():
            made.result(30)
        producer = Producer({"bootstrap.servers": running.bootstrap_servers, "enable.idempotence": True})
        for topic, pairs in records.items():
            for key, value in pairs:
                producer.produce(topic, value, key)
        producer.flush(30)
        yield running


def test_the_proposed_file_passes_every_check(
    cluster: EmbeddedBroker, registry: ApicurioRegistry, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    words = ["init", "--bootstrap-servers", cluster.bootstrap_servers, "--registry", registry.api, "--output", "json"]
    code = main([*words, "--warehouse", str(tmp_path / "warehouse")])
    document: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert (code, document["problems"]) == (0, [])
    written = (tmp_path / "frazil.yaml").read_text()
    assert written == document["pipeline_file"]
    assert yaml.safe_load(written)["tables"] == {
        "lake.clicks": {"topic": "clicks"},
        "lake.orders": {"topic": "orders", "value": {"format": "avro"}},
        "lake.shop_customers": {
            "topic": "shop.customers", "envelope": "debezium", "mode": "upsert", "key": {"format": "json"},
        },
    }  # fmt: skip
    assert "#   connect-configs: internal\n" in written
    assert "#   idle: no records to look at\n" in written
    assert main([*words]) == 1
    assert "not overwritten" in capfd.readouterr().out
    assert (tmp_path / "frazil.yaml").read_text() == written


def test_topics_that_need_a_registry_are_named_without_one(
    cluster: EmbeddedBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["init", "--bootstrap-servers", cluster.bootstrap_servers, "-f", "-"])
    printed = capfd.readouterr().out
    assert "orders: the values look like those of a schema registry: name it with --registry" in printed
    assert "lake.orders" not in yaml.safe_load(printed)["tables"]
    assert not (tmp_path / "frazil.yaml").exists()


def test_what_cannot_be_sampled_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 2
    assert "--bootstrap-servers" in capfd.readouterr().err
    assert main(["init", "--bootstrap-servers", "127.0.0.1:1"]) == 1
    assert "127.0.0.1:1" in capfd.readouterr().err
