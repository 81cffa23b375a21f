"""`frazil verify` on a standalone cluster, whose workers make the copies and compare them.

In time: the same commands on this machine in integration/test_proofs.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from packages.verify.tests.integration.files import replace_rows
from tests.fixtures.jvms import QUICK_JVM
from tests.integration.cluster import PROTECTED, Cluster
from tests.integration.pipelines import Ledger, Pipeline

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600), pytest.mark.slow]
TABLE = "shop.orders"
COUNT = 500


def test_the_workers_of_a_cluster_make_the_copy_and_find_a_lost_row(broker: EmbeddedBroker, tmp_path: Path) -> None:
    cluster, ledger = Cluster(tmp_path / "cluster", workers=1), Ledger(broker.bootstrap_servers, new_id())
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    conf = {
        **PROTECTED,
        "spark.authenticate.secret": "${env:SPARK_SECRET}",
        "spark.pyspark.python": str(cluster.python),
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": QUICK_JVM,
    }
    document = {
        "pipeline": "shop",
        "kafka": {"bootstrap.servers": broker.bootstrap_servers},
        "spark": {"master": cluster.url, "conf": conf},
        "tables": {TABLE: {"topic": ledger.topic}},
    }
    pipeline = Pipeline(tmp_path / "pipeline", document, {"SPARK_SECRET": cluster.secret})
    ledger.produce(COUNT)
    cluster.start()
    try:
        pipeline.run()
        words = ("verify", "--scratch", str(scratch))
        done, printed = pipeline.command(*words)
        assert (done.returncode, printed["tables"][TABLE]["rows"]) == (0, COUNT), done.stderr
        assert len(list((tmp_path / "cluster").glob("work-*/app-*"))) == 2, "the copy was not made on the cluster"
        file = max(
            (pipeline.directory / "frazil-data" / "warehouse").rglob("data/**/*.parquet"),
            key=lambda path: path.stat().st_size,
        )
        rows = pq.ParquetFile(file).read()
        lost = rows.num_rows // 2
        replace_rows(file, rows.slice(lost))
        done, printed = pipeline.command(*words)
        table = printed["tables"][TABLE]
        assert (done.returncode, table.get("missing"), table.get("surplus")) == (4, lost, 0), (table, done.stderr)
        assert {json.loads(row)["number"] for row in table["missing_rows"]} <= {*rows["number"][:lost].to_pylist()}
        assert not [path for path in scratch.rglob("*") if path.is_file()], "files of the copies are left"
    finally:
        cluster.kill()
