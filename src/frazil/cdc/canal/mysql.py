"""Types of MySQL's columns, parsed from their text, and the Iceberg type of each. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from frazil.decode.json.grammar import STRING
from frazil.decode.json.text import TEXT_READERS, TextColumn, read_latin1
from frazil.decode.json.values import OUT_OF_RANGE
from frazil.schema.arrow import Bools, arrow_type

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

_NUMBERS = (IntegerType, LongType, FloatType, DoubleType, DecimalType)
_TIMES = (TimestampType, TimestamptzType)
_INTEGERS, _NUMBER = r"^-?[0-9]+$", r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_MAX_INTEGER_DIGITS = 25  # Longer texts of numbers are refused unread: no integer column holds them.


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


def reading_type(source: SourceType, column_type: IcebergType | None) -> IcebergType:
    """Returns the type as which texts of this source are read. column_type: the type of the table's column; None without
    one.

    A number is read as the type of the source, so that the conversion rules of numbers are those of every format; other
    values as the type of the column.
    """
    if column_type is None or column_type == source.kind:
        return source.kind
    if isinstance(source.kind, _NUMBERS) and isinstance(column_type, (*_NUMBERS, *_TIMES)):
        return source.kind
    return column_type if type(column_type) in _READERS or type(column_type) in TEXT_READERS else source.kind


@dataclass(frozen=True)
class Read:
    """The values of texts."""

    #: The values, null where the text is null or no value of the type.
    array: pa.Array
    #: Which texts are no values of the type: bool of shape (n_texts,).
    bad: Bools
    #: Which of these are values out of the type's range.
    far: Bools


def read_texts(texts: pa.StringArray, source: SourceType, kind: IcebergType) -> Read:
    """Returns the values in this type, which is one that `reading_type` returns."""
    reader = _bytes if source.is_bytes and not isinstance(kind, StringType) else _READERS.get(type(kind))
    if reader is not None:
        array, bad = reader(texts, kind)
        return Read(array, bad, np.zeros(len(texts), np.bool_))
    codes = np.zeros(len(texts), np.uint8)
    column = TextColumn(texts, np.asarray(texts.is_valid()).astype(np.uint8), codes)
    array = TEXT_READERS[type(kind)].read(column, kind, np.full(len(texts), STRING, np.uint8))
    return Read(array, codes != 0, codes == OUT_OF_RANGE)


def _cannot_cast(texts: pa.Array, found: pa.Array) -> Bools:
    return np.asarray(pc.and_(texts.is_valid(), found.is_null()))


def _text(texts: pa.StringArray, _: IcebergType) -> tuple[pa.Array, Bools]:
    return texts, np.zeros(len(texts), np.bool_)


def _boolean(texts: pa.StringArray, _: IcebergType) -> tuple[pa.Array, Bools]:
    found = pa.array([False, True]).take(pc.index_in(texts, pa.array(["0", "1"])))
    return found, _cannot_cast(texts, found)


def _integer(texts: pa.StringArray, kind: IcebergType) -> tuple[pa.Array, Bools]:
    digits = pc.if_else(pc.fill_null(pc.match_substring_regex(texts, _INTEGERS), False), texts, None)
    try:
        numbers = digits.cast(pa.int64())
    except pa.ArrowInvalid:  # Some of them are too large.
        numbers = pa.array([_read_integers(text) for text in digits.to_pylist()], pa.int64())
    if isinstance(kind, IntegerType):
        is_int = pc.and_(pc.greater_equal(numbers, -(2**31)), pc.less(numbers, 2**31))
        numbers = pc.if_else(is_int, numbers, None).cast(pa.int32())
    return numbers, _cannot_cast(texts, numbers)


def _read_integers(text: str | None) -> int | None:
    number = int(text) if text is not None and len(text) <= _MAX_INTEGER_DIGITS else 2**63
    return number if -(2**63) <= number < 2**63 else None


def _float(texts: pa.StringArray, kind: IcebergType) -> tuple[pa.Array, Bools]:
    formatted = pc.if_else(pc.fill_null(pc.match_substring_regex(texts, _NUMBER), False), texts, None)
    numbers = formatted.cast(arrow_type(kind))
    found = pc.if_else(pc.is_finite(numbers), numbers, None)
    return found, _cannot_cast(texts, found)


def _bytes(texts: pa.StringArray, kind: IcebergType) -> tuple[pa.Array, Bools]:
    """Returns the bytes, and which are valid: with a fixed-length type those of its length."""
    raw, _ = read_latin1(texts)
    if not isinstance(kind, BinaryType | FixedType | UUIDType):
        return pa.nulls(len(texts), arrow_type(kind)), np.asarray(texts.is_valid())
    target = arrow_type(kind)
    if pa.types.is_fixed_size_binary(target):
        fits = pc.fill_null(pc.equal(pc.binary_length(raw), target.byte_width), False)
        raw = pc.if_else(fits, raw, None).cast(target)
    return raw, _cannot_cast(texts, raw)


_READERS: dict[type[IcebergType], Callable[[pa.StringArray, IcebergType], tuple[pa.Array, Bools]]] = {
    StringType: _text,
    BooleanType: _boolean,
    IntegerType: _integer,
    LongType: _integer,
    FloatType: _float,
    DoubleType: _float,
}
