"""Batches that are damaged, of an unknown kind or of formats before 0.11, from a made broker."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator

import pytest

from frazil.errors import UnavailableError
from frazil.kafka.fetch.columns import Wanted
from frazil.types import OffsetRange
from tests.fixtures.made_brokers import MadeCluster, made_log
from tests.fixtures.range_reads import COLUMNS, client_of, read_and_fail, read_of
from tests.fixtures.record_batches import (
    GZIP,
    LZ4,
    NONE,
    PLAIN,
    SNAPPY,
    ZSTD,
    Kind,
    Record,
    batch,
    batch_of,
    checked_anew,
    older,
    record_body,
    sized,
    varint,
)

RECORDS = [Record(offset, b"value %d" % offset, b"key", headers=[(b"h", b"x")]) for offset in range(10, 13)]
BEFORE, BEHIND = batch([Record(n, b"before") for n in range(10)]), batch([Record(n, b"behind") for n in range(13, 20)])


@pytest.fixture(scope="module")
def cluster() -> Iterator[MadeCluster]:
    with made_log([BEFORE, BEHIND]) as made:
        yield made


@pytest.fixture
def fault_of(cluster: MadeCluster) -> Callable[..., UnavailableError]:
    """What reading a batch between two good ones ends with."""

    def read(damaged: bytes, start: int = 0, end: int = 20) -> UnavailableError:
        log = cluster.add("t", 0, [BEFORE, BEHIND])
        log.read = lambda position, *_: (BEFORE if position < 10 else b"") + damaged + BEHIND  # type: ignore[method-assign]
        with client_of(cluster.servers) as client:
            rows, error = read_and_fail(client, [OffsetRange("t", 0, start, end)])
        assert {row.value for row in rows} <= {b"before"}
        return error

    return read


FaultOf = Callable[..., UnavailableError]


@pytest.mark.parametrize("codec", [NONE, LZ4])
def test_every_byte_of_a_batch_that_is_damaged_is_noticed(fault_of: FaultOf, codec: int) -> None:
    whole = batch(RECORDS, Kind(codec))
    unnoticed = []
    for at in range(len(whole)):
        if at in (9, 10) or 12 <= at < 16:
            continue  # A length that is too large has a test of its own; the epoch is used of whole logs alone.
        struck = bytearray(whole)
        struck[at] ^= 0x80
        error = fault_of(bytes(struck))
        if "a batch of records is damaged" not in error.message:
            unnoticed.append((at, error.message))
    assert unnoticed == []


@pytest.mark.parametrize("at", [61, 40, 25])
def test_a_damaged_batch_is_named_by_its_first_offset(fault_of: FaultOf, at: int) -> None:
    struck = bytearray(batch(RECORDS))
    struck[at] ^= 1
    error = fault_of(bytes(struck), 5, 15)
    assert error.message == "a batch of records is damaged: its checksum is another one"
    assert error.where == "topic t, partition 0, offset 10"
    assert error.remedy.startswith("replace the broker's copy")


def test_what_a_transaction_leaves_out_is_checked_too(fault_of: FaultOf) -> None:
    # A bit makes records of it that nobody wants.
    struck = bytearray(batch(RECORDS))
    struck[22] |= 0x20
    assert "checksum" in fault_of(bytes(struck)).message


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_named(fault_of: FaultOf, codec: int) -> None:
    error = fault_of(batch(RECORDS, Kind(codec)))
    assert error.message == f"a batch of records is damaged: its codec: codec {codec} is not known"
    assert error.where.endswith("offset 10")


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_bytes_that_cannot_be_decompressed_are_named(fault_of: FaultOf, codec: int) -> None:
    whole = batch(RECORDS, Kind(codec))
    for cut in (5, len(whole) - 64):
        short = bytearray(whole[:-cut])
        struct.pack_into(">i", short, 8, len(short) - 12)
        assert "a batch of records is damaged" in fault_of(checked_anew(bytes(short))).message


def test_an_unknown_format_is_named(fault_of: FaultOf) -> None:
    struck = bytearray(batch(RECORDS))
    struck[16] = 3
    error = fault_of(bytes(struck))
    assert error.message == "a batch of records is damaged: its format 3 is not known"
    assert error.where.endswith("offset 10")


@pytest.mark.parametrize("start", [11, 12])
def test_an_unknown_format_is_named_where_the_range_begins_in_it(fault_of: FaultOf, start: int) -> None:
    struck = bytearray(batch(RECORDS))
    struck[16] = 3
    assert "a batch of records is damaged" in fault_of(bytes(struck), start).message


def body(record: Record = RECORDS[0]) -> bytes:
    return record_body(record, 10, record.timestamp_ms)


WRONG: dict[str, Callable[[], bytes]] = {
    "fewer records than the batch says": lambda: batch(RECORDS, Kind(count=4)),
    "more records than the batch says": lambda: batch(RECORDS, Kind(count=2)),
    "none, says the batch": lambda: batch(RECORDS, Kind(count=0)),
    "less than none": lambda: batch(RECORDS, Kind(count=-1)),
    "a record that is longer than the batch": lambda: batch_of(varint(1 << 20) + body(), RECORDS, Kind(count=1)),
    "a record without room for its fields": lambda: batch_of(sized(b"\0" * 5), RECORDS, Kind(count=1)),
    "a negative length": lambda: batch_of(varint(-5) + body(), RECORDS, Kind(count=1)),
    "a record with a byte too many": lambda: batch_of(sized(body() + b"\0"), RECORDS, Kind(count=1)),
    "headers that are not there": lambda: batch_of(sized(body(RECORDS[0]._replace(headers=()))[:-1] + b"\2"), RECORDS),
    "a key that is longer than the record": lambda: batch_of(sized(b"\0\0\0" + varint(100) + b"k\1\0"), RECORDS),
    "a value that is longer than the record": lambda: batch_of(sized(b"\0\0\0\1" + varint(1 << 40) + b"v\0"), RECORDS),
    "a length below null": lambda: batch_of(sized(b"\0\0\0" + varint(-2) + b"\1\0"), RECORDS),
    "more headers than fit": lambda: batch_of(sized(b"\0\0\0\1\1" + varint(1 << 50)), RECORDS),
    "fewer headers than none": lambda: batch_of(sized(b"\0\0\0\1\1" + varint(-1)), RECORDS),
    "a header without a name": lambda: batch_of(sized(b"\0\0\0\1\1\2" + varint(-1) + b"\1"), RECORDS),
    "an endless number": lambda: batch_of(b"\xff" * 40, RECORDS),
    "an offset behind that of the batch": lambda: batch([*RECORDS[:2], RECORDS[2]._replace(offset=15)], Kind(last=12)),
    "an offset before the batch": lambda: batch([RECORDS[0]._replace(offset=8), *RECORDS[1:]], Kind(base=10)),
    "an offset twice": lambda: batch([RECORDS[0], RECORDS[0], RECORDS[2]]),
}


@pytest.mark.parametrize("made", WRONG.values(), ids=WRONG)
def test_records_that_are_none_are_named(fault_of: FaultOf, made: Callable[[], bytes]) -> None:
    error = fault_of(made())
    assert error.message == "a batch of records is damaged: a record cannot be read"
    assert error.where == "topic t, partition 0, offset 10"


@pytest.mark.parametrize("offsets", [(30, 32), (5, 7), (-3, -1), (12, 10)])
def test_batches_out_of_order_are_named(fault_of: FaultOf, offsets: tuple[int, int]) -> None:
    base, last = offsets
    error = fault_of(batch([], Kind(base=base, last=last)))
    assert "a batch of records is damaged" in error.message


def test_a_batch_behind_the_end_of_the_log_is_damaged() -> None:
    behind = batch([Record(1 << 40, b"v")])
    with made_log([behind], end=5) as cluster:
        cluster.logs["t", 0].read = lambda *_: behind  # type: ignore[method-assign]
        with pytest.raises(UnavailableError, match="damaged: its offset is behind the end of the log"):
            read_of(cluster.servers, 0, 5)


@pytest.mark.parametrize("size", [0, 13, 48, -1, -(1 << 31)])
def test_a_length_that_no_batch_has_is_named(fault_of: FaultOf, size: int) -> None:
    struck = bytearray(batch(RECORDS))
    struct.pack_into(">i", struck, 8, size)
    error = fault_of(bytes(struck))
    assert error.message == "a batch of records is damaged: its length is none"
    assert error.where == "topic t, partition 0, offset 10"


@pytest.mark.usefixtures("impatient")
def test_a_length_that_is_too_large_is_waited_for_and_then_named(fault_of: FaultOf) -> None:
    struck = bytearray(batch(RECORDS))
    struct.pack_into(">i", struck, 8, 1 << 30)
    error = fault_of(bytes(struck))
    assert "does not send the next batch as a whole" in error.message
    assert error.where == "topic t, partition 0, offset 10"


OLDER = [Record(offset, b"value %d" % offset, b"key" if offset % 2 else None, 1000 + offset) for offset in range(10)]


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("start", "end"), [(0, 20), (3, 20), (0, 7), (4, 6), (9, 11), (10, 12)])
def test_messages_of_formats_before_0_11(magic: int, codec: int, start: int, end: int) -> None:
    sets = [*older(magic, OLDER[:5], codec), *older(magic, OLDER[5:], codec)]
    with made_log([*sets, batch([Record(n, b"new") for n in range(10, 20)])]) as cluster:
        rows = read_of(cluster.servers, start, end)
    expected = [
        (one.offset, one.key, one.value, one.timestamp_ms * 1000 if magic else None)
        for one in OLDER
        if start <= one.offset < end
    ]
    assert [(r.offset, r.key, r.value, r.timestamp) for r in rows if r.offset < 10] == expected
    assert [row.offset for row in rows] == list(range(start, end))


def test_frames_of_lz4_had_another_checksum_in_the_oldest_format() -> None:
    [whole] = older(0, OLDER, LZ4)
    frame = whole.index(b"\x04\x22\x4d\x18")
    has_size = whole[frame + 4] & 0x08
    checksum = frame + (14 if has_size else 6)
    made = _rechecked(whole[:checksum] + bytes([whole[checksum] ^ 0x55]) + whole[checksum + 1 :])
    with made_log([made]) as cluster:
        assert [row.value for row in read_of(cluster.servers, 0, 10)] == [one.value for one in OLDER]


def _rechecked(message: bytes) -> bytes:
    return message[:12] + struct.pack(">I", zlib.crc32(message[16:])) + message[16:]


def test_of_append_time_all_messages_have_that_of_the_one_around_them() -> None:
    with made_log(older(1, OLDER, GZIP, is_append_time=True)) as cluster:
        assert {row.timestamp for row in read_of(cluster.servers, 0, 10)} == {1009 * 1000}


def test_messages_are_cut_like_records() -> None:
    some = [Record(0, b"small"), Record(1, bytes(5000)), Record(2, None)]
    wanted = Wanted(COLUMNS, most_value_bytes=4999, most_records=2)
    with made_log(older(1, some, GZIP)) as cluster:
        rows = read_of(cluster.servers, 0, 3, wanted)
    assert [(row.value, row.left_out) for row in rows] == [(b"small", 0), (None, 5000), (None, 0)]


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_every_byte_of_a_message_that_is_damaged_is_noticed(codec: int, cluster: MadeCluster) -> None:
    [whole] = older(1, OLDER[:1] if codec == NONE else OLDER, codec)
    last = OLDER[0 if codec == NONE else -1].offset
    struck = bytearray(whole)
    log = cluster.add("t", 0, [], end=last + 1)
    log.read = lambda *_: bytes(struck)  # type: ignore[method-assign]
    for at in (*range(9), *range(12, len(whole))):
        struck[:] = whole
        struck[at] ^= 0x80
        with pytest.raises(UnavailableError, match="a batch of records is damaged"):
            read_of(cluster.servers, 0, last + 1)


def test_the_batch_that_ends_a_range_is_checked_as_well(fault_of: FaultOf) -> None:
    struck = bytearray(batch(RECORDS, PLAIN))
    struck[30] ^= 1
    assert "checksum" in fault_of(bytes(struck), 9, 12).message
