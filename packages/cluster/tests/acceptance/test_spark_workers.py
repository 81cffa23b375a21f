"""A cluster without Python packages, on a REST catalog and an S3 store: what runs there was shipped. SIGKILL of what runs
tasks, while a task is in the middle of its file: the task is run again elsewhere. In time: a Python worker in
tests/acceptance/test_kills.py, and what is shipped to a cluster in packages/cluster/tests/unit/test_ship.py.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from frazil.failpoints import VARIABLE
from frazil.runtime.broker import EmbeddedBroker
from frazil_cluster import ship
from tests.acceptance import test_processing as processing
from tests.acceptance.lakes import RemoteLake
from tests.acceptance.ledger import events
from tests.acceptance.pipelines import PLACE, Pipeline, opened
from tests.acceptance.points import Point, Points
from tests.acceptance.running import Run, ancestor
from tests.acceptance.standbys import Standbys
from tests.acceptance.verifier import open_table
from tests.fixtures.foreign_spark import ForeignSpark
from tests.fixtures.jvms import QUICK_JVM
from tests.fixtures.waiting import wait_until
from tests.integration.cluster import PROTECTED, Cluster

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]

GENERATIONS = {"python": 0, "daemon": 1, "executor": 2, "worker": 3}
"""How far above the Python that runs the task. The worker comes last: it takes its executor along, and one is left."""
AT_ONCE = 3000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A master and two workers."""
    running = Cluster(tmp_path / "cluster")
    try:
        running.start()
        yield running
    finally:
        running.kill()


@pytest.fixture
def pipeline(
    broker: EmbeddedBroker, remote_lake: RemoteLake, spark: ForeignSpark, tmp_path: Path
) -> Iterator[Pipeline]:
    """A pipeline whose tables are in the lake."""
    with opened(tmp_path / "pipeline", broker.bootstrap_servers, spark, remote_lake) as made:
        yield made


def test_tasks_whose_processes_are_killed_are_run_again(
    cluster: Cluster, pipeline: Pipeline, remote_lake: RemoteLake
) -> None:
    points = Points(pipeline.folder / "points", ("task.write", "hold"))
    point = points["task.write", "hold"]
    table, topic = pipeline.add_fed_table("moved", 4)
    _use(cluster, pipeline, {f"spark.executorEnv.{VARIABLE}": points.declaration})
    pipeline.feed.produce(topic, events(AT_ONCE))
    with pipeline.running(environment={"SPARK_SECRET": cluster.secret}) as run:
        pipeline.wait_for_commit_of(table, run)
        for number, generations in enumerate(GENERATIONS.values(), 1):
            with point.armed():
                pipeline.feed.produce(topic, events(AT_ONCE, number * AT_ONCE))
                os.kill(_victim(run, point, generations), signal.SIGKILL)
            pipeline.wait_for_commit_of(table, run)
        assert run.stop() == 0, run.tail()
    pipeline.check(table)
    compiled = _shipped_compiled()
    assert compiled
    assert _compiled_on(cluster) == [compiled] * len(_compiled_on(cluster)) != []
    reported = "\n".join(run.lines)
    assert "Lost executor" in reported
    for text in (reported, cluster.output()):
        assert text
        assert remote_lake.secret not in text
        assert cluster.secret not in text


@pytest.mark.slow
def test_a_standby_with_its_own_executors_takes_over_from_a_killed_driver(cluster: Cluster, pipeline: Pipeline) -> None:
    pair = Standbys(pipeline)
    _use(cluster, pipeline, {"spark.cores.max": "1"})
    secret = {"SPARK_SECRET": cluster.secret}
    pair.produce()
    leader = pair.start(environment=secret)
    pair.wait_for_commit(leader, 0)
    standby = pair.start(environment=secret)
    pair.wait_until_warm(2, leader)
    with pair.load():
        leader.kill()
        pair.wait_for_commit(standby, 0)
    pair.check()
    assert standby.stop() == 0, standby.tail()


def test_queries_on_a_cluster_make_the_rows_that_one_process_makes(
    cluster: Cluster, pipeline: Pipeline, broker: EmbeddedBroker, spark: ForeignSpark, tmp_path: Path
) -> None:
    modules, topic = tmp_path / "modules", pipeline.new_topic("processed", processing.PARTITIONS)
    modules.mkdir()
    (modules / "soak_functions.py").write_text(processing.FUNCTIONS)
    archive = shutil.make_archive(str(tmp_path / "functions"), "zip", modules)
    _process(pipeline, topic, tmp_path)
    for partition in range(processing.PARTITIONS):  # The changes of a country are in order.
        mine = [one for one in processing.records(0, 600) if one["n"] % 5 % processing.PARTITIONS == partition]
        pipeline.feed.produce(topic, mine, partition)
    # As docs/guides/process.md has it: executors have the module from an archive alone.
    _use(cluster, pipeline, {"spark.archives": f"{archive}#functions", "spark.executorEnv.PYTHONPATH": "functions"})
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, (str(modules), os.environ.get("PYTHONPATH"))))}
    with pipeline.running("--until-caught-up", environment={"SPARK_SECRET": cluster.secret, **paths}) as run:
        assert run.wait() == 0, run.tail()
    with opened(tmp_path / "alone", broker.bootstrap_servers, spark) as alone:
        _process(alone, topic, tmp_path)
        with alone.running("--until-caught-up", environment=paths) as run:
            assert run.wait() == 0, run.tail()
        expected = _processed(alone)
    assert _processed(pipeline) == expected
    refused = {f"{name}__dead_letters" for name in ("in_tasks", "in_spark")}
    assert {name for name, rows in expected.items() if rows} == {"in_tasks", "in_spark", "newest", *refused}


def _process(pipeline: Pipeline, topic: str, folder: Path) -> None:
    """Declares tables whose records Python functions, a look-up and Spark change."""
    (folder / "key").write_text("k" * 40)
    (folder / "countries.csv").write_text("code,name\nc0,Chile\nc1,Peru\nc2,Mali\nc3,Oman\n")
    for name, settings in processing.tables(folder).items():
        pipeline.add_table(name.removeprefix("p."), topic, **settings)


def _processed(pipeline: Pipeline) -> dict[str, Counter[str]]:
    """The rows of the tables, dead letters by place and class: their values are sealed, each time otherwise."""
    found: dict[str, Counter[str]] = {}
    for table in pipeline.document["tables"]:
        for name in (table, f"{table}__dead_letters"):
            metadata = pipeline.current(name)
            if metadata is None:
                continue
            rows = open_table(metadata).scan().to_arrow().to_pylist()
            if name != table:
                rows = [{part: row[part] for part in (*PLACE, "error_class", "path")} for row in rows]
            found[name.partition(".")[2]] = Counter(json.dumps(row, default=str, sort_keys=True) for row in rows)
    return found


def _use(cluster: Cluster, pipeline: Pipeline, settings: Mapping[str, str]) -> None:
    """Lets the pipeline run its tasks on the cluster."""
    conf = {
        **pipeline.document["spark"]["conf"],
        **PROTECTED,
        "spark.authenticate.secret": "${env:SPARK_SECRET}",
        "spark.pyspark.python": str(cluster.python),
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": QUICK_JVM,
        **settings,
    }
    pipeline.document["spark"] = {"master": cluster.url, "conf": conf}


def _shipped_compiled() -> dict[str, bytes]:
    """The compiled functions that executors are sent, by where they lie in Frazil's code."""
    with tarfile.open(ship.code_archive()) as archive:
        members = {
            member.name: archive.extractfile(member) for member in archive if member.name.endswith((".nbi", ".nbc"))
        }
        return {name: file.read() for name, file in members.items() if file is not None}


def _compiled_on(cluster: Cluster) -> list[dict[str, bytes]]:
    """Those that each executor has after it has run tasks: what it compiles itself, it keeps there too."""
    codes = [code for code in cluster.directory.glob("work-*/*/*/frazil-code") if any(code.rglob("task.*.pyc"))]
    return [{str(path.relative_to(code)): path.read_bytes() for path in code.rglob("*.nb[ic]")} for code in codes]


def _victim(run: Run, point: Point, generations: int) -> int:
    def whole() -> int | None:
        victim = ancestor(point.wait(run), generations)
        if victim is None:  # An orphan of the executor that was killed before.
            point.another()
        return victim

    return wait_until(whole, "a task of a whole executor is held")
