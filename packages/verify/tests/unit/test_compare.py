"""The rows that records make, compared with the rows of files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import TruncateTransform
from pyiceberg.types import DecimalType, LongType, NestedField, StringType, TimestamptzType

from frazil.catalog.scans import LiveFile
from frazil.decode.settings import Reading
from frazil.kafka.port import Partition, ReadRecord
from frazil.types import OffsetRange
from frazil.write.target import ChangeReading, TableFiles, TableTarget
from frazil.write.write import FileWriter
from frazil_replay.snapshots import ChangeType, FileRows
from frazil_verify.compare import Change, Compared, Piece, compare

SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "name", StringType()), NestedField(3, "at", TimestamptzType())
)
AT_US = 1_700_000_000_000_000
Row = tuple[int, str]


class Records:
    """Reads records from memory, a few at a time."""

    def __init__(self, values: Sequence[bytes | None]) -> None:
        self._records = [ReadRecord("t", 0, offset, value, 0) for offset, value in enumerate(values)]

    def read(self, ranges: Iterable[OffsetRange], enough_bytes: int) -> tuple[list[ReadRecord], dict[Partition, int]]:
        del enough_bytes
        [wanted] = ranges
        end = min(wanted.end, wanted.start + 3)
        return self._records[wanted.start : end], {("t", 0): end}


def record(number: int, name: str) -> bytes:
    return json.dumps({"id": number, "name": name, "at": "2023-11-14T22:13:20Z"}).encode()


def target(folder: Path, **more: Any) -> TableTarget:
    reading = Reading(format="json", on_bad="dead_letter", unknown_fields="drop")
    files = TableFiles((folder / "table").as_uri(), target_file_size_bytes=2**20)
    return TableTarget("a.b", SCHEMA.model_dump_json(), files, reading, **more)


def file(of: TableTarget, rows: Sequence[Row], change: ChangeType = "INSERT") -> FileRows:
    """A file of the table."""
    writer = FileWriter(of)
    columns = [pa.array([row[number] for row in rows]) for number in range(2)]
    times = pa.array([AT_US] * len(rows), pa.timestamp("us", tz="UTC"))
    writer.write(pa.Table.from_arrays([*columns, times], schema=of.arrow_schema))
    [made] = writer.finish()
    return FileRows(LiveFile(made.path, made.record_count, made.content), change)


def compared(of: TableTarget, values: Sequence[bytes | None], own: Sequence[FileRows], *others: FileRows) -> Compared:
    ranges = (OffsetRange("t", 0, 0, len(values)),) if values else ()
    return compare(Piece(of, (Change(ranges, tuple(own), others),)), Records(values).read)


ROWS = [(number, f"n{number}") for number in range(5)]
VALUES = [record(*row) for row in ROWS]


def test_a_commit_with_the_rows_of_its_records_is_equal_and_bad_records_make_none(tmp_path: Path) -> None:
    table = target(tmp_path)
    assert compared(table, [*VALUES, b"{"], [file(table, ROWS)]) == Compared("a.b", 1, 6)


def test_records_without_a_partition_make_no_row(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "v", DecimalType(4, 2)))
    spec = PartitionSpec(PartitionField(1, 1000, TruncateTransform(10), "v_trunc_10"))
    table = replace(target(tmp_path), schema_json=schema.model_dump_json())
    table = replace(table, files=replace(table.files, partition_spec=spec.model_dump_json()))
    writer = FileWriter(table)
    writer.write(pa.Table.from_pydict({"v": [Decimal("1.50")]}, schema=table.arrow_schema))
    (made,) = writer.finish()
    rows = FileRows(LiveFile(made.path, made.record_count, made.content), "INSERT")
    assert compared(table, [b'{"v": -99.99}', b'{"v": 1.5}'], [rows]) == Compared("a.b", 1, 2)


@pytest.mark.parametrize(
    ("rows", "missing", "surplus"),
    [(ROWS[1:], 1, 0), ([*ROWS, ROWS[0]], 0, 1), ([*ROWS[1:], (0, "changed")], 1, 1)],
    ids=["lost", "doubled", "changed"],
)
def test_a_lost_a_doubled_and_a_changed_row_are_found(
    tmp_path: Path, rows: list[Row], missing: int, surplus: int
) -> None:
    table = target(tmp_path)
    assert compared(table, VALUES, [file(table, rows)]) == Compared("a.b", 1, 5, missing, surplus)


def test_what_another_writer_deletes_or_inserts_counts_and_a_rewritten_file_does_not(tmp_path: Path) -> None:
    table = target(tmp_path)
    assert compared(table, [], [], file(table, ROWS[:1], "DELETE")) == Compared("a.b", 1, 0, 1, 0)
    rewritten = file(table, ROWS, "DELETE"), file(table, [*ROWS[1:], (0, "changed")])
    assert compared(table, [], [], *rewritten) == Compared("a.b", 1, 0, 1, 1)


def test_of_an_upsert_table_the_last_change_of_each_key_counts(tmp_path: Path) -> None:
    table = target(tmp_path, changes=ChangeReading(Reading(format="json"), ("id",), False))
    values = [*VALUES, record(1, "again")]
    last = [ROWS[0], *ROWS[2:], (1, "again")]
    replaced = file(table, [(1, "before"), (3, "before")], "DELETE")
    assert compared(table, values, [replaced, file(table, last)]) == Compared("a.b", 1, 6)
    assert compared(table, values, [file(table, ROWS)]) == Compared("a.b", 1, 6, 1, 1)
    stray = file(table, [(77, "another")], "DELETE")
    assert compared(table, values, [file(table, last), stray]) == Compared("a.b", 1, 6, 1, 0)


def test_records_that_the_topic_has_lost_since_are_no_difference(tmp_path: Path) -> None:
    table = target(tmp_path)
    change = Change((OffsetRange("t", 0, 0, 5),), (file(table, [*ROWS, (5, "gone")]),), (), 6)
    found = compare(Piece(table, (change,)), Records(VALUES).read)
    assert (found.commits, found.reasons) == (0, ("Kafka has deleted some records of the commits",))


def test_records_that_need_other_columns_are_not_compared(tmp_path: Path) -> None:
    table = target(tmp_path)
    reading = Reading(format="json", unknown_fields="add")
    found = compared(
        TableTarget("a.b", table.schema_json, table.files, reading),
        [json.dumps({"id": 1, "more": 2}).encode()],
        [],
    )
    assert (found.commits, found.reasons) == (0, ("the columns or the schemas are others than those of the commit",))
