"""Planned columns of an Avro schema: the Iceberg type of each, and how its array is made from the words of a walk."""

from __future__ import annotations

from collections.abc import Callable
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
    """A planned column, or a part of one."""

    #: How its array is made from words.
    make: str
    type: IcebergType
    #: The context whose rows it has.
    context: int
    #: The path of the field, for messages.
    path: str
    #: The slot with its words.
    slot: int = SCRATCH_SLOT
    #: The fields of a struct or union, the elements of a list, keys and values of a map, or the value of an optional.
    children: tuple[Part, ...] = ()
    #: The word of each child, of a union.
    choices: tuple[int, ...] = ()
    #: The Avro type that it is read from.
    avro: Avro | None = None
    #: The function that writes its value as JSON, of a type that contains itself.
    json: Callable[[bytes], str] | None = None


@dataclass(frozen=True)
class Plan:
    """Everything that reading a schema's records requires."""

    #: The Iceberg type of a record.
    struct: StructType
    #: The columns.
    parts: tuple[Part, ...]
    #: The earlier names of fields, by path.
    aliases: dict[tuple[str, ...], tuple[str, ...]]
    #: The name that a union gives to the type of its value, by the value's path, except for records.
    branches: dict[tuple[str, ...], str]
    #: The steps of the walk.
    steps: NDArray[np.int64]
    #: The jumps of the walk's unions.
    jumps: NDArray[np.int64]
    #: The field of each step.
    paths: tuple[str, ...]
    #: The context of each slot.
    slots: NDArray[np.int64]
    #: The words that one row of each context takes.
    widths: NDArray[np.int64]
    #: For each context the slot with the number of its items, by which they belong to the rows of another context.
    lists: tuple[int, ...]


def scalar_type(avro: Avro) -> tuple[str, IcebergType]:
    """Returns how the column of a type without parts is made, and its Iceberg type."""
    if avro.logical == "decimal":
        return "decimal", DecimalType(avro.precision, avro.scale)
    if avro.kind == "fixed" and not avro.logical:
        return "fixed", FixedType(avro.size)
    return _TYPES[avro.kind, avro.logical]
