"""Values that Debezium did not send: their placeholders, in JSON and in columns.

A large value that an update does not change is not in the log of PostgreSQL (TOAST), nor a LOB in Oracle's. Debezium
then writes `unavailable.value.placeholder` in a form for each column type.
"""

from __future__ import annotations

import base64
import functools
import json
import struct
import uuid
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.decode.json.grammar import NULL
from frazil.decode.json.slices import Slices
from frazil.schema.arrow import Bools, Ints

_GEOMETRY = bytes.fromhex("0101000020e6100000000000fc83d797c1000000fc83d797c1")
_GEOGRAPHY = bytes.fromhex("0101000020e6100000") + struct.pack("<dd", 179.999999, 89.999999)


@functools.lru_cache(maxsize=16)
def json_forms(placeholder: str) -> tuple[bytes, ...]:
    """Returns the JSON texts of the placeholder, without blanks and with one after each comma and colon."""
    raw = placeholder.encode()
    as_base64, as_id = base64.b64encode(raw).decode(), _list_uuid(placeholder)
    texts = [placeholder, as_base64, raw.hex()]
    pair = {placeholder: placeholder}
    numbers = _numbers(placeholder).tolist()
    values = [*texts, *([text] for text in (*texts[:2], as_id)), numbers, pair, _dumps(pair)]
    points = [{"wkb": base64.b64encode(wkb).decode(), "srid": 4326} for wkb in (_GEOMETRY, _GEOGRAPHY)]
    texts_of_all = [_dumps(value) for value in [*values, *points]]
    # Python and other programs that pass messages on write blanks there.
    spaced = [json.dumps(value, ensure_ascii=False) for value in (numbers, pair, *points)]
    return tuple(text.encode() for text in [*texts_of_all, *spaced])


def _dumps(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _numbers(placeholder: str) -> Ints:
    """Returns the elements for an array of numbers: the placeholder's bytes, which Java counts from -128 on."""
    return np.frombuffer(placeholder.encode(), np.int8).astype(np.int64)


def _list_uuid(placeholder: str) -> str:
    """Returns the only element for an array of UUIDs: Java's `UUID.nameUUIDFromBytes`."""
    return str(uuid.UUID(bytes=uuid.uuid3(_NoNamespace(), placeholder).bytes))  # type: ignore[arg-type]


class _NoNamespace:
    """Java's name-based UUIDs have no namespace."""

    bytes = b""


def remove_unsent(buffer: NDArray[np.uint8], column: Slices, forms: tuple[bytes, ...]) -> Bools | None:
    """Returns which of the column's values were not sent and sets them to null; None where all were sent."""
    lengths = column.end - column.start
    unsent: Bools | None = None
    for form in forms:
        rows = np.flatnonzero((lengths == len(form)) & (column.kind > NULL))
        if not rows.size:
            continue
        wanted = np.frombuffer(form, np.uint8)
        rows = rows[buffer[column.start[rows]] == wanted[0]]
        rows = rows[buffer[column.start[rows] + len(form) // 2] == wanted[len(form) // 2]]
        same = (buffer[column.start[rows, None] + np.arange(len(form))] == wanted).all(axis=1)
        if same.any():
            unsent = np.zeros(len(column), np.bool_) if unsent is None else unsent
            unsent[rows[same]] = True
    if unsent is not None:
        column.kind[unsent] = NULL
    return unsent


def find_unsent(array: pa.Array, placeholder: str) -> Bools | None:
    """Returns which values of a column were not sent; None where all were sent."""
    for is_kind, find in _FINDERS:
        if is_kind(array.type):
            unsent = find(array, placeholder)
            return unsent if unsent is not None and unsent.any() else None
    return None


def _flags(mask: pa.Array) -> Bools:
    return np.asarray(pc.fill_null(mask, False))


def _of_text(array: pa.Array, placeholder: str) -> Bools:
    pair = _dumps({placeholder: placeholder})
    return _flags(pc.or_(pc.equal(array, placeholder), pc.equal(array, pair)))


def _of_bytes(array: pa.Array, placeholder: str) -> Bools:
    return _flags(pc.equal(array, pa.scalar(placeholder.encode(), array.type)))


def _of_struct(array: pa.Array, _: str) -> Bools | None:
    """Compares with the point that is the placeholder for a geometry."""
    n = array.type.get_field_index("wkb")
    if n < 0 or not pa.types.is_binary(array.type.field(n).type):
        return None
    points = pc.struct_field(array, [n])
    return _flags(pc.or_(pc.equal(points, _GEOMETRY), pc.equal(points, _GEOGRAPHY)))


def _of_list(array: pa.Array, placeholder: str) -> Bools | None:
    """Compares with a list of the placeholder alone, or of its bytes as numbers."""
    kind = array.type.value_type
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0))
    starts = np.asarray(array.offsets)[:-1]
    are_unsent = np.zeros(len(array), np.bool_)
    if pa.types.is_integer(kind):
        raw = _numbers(placeholder)
        rows = np.flatnonzero(lengths == raw.size)
        numbers = np.asarray(pc.fill_null(array.values, -1)).astype(np.int64) if rows.size else raw
        are_unsent[rows] = (numbers[starts[rows, None] + np.arange(raw.size)] == raw).all(axis=1)
        return are_unsent
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return None
    rows = np.flatnonzero(lengths == 1)
    only = array.values.take(pa.array(starts[rows]))
    if pa.types.is_binary(kind):
        are_unsent[rows] = _of_bytes(only, placeholder)
    else:
        are_unsent[rows] = _flags(pc.is_in(only, pa.array([placeholder, _list_uuid(placeholder)])))
    return are_unsent


def _of_map(array: pa.Array, placeholder: str) -> Bools | None:
    if not pa.types.is_string(array.type.key_type):
        return None
    offsets = np.asarray(array.offsets)
    rows = np.flatnonzero((np.diff(offsets) == 1) & np.asarray(array.is_valid()))
    are_unsent = np.zeros(len(array), np.bool_)
    are_unsent[rows] = _flags(pc.equal(array.keys.take(pa.array(offsets[:-1][rows])), placeholder))
    return are_unsent


_FINDERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, str], Bools | None]], ...] = (
    (pa.types.is_string, _of_text),
    (pa.types.is_binary, _of_bytes),
    (pa.types.is_struct, _of_struct),
    (pa.types.is_map, _of_map),
    (pa.types.is_list, _of_list),
)
