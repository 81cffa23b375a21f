"""The JVM of this process, the Spark session in it, and how it writes local files.

The JVM starts first (about a second); catalogs can be used while the session is still being created. Commands that only
read tables never create a session. Its heap is watched, and kept small while the process stands by.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import structlog
from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JError

from frazil.clock import Clock, SystemClock
from frazil.errors import UnavailableError
from frazil.files import temporary_folder
from frazil.plugins.driver import CLUSTERS
from frazil.runtime.gateway import (
    OF_JVM,
    forget_address,
    hadoop_settings,
    read_promptly,
    remember_names,
    start_jvm,
    translate_exceptions_of,
    wait_for_end,
)
from frazil.runtime.jars import jars, own_jars
from frazil.secrets import SPARK_REDACTION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger("frazil")

_PACKAGE = "org/apache/hadoop/fs"
_PARENT = f"{_PACKAGE}/RawLocalFileSystem"
_SET_PERMISSION = f"(L{_PACKAGE}/Path;L{_PACKAGE}/permission/FsPermission;)V"
# Of the Java virtual machine's specification, chapters 4.1, 4.5 and 6.5.
_JAVA_8, _PUBLIC, _SUPER = 52, 1, 0x20
_ALOAD, _INVOKESPECIAL, _RETURN = 25, 183, 177
_DEFAULTS = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.scheduler.mode": "FAIR",
    "spark.scheduler.allocation.file": str(resources.files("frazil.runtime") / "fairscheduler.xml"),
    "spark.speculation": "false",
    # A JVM that lacked memory for one task lives on for the others.
    "spark.executor.killOnFatalError.depth": "0",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "frazil.ingest.tasks.daemon",
    "spark.redaction.regex": SPARK_REDACTION,
}
# The parallel collector costs least of all over a batch; the pauses it makes are far below a commit's duration. Half of the
# heap may be young, as what a batch reads lives shortly. A standby stays with what is young at first, 192 MB: it touches no
# more of its heap. Code must run four times as often as usual before C1 compiles it, and forty times as often before C2
# does: most of what a start compiles is never hot (docs/performance.md).
JVM_OPTIONS = (
    "-XX:+UseParallelGC",
    "-XX:NewRatio=1",
    "-XX:NewSize=192m",
    "-XX:MetaspaceSize=192m",
    "-XX:CompileThresholdScaling=4",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
    f"-Dlog4j2.configurationFile={resources.files('frazil.runtime') / 'log4j2.properties'}",
)
# A context that ends by itself, as its master has removed it, still closes what it has for a while.
_CONTEXT_END_TIMEOUT_S = 20.0
# Of Java's exceptions for a property that Spark cannot use.
_OF_PROPERTIES = ("IllegalArgumentException", "NumberFormatException", "Could not parse Master URL")
MEASURE_EVERY_S = 5.0
# The least time between two collections of Python's own garbage, and the most of a core that they may take.
_COLLECT_EVERY_S = 5.0
_COLLECT_SHARE = 0.005
# A collection of the whole heap takes 0.15 s of a core.
MUCH_GARBAGE_BYTES = 96 * 1024 * 1024


def prepare_local_files(gateway: Any) -> None:
    """Makes the JVM behind `gateway` write local files without a `.crc` file, and without starting a process for each.

    Hadoop's file system without checksums cannot be used: Iceberg's reader asks it for its scheme, which it does not know.
    """
    fs = gateway.jvm.org.apache.hadoop.fs
    local = fs.FileSystem.getLocal(gateway.jvm.org.apache.hadoop.conf.Configuration())
    local.setWriteChecksum(False)
    local.setVerifyChecksum(False)
    _leave_permissions(gateway, local)


def _leave_permissions(gateway: Any, local: Any) -> None:
    """Lets files and folders have the permissions that the process's umask gives them, like those that tasks write.

    Hadoop sets permissions of its own. Without its native library it runs `chmod` for that, twice for each file, which takes
    a third of the time of a commit and of its processor time.
    """
    jvm = gateway.jvm
    raw = local.getRaw()
    if jvm.org.apache.hadoop.io.nativeio.NativeIO.isAvailable() or not is_instance_of(gateway, raw, _dotted(_PARENT)):
        return
    lookups = jvm.java.lang.invoke.MethodHandles
    home = lookups.privateLookupIn(raw.getClass(), lookups.lookup())
    plain = home.defineClass(_without_permissions(jvm)).getConstructor(gateway.new_array(jvm.java.lang.Class, 0))
    plain = plain.newInstance(gateway.new_array(jvm.java.lang.Object, 0))
    plain.initialize(raw.getUri(), raw.getConf())
    field = jvm.java.lang.Class.forName(f"{_dotted(_PACKAGE)}.FilterFileSystem").getDeclaredField("fs")
    field.setAccessible(True)
    field.set(local, plain)


def _without_permissions(jvm: Any) -> Any:
    """Returns the bytes of a class whose parent is Hadoop's file system without checksums, and that sets no permissions:
    Java has no other way to override one method of a class at run time.
    """
    asm = jvm.org.apache.xbean.asm9
    writer = asm.ClassWriter(0)
    writer.visit(_JAVA_8, _PUBLIC | _SUPER, f"{_PACKAGE}/LocalFilesWithoutPermissions", None, _PARENT, None)
    create = writer.visitMethod(_PUBLIC, "<init>", "()V", None, None)
    create.visitCode()
    create.visitVarInsn(_ALOAD, 0)
    create.visitMethodInsn(_INVOKESPECIAL, _PARENT, "<init>", "()V", False)
    create.visitInsn(_RETURN)
    create.visitMaxs(1, 1)
    create.visitEnd()
    ignore = writer.visitMethod(_PUBLIC, "setPermission", _SET_PERMISSION, None, None)
    ignore.visitCode()
    ignore.visitInsn(_RETURN)
    ignore.visitMaxs(0, 3)
    ignore.visitEnd()
    writer.visitEnd()
    return writer.toByteArray()


def _dotted(name: str) -> str:
    return name.replace("/", ".")


class ClusterWatch(Protocol):
    """Watches one application on a cluster."""

    def error(self) -> UnavailableError | None:
        """Returns why the application runs no tasks now; None while it does."""

    def stop(self) -> None:
        """Ends the watch."""


class SparkCluster(Protocol):
    """The port of a cluster that runs tasks. conf: Spark's properties. jvm: py4j's view of a JVM with Spark's classes."""

    def python(self, conf: Mapping[str, str]) -> str:
        """Returns the Python that executors run."""

    def settings(self, conf: Mapping[str, str], limit_s: float | None) -> dict[str, str]:
        """Returns Spark's properties by which executors get what tasks import. limit_s: how long the archives may take.

        Raises: UnavailableError where an archive is not built within this time, or cannot be.
        """

    def ask(self, jvm: Any, conf: Mapping[str, str]) -> None:
        """Raises: UnavailableError where the master does not answer."""

    def watch(self, jvm: Any, context: Any, conf: Mapping[str, str], clock: Clock) -> ClusterWatch:
        """Begins to watch an application. context: Java's SparkContext."""

    def check(self, conf: Mapping[str, str], environment: Mapping[str, str], jvm: Any) -> Iterable[Any]:
        """Yields the `ops.check.Finding` of the master. jvm: None where there is none: no standalone one is asked then."""


def cluster_of(master: str) -> SparkCluster:
    """Returns the cluster of a master.

    Raises: SpecError where the package for clusters is not installed.
    """
    cluster: SparkCluster = CLUSTERS.get("spark").opener(master)
    return cluster


def has_ended(reason: str, where: str) -> UnavailableError:
    """Returns the error of jobs whose application has ended."""
    return UnavailableError(reason, remedy="Frazil starts another application; look at the master's log", where=where)


class Jvm:
    """A running JVM with the classes of Spark and Iceberg."""

    def __init__(
        self,
        conf: Mapping[str, str],
        master: str,
        needs_s3: bool = False,
        meanwhile: Callable[[], object] = lambda: None,
        limit_s: float | None = None,
    ) -> None:
        """Starts the JVM. conf: the user's Spark properties, which override Frazil's. meanwhile: is called while it starts.
        limit_s: how long the archives for a cluster may take to be built.

        Raises: UnavailableError without Java, or the archives; SpecError where the package for clusters is not installed.
        """
        #: Where tasks run; None where they run in this JVM.
        self._cluster = None if is_local(master) else cluster_of(master)
        os.environ["PYSPARK_PYTHON"] = sys.executable if self._cluster is None else self._cluster.python(conf)
        self._settings = _spark_settings(conf, master, needs_s3, self._cluster, limit_s)
        # Java's database drivers are found only by the loader of the class path, not by Spark's.
        named = [Path(jar.removeprefix("file:")) for jar in conf.get("spark.jars", "").split(",") if jar]
        last = [*(jars("s3") if needs_s3 else ()), *named]
        self._held = ExitStack()
        temporary, then = self._held.enter_context(temporary_folder(OF_JVM)), partial(_import_pyspark, meanwhile)
        self._process = start_jvm(self._settings, own_jars(needs_s3=False), JVM_OPTIONS, temporary, last, then)
        from pyspark import SparkConf  # noqa: PLC0415  (imported while the JVM started)
        from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

        self._conf = SparkConf(loadDefaults=False).setAll(list(self._settings.items()))
        remember_names()
        read_promptly()
        #: py4j's gateway.
        self.gateway: Any = launch_gateway(self._conf)  # type: ignore[no-untyped-call]
        #: Hadoop's settings among Spark's.
        self.hadoop = hadoop_settings(self._settings)
        forget_address()
        _note_gateway(self.gateway)
        prepare_local_files(self.gateway)
        self._session: SparkSession | None = None
        #: Of the session; None where there is none, and for tasks in this JVM.
        self._watch: ClusterWatch | None = None
        self._making = threading.Lock()

    def session(self) -> SparkSession:
        """Returns the Spark session, created at the first call, and again after it has ended, as when a cluster gives
        it up. Thread-safe.

        Raises: UnavailableError where the master gives no session, or the cluster no executors.
        """
        with self._making:
            if self._session is not None and self._has_ended(self._session):
                self._session.stop()
                self._session = None
            if self._session is None:
                self._session = self._made_session()
                log.info("spark_session_started")
            elif self._watch is not None and (error := self._watch.error()) is not None:
                raise error
            return self._session

    def outage(self, session: SparkSession) -> UnavailableError | None:
        """Returns why no job of the session can succeed, which is the reason of any failure in it; None while jobs can."""
        error = self._watch.error() if self._watch is not None else None
        if error is not None:
            return error
        if session is self._session and not self._has_ended(session):
            return None
        return has_ended("the Spark application has ended", self._settings["spark.master"])

    def _has_ended(self, session: SparkSession) -> bool:
        context = session.sparkContext._jsc
        return context is None or bool(context.sc().isStopped())

    def _made_session(self) -> SparkSession:
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415  (PySpark's, which is imported late)
        from pyspark import SparkContext  # noqa: PLC0415
        from pyspark.sql import SparkSession  # noqa: PLC0415

        cluster, clock = self._cluster, SystemClock()
        if cluster is not None:
            cluster.ask(self.gateway.jvm, self._settings)
        self._end_last_context(clock)
        _silence_pyspark()
        on_interrupt = signal.getsignal(signal.SIGINT)
        try:
            context = SparkContext(conf=self._conf, gateway=self.gateway)
            # PySpark's handler calls Java to cancel jobs, which fails in the middle of another call.
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, on_interrupt)
            session = SparkSession(context)
            translate_exceptions_of(self.gateway)
        except Py4JJavaError as error:
            active: SparkContext | None = SparkContext._active_spark_context
            if active is not None:
                active.stop()
            if cluster is not None:  # It may have gone meanwhile, which fails in the middle of something else.
                cluster.ask(self.gateway.jvm, self._settings)
            raise self._not_started(str(error.java_exception).splitlines()[0]) from None
        if cluster is not None:
            self._watch = cluster.watch(self.gateway.jvm, context._jsc.sc(), self._settings, clock)
        return session

    def _not_started(self, reason: str) -> UnavailableError:
        """Returns the error of a session that Spark does not start."""
        url = self._settings["spark.master"]
        who = "Spark" if is_local(url) else "the Spark master"
        remedy = "check that the master is running, has workers, and reaches this machine at spark.driver.host"
        if is_local(url) or any(sign in reason for sign in _OF_PROPERTIES):
            remedy = "correct the property under `spark.conf`"
        return UnavailableError(f"{who} does not start a session: {reason}", remedy=remedy, where=url)

    def _end_last_context(self, clock: Clock) -> None:
        """Waits until a context that has ended is closed: Spark allows one in a JVM. One that could not be made is never
        closed.
        """
        contexts = getattr(getattr(self.gateway.jvm.org.apache.spark, "SparkContext$"), "MODULE$")
        until_s = clock.monotonic_s() + _CONTEXT_END_TIMEOUT_S
        while contexts.getActive().isDefined() and clock.monotonic_s() < until_s:
            clock.sleep(0.1)
        contexts.clearActiveContext()

    def close(self) -> None:
        """Stops the session and the JVM, or what is left of them after the JVM has died."""
        if self._watch is not None:
            self._watch.stop()
        with suppress(Py4JError, OSError):
            if self._session is not None:
                self._session.stop()
        with suppress(Py4JError, OSError):
            self.gateway.shutdown()
        if self._process.stdin is not None:
            self._process.stdin.close()
        wait_for_end(self._process)
        self._held.close()
        _note_gateway(None)

    def has_ended(self) -> bool:
        """Whether the process of the JVM has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kills the JVM."""
        self._process.kill()


def _import_pyspark(then: Callable[[], object]) -> None:
    """Imports what the session needs of PySpark: a second that other commands need not pay."""
    importlib.import_module("pyspark.sql")
    importlib.import_module("pyspark.java_gateway")
    then()


def _silence_pyspark() -> None:
    """Switches off the two loggers by which PySpark writes Java's stack trace to standard error, past Frazil's log and what
    hides secrets in it, for every exception of a query that it translates. Who catches the exception reports it. The server
    of its accumulators, which Frazil does not use, writes one when the JVM is killed.
    """
    from pyspark.accumulators import AccumulatorTCPServer  # noqa: PLC0415  (PySpark's, which is imported late)
    from pyspark.logger import PySparkLogger  # noqa: PLC0415  (PySpark's, which is imported late)

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    AccumulatorTCPServer.handle_error = lambda *_: None  # type: ignore[method-assign]


def _note_gateway(gateway: Any) -> None:
    """Sets the JVM that PySpark uses to translate exceptions, also before there is a session. None: the JVM has ended."""
    from pyspark import SparkContext  # noqa: PLC0415  (PySpark's, which is imported late)

    SparkContext._gateway = gateway
    SparkContext._jvm = gateway.jvm if gateway is not None else None


def _spark_settings(
    conf: Mapping[str, str], master: str, needs_s3: bool, cluster: SparkCluster | None, limit_s: float | None
) -> dict[str, str]:
    """Returns every property of the session. limit_s: how long the archives for a cluster may take to be built."""
    # Two slots more than cores, so that a small batch never waits for the tasks of a catch-up, or for a task that hangs.
    with_slots = f"local[{core_count() + 2}]" if master == "local[*]" else master
    settings = {**_DEFAULTS, **conf, "spark.master": with_slots, "spark.app.name": "frazil"}
    if cluster is None:
        settings.setdefault("spark.driver.host", "127.0.0.1")
        settings.setdefault("spark.driver.bindAddress", "127.0.0.1")
    else:
        # Executors fetch the jars from the driver; here they are on the class path.
        shipped = [*map(str, own_jars(needs_s3)), *filter(None, [conf.get("spark.jars", "")])]
        settings["spark.jars"] = ",".join(shipped)
        settings |= cluster.settings(conf, limit_s)
    return settings


def is_local(master: str) -> bool:
    """Returns whether tasks run in this process's own JVM."""
    return master.startswith("local")


def core_count() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class HeapUsage:
    """Java's figures (`java.lang.management.MemoryUsage`)."""

    used_bytes: int
    max_bytes: int


class Heap:
    """Asks the JVM at most every five seconds, however many ask. Any thread may ask."""

    def __init__(self, gateway: Callable[[], Any], clock: Clock) -> None:
        self._gateway = gateway
        self._clock = clock
        self._lock = threading.Lock()
        self._measured_s = float("-inf")
        self._usage: HeapUsage | None = None
        self._kept_bytes: int | None = None

    def usage(self) -> HeapUsage | None:
        """Returns what was last measured; None once the JVM has ended."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            if now_s - self._measured_s >= MEASURE_EVERY_S:
                self._measured_s, self._usage = now_s, self._measure()
            return self._usage

    def keep_small(self) -> None:
        """Collects the garbage of the whole heap where it has much of it. Objects that outlive a small collection by chance
        would otherwise fill the heap in some hours, and Java keeps memory that it has once filled. One thread calls it.

        Raises: Py4JError, OSError once the JVM has ended.
        """
        java = self._gateway().jvm.java.lang
        memory = java.management.ManagementFactory.getMemoryMXBean()
        if self._kept_bytes is None or memory.getHeapMemoryUsage().getUsed() > self._kept_bytes + MUCH_GARBAGE_BYTES:
            java.System.gc()
            self._kept_bytes = memory.getHeapMemoryUsage().getUsed()

    def _measure(self) -> HeapUsage | None:
        try:
            java = self._gateway().jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage()
            return HeapUsage(java.getUsed(), java.getMax())
        except (Py4JError, OSError):
            return None


class Garbage:
    """Python's objects that refer to each other and are no longer used, as py4j's do. Java keeps the object behind each and
    all that this refers to, such as the metadata of a table at each commit: two commits a second fill its memory within a
    quarter of an hour. Python itself seldom looks for such objects once they have lived for seconds, or sees their size.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due_s = 0.0

    def collect(self) -> None:
        """Collects it where that is due. One thread calls it, after each batch."""
        began_s = self._clock.monotonic_s()
        if began_s < self._due_s:
            return
        gc.collect()
        ended_s = self._clock.monotonic_s()
        self._due_s = ended_s + max(_COLLECT_EVERY_S, (ended_s - began_s) / _COLLECT_SHARE)
