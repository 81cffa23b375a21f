"""Maps whose keys are no texts: Kafka Connect's JsonConverter writes such a map as an array of pairs, [[key, value], …].

Where the keys are not primitive either, the column is a list of structs with `key` and `value`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, MapType, StructType

from frazil.decode.columns import bitmap, filled
from frazil.decode.json.grammar import ABSENT, ARRAY, NULL
from frazil.decode.json.slices import Slices, Texts, elements_of
from frazil.decode.memory import I32, U8
from frazil.schema.arrow import list_array, map_array, struct_array
from frazil.schema.parts import Path


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
