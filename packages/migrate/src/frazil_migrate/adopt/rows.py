"""Progress from the rows of a table: columns have the partition and the offset of the record that each row was made of.

A row of an offset is in the table only with those of all earlier offsets of its partition, as every writer that commits
whole ranges of offsets has it: AutoMQ, and Flink at its checkpoints. Rows that are deleted count as long as their data file
is in the table: their records were read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.types import IcebergType, IntegerType, LongType, StringType

from frazil.catalog.port import TableState
from frazil.catalog.scans import LiveFile
from frazil.errors import SpecError, UnavailableError
from frazil.ingest.failures import TableStopped
from frazil.kafka.port import Partition
from frazil.upsert.lookup.live_rows import in_threads, read_columns
from frazil.write.plain_target import plain_target
from frazil.write.target import TableTarget
from frazil_migrate.adopt.offsets import Services, SourceOffsets

_NUMBERS = (IntegerType, LongType)
_REMEDY = "name the columns of the record's partition and offset with --columns, such as part,pos; or give --offsets"


@dataclass(frozen=True)
class Columns:
    """The columns that name the record of a row; a member of a struct has the struct's name and a dot before its own."""

    partition: str
    offset: str
    #: The column of the topic; empty where the table has records of one.
    topic: str = ""

    def __str__(self) -> str:
        return ",".join(filter(None, (self.topic, self.partition, self.offset)))


AUTOMQ = Columns("_kafka_metadata.partition", "_kafka_metadata.offset")
"""What AutoMQ adds to every table."""


def parse_columns(text: str) -> Columns:
    """Returns the columns of `PARTITION,OFFSET` or `TOPIC,PARTITION,OFFSET`.

    Raises: SpecError for another number of names.
    """
    names = [name.strip() for name in text.split(",")]
    if len(names) not in (2, 3) or not all(names):
        raise SpecError(
            f"`{text}` does not name the columns of a record",
            remedy="write --columns PARTITION,OFFSET or TOPIC,PARTITION,OFFSET",
            where="--columns",
        )
    return Columns(names[-2], names[-1], "" if len(names) == 2 else names[0])


def find_progress(
    services: Services, state: TableState, columns: Columns, partitions: Sequence[Partition]
) -> SourceOffsets:
    """Returns the offset after the last record of each partition that has a row in the table.

    Raises: TableStopped where the table does not have the columns; UnavailableError where the store fails.
    """
    topics = {topic for topic, _ in partitions}
    if not columns.topic and len(topics) > 1:
        raise TableStopped(
            f"the table has records of {len(topics)} topics, and the columns do not name the topic",
            "name its column as well, --columns TOPIC,PARTITION,OFFSET; or give --offsets",
            state.name,
        )
    _check(state, columns)
    names = [columns.partition, columns.offset, *filter(None, [columns.topic])]
    paths = [tuple(name.split(".")) for name in names]
    target = plain_target(state)
    newest: dict[Partition, int] = {}
    try:
        for newest_of_file in in_threads(
            lambda file: _newest(target, file, paths), services.catalog.scan(state.name).files
        ):
            for topic, partition, offset in newest_of_file:
                place = (topic or min(topics), partition)
                newest[place] = max(newest.get(place, 0), offset + 1)
    except OSError as error:
        raise UnavailableError(f"the rows of the table cannot be read: {error}", where=state.name) from None
    return SourceOffsets(newest, f"columns {columns}")


def _check(state: TableState, columns: Columns) -> None:
    wanted = {columns.partition: _NUMBERS, columns.offset: _NUMBERS, columns.topic: (StringType,)}
    for name, kinds in wanted.items():
        if name and not isinstance(_type_of(state, name), kinds):
            words = "text" if kinds == (StringType,) else "int or long"
            raise TableStopped(f"the table has no column {name} of type {words}", _REMEDY, state.name)


def _type_of(state: TableState, name: str) -> IcebergType | None:
    try:
        return state.schema.find_type(name)
    except ValueError:
        return None


def _newest(target: TableTarget, file: LiveFile, paths: Sequence[tuple[str, ...]]) -> list[tuple[str, int, int]]:
    """Returns topic, partition and greatest offset of each partition that has rows in a file; the topic is empty where its
    column is not named. Rows of other writers, without an offset, are left out.
    """
    partition, offset, *topic = read_columns(target, file, paths)
    names = ["topic", "partition", "offset"][-len(paths) :]
    rows = pa.table([*topic, partition, offset], names).drop_null()
    newest_rows = rows.group_by(names[:-1]).aggregate([("offset", "max")]).to_pylist()
    return [(row.get("topic", ""), row["partition"], row["offset_max"]) for row in newest_rows]
