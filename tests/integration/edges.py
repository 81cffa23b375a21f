"""Rows of edge values for every type that queries compute with."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from frazil.schema.arrow import arrow_type

_INTS = [0, 1, -1, 2, 7, -7, 10, 100, 2**31 - 1, -(2**31), 46341, None]
_LONGS = [*_INTS[:-1], 2**31, -(2**31) - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 3037000500, 9223372036855, None]
_DOUBLES = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-320, 1e308, -1e308, 2.0**31, -(2.0**31) - 1, -2147483648.5,
    2147483647.5, 2.0**63, -(2.0**63), 9.3e18, 1e15 + 0.3, math.nan, math.inf, -math.inf, None,
]  # fmt: skip
_DECIMALS = ["0", "0.01", "-0.01", "0.05", "0.15", "-0.25", "1.25", "2.50", "99999999.99", "-99999999.99", "12345678.90",
             "1.00", "-3.00", None]  # fmt: skip
_WIDE = ["0", "0.000000000000000001", "-0.000000000000000001", "12345678901234567890.123456789012345678",
         "-99999999999999999999.999999999999999999", "2147483647.999", "2147483648", "-2147483648.9", "-2147483649",
         "9223372036854775807.5", "9223372036854775808", "-9223372036854775808.5", "0.5", "1.5", "-1.5", "0.1", "99.99",
         "123.456789", None]  # fmt: skip
_TEXTS = [
    "", " ", "a", "A", "abc", "ABC", " abc ", "a,b,c", ",", ",,a", "aXbXc", "ab%c", "a_c", "a\\b", "äöü", "ÄÖÜ", "ß",
    "İstanbul", "ΑΣ", "ΑΣΑ", "ǅ", "😀 smile", "e\u0301", "\u00a0x\u00a0", "\tx\n", "\x00", "a\x00b", "line\nbreak",
    "line\r\nbreak", "%", "_", "100%", "The quick brown fox", "x" * 100, "ﬁ", "ŉ", "日本語テキスト", "0", "null", None,
]  # fmt: skip
_NUMBERS = [
    "0", "1", "-1", "+3", " 4 ", "\t5\n", "\x7f6", "\x007", "\u00a08", "1e3", "1E-3", "12.345", "12.345e2", "-.5", ".5",
    "5.", ".", "-", "+", "", " ", "1_000", "0x1F", "0x1p3", "1d", "1f", "1L", "NaN", "nan", "-NaN", "Infinity", "-infinity",
    "inf", "+INF", "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "99999999999999999999", "99999999.994", "99999999.995", "0.005", "0.004",
    "-0.005", "1e38", "1e39", "1e-400", "1e400", "-1e400", "00012", "1 2", "--1", "+-1", "١٢", "１２", "true", "True", "t",
    "YES", "n", "F", "no", "false",
    " true ", "0.1", "123456789012345678.9", "1e2147483648", "0e99999999999",
    "0.30000000000000004", "4.9e-324", "1.7976931348623157e308", "1.7976931348623159e308", "9007199254740993", "1e", "e1",
    "123456789012345678901234567890.12", "-0", "-0.0", "1.0", None,
]  # fmt: skip
_TIMES = [
    "2026-01-31", "2026-02-29", "2024-02-29", "2026-1-3", "2026-1", "2026", "26", "02026-01-01", "+2026-01-01", "-0001-01-01",
    "0000-01-01", "0001-01-01", "9999-12-31", "10000-01-01", "+10000-01-01", "1582-10-10", " 2026-01-31 ", "2026-01-31T",
    "2026-01-31 ", "2026-01-31 x", "2026-01-31x", "2026-13-01", "2026-00-01", "2026-01-32", "2026/01/31", "20260131",
    "2026-01-31 12", "2026-01-31 12:30", "2026-01-31 12:30:45", "2026-01-31T12:30:45", "2026-01-31t12:30:45",
    "2026-01-31 12:30:45.1", "2026-01-31 12:30:45.123456", "2026-01-31 12:30:45.1234567", "2026-01-31 12:30:45.",
    "2026-01-31T12:30:45Z", "2026-01-31T12:30:45z", "2026-01-31T12:30:45.5Z", "2026-01-31 12:30:45+02:00",
    "2026-01-31 12:30:45-0200", "2026-01-31 12:30:45+2", "2026-01-31 12:30:45+02", "2026-01-31 12:30:45 +02:00",
    "2026-01-31 12:30:45 UTC", "2026-01-31 12:30:45UTC+1", "2026-01-31 12:30:45 GMT", "2026-01-31 12:30:45+19:00",
    "2026-01-31 12:30:45+18:00", "2026-01-31 12:30:45-18:01", "2026-01-31 24:00:00", "2026-01-31 12:60:00",
    "2026-01-31 12:30:60", "2026-01-31 1:2:3", "2026-01-31 001:2:3", "2026-01-31 12:30:45+2:5", "2026-01-31T12:3:45.0001",
    "1969-12-31 23:59:59.999999", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "2026-03-29 02:30:00",
    "294247-01-10T04:00:54.775807", "294247-01-10T04:00:54.775808", "-290308-12-21T19:59:05.224192", "epoch", "now",
    "2026-01-31\n", "\t2026-01-31", "", "abc", "1", "2026-01-31T12:30:45.123456789Z", "2026-01-31 123045", "99999999-01-01",
    "2026-01-31 12:30:45 Europe/Berlin", "2026-01-31 12:30:45 EST", "2026-01-31 12:30:45.5 +01:00:30",
    "2026-03-29 02:30:00 Europe/Berlin", "2026-10-25 02:30:00 Europe/Berlin", "2026-01-31 12:30:45 Nowhere/City", None,
]  # fmt: skip
_DAYS = ["0001-01-01", "1582-10-10", "1969-12-31", "1970-01-01", "2000-02-29", "2024-12-30", "2026-01-01", "2026-01-31",
         "2026-03-29", "2027-01-03", "1900-02-28", "9999-12-31", None]  # fmt: skip
_MOMENTS = [
    "0001-01-01T00:00:00", "1582-10-10T12:00:00.000001", "1969-12-31T23:59:59.999999", "1970-01-01T00:00:00",
    "1900-01-01T00:00:00", "2000-02-29T12:34:56.7", "2026-03-29T01:30:00", "2026-10-25T01:30:00", "2026-01-31T23:59:59",
    "2021-01-03T06:07:08.090909", "9999-12-31T23:59:59.999999", None,
]  # fmt: skip
_BYTES = [b"", b"a", b"abc", bytes(range(58)), bytes(57), b"\xff\xfe", "äö".encode(), b"x" * 200, None]
_INT_LISTS: list[Any] = [[], [1], [1, None, 3], [None], [2**31 - 1, -1], list(range(5)), None]
_TEXT_LISTS: list[Any] = [[], ["a"], ["a", None], [None], ["", "abc", "ä"], None]
_MAPS: list[Any] = [[], [("a", 1)], [("a", None), ("b", 2)], [("", 0), ("abc", -1)], None]
_STRUCTS = [{"x": 1, "y": "a"}, {"x": None, "y": "b"}, {"x": -1, "y": None}, {"x": None, "y": None}, None]


def _dates(texts: list[Any]) -> list[Any]:
    return [None if text is None else date.fromisoformat(text) for text in texts]


def _times(texts: list[Any], is_zoned: bool) -> list[Any]:
    zone = UTC if is_zoned else None
    return [None if text is None else datetime.fromisoformat(text).replace(tzinfo=zone) for text in texts]


def _decimals(texts: list[Any]) -> list[Any]:
    return [None if text is None else Decimal(text) for text in texts]


_INT_LIST = ListType(101, IntegerType(), element_required=False)
_TEXT_LIST = ListType(102, StringType(), element_required=False)
_MAP = MapType(103, StringType(), 104, IntegerType(), value_required=False)
_STRUCT = StructType(
    NestedField(105, "x", IntegerType(), required=False), NestedField(106, "y", StringType(), required=False)
)
COLUMNS: dict[str, tuple[IcebergType, list[Any]]] = {
    "i": (IntegerType(), _INTS),
    "j": (IntegerType(), _INTS),
    "l": (LongType(), _LONGS),
    "k": (LongType(), _LONGS),
    "d": (DoubleType(), _DOUBLES),
    "e": (DoubleType(), _DOUBLES),
    "f": (FloatType(), [one for one in _DOUBLES if one is None or abs(one) < 1e30 or one != one]),
    "c": (DecimalType(10, 2), _decimals(_DECIMALS)),
    "g": (DecimalType(10, 2), _decimals(_DECIMALS)),
    "h": (DecimalType(38, 18), _decimals(_WIDE)),
    "s": (StringType(), _TEXTS),
    "t": (StringType(), _TEXTS),
    "n": (StringType(), _NUMBERS),
    "w": (StringType(), _TIMES),
    "a": (BooleanType(), [True, False, None]),
    "b": (BooleanType(), [True, False, None]),
    "dt": (DateType(), _dates(_DAYS)),
    "du": (DateType(), _dates(_DAYS)),
    "ts": (TimestamptzType(), _times(_MOMENTS, True)),
    "tu": (TimestamptzType(), _times(_MOMENTS, True)),
    "tn": (TimestampType(), _times(_MOMENTS, False)),
    "raw": (BinaryType(), _BYTES),
    "li": (_INT_LIST, _INT_LISTS),
    "lt": (_TEXT_LIST, _TEXT_LISTS),
    "m": (_MAP, _MAPS),
    "st": (_STRUCT, _STRUCTS),
}
"""The type and the edge values of each column."""
SCHEMA = Schema(*(NestedField(n, name, kind, required=False) for n, (name, (kind, _)) in enumerate(COLUMNS.items(), 1)))


def edge_rows(count: int, seed: int) -> pa.Table:
    """Returns rows in which every edge value of every column is, beside others by chance. count: at least 100."""
    chance = np.random.default_rng(seed)
    arrays = []
    for kind, values in COLUMNS.values():
        order = np.concatenate([chance.permutation(len(values)) for _ in range(count // len(values) + 1)])
        chosen = [values[place] for place in order[:count].tolist()]
        arrays.append(pa.array(chosen, arrow_type(kind)))
    return pa.Table.from_arrays(arrays, list(COLUMNS))
