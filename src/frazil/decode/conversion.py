"""What is found while columns are converted to those of a table, and where in its record each value is.

These are values that do not go over, and fields that the table lacks or has in a type that is too narrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.decode.columns import Mismatch, shortened
from frazil.decode.limits import check_cells, leaf_count
from frazil.decode.renames import Renames
from frazil.decode.rescue import join_members, members_at, members_of
from frazil.decode.settings import Reading
from frazil.decode.values_as_json import json_text
from frazil.error_classes import ErrorClass
from frazil.schema.arrow import children_of, unsliced
from frazil.schema.parts import Path, parts_of

Owner = NDArray[np.int32]
NOT_ADDED = "not added: `schema_evolution` is `freeze`"
"""The end of the refusal of a new field."""


@dataclass
class Conversion:
    """The results while one group of records is converted; other fields are as in Decoded."""

    reading: Reading
    #: The id of the schema that the records were written with.
    schema_id: str
    #: The number of records.
    row_count: int
    #: The number of mismatches that are kept.
    limit: int
    #: Other names of the writer's fields.
    renames: Renames = field(default_factory=Renames)
    #: The name that a union gives to the type of its value, by the value's path in the writer's schema.
    branches: Mapping[Path, str] = field(default_factory=dict)
    mismatches: list[Mismatch] = field(default_factory=list)
    #: Members of `_rescued`, each array for all records at once.
    members: list[pa.Array] = field(default_factory=list)
    #: Single rescued values.
    rescued: list[Mismatch] = field(default_factory=list)
    requested_fields: dict[Path, dict[str, IcebergType]] = field(default_factory=dict)
    made_optional: set[Path] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    refusals: set[str] = field(default_factory=set)
    #: The number of nulls that were made.
    cells: int = 0

    def __post_init__(self) -> None:
        self.refused = np.zeros(self.row_count, np.bool_)

    def spend(self, kind: IcebergType, count: int) -> None:
        """Counts the cells of `count` nulls that are to be made.

        Raises: TooMuch.
        """
        self.cells += leaf_count(kind) * count
        check_cells(self.cells)

    def in_row(self, path: Path) -> Path:
        """Returns a path as a pipeline file writes it: from the top of the row, not of an envelope."""
        return path if self.reading.envelope is None else path[1:]

    def unit_at(self, path: Path) -> str | None:
        """Returns the declared unit of the numbers at a path."""
        return self.reading.unit_at.get(path) if self.reading.units else None

    def branch_at(self, path: Path) -> str | None:
        """Returns the name that a union gives to the type of a column's value."""
        named = {self.renames.oldest_path(written): name for written, name in self.branches.items()}
        return named.get(self.renames.oldest_path(path))

    def request(self, path: Path, kind: IcebergType) -> None:
        """Requests this field, at least in this type."""
        self.requested_fields.setdefault(path[:-1], {})[path[-1]] = kind

    def refuse_change(self, path: Path, what: str) -> None:
        """Adds a refused schema change, with the schema that requests it."""
        by = f"schema {self.schema_id}: " if self.schema_id else ""
        self.refusals.add(f"{by}column {'.'.join(path)}: {what}")

    def refuse(
        self, array: pa.Array, bad: NDArray[Any], owner: Owner, path: Path, kind: ErrorClass, reason: str
    ) -> None:
        """Rescues values, where the table rescues, or refuses their records. reason: with `{value}` for the value."""
        rows = np.flatnonzero(bad)
        is_rescued = kind != ErrorClass.MISSING_VALUE and (
            self.reading.unknown_fields == "rescue" if kind == ErrorClass.UNKNOWN_FIELD else self.reading.is_rescuing
        )
        found = self.rescued if is_rescued else self.mismatches
        if not is_rescued:
            self.refused[owner[rows]] = True
            rows = rows[: max(0, self.limit - len(self.mismatches))]
        for n in rows.tolist():
            text = json_text(array[n])
            message = reason.replace("{value}", shortened(text))
            found.append(Mismatch(int(owner[n]), ".".join(path), kind, message, text if is_rescued else ""))

    def rescue_column(self, array: pa.Array, there: NDArray[np.bool_], path: Path) -> None:
        """Rescues all values of a field that the table lacks; each record has at most one."""
        if there.any():
            self.members.append(members_at(path, array, there))

    def rescued_column(self) -> pa.Array | None:
        """Returns the rescued values, a JSON object for each record; None without any."""
        singles = [members_of(self.rescued, self.row_count)] if self.rescued else []
        return join_members([*self.members, *singles], self.row_count) if self.members or singles else None


@dataclass(frozen=True)
class Place:
    """The place of values in the record."""

    path: Path
    #: The record that each value belongs to.
    owner: Owner
    #: Which of the structs around the values are present.
    there: NDArray[np.bool_]

    def inside(self, name: str) -> Place:
        """Returns the place one level down, in a struct."""
        return Place((*self.path, name), self.owner, self.there)


def elements_of(array: pa.Array, place: Place, name: str) -> Place:
    """Returns the place of the elements of lists, or of the values of maps."""
    offsets = np.asarray(array.offsets)
    owner = np.repeat(place.owner, np.diff(offsets))
    return Place((*place.path, name), owner, np.ones(owner.size, np.bool_))


def require(conversion: Conversion, column: pa.Array, place: Place, path: Path) -> None:
    """Refuses the records without a value for a required column, and requests that it becomes optional."""
    missing = np.asarray(column.is_null()) & place.there & ~conversion.refused[place.owner]
    if not missing.any():
        return
    if conversion.reading.may_widen:
        conversion.made_optional.add(path)
    reason = "the column is required and the record has no value for it"
    conversion.refuse(column, missing, place.owner, path, ErrorClass.MISSING_VALUE, reason)


def require_inside(conversion: Conversion, column: pa.Array, kind: IcebergType, place: Place) -> None:
    """Applies `require` to the fields inside a column, of which some may have been left out."""
    if not _requires(kind):
        return
    for values, part, inner in inside_of(column, kind, place):
        if part.required:
            require(conversion, values, inner, inner.path)
        require_inside(conversion, values, part.field_type, inner)


def inside_of(column: pa.Array, kind: IcebergType, place: Place) -> Iterator[tuple[pa.Array, NestedField, Place]]:
    """Yields the values one level down in a column, their field, and their place."""
    column, parts = unsliced(column), parts_of(kind)
    if isinstance(kind, StructType):
        place = Place(place.path, place.owner, np.asarray(column.is_valid()))
        places = [place.inside(part.name) for part in parts]
    else:
        places = [elements_of(column, place, part.name) for part in parts]
    yield from zip(children_of(column), parts, places, strict=True)


def _requires(kind: IcebergType) -> bool:
    """Whether something inside a type is required."""
    return any(part.required or _requires(part.field_type) for part in parts_of(kind))
