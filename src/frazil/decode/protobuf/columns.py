"""Cells to Arrow arrays: messages, lists and maps, and inside them the arrays of `scalars`.

Missing required fields are found here.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from frazil.decode.columns import Fault
from frazil.decode.protobuf.cells import Cells, Flags, Refusals, Spot, may_repeat_keys, offsets_of, validity
from frazil.decode.protobuf.program import I64, Place
from frazil.decode.protobuf.scalars import SCALAR_READERS, Read

_MISSING = "required field {} is missing"


def read_records(cells: Cells, refusals: Refusals) -> list[pa.Array]:
    """Returns an array for each field of the records; null in every array where a record is refused."""
    accepted = ~cells.refused
    _refuse_missing(cells, cells.program.places, 0, accepted, refusals)
    mask = None if accepted.all() else accepted
    return [_read_place(cells, place, 0, mask, refusals) for place in cells.program.places]


def _read_place(cells: Cells, place: Place, domain: int, mask: Flags | None, refusals: Refusals) -> pa.Array:
    """Returns one field of a message whose cells are in `domain`. mask: where the message is present (None: everywhere)."""
    if place.member.shape == "list":
        return _read_list(cells, place, domain, mask, refusals)
    if place.member.shape == "map":
        return _read_map(cells, place, domain, mask, refusals)
    valid = _presence(cells, place, domain)
    if mask is not None:
        valid = mask if valid is None else valid & mask
    return _read_values(cells, Spot(place, place.column, domain, valid), refusals)


def _presence(cells: Cells, place: Place, domain: int) -> Flags | None:
    if place.oneof >= 0:
        chosen: Flags = cells.words_of(place.oneof, domain) == place.number + 1
        return chosen
    return cells.flags_of(place.column, domain) if place.member.has_presence else None


def _read_values(cells: Cells, spot: Spot, refusals: Refusals) -> pa.Array:
    return _READERS[spot.place.member.value.kind](cells, spot, refusals)


def _read_list(cells: Cells, place: Place, domain: int, mask: Flags | None, refusals: Refusals) -> pa.Array:
    offsets = offsets_of(cells.words_of(place.column, domain))
    items = _read_values(cells, Spot(place, place.element, place.domain, None), refusals)
    arrow = pa.list_(pa.field("element", items.type))
    return pa.Array.from_buffers(arrow, offsets.size - 1, [validity(mask), pa.py_buffer(offsets)], children=[items])


def _read_map(cells: Cells, place: Place, domain: int, mask: Flags | None, refusals: Refusals) -> pa.Array:
    counts = cells.words_of(place.column, domain)
    key_place, value_place = place.inside
    keys = _read_values(cells, Spot(key_place, key_place.column, place.domain, None), refusals)
    kept = _last_of_each_key(counts, keys)
    if kept is not None:
        replaced = np.ones(len(keys), np.bool_)
        replaced[kept] = False
        refusals.replace(place.domain, replaced)
    # An entry without a value has the default value, also when that is a message.
    _refuse_missing(cells, value_place.inside, place.domain, np.ones(len(keys), np.bool_), refusals)
    items = _read_values(cells, Spot(value_place, value_place.column, place.domain, None), refusals)
    if kept is not None:
        keys, items = keys.take(pa.array(kept)), items.take(pa.array(kept))
        counts = np.bincount(np.repeat(np.arange(counts.size), counts)[kept], minlength=counts.size)
    arrow = pa.map_(keys.type, pa.field("value", items.type))
    entries = pa.StructArray.from_arrays([keys, items], fields=[arrow.key_field, arrow.item_field])
    offsets = offsets_of(counts)
    return pa.Array.from_buffers(arrow, counts.size, [validity(mask), pa.py_buffer(offsets)], children=[entries])


def _last_of_each_key(counts: I64, keys: pa.Array) -> I64 | None:
    """Returns the entries to keep, when a map has a key twice: the last one counts. None: all."""
    codes = np.asarray(keys.dictionary_encode().indices, dtype=np.int64)
    if not may_repeat_keys(counts, codes):
        return None
    pairs = np.repeat(np.arange(counts.size), counts) * (codes.max(initial=0) + 1) + codes
    _, from_end = np.unique(pairs[::-1], return_index=True)
    if from_end.size == pairs.size:
        return None
    kept: I64 = np.sort(pairs.size - 1 - from_end)
    return kept


def _refuse_missing(
    cells: Cells, places: tuple[Place, ...], domain: int, visible: Flags | None, refusals: Refusals
) -> None:
    """Refuses the records of messages without a required field (proto2)."""
    for place in places:
        if place.member.is_required:
            missing = ~cells.flags_of(place.column, domain)
            if visible is not None:
                missing &= visible
            refusals.add(cells, domain, missing, Fault("malformed", _MISSING.format(place.member.name)), place.path)


def _read_struct(cells: Cells, spot: Spot, refusals: Refusals) -> pa.Array:
    inside = spot.place.inside
    _refuse_missing(cells, inside, spot.domain, spot.valid, refusals)
    arrays = [_read_place(cells, place, spot.domain, None, refusals) for place in inside]
    arrow = pa.struct([pa.field(p.member.name, a.type) for p, a in zip(inside, arrays, strict=True)])
    return pa.Array.from_buffers(arrow, int(cells.used[spot.domain]), [validity(spot.valid)], children=arrays)


def _read_wrapper(cells: Cells, spot: Spot, refusals: Refusals) -> pa.Array:
    """Returns the only field of the message, null where there is no message."""
    (only,) = spot.place.inside
    if only.member.shape == "list":
        return _read_list(cells, only, spot.domain, spot.valid, refusals)
    return _read_values(cells, Spot(only, only.column, spot.domain, spot.valid), refusals)


_READERS: dict[str, Read] = {**SCALAR_READERS, "struct": _read_struct, "wrapper": _read_wrapper}
