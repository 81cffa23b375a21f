"""Parts of nested Iceberg types: the members of a struct, the elements of a list, the values of a map. Pure.

The key of a map is not a part: schema changes and settings reach members inside values, never inside keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pyiceberg.types import DateType, IcebergType, ListType, MapType, NestedField, StructType, TimeType

Path = tuple[str, ...]
"""Names from the top of the record downwards; `element` leads into a list, `value` into a map's values."""

MAX_LEVELS = 99
"""The deepest column, in levels of Parquet: Arrow's reader, and all that is built on it, opens no file with deeper ones."""
_TOO_DEEP = (
    f"more than {MAX_LEVELS} levels deep in Parquet, where a list or a map is two, and readers open no such file"
)


def too_deep_reason(column: str) -> str:
    """Returns the reason why a field inside this column would be nested too deep for readers of Parquet."""
    return f"the column {column} would be nested {_TOO_DEEP}"


def is_too_deep(reason: str) -> bool:
    """Whether the reason is one of `too_deep_reason`."""
    return _TOO_DEEP in reason


def levels_of(kind: IcebergType) -> int:
    """Returns the levels of Parquet between a field of this type and its parts."""
    return 1 if isinstance(kind, StructType) else 2


def parts_of(kind: IcebergType) -> tuple[NestedField, ...]:
    """Returns the fields one level down, those of lists and maps named `element` and `value`; none of other types."""
    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ListType):
        return (kind.element_field,)
    return (kind.value_field,) if isinstance(kind, MapType) else ()


def with_parts(kind: IcebergType, parts: Sequence[NestedField]) -> IcebergType:
    """Returns the type with other parts; a struct of a union, or of a message without fields, stays one. Only the type of
    an element or a value, and whether it is required, is taken from its part.
    """
    if isinstance(kind, StructType):
        return type(kind)(*parts)
    if isinstance(kind, ListType):
        # PyIceberg takes a struct without members for a missing element type unless it is passed by name.
        return ListType(
            element_id=kind.element_id, element_type=parts[0].field_type, element_required=parts[0].required
        )
    if isinstance(kind, MapType):
        return MapType(kind.key_id, kind.key_type, kind.value_id, parts[0].field_type, parts[0].required)
    return kind


def retyped(part: NestedField, kind: IcebergType, **update: object) -> NestedField:
    """Returns the field with another type, and with other attributes in `update`."""
    return part.model_copy(update={"field_type": kind, **update})


def with_requirement(field: NestedField, paths: Iterable[Path], is_required: bool) -> NestedField:
    """Returns the field with the members at these paths, and the structs around them, required or optional."""
    mine = [path[1:] for path in paths if path[:1] == (field.name,)]
    if not mine:
        return field
    kind = field.field_type
    if isinstance(kind, StructType):
        kind = StructType(*(with_requirement(member, mine, is_required) for member in kind.fields))
    return retyped(field, kind, required=is_required)


def change_parts(kind: IcebergType, change: Callable[[IcebergType, Path], IcebergType], path: Path = ()) -> IcebergType:
    """Returns the type with the type of each of its parts changed; a type without parts unchanged. path: of the type."""
    parts = parts_of(kind)
    if not parts:
        return kind
    return with_parts(kind, [retyped(part, change(part.field_type, (*path, part.name))) for part in parts])


def types_in(kind: IcebergType, path: Path = ()) -> Iterator[tuple[Path, IcebergType]]:
    """Yields the type and all types inside it, each with its path, outer ones first. path: of the type."""
    yield path, kind
    for part in parts_of(kind):
        yield from types_in(part.field_type, (*path, part.name))


def counted_in(kind: IcebergType, unit: str | None = None, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yields the dates and times of day in a declared column's type, keys of maps included, each with the unit of integers
    there: days since 1970 and milliseconds since midnight, or the `unit` of a declared time of day. path: in the column.
    """
    types_and_paths = list(types_in(kind, path))
    keys = [((*type_path, "key"), inner.key_type) for type_path, inner in types_and_paths if isinstance(inner, MapType)]
    for type_path, inner in (*types_and_paths, *keys):
        if isinstance(inner, DateType):
            yield type_path, "d"
        elif isinstance(inner, TimeType):
            yield type_path, (unit if type_path == path else None) or "ms"


def common_part(first: IcebergType, second: IcebergType) -> tuple[NestedField, NestedField] | None:
    """Returns the elements of two lists, or the values of two maps; None for other types."""
    for nested in (ListType, MapType):
        if isinstance(first, nested) and isinstance(second, nested):
            return parts_of(first)[0], parts_of(second)[0]
    return None


def is_empty_type(kind: IcebergType) -> bool:
    """Whether the type contains nothing but structs without members."""
    parts = parts_of(kind)
    return (bool(parts) or isinstance(kind, StructType)) and all(is_empty_type(part.field_type) for part in parts)


def type_word(kind: IcebergType) -> str:
    """Returns the first word of a type: the contents of a list or struct would only hide it in a message."""
    return str(kind).split("<")[0]


def is_one_column(kind: IcebergType) -> bool:
    """Whether a column of this type can hold a nested record entirely."""
    return isinstance(kind, StructType | MapType)


def unfold(requested_fields: Mapping[Path, Mapping[str, IcebergType]], depth: int) -> list[tuple[Path, bool]]:
    """Returns the paths of fields, each with whether it is a record itself: the requested fields, the records around
    them and, of records down to `depth`, the members.
    """
    paths = [(parent[:cut], True) for parent in requested_fields for cut in range(1, len(parent) + 1)]
    waiting = [
        ((*parent, name), kind) for parent, members in requested_fields.items() for name, kind in members.items()
    ]
    while waiting:
        path, kind = waiting.pop()
        paths.append((path, isinstance(kind, StructType)))
        if isinstance(kind, StructType) and len(path) <= depth:
            waiting += [((*path, member.name), member.field_type) for member in kind.fields]
    return paths
