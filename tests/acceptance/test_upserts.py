"""Upsert tables on real services: SIGKILL at every step, two drivers, a foreign compaction
between the look at the table and the commit. What a dictionary reports is what DuckDB, PyIceberg and Spark read.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from frazil.runtime.jvm import Jvm
from tests.acceptance.operator import Operator
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.points import Points, wait_until_gone
from tests.acceptance.running import Run
from tests.acceptance.upsert_tables import UpsertTable
from tests.acceptance.verifier import read_newest

pytestmark = pytest.mark.timeout(900)

Blow = Sequence[tuple[str, int]]


def _words(blow: Blow) -> str:
    return ", ".join(f"{step} in format {version}" for step, version in blow)


BLOWS = (
    (("commit.after", 2), ("commit.landed", 2), ("upsert.resolved", 3), ("upsert.deletes", 3), ("task.batch", 3)),
    (("commit.after", 3), ("commit.validating", 2), ("commit.before", 2), ("upsert.deletes", 2), ("task.close", 2)),
    (("commit.landed", 3), ("commit.validating", 3), ("commit.before", 3), ("upsert.resolved", 2), ("job.after", 3)),
)
"""Steps that one blow strikes, each in an upsert table of its own, and the upsert table's format; in the order in which
the upsert tables are brought to them. The last is one of the job: no other job begins while it is held. Of the others
there are no more than hands for commits.
"""
OTHER_FORMATS = ((("task.batch", 2),), (("task.close", 3),), (("job.after", 2),))
"""What is the same in both formats; when there is little time it is struck in one of them."""
CASES = [
    pytest.param(BLOWS[0], id=_words(BLOWS[0])),
    # In time: the other steps of tables in test_kills.py, of upsert tables in simulation/test_histories.py.
    *(pytest.param(blow, id=_words(blow), marks=pytest.mark.slow) for blow in BLOWS[1:]),
    *(pytest.param(blow, id=_words(blow), marks=pytest.mark.soak) for blow in OTHER_FORMATS),
]
LANDED = ("commit.landed", "commit.after")
FENCED = 3


class Struck:
    """A pipeline with upsert tables in each format, as many as a blow needs, started again after every blow."""

    def __init__(self, pipeline: Pipeline, blows: Sequence[Blow]) -> None:
        self.pipeline = pipeline
        self.points = Points(pipeline.folder / "points", *((step, "hold") for blow in BLOWS for step, _ in blow))
        self.marked, self.marked_topic = pipeline.add_fed_table(
            "marked",
            1,
            envelope="debezium",
            mode="upsert",
            key={"format": "json"},
            key_columns=["o.id", "region"],
            order_by="at",
            deletes="soft",
            metadata={"deleted": "is_deleted", "deleted_at": "deleted_at"},
        )
        self.compacted = UpsertTable(pipeline, "compacted")
        at_once = {version: max(sum(one == version for _, one in blow) for blow in (*blows, ())) for version in (2, 3)}
        self.upsert_tables = {
            version: [
                UpsertTable(pipeline, f"upsert_table{number}_of_{version}", format_version=version)
                for number in range(count)
            ]
            for version, count in at_once.items()
        }
        self._run: Run | None = None

    def run(self) -> Run:
        """The running pipeline."""
        if self._run is None or not self._run.is_running:
            self._run = self.pipeline.run(failpoints=self.points.declaration)
        return self._run

    def filled(self) -> Run:
        """The running pipeline, changes of every table that can be struck committed and no batch at any step."""
        upsert_tables = [upsert_table for some in self.upsert_tables.values() for upsert_table in some]
        for upsert_table in upsert_tables:
            upsert_table.change()
        run = self.run()
        for upsert_table in upsert_tables:
            upsert_table.wait(run)
            self.pipeline.wait_until_settled(upsert_table.table, run)
        return run


@pytest.fixture(scope="module")
def struck(shared_pipeline: Pipeline, request: pytest.FixtureRequest) -> Struck:
    """Nothing runs yet."""
    here = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    return Struck(shared_pipeline, [item.callspec.params["blow"] for item in here])


@pytest.mark.parametrize("blow", CASES)
def test_a_driver_killed_at_any_step_loses_and_doubles_nothing(struck: Struck, blow: Blow) -> None:
    run = struck.filled()
    free = {version: list(upsert_tables) for version, upsert_tables in struck.upsert_tables.items()}
    upsert_tables = {step: free[version].pop() for step, version in blow}
    before = {step: struck.pipeline.progress(upsert_table.table) for step, upsert_table in upsert_tables.items()}
    with ExitStack() as armed:
        for step, upsert_table in upsert_tables.items():
            armed.enter_context(struck.points[step, "hold"].armed())
            upsert_table.change()
            struck.points[step, "hold"].wait(run)
        run.kill(run.pid, run.jvm_pid)
        wait_until_gone(run)
    assert run.wait() == -signal.SIGKILL
    for step, upsert_table in upsert_tables.items():
        upsert_table.check()
        is_landed = struck.pipeline.progress(upsert_table.table) != before[step]
        assert is_landed == (step in LANDED), step
    for upsert_table in upsert_tables.values():
        upsert_table.change()
    run = struck.run()
    for upsert_table in upsert_tables.values():
        upsert_table.wait(run)
        upsert_table.check_all()


def test_every_step_is_struck_in_both_formats() -> None:
    struck = [one for blow in (*BLOWS, *OTHER_FORMATS) for one in blow]
    assert sorted(struck) == sorted((step, version) for step in {step for step, _ in struck} for version in (2, 3))


@pytest.mark.slow  # In time: integration/test_maintenance_layouts.py, and under load test_upsert_maintenance.py.
def test_a_compaction_between_look_up_and_commit_repeats_the_look_up(struck: Struck, operator: Operator) -> None:
    run, upsert_table = struck.run(), struck.compacted
    point = struck.points["upsert.resolved", "hold"]
    keys = range(100_000, 100_200)  # Told for the first time: no row of theirs is in a file with deletes.
    upsert_table.put(keys)
    upsert_table.wait(run)
    struck.pipeline.wait_until_settled(upsert_table.table, run)
    with point.armed():
        upsert_table.put(keys)
        point.wait(run)
        assert operator.open(struck.pipeline.folder, upsert_table.table).rewrite_untouched_files() > 0
    upsert_table.wait(run)
    struck.pipeline.wait_until_settled(upsert_table.table, run)
    upsert_table.check_all()
    assert run.seen("lookup_repeated", table=upsert_table.table)
    assert not run.seen("commit_conflict", table=upsert_table.table)


@pytest.mark.slow  # In time: test_lost_answers.py, and on the twins in simulation/test_histories.py.
def test_two_drivers_of_one_upsert_table_make_one(pipeline: Pipeline) -> None:
    upsert_table = UpsertTable(pipeline, "contested")
    points = Points(pipeline.folder / "points", ("upsert.resolved", "hold"))
    point = points["upsert.resolved", "hold"]
    upsert_table.change()
    first = pipeline.run(failpoints=points.declaration)
    upsert_table.wait(first)
    with point.armed():
        upsert_table.change()
        point.wait(first)
        with first.frozen():
            point.disarm()
            second = pipeline.run()
            upsert_table.change()
            upsert_table.wait(second)
        assert first.wait() == FENCED, first.tail()
    upsert_table.change()
    upsert_table.wait(second)
    assert second.stop() == 0, second.tail()
    upsert_table.check_all()
    pipeline.check_readers(upsert_table.table)


def test_deleted_rows_stay_in_their_order_under_keys_in_structs(struck: Struck) -> None:
    def tell(*changes: tuple[str, int, str, int, str | None]) -> list[dict[str, Any]]:
        for op, number, region, at, text in changes:
            key = {"o": {"id": number}, "region": region}
            image = {"o": {"id": number, "x": text}, "region": region, "at": at, "text": text}
            images = {"before": image, "after": None} if op == "d" else {"before": None, "after": image}
            value = {"op": op, **images, "source": {"ts_ms": 1000 * at}}
            struck.pipeline.feed.send(struck.marked_topic, [value], 0, json.dumps(key).encode())
        struck.pipeline.feed.flush()
        struck.pipeline.wait_for_commit_of(struck.marked, struck.run())
        metadata = struck.pipeline.metadata(struck.marked)
        assert metadata is not None
        struck.pipeline.check_readers(struck.marked)
        rows = [
            {**row, "deleted_at": row["deleted_at"] and row["deleted_at"].timestamp()} for row in read_newest(metadata)
        ]
        return sorted(rows, key=lambda row: (row["o"]["id"], row["region"]))

    def row(number: int, region: str, at: int, text: str | None, deleted_at: int | None = None) -> dict[str, Any]:
        gone = {"is_deleted": deleted_at is not None, "deleted_at": deleted_at}
        return {"o": {"id": number, "x": text}, "region": region, "at": at, "text": text, **gone}

    made = [("c", number, region, 5, f"{region}{number}") for number in (1, 2, 3) for region in ("n", "s")]
    assert tell(*made) == [row(number, region, 5, f"{region}{number}") for number in (1, 2, 3) for region in ("n", "s")]
    found = tell(("d", 1, "n", 9, None), ("u", 2, "n", 4, "late"), ("d", 2, "s", 4, None), ("u", 3, "n", 6, "newer"))
    assert found == [
        row(1, "n", 9, "n1", 9), row(1, "s", 5, "s1"), row(2, "n", 5, "n2"), row(2, "s", 5, "s2"),
        row(3, "n", 6, "newer"), row(3, "s", 5, "s3"),
    ]  # fmt: skip
    found = tell(("u", 1, "n", 7, "late"), ("d", 3, "s", 8, None), ("u", 3, "s", 8, "again"), ("d", 7, "n", 1, None))
    assert found == [
        row(1, "n", 9, "n1", 9), row(1, "s", 5, "s1"), row(2, "n", 5, "n2"), row(2, "s", 5, "s2"),
        row(3, "n", 6, "newer"), row(3, "s", 8, "again"), row(7, "n", 1, None, 1),
    ]  # fmt: skip


@pytest.mark.last
def test_the_command_verify_agrees_that_no_table_differs(struck: Struck, jvm: Jvm) -> None:
    struck.compacted.change()
    struck.compacted.wait(struck.run())
    struck.pipeline.check_by_verify(jvm)
