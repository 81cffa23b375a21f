"""Which column each field of a writer feeds: the one with its name, with a name that the field had before or since, or else
the only one whose name differs in case alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyiceberg.types import IcebergType, MapType, NestedField, StructType

from frazil.decode.columns import UnionStruct
from frazil.decode.renames import NO_RENAMES, Renames
from frazil.name_case import Spellings
from frazil.schema.parts import Path, common_part


def fed_members(
    struct: StructType, columns: Iterable[NestedField], renames: Renames, at: Path
) -> dict[str, NestedField]:
    """Returns the column that each field of a writer's struct feeds, by the field's name. at: the path of the columns'
    struct.
    """
    by_name = {column.name: column for column in columns}
    spellings = Spellings(by_name)
    found = {field: by_name[column] for column, field in renames.of_columns(struct, by_name, at).items()}
    for member in struct.fields:
        name = spellings.find(member.name)
        if name is not None:
            found.setdefault(member.name, by_name[name])
    return found


class FedColumns:
    """The columns that the fields of a writer feed, at every depth. struct: of the writer; columns: of the table."""

    def __init__(self, struct: StructType, columns: Sequence[NestedField], renames: Renames = NO_RENAMES) -> None:
        self._found: dict[Path, tuple[Path, IcebergType]] = {}
        self._renames = renames
        self._add_members(struct, columns, (), ())

    def type_at(self, path: Path) -> IcebergType | None:
        """Returns the type of the column of the field at `path`; None where it has none. `key` leads to the keys of a
        map.
        """
        found = self._found.get(path)
        return None if found is None else found[1]

    def path_of(self, path: Path) -> Path:
        """Returns the path of the column of the field at `path`, which is kept where it has none."""
        found = self._found.get(path)
        return path if found is None else found[0]

    def _add_members(self, struct: StructType, columns: Sequence[NestedField], path: Path, at: Path) -> None:
        fed = fed_members(struct, columns, self._renames, at)
        for member in struct.fields:
            column = fed.get(member.name)
            if column is not None:
                kinds = (member.field_type, column.field_type)
                self._add(kinds, (*path, member.name), (*at, column.name))

    def _add(self, kinds: tuple[IcebergType, IcebergType], path: Path, at: Path) -> None:
        written, wanted = kinds
        self._found[path] = (at, wanted)
        both = common_part(written, wanted)
        if isinstance(written, StructType) and isinstance(wanted, StructType):
            self._add_members(written, wanted.fields, path, at)
        elif both is not None:
            part, column = both
            self._add((part.field_type, column.field_type), (*path, part.name), (*at, column.name))
            if isinstance(written, MapType) and isinstance(wanted, MapType):
                self._found[*path, "key"] = ((*at, "key"), wanted.key_type)
        elif isinstance(written, UnionStruct):  # Each branch feeds the column.
            for branch in written.fields:
                self._add((branch.field_type, wanted), (*path, branch.name), at)
