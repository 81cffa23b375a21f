"""Whole tables compared with copies that are read from their topics, in a catalog of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from frazil.api.results import VerifiedTable
from frazil.api.wiring import has_catalog, known_state, open_catalog, open_schemas, open_topics
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.compaction import NotReadable, rows_of
from frazil.clock import SystemClock, new_id
from frazil.files import temporary_folder
from frazil.ingest.batches.job import SparkJobs
from frazil.ingest.batches.services import RunTimeouts, Services
from frazil.ingest.failures import named_jvm_death
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.queries import SparkQueries
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.kafka.port import Source
from frazil.kafka.reader import KafkaReader
from frazil.ops.status import find_tables
from frazil.runtime.connect import running_jvm
from frazil.runtime.jvm import Jvm, core_count, is_local
from frazil.spec import PipelineSpec
from frazil_verify.compare import PREFIX
from frazil_verify.comparison import NotComparable, compare
from frazil_verify.copies import NOT_YET, Copies, UpTo, copying, has_lost_records, load_for_copy, plan_copies
from frazil_verify.routed import with_values

_TIMEOUT_S = 300.0


def verify_copies(
    spec: PipelineSpec, name: str | None, note: Callable[[str], None] = lambda _: None
) -> list[VerifiedTable]:
    """Returns what comparing each table of the pipeline with its topics has found, or the one named `name`. note: receives
    what is being done.

    Raises: SpecError for a name that no table has.
    """
    source = open_topics(spec)
    tables = find_tables(spec, source, known_state(spec), name)
    if not has_catalog(spec):
        return [VerifiedTable(table.name, "it does not exist yet", NOT_YET) for table in tables]
    if not is_local(spec.spark.master):  # The copy's folder is this machine's.
        spec = spec.model_copy(update={"spark": spec.spark.model_copy(update={"master": "local[*]"})})
    with running_jvm(spec) as jvm, named_jvm_death():
        catalog = open_catalog(jvm, spec)
        tables = with_values(spec, catalog, tables, name is None)
        refusals = {table.name: load_for_copy(table, catalog, source) for table in tables}
        results = {
            table_name: VerifiedTable(table_name, refusal.reason, refusal.remedy)
            for table_name, refusal in refusals.items()
            if refusal is not None
        }
        for copies in plan_copies(table for table in tables if refusals[table.name] is None):
            note(f"making {', '.join(table.name for table in copies.tables)} again from the topics")
            with temporary_folder(PREFIX) as folder:
                for result in _compared(spec, jvm, catalog, source, copies, folder, note):
                    results[result.name] = result
    return [results[table_name] for table_name in sorted(results)]


def _compared(
    spec: PipelineSpec,
    jvm: Jvm,
    catalog: IcebergCatalog,
    source: Source,
    copies: Copies,
    folder: Path,
    note: Callable[[str], None],
) -> Iterator[VerifiedTable]:
    """Makes the copies and yields what was found of each table."""
    copy_spec = copying(spec, copies, folder)
    copied = open_catalog(jvm, copy_spec)
    clock = SystemClock()
    services = Services(
        UpTo(source, copies.goal),
        copied,
        SparkJobs(jvm.session, spec.kafka, lambda _: core_count(), core_count()),
        clock,
        schemas=open_schemas(spec),
        reader=KafkaReader(spec.kafka),
        queries=SparkQueries(lambda: jvm.gateway.jvm),
    )
    service = Service(copy_spec, services, new_id(), _ignore)
    service.run(until_caught_up=True, timeouts=RunTimeouts(clock, _TIMEOUT_S))
    copied_tables = {table.name: table for table in service.tables}
    for table in copies.tables:
        note(f"comparing {table.name}")
        try:
            yield _verified(
                jvm, catalog, copied, table, copied_tables[table.name], has_lost_records(table, source, catalog)
            )
        except (NotComparable, NotReadable) as error:
            yield VerifiedTable(table.name, str(error), "add --independent, which reads the table without Spark")


def _ignore(_: Sequence[Table]) -> None:
    """Takes the place of what publishes the state of a run."""


def _verified(
    jvm: Jvm, catalog: IcebergCatalog, copied: IcebergCatalog, table: Table, copy: Table, is_partial: bool
) -> VerifiedTable:
    assert table.state is not None
    if copy.status.run_state in (RunState.STOPPED, RunState.BACKING_OFF) or copy.position() != table.position():
        reason = copy.status.reason or "the topic could not be read to the table's progress"
        remedy = "mend what the reason names, and run it again; --ledger needs no copy"
        return VerifiedTable(table.name, f"the copy is incomplete: {reason}", remedy)
    spark = jvm.session()
    rows = partial(rows_of, spark)
    state = copied.load(copy.name)
    if state is None or state.head_id is None or table.state.head_id is None:
        return VerifiedTable(table.name, "it has no rows yet", NOT_YET)
    ours, wanted = rows(catalog, table.name, table.state.head_id), rows(copied, copy.name, state.head_id)
    # Which values a sketch of quantiles keeps depends on the batches that records are read in.
    sketches = [name for name, function in table.spec.changes.merge if function == "quantile_sketch"]
    difference = compare(ours.drop(*sketches), wanted.drop(*sketches))
    return VerifiedTable(table.name, difference=difference, is_partial=is_partial)
