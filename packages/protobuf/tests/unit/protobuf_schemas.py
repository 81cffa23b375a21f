"""Schemas for tests of the Protobuf reader, and short ways to read with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from frazil.decode.columns import Bodies, Columns, Fault
from frazil_protobuf.protoc import compile_proto
from frazil_protobuf.reader import ProtobufReader, protobuf_reader

MONEY = """
syntax = "proto3";
package shop.money;
enum Currency { CURRENCY_NONE = 0; EUR = 1; USD = 2; }
message Amount { Currency currency = 1; sint64 units = 2; fixed32 nanos = 3; }
"""
SHOP = """
syntax = "proto3";
package shop;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "money/amount.proto";

message Order {
  enum State { option allow_alias = true; NEW = 0; PAID = 1; SETTLED = 1; LOST = -3; }
  message Line {
    string sku = 1;
    optional double weight = 2;
    shop.money.Amount price = 3;
    repeated string tags = 4;
    map<string, sint32> counts = 5;
    oneof discount { float percent = 6; shop.money.Amount absolute = 7; string code = 8; }
  }
  int32 a = 1;
  int64 b = 2;
  uint32 c = 3;
  uint64 d = 4;
  sint32 e = 5;
  sint64 f = 6;
  fixed32 g = 7;
  fixed64 h = 8;
  sfixed32 i = 9;
  sfixed64 j = 10;
  float k = 11;
  double l = 12;
  bool m = 13;
  string n = 14;
  bytes o = 15;
  State state = 16;
  optional int32 maybe_int = 17;
  optional string maybe_text = 18;
  optional State maybe_state = 19;
  Line best = 20;
  repeated Line lines = 21;
  repeated int64 longs = 22;
  repeated sint32 zigzags = 23 [packed = false];
  repeated fixed64 eights = 24;
  repeated float fours = 25;
  repeated bool flags = 26;
  repeated State states = 27;
  repeated string texts = 28;
  repeated bytes blobs = 29;
  map<int32, string> by_int = 30;
  map<uint64, Line> by_big = 31;
  map<bool, State> by_flag = 32;
  map<string, bytes> by_text = 33;
  map<sfixed64, double> by_fixed = 34;
  oneof choice { int64 number = 40; string word = 41; Line line = 42; State mood = 43; google.protobuf.Timestamp at = 44; }
  google.protobuf.Timestamp made = 50;
  google.protobuf.Duration took = 51;
  repeated google.protobuf.Timestamp moments = 52;
  google.protobuf.DoubleValue w_double = 60;
  google.protobuf.FloatValue w_float = 61;
  google.protobuf.Int64Value w_long = 62;
  google.protobuf.UInt64Value w_big = 63;
  google.protobuf.Int32Value w_int = 64;
  google.protobuf.UInt32Value w_unsigned = 65;
  google.protobuf.BoolValue w_flag = 66;
  google.protobuf.StringValue w_text = 67;
  google.protobuf.BytesValue w_bytes = 68;
  repeated google.protobuf.StringValue w_texts = 69;
  google.protobuf.Struct free = 70;
  google.protobuf.Value any_value = 71;
  google.protobuf.ListValue any_list = 72;
  google.protobuf.Any packed_any = 73;
  google.protobuf.FieldMask mask = 74;
  google.protobuf.Empty nothing = 75;
  repeated google.protobuf.Empty nothings = 76;
  map<string, google.protobuf.Value> attributes = 77;
  Order parent = 80;
  repeated Order children = 81;
  string far = 536870911;
}
"""
LEGACY = """
syntax = "proto2";
package old;
enum Level { HIGH = 7; LOW = -2; MIDDLE = 3; }
enum Grade { GOOD = 0; BAD = 1; }
message Node {
  required int32 id = 1;
  optional string name = 2 [default = "nobody"];
  optional Level level = 3 [default = LOW];
  repeated Level levels = 4;
  repeated int32 numbers = 5;
  repeated double packed_numbers = 6 [packed = true];
  optional group Part = 7 {
    optional string label = 1;
    repeated group Piece = 2 { required int64 size = 1; repeated string marks = 2; }
    optional Node inner = 3;
  }
  map<string, Grade> by_name = 8;
  map<int64, Leaf> leaves = 9;
  oneof kind { Leaf leaf = 10; group Bunch = 11 { optional int32 count = 1; } bytes raw = 12; Level rank = 13; }
  optional Node next = 14;
  optional bool flag = 15 [default = true];
  optional uint64 big = 16;
  extensions 100 to 199;
}
message Leaf { optional sint64 value = 1; repeated Leaf more = 2; optional float f = 3; }
extend Node { optional string extra = 100; }
"""
EDITION = """
edition = "2023";
package new;
enum Closed { option features.enum_type = CLOSED; ONE = 1; TWO = 2; }
enum Open { ZERO = 0; MANY = 5; }
message Top {
  int32 tracked = 1;
  int32 untracked = 2 [features.field_presence = IMPLICIT];
  string needed = 3 [features.field_presence = LEGACY_REQUIRED];
  Closed closed = 4;
  Open open = 5;
  Inner by_length = 6;
  Inner by_tags = 7 [features.message_encoding = DELIMITED];
  Top again = 8 [features.message_encoding = DELIMITED];
  repeated int32 packed = 9;
  repeated int32 expanded = 10 [features.repeated_field_encoding = EXPANDED];
  repeated Top all = 11 [features.message_encoding = DELIMITED];
  map<int32, Inner> inners = 12;
}
message Inner { int64 x = 1; string y = 2; }
"""
WORDS = """
syntax = "proto2";
package words;
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
message Top {
  optional string a = 1;
  repeated string b = 2;
  map<string, string> c = 3;
  map<int32, Inner> d = 4;
  oneof e { string f = 5; Inner g = 6; int32 h = 7; }
  optional Inner i = 8;
  repeated Inner j = 9;
  optional Top k = 10;
  map<string, Leaf> m = 11;
}
message Inner {
  optional string x = 1;
  required int32 y = 2;
  map<string, Leaf> z = 3;
  repeated string w = 4;
}
message Leaf { optional string w = 1; optional google.protobuf.Timestamp t = 2; optional google.protobuf.Value v = 3; }
"""
CHECKS = """
edition = "2023";
package checks;
option features.utf8_validation = NONE;
message Top {
  string a = 1;
  string b = 2 [features.utf8_validation = VERIFY];
  map<string, string> c = 3;
  map<string, string> d = 4 [features.utf8_validation = VERIFY];
  repeated string e = 5;
}
"""
DELIMITED = """
edition = "2023";
package lines;
option features.message_encoding = DELIMITED;
message Top { Inner inner = 1; map<string, Inner> by_name = 2; oneof o { Inner a = 3; string b = 4; } repeated Top c = 5; }
message Inner { int64 x = 1; string y = 2; repeated Inner more = 3; map<int32, Inner> named = 4; }
"""
PLAIN = 'syntax = "proto3"; message M { int64 a = 1; string b = 2; optional string c = 3; repeated int32 d = 4; }'
REFERENCES = {SHOP: (("money/amount.proto", MONEY),)}


@lru_cache
def descriptors_of(text: str) -> bytes:
    """The descriptors of one of the schemas above, or of any other without references."""
    return compile_proto(text, REFERENCES.get(text, ()))


def reader_of(text: str, message: tuple[int, ...] | str = (0,)) -> ProtobufReader:
    """The reader of its first message, or another."""
    return protobuf_reader(descriptors_of(text), message)


@lru_cache
def class_of(text: str, name: str) -> Any:
    """Protobuf's own class of a message. Closed enums are integers in it, so that it takes numbers without a name."""
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors_of(text))
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        open_enums(file)
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def open_enums(file: Any) -> None:
    """Makes integers of closed enums in a file's descriptor."""
    if file.syntax in ("", "proto2") or file.package == "new":
        for message in all_messages(file.message_type):
            for field in message.field:
                if field.type == field.TYPE_ENUM and field.type_name != ".new.Open":
                    field.type = field.TYPE_INT32
                    field.ClearField("type_name")
                    field.ClearField("default_value")


def all_messages(messages: Iterable[Any]) -> Iterable[Any]:
    """These and what is declared in them."""
    for message in messages:
        yield message
        yield from all_messages(message.nested_type)


def bodies_of(records: Sequence[bytes], gap: bytes = b"", order: Sequence[int] | None = None) -> Bodies:
    """Records in one buffer, `gap` before each; they lie in it in the given order."""
    start, end = np.zeros(len(records), np.int32), np.zeros(len(records), np.int32)
    buffer = bytearray()
    for n in range(len(records)) if order is None else order:
        buffer += gap
        start[n] = len(buffer)
        buffer += records[n]
        end[n] = len(buffer)
    return Bodies(np.frombuffer(bytes(buffer), np.uint8), start, end)


def read(reader: ProtobufReader, records: Sequence[bytes] | Bodies) -> Columns:
    """Reads; what comes out must be well-formed Arrow of the struct that the reader promises."""
    bodies = records if isinstance(records, Bodies) else bodies_of(records)
    columns = reader.read(bodies)
    assert [len(array) for array in columns.arrays] == [len(bodies)] * len(reader.struct.fields)
    for array in columns.arrays:
        array.validate(full=True)
        assert np.asarray(array.is_null())[columns.fault != 0].all()
    return columns


def rows_of(reader: ProtobufReader, columns: Columns) -> list[dict[str, Any]]:
    """The rows as Python values."""
    names = [field.name for field in reader.struct.fields]
    arrays = [array.to_pylist() for array in columns.arrays]
    return [{name: array[row] for name, array in zip(names, arrays, strict=True)} for row in range(columns.fault.size)]


def fault_of(columns: Columns, row: int) -> Fault | None:
    """What is wrong with a record."""
    return columns.explain(row) if columns.fault[row] else None
