"""The broker goes away and comes back: the pipeline waits, reports why, and continues."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline, opened
from tests.acceptance.points import Points
from tests.acceptance.running import Run
from tests.fixtures.foreign_spark import ForeignSpark
from tests.fixtures.processes import frozen
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.timeout(900)

AWAY_S = 15.0
"""Longer than every request's timeout in the driver (10 s)."""
LONG_AWAY_S = 60.0
NAMED_WITHIN_S = 60.0


class Served:
    """A running pipeline with a broker of its own."""

    def __init__(self, pipeline: Pipeline, broker: EmbeddedBroker) -> None:
        self.pipeline = pipeline
        self.broker = broker
        pipeline.document["kafka"] |= {"request.timeout.ms": "10000"}  # What tasks wait; in place of half a minute.
        holds = [(step, "hold") for step in ("job.before", "task.batch", "commit.before")]
        self.points = Points(pipeline.folder / "points", *holds)
        self.table, self.topic = pipeline.add_fed_table("served")
        self.records = 0
        self._run: Run | None = None

    def send(self, count: int = 60) -> None:
        """Records for a broker that is there."""
        self.pipeline.feed.send(self.topic, events(count, self.records))
        self.records += count

    def bring_back(self) -> None:
        """The broker again, and records as soon as the topic's partitions have a leader.

        A producer that writes before then is told of leader -1, and librdkafka (up to 2.16 at least) may keep to that for
        good (confluentinc/librdkafka issue 5430).
        """
        self.broker.start()
        wait_until(self._has_leaders, "every partition has a leader", 60)
        self.send()

    def _has_leaders(self) -> bool:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})
        try:
            partitions = admin.list_topics(self.topic, timeout=5).topics[self.topic].partitions.values()
        except KafkaException:
            return False
        return bool(partitions) and all(partition.leader >= 0 for partition in partitions)

    def run(self) -> Run:
        """The running pipeline, all that was there committed."""
        if self._run is None or not self._run.is_running:
            self._run = self.pipeline.run(failpoints=self.points.declaration)
            self._run.wait_for("connected")
        self._wait(self._run)
        return self._run

    def wait_until_complete(self, run: Run) -> None:
        """Everything that was sent is in the table."""
        self._wait(run)
        self.pipeline.check(self.table)

    def _wait(self, run: Run) -> None:
        self.pipeline.feed.flush()
        self.pipeline.wait_for_commit_of(self.table, run)


@pytest.fixture(scope="module")
def served(spark: ForeignSpark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker that may be hurt, and a pipeline on it."""
    folder = tmp_path_factory.mktemp("served")
    with (
        EmbeddedBroker(tmp_path_factory.mktemp("own-broker")) as broker,
        opened(folder, broker.bootstrap_servers, spark) as pipeline,
    ):
        served = Served(pipeline, broker)
        served.send()
        yield served


ENDS: dict[str, Callable[[EmbeddedBroker], None]] = {"stopped": EmbeddedBroker.stop, "killed": EmbeddedBroker.kill}


@pytest.mark.slow  # In time: killed in the middle of a batch, below.
@pytest.mark.parametrize("end", ["killed", pytest.param("stopped", marks=pytest.mark.soak)])
def test_a_broker_that_is_restarted_is_read_on(served: Served, end: str) -> None:
    run = served.run()
    served.send()
    served.pipeline.feed.flush()
    ENDS[end](served.broker)
    served.bring_back()
    served.wait_until_complete(run)


@pytest.mark.parametrize(
    ("end", "step", "away_s"),
    [
        ("killed", "commit.before", AWAY_S),
        pytest.param("stopped", "commit.before", LONG_AWAY_S, marks=pytest.mark.soak),
        pytest.param("killed", "task.batch", AWAY_S, marks=pytest.mark.soak),
    ],
)
def test_an_outage_that_begins_in_the_middle_of_a_batch_is_named_and_waited_out(
    served: Served, end: str, step: str, away_s: float
) -> None:
    run = served.run()
    point = served.points[step, "hold"]
    with point.armed():
        served.send()
        served.pipeline.feed.flush()
        point.wait(run)
        ENDS[end](served.broker)
    began_s = time.monotonic()
    # A broker that shuts down in order gives up its partitions before it goes.
    state = served.pipeline.wait_for_state(run, served.table, "backing off", "Kafka is not reachable")
    assert served.broker.bootstrap_servers in state["where"]
    assert state["remedy"]
    warnings = len(run.seen("service_unavailable"))
    wait_until(lambda: time.monotonic() - began_s > away_s, "the outage has lasted", away_s + 1)
    run.wait_for("service_unavailable", count=warnings + 1)
    served.bring_back()
    run.wait_for("service_available_again")
    served.wait_until_complete(run)
    assert served.pipeline.wait_for_state(run, served.table, "waiting")["reason"] == ""


def test_a_broker_that_takes_connections_and_reports_nothing_is_named_and_waited_out(served: Served) -> None:
    """A batch that has begun comes to nothing, and `check` to an end."""
    run = served.run()
    outages, failed = len(run.seen("service_unavailable")), len(run.seen("table_backing_off"))
    point = served.points["job.before", "hold"]
    with point.armed():
        served.send()
        served.pipeline.feed.flush()
        point.wait(run)
        with frozen(served.broker.pid):
            point.disarm()
            reported = run.wait_for("service_unavailable", count=outages + 1, within_s=NAMED_WITHIN_S)
            assert reported["where"] == served.broker.bootstrap_servers
            assert "Kafka is not reachable" in reported["reason"]
            assert served.pipeline.wait_for_state(run, served.table, "backing off")["remedy"]
            checks = served.pipeline.command("check", expected=1, within_s=NAMED_WITHIN_S)["checks"]
            [problem] = [check for check in checks if not check["ok"]]
            assert (problem["name"], problem["where"]) == ("kafka", served.broker.bootstrap_servers)
            assert "Kafka is not reachable" in problem["found"]
            run.wait_for("table_backing_off", count=failed + 1, within_s=NAMED_WITHIN_S)
    served.send()
    served.wait_until_complete(run)


@pytest.mark.slow  # In time: unit/ingest/test_long_outages.py.
def test_a_pipeline_started_without_a_broker_waits_for_one(served: Served) -> None:
    assert served.run().stop() == 0
    served.broker.stop()
    run = served.pipeline.run()
    assert "Kafka is not reachable" in run.wait_for("service_unavailable")["reason"]
    served.bring_back()
    served.wait_until_complete(run)
    assert run.stop() == 0


@pytest.mark.slow  # In time: unit/ingest/test_long_outages.py.
def test_a_pipeline_without_a_broker_stops_when_it_is_told_to(served: Served) -> None:
    run = served.run()
    served.broker.stop()
    try:
        run.wait_for("service_unavailable")
        assert run.stop(30) == 0
    finally:
        served.bring_back()
