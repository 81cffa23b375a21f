"""Tables that another tool has filled with files in ORC or Avro, and that the statement of the remedy has turned to Parquet:
rows appended, replaced and compacted are those of a table whose files are all Parquet, read by Spark and by PyIceberg.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from frazil.clock import SystemClock, new_id
from frazil.decode.settings import Reading
from frazil.errors import SpecError
from frazil.ingest.tasks.task_job import Job
from frazil.maintenance.plan import ORPHANS_NOTE
from frazil.runtime.jvm import Jvm
from frazil.types import Commit, Progress, Writer
from frazil.upsert.commit import commit_changes, transfer_deletes
from frazil.write.file_formats import check_properties
from frazil.write.plain_target import plain_target
from frazil.write.target import ChangeReading, TableTarget
from tests.acceptance.verifier import open_table
from tests.fixtures.readers import rows_of
from tests.fixtures.slices import sliced
from tests.integration.lakes import Lake
from tests.unit.ingest.targets import records_of, run

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

Row = dict[str, Any]
BY_ID = ChangeReading(Reading("json"), ("id",))
_COLUMNS = """id bigint, i int, f float, x double, b boolean, s string, d decimal(20, 2), day date, at timestamp,
local timestamp_ntz, raw binary, l array<struct<k: string, at: timestamp_ntz>>, m map<string, array<bigint>>,
deep struct<a: struct<z: decimal(20, 2), m: map<string, date>>>"""


@pytest.fixture(scope="module")
def lake(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(jvm, tmp_path_factory.mktemp("lake"))


class Adopted:
    """A table that Spark has made and filled, and that Frazil changes."""

    def __init__(self, lake: Lake, file_format: str, version: int) -> None:
        self.lake = lake
        self.version = version
        self.name = f"t.adopted_{new_id()[:8]}"
        self.read_records = 0
        properties = {
            "write.format.default": file_format, "format-version": str(version),
            "write.delete.mode": "merge-on-read", "write.metadata.delete-after-commit.enabled": "true",
        }  # fmt: skip
        words = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        self.sql("CREATE NAMESPACE IF NOT EXISTS frazil.t")
        self.sql(f"CREATE TABLE frazil.{self.name} ({_COLUMNS}) USING iceberg TBLPROPERTIES ({words})")
        rows = (json.dumps(row(number, "spark")) for number in range(8))
        values = ", ".join(f"('{text}')" for text in rows)
        read = f"SELECT /*+ COALESCE(1) */ from_json(j, '{_COLUMNS}') AS r FROM VALUES {values} AS v(j)"
        self.sql(f"INSERT INTO frazil.{self.name} SELECT r.* FROM ({read})")
        self.sql(f"DELETE FROM frazil.{self.name} WHERE id = 3")
        if file_format != "parquet":
            self._follow_remedy()
        lake.table_maintenance.note(self.name, ORPHANS_NOTE, str(SystemClock().now_ms()))

    def _follow_remedy(self) -> None:
        """Runs the statement with which the table is refused."""
        state = self.lake.catalog.load(self.name)
        assert state is not None
        with pytest.raises(SpecError, match="which Frazil does not write") as refused:
            check_properties(state.properties, self.name)
        statement = refused.value.remedy.split("`")[1]
        self.sql(statement.replace(self.name, f"frazil.{self.name}"))

    def sql(self, statement: str) -> list[str]:
        """The rows of the answer as JSON, in order."""
        return sorted(str(text) for text in self.lake.spark().sql(statement)._jdf.toJSON().collectAsList())

    def target(self) -> TableTarget:
        """As a task has it."""
        state = self.lake.catalog.load(self.name)
        assert state is not None
        return plain_target(state)

    def append(self, numbers: range) -> None:
        """One batch of rows that only come."""
        (report,) = run(Job({"topic": self.target()}), self._records({n: row(n, "appended") for n in numbers})).values()
        self.lake.catalog.commit(self._next(report.written.data))

    def change(self, changes: dict[int, Row | None]) -> None:
        """One batch that replaces the rows with these ids; None deletes."""
        target = replace(self.target(), changes=BY_ID)
        (report,) = run(Job({"topic": target}), self._records(changes)).values()
        state = self.lake.catalog.load(self.name)
        assert state is not None
        commit_changes(self.lake.catalog, target, state, report, self._next(report.written.data))

    def _records(self, changes: dict[int, Row | None]) -> Any:
        self.read_records += len(changes)
        texts = (None if row is None else json.dumps(row).encode() for row in changes.values())
        return records_of(
            [
                {"offset": self.read_records + n, "key": str(key).encode(), "value": text}
                for n, (key, text) in enumerate(zip(changes, texts, strict=True))
            ]
        )

    def _next(self, files: Any) -> Commit:
        state = self.lake.catalog.load(self.name)
        assert state is not None
        progress = Progress({"topic": {0: self.read_records}}, {"topic": "id"}, "c", new_id(), Writer(1, "run"))
        return Commit(self.name, tuple(files), progress, state.progress)

    def compact(self) -> None:
        """Files become one."""
        target = replace(self.target(), changes=BY_ID)
        outcomes = self.lake.maintenance(self.name, transfer=partial(transfer_deletes, target, self.version))
        assert [one.failure for one in outcomes if one.action.kind == "compact"] == [""]

    def formats(self) -> dict[str, int]:
        """How many data files there are of each format."""
        found = self.sql(f"SELECT file_format, count(*) AS n FROM frazil.{self.name}.data_files GROUP BY 1")
        return {one["file_format"].lower(): one["n"] for one in map(json.loads, found)}

    def rows(self) -> list[str]:
        """Every row by Spark."""
        micros = (
            "cast(at AS string) AS at_us, cast(local AS string) AS local_us"  # JSON of times ends with milliseconds.
        )
        return self.sql(f"SELECT *, {micros} FROM frazil.{self.name}")

    def lineage(self) -> list[str]:
        """The row id of every row, and the snapshot that has changed it last; none in format version 2."""
        columns = "id, _row_id, _last_updated_sequence_number"
        return self.sql(f"SELECT {columns} FROM frazil.{self.name}") if self.version == 3 else []

    def rows_by_pyiceberg(self) -> Any:
        """Some columns of every row."""
        java = self.lake.java(self.name)
        metadata = Path(str(java.operations().current().metadataFileLocation()).removeprefix("file:"))
        schema = self.target().schema.select("id", "i", "f", "x", "b", "s", "d", "day", "raw", "m", "deep")
        found = open_table(metadata).scan(selected_fields=tuple(schema.column_names)).to_arrow()
        return rows_of(found, schema)


def row(number: int, writer: str) -> Row:
    """Values of every type of Spark's; nulls at every level."""
    if number % 4 == 2:
        return {"id": number, "s": writer}
    day = f"-03-{number % 9 + 1:02}"
    return {
        "id": number, "i": -number, "f": number / 2, "x": number / 3, "b": number % 3 == 0, "s": f"é {writer}",
        "d": f"{10**15 + number}.25", "day": f"{1500 + 20 * number}{day}", "at": f"2065{day}T00:00:00.000001Z",
        "local": f"2026{day}T12:00:00.123456", "raw": "AP8=", "m": {"k": [1, None, number], "e": []},
        "l": [{"k": "a", "at": f"2026{day}T00:00:00.5"}, {"k": None, "at": None}],
        "deep": {"a": {"z": "-0.25", "m": {"x": "2026-01-31"}} if number % 3 else None},
    }  # fmt: skip


class History(NamedTuple):
    """What a table held after each step of one history."""

    rows: list[list[str]]
    lineage: list[list[str]]
    #: After the last step by PyIceberg.
    by_pyiceberg: Any


def history_of(lake: Lake, file_format: str, version: int) -> History:
    table = Adopted(lake, file_format, version)
    found: list[list[str]] = []
    lineage: list[list[str]] = []

    def note() -> None:
        found.append(table.rows())
        lineage.append(table.lineage())

    table.append(range(20, 24))
    note()
    assert table.formats() == ({"parquet": 2} if file_format == "parquet" else {"parquet": 1, file_format: 1})
    for changes in (
        {1: row(1, "changed"), 30: row(30, "new"), 20: None, 4: None},
        {1: row(1, "again"), 2: row(2, "x")},
    ):
        table.change(dict(changes))
        note()
    table.compact()
    assert table.formats() == {"parquet": 1}
    assert (table.rows(), table.lineage()) == (found[-1], lineage[-1])
    table.change({1: None, 5: row(5, "late")})
    note()
    return History(found, lineage, table.rows_by_pyiceberg())


@pytest.fixture(scope="module")
def expected(lake: Lake) -> History:
    found = history_of(lake, "parquet", 3)
    assert [len(rows) for rows in found.rows] == [11, 10, 10, 9]
    return found


@pytest.mark.parametrize(("file_format", "version"), sliced([("orc", 3), ("avro", 2), ("orc", 2), ("avro", 3)], 2))
def test_a_table_holds_what_a_parquet_table_holds(
    lake: Lake, expected: History, file_format: str, version: int
) -> None:
    found = history_of(lake, file_format, version)
    assert found.rows == expected.rows
    assert version == 2 or found.lineage == expected.lineage
    assert found.by_pyiceberg == expected.by_pyiceberg
