"""Where key columns are in the records of keys, whose fields are called as the source calls them, and the way back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.schema.name_mapping import column_names, column_path
from frazil.schema.projection import is_one_column
from frazil.write.target import ChangeReading, TableTarget

Path = tuple[str, ...]


def column_of(target: TableTarget, path: Path) -> Path:
    """The column that the field at `path` of a record feeds or would feed, and the rest of the path inside it."""
    path, shaping = column_path(path, column_names(target.reading.aliases)), target.shaping
    if shaping is None:
        return path
    layout = target.layout
    fed = {field: name for name, field in (*shaping.fields, *layout.paths.items())}
    for cut in range(len(path), 0, -1):
        if path[:cut] in fed:
            return (fed[path[:cut]], *path[cut:])
    for cut in range(1, len(path)):  # A declared struct is not taken apart.
        name = shaping.column_name(path[:cut])
        if name in layout.unbound and is_one_column(layout.unbound[name]):
            return (name, *path[cut:])
    cut = min(len(path), shaping.depth + 1)
    return (shaping.column_name(path[:cut]), *path[cut:])


def name_columns(target: TableTarget, fields: Iterable[Path]) -> tuple[str, ...]:
    """The names of the columns that these fields feed or would feed."""
    return tuple(".".join(column_of(target, path)) for path in fields)


def leaves_of(kind: IcebergType) -> Iterator[Path]:
    """The paths of all in a type that is no struct; of a type that is none itself the empty one."""
    if not isinstance(kind, StructType):
        yield ()
        return
    for field in kind.fields:
        yield from ((field.name, *path) for path in leaves_of(field.field_type))


def places_of(target: TableTarget, changes: ChangeReading) -> Mapping[Path, tuple[Path, ...]]:
    """By key column the paths in a key at which its value may be, the likelier one first: the field that feeds it and, where
    the file names the key columns, the column's own name. No place is that of two.
    """
    fed = {path: _field_of(target, path) for path in changes.paths}
    others = {path: _others_of(target, field) for path, field in fed.items()}
    if changes.is_key_of_record:
        return {path: (field, *others[path]) for path, field in fed.items()}
    return {
        path: (field, path, *others[path]) if _is_free(path, fed.values()) else (field, *others[path])
        for path, field in fed.items()
    }


def _others_of(target: TableTarget, field: Path) -> tuple[Path, ...]:
    """The paths that the field of a key column may have besides, by the table's name mapping."""
    names = dict(target.reading.aliases).get(field, ()) if target.reading.aliases else ()
    return tuple((*field[:-1], name) for name in names)


def _field_of(target: TableTarget, path: Path) -> Path:
    if target.shaping is not None and path[0] == target.shaping.key and len(path) > 1:
        return path[1:]  # The column is the key itself.
    feeding = target.layout.paths.get(path[0]) if target.shaping is not None else None
    return path if feeding is None else (*feeding, *path[1:])


def _is_free(path: Path, taken: Iterable[Path]) -> bool:
    """Whether no other path is this one, inside it or around it."""
    return not any(path[: len(other)] == other[: len(path)] for other in taken)


def struct_of(fields: Mapping[Path, IcebergType]) -> StructType:
    """The record that has fields of these types at these paths."""
    members = []
    for name in dict.fromkeys(path[0] for path in fields):
        inside = {path[1:]: kind for path, kind in fields.items() if path[0] == name}
        kind = inside[()] if () in inside else struct_of(inside)
        members.append(NestedField(0, name, kind, required=False))
    return StructType(*members)
