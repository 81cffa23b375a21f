"""One scenario on a real server of every kind of catalog, besides SQLite and REST, which all other tests use."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.catalogs import KINDS, OtherLake, running_lake
from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline, opened
from tests.acceptance.verifier import open_table
from tests.fixtures.foreign_spark import ForeignSpark

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module", params=KINDS)
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherLake]:
    """The server of a catalog."""
    with running_lake(request.param, tmp_path_factory.mktemp("lake")) as running:
        yield running


@pytest.fixture
def pipeline(lake: OtherLake, broker: EmbeddedBroker, spark: ForeignSpark, tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline with a namespace of its own in the catalog."""
    with opened(tmp_path, broker.bootstrap_servers, spark, lake) as made:
        made.document["spark"]["conf"] |= lake.conf
        yield made


def test_a_pipeline_is_killed_and_continues_in_every_catalog(pipeline: Pipeline) -> None:
    """Tables are created, appended to, evolved and upserted to; the driver is killed between a commit and its answer."""
    table, topic = pipeline.add_fed_table("events", partition_by=["bucket(id, 4)"])
    orders = pipeline.new_topic("orders", 1)
    upserts = pipeline.add_table("orders", orders, mode="upsert", key_columns=["id"])
    pipeline.feed.produce(topic, events(200))
    pipeline.feed.produce(orders, ({"id": n % 10, "v": n} for n in range(50)))
    assert all(check["ok"] for check in pipeline.command("check")["checks"])
    with pipeline.running("--until-caught-up", failpoints="commit.landed=kill") as run:
        assert run.wait() == -signal.SIGKILL, run.tail()
    pipeline.feed.produce(topic, events(200, 200, more="new"))
    pipeline.feed.produce(orders, ({"id": n % 10, "v": n} for n in range(50, 95)))
    pipeline.catch_up()
    pipeline.check(table)
    metadata = pipeline.current(upserts)
    assert metadata is not None
    rows = open_table(metadata).scan().to_arrow().to_pylist()
    assert {row["id"]: row["v"] for row in rows} == {n % 10: n for n in range(95)}
    assert len(rows) == 10
    pipeline.check_readers(upserts)
    reported = pipeline.command("status")["tables"]
    assert {name: (found["state"], found["rows"]) for name, found in reported.items()} == {
        table: ("idle", 400),
        upserts: ("idle", 10),
    }
    assert all(check["ok"] for check in pipeline.command("check")["checks"])
