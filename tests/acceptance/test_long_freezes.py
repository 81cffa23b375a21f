"""SIGSTOP for longer than any timeout: Spark waits 120 s for what is silent, the clients of catalog and store 60 s."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.lakes import RemoteLake
from tests.acceptance.pipelines import opened
from tests.acceptance.scenes import Contested
from tests.fixtures.foreign_spark import ForeignSpark

pytestmark = [pytest.mark.timeout(1200), pytest.mark.soak]

FREEZE_S = 150.0
STEPS = ("task.write", "commit.validating")


@pytest.fixture(params=["local", "remote"])
def contested(
    request: pytest.FixtureRequest,
    broker: EmbeddedBroker,
    spark: ForeignSpark,
    remote_lake: RemoteLake,
    tmp_path: Path,
) -> Iterator[Contested]:
    """Records wait, nothing runs yet; on both lakes."""
    lake = remote_lake if request.param == "remote" else None
    with opened(tmp_path, broker.bootstrap_servers, spark, lake) as pipeline:
        made = Contested(pipeline)
        yield made
        made.end()


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_wakes_is_refused_when_another_has_continued(contested: Contested, step: str) -> None:
    contested.freeze_while_another_runs(step, FREEZE_S)


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_wakes_continues_when_nobody_else_has(contested: Contested, step: str) -> None:
    contested.freeze_alone(step, FREEZE_S)
