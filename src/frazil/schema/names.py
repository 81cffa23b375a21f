"""Names of fields that mean one column: other cases, and the names in `schema.name-mapping.default`.

The latter is a property of the table.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.column_names import Spellings, fold_case
from frazil.schema.parts import Path, change_parts, parts_of, retyped, with_parts


def spelled(name: str, schema: Schema | None) -> str:
    """Returns the path of a column, joined by dots, as the schema writes its names, in whatever case they are given; a
    name without a column is kept.
    """
    names: list[str] = []
    kind: IcebergType | None = schema.as_struct() if schema is not None else None
    for given in name.split("."):
        members = {part.name: part.field_type for part in parts_of(kind)} if isinstance(kind, StructType) else {}
        names.append(Spellings(members).find(given) or given)
        kind = members.get(names[-1])
    return ".".join(names)


def conflict_reason(path: Path, others: Iterable[str], is_key: bool = False) -> str:
    """Returns the reason why a field gets no column of its own, with the remedy. others: names that differ in case
    alone. is_key: whether it is a field of record keys, which `columns` cannot declare.
    """
    others = tuple(others)
    return f"{only_case_differs(path, others)}: {key_settings() if is_key else column_settings(path, others)}"


def only_case_differs(path: Path, others: Iterable[str]) -> str:
    """Returns why no column can have the name at this path. others: names that differ in case alone."""
    names = " and ".join(f"`{other}`" for other in others)
    return (
        f"field {'.'.join(path)} differs from {names} only in letter case, and engines cannot distinguish such columns"
    )


def both_reason(path: Path, other: str, is_key: bool = False) -> str:
    """Returns the reason why a record with values under both names is refused. other: the name of the column. is_key: as
    in `conflict_reason`.
    """
    remedy = key_settings() if is_key else column_settings(path, (other,))
    return f"the record has values in both `{other}` and `{path[-1]}`, which differ only in letter case: {remedy}"


def column_settings(path: Path, others: Iterable[str] = ()) -> str:
    """Returns the settings that give a column to a field whose column name is taken or reserved. others: names that differ
    from its own in case alone, which `exclude` leaves out too unless the file names them.
    """
    field = _in_file(path)
    out = f"leave the field out with `exclude: [{field}]`"
    for other in others:
        out += f", and declare the column of `{_in_file((*path[:-1], other))}` under `columns`, which keeps it"
    if "element" in path or "value" in path:
        return out
    return f"give the field a column, `columns: {{NAME: {{type: TYPE, field: {field}}}}}`, or {out}"


def key_settings() -> str:
    """Returns the settings of a table whose keys have fields that no column can have."""
    return "keep the keys as text in another column, `key: {format: text}` and `metadata: {key: NAME}`"


def fraction_settings(path: Path, is_json: bool = True) -> str:
    """Returns the settings that allow fractions in a field whose column holds integers. Iceberg widens no integer type
    to a type with fractions.
    """
    how = (
        "with `numbers: double`, or with double where the column is declared," if is_json else "that declares a double"
    )
    out = f"a new table {how} takes it"
    if "element" in path or "value" in path or not path:
        return out
    return f"{out}, and here another column, `columns: {{NAME: {{type: double, field: {_in_file(path)}}}}}`"


def cast_settings(path: Path, kind: str) -> str:
    """Returns the settings that convert text that is a number to the type of its column; empty in lists and maps, where no
    step leads. Of a field that is text in some records alone, a step needs all values as text.
    """
    if "element" in path or "value" in path or not path:
        return ""
    named = f'"{kind}"' if "(" in kind else kind
    cast = f"where the text is a number, `cast: {{{'.'.join(path)}: {named}}}` converts it"
    if len(path) > 1:
        return cast
    return f"{cast}, with `columns: {{{path[0]}: {{type: string, coerce: true}}}}` if other records have numbers"


def wide_settings(path: Path, digits: int = 20) -> str:
    """Returns the settings that allow larger integers in a field whose column holds those of 64 bits. Iceberg widens no
    integer type to a decimal.
    """
    kind = f'"decimal({digits},0)"'
    if "element" in path or "value" in path or not path:
        return f"a new table that declares {kind} takes it"
    return f"a column `columns: {{NAME: {{type: {kind}, field: {_in_file(path)}}}}}` takes it"


def _in_file(path: Path) -> str:
    """Returns a path as a pipeline file writes it: with dots, or as a list where a name contains a dot."""
    if any("." in name or not name for name in path):
        return "'[" + ", ".join(f'"{name}"' for name in path) + "]'"
    return ".".join(path)


def spelled_as_declared(kind: IcebergType, paths: Collection[Path]) -> IcebergType:
    """Returns the type with the names of these paths for members that differ from them in case alone: they feed the columns
    that are declared for the paths.
    """
    parts, names = parts_of(kind), {}
    if isinstance(kind, StructType):
        spellings, taken = Spellings(path[0] for path in paths), {part.name for part in parts}
        for part in parts:
            declared = spellings.find(part.name)
            if declared is not None and declared not in taken:
                names[part.name] = declared
                taken.add(declared)
    respelled = []
    for part in parts:
        name = names.get(part.name, part.name)
        inside = [path[1:] for path in paths if path[0] == name and len(path) > 1]
        respelled.append(
            retyped(part, spelled_as_declared(part.field_type, inside) if inside else part.field_type, name=name)
        )
    return with_parts(kind, respelled) if respelled else kind


def merge_spellings(kind: IcebergType, unite: Callable[[IcebergType, IcebergType], IcebergType]) -> IcebergType:
    """Returns the type with one member for those whose names differ in case alone, at every level: with the first name,
    and the type that `unite` returns.
    """
    kind = change_parts(kind, lambda inner, _: merge_spellings(inner, unite))
    if not isinstance(kind, StructType):
        return kind
    members: dict[str, NestedField] = {}
    for member in kind.fields:
        name = fold_case(member.name)
        first = members.get(name)
        members[name] = retyped(first, unite(first.field_type, member.field_type), required=False) if first else member
    return type(kind)(*members.values()) if len(members) < len(kind.fields) else kind


PROPERTY = "schema.name-mapping.default"
"""The table property with other names of fields (Iceberg spec, "Column Projection")."""
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
    parts = parts_of(kind)
    part_names = {part.name for part in parts}
    counts = Counter(name for part in parts for name in set(names.get(part.field_id, ())))
    for part in parts:
        others = dict.fromkeys(names.get(part.field_id, ()))
        aliases = tuple(name for name in others if name not in part_names and counts[name] == 1)
        if aliases and isinstance(kind, StructType):
            yield (*path, part.name), aliases
        yield from _walk(part.field_type, (*path, part.name), names)


def under(aliases: Aliases, *roots: str) -> Aliases:
    """Returns the aliases for columns that are members of each of these structs."""
    return tuple(((root, *path), names) for path, names in aliases for root in roots)


def tops_of(aliases: Aliases) -> Aliases:
    """Returns the aliases of top-level columns."""
    return tuple((path, names) for path, names in aliases if len(path) == 1)


def with_aliases(fields: Iterable[NestedField], aliases: Aliases) -> tuple[NestedField, ...]:
    """Returns the fields with an additional optional field for every other name, at every depth."""
    return parts_of(_wide(StructType(*fields), (), dict(aliases)))


def _wide(kind: IcebergType, path: Path, aliases: Mapping[Path, tuple[str, ...]]) -> IcebergType:
    kind = change_parts(kind, lambda inner, inner_path: _wide(inner, inner_path, aliases), path)
    if not isinstance(kind, StructType):
        return kind
    members = []
    for member in kind.fields:
        others = aliases.get((*path, member.name), ())
        members.append(member.model_copy(update={"required": member.required and not others}))
        members += [member.model_copy(update={"name": name, "required": False}) for name in others]
    return StructType(*members)


def column_names(aliases: Aliases) -> Mapping[Path, str]:
    """Returns the name of the column by path of a field under another name; the structs around it have their columns'
    names.
    """
    return {(*path[:-1], name): path[-1] for path, names in aliases for name in names}


def column_path(path: Path, columns: Mapping[Path, str]) -> Path:
    """Returns the path of the column of a field."""
    column: Path = ()
    for name in path:
        column = (*column, columns.get((*column, name), name))
    return column


def as_columns(kind: IcebergType, columns: Mapping[Path, str], path: Path = ()) -> IcebergType:
    """Returns a writer's type with the names of the columns; where it has a field of that name too, the other keeps its
    own.
    """
    if not isinstance(kind, StructType):
        return change_parts(kind, lambda inner, inner_path: as_columns(inner, columns, inner_path), path)
    taken, members = {member.name for member in kind.fields}, []
    for member in kind.fields:
        name = columns.get((*path, member.name), member.name)
        name = member.name if name in taken else name
        taken.add(name)
        members.append(retyped(member, as_columns(member.field_type, columns, (*path, name)), name=name))
    return type(kind)(*members)
