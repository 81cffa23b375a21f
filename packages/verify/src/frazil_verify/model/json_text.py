"""JSON texts (RFC 8259) to trees that keep every value as it was sent."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from frazil_verify.model.faults import Unreadable

MOST_LEVELS = 512
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"')
_HALVES = re.compile("[\ud800-\udfff]")
_WORDS = (("null", None), ("true", True), ("false", False))


@dataclass(frozen=True, slots=True)
class Json:
    """A value. kind: null, boolean, number, string, array or object. sent: its text. value: a list of values, a list of
    keys with values, a decoded text; of a number its text.
    """

    kind: str
    sent: str
    value: Any = None

    @property
    def keys(self) -> list[str]:
        """The keys of an object."""
        return [key for key, _ in self.value]


def has_half(text: str) -> bool:
    """Whether a text has half of a surrogate pair."""
    return _HALVES.search(text) is not None


def read_object(raw: bytes | None) -> Json:
    """Returns a record's object.

    Raises: Unreadable where there is none.
    """
    if raw is None:
        raise Unreadable("tombstone")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        # What is no text may be no object or no JSON besides.
        raise Unreadable("invalid_text", "malformed", "not_an_object") from None
    text = text.removeprefix("\ufeff")
    at = _after_space(text, 0)
    if text[at : at + 1] != "{":
        raise (
            Unreadable("not_an_object")
            if _is_json(text) or not text.strip()
            else Unreadable("not_an_object", "malformed")
        )
    if _levels(text) > MOST_LEVELS:
        raise Unreadable("too_deep", "malformed")
    result, end = _value(text, at)
    if _after_space(text, end) != len(text):
        raise Unreadable("malformed")
    return result


def read_text(text: str) -> Json:
    """Returns any JSON value.

    Raises: Unreadable where it is none.
    """
    result, end = _value(text, _after_space(text, 0))
    if _after_space(text, end) != len(text):
        raise Unreadable("malformed")
    return result


def plain(node: Json) -> Any:
    """Returns the value for a comparison: numbers as they were sent, objects as pairs in their order."""
    if node.kind == "array":
        return [plain(element) for element in node.value]
    if node.kind == "object":
        return [(key, plain(member)) for key, member in node.value]
    return (node.kind, node.value)


def _is_json(text: str) -> bool:
    try:
        read_text(text)
    except Unreadable:
        return False
    return True


def _levels(text: str) -> int:
    """Returns how many lists and objects are in each other; 0 where there are few."""
    if text.count("{") + text.count("[") <= MOST_LEVELS // 2:
        return 0
    level = most = 0
    for sign in _STRING.sub("", text):
        level += (sign in "{[") - (sign in "}]")
        most = max(most, level)
    return most


def _after_space(text: str, at: int) -> int:
    result = _SPACE.match(text, at)
    assert result is not None
    return result.end()


def _value(text: str, at: int) -> tuple[Json, int]:
    """Returns the value that begins at a place, and the place after it."""
    sign = text[at : at + 1]
    if sign == '"':
        return _string(text, at)
    if sign == "{" or sign == "[":
        return _container(text, at)
    for word, value in _WORDS:
        if text.startswith(word, at):
            return Json("null" if value is None else "boolean", word, value), at + len(word)
    result = _NUMBER.match(text, at)
    if result is None:
        raise Unreadable("malformed")
    return Json("number", result[0], result[0]), result.end()


def _container(text: str, at: int) -> tuple[Json, int]:
    items = list[Any]()
    try:
        return _items(text, at, items)
    except Unreadable as fault:
        if text[at] == "{" and len({key for key, _ in items}) < len(items):  # It may end behind the second one.
            raise Unreadable(*fault.kinds, "duplicate_key") from None
        raise


def _items(text: str, at: int, items: list[Any]) -> tuple[Json, int]:
    is_object, begin = text[at] == "{", at
    kind, last = ("object", "}") if is_object else ("array", "]")
    at = _after_space(text, at + 1)
    if text[at : at + 1] == last:
        return Json(kind, text[begin : at + 1], items), at + 1
    while True:
        if is_object:
            key, at = _string(text, at)
            at = _after_space(text, at)
            if text[at : at + 1] != ":":
                raise Unreadable("malformed")
            item, at = _value(text, _after_space(text, at + 1))
            items.append((key.value, item))
        else:
            item, at = _value(text, at)
            items.append(item)
        at = _after_space(text, at)
        sign = text[at : at + 1]
        if sign == last:
            return Json(kind, text[begin : at + 1], items), at + 1
        if sign != ",":
            raise Unreadable("malformed")
        at = _after_space(text, at + 1)


def _string(text: str, at: int) -> tuple[Json, int]:
    result = _STRING.match(text, at)
    if result is None:
        raise Unreadable("malformed")
    sent = result[0]
    return Json("string", sent, json.loads(sent) if "\\" in sent else sent[1:-1]), result.end()
