"""What is read of records: every field, in any batches, from made brokers."""

from __future__ import annotations

from collections.abc import Generator

import pyarrow as pa
import pytest

from frazil.kafka.fetch.columns import LEFT_OUT, Wanted
from frazil.kafka.fetch.ranges import read_ranges
from frazil.kafka.port import timestamp_of
from frazil.types import OffsetRange
from tests.fixtures.made_brokers import MadeCluster, made_log
from tests.fixtures.range_reads import ALL, COLUMNS, client_of, offsets_of, read, read_of, rows_of
from tests.fixtures.record_batches import APPEND_TIME, CODECS, Kind, Record, batch

EXTREMES = [-(2**63), -(2**62), -1_000_000, -2, -1, 0, 1, 1_790_000_000_000, 2**53, 2**62, 2**63 - 1]


def times(record_times: list[int], kind: Kind, first_ms: int) -> list[int | None]:
    records = [Record(n, timestamp_ms=ms) for n, ms in enumerate([first_ms, *record_times])]
    with made_log([batch(records, kind)]) as cluster:
        return [row.timestamp for row in read_of(cluster.servers, 1, len(records))]


def micros(ms: int) -> int | None:
    found = timestamp_of(ms)
    return None if found is None else found * 1000


@pytest.mark.parametrize("first_ms", [0, 1_790_000_000_000, -1])
def test_a_time_of_any_value(first_ms: int) -> None:
    some = [ms for ms in EXTREMES if -(2**63) <= ms - first_ms < 2**63]
    assert times(some, Kind(), first_ms) == [micros(ms) for ms in some]


@pytest.mark.parametrize("most_ms", [-1, 0, -5, 1_790_000_000_000, 2**63 - 1])
def test_a_time_of_the_log_is_that_of_the_batch(most_ms: int) -> None:
    assert times([1, 2], Kind(attributes=APPEND_TIME, most_ms=most_ms), 0) == [micros(most_ms)] * 2


FIELDS = [
    Record(0, None, None),
    Record(1, b"", b""),
    Record(2, b"v", b"k", headers=[(b"a", b"1"), (b"a", None), (b"", b""), (b"a", b"1")]),
    Record(3, b"w" * 300, None, headers=[(b"\xff\xfe", b"\xff"), ("größe".encode(), b"2")]),
    Record(4, b"x", b"k" * 200, headers=[(b"b", b"3")]),
]
HEADERS = [
    None,
    None,
    [("a", b"1"), ("a", None), ("", b""), ("a", b"1")],
    [("\ufffd\ufffd", b"\xff"), ("größe", b"2")],
    [("b", b"3")],
]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_keys_values_and_headers(codec: int) -> None:
    with made_log([batch(FIELDS, Kind(codec))]) as cluster:
        rows = read_of(cluster.servers, 0, 5)
    assert [(row.key, row.value, row.headers) for row in rows] == [
        (one.key, one.value, headers) for one, headers in zip(FIELDS, HEADERS, strict=True)
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("a",), [None, None, [("a", b"1"), ("a", None), ("a", b"1")], None, None]),
        (("b", "größe"), [None, None, None, [("größe", b"2")], [("b", b"3")]]),
        (("", "c", "aa"), [None, None, [("", b"")], None, None]),
    ],
)
def test_only_the_headers_that_are_wanted(names: tuple[str, ...], expected: list[object]) -> None:
    with made_log([batch(FIELDS)]) as cluster:
        rows = read_of(cluster.servers, 0, 5, Wanted(COLUMNS, headers=names))
    assert [row.headers for row in rows] == expected


def test_more_headers_than_any_buffer_has_room_for() -> None:
    many = [(b"name %d" % n, None if n % 3 else b"%d" % n) for n in range(70_000)]
    records = [Record(0, b"a", headers=many[:5]), Record(1, b"b", headers=many), Record(2, b"c", headers=many[:7])]
    with made_log([batch(records)]) as cluster:
        rows = read_of(cluster.servers, 0, 3)
    assert [(row.value, row.headers) for row in rows] == [
        (one.value, [(name.decode(), content) for name, content in one.headers]) for one in records
    ]


def test_values_keys_and_headers_larger_than_any_buffer() -> None:
    large = bytes(9_000_000)
    records = [
        Record(0, b"a"),
        Record(1, large, b"k"),
        Record(2, b"b", large),
        Record(3, None, None, headers=[(b"h", large), (large[:20], b"")]),
        Record(4, b"c"),
    ]
    with made_log([batch(records)]) as cluster:
        rows = read_of(cluster.servers, 0, 5)
        assert [(row.value, row.key) for row in rows] == [(one.value, one.key) for one in records]
        assert [len(row.headers or ()) for row in rows] == [0, 0, 0, 2, 0]
        cut = read_of(cluster.servers, 0, 5, Wanted(COLUMNS, most_value_bytes=8_999_999))
    assert [(row.value, row.left_out) for row in cut] == [
        (b"a", 0), (None, 9_000_000), (b"b", 0), (None, 0), (b"c", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "columns", [("value",), ("offset",), ("partition", "timestamp", "value"), ("headers", "key"), ("topic", "offset")]
)
def test_only_the_columns_that_are_wanted_in_their_order(columns: tuple[str, ...]) -> None:
    with made_log([batch(FIELDS)]) as cluster, client_of(cluster.servers) as client:
        [found] = read_ranges(client, [OffsetRange("t", 0, 0, 5)], Wanted(columns, most_value_bytes=100))
        [whole] = read_ranges(client, [OffsetRange("t", 0, 0, 5)], ALL)
    has_left_out = (LEFT_OUT,) if "value" in columns else ()
    assert tuple(found.schema.names) == columns + has_left_out
    for name in set(columns) - {"value"}:
        assert found.column(name).equals(whole.column(name))


def test_types_are_those_that_are_promised() -> None:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    expected = [
        pa.string(), pa.int32(), pa.int64(), pa.timestamp("us", "UTC"), pa.binary(), pa.binary(), headers,
    ]  # fmt: skip
    with made_log([batch(FIELDS)]) as cluster, client_of(cluster.servers) as client:
        for found in read_ranges(client, [OffsetRange("t", 0, 0, 5)], ALL):
            assert found.schema.types == expected


def test_batches_of_one_record_of_one_byte() -> None:
    count = 9_000
    with made_log([batch([Record(n, b"x")]) for n in range(count)]) as cluster, client_of(cluster.servers) as client:
        wanted = Wanted(COLUMNS, most_records=4_000)
        found = list(read_ranges(client, [OffsetRange("t", 0, 1, count)], wanted))
    assert [one.num_rows for one in found] == [4_000, 4_000, count - 8_001]
    assert [offset for one in found for offset in one.column("offset").to_pylist()] == list(range(1, count))


@pytest.mark.parametrize("most", [1, 2, 3, 7, 100])
def test_no_more_records_are_handed_over_at_a_time(most: int) -> None:
    log = [batch([Record(n, b"v%d" % n) for n in range(start, start + 5)]) for start in range(0, 50, 5)]
    with made_log(log) as cluster, client_of(cluster.servers) as client:
        found = list(read_ranges(client, [OffsetRange("t", 0, 2, 49)], Wanted(COLUMNS, most_records=most)))
    assert max(one.num_rows for one in found) <= most
    assert [row.value for one in found for row in rows_of(one)] == [b"v%d" % n for n in range(2, 49)]


def many(cluster: MadeCluster) -> list[OffsetRange]:
    for topic in "abc":
        for partition in range(4):
            value = f"{topic}{partition}".encode()
            log = [batch([Record(n, value * 1000), Record(n + 1, value)]) for n in range(0, 40, 2)]
            cluster.add(topic, partition, log, leader=1 + partition % len(cluster.ports))
    return [OffsetRange(topic, partition, partition, 40 - partition) for partition in range(4) for topic in "bac"]


@pytest.mark.parametrize("brokers", [1, 3])
def test_several_topics_and_partitions_in_one_read(brokers: int) -> None:
    with MadeCluster(brokers) as cluster, client_of(cluster.servers) as client:
        ranges = many(cluster)
        found = list(read_ranges(client, ranges, ALL))
        rows = [row for one in found for row in rows_of(one)]
    assert all(len(set(one.column("topic").to_pylist())) == 1 for one in found)
    assert offsets_of(rows) == {(r.topic, r.partition): list(range(r.start, r.end)) for r in ranges}
    assert all((row.value or b"") in {f"{row.topic}{row.partition}".encode() * n for n in (1, 1000)} for row in rows)


def test_reads_of_one_client_one_after_the_other_and_after_one_that_was_left() -> None:
    with MadeCluster(3) as cluster, client_of(cluster.servers) as client, client_of(cluster.servers) as other:
        ranges = many(cluster)
        expected = {(r.topic, r.partition): list(range(r.start, r.end)) for r in ranges}
        for _ in range(3):
            left = read_ranges(client, ranges, Wanted(COLUMNS, most_records=3))
            assert isinstance(left, Generator)
            next(left)
            beside = read_ranges(other, ranges, Wanted(COLUMNS, most_records=50))
            rows = rows_of(next(beside))
            left.close()
            assert offsets_of(read(client, ranges)) == expected
            assert offsets_of([*rows, *(row for one in beside for row in rows_of(one))]) == expected
            assert offsets_of(read(client, ranges[:2])) == dict(list(expected.items())[:2])


def test_what_was_handed_over_stays_as_it_was() -> None:
    log = [batch([Record(n, b"v%d" % n, b"k%d" % n, headers=[(b"h%d" % n, b"x")])]) for n in range(30)]
    with made_log(log) as cluster, client_of(cluster.servers) as client:
        found = list(read_ranges(client, [OffsetRange("t", 0, 0, 30)], Wanted(COLUMNS, most_records=7)))
    rows = [row for one in found for row in rows_of(one)]
    assert [(row.offset, row.key, row.value, row.headers) for row in rows] == [
        (n, b"k%d" % n, b"v%d" % n, [(f"h{n}", b"x")]) for n in range(30)
    ]
