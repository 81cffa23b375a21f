"""The Iceberg type of JSON values nobody declared, from every value of the batch, not from a sample."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from frazil.ingest.decode.columns import Fault
from frazil.ingest.decode.json import values
from frazil.ingest.decode.json.extended import ENDLESS, MOMENT, as_new
from frazil.ingest.decode.json.grammar import ABSENT, ARRAY, DOUBLE, ESCAPED, FALSE, INT, NULL, OBJECT, STRING, TRUE
from frazil.ingest.decode.json.scan import DUPLICATE_KEY, HALF_KEY, SLOW_KEY, TOO_MANY_KEYS
from frazil.ingest.decode.json.slices import MAX_NAMES, Slices, Texts, elements_of, take_all, take_apart
from frazil.ingest.decode.limits import long_name_fault
from frazil.ingest.decode.memory import U8
from frazil.ingest.selection import EVERY_MEMBER
from frazil.name_length import is_long, shorten

MAX_INFERRED_DEPTH = 60

_FAMILIES = {
    TRUE: "boolean", FALSE: "boolean", INT: "number", DOUBLE: "number",
    STRING: "string", ESCAPED: "string", OBJECT: "object", ARRAY: "array",
    MOMENT: "moment", ENDLESS: "number",
}  # fmt: skip
_TYPES: dict[str, IcebergType] = {"boolean": BooleanType(), "string": StringType(), "moment": TimestamptzType()}
_MIXED, _TOO_BIG, _TOO_DEEP = range(1, 4)
_FAULTS = {
    _MIXED: Fault("does_not_fit", "{value} meets values of another kind under the same name; declare the column"),
    _TOO_BIG: Fault(
        "out_of_range",
        "{value} is beyond 64 bits; declare the column as decimal, as double, or as text with `coerce: true`",
    ),
    _TOO_DEEP: Fault(
        "too_deep", f"{{value}} is nested more than {MAX_INFERRED_DEPTH} levels deep, too deep for a column"
    ),
}
_OBJECT_FAULTS = {
    DUPLICATE_KEY: Fault("duplicate_key", "the object has the same key twice"),
    HALF_KEY: Fault("bad_text", "a key has half of a surrogate pair, which is no text"),
    TOO_MANY_KEYS: Fault(
        "too_many_fields",
        f"the object has one of more than {MAX_NAMES} names; declare the column as map<string, …>",
    ),
}


def infer_type(texts: Texts, slices: Slices, path: tuple[str, ...]) -> IcebergType | None:
    """The type that holds every value of `slices`, or None when there is none yet (only null, [] or {}).

    What no type holds is refused as a misfit: integers beyond 64 bits, and of values of two kinds those that are not of
    the kind that came first. Field ids are placeholders.
    """
    slices = texts.selected(slices, path)
    if texts.is_extended:
        slices = as_new(texts, slices)
    kinds = {int(kind) for kind in np.unique(slices.kind)} - {ABSENT, NULL}
    families = {_FAMILIES[kind] for kind in kinds}
    if not families:
        return None
    if len(families) > 1:
        first = min(kinds, key=lambda kind: int(np.argmax(slices.kind == kind)))
        family = [kind for kind, name in _FAMILIES.items() if name == _FAMILIES[first]]
        is_other = ~np.isin(slices.kind, [*family, ABSENT, NULL])
        _refuse(texts, slices, is_other, _MIXED, path)
        # The others get their column all the same: a record that is refused takes nothing from its neighbours.
        return infer_type(texts, replace(slices, kind=np.where(is_other, np.uint8(ABSENT), slices.kind)), path)
    family_name = families.pop()
    if family_name in _TYPES:
        return _TYPES[family_name]
    if family_name == "number":
        return _number_type(texts, slices, kinds, path)
    if len(path) > MAX_INFERRED_DEPTH:
        _refuse(texts, slices, slices.kind > NULL, _TOO_DEEP, path)
        return None
    if family_name == "array":
        _, elements = elements_of(texts, slices)
        element = infer_type(texts, elements, (*path, "element"))
        return element and ListType(element_id=0, element=element, element_required=False)
    return infer_struct(texts, slices, path)


def infer_struct(texts: Texts, slices: Slices, path: tuple[str, ...]) -> StructType | None:
    """The struct of all objects among `slices`, fields in order of first sight; None while no field has a type."""
    error = np.zeros(len(slices), np.uint8)
    members = selected_members(texts, slices, path, error)
    refuse_objects(texts, slices, error, path)
    fields = []
    for name, column in members:
        if is_long(name):
            there = (texts.selected(column, (*path, name)).kind > NULL).astype(np.uint8)
            texts.refuse(column, there, ".".join((*path, shorten(name))), {1: long_name_fault(name)})
            continue
        inferred = infer_type(texts, column, (*path, name))
        if inferred is not None:
            fields.append(NestedField(field_id=0, name=name, field_type=inferred, required=False))
    return StructType(*fields) if fields else None


def selected_members(texts: Texts, slices: Slices, path: tuple[str, ...], error: U8) -> list[tuple[str, Slices]]:
    """Every member of the objects among `slices` that counts, with its values."""
    level = EVERY_MEMBER if texts.selection is None else texts.selection.level(path)
    if level.only is not None:
        names = sorted(level.only)
        return list(zip(names, take_apart(texts, slices, (), names, error).columns, strict=True))
    names, members = take_all(texts, slices, sorted(level.without), error)
    return list(zip(names, members.columns, strict=True))[len(level.without) :]


def refuse_objects(texts: Texts, slices: Slices, error: U8, path: tuple[str, ...]) -> None:
    """Faults of nested objects, which are JSON already; notes whether keys must be spelt out first."""
    slow = error == SLOW_KEY
    texts.has_slow_keys |= bool(slow.any())
    if error.any():
        texts.refuse(slices, np.where(slow, np.uint8(0), error), ".".join(path), _OBJECT_FAULTS)


def _number_type(texts: Texts, slices: Slices, kinds: set[int], path: tuple[str, ...]) -> IcebergType:
    if DOUBLE in kinds or ENDLESS in kinds:
        return DoubleType()
    valid, bad = np.zeros(len(slices), np.uint8), np.zeros(len(slices), np.uint8)
    out = np.zeros(len(slices), np.int64)
    slow = np.empty(0, np.int32)  # Only integers are here.
    values.parse_integers(texts.base, slices.start, slices.end, slices.kind, -(2**63), 2**63 - 1, out, valid, bad, slow)
    _refuse(texts, slices, bad != 0, _TOO_BIG, path)
    return LongType()


def _refuse(texts: Texts, slices: Slices, where: NDArray[Any], code: int, path: tuple[str, ...]) -> None:
    if where.any():
        texts.refuse(slices, where.astype(np.uint8) * np.uint8(code), ".".join(path), _FAULTS)
