"""The budget of table maintenance: how many of its tasks run at a time, for `maintenance.cores`, whatever the size of the
table, and that it takes no thread from commits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from frazil.catalog.iceberg.data_files import MethodHandles
from frazil.catalog.iceberg.maintenance import POOL, IcebergMaintenance
from frazil.catalog.maintenance_port import Compaction
from frazil.clock import SystemClock, new_id
from frazil.maintenance.merge_task import merge_of
from frazil.maintenance.run import DELETES_OPTIONS
from frazil.runtime.jvm import Jvm
from tests.integration.lakes import Lake, noise

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

FILES = 12
"""Iceberg would read them by several tasks: it counts a file as four megabytes at least, a task is to have sixteen."""
SMALL_TARGET = 64 * 1024
BESIDE = {"deletes": 1, "orphans": 4}
"""Tasks beside `cores`: those that list files while others read what they are compared with (docs/guides/maintain.md)."""


@pytest.fixture(scope="module")
def lake(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(jvm, tmp_path_factory.mktemp("lake"))


class Tasks:
    """What Spark reports of the tasks of table maintenance."""

    def __init__(self, spark: Any) -> None:
        self._context = spark.sparkContext
        self._known = {number for number, _ in self._stages()}

    def most(self, do: Callable[[], Any]) -> int:
        """How many ran at a time at the most while this was done."""
        do()
        news = {number: times for number, times in self._stages() if number not in self._known}
        self._known |= news.keys()
        # An end comes before a beginning in the same millisecond: that one waited for it.
        moments = sorted(
            moment for times in news.values() for begin, end in times for moment in ((begin, 1), (end, -1))
        )
        running = most = 0
        for _, change in moments:
            running += change
            most = max(most, running)
        return most

    def _stages(self) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """The number of every stage so far, and when its tasks began and ended, in milliseconds."""
        jvm, scala = self._context._jvm, self._context._jsc.sc()
        scala.listenerBus().waitUntilEmpty()
        nothing, store = jvm.java.util.ArrayList(), scala.statusStore()
        stages = store.stageList(nothing, False, False, self._context._gateway.new_array(jvm.double, 0), nothing)
        for stage in map(stages.apply, range(stages.size())):
            if str(stage.schedulingPool()) == POOL and str(stage.status()) == "COMPLETE":
                tasks = store.taskList(stage.stageId(), stage.attemptId(), 1000)
                yield int(stage.stageId()), [_times(tasks.apply(place)) for place in range(tasks.size())]


def _times(task: Any) -> tuple[int, int]:
    begin = int(task.launchTime().getTime())
    return begin, begin + int(task.duration().get())


def backlog(lake: Lake) -> str:
    """A table of many files, some with deletes, in as many manifests."""
    table = f"t.large_{new_id()[:8]}"
    lake.create(table)
    java = lake.java(table)
    for name, value in {"write.delete.mode": "merge-on-read", "commit.manifest-merge.enabled": "false"}.items():
        java.updateProperties().set(name, value).commit()
    java.updateSchema().renameColumn("_partition", "word").commit()
    for number in range(FILES):
        lake.commit(table, [(number, noise(number, SMALL_TARGET)), (number + FILES, "and a row that stays")])
    for number in range(2):
        lake.spark().sql(f"DELETE FROM frazil.{table} WHERE id = {number}")
    return table


@pytest.mark.parametrize("cores", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_maintenance_has_no_more_tasks_at_a_time_than_it_may(lake: Lake, cores: int) -> None:
    table, spark = backlog(lake), lake.jvm.session()
    rows = lake.rows(table)
    table_maintenance, tasks = IcebergMaintenance(lake.catalog, lake.jvm.session, cores, merge_of), Tasks(spark)
    small = {"target-file-size-bytes": str(SMALL_TARGET), "rewrite-all": "true"}
    actions: Mapping[str, Callable[[], Any]] = {
        "statistics": lambda: table_maintenance.compute_statistics(table),
        "deletes": lambda: table_maintenance.rewrite_deletes(table, DELETES_OPTIONS),
        "manifests": lambda: table_maintenance.rewrite_manifests(table),
        "compact": lambda: table_maintenance.compact(table, Compaction(small)),
        "sort": lambda: table_maintenance.compact(table, Compaction(small, sort=("id desc",))),
        "zorder": lambda: table_maintenance.compact(table, Compaction(small, zorder=("id", "word"))),
        "orphans": lambda: table_maintenance.orphans(table, SystemClock().now_ms() - 3_600_000),
    }
    most = {action: tasks.most(do) for action, do in actions.items()}
    assert {name: count for name, count in most.items() if not 0 < count <= cores + BESIDE.get(name, 0)} == {}
    assert lake.rows(table) == rows


def test_one_task_writes_files_of_about_one_size_where_there_must_be_many(lake: Lake) -> None:
    table = f"t.long_{new_id()[:8]}"
    lake.create(table)
    rows = [(number, noise(number, 40)) for number in range(20_000)]
    lake.commit(table, rows)
    (file,) = lake.metadata(table).files
    target = file.size_bytes // 4
    options = {"target-file-size-bytes": str(target), "min-file-size-bytes": "0", "rewrite-all": "true"}
    assert lake.table_maintenance.compact(table, Compaction(options)).removed == 1
    sizes = sorted(file.size_bytes for file in lake.metadata(table).files)
    assert len(sizes) in (4, 5)
    assert target / 2 < sizes[0] <= sizes[-1] < 1.3 * target, sizes
    assert lake.rows(table) == rows


@contextmanager
def occupied(gateway: Any) -> Iterator[list[Any]]:
    """All threads of the pool with which Iceberg writes manifests of commits are busy, for a minute at most."""
    handles, jvm = MethodHandles(gateway), gateway.jvm
    latch = jvm.java.util.concurrent.CountDownLatch(1)
    end = threading.Timer(60, latch.countDown)
    waits = handles.virtual(latch.getClass(), "await", jvm.java.lang.Void.TYPE).bindTo(latch)
    task = handles.instance(handles.class_of("java.lang.Runnable"), waits)
    pools = jvm.org.apache.iceberg.util.ThreadPools
    end.start()
    try:
        yield [pools.getWorkerPool().submit(task) for _ in range(int(pools.WORKER_THREAD_POOL_SIZE))]
    finally:
        end.cancel()
        latch.countDown()


def test_an_expiry_and_a_look_take_no_thread_of_those_that_commits_write_with(lake: Lake) -> None:
    table = f"t.filled_{new_id()[:8]}"
    lake.create(table)
    lake.fill(table, 6)
    newest = lake.progress(table).snapshot_id
    chosen = [snapshot for snapshot in lake.metadata(table).snapshots if snapshot != newest][:3]
    with occupied(lake.jvm.gateway) as busy:
        lake.table_maintenance.expire(table, chosen)
        found = lake.table_maintenance.metadata(table, with_files=True)
        assert not any(task.isDone() for task in busy)
    assert found is not None
    assert (len(found.files), found.snapshots.keys() & set(chosen)) == (6, set())
