"""Schemas for tests of the Protobuf reader, and short ways to read with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from frazil.decode.columns import Bodies, Columns, Fault
from frazil_protobuf.protoc import compile_proto
from frazil_protobuf.reader import ProtobufReader, protobuf_reader

_FOLDER = Path(__file__).with_name("schemas")
MONEY, SHOP, LEGACY, EDITION, WORDS, CHECKS, DELIMITED = (
    (_FOLDER / f"{name}.proto").read_text(encoding="utf-8")
    for name in ("money", "shop", "legacy", "edition", "words", "checks", "delimited")
)
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
