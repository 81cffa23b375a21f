"""SIGTERM asks for a drain.

In time: a drain, and a second Ctrl-C that ends the process at once, in test_loop.py; a stop beyond its grace in
test_full_disk.py.
"""

from __future__ import annotations

import pytest

from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.points import Points
from tests.acceptance.running import A_FEW_SECONDS

pytestmark = pytest.mark.timeout(900)


@pytest.mark.slow  # In time: unit/cli/test_run.py.
def test_a_run_that_is_stopped_before_the_catalog_answers_prints_its_result(pipeline: Pipeline) -> None:
    pipeline.add_fed_table("unreached")
    pipeline.document["catalog"] = {"type": "rest", "uri": "http://127.0.0.1:1/"}
    run = pipeline.run()
    run.wait_for("service_unavailable")
    assert run.stop() == 0, run.tail()
    assert run.result() == {"tables": {}}


@pytest.mark.slow  # In time: a drain in test_loop.py.
def test_a_stop_waits_for_the_batch_in_hand_as_long_as_its_grace(pipeline: Pipeline) -> None:
    table, topic = pipeline.add_fed_table("graceful")
    pipeline.feed.produce(topic, events(200))
    points = Points(pipeline.folder / "points", ("task.write", "hold"))
    point = points["task.write", "hold"]
    with point.armed():
        run = pipeline.run("--grace", "10m", failpoints=points.declaration)
        point.wait(run)
        run.terminate()
        run.wait_for("stopping", tables_in_flight=[table])
    assert run.wait(A_FEW_SECONDS) == 0, run.tail()
    assert (len(run.seen("batch_committed")), run.seen("grace_period_exceeded")) == (1, []), run.tail()
    pipeline.check(table)
