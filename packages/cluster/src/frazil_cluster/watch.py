"""Watches the application of a Spark session on a cluster: whether it has executors, and whether it can get any.

Spark waits for them without end, also where the master was restarted and knows nothing of the application: its jobs hang.
Here the application is ended then, so that its jobs fail, and the next job begins another one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from py4j.protocol import Py4JError, Py4JJavaError

from frazil.clock import Clock
from frazil.errors import UnavailableError
from frazil.runtime.jvm import has_ended
from frazil_cluster.master import Master, ask_master, is_standalone

log = structlog.get_logger("frazil")

EVERY_S = 2.0
UNANSWERED_S = 8.0
"""For how long a master may be away while there are no executors: a restart of one that remembers applications."""
STANDALONE_S, ELSEWHERE_S, ON_DEMAND_S = 20.0, 300.0, 600.0
"""How long executors take to come at most: processes on running machines; containers; rented machines."""


@dataclass(frozen=True)
class Outage:
    """Why an application runs no tasks."""

    error: UnavailableError
    #: Whether it cannot get executors any more, so that another application must be started.
    is_lost: bool


def outage_of(
    without_s: float, is_overdue: bool, application: str, url: str, master: Master | UnavailableError | None
) -> Outage | None:
    """Returns why an application without executors runs no tasks; None while they may still come.

    without_s: for how long it has had none. is_overdue: whether its jobs wait for them for longer than they take to come.
    url: of the master. master: of a standalone cluster, or why it does not answer; None on another cluster.
    """
    if isinstance(master, UnavailableError):
        return Outage(master, is_lost=True) if without_s >= UNANSWERED_S else None
    if master is not None and application not in master.applications:
        return Outage(has_ended("the Spark master no longer knows the application", url), is_lost=True)
    if not is_overdue:
        return None
    return Outage(
        UnavailableError(
            "the Spark cluster gives the application no executors",
            remedy="start workers, or free cores and memory of those that run; if there are some, read the executors' log",
            where=url,
        ),
        is_lost=False,
    )


class ApplicationWatch:
    """Watches one application in a thread of its own, until it has ended or `stop` is called."""

    def __init__(self, jvm: Any, context: Any, conf: Mapping[str, str], clock: Clock) -> None:
        """jvm: py4j's view of the JVM. context: Java's SparkContext. conf: Spark's properties."""
        self._jvm = jvm
        self._context = context
        self._conf = conf
        self._clock = clock
        self._url = conf["spark.master"]
        self._application: str = context.applicationId()
        self._is_on_demand = conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true"
        #: Since when it has had no executors, and since when its jobs have waited for some.
        self._without_since_s: float | None = None
        self._waiting_since_s: float | None = None
        self._stopped = threading.Event()
        #: Why it runs no tasks now; None while it does.
        self.outage: Outage | None = None
        self._thread = threading.Thread(target=self._run, name="application-watch", daemon=True)

    def error(self) -> UnavailableError | None:
        """Returns why the application runs no tasks now; None while it does."""
        return None if self.outage is None else self.outage.error

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(EVERY_S):
            try:
                if self.look():
                    return
            except Py4JJavaError:
                continue  # It is ending; the next look finds it ended.
            except (Py4JError, OSError):
                return  # The JVM has ended.

    def look(self) -> bool:
        """Looks at the application once; returns whether it has ended.

        Raises: Py4JError, OSError while it ends, and once the JVM has ended.
        """
        if self._context.isStopped():
            if not self._stopped.is_set():
                self._note(Outage(has_ended("the Spark application has ended", self._url), is_lost=True))
            return True
        if self._context.getExecutorIds().size():
            self._without_since_s = self._waiting_since_s = None
            if self.outage is not None:
                log.info("spark_executors_available_again")
                self.outage = None
            return False
        outage = self._missing()
        if outage is None:
            return False
        self._note(outage)
        if outage.is_lost:
            self._context.stop()
        else:
            self._context.cancelAllJobs()
        return outage.is_lost

    def _missing(self) -> Outage | None:
        """Returns why an application without executors runs no tasks."""
        now_s = self._clock.monotonic_s()
        if self._without_since_s is None:
            self._without_since_s = now_s
        if self._is_on_demand and not len(self._context.statusTracker().getActiveJobIds()):
            # Executors are started on demand: none before it has a job again.
            self._waiting_since_s = self.outage = None
        elif self._waiting_since_s is None:
            self._waiting_since_s = now_s
        master = self._asked()
        is_overdue = self._waiting_since_s is not None and now_s - self._waiting_since_s >= self._allowed_s
        outage = outage_of(now_s - self._without_since_s, is_overdue, self._application, self._url, master)
        if outage is not None and not outage.is_lost and isinstance(master, Master):
            lacking = master.lacking(self._conf, self._jvm.org.apache.spark.util.Utils.memoryStringToMb)
            outage = Outage(lacking, is_lost=False) if lacking is not None else outage
        return outage

    @property
    def _allowed_s(self) -> float:
        if self._is_on_demand:
            return ON_DEMAND_S
        return STANDALONE_S if is_standalone(self._url) else ELSEWHERE_S

    def _asked(self) -> Master | UnavailableError | None:
        """Returns the master of a standalone cluster, or why it does not answer; None on another cluster."""
        if not is_standalone(self._url):
            return None
        try:
            return ask_master(self._jvm, self._conf, self._url)
        except UnavailableError as error:
            return error

    def _note(self, outage: Outage) -> None:
        is_known = self.outage is not None and self.outage.error.message == outage.error.message
        self.outage = outage
        if not is_known:
            error = outage.error
            if outage.is_lost:
                log.warning("spark_application_lost", reason=error.message, where=error.where, remedy=error.remedy)
            else:
                log.warning("spark_executors_missing", reason=error.message, where=error.where, remedy=error.remedy)
