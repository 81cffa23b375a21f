"""Records and topics that go while they are read, from a made broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import UnavailableError
from frazil.kafka.fetch import cluster as clusters
from frazil.types import OffsetRange
from tests.fixtures.made_brokers import MadeCluster, Partition, made_log
from tests.fixtures.range_reads import client_of, offsets_of, read, read_and_fail, read_of
from tests.fixtures.record_batches import Kind, Record, batch

OLD, NEW = b"old" * 1000, b"new" * 1000
PART = ("t", 0)
WITHOUT_IDS = {3: 9, 1: 12}
IDS_OF_TOPICS_ALONE = {1: 12}
CREATED_AGAIN = "the topic was deleted and created again while it was read"


def log(value: bytes, count: int, epoch: int = 0) -> list[bytes]:
    return [batch([Record(offset, value)], Kind(epoch=epoch)) for offset in range(count)]


def recreate(cluster: MadeCluster, count: int, epoch: int = 0) -> None:
    cluster.ids["t"] = uuid.UUID(int=cluster.ids["t"].int + 100)
    cluster.add("t", 0, log(NEW, count, epoch), epoch=epoch)


def at_request(number: int, act: Callable[[], None]) -> Callable[..., Any]:
    """Acts before the request of this number is answered."""

    def answer(_broker: int, found: int, request: Any, made: Any) -> Any:  # noqa: ARG001
        if found == number:
            act()
        return made

    return answer


def in_pieces(cluster: MadeCluster) -> None:
    """Answers no more than 100 records."""
    before = cluster._fetched

    def fetched(request: Any) -> Any:
        request.max_bytes = 100 * 3100
        return before(request)

    cluster._fetched = fetched  # type: ignore[method-assign]


def test_records_that_no_longer_exist_are_named() -> None:
    with made_log(log(OLD, 50)) as cluster:
        cluster.logs[PART].start = 20
        for start, end, gone in ((5, 40, 20), (0, 10, 10)):
            with pytest.raises(UnavailableError) as raised:
                read_of(cluster.servers, start, end)
            assert raised.value.message == f"the records from offset {start} up to {gone} no longer exist"
            assert raised.value.where == f"topic t, partition 0, offset {start}"
        assert [row.offset for row in read_of(cluster.servers, 20, 22)] == [20, 21]


@pytest.mark.parametrize("version", [4, 11, 17])
def test_records_that_go_while_they_are_read_are_named(version: int) -> None:
    with MadeCluster(versions={1: version}) as cluster:
        cluster.add("t", 0, log(OLD, 400))
        in_pieces(cluster)
        cluster.answer = at_request(1, lambda: setattr(cluster.logs[PART], "start", 250))
        with pytest.raises(UnavailableError, match=r"the records from offset \d+ up to 250 no longer exist"):
            read_of(cluster.servers, 0, 400)


def test_records_behind_what_has_gone_are_no_answer() -> None:
    with made_log(log(OLD, 10)) as cluster:

        def skips(_broker: int, _number: int, _request: Any, made: Any) -> Any:
            made.responses[0].partitions[0].log_start_offset = 5
            return made

        cluster.answer = skips
        with pytest.raises(UnavailableError, match="the records from offset 2 up to 5 no longer exist"):
            read_of(cluster.servers, 2, 10)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("versions", [{}, IDS_OF_TOPICS_ALONE, WITHOUT_IDS], ids=["ids", "some", "none"])
def test_a_topic_that_is_deleted_while_it_is_read_is_an_error(versions: dict[int, int]) -> None:
    with MadeCluster(versions=versions) as cluster:
        cluster.add("t", 0, log(OLD, 400))
        in_pieces(cluster)
        cluster.answer = at_request(1, cluster.logs.clear)
        with client_of(cluster.servers) as client:
            _, error = read_and_fail(client, [OffsetRange("t", 0, 0, 400)])
        assert "unknown topic" in error.message
        assert error.where.startswith("topic t, partition 0, offset ")


@pytest.mark.parametrize("count", [60, 400, 1000])
@pytest.mark.parametrize("versions", [{}, IDS_OF_TOPICS_ALONE], ids=["ids", "some"])
def test_a_topic_that_is_created_again_while_it_is_read_is_an_error(versions: dict[int, int], count: int) -> None:
    with MadeCluster(versions=versions) as cluster:
        cluster.add("t", 0, log(OLD, 400))
        in_pieces(cluster)
        cluster.answer = at_request(2, lambda: recreate(cluster, count))
        with client_of(cluster.servers) as client:
            rows, error = read_and_fail(client, [OffsetRange("t", 0, 0, 400)])
        assert error.message == CREATED_AGAIN
        assert error.where.startswith("topic t, partition 0, offset ")
    assert {row.value for row in rows} <= {OLD}


def test_without_ids_a_log_of_an_older_epoch_is_another_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_METADATA_VERSION", 9)
    with MadeCluster(versions=WITHOUT_IDS) as cluster:
        cluster.add("t", 0, log(OLD, 400, epoch=3), epoch=3)
        in_pieces(cluster)
        cluster.answer = at_request(1, lambda: recreate(cluster, 1000))
        with pytest.raises(UnavailableError, match="the log was replaced by another one while it was read"):
            read_of(cluster.servers, 0, 400)


def test_a_second_partition_of_a_recreated_topic_is_not_read_behind_the_first() -> None:
    with MadeCluster(brokers=2) as cluster:
        cluster.add("t", 0, log(OLD, 10))
        cluster.add("t", 1, log(OLD, 10), leader=2)

        def answer(broker: int, _number: int, request: Any, made: Any) -> Any:
            if broker == 2 and cluster.ids["t"].int < 100:
                cluster.ids["t"] = uuid.UUID(int=100)
                return cluster._fetched(request)
            return made

        cluster.answer = answer
        with client_of(cluster.servers) as client, pytest.raises(UnavailableError, match=CREATED_AGAIN):
            read(client, [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 0, 10)])


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("versions", [{}, IDS_OF_TOPICS_ALONE, WITHOUT_IDS], ids=["ids", "some", "none"])
def test_a_client_that_knew_the_old_topic_reads_the_new_one(versions: dict[int, int]) -> None:
    with MadeCluster(versions=versions) as cluster, client_of(cluster.servers) as client:
        cluster.add("t", 0, log(OLD, 20))
        places = [OffsetRange("t", 0, 0, 10)]
        assert {row.value for row in read(client, places)} == {OLD}
        recreate(cluster, 10)
        rows = read(client, places)
        assert {row.value for row in rows} == {NEW}
        assert offsets_of(rows) == {PART: list(range(10))}
        recreate(cluster, 5)
        with pytest.raises(UnavailableError, match=r"the log ends at offset 5|out of range"):
            read(client, places)


def test_a_log_that_was_truncated_is_an_error() -> None:
    with made_log(log(OLD, 400)) as cluster:
        in_pieces(cluster)

        def diverges(_broker: int, number: int, request: Any, made: Any) -> Any:
            assert request.topics[0].partitions[0].last_fetched_epoch == (-1 if number == 1 else 0)
            if number > 1:
                part = made.responses[0].partitions[0]
                part.records = b""
                part.diverging_epoch = Partition.EpochEndOffset(epoch=0, end_offset=7)
            return made

        cluster.answer = diverges
        with pytest.raises(UnavailableError, match="the log was truncated at offset 7"):
            read_of(cluster.servers, 0, 400)
