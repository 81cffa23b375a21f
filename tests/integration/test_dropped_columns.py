"""Upsert tables whose older partition spec names columns that are gone: changes, maintenance, and other readers."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.catalog.iceberg.java import each
from frazil.runtime.jvm import Jvm
from tests.fixtures.slices import sliced
from tests.integration.lakes import KEEN, Lake
from tests.integration.tended import Row, Tended, layout_of

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def lake(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(jvm, tmp_path_factory.mktemp("lake"))


class Changed(Tended):
    """A table that has dropped the columns of its first partition spec."""

    def __init__(self, lake: Lake, words: str, version: int) -> None:
        super().__init__(lake, layout_of(words), version)
        self.rows: dict[int, Row] = {}

    def row(self, number: int) -> Row:
        row = super().row(number)
        columns = {str(field.name()) for field in self.lake.java(self.name).schema().columns()}
        return {name: value for name, value in row.items() if name in columns}

    def drop(self, words: str, *columns: str) -> None:
        """Drops partition fields and columns, as another team does."""
        self.arrange(layout_of(words))
        for column in columns:
            self.lake.java(self.name).updateSchema().deleteColumn(column).commit()

    def in_java(self) -> dict[int, int]:
        """Each row's v by its id, as Iceberg's own reader has them."""
        iceberg = self.lake.jvm.gateway.jvm.org.apache.iceberg
        iterator, found = iceberg.data.IcebergGenerics.read(self.lake.java(self.name)).build().iterator(), []
        while iterator.hasNext():
            record = iterator.next()
            found.append((int(record.getField("id")), int(record.getField("v"))))
        assert len({number for number, _ in found}) == len(found)
        return dict(found)

    def in_spark(self) -> dict[int, int]:
        """The same, as Spark has them."""
        rows: Any = self.lake.spark().sql(f"select id, v from frazil.{self.name}")
        # Through py4j: PySpark's own way leaves a socket open until it is garbage-collected.
        return {int(row.getLong(0)): int(row.getLong(1)) for row in each(rows._jdf.collectAsList())}

    def expected(self) -> dict[int, int]:
        return {number: row["v"] for number, row in self.rows.items()}


_BUCKET, _TRUNCATE = "region; bucket(id, 2)", "region; truncate(name, 2)"


@pytest.mark.parametrize(("version", "words"), sliced([(2, _BUCKET), (3, _TRUNCATE), (2, _TRUNCATE), (3, _BUCKET)], 2))
def test_an_upsert_table_goes_on_and_is_compacted(lake: Lake, version: int, words: str) -> None:
    table = Changed(lake, words, version)
    for _ in range(3):
        table.upsert(table.rows, 40)
    table.drop("bucket(id, 2)" if "bucket" in words else "", "region", "name")
    assert lake.metadata(table.name).files
    for _ in range(3):
        table.upsert(table.rows, 25)
        assert table.in_java() == table.expected()
    assert table.in_spark() == table.expected()
    progress = lake.told(table.name)
    maintenance = lake.table_maintenance
    maintenance.rewrite_deletes(table.name, {"rewrite-all": "true"})
    assert table.in_java() == table.expected()
    outcomes = lake.maintenance(table.name, KEEN.model_copy(update={"statistics": True}))
    assert [(one.action.kind, one.failure) for one in outcomes if one.failure] == []
    assert "compact" in [one.action.kind for one in outcomes]
    maintenance.rewrite_manifests(table.name)
    assert maintenance.orphans(table.name, 2**62) is not None
    assert (table.in_java(), lake.told(table.name)) == (table.expected(), progress)
    for _ in range(2):
        table.upsert(table.rows, 25)
    assert table.in_java() == table.expected()
    assert table.in_spark() == table.expected()
