"""The settings of a table, and a table's columns, as far as they decide what a record becomes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from frazil_verify.model.types import Type, declared_as, parse_type

Path = tuple[str, ...]
RESCUED = "_rescued"
RESERVED = frozenset(
    {
        "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number",
        "_change_type", "_change_ordinal", "_commit_snapshot_id",
    }
)  # fmt: skip
MOST_NAME_BYTES = 255


@dataclass(frozen=True)
class Column:
    """A declared column. field: of the record that feeds it, where it has another name."""

    type: str
    field: Path = ()
    coerce: bool = False
    zone: str = ""

    @cached_property
    def kind(self) -> Type:
        """Its type."""
        return parse_type(self.type)


@dataclass(frozen=True)
class Settings:
    """Those of one table."""

    columns: Mapping[str, Column] = field(default_factory=dict)
    unknown_fields: str = "add"
    schema_evolution: str = "evolve"
    rescue: bool = False
    include: tuple[Path, ...] = ()
    exclude: tuple[Path, ...] = ()
    column_case: str = "keep"
    numbers: str = "as_seen"
    infers_times: bool = False
    limit_columns: int = 1000
    #: Columns of metadata, by their field.
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_rescued(self) -> bool:
        """Whether the table has the column `_rescued`."""
        return self.rescue or self.unknown_fields == "rescue"

    @cached_property
    def own_columns(self) -> frozenset[str]:
        """Columns that no field feeds, in lower case."""
        return frozenset(name.lower() for name in (*self.metadata.values(), *([RESCUED] if self.has_rescued else [])))

    @cached_property
    def fields(self) -> Mapping[Path, str]:
        """Declared columns with a field of another name, by the field's path."""
        return {tuple(map(str.lower, column.field)): name for name, column in self.columns.items() if column.field}

    def written(self) -> dict[str, object]:
        """Returns the settings as a pipeline file has them."""
        result: dict[str, object] = {
            "unknown_fields": self.unknown_fields,
            "schema_evolution": self.schema_evolution,
            "rescue": self.rescue,
            "column_case": self.column_case,
            "numbers": self.numbers,
            "infer": {"timestamps": self.infers_times},
            "limits": {"columns": self.limit_columns},
            "dead_letters": {"stop_above": "100%"},
            "metadata": dict(self.metadata),
        }
        for name, paths in (("include", self.include), ("exclude", self.exclude)):
            if paths:
                result[name] = [".".join(path) for path in paths]
        if self.columns:
            result["columns"] = {name: _written(column) for name, column in self.columns.items()}
        return result

    def case_of(self, name: str) -> str:
        """Returns the name of a column after a field, or of a member."""
        if self.column_case == "lower":
            return name.lower()
        if self.column_case == "snake":
            parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", re.sub("[-. ]", "_", name))
            return parted.lower()
        return name


def _written(column: Column) -> dict[str, object]:
    result: dict[str, object] = {"type": column.type}
    if column.field:
        result["field"] = ".".join(column.field)
    if column.coerce:
        result["coerce"] = True
    if column.zone:
        result["zone"] = column.zone
    return result


class Names:
    """Finds a column, or a member, by the name of a field: exactly, or the only one that differs in case alone."""

    def __init__(self, names: Mapping[str, Type]) -> None:
        self._names = names
        self._folded: dict[str, list[str]] = {}
        for name in names:
            self._folded.setdefault(name.lower(), []).append(name)

    def find(self, name: str) -> str | None:
        """Returns the column; None without one."""
        if name in self._names:
            return name
        result = self._folded.get(name.lower(), [])
        return result[0] if len(result) == 1 else None


@dataclass(frozen=True)
class Table:
    """A table as it has become. columns: with the units that the file declares."""

    columns: Mapping[str, Type]
    comments: Mapping[str, str]
    #: Whether records alone add columns, and no schema does.
    has_only_seen: bool = True

    def field_of(self, column: str) -> list[str] | None:
        """Returns the path of the field that a column is bound to, from its comment; None where it names none."""
        _, result, text = self.comments.get(column, "").rpartition("field: ")
        if not result:
            return None
        return list(json.loads(text)) if text.startswith("[") else text.split(".")

    @cached_property
    def bound(self) -> Mapping[str, str]:
        """Its columns that are bound to a field, by the field's name in lower case."""
        fields = {column: self.field_of(column) for column in self.columns}
        return {field[0].lower(): column for column, field in fields.items() if field is not None and len(field) == 1}

    @cached_property
    def names(self) -> Names:
        """Its columns by the names of fields."""
        return Names(self.columns)


def table_of(columns: Mapping[str, Type], comments: Mapping[str, str], settings: Settings) -> Table:
    """Returns the table without the columns of metadata."""
    known = {}
    for name, kind in columns.items():
        if name.lower() not in settings.own_columns:
            declared = settings.columns.get(name)
            known[name] = declared_as(kind, declared.kind) if declared is not None else kind
    return Table(known, comments)


def is_below(path: Path, top: Path) -> bool:
    """Whether a path is another one, or inside of it, in whatever case names are written."""
    return len(path) >= len(top) and all(a.lower() == b.lower() for a, b in zip(path, top, strict=False))


def takes(settings: Settings, path: Path) -> str:
    """Returns whether `all` of a field is taken, a `part`, or `none`."""
    if any(is_below(path, out) for out in settings.exclude):
        return "none"
    if not settings.include:
        return "all"
    if any(is_below(path, wanted) for wanted in settings.include):
        return "all"
    return "part" if any(is_below(wanted, path) for wanted in settings.include) else "none"
