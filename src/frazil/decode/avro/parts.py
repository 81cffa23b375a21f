"""Columns in the making: what an Avro type becomes in Iceberg, and how an array is made of what a walk finds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
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
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from frazil.decode.avro.code import SCRATCH_SLOT
from frazil.decode.avro.json_code import JsonCode
from frazil.decode.avro.schema import Avro

_TYPES: dict[tuple[str, str], tuple[str, IcebergType]] = {
    ("boolean", ""): ("boolean", BooleanType()),
    ("int", ""): ("int", IntegerType()),
    ("long", ""): ("long", LongType()),
    ("float", ""): ("float", FloatType()),
    ("double", ""): ("double", DoubleType()),
    ("bytes", ""): ("binary", BinaryType()),
    ("string", ""): ("string", StringType()),
    ("string", "uuid"): ("uuid_text", UUIDType()),
    ("enum", ""): ("enum", StringType()),
    ("fixed", "uuid"): ("fixed", UUIDType()),
    ("int", "date"): ("int", DateType()),
    ("int", "time-millis"): ("millis", TimeType()),
    ("long", "time-micros"): ("long", TimeType()),
    ("long", "timestamp-millis"): ("millis", TimestamptzType()),
    ("long", "timestamp-micros"): ("long", TimestamptzType()),
    ("long", "local-timestamp-millis"): ("millis", TimestampType()),
    ("long", "local-timestamp-micros"): ("long", TimestampType()),
}


@dataclass(frozen=True)
class Part:
    """A column, or what a column is made of.

    make: how its array is made from words. slot: the words, of the rows of `context`. children: the fields of a struct
    or union, the elements of a list, keys and values of a map, what is there when an optional is. choices: of a union
    the word that stands for each child. avro: the type it is read from. json: how it is written, if that is as JSON.
    """

    make: str
    type: IcebergType
    context: int
    path: str
    slot: int = SCRATCH_SLOT
    children: tuple[Part, ...] = ()
    choices: tuple[int, ...] = ()
    avro: Avro | None = None
    json: JsonCode | None = None


@dataclass(frozen=True)
class Plan:
    """All that reading needs to know of a schema.

    branches: by path of a value what a union with its type calls it; of records nothing. steps, jumps: for the walk. paths:
    the field of each step. slots: the context of each slot. widths: what one row of each context takes, in words. lists: of
    each context the slot with its items' numbers, by which they belong to the rows of another context.
    """

    struct: StructType
    parts: tuple[Part, ...]
    aliases: dict[tuple[str, ...], tuple[str, ...]]
    branches: dict[tuple[str, ...], str]
    steps: NDArray[np.int64]
    jumps: NDArray[np.int64]
    paths: tuple[str, ...]
    slots: NDArray[np.int64]
    widths: NDArray[np.int64]
    lists: tuple[int, ...]


def scalar_type(avro: Avro) -> tuple[str, IcebergType]:
    """How the column of a type that holds no others is made, and its type in Iceberg."""
    if avro.logical == "decimal":
        return "decimal", DecimalType(avro.precision, avro.scale)
    if avro.kind == "fixed" and not avro.logical:
        return "fixed", FixedType(avro.size)
    return _TYPES[avro.kind, avro.logical]
