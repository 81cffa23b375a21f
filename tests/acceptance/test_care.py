"""Table care on real parts: beside a running pipeline, alone from the command line, killed at each of its steps, twice at
once. Whatever happens to it, no row is lost or doubled and no live file is removed.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline

pytestmark = pytest.mark.timeout(900)

EAGER = {"min_input_files": 5, "snapshots": {"count": 10}}


def commit_some(pipeline: Pipeline, table: str, topic: str, run: Any, count: int) -> None:
    for number in range(count):
        pipeline.feed.produce(topic, events(50, number * 50))
        pipeline.wait_for_commit_of(table, run)


def test_a_running_pipeline_cares_for_its_tables(pipeline: Pipeline) -> None:
    pipeline.document["maintenance"] = EAGER
    table, topic = pipeline.add_fed_table("cared")
    with pipeline.running() as run:
        commit_some(pipeline, table, topic, run, 15)
        run.wait_for("care_done", action="compact", table=table)
        run.wait_for("care_done", action="expire", table=table)
        commit_some(pipeline, table, topic, run, 3)
        assert run.stop() == 0, run.tail()
    pipeline.check(table)
