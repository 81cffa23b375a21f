"""Debezium's envelopes in Protobuf, as Confluent's ProtobufConverter writes them, with Connect's types."""

from __future__ import annotations

import base64
import datetime as dt
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from frazil.decode.settings import PLACEHOLDER, Reading, WriterSchema
from frazil.rows.decoder import decode_values
from frazil.schema.evolve import new_schema
from frazil.spec.settings import ValueSpec
from frazil.spec.syntax.types import parse_type
from frazil_protobuf.protoc import compile_proto
from tests.unit.upsert.upsert_source import UpsertSource

Row = dict[str, Any]
_HEAD = """syntax = "proto3";
package shop;
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";
import "google/type/timeofday.proto";
"""
_KEY = f"{_HEAD} message Key {{ int32 id = 1; }}"
_ENVELOPE = (
    _HEAD
    + """
message Envelope {
  Value before = 1;
  Value after = 2;
  Source source = 3;
  string op = 4;
  int64 ts_ms = 5;
  Block transaction = 6;
  message Value {
    int32 id = 1;
    optional string v = 2;
    google.protobuf.Int64Value big = 3;
    confluent.type.Decimal price = 4 [(confluent.field_meta) = {
      params: [{ key: "precision", value: "6" }, { key: "scale", value: "2" }] }];
    google.type.Date day = 5;
    google.type.TimeOfDay at = 6;
    google.protobuf.Timestamp made = 7;
    int64 seen = 8 [(confluent.field_meta) = {
      params: [{ key: "connect.name", value: "io.debezium.time.MicroTimestamp" }] }];
    VariableScaleDecimal any = 9;
    repeated google.type.Date days = 10;
    map<string, confluent.type.Decimal> prices = 11;
    message VariableScaleDecimal { int32 scale = 1; bytes value = 2; }
  }
  message Source { string connector = 1; int64 lsn = 2; int64 ts_ms = 3; string db = 4; }
  message Block { string id = 1; int64 total_order = 2; int64 data_collection_order = 3; }
}
"""
)


def _class(text: str, name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compile_proto(text)).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _after(micros: int) -> Any:
    return pa.scalar(micros, pa.timestamp("us")).as_py()


class ProtobufScenario(UpsertSource):
    """An upsert table of rows whose changes are Protobuf messages."""

    def __init__(self, root: Path, **settings: Any) -> None:
        protobuf = ValueSpec(format="protobuf")
        super().__init__(root, value=protobuf, key=protobuf, **settings)
        self.makers = {"key": _class(_KEY, "shop.Key"), "value": _class(_ENVELOPE, "shop.Envelope")}
        texts = {"key": _KEY, "value": _ENVELOPE}
        self.ids = {part: self.registry.register("protobuf", text, subject=f"a-{part}") for part, text in texts.items()}

    def change(self, op: str, before: Row | None, after: Row | None, **more: Any) -> None:
        row = after if after is not None else before
        assert row is not None
        images = {name: one for name, one in (("before", before), ("after", after)) if one is not None}
        self.send(row["id"], {**images, "op": op, "source": {"connector": "postgresql", "lsn": 7, "ts_ms": 5}, **more})

    def send(self, key: int, value: Row | None) -> None:
        framed = None if value is None else self._framed("value", value)
        self.source.produce("a", 0, framed, key=self._framed("key", {"id": key}))

    def _framed(self, part: str, value: Row) -> bytes:
        body: bytes = json_format.ParseDict(value, self.makers[part]()).SerializeToString()
        return struct.pack(">xI", self.ids[part]) + b"\0" + body


_FULL: Row = {
    "id": 1, "v": "a", "big": "5", "price": {"value": "BNI=", "precision": 6, "scale": 2},
    "day": {"year": 2024, "month": 2, "day": 29}, "at": {"hours": 23, "minutes": 59, "seconds": 58, "nanos": 1999},
    "made": "2024-01-02T03:04:05Z", "seen": "1", "any": {"scale": 1, "value": "BNI="},
    "days": [{"year": 1, "month": 1, "day": 1}], "prices": {"k": {"value": "AQ==", "scale": 0}},
}  # fmt: skip


def test_an_upsert_table_follows_inserts_updates_and_deletes_in_protobuf(tmp_path: Path) -> None:
    scenario = ProtobufScenario(tmp_path)
    scenario.change("c", None, _FULL)
    scenario.change("r", None, {"id": 2, "v": "b"})
    scenario.change("c", None, {"id": 3})
    scenario.catch_up()
    scenario.change("u", {"id": 1}, {**_FULL, "v": "a2"})
    scenario.change("u", {"id": 2}, {"id": 4, "v": "moved"})
    scenario.change("d", {"id": 3}, None)
    scenario.send(3, None)
    scenario.catch_up()
    empty = dict.fromkeys(_FULL)
    assert scenario.by_id() == [
        {
            "id": 1,
            "v": "a2",
            "big": 5,
            "price": Decimal("12.34"),
            "day": dt.date(2024, 2, 29),
            "at": dt.time(23, 59, 58, 1),
            "made": dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
            "seen": _after(1),
            "any": "123.4",
            "days": [dt.date(1, 1, 1)],
            "prices": [("k", "1")],
        },
        {**empty, "id": 4, "v": "moved", "seen": _after(0), "days": [], "prices": []},
    ]
    assert scenario.dead_letters() == []


def test_what_an_envelope_in_protobuf_tells_besides_the_row(tmp_path: Path) -> None:
    names = ("op", "source_ts", "connector_ts", "transaction_id", "total_order", "position")
    scenario = ProtobufScenario(tmp_path, metadata={name: f"_{name}" for name in names})
    scenario.change("c", None, {"id": 1}, ts_ms=9, transaction={"id": "t", "total_order": 3})
    scenario.catch_up()
    (row,) = scenario.by_id()
    times = [dt.datetime(1970, 1, 1, 0, 0, 0, milli * 1000, tzinfo=dt.UTC) for milli in (5, 9)]
    assert [row[f"_{name}"] for name in names] == ["c", *times, "t", 3, f"{7:020}"]


def test_a_value_that_was_not_sent_in_protobuf_stays(tmp_path: Path) -> None:
    scenario = ProtobufScenario(tmp_path)
    scenario.change("c", None, {"id": 1, "v": "large"})
    scenario.catch_up()
    scenario.change("u", None, {"id": 1, "v": PLACEHOLDER, "big": "6"})
    scenario.catch_up()
    assert [(row["v"], row["big"]) for row in scenario.by_id()] == [("large", 6)]


@pytest.mark.parametrize(
    "day", [{"year": 2024, "month": 2}, {"year": 2023, "month": 2, "day": 29}, {"year": 10000, "month": 1, "day": 1}]
)
def test_a_message_that_is_no_day_makes_a_bad_record(tmp_path: Path, day: Row) -> None:
    scenario = ProtobufScenario(tmp_path)
    scenario.change("c", None, {"id": 1, "day": {"year": 2024, "month": 1, "day": 1}})
    scenario.change("c", None, {"id": 2, "day": day})
    scenario.catch_up()
    assert [row["day"] for row in scenario.by_id()] == [dt.date(2024, 1, 1)]
    assert [(kind, "not a Date" in words) for kind, words in scenario.dead_letters()] == [("type_mismatch", True)]


@pytest.mark.parametrize(
    ("options", "value", "column", "stored"),
    [
        ('params: [{ key: "scale", value: "2" }]', {"value": "BNI=", "scale": 2}, "decimal(38, 2)", Decimal("12.34")),
        ('params: [{ key: "scale", value: "2" }]', {"value": "Ag==", "scale": 1}, "decimal(38, 2)", Decimal("0.20")),
        ('params: [{ key: "scale", value: "x" }]', {"value": "BNI=", "scale": 2}, "string", "12.34"),
        ('doc: "a price"', {"value": "BNI=", "scale": 2}, "string", "12.34"),
    ],
)
def test_confluents_decimal_is_a_decimal_without_an_envelope_too(
    options: str, value: Row, column: str, stored: Any
) -> None:
    text = f"{_HEAD} message Order {{ confluent.type.Decimal price = 1 [(confluent.field_meta) = {{ {options} }}]; }}"
    schemas = (("1", WriterSchema("protobuf", descriptors=compile_proto(text))),)
    body = json_format.ParseDict({"price": value}, _class(text, "shop.Order")()).SerializeToString()
    records = {"value": pa.array([b"\0\0\0\0\1\0" + body, b"\0\0\0\0\1\0"], pa.binary())}
    reading = Reading("protobuf", schemas=schemas)
    requested_fields = decode_values(reading, (), records).requested_fields[()]
    found = decode_values(reading, new_schema(requested_fields.items()).fields, records)
    assert ({name: str(kind) for name, kind in requested_fields.items()}, found.mismatches) == ({"price": column}, [])
    assert found.columns[0].to_pylist() == [stored, None]


def test_a_column_of_text_has_all_digits_of_a_decimal_whatever_scale_a_record_beside_it_has() -> None:
    """A text holds more digits than the 38 of a decimal, and one record of another scale takes none from the others."""
    options = 'params: [{ key: "scale", value: "2" }]'
    text = f"{_HEAD} message Order {{ confluent.type.Decimal price = 1 [(confluent.field_meta) = {{ {options} }}]; }}"
    reading = Reading("protobuf", schemas=(("1", WriterSchema("protobuf", descriptors=compile_proto(text))),))
    maker, fields = _class(text, "shop.Order"), new_schema({"price": parse_type("string")}.items()).fields

    def value(unscaled: int, scale: int) -> bytes:
        raw = base64.b64encode(unscaled.to_bytes(20, "big", signed=True)).decode()
        message = json_format.ParseDict({"price": {"value": raw, "scale": scale}}, maker())
        return b"\0\0\0\0\1\0" + bytes(message.SerializeToString())

    values, texts = [value(10**44 + 7, 2), value(-5, 3)], [f"1{'0' * 41}0.07", "-0.005"]
    for chosen in ([0], [1], [0, 1], [1, 0]):
        records = {"value": pa.array([values[n] for n in chosen], pa.binary())}
        decoded = decode_values(reading, fields, records)
        assert (decoded.columns[0].to_pylist(), decoded.mismatches) == ([texts[n] for n in chosen], [])


@pytest.mark.parametrize("column", ["", "date"])
def test_googles_date_without_an_envelope_is_a_message_unless_a_column_reports_otherwise(column: str) -> None:
    text = f"{_HEAD} message Order {{ google.type.Date day = 1; }}"
    schemas = (("1", WriterSchema("protobuf", descriptors=compile_proto(text))),)
    body = json_format.ParseDict({"day": {"year": 2024, "month": 1, "day": 2}}, _class(text, "shop.Order")())
    records = {"value": pa.array([b"\0\0\0\0\1\0" + body.SerializeToString()], pa.binary())}
    reading = Reading("protobuf", schemas=schemas)
    fields = {"day": parse_type(column)} if column else decode_values(reading, (), records).requested_fields[()]
    found = decode_values(reading, new_schema(fields.items()).fields, records)
    stored = dt.date(2024, 1, 2) if column else {"year": 2024, "month": 1, "day": 2}
    assert (found.columns[0].to_pylist(), found.requested_fields) == ([stored], {})
