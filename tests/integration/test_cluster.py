"""A standalone cluster without Python packages, on a REST catalog and an S3 store: what runs there was shipped."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from frazil.clock import new_id
from frazil.failpoints import VARIABLE, reached
from frazil.runtime.broker import EmbeddedBroker
from tests.fixtures.waiting import wait_until
from tests.integration.cluster import Cluster
from tests.integration.pipelines import Ledger, Pipeline
from tests.integration.servers import ObjectStore, RestCatalogServer, assert_whole, pipeline_on


def on_cluster(document: dict[str, Any], cluster: Cluster, failpoints: str) -> dict[str, Any]:
    conf = {
        "spark.pyspark.python": str(cluster.python),
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        f"spark.executorEnv.{VARIABLE}": failpoints,
    }
    return {**document, "spark": {"master": cluster.url, "conf": conf}}


def test_records_arrive_once_though_an_executor_is_killed(
    broker: EmbeddedBroker, store: ObjectStore, catalog: RestCatalogServer, cluster: Cluster, tmp_path: Path
) -> None:
    ledger = Ledger(broker.bootstrap_servers, new_id(), partitions=4)
    document = pipeline_on(catalog, ledger.servers, ledger.topic, store.references())
    switch = tmp_path / "held"
    document = on_cluster(document, cluster, f"task.batch=hold@{switch}")
    pipeline = Pipeline(tmp_path, document, store.environment())
    ledger.produce(5000)
    with pipeline.start() as running:
        running.wait_for("batch_committed")
        switch.touch()
        ledger.produce(20_000)
        wait_until(reached(switch).exists, "a task has records")
        os.kill(cluster.executor_of(int(reached(switch).read_text())), signal.SIGKILL)
        switch.unlink()
        running.wait_until_committed(ledger.count)
        ledger.produce(5000)
        running.wait_until_committed(ledger.count)
        running.stop()
    assert_whole(catalog, ledger, store.properties())
    assert "Lost executor" in pipeline.said
    for text in (pipeline.said, cluster.output()):
        assert text
        assert store.secret not in text
