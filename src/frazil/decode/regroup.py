"""Structs regrouped without a copy of their values: members left out or moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from frazil.decode.columns import Columns
from frazil.schema.arrow import arrow_type
from frazil.schema.selection import Path, Selection, is_empty_type


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
    if array.offset:
        # The children are used as they are in memory: an array that is a slice is copied first.
        array = pa.concat_arrays([array])
    if isinstance(had, StructType) and isinstance(wanted, StructType):
        return _regroup_struct(array, had, wanted, path, moved)
    if isinstance(had, ListType) and isinstance(wanted, ListType):
        items = regroup(array.values, had.element_type, wanted.element_type, (*path, "element"), moved)
        kind = pa.list_(pa.field("element", items.type))
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, children=[items])
    if isinstance(had, MapType) and isinstance(wanted, MapType):
        values = regroup(array.items, had.value_type, wanted.value_type, (*path, "value"), moved)
        kind = pa.map_(array.keys.type, pa.field("value", values.type))
        entries = pa.StructArray.from_arrays([array.keys, values], fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, children=[entries])
    return array if had == wanted else pa.nulls(len(array), arrow_type(wanted))


def _regroup_struct(
    array: pa.Array, had: StructType, wanted: StructType, path: Path, moved: frozenset[Path]
) -> pa.Array:
    places = {member.name: n for n, member in enumerate(had.fields)}
    children = []
    for member in wanted.fields:
        inner, n = (*path, member.name), places.get(member.name)
        if n is None or inner in moved:
            children.append(pa.nulls(len(array), arrow_type(member.field_type)))
        else:
            children.append(regroup(array.field(n), had.fields[n].field_type, member.field_type, inner, moved))
    kind = pa.struct([pa.field(f.name, child.type) for f, child in zip(wanted.fields, children, strict=True)])
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:1], array.null_count, children=children)


def member_at(
    fields: Sequence[NestedField], arrays: Sequence[pa.Array], path: Path
) -> tuple[pa.Array, IcebergType] | None:
    """Returns the values of the field at `path`, null where a struct around it is, and their type; None where there is
    no such field.
    """
    places = {member.name: n for n, member in enumerate(fields)}
    n = places.get(path[0])
    if n is None:
        return None
    array, kind = arrays[n], fields[n].field_type
    for name in path[1:]:
        members = {member.name: m for m, member in enumerate(kind.fields)} if isinstance(kind, StructType) else {}
        if name not in members:
            return None
        assert isinstance(kind, StructType)
        array, kind = pc.struct_field(array, [members[name]]), kind.fields[members[name]].field_type
    return array, kind
