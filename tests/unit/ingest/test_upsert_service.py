"""A whole service on the ports in memory: tables whose records replace the row of their key, over restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.ingest.table import RunState, Table
from frazil.spec.models import ValueSpec
from frazil.testing import live_rows
from tests.unit.ingest.test_shaped_service import World


class UpsertWorld(World):
    """One topic of two partitions that a table mirrors."""

    def __init__(self, root: Path, **settings: Any) -> None:
        super().__init__(root, mode="upsert", on_bad_record="dead_letter", **{"format_version": 3, **settings})
        self.source.create("a", 2)

    def tell(self, *changes: tuple[str, dict[str, Any] | None], partition: int = 0) -> Table:
        for key, value in changes:
            text = None if value is None else json.dumps(value).encode()
            self.source.produce("a", partition, text, key=key.encode())
        return self.catch_up()

    def mirror(self) -> list[dict[str, Any]]:
        rows = live_rows(self.catalog, "n.t")
        return sorted(rows, key=lambda row: json.dumps(row, default=str, sort_keys=True))


@pytest.mark.parametrize("version", [2, 3])
def test_the_last_change_of_a_key_is_its_row(tmp_path: Path, version: int) -> None:
    world = UpsertWorld(tmp_path, key_columns=("id",), key=ValueSpec(format="json"), format_version=version)
    world.tell(("1", {"id": 1, "v": "a"}), ("2", {"id": 2, "v": "a"}), ("1", {"id": 1, "v": "b"}))
    assert world.mirror() == [{"id": 1, "v": "b"}, {"id": 2, "v": "a"}]
    world.tell(("1", None), ("3", {"id": 3, "v": "c"}), ("9", None))
    assert world.mirror() == [{"id": 2, "v": "a"}, {"id": 3, "v": "c"}]
    table = world.tell(("2", {"id": 2, "v": "d"}), ("1", {"id": 1, "v": "e"}))
    assert world.mirror() == [{"id": 1, "v": "e"}, {"id": 2, "v": "d"}, {"id": 3, "v": "c"}]
    assert table.run_state is RunState.WAITING
