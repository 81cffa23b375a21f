"""Values of one JSON column of any declared Iceberg type, read to Arrow arrays.

Objects are read by their members, lists and maps by their elements, all else by `scalars`. What becomes of members that
have no column is decided here.

Maps whose keys are no texts are written by Kafka Connect's JsonConverter as an array of pairs, [[key, value], …]. Where the
keys are not primitive either, the column is a list of structs with `key` and `value`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from frazil.decode.columns import Fate, Fault, bitmap, filled, repeats_keys
from frazil.decode.json import values
from frazil.decode.json.extended import unwrap_scalars
from frazil.decode.json.grammar import ABSENT, ARRAY, DOUBLE, ESCAPED, FALSE, INT, NULL, OBJECT, STRING, TRUE
from frazil.decode.json.infer import infer_members, merge_spelling_variants, refuse_objects, refuse_second
from frazil.decode.json.names import all_members, is_text, names_of, prefer_exact, respelt_members
from frazil.decode.json.scalars import FAULTS, read_scalar, refuse_values, text_column
from frazil.decode.json.scan import MAX_UNKNOWN, OK
from frazil.decode.json.slices import (
    Members,
    Slices,
    Texts,
    elements_of,
    entries_of,
    find_members,
    presence,
)
from frazil.decode.limits import long_name_fault, rejected_fault
from frazil.error_classes import ErrorClass
from frazil.name_case import Spellings
from frazil.name_length import is_long
from frazil.raw_memory import I32, U8
from frazil.schema.arrow import list_array, map_array, struct_array
from frazil.schema.names import conflict_reason
from frazil.schema.parts import Path

_UNKNOWN_FIELD = {
    1: Fault(
        ErrorClass.UNKNOWN_FIELD, "the table has no such column, and `schema_evolution: freeze` forbids new columns"
    )
}
_SCALARS = (TRUE, FALSE, INT, DOUBLE, STRING, ESCAPED)


@dataclass
class Findings:
    """The results of decoding other than values."""

    #: The handling of fields that the table lacks: `add`, `drop`, `rescue` (into the column for it) or `refuse` (the
    #: record).
    unknown_fields: str = "add"
    #: Fields without a column and their inferred types, by path of their struct (list elements and map values are the
    #: path parts `element` and `value`).
    requested_fields: dict[tuple[str, ...], dict[str, IcebergType]] = field(default_factory=dict)
    #: Paths of fields that were left out by the table's settings.
    dropped: set[str] = field(default_factory=set)
    #: Paths of fields that the table does not accept.
    refusals: set[str] = field(default_factory=set)
    #: The reasons why some fields cannot be added, by path.
    rejected: Mapping[tuple[str, ...], str] = field(default_factory=dict)


def read_members(
    texts: Texts,
    slices: Slices,
    fields: tuple[NestedField, ...],
    findings: Findings,
    path: tuple[str, ...],
    error: U8,
) -> list[pa.Array]:
    """Returns the fields of all objects among `slices`, one array each; `error` gets the faults of the objects
    themselves.
    """
    names = [member.name for member in fields]
    level = texts.level(path)
    others = level.more(names)  # Excluded fields are looked up too, so that they are no unknown fields.
    members = find_members(texts, slices, fields, others, error)
    if path and texts.options.is_rescuing:
        members.clear(error)  # The object is rescued as a whole.
    columns = members.columns
    if level.only is not None:
        columns = _handle_included(texts, slices, (names, others), members, findings, path, error)
    elif members.unknown:
        columns = _handle_other_keys(texts, slices, (names, others), members, findings, path, error)
        members.clear(error)
    if texts.fates is not None and not path:
        _count_fields(texts, members, columns, len(names), findings)
    if path in texts.watched:
        texts.watched[path](names + others, columns)
    arrays = []
    for member, column in zip(fields, columns[: len(names)], strict=True):
        arrays.append(read_value(texts, column, member.field_type, findings, (*path, member.name)))
        if member.required:
            _refuse_missing(texts, slices, column, arrays[-1], (*path, member.name), error)
    return arrays


def read_value(texts: Texts, slices: Slices, kind: IcebergType, findings: Findings, path: tuple[str, ...]) -> pa.Array:
    """Returns one column of any type, with a value per slice: null where it is absent, null or refused."""
    if texts.options.is_extended:
        slices = unwrap_scalars(texts, slices, kind, path)
    reader = _READERS.get(type(kind))
    return reader(texts, slices, kind, findings, path) if reader else read_scalar(texts, slices, kind, path)


def _count_fields(texts: Texts, members: Members, columns: Sequence[Slices], count: int, findings: Findings) -> None:
    """Counts the fields of the records, and those that `count` columns or the table's settings take. Without such a
    setting, a field that nobody has handled is left over, and the batch does not balance.
    """
    assert texts.fates is not None
    texts.fates[Fate.READ] += members.value_counts
    for column in columns[:count]:
        texts.note_fate(Fate.COLUMN, (), column)
    if texts.options.selection is not None or findings.unknown_fields == "drop":
        handled = texts.fates[Fate.COLUMN] + texts.fates[Fate.RESCUED] + texts.fates[Fate.NO_COLUMN]
        texts.fates[Fate.LEFT_OUT] = texts.fates[Fate.READ] - handled


def _handle_included(
    texts: Texts,
    slices: Slices,
    known: tuple[list[str], list[str]],
    members: Members,
    findings: Findings,
    path: tuple[str, ...],
    error: U8,
) -> list[Slices]:
    """Handles included members that no column has by exactly their name. Returns the columns of `known` with the values
    under names that differ from theirs in case alone. known: names of columns, and other included names.
    """
    level, (fields, others), spellings = texts.level(path), known, Spellings(known[0])
    names, every = respelt_members(texts, slices, fields + others, members, level, error)
    columns, new = every[: len(fields) + len(others)], []
    for name, column in list(zip(names, every, strict=True))[len(fields) :]:
        column_name = spellings.find(name)
        if column_name is None:
            new.append((name, column))
            continue
        if not (column.kind > NULL).any():
            continue
        place = fields.index(column_name)
        if level.is_exact(name) and not level.is_exact(column_name):
            columns[place] = merge_spelling_variants(column, columns[place])[0]
        else:
            columns[place], second = merge_spelling_variants(columns[place], column)
            if level.is_exact(name):
                new += _handle_second(texts, second, findings, (*path, name), column_name)
    _handle_unknown(texts, prefer_exact(level, new), findings, path, spellings)
    return columns


def _handle_other_keys(
    texts: Texts,
    slices: Slices,
    known: tuple[list[str], list[str]],
    members: Members,
    findings: Findings,
    path: tuple[str, ...],
    error: U8,
) -> list[Slices]:
    """Handles keys that no column has by exactly their name. Returns the columns of `known` with the values under names
    that differ from theirs in case alone. known: names of columns, and of excluded fields.
    """
    (fields, excluded), level = known, texts.level(path)
    spellings, unknown = Spellings(fields), list(filter(level.takes, members.unknown))
    is_respelt = len(members.unknown) >= MAX_UNKNOWN  # Behind so many there may be others.
    if not unknown and not is_respelt:
        return members.columns
    is_respelt |= any(spellings.find(name) is not None for name in unknown)
    if findings.unknown_fields == "drop":
        dropped = [name for name in unknown if spellings.find(name) is None]
        findings.dropped.update(".".join((*path, name)) for name in dropped if is_text(name))
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
    at: dict[str | None, int] = {name: n for n, name in enumerate(fields)}
    others: list[tuple[str, Slices]] = []
    for name, column in list(zip(names, every.columns, strict=True))[len(fields) + len(excluded) :]:
        place = at.get(spellings.find(name))
        if place is not None:
            columns[place], second = merge_spelling_variants(columns[place], column)
            others += _handle_second(texts, second, findings, (*path, name), fields[place])
        elif findings.unknown_fields != "drop":
            others.append((name, column))
    _handle_unknown(texts, others, findings, path, spellings)
    return columns[: len(fields) + len(excluded)]


def _handle_second(
    texts: Texts, second: Slices, findings: Findings, path: tuple[str, ...], column: str
) -> list[tuple[str, Slices]]:
    """Handles values whose record has another value for their column: the record is refused, unless the table leaves
    such fields out or rescues them; the latter are returned.
    """
    if not (second.kind > NULL).any():
        return []
    if findings.unknown_fields != "add":
        return [(path[-1], second)]
    texts.note_fate(Fate.RESCUED, path[:-1], second)
    refuse_second(texts, second, path, column)
    return []


def _reason_without_column(texts: Texts, path: tuple[str, ...], taken: list[str], findings: Findings) -> Fault | None:
    """Returns the reason why a field gets no column. taken: names of columns that differ from its own in case alone."""
    if taken:
        return Fault(ErrorClass.NAME_CONFLICT, conflict_reason(texts.in_row(path), taken, texts.options.is_key))
    if path in findings.rejected:
        return rejected_fault(path[-1], findings.rejected[path])
    return long_name_fault(path[-1], texts.options.is_key) if is_long(path[-1]) else None


def _handle_unknown(
    texts: Texts,
    columns: Iterable[tuple[str, Slices]],
    findings: Findings,
    path: tuple[str, ...],
    spellings: Spellings | None = None,
) -> None:
    """Handles fields without a column. spellings: the names of existing columns."""
    if findings.unknown_fields == "add":
        free: list[tuple[str, Slices]] = []
        for name, column in columns:
            inner, taken = (*path, name), spellings.others(name) if spellings is not None else []
            fault = _reason_without_column(texts, inner, taken, findings)
            if fault is None:
                texts.note_fate(Fate.NO_COLUMN, path, column)
                free.append((name, column))
            else:
                texts.note_fate(Fate.RESCUED, path, column)
                there = (texts.selected(column, inner).kind > NULL).astype(np.uint8)
                texts.refuse(column, there, ".".join((*path, texts.shown(name))), {1: fault})
        found = infer_members(texts, free, path)
        if found:
            findings.requested_fields.setdefault(path, {}).update((name, one.type) for name, one in found.items())
        return
    for name, column in columns:
        inner = (*path, name)
        if findings.unknown_fields != "drop":
            _put_aside(texts, column, inner, findings)
        elif (column.kind != ABSENT).any() and is_text(name):
            findings.dropped.add(".".join(inner))


def _put_aside(texts: Texts, column: Slices, path: tuple[str, ...], findings: Findings) -> None:
    if texts.options.selection is not None and texts.options.selection.takes(path) == "none":
        return
    texts.note_fate(Fate.RESCUED, path[:-1], column)
    if texts.options.selection is not None and texts.options.selection.is_split(path):
        column = _rescue_parts(texts, column, path, findings)
    there = column.kind > NULL
    if not there.any():
        return
    label = ".".join(path)
    if findings.unknown_fields == "rescue":
        texts.unknown_fields.append((label, column))
    else:
        findings.refusals.add(label)
        texts.refuse(column, there.astype(np.uint8), label, _UNKNOWN_FIELD)


def _rescue_parts(texts: Texts, column: Slices, path: tuple[str, ...], findings: Findings) -> Slices:
    """Rescues the selected parts of objects and lists; returns the values that are neither."""
    assert texts.options.selection is not None
    objects, lists = column.only(OBJECT), column.only(ARRAY)
    error = np.zeros(len(objects), np.uint8)
    read_members(texts, objects, (), findings, path, error)
    refuse_objects(texts, objects, error, path)
    if (lists.kind == ARRAY).any():
        _, elements = elements_of(texts, lists)
        _put_aside(texts, elements, (*path, "element"), findings)
    is_part = texts.options.selection.takes(path) == "part"
    return column.only() if is_part else column.only(*_SCALARS)


def _refuse_missing(
    texts: Texts, slices: Slices, column: Slices, array: pa.Array, path: tuple[str, ...], error: U8
) -> None:
    missing = (slices.kind == OBJECT) & (error == OK) & np.asarray(array.is_null())
    if not texts.options.is_rescuing:  # A rescued value is null in its column.
        missing &= column.kind <= NULL
    if missing.any():
        texts.refuse(column, missing.astype(np.uint8) * values.MISSING, ".".join(path), FAULTS)


def _read_struct(
    texts: Texts, slices: Slices, kind: IcebergType, findings: Findings, path: tuple[str, ...]
) -> pa.Array:
    assert isinstance(kind, StructType)
    validity, nulls, other = presence(slices, OBJECT)
    refuse_values(texts, slices, other, kind, path)
    error = np.zeros(len(slices), np.uint8)
    arrays = read_members(texts, slices, kind.fields, findings, path, error)
    refuse_objects(texts, slices, error, path)
    if error.any():
        validity, nulls, _ = presence(_without(slices, error), OBJECT)
    return struct_array(len(slices), [member.name for member in kind.fields], arrays, validity, nulls)


def _read_list(texts: Texts, slices: Slices, kind: IcebergType, findings: Findings, path: tuple[str, ...]) -> pa.Array:
    assert isinstance(kind, ListType)
    validity, nulls, other = presence(slices, ARRAY)
    refuse_values(texts, slices, other, kind, path)
    offsets, elements = elements_of(texts, slices)
    if texts.options.is_connect and _is_entry(kind.element_type) and (elements.kind == ARRAY).any():
        array, bad = read_entries(
            texts, slices, kind.element_type, path, lambda some, of, place: read_value(texts, some, of, findings, place)
        )
        refuse_values(texts, slices, bad * np.uint8(values.WRONG_KIND), kind, path)
        return array
    items = read_value(texts, elements, kind.element_type, findings, (*path, "element"))
    if kind.element_required:
        _refuse_null(texts, elements, (*path, "element"))
    return list_array(offsets, items, validity, nulls)


def _is_entry(kind: IcebergType) -> TypeGuard[StructType]:
    """Whether a type is that of the entries of a map whose keys are not primitive."""
    return isinstance(kind, StructType) and [member.name for member in kind.fields] == ["key", "value"]


def _read_map(texts: Texts, slices: Slices, kind: IcebergType, findings: Findings, path: tuple[str, ...]) -> pa.Array:
    assert isinstance(kind, MapType)
    if not isinstance(kind.key_type, StringType):
        return _read_pairs(texts, slices, kind, findings, path)
    offsets, key_slices, value_slices = entries_of(texts, slices)
    keys = text_column(texts, key_slices, numbers=False)
    faults = _faulty_maps(texts, offsets, keys.array, keys.bad)
    if faults.any():
        refuse_values(texts, slices, faults, kind, path)
        return _read_map(texts, _without(slices, faults), kind, findings, path)
    validity, nulls, other = presence(slices, OBJECT)
    refuse_values(texts, slices, other, kind, path)
    refuse_values(texts, key_slices, keys.bad, StringType(), (*path, "key"))
    _refuse_twice(texts, slices, offsets, keys.array, path)
    items = read_value(texts, value_slices, kind.value_type, findings, (*path, "value"))
    if kind.value_required:
        _refuse_null(texts, value_slices, (*path, "value"))
    return map_array(offsets, keys.array.fill_null(""), items, validity, nulls)  # Arrow aborts over a null key.


def _read_pairs(texts: Texts, slices: Slices, kind: MapType, findings: Findings, path: tuple[str, ...]) -> pa.Array:
    """Returns maps whose keys are no texts, from arrays of pairs."""

    def read(some: Slices, of: IcebergType, place: tuple[str, ...]) -> pa.Array:
        return read_value(texts, some, of, findings, place)

    faults = _faulty_pairs(texts, slices, kind, path)
    if faults.any():
        refuse_values(texts, slices, faults, kind, path)
        slices = _without(slices, faults)
    array, pairs, keys, bad = read_pairs(texts, slices, kind, path, read)
    refuse_values(texts, slices, bad * np.uint8(values.WRONG_KIND), kind, path)
    _refuse_twice(texts, slices, pairs.offsets, keys, path)
    if kind.value_required:
        _refuse_null(texts, pairs.values, (*path, "value"))
    return array


def _faulty_maps(texts: Texts, offsets: I32, keys: pa.Array, bad: U8) -> U8:
    """Returns the fault of each map with a bad key or one key twice, where such maps are rescued as a whole. bad: the code
    of each key's fault.
    """
    if not texts.options.is_rescuing:
        return np.zeros(offsets.size - 1, np.uint8)
    faults = repeats_keys(offsets, keys) * np.uint8(values.TWICE)
    faults[np.repeat(np.arange(faults.size), np.diff(offsets))[bad != 0]] = bad[bad != 0]
    return faults


def _faulty_pairs(texts: Texts, slices: Slices, kind: MapType, path: tuple[str, ...]) -> U8:
    """Returns the same of maps that are arrays of pairs, and 0 for other values."""
    if not texts.options.is_rescuing:
        return np.zeros(len(slices), np.uint8)
    pairs, _ = find_pairs(texts, slices)
    keys = replace(pairs.keys, owner=np.arange(len(pairs.keys), dtype=np.int32))
    alone = replace(
        texts, refused=np.zeros(len(keys), np.bool_), options=replace(texts.options, is_rescuing=False), mismatches=[]
    )
    array = read_value(alone, keys, kind.key_type, Findings("drop"), (*path, "key"))
    return _faulty_maps(texts, pairs.offsets, array, alone.refused * np.uint8(values.UNREADABLE))


def _without(slices: Slices, faults: U8) -> Slices:
    """Returns the values, those with a fault as absent ones."""
    kind = np.where(faults != 0, ABSENT, slices.kind).astype(np.uint8)
    return replace(slices, sweep=None, kind=kind)


def _refuse_null(texts: Texts, slices: Slices, path: tuple[str, ...]) -> None:
    missing = (slices.kind <= NULL).astype(np.uint8) * np.uint8(values.MISSING)
    if missing.any():
        texts.refuse(slices, missing, ".".join(path), FAULTS)


def _refuse_twice(texts: Texts, slices: Slices, offsets: I32, keys: pa.Array, path: tuple[str, ...]) -> None:
    """Refuses maps with one key twice."""
    bad = repeats_keys(offsets, keys)
    if bad.any():
        texts.refuse(slices, bad * np.uint8(values.TWICE), ".".join(path), FAULTS)


_Reader = Callable[[Texts, Slices, IcebergType, Findings, tuple[str, ...]], pa.Array]
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
        left = replace(slices, sweep=None, kind=np.where(bad != 0, ABSENT, slices.kind).astype(np.uint8))
        return find_pairs(texts, left)[0], bad
    return Pairs(offsets, _at(members, first), _at(members, first + 1)), bad


def _at(slices: Slices, places: NDArray[Any]) -> Slices:
    return Slices(slices.start[places], slices.end[places], slices.kind[places], slices.owner[places])


def map_of(slices: Slices, bad: U8, pairs: Pairs, keys: pa.Array, items: pa.Array) -> pa.Array:
    """Returns the maps of these entries; null where there is no array of pairs. keys: none of them null."""
    there = (slices.kind == ARRAY) & (bad == 0)
    nulls = int(there.size - np.count_nonzero(there))
    return map_array(pairs.offsets, keys, items, bitmap(there) if nulls else None, nulls)


ReadValue = Callable[[Slices, IcebergType, Path], pa.Array]


def read_pairs(
    texts: Texts, slices: Slices, kind: MapType, path: Path, read: ReadValue
) -> tuple[pa.Array, Pairs, pa.Array, U8]:
    """Returns the maps, their entries and these entries' keys, and which values are no array of pairs. read: makes a
    column.
    """
    pairs, bad = find_pairs(texts, slices)
    keys = read(pairs.keys, kind.key_type, (*path, "key"))
    items = read(pairs.values, kind.value_type, (*path, "value"))
    return map_of(slices, bad, pairs, filled(keys), items), pairs, keys, bad


def read_entries(texts: Texts, slices: Slices, kind: StructType, path: Path, read: ReadValue) -> tuple[pa.Array, U8]:
    """Returns lists of structs with the key and the value of each pair, and which values are no array of pairs. kind: of
    the structs.
    """
    pairs, bad = find_pairs(texts, slices)
    names = [member.name for member in kind.fields]
    members = [
        read(some, member.field_type, (*path, "element", member.name))
        for some, member in zip((pairs.keys, pairs.values), kind.fields, strict=True)
    ]
    there = (slices.kind == ARRAY) & (bad == 0)
    nulls = int(there.size - np.count_nonzero(there))
    entries = struct_array(len(pairs.keys), names, members, None, 0)
    return list_array(pairs.offsets, entries, bitmap(there) if nulls else None, nulls), bad
