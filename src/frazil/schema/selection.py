"""The fields of a record that a table takes: its settings `include` and `exclude`. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.schema.names import fold_case
from frazil.schema.parts import Path as Path
from frazil.schema.parts import is_empty_type, parts_of, retyped, with_parts


@dataclass(frozen=True)
class Level:
    """The members of one struct that a table takes."""

    #: The names of the members to take; None: all except `without`.
    only: frozenset[str] | None = None
    #: The names of the members to leave out.
    without: frozenset[str] = frozenset()
    #: Whether members are taken too whose names differ from those in `only` in case alone.
    any_case: bool = False

    def more(self, names: Iterable[str]) -> list[str]:
        """Returns the names that the level mentions and that are not in `names`, sorted."""
        return sorted((self.without if self.only is None else self.only) - set(names))


EVERY_MEMBER = Level()


@dataclass(frozen=True)
class Selection:
    """The fields that a table takes, each with everything inside it."""

    #: Paths of the fields to take; empty: all.
    include: tuple[Path, ...] = ()
    #: Paths of the fields to leave out.
    exclude: tuple[Path, ...] = ()
    #: Paths of structs whose included members are given by columns: fields feed these in any case.
    any_case: frozenset[Path] = frozenset()

    def spelled_as(self, struct: StructType) -> Selection:
        """Returns the selection with the members of `struct` whose names differ in case alone from included ones, where
        `any_case` allows it.
        """
        kinds = {member.name: member.field_type for member in struct.fields}
        around = [kinds.get(path[0]) for path in self.any_case]
        names = {name for kind in around if isinstance(kind, StructType) for name in (one.name for one in kind.fields)}
        found = [
            (*path[:-1], name)
            for path in self.include
            if path[:-1] in self.any_case
            for name in names
            if fold_case(name) == fold_case(path[-1])
        ]
        return replace(self, include=tuple(dict.fromkeys([*self.include, *found])))

    def takes(self, path: Path) -> Literal["all", "part", "none"]:
        """Returns how much of the field at `path` is taken; `part`: only fields included below it."""
        if any(path[: len(out)] == out for out in self.exclude):
            return "none"
        if not self.include or any(path[: len(taken)] == taken for taken in self.include):
            return "all"
        return "part" if any(taken[: len(path)] == path for taken in self.include) else "none"

    def is_split(self, path: Path) -> bool:
        """Whether some of the fields inside the field at `path` are taken and some are not."""
        return self.takes(path) == "part" or any(
            len(out) > len(path) and out[: len(path)] == path for out in self.exclude
        )

    def level(self, path: Path) -> Level:
        """Returns the members to take of the struct at `path`, which is not left out itself."""
        depth = len(path)
        without = frozenset(out[-1] for out in self.exclude if out[:-1] == path)
        if not self.include or any(path[: len(taken)] == taken for taken in self.include):
            return Level(None, without)
        only = {taken[depth] for taken in self.include if len(taken) > depth and taken[:depth] == path}
        return Level(frozenset(only) - without, without, path in self.any_case)

    def prune(self, kind: IcebergType, path: Path, keeps_empty: bool = False) -> IcebergType | None:
        """Returns the type of the taken part of a field; None when nothing is taken. keeps_empty: a struct of which
        nothing is taken, and which is not left out itself, is kept without members.
        """
        taken = self.takes(path)
        if taken == "none":
            return None
        if not self.is_split(path):
            return kind
        if isinstance(kind, StructType):
            return self.prune_struct(kind, path, keeps_empty)
        parts = self._prune_parts(kind, path, keeps_empty)
        if parts_of(kind):
            return with_parts(kind, parts) if parts else None
        return kind if taken == "all" else None

    def prune_struct(self, struct: StructType, path: Path = (), keeps_empty: bool = False) -> StructType | None:
        """Returns the struct with the members that are taken; None when there are none. keeps_empty: as in `prune`."""
        fields = self._prune_parts(struct, path, keeps_empty)
        if not fields and not (keeps_empty and self.takes(path) == "all"):
            return None
        return type(struct)(*fields)  # Part of a union's struct is a union's struct.

    def _prune_parts(self, kind: IcebergType, path: Path, keeps_empty: bool) -> list[NestedField]:
        taken = [(part, self.prune(part.field_type, (*path, part.name), keeps_empty)) for part in parts_of(kind)]
        return [
            retyped(part, of, required=part.required and not is_empty_type(of)) for part, of in taken if of is not None
        ]
