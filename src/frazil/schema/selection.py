"""The fields of a record that a table takes, and what is declared of their values. Pure.

A table takes fields by its settings `include` and `exclude`. Settings and schemas declare of values how they are read, by
the paths of the fields that have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.column_names import change_case, fold_case, fold_path
from frazil.schema.parts import Path as Path
from frazil.schema.parts import is_empty_type, parts_of, retyped, with_parts


@dataclass(frozen=True)
class NamedColumns:
    """Columns that settings name, of a table whose columns have other names than their fields."""

    #: The paths of the columns, without case.
    paths: frozenset[Path]
    #: How many levels of nested records become columns, with names joined by `separator`.
    depth: int
    separator: str
    #: The case of the names; see `change_case`.
    case: str
    #: The number of names around the row in the paths of fields.
    around: int = 0

    def have(self, field: Path) -> bool:
        """Whether the field at this path feeds one of the columns, which may have its own name."""
        return any(fold_path(self._column(field[self.around :], case)) in self.paths for case in ("keep", self.case))

    def _column(self, field: Path, case: str) -> Path:
        names = [change_case(name, case) for name in field]
        return (self.separator.join(names[: self.depth + 1]), *names[self.depth + 1 :])


@dataclass(frozen=True)
class Level:
    """The members of one struct that a table takes. Names are found in any case."""

    #: The names of the members to take; None: all except `without`.
    only: frozenset[str] | None = None
    #: The names of the members to leave out.
    without: frozenset[str] = frozenset()
    #: Names that differ in case alone from some in `without`, and are not left out with them.
    kept: frozenset[str] = frozenset()
    #: Columns whose fields are kept as well.
    columns: NamedColumns | None = None
    #: The path of the struct, where there are such columns.
    path: Path = ()

    def more(self, names: Iterable[str]) -> list[str]:
        """Returns the names that the level mentions and that are not in `names`, sorted."""
        return sorted((self.without if self.only is None else self.only) - set(names))

    def takes(self, name: str) -> bool:
        """Whether a member of this name is taken."""
        if name in self.without:
            return False
        is_kept = name in self.kept or (self.columns is not None and self.columns.have((*self.path, name)))
        if fold_case(name) in self._folded_without and not is_kept:
            return False
        return self.only is None or fold_case(name) in self._folded_only

    def is_exact(self, name: str) -> bool:
        """Whether a member of this name is taken also beside one whose name differs from its own in case alone."""
        return self.only is None or name in self.only

    @cached_property
    def _folded_without(self) -> frozenset[str]:
        return frozenset(map(fold_case, self.without))

    @cached_property
    def _folded_only(self) -> frozenset[str]:
        return frozenset(map(fold_case, self.only or ()))


EVERY_MEMBER = Level()


@dataclass(frozen=True)
class Selection:
    """The fields that a table takes, each with everything inside it. Names are found in any case; where a struct has an
    included name exactly, others that differ from it in case alone are not taken.
    """

    #: Paths of the fields to take; empty: all.
    include: tuple[Path, ...] = ()
    #: Paths of the fields to leave out.
    exclude: tuple[Path, ...] = ()
    #: Paths of fields that differ in case alone from some in `exclude`, and are not left out with them.
    kept: tuple[Path, ...] = ()
    #: Columns whose fields are kept as well.
    columns: NamedColumns | None = None

    @cached_property
    def _included(self) -> frozenset[Path]:
        return frozenset(map(fold_path, self.include))

    @cached_property
    def _excluded(self) -> frozenset[Path]:
        return frozenset(map(fold_path, self.exclude))

    def _is_left_out(self, path: Path) -> bool:
        if fold_path(path) not in self._excluded or path in self.exclude:
            return path in self.exclude
        return not (path in self.kept or (self.columns is not None and self.columns.have(path)))

    def takes(self, path: Path) -> Literal["all", "part", "none"]:
        """Returns how much of the field at `path` is taken; `part`: only fields included below it."""
        if any(self._is_left_out(path[:cut]) for cut in range(1, len(path) + 1)):
            return "none"
        plain = fold_path(path)
        if not self._included or any(plain[: len(taken)] == taken for taken in self._included):
            return "all"
        return "part" if any(taken[: len(path)] == plain for taken in self._included) else "none"

    def is_split(self, path: Path) -> bool:
        """Whether some of the fields inside the field at `path` are taken and some are not."""
        plain = fold_path(path)
        return self.takes(path) == "part" or any(
            len(out) > len(path) and out[: len(path)] == plain for out in self._excluded
        )

    def level(self, path: Path) -> Level:
        """Returns the members to take of the struct at `path`, which is not left out itself."""
        depth, plain = len(path), fold_path(path)
        without = frozenset(out[-1] for out in self.exclude if fold_path(out[:-1]) == plain)
        kept = frozenset(kept_path[-1] for kept_path in self.kept if fold_path(kept_path[:-1]) == plain)
        every = Level(None, without, kept, self.columns, path if self.columns is not None else ())
        if not self._included or any(plain[: len(taken)] == taken for taken in self._included):
            return every
        only = {taken[depth] for taken in self.include if len(taken) > depth and fold_path(taken[:depth]) == plain}
        return replace(every, only=frozenset(filter(every.takes, only)))

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
        parts = parts_of(kind)
        if isinstance(kind, StructType):
            level, names = self.level(path), {part.name for part in parts}
            first = {fold_case(name) for name in names if level.is_exact(name)}
            parts = tuple(part for part in parts if level.is_exact(part.name) or fold_case(part.name) not in first)
        taken = [(part, self.prune(part.field_type, (*path, part.name), keeps_empty)) for part in parts]
        return [
            retyped(part, of, required=part.required and not is_empty_type(of)) for part, of in taken if of is not None
        ]


@dataclass(frozen=True)
class DeclaredValues:
    """How values are read that do not say it themselves."""

    #: The units of numbers in time fields. Without one they are milliseconds in JSON, and no times in other formats.
    units: tuple[tuple[Path, str], ...] = ()
    #: String columns that accept values of other types (`coerce: true`).
    coerced: tuple[Path, ...] = ()
    #: The zones of local times.
    zones: tuple[tuple[Path, str], ...] = ()
    #: JSON values that are local times by the type that their schema names, whatever they are written as.
    local_times: frozenset[Path] = frozenset()
    #: JSON integers that are unsigned by the type that their schema names, and wrap below 0.
    unsigned: frozenset[Path] = frozenset()

    def moved(self, places: Callable[[Path], Iterable[Path]]) -> DeclaredValues:
        """Returns what is declared of the values at other paths. places: returns the new paths of a field."""
        return DeclaredValues(
            units=tuple((place, unit) for path, unit in self.units for place in places(path)),
            coerced=tuple(place for path in self.coerced for place in places(path)),
            zones=tuple((place, zone) for path, zone in self.zones for place in places(path)),
            local_times=frozenset(place for path in self.local_times for place in places(path)),
            unsigned=frozenset(place for path in self.unsigned for place in places(path)),
        )


NOTHING_DECLARED = DeclaredValues()
