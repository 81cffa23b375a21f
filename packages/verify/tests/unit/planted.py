"""Tables that Frazil fills on twins in memory, the judge over them, and faults that are planted in what it reads of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from frazil.ingest.tables.table import Table
from frazil.kafka.port import ReadRecord
from frazil.types import OffsetRange
from frazil.write.plain_target import plain_target
from frazil_verify.independent.judge import Judge, Judgement
from frazil_verify.independent.parts import Keeper
from frazil_verify.independent.topic import Range, Record
from frazil_verify.registered import schemas_in
from frazil_verify.settings import rules_of
from tests.simulation.judge.loop import TABLE, TOPIC, Loop, Sent, rows_of

Row = dict[str, Any]
Fault = Callable[[list[Row]], Any]
"""Changes rows; returns what the finding must name: an offset, or None where rows name no offset."""


@dataclass
class MemoryRows:
    """Rows in place of those that PyIceberg reads."""

    rows: list[Row]
    schema: pa.Schema
    unreadable: dict[str, str] = field(default_factory=dict)

    def parts(self, names: Sequence[str] | None = None) -> Iterator[tuple[str, Iterator[pa.RecordBatch]]]:
        """See StoredRows."""
        yield "rows", self.batches(names)

    def is_unreadable(self, _: str) -> bool:
        """See StoredRows."""
        return False

    def batches(self, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """See StoredRows."""
        fields = [column for column in self.schema if names is None or column.name in names]
        for start in range(0, len(self.rows), 7):
            some = self.rows[start : start + 7]
            columns = [pa.array([row.get(column.name) for row in some], column.type) for column in fields]
            yield pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


@dataclass
class Filled:
    """A table that a pipeline has filled, and its topic."""

    loop: Loop
    sent: list[Sent] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        root: Path,
        settings: Mapping[str, Any],
        sent: Sequence[Sent],
        partitions: int = 1,
        schema: tuple[str, str] | None = None,
    ) -> Filled:
        """Produces the records and runs the pipeline. schema: the kind and the text of the schema of values, whose id is
        put before them.
        """
        filled = cls(Loop(root, settings, partitions), list(sent))
        if schema is not None:
            head = b"\0" + filled.loop.register(*schema).to_bytes(4) + (b"\0" if schema[0] == "protobuf" else b"")
            sent = [of if of.value is None else replace(of, value=head + of.value) for of in sent]
        filled.loop.produce(sent)
        filled.loop.run(50)
        return filled

    def rows(self) -> list[Row]:
        """The rows of the table's files, without deleted ones."""
        catalog = self.loop.catalog
        rows = []
        for file in catalog.scan(TABLE).files:
            gone = {
                row["pos"] for delete in file.deletes for row in rows_of(delete.path) if row["file_path"] == file.path
            }
            rows += list(rows_of(file.path, frozenset(gone)))
        return rows

    def judge(
        self, rows: list[Row] | None = None, part: tuple[int, int] | None = None, keeper: Keeper | None = None
    ) -> Judgement:
        """The judgement on the table, or on other rows in its place. part: of the offsets of each partition."""
        table = Table(self.loop.spec.tables[0])
        table.state = state = self.loop.catalog.load(TABLE)
        assert state is not None
        schema = plain_target(state).arrow_schema
        rules = rules_of(table, state, schema, *schemas_in(self.loop.registry, table, is_foreign=False))
        ranges = [Range(TOPIC, number, 0, end) for number, end in state.progress.offsets[TOPIC].items()]
        stored: Any = MemoryRows(self.rows() if rows is None else rows, schema)
        parts = ranges if part is None else [replace(of, start=part[0], end=part[1]) for of in ranges]
        read_ranges = [replace(of, start=of_part.start) for of, of_part in zip(ranges, parts, strict=True)]
        of_keys = read_ranges if rules.key_columns else None
        judge = Judge(rules, stored, self._read, parts, lambda _: None, of_keys, keeper)
        return judge.run(is_bounded=part is not None)

    def _read(self, ranges: Sequence[Range]) -> Iterator[list[Record]]:
        for wanted in ranges:
            offsets = OffsetRange(wanted.topic, wanted.partition, wanted.start, wanted.end)
            records, _ = self.loop.source.read([offsets], 2**40)
            if records:
                yield [_record(record) for record in records]


def _record(record: ReadRecord) -> Record:
    return Record(
        record.topic,
        record.partition,
        record.offset,
        record.value,
        record.key,
        record.timestamp_ms,
        tuple(record.headers),
    )


def value_at(rows: list[Row], index: int, name: str, value: Any) -> int | None:
    """Gives a row another value; returns the offset that the row names."""
    assert rows[index].get(name) != value
    rows[index][name] = value
    return rows[index].get("_offset")


def _repeat(rows: list[Row], some: list[Row]) -> int | None:
    rows.extend([dict(row) for row in some])
    return some[0].get("_offset")


def _invent(rows: list[Row]) -> int | None:
    has_places = "_offset" in rows[0]
    rows.append({**rows[0], "id": 10**6, **({"_offset": 10**6} if has_places else {})})
    return 10**6 if has_places else None


def _swap_columns(row: Row) -> int | None:
    row["n"], row["id"] = row["id"], row["n"]
    return row.get("_offset")


def _swap_values(row: Row, other: Row) -> int | None:
    row["name"], other["name"] = other["name"], row["name"]
    return row.get("_offset")


FAULTS: Mapping[str, Fault] = {
    "missing row": lambda rows: rows.pop(3).get("_offset"),
    "missing rows of a file": lambda rows: next(iter([rows.pop(5) for _ in range(4)])).get("_offset"),
    "doubled row": lambda rows: _repeat(rows, rows[2:3]),
    "doubled file": lambda rows: _repeat(rows, rows[:6]),
    "last digit": lambda rows: value_at(rows, 4, "n", rows[4]["n"] + 1),
    "last digit of a fraction": lambda rows: value_at(rows, 4, "x", rows[4]["x"] + 2**-40),
    "cut text": lambda rows: value_at(rows, 6, "name", rows[6]["name"][:-1]),
    "value gone": lambda rows: value_at(rows, 7, "name", None),
    "swapped columns": lambda rows: _swap_columns(rows[8]),
    "swapped rows": lambda rows: _swap_values(rows[1], rows[9]),
    "wrong zone": lambda rows: value_at(rows, 5, "at", rows[5]["at"].replace(hour=(rows[5]["at"].hour + 2) % 24)),
    "invented row": _invent,
    "negated flag": lambda rows: value_at(rows, 2, "ok", not rows[2]["ok"]),
    "old row restored": lambda rows: value_at(rows, 10, "n", -1),
}
