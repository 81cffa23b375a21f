"""A commit whose outcome is not known: the table is asked for our own commit id, and nothing is doubled or given up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.points import Points
from tests.acceptance.proxy import Fault, Proxy
from tests.acceptance.running import Run
from tests.fixtures.waiting import PATIENCE_S
from tests.integration.servers import RestCatalogServer

pytestmark = pytest.mark.timeout(900)

STEPS = ("commit.before", "commit.landed")


class Unsure:
    """A running pipeline whose commits can lose their answers."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.points = Points(pipeline.folder / "points", *((step, "reset") for step in STEPS))
        self.table, self.topic = pipeline.add_fed_table("unsure")
        self.records = 0
        self._run: Run | None = None

    def produce(self, count: int = 200) -> None:
        """Some more records."""
        self.pipeline.feed.produce(self.topic, events(count, self.records))
        self.records += count

    def run(self) -> Run:
        """The running pipeline, all that was there committed."""
        if self._run is None or not self._run.is_running:
            self.produce()
            self._run = self.pipeline.run(failpoints=self.points.declaration)
        self.pipeline.wait_for_commit_of(self.table, self._run)
        return self._run

    def check(self) -> None:
        """More records arrive, and all is there once."""
        self.produce()
        self.pipeline.wait_for_commit_of(self.table, self.run())
        self.pipeline.check(self.table)
        assert not self.run().seen("table_stopped")


@pytest.fixture(scope="module")
def unsure(shared_pipeline: Pipeline) -> Unsure:
    """On the local catalog."""
    return Unsure(shared_pipeline)


@pytest.fixture(scope="module")
def proxied(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Unsure, Proxy]]:
    """On a REST catalog behind a proxy."""
    folder = tmp_path_factory.mktemp("rest")
    catalog = RestCatalogServer(folder / "catalog", str(folder / "warehouse"))
    pipeline = Pipeline(folder / "pipeline", broker.bootstrap_servers)
    catalog.start()
    proxy = Proxy(catalog.port)
    try:
        pipeline.document["catalog"] = {"type": "rest", "uri": proxy.url}
        pipeline.catalog_file = folder / "catalog" / "rest.db"
        yield Unsure(pipeline), proxy
    finally:
        pipeline.close()
        proxy.close()
        catalog.kill()


@pytest.mark.parametrize("step", STEPS)
def test_a_connection_lost_in_a_commit_is_cleared_up(unsure: Unsure, step: str) -> None:
    run = unsure.run()
    point = unsure.points[step, "reset"]
    with point.armed():
        unsure.produce()
        point.wait(run)
    unsure.check()


@pytest.mark.parametrize("fault", ["502 after", "cut after", "502 before", "cut before"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_commit_that_a_rest_catalog_does_not_answer_is_cleared_up(
    proxied: tuple[Unsure, Proxy], fault: Fault, times: int
) -> None:
    unsure, proxy = proxied
    unsure.run()
    with proxy.faulty(fault, times):
        unsure.produce()
        proxy.wait_until_struck(PATIENCE_S)
        unsure.pipeline.wait_for_commit_of(unsure.table, unsure.run())
    unsure.check()


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
        assert first.wait() == 3, first.tail()
    unsure.produce()
    unsure.pipeline.wait_for_commit_of(unsure.table, second)
    unsure.pipeline.check(unsure.table)
    assert second.stop() == 0
