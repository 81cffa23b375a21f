"""A disk without room: nothing half-written is committed, the reason is named, and with room again it continues. The end of
its run is a stop beyond its grace.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.disks import full, small_disk
from tests.acceptance.pipelines import Pipeline, opened
from tests.acceptance.points import wait_until_gone
from tests.acceptance.running import A_FEW_SECONDS, Run
from tests.acceptance.scenes import OneTable
from tests.fixtures.foreign_spark import ForeignSpark

pytestmark = pytest.mark.timeout(900)

SMALLEST_FILE_BYTES = 512
"""Less than any file that is written for a batch."""


class Cramped(OneTable):
    """On a small disk of its own, where this machine lets us mount one."""

    def __init__(self, pipeline: Pipeline, *, has_disk: bool) -> None:
        failures = ("task.write", "enospc"), ("task.close", "enospc"), ("task.write", "hold")
        super().__init__(pipeline, "cramped", *failures)
        self.has_disk = has_disk

    def start(self) -> Run:
        """Another run, which waits for no batch long."""
        return self.pipeline.run("--grace", "2s", failpoints=self.points.declaration)

    def wait_for_failures(self, run: Run, words: str) -> None:
        """Waits until the batch has failed twice for this reason: once more than could be chance."""
        failures = "table_backing_off"
        first = run.wait_for(failures, count=len(run.seen(failures, table=self.table)) + 1, table=self.table)
        again = run.wait_for(failures, count=len(run.seen(failures, table=self.table)) + 1, table=self.table)
        for event in (first, again):
            assert words in event["reason"]
            assert event["retry_in_s"] > 0

    def check(self) -> None:
        """All arrives, and nothing that failed is left in the table."""
        self.pipeline.wait_for_commit_of(self.table, self.run())
        self.pipeline.check(self.table)


@pytest.fixture(scope="module")
def cramped(broker: EmbeddedBroker, spark: ForeignSpark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cramped]:
    """On a small file system in memory when we may mount one, else on the disk that there is."""
    folder = tmp_path_factory.mktemp("disk")
    with small_disk(folder) as has_disk, opened(folder / "pipeline", broker.bootstrap_servers, spark) as pipeline:
        yield Cramped(pipeline, has_disk=has_disk)


# In time: both steps in unit/write/test_write.py.
@pytest.mark.parametrize("step", ["task.write", pytest.param("task.close", marks=pytest.mark.slow)])
def test_a_write_that_finds_no_room_is_tried_again(cramped: Cramped, step: str) -> None:
    run = cramped.run()
    with cramped.points[step, "enospc"].armed():
        cramped.produce()
        cramped.wait_for_failures(run, "No space left on device")
        assert "free disk space" in cramped.pipeline.wait_for_state(run, cramped.table, "backing off")["remedy"]
    cramped.check()


@pytest.mark.slow  # In time: a disk that is really full, below.
def test_files_that_may_not_grow_are_tried_again(cramped: Cramped) -> None:
    _wait_out_small_files(cramped)


def _wait_out_small_files(cramped: Cramped) -> None:
    run = cramped.run()
    with run.small_files_only(SMALLEST_FILE_BYTES):
        cramped.produce()
        cramped.wait_for_failures(run, "File too large")
    cramped.check()


def test_a_disk_that_is_really_full_is_waited_out(cramped: Cramped) -> None:
    if not cramped.has_disk:
        _wait_out_small_files(cramped)
        pytest.skip("this machine does not let us mount a small disk; the file size limit stands for it")
    run = cramped.run()
    with full(cramped.pipeline.folder):
        cramped.produce()
        cramped.wait_for_failures(run, "")
    cramped.check()
    assert not list(cramped.pipeline.folder.glob("frazil-data/state/*.tmp"))


@pytest.mark.last
def test_a_stop_beyond_its_grace_waits_for_no_batch(cramped: Cramped) -> None:
    run, point = cramped.run(), cramped.points["task.write", "hold"]
    before = cramped.pipeline.progress(cramped.table)
    with point.armed():
        cramped.produce()
        point.wait(run)
        assert run.stop(A_FEW_SECONDS) == 0, run.tail()
        assert run.seen("stopping", tables_in_flight=[cramped.table])
        assert run.seen("grace_period_exceeded", grace_s=2.0)
        wait_until_gone(run)
    assert not run.seen("unexpected_error"), run.tail()
    assert cramped.pipeline.progress(cramped.table) == before
