"""Slices: where the values of one column lie in the texts they came in, and what was wrong with some of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, NestedField

from frazil.decode.columns import Fault, Mismatch, bitmap
from frazil.decode.json.grammar import ABSENT, ARRAY, NULL, OBJECT, new_stack
from frazil.decode.json.keys import SEED, Sweep, new_sweep, tree_of
from frazil.decode.json.scan import (
    HALF_KEY,
    MAX_UNKNOWN,
    OK,
    TOO_MANY_KEYS,
    count_members,
    scan_members,
)
from frazil.decode.json.tree import CHILD, DOUBLES, FIRST, INTEGERS, LISTS, SLOT, SUBTREE_LAST, WANTED, scan_tree
from frazil.decode.limits import check_cells, check_new_fields
from frazil.decode.memory import I32, U8
from frazil.schema.selection import Selection

MAX_MISMATCHES = 20
MAX_NAMES = 2000
_EXCERPT_BYTES = 60
_LOST = ("missing_value",)  # What is not there cannot be rescued.
_KIND_WORDS = ("nothing", "", "", "", "integer", "number", "string", "string", "object", "array", "moment", "number")


@dataclass(frozen=True)
class Slices:
    """The values of one column: first byte, byte after the last, kind; `owner` is the record each belongs to.

    sweep, field: the pass that found them, and which of its fields they are.
    """

    start: I32
    end: I32
    kind: U8
    owner: I32
    sweep: Sweep | None = None
    field: int = 0

    def __len__(self) -> int:
        return int(self.start.size)

    @property
    def node(self) -> int | None:
        """The node of the sweep that these are objects of, if it takes them apart."""
        node = -1 if self.sweep is None else self.sweep.tree.fields[self.field][CHILD]
        return None if node < 0 else node

    def integers(self) -> NDArray[np.int64] | None:
        """The values where the kind is INT, if the pass has told them all."""
        slot = self._slot(INTEGERS)
        return None if self.sweep is None or slot is None else self.sweep.integers[slot]

    def doubles(self) -> NDArray[np.float64] | None:
        """The values where the kind is INT or DOUBLE, if the pass has told them all."""
        slot = self._slot(DOUBLES)
        return None if self.sweep is None or slot is None else self.sweep.doubles[slot]

    def counts(self) -> I32 | None:
        """How many elements each array has, if the pass has found them all, and they are all of arrays that count."""
        slot = self._slot(LISTS)
        if self.sweep is None or slot is None:
            return None
        counts: I32 = np.where(self.kind == ARRAY, self.sweep.counts[slot], 0).astype(np.int32)
        return counts if int(counts.sum(dtype=np.int64)) == self.sweep.emitted[slot] else None

    def _slot(self, wanted: int) -> int | None:
        if self.sweep is None or self.sweep.odd[self.field]:
            return None
        traits = self.sweep.tree.fields[self.field]
        return traits[SLOT] if traits[WANTED] == wanted else None

    def only(self, *kinds: int) -> Slices:
        """Those of these kinds; the others are absent."""
        return Slices(
            self.start, self.end, np.where(np.isin(self.kind, kinds), self.kind, ABSENT).astype(np.uint8), self.owner
        )


@dataclass
class Texts:
    """The texts being decoded, and what has been found out about them so far.

    buffer: the bytes the slices point into, kept alive as long as `base` is used. refused: per record, whether
    something in it does not fit. spelt_out: escapes in keys are canonical. limit: how many misfits of one column are
    noted. is_rescuing: a value that does not fit is noted with its text in `rescued`, and does not count against its
    record. selection: the fields that count; None: all. units: of numbers in fields of time, by path. unknown_fields: fields
    that no column has, by path, where they are to be rescued. watched: by path of an object what is to be done with its
    known members before they are read; it may take some of them away. takes_endless: whether the texts NaN, Infinity and
    -Infinity are floats and doubles, as Kafka Connect's converter writes them. is_extended: whether they are MongoDB's
    extended JSON. coerced: paths of columns whose text takes values of other types as they are written. sent: the texts
    before their keys were spelt anew, starts: where each begins since, both where some column is coerced. cells,
    new_fields: how much of what `limits` bounds they have become. numbers: what numbers become that no column is for; None:
    what their values need. rejected: why some fields cannot be added, by path. hints: kinds of fields that earlier records
    have told, by path in small letters. contradictions: records whose values are of another kind than that of a record
    before them, with that one, or -1 for a hint. zones: of local times, by path. infers_times: as in JsonOptions.
    row_depth: how many names of a path lead to the row.
    """

    buffer: NDArray[np.uint8]
    refused: NDArray[np.bool_]
    spelt_out: bool = False
    limit: int = MAX_MISMATCHES
    is_rescuing: bool = False
    selection: Selection | None = None
    units: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    mismatches: list[Mismatch] = field(default_factory=list)
    rescued: list[Mismatch] = field(default_factory=list)
    unknown_fields: list[tuple[str, Slices]] = field(default_factory=list)
    watched: Mapping[tuple[str, ...], Callable[[list[str], list[Slices]], None]] = field(default_factory=dict)
    takes_endless: bool = False
    is_extended: bool = False
    coerced: tuple[tuple[str, ...], ...] = ()
    sent: pa.BinaryArray | None = None
    starts: I32 | None = None
    numbers: IcebergType | None = None
    rejected: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    hints: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    zones: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    infers_times: bool = False
    row_depth: int = 0
    contradictions: list[tuple[int, I32]] = field(default_factory=list)
    has_slow_keys: bool = False
    stack: U8 = field(default_factory=new_stack)
    cells: int = 0
    new_fields: int = 0

    @property
    def base(self) -> int:
        """Address of the first byte."""
        return int(self.buffer.ctypes.data)

    def spend(self, cells: int) -> None:
        """Counts cells before there is memory for them. Raises TooMuch."""
        self.cells += cells
        check_cells(self.cells)

    def in_row(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """A path as a pipeline file writes it: from the row's top."""
        return path[self.row_depth :]

    def selected(self, slices: Slices, path: tuple[str, ...]) -> Slices:
        """Those values of the field at `path` that count, or that hold some that do."""
        taken = "all" if self.selection is None else self.selection.takes(path)
        if taken == "all":
            return slices
        return slices.only(OBJECT, ARRAY) if taken == "part" else slices.only()

    def coerces(self, path: tuple[str, ...]) -> bool:
        """Whether text at a path takes values of other types."""
        return any(path[: len(one)] == one for one in self.coerced)

    def excerpt(self, slices: Slices, n: int) -> str:
        """The n-th value as it is written, cut to a readable length."""
        start, end = int(slices.start[n]), int(slices.end[n])
        raw = self.buffer[start : min(end, start + _EXCERPT_BYTES)].tobytes().decode("utf-8", "replace")
        return raw + ("…" if end - start > _EXCERPT_BYTES else "")

    def text(self, slices: Slices, n: int) -> str:
        """The n-th value as it is written."""
        return self.buffer[slices.start[n] : slices.end[n]].tobytes().decode()

    def describe(self, slices: Slices, n: int) -> str:
        """What the n-th value is and how it begins: `string "x"`; for true and false that says it all."""
        return f"{_KIND_WORDS[slices.kind[n]]} {self.excerpt(slices, n)}".removeprefix(" ")

    def refuse(self, slices: Slices, bad: U8, path: str, faults: Mapping[int, Fault]) -> None:
        """Notes the values that `bad` marks: of all the records, of the first few what is wrong."""
        rows = np.flatnonzero(bad)
        if self.is_rescuing and path:
            saved = np.array([faults[int(bad[n])].kind not in _LOST for n in rows], np.bool_)
            self.rescued += [self._mismatch(slices, n, path, faults[int(bad[n])], True) for n in rows[saved].tolist()]
            rows = rows[~saved]
        self.refused[slices.owner[rows]] = True
        self.mismatches += [self._mismatch(slices, n, path, faults[int(bad[n])]) for n in rows[: self.limit].tolist()]

    def _mismatch(self, slices: Slices, n: int, path: str, fault: Fault, is_rescued: bool = False) -> Mismatch:
        reason = fault.message
        if "{value}" in reason:  # What is missing has no place to quote.
            reason = reason.replace("{value}", self.describe(slices, n))
        text = self.text(slices, n) if is_rescued else ""
        return Mismatch(int(slices.owner[n]), path, fault.kind, reason, text)


@dataclass(frozen=True)
class Members:
    """Objects taken apart: one Slices per known key, and keys nobody knows with the row where each was first seen."""

    columns: list[Slices]
    unknown: list[str]
    unknown_rows: list[int]
    under: U8

    def clear(self, error: U8) -> None:
        """Takes the members of faulty objects away, and what is in them: nothing of them counts."""
        faulty = error != OK
        if faulty.any():
            self.under[:, faulty] = ABSENT


def take_apart(
    texts: Texts, slices: Slices, fields: Sequence[NestedField], others: Sequence[str], error: U8
) -> Members:
    """The members of all objects among `slices`; rows with an `error` are passed over and new errors are set there.

    One column for each of `fields`, then for each of the keys `others`.
    """
    sweep, root = slices.sweep, slices.node
    if sweep is None or root is None:
        tree = tree_of(fields, others, texts.selection is None)
        texts.spend(len(tree.fields) * len(slices))
        root, sweep = 0, new_sweep(tree, len(slices), texts.buffer.size)
    tree = sweep.tree
    unknown = np.empty((MAX_UNKNOWN, 4), np.int32)
    found = scan_tree(
        texts.base, slices.start, slices.end, slices.kind, root, tree.keys.ctypes.data, tree.field_table,
        tree.node_table, tree.index, SEED, texts.spelt_out, sweep.start, sweep.end, sweep.kind, sweep.done, sweep.integers,
        sweep.doubles, sweep.elements, sweep.element_kind, sweep.counts, sweep.emitted,
        sweep.odd, error, unknown, texts.stack,
    )  # fmt: skip
    names = [_unspell(texts.buffer[at : at + length].tobytes()) for _, at, length, _ in unknown[:found].tolist()]
    first, under_last = tree.nodes[root][FIRST], tree.nodes[root][SUBTREE_LAST]
    columns = [
        Slices(sweep.start[f], sweep.end[f], sweep.kind[f], slices.owner, sweep, f)
        for f in range(first, first + len(fields) + len(others))
    ]
    return Members(columns, names, unknown[:found, 0].tolist(), sweep.kind[first:under_last])


def take_keys(texts: Texts, slices: Slices, keys: Sequence[str], error: U8) -> list[Slices]:
    """The members under these keys, of all objects among `slices`; those of faulty objects are absent."""
    members = take_apart(texts, replace(slices, sweep=None), (), keys, error)
    members.clear(error)
    return members.columns


def take_all(texts: Texts, slices: Slices, known: list[str], error: U8) -> tuple[list[str], Members]:
    """Every key of the objects among `slices`, the `known` ones first, and the members under each.

    Keys that are no text, and objects with names beyond MAX_NAMES (those that are met first), are faults.
    """
    names = list(known)
    slices = replace(slices, sweep=None)  # A pass that looks for other keys.
    while True:
        members = take_apart(texts, slices, (), names, error)
        if not members.unknown:
            break
        if len(names) + len(members.unknown) > max(MAX_NAMES, len(known)):
            error[members.unknown_rows] = TOO_MANY_KEYS
            break
        names += members.unknown
    texts.new_fields += len(names) - len(known)
    check_new_fields(texts.new_fields)
    for name, column in zip(names, members.columns, strict=True):
        if not is_text(name):
            error[column.kind != ABSENT] = HALF_KEY
    members.clear(error)
    return names, members


def is_text(name: str) -> bool:
    """False for a key with half of a surrogate pair in it."""
    return not any("\ud800" <= c <= "\udfff" for c in name)


def elements_of(texts: Texts, slices: Slices) -> tuple[NDArray[np.int32], Slices]:
    """List offsets, and the elements of all arrays one after another."""
    counts = slices.counts()
    if counts is not None and slices.sweep is not None:
        total, place = int(counts.sum()), slices.sweep.tree.fields[slices.field][SLOT]
        start, end = slices.sweep.elements[place, :, :total]
        texts.spend(total)
        owner, offsets = _owned(slices, counts)
        return offsets, Slices(start, end, slices.sweep.element_kind[place, :total], owner)
    offsets, (elements,) = _members_of(texts, slices, ARRAY)
    return offsets, elements


def entries_of(texts: Texts, slices: Slices) -> tuple[NDArray[np.int32], Slices, Slices]:
    """Map offsets, and the keys and the values of all objects one after another."""
    offsets, (keys, values) = _members_of(texts, slices, OBJECT)
    return offsets, keys, values


def presence(slices: Slices, kind: int) -> tuple[pa.Buffer | None, int, U8]:
    """For structs, lists and maps: the validity bitmap, the number of nulls, and where a value of another kind is."""
    there = slices.kind == kind
    other = (~there & (slices.kind != ABSENT) & (slices.kind != NULL)).astype(np.uint8)
    nulls = int(there.size - np.count_nonzero(there))
    return bitmap(there) if nulls else None, nulls, other


def _members_of(texts: Texts, slices: Slices, kind: int) -> tuple[NDArray[np.int32], list[Slices]]:
    """Offsets, and the values of all arrays (`kind` ARRAY) or of all objects (OBJECT), whose keys are before them."""
    counts = np.zeros(len(slices), np.int32)
    count_members(texts.base, slices.start, slices.end, slices.kind, kind, counts, texts.stack)
    texts.spend(int(counts.sum(dtype=np.int64)) * (1 if kind == ARRAY else 2))
    owner, offsets = _owned(slices, counts)
    shape = (1 if kind == ARRAY else 2, owner.size)
    start, end, kinds = np.empty(shape, np.int32), np.empty(shape, np.int32), np.empty(shape, np.uint8)
    scan_members(texts.base, slices.start, slices.end, slices.kind, kind, start, end, kinds, texts.stack)
    return offsets, [Slices(*found, owner) for found in zip(start, end, kinds, strict=True)]


def _owned(slices: Slices, counts: I32) -> tuple[I32, NDArray[np.int32]]:
    """The record of each of so many values, and where those of each slice begin."""
    offsets = np.zeros(counts.size + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return np.repeat(slices.owner, counts), offsets


def _unspell(raw: bytes) -> str:
    return str(json.loads(b'"' + raw + b'"'))
