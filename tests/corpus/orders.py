"""A topic of orders in every format: the same fields, two versions of their schema, odd values and damaged records."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.corpus.shapes import (
    BOOLEAN,
    BYTES,
    DAY,
    DECIMAL,
    DOUBLE,
    INT,
    LONG,
    MOMENT,
    STRING,
    ListOf,
    MapOf,
    Member,
    Struct,
    day_text,
    decimal_text,
    json_value,
)
from tests.corpus.topics import (
    FIRST_MS,
    STEP_MS,
    Encode,
    Encoding,
    Record,
    Schemas,
    Stream,
    avro,
    connect_json,
    framed,
    key_text,
    plain_json,
    registered_json,
    spoiled,
)
from tests.simulation.judge.chance import Chance
from tests.simulation.judge.json_chance import odd_text
from tests.simulation.judge.proto_messages import Field, message_class, proto_text

COUNT = 640
KEYS = 150
_PLACE = (Member("x", INT), Member("label", STRING))
_ITEM = Struct("Item", _PLACE)
_FIELDS = (
    Member("id", LONG, is_required=True),
    Member("kind", STRING),
    Member("email", STRING),
    Member("phone", STRING),
    Member("amount", DECIMAL),
    Member("quantity", INT),
    Member("price", DOUBLE),
    Member("paid", BOOLEAN),
    Member("createdAt", MOMENT),
    Member("day", DAY),
    Member("place", Struct("Place", _PLACE)),
    Member("tags", ListOf(STRING)),
    Member("attributes", MapOf(STRING)),
    Member("items", ListOf(_ITEM)),
    Member("note", STRING),
    Member("data", BYTES),
)
_WIDER = {
    "quantity": Member("quantity", LONG),
    "place": Member("place", Struct("Place", (*_PLACE, Member("zip", INT)))),
}
VERSIONS = (
    Struct("Order", _FIELDS),
    Struct("Order", (*(_WIDER.get(one.name, one) for one in _FIELDS), Member("channel", STRING))),
)
_NOTES = ("", "a note", "é 😀", 'with "quotes"', "two\nlines", "12", "true", "2026-01-31", "x" * 200)


def order(chance: Chance, number: int, version: int) -> dict[str, Any]:
    """Returns the fields of an order."""
    place: dict[str, Any] = {"x": chance.between(-9, 99), "label": chance.one(("Rome", "Oslo", "größe", None))}
    if version and chance.maybe(0.7):
        place["zip"] = chance.upto(99999)
    row = {
        "id": number,
        "kind": chance.one(("order", "order", "visit", "refund", None)),
        "email": f"User{number}@Example.org" if chance.maybe(0.9) else None,
        "phone": f"+49 30 {chance.upto(10**6):06}",
        "amount": chance.between(-10_000, 10**8) if chance.maybe(0.9) else 0,
        "quantity": chance.between(0, 2**40) if version and chance.maybe(0.3) else chance.upto(50),
        "price": chance.upto(10**6) / 8,
        "paid": chance.maybe(0.5),
        "createdAt": FIRST_MS + chance.between(-(10**10), 10**10),
        "day": chance.between(10_000, 22_000),
        "place": place if chance.maybe(0.9) else None,
        "tags": [chance.one(("a", "b", "", "tag")) for _ in range(chance.upto(3))],
        "attributes": {f"k{chance.upto(4)}": chance.one(("v", "", "w")) for _ in range(chance.upto(2))},
        "items": [{"x": chance.upto(9), "label": chance.one(("i", "j"))} for _ in range(chance.upto(2))],
        "note": chance.one(_NOTES),
        "data": chance.one((b"", b"\0\xff", b"text")),
    }
    if version:
        row["channel"] = chance.one(("web", "shop"))
    nullable = [name for name in row if name != "id" and chance.maybe(0.03)]
    return {**row, **dict.fromkeys(nullable)}


def orders(form: str) -> Stream:
    """Returns the topic in a format: json, connect, json_schema, avro, apicurio, latest or protobuf."""
    chance, schemas = Chance(sum(form.encode())), Schemas()
    encoding = _ENCODINGS[form](schemas)
    encode = _with_odd_values(chance) if form == "json" else encoding.encode
    records = tuple(_record(chance, place, encode) for place in range(COUNT))
    texts = frozenset(("amount", "day")) if form == "protobuf" else frozenset[str]()
    return Stream(records, {"value": dict(encoding.settings)}, tuple(schemas.texts), 2, texts)


def _record(chance: Chance, place: int, encode: Encode) -> Record:
    number, version = chance.upto(KEYS), int(place >= COUNT // 2 and chance.maybe(0.5))
    value: bytes | None = encode(version, order(chance, number, version))
    if chance.maybe(0.03):
        value = spoiled(chance, value or b"")
    elif chance.maybe(0.02):
        value = None
    key = key_text(id=number) if chance.maybe(0.98) else chance.one((None, b"x", b"{", key_text(id=None)))
    headers: list[tuple[str, bytes | None]] = [("trace", f"t{place}".encode())]
    if chance.maybe(0.7):
        headers.append(("count", chance.one((b"7", b"12", b"x", None))))
    if chance.maybe(0.7):
        headers.append(("context", chance.one((b'{"user": "ann", "roles": ["a"]}', b"{}", b"{", b'{"user": 1}'))))
    if chance.maybe(0.9):
        headers.append(("kind", chance.one((b"order", b"visit", b"no name", b"\xff"))))
    at_ms = FIRST_MS + place * STEP_MS if chance.maybe(0.98) else -1
    return Record(value, key, number % 2, at_ms, tuple(headers))


def _with_odd_values(chance: Chance) -> Encode:
    """Returns an encoding to JSON of which some values, names and spaces are not as expected."""

    def encode(version: int, value: Any) -> bytes:
        fields = json_value(VERSIONS[version], value)
        pairs = [(name, json.dumps(one, ensure_ascii=chance.maybe(0.5))) for name, one in fields.items()]
        if chance.maybe(0.12):
            place = chance.upto(len(pairs) - 1)
            pairs[place] = (pairs[place][0], odd_text(chance))
        if chance.maybe(0.04):
            pairs.append((chance.one(("extra", "Extra", "", "kind", "KIND", "a.b", "_pos")), odd_text(chance)))
        if chance.maybe(0.03):
            place = chance.upto(len(pairs) - 1)
            pairs[place] = (pairs[place][0].upper(), pairs[place][1])
        space = chance.one((" ", "", "\n\t"))
        return ("{" + f",{space}".join(f"{json.dumps(name)}:{space}{text}" for name, text in pairs) + "}").encode()

    return encode


def _protobuf(schemas: Schemas) -> Encoding:
    kinds = ("string", "string", "string", "string", "int32", "double", "bool", "Timestamp", "string", "Point")
    names = ("kind", "email", "phone", "amount", "quantity", "price", "paid", "createdAt", "day", "place")
    labels = {"quantity": "optional", "paid": "optional"}
    first = [Field(1, "id", "int64")]
    first += [
        Field(n, name, kind, labels.get(name, "")) for n, (name, kind) in enumerate(zip(names, kinds, strict=True), 2)
    ]
    first += [Field(20, "tags", "string", "repeated"), Field(21, "attributes", "string", "map")]
    first += [
        Field(22, "items", "Point", "repeated"),
        Field(23, "note", "string", "optional"),
        Field(24, "data", "bytes"),
    ]
    second = [Field(one.number, one.name, "int64", one.label) if one.name == "quantity" else one for one in first]
    versions = (tuple(first), (*second, Field(50, "channel", "string")))
    ids = [schemas.register("protobuf", proto_text(version)) for version in versions]

    def encode(version: int, value: Any) -> bytes:
        message = message_class(versions[version])()
        for name, one in value.items():
            if one is not None:
                _fill(message, name, one)
        return framed(ids[version]) + b"\0" + bytes(message.SerializeToString(deterministic=True))

    return Encoding({"format": "protobuf"}, encode)


def _fill(message: Any, name: str, value: Any) -> None:
    match name:
        case "createdAt":
            message.createdAt.seconds, message.createdAt.nanos = value // 1000, value % 1000 * 10**6
        case "place":
            message.place.SetInParent()
            _set_point(message.place, value)
        case "items":
            for one in value:
                _set_point(message.items.add(), one)
        case "tags":
            message.tags.extend(value)
        case "attributes":
            message.attributes.update(value)
        case _:
            texts: dict[str, Callable[[int], str]] = {"amount": decimal_text, "day": day_text}
            setattr(message, name, texts[name](value) if name in texts else value)


def _set_point(message: Any, value: dict[str, Any]) -> None:
    message.x = value["x"]
    if value["label"] is not None:
        message.label = value["label"]


_ENCODINGS: dict[str, Callable[[Schemas], Encoding]] = {
    "json": lambda _: plain_json(VERSIONS),
    "connect": lambda _: connect_json(VERSIONS),
    "json_schema": lambda schemas: registered_json(VERSIONS, schemas),
    "avro": lambda schemas: avro(VERSIONS, schemas),
    "apicurio": lambda schemas: avro(VERSIONS, schemas, "apicurio"),
    "latest": lambda schemas: avro(VERSIONS, schemas, "", "t-value"),
    "protobuf": _protobuf,
}
FORMS = tuple(_ENCODINGS)
