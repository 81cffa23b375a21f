"""Takes over tables of another tool: the offsets that it has reached become a pipeline's progress.

One commit without files does that, which the table accepts while its newest snapshot is the one that was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from frazil.catalog.port import TableState
from frazil.clock import new_id
from frazil.errors import ConflictError, SpecError
from frazil.ingest.failures import TableStopped
from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.plan import lag_records
from frazil.ingest.tables.preflight import refuse_foreseen
from frazil.ingest.tables.table import Table
from frazil.ops.reports import Problem, problem_document
from frazil.ops.status import no_such_table, problem_of
from frazil.printable import counted
from frazil.types import Commit, Offsets, by_partition, by_topic
from frazil_migrate.adopt import kafka_connect, rows, spark
from frazil_migrate.adopt.offsets import Services, SourceOffsets, read_group, read_offsets


class Tool(StrEnum):
    """A tool that writes tables from topics."""

    KAFKA_CONNECT = "kafka-connect"
    SPARK = "spark"
    AUTOMQ = "automq"
    FLINK = "flink"
    DEBEZIUM_SERVER = "debezium-server"
    GROUP = "group"


_WHERE_OFFSETS_ARE = {
    Tool.FLINK: "Flink keeps its offsets in savepoints, and those of its group may be behind the table",
    Tool.DEBEZIUM_SERVER: "Debezium Server reads databases and has no offsets of topics",
}
_REMEDIES = {
    Tool.FLINK: (
        "stop the job with a savepoint; where the table has the partition and the offset of its records, name these"
        " columns with --columns, such as part,pos; else give --offsets with what Flink's State Processor API reads from the"
        " savepoint"
    ),
    Tool.DEBEZIUM_SERVER: (
        "start Debezium on Kafka Connect from the offset that Debezium Server has stored: its topic begins where the table"
        " ends, and `frazil run` reads all of it"
    ),
}


_TOOLS_OF_OPTIONS = {"group": (Tool.KAFKA_CONNECT, Tool.GROUP), "checkpoint": (Tool.SPARK,)}
"""The options that only some tools have a use for."""


@dataclass(frozen=True)
class Origin:
    """The tool to adopt from, as the command names it."""

    tool: Tool
    #: The consumer group; None to find it.
    group: str | None = None
    #: The folder of a query's checkpoint.
    checkpoint: Path | None = None
    #: A file with offsets in place of those that the tool has.
    offsets: Path | None = None
    #: Columns that name the record of each row, in place of the offsets that the tool has; None for AutoMQ's own.
    columns: rows.Columns | None = None


@dataclass
class Handover:
    """What changes hands of one table."""

    name: str
    #: `adopt` or `release`; `none` where there is nothing to do; `refused`.
    action: str = "refused"
    #: Where the offsets come from, or go to.
    place: str = ""
    offsets: Offsets | None = None
    #: The number of offsets between them and the ends of the topics.
    unread: int = 0
    problem: Problem | None = None
    #: What is to be committed; None where nothing is.
    commit: Commit | None = None

    def document(self) -> dict[str, Any]:
        """Returns the JSON of the table."""
        offsets = {
            topic: {str(p): offset for p, offset in mine.items()} for topic, mine in (self.offsets or {}).items()
        }
        return {
            "action": self.action,
            "place": self.place,
            "offsets": offsets,
            "unread": self.unread,
            **problem_document(self.problem),
        }


def plan_adoptions(
    discovery: Discovery,
    services: Services,
    name: str | None,
    origin: Origin,
    cluster_id: str,
    refuse: Callable[[Table], None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
) -> list[Handover]:
    """Returns what adopting would do with the tables of a pipeline, or with the one of this name. refuse: raises
    TableStopped where a run would stop a table at its query. note: receives what is being done.

    Raises: SpecError for a name that no table has; UnavailableError where a service does not answer.
    """
    tables, planned = list(chosen(discovery, name)), list[Handover]()
    for number, table in enumerate(tables, 1):
        note(counted(f"looking how far {table.name} is", number, len(tables)))
        plan = partial(_plan, discovery, services, table, origin, cluster_id, refuse)
        planned.append(handed_over(table.name, plan))
    return planned


def chosen(discovery: Discovery, name: str | None) -> Iterable[Table]:
    """Returns the tables of the pipeline by name, or the one of this name; raises SpecError where it has none."""
    tables = discovery.tables
    if name is not None and name not in tables:
        raise no_such_table(name, tables)
    return [tables[name]] if name is not None else [tables[table_name] for table_name in sorted(tables)]


def handed_over(name: str, plan: Callable[[], Handover]) -> Handover:
    """Returns what `plan` returns; a refusal where it raises TableStopped."""
    try:
        return plan()
    except TableStopped as error:
        return Handover(name, problem=problem_of(error))
    except ConflictError as error:
        remedy = "stop the tool, and run the same command again"
        return Handover(name, problem=Problem(error.message, remedy, error.where))


def commit(services: Services, planned: Handover) -> Handover:
    """Commits what was planned for a table; returns it, or a refusal where the table has moved since."""

    def attempt() -> Handover:
        if planned.commit is not None:
            services.catalog.commit(planned.commit)
        return planned

    return handed_over(planned.name, attempt)


def load(services: Services, table: Table) -> TableState:
    """Loads a table; raises TableStopped where it does not exist, or its records are those of a route."""
    state = table.state = services.catalog.load(table.name)
    if state is None:
        raise TableStopped("the catalog has no such table", "create it, or correct its name", table.name)
    if table.spec.source.share is not None:
        raise TableStopped(
            "the table belongs to a route, whose tables share their progress",
            "give it an entry of its own under `tables`, with `where`",
            table.name,
        )
    return state


def _plan(
    discovery: Discovery,
    services: Services,
    table: Table,
    origin: Origin,
    cluster_id: str,
    refuse: Callable[[Table], None],
) -> Handover:
    # Before the offsets are read: what the tool commits afterwards is another newest snapshot.
    state = load(services, table)
    before = state.progress
    if before.snapshot_id is not None and not before.released_to:
        offsets = table.progress.offsets
        unread = lag_records(offsets, services.source.log_ends([*by_partition(offsets)]))
        return Handover(table.name, "none", "the pipeline's own progress", before.offsets, unread)
    refuse_foreseen(table, services.catalog)
    refuse(table)
    source_offsets = _find(services, state, table, origin)
    if not any(place in source_offsets.offsets for place in table.partitions()):
        raise TableStopped(
            f"{source_offsets.place} has no offset of a topic that the table reads",
            "correct the table's topic, or name what has read it",
            table.name,
        )
    progress = replace(
        before,
        offsets=_complete(services, table, source_offsets),
        topic_ids=table.topic_ids(),
        cluster_id=cluster_id,
        commit_id=new_id(),
        released_to="",
        order=replace(before.order, last_deletes=()),
    )
    table.state = replace(state, progress=progress)
    discovery.check_offsets(table, services.source.ends(table.partitions()))
    ends = services.source.log_ends(table.partitions())
    commit = Commit(table.name, (), progress, before, shape=state.shape, head_id=state.head_id)
    return Handover(
        table.name, "adopt", source_offsets.place, progress.offsets, lag_records(progress.offsets, ends), commit=commit
    )


def check_options(origin: Origin) -> None:
    """Raises SpecError for an option that would be ignored: another tool's, or a second place of the offsets."""
    given = [name for name in ("group", "checkpoint", "offsets", "columns") if getattr(origin, name) is not None]
    for name, tools in _TOOLS_OF_OPTIONS.items():
        if name in given and origin.tool not in tools:
            tool_names = " and ".join(tool.value for tool in tools)
            raise SpecError(f"--{name} is for {tool_names}, not for {origin.tool.value}", remedy=f"leave out --{name}")
    if len(given) > 1:
        first, second = given[:2]
        raise SpecError(f"--{first} and --{second} name two places of the offsets", remedy="leave one of the two out")


def missing_argument(origin: Origin) -> SpecError | None:
    """Returns the error of an origin that does not name what the offsets of its tool are found by; None for another."""
    if origin.offsets is not None or origin.columns is not None:
        return None
    if origin.tool is Tool.SPARK and origin.checkpoint is None:
        return SpecError("the checkpoint of the query is not named", remedy="give --checkpoint, or --offsets")
    if origin.tool is Tool.GROUP and origin.group is None:
        return SpecError("the group is not named", remedy="give --group, or --offsets")
    return None


def _find(services: Services, state: TableState, table: Table, origin: Origin) -> SourceOffsets:
    if origin.offsets is not None:
        return read_offsets(origin.offsets, table.partitions())
    columns = origin.columns or (rows.AUTOMQ if origin.tool is Tool.AUTOMQ else None)
    if columns is not None:
        return rows.find_progress(services, state, columns, table.partitions())
    match origin.tool:
        case Tool.KAFKA_CONNECT:
            return kafka_connect.find_progress(services, table.name, origin.group, table.partitions())
        case Tool.SPARK if origin.checkpoint is not None:
            return spark.find_progress(services, table.name, origin.checkpoint)
        case Tool.GROUP if origin.group is not None:
            return read_group(services, origin.group, table.partitions())
    if (missing := missing_argument(origin)) is not None:
        raise missing
    raise TableStopped(_WHERE_OFFSETS_ARE[origin.tool], _REMEDIES[origin.tool], table.name)


def _complete(services: Services, table: Table, source_offsets: SourceOffsets) -> Offsets:
    """Returns the offset of every partition: one that was never read begins with its first record."""
    partitions = table.partitions()
    missing = [place for place in partitions if place not in source_offsets.offsets]
    offsets = {place: source_offsets.offsets[place] for place in partitions if place in source_offsets.offsets}
    return by_topic(offsets | (services.source.beginnings(missing) if missing else {}))
