"""Cells to Arrow arrays: scalars, and the messages, lists and maps around them. Missing required fields are found here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from frazil.decode.columns import Fault, bitmap, offsets_from, text_array, validity
from frazil.error_classes import ErrorClass
from frazil.raw_memory import U8
from frazil.schema.arrow import list_array, map_array, struct_array
from frazil_protobuf.json import NOT_TEXT, fault_of, to_json
from frazil_protobuf.json_structs import LIST, STRUCT, VALUE, write_structs
from frazil_protobuf.json_writer import WriteValues, write_texts
from frazil_protobuf.program import (
    I64,
    LENGTH_MASK,
    Cells,
    FieldPlace,
    Flags,
    Refusals,
    Spot,
    copy_slices,
    find_no_texts,
    may_repeat_keys,
)

# 0001-01-01T00:00:00Z to 9999-12-31T23:59:59Z, and 10,000 years: what google/protobuf/timestamp.proto and
# duration.proto allow.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_MAX_SECONDS = 315_576_000_000
_MAX_NANOS = 999_999_999

_STRUCTS = {"google.protobuf.Struct": STRUCT, "google.protobuf.ListValue": LIST, "google.protobuf.Value": VALUE}

_NO_MOMENT = Fault(
    ErrorClass.OUT_OF_RANGE,
    "the timestamp {value} is outside the years 1 to 9999, or its nanos are not part of a second",
)
_NO_DURATION = Fault(
    ErrorClass.OUT_OF_RANGE,
    "the duration {value} is longer than 10,000 years, or its seconds and nanos do not go together",
)


Read = Callable[[Cells, Spot, Refusals], pa.Array]


def _numbers(kind: pa.DataType, change: Callable[[I64], NDArray[np.generic]]) -> Read:
    """Returns the reader of numbers. change: makes their bits of the words."""

    def read(cells: Cells, spot: Spot, _: Refusals) -> pa.Array:
        return _fixed_width(kind, spot.valid, change(cells.words_of(spot.column, spot.domain)))

    return read


def _from_zigzag(words: NDArray[np.unsignedinteger[Any]]) -> NDArray[np.generic]:
    return (words >> 1) ^ (0 - (words & 1))


def _widen(words: I64) -> I64:
    wide = np.zeros((words.size, 2), np.int64)  # A decimal is 128 bits, the low ones first.
    wide[:, 0] = words
    return wide


def _read_boolean(cells: Cells, spot: Spot, _: Refusals) -> pa.Array:
    words = cells.words_of(spot.column, spot.domain)
    return pa.Array.from_buffers(pa.bool_(), words.size, [validity(spot.valid), bitmap(words != 0)])


def _read_empty(cells: Cells, spot: Spot, _: Refusals) -> pa.Array:
    flags = np.ones(int(cells.used[spot.domain]), np.bool_)
    return pa.Array.from_buffers(pa.bool_(), flags.size, [validity(spot.valid), bitmap(flags)])


def _read_unchecked_string(cells: Cells, spot: Spot, refusals: Refusals) -> pa.Array:
    """Returns texts that Protobuf's parser does not check, so that only those remaining in the record must be UTF-8."""
    places = _places_of(cells, spot)
    bad = find_no_texts(cells.bodies.base, places)
    refusals.add(cells, spot.domain, bad, NOT_TEXT, cells.program.paths[spot.place.number])
    return _copied(cells, spot, pa.string(), places)


def _places_of(cells: Cells, spot: Spot) -> I64:
    """Returns the places of the bytes of each cell, without those that another member of a oneof replaced."""
    places = cells.words_of(spot.column, spot.domain)
    return np.where(spot.valid, places, 0) if spot.valid is not None and spot.place.oneof >= 0 else places


def _copied(cells: Cells, spot: Spot, kind: pa.DataType, places: I64) -> pa.Array:
    offsets = offsets_from(places & LENGTH_MASK)
    out = np.empty(int(offsets[-1]) + 16, np.uint8)
    bodies, target = cells.bodies, int(out.ctypes.data)
    copy_slices(bodies.base, bodies.base + bodies.buffer.size, places, target, target + out.size)
    buffers = [validity(spot.valid), pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(kind, places.size, buffers)


def _read_enum(cells: Cells, spot: Spot, _: Refusals) -> pa.Array:
    names = spot.place.member.value.names
    numbers = cells.words_of(spot.column, spot.domain).astype(np.int32)
    codes = _fixed_width(pa.int32(), spot.valid, numbers).dictionary_encode()
    texts = pa.array([names.get(number, str(number)) for number in codes.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(codes.indices, texts).cast(pa.string())


def _seconds_and_nanos(cells: Cells, spot: Spot) -> tuple[I64, I64]:
    seconds, nanos = (cells.words_of(place.column, spot.domain) for place in spot.place.inside)
    return seconds, nanos.astype(np.int32).astype(np.int64)


def _read_timestamp(cells: Cells, spot: Spot, refusals: Refusals) -> pa.Array:
    seconds, nanos = _seconds_and_nanos(cells, spot)
    bad = (seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND) | (nanos < 0) | (nanos > _MAX_NANOS)
    if spot.valid is not None:
        bad &= spot.valid
    refusals.add_times(cells, spot, bad, _NO_MOMENT, (seconds, nanos))
    return _fixed_width(pa.timestamp("us", tz="UTC"), spot.valid, seconds * 1_000_000 + nanos // 1000)


def _read_duration(cells: Cells, spot: Spot, refusals: Refusals) -> pa.Array:
    seconds, nanos = _seconds_and_nanos(cells, spot)
    bad = (seconds < -_MAX_SECONDS) | (seconds > _MAX_SECONDS) | (nanos < -_MAX_NANOS) | (nanos > _MAX_NANOS)
    bad |= ((seconds < 0) & (nanos > 0)) | ((seconds > 0) & (nanos < 0))
    if spot.valid is not None:
        bad &= spot.valid
    refusals.add_times(cells, spot, bad, _NO_DURATION, (seconds, nanos))
    micros = np.where(nanos < 0, -(-nanos // 1000), nanos // 1000)
    return _fixed_width(pa.int64(), spot.valid, seconds * 1_000_000 + micros)


def _struct_writer(cells: Cells, places: I64, valid: Flags, root: int) -> WriteValues:
    """Returns the function that writes the JSON of Structs, Values or ListValues."""
    entries = np.empty((2, int(np.where(valid, places & LENGTH_MASK, 0).max(initial=0)) + 2, 2), np.int64)
    is_there = valid.astype(np.uint8)

    def write(out: int, capacity: int, row: int, ends: I64, declined: U8) -> int:
        base = cells.bodies.base
        return int(
            write_structs(base, places, is_there, root, entries[0], entries[1], out, capacity, row, ends, declined)
        )

    return write


def _read_json(cells: Cells, spot: Spot, refusals: Refusals) -> pa.Array:
    places = cells.words_of(spot.column, spot.domain)
    descriptor = spot.place.member.value.descriptor
    make = message_factory.GetMessageClass(descriptor)
    faulty: dict[tuple[Fault, bool], list[int]] = {}

    def write_one(n: int) -> str | None:
        start, length = int(places[n]) >> 32, int(places[n]) & LENGTH_MASK
        try:
            written = to_json(make.FromString(cells.bodies.buffer[start : start + length].tobytes()), length)
        except DecodeError as error:
            faulty.setdefault((fault_of(error), True), []).append(n)
            return None
        if isinstance(written, Fault):
            faulty.setdefault((written, False), []).append(n)
            return None
        return written

    valid = np.ones(places.size, np.bool_) if spot.valid is None else spot.valid
    if descriptor.full_name in _STRUCTS:
        write = _struct_writer(cells, places, valid, _STRUCTS[descriptor.full_name])
        texts = write_texts(valid, 4 * int((places[valid] & LENGTH_MASK).sum()), write, write_one)
    else:
        texts = text_array([write_one(n) if is_there else None for n, is_there in enumerate(valid.tolist())])
    for (fault, is_malformed), cells_of_it in faulty.items():
        bad = np.zeros(places.size, np.bool_)
        bad[cells_of_it] = True
        refusals.add(cells, spot.domain, bad, fault, spot.path, is_malformed=is_malformed)
    return texts


SCALAR_READERS: dict[str, Read] = {
    # Of a longer varint only the low 32 bits count (protobuf.dev/programming-guides/proto3/#updating).
    "int": _numbers(pa.int32(), lambda words: words.astype(np.int32)),
    "zigzag_int": _numbers(pa.int32(), lambda words: _from_zigzag(words.astype(np.uint32))),
    "unsigned_int": _numbers(pa.int64(), lambda words: words & 0xFFFFFFFF),
    "long": _numbers(pa.int64(), lambda words: words),
    "zigzag_long": _numbers(pa.int64(), lambda words: _from_zigzag(words.view(np.uint64))),
    "unsigned_long": _numbers(pa.decimal128(20, 0), _widen),
    "float": _numbers(pa.float32(), lambda words: words.astype(np.uint32)),
    "double": _numbers(pa.float64(), lambda words: words),
    "boolean": _read_boolean,
    "string": lambda cells, spot, _: _copied(cells, spot, pa.string(), _places_of(cells, spot)),
    "unchecked_string": _read_unchecked_string,
    "binary": lambda cells, spot, _: _copied(cells, spot, pa.binary(), _places_of(cells, spot)),
    "enum": _read_enum,
    "empty": _read_empty,
    "timestamp": _read_timestamp,
    "duration": _read_duration,
    "json": _read_json,
}


_MISSING = "required field {} is missing"


def read_records(cells: Cells, refusals: Refusals) -> list[pa.Array]:
    """Returns an array for each field of the records; null in every array where a record is refused."""
    accepted = ~cells.refused
    _refuse_missing(cells, cells.program.places, 0, accepted, refusals)
    mask = None if accepted.all() else accepted
    return [_read_place(cells, place, 0, mask, refusals) for place in cells.program.places]


def _read_place(cells: Cells, place: FieldPlace, domain: int, mask: Flags | None, refusals: Refusals) -> pa.Array:
    """Returns one field of a message whose cells are in `domain`. mask: where the message is present (None: everywhere)."""
    if place.member.shape == "list":
        return _read_list(cells, place, domain, mask, refusals)
    if place.member.shape == "map":
        return _read_map(cells, place, domain, mask, refusals)
    valid = _presence(cells, place, domain)
    if mask is not None:
        valid = mask if valid is None else valid & mask
    return _read_values(cells, Spot(place, place.column, domain, valid), refusals)


def _presence(cells: Cells, place: FieldPlace, domain: int) -> Flags | None:
    if place.oneof >= 0:
        chosen: Flags = cells.words_of(place.oneof, domain) == place.number + 1
        return chosen
    return cells.flags_of(place.column, domain) if place.member.has_presence else None


def _read_values(cells: Cells, spot: Spot, refusals: Refusals) -> pa.Array:
    return _READERS[spot.place.member.value.kind](cells, spot, refusals)


def _read_list(cells: Cells, place: FieldPlace, domain: int, mask: Flags | None, refusals: Refusals) -> pa.Array:
    offsets = offsets_from(cells.words_of(place.column, domain))
    items = _read_values(cells, Spot(place, place.element, place.domain, None), refusals)
    return list_array(offsets, items, validity(mask))


def _read_map(cells: Cells, place: FieldPlace, domain: int, mask: Flags | None, refusals: Refusals) -> pa.Array:
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
    return map_array(offsets_from(counts), keys, items, validity(mask))


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
    cells: Cells, places: tuple[FieldPlace, ...], domain: int, visible: Flags | None, refusals: Refusals
) -> None:
    """Refuses the records of messages without a required field (proto2)."""
    for place in places:
        if place.member.is_required:
            missing = ~cells.flags_of(place.column, domain)
            if visible is not None:
                missing &= visible
            refusals.add(
                cells, domain, missing, Fault(ErrorClass.MALFORMED, _MISSING.format(place.member.name)), place.path
            )


def _read_struct(cells: Cells, spot: Spot, refusals: Refusals) -> pa.Array:
    inside = spot.place.inside
    _refuse_missing(cells, inside, spot.domain, spot.valid, refusals)
    arrays = [_read_place(cells, place, spot.domain, None, refusals) for place in inside]
    names = [place.member.name for place in inside]
    return struct_array(int(cells.used[spot.domain]), names, arrays, validity(spot.valid))


def _read_wrapper(cells: Cells, spot: Spot, refusals: Refusals) -> pa.Array:
    """Returns the only field of the message, null where there is no message."""
    (only,) = spot.place.inside
    if only.member.shape == "list":
        return _read_list(cells, only, spot.domain, spot.valid, refusals)
    return _read_values(cells, Spot(only, only.column, spot.domain, spot.valid), refusals)


_READERS: dict[str, Read] = {**SCALAR_READERS, "struct": _read_struct, "wrapper": _read_wrapper}


def _fixed_width(kind: pa.DataType, valid: NDArray[np.bool_] | None, values: NDArray[Any]) -> pa.Array:
    """Returns an array of numbers or times from their bits. valid: which are values; None: all."""
    return pa.Array.from_buffers(kind, len(values), [validity(valid), pa.py_buffer(values)])
