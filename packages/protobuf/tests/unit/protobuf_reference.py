"""Writes docs/reference/protobuf.md from what the reader does: `make docs`. The tests compare the two."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any

from google.protobuf import text_format
from google.protobuf.message_factory import GetMessageClass

from docs.scan import ROOT
from frazil.decode.lossless import format_type
from frazil_protobuf.reader import ProtobufReader
from frazil_protobuf.schema import load_message
from packages.protobuf.tests.unit.protobuf_schemas import bodies_of, descriptors_of, fault_of, reader_of, rows_of

PAGE = ROOT / "docs" / "reference" / "protobuf.md"

_LARGEST = 2**64 - 1
_PROTO3 = """
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Color { NONE = 0; RED = 1; }
enum Size { option allow_alias = true; SMALL = 0; TINY = 0; BIG = 1; }
message Point { int32 x = 1; optional string label = 2; }
message Tree { string name = 1; repeated Tree branches = 2; }
message Void {}
"""
_PROTO2 = """
enum Level { HIGH = 7; LOW = 1; }
message Part { required int32 id = 1; }
"""
_EDITION = """
enum Color { NONE = 0; RED = 1; }
message Point { int32 x = 1; }
"""

Rows = tuple[tuple[str, str, tuple[str, ...]], ...]
"""What the row is about, how its field is declared, and messages in Protobuf's text format."""

SCALARS: Rows = (
    ("int32, sint32, sfixed32", "int32 v = 1;", ("", "v: -1", "v: 2147483647")),
    ("sint32", "sint32 v = 1;", ("v: -2147483648",)),
    ("sfixed32", "sfixed32 v = 1;", ("v: -2147483648",)),
    ("uint32, fixed32", "uint32 v = 1;", ("", "v: 4294967295")),
    ("fixed32", "fixed32 v = 1;", ("v: 4294967295",)),
    ("int64, sint64, sfixed64", "int64 v = 1;", ("", "v: -9223372036854775808")),
    ("sint64", "sint64 v = 1;", ("v: -9223372036854775808",)),
    ("sfixed64", "sfixed64 v = 1;", ("v: 9223372036854775807",)),
    ("uint64, fixed64", "uint64 v = 1;", ("", f"v: {_LARGEST}")),
    ("fixed64", "fixed64 v = 1;", (f"v: {_LARGEST}",)),
    ("float", "float v = 1;", ("", "v: 1.5", "v: nan", "v: -inf")),
    ("double", "double v = 1;", ("", "v: 0.1", "v: inf")),
    ("bool", "bool v = 1;", ("", "v: true")),
    ("string", "string v = 1;", ("", 'v: "é"')),
    ("bytes", "bytes v = 1;", ("", r'v: "\000\377"')),
    ("enum: the name; a number without a name as digits", "Color v = 1;", ("", "v: RED", "v: 7")),
    ("enum with aliases: the first declared name", "Size v = 1;", ("v: TINY",)),
)
SHAPES: Rows = (
    ("optional", "optional int32 v = 1;", ("", "v: 0")),
    ("message", "Point v = 1;", ("", "v {}", 'v { x: 1 label: "a" }')),
    ("repeated, packed or not", "repeated int32 v = 1;", ("", "v: [1, 2]")),
    ("repeated message", "repeated Point v = 1;", ("v: [{ x: 1 }, {}]",)),
    ("map", "map<string, int64> v = 1;", ("", 'v { key: "a" value: 1 }', 'v { key: "a" value: 1 } v { key: "a" value: 2 }')),
    ("map with other keys", "map<uint64, Point> v = 1;", ("v { key: 1 }",)),
    ("", "map<bool, Color> v = 1;", ("v { key: true value: RED }",)),
    ("oneof: a column for each member", "oneof v { int32 a = 1; string b = 2; }", ("", "a: 0", 'b: "x"')),
    ("a message without fields: true if present", "Void v = 1;", ("", "v {}")),
    ("a recursive message: its JSON", "Tree v = 1;", ('v { name: "a" branches { name: "b" } }',)),
)  # fmt: skip
WELL_KNOWN: Rows = (
    ("Timestamp: truncated to microseconds (towards the past)", "google.protobuf.Timestamp v = 1;",
     ("", "v { seconds: 1 nanos: 1999 }", "v { seconds: -1 nanos: 999999999 }", "v { seconds: 253402300800 }",
      "v { nanos: -1 }")),
    ("Duration: truncated to microseconds (towards zero)", "google.protobuf.Duration v = 1;",
     ("", "v { seconds: 1 nanos: 1999 }", "v { seconds: -1 nanos: -1999 }", "v { seconds: 315576000001 }",
      "v { seconds: 1 nanos: -1 }")),
    ("DoubleValue", "google.protobuf.DoubleValue v = 1;", ("", "v {}", "v { value: 0.5 }")),
    ("FloatValue", "google.protobuf.FloatValue v = 1;", ("v { value: 0.5 }",)),
    ("Int64Value", "google.protobuf.Int64Value v = 1;", ("v { value: -1 }",)),
    ("UInt64Value", "google.protobuf.UInt64Value v = 1;", (f"v {{ value: {_LARGEST} }}",)),
    ("Int32Value", "google.protobuf.Int32Value v = 1;", ("v { value: -1 }",)),
    ("UInt32Value", "google.protobuf.UInt32Value v = 1;", ("v { value: 4294967295 }",)),
    ("BoolValue", "google.protobuf.BoolValue v = 1;", ("v {}",)),
    ("StringValue", "google.protobuf.StringValue v = 1;", ("", "v {}")),
    ("BytesValue", "google.protobuf.BytesValue v = 1;", ('v { value: "a" }',)),
    ("Struct: JSON, keys in alphabetical order", "google.protobuf.Struct v = 1;",
     ("", "v {}", 'v { fields { key: "b" value { number_value: 1.5 } } fields { key: "a" value { null_value: 0 } } }',
      'v { fields { key: "a" value { number_value: nan } } }')),
    ("Value", "google.protobuf.Value v = 1;", ("", "v {}", 'v { string_value: "x" }', "v { bool_value: true }")),
    ("ListValue", "google.protobuf.ListValue v = 1;", ("v { values { number_value: 2 } values { string_value: \"x\" } }",)),
    ("Any", "google.protobuf.Any v = 1;", ('v { type_url: "example.com/T" value: "a" }',)),
    ("FieldMask", "google.protobuf.FieldMask v = 1;", ("", "v {}", 'v { paths: "a.b" }')),
    ("Empty", "google.protobuf.Empty v = 1;", ("", "v {}")),
)  # fmt: skip
OLD: Rows = (
    ("optional; a declared default is not used", "optional int32 v = 1 [default = 5];", ("", "v: 5")),
    ("required", "required int32 v = 1;", ("", "v: 0")),
    ("required, in a message", "optional Part v = 1;", ("", "v {}", "v { id: 1 }")),
    ("enum: a number without a name too", "optional Level v = 1;", ("", "v: LOW")),
    ("group", "optional group V = 1 { optional int32 x = 1; }", ("", "V { x: 1 }")),
    ("extensions are not read", "extensions 100 to 199;", ("",)),
)
EDITIONS: Rows = (
    ("explicit presence, the default", "int32 v = 1;", ("", "v: 0")),
    ("implicit presence", "int32 v = 1 [features.field_presence = IMPLICIT];", ("",)),
    ("required", "int32 v = 1 [features.field_presence = LEGACY_REQUIRED];", ("", "v: 0")),
    ("delimited message", "Point v = 1 [features.message_encoding = DELIMITED];", ("v { x: 1 }",)),
)
SECTIONS: tuple[tuple[str, str, str, Rows], ...] = (
    ("Scalars and enums (proto3)", 'syntax = "proto3";', _PROTO3, SCALARS),
    ("Presence, lists, maps and messages (proto3)", 'syntax = "proto3";', _PROTO3, SHAPES),
    ("Well-known types", 'syntax = "proto3";', _PROTO3, WELL_KNOWN),
    ("proto2", 'syntax = "proto2";', _PROTO2, OLD),
    ("Editions", 'edition = "2023";', _EDITION, EDITIONS),
)

_TROUBLED = (
    'syntax = "proto3"; message M { int32 a = 1; string b = 2; M c = 3; repeated fixed32 d = 4; '
    "oneof o { M e = 5; bool f = 6; } }"
)
TROUBLES: tuple[tuple[str, bytes], ...] = (
    ("no bytes", b""),
    ("`a` twice: the last value wins", b"\x08\x01\x08\x02"),
    ("`a` with more than 32 bits: the low 32 bits are used, as in the Protobuf guide", b"\x08\x81\x80\x80\x80\x10"),
    ("`a` as text: another wire type is an unknown field", b"\x0a\x01x"),
    ("unknown fields, groups among them", b"\x98\x06\x01\xa3\x06\x08\x05\xa4\x06\x08\x01"),
    ("`c` in two parts: they are merged", b"\x1a\x02\x08\x01\x1a\x03\x12\x01x"),
    ("`e`, then `f` of the same oneof", b"\x2a\x02\x08\x01\x30\x01"),
    ("a field cut short", b"\x08"),
    ("a length beyond the end", b"\x12\x05ab"),
    ("a length of four GiB", b"\x12\xff\xff\xff\xff\x0f"),
    ("a varint of eleven bytes", b"\x08" + b"\xff" * 10 + b"\x01"),
    ("field number 0", b"\x00\x01"),
    ("wire type 7", b"\x0f"),
    ("a group that does not end", b"\xa3\x06\x08\x05"),
    ("the end of a group without a beginning", b"\xa4\x06"),
    ("packed values cut short", b"\x22\x03abc"),
    ("a string that is not UTF-8", b"\x12\x01\xff"),
    ("unknown groups, 64 in each other", b"\xa3\x06" * 64 + b"\xa4\x06" * 64),
    ("unknown groups, 65 in each other", b"\xa3\x06" * 65 + b"\xa4\x06" * 65),
    ("a message nested 1,000 times", b""),
)

_NOTE = "\nGenerated from the decoder by `make docs`; a test verifies it."

_INTRODUCTION = """\
# Protobuf types

A record's value is one message; each field is a column with its name in the .proto file, matched [without regard to
case](../guides/names.md#capitals). The registry's schema defines the fields; unknown fields are skipped, as Protobuf
does. All columns are optional. An absent field with presence (`optional`, messages, members of a oneof) is null; an
absent field without presence has Protobuf's default; lists and maps are empty.

Protobuf's rules for repeated occurrences apply: the last value of a field wins, parts of a message are merged, the last
entry of a map key wins, lists may be packed or not. Enums are the exception: a number without a name is stored as its
digits, even in closed enums (as in proto2), where Protobuf itself hides it.

A recursive message has no finite column type: each recursive value is a string with the value's Protobuf JSON, with
field names as in the .proto file and keys in alphabetical order. This JSON omits numbers without a name in a closed
enum, and requires that the schema contains the type of an `Any`. `Struct`, `Value` and `ListValue` are such strings
too.

If the table has a column of another compatible type, a value is read as [that
type](conversions.md#columns-of-the-underlying-type): an enum or a bool as its number, bytes as text, a message
without fields as a struct of nulls.

A message with more than 2,000 fields (fields of a message that is used twice count twice) or 64 levels of messages is
rejected; records of other messages of its schema are not."""
_TROUBLES_TITLE = f"""
## Whole records

The schema is `{_TROUBLED}`."""


def page() -> str:
    """The page as it should be."""
    return "\n".join([_INTRODUCTION, *_sections(), _TROUBLES_TITLE, *_troubles(), _NOTE]) + "\n"


@lru_cache
def _schema(section: int) -> str:
    _, syntax, more, rows = SECTIONS[section]
    messages = [f"message Row{n} {{ {declaration} }}" for n, (_, declaration, _) in enumerate(rows)]
    return "\n".join([syntax, *more.strip().splitlines(), *messages])


def reader_of_row(section: int, row: int) -> ProtobufReader:
    """The reader of the message whose only field the row declares."""
    return reader_of(_schema(section), f"Row{row}")


def read_row(section: int, row: int, text: str) -> str:
    """What becomes of a message in text format."""
    make = GetMessageClass(load_message(descriptors_of(_schema(section)), f"Row{row}"))
    message: Any = text_format.Parse(text, make())
    return _outcome(reader_of_row(section, row), message.SerializePartialToString())


def _outcome(reader: ProtobufReader, raw: bytes) -> str:
    columns = reader.read(bodies_of([raw]))
    fault = fault_of(columns, 0)
    if fault is not None:
        path = f" (`{columns.paths[0]}`)" if 0 in columns.paths else ""
        return f"rejected: {fault.message}{path}"
    row = rows_of(reader, columns)[0]
    return ", ".join(f"`{name}` {_words(value)}" for name, value in row.items()) or "a row"


def _sections() -> Iterator[str]:
    for section, (title, _, _, rows) in enumerate(SECTIONS):
        yield f"\n## {title}\n\n| Protobuf | Iceberg | examples |\n|---|---|---|"
        for n, (words, declaration, texts) in enumerate(rows):
            kinds = "<br>".join(
                f"`{field.name} {format_type(field.field_type)}`" for field in reader_of_row(section, n).struct.fields
            )
            examples = "<br>".join(f"`{text or '(nothing)'}`: {read_row(section, n, text)}" for text in texts)
            about = f"{words}<br>" if words else ""
            yield f"| {about}`{declaration}` | {kinds or 'no column'} | {_cell(examples)} |"


def _troubles() -> Iterator[str]:
    yield "\n| record | result |\n|---|---|"
    for words, raw in TROUBLES:
        yield f"| {words} | {_cell(_outcome(reader_of(_TROUBLED), raw or _nested(words)))} |"


def _nested(words: str) -> bytes:
    raw = b""
    if "1,000" in words:
        for _ in range(1000):
            raw = b"\x1a" + _varint(len(raw)) + raw
    return raw


def _varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80]) + _varint(number >> 7) if number > 0x7F else bytes([number])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _words(value: Any) -> str:
    if isinstance(value, bytes):
        return f"bytes `{value.hex()}`"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (str, dict, list)):
        return f"`{json.dumps(value, ensure_ascii=False, default=_inner_words)}`"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value)


def _inner_words(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    main()
