"""Each limit of Protobuf: at the limit and one below it the record is a row, one above it a dead letter, and its neighbours
are rows in all three cases.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from google.protobuf import descriptor_pb2

from frazil.decode import limits
from frazil.decode.settings import WriterSchema
from frazil_protobuf import layout, wire
from frazil_protobuf import schema as protobuf
from frazil_protobuf.protoc import compile_proto
from tests.unit.decode.test_amplification import target, took, zigzag
from tests.unit.rows.test_at_limits import (
    Case,
    SchemaCase,
    at_excess,
    check_record,
    check_schema,
    frame,
    long_varint,
    reading,
    sized,
    varint,
)

PROTO = 'syntax = "proto3"; message R { int64 id = 1; string s = 2; repeated bool l = 3; R r = 4; }'


def schema_of(text: str) -> WriterSchema:
    """A schema as the driver sends it to tasks."""
    return WriterSchema("protobuf", text, (), compile_proto(text, ()))


def far_number(number: int, size: int | None) -> bytes:
    key = b"" if size is None else varint(size << 3) + b"\x01"
    return frame(1) + b"\0" + b"\x08" + varint(number) + key


def nested_messages(levels: int) -> WriterSchema:
    """Messages that are declared in each other, one more than protoc reads from a text."""
    of = descriptor_pb2.FieldDescriptorProto
    field = of(name="id", number=1, type=of.TYPE_INT64, label=of.LABEL_OPTIONAL)
    message = descriptor_pb2.DescriptorProto(name="M", field=[field])
    for _ in range(levels - 1):
        message = descriptor_pb2.DescriptorProto(name="M", field=[field], nested_type=[message])
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", syntax="proto3", message_type=[message])
    return WriterSchema("protobuf", "", (), descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())


def proto_indexes(number: int, size: int | None) -> bytes:
    """A record of the message so far inside of others."""
    indexes = b"\0" if size is None else zigzag(size) + bytes(size)
    return frame(1) + indexes + b"\x08" + varint(number)


def proto_groups(number: int, size: int | None) -> bytes:
    """A record with unknown groups in each other."""
    depth = 0 if size is None else size
    return frame(1) + b"\0\x08" + varint(number) + b"\x4b" * depth + b"\x4c" * depth


def proto_chain(number: int, size: int | None) -> bytes:
    """A record with a message of its own type, and so many inside of that."""
    chain = b""
    for _ in range(0 if size is None else size + 1):
        chain = b"\x22" + varint(len(chain)) + chain
    return frame(1) + b"\0\x08" + varint(number) + chain


PLAIN = schema_of(PROTO)
CASES = [
    Case("bytes of a record's value", 1000, "too_large", reading("protobuf", PLAIN, max_record_bytes=1000),
         sized(frame(1) + b"\0", b"\x18\x01", lambda n: b"\x12" + varint(n))),
    Case("the number of a Protobuf field", layout.MAX_NUMBER, "malformed", reading("protobuf", PLAIN), far_number),
    Case("numbers in Avro, varints and lengths in Protobuf", 10, "malformed", reading("protobuf", PLAIN), long_varint),
    Case("message indexes of a Protobuf record", wire.MAX_INDEXES, "malformed",
         reading("protobuf", nested_messages(wire.MAX_INDEXES)), proto_indexes),
    Case("levels of Protobuf messages", layout.MAX_DEPTH, "too_deep", reading("protobuf", PLAIN), proto_groups),
    Case("levels of Protobuf messages", 100, "too_deep", reading("protobuf", PLAIN), proto_chain),
]  # fmt: skip


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("case", CASES, ids=[case.limit for case in CASES])
def test_a_record_above_a_limit_is_a_dead_letter_and_its_neighbours_are_rows(
    tmp_path: Path, case: Case, more: int
) -> None:
    check_record(tmp_path, case, more)


def many_fields(count: int) -> WriterSchema:
    """A schema with so many fields, one of them the id."""
    fields = " ".join(f"int64 f{n} = {n + 2};" for n in range(count - 1))
    return schema_of(f'syntax = "proto3"; message R {{ int64 id = 1; {fields} }}')


def deep_schema(levels: int) -> WriterSchema:
    """A schema of so many levels."""
    messages = " ".join(f"message M{n} {{ {f'M{n - 1}' if n else 'int64'} m = 1; }}" for n in range(levels - 1))
    return schema_of(f'syntax = "proto3"; message R {{ int64 id = 1; M{levels - 2} x = 2; }} {messages}')


SCHEMAS = [
    SchemaCase("fields of a Protobuf schema", many_fields, protobuf.MAX_FIELDS),
    SchemaCase("levels of a Protobuf schema", deep_schema, protobuf.MAX_LEVELS),
]


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("case", SCHEMAS, ids=[case.limit for case in SCHEMAS])
def test_a_schema_above_a_limit_is_unusable_for_its_own_records_alone(
    tmp_path: Path, case: SchemaCase, more: int
) -> None:
    check_schema(tmp_path, "protobuf", case, many_fields(1), lambda number: b"\0\x08" + varint(number), more)


PROTO_ITEMS = PROTO.replace("message R {", "message R { repeated E e = 5; repeated string t = 6;") + (
    f"message E {{ {' '.join(f'int64 f{n} = {n + 1};' for n in range(999))} }}"
)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_record_whose_items_take_one_cell_too_many_is_a_dead_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    # The limit of the cells of any record is below that of its items.
    monkeypatch.setattr(limits, "MAX_RECORD_CELLS", 2**25)
    monkeypatch.setattr(limits, "MAX_BATCH_CELLS", 2**25)
    count = layout.MAX_CELLS // (1000 - 16) + 1

    def make(more: int, spare: int) -> bytes:
        return b"\x08\x01" + b"\x2a\0" * count + b"\x32\0" * more + b"\x4a" + varint(spare) + b"x" * spare

    values = [
        b"\x08\0\x2a\0",
        at_excess(make, 1000 * count, layout.MAX_CELLS, 8, more),
        b"\x08\x02\x2a\0",
    ]
    how = reading("protobuf", schema_of(PROTO_ITEMS))
    _, rows, dead_letters = took(target(tmp_path, how, {"id": "long"}), [frame(1) + b"\0" + one for one in values])
    assert (rows, dead_letters) == (([0, 2], [(1, "too_large")]) if more > 0 else ([0, 1, 2], []))


def test_each_of_hundreds_of_bad_records_has_its_own_reason(tmp_path: Path) -> None:
    count, size = 6, 50  # More required fields than a few dozen are refused in one message.
    messages = " ".join(
        f"message M{k} {{ {' '.join(f'required int64 f{k}_{n} = {n + 1};' for n in range(size))} }}"
        for k in range(count)
    )
    parts = " ".join(f"optional M{k} m{k} = {k + 2};" for k in range(count))
    schema = schema_of(f'syntax = "proto2"; message R {{ required int64 id = 1; {parts} }} {messages}')

    def record(number: int) -> bytes:
        """The record lacks one of the required fields; the last one has all of a message's."""
        part, left = min(number // size, count - 1), number - size * min(number // size, count - 1)
        inner = b"".join(varint((n + 1) << 3) + b"\x01" for n in range(size) if n != left)
        return frame(1) + b"\0\x08" + varint(number) + varint((part + 2) << 3 | 2) + varint(len(inner)) + inner

    values = [record(number) for number in range(count * size + 1)]
    report, rows, _ = took(target(tmp_path, reading("protobuf", schema), {"id": "long"}), values)
    assert rows == [count * size]
    tables = [pq.read_table(file.path) for file in report.written.dead_letters]
    reasons = [(one["path"], one["message"]) for table in tables for one in table.to_pylist()]
    names = [(f"m{k}.f{k}_{n}", f"required field f{k}_{n} is missing") for k in range(count) for n in range(size)]
    assert reasons == names
