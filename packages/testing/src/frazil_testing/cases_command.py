"""`frazil test`: plays cases of the pipeline that are files, and compares what becomes of their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from frazil.api.wiring import has_queries, light_jvm
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.clock import SystemClock
from frazil.errors import SpecError
from frazil.ingest.tables.queries import Queries, SparkQueries
from frazil.ops.reports import to_json
from frazil.spec import PipelineSpec
from frazil_testing.case_file import case_paths
from frazil_testing.report import text_report, write_junit
from frazil_testing.suite import Suite

DIFFERS = 4
FOLDER = "cases"
CasesPaths = Annotated[
    list[Path],
    typer.Argument(
        metavar="[PATH]...",
        help="Files of cases, or folders with files of cases; by default the folder `cases` next to the pipeline file.",
        show_default=False,
    ),
]
Names = Annotated[
    list[str],
    typer.Option("--case", "-k", metavar="TEXT", help="Run only cases with this text in their name; repeatable."),
]
Update = Annotated[
    bool, typer.Option("--update", help="Write the actual rows and dead letters into the files, as the expected ones.")
]
Junit = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write the results as JUnit's XML too.")]


def command(
    output: Output,
    path: CasesPaths = [],  # noqa: B006  (as Typer declares arguments)
    file: SpecFile = DEFAULT_FILE,
    case: Names = [],  # noqa: B006  (as Typer declares options)
    update: Update = False,
    junit: Junit = None,
) -> int:
    """Test the pipeline with cases: records, and the rows or dead letters that are expected of them. Needs no broker,
    registry or catalog, and a JVM only if a table has a query.

    The command runs the code of `frazil run` with Kafka, the registry and the catalog in memory, on tables that begin
    empty. Columns that a case does not name are not compared. Shows each difference with its line, the expected and the
    actual value.

    Exit code: 0 when every case is as expected, or was updated; 4 when a case is not; 1 when a case could not be run; 2
    when a file of cases or the pipeline file is wrong.
    """
    clock = SystemClock()
    began_s = clock.monotonic_s()
    with queries_when_needed() as queries_of:
        suite = Suite(file, queries_of, clock, case, update)
        places = path or [file.parent / FOLDER]
        verdicts = list(suite.play(list(dict.fromkeys(chain.from_iterable(map(case_paths, places))))))
    if not verdicts:
        remedy = "name a part of a case's name with --case"
        raise SpecError("no case has such a name", remedy=remedy, where=", ".join(map(str, places)))
    if junit is not None:
        write_junit(verdicts, junit)
    document: dict[str, Any] = {
        "ok": all(verdict.is_ok for verdict in verdicts),
        "cases": [to_json(verdict) | {"ok": verdict.is_ok} for verdict in verdicts],
    }
    output.result(document, text_report(verdicts, clock.monotonic_s() - began_s))
    if any(verdict.error for verdict in verdicts):
        return 1
    return 0 if document["ok"] else DIFFERS


@contextmanager
def queries_when_needed() -> Iterator[Callable[[PipelineSpec], Queries | None]]:
    """Yields what returns the analysis of a pipeline's queries: its JVM starts with the first query that is analysed, and
    ends with the block.
    """
    with ExitStack() as opened:

        @cache
        def queries() -> Queries:
            return SparkQueries(lambda: gateway().jvm)

        @cache
        def gateway() -> Any:
            return opened.enter_context(light_jvm(specs[0], needs_spark_jars=True)).gateway

        specs: list[PipelineSpec] = []

        def queries_of(spec: PipelineSpec) -> Queries | None:
            specs.append(spec)
            return queries() if has_queries(spec) else None

        yield queries_of
