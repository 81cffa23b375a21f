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

from frazil.errors import FrazilError, UnavailableError
from frazil.ingest.failures import FunctionFailedError, TaskFailedError, is_jvm_gone
from frazil.ingest.plan import own_starts, read_once
from frazil.ingest.tables.table import Planned
from frazil.ingest.tables.target import target_of
from frazil.ingest.tasks.isolate import Found, load_found, search_of
from frazil.ingest.tasks.spark_inputs import STEP, first_stage, second_stage_of
from frazil.ingest.tasks.task import task_of
from frazil.ingest.tasks.task_job import REPORT_SCHEMA, Job, wanted_of
from frazil.kafka.properties import task_properties
from frazil.kafka.source import plan_reads, reading, share_ranges
from frazil.process.in_spark import input_schema, prepare_session, with_values
from frazil.process.kernels.functions import WRONG_RESULT
from frazil.process.program import SparkPart
from frazil.process.references import Reference, find_reference
from frazil.refusals import store_remedy
from frazil.report import TaskReport, load_report
from frazil.schema.evolve import Hints
from frazil.types import Batch
from frazil.write.target import TableTarget
from frazil.zones import NO_ZONES, ZONES_REMEDY

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.core.broadcast import Broadcast
    from pyspark.sql import DataFrame, SparkSession

# A task costs 50 to 100 ms, however few records it reads: below this number one task is fastest.
_RECORDS_PER_TASK = 30_000
# Texts in Spark's errors about a Python worker that has raised, or has ended.
_SIGNS_OF_WORKERS = (
    "PythonException",
    "Python worker exited",
    "Traceback (most recent call last)",
    "Python worker failed",
)
# How the traceback of a worker ends: the class and the words of what it has raised.
_RAISED = re.compile(r"^((?:\w+\.)*)(\w+): (.*)$", re.MULTILINE)
# Its variants of UnavailableError are raised for nothing else.
_OF_KAFKA = "frazil.kafka."
_PLACE_IN_KAFKA = re.compile(r" \(((?:topic|broker) [^()]*)\)$")
_PLACE_IN_STORE = re.compile(r": (\w+://[^\s:]+(?=: )|/[^\s:]+(?=: ))|\[Errno \d+\][^']*'([^']+)'")
_NO_MEMORY = f"[Errno {errno.ENOMEM}]"
# A task raises it for nothing else.
_BROKEN_FUNCTION = re.compile(rf"frazil\.errors\.SpecError: (.*?)(?:; {WRONG_RESULT})?$", re.MULTILINE)
_SEARCH_POOL = "catch-up"
_USUAL = ("", UnavailableError().remedy)
Task = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


class JobRunner(Protocol):
    """Runs the tasks of batches."""

    #: The largest number of parallel tasks of one job, as far as it is known before the first job.
    parallelism: int

    def run(self, batches: Sequence[Batch], job: Job, *, pool: str) -> list[TaskReport]:
        """Returns the reports of all tasks. pool: Spark's scheduler pool.

        Raises: TaskFailedError when a task failed and a record may be the cause, UnavailableError when it failed
        otherwise.
        """

    def isolate(self, batch: Batch, job: Job) -> Found:
        """Returns the records of a batch that crash the task which reads them.

        Raises: UnavailableError where the search fails.
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
        self._for_queries: tuple[SparkSession, SparkSession] | None = None
        self._broadcasts: dict[str, Broadcast[bytes]] = {}
        self._sent_with: SparkContext | None = None
        self._sending = threading.Lock()

    def run(self, batches: Sequence[Batch], job: Job, *, pool: str) -> list[TaskReport]:
        """See the protocol."""
        task = task_of if job.spark_part is None else second_stage_of
        rows = self._collect(batches, job, task, pool=pool)
        return [load_report(row) for row in rows]

    def isolate(self, batch: Batch, job: Job) -> Found:
        """See the protocol."""
        apart, job = replace(batch, most_tasks=1), replace(job, asks_spark=False)
        return load_found(self._collect([apart], job, search_of, pool=_SEARCH_POOL))

    def _collect(self, batches: Sequence[Batch], job: Job, task_of: Callable[[Job], Task], *, pool: str) -> list[str]:
        """Returns the text of each task. task_of: returns the task of a job."""
        ranges = read_once(batches)
        with self._activated(pool, has_spark_part=job.spark_part is not None) as spark:
            self.parallelism = self._parallelism(spark)
            slices = 1 if job.is_scattered else slices_of(batches, self.parallelism)
            kafka = task_properties({**self._kafka, "bootstrap.servers": self._servers()})
            records = plan_reads(spark, kafka, share_ranges(ranges, slices))
            task = task_of(self._sent(spark, job))
            if job.spark_part is not None:
                records = _with_spark_values(spark, records, job, job.spark_part)
            else:
                task = reading(wanted_of(job), task)
            try:
                return [row.report for row in records.mapInArrow(task, REPORT_SCHEMA).collect()]
            except (PySparkException, Py4JJavaError) as error:
                raise _failure_of(error) from None

    def _sent(self, spark: SparkSession, job: Job) -> Job:
        """Returns the job with broadcasts in place of the rows of reference tables: Spark sends them to a process once."""
        with self._sending:
            if self._sent_with is not spark.sparkContext:  # What an application had ends with it.
                self._sent_with, self._broadcasts = spark.sparkContext, {}
            for key in [key for key in self._broadcasts if find_reference(key) is None]:
                self._broadcasts.pop(key).destroy()  # No job has these rows any more.
            for key, reference in job.references.items():
                if key not in self._broadcasts and isinstance(reference, Reference):
                    self._broadcasts[key] = spark.sparkContext.broadcast(reference.dump())
            return replace(job, references={key: self._broadcasts[key] for key in job.references})

    @contextmanager
    def _activated(self, pool: str, *, has_spark_part: bool = False) -> Iterator[SparkSession]:
        """Lets this thread use a session in its block. Whatever fails while its application has ended fails for that."""
        base = self._session()
        try:
            # Each thread has its own JVM thread, whose session and pool must be set.
            spark = self._for_query(base) if has_spark_part else base
            jvm: Any = spark.sparkContext._jvm
            jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
            yield spark
        except Exception as error:
            outage = None if is_jvm_gone(error) else self._outage(base)
            if outage is None:
                raise
            raise outage from None

    def _for_query(self, spark: SparkSession) -> SparkSession:
        """Returns a session on the same context with the settings of queries."""
        if self._for_queries is None or self._for_queries[0] is not spark:
            session = spark.newSession()
            prepare_session(session._jsparkSession)
            self._for_queries = spark, session
        return self._for_queries[1]


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
        references={reference.key: reference for p in planned for reference in p.table.schema.references.values()},
    )


def with_hints(job: Job, hints: Hints) -> Job:
    """Returns the job with the hints that earlier records of the table have left, to be read by one task."""
    targets = {
        topic: replace(target, reading=target.reading.with_hints(hints)) for topic, target in job.targets.items()
    }
    return replace(job, targets=targets, is_scattered=True)


def slices_of(batches: Sequence[Batch], parallelism: int) -> int:
    """Returns the number of tasks that read the batches together."""
    quickest = max(1, min(parallelism, sum(r.span for r in read_once(batches)) // _RECORDS_PER_TASK))
    allowed: dict[frozenset[str], int] = {}  # Each task writes a file for every table that it reads for.
    for batch in batches:
        allowed[batch.topics] = min(batch.most_tasks or quickest, allowed.get(batch.topics, quickest))
    return min(quickest, sum(allowed.values()))


def _with_spark_values(spark: SparkSession, reads: DataFrame, job: Job, part: SparkPart) -> DataFrame:
    """Returns the values of the expressions that Spark evaluates, for the second stage."""
    from pyspark.sql import DataFrame  # noqa: PLC0415  (imported late, as by whoever makes the session)
    from pyspark.sql.types import StructType  # noqa: PLC0415

    jvm: Any = spark.sparkContext._jvm
    columns = [(STEP, "string"), *((name, json.loads(kind)) for name, kind in input_schema(jvm, part))]
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns]
    first = partial(first_stage, replace(job, references={}))
    schema = StructType.fromJson({"type": "struct", "fields": fields})
    inputs = reads.mapInArrow(reading(wanted_of(job), first), schema)
    return DataFrame(with_values(jvm, spark._jsparkSession, inputs._jdf, part), spark)


def cause_of(error: Exception) -> str:
    """Returns the line of a Spark error with the cause: the last exception of a Python worker, or the innermost cause."""
    text = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [
        line for line in lines if line.split(":")[0].endswith(("Error", "Exception")) and " " not in line.split(":")[0]
    ]
    caused = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    for candidates in (caused, python, lines):
        if candidates:
            return candidates[-1][:400]
    return type(error).__name__


def _failure_of(error: Exception) -> FrazilError:
    """Returns what a failed job of Spark means."""
    broken = _BROKEN_FUNCTION.search(str(error))
    if broken is not None:
        return FunctionFailedError(broken[1])
    if away := _of_service(str(error)):
        return away
    if refused := _of_store(str(error)):
        place = _PLACE_IN_STORE.search(refused)
        where = next(filter(None, place.groups()), "") if place is not None else ""
        return UnavailableError(
            f"a task failed: {refused[:700]}", remedy=_remedy(error) or store_remedy(refused), where=where
        )
    remedy = _remedy(error)
    kind = UnavailableError if remedy or _is_elsewhere(str(error)) else TaskFailedError
    return kind(f"a task failed: {cause_of(error)}", remedy=remedy)


def _of_service(text: str) -> UnavailableError | None:
    """Returns the UnavailableError that a worker has raised, with its place and its remedy; None for another error."""
    for module, name, words in reversed(_raised(text)):
        if name == UnavailableError.__name__ or module.startswith(_OF_KAFKA):
            message, _, remedy = words.partition("; ")
            place = _PLACE_IN_KAFKA.search(message)
            where = place[1] if place is not None else ""
            message = message[: place.start()] if place is not None else message
            own = "" if remedy in _USUAL else remedy
            better = _remedy_of_text(text) or own or ("" if where else store_remedy(words))
            return UnavailableError(f"a task failed: {message[:700]}", remedy=better, where=where)
        if name.endswith(("Error", "Exception")):
            return None
    return None


def _raised(text: str) -> list[tuple[str, str, str]]:
    """Returns what a worker has raised, each as module, class and words."""
    return _RAISED.findall(text) if "Traceback (most recent call last)" in text else []


def _of_store(text: str) -> str:
    """Returns the words of an error of files that a worker has raised, which no record brings about; empty
    for another error. Memory that a record takes is no such error.
    """
    kinds = [(vars(builtins).get(name), words) for module, name, words in _raised(text) if not module]
    errors = [(kind, words) for kind, words in kinds if isinstance(kind, type) and issubclass(kind, BaseException)]
    if not errors or not issubclass(errors[-1][0], OSError) or _NO_MEMORY in errors[-1][1]:
        return ""
    return f"{errors[-1][0].__name__}: {errors[-1][1]}"


def _is_elsewhere(text: str) -> bool:
    """Whether the cause of a failed task is Kafka or the JVM, and not a worker that read a record."""
    return not any(sign in text for sign in _SIGNS_OF_WORKERS)


def _remedy(error: Exception) -> str:
    return _remedy_of_text(str(error))


def _remedy_of_text(text: str) -> str:
    if "No space left" in text:
        return "free disk space; Frazil retries with back-off"
    if NO_ZONES in text:
        return ZONES_REMEDY
    if "PYTHON_VERSION_MISMATCH" in text or "Cannot run program" in text:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return f"name a Python {version} that every executor has in spark.conf, as spark.pyspark.python"
    return ""
