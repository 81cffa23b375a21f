"""SIGKILL of a real `frazil maintain` at every step of every action of table care.

Each step has a table of its own that owes just that. One run makes all of them, each is killed in its care, one round makes
up for all of it, and one run goes on.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from docs.meanings import FAILPOINTS
from tests.acceptance.ledger import events
from tests.acceptance.mirrors import Mirror
from tests.acceptance.operator import Operator
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.running import Run
from tests.acceptance.verifier import unnamed

pytestmark = pytest.mark.timeout(900)

STEPS: Mapping[str, str] = {
    "care.planned": "compact",
    "care.compact.begins": "compact",
    "care.compact.written": "compact",
    "care.compact.landed": "compact",
    "care.deletes.begins": "deletes",
    "care.deletes.landed": "deletes",
    "care.manifests.begins": "manifests",
    "care.manifests.landed": "manifests",
    "care.expire.begins": "expire",
    "care.expire.landed": "expire",
    "care.carry.begins": "carry",
    "care.carry.landed": "carry",
    "care.orphans.found": "orphans",
    "care.orphans.deleting": "orphans",
    "care.statistics.begins": "statistics",
    "care.statistics.landed": "statistics",
}
"""Steps, and the action that each is a step of."""
IN_TIME = (
    "care.planned",
    "care.compact.written",
    "care.compact.landed",
    "care.deletes.landed",
    "care.manifests.landed",
    "care.expire.begins",
    "care.carry.landed",
    "care.orphans.deleting",
    "care.statistics.begins",
)
"""One of each action at least, when there is little time."""
CASES = [pytest.param(step, marks=[] if step in IN_TIME else [pytest.mark.soak]) for step in STEPS]
LANDED = tuple(step for step in STEPS if step.endswith(".landed"))
SECOND_TIME = ("care.orphans.deleting",)
"""Steps that are struck when some of the action is done."""
PARTITIONS = 110
"""So many files, each in a manifest of its own, are more than are left alone."""
ORPHANS = 150
"""More than are removed at once."""
ROUND_S = 600.0
"""As long as a round of care for all tables may take on a busy machine."""
LEFT_ALONE = {"small_file_share": "100%"}
CARE: Mapping[str, Mapping[str, Any]] = {
    "compact": {},
    "deletes": {},
    "manifests": {},
    "expire": {**LEFT_ALONE, "snapshots": {"count": 2}},
    "carry": {**LEFT_ALONE, "snapshots": {"count": 2}},
    "orphans": {**LEFT_ALONE, "orphans": {"age": "1ms"}},
    "statistics": {**LEFT_ALONE, "statistics": True},
}


@dataclass
class Fate:
    """What became of a table. survived: why its care was not killed as it should. wrong: what was wrong with its rows then.
    was_due: whether the action still was. failures: of the round that made up for it; is_due: whether the action is due
    after that; left: files that no snapshot names.
    """

    survived: str = ""
    wrong: str = ""
    was_due: bool = False
    failures: tuple[str, ...] = ()
    is_due: bool = False
    left: frozenset[str] = frozenset()


class Owing:
    """A pipeline with a table for each step."""

    def __init__(self, pipeline: Pipeline, operator: Operator, steps: Mapping[str, str]) -> None:
        """steps: those that are struck, and the action of each."""
        self.pipeline = pipeline
        self.steps = steps
        self._operator = operator
        self.topics: dict[str, str] = {}
        self.tables: dict[str, str] = {}
        self.mirrors: dict[str, Mirror] = {}
        for step, action in self.steps.items():
            name = step.replace(".", "_")
            if action == "deletes":
                self.mirrors[step] = Mirror(pipeline, name, partitions=1, format_version=2)
                self.tables[step] = self.mirrors[step].table
            else:
                layout = {"partition_by": ["id"]} if action == "manifests" else {}
                self.tables[step], self.topics[step] = pipeline.add_fed_table(name, 1, **layout)

    def borrow(self) -> None:
        """Every table comes to owe what its step is about."""
        self.pipeline.document["maintenance"] = False
        for topic in self.topics.values():
            self.pipeline.feed.send(topic, events(PARTITIONS))
        for mirror in self.mirrors.values():
            mirror.put(range(2000))  # So that few of them are deleted, which would be a reason to rewrite the file.
        self.pipeline.feed.flush()
        with self.pipeline.running() as run:
            self._wait(run)
            for number in range(1, 5):
                self._change(number)
                self._wait(run)
            assert run.stop() == 0, run.tail()
        for step, action in self.steps.items():
            self._change_by_hand(step, action)
            self._set_care(step, CARE[action])

    def _change(self, number: int) -> None:
        for step, topic in self.topics.items():
            if self.steps[step] != "manifests":
                self.pipeline.feed.send(topic, events(20, number * 1000))
        for mirror in self.mirrors.values():
            mirror.drop([2 * number, 2 * number + 1])
        self.pipeline.feed.flush()

    def _change_by_hand(self, step: str, action: str) -> None:
        table = self._operator.open(self.pipeline.folder, self.tables[step])
        if action == "manifests":
            table.scatter_manifests()
        if action == "deletes":
            table.repeat_deletes(3)
        for _ in range(3 if action == "carry" else 0):
            table.append_nothing()
        if action == "orphans":
            metadata = self.pipeline.metadata(self.tables[step])
            assert metadata is not None
            data = metadata.parent.parent / "data"
            some = next(data.rglob("*.parquet"))
            for number in range(ORPHANS):
                shutil.copy(some, data / f"orphan-{number}.parquet")

    def _set_care(self, step: str, settings: Mapping[str, Any]) -> None:
        """From now on the table is cared for."""
        declared = self.pipeline.document["tables"][self.tables[step]]
        declared["maintenance"] = {**settings, "snapshots": settings.get("snapshots", {"count": 50})}

    def _wait(self, run: Run) -> None:
        for table in self.tables.values():
            self.pipeline.wait_for_commit_of(table, run)

    def kill(self, step: str) -> str:
        """Care of the step's table that dies at it; why it did not."""
        failpoint = f"{step}=kill@2" if step in SECOND_TIME else f"{step}=kill"
        try:
            self.pipeline.command(
                "maintain", "--table", self.tables[step], failpoints=failpoint, expected=-signal.SIGKILL
            )
        except AssertionError as error:
            return str(error)
        return ""

    def wrong(self, step: str) -> str:
        """What is wrong with the rows of the step's table."""
        if step in self.mirrors:
            try:
                self.mirrors[step].check()
            except AssertionError as error:
                return str(error)
            return ""
        return "; ".join(self.pipeline.verify(self.tables[step]).problems)

    def due(self) -> Mapping[str, list[str]]:
        """What care would do for each step's table."""
        planned = self.pipeline.command("maintain", "--dry-run")["tables"]
        return {step: [action["action"] for action in planned[table]["actions"]] for step, table in self.tables.items()}

    def make_up(self) -> Mapping[str, tuple[str, ...]]:
        """One round for all tables, which removes every orphan too; what failed, by step."""
        for step, action in self.steps.items():
            self._set_care(step, {**CARE[action], "orphans": {"age": "1ms"}})
        done = self.pipeline.command("maintain", within_s=ROUND_S)["tables"]
        return {
            step: tuple(action["failure"] for action in done[table]["actions"] if action["failure"])
            for step, table in self.tables.items()
        }


@pytest.fixture(scope="module")
def owing(shared_pipeline: Pipeline, operator: Operator, request: pytest.FixtureRequest) -> Owing:
    """Nothing is done yet. Its steps are those of the tests that were asked for."""
    calls = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    asked = {call.params["step"] for call in calls if call}
    return Owing(shared_pipeline, operator, {step: action for step, action in STEPS.items() if step in asked})


@pytest.fixture(scope="module")
def fates(owing: Owing) -> Mapping[str, Fate]:
    """All are killed, made up for, and gone on with."""
    owing.borrow()
    found = {step: Fate() for step in owing.steps}
    with ThreadPoolExecutor(2) as pool:
        for step, survived in zip(owing.steps, pool.map(owing.kill, owing.steps), strict=True):
            found[step].survived = survived
    for step, due in owing.due().items():
        found[step].wrong = owing.wrong(step)
        found[step].was_due = owing.steps[step] in due
    for step, failures in owing.make_up().items():
        found[step].failures = failures
    for step, due in owing.due().items():
        found[step].is_due = owing.steps[step] in due and owing.steps[step] != "orphans"
        found[step].left = unnamed(owing.pipeline.metadata(owing.tables[step]))
    for topic in owing.topics.values():
        owing.pipeline.feed.send(topic, events(30, 5000))
    owing.pipeline.feed.flush()
    for mirror in owing.mirrors.values():
        mirror.change(count=50)
    owing.pipeline.document["maintenance"] = False
    owing.pipeline.catch_up()
    return found


def test_every_step_of_care_is_struck() -> None:
    assert sorted(STEPS) == sorted(step for step in FAILPOINTS if step.startswith("care."))


@pytest.mark.parametrize("step", CASES)
def test_care_killed_at_any_step_costs_no_row_and_is_made_up_for(
    owing: Owing, fates: Mapping[str, Fate], step: str
) -> None:
    assert fates[step] == Fate(was_due=step not in LANDED)
    if step in owing.mirrors:
        owing.mirrors[step].check_all()
        owing.pipeline.check_readers(owing.tables[step])
    else:
        owing.pipeline.check(owing.tables[step])
