"""Which tables ask the package, and what a task loads of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from frazil.plugins.tables import TABLE_KINDS
from packages.state.tests.unit.merge.merging import Merging

LOADED = """
import sys
from frazil.plugins.tables import TABLE_KINDS
print(sorted(type(TABLE_KINDS.get(name).in_task).__name__ for name in TABLE_KINDS.added()))
print([name for name in ("frazil.spec", "frazil.plugins.driver", "frazil_state.driver") if name in sys.modules])
"""


@pytest.mark.parametrize(
    "settings", ["partition_by: []", "mode: upsert, key_columns: [k]", "mode: upsert, key_columns: [k], merge: latest"]
)
def test_a_table_of_all_rows_or_of_the_latest_of_a_key_asks_no_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str
) -> None:
    monkeypatch.setattr(TABLE_KINDS, "get", lambda name: pytest.fail(f"the kind {name} is asked"))
    tables = Merging(tmp_path, settings)
    tables.tell({"k": 1, "n": 2}, {"k": 1, "n": 3})
    rows = tables.table_rows("k", "n")
    assert rows == ([(1, 3)] if "upsert" in settings else [(1, 2), (1, 3)])


def test_a_task_loads_neither_what_the_driver_asks_nor_what_reads_the_pipeline_file() -> None:
    told = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["['DedupedRecords', 'HistoryRecords', 'MergedRecords']", "[]"]
