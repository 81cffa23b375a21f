"""Objects and rows stay together whatever is killed: every reference resolves, and a sweep leaves no dead pack.

`test_a_table_of_scenes_after_many_kills` is a soak: FRAZIL_KILLS for another number than 300.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from frazil.runtime.jvm import Jvm
from packages.blobs.tests.acceptance.scene_tables import SceneTable, rows_of
from packages.blobs.tests.acceptance.scenes import Scene
from tests.acceptance.operator import Operator
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.points import Points
from tests.acceptance.scenes import FENCED
from tests.acceptance.soaking import die, live_on, rng

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]
STEPS = ("blobs.pack.write", "blobs.pack.finished", "commit.before", "commit.landed")
KILLS = int(os.environ.get("FRAZIL_KILLS", "300"))
LONGEST_LIFE_MS = 4000


def check(table: SceneTable, scenes: list[Scene], operator: Operator) -> None:
    """After the last kill: all scenes are there, with their bytes, and what the kills left is removed."""
    pipeline = table.pipeline
    table.catch_up()
    assert table.samples() == rows_of(scenes)
    table.verify("--all")
    by_hand = operator.open(pipeline.folder, table.name)
    for note in ("blobs-swept-at", "blobs-compacted-at"):
        by_hand.remove_property(f"frazil.{pipeline.name}.{note}")
    table.maintain()
    by_hand.expire_all_but_newest()
    by_hand.remove_property(f"frazil.{pipeline.name}.blobs-swept-at")
    table.maintain()
    assert table.unreferenced() == []
    assert table.size_bytes() - table.live_bytes() <= 0.05 * table.size_bytes()
    assert table.samples() == rows_of(scenes)
    table.verify("--all")


# In time: half a pack, and one that no commit names; for a commit that landed, tests/acceptance/test_upserts.py.
@pytest.mark.parametrize("steps", [STEPS[::2], pytest.param(STEPS, marks=pytest.mark.slow)], ids=len)
def test_what_killed_processes_leave_is_no_part_of_the_table_and_is_swept(
    pipeline: Pipeline, jvm: Jvm, operator: Operator, steps: Sequence[str]
) -> None:
    table = SceneTable(pipeline, jvm)
    points = Points(pipeline.folder / "points", *((step, "hold") for step in steps))
    scenes: list[Scene] = []
    for turn, step in enumerate(steps):
        more = [Scene(number) for number in range(10 * turn, 10 * turn + 10)]
        point = points[step, "hold"]
        with point.armed(), pipeline.running(failpoints=point.declaration) as run:
            table.produce(more)
            scenes += more
            point.wait(run)
    check(table, scenes, operator)


# In time: the steps above. Of four kills the last meets two processes.
@pytest.mark.parametrize(
    "kills", [pytest.param(4, marks=pytest.mark.slow), pytest.param(KILLS, marks=pytest.mark.soak)]
)
@pytest.mark.timeout(4 * 3600)
def test_a_table_of_scenes_after_many_kills(pipeline: Pipeline, jvm: Jvm, operator: Operator, kills: int) -> None:
    table = SceneTable(pipeline, jvm)
    table.produce([Scene(number) for number in range(20)])
    for number in range(kills):
        first = pipeline.run()
        first.wait_for("batch_committed")
        others = [pipeline.run()] if number % 4 == 3 else []
        table.produce([Scene(n, number + 2) for n in range(20)])
        live_on(first, rng(1, number, LONGEST_LIFE_MS) / 1000)
        for run in (first, *others):
            die(run, number, FENCED)
        if number % 10 == 9:
            table.maintain()
        table.produce([Scene(n, number + 2) for n in range(20)])
    check(table, [Scene(n, kills + 1) for n in range(20)], operator)
