"""The input of one pass over objects: their keys, those of the objects inside, and the values to read in passing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from json.encoder import encode_basestring

import numpy as np
from numpy.typing import NDArray
from pyiceberg.types import DoubleType, FloatType, IcebergType, IntegerType, ListType, LongType, NestedField, StructType

from frazil.decode.json.tree import (
    CHILD,
    DOUBLES,
    INDEX_MASK,
    INTEGERS,
    LISTS,
    MAX_UNINDEXED_FIELDS,
    SLICES_ONLY,
    index_keys,
)
from frazil.raw_memory import I32, U8

_READ_AS: dict[type[IcebergType], int] = {
    IntegerType: INTEGERS,
    LongType: INTEGERS,
    FloatType: DOUBLES,
    DoubleType: DOUBLES,
    ListType: LISTS,
}
_WORD = 8
_BYTES_PER_ELEMENT = 16
SEED = int.from_bytes(os.urandom(7), "little") | 1
"""The seed of the hashes of keys, another one in each process: nobody can write keys that all have one hash."""


@dataclass
class KeyTree:
    """The fields of nested objects as `scan_tree` takes them; a field's number is its index in `fields`."""

    #: The rows of `scan_tree`'s table of fields (see `tree`).
    fields: list[list[int]] = field(default_factory=list)
    #: The rows of `scan_tree`'s table of objects (see `tree`).
    nodes: list[list[int]] = field(default_factory=list)
    #: The bytes of all keys.
    key_bytes: bytearray = field(default_factory=bytearray)
    #: The number of places in the index of keys.
    index_size: int = 0
    #: The number of fields read as integers, doubles, and elements of lists.
    slots: dict[int, int] = field(default_factory=lambda: {SLICES_ONLY: 0, INTEGERS: 0, DOUBLES: 0, LISTS: 0})

    @cached_property
    def keys(self) -> NDArray[np.uint8]:
        """Every key with its closing quote, each from a multiple of eight bytes on: uint8."""
        return np.frombuffer(bytes(self.key_bytes) or bytes(_WORD), np.uint8)

    @cached_property
    def field_table(self) -> I32:
        """The array of `fields` for the compiled loops."""
        return np.array(self.fields, np.int32).reshape(-1, 5)

    @cached_property
    def node_table(self) -> I32:
        """The array of `nodes` for the compiled loops."""
        return np.array(self.nodes, np.int32)

    @cached_property
    def index(self) -> I32:
        """The position of each key of objects with many fields (`index_keys`)."""
        index = np.full(max(1, self.index_size), -1, np.int32)
        if self.index_size:
            index_keys(self.keys.ctypes.data, self.field_table, self.node_table, index, SEED)
        return index

    def add(self, names: Sequence[str], kinds: Sequence[IcebergType | None], is_deep: bool) -> int:
        """Adds an object with these keys, and the objects inside if `is_deep`; returns its number."""
        node, first = len(self.nodes), len(self.fields)
        self.nodes.append([])
        for name, kind in zip(names, kinds, strict=True):
            key = escape_key(name) + b'"'
            wanted = SLICES_ONLY if kind is None else _READ_AS.get(type(kind), SLICES_ONLY)
            self.fields.append([len(self.key_bytes), len(key), -1, wanted, self.slots[wanted]])
            self.slots[wanted] += 1
            self.key_bytes += key + bytes(-len(key) % _WORD)
        last = len(self.fields)
        for place, kind in enumerate(kinds if is_deep else ()):
            if isinstance(kind, StructType):
                inner = [member.name for member in kind.fields]
                self.fields[first + place][CHILD] = self.add(inner, [m.field_type for m in kind.fields], is_deep)
        self.nodes[node] = [first, last, len(self.fields), len(self.nodes), self.index_size, 0]
        if last - first > MAX_UNINDEXED_FIELDS:
            size = 1 << (2 * (last - first)).bit_length()
            self.nodes[node][INDEX_MASK] = size - 1
            self.index_size += size
        return node


@dataclass(frozen=True)
class Sweep:
    """The results of a pass, by field (or node) and row."""

    #: The keys of the pass.
    tree: KeyTree
    #: The first byte of each value, shape (n_fields, n_rows).
    start: I32
    #: The byte after each value, shape (n_fields, n_rows).
    end: I32
    #: The kind of each value, shape (n_fields, n_rows).
    kind: U8
    #: Which nested objects have their members here, shape (n_nodes, n_rows).
    done: U8
    #: The values of fields that are read as integers.
    integers: NDArray[np.int64]
    #: The values of fields that are read as doubles.
    doubles: NDArray[np.float64]
    #: The slices of the elements of lists, one after another.
    elements: I32
    #: The kinds of these elements.
    element_kind: U8
    #: The number of elements of each list.
    counts: I32
    #: The number of elements of each field.
    emitted: NDArray[np.int64]
    #: Which fields could not be read in passing, and need a pass of their own.
    needs_pass: U8


def new_sweep(tree: KeyTree, rows: int, size: int) -> Sweep:
    """Returns the memory for a pass over `rows` objects, in texts of `size` bytes."""
    count, lists = len(tree.fields), tree.slots[LISTS]
    # Memory that is never written to costs nothing; where it does not suffice, a pass of its own finds the elements.
    capacity = 4 * rows + size // _BYTES_PER_ELEMENT
    start, end = (np.empty((count, rows), np.int32) for _ in range(2))
    return Sweep(
        tree,
        start,
        end,
        np.zeros((count, rows), np.uint8),
        np.zeros((len(tree.nodes), rows), np.uint8),
        np.zeros((tree.slots[INTEGERS], rows), np.int64),
        np.zeros((tree.slots[DOUBLES], rows), np.float64),
        np.empty((lists, 2, capacity), np.int32),
        np.empty((lists, capacity), np.uint8),
        np.zeros((lists, rows), np.int32),
        np.zeros(lists, np.int64),
        np.zeros(max(1, count), np.uint8),
    )


def tree_of(fields: Sequence[NestedField], others: Sequence[str], is_deep: bool) -> KeyTree:
    """Returns the keys of `fields` and then the `others`; is_deep: with the objects inside."""
    tree = KeyTree()
    kinds: list[IcebergType | None] = [member.field_type for member in fields]
    tree.add([*(member.name for member in fields), *others], [*kinds, *(None for _ in others)], is_deep)
    return tree


def escape_key(key: str) -> bytes:
    """Returns a key's bytes between its quotes in canonical JSON: equal keys are equal bytes, single surrogates
    included.
    """
    return encode_basestring(key)[1:-1].encode("utf-8", "backslashreplace")
