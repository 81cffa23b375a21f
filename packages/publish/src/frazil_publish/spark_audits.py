"""Audits in Spark: each query sees `candidate` and `published` as temporary views of its thread's own session.

Both have the present columns of the table, as readers of main have them, whatever columns the snapshots were written with.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock, Thread, Timer
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.compaction import NotReadable, rows_at
from frazil.catalog.iceberg.java import each, forget_readers
from frazil.catalog.iceberg.maintenance import POOL
from frazil.clock import new_id
from frazil.errors import UnavailableError
from frazil.ops.seen_by_readers import FailedAudit
from frazil.spec.publishing import subquery, view_of
from frazil_publish.audits import Audit, Audited, names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN = 5
"""The number of rows that are shown of an audit that does not hold."""
LONGEST_S = 1800.0
"""The longest time that one audit may take."""
_AT_ONCE = 2
"""How many tables are audited at a time."""
_MOST_ROWS = 1000
_MOST_CHARACTERS = 2000
_COUNTS_NONE = re.compile(r"\(count\(1\) = (CAST\(0 AS BIGINT\)|0L?)\)")


class SparkAudits:
    """Implements the port `Audits` for tables of `catalog`. cores: the number of tasks at a time."""

    def __init__(self, catalog: IcebergCatalog, session: Callable[[], SparkSession], cores: int = 1) -> None:
        self._catalog = catalog
        self._session = session
        self._cores = cores
        #: Spark's session, and those of audits; others after Spark was started again.
        self._sessions: list[SparkSession] = []

    def run(self, tables: Sequence[Audited]) -> list[list[FailedAudit]]:
        """See Audits. Some tables are audited at a time: Spark plans the query of one while tasks of another one run."""
        waiting = deque(audited for audited in tables if audited.audits)
        if not waiting:
            return [[] for _ in tables]
        failures: dict[str, list[FailedAudit]] = {}
        errors: list[Exception] = []
        snapshots = _Snapshots(self._catalog)

        def audit(session: SparkSession) -> None:
            while waiting and not errors:
                with suppress(IndexError):  # Another thread has taken the last one.
                    audited = waiting.popleft()
                    try:
                        failures[audited.table] = self._failures(session, snapshots, audited)
                    except Exception as error:  # noqa: BLE001  (raised below)
                        errors.append(error)

        first, *more = self._child_sessions(min(len(waiting), _AT_ONCE))
        threads = [Thread(target=audit, args=(session,), name="publish-audit", daemon=True) for session in more]
        for thread in threads:
            thread.start()
        audit(first)
        for thread in threads:
            thread.join()
        forget_readers(self._catalog.gateway)
        if errors:
            raise errors[0]
        return [failures.get(audited.table, []) for audited in tables]

    def _failures(self, session: SparkSession, snapshots: _Snapshots, audited: Audited) -> list[FailedAudit]:
        """Returns the audits of a table that do not hold. session: of this thread alone."""
        views: dict[str, tuple[str, int | None]] = {
            **{view_of(other): (other, snapshot_id) for other, snapshot_id in audited.others.items()},
            "candidate": (audited.table, audited.candidate_id),
            "published": (audited.table, audited.published_id),
        }
        read = {name for name in views if any(names(query, name) for _, query in audited.audits)}
        try:
            session.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
            try:
                for name in read:
                    snapshots.rows(session, *views[name]).createOrReplaceTempView(f"`{name}`")
                failures = [self._failure(session, audit) for audit in audited.audits]
            except NotReadable as error:
                failures = [FailedAudit(name, str(error), has_failed=True) for name, _ in audited.audits]
            finally:
                for name in read:  # They keep the metadata of the table.
                    session.catalog.dropTempView(name)
            return [failure for failure in failures if failure is not None]
        except (PySparkException, Py4JError, ConnectionError) as error:
            raise UnavailableError(f"the table cannot be audited: {_first_line(error)}", where=audited.table) from None

    def _failure(self, session: SparkSession, audit: Audit) -> FailedAudit | None:
        """Returns why an audit does not hold; None where it does."""
        name, query = audit
        try:
            with _bounded(session):
                session._jsparkSession.sessionState().sqlParser().parsePlan(subquery(query))
                rows = session.sql(query)
                is_verdict = [field.dataType.typeName() for field in rows.schema.fields] == ["boolean"]
                return _of_verdict(name, rows) if is_verdict else _of_rows(name, rows)
        except (PySparkException, Py4JJavaError) as error:
            return FailedAudit(name, f"the query fails: {_first_line(error)}", has_failed=True)

    def _child_sessions(self, count: int) -> list[SparkSession]:
        """Returns sessions with views of their own, one for each thread."""
        parent = self._session()
        if self._sessions and self._sessions[0] is not parent:
            self._sessions.clear()
        while len(self._sessions) <= count:
            self._sessions.append(_child_session(parent, self._cores) if self._sessions else parent)
        return self._sessions[1 : count + 1]


class _Snapshots:
    """Rows of snapshots, each of which Spark is given once, however many audits read it."""

    def __init__(self, catalog: IcebergCatalog) -> None:
        self._catalog = catalog
        self._plans: dict[tuple[str, int | None], Any] = {}
        self._lock = Lock()

    def rows(self, session: SparkSession, table: str, snapshot_id: int | None) -> DataFrame:
        """Returns the rows of a snapshot for a session. Raises: as `rows_at`."""
        from pyspark.sql import DataFrame  # noqa: PLC0415  (a third of a second that other commands need not pay)

        with self._lock:
            plan = self._plans.get((table, snapshot_id))
            if plan is None:
                rows = rows_at(session, self._catalog, table, snapshot_id)
                plan = self._plans[table, snapshot_id] = rows._jdf.queryExecution().analyzed()
        jvm: Any = session.sparkContext._jvm
        return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)


def _child_session(parent: SparkSession, cores: int) -> SparkSession:
    """Returns a session whose tasks leave cores to ingestion."""
    session = parent.newSession()
    for name, value in {
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.caseSensitive": "true",  # A table may have both `Id` and `id`.
        "spark.sql.jsonGenerator.ignoreNullFields": "false",
        # A query that holds returns no row, which Spark would look for in one partition first, then in four, and so on.
        "spark.sql.limit.initialNumPartitions": "100",
        "spark.sql.ui.explainMode": "simple",  # Spark writes the formatted plan for nobody, and as long as it analyses it.
    }.items():
        session.conf.set(name, value)
    return session


def _of_verdict(name: str, rows: DataFrame) -> FailedAudit | None:
    """Returns why a query of one boolean does not hold: each of its rows must be true, and there must be one."""
    verdicts = rows.toDF("verdict")  # Spark names the column by the whole expression, however long it is.
    values = _verdicts(verdicts, _MOST_ROWS)
    if len(values) == _MOST_ROWS and all(values):
        values = _verdicts(verdicts.where("verdict is not true"), 1) or values
    if values and all(values):
        return None
    word = next(("null" if value is None else "false" for value in values if not value), "no row")
    return FailedAudit(name, f"the query returns {word}", _counted_rows(rows))


def _verdicts(rows: DataFrame, most: int) -> list[bool | None]:
    """Returns the values of up to `most` rows of one boolean."""
    return [row.get(0) for row in each(rows._jdf.takeAsList(most))]


def _of_rows(name: str, rows: DataFrame) -> FailedAudit | None:
    """Returns why a query of rows does not hold: it must return none."""
    taken = _taken(rows._jdf, SHOWN + 1)
    if not taken:
        return None
    count = f"{len(taken)}" if len(taken) <= SHOWN else f"more than {SHOWN}"
    return FailedAudit(name, f"the query returns {count} row{'s' if len(taken) > 1 else ''}", tuple(taken[:SHOWN]))


def _counted_rows(rows: DataFrame) -> tuple[str, ...]:
    """Returns some of the rows that `select count(*) = 0 from …` has counted; none of another query."""
    jvm: Any = rows.sparkSession.sparkContext._jvm
    plan = rows._jdf.queryExecution().analyzed()
    if plan.nodeName() != "Aggregate" or not plan.groupingExpressions().isEmpty():
        return ()
    if _COUNTS_NONE.match(str(plan.aggregateExpressions().head().sql())) is None:
        return ()
    counted = jvm.org.apache.spark.sql.classic.Dataset.ofRows(rows.sparkSession._jsparkSession, plan.child())
    return tuple(_taken(counted, SHOWN))


def _taken(dataset: Any, most: int) -> list[str]:
    """Returns up to `most` rows of Spark's Java dataset as JSON."""
    # Through py4j: PySpark's own way leaves a socket open for each result until it is garbage-collected. Most queries return
    # no row, and Spark would plan for longer to make JSON of those of the query.
    rows = dataset.takeAsList(most)
    if rows.isEmpty():
        return []
    taken = dataset.sparkSession().createDataFrame(rows, dataset.schema())
    return [str(text)[:_MOST_CHARACTERS] for text in each(taken.toJSON().takeAsList(most))]


@contextmanager
def _bounded(session: SparkSession) -> Iterator[None]:
    """Cancels the Spark jobs of its block, which runs in this thread, after LONGEST_S."""
    group, context = f"audit-{new_id()}", session.sparkContext
    context.setJobGroup(group, "audit", interruptOnCancel=True)
    timer = Timer(LONGEST_S, context.cancelJobGroup, (group,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:400]
