"""The query of docs/guides/cdc.md for the state of a table at some time, run over a changelog."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.upsert.upsert_source import SourceRecord, UpsertSource

_PAGE = Path(__file__).parents[3] / "docs" / "guides" / "cdc.md"
_DAY_MS = 1_795_219_200_000  # 2026-11-21


def _query(at: str) -> str:
    found = re.search(r"^with changes as .*?;$", _PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None
    query, count = re.subn(r"<= '[^']*'", f"<= '{at}'", found.group())
    assert count == 1
    return query


def _reported(hour: int, op: str, key: int | None, v: str | None, lsn: int) -> SourceRecord:
    row = None if key is None else {"id": key, "v": v}
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    source = {"connector": "postgresql", "lsn": lsn, "ts_ms": _DAY_MS + hour * 3_600_000}
    return None if key is None else {"id": key}, {"op": op, **images, "source": source}


@pytest.mark.parametrize(
    ("at", "rows"),
    [
        ("2026-11-21 00:30:00", []),
        ("2026-11-21 02:30:00", [(1, "a"), (2, "a")]),
        ("2026-11-21 03:30:00", [(1, "old"), (2, "old")]),
        ("2026-11-21 04:30:00", [(1, "new")]),
        ("2026-11-21 05:30:00", []),
        ("2026-11-21 06:30:00", [(2, "again")]),
    ],
)
def test_what_a_table_was_is_told_by_its_changelog(tmp_path: Path, at: str, rows: list[tuple[int, str]]) -> None:
    metadata = {name: f"_{name}" for name in ("op", "image", "source_ts", "partition", "offset", "position")}
    scenario = UpsertSource(tmp_path, mode="append", changelog=True, metadata=metadata)
    scenario.say(_reported(1, "c", 1, "a", 10), _reported(2, "c", 2, "a", 11))
    # A snapshot reads both rows while a transaction is open that has changed them.
    scenario.say(_reported(3, "r", 1, "old", 30), _reported(3, "r", 2, "old", 30))
    scenario.say(_reported(4, "u", 1, "new", 20), _reported(4, "d", 2, None, 21))
    scenario.say(_reported(5, "t", None, None, 40), partition=1)
    scenario.say(_reported(6, "c", 2, "again", 50))
    with closing(sqlite3.connect(":memory:")) as lake:
        lake.execute("attach ':memory:' as shop")
        lake.execute("create table shop.orders_history (id, v, _op, _image, _source_ts, _offset, _position)")
        for row in scenario.upsert_table():
            values = (row["id"], row["v"], row["_op"], row["_image"], f"{row['_source_ts']:%F %T}")
            lake.execute(
                "insert into shop.orders_history values (?, ?, ?, ?, ?, ?, ?)",
                (*values, row["_offset"], row["_position"]),
            )
        assert sorted(row[:2] for row in lake.execute(_query(at))) == rows
