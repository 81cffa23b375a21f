"""Rows as the bytes of records: every type, nulls, and nested values, in each format."""

from __future__ import annotations

import base64
import io
import json
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.types import ListType as Elements

from frazil.decode.connect.schema import parse_connect_type
from frazil.schema.arrow import arrow_field
from frazil_replay.values import AvroEncoder, ConnectJsonEncoder, Encoder, JsonEncoder

_INNER = StructType(NestedField(20, "u", UUIDType()), NestedField(21, "t", TimestampType()))
_KINDS = {
    "id": LongType(),
    'te"xt': StringType(),
    "ok": BooleanType(),
    "x": DoubleType(),
    "day": DateType(),
    "clock": TimeType(),
    "local": TimestampType(),
    "at": TimestamptzType(),
    "price": DecimalType(9, 2),
    "uuid": UUIDType(),
    "raw": BinaryType(),
    "list": Elements(30, _INNER, element_required=False),
    "named": MapType(31, StringType(), 32, LongType()),
    "pairs": MapType(33, LongType(), 34, StringType()),
}
FIELDS = [NestedField(number, name, kind) for number, (name, kind) in enumerate(_KINDS.items(), 1)]
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_901)  # noqa: DTZ001  (a time without a zone)
ROW: dict[str, Any] = {
    "id": -(2**63), 'te"xt': 'a\n"ü', "ok": True, "x": 0.1, "day": date(2026, 1, 2), "clock": time(3, 4, 5, 678_901),
    "local": MOMENT, "at": MOMENT.replace(tzinfo=UTC), "price": Decimal("-12.50"), "uuid": UUID(int=7).bytes, "raw": b"ab",
    "list": [{"u": UUID(int=8).bytes, "t": MOMENT}, None], "named": [("a", 1)], "pairs": [(1, "a")],
}  # fmt: skip
EMPTY: dict[str, Any] = dict.fromkeys(ROW)
BATCH = pa.RecordBatch.from_pylist([ROW, EMPTY, ROW], schema=pa.schema([arrow_field(field) for field in FIELDS]))


def _objects(encoder: Encoder) -> list[dict[str, Any]]:
    return [json.loads(one) for one in encoder.encode(BATCH)]


def test_json_keeps_every_digit() -> None:
    row = {
        "id": -(2**63), 'te"xt': 'a\n"ü', "ok": True, "x": 0.1, "day": "2026-01-02", "clock": "03:04:05.678901",
        "local": "2026-01-02T03:04:05.678901", "at": "2026-01-02T03:04:05.678901+00:00", "price": "-12.50",
        "uuid": str(UUID(int=7)), "raw": "YWI=", "list": [{"u": str(UUID(int=8)), "t": "2026-01-02T03:04:05.678901"}, None],
        "named": {"a": 1}, "pairs": [[1, "a"]],
    }  # fmt: skip
    assert _objects(JsonEncoder(FIELDS)) == [row, EMPTY, row]


def test_the_schema_of_connect_is_one_that_frazil_reads_itself() -> None:
    first, second, _ = _objects(ConnectJsonEncoder(FIELDS, "a.b"))
    found = parse_connect_type(json.dumps(first["schema"]).encode())
    assert [field.name for field in found.kind.fields] == list(ROW)  # type: ignore[attr-defined]
    assert first["payload"]["local"] == 1_767_323_045_678_901
    assert first["payload"]["at"] == "2026-01-02T03:04:05.678901+00:00"
    assert first["payload"]["day"] == 20_455
    assert first["payload"]["price"] == "+x4="  # -1250
    assert first["payload"]["list"][0] == {"u": str(UUID(int=8)), "t": 1_767_323_045_678_901}
    assert second["payload"] == EMPTY


def test_avro_has_the_values_behind_the_schema_s_id() -> None:
    schemas: list[str] = []

    def register(schema: str) -> int:
        schemas.append(schema)
        return 258

    first, second, _ = AvroEncoder([field for field in FIELDS if field.name != 'te"xt'], "a.b", register).encode(
        BATCH.drop_columns(['te"xt'])
    )
    assert first[:5] == b"\0\0\0\1\2"
    schema = json.loads(schemas[0])
    assert schema["name"] == "a_b"
    assert "field-id" not in schemas[0]
    row: Any = fastavro.schemaless_reader(io.BytesIO(first[5:]), schema, None)
    assert row["local"] == MOMENT
    assert row["at"] == MOMENT.replace(tzinfo=UTC)
    assert (row["price"], row["clock"], row["day"]) == (Decimal("-12.50"), time(3, 4, 5, 678_901), date(2026, 1, 2))
    assert row["named"] == {"a": 1}
    assert row["list"][0]["t"] == MOMENT
    empty: Any = fastavro.schemaless_reader(io.BytesIO(second[5:]), schema, None)
    assert set(empty.values()) == {None}


def test_decimals_of_connect_keep_38_digits() -> None:
    number = Decimal("-123456789012345678901234567890123456.78")
    rows = pa.record_batch([pa.array([number], pa.decimal128(38, 2))], names=["d"])
    (one,) = ConnectJsonEncoder([NestedField(1, "d", DecimalType(38, 2))], "t").encode(rows)
    raw = base64.b64decode(json.loads(one)["payload"]["d"])
    assert Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-2, Context(prec=40)) == number


def test_nested_values_that_python_lacks_are_written() -> None:
    kind = StructType(NestedField(2, "at", TimestampType()))
    rows = pa.record_batch([pa.array([{"at": 2**60}], pa.struct([("at", pa.timestamp("us"))]))], names=["s"])
    assert "38504" in json.dumps(json.loads(JsonEncoder([NestedField(1, "s", kind)]).encode(rows)[0]))
    pairs = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))
    encoder = JsonEncoder([NestedField(1, "m", MapType(2, StringType(), 3, LongType()))])
    assert json.loads(encoder.encode(pa.record_batch([pairs], names=["m"]))[0]) == {"m": [["a", 1], ["a", 2]]}


def test_decimals_of_connect_are_two_s_complement() -> None:
    fields = [NestedField(1, "d", DecimalType(5, 0))]
    numbers = [0, 1, -1, 127, 128, -128, -129, 255, 99_999]
    rows = pa.record_batch([pa.array([Decimal(one) for one in numbers], pa.decimal128(5, 0))], names=["d"])
    texts = [json.loads(one)["payload"]["d"] for one in ConnectJsonEncoder(fields, "t").encode(rows)]

    raw = [base64.b64decode(text) for text in texts]
    assert [int.from_bytes(one, "big", signed=True) for one in raw] == numbers
    assert [len(one) for one in raw] == [1, 1, 1, 1, 2, 1, 2, 2, 3]
