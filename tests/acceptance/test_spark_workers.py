"""SIGKILL of what runs tasks on a cluster, while a task is in the middle of its file: the task is run again elsewhere."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import pytest

from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.points import Point, Points
from tests.acceptance.running import Run, ancestor
from tests.fixtures.jvms import QUICK_JVM
from tests.fixtures.waiting import wait_until
from tests.integration.cluster import Cluster

pytestmark = pytest.mark.timeout(900)

GENERATIONS = {"python": 0, "daemon": 1, "executor": 2, "worker": 3}
"""How far above the Python that runs the task. The worker comes last: it takes its executor along, and one is left."""
IN_TIME = ("python", "daemon", "worker")
"""An executor that is killed alone: tests/integration/test_cluster.py."""


@pytest.mark.parametrize(
    "victims", [pytest.param(IN_TIME, id="in time"), pytest.param(tuple(GENERATIONS), id="all", marks=pytest.mark.soak)]
)
def test_tasks_whose_processes_are_killed_are_run_again(
    victims: Sequence[str], cluster: Cluster, pipeline: Pipeline
) -> None:
    points = Points(pipeline.folder / "points", ("task.write", "hold"))
    point = points["task.write", "hold"]
    table, topic = pipeline.add_fed_table("moved")
    conf = {
        **pipeline.document["spark"]["conf"],
        "spark.pyspark.python": str(cluster.python),
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.executorEnv.FRAZIL_FAILPOINTS": points.declaration,
    }
    pipeline.document["spark"] = {"master": cluster.url, "conf": conf}
    pipeline.feed.produce(topic, events(200))
    with pipeline.running() as run:
        pipeline.wait_for_commit_of(table, run)
        for number, name in enumerate(victims, 1):
            with point.armed():
                pipeline.feed.produce(topic, events(200, number * 200))
                os.kill(_victim(run, point, GENERATIONS[name]), signal.SIGKILL)
            pipeline.wait_for_commit_of(table, run)
        assert run.stop() == 0, run.tail()
    pipeline.check(table)


def _victim(run: Run, point: Point, generations: int) -> int:
    def whole() -> int | None:
        victim = ancestor(point.wait(run), generations)
        if victim is None:  # An orphan of the executor that was killed before.
            point.another()
        return victim

    return wait_until(whole, "a task of a whole executor is held")
