"""Partition values of whole columns, for JSON and for paths, equal to those of Iceberg's Java library for every type.

Times are computed here: pyiceberg-core, which has the other transforms, returns null for years beyond Python's.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import quote_plus
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyiceberg import types as t
from pyiceberg_core import transform as core

from frazil.errors import SpecError
from frazil.literals import format_day, format_moment
from frazil.types import DataFile

_MICROS = {"hour": 3_600_000_000, "day": 86_400_000_000}
_UNITS = {"year": "Y", "month": "M"}
_MAX_NAME_BYTES = 180
PartitionText = tuple[Any, str]
"""A partition value for JSON, and its text for a path."""


def transformed(transform: str, column: pa.Array) -> pa.Array:
    """Returns the partition values of a column for one of Iceberg's transforms other than void; null for null.

    Years, months, days and hours are int32 since 1970 and buckets int32; other transforms keep the column's type.
    Source: Iceberg spec, "Partition Transforms".
    """
    name, _, number = transform.rstrip("]").partition("[")
    if name == "identity":
        return column
    if name == "bucket":
        return _bucket(column, int(number))
    if name == "truncate":
        return _truncate(column, int(number))
    return _time(name, column)


def _time(name: str, column: pa.Array) -> pa.Array:
    is_date = pa.types.is_date32(column.type)
    raw = _numbers(column, pa.int32() if is_date else pa.int64())
    if name in _UNITS:
        times = raw.astype("datetime64[D]" if is_date else "datetime64[us]")
        values = times.astype(f"datetime64[{_UNITS[name]}]").astype(np.int64)
    else:
        values = raw if is_date else raw // _MICROS[name]
    return pa.array(values.astype(np.int32), pa.int32(), mask=_nulls(column))


def _bucket(column: pa.Array, count: int) -> pa.Array:
    kind = column.type
    if pa.types.is_fixed_size_binary(kind):
        column = column.cast(pa.binary())
    elif pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        # All of these types are hashed as longs.
        numbers = _numbers(column, pa.int32() if kind.bit_width == 32 else pa.int64()).astype(np.int64)
        column = pa.array(numbers, pa.int64(), mask=_nulls(column))
    return core.bucket(column, count)


def _truncate(column: pa.Array, width: int) -> pa.Array:
    if not pa.types.is_int32(column.type):
        return core.truncate(column, width)
    # As in Java, whose sum overflows for widths of more than 2**30.
    values, number = _numbers(column, pa.int32()), np.int32(width)
    rest = np.fmod(np.fmod(values, number) + number, number)
    return pa.array(values - rest, pa.int32(), mask=_nulls(column))


def _numbers(column: pa.Array, kind: pa.DataType) -> np.ndarray:
    """Returns the raw numbers; an arbitrary number in place of null."""
    raw = column if column.type == kind else column.view(kind)
    numbers: np.ndarray = raw.fill_null(0).to_numpy(zero_copy_only=False)
    return numbers


def _nulls(column: pa.Array) -> np.ndarray:
    if not column.null_count:
        return np.zeros(len(column), bool)
    nulls: np.ndarray = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def partition_texts(transform: str, kind: t.IcebergType, values: pa.Array) -> list[PartitionText]:
    """Returns the partition values that `write.transforms` computes from a column of type `kind`, for JSON and for
    paths.
    """
    name = transform.split("[", maxsplit=1)[0]
    if name in _OF_TIME:
        return [(None, "null") if value is None else _OF_TIME[name](value) for value in values.to_pylist()]
    if name == "bucket" or type(kind) not in _OF_TYPE:
        return [(value, "null" if value is None else str(value)) for value in values.to_pylist()]
    spell = _OF_TYPE[type(kind)]
    return [(None, "null") if value is None else spell(value) for value in _as_numbers(values).to_pylist()]


def path_of(names: Iterable[str], texts: Iterable[str]) -> str:
    """Returns the folder of a partition as Iceberg names it. A name too long for file systems is cut."""
    return "/".join(_short(f"{quote_plus(name)}={quote_plus(text)}") for name, text in zip(names, texts, strict=True))


def short_path(path: str) -> str:
    """Returns the folder of a partition as Iceberg names it, with names cut as in `path_of`."""
    return "/".join(_short(name) for name in path.split("/"))


def _short(name: str) -> str:
    if len(name) <= _MAX_NAME_BYTES:
        return name
    return f"{name[:_MAX_NAME_BYTES].rsplit('%', 1)[0]}-{sha256(name.encode()).hexdigest()[:16]}"


def _as_numbers(values: pa.Array) -> pa.Array:
    """Returns times as numbers: Python's own types lack some years, and nanoseconds."""
    kind = values.type
    if pa.types.is_date32(kind):
        return values.view(pa.int32())
    return values.view(pa.int64()) if pa.types.is_timestamp(kind) or pa.types.is_time(kind) else values


def _day_text(days: int) -> PartitionText:
    """Returns the value for a day. In a path, as Java formats numbers, years beyond four digits have no sign and
    negative years have three digits.
    """
    text = format_day(days)
    return text, f"{int(text[:-6]):04d}{text[-6:]}"


def _year_text(years: int) -> PartitionText:
    return years, f"{1970 + years:04d}"


def _month_text(months: int) -> PartitionText:
    return months, f"{1970 + months // 12:04d}-{months % 12 + 1:02d}"


def _hour_text(hours: int) -> PartitionText:
    return hours, f"{_day_text(hours // 24)[1]}-{hours % 24:02d}"


def _timestamp_text(micros: int) -> PartitionText:
    text = _without_zeros(format_moment(micros))
    return text, text


def _timestamptz_text(micros: int) -> PartitionText:
    text = f"{_timestamp_text(micros)[0]}+00:00"
    return text, text


def _time_text(micros: int) -> PartitionText:
    """Returns the value for a time of day. In a path, as in Java, seconds that are zero are omitted, and fractions have
    three or six digits.
    """
    text = _without_zeros(format_moment(micros).partition("T")[2])
    if micros % 60_000_000 == 0:
        return text, text[:5]
    seconds, _, fraction = text.partition(".")
    return text, f"{seconds}.{fraction.ljust(3 if len(fraction) <= 3 else 6, '0')}" if fraction else text


def _without_zeros(time: str) -> str:
    """Returns a time without trailing zeros of its fraction, as Java formats times."""
    return time.rstrip("0") if "." in time else time


def _float_text(value: float) -> PartitionText:
    if math.isnan(value):
        return value, "NaN"
    return value, str(value) if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def _bytes_text(value: bytes) -> PartitionText:
    return value.hex().upper(), base64.b64encode(value).decode()


def _plain_text(text: Any) -> PartitionText:
    return str(text), str(text)


_OF_TIME: dict[str, Callable[[int], PartitionText]] = {
    "year": _year_text,
    "month": _month_text,
    "day": _day_text,
    "hour": _hour_text,
}
_OF_TYPE: dict[type[t.IcebergType], Callable[[Any], PartitionText]] = {
    t.BooleanType: lambda value: (value, str(value).lower()),
    t.FloatType: _float_text,
    t.DoubleType: _float_text,
    t.DateType: _day_text,
    t.TimeType: _time_text,
    t.TimestampType: _timestamp_text,
    t.TimestamptzType: _timestamptz_text,
    t.UUIDType: lambda value: _plain_text(UUID(bytes=value)),
    t.FixedType: _bytes_text,
    t.BinaryType: _bytes_text,
    t.DecimalType: lambda value: (f"{value:f}", str(value)),
}


class TooManyPartitions(SpecError):
    """a batch has rows of more partitions than the table may write at once
    see whether a clock of a producer is wrong; partition by something coarser, or raise `limits.partitions`
    """

    def __init__(self, table: str, most: int, some: tuple[str, ...] = ()) -> None:
        """some: names of partitions, as examples of how the rows are scattered."""
        among = f", {' and '.join(some)} among them" if some else ""
        super().__init__(f"a batch has rows of more than {most} partitions{among}", where=table)
        self.some = some


def exceeds(most: int, files: Sequence[DataFile]) -> bool:
    """Whether these files, of several tasks that each keep to the limit, have more than `most` partitions together."""
    return len(files) > most and len({json.dumps(json.loads(file.content)["partition"]) for file in files}) > most
