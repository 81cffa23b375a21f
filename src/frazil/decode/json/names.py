"""The names of members that no column has: all names of the objects of a chunk, found in one pass however many there are.

Each record is judged alone: where the records of a chunk have too many names together, the chunk is read in halves
(`decode.limits`), and the fields that a record has do not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numba import njit
from numpy.typing import NDArray

from frazil.column_names import fold_case
from frazil.decode.json.grammar import ABSENT, ESCAPED, NULL, OBJECT, scan_string, scan_value, skip_space
from frazil.decode.json.keys import SEED
from frazil.decode.json.scan import HALF_KEY, MAX_UNKNOWN, OK
from frazil.decode.json.slices import Members, Slices, Texts, find_members, unspell
from frazil.decode.json.tree import hash_key, same_bytes
from frazil.decode.limits import check_new_fields
from frazil.raw_memory import COMPILED, I32, U8, load8
from frazil.schema.selection import EVERY_MEMBER, Level

_FIRST_PLACES = 1024
_FNV_START, _FNV_PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def fold_hash(i: int, length: int) -> int:
    """Returns a hash of `length` bytes, in which A to Z count as a to z; -1 where a byte is not ASCII."""
    mixed = _FNV_START
    for n in range(length):
        c = load8(i + n)
        if c >= 0x80:
            return -1
        if 0x41 <= c <= 0x5A:
            c += 0x20
        mixed = (mixed ^ np.uint64(c)) * _FNV_PRIME
    return int(mixed >> np.uint64(1))


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def list_keys(
    base: int,
    starts: I32,
    ends: I32,
    kinds: U8,
    error: U8,
    has_canonical_keys: bool,
    alike: NDArray[np.int64],
    seed: int,
    index: I32,
    first_keys: I32,
    stack: U8,
) -> int:
    """Writes the first byte and the length of each key's first occurrence to `first_keys`, int32 of shape (n, 2). Returns
    the number of keys; -1 where `first_keys` has too few places.

    Rows whose kind is not OBJECT or with an `error` are skipped; a malformed object ends at its fault. alike: the sorted
    `fold_hash`es of the wanted keys, to which keys that are not ASCII are added; empty for every key. index: a power of
    two of places, more than `first_keys` has, each -1.
    """
    count = 0
    mask = index.size - 1
    for row in range(starts.size):
        if kinds[row] != OBJECT or error[row] != OK:
            continue
        end = base + ends[row]
        i = skip_space(base + starts[row] + 1, end)
        while i < end and load8(i) == 0x22:
            i += 1
            j, kind = scan_string(i, end)
            if j < 0 or (kind == ESCAPED and not has_canonical_keys):
                break
            length = j - i
            is_wanted = True
            if alike.size and kind != ESCAPED:
                hashed = fold_hash(i, length)
                place = np.searchsorted(alike, hashed)
                is_wanted = hashed < 0 or (place < alike.size and alike[place] == hashed)
            if is_wanted:
                k = hash_key(i, length, seed) & mask
                while index[k] >= 0:
                    key_at = index[k]
                    if first_keys[key_at, 1] == length and same_bytes(i, base + first_keys[key_at, 0], length, end):
                        break
                    k = (k + 1) & mask
                if index[k] < 0:
                    if count == first_keys.shape[0]:
                        return -1
                    index[k] = count
                    first_keys[count, 0] = i - base
                    first_keys[count, 1] = length
                    count += 1
            i = skip_space(j + 1, end)
            if i >= end or load8(i) != 0x3A:
                break
            i, _ = scan_value(skip_space(i + 1, end), end, stack.ctypes.data, 0)
            if i < 0:
                break
            i = skip_space(i, end)
            if i >= end or load8(i) != 0x2C:
                break
            i = skip_space(i + 1, end)
    return count


def names_of(texts: Texts, slices: Slices, error: U8, like: Iterable[str] = ()) -> list[str]:
    """Returns every key of the objects among `slices` without an `error`, each once, in the order of their first
    occurrence. like: names, to return only the keys that may differ from one of them in case alone; none for every key.
    """
    alike = np.unique(np.array([_fold_hash(fold_case(name)) for name in like], np.int64))
    return _texts_of(texts, _find_keys(texts, slices, error, alike))


def _find_keys(texts: Texts, slices: Slices, error: U8, alike: NDArray[np.int64]) -> I32:
    """Returns the first byte and the length of each key (see `list_keys`), int32 of shape (n_keys, 2)."""
    places = _FIRST_PLACES
    while True:
        index, spans = np.full(2 * places, -1, np.int32), np.empty((places, 2), np.int32)
        count = list_keys(
            texts.base, slices.start, slices.end, slices.kind, error, texts.has_canonical_keys, alike, SEED, index,
            spans, texts.stack,
        )  # fmt: skip
        if count >= 0:
            return spans[:count]
        places *= 8


def _texts_of(texts: Texts, keys: I32) -> list[str]:
    return [unspell(texts.buffer[at : at + length].tobytes()) for at, length in keys.tolist()]


def _fold_hash(name: str) -> int:
    raw = np.frombuffer(name.encode("utf-8", "surrogatepass") + b"\0", np.uint8)
    return int(fold_hash(int(raw.ctypes.data), raw.size - 1))


def all_members(
    texts: Texts, slices: Slices, known: list[str], error: U8, level: Level = EVERY_MEMBER
) -> tuple[list[str], Members]:
    """Returns the keys that the level takes of the objects among `slices`, after the `known` ones, and the members under
    each. Keys that are not text are faults.

    Raises: TooMuch where these are too many fields without a column.
    """
    keys, seen = _find_keys(texts, slices, error, np.zeros(0, np.int64)), set(known)
    if level is EVERY_MEMBER:  # Before a million names take memory.
        check_new_fields(texts.new_fields + len(keys) - len(known))
    names = [*known, *(name for name in _texts_of(texts, keys) if name not in seen and level.takes(name))]
    texts.new_fields += len(names) - len(known)
    check_new_fields(texts.new_fields)
    members = find_members(texts, replace(slices, sweep=None), (), names, error)
    for name, column in zip(names, members.columns, strict=True):
        if not is_text(name):
            error[column.kind != ABSENT] = HALF_KEY
    members.clear(error)
    return names, members


def respelt_members(
    texts: Texts, slices: Slices, names: list[str], members: Members, level: Level, error: U8
) -> tuple[list[str], list[Slices]]:
    """Returns the keys that were looked up, with those that the level takes although their case differs, and the members
    under each. level: with the names that it takes. members: found for `names`.
    """
    if len(members.unknown) < MAX_UNKNOWN and not any(map(level.takes, members.unknown)):
        return names, members.columns
    seen = set(names)
    others = names_of(texts, slices, error, level.only or ())
    names = [*names, *(name for name in others if name not in seen and level.takes(name))]
    every = find_members(texts, replace(slices, sweep=None), (), names, error)
    every.clear(error)
    return names, every.columns


def prefer_exact(level: Level, members: Iterable[tuple[str, Slices]]) -> list[tuple[str, Slices]]:
    """Returns the members, without the values of those that the level takes although their case differs, where the object
    has the name exactly.
    """
    columns = list(members)
    exact = {fold_case(name): column for name, column in columns if level.is_exact(name)}
    left = []
    for name, column in columns:
        first = None if level.is_exact(name) else exact.get(fold_case(name))
        if first is not None:
            column = column.masked(first.kind <= NULL)  # noqa: PLW2901
        left.append((name, column))
    return left


def is_text(name: str) -> bool:
    """Whether a key is text, without a single surrogate."""
    return not any("\ud800" <= c <= "\udfff" for c in name)
