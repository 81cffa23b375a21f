"""An upsert table of a database's table: a whole service on the ports in memory, and what Debezium tells it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from frazil.decode.settings import PLACEHOLDER
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.table import Table
from frazil.schema.evolve import new_schema
from frazil.spec.settings import EnvelopeSpec
from frazil.spec.syntax.types import parse_type
from frazil.types import DataFile
from frazil.write.plain_target import plain_target
from frazil.write.write import FileWriter
from frazil_testing.twins import FakeClock
from tests.unit.upsert.test_upsert_service import JSON_KEYS, UpsertScenario

Row = dict[str, Any]
SourceRecord = tuple[Any, Row | None]
"""The key and the value of a record."""
HEARTBEAT: SourceRecord = (None, {"ts_ms": 1})
MARKS: dict[str, Any] = {"deletes": "soft", "metadata": {"deleted": "_deleted", "deleted_at": "_deleted_at"}}


def settle(service: Service, clock: FakeClock) -> None:
    """Some seconds pass."""
    until_s = clock.monotonic_s() + 5
    while clock.monotonic_s() < until_s:
        service.turn()


class UpsertSource(UpsertScenario):
    """An upsert table of topic `a`, whose records are Debezium's."""

    def __init__(self, root: Path, tasks: int = 1, **settings: Any) -> None:
        given = {"key": JSON_KEYS, "dead_letters": {"stop_above": 1.0}, "envelope": EnvelopeSpec(kind="debezium")}
        super().__init__(root, tasks, **{**given, **settings})

    def dead_letters(self) -> list[tuple[str, str]]:
        return super().dead_letters() if self.catalog.load("n.t__dead_letters") is not None else []

    def exists(self, **columns: str) -> None:
        """The table is there already, made by somebody else, with a row."""
        schema = new_schema((name, parse_type(word)) for name, word in columns.items())
        target = plain_target(self.catalog.create("n.t", schema, {}, 3))
        writer = FileWriter(target)
        writer.write(pa.Table.from_pylist([{"id": 1, "v": "old"}], schema=target.arrow_schema))
        self.catalog.append_foreign("n.t", tuple(writer.finish()))

    def data_files(self, name: str) -> list[DataFile]:
        return self.catalog.data_files(name) if self.catalog.load(name) is not None else []

    def by_id(self) -> list[Row]:
        return sorted(self.upsert_table(), key=lambda row: int(row["id"]))

    def say(self, *records: SourceRecord, partition: int = 0) -> Table:
        for key, value in records:
            self.put(json.dumps(key), value, partition)
        return self.catch_up()


def made(row: Row) -> SourceRecord:
    return {"id": row["id"]}, {"op": "c", "before": None, "after": row}


def changed(row: Row) -> SourceRecord:
    return {"id": row["id"]}, {"op": "u", "before": None, "after": row}


def gone(key: int) -> SourceRecord:
    return {"id": key}, {"op": "d", "before": {"id": key, "v": None}, "after": None}


def tombstone(key: int) -> SourceRecord:
    return {"id": key}, None


def flat(row: Row, op: str = "c") -> SourceRecord:
    return {"id": row["id"]}, {**row, "__op": op}


class Log:
    """A source's log: changes of rows, each at a place of its own, as Debezium tells them. at_ms: their time."""

    def __init__(self, scenario: UpsertSource, at_ms: int = 0) -> None:
        self.scenario = scenario
        self.at_ms = at_ms
        self.lsn = 0

    def write(self, row: Row, partition: int = 0, op: str = "c") -> None:
        self.lsn += 1
        self._tell(row["id"], op, row, partition)

    def remove(self, key: int, partition: int = 0) -> None:
        self.write({"id": key, "v": None, "big": None}, partition, "d")

    def keep(self, key: int, v: str, partition: int = 0) -> None:
        """An update that leaves the large value as it is."""
        self.write({"id": key, "v": v, "big": PLACEHOLDER}, partition, "u")

    def move(self, old: int, new: int, v: str, partitions: tuple[int | None, int | None] = (0, 0)) -> None:
        """An update of the key that leaves the large value as it is; None: that half is not told."""
        self.lsn += 1
        if partitions[0] is not None:
            headers = (("__debezium.newkey", json.dumps({"id": new}).encode()),)
            self._tell(old, "d", {"id": old, "v": None, "big": None}, partitions[0], headers)
            self.send(partitions[0], {"id": old}, None, headers)
        if partitions[1] is not None:
            headers = (("__debezium.oldkey", json.dumps({"id": old}).encode()),)
            self._tell(new, "c", {"id": new, "v": v, "big": PLACEHOLDER}, partitions[1], headers)

    def _tell(self, key: int, op: str, row: Row, partition: int, headers: Any = ()) -> None:
        images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        value = {"op": op, **images, "source": {"connector": "postgresql", "lsn": self.lsn, "ts_ms": self.lsn}}
        self.send(partition, {"id": key}, value, headers)

    def send(self, partition: int, key: Row, value: Row | None, headers: Any) -> None:
        """Writes a record to the topic."""
        text = None if value is None else json.dumps(value).encode()
        name = json.dumps(key).encode()
        self.scenario.source.produce("a", partition, text, self.at_ms, key=name, headers=headers)


def begun(root: Path, tasks: int = 1, **settings: Any) -> tuple[UpsertSource, Log]:
    """A table that has the row 1, and the log in which its changes continue."""
    scenario = UpsertSource(root, tasks, **settings)
    log = Log(scenario)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    scenario.catch_up()
    return scenario, log
