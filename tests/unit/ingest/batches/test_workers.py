"""Workers that are threads: waited for, or abandoned."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.types import LongType

from frazil.ingest.batches.workers import COMMIT_THREADS, SLOW_S, ThreadWorkers, store_of
from frazil.schema.evolve import new_schema
from frazil_testing.twins import FakeClock, MemoryCatalog


class Held:
    """Work that takes until it is released."""

    def __init__(self, workers: ThreadWorkers, worker: str) -> None:
        self.begun, self._end = threading.Event(), threading.Event()
        workers.submit(worker, self, self._work)

    def _work(self) -> None:
        self.begun.set()
        assert self._end.wait(60)

    def release(self) -> None:
        self._end.set()


def finished(workers: ThreadWorkers, count: int) -> list[object]:
    """What the next so many answers are about."""
    answers: list[object] = []
    while len(answers) < count:
        answers += [done.then for done in workers.wait(10)]
    return answers


def test_a_worker_with_one_place_does_one_piece_of_work_after_the_other() -> None:
    workers = ThreadWorkers()
    done: list[int] = []
    for number in range(3):
        workers.submit("small", number, partial(done.append, number))
    assert finished(workers, 3) == [0, 1, 2] == done
    assert workers.is_idle
    workers.close()


def test_work_that_takes_too_long_gives_its_place_to_the_next_as_often_as_the_worker_allows() -> None:
    clock = FakeClock()
    workers = ThreadWorkers(clock)
    hanging = [Held(workers, "small") for _ in range(3)]
    assert not workers.is_free("small")
    clock.sleep(SLOW_S + 1)
    workers.wait(0)
    assert hanging[1].begun.wait(10)
    clock.sleep(SLOW_S + 1)
    workers.wait(0)
    assert not hanging[2].begun.is_set(), "two jobs hang: a third would take the last slot"
    for one in hanging:
        one.release()
    assert set(finished(workers, 3)) == set(hanging)
    workers.close()


def test_commits_that_hang_hold_up_no_other_for_longer_than_they_may() -> None:
    clock = FakeClock()
    workers = ThreadWorkers(clock)
    hanging = [Held(workers, "commit:s3") for _ in range(COMMIT_THREADS)]
    assert not workers.is_free("commit:s3")
    assert workers.is_free("commit:file"), "another store has a worker of its own"
    clock.sleep(SLOW_S + 1)
    workers.submit("commit:s3", "other", lambda: None)
    assert finished(workers, 1) == ["other"]
    for one in hanging:
        one.release()
    finished(workers, len(hanging))
    workers.close()


@pytest.mark.parametrize(
    ("location", "properties", "store"),
    [
        ("/data/w/t", {}, "file"),
        ("file:///data/w/t", {}, "file"),
        ("s3://a/t", {"s3.endpoint": "http://h:1"}, "s3:http://h:1"),
        ("s3a://b/t", {"s3.endpoint": "http://h:1"}, "s3:http://h:1"),
        ("s3://a/t", {"s3.endpoint": "http://other:1"}, "s3:http://other:1"),
        ("gs://a/t", {}, "gcs"),
        ("hdfs://one:8020/t", {}, "hdfs:one:8020"),
        ("abfss://box@account.dfs.core.windows.net/t", {}, "abfs:account.dfs.core.windows.net"),
    ],
)
def test_tables_whose_stores_may_hang_apart_have_workers_apart(
    tmp_path: Path, location: str, properties: dict[str, str], store: str
) -> None:
    state = MemoryCatalog(tmp_path, "p").create("n.t", new_schema([("x", LongType())]), {}, 2)
    assert store_of(replace(state, location=location, io_properties=properties)) == store
    assert store_of(None) == ""


def test_workers_that_are_given_up_wait_for_nothing_and_begin_nothing() -> None:
    workers, begun, held = ThreadWorkers(), threading.Event(), threading.Event()
    done: list[str] = []

    def hold() -> None:
        begun.set()
        held.wait()
        done.append("held")

    workers.submit("small", "held", hold)
    workers.submit("small", "never", lambda: done.append("never"))
    begun.wait()
    workers.close(wait=False)
    assert done == []
    held.set()
    workers.close()
    assert done == ["held"]
