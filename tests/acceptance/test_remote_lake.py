"""Kills, two drivers and lost answers on a REST catalog with an S3 store: nothing of the table is on this disk, and its
commits go over the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.lakes import RemoteLake
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.proxy import Fault, Proxy
from tests.acceptance.scenes import STEPS, Contested, Struck, Unsure

pytestmark = pytest.mark.timeout(900)

IN_TIME = ("commit.before", "commit.validating", "commit.landed")
NewPipeline = Callable[[], Pipeline]


@pytest.fixture(scope="module")
def new_pipeline(
    broker: EmbeddedBroker, remote_lake: RemoteLake, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NewPipeline]:
    """Makes a pipeline whose tables are in the lake."""
    made: list[Pipeline] = []

    def make() -> Pipeline:
        made.append(Pipeline(tmp_path_factory.mktemp("remote"), broker.bootstrap_servers, lake=remote_lake))
        return made[-1]

    yield make
    for pipeline in made:
        pipeline.close()


@pytest.fixture(scope="module")
def struck(new_pipeline: NewPipeline) -> Struck:
    """Records wait, nothing runs yet."""
    return Struck(new_pipeline())


@pytest.fixture(scope="module")
def proxied(new_pipeline: NewPipeline, remote_lake: RemoteLake) -> Iterator[tuple[Unsure, Proxy]]:
    """The catalog is behind a proxy."""
    proxy, pipeline = Proxy(remote_lake.port), new_pipeline()
    pipeline.document["catalog"]["uri"] = proxy.url
    yield Unsure(pipeline), proxy
    pipeline.close()
    proxy.close()


@pytest.mark.parametrize("step", [pytest.param(s, marks=[] if s in IN_TIME else [pytest.mark.soak]) for s in STEPS])
def test_a_driver_killed_at_any_step_loses_and_doubles_nothing(struck: Struck, step: str) -> None:
    struck.kill_driver(step, "both")


def test_a_driver_that_was_frozen_is_refused_when_another_has_gone_on(new_pipeline: NewPipeline) -> None:
    Contested(new_pipeline()).freeze_beside_another("commit.validating")


@pytest.mark.parametrize("fault", ["cut after", "502 before"])
def test_a_commit_that_is_not_answered_is_cleared_up(proxied: tuple[Unsure, Proxy], fault: Fault) -> None:
    unsure, proxy = proxied
    unsure.lose_answer(proxy, fault)


def test_the_verifier_sees_every_row_in_the_store(proxied: tuple[Unsure, Proxy]) -> None:
    unsure, _ = proxied
    unsure.run()
    records = unsure.pipeline.ledger.records
    place, value = records.popitem()
    try:
        problems = unsure.pipeline.verify(unsure.table).problems
    finally:
        records[place] = value
    assert problems
    assert all(f"invented 1 ([{place}])" in problem for problem in problems), problems
    assert "read by PyIceberg" in problems[-1]
