"""Routes over every format and over envelopes whose rows are in lists, with processes that end at every step."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frazil.decode.settings import WriterSchema
from frazil.ingest.batches.services import Services
from frazil.ingest.tables.schemas import Schemas
from frazil_testing.memory_registry import MemoryRegistry
from tests.needs import cases
from tests.unit.ingest import service_scene
from tests.unit.ingest.test_routes import Routed
from tests.unit.rows.test_writer_schemas import framed

_AVRO = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": "long"}, {"name": "kind", "type": ["null", "string"], "default": None}],
    }
)
_PROTOBUF = 'syntax = "proto3"; message R { int64 n = 1; string kind = 2; }'
_JSON_SCHEMA = json.dumps(
    {"type": "object", "properties": {"n": {"type": "integer"}, "kind": {"type": "string"}}, "required": ["n"]}
)
Encode = Callable[[MemoryRegistry, int, str | None], bytes]


def avro(registry: MemoryRegistry, n: int, kind: str | None) -> bytes:
    number = registry.register("avro", _AVRO)
    return framed(number, WriterSchema("avro", _AVRO), {"n": n, "kind": kind})[0]


def protobuf(registry: MemoryRegistry, n: int, kind: str | None) -> bytes:
    text = (kind or "").encode()
    header = b"\x00" + struct.pack(">i", registry.register("protobuf", _PROTOBUF)) + b"\x00"
    return header + bytes([8, n, 18, len(text)]) + text


def json_schema(registry: MemoryRegistry, n: int, kind: str | None) -> bytes:
    header = b"\x00" + struct.pack(">i", registry.register("json_schema", _JSON_SCHEMA))
    return header + json.dumps({"n": n} if kind is None else {"n": n, "kind": kind}).encode()


def maxwell(_: MemoryRegistry, n: int, kind: str | None) -> bytes:
    return json.dumps({"database": "d", "table": kind, "type": "insert", "ts": 1, "data": {"n": n}}).encode()


def canal(_: MemoryRegistry, n: int, kind: str | None) -> bytes:
    types = {"data": [{"n": str(n)}], "mysqlType": {"n": "int(11)"}, "pkNames": ["n"], "isDdl": False}
    return json.dumps(
        {"database": "d", "table": kind, "type": "INSERT", "es": 5, "ts": 6, "old": None, **types}
    ).encode()


FORMATS: dict[str, tuple[Encode, str, str]] = {
    "avro": (avro, "kind", "value: {format: avro}"),
    "protobuf": (protobuf, "kind", "value: {format: protobuf}"),
    "json_schema": (json_schema, "kind", "value: {format: json_schema}"),
    "maxwell": (maxwell, "table", "envelope: maxwell"),
    "canal": (canal, "table", "envelope: canal"),
}


@pytest.mark.parametrize("name", cases(FORMATS))
def test_each_record_is_in_its_table_once_wherever_processes_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    encode, by, settings = FORMATS[name]
    registry = MemoryRegistry()

    def services(**parts: Any) -> Services:
        return Services(schemas=Schemas(registry, clock=parts["clock"]), **parts)

    monkeypatch.setattr(service_scene, "Services", services)
    scene = Routed(tmp_path, f'{{topic: t, by: {by}, to: "n.${{{by}}}", rest: n.rest, {settings}}}')
    scene.tables = 'registry: {url: "http://r"}\n'
    kinds, produced = ("a", "b", None, "c"), 0
    for turns in range(14):
        for _ in range(3):  # A new value now and then: `c` appears late.
            kind = kinds[produced % (3 if produced < 20 else 4)]
            scene.source.produce("t", 0, encode(registry, produced, kind), scene.clock.now_ms())
            produced += 1
        service = scene.start()
        for _ in range(turns):
            service.turn()
    scene.catch_up()
    expected: dict[str, list[int]] = {}
    for n in range(produced):
        expected.setdefault(kinds[n % (3 if n < 20 else 4)] or "rest", []).append(n)
    assert {table: scene.numbers(f"n.{table}") for table in ("a", "b", "c", "rest")} == expected
