"""What a range is when records in it are gone, are none for a reader, or have not come yet; from a made broker."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.errors import UnavailableError
from frazil.types import OffsetRange
from tests.fixtures.made_brokers import MadeCluster, made_log
from tests.fixtures.range_reads import ALL, client_of, offsets_of, read, read_of
from tests.fixtures.record_batches import PLAIN, TRANSACTIONAL, Kind, Record, batch, marker

PART = ("t", 0)


def plain(*offsets: int, kind: Kind = PLAIN) -> bytes:
    return batch([Record(offset, b"%d" % offset) for offset in offsets], kind)


def of(producer: int, *offsets: int) -> bytes:
    return plain(*offsets, kind=Kind(attributes=TRANSACTIONAL, producer=producer))


def offsets(servers: str, start: int, end: int, **more: str) -> list[int]:
    return [row.offset for row in read_of(servers, start, end, ALL, **more)]


@pytest.mark.parametrize(("start", "end"), [(0, 60), (3, 55), (10, 41), (12, 13), (41, 60), (20, 39), (1, 2)])
def test_records_that_were_compacted_are_gaps_wherever_they_were(start: int, end: int) -> None:
    kept = [*range(0, 2), 4, 9, *range(12, 14), 40, 41, 55, 60, 61]
    # A batch keeps its last offset when its last records go; and one may have no records any more.
    batches = [
        plain(0, 1, 4),
        plain(9, kind=Kind(base=8, last=11)),
        plain(12, 13, kind=Kind(last=19)),
        batch([], Kind(base=30, last=35)),
        plain(40, 41),
        plain(55, 60, 61, kind=Kind(base=50)),
    ]
    with made_log(batches) as cluster:
        assert offsets(cluster.servers, start, end) == [offset for offset in kept if start <= offset < end]


def test_a_range_whose_records_are_all_gone_ends_where_others_follow() -> None:
    with made_log([plain(0), plain(90)]) as cluster:
        assert offsets(cluster.servers, 5, 80) == []
        assert len(cluster.fetches()) == 1


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_a_gap_at_the_end_of_the_log_is_the_end_of_the_range(level: str) -> None:
    with made_log([plain(0, 1, 2)], end=10) as cluster:
        assert offsets(cluster.servers, 1, 10, isolation_level=level) == [1, 2]
        assert offsets(cluster.servers, 5, 9, isolation_level=level) == []


def test_a_gap_before_an_open_transaction_is_no_part_of_it() -> None:
    with made_log([plain(0, 1), of(7, 10, 11)], stable=10) as cluster:
        assert offsets(cluster.servers, 0, 10) == [0, 1]


@pytest.mark.usefixtures("impatient")
def test_an_answer_without_records_of_one_that_has_them_elsewhere_is_no_gap() -> None:
    with made_log([plain(0, 1)], end=10) as cluster:
        log = cluster.logs["t", 0]
        real = cluster._offsets

        def from_afar(request: Any) -> Any:
            made = real(request)
            made.topics[0].partitions[0].offset = 10  # The first offset that the broker itself has.
            return made

        cluster._offsets = from_afar  # type: ignore[method-assign]
        with pytest.raises(UnavailableError, match="sends none of the records that it has"):
            offsets(cluster.servers, 0, 10)
        log.batches.append(plain(5, 9))
        assert offsets(cluster.servers, 0, 10) == [0, 1, 5, 9]


def test_a_broker_that_does_not_tell_what_it_has_is_asked_three_times() -> None:
    with MadeCluster(versions={2: 7}) as cluster:
        cluster.add("t", 0, [plain(0, 1)], end=10)
        assert offsets(cluster.servers, 0, 10) == [0, 1]
        assert [r.topics[0].partitions[0].fetch_offset for r in cluster.fetches()] == [0, 2, 2, 2]


def test_partitions_for_which_an_answer_has_no_room_lose_nothing() -> None:
    value = bytes(900_000)
    with MadeCluster() as cluster:
        for partition in range(30):
            cluster.add("t", partition, [batch([Record(offset, value)]) for offset in range(3)])
        cluster.add("u", 0, [batch([Record(0, bytes(17_000_000))]), plain(1)])
        ranges = [*(OffsetRange("t", n, 0, 3) for n in range(30)), OffsetRange("u", 0, 0, 2)]
        with client_of(cluster.servers) as client:
            found = offsets_of(read(client, ranges))
    assert found == {**{("t", n): [0, 1, 2] for n in range(30)}, ("u", 0): [0, 1]}


def test_control_records_are_no_records_at_either_end_of_a_range() -> None:
    batches = [of(7, 0, 1), marker(2, 7, is_commit=True), plain(3), of(7, 4), marker(5, 7, is_commit=True)]
    with made_log(batches) as cluster:
        for level in ("read_committed", "read_uncommitted"):
            assert offsets(cluster.servers, 0, 6, isolation_level=level) == [0, 1, 3, 4]
            assert offsets(cluster.servers, 2, 3, isolation_level=level) == []
            assert offsets(cluster.servers, 2, 4, isolation_level=level) == [3]
            assert offsets(cluster.servers, 5, 6, isolation_level=level) == []


def test_aborted_transactions_of_several_producers_leave_the_others() -> None:
    batches = [
        of(1, 0, 1),
        of(2, 2, 3),
        of(1, 4),
        marker(5, 1, is_commit=False),
        plain(6),
        of(1, 7),  # The next one of the same producer.
        of(2, 8),
        marker(9, 1, is_commit=True),
        of(1, 10),
        marker(11, 2, is_commit=True),
        marker(12, 1, is_commit=False),
        of(3, 13),
        marker(14, 3, is_commit=True),
    ]
    aborted = [(1, 10, 12), (1, 0, 5)]
    committed, all_of_them = [2, 3, 6, 7, 8, 13], [0, 1, 2, 3, 4, 6, 7, 8, 10, 13]
    with made_log(batches, aborted=aborted) as cluster:
        for start in range(15):
            for end in range(start, 16):
                found = offsets(cluster.servers, start, min(end, 15))
                assert found == [offset for offset in committed if start <= offset < end]
        assert offsets(cluster.servers, 0, 15, isolation_level="read_uncommitted") == all_of_them


def test_a_control_batch_that_was_emptied_ends_nothing() -> None:
    emptied = batch([], Kind(attributes=TRANSACTIONAL | 0x20, producer=1, base=3, last=3))
    batches = [of(1, 0), emptied, of(1, 4), marker(5, 1, is_commit=False), plain(6)]
    with made_log(batches, aborted=[(1, 0, 5)]) as cluster:
        assert offsets(cluster.servers, 0, 7) == [6]


@pytest.mark.usefixtures("impatient")
def test_an_open_transaction_is_waited_for_and_then_named() -> None:
    with made_log([plain(0), of(7, 1, 2)], stable=1) as cluster:
        with pytest.raises(UnavailableError, match="an open transaction begins at offset 1, before the end") as raised:
            offsets(cluster.servers, 0, 3)
        assert raised.value.where == "topic t, partition 0, offset 1"
        assert offsets(cluster.servers, 0, 3, isolation_level="read_uncommitted") == [0, 1, 2]

        def ends(broker: int, number: int, request: Any, made: Any) -> Any:  # noqa: ARG001
            cluster.logs[PART].batches.append(marker(3, 7, is_commit=True))
            cluster.logs[PART].stable = None
            return made

        cluster.answer = ends
        assert offsets(cluster.servers, 0, 3) == [0, 1, 2]


@pytest.mark.usefixtures("impatient")
def test_the_end_of_the_log_before_that_of_the_range_is_named() -> None:
    with (
        made_log([plain(0, 1)]) as cluster,
        pytest.raises(UnavailableError, match="the log ends at offset 2, before the end of the range at 5"),
    ):
        offsets(cluster.servers, 0, 5)
