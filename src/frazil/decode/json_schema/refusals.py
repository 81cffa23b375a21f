"""Schema changes that a JSON Schema requests and that the table's settings, or Iceberg, do not allow."""

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
    TimeType,
)

from frazil.decode.cast import NOT_ADDED, Path
from frazil.decode.settings import Reading
from frazil.schema.evolve import can_promote
from frazil.schema.name_case import Spellings

_NUMBER, _TEXT = frozenset({"number"}), frozenset({"text"})
_EVERY = frozenset({"number", "text", "boolean", "object", "array"})
_WRITTEN_AS: dict[type[IcebergType], frozenset[str]] = {
    BooleanType: frozenset({"boolean"}),
    IntegerType: _NUMBER,
    LongType: _NUMBER,
    FloatType: _NUMBER,
    DoubleType: _NUMBER,
    DecimalType: _NUMBER | _TEXT,
    TimestampType: _NUMBER | _TEXT,
    TimestamptzType: _NUMBER | _TEXT,
    StructType: frozenset({"object"}),
    MapType: frozenset({"object"}),
    ListType: frozenset({"array"}),
}


def refused_changes(reading: Reading, table: StructType, written: StructType, schema_id: str) -> set[str]:
    """Returns the refused changes for the struct that a schema describes: one text for each column."""
    return {
        f"schema {schema_id}: column {'.'.join(path)}: {what}" for path, what in _of_struct(reading, table, written, ())
    }


def _of_struct(reading: Reading, table: StructType, written: StructType, path: Path) -> Iterator[tuple[Path, str]]:
    known, spellings = (
        {member.name: member.field_type for member in table.fields},
        Spellings(m.name for m in table.fields),
    )
    for member in written.fields:
        inner, column = (*path, member.name), spellings.find(member.name)
        if column is not None:
            yield from _of_value(reading, known[column], member.field_type, inner)
        elif reading.unknown_fields == "refuse":
            yield inner, f"{member.field_type} is {NOT_ADDED}"


def _of_value(reading: Reading, table: IcebergType, written: IcebergType, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(table, StructType) and isinstance(written, StructType):
        yield from _of_struct(reading, table, written, path)
    elif isinstance(table, ListType) and isinstance(written, ListType):
        yield from _of_value(reading, table.element_type, written.element_type, (*path, "element"))
    elif isinstance(table, MapType) and isinstance(written, MapType):
        yield from _of_value(reading, table.value_type, written.value_type, (*path, "value"))
    elif can_promote(table, written):
        if not reading.may_widen:
            yield path, f"{table} is not widened to {written}"
    elif not ((_written_as(table) | _declared_for(reading, table, path)) & _written_as(written)):
        yield path, f"{_type_name(written)} does not fit {_type_name(table)}"


def _declared_for(reading: Reading, table: IcebergType, path: Path) -> frozenset[str]:
    """Returns the kinds of JSON value that a column accepts by its declaration."""
    paths = [path] if reading.envelope is None else [path, ("after", *path)]
    if isinstance(table, StringType) and any(reading.coerces(one) for one in paths):
        return _EVERY
    is_counted = isinstance(table, DateType | TimeType) and any(one in reading.unit_at for one in paths)
    return _NUMBER if is_counted else frozenset()


def _written_as(kind: IcebergType) -> frozenset[str]:
    """Returns the kinds of JSON value that a column of the type accepts."""
    return _WRITTEN_AS.get(type(kind), _TEXT)


def _type_name(kind: IcebergType) -> str:
    return str(kind).split("<")[0]
