"""Whether a column has the value that it must have."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from frazil_verify.model.types import ListOf, MapOf, Plain, StructOf, Type


def has_struct(kind: Type) -> bool:
    """Whether records may add members to a type."""
    match kind:
        case StructOf():
            return True
        case ListOf(element):
            return has_struct(element)
        case MapOf(_, value):
            return has_struct(value)
    return False


def same(expected: Any, actual: Any, kind: Type, *, is_strict: bool) -> bool:
    """Whether two values are equal, with the sign of zeros. Unless strict, a list or an object without contents may be
    null: it gives a column no type, and the column may be younger than the row.
    """
    if actual is None:
        return expected is None or (not is_strict and is_hollow(expected))
    if expected is None:
        return False
    match kind:
        case StructOf(members):
            return all(
                same(expected.get(name), actual.get(name), member, is_strict=is_strict) for name, member in members
            )
        case ListOf(element):
            return len(expected) == len(actual) and all(
                same(item, other, element, is_strict=is_strict) for item, other in zip(expected, actual, strict=True)
            )
        case MapOf(key, value):
            return len(expected) == len(actual) and all(
                same(item[0], other[0], key, is_strict=True) and same(item[1], other[1], value, is_strict=is_strict)
                for item, other in zip(_by_key(expected), _by_key(actual), strict=True)
            )
    return _same_plain(expected, actual, kind)


def _by_key(entries: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """A map has no order."""
    return sorted(entries, key=lambda item: repr(item[0]))


def _same_plain(expected: Any, actual: Any, kind: Plain) -> bool:
    if kind.name == "uuid" and not isinstance(actual, bytes):
        actual = actual.bytes
    if isinstance(expected, float) and isinstance(actual, float):
        if math.isnan(expected) or math.isnan(actual):
            return math.isnan(expected) and math.isnan(actual)
        return expected == actual and math.copysign(1, expected) == math.copysign(1, actual)
    if isinstance(actual, datetime) and isinstance(expected, datetime):
        return (actual.tzinfo is None) == (expected.tzinfo is None) and actual == expected
    return type(expected) is type(actual) and bool(expected == actual)


def is_hollow(value: Any) -> bool:
    """Whether a value has no contents."""
    if isinstance(value, dict):
        return all(map(is_hollow, value.values()))
    if isinstance(value, list):
        return all(is_hollow(item[1] if isinstance(item, tuple) else item) for item in value)
    return value is None
