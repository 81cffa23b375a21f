"""Ids of an upsert table's rows by Spark SQL, PyIceberg and DuckDB: over changes, compactions and an upgrade from
format 2.
"""

from __future__ import annotations

import json

import pytest

from frazil.catalog.layout import Layout
from frazil.runtime.jvm import Jvm
from tests.integration.lakes import Lake
from tests.integration.tended import Row, Tended, in_order, layout_of
from tests.integration.test_upsert_maintenance import compacted

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def lake(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(jvm, tmp_path_factory.mktemp("lake"))


class Lineage:
    """An upsert table whose rows' ids are noted, and by which snapshot each was last changed."""

    def __init__(self, lake: Lake, layout: Layout, version: int = 3) -> None:
        self.table = Tended(lake, layout, version)
        self.upsert_table: dict[int, Row] = {}
        self._ids: dict[int, int] = {}
        self._seen: set[int] = set()

    def change(self, *keys: int, deleted: tuple[int, ...] = ()) -> None:
        """A batch that gives these keys new rows and deletes those; their ids are as they must be."""
        changes: list[tuple[int, Row | None]] = [(key, self.table.row(key)) for key in keys]
        changes += [(key, None) for key in deleted]
        self.table.change(changes)
        self.upsert_table = {key: row for key, row in {**self.upsert_table, **dict(changes)}.items() if row is not None}
        now = self.check()
        number = self.number()
        assert {key for key, (_, updated) in now.items() if updated == number} == set(keys)

    def check(self) -> dict[int, tuple[int, int]]:
        """Rows that stayed have their ids, new ones such as no row had; what Spark reports of each key's row."""
        names = "id, _row_id, _last_updated_sequence_number"
        frame = self.table.lake.spark().sql(f"SELECT {names} FROM frazil.{self.table.name}")
        rows = [json.loads(str(row)) for row in frame._jdf.toJSON().collectAsList()]
        now = {row["id"]: (row["_row_id"], row["_last_updated_sequence_number"]) for row in rows}
        ids = {key: number for key, (number, _) in now.items()}
        assert (len(rows), len(set(ids.values()))) == (len(self.upsert_table), len(self.upsert_table))
        stayed = ids.keys() & self._ids.keys()
        assert {key: ids[key] for key in stayed} == {key: self._ids[key] for key in stayed}
        assert self._seen.isdisjoint(ids[key] for key in ids.keys() - stayed)
        self._ids, self._seen = ids, self._seen.union(ids.values())
        return now

    def number(self) -> int:
        """The newest snapshot's sequence number."""
        return int(self.table.lake.java(self.table.name).currentSnapshot().sequenceNumber())


def test_rows_keep_their_ids_over_changes_and_compactions(lake: Lake) -> None:
    rows = Lineage(lake, layout_of(""))
    rows.change(*range(12))
    for _ in range(2):
        rows.change(1, 4, 30, deleted=(2,))
        rows.change(4, 5, 2, deleted=(30,))
        before = rows.check()
        assert compacted(rows.table).removed >= 2
        assert rows.check() == before
    rows.change(1, 2, 3, 40)
    assert rows.table.read() == in_order(list(rows.upsert_table.values()))


def test_rows_of_a_table_that_was_raised_to_format_3_have_ids_from_then_on(lake: Lake) -> None:
    rows = Lineage(lake, layout_of(""), version=2)
    for key in (1, 2, 3):
        rows.table.change([(key, rows.table.row(key))])
    update = lake.java(rows.table.name).updateProperties()
    update.set("format-version", "3").commit()
    rows.table.change([(3, rows.table.row(3))])
    rows.upsert_table = {key: rows.table.row(key) for key in (1, 2, 3)}
    rows.check()
    for keys in ((1, 3), (2, 7), (1, 2, 3, 7)):
        rows.change(*keys)
