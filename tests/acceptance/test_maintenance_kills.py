"""SIGKILL of a real `frazil maintain` at every step of every action of table maintenance.

Each step has a table of its own that owes just that. One run makes all of them, each is killed in its maintenance, one
round makes up for all of it, and one run continues.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from docs.meanings import FAILPOINTS
from tests.acceptance.ledger import events
from tests.acceptance.maintenance_backlog import MaintenanceBacklog
from tests.acceptance.operator import Operator
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.verifier import unnamed

pytestmark = pytest.mark.timeout(900)

STEPS: Mapping[str, str] = {
    "maintenance.planned": "compact",
    "maintenance.compact.begins": "compact",
    "maintenance.compact.written": "compact",
    "maintenance.compact.landed": "compact",
    "maintenance.deletes.begins": "deletes",
    "maintenance.deletes.landed": "deletes",
    "maintenance.manifests.begins": "manifests",
    "maintenance.manifests.landed": "manifests",
    "maintenance.expire.begins": "expire",
    "maintenance.expire.landed": "expire",
    "maintenance.carry.begins": "carry",
    "maintenance.carry.landed": "carry",
    "maintenance.orphans.found": "orphans",
    "maintenance.orphans.deleting": "orphans",
    "maintenance.statistics.begins": "statistics",
    "maintenance.statistics.landed": "statistics",
}
"""Steps, and the action that each is a step of."""
IN_TIME = (
    "maintenance.compact.landed",
    "maintenance.deletes.landed",
    "maintenance.expire.begins",
    "maintenance.carry.landed",
    "maintenance.orphans.deleting",
)
"""One of each action that can cost a row, when there is little time."""
CASES = [pytest.param(step, marks=[] if step in IN_TIME else [pytest.mark.soak]) for step in STEPS]
LANDED = tuple(step for step in STEPS if step.endswith(".landed"))
SECOND_TIME = ("maintenance.orphans.deleting",)
"""Steps that are struck when some of the action is done."""


@dataclass
class Fate:
    """What became of a table. survived: why its maintenance was not killed as it should. wrong: what was wrong with its
    rows then. was_due: whether the action still was. failures: of the round that made up for it; is_due: whether the
    action is due after that; left: files that no snapshot names.
    """

    survived: str = ""
    wrong: str = ""
    was_due: bool = False
    failures: tuple[str, ...] = ()
    is_due: bool = False
    left: frozenset[str] = frozenset()


@pytest.fixture(scope="module")
def backlog(shared_pipeline: Pipeline, operator: Operator, request: pytest.FixtureRequest) -> MaintenanceBacklog:
    """Nothing is done yet. Its steps are those of the tests that were asked for."""
    calls = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    asked = {call.params["step"] for call in calls if call}
    return MaintenanceBacklog(
        shared_pipeline, operator, {step: action for step, action in STEPS.items() if step in asked}
    )


def kill(backlog: MaintenanceBacklog, step: str) -> str:
    """Maintenance of the step's table that dies at it; why it did not."""
    failpoint = f"{step}=kill@2" if step in SECOND_TIME else f"{step}=kill"
    try:
        backlog.pipeline.command(
            "maintain", "--table", backlog.tables[step], failpoints=failpoint, expected=-signal.SIGKILL
        )
    except AssertionError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def fates(backlog: MaintenanceBacklog) -> Mapping[str, Fate]:
    """All are killed, made up for, and continued with."""
    backlog.borrow()
    found = {step: Fate() for step in backlog.steps}
    with ThreadPoolExecutor(2) as pool:
        for step, survived in zip(
            backlog.steps, pool.map(lambda step: kill(backlog, step), backlog.steps), strict=True
        ):
            found[step].survived = survived
    for step, due in backlog.due().items():
        found[step].wrong = backlog.wrong(step)
        found[step].was_due = backlog.steps[step] in due
    for step, failures in backlog.make_up().items():
        found[step].failures = failures
    for step, due in backlog.due().items():
        found[step].is_due = backlog.steps[step] in due and backlog.steps[step] != "orphans"
        found[step].left = unnamed(backlog.pipeline.metadata(backlog.tables[step]))
    for topic in backlog.topics.values():
        backlog.pipeline.feed.send(topic, events(30, 5000))
    backlog.pipeline.feed.flush()
    for upsert_table in backlog.upsert_tables.values():
        upsert_table.change(count=50)
    backlog.pipeline.document["maintenance"] = False
    backlog.pipeline.catch_up()
    return found


def test_every_step_of_maintenance_is_struck() -> None:
    assert sorted(STEPS) == sorted(step for step in FAILPOINTS if step.startswith("maintenance."))


@pytest.mark.parametrize("step", CASES)
def test_maintenance_killed_at_any_step_costs_no_row_and_is_made_up_for(
    backlog: MaintenanceBacklog, fates: Mapping[str, Fate], step: str
) -> None:
    assert fates[step] == Fate(was_due=step not in LANDED)
    if step in backlog.upsert_tables:
        backlog.upsert_tables[step].check_all()
        backlog.pipeline.check_readers(backlog.tables[step])
    else:
        backlog.pipeline.check(backlog.tables[step])
