"""Paths of key columns in records' keys, whose fields have the names of the source, and of key fields in the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.schema.name_mapping import column_names, column_path
from frazil.schema.projection import is_one_column
from frazil.write.target import ChangeReading, TableTarget

Path = tuple[str, ...]


def column_of(target: TableTarget, path: Path) -> Path:
    """Returns the column that the field at `path` of a record is stored in, or would be, with the rest of the path
    inside it.
    """
    path, shaping = column_path(path, column_names(target.reading.aliases)), target.shaping
    if shaping is None:
        return path
    layout = target.layout
    fed = {field: name for name, field in (*shaping.fields, *layout.paths.items())}
    for cut in range(len(path), 0, -1):
        if path[:cut] in fed:
            return (fed[path[:cut]], *path[cut:])
    for cut in range(1, len(path)):  # A declared struct is not flattened.
        name = shaping.column_name(path[:cut])
        if name in layout.unbound and is_one_column(layout.unbound[name]):
            return (name, *path[cut:])
    cut = min(len(path), shaping.depth + 1)
    return (shaping.column_name(path[:cut]), *path[cut:])


def name_columns(target: TableTarget, fields: Iterable[Path]) -> tuple[str, ...]:
    """Returns the names of the columns that these fields are stored in, or would be."""
    return tuple(".".join(column_of(target, path)) for path in fields)


def leaves_of(kind: IcebergType) -> Iterator[Path]:
    """Yields the paths of all fields of a type that are not structs; the empty path for a type that is not a struct."""
    if not isinstance(kind, StructType):
        yield ()
        return
    for field in kind.fields:
        yield from ((field.name, *path) for path in leaves_of(field.field_type))


def places_of(target: TableTarget, changes: ChangeReading) -> Mapping[Path, tuple[Path, ...]]:
    """Returns by key column the paths in a key at which its value may be, the most likely first: the field that is
    stored in the column and, where the pipeline file names the key columns, the column's own name. No path belongs to
    two columns.
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
    """Returns further paths of a key column's field by the table's name mapping."""
    names = dict(target.reading.aliases).get(field, ()) if target.reading.aliases else ()
    return tuple((*field[:-1], name) for name in names)


def _field_of(target: TableTarget, path: Path) -> Path:
    if target.shaping is not None and path[0] == target.shaping.key and len(path) > 1:
        return path[1:]  # The column is the key itself.
    feeding = target.layout.paths.get(path[0]) if target.shaping is not None else None
    return path if feeding is None else (*feeding, *path[1:])


def _is_free(path: Path, taken: Iterable[Path]) -> bool:
    """Returns whether `path` is neither one of the other paths, nor inside one, nor around one."""
    return not any(path[: len(other)] == other[: len(path)] for other in taken)


def struct_of(fields: Mapping[Path, IcebergType]) -> StructType:
    """Returns the struct that has fields of these types at these paths."""
    members = []
    for name in dict.fromkeys(path[0] for path in fields):
        inside = {path[1:]: kind for path, kind in fields.items() if path[0] == name}
        kind = inside[()] if () in inside else struct_of(inside)
        members.append(NestedField(0, name, kind, required=False))
    return StructType(*members)
