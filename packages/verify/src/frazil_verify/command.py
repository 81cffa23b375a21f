"""`frazil verify`: proves that tables are what their topics make."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from frazil.api.pipeline import open_pipeline
from frazil.api.results import VerifiedTable, VerifyResult
from frazil.api.wiring import read_spec
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.clock import SystemClock
from frazil.errors import SpecError
from frazil.printable import plural
from frazil_verify.kept import Kept
from frazil_verify.opened import Options
from frazil_verify.report import document_of, write_report
from frazil_verify.verify import check_options, verify_foreign, verify_tables

TableName = Annotated[
    str | None, typer.Argument(metavar="TABLE", help="Only this table, such as shop.orders.", show_default=False)
]
UNAVAILABLE, DIFFERENT = 1, 4
_SHOWN = 10
_SHARE = re.compile(r"(\d+(?:\.\d+)?) ?%")
Level = Literal["ledger", "rows", "copy", "independent"]


def command(  # noqa: PLR0913  (each parameter is an option)
    output: Output,
    file: SpecFile = DEFAULT_FILE,
    table: TableName = None,
    ledger: Annotated[bool, typer.Option("--ledger", help="Check the metadata alone.")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Check partition and offset of each row.")] = False,
    independent: Annotated[
        bool, typer.Option("--independent", help="Decode with other libraries and plain rules.")
    ] = False,
    begin: Annotated[
        str, typer.Option("--from", metavar="BOUND", help="An offset, as 1200 or 3:1200 of partition 3, or a time.")
    ] = "",
    end: Annotated[str, typer.Option("--to", metavar="BOUND", help="Where to end, in the same form.")] = "",
    sample: Annotated[
        str,
        typer.Option("--sample", metavar="SHARE", help="Compare a share of the offsets, such as 1%, in random blocks."),
    ] = "",
    digests: Annotated[
        bool, typer.Option("--digests", help="With --rows: compare the rows with the ledger too.")
    ] = False,
    scratch: Annotated[
        str,
        typer.Option(
            "--scratch", metavar="LOCATION", help="A folder that a cluster's workers reach: they make the copy."
        ),
    ] = "",
    foreign: Annotated[
        Path | None,
        typer.Option("--foreign", metavar="FILE", help="A pipeline file of tables that another tool fills."),
    ] = None,
    group: Annotated[
        str, typer.Option("--group", metavar="NAME", help="End at the offsets of that tool's consumer group.")
    ] = "",
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write a report: .json, .html, .txt, or a folder.")
    ] = None,
) -> int:
    """Prove that tables have exactly the rows of their topics: read the topics again up to each table's progress,
    compute the rows again in a temporary folder, and compare them.

    Needs the disk space of a copy. Changes nothing; the pipeline may run meanwhile. If a topic is compacted, or Kafka has
    deleted its oldest records, all remaining records must be rows; other rows are counted and not judged.

    Three other levels make no copy. `--ledger` reads the table's metadata alone. `--rows` reads the columns of
    partition and offset. `--independent` decodes each record with other libraries and plain Python rules. After a kill,
    the same command continues the comparison.

    `--foreign` compares tables that another tool fills from their topics, such as Kafka Connect's sink. FILE describes
    them as a pipeline file does; `frazil import` writes one.

    Exit code: 0 when every table is equal; 1 when one could not be compared; 2 when the pipeline file is wrong;
    4 when one differs.
    """
    choices: tuple[tuple[Level, bool], ...] = (("ledger", ledger), ("rows", rows), ("independent", independent))
    levels = [name for name, is_chosen in choices if is_chosen]
    if len(levels) > 1:
        raise SpecError(
            f"--{levels[0]} and --{levels[1]} are two levels", remedy="choose one level, or run the command twice"
        )
    if group and foreign is None:
        raise SpecError("a table's own progress ends the comparison", remedy="add --foreign FILE, or leave --group out")
    logging.getLogger("frazil").setLevel(
        logging.WARNING
    )  # A copy is not a run of the pipeline: its commits are not news.
    level: Level = levels[0] if levels else "copy"
    share, kept = _share_of(sample), list[Kept]()
    check_options(level if foreign is None else "independent", digests, scratch)
    if foreign is not None:
        options = Options(begin=begin, end=end, sample=share, group=group, keeps_all=report is not None)
        result = verify_foreign(read_spec(output, foreign), table, options, output.doing, kept)
    elif report is not None and level != "copy":
        spec, part = read_spec(output, file), (begin, end, share)
        tables = verify_tables(spec, table, level, part, output.doing, True, digests, scratch, kept)
        result = VerifyResult(spec.pipeline, tuple(tables))
    else:
        pipeline = open_pipeline(output, file)
        result = pipeline.verify(
            table,
            level=level,
            begin=begin,
            end=end,
            sample=share,
            digests=digests,
            scratch=scratch,
            progress=output.doing,
        )
    lines = [line for verified in result.tables for line in _lines(verified)]
    if report is not None:
        lines.append(f"report: {write_report(report, document_of(result, SystemClock().now_ms()))}")
    output.result(result.document(), "\n".join(lines) or "no tables")
    for comparison in kept:
        comparison.discard()
    if any(verified.is_equal is False for verified in result.tables):
        return DIFFERENT
    return 0 if result.is_ok else UNAVAILABLE


def _share_of(text: str) -> float:
    """Returns a share of all; 1 for an empty text.

    Raises: SpecError for another text.
    """
    parts = _SHARE.fullmatch(text or "100%")
    if parts is None or not 0 < float(parts[1]) <= 100:
        raise SpecError(f"`{text}` is not a share", remedy="write a share above 0 and up to 100%, as 0.5%")
    return float(parts[1]) / 100


def _lines(result: VerifiedTable) -> Iterator[str]:
    if result.reason:
        yield f"{result.name}: not compared, as {result.reason}" + (f"; {result.remedy}" if result.remedy else "")
        return
    difference = result.difference
    if difference is None:
        yield from _judged_lines(result)
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


def _judged_lines(result: VerifiedTable) -> Iterator[str]:
    """Yields what a level without a copy has found."""
    document = result.document()
    seen = ", ".join(plural(number, name[:-1].replace("_", " ")) for name, number in document["seen"].items())
    counts = ", ".join(f"{number:,} {kind.replace('_', ' ')}" for kind, number in sorted(document["counts"].items()))
    yield f"{result.name}: {seen}; {counts or 'nothing differs'}"
    yield from (f"  {finding['kind']}: {finding['text']}" for finding in document["findings"][:_SHOWN])
    more = len(document["findings"]) - _SHOWN
    if more > 0:
        yield f"  and {more} more"
    yield from (f"  note: {text}" for text in document["notes"])
