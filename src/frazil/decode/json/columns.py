"""Values of one JSON column of any declared Iceberg type, read to Arrow arrays.

Objects are read by their members, lists and maps by their elements, all else by `scalars`. Members that have no column are
found here; what becomes of them is decided by the rules of every format (`decode.conversion`).

Maps whose keys are no texts are written by Kafka Connect's JsonConverter as an array of pairs, [[key, value], …]. Where the
keys are not primitive either, the column is a list of structs with `key` and `value`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np
import pyarrow as pa
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from frazil.column_names import Spellings
from frazil.decode.columns import Fate, bitmap, filled, repeats_keys
from frazil.decode.conversion import MISSING, Conversion
from frazil.decode.json import values
from frazil.decode.json.extended import unwrap_scalars
from frazil.decode.json.grammar import ABSENT, ARRAY, DOUBLE, ESCAPED, FALSE, INT, NULL, OBJECT, STRING, TRUE
from frazil.decode.json.infer import infer_members, merge_spelling_variants, refuse_objects
from frazil.decode.json.names import all_members, is_text, names_of, prefer_exact, respelt_members
from frazil.decode.json.scalars import FAULTS, read_scalar, refuse_values, text_column
from frazil.decode.json.scan import MAX_UNKNOWN, OK
from frazil.decode.json.slices import (
    Members,
    Slices,
    Texts,
    TextValues,
    elements_of,
    entries_of,
    find_members,
    presence,
)
from frazil.raw_memory import I32, U8
from frazil.schema.arrow import list_array, map_array, struct_array
from frazil.schema.parts import Path

_SCALARS = (TRUE, FALSE, INT, DOUBLE, STRING, ESCAPED)


def read_members(texts: Texts, slices: Slices, fields: Sequence[NestedField], path: Path, error: U8) -> list[pa.Array]:
    """Returns the fields of all objects among `slices`, one array each; `error` gets the faults of the objects
    themselves.
    """
    names = [member.name for member in fields]
    level = texts.level(path)
    others = level.more(names)  # Excluded fields are looked up too, so that they are no unknown fields.
    members = find_members(texts, slices, fields, others, error)
    if path and texts.reading.is_rescuing:
        members.clear(error)  # The object is rescued as a whole.
    columns = members.columns
    if level.only is not None:
        columns = _handle_included(texts, slices, (names, others), members, path, error)
    elif members.unknown:
        columns = _handle_other_keys(texts, slices, (names, others), members, path, error)
        members.clear(error)
    if texts.conversion.fates is not None and not path:
        _count_fields(texts, members, columns[: len(names)])
    if path in texts.watched:
        texts.watched[path](names + others, columns)
    arrays = []
    for member, column in zip(fields, columns[: len(names)], strict=True):
        arrays.append(read_value(texts, column, member.field_type, (*path, member.name)))
        if member.required:
            _refuse_missing(texts, slices, column, arrays[-1], (*path, member.name), error)
    return arrays


def read_value(texts: Texts, slices: Slices, kind: IcebergType, path: Path) -> pa.Array:
    """Returns one column of any type, with a value per slice: null where it is absent, null or refused."""
    if texts.reading.json.is_extended:
        slices = unwrap_scalars(texts, slices, kind, path)
    reader = _READERS.get(type(kind))
    return reader(texts, slices, kind, path) if reader else read_scalar(texts, slices, kind, path)


def _count_fields(texts: Texts, members: Members, columns: Sequence[Slices]) -> None:
    """Counts the fields of the records, and those that `columns` or the table's settings take. Without such a setting, a
    field that nobody has handled is left over, and the batch does not balance.
    """
    fates = texts.conversion.fates
    assert fates is not None
    fates[Fate.READ] += members.value_counts
    for column in columns:
        fates[Fate.COLUMN] += column.kind > NULL
    if texts.reading.selection is not None or texts.reading.unknown_fields == "drop":
        fates[Fate.LEFT_OUT] = fates[Fate.READ] - fates[Fate.COLUMN] - fates[Fate.RESCUED] - fates[Fate.NO_COLUMN]


def _handle_included(
    texts: Texts, slices: Slices, taken: tuple[list[str], list[str]], members: Members, path: Path, error: U8
) -> list[Slices]:
    """Handles included members that no column has by exactly their name. Returns the columns of `taken` with the values
    under names that differ from theirs in case alone. taken: names of columns, and other included names.
    """
    fields, others = taken
    names, every = respelt_members(texts, slices, fields + others, members, texts.level(path), error)
    columns, more = every[: len(fields) + len(others)], list(zip(names, every, strict=True))[len(fields) :]
    _handle_others(texts, columns, fields, more, path)
    return columns


def _handle_other_keys(
    texts: Texts, slices: Slices, taken: tuple[list[str], list[str]], members: Members, path: Path, error: U8
) -> list[Slices]:
    """Handles keys that no column has by exactly their name. Returns the columns of `taken` with the values under names
    that differ from theirs in case alone. taken: names of columns, and of excluded fields.
    """
    (fields, excluded), level, is_dropping = taken, texts.level(path), texts.reading.unknown_fields == "drop"
    spellings, unknown = Spellings(fields), list(filter(level.takes, members.unknown))
    is_respelt = len(members.unknown) >= MAX_UNKNOWN  # Behind so many there may be others.
    if not unknown and not is_respelt:
        return members.columns
    is_respelt |= any(spellings.find(name) is not None for name in unknown)
    if is_dropping:
        dropped = [name for name in unknown if spellings.find(name) is None]
        texts.conversion.dropped.update(".".join((*path, name)) for name in dropped if is_text(name))
        if not is_respelt:
            return members.columns
        seen = {*fields, *excluded}
        respelt = (name for name in names_of(texts, slices, error, fields) if spellings.find(name) is not None)
        names = [*fields, *excluded, *(name for name in respelt if name not in seen and level.takes(name))]
        every = find_members(texts, replace(slices, sweep=None), (), names, error)
        every.clear(error)
    else:
        names, every = all_members(texts, slices, fields + excluded, error, level)
    columns = every.columns if is_respelt else members.columns
    more = list(zip(names, every.columns, strict=True))[len(fields) + len(excluded) :]
    _handle_others(texts, columns, fields, more, path)
    return columns[: len(fields) + len(excluded)]


def _handle_others(
    texts: Texts, columns: list[Slices], fields: list[str], others: Iterable[tuple[str, Slices]], path: Path
) -> None:
    """Adds to the `columns` of `fields` the values under other names that differ from theirs in case alone, and handles
    the fields that remain.
    """
    level, spellings, new = texts.level(path), Spellings(fields), []
    for name, column in others:
        column_name = spellings.find(name)
        if column_name is None:
            new.append((name, column))
        if column_name is None or not (column.kind > NULL).any():
            continue
        place = fields.index(column_name)
        if not level.is_exact(name) or level.is_exact(column_name):
            columns[place], second = merge_spelling_variants(columns[place], column)
            new += _handle_second(texts, second, (*path, name), column_name) if level.is_exact(name) else []
        else:
            columns[place] = merge_spelling_variants(column, columns[place])[0]
    _handle_unknown(texts, prefer_exact(level, new), path, spellings)


def _handle_second(texts: Texts, second: Slices, path: Path, column: str) -> list[tuple[str, Slices]]:
    """Handles values whose record has another value for their column: the record is refused, unless the table leaves
    such fields out or rescues them; the latter are returned.
    """
    if not (second.kind > NULL).any():
        return []
    if texts.reading.unknown_fields != "add":
        return [(path[-1], second)]
    conversion, values = texts.conversion, TextValues(texts, second)
    conversion.note_fate(Fate.RESCUED, path[:-1], values.there)
    conversion.refuse_second(values, path, column)
    return []


def _handle_unknown(texts: Texts, columns: Iterable[tuple[str, Slices]], path: Path, spellings: Spellings) -> None:
    """Handles fields without a column. spellings: the names of existing columns."""
    conversion = texts.conversion
    if texts.reading.unknown_fields != "add":
        for name, column in columns:
            _put_aside(texts, column, (*path, name))
        return
    free: list[tuple[str, Slices]] = []
    for name, column in columns:
        fault = conversion.column_fault((*path, name), spellings.others(name))
        conversion.note_fate(Fate.NO_COLUMN if fault is None else Fate.RESCUED, path, column.kind > NULL)
        if fault is None:
            free.append((name, column))
        else:
            selected = texts.selected(column, (*path, name))
            conversion.refuse_field(TextValues(texts, selected), (*path, name), fault)
    for name, inferred in infer_members(texts, free, path).items():
        conversion.request((*path, name), inferred.type)


def _put_aside(texts: Texts, column: Slices, path: Path) -> None:
    """Handles a field that gets no column."""
    selection, conversion = texts.reading.selection, texts.conversion
    if texts.reading.unknown_fields == "drop":
        if (column.kind != ABSENT).any() and is_text(path[-1]):
            conversion.put_aside(TextValues(texts, column), path)
        return
    if selection is not None and selection.takes(path) == "none":
        return
    conversion.note_fate(Fate.RESCUED, path[:-1], column.kind > NULL)
    if selection is not None and selection.is_split(path):
        column = _rescue_parts(texts, column, path)
    if (column.kind > NULL).any():
        conversion.put_aside(TextValues(texts, column), path)


def _rescue_parts(texts: Texts, column: Slices, path: Path) -> Slices:
    """Rescues the selected parts of objects and lists; returns the values that are neither."""
    assert texts.reading.selection is not None
    objects, lists = column.only(OBJECT), column.only(ARRAY)
    error = np.zeros(len(objects), np.uint8)
    read_members(texts, objects, (), path, error)
    refuse_objects(texts, objects, error, path)
    if (lists.kind == ARRAY).any():
        _, elements = elements_of(texts, lists)
        _put_aside(texts, elements, (*path, "element"))
    is_part = texts.reading.selection.takes(path) == "part"
    return column.only() if is_part else column.only(*_SCALARS)


def _refuse_missing(texts: Texts, slices: Slices, column: Slices, array: pa.Array, path: Path, error: U8) -> None:
    missing = (slices.kind == OBJECT) & (error == OK) & np.asarray(array.is_null())
    if not texts.reading.is_rescuing:  # A rescued value is null in its column.
        missing &= column.kind <= NULL
    if missing.any():
        texts.refuse(column, missing.astype(np.uint8), ".".join(path), {1: MISSING})


def _read_struct(texts: Texts, slices: Slices, kind: IcebergType, path: Path) -> pa.Array:
    assert isinstance(kind, StructType)
    validity, nulls, other = presence(slices, OBJECT)
    refuse_values(texts, slices, other, kind, path)
    error = np.zeros(len(slices), np.uint8)
    arrays = read_members(texts, slices, kind.fields, path, error)
    refuse_objects(texts, slices, error, path)
    if error.any():
        validity, nulls, _ = presence(_without(slices, error), OBJECT)
    return struct_array(len(slices), [member.name for member in kind.fields], arrays, validity, nulls)


def _read_list(texts: Texts, slices: Slices, kind: IcebergType, path: Path) -> pa.Array:
    assert isinstance(kind, ListType)
    validity, nulls, other = presence(slices, ARRAY)
    refuse_values(texts, slices, other, kind, path)
    offsets, elements = elements_of(texts, slices)
    if texts.is_connect and _is_entry(kind.element_type) and (elements.kind == ARRAY).any():
        array, bad = read_entries(texts, slices, kind.element_type, path)
        refuse_values(texts, slices, bad * np.uint8(values.WRONG_KIND), kind, path)
        return array
    items = read_value(texts, elements, kind.element_type, (*path, "element"))
    if kind.element_required:
        _refuse_null(texts, elements, (*path, "element"))
    return list_array(offsets, items, validity, nulls)


def _is_entry(kind: IcebergType) -> TypeGuard[StructType]:
    """Whether a type is that of the entries of a map whose keys are not primitive."""
    return isinstance(kind, StructType) and [member.name for member in kind.fields] == ["key", "value"]


def _read_map(texts: Texts, slices: Slices, kind: IcebergType, path: Path) -> pa.Array:
    assert isinstance(kind, MapType)
    if not isinstance(kind.key_type, StringType):
        return _read_pairs(texts, slices, kind, path)
    offsets, key_slices, value_slices = entries_of(texts, slices)
    keys = text_column(texts, key_slices, numbers=False)
    faults = _faulty_maps(texts, offsets, keys.array, keys.bad)
    if faults.any():
        refuse_values(texts, slices, faults, kind, path)
        return _read_map(texts, _without(slices, faults), kind, path)
    validity, nulls, other = presence(slices, OBJECT)
    refuse_values(texts, slices, other, kind, path)
    refuse_values(texts, key_slices, keys.bad, StringType(), (*path, "key"))
    _refuse_twice(texts, slices, offsets, keys.array, path)
    items = read_value(texts, value_slices, kind.value_type, (*path, "value"))
    if kind.value_required:
        _refuse_null(texts, value_slices, (*path, "value"))
    return map_array(offsets, keys.array.fill_null(""), items, validity, nulls)  # Arrow aborts over a null key.


def _read_pairs(texts: Texts, slices: Slices, kind: MapType, path: Path) -> pa.Array:
    """Returns maps whose keys are no texts, from arrays of pairs."""
    faults = _faulty_pairs(texts, slices, kind, path)
    if faults.any():
        refuse_values(texts, slices, faults, kind, path)
        slices = _without(slices, faults)
    pairs, bad = find_pairs(texts, slices)
    keys = read_value(texts, pairs.keys, kind.key_type, (*path, "key"))
    items = read_value(texts, pairs.values, kind.value_type, (*path, "value"))
    is_array = (slices.kind == ARRAY) & (bad == 0)
    nulls = int(is_array.size - np.count_nonzero(is_array))
    array = map_array(pairs.offsets, filled(keys), items, bitmap(is_array) if nulls else None, nulls)
    refuse_values(texts, slices, bad * np.uint8(values.WRONG_KIND), kind, path)
    _refuse_twice(texts, slices, pairs.offsets, keys, path)
    if kind.value_required:
        _refuse_null(texts, pairs.values, (*path, "value"))
    return array


def _faulty_maps(texts: Texts, offsets: I32, keys: pa.Array, bad: U8) -> U8:
    """Returns the fault of each map with a bad key or one key twice, where such maps are rescued as a whole. bad: the code
    of each key's fault.
    """
    if not texts.reading.is_rescuing:
        return np.zeros(offsets.size - 1, np.uint8)
    faults = repeats_keys(offsets, keys) * np.uint8(values.TWICE)
    faults[np.repeat(np.arange(faults.size), np.diff(offsets))[bad != 0]] = bad[bad != 0]
    return faults


def _faulty_pairs(texts: Texts, slices: Slices, kind: MapType, path: Path) -> U8:
    """Returns the same of maps that are arrays of pairs, and 0 for other values."""
    if not texts.reading.is_rescuing:
        return np.zeros(len(slices), np.uint8)
    pairs, _ = find_pairs(texts, slices)
    keys = replace(pairs.keys, owner=np.arange(len(pairs.keys), dtype=np.int32))
    reading = replace(texts.reading, is_rescuing=False, unknown_fields="drop")
    alone = Conversion(reading, "", len(keys), texts.conversion.limit)
    array = read_value(replace(texts, conversion=alone), keys, kind.key_type, (*path, "key"))
    return _faulty_maps(texts, pairs.offsets, array, alone.refused * np.uint8(values.UNREADABLE))


def _without(slices: Slices, faults: U8) -> Slices:
    """Returns the values, those with a fault as absent ones."""
    return replace(slices.masked(faults == 0), sweep=None)


def _refuse_null(texts: Texts, slices: Slices, path: Path) -> None:
    missing = (slices.kind <= NULL).astype(np.uint8)
    if missing.any():
        texts.refuse(slices, missing, ".".join(path), {1: MISSING})


def _refuse_twice(texts: Texts, slices: Slices, offsets: I32, keys: pa.Array, path: Path) -> None:
    """Refuses maps with one key twice."""
    bad = repeats_keys(offsets, keys)
    if bad.any():
        texts.refuse(slices, bad * np.uint8(values.TWICE), ".".join(path), FAULTS)


_Reader = Callable[[Texts, Slices, IcebergType, Path], pa.Array]
_READERS: dict[type[IcebergType], _Reader] = {StructType: _read_struct, ListType: _read_list, MapType: _read_map}


@dataclass(frozen=True)
class Pairs:
    """The entries of some maps."""

    #: Where the entries of each map begin, `(n_maps + 1,)`.
    offsets: I32
    #: The keys of all entries.
    keys: Slices
    #: The values of all entries.
    values: Slices


def find_pairs(texts: Texts, slices: Slices) -> tuple[Pairs, U8]:
    """Returns the entries of all maps, and which values are no array of pairs with a key: their entries are left out."""
    is_other = (slices.kind != ARRAY) & (slices.kind > NULL)
    offsets, entries = elements_of(texts, slices.only(ARRAY))
    inner, members = elements_of(texts, replace(entries, sweep=None).only(ARRAY))
    is_pair = np.diff(inner) == 2
    first = inner[:-1][is_pair]
    has_key = is_pair.copy()
    has_key[is_pair] = members.kind[first] > NULL
    of_map = np.repeat(np.arange(len(slices)), np.diff(offsets))
    bad = is_other.astype(np.uint8)
    bad[of_map[~has_key]] = 1
    if bad.any() and (slices.kind[bad != 0] != ABSENT).any():
        return find_pairs(texts, _without(slices, bad))[0], bad
    return Pairs(offsets, members.take(first), members.take(first + 1)), bad


def read_entries(texts: Texts, slices: Slices, kind: StructType, path: Path) -> tuple[pa.Array, U8]:
    """Returns lists of structs with the key and the value of each pair, and which values are no array of pairs. kind: of
    the structs.
    """
    pairs, bad = find_pairs(texts, slices)
    names = [member.name for member in kind.fields]
    members = [
        read_value(texts, some, member.field_type, (*path, "element", member.name))
        for some, member in zip((pairs.keys, pairs.values), kind.fields, strict=True)
    ]
    is_array = (slices.kind == ARRAY) & (bad == 0)
    nulls = int(is_array.size - np.count_nonzero(is_array))
    entries = struct_array(len(pairs.keys), names, members, None, 0)
    return list_array(pairs.offsets, entries, bitmap(is_array) if nulls else None, nulls), bad
