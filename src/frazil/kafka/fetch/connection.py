"""A connection to one broker: TCP, TLS, the versions of its requests, a login, then requests and responses.

A response is read in few large pieces into a buffer of its own size; a very large one into a file, since no worker's
memory is made for it. Nothing but the socket outlives a call: workers are forked from a process that has imported this.
"""

from __future__ import annotations

import mmap
import os
import select
import socket
import ssl
import struct
import tempfile
from collections import deque
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from kafka.errors import for_code
from kafka.protocol.metadata import ApiVersionsRequest

from frazil import __version__
from frazil.clock import SystemClock
from frazil.errors import UnavailableError
from frazil.kafka.fetch.login import LoginError, log_in
from frazil.kafka.tls import tls_context
from frazil.refusals import kafka_remedy

MOST_IN_MEMORY = 64 * 1024 * 1024
"""The largest response that is read into memory; a larger one goes to a temporary file."""
_LEAST_BYTES_PER_S = 1024 * 1024
_EXPIRED = 0.85
"""The part of a session's lifetime after which a connection is to be replaced by a new one."""
_UNSUPPORTED_VERSION = 35
_FAMILIES = {"v4": socket.AF_INET, "v6": socket.AF_INET6}
_CLIENT_NAME = "frazil"
_WRONG_LISTENER = "check that security.protocol is that of the listener at this address"
# The size of a response, without itself, and the correlation id that it begins with.
_START = struct.Struct(">iI")
_PORT = 9092
"""Of a bootstrap server that is written without one."""
_CLOCK = SystemClock()


class _Refused(UnavailableError):
    """A broker refuses the login or the certificate of one side, or this side refuses the broker's."""


def is_refusal(error: BaseException) -> bool:
    """Whether a broker and this client refuse each other, so that other brokers need not be tried."""
    return isinstance(error, _Refused)


def connect(host: str, port: int, settings: Mapping[str, str], timeout_s: float) -> Connection:
    """Returns a connection that requests can be sent over. settings: see `task_properties`. timeout_s: for all of it.

    Raises: UnavailableError, see `is_refusal`; SpecError for what this machine lacks or cannot follow.
    """
    where, deadline_s = f"broker {host}:{port}", _CLOCK.monotonic_s() + timeout_s
    wired = _wire(host, port, settings, where, deadline_s)
    try:
        protocol = settings.get("security.protocol", "PLAINTEXT")
        if protocol.endswith("SSL"):
            wired = _secured(wired, host, settings, where, deadline_s)
        connection = Connection(wired, where, settings.get("client.id") or _CLIENT_NAME, timeout_s)
        connection.begin(host, settings if protocol.startswith("SASL_") else None, deadline_s)
    except BaseException:
        wired.close()
        raise
    return connection


def addresses(servers: str) -> list[tuple[str, int]]:
    """Returns the hosts and ports of `bootstrap.servers`."""
    parsed = []
    for server in servers.split(","):
        host, _, port = server.strip().rpartition("://")[2].rpartition(":")
        if host and port.isdecimal():
            parsed.append((host.strip("[]"), int(port)))
        elif port:
            parsed.append((port.strip("[]"), _PORT))
    return parsed


def _wire(host: str, port: int, settings: Mapping[str, str], where: str, deadline_s: float) -> socket.socket:
    """Returns a socket to the first of the host's addresses that answers; each has its share of the time that is left."""
    family = _FAMILIES.get(settings.get("broker.address.family", ""), socket.AF_UNSPEC)
    try:
        resolved = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnavailableError(f"the broker's name cannot be resolved: {error}", where=where) from None
    faults = []
    addresses = list(dict.fromkeys((entry[0], entry[4]) for entry in resolved))
    for number, (kind, address) in enumerate(addresses):
        wired = socket.socket(kind, socket.SOCK_STREAM)
        try:
            wired.settimeout(_left_s(deadline_s) / (len(addresses) - number))
            wired.connect(address)
        except OSError as error:
            wired.close()
            faults.append(f"{address[0]}: {error.strerror or error}")
        else:
            wired.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wired.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return wired
    raise UnavailableError(f"the broker cannot be connected to: {', '.join(faults)}", where=where)


def _secured(
    wired: socket.socket, host: str, settings: Mapping[str, str], where: str, deadline_s: float
) -> ssl.SSLSocket:
    try:
        context = tls_context(settings)
    except (ssl.SSLError, ValueError) as error:
        raise _Refused(f"the settings of TLS cannot be followed: {_words(error)}", where=where) from None
    try:
        wired.settimeout(_left_s(deadline_s))
        return context.wrap_socket(wired, server_hostname=host)
    except OSError as error:
        _fail(error, where, _WRONG_LISTENER)


def _fail(error: OSError, where: str, remedy: str = "") -> NoReturn:
    """Raises what a failed operation on a socket means. remedy: of a connection that somebody else than a refusal ended."""
    words = _words(error)
    if isinstance(error, TimeoutError):
        raise UnavailableError("the broker does not answer in time", where=where) from None
    if isinstance(error, ssl.SSLError) and (tls_remedy := kafka_remedy(words)):
        raise _Refused(f"TLS is refused: {words}", remedy=tls_remedy, where=where) from None
    fault = "TLS fails" if isinstance(error, ssl.SSLError) else "the connection is lost"
    raise UnavailableError(f"{fault}: {words}", remedy=remedy, where=where) from None


def _words(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _left_s(deadline_s: float) -> float:
    """At least a millisecond: a socket with a timeout of 0 would not wait at all."""
    return max(deadline_s - _CLOCK.monotonic_s(), 0.001)


class Connection:
    """A connection to one broker, made by `connect`. To be used by one thread. It is closed by whatever fails."""

    def __init__(self, wired: socket.socket, where: str, client_id: str, timeout_s: float) -> None:
        self._socket = wired
        #: The broker, in words.
        self.where = where
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._newest_id = 0
        #: Of the requests that are not answered yet, in the order in which a broker answers.
        self._awaited: deque[int] = deque()
        self._expires_s = float("inf")
        #: API key -> least and most version of the broker.
        self.versions: Mapping[int, tuple[int, int]] = {}

    def begin(self, host: str, login: Mapping[str, str] | None, deadline_s: float) -> None:
        """Asks for the versions of requests, and logs in. login: the settings; None without a login."""
        self.versions = self._asked_versions(deadline_s)
        if login is None:
            return

        def ask(request: Any) -> Any:
            return self.ask(request, _left_s(deadline_s))

        began_s = _CLOCK.monotonic_s()
        try:
            lifetime_s = log_in(ask, self.versions, login, host, _left_s(deadline_s))
        except LoginError as error:
            words = str(error)
            raise _Refused(f"the login is refused: {words}", remedy=kafka_remedy(words), where=self.where) from None
        if lifetime_s > 0:
            self._expires_s = began_s + _EXPIRED * lifetime_s

    def _asked_versions(self, deadline_s: float) -> dict[int, tuple[int, int]]:
        version = 3
        while True:
            client = (
                {"client_software_name": _CLIENT_NAME, "client_software_version": __version__} if version > 2 else {}
            )
            answer = self.ask(ApiVersionsRequest(version=version, **client), _left_s(deadline_s))
            if answer.error_code == _UNSUPPORTED_VERSION and version > 0:
                version = 0  # An old broker answers in this version what it knows.
                continue
            if answer.error_code:
                self._fail(f"the broker does not list its versions: {for_code(answer.error_code).__name__}")
            return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    @property
    def is_expired(self) -> bool:
        """Whether the broker will soon end the session (KIP-368): this connection is to be closed, and a new one made."""
        return _CLOCK.monotonic_s() >= self._expires_s

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_idle(self) -> bool:
        """Whether every request is answered."""
        return not self._awaited

    def fileno(self) -> int:
        """The socket's file descriptor; -1 once it is closed."""
        return self._socket.fileno()

    def is_readable(self) -> bool:
        """Whether a response, a part of one or the end has arrived, so that nobody would wait for it."""
        if self._socket.fileno() < 0:
            return True
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Ends the connection. Responses that were received stay valid."""
        self._socket.close()

    def send(self, request: Any) -> None:
        """Sends a request of kafka.protocol.

        Raises: UnavailableError.
        """
        self._newest_id = (self._newest_id + 1) & 0x7FFFFFFF
        request.with_header(self._newest_id, self._client_id)
        encoded = request.encode(framed=True, header=True)
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(encoded)
        except OSError as error:
            self._lose(error)
        self._awaited.append(self._newest_id)

    def receive(self, timeout_s: float) -> memoryview:
        """Returns the next response without its size: it begins with its header, whose correlation id is that of the oldest
        request without an answer.

        Raises: UnavailableError; OSError where there is no room for a large response.
        """
        deadline_s = _CLOCK.monotonic_s() + timeout_s
        start = bytearray(_START.size)
        self._read(memoryview(start), deadline_s)
        size, correlation_id = _START.unpack(start)
        # Checked before so much room is taken as somebody else's words would stand for.
        if size < 4 or not self._awaited or correlation_id != self._awaited[0]:
            self._fail("what answers does not follow Kafka's protocol, or has lost its place in it")
        try:
            response = np.empty(size, np.uint8).data if size <= MOST_IN_MEMORY else memoryview(mapped(size))
        except OSError:
            self.close()
            raise
        if size > MOST_IN_MEMORY:  # One record may be as large, and cannot be asked for in parts.
            deadline_s += size / _LEAST_BYTES_PER_S
        response[:4] = start[4:]
        self._read(response[4:], deadline_s)
        self._awaited.popleft()
        return response.toreadonly()

    def ask(self, request: Any, timeout_s: float) -> Any:
        """Returns the response to a small request; none may be waiting for an answer.

        Raises: UnavailableError.
        """
        self.send(request)
        response = self.receive(timeout_s)
        try:
            return request.header.get_response_class().decode(response, header=True)
        except (ValueError, IndexError, KeyError, struct.error, EOFError) as error:
            self._fail(f"the answer to {type(request).__name__} cannot be read: {error}")

    def _read(self, left: memoryview, deadline_s: float) -> None:
        """Fills the buffer."""
        patience_s = 0.0
        try:
            while left:
                left_s = _left_s(deadline_s)
                # A system call, which a piece of 16 KiB of TLS need not pay.
                if not left_s <= patience_s <= 1.1 * left_s:
                    self._socket.settimeout(left_s)
                    patience_s = left_s
                count = self._socket.recv_into(left)
                if count == 0:
                    self._fail("the broker has closed the connection")
                left = left[count:]
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> NoReturn:
        self.close()
        _fail(error, self.where, self._remedy)

    def _fail(self, message: str) -> NoReturn:
        self.close()
        raise UnavailableError(message, remedy=self._remedy, where=self.where)

    @property
    def _remedy(self) -> str:
        """What to do where the connection ends; empty once a broker has answered."""
        return "" if self.versions else _WRONG_LISTENER


def mapped(size: int) -> mmap.mmap:
    """Returns a buffer in a file that has no name. Its room is reserved: on a full disk a write to a page without room would
    kill the process.
    """
    with tempfile.TemporaryFile(prefix="frazil-response-") as file:
        os.posix_fallocate(file.fileno(), 0, size)
        return mmap.mmap(file.fileno(), size)
