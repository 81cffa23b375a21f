"""Kills, two drivers, lost answers and a silent store, on a REST catalog with an S3 store: nothing of the table is on this
disk, and its commits go over the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest

from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.lakes import RemoteLake
from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline, opened
from tests.acceptance.points import Points
from tests.acceptance.proxy import Fault, Proxy
from tests.acceptance.scenes import BLOWS, Contested, Struck, Unsure
from tests.fixtures.foreign_spark import ForeignSpark
from tests.integration.servers import HOST, Relay

pytestmark = pytest.mark.timeout(900)

# So that a test need not wait for as long as a user may have to.
IMPATIENT = {"http-client.apache.socket-timeout-ms": "2000", "s3.retry.num-retries": "0"}
NAMED_WITHIN_S = 60.0
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


@pytest.fixture
def way(remote_lake: RemoteLake) -> Iterator[Relay]:
    """The pipeline's way to the store."""
    relay = Relay(remote_lake.store_port)
    relay.join()
    yield relay
    relay.cut()


# In time: on the local disk in test_kills.py, on another catalog in test_catalogs.py, and on a REST catalog with an S3 store
# where a commit has landed in integration/test_lake.py, and an outage in the middle of one in the last test here.
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


def test_a_store_that_takes_connections_and_reports_nothing_is_named_and_waited_out(
    new_pipeline: NewPipeline, way: Relay
) -> None:
    """By a task, by `check`, and in the middle of a commit. The verifier sees every row in the store."""
    pipeline = new_pipeline()
    pipeline.document["catalog"]["properties"] |= {"s3.endpoint": f"http://{HOST}:{way.port}", **IMPATIENT}
    table, topic = pipeline.add_fed_table("unanswered")
    points = Points(pipeline.folder / "points", ("commit.before", "hold"))
    point = points["commit.before", "hold"]
    pipeline.feed.produce(topic, events(300))
    with pipeline.running(failpoints=points.declaration) as run:
        pipeline.wait_for_commit_of(table, run)
        with way.silent():
            pipeline.feed.produce(topic, events(300, 300))
            assert "a task failed" in run.wait_for("table_backing_off", within_s=NAMED_WITHIN_S)["reason"]
            checks = pipeline.command("check", expected=1, within_s=NAMED_WITHIN_S)["checks"]
            [problem] = [check for check in checks if not check["ok"]]
            assert problem["name"] == "store"
            assert problem["where"] in problem["tried"]
            assert "the store cannot be reached" in problem["found"]
        pipeline.wait_for_commit_of(table, run)
        with point.armed():
            pipeline.feed.produce(topic, events(300, 600))
            point.wait(run)
            backed_off = len(run.seen("table_backing_off"))
            with way.silent():
                point.disarm()
                run.wait_for("table_backing_off", count=backed_off + 1, within_s=NAMED_WITHIN_S)
        pipeline.wait_for_commit_of(table, run)
        assert run.stop() == 0, run.tail()
    pipeline.check(table)
    records, place = pipeline.ledger.records, next(reversed(pipeline.ledger.of(topic)))
    del records[place]
    problems = pipeline.verify(table).problems
    assert problems
    assert all(f"invented 1 ([{place}])" in problem for problem in problems), problems
    assert "read by PyIceberg" in problems[-1]
