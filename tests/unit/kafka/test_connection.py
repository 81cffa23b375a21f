"""A connection of a task to a broker: frames as they are sent, and every way in which a peer can fail."""

from __future__ import annotations

import errno
import mmap
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from frazil.errors import UnavailableError
from frazil.kafka.fetch import connection
from frazil.kafka.fetch.cluster import KafkaCluster
from frazil.kafka.fetch.connection import Connection, addresses, connect, is_refusal
from tests.fixtures.broker_script import VERSIONS, Client, ScriptedBroker
from tests.fixtures.certificates import LOOPBACK, Authority, Files

pytestmark = pytest.mark.timeout(60)
Script = Callable[[Client], None]


@contextmanager
def _connected(
    script: Script, settings: dict[str, str] | None = None, files: Files | None = None
) -> Iterator[Connection]:
    """A connection to a broker that tells its versions and then follows the script."""

    def begin(client: Client) -> None:
        client.tell_versions()
        script(client)

    with ScriptedBroker(begin, files) as broker, connect(LOOPBACK, broker.port, settings or {}, 10) as connected:
        yield connected


def _fault(script: Script, timeout_s: float = 10) -> UnavailableError:
    with _connected(script) as connected:
        connected.send(_question())
        with pytest.raises(UnavailableError) as caught:
            connected.receive(timeout_s)
        assert connected.fileno() == -1, "it cannot be used any more"
    assert caught.value.where.startswith(f"broker {LOOPBACK}:")
    assert not is_refusal(caught.value)
    return caught.value


def _question() -> MetadataRequest:
    return MetadataRequest(topics=[], allow_auto_topic_creation=False, version=4)


def test_a_connection_knows_the_broker_s_versions_and_tells_who_asks() -> None:
    asked = []

    def script(client: Client) -> None:
        asked.append(client.request())
        client.answer(
            MetadataResponse(throttle_time_ms=7, brokers=[], cluster_id="c", controller_id=1, topics=[], version=4),
            asked[0][2],
        )

    with _connected(script, {"client.id": "orders-reader"}) as connected:
        assert connected.versions == VERSIONS
        assert not connected.is_expired
        answer = connected.ask(_question(), 10)
    assert (answer.cluster_id, answer.controller_id, answer.throttle_time_ms) == ("c", 1, 7)
    key, version, _, frame = asked[0]
    assert (key, version) == (3, 4)
    assert b"orders-reader" in frame


def test_a_broker_that_knows_only_older_versions_is_asked_again() -> None:
    def script(client: Client) -> None:
        _, version, correlation_id, _ = client.request()
        assert version == 3
        client.answer(ApiVersionsResponse(error_code=35, api_keys=[], version=0), correlation_id)
        _, version, correlation_id, _ = client.request()
        assert version == 0
        entry = ApiVersionsResponse.ApiVersion(api_key=1, min_version=0, max_version=11)
        client.answer(ApiVersionsResponse(error_code=0, api_keys=[entry], version=0), correlation_id)
        client.until_closed()

    with ScriptedBroker(script) as broker, connect(LOOPBACK, broker.port, {}, 10) as connected:
        assert connected.versions == {1: (0, 11)}


@pytest.mark.parametrize("is_secured", [False, True])
def test_frames_that_come_in_pieces_and_together_are_whole(tmp_path: Path, *, is_secured: bool) -> None:
    bodies = [bytes(range(256)) * 4096, b"", b"next"]

    def script(client: Client) -> None:
        ids = [client.request()[2] for _ in bodies]
        sent = b"".join(struct.pack(">ii", 4 + len(body), name) + body for name, body in zip(ids, bodies, strict=True))
        for start in range(0, len(sent), 70_001):
            client.wired.sendall(sent[start : start + 70_001])
        client.until_closed()

    authority = Authority(tmp_path)
    files = authority.make("broker") if is_secured else None
    settings = {"security.protocol": "SSL", "ssl.ca.pem": authority.file.read_text()} if is_secured else {}
    with _connected(script, settings, files) as connected:
        for _ in bodies:
            connected.send(_question())
        received = [connected.receive(10) for _ in bodies]
        assert [frame[4:].tobytes() for frame in received] == bodies
        assert all(frame.readonly for frame in received)
        assert not connected.is_readable()


@pytest.mark.parametrize("is_secured", [False, True])
def test_a_frame_that_has_arrived_is_seen_without_waiting(tmp_path: Path, *, is_secured: bool) -> None:
    def script(client: Client) -> None:
        first, second = (client.request()[2] for _ in range(2))
        # Of one TLS record, so that the second frame is where no socket shows it.
        client.wired.sendall(struct.pack(">iiii", 4, first, 4, second))
        client.until_closed()

    authority = Authority(tmp_path)
    files = authority.make("broker") if is_secured else None
    settings = {"security.protocol": "SSL", "ssl.ca.pem": authority.file.read_text()} if is_secured else {}
    with _connected(script, settings, files) as connected:
        connected.send(_question())
        connected.send(_question())
        connected.receive(10)
        assert connected.is_readable()
        connected.receive(10)


def test_a_frame_that_is_too_large_for_memory_goes_to_a_file_that_nobody_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MOST_IN_MEMORY", 1000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    body = os.urandom(300_000)

    def script(client: Client) -> None:
        client.frame(client.request()[2], body)
        client.frame(client.request()[2], body[:996])
        client.until_closed()

    with _connected(script) as connected:
        connected.send(_question())
        frame = connected.receive(10)
        assert isinstance(frame.obj, mmap.mmap)
        assert list(tmp_path.iterdir()) == []
        connected.send(_question())
        small = connected.receive(10)
        assert not isinstance(small.obj, mmap.mmap)
    assert frame[4:] == body, "it stays valid without its connection"
    assert small[4:] == body[:996]


def test_a_full_disk_is_an_error_and_ends_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(connection, "MOST_IN_MEMORY", 1000)
    monkeypatch.setattr(os, "posix_fallocate", full)

    def script(client: Client) -> None:
        client.frame(client.request()[2], bytes(2000))
        client.until_closed()

    with _connected(script) as connected:
        connected.send(_question())
        with pytest.raises(OSError, match="No space left"):
            connected.receive(10)
        assert connected.fileno() == -1


def test_a_connection_that_breaks_in_the_middle_of_a_frame_is_lost() -> None:
    def reset(client: Client) -> None:
        client.wired.sendall(struct.pack(">ii", 1000, client.request()[2]) + b"half")
        client.reset()

    def end(client: Client) -> None:
        client.wired.sendall(struct.pack(">ii", 1000, client.request()[2]) + b"half")

    assert _fault(reset).message in ("the connection is lost: Connection reset by peer", _CLOSED)
    assert _fault(end).message == _CLOSED


_CLOSED = "the broker has closed the connection"
_NO_KAFKA = "what answers does not follow Kafka's protocol, or has lost its place in it"


def test_a_broker_that_says_nothing_or_not_all_is_away_after_the_time() -> None:
    def half(client: Client) -> None:
        client.wired.sendall(struct.pack(">ii", 1000, client.request()[2]) + b"half")
        client.until_closed()

    for script in (Client.until_closed, half):
        assert _fault(script, 0.2).message == "the broker does not answer in time"


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">ii", -1, 2),
        struct.pack(">ii", 3, 2),
        struct.pack(">ii", 2**31 - 1, 7),
        struct.pack(">ii", 100, 77) + bytes(96),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
    ids=["negative", "too small", "huge", "another's", "HTTP"],
)
def test_what_is_no_answer_is_not_taken_for_one(garbage: bytes) -> None:
    def script(client: Client) -> None:
        client.request()
        client.wired.sendall(garbage)
        client.until_closed()

    assert _fault(script).message == _NO_KAFKA


def test_an_answer_that_cannot_be_read_is_a_fault_of_the_broker() -> None:
    def script(client: Client) -> None:
        client.frame(client.request()[2], b"\x00\x00\x00")
        client.until_closed()

    with _connected(script) as connected, pytest.raises(UnavailableError, match=r"MetadataRequest.* cannot be read"):
        connected.ask(_question(), 10)


def test_a_frame_without_a_question_is_refused() -> None:
    def script(client: Client) -> None:
        client.frame(1, b"")
        client.until_closed()

    with _connected(script) as connected, pytest.raises(UnavailableError, match="does not follow Kafka's protocol"):
        connected.receive(10)


def test_a_listener_of_another_protocol_is_named_with_its_remedy(tmp_path: Path) -> None:
    def hang_up(client: Client) -> None:
        client.wired.recv(10)

    secured = {"security.protocol": "SSL", "ssl.ca.pem": Authority(tmp_path).file.read_text()}
    for settings in ({}, secured):
        with ScriptedBroker(hang_up) as broker, pytest.raises(UnavailableError) as caught:
            connect(LOOPBACK, broker.port, settings, 10)
        assert caught.value.remedy == "check that security.protocol is that of the listener at this address"


def test_a_broker_that_is_not_there_is_away() -> None:
    with socket.create_server((LOOPBACK, 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1: Connection refused") as caught:
        connect(LOOPBACK, port, {}, 10)
    assert caught.value.where == f"broker 127.0.0.1:{port}"
    with pytest.raises(UnavailableError, match="name cannot be resolved"):
        connect("nowhere.invalid", 9092, {}, 10)


def test_every_address_of_a_name_is_tried() -> None:
    with ScriptedBroker(Client.tell_versions) as broker:
        for family in ("any", "v4"):
            connect("localhost", broker.port, {"broker.address.family": family}, 10).close()


def test_a_broker_that_is_silent_from_the_start_is_away_after_the_time_of_all() -> None:
    with ScriptedBroker(Client.until_closed) as broker, pytest.raises(UnavailableError, match="not answer in time"):
        connect(LOOPBACK, broker.port, {}, 0.2)
    with (
        ScriptedBroker(Client.until_closed) as broker,
        pytest.raises(UnavailableError, match="not answer in time"),
    ):
        connect(LOOPBACK, broker.port, {"security.protocol": "SSL"}, 0.2)


def test_a_broker_that_does_not_know_the_password_is_refused() -> None:
    def pretend(client: Client) -> None:
        client.answer(SaslHandshakeResponse(error_code=0, mechanisms=["SCRAM-SHA-256"], version=1), client.request()[2])
        *_, correlation_id, frame = client.request()
        nonce = frame.partition(b",r=")[2].rstrip(b"\x00")
        for said in (b"r=" + nonce + b"x,s=c2FsdA==,i=4096", b"v=bm90IGl0"):
            client.answer(
                SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=said, version=2), correlation_id
            )
            correlation_id = client.request()[2]

    with pytest.raises(UnavailableError, match="does not prove itself") as caught, _connected(pretend, _SCRAM):
        pass
    assert is_refusal(caught.value)
    assert "pa55word" not in str(caught.value)


_SCRAM = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "me",
    "sasl.password": "pa55word",
}


def test_the_addresses_of_the_first_brokers_are_read_in_every_spelling() -> None:
    assert addresses("a:9092, b:1,SASL_SSL://c:9093,[::1]:9,d") == [
        ("a", 9092), ("b", 1), ("c", 9093), ("::1", 9), ("d", 9092),
    ]  # fmt: skip


def test_a_cluster_is_asked_at_each_of_these_addresses() -> None:
    tried = []

    def away(host: str, port: int, *_: object) -> Connection:
        tried.append((host, port))
        raise UnavailableError("away")

    cluster = KafkaCluster({"bootstrap.servers": "PLAINTEXT://[::1]:1, kafka-1,"}, away)
    with pytest.raises(UnavailableError, match="away"):
        cluster.refresh(["t"])
    assert tried == [("::1", 1), ("kafka-1", 9092)]


def test_a_process_that_workers_are_forked_from_has_nothing_running_and_nothing_open() -> None:
    program = (
        "import os, sys, threading\n"
        "before = set(os.listdir('/proc/self/fd'))\n"
        "import frazil.kafka.fetch.connection\n"
        "assert threading.active_count() == 1 and set(os.listdir('/proc/self/fd')) == before\n"
        "assert 'confluent_kafka' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
