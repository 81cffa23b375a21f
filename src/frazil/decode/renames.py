"""Which column each field of a writer feeds: that of its name, or the only one that differs in case alone.

Fields that have other names in other schemas, as aliases declare, have one column for all names, in any order of the
records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.types import IcebergType, MapType, NestedField, StructType

from frazil.column_names import Spellings, fold_case
from frazil.decode.columns import UnionStruct
from frazil.schema.parts import Path, change_parts, common_part, parts_of, retyped
from frazil.schema.selection import Selection


@dataclass(frozen=True)
class Renames:
    """Other names of fields. Paths have the oldest names of the structs around a field, without case, see `oldest_path`: a
    field that is renamed inside of a renamed field, or inside of one whose column is spelt otherwise, is the same field.
    """

    #: The other names that a field has had before or since, by path, older ones first.
    names: Mapping[Path, tuple[str, ...]] = field(default_factory=dict)
    #: The oldest name that a schema writes the field under, by path, where that is not its own.
    first: Mapping[Path, str] = field(default_factory=dict)
    #: The oldest name of a field, also one that no schema writes, by path, where that is not its own; without case.
    oldest: Mapping[Path, str] = field(default_factory=dict)
    #: The fields that the table takes, by the names that the pipeline file writes; None: all.
    selection: Selection | None = None

    def inside(self, name: str) -> Renames:
        """Returns the renames of fields one level deeper, in the field `name`."""
        names = {(name, *path): others for path, others in self.names.items()}
        first = {(name, *path): oldest for path, oldest in self.first.items()}
        return Renames(names, first, {(name, *path): oldest for path, oldest in self.oldest.items()})

    def oldest_path(self, path: Path) -> Path:
        """Returns a path with the oldest name of each field on it, the last one included, without case."""
        oldest: Path = ()
        for name in map(fold_case, path):
            oldest = (*oldest, self.oldest.get((*oldest, name), name))
        return oldest

    def selecting(self, selection: Selection) -> tuple[Renames, Selection]:
        """Returns the renames, of which a field that no column has gets a name that is taken; and the selection with all
        other names of its fields.
        """
        include = tuple(other for path in selection.include for other in self._under_all(path))
        exclude = tuple(other for path in selection.exclude for other in self._under_all(path))
        return replace(self, selection=selection), replace(selection, include=include, exclude=exclude)

    def _under_all(self, path: Path) -> list[Path]:
        """Returns a path with every name of each field on it."""
        paths: list[Path] = [()]
        for name in path:
            around, plain = self.oldest_path(paths[0]), fold_case(name)
            mine = [(key[-1], *others) for key, others in self.names.items() if key[:-1] == around]
            others = [other for group in mine if fold_case(group[0]) == plain for other in group]
            paths = [(*before, other) for before in paths for other in dict.fromkeys((name, *others))]
        return paths

    def of_columns(self, struct: StructType, columns: Iterable[str], path: Path) -> dict[str, str]:
        """Returns columns that are former names of a field in a writer's struct, with that field. path: of the columns'
        struct.
        """
        if not self.names:
            return {}
        path, spellings = self.oldest_path(path), Spellings(columns)
        own = {member.name: spellings.find(member.name) for member in struct.fields}
        fed, names_by_column = set(own.values()), {}
        for name in (name for name, column in own.items() if column is None):
            former = map(spellings.find, self.names.get((*path, name), ()))
            column = next(
                (former_column for former_column in former if former_column is not None and former_column not in fed),
                None,
            )
            if column is not None:
                fed.add(column)
                names_by_column[column] = name
        return names_by_column

    def under_first(self, member: NestedField, path: Path, siblings: Collection[str]) -> NestedField:
        """Returns a field that no column has, with the names by which it and its members get columns. path: of the
        struct that it is in; siblings: the names of the fields there.
        """
        if not self.names:
            return member
        name = self._new_name(path, member.name)
        kind = self._named(member.field_type, (*path, name))
        return retyped(member, kind, name=member.name if name in siblings else name)

    def _new_name(self, path: Path, name: str) -> str:
        """Returns the name under which a field that no column has gets one."""
        key = (*self.oldest_path(path), name)
        first, selection = self.first.get(key, name), self.selection
        if selection is None:
            return first
        names = (first, name, *self.names.get(key, ()))
        return next((candidate for candidate in names if selection.takes((*path, candidate)) != "none"), first)

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
    renames = NO_RENAMES
    written = [set(_paths_of(struct, ())) for struct, _ in schemas]
    elsewhere = {path for struct in others for path in _paths_of(struct, ())}.difference(*written)
    # From the outside in, as paths are of the oldest names around a field.
    for level in sorted({len(path) for _, aliases in schemas for path in aliases}):
        mine = [_at_level(renames, paths, level) for paths in written]
        theirs = _at_level(renames, elsewhere, level)
        older: dict[Path, set[Path]] = {}
        for paths, (_, aliases) in zip(mine, schemas, strict=True):
            for path, former in aliases.items():
                if len(path) == level:
                    around = renames.oldest_path(path[:-1])
                    # A name that another field of the schema has is that field's.
                    olds = {(*around, name) for name in former} - theirs - paths
                    older.setdefault((*around, path[-1]), set()).update(olds)
        _close(older)
        renames = _with_level(renames, older, set().union(*mine))
    return renames


def _at_level(renames: Renames, paths: Iterable[Path], level: int) -> set[Path]:
    """Returns the paths of this length, with the oldest names of the structs around the field."""
    return {(*renames.oldest_path(path[:-1]), path[-1]) for path in paths if len(path) == level}


def _with_level(renames: Renames, older: Mapping[Path, set[Path]], written: Collection[Path]) -> Renames:
    """Returns the renames with those of one more level. older: the older names of each field; written: the names that
    schemas have.
    """
    names: dict[Path, tuple[str, ...]] = {}
    first: dict[Path, str] = {}
    oldest: dict[Path, str] = {}
    for path in sorted({path for newest, olds in older.items() for path in (newest, *olds) if olds}):
        newer = {other for other, olds in older.items() if path in olds}
        same = {path, *newer}.union(*(older.get(other, ()) for other in (path, *newer)))
        in_order = sorted(same, key=lambda other: (len(older.get(other, ())), other))
        names[path] = tuple(other[-1] for other in in_order if other != path)
        seen = next((other for other in in_order if other in written), path)
        if seen != path:
            first[path] = seen[-1]
        if in_order[0] != path:
            oldest[*path[:-1], fold_case(path[-1])] = fold_case(in_order[0][-1])
    return Renames({**renames.names, **names}, {**renames.first, **first}, {**renames.oldest, **oldest})


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


def fed_members(
    struct: StructType, columns: Iterable[NestedField], renames: Renames, at: Path
) -> dict[str, NestedField]:
    """Returns the column that each field of a writer's struct feeds, by the field's name. at: the path of the columns'
    struct.
    """
    by_name = {column.name: column for column in columns}
    spellings = Spellings(by_name)
    fed = {field: by_name[column] for column, field in renames.of_columns(struct, by_name, at).items()}
    for member in struct.fields:
        name = spellings.find(member.name)
        if name is not None:
            fed.setdefault(member.name, by_name[name])
    return fed


class FedColumns:
    """The columns that the fields of a writer feed, at every depth. struct: of the writer; columns: of the table."""

    def __init__(self, struct: StructType, columns: Sequence[NestedField], renames: Renames = NO_RENAMES) -> None:
        self._columns: dict[Path, tuple[Path, IcebergType]] = {}
        self._renames = renames
        self._add_members(struct, columns, (), ())

    def type_at(self, path: Path) -> IcebergType | None:
        """Returns the type of the column of the field at `path`; None where it has none. `key` leads to the keys of a
        map.
        """
        column = self._columns.get(path)
        return None if column is None else column[1]

    def path_of(self, path: Path) -> Path:
        """Returns the path of the column of the field at `path`, which is kept where it has none."""
        column = self._columns.get(path)
        return path if column is None else column[0]

    def _add_members(self, struct: StructType, columns: Sequence[NestedField], path: Path, at: Path) -> None:
        fed = fed_members(struct, columns, self._renames, at)
        for member in struct.fields:
            column = fed.get(member.name)
            if column is not None:
                kinds = (member.field_type, column.field_type)
                self._add(kinds, (*path, member.name), (*at, column.name))

    def _add(self, kinds: tuple[IcebergType, IcebergType], path: Path, at: Path) -> None:
        written, wanted = kinds
        self._columns[path] = (at, wanted)
        both = common_part(written, wanted)
        if isinstance(written, StructType) and isinstance(wanted, StructType):
            self._add_members(written, wanted.fields, path, at)
        elif both is not None:
            part, column = both
            self._add((part.field_type, column.field_type), (*path, part.name), (*at, column.name))
            if isinstance(written, MapType) and isinstance(wanted, MapType):
                self._columns[*path, "key"] = ((*at, "key"), wanted.key_type)
        elif isinstance(written, UnionStruct):  # Each branch feeds the column.
            for branch in written.fields:
                self._add((branch.field_type, wanted), (*path, branch.name), at)
