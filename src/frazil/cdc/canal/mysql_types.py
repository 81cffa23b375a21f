"""Types of MySQL's columns, parsed from their text, and the Iceberg type of each. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyiceberg.types import (
    BinaryType,
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
    TimeType,
)

_FORM = re.compile(r"\s*([a-z]+(?: precision)?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?(.*)", re.DOTALL)
_MAX_DIGITS = 38
_UNSIGNED_64 = DecimalType(20, 0)
_PLAIN: dict[str, IcebergType] = {
    **dict.fromkeys(("bool", "boolean", "tinyint", "smallint", "mediumint", "year"), IntegerType()),
    "float": FloatType(),
    **dict.fromkeys(("double", "double precision", "real"), DoubleType()),
    "date": DateType(),
    "time": TimeType(),
    **dict.fromkeys(("datetime", "timestamp"), TimestampType()),
}
_BYTES = frozenset(
    (
        "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "geometry", "point", "linestring", "polygon",
        "multipoint", "multilinestring", "multipolygon", "geometrycollection", "geomcollection",
    )
)  # fmt: skip
_DECIMALS = ("decimal", "numeric", "dec", "fixed")


@dataclass(frozen=True)
class SourceType:
    """The type of a column of the source."""

    #: The type as the source names it.
    text: str
    #: The Iceberg type.
    kind: IcebergType
    #: Whether values are bytes, each written as the ISO 8859-1 character of its number.
    is_bytes: bool = False


UNKNOWN = SourceType("text", StringType())
"""The type of a column without type information: its texts are kept."""


def parse_type(text: str) -> SourceType:
    """Returns the type for a text such as `bigint(20) unsigned` or `decimal(10,2)`; the type string for an unknown type."""
    found = _FORM.fullmatch(text.lower())
    if found is None:
        return SourceType(text, StringType())
    name, first, second, rest = found.groups()
    if name in _BYTES:
        return SourceType(text, BinaryType(), is_bytes=True)
    kind = _PLAIN.get(name) or _sized(name, int(first) if first else None, int(second or 0), "unsigned" in rest)
    return SourceType(text, kind)


def _sized(name: str, size: int | None, scale: int, is_unsigned: bool) -> IcebergType:
    """Returns types that depend on a size in brackets, or on being unsigned. MySQL always names the size of bits and
    decimals: without it, as TiCDC leaves it out, they may have any size.
    """
    if name in ("int", "integer"):
        return LongType() if is_unsigned else IntegerType()
    if name == "bigint":
        return _UNSIGNED_64 if is_unsigned else LongType()
    if name == "bit":
        bits = size or 64
        return BooleanType() if bits == 1 else LongType() if bits < 64 else _UNSIGNED_64
    if name in _DECIMALS and size and size <= _MAX_DIGITS and scale <= size:
        return DecimalType(size, scale)
    return StringType()
