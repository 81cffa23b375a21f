"""What is found while the values of records become columns of a table, in every format, and where in its record each is.

These are values that a column cannot hold, and fields that the table lacks or has in a type that is too narrow. The rules
for a field without a column are here, once for all formats. Rescued values are for the column `_rescued`: one JSON object
per record, from the path to the value and the reason.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.column_names import is_long, shorten
from frazil.decode.columns import Decoded, Fate, Fault, FieldValues, Mismatch, as_text, first_mismatches, shortened
from frazil.decode.limits import check_cells, long_name_fault, rejected_fault
from frazil.decode.renames import Renames
from frazil.decode.settings import Reading
from frazil.decode.values_as_json import as_json, json_text, json_texts
from frazil.error_classes import ErrorClass
from frazil.schema.arrow import children_of, unsliced
from frazil.schema.evolve import widest
from frazil.schema.names import both_reason, conflict_reason
from frazil.schema.parts import Path, parts_of
from frazil.types import RESCUED_COLUMN

Owner = NDArray[np.int32]
_EVERY_MISMATCH = 2**31
NOT_ADDED = "not added: `schema_evolution` is `freeze`"
"""The end of the refusal of a new field."""
MISSING = Fault(ErrorClass.MISSING_VALUE, "the column is required and the record has no value for it")
_NO_COLUMN = Fault(
    ErrorClass.UNKNOWN_FIELD, "the table has no such column, and `schema_evolution: freeze` forbids new columns"
)


@dataclass(frozen=True)
class ArrayValues:
    """The values of a field in an Arrow array (see FieldValues)."""

    array: pa.Array
    owner: Owner
    there: NDArray[Any]

    def text(self, n: int) -> str:
        """Returns the n-th value as JSON text."""
        return json_text(self.array[n])

    def excerpt(self, n: int) -> str:
        """Returns the n-th value as messages quote it."""
        return shortened(self.text(n))

    def texts(self) -> pa.Array:
        """Returns the values of the field as JSON texts."""
        return json_texts(self.array.filter(pa.array(self.there)))


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
    #: Single rescued values.
    rescued: list[Mismatch] = field(default_factory=list)
    #: The values of rescued fields that the table lacks, by path.
    unknown: list[tuple[str, FieldValues]] = field(default_factory=list)
    requested_fields: dict[Path, dict[str, IcebergType]] = field(default_factory=dict)
    made_optional: set[Path] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    refusals: set[str] = field(default_factory=set)
    fates: NDArray[np.int32] | None = None
    #: The cells counted so far (`decode.limits`).
    cells: int = 0

    def __post_init__(self) -> None:
        self.refused = np.zeros(self.row_count, np.bool_)

    def decoded(self, columns: list[pa.Array]) -> Decoded:
        """Returns these columns with the results."""
        return Decoded(
            columns,
            self.refused,
            first_mismatches(self.mismatches, self.limit),
            self.requested_fields,
            self.made_optional,
            self.dropped,
            _own(rescued_column(self.unknown, self.rescued, self.row_count)),
            refusals=self.refusals,
            fates=self.fates,
        )

    def added_to(self, decoded: Decoded, is_first: bool = False) -> Decoded:
        """Returns the result of the same records with the values rescued here, behind its own or before."""
        return replace(decoded, own=_own(add_members(decoded.rescued, self.rescued, self.row_count, is_first)))

    @property
    def limit_apart(self) -> int:
        """The number of mismatches that is needed of values for `take_entire`."""
        return _EVERY_MISMATCH if self.reading.is_rescuing else self.limit

    def take_entire(self, decoded: Decoded, raw: pa.Array) -> pa.Array:
        """Returns the column that was decoded from these values, one per record. A value that cannot be read or does not fit
        is rescued entirely, where the table rescues, or its record refused.
        """
        (column,) = decoded.columns
        if not self.reading.is_rescuing:
            self.refused |= decoded.refused
            self.mismatches += decoded.mismatches
            return column
        first = {mismatch.row: mismatch for mismatch in reversed(decoded.mismatches)}
        self.rescued += [replace(first[row], text=as_json(raw[row].as_py())) for row in sorted(first)]
        return column.take(pa.array(np.arange(len(raw)), mask=decoded.refused)) if first else column

    def apart(self) -> Conversion:
        """Returns a conversion of the same records without results."""
        return Conversion(self.reading, self.schema_id, self.row_count, self.limit)

    def take(self, other: Conversion, owner: NDArray[Any]) -> None:
        """Adds the results of another conversion, without refused changes. owner: the number of each of its records among
        these records; -1 where the record is not one of them.
        """
        rows = owner[other.refused]
        self.refused[rows[rows >= 0]] = True
        singles = [*other.rescued, *single_values(other.unknown)]
        for mismatches, results in ((other.mismatches, self.mismatches), (singles, self.rescued)):
            results += [replace(each, row=int(owner[each.row])) for each in mismatches if owner[each.row] >= 0]
        self.dropped |= other.dropped
        for path, members in other.requested_fields.items():
            requested = self.requested_fields.setdefault(path, {})
            requested |= {name: widest(requested.get(name, kind), kind) for name, kind in members.items()}

    def spend(self, cells: int) -> None:
        """Counts cells before there is memory for them.

        Raises: TooMuch.
        """
        self.cells += cells
        check_cells(self.cells)

    def note_fate(self, fate: Fate, path: Path, there: NDArray[np.bool_]) -> None:
        """Counts the values of a field of the record itself. path: of the object that the field is in."""
        if self.fates is not None and not path:
            self.fates[fate] += there

    def unit_at(self, path: Path) -> str | None:
        """Returns the declared unit of the numbers at a path."""
        return self.reading.unit_at.get(path) if self.reading.declared.units else None

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

    def refuse_records(self, codes: NDArray[np.uint8], faults: Mapping[int, Fault]) -> None:
        """Refuses records that cannot be read. codes: by record, 0 for one that can; faults: by code."""
        rows = np.flatnonzero(codes)
        self.refused[rows] = True
        for row in rows[: self.limit].tolist():
            fault = faults[int(codes[row])]
            self.mismatches.append(Mismatch(row, "", fault.kind, fault.message))

    def refuse(
        self, array: pa.Array, bad: NDArray[Any], owner: Owner, path: Path, kind: ErrorClass, reason: str
    ) -> None:
        """Rescues values, where the table rescues, or refuses their records. reason: with `{value}` for the value."""
        self.refuse_values(ArrayValues(array, owner, bad), bad, ".".join(path), {1: Fault(kind, reason)})

    def refuse_values(self, values: FieldValues, bad: NDArray[Any], path: str, faults: Mapping[int, Fault]) -> None:
        """Rescues values, where the table rescues, or refuses their records. bad: the code of each value's fault; 0
        without one. faults: by code, with `{value}` for the value in the message.
        """
        rows = np.flatnonzero(bad)
        rescued_codes = [code for code, fault in faults.items() if self._rescues(fault.kind)]
        is_rescued = np.isin(bad[rows], rescued_codes)
        for n in rows[is_rescued].tolist():
            self.rescued.append(_mismatch(values, n, path, faults[int(bad[n])], values.text(n)))
        rows = rows[~is_rescued]
        self.refused[values.owner[rows]] = True
        self.mismatches += [_mismatch(values, n, path, faults[int(bad[n])]) for n in rows[: self.limit].tolist()]

    def _rescues(self, kind: ErrorClass) -> bool:
        """Whether values with a fault of this class are rescued. A missing value cannot be."""
        if kind == ErrorClass.UNKNOWN_FIELD:
            return self.reading.unknown_fields == "rescue"
        return self.reading.is_rescuing and kind != ErrorClass.MISSING_VALUE

    def column_fault(self, path: Path, others: Sequence[str] = ()) -> Fault | None:
        """Returns the reason why a field cannot get a column; None without one. others: names of columns that differ from
        its own in case alone.
        """
        reading, name = self.reading, path[-1]
        if others:
            return Fault(ErrorClass.NAME_CONFLICT, conflict_reason(reading.in_row(path), others, reading.is_key_column))
        if path in reading.rejected_at:
            return rejected_fault(name, reading.rejected_at[path])
        return long_name_fault(name, reading.is_key_column) if is_long(name) else None

    def refuse_field(self, values: FieldValues, path: Path, fault: Fault) -> None:
        """Rescues the values of a field that cannot get a column, where the table rescues, or refuses their records."""
        name = path[-1] if self.reading.is_rescuing else shorten(path[-1])
        self.refuse_values(values, values.there, ".".join((*path[:-1], name)), {1: fault})

    def refuse_second(self, values: FieldValues, path: Path, column: str) -> None:
        """Refuses the records with values under two names of one column. values: those under the second name."""
        reason = both_reason(self.reading.in_row(path), column, self.reading.is_key_column)
        self.refuse_values(values, values.there, ".".join(path), {1: Fault(ErrorClass.NAME_CONFLICT, reason)})

    def put_aside(self, values: FieldValues, path: Path, kind: str = "the field") -> None:
        """Leaves out the values of a field that gets no column, rescues them, or refuses their records. kind: the field's
        type in messages.
        """
        name = ".".join(path)
        if self.reading.unknown_fields == "drop":
            self.dropped.add(name)
        elif self.reading.unknown_fields == "rescue":
            if values.there.any():
                self.unknown.append((name, values))
        else:
            self.refuse_change(path, f"{kind} is {NOT_ADDED}")
            self.refuse_values(values, values.there, name, {1: _NO_COLUMN})


def _own(rescued: pa.Array | None) -> dict[str, pa.Array]:
    return {} if rescued is None else {RESCUED_COLUMN: rescued}


def _mismatch(values: FieldValues, n: int, path: str, fault: Fault, text: str = "") -> Mismatch:
    reason = fault.message
    if "{value}" in reason:  # A missing value has no text to quote.
        reason = reason.replace("{value}", values.excerpt(n))
    return Mismatch(int(values.owner[n]), path, fault.kind, reason, text)


@dataclass(frozen=True)
class ValuePlace:
    """The place of values in the record."""

    path: Path
    #: The record that each value belongs to.
    owner: Owner
    #: Which of the structs around the values are present.
    there: NDArray[np.bool_]

    def inside(self, name: str) -> ValuePlace:
        """Returns the place one level down, in a struct."""
        return ValuePlace((*self.path, name), self.owner, self.there)


def elements_of(array: pa.Array, place: ValuePlace, name: str) -> ValuePlace:
    """Returns the place of the elements of lists, or of the values of maps."""
    offsets = np.asarray(array.offsets)
    owner = np.repeat(place.owner, np.diff(offsets))
    return ValuePlace((*place.path, name), owner, np.ones(owner.size, np.bool_))


def require(conversion: Conversion, column: pa.Array, place: ValuePlace, path: Path) -> None:
    """Refuses the records without a value for a required column, and requests that it becomes optional."""
    missing = np.asarray(column.is_null()) & place.there & ~conversion.refused[place.owner]
    if not missing.any():
        return
    if conversion.reading.evolution.may_widen:
        conversion.made_optional.add(path)
    conversion.refuse(column, missing, place.owner, path, MISSING.kind, MISSING.message)


def require_inside(conversion: Conversion, column: pa.Array, kind: IcebergType, place: ValuePlace) -> None:
    """Applies `require` to the fields inside a column, of which some may have been left out."""
    if not _requires(kind):
        return
    for values, part, inner in inside_of(column, kind, place):
        if part.required:
            require(conversion, values, inner, inner.path)
        require_inside(conversion, values, part.field_type, inner)


def inside_of(
    column: pa.Array, kind: IcebergType, place: ValuePlace
) -> Iterator[tuple[pa.Array, NestedField, ValuePlace]]:
    """Yields the values one level down in a column, their field, and their place."""
    column, parts = unsliced(column), parts_of(kind)
    if isinstance(kind, StructType):
        place = ValuePlace(place.path, place.owner, np.asarray(column.is_valid()))
        places = [place.inside(part.name) for part in parts]
    else:
        places = [elements_of(column, place, part.name) for part in parts]
    yield from zip(children_of(column), parts, places, strict=True)


def _requires(kind: IcebergType) -> bool:
    """Whether something inside a type is required."""
    return any(part.required or _requires(part.field_type) for part in parts_of(kind))


UNKNOWN_FIELD = str(ErrorClass.UNKNOWN_FIELD)
"""The reason for a rescued field that the table does not have."""
_NUMBER = "#"


def rescued_column(
    unknown: Sequence[tuple[str, FieldValues]], rescued: Sequence[Mismatch], row_count: int
) -> pa.Array | None:
    """Returns one text per record, null where nothing was rescued; None without any.

    Fields that the table does not have (`unknown`, by path) are joined column by column; mismatches, values in lists and
    maps, and paths that a record may have more than once, one by one.
    """
    members, singles = [], list(rescued)
    # The field `a.b` and the member `b` of a field `a` have one path; a number may make it that of another field.
    sources = Counter([*(path for path, _ in unknown), *{mismatch.path for mismatch in rescued}])
    for path, values in unknown:
        is_single = sources[path] > 1 or _NUMBER in path
        if not is_single and values.owner.size == row_count and (values.owner == np.arange(row_count)).all():
            members.append(_members(path, values))
        else:
            singles += single_values([(path, values)])
    if singles:
        members.append(members_of(singles, row_count))
    return _join_members(members, row_count) if members else None


def single_values(unknown: Iterable[tuple[str, FieldValues]]) -> list[Mismatch]:
    """Returns the values of fields that the table does not have, one by one."""
    return [
        Mismatch(int(values.owner[n]), path, ErrorClass.UNKNOWN_FIELD, UNKNOWN_FIELD, values.text(n))
        for path, values in unknown
        for n in np.flatnonzero(values.there).tolist()
    ]


def _members(path: str, values: FieldValues) -> pa.Array:
    """Returns each record's member for a field that the table does not have; null without one."""
    before = f'{json.dumps(path, ensure_ascii=False)}:{{"value":'
    members = pc.binary_join_element_wise(before, values.texts(), f',"reason":"{UNKNOWN_FIELD}"}}', "")
    is_present = np.asarray(values.there)
    return members.take(pa.array(np.cumsum(is_present) - 1, mask=~is_present))


def add_members(
    rescued: pa.Array | None, mismatches: Iterable[Mismatch], row_count: int, are_first: bool = False
) -> pa.Array | None:
    """Returns the column with further members, the last or the first; None where there still are none."""
    new = list(mismatches)
    if not new:
        return rescued
    members = [members_of(new, row_count)]
    if rescued is not None:
        members.insert(int(are_first), pc.utf8_slice_codeunits(rescued, 1, -1))
    return _join_members(members, row_count)


def has_member(rescued: pa.Array, path: str) -> NDArray[np.bool_]:
    """Returns which records have a rescued value at this path."""
    has_path = pc.match_substring(rescued, f'{json.dumps(path, ensure_ascii=False)}:{{"value":')
    return np.asarray(has_path.fill_null(False))


def _join_members(members: list[pa.Array], row_count: int) -> pa.Array:
    """Returns objects of all members of each record; null where there are none."""
    inner = pa.nulls(row_count, pa.string())
    for member in members:
        # Not with `null_handling="skip"`: pyarrow 26 then leaves out the rows in which all are null.
        inner = pc.coalesce(pc.binary_join_element_wise(inner, member, ","), inner, member)
    return pc.binary_join_element_wise("{", inner, "}", "")


def members_of(mismatches: Iterable[Mismatch], row_count: int) -> pa.Array:
    """Returns the members of each record, one after another; a path that a record has more than once gets a number."""
    by_row: dict[int, dict[str, str]] = {}
    numbers: dict[tuple[int, str], int] = {}
    for mismatch in mismatches:
        mine = by_row.setdefault(mismatch.row, {})
        path, number = mismatch.path, numbers.get((mismatch.row, mismatch.path), 1)
        while path in mine:
            number += 1
            path = f"{mismatch.path}{_NUMBER}{number}"
        numbers[mismatch.row, mismatch.path] = number
        mine[path] = f'{{"value":{mismatch.text},"reason":{json.dumps(mismatch.reason, ensure_ascii=False)}}}'
    out: list[str | None] = [None] * row_count
    for row, mine in by_row.items():
        out[row] = as_text(",".join(f"{json.dumps(path, ensure_ascii=False)}:{text}" for path, text in mine.items()))
    return pa.array(out, pa.string())
