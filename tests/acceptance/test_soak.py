"""Hours of bad luck in minutes: a producer that never rests, and a driver that is killed over and over, at no step in
particular.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.acceptance.ledger import Feed, events
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.soaking import die, live_on, rng
from tests.fixtures.background import repeated

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

KILLS = 8
LONGEST_LIFE_MS = 6000


def restless(pipeline: Pipeline, topics: list[str]) -> Callable[[], None]:
    """What produces some hundred records a second when it is called ten times a second, every other time in transactions."""
    feed, transactional = Feed(pipeline.servers, pipeline.ledger), pipeline.transactional_feed()
    number = 0

    def produce() -> None:
        nonlocal number
        for topic in topics:
            feed.produce(topic, events(20, number))
            transactional.begin()
            transactional.send(topic, events(10, number))
            if number % 3:
                transactional.commit()
            else:
                transactional.abort()
        number += 20

    return produce


@pytest.mark.parametrize("seed", range(6))
def test_kills_at_any_moment_lose_and_double_nothing(pipeline: Pipeline, seed: int) -> None:
    pairs = [pipeline.add_fed_table(f"restless{number}", 3) for number in range(3)]
    produce = restless(pipeline, [topic for _, topic in pairs])
    with repeated(lambda _: produce(), 0.1):
        for number in range(KILLS):
            run = pipeline.run()
            run.wait_for("batch_committed")
            live_on(run, rng(seed, number, LONGEST_LIFE_MS) / 1000)
            die(run, seed + number)
    assert pipeline.catch_up()
    for table, _ in pairs:
        pipeline.check(table)
