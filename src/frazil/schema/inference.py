"""What earlier records and texts of times decide about the types of columns without a declaration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from frazil.schema.evolve import Path, RequestedFields
from frazil.schema.selection import list_with, map_with

_TIMES = (DateType, TimestampType, TimestamptzType)


def agree_on_times(many: Sequence[RequestedFields]) -> list[RequestedFields]:
    """Returns the requested fields with text in place of a time type, where the pieces differ in the time type of a
    field, or one of them has other text.
    """
    seen: dict[Path, set[type[IcebergType]]] = {}
    for requested_fields in many:
        for parent, members in requested_fields.items():
            for name, kind in members.items():
                _note(kind, (*parent, name), seen)
    mixed = {path for path, kinds in seen.items() if len(kinds) > 1}
    if not mixed:
        return list(many)
    return [
        {
            parent: {name: _as_text(kind, (*parent, name), mixed) for name, kind in members.items()}
            for parent, members in requested_fields.items()
        }
        for requested_fields in many
    ]


def _note(kind: IcebergType, path: Path, seen: dict[Path, set[type[IcebergType]]]) -> None:
    if isinstance(kind, StructType):
        for member in kind.fields:
            _note(member.field_type, (*path, member.name), seen)
    elif isinstance(kind, ListType):
        _note(kind.element_type, (*path, "element"), seen)
    elif isinstance(kind, MapType):
        _note(kind.value_type, (*path, "value"), seen)
    elif isinstance(kind, (StringType, *_TIMES)):
        seen.setdefault(path, set()).add(type(kind))


def _as_text(kind: IcebergType, path: Path, mixed: set[Path]) -> IcebergType:
    if isinstance(kind, StructType):
        return StructType(*(_member_as_text(member, path, mixed) for member in kind.fields))
    if isinstance(kind, ListType):
        return list_with(kind, _as_text(kind.element_type, (*path, "element"), mixed), kind.element_required)
    if isinstance(kind, MapType):
        return map_with(kind, _as_text(kind.value_type, (*path, "value"), mixed), kind.value_required)
    return StringType() if path in mixed and isinstance(kind, _TIMES) else kind


def _member_as_text(member: NestedField, path: Path, mixed: set[Path]) -> NestedField:
    return member.model_copy(update={"field_type": _as_text(member.field_type, (*path, member.name), mixed)})


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
