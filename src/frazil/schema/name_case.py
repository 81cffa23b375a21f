"""Names that differ only in case are one name to Spark, Hive, Trino and DuckDB, so a table gets one column for them.

The rule is the same at every depth and in every format: a field feeds the column with exactly its name; without one,
the only column whose name differs in case alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from frazil.schema.selection import Path, list_with, map_with


@lru_cache(maxsize=65_536)
def fold_case(name: str) -> str:
    """Returns the name without case, as Java's `equalsIgnoreCase` compares names."""
    if name.isascii():
        return name.lower()
    return "".join(
        _one(_one(character, character.upper()), _one(character, character.upper()).lower()) for character in name
    )


def _one(character: str, changed: str) -> str:
    """Returns the changed character, unless it became several."""
    return changed if len(changed) == 1 else character


class Spellings:
    """The names of one struct, found exactly or, where only one name differs in case alone, without regard to case."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[str, None] = {}
        self._folded: dict[str, list[str]] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Adds a name."""
        if name not in self._names:
            self._names[name] = None
            self._folded.setdefault(fold_case(name), []).append(name)

    def others(self, name: str) -> list[str]:
        """Returns the names that differ from `name` in case alone."""
        return [other for other in self._folded.get(fold_case(name), ()) if other != name]

    def find(self, name: str) -> str | None:
        """Returns the name that matches `name`; None where there is none, or where several differ in case alone."""
        if name in self._names:
            return name
        others = self._folded.get(fold_case(name), ())
        return others[0] if len(others) == 1 else None


def conflict_reason(path: Path, others: Iterable[str]) -> str:
    """Returns the reason why a field gets no column of its own, with the remedy. others: names that differ in case
    alone.
    """
    names = " and ".join(f"`{other}`" for other in others)
    what = (
        f"field {'.'.join(path)} differs from {names} only in letter case, and engines cannot distinguish such columns"
    )
    return f"{what}: {column_settings(path)}"


def both_reason(path: Path, other: str) -> str:
    """Returns the reason why a record with values under both names is refused. other: the name of the column."""
    both = f"`{other}` and `{path[-1]}`"
    return f"the record has values in both {both}, which differ only in letter case: {column_settings(path)}"


def column_settings(path: Path) -> str:
    """Returns the settings that give a column to a field whose column name is taken or reserved."""
    field = _in_file(path)
    out = f"leave the field out with `exclude: [{field}]`"
    if "element" in path or "value" in path:
        return out
    return f"give the field a column, `columns: {{NAME: {{type: TYPE, field: {field}}}}}`, or {out}"


def fraction_settings(path: Path, is_json: bool = True) -> str:
    """Returns the settings that allow fractions in a field whose column holds integers. Iceberg widens no integer type
    to a type with fractions.
    """
    out = "a new table with `numbers: double` takes it" if is_json else "a new table that declares a double takes it"
    if "element" in path or "value" in path or not path:
        return out
    return f"{out}, and here another column, `columns: {{NAME: {{type: double, field: {_in_file(path)}}}}}`"


def _in_file(path: Path) -> str:
    """Returns a path as a pipeline file writes it: with dots, or as a list where a name contains a dot."""
    if any("." in name or not name for name in path):
        return "'[" + ", ".join(f'"{name}"' for name in path) + "]'"
    return ".".join(path)


def merge_spellings(kind: IcebergType, unite: Callable[[IcebergType, IcebergType], IcebergType]) -> IcebergType:
    """Returns the type with one member for those whose names differ in case alone, at every level: with the first name,
    and the type that `unite` returns.
    """
    if isinstance(kind, ListType):
        return list_with(kind, merge_spellings(kind.element_type, unite), kind.element_required)
    if isinstance(kind, MapType):
        return map_with(kind, merge_spellings(kind.value_type, unite), kind.value_required)
    if not isinstance(kind, StructType):
        return kind
    found: dict[str, NestedField] = {}
    for member in kind.fields:
        inner, first = merge_spellings(member.field_type, unite), found.get(fold_case(member.name))
        if first is None:
            found[fold_case(member.name)] = member.model_copy(update={"field_type": inner})
        else:
            united = unite(first.field_type, inner)
            found[fold_case(member.name)] = first.model_copy(update={"field_type": united, "required": False})
    return kind if len(found) == len(kind.fields) and _is_same(kind, found) else type(kind)(*found.values())


def _is_same(kind: StructType, found: dict[str, NestedField]) -> bool:
    return all(one is other or one == other for one, other in zip(kind.fields, found.values(), strict=True))
