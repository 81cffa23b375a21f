"""A commit whose outcome is not known: the table is asked for our own commit id, and nothing is doubled or given up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.pipelines import Pipeline, opened
from tests.acceptance.proxy import Fault, Proxy
from tests.acceptance.scenes import LOST_AT, Unsure, assert_refused
from tests.fixtures.foreign_spark import ForeignSpark
from tests.fixtures.waiting import PATIENCE_S
from tests.integration.servers import RestCatalogServer

pytestmark = pytest.mark.timeout(900)

IN_TIME = (("cut after", 1),)
# In time: on the same catalog in integration/test_lost_answers.py, and what they mean in unit/catalog/test_answers.py.
SLOW = (("502 before", 3), ("twice", 1))
"""Faults, and how often they strike, in `make test` and in `make test-all`."""


def _marks(fault: tuple[str, int]) -> list[pytest.MarkDecorator]:
    return [] if fault in IN_TIME else [pytest.mark.slow if fault in SLOW else pytest.mark.soak]


@pytest.fixture(scope="module")
def unsure(shared_pipeline: Pipeline) -> Unsure:
    """On the local catalog."""
    return Unsure(shared_pipeline)


@pytest.fixture(scope="module")
def proxied(
    broker: EmbeddedBroker, spark: ForeignSpark, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Unsure, Proxy]]:
    """On a REST catalog behind a proxy."""
    folder = tmp_path_factory.mktemp("rest")
    catalog = RestCatalogServer(folder / "catalog", str(folder / "warehouse"))
    catalog.start()
    proxy = Proxy(catalog.port)
    try:
        with opened(folder / "pipeline", broker.bootstrap_servers, spark) as pipeline:
            pipeline.document["catalog"] = {"type": "rest", "uri": proxy.url}
            pipeline.catalog_file = folder / "catalog" / "rest.db"
            unsure = Unsure(pipeline)
            yield unsure, proxy
            unsure.end()
    finally:
        proxy.close()
        catalog.kill()


@pytest.mark.slow  # In time: on the same catalog in contracts/test_commits.py.
@pytest.mark.parametrize("step", LOST_AT)
def test_a_connection_lost_in_a_commit_is_cleared_up(unsure: Unsure, step: str) -> None:
    run = unsure.run()
    point = unsure.points[step, "reset"]
    with point.armed():
        unsure.produce()
        point.wait(run)
    unsure.check()


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        pytest.param(fault, times, marks=_marks((fault, times)))
        for fault in ("502 after", "cut after", "502 before", "cut before", "twice")
        for times in (1, 3)
    ],
)
def test_a_commit_that_a_rest_catalog_does_not_answer_is_cleared_up(
    proxied: tuple[Unsure, Proxy], fault: Fault, times: int
) -> None:
    unsure, proxy = proxied
    unsure.lose_response(proxy, fault, times)


def test_a_commit_that_lands_late_is_refused_or_recognised(proxied: tuple[Unsure, Proxy]) -> None:
    unsure, proxy = proxied
    first = unsure.run()
    with proxy.faulty("late"):
        unsure.produce()
        proxy.wait_until_struck(PATIENCE_S)
        with first.frozen():
            second = unsure.pipeline.run()
            unsure.produce()
            unsure.pipeline.wait_for_commit_of(unsure.table, second)
        proxy.release.set()
        assert_refused(first)
    unsure.resume(second)
