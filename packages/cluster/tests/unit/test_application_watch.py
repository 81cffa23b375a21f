"""When an application without executors is given up, and when it is only said that it waits. On a real cluster:
packages/cluster/tests/acceptance/test_spark_outages.py.
"""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from frazil.errors import UnavailableError
from frazil_cluster.master import Master, Worker
from frazil_cluster.watch import ELSEWHERE_S, ON_DEMAND_S, UNANSWERED_S, ApplicationWatch, Outage, outage_of
from frazil_testing.twins import FakeClock

URL = "spark://master:7077"
AWAY = UnavailableError("no Spark master answers: connection refused", where=URL)
OURS, OTHERS = (Master(URL, (Worker(4, 4096),), frozenset({name})) for name in ("app-1", "app-2"))


def outage(without_s: float, is_overdue: bool, master: Master | UnavailableError | None) -> Outage | None:
    """Of the application `app-1`."""
    return outage_of(without_s, is_overdue, "app-1", URL, master)


@pytest.mark.parametrize("master", [OURS, None])
def test_executors_are_waited_for_while_they_may_come(master: Master | None) -> None:
    assert outage(3600, False, master) is None
    found = outage(0, True, master)
    assert found is not None
    assert (found.is_lost, found.error.message, found.error.where) == (
        False,
        "the Spark cluster gives the application no executors",
        URL,
    )


@pytest.mark.parametrize("is_overdue", [True, False])
def test_an_application_that_its_master_does_not_know_is_lost_at_once(is_overdue: bool) -> None:
    found = outage(0, is_overdue, OTHERS)
    assert found is not None
    assert (found.is_lost, found.error.message, found.error.where) == (
        True,
        "the Spark master no longer knows the application",
        URL,
    )


def test_a_master_may_be_away_for_a_moment() -> None:
    assert outage(UNANSWERED_S - 1, True, AWAY) is None
    assert outage(UNANSWERED_S, False, AWAY) == Outage(AWAY, is_lost=True)


class Application:
    """A twin of Java's SparkContext, and of the parts of it that are asked."""

    def __init__(self) -> None:
        self.executors: list[str] = []
        self.jobs: list[int] = []
        self.cancelled = 0

    def applicationId(self) -> str:  # noqa: N802  (Java's)
        return "app-1"

    def isStopped(self) -> bool:  # noqa: N802
        return False

    def getExecutorIds(self) -> Application:  # noqa: N802
        return self

    def size(self) -> int:
        return len(self.executors)

    def statusTracker(self) -> Application:  # noqa: N802
        return self

    def getActiveJobIds(self) -> list[int]:  # noqa: N802
        return self.jobs

    def cancelAllJobs(self) -> None:  # noqa: N802
        self.cancelled += len(self.jobs)
        self.jobs = []


def test_jobs_that_wait_for_executors_are_ended_and_all_is_well_once_there_are_some() -> None:
    application, clock = Application(), FakeClock()
    watch = ApplicationWatch(None, application, {"spark.master": "yarn"}, clock)
    application.jobs = [1]
    watch.look()
    clock.sleep(ELSEWHERE_S - 1)
    watch.look()
    assert (application.cancelled, watch.outage) == (0, None)
    clock.sleep(1)
    with capture_logs() as logged:
        assert watch.look() is False
        watch.look()
        application.executors = ["0"]
        watch.look()
    assert (application.cancelled, watch.outage) == (1, None)
    assert [event["event"] for event in logged] == ["spark_executors_missing", "spark_executors_available_again"]


def test_an_application_with_executors_on_demand_may_have_none_while_idle() -> None:
    application, clock = Application(), FakeClock()
    conf = {"spark.master": "k8s://https://server", "spark.dynamicAllocation.enabled": "true"}
    watch = ApplicationWatch(None, application, conf, clock)
    for _ in range(2):
        watch.look()
        clock.sleep(10 * ON_DEMAND_S)
        application.jobs = [1]
        watch.look()
        clock.sleep(ON_DEMAND_S - 1)
        watch.look()
        assert application.jobs == [1]
        clock.sleep(1)
        watch.look()
        found, one = watch.outage, watch.look()
        assert found is not None
        assert (found.is_lost, application.jobs, one) == (False, [], False)
        # Nothing waits any more: the next job is to be the reason for executors.
        assert watch.outage is None


def test_what_workers_lack_for_an_executor() -> None:
    sizes = {"2g": 2048, "8g": 8192, "1g": 1024}
    assert OURS.lacking({"spark.executor.memory": "2g", "spark.executor.cores": "4"}, sizes.__getitem__) is None
    for conf in ({"spark.executor.memory": "8g"}, {"spark.executor.cores": "5"}):
        lacking = OURS.lacking(conf, sizes.__getitem__)
        assert lacking is not None
        assert lacking.message.startswith("no worker of the Spark master is large enough for an executor: cores=")
    none = Master(URL, (), frozenset()).lacking({}, sizes.__getitem__)
    assert none is not None
    assert (none.message, none.remedy) == ("the Spark master has no workers", "start workers")
