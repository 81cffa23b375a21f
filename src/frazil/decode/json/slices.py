"""Slices: the positions of one column's values in the texts, and the faults of some of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray
from pyiceberg.types import NestedField

from frazil.decode.columns import Fault, bitmap, offsets_from
from frazil.decode.conversion import Conversion
from frazil.decode.json.grammar import ABSENT, ARRAY, NULL, OBJECT, new_stack
from frazil.decode.json.keys import SEED, Sweep, new_sweep, tree_of
from frazil.decode.json.scan import (
    MAX_UNKNOWN,
    OK,
    count_members,
    scan_members,
)
from frazil.decode.json.tree import CHILD, DOUBLES, FIRST, INTEGERS, LISTS, READ_AS, SLOT, SUBTREE_LAST, scan_tree
from frazil.decode.json.values import copy_texts
from frazil.decode.settings import Reading
from frazil.raw_memory import COMPILED, I32, U8, load8, load64
from frazil.schema.parts import Path
from frazil.schema.selection import EVERY_MEMBER, Level

MAX_MISMATCHES = 20
_EXCERPT_BYTES = 60
_KIND_WORDS = ("nothing", "", "", "", "integer", "number", "string", "string", "object", "array", "moment", "number")


@dataclass(frozen=True)
class Slices:
    """The values of one column."""

    #: The first byte of each value, relative to the buffer.
    start: I32
    #: The byte after each value.
    end: I32
    #: The kind of each value (see `grammar`).
    kind: U8
    #: The record that each value belongs to.
    owner: I32
    #: The pass that found the values; None without one.
    sweep: Sweep | None = None
    #: The field of that pass.
    field: int = 0

    def __len__(self) -> int:
        return int(self.start.size)

    @property
    def node(self) -> int | None:
        """The node of the sweep whose objects these are, if it has their members."""
        node = -1 if self.sweep is None else self.sweep.tree.fields[self.field][CHILD]
        return None if node < 0 else node

    def integers(self) -> NDArray[np.int64] | None:
        """Returns the values where the kind is INT, if the pass has read them all."""
        slot = self._slot(INTEGERS)
        return None if self.sweep is None or slot is None else self.sweep.integers[slot]

    def doubles(self) -> NDArray[np.float64] | None:
        """Returns the values where the kind is INT or DOUBLE, if the pass has read them all."""
        slot = self._slot(DOUBLES)
        return None if self.sweep is None or slot is None else self.sweep.doubles[slot]

    def counts(self) -> I32 | None:
        """Returns the number of elements of each array, if the pass has found them all, and all are of valid arrays."""
        slot = self._slot(LISTS)
        if self.sweep is None or slot is None:
            return None
        counts: I32 = np.where(self.kind == ARRAY, self.sweep.counts[slot], 0).astype(np.int32)
        return counts if int(counts.sum(dtype=np.int64)) == self.sweep.emitted[slot] else None

    def _slot(self, wanted: int) -> int | None:
        if self.sweep is None or self.sweep.needs_pass[self.field]:
            return None
        traits = self.sweep.tree.fields[self.field]
        return traits[SLOT] if traits[READ_AS] == wanted else None

    def only(self, *kinds: int) -> Slices:
        """Returns the values of these kinds; the others are absent."""
        kind = np.where(np.isin(self.kind, kinds), self.kind, ABSENT).astype(np.uint8)
        return Slices(self.start, self.end, kind, self.owner)

    def masked(self, mask: NDArray[np.bool_]) -> Slices:
        """Returns the values, as absent where `mask` is false."""
        return replace(self, kind=np.where(mask, self.kind, ABSENT).astype(np.uint8))

    def take(self, rows: NDArray[Any]) -> Slices:
        """Returns the values with these numbers, or that a mask marks."""
        return Slices(self.start[rows], self.end[rows], self.kind[rows], self.owner[rows])

    def replaced(self, mask: NDArray[np.bool_], other: Slices) -> Slices:
        """Returns the values, with those of `other` where `mask` is true."""
        return self.with_others(mask, other.start, other.end, other.kind)

    def with_others(self, taken: NDArray[np.bool_], start: I32, end: I32, kind: NDArray[Any]) -> Slices:
        """Returns the values, with others in place of those in `taken`."""
        return Slices(
            np.where(taken, start, self.start),
            np.where(taken, end, self.end),
            np.where(taken, kind, self.kind).astype(np.uint8),
            self.owner,
        )


@dataclass
class Texts:
    """The texts being decoded."""

    #: The bytes that the slices point into, kept alive as long as `base` is used.
    buffer: NDArray[np.uint8]
    #: The settings, and the results so far.
    conversion: Conversion
    #: Whether escapes in keys are canonical.
    has_canonical_keys: bool = False
    #: The texts before escaped keys were replaced, where some column is coerced.
    sent: pa.BinaryArray | None = None
    #: The beginning of each text after that, where some column is coerced.
    starts: I32 | None = None
    #: Whether values are as Kafka Connect's converter writes them: the texts NaN, Infinity and -Infinity are floats and
    #: doubles, and a map whose keys are structs is an array of pairs.
    is_connect: bool = False
    #: The scales of Kafka Connect's decimals, by path: bytes, or numbers (`decimal.format=NUMERIC`).
    scales: Mapping[Path, int] = field(default_factory=dict)
    #: Functions called with the known members of an object before they are read, by path of the object; they may remove
    #: some.
    watched: Mapping[Path, Callable[[list[str], list[Slices]], None]] = field(default_factory=dict)
    #: Records whose values are of another kind than that of an earlier record, with that record, or -1 for a hint.
    contradictions: list[tuple[int, I32]] = field(default_factory=list)
    #: Paths of fields without a column that have no value with a type: only null, [] or {}.
    untyped: set[Path] = field(default_factory=set)
    #: Whether escaped keys must be replaced first.
    has_escaped_keys: bool = False
    #: Memory for `grammar.skip_container`.
    stack: U8 = field(default_factory=new_stack)
    #: The fields without a column counted so far (`decode.limits`).
    new_fields: int = 0

    @property
    def base(self) -> int:
        """The address of the first byte."""
        return int(self.buffer.ctypes.data)

    @property
    def reading(self) -> Reading:
        """How the texts are read."""
        return self.conversion.reading

    def level(self, path: Path) -> Level:
        """Returns the members to take of the objects at `path`."""
        return EVERY_MEMBER if self.reading.selection is None else self.reading.selection.level(path)

    def selected(self, slices: Slices, path: Path) -> Slices:
        """Returns the values of the field at `path` that are selected, or have selected parts."""
        taken = "all" if self.reading.selection is None else self.reading.selection.takes(path)
        if taken == "all":
            return slices
        return slices.only(OBJECT, ARRAY) if taken == "part" else slices.only()

    def text(self, slices: Slices, n: int) -> str:
        """Returns the n-th value as it is written."""
        return self.buffer[slices.start[n] : slices.end[n]].tobytes().decode()

    def raw_texts(self, slices: Slices, rows: I32, quotes: int = 0) -> pa.StringArray:
        """Returns the values of some rows as they are written, without `quotes` bytes at either end."""
        start, end = slices.start + quotes, slices.end - quotes
        out = np.empty(int((end[rows] - start[rows]).sum()) + 1, np.uint8)
        offsets = np.zeros(rows.size + 1, np.int32)
        copy_texts(self.base, start, end, rows, offsets, out.ctypes.data)
        return pa.Array.from_buffers(pa.string(), rows.size, [None, pa.py_buffer(offsets), pa.py_buffer(out)])

    def refuse(self, slices: Slices, bad: U8, path: str, faults: Mapping[int, Fault]) -> None:
        """Refuses values; see Conversion."""
        self.conversion.refuse_values(TextValues(self, slices), bad, path, faults)


@dataclass(frozen=True)
class TextValues:
    """The values of a field in texts (see FieldValues)."""

    source: Texts
    slices: Slices

    @property
    def owner(self) -> I32:
        """The record that each value belongs to."""
        return self.slices.owner

    @property
    def there(self) -> NDArray[np.bool_]:
        """Which of them are values of the field, and not null."""
        return self.slices.kind > NULL

    def text(self, n: int) -> str:
        """Returns the n-th value as it is written."""
        return self.source.text(self.slices, n)

    def excerpt(self, n: int) -> str:
        """Returns the kind of the n-th value and its beginning: `string "x"`; only the kind for true and false."""
        start, end = int(self.slices.start[n]), int(self.slices.end[n])
        raw = self.source.buffer[start : min(end, start + _EXCERPT_BYTES)].tobytes().decode("utf-8", "replace")
        more = "…" if end - start > _EXCERPT_BYTES else ""
        return f"{_KIND_WORDS[self.slices.kind[n]]} {raw}{more}".removeprefix(" ")

    def texts(self) -> pa.StringArray:
        """Returns the values of the field as they are written."""
        return self.source.raw_texts(self.slices, np.flatnonzero(self.there).astype(np.int32))


@dataclass(frozen=True)
class Members:
    """The members of objects: one Slices per known key."""

    #: The slices of each known key.
    columns: list[Slices]
    #: The unknown keys, MAX_UNKNOWN at most.
    unknown: list[str]
    #: The kinds of all values of the pass, inside these objects too.
    under: U8
    #: The number of members other than null of each object that this pass has read.
    value_counts: I32

    def clear(self, error: U8) -> None:
        """Removes the members of faulty objects, and everything inside them."""
        faulty = error != OK
        if faulty.any():
            self.under[:, faulty] = ABSENT


def find_members(
    texts: Texts, slices: Slices, fields: Sequence[NestedField], others: Sequence[str], error: U8
) -> Members:
    """Returns the members of all objects among `slices`: one column for each of `fields`, then for each of the keys
    `others`. Rows with an `error` are skipped, and new errors are set there.
    """
    sweep, root = slices.sweep, slices.node
    if sweep is None or root is None:
        tree = tree_of(fields, others, texts.reading.selection is None)
        texts.conversion.spend(len(tree.fields) * len(slices))
        root, sweep = 0, new_sweep(tree, len(slices), texts.buffer.size)
    tree = sweep.tree
    unknown, value_counts = np.empty((MAX_UNKNOWN, 4), np.int32), np.zeros(len(slices), np.int32)
    unknown_count = scan_tree(
        texts.base, slices.start, slices.end, slices.kind, root, tree.keys.ctypes.data, tree.field_table,
        tree.node_table, tree.index, SEED, texts.has_canonical_keys, sweep.start, sweep.end, sweep.kind, sweep.done,
        sweep.integers, sweep.doubles, sweep.elements, sweep.element_kind, sweep.counts, sweep.emitted,
        sweep.needs_pass, value_counts, error, unknown, texts.stack,
    )  # fmt: skip
    names = [unspell(texts.buffer[at : at + length].tobytes()) for _, at, length, _ in unknown[:unknown_count].tolist()]
    first, under_last = tree.nodes[root][FIRST], tree.nodes[root][SUBTREE_LAST]
    columns = [
        Slices(sweep.start[f], sweep.end[f], sweep.kind[f], slices.owner, sweep, f)
        for f in range(first, first + len(fields) + len(others))
    ]
    return Members(columns, names, sweep.kind[first:under_last], value_counts)


def members_under(texts: Texts, slices: Slices, keys: Sequence[str], error: U8) -> list[Slices]:
    """Returns the members under these keys, of all objects among `slices`; those of faulty objects are absent."""
    members = find_members(texts, replace(slices, sweep=None), (), keys, error)
    members.clear(error)
    return members.columns


def elements_of(texts: Texts, slices: Slices) -> tuple[NDArray[np.int32], Slices]:
    """Returns list offsets, int32 of shape (n_lists + 1,), and the elements of all arrays one after another."""
    counts = slices.counts()
    if counts is not None and slices.sweep is not None:
        total, place = int(counts.sum()), slices.sweep.tree.fields[slices.field][SLOT]
        start, end = slices.sweep.elements[place, :, :total]
        texts.conversion.spend(total)
        owner = np.repeat(slices.owner, counts)
        return offsets_from(counts), Slices(start, end, slices.sweep.element_kind[place, :total], owner)
    offsets, (elements,) = _members_of(texts, slices, ARRAY)
    return offsets, elements


def entries_of(texts: Texts, slices: Slices) -> tuple[NDArray[np.int32], Slices, Slices]:
    """Returns map offsets, int32 of shape (n_maps + 1,), and the keys and the values of all objects one after another."""
    offsets, (keys, values) = _members_of(texts, slices, OBJECT)
    return offsets, keys, values


def presence(slices: Slices, kind: int) -> tuple[pa.Buffer | None, int, U8]:
    """Returns for structs, lists and maps the validity bitmap, the number of nulls, and which values are of another
    kind.
    """
    is_kind = slices.kind == kind
    other = (~is_kind & (slices.kind != ABSENT) & (slices.kind != NULL)).astype(np.uint8)
    nulls = int(is_kind.size - np.count_nonzero(is_kind))
    return bitmap(is_kind) if nulls else None, nulls, other


def _members_of(texts: Texts, slices: Slices, kind: int) -> tuple[NDArray[np.int32], list[Slices]]:
    """Returns offsets, and the values of all arrays (`kind` ARRAY) or of all objects (OBJECT), whose keys come first."""
    counts = np.zeros(len(slices), np.int32)
    count_members(texts.base, slices.start, slices.end, slices.kind, kind, counts, texts.stack)
    texts.conversion.spend(int(counts.sum(dtype=np.int64)) * (1 if kind == ARRAY else 2))
    owner = np.repeat(slices.owner, counts)
    shape = (1 if kind == ARRAY else 2, owner.size)
    start, end, kinds = np.empty(shape, np.int32), np.empty(shape, np.int32), np.empty(shape, np.uint8)
    scan_members(texts.base, slices.start, slices.end, slices.kind, kind, start, end, kinds, texts.stack)
    return offsets_from(counts), [Slices(*parts, owner) for parts in zip(start, end, kinds, strict=True)]


def unspell(raw: bytes) -> str:
    """Returns the text between the quotes of a string, of whose escapes none is left."""
    return str(json.loads(b'"' + raw + b'"'))


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def mark_equal(
    base: int, start: NDArray[np.int32], end: NDArray[np.int32], like: int, code: int, codes: NDArray[np.int32]
) -> None:
    """Sets `code` for the texts without one (-1) that equal the one numbered `like`."""
    length = end[like] - start[like]
    first = base + start[like]
    for n in range(codes.size):
        if codes[n] != -1 or end[n] - start[n] != length:
            continue
        at, i = base + start[n], 0
        while i + 8 <= length and load64(at + i) == load64(first + i):
            i += 8
        if i + 8 > length:
            while i < length and load8(at + i) == load8(first + i):
                i += 1
        if i == length:
            codes[n] = code


def group_equal(base: int, texts: Slices) -> tuple[NDArray[np.int32], list[int]]:
    """Returns the number of the distinct text that each text is, int32 of shape (n_texts,), and the first occurrence of
    each distinct text.
    """
    codes = np.full(len(texts), -1, np.int32)
    firsts: list[int] = []
    place = 0
    while place < len(texts):
        mark_equal(base, texts.start, texts.end, place, len(firsts), codes)
        firsts.append(place)
        left = np.flatnonzero(codes[place:] == -1)
        place = place + int(left[0]) if left.size else len(texts)
    return codes, firsts
