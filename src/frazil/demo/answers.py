"""The demo's final output: what arrived, the result of a query, and how to query the tables."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any
from xml.etree import ElementTree

from frazil.demo.lake import TOP_PAGES, Arrival, Lake
from frazil.ops.units import count

_BODY = """\
DuckDB
  INSTALL iceberg; LOAD iceberg;
  SELECT page, count(*) AS views
  FROM iceberg_scan('{metadata}')
  GROUP BY page ORDER BY views DESC LIMIT 5;

PyIceberg
  from pyiceberg.table import StaticTable
  StaticTable.from_metadata("{metadata}").scan(limit=10).to_pandas()

Spark
  pyspark --packages {package}
  spark.read.format("iceberg").load("{metadata}").groupBy("page").count().show()
"""
_PACKAGE = "iceberg-spark-runtime"


def summarise(
    arrivals: Sequence[Arrival], top_pages: Sequence[tuple[str, int]], lake: Lake
) -> tuple[dict[str, Any], str]:
    """Returns the result as a JSON document and as text. The metadata files in it are the current ones."""
    is_equal = all(arrival.is_equal for arrival in arrivals)
    document = {
        "ok": is_equal,
        "tables": {arrival.table: arrival.document() for arrival in arrivals},
        "query": {"sql": TOP_PAGES, "rows": [{"page": page, "views": views} for page, views in top_pages]},
        "catalog": f"jdbc:sqlite:{lake.catalog}",
        "warehouse": str(lake.warehouse),
    }
    verdict = (
        "every record arrived once, with its values"
        if is_equal
        else ("the tables do not have the records that were sent")
    )
    parts = ["what arrived: " + verdict, _aligned(_arrivals(arrivals)), TOP_PAGES, _aligned(_pages(top_pages))]
    if arrivals[0].metadata:
        # The long part comes first, so that the terminal still shows what arrived.
        parts = ["how to query the tables", how_to_query(arrivals[0].metadata).rstrip(), *parts]
    return document, "\n\n".join(parts)


def how_to_query(metadata: str) -> str:
    """Returns snippets for other engines that read the table from its metadata file."""
    return _BODY.format(metadata=metadata.removeprefix("file:"), package=_coordinate())


def _arrivals(arrivals: Sequence[Arrival]) -> list[tuple[str, ...]]:
    head = ("table", "sent", "rows", "lost", "doubled", "columns")
    return [
        head,
        *((a.table, *map(count, (a.sent.records, a.rows, a.lost, a.doubled)), count(len(a.columns))) for a in arrivals),
    ]


def _pages(top_pages: Sequence[tuple[str, int]]) -> list[tuple[str, ...]]:
    return [("page", "views"), *((page, count(views)) for page, views in top_pages)]


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  "
        + "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _coordinate() -> str:
    """Returns the package that Spark needs, in the version that Frazil uses."""
    root = ElementTree.fromstring((resources.files("frazil.runtime") / "ivy.xml").read_text())
    found = (dependency.attrib for dependency in root.iter("dependency"))
    return next(f"{d['org']}:{d['name']}:{d['rev']}" for d in found if d["name"].startswith(_PACKAGE))
