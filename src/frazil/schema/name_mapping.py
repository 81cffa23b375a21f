"""Other names that record fields may have for a column: the table property `schema.name-mapping.default`.

Iceberg reads files without field ids by it (Iceberg spec, "Column Projection"). A table that was adopted has it for the
names that its columns had elsewhere, and records of the same origin have these names too.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from frazil.schema.selection import Path, list_with, map_with

PROPERTY = "schema.name-mapping.default"
Aliases = tuple[tuple[Path, tuple[str, ...]], ...]
"""The other names of fields, by path of their column."""


def aliases_of(mapping: str, schema: Schema) -> Aliases:
    """Returns the other names of a table's columns. mapping: the property's text; an invalid one has no names."""
    try:
        names = dict(_names(json.loads(mapping)))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return ()
    return tuple(_walk(schema.as_struct(), (), names))


def _names(entries: Any) -> Iterator[tuple[int, list[str]]]:
    """Yields the names by field id, at every depth."""
    for entry in entries:
        if isinstance(entry.get("field-id"), int):
            yield entry["field-id"], [name for name in entry.get("names", ()) if isinstance(name, str)]
        yield from _names(entry.get("fields") or ())


def _walk(kind: IcebergType, path: Path, names: Mapping[int, list[str]]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    if isinstance(kind, ListType):
        yield from _walk(kind.element_type, (*path, "element"), names)
    elif isinstance(kind, MapType):
        yield from _walk(kind.value_type, (*path, "value"), names)
    elif isinstance(kind, StructType):
        own = {member.name for member in kind.fields}
        counts = Counter(name for member in kind.fields for name in set(names.get(member.field_id, ())))
        for member in kind.fields:
            others = dict.fromkeys(names.get(member.field_id, ()))
            found = tuple(name for name in others if name not in own and counts[name] == 1)
            if found:
                yield (*path, member.name), found
            yield from _walk(member.field_type, (*path, member.name), names)


def under(aliases: Aliases, *roots: str) -> Aliases:
    """Returns the aliases for columns that are members of each of these structs."""
    return tuple(((root, *path), names) for path, names in aliases for root in roots)


def tops_of(aliases: Aliases) -> Aliases:
    """Returns the aliases of top-level columns."""
    return tuple((path, names) for path, names in aliases if len(path) == 1)


def with_aliases(fields: Iterable[NestedField], aliases: Aliases) -> tuple[NestedField, ...]:
    """Returns the fields with an additional optional field for every other name, at every depth."""
    return _wide(StructType(*fields), (), dict(aliases)).fields


def _wide(struct: StructType, path: Path, aliases: Mapping[Path, tuple[str, ...]]) -> StructType:
    members = []
    for member in struct.fields:
        inner = (*path, member.name)
        kind, others = _wide_type(member.field_type, inner, aliases), aliases.get(inner, ())
        is_required = member.required and not others
        members.append(member.model_copy(update={"field_type": kind, "required": is_required}))
        members += [member.model_copy(update={"name": name, "field_type": kind, "required": False}) for name in others]
    return StructType(*members)


def _wide_type(kind: IcebergType, path: Path, aliases: Mapping[Path, tuple[str, ...]]) -> IcebergType:
    if isinstance(kind, StructType):
        return _wide(kind, path, aliases)
    if isinstance(kind, ListType):
        return list_with(kind, _wide_type(kind.element_type, (*path, "element"), aliases), kind.element_required)
    if isinstance(kind, MapType):
        return map_with(kind, _wide_type(kind.value_type, (*path, "value"), aliases), kind.value_required)
    return kind


def column_names(aliases: Aliases) -> Mapping[Path, str]:
    """Returns the name of the column by path of a field under another name; the structs around it have their columns'
    names.
    """
    return {(*path[:-1], name): path[-1] for path, names in aliases for name in names}


def column_path(path: Path, columns: Mapping[Path, str]) -> Path:
    """Returns the path of the column of a field."""
    found: Path = ()
    for name in path:
        found = (*found, columns.get((*found, name), name))
    return found


def as_columns(kind: IcebergType, columns: Mapping[Path, str], path: Path = ()) -> IcebergType:
    """Returns a writer's type with the names of the columns; where it has a field of that name too, the other keeps its
    own.
    """
    if isinstance(kind, ListType):
        return list_with(kind, as_columns(kind.element_type, columns, (*path, "element")), kind.element_required)
    if isinstance(kind, MapType):
        return map_with(kind, as_columns(kind.value_type, columns, (*path, "value")), kind.value_required)
    if not isinstance(kind, StructType):
        return kind
    taken, members = {member.name for member in kind.fields}, []
    for member in kind.fields:
        name = columns.get((*path, member.name), member.name)
        name = member.name if name in taken else name
        taken.add(name)
        inner = as_columns(member.field_type, columns, (*path, name))
        members.append(member.model_copy(update={"name": name, "field_type": inner}))
    return type(kind)(*members)
