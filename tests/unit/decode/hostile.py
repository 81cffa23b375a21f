"""Topics in every format whose records are damaged at random, from a seed: what a task makes of them, next to what it makes
of the same records whole.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from pyiceberg.types import IcebergType, StringType

from frazil.dead_letters.record import DEAD_LETTER_TYPES
from frazil.decode.settings import NO_EVOLUTION, Envelope, Reading, WriterSchema
from frazil.ingest.tables.schemas import UNKNOWN
from frazil.ingest.tasks.task import read_records
from frazil.ingest.tasks.task_job import Job
from frazil.rows.project import shape_rows
from frazil.schema.arrow import pick
from frazil.schema.evolve import new_schema
from frazil.schema.projection import Shaping
from frazil.spec.syntax.types import parse_type
from frazil.types import RESCUED_COLUMN
from frazil.write.target import TableTarget
from tests.fixtures.chance import Chance, damage
from tests.needs import Package, cases, has_package
from tests.unit.cdc.canal_reference import Message as CanalMessage
from tests.unit.cdc.envelope_messages import AVRO as AVRO_ENVELOPE
from tests.unit.cdc.envelope_reference import Message
from tests.unit.cdc.mongodb_source import change, value_with_schema
from tests.unit.cdc.test_json_schema_envelopes import JSON_ENVELOPE
from tests.unit.ingest.targets import records_of, run, target_of

if has_package("protobuf"):
    from frazil_protobuf.protoc import compile_proto
    from packages.protobuf.tests.unit.protobuf_chance import fill
    from packages.protobuf.tests.unit.protobuf_schemas import REFERENCES, SHOP, class_of

COUNT = 24
PLAIN = Reading()
NAMES = (
    "json", "json, inferred", "json, flat", "avro", "protobuf", "json schema", "text", "debezium", "debezium, log",
    "debezium, with schema", "debezium, flat", "debezium, avro", "debezium, json schema", "documents", "maxwell", "canal",
    "canal, log", "operation", "header in json", "header in avro",
)  # fmt: skip
NEEDED: Mapping[str, Package] = {
    "protobuf": "protobuf", "json schema": "jsonschema", "debezium, json schema": "jsonschema", "maxwell": "cdc",
    "canal": "cdc", "canal, log": "cdc",
}  # fmt: skip
"""The packages beside the core that some of them need."""
CASES = cases(NAMES, NEEDED)
_FRAME = b"\0\0\0\0\1"
_LONGEST = 200_000
_PLACE = "@place@"
_ODD_JSON = (
    "null", "true", "-0", "0.1", "1e400", "-1e-400", "9223372036854775808", "1" * 5000, "NaN", '""', '"x"', '"\\ud800"',
    '"\\u0000"', "[]", "{}", "[null]", '{"a":1,"a":2}', '{"":{}}', "[" * 600 + "]" * 600, '{"a":' * 600 + "1" + "}" * 600,
    '"2026-02-30"', '"0001-01-01T00:00:00Z"', '{"id":1}', '[{"id":1},null]', '"__debezium_unavailable_value"',
    '{"scale":1000000,"value":"AA=="}', '{"scale":-5,"value":"/w=="}', '"' + "A" * 3000 + '"', '{"$oid":"x"}',
)  # fmt: skip
_WORDS = (
    "op",
    "before",
    "after",
    "data",
    "old",
    "type",
    "payload",
    "schema",
    "id",
    "mysqlType",
    "pkNames",
    "source",
    "",
    "_id",
)
_AVRO = {
    "type": "record", "name": "r", "fields": [
        {"name": "id", "type": "long"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "many", "type": {"type": "array", "items": ["null", "string", {"type": "array", "items": "int"}]}},
        {"name": "by", "type": {"type": "map", "values": {"type": "map", "values": "double"}}},
        {"name": "self", "type": ["null", "r"]},
        {"name": "dec", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "e", "symbols": ["A", "B"]}},
        {"name": "fix", "type": {"type": "fixed", "name": "f", "size": 4}},
        {"name": "x", "type": "float"},
    ],
}  # fmt: skip
_JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "text": {"type": ["null", "string"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "inner": {"type": "object", "properties": {"a": {"type": "number"}}},
    },
}
_COLUMNS = {
    "id": "long", "f": "double", "t": "string", "b": "boolean", "d": "decimal(9,2)", "at": "timestamptz", "day": "date",
    "u": "uuid", "raw": "binary", "tags": "list<string>", "in": "struct<a: long, b: list<struct<c: double>>>",
    "m": "map<string, long>",
}  # fmt: skip


@dataclass(frozen=True)
class TableActivity:
    """What became of some records. rows: of each the rows that it made, as text; refused: bad ones; ignored_records: how
    many are neither.
    """

    rows: Mapping[int, tuple[str, ...]]
    refused: frozenset[int]
    ignored_records: int


@dataclass(frozen=True)
class World:
    """A topic of good records. column: what is damaged of a record. columns: of the table, inferred unless given."""

    name: str
    values: Sequence[bytes]
    reading: Reading = PLAIN
    envelope: Envelope | None = None
    columns: Mapping[str, str] | None = None
    column: str = "value"
    more: Mapping[str, Any] | None = None

    def target(self, folder: Path, unknown_fields: str = "drop", **other: Any) -> TableTarget:
        """A table of the topic: what its columns do not name is dropped, requested_fields or rescued."""
        kinds: dict[str, IcebergType] = dict(self._kinds)
        is_rescuing = unknown_fields == "rescue"
        if is_rescuing:
            kinds[RESCUED_COLUMN] = StringType()
        reading = replace(self.reading, unknown_fields=unknown_fields, is_rescuing=is_rescuing, on_bad="dead_letter")
        return self._target(folder, kinds, reading, **other)

    def _target(self, folder: Path, kinds: Mapping[str, IcebergType], reading: Reading, **other: Any) -> TableTarget:
        text = new_schema(kinds.items()).model_dump_json() if kinds else ""
        more = {"envelope": self.envelope, **(self.more or {})}
        return target_of(folder, {}, schema_json=text, reading=reading, **more, **other)

    @cached_property
    def _kinds(self) -> dict[str, IcebergType]:
        """The table's columns."""
        if self.columns is not None:
            return {name: parse_type(word) for name, word in self.columns.items()}
        reading = replace(self.reading, on_bad="dead_letter")
        found = read_records(self._target(Path(), {}, reading), "a", _columns(self.records(self.values)))
        return dict(found.decoded.requested_fields[()])

    def records(self, damaged: Sequence[bytes | None]) -> pa.RecordBatch:
        """The records with these in place of what is damaged."""
        rows: list[dict[str, Any]] = []
        for n, raw in enumerate(damaged):
            row = {"topic": "a", "offset": n, "key": b'{"id":1}', "headers": [], "value": b'{"id": %d}' % n}
            row[self.column] = [{"key": "h", "value": raw}] if self.column == "headers" else raw
            rows.append(row)
        return records_of(rows)

    def look(self, target: TableTarget, batch: pa.RecordBatch) -> TableActivity:
        """Reads records as a task does, ids that no registry knows told as such."""
        columns = _columns(batch)
        for _ in range(2):
            read = read_records(target, "a", columns, 2**31)
            if not read.decoded.missing:
                break
            target = _with_unknown(target, read.decoded.missing)
        assert not read.decoded.missing
        kept = read.without_refused()
        table = shape_rows(target, kept, pick(columns, kept.records))
        table.validate(full=True)
        refused = frozenset(np.flatnonzero(read.decoded.refused).tolist())
        assert {mismatch.row for mismatch in read.decoded.mismatches} == refused
        rows: dict[int, tuple[str, ...]] = {}
        for n, op, row in zip(kept.records.tolist(), kept.ops.tolist(), _plain_rows(table), strict=True):
            rows[n] = (*rows.get(n, ()), f"{op} {row}")
        return TableActivity(rows, refused, sum(read.ignored_records.values()))

    def write(self, folder: Path, unknown_fields: str, batch: pa.RecordBatch) -> None:
        """Does all that a task does; what it reports of the records must add up."""
        dead_letters = target_of(
            folder, {name: _word(kind) for name, kind in DEAD_LETTER_TYPES.items()}, name="lake.dead_letters"
        )
        target = self.target(folder, unknown_fields, dead_letters=dead_letters)
        [report] = run(Job({"a": target}), batch).values()
        if report.schema.missing:
            target = _with_unknown(target, report.schema.missing)
            [report] = run(Job({"a": target}), batch).values()
        assert report.counts.record_count == batch.num_rows
        assert report.schema.missing == frozenset()
        if not report.schema.requested_fields:
            assert report.written.dead_letter_count == report.bad_records.count


def _plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows with times as numbers: Python has no dates for some of them."""
    columns = [one.cast(pa.int64()) if pa.types.is_timestamp(one.type) else one for one in table.columns]
    rows: list[dict[str, Any]] = pa.table(columns, names=table.column_names).to_pylist()
    return rows


def _word(kind: IcebergType) -> str:
    return "list<struct<key: string, value: binary>>" if str(kind).startswith("list") else str(kind)


def _columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def _with_unknown(target: TableTarget, missing: frozenset[str] | set[str]) -> TableTarget:
    """The same after the registry has reported that it does not know these."""

    def told(reading: Reading, prefix: str) -> Reading:
        mine = {name.removeprefix(prefix) for name in missing if name.startswith(prefix)}
        known = {**dict(reading.schemas), **dict.fromkeys(mine, UNKNOWN)}
        return replace(reading, schemas=tuple(sorted(known.items(), key=lambda pair: pair[0])))

    headers = tuple((name, told(reading, f"header:{name}:")) for name, reading in target.record.headers)
    values = {name for name in missing if ":" not in name}
    reading = told(target.reading, "") if values else target.reading
    return replace(target, reading=reading, record=replace(target.record, headers=headers))


# ---- damage


def mutate(raw: bytes, others: Sequence[bytes], chance: Chance) -> bytes | None:
    """The bytes in another state: torn, cut, combined with others, or with another value somewhere in its JSON."""
    ways: tuple[Callable[[], bytes | None], ...] = (
        lambda: damage(raw, chance),
        lambda: damage(raw, chance),
        lambda: _flipped(raw, chance),
        lambda: _spliced(raw, chance.one_of(others), chance),
        lambda: _repeated(raw, chance),
        lambda: _reworded(raw, chance),
        lambda: _reworded(raw, chance),
        lambda: _reworded(raw, chance),
        lambda: chance.one_of((None, b"", b"\0", raw[:5], raw[:1], raw + b"\0", raw * 2)),
    )
    found: bytes | None = chance.one_of(ways)()
    return found if found is None or len(found) <= _LONGEST else found[:_LONGEST]


def _flipped(raw: bytes, chance: Chance) -> bytes:
    torn = bytearray(raw)
    for _ in range(1 + chance.below(8) if torn else 0):
        torn[chance.below(len(torn))] ^= 1 << chance.below(8)
    return bytes(torn)


def _spliced(raw: bytes, other: bytes, chance: Chance) -> bytes:
    return raw[: chance.below(len(raw) + 1)] + other[chance.below(len(other) + 1) :]


def _repeated(raw: bytes, chance: Chance) -> bytes:
    start = chance.below(len(raw) + 1)
    end = start + chance.below(len(raw) - start + 1)
    times: int = chance.one_of((1, 2, 40, 3000))
    return raw[:end] + raw[start:end] * times + raw[end:]


def _reworded(raw: bytes, chance: Chance) -> bytes:
    """With another value, or another name, somewhere in the JSON that the bytes are; damaged where they are none."""
    frame, text = (raw[:5], raw[5:]) if raw.startswith(_FRAME) else (b"", raw)
    try:
        document = json.loads(text)
    except ValueError:
        return damage(raw, chance)
    document = _changed(document, chance)
    written = json.dumps(document, ensure_ascii=chance.happens(0.5), separators=(",", ":"))
    return frame + written.replace(f'"{_PLACE}"', str(chance.one_of(_ODD_JSON))).encode(errors="replace")


def _changed(node: Any, chance: Chance) -> Any:
    if not isinstance(node, dict | list) or not node or chance.happens(0.15):
        return _PLACE
    if isinstance(node, list):
        at = chance.below(len(node))
        return [*node[:at], _changed(node[at], chance), *node[at + 1 :]]
    name = chance.one_of(sorted(node))
    if chance.happens(0.15):
        return {other: value for other, value in node.items() if other != name}
    if chance.happens(0.15):
        return {chance.one_of(_WORDS) if other == name else other: value for other, value in node.items()}
    if chance.happens(0.1) and isinstance(node[name], dict):
        return {**node, name: json.dumps(node[name])}
    return {**node, name: _changed(node[name], chance)}


# ---- topics


def _json_values() -> list[bytes]:
    return [
        json.dumps(
            {
                "id": n, "f": n / 8, "t": f"text é {n}", "b": n % 2 == 0, "d": f"{n}.25", "at": "2026-01-31T12:30:00Z",
                "day": "2026-01-31", "u": f"00000000-0000-0000-0000-{n:012d}", "raw": "AAE=", "tags": ["a", None][: n % 3],
                "in": {"a": n, "b": [{"c": 1.5}] * (n % 4)}, "m": {"x": n},
            },
            ensure_ascii=n % 2 == 0,
        ).encode()
        for n in range(COUNT)
    ]  # fmt: skip


def _avro(schema: Any, data: Sequence[Any]) -> list[bytes]:
    parsed, values = fastavro.parse_schema(json.loads(json.dumps(schema))), []
    for datum in data:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, parsed, datum)
        values.append(_FRAME + body.getvalue())
    return values


def _avro_data(n: int, depth: int = 0) -> dict[str, Any]:
    return {
        "id": n, "text": None if n % 3 else f"é {n}", "many": [None, "x", [n, -n]][: n % 4], "by": {"k": {"l": n / 3}},
        "self": _avro_data(n + 1, depth + 1) if depth < n % 3 else None, "dec": Decimal(n), "at": 1_700_000_000_000 + n,
        "kind": "AB"[n % 2], "fix": b"abcd", "x": 1.5,
    }  # fmt: skip


def _shop_values() -> list[bytes]:
    chance, values = Chance(1), []
    for _ in range(COUNT):
        message = class_of(SHOP, "shop.Order")()
        fill(message, chance, 0.5)
        values.append(_FRAME + b"\0" + message.SerializePartialToString())
    return values


def _row(n: int) -> dict[str, Any]:
    return {"id": n, "name": f"é {n}", "tags": ["x"] * (n % 3), "inner": {"a": n}}


def _messages(form: str) -> list[bytes]:
    words = {"operation": "cud", "maxwell": "cudr"}.get(form, "cudr")
    found = []
    for n in range(COUNT):
        op = words[n % len(words)]
        before = _row(n - 1) if op in "ud" else None
        value = Message(op, before, None if op == "d" else _row(n), form).value()
        assert value is not None
        found.append(value)
    return found


def _avro_messages() -> list[dict[str, Any]]:
    rows = [{"id": n, "v": f"é {n}", "tags": ["x"] * (n % 3)} for n in range(COUNT)]
    source = {"connector": "c", "lsn": 9}
    return [
        {"before": rows[n - 1] if n % 3 else None, "after": None if n % 3 == 2 else rows[n], "source": source,
         "op": "cud"[n % 3]}
        for n in range(COUNT)
    ]  # fmt: skip


def _canal_values() -> list[bytes]:
    rows = [
        {
            "id": str(n),
            "name": "é",
            "price": "1.50",
            "at": "2020-01-02 03:04:05",
            "raw": "ab",
            "big": "18446744073709551615",
        }
        for n in range(COUNT)
    ]
    found = []
    for n in range(COUNT):
        data = rows[max(0, n - 1) : n + 1]
        old = [{"name": "old"} if place else None for place in range(len(data))] if n % 3 == 1 else None
        found.append(CanalMessage(("INSERT", "UPDATE", "DELETE")[n % 3], data, old).value())
    return found


def _documents() -> list[bytes]:
    words = (
        '{"_id": {"$oid": "5f1a2b3c4d5e6f7a8b9c0d1e"}, "n": {"$numberLong": "%d"}, "at": {"$date": 5}, "v": ["1", "x"]}'
    )
    return [value_with_schema(change("cu"[n % 2], words % n)) for n in range(COUNT)]


@cache
def worlds() -> Mapping[str, World]:
    """Every format, and every envelope in one or more of them, by the names above."""
    keyed: dict[str, Any] = {"is_upsert": True, "keys": (("id",),)}
    avro = Reading(format="avro", schemas=(("1", WriterSchema("avro", json.dumps(_AVRO))),))
    avro_envelope = Reading(format="avro", schemas=(("1", WriterSchema("avro", json.dumps(AVRO_ENVELOPE))),))
    as_json_schema = [_FRAME + json.dumps(_row(n) | {"text": "é"}).encode() for n in range(COUNT)]
    changes_in_json = [
        _FRAME + json.dumps(one).encode() for one in ({**message, "source": {"lsn": 9}} for message in _avro_messages())
    ]
    operation = ("ops", ("I",), ("U",), ("D",))
    of_header = {"shaping": Shaping(headers=(("h", "h"),))}
    in_json = {"headers": (("h", Reading(unknown_fields="drop")),), **of_header}
    in_avro = {"headers": (("h", replace(avro, unknown_fields="drop", evolution=NO_EVOLUTION)),), **of_header}
    words = "struct<id: long, text: string, many: list<string>, x: double>"
    found = [
        World("json", _json_values(), columns=_COLUMNS),
        World("json, inferred", _json_values()),
        World("json, flat", _json_values(), columns={"id": "long", "in_a": "long", "m_x": "long"},
              more={"shaping": Shaping(depth=1)}),
        World("avro", _avro(_AVRO, [_avro_data(n) for n in range(COUNT)]), avro),
        World("json schema", as_json_schema,
              Reading(format="json_schema", schemas=(("1", WriterSchema("json_schema", json.dumps(_JSON_SCHEMA))),))),
        World("text", [b"some text", "é".encode()] * 6, Reading(format="text"), columns={"value": "string"}),
        World("debezium", _messages("plain"), envelope=Envelope("debezium", **keyed)),
        World("debezium, log", _messages("plain"), envelope=Envelope("debezium", is_log=True)),
        World("debezium, with schema", _messages("schema"), envelope=Envelope("debezium", **keyed)),
        World("debezium, flat", _messages("flat"), envelope=Envelope("debezium", **keyed)),
        World("debezium, avro", _avro(AVRO_ENVELOPE, _avro_messages()), avro_envelope, Envelope("debezium", **keyed)),
        World("debezium, json schema", changes_in_json,
              Reading(format="json_schema", schemas=(("1", WriterSchema("json_schema", json.dumps(JSON_ENVELOPE))),)),
              Envelope("debezium", is_log=True)),
        World("documents", _documents(), envelope=Envelope("debezium", is_log=True)),
        World("maxwell", _messages("maxwell"), envelope=Envelope("maxwell", **keyed)),
        World("canal", _canal_values(), envelope=Envelope("canal", **keyed)),
        World("canal, log", _canal_values(), envelope=Envelope("canal", is_log=True)),
        World("operation", _messages("operation"), envelope=Envelope("operation", *operation, **keyed)),
        World("header in json", [json.dumps(_row(n)).encode() for n in range(COUNT)], column="headers", more=in_json,
              columns={"id": "long", "h": "struct<id: long, name: string, tags: list<string>, inner: struct<a: long>>"}),
        World("header in avro", _avro(_AVRO, [_avro_data(n) for n in range(COUNT)]), column="headers", more=in_avro,
              columns={"id": "long", "h": words.replace("many: list<string>, ", "")}),
    ]  # fmt: skip
    if has_package("protobuf"):
        proto = WriterSchema("protobuf", SHOP, REFERENCES[SHOP], compile_proto(SHOP, REFERENCES[SHOP]))
        found.append(World("protobuf", _shop_values(), Reading(format="protobuf", schemas=(("1", proto),))))
    return {world.name: world for world in found}
