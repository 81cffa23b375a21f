"""`frazil verify`: proves that tables are what their topics make."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.spark_rows import NotReadable, rows_of
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.cli.wiring import has_catalog, known_state, open_catalog, open_schemas, open_topics, read_spec
from frazil.clock import SystemClock, new_id
from frazil.ingest.batches.job import SparkJobs
from frazil.ingest.batches.services import RunTimeouts, Services
from frazil.ingest.failures import named_jvm_death
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.queries import SparkQueries
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.kafka.port import Source
from frazil.kafka.reader import KafkaReader
from frazil.ops.dead_letters import find_tables
from frazil.printable import plural
from frazil.runtime.connect import running_jvm
from frazil.runtime.jvm import Jvm, core_count, is_local
from frazil.spec import PipelineSpec
from frazil.temporary import temporary_folder
from frazil_verify.compare import PREFIX
from frazil_verify.comparison import Difference, NotComparable, compare
from frazil_verify.copies import Copies, UpTo, copying, has_lost_records, load_for_copy, plan_copies

TableName = Annotated[
    str | None, typer.Argument(metavar="TABLE", help="Only this table, such as shop.orders.", show_default=False)
]
UNAVAILABLE, DIFFERENT = 1, 4
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Verified:
    """What was found of one table."""

    name: str
    #: Why nothing was compared.
    reason: str = ""
    #: None without a comparison.
    difference: Difference | None = None
    #: Whether Kafka has deleted records of its topics, or may have by compaction: surplus rows are not judged then.
    is_partial: bool = False

    @property
    def is_equal(self) -> bool | None:
        """Whether the table has the rows of its topics; None where that is not known."""
        if self.difference is None:
            return None
        return not self.difference.missing and (self.is_partial or not self.difference.surplus)


def command(output: Output, file: SpecFile = DEFAULT_FILE, table: TableName = None) -> int:
    """Prove that tables have exactly the rows of their topics: read the topics again up to each table's progress, make the
    rows again in a temporary folder, and compare them.

    Needs the disk space of a copy. Changes nothing; the pipeline may run meanwhile. If a topic is compacted, or Kafka has
    deleted its oldest records, all remaining records must be rows; other rows are counted and not judged.

    Exit code: 0 when every table is equal; 1 when one could not be compared; 4 when one differs.
    """
    spec = read_spec(output, file)
    logging.getLogger("frazil").setLevel(
        logging.WARNING
    )  # A copy is not a run of the pipeline: its commits are not news.
    results = _verify(spec, table)
    document: dict[str, Any] = {
        "pipeline": spec.pipeline,
        "tables": {result.name: _document(result) for result in results},
    }
    output.result(document, "\n".join(line for result in results for line in _lines(result)) or "no tables")
    if any(result.is_equal is False for result in results):
        return DIFFERENT
    return UNAVAILABLE if any(result.is_equal is None for result in results) else 0


def _verify(spec: PipelineSpec, name: str | None) -> list[Verified]:
    source = open_topics(spec)
    tables = find_tables(spec, source, known_state(spec), name)
    if not has_catalog(spec):
        return [Verified(table.name, "it does not exist yet") for table in tables]
    if not is_local(spec.spark.master):  # The copy's folder is this machine's.
        spec = spec.model_copy(update={"spark": spec.spark.model_copy(update={"master": "local[*]"})})
    with running_jvm(spec) as jvm, named_jvm_death():
        catalog = open_catalog(jvm, spec)
        reasons = {table.name: load_for_copy(table, catalog, source) for table in tables}
        results = {table_name: Verified(table_name, reason) for table_name, reason in reasons.items() if reason}
        for copies in plan_copies(table for table in tables if not reasons[table.name]):
            with temporary_folder(PREFIX) as folder:
                for result in _compared(spec, jvm, catalog, source, copies, folder):
                    results[result.name] = result
    return [results[table_name] for table_name in sorted(results)]


def _compared(
    spec: PipelineSpec, jvm: Jvm, catalog: IcebergCatalog, source: Source, copies: Copies, folder: Path
) -> Iterator[Verified]:
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
        try:
            yield _verified(jvm, catalog, copied, table, copied_tables[table.name], has_lost_records(table, source))
        except (NotComparable, NotReadable) as error:
            yield Verified(table.name, str(error))


def _ignore(_: Sequence[Table]) -> None:
    """Takes the place of what publishes the state of a run."""


def _verified(
    jvm: Jvm, catalog: IcebergCatalog, copied: IcebergCatalog, table: Table, copy: Table, is_partial: bool
) -> Verified:
    assert table.state is not None
    if copy.status.run_state in (RunState.STOPPED, RunState.BACKING_OFF) or copy.position() != table.position():
        reason = copy.status.reason or "the topic could not be read to the table's progress"
        return Verified(table.name, f"the copy is incomplete: {reason}")
    spark = jvm.session()
    rows = partial(rows_of, spark)
    state = copied.load(copy.name)
    if state is None or state.head_id is None or table.state.head_id is None:
        return Verified(table.name, "it has no rows yet")
    difference = compare(rows(catalog, table.name, table.state.head_id), rows(copied, copy.name, state.head_id))
    return Verified(table.name, "", difference, is_partial)


# ---- output


def _document(result: Verified) -> Mapping[str, Any]:
    difference = {} if result.difference is None else asdict(result.difference)
    return {"equal": result.is_equal, "reason": result.reason, "partial": result.is_partial, **difference}


def _lines(result: Verified) -> Iterator[str]:
    difference = result.difference
    if difference is None:
        yield f"{result.name}: not compared, as {result.reason}"
        return
    rows = plural(difference.rows, "row")
    if result.is_equal:
        yield (
            f"{result.name}: {rows}, equal to the topic"
            if not difference.surplus
            else (
                f"{result.name}: {rows}; none is missing, and {difference.surplus:,} cannot be compared,"
                " as Kafka has deleted some records"
            )
        )
        return
    yield f"{result.name}: {rows}; {difference.missing:,} missing, {difference.surplus:,} surplus"
    yield from (f"  missing: {row}" for row in difference.missing_rows)
    yield from (f"  surplus: {row}" for row in difference.surplus_rows)
