"""Columns as they were written, with a writer's schema, to the table's columns.

Fields are matched by name at every level. A value is converted when the conversion is lossless. Fields that the table
lacks or has in a type that is too narrow are requested, or refused where the table may not change; everything else is a
type mismatch with its record and path.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as t

from frazil.column_names import Spellings, drop_long_names, long_name_in
from frazil.decode.columns import Columns, Decoded, Mismatch, UnionStruct, repeats_keys, without_empty
from frazil.decode.conversion import ArrayValues, Conversion, ValuePlace, elements_of, inside_of, require
from frazil.decode.decimals import are_numbers
from frazil.decode.epochs import inside_years
from frazil.decode.limits import leaf_count, long_name_fault, rejected_fault
from frazil.decode.lossless import (
    DAY,
    cast_losslessly,
    convert,
    convert_times,
    format_type,
    may_convert,
    mismatch_of,
    readable,
    remedy_of_values,
)
from frazil.error_classes import ErrorClass
from frazil.schema.arrow import Bools, arrow_type, children_of, first_present, replace_children, unsliced
from frazil.schema.conflicts import KEYS_AS_TEXT, OF_KEYS, declaration_for, type_without_rejected
from frazil.schema.evolve import can_promote
from frazil.schema.names import conflict_reason
from frazil.schema.parts import Path, parts_of, retyped, type_word, with_parts


def convert_columns(
    conversion: Conversion, struct: t.StructType, columns: Columns, fields: Sequence[t.NestedField]
) -> Decoded:
    """Returns the columns of a reader as columns of the table."""
    conversion.refused |= columns.fault != 0
    for row in np.flatnonzero(columns.fault)[: conversion.limit].tolist():
        fault = columns.explain(row)
        conversion.mismatches.append(Mismatch(row, columns.paths.get(row, ""), fault.kind, fault.message))
    count = conversion.row_count
    place = ValuePlace((), np.arange(count, dtype=np.int32), columns.fault == 0)
    arrays = convert_struct(conversion, struct, columns.arrays, fields, place)
    if count and not place.there.any():  # Where no record can be read, the records may not be of this schema.
        conversion.requested_fields = {}
    return conversion.decoded(arrays)


def convert_struct(
    conversion: Conversion,
    struct: t.StructType,
    arrays: Sequence[pa.Array],
    fields: Sequence[t.NestedField],
    place: ValuePlace,
) -> list[pa.Array]:
    """Returns the table's `fields` from the writer's `struct`, of which `arrays` are the columns."""
    written = {member.name: n for n, member in enumerate(struct.fields)}
    column_names, spellings = {member.name for member in fields}, Spellings(member.name for member in fields)
    renamed = {
        column: written[name]
        for column, name in conversion.renames.of_columns(struct, column_names, place.path).items()
    }
    others = [
        n for n, member in enumerate(struct.fields) if member.name not in column_names and n not in renamed.values()
    ]
    respelt: dict[str | None, list[int]] = {}
    for n in others:
        respelt.setdefault(spellings.find(struct.fields[n].name), []).append(n)
    columns = []
    for member in fields:
        at = written.get(member.name, renamed.get(member.name))
        column = _convert_member(conversion, struct, arrays, member, place, [at] if at is not None else [])
        for number, more in enumerate(respelt.get(member.name, ())):
            is_first = at is None and number == 0
            column = _with_other_case(conversion, (struct, arrays, more), member, place, None if is_first else column)
        if member.required:
            require(conversion, column, place, (*place.path, member.name))
        columns.append(column)
    new = Spellings()
    for n in respelt.get(None, ()):
        member = conversion.renames.under_first(struct.fields[n], place.path, written.keys() | column_names)
        if new.others(member.name) and conversion.reading.unknown_fields == "add":
            path = (*place.path, member.name)
            conversion.refuse_change(path, _conflict(conversion, path, new.others(member.name)[:1]))
        new.add(member.name)
        _handle_unknown(conversion, member, arrays[n], place, spellings)
    return columns


def _convert_member(
    conversion: Conversion,
    struct: t.StructType,
    arrays: Sequence[pa.Array],
    member: t.NestedField,
    place: ValuePlace,
    at: Sequence[int],
) -> pa.Array:
    """Returns the values of one column, from the writer's field at the position `at`, if there is one."""
    if not at:
        conversion.spend(leaf_count(member.field_type) * len(place.owner))
        return pa.nulls(len(place.owner), arrow_type(member.field_type))
    written, inner = struct.fields[at[0]].field_type, place.inside(member.name)
    return convert_value(conversion, arrays[at[0]], (written, member.field_type), inner, (inner.path, written))


def _with_other_case(
    conversion: Conversion,
    written: tuple[t.StructType, Sequence[pa.Array], int],
    member: t.NestedField,
    place: ValuePlace,
    column: pa.Array | None,
) -> pa.Array:
    """Returns a column, filled where it has no value from the field whose name differs in case alone. A record with
    values of both is refused, unless the table leaves other fields out. column: None where no other field feeds it.
    """
    struct, arrays, n = written
    array, path = arrays[n], (*place.path, struct.fields[n].name)
    if column is None:
        return _convert_member(conversion, struct, arrays, member, place, [n])
    is_second = np.asarray(array.is_valid()) & np.asarray(column.is_valid()) & place.there
    if is_second.any() or not len(column):
        values = ArrayValues(array, place.owner, is_second)
        if conversion.reading.unknown_fields == "add":
            conversion.refuse_change(path, _conflict(conversion, path, [member.name]))
            conversion.refuse_second(values, path, member.name)
        else:
            conversion.put_aside(values, path)
        left = np.where(is_second, -1, np.arange(len(array)))
        array = array.take(pa.array(left, mask=is_second))
    respelt = _convert_member(conversion, struct, [*arrays[:n], array, *arrays[n + 1 :]], member, place, [n])
    if respelt.null_count == len(respelt):
        return column
    return respelt if column.null_count == len(column) else first_present(column, respelt)


def _conflict(conversion: Conversion, path: Path, others: Sequence[str]) -> str:
    return conflict_reason(conversion.reading.in_row(path), others, conversion.reading.is_key_column)


def convert_value(
    conversion: Conversion,
    array: pa.Array,
    kinds: tuple[t.IcebergType, t.IcebergType],
    place: ValuePlace,
    top: tuple[Path, t.IcebergType],
) -> pa.Array:
    """Returns one column in the table's type. kinds: the writer's and the table's. top: path and written type of the
    nearest field that a schema change would name.
    """
    written, wanted = kinds
    array = unsliced(array)
    if isinstance(written, t.DateType | t.TimestampType | t.TimestamptzType):
        array = _near(conversion, array, place)
    if isinstance(written, t.StructType) and isinstance(wanted, t.StructType):
        return _convert_inner_struct(conversion, array, written, wanted, place)
    if isinstance(written, t.ListType) and isinstance(wanted, t.ListType):
        return _convert_list(conversion, array, (written, wanted), place, top)
    if isinstance(written, t.MapType) and isinstance(wanted, t.MapType):
        return _convert_map(conversion, array, (written, wanted), place, top)
    if written == wanted:
        return array
    if isinstance(written, UnionStruct):
        return _convert_branches(conversion, array, (written, wanted), place, top)
    return _convert_other(conversion, array, kinds, place, top)


def _near(conversion: Conversion, array: pa.Array, place: ValuePlace) -> pa.Array:
    """Returns the days or timestamps of the years 1 to 9999; others are refused (see Conversion)."""
    near, is_far = inside_years(array)
    if is_far.any():
        reason = "{value} is a time outside the years 1 to 9999"
        conversion.refuse(array, is_far, place.owner, place.path, ErrorClass.OUT_OF_RANGE, reason)
    return near


def _convert_other(
    conversion: Conversion,
    array: pa.Array,
    kinds: tuple[t.IcebergType, t.IcebergType],
    place: ValuePlace,
    top: tuple[Path, t.IcebergType],
) -> pa.Array:
    """Returns values of another type than the table's."""
    written, wanted = kinds
    if isinstance(wanted, t.StructType):
        branch = conversion.branch_at(place.path)
        if branch is not None and branch in {member.name for member in wanted.fields}:
            return _convert_into_branch(conversion, array, (written, wanted), place, branch)
    if can_promote(wanted, written):
        if conversion.reading.evolution.may_widen:
            conversion.request(*top)
        else:
            conversion.refuse_change(place.path, f"{wanted} is not widened to {written}")
    return _convert(conversion, array, kinds, place, top)


def _convert_branches(
    conversion: Conversion,
    array: pa.Array,
    kinds: tuple[UnionStruct, t.IcebergType],
    place: ValuePlace,
    top: tuple[Path, t.IcebergType],
) -> pa.Array:
    """Returns values of a union in a column of one type: each is converted as a value of its branch's type."""
    written, wanted = kinds
    conversion.spend(leaf_count(wanted) * len(array))
    values = pa.nulls(len(array), arrow_type(wanted))
    for n, branch in enumerate(written.fields):
        alone = (top[0], _with_branch(top[1], branch.field_type))
        fitted = convert_value(conversion, array.field(n), (branch.field_type, wanted), place, alone)
        if fitted.null_count < len(fitted):
            values = pc.coalesce(values, fitted) if values.null_count < len(values) else fitted
    return values


def _with_branch(kind: t.IcebergType, branch: t.IcebergType) -> t.IcebergType:
    """Returns the type of a field that is a union, or has one in its lists and maps, with one branch in place of the
    union.
    """
    if isinstance(kind, t.StructType):
        return branch
    parts = parts_of(kind)
    return (
        with_parts(kind, [retyped(parts[0], _with_branch(parts[0].field_type, branch), required=False)])
        if parts
        else branch
    )


def _convert_into_branch(
    conversion: Conversion, array: pa.Array, kinds: tuple[t.IcebergType, t.StructType], place: ValuePlace, branch: str
) -> pa.Array:
    """Returns values of one type in the column of a union that has it: each becomes the member of that branch."""
    struct = pa.StructArray.from_arrays([array], [branch], mask=array.is_null())
    written = t.StructType(t.NestedField(0, branch, kinds[0], required=False))
    return _convert_inner_struct(conversion, struct, written, kinds[1], place)


def _convert_inner_struct(
    conversion: Conversion, array: pa.Array, written: t.StructType, wanted: t.StructType, place: ValuePlace
) -> pa.Array:
    inner = ValuePlace(place.path, place.owner, np.asarray(array.is_valid()))
    columns = convert_struct(conversion, written, children_of(array), wanted.fields, inner)
    return replace_children(array, [member.name for member in wanted.fields], columns)


def _convert_list(
    conversion: Conversion,
    array: pa.Array,
    kinds: tuple[t.ListType, t.ListType],
    place: ValuePlace,
    top: tuple[Path, t.IcebergType],
) -> pa.Array:
    written, wanted = kinds
    inner = elements_of(array, place, "element")
    items = convert_value(conversion, array.values, (written.element_type, wanted.element_type), inner, top)
    if wanted.element_required:
        require(conversion, items, inner, inner.path)
    return replace_children(array, (), [items])


def _convert_map(
    conversion: Conversion,
    array: pa.Array,
    kinds: tuple[t.MapType, t.MapType],
    place: ValuePlace,
    top: tuple[Path, t.IcebergType],
) -> pa.Array:
    written, wanted = kinds
    items, keys = elements_of(array, place, "value"), array.keys
    if written.key_type != wanted.key_type:
        kinds_of_keys = (written.key_type, wanted.key_type)
        keys = _convert_keys(conversion, keys, kinds_of_keys, place)
        # Keys that are written otherwise may be one: texts of a UUID in capitals and in small ones.
        twice = repeats_keys(np.asarray(array.offsets), keys)
        if keys.null_count or twice.any():
            array, items = _without_mismatches(conversion, array, keys, twice, wanted.key_type, place)
            keys = _convert_keys(conversion, array.keys, kinds_of_keys, place)
    values = convert_value(conversion, array.items, (written.value_type, wanted.value_type), items, top)
    if wanted.value_required:
        require(conversion, values, items, items.path)
    return replace_children(array, (), [values], keys)


def _convert_keys(
    conversion: Conversion, keys: pa.Array, kinds: tuple[t.IcebergType, t.IcebergType], place: ValuePlace
) -> pa.Array:
    """Returns the keys of maps in the type of the column's keys; null where they do not fit."""
    (written, wanted), path = kinds, (*place.path, "key")
    converted = convert(keys, written, wanted, conversion.unit_at(path), conversion.reading.coerces(place.path))
    if converted is not None:
        return converted.array
    target = arrow_type(wanted)
    if not may_convert(keys.type, target):
        conversion.refuse_change(path, f"{type_word(written)} does not fit {type_word(wanted)}")
    elif can_promote(wanted, written):  # Iceberg widens the types of map values, but not of map keys.
        conversion.refuse_change(path, f"keys of {wanted} are not widened to {written}")
    return cast_losslessly(keys, target)


def _without_mismatches(
    conversion: Conversion, array: pa.MapArray, keys: pa.Array, twice: Bools, wanted: t.IcebergType, place: ValuePlace
) -> tuple[pa.MapArray, ValuePlace]:
    """Returns the maps whose keys all fit, null for the others: an entry without its key would be lost. keys: null
    where they do not fit. twice: which maps would have one key twice.
    """
    of_map = np.repeat(np.arange(len(array)), np.diff(np.asarray(array.offsets)))
    bad = np.zeros(len(array), np.bool_)
    bad[of_map[np.asarray(keys.is_null())]] = True
    conversion.refuse(
        array, bad, place.owner, place.path, ErrorClass.TYPE_MISMATCH, f"{{value}} has a key that does not fit {wanted}"
    )
    conversion.refuse(
        array,
        twice & ~bad,
        place.owner,
        place.path,
        ErrorClass.DUPLICATE_KEY,
        f"{{value}} has one key of {wanted} twice",
    )
    rows = pa.array(np.arange(len(array)), mask=bad | twice)
    kept = array.take(rows)
    return kept, elements_of(kept, place, "value")


def _handle_unknown(
    conversion: Conversion,
    member: t.NestedField,
    array: pa.Array,
    place: ValuePlace,
    spellings: Spellings,
) -> None:
    """Handles a field without a column. spellings: the names of the existing columns."""
    if conversion.reading.unknown_fields == "add":
        _add_unknown(conversion, member, array, place, spellings)
        return
    is_present = np.asarray(array.is_valid()) & place.there
    shown = array if conversion.reading.unknown_fields == "drop" else readable(array, member.field_type)
    values = ArrayValues(shown, place.owner, is_present)
    conversion.put_aside(values, (*place.path, member.name), str(member.field_type))


def _add_unknown(
    conversion: Conversion, member: t.NestedField, array: pa.Array, place: ValuePlace, spellings: Spellings
) -> None:
    """Requests a column for a field, or refuses the records that have a value in it."""
    path, rejected = (*place.path, member.name), conversion.reading.rejected_at
    others = spellings.others(member.name)
    fault, long = conversion.column_fault(path, others), long_name_in(member.field_type)
    if others and fault is not None:
        conversion.refuse_change(path, fault.message)
    if fault is None and long is not None:
        fault = long_name_fault(long, conversion.reading.is_key_column)
        # Records without the name that is too long fit the rest of the field.
        rest = drop_long_names(t.StructType(member)).fields
        rest_kind = without_empty(rest[0].field_type) if rest else None
        if rest_kind is not None:
            conversion.request(path, rest_kind)
    if fault is not None:
        is_present = np.asarray(array.is_valid()) & place.there
        conversion.refuse_field(ArrayValues(array, place.owner, is_present), path, fault)
    else:
        if any(other[: len(path)] == path for other in rejected):
            _refuse_rejected(conversion, array, member.field_type, place.inside(member.name))
        left = type_without_rejected(member.field_type, rejected, path) if rejected else member.field_type
        kind = without_empty(left)
        if kind is not None:  # A struct without fields cannot be stored until it has one.
            conversion.request(path, kind)


def _refuse_rejected(conversion: Conversion, array: pa.Array, kind: t.IcebergType, place: ValuePlace) -> None:
    """Refuses the records with values in rejected fields, inside a field that the table lacks."""
    rejected = conversion.reading.rejected_at
    if place.path in rejected:
        is_present = np.asarray(array.is_valid()) & place.there
        fault = rejected_fault(place.path[-1], rejected[place.path])
        conversion.refuse(array, is_present, place.owner, place.path, fault.kind, fault.message)
    elif any(other[: len(place.path)] == place.path for other in rejected):
        for values, part, inner in inside_of(array, kind, place):
            _refuse_rejected(conversion, values, part.field_type, inner)


def _convert(
    conversion: Conversion,
    array: pa.Array,
    kinds: tuple[t.IcebergType, t.IcebergType],
    place: ValuePlace,
    top: tuple[Path, t.IcebergType],
) -> pa.Array:
    """Returns values in another type where the conversion is lossless; the others are type mismatches."""
    written, wanted = kinds
    target = arrow_type(wanted)
    times = convert_times(conversion, array, wanted, place)
    if times is not None:
        return times
    unit, remedy = conversion.unit_at(place.path), ""
    converted = convert(array, written, wanted, unit, conversion.reading.coerces(place.path))
    if converted is None and not may_convert(array.type, target):
        remedy = _refuse_type(conversion, kinds, place, top)
    back = converted.array if converted is not None else cast_losslessly(array, target)
    bad = np.asarray(array.is_valid()) & np.asarray(back.is_null())
    if bad.any():
        shown = readable(array, written)
        if converted is not None:
            reason = f"{{value}} is out of the range of {wanted if unit == DAY else f'{wanted}({unit})'}"
            conversion.refuse(
                shown, bad & converted.is_outside, place.owner, place.path, ErrorClass.OUT_OF_RANGE, reason
            )
            bad &= ~converted.is_outside
        fault, verdict = mismatch_of(written, wanted)
        reason = f"{{value}} ({type_word(written)}) {verdict} {type_word(wanted)}"
        remedy = remedy_of_values(conversion, kinds, place) or remedy
        is_cast = bool(remedy) and pa.types.is_string(array.type) and may_convert(pa.int64(), target)
        helped = bad & are_numbers(array) if is_cast else bad
        conversion.refuse(shown, helped, place.owner, place.path, fault, reason + remedy)
        conversion.refuse(shown, bad & ~helped, place.owner, place.path, fault, reason)
    return back


def _refuse_type(
    conversion: Conversion,
    kinds: tuple[t.IcebergType, t.IcebergType],
    place: ValuePlace,
    top: tuple[Path, t.IcebergType],
) -> str:
    """Adds the change to another type, which is refused; returns its remedy, as the end of a message."""
    written, wanted = (type_word(kind) for kind in kinds)
    path = place.path
    if isinstance(kinds[0], t.StructType) and isinstance(kinds[1], t.BooleanType):
        # A message that has got its first field: the remedy is a column of its type, in lists and maps of the field's.
        path, kind = top
        written, wanted = format_type(kind), format_type(_with_branch(kind, kinds[1]))
    if conversion.reading.is_key_column:
        conversion.refuse_change(path, f"{written} does not fit {wanted}{OF_KEYS}")
        return f"; {KEYS_AS_TEXT}"
    conversion.refuse_change(path, f"{written} does not fit {wanted}")
    declared = declaration_for(conversion.reading.in_row(path), written, wanted)
    return declared and f"; {declared}"
