"""Types of fields as no format has them, and each value as a format writes it.

A value is a Python value without a format: a decimal is its unscaled number (two digits after the point), a moment
milliseconds and a day days since 1970, a struct a dict.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

DECIMAL_DIGITS, DECIMAL_SCALE = 12, 2
_CONNECT = "org.apache.kafka.connect.data."
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Plain:
    """A type without parts: long, int, double, boolean, string, bytes, decimal, moment or day."""

    name: str


@dataclass(frozen=True)
class ListOf:
    """A list."""

    element: Kind


@dataclass(frozen=True)
class MapOf:
    """A map from text."""

    value: Kind


@dataclass(frozen=True)
class Member:
    """A field of a struct."""

    name: str
    kind: Kind
    is_required: bool = False


@dataclass(frozen=True)
class Struct:
    """A record with a name."""

    name: str
    members: tuple[Member, ...]


Kind = Plain | ListOf | MapOf | Struct
LONG, INT, DOUBLE, BOOLEAN = Plain("long"), Plain("int"), Plain("double"), Plain("boolean")
STRING, BYTES, DECIMAL, MOMENT, DAY = map(Plain, ("string", "bytes", "decimal", "moment", "day"))


def moment_text(number: int) -> str:
    """Returns a moment as ISO 8601 text."""
    return (_EPOCH + timedelta(milliseconds=number)).isoformat().replace("+00:00", "Z")


def day_text(number: int) -> str:
    """Returns a day as ISO 8601 text."""
    return (date(1970, 1, 1) + timedelta(days=number)).isoformat()


def decimal_text(number: int) -> str:
    """Returns a decimal in plain digits."""
    sign, digits = ("-" if number < 0 else ""), str(abs(number)).rjust(DECIMAL_SCALE + 1, "0")
    return f"{sign}{digits[:-DECIMAL_SCALE]}.{digits[-DECIMAL_SCALE:]}"


def decimal_bytes(number: int) -> bytes:
    """Returns a decimal as Avro and Kafka Connect write it."""
    return number.to_bytes(8, "big", signed=True)


def base64_text(value: bytes) -> str:
    """Returns bytes as base64."""
    return base64.b64encode(value).decode()


def json_value(kind: Kind, value: Any) -> Any:
    """Returns a value as JSON without a schema has it: decimals, moments, days and bytes are text."""
    match kind:
        case _ if value is None:
            return None
        case Struct(_, members):
            return {one.name: json_value(one.kind, value[one.name]) for one in members if one.name in value}
        case ListOf(element):
            return [json_value(element, one) for one in value]
        case MapOf(inner):
            return {name: json_value(inner, one) for name, one in value.items()}
        case Plain(name) if name in _TEXTS:
            return _TEXTS[name](value)
    return value


def connect_value(kind: Kind, value: Any) -> Any:
    """Returns a value as Kafka Connect's JSON converter has it: moments and days are numbers, decimals base64."""
    match kind:
        case _ if value is None:
            return None
        case Struct(_, members):
            return {one.name: connect_value(one.kind, value.get(one.name)) for one in members}
        case ListOf(element):
            return [connect_value(element, one) for one in value]
        case MapOf(inner):
            return {name: connect_value(inner, one) for name, one in value.items()}
        case Plain("decimal"):
            return base64_text(decimal_bytes(value))
        case Plain("bytes"):
            return base64_text(value)
    return value


def connect_schema(kind: Kind) -> dict[str, Any]:
    """Returns the schema of Kafka Connect's JSON converter."""
    match kind:
        case Struct(name, members):
            fields = [
                {**connect_schema(one.kind), "field": one.name, "optional": not one.is_required} for one in members
            ]
            return {"type": "struct", "name": name, "fields": fields, "optional": True}
        case ListOf(element):
            return {"type": "array", "items": {**connect_schema(element), "optional": True}}
        case MapOf(inner):
            return {"type": "map", "keys": {"type": "string"}, "values": {**connect_schema(inner), "optional": True}}
    return dict(_CONNECT_TYPES[kind.name])


def avro_schema(kind: Kind, known: set[str]) -> Any:
    """Returns the Avro schema. known: the names of records that were described before; those of this schema are added."""
    match kind:
        case Struct(name, members):
            if name in known:
                return name
            known.add(name)
            fields = []
            for one in members:
                schema = avro_schema(one.kind, known)
                fields.append({"name": one.name, "type": schema if one.is_required else ["null", schema]})
            return {"type": "record", "name": name, "fields": fields}
        case ListOf(element):
            return {"type": "array", "items": ["null", avro_schema(element, known)]}
        case MapOf(inner):
            return {"type": "map", "values": ["null", avro_schema(inner, known)]}
    return _AVRO_TYPES[kind.name]


def avro_value(kind: Kind, value: Any) -> Any:
    """Returns a value as fastavro writes it."""
    match kind:
        case _ if value is None:
            return None
        case Struct(_, members):
            return {one.name: avro_value(one.kind, value.get(one.name)) for one in members}
        case ListOf(element):
            return [avro_value(element, one) for one in value]
        case MapOf(inner):
            return {name: avro_value(inner, one) for name, one in value.items()}
        case Plain("decimal"):
            return decimal_bytes(value)
    return value


def json_schema(kind: Kind) -> dict[str, Any]:
    """Returns the JSON Schema of `json_value`."""
    match kind:
        case Struct(_, members):
            properties = {}
            for one in members:
                schema = json_schema(one.kind)
                properties[one.name] = schema if one.is_required else {"oneOf": [{"type": "null"}, schema]}
            return {"type": "object", "properties": properties}
        case ListOf(element):
            return {"type": "array", "items": json_schema(element)}
        case MapOf(inner):
            return {"type": "object", "additionalProperties": json_schema(inner)}
    return dict(_JSON_TYPES[kind.name])


_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "decimal": decimal_text,
    "moment": moment_text,
    "day": day_text,
    "bytes": base64_text,
}
"""Types that JSON without a schema writes as text."""
_CONNECT_TYPES: Mapping[str, Mapping[str, Any]] = {
    "long": {"type": "int64"},
    "int": {"type": "int32"},
    "double": {"type": "double"},
    "boolean": {"type": "boolean"},
    "string": {"type": "string"},
    "bytes": {"type": "bytes"},
    "decimal": {
        "type": "bytes",
        "name": f"{_CONNECT}Decimal",
        "version": 1,
        "parameters": {"scale": str(DECIMAL_SCALE), "connect.decimal.precision": str(DECIMAL_DIGITS)},
    },
    "moment": {"type": "int64", "name": f"{_CONNECT}Timestamp", "version": 1},
    "day": {"type": "int32", "name": f"{_CONNECT}Date", "version": 1},
}
_AVRO_TYPES: Mapping[str, Any] = {
    **{name: name for name in ("long", "int", "double", "boolean", "string", "bytes")},
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": DECIMAL_DIGITS, "scale": DECIMAL_SCALE},
    "moment": {"type": "long", "logicalType": "timestamp-millis"},
    "day": {"type": "int", "logicalType": "date"},
}
_JSON_TYPES: Mapping[str, Mapping[str, Any]] = {
    "long": {"type": "integer"},
    "int": {"type": "integer", "connect.type": "int32"},
    "double": {"type": "number"},
    "boolean": {"type": "boolean"},
    "string": {"type": "string"},
    "bytes": {"type": "string", "contentEncoding": "base64"},
    "decimal": {"type": "string"},
    "moment": {"type": "string", "format": "date-time"},
    "day": {"type": "string", "format": "date"},
}
