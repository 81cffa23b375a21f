"""Damaged batches between pages of memory that nobody may touch: they are read as other code reads them, or refused. A slice
of seeds in the suite, a quarter of a million as soak (`make soak-guard`). FRAZIL_RECORDS chooses another number.
"""

from __future__ import annotations

import os
import struct

import pytest

from frazil.errors import UnavailableError
from frazil.kafka.fetch.columns import Wanted
from frazil.kafka.fetch.records import FetchedRecords, batches_in
from frazil.kafka.port import timestamp_of
from tests.fixtures.chance import Chance
from tests.fixtures.range_reads import COLUMNS, Row, rows_of
from tests.fixtures.record_batches import CODECS, NONE, Kind, Record, batch, checked_anew, compressed
from tests.unit.decode.guard_pages import Guarded

_RECORDS = int(os.environ.get("FRAZIL_RECORDS", "250000"))
_HEADER_BYTES = 61
_FIRST = 100
_SOME = [
    Record(_FIRST, b"value", b"key", 1000),
    Record(_FIRST + 1, None, b"", 900, [(b"name", b"content"), (b"", None), (b"name", b"")]),
    Record(_FIRST + 2, bytes(200), None, 1001),
    Record(_FIRST + 4, b"", b"k" * 70, 1 << 40, [(b"\xff\xfe", b"x" * 130)] * 3),
]


class Reference:
    """Reads one batch strictly, byte by byte."""

    def __init__(self, whole: bytes) -> None:
        self.whole, self.at, self.end = whole, _HEADER_BYTES, len(whole)

    def varint(self) -> int:
        found = shift = 0
        while True:
            if self.at >= self.end or shift > 63:
                raise ValueError
            byte = self.whole[self.at]
            self.at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                found &= (1 << 64) - 1
                return found >> 1 if not found & 1 else -(found >> 1) - 1

    def take(self, size: int) -> bytes:
        if size < 0 or size > self.end - self.at:
            raise ValueError
        self.at += size
        return self.whole[self.at - size : self.at]

    def sized(self, least: int = -1) -> bytes | None:
        size = self.varint()
        if size < least:
            raise ValueError
        return None if size < 0 else self.take(size)

    def rows(self) -> list[Row]:
        base, last_delta, first_ms = struct.unpack_from(">q15xiq", self.whole)
        (count,) = struct.unpack_from(">i", self.whole, 57)
        found: list[Row] = []
        before = -1
        for _ in range(count):
            size = self.varint()
            if size < 6 or size > len(self.whole) - self.at:
                raise ValueError
            self.end = self.at + size
            self.take(1)
            time, delta = self.varint(), self.varint()
            if not before < delta <= last_delta:
                raise ValueError
            before = delta
            key, value = self.sized(), self.sized()
            headers = [(self.sized(0), self.sized()) for _ in range(self._count())]
            if self.at != self.end:
                raise ValueError
            self.end = len(self.whole)
            texts = [((name or b"").decode("utf-8", "replace"), content) for name, content in headers]
            time_ms = timestamp_of((first_ms + time + 2**63) % 2**64 - 2**63)
            micros = None if time_ms is None else time_ms * 1000
            found.append(Row("t", 0, base + delta, micros, key, value, texts or None, 0))
        if count < 0 or self.at != self.end:
            raise ValueError
        return found

    def _count(self) -> int:
        count = self.varint()
        if count < 0 or count > (self.end - self.at) // 2:
            raise ValueError
        return count


def struck(chance: Chance) -> bytes:
    """A batch with a few bytes that are others, fewer or more."""
    some = [one for one in _SOME if chance.below(3)] or _SOME[:1]
    whole = bytearray(batch(some, Kind(last=_FIRST + 6, base=_FIRST)))
    for _ in range(chance.below(4)):
        at = _HEADER_BYTES + chance.below(len(whole) - _HEADER_BYTES)
        match chance.below(4):
            case 0:
                whole[at] = chance.below(256)
            case 1:
                whole[at] ^= 1 << chance.below(8)
            case 2 if len(whole) > _HEADER_BYTES + 1:
                del whole[at]
            case _:
                whole.insert(at, chance.below(256))
    if not chance.below(8):
        struct.pack_into(">i", whole, 57, chance.below(7) - 1)
    struct.pack_into(">i", whole, 8, len(whole) - 12)
    return checked_anew(bytes(whole))


def read(whole: bytes, wanted: Wanted) -> list[Row] | None:
    """The rows, read between guarded pages; None for a batch that is refused."""
    memory = Guarded([len(whole)])
    [start], [end] = memory.put([whole])
    frame = memory.buffer[start:end].data
    try:
        table = batches_in(frame, 0, len(frame), _FIRST, ("t", 0))
        records = FetchedRecords(wanted, {})
        found = [*records.add(("t", 0), (0, 1000), table, frame, ()), *records.flush()]
        return [row for one in found for row in rows_of(one)]
    except UnavailableError:
        return None
    finally:
        memory.free()


def test_answers_that_are_cut_anywhere_have_the_batches_before() -> None:
    one, other = batch(_SOME), batch([Record(_FIRST + 5, b"v")])
    for end in range(len(one + other) + 1):
        memory = Guarded([max(1, end)])
        [start], [stop] = memory.put([(one + other)[: max(1, end)]])
        table = batches_in(memory.buffer[start:stop].data, 0, end, _FIRST, ("t", 0))
        assert len(table) == (end >= len(one)) + (end == len(one + other))
        memory.free()


def strike(first_seed: int, count: int) -> int:
    """Reads so many damaged batches; how many were not refused."""
    whole = 0
    for seed in range(first_seed, first_seed + count):
        chance = Chance(seed)
        made = struck(chance)
        try:
            expected: list[Row] | None = Reference(made).rows()
        except ValueError:
            expected = None
        # Now and then there is no room for all of them.
        found = read(made, Wanted(COLUMNS, most_records=1 + chance.below(5)))
        assert found == expected, seed
        if found is not None and not seed % 5:
            codec = chance.one_of(list(CODECS.values()))
            content = compressed(codec, made[_HEADER_BYTES:])
            again = bytearray(made[:_HEADER_BYTES] + content)
            struct.pack_into(">i", again, 8, len(again) - 12)
            again[22] = codec
            assert codec == NONE or read(checked_anew(bytes(again)), Wanted(COLUMNS)) == expected, seed
        whole += found is not None
    return whole


def test_damaged_batches_are_read_within_their_bytes_as_other_code_reads_them() -> None:
    assert 300 < strike(0, 2000) < 1800


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_damaged_batches_read_no_foreign_memory_in_a_quarter_of_a_million() -> None:
    assert strike(1_000_000, _RECORDS) < _RECORDS
