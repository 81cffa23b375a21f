"""Table maintenance where it is hardest: killed at every step of every action, without room on the disk, and in two
processes at once.

Each step and each action has a table that owes just that. One run makes all of them. Maintenance of each step's table is
killed, and one round makes up for it. For the other tables a round finds the disk full, two at once make up for it, each
held at every action until the other is there too, and a third one looks for orphans when both are about to commit. One
run continues with all of them. In time: step by step, and two at once, in integration/test_maintenance.py; beside ingestion
that is killed too in test_upsert_maintenance.py. A full disk under maintenance is here alone.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from docs.meanings import FAILPOINTS
from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.disks import full, small_disk
from tests.acceptance.ledger import events
from tests.acceptance.maintenance_backlog import ROUND_S, MaintenanceBacklog
from tests.acceptance.operator import Operator
from tests.acceptance.pipelines import opened
from tests.acceptance.points import Points
from tests.acceptance.verifier import unnamed
from tests.fixtures.foreign_spark import ForeignSpark

pytestmark = pytest.mark.timeout(1800)  # One test's setup may be all of it.

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
    "maintenance.carry.landed",
    "maintenance.orphans.deleting",
)
"""One of each action that can cost a row; the others are soaks."""
CASES = [pytest.param(step, marks=pytest.mark.slow if step in IN_TIME else pytest.mark.soak) for step in STEPS]
LANDED = tuple(step for step in STEPS if step.endswith(".landed"))
SECOND_TIME = ("maintenance.orphans.deleting",)
"""Steps that are struck when some of the action is done."""

TABLES = {
    "carry": "carry",
    "compact": "compact",
    "deletes": "deletes",
    "manifests": "manifests",
    "statistics": "statistics",
    "strays": "orphans",
}
"""Tables, and the action that each owes, in the order in which a round comes to them: what makes room is the last. The first
one has snapshots that are due to be expired as well.
"""
REWRITES = ("compact", "deletes", "manifests")
WRITTEN = "maintenance.compact.written"
"""Where both have files for the table `compact` that no snapshot names."""
MEETINGS = (
    "maintenance.carry.begins",
    "maintenance.expire.begins",
    WRITTEN,
    "maintenance.deletes.begins",
    "maintenance.manifests.begins",
    "maintenance.statistics.begins",
    "maintenance.orphans.deleting",
)
"""Where both rounds know the table as it was and neither has changed it, in the order in which they come there."""
NO_ROOM = "No space left on device"
SPARED_AGE = "24h"
"""Files that another round is about to commit are younger."""
Ends = Mapping[str, Mapping[str, Any]]
"""How the actions of a table ended, by their kinds."""


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


@dataclass
class Trouble:
    """What came of it. without_room: how the round on the full disk ended, by table, None where no disk could be mounted;
    at_once: the same of the two rounds; third: how the one beside them ended; wrong: what was wrong with the rows of a table
    after either; left: files that no snapshot names in the end.
    """

    without_room: Mapping[str, Ends] | None
    at_once: list[Mapping[str, Ends]]
    third: Ends
    wrong: Mapping[str, str]
    left: Mapping[str, frozenset[str]]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, bool]]:
    """A pipeline's own folder for its tables; whether it is a small disk."""
    folder = tmp_path_factory.mktemp("maintenance") / "frazil-data"
    folder.mkdir()
    with small_disk(folder) as has_disk:
        yield folder, has_disk


@pytest.fixture(scope="module")
def killed_at(request: pytest.FixtureRequest) -> list[str]:
    """The steps of the tests that were asked for."""
    calls = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    asked = {call.params["step"] for call in calls if call}
    return [step for step in STEPS if step in (asked or IN_TIME)]


@pytest.fixture(scope="module")
def backlog(
    broker: EmbeddedBroker,
    spark: ForeignSpark,
    operator: Operator,
    lake: tuple[Path, bool],
    killed_at: list[str],
) -> Iterator[MaintenanceBacklog]:
    """Every table owes what it is to owe."""
    folder, _ = lake
    with opened(folder.parent, broker.bootstrap_servers, spark) as pipeline:
        made = MaintenanceBacklog(pipeline, operator, TABLES | {step: STEPS[step] for step in killed_at})
        made.borrow()
        yield made


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
def fates(backlog: MaintenanceBacklog, killed_at: list[str]) -> Mapping[str, Fate]:
    """All are killed and made up for."""
    found = {step: Fate() for step in killed_at}
    with backlog.part(killed_at) as struck, ThreadPoolExecutor(2) as pool:
        for step, survived in zip(killed_at, pool.map(lambda step: kill(struck, step), killed_at), strict=True):
            found[step].survived = survived
        for step, due in struck.due().items():
            found[step].wrong = struck.wrong(step)
            found[step].was_due = STEPS[step] in due
        for step, failures in struck.make_up().items():
            found[step].failures = failures
        for step, due in struck.due().items():
            found[step].is_due = STEPS[step] in due and STEPS[step] != "orphans"
            found[step].left = unnamed(struck.pipeline.metadata(struck.tables[step]))
    return found


@pytest.fixture(scope="module")
def trouble(backlog: MaintenanceBacklog, lake: tuple[Path, bool]) -> Trouble:
    """All of it, and what the tables are then."""
    folder, has_disk = lake
    with backlog.part(list(TABLES)) as troubled:
        return find_trouble(troubled, folder if has_disk else None)


def find_trouble(backlog: MaintenanceBacklog, disk: Path | None) -> Trouble:
    """Without room on the disk, where there is one, and by two at once."""
    backlog.spare_orphans(SPARED_AGE)
    without_room, wrong = None, dict[str, str]()
    if disk is not None:
        with full(disk):
            without_room = ends(backlog, backlog.pipeline.command("maintain", expected=1, within_s=ROUND_S))
        wrong |= {f"{table}, without room": words for table in TABLES if (words := backlog.wrong(table))}
    backlog.strew("strays")
    at_once, third = maintain_twice(backlog)
    wrong |= {f"{table}, by two at once": words for table in TABLES if (words := backlog.wrong(table))}
    left = {table: unnamed(backlog.pipeline.metadata(name)) for table, name in backlog.tables.items()}
    return Trouble(without_room, at_once, third, wrong, {table: files for table, files in left.items() if files})


def ends(backlog: MaintenanceBacklog, reported: Mapping[str, Any]) -> Mapping[str, Ends]:
    """How a round ended, by its own account."""
    return {
        table: {end["action"]: end for end in reported["tables"][name]["actions"]}
        for table, name in backlog.tables.items()
    }


def maintain_twice(backlog: MaintenanceBacklog) -> tuple[list[Mapping[str, Ends]], Ends]:
    """Two rounds for all tables that meet at each action, and one more beside them."""
    third: Ends = {}
    points = Points(backlog.pipeline.folder / "points", *((step, "hold") for step in MEETINGS))
    with ThreadPoolExecutor(2) as pool, ExitStack() as held:
        for step in MEETINGS:
            held.enter_context(points[step, "hold"].armed())
        rounds = [
            pool.submit(backlog.pipeline.command, "maintain", failpoints=points.declaration, within_s=ROUND_S)
            for _ in range(2)
        ]
        for step in MEETINGS:
            points[step, "hold"].wait_for_all(2, ROUND_S / 4)
            if step == WRITTEN:
                third = backlog.remove_orphans("compact", SPARED_AGE)
            points[step, "hold"].disarm()
        return [ends(backlog, one.result()) for one in rounds], third


@pytest.fixture(scope="module")
def continued(backlog: MaintenanceBacklog, fates: object, trouble: object) -> MaintenanceBacklog:  # noqa: ARG001
    """After all of it more records have come to every table."""
    for topic in backlog.topics.values():
        backlog.pipeline.feed.send(topic, events(30, 5000))
    backlog.pipeline.feed.flush()
    for upsert_table in backlog.upsert_tables.values():
        upsert_table.change(count=50)
    backlog.pipeline.document["maintenance"] = False
    backlog.pipeline.catch_up()
    return backlog


def check(backlog: MaintenanceBacklog, step: str) -> None:
    """The step's table is complete, for every reader."""
    if step in backlog.upsert_tables:
        backlog.upsert_tables[step].check_all()
        backlog.pipeline.check_readers(backlog.tables[step])
    else:
        backlog.pipeline.check(backlog.tables[step])


@pytest.mark.slow
def test_maintenance_that_finds_no_room_reports_so_and_costs_no_row(trouble: Trouble) -> None:
    if trouble.without_room is None:
        pytest.skip("this machine does not let us mount a small disk")
    due = {(table, action) for table, action in TABLES.items() if action != "orphans"} | {("carry", "expire")}
    failures = {(table, action): trouble.without_room[table][action]["failure"] for table, action in due}
    assert {due: words for due, words in failures.items() if NO_ROOM not in words} == {}
    assert trouble.without_room["strays"]["orphans"]["failure"] == "", "this makes room"
    assert trouble.wrong == {}


@pytest.mark.slow
def test_of_two_rounds_at_once_one_does_what_is_due_and_nothing_is_lost(trouble: Trouble) -> None:
    for found in trouble.at_once:
        assert [
            end for kinds in found.values() for end in kinds.values() if end["failure"] and not end["conflict"]
        ] == []
    for action in REWRITES:
        removed = sorted(found[action][action]["rewritten"]["removed"] for found in trouble.at_once)
        assert (removed[0], removed[1] > 0) == (0, True), action
    third = {action: (end["failure"], end["rewritten"]["removed"]) for action, end in trouble.third.items()}
    assert third == {"orphans": ("", 0)}
    assert (trouble.wrong, trouble.left) == ({}, {})


def test_every_step_of_maintenance_is_struck() -> None:
    assert sorted(STEPS) == sorted(step for step in FAILPOINTS if step.startswith("maintenance."))


@pytest.mark.parametrize("step", CASES)
def test_maintenance_killed_at_any_step_costs_no_row_and_is_made_up_for(
    continued: MaintenanceBacklog, fates: Mapping[str, Fate], step: str
) -> None:
    assert fates[step] == Fate(was_due=step not in LANDED)
    check(continued, step)


@pytest.mark.slow
def test_ingestion_continues_after_it(continued: MaintenanceBacklog, trouble: Trouble) -> None:
    assert trouble.wrong == {}
    for table in TABLES:
        check(continued, table)
