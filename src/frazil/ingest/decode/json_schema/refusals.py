"""Changes of a table that a JSON Schema asks for and that the table's policy, or Iceberg, does not allow."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from frazil.ingest.decode.fit import NOT_ADDED, Path
from frazil.ingest.evolve import can_promote
from frazil.ingest.target import Reading

_NUMBER, _TEXT = frozenset({"number"}), frozenset({"text"})
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
    """What is refused of the struct that a schema describes: one text for each column."""
    return {
        f"schema {schema_id}: column {'.'.join(path)}: {what}" for path, what in _of_struct(reading, table, written, ())
    }


def _of_struct(reading: Reading, table: StructType, written: StructType, path: Path) -> Iterator[tuple[Path, str]]:
    known = {member.name: member.field_type for member in table.fields}
    for member in written.fields:
        inner = (*path, member.name)
        if member.name in known:
            yield from _of_value(reading, known[member.name], member.field_type, inner)
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
    elif not (_written_as(table) & _written_as(written)):
        yield path, f"{_word(written)} does not fit {_word(table)}"


def _written_as(kind: IcebergType) -> frozenset[str]:
    """The kinds of JSON value that a column of the type takes."""
    return _WRITTEN_AS.get(type(kind), _TEXT)


def _word(kind: IcebergType) -> str:
    return str(kind).split("<")[0]
