"""Two processes of one pipeline that elect a leader by Kafka: the other one is warm, and takes over without a loss."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.acceptance.pipelines import Pipeline
from tests.acceptance.running import Run
from tests.integration.servers import free_port

pytestmark = pytest.mark.timeout(900)
_LONGER_THAN_SILENCE_S = 3.0


class Pair:
    """A pipeline whose processes elect a leader, and its producer."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.table, self.topic = pipeline.add_fed_table("events")
        pipeline.document |= {"ha": {"elect": "kafka"}, "maintenance": False}

    def start(self) -> Run:
        """Another process, with an HTTP service of its own."""
        self.pipeline.document["http"] = {"listen": f"127.0.0.1:{free_port()}"}
        return self.pipeline.run()

    def produce(self, count: int = 20) -> None:
        """Some records."""
        self.pipeline.feed.produce(self.topic, [{"n": n} for n in range(count)])

    @contextmanager
    def load(self) -> Iterator[None]:
        """Records arrive all the time."""
        ended = threading.Event()

        def feed() -> None:
            while not ended.wait(0.05):
                self.produce()

        thread = threading.Thread(target=feed)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def leadership(self) -> dict[str, Any]:
        """What the leader has published."""
        found: dict[str, Any] = self.pipeline.state_file().get("leadership") or {}
        return found

    def wait_until_warm(self, count: int, run: Run) -> None:
        """Waits until so many processes could work."""
        warm = lambda: sum(member["warm"] for member in self.leadership().get("members", ())) == count  # noqa: E731
        run.wait_while_running(warm, f"{count} processes are warm: {self.leadership()}")

    def wait_for_commit(self, run: Run, before: int) -> None:
        """Waits until the run has committed more batches than before."""
        run.wait_for("batch_committed", count=before + 1, table=self.table)


def _commits(run: Run) -> int:
    return len(run.seen("batch_committed"))


def test_a_standby_takes_over_from_a_leader_that_is_frozen_stands_down_or_is_killed(pipeline: Pipeline) -> None:
    pair = Pair(pipeline)
    pair.produce()
    first = pair.start()
    pair.wait_for_commit(first, 0)
    second = pair.start()
    pair.wait_until_warm(2, first)
    assert _commits(second) == 0

    with pair.load():
        with first.frozen(_LONGER_THAN_SILENCE_S):
            pair.wait_for_commit(second, 0)
        first.wait_for("tables_released")
        pair.wait_until_warm(2, second)

        before = _commits(first)
        assert pipeline.command("stand-down")["leadership"]["elect"] == "kafka"
        pair.wait_for_commit(first, before)
        assert second.is_running
        pair.wait_until_warm(2, first)

        before = _commits(second)
        first.kill()
        pair.wait_for_commit(second, before)
    pipeline.wait_for_commit_of(pair.table, second)
    pipeline.check(pair.table)
    assert second.stop() == 0
