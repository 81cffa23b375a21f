"""Audits in Spark: each query sees `candidate` and `published` as temporary views of a session of its own.

Both have the present columns of the table, as readers of main have them, whatever columns the snapshots were written with.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.compaction import NotReadable, rows_at
from frazil.catalog.iceberg.maintenance import POOL
from frazil.clock import new_id
from frazil.errors import UnavailableError
from frazil.ops.publishing import FailedAudit
from frazil.spec.publishing import subquery, view_of
from frazil_publish.audits import NO_OTHERS, Audit, names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN = 5
"""The number of rows that are shown of an audit that does not hold."""
LONGEST_S = 1800.0
"""The longest time that one audit may take."""
_MOST_ROWS = 1000
_MOST_CHARACTERS = 2000
_COUNTS_NONE = re.compile(r"\(count\(1\) = (CAST\(0 AS BIGINT\)|0L?)\)")


class SparkAudits:
    """Implements the port `Audits` for tables of `catalog`. cores: the number of tasks at a time."""

    def __init__(self, catalog: IcebergCatalog, session: Callable[[], SparkSession], cores: int = 1) -> None:
        self._catalog = catalog
        self._session = session
        self._cores = cores
        #: Spark's session, and the one of audits; another one after Spark was started again.
        self._sessions: tuple[SparkSession, SparkSession] | None = None

    def run(
        self,
        table: str,
        candidate_id: int,
        published_id: int | None,
        audits: Sequence[Audit],
        others: Mapping[str, int | None] = NO_OTHERS,
    ) -> list[FailedAudit]:
        """See Audits."""
        views: dict[str, tuple[str, int | None]] = {
            view_of(other): (other, snapshot_id)
            for other, snapshot_id in others.items()
            if any(names(query, view_of(other)) for _, query in audits)
        }
        views |= {"candidate": (table, candidate_id), "published": (table, published_id)}
        try:
            session = self._child_session()
            try:
                for name, (source, snapshot_id) in views.items():
                    rows_at(session, self._catalog, source, snapshot_id).createOrReplaceTempView(f"`{name}`")
                failures = [self._failure(session, audit) for audit in audits]
            except NotReadable as error:
                failures = [FailedAudit(name, str(error), has_failed=True) for name, _ in audits]
            finally:
                for name in views:  # They keep the metadata of the table.
                    session.catalog.dropTempView(name)
            return [failure for failure in failures if failure is not None]
        except (PySparkException, Py4JError, ConnectionError) as error:
            raise UnavailableError(f"the table cannot be audited: {_first_line(error)}", where=table) from None

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

    def _child_session(self) -> SparkSession:
        """Returns a session with views of its own, whose tasks leave cores to ingestion."""
        parent = self._session()
        if self._sessions is None or self._sessions[0] is not parent:
            self._sessions = parent, parent.newSession()
        session = self._sessions[1]
        for name, value in {
            "spark.sql.shuffle.partitions": str(self._cores),
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.caseSensitive": "true",  # A table may have both `Id` and `id`.
            "spark.sql.jsonGenerator.ignoreNullFields": "false",
        }.items():
            session.conf.set(name, value)
        session.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
        return session


def _of_verdict(name: str, rows: DataFrame) -> FailedAudit | None:
    """Returns why a query of one boolean does not hold: each of its rows must be true, and there must be one."""
    verdicts = rows.toDF("verdict")  # Spark names the column by the whole expression, however long it is.
    values = [json.loads(text)["verdict"] for text in _taken(verdicts._jdf, _MOST_ROWS)]
    if len(values) == _MOST_ROWS and all(value is True for value in values):
        others = _taken(verdicts.where("verdict is not true")._jdf, 1)
        values = [json.loads(text)["verdict"] for text in others] or values
    if values and all(value is True for value in values):
        return None
    value = next((value for value in values if value is not True), "no row")
    word = {False: "false", None: "null"}.get(value, value) if not isinstance(value, str) else value
    return FailedAudit(name, f"the query returns {word}", _counted_rows(rows))


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
    # Through py4j: PySpark's own way leaves a socket open for each result until it is garbage-collected.
    return [str(text)[:_MOST_CHARACTERS] for text in dataset.toJSON().takeAsList(most)]


@contextmanager
def _bounded(session: SparkSession) -> Iterator[None]:
    """Cancels the Spark jobs of its block, which runs in this thread, after LONGEST_S."""
    group, context = f"audit-{new_id()}", session.sparkContext
    context.setJobGroup(group, "audit", interruptOnCancel=True)
    timer = threading.Timer(LONGEST_S, context.cancelJobGroup, (group,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:400]
