"""Brokers that are away, slow, silent or refuse, from made brokers."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from frazil.errors import UnavailableError
from frazil.kafka.fetch import ranges as reading
from frazil.kafka.fetch.cluster import KafkaCluster
from frazil.types import OffsetRange
from tests.fixtures.made_brokers import HOST, Close, MadeCluster, made_log
from tests.fixtures.range_reads import client_of, offsets_of, read, read_and_fail, read_of, settings
from tests.fixtures.record_batches import Record, batch
from tests.integration.servers import Relay

LOG = [batch([Record(offset, b"v" * 1000)]) for offset in range(50)]
WHOLE = {("t", 0): list(range(50))}
PART = ("t", 0)
TRANSIENT = sorted(reading._TRANSIENT)
FATAL = [4, 10, 17, 29, 31, 33, 35, 42, 58, 76, 87, 119]


def answering(count: int, change: Callable[[Any], None]) -> Callable[..., Any]:
    """Changes the partition's first answers."""

    def answer(_broker: int, number: int, _request: Any, made: Any) -> Any:
        if number <= count:
            change(made)
        return made

    return answer


def refused(code: int) -> Callable[[Any], None]:
    def change(made: Any) -> None:
        part = made.responses[0].partitions[0]
        part.error_code, part.records, part.high_watermark = code, b"", -1

    return change


@pytest.mark.parametrize("code", TRANSIENT)
def test_an_error_that_passes_is_none(code: int) -> None:
    with made_log(LOG) as cluster:
        cluster.answer = answering(2, refused(code))
        assert offsets_of(read_of(cluster.servers, 0, 50)) == WHOLE


@pytest.mark.usefixtures("impatient")
def test_an_error_that_does_not_pass_is_named() -> None:
    with made_log(LOG) as cluster:
        cluster.answer = answering(10**9, refused(6))
        with client_of(cluster.servers) as client:
            rows, error = read_and_fail(client, [OffsetRange("t", 0, 3, 50)])
    assert rows == []
    assert error.message == "records have not arrived for 0.9 s: not leader for partition"
    assert error.where == "topic t, partition 0, offset 3"


@pytest.mark.parametrize("code", FATAL)
def test_an_error_that_stays_is_raised_at_once(code: int) -> None:
    with made_log(LOG) as cluster:
        cluster.answer = answering(1, refused(code))
        with client_of(cluster.servers) as client:
            rows, error = read_and_fail(client, [OffsetRange("t", 0, 3, 50)])
        assert len(cluster.fetches()) == 1
    assert rows == []
    assert error.where == "topic t, partition 0, offset 3"


def test_a_right_that_is_missing_is_named_with_its_remedy() -> None:
    with made_log(LOG) as cluster:
        cluster.answer = answering(1, refused(29))
        with pytest.raises(UnavailableError, match="topic authorization failed") as raised:
            read_of(cluster.servers, 0, 50)
        assert raised.value.remedy.startswith("allow this user to DESCRIBE and READ the topic")
        cluster.wrong["t"] = 29
        with pytest.raises(UnavailableError, match="topic authorization failed") as raised:
            read_of(cluster.servers, 0, 50)
        assert raised.value.remedy.startswith("allow this user to DESCRIBE and READ the topic")


def test_a_record_that_its_broker_cannot_read_is_damaged() -> None:
    with made_log(LOG) as cluster:
        cluster.answer = answering(1, refused(2))
        with pytest.raises(
            UnavailableError, match="a batch of records is damaged: its broker cannot read it"
        ) as raised:
            read_of(cluster.servers, 7, 50)
    assert raised.value.where == "topic t, partition 0, offset 7"


def test_an_error_of_the_whole_answer_passes_too() -> None:
    with made_log(LOG) as cluster:
        cluster.answer = answering(2, lambda made: setattr(made, "error_code", 71))
        assert offsets_of(read_of(cluster.servers, 0, 50)) == WHOLE
        cluster.answer = answering(10**9, lambda made: setattr(made, "error_code", 42))
        with pytest.raises(UnavailableError, match="invalid request"):
            read_of(cluster.servers, 0, 50)


@pytest.mark.parametrize("after", [0, 3, 100, 4000])
def test_an_answer_that_ends_in_the_middle_is_asked_for_again(after: int) -> None:
    with made_log(LOG) as cluster:

        def answer(_broker: int, number: int, _request: Any, made: Any) -> Any:
            if number in (1, 2):
                raise Close(after)
            return made

        cluster.answer = answer
        assert offsets_of(read_of(cluster.servers, 0, 50)) == WHOLE


class Garbage:
    """An answer whose fields are none."""

    API_VERSION = 0
    _id = 0

    def with_header(self, correlation: int) -> None:
        self._id = correlation

    def encode(self, **_: Any) -> bytes:
        return struct.pack(">ii", 24, self._id) + b"\xff" * 20


def test_an_answer_that_is_none_is_asked_for_again() -> None:
    with made_log(LOG) as cluster:

        def answer(_broker: int, number: int, _request: Any, made: Any) -> Any:
            if number == 1:
                return Garbage()
            return made

        cluster.answer = answer
        assert offsets_of(read_of(cluster.servers, 0, 50)) == WHOLE


@pytest.mark.usefixtures("impatient")
def test_a_partition_that_is_left_out_is_asked_for_again_and_then_named() -> None:
    with made_log(LOG) as cluster:
        cluster.answer = answering(2, lambda made: made.responses.clear())
        assert offsets_of(read_of(cluster.servers, 0, 50)) == WHOLE
        cluster.answer = answering(10**9, lambda made: made.responses.clear())
        with pytest.raises(UnavailableError, match="leaves the partition out of its answer"):
            read_of(cluster.servers, 0, 50)


def test_a_broker_that_asks_for_patience_gets_it() -> None:
    with made_log(LOG) as cluster:

        def throttled(made: Any) -> None:
            made.throttle_time_ms = 300
            made.responses.clear()

        asked_s = []

        def answer(_broker: int, number: int, _request: Any, made: Any) -> Any:
            asked_s.append(time.monotonic())
            if number <= 4:
                throttled(made)
            return made

        cluster.answer = answer
        # Longer in all than a client waits for a broker that says nothing.
        assert offsets_of(read_of(cluster.servers, 0, 50)) == WHOLE
    assert all(later - earlier > 0.29 for earlier, later in pairwise(asked_s[:5]))


def test_records_come_from_whoever_leads_meanwhile() -> None:
    with MadeCluster(brokers=3) as cluster:
        log = cluster.add("t", 0, LOG)

        def answer(broker: int, number: int, request: Any, made: Any) -> Any:  # noqa: ARG001
            part = made.responses[0].partitions[0]
            if broker != log.leader:
                refused(6)(made)
            elif part.records:
                part.records = LOG[request.topics[0].partitions[0].fetch_offset]  # One at a time.
                log.leader = log.leader % 3 + 1
                log.epoch += 1
            return made

        cluster.answer = answer
        assert offsets_of(read_of(cluster.servers, 0, 30)) == {PART: list(range(30))}


@pytest.mark.usefixtures("impatient")
def test_a_leader_that_is_gone_is_replaced() -> None:
    with MadeCluster(brokers=2) as cluster:
        log = cluster.add("t", 0, LOG, leader=2)

        def answer(broker: int, _number: int, _request: Any, made: Any) -> Any:
            if broker == 2:
                log.leader = 1
                raise Close
            return made

        cluster.answer = answer
        assert offsets_of(read_of(cluster.servers, 0, 50)) == WHOLE
        log.leader = 7  # None of the cluster's.
        with pytest.raises(UnavailableError, match="the broker is not of the cluster now"):
            read_of(cluster.servers, 0, 50)
        log.leader = -1
        with pytest.raises(UnavailableError, match=r"leader not available|the partition has no leader"):
            read_of(cluster.servers, 0, 50)


def test_a_silent_broker_does_not_hold_up_the_others() -> None:
    with MadeCluster(brokers=2) as cluster:
        cluster.add("t", 0, LOG)
        silent = cluster.add("t", 1, LOG, leader=2)
        cluster.silent.add(2)

        def answer(broker: int, number: int, request: Any, made: Any) -> Any:  # noqa: ARG001
            parts = request.topics[0].partitions
            if parts[0].partition == 0 and parts[0].fetch_offset >= 49:
                silent.leader = 1
            return made

        cluster.answer = answer
        ranges = [OffsetRange("t", 0, 0, 50), OffsetRange("t", 1, 0, 50)]
        with client_of(cluster.servers, request_timeout_ms="6000") as client:
            client.refresh(["t"])
            client.leaders["t", 1] = client.leaders["t", 0].__class__(2)
            silent.leader = 1
            found = offsets_of(read(client, ranges))
        assert found == {("t", 0): list(range(50)), ("t", 1): list(range(50))}


@pytest.mark.usefixtures("impatient")
def test_a_broker_that_says_nothing_is_named() -> None:
    with made_log(LOG) as cluster, client_of(cluster.servers) as client:
        client.refresh(["t"])
        client.connection(1)
        cluster.silent.add(1)
        began_s = time.monotonic()
        _, error = read_and_fail(client, [OffsetRange("t", 0, 4, 50)])
        assert time.monotonic() - began_s < 5
    assert error.message.startswith("records have not arrived for 0.9 s: ")
    assert error.where == "topic t, partition 0, offset 4"


def test_a_way_that_falls_silent_in_the_middle_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that stops: what it has sent is a part of an answer."""
    with MadeCluster(brokers=2) as cluster:
        log = cluster.add("t", 0, [batch([Record(n, bytes(1_000_000))]) for n in range(20)], leader=2)
        way = Relay(cluster.ports[2])
        way.join()
        cluster.ports[2] = way.port

        def copy(source: socket.socket, sink: socket.socket) -> None:
            sent = 0
            while content := source.recv(65536):
                sink.sendall(content)
                sent += len(content)
                if sent > 1_500_000:
                    log.leader = 1
                    return

        monkeypatch.setattr(way, "_copy", copy)
        with client_of(cluster.servers, request_timeout_ms="3000") as client:
            assert offsets_of(read(client, [OffsetRange("t", 0, 0, 20)])) == {PART: list(range(20))}
        way.cut()


def test_after_an_answer_that_was_slow_less_is_asked_for() -> None:
    with made_log([batch([Record(n, bytes(100_000))]) for n in range(100)]) as cluster:
        gate = threading.Event()
        with client_of(cluster.servers, request_timeout_ms="3000") as client:
            slow = client._connect

            def connect(*words: Any) -> Any:
                connection = slow(*words)
                receive = connection.receive

                def late(timeout_s: float) -> Any:
                    frame = receive(timeout_s)
                    if len(frame) > 2_000_000 and not gate.is_set():
                        gate.set()
                        time.sleep(timeout_s)
                        raise UnavailableError("the broker does not answer in time", where="broker")
                    return frame

                connection.receive = late  # type: ignore[method-assign]
                return connection

            client._connect = connect
            assert offsets_of(read(client, [OffsetRange("t", 0, 0, 100)])) == {PART: list(range(100))}
        sizes = [one.max_bytes for one in cluster.fetches()]
    assert sizes[0] == reading.MOST_BYTES
    assert sizes[-1] == reading.MOST_BYTES >> 3


def dead_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def test_the_first_of_the_servers_may_be_dead_or_silent() -> None:
    with made_log(LOG) as cluster, socket.create_server((HOST, 0)) as silent:
        for first in (dead_port(), silent.getsockname()[1]):
            assert offsets_of(read_of(f"{HOST}:{first},{cluster.servers}", 0, 50, request_timeout_ms="3000")) == WHOLE


@pytest.mark.usefixtures("impatient")
def test_no_server_at_all_is_named() -> None:
    with pytest.raises(
        UnavailableError, match=r"records have not arrived for 0\.9 s: the broker cannot be connected to"
    ):
        read_of(f"{HOST}:{dead_port()}", 0, 50)


@pytest.mark.parametrize("api", [1, 3])
def test_a_broker_that_is_too_old_is_named_at_once(api: int) -> None:
    with MadeCluster(versions={api: 3}) as cluster:
        cluster.add("t", 0, LOG)
        with pytest.raises(UnavailableError) as raised:
            read_of(cluster.servers, 0, 50)
        assert raised.value.message == "the broker is too old to be read from"
        assert raised.value.remedy == "use Kafka 2.1 or newer"


def test_records_are_read_from_the_replica_that_the_leader_names() -> None:
    with MadeCluster(brokers=2) as cluster:
        cluster.add("t", 0, LOG)

        def answer(broker: int, _number: int, request: Any, made: Any) -> Any:
            assert request.rack_id == "near"
            if broker == 1:
                made.responses[0].partitions[0].preferred_read_replica = 2
                made.responses[0].partitions[0].records = b""
            return made

        cluster.answer = answer
        assert offsets_of(read_of(cluster.servers, 0, 50, client_rack="near")) == WHOLE
        fetches = [broker for broker, one in cluster.requests if hasattr(one, "rack_id")]
        assert fetches[:2] == [1, 2]


@pytest.mark.parametrize("how", ["silent", "lags", "unknown"])
def test_a_replica_that_cannot_be_read_from_sends_readers_back(how: str) -> None:
    with MadeCluster(brokers=2) as cluster:
        cluster.add("t", 0, LOG)
        named: list[int] = []

        def answer(broker: int, _number: int, _request: Any, made: Any) -> Any:
            part = made.responses[0].partitions[0]
            if broker == 1 and len(named) < 2:
                named.append(9 if how == "unknown" else 2)
                part.preferred_read_replica, part.records = named[-1], b""
            elif broker == 2 and how == "silent":
                raise Close
            elif broker == 2:
                refused(1)(made)
            return made

        cluster.answer = answer
        assert offsets_of(read_of(cluster.servers, 0, 50, client_rack="near")) == WHOLE
        assert len(named) == 2


def test_known_brokers_are_asked_for_leaders_when_no_bootstrap_server_answers() -> None:
    with MadeCluster(brokers=2) as cluster:
        log = cluster.add("t", 0, LOG)
        with client_of(cluster.servers) as client:
            assert offsets_of(read(client, [OffsetRange("t", 0, 0, 50)])) == WHOLE
            client._bootstrap = [(HOST, dead_port())]
            log.leader = 2

            def answer(broker: int, _number: int, _request: Any, made: Any) -> Any:
                if broker != log.leader:
                    refused(6)(made)
                return made

            cluster.answer = answer
            assert offsets_of(read(client, [OffsetRange("t", 0, 0, 50)])) == WHOLE


def test_nobody_is_asked_for_nothing() -> None:
    client = KafkaCluster(settings(f"{HOST}:{dead_port()}"))
    assert read(client, []) == []
    assert read(client, [OffsetRange("t", 0, 5, 5)]) == []
