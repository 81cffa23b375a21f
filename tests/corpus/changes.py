"""Topics of changes of a source table: one history of rows, as Debezium, Maxwell, Canal, DMS and others write it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.corpus.shapes import DECIMAL, INT, LONG, MOMENT, STRING, ListOf, Member, Struct, decimal_text, json_value
from tests.corpus.topics import (
    FIRST_MS,
    STEP_MS,
    Encoding,
    Record,
    Schemas,
    Stream,
    avro,
    connect_json,
    dumped,
    key_text,
    plain_json,
    registered_json,
    spoiled,
)
from tests.simulation.judge.chance import Chance

COUNT = 400
_KEYS = 60
_UNSENT = "__debezium_unavailable_value"
_FIELDS = (
    Member("id", LONG, is_required=True),
    Member("kind", STRING),
    Member("amount", DECIMAL),
    Member("quantity", INT),
    Member("changedAt", MOMENT),
    Member("place", Struct("Place", (Member("x", INT), Member("label", STRING)))),
    Member("tags", ListOf(STRING)),
    Member("note", STRING),
    Member("big", STRING),
)
ROWS = (Struct("Row", _FIELDS), Struct("Row", (*_FIELDS, Member("channel", STRING))))
_SOURCE = Struct(
    "Source",
    (
        *(Member(name, STRING) for name in ("connector", "db", "schema", "table", "snapshot", "sequence")),
        *(Member(name, LONG) for name in ("ts_ms", "lsn", "txId")),
    ),
)
_TRANSACTION = Struct(
    "Transaction", (Member("id", STRING), Member("total_order", LONG), Member("data_collection_order", LONG))
)
KEY = Struct("Key", (Member("id", LONG, is_required=True),))


def _envelope(row: Struct) -> Struct:
    images = (Member("before", row), Member("after", row))
    others = (Member("source", _SOURCE), Member("op", STRING), Member("ts_ms", LONG))
    return Struct("Envelope", (*images, *others, Member("transaction", _TRANSACTION)))


def _flat(row: Struct) -> Struct:
    marks = (Member("__op", STRING), Member("__deleted", STRING), Member("__source_ts_ms", LONG))
    return Struct("Flat", (*row.members, *marks))


@dataclass(frozen=True)
class Change:
    """A change of a row. op: c, r, u, d, t (of the whole table) or `tombstone`. unsent: whether `big` is not told."""

    op: str
    number: int
    version: int
    place: int
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    unsent: bool = False
    #: The other key of an update of the primary key, in the header that Debezium writes.
    header: tuple[str, int] | None = None

    @property
    def at_ms(self) -> int:
        """Returns when it was made."""
        return FIRST_MS + self.place * STEP_MS

    def source(self) -> dict[str, Any]:
        """Returns Debezium's block of the source."""
        return {
            "connector": "postgresql",
            "db": "shop",
            "schema": "public",
            "table": "orders" if self.number % 3 else "old orders",
            "snapshot": "true" if self.op == "r" else "false",
            "ts_ms": self.at_ms - 500,
            "lsn": 1000 + 8 * self.place,
            "sequence": json.dumps([str(1000 + 24 * (self.place // 3)), str(1000 + 8 * self.place)]),
            "txId": self.place // 3,
        }

    def enveloped(self) -> dict[str, Any]:
        """Returns Debezium's envelope."""
        transaction = None
        if self.op != "r":
            order = self.place % 3 + 1
            number = f"{self.place // 3}:{1000 + 24 * (self.place // 3)}"
            transaction = {"id": number, "total_order": order, "data_collection_order": order}
        images = {"before": self.before, "after": self.after}
        return {**images, "source": self.source(), "op": self.op, "ts_ms": self.at_ms, "transaction": transaction}

    def flat(self) -> dict[str, Any]:
        """Returns the row as Debezium's transform unwraps it."""
        row = self.after if self.after is not None else self.before or {"id": self.number}
        deleted = "true" if self.op == "d" else "false"
        return {**row, "__op": self.op, "__deleted": deleted, "__source_ts_ms": self.at_ms - 500}


@dataclass
class History:
    """The changes of a table by chance. truncates: whether it is truncated now and then."""

    chance: Chance
    truncates: bool = False
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)

    def changes(self, count: int) -> Iterator[Change]:
        """Yields so many changes, or a few more."""
        place = 0
        while place < count:
            for change in self._next(place, int(place >= count // 2 and self.chance.maybe(0.5)), place < count // 10):
                yield change
                place += 1

    def _next(self, place: int, version: int, is_snapshot: bool) -> list[Change]:
        chance = self.chance
        number = chance.upto(_KEYS)
        before = self.rows.get(number)
        if self.truncates and not is_snapshot and chance.maybe(0.01):
            self.rows.clear()
            return [Change("t", 0, version, place)]
        if before is None or is_snapshot:
            self.rows[number] = self._row(number, version)
            return [Change("r" if is_snapshot else "c", number, version, place, None, self.rows[number])]
        if chance.maybe(0.08):
            return self._moved(place, version, number, before)
        if chance.maybe(0.25):
            del self.rows[number]
            deleted = Change("d", number, version, place, before)
            return [deleted, Change("tombstone", number, version, place + 1)] if chance.maybe(0.6) else [deleted]
        after, unsent = self._row(number, version), chance.maybe(0.3)
        after["big"] = before["big"] if unsent else after["big"]
        self.rows[number] = after
        return [Change("u", number, version, place, before, after, unsent)]

    def _moved(self, place: int, version: int, number: int, before: dict[str, Any]) -> list[Change]:
        """Returns the parts of an update of the primary key, which are at one place of the log."""
        other = number + 1000
        unsent = self.chance.maybe(0.5)
        after = {**self._row(other, version), "big": before["big"]}
        del self.rows[number]
        self.rows[other] = after
        gone = Change("d", number, version, place, before, header=("__debezium.newkey", other))
        come = Change("c", other, version, place, None, after, unsent, ("__debezium.oldkey", number))
        return [gone, Change("tombstone", number, version, place + 1), come]

    def _row(self, number: int, version: int) -> dict[str, Any]:
        chance = self.chance
        row = {
            "id": number,
            "kind": chance.one(("order", "visit", "refund", None)),
            "amount": chance.between(-999, 99999),
            "quantity": chance.upto(20),
            "changedAt": FIRST_MS + chance.upto(10**9),
            "place": {"x": chance.upto(9), "label": chance.one(("Rome", "Oslo"))} if chance.maybe(0.9) else None,
            "tags": [chance.one(("a", "b")) for _ in range(chance.upto(2))],
            "note": chance.one(("", "a note", "é 😀", None)),
            "big": f"large {chance.upto(999)}",
        }
        return {**row, "channel": chance.one(("web", "shop"))} if version else row


def debezium(form: str, *, truncates: bool = False, partitions: int = 2) -> Stream:
    """Returns Debezium's changes: json, connect, json_schema, avro; or unwrapped: flat_json, flat_connect, flat_avro."""
    chance, schemas = Chance(1000 + sum(form.encode()) + truncates), Schemas()
    is_flat, kind = form.startswith("flat_"), form.removeprefix("flat_")
    shapes = tuple(_flat(row) if is_flat else _envelope(row) for row in ROWS)
    values, keys = _encoding(kind, shapes, schemas), _encoding(kind, (KEY,), schemas)

    def value_of(change: Change) -> bytes | None:
        if change.op == "tombstone" or (is_flat and change.op == "t"):
            return None
        told = change.flat() if is_flat else change.enveloped()
        row = told if is_flat else told["after"]
        if change.unsent and not (is_flat and change.header):
            row = {**row, "big": _UNSENT}
            told = row if is_flat else {**told, "after": row}
        return values.encode(change.version, _odd(chance, told) if chance.maybe(0.03) and not change.header else told)

    def key_of(number: int) -> bytes:
        return keys.encode(0, {"id": number})

    records = list(_records(chance, truncates, partitions, value_of, key_of))
    if is_flat:  # Without its place in the log a part of an update of the primary key is not told from others.
        records = [replace(one, headers=()) for one in records]
    if kind == "json" and not is_flat:
        others, middle = [Record(dumped(one)) for one in _OTHER_MESSAGES], COUNT // 3
        records = [*records[:middle], *others, *records[middle:], *others]
    settings = {"value": dict(values.settings), "key": dict(keys.settings), "envelope": "debezium"}
    return Stream(tuple(records), settings, tuple(schemas.texts), partitions)


_OTHER_MESSAGES: tuple[Any, ...] = (
    {"ts_ms": 1},
    {"status": "BEGIN", "id": "5:1", "ts_ms": 3, "event_count": None, "data_collections": None},
    {"op": "m", "ts_ms": 1, "source": {"connector": "postgresql"}, "message": {"prefix": "p", "content": "aGVsbG8="}},
    {"source": {"connector": "mysql"}, "ts_ms": 1, "databaseName": "shop", "ddl": "drop table x", "tableChanges": []},
    {"op": "c", "after": [1]},
    {"before": None},
)
"""What connectors write to topics of changes besides changes, and what nobody should."""


def _encoding(kind: str, shapes: tuple[Struct, ...], schemas: Schemas) -> Encoding:
    match kind:
        case "avro":
            return avro(shapes, schemas)
        case "json_schema":
            return registered_json(shapes, schemas)
        case "connect":
            return connect_json(shapes)
    return plain_json(shapes)


def _odd(chance: Chance, told: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns an envelope that does not hold together."""
    change: Mapping[str, Any] = chance.one(
        ({"op": "x"}, {"op": None}, {"before": None, "after": None}, {"before": None})
    )
    if "op" not in told:
        change = chance.one(({"__op": "x"}, {"__deleted": "maybe"}, {"__op": None, "__deleted": None}))
    return {**told, **change}


def _records(
    chance: Chance,
    truncates: bool,
    partitions: int,
    value_of: Callable[[Change], bytes | None],
    key_of: Callable[[int], bytes],
) -> Iterator[Record]:
    for change in History(chance, truncates).changes(COUNT):
        value = value_of(change)
        # A table waits for the other part of an update of the primary key, and none would follow a damaged one.
        is_whole = change.header is not None
        if chance.maybe(0.015) and value is not None and not is_whole:
            value = spoiled(chance, value)
        key: bytes | None = key_of(change.number)
        if chance.maybe(0.01) and not is_whole:
            key = chance.one((None, b"x", key_text(other=1)))
        headers = () if change.header is None else ((change.header[0], key_of(change.header[1])),)
        at_ms = change.at_ms if chance.maybe(0.99) else -1
        yield Record(value, None if change.op == "t" else key, change.number % partitions, at_ms, headers)


def maxwell() -> Stream:
    """Returns Maxwell's changes."""
    types = {"c": "insert", "r": "bootstrap-insert", "u": "update", "d": "delete"}

    def value_of(chance: Chance, change: Change) -> bytes | None:
        if change.op == "tombstone":
            return dumped({"type": chance.one(("bootstrap-start", "heartbeat", "table-alter", "what"))})
        row = json_value(ROWS[change.version], change.after if change.after is not None else change.before)
        told: dict[str, Any] = {"database": "shop", "table": "orders"}
        told |= {"type": types[change.op], "ts": change.at_ms // 1000, "xid": 7}
        if change.op == "u":
            before = json_value(ROWS[change.version], change.before)
            told["old"] = {name: one for name, one in before.items() if row.get(name) != one}
        return dumped({**told, "data": row} if chance.maybe(0.98) else told)

    return _other(1, {"envelope": "maxwell", "key_columns": ["id"]}, value_of)


def canal() -> Stream:
    """Returns Canal's messages, each with one row or with two."""
    types = {"c": "INSERT", "r": "INSERT", "u": "UPDATE", "d": "DELETE"}
    kinds = {
        "id": "bigint(20)",
        "kind": "varchar(20)",
        "amount": "decimal(12,2)",
        "quantity": "int(11)",
        "changedAt": "bigint(20)",
        "note": "varchar(200)",
        "big": "longtext",
        "channel": "varchar(20)",
    }

    def texts(row: Mapping[str, Any] | None) -> dict[str, str | None]:
        row = {name: one for name, one in (row or {}).items() if name in kinds}
        shown = {name: None if one is None else str(one) for name, one in row.items()}
        return {**shown, "amount": decimal_text(row["amount"])}

    def value_of(chance: Chance, change: Change) -> bytes | None:
        told: dict[str, Any] = {"database": "shop", "table": "orders"}
        told |= {"es": change.at_ms - 5, "ts": change.at_ms, "pkNames": ["id"]}
        if change.op == "tombstone":
            kind = chance.one(("ALTER", "QUERY", "GTID", "MHEARTBEAT", "what"))
            return dumped({**told, "type": kind, "isDdl": kind == "ALTER", "data": None})
        row = texts(change.after if change.after is not None else change.before)
        data = [row, {**row, "id": str(change.number + 5000)}] if chance.maybe(0.2) else [row]
        told |= {"type": types[change.op], "isDdl": False, "mysqlType": kinds, "data": data}
        if change.op == "u":
            before = texts(change.before)
            told["old"] = [{name: one for name, one in before.items() if row.get(name) != one}] * len(data)
        if chance.maybe(0.05):
            told |= chance.one(
                ({"data": [5]}, {"pkNames": None}, {"mysqlType": {"id": 5}}, {"data": []}, {"type": "X"})
            )
        return dumped(told)

    return _other(2, {"envelope": "canal"}, value_of)


def dms() -> Stream:
    """Returns the messages of AWS DMS."""
    types = {"c": "insert", "r": "load", "u": "update", "d": "delete"}

    def value_of(chance: Chance, change: Change) -> bytes | None:
        about = {
            "timestamp": "2024-07-29T00:58:17.983670Z",
            "record-type": "data",
            "operation": types.get(change.op, "create-table"),
            "partition-key-type": "schema-table",
            "schema-name": "public",
            "table-name": "orders",
            "transaction-id": change.place // 3,
            "transaction-record-id": change.place % 3,
            "commit-timestamp": "2024-07-29T00:58:17.974340Z",
        }
        if change.op == "tombstone":
            return dumped({"control": {"table-def": {}}, "metadata": {**about, "record-type": "control"}})
        row = json_value(ROWS[change.version], change.after if change.after is not None else change.before)
        told: dict[str, Any] = {"data": row, "metadata": about}
        if change.op == "u" and chance.maybe(0.5):
            told["before-image"] = json_value(ROWS[change.version], change.before)
        if chance.maybe(0.03):
            told = {**told, **chance.one(({"data": None}, {"metadata": {**about, "operation": "what"}}))}
        return dumped(told)

    return _other(3, {"envelope": "dms", "key_columns": ["id"]}, value_of)


def operations(form: str) -> Stream:
    """Returns rows of which a field names the operation: json or avro."""
    schemas = Schemas()
    shapes = tuple(Struct("Op", (*row.members, Member("ops", STRING))) for row in ROWS)
    values = _encoding(form, shapes, schemas)
    words = {"c": "I", "r": "I", "u": "U", "d": "D"}

    def value_of(chance: Chance, change: Change) -> bytes | None:
        if change.op == "tombstone":
            return None
        row = change.after if change.after is not None else change.before or {}
        word = words[change.op] if chance.maybe(0.97) else chance.one(("what", None))
        return values.encode(change.version, {**row, "ops": word})

    envelope = {"operation": "ops", "insert": ["I"], "update": ["U"], "delete": ["D"]}
    settings = {"envelope": envelope, "value": dict(values.settings), "key_columns": ["id"]}
    stream = _other(4, settings, value_of)
    return Stream(stream.records, stream.settings, tuple(schemas.texts), stream.partitions)


def _other(seed: int, settings: Mapping[str, Any], told: Callable[[Chance, Change], bytes | None]) -> Stream:
    """Returns a stream of which `told` makes each value."""
    chance = Chance(2000 + seed)
    records = _records(chance, False, 2, lambda change: told(chance, change), lambda number: key_text(id=number))
    return Stream(tuple(records), {"key": {"format": "json"}, **settings}, (), 2)


def documents(form: str) -> Stream:
    """Returns Debezium's changes of a collection of MongoDB, whose documents are text: json or avro."""
    chance, schemas = Chance(3000), Schemas()
    source = Struct("Source", (Member("connector", STRING), Member("ts_ms", LONG), Member("collection", STRING)))
    images = (Member("before", STRING), Member("after", STRING))
    shape = Struct("Envelope", (*images, Member("source", source), Member("op", STRING), Member("ts_ms", LONG)))
    values = _encoding(form, (shape,), schemas)
    keys = _encoding(form, (Struct("Key", (Member("id", STRING),)),), schemas)

    def document(change: Change) -> str:
        row = change.after or {}
        extended = {
            "_id": {"$oid": f"596e275826f08b2730{change.number:06x}"},
            "kind": row["kind"],
            "amount": {"$numberDecimal": decimal_text(row["amount"])},
            "quantity": {"$numberLong": str(row["quantity"])},
            "changedAt": {"$date": row["changedAt"]},
            "ratio": chance.one(({"$numberDouble": "NaN"}, 1.5, {"$numberDouble": "0.25"})),
            "place": row["place"],
            "tags": row["tags"],
            "raw": {"$binary": {"base64": "AAE=", "subType": "00"}},
        }
        return json.dumps(extended, ensure_ascii=False)

    def value_of(change: Change) -> bytes | None:
        if change.op == "tombstone":
            return None
        after = document(change) if change.after is not None and chance.maybe(0.97) else None
        after = chance.one(("[4]", '{"_id": 3', '{"x": 1}')) if chance.maybe(0.02) else after
        told = {"connector": "mongodb", "ts_ms": change.at_ms, "collection": "orders"}
        return values.encode(
            0, {"before": None, "after": after, "source": told, "op": change.op, "ts_ms": change.at_ms}
        )

    def key_of(number: int) -> bytes:
        return keys.encode(0, {"id": json.dumps({"$oid": f"596e275826f08b2730{number:06x}"})})

    records = tuple(_records(chance, False, 2, value_of, key_of))
    settings = {"value": dict(values.settings), "key": dict(keys.settings), "envelope": "debezium"}
    return Stream(records, settings, tuple(schemas.texts), 2)
