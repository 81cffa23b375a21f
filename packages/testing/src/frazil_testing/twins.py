"""Frazil's ports in memory, for tests of pipelines: a whole service without Kafka, a JVM, threads or waiting.

Only Parquet files are real, in the folder of the MemoryCatalog.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from frazil.decode.limits import plain_columns
from frazil.errors import SpecError, UnavailableError
from frazil.ingest.batches.workers import Done
from frazil.ingest.plan import read_once
from frazil.ingest.tables.queries import Queries
from frazil.ingest.tasks.isolate import CrashingRecords, load_crashing, search
from frazil.ingest.tasks.spark_inputs import inputs_of
from frazil.ingest.tasks.task import run_task
from frazil.ingest.tasks.task_job import Job, most_value_bytes, source_columns
from frazil.kafka.fetch.columns import LEFT_OUT
from frazil.report import TaskReport, load_report
from frazil.types import Batch, OffsetRange
from frazil.upsert.lookup.delete_files import read_deletes
from frazil.write.plain_target import plain_target
from frazil_testing.memory_catalog import MemoryCatalog
from frazil_testing.memory_kafka import MemoryRecord, MemorySource, MemoryTopic
from frazil_testing.memory_table import MemorySnapshot

_COLUMN_TYPES: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    "key": pa.binary(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "value": pa.binary(),
}


class FakeClock:
    """A clock that advances only by `sleep`."""

    def __init__(self, now_ms: int = 1_790_000_000_000) -> None:
        self._start_ms = now_ms
        self._passed_s = 0.0

    def now_ms(self) -> int:
        """See Clock."""
        return self._start_ms + int(self._passed_s * 1000)

    def monotonic_s(self) -> float:
        """See Clock."""
        return self._passed_s

    def sleep(self, seconds: float) -> None:
        """Advances the clock and returns at once."""
        self._passed_s += seconds


class StepWorkers:
    """Workers without threads: every `wait` runs one submitted piece of work, or advances the clock without one."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._waiting: deque[tuple[str, Any, Callable[[], Any]]] = deque()

    def is_free(self, pool: str) -> bool:
        """See Workers."""
        return all(busy != pool for busy, _, _ in self._waiting)

    @property
    def is_idle(self) -> bool:
        """See Workers."""
        return not self._waiting

    def submit(self, pool: str, then: Callable[[Future[Any]], bool | None], work: Callable[[], Any]) -> None:
        """See Workers."""
        self._waiting.append((pool, then, work))

    def wait(self, timeout_s: float) -> list[Done]:
        """See Workers. A BaseException that is not an Exception (a simulated crash) is raised here."""
        if not self._waiting:
            self._clock.sleep(timeout_s)
            return []
        _, then, work = self._waiting.popleft()
        future: Future[Any] = Future()
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001  (as an executor does)
            future.set_exception(error)
        return [Done(then, future)]

    def wake(self) -> None:
        """Does nothing: nothing sleeps."""

    def close(self, wait: bool = True) -> None:  # noqa: ARG002
        """Discards the work that was not started."""
        self._waiting.clear()


class MemoryJobs:
    """Runs `tasks` tasks per job on the records of a MemorySource, in Arrow batches of `batch_size` records."""

    parallelism = 1

    def __init__(
        self, source: MemorySource, batch_size: int = 20_000, tasks: int = 1, queries: Queries | None = None
    ) -> None:
        """queries: computes what Spark would compute of queries; None where no query has such a part."""
        self._source = source
        self._queries = queries
        self._batch_size = batch_size
        self._tasks = tasks

    def run(self, batches: Sequence[Batch], job: Job, *, pool: str) -> list[TaskReport]:  # noqa: ARG002
        """See JobRunner. Raises SpecError where Spark computes a part of a query, and nothing does so in its place."""
        if job.spark_part is not None and self._queries is None:
            remedy = "use functions that tasks compute themselves, or test the table with Spark"
            raise SpecError(f"there is no Spark to compute {job.spark_part.reason}", remedy=remedy)
        columns = source_columns(job)
        reports = []
        most = most_value_bytes(job)
        records = list(chain.from_iterable(self._read(r, columns, most) for r in read_once(batches)))
        share = max(1, -(-len(records) // (1 if job.is_scattered else self._tasks)))
        records = [self._with_spark_values(job, batch) for batch in records]
        for start in range(0, max(1, len(records)), share):
            for answer in run_task(job, iter(records[start : start + share])):
                reports += [load_report(text) for text in answer.column("report").to_pylist()]
        return reports

    def _with_spark_values(self, job: Job, batch: pa.RecordBatch) -> pa.RecordBatch:
        if job.spark_part is None or self._queries is None or not batch.num_rows:
            return batch
        inputs = inputs_of(job.all_targets[0], job.only_topic or "", plain_columns(batch))
        for name, values in self._queries.values(job.spark_part, inputs, batch.num_rows).items():
            batch = batch.append_column(name, values)
        return batch

    def isolate(self, batch: Batch, job: Job) -> CrashingRecords:
        """See JobRunner."""
        columns = source_columns(job)
        most = most_value_bytes(job)
        records = list(chain.from_iterable(self._read(r, columns, most) for r in batch.ranges))
        return load_crashing(text for answer in search(job, records) for text in answer.column("report").to_pylist())

    def _read(self, r: OffsetRange, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
        topic = self._source.by_name.get(r.topic)
        if topic is None or topic.first.get(r.partition, 0) > r.start:
            raise UnavailableError("a task failed: offsets are gone", where=r.topic)
        records = [record for record in topic.partitions[r.partition] if r.start <= record.offset < r.end]
        for start in range(0, len(records), self._batch_size):
            yield _without_large(_batch_of(r, records[start : start + self._batch_size], columns), most)


def _batch_of(r: OffsetRange, records: Sequence[MemoryRecord], names: Sequence[str]) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {
        "topic": [r.topic] * len(records),
        "partition": [r.partition] * len(records),
        "offset": [record.offset for record in records],
        "timestamp": [record.timestamp_ms for record in records],
        "key": [record.key for record in records],
        "headers": [[{"key": name, "value": held} for name, held in record.headers] or None for record in records],
        "value": [record.value for record in records],
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[name], _COLUMN_TYPES[name]) for name in names], names=list(names)
    )


def _without_large(records: pa.RecordBatch, most: int) -> pa.RecordBatch:
    """Returns the records without values of more bytes, as Kafka's reader leaves them out."""
    sizes = pc.fill_null(pc.cast(pc.binary_length(records["value"]), pa.int64()), 0)
    is_large = pc.greater(sizes, most)
    if not pc.any(is_large).as_py():
        return records
    values = pc.if_else(is_large, pa.scalar(None, pa.binary()), records["value"])
    columns = dict(zip(records.schema.names, records.columns, strict=True)) | {"value": values}
    return pa.RecordBatch.from_pydict({**columns, LEFT_OUT: pc.if_else(is_large, sizes, 0)})


def live_rows(catalog: MemoryCatalog, table: str) -> list[dict[str, Any]]:
    """Returns the rows of a table without deleted rows, as a reader returns them."""
    state = catalog.load(table)
    assert state is not None
    names = [field.name for field in state.schema.fields]
    target = plain_target(state)
    rows: list[dict[str, Any]] = []
    for file in catalog.scan(table).files:
        deleted = read_deletes(target, file.path, file.deletes)
        rows_of_file = pq.ParquetFile(file.path).read()
        alive = rows_of_file.filter(
            pa.array([n not in deleted for n in range(len(rows_of_file))], pa.bool_())
        ).to_pylist()
        rows += [{name: row.get(name) for name in names} for row in alive]
    return rows


__all__ = [
    "FakeClock",
    "MemoryCatalog",
    "MemoryJobs",
    "MemoryRecord",
    "MemorySnapshot",
    "MemorySource",
    "MemoryTopic",
    "StepWorkers",
    "live_rows",
]
