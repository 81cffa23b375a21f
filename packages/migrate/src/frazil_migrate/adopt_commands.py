"""`frazil adopt` and `frazil release`: progress from another tool, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from frazil.api.check import plan_of
from frazil.api.redaction import Json
from frazil.api.wiring import catalog_and_queries, read_spec, topics_for_reading
from frazil.catalog.port import Catalog
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.dead_letters.tables import DeadLetterTables
from frazil.ingest.failures import TableStopped
from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.tables.queries import Queries
from frazil.ingest.tables.table import Table
from frazil.kafka.group import KafkaGroup
from frazil.kafka.outbox import KafkaOutbox
from frazil.kafka.reader import KafkaReader
from frazil.kafka.topics import KafkaTopics
from frazil.ops.audit import record_command
from frazil.ops.reports import count
from frazil.printable import counted, plural
from frazil.spec import PipelineSpec
from frazil_migrate.adopt.adopt import (
    Handover,
    Origin,
    Tool,
    check_options,
    chosen,
    commit,
    handed_over,
    missing_argument,
    plan_adoptions,
)
from frazil_migrate.adopt.offsets import Services
from frazil_migrate.adopt.release import check_target, plan_release
from frazil_migrate.adopt.release import release as release_table
from frazil_migrate.adopt.rows import parse_columns

REFUSED, SOMETHING_TO_DO = 1, 4
SomeTable = Annotated[
    str | None, typer.Argument(metavar="TABLE", help="Only this table, such as shop.orders.", show_default=False)
]
OneTable = Annotated[str, typer.Argument(metavar="TABLE", help="The table, such as shop.orders.")]
From = Annotated[Tool, typer.Option("--from", help="The tool that has written the tables.")]
To = Annotated[Tool, typer.Option("--to", help="The tool that continues.")]
Group = Annotated[str | None, typer.Option(help="The tool's consumer group.", show_default=False)]
Checkpoint = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="The checkpoint of Spark's query.", show_default=False)
]
Offsets = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The next offsets as JSON, in place of the tool's own.", show_default=False),
]
RecordColumns = Annotated[
    str | None,
    typer.Option(
        metavar="PARTITION,OFFSET",
        help="The columns with the partition and the offset of each row's record, in place of the tool's offsets; with"
        " three, the first has its topic. AutoMQ's are known.",
        show_default=False,
    ),
]
Apply = Annotated[bool, typer.Option("--apply", help="Do it, instead of showing it.")]


@dataclass(frozen=True)
class _Desk:
    """What both commands work with."""

    services: Services
    discovery: Discovery
    cluster_id: str
    #: Raises TableStopped where a run would stop a table at its query.
    refuse: Callable[[Table], None]


def adopt(  # noqa: PLR0913  (each is an option)
    output: Output,
    tool: From,
    file: SpecFile = DEFAULT_FILE,
    table: SomeTable = None,
    group: Group = None,
    checkpoint: Checkpoint = None,
    offsets: Offsets = None,
    columns: RecordColumns = None,
    apply: Apply = False,
) -> int:
    """Continue tables that another tool has written, at the offsets of that tool.

    Shows the offsets and the ends of the topics, and changes nothing without --apply. The tool must be stopped. A table
    that has progress of this pipeline is not changed.

    Exit code: 0 when there is nothing to do, or it is done; 1 when a table is refused, or a service does not answer; 2
    when the pipeline file or an option is wrong; 4 when --apply would do something.
    """
    spec = read_spec(output, file)
    origin = Origin(tool, group, checkpoint, offsets, parse_columns(columns) if columns is not None else None)
    check_options(origin)
    if (missing := missing_argument(origin)) is not None:
        raise missing
    with _open(spec) as desk:
        planned = plan_adoptions(
            desk.discovery, desk.services, table, origin, desk.cluster_id, desk.refuse, output.doing
        )
        if apply:
            record_command(spec, "adopt", table=table, tool=tool.value if tool else None)
            for number, handover in enumerate(planned):
                output.doing(counted(f"adopting {handover.name}", number + 1, len(planned)))
                planned[number] = commit(desk.services, handover)
    return _report(output, spec, planned, apply)


def release(
    output: Output,
    table: OneTable,
    tool: To,
    file: SpecFile = DEFAULT_FILE,
    group: Group = None,
    checkpoint: Checkpoint = None,
    apply: Apply = False,
) -> int:
    """Give a table back to another tool: the pipeline stops committing to it, and the tool continues at the pipeline's
    offsets.

    Shows the offsets, and changes nothing without --apply. A running pipeline stops the table. If the command was
    interrupted, repeat it.

    Exit code: 0 when it is done; 1 when it is refused, or a service does not answer; 2 when the pipeline file or an
    option is wrong; 4 when --apply would do something.
    """
    spec = read_spec(output, file)
    target = Origin(tool, group, checkpoint)
    check_target(target)
    with _open(spec) as desk:
        (adopted,) = chosen(desk.discovery, table)
        others = [t for t in desk.discovery.tables.values() if t is not adopted]

        def hand_over() -> Handover:
            if not apply:
                return plan_release(desk.services, adopted, target, others)
            record_command(spec, "release", table=table, tool=tool.value)
            dead_letters = DeadLetterTables(desk.services.catalog, KafkaOutbox(spec.kafka), spec.pipeline)
            return release_table(desk.services, adopted, target, others, dead_letters)

        planned = handed_over(table, hand_over)
    return _report(output, spec, [planned], apply)


@contextmanager
def _open(spec: PipelineSpec) -> Iterator[_Desk]:
    source = topics_for_reading(spec)
    with catalog_and_queries(spec, commits=True) as (catalog, queries):
        discovery = Discovery(spec, source, catalog)
        discovery.refresh_topics()
        reader = KafkaReader(spec.kafka)
        services = Services(catalog, source, reader, lambda name: KafkaGroup(spec.kafka, name))
        refuse = partial(_refuse_query, spec, source, catalog, queries)
        yield _Desk(services, discovery, source.cluster_id(), refuse)


def _refuse_query(
    spec: PipelineSpec, source: KafkaTopics, catalog: Catalog, queries: Queries | None, table: Table
) -> None:
    """Raises TableStopped where a run would stop a table at its query, as a sample of the records shows."""
    if not table.spec.has_query:
        return
    [planned] = plan_of(spec, source, catalog, queries, table.name)
    problem = planned.query.problem
    if planned.action == "stop" and problem is not None:
        raise TableStopped(problem.message, problem.remedy, problem.where or table.name)


def _report(output: Output, spec: PipelineSpec, planned: Sequence[Handover], is_done: bool) -> int:
    document: Json = {
        "pipeline": spec.pipeline,
        "applied": is_done,
        "tables": {handover.name: handover.document() for handover in planned},
    }
    output.result(
        document, "\n".join(line for handover in planned for line in _lines(handover, is_done)) or "no tables"
    )
    if any(handover.action == "refused" for handover in planned):
        return REFUSED
    return SOMETHING_TO_DO if not is_done and any(handover.action != "none" for handover in planned) else 0


def _lines(handover: Handover, is_done: bool) -> Iterator[str]:
    done = {"adopt": "adopted from", "release": "released to"}
    to_do = {"adopt": "to be adopted from", "release": "to be released to", "none": "nothing to do, it has"}
    if handover.problem is not None:
        yield f"{handover.name}: refused, {handover.problem.message}"
        for word, text in (("where", handover.problem.where), ("remedy", handover.problem.remedy)):
            if text:
                yield f"  {word}: {text}"
        return
    yield f"{handover.name}: {(done if is_done else {}).get(handover.action) or to_do[handover.action]} {handover.place}"
    for topic, offsets in (handover.offsets or {}).items():
        yield f"  {topic} from {', '.join(f'{partition}:{count(offset)}' for partition, offset in offsets.items())}"
    yield f"  {plural(handover.unread, 'record')} unread"
    if not is_done and handover.action != "none":
        yield "  with --apply"
