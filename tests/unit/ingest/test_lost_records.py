"""Records that are gone before they were read, and may be: what was skipped is reported in full, and once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from frazil.errors import UnavailableError
from frazil.ingest.tasks.task_job import Job
from frazil.report import TaskReport
from frazil.types import Batch
from tests.unit.ingest.service_scene import Scene, only, turn_until


def ten_read_of_forty(root: Path) -> Scene:
    """Records 0 to 9 are rows; 10 to 39 are there, of which 10 to 19 are lost."""
    scene = Scene(root, "a", on_data_loss="skip")
    scene.feed("a", *({"x": n} for n in range(10)))
    scene.catch_up()
    scene.feed("a", *({"x": n} for n in range(10, 40)))
    scene.source.trim("a", 0, 20)
    return scene


def test_what_was_skipped_before_a_batch_failed_is_in_the_commit_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = ten_read_of_forty(tmp_path)
    read = scene.jobs.run

    def lose_more(batches: Sequence[Batch], job: Job, *, pool: str) -> list[TaskReport]:
        if not scene.source.by_name["a"].first[0] >= 30:
            scene.source.trim("a", 0, 30)
            raise UnavailableError("a task failed: offsets are gone")
        return read(batches, job, pool=pool)

    monkeypatch.setattr(scene.jobs, "run", lose_more)
    with capture_logs() as logged:
        table = only(scene.catch_up())
    assert scene.progress().batch.skipped == {"a": {0: (10, 30)}}
    assert [row["x"] for row in scene.rows("n.a")] == [*range(10), *range(30, 40)]
    assert table.offsets.skipped_offsets == 20
    lost = [(event["first"], event["last"]) for event in logged if event["event"] == "records_skipped"]
    assert lost == [(10, 19), (20, 29)]


@pytest.mark.parametrize("loss", ["outcome", "answer"])
def test_what_a_commit_has_skipped_is_not_reported_again_by_the_next(tmp_path: Path, loss: str) -> None:
    scene = ten_read_of_forty(tmp_path)
    service = scene.start()
    scene.catalog.losses.append(loss)
    assert turn_until(service, lambda: only(service.tables).progress.offsets == {"a": {0: 40}})
    scene.feed("a", {"x": 40})
    assert turn_until(service, lambda: only(service.tables).progress.offsets == {"a": {0: 41}})
    newest, before, *_ = scene.catalog.ancestors("n.a")
    assert before.summary["frazil.p.skipped"] == '{"a":{"0":[10,20]}}'
    assert "frazil.p.skipped" not in newest.summary
    assert [row["x"] for row in scene.rows("n.a")] == [*range(10), *range(20, 41)]


def test_what_was_skipped_by_a_commit_whose_dead_letters_are_not_delivered_is_not_reported_again(
    tmp_path: Path,
) -> None:
    scene = ten_read_of_forty(tmp_path)
    service = scene.start()
    scene.feed("a", b"not json")
    scene.catalog.losses += ["", "question"]  # The commit lands; that of its dead letters never arrives.
    assert turn_until(service, lambda: only(service.tables).progress.offsets == {"a": {0: 41}})
    scene.feed("a", {"x": 41})
    assert turn_until(service, lambda: only(service.tables).progress.offsets == {"a": {0: 42}})
    reported = [snapshot.summary.get("frazil.p.skipped") for snapshot in scene.catalog.ancestors("n.a")]
    assert reported == [None, '{"a":{"0":[10,20]}}', None]
    assert scene.dead_letters("n.a") == [("a", 0, 40)]
