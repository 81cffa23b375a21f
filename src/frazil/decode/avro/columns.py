"""The words of a walk to Arrow arrays, and the faults found only here: in text, keys, decimals and UUIDs.

Nothing is checked twice: an absent value has the word 0 and is skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import DecimalType, StructType

from frazil.decode.avro import values
from frazil.decode.avro.code import Part, Plan
from frazil.decode.avro.json import JsonFault
from frazil.decode.avro.numbers import BAD_TEXT, FAR_MOMENT, NO_DECIMAL, NO_UUID, OK, SAME_KEY, WIDE_DECIMAL
from frazil.decode.avro.scan import I64, U8
from frazil.decode.columns import Bodies, offsets_from, text_array, validity
from frazil.decode.connect.unscaled import digit_texts
from frazil.schema.arrow import arrow_type, list_array, map_array, struct_array

_MAX_MILLIS = (2**63 - 1) // 1000

Valid = NDArray[np.bool_] | None
"""Which rows have a value, bool of shape (n_rows,); None: all."""


@dataclass
class WalkResult:
    """The results of a walk. The rows of context 0 are the records."""

    plan: Plan
    records: Bodies
    #: All slots, one after another.
    words: I64
    #: The place of each slot in `words`.
    firsts: I64
    #: The number of rows of each context.
    counts: I64
    #: The fault of each record, 0 for none; faults found here are added.
    fault: U8
    #: The field by record, for faults found here.
    fault_paths: dict[int, str] = field(default_factory=dict)
    #: The value of that field by record, where the message shows it.
    fault_values: dict[int, str] = field(default_factory=dict)

    @property
    def origin(self) -> int:
        """The address of the bytes that the words point into."""
        return self.records.base

    def of(self, part: Part) -> I64:
        """Returns the words of a part."""
        return self._slot(part.slot)

    def _slot(self, slot: int) -> I64:
        first = self.firsts[slot]
        return self.words[first : first + self.counts[self.plan.slots[slot]]]

    def owners(self, context: int) -> NDArray[np.int64]:
        """Returns the record that each row of a context belongs to: int64 of shape (n_rows,)."""
        slot = self.plan.lists[context]
        if context == 0:
            return np.arange(self.counts[0])
        return np.repeat(self.owners(int(self.plan.slots[slot])), self._slot(slot))

    def refuse(
        self, part: Part, bad: NDArray[np.uint8] | NDArray[np.bool_], fault: int, values: I64 | None = None
    ) -> None:
        """Sets the fault of the records of the rows in `bad`, unless they have one already. values: words of the rows,
        where the message shows the value.
        """
        if not bad.any():
            return
        places = np.flatnonzero(bad)
        rows, first = np.unique(self.owners(part.context)[places], return_index=True)
        is_well = self.fault[rows] == OK
        rows, places = rows[is_well], places[first[is_well]]
        self.fault[rows] = fault
        self.fault_paths.update(dict.fromkeys(rows.tolist(), part.path))
        if values is not None:
            self.fault_values.update(zip(rows.tolist(), map(str, values[places].tolist()), strict=True))


def make_array(walk: WalkResult, part: Part, valid: Valid) -> pa.Array:
    """Returns the array of a part: a row for each row of its context, null where it is not `valid`.

    Where a record had to be refused the array must not be used: it may contain bytes that are no text.
    """
    return _MAKERS[part.make](walk, part, valid)


def _there(valid: Valid, rows: int) -> U8:
    return np.ones(rows, np.uint8) if valid is None else valid.astype(np.uint8)


def _array(kind: pa.DataType, rows: int, valid: Valid, *buffers: object) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [validity(valid), *(pa.py_buffer(buffer) for buffer in buffers)])


def _make_boolean(walk: WalkResult, part: Part, valid: Valid) -> pa.Array:
    words = walk.of(part)
    return _array(pa.bool_(), words.size, valid, np.packbits(words.astype(np.bool_), bitorder="little"))


def _make_number(walk: WalkResult, part: Part, valid: Valid) -> pa.Array:
    """Returns numbers, days or times: a word has their bits."""
    kind, words = arrow_type(part.type), walk.of(part)
    return _array(kind, words.size, valid, words if kind.bit_width == 64 else words.astype(np.int32))


def _make_millis(walk: WalkResult, part: Part, valid: Valid) -> pa.Array:
    millis = walk.of(part)
    if millis.size and (int(millis.min()) < -_MAX_MILLIS or int(millis.max()) > _MAX_MILLIS):
        walk.refuse(part, (millis < -_MAX_MILLIS) | (millis > _MAX_MILLIS), FAR_MOMENT, millis)
    return _array(arrow_type(part.type), millis.size, valid, millis * 1000)


def _make_binary(walk: WalkResult, part: Part, valid: Valid) -> pa.Array:
    return _bytes(walk, part, valid, pa.binary())


def _make_string(walk: WalkResult, part: Part, valid: Valid) -> pa.Array:
    bad = np.zeros(walk.of(part).size, np.uint8)
    values.find_no_text(walk.origin, walk.of(part), bad)
    walk.refuse(part, bad, BAD_TEXT)
    return _bytes(walk, part, valid, pa.string())


def _bytes(walk: WalkResult, part: Part, valid: Valid, kind: pa.DataType) -> pa.Array:
    places = walk.of(part)
    offsets = np.empty(places.size + 1, np.int32)
    out = np.empty(values.measure_slices(places, offsets), np.uint8)
    values.copy_slices(walk.origin, places, out.ctypes.data)
    return _array(kind, places.size, valid, offsets, out)


def _make_fixed(walk: WalkResult, part: Part, valid: Valid) -> pa.Array:
    assert part.avro is not None
    places, size = walk.of(part), part.avro.size
    out = np.zeros(places.size * size, np.uint8)
    values.copy_fixed(walk.origin, places, size, out.ctypes.data)
    return _array(pa.binary(size), places.size, valid, out)


def _make_uuid_text(walk: WalkResult, part: Part, valid: Valid) -> pa.Array:
    places = walk.of(part)
    out, bad = np.zeros(places.size * 16, np.uint8), np.zeros(places.size, np.uint8)
    values.read_uuids(walk.origin, places, _there(valid, places.size), out.ctypes.data, bad)
    walk.refuse(part, bad, NO_UUID)
    return _array(pa.binary(16), places.size, valid, out)


def _make_decimal(walk: WalkResult, part: Part, valid: Valid) -> pa.Array:
    assert isinstance(part.type, DecimalType)
    places = walk.of(part)
    out, bad = np.zeros(places.size * 2, np.int64), np.zeros(places.size, np.uint8)
    high, low = divmod(10**part.type.precision, 2**64)
    values.read_decimals(
        walk.origin, places, _there(valid, places.size), high, low - 2**64 if low >= 2**63 else low, out, bad
    )
    walk.refuse(part, bad == values.WIDE, WIDE_DECIMAL)
    walk.refuse(part, bad == values.EMPTY, NO_DECIMAL)
    return _array(pa.decimal128(part.type.precision, part.type.scale), places.size, valid, out)


def _make_digits(walk: WalkResult, part: Part, valid: Valid) -> pa.Array:
    """Returns decimals as their digits, without an exponent."""
    assert part.avro is not None
    make = _make_fixed if part.avro.kind == "fixed" else _make_binary
    raw = make(walk, part, valid).cast(pa.binary())
    texts = digit_texts(raw, pa.repeat(pa.scalar(part.avro.scale, pa.int32()), len(raw)), False)
    is_empty = np.asarray(pc.fill_null(pc.equal(pc.binary_length(raw), 0), False))
    walk.refuse(part, is_empty, NO_DECIMAL)
    walk.refuse(part, np.asarray(raw.is_valid()) & np.asarray(texts.is_null()) & ~is_empty, WIDE_DECIMAL)
    return texts


def _make_enum(walk: WalkResult, part: Part, valid: Valid) -> pa.Array:
    assert part.avro is not None
    indices = walk.of(part).astype(np.int32)
    return pa.array(part.avro.symbols, pa.string()).take(_array(pa.int32(), indices.size, valid, indices))


def _make_json(walk: WalkResult, part: Part, _: Valid) -> pa.Array:
    assert part.json is not None
    places = walk.of(part)
    texts: list[str | None] = [None] * places.size
    bad = np.zeros(places.size, np.uint8)
    for row in np.flatnonzero(places).tolist():
        start, length = int(places[row]) & 0xFFFFFFFF, int(places[row]) >> 32
        try:
            texts[row] = part.json(walk.records.buffer[start : start + length].tobytes())
        except JsonFault as fault:
            bad[row] = fault.fault
    for number in np.unique(bad[bad != OK]).tolist():
        walk.refuse(part, bad == number, number)
    return text_array(texts)


def _make_true(walk: WalkResult, part: Part, valid: Valid) -> pa.Array:
    rows = int(walk.counts[part.context])
    return _array(pa.bool_(), rows, valid, np.full((rows + 7) // 8, 0xFF, np.uint8))


def _struct(walk: WalkResult, part: Part, valid: Valid, arrays: list[pa.Array]) -> pa.Array:
    assert isinstance(part.type, StructType)
    names = [member.name for member in part.type.fields]
    return struct_array(int(walk.counts[part.context]), names, arrays, validity(valid))


def _make_union(walk: WalkResult, part: Part, _: Valid) -> pa.Array:
    chosen = walk.of(part)
    arrays = [
        make_array(walk, child, chosen == choice) for child, choice in zip(part.children, part.choices, strict=True)
    ]
    return _struct(walk, part, chosen != 0, arrays)


def _offsets(walk: WalkResult, part: Part) -> NDArray[np.int32]:
    offsets = offsets_from(walk.of(part))
    walk.counts[part.children[0].context] = offsets[-1]
    return offsets


def _make_list(walk: WalkResult, part: Part, valid: Valid) -> pa.Array:
    offsets = _offsets(walk, part)
    return list_array(offsets, make_array(walk, part.children[0], None), validity(valid))


def _make_map(walk: WalkResult, part: Part, valid: Valid) -> pa.Array:
    offsets = _offsets(walk, part)
    bad = np.zeros(offsets.size - 1, np.uint8)
    values.find_equal_keys(walk.origin, offsets, walk.of(part.children[0]), bad)
    walk.refuse(part, bad, SAME_KEY)
    keys, items = (make_array(walk, child, None) for child in part.children)
    return map_array(offsets, keys, items, validity(valid))


_MAKERS: dict[str, Callable[[WalkResult, Part, Valid], pa.Array]] = {
    "boolean": _make_boolean,
    "number": _make_number,
    "millis": _make_millis,
    "binary": _make_binary,
    "string": _make_string,
    "fixed": _make_fixed,
    "uuid_text": _make_uuid_text,
    "decimal": _make_decimal,
    "digits": _make_digits,
    "enum": _make_enum,
    "json": _make_json,
    "true": _make_true,
    "null": lambda walk, part, _: pa.nulls(int(walk.counts[part.context]), pa.bool_()),
    "struct": lambda walk, part, valid: _struct(
        walk, part, valid, [make_array(walk, child, valid) for child in part.children]
    ),
    "optional": lambda walk, part, _: make_array(walk, part.children[0], walk.of(part) != 0),
    "union": _make_union,
    "list": _make_list,
    "map": _make_map,
}
