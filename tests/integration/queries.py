"""Queries over records with a field of each type, analysed as pipeline files' are."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
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
    TimeType,
    UUIDType,
)

from frazil.errors import SpecError
from frazil.queries.analysis import METADATA, Query, analyse
from frazil.queries.catalyst import Catalyst


def with_metadata(fields: Schema) -> Schema:
    """The columns of `records`: these fields and the metadata."""
    first = fields.highest_field_id + 1
    header = StructType(
        NestedField(first + 7, "key", StringType(), required=False),
        NestedField(first + 8, "value", BinaryType(), required=False),
    )
    types: tuple[tuple[IcebergType, bool], ...] = (
        (BinaryType(), False),
        (ListType(first + 6, header, element_required=False), False),
        (StringType(), True),
        (IntegerType(), True),
        (LongType(), True),
        (TimestamptzType(), False),
    )
    metadata = (
        NestedField(first + n, name, kind, required=required)
        for n, (name, (kind, required)) in enumerate(zip(METADATA, types, strict=True))
    )
    return Schema(*fields.fields, *metadata)


_ITEM = StructType(NestedField(52, "sku", StringType()), NestedField(53, "qty", IntegerType()))
ADDRESS = StructType(
    NestedField(54, "city", StringType()), NestedField(55, "geo", StructType(NestedField(56, "lat", DoubleType())))
)
TYPES: dict[str, IcebergType] = {
    "id": LongType(),
    "i": IntegerType(),
    "name": StringType(),
    "kind": StringType(),
    "price": DecimalType(10, 2),
    "x": DoubleType(),
    "b": BooleanType(),
    "d": DateType(),
    "ts": TimestamptzType(),
    "tn": TimestampType(),
    "t": TimeType(),
    "u": UUIDType(),
    "f": FixedType(4),
    "raw": BinaryType(),
    "tags": ListType(50, StringType(), element_required=False),
    "items": ListType(51, _ITEM, element_required=False),
    "addr": ADDRESS,
    "m": MapType(57, StringType(), 58, LongType(), value_required=False),
}
FIELDS = Schema(*(NestedField(n, name, kind, required=n == 1) for n, (name, kind) in enumerate(TYPES.items(), 1)))
RECORDS = with_metadata(FIELDS)


def query_of(catalyst: Catalyst, text: str) -> Query:
    return analyse(catalyst, text, RECORDS)


def refusal_of(catalyst: Catalyst, text: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        query_of(catalyst, text)
    return caught.value
