"""Values of columns that the pipeline file writes as text: the same when it is checked and when rows get them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from frazil.errors import SpecError

_CONSTANT_TYPES: Mapping[type[IcebergType], pa.DataType] = {
    StringType: pa.string(),
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", tz="UTC"),
}


def parse_constant(text: str, kind: IcebergType) -> pa.Scalar:
    """The value of a constant column. Raises SpecError for what is no value of its type."""
    target = _CONSTANT_TYPES.get(type(kind))
    if isinstance(kind, DecimalType):
        target = pa.decimal128(kind.precision, kind.scale)
    if target is None:
        words = "string, boolean, int, long, float, double, decimal(p,s), date, timestamp or timestamptz"
        raise SpecError(f"a constant cannot be a `{kind}`", remedy=f"write {words} as its type")
    try:
        value = pa.scalar(text).cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise SpecError(f"`{text}` is no {kind}", remedy=f"write a value that a {kind} can hold") from None
    if pa.types.is_floating(target) and value.as_py() in (float("inf"), float("-inf")) and "inf" not in text.lower():
        raise SpecError(f"`{text}` is out of the range of {kind}", remedy=f"write a value that a {kind} can hold")
    return value
