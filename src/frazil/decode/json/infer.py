"""Inference of the Iceberg type of JSON values without a column, from every value of the batch, not from a sample."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg import types as t

from frazil.column_names import fold_case
from frazil.decode.columns import Fault
from frazil.decode.epochs import have_zones
from frazil.decode.json import values
from frazil.decode.json.extended import MOMENT, NON_FINITE, unwrap_new_scalars
from frazil.decode.json.grammar import ABSENT, ARRAY, DOUBLE, ESCAPED, FALSE, INT, NULL, OBJECT, STRING, TRUE
from frazil.decode.json.names import all_members, prefer_exact, respelt_members
from frazil.decode.json.scalars import read_scalar
from frazil.decode.json.scan import DUPLICATE_KEY, ESCAPED_KEY, HALF_KEY
from frazil.decode.json.slices import Slices, Texts, TextValues, elements_of, find_members
from frazil.decode.json.text import TEXT_READERS, TextColumn
from frazil.error_classes import ErrorClass
from frazil.raw_memory import U8
from frazil.schema.parts import Path

_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_OFFSET = r"[+-][0-9]{2}(:?[0-9]{2}(:?[0-9]{2})?)?"
_TIME = rf"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[Tt ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.,][0-9]+)?)?(Z|z|{_OFFSET})?$"


def type_of_texts(texts: Texts, slices: Slices) -> t.IcebergType:
    """Returns the time type that every text among the slices has; string without one. slices: with at least one text."""
    if (slices.kind == ESCAPED).any():  # No time needs an escape.
        return t.StringType()
    rows = np.flatnonzero(slices.kind == STRING).astype(np.int32)
    if not _spells(texts.raw_texts(slices, rows[:1], quotes=1), f"{_DAY}|{_TIME}"):
        return t.StringType()
    column = texts.raw_texts(slices, rows, quotes=1)
    if _spells(column, _DAY):
        return _if_read(column, t.DateType())
    if not _spells(column, _TIME):
        return t.StringType()
    zoned = have_zones(column)
    if zoned.all():
        return _if_read(column, t.TimestamptzType())
    return t.StringType() if zoned.any() else _if_read(column, t.TimestampType())


def _spells(column: pa.StringArray, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(column, pattern)).as_py())


def _if_read(column: pa.StringArray, kind: t.IcebergType) -> t.IcebergType:
    valid, bad = np.ones(len(column), np.uint8), np.zeros(len(column), np.uint8)
    TEXT_READERS[type(kind)].read(TextColumn(column, valid, bad), kind, np.full(len(column), STRING, np.uint8))
    return t.StringType() if bad.any() else kind


MAX_INFERRED_DEPTH = 60

_FAMILIES = {
    TRUE: "boolean", FALSE: "boolean", INT: "number", DOUBLE: "number",
    STRING: "string", ESCAPED: "string", OBJECT: "object", ARRAY: "array",
    MOMENT: "moment", NON_FINITE: "number",
}  # fmt: skip
_TYPES: dict[str, t.IcebergType] = {"boolean": t.BooleanType(), "moment": t.TimestamptzType()}
_MIXED, _TOO_BIG, _TOO_DEEP = range(1, 4)
_FAULTS = {
    _MIXED: Fault(
        ErrorClass.TYPE_MISMATCH, "{value} meets values of another kind under the same name; declare the column"
    ),
    _TOO_BIG: Fault(
        ErrorClass.OUT_OF_RANGE,
        "{value} is beyond 64 bits; declare the column as decimal, as double, or as text with `coerce: true`",
    ),
    _TOO_DEEP: Fault(
        ErrorClass.TOO_DEEP, f"{{value}} is nested more than {MAX_INFERRED_DEPTH} levels deep, too deep for a column"
    ),
}
_OBJECT_FAULTS = {
    DUPLICATE_KEY: Fault(ErrorClass.DUPLICATE_KEY, "the object has the same key twice"),
    HALF_KEY: Fault(ErrorClass.INVALID_TEXT, "a key has half of a surrogate pair, which is not text"),
}


@dataclass(frozen=True)
class Inferred:
    """The inferred type of a field."""

    type: t.IcebergType
    #: The first byte of the first value that has a type (no null, and no list or object without contents): fields get
    #: their columns in this order, wherever batches end.
    at: int


def infer_type(texts: Texts, slices: Slices, path: Path) -> t.IcebergType | None:
    """Returns the type that holds every value of `slices`, or None while there is none (only null, [] or {}).

    A value that the type does not hold is a type mismatch: integers beyond 64 bits, and values of another kind than the
    first one. Field ids are placeholders.
    """
    inferred = infer_field(texts, slices, path)
    return None if inferred is None else inferred.type


def infer_field(texts: Texts, slices: Slices, path: Path) -> Inferred | None:
    """Returns the type and the first value's position; see `infer_type`."""
    slices = texts.selected(slices, path)
    if texts.reading.json.is_extended:
        slices = unwrap_new_scalars(texts, slices)
    if texts.reading.is_text(path):
        return _as_text(texts, slices, path)
    slices = _without_lists(texts, slices, path)
    slices = _without_kind(texts, slices, path) if texts.reading.refused_kind_at else slices
    kinds = {int(kind) for kind in np.unique(slices.kind)} - {ABSENT, NULL}
    families = {_FAMILIES[kind] for kind in kinds}
    if not families:
        return None
    hint = texts.reading.hint_at.get(_folded(path))
    if hint == "moment" and not texts.reading.json.is_extended:
        hint = "string"
    if len(families) == 1 and (hint is None or hint in families):
        return _of_family(texts, slices, families.pop(), kinds, path)
    first, first_record = (hint, -1) if hint is not None else _first_family(texts, slices, families, path)
    if first is None:
        for family_name in families:  # Their faults are all that they bring.
            infer_field(texts, slices.only(*_kinds_of(family_name)), path)
        return None
    is_other = ~np.isin(slices.kind, [*_kinds_of(first), ABSENT, NULL])
    _refuse(texts, slices, is_other, _MIXED, path)
    texts.contradictions.append((first_record, slices.owner[is_other]))
    # The others get their column all the same: a refused record does not affect its neighbours.
    return infer_field(texts, slices.masked(~is_other), path)


def _without_lists(texts: Texts, slices: Slices, path: Path) -> Slices:
    """Returns the values without the lists that are refused at the path. Lists without contents have no type, and stay."""
    refused = texts.reading.refused_list_at
    reason = refused.get(_folded(path)) if refused else None
    if reason is None or not (slices.kind == ARRAY).any():
        return slices
    is_list = np.diff(elements_of(texts, slices)[0]) > 0
    texts.refuse(slices, is_list.astype(np.uint8), ".".join(path), {1: Fault(ErrorClass.TYPE_MISMATCH, reason)})
    return slices.masked(~is_list)


def _without_kind(texts: Texts, slices: Slices, path: Path) -> Slices:
    """Returns the values without those of the kind that is refused at the path."""
    refused = texts.reading.refused_kind_at
    kind, reason = refused.get(_folded(path), ("", ""))
    is_refused = np.isin(slices.kind, _kinds_of(kind))
    if not is_refused.any():
        return slices
    faults = {1: Fault(ErrorClass.TYPE_MISMATCH, reason)}
    texts.refuse(slices, is_refused.astype(np.uint8), ".".join(path), faults)
    return slices.masked(~is_refused)


def _as_text(texts: Texts, slices: Slices, path: Path) -> Inferred | None:
    """Returns the type of a field that is text whatever its values are."""
    is_there = slices.kind > NULL
    if not is_there.any():
        return None
    read_scalar(texts, slices, t.StringType(), path)  # A record with text that is none brings no column.
    return Inferred(t.StringType(), int(slices.start[int(np.argmax(is_there))]))


def _folded(path: Path) -> Path:
    return tuple(map(fold_case, path))


def _kinds_of(family_name: str) -> list[int]:
    return [kind for kind, name in _FAMILIES.items() if name == family_name]


def _first_family(texts: Texts, slices: Slices, families: Iterable[str], path: Path) -> tuple[str | None, int]:
    """Returns the family of the first value that has a type, and its record. Lists and objects without contents have no
    type.
    """
    first: tuple[str | None, int] = (None, -1)
    first_at = -1
    for family_name in families:
        # What it finds besides is found again once the family is known.
        alone = replace(texts, conversion=texts.conversion.apart(), contradictions=[])
        inferred = infer_field(alone, slices.only(*_kinds_of(family_name)), path)
        if inferred is not None and (first[0] is None or inferred.at < first_at):
            is_there = (slices.kind > NULL) & (slices.start <= inferred.at) & (inferred.at < slices.end)
            first, first_at = (family_name, int(slices.owner[int(np.argmax(is_there))])), inferred.at
    return first


def _of_family(texts: Texts, slices: Slices, family_name: str, kinds: set[int], path: Path) -> Inferred | None:
    """Returns the type of values that are all of one family."""
    first_at = int(slices.start[int(np.argmax(slices.kind > NULL))])
    if family_name == "string":
        return Inferred(_text_type(texts, slices, path), first_at)
    if family_name in _TYPES:
        return Inferred(_TYPES[family_name], first_at)
    if family_name == "number":
        return Inferred(_number_type(texts, slices, kinds, path), first_at)
    if len(path) > MAX_INFERRED_DEPTH:
        _refuse(texts, slices, slices.kind > NULL, _TOO_DEEP, path)
        return None
    if family_name == "array":
        _, elements = elements_of(texts, slices)
        element = infer_field(texts, elements, (*path, "element"))
        if element is None:
            return None
        return Inferred(t.ListType(element_id=0, element=element.type, element_required=False), element.at)
    error = np.zeros(len(slices), np.uint8)
    members = selected_members(texts, slices, path, error)
    refuse_objects(texts, slices, error, path)
    fields = infer_members(texts, members, path)
    if not fields:
        return None
    struct = (t.NestedField(0, name, inferred.type, required=False) for name, inferred in fields.items())
    return Inferred(t.StructType(*struct), min(inferred.at for inferred in fields.values()))


def infer_members(texts: Texts, members: Iterable[tuple[str, Slices]], path: Path) -> dict[str, Inferred]:
    """Returns the members of a struct that have a type, in the order of the first value that has one. Those whose names
    differ in case alone are one, under the name of this value.
    """
    groups: dict[str, list[tuple[str, Slices]]] = {}
    for name, column in members:
        fault = texts.conversion.column_fault((*path, name))
        if fault is not None:
            selected = texts.selected(column, (*path, name))
            texts.conversion.refuse_field(TextValues(texts, selected), (*path, name), fault)
            continue
        groups.setdefault(fold_case(name), []).append((name, column))
    inferred_members = []
    for group in groups.values():
        name, column = group[0]
        for other, more in group[1:]:
            column, second = merge_spelling_variants(column, texts.selected(more, (*path, other)))
            if (second.kind > NULL).any():
                texts.conversion.refuse_second(TextValues(texts, second), (*path, other), name)
            if not texts.reading.is_rescuing:  # A record that stays must have its first value's column.
                column = column.masked(second.kind <= NULL)
        inferred = infer_field(texts, column, (*path, name))
        if inferred is not None:
            inferred_members.append((_name_at(group, inferred.at), inferred))
        elif (column.kind != ABSENT).any():
            texts.untyped.add((*path, name))
    return dict(sorted(inferred_members, key=lambda member: member[1].at))


def _name_at(group: Sequence[tuple[str, Slices]], at: int) -> str:
    """Returns the name of the member whose value contains a byte."""
    for name, column in group if len(group) > 1 else ():
        if ((column.kind > NULL) & (column.start <= at) & (at < column.end)).any():
            return name
    return group[0][0]


def merge_spelling_variants(first: Slices, other: Slices) -> tuple[Slices, Slices]:
    """Returns the values of two members that share a column: those of `first`, and of `other` where that has none; and
    the remaining values of `other`.
    """
    is_second, is_there = first.kind > NULL, other.kind > NULL
    return first.replaced(is_there & ~is_second, other), replace(other.masked(is_there & is_second), sweep=None)


def selected_members(texts: Texts, slices: Slices, path: Path, error: U8) -> list[tuple[str, Slices]]:
    """Returns every selected member of the objects among `slices`, with its values."""
    level = texts.level(path)
    if level.only is not None:
        wanted = sorted(level.only)
        columns = respelt_members(texts, slices, wanted, find_members(texts, slices, (), wanted, error), level, error)
        return prefer_exact(level, zip(*columns, strict=True))
    names, members = all_members(texts, slices, sorted(level.without), error, level)
    return list(zip(names, members.columns, strict=True))[len(level.without) :]


def refuse_objects(texts: Texts, slices: Slices, error: U8, path: Path) -> None:
    """Refuses nested objects with faults, which are valid JSON; records whether escaped keys must be replaced first."""
    slow = error == ESCAPED_KEY
    texts.has_escaped_keys |= bool(slow.any())
    if error.any():
        texts.refuse(slices, np.where(slow, np.uint8(0), error), ".".join(path), _OBJECT_FAULTS)


def _text_type(texts: Texts, slices: Slices, path: Path) -> t.IcebergType:
    if (slices.kind == ESCAPED).any():  # A record with half of a surrogate pair brings no column.
        read_scalar(texts, slices.only(ESCAPED), t.StringType(), path)
    return type_of_texts(texts, slices) if texts.reading.json.infers_times else t.StringType()


def _number_type(texts: Texts, slices: Slices, kinds: set[int], path: Path) -> t.IcebergType:
    kind = texts.reading.json.numbers
    if kind is None and (DOUBLE in kinds or NON_FINITE in kinds):
        kind = t.DoubleType()
    if kind is not None:
        read_scalar(texts, slices, kind, path)  # A record with a number that it cannot hold brings no column.
        return kind
    valid, bad = np.zeros(len(slices), np.uint8), np.zeros(len(slices), np.uint8)
    out = np.zeros(len(slices), np.int64)
    slow = np.empty(0, np.int32)  # Only integers are here.
    values.parse_integers(texts.base, slices.start, slices.end, slices.kind, -(2**63), 2**63 - 1, out, valid, bad, slow)
    _refuse(texts, slices, bad != 0, _TOO_BIG, path)
    return t.LongType()


def _refuse(texts: Texts, slices: Slices, where: NDArray[Any], code: int, path: Path) -> None:
    if where.any():
        texts.refuse(slices, where.astype(np.uint8) * np.uint8(code), ".".join(path), _FAULTS)
