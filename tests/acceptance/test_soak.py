"""Hours of bad luck in minutes: a producer that never rests, and a driver that is killed over and over, at no step in
particular.
"""

from __future__ import annotations

import signal
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.acceptance.ledger import Feed, events
from tests.acceptance.pipelines import Pipeline
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

KILLS = 8
LONGEST_LIFE_MS = 6000


@contextmanager
def restless(pipeline: Pipeline, topics: list[str]) -> Iterator[None]:
    """Some hundred records a second, in transactions every other time, until the block ends."""
    stopping = threading.Event()
    feed = Feed(pipeline.servers, pipeline.ledger)
    transactional = pipeline.transactional_feed()

    def produce() -> None:
        number = 0
        while not stopping.wait(0.1):
            for topic in topics:
                feed.produce(topic, events(20, number))
                transactional.begin()
                transactional.send(topic, events(10, number))
                if number % 3:
                    transactional.commit()
                else:
                    transactional.abort()
            number += 20

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(60)


@pytest.mark.parametrize("seed", range(6))
def test_kills_at_any_moment_lose_and_double_nothing(pipeline: Pipeline, seed: int) -> None:
    pairs = [pipeline.add_fed_table(f"restless{number}", 3) for number in range(3)]
    with restless(pipeline, [topic for _, topic in pairs]):
        for number in range(KILLS):
            _live_and_die(pipeline, [table for table, _ in pairs], seed, number)
    assert pipeline.catch_up()
    for table, _ in pairs:
        pipeline.check(table)


def _live_and_die(pipeline: Pipeline, tables: list[str], seed: int, number: int) -> None:
    run = pipeline.run()
    before = {table: pipeline.metadata(table) for table in tables}
    run.wait_while_running(lambda: {t: pipeline.metadata(t) for t in tables} != before, "it has committed something")
    deadline = time.monotonic() + zlib.crc32(f"{seed} {number}".encode()) % LONGEST_LIFE_MS / 1000
    wait_until(lambda: time.monotonic() > deadline, "its time has come")
    run.kill(*[[run.pid, run.jvm_pid], [run.pid], [run.jvm_pid]][(seed + number) % 3])
    assert run.wait() in (1, -signal.SIGKILL)
    run.close()
