"""Tables that mirror a topic of changes, on real parts: SIGKILL at every step, two drivers, a foreign compaction between the
look at the table and the commit. What a dictionary says is what DuckDB, PyIceberg and Spark read.
"""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.acceptance.mirrors import Mirror
from tests.acceptance.operator import Operator
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.points import Points, wait_until_gone
from tests.acceptance.running import Run
from tests.acceptance.verifier import read_newest
from tests.fixtures.foreign_spark import ForeignSpark
from tests.fixtures.readers import assert_equal_everywhere

pytestmark = pytest.mark.timeout(900)

STEPS = (
    "task.batch",
    "task.close",
    "job.after",
    "upsert.deletes",
    "upsert.resolved",
    "commit.before",
    "commit.validating",
    "commit.landed",
    "commit.after",
)
LANDED = ("commit.landed", "commit.after")
OF_FORMAT = "upsert.deletes"
"""Where what is written differs by the table's format. When there is little time, each format is struck there and at every
second one of the other steps.
"""
CASES = [
    pytest.param(step, version, marks=[] if step == OF_FORMAT or (number + version) % 2 else [pytest.mark.soak])
    for number, step in enumerate(STEPS)
    for version in (3, 2)
]
FENCED = 3


class Struck:
    """A pipeline with a mirror in each format, started again after every blow."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.points = Points(pipeline.folder / "points", *((step, "hold") for step in STEPS))
        self.marked, self.marked_topic = pipeline.add_fed_table(
            "marked",
            1,
            envelope="debezium",
            mode="upsert",
            key={"format": "json"},
            key_columns=["o.id", "region"],
            order_by="at",
            deletes="mark",
            metadata={"deleted": "is_deleted", "deleted_at": "deleted_at"},
        )
        self.mirrors = {2: Mirror(pipeline, "two", format_version=2), 3: Mirror(pipeline, "three")}
        self._run: Run | None = None

    def run(self) -> Run:
        """The running pipeline, all that was there committed."""
        for mirror in self.mirrors.values():
            mirror.change()
        if self._run is None or not self._run.is_running:
            self._run = self.pipeline.run(failpoints=self.points.declaration)
        for mirror in self.mirrors.values():
            mirror.wait(self._run)
            self.pipeline.wait_until_settled(mirror.table, self._run)
        return self._run


@pytest.fixture(scope="module")
def struck(shared_pipeline: Pipeline) -> Struck:
    """Nothing runs yet."""
    return Struck(shared_pipeline)


@pytest.mark.parametrize(("step", "version"), CASES)
def test_a_driver_killed_at_any_step_loses_and_doubles_nothing(struck: Struck, step: str, version: int) -> None:
    run, mirror = struck.run(), struck.mirrors[version]
    point = struck.points[step, "hold"]
    before = struck.pipeline.progress(mirror.table)
    with point.armed():
        mirror.change()
        point.wait(run)
        run.kill(run.pid, run.jvm_pid)
        wait_until_gone(run)
    assert run.wait() == -signal.SIGKILL
    mirror.check()
    is_landed = struck.pipeline.progress(mirror.table) != before
    assert is_landed == (step in LANDED)
    mirror.wait(struck.run())
    mirror.check_all()


def test_a_compaction_between_the_look_and_the_commit_makes_the_rows_be_looked_up_again(
    struck: Struck, operator: Operator
) -> None:
    run, mirror = struck.run(), struck.mirrors[3]
    point = struck.points["upsert.resolved", "hold"]
    keys = range(100_000, 100_200)  # Told for the first time: no row of theirs is in a file with deletes.
    mirror.put(keys)
    mirror.wait(run)
    struck.pipeline.wait_until_settled(mirror.table, run)
    with point.armed():
        mirror.put(keys)
        point.wait(run)
        assert operator.open(struck.pipeline.folder, mirror.table).rewrite_untouched_files() > 0
    mirror.wait(run)
    struck.pipeline.wait_until_settled(mirror.table, run)
    mirror.check_all()
    assert run.seen("rows_looked_up_again", table=mirror.table)
    assert not run.seen("conflict", table=mirror.table)


def test_two_drivers_of_one_mirror_make_one(pipeline: Pipeline) -> None:
    mirror = Mirror(pipeline, "contested")
    points = Points(pipeline.folder / "points", ("upsert.resolved", "hold"))
    point = points["upsert.resolved", "hold"]
    mirror.change()
    first = pipeline.run(failpoints=points.declaration)
    mirror.wait(first)
    with point.armed():
        mirror.change()
        point.wait(first)
        with first.frozen():
            point.disarm()
            second = pipeline.run()
            mirror.change()
            mirror.wait(second)
        assert first.wait() == FENCED, first.tail()
    mirror.change()
    mirror.wait(second)
    assert second.stop() == 0, second.tail()
    mirror.check_all()
    pipeline.check_readers(mirror.table)


def test_deleted_rows_stay_in_their_order_under_keys_in_structs(struck: Struck, spark: ForeignSpark) -> None:
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
        assert_equal_everywhere(metadata, spark=spark)
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
    found = tell(("u", 1, "n", 7, "late"), ("d", 3, "s", 8, None), ("u", 3, "s", 8, "anew"), ("d", 7, "n", 1, None))
    assert found == [
        row(1, "n", 9, "n1", 9), row(1, "s", 5, "s1"), row(2, "n", 5, "n2"), row(2, "s", 5, "s2"),
        row(3, "n", 6, "newer"), row(3, "s", 8, "anew"), row(7, "n", 1, None, 1),
    ]  # fmt: skip
