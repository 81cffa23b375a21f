"""The link between processes lets in who knows the key of the leader's claim, and distinguishes a death from silence."""

from __future__ import annotations

import gc
import json
import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from frazil.clock import SystemClock
from frazil_ha.elector import Claim
from frazil_ha.link import Beat, Guest, Host, Line, own_host
from tests.fixtures.waiting import wait_until

_CLOCK = SystemClock()


@pytest.fixture
def host() -> Iterator[Host]:
    made = Host("127.0.0.1", 0, _CLOCK)
    made.serve("the key", lambda _: {"members": ["leader"]}, lambda: None)
    yield made
    made.close()


def _claim(host: Host, key: str = "the key") -> Claim:
    return Claim("leader", host.address, key, 0, "start", 1)


@pytest.fixture
def guest() -> Iterator[Guest]:
    made = Guest(_CLOCK, lambda: {"name": "other"}, lambda: None)
    yield made
    made.close()


def test_leader_and_standby_exchange_beats(host: Host, guest: Guest) -> None:
    guest.follow(_claim(host))
    wait_until(
        lambda: guest.heard == {"members": ["leader"]} and host.guests == {"other": {"name": "other"}}, "heard", 10
    )
    assert guest.standing == "linked"


def test_a_leader_that_is_gone_is_told_from_one_that_is_silent(host: Host, guest: Guest) -> None:
    guest.follow(_claim(host))
    wait_until(lambda: guest.standing == "linked", "linked", 10)
    host.serve("the same process, unwell", lambda _: None, lambda: None)
    wait_until(lambda: guest.standing == "silent", "silent", 10)
    host.close()
    wait_until(lambda: guest.standing == "gone", "gone", 10)


def _threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("ha-")]


def test_a_leader_without_free_descriptors_lets_others_in_once_it_has_some(host: Host) -> None:
    # A connection of an earlier test that ends now would give its descriptor to the host.
    wait_until(lambda: _threads() == ["ha-host"], "earlier connections have ended", 30)
    name, _, port = host.address.rpartition(":")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as first, socket.socket() as second:  # The host may have a descriptor ready for the first.
        taken: list[int] = []

        def take_all() -> None:
            gc.collect()  # Garbage that is collected later would free some.
            with suppress(OSError):
                while True:
                    taken.append(os.dup(second.fileno()))

        resource.setrlimit(resource.RLIMIT_NOFILE, (second.fileno() + 50, limits[1]))
        try:
            take_all()
            first.connect((name, int(port)))
            take_all()
            second.connect((name, int(port)))
            second.settimeout(0.3)
            with pytest.raises(TimeoutError):  # Taken by the system, and by nobody else yet.
                second.recv(1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for number in taken:
                os.close(number)
        second.settimeout(10)
        assert b'"prove"' in second.recv(1000)


def test_who_does_not_know_the_key_is_not_let_in(host: Host, guest: Guest) -> None:
    guest.follow(_claim(host, "another key"))
    wait_until(lambda: guest.failures >= 2, "refused", 10)
    assert (guest.standing, guest.heard, host.guests) == ("unknown", {}, {})


def test_a_stranger_learns_nothing(host: Host) -> None:
    name, _, port = host.address.rpartition(":")
    with closing(socket.create_connection((name, int(port)), 5)) as stranger:
        stranger.settimeout(5)
        asked = stranger.recv(4096)
        assert json.loads(asked).keys() == {"prove"}
        stranger.sendall(asked + b'{"name": "mallory"}\n')
        heard = b""
        while chunk := stranger.recv(4096):
            heard += chunk
    assert b"leader" not in heard
    assert host.guests == {}


def test_a_host_that_was_never_reached_is_not_taken_for_gone(guest: Guest) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as held:
        port = held.getsockname()[1]
    guest.follow(Claim("leader", f"127.0.0.1:{port}", "key", 0, "start", 1))
    wait_until(lambda: guest.failures >= 2, "refused", 10)
    assert guest.standing == "unknown"


def test_a_process_is_reached_at_the_address_by_which_it_reaches_others() -> None:
    assert own_host("127.0.0.1:9092") == "127.0.0.1"
    assert own_host("no such host.invalid:9092") == "127.0.0.1"


@pytest.mark.parametrize("proof", ['{"proof": "\u00e9"}', "[" * 100_000, '{"proof": 7}'])
def test_a_stranger_with_odd_words_leaves_nothing_behind(host: Host, guest: Guest, proof: str) -> None:
    name, _, port = host.address.rpartition(":")
    with closing(socket.create_connection((name, int(port)), 5)) as stranger:
        stranger.settimeout(5)
        assert stranger.recv(4096)
        with suppress(OSError):
            stranger.sendall(f'{{"prove": "x"}}\n{proof}\n'.encode())
            while stranger.recv(4096):
                pass
    wait_until(lambda: not host._guests, "it is forgotten", 10)
    guest.follow(_claim(host))
    wait_until(lambda: guest.standing == "linked", "others are let in", 10)


def test_a_process_that_fails_to_take_a_beat_connects_again(host: Host) -> None:
    """Without its thread it would never notice the end of the leader."""
    failures = [RuntimeError("once")]

    def take() -> None:
        if failures:
            raise failures.pop()

    guest = Guest(_CLOCK, lambda: {"name": "other"}, take)
    guest.follow(_claim(host))
    wait_until(lambda: not failures and guest.standing == "linked" and guest.heard, "it is linked", 10)
    host.close()
    wait_until(lambda: guest.standing == "gone", "it notices the end", 10)
    guest.close()


def test_a_beat_has_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process reports of a thousand tables is 60 kB."""
    sizes: list[int] = []
    send = Line.send

    def send_counted(line: Line, beat: Beat) -> None:
        sizes.append(len(json.dumps(beat)))
        send(line, beat)

    monkeypatch.setattr(Line, "send", send_counted)
    beat = {"name": "other", "holds": [f"lake.table_{n:04}" for n in range(1000)], "seen": 1}
    host, guest = Host("127.0.0.1", 0, _CLOCK), Guest(_CLOCK, lambda: dict(beat), lambda: None)
    host.serve("the key", lambda _: {"members": ["leader"]}, lambda: None)
    guest.follow(_claim(host))
    wait_until(lambda: host.guests == {"other": beat}, "heard", 10)
    beat["seen"] = 2
    wait_until(lambda: host.guests == {"other": beat}, "the change is heard", 10)
    wait_until(lambda: len(sizes) > 20, "some beats", 10)
    assert sum(size > 1000 for size in sizes) == 1
    guest.close()
    host.close()
