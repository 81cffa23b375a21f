"""Ways to a catalog on which the answers to commits are wrong or get lost, before or after they were carried out: an HTTP
proxy, and a relay for databases and Hive's metastore. The proxy can also send a commit twice, as proxies do that try again
by themselves: the second time it is refused.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, repeat
from typing import Protocol

from tests.acceptance.soaking import rng
from tests.integration.servers import Relay

Fault = str
"""`502 after`, `cut before` and the like: an answer of `ANSWERS`, after or in place of the commit; `late`: the commit is
carried out when its client has long stopped waiting; `twice`.
"""
STALL_S = 3.0
"""Longer than a client of the proxy should wait."""
_COMMIT = re.compile(r"^/v1/namespaces/[^/]+/tables(/[^/]+)?$")
_HOST = "127.0.0.1"
_OWN = ("host", "connection", "accept-encoding")
"""Headers that concern one connection, not the server behind it."""
_SILENT = ("cut", "stall")
"""What is no answer at all."""
_ERRORS = {
    "400": "BadRequestException",
    "401": "NotAuthorizedException",
    "403": "ForbiddenException",
    "409": "CommitFailedException",
    "500": "InternalServerError",
    "502": "BadGateway",
    "503": "ServiceUnavailable",
    "504": "GatewayTimeout",
}
_GLUE_ERRORS = {
    "400": (400, "InvalidInputException"),
    "403": (400, "AccessDeniedException"),
    "409": (400, "ConcurrentModificationException"),
    "500": (500, "InternalServiceException"),
    "503": (503, "ServiceUnavailableException"),
}
_ANSWERS = (*_ERRORS, "garbage", *_SILENT)
Reply = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""
_GARBAGE: Reply = (200, {"Content-Type": "application/json"}, b"<html>welcome</html>")


class Dialect(Protocol):
    """The commits and the errors of a catalog."""

    faults: Sequence[Fault]
    """All that a seeded choice may make of a commit."""

    def is_commit(self, method: str, path: str, headers: Mapping[str, str]) -> bool:
        """Whether the request creates or changes a table."""

    def reply(self, answer: str) -> Reply:
        """The wrong answer."""


class RestDialect:
    """Iceberg's REST protocol."""

    faults: Sequence[Fault] = (*(f"{answer} {when}" for answer in _ANSWERS for when in ("before", "after")), "late")

    def is_commit(self, method: str, path: str, headers: Mapping[str, str]) -> bool:  # noqa: ARG002  (Glue needs them)
        """See Dialect."""
        return method == "POST" and _COMMIT.match(path.partition("?")[0]) is not None

    def reply(self, answer: str) -> Reply:
        """See Dialect."""
        if answer == "garbage":
            return _GARBAGE
        error = {"message": "injected", "type": _ERRORS[answer], "code": int(answer)}
        retried = {"Retry-After": "1"} if answer == "503" else {}
        return int(answer), {"Content-Type": "application/json", **retried}, json.dumps({"error": error}).encode()


class GlueDialect:
    """Amazon's Glue. A plain refusal of what was carried out is left out: Iceberg believes it where the SDK has not repeated
    the request, and deletes the metadata file that Glue names.
    """

    faults: Sequence[Fault] = (
        *(f"{answer} before" for answer in (*_GLUE_ERRORS, "garbage", *_SILENT)),
        *(f"{answer} after" for answer in ("500", "503", "garbage", *_SILENT)),
        "late",
    )

    def is_commit(self, method: str, path: str, headers: Mapping[str, str]) -> bool:  # noqa: ARG002  (REST needs them)
        """See Dialect."""
        target = next((text for name, text in headers.items() if name.lower() == "x-amz-target"), "")
        return target in ("AWSGlue.UpdateTable", "AWSGlue.CreateTable")

    def reply(self, answer: str) -> Reply:
        """See Dialect."""
        if answer == "garbage":
            return _GARBAGE
        status, name = _GLUE_ERRORS[answer]
        body = json.dumps({"__type": name, "Message": "injected"}).encode()
        return status, {"Content-Type": "application/x-amz-json-1.1"}, body


class Way(Protocol):
    """A way to a catalog."""

    met: Counter[Fault]
    """How many commits have met each fault; the empty one is none."""

    @property
    def faults(self) -> Sequence[Fault]:
        """All that a seeded choice may make of a commit."""

    def unlucky(self, seed: int, per_mille: int) -> AbstractContextManager[None]:
        """While the block lasts, about so many of a thousand commits meet each fault, the same ones for the same seed."""

    def close(self) -> None:
        """Frees the port."""


def _chosen(seed: int, per_mille: int, faults: Sequence[Fault]) -> Iterator[Fault]:
    places = (rng(seed, number, 1000) // per_mille for number in count())
    return (faults[place] if place < len(faults) else "" for place in places)


class Answer(Protocol):
    """What a server answers."""

    @property
    def status(self) -> int:
        """Of HTTP."""

    def read(self) -> bytes:
        """The content."""

    def getheader(self, name: str) -> str | None:
        """A header."""


class Proxy:
    """Forwards everything to the server on `port`, but for the commits that `faulty` or `unlucky` is about."""

    def __init__(self, port: int, dialect: Dialect | None = None) -> None:
        self._upstream = port
        self._dialect = dialect or RestDialect()
        self._next: Iterator[Fault] = iter(())
        self._hold_s = STALL_S
        self._lock = threading.Lock()
        self.struck = threading.Semaphore(0)
        self.met = Counter[Fault]()
        self.release = threading.Event()
        self.between: Callable[[], object] = lambda: None
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def faults(self) -> Sequence[Fault]:
        """See Way."""
        return self._dialect.faults

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{_HOST}:{self._server.server_port}"

    @contextmanager
    def faulty(self, fault: Fault, times: int = 1, between: Callable[[], object] = lambda: None) -> Iterator[None]:
        """The next commits fail like this. between: what happens before one is sent the second time."""
        self.between = between
        with self._striking(repeat(fault, times), 120):
            yield

    @contextmanager
    def unlucky(self, seed: int, per_mille: int) -> Iterator[None]:
        """See Way."""
        with self._striking(_chosen(seed, per_mille, self.faults), STALL_S):
            yield

    @contextmanager
    def _striking(self, faults: Iterator[Fault], hold_s: float) -> Iterator[None]:
        self.release.clear()
        self._next, self._hold_s = faults, hold_s
        try:
            yield
        finally:
            self._next = iter(())
            self.release.set()

    def wait_until_struck(self, within_s: float) -> None:
        """Waits until a commit has met the fault."""
        assert self.struck.acquire(timeout=within_s), "no commit met the fault"

    def changed(self, content: bytes) -> bytes:
        """What is passed on of an answer: here all of it as it is."""
        return content

    def close(self) -> None:
        """Frees the port."""
        self._server.shutdown()
        self._server.server_close()

    def take(self, method: str, path: str, headers: Mapping[str, str]) -> Fault:
        """The fault that this request meets; empty for none."""
        if not self._dialect.is_commit(method, path, headers):
            return ""
        with self._lock:
            fault = next(self._next, "")
            self.met[fault] += 1
        return fault

    def reply(self, answer: str) -> Reply:
        """The wrong answer, as the catalog would write it."""
        return self._dialect.reply(answer)

    def forward(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        """The server's answer."""
        connection = http.client.HTTPConnection(_HOST, self._upstream, timeout=60)
        connection.request(method, path, body, {**headers, "Connection": "close"})
        return connection.getresponse()

    def hold(self) -> None:
        """Waits for longer than a client does."""
        self.struck.release()
        self.release.wait(self._hold_s)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, proxy: Proxy) -> None:
        super().__init__((_HOST, 0), _Answerer)
        self.proxy = proxy

    def handle_error(self, *_: object) -> None:
        """Reports nothing: a client that does not wait has closed the connection."""


class _Answerer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def answer(self) -> None:
        """Any request: forwarded, or what the fault makes of it."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kept = {name: value for name, value in self.headers.items() if name.lower() not in _OWN}
        proxy = self.server.proxy
        fault = proxy.take(self.command, self.path, kept)
        answer, _, when = fault.partition(" ")
        if answer == "late":
            proxy.hold()
        if when == "before":
            self._fail(answer)
            return
        response = proxy.forward(self.command, self.path, body, kept)
        content = response.read()
        if answer == "twice":
            proxy.between()
            response = proxy.forward(self.command, self.path, body, kept)
            content = response.read()
            proxy.struck.release()
        if answer in ("", "twice"):
            self._pass_on(response, proxy.changed(content))
        else:
            self._fail(answer)

    do_GET = do_POST = do_HEAD = do_DELETE = do_PUT = answer  # noqa: N815  (the names that http.server calls)

    def _pass_on(self, response: Answer, content: bytes) -> None:
        names = ("Content-Type", "ETag", "x-amzn-RequestId", "x-amzn-ErrorType")
        headers = {name: value for name in names if (value := response.getheader(name))}
        self._send(response.status, headers, content)

    def _fail(self, answer: str) -> None:
        self.close_connection = True
        if answer == "stall":
            self.server.proxy.hold()
        elif answer not in (*_SILENT, "late"):
            self._send(*self.server.proxy.reply(answer))
        if answer not in ("late", "stall"):
            self.server.proxy.struck.release()

    def _send(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:  # A proxy in front of this one asks for it, and is to be told.
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Reports nothing."""


class LossyRelay(Relay):
    """A way over TCP on which requests of one kind, and the answers to them, get lost.

    request: what each such request contains, in one piece.
    """

    faults: Sequence[Fault] = ("cut before", "cut after", "stall before", "stall after", "late")

    def __init__(self, target: int, request: bytes) -> None:
        super().__init__(target)
        self._request = re.compile(request)
        self._next: Iterator[Fault] = iter(())
        self._lock = threading.Lock()
        self._unanswered: dict[socket.socket, Fault] = {}
        self.met = Counter[Fault]()
        self.join()

    @contextmanager
    def unlucky(self, seed: int, per_mille: int) -> Iterator[None]:
        """See Way."""
        self._next = _chosen(seed, per_mille, self.faults)
        try:
            yield
        finally:
            self._next = iter(())

    @contextmanager
    def faulty(self, fault: Fault) -> Iterator[None]:
        """The next request fails like this."""
        self._next = iter([fault])
        try:
            yield
        finally:
            self._next = iter(())

    def close(self) -> None:
        """See Way."""
        self.cut()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while content := source.recv(65536):
                fault, lost = self._take(content), self._unanswered.get(source, "")
                if fault == "cut before" or lost == "cut after":
                    break
                if fault:
                    self._unanswered[sink] = fault
                if fault == "late":
                    time.sleep(STALL_S)
                if fault != "stall before" and not lost:
                    sink.sendall(content)
            for end in (source, sink):
                end.shutdown(socket.SHUT_RDWR)

    def _take(self, content: bytes) -> Fault:
        if not self._request.search(content):
            return ""
        with self._lock:
            fault = next(self._next, "")
            self.met[fault] += 1
        return fault
