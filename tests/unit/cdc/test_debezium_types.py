"""Debezium's types, as docs/reference/debezium.md reports."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    LongType,
    StringType,
    TimestamptzType,
)

from frazil.cdc.changes import read_envelope
from frazil.decode.connect.schema import logical_types_of_avro
from frazil.decode.connect.unscaled import unscaled_numbers
from frazil.decode.connect.values import LogicalType, read_logical_type
from frazil.decode.json.text import read_base64
from frazil.decode.settings import Envelope, Reading
from frazil.stages.changes import Changes
from tests.unit.cdc.debezium_reference import PAGE, ROWS, Row, envelope_schema, page, read_both, target_of

_MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC).replace(tzinfo=None)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
_UUID = "11111111-2222-3333-4444-555555555555"


def test_the_page_reports_what_the_reader_does() -> None:
    assert PAGE.read_text() == page()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.words)
def test_a_value_means_the_same_in_json_with_its_schema_and_in_avro(row: Row) -> None:
    for kind, changes in read_both(row):
        assert str(kind).replace("optional ", "").split(":")[0].split("<")[0] == row.iceberg.split(":")[0].split("<")[0]
        assert changes.columns[0].to_pylist() == [_expected(row)]


def test_a_timestamp_of_connect_fits_a_column_of_instants_as_well() -> None:
    (row,) = (row for row in ROWS if row.words == "timestamp (connect)")
    for _, changes in read_both(row, TimestamptzType()):
        assert changes.columns[0].to_pylist() == [_MOMENT.replace(microsecond=678000, tzinfo=UTC)]


def _expected(row: Row) -> Any:
    known = {
        "decimal(12, 2)": Decimal("100.01"),
        "decimal(38, 2)": Decimal("100.01"),
        "date": date(2026, 1, 2),
        "uuid": UUID(_UUID).bytes,
        "timestamptz": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
        "timestamp": _MOMENT.replace(microsecond=678000) if str(row.value).endswith("5678") else _MOMENT,
    }
    if row.name.endswith("VariableScaleDecimal"):
        return "10.001"
    if row.kind == "map":
        return list(row.value.items())
    if row.kind == "struct":
        return row.value | {"wkb": base64.b64decode(row.value["wkb"])}
    if row.iceberg == "binary":
        return base64.b64decode(row.value)
    if row.iceberg == "time":
        return time(3, 4, 5, 500001) if row.kind != "int32" else time(3, 4, 5, 500000)
    return known.get(row.iceberg, row.value)


def _read(row: Row, kind: IcebergType, *values: Any) -> Changes:
    schema = envelope_schema([("v", row)])
    messages = [{"schema": schema, "payload": {"after": {"v": value}, "op": "c"}} for value in values]
    raw = [json.dumps(message, separators=(",", ":")).encode() for message in messages]
    return read_envelope(target_of({"v": kind}, Envelope("debezium"), Reading()), {"value": pa.array(raw, pa.binary())})


def _row(name: str) -> Row:
    return next(row for row in ROWS if row.name.endswith(name))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time.ZonedTimestamp", "soon"),
        ("data.Uuid", "no uuid"),
        ("data.Decimal", ""),
        ("data.VariableScaleDecimal", {"scale": 1, "value": ""}),
    ],
)
def test_a_value_that_its_type_cannot_hold_makes_one_bad_record(name: str, value: Any) -> None:
    row = _row(name)
    (kind, _), _ = read_both(row)
    changes = _read(row, kind, row.value, value, row.value)
    assert [(one.row, one.path, one.kind) for one in changes.decoded.mismatches] == [(1, "after.v", "type_mismatch")]
    assert changes.records.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time.MicroTimestamp", 9223372036825200000),
        ("time.MicroTimestamp", -62_135_596_800_000_001),
        ("time.Timestamp", 253_402_300_800_000),
        ("connect.data.Timestamp", -(2**63)),
        ("time.Date", 2_932_897),
        ("time.Date", -719_163),
        ("connect.data.Date", 2**31 - 1),
        ("time.IsoDate", "0000-12-31Z"),
        ("time.IsoDate", "+10000-01-01Z"),
        ("time.IsoTimestamp", "+10000-01-01T00:00:00Z"),
        ("time.ZonedTimestamp", "9999-12-31T23:59:59-05:00"),
        ("time.ZonedTimestamp", "0001-01-01T00:00:00+05:30"),
        ("time.ZonedTimestamp", "0000-01-01T00:00:00Z"),
        ("time.ZonedTimestamp", "+10000-01-01T00:00:00Z"),
        ("time.ZonedTimestamp", "-0001-01-01T00:00:00.5Z"),
        ("time.MicroTime", 86_400_000_000),
        ("time.NanoTime", 86_400_000_000_000),
        ("time.NanoTime", -1),
        ("data.Decimal", base64.b64encode((10**12).to_bytes(8, "big")).decode()),
        ("data.Decimal", base64.b64encode(bytes([1] * 17)).decode()),
        ("data.VariableScaleDecimal", {"scale": -1001, "value": "AQ=="}),
        ("data.VariableScaleDecimal", {"scale": 2**31 - 1, "value": "AQ=="}),
    ],
)
def test_a_value_beyond_the_range_of_its_type_is_out_of_range_and_is_shown(name: str, value: Any) -> None:
    row = _row(name)
    (kind, _), _ = read_both(row)
    changes = _read(row, kind, row.value, value, row.value)
    assert [(one.row, one.path, one.kind) for one in changes.decoded.mismatches] == [(1, "after.v", "out_of_range")]
    assert json.dumps(value, separators=(",", ":"))[:60] in changes.decoded.mismatches[0].reason
    assert changes.records.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("time.NanoTimestamp", 1767323045678901200, _MOMENT),
        ("time.NanoTimestamp", -1, _EPOCH - timedelta(microseconds=1)),
        ("time.NanoTime", 11045500001999, time(3, 4, 5, 500001)),
        ("time.IsoTime", "03:04:05.5000019Z", time(3, 4, 5, 500001)),
        ("time.IsoTimestamp", "1969-12-31T23:59:59.9999999Z", _EPOCH - timedelta(microseconds=1)),
        ("time.IsoTimestamp", "2026-01-02T03:04:05.678901999999", _MOMENT),
        ("time.ZonedTimestamp", "2026-01-02T05:04:05.6789012+02:00", _MOMENT.replace(tzinfo=UTC)),
    ],
)
def test_what_is_less_than_a_microsecond_is_cut_off_towards_the_past(name: str, value: Any, found: Any) -> None:
    row = _row(name)
    (kind, _), _ = read_both(row)
    changes = _read(row, kind, row.value, value, None)
    assert (changes.columns[0].to_pylist()[1:], changes.decoded.mismatches) == ([found, None], [])


@pytest.mark.parametrize("kind", [FloatType(), DoubleType()], ids=str)
def test_numbers_that_json_lacks_are_taken_as_the_converter_writes_them(kind: IcebergType) -> None:
    row = Row("", "float32" if kind == FloatType() else "float64", 1.5)
    values = ["Infinity", 1.5, "-Infinity", None, "NaN", "nan", "1.5"]
    changes = _read(row, kind, *values)
    assert list(map(str, changes.columns[0].to_pylist())) == ["inf", "1.5", "-inf", "None", "nan"]
    assert [(one.row, one.path, one.kind) for one in changes.decoded.mismatches] == [
        (5, "after.v", "type_mismatch"),
        (6, "after.v", "type_mismatch"),
    ]
    listed = _read(Row("", "array", [], inner=(("element", "float64"),)), ListType(1, DoubleType(), False), ["NaN", 1])
    assert str(listed.columns[0].to_pylist()) == "[[nan, 1.0]]"


def test_without_a_schema_a_text_is_no_number() -> None:
    raw = [json.dumps({"after": {"v": value}, "op": "c"}).encode() for value in ("NaN", 1.5)]
    target = target_of({"v": DoubleType()}, Envelope("debezium"), Reading())
    changes = read_envelope(target, {"value": pa.array(raw, pa.binary())})
    assert (changes.records.tolist(), [one.row for one in changes.decoded.mismatches]) == ([1], [0])


def test_a_time_that_is_a_duration_is_kept_as_the_number_that_is_written() -> None:
    changes = _read(_row("time.MicroTime"), LongType(), 90_000_000_000, -1, 86_400_000_000)
    assert changes.columns[0].to_pylist() == [90_000_000_000, -1, 86_400_000_000]


@pytest.mark.parametrize("scale", [-2, 39])
def test_a_decimal_whose_scale_no_column_has_stays_its_unscaled_number(scale: int) -> None:
    row = replace(_row("data.Decimal"), parameters={"scale": str(scale)})
    changes = _read(row, BinaryType(), "JxE=")
    assert (changes.columns[0].to_pylist(), changes.decoded.mismatches) == ([bytes.fromhex("2711")], [])


def _with_map(name: str, keys: str, value: Any, kind: str = "double") -> tuple[dict[str, IcebergType], Changes]:
    """What records ask for that have a map beside a number, and what is read."""
    schema = envelope_schema([("v", Row("", "int32", 1)), ("m", Row("", "map", {}))])
    for image in schema["fields"][:2]:
        image["fields"][1] |= {"name": name, "keys": {"type": keys}, "values": {"type": kind}}
    raw = json.dumps({"schema": schema, "payload": {"after": {"v": 1, "m": value}, "op": "c"}}).encode()
    records = {"value": pa.array([raw], pa.binary())}
    found = read_envelope(target_of({}, Envelope("debezium"), Reading()), records).decoded
    assert found.mismatches == []
    kinds = dict(found.requested_fields[()])
    return kinds, read_envelope(target_of(kinds, Envelope("debezium"), Reading()), records)


@pytest.mark.parametrize(
    ("keys", "value", "kind", "column", "stored"),
    [
        ("int16", [[1, 2.5], [7, 3]], "double", "map<int, double>", [(1, 2.5), (7, 3.0)]),
        ("int64", [[1, "a"], [2, None]], "string", "map<long, string>", [(1, "a"), (2, None)]),
        ("boolean", [[True, "a"]], "string", "map<boolean, string>", [(True, "a")]),
        ("bytes", [["AAE=", "a"]], "string", "map<binary, string>", [(b"\0\1", "a")]),
        ("int64", [], "string", "map<long, string>", []),
        ("int64", None, "string", "map<long, string>", None),
    ],
)
def test_a_map_whose_keys_are_no_texts_is_a_map_with_keys_of_their_type(
    keys: str, value: Any, kind: str, column: str, stored: Any
) -> None:
    kinds, changes = _with_map("x", keys, value, kind)
    assert (str(kinds["m"]), changes.columns[1].to_pylist()) == (column, [stored])
    assert (changes.decoded.mismatches, changes.decoded.dropped) == ([], set())


def test_a_column_that_is_declared_as_the_number_that_is_written_gets_it() -> None:
    changes = _read(_row("time.NanoTimestamp"), LongType(), 1767323045678901001)
    assert changes.columns[0].to_pylist() == [1767323045678901001]


def test_a_number_with_a_scale_of_its_own_becomes_the_decimal_that_is_declared_or_keeps_its_digits() -> None:
    row = _row("VariableScaleDecimal")
    values = [{"scale": 2, "value": "JxE="}, {"scale": 3, "value": "JxE="}, {"scale": -2, "value": "AQ=="}, None]
    values.append({"scale": 0, "value": base64.b64encode((10**60).to_bytes(32, "big")).decode()})
    texts = _read(row, StringType(), *values)
    assert texts.columns[0].to_pylist() == ["100.01", "10.001", "100", None, str(10**60)]
    changes = _read(row, DecimalType(10, 2), *values)
    assert changes.columns[0].to_pylist() == [Decimal("100.01"), Decimal("100.00"), None]
    assert [one.row for one in changes.decoded.mismatches] == [1, 4]


@given(st.lists(st.one_of(st.none(), st.integers(-(10**38) + 1, 10**38 - 1)), max_size=30), st.integers(0, 3))
def test_decimals_are_read_as_the_language_reads_them(numbers: list[int | None], padding: int) -> None:
    raw = [None if n is None else _bytes(n, padding) for n in numbers]
    found, bad = unscaled_numbers(pa.array(raw, pa.binary()))
    is_long = [one is not None and len(one) > 16 for one in raw]
    assert bad.tolist() == is_long
    assert found.to_pylist() == [
        None if n is None or far else Decimal(n) for n, far in zip(numbers, is_long, strict=True)
    ]


def _bytes(number: int, padding: int) -> bytes:
    return number.to_bytes((number.bit_length() + 8) // 8 + padding, "big", signed=True)


@given(st.lists(st.one_of(st.none(), st.binary(max_size=9))), st.integers(0, 3))
def test_base64_is_read_as_the_standard_library_reads_it(values: list[bytes | None], skipped: int) -> None:
    texts = [None if value is None else base64.b64encode(value).decode() for value in values]
    found, bad = read_base64(pa.array(texts, pa.string())[skipped:])
    assert found.to_pylist() == values[skipped:]
    assert not bad.any()


@pytest.mark.parametrize("text", ["a", "ab", "abc", "ab=c", "a===", "====", "ab-_", "ab c", "abcd=", "äbcd"])
def test_what_is_no_base64_is_null_and_told_and_changes_no_other(text: str) -> None:
    found, bad = read_base64(pa.array(["AQI=", text, "", "AQID"]))
    assert (found.to_pylist(), bad.tolist()) == ([b"\1\2", None, b"", b"\1\2\3"], [False, True, False, False])


def test_a_decimal_with_a_negative_scale_is_a_whole_number() -> None:
    raw = pa.array([_bytes(number, 0) for number in (5, -12, 10**37)], pa.binary())
    found = read_logical_type(raw, LogicalType("org.apache.kafka.connect.data.Decimal", -2, 5), None)
    assert found is not None
    assert (str(found.kind), found.array.to_pylist()) == ("decimal(7, 0)", [Decimal(500), Decimal(-1200), None])
    assert found.far is not None
    assert found.far.tolist() == [False, False, True]


@pytest.mark.parametrize("scale", ["x", None, "9" * 5000, [1]])
def test_a_scale_that_is_no_number_means_nothing(scale: Any) -> None:
    name = "org.apache.kafka.connect.data.Decimal"
    kind = {"type": "bytes", "connect.name": name, "connect.parameters": {"scale": scale}}
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]}
    (logical_type,) = logical_types_of_avro(json.dumps(schema)).values()
    assert read_logical_type(pa.array([b"1"]), logical_type, None) is None


def test_a_name_that_does_not_go_with_what_is_written_changes_nothing() -> None:
    for name in ("Decimal", "Date"):
        assert read_logical_type(pa.array(["x"]), LogicalType(f"org.apache.kafka.connect.data.{name}"), None) is None
    assert read_logical_type(pa.array([1]), LogicalType("io.debezium.data.Uuid"), None) is None
    assert read_logical_type(pa.array([1]), LogicalType("com.example.Own"), None) is None


def test_a_text_that_is_no_time_changes_none_of_the_year_1() -> None:
    texts = pa.array(["0001-01-01T00:00:00Z", "no time", None, "2026-01-02T03:04:05Z"])
    found = read_logical_type(texts, LogicalType("io.debezium.time.ZonedTimestamp"), None)
    assert found is not None
    moments = [-62_135_596_800_000_000, None, None, 1_767_323_045_000_000]
    assert (found.array.cast(pa.int64()).to_pylist(), found.bad.tolist()) == (moments, [False, True, False, False])
