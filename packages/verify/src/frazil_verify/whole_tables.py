"""Whole tables compared with copies that are read from their topics, in a catalog of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frazil.api.results import Difference, VerifiedTable
from frazil.api.wiring import has_catalog, known_state, open_catalog, open_schemas, open_topics
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.compaction import NotReadable, rows_of
from frazil.catalog.iceberg.java import java_errors
from frazil.clock import SystemClock, new_id
from frazil.errors import SpecError
from frazil.files import temporary_folder
from frazil.ingest.batches.job import SparkJobs
from frazil.ingest.batches.services import RunTimeouts, Services
from frazil.ingest.batches.workers import ThreadWorkers
from frazil.ingest.failures import named_jvm_death
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.queries import SparkQueries
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.ingest.tasks.task_job import Job
from frazil.kafka.port import Source
from frazil.kafka.reader import KafkaReader
from frazil.ops.status import find_tables
from frazil.printable import counted, percent, plural
from frazil.report import TaskReport
from frazil.runtime.jvm import Jvm, core_count, is_local
from frazil.runtime.properties import running_jvm
from frazil.spec import PipelineSpec
from frazil.spec.grouped_tables import groups_of
from frazil.spec.models import TableSpec
from frazil.types import Batch, by_partition
from frazil.write.target import TableTarget
from frazil_verify.compare import PREFIX
from frazil_verify.comparison import NotComparable, compare, with_sorted
from frazil_verify.copies import (
    BY_LEDGER,
    BY_PLACES,
    NOT_YET,
    Copies,
    UpTo,
    copying,
    goal_of,
    has_lost_records,
    identity_of,
    load_for_copy,
    plan_copies,
)
from frazil_verify.history import History, read_history
from frazil_verify.kept import open_kept
from frazil_verify.late_times import late_times
from frazil_verify.reference_versions import UnknownVersions, check_versions, parts_of, references_at
from frazil_verify.routed import with_values
from frazil_verify.row_digests import count_of_equal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIMEOUT_S = 300.0
INCOMPLETE = "the copy is incomplete"


@dataclass(frozen=True)
class _Opened:
    """What copies are made and compared with."""

    spec: PipelineSpec
    jvm: Jvm
    catalog: IcebergCatalog
    source: Source
    note: Callable[[str], None]
    #: The folder that the workers of a cluster reach; empty: copies are made by this process's own JVM.
    scratch: str = ""


class _SummingJobs(SparkJobs):
    """Spark's jobs, in which rows of some tables that only append are counted and summed, and not written."""

    def __init__(self, summed: Set[str], *args: Any) -> None:
        """summed: the names of these tables. args: as of SparkJobs."""
        super().__init__(*args)
        self._summed = summed

    def run(self, batches: Sequence[Batch], job: Job, *, pool: str) -> list[TaskReport]:
        """See JobRunner."""
        targets = {topic: self._as_summed(target) for topic, target in job.targets.items()}
        beside = {topic: tuple(map(self._as_summed, others)) for topic, others in job.beside.items()}
        return super().run(batches, replace(job, targets=targets, beside=beside), pool=pool)

    def _as_summed(self, target: TableTarget) -> TableTarget:
        return replace(target, files=replace(target.files, is_summed=target.name in self._summed))


def verify_copies(
    spec: PipelineSpec, name: str | None, note: Callable[[str], None] = lambda _: None, scratch: str = ""
) -> list[VerifiedTable]:
    """Returns what comparing each table of the pipeline with its topics has found, or the one named `name`. note: receives
    what is being done. scratch: a folder that the workers of a cluster reach; they make the copies there, and compare them.

    Raises: SpecError for a name that no table has, and for a folder without a cluster.
    """
    is_on_cluster = not is_local(spec.spark.master)
    if scratch and not is_on_cluster:
        raise SpecError(
            "--scratch is a folder for the workers of a cluster, and `spark.master` names none",
            remedy="leave --scratch out, and set TMPDIR to a folder with the space of a copy",
        )
    source = open_topics(spec)
    tables = find_tables(spec, source, known_state(spec), name)
    if not has_catalog(spec):
        return [VerifiedTable(table.name, "it does not exist yet", NOT_YET) for table in tables]
    if is_on_cluster and not scratch:  # The copy's folder is this machine's.
        spec = spec.model_copy(update={"spark": spec.spark.model_copy(update={"master": "local[*]"})})
    with running_jvm(spec) as jvm, named_jvm_death():
        opened = _Opened(spec, jvm, open_catalog(jvm, spec), source, note, _absolute(scratch))
        tables = with_values(spec, opened.catalog, tables, name is None)
        refusals = {table.name: load_for_copy(table, opened.catalog, source) for table in tables}
        results = {
            table_name: VerifiedTable(table_name, refusal.reason, refusal.remedy)
            for table_name, refusal in refusals.items()
            if refusal is not None
        }
        for copies in plan_copies(table for table in tables if refusals[table.name] is None):
            for result in _made_and_compared(opened, copies):
                results[result.name] = result
    return [results[table_name] for table_name in sorted(results)]


def _made_and_compared(opened: _Opened, copies: Copies, is_again: bool = False) -> Iterator[VerifiedTable]:
    """Makes the copies, or continues those of a call that was ended, and yields what was found of each table. is_again:
    whether the sums of the rows are known to be others than those of the copies, whose rows are not written first.
    """
    summed = frozenset[str]() if is_again or opened.scratch else frozenset(_with_sums(opened, copies))
    kept = open_kept(identity_of(opened.spec, copies, opened.scratch, summed))
    names = ", ".join(table.name for table in copies.tables)
    if kept is None:
        opened.note(f"making {names} again from the topics")
        with temporary_folder(PREFIX) as folder:
            results = list(_compared(opened, copies, folder, summed))
    else:
        history = {
            table.name: {snapshot.snapshot_id for snapshot in read_history(opened.catalog, table.name).snapshots}
            for table in copies.tables
        }
        if copies.restore(kept.document, history):
            opened.note(f"continuing to make {names} again from the topics")
        else:
            opened.note(f"making {names} again from the topics")
            kept.begin(copies.document())
        results = list(_compared(opened, copies, kept.folder, summed))
    yield from (result for _, result in results if result is not None)
    unequal = [table for table, result in results if result is None]
    if unequal:
        yield from _made_and_compared(opened, copies.of(unequal), is_again=True)
    if kept is not None and not any(
        result is not None and result.reason.startswith(INCOMPLETE) for _, result in results
    ):
        kept.discard()


def _with_sums(opened: _Opened, copies: Copies) -> Iterator[str]:
    """Yields the tables that only append rows, of which the ledger of a copy has the digest, and all whose records exist."""
    for table in copies.tables:
        if not table.spec.changes.looks_up_rows and not has_lost_records(table, opened.source, opened.catalog):
            yield table.name


def _compared(
    opened: _Opened, copies: Copies, folder: Path, summed: Set[str]
) -> Iterator[tuple[Table, VerifiedTable | None]]:
    """Makes the copies and yields each table with what was found of it. summed: the tables whose copies have sums and no
    rows; None is found of those with other sums.
    """
    spec, jvm, catalog, note = opened.spec, opened.jvm, opened.catalog, opened.note
    warehouse = f"{opened.scratch}/{folder.name}" if opened.scratch else ""
    late = {
        table.name: late_times(_history(catalog, table), spec.pipeline)
        for table in copies.tables
        if table.spec.changes.late is not None
    }
    copy_spec = copying(spec, copies, folder, warehouse, late)
    copied = open_catalog(jvm, copy_spec)
    clock, cores = SystemClock(), core_count()
    services = Services(
        UpTo(opened.source, copies.goal),
        copied,
        _SummingJobs(summed, jvm.session, spec.kafka, _parallelism if opened.scratch else lambda _: cores, cores),
        clock,
        schemas=open_schemas(spec),
        reader=KafkaReader(spec.kafka),
        queries=SparkQueries(lambda: jvm.gateway.jvm),
    )
    copied_tables, is_whole = dict[str, Table](), True
    try:
        for step in _steps(opened, copies, copied, services):
            service = Service(copy_spec, step, new_id(), partial(_note_share, note))
            service.run(until_caught_up=True, timeouts=RunTimeouts(clock, _TIMEOUT_S))
            copied_tables = {table.name: table for table in service.tables}
    except UnknownVersions as error:
        yield from ((table, VerifiedTable(table.name, str(error), BY_PLACES)) for table in copies.tables)
        if warehouse:
            _remove(copied, copies, warehouse)
        return
    for number, table in enumerate(copies.tables, 1):
        note(counted(f"comparing {table.name}", number, len(copies.tables)))
        try:
            is_partial, is_summed = has_lost_records(table, opened.source, catalog), table.name in summed
            result = _verified(opened, copied, table, copied_tables[table.name], is_partial, is_summed)
            unknown = late[table.name].unknown if table.name in late else ""
            if unknown and result is not None and result.is_equal is False:
                result = VerifiedTable(table.name, f"{_counted(result)}, and {unknown}", BY_LEDGER)
        except (NotComparable, NotReadable) as error:
            result = VerifiedTable(table.name, str(error), "add --independent, which reads the table without Spark")
        is_whole &= result is None or not result.reason.startswith(INCOMPLETE)
        yield table, result
    if warehouse and is_whole:
        _remove(copied, copies, warehouse)


def _steps(opened: _Opened, copies: Copies, copied: IcebergCatalog, services: Services) -> Iterator[Services]:
    """Yields the services of the runs that make copies: of one run, unless reference tables had several versions.

    Raises: UnknownVersions where these are not known, or are not those that the copies were joined with.
    """
    if not copies.has_lookups:
        yield services
        return
    (table,), catalog, pipeline = copies.tables, opened.catalog, opened.spec.pipeline
    parts = parts_of(table.spec, _history(catalog, table), pipeline)
    check_versions(table, catalog, parts)
    if not parts:
        yield replace(services, referenced=catalog)
        return
    for part in parts[:-1]:
        state = copied.load(table.name)
        position = by_partition(state.progress.offsets) if state is not None else {}
        if any(position.get(place, 0) < end for place, end in by_partition(part.ends).items()):
            source, referenced = UpTo(opened.source, goal_of(table, part.ends)), references_at(catalog, part)
            yield replace(services, source=source, referenced=referenced, workers=ThreadWorkers())
    yield replace(services, referenced=references_at(catalog, parts[-1]))
    named = iter([part.versions for part in parts])  # Parts without a record that Kafka still has made no commit.
    if any(part.versions not in named for part in parts_of(table.spec, read_history(copied, table.name), pipeline)):
        raise UnknownVersions("one of its reference tables was replaced while the copy was made")


def _history(catalog: IcebergCatalog, table: Table) -> History:
    """Returns the snapshots of a table up to the one that is compared."""
    assert table.state is not None
    return read_history(catalog, table.name).up_to(table.state.head_id)


def _counted(result: VerifiedTable) -> str:
    assert result.difference is not None
    missing, surplus = (plural(rows, "row") for rows in (result.difference.missing, result.difference.surplus))
    return f"its copy differs: {missing} missing, {surplus} surplus"


def _absolute(folder: str) -> str:
    return folder.rstrip("/") if ":" in folder or not folder else str(Path(folder).absolute())


def _parallelism(session: SparkSession) -> int:
    return int(session.sparkContext.defaultParallelism)


def _remove(copied: IcebergCatalog, copies: Copies, folder: str) -> None:
    """Removes the files of copies that a cluster has made."""
    for table in copies.tables:
        if copied.load(table.name) is not None:
            with suppress(*java_errors()):  # A store without this operation: the folder is the user's own.
                copied.java_table(table.name).io().deletePrefix(folder)
            return


def _note_share(note: Callable[[str], None], tables: Sequence[Table]) -> None:
    """Notes how much of the topics a run that makes copies has read."""
    read = sum(table.counts.records for table in tables)
    lags = [table.offsets.lag_records for table in tables]
    if tables and None not in lags:
        left = sum(lag for lag in lags if lag is not None)
        note(f"making copies from the topics: {plural(read, 'record')} read, {percent(read, read + left)}")


def _verified(
    opened: _Opened, copied: IcebergCatalog, table: Table, copy: Table, is_partial: bool, is_summed: bool
) -> VerifiedTable | None:
    """Returns what was found of a table; None where its copy is summed, and the sums do not show that all rows are equal."""
    assert table.state is not None
    if copy.status.run_state in (RunState.STOPPED, RunState.BACKING_OFF) or copy.position() != table.position():
        reason = copy.status.reason or "the topic could not be read to the table's progress"
        remedy = "mend what the reason names, and run it again; --ledger needs no copy"
        return VerifiedTable(table.name, f"{INCOMPLETE}: {reason}", remedy)
    state = copied.load(copy.name)
    if state is None or state.head_id is None or table.state.head_id is None:
        return VerifiedTable(table.name, "it has no rows yet", NOT_YET)
    if is_summed:
        count = count_of_equal(opened.catalog, table, state)
        same = Difference(count or 0, 0, 0)
        return None if count is None else VerifiedTable(table.name, difference=same, is_partial=is_partial)
    rows = partial(rows_of, opened.jvm.session())
    ours, wanted = rows(opened.catalog, table.name, table.state.head_id), rows(copied, copy.name, state.head_id)
    # Which values a sketch of quantiles keeps depends on the batches that records are read in.
    sketches = [name for name, function in table.spec.changes.merge if function == "quantile_sketch"]
    lists = unordered_lists(table.spec)
    difference = compare(*(with_sorted(side.drop(*sketches), lists) for side in (ours, wanted)))
    return VerifiedTable(table.name, difference=difference, is_partial=is_partial)


def unordered_lists(spec: TableSpec) -> frozenset[str]:
    """Returns the columns with lists of sessions: those of joined sessions are in the order of batches."""
    grouping = groups_of(spec)
    if grouping is None or grouping.session is None:
        return frozenset()
    return frozenset(name for name, function in grouping.merge if function in ("collect_list", "collect_set"))
