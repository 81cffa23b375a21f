"""The codecs of record batches, in the room that there is.

Source: Kafka's message format; snappy's blocks as Kafka's Java client puts them into xerial's stream, or one without it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import cramjam

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_SIZE = struct.Struct(">i")
_FULL = "failed to write whole buffer"


class NoRoom(Exception):
    """What is decompressed does not fit."""


class Damaged(Exception):
    """It cannot be decompressed."""


def decompress(codec: int, data: memoryview, room: Any) -> int:
    """Decompresses `data` into `room`, and returns the number of bytes that it has.

    codec: GZIP, SNAPPY, LZ4 or ZSTD. room: a writable buffer, uint8 of shape (n_most,).
    Raises: NoRoom; Damaged, also for a codec that is not known.
    """
    into = _INTO.get(codec)
    if into is None:
        raise Damaged(f"codec {codec} is not known")
    try:
        return into(data, room)
    except cramjam.DecompressionError as error:
        if _FULL in str(error):
            raise NoRoom from None
        raise Damaged(str(error)) from None


def _snappy(data: memoryview, room: Any) -> int:
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return _snappy_block(data, room)
    position, size = _XERIAL_HEADER_BYTES, 0
    while position < len(data):
        if position + _SIZE.size > len(data):
            raise Damaged("a block of snappy is cut short")
        (length,) = _SIZE.unpack_from(data, position)
        position += _SIZE.size
        if length < 0 or position + length > len(data):
            raise Damaged("a block of snappy is cut short")
        size += _snappy_block(data[position : position + length], room[size:])
        position += length
    return size


def _snappy_block(data: memoryview, room: Any) -> int:
    size = cramjam.snappy.decompress_raw_len(data)
    if size > len(room):
        raise NoRoom
    return int(cramjam.snappy.decompress_raw_into(data, room[:size])) if size else 0


_INTO: dict[int, Callable[[Any, Any], int]] = {
    GZIP: cramjam.gzip.decompress_into,
    SNAPPY: _snappy,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}
