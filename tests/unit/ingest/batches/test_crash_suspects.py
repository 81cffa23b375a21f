"""A record that the JVM dies of: its table is read alone and last after a restart, and stops with the range; others flow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError

from frazil.errors import UnavailableError
from frazil.ingest.batches.crash_suspects import Suspects
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Planned, Table
from frazil.ingest.tasks.task_job import Job
from frazil.report import TaskReport
from frazil.spec import TableSpec, TopicSelector
from frazil.types import Batch
from frazil_testing.twins import MemoryJobs
from tests.unit.ingest.service_scene import Scene, turn_until


class _DyingJobs(MemoryJobs):
    """Jobs whose JVM dies where they read the topic `a`."""

    def run(self, batches: Sequence[Batch], job: Job, *, pool: str) -> list[TaskReport]:
        if any("a" in batch.topics for batch in batches):
            raise Py4JNetworkError("Answer from Java side is empty")
        return super().run(batches, job, pool=pool)


class _FullJobs(MemoryJobs):
    """Jobs that find the JVM's memory full where they read the topic `a`."""

    def run(self, batches: Sequence[Batch], job: Job, *, pool: str) -> list[TaskReport]:
        if any("a" in batch.topics for batch in batches):
            raise UnavailableError("a task failed: java.lang.OutOfMemoryError: Java heap space")
        return super().run(batches, job, pool=pool)


@pytest.mark.parametrize("kind", [_DyingJobs, _FullJobs])
def test_a_table_that_the_jvm_dies_of_stops_after_restarts_and_the_others_flow(
    tmp_path: Path, kind: type[MemoryJobs]
) -> None:
    scene = Scene(tmp_path, "a", "b", "c")
    scene.jobs = kind(scene.source)
    for topic in scene.topics:
        scene.feed(topic, {"id": 1}, {"id": 2})
    deaths = 0
    for _ in range(5):
        service = scene.unconnected()
        try:
            service.run(until_caught_up=True)
        except UnavailableError:
            deaths += 1
            continue
        break
    else:
        pytest.fail("the process ends at every start")
    assert deaths == 3, "once with the others, twice alone"
    assert [row["id"] for row in scene.rows("n.b")] == [1, 2]
    assert [row["id"] for row in scene.rows("n.c")] == [1, 2]
    stopped = service.tables[0]
    assert stopped.status.run_state is RunState.STOPPED
    assert stopped.status.where == "topic a, partition 0, offsets 0 to 1"
    assert "the JVM has ended 2 times" in stopped.status.reason
    assert "then run `frazil resume n.a`" in stopped.status.remedy
    scene.jobs = MemoryJobs(scene.source)  # Its cause is gone.
    later = scene.start()
    assert turn_until(later, lambda: later.tables[0].status.run_state is RunState.STOPPED)
    later.requests.resume("n.a")
    assert turn_until(later, lambda: bool(later.tables[0].progress.commit_id))
    assert [row["id"] for row in scene.rows("n.a")] == [1, 2]
    assert not (tmp_path / "p.suspects.json").exists()


def test_the_others_are_read_first(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", "b")
    scene.jobs = _DyingJobs(scene.source)
    scene.feed("a", {"id": 1})
    first = scene.start()
    assert turn_until(first, lambda: first.fatal is not None)
    scene.feed("b", {"id": 2})
    second = scene.start()
    assert turn_until(second, lambda: second.fatal is not None)
    assert [row["id"] for row in scene.rows("n.b")] == [2]


def test_a_table_is_no_suspect_any_more_once_it_was_read(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", "b")
    jobs = scene.jobs
    scene.jobs = _DyingJobs(scene.source)
    scene.feed("a", {"id": 1})
    service = scene.start()
    assert turn_until(service, lambda: service.fatal is not None)
    assert (tmp_path / "p.suspects.json").exists()
    scene.jobs = jobs
    scene.catch_up()
    assert [row["id"] for row in scene.rows("n.a")] == [1]
    assert not (tmp_path / "p.suspects.json").exists()


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"n.a": 3}', '{"n.a": {"deaths": "x", "ranges": []}}', '{"n.a": {"deaths": 1, "ranges": [3]}}']
)
def test_a_damaged_file_names_no_suspect(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.json").write_text(text)
    table = Table(TableSpec(name="n.a", topics=(TopicSelector(literal="a"),)))
    Suspects(tmp_path / "s.json").check(Planned(table, Batch("n.a", ()), {}, {}, {}, 0.0))


def test_a_suspect_that_was_read_stops_nothing_though_its_file_stays(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"n.a": {"deaths": 1, "ranges": [["a", 0, 0, 2]]}}')
    suspects = Suspects(tmp_path / "s.json")
    (tmp_path / "s.json").unlink()
    (tmp_path / "s.json").mkdir()  # It cannot be removed, as on a disk that is read-only by now.
    suspects.clear("n.a")
    assert (tmp_path / "s.json").exists()
