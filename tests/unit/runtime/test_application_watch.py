"""When an application without executors is given up, and when it is only said that it waits. On a real cluster:
acceptance/test_spark_outages.py.
"""

from __future__ import annotations

import pytest

from frazil.errors import UnavailableError
from frazil.runtime.application_watch import UNANSWERED_S, Outage, outage_of
from frazil.runtime.spark_master import Master, Worker

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
        "the Spark master does not know the application any more",
        URL,
    )


def test_a_master_may_be_away_for_a_moment() -> None:
    assert outage(UNANSWERED_S - 1, True, AWAY) is None
    assert outage(UNANSWERED_S, False, AWAY) == Outage(AWAY, is_lost=True)


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
