"""Ranges of a real broker's logs with gaps, transactions and records that go while they are read."""

from __future__ import annotations

import pytest

from frazil.errors import UnavailableError
from frazil.kafka.fetch import cluster as clusters
from frazil.runtime.broker import EmbeddedBroker
from frazil.types import OffsetRange
from tests.fixtures.range_reads import client_of, read, read_and_fail
from tests.integration.kafka_fetch.logs import COMPACTED, Written

LEVELS = ("read_committed", "read_uncommitted")


def offsets(log: Written, start: int, end: int, **more: str) -> list[int]:
    with client_of(log.servers, **more) as client:
        return [row.offset for row in read(client, [OffsetRange(log.name, 0, start, end)])]


def test_any_range_of_a_compacted_log(broker: EmbeddedBroker) -> None:
    log = Written(broker, properties=COMPACTED)
    for key in (b"a", b"b", b"a", b"c", b"c", b"a", b"c"):
        log.write(key, b"more of it", key=key)
    log.compacted_to([3, 11, 13])
    kept, last, end = [3, 11, 13], 13, log.bounds()[1]
    for start in range(last + 1):
        for stop in [*range(start, last + 2), end]:  # Those that follow are compacted meanwhile.
            found = [offset for offset in offsets(log, start, stop) if offset <= last]
            assert found == [offset for offset in kept if start <= offset < stop]


def test_any_range_of_interleaved_transactions(broker: EmbeddedBroker) -> None:
    log = Written(broker)
    with log.transaction("a") as a:
        a(b"0", b"1")
        with log.transaction("b", is_kept=False) as b:
            b(b"2")
            a(b"3")
            log.write(b"4")
            b(b"5", b"6")
        a(b"8")
        with log.transaction("b") as b:
            b(b"9")
    with log.transaction("a", is_kept=False) as a, log.transaction("b", is_kept=False) as b:
        a(b"a1")
        b(b"b1")
        a(b"a2")
        log.write(b"plain")
    end = log.bounds()[1]
    for level in LEVELS:
        kept = [one[0] for one in log.consumed(level)]
        for start in range(end):
            for stop in (start + 1, (start + end) // 2, end):
                found = offsets(log, start, stop, isolation_level=level)
                assert found == [offset for offset in kept if start <= offset < stop], (level, start, stop)


def test_an_open_transaction_is_waited_for(broker: EmbeddedBroker) -> None:
    log = Written(broker)
    log.write(b"0")
    with log.transaction("a") as a:
        a(b"1")
        log.write(b"2")
        with pytest.raises(UnavailableError, match="an open transaction begins at offset 1, before the end"):
            offsets(log, 0, 3)
        assert offsets(log, 0, 3, isolation_level="read_uncommitted") == [0, 1, 2]
    assert offsets(log, 0, 3) == [0, 1, 2]


def test_records_that_retention_takes_while_they_are_read(broker: EmbeddedBroker) -> None:
    log = Written(broker)
    log.write_alone(*(bytes(100_000) for _ in range(250)))
    log.topics.delete_records(log.name, {0: 5})
    with pytest.raises(UnavailableError, match="the records from offset 2 up to 5 no longer exist") as raised:
        offsets(log, 2, 250)
    assert raised.value.where == f"topic {log.name}, partition 0, offset 2"
    with client_of(log.servers) as client:
        rows, error = read_and_fail(
            client, [OffsetRange(log.name, 0, 5, 250)], lambda: log.topics.delete_records(log.name, {0: 240})
        )
    assert [row.offset for row in rows] == list(range(5, 5 + len(rows)))
    assert 0 < len(rows) < 235
    assert error.message.endswith(" up to 240 no longer exist")


@pytest.mark.parametrize("version", [17, 12], ids=["ids", "names"])
def test_a_topic_that_is_created_again_while_it_is_read(
    broker: EmbeddedBroker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "MOST_VERSION", version)
    log = Written(broker)
    log.write_alone(*(b"old" + bytes(100_000) for _ in range(200)))

    def recreate() -> None:
        log.topics.recreate(log.name, 1)
        log.write_alone(*(b"new" + bytes(100_000) for _ in range(220)))

    with client_of(log.servers) as client:
        rows, error = read_and_fail(client, [OffsetRange(log.name, 0, 0, 200)], recreate)
        assert error.message == "the topic was deleted and created again while it was read"
        assert {(row.value or b"")[:3] for row in rows} == {b"old"}
        # The same client reads the new one.
        assert {(row.value or b"")[:3] for row in read(client, [OffsetRange(log.name, 0, 0, 3)])} == {b"new"}


def test_a_topic_that_is_deleted_while_it_is_read(broker: EmbeddedBroker) -> None:
    log = Written(broker)
    log.write_alone(*(bytes(100_000) for _ in range(250)))
    with client_of(log.servers) as client:
        _, error = read_and_fail(client, [OffsetRange(log.name, 0, 0, 250)], lambda: log.topics.delete(log.name))
    assert "unknown topic" in error.message
    assert error.where == f"topic {log.name}, partition 0, offset {error.where.rpartition(' ')[2]}"
