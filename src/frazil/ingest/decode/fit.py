"""Columns as they were written, by a schema of the writer's, to the table's columns.

Matched by name at every level. A value goes over when nothing of it is lost; what the table lacks or has too narrow is
wanted, or refused where the table may not change; everything else is a misfit with its record and path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import (
    DecimalType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    TimestampType,
    TimestamptzType,
)

from frazil.ingest.decode.columns import Columns, Decoded, Misfit, UnionStruct, shortened
from frazil.ingest.decode.epochs import from_numbers
from frazil.ingest.decode.exact import cast_exactly, may_convert
from frazil.ingest.decode.json_texts import json_text
from frazil.ingest.decode.renames import Renames
from frazil.ingest.decode.rescue import UNKNOWN_FIELD, join_members, members_at, members_of
from frazil.ingest.evolve import can_promote
from frazil.ingest.selection import list_with, map_with
from frazil.ingest.target import Reading, arrow_type

Path = tuple[str, ...]
Owner = NDArray[np.int32]
NOT_ADDED = "not added: `schema_evolution` is `freeze`"
"""How the refusal of a new field ends."""

_NO_COLUMN = "the table has no such column, and `schema_evolution: freeze` lets it have none"


@dataclass
class Fitting:
    """What is found out while one group of records is fitted. schema_id: of the schema they were written with; branches: by
    path of a value what a union with its type calls it; members: of `_rescued`, of all records at once; rescued: single
    ones; the rest as in Decoded.
    """

    reading: Reading
    schema_id: str
    row_count: int
    limit: int
    renames: Renames = field(default_factory=Renames)
    branches: Mapping[Path, str] = field(default_factory=dict)
    misfits: list[Misfit] = field(default_factory=list)
    members: list[pa.Array] = field(default_factory=list)
    rescued: list[Misfit] = field(default_factory=list)
    wanted: dict[Path, dict[str, IcebergType]] = field(default_factory=dict)
    loosened: set[Path] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    refusals: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.refused = np.zeros(self.row_count, np.bool_)

    def want(self, path: Path, kind: IcebergType) -> None:
        """The table should have this field, at least as wide."""
        self.wanted.setdefault(path[:-1], {})[path[-1]] = kind

    def refuse_change(self, path: Path, what: str) -> None:
        """A change of the table that may not be: said once, with the schema that asks for it."""
        by = f"schema {self.schema_id}: " if self.schema_id else ""
        self.refusals.add(f"{by}column {'.'.join(path)}: {what}")

    def refuse(self, array: pa.Array, bad: NDArray[Any], owner: Owner, path: Path, kind: str, reason: str) -> None:
        """Puts values aside, where the table rescues, or refuses their records. reason: with `{value}` for the value."""
        rows = np.flatnonzero(bad)
        is_rescued = kind != "missing" and (
            self.reading.unknown_fields == "rescue" if kind == "unknown_field" else self.reading.is_rescuing
        )
        found = self.rescued if is_rescued else self.misfits
        if not is_rescued:
            self.refused[owner[rows]] = True
            rows = rows[: max(0, self.limit - len(self.misfits))]
        for n in rows.tolist():
            text = json_text(array[n])
            words = reason.replace("{value}", shortened(text))
            found.append(Misfit(int(owner[n]), ".".join(path), kind, words, text if is_rescued else ""))

    def rescue_column(self, array: pa.Array, there: NDArray[np.bool_], path: Path) -> None:
        """Puts all values of a field aside that the table lacks; of each record there is one at most."""
        if there.any():
            self.members.append(members_at(path, array, there))

    def rescued_column(self) -> pa.Array | None:
        """What was put aside, an object for each record; None where nothing was."""
        singles = [members_of(self.rescued, self.row_count)] if self.rescued else []
        return join_members([*self.members, *singles], self.row_count) if self.members or singles else None


def fit_columns(fitting: Fitting, struct: StructType, columns: Columns, fields: Sequence[NestedField]) -> Decoded:
    """What a reader made of some records as columns of the table."""
    fitting.refused |= columns.fault != 0
    for row in np.flatnonzero(columns.fault)[: fitting.limit].tolist():
        fault = columns.explain(row)
        fitting.misfits.append(Misfit(row, columns.paths.get(row, ""), fault.kind, fault.message))
    count = fitting.row_count
    place = Place((), np.arange(count, dtype=np.int32), columns.fault == 0)
    arrays = fit_struct(fitting, struct, columns.arrays, fields, place)
    return Decoded(
        columns=arrays,
        refused=fitting.refused,
        misfits=sorted(fitting.misfits, key=lambda misfit: misfit.row)[: fitting.limit],
        # Where not one record can be read, it is not said that the schema is theirs.
        wanted={} if count and not (columns.fault == 0).any() else fitting.wanted,
        loosened=fitting.loosened,
        dropped=fitting.dropped,
        rescued=fitting.rescued_column(),
        refusals=fitting.refusals,
    )


def fit_struct(
    fitting: Fitting, struct: StructType, arrays: Sequence[pa.Array], fields: Sequence[NestedField], place: Place
) -> list[pa.Array]:
    """The table's `fields` from the writer's `struct`, of which `arrays` are the columns."""
    written = {member.name: n for n, member in enumerate(struct.fields)}
    known = {member.name for member in fields}
    renamed = _renamed(fitting, struct, known, place.path)
    found = []
    for member in fields:
        n = written.get(member.name, renamed.get(member.name))
        inner = place.inside(member.name)
        if n is None:
            column = pa.nulls(len(place.owner), arrow_type(member.field_type))
        else:
            top = (inner.path, struct.fields[n].field_type)
            column = fit_value(fitting, arrays[n], (struct.fields[n].field_type, member.field_type), inner, top)
        if member.required:
            require(fitting, column, place, inner.path)
        found.append(column)
    for n, member in enumerate(struct.fields):
        if member.name not in known and n not in renamed.values():
            _meet_unknown(
                fitting, fitting.renames.under_first(member, place.path, written.keys() | known), arrays[n], place
            )
    return found


@dataclass(frozen=True)
class Place:
    """Where values are: their path, the record each belongs to, and which of the structs they are members of are there."""

    path: Path
    owner: Owner
    there: NDArray[np.bool_]

    def inside(self, name: str) -> Place:
        """One level down, in a struct."""
        return Place((*self.path, name), self.owner, self.there)


def fit_value(
    fitting: Fitting,
    array: pa.Array,
    kinds: tuple[IcebergType, IcebergType],
    place: Place,
    top: tuple[Path, IcebergType],
) -> pa.Array:
    """One column in the table's type. kinds: the writer's and the table's. top: path and written type of the nearest field
    that a change of the table would name.
    """
    written, wanted = kinds
    if array.offset:
        array = pa.concat_arrays([array])  # What is inside is taken as it lies in memory.
    if isinstance(written, StructType) and isinstance(wanted, StructType):
        return _fit_inner_struct(fitting, array, written, wanted, place)
    if isinstance(written, ListType) and isinstance(wanted, ListType):
        return _fit_list(fitting, array, (written, wanted), place, top)
    if isinstance(written, MapType) and isinstance(wanted, MapType):
        return _fit_map(fitting, array, (written, wanted), place, top)
    if written == wanted:
        return array
    if isinstance(written, UnionStruct):
        return _fit_branches(fitting, array, (written, wanted), place, top)
    return _fit_other(fitting, array, kinds, place, top)


def _fit_other(
    fitting: Fitting,
    array: pa.Array,
    kinds: tuple[IcebergType, IcebergType],
    place: Place,
    top: tuple[Path, IcebergType],
) -> pa.Array:
    """Values of another type than the table's."""
    written, wanted = kinds
    branch = fitting.branches.get(place.path)
    if branch is not None and isinstance(wanted, StructType) and branch in {member.name for member in wanted.fields}:
        return _fit_into_branch(fitting, array, (written, wanted), place, branch)
    if can_promote(wanted, written):
        if fitting.reading.may_widen:
            fitting.want(*top)
        else:
            fitting.refuse_change(place.path, f"{wanted} is not widened to {written}")
    return _convert(fitting, array, kinds, place)


def _fit_branches(
    fitting: Fitting,
    array: pa.Array,
    kinds: tuple[UnionStruct, IcebergType],
    place: Place,
    top: tuple[Path, IcebergType],
) -> pa.Array:
    """Values of a union in a column of one type: each goes over as if its branch were all there is."""
    written, wanted = kinds
    found = pa.nulls(len(array), arrow_type(wanted))
    for n, branch in enumerate(written.fields):
        alone = (top[0], _with_branch(top[1], branch.field_type))
        fitted = fit_value(fitting, array.field(n), (branch.field_type, wanted), place, alone)
        if fitted.null_count < len(fitted):
            found = pc.coalesce(found, fitted) if found.null_count < len(found) else fitted
    return found


def _with_branch(kind: IcebergType, branch: IcebergType) -> IcebergType:
    """The type of a field that is a union, or has one in its lists and maps, with one branch in the union's place."""
    if isinstance(kind, ListType):
        return list_with(kind, _with_branch(kind.element_type, branch), False)
    if isinstance(kind, MapType):
        return map_with(kind, _with_branch(kind.value_type, branch), False)
    return branch


def _fit_into_branch(
    fitting: Fitting, array: pa.Array, kinds: tuple[IcebergType, StructType], place: Place, branch: str
) -> pa.Array:
    """Values of one type in the column of a union that has it: each goes to the member of that branch."""
    struct = pa.StructArray.from_arrays([array], [branch], mask=array.is_null())
    written = StructType(NestedField(0, branch, kinds[0], required=False))
    return _fit_inner_struct(fitting, struct, written, kinds[1], place)


def _fit_inner_struct(
    fitting: Fitting, array: pa.Array, written: StructType, wanted: StructType, place: Place
) -> pa.Array:
    there = np.asarray(array.is_valid())
    inner = Place(place.path, place.owner, there)
    arrays = [array.field(n) for n in range(len(written.fields))]
    columns = fit_struct(fitting, written, arrays, wanted.fields, inner)
    kind = pa.struct([pa.field(f.name, c.type) for f, c in zip(wanted.fields, columns, strict=True)])
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:1], array.null_count, children=columns)


def _fit_list(
    fitting: Fitting,
    array: pa.Array,
    kinds: tuple[ListType, ListType],
    place: Place,
    top: tuple[Path, IcebergType],
) -> pa.Array:
    written, wanted = kinds
    inner = _elements(array, place, "element")
    items = fit_value(fitting, array.values, (written.element_type, wanted.element_type), inner, top)
    if wanted.element_required:
        require(fitting, items, inner, inner.path)
    kind = pa.list_(pa.field("element", items.type))
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, children=[items])


def _fit_map(
    fitting: Fitting,
    array: pa.Array,
    kinds: tuple[MapType, MapType],
    place: Place,
    top: tuple[Path, IcebergType],
) -> pa.Array:
    written, wanted = kinds
    items, keys = _elements(array, place, "value"), array.keys
    if written.key_type != wanted.key_type:
        target = arrow_type(wanted.key_type)
        if not may_convert(keys.type, target):
            return _convert(fitting, array, kinds, place)
        if can_promote(wanted.key_type, written.key_type):  # Iceberg lets values of maps become wider, and no keys.
            what = f"{wanted.key_type} is not widened to {written.key_type}"
            fitting.refuse_change((*place.path, "key"), what)
        keys = cast_exactly(keys, target)
        if keys.null_count:
            array, items, keys = _without_misfits(fitting, array, keys, wanted.key_type, place)
    values = fit_value(fitting, array.items, (written.value_type, wanted.value_type), items, top)
    if wanted.value_required:
        require(fitting, values, items, items.path)
    kind = pa.map_(keys.type, pa.field("value", values.type))
    entries = pa.StructArray.from_arrays([keys, values], fields=[kind.key_field, kind.item_field])
    assert len(items.owner) == len(entries)
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, children=[entries])


def _without_misfits(
    fitting: Fitting, array: pa.MapArray, keys: pa.Array, wanted: IcebergType, place: Place
) -> tuple[pa.MapArray, Place, pa.Array]:
    """The maps whose keys all fit, the others null: an entry without its key would be lost. keys: null where they do not."""
    of_map = np.repeat(np.arange(len(array)), np.diff(np.asarray(array.offsets)))
    bad = np.zeros(len(array), np.bool_)
    bad[of_map[np.asarray(keys.is_null())]] = True
    fitting.refuse(
        array, bad, place.owner, place.path, "does_not_fit", f"{{value}} has a key that does not fit {wanted}"
    )
    rows = pa.array(np.arange(len(array)), mask=bad)
    kept = array.take(rows)
    return kept, _elements(kept, place, "value"), cast_exactly(kept.keys, keys.type)


def _elements(array: pa.Array, place: Place, name: str) -> Place:
    offsets = np.asarray(array.offsets)
    owner = np.repeat(place.owner, np.diff(offsets))
    return Place((*place.path, name), owner, np.ones(owner.size, np.bool_))


def _renamed(fitting: Fitting, struct: StructType, known: set[str], path: Path) -> dict[str, int]:
    """Columns of the table that a field of the writer's was called before, and that field's place."""
    if not fitting.renames.names:
        return {}
    names = {member.name for member in struct.fields}
    found: dict[str, int] = {}
    for n, member in enumerate(struct.fields):
        if member.name not in known:
            for alias in fitting.renames.names.get((*path, member.name), ()):
                if alias in known and alias not in names and alias not in found:
                    found[alias] = n
                    break
    return found


def require(fitting: Fitting, column: pa.Array, place: Place, path: Path) -> None:
    """Refuses the records that have no value for a required column, and asks for it to become optional."""
    missing = np.asarray(column.is_null()) & place.there & ~fitting.refused[place.owner]
    if not missing.any():
        return
    if fitting.reading.may_widen:
        fitting.loosened.add(path)
    reason = "the column is required and the record has no value for it"
    fitting.refuse(column, missing, place.owner, path, "missing", reason)


def require_inside(fitting: Fitting, column: pa.Array, kind: IcebergType, place: Place) -> None:
    """The same of the fields inside a column, of which some may have been left out."""
    if not _requires(kind):
        return
    if column.offset:
        column = pa.concat_arrays([column])  # What is inside is taken as it lies in memory.
    for values, inner_kind, is_required, inner in _inside(column, kind, place):
        if is_required:
            require(fitting, values, inner, inner.path)
        require_inside(fitting, values, inner_kind, inner)


def _inside(column: pa.Array, kind: IcebergType, place: Place) -> Iterator[tuple[pa.Array, IcebergType, bool, Place]]:
    """What is one level down in a column: the values, their type, whether they are required, and where they are."""
    if isinstance(kind, StructType):
        there = np.asarray(column.is_valid())
        for n, member in enumerate(kind.fields):
            inner = Place((*place.path, member.name), place.owner, there)
            yield column.field(n), member.field_type, member.required, inner
    elif isinstance(kind, ListType):
        yield column.values, kind.element_type, kind.element_required, _elements(column, place, "element")
    elif isinstance(kind, MapType):
        yield column.items, kind.value_type, kind.value_required, _elements(column, place, "value")


def _requires(kind: IcebergType) -> bool:
    """Whether something inside a type is required."""
    if isinstance(kind, StructType):
        return any(member.required or _requires(member.field_type) for member in kind.fields)
    if isinstance(kind, ListType):
        return kind.element_required or _requires(kind.element_type)
    return isinstance(kind, MapType) and (kind.value_required or _requires(kind.value_type))


def _meet_unknown(fitting: Fitting, member: NestedField, array: pa.Array, place: Place) -> None:
    path, unknown_fields = (*place.path, member.name), fitting.reading.unknown_fields
    if unknown_fields == "add" and path in fitting.reading.barred_at:
        there = np.asarray(array.is_valid()) & place.there
        fitting.refuse(array, there, place.owner, path, "name_taken", fitting.reading.barred_at[path])
    elif unknown_fields == "add":
        fitting.want(path, member.field_type)
    elif unknown_fields == "drop":
        fitting.dropped.add(".".join(path))
    else:
        if unknown_fields == "refuse":
            fitting.refuse_change(path, f"{member.field_type} is {NOT_ADDED}")
        there = np.asarray(array.is_valid()) & place.there
        if unknown_fields == "rescue" and len(place.owner) == fitting.row_count and _is_of_each(place.owner):
            fitting.rescue_column(array, there, path)
            return
        reason = UNKNOWN_FIELD if unknown_fields == "rescue" else _NO_COLUMN
        fitting.refuse(array, there, place.owner, path, "unknown_field", reason)


def _is_of_each(owner: Owner) -> bool:
    """Whether the values are one of each record, in order: they are in no list and no map."""
    return bool((owner == np.arange(len(owner))).all())


def _convert(fitting: Fitting, array: pa.Array, kinds: tuple[IcebergType, IcebergType], place: Place) -> pa.Array:
    """Values in another type where each of them is one of it exactly; the others are misfits."""
    written, wanted = kinds
    target = arrow_type(wanted)
    unit = fitting.reading.unit_at.get(place.path) if fitting.reading.units else None
    if unit is not None and _is_number(array.type) and isinstance(wanted, TimestampType | TimestamptzType):
        return _from_epoch(fitting, array, wanted, place, unit)
    if not may_convert(array.type, target):
        fitting.refuse_change(place.path, f"{_word(written)} does not fit {_word(wanted)}")
    back = cast_exactly(array, target)
    bad = np.asarray(array.is_valid()) & np.asarray(back.is_null())
    if bad.any():
        is_number = isinstance(wanted, DecimalType) and may_convert(array.type, target)
        kind, words = ("out_of_range", "is out of the range of") if is_number else ("does_not_fit", "does not fit")
        reason = f"{{value}} ({_word(written)}) {words} {_word(wanted)}"
        fitting.refuse(array, bad, place.owner, place.path, kind, reason)
    return back


def _from_epoch(fitting: Fitting, array: pa.Array, wanted: IcebergType, place: Place, unit: str) -> pa.Array:
    moments = from_numbers(array, unit)
    if moments.is_outside.any():
        reason = f"{{value}} is out of the range of {wanted}({unit})"
        fitting.refuse(array, moments.is_outside, place.owner, place.path, "out_of_range", reason)
    return moments.micros.cast(arrow_type(wanted))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _word(kind: IcebergType) -> str:
    return str(kind).split("<")[0]
