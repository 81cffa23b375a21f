"""The independent rules for Protobuf: protoc compiles the schema, Protobuf's library reads the message."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import text_format

from frazil_verify.model import proto_files, protobuf
from frazil_verify.model.faults import NotRead, Unreadable
from frazil_verify.model.proto_files import messages_of
from frazil_verify.model.settings import Settings, table_of
from frazil_verify.model.types import parse_type
from frazil_verify.model.written import timestamp

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/wrappers.proto";
import "parts/size.proto";
message First { int32 a = 1; }
message Order {
  message Part { int32 x = 1; optional string label = 2; }
  message Void {}
  enum Colour { option allow_alias = true; NONE = 0; RED = 1; CRIMSON = 1; }
  uint64 id = 1;
  optional int32 n = 2;
  Colour colour = 3;
  repeated Colour colours = 4;
  map<string, Part> parts = 5;
  oneof one { int32 left = 6; string right = 7; }
  google.protobuf.Timestamp at = 8;
  google.protobuf.Duration took = 9;
  google.protobuf.FieldMask mask = 10;
  google.protobuf.StringValue note = 11;
  Void void = 12;
  bool ok = 13;
  uint32 small = 14;
  Size size = 15;
}
"""
SIZE = 'syntax = "proto3"; enum Size { SMALL = 0; LARGE = 5; }'
COLUMNS = {
    "id": "decimal(20,0)", "n": "int", "colour": "string", "colours": "list<string>",
    "parts": "map<string, struct<x: int, label: string>>", "left": "int", "right": "string", "at": "timestamptz",
    "took": "long", "mask": "list<string>", "note": "string", "void": "boolean", "ok": "boolean", "small": "long",
    "size": "string",
}  # fmt: skip


def messages() -> protobuf.Messages:
    """The messages of the schema."""
    return messages_of(PROTO, (("parts/size.proto", SIZE),))


def written(text: str) -> bytes:
    """The value of a record: the second message of the schema, in Protobuf's text format."""
    message = messages().at((1,))
    assert message is not None
    return b"\0\0\0\0\7\x02\x02" + bytes(text_format.Parse(text, message.type()).SerializeToString())


def row_of(value: bytes, columns: Mapping[str, str] = COLUMNS, of: protobuf.Messages | None = None) -> dict[str, Any]:
    """The row of a record."""
    settings = Settings()
    table = table_of({name: parse_type(kind) for name, kind in columns.items()}, {}, settings)
    outcome = protobuf.outcome_of(settings, table, value, {7: of or messages()})
    assert outcome.kinds == set()
    return outcome.row


def test_a_message_without_contents_has_its_defaults() -> None:
    assert row_of(written("")) == {
        "id": 0, "colour": "NONE", "colours": [], "parts": [], "ok": False, "small": 0, "size": "SMALL",
    }  # fmt: skip


def test_values_of_every_kind_are_read() -> None:
    value = written(
        "id: 18446744073709551615 n: 0 colour: 1 colours: [1, 7] parts { key: 'b' value { x: 1 } }"
        " parts { key: 'a' } parts { key: 'b' value { x: 2 label: '' } } right: 'r' at { seconds: -1 nanos: 999999999 }"
        " took { seconds: -1 nanos: -1999 } mask { paths: 'a.b' } note {} void {} ok: true small: 4294967295 size: 9"
    )
    assert row_of(value) == {
        "id": Decimal(2**64 - 1), "n": 0, "colour": "RED", "colours": ["RED", "7"],
        "parts": [("a", {"x": 0}), ("b", {"x": 2, "label": ""})], "right": "r",
        "at": timestamp(-1, has_zone=True), "took": -1000001, "mask": ["a.b"], "note": "", "void": True, "ok": True,
        "small": 2**32 - 1, "size": "9",
    }  # fmt: skip


def test_enums_and_booleans_are_numbers_in_columns_of_numbers() -> None:
    assert row_of(written("colour: 1 ok: true"), {"colour": "int", "ok": "long"}) == {"colour": 1, "ok": 1}


def test_a_number_without_a_name_of_a_closed_enum_is_its_digits() -> None:
    schema = messages_of('syntax = "proto2"; enum Level { LOW = 1; } message M { optional Level v = 1; }')
    values = [b"\0\0\0\0\7\0" + body for body in (b"\x08\x01", b"\x08\x63", b"")]
    rows = [row_of(value, {"v": "string"}, schema) for value in values]
    assert rows == [{"v": "LOW"}, {"v": "99"}, {}]


@pytest.mark.parametrize("path", [b"\0", b"\x02\0"], ids=["first", "by its index"])
def test_the_message_is_that_of_its_indexes(path: bytes) -> None:
    assert row_of(b"\0\0\0\0\7" + path + b"\x08\x05", {"a": "int"}) == {"a": 5}


def test_a_message_inside_of_another_is_found_by_its_indexes() -> None:
    assert row_of(b"\0\0\0\0\7\x04\x02\0\x08\x05", {"x": "int"}) == {"x": 5}


@pytest.mark.parametrize(
    "value",
    [None, b"", b"\0\0\0\0\7", b"\0\0\0\0\x08\0", b"\0\0\0\0\7\x02\x0a", b"\0\0\0\0\7\x02\x02\x08", b"\0\0\0\0\7\x01"],
    ids=["tombstone", "nothing", "no message", "another schema", "another message", "cut short", "a wrong count"],
)
def test_damage_is_seen(value: bytes | None) -> None:
    with pytest.raises(Unreadable):
        protobuf.read_value(value, {7: messages()})


def test_a_required_field_that_is_missing_is_damage() -> None:
    schema = messages_of('syntax = "proto2"; message M { required int32 v = 1; optional string s = 2; }')
    assert row_of(b"\0\0\0\0\7\0\x08\0", {"v": "int"}, schema) == {"v": 0}
    with pytest.raises(Unreadable):
        protobuf.read_value(b"\0\0\0\0\7\0", {7: schema})


def test_a_schema_may_import_one_of_any_name() -> None:
    text = 'syntax = "proto3"; import "schema.proto"; message M { Size v = 1; }'
    schema = messages_of(text, (("schema.proto", SIZE),))
    assert row_of(b"\0\0\0\0\7\0\x08\5", {"v": "string"}, schema) == {"v": "LARGE"}


def test_a_schema_that_takes_too_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proto_files, "_TIMEOUT_S", 0.001)
    with pytest.raises(NotRead, match="protoc needs more than"):
        messages_of('syntax = "proto3"; message Slow { int32 a = 1; }')


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('syntax = "proto3"; message M { M inner = 1; }', "contains itself: M"),
        (
            'syntax = "proto3"; import "google/protobuf/struct.proto"; message M { google.protobuf.Struct s = 1; }',
            "contains itself: google.protobuf.Struct",
        ),
        ('edition = "2023"; message M { int32 a = 1; }', "one of Protobuf's editions"),
        ("no schema", "protoc refuses a schema of its records"),
    ],
    ids=["itself", "struct", "edition", "no schema"],
)
def test_schemas_without_rules_are_named(text: str, words: str) -> None:
    with pytest.raises(NotRead, match=words):
        messages_of(text).at((0,))
