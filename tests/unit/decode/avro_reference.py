"""Writes docs/reference/avro.md from what the reader does: `make docs`. The tests compare the two."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.unit.decode.avro_bodies import Node, faults, number, read, reader_of, record_of, spell, text

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "avro.md"


def _logical(kind: str, name: str, **more: int) -> dict[str, str | int]:
    return {"type": kind, "logicalType": name, **more}


def _fixed(size: int, **more: str | int) -> dict[str, str | int]:
    return {"type": "fixed", "name": "f", "size": size, **more}


_POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}]}
_EMPTY = {"type": "record", "name": "Empty", "fields": []}
_NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "id", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
}
_TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "leaves", "type": {"type": "array", "items": "Tree"}}],
}
_TWINS = [
    {"type": "fixed", "name": "a.Key", "size": 2},
    {"type": "fixed", "name": "b.Key", "size": 4},
]

AVRO_TYPES: list[tuple[str, Node, str]] = [
    ("null", "null", "(no column)"),
    ("boolean", "boolean", "boolean"),
    ("int", "int", "int"),
    ("long", "long", "long"),
    ("float", "float", "float"),
    ("double", "double", "double"),
    ("bytes", "bytes", "binary"),
    ("string", "string", "string"),
    ("fixed", _fixed(4), "fixed[4]"),
    ("enum", {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}, "string"),
    ("record", _POINT, "struct<x: int, y: int>"),
    ("record without fields, or of nulls only", _EMPTY, "(no column)"),
    ("array", {"type": "array", "items": "long"}, "list<long>"),
    ("map", {"type": "map", "values": "double"}, "map<string,double>"),
    ("array or map of null", {"type": "map", "values": "null"}, "map<string,boolean>"),
    ("array or map of records without fields", {"type": "array", "items": _EMPTY}, "list<boolean>"),
    ("union of null and one type", ["null", "long"], "long"),
    ("union of one type and null", ["string", "null"], "string"),
    ("union of one type", ["int"], "int"),
    ("union of null alone", ["null"], "(no column)"),
    ("union of null and a record without fields", ["null", _EMPTY], "boolean"),
    (
        "any other union",
        ["null", "int", "string", _POINT],
        "struct<int: int, string: string, Point: struct<x: int, y: int>>",
    ),
    (
        "arrays and maps in a union",
        [{"type": "array", "items": "int"}, {"type": "map", "values": "int"}],
        "struct<array: list<int>, map: map<string,int>>",
    ),
    ("two types with the same short name in a union", _TWINS, "struct<a_Key: fixed[2], b_Key: fixed[4]>"),
    ("record that contains itself", _NODE, "struct<id: int, next: string>"),
    ("record with an array of itself", _TREE, "struct<leaves: list<string>>"),
    ("decimal on bytes", _logical("bytes", "decimal", precision=9, scale=2), "decimal(9,2)"),
    ("decimal on fixed", _fixed(16, logicalType="decimal", precision=38, scale=10), "decimal(38,10)"),
    ("decimal without a scale", _logical("bytes", "decimal", precision=4), "decimal(4,0)"),
    ("decimal of more than 38 digits, on bytes", _logical("bytes", "decimal", precision=39, scale=2), "binary"),
    ("decimal of more than 38 digits, on fixed", _fixed(20, logicalType="decimal", precision=40), "fixed[20]"),
    ("decimal of more digits than its fixed holds", _fixed(2, logicalType="decimal", precision=5), "fixed[2]"),
    ("decimal with a scale above its precision", _logical("bytes", "decimal", precision=2, scale=3), "binary"),
    ("uuid on string", _logical("string", "uuid"), "uuid"),
    ("uuid on fixed", _fixed(16, logicalType="uuid"), "uuid"),
    ("uuid on a fixed of another size", _fixed(15, logicalType="uuid"), "fixed[15]"),
    ("date", _logical("int", "date"), "date"),
    ("time-millis", _logical("int", "time-millis"), "time"),
    ("time-micros", _logical("long", "time-micros"), "time"),
    ("timestamp-millis", _logical("long", "timestamp-millis"), "timestamptz"),
    ("timestamp-micros", _logical("long", "timestamp-micros"), "timestamptz"),
    ("timestamp-nanos", _logical("long", "timestamp-nanos"), "long"),
    ("local-timestamp-millis", _logical("long", "local-timestamp-millis"), "timestamp"),
    ("local-timestamp-micros", _logical("long", "local-timestamp-micros"), "timestamp"),
    ("local-timestamp-nanos", _logical("long", "local-timestamp-nanos"), "long"),
    ("duration", _fixed(12, logicalType="duration"), "fixed[12]"),
    ("a logical type on an invalid underlying type", _logical("string", "timestamp-millis"), "string"),
    ("an unknown logical type", _logical("int", "parsecs"), "int"),
]
"""What each construct of a schema becomes, as the type of a field `v`."""

_LONGS = {"type": "array", "items": "long"}
_NULLS = {"type": "array", "items": "null"}
_MAP = {"type": "map", "values": "int"}
_MILLIS = _logical("long", "timestamp-millis")
AVRO_FAULTS: list[tuple[str, Node, bytes]] = [
    ("truncated", "long", b"\x80"),
    ("no bytes at all", "long", b""),
    ("a double of 7 bytes", "double", bytes(7)),
    ("trailing bytes", "long", b"\x02\x00"),
    ("a number of 11 bytes", "long", b"\x80" * 10 + b"\x00"),
    ("a number of 65 bits", "long", b"\xff" * 9 + b"\x02"),
    ("an int of 33 bits", "int", number(2**31)),
    ("a boolean of 2", "boolean", b"\x02"),
    ("a string of length -1", "string", number(-1)),
    ("a string longer than the remaining body", "string", number(2**40) + b"x"),
    ("bytes that are not UTF-8 in a string", "string", b"\x04\xc3\x28"),
    ("a surrogate (CESU-8) in a string", "string", b"\x06\xed\xa0\x80"),
    ("branch 2 of a union of two", ["null", "int"], b"\x04\x00"),
    ("branch -1", ["null", "int"], b"\x01\x00"),
    ("symbol 2 of an enum of two", {"type": "enum", "name": "e", "symbols": ["A", "B"]}, b"\x04"),
    ("an array that announces more items than there are bytes", _LONGS, number(2**40)),
    ("an array of 1,000,001 items", _LONGS, number(1_000_001) + bytes(1_000_002)),
    ("an array of 1,001 nulls", _NULLS, number(1001) + b"\x00"),
    ("an array of 2,000,000,000 nulls", _NULLS, number(2_000_000_000) + b"\x00"),
    ("a block whose size is wrong", _LONGS, number(-1) + number(2) + b"\x02\x00"),
    ("a block whose size goes beyond the body", _LONGS, number(-1) + number(9) + b"\x02\x00"),
    ("the same key twice in a map", _MAP, number(2) + text("a") + b"\x02" + text("a") + b"\x02\x00"),
    ("a record inside itself, 65 levels deep", _NODE, b"\x02\x02" * 64 + b"\x02\x00"),
    ("a decimal(4,2) of 10,000", _logical("bytes", "decimal", precision=4, scale=2), b"\x04\x27\x10"),
    ("a decimal without bytes", _logical("bytes", "decimal", precision=4, scale=2), b"\x00"),
    ("a uuid without dashes", _logical("string", "uuid"), text("f81d4fae7dec11d0a76500a0c91e6bf6")),
    ("24:00:00", _logical("int", "time-millis"), number(86_400_000)),
    ("a time before midnight", _logical("long", "time-micros"), number(-1)),
    ("2**63 / 1000 milliseconds", _MILLIS, number(2**63 // 1000 + 1)),
]
"""Bodies that are refused; the schema is that of a field `v`, the body that of a record with it."""

_NOTE = "\nGenerated from the decoder by `make docs`; a test verifies it."

_INTRODUCTION = """\
# Avro types

A record is decoded with its writer's schema ([Avro 1.12](https://avro.apache.org/docs/1.12.0/specification/)), from its
first byte to its last. Each field of the schema's record is a column, or a field of a struct, with the same name; a
schema that is not a record has one column, `value`. A schema that is a union of null and a record is read as the
record, as Kafka Connect writes optional structs; its null is a bad record. All columns are optional. Values are never
rounded, truncated or converted; NaN and infinities are kept.

## Types"""
_NOTES = """
- At most one field of a union struct is set, or none for null. Its fields have Avro's names of the branches: the name
  of a primitive type, `array`, `map`, the name of a named type without its namespace or, if that is not unique, with it
  (dots become underscores). A union of null and one other type is that type; [the effect of adding a second
  type](conversions.md#unions-that-change).
- A record that contains itself has no finite column type. Each recursive value is a string with the value's JSON: bytes
  and fixed as base64, logical types as their underlying types, NaN and infinities as strings, a union as above (an
  object with one member, the branch).
- Null and a record without fields have no column; as an element or map value null is null, and a record without fields
  is `true` there and in a union.
- `timestamp-nanos` and `local-timestamp-nanos` are the number of nanoseconds. A column declared as `timestamptz(ns)` or
  `timestamp(ns)` has their microsecond.
- If the table has a column of the underlying type, or of another compatible type, a value is read as [that
  type](conversions.md#columns-of-the-underlying-type): `uuid` as text, times as their numbers, decimals as their
  bytes, a record without fields as a struct of nulls.
- Logical types that the Avro specification ignores are ignored, and so are unknown attributes. A `logicalType` next to
  a field's `type`, as in `{"name": "ts", "type": "long", "logicalType": "timestamp-millis"}`, is ignored too: `check`,
  `plan` and the log report it, and `value: {format: avro, logical_types: lenient}` applies it.
- Aliases are previous names of a column in the same record type. Defaults have no effect, because every record is decoded
  with its own schema.

## Rejected records

A rejected record affects no other record. The class is the error class, the path the invalid field."""
_LIMITS = """
## Rejected schemas

A schema is rejected if it violates the Avro specification or has more than 1 MiB of text with all references, 64 levels
of records, arrays and maps, 2,000 fields, a fixed of more than 65,536 bytes, or a record that contains itself without an
optional type between. Names consist of alphanumeric characters, of any alphabet as in Avro's Java library, and
underscores. A namespace may be any text, such as `db-1.shop`."""


def page() -> str:
    """The page as it should be."""
    return "\n".join([_INTRODUCTION, *_types(), _NOTES, *_faults(), _LIMITS, _NOTE]) + "\n"


def column_type(node: Node) -> str:
    """The type of a field with this schema, in words."""
    fields = reader_of(record_of(v=node)).struct.fields
    return spell(fields[0].field_type) if fields else "(no column)"


def _types() -> Iterator[str]:
    yield "\n| Avro | example | Iceberg |\n|---|---|---|"
    for words, node, _ in AVRO_TYPES:
        kind = column_type(node)
        yield f"| {words} | `{json.dumps(node)}` | {kind if kind.startswith('(') else f'`{kind}`'} |"


def _faults() -> Iterator[str]:
    yield "\n| record | class | path | reason |\n|---|---|---|---|"
    for words, node, body in AVRO_FAULTS:
        ((_, kind, path, message),) = faults(read(record_of(v=node), [body]))
        yield f"| {words} | `{kind}` | {f'`{path}`' if path else 'the record'} | {message} |"


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    main()
