"""Finds the records that crash a task: in a child of the worker, which may crash in its place.

The worker forks for every trial, so that a trial costs milliseconds, and halves the failing records until one is left.
A record that ends its trial becomes a dead letter of the class `crashes_decoder`; see decision 27.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa

from frazil.error_classes import ErrorClass
from frazil.files import temporary_folder
from frazil.ingest.tasks.task import read_all
from frazil.ingest.tasks.task_job import Job, quoting_no_record
from frazil.ingest.tasks.task_limits import limited_memory, limited_time
from frazil.process.references import receive
from frazil.types import BadRecord
from frazil.write.target import TableTarget

MOST_FOUND = 100
"""The largest number of records that one search returns; the next search finds others."""
_WHOLE_CPU_S, _LEAST_CPU_S = 10.0, 1.5
_LONGEST_REASON = 500
_PREFIX = "frazil-trial-"
_FAILED, _NOT_ITS_FAULT = 3, 4


@dataclass(frozen=True)
class Found:
    """The result of a search."""

    #: Records that crash a task alone.
    records: tuple[BadRecord, ...] = ()
    #: The first record of each group that crashes a task together and not alone, with the reason.
    together: tuple[BadRecord, ...] = ()


def search_of(job: Job) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Returns the function for `mapInArrow` that searches the job's records; its output has a task's column."""
    return functools.partial(search, job)


def search(job: Job, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the records that crash a task, as JSON in one row.

    Raises: OSError where a trial fails for another reason than a record, such as a full disk.
    """
    alone: list[BadRecord] = []
    together: list[BadRecord] = []
    for batch in batches:
        if batch.num_rows and len(alone) < MOST_FOUND:
            records, more = _Search(job, batch).run()
            alone += records
            together += more
    texts = [dump_found(Found(tuple(alone[:MOST_FOUND]), tuple(together)))]
    yield pa.RecordBatch.from_pydict({"report": pa.array(texts, pa.string())})


def dump_found(found: Found) -> str:
    """Returns the result as JSON, on its way to the driver."""
    return json.dumps(asdict(found))


def load_found(texts: Iterable[str]) -> Found:
    """Returns the results of all tasks of a search as one."""
    answers = [json.loads(text) for text in texts]
    records, together = (
        tuple(
            BadRecord(**record | {"kind": ErrorClass(record["kind"])}) for answer in answers for record in answer[name]
        )
        for name in ("records", "together")
    )
    return Found(records, together)


class _Search:
    """Trials of the records of one Arrow batch."""

    def __init__(self, job: Job, batch: pa.RecordBatch) -> None:
        self._job = job
        self._batch = batch
        self._is_warm = False

    def run(self) -> tuple[list[BadRecord], list[BadRecord]]:
        """Returns the records that end a trial alone, and the first record of each group that does so only together."""
        receive(self._job.references)  # Once, and not in each child.
        alone: list[BadRecord] = []
        together: list[BadRecord] = []
        left = [(0, self._batch.num_rows)]
        while left and len(alone) < MOST_FOUND:
            first, end = left.pop()
            reason = self._trial(first, end)
            if reason is None:
                continue
            failing = first
            while end - first > 1:  # The range fails: halve it down to the first record that fails.
                middle = (first + end) // 2
                lower = self._trial(first, middle)
                if lower is None:
                    first = middle
                else:
                    left.append((middle, end))
                    end, reason, failing = middle, lower, first
            last = self._trial(first, end, is_last=True)
            if last is not None:
                alone.append(self._record(first, last))
            else:
                together.append(self._record(failing, reason))
        return alone, together

    def _record(self, row: int, reason: str) -> BadRecord:
        topic = self._job.only_topic or self._batch.column("topic")[row].as_py()
        partition, offset = (self._batch.column(name)[row].as_py() for name in ("partition", "offset"))
        return BadRecord(topic, partition, offset, ErrorClass.CRASHES_DECODER, "", reason[:_LONGEST_REASON])

    def _trial(self, first: int, end: int, *, is_last: bool = False) -> str | None:
        """Returns the reason why a task that reads these records fails; None where it succeeds. is_last: the trial may
        take as long as that of a whole batch.
        """
        share = 1.0 if is_last else (end - first) / self._batch.num_rows
        records = self._batch.slice(first, end - first)
        cpu_seconds = _LEAST_CPU_S + share * (_WHOLE_CPU_S - _LEAST_CPU_S)
        reason = try_in_child(lambda folder: _read(self._job, records, folder), cpu_seconds)
        if reason is None and not self._is_warm:
            # The first record that a child could read is read here, so that later children find every loop loaded.
            self._is_warm = True
            with temporary_folder(_PREFIX) as folder:
                _read(self._job, records.slice(0, 1), folder)
        return reason


def _read(job: Job, records: pa.RecordBatch, folder: Path) -> None:
    """Reads and writes records as a task would, in a folder that is removed: no store can fail a trial."""

    def here(target: TableTarget) -> TableTarget:
        files = replace(target.files, location=(folder / target.name).as_uri(), properties=(), io_properties=())
        dead_letters = here(target.dead_letters) if target.dead_letters is not None else None
        return replace(target, files=files, dead_letters=dead_letters)

    targets = {topic: here(target) for topic, target in job.targets.items()}
    beside = {topic: tuple(map(here, others)) for topic, others in job.beside.items()}
    with quoting_no_record(job):
        read_all(replace(job, targets=targets, beside=beside), [records])


def try_in_child(work: Callable[[Path], None], cpu_seconds: float) -> str | None:
    """Returns the reason why `work` fails in a child of this process, which may use `cpu_seconds` of processor time and
    the memory of a task; None where it succeeds.

    Raises: OSError where `work` fails for another reason than a record.
    """
    with temporary_folder(_PREFIX) as folder:
        status, reason = _run_child(work, cpu_seconds, folder)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGPROF:
            return "the reader used more processor time than a record may take"
        with suppress(ValueError):
            return f"the reader was ended by {signal.Signals(number).name}"
        return f"the reader was ended by signal {number}"
    code = os.WEXITSTATUS(status)
    if code == _NOT_ITS_FAULT:
        raise OSError(reason)
    return None if code == 0 else reason or f"the reader ended with status {code}"


def _run_child(work: Callable[[Path], None], cpu_seconds: float, folder: Path) -> tuple[int, str]:
    """Returns the status that a child which does the work has ended with, and its reason."""
    reading, writing = os.pipe()
    try:
        child = os.fork()
        if child == 0:
            os.close(reading)
            _be_the_child(work, cpu_seconds, folder, writing)
        os.close(writing)
        writing = -1
        with os.fdopen(reading, "rb", closefd=False) as pipe:
            reason = pipe.read().decode("utf-8", "replace")
        _, status = os.waitpid(child, 0)
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)
    return status, reason


def _be_the_child(work: Callable[[Path], None], cpu_seconds: float, folder: Path, writing: int) -> None:
    """Does the work in the child, writes the reason of a failure to the pipe `writing`, and ends the process."""
    code, reason = 0, ""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        with limited_memory(), limited_time(cpu_seconds):
            work(folder)
    except OSError as error:
        # The kernel refuses memory with an error of this class, too.
        code, reason = _FAILED if error.errno == errno.ENOMEM else _NOT_ITS_FAULT, f"{type(error).__name__}: {error}"
    except BaseException as error:  # noqa: BLE001  (whatever a record brings about)
        code, reason = _FAILED, f"{type(error).__name__}: {error}"
    with suppress(OSError):
        os.write(writing, reason.encode("utf-8", "replace")[:_LONGEST_REASON])
    os._exit(code)
