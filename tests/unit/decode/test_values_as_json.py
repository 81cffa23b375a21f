"""Columns of values as JSON texts are what each value is by itself."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.decode.values_as_json import as_json, json_text, json_texts

MOMENT = datetime(2026, 1, 31, 1, 2, 3, 50, UTC)
MOMENTS = [datetime(1, 1, 1, tzinfo=UTC), MOMENT, datetime(1969, 12, 31, 10, 0, 10, tzinfo=UTC)]
COLUMNS = [
    pa.array([True, False]),
    pa.array([0, -(2**63), 2**63 - 1], pa.int64()),
    pa.array([7], pa.int32()),
    pa.array([1.0, -0.0, 0.1, 1e300, 5e-324, 123456789.123, float("nan"), float("inf"), float("-inf")]),
    pa.array([0.1, 3.4e38], pa.float32()),
    pa.array(["", "x", 'a"b\\c/', "é\u2028\U0001f600", "\x00\n\x1f\x7f"]),
    pa.array(["x", "y", "x"]).dictionary_encode(),
    pa.array([date(1, 1, 1), date(9999, 12, 31)]),
    pa.array([time(1, 2, 3), time(1, 2, 3, 5)], pa.time64("us")),
    pa.array(MOMENTS, pa.timestamp("us")),
    pa.array(MOMENTS, pa.timestamp("us", "UTC")),
    pa.array([Decimal("1.50"), Decimal("-0.01")], pa.decimal128(9, 2)),
    pa.array([Decimal("0E-10"), Decimal("-1E-10"), Decimal("1.5")], pa.decimal128(38, 10)),
    pa.array([b"", b"\x00\xff"]),
    pa.array([b"ab"], pa.binary(2)),
    pa.array([{"a": 1, "b": None}, {"a": None, "b": "x"}]),
    pa.array([[1.5], []]),
    pa.array([[("k", MOMENT)]], pa.map_(pa.string(), pa.timestamp("us"))),
    pa.array([], pa.string()),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_a_column_is_written_as_its_values_are(column: pa.Array) -> None:
    assert _read(json_texts(column)) == [json.loads(as_json(value)) for value in column.to_pylist()]
    assert json_texts(column).type == pa.string()


@given(st.lists(st.floats() | st.floats(width=32)), st.lists(st.text(st.characters(codec="utf-8"))))
def test_numbers_and_texts_come_back(numbers: list[float], texts: list[str]) -> None:
    assert _read(json_texts(pa.array(texts, pa.string()))) == texts
    found = _read(json_texts(pa.array(numbers, pa.float64())))
    assert [float(value) for value in found] == pytest.approx(numbers, rel=0, abs=0, nan_ok=True)
    assert all(isinstance(value, float | str) for value in found), "a number with a fraction is none without"


@pytest.mark.parametrize(
    ("kind", "number", "text"),
    [
        (pa.date32(), 2_932_896, "9999-12-31"),
        (pa.date32(), 2_932_897, "+10000-01-01"),
        (pa.date32(), -719_163, "0000-12-31"),
        (pa.date32(), 2**31 - 1, "+5881580-07-11"),
        (pa.date32(), -(2**31), "-5877641-06-23"),
        (pa.timestamp("us"), 253_402_300_799_999_999, "9999-12-31T23:59:59.999999"),
        (pa.timestamp("us"), 253_402_300_800_000_000, "+10000-01-01T00:00:00"),
        (pa.timestamp("us", "UTC"), -62_135_596_800_000_001, "0000-12-31T23:59:59.999999+00:00"),
        (pa.timestamp("us", "UTC"), 2**63 - 1, "+294247-01-10T04:00:54.775807+00:00"),
        (pa.timestamp("us", "UTC"), -(2**63), "-290308-12-21T19:59:05.224192+00:00"),
    ],
)
def test_days_and_times_for_which_python_has_none_are_spelt_too(kind: pa.DataType, number: int, text: str) -> None:
    column = pa.array([number, 0], pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)
    whole, ends = column.slice(0, 1), pa.array([0, 1], pa.int32())
    nested = [
        (pa.StructArray.from_arrays([whole, pa.array([b"\x00"])], ["at", "raw"]), {"at": text, "raw": "AA=="}),
        (pa.ListArray.from_arrays(ends, whole), [text]),
        (pa.MapArray.from_arrays(ends, pa.array(["k"]), whole), [["k", text]]),
    ]
    assert _read(json_texts(column))[0] == text
    for array, expected in [(whole, text), *nested]:
        assert _read(json_texts(array)) == [expected]
        assert json.loads(json_text(array[0])) == expected


def _read(texts: pa.Array) -> list[Any]:
    return [json.loads(text) for text in texts.to_pylist()]


def test_decimals_are_plain_digits_and_numbers_that_json_lacks_are_those_of_kafka_connect() -> None:
    decimals = pa.array([Decimal("0E-10"), Decimal("-1E-10"), Decimal(12)], pa.decimal128(38, 10))
    assert _read(json_texts(decimals)) == ["0.0000000000", "-0.0000000001", "12.0000000000"]
    assert _read(json_texts(pa.array([{"d": one} for one in decimals.to_pylist()]))) == [
        {"d": "0.0000000000"}, {"d": "-0.0000000001"}, {"d": "12.0000000000"},
    ]  # fmt: skip
    endless = [float("nan"), float("inf"), float("-inf")]
    for kind in (pa.float32(), pa.float64()):
        assert _read(json_texts(pa.array(endless, kind))) == ["NaN", "Infinity", "-Infinity"]
    assert _read(json_texts(pa.array([endless]))) == [["NaN", "Infinity", "-Infinity"]]
