"""The answer to a Fetch request, read without copying its records: versions 4 to 17 of FetchResponse.

Source: Kafka's protocol guide, and KIP-482 for the flexible versions from 12 on.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from uuid import UUID

from frazil.errors import InvariantError

LEAST_VERSION, MOST_VERSION = 4, 17
WITH_IDS = 13
"""The first version that names topics by their ids (KIP-516)."""
_FLEXIBLE = 12
_DIVERGING_EPOCH = 0  # The tag of the only tagged field that is used.
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_LONG = struct.Struct(">q")
_LONGS = struct.Struct(">qq")


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """What a broker answers of one partition."""

    #: The topic's id, or its name before version 13.
    topic: UUID | str
    partition: int
    #: Kafka's error code; 0 for none.
    error: int
    #: The offset after the last record.
    high_watermark: int
    #: The offset of the first record of the oldest open transaction, or the high watermark.
    last_stable: int
    #: The first offset that exists; -1 where the version does not say.
    log_start: int
    #: Aborted transactions among the records: the producer's id, and the transaction's first offset.
    aborted: tuple[tuple[int, int], ...]
    #: The broker to read from instead (KIP-392); -1 for none.
    replica: int
    #: Where the record batches are in the answer.
    start: int
    end: int
    #: The end of the log of the last epoch that both know, where the log was truncated (KIP-320); None otherwise.
    diverges_at: int | None = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """An answer."""

    #: How long the broker asks the client to wait, in milliseconds.
    throttle_ms: int
    #: Kafka's error code of the whole request; 0 for none.
    error: int
    partitions: tuple[FetchedPartition, ...]


class _Cursor:
    """A place in the answer that moves on as fields are read."""

    def __init__(self, data: memoryview, version: int) -> None:
        self.data = data
        self.position = 0
        self._is_flexible = version >= _FLEXIBLE

    def take(self, form: struct.Struct) -> int:
        number: int = form.unpack_from(self.data, self.position)[0]
        self.position += form.size
        return number

    def longs(self) -> tuple[int, int]:
        numbers: tuple[int, int] = _LONGS.unpack_from(self.data, self.position)
        self.position += _LONGS.size
        return numbers

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def length(self, form: struct.Struct = _INT) -> int:
        """The length of an array, a text or bytes; -1 for null."""
        return self.varint() - 1 if self._is_flexible else self.take(form)

    def skip(self, size: int) -> int:
        """Moves over bytes, and returns where they begin."""
        start = self.position
        self.position += max(0, size)
        if self.position > len(self.data):
            raise struct.error
        return start

    def tags(self) -> dict[int, int]:
        """Moves over tagged fields, and returns where they begin."""
        fields: dict[int, int] = {}
        for _ in range(self.varint() if self._is_flexible else 0):
            tag = self.varint()
            fields[tag] = self.skip(self.varint())
        return fields


def read_response(data: memoryview, version: int) -> Fetched:
    """Returns the answer in a answer, after its size and its correlation id.

    Raises: InvariantError for bytes that are not an answer of this version.
    """
    try:
        cursor = _Cursor(data, version)
        cursor.tags()  # Of the header.
        throttle_ms, error = cursor.take(_INT), 0
        if version >= 7:
            error = cursor.take(_SHORT)
            cursor.skip(4)  # The session.
        partitions: list[FetchedPartition] = []
        for _ in range(cursor.length()):
            topic: UUID | str
            if version >= WITH_IDS:
                start = cursor.skip(16)
                topic = UUID(bytes=bytes(cursor.data[start : start + 16]))
            else:
                size = cursor.length(_SHORT)
                start = cursor.skip(size)
                topic = str(cursor.data[start : start + size], "utf-8")
            partitions += [_partition(cursor, topic, version) for _ in range(cursor.length())]
            cursor.tags()
        cursor.tags()
        if cursor.position != len(data):
            raise struct.error
        return Fetched(throttle_ms, error, tuple(partitions))
    except (struct.error, IndexError, UnicodeDecodeError):
        raise InvariantError(f"a broker's answer to Fetch {version} cannot be read") from None


def _partition(cursor: _Cursor, topic: UUID | str, version: int) -> FetchedPartition:
    number, error = cursor.take(_INT), cursor.take(_SHORT)
    high, stable = cursor.longs()
    log_start, replica = -1, -1
    if version >= 5:
        log_start = cursor.take(_LONG)
    aborted = []
    for _ in range(cursor.length()):
        aborted.append(cursor.longs())
        cursor.tags()
    if version >= 11:
        replica = cursor.take(_INT)
    size = cursor.length()
    start = cursor.skip(size)
    tags = cursor.tags()
    diverges_at = None
    if _DIVERGING_EPOCH in tags:  # An epoch, and its end.
        diverges_at = _LONG.unpack_from(cursor.data, tags[_DIVERGING_EPOCH] + 4)[0]
    return FetchedPartition(
        topic, number, error, high, stable, log_start, tuple(aborted), replica, start, start + max(0, size), diverges_at
    )
