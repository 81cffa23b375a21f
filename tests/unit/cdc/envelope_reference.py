"""Change messages, made and read one by one in plain Python: what the columnar reader must agree with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.types import IcebergType

from frazil.decode.settings import PLACEHOLDER, Envelope, Reading
from frazil.schema.evolve import new_schema
from frazil.spec.settings import METADATA_COLUMNS, MetadataField
from frazil.spec.syntax.types import parse_type
from frazil.stages.changes import DELETE, TRUNCATE, UPSERT, Changes
from frazil.write.target import TableTarget, metadata_columns

Row = Mapping[str, Any]
COLUMNS = {"id": "long", "name": "string", "tags": "list<string>", "inner": "struct<a: long>"}


@dataclass(frozen=True)
class Message:
    """A change as a source tells it. form: how it is written (`plain`, `schema`, `flat`, `maxwell`, `operation`)."""

    op: str
    before: Row | None
    after: Row | None
    form: str = "plain"

    def value(self) -> bytes | None:
        """The record's value."""
        if self.op == "tombstone":
            return None
        return json.dumps(_FORMS[self.form](self), separators=(",", ":"), ensure_ascii=False).encode()


def _plain(message: Message) -> dict[str, Any]:
    if message.op == "heartbeat":
        return {"ts_ms": 1}
    source = {"connector": "postgresql", "ts_ms": 7, "ts_us": 7001, "lsn": 12, "table": "t"}
    return {"before": message.before, "after": message.after, "source": source, "op": message.op, "ts_ms": 9}


def _wrapped(message: Message) -> dict[str, Any]:
    inner = [
        {"field": "id", "type": "int64"},
        {"field": "name", "type": "string"},
        {"field": "tags", "type": "array", "items": {"type": "string"}},
        {"field": "inner", "type": "struct", "fields": [{"field": "a", "type": "int64"}]},
    ]
    names = ("before", "after")
    fields = [{"field": name, "type": "struct", "fields": inner, "optional": True} for name in names]
    source = {"field": "source", "type": "struct", "fields": [{"field": "connector", "type": "string"}]}
    return {
        "schema": {"type": "struct", "fields": [*fields, source, {"field": "op", "type": "string"}]},
        "payload": _plain(message),
    }


def _flat(message: Message) -> dict[str, Any]:
    row = message.before if message.op == "d" else message.after
    return {**(row or {}), "__deleted": "true" if message.op == "d" else "false", "__op": message.op}


def _maxwell(message: Message) -> dict[str, Any]:
    words = {"c": "insert", "u": "update", "d": "delete", "r": "bootstrap-insert", "heartbeat": "heartbeat"}
    out: dict[str, Any] = {"database": "d", "table": "t", "type": words.get(message.op, message.op), "ts": 5, "xid": 3}
    if message.op == "heartbeat":
        return out
    out["data"] = message.before if message.op == "d" else message.after
    if message.op == "u" and message.before is not None and message.after is not None:
        out["old"] = {name: old for name, old in message.before.items() if old != message.after.get(name)}
    return out


def _operation(message: Message) -> dict[str, Any]:
    words = {"c": "I", "u": "U", "d": "D"}
    row = message.before if message.op == "d" else message.after
    return {**(row or {}), "ops": words.get(message.op, message.op)}


_FORMS = {"plain": _plain, "schema": _wrapped, "flat": _flat, "maxwell": _maxwell, "operation": _operation}
ENVELOPES = {
    "maxwell": Envelope("maxwell"),
    "operation": Envelope("operation", "ops", ("I",), ("U",), ("D",)),
}


def expected_changes(
    messages: Sequence[Message], envelope: Envelope
) -> list[tuple[int, int, dict[str, Any], set[str]]]:
    """By the words of docs/reference/envelopes.md: record, operation, row, and columns that were not sent."""
    out: list[tuple[int, int, dict[str, Any], set[str]]] = []
    for n, message in enumerate(messages):
        out += [(n, op, *_cleaned(row)) for op, row in _changes_of(message, envelope)]
    return out


def _changes_of(message: Message, envelope: Envelope) -> list[tuple[int, Row]]:
    before, after = message.before, message.after
    if message.op in ("tombstone", "heartbeat"):
        return []
    if message.form in ("flat", "operation"):
        before = before if message.op == "d" else None
    if message.op == "t":
        return [(TRUNCATE if envelope.is_upsert else UPSERT, {})] if envelope.is_upsert or envelope.is_log else []
    if envelope.is_log:
        images = [before, after] if message.op == "u" else [before if message.op == "d" else after]
        return [(UPSERT, image) for image in images if image is not None]
    if message.op == "d":
        return [(DELETE, {"id": before["id"]})] if envelope.is_upsert and before else []
    assert after is not None
    changes: list[tuple[int, Row]] = [(UPSERT, after)]
    if envelope.is_upsert and message.op == "u" and before and before["id"] not in (None, after["id"]):
        changes.insert(0, (DELETE, {"id": before["id"]}))
    return changes


def _cleaned(row: Row) -> tuple[dict[str, Any], set[str]]:
    unsent = {name for name, value in row.items() if value in (PLACEHOLDER, [PLACEHOLDER])}
    return {name: None if name in unsent else row.get(name) for name in COLUMNS}, unsent


def as_rows(target: TableTarget, changes: Changes) -> list[tuple[int, int, dict[str, Any], set[str]]]:
    """The changes in the same form; of a delete's columns only the key counts."""
    table = pa.table(changes.columns, names=[field.name for field in target.fields]).to_pylist()
    out = []
    for n, (record, op) in enumerate(zip(changes.records.tolist(), changes.ops.tolist(), strict=True)):
        unsent = {target.fields[c].name for c, flags in changes.unavailable.items() if flags[n]}
        row = table[n] if op != DELETE else {**dict.fromkeys(table[n]), "id": table[n]["id"]}
        out.append((record, op, row, unsent))
    return out


def target_for(
    envelope: Envelope,
    columns: Mapping[str, str | IcebergType] | None = None,
    metadata: Sequence[MetadataField] = (),
    **other: Any,
) -> TableTarget:
    """A table with these columns, and no place."""
    asked = COLUMNS if columns is None else columns
    fields = {name: parse_type(kind) if isinstance(kind, str) else kind for name, kind in asked.items()}
    fields |= metadata_columns({one: METADATA_COLUMNS[one] for one in metadata})
    return TableTarget(
        name="lake.t",
        schema_json=new_schema(fields.items()).model_dump_json() if fields else "",
        metadata=tuple((one, METADATA_COLUMNS[one]) for one in metadata),
        reading=other.pop("reading", Reading(on_bad="dead_letter")),
        envelope=envelope,
        **other,
    )


def records_of(
    values: Sequence[bytes | None], headers: Sequence[Mapping[str, bytes | None]] | None = None
) -> dict[str, pa.Array]:
    """Records as the source ships them."""
    found = {
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array(range(len(values)), pa.timestamp("us", tz="UTC")),
    }
    if headers is not None:
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        found["headers"] = pa.array([[{"key": k, "value": v} for k, v in one.items()] for one in headers], kind)
    return found
