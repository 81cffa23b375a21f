"""One Spark job for one or more batches: the only place where the data path meets Spark."""

from __future__ import annotations

import builtins
import errno
import json
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyiceberg.schema import Schema
from pyspark.errors import PySparkException

from frazil.decode.settings import NEW_KEY, OLD_KEY
from frazil.errors import FrazilError, UnavailableError
from frazil.ingest.failures import FunctionFailedError, TaskFailedError, is_jvm_gone
from frazil.ingest.plan import own_starts, read_once
from frazil.ingest.tables.table import Planned
from frazil.ingest.tables.target import target_of
from frazil.ingest.tasks.isolate import Found, load_found, search_of
from frazil.ingest.tasks.shares import OVERSIZED_PARTITION
from frazil.ingest.tasks.spark_inputs import with_inputs
from frazil.ingest.tasks.task import task_of
from frazil.ingest.tasks.task_job import OVERSIZED_BYTES, REPORT_SCHEMA, Job, has_few_headers, source_columns
from frazil.kafka.properties import kafka_remedy
from frazil.kafka.reader import KafkaReader
from frazil.kafka.source import FarRecords, TooManyFarRecords, read_ranges
from frazil.process.in_spark import input_schema, prepare_session, with_values
from frazil.process.kernels.functions import WRONG_RESULT
from frazil.process.program import SparkPart
from frazil.process.references import Reference, find_reference
from frazil.report import TaskReport, load_report
from frazil.schema.inference import Hints
from frazil.store.remedies import store_remedy
from frazil.temporary import NOEXEC_REMEDY
from frazil.types import BadRecord, Batch, OffsetRange
from frazil.write.target import TableTarget
from frazil.zones import NO_ZONES, ZONES_REMEDY

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.core.broadcast import Broadcast
    from pyspark.sql import DataFrame, SparkSession

# A task costs 50 to 100 ms, however few records it reads: below this number one task is fastest.
_RECORDS_PER_TASK = 30_000
# Spark ends an Arrow batch at so many bytes, and measures after every record for it: a quarter of its threads' work. At this
# value it does not measure.
_NO_LIMIT = ("spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1))
# The sizes that count for a record. Arrow's offsets of empty headers count as well, eight bytes each. No function has a
# lambda, as Spark would then compile no expression of the query.
_SIZES = {
    "value": "octet_length(value)",
    "key": "octet_length(key)",
    "headers": f"octet_length(concat_ws('{8 * ' '}', headers.key, cast(headers.value as array<string>)))",
}
# Java's error when it loads a library of zstd, snappy or LZ4 the first time, and its error from then on.
_NO_LIBRARY = re.compile(
    r"UnsatisfiedLinkError|Could not initialize class (com\.github\.luben|org\.xerial|net\.jpountz)"
)
# Texts in Spark's errors about a Python worker that has raised, or has ended.
_SIGNS_OF_WORKERS = (
    "PythonException",
    "Python worker exited",
    "Traceback (most recent call last)",
    "Python worker failed",
)
# How the traceback of a worker ends: the class and the words of what it has raised.
_RAISED = re.compile(r"^(?:frazil\.errors\.)?(\w+): (.*)$", re.MULTILINE)
_PLACE_IN_STORE = re.compile(r": (\w+://[^\s:]+(?=: )|/[^\s:]+(?=: ))|\[Errno \d+\][^']*'([^']+)'")
_NO_MEMORY = f"[Errno {errno.ENOMEM}]"
# A task raises it for nothing else.
_BROKEN_FUNCTION = re.compile(rf"frazil\.errors\.SpecError: (.*?)(?:; {WRONG_RESULT})?$", re.MULTILINE)
_SEARCH_POOL = "catch-up"
# What Spark's source raises at a timestamp whose microseconds do not fit in 64 bits.
_TOO_FAR = "ArithmeticException: long overflow"
_AT_A_RECORD = "exception when fetching the next record"

Task = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


class JobRunner(Protocol):
    """Runs the tasks of batches."""

    #: The largest number of parallel tasks of one job, as far as it is known before the first job.
    parallelism: int

    def run(self, batches: Sequence[Batch], job: Job, *, with_offsets: bool, pool: str) -> list[TaskReport]:
        """Returns the reports of all tasks. with_offsets: reads the offsets that name bad records. pool: Spark's
        scheduler pool.

        Raises: TaskFailedError when a task failed and a record may be the cause, UnavailableError when it failed
        otherwise.
        """

    def isolate(self, batch: Batch, job: Job) -> Found:
        """Returns the records of a batch that crash the task which reads them.

        Raises: UnavailableError where the search fails.
        """

    def open_clients(self, ranges: Sequence[OffsetRange]) -> None:
        """Reads the ranges for nothing: the next job that reads these partitions finds their Kafka clients connected.

        Raises: UnavailableError or TaskFailedError where the read fails.
        """


class SparkJobs:
    """Runs jobs on a Spark session."""

    def __init__(
        self,
        session: Callable[[], SparkSession],
        kafka: Mapping[str, str],
        parallelism: Callable[[SparkSession], int],
        expected: int = 1,
        servers: Callable[[], str] | None = None,
        outage: Callable[[SparkSession], UnavailableError | None] = lambda _: None,
    ) -> None:
        """Stores the settings; no session is started.

        session: returns the session when a job needs it, and raises UnavailableError when there is none. parallelism:
        returns the largest number of parallel tasks of one job. expected: that number before there is a session.
        servers: returns those of Kafka's `bootstrap.servers` that a job uses first; all of them where it is None. outage:
        returns why no job of a session can succeed; None while jobs can.
        """
        self._session = session
        self._outage = outage
        self._kafka = kafka
        self._servers = servers or (lambda: kafka["bootstrap.servers"])
        self._parallelism = parallelism
        self.parallelism = expected
        self._sessions: dict[tuple[SparkSession, bool, bool], SparkSession] = {}
        self._broadcasts: dict[str, Broadcast[bytes]] = {}
        self._sent_with: SparkContext | None = None
        self._sending = threading.Lock()
        self._far_records = FarRecords(lambda r: KafkaReader(self._kafka_now()).batches(r))

    def run(self, batches: Sequence[Batch], job: Job, *, with_offsets: bool, pool: str) -> list[TaskReport]:
        """See the protocol."""
        is_small = not with_offsets and all(batch.is_small for batch in batches)
        try:
            rows = self._collect(batches, job, task_of, with_offsets=with_offsets, pool=pool, is_small=is_small)
        except TooManyFarRecords as error:
            raise TaskFailedError(str(error)) from None
        return [load_report(row) for row in rows]

    def isolate(self, batch: Batch, job: Job) -> Found:
        """See the protocol."""
        apart, job = replace(batch, most_tasks=1), replace(job, asks_spark=False)
        try:
            rows = self._collect([apart], job, search_of, with_offsets=True, pool=_SEARCH_POOL, is_small=False)
        except TooManyFarRecords as error:  # Fewer of them can be read.
            one = error.first
            return Found(together=(BadRecord(one.topic, one.partition, one.offset, "crashes_decoder", "", str(error)),))
        return load_found(rows)

    def open_clients(self, ranges: Sequence[OffsetRange]) -> None:
        """See the protocol. No Python worker takes part: whatever the records are, they harm nothing."""
        with self._activated(_SEARCH_POOL, is_small=True, has_spark_part=False) as spark:
            try:
                records = read_ranges(spark, self._kafka_now(), ranges, ("offset",), self._parallelism(spark))
                records._jdf.queryExecution().toRdd().count()
            except (PySparkException, Py4JJavaError) as error:
                raise _failure_of(error) from None

    def _collect(
        self,
        batches: Sequence[Batch],
        job: Job,
        task_of: Callable[[Job], Task],
        *,
        with_offsets: bool,
        pool: str,
        is_small: bool,
    ) -> list[str]:
        """Returns the text of each task. task_of: returns the task of a job."""
        ranges = read_once(batches)
        with self._activated(pool, is_small, job.spark_part is not None) as spark:
            self.parallelism = self._parallelism(spark)
            slices = 1 if job.is_scattered else slices_of(batches, self.parallelism)
            apart = self._far_records.within(ranges)
            try:
                columns = source_columns(job, with_offsets)
                records = read_ranges(spark, self._kafka_now(), ranges, columns, slices, apart)
                if "headers" in records.columns and has_few_headers(job):
                    records = _with_few_headers(records)
                if is_small:
                    records = _without_oversized(records)
                if job.spark_part is not None:
                    records = _with_spark_values(spark, records, job, job.spark_part)
                task = task_of(self._sent(spark, job))
                return [row.report for row in records.mapInArrow(task, REPORT_SCHEMA).collect()]
            except (PySparkException, Py4JJavaError) as error:
                if _TOO_FAR not in str(error) or not self._far_records.search(ranges):
                    raise _failure_of(error) from None
        return self._collect(batches, job, task_of, with_offsets=with_offsets, pool=pool, is_small=is_small)

    def _kafka_now(self) -> dict[str, str]:
        return {**self._kafka, "bootstrap.servers": self._servers()}

    def _sent(self, spark: SparkSession, job: Job) -> Job:
        """Returns the job with broadcasts in place of the rows of reference tables: Spark sends them to a process once."""
        with self._sending:
            if self._sent_with is not spark.sparkContext:  # What an application had ends with it.
                self._sent_with, self._broadcasts = spark.sparkContext, {}
            for key in [key for key in self._broadcasts if find_reference(key) is None]:
                self._broadcasts.pop(key).destroy()  # No job has these rows any more.
            for key, one in job.references.items():
                if key not in self._broadcasts and isinstance(one, Reference):
                    self._broadcasts[key] = spark.sparkContext.broadcast(one.dump())
            return replace(job, references={key: self._broadcasts[key] for key in job.references})

    @contextmanager
    def _activated(self, pool: str, is_small: bool, has_spark_part: bool) -> Iterator[SparkSession]:
        """Lets this thread use a session in its block. Whatever fails while its application has ended fails for that."""
        base = self._session()
        try:
            # Each thread has its own JVM thread, whose session and pool must be set.
            spark = self._derived(base, is_small, has_spark_part)
            jvm: Any = spark.sparkContext._jvm
            jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
            yield spark
        except Exception as error:
            outage = None if is_jvm_gone(error) else self._outage(base)
            if outage is None:
                raise
            raise outage from None

    def _derived(self, spark: SparkSession, is_small: bool, has_spark_part: bool) -> SparkSession:
        """Returns a session on the same context: one that does not measure records, where they are small, and one with the
        settings of queries, where Spark evaluates a part of one.
        """
        if not is_small and not has_spark_part:
            return spark
        place = spark, is_small, has_spark_part
        if place not in self._sessions:
            made = spark.newSession()
            if has_spark_part:
                prepare_session(made._jsparkSession)
            if is_small:
                made.conf.set(*_NO_LIMIT)
            self._sessions = {known: one for known, one in self._sessions.items() if known[0] is spark} | {place: made}
        return self._sessions[place]


def job_of(planned: Sequence[Planned], is_trial: bool = False, schema: Schema | None = None) -> Job:
    """Returns the Spark job that reads the batches. schema: replaces the schema of the tables."""
    trials = frozenset(p.table.name for p in planned if is_trial or p.table.is_trial)
    fed: dict[str, list[TableTarget]] = {}
    for p in planned:
        for topic in p.batch.topics:
            fed.setdefault(topic, []).append(target_of(p.table, schema))
    return Job(
        targets={topic: targets[0] for topic, targets in fed.items()},
        trials=trials,
        # Columns of a new table are found in the order of its records, so that one task must read them.
        is_scattered=bool(trials) or any(p.table.needs_one_task for p in planned),
        beside={topic: tuple(targets[1:]) for topic, targets in fed.items() if targets[1:]},
        starts=own_starts([p.batch for p in planned]),
        references={one.key: one for p in planned for one in p.table.schema.references.values()},
    )


def with_hints(job: Job, hints: Hints) -> Job:
    """Returns the job with the hints that earlier records of the table have left, to be read by one task."""
    targets = {
        topic: replace(target, reading=replace(target.reading, hints=hints)) for topic, target in job.targets.items()
    }
    return replace(job, targets=targets, is_scattered=True)


def slices_of(batches: Sequence[Batch], parallelism: int) -> int:
    """Returns the number of tasks that read the batches together."""
    quickest = max(1, min(parallelism, sum(r.span for r in read_once(batches)) // _RECORDS_PER_TASK))
    allowed: dict[frozenset[str], int] = {}  # Each task writes a file for every table that it reads for.
    for batch in batches:
        allowed[batch.topics] = min(batch.most_tasks or quickest, allowed.get(batch.topics, quickest))
    return min(quickest, sum(allowed.values()))


def _with_few_headers(records: DataFrame) -> DataFrame:
    """Returns the records with only those headers that mark rows with another key: few records have one, and a
    connector may write several other headers to every record.
    """
    few = f"filter(headers, one -> one.key in ('{OLD_KEY}', '{NEW_KEY}')) as headers"
    return records.selectExpr(*(few if name == "headers" else name for name in records.columns))


def _without_oversized(records: DataFrame) -> DataFrame:
    """Returns the records without the contents of oversized ones, whose partition becomes OVERSIZED_PARTITION."""
    sizes = (f"ifnull({size}, 0)" for name, size in _SIZES.items() if name in records.columns)
    is_oversized = f"{' + '.join(sizes)} > {OVERSIZED_BYTES}"
    replaced = {name: f"if({is_oversized}, null, {name}) as {name}" for name in _SIZES}
    replaced["partition"] = f"if({is_oversized}, {OVERSIZED_PARTITION}, partition) as partition"
    return records.selectExpr(*(replaced.get(name, name) for name in records.columns))


def _with_spark_values(spark: SparkSession, records: DataFrame, job: Job, part: SparkPart) -> DataFrame:
    """Returns the records with the values of the expressions that Spark evaluates."""
    from pyspark.sql import DataFrame  # noqa: PLC0415  (imported late, as by whoever makes the session)
    from pyspark.sql.types import StructType  # noqa: PLC0415

    jvm: Any = spark.sparkContext._jvm
    schema = json.loads(records.schema.json())
    for name, kind in input_schema(jvm, part):
        schema["fields"].append({"name": name, "type": json.loads(kind), "nullable": True, "metadata": {}})
    beside = records.mapInArrow(partial(with_inputs, job), StructType.fromJson(schema))
    return DataFrame(with_values(jvm, spark._jsparkSession, beside._jdf, part), spark)


def cause_of(error: Exception) -> str:
    """Returns the line of a Spark error with the cause: the last exception of a Python worker, or the innermost cause,
    with the partition of a record that Kafka's client cannot read.
    """
    text = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [
        line for line in lines if line.split(":")[0].endswith(("Error", "Exception")) and " " not in line.split(":")[0]
    ]
    caused = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    for candidates in (caused, python, lines):
        if candidates:
            place = next((line for line in candidates[:-1] if _AT_A_RECORD in line), "")
            return f"{place}{': ' if place else ''}{candidates[-1]}"[:400]
    return type(error).__name__


def _failure_of(error: Exception) -> FrazilError:
    """Returns what a failed job of Spark means."""
    broken = _BROKEN_FUNCTION.search(str(error))
    if broken is not None:
        return FunctionFailedError(broken[1])
    if refused := _of_store(str(error)):
        place = _PLACE_IN_STORE.search(refused)
        where = next(filter(None, place.groups()), "") if place is not None else ""
        return UnavailableError(
            f"a task failed: {refused[:700]}", remedy=_remedy(error) or store_remedy(refused), where=where
        )
    remedy = _remedy(error)
    kind = UnavailableError if remedy or _is_elsewhere(str(error)) else TaskFailedError
    return kind(f"a task failed: {cause_of(error)}", remedy=remedy)


def _of_store(text: str) -> str:
    """Returns the words of an error of files or of a service that a worker has raised, which no record brings about; empty
    for another error. Memory that a record takes is no such error.
    """
    raised = _RAISED.findall(text) if "Traceback (most recent call last)" in text else []
    known = {**vars(builtins), UnavailableError.__name__: UnavailableError}
    kinds = [(known.get(name), words) for name, words in raised]
    errors = [(kind, words) for kind, words in kinds if isinstance(kind, type) and issubclass(kind, BaseException)]
    if not errors or not issubclass(errors[-1][0], OSError | UnavailableError) or _NO_MEMORY in errors[-1][1]:
        return ""
    return f"{errors[-1][0].__name__}: {errors[-1][1]}"


def _is_elsewhere(text: str) -> bool:
    """Whether the cause of a failed task is Kafka or the JVM, and not a worker that read a record."""
    return not any(sign in text for sign in _SIGNS_OF_WORKERS)


def _remedy(error: Exception) -> str:
    text = str(error)
    if "No space left" in text:
        return "free disk space; Frazil retries with back-off"
    if NO_ZONES in text:
        return ZONES_REMEDY
    if _NO_LIBRARY.search(text):
        return NOEXEC_REMEDY
    if "PYTHON_VERSION_MISMATCH" in text or "Cannot run program" in text:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return f"name a Python {version} that every executor has in spark.conf, as spark.pyspark.python"
    return kafka_remedy(text) if "org.apache.kafka.common.errors." in text else ""
