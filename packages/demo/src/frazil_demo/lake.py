"""Reads the demo's tables as any other engine would: the catalog names a metadata file, and PyIceberg reads from there."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from frazil_demo.producers import KINDS, Kind, Sent

if TYPE_CHECKING:
    from pyiceberg.table import Table

TOP_PAGES = "SELECT page, count(*) AS views FROM shop.page_views GROUP BY page ORDER BY views DESC LIMIT 5"
VIEWS_PER_MINUTE = "shop.views_per_minute"
"""The table of minutes, whose rows change as page views arrive."""


@dataclass(frozen=True)
class Arrival:
    """What was sent to a topic, and what its table contains."""

    table: str
    sent: Sent
    rows: int
    #: The number of records without a row.
    lost: int
    #: The number of rows in excess.
    doubled: int
    #: The sum of the measure.
    total: int
    #: The number of rows with the late field.
    late: int
    #: The full names of the columns.
    columns: tuple[str, ...]
    #: The current metadata file.
    metadata: str

    @property
    def is_equal(self) -> bool:
        """Whether the table contains every record once, with its values."""
        same = (self.sent.records, self.sent.total, self.sent.late) == (self.rows, self.total, self.late)
        return same and not self.lost and not self.doubled

    def document(self) -> dict[str, Any]:
        """Returns the JSON of the arrival."""
        return {**asdict(self), "columns": list(self.columns), "equal": self.is_equal}


class Lake:
    """The tables of the catalog in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.catalog = folder / "catalog.db"
        self.warehouse = folder / "warehouse"

    def metadata_files(self) -> dict[str, str]:
        """Returns the current metadata file by table; empty before the first table."""
        if not self.catalog.exists():
            return {}
        query = "select table_namespace || '.' || table_name, metadata_location from iceberg_tables"
        try:
            with closing(
                sqlite3.connect(f"{self.catalog.absolute().as_uri()}?mode=ro", uri=True, timeout=5)
            ) as database:
                return dict(database.execute(query).fetchall())
        except sqlite3.OperationalError:
            return {}  # The pipeline is just creating it.

    def columns(self, metadata: str) -> tuple[str, ...]:
        """Returns the full names of the columns, nested ones after their struct."""
        document = json.loads(Path(metadata.removeprefix("file:")).read_text())
        schema = next(s for s in document["schemas"] if s["schema-id"] == document["current-schema-id"])
        return tuple(_names(schema["fields"], ""))

    def compare(self, ledger: Mapping[str, Sent]) -> list[Arrival]:
        """Returns every table compared with what was sent to its topic."""
        files = self.metadata_files()
        return [self._compare(kind, ledger[kind.topic], files.get(kind.table, "")) for kind in KINDS]

    def top_pages(self) -> list[tuple[str, int]]:
        """Returns the result of TOP_PAGES."""
        metadata = self.metadata_files().get("shop.page_views")
        if metadata is None:
            return []
        pages = _open(metadata).scan(selected_fields=("page",)).to_arrow()
        views = pages.group_by("page").aggregate([("page", "count")]).sort_by([("page_count", "descending")])
        return [(row["page"], row["page_count"]) for row in views.slice(0, 5).to_pylist()]

    def newest_minute(self, metadata: str) -> tuple[datetime, int] | None:
        """Returns the newest minute of VIEWS_PER_MINUTE and its page views; None of an empty table.

        Raises: OSError where the pipeline has replaced the files meanwhile.
        """
        minutes = _open(metadata).scan(selected_fields=("minute", "views")).to_arrow().to_pylist()
        newest = max(minutes, key=lambda row: row["minute"], default=None)
        return None if newest is None else (newest["minute"], newest["views"])

    def _compare(self, kind: Kind, sent: Sent, metadata: str) -> Arrival:
        if not metadata:
            return Arrival(kind.table, sent, 0, sent.records, 0, 0, 0, (), "")
        table = _open(metadata)
        has_late = kind.late_field in {field.name for field in table.schema().fields}
        names = (kind.id_field, kind.measure, *((kind.late_field,) if has_late else ()))
        rows = table.scan(selected_fields=names).to_arrow()
        distinct = pc.count_distinct(rows[kind.id_field]).as_py()
        sent_rows = pc.sum(pc.less(rows[kind.id_field], pa.scalar(sent.records))).as_py() or 0
        late = len(rows) - rows[kind.late_field].null_count if has_late else 0
        return Arrival(
            table=kind.table,
            sent=sent,
            rows=len(rows),
            lost=sent.records - min(distinct, sent_rows),
            doubled=len(rows) - distinct,
            total=pc.sum(rows[kind.measure]).as_py() or 0,
            late=late,
            columns=self.columns(metadata),
            metadata=metadata,
        )


def _open(metadata: str) -> Table:
    from pyiceberg.table import StaticTable  # noqa: PLC0415  (half a second, needed at the end only)

    return StaticTable.from_metadata(metadata)


def _names(fields: list[dict[str, Any]], prefix: str) -> list[str]:
    names = []
    for field in fields:
        name, kind = f"{prefix}{field['name']}", field["type"]
        names.append(name)
        if isinstance(kind, dict) and kind["type"] == "struct":
            names += _names(kind["fields"], f"{name}.")
    return names
