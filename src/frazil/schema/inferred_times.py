"""Inference of time columns from ISO 8601 text, for tables with `infer: {timestamps: true}`: the results of several
pieces of the records merged. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.types import (
    DateType,
    IcebergType,
    ListType,
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
