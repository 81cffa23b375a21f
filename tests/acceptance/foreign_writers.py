"""Other writers of tables on a REST catalog: Spark SQL with Iceberg's procedures, and PyIceberg, by clients of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table as PyTable
from pyiceberg.types import StringType

from tests.fixtures.foreign_spark import ForeignSpark
from tests.fixtures.waiting import wait_until

Row = dict[str, Any]
LAKE = "shared"
"""The catalog's name in Spark."""


class ForeignWriter(Protocol):
    """Another writer of a table."""

    def append(self, table: str, rows: list[Row]) -> None:
        """Adds rows of its own."""

    def delete(self, table: str, where: str) -> None:
        """Deletes these rows."""

    def overwrite(self, table: str, where: str, text: str) -> None:
        """Puts another text into these rows."""

    def add(self, table: str, column: str) -> None:
        """Adds a column of text."""

    def rename(self, table: str, column: str, name: str) -> None:
        """Renames a column."""

    def drop(self, table: str, column: str) -> None:
        """Drops a column."""


class SparkWriter:
    """Spark SQL."""

    def __init__(self, spark: ForeignSpark, url: str) -> None:
        self._spark = spark
        spark.add_catalog(LAKE, {"type": "rest", "uri": url, "cache-enabled": "false"})

    def sql(self, statement: str) -> list[Row]:
        """Until nobody else was quicker; what it answers."""
        answer: list[Row] = []
        wait_until(lambda: self._is_done(statement, answer), statement)
        return answer

    def call(self, procedure: str, table: str, **words: str) -> Row:
        """One of Iceberg's own procedures, until nobody else was quicker; what it reports it has done."""
        told = ", ".join(f"{name} => {word}" for name, word in {"table": f"'{table}'", **words}.items())
        [done] = self.sql(f"call {LAKE}.system.{procedure}({told})")
        return done

    def _is_done(self, statement: str, answer: list[Row]) -> bool:
        try:
            answer[:] = self._spark.sql(statement)
        except AssertionError as error:
            if "CommitFailed" not in str(error) and "ValidationException" not in str(error):
                raise
            return False
        return True

    def append(self, table: str, rows: list[Row]) -> None:
        values = ", ".join(f"({row['id']}, '{row['text']}')" for row in rows)
        self.sql(f"insert into {LAKE}.{table} (id, text) values {values}")

    def delete(self, table: str, where: str) -> None:
        self.sql(f"delete from {LAKE}.{table} where {where}")

    def overwrite(self, table: str, where: str, text: str) -> None:
        self.sql(f"update {LAKE}.{table} set text = '{text}' where {where}")

    def add(self, table: str, column: str) -> None:
        self.sql(f"alter table {LAKE}.{table} add column {column} string")

    def rename(self, table: str, column: str, name: str) -> None:
        self.sql(f"alter table {LAKE}.{table} rename column {column} to {name}")

    def drop(self, table: str, column: str) -> None:
        self.sql(f"alter table {LAKE}.{table} drop column {column}")


class PyIcebergWriter:
    """PyIceberg, which gives up at the first commit of another and is told to try again."""

    def __init__(self, url: str) -> None:
        self._catalog = RestCatalog("other", uri=url)

    def _insist(self, table: str, work: Callable[[PyTable], object]) -> None:
        def is_done() -> bool:
            try:
                work(self._catalog.load_table(table))
            except CommitFailedException:
                return False
            return True

        wait_until(is_done, f"PyIceberg has changed {table}")

    def append(self, table: str, rows: list[Row]) -> None:
        columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
        self._insist(table, lambda loaded: loaded.append(pa.Table.from_pylist(rows, columns)))

    def delete(self, table: str, where: str) -> None:
        self._insist(table, lambda loaded: loaded.delete(where))

    def overwrite(self, table: str, where: str, text: str) -> None:
        def work(loaded: PyTable) -> None:
            rows = loaded.scan(row_filter=where).to_arrow()
            at = rows.schema.get_field_index("text")
            texts = pa.array([text] * len(rows), rows.schema.field(at).type)
            loaded.overwrite(rows.set_column(at, rows.schema.field(at), texts), overwrite_filter=where)

        self._insist(table, work)

    def add(self, table: str, column: str) -> None:
        self._insist(table, lambda loaded: loaded.update_schema().add_column(column, StringType()).commit())

    def rename(self, table: str, column: str, name: str) -> None:
        self._insist(table, lambda loaded: loaded.update_schema().rename_column(column, name).commit())

    def drop(self, table: str, column: str) -> None:
        self._insist(table, lambda loaded: loaded.update_schema().delete_column(column).commit())
