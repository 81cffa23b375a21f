"""Progress that is read from the rows of a table: the columns that AutoMQ adds, and those that are named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType

from frazil.errors import SpecError, UnavailableError
from frazil.spec import TopicSelector
from frazil.types import DataFile
from frazil.write.plain_target import plain_target
from frazil.write.write import FileWriter
from frazil_migrate.adopt.adopt import Tool
from frazil_migrate.adopt.rows import Columns, parse_columns
from packages.migrate.tests.unit.adopt.scene import TABLE, TOPIC, Scene

METADATA = StructType(
    NestedField(3, "partition", IntegerType()),
    NestedField(4, "offset", LongType()),
    NestedField(5, "timestamp", LongType()),
)
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "_kafka_metadata", METADATA),
    NestedField(6, "source", StringType()),
    NestedField(7, "pos", LongType()),
)


class Filled(Scene):
    """A table whose rows have what AutoMQ adds to them."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.catalog.create(TABLE, SCHEMA, {}, 2)

    def write(self, *rows: dict[str, Any]) -> Sequence[DataFile]:
        """Appends the rows in one file; returns it."""
        state = self.catalog.load(TABLE)
        assert state is not None
        target = plain_target(state)
        writer = FileWriter(target)
        writer.write(pa.Table.from_pylist([*rows], schema=target.arrow_schema))
        files = writer.finish()
        self.catalog.append_foreign(TABLE, tuple(files))
        return files


def row(number: int, partition: int = 0) -> dict[str, Any]:
    """The row that AutoMQ makes of the record at an offset."""
    return {"id": number, "_kafka_metadata": {"partition": partition, "offset": number, "timestamp": 0}}


def test_a_table_of_automq_continues_after_its_newest_rows(tmp_path: Path) -> None:
    scene = Filled(tmp_path)
    scene.write(row(0), row(3))
    scene.write(row(2), row(1), {"id": 99})  # The last one is another writer's.
    planned = scene.plan(Tool.AUTOMQ)
    assert (planned.action, planned.place, planned.offsets, planned.unread) == (
        "adopt", "columns _kafka_metadata.partition,_kafka_metadata.offset", {TOPIC: {0: 4}}, 2,
    )  # fmt: skip
    scene.adopt(Tool.AUTOMQ)
    scene.catch_up()
    assert sorted(one["id"] for one in scene.rows(TABLE)) == [0, 1, 2, 3, 4, 5, 99]


def test_each_partition_continues_after_its_rows_or_begins_with_its_first_record(
    tmp_path: Path,
) -> None:
    scene = Filled(tmp_path)
    scene.source.create(TOPIC, 3)
    scene.feed(TOPIC, *({"id": number} for number in range(6)))
    scene.feed(TOPIC, *({"id": 100 + number} for number in range(4)), partition=1)
    scene.feed(TOPIC, {"id": 200}, partition=2)
    scene.write(row(5), row(1, partition=1))
    scene.write(row(2, partition=1))
    assert scene.adopt(Tool.AUTOMQ).offsets == {TOPIC: {0: 6, 1: 3, 2: 0}}
    scene.catch_up()
    assert sorted(one["id"] for one in scene.rows(TABLE)) == [1, 2, 5, 103, 200]


def test_columns_of_any_tool_can_be_named_also_that_of_the_topic(tmp_path: Path) -> None:
    scene = Filled(tmp_path)
    places = [("other", 0, 5), (TOPIC, 0, 1), (TOPIC, 0, 2)]
    scene.write(*({**row(0, partition), "source": topic, "pos": offset} for topic, partition, offset in places))
    named = Columns("_kafka_metadata.partition", "pos", "source")
    assert scene.adopt(Tool.FLINK, columns=named).offsets == {TOPIC: {0: 3}}


@pytest.mark.parametrize("names", ["id", "a,b,c,d", "a,,b"])
def test_columns_are_two_or_three_names(names: str) -> None:
    with pytest.raises(SpecError, match="does not name the columns") as wrong:
        parse_columns(names)
    assert wrong.value.remedy == "write --columns PARTITION,OFFSET or TOPIC,PARTITION,OFFSET"
    assert parse_columns("part,pos") == Columns("part", "pos")
    assert parse_columns("source, part, pos") == Columns("part", "pos", "source")


def test_a_table_without_such_columns_or_rows_is_refused_until_its_columns_are_named(tmp_path: Path) -> None:
    scene = Filled(tmp_path)
    empty = scene.plan(Tool.AUTOMQ).problem
    assert empty is not None
    assert "no offset of a topic" in empty.message
    scene.write({**row(2), "pos": 4})
    for columns in (Columns("part", "pos"), Columns("_kafka_metadata", "pos"), Columns("pos", "pos", "id")):
        refused = scene.plan(Tool.FLINK, columns=columns).problem
        assert refused is not None
        assert "--columns" in refused.remedy
    assert scene.adopt(Tool.FLINK, columns=Columns("_kafka_metadata.partition", "pos")).offsets == {TOPIC: {0: 5}}


def test_rows_of_several_topics_need_the_column_of_their_topic(tmp_path: Path) -> None:
    scene = Filled(tmp_path)
    scene.settings["topics"] = (TopicSelector(literal="a"), TopicSelector(literal="b"))
    scene.source.create("b")
    scene.write({**row(2), "source": "a"})
    refused = scene.plan(Tool.AUTOMQ).problem
    assert refused is not None
    assert "name its column as well" in refused.remedy
    named = Columns("_kafka_metadata.partition", "_kafka_metadata.offset", "source")
    assert scene.adopt(Tool.AUTOMQ, columns=named).offsets == {"a": {0: 3}, "b": {0: 0}}


def test_a_file_that_cannot_be_read_is_an_outage(tmp_path: Path) -> None:
    scene = Filled(tmp_path)
    for file in scene.write(row(1)):
        Path(file.path.removeprefix("file://")).unlink()
    with pytest.raises(UnavailableError, match="rows of the table cannot be read"):
        scene.plan(Tool.AUTOMQ)
