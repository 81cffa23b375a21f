"""Messages of Kafka's formats before 0.11 (version 0 and 1), as segments have them that were never rewritten: one by one.

Source: Kafka's message format, "Old Message Format"; KIP-31 and KIP-32 for relative offsets and timestamps of version 1.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from frazil.kafka.fetch import codecs
from frazil.kafka.port import NO_TIMESTAMP_MS

_HEAD = struct.Struct(">qiIbb")  # Offset, size, checksum, version, attributes.
_LONG = struct.Struct(">q")
_SIZE = struct.Struct(">i")
_CHECKED_FROM = 16
_START_BYTES = 12
_LEAST_BYTES = 14  # Of what a size counts: checksum, version, attributes, and the lengths of key and value.
_CODEC, _APPEND_TIME = 0x07, 0x08
_LZ4_HEADER_BYTES, _LZ4_HAS_SIZE = 7, 0x08
_LEAST_ROOM, _MOST_ROOM = 1024 * 1024, 1024 * 1024 * 1024


class Message(NamedTuple):
    """One record."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class DamagedMessage(Exception):
    """Bytes that are not a message."""


def messages_of(data: memoryview, is_inside: bool = False) -> Iterator[Message]:
    """Yields the messages of a set, those of a compressed one too. is_inside: of one that is inside of another.

    Raises: DamagedMessage.
    """
    position = 0
    while position < len(data):
        try:
            offset, size, crc, version, attributes = _HEAD.unpack_from(data, position)
            end = position + _START_BYTES + size
            if size < _LEAST_BYTES or end > len(data):
                raise DamagedMessage("a message is cut short")
            if zlib.crc32(data[position + _CHECKED_FROM : end]) != crc:
                raise DamagedMessage("its checksum is another one")
            if version not in (0, 1) or (is_inside and attributes & _CODEC):
                raise DamagedMessage("the format of a message differs from the others")
            yield from _opened(data[position + _HEAD.size : end], offset, version, attributes)
        except struct.error:
            raise DamagedMessage("a message is cut short") from None
        position = end


def _opened(data: memoryview, offset: int, version: int, attributes: int) -> Iterator[Message]:
    timestamp_ms, position = NO_TIMESTAMP_MS, 0
    if version == 1:
        (timestamp_ms,) = _LONG.unpack_from(data)
        position = _LONG.size
    key, position = _bytes_at(data, position)
    value, position = _bytes_at(data, position)
    if position != len(data):
        raise struct.error
    codec = attributes & _CODEC
    if codec == codecs.NONE:
        yield Message(offset, timestamp_ms, key, value)
        return
    inner = list(messages_of(memoryview(_decompressed(codec, value or b"", version)), is_inside=True))
    # Of version 1 the offsets inside count from the first one, and that of the whole is the last one.
    shift = offset - inner[-1].offset if version == 1 and inner else 0
    for message in inner:
        at_ms = timestamp_ms if version == 1 and attributes & _APPEND_TIME else message.timestamp_ms
        yield Message(message.offset + shift, at_ms, message.key, message.value)


def _bytes_at(data: memoryview, position: int) -> tuple[bytes | None, int]:
    (size,) = _SIZE.unpack_from(data, position)
    position += _SIZE.size
    if size < 0:
        return None, position
    if position + size > len(data):
        raise struct.error
    return bytes(data[position : position + size]), position + size


def _decompressed(codec: int, value: bytes, version: int) -> bytes:
    if codec == codecs.LZ4 and version == 0:
        value = _with_checksum(value)
    size = _LEAST_ROOM
    while size <= _MOST_ROOM:
        room = np.empty(size, np.uint8)
        try:
            return room[: codecs.decompress(codec, memoryview(value), room)].tobytes()
        except codecs.NoRoom:
            size *= 4
        except codecs.Damaged as error:
            raise DamagedMessage(f"{codecs.NAMES.get(codec, 'its codec')}: {error}") from None
    raise DamagedMessage(f"it has more than {_MOST_ROOM} bytes when it is decompressed")


def _with_checksum(packed: bytes) -> bytes:
    """Returns a packed of LZ4 with the checksum of its header: clients had another one in it with version 0 (KAFKA-3160)."""
    if len(packed) < _LZ4_HEADER_BYTES:
        return packed
    end = _LZ4_HEADER_BYTES + (8 if packed[4] & _LZ4_HAS_SIZE else 0) - 1
    return packed[:end] + bytes([_xxh32(packed[4:end]) >> 8 & 0xFF]) + packed[end + 1 :]


def _xxh32(few: bytes) -> int:
    """Returns XXH32 of fewer than 16 bytes."""
    primes = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    hashed, words = primes[4] + len(few), len(few) // 4
    for (word,) in struct.iter_unpack("<I", few[: 4 * words]):
        hashed = hashed + word * primes[2] & 0xFFFFFFFF
        hashed = (hashed << 17 | hashed >> 15) * primes[3] & 0xFFFFFFFF
    for byte in few[4 * words :]:
        hashed = hashed + byte * primes[4] & 0xFFFFFFFF
        hashed = (hashed << 11 | hashed >> 21) * primes[0] & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 15) * primes[1] & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * primes[2] & 0xFFFFFFFF
    return hashed ^ hashed >> 16
