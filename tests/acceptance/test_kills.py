"""SIGKILL at every step of a batch: of the driver's Python, of its JVM, of both, and of a Python worker.

Each test strikes a running pipeline while steps are held, each in a table of its own, checks what is left in these tables,
starts the pipeline again and checks that all arrived. The pipeline that was started again is the one that the next test
strikes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from docs.meanings import FAILPOINTS
from frazil.runtime.jvm import Jvm
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.running import ancestor
from tests.acceptance.scenes import BLOWS, STEPS, VICTIMS, Struck, StruckLeader

pytestmark = pytest.mark.timeout(900)

IN_TIME = {(BLOWS[0], "jvm")}
# In time: on the twins in simulation/test_histories.py; both halves of a driver are killed at steps of commits and tasks,
# `commit.after` among them, in test_upserts.py.
SLOW = {(blow, "both") for blow in BLOWS}


def _case(blow: Sequence[str], who: str) -> Any:
    marks = [] if (blow, who) in IN_TIME else [pytest.mark.slow if (blow, who) in SLOW else pytest.mark.soak]
    return pytest.param(blow, who, marks=marks, id=f"{who}: {', '.join(blow)}")


CASES = [_case(blow, who) for blow in BLOWS for who in VICTIMS]
"""When there is little time, the JVM is killed in the first blow."""


@pytest.fixture(scope="module")
def struck(shared_pipeline: Pipeline, request: pytest.FixtureRequest) -> Struck:
    """Records wait, nothing runs yet. Only steps that are struck have tables: each table is read by four readers."""
    here = [item for item in request.session.items if item.path == request.path]
    calls = [item.callspec.params for item in here if hasattr(item, "callspec")]
    chosen = {step for call in calls for step in (*call.get("blow", ()), call.get("step", "task.write"))}
    return Struck(shared_pipeline, steps=[step for step in STEPS if step in chosen])


@pytest.mark.parametrize(("blow", "who"), CASES)
def test_a_driver_killed_at_any_step_loses_and_doubles_nothing(struck: Struck, blow: Sequence[str], who: str) -> None:
    struck.kill_driver(blow, who)


@pytest.fixture
def struck_leader(pipeline: Pipeline) -> StruckLeader:
    """Records wait, nothing runs yet."""
    return StruckLeader(pipeline)


@pytest.mark.parametrize(
    ("blows", "victims"),
    [
        pytest.param(BLOWS[:1], ["both"], marks=pytest.mark.slow, id="one"),
        pytest.param(BLOWS, list(VICTIMS), marks=[pytest.mark.soak, pytest.mark.timeout(3600)], id="every"),
    ],
)
def test_a_leader_killed_at_any_step_is_replaced_by_its_standby_without_a_loss(
    struck_leader: StruckLeader, blows: Sequence[Sequence[str]], victims: Sequence[str]
) -> None:
    for blow in blows:
        for who in victims:
            struck_leader.kill_driver(blow, who)


def test_no_step_of_a_batch_is_left_out() -> None:
    kinds = {step.partition(".")[0] for step in STEPS}
    assert sorted(STEPS) == sorted(step for step in FAILPOINTS if step.partition(".")[0] in kinds)


@pytest.mark.parametrize(
    "step", ["task.write", *(pytest.param(step, marks=pytest.mark.soak) for step in ("task.batch", "task.close"))]
)
def test_a_python_worker_killed_in_a_task_costs_nothing_but_time(struck: Struck, step: str) -> None:
    run = struck.run()
    point = struck.points[step, "hold"]
    with point.armed():
        struck.produce(struck.topic)
        worker = point.wait(run)
        assert worker != run.pid
        run.kill(worker)
    struck.pipeline.wait_for_commit_of(struck.table, run)
    struck.pipeline.check(struck.table)
    assert run.seen("table_backing_off", table=struck.table)


@pytest.mark.slow  # In time: a worker, above.
def test_a_killed_worker_daemon_costs_nothing_but_time(struck: Struck) -> None:
    run = struck.run()
    point = struck.points["task.write", "hold"]
    with point.armed():
        struck.produce(struck.topic)
        daemon = ancestor(point.wait(run), 1)
        assert daemon is not None
        run.kill(daemon)
    struck.pipeline.wait_for_commit_of(struck.table, run)
    struck.pipeline.check(struck.table)


@pytest.mark.last
def test_the_command_verify_agrees_that_no_table_differs(struck: Struck, jvm: Jvm) -> None:
    struck.run()
    struck.pipeline.check_by_verify(jvm)
