"""The maintenance port on top of Iceberg's actions: rewrites run as Spark jobs, the rest in the driver's JVM.

Every call loads the table again, independently of ingestion. Rewrites are committed on top of whatever was committed
meanwhile; where that replaced the files that were read, the rewrite is discarded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError

from frazil.catalog.iceberg.answers import change, is_conflict, send_once, set_property
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.compaction import RESERVED, compact_table
from frazil.catalog.iceberg.data_files import Described, dropped_fields
from frazil.catalog.iceberg.dropped_columns import forget_dropped_values
from frazil.catalog.iceberg.java import (
    Collector,
    each,
    forget_readers,
    head_of,
    is_not_there,
    java_errors,
    lent,
    maintenance_workers,
    newest_snapshot,
    strings,
    summary_of,
    unavailable,
)
from frazil.catalog.iceberg.rewrite_commit import replace_deletes, replace_manifests
from frazil.catalog.iceberg.rewriters import is_readable_by_spark
from frazil.catalog.iceberg.validators import Validator
from frazil.catalog.maintenance_port import Compaction, MergeOf, Rewritten, Transfer
from frazil.catalog.progress import key
from frazil.catalog.table_metadata import (
    TableMetadata,
    carried_progress,
    find_foreign_metadata,
    is_own,
    normalize_path,
    read_table_metadata,
)
from frazil.errors import ConflictError, FrazilError, SpecError, UnavailableError
from frazil.failpoints import hit
from frazil.types import MAIN, Commit, Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POOL = "maintenance"
"""Spark's scheduler pool of table maintenance."""
_SPLIT_SIZE = "spark.sql.iceberg.read.split-size"
_UNLIMITED = str(1 << 50)
"""The split size with which one task reads a whole metadata table."""
_OPENING_BYTES = 4 * 1024 * 1024
"""Iceberg's estimate of the cost of opening a file, in bytes."""
_DELETED_AT_ONCE = 100
_METADATA = ".metadata.json"
_DAY_MS = 86_400_000
_WITH_DELETES = {"delete-file-threshold": "1", "min-file-size-bytes": "0"}
"""Chooses data files with deletes, and files that are much too large."""
_GONE = ("No such file", "FileNotFoundException")
"""Messages of listing a folder while files are deleted, such as by another process that expires snapshots."""
_IN_PYTHON = "exception was thrown from the Python worker"
_LASTING = ("ValidationException",)
"""Here the table itself is the reason, such as `gc.enabled`, and not a conflicting commit."""
_UNREADABLE = ("Invalid schema",)
"""Iceberg's message for a table it cannot read: equality deletes on a column that was dropped and added again."""


class IcebergMaintenance:
    """Implements the port `TableMaintenance` for tables of `catalog`. session: None where only actions without Spark are
    called. cores: the number of tasks at a time. merge_of: compacts files where it supports them; None: Iceberg's own
    writer does.
    """

    def __init__(
        self,
        catalog: IcebergCatalog,
        session: Callable[[], SparkSession] | None = None,
        cores: int = 1,
        merge_of: MergeOf | None = None,
    ) -> None:
        self._catalog = catalog
        self._jvm = catalog.gateway.jvm
        self._session = session
        self._cores = cores
        self._merge_of = merge_of
        self._sessions: dict[SparkSession, SparkSession] = {}

    def metadata(self, table: str, with_files: bool) -> TableMetadata | None:
        iceberg = self._jvm.org.apache.iceberg
        try:
            java, branch = self._catalog.java_table(table), self._catalog.branch_of(table)
            text = str(iceberg.TableMetadataParser.toJson(java.operations().current()))
            head = head_of(java, branch)
            if not with_files or head is None:
                return read_table_metadata(table, text, branch=branch)
            scan = java.newScan() if branch == MAIN else java.newScan().useSnapshot(head.snapshotId())
            scan = scan.planWith(maintenance_workers(self._catalog.gateway))
            files = Described(self._jvm, java).batches(scan)
            manifests = [
                (int(file.length()), int(file.partitionSpecId())) for file in each(head.allManifests(java.io()))
            ]
            return read_table_metadata(table, text, files, manifests, branch)
        except java_errors() as error:
            if is_not_there(error):
                return None
            raise unavailable("the table metadata cannot be read", error, table) from None

    def described(self, table: str) -> tuple[str, Mapping[str, str]]:
        try:
            java = self._catalog.java_table(table)
            text = str(self._jvm.org.apache.iceberg.TableMetadataParser.toJson(java.operations().current()))
            return text, self._catalog.reader.state(table, java).io_properties
        except java_errors() as error:
            raise unavailable("the table cannot be loaded", error, table) from None

    def compact(self, table: str, compaction: Compaction, transfer: Transfer | None = None) -> Rewritten:
        with explained("data files cannot be rewritten", table, lasting=_UNREADABLE):
            self._forget_dropped_values(table)
            done = compact_table(self.activated(), self._catalog, table, compaction, transfer, self._merge_of)
            if compaction.removes_dangling:
                java, staging = self._staged(table)
                self._actions().removeDanglingDeleteFiles(staging).execute()
                replace_deletes(self._catalog, table, java, staging.currentSnapshot())
            return done

    def rewrite_deletes(self, table: str, options: Mapping[str, str]) -> Rewritten:
        with explained("delete files cannot be rewritten", table):
            self._forget_dropped_values(table)
            java, staging = self._staged(table)
            # Iceberg would take files of such a spec and of others for files of one partition.
            if not is_readable_by_spark(self._jvm, java) or dropped_fields(java.specs()):
                return compact_table(
                    self.activated(), self._catalog, table, Compaction(_WITH_DELETES), merge_of=self._merge_of
                )
            action = self._actions().rewritePositionDeletes(staging)
            for name, value in options.items():
                action = action.option(name, value)
            hit("maintenance.deletes.begins")
            result = action.execute()
            _refuse_lost(replace_deletes(self._catalog, table, java, staging.currentSnapshot()), table)
            hit("maintenance.deletes.landed")
            return Rewritten(
                result.rewrittenDeleteFilesCount(), result.addedDeleteFilesCount(), result.rewrittenBytesCount()
            )

    def rewrite_manifests(self, table: str) -> Rewritten:
        with explained("manifests cannot be rewritten", table):
            self._forget_dropped_values(table)
            java, staging = self._staged(table)
            if not is_readable_by_spark(self._jvm, java) or int(java.operations().current().formatVersion()) == 1:
                # In the driver, in their order: Spark's action needs a Spark type for each column, and deletes
                # manifests of format version 1 after copying them.
                # On this thread: py4j calls Python back only where Python waits for an answer.
                executors = self._jvm.org.apache.iceberg.relocated.com.google.common.util.concurrent.MoreExecutors
                rewrite = java.rewriteManifests().scanManifestsWith(executors.newDirectExecutorService())
                hit("maintenance.manifests.begins")
                since = int(newest_snapshot(java, table).snapshotId())
                _refuse_lost(self._send_once(table, rewrite.clusterBy(_Together()), java, since), table)
                hit("maintenance.manifests.landed")
                summary = newest_snapshot(java, table).summary()
                return Rewritten(*(int(summary.get(f"manifests-{done}") or 0) for done in ("replaced", "created")))
            action = self._actions().rewriteManifests(staging).option("use-caching", "false")
            hit("maintenance.manifests.begins")
            result = action.execute()
            _refuse_lost(replace_manifests(self._catalog, table, java, staging.currentSnapshot(), result), table)
            hit("maintenance.manifests.landed")
            manifests = (result.rewrittenManifests(), result.addedManifests())
            return Rewritten(*(sum(1 for _ in each(some)) for some in manifests))

    def expire(self, table: str, snapshots: Sequence[int]) -> None:
        with explained("snapshots cannot be expired", table, ("IllegalArgumentException",), _LASTING):
            # By id only: expiry by age could expire snapshots that were not chosen.
            java = self._catalog.java_table(table)
            present = [snapshot for snapshot in snapshots if java.snapshot(snapshot) is not None]
            if not present:
                return
            expiry = java.expireSnapshots().expireOlderThan(0).planWith(maintenance_workers(self._catalog.gateway))
            for snapshot in present:
                expiry = expiry.expireSnapshotId(snapshot)
            refresh = self._catalog.refresher(table, java)
            hit("maintenance.expire.begins")
            change(expiry, refresh, lambda: not any(java.snapshot(snapshot) is not None for snapshot in present))
            hit("maintenance.expire.landed")

    def carry(self, table: str) -> None:
        with explained("progress cannot be carried forward", table):
            java = self._catalog.java_table(table)
            text = str(self._jvm.org.apache.iceberg.TableMetadataParser.toJson(java.operations().current()))
            branch = self._catalog.branch_of(table)
            carried = carried_progress(text, branch)
            if not carried:
                return
            append = java.newFastAppend()
            for name, value in carried.items():
                append.set(name, value)
            hit("maintenance.carry.begins")
            with self._catalog.lock(table):
                since = int(head_of(java, branch).snapshotId())
                _refuse_lost(self._send_once(table, append, java, since, _SameProgress(carried)), table)
                hit("maintenance.carry.landed")
                # Otherwise the next batch of changes would list all files of the table again.
                self._catalog.note_rewrite(Commit(table, (), Progress(), Progress()), java)

    def orphans(self, table: str, older_than_ms: int) -> list[str]:
        with explained("orphan files cannot be listed", table, lasting=_LASTING):
            java = self._catalog.java_table(table)
            location = str(java.location()).rstrip("/")
            # Metadata of any age: a table that shares the folder may have been created today. By its name, the folder
            # of a table `a.data` is the data folder of `a`.
            unnamed = self._mine(java, location, int(self._jvm.java.lang.System.currentTimeMillis()) + _DAY_MS)
            self._refuse_shared(java, table, [path for path in unnamed if path.endswith(_METADATA)])
            return sorted(self._mine(java, location, older_than_ms))

    def remove(self, table: str, paths: Sequence[str]) -> None:
        with explained("files cannot be removed", table):
            io = self._catalog.java_table(table).io()
            for start in range(0, len(paths), _DELETED_AT_ONCE):
                hit("maintenance.orphans.deleting")
                chosen = self._jvm.java.util.ArrayList()
                for path in paths[start : start + _DELETED_AT_ONCE]:
                    chosen.add(path)
                self._jvm.org.apache.iceberg.CatalogUtil.deleteFiles(io, chosen, "orphan", False)

    def compute_statistics(self, table: str) -> None:
        with explained("statistics cannot be computed", table):
            java = self._catalog.java_table(table)
            if not is_readable_by_spark(self._jvm, java):
                raise SpecError(
                    "distinct values cannot be counted: Spark has no type for a column of this table, such as `time`",
                    remedy="leave `maintenance.statistics` out for this table",
                    where=table,
                )
            hit("maintenance.statistics.begins")
            primitive = [field for field in each(java.schema().columns()) if field.type().isPrimitiveType()]
            columns = [str(field.name()) for field in primitive if str(field.name()) not in RESERVED]
            action = self._actions().computeTableStats(java).columns(strings(self._catalog.gateway, columns))
            newest = newest_snapshot(java, table, self._catalog.branch_of(table))
            with self._dealt_out(newest):
                action.snapshot(newest.snapshotId()).execute()
            hit("maintenance.statistics.landed")

    def note(self, table: str, name: str, text: str) -> None:
        with explained("a property of the table cannot be set", table):
            java = self._catalog.java_table(table)
            refresh = self._catalog.refresher(table, java)
            set_property(java, key(self._catalog.pipeline, name), text, refresh)

    def _forget_dropped_values(self, table: str) -> None:
        with self._catalog.lock(table):
            java, catalog = self._catalog.java_table(table), self._catalog
            refresh = catalog.refresher(table, java)
            forget_dropped_values(catalog.gateway, catalog.pipeline, java, table, catalog.branch_of(table), refresh)

    def _send_once(self, table: str, update: Any, java: Any, since: int, validator: Validator | None = None) -> bool:
        refresh, branch = self._catalog.refresher(table, java), self._catalog.branch_of(table)
        return send_once(self._catalog.pipeline, update, java, since, refresh, validator, branch)

    def _staged(self, table: str) -> tuple[Any, Any]:
        """Returns the table, fresh from the catalog, and the same table in a transaction (see `rewrite_commit`), in which
        the main branch is the table's branch: Iceberg's actions know no other.
        """
        java, branch = self._catalog.java_table(table), self._catalog.branch_of(table)
        newest, transaction = newest_snapshot(java, table, branch), java.newTransaction()
        if branch != MAIN:
            transaction.manageSnapshots().setCurrentSnapshot(newest.snapshotId()).commit()
        return java, transaction.table()

    def _actions(self) -> Any:
        """Returns Iceberg's actions in the session of maintenance."""
        chosen: Any = self.activated()
        return self._jvm.org.apache.iceberg.spark.actions.SparkActions.get(chosen._jsparkSession)

    def activated(self) -> SparkSession:
        """Returns a session of its own, in a scheduler pool that leaves tasks to ingestion."""
        if self._session is None:
            raise UnavailableError("table maintenance needs Spark, which this command does not start")
        spark = self._session()
        if spark not in self._sessions:
            child_session = spark.newSession()
            for name, value in _settings(self._cores).items():
                child_session.conf.set(name, value)
            self._sessions = {spark: child_session}
        forget_readers(self._catalog.gateway)
        chosen: Any = self._sessions[spark]
        self._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(chosen._jsparkSession)
        chosen.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
        session: SparkSession = chosen
        return session

    @contextmanager
    def _dealt_out(self, snapshot: Any) -> Iterator[None]:
        """In its block, the files of the snapshot are read by as many tasks as maintenance may use, or half as many: two
        consecutive splits together exceed the size of one.
        """
        summary, conf = summary_of(snapshot), self.activated().conf
        count = sum(int(summary.get(f"total-{kind}-files") or 0) for kind in ("data", "delete"))
        size = int(summary.get("total-files-size") or 0) + count * _OPENING_BYTES
        if self._cores > 1 and size:
            conf.set(_SPLIT_SIZE, str(2 * size // self._cores + 1))
        try:
            yield
        finally:
            conf.set(_SPLIT_SIZE, _UNLIMITED)

    def _mine(self, java: Any, location: str, older_than_ms: int) -> list[str]:
        """Returns files that no snapshot names, in the folders that this table writes to."""
        return [path for path in self._unnamed(java, location, older_than_ms) if is_own(path, location)]

    def _unnamed(self, java: Any, location: str, older_than_ms: int) -> list[str]:
        """Returns the files that Iceberg would delete as orphans, without deleting them; none without such a folder, as of
        a table whose files are all elsewhere.

        Raises: ConflictError where files are deleted while they are listed.
        """
        collector = Collector()
        action = self._actions().deleteOrphanFiles(java).location(location).olderThan(older_than_ms)
        try:
            with lent(java, collector):
                action.usePrefixListing(True).deleteWith(collector).execute()
        except (*java_errors(), *_spark_errors()) as error:
            if f"{normalize_path(location)} does not exist" in str(error):
                return []
            if any(words in str(error) for words in _GONE):
                raise ConflictError("files were removed while they were listed", where=location) from None
            raise
        return collector.paths

    def _refuse_shared(self, java: Any, table: str, unnamed: Sequence[str]) -> None:
        parser = self._jvm.org.apache.iceberg.TableMetadataParser

        def read(path: str) -> str | None:
            try:
                return str(parser.toJson(parser.read(java.io(), path)))
            except java_errors():
                # Deleted meanwhile, or written in part: by a commit of another process, or by one that died.
                return None

        path = find_foreign_metadata(unnamed, str(java.uuid()), read)
        if path is not None:
            raise SpecError(
                "another table's metadata is in this table's folder, so its files cannot be distinguished from orphan"
                " files",
                remedy="move one of the tables, or remove the files of a dropped table",
                where=f"{table}, {path}",
            )


def _settings(cores: int) -> dict[str, str]:
    """Returns the settings of maintenance's session: no stage has more tasks than maintenance may use, because Spark
    cannot hold tasks back.
    """
    return {
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.leafNodeDefaultParallelism": "1",
        "spark.sql.adaptive.enabled": "false",  # It distributes large partitions among more tasks.
        _SPLIT_SIZE: _UNLIMITED,
        "spark.sql.caseSensitive": "true",  # A table may have both `Id` and `id`.
    }


class _Together:
    """java.util.function.Function: the same value for each file."""

    class Java:
        """What py4j needs to know."""

        implements: tuple[str, ...] = ("java.util.function.Function",)

    def apply(self, _: Any) -> str:
        """Called by the JVM for each file."""
        return ""


class _SameProgress(Validator):
    """Accepts while the newest progress of every pipeline is the repeated one."""

    def __init__(self, carried: Mapping[str, str]) -> None:
        self._expected = {name: value for name, value in carried.items() if name.endswith(".commit-id")}

    def _accepts(self, snapshots: Any) -> bool:
        left, iterator = dict(self._expected), snapshots.iterator()
        while left and iterator.hasNext():
            summary = summary_of(iterator.next())
            for name in list(left):
                noted = summary.get(name)
                if noted is not None and str(noted) != left.pop(name):
                    return False
        return not left

    def _message(self) -> str:
        return "a pipeline has committed in the meantime"


def _refuse_lost(landed: bool | None, table: str) -> None:
    """Checks that the commit is in the table.

    Raises: ConflictError where it is not.
    """
    if not landed:
        raise ConflictError("another commit has changed the rewritten files", where=table)


@contextmanager
def explained(what: str, table: str, conflicts: Sequence[str] = (), lasting: Sequence[str] = ()) -> Iterator[None]:
    """Turns exceptions of the JVM in its block into ConflictError or UnavailableError with the cause. conflicts:
    further exceptions that mean a conflict. lasting: the usual ones that do not.
    """
    try:
        yield
    except Py4JJavaError as error:
        is_lasting = any(name in str(error.java_exception) for name in lasting)
        raise _failure(what, error, table, is_conflict(error, *conflicts) and not is_lasting) from None
    except _spark_errors() as error:
        text = f"{type(error).__name__}: {error}"
        names = {"ValidationException", "CommitFailedException", "CommitStateUnknown", *conflicts}
        is_lasting = any(name in text for name in ("CommitStateUnknown", *lasting))
        raise _failure(what, error, table, any(name in text for name in names) and not is_lasting) from None
    except (Py4JError, ConnectionError) as error:
        raise unavailable(what, error, table) from None


def _failure(what: str, error: Exception, table: str, is_lost: bool) -> FrazilError:
    lines = [line for line in unavailable(what, error, table).message.splitlines() if line.strip()]
    # The output of a Python task has the stack trace first and the error last.
    line = f"{what}: {lines[-1]}" if _IN_PYTHON in str(error) else lines[0]
    return ConflictError(line, where=table) if is_lost else UnavailableError(line, where=table)


def _spark_errors() -> tuple[type[Exception], ...]:
    """Returns PySpark's exception class where PySpark is imported: importing it for this would cost time."""
    errors = sys.modules.get("pyspark.errors")
    return (errors.PySparkException,) if errors is not None else ()
