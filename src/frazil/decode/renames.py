"""Fields that have other names in other schemas, as aliases declare: one column for all names, in any order of the
records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.schema.parts import Path, change_parts, parts_of, retyped


@dataclass(frozen=True)
class Renames:
    """Other names of fields."""

    #: The other names that a field has had before or since, by path, older ones first.
    names: Mapping[Path, tuple[str, ...]] = field(default_factory=dict)
    #: The oldest name that a schema writes the field under, by path, where that is not its own.
    first: Mapping[Path, str] = field(default_factory=dict)

    def inside(self, name: str) -> Renames:
        """Returns the renames of fields one level deeper, in the field `name`."""
        names = {(name, *path): others for path, others in self.names.items()}
        return Renames(names, {(name, *path): oldest for path, oldest in self.first.items()})

    def of_columns(self, struct: StructType, columns: Collection[str], path: Path) -> dict[str, str]:
        """Returns columns that are former names of a field in a writer's struct, with that field. path: of the columns'
        struct.
        """
        if not self.names:
            return {}
        names = {member.name for member in struct.fields}
        found: dict[str, str] = {}
        for member in struct.fields:
            if member.name not in columns:
                for alias in self.names.get((*path, member.name), ()):
                    if alias in columns and alias not in names and alias not in found:
                        found[alias] = member.name
                        break
        return found

    def under_first(self, member: NestedField, path: Path, siblings: Collection[str]) -> NestedField:
        """Returns a field that no column has, with the names by which it and its members get columns. path: of the
        struct that it is in; siblings: the names of the fields there.
        """
        if not self.first:
            return member
        inner = (*path, member.name)
        name = self.first.get(inner, member.name)
        kind = self._named(member.field_type, inner)
        return retyped(member, kind, name=member.name if name in siblings else name)

    def _named(self, kind: IcebergType, path: Path) -> IcebergType:
        if not isinstance(kind, StructType):
            return change_parts(kind, self._named, path)
        names, members = {member.name for member in kind.fields}, []
        for member in kind.fields:  # Of two fields with one former name, the first has its column.
            members.append(self.under_first(member, path, names))
            names.add(members[-1].name)
        return StructType(*members)


NO_RENAMES = Renames()
"""Every field has one name."""


def find_renames(
    schemas: Sequence[tuple[StructType, Mapping[Path, tuple[str, ...]]]], others: Iterable[StructType] = ()
) -> Renames:
    """Returns the renames between schemas of one record. schemas: what each one writes, and the names that its fields
    had before, by path.

    others: what other records write into the same table: a name that only these have there is their field's.
    """
    older: dict[Path, set[Path]] = {}
    written = {path for struct, _ in schemas for path in _paths_of(struct, ())}
    others_have = {path for struct in others for path in _paths_of(struct, ())} - written
    for struct, aliases in schemas:
        mine = others_have.union(_paths_of(struct, ()))
        for path, former in aliases.items():
            # A name that another field of the schema has is that field's.
            older.setdefault(path, set()).update({(*path[:-1], name) for name in former} - mine)
    _close(older)
    names: dict[Path, tuple[str, ...]] = {}
    first: dict[Path, str] = {}
    for path in {path for newest, olds in older.items() for path in (newest, *olds) if olds}:
        newer = {other for other, olds in older.items() if path in olds}
        same = {path, *newer}.union(*(older.get(other, ()) for other in (path, *newer)))
        in_order = sorted(same, key=lambda other: (len(older.get(other, ())), other))
        names[path] = tuple(other[-1] for other in in_order if other != path)
        oldest = next((other for other in in_order if other in written), path)
        if oldest != path:
            first[path] = oldest[-1]
    return Renames(names, first)


def _close(older: Mapping[Path, set[Path]]) -> None:
    """Adds the older names of older names."""
    is_done = False
    while not is_done:
        is_done = True
        for path, olds in older.items():
            more = {further for old in olds for further in older.get(old, ())} - olds - {path}
            is_done &= not more
            olds.update(more)


def _paths_of(kind: IcebergType, path: Path) -> Iterator[Path]:
    """Yields the paths of all members of structs in a type."""
    for part in parts_of(kind):
        if isinstance(kind, StructType):
            yield (*path, part.name)
        yield from _paths_of(part.field_type, (*path, part.name))
