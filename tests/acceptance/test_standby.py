"""Processes of one pipeline that elect a leader by Kafka: the others are warm, and take over without a loss."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.pipelines import Pipeline, opened
from tests.acceptance.soaking import rng
from tests.acceptance.standbys import KINDS, Doubles, Standbys, commits
from tests.fixtures.foreign_spark import ForeignSpark

pytestmark = pytest.mark.timeout(900)
_LONGER_THAN_SILENCE_S = 3.0
_DAY_S = 86_400
_PER_PIPELINE = 20
"""So that a table's metadata does not grow beyond what is read in an instant."""


def test_a_standby_takes_over_from_a_leader_that_is_frozen_stands_down_or_is_killed(pipeline: Pipeline) -> None:
    pair = Standbys(pipeline)
    pair.produce()
    first = pair.start()
    pair.wait_for_commit(first, 0)
    second = pair.start()
    pair.wait_until_warm(2, first)
    assert commits(second) == 0

    with pair.load():
        with first.frozen(_LONGER_THAN_SILENCE_S):
            pair.wait_for_commit(second, 0)
        first.wait_for("tables_released")
        pair.wait_until_warm(2, second)

        before = commits(first)
        assert pipeline.command("stand-down")["leadership"]["elect"] == "kafka"
        pair.wait_for_commit(first, before)
        assert second.is_running
        pair.wait_until_warm(2, first)

        before = commits(second)
        first.kill()
        pair.wait_for_commit(second, before)
    pair.check()
    assert second.stop() == 0


@pytest.mark.slow
def test_a_run_until_caught_up_leaves_the_work_to_a_leader(pipeline: Pipeline) -> None:
    pair = Standbys(pipeline)
    pair.produce()
    leader = pair.start()
    pair.wait_for_commit(leader, 0)
    with pair.load():
        catching_up = pair.start("--until-caught-up")
        assert catching_up.wait() == 0, catching_up.tail()
        assert commits(catching_up) == 0
        assert not leader.seen("tables_released")
    pair.check()
    leader.kill()
    pair.produce()
    assert pair.start("--until-caught-up").wait() == 0
    pair.check()


@pytest.mark.slow
def test_tables_of_a_process_that_is_killed_go_to_the_two_others(pipeline: Pipeline) -> None:
    three = Standbys(pipeline, "spread", tables=6)
    three.produce()
    runs = [three.start() for _ in range(3)]
    with three.load(0.5):
        for run in runs:
            run.wait_for("batch_committed")
        victim = runs.pop()
        lost = {event["table"] for event in victim.seen("batch_committed")}
        before = {table: sum(len(run.seen("batch_committed", table=table)) for run in runs) for table in lost}
        victim.kill()
        for table in lost:
            runs[0].wait_while_running(
                lambda: sum(len(run.seen("batch_committed", table=table)) for run in runs) > before[table],  # noqa: B023
                f"{table} is committed again",
            )
        with runs[0].frozen(_LONGER_THAN_SILENCE_S):
            pass
    three.check()
    assert all(run.is_running for run in runs)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_two_leaders_at_a_time_lose_and_double_nothing_and_do_not_take_turns(
    broker: EmbeddedBroker, spark: ForeignSpark, tmp_path: Path
) -> None:
    count, seed = int(os.environ.get("FRAZIL_DOUBLES", "200")), int(os.environ.get("FRAZIL_FIRST_SEED", "0"))
    kinds = list(KINDS)
    for first in range(0, count, _PER_PIPELINE):
        with opened(tmp_path / str(first), broker.bootstrap_servers, spark) as pipeline:
            pair = Doubles(pipeline)
            with pair.load():
                for number in range(first, min(count, first + _PER_PIPELINE)):
                    kind, of_day_s = kinds[rng(seed, number, len(kinds))], rng(seed, -number, 2 * _DAY_S) - _DAY_S
                    pair.force(kind, of_day_s)
                    sys.stderr.write(f"\n{number}: {kind}\n")
            pair.check()
            pair.check_order()
            pair.close()
