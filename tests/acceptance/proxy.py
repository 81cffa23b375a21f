"""An HTTP proxy in front of a REST catalog that can lose the answer to a commit, before or after it was carried out, or send
it twice, as proxies do that try again by themselves: the second time it is refused.
"""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Fault = Literal["502 after", "cut after", "502 before", "cut before", "late", "twice"]
_COMMIT = re.compile(r"^/v1/namespaces/[^/]+/tables/[^/]+$")
_HOST = "127.0.0.1"
_OWN = ("host", "connection", "accept-encoding")
"""Headers that concern one connection, not the server behind it."""


class Proxy:
    """Forwards everything to the server on `port`, but for the commits that `faulty` is about."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._fault: Fault | None = None
        self._left = 0
        self.struck = threading.Semaphore(0)
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
        self.release.clear()
        self.between = between
        self._fault, self._left = fault, times
        try:
            yield
        finally:
            self._left = 0
            self.release.set()

    def wait_until_struck(self, within_s: float) -> None:
        """Waits until a commit has met the fault."""
        assert self.struck.acquire(timeout=within_s), f"no commit met the fault {self._fault}"

    def changed(self, content: bytes) -> bytes:
        """What is passed on of an answer: here all of it as it is."""
        return content

    def close(self) -> None:
        """Frees the port."""
        self._server.shutdown()
        self._server.server_close()

    def take(self, method: str, path: str) -> Fault | None:
        """The fault that this request meets."""
        if method != "POST" or not _COMMIT.match(path.partition("?")[0]) or self._left <= 0:
            return None
        self._left -= 1
        return self._fault

    def forward(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> http.client.HTTPResponse:
        """The server's answer."""
        connection = http.client.HTTPConnection(_HOST, self._upstream, timeout=60)
        connection.request(method, path, body, {**headers, "Connection": "close"})
        return connection.getresponse()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, proxy: Proxy) -> None:
        super().__init__((_HOST, 0), _Answerer)
        self.proxy = proxy


class _Answerer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def answer(self) -> None:
        """Any request: forwarded, or what the fault makes of it."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kept = {name: value for name, value in self.headers.items() if name.lower() not in _OWN}
        proxy = self.server.proxy
        fault = proxy.take(self.command, self.path)
        if fault == "late":
            proxy.struck.release()
            proxy.release.wait(120)
        if fault in ("502 before", "cut before"):
            self._fail(fault)
            return
        response = proxy.forward(self.command, self.path, body, kept)
        content = response.read()
        if fault == "twice":
            proxy.between()
            response = proxy.forward(self.command, self.path, body, kept)
            content = response.read()
            proxy.struck.release()
        if fault in (None, "twice"):
            self._pass_on(response, proxy.changed(content))
        else:
            self._fail(fault)

    do_GET = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815  (the names that http.server calls)

    def _pass_on(self, response: http.client.HTTPResponse, content: bytes) -> None:
        self.send_response(response.status)
        for name in ("Content-Type", "ETag"):
            if response.getheader(name):
                self.send_header(name, response.headers[name])
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _fail(self, fault: Fault) -> None:
        self.close_connection = True
        if fault.startswith("502"):
            self.send_response(502)
            self.send_header("Content-Length", "0")
            self.end_headers()
        if fault != "late":
            self.server.proxy.struck.release()

    def log_message(self, *_: object) -> None:
        """Reports nothing."""
