"""The wire formats of record values: the id of the schema that a record was written with, and its body.

The schema is named in one of two places: the first bytes of the value (Confluent's and Apicurio's wire formats), or a
header of the record, and then the value is the body. A whole batch is read at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.decode.columns import Bodies, Fault, bytes_of, offsets_of
from frazil.decode.settings import Framing
from frazil.error_classes import ErrorClass
from frazil.raw_memory import I32, U8

VALUE_HEADER = "__value_schema_id"
KEY_HEADER = "__key_schema_id"

FAULTY = -1
_ID_BYTES: dict[Framing, int] = {"confluent": 4, "apicurio": 8, "none": 0}
_TOMBSTONE, _NO_MAGIC, _JSON, _SHORT, _NEGATIVE = range(1, 6)
_GUID_BYTES = 16


@dataclass(frozen=True)
class HeaderSplit:
    """Records without their wire-format headers."""

    #: The schema id of each record, FAULTY where the header is invalid, 0 without headers: int64 of shape (n_records,).
    ids: NDArray[np.int64]
    #: The bytes after the header; empty for faulty records.
    bodies: Bodies
    #: 0, or the 1-based index of the record's Fault in `faults`: uint8 of shape (n_records,).
    fault: U8
    #: The faults that `fault` refers to.
    faults: Sequence[Fault]


@dataclass(frozen=True)
class HeaderId:
    """The content of one header value: a GUID, or an id (then `guid` is empty), or a fault."""

    #: The schema's GUID; empty where the header has an id.
    guid: str = ""
    #: The schema's id; FAULTY where the header has a GUID or a fault.
    id: int = FAULTY
    #: The rest of the header: of Protobuf the path to the message, which otherwise comes before the body.
    path: bytes = b""
    #: The fault; None without one.
    fault: Fault | None = None


@dataclass(frozen=True)
class HeaderIds:
    """The contents of the headers of some records."""

    #: The index in `headers` of each record's header, -1 without one: int32 of shape (n_records,).
    codes: I32
    #: The distinct contents.
    headers: tuple[HeaderId, ...]


def split_headers(values: pa.BinaryArray, framing: Framing) -> HeaderSplit:
    """Returns the ids and bodies of a batch's values; a null value is a tombstone, which is a fault.

    Source: the Confluent wire format (magic byte 0, the id as a big-endian int), Apicurio's default one (as a long).
    """
    width = _ID_BYTES[framing]
    buffer, offsets = bytes_of(values), offsets_of(values)
    start, end = offsets[:-1].copy(), offsets[1:].copy()
    if width:
        ids, fault = _read_ids(buffer, start, end, width)
    else:
        ids, fault = np.zeros(len(values), np.int64), np.zeros(len(values), np.uint8)
    if values.null_count:
        fault[np.asarray(values.is_null())] = _TOMBSTONE
    start += 1 + width if width else 0
    if fault.any():
        faulty = fault != 0
        ids[faulty] = FAULTY
        start[faulty] = end[faulty]
    return HeaderSplit(ids, Bodies(buffer, start, end), fault, _faults(width))


def group_rows(ids: NDArray[Any]) -> list[tuple[int, I32]]:
    """Returns the rows of each id, in order of its first record; negative ids are left out."""
    if (ids == ids[:1]).all():
        return [(int(ids[0]), np.arange(ids.size, dtype=np.int32))] if ids.size and ids[0] >= 0 else []
    encoded = pa.array(ids).dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    codes = np.asarray(encoded.indices)
    # Numbers of two bytes are sorted by counting them, in one pass.
    order = np.argsort(codes.astype(np.uint16) if len(distinct) <= 2**16 else codes, kind="stable").astype(np.int32)
    ends = np.cumsum(np.bincount(codes, minlength=len(distinct)))[:-1]
    return [(number, rows) for number, rows in zip(distinct, np.split(order, ends), strict=True) if number >= 0]


def select_bodies(bodies: Bodies, rows: I32) -> Bodies:
    """Returns the bodies of some of the records, in the order of `rows`; only their positions are copied."""
    if rows.size == len(bodies):
        return bodies
    return Bodies(bodies.buffer, bodies.start[rows], bodies.end[rows])


def guids_of(headers: pa.ListArray, name: str = VALUE_HEADER) -> HeaderIds:
    """Returns the contents of the header `name` of each record.

    headers: lists of structs of `key` (text) and `value` (bytes), as the source gives them. Of several headers of that
    name the last one counts, as in Kafka's own clients; one without a value counts as none. Source: Confluent's
    HeaderSchemaIdSerializer: magic byte 1 and the 16 bytes of the GUID, or 0 and an id; of Protobuf then the path.
    """
    codes = np.full(len(headers), -1, np.int32)
    hits, rows = _hits(headers, name)
    if not hits.size:
        return HeaderIds(codes, ())
    encoded = pc.struct_field(headers.values, "value").take(pa.array(hits)).dictionary_encode()
    places = np.asarray(encoded.indices.fill_null(-1), np.int32)
    codes[rows[places >= 0]] = places[places >= 0]  # Where a row occurs twice, the last value is kept.
    return HeaderIds(codes, tuple(_read_header(value, name) for value in encoded.dictionary.to_pylist()))


def last_header(headers: pa.ListArray, name: str) -> pa.BinaryArray:
    """Returns the value of the header `name` of each record, of several the last one's; null without one."""
    places = np.full(len(headers), -1, np.int64)
    hits, rows = _hits(headers, name)
    places[rows] = hits  # Where a row occurs twice, the last value is kept.
    return pc.struct_field(headers.values, "value").take(pa.array(places, mask=places < 0))


def _hits(headers: pa.ListArray, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the positions of the headers of this name among all headers, and the record of each."""
    offsets = offsets_of(headers)
    named = pc.fill_null(pc.equal(pc.struct_field(headers.values, "key"), name), False)
    hits = np.flatnonzero(np.asarray(named))
    hits = hits[(hits >= offsets[0]) & (hits < offsets[-1])]
    rows = np.searchsorted(offsets, hits, side="right") - 1
    if headers.null_count:
        has_headers = np.asarray(headers.is_valid())[rows]
        hits, rows = hits[has_headers], rows[has_headers]
    return hits, rows


def _read_header(value: bytes, name: str) -> HeaderId:
    if value[:1] == b"\x01" and len(value) > _GUID_BYTES:
        return HeaderId(guid=str(uuid.UUID(bytes=value[1 : 1 + _GUID_BYTES])), path=value[1 + _GUID_BYTES :])
    if value[:1] == b"\x00" and len(value) > 4:
        return HeaderId(id=int.from_bytes(value[1:5], "big"), path=value[5:])
    return HeaderId(fault=Fault(ErrorClass.MALFORMED, f"the header {name} holds no schema's GUID"))


def _read_ids(buffer: U8, start: I32, end: I32, width: int) -> tuple[NDArray[np.int64], U8]:
    """Returns ids and faults. A value too short for a wire-format header is read at the buffer's beginning, and its id
    ignored.
    """
    length = end - start
    fault = np.zeros(start.size, np.uint8)
    is_short = length < 1 + width
    place, first_place = start, start
    if is_short.any():
        place, first_place = np.where(is_short, 0, start), np.minimum(start, buffer.size - 1)
    if is_short.all():
        ids = np.zeros(start.size, np.int64)
    else:
        # Every position of the buffer as a word that begins there: one look-up per record instead of one per byte.
        word = np.dtype(">u4" if width == 4 else ">i8")
        words = np.ndarray((buffer.size - word.itemsize,), word, buffer, offset=1, strides=(1,))
        ids = words[place].astype(np.int64)
        fault[ids < 0] = _NEGATIVE
    fault[is_short] = _SHORT
    first = buffer[first_place]
    has_other = (first != 0) & (length > 0)
    if has_other.any():
        fault[has_other] = np.where(first[has_other] == ord("{"), _JSON, _NO_MAGIC)
    return ids, fault


def _faults(width: int) -> tuple[Fault, ...]:
    return (
        Fault(ErrorClass.TOMBSTONE, "there is no value (a tombstone)"),
        Fault(ErrorClass.NO_WIRE_FORMAT, "the value does not begin with the magic byte 0 of the wire format"),
        Fault(
            ErrorClass.NO_WIRE_FORMAT,
            "the value begins with {, as JSON text does, and not with the wire format of a schema's id",
        ),
        Fault(ErrorClass.MALFORMED, f"the value is shorter than the {1 + width} bytes of the wire format's header"),
        Fault(ErrorClass.MALFORMED, "the schema's id is negative"),
    )
