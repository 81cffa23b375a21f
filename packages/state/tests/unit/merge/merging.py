"""A topic, and a table whose rows are merged as a pipeline file says; every catch-up is a process of its own."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from frazil.ingest.tables.table import Table
from frazil.spec import load_spec
from frazil_testing.twins import MemoryJobs, live_rows
from tests.unit.rows.test_shaped_service import Scenario

_HEAD = 'pipeline: p\nkafka: {bootstrap.servers: "localhost:9092"}\n'


class Merging(Scenario):
    """The topic `a` feeds `n.t`. settings: of the table, as the file has them. tasks: how many a batch is read by."""

    def __init__(self, root: Path, settings: str, *, partitions: int = 1, tasks: int = 1) -> None:
        super().__init__(root)
        root.mkdir(exist_ok=True)
        path = root / "pipeline.yaml"
        path.write_text(f"{_HEAD}tables:\n  n.t: {{topic: a, {settings}}}\n")
        table = load_spec(path, {}).tables[0]
        self.spec = self.spec.model_copy(update={"tables": (table,)})
        for _ in range(partitions - 1):
            self.source.by_name["a"].partitions.append([])
        self.jobs = MemoryJobs(self.source, batch_size=1000 if tasks == 1 else 3, tasks=tasks)

    def put(self, value: Any, *, key: Any = None, partition: int = 0, at_ms: int | None = None) -> None:
        """Produces one record. value, key: as JSON; None: the record has none."""
        texts = [None if part is None else json.dumps(part).encode() for part in (value, key)]
        self.source.produce("a", partition, texts[0], at_ms or 1_700_000_000_000, key=texts[1])

    def tell(self, *values: Any) -> Table:
        """Produces records and lets a process read them."""
        for value in values:
            self.put(value)
        return self.catch_up()

    def table_rows(self, *names: str) -> list[tuple[Any, ...]]:
        """The values of these columns in the table, sorted."""
        rows = live_rows(self.catalog, "n.t")
        return sorted(tuple(row[name] for name in names) for row in rows)

    def table_rows_unsorted(self, *names: str) -> list[tuple[Any, ...]]:
        """The same in any order, where values may be null."""
        return [tuple(row[name] for name in names) for row in live_rows(self.catalog, "n.t")]


def decimal(text: str) -> Decimal:
    """A decimal number, exactly."""
    return Decimal(text)
