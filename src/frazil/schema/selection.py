"""The fields of a record that a table takes: its settings `include` and `exclude`. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

Path = tuple[str, ...]
"""Names from the top of the record downwards; `element` leads into a list, `value` into a map's values."""


@dataclass(frozen=True)
class Level:
    """The members of one struct that a table takes."""

    #: The names of the members to take; None: all except `without`.
    only: frozenset[str] | None = None
    #: The names of the members to leave out.
    without: frozenset[str] = frozenset()

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
        return Level(frozenset(only) - without, without)

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
        if isinstance(kind, ListType):
            element = self.prune(kind.element_type, (*path, "element"), keeps_empty)
            return (
                None
                if element is None
                else list_with(kind, element, kind.element_required and not is_empty_type(element))
            )
        if isinstance(kind, MapType):
            value = self.prune(kind.value_type, (*path, "value"), keeps_empty)
            if value is None:
                return None
            return map_with(kind, value, kind.value_required and not is_empty_type(value))
        return kind if taken == "all" else None

    def prune_struct(self, struct: StructType, path: Path = (), keeps_empty: bool = False) -> StructType | None:
        """Returns the struct with the members that are taken; None when there are none. keeps_empty: as in `prune`."""
        fields: list[NestedField] = []
        for field in struct.fields:
            kind = self.prune(field.field_type, (*path, field.name), keeps_empty)
            if kind is not None:
                is_required = field.required and not is_empty_type(kind)
                fields.append(field.model_copy(update={"field_type": kind, "required": is_required}))
        if not fields and not (keeps_empty and self.takes(path) == "all"):
            return None
        return type(struct)(*fields)  # Part of a union's struct is a union's struct.


def list_with(kind: ListType, element: IcebergType, is_required: bool) -> ListType:
    """Returns the list with other elements. PyIceberg takes a struct without members for a missing element type unless
    it is passed by name.
    """
    return ListType(element_id=kind.element_id, element_type=element, element_required=is_required)


def map_with(kind: MapType, value: IcebergType, is_required: bool) -> MapType:
    """Returns the map with other values."""
    return MapType(kind.key_id, kind.key_type, kind.value_id, value, is_required)


def is_empty_type(kind: IcebergType) -> bool:
    """Whether the type contains nothing but structs without members."""
    if isinstance(kind, ListType):
        return is_empty_type(kind.element_type)
    if isinstance(kind, MapType):
        return is_empty_type(kind.value_type)
    return isinstance(kind, StructType) and all(is_empty_type(member.field_type) for member in kind.fields)
