"""What earlier records and texts of times decide about the types of columns without a declaration."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg import types as t

from frazil.schema.evolve import RequestedFields
from frazil.schema.parts import Path, change_parts, types_in

_TIMES = (t.DateType, t.TimestampType, t.TimestamptzType)


def agree_on_times(many: Sequence[RequestedFields]) -> list[RequestedFields]:
    """Returns the requested fields with text in place of a time type, where the pieces differ in the time type of a
    field, or one of them has other text.
    """
    seen: dict[Path, set[type[t.IcebergType]]] = {}
    for requested_fields in many:
        for parent, members in requested_fields.items():
            for name, kind in members.items():
                for path, inner in types_in(kind, (*parent, name)):
                    if isinstance(inner, (t.StringType, *_TIMES)):
                        seen.setdefault(path, set()).add(type(inner))
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


def _as_text(kind: t.IcebergType, path: Path, mixed: set[Path]) -> t.IcebergType:
    if path in mixed and isinstance(kind, _TIMES):
        return t.StringType()
    return change_parts(kind, lambda inner, inner_path: _as_text(inner, inner_path, mixed), path)


Hints = tuple[tuple[Path, str], ...]
_KINDS: dict[type[t.IcebergType], str] = {
    t.BooleanType: "boolean",
    t.IntegerType: "number",
    t.LongType: "number",
    t.FloatType: "number",
    t.DoubleType: "number",
    t.DecimalType: "number",
    t.StringType: "string",
    t.DateType: "string",
    t.TimestampType: "string",
    t.TimestamptzType: "moment",
    t.ListType: "array",
    t.StructType: "object",
}


def hints_of(requested_fields: RequestedFields) -> Hints:
    """Returns the kinds of the requested fields, and of all fields inside them."""
    return tuple(
        (path, _KINDS[type(inner)])
        for parent, members in requested_fields.items()
        for name, kind in members.items()
        for path, inner in types_in(kind, (*parent, name))
        if type(inner) in _KINDS
    )
