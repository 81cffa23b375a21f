"""Kills, two drivers and lost answers, on a REST catalog with an S3 store: nothing of the table is on this disk, and its
commits go over the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest

from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.lakes import RemoteLake
from tests.acceptance.pipelines import Pipeline, opened
from tests.acceptance.proxy import Fault, Proxy
from tests.acceptance.scenes import BLOWS, Contested, Struck, Unsure
from tests.fixtures.foreign_spark import ForeignSpark

pytestmark = pytest.mark.timeout(900)

NewPipeline = Callable[[], Pipeline]


@pytest.fixture(scope="module")
def new_pipeline(
    broker: EmbeddedBroker, spark: ForeignSpark, remote_lake: RemoteLake, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NewPipeline]:
    """Makes a pipeline whose tables are in the lake."""
    with ExitStack() as made:
        yield lambda: made.enter_context(
            opened(tmp_path_factory.mktemp("remote"), broker.bootstrap_servers, spark, remote_lake)
        )


@pytest.fixture(scope="module")
def struck(new_pipeline: NewPipeline) -> Struck:
    """Records wait, nothing runs yet."""
    return Struck(new_pipeline(), ["both"], BLOWS[0])


@pytest.fixture(scope="module")
def proxied(new_pipeline: NewPipeline, remote_lake: RemoteLake) -> Iterator[tuple[Unsure, Proxy]]:
    """The catalog is behind a proxy."""
    proxy, pipeline = Proxy(remote_lake.port), new_pipeline()
    pipeline.document["catalog"]["uri"] = proxy.url
    yield Unsure(pipeline), proxy
    pipeline.close()
    proxy.close()


# In time: on the local disk in test_kills.py, on another catalog in test_catalogs.py, and on a REST catalog with an S3 store
# in integration/test_lake.py, where a commit has landed, with outages in the middle of others.
@pytest.mark.parametrize(
    "blow",
    [
        pytest.param(blow, marks=pytest.mark.slow if blow == BLOWS[0] else pytest.mark.soak, id=", ".join(blow))
        for blow in BLOWS
    ],
)
def test_a_driver_killed_at_any_step_loses_and_doubles_nothing(
    struck: Struck, new_pipeline: NewPipeline, blow: Sequence[str]
) -> None:
    victim = struck if blow == BLOWS[0] else Struck(new_pipeline(), ["both"], blow)
    victim.kill_driver(blow, "both")


@pytest.mark.soak  # In time: on a REST catalog with local files in test_lost_answers.py.
def test_a_driver_that_was_frozen_is_refused_when_another_has_continued(new_pipeline: NewPipeline) -> None:
    contested = Contested(new_pipeline())
    contested.freeze_while_another_runs("commit.validating")
    contested.end()


@pytest.mark.soak  # In time: on a REST catalog with local files in test_lost_answers.py.
@pytest.mark.parametrize("fault", ["cut after", "502 before"])
def test_a_commit_that_is_not_answered_is_cleared_up(proxied: tuple[Unsure, Proxy], fault: Fault) -> None:
    unsure, proxy = proxied
    unsure.lose_response(proxy, fault)
