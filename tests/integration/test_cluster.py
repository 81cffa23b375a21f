"""A standalone cluster without Python packages, on a REST catalog and an S3 store: what runs there was shipped."""

from __future__ import annotations

import os
import signal
import tarfile
from pathlib import Path
from typing import Any

from frazil.clock import new_id
from frazil.failpoints import VARIABLE, reached
from frazil.runtime import ship
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


def shipped_compiled() -> dict[str, bytes]:
    """The compiled functions that executors are sent, by where they lie in Frazil's code."""
    with tarfile.open(ship.code_archive()) as archive:
        members = {
            member.name: archive.extractfile(member) for member in archive if member.name.endswith((".nbi", ".nbc"))
        }
        return {name: file.read() for name, file in members.items() if file is not None}


def compiled_on(cluster: Cluster) -> list[dict[str, bytes]]:
    """Those that each executor has after it has run tasks: what it compiles itself, it keeps there too."""
    codes = [code for code in cluster.directory.glob("work-*/*/*/frazil-code") if any(code.rglob("task.*.pyc"))]
    return [{str(path.relative_to(code)): path.read_bytes() for path in code.rglob("*.nb[ic]")} for code in codes]


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
    compiled = shipped_compiled()
    assert compiled
    assert compiled_on(cluster) == [compiled] * len(compiled_on(cluster)) != []
    for text in (pipeline.said, cluster.output()):
        assert text
        assert store.secret not in text
