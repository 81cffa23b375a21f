"""Table maintenance where it is hardest: without room on the disk, and in two processes at once.

Each action has a table that owes it. One run makes all of them, one round of maintenance finds the disk full, two at
once make up for it, each held at every action until the other is there too, a third one looks for orphans when both are
about to commit, and one run continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.disks import full, small_disk
from tests.acceptance.maintenance_backlog import ROUND_S, MaintenanceBacklog
from tests.acceptance.operator import Operator
from tests.acceptance.pipelines import opened
from tests.acceptance.points import Points
from tests.acceptance.verifier import unnamed
from tests.fixtures.foreign_spark import ForeignSpark

pytestmark = pytest.mark.timeout(900)

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
def backlog(
    broker: EmbeddedBroker, spark: ForeignSpark, operator: Operator, lake: tuple[Path, bool]
) -> Iterator[MaintenanceBacklog]:
    """Nothing is done yet."""
    folder, _ = lake
    with opened(folder.parent, broker.bootstrap_servers, spark) as pipeline:
        yield MaintenanceBacklog(pipeline, operator, TABLES)


@pytest.fixture(scope="module")
def trouble(backlog: MaintenanceBacklog, lake: tuple[Path, bool]) -> Trouble:
    """All of it, and what the tables are then."""
    folder, has_disk = lake
    backlog.borrow()
    backlog.spare_orphans(SPARED_AGE)
    without_room, wrong = None, dict[str, str]()
    if has_disk:
        with full(folder):
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


def test_maintenance_that_finds_no_room_reports_so_and_costs_no_row(trouble: Trouble) -> None:
    if trouble.without_room is None:
        pytest.skip("this machine does not let us mount a small disk")
    due = {(table, action) for table, action in TABLES.items() if action != "orphans"} | {("carry", "expire")}
    failures = {(table, action): trouble.without_room[table][action]["failure"] for table, action in due}
    assert {due: words for due, words in failures.items() if NO_ROOM not in words} == {}
    assert trouble.without_room["strays"]["orphans"]["failure"] == "", "this makes room"
    assert trouble.wrong == {}


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


def test_ingestion_continues_after_it(backlog: MaintenanceBacklog, trouble: Trouble) -> None:
    assert trouble.wrong == {}
    backlog.change(9)
    backlog.pipeline.document["maintenance"] = False
    backlog.pipeline.catch_up()
    for table, upsert_table in backlog.upsert_tables.items():
        upsert_table.check_all()
        backlog.pipeline.check_readers(backlog.tables[table])
    for table in backlog.topics:
        backlog.pipeline.check(backlog.tables[table])
