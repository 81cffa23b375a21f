"""Records that are no messages, or that no row holds: each is named, and its neighbours are as without it."""

from __future__ import annotations

import numpy as np
import pytest

from frazil.decode.columns import Bodies
from frazil_protobuf.layout import MAX_CELLS
from packages.protobuf.tests.unit.protobuf_schemas import LEGACY, SHOP, bodies_of, fault_of, read, reader_of, rows_of

SCHEMA = """
syntax = "proto3";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
message M {
  int32 a = 1;
  string b = 2;
  N c = 3;
  repeated N d = 4;
  map<string, N> e = 5;
  repeated fixed32 f = 6;
  google.protobuf.Timestamp g = 7;
  google.protobuf.Duration h = 8;
  google.protobuf.Value i = 9;
  repeated google.protobuf.Timestamp j = 10;
  M k = 11;
  fixed64 l = 12;
  repeated int32 m = 13;
}
message N { string x = 1; google.protobuf.Timestamp y = 2; }
"""
_LATE = b"\x08\x80\x90\xca\xd2\xc6\x0e"  # a Timestamp of 500 billion seconds
_NAN = b"\x11\x00\x00\x00\x00\x00\x00\xf8\x7f"  # a Value that is NaN
_GOOD = b"\x08\x07\x12\x01b\x1a\x03\x0a\x01x\x22\x03\x0a\x01y\x2a\x03\x0a\x01k"

FAULTY = [
    (b"\x08", "malformed", "cut short", "a"),
    (b"\x08\x80", "malformed", "cut short", "a"),
    (b"\x12", "malformed", "cut short", "b"),
    (b"\x12\x05ab", "malformed", "goes beyond its end", "b"),
    (b"\x12\xff\xff\xff\xff\x0f", "malformed", "goes beyond its end", "b"),
    (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "malformed", "goes beyond its end", "b"),
    (b"\x61abcdefg", "malformed", "cut short", "l"),
    (b"\x35abc", "malformed", "cut short", "f"),
    (b"\x08" + b"\x80" * 10 + b"\x01", "malformed", "longer than ten bytes", "a"),
    (b"\x88" + b"\x80" * 5 + b"\x00\x01", "malformed", "a field's tag than five bytes", None),
    (b"\x00\x01", "malformed", "number 0", None),
    (b"\xf8\xff\xff\xff\x1f\x01", "malformed", "above 536,870,911", None),
    (b"\x0e", "malformed", "wire type 6 or 7", None),
    (b"\x0f", "malformed", "wire type 6 or 7", None),
    (b"\xa3\x06\x08\x01", "malformed", "a group does not end", None),
    (b"\xa3\x06\xac\x06", "malformed", "did not begin", None),
    (b"\x0c", "malformed", "did not begin", None),
    (b"\x1a\x01\x0b\x0c", "malformed", "a group does not end", "c"),
    (b"\x1a\x03\x0a\x05x", "malformed", "goes beyond its end", "c.x"),
    (b"\x1a\x01\x0c", "malformed", "did not begin", "c"),
    (b"\x22\x02\x0a\x01", "malformed", "goes beyond its end", "d.element.x"),
    (b"\x2a\x04\x12\x02\x0a\x01", "malformed", "goes beyond its end", "e.value.x"),
    (b"\x32\x03abc", "malformed", "packed values are cut short", "f"),
    (b"\x6a\x02\x01\x80", "malformed", "cut short", "m"),
    (b"\x98\x06", "malformed", "cut short", None),
    (b"\x9a\x06\x05a", "malformed", "goes beyond its end", None),
    (b"\x99\x06abcdefg", "malformed", "cut short", None),
    (b"\x4a\x02\x1a\x05", "malformed", "nested message", "i"),
    (b"\x5a\x02\x08\x80", "malformed", "nested message", "k"),
    (b"\x12\x01\xff", "invalid_text", "UTF-8", "b"),
    (b"\x12\x03\xed\xa0\x80", "invalid_text", "UTF-8", "b"),
    (b"\x12\x02\xc0\x80", "invalid_text", "UTF-8", "b"),
    (b"\x12\x04\xf4\x90\x80\x80", "invalid_text", "UTF-8", "b"),
    (b"\x12\x0bplain text\xc3", "invalid_text", "UTF-8", "b"),
    (b"\x22\x03\x0a\x01\xff", "invalid_text", "UTF-8", "d.element.x"),
    (b"\x2a\x03\x0a\x01\xff", "invalid_text", "UTF-8", "e.key"),
    (b"\x4a\x03\x1a\x01\xff", "invalid_text", "UTF-8", "i"),
    (b"\xa3\x06" * 65 + b"\xa4\x06" * 65, "too_deep", "64 levels", None),
    (b"\x3a\x07" + _LATE, "out_of_range", "timestamp", "g"),
    (b"\x3a\x06\x10\x80\x94\xeb\xdc\x03", "out_of_range", "timestamp", "g"),
    (b"\x1a\x09\x12\x07" + _LATE, "out_of_range", "timestamp", "c.y"),
    (b"\x22\x00\x22\x09\x12\x07" + _LATE, "out_of_range", "timestamp", "d.element.y"),
    (b"\x2a\x0b\x12\x09\x12\x07" + _LATE, "out_of_range", "timestamp", "e.value.y"),
    (b"\x52\x00\x52\x07" + _LATE, "out_of_range", "timestamp", "j.element"),
    (b"\x42\x07" + _LATE, "out_of_range", "duration", "h"),
    (b"\x42\x0d\x08\x01\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "out_of_range", "duration", "h"),
    (b"\x4a\x09" + _NAN, "out_of_range", "has no JSON", "i"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "kind", "words", "path"), FAULTY)
def test_a_faulty_record_is_named_and_changes_no_other(record: bytes, kind: str, words: str, path: str | None) -> None:
    reader = reader_of(SCHEMA)
    (good,) = rows_of(reader, read(reader, [_GOOD]))
    # What is good at the beginning of the faulty record must leave no trace either.
    columns = read(reader, [_GOOD, _GOOD + record, _GOOD, record, _GOOD])
    rows = rows_of(reader, columns)
    assert [repr(rows[n]) for n in (0, 2, 4)] == [repr(good)] * 3
    for row in (1, 3):
        fault = fault_of(columns, row)
        assert fault is not None
        assert (fault.kind, columns.paths.get(row)) == (kind, path)
        assert words in fault.message
        assert set(rows[row].values()) == {None}
    assert np.flatnonzero(columns.fault).tolist() == [1, 3]


def test_every_record_may_be_faulty() -> None:
    reader = reader_of(SCHEMA)
    columns = read(reader, [record for record, *_ in FAULTY])
    assert [fault is not None and fault.kind for fault in (fault_of(columns, n) for n in range(len(FAULTY)))] == [
        kind for _, kind, *_ in FAULTY
    ]


@pytest.mark.parametrize(
    ("record", "words", "path"),
    [
        (b"", "required field id is missing", "id"),
        (b"\x08\x01\x3b\x13\x14\x3c", "required field size is missing", "part.piece.element.size"),
        (b"\x08\x01\x72\x00", "a required field of a nested message is missing", "next"),
    ],
)
def test_a_required_field_that_is_absent_is_a_fault(record: bytes, words: str, path: str) -> None:
    reader = reader_of(LEGACY, "old.Node")
    columns = read(reader, [b"\x08\x01", record, b"\x08\x02"])
    assert [row["id"] for row in rows_of(reader, columns)] == [1, None, 2]
    assert columns.faults[columns.fault[1] - 1].message == words
    assert columns.paths == {1: path}


def test_a_required_field_may_come_with_the_message_s_second_part() -> None:
    reader = reader_of(
        'syntax = "proto2"; message M { optional N n = 1; } message N { required int32 a = 1; optional int32 b = 2; }'
    )
    columns = read(reader, [b"\x0a\x02\x10\x05\x0a\x02\x08\x06"])
    assert rows_of(reader, columns) == [{"n": {"a": 6, "b": 5}}]


def test_lists_of_one_record_have_a_limit_and_those_of_all_records_have_none() -> None:
    fields = " ".join(f"int32 f{n} = {n};" for n in range(1, 1000))
    reader = reader_of(f'syntax = "proto3"; message M {{ repeated N n = 1; }} message N {{ {fields} }}')
    many = MAX_CELLS // 999 + 1000
    columns = read(reader, [b"\x0a\x00", b"\x0a\x00" * many, b"\x0a\x02\x08\x05"])
    fault = fault_of(columns, 1)
    assert fault is not None
    assert (fault.kind, columns.paths[1]) == ("too_large", "n")
    rows = rows_of(reader, columns)
    assert [len(rows[0]["n"]), rows[2]["n"][0]["f1"]] == [1, 5]


def test_a_message_far_inside_of_itself_is_refused_as_protobuf_does() -> None:
    deep = b""
    for _ in range(150):
        size = len(deep)
        deep = b"\x5a" + (bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])) + deep
    columns = read(reader_of(SCHEMA), [b"\x08\x01", deep])
    fault = fault_of(columns, 1)
    assert fault is not None
    assert (fault.kind, columns.paths[1]) == ("too_deep", "k")


def test_a_record_that_is_written_again_may_be_faulty_too() -> None:
    # Two parts of a nested value, the second of which is no message.
    columns = read(reader_of(SCHEMA), [b"\x08\x01", b"\x5a\x00\x5a\x02\x08\x80", b"\x5a\x02\x08\x01\x5a\x02\x12\x00"])
    assert [fault and fault.kind for fault in (fault_of(columns, n) for n in range(3))] == [None, "malformed", None]


def test_records_may_lie_anywhere_in_the_buffer() -> None:
    reader = reader_of(SHOP)
    records = [b"\x08" + bytes([n]) + b"\x72\x02" + b"ab" for n in range(5)]
    columns = read(reader, bodies_of(records, b"\xff\xff\xff", [3, 0, 4, 1, 2]))
    assert [row["a"] for row in rows_of(reader, columns)] == [0, 1, 2, 3, 4]
    assert columns.arrays[13].to_pylist() == ["ab"] * 5


def test_records_may_share_their_bytes() -> None:
    raw = np.frombuffer(b"\x08\x01\x08\x02", np.uint8)
    bodies = Bodies(raw, np.array([0, 0, 2], np.int32), np.array([4, 2, 4], np.int32))
    assert [row["a"] for row in rows_of(reader_of(SHOP), read(reader_of(SHOP), bodies))] == [2, 1, 2]


@pytest.mark.parametrize("schema", [SHOP, LEGACY])
def test_no_records_are_no_rows(schema: str) -> None:
    reader = reader_of(schema)
    columns = read(reader, [])
    assert (columns.fault.size, columns.paths) == (0, {})


def test_what_one_read_needs_leaves_the_next_one_alone() -> None:
    reader = reader_of(SCHEMA)
    before = rows_of(reader, read(reader, [_GOOD]))
    for count in (1, 5000, 1, 0, 1):
        read(reader, [b"\x22\x00" * count] * 3)
    assert rows_of(reader, read(reader, [_GOOD])) == before
