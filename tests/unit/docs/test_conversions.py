"""The page on lossless conversion: each of its rows is tried."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.types import IcebergType, NestedField, StructType

from docs.scan import ROOT
from frazil.decode.cast import convert_columns
from frazil.decode.columns import Columns, Decoded
from frazil.decode.conversion import Conversion
from frazil.decode.settings import NO_EVOLUTION, Reading
from frazil.schema.arrow import arrow_type
from frazil.spec.syntax.types import parse_type

_PAGE = ROOT / "docs" / "reference" / "conversions.md"
_ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \| ([^|]*)\| ([^|]*)\|$", re.MULTILINE)
ROWS = [
    (written, wanted, re.findall("`([^`]+)`", good), re.findall("`([^`]+)`", bad))
    for written, wanted, good, bad in _ROW.findall(_PAGE.read_text())
]


def test_the_table_is_found() -> None:
    assert len(ROWS) > 20


@pytest.mark.parametrize(("written", "wanted", "good", "bad"), ROWS, ids=[f"{row[0]} to {row[1]}" for row in ROWS])
def test_values_go_over_as_the_page_reports(written: str, wanted: str, good: list[str], bad: list[str]) -> None:
    values = pa.concat_arrays([_value(parse_type(written), text) for text in [*good, *bad]])
    decoded = _fit(values, parse_type(written), parse_type(wanted))
    assert decoded.refused.tolist() == [False] * len(good) + [True] * len(bad)
    kept = decoded.columns[0].slice(0, len(good))
    if pa.types.is_integer(kept.type) and pa.types.is_decimal(values.type):  # Arrow asks for room for every integer.
        kept = kept.cast(pa.decimal256(38, values.type.scale))
    _assert_same(kept.cast(values.type), values.slice(0, len(good)))


def _fit(values: pa.Array, written: IcebergType, wanted: IcebergType) -> Decoded:
    fitting = Conversion(Reading(format="avro", evolution=NO_EVOLUTION), "7", len(values), len(values))
    columns = Columns([values], np.zeros(len(values), np.uint8), ())
    struct = StructType(NestedField(0, "v", written, required=False))
    return convert_columns(fitting, struct, columns, [NestedField(1, "v", wanted, required=False)])


def _value(kind: IcebergType, text: str) -> pa.Array:
    arrow = arrow_type(kind)
    if text.startswith("0x"):
        return pa.array([bytes.fromhex(text[2:])], arrow)
    return pa.array([text]).cast(arrow)


def _assert_same(one: pa.Array, other: pa.Array) -> None:
    """Also for NaN, which is equal to nothing."""
    assert [repr(value) for value in one.to_pylist()] == [repr(value) for value in other.to_pylist()]
