"""Upsert tables whose keys are of Debezium's types: a number or a text in a key means what its schema reports."""

from __future__ import annotations

import base64
import io
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pytest

from frazil.decode.settings import PLACEHOLDER
from frazil.spec.settings import ColumnSpec, ValueSpec
from frazil.spec.syntax.types import parse_type
from tests.unit.upsert.upsert_source import UpsertSource

Row = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A type of keys: Connect's and its name, two values as they are written, and the first as a header tells it."""

    connect: str
    name: str
    values: tuple[Any, Any]
    told: Any
    parameters: tuple[tuple[str, str], ...] = ()

    @property
    def schema(self) -> Row:
        return {"type": self.connect, "name": self.name or None, "parameters": dict(self.parameters), "optional": False}


def _bytes(number: int) -> str:
    return base64.b64encode(number.to_bytes(2, "big", signed=True)).decode()


KINDS = [
    Kind("int32", "io.debezium.time.Date", (20_000, 20_001), 20_000),
    Kind("int32", "io.debezium.time.Date", (2_932_896, 20_001), 2_932_896),
    Kind("int64", "io.debezium.time.MicroTime", (3_600_000_000, 5), 3_600_000_000),
    Kind("int64", "io.debezium.time.Timestamp", (1_700_000_000_123, 5), 1_700_000_000_123),
    Kind("int64", "io.debezium.time.MicroTimestamp", (1_700_000_000_123_456, 5), 1_700_000_000_123_456),
    Kind("string", "io.debezium.time.ZonedTimestamp", ("2024-01-02T03:04:05.6Z", "2024-01-02T00:00:00Z"),
         "2024-01-02T03:04:05.6Z"),
    Kind("bytes", "org.apache.kafka.connect.data.Decimal", (_bytes(1234), _bytes(-5)), 12.34,
         (("scale", "2"), ("connect.decimal.precision", "6"))),
    Kind("bytes", "", (_bytes(1234), _bytes(-5)), _bytes(1234)),
    Kind("string", "io.debezium.data.Uuid", ("6b1f2d3c-0000-4000-8000-000000000001", "6b1f2d3c-0000-4000-8000-000000000002"),
         "6b1f2d3c-0000-4000-8000-000000000001"),
]  # fmt: skip
KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name.rpartition(".")[2] or kind.connect)


class TypedScenario(UpsertSource):
    """An upsert table of rows with a key of this type. Every message carries its schema."""

    def __init__(self, root: Path, kind: Kind) -> None:
        super().__init__(root)
        self.kind = kind
        self.lsn = 0

    def change(self, op: str, key: int, partition: int = 0, headers: Row | None = None, **row: Any) -> None:
        self.lsn += 0 if headers else 1
        image = {"id": self.kind.values[key], "v": None, "big": None, **row}
        images = {"before": image if op == "d" else None, "after": None if op == "d" else image}
        self._send(partition, key, {"op": op, **images, "source": {"lsn": self.lsn}}, headers or {})

    def forget(self, key: int) -> None:
        self._send(0, key, None, {})

    def shown(self) -> list[Any]:
        return sorted((row["v"], row["big"]) for row in self.upsert_table())

    def _send(self, partition: int, key: int, value: Row | None, headers: Row) -> None:
        found = {name: json.dumps(told).encode() for name, told in headers.items()}
        self.source.produce("a", partition, self._value(value), key=self._key(key), headers=tuple(found.items()))

    def _key(self, key: int) -> bytes:
        schema = {"type": "struct", "fields": [{"field": "id", **self.kind.schema}]}
        return json.dumps({"schema": schema, "payload": {"id": self.kind.values[key]}}).encode()

    def _value(self, value: Row | None) -> bytes | None:
        texts = [{"field": name, "type": "string", "optional": True} for name in ("v", "big")]
        row = {"type": "struct", "optional": True, "fields": [{"field": "id", **self.kind.schema}, *texts]}
        source = {"type": "struct", "field": "source", "fields": [{"field": "lsn", "type": "int64"}]}
        images = [{**row, "field": "before"}, {**row, "field": "after"}]
        schema = {"type": "struct", "fields": [*images, source, {"field": "op", "type": "string"}]}
        return None if value is None else json.dumps({"schema": schema, "payload": value}).encode()


class TypedAvroScenario(TypedScenario):
    """The same in Avro, where the schema is in the registry."""

    def __init__(self, root: Path, kind: Kind) -> None:
        super().__init__(root, kind)
        avro = ValueSpec(format="avro")
        (table,) = self.spec.tables
        self.spec = self.spec.model_copy(update={"tables": (table.model_copy(update={"value": avro, "key": avro}),)})
        plain = {"int32": "int", "int64": "long"}.get(kind.connect, kind.connect)
        connect = {"connect.name": kind.name, "connect.parameters": dict(kind.parameters)} if kind.name else {}
        column = {"name": "id", "type": {"type": plain, **connect}}
        texts = [{"name": name, "type": ["null", "string"], "default": None} for name in ("v", "big")]
        row = {"type": "record", "name": "Row", "fields": [column, *texts]}
        source = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": "long"}]}
        fields = [("before", ["null", row]), ("after", ["null", "Row"]), ("source", source), ("op", "string")]
        self.schemas_of = {
            "key": {"type": "record", "name": "Key", "fields": [column]},
            "value": {"type": "record", "name": "Envelope", "fields": [{"name": n, "type": t} for n, t in fields]},
        }
        self.ids = {
            part: self.registry.register("avro", json.dumps(schema), subject=f"a-{part}")
            for part, schema in self.schemas_of.items()
        }

    def _key(self, key: int) -> bytes:
        return self._framed("key", {"id": self.kind.values[key]})

    def _value(self, value: Row | None) -> bytes | None:
        return None if value is None else self._framed("value", value)

    def _framed(self, part: str, record: Row) -> bytes:
        body = io.BytesIO()
        schema = fastavro.parse_schema(json.loads(json.dumps(self.schemas_of[part])))
        fastavro.schemaless_writer(body, schema, self._binary(record))
        return struct.pack(">xI", self.ids[part]) + body.getvalue()

    def _binary(self, record: Row) -> Row:
        """JSON writes bytes in base64."""
        if self.kind.connect != "bytes":
            return record
        found = {name: self._binary(one) if isinstance(one, dict) else one for name, one in record.items()}
        return found | ({"id": base64.b64decode(record["id"])} if "id" in record else {})


@pytest.mark.parametrize("scenario_of", [TypedScenario, TypedAvroScenario])
@KIND
def test_a_tombstone_alone_deletes_the_row_of_its_key(
    tmp_path: Path, kind: Kind, scenario_of: type[TypedScenario]
) -> None:
    scenario = scenario_of(tmp_path, kind)
    scenario.change("c", 0, v="a")
    scenario.change("c", 1, v="b")
    scenario.catch_up()
    scenario.forget(0)
    scenario.catch_up()
    assert (scenario.shown(), scenario.dead_letters()) == ([("b", None)], [])


def test_a_number_in_a_key_without_a_schema_has_the_unit_of_its_column(tmp_path: Path) -> None:
    columns = (ColumnSpec(name="id", type=parse_type("timestamp"), unit="us"),)
    scenario = UpsertSource(tmp_path, columns=columns)
    for number, at in enumerate((1_700_000_000_000_001, 5)):
        scenario.put(json.dumps({"id": at}), {"op": "c", "before": None, "after": {"id": at, "v": str(number)}})
    scenario.catch_up()
    scenario.put(json.dumps({"id": 5}), None)
    scenario.catch_up()
    assert ([row["v"] for row in scenario.upsert_table()], scenario.dead_letters()) == (["0"], [])


@pytest.mark.parametrize("scenario_of", [TypedScenario, TypedAvroScenario])
@pytest.mark.parametrize("partition", [0, 1])
@KIND
def test_a_row_gets_another_key_and_keeps_what_was_not_sent(
    tmp_path: Path, kind: Kind, partition: int, scenario_of: type[TypedScenario]
) -> None:
    scenario = scenario_of(tmp_path, kind)
    scenario.change("c", 0, v="a", big="of 0")
    scenario.catch_up()
    scenario.lsn += 1
    scenario.change("d", 0, headers={"__debezium.newkey": {"id": "new"}})
    scenario.change("c", 1, partition, {"__debezium.oldkey": {"id": kind.told}}, v="b", big=PLACEHOLDER)
    scenario.catch_up()
    assert (scenario.shown(), scenario.dead_letters()) == ([("b", "of 0")], [])


def test_a_key_that_is_no_number_is_the_same_after_an_update_and_the_old_one_of_a_row(tmp_path: Path) -> None:
    scenario = TypedAvroScenario(tmp_path, Kind("double", "", (float("nan"), 1.5), float("nan")))
    scenario.change("c", 0, v="a", big="of 0")
    scenario.catch_up()
    image = {"id": float("nan"), "v": "a", "big": PLACEHOLDER}
    scenario.lsn += 1
    update = {"op": "u", "before": image, "after": {**image, "v": "b"}, "source": {"lsn": scenario.lsn}}
    scenario._send(0, 0, update, {})
    scenario.catch_up()
    assert (scenario.shown(), scenario.dead_letters()) == ([("b", "of 0")], [])
    scenario.lsn += 1
    scenario.change("d", 0, headers={"__debezium.newkey": {"id": "new"}})
    scenario.change("c", 1, headers={"__debezium.oldkey": {"id": float("nan")}}, v="c", big=PLACEHOLDER)
    scenario.catch_up()
    assert (scenario.shown(), scenario.dead_letters()) == ([("c", "of 0")], [])
