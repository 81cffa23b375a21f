"""An HTTP proxy in front of a catalog that answers commits wrongly, before or after they were carried out, or sends them
twice, as proxies do that try again by themselves: the second time they are refused.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, repeat

from tests.acceptance.soaking import rng

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
ANSWERS = (*_ERRORS, "garbage", *_SILENT)
FAULTS: tuple[Fault, ...] = (*(f"{answer} {when}" for answer in ANSWERS for when in ("before", "after")), "late")
"""All that a seeded choice may make of a commit."""

Reply = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""


class RestDialect:
    """The commits and the errors of Iceberg's REST protocol."""

    def is_commit(self, method: str, path: str, headers: Mapping[str, str]) -> bool:  # noqa: ARG002  (another's needs them)
        """Whether the request creates or changes a table."""
        return method == "POST" and _COMMIT.match(path.partition("?")[0]) is not None

    def reply(self, answer: str) -> Reply:
        """The wrong answer."""
        if answer == "garbage":
            return 200, {"Content-Type": "application/json"}, b"<html>welcome</html>"
        error = {"message": "injected", "type": _ERRORS[answer], "code": int(answer)}
        retried = {"Retry-After": "1"} if answer == "503" else {}
        return int(answer), {"Content-Type": "application/json", **retried}, json.dumps({"error": error}).encode()


class Proxy:
    """Forwards everything to the server on `port`, but for the commits that `faulty` or `unlucky` is about."""

    def __init__(self, port: int, dialect: RestDialect | None = None) -> None:
        self._upstream = port
        self._dialect = dialect or RestDialect()
        self._next: Iterator[Fault] = iter(())
        self._hold_s = STALL_S
        self._lock = threading.Lock()
        self.struck = threading.Semaphore(0)
        self.met = Counter[Fault]()
        """How many commits have met each fault; the empty one is none."""
        self.release = threading.Event()
        self.between: Callable[[], object] = lambda: None
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

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
    def unlucky(self, seed: int, per_mille: int, faults: Sequence[Fault] = FAULTS) -> Iterator[None]:
        """Of a thousand commits about so many meet each of the faults, the same ones for the same seed."""
        places = (rng(seed, number, 1000) // per_mille for number in count())
        with self._striking((faults[place] if place < len(faults) else "" for place in places), STALL_S):
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

    def forward(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> http.client.HTTPResponse:
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
            self._pass_on(response, content)
        else:
            self._fail(answer)

    do_GET = do_POST = do_HEAD = do_DELETE = do_PUT = answer  # noqa: N815  (the names that http.server calls)

    def _pass_on(self, response: http.client.HTTPResponse, content: bytes) -> None:
        names = ("Content-Type", "ETag", "x-amzn-RequestId", "x-amzn-ErrorType")
        headers = {name: response.headers[name] for name in names if response.getheader(name)}
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
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Reports nothing."""
