"""Records that end the task which reads them: they are found in a child of the worker, and become dead letters."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from frazil.error_classes import ErrorClass
from frazil.ingest.failures import TaskFailedError
from frazil.ingest.tables.state import RunState
from frazil.ingest.tasks import isolate, task
from frazil.ingest.tasks.isolate import CrashingRecords, load_crashing, search, try_in_child
from frazil.ingest.tasks.task_job import Job
from frazil.ingest.tasks.task_limits import MEMORY_BYTES
from frazil.report import TaskReport
from frazil.types import BadRecord, Batch
from frazil_testing.twins import MemoryJobs, live_rows
from tests.unit.ingest.service_scene import Scene, turn_until
from tests.unit.ingest.targets import target_of

POISON = b'{"id": 666}'


def _kill(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def _raise() -> None:
    raise RuntimeError("no such code page")


def _loop() -> None:
    while True:
        pass


def _fill() -> None:
    kept = []
    while True:
        kept.append(np.empty(2**28, np.uint8))


HARMS: dict[str, tuple[Callable[[], None], str]] = {
    "segmentation fault": (_kill(signal.SIGSEGV), "the reader was ended by SIGSEGV"),
    "abort": (os.abort, "the reader was ended by SIGABRT"),
    "exception": (_raise, "RuntimeError: no such code page"),
    "endless loop": (_loop, "the reader used more processor time than a record may take"),
    "memory": (_fill, "Unable to allocate 256. MiB"),
}


def _plant(monkeypatch: pytest.MonkeyPatch, harm: Callable[[], None]) -> None:
    """Makes the decoder harm its process when it meets the record."""
    read = task.__dict__["read_records"]

    def harmed(target: Any, topic: Any, columns: Any, *args: Any, **more: Any) -> Any:
        if POISON in columns["value"].to_pylist():
            harm()
        return read(target, topic, columns, *args, **more)

    monkeypatch.setattr(task, "read_records", harmed)


def _batch(*values: bytes) -> pa.RecordBatch:
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
            "offset": pa.array(range(100, 100 + count), pa.int64()),
            "timestamp": pa.array([1_790_000_000_000] * count, pa.timestamp("ms", "UTC")),
            "value": pa.array(values, pa.binary()),
        }
    )


def _search(tmp_path: Path, *batches: pa.RecordBatch) -> CrashingRecords:
    job = Job({"a": target_of(tmp_path, {"id": "long"})})
    return load_crashing(text for answer in search(job, batches) for text in answer.column("report").to_pylist())


@pytest.mark.parametrize("harm", HARMS)
def test_the_record_that_ends_a_task_is_found_among_its_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    end, reason = HARMS[harm]
    _plant(monkeypatch, end)
    monkeypatch.setattr(isolate, "_WHOLE_CPU_S", 1.0)
    monkeypatch.setattr(isolate, "_LEAST_CPU_S", 0.5)
    good = [b'{"id": %d}' % n for n in range(5)]
    found = _search(tmp_path, _batch(*good), _batch(*good[:3], POISON, *good[3:]))
    assert [(one.topic, one.partition, one.offset, one.kind) for one in found.records] == [
        ("a", 0, 103, "crashes_decoder")
    ]
    assert reason in found.records[0].reason
    assert found.together == ()


_MIB = 2**20
_CPU_S = 0.6


def _spend(seconds: float) -> None:
    end = time.process_time() + seconds  # Of this child alone.
    while time.process_time() < end:
        pass


@pytest.mark.parametrize(
    ("harm", "is_found"),
    [
        # Neither is counted to the byte: the process itself takes some.
        (lambda: _spend(_CPU_S / 3), False),
        (lambda: _spend(_CPU_S + 0.05), True),
        (lambda: np.empty(MEMORY_BYTES - 64 * _MIB, np.uint8), False),
        (lambda: np.empty(MEMORY_BYTES + 64 * _MIB, np.uint8), True),
    ],
    ids=["less time", "more time", "less memory", "more memory"],
)
def test_a_record_is_read_if_it_takes_less_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[], None], is_found: bool
) -> None:
    _search(tmp_path, _batch(b'{"id": 1}'))  # Whatever is loaded at first takes time too.
    _plant(monkeypatch, harm)
    monkeypatch.setattr(isolate, "_WHOLE_CPU_S", _CPU_S)
    monkeypatch.setattr(isolate, "_LEAST_CPU_S", _CPU_S)
    found = _search(tmp_path, _batch(b'{"id": 1}', POISON, b'{"id": 2}'))
    assert [(one.offset, one.kind) for one in found.records] == ([(101, "crashes_decoder")] if is_found else [])
    assert found.together == ()


def test_several_records_are_found_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _plant(monkeypatch, os.abort)
    found = _search(tmp_path, _batch(POISON, b'{"id": 1}', POISON, b'{"id": 2}', b'{"id": 3}', POISON, POISON))
    assert [one.offset for one in found.records] == [100, 102, 105, 106]


def test_records_that_fail_only_together_are_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = task.__dict__["read_records"]

    def harmed(target: Any, topic: Any, columns: Any, *args: Any, **more: Any) -> Any:
        if len(columns["value"]) > 3:
            os.abort()
        return read(target, topic, columns, *args, **more)

    monkeypatch.setattr(task, "read_records", harmed)
    found = _search(tmp_path, _batch(*(b'{"id": %d}' % n for n in range(7))))
    assert found.records == ()
    assert [one.offset for one in found.together] == [100]


def test_what_fails_around_the_records_is_not_their_fault() -> None:
    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left on device"):
        try_in_child(full, 1.0)


class _FailingJobs(MemoryJobs):
    """Jobs whose tasks are a Spark worker's: what one raises is a failed task."""

    def run(self, batches: Sequence[Batch], job: Job, *, pool: str) -> list[TaskReport]:
        try:
            return super().run(batches, job, pool=pool)
        except RuntimeError as error:
            raise TaskFailedError(f"a task failed: {error}") from None


def _scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Scene:
    """A topic with such a record between others."""
    scene = Scene(tmp_path, "a", "b", **settings)
    scene.jobs = _FailingJobs(scene.source)
    _plant(monkeypatch, _raise)
    scene.feed("b", {"id": 7})
    scene.feed("a", {"id": 1}, POISON, {"id": 2})
    return scene


def test_such_a_record_becomes_a_dead_letter_and_its_neighbours_become_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = _scene(tmp_path, monkeypatch)
    scene.catch_up()
    assert sorted(row["id"] for row in scene.rows("n.a")) == [1, 2]
    assert [row["id"] for row in scene.rows("n.b")] == [7]
    dead_letters = live_rows(scene.catalog, "n.a__dead_letters")
    assert [
        (row["topic"], row["offset"], row["value"], row["error_class"], row["message"]) for row in dead_letters
    ] == [("a", 1, POISON, "crashes_decoder", "RuntimeError: no such code page")]


def test_a_table_that_skips_bad_records_counts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = _scene(tmp_path, monkeypatch, on_bad_record="skip")
    scene.catch_up()
    assert sorted(row["id"] for row in scene.rows("n.a")) == [1, 2]
    assert scene.progress().totals.bad_skipped == 1


def test_a_table_that_stops_at_bad_records_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = _scene(tmp_path, monkeypatch, on_bad_record="stop")
    service = scene.start()
    stopped = service.tables[0]
    assert turn_until(service, lambda: stopped.status.run_state is RunState.STOPPED)
    assert (stopped.status.reason, stopped.status.where) == (
        "RuntimeError: no such code page",
        "topic a, partition 0, offset 1",
    )


def _numbered(tmp_path: Path) -> Scene:
    """A topic with twenty records, and another one."""
    scene = Scene(tmp_path, "a", "b")
    scene.jobs = _FailingJobs(scene.source)
    scene.feed("a", *({"id": number} for number in range(20)))
    return scene


def test_a_table_whose_records_fail_only_together_reads_fewer_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = _numbered(tmp_path)
    _refuse_more_than(monkeypatch, 2)
    scene.catch_up()
    assert sorted(row["id"] for row in scene.rows("n.a")) == list(range(20))


def test_a_table_that_not_even_one_record_can_be_read_of_stops_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = _numbered(tmp_path)
    _refuse_more_than(monkeypatch, 0)
    together = CrashingRecords(together=(BadRecord("a", 0, 0, ErrorClass.CRASHES_DECODER, "", "too many"),))
    monkeypatch.setattr("frazil.ingest.batches.steps.BatchSteps.isolate", lambda *_: together)
    service = scene.start("a")
    stopped = service.tables[0]
    assert turn_until(service, lambda: stopped.status.run_state is RunState.STOPPED)
    assert stopped.status.where == "topic a, partition 0, offsets 0 to 0"
    assert stopped.status.reason == "records crash the task that reads them, and no single record does: too many"


def test_a_record_that_ends_the_task_which_samples_is_found_once_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frazil.ingest.plan.FIRST_BATCH_RECORDS", 2)
    scene = Scene(tmp_path, "a")
    scene.jobs = _FailingJobs(scene.source)
    _plant(monkeypatch, _raise)
    scene.feed("a", {"id": 1}, {"id": 2}, {"id": 3}, POISON, {"id": 4})
    scene.catch_up()
    assert sorted(row["id"] for row in scene.rows("n.a")) == [1, 2, 3, 4]


def _refuse_more_than(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    read = task.__dict__["read_records"]

    def harmed(target: Any, topic: Any, columns: Any, *args: Any, **more: Any) -> Any:
        if len(columns["value"]) > most:
            raise RuntimeError("too many")
        return read(target, topic, columns, *args, **more)

    monkeypatch.setattr(task, "read_records", harmed)
