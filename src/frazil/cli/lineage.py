"""`frazil lineage`: which fields each column comes from."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Annotated, Any

import typer

from frazil.api.wiring import catalog_and_queries, known_state, read_spec, topics_for_reading
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.ingest.tables.queries import QueryTables
from frazil.ops.lineage import TableLineage, lineage_of
from frazil.ops.status import find_tables

TableName = Annotated[
    str | None, typer.Argument(metavar="TABLE", help="Only this table, such as shop.orders.", show_default=False)
]


def command(output: Output, file: SpecFile = DEFAULT_FILE, table: TableName = None) -> None:
    """Show which fields of the records each column comes from, and which fields decide which records make rows.

    For a table without a query, the command shows the fields that fill its columns. A table that does not exist yet has
    no lineage.

    Exit code: 0; 1 when the catalog does not answer; 2 when the pipeline file is wrong.
    """
    spec = read_spec(output, file)
    tables = find_tables(spec, topics_for_reading(spec), known_state(spec), table)
    with catalog_and_queries(spec) as (catalog, queries):
        analysed = QueryTables(catalog, queries)
        lineages = []
        for declared in tables:
            declared.state = catalog.load(declared.name)
            lineages.append(lineage_of(declared, analysed.known(declared) if declared.spec.has_query else None))
    documents = {lineage.name: lineage.document() for lineage in lineages}
    document: dict[str, Any] = {"pipeline": spec.pipeline, "tables": documents}
    counts = {
        named.name: {name for name, function in named.spec.changes.merge if function == "count"} for named in tables
    }
    texts = ["\n".join(_lines(lineage, counts[lineage.name])) for lineage in lineages]
    output.result(document, "\n\n".join(texts) or "no tables")


def _lines(table: TableLineage, counts: Set[str]) -> Iterator[str]:
    """Yields the lines of one table. counts: the columns that are numbers of records."""
    yield table.name if table.columns else f"{table.name}: no column is known yet"
    width = max((len(column.name) for column in table.columns), default=0)
    for column in table.columns:
        constant = "the number of records" if column.name in counts else "a constant"
        yield f"  {column.name:<{width}}  <-  {', '.join(column.fields) or constant}"
    yield from (f"  {note.line}" for note in table.notes)
    if table.conditions:
        yield f"  rows depend on {', '.join(table.conditions)}"
