"""The benchmark's records in other formats, read by those formats' own libraries."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from bench.encoded import (
    ADDED,
    FORMATS,
    TimedAvro,
    avro_schema,
    damaged_avro,
    frame,
    json_schema,
    proto_schema,
    varint,
    zigzag,
)
from bench.records import SCHEMA, DamagedPool, make_pool, timed_value
from frazil.decode.settings import Reading, WriterSchema
from frazil.rows.writer_schemas import decode_with_schemas
from frazil_protobuf.protoc import compile_proto

NUMBERS = (0, 1, 63, 64, 127, 128, 16_383, 16_384, 11_999_999)


def read_avro(body: bytes, schema: str) -> Any:
    source = io.BytesIO(body)
    record = fastavro.schemaless_reader(source, fastavro.parse_schema(json.loads(schema)), None)
    assert source.read() == b""
    return record


def read_protobuf(body: bytes) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compile_proto(proto_schema())).file:
        pool.Add(file)
    message: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("Event")).FromString(body)
    return {name: getattr(message, name) for name in SCHEMA}


@pytest.mark.parametrize("number", [*NUMBERS, -1, -64, -65, -(2**40)])
def test_a_number_is_what_avro_writes(number: int) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    assert zigzag(number) == out.getvalue()


def test_small_numbers_take_one_byte() -> None:
    assert [varint(number) for number in (0, 127, 128, 300)] == [b"\x00", b"\x7f", b"\x80\x01", b"\xac\x02"]


def test_a_frame_names_the_schema() -> None:
    assert frame(258) == b"\x00\x00\x00\x01\x02"


@pytest.mark.parametrize("number", NUMBERS)
def test_every_format_holds_the_record_of_the_plain_benchmark(number: int) -> None:
    pool = make_pool(10)
    record = json.loads(pool.value(number))
    avro, protobuf, framed = (FORMATS[name].values(pool, 7)(number) for name in ("avro", "protobuf", "json_schema"))
    assert {value[:5] for value in (avro, protobuf, framed)} == {frame(7)}
    assert read_avro(avro[5:], avro_schema()) == record
    assert protobuf[5] == 0
    assert read_protobuf(protobuf[6:]) == record
    assert json.loads(framed[5:]) == record


def test_avro_records_are_about_95_bytes_long() -> None:
    value = FORMATS["avro"].values(make_pool(1000), 1)
    lengths = [len(value(number)) - len(frame(1)) for number in range(0, 4_000_000, 4001)]
    assert 93 <= sum(lengths) / len(lengths) <= 98


def test_the_json_schema_has_the_fields_of_the_records() -> None:
    assert list(json.loads(json_schema())["properties"]) == list(SCHEMA)


def test_a_timed_record_has_the_added_field_from_its_number_on() -> None:
    value, now_us = TimedAvro(3, 4, 10), 1_790_000_000_000_001
    old, new = value(9, now_us), value(10, now_us)
    assert (old[:5], new[:5]) == (frame(3), frame(4))
    assert read_avro(old[5:], avro_schema()) == json.loads(timed_value(9, now_us))
    assert read_avro(new[5:], avro_schema(with_added=True)) == {**json.loads(timed_value(10, now_us)), ADDED: 10}


def test_a_warm_up_record_has_a_negative_id_and_the_old_schema() -> None:
    value = TimedAvro(3, 4, 1)(-5, 1)
    assert value[:5] == frame(3)
    assert read_avro(value[5:], avro_schema())["id"] == -5


def test_a_hundredth_of_the_records_is_damaged_and_refused_and_others_are_unchanged() -> None:
    pool, count = make_pool(7), 1200
    damaged = DamagedPool(pool)
    value, whole = damaged_avro(damaged, 7), FORMATS["avro"].values(pool, 7)
    bad = [number for number in range(count) if damaged.is_bad(number)]
    reading = Reading(format="avro", schemas=(("7", WriterSchema("avro", avro_schema())),))
    values = pa.array([value(number) for number in range(count)], pa.binary())
    found = decode_with_schemas(reading, (), {"value": values}, count)
    assert np.flatnonzero(found.refused).tolist() == bad
    assert [mismatch.kind for mismatch in found.mismatches[:3]] == ["malformed", "no_wire_format", "malformed"]
    assert [number for number in range(count) if value(number) != whole(number)] == bad
