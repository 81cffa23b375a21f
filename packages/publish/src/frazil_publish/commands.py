"""`frazil publish` and `frazil watermark`: what readers of a table with a branch see, and up to when it is complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Literal

import typer

from frazil.api.wiring import (
    has_catalog,
    known_state,
    light_jvm,
    open_catalog_for_reading,
    read_spec,
    topics_for_reading,
)
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.clock import SystemClock
from frazil.errors import ConflictError, SpecError, UnavailableError
from frazil.ingest.failures import named_jvm_death
from frazil.kafka.port import Partition
from frazil.literals import format_moment
from frazil.ops.audit import record_command
from frazil.ops.reports import to_json
from frazil.ops.seen_by_readers import PublishReport
from frazil.ops.status import find_tables
from frazil.runtime.properties import running_jvm
from frazil.spec import PipelineSpec
from frazil.types import MAIN, Progress
from frazil_publish.audits import NO_AUDITS
from frazil_publish.groups import GroupPublisher
from frazil_publish.iceberg_branches import IcebergBranches
from frazil_publish.opening import open_publisher
from frazil_publish.publisher import Beginnings, Published, Publisher
from frazil_publish.schedule import published_table

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="The table, such as shop.orders.", show_default=False)]
Override = Annotated[bool, typer.Option("--override", help="Publish although an audit does not hold.")]
Discard = Annotated[
    bool, typer.Option("--discard", help="Make the branch begin again at main; records are read again.")
]
To = Annotated[int | None, typer.Option("--to", metavar="SNAPSHOT", help="Set main to this snapshot of the branch.")]
NOT_PUBLISHED = 4
_TRIES = 10
"""Ingestion may commit to the branch between the look at it and its change."""


def publish(
    output: Output,
    table: TableName,
    file: SpecFile = DEFAULT_FILE,
    override: Override = False,
    discard: Discard = False,
    to: To = None,
) -> int:
    """Audit the newest snapshot of a table's branch now, and move main to it if every audit holds. Works whether or not
    `frazil run` is running, which continues to ingest meanwhile.

    --override publishes without audits. --discard makes the branch begin again at main: the progress goes back too, so
    later records are read again. --to sets main to another snapshot of the branch; if it is an older one, nothing is
    published by schedule until this command is run without --to.

    Exit code: 0 when it is done; 1 when a service does not answer; 2 when the pipeline file is wrong; 4 when an audit does
    not hold, or main has commits that the branch lacks.
    """
    if sum((override, discard, to is not None)) > 1:
        remedy = "write one of --override, --discard and --to"
        raise SpecError("several of --override, --discard and --to were written", remedy=remedy)
    spec = read_spec(output, file)
    own = _find(spec, table)
    if own.publishing.branch == MAIN:
        message = f"the table {table} has no branch: its commits go to main, where readers see them at once"
        raise SpecError(message, remedy="write `branch: ingest` for the table", where=str(file))
    if own.changes.emit == "closed":
        message = f"the table {table} has `emit: closed`: its readers get each window when it is complete"
        remedy = "wait until its windows are complete, or read its branch, which has all of them"
        raise SpecError(message, remedy=remedy, where=str(file))
    if not has_catalog(spec):
        raise UnavailableError("the table does not exist", remedy="start `frazil run`, which creates it", where=table)
    target = published_table(own)
    group = _group_of(spec, target)
    members = group or [target]
    has_audits = any(member.audits for member in members) and not (override or to is not None)
    needs_spark = not discard and (has_audits or any(member.is_copied for member in members))
    with _opened(spec, needs_spark) as publisher:
        record_command(spec, "publish", table=table, override=override or None, discard=discard or None, to=to)
        if discard:
            progress = _discarded(publisher, table, partial(_beginnings, spec, table))
            output.result({"pipeline": spec.pipeline, "table": table, **_of_discard(progress)}, _discard_text(table))
            return 0
        if to is not None:
            reports = {table: publisher.publish_snapshot(target, to)}
        else:
            reports = _published(publisher, target, group, "override" if override else "by hand")
    report, lines = reports[table], [line for name, other in reports.items() for line in _lines(name, other)]
    output.result({"pipeline": spec.pipeline, "table": table, **to_json(report)}, "\n".join(lines))
    return NOT_PUBLISHED if report.state in ("held", "diverged") else 0


def watermark(output: Output, table: TableName, file: SpecFile = DEFAULT_FILE) -> int:
    """Print the record timestamp up to which a table is complete for its readers: all records of its topics with an
    earlier timestamp are in main, except late records. For jobs that wait for it, such as in Airflow.

    Exit code: 0 when it is known; 1 when a service does not answer; 2 when the pipeline file is wrong; 4 when readers see
    nothing yet.
    """
    spec = read_spec(output, file)
    _find(spec, table)
    report = PublishReport()
    if has_catalog(spec):
        with _opened(spec, needs_spark=False) as publisher:
            report = publisher.report(table)
    text = None if report.complete_to_ms is None else _iso(report.complete_to_ms)
    document = {"pipeline": spec.pipeline, "table": table, **watermark_document(report)}
    output.result(document, text or f"readers of {table} see nothing yet that is complete up to a known time")
    return NOT_PUBLISHED if text is None else 0


def watermark_document(report: PublishReport) -> dict[str, Any]:
    """Returns the JSON of what readers see, without `pipeline` and `table`."""
    return {
        "complete_to": None if report.complete_to_ms is None else _iso(report.complete_to_ms),
        "complete_to_ms": report.complete_to_ms,
        "snapshot_id": report.snapshot_id,
        "published_ms": report.published_ms,
    }


def _group_of(spec: PipelineSpec, target: Published) -> list[Published]:
    """Returns the tables that are published together with a table, and the table; none without a group."""
    if not target.group:
        return []
    tables = find_tables(spec, topics_for_reading(spec), known_state(spec), None)
    return [table for table in map(published_table, (table.spec for table in tables)) if table.group == target.group]


def _published(
    publisher: Publisher, target: Published, group: list[Published], mode: Literal["by hand", "override"]
) -> dict[str, PublishReport]:
    """Publishes a table, or its group at the newest snapshots; returns what readers see."""
    if not group:
        return {target.name: publisher.publish(target, mode)}
    reports = GroupPublisher(publisher, target.group).publish(group, mode=mode)
    assert reports is not None
    return reports


def _find(spec: PipelineSpec, name: str) -> Any:
    """Returns the settings of the table. Raises: SpecError for a name that no table has."""
    (table,) = find_tables(spec, topics_for_reading(spec), known_state(spec), name)
    return table.spec


@contextmanager
def _opened(spec: PipelineSpec, needs_spark: bool) -> Iterator[Publisher]:
    if needs_spark:
        with running_jvm(spec) as jvm, named_jvm_death():
            yield open_publisher(jvm, spec)
        return
    with light_jvm(spec) as light, named_jvm_death():
        branches = IcebergBranches(open_catalog_for_reading(light, spec))
        yield Publisher(branches, NO_AUDITS, spec.pipeline, SystemClock())


def _discarded(publisher: Publisher, table: str, beginnings: Beginnings) -> Progress:
    for _ in range(_TRIES - 1):
        try:
            return publisher.discard(table, beginnings)
        except ConflictError:
            continue
    return publisher.discard(table, beginnings)


def _beginnings(spec: PipelineSpec, table: str, places: Iterable[Partition]) -> Mapping[Partition, int]:
    """Returns the first offsets that the partitions have. Raises: UnavailableError where one of them does not answer."""
    wanted = set(places)
    first = topics_for_reading(spec).beginnings(wanted)
    for topic, partition in sorted(wanted - first.keys()):
        raise UnavailableError(f"partition {partition} of the topic {topic} does not answer", where=table)
    return first


def _of_discard(progress: Progress) -> dict[str, Any]:
    return {"snapshot_id": progress.snapshot_id, "offsets": {t: dict(ps) for t, ps in progress.offsets.items()}}


def _discard_text(table: str) -> str:
    return f"the branch of {table} begins again at main; the records since then are read again"


def _lines(table: str, report: PublishReport) -> Iterator[str]:
    if report.state == "published":
        complete = "" if report.complete_to_ms is None else f", complete to {_iso(report.complete_to_ms)}"
        yield f"readers of {table} see the snapshot {report.snapshot_id}{complete}"
    elif report.state == "waiting":
        yield f"the branch of {table} has nothing to publish yet"
    else:
        yield f"{table} is not published: {report.reason}"
        for audit in report.failed_audits:
            yield f"  {audit.name}: {audit.reason}"
            yield from (f"    {row}" for row in audit.rows)
        yield f"  remedy: {report.remedy}"


def _iso(milliseconds: int) -> str:
    return f"{format_moment(milliseconds * 1000, 'milliseconds')}Z"
