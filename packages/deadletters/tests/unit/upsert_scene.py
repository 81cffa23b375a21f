"""A table whose records replace rows, and the dead letters of it: what a retry asks, and who can tell what came after
them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from frazil.dead_letters.files import ReplayResult, Selection
from frazil.kafka.port import TopicReaders
from frazil.spec.settings import MetadataField, ValueSpec
from frazil_deadletters.replay import Replayer
from frazil_testing.twins import MemoryCatalog, live_rows
from packages.deadletters.tests.unit.scene import DEAD_LETTERS, TABLE, Scene

ALL = Selection()
LARGE = 3_000_000_000
PLACES: dict[MetadataField, str] = {"partition": "_partition", "offset": "_offset"}
KNOWERS = ("columns", "topic", "both")


class Upserted(Scene):
    """An upsert table of topic `a`; `v` is too narrow for large numbers until `cure`. knows: who can tell what
    came after a dead letter: the `columns` of the rows, the `topic`, both or none of them.
    """

    def __init__(self, root: Path, knows: str = "topic", **settings: Any) -> None:
        self.knows = knows
        given: dict[str, Any] = {"mode": "upsert", "key": ValueSpec(format="json"), "key_columns": ("id",)}
        given |= {"format_version": 3, "metadata": PLACES if knows in ("columns", "both") else {}}
        super().__init__(root, {"id": "long", "v": "int", "at": "long"}, **{**given, **settings})

    def tell(self, *changes: tuple[int, int | None], **more: Any) -> Upserted:
        """Changes of rows: key and value, None for a delete; then the pipeline catches up. more: fields of the values."""
        partition = more.pop("partition", 0)
        for key, value in changes:
            row = None if value is None else {"id": key, "v": value, **more}
            self.send(str(key), row, partition)
        self.catch_up()
        return self

    def send(self, key: str | None, value: dict[str, Any] | None, partition: int = 0, headers: Any = ()) -> None:
        """One record."""
        raw = None if value is None else json.dumps(value).encode()
        name = None if key is None else key.encode()
        self.source.produce("a", partition, raw, 1000, key=name, headers=headers)

    def cure(self, **settings: Any) -> Upserted:
        """Makes the column wide enough."""
        self.declare({"id": "long", "v": "long", "at": "long"}, **settings)
        return self

    @property
    def replayer(self) -> Replayer:
        """With the real parts."""
        return self.replayer_on(self.catalog)

    def replayer_on(self, catalog: MemoryCatalog) -> Replayer:
        """The same, on a catalog of one's own."""
        topic_readers = TopicReaders(self.source, self.source) if self.knows in ("topic", "both") else None
        return Replayer(catalog, self.schemas, topic_readers)

    def replay(self, selection: Selection = ALL) -> ReplayResult:
        """One retry."""
        return self.replayer.replay(self.table, selection)

    def upsert_table(self) -> dict[int, int]:
        """The rows: value by key; a key that is there twice is seen."""
        rows = live_rows(self.catalog, TABLE)
        assert len({row["id"] for row in rows}) == len(rows)
        return {row["id"]: row["v"] for row in rows}

    def reasons(self) -> list[str]:
        """Why dead letters have stayed."""
        return sorted(dead_letter["error_class"] for dead_letter in self.dead_letters())

    def check_files(self) -> None:
        """Nothing is left that no snapshot names."""
        snapshots = [snapshot for table in (TABLE, DEAD_LETTERS) for snapshot in self.catalog.ancestors(table)]
        named = {file.path for snapshot in snapshots for file in snapshot.files}
        named |= {file.path for snapshot in snapshots for file in snapshot.deletes}
        there = {str(path) for kind in ("parquet", "puffin") for path in self.root.rglob(f"*.{kind}")}
        assert named == there
