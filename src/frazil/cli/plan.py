"""`frazil plan`: shows what run would create or change, without doing it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Annotated

import typer

from frazil.api.pipeline import open_pipeline
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.ops.plan import PlannedTable
from frazil.ops.reports import count, held_back

OneTable = Annotated[
    str | None, typer.Argument(metavar="TABLE", help="Only this table, such as shop.orders.", show_default=False)
]
SOMETHING_TO_DO = 4
_TITLES = {
    "create": "create the table",
    "change": "change the table",
    "start": "start reading new partitions",
    "wait": "wait",
    "stop": "stop",
    "none": "continue, nothing to create or change",
}


def command(output: Output, file: SpecFile = DEFAULT_FILE, table: OneTable = None) -> int:
    """Show what `frazil run` would create or change: tables, columns, partition specs, first offsets; change nothing.

    Columns that the pipeline file does not declare are inferred from a sample of up to 10,000 unread records per table;
    records beyond the sample may need more columns. Bad records of the sample are shown with topic, partition and
    offset; if a run would stop because of their number, the plan shows that too.

    Exit code: 0 when a run would change nothing, or wait for the first record of an empty topic; 4 when it would create or
    change something, wait for a topic, for a record with a field or for the end of an open transaction, or stop at bad
    records; 1 when Kafka or the catalog does not answer; 2 when the pipeline file is wrong.
    """
    pipeline = open_pipeline(output, file)
    result = pipeline.plan(table, progress=output.doing)
    warnings = [f"warning: {words}" for words in result.warnings]
    parts = [*warnings, *("\n".join(_lines(planned)) for planned in result.tables)]
    output.result(result.document(), "\n\n".join(parts if result.tables else [*warnings, "no tables"]))
    return SOMETHING_TO_DO if result.has_changes else 0


def _lines(table: PlannedTable) -> Iterator[str]:
    topics = ", ".join(table.topics) or "no topic yet"
    yield f"{table.name}  <-  {topics}: {_TITLES[table.action]}"
    if table.problem is not None:
        yield f"  reason: {table.problem.message}"
        for word, text in (("where", table.problem.where), ("remedy", table.problem.remedy)):
            if text:
                yield f"  {word}: {text}"
    yield from _columns(table)
    yield from _before_rows(table)
    for change in table.refused:
        yield f"  refused: {change}"
    for warning in table.warnings:
        yield f"  warning: {warning}"
    yield from _layout(table)
    held = held_back(table.open_transactions)
    if held is not None and held != table.problem:
        yield f"  note: {held.message} ({held.where})"
    for (topic, source), group in groupby(table.first_offsets, key=lambda first: (first.topic, first.source)):
        where = "committed progress" if source == "progress" else "first offsets, nothing is committed yet"
        yield f"  reads {topic} from {', '.join(f'{first.partition}:{first.offset}' for first in group)} ({where})"


def _before_rows(table: PlannedTable) -> Iterator[str]:
    yield from (f"  {note.line}" for note in table.notes)
    if table.in_spark:
        yield f"  Spark computes a part of the query before the tasks: {table.in_spark}"
    for stage in table.stages:
        yield f"  stage {stage}"
    for words in (*table.state, *table.publishing):
        yield f"  {words}"


def _columns(table: PlannedTable) -> Iterator[str]:
    if table.columns:
        inferred = any(column.source == "inferred" for column in table.columns)
        sample = f", inferred from {count(table.sampled)} of {count(table.unread)} unread records" if inferred else ""
        yield f"  columns{sample}"
        width = max(len(column.name) for column in table.columns)
        for column in table.columns:
            source = "" if column.source == "inferred" else f"  ({column.source})"
            yield f"    {column.name:<{width}}  {column.type}{source}"


def _layout(table: PlannedTable) -> Iterator[str]:
    layout, is_new = table.layout, table.action == "create"
    if is_new or layout.has_other_partitions:
        yield f"  partition spec: {_terms(layout.partition_spec)}{_before(layout.partition_spec_before, is_new)}"
    if layout.has_other_order or (is_new and layout.sort_order):
        yield f"  sort order: {_terms(layout.sort_order)}{_before(layout.sort_order_before, is_new)}"


def _terms(terms: tuple[str, ...]) -> str:
    return ", ".join(terms) or "none"


def _before(terms: tuple[str, ...], is_new: bool) -> str:
    return "" if is_new else f"  (until now: {_terms(terms)}; existing files do not change)"
