"""Names of columns at every depth: which of them mean one column, and which are too long.

Names that differ only in case mean one column, and new columns have names of one case. Every metadata file of a table
contains every name, for good.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType


@lru_cache(maxsize=65_536)
def fold_case(name: str) -> str:
    """Returns the name without case, as Java's `equalsIgnoreCase` compares names."""
    if name.isascii():
        return name.lower()
    return "".join(
        _single_character(
            _single_character(character, character.upper()), _single_character(character, character.upper()).lower()
        )
        for character in name
    )


@lru_cache(maxsize=65_536)
def fold_accents(name: str) -> str:
    """Returns the name without case and accents, as catalogs compare names whose database ignores both, which is MySQL's
    default. Names that differ in how one character is composed become one too.
    """
    parts = unicodedata.normalize("NFKD", fold_case(name).casefold())
    return "".join(character for character in parts if not unicodedata.combining(character))


def fold_path(path: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the path without case."""
    return tuple(map(fold_case, path))


def _single_character(character: str, changed: str) -> str:
    """Returns the changed character, unless it became several."""
    return changed if len(changed) == 1 else character


def change_case(name: str, case: str) -> str:
    """Returns a field's name in another case; leading underscores are kept."""
    if case == "keep":
        return name
    if case == "lower":
        return name.lower()
    bare = name.lstrip("_")
    words = [word.lower() for word in _words(bare)]
    if not words:
        return name
    start = name[: len(name) - len(bare)]
    if case == "snake":
        return start + "_".join(words)
    return start + words[0] + "".join(word[:1].upper() + word[1:] for word in words[1:])


def _words(name: str) -> list[str]:
    """Returns the words of a name: split at `_`, `-`, blanks and dots, before a capital after a lower-case letter or a
    digit, and before the last of several capitals that a lower-case letter follows.
    """
    words, start = [], 0
    for n in range(1, len(name)):
        before, here, after = name[n - 1], name[n], name[n + 1 : n + 2]
        if here.isupper() and (before.islower() or before.isdigit() or (before.isupper() and after.islower())):
            words.append(name[start:n])
            start = n
    return [part for word in [*words, name[start:]] for part in re.split(r"[_\-.\s]+", word) if part]


class Spellings:
    """The names of one struct, found exactly or, where only one name differs in case alone, without regard to case."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[str, None] = {}
        self._folded: dict[str, list[str]] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Adds a name."""
        if name not in self._names:
            self._names[name] = None
            self._folded.setdefault(fold_case(name), []).append(name)

    def others(self, name: str) -> list[str]:
        """Returns the names that differ from `name` in case alone."""
        return [other for other in self._folded.get(fold_case(name), ()) if other != name]

    def find(self, name: str) -> str | None:
        """Returns the name that matches `name`; None where there is none, or where several differ in case alone."""
        if name in self._names:
            return name
        others = self._folded.get(fold_case(name), ())
        return others[0] if len(others) == 1 else None


MAX_NAME_BYTES = 255
"""The longest name of a column, in bytes of UTF-8. Many readers of tables accept no longer ones."""

_SHOWN = 40


def is_long(name: str) -> bool:
    """Whether the name is too long for a column."""
    return 4 * len(name) > MAX_NAME_BYTES and _size(name) > MAX_NAME_BYTES


def long_name_in(kind: IcebergType) -> str | None:
    """Returns a name inside the type that is too long for a column; None without one."""
    if isinstance(kind, StructType):
        for member in kind.fields:
            long_name = member.name if is_long(member.name) else long_name_in(member.field_type)
            if long_name is not None:
                return long_name
    if isinstance(kind, ListType):
        return long_name_in(kind.element_type)
    return long_name_in(kind.value_type) if isinstance(kind, MapType) else None


def drop_long_names(struct: StructType) -> StructType:
    """Returns the struct without the fields that no table can have because of a name that is too long."""
    left = (member for member in struct.fields if not is_long(member.name))
    return StructType(*(_pruned(member) for member in left if not _is_all_long(member.field_type)))


def long_name_reason(name: str) -> str:
    """Returns the reason why the name is too long."""
    return f"the name {shorten(name)} has {_size(name):,} bytes, and a column's name has {MAX_NAME_BYTES} at most"


def explain_long_name(name: str) -> str:
    """Returns the reason why a field with this name has no column, and the remedy."""
    return f"{long_name_reason(name)}: give the field a shorter one, or leave it out with `exclude`"


def shorten(name: str) -> str:
    """Returns the name as messages show it."""
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"


def _size(name: str) -> int:
    return len(name.encode("utf-8", "surrogatepass"))


def _pruned(member: NestedField) -> NestedField:
    if isinstance(member.field_type, StructType) and long_name_in(member.field_type) is not None:
        return member.model_copy(update={"field_type": drop_long_names(member.field_type)})
    return member


def _is_all_long(kind: IcebergType) -> bool:
    """Whether nothing of the type is left without its long names; lists and maps are kept or dropped entirely."""
    if isinstance(kind, StructType):
        return bool(kind.fields) and not drop_long_names(kind).fields
    return long_name_in(kind) is not None
