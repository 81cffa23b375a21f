"""Structs regrouped without a copy of their values: members left out or moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.decode.columns import Columns
from frazil.schema.arrow import arrow_type, children_of, replace_children, unsliced
from frazil.schema.parts import Path, common_part, is_empty_type, parts_of
from frazil.schema.selection import Selection


def select_columns(selection: Selection, struct: StructType, columns: Columns) -> tuple[StructType, Columns]:
    """Returns a reader's columns as if its schema had only the fields that the table takes."""
    pruned = selection.prune_struct(struct) or StructType()
    places = {member.name: n for n, member in enumerate(struct.fields)}
    arrays = []
    for member in pruned.fields:
        n = places[member.name]
        arrays.append(regroup(columns.arrays[n], struct.fields[n].field_type, member.field_type))
    return pruned, replace(columns, arrays=arrays)


def regroup(
    array: pa.Array, had: IcebergType, wanted: IcebergType, path: Path = (), moved: frozenset[Path] = frozenset()
) -> pa.Array:
    """Returns the array of type `had` with the members of `wanted`, at every level. Absent members are null, as are
    those that `moved` to columns of their own, and those of which nothing is taken.
    """
    if had == wanted and not any(other[: len(path)] == path for other in moved):
        return array
    if is_empty_type(had):
        return pa.nulls(len(array), arrow_type(wanted))
    is_struct = isinstance(had, StructType) and isinstance(wanted, StructType)
    if not is_struct and common_part(had, wanted) is None:
        return array if had == wanted else pa.nulls(len(array), arrow_type(wanted))
    array, children = unsliced(array), []
    index_by_name = {part.name: n for n, part in enumerate(parts_of(had))}
    inside = children_of(array)
    for part in parts_of(wanted):
        inner, n = (*path, part.name), index_by_name.get(part.name)
        if n is None or (is_struct and inner in moved):
            children.append(pa.nulls(len(array), arrow_type(part.field_type)))
        else:
            children.append(regroup(inside[n], parts_of(had)[n].field_type, part.field_type, inner, moved))
    return replace_children(array, [part.name for part in parts_of(wanted)], children)


def member_at(
    fields: Sequence[NestedField], arrays: Sequence[pa.Array], path: Path
) -> tuple[pa.Array, IcebergType] | None:
    """Returns the values of the field at `path`, null where a struct around it is, and their type; None where there is
    no such field.
    """
    column: tuple[pa.Array, IcebergType] | None = None
    for name in path:
        places = {member.name: n for n, member in enumerate(fields)}
        if name not in places:
            return None
        n = places[name]
        kind = fields[n].field_type
        column = (pc.struct_field(column[0], [n]) if column else arrays[n]), kind
        fields = kind.fields if isinstance(kind, StructType) else ()
    return column
