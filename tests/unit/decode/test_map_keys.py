"""Maps whose keys are written in another type than the table has them in."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.types import (
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimeType,
    UUIDType,
)

from frazil.decode.columns import Columns, Decoded
from frazil.decode.connect.schema import convert_logical_types
from frazil.decode.connect.values import LogicalType
from frazil.decode.renames import FedColumns
from frazil.decode.settings import WriterSchema
from frazil.schema.evolve import dump_requested_fields, load_requested_fields, merge_requested_fields
from frazil.schema.selection import DeclaredValues
from tests.needs import has_package, needs
from tests.unit.rows.test_writer_schemas import decode

if has_package("protobuf"):
    from frazil_protobuf.protoc import compile_proto

INT, LONG, TEXT = 1, 2, 3
SMALL = bytes.fromhex("0a0508051201780a050806120179")  # {5: "x", 6: "y"}
LARGE = bytes.fromhex("0a0508051201780a0a08808080808020120179")  # {5: "x", 2**40: "y"}
EMPTY = b""


@pytest.fixture(scope="module")
def schemas() -> dict[int, WriterSchema]:
    """By id those of one message with other keys."""
    texts = {
        n: f'syntax = "proto3"; message M {{ map<{kind}, string> m = 1; }}'
        for n, kind in ((INT, "int32"), (LONG, "int64"), (TEXT, "string"))
    }
    return {n: WriterSchema("protobuf", text, (), compile_proto(text)) for n, text in texts.items()}


def map_of(key: IcebergType) -> tuple[NestedField, ...]:
    """The columns of a table with such a map."""
    return (NestedField(1, "m", MapType(2, key, 3, StringType(), False), required=False),)


def read(
    schemas: dict[int, WriterSchema], key: IcebergType | None, *records: tuple[int, bytes], **reading: Any
) -> Decoded:
    values = [bytes([0, 0, 0, 0, number, 0]) + body for number, body in records]
    return decode(values, map_of(key) if key else (), schemas, format="protobuf", **reading)


@pytest.mark.parametrize("order", [(INT, LONG), (LONG, INT)])
@needs("protobuf")
def test_a_first_batch_gets_keys_that_hold_all_of_them(
    schemas: dict[int, WriterSchema], order: tuple[int, int]
) -> None:
    together = read(schemas, None, *((number, SMALL) for number in order)).requested_fields
    apart = merge_requested_fields(
        load_requested_fields(dump_requested_fields(read(schemas, None, (number, SMALL)).requested_fields))
        for number in order
    )
    for requested_fields in (together, apart):
        assert str(requested_fields[()]["m"]) == "map<long, string>"


@needs("protobuf")
def test_keys_go_over_where_each_of_them_fits(schemas: dict[int, WriterSchema]) -> None:
    wide = read(schemas, LongType(), (INT, SMALL), (LONG, LARGE), (INT, EMPTY))
    assert wide.columns[0].to_pylist() == [[(5, "x"), (6, "y")], [(5, "x"), (2**40, "y")], []]
    assert (wide.mismatch_count, wide.requested_fields, wide.refusals) == (0, {}, set())
    narrow = read(schemas, IntegerType(), (LONG, SMALL), (LONG, LARGE), (LONG, EMPTY), (INT, SMALL))
    assert narrow.refused.tolist() == [False, True, False, False]
    assert narrow.columns[0].take([0, 2, 3]).to_pylist() == [[(5, "x"), (6, "y")], [], [(5, "x"), (6, "y")]]
    (mismatch,) = narrow.mismatches
    assert (mismatch.row, mismatch.kind, mismatch.path) == (1, "type_mismatch", "m")
    assert mismatch.reason.endswith("has a key that does not fit int")
    assert (narrow.requested_fields, narrow.refusals) == (
        {},
        {"schema 2: column m.key: keys of int are not widened to long"},
    )


@needs("protobuf")
def test_a_map_with_such_a_key_is_rescued_as_a_whole(schemas: dict[int, WriterSchema]) -> None:
    decoded = read(schemas, IntegerType(), (LONG, LARGE), is_rescuing=True)
    assert (decoded.refused.tolist(), decoded.columns[0].to_pylist()) == ([False], [None])
    assert decoded.rescued is not None
    assert json.loads(decoded.rescued[0].as_py())["m"]["value"] == [[5, "x"], [2**40, "y"]]


@needs("protobuf")
def test_keys_of_another_kind_do_not_go_over(schemas: dict[int, WriterSchema]) -> None:
    decoded = read(schemas, StringType(), (INT, SMALL), (INT, EMPTY))
    assert decoded.refused.tolist() == [True, False]
    assert decoded.refusals == {"schema 1: column m.key: int does not fit string"}
    assert decoded.mismatches[0].reason.endswith("has a key that does not fit string")
    assert decoded.columns[0].to_pylist()[1] == []


@needs("protobuf")
def test_keys_become_text_where_the_column_is_declared_so(schemas: dict[int, WriterSchema]) -> None:
    decoded = read(
        schemas, StringType(), (INT, SMALL), (INT, EMPTY), (LONG, LARGE), declared=DeclaredValues(coerced=(("m",),))
    )
    assert (decoded.mismatch_count, decoded.refusals) == (0, set())
    assert decoded.columns[0].to_pylist() == [[("5", "x"), ("6", "y")], [], [("5", "x"), (str(2**40), "y")]]


@pytest.mark.parametrize(
    ("key", "unit", "told"),
    [
        (DateType(), "d", [(dt.date(1970, 1, 6), "x"), (dt.date(1970, 1, 7), "y")]),
        (TimeType(), "ms", [(dt.time(0, 0, 0, 5000), "x"), (dt.time(0, 0, 0, 6000), "y")]),
    ],
)
@needs("protobuf")
def test_integers_of_keys_count_the_days_and_the_milliseconds_of_a_declared_column(
    schemas: dict[int, WriterSchema], key: IcebergType, unit: str, told: list[Any]
) -> None:
    records = ((INT, SMALL), (LONG, SMALL), (LONG, LARGE))
    decoded = read(schemas, key, *records, declared=DeclaredValues(units=((("m", "key"), unit),)))
    assert (decoded.refused.tolist(), decoded.refusals) == ([False, False, True], set())
    assert decoded.columns[0].to_pylist()[:2] == [told, told]
    assert decoded.mismatches[0].reason.endswith(f"has a key that does not fit {key}")


@needs("protobuf")
def test_text_of_keys_is_read_as_the_uuid_of_the_column(schemas: dict[int, WriterSchema]) -> None:
    identity = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
    entry = b"\x0a\x24" + identity.encode() + b"\x12\x01x"
    other = entry.replace(identity.encode(), identity.upper().encode())
    whole, again = (b"\x0a" + bytes([len(one)]) + one for one in (entry, other))
    bodies = [whole, b"\x0a\x06\x0a\x01a\x12\x01x", whole + again, again]
    decoded = read(schemas, UUIDType(), *((TEXT, body) for body in bodies))
    assert decoded.refused.tolist() == [False, True, True, False]
    assert [(one.row, one.kind) for one in decoded.mismatches] == [(1, "type_mismatch"), (2, "duplicate_key")]
    assert decoded.columns[0].to_pylist()[3] == [(UUID(identity).bytes, "x")]
    assert decoded.columns[0].to_pylist()[0] == [(UUID(identity).bytes, "x")]


def test_a_logical_type_of_keys_applies_whatever_type_the_values_have() -> None:
    written, table = (
        StructType(NestedField(1, "m", MapType(2, key, 3, LongType(), False), required=False))
        for key in (LongType(), TimestampType())
    )
    columns = Columns([pa.array([[(1000, 5)]], pa.map_(pa.int64(), pa.int64()))], np.zeros(1, np.uint8), ())
    of_keys: dict[tuple[str, ...], LogicalType] = {("m", "key"): LogicalType("org.apache.kafka.connect.data.Timestamp")}
    struct, found = convert_logical_types(written, columns, of_keys, FedColumns(written, table.fields))
    assert found.arrays[0].to_pylist() == [[(dt.datetime(1970, 1, 1, 0, 0, 1), 5)]]  # noqa: DTZ001
    assert str(struct.fields[0].field_type) == "map<timestamp, long>"
