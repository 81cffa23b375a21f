"""A standalone master, asked without an application: what it has, and why it does not answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from frazil.errors import UnavailableError
from frazil.runtime.light_jvm import LightJvm
from frazil_cluster.check import check_master
from frazil_cluster.master import Worker, ask_master
from tests.fixtures.processes import frozen
from tests.integration.cluster import MASTER, PROTECTED, Cluster
from tests.integration.servers import HOST, free_port

pytestmark = pytest.mark.timeout(300)

SMALL = {"spark.executor.memory": "512m", "spark.executor.cores": "1"}


@pytest.fixture(scope="module")
def jvm() -> Iterator[LightJvm]:
    """With Spark's classes."""
    made = LightJvm({}, needs_spark_jars=True)
    yield made
    made.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers."""
    running = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        running.start()
        yield running
    finally:
        running.kill()


def conf_for(cluster: Cluster) -> dict[str, str]:
    """What a driver must know."""
    return {**PROTECTED, "spark.authenticate.secret": cluster.secret}


def test_a_master_tells_its_workers_and_knows_no_application(jvm: LightJvm, cluster: Cluster) -> None:
    found = ask_master(jvm.gateway.jvm, conf_for(cluster), cluster.url)
    assert (found.url, found.workers, found.applications) == (cluster.url, (Worker(1, 1024),) * 2, frozenset())
    (check,) = check_master(cluster.url, conf_for(cluster), {}, jvm.gateway.jvm)
    assert (check.is_ok, check.found) == (True, "knows 2 workers with 2 cores and 2048 MB")


def test_of_several_masters_the_one_that_leads_answers(jvm: LightJvm, cluster: Cluster) -> None:
    url = f"spark://{HOST}:{free_port()},{HOST}:{cluster.port}"
    assert len(ask_master(jvm.gateway.jvm, conf_for(cluster), url).workers) == 2


def test_workers_that_are_too_small_are_named(jvm: LightJvm, cluster: Cluster) -> None:
    conf = {**conf_for(cluster), "spark.executor.memory": "2g", "spark.executor.cores": "2"}
    (check,) = check_master(cluster.url, conf, {}, jvm.gateway.jvm)
    assert (check.is_ok, check.where) == (False, cluster.url)
    assert "cores=2 memory=2048 MB, and the largest has cores=1 memory=1024 MB" in check.found
    assert "lower spark.executor.cores or spark.executor.memory" in check.remedy
    (lowered,) = check_master(cluster.url, {**conf, **SMALL}, {}, jvm.gateway.jvm)
    assert lowered.is_ok


def test_a_master_that_is_away_or_refuses_this_driver_is_said_in_a_sentence(jvm: LightJvm, cluster: Cluster) -> None:
    conf, nowhere = conf_for(cluster), f"spark://{HOST}:{free_port()}"
    refused = "the Spark master ends the connection: it expects other authentication or encryption"
    asked = {
        "no Spark master answers: connection refused": (conf, nowhere),
        "no Spark master answers: the name of the host is not known": (conf, "spark://no-such-host.invalid:7077"),
        f"{refused}, or it is another service": ({**conf, "spark.authenticate.secret": "another"}, cluster.url),
        "this is not an address of a Spark master": (conf, "spark://host"),
    }
    for message, (properties, url) in asked.items():
        with pytest.raises(UnavailableError) as raised:
            ask_master(jvm.gateway.jvm, properties, url)
        assert (raised.value.message, raised.value.where) == (message, url)
        assert raised.value.remedy
    with pytest.raises(UnavailableError, match=refused):
        ask_master(jvm.gateway.jvm, {}, cluster.url)
    with frozen(cluster.pid_of(MASTER)), pytest.raises(UnavailableError, match="no answer within 5 seconds"):
        ask_master(jvm.gateway.jvm, conf, cluster.url)
    (check,) = check_master(nowhere, conf, {}, jvm.gateway.jvm)
    assert (check.is_ok, check.remedy, check.where) == (False, "start the master, or correct `spark.master`", nowhere)


def test_a_master_without_workers_is_no_cluster(jvm: LightJvm, cluster: Cluster) -> None:
    cluster.kill_hard(MASTER, *cluster.workers)
    cluster.start_master()
    (check,) = check_master(cluster.url, conf_for(cluster), {}, jvm.gateway.jvm)
    assert (check.is_ok, check.found, check.remedy) == (False, "the Spark master has no workers", "start workers")
    cluster.start_workers()
    (check,) = check_master(cluster.url, conf_for(cluster), {}, jvm.gateway.jvm)
    assert check.is_ok
