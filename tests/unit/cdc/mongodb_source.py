"""What Debezium tells of a collection of MongoDB, in each format that it may be written in."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import fastavro

from frazil.ingest.tables.table import Table
from frazil.spec.settings import ValueSpec
from tests.unit.upsert.upsert_source import UpsertSource

FORMS = ("plain", "schema", "avro", "json_schema")
_SOURCE = {"connector": "string", "ts_ms": "int64", "collection": "string"}
_VALUE = {"before": "string", "after": "string", "op": "string", "ts_ms": "int64"}
_KEY = {"id": "string"}


def key_of(written: str) -> dict[str, str]:
    """The key of the document with this `_id`, as a key writes it."""
    return {"id": written}


def change(op: str, document: str | None = None, before: str | None = None) -> dict[str, Any]:
    """A change of a document, which is a text."""
    source = {"connector": "mongodb", "ts_ms": 1_700_000_000_000, "collection": "customers"}
    return {"before": before, "after": document, "source": source, "op": op, "ts_ms": 1_700_000_000_001}


def wrapped(payload: Any, fields: list[dict[str, Any]]) -> bytes:
    """A message with its schema, as Kafka Connect's converter for JSON writes it."""
    schema = {"type": "struct", "fields": fields, "optional": False, "name": "c.inventory.customers"}
    return json.dumps({"schema": schema, "payload": payload}).encode()


def connect_fields(kinds: dict[str, str]) -> list[dict[str, Any]]:
    """Fields of a schema of Kafka Connect's."""
    return [{"type": kind, "optional": True, "field": name} for name, kind in kinds.items()]


def key_with_schema(key: Any) -> bytes:
    """A key with its schema."""
    return wrapped(key, connect_fields(_KEY))


def value_with_schema(value: Any) -> bytes:
    """A change with its schema."""
    source = {"type": "struct", "fields": connect_fields(_SOURCE), "optional": False, "field": "source"}
    fields = connect_fields(_VALUE)
    for field in fields[:2]:
        field["name"] = "io.debezium.data.Json"
    return wrapped(value, [*fields, source])


def _avro(name: str, kinds: dict[str, Any]) -> dict[str, Any]:
    names = {"int64": "long"}
    fields = [
        {"name": field, "type": kind if isinstance(kind, dict) else ["null", names.get(kind, kind)]}
        for field, kind in kinds.items()
    ]
    return {"type": "record", "name": name, "fields": fields}


def _json_schema(kinds: dict[str, Any]) -> dict[str, Any]:
    named = {"int64": "integer"}
    members = {name: {"oneOf": [{"type": "null"}, {"type": named.get(kind, kind)}]} for name, kind in kinds.items()}
    return {"type": "object", "properties": members}


class DocumentScenario(UpsertSource):
    """A table of topic `a`, to which Debezium writes the changes of a collection. form: how, one of FORMS."""

    def __init__(self, root: Path, form: str, tasks: int = 1, **settings: Any) -> None:
        self.form = form
        value = ValueSpec(format="avro" if form == "avro" else "json_schema" if form == "json_schema" else "json")
        super().__init__(root, tasks, value=value, key=ValueSpec(format="raw"), **settings)
        self.avro = {"key": _avro("Key", _KEY), "value": _avro("Envelope", {**_VALUE, "source": _avro("S", _SOURCE)})}
        schemas: dict[str, Any] = {"key": _json_schema(_KEY), "value": _json_schema(_VALUE)}
        if form == "avro":
            self.ids = {part: self.registry.register("avro", json.dumps(text)) for part, text in self.avro.items()}
        elif form == "json_schema":
            self.ids = {part: self.registry.register("json_schema", json.dumps(text)) for part, text in schemas.items()}

    def tell(self, *told: tuple[str, dict[str, Any] | None]) -> Table:  # type: ignore[override]
        """Records: the `_id` as the key writes it, and the value, None for a tombstone."""
        for written, value in told:
            key = self._written("key", key_of(written))
            self.source.produce("a", 0, None if value is None else self._written("value", value), key=key)
        return self.catch_up()

    def _written(self, part: str, record: dict[str, Any]) -> bytes:
        if self.form == "plain":
            return json.dumps(record).encode()
        if self.form == "schema":
            return key_with_schema(record) if part == "key" else value_with_schema(record)
        frame = struct.pack(">xi", self.ids[part])
        if self.form == "json_schema":
            return frame + json.dumps(record).encode()
        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(json.dumps(self.avro[part]))), record)
        return frame + body.getvalue()
