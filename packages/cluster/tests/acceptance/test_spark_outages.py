"""A standalone cluster whose master and workers are killed, restarted and stopped under `frazil run`: every record becomes
one row, in an application that Frazil starts by itself, and the wait is shown with its cause.

In time: a master and a worker that are killed, here; when an application counts as lost,
packages/cluster/tests/unit/test_application_watch.py.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.running import A_FEW_SECONDS, Event, Run
from tests.fixtures.jvms import QUICK_JVM
from tests.fixtures.waiting import wait_until
from tests.integration.cluster import MASTER, PROTECTED, Cluster
from tests.integration.servers import HOST, free_port

pytestmark = [pytest.mark.timeout(900)]

FEW = 1000


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A master and a worker."""
    running = Cluster(tmp_path / "cluster", workers=1)
    monkeypatch.setenv("SPARK_SECRET", running.secret)
    try:
        running.start()
        yield running
    finally:
        running.kill()


def test_a_cluster_that_is_restarted_is_used_again(cluster: Cluster, pipeline: Pipeline) -> None:
    table, topic = pipeline.add_fed_table("moved", 4)
    with on(cluster, pipeline) as run:
        produce(pipeline, topic, 0)
        pipeline.wait_for_commit_of(table, run)
        produce(pipeline, topic, 1)  # In hand, or about to be, when the cluster dies.
        cluster.kill_hard(MASTER, *cluster.workers)
        lost = run.wait_for("spark_application_lost", within_s=30)
        assert (lost["where"], lost["reason"]) == (cluster.url, "no Spark master answers: connection refused")
        produce(pipeline, topic, 2)
        run.wait_for("table_backing_off", table=table, where=cluster.url)
        assert_shown(pipeline, run, table, cluster.url, "start the master, or correct `spark.master`")
        cluster.start_master()
        cluster.start_workers()
        pipeline.wait_for_commit_of(table, run)
        assert run.stop() == 0, run.tail()
        assert_plain(run)
    pipeline.check(table)


@pytest.mark.slow
def test_a_master_that_is_restarted_under_its_workers_costs_no_row(cluster: Cluster, pipeline: Pipeline) -> None:
    table, topic = pipeline.add_fed_table("moved", 4)
    with on(cluster, pipeline) as run:
        produce(pipeline, topic, 0)
        pipeline.wait_for_commit_of(table, run)
        cluster.kill_hard(MASTER)
        produce(pipeline, topic, 1)
        pipeline.wait_for_commit_of(table, run)  # Executors that are there work on.
        cluster.start_master()
        run.wait_for("spark_application_lost", reason="the Spark master no longer knows the application")
        run.wait_for("spark_session_started", count=2)
        produce(pipeline, topic, 2)
        pipeline.wait_for_commit_of(table, run)
        assert run.stop() == 0, run.tail()
        assert_plain(run)
    pipeline.check(table)


@pytest.mark.slow
def test_workers_that_are_gone_for_a_while_are_named_and_used_again(cluster: Cluster, pipeline: Pipeline) -> None:
    table, topic = pipeline.add_fed_table("moved", 4)
    with on(cluster, pipeline) as run:
        produce(pipeline, topic, 0)
        pipeline.wait_for_commit_of(table, run)
        cluster.kill_hard(*cluster.workers)
        produce(pipeline, topic, 1)
        run.wait_for("spark_executors_missing", where=cluster.url, within_s=120)
        assert_shown(pipeline, run, table, cluster.url, "start workers, or free cores and memory of those that run")
        cluster.start_workers()
        run.wait_for("spark_executors_available_again")
        pipeline.wait_for_commit_of(table, run)
        produce(pipeline, topic, 2)
        cluster.kill_hard(*cluster.workers)  # A worker alone, which is back before anybody misses it.
        cluster.start_workers()
        pipeline.wait_for_commit_of(table, run)
        assert run.stop() == 0, run.tail()
        assert_plain(run)
        assert run.seen("spark_application_lost") == []
    pipeline.check(table)


@pytest.mark.slow
def test_a_run_is_stopped_within_its_grace_while_the_cluster_is_gone(cluster: Cluster, pipeline: Pipeline) -> None:
    table, topic = pipeline.add_fed_table("moved", 4)
    with on(cluster, pipeline) as run:
        produce(pipeline, topic, 0)
        pipeline.wait_for_commit_of(table, run)
        cluster.kill_hard(MASTER, *cluster.workers)
        produce(pipeline, topic, 1)
        assert run.stop() == 0, run.tail()
        assert_plain(run)
        assert table in run.result()["tables"]
    cluster.start_master()
    cluster.start_workers()
    with on(cluster, pipeline, "--grace", "100ms") as run:
        pipeline.wait_for_commit_of(table, run)
        cluster.kill_hard(MASTER, *cluster.workers)
        produce(pipeline, topic, 2)
        pipeline.wait_for_state(run, table, "running")
        assert run.stop() == 0, run.tail()
        assert run.seen("grace_period_exceeded")
        assert stack_traces(run) == []
        assert table in run.result()["tables"]
    cluster.start_master()
    cluster.start_workers()
    with on(cluster, pipeline, "--until-caught-up") as run:
        assert run.wait() == 0, run.tail()
    pipeline.check(table)


def test_a_master_that_is_not_there_is_named_in_a_sentence_and_within_the_timeout(pipeline: Pipeline) -> None:
    table, topic = pipeline.add_fed_table("moved", 4)
    url = f"spark://{HOST}:{free_port()}"
    pipeline.document["spark"]["master"] = url
    produce(pipeline, topic, 0)
    checked = pipeline.command("check", expected=1)["checks"]
    (master,) = [one for one in checked if one["name"] == "spark master"]
    remedy = "start the master, or correct `spark.master`"
    message = "no Spark master answers: connection refused"
    assert (master["ok"], master["found"], master["remedy"], master["where"]) == (False, message, remedy, url)
    # The limit is for what executors are sent, too: it is packed before, as by the run, while this process may have used
    # packages that would be sent with it.
    subprocess.run([sys.executable, "-c", "from frazil_cluster import ship; ship.ship_settings({}, '')"], check=True)
    with pipeline.running("--until-caught-up", "--timeout", "5s") as run:
        assert run.wait() == 1, run.tail()
        error = run.result()["error"]
        began, *_, ended = run.events
        assert_plain(run)
    waited = "not caught up after waiting for 5s"
    assert (error["message"], error["where"]) == (f"{waited}: table {table}: {message}", url)
    assert error["remedy"].startswith(remedy)
    assert seconds(ended) - seconds(began) < A_FEW_SECONDS


def test_a_property_that_spark_cannot_use_is_named_without_a_stack_trace(pipeline: Pipeline) -> None:
    table, topic = pipeline.add_fed_table("moved", 4)
    conf = pipeline.document["spark"]["conf"]
    produce(pipeline, topic, 0)
    conf["spark.network.timeout"] = "20s"
    with pipeline.running("--until-caught-up", "--timeout", "3s") as run:
        assert run.wait() == 1, run.tail()
        assert_plain(run)
        error = run.result()["error"]
    assert "Spark does not start a session: " in error["message"]
    assert "spark.network.timeoutInterval should be less than or equal to spark.network.timeout" in error["message"]
    assert error["remedy"].startswith("correct the property under `spark.conf`")
    del conf["spark.network.timeout"]
    pipeline.catch_up()
    pipeline.check(table)


def seconds(event: Event) -> float:
    """The time of an event of the log."""
    return datetime.fromisoformat(event["timestamp"]).timestamp()


def assert_shown(pipeline: Pipeline, run: Run, table: str, where: str, remedy: str) -> None:
    """`status` shows that the table waits, and for what, whenever no attempt is under way."""
    shown = pipeline.wait_for_state(run, table, "backing off")
    assert (shown["where"], shown["remedy"].partition(";")[0]) == (where, remedy)
    wait_until(lambda: pipeline.attempt("status") == 4, "status tells that it waits")


@contextmanager
def on(cluster: Cluster, pipeline: Pipeline, *words: str, **settings: str) -> Iterator[Run]:
    """The pipeline, run on the cluster. settings: further properties of Spark."""
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
    with pipeline.running(*words) as run:
        yield run


def produce(pipeline: Pipeline, topic: str, number: int) -> None:
    """Produces so many records for the time of this number."""
    pipeline.feed.produce(topic, events(FEW, number * FEW))


def assert_plain(run: Run) -> None:
    """Nothing that was logged is a stack trace, or an error of Frazil's own."""
    assert stack_traces(run) == []
    assert run.seen("unexpected_error") == run.seen("grace_period_exceeded") == []


def stack_traces(run: Run) -> list[str]:
    """The lines that belong to one, of Python or Java."""
    return [line for line in run.lines if "Traceback" in line or line.lstrip().startswith("at ")]
