"""The direct link from each process to the leader: a TCP connection with a beat each 100 ms in both directions.

Each beat is a line of JSON with what has changed since the last one: what a process has of a thousand tables is too much to
be sent ten times a second. Both ends prove first that they know the key of the leader's claim (HMAC of a random text), so
strangers learn nothing and change nothing; what follows is not encrypted and holds names of tables, no secret.
"""

from __future__ import annotations

import hmac
import json
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import partial
from typing import Any, Literal

import structlog

from frazil.clock import Clock, new_id
from frazil_ha.elector import Claim

log = structlog.get_logger("frazil")

BEAT_S = 0.1
SILENCE_S = 1.0
"""How long an end may send nothing before it is taken for frozen or cut off: ten beats."""
_CONNECT_S = 0.5
_AGAIN_S = 0.3
_LONGEST_LINE = 8 << 20
Beat = Mapping[str, Any]
Standing = Literal["unknown", "linked", "gone", "silent"]
"""What a process knows of the leader: never linked; linked; its host refuses connections; it does not answer."""


class _Silent(OSError):
    """The other end sends nothing, or not what it should."""


class Line:
    """One end of an open connection: sends and takes lines of JSON."""

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._read = b""
        #: The beats of both ends, merged from what was sent of them.
        self._sent: dict[str, Any] = {}
        self._heard: dict[str, Any] = {}
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, beat: Beat) -> None:
        """Sends one line. Raises OSError where the other end takes nothing."""
        self._connection.settimeout(_CONNECT_S)
        self._connection.sendall(json.dumps(beat).encode() + b"\n")

    def take(self, within_s: float) -> dict[str, Any] | None:
        """Returns the next line; None where it does not come in time. Raises _Silent when the other end has closed."""
        end_s = self._clock.monotonic_s() + within_s
        while b"\n" not in self._read:
            left_s = end_s - self._clock.monotonic_s()
            if left_s <= 0:
                return None
            self._connection.settimeout(left_s)
            try:
                chunk = self._connection.recv(1 << 16)
            except TimeoutError:
                return None
            if not chunk:
                raise _Silent
            self._read += chunk
            if len(self._read) > _LONGEST_LINE:
                raise _Silent
        line, _, self._read = self._read.partition(b"\n")
        try:
            return dict(json.loads(line))
        except (ValueError, TypeError, RecursionError):
            raise _Silent from None

    def tell(self, beat: Beat) -> None:
        """Sends the keys of a beat whose values are others than those sent last; raises as `send`."""
        changed = {key: value for key, value in beat.items() if key not in self._sent or self._sent[key] != value}
        self.send(changed)
        self._sent |= changed

    def listen(self, within_s: float) -> Beat | None:
        """Returns the beat of the other end, each key as sent last; None and raises as `take`."""
        changed = self.take(within_s)
        if changed is None:
            return None
        self._heard |= changed
        return dict(self._heard)

    def exchange(self, beat: Callable[[], Beat | None], hear: Callable[[Beat], None]) -> None:
        """Sends beats and hands over what comes, until an end closes. beat: None to keep silent for now.

        Raises: OSError then; _Silent after SILENCE_S without a beat.
        """
        heard_s = self._clock.monotonic_s()
        while True:
            next_beat = beat()
            if next_beat is not None:
                self.tell(next_beat)
            next_s = self._clock.monotonic_s() + BEAT_S
            while (left_s := next_s - self._clock.monotonic_s()) > 0:
                heard = self.listen(left_s)
                if heard is not None:
                    heard_s = self._clock.monotonic_s()
                    hear(heard)
            if self._clock.monotonic_s() - heard_s >= SILENCE_S:
                raise _Silent

    def prove(self, key: str, *, is_first: bool) -> None:
        """Proves to the other end that this one knows the key, and has it prove the same. Raises _Silent otherwise."""
        mine = new_id()
        self.send({"prove": mine})
        asked = self.take(_CONNECT_S) or {}
        self.send({"proof": _proof(key, str(asked.get("prove", "")), is_first)})
        answer = self.take(_CONNECT_S) or {}
        if not hmac.compare_digest(str(answer.get("proof", "")).encode(), _proof(key, mine, not is_first).encode()):
            raise _Silent


def _proof(key: str, text: str, is_first: bool) -> str:
    """The two ends sign differently, so that neither can have its own proof sent back."""
    return hmac.new(key.encode(), f"{is_first}:{text}".encode(), "sha256").hexdigest()


class Host:
    """The leader's end. Each connected process has a thread here. All are let in who know the key."""

    def __init__(self, host: str, port: int, clock: Clock) -> None:
        """port: 0 for any free one. Raises OSError where the address cannot be had."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family)
        bound = self._listener.getsockname()
        self.address = f"{bound[0]}:{bound[1]}"
        self._clock = clock
        self._lock = threading.Lock()
        self._key: str | None = None
        self._beat: Callable[[str], Beat | None] = lambda _: None
        self._changed: Callable[[], None] = lambda: None
        #: The newest beat of each connection; one process may have two while it connects again.
        self._guests: dict[socket.socket, Beat] = {}
        threading.Thread(target=self._listen, name="ha-host", daemon=True).start()

    @property
    def guests(self) -> dict[str, Beat]:
        """The newest beat of each connected process, by its name."""
        with self._lock:
            return {beat["name"]: beat for beat in self._guests.values() if beat.get("name")}

    def serve(self, key: str | None, beat: Callable[[str], Beat | None], changed: Callable[[], None]) -> None:
        """Lets in who knows the key from now on, and nobody else. beat: what the process of this name is sent; None while
        this process is not well. changed: called when a process has come, gone, or sent another beat than its last.
        """
        with self._lock:
            if key is not None and key == self._key:
                return
            self._key, self._beat, self._changed = key, beat, changed
            guests, self._guests = self._guests, {}
        for connection in guests:
            _shut(connection)

    def close(self) -> None:
        """Ends all connections; a further one is refused by the host."""
        _shut(self._listener)
        self._listener.close()
        self.serve(None, lambda _: None, lambda: None)

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._listener.fileno() < 0:
                    return
                self._clock.sleep(BEAT_S)  # No descriptor is free, or a connection broke before it was taken.
                continue
            threading.Thread(target=self._receive, args=(connection,), name="ha-guest", daemon=True).start()

    def _receive(self, connection: socket.socket) -> None:
        with self._lock:
            key, beat, changed = self._key, self._beat, self._changed
            self._guests[connection] = {}

        def hear(sent: Beat) -> None:
            with self._lock:
                is_news = self._guests.get(connection) != sent
                if connection in self._guests:
                    self._guests[connection] = sent
            if is_news:
                changed()

        try:
            with closing(connection), suppress(OSError):
                if key is not None and beat("") is not None:
                    line = Line(connection, self._clock)
                    line.prove(key, is_first=True)
                    hear(first := line.listen(_CONNECT_S) or {})
                    line.exchange(lambda: beat(str(first.get("name"))), hear)
        finally:
            with self._lock:
                self._guests.pop(connection, None)
            changed()


class Guest:
    """The end of every process that does not lead: stays connected with the claimant that it is to follow."""

    def __init__(self, clock: Clock, beat: Callable[[], Beat | None], changed: Callable[[], None]) -> None:
        """beat: what the leader is sent; None while this process is not well. changed: called when `standing` has changed or
        the leader has sent a beat other than its last.
        """
        self._clock = clock
        self._beat = beat
        self._changed = changed
        self._turn = threading.Condition()
        self._claim: Claim | None = None
        self._is_closed = False
        self._connection: socket.socket | None = None
        self._was_reset = False
        self.standing: Standing = "unknown"
        #: Attempts to connect that have failed, since the claimant is followed.
        self.failures = 0
        #: What the leader has sent, each key as sent last.
        self.heard: Beat = {}
        self.heard_s = 0.0
        threading.Thread(target=self._run, name="ha-follow", daemon=True).start()

    def follow(self, claim: Claim | None) -> None:
        """Connects with this claimant from now on, or with nobody."""
        with self._turn:
            if claim == self._claim:
                return
            self._claim, self.standing, self.failures, self.heard = claim, "unknown", 0, {}
            if self._connection is not None:
                _shut(self._connection)
            self._turn.notify()

    def close(self) -> None:
        """Ends the connection."""
        self.follow(None)
        with self._turn:
            self._is_closed = True
            self._turn.notify()

    def _run(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._claim is not None or self._is_closed)
                if self._is_closed:
                    return
                claim = self._claim
            assert claim is not None
            try:
                had_link = self._beat() is not None and self._stay(claim)
            except Exception as error:  # Without this thread the end of the leader would never be noticed.
                log.error("unexpected_error", error=f"{type(error).__name__}: {error}", exc_info=error)
                had_link = False
            # A connection that merely broke is tried again at once, before anybody acts.
            if not had_link:
                with self._turn:
                    self._turn.wait_for(partial(self._is_other, claim), _AGAIN_S)

    def _is_other(self, claim: Claim) -> bool:
        return self._claim is not claim or self._is_closed

    def _stay(self, claim: Claim) -> bool:
        """Connects and stays connected while that lasts. Returns whether there was a connection."""
        host, _, port = claim.address.rpartition(":")
        had_link = False
        try:
            with closing(socket.create_connection((host, int(port)), _CONNECT_S)) as connection:
                with self._turn:
                    if self._claim is not claim:
                        return False
                    self._connection = connection
                line = Line(connection, self._clock)
                line.prove(claim.key, is_first=False)
                line.tell(self._beat() or {})
                had_link = True
                self._stand(claim, "linked")
                line.exchange(self._beat, lambda sent: self._hear(claim, sent))
        except ConnectionRefusedError:
            self._stand(claim, "gone")
        except ConnectionResetError:
            # While a process is being killed its host may take a connection and end it; the next one is refused.
            is_second, self._was_reset = self._was_reset, not had_link and not self._was_reset
            if is_second and not had_link:
                self._stand(claim, "silent")
            return had_link or not is_second
        except (OSError, ValueError):
            if not had_link:
                self._stand(claim, "silent")
        return had_link

    def _stand(self, claim: Claim, standing: Standing) -> None:
        with self._turn:
            self.failures += standing != "linked"
            # Of a claimant that was never reached nothing is known: a firewall refuses connections too.
            if self._claim is not claim or (standing != "linked" and self.standing == "unknown"):
                return
            is_news, self.standing = self.standing != standing, standing
            self.heard_s = self._clock.monotonic_s() if standing == "linked" else self.heard_s
        if is_news:
            self._changed()

    def _hear(self, claim: Claim, sent: Beat) -> None:
        with self._turn:
            if self._claim is not claim:
                return
            before, self.heard = self.heard, {**self.heard, **sent}
            is_news = self.heard != before
            self.heard_s = self._clock.monotonic_s()
        if is_news:
            self._changed()


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def own_host(toward: str) -> str:
    """Returns the address of this machine by which it reaches `toward` (host:port), for others to reach it by."""
    host, _, port = toward.strip().rpartition(":")
    with suppress(OSError, ValueError):
        addresses = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
        family, kind, protocol, _, place = addresses[0]
        with closing(socket.socket(family, kind, protocol)) as probe:
            probe.connect(place)  # Sends nothing; chooses the interface.
            return str(probe.getsockname()[0])
    return "127.0.0.1"
