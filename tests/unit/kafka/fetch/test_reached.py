"""How far a partition is read while its records are handed over, and what a lenient read leaves out; from a made broker."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from frazil.errors import UnavailableError
from frazil.kafka.fetch import records
from frazil.kafka.fetch.codecs import NONE, ZSTD
from frazil.kafka.fetch.columns import Wanted
from frazil.kafka.fetch.ranges import read_ranges
from frazil.kafka.reader import KafkaReader
from frazil.types import OffsetRange
from tests.fixtures.made_brokers import MadeCluster, made_log
from tests.fixtures.range_reads import COLUMNS, Row, client_of, rows_of, settings
from tests.fixtures.record_batches import Kind, Record, batch, older

FEW = Wanted(COLUMNS, most_records=3)
_LIST_OFFSETS = 2


def log(*runs: range, codec: int = NONE, value: bytes = b"v") -> list[bytes]:
    """A batch of each run of offsets."""
    return [batch([Record(offset, value) for offset in run], Kind(codec=codec)) for run in runs]


def steps(
    cluster: MadeCluster, *ranges: OffsetRange, wanted: Wanted = FEW, **how: Any
) -> Iterator[tuple[list[Row], dict[tuple[str, int], int]]]:
    """What is handed over at a time, and how far each partition is read by then; at last nothing and the end."""
    reached: dict[tuple[str, int], int] = {}
    with client_of(cluster.servers) as client:
        for found in read_ranges(client, ranges, wanted, reached, **how):
            yield rows_of(found), dict(reached)
    yield [], reached


def offsets(cluster: MadeCluster, start: int, end: int, **how: Any) -> list[int]:
    return [row.offset for rows, _ in steps(cluster, OffsetRange("t", 0, start, end), **how) for row in rows]


@pytest.mark.parametrize("seed", range(20))
def test_nothing_before_what_is_reached_is_still_to_come(seed: int) -> None:
    chance = np.random.default_rng(seed)
    with MadeCluster(brokers=2) as cluster:
        ranges, kept = [], set()
        for number in range(4):
            topic, at = f"t{number % 2}", 0
            batches: list[bytes] = []
            for _ in range(int(chance.integers(1, 6))):
                at += int(chance.integers(0, 5))
                run = range(at, at + int(chance.integers(1, 10)))
                at = run.stop
                kind = int(chance.choice([NONE, ZSTD]))
                some = [Record(offset, b"v") for offset in run]
                is_older = chance.random() < 0.2
                batches += older(1, some) if is_older else [batch(some, Kind(codec=kind))]
                kept |= {(topic, number, offset) for offset in run}
            cluster.add(topic, number, batches, leader=1 + number % 2)
            ranges.append(OffsetRange(topic, number, 0, at))
        seen: set[tuple[str, int, int]] = set()
        for rows, reached in steps(cluster, *ranges):
            seen |= {(row.topic, row.partition, row.offset) for row in rows}
            assert seen == {place for place in kept if place[2] < reached[place[:2]]}
        assert reached == {(r.topic, r.partition): r.end for r in ranges}


def test_a_range_of_nothing_is_reached_at_once() -> None:
    with made_log(log(range(3))) as cluster:
        assert list(steps(cluster, OffsetRange("t", 0, 2, 2))) == [([], {("t", 0): 2})]


def test_a_lenient_read_begins_where_its_log_does_and_ends_where_it_does() -> None:
    with made_log(log(range(5, 9)), start=5) as cluster:
        assert offsets(cluster, 0, 20, is_lenient=True) == [5, 6, 7, 8]
        assert offsets(cluster, 0, 5, is_lenient=True) == []
        assert offsets(cluster, 30, 40, is_lenient=True) == []
        *_, (_, reached) = steps(cluster, OffsetRange("t", 0, 0, 20), is_lenient=True)
        assert reached == {("t", 0): 20}


def test_a_lenient_read_ends_at_an_open_transaction() -> None:
    with made_log(log(range(4), range(4, 9)), stable=4) as cluster:
        assert offsets(cluster, 0, 4, is_lenient=True) == [0, 1, 2, 3]
        assert offsets(cluster, 4, 9, is_lenient=True) == []


def test_a_lenient_read_asks_the_leader_where_a_follower_has_no_more() -> None:
    with MadeCluster(brokers=2) as cluster:
        cluster.add("t", 0, log(range(5)))

        def answer(broker: int, number: int, _request: Any, made: Any) -> Any:
            (one,) = made.responses[0].partitions
            if number == 1:
                one.preferred_read_replica, one.records = 2, b""
            elif broker == 2:
                one.high_watermark = one.last_stable_offset = 0
                one.records = b""
            return made

        cluster.answer = answer
        assert offsets(cluster, 0, 9, is_lenient=True) == [0, 1, 2, 3, 4]


def test_records_that_a_new_leader_lacks_are_waited_for_unless_the_read_is_lenient() -> None:
    with made_log(log(range(3), range(3, 5))) as cluster:

        def answer(_broker: int, number: int, _request: Any, made: Any) -> Any:
            (one,) = made.responses[0].partitions
            if number == 1:
                one.high_watermark = one.last_stable_offset = 3
                one.records = log(range(3))[0]
            elif number == 2:
                one.high_watermark = one.last_stable_offset = 3
                one.records = b""
            return made

        cluster.answer = answer
        assert offsets(cluster, 0, 5) == [0, 1, 2, 3, 4]
        cluster.requests.clear()
        assert offsets(cluster, 0, 5, is_lenient=True) == [0, 1, 2]


@pytest.mark.parametrize(("end", "asked"), [(3, 0), (5, 1)])
def test_records_that_are_appended_while_a_broker_answers_are_read(end: int, asked: int) -> None:
    with made_log(log(range(3), range(3, 5))) as cluster:

        def noted_before(_broker: int, number: int, _request: Any, made: Any) -> Any:
            if number == 1:
                made.responses[0].partitions[0].high_watermark = 3
            return made

        cluster.answer = noted_before
        assert offsets(cluster, 0, end) == list(range(end))
        assert sum(request.API_KEY == _LIST_OFFSETS for _, request in cluster.requests) == asked


def test_records_behind_what_a_follower_notes_are_read_from_the_leader() -> None:
    with MadeCluster(brokers=2) as cluster:
        cluster.add("t", 0, log(range(3), range(3, 5)))

        def answer(broker: int, number: int, _request: Any, made: Any) -> Any:
            (one,) = made.responses[0].partitions
            if number == 1:
                one.preferred_read_replica, one.records = 2, b""
            elif broker == 2:
                one.high_watermark = 3
            return made

        cluster.answer = answer
        assert offsets(cluster, 0, 5) == [0, 1, 2, 3, 4]
        assert not any(broker == 2 and request.API_KEY == _LIST_OFFSETS for broker, request in cluster.requests)


def test_what_nobody_has_any_more_is_no_part_that_was_read() -> None:
    with made_log(log(range(3)), start=0) as cluster:
        reader = KafkaReader(settings(cluster.servers), timeout_s=0.5)
        with pytest.raises(UnavailableError, match=r"records have not arrived for 0.5 s: the log ends at offset 3"):
            reader.read([OffsetRange("t", 0, 0, 5)], 2**30)
        reader.close()


def test_a_batch_that_takes_more_than_is_wanted_ends_its_range_and_no_other() -> None:
    small = Wanted(COLUMNS, most_batch_bytes=1024 * 1024)
    with MadeCluster() as cluster:
        huge = log(range(3, 5), codec=ZSTD, value=b"x" * 9 * 1024 * 1024)
        cluster.add("t", 0, [*log(range(2)), *log(range(2, 3), codec=ZSTD), *huge, *log(range(5, 7))])
        cluster.add("t", 1, log(range(4)))
        ranges = [OffsetRange("t", number, 0, end) for number, end in ((0, 7), (1, 4))]
        *some, (_, reached) = steps(cluster, *ranges, wanted=small)
        found = sorted((row.partition, row.offset) for rows, _ in some for row in rows)
    assert found == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)]
    assert reached == {("t", 0): 7, ("t", 1): 4}


def test_a_large_batch_without_room_on_the_disk_is_an_outage_of_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(records, "_MAPPED_BYTES", 0)
    monkeypatch.setattr(records, "mapped", full)
    with made_log(log(range(3), codec=ZSTD, value=b"x" * 9 * 1024 * 1024)) as cluster:
        reader = KafkaReader(settings(cluster.servers))
        with pytest.raises(UnavailableError, match=r"a large batch of records has no room: No space left on device"):
            reader.read([OffsetRange("t", 0, 0, 3)], 2**30)
        monkeypatch.undo()
        assert len(reader.read([OffsetRange("t", 0, 0, 3)], 2**30)[0]) == 3
        reader.close()


def test_the_reader_stops_after_enough_and_continues_from_there() -> None:
    with made_log(log(range(4000), range(4000, 9000), value=b"v" * 100)) as cluster:
        reader, at, found = KafkaReader(settings(cluster.servers)), 0, []
        while at < 9000:
            some, reached = reader.read([OffsetRange("t", 0, at, 9000)], 100_000)
            found += [record.offset for record in some]
            assert reached["t", 0] == found[-1] + 1
            assert len(some) <= 2000
            at = reached["t", 0]
        reader.close()
    assert found == list(range(9000))
