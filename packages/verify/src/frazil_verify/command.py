"""`frazil verify`: proves that tables are what their topics make."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Annotated

import typer

from frazil.api.pipeline import open_pipeline
from frazil.api.results import VerifiedTable
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.printable import plural

TableName = Annotated[
    str | None, typer.Argument(metavar="TABLE", help="Only this table, such as shop.orders.", show_default=False)
]
UNAVAILABLE, DIFFERENT = 1, 4


def command(output: Output, file: SpecFile = DEFAULT_FILE, table: TableName = None) -> int:
    """Prove that tables have exactly the rows of their topics: read the topics again up to each table's progress, make the
    rows again in a temporary folder, and compare them.

    Needs the disk space of a copy. Changes nothing; the pipeline may run meanwhile. If a topic is compacted, or Kafka has
    deleted its oldest records, all remaining records must be rows; other rows are counted and not judged.

    Exit code: 0 when every table is equal; 1 when one could not be compared; 4 when one differs.
    """
    pipeline = open_pipeline(output, file)
    logging.getLogger("frazil").setLevel(
        logging.WARNING
    )  # A copy is not a run of the pipeline: its commits are not news.
    result = pipeline.verify(table, progress=output.doing)
    text = "\n".join(line for verified in result.tables for line in _lines(verified))
    output.result(result.document(), text or "no tables")
    if any(verified.is_equal is False for verified in result.tables):
        return DIFFERENT
    return 0 if result.is_ok else UNAVAILABLE


def _lines(result: VerifiedTable) -> Iterator[str]:
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
