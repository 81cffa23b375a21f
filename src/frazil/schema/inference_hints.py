"""Inference hints: the kind of values that earlier records had in fields without a column, which decides which later
records are refused for contradicting it. Pure.

A table's first records are read in several pieces. With the hints of the pieces before it, a piece refuses the same
records as if all were read as one.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.types import (
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
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from frazil.schema.evolve import Path, RequestedFields

Hints = tuple[tuple[Path, str], ...]
_KINDS: dict[type[IcebergType], str] = {
    BooleanType: "boolean",
    IntegerType: "number",
    LongType: "number",
    FloatType: "number",
    DoubleType: "number",
    DecimalType: "number",
    StringType: "string",
    DateType: "string",
    TimestampType: "string",
    TimestamptzType: "moment",
    ListType: "array",
    StructType: "object",
}


def hints_of(requested_fields: RequestedFields) -> Hints:
    """Returns the kinds of the requested fields, and of all fields inside them."""
    return tuple(
        hint
        for parent, members in requested_fields.items()
        for name, kind in members.items()
        for hint in _hints(kind, (*parent, name))
    )


def _hints(kind: IcebergType, path: Path) -> Iterator[tuple[Path, str]]:
    kind_name = _KINDS.get(type(kind))
    if kind_name is not None:
        yield path, kind_name
    if isinstance(kind, StructType):
        for member in kind.fields:
            yield from _hints(member.field_type, (*path, member.name))
    elif isinstance(kind, ListType):
        yield from _hints(kind.element_type, (*path, "element"))
    elif isinstance(kind, MapType):
        yield from _hints(kind.value_type, (*path, "value"))
